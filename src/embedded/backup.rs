//! Backups of the embedded PostgreSQL by its own programs while the service runs, and their restore into an empty data folder.
//!
//! A backup is made under another name, verified, and only then moved into place, so that what has its name is whole.

mod verifying;

use super::{
    EmbeddedError, PORT, SUPERUSER,
    account::Account,
    cluster::{self, Cluster, RESTORING},
    holder::Holder,
};
use crate::disk;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use std::{
    ffi::OsString,
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    process::Stdio,
};
use tokio::process::Command;

/// The folder of the cluster in a backup.
const CLUSTER: &str = "cluster";
/// The file that says what a backup is. It is written last.
const LABEL: &str = "backup.json";
const LABEL_BYTES: u64 = 64 << 10;
/// The form of a backup that this version writes and reads.
const FORMAT: u32 = 1;
/// The program that reads a log.
const WALDUMP: &str = "pg_waldump";
/// No cluster is deeper.
const MAX_DEPTH: usize = 16;
/// How much of what a program says goes into an error.
const SAID_CHARS: usize = 2_000;

/// Why a backup is not made or not restored.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error(transparent)]
    Embedded(#[from] EmbeddedError),
    #[error(
        "no service runs on the data folder {path}, and a backup is made of a running one: start it, or copy the whole folder while none runs",
        path = .0.display()
    )]
    NotRunning(PathBuf),
    #[error("{path} is not empty: name a folder that is empty or not there yet", path = .0.display())]
    NotEmpty(PathBuf),
    #[error("{path} {what}, which a folder cannot take the place of: {remedy}", path = path.display())]
    NoPlace { path: PathBuf, what: &'static str, remedy: &'static str },
    #[error("a backup that was killed still writes to {path} for a moment: try again", path = .0.display())]
    Ending(PathBuf),
    #[error(
        "the data folder {path} is not empty, and a restore overwrites nothing: name an empty one in SVC_DATA_DIR",
        path = .0.display()
    )]
    DataNotEmpty(PathBuf),
    #[error(
        "{path} is in the data folder, which a backup is there to replace: name one elsewhere, on another disk at best",
        path = .0.display()
    )]
    WithinData(PathBuf),
    #[error("another backup is being written to {path}: wait for its end", path = .0.display())]
    Busy(PathBuf),
    #[error("{path} is in the way, and nothing that a backup left: remove it", path = .0.display())]
    InTheWay(PathBuf),
    #[error("{path} is no whole backup: {reason}", path = path.display())]
    NoBackup { path: PathBuf, reason: String },
    #[error(
        "the backup is of PostgreSQL {found}, and the server here is {here}: restore it with the release that made it"
    )]
    OtherServer { found: String, here: String },
    #[error("cannot {action} {path}: {source}", path = path.display())]
    File { action: &'static str, path: PathBuf, source: io::Error },
    #[error("cannot copy {from} to {to}: {source}", from = from.display(), to = to.display())]
    Copy { from: PathBuf, to: PathBuf, source: io::Error },
    #[error("{program} failed ({status}): {said}")]
    Program { program: &'static str, status: String, said: String },
}

impl BackupError {
    fn file(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::File { action, path, source }
    }
}

/// What a backup says of itself.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Label {
    pub format: u32,
    /// The release of svc that made it.
    pub version: String,
    /// The release of PostgreSQL, whose files it holds.
    pub postgres: String,
    pub begun_at: DateTime<Utc>,
    /// When the copy was whole. It has what was stored until shortly before. Backups of before have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<DateTime<Utc>>,
    pub bytes: u64,
    /// How many files had their bytes in an object store when it began, or when the copy was made if these are more. Those are not in it. `None` if
    /// they could not be counted.
    #[serde(default = "none_elsewhere")]
    pub files_elsewhere: Option<i64>,
}

/// Releases that did not count them had no object store.
fn none_elsewhere() -> Option<i64> {
    Some(0)
}

