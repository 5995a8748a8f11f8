//! The index that every answer is compared with: the formula over whole texts in memory, and random texts for it.

use std::collections::{BTreeMap, HashMap};
use svc::search::bm25::Hit;
use svc_ids::DocumentId;
use svc_ranking::{Analyzer, Config};

pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % n
    }

    /// Words `w0`, `w1`, ..., of which the first are far more frequent.
    pub(super) fn text(&mut self, vocabulary: u64, most: u64) -> String {
        let words: Vec<String> = (0..1 + self.below(most))
            .map(|_| {
                let bound = 1 + self.below(vocabulary);
                format!("w{}", self.below(bound))
            })
            .collect();
        words.join(" ")
    }
}

/// The formula over whole texts in memory.
#[derive(Clone)]
pub(super) struct Naive {
    pub(super) config: Config,
    pub(super) texts: BTreeMap<i64, BTreeMap<Box<str>, u32>>,
}

impl Naive {
    pub(super) fn new(config: Config) -> Self {
        Self { config, texts: BTreeMap::new() }
    }

    pub(super) fn put(&mut self, id: i64, text: &str) {
        let bag = Analyzer::new(self.config.analyzer).bag(text);
        self.texts.insert(id, bag.terms.into_iter().collect());
    }

    pub(super) fn search(&self, query: &str, limit: usize, allowed: impl Fn(i64) -> bool) -> Vec<Hit> {
        let Config { k1, b, analyzer, .. } = self.config;
        let query: BTreeMap<Box<str>, u32> = Analyzer::new(analyzer).query(query).terms.into_iter().collect();
        let n = self.texts.len() as f64;
        let length = |bag: &BTreeMap<Box<str>, u32>| f64::from(bag.values().sum::<u32>());
        let average = self.texts.values().map(length).sum::<f64>() / n;
        let mut scores: HashMap<i64, f64> = HashMap::new();
        for (term, &count) in &query {
            let df = self.texts.values().filter(|bag| bag.contains_key(term)).count() as f64;
            let idf = (1.0 + (n - df + 0.5) / (df + 0.5)).ln();
            for (&id, bag) in &self.texts {
                if let Some(&tf) = bag.get(term) {
                    let tf = f64::from(tf);
                    *scores.entry(id).or_default() +=
                        idf * (k1 + 1.0) * f64::from(count) * tf / (tf + k1 * (1.0 - b + b * length(bag) / average));
                }
            }
        }
        let mut hits: Vec<Hit> = scores
            .into_iter()
            .filter(|&(id, _)| allowed(id))
            .map(|(document_id, score)| Hit { document_id: DocumentId(document_id), score })
            .collect();
        hits.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.document_id.cmp(&b.document_id)));
        hits.truncate(limit);
        hits
    }
}

/// Scores must agree within 1e-6, and so must the order, except for documents whose naive scores are that close.
pub(super) fn assert_same(found: &[Hit], expected: &[Hit], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}: {found:?} {expected:?}");
    for (found, expected) in std::iter::zip(found, expected) {
        assert!((found.score - expected.score).abs() < 1e-6, "{what}: {found:?} {expected:?}");
    }
    let ids = |hits: &[Hit]| hits.iter().map(|hit| hit.document_id).collect::<Vec<_>>();
    if ids(found) != ids(expected) {
        for pair in std::iter::zip(found, expected).collect::<Vec<_>>().windows(2) {
            let apart = (pair[0].1.score - pair[1].1.score).abs() > 1e-9;
            assert!(!apart || pair[0].0.document_id == pair[0].1.document_id || near(expected, pair[0].1), "{what}");
        }
    }
}

fn near(hits: &[Hit], hit: &Hit) -> bool {
    hits.iter().any(|other| other.document_id != hit.document_id && (other.score - hit.score).abs() < 1e-9)
}
