//! From text to terms. A text and a query go the same way, so that what is searched for is what was indexed.
mod normal;
mod stems;
mod walk;

#[cfg(test)]
mod tests;

use super::ConfigError;
use rust_stemmers::Algorithm;
use serde::{Deserialize, Serialize};
use std::{collections::HashMap, ops::Range};
use stems::{Reading, Stems};

/// Counts the changes to this analyzer that give a text other terms: what an earlier version indexed must be indexed anew.
pub const ANALYZER_VERSION: i32 = 2;
/// The largest value of a `smallint`; BM25 saturates long before.
const MAX_TF: u32 = i16::MAX as u32;

/// The words that Lucene's English analyzer leaves out, sorted.
const ENGLISH_STOP_WORDS: [&str; 33] = [
    "a", "an", "and", "are", "as", "at", "be", "but", "by", "for", "if", "in", "into", "is", "it", "no", "not", "of",
    "on", "or", "such", "that", "the", "their", "then", "there", "these", "they", "this", "to", "was", "will", "with",
];

/// Which stemmer runs; `none` leaves words as they are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Language {
    /// Each text has its own.
    Detect,
    None,
    Arabic,
    Danish,
    Dutch,
    #[default]
    English,
    Finnish,
    French,
    German,
    Greek,
    Hungarian,
    Italian,
    Norwegian,
    Portuguese,
    Romanian,
    Russian,
    Spanish,
    Swedish,
    Tamil,
    Turkish,
}

impl Language {
    /// Each with its name.
    pub const NAMES: [(&str, Language); 20] = [
        ("detect", Self::Detect),
        ("none", Self::None),
        ("arabic", Self::Arabic),
        ("danish", Self::Danish),
        ("dutch", Self::Dutch),
        ("english", Self::English),
        ("finnish", Self::Finnish),
        ("french", Self::French),
        ("german", Self::German),
        ("greek", Self::Greek),
        ("hungarian", Self::Hungarian),
        ("italian", Self::Italian),
        ("norwegian", Self::Norwegian),
        ("portuguese", Self::Portuguese),
        ("romanian", Self::Romanian),
        ("russian", Self::Russian),
        ("spanish", Self::Spanish),
        ("swedish", Self::Swedish),
        ("tamil", Self::Tamil),
        ("turkish", Self::Turkish),
    ];

    /// The language's name.
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, language)| *language == self).map_or("none", |(name, _)| name)
    }

    fn algorithm(self) -> Option<Algorithm> {
        Some(match self {
            Self::Detect | Self::None => return None,
            Self::Arabic => Algorithm::Arabic,
            Self::Danish => Algorithm::Danish,
            Self::Dutch => Algorithm::Dutch,
            Self::English => Algorithm::English,
            Self::Finnish => Algorithm::Finnish,
            Self::French => Algorithm::French,
            Self::German => Algorithm::German,
            Self::Greek => Algorithm::Greek,
            Self::Hungarian => Algorithm::Hungarian,
            Self::Italian => Algorithm::Italian,
            Self::Norwegian => Algorithm::Norwegian,
            Self::Portuguese => Algorithm::Portuguese,
            Self::Romanian => Algorithm::Romanian,
            Self::Russian => Algorithm::Russian,
            Self::Spanish => Algorithm::Spanish,
            Self::Swedish => Algorithm::Swedish,
            Self::Tamil => Algorithm::Tamil,
            Self::Turkish => Algorithm::Turkish,
        })
    }
}

