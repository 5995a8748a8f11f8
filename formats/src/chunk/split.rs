//! Cuts what is too large for one chunk: at line ends, else between words, else between graphemes.

use super::{TokenCounter, trim};
use std::ops::Range;
use unicode_segmentation::{GraphemeCursor, UnicodeSegmentation};

/// The bounds of a piece.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room {
    pub tokens: usize,
    pub characters: usize,
}

/// The first piece of the rest of a unit.
#[derive(Debug)]
pub(super) struct Piece {
    /// `None` if a combining mark was cut off the blank that carries it.
    pub range: Option<Range<usize>>,
    pub tokens: usize,
    /// Where the next piece begins.
    pub next: usize,
}

/// A longer grapheme is not text and may be cut.
const LONG_GRAPHEME: usize = 64;

/// Returns the first piece of `rest` that fits the room, as large as a few tries find it. `rest` must begin with text.
/// `guess` is the number of characters expected for this piece, and on return for the next one.
pub(super) fn first_piece(
    text: &str,
    rest: &Range<usize>,
    room: Room,
    guess: &mut usize,
    tokens: &dyn TokenCounter,
) -> Piece {
    let least = first_grapheme(text, rest, room.characters);
    let mut size = (*guess).clamp(1, room.characters.max(1));
    loop {
        let end = cut(text, rest, size).max(least);
        let range = trim(text, rest.start..end);
        let count = range.clone().map_or(0, |range| tokens.count(&text[range]));
        let characters = text[rest.start..end].chars().count();
        if count > room.tokens && end > least {
            // The new size is proportional, a little smaller, and at least one smaller, so that the loop ends.
            size = (characters * room.tokens / count * 15 / 16).clamp(1, characters - 1);
            continue;
        }
        *guess = (characters * room.tokens).checked_div(count).unwrap_or(room.characters).max(8);
        return Piece { range, tokens: count, next: end };
    }
}

/// Where to cut so that at most `size` characters come before; always after the start.
fn cut(text: &str, rest: &Range<usize>, size: usize) -> usize {
    let slice = &text[rest.clone()];
    let Some((limit, _)) = slice.char_indices().nth(size) else { return rest.end };
    let window = &slice[..limit];
    // A better place to cut is worth at most half of the piece.
    let half = window.floor_char_boundary(limit / 2);
    let at_line = || window[half..].rfind('\n').map(|at| half + at + 1);
    let at_blank = || {
        window[half..].char_indices().rev().find(|(_, character)| character.is_whitespace()).map(|(at, _)| half + at)
    };
    let at_word = || {
        let from = window.floor_char_boundary(limit.saturating_sub(64).max(half));
        // The last bound is the window's own end, which may be within a word.
        slice[from..slice.ceil_char_boundary((limit + 64).min(slice.len()))]
            .split_word_bound_indices()
            .map(|(at, _)| from + at)
            .take_while(|&at| at <= limit)
            .last()
            .filter(|&at| at > from)
    };
    let ways: [&dyn Fn() -> Option<usize>; 3] = [&at_line, &at_blank, &at_word];
    let found = ways.iter().find_map(|way| way().filter(|&at| at > 0 && is_boundary(slice, at)));
    rest.start + found.unwrap_or_else(|| grapheme_end(slice, limit))
}

/// The grapheme boundary at or before `limit`, or `limit` itself within the first grapheme.
fn grapheme_end(slice: &str, limit: usize) -> usize {
    if is_boundary(slice, limit) {
        return limit;
    }
    let mut cursor = GraphemeCursor::new(limit, slice.len(), true);
    match cursor.prev_boundary(slice, 0) {
        Ok(Some(at)) if at > 0 => at,
        _ => limit,
    }
}

/// Whether a grapheme begins at the offset; `text` itself is assumed to begin with one.
pub(super) fn is_boundary(text: &str, at: usize) -> bool {
    GraphemeCursor::new(at, text.len(), true).is_boundary(text, 0).unwrap_or(true)
}

/// The end of the first grapheme, at most this many characters long: the smallest possible piece.
pub(super) fn first_grapheme(text: &str, rest: &Range<usize>, characters: usize) -> usize {
    let slice = &text[rest.clone()];
    let cap = slice.char_indices().nth(characters.min(LONG_GRAPHEME)).map_or(slice.len(), |(at, _)| at);
    rest.start + slice[..cap].graphemes(true).next().map_or(cap, str::len)
}
