//! Reads a worksheet's part once from its beginning: rows, cells, and what is around them.

use super::{
    book::Scan,
    formula::translated,
    markup::{Mark, Markup, damaged, is_true},
    range::{CellRef, MAX_COLUMN, MAX_ROW, Range, column_number},
    shared_strings::{rich_text, unescape},
};
use crate::{FormatError, Limit, Limits, extraction::check_text};
use std::{collections::HashMap, io::Read};

/// How a cell's text is to be read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Stored {
    #[default]
    Number,
    /// An index into the shared strings.
    Shared,
    Text,
    Boolean,
    Error,
    /// ISO 8601.
    Date,
    /// A time of day or a span, in milliseconds. Its number format says which, or else its size.
    Time,
}

/// What a cell shows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) enum Shown {
    /// Its value in its number format.
    #[default]
    ByFormat,
    /// Its text as it is stored.
    AsStored,
    /// A text that is stored beside the value.
    Text(String),
}

/// A cell as it is stored, before styles and shared strings say what it means.
#[derive(Debug, Clone, Default)]
pub(super) struct RawCell {
    pub style: u32,
    pub stored: Stored,
    pub text: String,
    /// Whether there is a value. An inline text is one even if it is empty; an empty `v` is none.
    pub has_value: bool,
    pub formula: Option<RawFormula>,
    pub shown: Shown,
}

/// A formula as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RawFormula {
    /// Without `=`.
    Own(String),
    /// The formula of the shared group.
    Shared(u32),
    /// A table of what-if values, and its input cells.
    DataTable(String),
    /// As tokens of a binary workbook.
    Tokens(Vec<u8>),
}

impl RawCell {
    /// Whether it has more than a style.
    pub(super) fn is_filled(&self) -> bool {
        self.has_value || self.formula.is_some()
    }

    pub(super) fn clear(&mut self) {
        self.style = 0;
        self.stored = Stored::Number;
        self.text.clear();
        self.has_value = false;
        self.formula = None;
    }
}

/// What comes next in a worksheet.
pub(super) enum Item<'a> {
    /// A row begins; its cells follow.
    Row {
        row: u32,
        hidden: bool,
    },
    Cell(CellRef, &'a RawCell),
    HiddenColumns {
        first: u32,
        last: u32,
    },
    Merged(Range),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Around,
    /// Within `sheetData`.
    Rows,
    Cells,
}

pub(super) struct Worksheet<R: Read> {
    xml: Markup<R>,
    limits: Limits,
    state: State,
    row: u32,
    column: u32,
    filled: u64,
    raw: RawCell,
    masters: HashMap<u32, (CellRef, String)>,
    masters_bytes: usize,
    started: bool,
}

impl<R: Read> Worksheet<R> {
    pub(super) fn new(part: R, limits: &Limits) -> Self {
        Self {
            xml: Markup::new(part, limits),
            limits: limits.clone(),
            state: State::Around,
            row: 0,
            column: 0,
            filled: 0,
            raw: RawCell::default(),
            masters: HashMap::new(),
            masters_bytes: 0,
            started: false,
        }
    }

