//! The ports through which this crate reaches the outside; the service implements them.

use crate::{
    CancelToken,
    grant::{Grant, Lane, Outcome, TaskFailure},
    hold::Permit,
    progress::DocumentFacts,
    tree::TreeSnapshot,
};
use async_trait::async_trait;
use std::{error::Error, time::Duration};
use svc_ids::RootId;
use uuid::Uuid;

/// The far side of a port could not be reached or returned an error. The call may or may not have had its effect.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct PortError(Box<dyn Error + Send + Sync>);

impl PortError {
    pub fn new(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        PortError(error.into())
    }
}

/// The result of a claim.
#[derive(Clone, Debug, Default)]
pub struct Claimed {
    pub grants: Vec<Grant>,
    /// The queue did not look at every waiting task, so asking again at once may get more, even if `grants` is empty.
    pub more: bool,
}

/// The task queue. A call that hangs is given up after the lease. It must be safe to cancel any of these futures.
#[async_trait]
pub trait Queue: Send + Sync + 'static {
    /// Claims up to the given number of tasks per lane in one transaction. If a lane gets fewer than wanted, nothing
    /// else of it is claimable now, unless `more` is set. No grant follows one that runs alone.
    async fn claim(&self, want: &[(Lane, usize)]) -> Result<Claimed, PortError>;

    /// Writes a task that has run for a while as `running`; nothing changes if it is already. Returns false if the
    /// token is no longer ours.
    async fn start(&self, grant: &Grant) -> Result<bool, PortError>;

    /// Puts claimed or running tasks back to `pending` without counting a retry. It skips tokens that are no longer
    /// ours.
    async fn give_back(&self, tokens: &[Uuid]) -> Result<(), PortError>;

    /// Records a failure in its own transaction. Returns false, and writes nothing, if the token is no longer ours.
    async fn fail(&self, grant: &Grant, failure: &TaskFailure) -> Result<bool, PortError>;

    /// Frees the expired claims of all workers and returns how many there were.
    async fn reap(&self) -> Result<u64, PortError>;

    /// What is known of the documents with these roots, without those that are gone.
    async fn documents(&self, roots: &[RootId]) -> Result<Vec<DocumentFacts>, PortError>;

    /// Does periodic upkeep: processes remaining settle events, wakes tasks whose blocker is gone, and repairs counts.
    /// Returns whether tasks may be claimable that were not.
    async fn sweep(&self) -> Result<bool, PortError>;
}

/// What the database says about one held token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BeatAnswer {
    pub token: Uuid,
    /// Somebody asked for this task to end.
    pub cancel_requested: bool,
}

/// The heartbeat. It is synchronous because it runs on its own thread, which must never wait for the async pool; an
/// implementation may block on a private runtime. It should give up by itself well before the lease expires.
pub trait Beat: Send + 'static {
    /// Renews the leases of `tokens` (which may be empty) and stores the snapshot. Returns the tokens that are still
    /// ours; every other one is lost and its task is stopped.
    fn beat(&mut self, tokens: &[Uuid], snapshot: &TreeSnapshot) -> Result<Vec<BeatAnswer>, PortError>;
}

/// Makes the heartbeat's connection on the heart's thread, and makes a new one after a panic of the old one.
pub type BeatFactory = Box<dyn Fn() -> Box<dyn Beat> + Send + Sync>;

/// Runs one task: prepares, then applies and commits in one transaction, fenced by the grant's token.
#[async_trait]
pub trait Handler: Send + Sync + 'static {
    /// Runs the task. The future is dropped at any await when the task is stopped. `cancel` fires at the same moment,
    /// for work that was moved to another thread: such work must poll it and end within two seconds. CPU work belongs
    /// on such a thread; this future must not block. A handler with only its commit left ends its permit, and may claim
    /// what runs next in the commit's message. The handler returns a failure and never writes it; this crate writes it,
    /// once.
    async fn run(&self, grant: &Grant, cancel: CancelToken, permit: Permit) -> Result<Outcome, TaskFailure>;
}

/// Bounds a port call, so that a hanging connection does not occupy an actor for ever.
pub(crate) async fn bounded<T>(
    limit: Duration,
    call: impl Future<Output = Result<T, PortError>>,
) -> Result<T, PortError> {
    match tokio::time::timeout(limit, call).await {
        Ok(answer) => answer,
        Err(_) => Err(PortError::new(format!("no answer within {limit:?}"))),
    }
}
