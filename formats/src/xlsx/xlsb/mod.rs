//! Reads the parts of a binary workbook, which are records of a kind, a length and so many bytes ([MS-XLSB]).

#[cfg(test)]
mod tests;

use super::{
    book::{Scan, See},
    comments::Found,
    moment::DateEpoch,
    office::{Declared, check_sheets},
    range::{CellRef, MAX_COLUMN, MAX_ROW, Range},
    sheet::Comment,
    styles::{Styles, check_styles},
    tokens::{Layout, Master, Surroundings, error_text, short_number, utf16},
    workbook::{DefinedName, Sheet, SheetKind, SheetState, Workbook},
    worksheet::{Item, RawCell, RawFormula, Stored, check_cells},
};
use crate::{Format, FormatError, Limit, Limits, extraction::check_text, markdown::mark_raised};
use encoding_rs::UTF_16LE;
use std::{
    collections::{HashMap, HashSet},
    io::{self, BufReader, Read},
};

/// The most bytes of one record. A cell holds 32,767 characters, a formula 16,384 bytes.
const MAX_RECORD_BYTES: usize = 16 << 20;
const READ_BYTES: usize = 64 << 10;

const BOOK_PROPERTIES: u16 = 153;
const BUNDLED_SHEET: u16 = 156;
const NAME: u16 = 39;
const OWN_BOOK: u16 = 357;
const SAME_SHEET: u16 = 358;
const OTHER_BOOK: u16 = 355;
const ADD_IN: u16 = 667;
const SHEET_REFERENCES: u16 = 362;

const BEGIN_SHEET: u16 = 129;
const COLUMNS: u16 = 60;
const ROW: u16 = 0;
const FIRST_CELL: u16 = 1;
const LAST_CELL: u16 = 18;
const RICH_TEXT_CELL: u16 = 62;
const ARRAY: u16 = 426;
const SHARED_FORMULA: u16 = 427;
const TABLE: u16 = 428;
const END_CELLS: u16 = 146;
const MERGED: u16 = 176;

const SHARED_TEXT: u16 = 19;
const FONT: u16 = 43;
const FORMAT: u16 = 44;
const EXTENDED_FORMAT: u16 = 47;
const BEGIN_CELL_FORMATS: u16 = 617;
const END_CELL_FORMATS: u16 = 618;

const AUTHOR: u16 = 632;
const BEGIN_COMMENT: u16 = 635;
const COMMENT_TEXT: u16 = 637;

/// The token of a cell that shares the formula of another, and that of one in a table of what-if values.
const SHARES: u8 = 0x01;
const OF_TABLE: u8 = 0x02;

struct Records<S> {
    part: BufReader<S>,
    kind: u16,
    body: Vec<u8>,
    is_unread: bool,
    /// The bytes of the records so far.
    read: u64,
}

impl<S: Read> Records<S> {
    fn new(part: S) -> Self {
        let part = BufReader::with_capacity(READ_BYTES, part);
        Self { part, kind: 0, body: Vec::new(), is_unread: false, read: 0 }
    }

    /// The kind of the next record; `None` at the end.
    fn next(&mut self) -> Result<Option<u16>, FormatError> {
        if std::mem::take(&mut self.is_unread) {
            return Ok(Some(self.kind));
        }
        let Some(first) = self.byte()? else { return Ok(None) };
        let mut kind = u16::from(first);
        if first & 0x80 != 0 {
            kind = kind & 0x7F | u16::from(self.needed_byte()? & 0x7F) << 7;
        }
        let mut length = 0usize;
        for index in 0..4 {
            let byte = self.needed_byte()?;
            length |= usize::from(byte & 0x7F) << (7 * index);
            if byte & 0x80 == 0 {
                break;
            }
        }
        if length > MAX_RECORD_BYTES {
            let detail = format_args!("one record is over {MAX_RECORD_BYTES} bytes");
            return Err(FormatError::over(Limit::TextBytes, detail));
        }
        self.kind = kind;
        self.body.clear();
        if self.part.by_ref().take(length as u64).read_to_end(&mut self.body).map_err(refused)? < length {
            return Err(damaged("a part ends within a record"));
        }
        self.read += 4 + length as u64;
        Ok(Some(kind))
    }

    fn byte(&mut self) -> Result<Option<u8>, FormatError> {
        let mut byte = [0];
        Ok((self.part.read(&mut byte).map_err(refused)? == 1).then_some(byte[0]))
    }

