//! The folders of the embedded PostgreSQL, and how its cluster is made.

use super::{EmbeddedError, NAME, PORT, SUPERUSER, account::Account, admission::Admission, relocation};
use rustix::fs::{Mode, OFlags, open};
use sha2::{Digest, Sha256};
use std::{
    ffi::OsString,
    fs, io,
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    },
    path::{Path, PathBuf},
    process::Stdio,
};
use tokio::process::Command;

/// A socket's path may have 107 bytes; the folder leaves room for `/.s.PGSQL.5432`.
const MAX_SOCKET_DIR: usize = 107 - 14;
/// The folder in the data folder that a restore works in. It is there until the restored cluster is in place.
pub(super) const RESTORING: &str = "restoring";
const LOG_PREFIX: &str = "postgres-";
/// PostgreSQL starts a new file at a certain size, so this allows about 100 MB of logs.
const MAX_LOG_FILES: usize = 10;

/// The settings of a fresh cluster. They are in its postgresql.conf, where an operator may change them.
const TUNING: &[&str] = &[
    "fsync=on",
    // A service that also works and several workers beside it; docs/operations.md has the sum.
    "max_connections=250",
    // lz4 would be faster, but the server that the setup fetches is built without it.
    "wal_compression=on",
    "jit=off",
    // Claims read past everything that was done since the last vacuum.
    "autovacuum_naptime=30s",
    "timezone=UTC",
    "log_timezone=UTC",
];

/// The share of the machine's memory in which the server of a fresh cluster keeps pages, and its bounds in MiB. The graph of a million
/// vectors has 1.5 GB, and a search of it reads thousands of pages.
const BUFFERS_SHARE: u64 = 8;
const BUFFERS_MIB: std::ops::RangeInclusive<u64> = 256..=4_096;

/// The share of the memory above which the server is not given the buffers that its postgresql.conf says: it may come from a larger machine, and here the
/// server would not start, or would be killed once they fill.
const MOST_BUFFERS_SHARE: u64 = 2;

/// The share of the memory that the server may expect to hold pages, its own and the kernel's; models have the rest.
const CACHE_SHARE: u64 = 2;

/// A page of the server's buffers.
const PAGE_BYTES: u64 = 8_192;

/// The MiB of memory that the server and this process may have, from what the kernel says of the machine's memory and of this process's limit; 0 if it
/// does not say.
fn known_memory(meminfo: Option<&str>, limit: Option<&str>) -> u64 {
    let total = meminfo.and_then(|text| text.lines().find_map(|line| line.strip_prefix("MemTotal:")));
    let total = total.and_then(|rest| rest.trim().trim_end_matches("kB").trim().parse::<u64>().ok()).unwrap_or(0);
    // Without a limit the file says `max`.
    let limit = limit.and_then(|text| text.trim().parse::<u64>().ok()).unwrap_or(u64::MAX);
    (total / 1_024).min(limit >> 20)
}

/// The memory of this machine, in MiB.
fn memory_here() -> u64 {
    let read = |path| fs::read_to_string(path).ok();
    known_memory(read("/proc/meminfo").as_deref(), read("/sys/fs/cgroup/memory.max").as_deref())
}

/// The settings of memory for so many MiB.
fn memory(mebibytes: u64) -> [String; 2] {
    let buffers = buffers(mebibytes);
    let cache = (mebibytes / CACHE_SHARE).max(buffers);
    [format!("shared_buffers={buffers}MB"), format!("effective_cache_size={cache}MB")]
}

fn buffers(mebibytes: u64) -> u64 {
    (mebibytes / BUFFERS_SHARE).clamp(*BUFFERS_MIB.start(), *BUFFERS_MIB.end())
}

/// Whether buffers of so many MiB are too large for a memory of so many.
fn are_too_large(configured: u64, mebibytes: u64) -> bool {
    mebibytes > 0 && configured > (mebibytes / MOST_BUFFERS_SHARE).max(buffers(mebibytes))
}

