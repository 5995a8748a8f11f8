//! Puts glyphs, which come in the order of drawing, into text in the order of reading.
//!
//! For nearly every producer the order of drawing is the order of reading, so it is kept unless the positions
//! contradict it: columns drawn across, rows drawn by column, a footer drawn first. Text of each direction is laid out
//! in a frame of its own, turned so that its lines run right and follow each other downwards. The frame with the most
//! glyphs comes first. Lines that are turned only a little otherwise than more of the text are in its frame.

mod bidi;
mod columns;
mod hyphens;
mod order;
mod paragraphs;
mod regions;
mod row_text;
mod rows;
mod tables;

use super::glyphs::{Glyph, PageGlyphs};
use crate::Table;
pub(super) use bidi::{as_drawn, balance, drawn_order, mirrored};
pub use hyphens::join_lines;
use kurbo::{Point, Rect, Vec2};
use rustc_hash::FxHashMap;
use std::{cmp::Reverse, ops::Range};

/// Fewer glyphs of one slant are letters along a curve, for example, and make no lines of their own.
const FEWEST: usize = 3;
/// How many degrees lines of one frame may be apart. Engines that read a scan measure the slant of each line by itself, and make short
/// ones level.
const TILT: i32 = 2;
/// Directions that are less apart, in radians, are one: where each word is stretched by itself, those of a line differ by rounding.
const SAME: f64 = 1e-3;

/// The text of a page.
#[derive(Default)]
pub(super) struct Laid {
    /// Lines end in `\n`, paragraphs in an empty line.
    pub text: String,
    /// In the order of the text.
    pub lines: Vec<LaidLine>,
    /// Where marked content is in the text, in the text's order; one content may be in several places.
    pub contents: Vec<(u32, Range<usize>)>,
    /// The tables, and where they are in the text, in the text's order.
    pub tables: Vec<Table>,
    covered: Vec<Range<usize>>,
}

impl Laid {
    /// Whether what begins here is within a table.
    pub(super) fn is_in_table(&self, at: usize) -> bool {
        let next = self.covered.partition_point(|range| range.end <= at);
        self.covered.get(next).is_some_and(|range| range.start <= at)
    }

    /// Adds tables whose lines were written from `first` on.
    fn add_tables(&mut self, found: Vec<tables::Found>, first: usize) {
        for tables::Found { lines, rows, rule, has_header } in found {
            let mut ranges: Vec<Range<usize>> = Vec::new();
            let mut before: Option<usize> = None;
            for line in lines {
                let Some(laid) = self.lines.get(first + line) else { continue };
                match ranges.last_mut().filter(|_| before.is_some_and(|before| before + 1 == line)) {
                    Some(range) => range.end = laid.range.end,
                    None => ranges.push(laid.range.clone()),
                }
                before = Some(line);
            }
            self.tables.push(Table { ranges, rule, has_header, rows, parts: 1 });
        }
    }

    fn sort_tables(&mut self) {
        self.tables.sort_by_key(|table| table.span().start);
        self.covered = self.tables.iter().flat_map(|table| table.ranges.iter().cloned()).collect();
        self.covered.sort_by_key(|range| range.start);
    }
}

/// A line as it was set. If a hyphen was removed, two of them share a line of the text.
#[derive(Debug, Clone)]
pub(super) struct LaidLine {
    pub range: Range<usize>,
    /// The font's size, in points.
    pub size: f64,
    pub bold: bool,
    /// It is the first, or last, line of its paragraph.
    pub first: bool,
    pub last: bool,
}

/// A glyph in its frame.
#[derive(Clone, Copy)]
struct Spot {
    /// An index into [`PageGlyphs::glyphs`].
    glyph: u32,
    start: f64,
    end: f64,
    /// Its distance downwards.
    baseline: f64,
    size: f64,
}

pub(super) fn lay_out(page: &PageGlyphs) -> Laid {
    let mut laid = Laid::default();
    let (frames, strays) = frames(page);
    for (angle, spots) in frames {
        let boxes: Vec<Rect> = page.boxes.iter().filter_map(|drawn| in_frame(drawn, angle)).collect();
        let rows = rows::rows(page, &spots);
        let rtl = rows.iter().map(|row| row.rtl_balance).sum::<i64>() > 0;
        let leaves = regions::reading_order(rows, &boxes, rtl);
        let lines = row_text::lines(page, &spots, leaves);
        let rulings: Vec<Rect> = page.rulings.iter().filter_map(|drawn| in_frame(drawn, angle)).collect();
        let found = tables::find(&lines, &rulings);
        let first = laid.lines.len();
        paragraphs::write(&mut laid, lines);
        laid.add_tables(found, first);
    }
    laid.sort_tables();
    write_strays(page, &strays, &mut laid);
    laid
}

