//! `svc export` and `svc import` of a folder: a part of the tree, or all of it, from one store to another (docs/backup.md).
mod checking;
mod exporting;
mod importing;
mod searching;
mod sorted;

use super::CliError;
use chrono::{DateTime, Utc};
pub use exporting::{ExportArguments, export};
pub use importing::import;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

/// The form of an archive that this version writes. It reads all before it, too.
const FORMAT: u32 = 2;
const MANIFEST: &str = "manifest.json";
const MANIFEST_BYTES: u64 = 1 << 20;
const DOCUMENTS: &str = "documents.ndjson";
const LINKS: &str = "links.ndjson";
const GRANTS: &str = "grants.ndjson";
const PREDICATES: &str = "predicates.ndjson";
const FACTS: &str = "facts.ttl";
const TOKENS: &str = "tokens.ndjson";
const INDEXES: &str = "indexes.ndjson";
const CONTEXTS: &str = "contexts.ndjson";
/// The files of an archive besides its manifest and the stored bytes. Those of the first form come first.
const FILES: [&str; 8] = [DOCUMENTS, LINKS, GRANTS, PREDICATES, FACTS, TOKENS, INDEXES, CONTEXTS];
const FILES_OF_THE_FIRST_FORM: usize = 5;
/// The folder of the stored bytes, each file under its hash.
const BLOBS: &str = "blobs";

/// What an archive says of itself. It is written last, so that a folder without it is no archive.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Manifest {
    format: u32,
    /// The name that the archive gave itself.
    archive: String,
    /// The release of svc that made it.
    version: String,
    exported_at: DateTime<Utc>,
    /// The document that it is of; null for everything.
    root: Option<i64>,
    files: Vec<Listed>,
    counts: Counts,
}

/// A file of an archive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Listed {
    name: String,
    bytes: u64,
    sha256: String,
}

/// What is in an archive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Counts {
    documents: u64,
    vectors: u64,
    /// Documents with stored bytes.
    files: u64,
    file_bytes: u64,
    links: u64,
    /// Links with an end that is not in the archive.
    links_outside: u64,
    grants: u64,
    predicates: u64,
    /// Documents with token vectors.
    #[serde(default)]
    tokens: u64,
    #[serde(default)]
    indexes: u64,
    /// Documents whose subtrees the indexes cover.
    #[serde(default)]
    members: u64,
    /// Those that are not in the archive.
    #[serde(default)]
    members_outside: u64,
    #[serde(default)]
    contexts: u64,
    /// Search contexts that name a document which is not in the archive.
    #[serde(default)]
    contexts_outside: u64,
}

/// The files of an archive of this form.
fn files(format: u32) -> &'static [&'static str] {
    &FILES[..if format == 1 { FILES_OF_THE_FIRST_FORM } else { FILES.len() }]
}

/// For `map_err`: names the path.
fn at(path: &Path) -> impl Fn(io::Error) -> CliError {
    let path = path.to_path_buf();
    move |error| CliError::Other(format!("{}: {error}", path.display()))
}

/// Hashes a file; returns its size and its hash in hexadecimal.
fn hash(path: &Path) -> io::Result<(u64, String)> {
    let mut file = File::open(path)?;
    let (mut hash, mut bytes, mut buffer) = (Sha256::new(), 0, vec![0; 1 << 16]);
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok((bytes, hex::encode(hash.finalize()))),
            read => {
                hash.update(&buffer[..read]);
                bytes += read as u64;
            }
        }
    }
}

/// Writes a whole file in one step, readable by its user alone.
fn put(path: &Path, value: &impl Serialize) -> io::Result<()> {
    let fresh = path.with_extension("new");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
    file.write_all(&serde_json::to_vec_pretty(value)?)?;
    file.sync_all()?;
    fs::rename(&fresh, path)
}

/// The name of a file with these bytes, by `sha256:<hex>`.
fn blob(folder: &Path, content_hash: &str) -> PathBuf {
    folder.join(BLOBS).join(content_hash.trim_start_matches("sha256:"))
}