    fn needed_byte(&mut self) -> Result<u8, FormatError> {
        self.byte()?.ok_or_else(|| damaged("a part ends within a record"))
    }

    /// The two bytes at a place in the body, as a number; 0 behind its end.
    fn word(&self, at: usize) -> u16 {
        self.body.get(at..at + 2).map_or(0, |word| u16::from_le_bytes([word[0], word[1]]))
    }

    fn double_word(&self, at: usize) -> u32 {
        u32::from(self.word(at)) | u32::from(self.word(at + 2)) << 16
    }

    fn byte_at(&self, at: usize) -> u8 {
        self.body.get(at).copied().unwrap_or_default()
    }

    /// The text at a place in the body, and where it ends. A text that is missing has the greatest length.
    fn text(&self, at: usize) -> (String, usize) {
        let characters = self.double_word(at) as usize;
        let rest = self.body.get(at + 4..).unwrap_or_default();
        let bytes = if characters == u32::MAX as usize { 0 } else { characters.saturating_mul(2).min(rest.len()) };
        (utf16(&rest[..bytes]), at + 4 + bytes)
    }

    /// At most so many bytes from a place in the body on.
    fn bytes(&self, at: usize, most: usize) -> &[u8] {
        let rest = self.body.get(at..).unwrap_or_default();
        &rest[..rest.len().min(most)]
    }
}

/// Reads what the main part declares, and what formulas refer to.
pub(super) fn declared<S: Read>(part: S, limits: &Limits) -> Result<(Declared, Surroundings), FormatError> {
    let mut records = Records::new(part);
    let mut declared = Declared::default();
    let mut around = Surroundings {
        layout: Layout::Biff12,
        names: Vec::new(),
        sheets: Vec::new(),
        references: Vec::new(),
        encoding: UTF_16LE,
    };
    let mut is_own_book = Vec::new();
    let mut names: Vec<(Vec<u8>, u32)> = Vec::new();
    let (mut is_first, mut bytes) = (true, 0);
    while let Some(kind) = records.next()? {
        const BEGIN_BOOK: u16 = 131;
        if std::mem::take(&mut is_first) && kind != BEGIN_BOOK {
            return Err(damaged("its main part is not a workbook"));
        }
        match kind {
            BOOK_PROPERTIES if records.double_word(0) & 1 != 0 => declared.date_epoch = DateEpoch::From1904,
            BUNDLED_SHEET => {
                let (id, after) = records.text(8);
                let (name, _) = records.text(after);
                let state = match records.double_word(0) {
                    0 => SheetState::Visible,
                    1 => SheetState::Hidden,
                    _ => SheetState::VeryHidden,
                };
                around.sheets.push(name.clone());
                declared.sheets.push((Sheet { index: 0, name, kind: SheetKind::Worksheet, state }, id));
                check_sheets(declared.sheets.len(), limits)?;
            }
            NAME => {
                let (name, after) = records.text(9);
                // An empty name takes memory too.
                bytes += name.len() + size_of::<String>();
                check_text(bytes, limits)?;
                around.names.push(name);
                if names.len() < Workbook::MAX_NAMES {
                    let length = records.double_word(after) as usize;
                    names.push((records.bytes(after + 4, length).to_vec(), records.double_word(5)));
                }
            }
            OWN_BOOK | SAME_SHEET | OTHER_BOOK | ADD_IN => {
                is_own_book.push(matches!(kind, OWN_BOOK | SAME_SHEET));
                check_sheets(is_own_book.len(), limits)?;
            }
            SHEET_REFERENCES => {
                let references = records.bytes(4, usize::MAX).chunks_exact(12).map(|reference| {
                    let [book, first, last] = [0, 4, 8].map(|at| {
                        let [one, two, three, four] = [0, 1, 2, 3].map(|byte| reference[at + byte]);
                        u32::from_le_bytes([one, two, three, four])
                    });
                    let is_own = is_own_book.get(book as usize).copied().unwrap_or_default();
                    is_own.then_some((first, last))
                });
                around.references = references.collect();
            }
            _ => {}
        }
    }
    let cell = CellRef::new(1, 1);
    for ((tokens, sheet), name) in names.iter().zip(&around.names) {
        const NO_SHEET: u32 = u32::MAX;
        let refers_to = cell.and_then(|cell| around.text(tokens, cell)).unwrap_or_default();
        let sheet = (*sheet != NO_SHEET).then_some(*sheet);
        declared.names.push(DefinedName { name: name.clone(), refers_to, sheet });
    }
    Ok((declared, around))
}

