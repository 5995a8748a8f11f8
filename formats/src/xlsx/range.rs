//! Cells and rectangles of a worksheet, in A1 notation.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// Rows of a worksheet.
pub const MAX_ROW: u32 = 1_048_576;
/// Columns of a worksheet; the last is `XFD`.
pub const MAX_COLUMN: u32 = 16_384;

/// A cell's place; row and column count from 1, as worksheets show them. Orders by row, then column.
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

/// A rectangle of cells, both corners in it. Prints as `A1:C9`, a single cell as `A1:A1`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Range {
    first: CellRef,
    last: CellRef,
}

impl Range {
    /// The rectangle two cells span, whichever corners they are.
    pub fn new(one: CellRef, other: CellRef) -> Self {
        Self {
            first: CellRef { row: one.row.min(other.row), column: one.column.min(other.column) },
            last: CellRef { row: one.row.max(other.row), column: one.column.max(other.column) },
        }
    }

    /// The corner at the top left.
    pub fn first(self) -> CellRef {
        self.first
    }

    /// The corner at the bottom right.
    pub fn last(self) -> CellRef {
        self.last
    }

    /// Rows of it, at least 1.
    pub fn height(self) -> u32 {
        self.last.row - self.first.row + 1
    }

    /// Columns of it, at least 1.
    pub fn width(self) -> u32 {
        self.last.column - self.first.column + 1
    }

    /// Cells of it, filled or not.
    pub fn area(self) -> u64 {
        u64::from(self.height()) * u64::from(self.width())
    }

    /// Whether the cell is in it.
    pub fn contains(self, cell: CellRef) -> bool {
        (self.first.row..=self.last.row).contains(&cell.row)
            && (self.first.column..=self.last.column).contains(&cell.column)
    }

    /// What both hold, if they meet.
    pub fn intersect(self, other: Self) -> Option<Self> {
        let first =
            CellRef { row: self.first.row.max(other.first.row), column: self.first.column.max(other.first.column) };
        let last = CellRef { row: self.last.row.min(other.last.row), column: self.last.column.min(other.last.column) };
        (first.row <= last.row && first.column <= last.column).then_some(Self { first, last })
    }

    /// The smallest rectangle that holds both.
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

/// A rectangle, of a named sheet or of the one at hand: `A1:C9`, `Sales!A1`, `'My Sheet'!A:C`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Reference {
    pub sheet: Option<String>,
    pub range: Range,
}

/// Why a text is no reference; each names the part that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReferenceError {
    #[error("the reference is empty; write one like A1, A1:C9, A:C, 3:7 or Sheet1!A1:C9")]
    Empty,
    #[error("`{0}` is no cell, column or row; write one like A1, A1:C9, A:C, 3:7 or Sheet1!A1:C9")]
    Malformed(String),
    #[error("`{0}` has corners of different kinds; both must be cells, both columns or both rows")]
    Mixed(String),
    #[error("`{0}` alone is no range; a whole column is written A:A, a whole row 3:3")]
    Alone(String),
    #[error("column `{0}` is beyond XFD, the last column of a worksheet")]
    Column(String),
    #[error("row {0} is not one of a worksheet's rows, 1 to 1048576")]
    Row(String),
    #[error("the sheet name in `{0}` is not closed: a quoted name ends in an apostrophe and an exclamation mark")]
    Unclosed(String),
    #[error("the sheet name in `{0}` is empty")]
    Nameless(String),
    #[error("`{0}` names another workbook")]
    External(String),
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

