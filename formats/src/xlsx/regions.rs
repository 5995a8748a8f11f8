//! Finds the blocks of cells that stand together on a sheet, in one pass over its rows.
//!
//! A cell belongs to the block whose columns it continues or meets, if that block has cells in the row above. So a
//! blank row ends a block, and a blank column separates two of them. Of a block, only its first and last rows are
//! kept, and for each column how much of it is text.

use super::{
    moment::Moment,
    range::{CellRef, Range},
    value::{Interpreter, Seen},
    worksheet::{RawCell, RawFormula},
};
use std::{
    collections::{BTreeMap, VecDeque},
    mem,
};

/// A sheet with more blocks than this is a form or a drawing, and no set of tables.
pub(super) const MOST_REGIONS: usize = 256;
/// The first rows of a block that are kept; a header is looked for among them.
pub(super) const HEAD_ROWS: usize = 10;
/// The last rows of a block that are kept.
pub(super) const TAIL_ROWS: usize = 4;
/// All cells that are kept of the ends of blocks.
const KEPT_CELLS: usize = 200_000;
/// No name of a column has more characters.
pub(super) const NAME_CHARACTERS: usize = 200;

/// A filled cell, as far as its block is judged by it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Mark {
    pub column: u32,
    pub kind: Kind,
    /// Whether a formula adds up other cells.
    pub is_sum: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Kind {
    /// A text that is not blank, trimmed; empty if it is too long to name a column.
    Text(String),
    Number(f64),
    Moment(Moment),
    Other,
}

impl Mark {
    /// `None` for a blank text.
    fn of(at: CellRef, raw: &RawCell, interpreter: &Interpreter) -> Option<Self> {
        let kind = match interpreter.value(raw) {
            Some(Seen::Text(text)) => match text.trim() {
                "" => return None,
                text if text.chars().nth(NAME_CHARACTERS).is_some() => Kind::Text(String::new()),
                text => Kind::Text(text.to_owned()),
            },
            Some(Seen::Number(number)) => Kind::Number(number),
            Some(Seen::Date(moment)) => Kind::Moment(moment),
            Some(Seen::Duration(_) | Seen::Boolean(_) | Seen::Error(_)) | None => Kind::Other,
        };
        let is_sum = matches!(&raw.formula, Some(RawFormula::Own(text)) if adds_up(text));
        Some(Self { column: at.column(), kind, is_sum })
    }

    pub(super) fn text(&self) -> Option<&str> {
        match &self.kind {
            Kind::Text(text) => Some(text),
            _ => None,
        }
    }
}

fn adds_up(formula: &str) -> bool {
    ["SUM(", "SUBTOTAL(", "AGGREGATE("]
        .iter()
        .any(|name| formula.trim_start().get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name)))
}

/// How many cells of a column are filled, and how many of those have a text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Column {
    pub filled: u32,
    pub texts: u32,
}

impl Column {
    fn add(&mut self, mark: &Mark) {
        self.filled += 1;
        self.texts += u32::from(mark.text().is_some());
    }

    /// What is left without some marks that were counted.
    pub(super) fn without<'a>(mut self, marks: impl Iterator<Item = &'a Mark>) -> Self {
        for mark in marks {
            self.filled = self.filled.saturating_sub(1);
            self.texts = self.texts.saturating_sub(u32::from(mark.text().is_some()));
        }
        self
    }

    /// Whether it holds something, and mostly no text.
    pub(super) fn is_data(self) -> bool {
        self.filled > 0 && self.texts * 2 < self.filled
    }
}

pub(super) type Rows = BTreeMap<u32, Vec<Mark>>;

/// A block of cells.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Region {
    pub range: Range,
    /// From the first column of the range.
    pub columns: VecDeque<Column>,
    /// The first rows with a cell, by their numbers.
    pub head: Rows,
    /// The last rows behind those.
    pub tail: Rows,
}

impl Region {
    fn of_row(row: u32, marks: Vec<Mark>) -> Option<Self> {
        let cell = |mark: Option<&Mark>| CellRef::new(row, mark?.column);
        let range = Range::new(cell(marks.first())?, cell(marks.last())?);
        let mut columns = VecDeque::from(vec![Column::default(); range.width() as usize]);
        for mark in &marks {
            columns[(mark.column - range.first().column()) as usize].add(mark);
        }
        Some(Self { range, columns, head: Rows::from([(row, marks)]), tail: Rows::new() })
    }

    /// Joins two blocks, at the cost of the narrower one.
    pub(super) fn join(self, other: Self) -> Self {
        if other.columns.len() > self.columns.len() { other.take(self) } else { self.take(other) }
    }

    fn take(mut self, other: Self) -> Self {
        let range = self.range.hull(other.range);
        for _ in range.first().column()..self.range.first().column() {
            self.columns.push_front(Column::default());
        }
        self.columns.resize(range.width() as usize, Column::default());
        let from = (other.range.first().column() - range.first().column()) as usize;
        for (column, added) in self.columns.iter_mut().skip(from).zip(&other.columns) {
            column.filled += added.filled;
            column.texts += added.texts;
        }
        self.range = range;
        for (row, marks) in other.head.into_iter().chain(other.tail) {
            self.add_row(row, marks);
        }
        self
    }

