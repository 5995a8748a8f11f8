//! The tables of a file's text: those that are drawn on the pages of a PDF, and those of a text in Markdown, which is what
//! other readers write.
//!
//! A table that is none is worse than none: what is in doubt stays text.

use crate::{
    Extraction, PageKind, chunk,
    markdown::{self, one_line},
    xlsx::{self, Value},
};
use serde::{Deserialize, Serialize};
use std::{borrow::Cow, collections::BTreeMap, ops::Range};

/// The most tables of a file, and rows, columns and bytes of a table. A larger one stays text.
pub(crate) const MOST_TABLES: usize = 1000;
pub(crate) const MOST_ROWS: usize = 5000;
pub(crate) const MOST_COLUMNS: usize = 200;
pub(crate) const MOST_BYTES: usize = 512 << 10;
/// The most bytes of all tables.
pub(crate) const MOST_BYTES_OF_ALL: usize = 16 << 20;
/// An empty cell counts as this many.
pub(crate) const CELL_BYTES: usize = 8;
/// The most cells that are made of the tables of a text in Markdown.
const MOST_CELLS: usize = MOST_BYTES_OF_ALL / CELL_BYTES;
/// A table goes on on the next page below at most this many bytes of footers and headers.
const FURNITURE: usize = 400;

/// What a table was found by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TableRule {
    /// Lines are drawn between its cells.
    Lines,
    /// Its cells stand below each other.
    Alignment,
    /// The text says that it is a table.
    Markdown,
    /// A chart keeps its values. It stands in no text.
    Chart,
}

impl TableRule {
    /// The name in the evidence.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Lines => "lines",
            Self::Alignment => "alignment",
            Self::Markdown => "markdown",
            Self::Chart => "chart",
        }
    }
}

/// A table of a text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Table {
    /// Where it stands in the text, in bytes, ascending. Lines of a page that are read between its own are not in it.
    pub ranges: Vec<Range<usize>>,
    pub rule: TableRule,
    /// Whether the first row names the columns.
    pub has_header: bool,
    /// All rows have equally many cells; what a span covers is empty.
    pub rows: Vec<Vec<String>>,
    /// On how many pages it stands, each with its header.
    pub parts: usize,
}

/// The tables of a text, in its order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Tables {
    pub tables: Vec<Table>,
    /// How many stay text, by the reason: `tables`, `rows`, `columns`, `bytes` (the limit that they exceed), or `heading` (within).
    pub left_out: BTreeMap<&'static str, usize>,
}

impl Table {
    /// The first and the last byte of the text that it takes.
    pub fn span(&self) -> Range<usize> {
        let start = self.ranges.first().map_or(0, |range| range.start);
        start..self.ranges.last().map_or(start, |range| range.end)
    }

    /// The table in GFM: as `text` writes it if it is one there.
    pub fn content<'a>(&self, text: &'a str) -> Cow<'a, str> {
        if self.rule == TableRule::Markdown
            && let [range] = self.ranges.as_slice()
        {
            return Cow::Borrowed(text.get(range.clone()).unwrap_or_default().trim());
        }
        let mut table = markdown::Table::default();
        for row in &self.rows {
            row.iter().for_each(|cell| table.cell(cell));
            table.end_row();
        }
        let mut out = String::new();
        table.write(&mut out);
        Cow::Owned(out)
    }

    /// The names of the columns, if the first row has them.
    pub fn columns(&self) -> Option<&[String]> {
        self.rows.first().filter(|_| self.has_header).map(Vec::as_slice)
    }

    /// The values of the rows below the names of the columns; an empty cell has none.
    pub fn values(&self) -> impl Iterator<Item = Vec<Option<Value>>> {
        let read = |cell: &String| (!cell.is_empty()).then(|| value(cell));
        self.rows.iter().skip(usize::from(self.has_header)).map(move |row| row.iter().map(read).collect())
    }

    fn width(&self) -> usize {
        self.rows.first().map_or(0, Vec::len)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.rows.iter().flatten().map(|cell| cell.len() + CELL_BYTES).sum()
    }
}

/// The limit that a table exceeds.
fn over(rows: usize, columns: usize, bytes: usize) -> Option<&'static str> {
    if rows > MOST_ROWS {
        Some("rows")
    } else if columns > MOST_COLUMNS {
        Some("columns")
    } else {
        (bytes > MOST_BYTES).then_some("bytes")
    }
}

