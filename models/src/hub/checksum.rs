use sha1::Sha1;
use sha2::{Digest, Sha256};
use std::fmt::Write as _;

/// The hash of a file's bytes. Large files have a SHA-256; files in git itself have git's SHA-1 of the blob.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Checksum {
    Sha256(String),
    GitBlob(String),
}

impl Checksum {
    /// Reads an ETag as the hub writes it; `None` if it is not such a hash.
    pub fn from_etag(etag: &str) -> Option<Self> {
        let hash = etag.strip_prefix("W/").unwrap_or(etag).trim_matches('"').to_ascii_lowercase();
        let is_hash = hash.bytes().all(|byte| byte.is_ascii_hexdigit());
        match hash.len() {
            64 if is_hash => Some(Self::Sha256(hash)),
            40 if is_hash => Some(Self::GitBlob(hash)),
            _ => None,
        }
    }

    /// Makes a hasher for a file of `size` bytes.
    pub fn hasher(&self, size: u64) -> Hasher {
        match self {
            Self::Sha256(_) => Hasher::Sha256(Sha256::new()),
            Self::GitBlob(_) => Hasher::GitBlob(Sha1::new_with_prefix(format!("blob {size}\0"))),
        }
    }

    pub fn hex(&self) -> &str {
        let (Self::Sha256(hex) | Self::GitBlob(hex)) = self;
        hex
    }
}

pub(super) enum Hasher {
    Sha256(Sha256),
    GitBlob(Sha1),
}

impl Hasher {
    pub fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Sha256(hash) => hash.update(bytes),
            Self::GitBlob(hash) => hash.update(bytes),
        }
    }

    pub fn hex(self) -> String {
        let bytes: &[u8] = match self {
            Self::Sha256(hash) => &hash.finalize(),
            Self::GitBlob(hash) => &hash.finalize(),
        };
        bytes.iter().fold(String::new(), |mut hex, byte| {
            // Writing to a String cannot fail.
            let _ = write!(hex, "{byte:02x}");
            hex
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_git_and_sha256sum() {
        // echo hello | git hash-object --stdin; echo hello | sha256sum
        for (etag, wanted) in [
            ("\"ce013625030ba8dba906f756967f9e9ca394464a\"", true),
            ("\"5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03\"", true),
            ("W/\"5891B5B522D5DF086D0FF0B110FBD9D21BB4FC7163AF34D08286A2E846F6BE03\"", true),
            ("\"5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be04\"", false),
        ] {
            let checksum = Checksum::from_etag(etag).unwrap();
            let mut hasher = checksum.hasher(6);
            hasher.update(b"hel");
            hasher.update(b"lo\n");
            assert_eq!(hasher.hex() == checksum.hex(), wanted, "{etag}");
        }
        for etag in ["", "\"abc\"", "\"zz013625030ba8dba906f756967f9e9ca394464a\"", "1-2-3"] {
            assert_eq!(Checksum::from_etag(etag), None, "{etag}");
        }
    }
}
