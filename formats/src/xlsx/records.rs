//! Rows below a header, as records.

use serde::{Deserialize, Serialize};

use super::{profile::HeaderEvidence, range::Range, value::Value, workbook::Sheet};

/// What comes before the records of a sheet. Where its header is none, no record follows and the evidence says why.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecordsHead {
    pub sheet: Sheet,
    pub used_range: Option<Range>,
    pub header: HeaderEvidence,
    /// Of the used range, from left to right; empty without a header.
    pub columns: Vec<RecordColumn>,
}

/// A column and its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordColumn {
    /// Its letters.
    pub column: String,
    pub header: String,
}

/// A row with at least one cell filled.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The worksheet's number for the row.
    pub row: u32,
    /// Hidden by hand or by a filter.
    pub hidden: bool,
    /// From left to right, without the empty ones.
    pub cells: Vec<RecordCell>,
}

/// A filled cell of a record.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecordCell {
    /// Its place in [`RecordsHead::columns`].
    pub column: u32,
    /// `None` for a formula without a stored value.
    pub value: Option<Value>,
    /// The value as the sheet shows it; left out where it is the text that `value` already holds.
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
