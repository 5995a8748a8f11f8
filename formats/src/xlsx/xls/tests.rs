//! Legacy workbooks built by hand, one for each trap.

use super::{
    super::{Cells, SheetProfile, Value, cells, profile_sheet, records, shared_strings, tests::listed, workbook},
    *,
};
use crate::{Limit, detect, probe};
use std::io::{Cursor, Write};

fn record(kind: u16, body: &[u8]) -> Vec<u8> {
    [&kind.to_le_bytes()[..], &u16::try_from(body.len()).unwrap().to_le_bytes(), body].concat()
}

fn words(words: &[u16]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// A text with a length of two bytes, in one byte a character.
fn narrow(text: &str) -> Vec<u8> {
    [&words(&[u16::try_from(text.len()).unwrap()])[..], &[0], text.as_bytes()].concat()
}

fn wide(text: &str) -> Vec<u8> {
    let units: Vec<u16> = text.encode_utf16().collect();
    [&words(&[u16::try_from(units.len()).unwrap()])[..], &[1], &words(&units)].concat()
}

fn begin(version: u16, kind: u16) -> Vec<u8> {
    record(0x0809, &words(&[version, kind, 0, 0, 0, 0, 0, 0]))
}

/// A workbook of these records about it and these sheets.
struct Book {
    version: u16,
    globals: Vec<u8>,
    sheets: Vec<(Vec<u8>, u8, u8, Vec<u8>)>,
}

impl Book {
    fn new(records: &[Vec<u8>]) -> Self {
        Self { version: 0x0600, globals: Vec::new(), sheets: vec![(b"\x05\0Ponds".to_vec(), 0, 0, records.concat())] }
    }

    fn with(mut self, records: &[Vec<u8>]) -> Self {
        self.globals.extend(records.concat());
        self
    }

    fn stream(&self) -> Vec<u8> {
        let sheets: Vec<Vec<u8>> = self
            .sheets
            .iter()
            .map(|(.., records)| [begin(self.version, 0x10), records.clone(), record(0x000A, &[])].concat())
            .collect();
        let tabs: usize = self.sheets.iter().map(|(name, ..)| 4 + 6 + name.len()).sum();
        let head = begin(self.version, 5);
        let mut place = head.len() + self.globals.len() + tabs + 4;
        let mut out = [head, self.globals.clone()].concat();
        for ((name, state, kind, _), sheet) in self.sheets.iter().zip(&sheets) {
            out.extend(record(
                0x0085,
                &[&u32::try_from(place).unwrap().to_le_bytes()[..], &[*state, *kind], name].concat(),
            ));
            place += sheet.len();
        }
        out.extend(record(0x000A, &[]));
        out.extend(sheets.concat());
        out
    }

    fn bytes(&self) -> Cursor<Vec<u8>> {
        compound(if self.version == 0x0600 { "/Workbook" } else { "/Book" }, &self.stream())
    }

    fn cells(&self, range: &str) -> Cells {
        cells(self.bytes().into(), 0, range.parse().unwrap(), &Limits::default()).unwrap()
    }

    fn profile(&self) -> SheetProfile {
        profile_sheet(self.bytes().into(), 0, true, &Limits::default()).unwrap()
    }
}

fn compound(stream: &str, bytes: &[u8]) -> Cursor<Vec<u8>> {
    let mut file = CompoundFile::create(Cursor::new(Vec::new())).unwrap();
    file.create_stream(stream).unwrap().write_all(bytes).unwrap();
    file.flush().unwrap();
    file.into_inner()
}

fn number(row: u16, column: u16, style: u16, value: f64) -> Vec<u8> {
    record(0x0203, &[&words(&[row, column, style])[..], &value.to_le_bytes()].concat())
}

fn shared(row: u16, column: u16, index: u16) -> Vec<u8> {
    record(0x00FD, &words(&[row, column, 0, index, 0]))
}

/// A cell with a formula and a result in eight bytes.
fn formula(row: u16, column: u16, result: [u8; 8], tokens: &[u8]) -> Vec<u8> {
    let length = words(&[0, 0, 0, u16::try_from(tokens.len()).unwrap()]);
    record(0x0006, &[&words(&[row, column, 0])[..], &result, &length, tokens].concat())
}

#[test]
fn each_kind_of_cell_reads_as_what_it_is() {
    let formats = [
        record(0x041E, &[words(&[164]), narrow("yyyy-mm-dd")].concat()),
        record(0x00E0, &words(&[0, 0, 0])),
        record(0x00E0, &words(&[0, 164, 0])),
        record(0x00FC, &[&words(&[2, 0, 2, 0])[..], &narrow("teal"), &wide("h\u{e9}ron \u{1F986}")].concat()),
    ];
    let book = Book::new(&[
        number(0, 0, 0, 1.5),
        number(0, 1, 1, 45_000.0),
        record(0x027E, &words(&[0, 2, 0, 7 << 2 | 2, 0])),
        record(0x00BD, &words(&[1, 0, 0, 100 << 2 | 3, 0, 1, 0, 0x40E5, 0, 2 << 2 | 2, 0, 2])),
        shared(2, 0, 0),
        shared(2, 1, 1),
        shared(2, 2, 9),
        record(0x0204, &[words(&[3, 0, 0]), narrow("label")].concat()),
        record(0x0205, &[&words(&[3, 1, 0])[..], &[1, 0]].concat()),
        record(0x0205, &[&words(&[3, 2, 0])[..], &[0x2A, 1]].concat()),
        record(0x0201, &words(&[4, 0, 1])),
        record(0x00BE, &words(&[4, 1, 0, 0, 2])),
    ])
    .with(&formats);
    let read = book.cells("A1:Z9");
    assert_eq!(
        listed(&read),
        [
            "A1=1.5",
            "B1=2023-03-15",
            "C1=7",
            "A2=1",
            "B2=2017-09-30",
            "C2=2",
            "A3=teal",
            "B3=h\u{e9}ron \u{1F986}",
            "C3=",
            "A4=label",
            "B4=TRUE",
            "C4=#N/A",
        ]
    );
    assert_eq!(read.rows[0].cells[1].value, Some(Value::Date("2023-03-15T00:00:00".into())));
    assert_eq!(read.rows[0].cells[1].number_format, "yyyy-mm-dd");
    let mut texts = Vec::new();
    shared_strings(book.bytes(), &Limits::default(), &mut |batch| {
        texts.extend(batch);
        Ok(())
    })
    .unwrap();
    assert_eq!(texts, ["teal", "h\u{e9}ron \u{1F986}"]);
}

#[test]
fn formulas_are_written_out_with_their_results() {
    let number = |value: f64| value.to_le_bytes();
    let text = [0, 0, 0, 0, 0, 0, 0xFF, 0xFF];
    let reference = |row: u16, column: u16| [&[0x44][..], &words(&[row, column])].concat();
    let shares = [&[0x01][..], &words(&[1, 1])].concat();
    let in_table = [&[0x02][..], &words(&[4, 0])].concat();
    // One column to the left, one row up.
    let offset = [&[0x4C][..], &words(&[0xFFFF, 0xC0FF])].concat();
    let one = u16::try_from(offset.len()).unwrap();
    let book = Book::new(&[
        formula(0, 0, number(3.0), &[0x1E, 1, 0, 0x1E, 2, 0, 0x03]),
        formula(0, 1, text, &reference(0, 0)),
        record(0x0207, &wide("a\u{df}")),
        formula(0, 2, [1, 0, 1, 0, 0, 0, 0xFF, 0xFF], &[0x1D, 1]),
        formula(0, 3, [2, 0, 7, 0, 0, 0, 0xFF, 0xFF], &[0x20, 0, 0, 0, 0, 0, 0, 0]),
        formula(0, 4, [3, 0, 0, 0, 0, 0, 0xFF, 0xFF], &[0x17, 0, 0]),
        formula(1, 1, text, &shares),
        record(0x04BC, &[&words(&[1, 2])[..], &[1, 1, 0, 2], &words(&[one]), &offset].concat()),
        record(0x0207, &wide("b")),
        formula(2, 1, number(5.0), &shares),
        formula(3, 0, number(1.0), &[0x3A, 0, 0, 0, 0, 0, 0]),
        formula(4, 0, number(9.0), &in_table),
        record(0x0236, &[&words(&[4, 4])[..], &[0, 0], &words(&[4, 7, 2, 0, 0])].concat()),
    ])
    .with(&[
        record(0x01AE, &words(&[1, 0x0401])),
        record(0x0017, &words(&[1, 0, 0, 0])),
        record(0x0018, &[&words(&[0x20, 0x0100, 7, 0, 1, 0, 0])[..], &[0, 6], &[0x3A, 0, 0, 0, 0, 0, 0]].concat()),
    ]);
    let read = book.cells("A1:F9");
    assert_eq!(
        listed(&read),
        [
            "A1=3 =1+2",
            "B1=a\u{df} =$A$1",
            "C1=TRUE =TRUE",
            "D1=#DIV/0! =",
            "E1= =\"\"",
            "B2=b =A1",
            "B3=5 =A2",
            "A4=1 =Ponds!$A$1",
            "A5=9 =TABLE(C8,)",
        ]
    );
    let names = workbook(book.bytes(), &Limits::default()).unwrap().defined_names;
    assert_eq!(
        (names[0].name.as_str(), names[0].refers_to.as_str(), names[0].sheet),
        ("_xlnm.Print_Area", "Ponds!$A$1", Some(0))
    );
    assert_eq!(book.profile().formulas, 9);
}

#[test]
fn long_texts_go_on_in_other_records() {
    // The text is cut three times: where a character is wide, where it is not, and within a run that is left out.
    let rich = [&words(&[8])[..], &[0x08, 2, 0], b"ab"].concat();
    let book = Book::new(&[shared(0, 0, 0), shared(0, 1, 1), shared(0, 2, 2)]).with(&[
        record(0x00FC, &[&words(&[3, 0, 3, 0])[..], &rich].concat()),
        record(0x003C, &[&[1][..], &words(&[0xE9, 0x1F0])].concat()),
        record(0x003C, b"\0efgh\x01\x02"),
        record(0x003C, &[&[3, 4, 5, 6, 7, 8][..], &narrow("second"), &wide("thi")[..5]].concat()),
        record(0x003C, &[&[1][..], &words(&[u16::from(b'h'), u16::from(b'i')])].concat()),
        record(0x0042, &words(&[1200])),
    ]);
    assert_eq!(listed(&book.cells("A1:C1")), ["A1=ab\u{e9}\u{1f0}efgh", "B1=second", "C1=thi"]);
}

#[test]
fn rows_columns_merges_notes_and_charts() {
    let row = |row: u16, marks: u16| record(0x0208, &words(&[row, 0, 1, 255, 0, 0, marks, 0]));
    let note =
        |row: u16, object: u16| record(0x001C, &[&words(&[row, 0, 0, object])[..], &narrow("Ada"), &[0]].concat());
    let object = |id: u16| record(0x005D, &words(&[0x15, 0x12, 0x19, id]));
    let text = |length: u16| record(0x01B6, &words(&[0, 0, 0, 0, 0, length, 8, 0, 0]));
    let chart = [begin(0x0600, 0x20), number(9, 9, 0, 1.0), record(0x000A, &[])].concat();
    let book = Book::new(&[
        record(0x007D, &words(&[2, 4, 0, 0, 1, 0])),
        record(0x007D, &words(&[5, 5, 0, 0, 0, 0])),
        row(0, 0),
        row(1, 0x20),
        row(7, 0x20),
        number(0, 0, 0, 1.0),
        number(1, 0, 0, 2.0),
        number(2, 0, 0, 3.0),
        object(1),
        text(5),
        record(0x003C, b"\0twice"),
        record(0x003C, &[0; 16]),
        chart,
        object(2),
        text(0),
        note(0, 1),
        note(1, 2),
        record(0x00E5, &words(&[2, 0, 1, 0, 0, 5, 6, 1, 2])),
    ]);
    let profile = book.profile();
    assert_eq!(profile.used_range, Some("A1:A3".parse().unwrap()), "a chart's numbers are no cells");
    assert_eq!((profile.hidden_rows, profile.hidden_columns.as_slice()), (2, &["C:E".to_owned()][..]));
    assert_eq!(profile.merged, ["A1:A2".parse().unwrap(), "B6:C7".parse().unwrap()]);
    let notes: Vec<_> =
        profile.comments.iter().map(|note| format!("{} {}: {}", note.cell, note.author, note.text)).collect();
    assert_eq!(notes, ["A1 Ada: twice", "A2 Ada: "]);
    let read = book.cells("A1:A2");
    assert_eq!(read.rows.iter().map(|row| row.hidden).collect::<Vec<_>>(), [false, true]);
    assert_eq!(read.merged, Some(vec!["A1:A2".parse().unwrap()]), "merged ranges come after all cells");
    let patterns = probe(Format::Xls, book.bytes(), &Limits::default()).unwrap();
    assert!(patterns.holds(Pattern::HasComments) && patterns.holds(Pattern::IsLegacyBinary));
}

#[test]
fn sheets_are_told_by_kind_and_state() {
    let tab = |name: &str, state, kind| {
        let name = [&[u8::try_from(name.len()).unwrap(), 0][..], name.as_bytes()].concat();
        (name, state, kind, Vec::new())
    };
    let mut book = Book::new(&[]).with(&[record(0x0022, &words(&[1]))]);
    book.sheets.extend([tab("Away", 1, 0), tab("Code", 2, 6), tab("Chart", 0, 2)]);
    let read = workbook(book.bytes(), &Limits::default()).unwrap();
    use SheetKind::{Chartsheet, Macrosheet, Worksheet};
    use SheetState::{Hidden, VeryHidden, Visible};
    let sheets: Vec<_> = read.sheets.iter().map(|sheet| (sheet.name.as_str(), sheet.kind, sheet.state)).collect();
    assert_eq!(
        sheets,
        [
            ("Ponds", Worksheet, Visible),
            ("Away", Worksheet, Hidden),
            ("Code", Macrosheet, VeryHidden),
            ("Chart", Chartsheet, Visible)
        ]
    );
    assert_eq!(read.date_epoch, DateEpoch::From1904);
    assert_eq!(book.profile().used_range, None);
}

#[test]
fn the_version_before_unicode_reads_in_its_code_page() {
    let label = |row: u16, bytes: &[u8]| {
        record(0x0204, &[&words(&[row, 0, 0, u16::try_from(bytes.len()).unwrap()])[..], bytes].concat())
    };
    let note = |row: u16, text: &[u8]| record(0x001C, &[&words(&[row, 0, 7])[..], text].concat());
    let mut book = Book::new(&[
        label(0, b"\xcf\xf0\xf3\xe4"),
        number(1, 0, 0, 0.5),
        formula(2, 0, 2.0f64.to_le_bytes(), &[0x44, 0, 0xC0, 0]),
        note(0, b"one, "),
        note(u16::MAX, b"two"),
        note(1, b"three"),
    ])
    .with(&[
        record(0x0042, &words(&[1251])),
        record(0x041E, &[&words(&[164])[..], b"\x040.0%"].concat()),
        record(0x00E0, &words(&[0, 164])),
    ]);
    book.version = 0x0500;
    book.sheets[0].0 = b"\x04\xcf\xf0\xf3\xe4".to_vec();
    assert_eq!(workbook(book.bytes(), &Limits::default()).unwrap().sheets[0].name, "Пруд");
    assert_eq!(listed(&book.cells("A1:A9")), ["A1=Пруд", "A2=50.0%", "A3=200.0% =A1"]);
    let notes: Vec<_> = book.profile().comments.iter().map(|note| format!("{}: {}", note.cell, note.text)).collect();
    assert_eq!(notes, ["A1: one, two", "A2: three"]);
}

#[test]
fn what_is_damaged_or_closed_is_refused_by_name() {
    let refused = |bytes: Cursor<Vec<u8>>| workbook(bytes, &Limits::default()).unwrap_err();
    let closed = Book::new(&[]).with(&[record(0x002F, &[0; 6])]);
    assert_eq!(refused(closed.bytes()), FormatError::Sealed { format: Format::Xls });
    assert_eq!(probe(Format::Xls, closed.bytes(), &Limits::default()).unwrap_err().code(), "encrypted");
    assert_eq!(refused(compound("/Workbook", &[0; 600])).code(), "corrupt");
    assert_eq!(refused(compound("/Workbook", &begin(0x0300, 5))).code(), "corrupt");
    let mut astray = Book::new(&[number(0, 0, 0, 1.0)]).stream();
    let at = astray.windows(2).position(|kind| kind == [0x85, 0]).unwrap() + 4;
    astray[at..at + 4].copy_from_slice(&20u32.to_le_bytes());
    let error = profile_sheet(compound("/Workbook", &astray).into(), 0, true, &Limits::default()).unwrap_err();
    assert_eq!((error.code(), error.is_permanent()), ("corrupt", true));
    let limits = Limits { cells: 10, ..Limits::default() };
    let many: Vec<_> = (0..11).map(|column| number(0, column, 0, 1.0)).collect();
    let error = profile_sheet(Book::new(&many).bytes().into(), 0, true, &limits).unwrap_err();
    assert_eq!(error.limit(), Some(Limit::Cells));
    let far = Book::new(&[number(0, u16::MAX, 0, 1.0)]);
    assert_eq!(profile_sheet(far.bytes().into(), 0, true, &Limits::default()).unwrap_err().code(), "corrupt");
}

#[test]
fn a_stream_that_is_cut_or_changed_anywhere_still_answers() {
    let book = Book::new(&[
        shared(0, 0, 0),
        formula(1, 1, 1.0f64.to_le_bytes(), &[0x01, 1, 0, 1, 0]),
        record(0x04BC, &[&words(&[1, 2])[..], &[1, 1, 0, 2], &words(&[5]), &[0x4C, 0xFF, 0xFF, 0xFF, 0xC0]].concat()),
        record(0x00BD, &words(&[2, 0, 0, 6, 0, 0])),
        record(0x00E5, &words(&[1, 0, 1, 0, 0])),
    ])
    .with(&[record(0x00FC, &[&words(&[1, 0, 1, 0])[..], &narrow("teal")].concat())]);
    let whole = book.stream();
    let limits = Limits::default();
    let read = |stream: &[u8]| {
        let bytes = compound("/Workbook", stream);
        assert_eq!(detect(&mut bytes.clone()).unwrap().format, Some(Format::Xls));
        probe(Format::Xls, bytes.clone(), &limits).ok();
        profile_sheet(bytes.clone().into(), 0, true, &limits).ok();
        records(bytes.clone().into(), 0, true, &limits, &mut |_| Ok(())).ok();
        cells(bytes.into(), 0, "A1:C9".parse().unwrap(), &limits).ok();
    };
    for cut in 0..whole.len() {
        read(&whole[..cut]);
        for value in [0, 1, 0x7F, 0xFF] {
            let mut changed = whole.clone();
            changed[cut] = value;
            read(&changed);
        }
    }
}
