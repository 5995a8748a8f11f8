//! Whether there is room on the disk: what statements and files said lately, and what the disk of the data folder has free.
use std::{
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// For so long after a write was refused the disk counts as full: the database's may be on another machine, and only writes tell.
const REMEMBERED: Duration = Duration::from_secs(60);

/// The disk of one process.
pub struct Disk {
    folder: PathBuf,
    least_free: u64,
    refused_at: Mutex<Option<Instant>>,
}

impl Disk {
    /// `folder`: that of the data. With less than `least_free` bytes its disk counts as full.
    pub fn new(folder: &Path, least_free: u64) -> Disk {
        Disk { folder: folder.to_owned(), least_free, refused_at: Mutex::new(None) }
    }

    /// A write was refused for want of room, the database's or one of our own.
    pub fn refused(&self) {
        *self.refused_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// How much is free, or why nothing can be stored.
    pub fn check(&self) -> Result<String, String> {
        let refused_at = *self.refused_at.lock().unwrap_or_else(PoisonError::into_inner);
        if refused_at.is_some_and(|at| at.elapsed() < REMEMBERED) {
            return Err(
                "a write was refused for want of room within the last minute: free space on the disk of the data folder and of the database"
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

/// The bytes that a folder's disk has free for this user; of a folder that is not made yet, those of the one above.
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
