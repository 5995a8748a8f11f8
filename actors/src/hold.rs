//! A reservation as a value. Its owner may run the task; dropping it gives everything back.

use crate::{
    CancelToken,
    dispatcher::DispatcherMessage,
    document_supervisor::TaskEnd,
    grant::{Grant, Lane, Lanes, TaskFailure},
    ledger::{Owed, StopReason},
    meter::Meter,
    news::Told,
    port::Claimed,
    shared::Shared,
};
use ractor::ActorCell;
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};
use uuid::Uuid;

/// How the handler ended, if it did.
pub(crate) enum Report {
    /// The handler wrote the end of the task itself.
    Finished,
    /// The reservation was lost, so the handler may not write an end.
    Lost,
    Failed(TaskFailure),
}

/// How often in a row a task's actor may end before the task without costing it an attempt.
const MOST_INTERRUPTIONS: u32 = 2;

pub(crate) struct Hold {
    pub grant: Arc<Grant>,
    pub cancel: CancelToken,
    /// The handler has begun.
    pub started: bool,
    pub report: Option<Report>,
    /// How far the task is, as its handler says.
    pub meter: Meter,
    follow_up: Arc<FollowUp>,
    shared: Arc<Shared>,
}

/// What was claimed together with the end of a task.
#[derive(Default)]
struct FollowUp {
    holds: Mutex<Vec<Hold>>,
    /// The queue answered, so what it did not grant cannot be claimed now.
    answered: AtomicBool,
}

impl Hold {
    /// Enters a grant that was asked for at `asked`. Returns `None` if its token is held already.
    pub fn admit(shared: &Arc<Shared>, grant: Grant, asked: Instant) -> Option<Hold> {
        let (grant, cancel) = (Arc::new(grant), CancelToken::new());
        shared.ledger.admit(grant.clone(), cancel.clone(), asked).then(|| Hold {
            grant,
            cancel,
            started: false,
            report: None,
            meter: Meter::default(),
            follow_up: Arc::default(),
            shared: shared.clone(),
        })
    }

    /// Has `actor` killed when the task must end. Returns false if the task must end already.
    pub fn bind(&self, actor: ActorCell) -> bool {
        self.shared.ledger.bind(self.grant.token, actor)
    }

    pub fn permit(&self) -> Permit {
        Permit {
            shared: self.shared.clone(),
            token: self.grant.token,
            meter: self.meter.clone(),
            follow_up: self.follow_up.clone(),
        }
    }

