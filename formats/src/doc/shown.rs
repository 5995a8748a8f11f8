//! What characters show: the results of fields without their codes, no hidden or deleted text, and no marks.

use super::{
    pieces::Character,
    properties::{Look, Pages},
};
use std::ops::Range;

/// What a character ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    Paragraph,
    /// A cell, or the row after its last one.
    Cell,
}

/// Takes the characters of a story, one after the other.
pub(super) struct Shown<'a> {
    pages: Pages<'a>,
    /// The run of the last character, and how it looks.
    offsets: Range<usize>,
    look: Look,
    /// How many fields are open, and the outermost one whose code is being read.
    fields: u32,
    code: Option<u32>,
    /// The first half of a pair of surrogates.
    high: Option<u16>,
    /// Pictures in the text.
    pub pictures: u64,
}

impl<'a> Shown<'a> {
    pub(super) fn new(pages: Pages<'a>) -> Self {
        Self { pages, offsets: 0..0, look: Look::default(), fields: 0, code: None, high: None, pictures: 0 }
    }

    /// Forgets the fields of a story that has ended.
    pub(super) fn end_story(&mut self) {
        (self.fields, self.code, self.high) = (0, None, None);
    }

    /// Appends what the character shows, or says what it ends.
    pub(super) fn show(&mut self, character: Character, text: &mut String) -> Option<End> {
        let high = self.high.take();
        let look = self.look(character.offset);
        match character.unit {
            // A mark within the code of a field is none of the text.
            0x0C..=0x0E if self.code.is_none() => return Some(End::Paragraph),
            0x07 => return Some(End::Cell),
            0x13 => {
                self.fields = self.fields.saturating_add(1);
                self.code = self.code.or(Some(self.fields));
            }
            0x14 => self.end_code(),
            0x15 => {
                self.end_code();
                self.fields = self.fields.saturating_sub(1);
            }
            _ if self.code.is_some() || look.is_hidden => {}
            0x01 => self.pictures += 1,
            0x09 => text.push('\t'),
            0x0B => text.push('\n'),
            0x1E => text.push('-'),
            0x28 if look.symbol.is_some() => text.extend(look.symbol.and_then(symbol)),
            unit @ 0xE000..=0xF8FF => text.extend(symbol(unit)),
            unit @ 0xD800..=0xDBFF => self.high = Some(unit),
            unit => {
                let units = high.into_iter().chain([unit]);
                let characters = char::decode_utf16(units).map(|read| read.unwrap_or(char::REPLACEMENT_CHARACTER));
                text.extend(characters.filter(|character| !character.is_control() && *character != '\u{AD}'));
            }
        }
        None
    }

    fn end_code(&mut self) {
        if self.code == Some(self.fields) {
            self.code = None;
        }
    }

    fn look(&mut self, offset: usize) -> Look {
        if !self.offsets.contains(&offset) {
            let run = self.pages.run(offset);
            self.look = run.as_ref().map_or_else(Look::default, |run| Look::of(run.properties));
            self.offsets = run.map_or(offset..offset + 1, |run| run.offsets);
        }
        self.look
    }
}

/// Fonts of symbols have their characters where nobody else has any.
fn symbol(unit: u16) -> Option<char> {
    match unit {
        0xF0B7 => Some('•'),
        0xE000..=0xF8FF => None,
        unit => char::from_u32(unit.into()).filter(|character| !character.is_control()),
    }
}
