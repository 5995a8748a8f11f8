//! Uploads of files, and the ingestion that follows.
use crate::{
    constraint::{Constraint, PRIORITY, constrain},
    operation::{Params, Wire},
    wire::{BlockedBy, ErrorType, ReprocessProgress, Settled},
    words::wire_words,
};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
#[cfg(feature = "openapi")]
use utoipa::{IntoParams, ToSchema};

/// Where an uploaded file goes.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(IntoParams))]
#[serde(default, deny_unknown_fields)]
pub struct UploadQuery {
    /// The node under which the file is put.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_id: Option<i64>,
    /// Makes the file an access root that only the caller may read.
    pub private: bool,
    /// A priority from -100 to 100: tasks of an upload with a higher one go first at every stage, and among equals what
    /// is nearly done. It has no effect if the bytes are stored already.
    pub priority: i32,
    /// The time that the file is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_time: Option<DateTime<Utc>>,
}
impl Params for UploadQuery {
    constrain! { priority: PRIORITY, event_time: Constraint::Moment }
}

/// A new priority for a file.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct PriorityChange {
    /// The new priority, -100 to 100; an upload that names none has 0.
    pub priority: i32,
}
impl Wire for PriorityChange {
    constrain! { priority: PRIORITY }
}

/// The outcome of changing a file's priority.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct PriorityResponse {
    pub document_id: i64,
    pub priority: i32,
    /// The number of unfinished tasks that had another priority; later tasks have the new one.
    pub tasks_changed: i64,
}
impl Wire for PriorityResponse {}

/// The outcome of an upload.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct UploadResponse {
    /// The file node, which is the root of the tree that ingestion builds.
    pub document_id: i64,
    pub settled: Settled,
    /// `sha256:<hex>` of the bytes.
    pub content_hash: String,
    /// Where the bytes are: `lob:<oid>`, a large object of the database, or `obj:<key>`, an object of the object store.
    pub blob_ref: String,
    /// What the bytes are; null if nothing recognised them.
    pub detected_mime: Option<String>,
    pub detected_by: Option<DetectedBy>,
    /// The media type that the client claimed.
    pub declared_mime: Option<String>,
    /// The node's attempt log, newest last.
    pub attempts: Vec<Attempt>,
    /// True if these bytes were stored already; then `document_id` is the node that holds them.
    pub was_existing: bool,
    /// True if the existing node was attached to the requested parent by a `contains` link.
    pub linked_into_parent: bool,
}
impl Wire for UploadResponse {}

wire_words! {
    /// How a file was recognised.
    DetectedBy { MagicBytes = "magic_bytes", ZipManifest = "zip_manifest", ContentSniff = "content_sniff", }
    /// How an attempt ended; `lease_lost` means that its worker fell silent, `batched` that the task waits in a batch of a provider.
    AttemptOutcome { Completed = "completed", Skipped = "skipped", Failed = "failed", LeaseLost = "lease_lost", Batched = "batched", }
}

/// One attempt at one task of a node.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct Attempt {
    pub task_id: i64,
    pub task_type: String,
    /// 1 for the first attempt.
    pub attempt: i32,
    pub outcome: AttemptOutcome,
    /// Only for a failed attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_type: Option<ErrorType>,
    /// The stable reason of a failure, for programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The reason for people. Only the owner is told the reason of a failure that lies in the service and may pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The process that worked on it. Only the owner is told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    pub started_at: DateTime<Utc>,
    pub duration_ms: i64,
    pub param_fingerprint: String,
    /// What the task counted and decided.
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub detail: Map<String, Value>,
}

/// Attempts at one task, page by page, latest first.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct AttemptPage {
    pub attempts: Vec<Attempt>,
    /// Ask for the next page with this; null on the last page.
    pub next_cursor: Option<String>,
}
impl Wire for AttemptPage {}

/// How much is left to do under a file. There is no percentage, because later tasks do not exist yet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct FrontierResponse {
    pub document_id: i64,
    /// The root node's own state.
    pub settled: Settled,
    /// The priority of the file; null for a document that was not ingested.
    #[serde(default)]
    pub priority: Option<i32>,
    pub nodes_total: i64,
    pub nodes_settled: i64,
    pub nodes_in_flight: i64,
    pub nodes_failed: i64,
    /// Tasks that still owe work: pending, claimed, running, batched, or failed and to be tried again.
    pub tasks_unfinished: i64,
    /// The unfinished tasks by type.
    pub stages: Vec<FrontierStage>,
    /// The age of the oldest unfinished task, in seconds.
    pub oldest_seconds: Option<f64>,
    /// Unfinished tasks that are not running, by the reason; see `GET /admin/tasks`.
    #[cfg_attr(feature = "openapi", schema(value_type = BTreeMap<String, i64>))]
    pub blocked_by: BTreeMap<BlockedBy, i64>,
    /// What a reader of the tree should know, for example `extract.empty: needs_ocr`.
    pub warnings: Vec<String>,
    /// The reprocess of the file that is running, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reprocess: Option<ReprocessProgress>,
}
impl Wire for FrontierResponse {}

impl FrontierResponse {
    /// Whether no work is left.
    pub fn is_at_rest(&self) -> bool {
        self.nodes_in_flight == 0 && self.tasks_unfinished == 0 && self.reprocess.is_none()
    }
}

/// Unfinished tasks of one type under a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct FrontierStage {
    pub task_type: String,
    pub pending: i64,
    /// Claimed, running or batched tasks.
    pub held: i64,
    /// Failed tasks that will be tried again.
    pub waiting_for_retry: i64,
}

/// What a cancel did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct CancelResponse {
    pub document_id: i64,
    /// Tasks that were waiting, and failed at once with the code `cancelled`.
    pub tasks_cancelled: i64,
    /// Tasks that were running and are being stopped, which takes at most 2 seconds.
    pub tasks_stopping: i64,
}
impl Wire for CancelResponse {}