/// Where everything is, and who runs it.
#[derive(Debug, Clone)]
pub(super) struct Cluster {
    pub data: PathBuf,
    pub socket_dir: PathBuf,
    pub account: Account,
    /// A part of the title of each process of this cluster, which distinguishes leftovers from other servers.
    pub tag: String,
    home: PathBuf,
    data_dir: PathBuf,
    log_dir: PathBuf,
}

/// The absolute path of the data folder, which is made if it is missing. If we are root, the server's user may pass
/// through it.
pub(super) fn make_data_dir(path: &Path) -> Result<PathBuf, EmbeddedError> {
    let is_root = rustix::process::geteuid().is_root();
    if !path.exists() {
        let mode = if is_root { 0o711 } else { 0o700 };
        let made = fs::DirBuilder::new().recursive(true).mode(mode).create(path);
        made.map_err(EmbeddedError::file("make the data folder", path))?;
    }
    let path = fs::canonicalize(path).map_err(EmbeddedError::file("open the data folder", path))?;
    check_for_shell(&path)?;
    let mode = fs::metadata(&path).map_err(EmbeddedError::file("read", &path))?.mode() & 0o7777;
    if is_root && mode & 0o011 != 0o011 {
        let open = fs::Permissions::from_mode(mode | 0o011);
        fs::set_permissions(&path, open).map_err(EmbeddedError::file("open to the server's user", &path))?;
    }
    Ok(path)
}

impl Cluster {
    /// Decides on user and folders, and makes the missing ones. The caller holds the folder's lock.
    pub fn open(data_dir: &Path, home: &Path) -> Result<Self, EmbeddedError> {
        let folder = data_dir.join("postgres");
        let data = folder.join("cluster");
        let account = Account::choose(&data)?;
        if let Some(barrier) = account.barrier(data_dir).filter(|_| account.is_other) {
            return Err(EmbeddedError::Unreachable { folder: barrier, uid: account.uid });
        }
        let home = relocation::reachable(home, data_dir, account)?;
        check_for_shell(&home)?;
        let log_dir = folder.join("log");
        make_private(&folder, account, OFlags::empty())?;
        make_private(&log_dir, account, OFlags::NOFOLLOW)?;
        let digest = digest(&data);
        let socket_dir = socket_dir(&folder, &digest, account)?;
        let tag = format!("{NAME}-{}", &digest[..12]);
        Ok(Self { data, socket_dir, account, tag, home, data_dir: data_dir.to_path_buf(), log_dir })
    }

    /// Makes the cluster if there is none. It is made in another place and then moved, so that it is either complete or
    /// absent.
    pub async fn initialise(&self) -> Result<(), EmbeddedError> {
        relocation::remove_others(&self.data_dir, &self.home);
        let restoring = self.data_dir.join(RESTORING);
        let is_restoring = restoring.exists();
        if self.data.join("PG_VERSION").exists() {
            if is_restoring {
                fs::remove_dir_all(&restoring).map_err(EmbeddedError::file("remove", &restoring))?;
            }
            return Ok(());
        }
        if is_restoring {
            return Err(EmbeddedError::Unrestored(self.data_dir.clone()));
        }
        let fresh = self.data.with_extension("new");
        if fresh.exists() {
            fs::remove_dir_all(&fresh).map_err(EmbeddedError::file("remove the half-made", &fresh))?;
        }
        tracing::info!(path = %self.data.display(), "making the data folder of PostgreSQL");
        let memory = memory(memory_here());
        let mut initdb = self.command("initdb");
        // This sorts by code point and knows letters beyond ASCII. It is the same on each machine and needs none of its
        // locales.
        initdb
            .args(["--encoding=UTF8", "--locale=C", "--locale-provider=builtin", "--builtin-locale=C.UTF-8"])
            .args(["--data-checksums", "--auth-local=peer", "--auth-host=reject", "--username", SUPERUSER, "--pgdata"])
            .arg(&fresh)
            .args(TUNING.iter().copied().chain(memory.iter().map(String::as_str)).flat_map(|setting| ["-c", setting]))
            .kill_on_drop(true);
        let output = initdb.output().await.map_err(EmbeddedError::file("run initdb for", &fresh))?;
        if !output.status.success() {
            let output_text = [output.stdout, output.stderr].concat();
            let output_text = String::from_utf8_lossy(&output_text).trim().to_owned();
            return Err(EmbeddedError::Initdb { status: output.status.to_string(), output: output_text });
        }
        fs::rename(&fresh, &self.data).map_err(EmbeddedError::file("move into place", &self.data))
    }

