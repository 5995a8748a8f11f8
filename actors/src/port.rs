//! The ports this crate reaches the outside through; the service implements them.

use crate::CancelToken;
use crate::grant::{Grant, Lane, Outcome, TaskFailure};
use crate::hold::Permit;
use crate::progress::DocumentFacts;
use crate::tree::TreeSnapshot;
use async_trait::async_trait;
use std::error::Error;
use std::time::Duration;
use uuid::Uuid;

/// The far side of a port could not be reached or answered with an error. The call may or may not have had its effect.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct PortError(Box<dyn Error + Send + Sync>);

impl PortError {
    pub fn new(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        PortError(error.into())
    }
}

/// What a claim got.
#[derive(Clone, Debug, Default)]
pub struct Claimed {
    pub grants: Vec<Grant>,
    /// The queue did not look at all that waits: asking again at once may get more, also where this is empty.
    pub more: bool,
}

/// The task queue. A call that hangs is given up after the lease; cancelling any of these futures must be safe.
#[async_trait]
pub trait Queue: Send + Sync + 'static {
    /// Claims up to the given number of tasks a lane in one transaction. Fewer than wanted of a lane means that nothing else of
    /// it is claimable now, unless there is more to look at. After a grant that runs alone no other one follows.
    async fn claim(&self, want: &[(Lane, usize)]) -> Result<Claimed, PortError>;

    /// `claimed` -> `running`, of a task that has begun and takes a while; nothing more where it runs already. False: the token
    /// is no longer ours.
    async fn start(&self, grant: &Grant) -> Result<bool, PortError>;

    /// Puts claimed or running tasks back to `pending` without counting a retry. Tokens no longer ours are passed over.
    async fn give_back(&self, tokens: &[Uuid]) -> Result<(), PortError>;

    /// Records a failure in a transaction of its own. False: the token is no longer ours and nothing was written.
    async fn fail(&self, grant: &Grant, failure: &TaskFailure) -> Result<bool, PortError>;

    /// Frees expired claims of any worker; answers how many.
    async fn reap(&self) -> Result<u64, PortError>;

    /// What is known of the documents with these roots. One that is gone is left out.
    async fn documents(&self, roots: &[i64]) -> Result<Vec<DocumentFacts>, PortError>;

    /// Periodic upkeep: settle events left over, rows parked on a blocker that is gone, counts to repair.
    async fn sweep(&self) -> Result<(), PortError>;
}

/// What the database says of one held token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BeatAnswer {
    pub token: Uuid,
    /// Somebody asked for this task to end.
    pub cancel_requested: bool,
}

/// The heartbeat. Synchronous, because it is called on a thread of its own that must never wait for the async pool; an
/// implementation may block on a private runtime. It should give up by itself well before the lease is over.
pub trait Beat: Send + 'static {
    /// Renews the leases of `tokens` (possibly none) and stores the snapshot. Answers the tokens that are still ours;
    /// every other one is lost and its task is stopped.
    fn beat(&mut self, tokens: &[Uuid], snapshot: &TreeSnapshot) -> Result<Vec<BeatAnswer>, PortError>;
}

/// Makes the heartbeat's connection, on the heart's thread; again after a panic of the old one.
pub type BeatFactory = Box<dyn Fn() -> Box<dyn Beat> + Send + Sync>;

/// Runs one task: prepares, then applies and commits in one transaction fenced by the grant's token.
#[async_trait]
pub trait Handler: Send + Sync + 'static {
    /// The future is dropped when the task is stopped, at any await. `cancel` fires at the same moment, for work that was
    /// moved to another thread: such work polls it and ends within two seconds. CPU work belongs on such a thread; this
    /// future must not block. A handler that has only its commit left ends its permit, and claims in the message of the commit
    /// what runs next. A failure is returned, never written: the crate writes it, once.
    async fn run(&self, grant: &Grant, cancel: CancelToken, permit: Permit) -> Result<Outcome, TaskFailure>;
}

/// Bounds a port call, so that a connection that hangs does not hold an actor for ever.
pub(crate) async fn bounded<T>(
    limit: Duration,
    call: impl Future<Output = Result<T, PortError>>,
) -> Result<T, PortError> {
    match tokio::time::timeout(limit, call).await {
        Ok(answer) => answer,
        Err(_) => Err(PortError::new(format!("no answer within {limit:?}"))),
    }
}
