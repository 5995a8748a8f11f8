//! Workbooks: their sheets, and the cells of a sheet as a profile, as records or as a rectangle.

mod cells;
mod comments;
mod profile;
mod range;
mod records;
mod value;
mod workbook;

use std::io::{Read, Seek};

pub use cells::{Cell, CellRow, Cells};
pub use comments::Comment;
pub use profile::{ColumnProfile, ColumnSketch, HeaderEvidence, SheetProfile, TypeCounts};
pub use range::{CellRef, MAX_COLUMN, MAX_ROW, Range, Reference, ReferenceError, column_letters};
pub use records::{Record, RecordCell, RecordColumn, RecordsHead};
pub use value::{Duration, Value};
pub use workbook::{DateEpoch, DefinedName, Sheet, SheetKind, SheetState, Workbook};

use crate::{Format, FormatError, Limits, Pattern, Patterns, package::Package, xml::Node};

/// What a reading of records hands out, in this order: a head, batches of records, an end.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordsPart {
    Head(RecordsHead),
    /// Bounded in rows and bytes.
    Batch(Vec<Record>),
    /// All were handed out: so many.
    End {
        records: u64,
    },
}

/// Lists the sheets without opening one.
///
/// # Errors
/// What the reader met; a binary workbook (xlsb) is [`FormatError::Unsupported`].
pub fn workbook<R: Read + Seek>(_source: R, _limits: &Limits) -> Result<Workbook, FormatError> {
    Err(FormatError::unsupported(Format::Xlsx, "no reader yet"))
}

/// Measures a sheet in one pass; `sketch_columns` adds what values its columns have.
///
/// # Errors
/// What the reader met; a sheet that is none of the workbook's is [`FormatError::Unsupported`].
pub fn profile_sheet<R: Read + Seek>(
    _source: R,
    _sheet: u32,
    _sketch_columns: bool,
    _limits: &Limits,
) -> Result<SheetProfile, FormatError> {
    Err(FormatError::unsupported(Format::Xlsx, "no reader yet"))
}

/// Hands out a sheet's records as they are read, in bounded memory.
///
/// # Errors
/// What the reader or `emit` met.
pub fn records<R: Read + Seek>(
    _source: R,
    _sheet: u32,
    _limits: &Limits,
    _emit: &mut dyn FnMut(RecordsPart) -> Result<(), FormatError>,
) -> Result<(), FormatError> {
    Err(FormatError::unsupported(Format::Xlsx, "no reader yet"))
}

/// Reads a rectangle of a sheet, and no further than its last row.
///
/// # Errors
/// What the reader met.
pub fn cells<R: Read + Seek>(_source: R, _sheet: u32, _range: Range, _limits: &Limits) -> Result<Cells, FormatError> {
    Err(FormatError::unsupported(Format::Xlsx, "no reader yet"))
}

pub(crate) fn probe<R: Read + Seek>(source: R, limits: &Limits) -> Result<Patterns, FormatError> {
    let mut package = Package::open(source, Format::Xlsx, limits)?;
    let main = package.main_part()?;
    let mut sheets = 0u64;
    if let Some(mut xml) = package.xml(&main)? {
        while let Some(node) = xml.next()? {
            sheets += u64::from(matches!(node, Node::Start(element) if element.name == "sheet"));
        }
    }
    let has_comments = package.names().any(|name| {
        let file = name.rsplit('/').next().unwrap_or_default();
        name.starts_with("xl/")
            && (file.starts_with("comments") || file.starts_with("threadedcomment"))
            && file.ends_with(".xml")
    });
    Ok(Patterns::default()
        .with(Pattern::HasSheets, sheets > 0)
        .with(Pattern::SheetCount, sheets)
        .with(Pattern::HasComments, has_comments))
}
