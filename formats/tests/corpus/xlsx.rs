//! xlsx: sheets, used ranges, values, formulas, formats, merges and comments.

use super::*;
use svc_formats::{
    Format, FormatError, Limits,
    xlsx::{self, Cell, CellRef, Cells, Range, SheetProfile, SheetState, Value as CellValue, Workbook},
};

impl Entry {
    fn workbook(&self) -> Workbook {
        xlsx::workbook(self.open(), &Limits::default()).unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }

    fn profile(&self, sheet: u32) -> SheetProfile {
        xlsx::profile_sheet(self.open().into(), sheet, true, &Limits::default())
            .unwrap_or_else(|error| panic!("{}: sheet {sheet}: {error}", self.name))
    }

    fn cells(&self, sheet: u32, range: Range) -> Cells {
        xlsx::cells(self.open().into(), sheet, range, &Limits::default())
            .unwrap_or_else(|error| panic!("{}: sheet {sheet}: {error}", self.name))
    }
}

fn workbooks() -> Vec<Entry> {
    corpus("").into_iter().filter(|entry| entry.detector == "xlsx").collect()
}

fn find(cells: &Cells, at: &str) -> Option<Cell> {
    let at: CellRef = at.parse().unwrap();
    cells.rows.iter().flat_map(|row| &row.cells).find(|cell| cell.cell == at).cloned()
}

/// A value in the form of the references, whose durations are Python's.
fn in_python(value: Option<&CellValue>) -> Value {
    match value {
        None => Value::Null,
        Some(CellValue::Text(text) | CellValue::Date(text) | CellValue::Error(text)) => text.as_str().into(),
        Some(CellValue::Boolean(truth)) => (*truth).into(),
        Some(CellValue::Number(number)) if number.fract() == 0.0 => (*number as i64).into(),
        Some(CellValue::Number(number)) => (*number).into(),
        Some(CellValue::Duration(span)) => {
            let seconds = span.milliseconds / 1000;
            let (days, of_day) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
            let plural = if days.abs() == 1 { "" } else { "s" };
            let days = if days == 0 { String::new() } else { format!("{days} day{plural}, ") };
            format!("{days}{}:{:02}:{:02}", of_day / 3600, of_day / 60 % 60, of_day % 60).into()
        }
    }
}

/// The references' letter for the type of a value.
fn letter(value: Option<&CellValue>) -> &'static str {
    match value {
        Some(CellValue::Text(_)) => "s",
        Some(CellValue::Boolean(_)) => "b",
        Some(CellValue::Date(_) | CellValue::Duration(_)) => "d",
        Some(CellValue::Error(_)) => "e",
        Some(CellValue::Number(_)) | None => "n",
    }
}

#[test]
fn workbooks_are_what_the_references_say() {
    for entry in workbooks() {
        let (name, expect, workbook) = (&entry.name, &entry.expect, entry.workbook());
        assert_eq!(workbook.sheets.len() as u64, expect["sheet_count"].as_u64().unwrap(), "{name}");
        if let Some(epoch) = expect["date_epoch"].as_u64() {
            assert_eq!(u64::from(workbook.date_epoch.year()), epoch, "{name}");
        }
        let mut comments = 0;
        for (index, sheet) in (0..).zip(expect["sheets"].as_array().unwrap()) {
            let found = &workbook.sheets[index as usize];
            assert_eq!(sheet["name"], found.name, "{name}");
            if let Some(kind) = sheet["kind"].as_str() {
                assert_eq!(serde_json::to_value(found.kind).unwrap(), kind, "{name}: {}", found.name);
            }
            let state = match found.state {
                SheetState::Visible => "visible",
                SheetState::Hidden => "hidden",
                SheetState::VeryHidden => "veryHidden",
            };
            if let Some(expected) = sheet["state"].as_str() {
                assert_eq!(state, expected, "{name}: {}", found.name);
            }
            let profile = entry.profile(index);
            comments += profile.comment_count;
            sheet_is(&entry, sheet, &profile);
        }
        if let Some(count) = expect["comment_count"].as_u64() {
            assert_eq!(comments, count, "{name}: comments");
        }
    }
}

