//! One reservation as a value: whoever has it may run the task, and dropping it gives everything back.

use crate::CancelToken;
use crate::dispatcher::DispatcherMessage;
use crate::document_supervisor::TaskEnd;
use crate::grant::{Grant, Lane, TaskFailure};
use crate::ledger::{Owed, StopReason};
use crate::shared::Shared;
use ractor::ActorCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use uuid::Uuid;

/// How the handler ended, if it did.
pub(crate) enum Report {
    /// It wrote its own end.
    Finished,
    /// The reservation was gone, and it may not write any.
    Lost,
    Failed(TaskFailure),
}

/// How often in a row the actors of a task may end under it before that counts as an attempt.
const MOST_INTERRUPTIONS: u32 = 2;

pub(crate) struct Hold {
    pub grant: Arc<Grant>,
    pub cancel: CancelToken,
    /// The handler has begun.
    pub started: bool,
    pub report: Option<Report>,
    follow_up: Arc<FollowUp>,
    shared: Arc<Shared>,
}

/// What was claimed together with the end of a task.
#[derive(Default)]
struct FollowUp {
    holds: Mutex<Vec<Hold>>,
    /// The queue answered, so that what it did not grant is not there to be claimed.
    answered: AtomicBool,
}

impl Hold {
    /// Enters a grant that was asked for at `asked`. None if its token is held already.
    pub fn admit(shared: &Arc<Shared>, grant: Grant, asked: Instant) -> Option<Hold> {
        let (grant, cancel) = (Arc::new(grant), CancelToken::new());
        shared.ledger.admit(grant.clone(), cancel.clone(), asked).then(|| Hold {
            grant,
            cancel,
            started: false,
            report: None,
            follow_up: Arc::default(),
            shared: shared.clone(),
        })
    }

    /// From here on `actor` is killed when the task has to end. False: it has to end already.
    pub fn bind(&self, actor: ActorCell) -> bool {
        self.shared.ledger.bind(self.grant.token, actor)
    }

    pub fn permit(&self) -> Permit {
        Permit { shared: self.shared.clone(), token: self.grant.token, follow_up: self.follow_up.clone() }
    }

