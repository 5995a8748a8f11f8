//! The queue and the fleet, for the operator of the service.
use super::{LeafRange, TaskProgress, WorkerSnapshot};
use crate::{
    constraint::{CURSOR, NAME, PAGE, constrain},
    operation::{Params, Wire},
    words::wire_words,
};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;
#[cfg(feature = "openapi")]
use utoipa::{IntoParams, ToSchema};

/// The task in question.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(IntoParams))]
#[serde(deny_unknown_fields)]
pub struct TaskPath {
    /// The task's id.
    pub id: i64,
}
impl Params for TaskPath {}

/// The task type in question.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(IntoParams))]
#[serde(deny_unknown_fields)]
pub struct TaskTypePath {
    /// For example `extract:text`.
    pub task_type: String,
}
impl Params for TaskTypePath {
    constrain! { task_type: NAME }
}

/// Which tasks to list. An absent field does not filter, except `status`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(IntoParams))]
#[serde(default, deny_unknown_fields)]
pub struct TaskQuery {
    /// If absent, all tasks that still owe work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<TaskStatus>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_type: Option<String>,
    /// The badge of the workers that should run the task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub badge: Option<String>,
    /// The file whose tree the task belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root_id: Option<i64>,
    /// Only tasks of documents at or under this one, such as a folder with all its files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub under: Option<i64>,
    /// What the task waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub blocked_by: Option<BlockedBy>,
    /// `next_cursor` of the page before; absent for the first page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// Rows per page, 1 to 1,000; 100 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}

impl Params for TaskQuery {
    constrain! {
        task_type: NAME,
        cursor: CURSOR,
        limit: PAGE,
    }
}

wire_words! {
    /// The state of a task.
    TaskStatus {
        Pending = "pending",
        Claimed = "claimed",
        Running = "running",
        Batched = "batched",
        Completed = "completed",
        Failed = "failed",
    }
    /// Why an unfinished task is not running.
    BlockedBy {
        NoWorker = "no_worker",
        NoWorkerForBadge = "no_worker_for_badge",
        NoHandler = "no_handler",
        Paused = "paused",
        Reservation = "reservation",
        Dependency = "dependency",
        Backoff = "backoff",
        LeaseLapsed = "lease_lapsed",
        BatchParked = "batch_parked",
        WorkersBusy = "workers_busy",
    }
    /// What a task reserves while it is held: its node, the node and its children, or the node and everything under it.
    WriteMode { Itself = "self", Children = "children", Subtree = "subtree", }
    /// Which of a worker's permits a task takes.
    TaskLane { Cpu = "cpu", Model = "model", Llm = "llm", Io = "io", }
    /// The class of a failure: `retryable` and `timeout` are tried again.
    ErrorType { Retryable = "retryable", Permanent = "permanent", Timeout = "timeout", Dependency = "dependency", }
    /// What a running task is doing.
    TaskPhase { Claimed = "claimed", Preparing = "preparing", Committing = "committing", Stopping = "stopping", }
    /// How much of a worker's snapshot is shown: nothing, its counts and lanes, or all of it.
    SnapshotPart { Nothing = "none", Totals = "totals", Tree = "tree", }
    /// The state of an actor.
    ActorState {
        Starting = "starting",
        Running = "running",
        Draining = "draining",
        Stopping = "stopping",
        Stopped = "stopped",
    }
}

impl TaskStatus {
    /// Whether a worker has the task: it is claimed, running or batched.
    pub fn is_held(self) -> bool {
        matches!(self, TaskStatus::Claimed | TaskStatus::Running | TaskStatus::Batched)
    }
}

/// One task of the queue.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct TaskResponse {
    pub id: i64,
    pub task_type: String,
    /// The node that the task works on.
    pub document_id: i64,
    /// The file whose tree the task belongs to.
    pub root_id: i64,
    /// The file that is reprocessed, if the task belongs to the tree that this builds. Until that takes its place, neither `root_id` nor
    /// `document_id` is a document that can be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reprocess_of: Option<i64>,
    pub status: TaskStatus,
    /// True if nothing more will happen to it: it completed, or failed and will not be tried again.
    pub finished: bool,
    pub write_mode: WriteMode,
    pub lane: TaskLane,
    pub badge: Option<String>,
    /// A higher one is claimed first: ten times the priority of the upload or creation, plus the stage of the task, 0
    /// to 9.
    pub priority: i32,
    pub dependencies: Vec<i64>,
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub params: Value,
    pub retry_count: i32,
    pub max_retries: i32,
    pub retry_after: Option<DateTime<Utc>>,
    /// Set by the last failure.
    pub error_type: Option<ErrorType>,
    /// How often a worker fell silent while it held the task.
    pub lease_losses: i32,
    pub claimed_by: Option<String>,
    pub heartbeat_at: Option<DateTime<Utc>>,
    pub cancel_requested_at: Option<DateTime<Utc>>,
    pub created_at: DateTime<Utc>,
    /// The title of the file; null if it is gone.
    pub title: Option<String>,
    /// What its last failed attempt said, or why it could not be tried; null if nothing failed.
    pub last_error: Option<TaskError>,
    /// Why it is not running; null if it is running or owes nothing more.
    pub blocked_by: Option<Blockage>,
    /// How it runs; null unless it runs.
    #[serde(default)]
    pub running: Option<TaskRunning>,
}
impl Wire for TaskResponse {}

