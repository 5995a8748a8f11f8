//! Reads a rectangle of cells.

use super::{
    book::Scan,
    range::{CellRef, Range},
    value::{Interpreter, Value},
    workbook::{Opened, Sheet},
    worksheet::{Item, RawCell, Stored},
};
use crate::{FormatError, Limits, extraction::check_text};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// A rectangle of a sheet, with only its filled cells. The caller bounds its [`Range::area`].
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cells {
    pub sheet: Sheet,
    pub range: Range,
    /// The rows with a filled cell, from top to bottom.
    pub rows: Vec<CellRow>,
    /// Merged ranges that meet the rectangle. A sheet lists them after its last row; `None` if that is too far away or
    /// damaged.
    pub merged: Option<Vec<Range>>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CellRow {
    pub row: u32,
    /// Hidden by hand or by a filter.
    pub hidden: bool,
    /// From left to right, without the empty ones.
    pub cells: Vec<Cell>,
}

/// A cell with a value or a formula.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    pub cell: CellRef,
    /// `None` for a formula without a stored value.
    pub value: Option<Value>,
    /// Includes its `=`; a shared formula is written out for this cell.
    pub formula: Option<String>,
    /// The format code; `General` if the cell has none of its own.
    pub number_format: String,
    /// The value as the sheet shows it.
    pub text: String,
}

/// How far after the rectangle its merged ranges are looked for.
const TAIL_BYTES: u64 = 16 << 20;

/// A cell of the rectangle as it is stored.
struct Stash {
    at: CellRef,
    raw: RawCell,
    formula: Option<String>,
}

/// Reads a rectangle. Shared strings are read afterwards, because the rectangle needs few of them.
pub(super) fn cells(mut opened: Opened<'_>, index: u32, range: Range, limits: &Limits) -> Result<Cells, FormatError> {
    let sheet = opened.sheet(index)?;
    let mut worksheet = opened.scan(index, limits)?;
    // A damaged sheet may name a row twice or out of order.
    let mut rows: BTreeMap<u32, (bool, Vec<Stash>)> = BTreeMap::new();
    let mut bytes = 0;
    let mut hidden_row = false;
    let mut merged = Vec::new();
    let mut ended = true;
    while let Some(item) = worksheet.next()? {
        match item {
            Item::Row { row, hidden } => {
                hidden_row = hidden;
                if row > range.last().row() {
                    ended = false;
                    break;
                }
            }
            Item::Cell(at, raw) if range.contains(at) => {
                let raw = raw.clone();
                let formula = raw.formula.as_ref().map(|formula| worksheet.formula_text(formula, at));
                bytes += raw.text.len() + formula.as_ref().map_or(0, String::len);
                check_text(bytes, limits)?;
                let stash = Stash { at, raw, formula };
                rows.entry(at.row()).or_insert_with(|| (hidden_row, Vec::new())).1.push(stash);
            }
            Item::Merged(other) if other.intersect(range).is_some() => merged.push(other),
            _ => {}
        }
    }
    let merged = if ended {
        drop(worksheet);
        Some(merged)
    } else {
        // Damage after the rectangle does not affect it.
        tail(worksheet, range, merged).unwrap_or_default()
    };
    let wanted: BTreeSet<u32> = rows
        .values()
        .flat_map(|(_, cells)| cells)
        .filter(|cell| cell.raw.stored == Stored::Shared)
        .filter_map(|cell| cell.raw.text.trim().parse().ok())
        .collect();
    let interpreter = opened.interpreter_for(&wanted, limits)?;
    let mut bytes = 0;
    let mut out = Vec::with_capacity(rows.len());
    for (row, (hidden, stashed)) in rows {
        let mut cells = Vec::with_capacity(stashed.len());
        for stash in stashed {
            let cell = cell(stash, &interpreter);
            bytes += cell.text.len();
            check_text(bytes, limits)?;
            cells.push(cell);
        }
        cells.sort_by_key(|cell| cell.cell);
        out.push(CellRow { row, hidden, cells });
    }
    Ok(Cells { sheet, range, rows: out, merged })
}

fn cell(stash: Stash, interpreter: &Interpreter) -> Cell {
    let seen = interpreter.value(&stash.raw);
    let text = seen.as_ref().map_or_else(String::new, |seen| interpreter.shown(&stash.raw, seen).into_owned());
    Cell {
        cell: stash.at,
        value: seen.map(|seen| seen.to_value()),
        formula: stash.formula,
        number_format: interpreter.styles.format(interpreter.format_of(&stash.raw)).code.clone(),
        text,
    }
}

/// Adds the merged ranges that meet the rectangle and come after the cells, if they are near.
fn tail(
    worksheet: Box<dyn Scan + '_>,
    range: Range,
    mut merged: Vec<Range>,
) -> Result<Option<Vec<Range>>, FormatError> {
    let Some(mut worksheet) = worksheet.behind_cells(TAIL_BYTES)? else { return Ok(None) };
    while let Some(item) = worksheet.next()? {
        if let Item::Merged(other) = item
            && other.intersect(range).is_some()
        {
            merged.push(other);
        }
    }
    Ok(Some(merged))
}
