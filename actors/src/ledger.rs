//! What this process holds, in one table. The lock manager fills it, the dispatcher counts its permits by it, and the
//! heart renews it from its own thread. It outlives a restart of any of them.

use crate::{
    CancelToken,
    grant::{Grant, Lane, TaskFailure},
    port::BeatAnswer,
    settings::Permits,
    tree::Phase,
};
use ractor::ActorCell;
use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use svc_ids::{RootId, TaskId};
use tokio::sync::watch;
use uuid::Uuid;

/// Why a task was told to end early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StopReason {
    /// The reservation is no longer ours, so nothing may be written.
    Lost,
    Cancelled,
    /// The worker is stopping.
    Drained,
}

/// What the queue must be told about a task that ended.
#[derive(Debug)]
pub(crate) enum Owed {
    Failure(TaskFailure),
    Return,
    /// Given back as well: the task's actor ended first, which is not the task's fault unless it keeps happening.
    Interrupted,
}

/// The most tasks whose interruptions are remembered.
const MOST_INTERRUPTED: usize = 1000;

pub(crate) struct Holding {
    grant: Arc<Grant>,
    cancel: CancelToken,
    actor: Option<ActorCell>,
    stop: Option<StopReason>,
    /// The task's handler is running.
    begun: bool,
    /// Only the commit is left, so another task may use the permit.
    commits: bool,
    ended: bool,
    /// When the database last confirmed the reservation: the moment before that call began.
    confirmed: Instant,
}

#[derive(Default)]
struct Book {
    held: HashMap<Uuid, Holding>,
    owed: Vec<(Arc<Grant>, Owed)>,
    finished: u64,
    /// Slots that the ends of tasks are claiming for right now.
    asked: HashMap<Lane, usize>,
    /// Slots that stay empty, and until when.
    resting: Vec<(Lane, tokio::time::Instant)>,
    /// By task id, how many times in a row the task's actors ended before it.
    interrupted: HashMap<TaskId, u32>,
}

impl Book {
    fn used(&self, lane: Lane, permits: usize) -> usize {
        let (mut working, mut committing) = (0, 0usize);
        for holding in self.held.values().filter(|holding| holding.grant.lane == lane) {
            *if holding.commits && !holding.ended { &mut committing } else { &mut working } += 1;
        }
        let now = tokio::time::Instant::now();
        let resting = self.resting.iter().filter(|(its, until)| *its == lane && *until > now).count();
        working + committing.saturating_sub(permits) + self.asked.get(&lane).copied().unwrap_or(0) + resting
    }
}

pub(crate) struct Ledger {
    book: Mutex<Book>,
    changed: watch::Sender<()>,
}

