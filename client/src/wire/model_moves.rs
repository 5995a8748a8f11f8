//! Moves of all vectors from one embedding model to another.
use crate::{operation::Wire, words::wire_words};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
#[cfg(feature = "openapi")]
use utoipa::ToSchema;

wire_words! {
    /// Where a move is: `moving` makes vectors of the new model while the old one answers, `emptying` deletes those of others while the new one
    /// answers, `done` is over, `cancelling` deletes what a move made that was called off, and `cancelled` has deleted it.
    ModelMoveState { Moving = "moving", Emptying = "emptying", Done = "done", Cancelling = "cancelling", Cancelled = "cancelled", }
}

/// The models of a service, and the last move from one to another.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct ModelMoveResponse {
    /// The model that answers.
    pub model: String,
    /// The model of `SVC_EMBEDDING_COMING_MODEL`; null if the service has none.
    pub coming_model: Option<String>,
    /// The last move; null if there was none.
    pub last: Option<ModelMove>,
}
impl Wire for ModelMoveResponse {}

/// A move of all vectors from one model to another.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct ModelMove {
    /// The model that answered when it began. With the same model as `to_model` it moves what others made.
    pub from_model: String,
    pub to_model: String,
    pub state: ModelMoveState,
    /// How many vectors have been made.
    pub done: i64,
    /// How many documents had to get one when it began.
    pub of: i64,
    /// To how many documents the new model gives no vector; their evidence `embed` says why once it is over.
    pub refused: i64,
    /// How often it has gone over all documents. Who writes meanwhile makes another pass needful.
    pub passes: i32,
    /// How many of its tasks are unfinished.
    pub tasks: i64,
    pub started_at: DateTime<Utc>,
    /// Since when the new model answers.
    pub served_at: Option<DateTime<Utc>>,
    pub ended_at: Option<DateTime<Utc>>,
}
