//! What characters show: the results of fields without their codes, no hidden or deleted text, and no marks.

use super::{
    fonts::Fonts,
    pieces::Character,
    properties::{Look, Pages},
    styles::Styles,
};
use crate::{
    compound::short,
    docx::symbols,
    markdown::{begins_raised, is_raised_run},
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
    characters: Pages<'a>,
    paragraphs: Pages<'a>,
    styles: &'a Styles,
    fonts: &'a Fonts,
    /// Around the last character those that look as it does, how they look, whether their style hides them, and whether
    /// they stand above the line.
    offsets: Range<usize>,
    look: Look,
    style_hides: bool,
    is_raised: bool,
    /// How many fields are open, and the outermost one whose code is being read.
    fields: u32,
    code: Option<u32>,
    /// The first half of a pair of surrogates.
    high: Option<u16>,
    /// Whether the last character is raised.
    was_raised: bool,
    /// Pictures in the text.
    pub pictures: u64,
}

impl<'a> Shown<'a> {
    pub(super) fn new(characters: Pages<'a>, paragraphs: Pages<'a>, styles: &'a Styles, fonts: &'a Fonts) -> Self {
        Self {
            characters,
            paragraphs,
            styles,
            fonts,
            offsets: 0..0,
            look: Look::default(),
            style_hides: false,
            is_raised: false,
            fields: 0,
            code: None,
            high: None,
            was_raised: false,
            pictures: 0,
        }
    }

    /// Whether the character is seen, now that those before it have been taken: it is no part of the code of a field, and
    /// neither hidden nor deleted.
    pub(super) fn is_seen(&mut self, character: Character) -> bool {
        let look = self.look(character.offset);
        self.code.is_none() && character.switches.over(look.switches).show(self.style_hides)
    }

    /// Forgets the fields of a story that has ended.
    pub(super) fn end_story(&mut self) {
        (self.fields, self.code, self.high) = (0, None, None);
    }

    /// Appends what the character shows, or says what it ends.
    pub(super) fn show(&mut self, character: Character, text: &mut String) -> Option<End> {
        let high = self.high.take();
        let is_seen = self.is_seen(character);
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
            _ if !is_seen => {}
            0x01 => self.pictures += 1,
            0x09 => text.push('\t'),
            0x0B => text.push('\n'),
            0x1E => text.push('-'),
            0x28 if self.look.symbol.is_some() => {
                text.extend(self.look.symbol.and_then(|(font, unit)| self.symbol(Some(font), unit)));
            }
            unit @ 0xE000..=0xF8FF => text.extend(self.symbol(self.look.font, unit)),
            unit @ 0xD800..=0xDBFF => self.high = Some(unit),
            unit => {
                let units = high.into_iter().chain([unit]);
                let characters = char::decode_utf16(units).map(|read| read.unwrap_or(char::REPLACEMENT_CHARACTER));
                for shown in characters.filter(|character| !character.is_control() && *character != '\u{AD}') {
                    // A raised number would read as a part of the one before it.
                    let begins = begins_raised(text, self.is_raised, &mut self.was_raised);
                    if begins && is_raised_run(shown.encode_utf8(&mut [0; 4])) {
                        text.push('^');
                    }
                    text.push(shown);
                }
            }
        }
        None
    }

    /// What a font shows. Fonts of symbols have their characters where nobody else has any, and most of them have the bullet
    /// at the same place.
    fn symbol(&self, font: Option<u16>, unit: u16) -> Option<char> {
        let font = font.and_then(|font| self.fonts.name(font)).unwrap_or_default();
        let is_known = |shown: &char| !('\u{E000}'..='\u{F8FF}').contains(shown);
        let shown = symbols::glyph(font, unit.into()).filter(is_known);
        shown.or((unit == 0xF0B7).then_some('•'))
    }

    fn end_code(&mut self) {
        if self.code == Some(self.fields) {
            self.code = None;
        }
    }

    fn look(&mut self, offset: usize) -> Look {
        if !self.offsets.contains(&offset) {
            let (list, of_run) = found(&self.characters, offset);
            let (paragraph, of_paragraph) = found(&self.paragraphs, offset);
            let (styles, look) = (self.styles, Look::of(list));
            // The style of a paragraph is the first one if it names none.
            let usual = short(paragraph, 0).unwrap_or_default();
            let by_style = |says: fn(&Styles, usize) -> Option<bool>| {
                let own = look.style.and_then(|style| says(styles, style.into()));
                own.or_else(|| says(styles, usual.into())).unwrap_or_default()
            };
            self.style_hides = by_style(Styles::hide);
            self.is_raised = look.is_raised.unwrap_or_else(|| by_style(Styles::raise));
            self.look = look;
            self.offsets = of_run.start.max(of_paragraph.start)..of_run.end.min(of_paragraph.end);
        }
        self.look
    }
}

/// The properties of a character, and the places of those that have the same ones.
fn found<'a>(pages: &Pages<'a>, offset: usize) -> (&'a [u8], Range<usize>) {
    match pages.run(offset) {
        Some(run) => (run.properties, run.offsets),
        None => (&[], offset..offset + 1),
    }
}
