//! Rows: what was drawn consecutively on one baseline.

use super::{Spot, bidi};
use crate::pdf::glyphs::PageGlyphs;
use std::ops::Range;

/// Baselines within this share of the size are the same, so that subscripts and superscripts stay in their line.
const BASELINE: f64 = 0.5;
/// Going back further than this along a line begins another row.
const BACKSTEP: f64 = 0.6;
/// A blank wider than this share of the size may be a gutter.
const WIDE: f64 = 1.0;

/// No row of any table has more cells.
const MOST_SEGMENTS: usize = 2000;
/// The most letters in a row that are drawn after the others of their word, how many rows before them may have it, and
/// how many glyphs are compared for that on a page.
const MOST_LATE: usize = 2;
const LOOKED_BACK: usize = 8;
const MOST_COMPARED: usize = 4_000_000;

/// Glyphs drawn consecutively, without a wide blank between them.
#[derive(Debug, Clone)]
pub(super) struct Segment {
    /// A range of the frame's spots.
    pub spots: Range<u32>,
    pub start: f64,
    pub end: f64,
    pub characters: usize,
    pub words: usize,
}

#[derive(Debug, Clone)]
pub(super) struct Row {
    pub segments: Vec<Segment>,
    pub start: f64,
    pub end: f64,
    pub baseline: f64,
    pub size: f64,
    /// Its position in the order of drawing.
    pub drawn: usize,
    /// The number of right-to-left letters minus the number of left-to-right letters.
    pub rtl_balance: i64,
    /// It belongs to a form field, which belongs to the row that it is on.
    pub annotated: bool,
    /// It has no text of its own but takes the place of a region.
    pub region: Option<Region>,
}

/// Rows that are laid out separately.
#[derive(Debug, Clone, Copy)]
pub(super) struct Region {
    pub index: usize,
    pub rows: usize,
    pub characters: usize,
    /// The last baseline.
    pub bottom: f64,
}

impl Row {
    /// Makes the row that stands for a region's rows; it begins where they begin.
    pub(super) fn of_region(index: usize, rows: &[Self]) -> Option<Self> {
        let first = rows.iter().min_by(|a, b| a.baseline.total_cmp(&b.baseline))?;
        let bottom = rows.iter().map(|row| row.baseline).fold(first.baseline, f64::max);
        let characters = rows.iter().map(Self::characters).sum();
        Some(Self {
            segments: Vec::new(),
            start: rows.iter().map(|row| row.start).fold(first.start, f64::min),
            end: rows.iter().map(|row| row.end).fold(first.end, f64::max),
            drawn: rows.iter().map(|row| row.drawn).fold(first.drawn, usize::min),
            region: Some(Region { index, rows: rows.len(), characters, bottom }),
            ..*first
        })
    }

    /// Makes a row like this one from some of its segments.
    pub(super) fn of_segments(&self, segments: Vec<Segment>) -> Self {
        let start = segments.iter().map(|segment| segment.start).fold(f64::INFINITY, f64::min);
        let end = segments.iter().map(|segment| segment.end).fold(f64::NEG_INFINITY, f64::max);
        Self { start, end, segments, rtl_balance: self.rtl_balance.signum(), ..*self }
    }

    pub(super) fn characters(&self) -> usize {
        match &self.region {
            Some(region) => region.characters,
            None => self.segments.iter().map(|segment| segment.characters).sum(),
        }
    }

    /// The number of rows that it stands for.
    pub(super) fn count(&self) -> usize {
        self.region.map_or(1, |region| region.rows)
    }

    pub(super) fn bottom(&self) -> f64 {
        self.region.map_or(self.baseline, |region| region.bottom)
    }

    pub(super) fn is_level_with(&self, other: &Self) -> bool {
        self.region.is_none()
            && other.region.is_none()
            && (self.baseline - other.baseline).abs() < 0.4 * self.size.max(other.size)
    }

    pub(super) fn overlaps(&self, other: &Self) -> bool {
        self.start.max(other.start) + 0.3 * self.size.min(other.size) < self.end.min(other.end)
    }

    /// Whether the other row's segments are where this one has no glyph.
    fn has_holes_for(&self, other: &Self, spots: &[Spot], budget: &mut usize) -> bool {
        let slack = other.size;
        let is_within = self.rtl_balance > 0
            && self.annotated == other.annotated
            && self.is_level_with(other)
            && self.segments.len() + other.segments.len() < MOST_SEGMENTS
            && self.start < other.start + slack
            && other.end < self.end + slack;
        if !is_within {
            return false;
        }
        let glyphs = || {
            self.segments.iter().flat_map(|segment| &spots[segment.spots.start as usize..segment.spots.end as usize])
        };
        let Some(left) = budget.checked_sub(glyphs().count().saturating_mul(other.segments.len())) else {
            return false;
        };
        *budget = left;
        let is_free = |spot: &Spot| {
            let middle = (spot.start + spot.end) / 2.0;
            other.segments.iter().all(|segment| middle <= segment.start || middle >= segment.end)
        };
        glyphs().all(is_free)
    }