/// A term without the name of its language, and that name, which terms bear where each text has a language of its own.
pub fn without_language(term: &str) -> (&str, Option<&str>) {
    let is_language = |name: &str| Language::NAMES.iter().any(|(known, _)| *known == name);
    match term.rsplit_once('/') {
        Some((word, language)) if is_language(language) => (word, Some(language)),
        _ => (term, None),
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopWords {
    Keep,
    Remove,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AnalyzerConfig {
    #[serde(default)]
    pub language: Language,
    /// `None`: stop words are removed if the language has a list, and kept otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_words: Option<StopWords>,
    /// The [`ANALYZER_VERSION`] of the program that made the terms.
    #[serde(default = "first_version")]
    pub version: i32,
}

/// Before there were others, none was written down.
fn first_version() -> i32 {
    1
}

impl Default for AnalyzerConfig {
    fn default() -> Self {
        Self { language: Language::default(), stop_words: None, version: ANALYZER_VERSION }
    }
}

impl AnalyzerConfig {
    pub fn validate(&self) -> Result<(), ConfigError> {
        if self.stop_words == Some(StopWords::Remove) && !matches!(self.language, Language::English | Language::Detect)
        {
            return Err(ConfigError(
                "analyzer.stop_words can only be `remove` if analyzer.language is `english` or `detect`; use `keep`"
                    .into(),
            ));
        }
        Ok(())
    }

    /// Whether two configurations make the same terms of every text.
    pub fn same_terms(&self, other: &Self) -> bool {
        self.language == other.language
            && self.removes_stop_words() == other.removes_stop_words()
            && self.version == other.version
    }

    /// Whether this program makes the terms that this configuration was written for.
    pub fn is_current(&self) -> bool {
        self.version == ANALYZER_VERSION
    }

    fn removes_stop_words(&self) -> bool {
        matches!(self.language, Language::English | Language::Detect) && self.stop_words != Some(StopWords::Keep)
    }
}

/// The terms of one text and how often each occurs. `length` counts every word, however many terms it has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bag {
    pub length: u32,
    pub terms: HashMap<Box<str>, u32>,
}

impl Bag {
    fn add(&mut self, token: &Token<'_>, times: u32) {
        if times == 0 {
            return;
        }
        self.length = self.length.saturating_add(times * u32::from(token.kind == Kind::Word));
        match self.terms.get_mut(token.term) {
            Some(count) => *count = count.saturating_add(times).min(MAX_TF),
            None => {
                self.terms.insert(token.term.into(), times.min(MAX_TF));
            }
        }
    }
}

/// One term of a text, and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token<'a> {
    pub term: &'a str,
    /// The bytes of the text that it is made from, marks and all.
    pub range: Range<usize>,
    /// The number of its word, from 0; a word may have several tokens.
    pub word: u32,
    /// Its place among the terms, from 0, for phrases; forms share the place of what they are forms of.
    pub position: u32,
    pub kind: Kind,
}

impl Token<'_> {
    /// Whether this is a part of a name whose whole is a token too.
    pub fn is_part(&self) -> bool {
        self.kind == Kind::Part
    }
}

/// What a token is of its word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The word, or two neighbours in a run of Han, Kana and Hangul.
    Word,
    /// Another form of the word: without its accents, or without what an apostrophe joins to it.
    Form,
    /// A part of a name such as `get_user` or `user.rs`.
    Part,
    /// One character of a run, so that it is found alone. A query for the run does not look for it.
    Character,
}

/// Turns text into terms, in time linear in the text.
///
/// * Unicode's compatibility forms, cases and accents make no difference: `CAFÉ`, `café` and `cafe` are one term, however they are encoded.
/// * Words are those of Unicode, and are stemmed. Names such as `get_user.rs` are terms as a whole and by their parts.
/// * Runs of Han, Kana and Hangul become overlapping pairs, and single characters for a query that has but one.
/// * Thai, Lao, Khmer and Burmese are cut into words by a dictionary.
/// * An emoji is a term.
pub struct Analyzer {
    stems: Stems,
    /// Sorted.
    stop_words: &'static [&'static str],
}

impl Analyzer {
    pub fn new(config: AnalyzerConfig) -> Self {
        Self {
            stems: Stems::new(config.language),
            // On Cranfield nDCG@10 is .385 without them and .383 with them, and they have the longest lists of all.
            stop_words: if config.removes_stop_words() { &ENGLISH_STOP_WORDS } else { &[] },
        }
    }

    /// The terms of a text, for an index.
    pub fn bag(&self, text: &str) -> Bag {
        self.weighted_bag(text, 0, 1)
    }

    /// The terms of a text whose first `titles` bytes are titles, for an index where each word of a title counts `weight` times.
    pub fn weighted_bag(&self, text: &str, titles: usize, weight: u32) -> Bag {
        let mut bag = Bag::default();
        self.tokens_with_ranges(text, |token| {
            let times = if token.range.start < titles { weight } else { 1 };
            bag.add(&token, times);
        });
        bag
    }

    /// The terms that a query looks for.
    pub fn query(&self, query: &str) -> Bag {
        let mut bag = Bag::default();
        self.query_tokens(query, |token| bag.add(&token, 1));
        bag
    }

    /// Calls `emit` with each word's term, in the order of the text.
    pub fn each_term(&self, text: &str, mut emit: impl FnMut(&str)) {
        self.tokens_with_ranges(text, |token| {
            if token.kind == Kind::Word {
                emit(token.term);
            }
        });
    }

    /// Calls `emit` with every token of a text. A text has what a query looks for if one of its tokens has a term of
    /// [`Analyzer::query`]; the ranges of these are what a reader would mark.
    pub fn tokens_with_ranges(&self, text: &str, emit: impl FnMut(Token<'_>)) {
        let reading = self.stems.read(text);
        walk::walk(self, reading, text, emit);
    }

    /// Calls `emit` with the tokens of a query.
    pub fn query_tokens(&self, query: &str, mut emit: impl FnMut(Token<'_>)) {
        walk::walk(self, Reading::Query, query, |token| {
            if token.kind != Kind::Character {
                emit(token);
            }
        });
    }
}
