//! Who may connect to the embedded PostgreSQL, and as which role.
//!
//! The kernel tells the server which user is at the other end of its socket, so nobody needs a password. The server
//! admits the service's user, and root, who could do anything anyway.

use super::{EmbeddedError, ROLE, SUPERUSER, account::Account};
use nix::unistd::{Uid, User};
use std::{
    fs,
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

/// The name of the map in the two files.
const MAP: &str = "svc";

/// The two files that the server reads.
pub(super) struct Admission {
    pub hba: PathBuf,
    pub ident: PathBuf,
}

impl Admission {
    /// Writes both files into the cluster. This happens at each start, so that a cluster of an earlier release no
    /// longer admits everybody who reaches its socket.
    pub fn write(cluster: &Path, account: Account) -> Result<Self, EmbeddedError> {
        let files = Self { hba: cluster.join("pg_hba.conf"), ident: cluster.join("pg_ident.conf") };
        let note = "# Written by svc at each start.\n";
        // The second line is for backups: to a server a copy of itself is a database of its own kind.
        let lines = format!("local all all peer map={MAP}\nlocal replication {SUPERUSER} peer map={MAP}\n");
        replace(&files.hba, &format!("{note}{lines}"), account)?;
        let mut map = note.to_owned();
        for user in users()? {
            for role in [ROLE, SUPERUSER] {
                map += &format!("{MAP} \"{user}\" {role}\n");
            }
        }
        replace(&files.ident, &map, account)?;
        Ok(files)
    }
}

/// The names of this process's user and of root.
fn users() -> Result<Vec<String>, EmbeddedError> {
    let name = |uid: Uid| User::from_uid(uid).ok().flatten().map(|user| user.name);
    let ours = Uid::effective();
    // The server looks the name up in the same way, and refuses a user without one.
    let mut names = vec![name(ours).ok_or(EmbeddedError::Nameless { uid: ours.as_raw() })?];
    if !ours.is_root() {
        names.extend(name(Uid::from_raw(0)));
    }
    // No name of a normally created user contains either.
    names.retain(|name| !name.contains(['"', '\n']));
    Ok(names)
}

/// Writes the file in one step, because a starting server may be reading it.
fn replace(path: &Path, text: &str, account: Account) -> Result<(), EmbeddedError> {
    if fs::read_to_string(path).is_ok_and(|there| there == text) {
        return Ok(());
    }
    let fresh = path.with_extension("new");
    let write = || {
        match fs::remove_file(&fresh) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&fresh)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        Ok(file)
    };
    // The account may have put a link there meanwhile.
    let file = write().map_err(EmbeddedError::file("write", &fresh))?;
    account.own_open(&file, &fresh)?;
    fs::rename(&fresh, path).map_err(EmbeddedError::file("move into place", path))
}
