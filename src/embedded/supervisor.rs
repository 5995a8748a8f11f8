//! Watches the server and restarts it when it ends by itself.

use super::{
    EmbeddedError, ServerState,
    cluster::Cluster,
    server::{self, Server},
};
use rustix::process::Signal;
use std::time::Duration;
use tokio::{
    sync::{oneshot, watch},
    task::JoinHandle,
    time::{Instant, interval, sleep},
};

const FIRST_DELAY: Duration = Duration::from_millis(200);
const LONGEST_DELAY: Duration = Duration::from_secs(30);
/// After this many failures in a row the service is told to end.
const MAX_FAILURES: u32 = 10;
/// A run this long ends the row of failures.
const HEALTHY: Duration = Duration::from_secs(60);
const LOG_CARE: Duration = Duration::from_secs(600);

/// The task that owns the server.
#[derive(Debug)]
pub(super) struct Supervisor {
    state: watch::Receiver<ServerState>,
    pid: watch::Receiver<Option<u32>>,
    stop: Option<oneshot::Sender<()>>,
    task: Option<JoinHandle<()>>,
}

impl Supervisor {
    /// Starts the server and its watch.
    pub async fn start(cluster: Cluster) -> Result<Self, EmbeddedError> {
        let server = Server::start(&cluster).await?;
        let (state_sender, state) = watch::channel(ServerState::Running);
        let (pid_sender, pid) = watch::channel(Some(server.pid));
        let (stop, stopped) = oneshot::channel();
        let watch = Watch { cluster, state: state_sender, pid: pid_sender, failures: 0 };
        let task = tokio::spawn(watch.run(server, stopped));
        Ok(Self { state, pid, stop: Some(stop), task: Some(task) })
    }

    pub fn state(&self) -> watch::Receiver<ServerState> {
        self.state.clone()
    }

    pub fn pid(&self) -> Option<u32> {
        *self.pid.borrow()
    }

    /// Stops the server and waits for its end.
    pub async fn stop(mut self) {
        drop(self.stop.take());
        if let Some(task) = self.task.take()
            && let Err(error) = task.await
        {
            tracing::error!(%error, "the watch of PostgreSQL failed");
        }
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        // It was not stopped in order, so this only asks the server to end; nobody will be there to wait.
        if let Some(task) = self.task.take() {
            task.abort();
            if let Some(pid) = self.pid() {
                server::send(pid, Signal::INT);
            }
        }
    }
}

struct Watch {
    cluster: Cluster,
    state: watch::Sender<ServerState>,
    pid: watch::Sender<Option<u32>>,
    failures: u32,
}

impl Watch {
    async fn run(mut self, mut server: Server, mut stopped: oneshot::Receiver<()>) {
        let mut log_care = interval(LOG_CARE);
        let mut since = Instant::now();
        loop {
            let ended = tokio::select! {
                _ = &mut stopped => {
                    self.pid.send_replace(None);
                    server.stop().await;
                    self.state.send_replace(ServerState::Stopped);
                    return;
                }
                _ = log_care.tick() => {
                    self.cluster.prune_logs();
                    continue;
                }
                status = server.child.wait() => {
                    status.map_or_else(|error| error.to_string(), |status| status.to_string())
                }
            };
            self.pid.send_replace(None);
            self.state.send_replace(ServerState::Restarting);
            if since.elapsed() > HEALTHY {
                self.failures = 0;
            }
            tracing::error!(server.ended = %ended, "PostgreSQL ended by itself; restarting it");
            server = tokio::select! {
                // A stop interrupts a restart here, and the next start does what this leaves undone.
                _ = &mut stopped => {
                    if let Err(error) = server::end_leftovers(&self.cluster).await {
                        tracing::warn!(%error, "the stop interrupted a restart of PostgreSQL; the next start finishes it");
                    }
                    self.state.send_replace(ServerState::Stopped);
                    return;
                }
                server = self.restart(ended) => match server {
                    Some(server) => server,
                    None => return,
                },
            };
            since = Instant::now();
            self.pid.send_replace(Some(server.pid));
            self.state.send_replace(ServerState::Running);
            tracing::info!(server.pid = server.pid, "PostgreSQL is running again");
        }
    }

    /// Starts a new server after a growing delay; `None` once it has failed too often.
    async fn restart(&mut self, mut ended: String) -> Option<Server> {
        loop {
            self.failures += 1;
            if self.failures > MAX_FAILURES {
                tracing::error!(server.ended = %ended, failures = self.failures, "PostgreSQL does not stay up; giving up");
                self.state.send_replace(ServerState::Failed(ended));
                return None;
            }
            sleep((FIRST_DELAY * 2u32.saturating_pow(self.failures - 1)).min(LONGEST_DELAY)).await;
            let started = match server::end_leftovers(&self.cluster).await {
                Ok(()) => Server::start(&self.cluster).await,
                Err(error) => Err(error),
            };
            match started {
                Ok(server) => return Some(server),
                Err(error) => {
                    tracing::error!(%error, "PostgreSQL could not be restarted");
                    ended = error.to_string();
                }
            }
        }
    }
}
