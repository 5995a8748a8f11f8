//! A small file system, to be filled.
use std::{
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// It is unmounted when this is dropped.
pub struct Disk(pub PathBuf);

impl Disk {
    /// Returns `None` if this user may not mount.
    pub fn mount(at: &Path, megabytes: u32) -> Option<Disk> {
        fs::create_dir_all(at).unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={megabytes}m,mode=0755"), "tmpfs"])
            .arg(at)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        mounted.is_ok_and(|status| status.success()).then(|| Disk(at.to_owned()))
    }

    /// Writes until nothing more fits.
    pub fn fill(&self) {
        // Whoever else fills the disk may leave no room for the file.
        let Ok(ballast) = File::create(self.ballast()) else { return };
        for size in [1 << 20, 4096] {
            let piece = vec![0; size];
            while (&ballast).write_all(&piece).is_ok() {}
        }
    }

    pub fn free(&self) {
        let _ = fs::remove_file(self.ballast());
    }

    fn ballast(&self) -> PathBuf {
        self.0.join("ballast")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}