/// Backs up the server that a service runs on `data_dir` to the folder `target`. `home` holds the server's programs. `files_elsewhere` counts once the copy is
/// made, because a copy has what was stored until its end; its `None` says that they cannot be counted.
pub async fn backup(
    data_dir: &Path,
    home: &Path,
    target: &Path,
    files_elsewhere: impl Future<Output = Option<i64>>,
) -> Result<Label, BackupError> {
    let not_running = || BackupError::NotRunning(data_dir.to_path_buf());
    let data_dir = fs::canonicalize(data_dir).map_err(|_| not_running())?;
    let socket_dir = cluster::existing_socket_dir(&data_dir).ok_or_else(not_running)?;
    let home = &fs::canonicalize(home).map_err(|_| EmbeddedError::NoServer(home.to_path_buf()))?;
    let begun_at = Utc::now();
    let part = Part::begin(target, &data_dir)?;
    let copy = part.path.join(CLUSTER);
    let mut program = client(home, "pg_basebackup");
    program.arg("--pgdata").arg(&copy).arg("--host").arg(&socket_dir).args(["--port", &PORT.to_string()]);
    program.args(["--username", SUPERUSER, "--no-password", "--format=plain", "--wal-method=stream"]);
    program.args(["--checkpoint=fast", "--manifest-checksums=SHA256", "--label=svc backup"]);
    // It tells its progress every second. If this process is killed nobody reads that, and the program ends with it.
    run("pg_basebackup", program.arg("--progress")).await?;
    let ended_at = Some(Utc::now());
    let files_elsewhere = files_elsewhere.await;
    verify(&copy, &copy, || client(home, WALDUMP)).await?;
    let done = tokio::task::spawn_blocking(move || {
        let label = Label {
            format: FORMAT,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            postgres: version_of(&copy)?,
            begun_at,
            ended_at,
            bytes: size(&copy, MAX_DEPTH).map_err(BackupError::file("read", &copy))?,
            files_elsewhere,
        };
        part.finish(&label)?;
        Ok(label)
    });
    done.await.map_err(|_| EmbeddedError::Cancelled)?
}

/// A backup on its way, under the name of its folder and `.part`. What is left of it when this is dropped goes.
struct Part {
    path: PathBuf,
    target: PathBuf,
    lock: PathBuf,
    is_done: bool,
    /// Tells a second backup that this one is at work. The kernel releases it with the process.
    _held: File,
}

