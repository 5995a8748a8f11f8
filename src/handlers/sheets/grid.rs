//! A rectangle of cells as a Markdown table: column letters across the top, row numbers down the side.
use crate::ingest::records::one_line;
use std::fmt::Write;
use svc_formats::xlsx::{Cells, Range, column_letters};

/// The most characters of a cell; the values beside the grid are complete.
const SHOWN: usize = 80;

/// The grid, one line per row, including empty ones.
pub fn markdown(range: Range, cells: &Cells) -> String {
    let width = range.width() as usize;
    let mut grid = String::from("|  |");
    for column in range.first().column()..=range.last().column() {
        // Writing to a String cannot fail.
        let _ = write!(grid, " {} |", column_letters(column));
    }
    grid.push_str("\n| ---: |");
    grid.push_str(&" --- |".repeat(width));
    let mut filled = cells.rows.iter().peekable();
    for row in range.first().row()..=range.last().row() {
        let _ = write!(grid, "\n| {row} |");
        let Some(of_row) = filled.next_if(|filled| filled.row == row) else {
            grid.push_str(&"  |".repeat(width));
            continue;
        };
        let mut of_row = of_row.cells.iter().peekable();
        for column in range.first().column()..=range.last().column() {
            match of_row.next_if(|cell| cell.cell.column() == column) {
                Some(cell) => {
                    let _ = write!(grid, " {} |", shown(&cell.text));
                }
                None => grid.push_str("  |"),
            }
        }
    }
    grid.push('\n');
    grid
}

/// One line, without what would end the cell.
fn shown(text: &str) -> String {
    let line = one_line(text).replace(char::is_control, "");
    let line = match line.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    };
    line.replace('\\', "\\\\").replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn letters_stand_on_top_and_row_numbers_at_the_side() {
        let cell = |at: &str, text: &str| json!({"cell": at, "value": null, "formula": null, "number_format": "General", "text": text});
        let cells: Cells = serde_json::from_value(json!({
            "sheet": {"index": 0, "name": "S", "kind": "worksheet", "state": "visible"},
            "range": "Z9:AB12",
            "rows": [
                {"row": 10, "hidden": false, "cells": [cell("Z10", "a|b"), cell("AB10", "two\nlines")]},
                {"row": 12, "hidden": false, "cells": [cell("AA12", &"x".repeat(90))]},
            ],
            "merged": [],
        }))
        .expect("cells");
        let long = format!("{}…", "x".repeat(80));
        let expected = format!(
            "|  | Z | AA | AB |\n| ---: | --- | --- | --- |\n| 9 |  |  |  |\n| 10 | a\\|b |  | two lines |\n| 11 |  |  |  |\n| 12 |  | {long} |  |\n"
        );
        assert_eq!(markdown(cells.range, &cells), expected);
    }
}