    fn add_row(&mut self, row: u32, marks: Vec<Mark>) {
        let after_head =
            self.head.len() >= HEAD_ROWS && self.head.last_key_value().is_some_and(|(last, _)| row > *last);
        let rows = if after_head { &mut self.tail } else { &mut self.head };
        let of_row = rows.entry(row).or_default();
        let was_empty = of_row.is_empty();
        of_row.extend(marks);
        if !was_empty {
            of_row.sort_by_key(|mark| mark.column);
        }
        if self.head.len() > HEAD_ROWS
            && let Some((row, marks)) = self.head.pop_last()
        {
            self.tail.insert(row, marks);
        }
        while self.tail.len() > TAIL_ROWS {
            self.tail.pop_first();
        }
    }

    /// Counts of a column of the sheet.
    pub(super) fn column(&self, column: u32) -> Column {
        let at = column.checked_sub(self.range.first().column());
        at.and_then(|at| self.columns.get(at as usize)).copied().unwrap_or_default()
    }

    fn kept(rows: &Rows) -> usize {
        rows.values().map(Vec::len).sum()
    }
}

/// Collects blocks as rows come.
#[derive(Default)]
pub(super) struct Finder {
    /// The blocks with cells in the last row that had any, from left to right; a blank column separates each from the next.
    open: Vec<Region>,
    closed: Vec<Region>,
    row: u32,
    marks: Vec<Mark>,
    /// The cells that closed blocks keep.
    kept: usize,
    /// Why blocks are looked for no more.
    stopped: Option<String>,
}

impl Finder {
    pub(super) fn add(&mut self, at: CellRef, raw: &RawCell, interpreter: &Interpreter) {
        if self.stopped.is_some() {
            return;
        }
        if at.row() < self.row {
            self.stop(format!("row {} comes after row {}", at.row(), self.row));
            return;
        }
        if at.row() > self.row {
            self.end_row();
            self.row = at.row();
        }
        self.marks.extend(Mark::of(at, raw, interpreter));
    }

    fn stop(&mut self, reason: String) {
        *self = Self { stopped: Some(reason), ..Self::default() };
    }

    fn end_row(&mut self) {
        let mut marks = mem::take(&mut self.marks);
        if marks.is_empty() {
            return;
        }
        marks.sort_by_key(|mark| mark.column);
        marks.dedup_by_key(|mark| mark.column);
        let row = self.row;
        let mut before = Vec::new();
        for region in mem::take(&mut self.open) {
            if region.range.last().row() + 1 < row {
                self.close(region);
            } else {
                before.push(region);
            }
        }
        self.open = meet(before, runs(row, marks));
        if self.closed.len() + self.open.len() > MOST_REGIONS || self.kept > KEPT_CELLS {
            self.stop(format!("its cells stand in over {MOST_REGIONS} blocks, or in very wide ones"));
        }
    }

    fn close(&mut self, region: Region) {
        self.kept += Region::kept(&region.head) + Region::kept(&region.tail);
        self.closed.push(region);
    }

    /// The blocks, from top to bottom; or why they were not found.
    pub(super) fn finish(mut self) -> Result<Vec<Region>, String> {
        self.end_row();
        if let Some(reason) = self.stopped {
            return Err(reason);
        }
        let mut regions = self.closed;
        regions.append(&mut self.open);
        regions.sort_by_key(|region| (region.range.first(), region.range.last()));
        Ok(regions)
    }
}

/// Stretches of a row without a blank cell, each as a block of its own.
fn runs(row: u32, marks: Vec<Mark>) -> Vec<Region> {
    let mut runs: Vec<Vec<Mark>> = Vec::new();
    for mark in marks {
        match runs.last_mut() {
            Some(run) if run.last().is_some_and(|last| last.column + 1 == mark.column) => run.push(mark),
            _ => runs.push(vec![mark]),
        }
    }
    runs.into_iter().filter_map(|run| Region::of_row(row, run)).collect()
}

/// Joins the blocks above a row with the stretches of the row that touch them; both come from left to right.
fn meet(above: Vec<Region>, runs: Vec<Region>) -> Vec<Region> {
    let mut met: Vec<Region> = Vec::with_capacity(above.len().max(runs.len()));
    let (mut above, mut runs) = (above.into_iter().peekable(), runs.into_iter().peekable());
    loop {
        let first = |region: &Region| region.range.first().column();
        let next = match (above.peek(), runs.peek()) {
            (Some(one), Some(other)) if first(one) <= first(other) => above.next(),
            (Some(_), None) => above.next(),
            (_, _) => runs.next(),
        };
        let Some(next) = next else { return met };
        match met.pop() {
            Some(last) if first(&next) <= last.range.last().column() + 1 => met.push(last.join(next)),
            last => {
                met.extend(last);
                met.push(next);
            }
        }
    }
}
