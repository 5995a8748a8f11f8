//! Workbooks made by hand, one for each trap.

use std::io::{Cursor, Write};

use zip::{ZipWriter, write::SimpleFileOptions};

use super::*;
use crate::Limit;

const RELATIONS: &str = "http://schemas.openxmlformats.org/officeDocument/2006/relationships";

/// A workbook of sheets `S1`, `S2` ... with these parts, and other parts by their names.
struct Book<'a> {
    sheets: Vec<&'a str>,
    properties: &'a str,
    others: Vec<(&'a str, String)>,
}

impl<'a> Book<'a> {
    fn new(rows: &'a str) -> Self {
        Self { sheets: vec![rows], properties: "", others: Vec::new() }
    }

    fn with(mut self, name: &'a str, part: impl Into<String>) -> Self {
        self.others.push((name, part.into()));
        self
    }

    /// Number formats of styles 1, 2 ...
    fn styles(self, codes: &[&str]) -> Self {
        let formats: String = (0..)
            .zip(codes)
            .map(|(at, code)| {
                let code = code.replace('&', "&amp;").replace('"', "&quot;").replace('<', "&lt;");
                format!("<numFmt numFmtId=\"{}\" formatCode=\"{code}\"/>", 164 + at)
            })
            .collect();
        let cells: String = (0..codes.len()).map(|at| format!("<xf numFmtId=\"{}\"/>", 164 + at)).collect();
        let part = format!(
            "<styleSheet><numFmts>{formats}</numFmts><cellStyleXfs><xf numFmtId=\"9\"/></cellStyleXfs>\
             <cellXfs><xf numFmtId=\"0\"/>{cells}</cellXfs></styleSheet>"
        );
        self.with("xl/styles.xml", part)
    }

    fn bytes(&self) -> Cursor<Vec<u8>> {
        let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
        let mut put = |name: &str, text: &str| {
            writer.start_file(name, SimpleFileOptions::default()).unwrap();
            writer.write_all(text.as_bytes()).unwrap();
        };
        let relation = |id: &str, kind: &str, target: &str| {
            format!("<Relationship Id=\"{id}\" Type=\"{RELATIONS}/{kind}\" Target=\"{target}\"/>")
        };
        put(
            "_rels/.rels",
            &format!("<Relationships>{}</Relationships>", relation("r", "officeDocument", "xl/workbook.xml")),
        );
        let (mut sheets, mut relations) = (String::new(), relation("s", "styles", "styles.xml"));
        relations += &relation("t", "sharedStrings", "sharedStrings.xml");
        relations += &relation("p", "person", "persons/person.xml");
        for (at, rows) in (1..).zip(&self.sheets) {
            sheets += &format!("<sheet name=\"S{at}\" sheetId=\"{at}\" r:id=\"rId{at}\"/>");
            relations += &relation(&format!("rId{at}"), "worksheet", &format!("worksheets/sheet{at}.xml"));
            let part = if rows.starts_with("<worksheet") {
                (*rows).to_owned()
            } else {
                format!("<worksheet><sheetData>{rows}</sheetData></worksheet>")
            };
            put(&format!("xl/worksheets/sheet{at}.xml"), &part);
        }
        put("xl/workbook.xml", &format!("<workbook>{}<sheets>{sheets}</sheets></workbook>", self.properties));
        put("xl/_rels/workbook.xml.rels", &format!("<Relationships>{relations}</Relationships>"));
        for (name, part) in &self.others {
            put(name, part);
        }
        writer.finish().unwrap()
    }

    fn cells(&self, range: &str) -> Cells {
        cells(self.bytes(), 0, range.parse().unwrap(), &Limits::default()).unwrap()
    }

    fn profile(&self) -> SheetProfile {
        profile_sheet(self.bytes(), 0, true, &Limits::default()).unwrap()
    }

    fn records(&self) -> (RecordsHead, Vec<Record>) {
        let (mut head, mut all, mut end) = (None, Vec::new(), None);
        records(self.bytes(), 0, &Limits::default(), &mut |part| {
            match part {
                RecordsPart::Head(given) => head = Some(given),
                RecordsPart::Batch(batch) => all.extend(batch),
                RecordsPart::End { records } => end = Some(records),
            }
            Ok(())
        })
        .unwrap();
        assert_eq!(end, Some(all.len() as u64));
        (head.unwrap(), all)
    }
}

