//! Open documents built by hand, one for each trap.

use super::{
    super::{Cells, RecordsPart, SheetProfile, cells, profile_sheet, records, tests::listed, value::Value, workbook},
    *,
};
use crate::{Limit, detect, probe};
use std::io::{Cursor, Write};
use zip::{ZipWriter, write::SimpleFileOptions};

const MIME: &str = "application/vnd.oasis.opendocument.spreadsheet";

fn package(parts: &[(&str, &str)]) -> Cursor<Vec<u8>> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, text) in [("mimetype", MIME)].iter().chain(parts) {
        writer.start_file(*name, SimpleFileOptions::default()).unwrap();
        writer.write_all(text.as_bytes()).unwrap();
    }
    writer.finish().unwrap()
}

/// A document of these styles and this body.
fn document(styles: &str, body: &str) -> Cursor<Vec<u8>> {
    let content = format!(
        "<office:document-content><office:automatic-styles>{styles}</office:automatic-styles><office:body>\
         <office:spreadsheet>{body}</office:spreadsheet></office:body></office:document-content>"
    );
    package(&[("content.xml", &content)])
}

/// A document of one table.
fn table(styles: &str, rows: &str) -> Cursor<Vec<u8>> {
    document(styles, &format!("<table:table table:name=\"S\">{rows}</table:table>"))
}

fn read(bytes: &Cursor<Vec<u8>>, range: &str) -> Cells {
    cells(bytes.clone().into(), 0, range.parse().unwrap(), &Limits::default()).unwrap()
}

fn profile(bytes: &Cursor<Vec<u8>>) -> SheetProfile {
    profile_sheet(bytes.clone().into(), 0, true, &Limits::default()).unwrap()
}

fn text(text: &str) -> String {
    format!("<table:table-cell office:value-type=\"string\"><text:p>{text}</text:p></table:table-cell>")
}

fn number(value: &str) -> String {
    format!(
        "<table:table-cell office:value-type=\"float\" office:value=\"{value}\"><text:p>{value}</text:p></table:table-cell>"
    )
}

fn row(cells: &str) -> String {
    format!("<table:table-row>{cells}</table:table-row>")
}

#[test]
fn each_type_of_value_reads_as_what_it_is() {
    let styles = "<number:time-style style:name=\"span\" number:truncate-on-overflow=\"false\"><number:hours/>\
        <number:text>:</number:text><number:minutes number:style=\"long\"/></number:time-style>\
        <style:style style:name=\"ce1\" style:family=\"table-cell\" style:data-style-name=\"span\"/>";
    let cell = |attributes: &str, shown: &str| {
        format!("<table:table-cell {attributes}><text:p>{shown}</text:p></table:table-cell>")
    };
    let rows = [
        cell("office:value-type=\"float\" office:value=\"1.5\"", "1,50"),
        cell("office:value-type=\"percentage\" office:value=\"0.25\"", "25 %"),
        cell("office:value-type=\"currency\" office:currency=\"EUR\" office:value=\"-7\"", "-7,00 €"),
        cell("office:value-type=\"date\" office:date-value=\"2024-02-29\"", "29.02.24"),
        cell("office:value-type=\"date\" office:date-value=\"2024-02-29T12:30:15.250\"", "noon"),
        cell("office:value-type=\"time\" office:time-value=\"PT08H05M00S\"", "08:05"),
        cell("office:value-type=\"time\" office:time-value=\"PT30H00M00S\"", "30:00"),
        cell("table:style-name=\"ce1\" office:value-type=\"time\" office:time-value=\"PT08H05M00S\"", "8:05"),
        cell("office:value-type=\"boolean\" office:boolean-value=\"true\"", "TRUE"),
        cell("office:value-type=\"string\" office:string-value=\"\" calcext:value-type=\"error\" table:formula=\"of:=1/0\"", "#DIV/0!"),
        cell("office:value-type=\"string\" office:string-value=\"stored\"", "shown"),
        cell("", "untyped"),
        cell("office:value-type=\"date\" office:date-value=\"someday\"", "x"),
        "<table:table-cell office:value-type=\"float\" office:value=\"3\"/>".to_owned(),
        "<table:table-cell table:formula=\"of:=[.A1]\"/>".to_owned(),
    ]
    .map(|cell| row(&cell))
    .concat();
    let read = read(&table(styles, &rows), "A1:A20");
    let values: Vec<_> = read
        .rows
        .iter()
        .flat_map(|row| &row.cells)
        .map(|cell| {
            let value = cell.value.as_ref().map(|value| match value {
                Value::Number(number) => format!("number {number}"),
                Value::Duration(span) => format!("duration {span}"),
                Value::Boolean(truth) => format!("boolean {truth}"),
                Value::Text(text) | Value::Date(text) | Value::Error(text) => format!("{} {text}", value.kind()),
            });
            format!("{} | {}", value.unwrap_or_default(), cell.text)
        })
        .collect();
    assert_eq!(
        values,
        [
            "number 1.5 | 1,50",
            "number 0.25 | 25 %",
            "number -7 | -7,00 €",
            "date 2024-02-29T00:00:00 | 29.02.24",
            "date 2024-02-29T12:30:15.250 | noon",
            "date 08:05:00 | 08:05",
            "duration P1DT6H | 30:00",
            "duration PT8H5M | 8:05",
            "boolean true | TRUE",
            "error #DIV/0! | #DIV/0!",
            "text stored | shown",
            "text untyped | untyped",
            "text someday | x",
            "number 3 | 3",
            " | ",
        ]
    );
    assert_eq!(read.rows[14].cells[0].formula.as_deref(), Some("=A1"));
    assert_eq!(read.rows[9].cells[0].formula.as_deref(), Some("=1/0"));
    assert_eq!(read.rows[7].cells[0].number_format, "[h]:mm");
}

