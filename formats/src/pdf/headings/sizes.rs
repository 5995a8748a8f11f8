//! Headings by the size and weight of type: short paragraphs in larger or bolder type than the body's, with text below
//! them.
//!
//! No headings are better than noise: what fills a page, or runs along all of them, heads nothing.

use super::titles::{comes_next, is_caption, is_prose, is_title, key, number, parts};
use crate::{
    Heading,
    pdf::layout::{Laid, LaidLine},
};
use rustc_hash::{FxHashMap, FxHashSet};

/// How much larger than the body's a heading's type is.
const LARGER: f64 = 1.12;
/// Two sizes within this ratio are one that was written in two ways.
const ALIKE: f64 = 1.04;
/// The most lines and bytes of a heading.
const MOST_LINES: usize = 3;
const MOST_BYTES: usize = 480;
/// With more headings per page on average, the file is a form or a poster; if they hold more than this share of the
/// text, they are not headings.
const MOST_ON_A_PAGE: usize = 12;
const MOST_OF_TEXT: f64 = 0.2;
/// Headings with prose directly below each of them may hold this share of the text.
const MOST_ABOVE_PROSE: f64 = 0.5;
/// A file with at least this many numbered headings numbers its headings.
const FEWEST_NUMBERED: usize = 4;
/// A title on more than this share of the pages, and on at least three, is a running header.
const RUNNING: f64 = 0.25;
/// So is a line that is no larger than the body and begins or ends so many pages.
const RUNNING_PAGES: usize = 3;
/// So many bold lines below each other are the labels of a form or a table.
const LABELS: usize = 4;
/// How much smaller than the body, in half points, a numbered heading in capitals may be.
const SMALL_CAPITALS: u32 = 4;
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
    /// The last paragraph is a candidate, and what follows it is not known yet.
    waits: bool,
}

/// A paragraph whose text alone would allow it to be a heading.
struct Candidate {
    title: String,
    start: usize,
    page: usize,
    /// In half points.
    size: u32,
    bold: bool,
    /// How many parts its number has.
    number: Option<usize>,
    /// It begins or ends its page.
    is_at_edge: bool,
    next: Next,
}

/// The paragraph after a candidate.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Next {
    Nothing,
    Candidate,
    Prose,
    Other,
}

/// What makes a candidate a heading.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Larger,
    Bolder,
    Capitals,
}

/// The type of the body.
struct Body {
    size: u32,
    is_bold: bool,
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
            if line.last && !laid.is_in_table(laid.lines[first].range.start) {
                let is_at_edge = first == 0 || at + 1 == laid.lines.len();
                self.add_paragraph(&laid.lines[first..=at], laid, (index, start), is_at_edge);
            }
        }
    }

    /// Takes in a paragraph of the page of an index, whose text begins at `start`.
    fn add_paragraph(&mut self, lines: &[LaidLine], laid: &Laid, (page, start): (usize, usize), is_at_edge: bool) {
        let (Some(first), Some(last)) = (lines.first(), lines.last()) else { return };
        let text = &laid.text[first.range.start..last.range.end];
        let found = if self.candidates.len() < MOST_CANDIDATES { title(lines, text) } else { None };
        if self.waits
            && let Some(before) = self.candidates.last_mut()
        {
            before.next = match found {
                Some(_) => Next::Candidate,
                None if is_prose(text) => Next::Prose,
                None => Next::Other,
            };
        }
        self.waits = found.is_some();
        self.candidates.extend(found.map(|title| Candidate {
            number: number(&title),
            title,
            start: start + first.range.start,
            page,
            size: halves(first.size),
            bold: first.bold,
            is_at_edge,
            next: Next::Nothing,
        }));
    }

    pub(super) fn finish(self) -> Vec<Heading> {
        let all: usize = self.characters.values().sum();
        let Some((&size, _)) = self.characters.iter().max_by_key(|(size, count)| (**count, **size)) else {
            return Vec::new();
        };
        let body = Body { size, is_bold: self.bold_characters * 2 > all };
        let running = running(&self.candidates, &body, self.pages);
        let kinds = self.candidates.iter().zip(running).map(|(found, runs)| body.kind(found).filter(|_| !runs));
        let kinds: Vec<Option<Kind>> = kinds.collect();
        let mut headed = without_text(&self.candidates, kinds.clone());
        keep_what_counts_on(&self.candidates, &kinds, &mut headed);
        drop_unnumbered(&self.candidates, &mut headed);
        let kinds = headed;
        let kept = kinds.iter().enumerate().filter_map(|(index, kind)| Some((index, (*kind)?)));
        let mut kept: Vec<(usize, Kind)> = kept.collect();
        drop_front_matter(&self.candidates, &mut kept);
        let too_many = |kept: &[(usize, Kind)]| {
            let length = |index: &usize| self.candidates[*index].title.chars().count();
            let titles = || kept.iter().map(|(index, _)| index);
            let of_all: usize = titles().map(length).sum();
            let without_prose: usize =
                titles().filter(|index| !is_followed(&self.candidates, **index)).map(length).sum();
            kept.len() > MOST_ON_A_PAGE * self.pages
                || without_prose as f64 > MOST_OF_TEXT * all as f64
                || of_all as f64 > MOST_ABOVE_PROSE * all as f64
        };
        if too_many(&kept) {
            kept.retain(|(_, kind)| *kind == Kind::Larger);
        }
        // One bold line is an emphasis; one larger line may be the title of what follows it.
        let heads_nothing = match kept.as_slice() {
            [(index, Kind::Larger)] => !is_followed(&self.candidates, *index),
            kept => kept.len() < 2,
        };
        if too_many(&kept) || heads_nothing { Vec::new() } else { headings(self.candidates, &kept) }
    }
}