/// `A1=text` of each filled cell, with its formula where it has one.
fn listed(cells: &Cells) -> Vec<String> {
    cells
        .rows
        .iter()
        .flat_map(|row| &row.cells)
        .map(|cell| {
            format!(
                "{}={}{}",
                cell.cell,
                cell.text,
                cell.formula.as_deref().map(|f| format!(" {f}")).unwrap_or_default()
            )
        })
        .collect()
}

#[test]
fn cells_without_places_follow_each_other() {
    let book = Book::new(
        "<row><c><v>1</v></c><c/><c t=\"b\"><v>1</v></c></row><row r=\"4\"><c r=\"C4\"><v>2</v></c><c><v>3</v></c></row>\
         <row><c t=\"e\"><v>#N/A</v></c></row>",
    );
    assert_eq!(listed(&book.cells("A1:Z9")), ["A1=1", "C1=TRUE", "C4=2", "D4=3", "A5=#N/A"]);
    assert_eq!(book.profile().used_range.unwrap().to_string(), "A1:D5");
}

#[test]
fn a_lying_dimension_and_styled_blanks_count_for_nothing() {
    let book = Book::new(
        "<worksheet><dimension ref=\"A1:XFD1048576\"/><sheetData><row r=\"1\"><c r=\"A1\" s=\"1\"/><c r=\"B1\"><v></v></c></row>\
         <row r=\"2\"><c r=\"B2\"><f>1+1</f></c></row><row r=\"9\"><c r=\"Z9\" s=\"3\"></c></row></sheetData></worksheet>",
    );
    let profile = book.profile();
    assert_eq!((profile.used_range.unwrap().to_string().as_str(), profile.nonempty_cells), ("B2:B2", 1));
    let cells = book.cells("A1:C3");
    assert_eq!(listed(&cells), ["B2= =1+1"]);
    assert_eq!(cells.rows[0].cells[0].value, None);
}

#[test]
fn texts_of_every_kind_are_texts() {
    let book = Book::new(
        "<row r=\"1\"><c r=\"A1\" t=\"s\"><v>1</v></c><c r=\"B1\" t=\"inlineStr\"><is><r><t>ri</t></r><r><t>ch</t></r>\
         <rPh><t>x</t></rPh></is></c><c r=\"C1\" t=\"str\"><f>A1&amp;\"&lt;\"</f><v>a_x000D_b</v></c>\
         <c r=\"D1\" t=\"s\"><v>9</v></c><c r=\"E1\"><v>not a number</v></c><c r=\"F1\" t=\"d\"><v>2021-03-04T05:06:07Z</v></c></row>",
    )
    .with("xl/sharedStrings.xml", "<sst><si><t>zero</t></si><si><t>one</t></si></sst>");
    let cells = book.cells("A1:F1");
    assert_eq!(
        listed(&cells),
        ["A1=one", "B1=rich", "C1=a\rb =A1&\"<\"", "D1=", "E1=not a number", "F1=2021-03-04T05:06:07"]
    );
    assert_eq!(cells.rows[0].cells[5].value, Some(Value::Date("2021-03-04T05:06:07".into())));
}

#[test]
fn formulas_are_written_out_for_each_cell() {
    let book = Book::new(
        "<row r=\"1\"><c r=\"B1\"><f t=\"shared\" ref=\"B1:B3\" si=\"0\">A1*$D$1</f><v>2</v></c></row>\
         <row r=\"2\"><c r=\"B2\"><f t=\"shared\" si=\"0\"/><v>4</v></c><c r=\"C2\"><f t=\"array\" ref=\"C2:C3\">SUM(A1:A2)</f><v>3</v></c></row>\
         <row r=\"3\"><c r=\"B3\"><f t=\"shared\" si=\"0\"></f></c><c r=\"C3\"><f t=\"dataTable\" r1=\"B1\" dt2D=\"0\" dtr=\"1\"/><v>1</v></c>\
         <c r=\"D3\"><f t=\"shared\" si=\"7\"/><v>1</v></c></row>",
    );
    assert_eq!(
        listed(&book.cells("B1:D3")),
        ["B1=2 =A1*$D$1", "B2=4 =A2*$D$1", "C2=3 =SUM(A1:A2)", "B3= =A3*$D$1", "C3=1 =TABLE(B1,)", "D3=1 ="]
    );
    assert_eq!(book.profile().formulas, 6);
}

