//! Cells and rectangles of a worksheet, in A1 notation.

use serde::{Deserialize, Serialize};
use std::{borrow::Cow, fmt, str::FromStr};

/// The number of rows in a worksheet.
pub const MAX_ROW: u32 = 1_048_576;
/// The number of columns in a worksheet; the last is `XFD`.
pub const MAX_COLUMN: u32 = 16_384;

/// A cell's place. Row and column count from 1, as worksheets show them. Cells are ordered by row, then by column.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CellRef {
    row: u32,
    column: u32,
}

impl CellRef {
    /// The cell, or `None` beyond the edges of a worksheet.
    pub fn new(row: u32, column: u32) -> Option<Self> {
        ((1..=MAX_ROW).contains(&row) && (1..=MAX_COLUMN).contains(&column)).then_some(Self { row, column })
    }

    /// 1 to [`MAX_ROW`].
    pub fn row(self) -> u32 {
        self.row
    }

    /// 1 to [`MAX_COLUMN`].
    pub fn column(self) -> u32 {
        self.column
    }
}

/// A rectangle of cells, including both corners. It prints as `A1:C9`, a single cell as `A1:A1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Range {
    first: CellRef,
    last: CellRef,
}

impl Range {
    /// The rectangle that two cells span, whichever corners they are.
    pub fn new(one: CellRef, other: CellRef) -> Self {
        Self {
            first: CellRef { row: one.row.min(other.row), column: one.column.min(other.column) },
            last: CellRef { row: one.row.max(other.row), column: one.column.max(other.column) },
        }
    }

    /// The top left corner.
    pub fn first(self) -> CellRef {
        self.first
    }

    /// The bottom right corner.
    pub fn last(self) -> CellRef {
        self.last
    }

    /// The number of rows, at least 1.
    pub fn height(self) -> u32 {
        self.last.row - self.first.row + 1
    }

    /// The number of columns, at least 1.
    pub fn width(self) -> u32 {
        self.last.column - self.first.column + 1
    }

    /// The number of cells, filled or not.
    pub fn area(self) -> u64 {
        u64::from(self.height()) * u64::from(self.width())
    }

    pub fn contains(self, cell: CellRef) -> bool {
        (self.first.row..=self.last.row).contains(&cell.row)
            && (self.first.column..=self.last.column).contains(&cell.column)
    }

    /// The common part of both, if there is one.
    pub fn intersect(self, other: Self) -> Option<Self> {
        let first =
            CellRef { row: self.first.row.max(other.first.row), column: self.first.column.max(other.first.column) };
        let last = CellRef { row: self.last.row.min(other.last.row), column: self.last.column.min(other.last.column) };
        (first.row <= last.row && first.column <= last.column).then_some(Self { first, last })
    }

    /// The smallest rectangle that contains both.
    #[must_use]
    pub fn hull(self, other: Self) -> Self {
        Self {
            first: CellRef {
                row: self.first.row.min(other.first.row),
                column: self.first.column.min(other.first.column),
            },
            last: CellRef { row: self.last.row.max(other.last.row), column: self.last.column.max(other.last.column) },
        }
    }
}

impl From<CellRef> for Range {
    fn from(cell: CellRef) -> Self {
        Self { first: cell, last: cell }
    }
}

/// A rectangle of a named sheet or of the present one: `A1:C9`, `Sales!A1`, `'My Sheet'!A:C`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Reference {
    pub sheet: Option<String>,
    pub range: Range,
}

/// Why a text is not a reference; each error names the wrong part.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReferenceError {
    #[error("the reference is empty; write one like A1, A1:C9 or Sheet1!A1:C9")]
    Empty,
    #[error("`{0}` is not a cell, a column or a row; write one like A1, A1:C9 or Sheet1!A1:C9")]
    Malformed(String),
    #[error("`{0}` has corners of different kinds; both must be cells, both columns or both rows")]
    Mixed(String),
    #[error("`{0}` alone is not a range; name its first and its last cell, as in A1:C9")]
    Alone(String),
    #[error("column `{0}` is beyond XFD, the last column of a worksheet")]
    Column(String),
    #[error("row {0} is not one of a worksheet's rows, 1 to 1048576")]
    Row(String),
    #[error("the sheet name in `{0}` is not closed: a quoted name ends in an apostrophe and an exclamation mark")]
    Unclosed(String),
    #[error("the sheet name in `{0}` is empty")]
    Nameless(String),
}

/// The letters of a column counted from 1: `A`, `Z`, `AA`, `XFD`.
pub fn column_letters(column: u32) -> String {
    let mut letters = Vec::new();
    let mut rest = column;
    while rest > 0 {
        rest -= 1;
        // A digit of base 26 is below 26.
        letters.push(b'A' + (rest % 26) as u8);
        rest /= 26;
    }
    letters.iter().rev().map(|&letter| char::from(letter)).collect()
}

/// One end of a range as it is written.
#[derive(Clone, Copy, PartialEq)]
enum Corner {
    Cell(CellRef),
    Column(u32),
    Row(u32),
}

