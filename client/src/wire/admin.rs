//! The queue and the fleet, for the operator of the service.
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
    /// Why it is not running; null if it is running or owes nothing more.
    pub blocked_by: Option<Blockage>,
}
impl Wire for TaskResponse {}

/// What an unfinished task waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct Blockage {
    pub reason: BlockedBy,
    /// The task in the way: the holder of an overlapping region, or an unmet dependency.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<i64>,
    /// When the backoff ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<DateTime<Utc>>,
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
    /// Waiting tasks. Of a type with more than 10,000 unclaimed tasks, only the oldest 10,000 are counted.
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

/// The actors of one worker at one moment.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct WorkerSnapshot {
    pub taken_at: DateTime<Utc>,
    /// The number of living actors.
    pub actors: u64,
    /// How many of them are missing in `root` because there are too many.
    pub omitted: u64,
    pub root: Option<ActorNode>,
}

/// One actor with those that it supervises.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct ActorNode {
    /// `root`, `lock_manager`, `dispatcher`, `heart`, `documents`, `document`; for a task `probe`, `extract`,
    /// `structure`, `embed`, `rollup`, or its type if it is none of these.
    pub kind: String,
    /// For a task its node, for a document its root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub document_id: Option<i64>,
    /// For a document, once the title is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// For a document, the kind of its most advanced task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<String>,
    /// For a document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<ActorTasks>,
    /// For a document, the last failure of any of its tasks in this worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<ActorFailure>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_id: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_type: Option<String>,
    /// For a task, 1 for the first attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<i32>,
    /// For a task, which permits it takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lane: Option<TaskLane>,
    /// For a task, what it has reserved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<ActorRegion>,
    /// For a task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<TaskPhase>,
    pub state: ActorState,
    pub since: DateTime<Utc>,
    /// The number of messages handled.
    pub handled: u64,
    /// The number of messages sent and not yet handled.
    pub queued: u64,
    pub restarts: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    #[cfg_attr(feature = "openapi", schema(no_recursion))]
    #[serde(default)]
    pub children: Vec<ActorNode>,
}

/// A document's tasks, counted by one worker since the document's supervisor started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct ActorTasks {
    /// Unfinished tasks in the whole queue at the worker's last look, at most 1,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open: Option<u64>,
    /// Tasks running in this worker.
    pub held: u64,
    pub done: u64,
    pub failed: u64,
}

/// Why a task of a document failed last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct ActorFailure {
    pub task_id: i64,
    pub task_type: String,
    pub code: String,
    pub message: String,
    pub at: DateTime<Utc>,
}

/// A part of the tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct ActorRegion {
    /// Ids from the tree's root down to the node.
    pub path: Vec<i64>,
    /// The extent from the node.
    pub mode: WriteMode,
    /// If present, only these leaves under the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leaves: Option<LeafRange>,
}

/// The leaves from one to another, both included, in the order of their paths as text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct LeafRange {
    /// Ids from the tree's root down to the leaf.
    pub first: Vec<i64>,
    pub last: Vec<i64>,
}

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
