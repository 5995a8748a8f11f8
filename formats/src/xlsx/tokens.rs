//! Writes out the formulas of binary workbooks, which store them as tokens in postfix order ([MS-XLS] 2.2.2, [MS-XLSB]
//! 2.2.2).

use super::range::{CellRef, MAX_COLUMN, MAX_ROW, column_letters, quoted_sheet};
use encoding_rs::Encoding;
use std::{collections::HashMap, sync::LazyLock};

/// Spreadsheets allow 16,384 bytes of tokens, and 8,192 characters of text.
const TOKEN_BYTES: usize = 16_384;
const TEXT_BYTES: usize = 32_768;

/// The functions by their numbers: a name, and how many arguments it always has. A line each: a number, a name, and the
/// arguments or `-`.
static FUNCTIONS: LazyLock<HashMap<u16, (&str, Option<usize>)>> = LazyLock::new(|| {
    let function = |line: &'static str| {
        let mut words = line.split(' ');
        let id = words.next()?.parse().ok()?;
        Some((id, (words.next()?, words.next()?.parse().ok())))
    };
    include_str!("functions.txt").lines().filter_map(function).collect()
});

/// A call of this one has the name of a function of the user's as its first argument.
const OF_USER: u16 = 255;

/// How wide the parts of tokens are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Layout {
    /// Of Excel 5 and 95.
    Biff5,
    /// Of Excel 97 to 2003.
    Biff8,
    /// Of xlsb.
    Biff12,
}

impl Layout {
    /// The rows and columns of a sheet.
    fn size(self) -> (u32, u32) {
        match self {
            Self::Biff5 => (1 << 14, 1 << 8),
            Self::Biff8 => (1 << 16, 1 << 8),
            Self::Biff12 => (MAX_ROW, MAX_COLUMN),
        }
    }
}

/// What tokens refer to in their workbook.
#[derive(Debug)]
pub(super) struct Surroundings {
    pub layout: Layout,
    /// The defined names, in the order in which tokens count them.
    pub names: Vec<String>,
    pub sheets: Vec<String>,
    /// The first and the last sheet of each reference to sheets; `None` for those of another workbook.
    pub references: Vec<Option<(u32, u32)>>,
    /// Of texts that are no Unicode.
    pub encoding: &'static Encoding,
}

/// What several cells share.
pub(super) enum Master {
    Tokens(Vec<u8>),
    /// The input cells of a table of what-if values.
    Table(String),
}

impl Surroundings {
    /// The formula of a cell as people read it. A cell that shares the formula of another one has that one's.
    pub(super) fn formula(&self, tokens: &[u8], master: Option<&Master>, at: CellRef) -> String {
        let tokens = match master {
            Some(Master::Table(inputs)) => return format!("=TABLE({inputs})"),
            Some(Master::Tokens(tokens)) => tokens,
            None => tokens,
        };
        format!("={}", self.text(tokens, at).unwrap_or_default())
    }

    /// The formula of a cell, without `=`; `None` if it cannot be written out.
    pub(super) fn text(&self, tokens: &[u8], at: CellRef) -> Option<String> {
        if tokens.len() > TOKEN_BYTES {
            return None;
        }
        let mut writer = Writer { around: self, rest: tokens, at, stack: Vec::new(), bytes: 0 };
        while !writer.rest.is_empty() {
            writer.token()?;
        }
        let text = writer.stack.pop()?;
        writer.stack.is_empty().then_some(text)
    }

    fn sheet_prefix(&self, first: u32, last: u32) -> Option<String> {
        let (one, other) = (self.sheets.get(first as usize)?, self.sheets.get(last as usize)?);
        let name = if first == last { one.clone() } else { format!("{one}:{other}") };
        Some(format!("{}!", quoted_sheet(&name)))
    }
}

/// A row or column of a reference.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Axis {
    number: u32,
    is_relative: bool,
}

struct Writer<'a> {
    around: &'a Surroundings,
    rest: &'a [u8],
    at: CellRef,
    /// The texts of the operands so far.
    stack: Vec<String>,
    bytes: usize,
}