impl Body {
    fn kind(&self, found: &Candidate) -> Option<Kind> {
        if self.is_smaller_than(found.size) {
            Some(Kind::Larger)
        } else if found.bold && !self.is_bold && found.size + 1 >= self.size {
            Some(Kind::Bolder)
        } else if found.is_numbered_capitals() && found.size + SMALL_CAPITALS >= self.size {
            Some(Kind::Capitals)
        } else {
            None
        }
    }

    fn is_smaller_than(&self, size: u32) -> bool {
        f64::from(size) >= LARGER * f64::from(self.size) && size > self.size + 1
    }
}

impl Candidate {
    fn is_numbered_capitals(&self) -> bool {
        let has = |is: fn(char) -> bool| self.title.chars().any(is);
        self.number.is_some() && has(char::is_uppercase) && !has(char::is_lowercase)
    }

    fn is_of_one_type_with(&self, other: &Self) -> bool {
        self.size == other.size && self.bold == other.bold
    }
}

fn halves(size: f64) -> u32 {
    (size * 2.0).round().clamp(1.0, 1e6) as u32
}

/// The text of a paragraph in one type, if it can be a title.
fn title(lines: &[LaidLine], text: &str) -> Option<String> {
    let first = lines.first()?;
    let is_like_first =
        |line: &LaidLine| halves(line.size).abs_diff(halves(first.size)) <= 1 && line.bold == first.bold;
    if lines.len() > MOST_LINES || text.len() > MOST_BYTES || !lines.iter().all(is_like_first) {
        return None;
    }
    let title = text.split_whitespace().collect::<Vec<_>>().join(" ");
    (is_title(&title) && !is_caption(&title)).then_some(title)
}

/// The pages that something is on.
#[derive(Default)]
struct Seen {
    pages: usize,
    /// The last of them, counted from 1.
    last: usize,
}

impl Seen {
    fn add(&mut self, page: usize) {
        if self.last != page + 1 {
            (self.pages, self.last) = (self.pages + 1, page + 1);
        }
    }
}

/// Which candidates run along the pages.
fn running(candidates: &[Candidate], body: &Body, pages: usize) -> Vec<bool> {
    let keys: Vec<String> = candidates.iter().map(|found| key(&found.title)).collect();
    let mut anywhere: FxHashMap<&str, Seen> = FxHashMap::default();
    let mut at_edge: FxHashMap<(&str, u32), Seen> = FxHashMap::default();
    for (found, key) in candidates.iter().zip(&keys) {
        // What is no heading anyway takes none of the same words with it.
        if body.kind(found).is_some() {
            anywhere.entry(key.as_str()).or_default().add(found.page);
        }
        if found.is_at_edge && !body.is_smaller_than(found.size) {
            at_edge.entry((key.as_str(), found.size)).or_default().add(found.page);
        }
    }
    let most = (RUNNING * pages as f64).max(2.0);
    let runs = |(found, key): (&Candidate, &String)| {
        let is_everywhere = anywhere.get(key.as_str()).is_some_and(|seen| seen.pages as f64 > most);
        let beside = at_edge.get(&(key.as_str(), found.size)).filter(|_| found.is_at_edge);
        is_everywhere || beside.is_some_and(|seen| seen.pages >= RUNNING_PAGES)
    };
    candidates.iter().zip(&keys).map(runs).collect()
}