#[test]
fn texts_of_several_paragraphs_and_spans() {
    let cell = "<table:table-cell office:value-type=\"string\"><text:p>Two<text:s text:c=\"3\"/><text:span>ponds\n   &amp; \
        </text:span> <text:a>one</text:a> lake<text:note><text:p>no</text:p></text:note></text:p><text:p/>\
        <text:list><text:list-item><text:p>Mill<text:tab/>pond<text:line-break/>deep</text:p></text:list-item></text:list>\
        <draw:frame><draw:text-box><text:p>drawn</text:p></draw:text-box></draw:frame>\
        <table:table><table:table-row><table:table-cell><text:p>inner</text:p></table:table-cell></table:table-row></table:table>\
        </table:table-cell>";
    let read = read(&table("", &row(&format!("{cell}{}", text("after")))), "A1:C3");
    assert_eq!(listed(&read), ["A1=Two   ponds & one lake\n\nMill\tpond\ndeep", "B1=after"]);
}

#[test]
fn a_raised_number_is_no_part_of_the_number_before_it() {
    let style = |name: &str, position: &str| {
        format!(
            "<style:style style:name=\"{name}\" style:family=\"text\"><style:text-properties style:text-position=\"{position}\"/></style:style>"
        )
    };
    let styles = [
        style("T1", "super 58%"),
        style("T2", "sub 58%"),
        "<style:style style:name=\"T3\" style:family=\"text\" style:parent-style-name=\"T1\"/>".to_owned(),
    ]
    .concat();
    let span = |style: &str, shown: &str| format!("<text:span text:style-name=\"{style}\">{shown}</text:span>");
    let cells = [
        text(&format!("10{} in 2019{}", span("T1", "6"), span("T3", "<text:span>3</text:span>"))),
        text(&format!("1{}, H{}, 1{}{}", span("T1", "st"), span("T2", "2"), span("T2", "2"), span("", "3"))),
        text(&format!("10{}{}", span("T1", "−"), span("T1", "6"))),
    ];
    let read = read(&table(&styles, &row(&cells.concat())), "A1:C1");
    assert_eq!(listed(&read), ["A1=10^6 in 2019^3", "B1=1st, H2, 123", "C1=10^−6"]);
}