impl<'a> Writer<'a> {
    fn token(&mut self) -> Option<()> {
        let id = self.u8()?;
        // Three classes of a token differ in what its value is used for.
        let base = if id >= 0x40 { id & 0x1F | 0x20 } else { id };
        match base {
            0x03..=0x11 => {
                const OPERATORS: [&str; 15] =
                    ["+", "-", "*", "/", "^", "&", "<", "<=", "=", ">=", ">", "<>", " ", ",", ":"];
                let second = self.stack.pop()?;
                let first = self.stack.last_mut()?;
                first.push_str(OPERATORS[usize::from(base - 0x03)]);
                first.push_str(&second);
                self.count(second.len())
            }
            0x12 => self.around_last("+", ""),
            0x13 => self.around_last("-", ""),
            0x14 => self.around_last("", "%"),
            0x15 => self.around_last("(", ")"),
            0x16 => self.push(String::new()),
            0x17 => {
                let text = self.string()?;
                self.push(format!("\"{}\"", text.replace('"', "\"\"")))
            }
            0x19 => self.attribute(),
            0x1C => {
                let code = self.u8()?;
                self.push(error_text(code).to_owned())
            }
            0x1D => {
                let truth = self.u8()? != 0;
                self.push(if truth { "TRUE" } else { "FALSE" }.to_owned())
            }
            0x1E => {
                let number = self.u16()?;
                self.push(number.to_string())
            }
            0x1F => {
                let number = f64::from_le_bytes(self.bytes::<8>()?);
                self.push(number.to_string())
            }
            0x21 => {
                let (name, arguments) = *FUNCTIONS.get(&self.u16()?)?;
                self.call(name, arguments?)
            }
            0x22 => {
                let arguments = usize::from(self.u8()? & 0x7F);
                match self.u16()? & 0x7FFF {
                    OF_USER => {
                        let first = self.stack.len().checked_sub(arguments.max(1))?;
                        let name = self.stack.remove(first);
                        self.call(&name, arguments - 1)
                    }
                    id => self.call(FUNCTIONS.get(&id)?.0, arguments),
                }
            }
            0x23 => self.name(),
            0x24 => {
                let cell = self.cell(false)?;
                self.push(cell)
            }
            0x25 => {
                let area = self.area(false)?;
                self.push(area)
            }
            // What these hold was computed; the tokens that made it follow.
            0x26..=0x28 => self.skip(6),
            0x29 => self.skip(2),
            0x2A => {
                self.cell(false)?;
                self.push("#REF!".to_owned())
            }
            0x2B => {
                self.area(false)?;
                self.push("#REF!".to_owned())
            }
            0x2C => {
                let cell = self.cell(true)?;
                self.push(cell)
            }
            0x2D => {
                let area = self.area(true)?;
                self.push(area)
            }
            0x39 => self.name_elsewhere(),
            0x3A..=0x3D => {
                let prefix = self.sheets()?;
                let place = if matches!(base, 0x3A | 0x3C) { self.cell(false)? } else { self.area(false)? };
                let place = if base < 0x3C { &place } else { "#REF!" };
                self.push(format!("{prefix}{place}"))
            }
            // Arrays of constants, columns of tables, and what nobody defined.
            _ => None,
        }
    }

    /// What says how to compute, and one form of a sum.
    fn attribute(&mut self) -> Option<()> {
        let flags = self.u8()?;
        let word = self.u16()?;
        if flags & 0x04 != 0 {
            return self.skip((usize::from(word) + 1) * 2);
        }
        if flags & 0x10 != 0 { self.call("SUM", 1) } else { Some(()) }
    }

    fn name(&mut self) -> Option<()> {
        let index = match self.around.layout {
            Layout::Biff5 => {
                let index = u32::from(self.u16()?);
                self.skip(12)?;
                index
            }
            Layout::Biff8 | Layout::Biff12 => self.u32()?,
        };
        self.push_name(index)
    }

    fn name_elsewhere(&mut self) -> Option<()> {
        if self.around.layout == Layout::Biff5 {
            return None;
        }
        let reference = self.u16()?;
        let index = self.u32()?;
        // A name of another workbook, or of a function of an add-in, is known there.
        (*self.around.references.get(usize::from(reference))?)?;
        self.push_name(index)
    }

    fn push_name(&mut self, index: u32) -> Option<()> {
        let name = self.around.names.get(index.checked_sub(1)? as usize)?.clone();
        self.push(name)
    }

    /// The sheets of a reference, with `!`.
    fn sheets(&mut self) -> Option<String> {
        let reference = self.u16()?;
        if self.around.layout != Layout::Biff5 {
            let (first, last) = (*self.around.references.get(usize::from(reference))?)?;
            return self.around.sheet_prefix(first, last);
        }
        self.skip(8)?;
        let (first, last) = (self.u16()?, self.u16()?);
        // A positive number is that of another workbook.
        (reference >= 0x8000).then_some(())?;
        self.around.sheet_prefix(first.into(), last.into())
    }

    fn cell(&mut self, is_offset: bool) -> Option<String> {
        let row = self.row()?;
        let column = self.column()?;
        let [(row, column)] = self.axes([(row, column)], is_offset);
        Some(format!("{}{}", letters(column), digits(row)))
    }

