//! Tests records, profiles, comments and sheets themselves.

use super::*;

#[test]
fn records_need_a_distinct_text_in_every_column() {
    let head = |first: &str, more: &str| {
        let rows = format!("<row r=\"2\">{first}</row><row r=\"3\">{more}</row>");
        let (head, records) = Book::new(&rows).records();
        assert_eq!(head.header.is_header, !head.tables.is_empty());
        (head.header.reason, records.len())
    };
    let text = |at: &str, text: &str| format!("<c r=\"{at}\" t=\"str\"><v>{text}</v></c>");
    let number = |at: &str| format!("<c r=\"{at}\"><v>1</v></c>");
    let both = text("B2", "name") + &text("C2", " qty ");
    assert_eq!(head(&both, &number("C3")), ("a distinct text in every column".into(), 1));
    assert_eq!(head(&both, &number("D3")).0, "no text in column D");
    assert_eq!(head(&(text("B2", "x") + &text("C2", "x ")), ""), ("`x` is in columns B and C".into(), 0));
    assert_eq!(head(&(text("B2", "x") + &number("C2")), "").0, "column C has a value of type number, not text");
    assert_eq!(head(&(text("B2", "x") + &text("C2", "  ")), "").0, "no text in column C");
    assert_eq!(head("", ""), ("the sheet is empty".into(), 0));

    let rows = format!(
        "<row r=\"2\">{both}</row><row r=\"3\"/><row r=\"5\" hidden=\"1\">{}<c r=\"C5\" s=\"1\"><v>0.5</v></c></row><row r=\"6\">{}</row>",
        text("B5", "nut"),
        text("C6", " "),
    );
    let (head, records) = Book::new(&rows).styles(&["0%"]).records();
    assert_eq!(head.used_range.unwrap().to_string(), "B2:C6");
    let headers: Vec<_> =
        head.tables[0].columns.iter().map(|column| (column.column.as_str(), column.header.as_str())).collect();
    assert_eq!(headers, [("B", "name"), ("C", "qty")]);
    let [record] = records.as_slice() else { panic!("a row of blanks is no record: {records:?}") };
    assert_eq!((record.row, record.hidden), (5, true));
    let cells: Vec<_> = record.cells.iter().map(|cell| (cell.column, cell.value.clone(), cell.shown())).collect();
    assert_eq!(cells, [(0, Some(Value::Text("nut".into())), "nut"), (1, Some(Value::Number(0.5)), "50%")]);
}

#[test]
fn a_row_of_formulas_without_values_is_no_record() {
    let text = |at: &str, text: &str| format!("<c r=\"{at}\" t=\"str\"><v>{text}</v></c>");
    let blank = |at: &str| format!("<c r=\"{at}\" t=\"str\"><f>IF(A3=\"\",\"\",1)</f><v></v></c>");
    let rows = format!(
        "<row r=\"1\">{}{}</row><row r=\"2\">{}{}</row><row r=\"3\">{}</row>",
        text("A1", "name"),
        text("B1", "qty"),
        text("A2", "nut"),
        blank("B2"),
        blank("B3"),
    );
    let (head, records) = Book::new(&rows).records();
    assert_eq!(head.used_range.unwrap().to_string(), "A1:B3");
    let [record] = records.as_slice() else { panic!("one row has a value: {records:?}") };
    let cells: Vec<_> = record.cells.iter().map(|cell| (cell.column, cell.value.clone())).collect();
    assert_eq!((record.row, cells), (2, vec![(0, Some(Value::Text("nut".into()))), (1, None)]));
}

#[test]
fn many_records_come_in_bounded_batches() {
    let mut rows = String::from("<row r=\"1\"><c r=\"A1\" t=\"str\"><v>n</v></c></row>");
    for row in 2..=3000 {
        rows += &format!("<row r=\"{row}\"><c r=\"A{row}\"><v>{row}</v></c></row>");
    }
    let mut batches = Vec::new();
    records(Book::new(&rows).bytes().into(), 0, true, &Limits::default(), &mut |part| {
        if let RecordsPart::Batch(batch) = part {
            batches.push(batch.len());
        }
        Ok(())
    })
    .unwrap();
    assert!(batches.len() > 3 && batches.iter().all(|size| (1..=500).contains(size)), "{batches:?}");
    assert_eq!(batches.iter().sum::<usize>(), 2999);
    let stopped = records(Book::new(&rows).bytes().into(), 0, true, &Limits::default(), &mut |part| match part {
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
    let plain = profile_sheet(book.bytes().into(), 0, false, &Limits::default()).unwrap();
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
    let read = cells(bytes.clone().into(), 0, "A1".parse().unwrap(), &limits).unwrap();
    assert_eq!(listed(&read), ["A1=7"]);
    assert_eq!(profile_sheet(bytes.clone().into(), 1, true, &limits).unwrap().used_range, None);
    let missing = profile_sheet(bytes.clone().into(), 2, true, &limits).unwrap_err();
    assert!(missing.is_permanent() && missing.to_string().contains("`Gone`"), "{missing}");
    let none = profile_sheet(bytes.into(), 3, true, &limits).unwrap_err();
    assert!(none.to_string().contains("none with the index 3"), "{none}");
}