    fn row(&mut self, empty: bool) -> Result<Item<'_>, FormatError> {
        let (mut row, mut hidden) = (None, false);
        for (name, value) in self.xml.attributes() {
            match name {
                "r" => row = value.trim().parse().ok().filter(|row| (1..=MAX_ROW).contains(row)),
                "hidden" => hidden = is_true(&value),
                _ => {}
            }
        }
        self.row = row.unwrap_or(self.row + 1);
        self.column = 0;
        if self.row > MAX_ROW {
            return Err(damaged(format_args!("a sheet has rows beyond {MAX_ROW}")));
        }
        if !empty {
            self.state = State::Cells;
        }
        Ok(Item::Row { row: self.row, hidden })
    }

    /// Reads the cell that began; returns its place if it is filled.
    fn cell(&mut self, empty: bool) -> Result<Option<CellRef>, FormatError> {
        let at = tag(&self.xml, &mut self.raw);
        let at = match at.or_else(|| CellRef::new(self.row, self.column + 1)) {
            Some(at) => at,
            None => return Err(damaged(format_args!("a row has cells beyond column {MAX_COLUMN}"))),
        };
        self.column = at.column();
        if empty {
            return Ok(None);
        }
        loop {
            match self.xml.next()? {
                Some(Mark::Start { empty }) => match self.xml.name() {
                    "v" if !empty => {
                        self.raw.text.clear();
                        self.xml.text(&mut self.raw.text)?;
                        self.raw.has_value = !self.raw.text.is_empty();
                        if self.raw.stored == Stored::Text {
                            unescape(&mut self.raw.text, 0);
                        }
                    }
                    "is" => {
                        self.raw.text.clear();
                        self.raw.stored = Stored::Text;
                        self.raw.has_value = true;
                        if !empty {
                            rich_text(&mut self.xml, &mut self.raw.text)?;
                        }
                    }
                    "f" => self.formula(at, empty)?,
                    _ if !empty => self.xml.skip()?,
                    _ => {}
                },
                Some(Mark::End) | None => break,
                Some(_) => {}
            }
        }
        if !self.raw.is_filled() {
            return Ok(None);
        }
        self.filled += 1;
        check_cells(self.filled, &self.limits)?;
        Ok(Some(at))
    }

    fn formula(&mut self, at: CellRef, empty: bool) -> Result<(), FormatError> {
        let tag = FormulaTag::of(&self.xml);
        let mut text = String::new();
        if !empty {
            self.xml.text(&mut text)?;
            unescape(&mut text, 0);
        }
        self.raw.formula = match (tag.kind, tag.group) {
            (FormulaKind::Shared, Some(group)) => {
                if !text.is_empty() && !self.masters.contains_key(&group) {
                    self.masters_bytes += text.len();
                    check_text(self.masters_bytes, &self.limits)?;
                    self.masters.insert(group, (at, text));
                    Some(RawFormula::Shared(group))
                } else if text.is_empty() {
                    Some(RawFormula::Shared(group))
                } else {
                    Some(RawFormula::Own(text))
                }
            }
            (FormulaKind::DataTable, _) => Some(RawFormula::DataTable(tag.inputs)),
            _ if text.is_empty() => None,
            _ => Some(RawFormula::Own(text)),
        };
        Ok(())
    }
}

impl<R: Read> Scan for Worksheet<R> {
    fn next(&mut self) -> Result<Option<Item<'_>>, FormatError> {
        loop {
            let Some(mark) = self.xml.next()? else { return Ok(None) };
            match (self.state, mark) {
                (State::Around, Mark::Start { empty }) => match self.xml.name() {
                    "worksheet" | "macrosheet" | "chartsheet" | "dialogsheet" if !self.started => self.started = true,
                    _ if !self.started => return Err(damaged("the part of a sheet is not a worksheet")),
                    "sheetData" if !empty => self.state = State::Rows,
                    "col" => {
                        if let Some((first, last)) = hidden_columns(&self.xml) {
                            return Ok(Some(Item::HiddenColumns { first, last }));
                        }
                    }
                    "mergeCell" => {
                        if let Some(range) = self.xml.attribute("ref").and_then(|range| range.parse().ok()) {
                            return Ok(Some(Item::Merged(range)));
                        }
                    }
                    _ => {}
                },
                (State::Rows, Mark::Start { empty }) => {
                    if self.xml.name() == "row" {
                        return self.row(empty).map(Some);
                    } else if !empty {
                        self.xml.skip()?;
                    }
                }
                (State::Cells, Mark::Start { empty }) => {
                    if self.xml.name() == "c" {
                        if let Some(at) = self.cell(empty)? {
                            return Ok(Some(Item::Cell(at, &self.raw)));
                        }
                    } else if !empty {
                        self.xml.skip()?;
                    }
                }
                (State::Rows, Mark::End) => self.state = State::Around,
                (State::Cells, Mark::End) => self.state = State::Rows,
                (State::Around, _) | (_, Mark::Text | Mark::Other) => {}
            }
        }
    }

    fn formula_text(&self, formula: &RawFormula, at: CellRef) -> String {
        match formula {
            RawFormula::Own(text) => format!("={text}"),
            RawFormula::DataTable(inputs) => format!("=TABLE({inputs})"),
            RawFormula::Shared(group) => match self.masters.get(group) {
                Some((master, text)) => format!("={}", translated(text, *master, at)),
                // The formula to share is missing.
                None => "=".to_owned(),
            },
            RawFormula::Tokens(_) => "=".to_owned(),
        }
    }

    fn behind_cells<'a>(self: Box<Self>, bytes: u64) -> Result<Option<Box<dyn Scan + 'a>>, FormatError>
    where
        Self: 'a,
    {
        if self.state == State::Around {
            return Ok(Some(self));
        }
        let Some(xml) = self.xml.behind(b"sheetData>", bytes)? else { return Ok(None) };
        Ok(Some(Box::new(Self { xml, state: State::Around, ..*self })))
    }
}

