//! Held regions, drawn into the trees that they lie in.
use super::WriteMode;
use crate::{
    constraint::{CURSOR, Constraint, constrain},
    operation::{Params, Wire},
};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
#[cfg(feature = "openapi")]
use utoipa::{IntoParams, ToSchema};

/// Which page of files to show.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(IntoParams))]
#[serde(default, deny_unknown_fields)]
pub struct RegionMapQuery {
    /// Only this file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub root_id: Option<i64>,
    /// `next_cursor` of the page before; absent for the first page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// Files per page, 1 to 12; 12 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}
impl Params for RegionMapQuery {
    constrain! {
        cursor: CURSOR,
        limit: Constraint::Whole(1, 12),
    }
}

/// A child of a file and where it lies from left to right.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct RegionColumn {
    pub id: i64,
    pub title: String,
    /// How many children it has.
    pub children: i64,
    /// Its left edge, from 0 to 1 of the file's width.
    pub from: f64,
    /// Its right edge.
    pub to: f64,
}

/// What a task has reserved, or waits to reserve, as a box in the picture of its file.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct RegionBox {
    pub task_id: i64,
    pub task_type: String,
    /// The node that the task works on.
    pub document_id: i64,
    pub title: Option<String>,
    pub write_mode: WriteMode,
    /// Left edge, from 0 to 1 of the file's width; a node under more than two levels has the width of the one above it there.
    pub from: f64,
    pub to: f64,
    /// The first level that it covers: 0 is the file.
    pub top: i32,
    /// The first level below it that it does not cover; null if it covers everything below.
    pub bottom: Option<i32>,
    /// Only some leaves under the node.
    pub some_leaves: bool,
    /// Who holds it; null while it waits.
    pub worker: Option<String>,
    /// Held or waiting since then.
    pub since: Option<DateTime<Utc>>,
    /// Held, but its lease is over.
    pub lapsed: bool,
    /// The task in the way of one that waits.
    pub behind: Option<i64>,
    /// How many tasks wait for a held one.
    pub tasks_waiting: i64,
}

/// A file with its regions.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct RegionFile {
    pub root_id: i64,
    pub title: String,
    /// Its children from left to right, at most 400.
    pub columns: Vec<RegionColumn>,
    /// Whether it has more children.
    pub more_columns: bool,
    pub held: Vec<RegionBox>,
    /// The first few that wait.
    pub waiting: Vec<RegionBox>,
    pub tasks_waiting: i64,
}

/// Files with held regions, those with most waiting tasks first.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct RegionMap {
    pub files: Vec<RegionFile>,
    /// Regions held in all files.
    pub held: i64,
    /// Tasks that wait for one, in all files.
    pub tasks_waiting: i64,
    /// Files with held or awaited regions.
    pub files_total: i64,
    pub next_cursor: Option<String>,
}
impl Wire for RegionMap {}
