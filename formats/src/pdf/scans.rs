//! Puts what was read from pictures of pages into the text of their file.

use super::headings::place;
use crate::{Extraction, ReadLine};
use memchr::memmem;
use std::collections::BTreeMap;

/// The most bytes that are compared with the own lines of a page. Lines beyond are written, whether they were read or not.
const MOST_COMPARED: usize = 256 << 20;
/// Fewer signs of a script without blanks may be a part of another word.
const SURE: usize = 3;

/// What was read on the picture of a page.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ReadPage {
    pub text: String,
    /// The lines of this text, one behind the other; none if their places are not known.
    pub lines: Vec<ReadLine>,
}

impl ReadPage {
    /// Adds the lines of the page's own text that the engine has not read: those of a stamp that it mistook, or of a field that the
    /// picture does not show. A line stays whole, because a part of it may stand elsewhere on the page by chance.
    fn with_own(mut self, own: &str) -> Self {
        let mut read = Words::of(&self.text);
        let mut end = "\n\n";
        for line in own.lines() {
            let words = words(line);
            if words.is_empty() || read.contain(&words) {
                continue;
            }
            if !self.text.is_empty() {
                self.text.push_str(end);
            }
            self.text.push_str(line.trim());
            end = "\n";
        }
        self
    }
}

/// The words that an engine has read.
struct Words {
    lines: Vec<Vec<String>>,
    /// All of them without blanks, because engines part words elsewhere than typists where the script has no blanks.
    text: String,
    /// Where words begin and end in that text.
    borders: Vec<usize>,
    /// How many bytes may still be compared.
    left: usize,
}

impl Words {
    fn of(read: &str) -> Self {
        let lines: Vec<Vec<String>> = read.lines().map(words).collect();
        let (mut text, mut borders) = (String::new(), vec![0]);
        for word in lines.iter().flatten() {
            text.push_str(word);
            borders.push(text.len());
        }
        Self { lines, text, borders, left: MOST_COMPARED }
    }

    /// Whether all these words were read: one behind the other, or in their order on one line, as fields are between their labels.
    fn contain(&mut self, words: &[String]) -> bool {
        let Some(left) = self.left.checked_sub(self.text.len()) else { return false };
        self.left = left;
        let text = words.concat();
        let is_sure = text.chars().count() >= SURE;
        let is_border = |at: usize| {
            let (before, after) = self.text.split_at(at);
            let around = [before.chars().next_back(), after.chars().next()];
            self.borders.binary_search(&at).is_ok() || (is_sure && around.into_iter().flatten().any(is_without_blanks))
        };
        let mut found = memmem::find_iter(self.text.as_bytes(), text.as_bytes());
        found.any(|at| is_border(at) && is_border(at + text.len()))
            || self.lines.iter().any(|line| {
                let mut line = line.iter();
                words.iter().all(|word| line.any(|other| other == word))
            })
    }
}

