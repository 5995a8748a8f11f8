//! The state of the service at a glance, for its operator: what works, what waits, what is wrong and what failed.
use super::{BlockedBy, ErrorType, FailurePlace, QueueState, TaskLane};
use crate::{
    constraint::{Constraint, NAME, constrain},
    operation::{Params, Wire},
    words::wire_words,
};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
#[cfg(feature = "openapi")]
use utoipa::{IntoParams, ToSchema};

wire_words! {
    /// A kind of [`Finding`].
    FindingKind {
        Unserved = "unserved",
        NoHandler = "no_handler",
        Lapsed = "lapsed",
        Stuck = "stuck",
        Starved = "starved",
        Stalled = "stalled",
        Paused = "paused",
        BatchStalled = "batch_stalled",
        UnequalLeases = "unequal_leases",
        ReadOnly = "read_only",
        Disk = "disk",
        Connections = "connections",
        BlobStore = "blob_store",
        FeedAway = "feed_away",
        StandbyAway = "standby_away",
        StandbyBehind = "standby_behind",
        OtherModel = "other_model",
        RulesFailed = "rules_failed",
        IndexNumbers = "index_numbers",
        FileBytes = "file_bytes",
        VectorMemory = "vector_memory",
        SlowSearches = "slow_searches",
        SlowIngestion = "slow_ingestion",
        SlowBm25 = "slow_bm25",
        SlowClaims = "slow_claims",
    }
}

/// Something that is wrong with the queue or the fleet, or a sign that it is time to grow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct Finding {
    /// `unserved`: no living worker answers to the badge. `no_handler`: none can run the task type. `lapsed`: leases expired and nobody
    /// took the tasks back. `batch_stalled`: a provider should long have ended a batch. `stuck`: tasks have waited for long for a region or an intent. `starved`: younger tasks overtake these.
    /// `stalled`: nobody takes the tasks, although a worker could. `read_only`: the server that `SVC_DATABASE_URL` leads to takes no writes.
    /// `connections`: that server, its database or the role takes hardly any more connections. `blob_store`: the object store with the bytes of files is away.
    /// `feed_away`: this process does not reach the message broker that `SVC_AMQP_URL` names. `standby_away` and `standby_behind`: the primary answers
    /// the reads of a server that `SVC_DATABASE_READ_URL` names, because that is away or far behind.
    /// `other_model`: documents have vectors of a model that does not serve, so a search by vectors does not find them.
    /// `rules_failed`: what follows from the facts of a predicate by rules cannot be derived, for the reason behind its name.
    /// `index_numbers`: a search index has given out most of the numbers that it has for documents.
    /// The others are signs that one server will not do for much longer. `file_bytes`: the database holds very many bytes of files. `vector_memory`: the indexes
    /// of vectors are larger than half the memory. `slow_searches` and `slow_bm25`: searches by vectors and full text, and by BM25, take long in the database.
    /// `slow_ingestion`: embed tasks wait for the database and not for a model. `slow_claims`: claims of tasks take long.
    pub kind: FindingKind,
    /// The badge, task type, worker, task or predicate in question, or the figure that tells.
    pub about: String,
    pub tasks: i64,
    /// How long the oldest has waited.
    pub seconds: f64,
    /// What an operator can do about it.
    pub remedy: String,
}

/// What is wrong; empty if all is well.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct FindingList {
    pub findings: Vec<Finding>,
}
impl Wire for FindingList {}

/// The queue and the fleet, measured once for all who ask.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct OverviewResponse {
    /// When this was measured.
    pub at: DateTime<Utc>,
    pub queue: QueueState,
    /// Unfinished tasks by type, in the order in which an ingestion goes through them.
    pub task_types: Vec<TypeOverview>,
    pub findings: Vec<Finding>,
    pub workers: Vec<WorkerOverview>,
    /// The last 60 minutes, oldest first; a minute in which no task was queued or ended is left out.
    pub throughput: Vec<MinuteCount>,
    /// How many regions are held.
    pub regions_held: i64,
}
impl Wire for OverviewResponse {}