    /// What was claimed together with the task's end, to be run next.
    pub fn take_follow_up(&self) -> Vec<Hold> {
        std::mem::take(&mut *self.follow_up.holds.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub fn stopped(&self) -> bool {
        self.shared.ledger.stopped(self.grant.token).is_some()
    }

    /// The handler begins now.
    pub fn begin(&mut self) {
        self.started = true;
        self.shared.ledger.begin(self.grant.token);
    }

    /// What the task came to, for its document's supervisor.
    pub fn end(&self) -> TaskEnd {
        match (&self.report, self.shared.ledger.stopped(self.grant.token)) {
            (Some(Report::Finished), _) => TaskEnd::Done,
            (Some(Report::Failed(failure)), None) => TaskEnd::Failed(failure.clone()),
            (_, Some(StopReason::Cancelled)) => TaskEnd::Failed(TaskFailure::cancelled()),
            _ => TaskEnd::Neither,
        }
    }
}

/// The permit of a running task, in its handler's hands.
pub struct Permit {
    shared: Arc<Shared>,
    token: Uuid,
    follow_up: Arc<FollowUp>,
}

impl Permit {
    /// All that is left of the task is its end, in whose message the handler may claim what runs next: this permit and all
    /// others that are idle are set aside for that. Where the value is dropped instead, they are free for other claims.
    pub fn end(self) -> Ending {
        let Permit { shared, token, follow_up } = self;
        // Before the slots are taken: a wake-up that comes in between finds them taken, and is repeated.
        let wakes = shared.wakes.load(Ordering::Acquire);
        shared.ledger.commits(token);
        // A worker that counts its tasks leaves the counting to its dispatcher.
        let may_claim = shared.settings.max_tasks.is_none()
            && !shared.closing.load(Ordering::Acquire)
            && !shared.ledger.holds_one_that_runs_alone();
        let want = if may_claim { shared.ledger.set_aside(&shared.settings.permits) } else { Vec::new() };
        Ending { shared, want, follow_up, wakes, answered: false, asked: Instant::now() }
    }
}

/// A task that is about to end, with the slots that its end may claim for.
pub struct Ending {
    shared: Arc<Shared>,
    want: Vec<(Lane, usize)>,
    follow_up: Arc<FollowUp>,
    wakes: u64,
    answered: bool,
    asked: Instant,
}

impl Ending {
    /// How many tasks of each lane the end may claim; none where it is empty.
    pub fn want(&self) -> &[(Lane, usize)] {
        &self.want
    }

    /// What the queue granted of that. Tasks of the same document go straight to its supervisor.
    pub fn granted(mut self, grants: Vec<Grant>) {
        let (holds, surplus) = admit(&self.shared, grants, &self.want, self.asked);
        // A worker that was stopped meanwhile, or a queue that gave too much: dropped holds are given back.
        drop(surplus);
        self.answered = true;
        if self.shared.closing.load(Ordering::Acquire) {
            return;
        }
        let unfilled = holds.len() < self.want.iter().map(|(_, slots)| slots).sum();
        self.follow_up.answered.store(true, Ordering::Release);
        let (alone, holds): (Vec<Hold>, Vec<Hold>) = holds.into_iter().partition(|hold| hold.grant.runs_alone);
        self.follow_up.holds.lock().unwrap_or_else(PoisonError::into_inner).extend(holds);
        for hold in alone {
            // A dispatcher that is being restarted does not get it: dropped, it is given back.
            if let Some(dispatcher) = self.shared.dispatcher.get() {
                let _ = dispatcher.cast(DispatcherMessage::Alone(hold));
            }
        }
        // What came in meanwhile may have come too late for this claim, and found no slot for one of its own.
        if unfilled && self.shared.wakes.load(Ordering::Acquire) != self.wakes {
            self.answered = false;
        }
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.shared.ledger.put_back(&self.want);
        if !self.answered {
            self.shared.look();
        }
    }
}

/// Enters what was granted of what was asked for, and what was granted beyond that.
pub(crate) fn admit(
    shared: &Arc<Shared>,
    grants: Vec<Grant>,
    want: &[(Lane, usize)],
    asked: Instant,
) -> (Vec<Hold>, Vec<Hold>) {
    let mut free: HashMap<Lane, usize> = want.iter().copied().collect();
    let (mut holds, mut surplus) = (Vec::new(), Vec::new());
    for grant in grants {
        let (task_id, lane) = (grant.task_id, grant.lane);
        let Some(hold) = Hold::admit(shared, grant, asked) else {
            tracing::error!(task.id = task_id, %lane, "the queue granted a token twice; the second grant is ignored");
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
        // Work that the handler moved to another thread learns of the end only here.
        self.cancel.cancel();
        let (report, started) = (self.report.take(), self.started);
        if self.shared.ledger.end(self.grant.token, |stop, before| owed(report, started, stop, before)) {
            self.shared.poke_locks();
        } else if !self.follow_up.answered.load(Ordering::Acquire) || self.shared.settings.drain_once {
            self.shared.look();
        }
    }
}

/// `before`: how often in a row the actors of the task ended under it already.
fn owed(report: Option<Report>, started: bool, stop: Option<StopReason>, before: u32) -> Option<Owed> {
    match (report, stop) {
        (Some(Report::Finished | Report::Lost), _) | (_, Some(StopReason::Lost)) => None,
        (_, Some(StopReason::Cancelled)) => Some(Owed::Failure(TaskFailure::cancelled())),
        // A handler that was told to end may well answer with an error; that says nothing about the task.
        (_, Some(StopReason::Drained)) => Some(Owed::Return),
        (Some(Report::Failed(failure)), None) => Some(Owed::Failure(failure)),
        // Its supervisor died, or an actor above that: the task may be given back without end only where it is not the cause.
        (None, None) if started && before < MOST_INTERRUPTIONS => Some(Owed::Interrupted),
        (None, None) if started => Some(Owed::Failure(TaskFailure::retryable(
            "stopped",
            "the actor running the task ended before the task did, time and again",
        ))),
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
