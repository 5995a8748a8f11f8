//! Binary workbooks built by hand, one for each trap.

use super::{
    super::{Cells, Value, cells, profile_sheet, records, tests::listed, workbook},
    *,
};
use crate::{Pattern, detect, probe};
use std::io::{Cursor, Write};
use zip::{ZipWriter, write::SimpleFileOptions};

fn record(kind: u16, body: &[u8]) -> Vec<u8> {
    let number = |mut value: usize| {
        let mut out = Vec::new();
        while value >= 0x80 {
            out.push((value & 0x7F) as u8 | 0x80);
            value >>= 7;
        }
        out.push(value as u8);
        out
    };
    [number(kind.into()), number(body.len()), body.to_vec()].concat()
}

fn numbers(numbers: &[u32]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_le_bytes()).collect()
}

fn text(text: &str) -> Vec<u8> {
    let units: Vec<u16> = text.encode_utf16().collect();
    let units: Vec<u8> = units.iter().flat_map(|unit| unit.to_le_bytes()).collect();
    [numbers(&[text.encode_utf16().count() as u32]), units].concat()
}

fn row(row: u32, marks: u8) -> Vec<u8> {
    record(0, &[numbers(&[row, 0]), vec![0, 0, 0, marks, 0], numbers(&[0])].concat())
}

fn cell(kind: u16, column: u32, style: u32, value: &[u8]) -> Vec<u8> {
    record(kind, &[&numbers(&[column, style])[..], value].concat())
}

/// A result with its formula; what the tokens refer to beyond themselves follows them.
fn formula(result: &[u8], tokens: &[u8], more: &[u8]) -> Vec<u8> {
    [result, &[0, 0], &numbers(&[tokens.len() as u32]), tokens, &numbers(&[more.len() as u32]), more].concat()
}

struct Book {
    sheet: Vec<u8>,
    main: Vec<u8>,
    parts: Vec<(&'static str, Vec<u8>)>,
}

impl Book {
    fn new(cells: &[Vec<u8>]) -> Self {
        Self::of_sheet(&[record(145, &[]), cells.concat(), record(146, &[])])
    }

    fn of_sheet(records: &[Vec<u8>]) -> Self {
        let sheet = [record(129, &[]), records.concat(), record(130, &[])].concat();
        Self { sheet, main: Vec::new(), parts: Vec::new() }
    }

    fn with(mut self, name: &'static str, records: &[Vec<u8>]) -> Self {
        self.parts.push((name, records.concat()));
        self
    }

    fn bytes(&self) -> Cursor<Vec<u8>> {
        let relation = |id: &str, kind: &str, target: &str| {
            format!("<Relationship Id=\"{id}\" Type=\"x/{kind}\" Target=\"{target}\"/>")
        };
        let tab =
            |state: u32, id: &str, name: &str| record(156, &[numbers(&[state, 1]), text(id), text(name)].concat());
        let main =
            [record(131, &[]), tab(0, "rId1", "Ponds"), tab(2, "rId2", "Away"), self.main.clone(), record(132, &[])]
                .concat();
        let relations = [
            relation("rId1", "worksheet", "worksheets/sheet1.bin"),
            relation("rId2", "chartsheet", "chartsheets/sheet1.bin"),
            relation("s", "styles", "styles.bin"),
            relation("t", "sharedStrings", "sharedStrings.bin"),
        ];
        let root = format!("<Relationships>{}</Relationships>", relation("r", "officeDocument", "xl/workbook.bin"));
        let notes = format!("<Relationships>{}</Relationships>", relation("n", "comments", "../comments1.bin"));
        let relations = format!("<Relationships>{}</Relationships>", relations.concat());
        let types = "<Types><Override PartName=\"/xl/workbook.bin\" ContentType=\"application/vnd.ms-excel.sheet.binary.macroEnabled.main\"/></Types>";
        let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
        let own: [(&str, &[u8]); 6] = [
            ("[Content_Types].xml", types.as_bytes()),
            ("_rels/.rels", root.as_bytes()),
            ("xl/workbook.bin", &main),
            ("xl/_rels/workbook.bin.rels", relations.as_bytes()),
            ("xl/worksheets/sheet1.bin", &self.sheet),
            ("xl/worksheets/_rels/sheet1.bin.rels", notes.as_bytes()),
        ];
        for (name, bytes) in own.into_iter().chain(self.parts.iter().map(|(name, part)| (*name, part.as_slice()))) {
            writer.start_file(name, SimpleFileOptions::default()).unwrap();
            writer.write_all(bytes).unwrap();
        }
        writer.finish().unwrap()
    }

