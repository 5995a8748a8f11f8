//! Measures a sheet: the range it uses, what its columns hold, and whether its first row names them.

use std::io::{Read, Seek};

use serde::{Deserialize, Serialize};

use super::{
    comments::{self, Comment},
    outline::{Outline, Placed},
    range::{Range, column_letters},
    tally::Tally,
    value::{Interpreter, Value},
    workbook::{Opened, Sheet},
    worksheet::{Item, Worksheet},
};
use crate::{FormatError, Limits};

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

/// Tallies by column, counted from 1.
struct Columns {
    tallies: Vec<Option<Box<Tally>>>,
    sketch: bool,
}

impl Columns {
    fn tally(&mut self, column: u32) -> &mut Tally {
        let index = column as usize;
        if self.tallies.len() <= index {
            self.tallies.resize_with(index + 1, || None);
        }
        self.tallies[index].get_or_insert_with(|| Box::new(Tally::new(self.sketch)))
    }
}

/// Measures a sheet.
pub(super) fn profile<R: Read + Seek>(
    mut opened: Opened<R>,
    index: u32,
    sketch: bool,
    limits: &Limits,
) -> Result<SheetProfile, FormatError> {
    let (sheet, part) = opened.sheet(index)?;
    let interpreter = opened.interpreter(limits)?;
    let (comments, comment_count) = comments::read(&mut opened, &part, limits)?;
    let mut profile = SheetProfile {
        sheet,
        used_range: None,
        nonempty_cells: 0,
        formulas: 0,
        hidden_rows: 0,
        hidden_columns: Vec::new(),
        merged: Vec::new(),
        merged_count: 0,
        comments,
        comment_count,
        columns: Vec::new(),
        header: HeaderEvidence { row: None, is_header: false, reason: String::new() },
    };
    let mut worksheet = Worksheet::new(opened.part(&part)?, limits);
    let mut columns = Columns { tallies: Vec::new(), sketch };
    let mut outline = Outline::default();
    while let Some(item) = worksheet.next()? {
        match item {
            Item::Row { hidden, .. } => profile.hidden_rows += u64::from(hidden),
            Item::Cell(at, raw) => {
                profile.nonempty_cells += 1;
                profile.formulas += u64::from(raw.formula.is_some());
                match outline.add(at, raw) {
                    Placed::Below => columns.tally(at.column()).add(raw, &interpreter),
                    Placed::First(before) => {
                        for (at, raw) in before {
                            columns.tally(at.column()).add(&raw, &interpreter);
                        }
                    }
                }
            }
            Item::HiddenColumns { first, last } => {
                if profile.hidden_columns.len() < SheetProfile::MAX_MERGED {
                    profile.hidden_columns.push(format!("{}:{}", column_letters(first), column_letters(last)));
                }
            }
            Item::Merged(range) => {
                profile.merged_count += 1;
                if profile.merged.len() < SheetProfile::MAX_MERGED {
                    profile.merged.push(range);
                }
            }
        }
    }
    profile.used_range = outline.used();
    let (header, names) = outline.header(&interpreter);
    profile.header = header;
    if let Some(used) = profile.used_range {
        profile.columns = finish(columns, outline, used, names, &interpreter);
    }
    Ok(profile)
}

fn finish(
    mut columns: Columns,
    outline: Outline,
    used: Range,
    names: Vec<String>,
    interpreter: &Interpreter,
) -> Vec<ColumnProfile> {
    let is_header = !names.is_empty();
    for (at, raw) in outline.into_first() {
        let tally = columns.tally(at.column());
        if !is_header {
            tally.add(&raw, interpreter);
        }
    }
    let rows = u64::from(used.height()) - u64::from(is_header);
    let name = |column: usize| names.get(column - used.first().column() as usize).cloned();
    (0u32..)
        .zip(columns.tallies)
        .filter_map(|(column, tally)| Some((column, *tally?)))
        .map(|(column, tally)| tally.profile(column_letters(column), name(column as usize), rows, interpreter))
        .collect()
}
