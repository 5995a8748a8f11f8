//! What a locked file holds, once it is open. It is read in one go, because its password is kept nowhere.

use crate::{
    Extraction, Format, FormatError, Limits, Pattern, Patterns,
    detect::detect,
    extraction::check_text,
    markdown::{Block, Table, Writer, has_text},
    tables::has_tables,
    xlsx::{self, RecordsPart, SheetKind, Source},
};
use std::io::Cursor;

/// The bytes of a document, presentation or workbook.
pub(crate) struct Opened {
    format: Format,
    bytes: Vec<u8>,
}

impl Opened {
    /// Takes an open document, whose format is known.
    pub(crate) fn of(format: Format, bytes: Vec<u8>) -> Self {
        Self { format, bytes }
    }

    /// Takes what was locked in a compound file.
    pub(crate) fn new(bytes: Vec<u8>) -> Result<Self, FormatError> {
        match detect(&mut Cursor::new(&bytes))?.format {
            Some(format @ (Format::Docx | Format::Pptx | Format::Xlsx | Format::Xlsb)) => Ok(Self { format, bytes }),
            _ => Err(FormatError::corrupt(Format::Ole2, "what is encrypted in it is no office file")),
        }
    }

    /// Its format and its bytes, if it is a workbook.
    pub(crate) fn into_workbook(self) -> Option<(Format, Vec<u8>)> {
        self.format.has_sheets().then_some((self.format, self.bytes))
    }

    /// What its text shows; nothing else of it is read later.
    pub(crate) fn probe(self, limits: &Limits) -> Result<Patterns, FormatError> {
        let extraction = self.extract(limits)?;
        Ok(Patterns::default()
            .with(Pattern::HasTextLayer, has_text(&extraction.text))
            .with(Pattern::HasHeadings, !extraction.headings.is_empty())
            .with(Pattern::HasTables, has_tables(&extraction.text))
            .with(Pattern::IsEncrypted, true))
    }

    /// The text, with the fact `locked_format`.
    pub(crate) fn extract(self, limits: &Limits) -> Result<Extraction, FormatError> {
        let mut extraction = match self.format {
            Format::Xlsx | Format::Xlsb | Format::Xls | Format::Ods => sheets(&self.bytes, limits)?,
            format => crate::extract(format, Cursor::new(&self.bytes), limits)?,
        };
        extraction.facts.insert("locked_format".to_owned(), self.format.as_str().into());
        Ok(extraction)
    }
}

/// The sheets of a workbook: below each name what is in no table, and then the tables.
pub(crate) fn sheets(bytes: &[u8], limits: &Limits) -> Result<Extraction, FormatError> {
    let workbook = xlsx::workbook(Cursor::new(bytes), limits)?;
    let mut writer = Writer::default();
    for sheet in workbook.sheets.iter().filter(|sheet| sheet.kind == SheetKind::Worksheet) {
        writer.write(Block::Heading { level: 1, text: sheet.name.clone() }, limits)?;
        let mut rows = Rows { writer: &mut writer, tables: Vec::new(), pending: 0, limits };
        xlsx::records(Source::from(Cursor::new(bytes)), sheet.index, true, limits, &mut |part| rows.take(part))?;
        let tables = rows.tables;
        for table in tables {
            writer.write(Block::Table(table), limits)?;
        }
    }
    writer.finish("sheets").within(limits)
}

/// The rows of a sheet on their way to the text.
struct Rows<'a> {
    writer: &'a mut Writer,
    /// They wait for the end of the sheet, because rows of tables beside each other come in turns.
    tables: Vec<Table>,
    /// About how many bytes wait.
    pending: usize,
    limits: &'a Limits,
}

impl Rows<'_> {
    fn take(&mut self, part: RecordsPart) -> Result<(), FormatError> {
        match part {
            RecordsPart::Head(head) => {
                for found in head.tables {
                    self.tables.push(Table::default());
                    let cells = found.columns.iter().zip(0..).map(|(column, at)| (at, column.header.as_str()));
                    self.add(self.tables.len() - 1, cells)?;
                }
            }
            RecordsPart::Batch(records) => {
                for record in records {
                    let cells = record.cells.iter().map(|cell| (cell.column, cell.shown()));
                    self.add(record.table as usize, cells)?;
                }
            }
            RecordsPart::Loose(rows) => {
                for row in rows {
                    let cells: Vec<&str> = row.cells.iter().map(|cell| cell.text.as_str()).collect();
                    self.writer.write(Block::Paragraph(cells.join(" | ")), self.limits)?;
                }
            }
            RecordsPart::End { .. } => {}
        }
        check_text(self.writer.len() + self.pending, self.limits)
    }

    /// Adds a row to a table: cells with their columns, from left to right.
    fn add<'t>(&mut self, table: usize, cells: impl Iterator<Item = (u32, &'t str)>) -> Result<(), FormatError> {
        let Some(table) = self.tables.get_mut(table) else { return Ok(()) };
        let mut next = 0;
        for (column, text) in cells {
            let blanks = column.saturating_sub(next) as usize;
            table.blanks(blanks);
            table.cell(text);
            self.pending += text.len() + (blanks + 1) * Table::BLANK_BYTES;
            next = column + 1;
        }
        table.end_row();
        check_text(self.writer.len() + self.pending, self.limits)
    }
}