    fn cells(&self, range: &str) -> Cells {
        cells(self.bytes().into(), 0, range.parse().unwrap(), &Limits::default()).unwrap()
    }
}

#[test]
fn each_kind_of_cell_reads_as_what_it_is() {
    let rich = [&[1][..], &text("rich"), &numbers(&[1, 0])].concat();
    let book = Book::new(&[
        row(0, 0),
        cell(2, 0, 0, &numbers(&[7 << 2 | 2])),
        cell(3, 1, 0, &[0x17]),
        cell(4, 2, 0, &[1]),
        cell(5, 3, 1, &45_000f64.to_le_bytes()),
        record(18, &numbers(&[0, 1])),
        cell(1, 5, 1, &[]),
        row(1, 0x10),
        cell(6, 0, 0, &text("h\u{e9}ron")),
        cell(7, 1, 0, &numbers(&[0])),
        cell(62, 2, 0, &rich),
        cell(7, 3, 0, &numbers(&[9])),
    ])
    .with(
        "xl/sharedStrings.bin",
        &[record(159, &numbers(&[2, 2])), record(19, &[&[0][..], &text("teal")].concat()), record(19, &rich)],
    )
    .with(
        "xl/styles.bin",
        &[
            record(44, &[vec![164, 0], text("yyyy-mm-dd")].concat()),
            record(47, &[0, 0, 9, 0]),
            record(617, &numbers(&[2])),
            record(47, &[0, 0, 0, 0]),
            record(47, &[0, 0, 164, 0]),
            record(618, &[]),
        ],
    );
    let read = book.cells("A1:Z9");
    assert_eq!(
        listed(&read),
        ["A1=7", "B1=#REF!", "C1=TRUE", "D1=2023-03-15", "E1=rich", "A2=h\u{e9}ron", "B2=teal", "C2=rich", "D2="]
    );
    assert_eq!(read.rows[0].cells[3].value, Some(Value::Date("2023-03-15T00:00:00".into())));
    assert!(!read.rows[0].hidden && read.rows[1].hidden);
}

#[test]
fn a_raised_number_is_no_part_of_the_number_before_it() {
    let font = |script: u8| record(43, &[200, 0, 0, 0, 144, 1, script, 0, 0, 0, 0, 0]);
    let rich = |shown: &str, runs: &[[u8; 4]]| {
        record(19, &[&[1][..], &text(shown), &numbers(&[runs.len() as u32]), &runs.concat()].concat())
    };
    let book = Book::new(&[row(0, 0), cell(7, 0, 0, &numbers(&[0])), cell(7, 1, 0, &numbers(&[1]))])
        .with("xl/sharedStrings.bin", &[rich("106 m", &[[2, 0, 1, 0], [3, 0, 0, 0]]), rich("H25", &[[1, 0, 2, 0]])])
        .with("xl/styles.bin", &[font(0), font(1), font(2)]);
    assert_eq!(listed(&book.cells("A1:B1")), ["A1=10^6 m", "B1=H25"]);
}

#[test]
fn formulas_are_written_out_with_their_results() {
    let offset = [&[0x4C][..], &numbers(&[0xF_FFFF]), &[0xFF, 0xFF]].concat();
    let shares = [&[0x01][..], &numbers(&[1])].concat();
    let shared = [numbers(&[1, 2, 1, 1, offset.len() as u32]), offset].concat();
    let mut book = Book::new(&[
        row(0, 0),
        cell(8, 0, 0, &formula(&text("ab"), &[0x17, 2, 0, b'a', 0, b'b', 0], &[])),
        cell(9, 1, 0, &formula(&3f64.to_le_bytes(), &[0x1E, 1, 0, 0x1E, 2, 0, 0x03], &[])),
        cell(10, 2, 0, &formula(&[1], &[0x1D, 1], &[])),
        cell(11, 3, 0, &formula(&[0x07], &[0x23, 1, 0, 0, 0], &[])),
        row(1, 0),
        cell(9, 1, 0, &formula(&5f64.to_le_bytes(), &shares, &numbers(&[1]))),
        record(427, &shared),
        row(2, 0),
        cell(9, 1, 0, &formula(&6f64.to_le_bytes(), &shares, &numbers(&[1]))),
        row(3, 0),
        cell(9, 0, 0, &formula(&6f64.to_le_bytes(), &[0x3A, 0, 0, 0, 0, 0, 0, 0, 0], &[])),
    ]);
    let name =
        [&[0; 5][..], &numbers(&[u32::MAX]), &text("Rate"), &numbers(&[3]), &[0x1E, 7, 0], &numbers(&[0])].concat();
    book.main =
        [record(357, &[]), record(362, &numbers(&[1, 0, 0, 0])), record(39, &name), record(153, &numbers(&[1]))]
            .concat();
    assert_eq!(
        listed(&book.cells("A1:F9")),
        ["A1=ab =\"ab\"", "B1=3 =1+2", "C1=TRUE =TRUE", "D1=#DIV/0! =Rate", "B2=5 =A1", "B3=6 =A2", "A4=6 =Ponds!$A$1"]
    );
    let read = workbook(book.bytes(), &Limits::default()).unwrap();
    assert_eq!((read.defined_names[0].refers_to.as_str(), read.defined_names[0].sheet), ("7", None));
    assert_eq!(read.date_epoch, DateEpoch::From1904);
    let sheets: Vec<_> = read.sheets.iter().map(|sheet| (sheet.name.as_str(), sheet.kind, sheet.state)).collect();
    assert_eq!(
        sheets,
        [("Ponds", SheetKind::Worksheet, SheetState::Visible), ("Away", SheetKind::Chartsheet, SheetState::VeryHidden)]
    );
}

#[test]
fn columns_merges_and_notes() {
    let one = cell(2, 0, 0, &numbers(&[6]));
    let book = Book::of_sheet(&[
        record(60, &[numbers(&[2, 4, 0, 0]), vec![1, 0]].concat()),
        record(145, &[]),
        [row(0, 0), one.clone(), row(1, 0x10), one].concat(),
        record(146, &[]),
        record(176, &numbers(&[0, 1, 0, 0])),
        record(176, &numbers(&[5, 6, 1, u32::MAX])),
    ])
    .with(
        "xl/comments1.bin",
        &[
            record(632, &text("Ada")),
            record(635, &numbers(&[0, 1, 1, 0, 0])),
            record(637, &[&[0][..], &text("twice")].concat()),
            record(636, &[]),
        ],
    );
    let profile = profile_sheet(book.bytes().into(), 0, true, &Limits::default()).unwrap();
    assert_eq!((profile.hidden_rows, profile.hidden_columns.as_slice()), (1, &["C:E".to_owned()][..]));
    assert_eq!(profile.merged, ["A1:A2".parse().unwrap()], "a range beyond the sheet is none");
    let notes: Vec<_> =
        profile.comments.iter().map(|note| format!("{} {}: {}", note.cell, note.author, note.text)).collect();
    assert_eq!(notes, ["A2 Ada: twice"]);
    assert_eq!(book.cells("A1:A1").merged, Some(vec!["A1:A2".parse().unwrap()]), "merged ranges come after all cells");
    let patterns = probe(Format::Xlsb, book.bytes(), &Limits::default()).unwrap();
    assert!(patterns.holds(Pattern::HasComments) && patterns.holds(Pattern::HasSheets));
}

#[test]
fn what_is_damaged_is_refused_by_name() {
    let limits = Limits { cells: 10, ..Limits::default() };
    let many: Vec<_> =
        std::iter::once(row(0, 0)).chain((0..11).map(|column| cell(2, column, 0, &numbers(&[6])))).collect();
    let refused = |book: Book| profile_sheet(book.bytes().into(), 0, true, &limits).unwrap_err();
    assert_eq!(refused(Book::new(&many)).limit(), Some(Limit::Cells));
    assert_eq!(refused(Book::new(&[row(MAX_ROW, 0)])).code(), "corrupt");
    assert_eq!(refused(Book::new(&[row(0, 0), cell(2, MAX_COLUMN, 0, &numbers(&[6]))])).code(), "corrupt");
    assert_eq!(refused(Book::new(&[cell(2, 0, 0, &numbers(&[6]))])).code(), "corrupt", "a cell without a row");
    let mut book = Book::new(&[]);
    book.sheet = vec![0x00, 0xFF, 0xFF, 0xFF, 0x7F];
    assert_eq!(refused(book).limit(), Some(Limit::TextBytes));
    let mut book = Book::new(&[]);
    book.sheet = vec![0x81, 0x01, 0x08, 0x00];
    let error = refused(book);
    assert!(error.code() == "corrupt" && error.to_string().contains("xlsb"), "{error}");
}

#[test]
fn a_part_that_is_cut_or_changed_anywhere_still_answers() {
    let shares = [&[0x01][..], &numbers(&[0])].concat();
    let shared = [numbers(&[0, 0, 0, 0, 7]), vec![0x4C, 0xFF, 0xFF, 0x0F, 0, 0xFF, 0xFF]].concat();
    let book = Book::new(&[
        row(0, 0),
        cell(9, 0, 0, &formula(&[0; 8], &shares, &numbers(&[0]))),
        record(427, &shared),
        cell(6, 1, 0, &text("teal")),
    ]);
    assert_eq!(detect(&mut book.bytes()).unwrap().format, Some(Format::Xlsb));
    let limits = Limits::default();
    let read = |sheet: Vec<u8>| {
        let bytes = Book { sheet, main: Vec::new(), parts: Vec::new() }.bytes();
        profile_sheet(bytes.clone().into(), 0, true, &limits).ok();
        records(bytes.clone().into(), 0, true, &limits, &mut |_| Ok(())).ok();
        cells(bytes.into(), 0, "A1:C9".parse().unwrap(), &limits).ok();
    };
    for cut in 0..book.sheet.len() {
        read(book.sheet[..cut].to_vec());
        for value in [0, 1, 0x7F, 0xFF] {
            let mut changed = book.sheet.clone();
            changed[cut] = value;
            read(changed);
        }
    }
}
