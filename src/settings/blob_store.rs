//! Where stored bytes go if they do not stay in the database.
use std::{fmt, path::PathBuf};

/// An object store, as SVC_BLOB_STORE names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlobStore {
    /// A bucket of a server that speaks S3, and what keys in it begin with; blank: nothing.
    S3 { bucket: String, prefix: String },
    /// A folder, on a disk of this machine or of others.
    Folder(PathBuf),
}

impl BlobStore {
    pub(super) fn parse(text: &str) -> Option<BlobStore> {
        if let Some(path) = text.strip_prefix("file://") {
            let is_folder = path.len() > 1 && path.starts_with('/') && !path.contains(char::is_control);
            return is_folder.then(|| BlobStore::Folder(PathBuf::from(path)));
        }
        let (bucket, prefix) = text.strip_prefix("s3://").map(|rest| rest.split_once('/').unwrap_or((rest, "")))?;
        let prefix = prefix.trim_matches('/');
        // These are the rules of S3 for names of buckets; other signs are unsafe in keys, or have a meaning in addresses.
        let in_bucket = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || ".-".contains(c);
        let in_prefix = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
        let is_sound = (3..=63).contains(&bucket.len())
            && bucket.chars().all(in_bucket)
            && prefix.len() <= 200
            && prefix.chars().all(in_prefix)
            && (prefix.is_empty() || prefix.split('/').all(|part| !["", ".", ".."].contains(&part)));
        is_sound.then(|| BlobStore::S3 { bucket: bucket.to_owned(), prefix: prefix.to_owned() })
    }
}

impl fmt::Display for BlobStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BlobStore::S3 { bucket, prefix } if prefix.is_empty() => write!(f, "s3://{bucket}"),
            BlobStore::S3 { bucket, prefix } => write!(f, "s3://{bucket}/{prefix}"),
            BlobStore::Folder(path) => write!(f, "file://{}", path.display()),
        }
    }
}
