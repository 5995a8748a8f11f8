//! How results are ranked, sequences cut and texts chosen: text to terms, packed postings, BM25, fusion by ranks and scores, feedback,
//! changepoints, clusters, extracts, coverage, diversity, and analyses of networks. Everything here is pure and works on numbers; the caller
//! decides what is stored where.

mod analyzer;
mod block;
mod cache;
mod changepoints;
mod clusters;
mod config;
mod coverage;
mod diversity;
mod extract;
mod feedback;
mod fusion;
mod meant;
mod mixture;
mod network;
mod points;
mod postings;
mod random;
mod score;
mod snippet;
mod topk;
mod totals;

#[cfg(test)]
mod tests;

pub use analyzer::{
    ANALYZER_VERSION, Analyzer, AnalyzerConfig, Bag, Kind, Language, StopWords, Token, without_language,
};
pub use block::{Posting, Row, decode_row, encode_rows};
pub use cache::{Cache, Newest, SealedKey, Seen, SeenIndex};
pub use changepoints::{Segment, Segmenter, changepoints};
pub use clusters::{Clustering, Member};
pub use config::{Config, ConfigError};
pub use coverage::{Chosen, Coverage, GUARANTEE, Portfolio, Rule, choose};
pub use diversity::{by_diversity, by_recency, relevance};
pub use extract::{extract, sentences};
pub use feedback::{Weighted, characteristic, relevance_model};
pub use fusion::{Fused, LegRanking, Place, Weights, fuse_by_rank, fuse_by_score};
pub use meant::meant;
pub use network::{Betweenness, Communities, DAMPING, EXACT, Forest, Network, PageRank, Spine, Stop};
pub use points::{Points, dot};
pub use postings::Postings;
pub use score::{Bounds, Curve, List, MAX_TERMS, Parameters, Scoring, idf};
pub use snippet::{Highlighter, Snippet};
pub use totals::Totals;
