//! Where a command writes what it fetches.
use super::CliError;
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use std::{
    fmt::Display,
    fs::{self, File, OpenOptions, Permissions},
    io::{self, Write},
    os::{
        fd::AsRawFd,
        unix::fs::{OpenOptionsExt, PermissionsExt},
    },
    path::{Path, PathBuf},
};
use tempfile::{NamedTempFile, TempPath};

/// How many links may lead from one to the next.
const LINKS: usize = 40;

/// What is written to, with the name that its errors have: they tell which disk is full.
pub struct Named<W> {
    name: String,
    to: W,
}

impl<W> Named<W> {
    pub fn new(name: impl Display, to: W) -> Named<W> {
        Named { name: name.to_string(), to }
    }

    fn named(&self, error: &io::Error) -> io::Error {
        io::Error::new(error.kind(), format!("{}: {error}", self.name))
    }
}

impl<W: Write> Write for Named<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.to.write(bytes).map_err(|error| self.named(&error))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush().map_err(|error| self.named(&error))
    }
}

/// A file that a command was told to write.
pub struct Destination {
    out: Named<File>,
    path: PathBuf,
    name: Name,
}

/// What a file is called while it is written.
enum Name {
    /// Nothing, so that a command that is killed leaves nothing. It gets its name once it is complete.
    Nameless,
    /// Something else, beside the name that it gets, because the file system has no files without names.
    Part(TempPath),
    /// As ever, because it is a pipe, a device or the like, into which is written as it is.
    Given,
}

impl Destination {
    pub fn begin_at(path: &Path) -> Result<Destination, CliError> {
        let unwritable = |error: io::Error| CliError::Other(format!("{}: {error}", path.display()));
        let mode = match fs::metadata(path) {
            Ok(facts) if !facts.is_file() => {
                let file = OpenOptions::new().write(true).open(path).map_err(unwritable)?;
                let out = Named::new(path.display(), file);
                return Ok(Destination { out, path: path.to_owned(), name: Name::Given });
            }
            Ok(facts) => Some(facts.permissions().mode() & 0o777),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(unwritable(error)),
        };
        let path = behind_links(path).map_err(unwritable)?;
        let wanted = mode.unwrap_or(0o666);
        let (file, name) = match nameless(folder(&path), wanted) {
            Ok(file) => (file, Name::Nameless),
            Err(_) => {
                let create = |name: &Path| OpenOptions::new().write(true).create_new(true).mode(wanted).open(name);
                let (file, part) = beside(&path, create).map_err(unwritable)?.into_parts();
                (file, Name::Part(part))
            }
        };
        // The mask of the process, which a new file heeds, may have taken rights away from the one before.
        if let Some(mode) = mode {
            file.set_permissions(Permissions::from_mode(mode)).map_err(unwritable)?;
        }
        Ok(Destination { out: Named::new(path.display(), file), path, name })
    }

    /// Gives a complete file its name.
    pub fn end(self) -> Result<(), CliError> {
        let Destination { out: Named { to: file, .. }, path, name } = self;
        let unwritable = |error: io::Error| CliError::Other(format!("{}: {error}", path.display()));
        if matches!(name, Name::Given) {
            return Ok(());
        }
        file.sync_all().map_err(unwritable)?;
        let part = match name {
            Name::Part(part) => part,
            Name::Nameless | Name::Given => {
                // A link takes the place of nothing, and a rename does.
                let link = |name: &Path| {
                    let linked = rustix::fs::linkat(CWD, by_number(&file).as_str(), CWD, name, AtFlags::SYMLINK_FOLLOW);
                    linked.map_err(io::Error::from)
                };
                beside(&path, link).map_err(unwritable)?.into_temp_path()
            }
        };
        part.persist(&path).map_err(|failed| unwritable(failed.error))
    }
}

impl Write for Destination {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A file in a folder that vanishes with the process, unless it gets a name.
fn nameless(folder: &Path, mode: u32) -> io::Result<File> {
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(folder, flags, Mode::from_raw_mode(mode))?);
    // By this it gets a name.
    fs::metadata(by_number(&file))?;
    Ok(file)
}

fn by_number(file: &File) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

/// Makes a file under a name that nobody else has, beside another one.
fn beside<F>(path: &Path, make: impl FnMut(&Path) -> io::Result<F>) -> io::Result<NamedTempFile<F>> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".");
    tempfile::Builder::new().prefix(&name).suffix(".part").make_in(folder(path), make)
}

/// Where a path leads through links, also if there is nothing yet behind the last one.
fn behind_links(path: &Path) -> io::Result<PathBuf> {
    let mut path = path.to_owned();
    for _ in 0..LINKS {
        match fs::read_link(&path) {
            Ok(to) => path = path.parent().unwrap_or(Path::new("")).join(to),
            // What is no link is the end.
            Err(_) => return Ok(path),
        }
    }
    Err(io::Error::other("too many links lead from one to the next"))
}
