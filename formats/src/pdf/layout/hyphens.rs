//! Words that are broken at the end of a line.

use rustc_hash::FxHashSet;
use std::ops::Range;

/// Joins lines to paragraphs, and these to a text in which lines end in `\n` and paragraphs in an empty line. A word that
/// the end of a line breaks is whole again. Each line has its byte range of the text.
pub fn join_lines<'t, P>(paragraphs: &[P]) -> (String, Vec<Range<usize>>)
where
    P: AsRef<[&'t str]>,
{
    let lines = || paragraphs.iter().flat_map(|paragraph| paragraph.as_ref()).copied();
    let words = Words::new(lines());
    let mut text = String::with_capacity(lines().map(|line| line.len() + 1).sum());
    let mut ranges: Vec<Range<usize>> = Vec::with_capacity(lines().count());
    for paragraph in paragraphs {
        let mut before: Option<&str> = None;
        for line in paragraph.as_ref() {
            match before.map(|before| words.join(before, line)) {
                Some(Some(Join::Without)) => {
                    text.pop();
                    if let Some(cut) = ranges.last_mut() {
                        cut.end = text.len();
                    }
                }
                Some(Some(Join::With)) => {}
                Some(None) => text.push('\n'),
                None if text.is_empty() => {}
                None => text.push_str("\n\n"),
            }
            let start = text.len();
            text.push_str(line);
            ranges.push(start..text.len());
            before = Some(line);
        }
    }
    (text, ranges)
}

/// How the end of a line is joined if its word continues in the next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Join {
    /// The hyphen is only there for the break.
    Without,
    /// The hyphen belongs to the word.
    With,
}

/// The words of a page, to distinguish the hyphens of words from those of line ends.
pub(super) struct Words<'t> {
    whole: FxHashSet<&'t str>,
}

impl<'t> Words<'t> {
    pub(super) fn new(lines: impl Iterator<Item = &'t str>) -> Self {
        let mut whole = FxHashSet::default();
        let mut is_cut = false;
        for line in lines {
            // What the end of a line cuts is not a whole word on either side.
            let words = line.split_whitespace().skip(usize::from(is_cut));
            let words = words
                .map(|word| word.trim_matches(|character: char| !character.is_alphanumeric() && !is_hyphen(character)));
            whole.extend(words.filter(|word| !word.ends_with(is_hyphen)));
            is_cut = line.ends_with(is_hyphen);
        }
        Self { whole }
    }

    /// How a line joins the next, or `None` if no word continues.
    pub(super) fn join(&self, line: &str, next: &str) -> Option<Join> {
        let hyphen = line.chars().next_back().filter(|last| is_hyphen(*last))?;
        let before = &line[..line.len() - hyphen.len_utf8()];
        let left = &before[before.trim_end_matches(char::is_alphanumeric).len()..];
        let right = &next[..next.len() - next.trim_start_matches(char::is_alphanumeric).len()];
        let (last, first) = (left.chars().next_back()?, right.chars().next()?);
        if hyphen == '\u{AD}' {
            return Some(Join::Without);
        }
        // A name, a number or a chain of hyphens is broken at one of its own hyphens.
        if !last.is_lowercase() || !first.is_lowercase() || before[..before.len() - left.len()].ends_with(is_hyphen) {
            return Some(Join::With);
        }
        let knows = |word: &str| self.whole.contains(word);
        if knows(&format!("{left}{right}")) {
            return Some(Join::Without);
        }
        let are_words = left.chars().count() > 2 && knows(left) && right.chars().count() > 2 && knows(right);
        Some(if are_words || knows(&format!("{left}-{right}")) { Join::With } else { Join::Without })
    }
}

fn is_hyphen(character: char) -> bool {
    matches!(character, '-' | '\u{2010}' | '\u{AD}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_paragraph_share_the_words_that_they_break() {
        let paragraphs = [vec!["Herons wait for com-", "mon fish."], vec![], vec!["They are well-", "known", "birds."]];
        let (text, lines) = join_lines(&paragraphs);
        assert_eq!(text, "Herons wait for common fish.\n\nThey are wellknown\nbirds.");
        let lines: Vec<&str> = lines.into_iter().map(|line| &text[line]).collect();
        assert_eq!(lines, ["Herons wait for com", "mon fish.", "They are well", "known", "birds."]);
        assert_eq!(join_lines::<Vec<&str>>(&[]), (String::new(), Vec::new()));
    }

    #[test]
    fn the_pages_own_words_decide() {
        let page = "the run-time of a high level tool; a compiler is well-known for level";
        let words = Words::new(std::iter::once(page));
        let join = |line: &str, next: &str| words.join(line, next);
        assert_eq!(join("it is com-", "pile time"), Some(Join::Without));
        assert_eq!(join("a com\u{AD}", "piler"), Some(Join::Without));
        assert_eq!(join("at run-", "time,"), Some(Join::With));
        assert_eq!(join("a high-", "level one"), Some(Join::With), "both halves are words of the page");
        assert_eq!(join("a com-", "piler"), Some(Join::Without));
        assert_eq!(join("state-of-", "the-art"), Some(Join::With));
        assert_eq!(join("Jean-", "Pierre"), Some(Join::With));
        assert_eq!(join("1990-", "1995"), Some(Join::With));
        assert_eq!(join("so -", "or not"), None);
        assert_eq!(join("no hyphen", "here"), None);
        assert_eq!(join("ends-", "(so)"), None);
    }
}
