//! Workbooks: their sheets, and the cells of a sheet as a profile, as records or as a rectangle.

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
mod shared_strings;
mod sheet;
mod sketch;
mod styles;
mod tally;
mod value;
mod workbook;
mod worksheet;

#[cfg(test)]
mod tests;

use std::io::{Read, Seek};

pub use cells::{Cell, CellRow, Cells};
pub use moment::DateEpoch;
pub use range::{CellRef, MAX_COLUMN, MAX_ROW, Range, Reference, ReferenceError, column_letters};
pub use records::{Record, RecordCell, RecordColumn, RecordsHead, RecordsPart};
pub use sheet::{ColumnProfile, ColumnSketch, Comment, HeaderEvidence, SheetProfile, TypeCounts};
pub use value::{Duration, Value};
pub use workbook::{DefinedName, Sheet, SheetKind, SheetState, Workbook};

use markup::{Mark, Markup};
use workbook::Opened;

use crate::{Format, FormatError, Limits, Pattern, Patterns, package::Package};

/// Lists the sheets without opening one.
///
/// # Errors
/// What the reader met; a binary workbook (xlsb) is [`FormatError::Unsupported`].
pub fn workbook<R: Read + Seek>(source: R, limits: &Limits) -> Result<Workbook, FormatError> {
    Opened::open(source, limits).map(|opened| opened.workbook)
}

/// Measures a sheet in one pass; `sketch_columns` adds what values its columns have.
///
/// # Errors
/// What the reader met; a sheet that the workbook does not have is [`FormatError::Unsupported`].
pub fn profile_sheet<R: Read + Seek>(
    source: R,
    sheet: u32,
    sketch_columns: bool,
    limits: &Limits,
) -> Result<SheetProfile, FormatError> {
    profile::profile(Opened::open(source, limits)?, sheet, sketch_columns, limits)
}

/// Emits a sheet's records as they are read, in bounded memory.
///
/// # Errors
/// What the reader or `emit` met.
pub fn records<R: Read + Seek>(
    source: R,
    sheet: u32,
    limits: &Limits,
    emit: &mut dyn FnMut(RecordsPart) -> Result<(), FormatError>,
) -> Result<(), FormatError> {
    records::records(Opened::open(source, limits)?, sheet, limits, emit)
}

/// Reads a rectangle of a sheet, and no further than its last row. The caller must bound its area.
///
/// # Errors
/// What the reader met.
pub fn cells<R: Read + Seek>(source: R, sheet: u32, range: Range, limits: &Limits) -> Result<Cells, FormatError> {
    cells::cells(Opened::open(source, limits)?, sheet, range, limits)
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