    fn area(&mut self, is_offset: bool) -> Option<String> {
        let rows = [self.row()?, self.row()?];
        let columns = [self.column()?, self.column()?];
        let corners = [(rows[0], columns[0]), (rows[1], columns[1])];
        let [first, last] = self.axes(corners, is_offset);
        let (height, width) = self.around.layout.size();
        Some(if (first.0.number, last.0.number) == (0, height - 1) {
            format!("{}:{}", letters(first.1), letters(last.1))
        } else if (first.1.number, last.1.number) == (0, width - 1) {
            format!("{}:{}", digits(first.0), digits(last.0))
        } else {
            format!("{}{}:{}{}", letters(first.1), digits(first.0), letters(last.1), digits(last.0))
        })
    }

    fn row(&mut self) -> Option<u32> {
        if self.around.layout == Layout::Biff12 { self.u32() } else { self.u16().map(u32::from) }
    }

    fn column(&mut self) -> Option<u32> {
        if self.around.layout == Layout::Biff5 { self.u8().map(u32::from) } else { self.u16().map(u32::from) }
    }

    /// The rows and columns of corners. Offsets count from the formula's cell, and wrap around at the edges.
    fn axes<const N: usize>(&self, corners: [(u32, u32); N], is_offset: bool) -> [(Axis, Axis); N] {
        let (height, width) = self.around.layout.size();
        corners.map(|(row, column)| {
            // The older layout has its marks in the row.
            let marks = if self.around.layout == Layout::Biff5 { row } else { column };
            let axis = |number: u32, is_relative: bool, of_cell: u32, size: u32| {
                let from = if is_offset && is_relative { of_cell - 1 } else { 0 };
                // Both sizes are powers of two.
                Axis { number: number.wrapping_add(from) & (size - 1), is_relative }
            };
            let row = axis(row, marks & 0x8000 != 0, self.at.row(), height);
            (row, axis(column, marks & 0x4000 != 0, self.at.column(), width))
        })
    }

    fn string(&mut self) -> Option<String> {
        let length = match self.around.layout {
            Layout::Biff12 => usize::from(self.u16()?),
            _ => usize::from(self.u8()?),
        };
        match self.around.layout {
            Layout::Biff5 => {
                let bytes = self.take(length)?;
                return Some(self.around.encoding.decode_without_bom_handling(bytes).0.into_owned());
            }
            Layout::Biff8 => {
                let is_wide = self.u8()? & 1 != 0;
                if !is_wide {
                    return Some(self.take(length)?.iter().map(|&byte| char::from(byte)).collect());
                }
            }
            Layout::Biff12 => {}
        }
        Some(utf16(self.take(length * 2)?))
    }

    fn call(&mut self, name: &str, arguments: usize) -> Option<()> {
        let first = self.stack.len().checked_sub(arguments)?;
        let text = format!("{name}({})", self.stack[first..].join(","));
        self.stack.truncate(first);
        self.push(text)
    }

    fn around_last(&mut self, before: &str, after: &str) -> Option<()> {
        let last = self.stack.last_mut()?;
        last.insert_str(0, before);
        last.push_str(after);
        let length = last.len();
        self.count(length)
    }

    fn push(&mut self, text: String) -> Option<()> {
        let length = text.len();
        self.stack.push(text);
        self.count(length)
    }

    /// Counts what was written, which bounds the work of formulas that no spreadsheet makes.
    fn count(&mut self, bytes: usize) -> Option<()> {
        self.bytes += bytes + 1;
        let is_long = self.stack.last().is_some_and(|last| last.len() > TEXT_BYTES);
        (!is_long && self.bytes <= 16 * TEXT_BYTES).then_some(())
    }

    fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(bytes)?;
        self.rest = rest;
        Some(taken)
    }

    fn skip(&mut self, bytes: usize) -> Option<()> {
        self.take(bytes).map(|_| ())
    }

    fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn u8(&mut self) -> Option<u8> {
        self.bytes::<1>().map(|[byte]| byte)
    }

    fn u16(&mut self) -> Option<u16> {
        self.bytes().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.bytes().map(u32::from_le_bytes)
    }
}

fn letters(axis: Axis) -> String {
    format!("{}{}", if axis.is_relative { "" } else { "$" }, column_letters(axis.number + 1))
}

fn digits(axis: Axis) -> String {
    format!("{}{}", if axis.is_relative { "" } else { "$" }, axis.number + 1)
}

/// The text of an error by its code in binary workbooks.
pub(super) fn error_text(code: u8) -> &'static str {
    match code {
        0x00 => "#NULL!",
        0x07 => "#DIV/0!",
        0x0F => "#VALUE!",
        0x17 => "#REF!",
        0x1D => "#NAME?",
        0x24 => "#NUM!",
        0x2B => "#GETTING_DATA",
        _ => "#N/A",
    }
}

/// A number that binary workbooks store in four bytes: an integer or the upper half of a number, perhaps in hundredths.
pub(super) fn short_number(stored: u32) -> f64 {
    let number =
        if stored & 2 != 0 { f64::from(stored as i32 >> 2) } else { f64::from_bits(u64::from(stored & !3) << 32) };
    if stored & 1 != 0 { number / 100.0 } else { number }
}

