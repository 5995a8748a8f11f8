//! Workbooks that are hostile, of the three formats whose rows are read one at a time.
use super::{is_named, package, read_bytes};
use std::io::{Cursor, Write};
use svc_formats::isolated::Step;
use zip::{ZipWriter, write::SimpleFileOptions};

/// A legacy workbook of one sheet: a record is its kind and its body. The first ones are about the whole workbook.
fn legacy(globals: &[(u16, Vec<u8>)], sheet: &[(u16, Vec<u8>)]) -> Vec<u8> {
    let record = |kind: u16, body: &[u8]| [&kind.to_le_bytes()[..], &(body.len() as u16).to_le_bytes(), body].concat();
    let all =
        |records: &[(u16, Vec<u8>)]| records.iter().flat_map(|(kind, body)| record(*kind, body)).collect::<Vec<u8>>();
    let begin = |kind: u8| record(0x0809, &[0, 6, kind, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let (head, globals, end) = (begin(5), all(globals), record(0x0A, &[]));
    let tab = |place: usize| record(0x85, &[&(place as u32).to_le_bytes()[..], &[0, 0, 1, 0, b'S']].concat());
    let place = head.len() + tab(0).len() + globals.len() + end.len();
    let stream = [head, tab(place), globals, end.clone(), begin(0x10), all(sheet), end].concat();
    let mut file = cfb::CompoundFile::create(Cursor::new(Vec::new())).unwrap();
    file.create_stream("/Workbook").unwrap().write_all(&stream).unwrap();
    file.flush().unwrap();
    file.into_inner().into_inner()
}

/// A binary workbook of one sheet with these records.
fn binary(sheet: &[u8]) -> Vec<u8> {
    let text = |text: &str| {
        let units: Vec<u8> = text.encode_utf16().flat_map(u16::to_le_bytes).collect();
        [&(text.len() as u32).to_le_bytes()[..], &units].concat()
    };
    let tab = [&[0; 8][..], &text("r1"), &text("S")].concat();
    let main = [&[0x83, 1, 0, 0x9C, 1, tab.len() as u8][..], &tab, &[0x84, 1, 0]].concat();
    let relations = |kind: &str, target: &str| {
        format!("<Relationships><Relationship Id=\"r1\" Type=\"x/{kind}\" Target=\"{target}\"/></Relationships>")
            .into_bytes()
    };
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in [
        ("_rels/.rels", relations("officeDocument", "xl/workbook.bin")),
        ("xl/_rels/workbook.bin.rels", relations("worksheet", "s.bin")),
        ("xl/workbook.bin", main),
        ("xl/s.bin", [&[0x81, 1, 0], sheet].concat()),
    ] {
        writer.start_file(name, SimpleFileOptions::default()).unwrap();
        writer.write_all(&bytes).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

pub fn hostile_ones_end_named() {
    let open = |body: &str| {
        let text = format!(
            "<d><office:body><office:spreadsheet><table:table>{body}</table:table></office:spreadsheet></office:body></d>"
        );
        let text = text.replace("<d>", "<office:document-content>").replace("</d>", "</office:document-content>");
        package("application/vnd.oasis.opendocument.spreadsheet", &[("content.xml", &text)])
    };
    let rows = |rows: &str, columns: &str, attributes: &str, text: &str| {
        format!(
            "<table:table-row table:number-rows-repeated=\"{rows}\" {attributes}><table:table-cell \
             table:number-columns-repeated=\"{columns}\">{text}</table:table-cell></table:table-row>"
        )
    };
    let word = |number: u16| number.to_le_bytes();
    let number =
        |row: u16, column: u16| (0x0203, [&word(row)[..], &word(column), &[0, 0], &1.5f64.to_le_bytes()].concat());
    let far = |row: u32, column: u32| {
        let row = [&[0, 17][..], &row.to_le_bytes(), &[0; 13]].concat();
        [&row[..], &[2, 12], &column.to_le_bytes(), &[0; 4], &6u32.to_le_bytes()].concat()
    };
    let deep: Vec<u8> = [vec![0x1E, 1, 0], vec![0x13; 16_000]].concat();
    let formula = |row: u16| (0x0006, [&word(row)[..], &[0; 18], &word(deep.len() as u16), &deep].concat());
    for (case, bytes, is_read) in [
        ("empty cells that repeat without end", open(&rows("4294967295", "4294967295", "", "").repeat(1000)), true),
        ("a sheet of hidden rows", open(&rows("1048576", "1", "table:visibility=\"collapse\"", "")), true),
        ("a million million filled cells", open(&rows("1048576", "16384", "", "<text:p>x</text:p>")), false),
        ("filled cells beyond the sheet", open(&rows("1", "4294967295", "", "<text:p>x</text:p>")), false),
        (
            "a long text in many cells",
            open(&rows("1000", "1000", "", &format!("<text:p>{}</text:p>", "duck".repeat(1 << 16)))),
            false,
        ),
        ("blanks that unpack to 100 MB", open(&" ".repeat(100 << 20)), false),
        ("corners of a legacy sheet", legacy(&[], &[number(0, 0), number(65_535, 255)]), true),
        ("more texts than a file holds", legacy(&[(0x00FC, vec![0xFF; 8])], &[number(0, 0)]), true),
        (
            "texts that go on without end",
            legacy(&[(0x00FC, vec![1, 0, 0, 0, 1, 0, 0, 0, 0xFF, 0xFF, 8, 0xFF, 0xFF])], &[number(0, 0)]),
            true,
        ),
        ("formulas that grow at their beginning", legacy(&[], &(0..1000).map(formula).collect::<Vec<_>>()), true),
        ("corners of a binary sheet", binary(&[far(0, 0), far(1_048_575, 16_383)].concat()), true),
        ("a record of 256 MB", binary(&[1, 0xFF, 0xFF, 0xFF, 0x7F]), false),
        ("a row beyond the sheet", binary(&far(1_048_576, 0)), false),
    ] {
        let range = "A1:C1000".parse().unwrap();
        for step in [
            Step::ProfileSheet { sheet: 0, sketch_columns: true },
            Step::Records { sheet: 0, tables: true },
            Step::Cells { sheet: 0, range },
        ] {
            let is_area = matches!(step, Step::Cells { .. });
            let (answers, end) = read_bytes(step, &bytes);
            println!("{case}: {:?}", end.as_ref().map_err(ToString::to_string));
            match end {
                Ok(usage) => {
                    assert!(is_read || is_area, "{case} is refused");
                    assert!(!answers.is_empty(), "{case}");
                    assert!(usage.peak_bytes < 64 << 20, "{case}: a row at a time: {usage:?}");
                }
                Err(error) => assert!(!is_read && (is_named(&error) || error.code() == "corrupt"), "{case}: {error}"),
            }
        }
    }
}
