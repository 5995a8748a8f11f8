//! Finding what is like a document.
use super::{
    GroupBy,
    fields::{FIELD_LIST, check_list},
    search::{LIMIT, PER_GROUP, SIMILARITY, default_limit, default_per_group, include_content},
};
use crate::{
    constraint::{CURSOR, NAME, constrain},
    operation::Params,
};
use serde::{Deserialize, Serialize};
#[cfg(feature = "openapi")]
use utoipa::IntoParams;

/// What similar documents are looked for among, and what is shown of them.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(IntoParams))]
#[serde(deny_unknown_fields)]
pub struct SimilarQuery {
    /// Finds only documents under this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent_id: Option<i64>,
    /// Finds only documents of this usetype.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usetype: Option<String>,
    /// Leaves out less similar documents; -1 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_similarity: Option<f64>,
    /// The number of results, 1 to 100; 10 by default.
    #[serde(default = "default_limit")]
    pub limit: u32,
    /// Whether to include the results' texts; true by default.
    #[serde(default = "include_content")]
    pub include_content: bool,
    /// Whether to include the results' 768-dimension vectors.
    #[serde(default)]
    pub include_embed: bool,
    /// What the answer shows of each document: these fields alone, with commas between them, such as `id,title`; in place of `include_content` and `include_embed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fields: Option<String>,
    /// Whether a file or a section stands for the texts in it; `none` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_by: Option<GroupBy>,
    /// The most `hits` that a group shows, 1 to 10; 1 by default.
    #[serde(default = "default_per_group")]
    pub per_group: u32,
    /// Goes on behind an earlier page of the same search: its `next_cursor`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}
impl Default for SimilarQuery {
    fn default() -> SimilarQuery {
        SimilarQuery {
            parent_id: None,
            usetype: None,
            min_similarity: None,
            limit: default_limit(),
            include_content: true,
            include_embed: false,
            fields: None,
            group_by: None,
            per_group: default_per_group(),
            cursor: None,
        }
    }
}
impl Params for SimilarQuery {
    constrain! {
        usetype: NAME, min_similarity: SIMILARITY, limit: LIMIT, fields: FIELD_LIST, per_group: PER_GROUP, cursor: CURSOR;
        |query| check_list(query.fields.as_deref(), query.include_content, query.include_embed)
    }
}
