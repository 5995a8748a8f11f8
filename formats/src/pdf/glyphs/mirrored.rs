//! Text whose letters a mirrored matrix draws to the left, in the order in which they are read.
//!
//! Tesseract writes what it has read of Hebrew and Arabic so, and the numbers and foreign words in it as well. A page that is seen in a
//! mirror is another case: its letters run to the right and are drawn to the left.

use super::{PageGlyphs, push_character};
use crate::pdf::layout::{balance, drawn_order, mirrored};
use kurbo::{Affine, Point};
use std::{mem, ops::Range};

/// The strings of a page that are drawn so.
#[derive(Default)]
pub(super) struct Mirrored {
    strings: Vec<Range<usize>>,
}

/// Whether what is placed so is mirrored and runs to the left. A font's y axis points up and the page's down, so that of letters as they
/// are read the determinant is negative, in whichever direction they run.
pub(super) fn is_mirrored(place: Affine) -> bool {
    let [across, ..] = place.as_coeffs();
    across < 0.0 && place.determinant() > 0.0
}

impl Mirrored {
    pub(super) fn push(&mut self, glyphs: Range<usize>) {
        if !glyphs.is_empty() {
            self.strings.push(glyphs);
        }
    }

    /// Has the glyphs stand as such text is printed, if most letters of the strings are of right-to-left scripts.
    pub(super) fn finish(&mut self, page: &mut PageGlyphs) {
        let strings = mem::take(&mut self.strings);
        let glyphs = strings.iter().cloned().flatten();
        if glyphs.map(|glyph| balance(page.text_of(&page.glyphs[glyph]))).sum::<i64>() > 0 {
            strings.into_iter().for_each(|string| print(page, string));
        }
    }
}

/// Gives the glyphs of a string the places that they have from left to right.
fn print(page: &mut PageGlyphs, string: Range<usize>) {
    let glyphs = &page.glyphs[string.clone()];
    let texts: Vec<&str> = glyphs.iter().map(|glyph| page.text_of(glyph)).collect();
    let order = drawn_order(&texts);
    let places: Vec<(Point, f64)> =
        glyphs.iter().map(|glyph| (glyph.origin + glyph.direction * glyph.advance, glyph.advance)).collect();
    // The last place is the leftmost.
    for ((index, runs_left), (origin, advance)) in order.into_iter().zip(places.into_iter().rev()) {
        let text = page.text_of(&page.glyphs[string.start + index]).to_owned();
        let glyph = &mut page.glyphs[string.start + index];
        (glyph.origin, glyph.advance, glyph.direction) = (origin, advance, -glyph.direction);
        // In text that runs to the left, what opens is printed as what closes.
        if runs_left && text.chars().any(|character| mirrored(character) != character) {
            let start = page.text.len();
            text.chars().for_each(|character| push_character(&mut page.text, mirrored(character)));
            glyph.text = start as u32..page.text.len() as u32;
        }
    }
}