/// Takes out what heads no text: what stands at the end, and labels.
fn without_text(candidates: &[Candidate], mut kinds: Vec<Option<Kind>>) -> Vec<Option<Kind>> {
    // It goes upwards, because below a title of titles is what is below the last of them.
    let mut below = Next::Nothing;
    let is_bolder = |(kind, found): (&Option<Kind>, &Candidate)| *kind == Some(Kind::Bolder) && found.number.is_none();
    let bolder: Vec<bool> = kinds.iter().zip(candidates).map(is_bolder).collect();
    let mut labels = 0;
    for (index, found) in candidates.iter().enumerate().rev() {
        let next = candidates.get(index + 1).filter(|_| found.next == Next::Candidate);
        let is_like_next =
            next.is_some_and(|next| bolder[index] && bolder[index + 1] && next.is_of_one_type_with(found));
        labels = if is_like_next { labels + 1 } else { 1 };
        below = match next {
            Some(_) if kinds[index + 1].is_some() => below,
            Some(next) if is_prose(&next.title) => Next::Prose,
            Some(_) => Next::Other,
            None => found.next,
        };
        if labels >= LABELS {
            kinds[index..index + LABELS].fill(None);
        }
        kinds[index] = kinds[index].filter(|kind| match kind {
            Kind::Larger => below != Next::Nothing,
            Kind::Bolder | Kind::Capitals => below == Next::Prose,
        });
    }
    kinds
}

/// Restores a heading without text below it, as above a drawing or a list, if its number comes next after that of the heading before.
fn keep_what_counts_on(candidates: &[Candidate], kinds: &[Option<Kind>], headed: &mut [Option<Kind>]) {
    let mut before: Vec<u16> = Vec::new();
    for (index, found) in candidates.iter().enumerate() {
        let Some(number) = kinds[index].and_then(|_| parts(&found.title)) else { continue };
        // Numbers of one part may be those of the items of a list.
        if number.len() > 1 && comes_next(&number, &before) {
            headed[index] = kinds[index];
        }
        if headed[index].is_some() {
            before = number;
        }
    }
}

/// In a file that numbers its headings, drops the labels of drawings: what has no number, is set in another type than the numbered
/// headings, and has no prose below it.
fn drop_unnumbered(candidates: &[Candidate], headed: &mut [Option<Kind>]) {
    let is_numbered = |index: &usize| headed[*index].is_some() && candidates[*index].number.is_some();
    let numbered: Vec<usize> = (0..candidates.len()).filter(is_numbered).collect();
    let Some(&first) = numbered.first().filter(|_| numbered.len() >= FEWEST_NUMBERED) else { return };
    let types: FxHashSet<(u32, bool)> =
        numbered.iter().map(|index| (candidates[*index].size, candidates[*index].bold)).collect();
    for (index, found) in candidates.iter().enumerate().skip(first) {
        if found.number.is_none() && !types.contains(&(found.size, found.bold)) && !is_followed(candidates, index) {
            headed[index] = None;
        }
    }
}

/// Whether prose comes directly after a candidate.
fn is_followed(candidates: &[Candidate], index: usize) -> bool {
    match candidates[index].next {
        Next::Prose => true,
        Next::Candidate => candidates.get(index + 1).is_some_and(|next| is_prose(&next.title)),
        Next::Nothing | Next::Other => false,
    }
}

/// Takes out the names and places below a title: what stands on the first page above numbered headings, in a type that
/// heads nothing later.
fn drop_front_matter(candidates: &[Candidate], kept: &mut Vec<(usize, Kind)>) {
    let is_numbered = |found: &(usize, Kind)| candidates[found.0].number.is_some();
    if kept.iter().copied().filter(is_numbered).count() < 2 {
        return;
    }
    let first = kept.iter().position(is_numbered).unwrap_or(0);
    let (front, rest) = kept.split_at(first);
    let largest = front.iter().map(|found| candidates[found.0].size).max();
    let later: FxHashSet<(u32, bool)> =
        rest.iter().map(|found| (candidates[found.0].size, candidates[found.0].bold)).collect();
    let mut at = 0;
    kept.retain(|found| {
        let of = &candidates[found.0];
        at += 1;
        at > first || of.page > 0 || Some(of.size) == largest || later.contains(&(of.size, of.bold))
    });
}