    /// Takes what was claimed together with the task's end, to be run next.
    pub fn take_follow_up(&self) -> Vec<Hold> {
        std::mem::take(&mut *self.follow_up.holds.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn stopped(&self) -> bool {
        self.shared.ledger.stopped(self.grant.token).is_some()
    }

    /// Records that the handler begins now.
    pub fn begin(&mut self) {
        self.started = true;
        self.shared.ledger.begin(self.grant.token);
    }

    /// How the task ended, for its document's supervisor.
    pub fn end(&self) -> TaskEnd {
        match (&self.report, self.shared.ledger.stopped(self.grant.token)) {
            (Some(Report::Finished), _) => TaskEnd::Done,
            (Some(Report::Failed(failure)), None) => TaskEnd::Failed(failure.clone()),
            (_, Some(StopReason::Cancelled)) => TaskEnd::Failed(TaskFailure::cancelled()),
            _ => TaskEnd::Neither,
        }
    }
}

/// The permit of a running task, which its handler holds.
pub struct Permit {
    shared: Arc<Shared>,
    token: Uuid,
    meter: Meter,
    follow_up: Arc<FollowUp>,
}

impl Permit {
    /// Where the handler says how far the task is.
    pub fn meter(&self) -> &Meter {
        &self.meter
    }

    /// Declares that only the task's end is left. In the same message the handler may claim what runs next: this permit
    /// and all other idle ones are set aside for that claim. Dropping the value frees them for other claims.
    pub fn end(self) -> Ending {
        let Permit { shared, token, follow_up, .. } = self;
        // This is read before the slots are taken: an announcement in between finds no free slot and stays news.
        let told = shared.news.told();
        shared.ledger.commits(token);
        // In a worker that counts its tasks, only the dispatcher claims.
        let may_claim = shared.settings.max_tasks.is_none()
            && !shared.closing.load(Ordering::Acquire)
            && !shared.ledger.holds_one_that_runs_alone();
        let want = if may_claim { shared.ledger.set_aside(&shared.settings.permits) } else { Vec::new() };
        Ending { shared, want, follow_up, told, answered: false, asked: Instant::now() }
    }
}

/// A task that is about to end, with the slots that its end may claim tasks for.
pub struct Ending {
    shared: Arc<Shared>,
    want: Vec<(Lane, usize)>,
    follow_up: Arc<FollowUp>,
    told: Told,
    answered: bool,
    asked: Instant,
}

impl Ending {
    /// How many tasks of each lane the end may claim; empty if none.
    pub fn want(&self) -> &[(Lane, usize)] {
        &self.want
    }

    /// Ends without a claim. The end brought work to these lanes, for which the dispatcher claims now.
    pub fn brought(self, lanes: Lanes) {
        self.shared.news.tell(lanes);
    }

    /// Takes in what the queue granted after the end, which brought work to these lanes. Tasks of the same document go
    /// straight to its supervisor.
    pub fn granted(mut self, claimed: Claimed, brought: Lanes) {
        let Claimed { grants, more } = claimed;
        let (holds, surplus) = admit(&self.shared, grants, &self.want, self.asked);
        // If the worker was stopped meanwhile or the queue granted too much, the holds are dropped, which gives them
        // back.
        drop(surplus);
        self.answered = true;
        if self.shared.closing.load(Ordering::Acquire) {
            return;
        }
        let empty = self.shared.news.answered(&self.told, &self.want, &holds, more);
        // A claim that found a lane empty has taken what the end brought there. In any other lane the new work may still
        // wait: another claim holds those slots and began too early to see it.
        self.shared.news.tell(brought.without(empty));
        self.follow_up.answered.store(true, Ordering::Release);
        let (alone, holds): (Vec<Hold>, Vec<Hold>) = holds.into_iter().partition(|hold| hold.grant.runs_alone);
        self.follow_up.holds.lock().unwrap_or_else(PoisonError::into_inner).extend(holds);
        for hold in alone {
            // A dispatcher that is being restarted drops the hold, which gives it back.
            if let Some(dispatcher) = self.shared.dispatcher.get() {
                let _ = dispatcher.cast(DispatcherMessage::Alone(hold));
            }
        }
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.shared.ledger.put_back(&self.want);
        // Announcements made during the claim found no free slot.
        if !self.answered || self.shared.has_room_for_news() {
            self.shared.look();
        }
    }
}

/// Enters the grants. Returns those that were asked for, and any beyond that.
pub(crate) fn admit(
    shared: &Arc<Shared>,
    grants: Vec<Grant>,
    want: &[(Lane, usize)],
    asked: Instant,
) -> (Vec<Hold>, Vec<Hold>) {
    let mut free: HashMap<Lane, usize> = want.iter().copied().collect();
    let (mut holds, mut surplus) = (Vec::new(), Vec::new());
    for grant in grants {
        let (span, lane) = (grant.span(), grant.lane);
        let Some(hold) = Hold::admit(shared, grant, asked) else {
            span.in_scope(|| tracing::error!(%lane, "the queue granted a token twice; ignoring the second grant"));
            continue;
        };
        match free.get_mut(&lane) {
            Some(free) if *free > 0 => {
                *free -= 1;
                holds.push(hold);
            }
            _ => surplus.push(hold),
        }
    }
    if !surplus.is_empty() {
        tracing::error!(tasks = surplus.len(), "the queue granted more than was asked for; giving back the rest");
    }
    (holds, surplus)
}

impl Drop for Hold {
    fn drop(&mut self) {
        // Work that the handler moved to another thread learns only here that the task has ended.
        self.cancel.cancel();
        let (report, started) = (self.report.take(), self.started);
        if self.shared.ledger.end(self.grant.token, |stop, before| owed(report, started, stop, before)) {
            self.shared.poke_locks();
        } else if !self.follow_up.answered.load(Ordering::Acquire)
            || self.shared.settings.drain_once
            || self.shared.has_room_for_news()
        {
            self.shared.look();
        }
    }
}

/// Decides what is owed. `before` counts how many times in a row the task's actors ended before it already.
fn owed(report: Option<Report>, started: bool, stop: Option<StopReason>, before: u32) -> Option<Owed> {
    match (report, stop) {
        (Some(Report::Finished | Report::Lost), _) | (_, Some(StopReason::Lost)) => None,
        (_, Some(StopReason::Cancelled)) => Some(Owed::Failure(TaskFailure::cancelled())),
        // A handler that was told to end may answer with an error; that says nothing about the task.
        (_, Some(StopReason::Drained)) => Some(Owed::Return),
        (Some(Report::Failed(failure)), None) => Some(Owed::Failure(failure)),
        // The supervisor or an actor above it ended. The task is given back without limit only if it cannot be the
        // cause.
        (None, None) if started && before < MOST_INTERRUPTIONS => Some(Owed::Interrupted),
        (None, None) if started => {
            Some(Owed::Failure(TaskFailure::retryable("stopped", "the task's actor kept ending before the task did")))
        }
        (None, None) => Some(Owed::Return),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(report: Option<Report>, started: bool, stop: Option<StopReason>, before: u32) -> String {
        match owed(report, started, stop, before) {
            None => "nothing".into(),
            Some(Owed::Return) => "return".into(),
            Some(Owed::Interrupted) => "interrupted".into(),
            Some(Owed::Failure(failure)) => failure.code,
        }
    }

    #[test]
    fn what_is_owed_follows_from_report_and_reason() {
        use StopReason::{Cancelled, Drained, Lost};
        let failed = || Some(Report::Failed(TaskFailure::permanent("corrupt", "")));
        for (report, started, stop, expected) in [
            (Some(Report::Finished), true, None, "nothing"),
            (Some(Report::Finished), true, Some(Cancelled), "nothing"),
            (Some(Report::Finished), true, Some(Drained), "nothing"),
            (failed(), true, None, "corrupt"),
            (failed(), true, Some(Lost), "nothing"),
            (failed(), true, Some(Cancelled), "cancelled"),
            (failed(), true, Some(Drained), "return"),
            (Some(Report::Lost), true, None, "nothing"),
            (None, true, None, "interrupted"),
            (None, true, Some(Lost), "nothing"),
            (None, true, Some(Cancelled), "cancelled"),
            (None, true, Some(Drained), "return"),
            (None, false, None, "return"),
            (None, false, Some(Lost), "nothing"),
            (None, false, Some(Cancelled), "cancelled"),
            (None, false, Some(Drained), "return"),
        ] {
            assert_eq!(word(report, started, stop, 0), expected, "started {started}, stop {stop:?}");
        }
        assert_eq!(word(None, true, None, MOST_INTERRUPTIONS), "stopped");
        assert_eq!(word(None, false, None, MOST_INTERRUPTIONS), "return", "it never began");
    }
}