pub(super) fn check_cells(filled: u64, limits: &Limits) -> Result<(), FormatError> {
    if filled > limits.cells {
        return Err(FormatError::over(Limit::Cells, format_args!("a sheet has over {} cells", limits.cells)));
    }
    Ok(())
}

/// The attributes of an `f`.
struct FormulaTag {
    kind: FormulaKind,
    group: Option<u32>,
    inputs: String,
}

#[derive(PartialEq)]
enum FormulaKind {
    Plain,
    Shared,
    DataTable,
}

impl FormulaTag {
    fn of<S: Read>(xml: &Markup<S>) -> Self {
        let mut found = Self { kind: FormulaKind::Plain, group: None, inputs: String::new() };
        let mut by_row = false;
        let (mut first, mut second) = (String::new(), String::new());
        for (name, value) in xml.attributes() {
            match name {
                "t" if value == "shared" => found.kind = FormulaKind::Shared,
                "t" if value == "dataTable" => found.kind = FormulaKind::DataTable,
                "si" => found.group = value.trim().parse().ok(),
                "dtr" => by_row = is_true(&value),
                "r1" => first = value.into_owned(),
                "r2" => second = value.into_owned(),
                _ => {}
            }
        }
        if found.kind == FormulaKind::DataTable {
            // The input of a row comes first, that of a column second.
            let (row, column) = if by_row || !second.is_empty() { (first, second) } else { (second, first) };
            found.inputs = format!("{row},{column}");
        }
        found
    }
}

/// Fills in what a cell's tag says; returns the place, if the tag names one.
fn tag<S: Read>(xml: &Markup<S>, raw: &mut RawCell) -> Option<CellRef> {
    raw.clear();
    let mut at = None;
    for (name, value) in xml.attributes() {
        match name {
            "r" => at = place(&value),
            "s" => raw.style = value.trim().parse().unwrap_or(0),
            "t" => {
                raw.stored = match value.as_ref() {
                    "s" => Stored::Shared,
                    "str" | "inlineStr" => Stored::Text,
                    "b" => Stored::Boolean,
                    "e" => Stored::Error,
                    "d" => Stored::Date,
                    _ => Stored::Number,
                };
            }
            _ => {}
        }
    }
    at
}

/// Parses `B12`, without the other forms that people write.
fn place(text: &str) -> Option<CellRef> {
    let digits = text.find(|character: char| character.is_ascii_digit())?;
    let (letters, digits) = text.split_at(digits);
    CellRef::new(digits.parse().ok()?, column_number(letters)?)
}

fn hidden_columns<S: Read>(xml: &Markup<S>) -> Option<(u32, u32)> {
    if !xml.attribute("hidden").is_some_and(|value| is_true(&value)) {
        return None;
    }
    let column = |name: &str| {
        let column: u32 = xml.attribute(name)?.trim().parse().ok()?;
        (1..=MAX_COLUMN).contains(&column).then_some(column)
    };
    let (first, last) = (column("min")?, column("max")?);
    (first <= last).then_some((first, last))
}