impl Ledger {
    pub fn new() -> Self {
        Ledger { book: Mutex::default(), changed: watch::Sender::new(()) }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        // A panic cannot leave this plain data half-written, so a poisoned lock is still good.
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enters a grant. Returns false if its token is held already.
    pub fn admit(&self, grant: Arc<Grant>, cancel: CancelToken, asked: Instant) -> bool {
        let mut book = self.book();
        if book.held.contains_key(&grant.token) {
            return false;
        }
        let holding = Holding {
            grant: grant.clone(),
            cancel,
            actor: None,
            stop: None,
            begun: false,
            commits: false,
            ended: false,
            confirmed: asked,
        };
        book.held.insert(grant.token, holding);
        true
    }

    /// Names the actor to kill when the task must end. Returns false if it must end already.
    pub fn bind(&self, token: Uuid, actor: ActorCell) -> bool {
        match self.book().held.get_mut(&token) {
            Some(holding) if holding.stop.is_none() => {
                holding.actor = Some(actor);
                true
            }
            _ => false,
        }
    }

    pub fn stopped(&self, token: Uuid) -> Option<StopReason> {
        // A token that is no longer held counts as lost.
        self.book().held.get(&token).map_or(Some(StopReason::Lost), |holding| holding.stop)
    }

    /// Records that the task's handler begins.
    pub fn begin(&self, token: Uuid) {
        if let Some(holding) = self.book().held.get_mut(&token) {
            holding.begun = true;
        }
    }

    /// The phase of each held task.
    pub fn phases(&self) -> HashMap<Uuid, Phase> {
        let phase = |holding: &Holding| match holding {
            Holding { ended: true, .. } | Holding { stop: Some(_), .. } => Phase::Stopping,
            Holding { commits: true, .. } => Phase::Committing,
            Holding { begun: true, .. } => Phase::Preparing,
            _ => Phase::Claimed,
        };
        self.book().held.iter().map(|(token, holding)| (*token, phase(holding))).collect()
    }

    /// Records that the task's actor is gone. `owed` decides what the queue must be told, from the reason of the stop
    /// and the number of interruptions in a row. The holding is kept until that is written; if nothing is owed, the
    /// token is forgotten. Returns true if something is owed.
    pub fn end(&self, token: Uuid, owed: impl FnOnce(Option<StopReason>, u32) -> Option<Owed>) -> bool {
        let mut book = self.book();
        let Book { held, interrupted, .. } = &mut *book;
        let Some(holding) = held.get_mut(&token) else { return false };
        let task_id = holding.grant.task_id;
        let before = interrupted.remove(&task_id).unwrap_or(0);
        let owed = owed(holding.stop, before);
        if matches!(owed, Some(Owed::Interrupted)) {
            // Entries of tasks that went to another worker are never looked up again, so a full table starts anew.
            if interrupted.len() >= MOST_INTERRUPTED {
                interrupted.clear();
            }
            interrupted.insert(task_id, before + 1);
        }
        let Some(owed) = owed else {
            let holding = book.held.remove(&token);
            book.finished += 1;
            drop(book);
            drop(holding);
            self.changed.send_replace(());
            return false;
        };
        holding.ended = true;
        let actor = holding.actor.take();
        let grant = holding.grant.clone();
        book.owed.push((grant, owed));
        drop(book);
        drop(actor);
        self.changed.send_replace(());
        true
    }

    pub fn take_owed(&self) -> Vec<(Arc<Grant>, Owed)> {
        std::mem::take(&mut self.book().owed)
    }

    /// Records that what was owed is written, or can no longer be written.
    pub fn written(&self, token: Uuid, finished: bool) {
        let mut book = self.book();
        let holding = book.held.remove(&token);
        if holding.is_some() && finished {
            book.finished += 1;
        }
        drop(book);
        drop(holding);
        self.changed.send_replace(());
    }

    /// Permits in use in `lane`. Up to `permits` committing tasks use none; any beyond that still count.
    pub fn used(&self, lane: Lane, permits: usize) -> usize {
        self.book().used(lane, permits)
    }

    /// Records that only the commit of a task is left, which uses no permit.
    pub fn commits(&self, token: Uuid) {
        if let Some(holding) = self.book().held.get_mut(&token) {
            holding.commits = true;
        }
    }

    /// Sets every idle slot aside for a claim that is under way. [`Ledger::put_back`] returns them.
    pub fn set_aside(&self, permits: &Permits) -> Vec<(Lane, usize)> {
        let mut book = self.book();
        let idle = |lane| (lane, permits.of(lane).saturating_sub(book.used(lane, permits.of(lane))));
        let idle: Vec<(Lane, usize)> = Lane::ALL.into_iter().map(idle).filter(|(_, idle)| *idle > 0).collect();
        for (lane, slots) in &idle {
            *book.asked.entry(*lane).or_default() += slots;
        }
        idle
    }

    pub fn put_back(&self, slots: &[(Lane, usize)]) {
        let mut book = self.book();
        for (lane, slots) in slots {
            let asked = book.asked.entry(*lane).or_default();
            *asked = asked.saturating_sub(*slots);
        }
    }

    /// Keeps a slot of the lane empty for this long.
    pub fn rest(&self, lane: Lane, time: Duration) {
        let now = tokio::time::Instant::now();
        let mut book = self.book();
        book.resting.retain(|(_, until)| *until > now);
        book.resting.push((lane, now + time));
    }

    /// Whether only the commit of a task is left.
    pub fn is_committing(&self, token: Uuid) -> bool {
        self.book().held.get(&token).is_some_and(|holding| holding.commits)
    }

    /// Whether a held task must run alone.
    pub fn holds_one_that_runs_alone(&self) -> bool {
        self.book().held.values().any(|holding| holding.grant.runs_alone)
    }

    /// The tokens held and the tasks finished so far, without those given back or put off, at one moment.
    pub fn totals(&self) -> (usize, u64) {
        let book = self.book();
        (book.held.len(), book.finished)
    }

    #[cfg(test)]
    pub fn actor(&self, token: Uuid) -> Option<ActorCell> {
        self.book().held.get(&token).and_then(|holding| holding.actor.clone())
    }

    pub fn tokens(&self) -> Vec<Uuid> {
        self.book().held.keys().copied().collect()
    }

    /// Takes in the answers to a heartbeat for `asked` that began at `at`. A token without an answer is lost, unless
    /// its task is committing: that task may have completed since, and if not, its own fence finds out.
    pub fn confirm(&self, at: Instant, asked: &[Uuid], answers: &[BeatAnswer]) {
        let alive: HashMap<Uuid, bool> = answers.iter().map(|answer| (answer.token, answer.cancel_requested)).collect();
        let asked: HashSet<Uuid> = asked.iter().copied().collect();
        self.stop_where(|holding| {
            if !asked.contains(&holding.grant.token) {
                return None;
            }
            match alive.get(&holding.grant.token) {
                None => (!holding.commits).then_some(StopReason::Lost),
                Some(cancel_requested) => {
                    holding.confirmed = at;
                    cancel_requested.then_some(StopReason::Cancelled)
                }
            }
        });
    }

    /// Gives up every token that has not been confirmed for longer than `limit`.
    pub fn expire(&self, limit: Duration) {
        self.stop_where(|holding| (holding.confirmed.elapsed() > limit).then_some(StopReason::Lost));
    }

    pub fn stop_document(&self, root_id: RootId) {
        self.stop_where(|holding| (holding.grant.root_id == root_id).then_some(StopReason::Cancelled));
    }

    pub fn stop_all(&self) {
        self.stop_where(|_| Some(StopReason::Drained));
    }

    fn stop_where(&self, mut reason: impl FnMut(&mut Holding) -> Option<StopReason>) {
        let mut stopped: Vec<(Option<ActorCell>, CancelToken)> = Vec::new();
        let mut book = self.book();
        for holding in book.held.values_mut() {
            let Some(reason) = reason(holding) else { continue };
            // A lost reservation overrides any other reason; otherwise the first reason stands.
            match holding.stop {
                None => holding.stop = Some(reason),
                Some(StopReason::Lost) => continue,
                Some(_) if reason == StopReason::Lost => holding.stop = Some(reason),
                Some(_) => continue,
            }
            if !holding.ended {
                holding.grant.span().in_scope(|| match reason {
                    StopReason::Lost => tracing::warn!("reservation lost; stopping the task"),
                    reason => tracing::info!(?reason, "stopping the task"),
                });
            }
            stopped.push((holding.actor.clone(), holding.cancel.clone()));
        }
        drop(book);
        // This happens outside the lock, because it runs wakers.
        for (actor, cancel) in stopped {
            cancel.cancel();
            if let Some(actor) = actor {
                actor.kill();
            }
        }
        self.changed.send_replace(());
    }

    /// Waits until no held grant satisfies `which`.
    pub async fn until_none(&self, which: impl Fn(&Grant) -> bool) {
        self.until(|book| !book.held.values().any(|holding| which(&holding.grant))).await;
    }

    /// Waits until no task runs any more. What they owe may still be unwritten.
    pub async fn until_ended(&self) {
        self.until(|book| book.held.values().all(|holding| holding.ended)).await;
    }

    async fn until(&self, reached: impl Fn(&Book) -> bool) {
        let mut changed = self.changed.subscribe();
        loop {
            changed.borrow_and_update();
            let reached = reached(&self.book());
            // The sender lives as long as the ledger, so waiting cannot fail.
            if reached || changed.changed().await.is_err() {
                return;
            }
        }
    }
}
