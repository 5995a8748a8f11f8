use super::Config;

/// An index as one snapshot sees it: N, its tokens, and which weights its bounds are valid for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Totals {
    pub config: Config,
    pub generation: i64,
    pub rescored_at: i64,
    pub docs: i64,
    pub tokens: i64,
    /// Stands for what a search reads of the index. Each write changes it at random, so that equal ones of one index are of the same contents.
    pub contents: i64,
}

impl Totals {
    /// Tokens per document; 0 for an empty index.
    pub fn average_length(&self) -> f64 {
        if self.docs > 0 { self.tokens.max(0) as f64 / self.docs as f64 } else { 0.0 }
    }
}
