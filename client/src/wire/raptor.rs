//! Summaries over a part of the tree, and the part of it that is worth reading within a budget of tokens.
use crate::{
    Failure,
    constraint::{Constraint, Form, constrain, shows_embed},
    operation::Wire,
    wire::DocumentResponse,
    words::wire_words,
};
use serde::{Deserialize, Serialize};
#[cfg(feature = "openapi")]
use utoipa::ToSchema;

/// The most leaves under a document that are summarised together.
pub const RAPTOR_LEAVES: i64 = 10_000;
/// The most bytes of text that these leaves have.
pub const RAPTOR_BYTES: i64 = 64 << 20;
/// The most leaves and summaries under a document from which a portfolio is chosen.
pub const PORTFOLIO_CANDIDATES: i64 = 4_000;

/// How to make summaries over the leaves under a document.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct RaptorRequest {
    /// The same seed over the same leaves makes the same tree; 0 by default.
    pub seed: u32,
    /// The most levels of summaries, 1 to 10; 5 by default.
    pub max_levels: u32,
    /// The number of dimensions to which vectors are reduced before they are clustered, 2 to 64; 10 by default.
    pub dimensions: u32,
    /// A text belongs to each cluster that holds it with at least this probability, 0.01 to 0.5; 0.1 by default.
    pub threshold: f64,
    /// The most tokens of the texts in one cluster, 200 to 16,000 and at least twice `summary_tokens`; 3,500 by default.
    pub cluster_tokens: u32,
    /// The most tokens of a summary, 32 to 4,000; 200 by default, and never more than the model's window.
    pub summary_tokens: u32,
    /// Whether a language model writes the summaries of texts that do not fit one: `true` needs one (`SVC_LLM_BASE_URL`), `false` chooses sentences
    /// of the texts. By default it writes them where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by_model: Option<bool>,
}
impl Default for RaptorRequest {
    fn default() -> Self {
        Self {
            seed: 0,
            max_levels: 5,
            dimensions: 10,
            threshold: 0.1,
            cluster_tokens: 3_500,
            summary_tokens: 200,
            by_model: None,
        }
    }
}
impl Wire for RaptorRequest {
    constrain! {
        seed: Constraint::Whole(0, u32::MAX as i64),
        max_levels: Constraint::Whole(1, 10),
        dimensions: Constraint::Whole(2, 64),
        threshold: Constraint::Number(0.01, 0.5),
        cluster_tokens: Constraint::Whole(200, 16_000),
        summary_tokens: Constraint::Whole(32, 4_000);
        |request| match request.cluster_tokens < 2 * request.summary_tokens {
            // Two summaries that fit no cluster together could never be summarised.
            true => Err(Failure::field("cluster_tokens", "must be at least twice summary_tokens")),
            false => Ok(()),
        }
    }
}

/// The summaries that are being made over the leaves under a document.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct RaptorResponse {
    pub document_id: i64,
    /// The task that makes them.
    pub task_id: i64,
    /// The number of leaves when the task was queued.
    pub leaves: i64,
    /// The tree that the task made, if the call waited and the task ended in that time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<RaptorTree>,
}
impl Wire for RaptorResponse {}

/// A tree of summaries. Its summaries are the children of the document `raptor_id`, and each has a link `derived_from` to
/// everything that it summarises.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct RaptorTree {
    pub raptor_id: i64,
    /// The model by whose vectors the texts were clustered: its name and the hash of everything that decides a vector.
    pub model: String,
    /// How the tree was made.
    pub request: RaptorRequest,
    pub leaves: usize,
    pub summaries: usize,
    /// How many of the summaries a language model wrote. The others are the texts themselves, or sentences of them.
    #[serde(default)]
    pub by_model: usize,
    /// From the bottom to the top.
    pub levels: Vec<RaptorLevel>,
    /// The summaries that the model refused, which only a search by words finds.
    pub without_vector: usize,
}

/// One level of a tree of summaries.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct RaptorLevel {
    /// 1 for summaries of leaves.
    pub level: usize,
    /// How many texts were clustered.
    pub nodes: usize,
    /// How many summaries that made. A text that is alone in its clusters has none, and is clustered again above.
    pub summaries: usize,
}

/// What to choose from under a document, and how much.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(deny_unknown_fields)]
pub struct PortfolioRequest {
    /// The budget: the most tokens of all chosen texts together, 1 to 1,000,000.
    pub tokens: u32,
    /// What the reader wants to know, 1 to 8,000 characters: texts near it count more. If it is absent, every text counts
    /// by its length.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
    /// Whether summaries under the document may be chosen; true by default.
    #[serde(default = "yes")]
    pub summaries: bool,
    /// Whether to include the texts of what was chosen; true by default. Once they fill 8 MiB (`SVC_PAGE_BYTES`), those
    /// that do not fit are left out, and `omitted` says so for each.
    #[serde(default = "yes")]
    pub include_content: bool,
    /// Whether to include the vectors.
    #[serde(default)]
    pub include_embed: bool,
}
impl PortfolioRequest {
    /// A request with this budget and otherwise the defaults.
    pub fn new(tokens: u32) -> PortfolioRequest {
        PortfolioRequest { tokens, query: None, summaries: true, include_content: true, include_embed: false }
    }
}
impl Wire for PortfolioRequest {
    shows_embed! {}
    constrain! { tokens: Constraint::Whole(1, 1_000_000), query: Constraint::Text(1, 8_000, Form::NotBlank) }
}

fn yes() -> bool {
    true
}

wire_words! {
    /// How a portfolio was chosen: always by the best gain for each token, by the best gain, or after the best single text.
    PortfolioRule { GainPerToken = "gain_per_token", Gain = "gain", BestSingle = "best_single", }
}

/// The part of a subtree that covers the rest of it best within a budget of tokens.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct PortfolioResponse {
    pub document_id: i64,
    /// The chosen documents: summaries first, those of the highest level first of all, and then the leaves in the order in
    /// which the tree is read.
    pub nodes: Vec<PortfolioNode>,
    /// The tokens of all chosen texts.
    pub tokens: u64,
    /// How well the leaves are covered, from 0 to 1: the weighted mean of each leaf's similarity to the nearest chosen
    /// text.
    pub coverage: f64,
    /// No choice within the budget covers more than this.
    pub bound: f64,
    /// Every portfolio reaches at least this share of the best possible coverage; this one reaches at least
    /// `coverage / bound`.
    pub guarantee: f64,
    pub rule: PortfolioRule,
    /// The number of readable leaves under the document, all of which are to be covered.
    pub leaves: usize,
    /// The number of leaves and summaries to choose from.
    pub candidates: usize,
    /// The model whose vectors and tokens count: its name and the hash of everything that decides a vector.
    pub model: String,
    pub latency_ms: f64,
}
impl Wire for PortfolioResponse {}

/// A chosen document.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct PortfolioNode {
    pub document: DocumentResponse,
    pub tokens: u64,
    /// What it added to the coverage when it was chosen.
    pub gain: f64,
    /// Its place in the order of the choice, from 1. The first ones are the ones to keep if the budget shrinks.
    pub turn: usize,
}
