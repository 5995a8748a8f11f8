//! One run of the server: starting it until it answers, stopping it until it has ended, and ending what an earlier run
//! left behind.

use super::{EmbeddedError, cluster::Cluster};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use std::{
    fs,
    io::{self, Read, Seek, SeekFrom},
    os::unix::fs::MetadataExt,
    path::Path,
    time::Duration,
};
use tokio::{
    process::Child,
    time::{Instant, sleep, timeout},
};

/// How often to look at a file or process that changes soon.
const LOOK: Duration = Duration::from_millis(20);
/// A fast shutdown writes a checkpoint, which takes time on a slow disk.
const FAST_STOP: Duration = Duration::from_secs(60);
/// An immediate shutdown writes nothing.
const IMMEDIATE_STOP: Duration = Duration::from_secs(10);
/// How much of the end of the server's log an error shows.
const LOG_TAIL_BYTES: u64 = 2048;

/// A server that answers.
#[derive(Debug)]
pub(super) struct Server {
    pub child: Child,
    pub pid: u32,
}

impl Server {
    /// Starts the server and waits until it takes connections. A recovery may take long; this waits for it as long as
    /// the server lives.
    pub async fn start(cluster: &Cluster) -> Result<Self, EmbeddedError> {
        let mut child = cluster
            .server_command()
            .await?
            .spawn()
            .map_err(EmbeddedError::file("start the server on", &cluster.data))?;
        let Some(pid) = child.id() else { return Err(ended(cluster, "at once")) };
        let begun = Instant::now();
        let mut next_word = Duration::from_secs(10);
        loop {
            // The child's end is noticed at once; otherwise the pid file is looked at again.
            if let Ok(status) = timeout(LOOK, child.wait()).await {
                let status = status.map_or_else(|error| error.to_string(), |status| status.to_string());
                return Err(ended(cluster, &status));
            }
            if is_ready(cluster, pid) {
                return Ok(Self { child, pid });
            }
            if begun.elapsed() > next_word {
                tracing::info!(seconds = begun.elapsed().as_secs(), "PostgreSQL is still starting");
                next_word *= 2;
            }
        }
    }

    /// Ends the server: with a fast shutdown, or, if that takes too long, with an immediate one and a recovery at the
    /// next start.
    pub async fn stop(mut self) {
        for (signal, patience) in
            [(Signal::INT, FAST_STOP), (Signal::QUIT, IMMEDIATE_STOP), (Signal::KILL, IMMEDIATE_STOP)]
        {
            send(self.pid, signal);
            if timeout(patience, self.child.wait()).await.is_ok() {
                return;
            }
            tracing::warn!(signal = ?signal, "PostgreSQL does not end; sending a stronger signal");
        }
    }
}

/// Signals a process; it is no error if the process has ended meanwhile.
pub(super) fn send(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw)
        && let Err(error) = kill_process(pid, signal)
        && error != rustix::io::Errno::SRCH
    {
        tracing::warn!(%error, pid = pid.as_raw_nonzero().get(), "a process of PostgreSQL cannot be signalled");
    }
}

fn ended(cluster: &Cluster, status: &str) -> EmbeddedError {
    let (start, newest) = (cluster.start_log(), cluster.newest_log());
    let said_first = tail(&start);
    // Once the log is open, the start's own file only says where the log is.
    let (log, output) =
        if said_first.contains("FATAL") { (start, said_first) } else { (newest.clone(), tail(&newest)) };
    EmbeddedError::Start { status: status.to_owned(), log, output }
}

fn tail(path: &Path) -> String {
    let read = || {
        let mut file = fs::File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(LOG_TAIL_BYTES)))?;
        let mut bytes = Vec::new();
        file.take(LOG_TAIL_BYTES).read_to_end(&mut bytes)?;
        Ok::<_, io::Error>(String::from_utf8_lossy(&bytes).trim().to_owned())
    };
    read().unwrap_or_default()
}

/// Reads the pid file: the process id is in the first line, the state in the eighth.
fn pid_file(cluster: &Cluster) -> Option<(u32, String)> {
    let text = fs::read_to_string(cluster.data.join("postmaster.pid")).ok()?;
    let pid = text.lines().next()?.trim().parse().ok()?;
    Some((pid, text.lines().nth(7).unwrap_or_default().trim().to_owned()))
}

fn is_ready(cluster: &Cluster, pid: u32) -> bool {
    pid_file(cluster).is_some_and(|(owner, state)| owner == pid && state == "ready")
}

