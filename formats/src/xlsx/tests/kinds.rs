//! One workbook in each kind of file that holds workbooks.

use super::*;
use crate::{detect, probe};
use std::{fs, path::Path};

fn sample(extension: &str) -> Cursor<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/samples");
    Cursor::new(fs::read(folder.join(format!("duck-counts.{extension}"))).unwrap())
}

/// All that is read of a workbook, except how its format writes number formats.
fn read(bytes: &Cursor<Vec<u8>>) -> (Workbook, Vec<SheetProfile>, Vec<RecordsPart>, Vec<Cells>) {
    let limits = Limits::default();
    let book = workbook(bytes.clone(), &limits).unwrap();
    let (mut profiles, mut parts, mut areas) = (Vec::new(), Vec::new(), Vec::new());
    for sheet in &book.sheets {
        let mut profile = profile_sheet(bytes.clone().into(), sheet.index, true, &limits).unwrap();
        profile.columns.iter_mut().for_each(|column| column.number_formats.clear());
        profiles.push(profile);
        records(bytes.clone().into(), sheet.index, true, &limits, &mut |part| {
            parts.push(part);
            Ok(())
        })
        .unwrap();
        let mut area = cells(bytes.clone().into(), sheet.index, "A1:J20".parse().unwrap(), &limits).unwrap();
        let all = area.rows.iter_mut().flat_map(|row| &mut row.cells);
        all.for_each(|cell| cell.number_format.retain(|character| character != '\\'));
        areas.push(area);
    }
    (book, profiles, parts, areas)
}

#[test]
fn the_same_workbook_reads_the_same_from_every_kind_of_file() {
    let expected = read(&sample("xlsx"));
    let first = &expected.3[0].rows[1].cells;
    assert_eq!((first[0].text.as_str(), first[0].number_format.as_str()), ("2023-04-03", "yyyy-mm-dd"));
    assert_eq!(first[4].formula.as_deref(), Some("=C2+D2"));
    for (extension, format) in [("ods", Format::Ods), ("xls", Format::Xls), ("xlsb", Format::Xlsb)] {
        let bytes = sample(extension);
        assert_eq!(detect(&mut bytes.clone()).unwrap().format, Some(format));
        assert_eq!(read(&bytes), expected, "{extension}");
        let patterns = probe(format, bytes, &Limits::default()).unwrap();
        assert_eq!(patterns.get(crate::Pattern::SheetCount), Some(&4.into()), "{extension}");
    }
}
