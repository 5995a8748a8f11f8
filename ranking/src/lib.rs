//! How results are ranked and sequences cut: text to terms, packed postings, BM25, rank fusion, late interaction and
//! changepoints. Everything here is pure and works on numbers; the caller decides what is stored where.

mod analyzer;
mod block;
mod cache;
mod changepoints;
mod config;
mod fusion;
mod late_interaction;
mod postings;
mod score;
mod topk;

#[cfg(test)]
mod tests;

pub use analyzer::{Analyzer, AnalyzerConfig, Bag, Language, StopWords};
pub use block::{Posting, Row, decode_row, encode_rows};
pub use cache::{Cache, SealedKey};
pub use changepoints::{Segment, Segmenter, changepoints};
pub use config::{Config, ConfigError};
pub use fusion::{Fused, Place, Weights, fuse};
pub use late_interaction::{sum_of_nearest, unpack};
pub use postings::Postings;
pub use score::{Bounds, Curve, List, MAX_TERMS, Parameters, Scoring, idf};