/// Text of two bytes a character, without NUL, which no text may hold.
pub(super) fn utf16(bytes: &[u8]) -> String {
    let units = bytes.chunks_exact(2).map(|unit| u16::from_le_bytes([unit[0], unit[1]]));
    let characters = char::decode_utf16(units).map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER));
    characters.filter(|character| *character != '\0').collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn around(layout: Layout) -> Surroundings {
        Surroundings {
            layout,
            names: vec!["Rate".to_owned()],
            sheets: vec!["Ponds".to_owned(), "My Sheet".to_owned()],
            references: vec![Some((0, 0)), Some((0, 1)), None],
            encoding: encoding_rs::WINDOWS_1252,
        }
    }

    fn text(layout: Layout, tokens: &[u8]) -> Option<String> {
        around(layout).text(tokens, "C5".parse().unwrap())
    }

    #[test]
    fn tokens_are_written_as_a_person_would() {
        use Layout::{Biff5, Biff8, Biff12};
        let cases: [(Layout, &[u8], &str); 16] = [
            (Biff8, &[0x24, 4, 0, 1, 0xC0, 0x1E, 2, 0, 0x05], "B5*2"),
            (Biff8, &[0x44, 4, 0, 1, 0x00], "$B$5"),
            (Biff8, &[0x25, 0, 0, 9, 0, 0, 0xC0, 1, 0xC0, 0x19, 0x10, 0, 0], "SUM(A1:B10)"),
            (Biff8, &[0x25, 0, 0, 0xFF, 0xFF, 0, 0xC0, 1, 0xC0], "A:B"),
            (Biff8, &[0x25, 2, 0, 3, 0, 0, 0xC0, 0xFF, 0xC0], "3:4"),
            (Biff8, &[0x2C, 0xFF, 0xFF, 0xFF, 0xC0], "B4"),
            (Biff8, &[0x3A, 1, 0, 0, 0, 0, 0xC0], "'Ponds:My Sheet'!A1"),
            (Biff8, &[0x17, 2, 0, b'a', b'"', 0x17, 1, 1, 0xE9, 0, 0x08], "\"a\"\"\"&\"\u{E9}\""),
            (Biff8, &[0x1E, 1, 0, 0x1E, 2, 0, 0x03, 0x15, 0x13, 0x14], "-(1+2)%"),
            (Biff8, &[0x23, 1, 0, 0, 0, 0x16, 0x1D, 1, 0x42, 3, 1, 0], "IF(Rate,,TRUE)"),
            (Biff8, &[0x1F, 0, 0, 0, 0, 0, 0, 0xF8, 0x3F, 0x41, 24, 0], "ABS(1.5)"),
            (Biff8, &[0x23, 1, 0, 0, 0, 0x1E, 7, 0, 0x42, 2, 255, 0], "Rate(7)"),
            (Biff8, &[0x1C, 0x07, 0x2A, 0, 0, 0, 0, 0x0B], "#DIV/0!=#REF!"),
            (Biff5, &[0x24, 4, 0xC0, 1], "B5"),
            (Biff5, &[0x17, 1, 0xE9], "\"\u{E9}\""),
            (Biff12, &[0x24, 0xFF, 0xFF, 0x0F, 0, 0xFF, 0xFF], "XFD1048576"),
        ];
        for (layout, tokens, written) in cases {
            assert_eq!(text(layout, tokens).as_deref(), Some(written), "{tokens:02x?}");
        }
    }

    #[test]
    fn what_cannot_be_written_out_is_left_out() {
        let of_another_workbook = &[0x3A, 2, 0, 0, 0, 0, 0xC0];
        let cases: [&[u8]; 8] = [
            &[],
            &[0x03],
            &[0x24, 1],
            &[0x1E, 1, 0, 0x1E, 2, 0],
            &[0x20],
            &[0xFF],
            &[0x41, 255, 0],
            of_another_workbook,
        ];
        for tokens in cases {
            assert_eq!(text(Layout::Biff8, tokens), None, "{tokens:02x?}");
        }
        // Each token makes the text before it longer.
        let mut long = vec![0x1E, 1, 0];
        long.resize(TOKEN_BYTES, 0x15);
        assert_eq!(text(Layout::Biff8, &long), None);
    }

    #[test]
    fn numbers_in_four_bytes() {
        for (stored, number) in [(0x3FF0_0000, 1.0), (0x3FF0_0001, 0.01), (7 << 2 | 2, 7.0), (7 << 2 | 3, 0.07)] {
            assert_eq!(short_number(stored), number, "{stored:x}");
        }
        assert_eq!(short_number((-7i32 as u32) << 2 | 2), -7.0);
    }
}
