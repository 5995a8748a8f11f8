//! Workbooks, and tables in text, which are workbooks of one sheet: their sheets, and the cells of a sheet as a profile, as records or as a rectangle.

mod cells;
mod comments;
mod formula;
mod markup;
mod moment;
mod number_format;
mod outline;
mod profile;
mod range;
mod records;
mod regions;
mod scan;
mod shared_strings;
mod sheet;
mod sketch;
mod styles;
mod tables;
mod tally;
mod value;
mod workbook;
mod worksheet;

#[cfg(test)]
mod tests;

use crate::{Format, FormatError, Limits, Pattern, Patterns, package::Package};
pub use cells::{Cell, CellRow, Cells};
use markup::{Mark, Markup};
pub use moment::DateEpoch;
pub use range::{CellRef, MAX_COLUMN, MAX_ROW, Range, Reference, ReferenceError, column_letters};
pub use records::{LooseCell, LooseRow, Record, RecordCell, RecordColumn, RecordsHead, RecordsPart};
pub use sheet::{ColumnProfile, ColumnSketch, Comment, HeaderEvidence, SheetProfile, TypeCounts};
use std::{
    fs::File,
    io::{self, Read, Seek, Write},
};
pub use tables::{Table, Untitled};
pub use value::{Duration, Value};
use workbook::Opened;
pub use workbook::{DefinedName, Sheet, SheetKind, SheetState, Workbook};

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
    fn open(self, limits: &Limits) -> Result<Opened<R>, FormatError> {
        Ok(Opened::open(self.file, limits)?.with_strings(self.shared_strings))
    }
}

/// Lists the sheets without opening one.
///
/// # Errors
/// What the reader met; a binary workbook (xlsb) is [`FormatError::Unsupported`].
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
    let mut opened = Opened::open(source, limits)?;
    let Some(name) = opened.shared_strings.clone() else { return Ok(()) };
    match opened.package.part(&name)? {
        Some(part) => shared_strings::batches(part, limits, emit),
        None => Ok(()),
    }
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

/// Reads only the list of sheets and the package's own lists, however large the rest is.
pub(crate) fn probe<R: Read + Seek>(source: R, limits: &Limits) -> Result<Patterns, FormatError> {
    let mut package = Package::open(source, Format::Xlsx, limits)?;
    let main = workbook::main_part(&mut package)?;
    let mut sheets = 0u64;
    if let Some(part) = package.part(&main)? {
        let mut xml = Markup::new(part, limits);
        while let Some(mark) = xml.next()? {
            sheets += u64::from(matches!(mark, Mark::Start { .. }) && xml.name() == "sheet");
        }
    }
    let has_comments = package.names().any(|name| {
        let file = name.rsplit('/').next().unwrap_or_default();
        name.starts_with("xl/")
            && (file.starts_with("comment") || file.starts_with("threadedcomment"))
            && file.ends_with(".xml")
    });
    Ok(Patterns::default()
        .with(Pattern::HasSheets, sheets > 0)
        .with(Pattern::SheetCount, sheets)
        .with(Pattern::HasComments, has_comments))
}
