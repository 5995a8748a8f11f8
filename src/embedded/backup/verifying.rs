//! Holds a copy of a cluster against the manifest that `pg_basebackup` wrote: what `pg_verifybackup` does, which does not start in every
//! distribution of the server.
use super::{BackupError, MAX_DEPTH, too_deep};
use serde::Deserialize;
use sha2::{Digest, Sha256};
use std::{
    collections::HashMap,
    ffi::OsString,
    fs::{self, File},
    io::{self, Read},
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};

const MANIFEST: &str = "backup_manifest";
/// A manifest has a line for each file of up to 1 GiB.
const MANIFEST_BYTES: u64 = 1 << 30;
/// What begins the last line, which has the checksum of all lines before.
const LAST_LINE: &str = "\"Manifest-Checksum\"";

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Manifest {
    files: Vec<Listed>,
    #[serde(rename = "WAL-Ranges")]
    ranges: Vec<Range>,
    #[serde(rename = "Manifest-Checksum")]
    checksum: String,
}

#[derive(Deserialize)]
struct Listed {
    #[serde(rename = "Path")]
    path: Option<String>,
    /// In hexadecimal, if the path is no UTF-8.
    #[serde(rename = "Encoded-Path")]
    encoded: Option<String>,
    #[serde(rename = "Size")]
    size: u64,
    #[serde(rename = "Checksum-Algorithm")]
    algorithm: String,
    #[serde(rename = "Checksum")]
    checksum: String,
}

/// The part of the log that makes a copy consistent.
#[derive(Debug, Deserialize)]
pub(super) struct Range {
    #[serde(rename = "Timeline")]
    pub timeline: u32,
    #[serde(rename = "Start-LSN")]
    pub start: String,
    #[serde(rename = "End-LSN")]
    pub end: String,
}

/// Reads all files of a copy; returns the parts of the log that it needs.
pub(super) fn verify(folder: &Path) -> Result<Vec<Range>, BackupError> {
    let faulty = |reason: String| BackupError::NoBackup { path: folder.to_path_buf(), reason };
    let path = folder.join(MANIFEST);
    let mut text = String::new();
    let read = File::open(&path).and_then(|file| file.take(MANIFEST_BYTES).read_to_string(&mut text));
    read.map_err(BackupError::file("read", &path))?;
    let manifest: Manifest =
        serde_json::from_str(&text).map_err(|error| faulty(format!("its {MANIFEST} is damaged: {error}")))?;
    let lines = text.rfind(LAST_LINE).map(|at| &text[..at]).unwrap_or_default();
    if hex::encode(Sha256::digest(lines)) != manifest.checksum {
        return Err(faulty(format!("its {MANIFEST} is damaged: it has not its own checksum")));
    }
    let mut found = HashMap::new();
    list(folder, Path::new(""), &mut found, MAX_DEPTH).map_err(BackupError::file("read", folder))?;
    for listed in &manifest.files {
        let name = name(listed).ok_or_else(|| faulty(format!("its {MANIFEST} names a file that has no name")))?;
        let shown = name.display();
        match found.remove(&name) {
            None => return Err(faulty(format!("{shown} is missing"))),
            Some(size) if size != listed.size => {
                return Err(faulty(format!("{shown} has {size} bytes, and the manifest says {}", listed.size)));
            }
            Some(_) => {}
        }
        if listed.algorithm != "SHA256" {
            return Err(faulty(format!("{shown} has a checksum by {}, and not by SHA256", listed.algorithm)));
        }
        let file = folder.join(&name);
        if hash(&file).map_err(BackupError::file("read", &file))? != listed.checksum {
            return Err(faulty(format!("{shown} has not the checksum of the manifest: it was damaged or changed")));
        }
    }
    // The log is no part of the manifest; it is read by itself.
    if let Some(other) = found.keys().find(|name| !name.starts_with("pg_wal") && *name != Path::new(MANIFEST)) {
        return Err(faulty(format!("{} is not in the manifest", other.display())));
    }
    match manifest.ranges.is_empty() {
        true => Err(faulty(format!("its {MANIFEST} names no part of the log"))),
        false => Ok(manifest.ranges),
    }
}

/// The path of a file in the folder.
fn name(listed: &Listed) -> Option<PathBuf> {
    match (&listed.path, &listed.encoded) {
        (Some(path), _) => Some(PathBuf::from(path)),
        (None, Some(encoded)) => Some(PathBuf::from(OsString::from_vec(hex::decode(encoded).ok()?))),
        (None, None) => None,
    }
}

/// The files of a folder with their sizes, by their paths in it. Only what is found there is opened later.
fn list(folder: &Path, within: &Path, found: &mut HashMap<PathBuf, u64>, depth: usize) -> io::Result<()> {
    let depth = depth.checked_sub(1).ok_or_else(too_deep)?;
    for entry in fs::read_dir(folder.join(within))? {
        let entry = entry?;
        let name = within.join(entry.file_name());
        let metadata = fs::symlink_metadata(entry.path())?;
        match metadata.is_dir() {
            true => list(folder, &name, found, depth)?,
            false if metadata.is_file() => drop(found.insert(name, metadata.len())),
            false => return Err(io::Error::other(format!("{} is neither a file nor a folder", name.display()))),
        }
    }
    Ok(())
}

fn hash(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let (mut hash, mut buffer) = (Sha256::new(), vec![0; 1 << 18]);
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hex::encode(hash.finalize())),
            read => hash.update(&buffer[..read]),
        }
    }
}
