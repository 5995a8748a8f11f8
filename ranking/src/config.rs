//! The configuration of a BM25 index, as it is stored.
use crate::{AnalyzerConfig, Parameters};
use serde::{Deserialize, Serialize};

/// A value that makes no sense to the formula or the analyzer; the message begins with its key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(pub String);

/// k1 and b of the formula, how texts become terms, and what titles count.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// The saturation of term frequencies, 0 to 1000.
    #[serde(default = "Config::default_k1")]
    pub k1: f64,
    /// The normalisation of lengths, 0 to 1.
    #[serde(default = "Config::default_b")]
    pub b: f64,
    #[serde(default)]
    pub analyzer: AnalyzerConfig,
    /// How often each word of a title counts, 0 to 10.
    #[serde(default = "Config::default_title_weight")]
    pub title_weight: u32,
    /// Whether the titles above a chunk are indexed with it. Before there was a choice they were not.
    #[serde(default)]
    pub title_paths: bool,
}

/// The most that a word of a title counts.
const MOST_TITLE_WEIGHT: u32 = 10;

impl Config {
    fn default_k1() -> f64 {
        1.2
    }

    fn default_b() -> f64 {
        0.75
    }

    fn default_title_weight() -> u32 {
        1
    }

    /// Refuses values that make no sense to the formula, naming the key.
    pub fn validate(&self) -> Result<(), ConfigError> {
        if !(0.0..=1000.0).contains(&self.k1) {
            return Err(ConfigError(format!("k1 is {}; it takes a number from 0 to 1000", self.k1)));
        }
        if !(0.0..=1.0).contains(&self.b) {
            return Err(ConfigError(format!("b is {}; it takes a number from 0 to 1", self.b)));
        }
        if self.title_weight > MOST_TITLE_WEIGHT {
            return Err(ConfigError(format!(
                "title_weight is {}; it takes a number from 0 to {MOST_TITLE_WEIGHT}",
                self.title_weight
            )));
        }
        self.analyzer.validate()
    }

    /// Whether two configurations make the same postings of every document.
    pub fn same_postings(&self, other: &Self) -> bool {
        self.analyzer.same_terms(&other.analyzer)
            && self.title_weight == other.title_weight
            && self.title_paths == other.title_paths
    }

    pub fn parameters(&self) -> Parameters {
        Parameters { k1: self.k1, b: self.b }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            k1: Self::default_k1(),
            b: Self::default_b(),
            analyzer: AnalyzerConfig::default(),
            title_weight: Self::default_title_weight(),
            title_paths: false,
        }
    }
}
