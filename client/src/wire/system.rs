//! The service about itself.
use crate::{constraint::words, operation::Wire};
use serde::{Deserialize, Serialize};
#[cfg(feature = "openapi")]
use utoipa::ToSchema;

/// The process is alive.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct HealthResponse {
    /// `degraded` where no worker is alive, a task waits for one that does not exist, or neither is known.
    #[cfg_attr(feature = "openapi", schema(value_type = HealthStatus))]
    pub status: String,
    pub version: String,
    pub uptime_seconds: u64,
    /// Age of what the status tells of the workers; absent before it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampled_seconds_ago: Option<f64>,
}
impl Wire for HealthResponse {}

words! {
    /// How the service is.
    HealthStatus { Ok = "ok", Degraded = "degraded", }
}

/// Whether the service can do its work; the rest is told to the owner alone.
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
    /// Those that this process has loaded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub models: Vec<ModelState>,
    /// The cross-encoder that this process has loaded; absent where it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reranker: Option<RerankerState>,
    /// Age of what is told of the queue and the workers.
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
    /// Tokens of a query and a document together, at most.
    pub pair_window: usize,
}

/// A loaded model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct ModelState {
    /// Its name and the hash of all that decides what a text's vector is.
    pub identity: String,
    pub device: String,
    /// Of its weights: `f32`, `bf16` or `int8`.
    pub precision: String,
    /// Components of its own vectors.
    pub width: usize,
    /// Tokens of a text that gets a document vector, at most.
    pub document_window: usize,
    /// Tokens of a text that gets token vectors, at most.
    pub token_window: usize,
    /// Passes that wait for their turn.
    pub queue_depth: usize,
}

/// One thing that the service needs.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct ReadinessCheck {
    /// `database`, `migrations`, `model` or `workers`.
    pub name: String,
    pub ok: bool,
    pub detail: String,
}

/// The task queue in numbers; of each task type up to 10,000 are counted, and as many that failed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct QueueState {
    pub pending: i64,
    /// Claimed, running or batched.
    pub held: i64,
    /// Failed, and to be tried again.
    pub waiting_for_retry: i64,
    /// Failed for good.
    pub failed: i64,
    /// Age of the oldest task that still owes work.
    pub oldest_seconds: Option<f64>,
}

/// One worker process.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct WorkerState {
    pub worker_id: String,
    pub version: String,
    /// Empty: takes every task.
    pub badges: Vec<String>,
    /// Since its last beat.
    pub silent_seconds: f64,
    pub tasks_held: i64,
}

/// An OpenAPI 3.1 document.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(transparent)]
pub struct OpenApiDocument(pub serde_json::Value);
impl Wire for OpenApiDocument {}
