//! Tables in text: workbooks of one sheet.

use super::{
    book::{Book, Scan},
    moment::Moment,
    range::{CellRef, MAX_COLUMN, MAX_ROW},
    value::Value,
    worksheet::{Item, RawCell, RawFormula, Shown, Stored, check_cells},
};
use crate::{
    Format, FormatError, Limits,
    delimited::{Rows, Table},
};
use std::io::{Read, Seek};

impl<R: Read + Seek> Book for Table<R> {
    fn scan(&mut self, _sheet: u32, limits: &Limits) -> Result<Box<dyn Scan + '_>, FormatError> {
        Ok(Box::new(TableScan::new(self.rows()?, limits)))
    }
}

/// The cells of a table in text. Their types follow from how they are written, and they are shown as they are written.
struct TableScan<'a> {
    rows: Rows<'a>,
    values: Vec<String>,
    /// How many values of the row were read.
    read: usize,
    row: u32,
    filled: u64,
    raw: RawCell,
    limits: Limits,
    has_ended: bool,
}

impl<'a> TableScan<'a> {
    fn new(rows: Rows<'a>, limits: &Limits) -> Self {
        let raw = RawCell { has_value: true, shown: Shown::AsStored, ..RawCell::default() };
        Self { rows, values: Vec::new(), read: 0, row: 0, filled: 0, raw, limits: limits.clone(), has_ended: false }
    }
}

impl Scan for TableScan<'_> {
    fn next(&mut self) -> Result<Option<Item<'_>>, FormatError> {
        loop {
            let Some(value) = self.values.get_mut(self.read) else {
                self.read = 0;
                self.has_ended = self.has_ended || !self.rows.next(&mut self.values)?;
                if self.has_ended {
                    return Ok(None);
                }
                self.row += 1;
                if self.row > MAX_ROW {
                    let reason =
                        format_args!("it has over {MAX_ROW} rows, as many as a sheet may have; split the file");
                    return Err(FormatError::unsupported(Format::Csv, reason));
                }
                return Ok(Some(Item::Row { row: self.row, hidden: false }));
            };
            self.read += 1;
            if value.trim().is_empty() {
                continue;
            }
            self.raw.text = std::mem::take(value);
            self.raw.stored = stored(self.raw.text.trim());
            self.filled += 1;
            check_cells(self.filled, &self.limits)?;
            let column = u32::try_from(self.read).unwrap_or(u32::MAX);
            let at = CellRef::new(self.row, column)
                .ok_or_else(|| FormatError::corrupt(Format::Csv, format_args!("a row has over {MAX_COLUMN} values")))?;
            return Ok(Some(Item::Cell(at, &self.raw)));
        }
    }

    fn formula_text(&self, _formula: &RawFormula, _at: CellRef) -> String {
        String::new()
    }

    /// Nothing comes after the cells of a table.
    fn behind_cells<'a>(self: Box<Self>, _bytes: u64) -> Result<Option<Box<dyn Scan + 'a>>, FormatError>
    where
        Self: 'a,
    {
        Ok(Some(Box::new(Self { values: Vec::new(), has_ended: true, ..*self })))
    }
}

/// What a text without a sheet of its own holds as a cell.
pub(crate) fn value_of_text(text: &str) -> Value {
    let as_text = || Value::Text(text.to_owned());
    match stored(text) {
        Stored::Number => text.parse().map_or_else(|_| as_text(), Value::Number),
        Stored::Date => Moment::from_iso(text).map_or_else(as_text, |moment| Value::Date(moment.to_string())),
        Stored::Boolean => Value::Boolean(text.eq_ignore_ascii_case("true")),
        _ => as_text(),
    }
}

/// How a value is read.
fn stored(text: &str) -> Stored {
    match text {
        text if is_number(text) => Stored::Number,
        text if is_date(text) => Stored::Date,
        "true" | "false" | "TRUE" | "FALSE" => Stored::Boolean,
        _ => Stored::Text,
    }
}

/// Whether a value is a number as programs write it: `00123`, `1e5` and a number longer than is exact are names of
/// something.
fn is_number(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
    let are_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    are_digits(whole) && are_digits(fraction) && digits.len() <= 16 && (whole == "0" || !whole.starts_with('0'))
}

/// Whether a value is a day, or a day and a time, in ISO 8601. A zone makes it a text, because cells have none.
fn is_date(text: &str) -> bool {
    let bytes = text.as_bytes();
    let is_day = bytes.get(..10).is_some_and(|day| {
        day.iter().enumerate().all(|(at, byte)| if at == 4 || at == 7 { *byte == b'-' } else { byte.is_ascii_digit() })
    });
    let is_time = |time: &[u8]| {
        time.contains(&b':') && time.iter().all(|byte| byte.is_ascii_digit() || matches!(byte, b':' | b'.'))
    };
    is_day && (bytes.len() == 10 || (bytes.len() <= 30 && matches!(bytes[10], b'T' | b' ') && is_time(&bytes[11..])))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_dates_are_what_programs_write() {
        for (text, number, date) in [
            ("72", true, false),
            ("-0.50", true, false),
            ("0", true, false),
            ("0123", false, false),
            ("1e5", false, false),
            ("12345678901234567890", false, false),
            ("-", false, false),
            (".5", false, false),
            ("1,5", false, false),
            ("inf", false, false),
            ("2026-03-04", false, true),
            ("2026-03-04T05:06:07", false, true),
            ("2026-03-04 05:06", false, true),
            ("2026-03-04T05:06:07Z", false, false),
            ("2026-03-0x", false, false),
            ("2026-03-04é", false, false),
        ] {
            assert_eq!((is_number(text), is_date(text)), (number, date), "{text}");
        }
    }
}
