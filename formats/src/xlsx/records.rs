//! Reads rows below a header as records.

use super::{
    outline::Outline,
    range::{Range, column_letters},
    sheet::HeaderEvidence,
    value::{Interpreter, Seen, Value},
    workbook::{Opened, Sheet},
    worksheet::{Item, RawCell},
};
use crate::{FormatError, Limits};
use serde::{Deserialize, Serialize};
use std::io::{Read, Seek};

/// What a reading of records emits, in this order: a head, batches of records, an end.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordsPart {
    Head(RecordsHead),
    /// Bounded in rows and bytes, and not empty.
    Batch(Vec<Record>),
    /// All were emitted; this is their number.
    End {
        records: u64,
    },
}

/// What comes before the records of a sheet. If the sheet has no header, no record follows and the evidence says why.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecordsHead {
    pub sheet: Sheet,
    pub used_range: Option<Range>,
    pub header: HeaderEvidence,
    /// The columns of the used range, from left to right; empty without a header.
    pub columns: Vec<RecordColumn>,
}

/// A column and its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordColumn {
    /// The column's letters.
    pub column: String,
    pub header: String,
}

/// A row with at least one filled cell that is not a blank text.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The worksheet's number for the row.
    pub row: u32,
    /// Hidden by hand or by a filter.
    pub hidden: bool,
    /// From left to right, without empty and blank ones.
    pub cells: Vec<RecordCell>,
}

/// A filled cell of a record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecordCell {
    /// An index into [`RecordsHead::columns`].
    pub column: u32,
    /// `None` for a formula without a stored value.
    pub value: Option<Value>,
    /// The value as the sheet shows it; left out if it is the text that `value` already holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

impl RecordCell {
    /// The value as the sheet shows it.
    pub fn shown(&self) -> &str {
        match (&self.text, &self.value) {
            (Some(text), _) | (None, Some(Value::Text(text))) => text,
            _ => "",
        }
    }
}

/// A batch ends after this many records, or this many bytes of text.
const BATCH_RECORDS: usize = 500;
const BATCH_BYTES: usize = 512 << 10;

/// Emits the records of a sheet. A first pass finds the used range and the header, a second reads on.
pub(super) fn records<R: Read + Seek>(
    mut opened: Opened<R>,
    index: u32,
    limits: &Limits,
    emit: &mut dyn FnMut(RecordsPart) -> Result<(), FormatError>,
) -> Result<(), FormatError> {
    let (sheet, part) = opened.sheet(index)?;
    let interpreter = opened.interpreter(limits)?;
    let mut outline = Outline::default();
    let mut worksheet = opened.scan(&part, limits)?;
    while let Some(item) = worksheet.next()? {
        if let Item::Cell(at, raw) = item {
            outline.add(at, raw);
        }
    }
    drop(worksheet);
    let (header, names) = outline.header(&interpreter);
    let used_range = outline.used();
    let first_column = used_range.map_or(1, |used| used.first().column());
    let columns = (first_column..)
        .zip(names)
        .map(|(column, header)| RecordColumn { column: column_letters(column), header })
        .collect();
    let below = header.row.filter(|_| header.is_header);
    emit(RecordsPart::Head(RecordsHead { sheet, used_range, header, columns }))?;
    let mut records = 0;
    if let Some(header_row) = below {
        let mut batch = Batch { records: Vec::new(), bytes: 0, emit, count: 0 };
        let mut worksheet = opened.scan(&part, limits)?;
        let mut hidden_row = false;
        while let Some(item) = worksheet.next()? {
            match item {
                Item::Row { hidden, .. } => hidden_row = hidden,
                Item::Cell(at, raw) if at.row() > header_row => {
                    let cell = record_cell(at.column() - first_column, raw, &interpreter);
                    if let Some(cell) = cell {
                        batch.add(at.row(), hidden_row, cell)?;
                    }
                }
                _ => {}
            }
        }
        batch.flush()?;
        records = batch.count;
    }
    emit(RecordsPart::End { records })
}

fn record_cell(column: u32, raw: &RawCell, interpreter: &Interpreter) -> Option<RecordCell> {
    let seen = interpreter.value(raw);
    let text = match &seen {
        // A blank text is not worth recording.
        Some(Seen::Text(text)) if text.trim().is_empty() => return None,
        Some(value) => {
            let shown = interpreter.shown(raw, value);
            match value {
                Seen::Text(text) if *text == shown => None,
                _ => Some(shown.into_owned()),
            }
        }
        None => None,
    };
    Some(RecordCell { column, value: seen.map(|value| value.to_value()), text })
}

/// Gathers cells into records and records into batches.
struct Batch<'a> {
    records: Vec<Record>,
    bytes: usize,
    emit: &'a mut dyn FnMut(RecordsPart) -> Result<(), FormatError>,
    count: u64,
}

impl Batch<'_> {
    fn add(&mut self, row: u32, hidden: bool, cell: RecordCell) -> Result<(), FormatError> {
        // The memory of a cell besides its text.
        self.bytes += 64 + cell.shown().len();
        match self.records.last_mut().filter(|record| record.row == row) {
            Some(record) => record.cells.push(cell),
            None => {
                if self.records.len() >= BATCH_RECORDS || self.bytes >= BATCH_BYTES {
                    self.flush()?;
                }
                self.records.push(Record { row, hidden, cells: vec![cell] });
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), FormatError> {
        self.bytes = 0;
        if self.records.is_empty() {
            return Ok(());
        }
        self.count += self.records.len() as u64;
        (self.emit)(RecordsPart::Batch(std::mem::take(&mut self.records)))
    }
}
