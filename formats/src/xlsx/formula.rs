//! Shared formulas: written once for one cell, and valid in others as if copied there.

use super::range::{CellRef, MAX_COLUMN, MAX_ROW, column_letters, column_number};

/// The formula of a cell that shares that of `master`, without `=`: relative references move as the cell does.
pub(super) fn translated(formula: &str, master: CellRef, cell: CellRef) -> String {
    let shift = Shift {
        rows: i64::from(cell.row()) - i64::from(master.row()),
        columns: i64::from(cell.column()) - i64::from(master.column()),
    };
    let mut out = String::with_capacity(formula.len() + 8);
    let mut rest = formula;
    while let Some(first) = rest.chars().next() {
        let taken = match first {
            // Texts and quoted sheet names. A doubled quote begins the next text, which has the same effect.
            '"' | '\'' => rest[1..].find(first).map_or(rest.len(), |end| end + 2),
            // Columns of a table and names of other workbooks, which nest.
            '[' => bracketed(rest),
            _ if is_word(first) => {
                let end = rest.find(|character| !is_word(character)).unwrap_or(rest.len());
                // A range of whole columns or rows is one reference.
                let end = whole_range(rest, end).unwrap_or(end);
                let (word, after) = rest.split_at(end);
                // A name that is followed by one of these belongs to a function or a sheet.
                let is_name = after.starts_with(['(', '!', '[']);
                if is_name || !shift.reference(word, &mut out) {
                    out.push_str(word);
                }
                rest = after;
                continue;
            }
            other => other.len_utf8(),
        };
        let (copied, after) = rest.split_at(taken);
        out.push_str(copied);
        rest = after;
    }
    out
}

fn is_word(character: char) -> bool {
    character.is_alphanumeric() || matches!(character, '_' | '.' | '$' | '\\' | '?')
}

fn bracketed(text: &str) -> usize {
    let mut depth = 0usize;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'[' => depth += 1,
            b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth == 0 {
            return at + 1;
        }
    }
    text.len()
}

/// The end of a range such as `A:C` or `$3:7` that begins with the word before `end`.
fn whole_range(text: &str, end: usize) -> Option<usize> {
    let after = text[end..].strip_prefix(':')?;
    let second = &after[..after.find(|character| !is_word(character)).unwrap_or(after.len())];
    let alike = |one: &str, other: &str| {
        (axis(one, true).is_some() && axis(other, true).is_some())
            || (axis(one, false).is_some() && axis(other, false).is_some())
    };
    alike(&text[..end], second).then_some(end + 1 + second.len())
}

/// A single column (letters) or row (digits), and whether it is absolute.
fn axis(text: &str, column: bool) -> Option<(u32, bool)> {
    let (text, absolute) = match text.strip_prefix('$') {
        Some(rest) => (rest, true),
        None => (text, false),
    };
    let number = if column {
        column_number(text)?
    } else {
        if !text.bytes().all(|byte| byte.is_ascii_digit()) || text.starts_with('0') {
            return None;
        }
        text.parse().ok().filter(|row| (1..=MAX_ROW).contains(row))?
    };
    Some((number, absolute))
}

struct Shift {
    rows: i64,
    columns: i64,
}

impl Shift {
    /// Appends the reference as it is in the other cell; returns false if the word is not a reference.
    fn reference(&self, word: &str, out: &mut String) -> bool {
        if let Some((one, other)) = word.split_once(':') {
            let column = axis(one, true).is_some();
            for (part, before) in [(one, ""), (other, ":")] {
                out.push_str(before);
                if let Some((number, absolute)) = axis(part, column) {
                    self.axis(number, absolute, column, out);
                }
            }
            return true;
        }
        let letters = word.strip_prefix('$').unwrap_or(word);
        let Some(digits_at) = letters.find(|character: char| !character.is_ascii_alphabetic()) else { return false };
        let (column, row) = word.split_at(word.len() - letters.len() + digits_at);
        let (Some(column), Some(row)) = (axis(column, true), axis(row, false)) else { return false };
        let start = out.len();
        if !(self.axis(column.0, column.1, true, out) && self.axis(row.0, row.1, false, out)) {
            // A range that leaves the sheet on one side is off the sheet.
            out.truncate(start);
            out.push_str("#REF!");
        }
        true
    }

    /// Appends the row or column; returns whether it is still on the sheet.
    fn axis(&self, number: u32, absolute: bool, column: bool, out: &mut String) -> bool {
        let (by, most) = if column { (self.columns, MAX_COLUMN) } else { (self.rows, MAX_ROW) };
        let moved = i64::from(number) + if absolute { 0 } else { by };
        let Some(moved) = u32::try_from(moved).ok().filter(|moved| (1..=most).contains(moved)) else {
            out.push_str("#REF!");
            return false;
        };
        if absolute {
            out.push('$');
        }
        if column {
            out.push_str(&column_letters(moved));
        } else {
            out.push_str(&moved.to_string());
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_move_and_nothing_else_does() {
        let from: CellRef = "C3".parse().unwrap();
        for (formula, to, moved) in [
            ("B2", "C4", "B3"),
            ("$B2+B$2+$B$2", "D4", "$B3+C$2+$B$2"),
            ("SUM(A1:B2)", "C4", "SUM(A2:B3)"),
            ("SUM(A:A,$B:C,3:4,$3:4)", "D5", "SUM(B:B,$B:D,5:6,$3:6)"),
            ("LOG10(A1)*LOG10(2)", "C4", "LOG10(A2)*LOG10(2)"),
            ("\"A1 \"\"B2\"\"\"&A1", "C4", "\"A1 \"\"B2\"\"\"&A2"),
            ("'It''s A1'!A1+Sheet1!A1", "C4", "'It''s A1'!A2+Sheet1!A2"),
            ("Table1[[#This Row],[A1]]+A1", "C4", "Table1[[#This Row],[A1]]+A2"),
            ("A1_total+XFE1+A0+_A1", "C4", "A1_total+XFE1+A0+_A1"),
            ("1E5+A1%", "C4", "1E5+A2%"),
            ("A1", "A1", "#REF!"),
            ("B1+D5", "C2", "#REF!+D4"),
            ("IF(é1>A1,TRUE,a1)", "C4", "IF(é1>A2,TRUE,A2)"),
            ("", "C4", ""),
            ("\"open", "C4", "\"open"),
            ("[1", "C4", "[1"),
        ] {
            assert_eq!(translated(formula, from, to.parse().unwrap()), moved, "{formula} in {to}");
        }
    }
}
