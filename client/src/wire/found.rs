//! What a search found.
#[cfg(feature = "openapi")]
use super::FoundDocument;
use super::{
    DocumentResponse, FacetsResponse, GroupBy, RerankMethod, SearchExplanation, SearchMethod, SnippetOf,
    SortedResponse, TotalIs, fields,
};
use crate::operation::Wire;
use serde::{Deserialize, Serialize};
#[cfg(feature = "openapi")]
use utoipa::ToSchema;

/// What was found, best first unless it is `sorted`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct SearchResponse {
    pub results: Vec<SearchResult>,
    /// How many documents match, on this page and beyond, or how many groups of them; `total_is` says whether that is exact.
    pub total: u64,
    pub total_is: TotalIs,
    pub latency_ms: f64,
    /// The method that ranked the results.
    pub method: SearchMethod,
    /// Why it was this method, and why terms were added to the query though nobody asked; absent unless the service chose the method.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// What was searched because `forgiving` was asked for and no text has some words of the query; absent if it was searched as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub searched_instead: Option<SearchedInstead>,
    /// The terms that were added to the query (`expand`), as the index has them, the weightiest first; absent if none were to be added.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expanded_by: Option<Vec<String>>,
    /// Why the query has no vector, so that nothing was found by meaning; absent if it has one, or needs none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub no_vector: Option<String>,
    /// What stands for the texts that are found; absent if each document stands for itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_by: Option<GroupBy>,
    /// What ranked the results again; absent if nothing did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reranked: Option<RerankMethod>,
    /// How the results were sorted; absent if their scores decide.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sorted: Option<SortedResponse>,
    /// The `cursor` of the next page; absent on the last one. A search pages through its first 1,000 results.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_cursor: Option<String>,
    /// The counts that `facets` asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub facets: Option<FacetsResponse>,
    /// How the search came to this answer; absent unless `explain` asked for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explanation: Option<SearchExplanation>,
    /// Nodes of the readable scope that a search cannot show.
    pub scope_state: ScopeState,
}
impl Wire for SearchResponse {}

/// A query as it was searched, with other words in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct SearchedInstead {
    pub query: String,
    /// The words that were replaced, in the order of the query.
    pub words: Vec<WordInstead>,
}

/// A word that no text has which may be found, and the nearest one that such a text has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct WordInstead {
    pub asked: String,
    pub searched: String,
}

/// One document that was found.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct SearchResult {
    #[serde(flatten, with = "fields")]
    #[cfg_attr(feature = "openapi", schema(value_type = FoundDocument))]
    pub document: DocumentResponse,
    /// Comparable only within one answer. It is a similarity only for `vector` without reranking. In a reranked answer
    /// it is the reranker's score. Where `sort`, `mmr_lambda` or `recency_half_life_days` change the order, it stays what it was before.
    pub score: f64,
    /// The document has no token vectors of this model, so `maxsim` scores it 0; absent otherwise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_tokens: bool,
    /// The rank and score in each stage, for `hybrid` and where `include_scores` asks for them. A group has those of its best result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub legs: Option<Legs>,
    /// Why it was found. A group has the snippet of its best text. Absent unless asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snippet: Option<Snippet>,
    /// The best texts in this group, none of them in another; empty if the document itself is the text. Absent without `group_by`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hits: Option<Vec<SearchHit>>,
}

/// A text of a group. If more than half of a section's texts, and at least two, are among the best `limit` texts of the search, the
/// section comes instead of them.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct SearchHit {
    #[serde(flatten, with = "fields")]
    #[cfg_attr(feature = "openapi", schema(value_type = FoundDocument))]
    pub document: DocumentResponse,
    /// Absent if the group was found by its title or by all of its text, and the ranking did not reach this part of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub score: Option<f64>,
    /// The ids of the texts that this section comes instead of, best first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub texts: Vec<i64>,
    /// A section has the snippet of the best of its texts. Absent unless asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snippet: Option<Snippet>,
}

/// A piece of a document's text, at most 240 Unicode code points, which are also what places are counted in. It has most of the query's words; if
/// a text has none of them, it is the sentence nearest to the query in a search by meaning, as far as that is known in time, or the beginning. An answer
/// reads 8 million code points of all its texts together, of each as many, but at least 16,384 and at most 1,048,576; a word behind these is not shown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct Snippet {
    /// The document whose text it is.
    pub document_id: i64,
    pub of: SnippetOf,
    /// A literal piece: plain text, never markup.
    pub text: String,
    /// How many code points of the content or title are before it.
    pub start: usize,
    /// The words of the query in it, at most 32.
    pub highlights: Vec<Highlight>,
}

/// A word in a snippet, as code points of its `text`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct Highlight {
    pub start: usize,
    /// The first one behind it.
    pub end: usize,
}

/// The place of a result in each stage of a search. `vector` and `bm25` are null if that leg did not return it, or there was none; the others are
/// absent then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct Legs {
    pub vector: Option<Leg>,
    pub bm25: Option<Leg>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fulltext: Option<Leg>,
    /// Late interaction as the method.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub maxsim: Option<Leg>,
    /// The second stage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rerank: Option<Leg>,
    /// The order by `recency_half_life_days`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recency: Option<Leg>,
    /// The order by `mmr_lambda`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mmr: Option<Leg>,
}

/// A place in one stage.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct Leg {
    /// 1 is the best.
    pub rank: u32,
    pub score: f64,
}

/// Distinguishes "nothing found" from "not ingested yet".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct ScopeState {
    /// Nodes that are still being ingested, and documents that wait to be embedded and indexed; counted up to 10,000. Of the documents that wait, 10,000
    /// are looked at, first those whose tasks are under `parent_id` and then the newest of all, so where more wait the number may be too low.
    pub in_flight: i64,
    /// Nodes whose ingestion failed, and documents that could not be embedded and indexed; counted up to 10,000. Of these documents the newest
    /// 10,000 of all are looked at, so where there are more the number may be too low.
    pub failed: i64,
    /// Documents that no search by meaning finds, because their vectors are of another model than the one that answers; counted up to 10,000. Other
    /// searches find them, and say 0. Of the vectors of other models 10,000 are looked at, so where there are more the number may be too low.
    pub other_model: i64,
}
