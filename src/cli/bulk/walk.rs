//! Finds the files of folders, lists and manifests, one after another, and reads each as it is at one moment.
use super::{
    journal::{Key, Known},
    manifest::{self, Row},
};
use crate::feed::{open_beneath, producer::Target};
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
    /// A file that is not sent: the journal, if there is one.
    pub but: Option<(u64, u64)>,
    pub manifests: manifest::Reading,
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
    pub(super) origin: Origin,
    /// With the folder, or what else tells it from others.
    pub(super) path: PathBuf,
    /// What a manifest says of it.
    pub(super) row: Option<Arc<Row>>,
}

/// Where the bytes of a candidate are.
#[derive(Clone)]
pub enum Origin {
    File {
        /// The folder that it must lie under; `None` if the user named it.
        root: Option<Arc<File>>,
        /// Under the folder, or as it was named.
        relative: PathBuf,
    },
    Url(String),
    Inline(Arc<[u8]>),
}

impl Candidate {
    fn named(path: &Path) -> Candidate {
        Candidate { origin: Origin::File { root: None, relative: path.to_owned() }, path: path.to_owned(), row: None }
    }

    pub fn shown(&self) -> String {
        self.path.to_string_lossy().into_owned()
    }

    /// What the file is called; blank if nothing says so.
    pub fn name(&self) -> String {
        match (self.row.as_ref().and_then(|row| row.filename.clone()), &self.origin) {
            (Some(name), _) => name,
            (None, Origin::File { .. }) => self.path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
            (None, _) => String::new(),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// All that changes what becomes of the file; `otherwise` where no manifest says anything.
    pub fn whereto<'a>(&'a self, otherwise: &'a str) -> &'a str {
        self.row.as_ref().map_or(otherwise, |row| &row.whereto)
    }

    /// Where the file goes; `otherwise` where no manifest says anything.
    pub fn target<'a>(&'a self, otherwise: &'a Target) -> &'a Target {
        self.row.as_ref().map_or(otherwise, |row| &row.target)
    }

    /// The manifest and the number of the line that names it.
    pub fn line(&self) -> Option<&str> {
        self.row.as_ref().map(|row| row.at.as_str())
    }

    /// The media type that a manifest says.
    pub fn declared_mime(&self) -> Option<&str> {
        self.row.as_ref()?.declared_mime.as_deref()
    }

    fn open(root: Option<&File>, relative: &Path) -> io::Result<File> {
        match root {
            Some(root) => open_beneath(root, relative),
            // A pipe would keep its reader waiting for a writer.
            None => fs::OpenOptions::new()
                .read(true)
                .custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32)
                .open(relative),
        }
    }
}

/// Walks until everything is found or nobody listens any more.
pub fn walk(sources: Sources, found: &Sender<Found>) {
    for path in sources.paths {
        let goes_on = match manifest::is_manifest(&path) {
            true => manifest::find(&path, &sources.manifests, found),
            false => one(&path, sources.but, found),
        };
        if !goes_on {
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
fn one(path: &Path, but: Option<(u64, u64)>, found: &Sender<Found>) -> bool {
    let unreadable =
        |path: &Path, reason: String| Found::Unreadable { path: path.to_string_lossy().into_owned(), reason };
    let root = match fs::metadata(path) {
        Ok(facts) if facts.is_dir() => File::open(path).map(Arc::new),
        Ok(facts) if Some((facts.dev(), facts.ino())) == but => return true,
        Ok(_) => {
            return found.blocking_send(Found::File(Candidate::named(path))).is_ok();
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
                    if entry.metadata().is_ok_and(|facts| Some((facts.dev(), facts.ino())) == but) {
                        continue;
                    }
                    let relative = folder.join(entry.file_name());
                    let full = path.join(&relative);
                    let origin = Origin::File { root: Some(root.clone()), relative };
                    Found::File(Candidate { origin, path: full, row: None })
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
    /// The service fetches it.
    Url(String),
}

/// What reading a file gave.
pub enum Reading {
    /// It was sent before.
    Known,
    File {
        key: Key,
        /// Blank where it is not known before the service has fetched it.
        sha256: String,
        size: u64,
        content: Content,
    },
    Unreadable(String),
}

/// Reads a file as it is at one moment: if it changes meanwhile, again. `most`: how many bytes are held.
pub fn read(candidate: &Candidate, otherwise: &str, most: u64, known: &Known) -> Reading {
    let whereto = candidate.whereto(otherwise);
    let name = candidate.path.as_os_str();
    let read = match &candidate.origin {
        Origin::File { root, relative } => match tried(root.as_deref(), relative, (name, whereto), most, known) {
            Ok(Some(read)) => read,
            Ok(None) => Reading::Unreadable("it changes while it is read".to_owned()),
            Err(error) => Reading::Unreadable(error.to_string()),
        },
        Origin::Url(url) => {
            let sha256 = candidate.row.as_ref().and_then(|row| row.sha256.clone()).unwrap_or_default();
            let key = key(&[name.as_bytes(), whereto.as_bytes(), sha256.as_bytes()], &[]);
            match known.has(key) {
                true => Reading::Known,
                false => Reading::File { key, sha256, size: 0, content: Content::Url(url.clone()) },
            }
        }
        Origin::Inline(bytes) => {
            let sha256 = hex::encode(Sha256::digest(bytes));
            let key = key(&[name.as_bytes(), whereto.as_bytes(), sha256.as_bytes()], &[]);
            match known.has(key) {
                true => Reading::Known,
                false => {
                    Reading::File { key, sha256, size: bytes.len() as u64, content: Content::Bytes(bytes.to_vec()) }
                }
            }
        }
    };
    as_said(read, candidate.row.as_deref())
}

/// Refuses what is not as its manifest says.
fn as_said(read: Reading, row: Option<&Row>) -> Reading {
    let (Reading::File { sha256, size, content, .. }, Some(row)) = (&read, row) else { return read };
    if matches!(content, Content::Url(_)) {
        return read;
    }
    if let Some(said) = row.sha256.as_ref().filter(|said| *said != sha256) {
        return Reading::Unreadable(format!("sha256: the manifest says {said}, and the file has {sha256}"));
    }
    if let Some(said) = row.byte_size.filter(|said| said != size) {
        return Reading::Unreadable(format!("byte_size: the manifest says {said}, and the file has {size} bytes"));
    }
    read
}

fn tried(
    root: Option<&File>,
    relative: &Path,
    (name, whereto): (&OsStr, &str),
    most: u64,
    known: &Known,
) -> io::Result<Option<Reading>> {
    for _ in 0..READS {
        let mut file = Candidate::open(root, relative)?;
        let before = file.metadata()?;
        if !before.is_file() {
            return Ok(Some(Reading::Unreadable("it is not a plain file".to_owned())));
        }
        let key = key(&[name.as_bytes(), whereto.as_bytes()], &facts(&before)[..3]);
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

/// Tells a file from others by parts of text and by numbers.
fn key(parts: &[&[u8]], numbers: &[i64]) -> Key {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    numbers.iter().for_each(|number| hash.update(number.to_be_bytes()));
    let mut key = [0; 16];
    key.copy_from_slice(&hash.finalize()[..16]);
    Key::from_be_bytes(key)
}

#[cfg(test)]
mod tests;
