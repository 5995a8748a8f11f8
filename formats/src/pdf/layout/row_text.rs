//! The text of a row: where blanks are between its glyphs, and in which direction it is read.

use super::{
    Spot, bidi,
    rows::{Row, Segment},
};
use crate::pdf::glyphs::PageGlyphs;
use std::ops::Range;
use unicode_normalization::char::is_combining_mark;

/// A gap narrower than this share of the font size is kerning.
const WORD_GAP: f64 = 0.17;
/// For text set closely without drawn blanks: letters are no further apart than the first value, words at least by the
/// second, and no gap lies between the two within the third.
const CLOSE_WORD_GAP: f64 = 0.1;
const LEAST_WORD_GAP: f64 = 0.08;
const CLEAR_STEP: f64 = 0.05;
/// The same for characters of scripts without blanks between words, and between these and others.
const WIDE_SCRIPT_GAP: f64 = 0.6;
const MIXED_SCRIPT_GAP: f64 = 0.3;
/// The same before a number's decimals.
const DECIMAL_GAP: f64 = 0.5;
/// The same between digits of two strings, which narrow columns of numbers have.
const NUMBER_GAP: f64 = 0.08;
/// What is raised is so much smaller than what is before it, and stands so much of the size higher.
const RAISED_SIZE: f64 = 0.85;
const RAISED_BY: f64 = 0.15;
/// Letters further apart than this share of the size do not form a word.
const MOST_SPACING: f64 = 0.6;

#[cfg(test)]
thread_local! {
    /// How many glyphs were looked at to tell which numbers are raised.
    pub(super) static LOOKED_AT: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// A row in the order of reading.
pub(super) struct Line {
    pub text: String,
    pub start: f64,
    pub end: f64,
    pub baseline: f64,
    /// The size of most of its characters.
    pub size: f64,
    pub bold: bool,
    /// Marked content in it, by bytes of the text.
    pub contents: Vec<(u32, Range<usize>)>,
    /// Its words from left to right; none if any of it runs to the left.
    pub words: Vec<Word>,
    /// It belongs to a form field or another annotation.
    pub annotated: bool,
}

/// A word of a line, with its place.
pub(super) struct Word {
    /// In bytes of the line's text.
    pub text: Range<usize>,
    pub start: f64,
    pub end: f64,
}

impl Line {
    pub(super) fn word(&self, word: &Word) -> &str {
        self.text.get(word.text.clone()).unwrap_or_default()
    }
}

/// Makes lines of each run of rows; rows without text are left out.
pub(super) fn lines(page: &PageGlyphs, spots: &[Spot], leaves: Vec<Vec<Row>>) -> Vec<Vec<Line>> {
    let line = |row: Row| Some(line(page, spots, &row)).filter(|line| !line.text.is_empty());
    let leaves = leaves.into_iter().map(|leaf| leaf.into_iter().filter_map(line).collect::<Vec<_>>());
    leaves.filter(|leaf| !leaf.is_empty()).collect()
}

/// A glyph's characters, or the blank between two glyphs.
struct Piece<'t> {
    text: &'t str,
    content: Option<u32>,
    /// Where a glyph starts and ends.
    place: Option<(f64, f64)>,
}

fn line(page: &PageGlyphs, spots: &[Spot], row: &Row) -> Line {
    let runs_left = row
        .segments
        .iter()
        .any(|segment| spots_of(spots, segment).iter().any(|spot| bidi::balance(text_of(page, spot)) > 0));
    let pieces = pieces(page, spots, row, runs_left);
    let mut writer = Writer::default();
    let mut words = Vec::new();
    if runs_left {
        let texts: Vec<&str> = pieces.iter().map(|piece| piece.text).collect();
        for (index, left) in bidi::logical_order(&texts) {
            writer.write(&pieces[index], left);
        }
    } else {
        words = write_words(&mut writer, &pieces);
    }
    let (size, bold) = style(page, spots, row);
    let Writer { text, contents } = writer.finish();
    let (start, end, baseline) = (row.start, row.end, row.baseline);
    Line { text, start, end, baseline, size, bold, contents, words, annotated: row.annotated }
}

/// Writes pieces that run to the right; returns the words.
fn write_words(writer: &mut Writer, pieces: &[Piece<'_>]) -> Vec<Word> {
    let mut words: Vec<Word> = Vec::new();
    let mut is_open = false;
    for piece in pieces {
        let before = writer.text.len();
        writer.write(piece, false);
        let written = before.min(writer.text.len())..writer.text.len();
        let place = piece.place.filter(|_| !piece.text.trim().is_empty());
        match (place, words.last_mut().filter(|_| is_open)) {
            (None, _) => is_open = false,
            (Some((start, end)), Some(word)) => {
                word.text.end = written.end;
                (word.start, word.end) = (word.start.min(start), word.end.max(end));
            }
            (Some((start, end)), None) => {
                words.push(Word { text: written, start, end });
                is_open = true;
            }
        }
    }
    words
}

fn spots_of<'s>(spots: &'s [Spot], segment: &Segment) -> &'s [Spot] {
    &spots[segment.spots.start as usize..segment.spots.end as usize]
}