    /// The settings of memory of this machine, if those of postgresql.conf are for a larger one.
    async fn smaller_memory(&self) -> Option<[String; 2]> {
        let mut asking = self.command("postgres");
        asking.arg("-D").arg(&self.data).args(["-C", "shared_buffers"]).kill_on_drop(true);
        // Where it cannot tell, the start says why.
        let said = asking.output().await.ok()?;
        let pages: u64 = String::from_utf8_lossy(&said.stdout).trim().parse().ok()?;
        let (configured, here) = ((pages * PAGE_BYTES) >> 20, memory_here());
        are_too_large(configured, here).then(|| {
            let instead = memory(here);
            tracing::warn!(
                configured_mib = configured,
                memory_mib = here,
                instead = instead.join(" "),
                "the postgresql.conf of the data folder is for a machine with more memory, so the server starts with less"
            );
            instead
        })
    }

    /// The server's command line. Its settings override postgresql.conf.
    pub async fn server_command(&self) -> Result<Command, EmbeddedError> {
        let log = self.start_log();
        let file = create_plain(&log).map_err(EmbeddedError::file("write", &log))?;
        let admission = Admission::write(&self.data, self.account)?;
        let second = file.try_clone().map_err(EmbeddedError::file("write", &log))?;
        let mut command = self.command("postgres");
        let setting = |name: &str, value: &[u8]| OsString::from_vec([name.as_bytes(), b"=", value].concat());
        // The setting is a list; the quotes allow a comma or a blank in the path.
        let socket_dir = [b"\"", self.socket_dir.as_os_str().as_bytes(), b"\""].concat();
        command.arg("-D").arg(&self.data);
        for setting in [
            setting("listen_addresses", b""),
            setting("hba_file", admission.hba.as_os_str().as_bytes()),
            setting("ident_file", admission.ident.as_os_str().as_bytes()),
            setting("unix_socket_directories", &socket_dir),
            setting("unix_socket_permissions", b"0700"),
            setting("port", PORT.to_string().as_bytes()),
            setting("cluster_name", self.tag.as_bytes()),
            setting("update_process_title", b"on"),
            setting("logging_collector", b"on"),
            setting("log_destination", b"stderr"),
            setting("log_directory", self.log_dir.as_os_str().as_bytes()),
            setting("log_filename", format!("{LOG_PREFIX}%Y%m%d-%H%M%S.log").as_bytes()),
            setting("log_rotation_size", b"10MB"),
        ] {
            command.arg("-c").arg(setting);
        }
        for setting in self.smaller_memory().await.into_iter().flatten() {
            command.arg("-c").arg(setting);
        }
        command.stdout(Stdio::from(file)).stderr(Stdio::from(second));
        Ok(command)
    }

    /// A program of the server's, run as its user and without our environment.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new(self.home.join("bin").join(program));
        command
            .env_clear()
            .env("LC_ALL", "C")
            .env("LD_LIBRARY_PATH", self.home.join("lib"))
            .current_dir("/")
            .stdin(Stdio::null())
            // It gets its own process group, so that Ctrl-C in a terminal stops the service first, and the service then
            // stops its server.
            .process_group(0);
        if self.account.is_other {
            // Setting a user as root also drops the supplementary groups.
            command.uid(self.account.uid).gid(self.account.gid);
        }
        command
    }

    /// The file by which a server keeps others from its socket.
    pub fn socket_lock(&self) -> PathBuf {
        self.socket_dir.join(format!(".s.PGSQL.{PORT}.lock"))
    }

    /// The file for what the server says before its log is open.
    pub fn start_log(&self) -> PathBuf {
        self.log_dir.join("start.log")
    }

    /// The newest file of the log, or what was said at the start if there is no log.
    pub fn newest_log(&self) -> PathBuf {
        self.log_files().pop().unwrap_or_else(|| self.start_log())
    }

    /// Removes the oldest files of the log beyond the number that is kept.
    pub fn prune_logs(&self) {
        let files = self.log_files();
        for path in &files[..files.len().saturating_sub(MAX_LOG_FILES)] {
            if let Err(error) = fs::remove_file(path) {
                tracing::warn!(%error, path = %path.display(), "an old log of PostgreSQL could not be removed");
            }
        }
    }

    /// The oldest comes first, because the names sort by time.
    fn log_files(&self) -> Vec<PathBuf> {
        let is_log = |path: &PathBuf| {
            path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(LOG_PREFIX.as_bytes()))
        };
        let entries = fs::read_dir(&self.log_dir).into_iter().flatten().flatten();
        let mut files: Vec<_> = entries.map(|entry| entry.path()).filter(is_log).collect();
        files.sort_unstable();
        files
    }
}

