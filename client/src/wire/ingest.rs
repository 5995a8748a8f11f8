//! Files on their way in.
#[cfg(feature = "openapi")]
use crate::wire::ErrorType;
use crate::{
    constraint::{PRIORITY, constrain, words},
    operation::{Params, Wire},
    wire::Settled,
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
    /// Makes the file an access-control root with the caller as sole grantee.
    pub private: bool,
    /// -100 to 100: tasks of a higher upload go first at every stage, and among equals what is nearly done. Without effect
    /// where the bytes are stored already.
    pub priority: i32,
}
impl Params for UploadQuery {
    constrain! { priority: PRIORITY }
}

/// Another priority for a file.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct PriorityChange {
    /// -100 to 100; 0 is that of an upload which names none.
    pub priority: i32,
}
impl Wire for PriorityChange {
    constrain! { priority: PRIORITY }
}

/// What a change of a file's priority came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct PriorityResponse {
    pub document_id: i64,
    pub priority: i32,
    /// Unfinished tasks that had another priority; those that follow have the new one.
    pub tasks_changed: i64,
}
impl Wire for PriorityResponse {}

/// What became of an upload.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct UploadResponse {
    /// The file node, root of the tree that ingestion builds.
    pub document_id: i64,
    pub settled: Settled,
    /// `sha256:<hex>` of the bytes.
    pub content_hash: String,
    /// `lob:<oid>`.
    pub blob_ref: String,
    /// What the bytes are; null where nothing recognised them.
    pub detected_mime: Option<String>,
    #[cfg_attr(feature = "openapi", schema(value_type = Option<DetectedBy>))]
    pub detected_by: Option<String>,
    /// What the client claimed.
    pub declared_mime: Option<String>,
    /// The node's attempt log, newest last.
    pub attempts: Vec<Attempt>,
    /// These bytes were stored already, and `document_id` is the node that holds them.
    pub was_existing: bool,
    /// The node found was attached to the requested parent by a `contains` link.
    pub linked_into_parent: bool,
}
impl Wire for UploadResponse {}

words! {
    /// What a file was recognised by.
    DetectedBy { MagicBytes = "magic_bytes", ZipManifest = "zip_manifest", ContentSniff = "content_sniff", }
    /// How an attempt ended; `lease_lost`: its worker fell silent.
    AttemptOutcome { Completed = "completed", Skipped = "skipped", Failed = "failed", LeaseLost = "lease_lost", }
}

/// One attempt at one task of a node.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct Attempt {
    pub task_id: i64,
    pub task_type: String,
    /// 1 for the first.
    pub attempt: i32,
    #[cfg_attr(feature = "openapi", schema(value_type = AttemptOutcome))]
    pub outcome: String,
    /// Only of a failed one.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<ErrorType>))]
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error_type: Option<String>,
    /// Stable reason of a failure, for programs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// The reason for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    pub worker: String,
    pub started_at: DateTime<Utc>,
    pub duration_ms: i64,
    pub param_fingerprint: String,
    /// What the task counted and decided.
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub detail: Map<String, Value>,
}

/// How much is left to do under a file; there is no percentage, since the tasks below the present frontier do not exist yet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct FrontierResponse {
    pub document_id: i64,
    /// The root node's own state.
    pub settled: Settled,
    /// Of the file; null for a document that was not ingested.
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
    /// Age of the oldest unfinished task, in seconds.
    pub oldest_seconds: Option<f64>,
    /// Unfinished tasks that are not running, by the reason; see `GET /admin/tasks`.
    pub blocked_by: BTreeMap<String, i64>,
    /// What a reader of the tree should know, for example `extract.empty: needs_ocr`.
    pub warnings: Vec<String>,
}
impl Wire for FrontierResponse {}

/// Unfinished tasks of one type under a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct FrontierStage {
    pub task_type: String,
    pub pending: i64,
    /// Claimed, running or batched.
    pub held: i64,
    /// Failed, and to be tried again.
    pub waiting_for_retry: i64,
}
