//! What is known of the bulk feed: whether it takes messages, and what lies in its queues, which it only tells while somebody looks.
use chrono::{DateTime, Utc};
use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use svc_client::wire::{DeadLetter, FeedQueue};
use tokio::sync::{MutexGuard, Notify, watch};

/// Figures are shown to all who look within this time.
const FRESH: Duration = Duration::from_secs(1);
/// How long one who looks waits for new figures.
const PATIENCE: Duration = Duration::from_secs(3);
/// Older figures say nothing about the present.
const STALE: Duration = Duration::from_secs(30);

/// What the feed does while it has its broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    Takes,
    /// Too many tasks are ready.
    Pauses,
}

impl Work {
    /// In words for people.
    pub fn says(self) -> &'static str {
        match self {
            Work::Takes => "takes messages",
            Work::Pauses => "pauses, because SVC_BULK_HIGH_WATER tasks are ready",
        }
    }
}

/// What the feed does, or why it does nothing.
pub type State = Result<Work, String>;

/// The queues of the feed, and the first of the messages that it gave up.
#[derive(Clone, Debug)]
pub struct Figures {
    pub at: DateTime<Utc>,
    pub queues: Vec<FeedQueue>,
    /// How many messages this process works on.
    pub at_work: u64,
    pub dead: Vec<DeadLetter>,
    /// Why those that were given up could not be read.
    pub dead_failure: Option<String>,
}

#[derive(Default)]
pub struct Feed {
    state: Mutex<Option<(State, DateTime<Utc>)>>,
    figures: watch::Sender<Option<(Instant, Arc<Figures>)>>,
    wanted: Notify,
    changed: AtomicBool,
    turn: tokio::sync::Mutex<()>,
}

impl Feed {
    /// Notes how the feed is.
    pub fn note(&self, state: State) {
        let mut known = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let since = known.as_ref().filter(|(before, _)| before.is_ok() == state.is_ok()).map(|(_, since)| *since);
        if state.is_err() {
            self.figures.send_replace(None);
        }
        *known = Some((state, since.unwrap_or_else(Utc::now)));
    }

    /// How the feed is, and since when it has or lacks its broker; `None` if there is no feed.
    pub fn state(&self) -> Option<(State, DateTime<Utc>)> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Why the feed has no broker, and for how many seconds; `None` if it has one, or if there is no feed.
    pub fn is_away(&self) -> Option<(String, f64)> {
        let (state, since) = self.state()?;
        Some((state.err()?, (Utc::now() - since).as_seconds_f64().max(0.0)))
    }

    /// The figures of now; `None` while the broker is away.
    pub async fn figures(&self) -> Option<Arc<Figures>> {
        if !matches!(self.state(), Some((Ok(_), _))) {
            return None;
        }
        let within = |time: Duration, known: &Option<(Instant, Arc<Figures>)>| {
            known.as_ref().filter(|(at, _)| at.elapsed() < time).map(|(_, figures)| figures.clone())
        };
        let mut told = self.figures.subscribe();
        if within(FRESH, &told.borrow()).is_none() {
            self.wanted.notify_one();
            let _ = tokio::time::timeout(PATIENCE, told.wait_for(|known| within(FRESH, known).is_some())).await;
        }
        let known = told.borrow();
        within(STALE, &known)
    }

    /// Returns when somebody looks.
    pub async fn wanted(&self) {
        self.wanted.notified().await;
    }

    pub fn tell(&self, figures: Figures) {
        self.figures.send_replace(Some((Instant::now(), Arc::new(figures))));
    }

    /// The right to take messages from the queue of what was given up: whoever has some hides them from others.
    pub async fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().await
    }

    /// Notes that somebody changed what lies in the queues.
    pub fn forget(&self) {
        self.changed.store(true, Ordering::Relaxed);
        self.figures.send_replace(None);
    }

    /// Whether somebody did so since the last call.
    pub fn was_changed(&self) -> bool {
        self.changed.swap(false, Ordering::Relaxed)
    }
}
