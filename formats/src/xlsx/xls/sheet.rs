//! Reads the part of a sheet once from its beginning: rows, cells, and what is around them.

use super::{
    super::{
        book::Scan,
        range::{CellRef, MAX_COLUMN, MAX_ROW, Range},
        tokens::{Layout, Master, Surroundings, error_text, short_number},
        worksheet::{Item, RawCell, RawFormula, Stored, check_cells},
    },
    damaged,
    records::Records,
};
use crate::{FormatError, Limits, extraction::check_text};
use std::{
    collections::{BTreeSet, HashMap},
    io::{BufRead, Seek},
};

const ROW: u16 = 0x0208;
const COLUMNS: u16 = 0x007D;
const NUMBER: u16 = 0x0203;
const SHORT_NUMBER: u16 = 0x027E;
const SHORT_NUMBERS: u16 = 0x00BD;
const SHARED_TEXT: u16 = 0x00FD;
const TEXT: u16 = 0x0204;
const RICH_TEXT: u16 = 0x00D6;
const BOOLEAN_OR_ERROR: u16 = 0x0205;
const FORMULA: u16 = 0x0006;
const SHARED_FORMULA: u16 = 0x04BC;
const ARRAY: u16 = 0x0221;
const TABLE: u16 = 0x0236;
const TEXT_OF_FORMULA: u16 = 0x0207;
const MERGED: u16 = 0x00E5;

/// The token of a cell that shares the formula of another, and that of one in a table of what-if values.
const SHARES: u8 = 0x01;
const OF_TABLE: u8 = 0x02;

pub(super) struct LegacySheet<'a, S> {
    records: Records<S>,
    around: &'a Surroundings,
    limits: Limits,
    /// Hidden rows that were not given yet: they are declared before the cells of several rows.
    hidden: BTreeSet<u32>,
    /// The row that was given last.
    row: u32,
    raw: RawCell,
    /// The cell in `raw`, if its row was given first.
    ready: Option<CellRef>,
    /// The next numbers of a record with many: their row, the next column, and where it stands.
    numbers: Option<(u16, u16, usize)>,
    /// Where the next merged range of a record stands.
    merged: Option<usize>,
    masters: HashMap<(u16, u16), Master>,
    masters_bytes: usize,
    filled: u64,
    has_ended: bool,
}

impl<'a, S: BufRead + Seek> LegacySheet<'a, S> {
    pub(super) fn new(records: Records<S>, around: &'a Surroundings, limits: &Limits) -> Self {
        Self {
            records,
            around,
            limits: limits.clone(),
            hidden: BTreeSet::new(),
            row: 0,
            raw: RawCell::default(),
            ready: None,
            numbers: None,
            merged: None,
            masters: HashMap::new(),
            masters_bytes: 0,
            filled: 0,
            has_ended: false,
        }
    }

    /// Begins a cell at the place that the record begins with.
    fn begin(&mut self) -> Result<CellRef, FormatError> {
        self.raw.clear();
        self.raw.style = self.records.word(4).into();
        self.raw.has_value = true;
        place(self.records.word(0), self.records.word(2))
    }

    /// The cell of the record that was read; `None` if it has none, or only a style.
    fn cell(&mut self, kind: u16) -> Result<Option<CellRef>, FormatError> {
        let at = match kind {
            NUMBER | SHORT_NUMBER | SHARED_TEXT | TEXT | RICH_TEXT | BOOLEAN_OR_ERROR | FORMULA => self.begin()?,
            _ => return Ok(None),
        };
        match kind {
            NUMBER => self.number(double(self.records.body(), 6)),
            SHORT_NUMBER => self.number(short_number(self.records.double_word(6))),
            SHARED_TEXT => {
                self.raw.stored = Stored::Shared;
                self.raw.text = self.records.double_word(6).to_string();
            }
            BOOLEAN_OR_ERROR => {
                let (value, is_error) = (self.records.word(6).to_le_bytes()[0], self.records.word(6).to_le_bytes()[1]);
                self.boolean_or_error(value, is_error != 0);
            }
            FORMULA => self.formula()?,
            _ => {
                let length = self.records.word(6).into();
                self.records.go_to(8);
                self.raw.stored = Stored::Text;
                self.raw.text = self.text(length)?;
            }
        }
        Ok(self.raw.is_filled().then_some(at))
    }

