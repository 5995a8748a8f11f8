//! Headings by the sizes of fonts: short paragraphs in a larger or bolder font than the body's.
//!
//! No headings are better than noise: a file that would have too many headings, or only one, has none.

use crate::{
    Heading,
    pdf::layout::{Laid, LaidLine},
};
use rustc_hash::FxHashMap;

/// How much larger than the body's a heading's font is.
const LARGER: f64 = 1.12;
/// The most characters and lines of a heading.
const MOST_CHARACTERS: usize = 120;
const MOST_LINES: usize = 3;
/// With more candidates per page on average, the file is a form or a poster; if they hold more than this share of the
/// text, they are not headings.
const MOST_ON_A_PAGE: usize = 12;
const MOST_OF_TEXT: f64 = 0.2;
/// A title on more than this share of the pages, and on at least three, is a running header.
const RUNNING: f64 = 0.25;
const MOST_LEVELS: usize = 6;
const MOST_CANDIDATES: usize = 100_000;

/// What pages show of sizes.
#[derive(Default)]
pub(in crate::pdf) struct Sizes {
    /// Characters by size, in half points.
    characters: FxHashMap<u32, usize>,
    bold_characters: usize,
    candidates: Vec<Candidate>,
    pages: usize,
}

struct Candidate {
    title: String,
    start: usize,
    page: usize,
    /// In half points.
    size: u32,
    bold: bool,
}

impl Sizes {
    pub(super) fn add_page(&mut self, index: usize, laid: &Laid, start: usize) {
        self.pages += 1;
        let mut first = 0;
        for (at, line) in laid.lines.iter().enumerate() {
            let length = laid.text[line.range.clone()].chars().filter(|character| !character.is_whitespace()).count();
            *self.characters.entry(halves(line.size)).or_default() += length;
            self.bold_characters += if line.bold { length } else { 0 };
            if line.first {
                first = at;
            }
            let is_in_table = laid.is_in_table(laid.lines[first].range.start);
            if line.last && !is_in_table && self.candidates.len() < MOST_CANDIDATES {
                self.candidates.extend(candidate(&laid.lines[first..=at], laid, index, start));
            }
        }
    }

    pub(super) fn finish(self) -> Vec<Heading> {
        let all: usize = self.characters.values().sum();
        let Some((&body, _)) = self.characters.iter().max_by_key(|(size, count)| (**count, **size)) else {
            return Vec::new();
        };
        let body_is_bold = self.bold_characters * 2 > all;
        let is_larger = |size: u32| f64::from(size) >= LARGER * f64::from(body) && size > body + 1;
        let mut headings = self.candidates;
        headings.retain(|found| is_larger(found.size) || (found.bold && !body_is_bold && found.size + 1 >= body));
        let running = running(&headings, self.pages);
        headings.retain(|found| !running.contains(&key(&found.title)));
        let mut sizes: Vec<u32> = headings.iter().map(|found| found.size).filter(|size| is_larger(*size)).collect();
        sizes.sort_unstable_by(|a, b| b.cmp(a));
        // Half a point may be two ways to write the same size.
        sizes.dedup_by(|smaller, larger| *larger - *smaller <= 1);
        let length: usize = headings.iter().map(|found| found.title.chars().count()).sum();
        let too_many = headings.len() > MOST_ON_A_PAGE * self.pages || length as f64 > MOST_OF_TEXT * all as f64;
        if headings.len() < 2 || too_many {
            return Vec::new();
        }
        let level = |found: &Candidate| {
            let larger = sizes.iter().position(|size| found.size + 1 >= *size).unwrap_or(sizes.len());
            (larger.min(MOST_LEVELS - 1) + 1) as u8
        };
        headings
            .into_iter()
            .map(|found| Heading { level: level(&found), start: found.start, title: found.title })
            .collect()
    }
}

fn halves(size: f64) -> u32 {
    (size * 2.0).round().clamp(1.0, 1e6) as u32
}

