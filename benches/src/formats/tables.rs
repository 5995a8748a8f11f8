//! How many cells of the tables of a PDF are found in their places, beside pdfplumber on the same file, and how many tables that go over
//! several pages are found as one.
use super::peers::Peers;
use crate::figure::{Bound, BoxError, Figure, Peer};
use serde::Deserialize;
use std::{collections::HashSet, fs::File, path::Path};
use svc_formats::{Extraction, Format, Limits, extract, tables};

/// The tables of a page, each by its rows.
type Page = Vec<Vec<Vec<String>>>;

#[derive(Deserialize)]
struct Theirs {
    version: String,
    pages: Vec<Page>,
}

/// How many pages each continued table takes.
const CONTINUED_PAGES: usize = 3;

/// The tables of the file are of this kind and known. Half of the tables have lines between their cells, and those with spanning cells
/// all do.
pub fn run(kind: &str, file: &Path, peers: &Peers, out: &mut dyn FnMut(Figure)) -> Result<(), BoxError> {
    let expected: Vec<Page> = serde_json::from_slice(&std::fs::read(file.with_extension("json"))?)?;
    let read = extract(Format::Pdf, File::open(file)?, &Limits::default())?;
    let mut ours: Vec<Page> = vec![Vec::new(); read.pages.len()];
    for table in &read.tables {
        let page = read.pages.partition_point(|page| page.end <= table.span().start);
        ours[page].push(table.rows.clone());
    }
    if kind == "tables-continued" {
        joined(&read, &expected, out);
    }
    let Theirs { version, pages } = serde_json::from_slice(&peers.found(&["tables"], &[file.to_path_buf()])?)?;
    let expected = cells(&expected);
    let (ours, theirs) = (f1(&cells(&ours), &expected), f1(&cells(&pages), &expected));
    let peer = Peer { name: "pdfplumber", version: version.into(), value: theirs };
    // Of shares, more is better.
    let name = format!("formats/pdf_{}", kind.replace('-', "_"));
    let figure = Figure::beside(&name, expected.len(), "cell F1", ours, peer);
    out(Figure { ratio: Some(ours / theirs), ..figure }.meant_to_be(Bound::OursAtLeast(theirs)));
    Ok(())
}

/// The share of tables over several pages that are found as one, with all rows below one header.
fn joined(read: &Extraction, expected: &[Page], out: &mut dyn FnMut(Figure)) {
    let whole = |pages: &[Page]| {
        let (first, rest) = pages.split_first()?;
        let rows = first.first()?.iter().chain(rest.iter().flatten().flat_map(|table| table.iter().skip(1)));
        Some(rows.cloned().collect::<Vec<_>>())
    };
    let expected: Vec<_> = expected.chunks(CONTINUED_PAGES).filter_map(whole).collect();
    let found = tables(read).tables;
    let is_found = |rows: &&Vec<Vec<String>>| found.iter().any(|table| table.rows == **rows);
    let share = expected.iter().filter(is_found).count() as f64 / expected.len() as f64;
    out(Figure::alone("formats/pdf_tables_joined", expected.len(), "share", share));
}

/// Each cell with text: its page, table, row and column.
fn cells(pages: &[Page]) -> HashSet<(usize, usize, usize, usize, &str)> {
    let mut cells = HashSet::new();
    for (page, tables) in pages.iter().enumerate() {
        for (table, rows) in tables.iter().enumerate() {
            for (row, texts) in rows.iter().enumerate() {
                let filled = texts.iter().map(|text| text.trim()).enumerate().filter(|(_, text)| !text.is_empty());
                cells.extend(filled.map(|(column, text)| (page, table, row, column, text)));
            }
        }
    }
    cells
}

fn f1<T: Eq + std::hash::Hash>(found: &HashSet<T>, expected: &HashSet<T>) -> f64 {
    let total = found.len() + expected.len();
    if total == 0 { 1.0 } else { 2.0 * found.intersection(expected).count() as f64 / total as f64 }
}
