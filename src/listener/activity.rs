//! What a connection is doing. Its socket, its requests and the listener share this view.
use super::Limits;
use crate::admission::Place;
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
    /// No byte of a next request has arrived.
    Idle,
    Header,
    /// A request is being served; this lasts until its answer is made.
    Request,
    /// The answer is made, and bytes of it are still to be sent.
    Leaving,
}

impl Phase {
    /// Whether a client has asked for something that it does not have yet.
    fn is_busy(self) -> bool {
        matches!(self, Phase::Request | Phase::Leaving)
    }
}

#[derive(Debug)]
struct Now {
    phase: Phase,
    since: Instant,
    /// Since when the client has read nothing of what is ready for it.
    unread_since: Option<Instant>,
    /// The room that the answer takes until it is sent.
    room: Option<Arc<Place>>,
}

pub(super) struct Activity {
    now: Mutex<Now>,
    closing: AtomicBool,
    close: Notify,
}

impl Activity {
    pub(super) fn new() -> Activity {
        Activity {
            now: Mutex::new(Now { phase: Phase::Idle, since: Instant::now(), unread_since: None, room: None }),
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

    /// Records that bytes came from the client.
    pub(super) fn received(&self) {
        let begins = self.now().phase == Phase::Idle;
        if begins {
            self.enter(Phase::Header);
        }
    }

    /// Records that bytes were handed to the system, or that it takes none.
    pub(super) fn sent(&self, taken: bool) {
        let mut now = self.now();
        now.unread_since = if taken { None } else { now.unread_since.or_else(|| Some(Instant::now())) };
    }

    /// Records that all bytes so far were handed to the system.
    pub(super) fn flushed(&self) {
        let ends = self.now().phase == Phase::Leaving;
        if ends {
            self.enter(Phase::Idle);
            self.now().room = None;
        }
    }

    /// Begins a request, whose answer is made when the guard is dropped.
    pub(super) fn request(self: &Arc<Self>) -> Request {
        self.enter(Phase::Request);
        Request { activity: self.clone(), room: None }
    }

    /// Since when there is no request; `None` if there is one, or if the connection is closing already.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        let now = self.now();
        (!now.phase.is_busy() && !self.is_closing()).then_some(now.since)
    }

    /// Closes the connection, unless a request comes first.
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
            if !self.now().phase.is_busy() {
                return;
            }
            self.closing.store(false, Ordering::Relaxed);
        }
    }

    /// When the connection must be closed if nothing changes. `stopped` is the time since which the service stops.
    pub(super) fn deadline(&self, limits: &Limits, stopped: Option<Instant>) -> Option<Instant> {
        let now = self.now();
        let unread = now.unread_since.map(|since| since + limits.body);
        let waited = match (now.phase, stopped) {
            // Whoever goes on reading gets the whole answer.
            (Phase::Request, _) | (Phase::Leaving, None) => None,
            (Phase::Header, Some(stopped)) => Some(stopped),
            (Phase::Idle | Phase::Leaving, Some(stopped)) => Some(stopped.max(now.since) + FLUSH),
            (Phase::Header, None) => Some(now.since + limits.header),
            (Phase::Idle, None) => Some(now.since + limits.idle),
        };
        [unread, waited].into_iter().flatten().min()
    }
}

/// A request under way.
pub(super) struct Request {
    activity: Arc<Activity>,
    room: Option<Arc<Place>>,
}

impl Request {
    /// Keeps the room of the answer until the answer is sent.
    pub(super) fn holds(&mut self, room: Option<Arc<Place>>) {
        self.room = room;
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        self.activity.enter(Phase::Leaving);
        self.activity.now().room = self.room.take();
    }
}
