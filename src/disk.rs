//! Whether there is room on the disk: whether writes were refused lately, how much the data folder's disk has free, and whether a folder may come to
//! stand at a place.
use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags, statvfs, statx};
use std::{
    fs::{self, Metadata},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};
use svc_client::{Code, Failure};

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

    /// Records it if an operation was refused for that reason.
    pub fn heed<T>(&self, outcome: &Result<T, Failure>) {
        if outcome.as_ref().is_err_and(|failure| failure.code == Code::StorageFull) {
            self.refused();
        }
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
    let statistics = folder.ancestors().find_map(|folder| statvfs(folder).ok())?;
    statistics.f_bavail.checked_mul(statistics.f_frsize)
}

/// What is at a path that no folder can be renamed to, with what to do about it; `None` if a folder is there that is no mount point or volume, or nothing.
pub fn in_the_way(path: &Path) -> Option<(&'static str, &'static str)> {
    let metadata = fs::symlink_metadata(path).ok()?;
    if metadata.is_symlink() {
        Some(("is a link", "name the folder that it leads to"))
    } else if !metadata.is_dir() {
        Some(("is no folder", "name one that is empty or not there yet"))
    } else if is_volume(path, &metadata) {
        Some(("is where a disk is mounted, or a volume of its own", "name a folder in it that is not there yet"))
    } else {
        None
    }
}

/// Whether something is mounted on a folder, or the folder is a volume within a disk, such as a subvolume of btrfs.
fn is_volume(folder: &Path, metadata: &Metadata) -> bool {
    let told = statx(CWD, folder, AtFlags::NO_AUTOMOUNT | AtFlags::SYMLINK_NOFOLLOW, StatxFlags::empty());
    let is_mount_root = told.is_ok_and(|told| {
        let mount_root = StatxAttributes::MOUNT_ROOT;
        told.stx_attributes_mask.contains(mount_root) && told.stx_attributes.contains(mount_root)
    });
    let above = folder.parent().and_then(|parent| fs::metadata(parent).ok());
    is_by_signs(is_mount_root, metadata.dev(), above.map(|above| above.dev()))
}

/// The same by its two signs: another folder of the same disk that is mounted has the device of the folder above, and a volume is no mount point.
fn is_by_signs(is_mount_root: bool, device: u64, above: Option<u64>) -> bool {
    is_mount_root || above != Some(device)
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

    #[test]
    fn a_folder_takes_the_place_of_an_empty_one_and_of_no_link_file_or_mount_point() {
        let folder = tempfile::tempdir().unwrap();
        let (empty, link) = (folder.path().join("empty"), folder.path().join("link"));
        fs::create_dir(&empty).unwrap();
        std::os::unix::fs::symlink(&empty, &link).unwrap();
        assert_eq!((in_the_way(&empty), in_the_way(&folder.path().join("new"))), (None, None));
        for (path, what) in [
            (link.as_path(), "is a link"),
            (Path::new("/dev/null"), "is no folder"),
            (Path::new("/proc"), "is where a disk is mounted, or a volume of its own"),
            (Path::new("/"), "is where a disk is mounted, or a volume of its own"),
        ] {
            assert_eq!(in_the_way(path).map(|(what, _)| what), Some(what), "{}", path.display());
        }
    }

    #[test]
    fn a_mount_of_the_same_disk_and_a_subvolume_are_volumes_and_a_folder_is_none() {
        for (is_mount_root, device, above, expected) in [
            (false, 41, Some(40), true),
            (true, 40, Some(40), true),
            (true, 40, None, true),
            (false, 40, Some(40), false),
        ] {
            assert_eq!(is_by_signs(is_mount_root, device, above), expected, "{is_mount_root} {device} {above:?}");
        }
    }
}
