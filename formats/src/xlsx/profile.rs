//! Measures a sheet: the range it uses, what its columns hold, and whether its first row names them.

use super::{
    outline::{Outline, Placed},
    range::{Range, column_letters},
    sheet::{ColumnProfile, HeaderEvidence, SheetProfile},
    tally::Tally,
    value::Interpreter,
    workbook::Opened,
    worksheet::Item,
};
use crate::{FormatError, Limits};

/// Tallies by column, counted from 1.
struct Columns {
    tallies: Vec<Option<Box<Tally>>>,
    sketch: bool,
}

impl Columns {
    fn tally(&mut self, column: u32) -> &mut Tally {
        let index = column as usize;
        if self.tallies.len() <= index {
            self.tallies.resize_with(index + 1, || None);
        }
        self.tallies[index].get_or_insert_with(|| Box::new(Tally::new(self.sketch)))
    }
}

/// Measures a sheet.
pub(super) fn profile(
    mut opened: Opened<'_>,
    index: u32,
    sketch: bool,
    limits: &Limits,
) -> Result<SheetProfile, FormatError> {
    let sheet = opened.sheet(index)?;
    let interpreter = opened.interpreter(limits)?;
    let comments = opened.comments(index, limits)?;
    let mut profile = SheetProfile {
        sheet,
        used_range: None,
        nonempty_cells: 0,
        formulas: 0,
        hidden_rows: 0,
        hidden_columns: Vec::new(),
        merged: Vec::new(),
        merged_count: 0,
        comments: comments.kept,
        comment_count: comments.count,
        columns: Vec::new(),
        header: HeaderEvidence { row: None, is_header: false, reason: String::new() },
    };
    let mut worksheet = opened.scan(index, limits)?;
    let mut columns = Columns { tallies: Vec::new(), sketch };
    let mut outline = Outline::default();
    while let Some(item) = worksheet.next()? {
        match item {
            Item::Row { hidden, .. } => profile.hidden_rows += u64::from(hidden),
            Item::Cell(at, raw) => {
                profile.nonempty_cells += 1;
                profile.formulas += u64::from(raw.formula.is_some());
                match outline.add(at, raw) {
                    Placed::Below => columns.tally(at.column()).add(raw, &interpreter),
                    Placed::First(before) => {
                        for (at, raw) in before {
                            columns.tally(at.column()).add(&raw, &interpreter);
                        }
                    }
                }
            }
            Item::HiddenColumns { first, last } => {
                if profile.hidden_columns.len() < SheetProfile::MAX_MERGED {
                    profile.hidden_columns.push(format!("{}:{}", column_letters(first), column_letters(last)));
                }
            }
            Item::Merged(range) => {
                profile.merged_count += 1;
                if profile.merged.len() < SheetProfile::MAX_MERGED {
                    profile.merged.push(range);
                }
            }
        }
    }
    profile.used_range = outline.used();
    let (header, names) = outline.header(&interpreter);
    profile.header = header;
    if let Some(used) = profile.used_range {
        profile.columns = finish(columns, outline, used, names, &interpreter);
    }
    Ok(profile)
}

fn finish(
    mut columns: Columns,
    outline: Outline,
    used: Range,
    names: Vec<String>,
    interpreter: &Interpreter,
) -> Vec<ColumnProfile> {
    let is_header = !names.is_empty();
    for (at, raw) in outline.into_first() {
        let tally = columns.tally(at.column());
        if !is_header {
            tally.add(&raw, interpreter);
        }
    }
    let rows = u64::from(used.height()) - u64::from(is_header);
    let name = |column: usize| names.get(column - used.first().column() as usize).cloned();
    (0u32..)
        .zip(columns.tallies)
        .filter_map(|(column, tally)| Some((column, *tally?)))
        .map(|(column, tally)| tally.profile(column_letters(column), name(column as usize), rows, interpreter))
        .collect()
}
