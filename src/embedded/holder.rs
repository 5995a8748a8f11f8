//! The lock of a data folder. It admits one service at a time, however the last one died.

use super::EmbeddedError;
use std::{
    fs::{File, OpenOptions, Permissions, TryLockError},
    io::{Read, Seek, Write},
    os::unix::fs::{OpenOptionsExt, PermissionsExt},
    path::Path,
};

/// Who may read the file may lock it too, and so keep the service from starting.
const OWNER_ALONE: u32 = 0o600;

/// The lock, held until it is dropped. The kernel releases it with the process, so a killed service locks nobody out.
#[derive(Debug)]
pub(super) struct Holder {
    file: File,
}

impl Drop for Holder {
    fn drop(&mut self) {
        // Closing the file is not enough, because a child that is being started holds a copy of it until its program
        // runs.
        if let Err(error) = self.file.unlock() {
            tracing::warn!(%error, "the lock of the data folder stays until this process ends");
        }
    }
}

impl Holder {
    /// Takes the lock of `data_dir`, or says who has it.
    pub fn take(data_dir: &Path) -> Result<Self, EmbeddedError> {
        let path = data_dir.join("lock");
        let mut file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .mode(OWNER_ALONE)
            .open(&path)
            .map_err(EmbeddedError::file("open", &path))?;
        // An earlier version made it for all to read.
        if let Err(error) = file.set_permissions(Permissions::from_mode(OWNER_ALONE)) {
            tracing::warn!(%error, "other users of this machine can take the lock of the data folder");
        }
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut pid = String::new();
                // Only digits are believed, because the holder may be writing at this moment.
                let _ = (&file).take(16).read_to_string(&mut pid);
                let known = pid.trim().parse::<u32>().ok();
                let holder = known.map_or("another process".to_owned(), |pid| format!("process {pid}"));
                return Err(EmbeddedError::InUse { path: data_dir.to_path_buf(), holder });
            }
            Err(TryLockError::Error(source)) => {
                return Err(EmbeddedError::File { action: "lock", path, source });
            }
        }
        let written =
            file.set_len(0).and_then(|()| file.rewind()).and_then(|()| writeln!(file, "{}", std::process::id()));
        written.map_err(EmbeddedError::file("write", &path))?;
        Ok(Self { file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_holder_is_refused_with_the_first_one_s_process_id() {
        let folder = std::env::temp_dir().join(format!("svc-holder-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let first = Holder::take(&folder).unwrap();
        let refusal = Holder::take(&folder).unwrap_err().to_string();
        assert!(refusal.contains(&format!("process {}", std::process::id())), "{refusal}");
        assert!(refusal.contains("SVC_DATA_DIR"), "{refusal}");
        // A child has such a copy between fork and exec.
        let copy = first.file.try_clone().unwrap();
        drop(first);
        Holder::take(&folder).unwrap();
        drop(copy);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn no_other_user_of_the_machine_can_take_the_lock() {
        let folder = tempfile::tempdir().unwrap();
        let lock = folder.path().join("lock");
        let mode = || std::fs::metadata(&lock).unwrap().permissions().mode() & 0o777;
        drop(Holder::take(folder.path()).unwrap());
        assert_eq!(mode(), 0o600);
        std::fs::set_permissions(&lock, Permissions::from_mode(0o644)).unwrap();
        drop(Holder::take(folder.path()).unwrap());
        assert_eq!(mode(), 0o600, "one of an earlier version is closed too");
    }
}
