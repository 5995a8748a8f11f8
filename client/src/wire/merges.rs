//! Entities that are taken for one.
use crate::{
    Failure,
    constraint::{CURSOR, PAGE, constrain},
    operation::{Params, Wire},
    reply::Located,
    words::wire_words,
};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
#[cfg(feature = "openapi")]
use utoipa::{IntoParams, ToSchema};

wire_words! {
    /// Why two entities are taken for one: they have the same name (`exact`), names of nearly the same meaning (`similarity`), or somebody said so
    /// (`manual`).
    MergeMethod { Exact = "exact", Similarity = "similarity", Manual = "manual", }
}

/// The merge in question.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(IntoParams))]
#[serde(deny_unknown_fields)]
pub struct MergePath {
    /// The merge's id.
    pub id: i64,
}
impl Params for MergePath {}

/// Which merges to list.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(IntoParams))]
#[serde(default, deny_unknown_fields)]
pub struct MergeQuery {
    /// Only merges of this document with another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub document_id: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<MergeMethod>,
    /// Those that were undone, in place of those in force.
    pub undone: bool,
    /// `next_cursor` of the page before; absent for the first page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// Merges per page, 1 to 1,000; 100 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit: Option<u32>,
}
impl Params for MergeQuery {
    constrain! { cursor: CURSOR, limit: PAGE }
}
impl MergeQuery {
    /// The number of rows per page.
    pub fn rows(&self) -> u32 {
        self.limit.unwrap_or(100)
    }
}

/// Two documents to take for one. The caller must be allowed to write both, and both must be open to the same readers.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct NewMerge {
    /// The document by whose id answers name both.
    pub kept_id: i64,
    pub merged_id: i64,
}
impl Wire for NewMerge {
    constrain! { ; |new| match new.kept_id == new.merged_id {
        true => Err(Failure::field("merged_id", "must be another document than kept_id")),
        false => Ok(()),
    } }
}

/// Two documents that are taken for one while the merge is in force. Facts keep the ids that they were stated with.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct MergeResponse {
    pub id: i64,
    pub kept_id: i64,
    pub kept_title: String,
    pub merged_id: i64,
    pub merged_title: String,
    pub method: MergeMethod,
    /// The cosine of the vectors of both names; null unless the method is `similarity`.
    pub score: Option<f64>,
    pub merged_at: DateTime<Utc>,
    pub undone_at: Option<DateTime<Utc>>,
}
impl Wire for MergeResponse {}
impl Located for MergeResponse {
    fn location(&self) -> String {
        format!("/graph/merges?document_id={}", self.kept_id)
    }
}

/// A page of merges.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct MergePage {
    pub merges: Vec<MergeResponse>,
    /// Ask for the next page with this; null on the last page.
    pub next_cursor: Option<String>,
}
impl Wire for MergePage {}