/// Reads the number formats of the styles of cells.
pub(super) fn styles<S: Read>(part: S) -> Result<Styles, FormatError> {
    let mut records = Records::new(part);
    let (mut ids, mut codes) = (Vec::new(), HashMap::new());
    let mut in_cell_formats = false;
    while let Some(kind) = records.next()? {
        match kind {
            FORMAT => {
                codes.entry(records.word(0).into()).or_insert_with(|| records.text(2).0);
            }
            BEGIN_CELL_FORMATS => in_cell_formats = true,
            END_CELL_FORMATS => in_cell_formats = false,
            EXTENDED_FORMAT if in_cell_formats => ids.push(records.word(2).into()),
            _ => {}
        }
        check_styles(ids.len())?;
    }
    Ok(Styles::of(&ids, &codes))
}

/// The numbers of the fonts above the line.
pub(super) fn raised_fonts<S: Read>(part: S) -> Result<HashSet<u16>, FormatError> {
    let mut records = Records::new(part);
    let (mut raised, mut number) = (HashSet::new(), 0u16);
    while let Some(kind) = records.next()? {
        if kind == FONT {
            if records.word(6) == 1 {
                raised.insert(number);
            }
            number = number.saturating_add(1);
        }
    }
    Ok(raised)
}

/// Passes each shared text and its index to `see`, until `see` says that it has enough. Numbers in these raised fonts are marked.
pub(super) fn strings<S: Read>(part: S, raised: &HashSet<u16>, see: &mut See<'_>) -> Result<(), FormatError> {
    let mut records = Records::new(part);
    let mut index = 0u32;
    while let Some(kind) = records.next()? {
        if kind != SHARED_TEXT {
            continue;
        }
        // Its marks come before the text, its runs after it.
        let (text, after) = records.text(1);
        let count = if records.byte_at(0) & 1 != 0 { records.double_word(after) as usize } else { 0 };
        let runs = records.bytes(after + 4, count.saturating_mul(4)).chunks_exact(4).map(|run| {
            let [at, font] = [[run[0], run[1]], [run[2], run[3]]].map(u16::from_le_bytes);
            (usize::from(at), raised.contains(&font))
        });
        let runs: Vec<(usize, bool)> = if raised.is_empty() { Vec::new() } else { runs.collect() };
        if !see(index, &mark_raised(text, &runs))? {
            break;
        }
        index = index.saturating_add(1);
    }
    Ok(())
}