#[test]
fn dates_follow_the_format_and_the_epoch() {
    let rows = "<row r=\"1\"><c r=\"A1\" s=\"1\"><v>1.5</v></c><c r=\"B1\" s=\"2\"><v>1.5</v></c><c r=\"C1\" s=\"3\"><v>1.5</v></c>\
        <c r=\"D1\" s=\"9\"><v>1.5</v></c></row>";
    let codes = ["yyyy-mm-dd", "[h]:mm", "\"d\"0.0"];
    let mut book = Book::new(rows).styles(&codes);
    let values = |book: &Book<'_>| -> Vec<_> {
        book.cells("A1:D1").rows[0].cells.iter().map(|cell| cell.value.clone().unwrap()).collect()
    };
    let span = Value::Duration(Duration { milliseconds: 129_600_000 });
    let number = Value::Number(1.5);
    assert_eq!(
        values(&book),
        [Value::Date("1900-01-01T12:00:00".into()), span.clone(), number.clone(), number.clone()]
    );
    book.properties = "<workbookPr date1904=\"1\"/>";
    assert_eq!(values(&book), [Value::Date("1904-01-02T12:00:00".into()), span, number.clone(), number]);
    assert_eq!(workbook(book.bytes(), &Limits::default()).unwrap().date_epoch, DateEpoch::From1904);
    assert_eq!(book.cells("A1:B1").rows[0].cells[1].number_format, "[h]:mm");
}

#[test]
fn a_rectangle_says_what_merges_meet_it() {
    let book = Book::new(
        "<worksheet><cols><col min=\"2\" max=\"3\" hidden=\"1\"/></cols><sheetData>\
         <row r=\"1\" hidden=\"1\"><c r=\"A1\"><v>1</v></c></row><row r=\"2\"/><row r=\"3\"><c r=\"A3\"><v>1</v></c></row>\
         </sheetData><mergeCells><mergeCell ref=\"A1:B1\"/><mergeCell ref=\"C3:D9\"/></mergeCells></worksheet>",
    );
    let merged =
        |range: &str| -> Vec<String> { book.cells(range).merged.unwrap().iter().map(ToString::to_string).collect() };
    assert_eq!(merged("A1:A2"), ["A1:B1"], "behind rows that were not read");
    assert_eq!(merged("A1:Z99"), ["A1:B1", "C3:D9"]);
    assert!(book.cells("A1:A1").rows[0].hidden);
    let profile = book.profile();
    assert_eq!((profile.hidden_rows, profile.hidden_columns, profile.merged.len()), (1, vec!["B:C".to_owned()], 2));
}

#[test]
fn records_need_a_distinct_text_in_every_column() {
    let head = |first: &str, more: &str| {
        let rows = format!("<row r=\"2\">{first}</row><row r=\"3\">{more}</row>");
        let (head, records) = Book::new(&rows).records();
        assert_eq!(head.header.is_header, !head.columns.is_empty());
        (head.header.reason, records.len())
    };
    let text = |at: &str, text: &str| format!("<c r=\"{at}\" t=\"str\"><v>{text}</v></c>");
    let number = |at: &str| format!("<c r=\"{at}\"><v>1</v></c>");
    let both = text("B2", "name") + &text("C2", " qty ");
    assert_eq!(head(&both, &number("C3")), ("a distinct text in every column".into(), 1));
    assert_eq!(head(&both, &number("D3")).0, "no text in column D");
    assert_eq!(head(&(text("B2", "x") + &text("C2", "x ")), ""), ("`x` stands in columns B and C".into(), 0));
    assert_eq!(head(&(text("B2", "x") + &number("C2")), "").0, "column C has a value of type number, no text");
    assert_eq!(head(&(text("B2", "x") + &text("C2", "  ")), "").0, "no text in column C");
    assert_eq!(head("", ""), ("the sheet is empty".into(), 0));

    let rows = format!(
        "<row r=\"2\">{both}</row><row r=\"3\"/><row r=\"5\" hidden=\"1\">{}<c r=\"C5\" s=\"1\"><v>0.5</v></c></row><row r=\"6\">{}</row>",
        text("B5", "nut"),
        text("C6", " "),
    );
    let (head, records) = Book::new(&rows).styles(&["0%"]).records();
    assert_eq!(head.used_range.unwrap().to_string(), "B2:C6");
    let headers: Vec<_> = head.columns.iter().map(|column| (column.column.as_str(), column.header.as_str())).collect();
    assert_eq!(headers, [("B", "name"), ("C", "qty")]);
    let [record] = records.as_slice() else { panic!("a row of blanks is no record: {records:?}") };
    assert_eq!((record.row, record.hidden), (5, true));
    let cells: Vec<_> = record.cells.iter().map(|cell| (cell.column, cell.value.clone(), cell.shown())).collect();
    assert_eq!(cells, [(0, Some(Value::Text("nut".into())), "nut"), (1, Some(Value::Number(0.5)), "50%")]);
}

