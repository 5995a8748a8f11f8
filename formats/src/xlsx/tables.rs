//! Judges which blocks of a sheet are tables: what names their columns, what stands above and below the rows.

use super::{
    range::{CellRef, Range, column_letters},
    records::RecordColumn,
    regions::{Column, HEAD_ROWS, Kind, Mark, Region, Rows},
};
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};

/// A table of a sheet: a header that names the columns, and rows below it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Table {
    /// From the first row of the header to the last row.
    pub range: Range,
    /// The rows that name the columns; two where a name over several columns stands above their own names.
    pub header_rows: Vec<u32>,
    /// From left to right, without empty ones.
    pub columns: Vec<RecordColumn>,
    /// The texts above the table that belong to no other.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub titles: Vec<String>,
    /// The last row, if it adds up the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub totals_row: Option<u32>,
    /// Columns that the header names not at all or like another one, by their letters; their names were made up.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub renamed: Vec<String>,
    /// A clause that says why the header is one.
    pub reason: String,
}

/// A block of cells without a header.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Untitled {
    pub range: Range,
    /// A clause that says why no row of it names its columns.
    pub reason: String,
}

/// What a sheet was found to hold.
#[derive(Debug, Default)]
pub(super) struct Layout {
    /// From top to bottom; they do not overlap.
    pub tables: Vec<Table>,
    pub others: Vec<Untitled>,
}

/// A header has a name for this share of its columns, in quarters.
const NAMED_QUARTERS: usize = 3;
/// A longer text is a sentence, and no name of a column unless other evidence says so.
const PLAIN_NAME_CHARACTERS: usize = 60;
/// A title stands at most this many rows above its table.
const TITLE_GAP: u32 = 3;
/// How many blank rows may part the rows of a table.
const BLANK_ROWS: u32 = 2;
/// How many titles of a table are kept.
const TITLES: usize = 5;

/// Words that name a row of totals, in the languages of many spreadsheets.
const TOTALS: [&str; 19] = [
    "total",
    "totals",
    "grand total",
    "sum",
    "subtotal",
    "sub-total",
    "overall",
    "gesamt",
    "summe",
    "gesamtsumme",
    "insgesamt",
    "somme",
    "total général",
    "totale",
    "totaal",
    "suma",
    "итого",
    "合计",
    "合計",
];

impl Layout {
    /// Judges the blocks of a sheet. The merged cells tell a name over several columns from a name of one.
    pub(super) fn of(regions: Vec<Region>, merged: &[Range]) -> Self {
        let mut by_row: HashMap<u32, Vec<Range>> = HashMap::new();
        for range in merged.iter().filter(|range| range.width() > 1) {
            by_row.entry(range.first().row()).or_default().push(*range);
        }
        let judged = join_parts(regions).into_iter().map(|region| {
            let verdict = judge(&region, &by_row);
            (region, verdict)
        });
        let mut layout = Self::default();
        let mut rest = Vec::new();
        for (region, verdict) in judged {
            match verdict {
                Ok(table) => layout.tables.push(table),
                Err(reason) => rest.push((region, reason)),
            }
        }
        layout.continue_tables(&mut rest);
        layout.add_titles(&rest);
        layout.others = rest.into_iter().map(|(region, reason)| Untitled { range: region.range, reason }).collect();
        layout.tables.sort_by_key(|table| table.range.first());
        layout
    }

    /// Gives a table the rows that only blank rows part from it.
    fn continue_tables(&mut self, rest: &mut Vec<(Region, String)>) {
        let mut all: Vec<Range> = self.tables.iter().map(|table| table.range).collect();
        all.extend(rest.iter().map(|(region, _)| region.range));
        rest.retain(|(region, _)| {
            let above = self.tables.iter_mut().filter(|table| {
                let gap = region.range.first().row().checked_sub(table.range.last().row() + 1);
                gap.is_some_and(|gap| gap <= BLANK_ROWS) && continues(table, region)
            });
            for table in above {
                let hull = table.range.hull(region.range);
                let others = all.iter().filter(|other| **other != table.range && **other != region.range);
                if others.into_iter().all(|other| other.intersect(hull).is_none()) {
                    all.retain(|other| *other != table.range && *other != region.range);
                    table.range = hull;
                    table.totals_row = region.last_row().and_then(|(row, marks)| is_totals(marks).then_some(row));
                    all.push(hull);
                    return false;
                }
            }
            true
        });
    }