impl Part {
    fn begin(target: &Path, data_dir: &Path) -> Result<Part, BackupError> {
        let target = std::path::absolute(target).map_err(BackupError::file("find", target))?;
        let (Some(parent), Some(name)) = (target.parent(), target.file_name()) else {
            return Err(BackupError::NotEmpty(target));
        };
        let parent = fs::canonicalize(parent).map_err(BackupError::file("open", parent))?;
        let target = parent.join(name);
        if target.starts_with(data_dir) {
            return Err(BackupError::WithinData(target));
        }
        // At the end the backup is renamed to this.
        if let Some((what, remedy)) = disk::in_the_way(&target) {
            return Err(BackupError::NoPlace { path: target, what, remedy });
        }
        if !is_empty(&target).map_err(BackupError::file("read", &target))? {
            return Err(BackupError::NotEmpty(target));
        }
        let named = |end: &str| parent.join([name, end.as_ref()].into_iter().collect::<OsString>());
        let (path, lock) = (named(".part"), named(".part.lock"));
        let held = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&lock);
        let held = held.map_err(BackupError::file("write", &lock))?;
        // One that has just ended removes the file that it had locked.
        let is_there = |held: &File| {
            held.try_lock().ok()?;
            let (ours, named) = (held.metadata().ok()?, fs::metadata(&lock).ok()?);
            (ours.ino() == named.ino()).then_some(())
        };
        is_there(&held).ok_or_else(|| BackupError::Busy(target.clone()))?;
        if fs::symlink_metadata(&path).is_ok() {
            let is_ours = |name: &OsString| name == CLUSTER || name == LABEL;
            let names = entries(&path).unwrap_or_else(|_| vec![name.to_owned()]);
            if !names.iter().all(is_ours) {
                let _ = fs::remove_file(&lock);
                return Err(BackupError::InTheWay(path));
            }
            // The program of a backup that was killed ends when it next tells its progress, within a second.
            fs::remove_dir_all(&path).map_err(|error| match error.kind() {
                io::ErrorKind::DirectoryNotEmpty => BackupError::Ending(path.clone()),
                _ => BackupError::file("remove what a broken-off backup left,", &path)(error),
            })?;
        }
        let made = fs::DirBuilder::new().mode(0o700).create(&path);
        made.map_err(BackupError::file("make", &path))?;
        Ok(Part { path, target, lock, is_done: false, _held: held })
    }

    /// Gives the backup its name.
    fn finish(mut self, label: &Label) -> Result<(), BackupError> {
        let path = self.path.join(LABEL);
        let write = || {
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
            file.write_all(&serde_json::to_vec_pretty(label)?)?;
            file.sync_all()?;
            File::open(&self.path)?.sync_all()
        };
        write().map_err(BackupError::file("write", &path))?;
        fs::rename(&self.path, &self.target).map_err(BackupError::file("move into place", &self.target))?;
        self.is_done = true;
        let parent = self.target.parent().unwrap_or(Path::new("/"));
        File::open(parent).and_then(|folder| folder.sync_all()).map_err(BackupError::file("sync", parent))
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        if !self.is_done {
            // What stays has no label and another name, and the next backup removes it.
            let _ = fs::remove_dir_all(&self.path);
        }
        let _ = fs::remove_file(&self.lock);
    }
}

/// Restores a backup into the data folder `data_dir`, which must be empty. `home` holds the server's programs.
pub async fn restore(data_dir: &Path, home: &Path, from: &Path) -> Result<Label, BackupError> {
    let (data_dir, home, from) = (data_dir.to_path_buf(), home.to_path_buf(), from.to_path_buf());
    let begin = move || {
        let label = read_label(&from)?;
        let found = version_of(&from.join(CLUSTER))?;
        if data_dir.exists() {
            check_empty(&data_dir)?;
        }
        let data_dir = cluster::make_data_dir(&data_dir)?;
        let holder = Holder::take(&data_dir)?;
        // A service may have begun there meanwhile.
        check_empty(&data_dir)?;
        let staging = data_dir.join(RESTORING);
        match fs::DirBuilder::new().mode(0o700).create(&staging) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(BackupError::file("make", &staging)(error));
            }
            _ => {}
        }
        let cluster = Cluster::open(&data_dir, &home)?;
        // So the account cannot put anything in the place of the copy before that is whole.
        cluster.account.keep_from(&staging)?;
        Ok::<_, BackupError>((label, found, from, staging, cluster, holder))
    };
    let begun = tokio::task::spawn_blocking(begin).await.map_err(|_| EmbeddedError::Cancelled)??;
    let (label, found, from, staging, cluster, _holder) = begun;
    let here = said_version(cluster.command("postgres")).await?;
    if here.split(|c: char| !c.is_ascii_digit()).next() != Some(&found) {
        return Err(BackupError::OtherServer { found, here });
    }
    let copy = staging.join(CLUSTER);
    let restored = restored(&from, &copy, &cluster).await;
    if restored.is_err() {
        // The folder itself stays: by it the next restore and the next start know that this one broke off.
        let _ = fs::remove_dir_all(&copy);
    }
    restored?;
    fs::remove_dir(&staging).map_err(BackupError::file("remove", &staging))?;
    Ok(label)
}

