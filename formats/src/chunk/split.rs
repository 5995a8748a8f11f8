//! Cuts what is too large for one chunk: at line ends, else between words, else between graphemes.

use std::ops::Range;

use unicode_segmentation::{GraphemeCursor, UnicodeSegmentation};

use super::{ChunkOptions, TokenCounter, trim};

/// Pieces of a range with their tokens. The first keeps to `room` (tokens, characters), what is left of a chunk already begun;
/// the others to the options.
pub(super) fn pieces(
    text: &str,
    range: Range<usize>,
    room: (usize, usize),
    options: &ChunkOptions,
    tokens: &dyn TokenCounter,
) -> Vec<(Range<usize>, usize)> {
    let full = (options.max_tokens, options.max_chars);
    // Too little room is worse than a heading of its own.
    let mut room = if room.0 * 4 < full.0 || room.1 * 4 < full.1 { full } else { room };
    let mut pieces = Vec::new();
    let mut rest = range;
    // Characters a piece is expected to take; the piece before is the best guess.
    let mut guess = full.1;
    while let Some(trimmed) = trim(text, rest.clone()) {
        rest = trimmed;
        let (max_tokens, max_chars) = room;
        let mut size = guess.clamp(1, max_chars);
        loop {
            let end = cut(text, &rest, size);
            let piece = trim(text, rest.start..end).unwrap_or(rest.start..end);
            let count = tokens.count(&text[piece.clone()]);
            let characters = text[rest.start..end].chars().count();
            if count > max_tokens && characters > 1 && end > first_grapheme(text, &rest, max_chars) {
                // In proportion, a little less; at least one less, so that it ends.
                size = (characters * max_tokens / count * 15 / 16).clamp(1, characters - 1);
                continue;
            }
            guess = (characters * full.0).checked_div(count).map_or(max_chars, |fit| fit.clamp(8.min(full.1), full.1));
            pieces.push((piece, count));
            rest.start = end;
            break;
        }
        room = full;
    }
    pieces
}

/// Where to cut so that at most `size` characters come before, always past the start.
fn cut(text: &str, rest: &Range<usize>, size: usize) -> usize {
    let slice = &text[rest.clone()];
    let Some((limit, _)) = slice.char_indices().nth(size) else { return rest.end };
    let window = &slice[..limit];
    // A better place to cut is worth at most half of the piece.
    let half = window.floor_char_boundary(limit / 2);
    let at_line = window[half..].rfind('\n').map(|at| half + at + 1);
    let at_blank = || {
        window[half..].char_indices().rev().find(|(_, character)| character.is_whitespace()).map(|(at, _)| half + at)
    };
    let at_word = || {
        let from = window.floor_char_boundary(limit.saturating_sub(64).max(half));
        // The last bound is the window's own end, which may fall within a word.
        slice[from..slice.ceil_char_boundary((limit + 64).min(slice.len()))]
            .split_word_bound_indices()
            .map(|(at, _)| from + at)
            .take_while(|&at| at <= limit)
            .last()
            .filter(|&at| at > from)
    };
    let found = at_line.or_else(at_blank).or_else(at_word).filter(|&at| at > 0);
    let at = found.unwrap_or_else(|| grapheme_end(slice, limit));
    rest.start + at
}

/// The grapheme boundary at or before `limit`, or `limit` itself where the grapheme is larger than that.
fn grapheme_end(slice: &str, limit: usize) -> usize {
    let mut cursor = GraphemeCursor::new(limit, slice.len(), true);
    if cursor.is_boundary(slice, 0).unwrap_or(true) {
        return limit;
    }
    match cursor.prev_boundary(slice, 0) {
        Ok(Some(at)) if at > 0 => at,
        _ => limit,
    }
}

/// The end of the first grapheme, of at most `max_chars` characters: the least a piece can be.
fn first_grapheme(text: &str, rest: &Range<usize>, max_chars: usize) -> usize {
    let slice = &text[rest.clone()];
    let cap = slice.char_indices().nth(max_chars).map_or(slice.len(), |(at, _)| at);
    rest.start + slice[..cap].graphemes(true).next().map_or(cap, str::len)
}