/// Reads the notes of a sheet.
pub(super) fn notes<S: Read>(part: S, found: &mut Found, limits: &Limits) -> Result<(), FormatError> {
    let mut records = Records::new(part);
    let (mut authors, mut bytes) = (Vec::new(), 0);
    let mut open = None;
    while let Some(kind) = records.next()? {
        match kind {
            AUTHOR => {
                let author = records.text(0).0;
                // An empty text takes memory too.
                bytes += author.len() + size_of::<String>();
                check_text(bytes, limits)?;
                authors.push(author);
            }
            BEGIN_COMMENT => {
                let author = authors.get(records.double_word(0) as usize).cloned().unwrap_or_default();
                open = Some((place(records.double_word(4), records.double_word(12))?, author));
            }
            COMMENT_TEXT => {
                if let Some((cell, author)) = open.take() {
                    found.add_note(Comment { cell, author, text: records.text(1).0 }, limits)?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// Reads a sheet's part once from its beginning.
pub(super) struct BinarySheet<'a, S> {
    records: Records<S>,
    around: &'a Surroundings,
    limits: Limits,
    row: u32,
    column: u32,
    raw: RawCell,
    masters: HashMap<(u32, u32), Master>,
    masters_bytes: usize,
    filled: u64,
    has_begun: bool,
    is_behind_cells: bool,
}

impl<'a, S: Read> BinarySheet<'a, S> {
    pub(super) fn new(part: S, around: &'a Surroundings, limits: &Limits) -> Self {
        Self {
            records: Records::new(part),
            around,
            limits: limits.clone(),
            row: 0,
            column: 0,
            raw: RawCell::default(),
            masters: HashMap::new(),
            masters_bytes: 0,
            filled: 0,
            has_begun: false,
            is_behind_cells: false,
        }
    }

    /// The kind of the next record of the sheet.
    fn next_record(&mut self) -> Result<Option<u16>, FormatError> {
        let kind = self.records.next()?;
        if !std::mem::replace(&mut self.has_begun, true) && kind != Some(BEGIN_SHEET) {
            return Err(damaged("the part of a sheet is not a worksheet"));
        }
        self.is_behind_cells |= kind == Some(END_CELLS);
        Ok(kind)
    }

    /// Reads a cell; `None` if it only has a style.
    fn cell(&mut self, kind: u16) -> Result<Option<CellRef>, FormatError> {
        /// Kinds from here on are those of cells that say no column, because they stand beside the last one.
        const FIRST_SHORT: u16 = 12;
        const SHORTER: u16 = 11;
        let is_short = (FIRST_SHORT..=LAST_CELL).contains(&kind);
        let (kind, style) = if is_short { (kind - SHORTER, 0) } else { (kind, 4) };
        let column = if is_short { self.column } else { self.records.double_word(0) };
        // The next column, counted from 0, is this one, counted from 1.
        self.column = column.saturating_add(1);
        self.raw.clear();
        self.raw.style = self.records.double_word(style) & 0xFF_FFFF;
        self.raw.has_value = true;
        let at = style + 4;
        let value = self.records.byte_at(at);
        let mut formula = None;
        match kind {
            2 => self.number(short_number(self.records.double_word(at))),
            3 => self.error(value),
            4 => self.boolean(value),
            5 => self.number(self.double(at)),
            6 => {
                self.text(at);
            }
            7 => {
                self.raw.stored = Stored::Shared;
                self.raw.text = self.records.double_word(at).to_string();
            }
            8 => formula = Some(self.text(at)),
            9 => {
                self.number(self.double(at));
                formula = Some(at + 8);
            }
            10 => {
                self.boolean(value);
                formula = Some(at + 1);
            }
            11 => {
                self.error(value);
                formula = Some(at + 1);
            }
            // Its marks come before the text.
            RICH_TEXT_CELL => {
                self.text(at + 1);
            }
            _ => return Ok(None),
        };
        // Marks come before the formula.
        let at = place(self.row.wrapping_sub(1), column)?;
        if let Some(formula) = formula {
            self.formula(formula + 2)?;
        }
        self.filled += 1;
        check_cells(self.filled, &self.limits)?;
        Ok(Some(at))
    }

    fn number(&mut self, number: f64) {
        self.raw.stored = Stored::Number;
        self.raw.text = number.to_string();
    }

    fn boolean(&mut self, value: u8) {
        (self.raw.stored, self.raw.text) = (Stored::Boolean, u8::from(value != 0).to_string());
    }

    fn error(&mut self, code: u8) {
        (self.raw.stored, self.raw.text) = (Stored::Error, error_text(code).to_owned());
    }

    /// Takes the text at a place; returns where it ends.
    fn text(&mut self, at: usize) -> usize {
        let (text, after) = self.records.text(at);
        self.raw.has_value = !text.is_empty();
        (self.raw.stored, self.raw.text) = (Stored::Text, text);
        after
    }

    fn double(&self, at: usize) -> f64 {
        let bytes = self.records.body.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
        bytes.map_or(0.0, f64::from_le_bytes)
    }

    /// Reads the formula at a place, and what the record after it has several cells share.
    fn formula(&mut self, at: usize) -> Result<(), FormatError> {
        let length = self.records.double_word(at) as usize;
        let mut tokens = self.records.bytes(at + 4, length).to_vec();
        // The row of the cell whose formula is shared is in its token, and the column after all tokens.
        if let Some(&(SHARES | OF_TABLE)) = tokens.first() {
            tokens.extend_from_slice(self.records.bytes(at + 4 + length + 4, 4));
        }
        let shared = shared_by(&tokens);
        match self.next_record()? {
            Some(kind @ (ARRAY | SHARED_FORMULA | TABLE)) => {
                if let Some(cell) = shared {
                    self.share(kind, cell)?;
                }
            }
            Some(_) => self.records.is_unread = true,
            None => {}
        }
        self.raw.formula = Some(RawFormula::Tokens(tokens));
        Ok(())
    }

    fn share(&mut self, kind: u16, cell: (u32, u32)) -> Result<(), FormatError> {
        let records = &self.records;
        // The range of the cells comes first.
        let tokens = |at: usize| Master::Tokens(records.bytes(at + 4, records.double_word(at) as usize).to_vec());
        let master = match kind {
            SHARED_FORMULA => tokens(16),
            ARRAY => tokens(17),
            _ => {
                let marks = records.byte_at(32);
                let input = |at: usize| {
                    let cell = place(records.double_word(at), records.double_word(at + 4));
                    cell.map_or_else(|_| String::new(), |cell| cell.to_string())
                };
                let (is_row, is_both) = (marks & 1 != 0, marks & 2 != 0);
                let row = if is_row || is_both { input(16) } else { String::new() };
                let column = match (is_row, is_both) {
                    (_, true) => input(24),
                    (false, false) => input(16),
                    (true, false) => String::new(),
                };
                Master::Table(format!("{row},{column}"))
            }
        };
        self.masters_bytes += 64 + records.body.len();
        check_text(self.masters_bytes, &self.limits)?;
        self.masters.insert(cell, master);
        Ok(())
    }

    fn hidden_columns(&self) -> Option<(u32, u32)> {
        let (first, last) = (self.records.double_word(0), self.records.double_word(4));
        let is_hidden = self.records.word(16) & 1 != 0 && first <= last && first < MAX_COLUMN;
        is_hidden.then(|| (first + 1, last.min(MAX_COLUMN - 1) + 1))
    }

    fn merged(&self) -> Option<Range> {
        let [first_row, last_row, first_column, last_column] = [0, 4, 8, 12].map(|at| self.records.double_word(at));
        Some(Range::new(place(first_row, first_column).ok()?, place(last_row, last_column).ok()?))
    }
}

impl<S: Read> Scan for BinarySheet<'_, S> {
    fn next(&mut self) -> Result<Option<Item<'_>>, FormatError> {
        loop {
            let Some(kind) = self.next_record()? else { return Ok(None) };
            match kind {
                ROW if !self.is_behind_cells => {
                    let (row, hidden) =
                        (place(self.records.double_word(0), 0)?.row(), self.records.byte_at(11) & 0x10 != 0);
                    (self.row, self.column) = (row, 0);
                    return Ok(Some(Item::Row { row, hidden }));
                }
                FIRST_CELL..=LAST_CELL | RICH_TEXT_CELL if !self.is_behind_cells => {
                    if let Some(at) = self.cell(kind)? {
                        return Ok(Some(Item::Cell(at, &self.raw)));
                    }
                }
                COLUMNS => {
                    if let Some((first, last)) = self.hidden_columns() {
                        return Ok(Some(Item::HiddenColumns { first, last }));
                    }
                }
                MERGED => {
                    if let Some(range) = self.merged() {
                        return Ok(Some(Item::Merged(range)));
                    }
                }
                _ => {}
            }
        }
    }

    fn formula_text(&self, formula: &RawFormula, at: CellRef) -> String {
        let RawFormula::Tokens(tokens) = formula else { return "=".to_owned() };
        let master = shared_by(tokens).and_then(|cell| self.masters.get(&cell));
        self.around.formula(tokens, master, at)
    }

    fn behind_cells<'b>(mut self: Box<Self>, bytes: u64) -> Result<Option<Box<dyn Scan + 'b>>, FormatError>
    where
        Self: 'b,
    {
        let most = self.records.read.saturating_add(bytes);
        while !self.is_behind_cells {
            if self.next_record()?.is_none() || self.records.read > most {
                return Ok(None);
            }
        }
        Ok(Some(self))
    }
}

/// The cell whose formula the tokens of another one share.
fn shared_by(tokens: &[u8]) -> Option<(u32, u32)> {
    let [SHARES | OF_TABLE, cell @ ..] = tokens else { return None };
    let number = |at: usize| cell.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes);
    Some((number(0)?, number(4)?))
}

/// The cell at a row and a column, which are counted from 0.
fn place(row: u32, column: u32) -> Result<CellRef, FormatError> {
    CellRef::new(row.saturating_add(1), column.saturating_add(1))
        .ok_or_else(|| damaged(format_args!("a sheet has cells beyond row {MAX_ROW} or column {MAX_COLUMN}")))
}

/// A limit that was met while inflating, or a member that does not inflate.
fn refused(error: io::Error) -> FormatError {
    match FormatError::from(error) {
        FormatError::Io { reason } => damaged(reason),
        ours => ours,
    }
}

fn damaged(reason: impl ToString) -> FormatError {
    FormatError::corrupt(Format::Xlsb, reason)
}