#[test]
fn what_repeats_comes_as_often_and_what_is_empty_costs_nothing() {
    let most = "4294967295";
    let empty = format!("<table:table-cell table:number-columns-repeated=\"{most}\" table:style-name=\"x\"/>");
    let rows = format!(
        "<table:table-row table:number-rows-repeated=\"2\"><table:table-cell/>\
         <table:table-cell table:number-columns-repeated=\"3\" office:value-type=\"float\" office:value=\"7\"><text:p>7</text:p></table:table-cell>{empty}</table:table-row>\
         <table:table-row table:number-rows-repeated=\"1000000\">{empty}</table:table-row>{}\
         <table:table-row table:number-rows-repeated=\"{most}\">{empty}</table:table-row>",
        row(&text("far"))
    );
    let bytes = table("", &rows);
    let all = read(&bytes, "A1:XFD1048576");
    assert_eq!(listed(&all), ["B1=7", "C1=7", "D1=7", "B2=7", "C2=7", "D2=7", "A1000003=far"]);
    assert_eq!(listed(&read(&bytes, "C2:C2")), ["C2=7"]);
    let profile = profile(&bytes);
    assert_eq!((profile.used_range, profile.nonempty_cells), (Some("A1:D1000003".parse().unwrap()), 7));

    let refused = |rows: &str, limits: Limits| {
        let source = table("", rows);
        let profiled = profile_sheet(source.clone().into(), 0, true, &limits).unwrap_err();
        let read = records(source.into(), 0, true, &limits, &mut |_| Ok(())).unwrap_err();
        assert_eq!(profiled, read);
        profiled
    };
    let filled = |rows: &str, columns: &str, text: &str| {
        format!(
            "<table:table-row table:number-rows-repeated=\"{rows}\"><table:table-cell table:number-columns-repeated=\"{columns}\">\
             <text:p>{text}</text:p></table:table-cell></table:table-row>"
        )
    };
    assert_eq!(refused(&filled("1048576", "16384", "x"), Limits::default()).limit(), Some(Limit::Cells));
    assert_eq!(refused(&filled(most, "1", "x"), Limits::default()).code(), "corrupt");
    assert_eq!(refused(&filled("1", most, "x"), Limits::default()).code(), "corrupt");
    let long = "x".repeat(1 << 20);
    assert_eq!(refused(&filled("1000", "1000", &long), Limits::default()).limit(), Some(Limit::TextBytes));
}

#[test]
fn hidden_rows_columns_and_merged_cells() {
    let rows = format!(
        "<table:table-column table:number-columns-repeated=\"2\"/><table:table-column-group><table:table-column table:visibility=\"collapse\" \
         table:number-columns-repeated=\"2\"/></table:table-column-group>\
         <table:table-header-rows><table:table-row><table:table-cell table:number-columns-spanned=\"2\" table:number-rows-spanned=\"2\" \
         office:value-type=\"string\"><text:p>wide</text:p></table:table-cell><table:covered-table-cell><text:p>under</text:p></table:covered-table-cell>{}\
         </table:table-row></table:table-header-rows><table:table-row-group>{}<table:table-row table:visibility=\"filter\">{}</table:table-row></table:table-row-group>",
        text("beside"),
        row("<table:covered-table-cell table:number-columns-repeated=\"2\"/>"),
        text("hidden")
    );
    let bytes = table("", &rows);
    let all = read(&bytes, "A1:D9");
    assert_eq!(listed(&all), ["A1=wide", "C1=beside", "A3=hidden"]);
    assert_eq!(all.rows.iter().map(|row| row.hidden).collect::<Vec<_>>(), [false, true]);
    assert_eq!(all.merged, Some(vec!["A1:B2".parse().unwrap()]));
    assert_eq!(read(&bytes, "B2:B2").merged, Some(vec!["A1:B2".parse().unwrap()]), "it begins before the rectangle");
    assert_eq!(read(&bytes, "D1:D1").merged, Some(Vec::new()));
    let profile = profile(&bytes);
    assert_eq!(
        (profile.hidden_rows, profile.hidden_columns.as_slice(), profile.merged_count),
        (1, &["C:D".to_owned()][..], 1)
    );
}

