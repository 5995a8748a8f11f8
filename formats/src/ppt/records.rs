//! Records: eight bytes that name the kind and the length, and then a body, which may hold further records.

use crate::compound::{long, short};

/// The kinds of records that are read.
pub(super) mod kind {
    pub(in crate::ppt) const DOCUMENT: u16 = 0x03E8;
    pub(in crate::ppt) const SLIDE: u16 = 0x03EE;
    pub(in crate::ppt) const NOTES: u16 = 0x03F0;
    pub(in crate::ppt) const NOTES_ATOM: u16 = 0x03F1;
    /// A slide, or a page of notes, in a list.
    pub(in crate::ppt) const LISTED: u16 = 0x03F3;
    /// How a slide is shown.
    pub(in crate::ppt) const SHOW: u16 = 0x03F9;
    pub(in crate::ppt) const DRAWING: u16 = 0x040C;
    /// A text in place of which that of a list stands.
    pub(in crate::ppt) const LISTED_TEXT: u16 = 0x0F9E;
    pub(in crate::ppt) const TEXT: u16 = 0x0F9F;
    pub(in crate::ppt) const WIDE: u16 = 0x0FA0;
    pub(in crate::ppt) const NARROW: u16 = 0x0FA8;
    /// How the paragraphs and the characters of a text look.
    pub(in crate::ppt) const LOOKS: u16 = 0x0FA1;
    /// Places in a text that show the number of the slide, the date, the header or the footer.
    pub(in crate::ppt) const FIELDS: [u16; 6] = [0x0FD8, 0x0FF7, 0x0FF8, 0x0FF9, 0x0FFA, 0x1015];
    pub(in crate::ppt) const LIST: u16 = 0x0FF0;
    pub(in crate::ppt) const EDIT: u16 = 0x0FF5;
    pub(in crate::ppt) const DIRECTORY: u16 = 0x1772;
    /// How the objects are locked.
    pub(in crate::ppt) const LOCK: u16 = 0x2F14;
    /// The shapes of a drawing, a group of them, and one.
    pub(in crate::ppt) const SHAPES: [u16; 3] = [0xF002, GROUP, ONE_SHAPE];
    pub(in crate::ppt) const GROUP: u16 = 0xF003;
    pub(in crate::ppt) const ONE_SHAPE: u16 = 0xF004;
    /// What a shape says of itself.
    pub(in crate::ppt) const SHAPE: u16 = 0xF00A;
    /// The text of a shape.
    pub(in crate::ppt) const TEXT_BOX: u16 = 0xF00D;
}

#[derive(Clone, Copy)]
pub(super) struct Record<'a> {
    pub kind: u16,
    pub instance: u16,
    /// As much of it as there is.
    pub body: &'a [u8],
}

impl<'a> Record<'a> {
    const HEAD: usize = 8;

    /// The record at a place.
    pub(super) fn at(bytes: &'a [u8], at: usize) -> Option<Self> {
        let rest = bytes.get(at..)?;
        let (instance, kind, length) = (short(rest, 0)? >> 4, short(rest, 2)?, long(rest, 4)?);
        let body = rest.get(Self::HEAD..)?;
        Some(Self { kind, instance, body: body.get(..length as usize).unwrap_or(body) })
    }
}

/// The records in a body, one after the other.
pub(super) struct Records<'a> {
    bytes: &'a [u8],
    /// Where the next one begins.
    pub at: usize,
}

impl<'a> Records<'a> {
    pub(super) fn of(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Record<'a>;

    fn next(&mut self) -> Option<Record<'a>> {
        let record = Record::at(self.bytes, self.at)?;
        self.at += Record::HEAD + record.body.len();
        Some(record)
    }
}
