//! The client of the object store.
use crate::settings::{BlobStore, Provider, Settings, is_this_machine};
use object_store::{
    BackoffConfig, ClientOptions, ObjectStore, Result, RetryConfig,
    aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey},
    azure::{AzureConfigKey, MicrosoftAzure, MicrosoftAzureBuilder},
    gcp::{GoogleCloudStorage, GoogleCloudStorageBuilder, GoogleConfigKey},
    local::LocalFileSystem,
    prefix::PrefixStore,
};
use std::{fs::DirBuilder, os::unix::fs::DirBuilderExt, path::Path, str::FromStr, sync::Arc, time::Duration};

/// How long a request may take. A part of 8 MiB must arrive within it.
const REQUEST: Duration = Duration::from_secs(60);
/// How often a request is repeated, and for how long. Whoever asks tries again later, so this only bridges a hiccup.
const RETRIES: usize = 3;
const RETRYING: Duration = Duration::from_secs(15);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// All that a host may be, in the form of NO_PROXY.
const EVERY_HOST: &str = "*,0.0.0.0/0,::/0";

pub(super) fn open(settings: &Settings, store: &BlobStore) -> Result<Arc<dyn ObjectStore>> {
    match store {
        BlobStore::Folder(path) => folder(path),
        BlobStore::Bucket { provider: Provider::S3, bucket, prefix } => Ok(under(prefix, s3(settings, bucket)?)),
        BlobStore::Bucket { provider: Provider::Google, bucket, prefix } => {
            Ok(under(prefix, google(settings, bucket)?))
        }
        BlobStore::Bucket { provider: Provider::Azure, bucket, prefix } => Ok(under(prefix, azure(settings, bucket)?)),
    }
}

fn folder(path: &Path) -> Result<Arc<dyn ObjectStore>> {
    // Stored bytes are for the user of the service alone.
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
        .map_err(|source| object_store::Error::Generic { store: "folder", source: source.into() })?;
    Ok(Arc::new(LocalFileSystem::new_with_prefix(path)?.with_fsync(true)))
}

/// What is under a prefix of a bucket; blank: all of it.
fn under(prefix: &str, bucket: impl ObjectStore) -> Arc<dyn ObjectStore> {
    match prefix {
        "" => Arc::new(bucket),
        prefix => Arc::new(PrefixStore::new(bucket, prefix)),
    }
}

/// How requests are sent.
fn requests(settings: &Settings) -> ClientOptions {
    let options = ClientOptions::new().with_allow_http(settings.blob_allow_http).with_timeout(REQUEST);
    match settings.blob_server() {
        // A proxy of the environment cannot reach this machine. The client leaves it out only for another proxy, from which every host is excluded, and so
        // credentials of such a store do not come through it either.
        Some(server) if is_this_machine(server) => options.with_proxy_url(server).with_proxy_excludes(EVERY_HOST),
        _ => options,
    }
}

fn retries() -> RetryConfig {
    let backoff = BackoffConfig { max_backoff: LONGEST_PAUSE, ..BackoffConfig::default() };
    RetryConfig { backoff, max_retries: RETRIES, retry_timeout: RETRYING }
}

/// The variables of the environment by which a provider's stores get their credentials, as keys of its builder. Those that the builder does not
/// know are for other programs.
fn variables<K: FromStr>(settings: &Settings, provider: Provider) -> impl Iterator<Item = (K, &str)> {
    let of_provider = settings.of_stores.iter().filter(move |(name, _)| name.starts_with(provider.variables()));
    of_provider.filter_map(|(name, value)| Some((name.to_ascii_lowercase().parse().ok()?, value.expose())))
}

fn s3(settings: &Settings, bucket: &str) -> Result<AmazonS3> {
    let mut builder = AmazonS3Builder::new();
    let has_key = !settings.blob_access_key_id.is_empty();
    for (key, value) in variables::<AmazonS3ConfigKey>(settings, Provider::S3) {
        // The token belongs to the key beside it.
        let is_of_key = matches!(
            key,
            AmazonS3ConfigKey::AccessKeyId | AmazonS3ConfigKey::SecretAccessKey | AmazonS3ConfigKey::Token
        );
        if !(has_key && is_of_key) {
            builder = builder.with_config(key, value);
        }
    }
    if has_key {
        builder = builder
            .with_config(AmazonS3ConfigKey::AccessKeyId, &settings.blob_access_key_id)
            .with_config(AmazonS3ConfigKey::SecretAccessKey, settings.blob_secret_access_key.expose());
    }
    if !settings.blob_region.is_empty() {
        builder = builder.with_region(&settings.blob_region);
    }
    if let Some(address) = settings.blob_server() {
        builder = builder.with_config(AmazonS3ConfigKey::S3Endpoint, address);
    }
    builder.with_bucket_name(bucket).with_client_options(requests(settings)).with_retry(retries()).build()
}

fn google(settings: &Settings, bucket: &str) -> Result<GoogleCloudStorage> {
    let mut builder = GoogleCloudStorageBuilder::new();
    for (key, value) in variables::<GoogleConfigKey>(settings, Provider::Google) {
        builder = builder.with_config(key, value);
    }
    if let Some(address) = settings.blob_server() {
        builder = builder.with_base_url(address);
    }
    builder.with_bucket_name(bucket).with_client_options(requests(settings)).with_retry(retries()).build()
}

fn azure(settings: &Settings, container: &str) -> Result<MicrosoftAzure> {
    let mut builder = MicrosoftAzureBuilder::new();
    for (key, value) in variables::<AzureConfigKey>(settings, Provider::Azure) {
        // An emulator would be called over plain http whatever the settings say; SVC_BLOB_ENDPOINT names one as any other server.
        if key != AzureConfigKey::UseEmulator {
            builder = builder.with_config(key, value);
        }
    }
    if let Some(address) = settings.blob_server() {
        builder = builder.with_endpoint(address.to_owned());
    }
    builder.with_container_name(container).with_client_options(requests(settings)).with_retry(retries()).build()
}
