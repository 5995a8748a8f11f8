//! Files and what happened to them.
use super::{AttemptOutcome, ErrorType, Settled};
use crate::{
    constraint::{CURSOR, Constraint, Form, PAGE, constrain},
    operation::{Params, Wire},
};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
#[cfg(feature = "openapi")]
use utoipa::{IntoParams, ToSchema};

/// A task and the file that it belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct FailurePlace {
    pub task_id: i64,
    pub root_id: i64,
    /// The file that is reprocessed, if the task belongs to the tree that this builds; `root_id` is no document that can be read then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reprocess_of: Option<i64>,
    /// The title of the file; null if it is gone.
    pub title: Option<String>,
}

/// Which files to list. An absent field does not filter.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(IntoParams))]
#[serde(default, deny_unknown_fields)]
pub struct FileQuery {
    /// The state of the file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<Settled>,
    /// A part of the title, in capitals or not. Among the latest 10,000 files that the caller may read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `next_cursor` of the page before; absent for the first page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// Rows per page, 1 to 1,000; 50 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}
impl Params for FileQuery {
    constrain! {
        name: Constraint::Text(1, 200, Form::Any),
        cursor: CURSOR,
        limit: PAGE,
    }
}

/// A stored file and how far it is.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct FileResponse {
    pub id: i64,
    pub title: String,
    pub state: Settled,
    pub format: Option<String>,
    pub byte_size: i64,
    pub created_at: DateTime<Utc>,
    /// Nodes under it and itself, for the owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes_total: Option<i64>,
    /// How many of them are settled, for the owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes_settled: Option<i64>,
}

/// Files, page by page, latest first.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct FilePage {
    pub files: Vec<FileResponse>,
    /// Ask for the next page with this; null on the last page.
    pub next_cursor: Option<String>,
}
impl Wire for FilePage {}

/// Attempts of a file's tasks that were alike: of the same type and number, with the same end.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct StoryEntry {
    pub task_type: String,
    /// Null while they run.
    pub outcome: Option<AttemptOutcome>,
    /// 1 for the first attempt.
    pub attempt: i32,
    pub error_type: Option<ErrorType>,
    pub code: Option<String>,
    /// What the latest of them said; of those that failed for good, if any did.
    pub message: Option<String>,
    /// How many there were.
    pub attempts: i64,
    /// How many of them were the last attempt at a task that failed for good.
    pub for_good: i64,
    /// The task of the one that said so.
    pub task_id: i64,
    /// When the first of their tasks was queued, or was to be tried again.
    pub queued_at: Option<DateTime<Utc>>,
    pub started_at: DateTime<Utc>,
    /// Null while they run.
    pub ended_at: Option<DateTime<Utc>>,
    /// The time that one of them took, in the mean.
    pub seconds: f64,
    /// One of the workers, for the owner.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// How many workers took part.
    pub workers: i64,
}

/// Which part of a story to tell.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(IntoParams))]
#[serde(default, deny_unknown_fields)]
pub struct StoryQuery {
    /// `next_cursor` of the part after it; absent for the latest part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// Entries in a part, 1 to 200; 200 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}
impl Params for StoryQuery {
    constrain! {
        cursor: CURSOR,
        limit: Constraint::Whole(1, 200),
    }
}

/// What happened to a file, in the order in which it began: the latest part of it, or one before that. Attempts that are alike are one entry.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct StoryResponse {
    pub document_id: i64,
    pub title: String,
    pub state: Settled,
    pub created_at: DateTime<Utc>,
    pub entries: Vec<StoryEntry>,
    /// Ask for what was before with this; null if these are the first.
    pub next_cursor: Option<String>,
}
impl Wire for StoryResponse {}
