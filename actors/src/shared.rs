//! What the actors of one worker share. Nothing here is global to the process.

use crate::{
    dispatcher::DispatcherMessage,
    documents::DocumentsMessage,
    grant::Lanes,
    ledger::Ledger,
    lock_manager::LockMessage,
    news::News,
    port::{BeatFactory, Handler, Queue},
    settings::WorkerSettings,
    tree::{Board, LaneUse, Post, TreeSnapshot},
    worker::WorkerEnd,
};
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
        mpsc::Sender,
    },
    time::{Duration, Instant},
};
use tokio::sync::watch;

/// How long heartbeats come often after somebody looked.
const WATCHED: Duration = Duration::from_secs(15);
/// The time between two heartbeats while somebody looks.
const WATCHED_BEAT: Duration = Duration::from_secs(1);

pub(crate) struct Shared {
    pub settings: WorkerSettings,
    pub queue: Arc<dyn Queue>,
    pub handler: Arc<dyn Handler>,
    pub beat: BeatFactory,
    pub ledger: Ledger,
    pub board: Arc<Board>,
    /// Nothing more is claimed.
    pub closing: AtomicBool,
    pub end: watch::Sender<Option<WorkerEnd>>,
    /// Where the permanent actors are at present; a restart replaces the addresses.
    pub locks: Address<LockMessage>,
    pub dispatcher: Address<DispatcherMessage>,
    pub documents: Address<DocumentsMessage>,
    /// Asks for an immediate heartbeat. It is weak because the heart's thread ends when its actor drops the other end.
    pub pulse: Mutex<Weak<Sender<()>>>,
    /// The dispatcher's mailbox already has a wake-up, so that any number of wake-ups use one message.
    pub woken: AtomicBool,
    /// Until then somebody looks at the snapshots, so that heartbeats come often.
    watched: Mutex<Option<Instant>>,
    pub news: News,
    /// The codes of the failures for want of something that were logged, and when.
    lacks: Mutex<HashMap<String, tokio::time::Instant>>,
}

pub(crate) struct Address<M>(Mutex<Option<Post<M>>>);

impl<M> Default for Address<M> {
    fn default() -> Self {
        Address(Mutex::new(None))
    }
}

impl<M> Address<M> {
    pub fn set(&self, post: Post<M>) {
        let old = self.0.lock().unwrap_or_else(PoisonError::into_inner).replace(post);
        drop(old);
    }

    pub fn get(&self) -> Option<Post<M>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Shared {
    pub fn new(settings: WorkerSettings, queue: Arc<dyn Queue>, handler: Arc<dyn Handler>, beat: BeatFactory) -> Self {
        Shared {
            settings,
            queue,
            handler,
            beat,
            ledger: Ledger::new(),
            board: Arc::default(),
            closing: AtomicBool::new(false),
            end: watch::Sender::new(None),
            locks: Address::default(),
            dispatcher: Address::default(),
            documents: Address::default(),
            pulse: Mutex::default(),
            woken: AtomicBool::new(false),
            watched: Mutex::default(),
            news: News::new(),
            lacks: Mutex::default(),
        }
    }

    /// Whether a failure for want of this is to be logged, because none of this process was within this time.
    pub fn is_first_lack(&self, code: &str, within: Duration) -> bool {
        let mut lacks = self.lacks.lock().unwrap_or_else(PoisonError::into_inner);
        let is_first = lacks.get(code).is_none_or(|said| said.elapsed() >= within);
        if is_first {
            lacks.insert(code.to_owned(), tokio::time::Instant::now());
        }
        is_first
    }

    /// Announces that tasks of these lanes may be claimable now.
    pub fn wake(&self, lanes: Lanes) {
        if !lanes.is_empty() {
            self.news.tell(lanes);
            self.look();
        }
    }

    /// Whether a lane that may have work has an idle slot.
    pub fn has_room_for_news(&self) -> bool {
        let permits = &self.settings.permits;
        self.news.with_work().iter().any(|lane| self.ledger.used(lane, permits.of(lane)) < permits.of(lane))
    }

    /// Has the dispatcher look for work, because a permit is free or a lane has news.
    pub fn look(&self) {
        if !self.woken.swap(true, Ordering::AcqRel) {
            // A new dispatcher looks as soon as its address is known.
            if let Some(dispatcher) = self.dispatcher.get() {
                let _ = dispatcher.cast(DispatcherMessage::Wake);
            }
        }
    }

    /// Names the new dispatcher. A wake-up that came since its predecessor ended went to a mailbox that nobody reads, and
    /// would keep all later ones from being sent.
    pub fn set_dispatcher(&self, post: Post<DispatcherMessage>) {
        self.dispatcher.set(post);
        self.woken.store(false, Ordering::Release);
        self.look();
    }

    /// Asks for a heartbeat, because somebody may have cancelled a task that is held here.
    pub fn beat(&self) {
        let pulse = self.pulse.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
        if let Some(pulse) = pulse {
            // A heart that is being restarted sends a heartbeat at once anyway.
            let _ = pulse.send(());
        }
    }

    /// Has heartbeats come often for a while, because somebody looks at the snapshots.
    pub fn watch(&self) {
        *self.watched.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now() + WATCHED);
        self.beat();
    }

    /// The time from one heartbeat to the next.
    pub fn between_beats(&self) -> Duration {
        let until = *self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        match until.is_some_and(|until| Instant::now() < until) {
            true => self.shortest_beat(),
            false => self.settings.heartbeat,
        }
    }

    /// The time from one heartbeat to the next while somebody looks.
    pub fn shortest_beat(&self) -> Duration {
        self.settings.heartbeat.min(WATCHED_BEAT)
    }

    /// Announces that something is owed to the queue. A lock manager that is being restarted looks at once anyway.
    pub fn poke_locks(&self) {
        if let Some(locks) = self.locks.get() {
            let _ = locks.cast(LockMessage::WriteBack);
        }
    }

    /// The actors as they are now.
    pub fn snapshot(&self) -> TreeSnapshot {
        // This happens before the board's own lock is taken.
        let phases = self.ledger.phases();
        let permits = &self.settings.permits;
        let lanes = Lanes::ALL.iter().filter(|lane| permits.of(*lane) > 0).map(|lane| LaneUse {
            lane,
            permits: permits.of(lane),
            busy: self.ledger.used(lane, permits.of(lane)),
        });
        self.board.snapshot(&self.settings.worker_id, &phases, lanes.collect())
    }

    /// Ends the worker. Only the first end counts.
    pub fn finish(&self, end: WorkerEnd) {
        self.closing.store(true, Ordering::Release);
        self.end.send_if_modified(|current| {
            let first = current.is_none();
            if first {
                *current = Some(end);
            }
            first
        });
    }
}
