//! Copies the server to where its user can read it, because only the owner can reach a cache folder in a closed home.

use super::{EmbeddedError, account::Account};
use sha2::{Digest, Sha256};
use std::{
    fs, io,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

/// No PostgreSQL installation is deeper.
const MAX_DEPTH: usize = 12;
const PREFIX: &str = "server-";

/// Where `account` can run the server of `home`: in place, or from a copy in `data_dir`.
pub(super) fn reachable(home: &Path, data_dir: &Path, account: Account) -> Result<PathBuf, EmbeddedError> {
    let no_server = || EmbeddedError::NoServer(home.to_path_buf());
    let home = fs::canonicalize(home).map_err(|_| no_server())?;
    let program = home.join("bin/postgres");
    let metadata = fs::metadata(&program).map_err(|_| no_server())?;
    if !account.is_other || (account.barrier(&home.join("bin")).is_none() && metadata.mode() & 0o005 == 0o005) {
        return Ok(home);
    }
    // The setup's stamp names the release; without one, the program file's own metadata does.
    let stamp = fs::read_to_string(home.join(".sha256")).unwrap_or_default();
    let identity = format!("{stamp}|{}|{}|{}", home.display(), metadata.len(), metadata.mtime());
    let name = format!("{PREFIX}{}", &hex::encode(Sha256::digest(identity))[..12]);
    let copy = data_dir.join(&name);
    if !copy.is_dir() {
        let fresh = data_dir.join(format!("{PREFIX}new"));
        remove(&fresh)?;
        copy_tree(&home, &fresh, MAX_DEPTH).map_err(EmbeddedError::file("copy the server to", &fresh))?;
        fs::rename(&fresh, &copy).map_err(EmbeddedError::file("move into place", &copy))?;
    }
    Ok(copy)
}

/// Removes the copies of other releases and keeps `current`.
pub(super) fn remove_others(data_dir: &Path, current: &Path) {
    let Ok(entries) = fs::read_dir(data_dir) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        let is_copy = path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(PREFIX.as_bytes()));
        if is_copy
            && path != current
            && let Err(error) = remove(&path)
        {
            tracing::warn!(%error, "an old copy of the PostgreSQL server could not be removed");
        }
    }
}

fn remove(path: &Path) -> Result<(), EmbeddedError> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(EmbeddedError::file("remove", path)(error)),
        _ => Ok(()),
    }
}

fn copy_tree(from: &Path, to: &Path, depth: usize) -> io::Result<()> {
    if depth == 0 {
        return Err(io::Error::other("the folders of the server are nested too deep"));
    }
    fs::create_dir(to)?;
    // The mode is set explicitly, because the process's mask may restrict it.
    fs::set_permissions(to, fs::Permissions::from_mode(0o755))?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let metadata = fs::metadata(&source)?;
        if metadata.is_dir() {
            copy_tree(&source, &target, depth - 1)?;
        } else {
            let is_open = metadata.mode() & 0o004 != 0 && !entry.file_type()?.is_symlink();
            // A link takes no space if the two folders share a file system.
            if !is_open || fs::hard_link(&source, &target).is_err() {
                fs::copy(&source, &target)?;
                let mode = if metadata.mode() & 0o100 != 0 { 0o755 } else { 0o644 };
                fs::set_permissions(&target, fs::Permissions::from_mode(mode))?;
            }
        }
    }
    Ok(())
}