/// How a task runs, as of its worker's last heartbeat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct TaskRunning {
    pub since: DateTime<Utc>,
    /// Null while its handler has not said how far it is.
    pub progress: Option<TaskProgress>,
    /// How long tasks of its type usually take, in milliseconds; null while that is not known.
    pub usual_ms: Option<u64>,
}

/// What a failed attempt said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct TaskError {
    pub code: Option<String>,
    pub message: Option<String>,
}

/// What an unfinished task waits for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct Blockage {
    pub reason: BlockedBy,
    /// The task in the way: the holder of an overlapping region, or an unmet dependency.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<i64>,
    /// When the backoff ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<DateTime<Utc>>,
    /// The batch in which the task waits for a provider's answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<ParkedIn>,
}

/// A batch with a task in it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct ParkedIn {
    /// Its number in `GET /admin/llm-batches`.
    pub id: i64,
    pub provider: String,
    /// Since when the task waits there.
    pub since: DateTime<Utc>,
    /// How long that is.
    pub seconds: f64,
}

/// Tasks, page by page, oldest first.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct TaskPage {
    pub tasks: Vec<TaskResponse>,
    /// Ask for the next page with this; null on the last page.
    pub next_cursor: Option<String>,
}
impl Wire for TaskPage {}

/// A task type and whether it may be claimed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct TaskTypeState {
    pub task_type: String,
    pub paused: bool,
    pub paused_since: Option<DateTime<Utc>>,
    /// Waiting tasks. Of each type and badge, only the oldest 10,000 unclaimed tasks are counted.
    pub pending: i64,
    /// Claimed, running or batched tasks.
    pub held: i64,
    /// Failed tasks that will be tried again.
    pub waiting_for_retry: i64,
    /// Whether a living worker can run it.
    pub has_handler: bool,
}
impl Wire for TaskTypeState {}

/// The task types that are in the queue, known to a living worker, or paused.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct TaskTypeList {
    pub task_types: Vec<TaskTypeState>,
}
impl Wire for TaskTypeList {}

/// The worker in question.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(IntoParams))]
#[serde(deny_unknown_fields)]
pub struct WorkerPath {
    /// The worker's id.
    pub id: String,
}
impl Params for WorkerPath {}

/// How much of a worker's actors to show.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(IntoParams))]
#[serde(default, deny_unknown_fields)]
pub struct WorkerQuery {
    /// `tree` if absent.
    #[cfg_attr(feature = "openapi", param(inline))]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub snapshot: Option<SnapshotPart>,
}
impl Params for WorkerQuery {}

/// One worker process.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct WorkerResponse {
    pub worker_id: String,
    /// Changes with each start.
    pub boot_nonce: String,
    pub version: String,
    /// If empty, the worker takes every task.
    pub badges: Vec<String>,
    /// Whether the worker leaves tasks without a badge to others.
    pub strict_badges: bool,
    pub task_types: Vec<String>,
    pub started_at: DateTime<Utc>,
    pub beat_at: DateTime<Utc>,
    pub lease_seconds: f64,
    /// Whether its last heartbeat is within its lease.
    pub alive: bool,
    pub tasks_held: i64,
    /// Its actors at its last heartbeat; null if it reports none, or some that this version cannot read.
    pub snapshot: Option<WorkerSnapshot>,
}
impl Wire for WorkerResponse {}

/// Every worker with a heartbeat within the last day.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct WorkerList {
    pub workers: Vec<WorkerResponse>,
}
impl Wire for WorkerList {}

/// One held region.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct ReservationResponse {
    pub task_id: i64,
    pub task_type: String,
    pub document_id: i64,
    pub root_id: i64,
    pub write_mode: WriteMode,
    /// If present, only these leaves under the document are reserved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leaves: Option<LeafRange>,
    pub worker: String,
    pub since: DateTime<Utc>,
    /// The number of tasks that wait for this region.
    pub tasks_waiting: i64,
}

/// Regions, page by page, by task.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct ReservationPage {
    pub reservations: Vec<ReservationResponse>,
    /// Ask for the next page with this; null on the last page.
    pub next_cursor: Option<String>,
}
impl Wire for ReservationPage {}
