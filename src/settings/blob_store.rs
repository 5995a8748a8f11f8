//! Where stored bytes go if they do not stay in the database.
use std::{fmt, path::PathBuf};

/// The secrets of object stores that are no settings of ours: those of the variables by which a store usually gets its credentials.
pub const STORE_SECRETS: [&str; 16] = [
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "AWS_TOKEN",
    "AWS_SSE_CUSTOMER_KEY_BASE64",
    "GOOGLE_SERVICE_ACCOUNT_KEY",
    "GOOGLE_BEARER_TOKEN",
    "AZURE_STORAGE_ACCOUNT_KEY",
    "AZURE_STORAGE_ACCESS_KEY",
    "AZURE_STORAGE_MASTER_KEY",
    "AZURE_STORAGE_CLIENT_SECRET",
    "AZURE_CLIENT_SECRET",
    "AZURE_STORAGE_SAS_KEY",
    "AZURE_STORAGE_SAS_TOKEN",
    "AZURE_STORAGE_TOKEN",
    "AZURE_STORAGE_ENCRYPTION_KEY",
    "AZURE_FABRIC_SESSION_TOKEN",
];

/// An object store, as SVC_BLOB_STORE names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlobStore {
    /// A bucket, which Azure calls a container, and what keys in it begin with; blank: nothing.
    Bucket { provider: Provider, bucket: String, prefix: String },
    /// A folder, on a disk of this machine or of others.
    Folder(PathBuf),
}

/// Whose interface the server of a bucket speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Provider {
    S3,
    Google,
    Azure,
}

impl Provider {
    const ALL: [Provider; 3] = [Provider::S3, Provider::Google, Provider::Azure];

    /// What the address of a bucket begins with.
    pub(super) fn scheme(self) -> &'static str {
        match self {
            Provider::S3 => "s3://",
            Provider::Google => "gs://",
            Provider::Azure => "az://",
        }
    }

    /// What the variables begin with by which the store usually gets its credentials.
    pub(crate) fn variables(self) -> &'static str {
        match self {
            Provider::S3 => "AWS_",
            Provider::Google => "GOOGLE_",
            Provider::Azure => "AZURE_",
        }
    }

    /// Those of these variables that name the address of the server, the first one that is set.
    pub(super) fn addresses(self) -> &'static [&'static str] {
        match self {
            Provider::S3 => &["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"],
            Provider::Google => &["GOOGLE_BASE_URL"],
            Provider::Azure => &["AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"],
        }
    }

    /// Whether a sign may be in the name of a bucket, by the rules of the provider.
    fn names_with(self, sign: char) -> bool {
        let more = match self {
            Provider::S3 => ".-",
            Provider::Google => ".-_",
            Provider::Azure => "-",
        };
        sign.is_ascii_lowercase() || sign.is_ascii_digit() || more.contains(sign)
    }
}

impl BlobStore {
    /// The variables of all stores by which credentials and addresses are given.
    pub(super) fn is_variable(name: &str) -> bool {
        Provider::ALL.iter().any(|provider| name.starts_with(provider.variables()))
    }

    pub(super) fn parse(text: &str) -> Option<BlobStore> {
        if let Some(path) = text.strip_prefix("file://") {
            let is_folder = path.len() > 1 && path.starts_with('/') && !path.contains(char::is_control);
            return is_folder.then(|| BlobStore::Folder(PathBuf::from(path)));
        }
        let found =
            Provider::ALL.into_iter().find_map(|provider| Some((provider, text.strip_prefix(provider.scheme())?)));
        let (provider, rest) = found?;
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let prefix = prefix.trim_matches('/');
        // Other signs are unsafe in keys, or have a meaning in addresses.
        let in_prefix = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
        let is_sound = (3..=63).contains(&bucket.len())
            && bucket.chars().all(|sign| provider.names_with(sign))
            && prefix.len() <= 200
            && prefix.chars().all(in_prefix)
            && (prefix.is_empty() || prefix.split('/').all(|part| !["", ".", ".."].contains(&part)));
        is_sound.then(|| BlobStore::Bucket { provider, bucket: bucket.to_owned(), prefix: prefix.to_owned() })
    }

    /// Whose server has the bucket; `None` for a folder.
    pub(super) fn provider(&self) -> Option<Provider> {
        match self {
            BlobStore::Bucket { provider, .. } => Some(*provider),
            BlobStore::Folder(_) => None,
        }
    }
}

impl fmt::Display for BlobStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BlobStore::Bucket { provider, bucket, prefix } => {
                write!(f, "{}{bucket}", provider.scheme())?;
                if prefix.is_empty() { Ok(()) } else { write!(f, "/{prefix}") }
            }
            BlobStore::Folder(path) => write!(f, "file://{}", path.display()),
        }
    }
}
