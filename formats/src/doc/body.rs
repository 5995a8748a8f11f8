//! Writes stories as paragraphs, headings, lists and tables.

use super::{
    Note,
    pieces::{Character, Pieces},
    properties::{Pages, Paragraph},
    shown::{End, Shown},
    styles::Styles,
};
use crate::{
    Extraction, FormatError, Limits,
    compound::short,
    extraction::check_text,
    markdown::{Block, Table, Writer},
};
use std::ops::Range;

pub(super) struct Body<'a> {
    pages: Pages<'a>,
    shown: Shown<'a>,
    styles: &'a Styles,
    /// The stream with the changes that are too long for a page.
    data: &'a [u8],
    /// How many more of its bytes are looked at, because many paragraphs may claim the same ones.
    data_left: usize,
    limits: &'a Limits,
    writer: Writer,
    paragraph: String,
    cell: String,
    table: Table,
    table_bytes: usize,
    is_in_row: bool,
}

impl<'a> Body<'a> {
    pub(super) fn new(
        pages: Pages<'a>,
        shown: Shown<'a>,
        styles: &'a Styles,
        data: &'a [u8],
        limits: &'a Limits,
    ) -> Self {
        Self {
            pages,
            shown,
            styles,
            data,
            data_left: data.len(),
            limits,
            writer: Writer::default(),
            paragraph: String::new(),
            cell: String::new(),
            table: Table::default(),
            table_bytes: 0,
            is_in_row: false,
        }
    }

    /// Writes a story, with the notes that it refers to in the order of their places.
    pub(super) fn story(
        &mut self,
        pieces: &Pieces<'_>,
        positions: Range<u32>,
        notes: Vec<Note>,
    ) -> Result<(), FormatError> {
        let mut notes = notes.into_iter().peekable();
        for character in pieces.characters(positions) {
            while let Some(note) = notes.next_if(|note| note.at <= character.position) {
                // A note is seen where the mark is that refers to it.
                if note.at == character.position && !self.shown.is_seen(character) {
                    continue;
                }
                self.paragraph.push_str(if self.paragraph.ends_with(' ') { "(" } else { " (" });
                self.paragraph.push_str(&note.text);
                self.paragraph.push(')');
            }
            self.take(character)?;
        }
        self.end_table()?;
        let rest = std::mem::take(&mut self.paragraph);
        self.writer.write(Block::Paragraph(rest), self.limits)?;
        self.shown.end_story();
        Ok(())
    }

    pub(super) fn finish(self) -> Result<Extraction, FormatError> {
        let mut extraction = self.writer.finish("styles");
        if self.shown.pictures > 0 {
            extraction.facts.insert("pictures_left_out".to_owned(), self.shown.pictures.into());
        }
        Ok(extraction)
    }

    fn take(&mut self, character: Character) -> Result<(), FormatError> {
        match self.shown.show(character, &mut self.paragraph) {
            None => return Ok(()),
            Some(End::Paragraph) => self.end_paragraph(character.offset)?,
            Some(End::Cell) => self.end_cell(character.offset),
        }
        check_text(self.writer.len() + self.table_bytes + self.cell.len(), self.limits)
    }

    /// What the paragraph is that the character at this place ends.
    fn properties(&mut self, offset: usize) -> Paragraph {
        let mut paragraph = Paragraph::default();
        let list = self.pages.run(offset).map(|run| run.properties).unwrap_or_default();
        // The number of the style comes first.
        paragraph.change(list.get(2..).unwrap_or_default());
        if let Some(more) = paragraph.more_at.and_then(|at| self.more(at)) {
            paragraph.change(more);
        }
        self.styles.complete(&mut paragraph, short(list, 0).unwrap_or_default().into());
        paragraph
    }

    /// The changes at a place in the stream of data.
    fn more(&mut self, at: usize) -> Option<&'a [u8]> {
        let data = self.data;
        let length = usize::from(short(data, at)?);
        self.data_left = self.data_left.checked_sub(length)?;
        data.get(at + 2..at + 2 + length)
    }

    fn end_paragraph(&mut self, offset: usize) -> Result<(), FormatError> {
        let properties = self.properties(offset);
        let text = std::mem::take(&mut self.paragraph);
        if properties.is_in_table {
            self.cell.push_str(&text);
            self.cell.push('\n');
            return Ok(());
        }
        self.end_table()?;
        let block = match properties.level {
            Some(level @ 1..) => Block::Heading { level, text },
            _ if properties.is_item == Some(true) => {
                Block::ListItem { level: properties.item_level.unwrap_or_default(), text }
            }
            _ => Block::Paragraph(text),
        };
        self.writer.write(block, self.limits).map(drop)
    }

    /// Ends a cell, or a row, whose mark is a cell of its own.
    fn end_cell(&mut self, offset: usize) {
        let ends_row = self.properties(offset).ends_row;
        self.cell.push_str(&self.paragraph);
        self.paragraph.clear();
        if !ends_row || !self.cell.trim().is_empty() {
            self.table.cell(&self.cell);
            self.table_bytes += self.cell.len() + Table::BLANK_BYTES;
            self.is_in_row = true;
        }
        self.cell.clear();
        if ends_row {
            self.end_row();
        }
    }

    fn end_row(&mut self) {
        if std::mem::take(&mut self.is_in_row) {
            self.table.end_row();
        }
    }

    /// Writes the table, if one is open, and what stands in no cell of it.
    fn end_table(&mut self) -> Result<(), FormatError> {
        self.end_row();
        let cell = std::mem::take(&mut self.cell);
        let table = std::mem::take(&mut self.table);
        self.table_bytes = 0;
        if table.has_text() {
            self.writer.write(Block::Table(table), self.limits)?;
        }
        self.writer.write(Block::Paragraph(cell), self.limits).map(drop)
    }
}