#[test]
fn many_records_come_in_bounded_batches() {
    let mut rows = String::from("<row r=\"1\"><c r=\"A1\" t=\"str\"><v>n</v></c></row>");
    for row in 2..=3000 {
        rows += &format!("<row r=\"{row}\"><c r=\"A{row}\"><v>{row}</v></c></row>");
    }
    let mut batches = Vec::new();
    records(Book::new(&rows).bytes(), 0, &Limits::default(), &mut |part| {
        if let RecordsPart::Batch(batch) = part {
            batches.push(batch.len());
        }
        Ok(())
    })
    .unwrap();
    assert!(batches.len() > 3 && batches.iter().all(|size| (1..=500).contains(size)), "{batches:?}");
    assert_eq!(batches.iter().sum::<usize>(), 2999);
    let stopped = records(Book::new(&rows).bytes(), 0, &Limits::default(), &mut |part| match part {
        RecordsPart::Head(_) => Ok(()),
        _ => Err(FormatError::UnknownFormat),
    });
    assert_eq!(stopped, Err(FormatError::UnknownFormat), "who takes them can stop the reading");
}

#[test]
fn columns_are_profiled() {
    let mut rows =
        String::from("<row r=\"1\"><c r=\"A1\" t=\"str\"><v>day</v></c><c r=\"B1\" t=\"str\"><v>qty</v></c></row>");
    for row in 2..=11 {
        rows += &format!("<row r=\"{row}\"><c r=\"A{row}\" s=\"1\"><v>{}</v></c>", 44_000 + row % 3);
        if row % 2 == 0 {
            rows += &format!("<c r=\"B{row}\"><f>{row}*1</f><v>{row}</v></c>");
        }
        rows += "</row>";
    }
    let book = Book::new(&rows).styles(&["yyyy-mm-dd"]);
    let profile = book.profile();
    assert!(profile.header.is_header);
    let [day, qty] = profile.columns.as_slice() else { panic!("two columns: {:?}", profile.columns) };
    assert_eq!((day.column.as_str(), day.header.as_deref(), day.filled, day.fill_ratio), ("A", Some("day"), 10, 1.0));
    assert_eq!(day.types, TypeCounts { date: 10, ..TypeCounts::default() });
    assert_eq!(day.number_formats, [("yyyy-mm-dd".to_owned(), 10)]);
    let sketch = day.sketch.as_ref().unwrap();
    assert_eq!((sketch.distinct, sketch.distinct_exact), (3, true));
    assert_eq!(sketch.min, Some(Value::Date("2020-06-18T00:00:00".into())));
    assert_eq!(sketch.max, Some(Value::Date("2020-06-20T00:00:00".into())));
    assert_eq!((qty.filled, qty.fill_ratio, qty.formulas, qty.types.number), (5, 0.5, 5, 5));
    assert_eq!(qty.sketch.as_ref().unwrap().examples, ["2", "4", "6", "8", "10"]);
    let plain = profile_sheet(book.bytes(), 0, false, &Limits::default()).unwrap();
    assert!(plain.columns.iter().all(|column| column.sketch.is_none()));
}

