//! Finds the sentences of a block of prose, by UAX 29 without its false ends.

use std::ops::Range;
use unicode_segmentation::UnicodeSegmentation;

/// A name follows these.
const TITLES: [&str; 13] = ["dr", "mr", "mrs", "ms", "prof", "st", "hr", "fr", "gen", "sen", "rep", "rev", "lt"];
/// A number follows these.
const REFERENCES: [&str; 18] = [
    "sec", "fig", "figs", "eq", "eqs", "no", "nr", "art", "vol", "ch", "chap", "p", "pp", "abb", "kap", "abs", "ref",
    "tab",
];
/// More of the same sentence follows these.
const INNER: [&str; 12] = ["e.g", "i.e", "cf", "vs", "approx", "ca", "al", "bzw", "z.b", "d.h", "vgl", "resp"];

/// Segmenting looks ahead over white space without bound, so it gets windows of the text.
const WINDOW: usize = 16 << 10;

/// The sentences of a range, in order; together they are the whole range.
pub(super) fn sentences(text: &str, range: Range<usize>) -> Vec<Range<usize>> {
    // UAX 29 ends a sentence at every line, but the lines of one block belong together.
    let block = text[range.clone()].replace('\n', " ");
    let mut sentences: Vec<Range<usize>> = Vec::new();
    // The start of the present sentence, and how far it has been read.
    let (mut start, mut at) = (0, 0);
    while at < block.len() {
        let end = block.floor_char_boundary(at + WINDOW);
        let bounds = block[at..end].split_sentence_bound_indices().map(|(bound, _)| at + bound).skip(1);
        let bounds: Vec<usize> = bounds.chain((end == block.len()).then_some(end)).collect();
        // If there is no bound, the sentence is longer than the window and goes on in the next.
        at = bounds.last().copied().unwrap_or(end);
        for bound in bounds {
            match sentences.last_mut() {
                Some(last) if is_false_end(&block[last.clone()], &block[start..bound]) => last.end = bound,
                _ => sentences.push(start..bound),
            }
            start = bound;
        }
    }
    for sentence in &mut sentences {
        *sentence = range.start + sentence.start..range.start + sentence.end;
    }
    sentences
}

fn is_false_end(before: &str, after: &str) -> bool {
    let after = after.trim_start();
    if after.is_empty() {
        return true;
    }
    let Some(before) = before.trim_end().strip_suffix('.') else { return false };
    let word = before
        .rsplit(|character: char| character.is_whitespace() || matches!(character, '(' | '[' | '"'))
        .next()
        .unwrap_or("");
    // Longer words are in none of the lists, and a sentence may be one long word.
    if word.is_empty() || word.len() > 16 {
        return false;
    }
    let mut characters = word.chars();
    // It is an initial, as in "J. Smith"; a single letter that ends a sentence is far rarer.
    let is_initial = characters.next().is_some_and(char::is_uppercase) && characters.next().is_none() && word != "I";
    let lower = word.to_lowercase();
    let is = |list: &[&str]| list.contains(&lower.as_str());
    is_initial
        || is(&TITLES)
        || is(&INNER)
        || (is(&REFERENCES) && after.starts_with(|character: char| character.is_numeric()))
        // It numbers an item, as in "2. Second".
        || (before == word && word.chars().all(char::is_numeric))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Vec<&str> {
        sentences(text, 0..text.len()).into_iter().map(|range| text[range].trim()).collect()
    }

    #[test]
    fn abbreviations_numbers_and_lines_do_not_end_a_sentence() {
        let text =
            "Dr. Smith met J. Doe. See Sec. 2.1 and Fig. 3, e.g. Apples\nover two lines. The answer was no. Next!";
        let expected = [
            "Dr. Smith met J. Doe.",
            "See Sec. 2.1 and Fig. 3, e.g. Apples\nover two lines.",
            "The answer was no.",
            "Next!",
        ];
        assert_eq!(of(text), expected);
        assert_eq!(of("2. Second item. More."), ["2. Second item.", "More."]);
    }

    #[test]
    fn other_scripts_end_sentences_too() {
        assert_eq!(of("これは文です。次の文です。"), ["これは文です。", "次の文です。"]);
    }

    #[test]
    fn windows_lose_nothing() {
        let text = "A sentence of words. ".repeat(3000) + &" ".repeat(50_000) + &"x".repeat(50_000);
        let found = sentences(&text, 0..text.len());
        assert_eq!(found.first().unwrap().start, 0);
        assert_eq!(found.last().unwrap().end, text.len());
        assert!(found.windows(2).all(|pair| pair[0].end == pair[1].start));
        assert!(found.iter().take(2990).all(|range| text[range.clone()].trim() == "A sentence of words."));
    }
}
