//! The token that a service made for itself, kept where the command line of the same user finds it.
use std::{
    fs,
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

fn path(data_dir: &Path) -> PathBuf {
    data_dir.join("owner-token")
}

/// Stores a token, readable only by this user, in place of an earlier one.
pub fn keep(data_dir: &Path, token: &str) -> io::Result<()> {
    fs::create_dir_all(data_dir)?;
    // It is renamed into place, so that a reader finds a whole token or none, and never one that others may read.
    let new = data_dir.join("owner-token.new");
    drop(fs::remove_file(&new));
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(token.as_bytes())?;
    fs::rename(new, path(data_dir))
}

/// Removes the token, because the service has one that its user chose.
pub fn forget(data_dir: &Path) {
    // Usually there is none.
    drop(fs::remove_file(path(data_dir)));
}

/// The token of the last start that made one.
pub fn read(data_dir: &Path) -> Option<String> {
    Some(fs::read_to_string(path(data_dir)).ok()?.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_token_is_kept_for_its_user_alone_and_the_last_one_stands() {
        let folder = tempfile::tempdir().expect("a folder");
        let data_dir = folder.path().join("data");
        assert_eq!(read(&data_dir), None);
        for token in ["first", "second"] {
            keep(&data_dir, token).expect("kept");
            assert_eq!(read(&data_dir).as_deref(), Some(token));
            let mode = fs::metadata(path(&data_dir)).expect("a file").permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        forget(&data_dir);
        assert_eq!(read(&data_dir), None);
    }
}