    /// Gives each table the short texts above it.
    fn add_titles(&mut self, rest: &[(Region, String)]) {
        let rows = rest.iter().flat_map(|(region, _)| region.head.iter());
        let texts: Vec<(CellRef, &str)> = rows
            .filter_map(|(row, marks)| match marks.as_slice() {
                [mark] => Some((CellRef::new(*row, mark.column)?, mark.text()?)),
                _ => None,
            })
            .collect();
        for table in &mut self.tables {
            let range = table.range;
            let is_near = |at: CellRef| {
                at.row() < range.first().row()
                    && range.first().row() - at.row() <= TITLE_GAP
                    && (range.first().column().saturating_sub(1)..=range.last().column()).contains(&at.column())
            };
            let titles = texts.iter().filter(|(at, text)| is_near(*at) && !text.is_empty());
            let mut titles: Vec<String> = titles.map(|(_, text)| (*text).to_owned()).collect();
            titles.append(&mut table.titles);
            titles.truncate(TITLES);
            table.titles = titles;
        }
    }
}

impl Region {
    fn last_row(&self) -> Option<(u32, &[Mark])> {
        let (row, marks) = self.tail.last_key_value().or_else(|| self.head.last_key_value())?;
        Some((*row, marks))
    }
}

/// Joins blocks that are parts of one: those whose rectangles overlap, and single columns beside a blank one.
fn join_parts(mut regions: Vec<Region>) -> Vec<Region> {
    loop {
        let pair = pair(&regions, |one, other| one.intersect(other).is_some())
            .or_else(|| pair(&regions, |one, other| is_spaced_column(one, other) || is_spaced_column(other, one)));
        let Some((one, other)) = pair else { return regions };
        let taken = regions.remove(other);
        let joined = regions.remove(one).join(taken);
        let at = regions.partition_point(|region| region.range.first() < joined.range.first());
        regions.insert(at, joined);
    }
}

fn pair(regions: &[Region], are: impl Fn(Range, Range) -> bool) -> Option<(usize, usize)> {
    let pairs = (0..regions.len()).flat_map(|one| (one + 1..regions.len()).map(move |other| (one, other)));
    pairs.into_iter().find(|(one, other)| are(regions[*one].range, regions[*other].range))
}

/// Whether a column stands beside a block of the same rows, behind one blank column, as in statements of accounts.
fn is_spaced_column(column: Range, block: Range) -> bool {
    let is_beside =
        column.first().column() == block.last().column() + 2 || column.last().column() + 2 == block.first().column();
    let shared =
        (column.last().row().min(block.last().row()) + 1).saturating_sub(column.first().row().max(block.first().row()));
    let is_long = shared >= 2 && shared * 5 >= column.height().max(block.height()) * 4;
    column.width() == 1 && is_beside && is_long
}

/// Whether the rows of a block read like those of a table above it.
fn continues(table: &Table, region: &Region) -> bool {
    let columns = || region.range.first().column()..=region.range.last().column();
    let is_within = region.range.first().column() >= table.range.first().column()
        && region.range.last().column() <= table.range.last().column();
    let filled = columns().filter(|column| region.column(*column).filled > 0).count();
    let is_data = columns().any(|column| region.column(column).is_data());
    is_within && is_data && filled >= 2 && filled * 2 >= table.columns.len()
}

/// What names the columns of a block, column by column.
struct Header {
    rows: Vec<u32>,
    names: HashMap<u32, String>,
}

