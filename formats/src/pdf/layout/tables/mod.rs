//! Finds the tables among the lines of a page: by lines drawn between the cells, else by cells that stand below each other.
//!
//! What is in doubt is no table: prose in columns, forms, lists, tables of contents, and labels of a drawing.

mod aligned;
mod ruled;

use super::row_text::Line;
use crate::tables::{TableRule, is_table, is_year, names_columns};
use kurbo::Rect;

/// The most tables of a page.
const MOST: usize = 100;
/// The share of cells that have text, at least.
const FILLED: f64 = 0.35;
/// From this share of cells that end with a colon on, it is a form.
const LABELS: f64 = 0.3;
/// The most characters of a number.
const NUMBER: usize = 24;

/// A table, by the lines that it takes: their places in the order of reading, ascending.
pub(super) struct Found {
    pub lines: Vec<usize>,
    pub rows: Vec<Vec<String>>,
    pub rule: TableRule,
    pub has_header: bool,
}

/// A line drawn along a side of the page.
#[derive(Debug, Clone, Copy)]
struct Ruling {
    /// Where it lies across its direction, and from where to where along it.
    at: f64,
    from: f64,
    to: f64,
}

/// The rulings in the frame of the lines, across the page and down.
struct Rulings {
    across: Vec<Ruling>,
    down: Vec<Ruling>,
}

impl Rulings {
    fn new(drawn: &[Rect]) -> Self {
        let (mut across, mut down) = (Vec::new(), Vec::new());
        for line in drawn {
            let middle = line.center();
            if line.width() >= line.height() {
                across.push(Ruling { at: middle.y, from: line.x0, to: line.x1 });
            } else {
                down.push(Ruling { at: middle.x, from: line.y0, to: line.y1 });
            }
        }
        Self { across: merged(across), down: merged(down) }
    }
}

/// How far apart two ends or two directions may be that meet, in points.
const TOUCH: f64 = 2.5;

/// Pieces of one line are one: dashes, doubled strokes, and the borders of cells beside each other.
fn merged(mut lines: Vec<Ruling>) -> Vec<Ruling> {
    lines.sort_by(|a, b| a.at.total_cmp(&b.at));
    let mut merged: Vec<Ruling> = Vec::new();
    let mut rest = lines.as_mut_slice();
    while let Some(first) = rest.first().map(|line| line.at) {
        let count = rest.partition_point(|line| line.at - first <= TOUCH);
        let (level, others) = std::mem::take(&mut rest).split_at_mut(count.max(1));
        level.sort_by(|a, b| a.from.total_cmp(&b.from));
        let mut open: Option<Ruling> = None;
        for line in level.iter() {
            match &mut open {
                Some(open) if line.from <= open.to + TOUCH => open.to = open.to.max(line.to),
                _ => merged.extend(open.replace(Ruling { at: first, ..*line })),
            }
        }
        merged.extend(open);
        rest = others;
    }
    merged
}

/// Finds the tables of a frame. `drawn` are the rulings in it.
pub(super) fn find(leaves: &[Vec<Line>], drawn: &[Rect]) -> Vec<Found> {
    let lines: Vec<&Line> = leaves.iter().flatten().collect();
    let rulings = Rulings::new(drawn);
    let mut found = ruled::find(&lines, &rulings);
    let mut taken = vec![false; lines.len()];
    for table in &found {
        table.lines.iter().for_each(|line| taken[*line] = true);
    }
    let mut first = 0;
    for leaf in leaves {
        found.extend(aligned::find(leaf, first, &taken, &rulings.across));
        first += leaf.len();
    }
    found.truncate(MOST);
    found
}

/// The rows and columns that have text; `None` if they are no table, or those of a form.
fn sound(rows: Vec<Vec<String>>) -> Option<Vec<Vec<String>>> {
    let width = rows.iter().map(Vec::len).max()?;
    let is_full: Vec<bool> =
        (0..width).map(|column| rows.iter().any(|row| row.get(column).is_some_and(|cell| !cell.is_empty()))).collect();
    let rows: Vec<Vec<String>> = rows
        .into_iter()
        .filter(|row| row.iter().any(|cell| !cell.is_empty()))
        .map(|row| row.into_iter().zip(&is_full).filter(|(_, is_full)| **is_full).map(|(cell, _)| cell).collect())
        .collect();
    if !is_table(&rows) {
        return None;
    }
    let cells = || rows.iter().flatten();
    let filled = cells().filter(|cell| !cell.is_empty()).count() as f64;
    let is_label = |cell: &&String| cell.ends_with([':', '_', '…']) || cell.contains("....") || cell.contains(". . .");
    let labels = cells().filter(is_label).count() as f64;
    (filled >= FILLED * cells().count() as f64 && labels < LABELS * filled).then_some(rows)
}

/// Whether the first row names the columns of the rows below: it does so, and is not one more row of values.
fn has_header(rows: &[Vec<String>]) -> bool {
    let Some((first, below)) = rows.split_first() else { return false };
    let is_value = |cell: &String| is_number(cell) && !is_year(cell);
    names_columns(rows) && !first.iter().any(is_value) && !below.is_empty()
}

/// Whether a cell is a number as print writes it: with a unit, a sign, a currency, a footnote.
fn is_number(cell: &str) -> bool {
    let (mut digits, mut letters, mut length) = (0, 0, 0);
    for character in cell.chars() {
        length += 1;
        digits += usize::from(character.is_ascii_digit());
        letters += usize::from(character.is_alphabetic());
        if length > NUMBER {
            return false;
        }
    }
    let begins = cell.chars().find(|character| character.is_alphanumeric());
    begins.is_some_and(|first| first.is_ascii_digit()) && digits >= letters
}

/// Appends a text to that of a cell.
fn append(cell: &mut String, text: &str) {
    if !cell.is_empty() && !text.is_empty() {
        cell.push(' ');
    }
    cell.push_str(text);
}

#[cfg(test)]
mod tests;