/// Finds the tables of a file's text. The time is linear in the text.
pub fn tables(extraction: &Extraction) -> Tables {
    // Of formats with pages only PDF has no Markdown.
    let is_drawn = extraction.page_kind == PageKind::Page && !extraction.pages.is_empty();
    let found: Box<dyn Iterator<Item = Result<Table, &'static str>> + '_> = match is_drawn {
        true => Box::new(joined(extraction).into_iter().map(Ok)),
        false => Box::new(of_markdown(&extraction.text)),
    };
    let mut tables = Tables::default();
    let mut room = MOST_BYTES_OF_ALL;
    for table in found {
        let table = match table {
            Ok(table) => table,
            Err(limit) => {
                *tables.left_out.entry(limit).or_default() += 1;
                continue;
            }
        };
        let reason = match over(table.rows.len(), table.width(), table.bytes()) {
            Some(limit) => Some(limit),
            None if tables.tables.len() >= MOST_TABLES => Some("tables"),
            None if table.bytes() > room => Some("bytes"),
            None => has_heading(extraction, &table).then_some("heading"),
        };
        match reason {
            Some(reason) => *tables.left_out.entry(reason).or_default() += 1,
            None => {
                room -= table.bytes();
                tables.tables.push(table);
            }
        }
    }
    tables
}

/// Whether a text in Markdown has a table.
pub(crate) fn has_tables(text: &str) -> bool {
    of_markdown(text).next().is_some()
}

/// Whether a section would begin within the table, which then is none.
fn has_heading(extraction: &Extraction, table: &Table) -> bool {
    let headings = &extraction.headings;
    table.ranges.iter().any(|range| {
        let next = headings.partition_point(|heading| heading.start < range.start);
        headings.get(next).is_some_and(|heading| heading.start < range.end)
    })
}

/// The tables that a text in Markdown declares, as far as they are some: two rows and two columns with text. Of one that is too large
/// only the limit that it exceeds is told.
fn of_markdown(text: &str) -> impl Iterator<Item = Result<Table, &'static str>> {
    // Most texts have none, and are not looked at twice.
    let blocks = if text.contains('|') { chunk::tables(text) } else { Vec::new() };
    let mut room = MOST_CELLS;
    blocks.into_iter().filter_map(move |(range, header)| {
        let names = text[header.clone()].lines().next()?;
        // A row may be as short as a bar and is filled up, so one more than is allowed must do.
        let width = chunk::cells(names.trim()).take(MOST_COLUMNS + 1).count();
        if width < 2 {
            return None;
        }
        let row = |line: &str| {
            let mut row: Vec<String> = chunk::cells(line.trim()).take(width).map(unescaped).collect();
            row.resize(width, String::new());
            row
        };
        let below = || text[header.end..range.end].lines().filter(|line| !line.trim().is_empty());
        let count = 1 + below().take(MOST_ROWS).count();
        // Rows that are filled up have many more cells than bytes, so what is over a limit is not made at all.
        if let Some(limit) = over(count, width, count * width * CELL_BYTES) {
            return Some(Err(limit));
        }
        let Some(left) = room.checked_sub(count * width) else { return Some(Err("bytes")) };
        room = left;
        let rows: Vec<Vec<String>> = std::iter::once(names).chain(below()).map(row).collect();
        let has_header = names_columns(&rows);
        let table = Table { ranges: vec![range], rule: TableRule::Markdown, has_header, rows, parts: 1 };
        is_table(&table.rows).then_some(Ok(table))
    })
}

/// Whether rows are more than a list, a line or a frame around a text.
pub(crate) fn is_table(rows: &[Vec<String>]) -> bool {
    let has_text = |cell: &&String| !cell.is_empty();
    let filled = rows.iter().flatten().filter(has_text).count();
    let full_rows = rows.iter().filter(|row| row.iter().any(|cell| !cell.is_empty())).count();
    let width = rows.iter().map(Vec::len).max().unwrap_or(0);
    let is_full = |column: &usize| rows.iter().any(|row| row.get(*column).is_some_and(|cell| !cell.is_empty()));
    filled >= 3 && full_rows >= 2 && (0..width).filter(is_full).count() >= 2
}

