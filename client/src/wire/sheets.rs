//! Cells of stored workbooks.
use crate::{
    constraint::{Constraint, Form, constrain},
    operation::{Params, Wire},
    words::wire_words,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
#[cfg(feature = "openapi")]
use utoipa::{IntoParams, ToSchema};

/// The most cells of one rectangle, filled or not.
pub const MAX_CELLS: u64 = 50_000;

/// The rectangle to read.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(IntoParams))]
#[serde(default, deny_unknown_fields)]
pub struct CellsQuery {
    /// A spreadsheet range of at most 50,000 cells: `A1`, `A1:C9`, `Sales!A1:C9` or `'My Sheet'!A1`. By default, the
    /// cells that the node was made from, or the sheet's used range.
    #[serde(rename = "ref", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", param(rename = "ref"))]
    pub reference: Option<String>,
    /// The sheet's name. By default, the sheet of the range, of the node, or the first one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sheet: Option<String>,
}
impl Params for CellsQuery {
    constrain! { reference as "ref": RANGE, sheet: RANGE }
}

/// A range, or the name of a sheet.
const RANGE: Constraint = Constraint::Text(0, 200, Form::Any);

/// Why this rectangle was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum RefSource {
    /// The call's `ref`.
    Ref,
    /// The cells that the node was made from.
    Anchor,
    /// The cells of the sheet that hold something.
    UsedRange,
}

wire_words! {
    /// Whether a workbook shows a sheet.
    SheetState { Visible = "visible", Hidden = "hidden", VeryHidden = "very_hidden", }
    /// The type of a cell's value that JSON writes as a text.
    CellType { Date = "date", Duration = "duration", Error = "error", }
}

/// A rectangle of a sheet, read from the stored bytes.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(ToSchema))]
pub struct CellsResponse {
    pub document_id: i64,
    /// The file node of the workbook.
    pub workbook_id: i64,
    pub sheet: String,
    /// Its position among the tabs, from 0.
    pub sheet_index: u32,
    pub state: SheetState,
    /// 1900 or 1904.
    pub date_epoch: u16,
    /// The rectangle, for example `A1:C9`; null if the sheet is empty.
    #[serde(rename = "ref")]
    pub reference: Option<String>,
    pub ref_source: RefSource,
    /// The letters of its columns.
    pub columns: Vec<String>,
    /// The worksheet's numbers of its rows.
    pub rows: Vec<u32>,
    /// One list per row with one value per column; null if the cell is empty. Dates and durations are ISO 8601.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<Vec<Value>>))]
    pub values: Vec<Vec<Value>>,
    /// The formulas in the same form, with their `=`.
    pub formulas: Vec<Vec<Option<String>>>,
    /// By cell, if the value's JSON does not tell the type.
    pub types: BTreeMap<String, CellType>,
    /// By cell, if it is not `General`.
    pub number_formats: BTreeMap<String, String>,
    /// Merged ranges that overlap the rectangle; null if the sheet is too long to know.
    pub merged: Option<Vec<String>>,
    /// Hidden rows of the rectangle that hold something.
    pub hidden_rows: Vec<u32>,
    /// A Markdown table with column letters across the top, row numbers down the side, and values as the sheet shows
    /// them; long values are cut.
    pub grid: String,
}
impl Wire for CellsResponse {}
