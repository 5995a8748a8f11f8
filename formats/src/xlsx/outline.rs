//! What a sheet uses, and the row that may name its columns.

use super::{
    range::{CellRef, Range, column_letters},
    sheet::HeaderEvidence,
    value::{Interpreter, Seen},
    worksheet::RawCell,
};
use std::collections::HashMap;

/// The used range as it grows, with the cells of its first row.
#[derive(Default)]
pub(super) struct Outline {
    used: Option<Range>,
    first: Vec<(CellRef, RawCell)>,
}

/// Where a cell went.
pub(super) enum Placed {
    /// To the first row. If that row is a new one, these are the cells of the row that was first before.
    First(Vec<(CellRef, RawCell)>),
    Below,
}

impl Outline {
    pub(super) fn add(&mut self, at: CellRef, raw: &RawCell) -> Placed {
        let cell = Range::from(at);
        let row = self.used.map(|used| used.first().row());
        self.used = Some(self.used.map_or(cell, |used| used.hull(cell)));
        match row {
            Some(row) if at.row() > row => Placed::Below,
            Some(row) if at.row() == row => {
                self.first.push((at, raw.clone()));
                Placed::First(Vec::new())
            }
            // Rows should ascend, but need not.
            _ => Placed::First(std::mem::replace(&mut self.first, vec![(at, raw.clone())])),
        }
    }

    pub(super) fn used(&self) -> Option<Range> {
        self.used
    }

    /// Judges the first row. If it is a header, returns the names of all columns of the used range.
    pub(super) fn header(&self, interpreter: &Interpreter) -> (HeaderEvidence, Vec<String>) {
        let no = |row, reason: String| (HeaderEvidence { row, is_header: false, reason }, Vec::new());
        let Some(used) = self.used else { return no(None, "the sheet is empty".to_owned()) };
        let row = Some(used.first().row());
        let cells: HashMap<u32, &RawCell> = self.first.iter().map(|(at, raw)| (at.column(), raw)).collect();
        let mut names: Vec<String> = Vec::with_capacity(cells.len());
        let mut columns: HashMap<String, u32> = HashMap::with_capacity(cells.len());
        for column in used.first().column()..=used.last().column() {
            let letters = || column_letters(column);
            let Some(&raw) = cells.get(&column) else { return no(row, format!("no text in column {}", letters())) };
            let name = match interpreter.value(raw) {
                Some(Seen::Text(text)) => text.trim(),
                Some(other) => {
                    let kind = other.to_value().kind();
                    return no(row, format!("column {} has a value of type {kind}, not text", letters()));
                }
                None => "",
            };
            if name.is_empty() {
                return no(row, format!("no text in column {}", letters()));
            }
            if let Some(before) = columns.insert(name.to_owned(), column) {
                let quoted: String = name.chars().take(100).collect();
                return no(row, format!("`{quoted}` is in columns {} and {}", column_letters(before), letters()));
            }
            names.push(name.to_owned());
        }
        let reason = "a distinct text in every column".to_owned();
        (HeaderEvidence { row, is_header: true, reason }, names)
    }

    /// Returns the first row's cells.
    pub(super) fn into_first(self) -> Vec<(CellRef, RawCell)> {
        self.first
    }
}