#[test]
fn comments_are_read_with_their_authors_and_threads_once() {
    let relations = format!(
        "<Relationships><Relationship Id=\"a\" Type=\"{RELATIONS}/comments\" Target=\"../comments1.xml\"/>\
         <Relationship Id=\"b\" Type=\"http://schemas.microsoft.com/office/2017/10/relationships/threadedComment\" \
         Target=\"../threadedComments/threadedComment1.xml\"/></Relationships>"
    );
    let book = Book::new("<row/>")
        .with("xl/worksheets/_rels/sheet1.xml.rels", relations)
        .with(
            "xl/comments1.xml",
            "<comments><authors><author>Ann</author><author>tc={1}</author></authors><commentList>\
             <comment ref=\"A1\" authorId=\"0\"><text><r><t>see </t></r><r><t>B1</t></r></text></comment>\
             <comment ref=\"C3\" authorId=\"1\"><text><t>[Threaded comment]</t></text></comment></commentList></comments>",
        )
        .with(
            "xl/threadedComments/threadedComment1.xml",
            "<ThreadedComments><threadedComment ref=\"C3\" personId=\"{p}\"><text>why?</text></threadedComment>\
             <threadedComment ref=\"C3\" personId=\"{q}\"><text>because</text></threadedComment></ThreadedComments>",
        )
        .with("xl/persons/person.xml", "<personList><person displayName=\"Bo\" id=\"{p}\"/></personList>");
    let profile = book.profile();
    let comments: Vec<_> = profile
        .comments
        .iter()
        .map(|comment| (comment.cell.to_string(), comment.author.as_str(), comment.text.as_str()))
        .collect();
    let of = |cell: &str, author, text| (cell.to_owned(), author, text);
    assert_eq!(comments, [of("C3", "Bo", "why?"), of("C3", "", "because"), of("A1", "Ann", "see B1")]);
    assert_eq!(profile.comment_count, 3);
}

#[test]
fn sheets_have_kinds_and_states() {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    let mut put = |name: &str, text: &str| {
        writer.start_file(name, SimpleFileOptions::default()).unwrap();
        writer.write_all(text.as_bytes()).unwrap();
    };
    // A Strict package with another prefix, without package relationships.
    put(
        "xl/workbook.xml",
        "<x:workbook xmlns:x=\"http://purl.oclc.org/ooxml/spreadsheetml/main\"><x:sheets>\
         <x:sheet name=\"Data &amp; more\" sheetId=\"1\" state=\"hidden\" r:id=\"a\"/><x:sheet name=\"Chart\" sheetId=\"2\" r:id=\"b\"/>\
         <x:sheet name=\"Gone\" sheetId=\"3\" state=\"veryHidden\" r:id=\"c\"/></x:sheets><x:definedNames>\
         <x:definedName name=\"Rate\" localSheetId=\"0\">Data!$A$1</x:definedName></x:definedNames></x:workbook>",
    );
    put(
        "xl/_rels/workbook.xml.rels",
        "<Relationships><Relationship Id=\"a\" Type=\"http://purl.oclc.org/ooxml/officeDocument/relationships/worksheet\" \
         Target=\"\\xl\\worksheets\\Sheet1.xml\"/><Relationship Id=\"b\" Type=\"x/chartsheet\" Target=\"chartsheets/sheet1.xml\"/>\
         <Relationship Id=\"c\" Type=\"x/worksheet\" Target=\"worksheets/missing.xml\"/></Relationships>",
    );
    put(
        "xl/worksheets/sheet1.xml",
        "<x:worksheet><x:sheetData><x:row><x:c><x:v>7</x:v></x:c></x:row></x:sheetData></x:worksheet>",
    );
    put("xl/chartsheets/sheet1.xml", "<chartsheet><drawing/></chartsheet>");
    let bytes = writer.finish().unwrap();
    let limits = Limits::default();
    let book = workbook(bytes.clone(), &limits).unwrap();
    let sheets: Vec<_> = book.sheets.iter().map(|sheet| (sheet.name.as_str(), sheet.kind, sheet.state)).collect();
    assert_eq!(
        sheets,
        [
            ("Data & more", SheetKind::Worksheet, SheetState::Hidden),
            ("Chart", SheetKind::Chartsheet, SheetState::Visible),
            ("Gone", SheetKind::Worksheet, SheetState::VeryHidden),
        ]
    );
    assert_eq!(book.defined_names[0].refers_to, "Data!$A$1");
    assert_eq!(book.sheet("data & MORE").map(|sheet| sheet.index), Some(0));
    let read = cells(bytes.clone(), 0, "A1".parse().unwrap(), &limits).unwrap();
    assert_eq!(listed(&read), ["A1=7"]);
    assert_eq!(profile_sheet(bytes.clone(), 1, true, &limits).unwrap().used_range, None);
    let missing = profile_sheet(bytes.clone(), 2, true, &limits).unwrap_err();
    assert!(missing.is_permanent() && missing.to_string().contains("`Gone`"), "{missing}");
    let none = profile_sheet(bytes, 3, true, &limits).unwrap_err();
    assert!(none.to_string().contains("none of index 3"), "{none}");
}