fn bare(word: &str) -> String {
    word.chars().filter(|character| character.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

/// The words of a line as engines and typists agree on them.
fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(bare).filter(|word| !word.is_empty()).collect()
}

/// Whether a character is of a script that puts no blanks between words, such as those of China, Japan and Thailand.
#[must_use]
pub fn is_without_blanks(character: char) -> bool {
    matches!(
        character,
        '\u{E00}'..='\u{EFF}'
            | '\u{1000}'..='\u{109F}'
            | '\u{1780}'..='\u{17FF}'
            | '\u{2E80}'..='\u{9FFF}'
            | '\u{F900}'..='\u{FAFF}'
            | '\u{FF66}'..='\u{FF9F}'
            | '\u{20000}'..='\u{3FFFF}'
    )
}

impl Extraction {
    /// The extraction with what was read on these pages, by their numbers, in place of what it has of them, and behind that what only
    /// the file has. Headings, tables and lines move with their pages, and headings of an outline to their titles.
    #[must_use]
    pub fn with_read_pages(mut self, mut pages: BTreeMap<u32, ReadPage>) -> Self {
        let old = std::mem::take(&mut self.text);
        let grown = pages.values().map(|page| page.text.len() + 2).sum::<usize>();
        let mut text = String::with_capacity(old.len() + grown);
        let mut headings = std::mem::take(&mut self.headings).into_iter().peekable();
        let mut tables = std::mem::take(&mut self.tables).into_iter().peekable();
        let mut lines = std::mem::take(&mut self.read_lines).into_iter().peekable();
        for page in &mut self.pages {
            let kept = &old[page.start..page.end];
            let read = pages.remove(&page.number).map(|read| read.with_own(kept));
            let new = read.as_ref().map_or(kept, |read| read.text.as_str());
            if !new.is_empty() && !text.is_empty() {
                text.push_str("\n\n");
            }
            let start = text.len();
            text.push_str(new);
            while let Some(mut heading) = headings.next_if(|heading| heading.start < page.end) {
                let within = if read.is_some() { 0 } else { heading.start.saturating_sub(page.start) };
                heading.start = start + within;
                self.headings.push(heading);
            }
            while let Some(mut table) = tables.next_if(|table| table.span().start < page.end) {
                if read.is_none() {
                    for range in &mut table.ranges {
                        let within = |at: usize| start + at.saturating_sub(page.start);
                        *range = within(range.start)..within(range.end);
                    }
                    self.tables.push(table);
                }
            }
            while let Some(line) = lines.next_if(|line| line.start < page.end) {
                if read.is_none() {
                    self.read_lines.push(line.moved(page.start, start));
                }
            }
            let new_lines = read.iter().flat_map(|read| &read.lines);
            self.read_lines.extend(new_lines.map(|line| line.moved(0, start)));
            (page.start, page.end) = (start, text.len());
        }
        self.text = text;
        if !self.outline.is_empty() {
            self.headings = place(&self.outline, &self);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Area, Heading, OutlineEntry, Page, Table, TableRule};

    fn extraction(pages: &[&str]) -> Extraction {
        let mut extraction = Extraction::default();
        for (number, text) in (1..).zip(pages) {
            if !text.is_empty() && !extraction.text.is_empty() {
                extraction.text.push_str("\n\n");
            }
            let start = extraction.text.len();
            extraction.text.push_str(text);
            extraction.pages.push(Page { number, start, end: extraction.text.len() });
        }
        extraction
    }

    fn texts(of: &[(u32, &str)]) -> BTreeMap<u32, ReadPage> {
        of.iter().map(|(number, text)| (*number, ReadPage { text: (*text).to_owned(), lines: Vec::new() })).collect()
    }

    fn pages(of: &Extraction) -> Vec<&str> {
        of.pages.iter().map(|page| &of.text[page.start..page.end]).collect()
    }

    #[test]
    fn a_page_that_was_read_stands_between_its_neighbours_and_headings_move_with_their_pages() {
        let heading = |title: &str, start| Heading { level: 1, title: title.to_owned(), start };
        let mut before = extraction(&["Intro\ntext", "", "p. 3", "End\nmore"]);
        before.headings = vec![
            heading("Intro", 0),
            heading("End", before.pages[3].start),
            heading("more", before.pages[3].start + 4),
        ];
        let table = |start: usize, end: usize| Table {
            ranges: std::iter::once(start..end).collect(),
            rule: TableRule::Lines,
            has_header: false,
            rows: Vec::new(),
            parts: 1,
        };
        let third = before.pages[2];
        let last = before.pages[3];
        before.tables = vec![table(third.start, third.end), table(last.start + 4, last.end)];
        let after = before.with_read_pages(texts(&[(2, "Scanned words"), (3, "The third, P. 3"), (9, "of no page")]));
        assert_eq!(after.text, "Intro\ntext\n\nScanned words\n\nThe third, P. 3\n\nEnd\nmore");
        assert_eq!(pages(&after), ["Intro\ntext", "Scanned words", "The third, P. 3", "End\nmore"]);
        let at: Vec<_> = after.headings.iter().map(|heading| &after.text[heading.start..]).collect();
        assert_eq!(at, [after.text.as_str(), "End\nmore", "more"]);
        let tables: Vec<_> = after.tables.iter().map(|table| &after.text[table.span()]).collect();
        assert_eq!(tables, ["more"], "the page of the other was read anew");
    }

    #[test]
    fn lines_of_a_page_that_its_picture_does_not_show_are_neither_lost_nor_doubled() {
        let before = extraction(&["ABC000123 CONFIDENTIAL\nfilled in", "p. 2"]);
        let read = "Minutes of the ponds\nABCO00123 Confidential";
        let after = before.with_read_pages(texts(&[(1, read), (2, "")]));
        assert_eq!(pages(&after), [format!("{read}\n\nABC000123 CONFIDENTIAL\nfilled in").as_str(), "p. 2"]);
    }

    #[test]
    fn what_was_filled_into_a_scan_stays_whole_unless_all_of_it_was_read() {
        for (own, read, added) in [
            ("New York\n12", "New customers of 12 May in Berlin", "New York"),
            ("12", "Page 1123", "12"),
            ("Ada Lovelace London", "Name: Ada Lovelace Town: London", ""),
            ("Ada Lovelace", "This form is of Ada\nLovelace, Countess", ""),
            ("Ada Lovelace", "Ada is a language.\nLovelace is a name.", "Ada Lovelace"),
            ("株式会社", "株 式 会 社 山田", ""),
            ("株式会社", "東京株式会社山田", ""),
            ("林", "森林公園", "林"),
            ("– –", "A form", ""),
        ] {
            let after = extraction(&[own]).with_read_pages(texts(&[(1, read)]));
            let expected = if added.is_empty() { read.to_owned() } else { format!("{read}\n\n{added}") };
            assert_eq!(after.text, expected, "{own}");
        }
    }

    #[test]
    fn lines_that_were_read_move_with_their_pages_until_these_are_read_anew() {
        let area = Area { left: 1.0, top: 2.0, width: 3.0, height: 4.0 };
        let page = |text: &str, lines: &[(usize, usize)]| {
            let line = |(start, end): &(usize, usize)| ReadLine { start: *start, end: *end, paragraph: 0, area };
            ReadPage { text: text.to_owned(), lines: lines.iter().map(line).collect() }
        };
        let lines = |of: &Extraction| -> Vec<String> {
            of.read_lines.iter().map(|line| of.text[line.start..line.end].to_owned()).collect()
        };
        let before = extraction(&["Intro", "", "", "End"]);
        let both = [(2, page("one\ntwo", &[(0, 3), (4, 7)])), (3, page("three", &[(0, 5)]))];
        let read = before.with_read_pages(both.into_iter().collect());
        assert_eq!(lines(&read), ["one", "two", "three"]);
        let anew = [(1, page("A longer intro", &[])), (3, page("fourth", &[(0, 6)]))];
        assert_eq!(lines(&read.with_read_pages(anew.into_iter().collect())), ["one", "two", "fourth"]);
    }

    #[test]
    fn an_outline_finds_its_titles_in_pages_that_had_no_text() {
        let mut before = extraction(&["", "", ""]);
        let entry = |title: &str, page| OutlineEntry { level: 1, title: title.to_owned(), page: Some(page) };
        before.outline = vec![entry("One", 0), entry("Two", 1), entry("Three", 2)];
        before.headings = place(&before.outline, &before);
        let after = before.with_read_pages(texts(&[(1, "ONE\nfirst"), (2, "of one\nTwo\nsecond")]));
        assert_eq!(after.text, "ONE\nfirst\n\nof one\nTwo\nsecond");
        let at: Vec<_> = after.headings.iter().map(|heading| (heading.title.as_str(), heading.start)).collect();
        assert_eq!(at, [("One", 0), ("Two", 18), ("Three", after.text.len())]);
    }
}
