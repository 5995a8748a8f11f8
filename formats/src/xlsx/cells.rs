//! A rectangle of cells.

use serde::{Deserialize, Serialize};

use super::{
    range::{CellRef, Range},
    value::Value,
    workbook::Sheet,
};

/// A rectangle of a sheet. Whoever asks bounds its [`Range::area`]; only filled cells are in it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cells {
    pub sheet: Sheet,
    pub range: Range,
    /// The rows with a filled cell, from top to bottom.
    pub rows: Vec<CellRow>,
    /// Merged ranges that meet the rectangle. They stand behind the last row of a sheet: `None` where that was too far.
    pub merged: Option<Vec<Range>>,
}

/// A row of the rectangle.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CellRow {
    pub row: u32,
    /// Hidden by hand or by a filter.
    pub hidden: bool,
    /// From left to right, without the empty ones.
    pub cells: Vec<Cell>,
}

/// A cell with a value or a formula.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    pub cell: CellRef,
    /// `None` for a formula without a stored value.
    pub value: Option<Value>,
    /// With its `=`; a shared one is written out for this cell.
    pub formula: Option<String>,
    /// The format code, `General` where the cell has none of its own.
    pub number_format: String,
    /// The value as the sheet shows it.
    pub text: String,
}
