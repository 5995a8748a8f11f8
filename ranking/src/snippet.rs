//! The piece of a text that shows why it was found.
use crate::{Analyzer, AnalyzerConfig, StopWords};
use std::{
    cmp::Reverse,
    collections::{HashMap, HashSet},
    ops::Range,
};
use unicode_segmentation::UnicodeSegmentation;

/// The most words that are marked in one snippet.
const MARKED: usize = 32;

/// A piece of a text. All places are numbers of Unicode code points.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snippet {
    /// A literal piece of the text.
    pub text: String,
    /// Where it begins in the text.
    pub start: usize,
    /// The words of the query in the piece, each from its first code point to behind its last.
    pub highlights: Vec<(usize, usize)>,
}

/// Finds the words of a query in texts.
pub struct Highlighter {
    analyzer: Analyzer,
    terms: HashMap<Box<str>, usize>,
}

/// A word of the query in a text: its bytes, its code points, and its number among the query's terms.
#[derive(Clone, Copy, Debug)]
struct Match {
    bytes: (usize, usize),
    chars: (usize, usize),
    term: usize,
}

impl Highlighter {
    /// Stop words of the query are only marked if it has nothing else.
    pub fn new(config: AnalyzerConfig, query: &str) -> Highlighter {
        let kept = AnalyzerConfig { stop_words: Some(StopWords::Keep), ..config };
        for config in [config, kept] {
            let analyzer = Analyzer::new(config);
            let terms = analyzer.query(query).terms.into_keys();
            let terms: HashMap<Box<str>, usize> = terms.enumerate().map(|(at, term)| (term, at)).collect();
            if !terms.is_empty() {
                return Highlighter { analyzer, terms };
            }
        }
        Highlighter { analyzer: Analyzer::new(config), terms: HashMap::new() }
    }

    /// The piece with the most of the query's words, of at most `most` code points; `None` if the text has none of them. It begins and
    /// ends between words, and at a sentence where one is near.
    pub fn best(&self, text: &str, most: usize) -> Option<Snippet> {
        let matches = self.matches(text);
        let (first, last) = densest(&matches, most)?;
        Some(cut(text, matches[first].bytes.0, matches[last].bytes.1, most, &matches))
    }

    /// The piece that begins at this byte, which must be the border of a code point.
    pub fn at(&self, text: &str, start: usize, most: usize) -> Snippet {
        let start = if text.is_char_boundary(start) { start } else { 0 };
        // No match reaches beyond the piece, so what is behind it is not looked at.
        let end = nth(text, start, most.saturating_add(64));
        let before = text[..start].chars().count();
        let mut matches = self.matches(&text[start..end]);
        for found in &mut matches {
            found.bytes = (found.bytes.0 + start, found.bytes.1 + start);
            found.chars = (found.chars.0 + before, found.chars.1 + before);
        }
        piece(text, start, start, most, &matches)
    }

    /// In the order of the text; some may overlap.
    fn matches(&self, text: &str) -> Vec<Match> {
        let mut found: Vec<(Range<usize>, usize)> = Vec::new();
        self.analyzer.tokens_with_ranges(text, |token| {
            if let Some(term) = self.terms.get(token.term) {
                found.push((token.range, *term));
            }
        });
        found.sort_unstable_by_key(|(range, term)| (range.start, range.end, *term));
        let (mut bytes, mut chars) = (0, 0);
        let place = |(range, term): (Range<usize>, usize)| {
            chars += text[bytes..range.start].chars().count();
            bytes = range.start;
            let width = text[range.clone()].chars().count();
            Match { bytes: (range.start, range.end), chars: (chars, chars + width), term }
        };
        found.into_iter().map(place).collect()
    }
}

/// The first and the last of the matches that lie within `most` code points and have the most terms; of equal ones those that are closest
/// to each other, and the first of those.
fn densest(matches: &[Match], most: usize) -> Option<(usize, usize)> {
    let mut counts: HashMap<usize, usize> = HashMap::new();
    let mut best: Option<((usize, Reverse<usize>), usize, usize)> = None;
    let mut first = 0;
    for (last, found) in matches.iter().enumerate() {
        *counts.entry(found.term).or_default() += 1;
        while first < last {
            let term = matches[first].term;
            let is_far = found.chars.1.saturating_sub(matches[first].chars.0) > most;
            let Some(count) = counts.get_mut(&term).filter(|count| is_far || **count > 1) else { break };
            *count -= 1;
            if *count == 0 {
                counts.remove(&term);
            }
            first += 1;
        }
        let rank = (counts.len(), Reverse(found.chars.0 - matches[first].chars.0));
        if best.as_ref().is_none_or(|(other, ..)| rank > *other) {
            best = Some((rank, first, last));
        }
    }
    best.map(|(_, first, last)| (first, last))
}

/// The piece around these bytes.
fn cut(text: &str, from: usize, to: usize, most: usize, matches: &[Match]) -> Snippet {
    let core = text[from..to].chars().count().min(most);
    let earliest = nth_back(text, from, most - core);
    let lead = &text[earliest..from];
    let sentence = lead
        .split_sentence_bound_indices()
        .map(|(at, _)| at + earliest)
        .filter(|at| *at > earliest || earliest == 0)
        .last();
    // A sentence that begins exactly here ends the one before.
    let ends_before = lead.trim_end().ends_with(['.', '!', '?', '。', '！', '？']) || lead.ends_with('\n');
    let begin = match sentence {
        _ if ends_before => from,
        Some(at) => at,
        None => {
            let half = nth_back(text, from, (most - core) / 2);
            let words = text[half..from].split_word_bound_indices().map(|(at, _)| at + half);
            words.filter(|at| *at > half).find(|at| starts_word(text, *at)).unwrap_or(from)
        }
    };
    piece(text, begin, to, most, matches)
}

