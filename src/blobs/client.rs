//! The client of the object store.
use crate::settings::{BlobStore, Settings};
use object_store::{
    BackoffConfig, ClientOptions, ObjectStore, Result, RetryConfig,
    aws::{AmazonS3Builder, AmazonS3ConfigKey},
    local::LocalFileSystem,
    prefix::PrefixStore,
};
use std::{fs::DirBuilder, os::unix::fs::DirBuilderExt, path::Path, sync::Arc, time::Duration};

/// How long a request may take. A part of 8 MiB must arrive within it.
const REQUEST: Duration = Duration::from_secs(60);
/// How often a request is repeated, and for how long. Whoever asks tries again later, so this only bridges a hiccup.
const RETRIES: usize = 3;
const RETRYING: Duration = Duration::from_secs(15);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

pub(super) fn open(settings: &Settings, store: &BlobStore) -> Result<Arc<dyn ObjectStore>> {
    match store {
        BlobStore::Folder(path) => folder(path),
        BlobStore::S3 { bucket, prefix } => s3(settings, bucket, prefix),
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

fn s3(settings: &Settings, bucket: &str, prefix: &str) -> Result<Arc<dyn ObjectStore>> {
    let mut builder = AmazonS3Builder::new();
    let has_key = !settings.blob_access_key_id.is_empty();
    for (name, value) in &settings.aws {
        let Ok(key) = name.to_ascii_lowercase().parse() else { continue };
        // The token belongs to the key beside it.
        let is_of_key = matches!(
            key,
            AmazonS3ConfigKey::AccessKeyId | AmazonS3ConfigKey::SecretAccessKey | AmazonS3ConfigKey::Token
        );
        if !(has_key && is_of_key) {
            builder = builder.with_config(key, value.expose());
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
    let backoff = BackoffConfig { max_backoff: LONGEST_PAUSE, ..BackoffConfig::default() };
    let built = builder
        .with_bucket_name(bucket)
        .with_client_options(ClientOptions::new().with_allow_http(settings.blob_allow_http).with_timeout(REQUEST))
        .with_retry(RetryConfig { backoff, max_retries: RETRIES, retry_timeout: RETRYING })
        .build()?;
    Ok(match prefix {
        "" => Arc::new(built),
        prefix => Arc::new(PrefixStore::new(built, prefix)),
    })
}