/// Holds a copy of a cluster against its manifest, and has its log read; `named` is the folder that an operator knows it by.
async fn verify(copy: &Path, named: &Path, waldump: impl Fn() -> Command) -> Result<(), BackupError> {
    let (folder, named) = (copy.to_path_buf(), named.to_path_buf());
    let verified = tokio::task::spawn_blocking(move || verifying::verify(&folder));
    let verified = verified.await.map_err(|_| EmbeddedError::Cancelled)?;
    let verified = verified.map_err(|error| match error {
        BackupError::NoBackup { reason, .. } => BackupError::NoBackup { path: named, reason },
        other => other,
    });
    for range in verified? {
        let mut waldump = waldump();
        waldump.arg("--quiet").arg("--path").arg(copy.join("pg_wal"));
        waldump.args(["--timeline", &range.timeline.to_string(), "--start", &range.start, "--end", &range.end]);
        run(WALDUMP, &mut waldump).await?;
    }
    Ok(())
}

async fn restored(from: &Path, copy: &Path, cluster: &Cluster) -> Result<(), BackupError> {
    let (source, target, account) = (from.join(CLUSTER), copy.to_path_buf(), cluster.account);
    let copying = tokio::task::spawn_blocking(move || {
        match fs::remove_dir_all(&target) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(BackupError::file("remove", &target)(error));
            }
            _ => {}
        }
        copy_tree(&source, &target, account, MAX_DEPTH)
    });
    copying.await.map_err(|_| EmbeddedError::Cancelled)??;
    // This finds what is damaged in the backup, and what was damaged on the way.
    verify(copy, from, || cluster.command(WALDUMP)).await?;
    fs::rename(copy, &cluster.data).map_err(BackupError::file("move into place", &cluster.data))?;
    let folder = cluster.data.parent().unwrap_or(Path::new("/"));
    File::open(folder).and_then(|folder| folder.sync_all()).map_err(BackupError::file("sync", folder))
}

/// Refuses a data folder that holds anything but what a restore that broke off left.
fn check_empty(data_dir: &Path) -> Result<(), BackupError> {
    let names = entries(data_dir).map_err(BackupError::file("read", data_dir))?;
    let is_begun = names.iter().any(|name| name == RESTORING);
    let has_cluster = data_dir.join("postgres").join(CLUSTER).exists();
    // A fresh file system has the first, and whoever looks for the lock makes the second.
    let is_empty = names.iter().all(|name| name == "lost+found" || name == "lock");
    if is_empty || (is_begun && !has_cluster) { Ok(()) } else { Err(BackupError::DataNotEmpty(data_dir.to_path_buf())) }
}

fn read_label(from: &Path) -> Result<Label, BackupError> {
    let no_backup = |reason: String| BackupError::NoBackup { path: from.to_path_buf(), reason };
    let file = match File::open(from.join(LABEL)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(no_backup(format!("it has no {LABEL}, which is written once a backup is verified")));
        }
        Err(error) => return Err(BackupError::file("read", &from.join(LABEL))(error)),
    };
    let mut text = String::new();
    let read = file.take(LABEL_BYTES).read_to_string(&mut text);
    read.map_err(|error| no_backup(format!("its {LABEL} cannot be read: {error}")))?;
    // The number comes first, because another form may have other fields.
    let format = serde_json::from_str::<serde_json::Value>(&text).ok().and_then(|label| label["format"].as_u64());
    match format {
        Some(format) if format != u64::from(FORMAT) => Err(no_backup(format!(
            "it has the form {format}, and this version knows {FORMAT}: use the one that made it"
        ))),
        _ => serde_json::from_str(&text).map_err(|error| no_backup(format!("its {LABEL} is damaged: {error}"))),
    }
}

