//! Tests what cells hold.

use super::*;

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