/// The frames, each with its angle, the one with most glyphs first, and the glyphs without a frame.
fn frames(page: &PageGlyphs) -> (Vec<(i32, Vec<Spot>)>, Vec<u32>) {
    let tilted = tilted(page);
    let mut frames: Vec<(i32, Vec<Spot>)> = Vec::new();
    let mut by_angle = FxHashMap::default();
    // Nearly always it is the frame of the glyph before.
    let mut last: Option<(Vec2, usize, Turn, Option<Point>)> = None;
    for (index, glyph) in page.glyphs.iter().enumerate() {
        let (direction, frame, turn, line) = match last {
            Some(last) if (last.0 - glyph.direction).hypot() < SAME => last,
            _ => {
                let own = angle(glyph);
                let within = tilted.get(&own).copied();
                let angle = within.unwrap_or(own);
                let frame = *by_angle.entry(angle).or_insert_with(|| {
                    frames.push((angle, Vec::new()));
                    frames.len() - 1
                });
                (glyph.direction, frame, Turn::by(angle), within.map(|_| glyph.origin))
            }
        };
        let line = line.map(|begin| if is_on_line(glyph, begin) { begin } else { glyph.origin });
        // The first direction stays, so that letters along a curve do not add up to one line.
        last = Some((direction, frame, turn, line));
        frames[frame].1.push(spot(glyph, index as u32, turn, line));
    }
    let mut strays = Vec::new();
    frames.retain(|(_, spots)| {
        let is_frame = spots.len() >= FEWEST || spots.len() == page.glyphs.len();
        if !is_frame {
            strays.extend(spots.iter().map(|spot| spot.glyph));
        }
        is_frame
    });
    if let Some(most) = (0..frames.len()).max_by_key(|&index| (frames[index].1.len(), usize::MAX - index)) {
        frames[..=most].rotate_right(1);
    }
    strays.sort_unstable();
    (frames, strays)
}

/// The angle of a glyph's line, rounded to a degree.
fn angle(glyph: &Glyph) -> i32 {
    (glyph.direction.atan2().to_degrees().round() as i32).rem_euclid(360)
}

/// The angles of lines that are in a frame of another angle, with that angle.
fn tilted(page: &PageGlyphs) -> FxHashMap<i32, i32> {
    let mut glyphs = [0usize; 360];
    let mut last = None;
    for glyph in &page.glyphs {
        let own = match last {
            Some((direction, own)) if direction == glyph.direction => own,
            _ => angle(glyph),
        };
        last = Some((glyph.direction, own));
        glyphs[own as usize] += 1;
    }
    let mut angles: Vec<i32> = (0..360).filter(|own| glyphs[*own as usize] >= FEWEST).collect();
    angles.sort_by_key(|own| Reverse(glyphs[*own as usize]));
    let (mut kept, mut tilted): (Vec<i32>, FxHashMap<i32, i32>) = (Vec::new(), FxHashMap::default());
    for own in angles {
        let apart = |other: i32| (own - other).rem_euclid(360).min((other - own).rem_euclid(360));
        match kept.iter().copied().find(|other| apart(*other) <= TILT) {
            Some(within) => {
                tilted.insert(own, within);
            }
            None => kept.push(own),
        }
    }
    tilted
}

/// Whether a glyph stands on the line that begins here.
fn is_on_line(glyph: &Glyph, begin: Point) -> bool {
    (glyph.origin - begin).cross(glyph.direction).abs() < glyph.size
}

/// A glyph in its frame. On a line that is turned otherwise it stands as far from where its `line` begins as on the page.
fn spot(glyph: &Glyph, index: u32, turn: Turn, line: Option<Point>) -> Spot {
    let (mut start, mut baseline) = turn.apply(line.unwrap_or(glyph.origin));
    if let Some(begin) = line {
        let from = glyph.origin - begin;
        start += from.dot(glyph.direction);
        baseline += glyph.direction.cross(from);
    }
    Spot { glyph: index, start, end: start + glyph.advance, baseline, size: glyph.size }
}

/// Turns positions into the frame of an angle.
#[derive(Clone, Copy)]
struct Turn {
    sin: f64,
    cos: f64,
}

impl Turn {
    fn by(angle: i32) -> Self {
        let (sin, cos) = f64::from(angle).to_radians().sin_cos();
        Self { sin, cos }
    }

    /// A position along the frame's lines, and downwards.
    fn apply(self, place: Point) -> (f64, f64) {
        let place = place.to_vec2();
        // The second axis is a quarter turn further, so that the next line of upright text is further down.
        (place.dot(Vec2::new(self.cos, self.sin)), place.dot(Vec2::new(-self.sin, self.cos)))
    }
}

/// A box in a frame whose lines run along its sides.
fn in_frame(drawn: &Rect, angle: i32) -> Option<Rect> {
    let turn = Turn::by(angle);
    let corner = |x, y| Point::from(turn.apply(Point::new(x, y)));
    (angle % 90 == 0).then(|| Rect::from_points(corner(drawn.x0, drawn.y0), corner(drawn.x1, drawn.y1)))
}

fn write_strays(page: &PageGlyphs, strays: &[u32], laid: &mut Laid) {
    let start = laid.text.len();
    let mut before: Option<&Glyph> = None;
    for &index in strays {
        let glyph = &page.glyphs[index as usize];
        let is_near = before.is_some_and(|before| {
            (glyph.origin - (before.origin + before.direction * before.advance)).hypot() < before.size
        });
        if !is_near && !laid.text.is_empty() {
            laid.text.push_str(if laid.text.len() == start { "\n\n" } else { "\n" });
        }
        laid.text.push_str(page.text_of(glyph).trim());
        before = Some(glyph);
    }
}

#[cfg(test)]
mod tests;
