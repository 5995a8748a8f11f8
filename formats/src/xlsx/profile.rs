//! A sheet measured: what range it uses, what its columns hold, whether its first row names them.

use serde::{Deserialize, Serialize};

use super::{comments::Comment, range::Range, value::Value, workbook::Sheet};

/// What a sheet holds, counted in one pass. Counts are of cells with a value or a formula; a blank with a style is none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SheetProfile {
    pub sheet: Sheet,
    /// The hull of those cells, whatever the sheet declares; `None` for an empty one.
    pub used_range: Option<Range>,
    pub nonempty_cells: u64,
    pub formulas: u64,
    pub hidden_rows: u64,
    /// Hidden columns by their letters, as ranges from column to column; at most [`SheetProfile::MAX_MERGED`].
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

/// A column of the used range. Where the first row is a header it is counted in none of these.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ColumnProfile {
    /// Its letters.
    pub column: String,
    /// The text of its cell in the first row, where that row is a header.
    pub header: Option<String>,
    /// Its cells with a value or a formula.
    pub filled: u64,
    /// Of the rows below the header, or of all rows: 0 to 1.
    pub fill_ratio: f64,
    pub formulas: u64,
    pub types: TypeCounts,
    /// The most common number formats and their cells, at most [`ColumnProfile::MAX_FORMATS`].
    pub number_formats: Vec<(String, u64)>,
    /// Where it was asked for.
    pub sketch: Option<ColumnSketch>,
}

impl ColumnProfile {
    pub const MAX_FORMATS: usize = 5;
}

/// Values by their type; a formula without a stored value is in none.
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
    /// Of the values of the column's most common type; texts by their characters' code.
    pub min: Option<Value>,
    pub max: Option<Value>,
    pub distinct: u64,
    /// Whether `distinct` was counted; else it is estimated, by HyperLogLog, to about 2%.
    pub distinct_exact: bool,
    /// The first different values as they are shown, at most [`ColumnSketch::MAX_EXAMPLES`].
    pub examples: Vec<String>,
}

impl ColumnSketch {
    pub const MAX_EXAMPLES: usize = 5;
}

/// Whether the first row of the used range names the columns: a distinct text in every one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeaderEvidence {
    /// The row that was judged; `None` for an empty sheet.
    pub row: Option<u32>,
    pub is_header: bool,
    /// A clause that says why, or why not: `no text in column C`.
    pub reason: String,
}
