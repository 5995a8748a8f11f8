//! What a sheet is found to hold.

use super::{
    range::{CellRef, Range},
    value::Value,
    workbook::Sheet,
};
use serde::{Deserialize, Serialize};

/// What a sheet holds, counted in one pass. Counts are of cells with a value or a formula; a blank cell with a style
/// does not count.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SheetProfile {
    pub sheet: Sheet,
    /// The smallest range around those cells, whatever the sheet declares; `None` for an empty sheet.
    pub used_range: Option<Range>,
    pub nonempty_cells: u64,
    pub formulas: u64,
    pub hidden_rows: u64,
    /// Hidden columns by their letters, as ranges of columns; at most [`SheetProfile::MAX_MERGED`].
    pub hidden_columns: Vec<String>,
    /// In the order of the file, at most [`SheetProfile::MAX_MERGED`].
    pub merged: Vec<Range>,
    pub merged_count: u64,
    /// At most [`SheetProfile::MAX_COMMENTS`].
    pub comments: Vec<Comment>,
    pub comment_count: u64,
    /// The columns with a cell in them, from left to right.
    pub columns: Vec<ColumnProfile>,
    pub header: HeaderEvidence,
}

impl SheetProfile {
    pub const MAX_MERGED: usize = 10_000;
    pub const MAX_COMMENTS: usize = 10_000;
}

/// A column of the used range. If the first row is a header, its cell is not counted.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ColumnProfile {
    /// The column's letters.
    pub column: String,
    /// The text of its cell in the first row, if that row is a header.
    pub header: Option<String>,
    /// The number of its cells with a value or a formula.
    pub filled: u64,
    /// The filled share of the rows below the header, or of all rows: 0 to 1.
    pub fill_ratio: f64,
    pub formulas: u64,
    pub types: TypeCounts,
    /// The most common number formats and how many cells have each, at most [`ColumnProfile::MAX_FORMATS`].
    pub number_formats: Vec<(String, u64)>,
    /// Present if it was asked for.
    pub sketch: Option<ColumnSketch>,
}

impl ColumnProfile {
    pub const MAX_FORMATS: usize = 5;
}

/// Values by their type; a formula without a stored value counts nowhere.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TypeCounts {
    pub text: u64,
    pub number: u64,
    pub boolean: u64,
    pub date: u64,
    pub duration: u64,
    pub error: u64,
}

/// What values a column has.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ColumnSketch {
    /// The smallest value of the column's most common type; texts are compared by character codes.
    pub min: Option<Value>,
    pub max: Option<Value>,
    pub distinct: u64,
    /// Whether `distinct` was counted; if not, HyperLogLog estimated it to about 2%.
    pub distinct_exact: bool,
    /// The first different values as shown, at most [`ColumnSketch::MAX_EXAMPLES`].
    pub examples: Vec<String>,
}

impl ColumnSketch {
    pub const MAX_EXAMPLES: usize = 5;
}

/// Whether the first row of the used range names the columns: it has a distinct text in every column.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeaderEvidence {
    /// The row that was judged; `None` for an empty sheet.
    pub row: Option<u32>,
    pub is_header: bool,
    /// A clause that says why or why not, such as `no text in column C`.
    pub reason: String,
}

/// A note, or one entry of a thread; a thread's entries follow each other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Comment {
    pub cell: CellRef,
    /// Empty if the file names none.
    pub author: String,
    pub text: String,
}