/// Finds the header of a block, and makes a table of it; or says why there is none.
fn judge(region: &Region, merged: &HashMap<u32, Vec<Range>>) -> Result<Table, String> {
    if region.range.height() < 2 {
        return Err("it is a single row".to_owned());
    }
    if region.range.width() < 2 {
        return Err("it is a single column".to_owned());
    }
    let rows: Vec<(u32, &[Mark])> = region.head.iter().map(|(row, marks)| (*row, marks.as_slice())).collect();
    let mut titles = Vec::new();
    for (index, (row, marks)) in rows.iter().enumerate().take(HEAD_ROWS - 1) {
        let Some((below, of_below)) = rows.get(index + 1) else { break };
        if !is_header_like(marks) {
            if marks.len() * 2 < wanted(region, &[], &HashMap::new()).len() {
                // It says a day or a number beside the title.
                continue;
            }
            return Err(format!("row {row} has values, and no row above it names the columns"));
        }
        if let Some(spread) = spread(*row, marks, merged)
            && is_header_like(of_below)
            && rows.len() > index + 2
        {
            let names = joined(&spread, of_below);
            let header = Header { rows: vec![*row, *below], names };
            if let Ok(table) = table(region, header, &rows[..index + 2], titles.clone()) {
                return Ok(table);
            }
        }
        let names: HashMap<u32, String> = marks.iter().filter_map(|mark| Some((mark.column, name(mark)?))).collect();
        if names.len() < 2 || !names_most(&wanted(region, &rows[..=index], &names), &names) {
            // It has a title, or a name over several columns.
            if marks.len() == 1 && titles.len() < TITLES {
                titles.extend(names.into_values());
            }
            continue;
        }
        return table(region, Header { rows: vec![*row], names }, &rows[..=index], titles);
    }
    Err("no row of it names the columns".to_owned())
}

/// Whether a row has nothing but names: texts, or a series of numbers or days as columns of years have.
fn is_header_like(marks: &[Mark]) -> bool {
    if marks.iter().all(|mark| mark.text().is_some()) {
        return true;
    }
    let others = || marks.iter().filter(|mark| mark.text().is_none());
    let numbers: Vec<f64> =
        others().filter_map(|mark| if let Kind::Number(n) = mark.kind { Some(n) } else { None }).collect();
    let moments: Vec<_> =
        others().filter_map(|mark| if let Kind::Moment(m) = mark.kind { Some(m) } else { None }).collect();
    let count = others().count();
    let are_years = numbers.len() == count
        && count >= 2
        && numbers.iter().all(|number| number.fract() == 0.0 && (1900.0..=2100.0).contains(number))
        && numbers.windows(2).all(|pair| pair[1] != pair[0] && pair[1] - pair[0] == numbers[1] - numbers[0]);
    let are_days = moments.len() == count
        && count >= 2
        && (moments.windows(2).all(|pair| pair[0] < pair[1]) || moments.windows(2).all(|pair| pair[0] > pair[1]));
    are_years || are_days
}

fn name(mark: &Mark) -> Option<String> {
    match &mark.kind {
        Kind::Text(text) if text.is_empty() => None,
        Kind::Text(text) => Some(text.clone()),
        Kind::Number(number) => Some(number.to_string()),
        Kind::Moment(moment) => Some(moment.to_string().trim_end_matches("T00:00:00").to_owned()),
        Kind::Other => None,
    }
}

/// The names of a row in which some stand over several columns; `None` if none does, or one over all.
fn spread(row: u32, marks: &[Mark], merged: &HashMap<u32, Vec<Range>>) -> Option<HashMap<u32, String>> {
    let merged = merged.get(&row)?;
    if marks.len() < 2 {
        return None;
    }
    let mut names = HashMap::new();
    let mut is_spread = false;
    for mark in marks {
        let Some(name) = name(mark) else { continue };
        let over = merged.iter().find(|range| range.first().column() == mark.column);
        for column in mark.column..=over.map_or(mark.column, |range| range.last().column()) {
            names.insert(column, name.clone());
        }
        is_spread |= over.is_some();
    }
    is_spread.then_some(names)
}

fn joined(above: &HashMap<u32, String>, below: &[Mark]) -> HashMap<u32, String> {
    let mut names = above.clone();
    for mark in below {
        let Some(own) = name(mark) else { continue };
        names.entry(mark.column).and_modify(|name| *name = format!("{name} {own}")).or_insert(own);
    }
    names
}

/// The columns that have a name or a value below the rows of the header.
fn wanted(region: &Region, above: &[(u32, &[Mark])], names: &HashMap<u32, String>) -> Vec<(u32, Column)> {
    let mut counted: HashMap<u32, Vec<&Mark>> = HashMap::new();
    for mark in above.iter().flat_map(|(_, marks)| marks.iter()) {
        counted.entry(mark.column).or_default().push(mark);
    }
    let columns = region.range.first().column()..=region.range.last().column();
    let body = columns.map(|column| {
        let above = counted.get(&column).into_iter().flatten().copied();
        (column, region.column(column).without(above))
    });
    body.filter(|(column, body)| body.filled > 0 || names.contains_key(column)).collect()
}

