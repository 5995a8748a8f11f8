//! What a connection is doing, as its socket, its requests and the listener see it.
use super::Limits;
use std::{
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{sync::Notify, time::Instant};

/// How long the rest of an answer may take to leave once the service stops.
const FLUSH: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// No byte of a next request has come.
    Idle,
    /// A header has begun.
    Header,
    /// A request is being served, up to the end of its answer.
    Request,
}

#[derive(Clone, Copy, Debug)]
struct Now {
    phase: Phase,
    since: Instant,
    /// Since when the client has read nothing of what is there for it.
    unread_since: Option<Instant>,
}

pub(super) struct Activity {
    now: Mutex<Now>,
    closing: AtomicBool,
    close: Notify,
}

impl Activity {
    pub(super) fn new() -> Activity {
        Activity {
            now: Mutex::new(Now { phase: Phase::Idle, since: Instant::now(), unread_since: None }),
            closing: AtomicBool::new(false),
            close: Notify::new(),
        }
    }

    fn now(&self) -> MutexGuard<'_, Now> {
        // No code panics between two states.
        self.now.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn enter(&self, phase: Phase) {
        let mut now = self.now();
        (now.phase, now.since) = (phase, Instant::now());
    }

    /// Bytes came from the client.
    pub(super) fn received(&self) {
        let begins = self.now().phase == Phase::Idle;
        if begins {
            self.enter(Phase::Header);
        }
    }

    /// Bytes were handed to the system, or it takes none.
    pub(super) fn sent(&self, taken: bool) {
        let mut now = self.now();
        now.unread_since = if taken { None } else { now.unread_since.or_else(|| Some(Instant::now())) };
    }

    /// A request begins, and ends with the guard.
    pub(super) fn request(self: &Arc<Self>) -> Request {
        self.enter(Phase::Request);
        Request(self.clone())
    }

    /// Since when there is no request; `None` where there is one, or where the connection closes already.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        let now = *self.now();
        (now.phase != Phase::Request && !self.is_closing()).then_some(now.since)
    }

    /// Has the connection closed, unless a request comes first.
    pub(super) fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
        self.close.notify_one();
    }

    pub(super) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Relaxed)
    }

    /// Resolves when the connection was told to close and has no request.
    pub(super) async fn closed(&self) {
        loop {
            self.close.notified().await;
            if self.now().phase != Phase::Request {
                return;
            }
            self.closing.store(false, Ordering::Relaxed);
        }
    }

    /// When the connection is to be closed if nothing changes; `stopped`: since when the service stops.
    pub(super) fn deadline(&self, limits: &Limits, stopped: Option<Instant>) -> Option<Instant> {
        let now = *self.now();
        let unread = now.unread_since.map(|since| since + limits.body);
        let waited = match (now.phase, stopped) {
            (Phase::Request, _) => None,
            (Phase::Header, Some(stopped)) => Some(stopped),
            (Phase::Idle, Some(stopped)) => Some(stopped.max(now.since) + FLUSH),
            (Phase::Header, None) => Some(now.since + limits.header),
            (Phase::Idle, None) => Some(now.since + limits.idle),
        };
        [unread, waited].into_iter().flatten().min()
    }
}

/// A request that is under way.
pub(super) struct Request(Arc<Activity>);

impl Drop for Request {
    fn drop(&mut self) {
        self.0.enter(Phase::Idle);
    }
}