/// The release of PostgreSQL that the files of a cluster are for.
fn version_of(cluster: &Path) -> Result<String, BackupError> {
    let path = cluster.join("PG_VERSION");
    let mut text = String::new();
    let read = File::open(&path).and_then(|file| file.take(16).read_to_string(&mut text));
    read.map_err(BackupError::file("read", &path))?;
    match text.trim() {
        "" => Err(BackupError::NoBackup { path: cluster.to_path_buf(), reason: "its PG_VERSION is empty".to_owned() }),
        version => Ok(version.to_owned()),
    }
}

/// The release of a program, such as `18.4`.
async fn said_version(mut program: Command) -> Result<String, BackupError> {
    let output = program.arg("--version").output().await.map_err(BackupError::file("run", Path::new("postgres")))?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    Ok(said.split_whitespace().nth(2).unwrap_or_default().to_owned())
}

/// One of the server's programs that need no other user.
fn client(home: &Path, program: &str) -> Command {
    let mut command = Command::new(home.join("bin").join(program));
    command.env_clear().env("LC_ALL", "C").env("LD_LIBRARY_PATH", home.join("lib")).current_dir("/").process_group(0);
    command
}

async fn run(name: &'static str, program: &mut Command) -> Result<(), BackupError> {
    program.stdin(Stdio::null()).kill_on_drop(true);
    let output = program.output().await.map_err(BackupError::file("run", Path::new(name)))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    // Lines of progress say nothing of why it failed.
    let lines: Vec<&str> = said.split(['\n', '\r']).filter(|line| line.starts_with(name)).collect();
    let said = lines.join("; ").chars().take(SAID_CHARS).collect();
    Err(BackupError::Program { program: name, status: output.status.to_string(), said })
}

fn entries(folder: &Path) -> io::Result<Vec<OsString>> {
    fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name())).collect()
}

/// Whether a folder is empty or not there.
fn is_empty(folder: &Path) -> io::Result<bool> {
    match fs::read_dir(folder) {
        Ok(mut entries) => Ok(entries.next().is_none()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => Ok(false),
        Err(error) => Err(error),
    }
}

/// The bytes of all files in a folder.
fn size(folder: &Path, depth: usize) -> io::Result<u64> {
    let Some(depth) = depth.checked_sub(1) else { return Err(too_deep()) };
    fs::read_dir(folder)?.try_fold(0, |sum, entry| {
        let entry = entry?;
        let metadata = fs::symlink_metadata(entry.path())?;
        Ok(sum + if metadata.is_dir() { size(&entry.path(), depth)? } else { metadata.len() })
    })
}

/// Copies folders and files for the account alone. Nothing else belongs into a cluster: a link could lead out of it.
fn copy_tree(from: &Path, to: &Path, account: Account, depth: usize) -> Result<(), BackupError> {
    let depth = depth.checked_sub(1).ok_or_else(too_deep).map_err(BackupError::file("copy", from))?;
    let made = fs::DirBuilder::new().mode(0o700).create(to);
    made.map_err(BackupError::file("make", to))?;
    for entry in fs::read_dir(from).map_err(BackupError::file("read", from))? {
        let entry = entry.map_err(BackupError::file("read", from))?;
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type().map_err(BackupError::file("read", &source))?;
        if kind.is_dir() {
            copy_tree(&source, &target, account, depth)?;
        } else if kind.is_file() {
            let copy = || {
                let mut reader = File::open(&source)?;
                let mut writer = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&target)?;
                io::copy(&mut reader, &mut writer)?;
                writer.sync_all()
            };
            // The disk of either may be at fault.
            copy().map_err(|error| BackupError::Copy { from: source.clone(), to: target.clone(), source: error })?;
            account.own(&target)?;
        } else {
            let reason = format!("{} is neither a file nor a folder", source.display());
            return Err(BackupError::NoBackup { path: from.to_path_buf(), reason });
        }
    }
    account.own(to)?;
    File::open(to).and_then(|folder| folder.sync_all()).map_err(BackupError::file("sync", to))
}

fn too_deep() -> io::Error {
    io::Error::other("its folders are nested too deep")
}