/// initdb passes paths to a shell, unescaped in double quotes.
fn check_for_shell(path: &Path) -> Result<(), EmbeddedError> {
    let is_special = |byte: &u8| b"\"'`$\\\n\r".contains(byte);
    if path.as_os_str().as_bytes().iter().any(is_special) {
        return Err(EmbeddedError::PathForShell { path: path.to_path_buf() });
    }
    Ok(())
}

/// Makes a folder that only the server's user may enter; an existing one is closed to others again. The server's user may put a link in the place of a folder
/// within one of its own, and what it leads to must not become its own: there nothing is followed.
fn make_private(path: &Path, account: Account, links: OFlags) -> Result<(), EmbeddedError> {
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(EmbeddedError::file("make", path)(error));
        }
        _ => {}
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | links;
    let folder =
        open(path, flags, Mode::empty()).map_err(io::Error::from).map_err(EmbeddedError::file("open", path))?;
    let folder = fs::File::from(folder);
    account.own_open(&folder, path)?;
    folder.set_permissions(fs::Permissions::from_mode(0o700)).map_err(EmbeddedError::file("close", path))
}

/// Makes or empties a file that only this process writes, unless it is a link.
fn create_plain(path: &Path) -> io::Result<fs::File> {
    fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .custom_flags(OFlags::NOFOLLOW.bits().cast_signed())
        .open(path)
}

fn digest(data: &Path) -> String {
    hex::encode(Sha256::digest(data.as_os_str().as_bytes()))
}

/// Where the socket's folder is; see [`socket_dir`].
fn socket_path(folder: &Path, digest: &str) -> PathBuf {
    let usual = folder.join("run");
    if usual.as_os_str().len() <= MAX_SOCKET_DIR {
        return usual;
    }
    PathBuf::from(format!("/tmp/{NAME}-{}", &digest[..24]))
}

/// The folder of the socket that a server on `data_dir` listens on now.
pub(super) fn existing_socket_dir(data_dir: &Path) -> Option<PathBuf> {
    let folder = data_dir.join("postgres");
    let path = socket_path(&folder, &digest(&folder.join("cluster")));
    path.join(format!(".s.PGSQL.{PORT}")).exists().then_some(path)
}

