//! BM25 over blocks of postings kept in tables and scored here.
//!
//! Writing: [`prepare`] analyses texts and interns their terms outside any transaction; [`append`], [`remove`] and
//! [`replace`] are bulk statements in the caller's transaction; [`compact`] seals what they left. Reading: [`search`].
//!
//! N, the average length and every document frequency are exact in each reader's snapshot: totals are the folded ones
//! plus the deltas, df is the sealed count plus the tail postings minus the tombstones, all written by the same
//! transaction as the postings.

mod analyzer;
mod block;
mod cache;
mod compact;
mod postings;
mod read;
mod score;
mod topk;
mod write;

#[cfg(test)]
mod tests;

pub use analyzer::{Analyzer, AnalyzerConfig, Bag, Language, StopWords};
pub use cache::Cache;
pub use compact::{Compaction, compact};
pub use read::{Allowed, Hit, Verified, Verify, search};
pub use score::Parameters;
pub use write::{Prepared, Text, append, intern, prepare, remove, replace};

use serde::{Deserialize, Serialize};

/// `search_indexes.config`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Term-frequency saturation, 0 to 1000.
    #[serde(default = "Config::default_k1")]
    pub k1: f64,
    /// Length normalisation, 0 to 1.
    #[serde(default = "Config::default_b")]
    pub b: f64,
    #[serde(default)]
    pub analyzer: AnalyzerConfig,
}

impl Config {
    fn default_k1() -> f64 {
        1.2
    }

    fn default_b() -> f64 {
        0.75
    }

    /// Refuses values that the formula has no meaning for, naming the key.
    pub fn validate(&self) -> Result<(), Error> {
        if !(0.0..=1000.0).contains(&self.k1) {
            return Err(Error::Config(format!("k1 is {}; it takes a number from 0 to 1000", self.k1)));
        }
        if !(0.0..=1.0).contains(&self.b) {
            return Err(Error::Config(format!("b is {}; it takes a number from 0 to 1", self.b)));
        }
        self.analyzer.validate()
    }

    pub fn parameters(&self) -> Parameters {
        Parameters { k1: self.k1, b: self.b }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self { k1: Self::default_k1(), b: Self::default_b(), analyzer: AnalyzerConfig::default() }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("no search index has the id {0}; list the indexes for those that exist")]
    UnknownIndex(i64),
    #[error("index config: {0}")]
    Config(String),
    #[error("a document of this batch is already in index {0}; remove it first, in the same transaction")]
    AlreadyIndexed(i64),
    #[error(
        "the ids of terms in index {0} are not those that this process remembers: the database was restored; try again"
    )]
    StaleTerms(i64),
    #[error("postings of term {term} in index {index} cannot be read ({reason}); refresh the index")]
    Corrupt { index: i64, term: i32, reason: &'static str },
    #[error("analysis or scoring was cut off because the process is ending")]
    Stopped,
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}
