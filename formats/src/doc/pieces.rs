//! The pieces that the text lies in, in the order of the text.

use super::properties::Switches;
use crate::{
    Format, FormatError, Limits,
    compound::{long, short},
    extraction::check_text,
};
use std::ops::Range;

/// The place of a piece is that of its bytes, doubled and marked if its characters have one byte.
const NARROW: u32 = 0x4000_0000;
const PLACE: u32 = 0x3FFF_FFFF;
/// How often the bytes of the file may be read as bytes of pieces.
const TIMES: usize = 4;
/// Pieces can name no more lists of changes than this.
const LISTS: usize = 1 << 15;

pub(super) struct Pieces<'a> {
    main: &'a [u8],
    /// By ascending positions, without overlap.
    pieces: Vec<Piece>,
}

struct Piece {
    start: u32,
    end: u32,
    /// Where its bytes begin.
    at: usize,
    is_narrow: bool,
    /// What it says of its characters beyond what they say themselves.
    switches: Switches,
}

/// A unit of UTF-16.
#[derive(Clone, Copy)]
pub(super) struct Character {
    /// Which one of the text it is.
    pub position: u32,
    /// Where its bytes are, by which its properties are found.
    pub offset: usize,
    pub unit: u16,
    /// Those of its piece.
    pub switches: Switches,
}

impl<'a> Pieces<'a> {
    pub(super) fn read(main: &'a [u8], part: &[u8], limits: &Limits) -> Result<Self, FormatError> {
        let (mut rest, mut lists) = (part, Vec::new());
        // Lists of changes that pieces name come first.
        while let [1, after @ ..] = rest {
            let size = usize::from(short(after, 0).unwrap_or_default());
            if lists.len() < LISTS {
                lists.push(Switches::of(after.get(2..2 + size).unwrap_or_default()));
            }
            rest = after.get(2 + size..).unwrap_or_default();
        }
        let (Some(&2), Some(length)) = (rest.first(), long(rest, 1)) else {
            return Err(FormatError::corrupt(Format::Doc, "nothing says where its text lies"));
        };
        let table = rest.get(5..).unwrap_or_default();
        let table = table.get(..length as usize).unwrap_or(table);
        let count = table.len().saturating_sub(4) / 12;
        let mut pieces: Vec<Piece> = Vec::new();
        // Many pieces may claim the same bytes.
        let (mut total, mut left) = (0, main.len().saturating_mul(TIMES));
        for index in 0..count {
            let entry = (count + 1) * 4 + index * 8;
            let (Some(start), Some(end), Some(place), Some(changes)) =
                (long(table, index * 4), long(table, index * 4 + 4), long(table, entry + 2), short(table, entry + 6))
            else {
                break;
            };
            let is_narrow = place & NARROW != 0;
            let place = (place & PLACE) as usize;
            let (at, width) = if is_narrow { (place / 2, 1) } else { (place, 2) };
            let there = main.len().saturating_sub(at) / width;
            let end = end.min(start.saturating_add(u32::try_from(there).unwrap_or(u32::MAX)));
            if start >= end || pieces.last().is_some_and(|piece| start < piece.end) {
                continue;
            }
            let characters = (end - start) as usize;
            let again = || FormatError::corrupt(Format::Doc, "many of its pieces claim the same bytes");
            left = left.checked_sub(characters * width).ok_or_else(again)?;
            total += characters;
            check_text(total, limits)?;
            pieces.push(Piece { start, end, at, is_narrow, switches: switches(changes, &lists) });
        }
        Ok(Self { main, pieces })
    }

    /// The characters at these positions, as far as they are there.
    pub(super) fn characters(&self, positions: Range<u32>) -> impl Iterator<Item = Character> {
        let (start, end) = (positions.start, positions.end);
        let first = self.pieces.partition_point(|piece| piece.end <= start);
        let pieces = self.pieces[first..].iter().take_while(move |piece| piece.start < end);
        pieces.flat_map(move |piece| {
            let positions = piece.start.max(start)..piece.end.min(end);
            positions.map(move |position| self.character(piece, position))
        })
    }

    fn character(&self, piece: &Piece, position: u32) -> Character {
        let index = (position - piece.start) as usize;
        let (offset, unit) = if piece.is_narrow {
            let offset = piece.at + index;
            (offset, self.main.get(offset).copied().map_or(0, wide))
        } else {
            let offset = piece.at + 2 * index;
            (offset, short(self.main, offset).unwrap_or_default())
        };
        Character { position, offset, unit, switches: piece.switches }
    }
}

/// What a piece says of its characters: the number of a list, or a single change.
fn switches(changes: u16, lists: &[Switches]) -> Switches {
    let number = changes >> 1;
    match changes & 1 {
        1 => lists.get(usize::from(number)).copied().unwrap_or_default(),
        _ => Switches::of_one((number & 0x7F) as u8, (changes >> 8) as u8),
    }
}

/// The character of a byte, in the code page 1252.
fn wide(byte: u8) -> u16 {
    const FROM_0X80: [u16; 32] = [
        0x20AC, 0x0081, 0x201A, 0x0192, 0x201E, 0x2026, 0x2020, 0x2021, 0x02C6, 0x2030, 0x0160, 0x2039, 0x0152, 0x008D,
        0x017D, 0x008F, 0x0090, 0x2018, 0x2019, 0x201C, 0x201D, 0x2022, 0x2013, 0x2014, 0x02DC, 0x2122, 0x0161, 0x203A,
        0x0153, 0x009D, 0x017E, 0x0178,
    ];
    match byte {
        0x80..=0x9F => FROM_0X80[usize::from(byte - 0x80)],
        _ => byte.into(),
    }
}
