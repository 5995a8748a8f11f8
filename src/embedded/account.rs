//! The user that the server runs as: our own user, or, because PostgreSQL refuses root, a user without rights if we are
//! root.

use super::EmbeddedError;
use std::{
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, chown, fchown},
    path::{Path, PathBuf},
};

/// The user who owns the cluster and runs its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Account {
    pub uid: u32,
    pub gid: u32,
    /// Whether the server's process must change to this user first.
    pub is_other: bool,
}

impl Account {
    /// The owner of `cluster` if that exists, so that a folder stays with its user; else our own user, or for root
    /// `postgres` or `nobody`.
    pub fn choose(cluster: &Path) -> Result<Self, EmbeddedError> {
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let owner = fs::metadata(cluster).ok().map(|metadata| (metadata.uid(), metadata.gid()));
        match owner {
            Some((owner, group)) if uid == 0 && owner != 0 => Ok(Self { uid: owner, gid: group, is_other: true }),
            Some((owner, _)) if uid != 0 && owner != uid => {
                Err(EmbeddedError::ForeignOwner { path: cluster.to_path_buf(), uid: owner })
            }
            _ if uid == 0 => {
                let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
                let found = ["postgres", "nobody"].iter().find_map(|name| find_user(&users, name));
                let (uid, gid) = found.ok_or(EmbeddedError::NoAccount)?;
                Ok(Self { uid, gid, is_other: true })
            }
            _ => Ok(Self { uid, gid, is_other: false }),
        }
    }

    /// Gives a path to this account.
    pub fn own(&self, path: &Path) -> Result<(), EmbeddedError> {
        if !self.is_other {
            return Ok(());
        }
        chown(path, Some(self.uid), Some(self.gid)).map_err(EmbeddedError::file("change the owner of", path))
    }

    /// Keeps a folder from this account, which may only pass through it.
    pub fn keep_from(&self, folder: &Path) -> Result<(), EmbeddedError> {
        if !self.is_other {
            return Ok(());
        }
        let keep = || {
            chown(folder, Some(0), Some(0))?;
            fs::set_permissions(folder, fs::Permissions::from_mode(0o711))
        };
        keep().map_err(EmbeddedError::file("change the owner of", folder))
    }

    /// Gives a file or folder that is open to this account, whatever its path leads to by now.
    pub fn own_open(&self, open: &fs::File, path: &Path) -> Result<(), EmbeddedError> {
        if !self.is_other {
            return Ok(());
        }
        fchown(open, Some(self.uid), Some(self.gid)).map_err(EmbeddedError::file("change the owner of", path))
    }

    /// The first folder on the way to `path`, or `path` itself, that this account may not enter.
    pub fn barrier(&self, path: &Path) -> Option<PathBuf> {
        let folders: Vec<_> = path.ancestors().collect();
        folders.into_iter().rev().find(|folder| !self.may_enter(folder)).map(Path::to_path_buf)
    }

    fn may_enter(&self, folder: &Path) -> bool {
        let Ok(metadata) = fs::metadata(folder) else { return false };
        let bit = if metadata.uid() == self.uid {
            0o100
        } else if metadata.gid() == self.gid {
            0o010
        } else {
            0o001
        };
        metadata.mode() & bit != 0
    }
}

/// The user and group ids of a name in the text of the user table; never root's.
fn find_user(users: &str, name: &str) -> Option<(u32, u32)> {
    users.lines().find_map(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let [first, _, uid, gid, ..] = fields[..] else { return None };
        let ids = (uid.parse().ok()?, gid.parse().ok()?);
        (first == name && ids.0 != 0).then_some(ids)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_its_whole_name_and_never_as_root() {
        let users = "root:x:0:0:root:/:/bin/sh\nbroken\npostgres2:x:7:7::/:\npostgres:x:101:104:a:/:/bin/sh\nnobody:x:0:0::/:\n";
        assert_eq!(find_user(users, "postgres"), Some((101, 104)));
        assert_eq!(find_user(users, "nobody"), None);
        assert_eq!(find_user(users, "svc"), None);
    }
}