fn text_of<'p>(page: &'p PageGlyphs, spot: &Spot) -> &'p str {
    page.text_of(&page.glyphs[spot.glyph as usize])
}

/// The row's glyphs with the blanks between them, as drawn or from left to right.
fn pieces<'p>(page: &'p PageGlyphs, spots: &[Spot], row: &Row, from_left: bool) -> Vec<Piece<'p>> {
    let mut pieces: Vec<Piece<'p>> = Vec::new();
    let mut before: Option<(&Spot, &str)> = None;
    let mut segments: Vec<Vec<&Spot>> =
        row.segments.iter().map(|segment| spots_of(spots, segment).iter().collect()).collect();
    if from_left {
        // Marks belong to the letter before them, and a segment may fill a hole of another.
        let mut placed = segments.concat();
        placed.sort_by(|a, b| a.start.total_cmp(&b.start));
        segments = vec![placed];
    }
    for placed in segments {
        let word_gap = word_gap(page, &placed);
        for (index, &spot) in placed.iter().enumerate() {
            let text = text_of(page, spot);
            let content = page.glyphs[spot.glyph as usize].content;
            if let Some((last, last_text)) = before {
                let size = spot.size.min(last.size);
                let gap = (spot.start - last.end) / size;
                // The gap before a segment is always wider than one between letters.
                let word_gap = if index == 0 { WORD_GAP } else { word_gap };
                let next = placed.get(index + 1).map_or("", |next| text_of(page, next));
                let least = least_gap(last_text, text, next, word_gap);
                if gap > least || (gap > NUMBER_GAP && begins_number(page, last, spot)) {
                    pieces.push(Piece { text: " ", content: None, place: None });
                } else if !from_left
                    && gap > -WORD_GAP
                    && let Some(mark) = before_raised(page, last, &placed[index..])
                {
                    pieces.push(Piece {
                        text: mark,
                        content,
                        place: (mark != " ").then_some((spot.start, spot.start)),
                    });
                }
            }
            pieces.push(Piece { text, content, place: Some((spot.start, spot.end)) });
            // A mark takes no space of its own.
            if !text.chars().all(is_combining_mark) {
                before = Some((spot, text));
            }
        }
    }
    pieces
}

/// Whether a string begins with a digit behind a string that ends with one. Some producers draw each digit by itself, which says
/// nothing.
fn begins_number(page: &PageGlyphs, last: &Spot, spot: &Spot) -> bool {
    let begins = |spot: &Spot| page.glyphs[spot.glyph as usize].begins;
    let is_digit = |spot: &Spot| text_of(page, spot).chars().all(|character| character.is_ascii_digit());
    begins(spot) && !begins(last) && is_digit(spot) && is_digit(last)
}

/// What parts a raised number from the digit directly before it, as marks of notes and powers are raised: both would read as one number.
/// The numerator of a fraction is no power.
fn before_raised(page: &PageGlyphs, last: &Spot, next: &[&Spot]) -> Option<&'static str> {
    let is_digit = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_digit(text_of(page, last)) {
        return None;
    }
    let is_raised = |spot: &Spot| {
        #[cfg(test)]
        LOOKED_AT.set(LOOKED_AT.get() + 1);
        spot.size <= RAISED_SIZE * last.size && spot.baseline < last.baseline - RAISED_BY * last.size
    };
    let mut raised = next.iter().take_while(|spot| is_raised(spot)).map(|spot| text_of(page, spot));
    let first = raised.next()?;
    let is_sign = matches!(first, "+" | "-" | "−" | "–");
    let is_number = is_digit(first) || (is_sign && raised.next().is_some_and(is_digit));
    if !is_number {
        return None;
    }
    let mut behind = next.iter().skip_while(|spot| is_raised(spot) && is_digit(text_of(page, spot)));
    let is_fraction = match behind.next().map(|spot| text_of(page, spot)) {
        Some("⁄") => true,
        // Units and years behind a power are as large as the number.
        Some("/") => {
            behind.next().is_some_and(|spot| spot.size <= RAISED_SIZE * last.size && is_digit(text_of(page, spot)))
        }
        _ => false,
    };
    Some(if is_fraction { " " } else { "^" })
}

/// The smallest gap, in font sizes, between characters of two words; `next` comes after them.
fn least_gap(before: &str, after: &str, next: &str, word_gap: f64) -> f64 {
    let (Some(last), Some(first)) = (before.chars().next_back(), after.chars().next()) else { return word_gap };
    match (is_wide_script(last), is_wide_script(first)) {
        (true, true) => WIDE_SCRIPT_GAP,
        (true, false) | (false, true) => word_gap.max(MIXED_SCRIPT_GAP),
        // A slanted letter leans over what follows it.
        _ if first == '-' && last.is_alphanumeric() => word_gap.max(WORD_GAP),
        // Decimals are often set separately, so that they align below each other.
        _ if matches!(first, '.' | ',') && last.is_numeric() && next.starts_with(char::is_numeric) => {
            word_gap.max(DECIMAL_GAP)
        }
        _ => word_gap,
    }
}

