//! What language models cost, and the batches of requests that providers answer within a day.
use crate::{
    constraint::{Constraint, constrain},
    operation::{Params, Wire},
    words::wire_words,
};
use chrono::{DateTime, NaiveDate, Utc};
use serde::{Deserialize, Serialize};
#[cfg(feature = "openapi")]
use utoipa::{IntoParams, ToSchema};

wire_words! {
    /// Where a batch is: `open` takes requests, `closed` takes no more, of `submitting` the provider may have it or not, `submitted` is at the
    /// provider, and `ended` is over.
    LlmBatchState { Open = "open", Closed = "closed", Submitting = "submitting", Submitted = "submitted", Ended = "ended", }
    /// How a batch ended.
    LlmBatchOutcome { Completed = "completed", Failed = "failed", Expired = "expired", Cancelled = "cancelled", }
}

/// A batch of requests for a provider.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct LlmBatchResponse {
    pub id: i64,
    pub provider: String,
    pub model: String,
    pub state: LlmBatchState,
    /// How it ended; null while it has not.
    pub outcome: Option<LlmBatchOutcome>,
    /// The provider's name of it; null until the provider has it.
    pub provider_id: Option<String>,
    pub requests: i32,
    /// The size of its requests, as they are sent.
    pub bytes: i64,
    /// How many tasks wait in it, or for being taken up again after its end.
    pub tasks: i64,
    pub opened_at: DateTime<Utc>,
    pub submitted_at: Option<DateTime<Utc>>,
    /// When its provider gives it up.
    pub expires_at: Option<DateTime<Utc>>,
    pub ended_at: Option<DateTime<Utc>>,
    pub cancel_requested_at: Option<DateTime<Utc>>,
    /// Answers that came.
    pub answered: i32,
    /// Errors that came instead of answers.
    pub failed: i32,
    /// Requests without an answer when it ended.
    pub unanswered: i32,
    /// Lines that answer no request of it, which are skipped.
    pub unknown: i32,
    /// Answers that came more than once, of which the first counts.
    pub repeated: i32,
    /// Answers for tasks that had left it.
    pub dropped: i32,
    /// What went wrong last; null if nothing did.
    pub problem: Option<String>,
    /// Whether tasks have waited in it for longer than `SVC_BATCH_STALL_SECONDS`, or its provider should have given it up.
    pub stalled: bool,
}

/// Batches, page by page, newest first.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct LlmBatchPage {
    pub batches: Vec<LlmBatchResponse>,
    /// Ask for the next page with this; null on the last page.
    pub next_cursor: Option<String>,
}
impl Wire for LlmBatchPage {}

/// What calls of language models took.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct LlmUsage {
    /// What the calls were for: `summarize` or `synthesize`.
    pub purpose: String,
    /// The model, as its endpoint names it; blank for calls that got no answer.
    pub model: String,
    /// Whether the calls were requests of batches.
    pub batched: bool,
    pub calls: i64,
    /// How many of the calls failed.
    pub failed_calls: i64,
    pub prompt_tokens: i64,
    pub completion_tokens: i64,
}

/// How many days to count.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(IntoParams))]
#[serde(default, deny_unknown_fields)]
pub struct LlmUsageQuery {
    /// 1 to 366, today included; 30 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub days: Option<u32>,
}
impl Params for LlmUsageQuery {
    constrain! { days: Constraint::Whole(1, 366) }
}

/// What calls of language models took since a day.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct LlmUsageResponse {
    /// The first day that counts, in UTC.
    pub since: NaiveDate,
    pub usage: Vec<LlmUsage>,
}
impl Wire for LlmUsageResponse {}
