//! Finding documents.
use crate::{
    Failure,
    constraint::{Constraint, Form, NAME, constrain},
    operation::{Params, Wire},
    wire::DocumentResponse,
    words::wire_words,
};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
#[cfg(feature = "openapi")]
use utoipa::{IntoParams, ToSchema};

/// Narrows what may be found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct SearchFilter {
    /// At or after this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_time_from: Option<DateTime<Utc>>,
    /// Before this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_time_until: Option<DateTime<Utc>>,
    /// At or after this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_at_from: Option<DateTime<Utc>>,
    /// Before this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_at_until: Option<DateTime<Utc>>,
    /// The document's structured content must contain this object.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "super::structured::optional")]
    pub structured_content: Option<Map<String, Value>>,
}

macro_rules! search_body { ($(#[doc = $doc:literal])* $name:ident { $( $(#[doc = $fdoc:literal])* $field:ident: $type:ty, )* } constrain { $($constraints:tt)* } check $check:expr) => {
    $(#[doc = $doc])*
    #[derive(Clone, Debug, Serialize, Deserialize)]
    #[cfg_attr(feature = "openapi", derive(ToSchema))]
    #[serde(deny_unknown_fields)]
    pub struct $name {
        /// The query: 1 to 8,000 characters, not all of them white space.
        pub query: String,
        /// Finds only documents under this one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub parent_id: Option<i64>,
        /// The number of results, 1 to 100; 10 by default.
        #[serde(default = "default_limit")]
        pub limit: u32,
        /// Finds only documents with these usetypes; by default with any but those that `SVC_SEARCH_EXCLUDE_USETYPES` names.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub usetype: Option<Vec<String>>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub filter: Option<SearchFilter>,
        /// Ranks the best candidates again by a closer look; if that is impossible, the request fails.
        #[serde(default)]
        pub rerank: bool,
        /// How to rank again; `cross_encoder` by default.
        #[serde(default)]
        pub rerank_method: RerankMethod,
        /// How many candidates are ranked again, 1 to 100 and never fewer than `limit`; 50 by default.
        #[serde(default = "default_rerank_top")]
        pub rerank_top: u32,
        /// Whether to include the results' texts; true by default. Once they fill 8 MiB (`SVC_PAGE_BYTES`), those of
        /// lower rank that do not fit are left out too, and `omitted` says so for each.
        #[serde(default = "include_content")]
        pub include_content: bool,
        /// Whether to include the results' 768-dimension vectors.
        #[serde(default)]
        pub include_embed: bool,
        /// Whether a file or a section stands for the texts in it; `none` by default.
        #[serde(default)]
        pub group_by: GroupBy,
        /// The most `hits` that a group shows, 1 to 10; 1 by default.
        #[serde(default = "default_per_group")]
        pub per_group: u32,
        /// Whether to include the piece of each result that shows why it was found; by default if `group_by` is not `none`.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub snippets: Option<bool>,
        $( $(#[doc = $fdoc])* #[serde(default, skip_serializing_if = "Option::is_none")] pub $field: Option<$type>, )*
    }
    impl $name {
        /// A search with all defaults.
        pub fn new(query: &str) -> $name {
            $name {
                query: query.to_owned(), parent_id: None, limit: default_limit(), usetype: None, filter: None,
                rerank: false, rerank_method: RerankMethod::default(), rerank_top: default_rerank_top(), include_content: true, include_embed: false,
                group_by: GroupBy::None, per_group: default_per_group(), snippets: None, $( $field: None, )*
            }
        }

        /// How the candidates are ranked again, if they are.
        pub fn second_stage(&self) -> Option<RerankMethod> {
            self.rerank.then_some(self.rerank_method)
        }

        /// Whether to show snippets.
        pub fn shows_snippets(&self) -> bool {
            self.snippets.unwrap_or(self.group_by != GroupBy::None)
        }

        /// How many results the first stage is asked for.
        pub fn depth(&self) -> u32 {
            if self.rerank { self.rerank_top.max(self.limit) } else { self.limit }
        }
    }
    impl Wire for $name {
        fn constraints() -> Vec<(&'static str, Constraint)> {
            let mut all = vec![("query", QUERY), ("limit", LIMIT), ("usetype", USETYPES), ("rerank_top", LIMIT), ("per_group", PER_GROUP)];
            all.extend_from_slice(&[$($constraints)*]);
            all
        }
        fn check(&self) -> Result<(), Failure> {
            QUERY.check("query", &self.query)?;
            LIMIT.check("limit", &self.limit)?;
            USETYPES.check("usetype", &self.usetype)?;
            LIMIT.check("rerank_top", &self.rerank_top)?;
            PER_GROUP.check("per_group", &self.per_group)?;
            let check: fn(&$name) -> Result<(), Failure> = $check;
            check(self)
        }
    }
} }

/// The query.
const QUERY: Constraint = Constraint::Text(1, 8000, Form::NotBlank);
/// The number of results, or of candidates for a second stage.
const LIMIT: Constraint = Constraint::Whole(1, 100);
/// How many texts a group shows.
const PER_GROUP: Constraint = Constraint::Whole(1, 10);
/// An empty list would find nothing, which nobody wants.
const USETYPES: Constraint = Constraint::List(1, 100, Some(&NAME));
/// A cosine.
const SIMILARITY: Constraint = Constraint::Number(-1.0, 1.0);
/// How much a leg counts.
const WEIGHT: Constraint = Constraint::Number(0.0, 1000.0);

search_body! {
    /// Searches by cosine similarity; the score is the cosine.
    VectorSearch {
        /// Leaves out less similar documents; -1 to 1.
        min_similarity: f64,
    } constrain { ("min_similarity", SIMILARITY) } check |body| SIMILARITY.check("min_similarity", &body.min_similarity)
}
search_body! {
    /// Searches by PostgreSQL full text: words, "phrases", or, -not.
    FulltextSearch {} constrain {} check |_| Ok(())
}
search_body! {
    /// Searches by BM25; the score is BM25's.
    Bm25Search {
        /// The index to search; if absent, the index `default`.
        index: String,
    } constrain {} check |_| Ok(())
}
search_body! {
    /// Searches by late interaction: each of the query's tokens is matched with the nearest token of a document. The
    /// candidates are those of vector and BM25; the score is the sum of the cosines.
    MaxsimSearch {
        /// The BM25 index; if absent, the index `default`.
        index: String,
    } constrain {} check |_| Ok(())
}
search_body! {
    /// Searches by rank fusion: each leg adds `weight / (60 + rank)`.
    HybridSearch {
        /// By default vector 0.86 and bm25 0.14; with an empty object, equal weights.
        weights: HybridWeights,
        /// The BM25 index; if absent, the index `default`.
        index: String,
    } constrain { ("weights.vector", WEIGHT), ("weights.bm25", WEIGHT) } check |body| match &body.weights {
        Some(weights) => weights.check(),
        None => Ok(()),
    }
}

/// How much each leg counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct HybridWeights {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub vector: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bm25: Option<f64>,
}
impl HybridWeights {
    fn check(&self) -> Result<(), Failure> {
        for (name, weight) in [("weights.vector", self.vector), ("weights.bm25", self.bm25)] {
            WEIGHT.check(name, &weight)?;
        }
        match (self.vector, self.bm25) {
            (Some(0.0), Some(0.0)) => Err(Failure::field("weights", "must not both be 0")),
            (None, None) | (Some(_), Some(_)) => Ok(()),
            _ => Err(Failure::field("weights", "give both `vector` and `bm25`, or neither")),
        }
    }
}

/// What ranks the candidates of a search again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum RerankMethod {
    /// A model that reads query and document together; it works for any candidate.
    #[default]
    CrossEncoder,
    /// The stored token vectors; a candidate without them scores 0 and comes last.
    Maxsim,
}

fn default_limit() -> u32 {
    10
}
fn default_per_group() -> u32 {
    1
}
fn by_file() -> GroupBy {
    GroupBy::File
}
fn default_rerank_top() -> u32 {
    50
}
fn include_content() -> bool {
    true
}

/// The convenience search.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(IntoParams))]
#[serde(deny_unknown_fields)]
pub struct SearchQuery {
    /// The query.
    pub q: String,
    /// The number of results, 1 to 100; 10 by default.
    #[serde(default = "default_limit")]
    pub limit: u32,
    /// Whether to include the results' texts; true by default.
    #[serde(default = "include_content")]
    pub include_content: bool,
    /// Whether to include the results' 768-dimension vectors.
    #[serde(default)]
    pub include_embed: bool,
    /// Whether a file or a section stands for the texts in it; `file` by default.
    #[serde(default = "by_file")]
    pub group_by: GroupBy,
    /// The most `hits` that a group shows, 1 to 10; 1 by default.
    #[serde(default = "default_per_group")]
    pub per_group: u32,
    /// Whether to include the piece of each result that shows why it was found; by default if `group_by` is not `none`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snippets: Option<bool>,
}
impl SearchQuery {
    /// A search with all defaults.
    pub fn new(q: &str) -> SearchQuery {
        SearchQuery {
            q: q.to_owned(),
            limit: default_limit(),
            include_content: true,
            include_embed: false,
            group_by: by_file(),
            per_group: default_per_group(),
            snippets: None,
        }
    }
}
impl Params for SearchQuery {
    constrain! { q: QUERY, limit: LIMIT, per_group: PER_GROUP }
}

wire_words! {
    /// Whether a total is the exact number of matches or a lower bound: a ranking that skips what cannot come first
    /// does not count the rest.
    TotalIs { Exact = "exact", AtLeast = "at_least", }
    /// What stands for the texts that are found. A group has the rank and the score of its best result, and its `hits` are its best texts.
    /// `file`: what a caller uploaded or created stands for its sections, sheets, records and chunks. `section`: each section or sheet
    /// does, and a file for the texts that are in none. `none`: each document stands for itself.
    GroupBy { File = "file", Section = "section", None = "none", }
    /// What of a document a snippet is a piece of: the title only if there is no content.
    SnippetOf { Content = "content", Title = "title", }
    /// How the results were ranked.
    SearchMethod { Vector = "vector", Fulltext = "fulltext", Bm25 = "bm25", Maxsim = "maxsim", Hybrid = "hybrid", }
}

#[expect(clippy::derivable_impls, reason = "the macro that makes words derives no default")]
impl Default for GroupBy {
    fn default() -> Self {
        GroupBy::None
    }
}

/// What was found, best first.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct SearchResponse {
    pub results: Vec<SearchResult>,
    /// How many documents match, on this page and beyond, or how many groups of them; `total_is` says whether that is exact.
    pub total: u64,
    pub total_is: TotalIs,
    pub latency_ms: f64,
    pub method: SearchMethod,
    /// What stands for the texts that are found; absent if each document stands for itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_by: Option<GroupBy>,
    /// What ranked the results again; absent if nothing did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reranked: Option<RerankMethod>,
    /// Nodes of the readable scope that a search cannot show.
    pub scope_state: ScopeState,
}
impl Wire for SearchResponse {}

/// One document that was found.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct SearchResult {
    #[serde(flatten)]
    pub document: DocumentResponse,
    /// Comparable only within one answer. It is a similarity only for `vector` without reranking. In a reranked answer
    /// it is the reranker's score.
    pub score: f64,
    /// The document has no token vectors of this model, so `maxsim` scores it 0; absent otherwise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_tokens: bool,
    /// The rank and score in each leg; only for `hybrid`. A group has those of its best result.
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
    #[serde(flatten)]
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
/// a text has none of them, it is the sentence nearest to the query in a search by meaning, as far as that is known in time, or the beginning.
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

/// The place of a result in each leg of a hybrid search; null if the leg did not return it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct Legs {
    pub vector: Option<Leg>,
    pub bm25: Option<Leg>,
}

/// A place in one leg.
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
    /// Nodes that are still being ingested, and documents that wait to be embedded and indexed; counted up to 10,000.
    pub in_flight: i64,
    /// Nodes whose ingestion failed, and documents that could not be embedded and indexed; counted up to 10,000.
    pub failed: i64,
}
