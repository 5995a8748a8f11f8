//! How a search came to its answer.
use super::{Fusion, SearchMethod};
use crate::words::wire_words;
use serde::{Deserialize, Serialize};
#[cfg(feature = "openapi")]
use utoipa::ToSchema;

/// How a search came to its answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct SearchExplanation {
    /// What ranked the documents, in the last round.
    pub legs: Vec<LegExplanation>,
    /// By what the two legs of `hybrid` count together; absent with any other method.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fusion: Option<Fusion>,
    /// How many times the legs ranked, each time more deeply, because their results were too few groups.
    pub rounds: u32,
    /// What took how long, in the order in which it began. What did not happen is absent.
    pub stages: Vec<StageTime>,
}

/// A leg of a search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct LegExplanation {
    /// `vector`, `bm25` or `fulltext`.
    pub leg: SearchMethod,
    /// How much it counts beside the other leg; absent for a leg alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<f64>,
    /// How many results it was asked for.
    pub depth: u32,
    /// How many it returned.
    pub returned: u64,
    /// How long it ranked.
    pub ms: f64,
    /// How long the query took to be embedded, while the planner was asked what it expects; absent where nothing was embedded.
    /// Only a caller who may read all documents is told, since it shows whether somebody else has asked the query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub embed_ms: Option<f64>,
    /// The way that it took. It follows from statistics of all documents, so only a caller who may read them all is told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub plan: Option<LegPlan>,
}

/// The way that a leg took, and what it was chosen by.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct LegPlan {
    pub way: LegWay,
    /// How many documents the planner expects to be eligible; absent where it was not asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eligible: Option<u64>,
    /// Of how many documents, as the planner knows; absent where it was not asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub documents: Option<u64>,
    /// How many candidates the HNSW index was asked for, of which the stored vectors choose.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub candidates: Option<u64>,
    /// At how many of its entries the HNSW index, or that of each part, looked at a time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entries: Option<u64>,
    /// How many documents with words of the query were looked up, each to see whether it is eligible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified: Option<u64>,
    /// How many parts of the vectors were read; absent where they are in one table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parts: Option<u64>,
}

/// How long a stage of a search took.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct StageTime {
    pub stage: SearchStage,
    pub ms: f64,
}

wire_words! {
    /// How a leg ranks. `exact`: it compares the vectors of all that is eligible. `hnsw`: of the candidates of the HNSW index. `hnsw_then_exact`: of all,
    /// because the index returned too few, or more may be as near as the last result. `verified`: it looks up whether the best documents by their words are eligible. `listed`: it lists what is eligible,
    /// and scores nothing else. `no_vector`: the model knows none of the query's words, so nothing is compared. `all_words`, `some_words`: by full text, what has all words of the query, or some of them.
    LegWay {
        Exact = "exact",
        Hnsw = "hnsw",
        HnswThenExact = "hnsw_then_exact",
        Verified = "verified",
        Listed = "listed",
        NoVector = "no_vector",
        AllWords = "all_words",
        SomeWords = "some_words",
    }
    /// A stage of a search. `prepare`: context and rights. `rank`: the legs. `group`: putting results into groups, and finding their texts. `facets`: counting.
    /// `rerank`: ranking the candidates again. `reorder`: by `mmr_lambda`, `recency_half_life_days` or `sort`. `show`: reading the results and `scope_state`.
    /// `snippets`: choosing what is shown of each text.
    SearchStage {
        Prepare = "prepare",
        Rank = "rank",
        Group = "group",
        Facets = "facets",
        Rerank = "rerank",
        Reorder = "reorder",
        Show = "show",
        Snippets = "snippets",
    }
}
