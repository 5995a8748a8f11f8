//! Describes a profiled sheet: the text of its profile node, and the evidence.
use super::records::{json, one_line};
use serde_json::{Value as Json, json};
use svc_formats::xlsx::{ColumnProfile, SheetProfile, SheetState};

/// The most entries in each list of the evidence; further ones are counted.
const LISTED: usize = 1000;
/// The most characters of an example, or of a column's name, in the text.
const SHOWN: usize = 60;

/// The text of a sheet's profile node in at most `max_chars` characters. A sheet whose rows are not records is found by
/// it. Columns without room are counted; the evidence has them.
pub fn text(workbook: &str, profile: &SheetProfile, max_chars: usize) -> String {
    let mut text = head(workbook, profile);
    let rest = |columns: usize| format!(" And {}.", counted(columns as u64, "more column"));
    // This leaves room for the line that says how many columns are omitted.
    let room = max_chars.saturating_sub(rest(profile.columns.len()).chars().count());
    let mut characters = text.chars().count();
    for (index, column) in profile.columns.iter().enumerate() {
        let line = format!("\n{}", about(column));
        let length = line.chars().count();
        if characters + length > room {
            text.push_str(&rest(profile.columns.len() - index));
            break;
        }
        characters += length;
        text.push_str(&line);
    }
    text
}

fn head(workbook: &str, profile: &SheetProfile) -> String {
    let state = match profile.sheet.state {
        SheetState::Visible => "",
        SheetState::Hidden => "hidden ",
        SheetState::VeryHidden => "very hidden ",
    };
    let mut head = format!("The {state}sheet {} of {workbook}", shown(&profile.sheet.name));
    match profile.used_range {
        None => head.push_str(" is empty."),
        Some(range) => {
            head += &format!(" holds {} in {range}", counted(profile.nonempty_cells, "filled cell"));
            match profile.formulas {
                0 => {}
                1 => head.push_str(", 1 of them a formula"),
                formulas => head += &format!(", {formulas} of them formulas"),
            }
            head.push('.');
        }
    }
    match profile.header.row {
        Some(row) if profile.header.is_header => head += &format!(" Row {row} names the columns:"),
        Some(_) => head += " Its columns:",
        None => {}
    }
    head
}

/// For example `Year: 6 numbers, 2019 to 2024.`
fn about(column: &ColumnProfile) -> String {
    let name = column.header.as_deref().map_or_else(|| format!("Column {}", column.column), shown);
    let types = &column.types;
    let counts = [
        (types.text, "text"),
        (types.number, "number"),
        (types.date, "date"),
        (types.duration, "duration"),
        (types.boolean, "boolean"),
        (types.error, "error"),
    ];
    let counts: Vec<String> =
        counts.iter().filter(|(count, _)| *count > 0).map(|(n, what)| counted(*n, what)).collect();
    let mut about = format!("{name}: {}", if counts.is_empty() { "no values".to_owned() } else { counts.join(", ") });
    if let Some(sketch) = &column.sketch {
        if types.text * 2 >= column.filled && !sketch.examples.is_empty() {
            let examples: Vec<String> = sketch.examples.iter().map(|example| shown(example)).collect();
            about += &format!(", such as {}", examples.join(", "));
        } else if let (Some(min), Some(max)) = (&sketch.min, &sketch.max) {
            about += &format!(", {} to {}", plain(&json(min)), plain(&json(max)));
        }
    }
    if !about.ends_with('.') {
        about.push('.');
    }
    about
}

/// For example `1 text` or `2 texts`.
fn counted(count: u64, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

fn shown(text: &str) -> String {
    let line = one_line(text);
    match line.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

fn plain(value: &Json) -> String {
    match value {
        Json::String(text) => shown(text.strip_suffix("T00:00:00").unwrap_or(text)),
        other => other.to_string(),
    }
}

/// The evidence of a profile. Long lists are cut, each with the total count.
pub fn evidence(profile: &SheetProfile) -> Result<Json, serde_json::Error> {
    let mut evidence = serde_json::to_value(profile)?;
    if let Json::Object(members) = &mut evidence {
        // The sheet is omitted, because it is the node's own evidence.
        members.remove("sheet");
        members.insert("column_count".to_owned(), profile.columns.len().into());
        for list in ["columns", "merged", "comments", "hidden_columns"] {
            if let Some(Json::Array(entries)) = members.get_mut(list)
                && entries.len() > LISTED
            {
                entries.truncate(LISTED);
                members.insert(format!("{list}_listed"), json!(LISTED));
            }
        }
    }
    Ok(evidence)
}

#[cfg(test)]
mod tests {
    use super::*;
    use svc_formats::xlsx::TypeCounts;

    fn profile(columns: usize) -> SheetProfile {
        let column = |index: usize| {
            json!({"column": "A", "header": format!("Name {index}"), "filled": 6, "fill_ratio": 1.0, "formulas": 0,
                   "types": {"text": 0, "number": 6, "boolean": 0, "date": 0, "duration": 0, "error": 0},
                   "number_formats": [["General", 6]],
                   "sketch": {"min": {"type": "number", "value": 2019.0}, "max": {"type": "number", "value": 2024.0},
                              "distinct": 6, "distinct_exact": true, "examples": ["2019", "2020"]}})
        };
        serde_json::from_value(json!({
            "sheet": {"index": 0, "name": "Duck\nObservations", "kind": "worksheet", "state": "very_hidden"},
            "used_range": "A1:A7", "nonempty_cells": 7, "formulas": 2, "hidden_rows": 0, "hidden_columns": [],
            "merged": [], "merged_count": 0, "comments": [], "comment_count": 0,
            "columns": (0..columns).map(column).collect::<Vec<_>>(),
            "header": {"row": 1, "is_header": true, "reason": "a distinct text in every column"},
        }))
        .expect("a profile")
    }

    #[test]
    fn a_profile_reads_as_sentences() {
        assert_eq!(
            text("ducks.xlsx", &profile(1), 1800),
            "The very hidden sheet Duck Observations of ducks.xlsx holds 7 filled cells in A1:A7, 2 of them formulas. \
             Row 1 names the columns:\nName 0: 6 numbers, 2019 to 2024."
        );
    }

    #[test]
    fn one_of_a_kind_is_said_as_one() {
        let mut single = profile(1);
        (single.nonempty_cells, single.formulas) = (1, 1);
        single.columns[0].types = TypeCounts { text: 1, date: 1, ..TypeCounts::default() };
        let text = text("ducks.xlsx", &single, 1800);
        assert!(text.contains("1 filled cell in A1:A7, 1 of them a formula."), "{text}");
        assert!(text.contains("Name 0: 1 text, 1 date,"), "{text}");
    }

    #[test]
    fn columns_without_room_are_counted() {
        let text = text("ducks.xlsx", &profile(16_384), 400);
        assert!(text.chars().count() <= 400 && text.ends_with(" more columns."), "{text}");
    }

    #[test]
    fn evidence_is_bounded() {
        let evidence = evidence(&profile(1500)).expect("evidence");
        assert_eq!(
            (evidence["columns"].as_array().map(Vec::len), &evidence["column_count"], &evidence["columns_listed"]),
            (Some(1000), &json!(1500), &json!(1000))
        );
    }
}
