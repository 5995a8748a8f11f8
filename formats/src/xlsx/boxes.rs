//! Text boxes, which lie on a sheet and in none of its cells.

use super::{
    range::CellRef,
    records::{LooseCell, LooseRow},
};
use crate::{
    FormatError, Limits,
    extraction::check_text,
    xml::{Node, XmlReader},
};
use std::io::Read;

/// A sheet shows no more of them that anybody would read.
const MOST: usize = 1_000;

/// Reads the texts of a drawing, each at the cell where its shape begins.
pub(super) fn read<R: Read>(mut xml: XmlReader<R>, limits: &Limits) -> Result<Vec<LooseRow>, FormatError> {
    let (mut boxes, mut held) = (Vec::new(), 0);
    // The elements that are open, and where the shape begins: a column and a row, both from 0.
    let mut open: Vec<String> = Vec::new();
    let (mut column, mut row) = (String::new(), String::new());
    let mut text = String::new();
    while let Some(node) = xml.next()? {
        match node {
            // The other branch has the same text.
            Node::Start(element) if element.name == "Fallback" => xml.skip()?,
            Node::Start(element) => {
                match element.name.as_str() {
                    "from" => (column, row) = (String::new(), String::new()),
                    "p" if !text.is_empty() => text.push('\n'),
                    "br" => text.push('\n'),
                    _ => {}
                }
                open.push(element.name);
            }
            Node::Text(piece) => {
                let at = |place: usize| open.len().checked_sub(place).and_then(|at| open.get(at)).map(String::as_str);
                match (at(2), at(1)) {
                    (Some("from"), Some("col")) => column.push_str(piece.trim()),
                    (Some("from"), Some("row")) => row.push_str(piece.trim()),
                    (_, Some("t")) if open.iter().any(|name| name == "txBody") => {
                        held += piece.len();
                        check_text(held, limits)?;
                        text.push_str(&piece);
                    }
                    _ => {}
                }
            }
            Node::End => {
                let ended = open.pop();
                let shown = text.trim();
                if ended.as_deref() != Some("txBody") {
                    continue;
                }
                if !shown.is_empty() && boxes.len() < MOST {
                    let place = |number: &str| number.parse::<u32>().unwrap_or_default().saturating_add(1);
                    // A shape without such a cell is drawn from the corner of the sheet on.
                    let at = CellRef::new(place(&row), place(&column));
                    let (row, column) = at.map_or((1, 1), |at| (at.row(), at.column()));
                    boxes.push(LooseRow { row, cells: vec![LooseCell { column, text: shown.to_owned() }] });
                }
                text.clear();
            }
        }
    }
    Ok(boxes)
}