    fn number(&mut self, number: f64) {
        self.raw.stored = Stored::Number;
        self.raw.text = number.to_string();
    }

    fn boolean_or_error(&mut self, value: u8, is_error: bool) {
        (self.raw.stored, self.raw.text) = if is_error {
            (Stored::Error, error_text(value).to_owned())
        } else {
            (Stored::Boolean, u8::from(value != 0).to_string())
        };
    }

    fn text(&mut self, length: usize) -> Result<String, FormatError> {
        match self.around.layout {
            Layout::Biff5 => self.records.encoded(length, self.around.encoding),
            _ => self.records.unicode(length),
        }
    }

    /// Reads a formula with its result. What it shares, and a text that it results in, come in records of their own.
    fn formula(&mut self) -> Result<(), FormatError> {
        /// A result that is no number ends with this.
        const NO_NUMBER: u16 = u16::MAX;
        let length = self.records.word(20).into();
        let tokens = self.records.body().get(22..).map(|tokens| &tokens[..tokens.len().min(length)]);
        let tokens = tokens.unwrap_or_default().to_vec();
        let mut is_text = false;
        if self.records.word(12) == NO_NUMBER {
            let (kind, value) = (self.records.word(6) as u8, self.records.word(8) as u8);
            match kind {
                1 | 2 => self.boolean_or_error(value, kind == 2),
                _ => {
                    self.raw.has_value = false;
                    is_text = kind == 0;
                }
            }
        } else {
            self.number(double(self.records.body(), 6));
        }
        let shared = shared_by(&tokens);
        let mut next = self.records.next_of_part()?;
        if let (Some(kind @ (SHARED_FORMULA | ARRAY | TABLE)), Some(cell)) = (next, shared) {
            self.share(kind, cell)?;
            next = self.records.next_of_part()?;
        }
        match next {
            Some(TEXT_OF_FORMULA) if is_text => {
                let length = self.records.word(0).into();
                self.records.go_to(2);
                self.raw.stored = Stored::Text;
                self.raw.text = self.text(length)?;
                self.raw.has_value = !self.raw.text.is_empty();
            }
            Some(_) => self.records.unread(),
            None => self.has_ended = true,
        }
        self.raw.formula = Some(RawFormula::Tokens(tokens));
        Ok(())
    }

    /// Keeps what the present record has several cells share, by the cell that their tokens name.
    fn share(&mut self, kind: u16, cell: (u16, u16)) -> Result<(), FormatError> {
        let records = &self.records;
        let tokens = |length: usize, from: usize| {
            let tokens = records.body().get(from..).unwrap_or_default();
            Master::Tokens(tokens[..tokens.len().min(records.word(length).into())].to_vec())
        };
        let master = match kind {
            SHARED_FORMULA => tokens(8, 10),
            ARRAY => tokens(12, 14),
            _ => {
                let marks = records.word(6);
                let input = |at: usize| {
                    place(records.word(at), records.word(at + 2))
                        .map_or_else(|_| String::new(), |cell| cell.to_string())
                };
                let (is_row, is_both) = (marks & 4 != 0, marks & 8 != 0);
                let row = if is_row || is_both { input(8) } else { String::new() };
                let column = match (is_row, is_both) {
                    (_, true) => input(12),
                    (false, false) => input(8),
                    (true, false) => String::new(),
                };
                Master::Table(format!("{row},{column}"))
            }
        };
        self.masters_bytes += 64 + records.body().len();
        check_text(self.masters_bytes, &self.limits)?;
        self.masters.insert(cell, master);
        Ok(())
    }

    /// The next of the numbers of a record with many.
    fn next_number(&mut self) -> Result<Option<CellRef>, FormatError> {
        let Some((row, column, at)) = self.numbers else { return Ok(None) };
        // The last two bytes are the last column.
        if at + 8 > self.records.body().len() {
            self.numbers = None;
            return Ok(None);
        }
        self.numbers = Some((row, column.saturating_add(1), at + 6));
        self.raw.clear();
        (self.raw.style, self.raw.has_value) = (self.records.word(at).into(), true);
        self.number(short_number(self.records.double_word(at + 2)));
        place(row, column).map(Some)
    }

