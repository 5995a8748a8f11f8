//! Reprocessing: a file is ingested again with other options, while the tree that it has stays searchable.
use crate::{operation::Wire, wire::BlockedBy};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
#[cfg(feature = "openapi")]
use utoipa::ToSchema;

/// How to ingest a file again.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct ReprocessRequest {
    /// Ingest options, by group. As for an upload, an absent one has its default, whatever the file was ingested with before.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "super::structured::value")]
    pub options: Option<Value>,
    /// Ends a reprocess of the file that is running, and begins anew; otherwise that is 409.
    pub replace: bool,
}
impl Wire for ReprocessRequest {}

/// A reprocess that has begun.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct ReprocessResponse {
    /// The file, which keeps this id.
    pub document_id: i64,
    /// The root of the tasks of this reprocess, by which `GET /admin/tasks` lists them; no document that can be read.
    pub root_id: i64,
    /// The evidence `reprocess` repeats it once the reprocess has ended.
    pub started_at: DateTime<Utc>,
    /// The resolved options, by group.
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub options: Value,
    /// The options that the file was ingested with before.
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub options_before: Value,
    /// Whether this ended another reprocess of the file.
    pub replaced: bool,
}
impl Wire for ReprocessResponse {}

/// How far a reprocess has come. Nothing of its tree is in the counts of the file, or can be read, before all of it takes its place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct ReprocessProgress {
    /// The root of its tasks.
    pub root_id: i64,
    pub started_at: DateTime<Utc>,
    pub nodes_total: i64,
    pub nodes_settled: i64,
    pub nodes_in_flight: i64,
    pub nodes_failed: i64,
    /// Its tasks that still owe work.
    pub tasks_unfinished: i64,
    /// Its unfinished tasks that are not running, by the reason. Once all have ended, `reservation` is 1 while a task at work in the old tree keeps
    /// the new one from taking its place.
    #[cfg_attr(feature = "openapi", schema(value_type = BTreeMap<String, i64>))]
    pub blocked_by: BTreeMap<BlockedBy, i64>,
}