fn sheet_is(entry: &Entry, expect: &Value, profile: &SheetProfile) {
    let name = format!("{}: {}", entry.name, profile.sheet.name);
    let used = profile.used_range.map(|range| range.to_string());
    assert_eq!(serde_json::json!(used), expect["used_range"], "{name}: used range");
    for (key, found) in [("nonempty_cells", profile.nonempty_cells), ("formulas", profile.formulas)] {
        if let Some(expected) = expect[key].as_u64() {
            assert_eq!(found, expected, "{name}: {key}");
        }
    }
    if expect["merged"].is_array() {
        assert_eq!(serde_json::to_value(&profile.merged).unwrap(), expect["merged"], "{name}: merged");
    }
    let filled: u64 = profile.columns.iter().map(|column| column.filled).sum();
    let of_header = if profile.header.is_header { profile.columns.len() as u64 } else { 0 };
    assert_eq!(filled + of_header, profile.nonempty_cells, "{name}: a cell is in one column");
    let samples = expect["sample_cells"].as_array().into_iter().flatten();
    for sample in samples {
        let at = sample["ref"].as_str().unwrap();
        // Each cell is requested alone, as callers request a rectangle.
        let cells = entry.cells(profile.sheet.index, at.parse().unwrap());
        let cell = find(&cells, at).unwrap_or_else(|| panic!("{name}: {at} is empty"));
        assert_eq!(in_python(cell.value.as_ref()), sample["value"], "{name}: {at}");
        assert_eq!(serde_json::json!(cell.formula), sample["formula"], "{name}: {at}: formula");
        assert_eq!(sample["number_format"], cell.number_format, "{name}: {at}: format");
        assert_eq!(sample["type"], letter(cell.value.as_ref()), "{name}: {at}: type");
    }
    for (at, value) in expect["cells"].as_object().into_iter().flatten() {
        let cell = find(&entry.cells(profile.sheet.index, at.parse().unwrap()), at);
        let cell = cell.unwrap_or_else(|| panic!("{name}: {at} is empty"));
        let (value, formula) = match value.as_array() {
            Some(pair) => (&pair[0], pair[1].as_str().map(|formula| format!("={formula}"))),
            None => (value, None),
        };
        assert_eq!((&in_python(cell.value.as_ref()), cell.formula), (value, formula), "{name}: {at}");
    }
}

#[test]
fn two_cells_in_the_corners_cost_no_rectangle() {
    let Some(entry) = corpus("made/sparse_corners.xlsx").pop() else { return };
    let profile = entry.profile(0);
    assert_eq!(profile.used_range.unwrap().area(), 17_179_869_184);
    assert_eq!(entry.cells(0, profile.used_range.unwrap()).rows.len(), 2);
    let mut parts = 0;
    xlsx::records(entry.open().into(), 0, false, &Limits::default(), &mut |part| {
        parts += 1;
        let no_records = matches!(&part, xlsx::RecordsPart::Head(head) if !head.header.is_header)
            || matches!(part, xlsx::RecordsPart::End { records: 0 });
        assert!(no_records, "{part:?}");
        Ok(())
    })
    .unwrap();
    assert_eq!(parts, 2);
}

/// Wherever it is cut, a workbook is read or permanently refused.
#[test]
fn a_damaged_workbook_is_refused_for_good() {
    for entry in corpus("xlsx/") {
        let whole = std::fs::read(&entry.path).unwrap();
        let broken = (0..whole.len()).step_by(whole.len() / 40 + 1).flat_map(|at| {
            let mut flipped = whole.clone();
            flipped[at] ^= 0x55;
            [whole[..at].to_vec(), flipped]
        });
        for bytes in broken {
            let source = || std::io::Cursor::new(bytes.as_slice());
            let permanent = |error: FormatError| assert!(error.is_permanent(), "{}: {error}", entry.name);
            let _ = probe(Format::Xlsx, source(), &Limits::default()).map_err(permanent);
            let Ok(workbook) = xlsx::workbook(source(), &Limits::default()).map_err(permanent) else { continue };
            for sheet in workbook.sheets {
                let _ = xlsx::profile_sheet(source().into(), sheet.index, true, &Limits::default()).map_err(permanent);
                let all = "A1:XFD1048576".parse().unwrap();
                let _ = xlsx::cells(source().into(), sheet.index, all, &Limits::default()).map_err(permanent);
            }
        }
    }
}
