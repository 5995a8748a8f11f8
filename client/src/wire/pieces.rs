//! Documents that are made of what another document holds: parts of its text, and segments of its children.
use crate::{
    Failure, Located,
    constraint::{Constraint, constrain},
    operation::{Params, Wire},
};
use serde::{Deserialize, Serialize};
#[cfg(feature = "openapi")]
use utoipa::{IntoParams, ToSchema};

/// The most pieces that one call cuts a text into.
pub const MOST_PIECES: usize = 20_000;
/// The most children that one call segments.
pub const MOST_SEGMENTED: usize = 20_000;

/// Whether to wait for the work that a call starts.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(IntoParams))]
#[serde(default, deny_unknown_fields)]
pub struct PiecesQuery {
    /// Answer once the pieces are embedded and indexed, and not at once. Only then can `warnings` say what they lack.
    pub wait: bool,
}
impl Params for PiecesQuery {}

/// Where to split a text: either `at`, or `by_headings`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct SplitRequest {
    /// Where each piece but the first begins, in characters of the text: 1 to 10,000 places, ascending.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Vec<u32>>,
    /// Begins a piece at each Markdown heading, which becomes its title.
    pub by_headings: bool,
    /// Deletes what an earlier call split; without it a second call is refused.
    pub replace: bool,
}
impl Wire for SplitRequest {
    constrain! { at: Constraint::List(1, 10_000, None); |request| match (&request.at, request.by_headings) {
        (Some(at), false) if at.windows(2).all(|pair| pair[0] < pair[1]) => Ok(()),
        (Some(_), false) => Err(Failure::field("at", "takes ascending places, each once")),
        (None, true) => Ok(()),
        _ => Err(Failure::field("at", "give either `at` or `by_headings`")),
    } }
}

/// How to cut a text into chunks: the fields of the ingest options' group `structure`, with the same defaults.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct ChunkRequest {
    /// How many tokens a chunk is filled up to, 8 to 8,192; 120 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u32>,
    /// `sentence_packed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chunk_strategy: Option<String>,
    /// A length in characters, 0 to 1,000; a shorter chunk joins its neighbour. 20 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_chunk_length: Option<u32>,
    /// Deletes what an earlier call cut; without it a second call is refused.
    pub replace: bool,
}
impl Wire for ChunkRequest {
    constrain! {
        max_tokens: Constraint::Whole(8, 8_192),
        chunk_strategy: Constraint::OneOf(&["sentence_packed"]),
        min_chunk_length: Constraint::Whole(0, 1_000),
    }
}

/// What a text was cut into.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct PiecesResponse {
    pub document_id: i64,
    /// The ids of the new documents under it, in the order of the text. Each can be found once it is embedded.
    pub created: Vec<i64>,
    /// How many documents of an earlier call were deleted.
    pub deleted: usize,
    /// Why some searches cannot find some of the pieces; absent if all can. Only an answer after `wait` can say so.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
}
impl Wire for PiecesResponse {}
impl Located for PiecesResponse {
    fn location(&self) -> String {
        format!("/documents/{}/children", self.document_id)
    }
}

/// How to segment the children of a document: fields of the ingest options' group `rollup`, with the same defaults.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct SegmentRequest {
    /// More segments than this are segmented in turn, level by level; 2 to 100,000, 16 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_children: Option<u32>,
    /// What a boundary costs, above 0: a higher penalty makes fewer segments. 1.0 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub penalty: Option<f64>,
    /// The fewest children of a segment, 1 to 1,000; 3 by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_segment: Option<u32>,
    /// Takes the segments of an earlier call away and keeps what is in them; without it a second call is refused. If one of them got a text or
    /// rights of its own since, the call is refused with 409.
    pub replace: bool,
}
impl Wire for SegmentRequest {
    constrain! {
        max_children: Constraint::Whole(2, 100_000),
        penalty: Constraint::Above(0.0),
        min_segment: Constraint::Whole(1, 1_000),
    }
}

/// The segments of a document's children.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct SegmentResponse {
    pub document_id: i64,
    /// How many children were looked at.
    pub children: usize,
    /// The new documents, each before those under it; none if the subject does not change, and then the children stay where they are.
    pub segments: Vec<SegmentSummary>,
    /// How many segments of an earlier call were deleted.
    pub deleted: usize,
}
impl Wire for SegmentResponse {}

/// A segment that was made just now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct SegmentSummary {
    pub id: i64,
    pub parent_id: i64,
    pub title: String,
    /// How many documents are directly under it: segments or children.
    pub children: usize,
}