#[test]
fn sheets_names_and_comments() {
    let styles = "<style:style style:name=\"off\" style:family=\"table\"><style:table-properties table:display=\"false\"/></style:style>";
    let note = "<office:annotation><dc:creator>Ada</dc:creator><dc:date>2024-01-01T00:00:00</dc:date><text:p>Count</text:p>\
        <text:p>again</text:p></office:annotation>";
    let noted = format!(
        "<table:table-cell/><table:table-cell office:value-type=\"string\">{note}<text:p>x</text:p></table:table-cell>"
    );
    let body = format!(
        "<table:tracked-changes><table:cell-content-change><table:table-cell><text:p>gone</text:p></table:table-cell></table:cell-content-change></table:tracked-changes>\
         <table:calculation-settings><table:null-date table:date-value=\"1904-01-01\"/></table:calculation-settings>\
         <table:table table:name=\"'file:///a.ods'#$Data\"><table:table-row>{}</table:table-row></table:table>\
         <table:table table:name=\"Ponds &amp; lakes\"><office:forms/>{}{}<table:shapes><draw:frame/></table:shapes></table:table>\
         <table:table table:name=\"Away\" table:style-name=\"off\">{}</table:table><table:table table:name=\"None\"/>\
         <table:named-expressions><table:named-range table:name=\"All\" table:cell-range-address=\"$'Ponds &amp; lakes'.$A$1:.$B$2\"/>\
         <table:named-expression table:name=\"Rate\" table:expression=\"of:=[$Away.$A$1]*2\"/></table:named-expressions>",
        text("copied"),
        row("<table:table-cell/>"),
        row(&noted),
        row(&text("away"))
    );
    let bytes = document(styles, &body);
    let book = workbook(bytes.clone(), &Limits::default()).unwrap();
    let sheets: Vec<_> = book.sheets.iter().map(|sheet| (sheet.name.as_str(), sheet.state)).collect();
    use SheetState::{Hidden, Visible};
    assert_eq!(sheets, [("Ponds & lakes", Visible), ("Away", Hidden), ("None", Visible)]);
    assert_eq!(book.date_epoch, DateEpoch::From1904);
    let names: Vec<_> = book.defined_names.iter().map(|name| format!("{}={}", name.name, name.refers_to)).collect();
    assert_eq!(names, ["All='Ponds & lakes'!$A$1:$B$2", "Rate=Away!$A$1*2"]);
    let profile = profile(&bytes);
    assert_eq!(
        profile.comments.iter().map(|note| format!("{} {}: {}", note.cell, note.author, note.text)).collect::<Vec<_>>(),
        ["B2 Ada: Count\nagain"]
    );
    let away = cells(bytes.clone().into(), 1, "A1:B2".parse().unwrap(), &Limits::default()).unwrap();
    assert_eq!(listed(&away), ["A1=away"]);
    let none = profile_sheet(bytes.clone().into(), 2, true, &Limits::default()).unwrap();
    assert_eq!(none.used_range, None);
    assert_eq!(profile_sheet(bytes.clone().into(), 3, true, &Limits::default()).unwrap_err().code(), "unsupported");
    let patterns = probe(Format::Ods, bytes, &Limits::default()).unwrap();
    assert!(patterns.holds(Pattern::HasSheets) && patterns.holds(Pattern::HasComments));
    assert_eq!(patterns.get(Pattern::SheetCount), Some(&3.into()));
}

#[test]
fn number_formats_are_codes() {
    let number = |attributes: &str| format!("<number:number number:min-integer-digits=\"1\" {attributes}/>");
    let styles = [
        format!("<number:number-style style:name=\"N1\">{}</number:number-style>", number("")),
        format!("<number:number-style style:name=\"N2\">{}</number:number-style>", number("number:decimal-places=\"2\" number:grouping=\"true\"")),
        format!("<number:percentage-style style:name=\"N3\">{}<number:text>%</number:text></number:percentage-style>", number("number:decimal-places=\"1\"")),
        format!(
            "<number:currency-style style:name=\"N4P0\">{0}<number:text> </number:text><number:currency-symbol>€</number:currency-symbol></number:currency-style>\
             <number:currency-style style:name=\"N4\"><number:text>-</number:text>{0}<number:text> Eur</number:text><style:map style:condition=\"value()&gt;=0\" style:apply-style-name=\"N4P0\"/></number:currency-style>",
            number("number:decimal-places=\"2\"")
        ),
        "<number:date-style style:name=\"N5\"><number:day/><number:text>. </number:text><number:month number:textual=\"true\" number:style=\"long\"/><number:text> </number:text>\
         <number:year number:style=\"long\"/><number:text> </number:text><number:hours number:style=\"long\"/><number:text>:</number:text><number:minutes number:style=\"long\"/>\
         <number:text>:</number:text><number:seconds number:style=\"long\" number:decimal-places=\"2\"/></number:date-style>".to_owned(),
    ]
    .concat();
    let cell_styles: String = (1..=5)
        .map(|at| {
            format!(
                "<style:style style:name=\"p{at}\" style:family=\"table-cell\" style:data-style-name=\"N{at}\"/>\
            <style:style style:name=\"c{at}\" style:family=\"table-cell\" style:parent-style-name=\"p{at}\"/>"
            )
        })
        .collect();
    let cells: String = (1..=5)
        .map(|at| {
            format!(
                "<table:table-cell table:style-name=\"c{at}\" office:value-type=\"float\" office:value=\"-1234.5\"/>"
            )
        })
        .collect();
    let columns = "<table:table-column table:number-columns-repeated=\"5\"/><table:table-column table:default-cell-style-name=\"c3\"/>";
    let plain = "<table:table-cell office:value-type=\"float\" office:value=\"0.5\"/>";
    let read = read(
        &table(&format!("{styles}{cell_styles}"), &format!("{columns}{}", row(&format!("{cells}{plain}")))),
        "A1:F1",
    );
    let shown: Vec<_> =
        read.rows[0].cells.iter().map(|cell| (cell.number_format.as_str(), cell.text.as_str())).collect();
    assert_eq!(
        shown,
        [
            ("General", "-1234.5"),
            ("#,##0.00", "-1,234.50"),
            ("0.0%", "-123450.0%"),
            ("0.00 €;-0.00\" Eur\"", "-1234.50 Eur"),
            ("d. mmmm yyyy hh:mm:ss.00", "-1234.5"),
            ("0.0%", "50.0%"),
        ]
    );
}

