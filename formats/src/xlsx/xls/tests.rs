//! Legacy workbooks built by hand, one for each trap.

use super::{
    super::{Cells, SheetProfile, Value, cells, profile_sheet, records, shared_strings, tests::listed, workbook},
    *,
};
use crate::{Limit, binary_lock::tests::locked_with, detect, probe};
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
fn a_raised_number_is_no_part_of_the_number_before_it() {
    let font = |script: u16| record(0x0031, &words(&[200, 0, 0, 400, script, 0, 0]));
    // Each text has its length, its marks, the number of its runs, its characters, and then the runs.
    let rich = |shown: &str, runs: &[[u16; 2]]| {
        let units: Vec<u16> = shown.encode_utf16().collect();
        let counts = [words(&[units.len() as u16]), vec![9], words(&[runs.len() as u16])].concat();
        [counts, words(&units), words(&runs.concat())].concat()
    };
    let texts = [
        rich("\u{1F986} 20193", &[[7, 6]]),
        rich("10\u{2212}6 m, H2O", &[[2, 6], [3, 6], [4, 0], [9, 7], [10, 0]]),
        rich("1st 12", &[[1, 6], [3, 5]]),
    ];
    let book = Book::new(&[shared(0, 0, 0), shared(0, 1, 1), shared(0, 2, 2)]).with(&[
        [font(0), font(0), font(0), font(0), font(0), font(1), font(2)].concat(),
        record(0x00FC, &[words(&[3, 0, 3, 0]), texts.concat()].concat()),
    ]);
    assert_eq!(listed(&book.cells("A1:C1")), ["A1=\u{1F986} 2019^3", "B1=10^\u{2212}6 m, H2O", "C1=1st 12"]);
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
    assert_eq!(refused(closed.bytes()), FormatError::Encrypted { format: Format::Xls });
    let sealed = Book::new(&[]).with(&[record(0x002F, &[7; 6])]);
    assert_eq!(refused(sealed.bytes()), FormatError::Sealed { format: Format::Xls });
    assert_eq!(probe(Format::Xls, sealed.bytes(), &Limits::default()).unwrap_err().code(), "encrypted");
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

/// A workbook whose records behind that of its lock are changed byte by byte, except for the bytes that stay plain. `change` takes the
/// place in the body, the end of the record, the place in the stream, and the byte.
fn locked(lock: &[u8], change: impl Fn(usize, usize, usize, u8) -> u8) -> Cursor<Vec<u8>> {
    let rows = (1..=100).flat_map(|row| [shared(row, 0, 2), number(row, 1, 0, row.into())]);
    let records: Vec<Vec<u8>> = [shared(0, 0, 0), shared(0, 1, 1)].into_iter().chain(rows).collect();
    let texts = [words(&[3, 0, 3, 0]), narrow("Pond"), narrow("Ducks"), narrow("Weir")].concat();
    let globals = [record(0x002F, lock), record(0x00E1, &[0xB0, 4]), record(0x00FC, &texts)];
    let mut stream = Book::new(&records).with(&globals).stream();
    let (mut at, mut is_locked) = (0, false);
    while at < stream.len() {
        let [kind, length] = [at, at + 2].map(|at| u16::from_le_bytes([stream[at], stream[at + 1]]));
        let (start, end) = (at + 4, at + 4 + usize::from(length));
        let plain = match kind {
            0x0809 | 0x00E1 => end,
            0x0085 => start + 4,
            _ => start,
        };
        if is_locked {
            for (place, byte) in stream.iter_mut().enumerate().take(end).skip(plain) {
                *byte = change(place - start, end, place, *byte);
            }
        }
        is_locked |= kind == 0x002F;
        at = end;
    }
    compound("/Workbook", &stream)
}

/// A workbook that is locked by a cipher.
fn enciphered(password: &str, bits: Option<u32>) -> Cursor<Vec<u8>> {
    let (keys, description) = locked_with(password, bits);
    let mut laid = vec![0; 20_000];
    keys.stream(1024).open(&mut laid);
    locked(&[&[1, 0][..], &description].concat(), |_, _, place, byte| byte ^ laid[place])
}

/// A byte as the password `heron` obfuscates it, by the end of its record and its place in the body together.
fn veiled(at: usize, byte: u8) -> u8 {
    const VEIL: [u8; 16] = [11, 85, 6, 80, 8, 58, 192, 24, 98, 24, 192, 59, 127, 231, 96, 96];
    byte.rotate_right(3) ^ VEIL[at % VEIL.len()]
}

#[test]
fn a_password_opens_workbooks_of_both_ciphers_and_obfuscated_ones_as_a_text() {
    let obfuscated = |lock: &[u8]| locked(lock, |within, end, _, byte| veiled(end + within, byte));
    let limits = Limits::default();
    for (kind, bytes) in [
        ("RC4", enciphered("heron", None)),
        ("RC4 of CryptoAPI", enciphered("heron", Some(128))),
        ("XOR", obfuscated(&[0, 0, 0x7E, 0xCF, 0xAA, 0xC7])),
        ("XOR of Excel 95", obfuscated(&[0x7E, 0xCF, 0xAA, 0xC7])),
    ] {
        let password = Secret::new("heron");
        let access = Access { password: Some(&password), ..Access::from(&limits) };
        let read = extract(bytes.clone(), access).unwrap();
        assert!(
            read.text.starts_with("# Ponds\n\n| Pond | Ducks |\n| --- | --- |\n| Weir | 1 |"),
            "{kind}: {}",
            read.text
        );
        assert!(
            read.text.trim_end().ends_with("| Weir | 100 |") && read.facts["locked_format"] == "xls",
            "{kind}: {}",
            read.text
        );
        let patterns = probe(Format::Xls, bytes.clone(), access).unwrap();
        for pattern in [Pattern::IsEncrypted, Pattern::HasTextLayer, Pattern::HasTables, Pattern::IsLegacyBinary] {
            assert!(patterns.holds(pattern), "{kind}: {pattern:?}");
        }
        assert!(patterns.get(Pattern::HasSheets).is_none(), "its sheets could not be read later");

        let refused = FormatError::Encrypted { format: Format::Xls };
        assert_eq!(workbook(bytes.clone(), &limits).unwrap_err(), refused, "{kind}");
        let closed = probe(Format::Xls, bytes.clone(), &limits).unwrap();
        assert!(closed.holds(Pattern::IsEncrypted) && closed.get(Pattern::HasSheets).is_none(), "{kind}");
        assert_eq!(crate::refusal(Format::Xls, bytes.clone(), &closed), Some(refused.clone()), "{kind}");
        let wrong = Secret::new("stork");
        let access = Access { password: Some(&wrong), ..Access::from(&limits) };
        assert_eq!(probe(Format::Xls, bytes, access).unwrap_err(), refused, "{kind}");
    }
}

#[test]
fn a_locked_part_behind_padding_is_opened() {
    let lock = record(0x002F, &[0, 0, 0x7E, 0xCF, 0xAA, 0xC7]);
    let mut stream = [begin(0x0600, 5), lock, record(0x000A, &[]), vec![0; 8], begin(0x0600, 0x10)].concat();
    let end = stream.len() + 8;
    let hidden: Vec<u8> = b"Weir".iter().enumerate().map(|(at, byte)| veiled(end + at, *byte)).collect();
    stream.extend(record(0x0204, &hidden));
    locked::open(&mut stream, &Secret::new("heron")).unwrap();
    assert_eq!(stream[end - 4..], *b"Weir");
}

#[test]
fn a_workbook_that_is_protected_from_changes_alone_is_read_as_others_are() {
    let bytes = enciphered("VelvetSweatshop", Some(128));
    let limits = Limits::default();
    let patterns = probe(Format::Xls, bytes.clone(), &limits).unwrap();
    assert!(patterns.holds(Pattern::HasSheets) && !patterns.holds(Pattern::IsEncrypted));
    assert_eq!(workbook(bytes.clone(), &limits).unwrap().sheets[0].name, "Ponds");
    let read = cells(bytes.clone().into(), 0, "A1:B2".parse().unwrap(), &limits).unwrap();
    assert_eq!(listed(&read), ["A1=Pond", "B1=Ducks", "A2=Weir", "B2=1"]);
    assert_eq!(extract(bytes, Access::from(&limits)).unwrap_err().code(), "unsupported");
}

#[test]
fn a_locked_workbook_that_is_cut_or_changed_ends_in_an_error_or_a_text() {
    let whole = enciphered("heron", None).into_inner();
    let (limits, password) = (Limits::default(), Secret::new("heron"));
    let access = Access { password: Some(&password), ..Access::from(&limits) };
    for at in (0..whole.len()).step_by(37) {
        let mut changed = whole.clone();
        changed[at] ^= 0xFF;
        let refused = extract(Cursor::new(changed), access).err();
        assert!(refused.is_none_or(|error| error.is_permanent()), "{at}");
        let refused = extract(Cursor::new(&whole[..at]), access).err();
        assert!(refused.is_none_or(|error| error.is_permanent()), "{at}");
    }
}
