//! Whether there is room on the disk: whether writes were refused lately, and how much the data folder's disk has free.
use std::{
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// How long the disk counts as full after a refused write. The database's disk may be on another machine, and only
/// writes tell its state.
const REMEMBERED: Duration = Duration::from_secs(60);

pub struct Disk {
    folder: PathBuf,
    least_free: u64,
    refused_at: Mutex<Option<Instant>>,
}

impl Disk {
    /// Makes the disk of the data folder, which counts as full with less than `least_free` bytes.
    pub fn new(folder: &Path, least_free: u64) -> Disk {
        Disk { folder: folder.to_owned(), least_free, refused_at: Mutex::new(None) }
    }

    /// Records that a write was refused because a disk was full, the database's or ours.
    pub fn refused(&self) {
        *self.refused_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// How much is free, or why nothing can be stored.
    pub fn check(&self) -> Result<String, String> {
        let refused_at = *self.refused_at.lock().unwrap_or_else(PoisonError::into_inner);
        if refused_at.is_some_and(|at| at.elapsed() < REMEMBERED) {
            return Err(
                "a write was refused for lack of space within the last minute: free space on the disk of the data folder and of the database"
                    .to_owned(),
            );
        }
        let Some(free) = free(&self.folder) else { return Ok("not known".to_owned()) };
        let mib = free >> 20;
        if free < self.least_free {
            return Err(format!(
                "{mib} MiB free in {}, below SVC_DISK_LEAST_FREE_BYTES: free space",
                self.folder.display()
            ));
        }
        Ok(format!("{mib} MiB free"))
    }
}

/// The bytes that a folder's disk has free for this user; if the folder does not exist yet, those of the nearest folder
/// above.
fn free(folder: &Path) -> Option<u64> {
    let statistics = folder.ancestors().find_map(|folder| rustix::fs::statvfs(folder).ok())?;
    statistics.f_bavail.checked_mul(statistics.f_frsize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_full_by_what_it_has_free_and_by_what_it_refused() {
        let folder = std::env::temp_dir().join("is/not/made");
        let disk = Disk::new(&folder, 1);
        assert!(disk.check().unwrap().ends_with("MiB free"));
        let problem = Disk::new(&folder, u64::MAX).check().unwrap_err();
        assert!(problem.contains("SVC_DISK_LEAST_FREE_BYTES"), "{problem}");
        disk.refused();
        assert!(disk.check().unwrap_err().contains("within the last minute"));
    }
}