#[test]
fn records_are_those_of_the_rows() {
    let rows = format!(
        "{}{}{}",
        row(&format!("{}{}", text("Pond"), text("Ducks"))),
        row(&format!("{}{}", text("Mill"), number("72"))),
        row(&text("Reed"))
    );
    let mut parts = Vec::new();
    records(table("", &rows).into(), 0, true, &Limits::default(), &mut |part| {
        parts.push(part);
        Ok(())
    })
    .unwrap();
    let [RecordsPart::Head(head), RecordsPart::Batch(batch), RecordsPart::End { records: 2 }] = &parts[..] else {
        panic!("{parts:?}")
    };
    assert_eq!(head.tables[0].range, "A1:B3".parse().unwrap());
    let shown: Vec<Vec<_>> =
        batch.iter().map(|record| record.cells.iter().map(|cell| cell.shown()).collect()).collect();
    assert_eq!(shown, [vec!["Mill", "72"], vec!["Reed"]]);
}

#[test]
fn what_is_hostile_or_closed_is_refused_by_name() {
    let refused = |parts: &[(&str, &str)]| workbook(package(parts), &Limits::default()).unwrap_err();
    assert_eq!(refused(&[("other.xml", "<x/>")]).code(), "corrupt");
    assert_eq!(
        refused(&[(
            "content.xml",
            "<office:document-content><office:body><office:text/></office:body></office:document-content>"
        )])
        .code(),
        "corrupt"
    );
    let closed = "<manifest><file-entry full-path=\"content.xml\"><encryption-data/></file-entry></manifest>";
    let error = refused(&[("META-INF/manifest.xml", closed), ("content.xml", "x")]);
    assert_eq!(error, FormatError::Sealed { format: Format::Ods });
    let error = workbook(table("", &"<table:table-row-group>".repeat(300)), &Limits::default()).unwrap_err();
    assert_eq!(error.limit(), Some(Limit::XmlDepth));
    let error = refused(&[("content.xml", "<!DOCTYPE a [<!ENTITY b 'c'>]><office:document-content/>")]);
    assert!(error.code() == "corrupt" && error.to_string().contains("ods"), "{error}");
    let many = "<table:table/>".repeat(11);
    let limits = Limits { zip_members: 10, ..Limits::default() };
    assert_eq!(workbook(document("", &many), &limits).unwrap_err().limit(), Some(Limit::ZipMembers));
    let whole = table("", &row(&text("x"))).into_inner();
    assert_eq!(detect(&mut Cursor::new(&whole)).unwrap().format, Some(Format::Ods));
    for cut in 0..whole.len() {
        if let Err(error) = probe(Format::Ods, Cursor::new(&whole[..cut]), &Limits::default()) {
            assert!(error.is_permanent(), "{cut}: {error}");
        }
    }
}

#[test]
fn a_sheet_without_a_name_gets_one_that_no_other_sheet_has() {
    let body = format!(
        "<table:table>{}</table:table><table:table table:name=\"sheet1\"/><table:table table:name=\" \"/>",
        row(&text("heron"))
    );
    let bytes = document("", &body);
    let book = workbook(bytes.clone(), &Limits::default()).unwrap();
    let names: Vec<&str> = book.sheets.iter().map(|sheet| sheet.name.as_str()).collect();
    assert_eq!(names, ["Sheet2", "sheet1", "Sheet3"]);
    assert_eq!(profile(&bytes).sheet.name, "Sheet2");
    assert_eq!(listed(&read(&bytes, "A1:B2")), ["A1=heron"]);
}

#[test]
fn a_long_name_of_a_sheet_is_cut_because_each_row_is_stored_with_it() {
    let body = format!("<table:table table:name=\"{}\">{}</table:table>", "é".repeat(3_000), row(&text("heron")));
    let bytes = document("", &body);
    let book = workbook(bytes.clone(), &Limits::default()).unwrap();
    assert_eq!(book.sheets[0].name, "é".repeat(255));
    assert_eq!(profile(&bytes).sheet.name, book.sheets[0].name);
    assert_eq!(listed(&read(&bytes, "A1:B2")), ["A1=heron"]);
}
