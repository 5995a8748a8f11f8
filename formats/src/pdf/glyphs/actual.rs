//! The texts that marked contents stand for, where their glyphs are something else.
//!
//! Browsers and typesetters say so of ligatures and of glyphs that their fonts have for several characters, and of the hyphens that
//! they set themselves.

use super::{Glyph, PageGlyphs, UNKNOWN, push_character};
use crate::pdf::strings::text_lines;
use std::{mem, ops::Range};

/// The most bytes of such a text. A longer one is a passage, and the glyphs of a passage tell its lines.
const MOST_BYTES: usize = 256;
/// The most bytes of all of a page, which may name one text for each of its glyphs.
const MOST_OF_PAGE: usize = 4 << 20;
/// How far the glyphs of a text may be off its line, and apart on it, in sizes.
const OFF: f64 = 0.5;
const APART: f64 = 1.0;

/// The texts of a page.
#[derive(Default)]
pub(super) struct ActualTexts {
    /// The outermost open content that has one.
    open: Option<Open>,
    found: Vec<Found>,
    /// The bytes of those that were found.
    bytes: usize,
}

struct Open {
    /// How many contents are around it.
    around: usize,
    /// Its first glyph.
    first: usize,
    text: String,
}

struct Found {
    glyphs: Range<usize>,
    /// A byte range of the page's text.
    text: Range<u32>,
}

impl ActualTexts {
    /// Begins a content that stands for a text, within so many others, before the glyph of this number.
    pub(super) fn begin(&mut self, text: &[u8], around: usize, first: usize) {
        if self.open.is_none() && text.len() <= MOST_BYTES {
            self.open = Some(Open { around, first, text: text_lines(text) });
        }
    }

    /// Ends the content that is within so many others.
    pub(super) fn end(&mut self, around: usize, page: &mut PageGlyphs) {
        let Some(open) = self.open.take_if(|open| open.around == around) else { return };
        let glyphs = open.first..page.glyphs.len();
        if glyphs.is_empty() {
            return;
        }
        let start = page.text.len();
        open.text.chars().for_each(|character| push_character(&mut page.text, character));
        self.bytes += page.text.len() - start;
        if self.bytes > MOST_OF_PAGE {
            return page.text.truncate(start);
        }
        self.found.push(Found { glyphs, text: start as u32..page.text.len() as u32 });
    }

    /// Puts the texts in the place of their glyphs.
    pub(super) fn finish(&mut self, page: &mut PageGlyphs) {
        let all = mem::take(&mut self.found);
        if all.is_empty() {
            return;
        }
        let mut stays = vec![true; page.glyphs.len()];
        for found in all {
            let Some(whole) = whole(page, &found) else { continue };
            for glyph in found.glyphs.clone() {
                let (characters, unknown) = counted(page.text_of(&page.glyphs[glyph]));
                page.characters = page.characters.saturating_sub(characters);
                page.unknown = page.unknown.saturating_sub(unknown);
            }
            stays[found.glyphs.clone()].fill(false);
            // What stands for no text shows nothing.
            if !found.text.is_empty() {
                let (characters, unknown) = counted(page.text_of(&whole));
                page.characters += characters;
                page.unknown += unknown;
                stays[found.glyphs.start] = true;
                page.glyphs[found.glyphs.start] = whole;
            }
        }
        let mut stays = stays.into_iter();
        page.glyphs.retain(|_| stays.next().unwrap_or(true));
    }
}

/// The number of characters that are not white space, and of unknown glyphs.
fn counted(text: &str) -> (usize, usize) {
    let characters = text.chars().filter(|character| !character.is_whitespace()).count();
    (characters, usize::from(text.starts_with(UNKNOWN)))
}

/// The glyph that shows the text in place of others. There is none for a text over more than a line, and none for a blank over the
/// dots of a leader, by which a table of contents is known.
fn whole(page: &PageGlyphs, found: &Found) -> Option<Glyph> {
    let glyphs = &page.glyphs[found.glyphs.clone()];
    let first = glyphs.first()?;
    let place = |glyph: &Glyph| {
        let start = (glyph.origin - first.origin).dot(first.direction);
        (start, start + glyph.advance)
    };
    let (mut start, mut end) = place(first);
    for pair in glyphs.windows(2) {
        let [before, glyph] = pair else { return None };
        let size = before.size.max(glyph.size);
        let (last, next) = (place(before), place(glyph));
        let gap = (next.0 - last.1).max(last.0 - next.1);
        let off = (glyph.origin - first.origin).cross(first.direction).abs();
        if glyph.direction.dot(first.direction) <= 0.0 || off >= OFF * size || gap > APART * size {
            return None;
        }
        (start, end) = (start.min(next.0), end.max(next.1));
    }
    let glyph = Glyph {
        text: found.text.clone(),
        origin: first.origin + first.direction * start,
        advance: end - start,
        ..first.clone()
    };
    let is_leader = glyphs.len() > 1 && !glyph.text.is_empty() && page.text_of(&glyph).trim().is_empty();
    (!is_leader).then_some(glyph)
}