/// The number of a column's letters in either case, if a worksheet has it.
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
                // An apostrophe in the name is doubled, so the first one before `!` that is not is the end.
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
        if let Some(sheet) = &sheet {
            if sheet.is_empty() {
                return Err(ReferenceError::Nameless(text.to_owned()));
            }
            if sheet.contains(['[', ']']) {
                return Err(ReferenceError::External(text.to_owned()));
            }
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
            // Quotes around a plain name are needless, but a name that reads as a cell or number needs them.
            Some(sheet) if is_plain(sheet) => write!(f, "{sheet}!{}", self.range),
            Some(sheet) => write!(f, "'{}'!{}", sheet.replace('\'', "''"), self.range),
            None => write!(f, "{}", self.range),
        }
    }
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
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn range(text: &str) -> Range {
        text.parse().unwrap()
    }

    #[test]
    fn the_written_forms_read() {
        assert_eq!(range("A1").to_string(), "A1:A1");
        assert_eq!(range(" b2:a1 ").to_string(), "A1:B2");
        assert_eq!(range("$A$1:C$9"), range("A1:C9"));
        assert_eq!(range("A:C").to_string(), "A1:C1048576");
        assert_eq!(range("$3:7").to_string(), "A3:XFD7");
        assert_eq!(range("A1:XFD1048576").area(), 17_179_869_184);
        let named = |text: &str| {
            let reference: Reference = text.parse().unwrap();
            (reference.sheet.unwrap(), reference.range.to_string(), text.parse::<Reference>().unwrap().to_string())
        };
        assert_eq!(named("Sheet1!A1:B2"), ("Sheet1".into(), "A1:B2".into(), "Sheet1!A1:B2".into()));
        assert_eq!(named("Sales!A1"), ("Sales".into(), "A1:A1".into(), "Sales!A1:A1".into()));
        assert_eq!(named("'My Sheet'!A1").0, "My Sheet");
        assert_eq!(named("'It''s!'!A1"), ("It's!".into(), "A1:A1".into(), "'It''s!'!A1:A1".into()));
        assert_eq!(named("AB12!A1").2, "'AB12'!A1:A1", "else it reads as a cell");
    }

    #[test]
    fn what_is_wrong_is_named() {
        let error = |text: &str| text.parse::<Reference>().unwrap_err().to_string();
        for (text, names) in [
            ("", "is empty"),
            ("Sheet1!", "is empty"),
            ("A", "`A` alone"),
            ("A1:C", "different kinds"),
            ("A1:3", "different kinds"),
            ("XFE1", "`XFE`"),
            ("AAAAAAAAAAAAAAAAAAAAAAA1", "XFD"),
            ("A0", "row 0"),
            ("A1048577", "row 1048577"),
            ("A99999999999999999999", "row 9999"),
            ("A1:B2:C3", "`B2:C3`"),
            ("A-1", "`A-1`"),
            ("A$", "`A$`"),
            ("$", "`$`"),
            ("'My Sheet!A1", "not closed"),
            ("'a'A1", "not closed"),
            ("!A1", "is empty"),
            ("[1]Sheet1!A1", "another workbook"),
            ("Ä1", "`Ä1`"),
        ] {
            assert!(error(text).contains(names), "{text}: {}", error(text));
        }
    }

    fn cell() -> impl Strategy<Value = CellRef> {
        // Small ones meet often, large ones reach the edges.
        let row = prop_oneof![1..=12u32, 1..=MAX_ROW];
        let column = prop_oneof![1..=12u32, 1..=MAX_COLUMN];
        (row, column).prop_map(|(row, column)| CellRef::new(row, column).unwrap())
    }

    fn ranges() -> impl Strategy<Value = Range> {
        (cell(), cell()).prop_map(|(one, other)| Range::new(one, other))
    }

    proptest! {
        #[test]
        fn what_is_printed_reads_back(cell in cell(), range in ranges(), sheet in proptest::option::of("[^\\[\\]\u{0}]{1,31}")) {
            prop_assert_eq!(cell.to_string().parse(), Ok(cell));
            prop_assert_eq!(range.to_string().parse(), Ok(range));
            let reference = Reference { sheet, range };
            prop_assert_eq!(reference.to_string().parse(), Ok(reference.clone()));
            let json = serde_json::to_string(&reference).unwrap();
            prop_assert_eq!(serde_json::from_str::<Reference>(&json).unwrap(), reference);
        }

        #[test]
        fn no_text_panics(text in ".{0,40}", near in "[A-Za-z$:!'0-9 ]{0,12}") {
            for text in [text, near] {
                if let Ok(reference) = text.parse::<Reference>() {
                    prop_assert_eq!(reference.to_string().parse(), Ok(reference));
                }
            }
        }

        #[test]
        fn an_intersection_is_what_both_hold(one in ranges(), other in ranges(), cell in cell()) {
            let both = one.intersect(other);
            prop_assert_eq!(both, other.intersect(one));
            prop_assert_eq!(both.is_some_and(|both| both.contains(cell)), one.contains(cell) && other.contains(cell));
            prop_assert_eq!(one.intersect(one), Some(one));
            let hull = one.hull(other);
            prop_assert_eq!(hull.intersect(one), Some(one));
            // Inclusion and exclusion, where the hull is exact: ranges of the same columns that meet.
            if let Some(both) = both && one.first().column() == other.first().column() && one.width() == other.width() {
                prop_assert_eq!(hull.area() + both.area(), one.area() + other.area());
            }
        }

        #[test]
        fn a_range_holds_its_corners_and_its_area(range in ranges()) {
            prop_assert!(range.contains(range.first()) && range.contains(range.last()));
            prop_assert!(range.area() >= 1 && range.area() <= u64::from(MAX_ROW) * u64::from(MAX_COLUMN));
            prop_assert_eq!(range.area() == 1, range.first() == range.last());
        }
    }
}
