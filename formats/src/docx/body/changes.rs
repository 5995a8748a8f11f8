//! Tracked changes and references to notes, which are facts and not text.

use super::{Converter, Open};
use crate::{
    FormatError,
    docx::{
        evidence::Change,
        frames::Frame,
        notes::{self, Kind},
    },
    xml::Element,
};
use std::io::Read;

/// An open insertion.
pub(super) struct Inserted {
    change: Change,
    author: String,
    date: String,
    /// The frame, and the byte of its text, where the insertion began.
    frame: usize,
    from: usize,
}

impl<R: Read> Converter<'_, R> {
    pub(super) fn open_insertion(&mut self, element: &Element, name: &str) -> Open {
        let (Some(change), Some(Frame::Paragraph(paragraph))) = (Change::of(name), self.frames.last()) else {
            return Open::Other;
        };
        let own = |name: &str| element.attribute(name).unwrap_or_default().to_owned();
        self.changes.push(Inserted {
            change,
            author: own("author"),
            date: own("date"),
            frame: self.frames.len(),
            from: paragraph.text.len(),
        });
        Open::Insertion
    }

    pub(super) fn close_insertion(&mut self) {
        let Some(inserted) = self.changes.pop() else { return };
        if inserted.frame == self.frames.len()
            && let Some(Frame::Paragraph(paragraph)) = self.frames.last_mut()
            && let Some(text) = paragraph.text.get(inserted.from..)
        {
            let mark = self.evidence.change(inserted.change, &inserted.author, &inserted.date, text);
            paragraph.noted.marks.extend(mark);
        }
    }

    pub(super) fn deletion(&mut self, element: &Element, name: &str) -> Result<(), FormatError> {
        let text = notes::deleted_text(&mut self.xml)?;
        if let (Some(change), Some(Frame::Paragraph(paragraph))) = (Change::of(name), self.frames.last_mut()) {
            let own = |name: &str| element.attribute(name).unwrap_or_default();
            paragraph.noted.marks.extend(self.evidence.change(change, own("author"), own("date"), &text));
        }
        Ok(())
    }

    pub(super) fn reference(&mut self, kind: Kind, element: &Element) -> Open {
        if let (Some(Frame::Paragraph(paragraph)), Some(id)) = (self.frames.last_mut(), element.attribute("id")) {
            paragraph.noted.marks.extend(self.evidence.marks.take(kind, id));
        }
        Open::Other
    }
}