fn starts_word(text: &str, at: usize) -> bool {
    text[at..].chars().next().is_some_and(char::is_alphanumeric)
}

/// The piece from `begin` on, which holds what is up to `to` if there is room.
fn piece(text: &str, begin: usize, to: usize, most: usize, matches: &[Match]) -> Snippet {
    let limit = nth(text, begin, most);
    let end = if limit == text.len() { limit } else { last_border(text, begin, to, limit) };
    let raw = &text[begin..end];
    let start = begin + (raw.len() - raw.trim_start().len());
    let piece = raw.trim();
    let end = start + piece.len();
    let before = text[..start].chars().count();
    let inside = matches.iter().filter(|found| found.bytes.0 >= start && found.bytes.1 <= end);
    let mut highlights: Vec<(usize, usize)> = Vec::new();
    for (from, to) in inside.map(|found| (found.chars.0 - before, found.chars.1 - before)) {
        match highlights.last_mut().filter(|last| from < last.1) {
            Some(last) => last.1 = last.1.max(to),
            None => highlights.push((from, to)),
        }
    }
    highlights.truncate(MARKED);
    Snippet { text: piece.to_owned(), start: before, highlights }
}

/// Where a piece from `begin` to `limit` at most ends: with a sentence, if that keeps half of it, otherwise between words, otherwise
/// between characters as people see them.
fn last_border(text: &str, begin: usize, to: usize, limit: usize) -> usize {
    // What is behind the limit decides whether the limit itself is a border.
    let room = &text[begin..nth(text, limit, 64)];
    let whole: HashSet<usize> = room.grapheme_indices(true).map(|(at, _)| begin + at).collect();
    let fits = |at: &usize| *at > begin && *at <= limit && whole.contains(at);
    let half = begin + (limit - begin) / 2;
    let sentence = room.split_sentence_bound_indices().map(|(at, _)| begin + at).filter(fits).last();
    if let Some(at) = sentence.filter(|at| *at >= to.min(limit) && *at >= half) {
        return at;
    }
    let mut words = room.split_word_bound_indices().map(|(at, _)| begin + at);
    let word = words.rfind(fits).filter(|at| *at >= to.min(half));
    word.or_else(|| whole.iter().copied().filter(fits).max()).unwrap_or(limit)
}

/// The byte behind `count` code points from `from` on, or the end.
fn nth(text: &str, from: usize, count: usize) -> usize {
    text[from..].char_indices().nth(count).map_or(text.len(), |(at, _)| from + at)
}

/// The byte `count` code points before `from`, or the beginning.
fn nth_back(text: &str, from: usize, count: usize) -> usize {
    match count.checked_sub(1) {
        Some(last) => text[..from].char_indices().nth_back(last).map_or(0, |(at, _)| at),
        None => from,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn marked(query: &str, text: &str, most: usize) -> Option<(String, Vec<String>)> {
        let snippet = Highlighter::new(AnalyzerConfig::default(), query).best(text, most)?;
        let word = |(start, end): &(usize, usize)| snippet.text.chars().skip(*start).take(end - start).collect();
        let words = snippet.highlights.iter().map(word).collect();
        Some((snippet.text, words))
    }

    #[test]
    fn the_piece_has_most_words_of_the_query_and_whole_sentences_where_they_fit() {
        let text = "Herons wait. The gauge of the tank is new. It measures levels by radar, and the gauges of old were floats. Bread is baked.";
        let (piece, words) = marked("radar gauge", text, 70).unwrap();
        assert_eq!(piece, "It measures levels by radar, and the gauges of old were floats.");
        assert_eq!(words, ["radar", "gauges"]);
        let (piece, words) = marked("radar gauge", text, 30).unwrap();
        assert!(piece.chars().count() <= 30 && words == ["radar", "gauges"], "{piece} {words:?}");
        assert_eq!(marked("volcano", text, 80), None);
        assert_eq!(
            marked("of the", "Nothing of the kind.", 80).unwrap().1,
            ["of", "the"],
            "a query of stop words alone"
        );
    }

    #[test]
    fn pairs_of_signs_are_marked_and_no_character_is_cut() {
        assert_eq!(marked("東京", "日本の首都は東京都です。", 80).unwrap().1, ["東京"]);
        assert_eq!(marked("塔", "電波塔", 80).unwrap().1, ["塔"]);
        let family = "👩‍👩‍👧‍👦";
        let text = format!("gauge {}", family.repeat(20));
        let (piece, _) = marked("gauge", &text, 20).unwrap();
        assert_eq!(piece, format!("gauge {}", family.repeat(2)).trim_end());
    }

    proptest! {
        #[test]
        fn a_piece_is_a_bounded_piece_of_its_text(text in "(\\PC|[a-c .!\n]|gauge |東京|e\u{301}){0,200}", query in "(gauge|東京|[a-c ]){1,4}", most in 1usize..60, start in 0usize..400) {
            let highlighter = Highlighter::new(AnalyzerConfig::default(), &query);
            let start = (0..=start.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap();
            for snippet in highlighter.best(&text, most).into_iter().chain([highlighter.at(&text, start, most)]) {
                let length = snippet.text.chars().count();
                prop_assert!(length <= most);
                prop_assert_eq!(&text.chars().skip(snippet.start).take(length).collect::<String>(), &snippet.text);
                prop_assert!(snippet.highlights.iter().all(|(from, to)| from < to && *to <= length));
                prop_assert!(snippet.highlights.is_sorted());
            }
        }
    }
}
