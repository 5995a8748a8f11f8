//! Supervision and subtree reservations of one worker process. It knows no SQL, no HTTP and nothing of documents'
//! contents.
//!
//! ```text
//! root -> { lock_manager, dispatcher, heart, documents -> document(root id) -> probe | extract | structure | embed |
//! rollup }
//! ```
//!
//! The database decides; this crate only acts on its decisions. The [`Queue`] port takes reservations in batches. The
//! [`Handler`] port runs one task and commits it, fenced by its claim token. The [`Beat`] port tells the database that
//! the process is alive.
//!
//! Three invariants hold:
//!
//! * A reservation is owned by a value, not by an actor. Wherever that value is dropped (the task ended, panicked or
//!   was killed, a mailbox died with its actor, nobody waited for a reply), its permit and its holding are freed, and
//!   what is owed to the queue is written.
//! * Retries are rows of the queue, never restarts of actors.
//! * Heartbeats come from their own thread and never wait for the async pool.

mod backoff;
mod dispatcher;
mod document_supervisor;
mod documents;
mod grant;
mod heart;
mod hold;
mod ledger;
mod lock_manager;
mod meter;
mod news;
mod port;
mod progress;
pub mod region;
mod root;
mod settings;
mod shared;
pub mod stage;
mod task_actor;
mod tree;
mod words;
mod worker;

#[cfg(test)]
mod tests;

pub use grant::{ErrorClass, Grant, Lane, Lanes, Outcome, SharedLanes, TaskFailure};
pub use hold::{Ending, Permit};
pub use meter::{Meter, TaskProgress};
pub use port::{Beat, BeatAnswer, BeatFactory, Claimed, Handler, PortError, Queue};
pub use progress::{DocumentFacts, LastFailure, Progress, TaskCounts};
pub use region::{LeafRange, Region, WriteMode, path_key};
pub use settings::{Permits, WorkerError, WorkerSettings};
pub use tokio_util::sync::CancellationToken as CancelToken;
pub use tree::{ActorState, LaneUse, Phase, TaskRun, Total, TreeNode, TreeSnapshot};
pub use words::UnknownWord;
pub use worker::{Waker, Worker, WorkerEnd};
