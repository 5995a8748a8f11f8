//! Workbooks: their sheets, and the cells of a sheet as a profile, as records or as a rectangle.
//!
//! Each kind of workbook is a `Book`, whose sheets are read as a stream of rows and cells: packages of XML
//! or binary records (xlsx and xlsb), open documents (ods), legacy files (xls), and tables in text, which are workbooks of
//! one sheet. What follows from the cells does not know the kind.

mod book;
mod boxes;
mod cached;
mod cells;
mod comments;
mod formula;
mod images;
mod markup;
mod moment;
mod number_format;
mod ods;
mod office;
mod outline;
mod profile;
mod range;
mod records;
mod regions;
mod shared_strings;
mod sheet;
mod sketch;
mod styles;
mod tables;
mod tally;
mod text_table;
mod tokens;
mod value;
mod workbook;
mod worksheet;
mod xls;
mod xlsb;

#[cfg(test)]
mod tests;

use crate::{Access, Extraction, Format, FormatError, Limits, Patterns, Secret};
pub(crate) use cached::CachedNumbers;
pub use cells::{Cell, CellRow, Cells};
pub(crate) use images::images;
pub use moment::DateEpoch;
pub use range::{CellRef, MAX_COLUMN, MAX_ROW, Range, Reference, ReferenceError, column_letters};
pub use records::{LooseCell, LooseRow, Record, RecordCell, RecordColumn, RecordsHead, RecordsPart};
pub use sheet::{ColumnProfile, ColumnSketch, Comment, HeaderEvidence, SheetProfile, TypeCounts};
use std::{
    fs::File,
    io::{self, Read, Seek, Write},
};
pub use tables::{Table, Untitled};
pub(crate) use text_table::value_of_text;
pub use value::{Duration, Value};
use workbook::Opened;
pub use workbook::{DefinedName, Sheet, SheetKind, SheetState, Workbook};

/// Why a workbook is not read as a text.
pub(crate) const NO_TEXT: &str = "a workbook has no text of its own; its sheets are read one by one";

/// The password that Excel itself sets for a workbook that is only protected from changes. It never asks for this password.
pub(crate) fn built_in_password() -> Secret {
    Secret::new("VelvetSweatshop")
}

/// A workbook, with what an earlier reading of it wrote.
#[derive(Debug)]
pub struct Source<R> {
    /// The workbook itself.
    pub file: R,
    /// Its shared strings as [`write_shared_strings`] wrote them; without this they are parsed again.
    pub shared_strings: Option<File>,
}

impl<R> From<R> for Source<R> {
    fn from(file: R) -> Self {
        Self { file, shared_strings: None }
    }
}

impl<R: Read + Seek> Source<R> {
    fn open<'a>(self, limits: &Limits) -> Result<Opened<'a>, FormatError>
    where
        R: 'a,
    {
        Ok(Opened::open(self.file, limits)?.with_strings(self.shared_strings))
    }
}

/// Lists the sheets without opening one.
///
/// # Errors
/// What the reader met.
pub fn workbook<R: Read + Seek>(source: R, limits: &Limits) -> Result<Workbook, FormatError> {
    Opened::open(source, limits).map(|opened| opened.workbook)
}

/// Hands out all shared strings, in batches, for [`write_shared_strings`].
///
/// # Errors
/// What the reader or `emit` met.
pub fn shared_strings<R: Read + Seek>(
    source: R,
    limits: &Limits,
    emit: &mut dyn FnMut(Vec<String>) -> Result<(), FormatError>,
) -> Result<(), FormatError> {
    Opened::open(source, limits)?.string_batches(limits, emit)
}

/// Appends shared strings to the table of a [`Source`], so that the sheets of a workbook do not
/// each parse the same XML.
///
/// # Errors
/// What the writer met.
pub fn write_shared_strings(out: &mut impl Write, texts: &[String]) -> io::Result<()> {
    shared_strings::write(out, texts)
}

/// Measures a sheet in one pass; `sketch_columns` adds what values its columns have.
///
/// # Errors
/// What the reader met; a sheet that the workbook does not have is [`FormatError::Unsupported`].
pub fn profile_sheet<R: Read + Seek>(
    source: Source<R>,
    sheet: u32,
    sketch_columns: bool,
    limits: &Limits,
) -> Result<SheetProfile, FormatError> {
    profile::profile(source.open(limits)?, sheet, sketch_columns, limits)
}

/// Emits a sheet's records as they are read, in bounded memory. If its first row is no header, `tables` has them looked
/// for anywhere on the sheet, and what is in none of them is emitted, too.
///
/// # Errors
/// What the reader or `emit` met.
pub fn records<R: Read + Seek>(
    source: Source<R>,
    sheet: u32,
    tables: bool,
    limits: &Limits,
    emit: &mut dyn FnMut(RecordsPart) -> Result<(), FormatError>,
) -> Result<(), FormatError> {
    records::records(source.open(limits)?, sheet, tables, limits, emit)
}

/// Reads a rectangle of a sheet, and no further than its last row. The caller must bound its area.
///
/// # Errors
/// What the reader met.
pub fn cells<R: Read + Seek>(
    source: Source<R>,
    sheet: u32,
    range: Range,
    limits: &Limits,
) -> Result<Cells, FormatError> {
    cells::cells(source.open(limits)?, sheet, range, limits)
}

/// Measures what a workbook lists of itself.
pub(crate) fn probe<R: Read + Seek>(format: Format, source: R, access: Access<'_>) -> Result<Patterns, FormatError> {
    match format {
        Format::Ods => ods::probe(source, access.limits),
        Format::Xls => xls::probe(source, access),
        _ => office::probe(format, source, access.limits),
    }
}

/// Reads a legacy workbook as a text if only its password opens it; others are read sheet by sheet.
pub(crate) fn extract_locked<R: Read + Seek>(source: R, access: Access<'_>) -> Result<Extraction, FormatError> {
    xls::extract(source, access)
}
