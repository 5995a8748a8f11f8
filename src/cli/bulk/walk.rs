//! Finds the files of folders and lists, one after another, and reads each as it is at one moment.
use super::journal::{Key, Known};
use crate::feed::open_beneath;
use sha2::{Digest, Sha256};
use std::{
    ffi::{OsStr, OsString},
    fs::{self, File, Metadata, ReadDir},
    io::{self, BufRead, BufReader, Read, Seek},
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        fs::{MetadataExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
    sync::Arc,
};
use tokio::sync::mpsc::Sender;

/// The deepest folder in a folder. Each on the way is open.
const DEPTH: usize = 200;
/// The longest path in a list.
const PATH_BYTES: u64 = 4096;
/// How often a file is read that changes meanwhile.
const READS: usize = 3;
/// How much of a large file is read at a time.
const PIECE: usize = 256 << 10;

/// Where files are found.
pub struct Sources {
    pub paths: Vec<PathBuf>,
    pub list: Option<PathBuf>,
    /// A file that is not sent: the journal.
    pub but: (u64, u64),
}

/// What the walk comes upon.
pub enum Found {
    File(Candidate),
    /// A link, a pipe and the like.
    Skipped,
    Unreadable {
        path: String,
        reason: String,
    },
}

/// A file that was seen, and may be gone.
#[derive(Clone)]
pub struct Candidate {
    /// The folder that it must lie under; `None` if the user named it.
    root: Option<Arc<File>>,
    /// Under the folder, or as it was named.
    relative: PathBuf,
    /// With the folder.
    path: PathBuf,
}

impl Candidate {
    pub fn shown(&self) -> String {
        self.path.to_string_lossy().into_owned()
    }

    pub fn name(&self) -> String {
        self.path.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    fn open(&self) -> io::Result<File> {
        match &self.root {
            Some(root) => open_beneath(root, &self.relative),
            // A pipe would keep its reader waiting for a writer.
            None => fs::OpenOptions::new()
                .read(true)
                .custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32)
                .open(&self.relative),
        }
    }
}

/// Walks until everything is found or nobody listens any more.
pub fn walk(sources: Sources, found: &Sender<Found>) {
    for path in sources.paths {
        if !one(&path, sources.but, found) {
            return;
        }
    }
    let Some(list) = sources.list else { return };
    let unreadable = |error: &dyn std::fmt::Display| Found::Unreadable {
        path: list.display().to_string(),
        reason: error.to_string(),
    };
    let mut lines: Box<dyn BufRead> = match list.as_os_str() == "-" {
        true => Box::new(BufReader::new(io::stdin())),
        false => match File::open(&list) {
            Ok(file) => Box::new(BufReader::new(file)),
            Err(error) => return drop(found.blocking_send(unreadable(&error))),
        },
    };
    let mut line = Vec::new();
    loop {
        line.clear();
        match lines.by_ref().take(PATH_BYTES).read_until(b'\n', &mut line) {
            Ok(0) => return,
            Ok(_) if line.len() as u64 == PATH_BYTES && line.last() != Some(&b'\n') => {
                return drop(found.blocking_send(unreadable(&"a line is too long for a path")));
            }
            Ok(_) => {}
            Err(error) => return drop(found.blocking_send(unreadable(&error))),
        }
        let text = line.strip_suffix(b"\n").unwrap_or(&line);
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        if !text.is_empty() && !one(&PathBuf::from(OsString::from_vec(text.to_vec())), sources.but, found) {
            return;
        }
    }
}

/// Finds what a path of the user names; false if nobody listens any more.
fn one(path: &Path, but: (u64, u64), found: &Sender<Found>) -> bool {
    let unreadable =
        |path: &Path, reason: String| Found::Unreadable { path: path.to_string_lossy().into_owned(), reason };
    let root = match fs::metadata(path) {
        Ok(facts) if facts.is_dir() => File::open(path).map(Arc::new),
        Ok(_) => {
            let candidate = Candidate { root: None, relative: path.to_owned(), path: path.to_owned() };
            return found.blocking_send(Found::File(candidate)).is_ok();
        }
        Err(error) => Err(error),
    };
    let root = match root {
        Ok(root) => root,
        Err(error) => return found.blocking_send(unreadable(path, error.to_string())).is_ok(),
    };
    // Names are read as they come, because a folder may have millions.
    let mut open: Vec<(PathBuf, ReadDir)> = Vec::new();
    let mut next = Some(PathBuf::new());
    loop {
        if let Some(folder) = next.take() {
            let full = path.join(&folder);
            let read = match open.len() < DEPTH {
                true => fs::read_dir(&full).map_err(|error| error.to_string()),
                false => Err(format!("this folder is deeper than {DEPTH} folders")),
            };
            match read {
                Ok(entries) => open.push((folder, entries)),
                Err(reason) => {
                    if found.blocking_send(unreadable(&full, reason)).is_err() {
                        return false;
                    }
                }
            }
        }
        let Some((folder, entries)) = open.last_mut() else { return true };
        let told = match entries.next() {
            None => {
                open.pop();
                continue;
            }
            Some(Err(error)) => {
                let told = unreadable(&path.join(&*folder), error.to_string());
                open.pop();
                told
            }
            Some(Ok(entry)) => match entry.file_type() {
                Ok(kind) if kind.is_dir() => {
                    next = Some(folder.join(entry.file_name()));
                    continue;
                }
                Ok(kind) if kind.is_file() => {
                    if entry.metadata().is_ok_and(|facts| (facts.dev(), facts.ino()) == but) {
                        continue;
                    }
                    let relative = folder.join(entry.file_name());
                    Found::File(Candidate { root: Some(root.clone()), path: path.join(&relative), relative })
                }
                Ok(_) => Found::Skipped,
                Err(error) => unreadable(&entry.path(), error.to_string()),
            },
        };
        if found.blocking_send(told).is_err() {
            return false;
        }
    }
}

/// The content of a file.
pub enum Content {
    Bytes(Vec<u8>),
    /// It is too large to hold, and is read again from its beginning.
    Large(File),
}

/// What reading a file gave.
pub enum Reading {
    /// It was sent before.
    Known,
    File {
        key: Key,
        sha256: String,
        size: u64,
        content: Content,
    },
    Unreadable(String),
}

/// Reads a file as it is at one moment: if it changes meanwhile, again. `most`: how many bytes are held.
pub fn read(candidate: &Candidate, target: &str, most: u64, known: &Known) -> Reading {
    match tried(candidate, target, most, known) {
        Ok(Some(read)) => read,
        Ok(None) => Reading::Unreadable("it changes while it is read".to_owned()),
        Err(error) => Reading::Unreadable(error.to_string()),
    }
}

fn tried(candidate: &Candidate, target: &str, most: u64, known: &Known) -> io::Result<Option<Reading>> {
    for _ in 0..READS {
        let mut file = candidate.open()?;
        let before = file.metadata()?;
        if !before.is_file() {
            return Ok(Some(Reading::Unreadable("it is not a plain file".to_owned())));
        }
        let key = key(candidate.path.as_os_str(), target, &before);
        if known.has(key) {
            return Ok(Some(Reading::Known));
        }
        let mut hash = Sha256::new();
        let (bytes, size) = if before.len() <= most {
            let mut bytes = Vec::with_capacity(before.len() as usize);
            file.by_ref().take(most + 1).read_to_end(&mut bytes)?;
            hash.update(&bytes);
            let size = bytes.len() as u64;
            (Some(bytes), size)
        } else {
            let (mut piece, mut size) = (vec![0; PIECE], 0);
            loop {
                match file.read(&mut piece)? {
                    0 => break,
                    // A file that grows for ever must not be read for ever.
                    _ if size > before.len() => break,
                    read => {
                        hash.update(&piece[..read]);
                        size += read as u64;
                    }
                }
            }
            (None, size)
        };
        let after = file.metadata()?;
        if size == before.len() && facts(&before) == facts(&after) {
            file.rewind()?;
            let content = bytes.map_or(Content::Large(file), Content::Bytes);
            return Ok(Some(Reading::File { key, sha256: hex::encode(hash.finalize()), size, content }));
        }
    }
    Ok(None)
}

fn facts(of: &Metadata) -> [i64; 4] {
    [of.size() as i64, of.mtime(), of.mtime_nsec(), of.ino() as i64]
}

fn key(path: &OsStr, target: &str, of: &Metadata) -> Key {
    let mut hash = Sha256::new();
    for part in [path.as_bytes(), target.as_bytes()] {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    facts(of)[..3].iter().for_each(|fact| hash.update(fact.to_be_bytes()));
    let mut key = [0; 16];
    key.copy_from_slice(&hash.finalize()[..16]);
    Key::from_be_bytes(key)
}

#[cfg(test)]
mod tests;