/// Makes the folder of the socket: beside the cluster, or under /tmp if that path is too long for a socket.
fn socket_dir(folder: &Path, digest: &str, account: Account) -> Result<PathBuf, EmbeddedError> {
    let path = socket_path(folder, digest);
    if path.starts_with(folder) {
        make_private(&path, account, OFlags::NOFOLLOW)?;
        return Ok(path);
    }
    let short = path;
    match fs::DirBuilder::new().mode(0o700).create(&short) {
        Ok(()) => account.own(&short)?,
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        Err(error) => return Err(EmbeddedError::file("make", &short)(error)),
    }
    // Anybody may have made it before us, so links and foreign folders are not trusted.
    let metadata = fs::symlink_metadata(&short).map_err(EmbeddedError::file("read", &short))?;
    if !metadata.is_dir() || metadata.uid() != account.uid || metadata.mode() & 0o077 != 0 {
        return Err(EmbeddedError::SocketFolder { path: short, uid: account.uid });
    }
    Ok(short)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_in_the_place_of_a_folder_or_a_file_of_the_server_is_not_followed() {
        let folder = tempfile::tempdir().expect("a folder");
        let account = Account { uid: 0, gid: 0, is_other: false };
        let other = folder.path().join("other");
        fs::DirBuilder::new().mode(0o755).create(&other).expect("a folder");
        let link = folder.path().join("log");
        std::os::unix::fs::symlink(&other, &link).expect("a link");
        make_private(&link, account, OFlags::NOFOLLOW).expect_err("the folder of another is closed");
        assert_eq!(fs::metadata(&other).expect("there").mode() & 0o777, 0o755);
        make_private(&link, account, OFlags::empty()).expect("an operator may put the cluster elsewhere");
        assert_eq!(fs::metadata(&other).expect("there").mode() & 0o777, 0o700);
        let file = folder.path().join("file");
        fs::write(&file, "kept").expect("a file");
        let link = folder.path().join("start.log");
        std::os::unix::fs::symlink(&file, &link).expect("a link");
        create_plain(&link).expect_err("the file of another is emptied");
        assert_eq!(fs::read_to_string(&file).expect("there"), "kept");
    }

    #[test]
    fn the_server_gets_an_eighth_of_the_memory_within_its_bounds_and_expects_half_of_it_to_hold_pages() {
        let of = |kibibytes: &str, limit| {
            memory(known_memory(Some(&format!("MemFree: 1 kB\nMemTotal:   {kibibytes} kB\n")), limit))
        };
        assert_eq!(of("16777216", Some("max\n")), ["shared_buffers=2048MB", "effective_cache_size=8192MB"]);
        assert_eq!(of("16777216", Some("8589934592\n")), ["shared_buffers=1024MB", "effective_cache_size=4096MB"]);
        assert_eq!(of("1048576", None), ["shared_buffers=256MB", "effective_cache_size=512MB"]);
        assert_eq!(of("1073741824", None), ["shared_buffers=4096MB", "effective_cache_size=524288MB"]);
        assert_eq!(memory(known_memory(None, None)), ["shared_buffers=256MB", "effective_cache_size=256MB"]);
    }

    #[test]
    fn the_buffers_of_a_data_folder_stay_up_to_half_of_the_memory() {
        for (configured, mebibytes) in [(4_096, 32_768), (4_096, 8_192), (256, 384), (4_096, 0)] {
            assert!(!are_too_large(configured, mebibytes), "{configured} of {mebibytes}");
        }
        for (configured, mebibytes) in [(4_096, 8_191), (4_096, 4_096), (257, 384)] {
            assert!(are_too_large(configured, mebibytes), "{configured} of {mebibytes}");
        }
    }

    #[test]
    fn a_path_too_long_for_a_socket_gets_a_private_folder_that_fits() {
        let uid = rustix::process::geteuid().as_raw();
        let gid = rustix::process::getegid().as_raw();
        let account = Account { uid, gid, is_other: false };
        let digest = hex::encode(Sha256::digest(format!("socket test {}", std::process::id())));
        let folder = PathBuf::from(format!("/tmp/{}", "x".repeat(120)));
        let short = socket_dir(&folder, &digest, account).unwrap();
        assert!(short.as_os_str().len() <= MAX_SOCKET_DIR);
        assert_eq!(socket_dir(&folder, &digest, account).unwrap(), short);

        fs::set_permissions(&short, fs::Permissions::from_mode(0o755)).unwrap();
        assert!(matches!(socket_dir(&folder, &digest, account), Err(EmbeddedError::SocketFolder { .. })));
        fs::remove_dir(&short).unwrap();
        std::os::unix::fs::symlink("/tmp", &short).unwrap();
        assert!(matches!(socket_dir(&folder, &digest, account), Err(EmbeddedError::SocketFolder { .. })));
        fs::remove_file(&short).unwrap();
    }

    #[test]
    fn a_path_that_a_shell_would_read_otherwise_is_refused() {
        assert!(check_for_shell(Path::new("/var/lib/a folder, (ü) & more")).is_ok());
        for path in ["/a\"b", "/a'b", "/$HOME", "/`id`", "/a\\b", "/a\nb"] {
            let error = check_for_shell(Path::new(path)).unwrap_err();
            assert!(error.to_string().contains("choose another"), "{error}");
        }
    }
}
