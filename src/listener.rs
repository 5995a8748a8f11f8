//! The HTTP/1.1 listener. It bounds everything that a client can hold without sending a request: connections, their
//! headers, bodies that do not move and answers that nobody reads.
mod activity;
mod body;
mod connection;

use crate::settings::Settings;
use activity::Activity;
use axum::Router;
use connection::Connection;
pub use connection::Peer;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::{
    collections::HashMap,
    io,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::{Semaphore, watch},
    task::JoinSet,
};

/// How many descriptors stay free for files, child processes and the database.
const OTHER_DESCRIPTORS: usize = 256;
/// The fewest connections, however few descriptors there are.
const LEAST_CONNECTIONS: usize = 16;
/// The pause after an `accept` that failed for lack of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The log gets at most one line in this time about refused connections.
const LOGGED_EVERY: Duration = Duration::from_secs(10);
/// How many refused connections get an answer at a time; further ones are closed without an answer.
const REFUSALS_AT_ONCE: usize = 32;
/// How long the answer to a refused connection may take.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(1);

/// How long a client may keep a connection waiting, and how many connections there may be.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub connections: usize,
    pub header: Duration,
    pub idle: Duration,
    pub body: Duration,
}

impl Limits {
    /// Takes the limits from the settings, with no more connections than the process may have descriptors for.
    pub fn of(settings: &Settings) -> Limits {
        let connections = settings.max_connections.min(descriptors().saturating_sub(OTHER_DESCRIPTORS));
        Limits {
            connections: connections.max(LEAST_CONNECTIONS),
            header: settings.header_timeout,
            idle: settings.idle_timeout,
            body: settings.body_timeout,
        }
    }
}

/// How many descriptors the process may open, after it has asked the system for as many as allowed.
fn descriptors() -> usize {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let raised = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    let granted = if raised.is_ok() { maximum } else { current };
    granted.map_or(usize::MAX, |granted| usize::try_from(granted).unwrap_or(usize::MAX))
}

/// Serves until `stop` becomes true, and then until the requests under way are answered. Dropping the future cuts them
/// off.
pub async fn serve(listener: TcpListener, router: Router, limits: Limits, mut stop: watch::Receiver<bool>) {
    let open = Arc::new(Open::default());
    let refusals = Arc::new(Semaphore::new(REFUSALS_AT_ONCE));
    let mut throttled = Throttled::default();
    let mut tasks = JoinSet::new();
    let mut stopped = stop.clone();
    let mut stopped = std::pin::pin!(stopped.wait_for(|stop| *stop));
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = tasks.join_next() => continue,
            _ = &mut stopped => break,
        };
        match accepted {
            Ok((stream, _)) if open.count() < limits.connections || open.close_idlest() => {
                let entry = open.enter();
                let connection = Connection::new(stream, router.clone(), limits, entry.activity.clone());
                let stop = stop.clone();
                tasks.spawn(async move {
                    connection.run(stop).await;
                    drop(entry);
                });
            }
            Ok((stream, _)) => {
                throttled.warn(|| {
                    tracing::warn!(
                        connections = limits.connections,
                        "every connection is busy, so new ones are refused; raise SVC_MAX_CONNECTIONS if this is normal load"
                    )
                });
                if let Ok(place) = refusals.clone().try_acquire_owned() {
                    tasks.spawn(async move {
                        // The client may be gone or may not read, so an error here does not matter.
                        drop(tokio::time::timeout(REFUSAL_TIMEOUT, refuse(stream)).await);
                        drop(place);
                    });
                }
            }
            Err(error) if is_the_clients(&error) => {}
            Err(error) => {
                throttled.warn(|| tracing::warn!(error = %error, "cannot accept connections now"));
                open.close_idlest();
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    // Each connection learns of the stop by itself.
    drop(stop.wait_for(|stop| *stop).await);
    while tasks.join_next().await.is_some() {}
}

/// Whether `accept` failed because the client is already gone.
fn is_the_clients(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

/// Answers 503 without reading the request.
async fn refuse(mut stream: TcpStream) -> io::Result<()> {
    let body = serde_json::to_vec(
        &svc_client::Failure::new(svc_client::Code::Unavailable, "too many connections are busy")
            .with("setting", "SVC_MAX_CONNECTIONS")
            .with("retry_after", 1),
    )?;
    let head = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/problem+json\r\ncontent-length: {}\r\nretry-after: 1\r\nconnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(&body).await?;
    stream.shutdown().await?;
    // Unread bytes at the close would reset the connection, and the answer would be lost.
    let mut rest = [0; 4096];
    while stream.read(&mut rest).await? > 0 {}
    Ok(())
}

/// Keeps a line from being logged a thousand times a second.
#[derive(Default)]
struct Throttled(Option<Instant>);

impl Throttled {
    fn warn(&mut self, log: impl FnOnce()) {
        if self.0.is_none_or(|at| at.elapsed() > LOGGED_EVERY) {
            self.0 = Some(Instant::now());
            log();
        }
    }
}

#[derive(Default)]
struct Open {
    connections: Mutex<HashMap<u64, Arc<Activity>>>,
    next: AtomicU64,
}

/// One of the open connections, as long as it lives.
struct Entry {
    open: Arc<Open>,
    number: u64,
    activity: Arc<Activity>,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.open.connections().remove(&self.number);
    }
}

impl Open {
    fn connections(&self) -> MutexGuard<'_, HashMap<u64, Arc<Activity>>> {
        // No code panics between two states of the map.
        self.connections.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The number of open connections that have not been told to close.
    fn count(&self) -> usize {
        self.connections().values().filter(|activity| !activity.is_closing()).count()
    }

    fn enter(self: &Arc<Self>) -> Entry {
        let (number, activity) = (self.next.fetch_add(1, Ordering::Relaxed), Arc::new(Activity::new()));
        self.connections().insert(number, activity.clone());
        Entry { open: self.clone(), number, activity }
    }

    /// Closes the connection that has been without a request for longest; returns false if all have one.
    fn close_idlest(&self) -> bool {
        let connections = self.connections();
        let idle = connections.values().filter_map(|activity| Some((activity.idle_since()?, activity)));
        match idle.min_by_key(|(since, _)| *since) {
            Some((_, activity)) => {
                activity.close();
                true
            }
            None => false,
        }
    }
}