    fn next_merged(&mut self) -> Option<Range> {
        let at = self.merged?;
        let Some([first_row, last_row, first_column, last_column]) =
            self.records.body().get(at..at + 8).map(|_| [0, 2, 4, 6].map(|word| self.records.word(at + word)))
        else {
            self.merged = None;
            return None;
        };
        self.merged = Some(at + 8);
        Some(Range::new(place(first_row, first_column).ok()?, place(last_row, last_column).ok()?))
    }

    fn hidden_columns(&self) -> Option<(u32, u32)> {
        let (first, last) = (u32::from(self.records.word(0)) + 1, u32::from(self.records.word(2)) + 1);
        let is_hidden = self.records.word(8) & 1 != 0 && first <= last && first <= MAX_COLUMN;
        is_hidden.then_some((first, last.min(MAX_COLUMN)))
    }
}

impl<S: BufRead + Seek> Scan for LegacySheet<'_, S> {
    fn next(&mut self) -> Result<Option<Item<'_>>, FormatError> {
        loop {
            if let Some(at) = self.ready.take() {
                return Ok(Some(Item::Cell(at, &self.raw)));
            }
            if let Some(range) = self.next_merged() {
                return Ok(Some(Item::Merged(range)));
            }
            let at = match self.next_number()? {
                Some(at) => Some(at),
                None if self.merged.is_some() => continue,
                None if self.has_ended => None,
                None => match self.records.next_of_part()? {
                    Some(ROW) => {
                        if self.records.word(12) & 0x20 != 0 {
                            self.hidden.insert(u32::from(self.records.word(0)) + 1);
                        }
                        continue;
                    }
                    Some(COLUMNS) => match self.hidden_columns() {
                        Some((first, last)) => return Ok(Some(Item::HiddenColumns { first, last })),
                        None => continue,
                    },
                    Some(MERGED) => {
                        self.merged = Some(2);
                        continue;
                    }
                    Some(SHORT_NUMBERS) => {
                        self.numbers = Some((self.records.word(0), self.records.word(2), 4));
                        continue;
                    }
                    Some(kind) => match self.cell(kind)? {
                        Some(at) => Some(at),
                        None => continue,
                    },
                    None => {
                        self.has_ended = true;
                        continue;
                    }
                },
            };
            let Some(at) = at else {
                // Hidden rows without cells.
                let row = self.hidden.pop_first();
                return Ok(row.map(|row| Item::Row { row, hidden: true }));
            };
            self.filled += 1;
            check_cells(self.filled, &self.limits)?;
            if at.row() == self.row {
                return Ok(Some(Item::Cell(at, &self.raw)));
            }
            (self.row, self.ready) = (at.row(), Some(at));
            return Ok(Some(Item::Row { row: at.row(), hidden: self.hidden.remove(&at.row()) }));
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
        (self.ready, self.numbers) = (None, None);
        if self.merged.is_some() || self.has_ended {
            return Ok(Some(self));
        }
        let most = self.records.place().saturating_add(bytes);
        loop {
            match self.records.next_of_part()? {
                Some(MERGED) => {
                    self.merged = Some(2);
                    return Ok(Some(self));
                }
                None => {
                    self.has_ended = true;
                    return Ok(Some(self));
                }
                Some(_) if self.records.place() > most => return Ok(None),
                Some(_) => {}
            }
        }
    }
}

/// The cell whose formula the tokens of another one share.
fn shared_by(tokens: &[u8]) -> Option<(u16, u16)> {
    match tokens {
        [SHARES | OF_TABLE, cell @ ..] => {
            let cell = cell.get(..4)?;
            Some((u16::from_le_bytes([cell[0], cell[1]]), u16::from_le_bytes([cell[2], cell[3]])))
        }
        _ => None,
    }
}

fn double(body: &[u8], at: usize) -> f64 {
    body.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0.0, f64::from_le_bytes)
}

/// The cell at a row and a column, which are counted from 0.
pub(super) fn place(row: u16, column: u16) -> Result<CellRef, FormatError> {
    CellRef::new(u32::from(row) + 1, u32::from(column) + 1)
        .ok_or_else(|| damaged(format_args!("a sheet has cells beyond row {MAX_ROW} or column {MAX_COLUMN}")))
}
