use super::ConfigError;
use rust_stemmers::{Algorithm, Stemmer};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use unicode_segmentation::UnicodeSegmentation;

/// Longer words are encodings and noise; they are neither terms nor counted in a document's length.
const MAX_TERM_CHARS: usize = 64;
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
    fn algorithm(self) -> Option<Algorithm> {
        Some(match self {
            Self::None => return None,
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopWords {
    Keep,
    Remove,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AnalyzerConfig {
    pub language: Language,
    /// `None`: stop words are removed if the language has a list, and kept otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_words: Option<StopWords>,
}

impl AnalyzerConfig {
    pub fn validate(&self) -> Result<(), ConfigError> {
        if self.stop_words == Some(StopWords::Remove) && self.language != Language::English {
            return Err(ConfigError(
                "analyzer.stop_words can only be `remove` if analyzer.language is `english`; use `keep`".into(),
            ));
        }
        Ok(())
    }

    /// Whether two configurations make the same terms of every text.
    pub fn same_terms(&self, other: &Self) -> bool {
        self.language == other.language && self.removes_stop_words() == other.removes_stop_words()
    }

    fn removes_stop_words(&self) -> bool {
        self.language == Language::English && self.stop_words != Some(StopWords::Keep)
    }
}

/// The terms of one text and how often each occurs; `length` counts every occurrence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bag {
    pub length: u32,
    pub terms: HashMap<Box<str>, u32>,
}

/// Turns text into terms: Unicode words, lower case, stems. Runs of Han, Kana and Hangul become overlapping pairs of
/// characters. The time is linear in the text.
pub struct Analyzer {
    stemmer: Option<Stemmer>,
    /// Sorted.
    stop_words: &'static [&'static str],
}

impl Analyzer {
    pub fn new(config: AnalyzerConfig) -> Self {
        Self {
            stemmer: config.language.algorithm().map(Stemmer::create),
            // On Cranfield nDCG@10 is .385 without them and .383 with them, and they have the longest lists of all.
            stop_words: if config.removes_stop_words() { &ENGLISH_STOP_WORDS } else { &[] },
        }
    }

    pub fn bag(&self, text: &str) -> Bag {
        let mut bag = Bag::default();
        self.each_term(text, |term| {
            bag.length = bag.length.saturating_add(1);
            match bag.terms.get_mut(term) {
                Some(count) => *count = (*count + 1).min(MAX_TF),
                None => {
                    bag.terms.insert(term.into(), 1);
                }
            }
        });
        bag
    }

    /// Calls `emit` with each term in the order of the text.
    pub fn each_term(&self, text: &str, mut emit: impl FnMut(&str)) {
        let mut run = Run::default();
        for (start, word) in text.unicode_word_indices() {
            // A word may hold both kinds: to the word rules Hangul is a letter like any other.
            let mut piece = 0;
            for (at, ch) in word.char_indices() {
                if is_cjk(ch) {
                    self.word(&word[piece..at], &mut emit);
                    piece = at + ch.len_utf8();
                    run.push(ch, start + at, &mut emit);
                }
            }
            self.word(&word[piece..], &mut emit);
        }
        run.end(&mut emit);
    }

    fn word(&self, word: &str, emit: &mut impl FnMut(&str)) {
        // The count stops at the limit, so that a huge word is not walked twice.
        if !word.chars().any(char::is_alphanumeric) || word.chars().nth(MAX_TERM_CHARS).is_some() {
            return;
        }
        let lower = word.to_lowercase().replace('\u{2019}', "'");
        if self.stop_words.binary_search(&lower.as_str()).is_ok() {
            return;
        }
        match &self.stemmer {
            None => emit(&lower),
            Some(stemmer) => {
                let stem = stemmer.stem(&lower);
                // A stemmer may remove a whole word; then the word is its own stem.
                emit(if stem.is_empty() { &lower } else { &stem });
            }
        }
    }
}

/// A run of adjacent CJK characters; a single one is a term by itself.
#[derive(Default)]
struct Run {
    last: Option<char>,
    end: usize,
    pairs: bool,
}

impl Run {
    fn push(&mut self, ch: char, at: usize, emit: &mut impl FnMut(&str)) {
        if at != self.end {
            self.end(emit);
        }
        let mut buffer = [0u8; 8];
        if let Some(last) = self.last {
            let first = last.encode_utf8(&mut buffer).len();
            let second = ch.encode_utf8(&mut buffer[first..]).len();
            if let Ok(pair) = std::str::from_utf8(&buffer[..first + second]) {
                emit(pair);
            }
            self.pairs = true;
        }
        self.last = Some(ch);
        self.end = at + ch.len_utf8();
    }

    fn end(&mut self, emit: &mut impl FnMut(&str)) {
        if let (Some(last), false) = (self.last, self.pairs) {
            emit(last.encode_utf8(&mut [0u8; 4]));
        }
        *self = Self::default();
    }
}

fn is_cjk(ch: char) -> bool {
    matches!(u32::from(ch),
        0x1100..=0x11FF          // Hangul Jamo
        | 0x3005..=0x3007        // Han iteration mark and zero
        | 0x3041..=0x3096 | 0x309D..=0x309F // Hiragana
        | 0x30A1..=0x30FA | 0x30FC..=0x30FF // Katakana
        | 0x3130..=0x318F        // Hangul compatibility Jamo
        | 0x31F0..=0x31FF        // Katakana extensions
        | 0x3400..=0x4DBF | 0x4E00..=0x9FFF | 0xF900..=0xFAFF // Han
        | 0xAC00..=0xD7A3        // Hangul syllables
        | 0xFF66..=0xFF9F        // half-width Katakana
        | 0x20000..=0x3FFFF)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(config: AnalyzerConfig, text: &str) -> Vec<String> {
        let mut out = vec![];
        Analyzer::new(config).each_term(text, |term| out.push(term.into()));
        out
    }

    #[test]
    fn text_becomes_the_terms_a_reader_expects() {
        let bare = AnalyzerConfig::default();
        let english = AnalyzerConfig { stop_words: Some(StopWords::Keep), ..bare };
        let plain = AnalyzerConfig { language: Language::None, ..bare };
        let german = AnalyzerConfig { language: Language::German, ..bare };
        for (config, text, expected) in [
            (english, "Running runners RAN, quickly!", "run runner ran quick"),
            (english, "the cat\u{2019}s whiskers don't", "the cat whisker don't"),
            (bare, "The cat is on the mat", "cat mat"),
            (plain, "Running Straße ÉCOLE", "running straße école"),
            (german, "Häuser", "haus"),
            (english, "ISO 9001, 3.14 and 1,000", "iso 9001 3.14 and 1,000"),
            (english, "東京都 に", "東京 京都 に"),
            (english, "カタカナー", "カタ タカ カナ ナー"),
            (english, "한국어 a말", "한국 국어 a 말"),
            (english, "漢、字", "漢 字"),
            (english, " \u{0} -- ... \u{200d}", ""),
        ] {
            assert_eq!(terms(config, text).join(" "), expected, "{text:?}");
        }
    }

    #[test]
    fn a_huge_word_is_no_term_and_adds_no_length() {
        let mut text = "x".repeat(2 << 20);
        text.push_str(" tail");
        let bag = Analyzer::new(AnalyzerConfig::default()).bag(&text);
        assert_eq!(bag.length, 1);
        assert_eq!(bag.terms.keys().map(|term| &**term).collect::<Vec<_>>(), ["tail"]);
        let just_fits = "é".repeat(MAX_TERM_CHARS);
        assert_eq!(terms(AnalyzerConfig { language: Language::None, ..Default::default() }, &just_fits).len(), 1);
    }

    #[test]
    fn a_frequency_stops_at_what_its_column_holds() {
        let bag = Analyzer::new(AnalyzerConfig::default()).bag(&"wing ".repeat(40_000));
        assert_eq!((bag.length, bag.terms["wing"]), (40_000, MAX_TF));
    }

    #[test]
    fn stop_words_of_a_language_without_a_list_are_refused() {
        let config = AnalyzerConfig { language: Language::French, stop_words: Some(StopWords::Remove) };
        assert!(config.validate().expect_err("refused").to_string().contains("analyzer.language"));
        assert!(ENGLISH_STOP_WORDS.is_sorted());
    }

    proptest::proptest! {
        #[test]
        fn no_text_breaks_any_language(text in "\\PC{0,80}") {
            for language in [
                Language::None, Language::Arabic, Language::Danish, Language::Dutch, Language::English, Language::Finnish,
                Language::French, Language::German, Language::Greek, Language::Hungarian, Language::Italian,
                Language::Norwegian, Language::Portuguese, Language::Romanian, Language::Russian, Language::Spanish,
                Language::Swedish, Language::Tamil, Language::Turkish,
            ] {
                for term in terms(AnalyzerConfig { language, ..Default::default() }, &text) {
                    proptest::prop_assert!(!term.is_empty() && term.chars().count() <= 3 * MAX_TERM_CHARS);
                    proptest::prop_assert!(!term.contains('\0'));
                }
            }
        }
    }
}
