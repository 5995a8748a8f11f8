//! The beginning of a document (FIB), which says where everything else is.

use crate::{
    CompoundKind, Format, FormatError,
    compound::{long, short},
};
use std::ops::Range;

/// The first version whose header has this form is that of Word 97.
const WORD_97: u16 = 0xC0;
const ENCRYPTED: u16 = 0x0100;
/// The flag of a document that is obfuscated as Word 95 did it.
const OBFUSCATED: u16 = 0x8000;
const SECOND_TABLE: u16 = 0x0200;
/// Where the counts of characters and the places of the parts are.
const COUNTS: usize = 0x4C;
const PARTS: usize = 0x9A;

/// The parts of a document that a reader needs, by their numbers.
#[derive(Clone, Copy)]
pub(super) enum Part {
    Styles = 1,
    FootnotePlaces = 2,
    FootnoteTexts = 3,
    Characters = 12,
    Paragraphs = 13,
    Fonts = 15,
    Pieces = 33,
    EndnotePlaces = 46,
    EndnoteTexts = 47,
}

/// The beginning of the header, which is never encrypted.
pub(super) struct Start {
    /// The stream with the parts.
    pub tables: &'static str,
    /// The bytes at the beginning of that stream that say how the document is locked, if it is.
    pub lock: Option<usize>,
}

impl Start {
    /// Refuses what an older program wrote, and what is locked as that program did it.
    pub(super) fn read(main: &[u8]) -> Result<Self, FormatError> {
        let (Some(version), Some(flags)) = (short(main, 2), short(main, 10)) else {
            return Err(FormatError::corrupt(Format::Doc, "its header is not there"));
        };
        let is_locked = flags & ENCRYPTED != 0;
        if version < WORD_97 || is_locked && flags & OBFUSCATED != 0 {
            return Err(FormatError::Compound { kind: CompoundKind::LegacyWord, encrypted: is_locked });
        }
        let tables = if flags & SECOND_TABLE == 0 { "/0Table" } else { "/1Table" };
        Ok(Self { tables, lock: is_locked.then(|| long(main, 14).unwrap_or_default() as usize) })
    }
}

/// Stories are ranges of positions, which count characters: one text follows the other.
pub(super) struct Header<'a> {
    main: &'a [u8],
    pub text: Range<u32>,
    pub footnotes: Range<u32>,
    pub endnotes: Range<u32>,
    pub boxes: Range<u32>,
}

impl<'a> Header<'a> {
    pub(super) fn read(main: &'a [u8]) -> Self {
        let mut end = 0;
        let story = |index: usize| {
            let start: u32 = end;
            end = start.saturating_add(long(main, COUNTS + index * 4).unwrap_or_default());
            start..end
        };
        // Between them are the headers and footers, macros, and remarks.
        let [text, footnotes, _, _, _, endnotes, boxes] = [0, 1, 2, 3, 4, 5, 6].map(story);
        Self { main, text, footnotes, endnotes, boxes }
    }

    /// The bytes of a part, as far as they are there.
    pub(super) fn part<'t>(&self, tables: &'t [u8], part: Part) -> &'t [u8] {
        let at = PARTS + part as usize * 8;
        let (Some(start), Some(length)) = (long(self.main, at), long(self.main, at + 4)) else { return &[] };
        let rest = tables.get(start as usize..).unwrap_or_default();
        rest.get(..length as usize).unwrap_or(rest)
    }
}
