//! The actors of a worker, as its heartbeat reports them.
use super::{ActorState, LaneUse, TaskLane, TaskPhase, WriteMode};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
#[cfg(feature = "openapi")]
use utoipa::ToSchema;

/// The actors of one worker at one moment.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct WorkerSnapshot {
    pub taken_at: DateTime<Utc>,
    /// The number of living actors.
    pub actors: u64,
    /// How many of them are missing in `root` because there are too many.
    pub omitted: u64,
    /// All actors, also those missing in `root`, counted by what they are and do.
    #[serde(default)]
    pub totals: Vec<ActorTotal>,
    /// The lanes that the worker takes tasks of.
    #[serde(default)]
    pub lanes: Vec<LaneUse>,
    pub root: Option<ActorNode>,
}

/// Actors that are alike.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct ActorTotal {
    /// As in [`ActorNode`].
    pub kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_type: Option<String>,
    pub state: ActorState,
    pub count: u64,
    /// When the oldest of them started.
    pub oldest: DateTime<Utc>,
    /// Messages sent to them and not yet handled.
    pub queued: u64,
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
    /// For a document that a reprocess builds, the file that is reprocessed; `document_id` is no document that can be read then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reprocess_of: Option<i64>,
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
    /// For a task whose handler says how far it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<TaskProgress>,
    /// For a task, how many milliseconds its type usually takes at most: 95 of 100 of its latest 1,000 completed attempts took less. Absent
    /// while too few are known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usual_ms: Option<u64>,
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

/// How far a running task is, as of its worker's last heartbeat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct TaskProgress {
    pub done: u64,
    pub of: u64,
    /// What is counted: `pages`, `texts`, `nodes`, `summaries`, `bytes`.
    pub unit: String,
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
