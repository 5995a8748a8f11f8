//! What the service says about itself.
use crate::{operation::Wire, words::wire_words};
use serde::{Deserialize, Serialize};
#[cfg(feature = "openapi")]
use utoipa::ToSchema;

/// The process is alive.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct HealthResponse {
    /// `degraded` if no worker is alive, a task waits for a worker that does not exist, the bulk feed has no broker, or
    /// none of this is known.
    pub status: HealthStatus,
    pub version: String,
    pub uptime_seconds: u64,
    /// The age of the measurement behind the status; absent before the first one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampled_seconds_ago: Option<f64>,
}
impl Wire for HealthResponse {}

wire_words! {
    /// The state of the service.
    HealthStatus { Ok = "ok", Degraded = "degraded", }
    /// The precision of a model's weights.
    Precision { F32 = "f32", Bf16 = "bf16", Int8 = "int8", }
    /// A part that the service needs: its model, the database, its schema, and living workers; and room on its disk, the bulk feed, the
    /// object store, a database that takes writes and its standbys, without which it is ready all the same; and an OCR engine, if there is one.
    CheckedPart {
        Model = "model",
        Disk = "disk",
        Database = "database",
        Migrations = "migrations",
        Workers = "workers",
        Feed = "feed",
        BlobStore = "blob_store",
        Writes = "writes",
        Standbys = "standbys",
        Ocr = "ocr",
    }
}

/// Whether the service can do its work; only the owner is told more.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct ReadinessResponse {
    pub ready: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<ReadinessCheck>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueState>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workers: Vec<WorkerState>,
    /// The models that this process has loaded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<ModelState>,
    /// The cross-encoder that this process has loaded; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reranker: Option<RerankerState>,
    /// The age of the measurements of the queue and the workers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampled_seconds_ago: Option<f64>,
}
impl Wire for ReadinessResponse {}

/// A loaded cross-encoder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct RerankerState {
    pub name: String,
    pub device: String,
    /// The most tokens of a query and a document together.
    pub pair_window: usize,
}

/// A loaded model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct ModelState {
    /// The model's name and the hash of everything that decides a text's vector.
    pub identity: String,
    pub device: String,
    pub precision: Precision,
    /// The number of components in its own vectors.
    pub width: usize,
    /// The most tokens of a text that gets a document vector.
    pub document_window: usize,
    /// The most tokens of a text that gets token vectors.
    pub token_window: usize,
    /// How many passes wait for their turn.
    pub queue_depth: usize,
}

/// One thing that the service needs.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct ReadinessCheck {
    pub name: CheckedPart,
    pub ok: bool,
    pub detail: String,
}

/// The task queue in numbers. Of each task type and badge up to 10,000 tasks are counted, and of those that failed up to 10,000 in all.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct QueueState {
    pub pending: i64,
    /// Claimed, running or batched tasks.
    pub held: i64,
    /// Failed tasks that will be tried again.
    pub waiting_for_retry: i64,
    /// Tasks that failed for good, without those that only lack a part.
    pub failed: i64,
    /// Tasks that ended because they need a part that is not configured, such as a language model. Their files are settled
    /// without what these would have added.
    pub not_configured: i64,
    /// The age of the oldest task that still owes work.
    pub oldest_seconds: Option<f64>,
}

/// One worker process.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct WorkerState {
    pub worker_id: String,
    pub version: String,
    /// If empty, the worker takes every task.
    pub badges: Vec<String>,
    /// The time since its last heartbeat.
    pub silent_seconds: f64,
    pub tasks_held: i64,
}

/// An OpenAPI 3.1 document.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(transparent)]
pub struct OpenApiDocument(pub serde_json::Value);
impl Wire for OpenApiDocument {}
