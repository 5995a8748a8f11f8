//! One reservation as a value: whoever has it may run the task, and dropping it gives everything back.

use crate::CancelToken;
use crate::grant::{Grant, Lane, TaskFailure};
use crate::ledger::{Owed, StopReason};
use crate::shared::Shared;
use ractor::ActorCell;
use std::sync::Arc;
use std::time::Instant;
use uuid::Uuid;

/// How the handler ended, if it did.
pub(crate) enum Report {
    /// It wrote its own end, or may not write any.
    Finished,
    Failed(TaskFailure),
}

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
        if self.shared.ledger.end(self.grant.token, |stop| owed(report, started, stop)) {
            self.shared.poke_locks();
        } else {
            self.shared.wake();
        }
    }
}

fn owed(report: Option<Report>, started: bool, stop: Option<StopReason>) -> Option<Owed> {
    match (report, stop) {
        (Some(Report::Finished), _) | (_, Some(StopReason::Lost)) => None,
        (_, Some(StopReason::Cancelled)) => Some(Owed::Failure(TaskFailure::cancelled())),
        // A handler that was told to end may well answer with an error; that says nothing about the task.
        (_, Some(StopReason::Drained)) => Some(Owed::Return),
        (Some(Report::Failed(failure)), None) => Some(Owed::Failure(failure)),
        (None, None) if started => Some(Owed::Failure(TaskFailure::retryable(
            "stopped",
            "the actor running the task ended before the task did",
        ))),
        (None, None) => Some(Owed::Return),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(report: Option<Report>, started: bool, stop: Option<StopReason>) -> String {
        match owed(report, started, stop) {
            None => "nothing".into(),
            Some(Owed::Return) => "return".into(),
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
            (None, true, None, "stopped"),
            (None, true, Some(Lost), "nothing"),
            (None, true, Some(Cancelled), "cancelled"),
            (None, true, Some(Drained), "return"),
            (None, false, None, "return"),
            (None, false, Some(Lost), "nothing"),
            (None, false, Some(Cancelled), "cancelled"),
            (None, false, Some(Drained), "return"),
        ] {
            assert_eq!(word(report, started, stop), expected, "started {started}, stop {stop:?}");
        }
    }
}