/// The same for a segment, whose letters may be spaced, or whose words may be close without drawn blanks.
fn word_gap(page: &PageGlyphs, placed: &[&Spot]) -> f64 {
    let mut gaps = Vec::new();
    let mut has_blanks = false;
    for pair in placed.windows(2) {
        let is_letter = |spot: &Spot| text_of(page, spot).chars().all(char::is_alphabetic);
        has_blanks |= text_of(page, pair[1]).starts_with(' ');
        if is_letter(pair[0]) && is_letter(pair[1]) {
            gaps.push((pair[1].start - pair[0].end) / pair[1].size);
        }
    }
    if gaps.len() < 4 {
        return WORD_GAP;
    }
    let middle = gaps.len() / 2;
    let median = *gaps.select_nth_unstable_by(middle, f64::total_cmp).1;
    if median > WORD_GAP / 2.0 && median < MOST_SPACING {
        return median * 1.4 + WORD_GAP / 2.0;
    }
    if has_blanks || gaps.len() <= 8 || median > 0.25 * CLOSE_WORD_GAP {
        return WORD_GAP;
    }
    // Words are separated by the gaps above the widest step from one gap to the next.
    gaps.sort_unstable_by(f64::total_cmp);
    let steps = gaps.windows(2).filter(|step| step[0] < CLOSE_WORD_GAP && step[1] > LEAST_WORD_GAP);
    let widest = steps.max_by(|a, b| (a[1] - a[0]).total_cmp(&(b[1] - b[0])));
    widest.map_or(WORD_GAP, |step| match step[1] - step[0] {
        width if width < CLEAR_STEP => WORD_GAP,
        width => (step[0] + 0.5 * width).clamp(0.75 * LEAST_WORD_GAP, WORD_GAP),
    })
}

/// Whether it is Han, kana or related.
fn is_wide_script(character: char) -> bool {
    matches!(character, '\u{2E80}'..='\u{312F}' | '\u{3190}'..='\u{9FFF}' | '\u{F900}'..='\u{FAFF}'
        | '\u{FE30}'..='\u{FE4F}' | '\u{FF00}'..='\u{FFEF}' | '\u{20000}'..='\u{3FFFF}')
}

/// The size of most characters, and whether nearly all of them are bold.
fn style(page: &PageGlyphs, spots: &[Spot], row: &Row) -> (f64, bool) {
    // A line has few sizes; further ones are left out.
    let mut sizes: Vec<(f64, usize)> = Vec::with_capacity(2);
    let (mut bold, mut all) = (0, 0);
    for spot in row.segments.iter().flat_map(|segment| spots_of(spots, segment)) {
        if text_of(page, spot).trim().is_empty() {
            continue;
        }
        bold += usize::from(page.glyphs[spot.glyph as usize].bold);
        all += 1;
        match sizes.iter().position(|(size, _)| (*size - spot.size).abs() < 0.1) {
            Some(at) => sizes[at].1 += 1,
            None if sizes.len() < 8 => sizes.push((spot.size, 1)),
            None => {}
        }
    }
    let size = sizes.iter().max_by_key(|(_, count)| *count).map_or(row.size, |(size, _)| *size);
    // A bullet or a sign of another font changes nothing.
    (size, all > 0 && bold * 10 >= all * 9)
}

#[derive(Default)]
struct Writer {
    text: String,
    contents: Vec<(u32, Range<usize>)>,
}

impl Writer {
    fn write(&mut self, piece: &Piece<'_>, runs_left: bool) {
        self.drop_soft_hyphen(piece);
        let start = self.text.len();
        for character in piece.text.chars() {
            if character == ' ' {
                if !self.text.is_empty() && !self.text.ends_with(' ') {
                    self.text.push(' ');
                }
            } else {
                self.text.push(if runs_left { bidi::mirrored(character) } else { character });
            }
        }
        let (Some(content), end) = (piece.content, self.text.len()) else { return };
        match self.contents.last_mut() {
            Some((last, range)) if *last == content => range.end = end,
            _ if end > start => self.contents.push((content, start..end)),
            _ => {}
        }
    }

    /// Drops a soft hyphen, which is visible only at the end of a line.
    fn drop_soft_hyphen(&mut self, next: &Piece<'_>) {
        if next.text.starts_with(char::is_alphabetic)
            && let Some(rest) = self.text.strip_suffix('\u{AD}')
        {
            self.text.truncate(rest.len());
            if let Some((_, last)) = self.contents.last_mut() {
                last.end = last.end.min(self.text.len());
            }
        }
    }

    fn finish(mut self) -> Self {
        self.text.truncate(self.text.trim_end().len());
        let end = self.text.len();
        self.contents.retain_mut(|(_, range)| {
            range.end = range.end.min(end);
            range.start < range.end
        });
        self
    }
}