fn corner(text: &str) -> Result<Corner, ReferenceError> {
    let malformed = || ReferenceError::Malformed(text.to_owned());
    let rest = text.strip_prefix('$').unwrap_or(text);
    let letters_end = rest.find(|character: char| !character.is_ascii_alphabetic()).unwrap_or(rest.len());
    let (letters, rest) = rest.split_at(letters_end);
    // The first dollar of `$3` belongs to its row.
    let digits = if letters.is_empty() { rest } else { rest.strip_prefix('$').unwrap_or(rest) };
    if !digits.bytes().all(|byte| byte.is_ascii_digit())
        || (letters.is_empty() && digits.is_empty())
        || (digits.is_empty() && rest.starts_with('$'))
    {
        return Err(malformed());
    }
    let column = match letters {
        "" => None,
        letters => Some(column_number(letters).ok_or_else(|| ReferenceError::Column(letters.to_ascii_uppercase()))?),
    };
    let row = match digits {
        "" => None,
        digits => Some(
            digits
                .parse()
                .ok()
                .filter(|row| (1..=MAX_ROW).contains(row))
                .ok_or_else(|| ReferenceError::Row(digits.to_owned()))?,
        ),
    };
    match (row, column) {
        (Some(row), Some(column)) => Ok(Corner::Cell(CellRef { row, column })),
        (None, Some(column)) => Ok(Corner::Column(column)),
        (Some(row), None) => Ok(Corner::Row(row)),
        (None, None) => Err(malformed()),
    }
}

/// The number of a column by its letters in either case, if a worksheet has it.
pub(crate) fn column_number(letters: &str) -> Option<u32> {
    let mut number = 0u32;
    for byte in letters.bytes() {
        if !byte.is_ascii_alphabetic() || number > MAX_COLUMN {
            return None;
        }
        number = number * 26 + u32::from(byte.to_ascii_uppercase() - b'A') + 1;
    }
    (1..=MAX_COLUMN).contains(&number).then_some(number)
}

impl FromStr for CellRef {
    type Err = ReferenceError;

    fn from_str(text: &str) -> Result<Self, ReferenceError> {
        match corner(text)? {
            Corner::Cell(cell) => Ok(cell),
            _ => Err(ReferenceError::Alone(text.to_owned())),
        }
    }
}

impl FromStr for Range {
    type Err = ReferenceError;

    fn from_str(text: &str) -> Result<Self, ReferenceError> {
        let text = text.trim();
        if text.is_empty() {
            return Err(ReferenceError::Empty);
        }
        let Some((one, other)) = text.split_once(':') else { return text.parse().map(CellRef::into) };
        let of = |first_row, first_column, last_row, last_column| {
            Range::new(CellRef { row: first_row, column: first_column }, CellRef { row: last_row, column: last_column })
        };
        match (corner(one.trim())?, corner(other.trim())?) {
            (Corner::Cell(one), Corner::Cell(other)) => Ok(Self::new(one, other)),
            (Corner::Column(one), Corner::Column(other)) => Ok(of(1, one, MAX_ROW, other)),
            (Corner::Row(one), Corner::Row(other)) => Ok(of(one, 1, other, MAX_COLUMN)),
            _ => Err(ReferenceError::Mixed(text.to_owned())),
        }
    }
}

impl FromStr for Reference {
    type Err = ReferenceError;

    fn from_str(text: &str) -> Result<Self, ReferenceError> {
        let text = text.trim();
        let (sheet, range) = match text.strip_prefix('\'') {
            Some(quoted) => {
                let unclosed = || ReferenceError::Unclosed(text.to_owned());
                // An apostrophe in the name is doubled, so the name ends at the first single one before `!`.
                let mut end = None;
                let mut bytes = quoted.bytes().enumerate().peekable();
                while let Some((at, byte)) = bytes.next() {
                    if byte == b'\'' && bytes.next_if(|(_, next)| *next == b'\'').is_none() {
                        end = Some(at);
                        break;
                    }
                }
                let (name, rest) = quoted.split_at(end.ok_or_else(unclosed)?);
                (Some(name.replace("''", "'")), rest[1..].strip_prefix('!').ok_or_else(unclosed)?)
            }
            None => match text.rsplit_once('!') {
                Some((sheet, range)) => (Some(sheet.to_owned()), range),
                None => (None, text),
            },
        };
        if sheet.as_ref().is_some_and(String::is_empty) {
            return Err(ReferenceError::Nameless(text.to_owned()));
        }
        Ok(Self { sheet, range: range.parse()? })
    }
}

impl fmt::Display for CellRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", column_letters(self.column), self.row)
    }
}

impl fmt::Display for Range {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.first, self.last)
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.sheet {
            Some(sheet) => write!(f, "{}!{}", quoted_sheet(sheet), self.range),
            None => write!(f, "{}", self.range),
        }
    }
}

/// The name of a sheet as references have it. A plain name needs no quotes, but one that reads as a cell or number does.
pub(super) fn quoted_sheet(sheet: &str) -> Cow<'_, str> {
    if is_plain(sheet) { sheet.into() } else { format!("'{}'", sheet.replace('\'', "''")).into() }
}

fn is_plain(sheet: &str) -> bool {
    let word = |character: char| character.is_alphanumeric() || character == '_';
    sheet.chars().all(word) && sheet.chars().next().is_some_and(|first| !first.is_numeric()) && corner(sheet).is_err()
}

macro_rules! as_text {
    ($($name:ty),*) => {$(
        impl TryFrom<String> for $name {
            type Error = ReferenceError;

            fn try_from(text: String) -> Result<Self, ReferenceError> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(value: $name) -> Self {
                value.to_string()
            }
        }
    )*};
}

as_text!(CellRef, Range, Reference);

#[cfg(test)]
mod tests;