/// Ends what a killed service left running, and removes what would keep a new server from starting.
///
/// A server left alone is stopped and not adopted: it is not our child, so we could not see its end, and its settings
/// may be those of an earlier release. The caller holds the folder's lock, so nobody else uses it.
pub(super) async fn end_leftovers(cluster: &Cluster) -> Result<(), EmbeddedError> {
    let begun = Instant::now();
    let mut step = 0;
    loop {
        let left = processes(cluster);
        let Some(first) = left.first().copied() else { break };
        // A server ends its own processes; the orphans of a killed server are each signalled.
        let main = pid_file(cluster).map(|(pid, _)| pid).filter(|pid| left.contains(pid));
        let due = match step {
            0 => Some(if main.is_some() { Signal::INT } else { Signal::QUIT }),
            1 => (begun.elapsed() > FAST_STOP).then_some(Signal::QUIT),
            2 => (begun.elapsed() > FAST_STOP + IMMEDIATE_STOP).then_some(Signal::KILL),
            _ if begun.elapsed() > FAST_STOP + 2 * IMMEDIATE_STOP => {
                return Err(EmbeddedError::Leftover { pid: main.unwrap_or(first) });
            }
            _ => None,
        };
        if let Some(signal) = due {
            tracing::warn!(pid = main.unwrap_or(first), signal = ?signal, "ending a PostgreSQL left by an earlier service");
            let targets = main.map_or(left, |main| vec![main]);
            targets.into_iter().for_each(|pid| send(pid, signal));
            step += 1;
        }
        sleep(LOOK).await;
    }
    clear_stale_pid_file(cluster);
    clear_socket_lock(cluster)
}

/// Removes a stale pid file. PostgreSQL does not start while its pid file names a live process of its user, which after
/// a restart of the machine may be any process. The file is only removed if that process is visibly another program.
fn clear_stale_pid_file(cluster: &Cluster) {
    let Some((pid, _)) = pid_file(cluster) else { return };
    let lives = i32::try_from(pid).ok().and_then(Pid::from_raw).is_some_and(|pid| test_kill_process(pid).is_ok());
    let title = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    if lives && !title.is_empty() && !is_ours(cluster, pid) {
        tracing::warn!(pid, "the pid file of PostgreSQL names a process of another program; removing it");
        let _ = fs::remove_file(cluster.data.join("postmaster.pid"));
    }
}

/// Removes the lock of the socket. No process of the cluster is left, and PostgreSQL does not start while that file names
/// a live process of its user, as the pid file does.
fn clear_socket_lock(cluster: &Cluster) -> Result<(), EmbeddedError> {
    let lock = cluster.socket_lock();
    match fs::remove_file(&lock) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(EmbeddedError::file("remove", &lock)(error)),
        _ => Ok(()),
    }
}

/// The processes of this cluster.
fn processes(cluster: &Cluster) -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| is_ours(cluster, *pid)).collect()
}

/// Whether this is a process of the cluster. Its title says so, which anyone may read. In another container a cluster may
/// have the same path, and so the same title, so a process whose folder may be read must be in the cluster's.
fn is_ours(cluster: &Cluster, pid: u32) -> bool {
    let is_titled = fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|title| is_of(cluster, &title));
    // A server that has just begun is still where it was started.
    let is_in = |at| [cluster.data.as_path(), Path::new("/")].into_iter().any(|folder| place(folder) == Some(at));
    is_titled && place(Path::new(&format!("/proc/{pid}/cwd"))).is_none_or(is_in)
}

/// The device and the number of a folder, which no other one has; `None` if they cannot be read.
fn place(folder: &Path) -> Option<(u64, u64)> {
    let metadata = fs::metadata(folder).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

/// Whether a command line belongs to a server of this cluster (`postgres -D folder ...`) or to one of its processes
/// (`postgres: cluster name: ...`).
fn is_of(cluster: &Cluster, title: &[u8]) -> bool {
    let mut arguments = title.split(|byte| *byte == 0);
    let is_server = || {
        let program = arguments.next().unwrap_or_default();
        let folder = cluster.data.as_os_str().as_encoded_bytes();
        program.ends_with(b"/postgres") && arguments.next() == Some(b"-D") && arguments.next() == Some(folder)
    };
    title.starts_with(format!("postgres: {}: ", cluster.tag).as_bytes()) || { is_server }()
}