    /// Takes in a row beside it, or in a hole of it.
    pub(super) fn join(&mut self, other: Self) {
        self.segments.extend(other.segments);
        self.segments.sort_by(|a, b| a.start.total_cmp(&b.start));
        self.start = self.start.min(other.start);
        self.end = self.end.max(other.end);
        self.rtl_balance += other.rtl_balance;
        if other.size > self.size {
            (self.baseline, self.size) = (other.baseline, other.size);
        }
    }
}

/// A row of one segment that still grows.
struct Open {
    row: Row,
    spots: Range<u32>,
    /// Where the next glyph is expected: blanks at the end move this, but not the row's end.
    pen: f64,
    characters: usize,
    words: usize,
    after_blank: bool,
}

/// The rows of a frame in the order of drawing.
pub(super) fn rows(page: &PageGlyphs, spots: &[Spot]) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    let mut open: Option<Open> = None;
    for (index, spot) in spots.iter().enumerate() {
        let glyph = &page.glyphs[spot.glyph as usize];
        let text = page.text_of(glyph);
        let is_blank = text.trim().is_empty();
        let rtl = bidi::balance(text);
        match &mut open {
            Some(open) if open.takes(spot, rtl, is_blank) => open.push(index, spot, rtl, is_blank),
            // A blank begins nothing.
            _ if is_blank => {
                if let Some(open) = &mut open {
                    open.after_blank = true;
                }
            }
            _ => {
                finish(&mut rows, open.take());
                open = Some(Open::new(index, spot, rtl, glyph.annotated));
            }
        }
    }
    finish(&mut rows, open);
    with_late_letters(rows, spots)
}

/// Puts letters into the words that they were left out of. Where right-to-left text is drawn font by font, a letter that
/// another font has comes after its row, in the hole that it left there.
fn with_late_letters(rows: Vec<Row>, spots: &[Spot]) -> Vec<Row> {
    let mut budget = MOST_COMPARED;
    let mut kept: Vec<Row> = Vec::with_capacity(rows.len());
    for row in rows {
        let is_late = row.rtl_balance > 0 && row.segments.iter().all(|segment| segment.characters <= MOST_LATE);
        let mut before = kept.iter_mut().rev().take(LOOKED_BACK);
        match before.find(|before| is_late && before.has_holes_for(&row, spots, &mut budget)) {
            Some(before) => before.join(row),
            None => kept.push(row),
        }
    }
    kept
}

fn finish(rows: &mut Vec<Row>, open: Option<Open>) {
    let Some(Open { mut row, spots, characters, words, .. }) = open else { return };
    row.segments = vec![Segment { spots, start: row.start, end: row.end, characters, words }];
    row.drawn = rows.len();
    match rows.last_mut() {
        Some(last) if goes_on(last, &row) => last.join(row),
        _ => rows.push(row),
    }
}

fn goes_on(last: &Row, row: &Row) -> bool {
    let slack = BACKSTEP * last.size.max(row.size);
    let leftwards = last.rtl_balance > 0 || row.rtl_balance > 0;
    last.annotated == row.annotated
        && last.segments.len() < MOST_SEGMENTS
        && last.is_level_with(row)
        && (row.start > last.end - slack || (leftwards && row.end < last.start + slack))
}

impl Open {
    fn new(index: usize, spot: &Spot, rtl: i64, annotated: bool) -> Self {
        let row = Row {
            segments: Vec::new(),
            start: spot.start,
            end: spot.end,
            baseline: spot.baseline,
            size: spot.size,
            drawn: 0,
            rtl_balance: rtl,
            annotated,
            region: None,
        };
        let index = index as u32;
        Self { row, spots: index..index + 1, pen: spot.end, characters: 1, words: 1, after_blank: false }
    }

    fn takes(&self, spot: &Spot, rtl: i64, is_blank: bool) -> bool {
        let size = self.row.size.max(spot.size);
        if (spot.baseline - self.row.baseline).abs() >= BASELINE * size {
            return false;
        }
        let ahead = spot.start - self.pen;
        // Some producers draw right-to-left text in its logical order, each glyph to the left of the last.
        let leftwards = rtl > 0 || (self.row.rtl_balance > 0 && (rtl == 0 || is_blank));
        let behind = self.row.start - spot.end;
        (ahead > -BACKSTEP * size && ahead < WIDE * size)
            || (leftwards && behind > -BACKSTEP * size && behind < WIDE * size)
    }

    fn push(&mut self, index: usize, spot: &Spot, rtl: i64, is_blank: bool) {
        self.spots.end = index as u32 + 1;
        self.row.rtl_balance += rtl;
        if is_blank {
            self.pen = self.pen.max(spot.end);
            self.after_blank = true;
            return;
        }
        if self.after_blank || spot.start - self.pen > 0.2 * spot.size {
            self.words += 1;
        }
        self.after_blank = false;
        self.characters += 1;
        self.row.start = self.row.start.min(spot.start);
        self.row.end = self.row.end.max(spot.end);
        self.pen = self.pen.max(spot.end).min(spot.end + WIDE * spot.size);
        // The larger glyph sets the line; the other is a superscript.
        if spot.size > self.row.size * 1.05 {
            (self.row.baseline, self.row.size) = (spot.baseline, spot.size);
        }
    }
}