/// The headings with their levels.
fn headings(candidates: Vec<Candidate>, kept: &[(usize, Kind)]) -> Vec<Heading> {
    let larger = kept.iter().filter(|found| found.1 == Kind::Larger);
    let mut sizes: Vec<u32> = larger.map(|found| candidates[found.0].size).collect();
    sizes.sort_unstable_by(|a, b| b.cmp(a));
    sizes.dedup_by(|smaller, larger| *larger - *smaller <= 1 || f64::from(*larger) <= ALIKE * f64::from(*smaller));
    // A cluster is known by its largest size, so a size is of the last cluster that is not smaller.
    let by_type = |found: &(usize, Kind)| match found.1 {
        Kind::Larger => sizes.partition_point(|size| *size >= candidates[found.0].size).max(1),
        Kind::Bolder | Kind::Capitals => sizes.len() + 1,
    };
    let chapter = kept.iter().filter(|found| candidates[found.0].number == Some(1)).map(by_type).min();
    let level = |found: &(usize, Kind)| {
        let level = match (candidates[found.0].number, chapter) {
            // Below the chapters that are there, numbers tell more than sizes.
            (Some(depth @ 2..), Some(chapter)) => by_type(found).max(chapter + depth - 1),
            _ => by_type(found),
        };
        level.min(MOST_LEVELS) as u8
    };
    let levels: Vec<u8> = kept.iter().map(level).collect();
    let largest = sizes.first().copied();
    let mut candidates: Vec<Option<Candidate>> = candidates.into_iter().map(Some).collect();
    let mut headings: Vec<Heading> = Vec::with_capacity(kept.len());
    // The candidate that the file's title may go on in.
    let mut goes_on = None;
    for (&(index, _), level) in kept.iter().zip(levels) {
        let Some(found) = candidates[index].take() else { continue };
        let is_of_title = found.page == 0 && Some(found.size) == largest && found.number.is_none();
        match headings.last_mut() {
            Some(title) if is_of_title && goes_on == Some(index) && title.title.len() < MOST_BYTES => {
                title.title.push(' ');
                title.title.push_str(&found.title);
            }
            _ => headings.push(Heading { level, title: found.title, start: found.start }),
        }
        goes_on = (is_of_title && found.next == Next::Candidate).then_some(index + 1);
    }
    headings
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
        assert_eq!(headings(&[&[(10.0, true, "Alone"), (10.0, false, BODY)]]), [], "an emphasis");
        assert_eq!(headings(&[&[(14.0, false, "Alone"), (10.0, false, "17")]]), [], "there is no text below it");
        assert_eq!(headings(&[&[(14.0, false, "A"), (14.0, false, "x = 1 + 2"), (10.0, false, BODY)]]), []);
        let poster: Vec<_> = (0..40).map(|_| (24.0, false, "Large Words")).chain([(10.0, false, BODY)]).collect();
        assert_eq!(headings(&[&poster]), []);
    }

    fn titles(pages: &[&[(f64, bool, &str)]]) -> Vec<String> {
        headings(pages).into_iter().map(|(_, title)| title).collect()
    }

    #[test]
    fn a_paper_has_its_title_and_sections_without_authors_captions_and_running_heads() {
        let first: &[_] = &[
            (17.0, true, "Counting Ducks on Lakes of"),
            (17.0, true, "Several Sizes"),
            (11.0, false, "Ada Lovelace and Grace Hopper"),
            (11.0, false, "University of Somewhere"),
            (11.0, true, "Abstract"),
            (9.0, false, BODY),
            (11.0, true, "1. Introduction"),
            (9.0, false, BODY),
            (9.0, true, "1.1 Earlier work"),
            (9.0, false, BODY),
            (9.0, true, "Figure 1: A duck"),
            (9.0, false, BODY),
        ];
        let page: &[_] = &[
            (9.0, true, "Ducks on Lakes 7"),
            (9.0, false, BODY),
            (11.0, true, "2. Method"),
            (9.0, true, "2.1 Boats"),
            (9.0, false, BODY),
            (9.0, false, BODY),
        ];
        let last: &[_] = &[
            (9.0, true, "Ducks on Lakes 8"),
            (9.0, false, BODY),
            (11.0, true, "References"),
            (9.0, false, BODY),
            (11.0, true, "The end"),
        ];
        let plain: &[_] = &[(9.0, true, "Ducks on Lakes 9"), (9.0, false, BODY), (9.0, false, BODY)];
        let found = headings(&[first, page, plain, plain, plain, plain, plain, plain, plain, plain, plain, last]);
        let expected = [
            (1, "Counting Ducks on Lakes of Several Sizes"),
            (2, "Abstract"),
            (2, "1. Introduction"),
            (3, "1.1 Earlier work"),
            (2, "2. Method"),
            (3, "2.1 Boats"),
            (2, "References"),
        ];
        assert_eq!(found, expected.map(|(level, title)| (level, title.to_owned())));
    }

    #[test]
    fn one_larger_line_above_prose_is_a_title() {
        assert_eq!(titles(&[&[(14.0, false, "Alone"), (10.0, false, BODY)]]), ["Alone"]);
    }

    #[test]
    fn labels_and_lines_of_contents_are_no_headings() {
        let form: &[_] = &[
            (14.0, true, "Registration"),
            (10.0, false, BODY),
            (10.0, true, "Name"),
            (10.0, true, "Street"),
            (10.0, true, "City"),
            (10.0, true, "Country"),
            (10.0, false, BODY),
            (10.0, true, "Name Count Price"),
            (10.0, false, "Duck 200 3.50"),
            (10.0, false, BODY),
        ];
        assert_eq!(titles(&[form]), ["Registration"]);
        let form: &[_] = &[
            (14.0, true, "Registration"),
            (10.0, false, BODY),
            (10.0, true, "Name of the person who registers"),
            (10.0, true, "Name of the street and of the house"),
            (10.0, true, "Name of the city that it is in"),
            (10.0, true, "Name of the country that it is in"),
            (10.0, true, "Name of the school that is left"),
            (10.0, true, "Name of the last year that was passed"),
            (10.0, false, BODY),
        ];
        assert_eq!(titles(&[form]), ["Registration"], "labels that read like prose");
        let contents: &[_] = &[
            (14.0, true, "Contents"),
            (12.0, true, "1 Ducks ........ 2"),
            (12.0, true, "2 The geese 9"),
            (10.0, false, BODY),
            (12.0, true, "1 Ducks"),
            (10.0, false, BODY),
        ];
        assert_eq!(titles(&[contents]), ["Contents", "1 Ducks"]);
    }

    #[test]
    fn a_number_that_comes_next_heads_a_drawing_too_and_labels_in_it_are_no_headings() {
        let first: &[_] = &[
            (10.0, true, "1 Overview"),
            (10.0, false, BODY),
            (10.0, true, "2 Model"),
            (10.0, false, BODY),
            (10.0, true, "2.1 Views"),
            (10.0, true, "2.1.1 Logical view"),
        ];
        let drawing: &[_] = &[
            (10.0, true, "2.1.2 Network"),
            (16.0, false, "Stations Of Lines"),
            (6.0, false, "id: Number"),
            (6.0, false, "kind: Code"),
            (10.0, true, "2.1.9 Far Away"),
            (6.0, false, "id: Number"),
            (16.0, false, "A Larger Part"),
            (10.0, false, BODY),
        ];
        let expected = ["1 Overview", "2 Model", "2.1 Views", "2.1.1 Logical view", "2.1.2 Network", "A Larger Part"];
        assert_eq!(titles(&[first, drawing]), expected);
    }

    #[test]
    fn short_pages_have_headings_if_prose_is_below_them() {
        let page = |title: &'static str, text: &'static str| [(24.0, false, title), (12.0, false, text)];
        let (first, last) =
            (page("First Topic", "What there is to say of it"), page("Summary", "This was all there is to it"));
        assert_eq!(titles(&[&first, &last]), ["First Topic", "Summary"]);
        let (first, last) = (page("First Topic", "12 300 4500"), page("Summary", "12 300 4500"));
        assert_eq!(titles(&[&first, &last]), Vec::<String>::new());
    }

    #[test]
    fn numbered_capitals_in_small_type_head_the_body() {
        let page: &[_] = &[
            (8.0, false, "I. INTRODUCTION"),
            (10.0, false, BODY),
            (8.0, false, "II. METHOD"),
            (10.0, false, BODY),
            (8.0, false, "NOTE"),
            (10.0, false, BODY),
        ];
        assert_eq!(headings(&[page]), [(1, "I. INTRODUCTION".to_owned()), (1, "II. METHOD".to_owned())]);
    }
}
