//! One reservation as a value: whoever has it may run the task, and dropping it gives everything back.

use crate::CancelToken;
use crate::document_supervisor::TaskEnd;
use crate::grant::{Grant, Lane, TaskFailure};
use crate::ledger::{Owed, StopReason};
use crate::shared::Shared;
use ractor::ActorCell;
use std::sync::Arc;
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
    shared: Arc<Shared>,
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
            shared: shared.clone(),
        })
    }

    /// From here on `actor` is killed when the task has to end. False: it has to end already.
    pub fn bind(&self, actor: ActorCell) -> bool {
        self.shared.ledger.bind(self.grant.token, actor)
    }

    pub fn permit(&self) -> Permit {
        Permit { shared: self.shared.clone(), token: self.grant.token, lane: self.grant.lane }
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
    lane: Lane,
}

impl Permit {
    /// Lets another task have it: all that is left of this one is its commit.
    pub fn pass_on(&self) {
        if self.shared.ledger.commits(self.token, self.shared.settings.permits.of(self.lane)) {
            self.shared.wake();
        }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        // Work that the handler moved to another thread learns of the end only here.
        self.cancel.cancel();
        let (report, started) = (self.report.take(), self.started);
        if self.shared.ledger.end(self.grant.token, |stop, before| owed(report, started, stop, before)) {
            self.shared.poke_locks();
        } else {
            self.shared.wake();
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
