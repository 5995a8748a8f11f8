//! Reads documents of Word 97 to 2003 as Markdown: paragraphs, headings by style or outline level, lists and tables, with
//! notes in brackets where they belong and the text of boxes at the end.
//!
//! The text lies in pieces all over the file. What a paragraph or a character is stands on pages of their own, and is
//! found by where the character lies.

mod body;
mod fonts;
mod header;
mod pieces;
mod properties;
mod shown;
mod styles;

use crate::{
    Access, Extraction, Format, FormatError, Patterns,
    binary_lock::Lock,
    compound::{self, Opened},
};
use body::Body;
use fonts::Fonts;
use header::{Header, Part, Start};
use pieces::Pieces;
use properties::Pages;
use shown::Shown;
use std::{
    io::{Read, Seek},
    ops::Range,
    path::Path,
};
use styles::Styles;

/// The bytes at the beginning of the main stream that are never encrypted, and those that are encrypted with one key.
const PLAIN: usize = 68;
const BLOCK: usize = 512;

pub(crate) fn probe<'a, R: Read + Seek>(source: R, access: impl Into<Access<'a>>) -> Result<Patterns, FormatError> {
    let access = access.into();
    compound::patterns(read(source, access), access)
}

pub(crate) fn extract<'a, R: Read + Seek>(source: R, access: impl Into<Access<'a>>) -> Result<Extraction, FormatError> {
    read(source, access.into()).map(|opened| opened.text)
}

fn read<R: Read + Seek>(source: R, access: Access<'_>) -> Result<Opened, FormatError> {
    let limits = access.limits;
    let mut file = compound::open(source, Format::Doc, limits)?;
    let mut stream = |name: &str| compound::read(&mut file, Path::new(name), limits.input_bytes);
    let mut main = stream("/WordDocument")?.unwrap_or_default();
    let start = Start::read(&main)?;
    let mut tables = stream(start.tables)?.unwrap_or_default();
    let mut data = stream("/Data")?.unwrap_or_default();
    if let Some(described) = start.lock {
        let lock = Lock::read(Format::Doc, tables.get(..described).unwrap_or(&tables))?;
        for (stream, plain) in [(&mut main, PLAIN), (&mut tables, described), (&mut data, 0)] {
            let mut opening = lock.keys(access.password)?.stream(BLOCK);
            let plain = plain.min(stream.len());
            opening.pass(plain);
            opening.open(&mut stream[plain..]);
        }
    }
    let header = Header::read(&main);
    let part = |part: Part| header.part(&tables, part);
    let pieces = Pieces::read(&main, part(Part::Pieces), limits)?;
    let characters = Pages::of_characters(&main, part(Part::Characters));
    let paragraphs = Pages::of_paragraphs(&main, part(Part::Paragraphs));
    let styles = Styles::read(part(Part::Styles));
    let fonts = Fonts::read(part(Part::Fonts));

    let (mut shown, mut notes) = (Shown::new(characters, paragraphs, &styles, &fonts), Vec::new());
    for (story, places, texts) in [
        (&header.footnotes, Part::FootnotePlaces, Part::FootnoteTexts),
        (&header.endnotes, Part::EndnotePlaces, Part::EndnoteTexts),
    ] {
        read_notes(story, part(places), part(texts), &pieces, &mut shown, &mut notes);
    }
    notes.sort_by_key(|note| note.at);

    let mut body = Body::new(paragraphs, shown, &styles, &data, limits);
    body.story(&pieces, header.text, notes)?;
    body.story(&pieces, header.boxes, Vec::new())?;
    Ok(Opened { text: body.finish()?.within(limits)?, was_locked: start.lock.is_some() })
}

/// A footnote or endnote.
struct Note {
    /// The position of the character that refers to it.
    at: u32,
    text: String,
}

/// Reads the notes of a story. Their texts follow each other, so that no character is read twice.
fn read_notes(
    story: &Range<u32>,
    places: &[u8],
    texts: &[u8],
    pieces: &Pieces<'_>,
    shown: &mut Shown<'_>,
    notes: &mut Vec<Note>,
) {
    // Each place has a number of two bytes besides, and one more place ends the last one.
    let count = places.len().saturating_sub(4) / 6;
    let mut read_to = story.start;
    for index in 0..count {
        let (Some(at), Some(from), Some(to)) = (
            compound::long(places, index * 4),
            compound::long(texts, index * 4),
            compound::long(texts, (index + 1) * 4),
        ) else {
            break;
        };
        let (from, to) = (story.start.saturating_add(from), story.start.saturating_add(to).min(story.end));
        if from < read_to || to <= from {
            continue;
        }
        read_to = to;
        let mut text = String::new();
        for character in pieces.characters(from..to) {
            if shown.show(character, &mut text).is_some() {
                text.push(' ');
            }
        }
        shown.end_story();
        if !text.trim().is_empty() {
            notes.push(Note { at, text: text.trim().to_owned() });
        }
    }
}

#[cfg(test)]
mod tests;