/// Whether the first row names the columns: each has a name of its own, but for the first one, and not all of them are numbers
/// other than years.
pub(crate) fn names_columns(rows: &[Vec<String>]) -> bool {
    let Some(first) = rows.first() else { return false };
    let named = || first.iter().map(String::as_str).filter(|name| !name.is_empty());
    let distinct: std::collections::HashSet<&str> = named().collect();
    let is_complete = first.iter().skip(1).all(|name| !name.is_empty()) && distinct.len() == named().count();
    let are_names = named().any(|name| name.chars().any(char::is_alphabetic)) || named().all(is_year);
    is_complete && are_names && !distinct.is_empty()
}

/// Years name columns.
pub(crate) fn is_year(cell: &str) -> bool {
    cell.len() == 4
        && (cell.starts_with("19") || cell.starts_with("20"))
        && cell.bytes().all(|byte| byte.is_ascii_digit())
}

/// The tables that are drawn on pages; one whose header comes again on the next page is one, as far as the limits of a table allow it.
fn joined(extraction: &Extraction) -> Vec<Table> {
    let mut tables: Vec<Table> = Vec::new();
    for table in &extraction.tables {
        match tables.last_mut() {
            Some(last)
                if goes_on(extraction, last, table)
                    && over(last.rows.len() + table.rows.len(), 0, last.bytes() + table.bytes()).is_none() =>
            {
                last.ranges.extend(table.ranges.iter().cloned());
                last.rows.extend(table.rows.iter().skip(1).cloned());
                last.parts += 1;
            }
            _ => tables.push(table.clone()),
        }
    }
    tables
}

/// Whether a table continues the one before it: on the next page, with the same names of columns, and with no more between them than
/// stands below and above a page. A section or a caption between them has a table of its own.
fn goes_on(extraction: &Extraction, last: &Table, table: &Table) -> bool {
    let (before, after) = (last.span(), table.span());
    let next_page = extraction.page_at(before.end.saturating_sub(1)).map(|page| page + 1);
    let next = extraction.headings.partition_point(|heading| heading.start < before.end);
    let is_divided = extraction.headings.get(next).is_some_and(|heading| heading.start < after.start);
    next_page.is_some()
        && next_page == extraction.page_at(after.start)
        && !is_divided
        && last.has_header
        && last.rows.first() == table.rows.first()
        && after.start.checked_sub(before.end).is_some_and(|between| between <= FURNITURE)
        && !extraction.text.get(before.end..after.start).is_some_and(has_caption)
}

/// Whether a line is the caption of another table than the one before it.
fn has_caption(text: &str) -> bool {
    const WORDS: [&str; 7] = ["table", "tab", "tabelle", "tableau", "tabla", "tabella", "tabel"];
    const CONTINUED: [&str; 5] = ["cont", "fortsetzung", "forts.", "suite", "vervolg"];
    let is_caption = |line: &str| {
        let line = line.trim().to_lowercase();
        let is_number = |rest: &str| {
            rest.starts_with(['.', ' ']) && rest.chars().take(5).any(|character| character.is_ascii_digit())
        };
        WORDS.iter().any(|word| line.strip_prefix(word).is_some_and(is_number))
            && !CONTINUED.iter().any(|word| line.contains(word))
    };
    text.lines().any(is_caption)
}

/// A cell of Markdown as the text that it shows.
fn unescaped(cell: &str) -> String {
    let mut text = String::with_capacity(cell.len());
    let mut characters = cell.trim().chars().peekable();
    while let Some(character) = characters.next() {
        match characters.peek() {
            Some(next) if character == '\\' && next.is_ascii_punctuation() => text.extend(characters.next()),
            _ => text.push(character),
        }
    }
    text
}

/// What a cell holds. Commas between thousands and the sign of a minus are those of print.
fn value(cell: &str) -> Value {
    let plain = cell.replace('\u{2212}', "-");
    match xlsx::value_of_text(&without_commas(&plain)) {
        Value::Text(_) => Value::Text(one_line(cell)),
        value => value,
    }
}

/// A number without the commas between its thousands; any other text as it is.
fn without_commas(text: &str) -> Cow<'_, str> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let whole = digits.split('.').next().unwrap_or_default();
    let mut groups = whole.split(',');
    let first = groups.next().unwrap_or_default();
    let is_number = |group: &str| group.bytes().all(|byte| byte.is_ascii_digit());
    let is_grouped = whole.contains(',')
        && (1..=3).contains(&first.len())
        && is_number(first)
        && groups.all(|group| group.len() == 3 && is_number(group));
    if is_grouped { Cow::Owned(text.replace(',', "")) } else { Cow::Borrowed(text) }
}

#[cfg(test)]
mod tests;