/// Whether enough columns have a name. The first one counts as named, because labels and row numbers often have none.
fn names_most(wanted: &[(u32, Column)], names: &HashMap<u32, String>) -> bool {
    let lacking = wanted.iter().skip(1).filter(|(column, _)| !names.contains_key(column)).count();
    (wanted.len() - lacking) * 4 >= wanted.len() * NAMED_QUARTERS
}

fn table(region: &Region, header: Header, above: &[(u32, &[Mark])], titles: Vec<String>) -> Result<Table, String> {
    let Header { rows, names } = header;
    let row = rows.last().copied().unwrap_or_default();
    let wanted = wanted(region, above, &names);
    let (Some((first, _)), Some((last, _))) = (wanted.first(), wanted.last()) else {
        return Err(format!("row {row} names no column"));
    };
    if !names_most(&wanted, &names) {
        return Err(format!("row {row} names too few of its {} columns", wanted.len()));
    }
    let mut seen = HashSet::new();
    let mut renamed = Vec::new();
    let columns: Vec<RecordColumn> = wanted
        .iter()
        .map(|(column, _)| {
            let letters = column_letters(*column);
            let header = match names.get(column) {
                Some(name) if seen.insert(name.clone()) => name.clone(),
                other => {
                    renamed.push(letters.clone());
                    let unique =
                        other.map_or_else(|| format!("Column {letters}"), |name| format!("{name} ({letters})"));
                    // A name may look like one that was made up.
                    if seen.insert(unique.clone()) { unique } else { format!("{unique} [{letters}]") }
                }
            };
            RecordColumn { column: letters, header }
        })
        .collect();
    let is_contrast = wanted.iter().any(|(column, body)| names.contains_key(column) && body.is_data());
    let are_plain = names.values().all(|name| name.chars().count() <= PLAIN_NAME_CHARACTERS);
    let reason = if is_contrast {
        format!("row {row} has names over columns of values")
    } else if renamed.is_empty() && are_plain && wanted.len() >= 3 {
        format!("row {row} has a distinct name in every column")
    } else {
        return Err(format!("row {row} looks like any other row"));
    };
    let range = |last_row: u32| {
        let corner = |row, column| CellRef::new(row, column);
        Some(Range::new(corner(rows.first().copied()?, *first)?, corner(last_row, *last)?))
    };
    let (last_row, totals_row) = end(region, row, wanted.len());
    let range = range(last_row).filter(|_| last_row > row).ok_or_else(|| format!("row {row} has no rows below it"))?;
    Ok(Table { range, header_rows: rows, columns, titles, totals_row, renamed, reason })
}

/// The last row of a table, without the notes below it, and whether it adds up the others.
fn end(region: &Region, header: u32, columns: usize) -> (u32, Option<u32>) {
    let kept: &Rows = if region.tail.is_empty() { &region.head } else { &region.tail };
    let mut rows = kept.iter().rev().take_while(|(row, _)| **row > header).peekable();
    let mut end = region.range.last().row();
    while let Some((row, marks)) = rows.peek() {
        let is_note = columns >= 3 && matches!(marks.as_slice(), [mark] if mark.text().is_some() && !is_totals(marks));
        if !is_note {
            return (**row, is_totals(marks).then_some(**row));
        }
        end = row.saturating_sub(1);
        rows.next();
    }
    (end, None)
}

/// Whether a row adds up others: its first text says so, or all of its values are sums.
fn is_totals(marks: &[Mark]) -> bool {
    let label = marks.iter().find_map(Mark::text).unwrap_or_default().trim_end_matches(':').to_lowercase();
    let has_values = marks.iter().any(|mark| mark.text().is_none());
    let starts =
        |word: &str| label == word || label.strip_prefix(word).is_some_and(|rest| rest.starts_with([' ', ',', '(']));
    let is_named = TOTALS.iter().any(|word| starts(word));
    let values = || marks.iter().filter(|mark| mark.text().is_none());
    let are_sums = values().count() >= 2 && values().all(|mark| mark.is_sum);
    has_values && (is_named || are_sums)
}