#[test]
fn what_is_over_a_limit_is_refused_by_name() {
    let refused = |rows: &str, limits: Limits| {
        let bytes = Book::new(rows).bytes();
        let profiled = profile_sheet(bytes.clone(), 0, true, &limits).unwrap_err();
        assert_eq!(cells(bytes, 0, "A1:XFD1048576".parse().unwrap(), &limits).unwrap_err(), profiled);
        profiled
    };
    let cell = "<c><v>1</v></c>";
    let error = refused(&format!("<row>{}</row>", cell.repeat(11)), Limits { cells: 10, ..Limits::default() });
    assert_eq!(error.limit(), Some(Limit::Cells));
    let error = refused(&format!("<row>{}</row>", cell.repeat(16_385)), Limits::default());
    assert_eq!(error.code(), "corrupt");
    let error = refused("<row r=\"1048576\"/><row/>", Limits::default());
    assert!(error.to_string().contains("1048576"), "{error}");
    let error = refused(&format!("<row>{}", "<a>".repeat(300)), Limits::default());
    assert_eq!(error.limit(), Some(Limit::XmlDepth));
    let error = refused("<row><c><v>1</v>", Limits::default());
    assert_eq!(error.code(), "corrupt");
    let error = refused("<row><c><v>&nope;</v></c></row>", Limits::default());
    assert_eq!(error.code(), "corrupt");
    let long = format!("<row><c t=\"str\"><v>{}</v></c></row>", "x".repeat(17 << 20));
    assert_eq!(refused(&long, Limits { zip_ratio: 100_000, ..Limits::default() }).limit(), Some(Limit::TextBytes));
}

#[test]
fn a_part_in_the_encoding_it_declares_reads() {
    let sheet = b"<?xml version=\"1.0\" encoding='windows-1252'?><worksheet><sheetData><row><c t=\"str\"><v>Gr\xFC\xDFe</v></c></row></sheetData></worksheet>";
    let mut markup = Markup::new(sheet.as_slice(), &Limits::default());
    let mut text = String::new();
    while let Some(mark) = markup.next().unwrap() {
        if mark == (Mark::Start { empty: false }) && markup.name() == "v" {
            markup.text(&mut text).unwrap();
        }
    }
    assert_eq!(text, "Gr\u{FC}\u{DF}e");
}

#[test]
fn a_binary_workbook_is_refused_with_the_remedy() {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    writer.start_file("_rels/.rels", SimpleFileOptions::default()).unwrap();
    let main = format!(
        "<Relationships><Relationship Type=\"{RELATIONS}/officeDocument\" Target=\"xl/workbook.bin\"/></Relationships>"
    );
    writer.write_all(main.as_bytes()).unwrap();
    writer.start_file("xl/workbook.bin", SimpleFileOptions::default()).unwrap();
    writer.write_all(b"\x83\x01\0").unwrap();
    let bytes = writer.finish().unwrap();
    for error in
        [workbook(bytes.clone(), &Limits::default()).unwrap_err(), probe(bytes, &Limits::default()).unwrap_err()]
    {
        assert!(error.is_permanent() && error.code() == "unsupported" && error.to_string().contains("xlsx"), "{error}");
    }
}