/// The unfinished tasks of a type. Of each type and badge, only the oldest 10,000 unclaimed tasks are counted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct TypeOverview {
    pub task_type: String,
    /// Absent if no task of the type is unfinished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lane: Option<TaskLane>,
    pub paused_since: Option<DateTime<Utc>>,
    /// Claimed or running tasks whose worker is alive.
    pub running: i64,
    /// All that do not run, by the reason.
    #[cfg_attr(feature = "openapi", schema(value_type = BTreeMap<String, i64>))]
    pub blocked_by: BTreeMap<BlockedBy, i64>,
    /// The age of the oldest unfinished task.
    pub oldest_seconds: Option<f64>,
    /// Tasks that ended in the last minute.
    pub ended_a_minute: i64,
    /// How many milliseconds an attempt usually takes at most: 95 of 100 of the latest 1,000 that completed took less. Null while too few are
    /// known.
    #[serde(default)]
    pub usual_ms: Option<u64>,
}

/// A worker without its actors.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct WorkerOverview {
    pub worker_id: String,
    pub version: String,
    pub badges: Vec<String>,
    /// Whether its last heartbeat is within its lease.
    pub alive: bool,
    /// The time since its last heartbeat.
    pub silent_seconds: f64,
    pub started_at: DateTime<Utc>,
    pub tasks_held: i64,
    /// The number of living actors.
    pub actors: u64,
    pub lanes: Vec<LaneUse>,
    /// Tasks that it ended in the last minute.
    pub ended_a_minute: i64,
}

/// How much of a lane a worker uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct LaneUse {
    pub lane: TaskLane,
    /// How many tasks of the lane it runs at a time.
    pub permits: u64,
    pub busy: u64,
}

/// The attempts that ended in one minute.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct MinuteCount {
    /// The beginning of the minute.
    pub minute: DateTime<Utc>,
    /// Tasks that were queued.
    pub arrived: i64,
    pub completed: i64,
    /// Without what only lacks a part that is not configured, or failed with another task.
    pub failed: i64,
    /// Attempts whose worker fell silent.
    pub lost: i64,
}

/// How far back to count.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(IntoParams))]
#[serde(default, deny_unknown_fields)]
pub struct ThroughputQuery {
    /// 1 to 1,440; 60 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub minutes: Option<u32>,
}
impl Params for ThroughputQuery {
    constrain! { minutes: Constraint::Whole(1, 1440) }
}

/// Tasks that were queued and attempts that ended, minute by minute, oldest first; a minute without either is left out.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct ThroughputResponse {
    pub minutes: Vec<MinuteCount>,
}
impl Wire for ThroughputResponse {}

/// As many minutes as a month has, and one at least.
const A_MONTH: Constraint = Constraint::Whole(1, 43_200);

/// How far back to look.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(IntoParams))]
#[serde(default, deny_unknown_fields)]
pub struct FailureQuery {
    /// Only what failed for good in this many minutes, 1 to 43,200; absent: whatever failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub minutes: Option<u32>,
}
impl Params for FailureQuery {
    constrain! { minutes: A_MONTH }
}

/// Tasks that failed for good for the same reason.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct FailureGroup {
    pub task_type: String,
    pub error_type: ErrorType,
    /// The code of the last attempt's failure; null if no attempt is on record.
    pub code: Option<String>,
    pub tasks: i64,
    pub latest: Option<DateTime<Utc>>,
    /// The latest of the tasks.
    pub sample: FailurePlace,
    /// What its last attempt said.
    pub message: Option<String>,
}

/// What failed for good, by the reason, most frequent first.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct FailureList {
    pub failures: Vec<FailureGroup>,
    /// How many tasks were looked at: the latest 10,000 that failed.
    pub examined: i64,
}
impl Wire for FailureList {}

/// A group of failed tasks, as `GET /admin/failures` names it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct FailureChoice {
    pub task_type: String,
    pub error_type: ErrorType,
    #[serde(default)]
    pub code: Option<String>,
    /// Only those that failed in this many minutes, as the list was asked for them.
    #[serde(default)]
    pub minutes: Option<u32>,
}
impl Wire for FailureChoice {
    constrain! {
        task_type: NAME,
        minutes: A_MONTH,
    }
}

/// How many tasks of a group were queued again.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct FailuresRetried {
    pub retried: i64,
    /// Tasks of the group that still have failed: a call takes at most 1,000, and ends after ten seconds.
    pub left: i64,
}
impl Wire for FailuresRetried {}