/// A paragraph whose text alone would allow it to be a heading.
fn candidate(lines: &[LaidLine], laid: &Laid, page: usize, start: usize) -> Option<Candidate> {
    let (first, last) = (lines.first()?, lines.last()?);
    let text = &laid.text[first.range.start..last.range.end];
    let size = halves(first.size);
    let is_one = lines.iter().all(|line| halves(line.size).abs_diff(size) <= 1 && line.bold == first.bold);
    if lines.len() > MOST_LINES || !is_one || text.len() > 4 * MOST_CHARACTERS {
        return None;
    }
    let title = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let (mut letters, mut others) = (0, 0);
    for character in title.chars().filter(|character| !character.is_whitespace()) {
        *(if character.is_alphabetic() { &mut letters } else { &mut others }) += 1;
    }
    let begins = title.chars().next().is_some_and(|first| !first.is_lowercase() && first.is_alphanumeric());
    let ends = title.ends_with(['.', ',', ';', ':', '-']);
    let is_title = letters >= 2 && letters >= others && letters + others <= MOST_CHARACTERS && begins && !ends;
    is_title.then_some(Candidate { title, start: start + first.range.start, page, size, bold: first.bold })
}

/// A title without its digits, so that running headers with page numbers are equal.
fn key(title: &str) -> String {
    title.chars().filter(|character| character.is_alphabetic()).flat_map(char::to_lowercase).collect()
}

/// The titles that appear on too many pages.
fn running(headings: &[Candidate], pages: usize) -> rustc_hash::FxHashSet<String> {
    let mut seen: FxHashMap<String, (usize, usize)> = FxHashMap::default();
    for found in headings {
        let (count, last) = seen.entry(key(&found.title)).or_insert((0, usize::MAX));
        if *last != found.page {
            (*count, *last) = (*count + 1, found.page);
        }
    }
    let most = (RUNNING * pages as f64).max(2.0);
    seen.into_iter().filter(|(_, (count, _))| *count as f64 > most).map(|(key, _)| key).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes pages of one-line paragraphs: size, weight and text.
    fn headings(pages: &[&[(f64, bool, &str)]]) -> Vec<(u8, String)> {
        let mut sizes = Sizes::default();
        let mut start = 0;
        for (index, page) in pages.iter().enumerate() {
            let mut laid = Laid::default();
            for (size, bold, text) in *page {
                let from = laid.text.len();
                laid.text.push_str(text);
                let range = from..laid.text.len();
                laid.lines.push(LaidLine { range, size: *size, bold: *bold, first: true, last: true });
                laid.text.push_str("\n\n");
            }
            sizes.add_page(index, &laid, start);
            start += laid.text.len();
        }
        sizes.finish().into_iter().map(|heading| (heading.level, heading.title)).collect()
    }

    const BODY: &str = "A paragraph of the body is longer than its headings are, so that its size is the one of most characters, \
        and it goes on for as long as it takes to say what there is to be said, which here is nothing at all.";

    #[test]
    fn larger_and_bold_lines_head_the_body() {
        let page: &[_] = &[
            (20.0, false, "The Title"),
            (14.0, false, "1 First"),
            (10.0, false, BODY),
            (10.0, true, "In bold"),
            (10.0, false, BODY),
            (14.0, false, "2 Second"),
            (10.0, false, BODY),
            (14.0, false, "so it goes."),
        ];
        let found = headings(&[page]);
        let expected = [(1, "The Title"), (2, "1 First"), (3, "In bold"), (2, "2 Second")];
        assert_eq!(found, expected.map(|(level, title)| (level, title.to_owned())));
    }

    #[test]
    fn noise_is_no_heading() {
        let running: &[_] = &[(14.0, false, "Annual Report 7"), (10.0, false, BODY), (10.0, false, BODY)];
        assert_eq!(headings(&[running; 5]), [], "a running header");
        assert_eq!(headings(&[&[(10.0, false, BODY), (10.0, false, "Short"), (8.0, false, "Note")]]), []);
        assert_eq!(headings(&[&[(14.0, false, "Alone"), (10.0, false, BODY)]]), [], "one heading parts nothing");
        assert_eq!(headings(&[&[(14.0, false, "A"), (14.0, false, "x = 1 + 2"), (10.0, false, BODY)]]), []);
        let poster: Vec<_> = (0..40).map(|_| (24.0, false, "Large Words")).chain([(10.0, false, BODY)]).collect();
        assert_eq!(headings(&[&poster]), []);
    }
}
