//! Small workbooks, written as a test needs them.
use std::io::{Cursor, Write};
use zip::{ZipWriter, write::SimpleFileOptions};

const MAIN: &str = "http://schemas.openxmlformats.org/spreadsheetml/2006/main";
const OFFICE: &str = "http://schemas.openxmlformats.org/officeDocument/2006/relationships";
const PACKAGE: &str = "http://schemas.openxmlformats.org/package/2006";

/// A workbook of one sheet, `Sheet1`, with texts as its cells.
pub fn workbook<T: AsRef<str>>(rows: &[Vec<T>]) -> Vec<u8> {
    workbook_of_rows("Sheet1", rows_of_texts(rows))
}

/// Rows with texts as their cells, as a file has them.
pub fn rows_of_texts<T: AsRef<str>>(rows: &[Vec<T>]) -> String {
    let mut data = String::new();
    for row in rows {
        data.push_str("<row>");
        for cell in row {
            data += &format!("<c t=\"inlineStr\"><is><t>{}</t></is></c>", escape(cell.as_ref()));
        }
        data.push_str("</row>");
    }
    data
}

/// A workbook of one sheet with this name, and with rows as the file has them.
pub fn workbook_of_rows(name: &str, rows: String) -> Vec<u8> {
    workbook_of_named_sheets(&[(name.to_owned(), rows)])
}

/// A workbook of sheets with these names, each with its rows as the file has them.
pub fn workbook_of_named_sheets(sheets: &[(String, String)]) -> Vec<u8> {
    package(sheets, &[])
}

/// A workbook with sheets `Sheet1`, `Sheet2` and so on. All sheets have the same rows of texts from one shared table,
/// and a name for each column before the first row. `texts` may hold more texts than the rows use.
pub fn workbook_of_sheets(sheets: usize, rows: usize, texts: &[String]) -> Vec<u8> {
    let mut data = String::from("<row><c t=\"s\"><v>0</v></c><c t=\"s\"><v>1</v></c></row>");
    for row in 1..=rows {
        let text = |column: usize| (2 * row + column) % texts.len();
        data += &format!("<row><c t=\"s\"><v>{}</v></c><c t=\"s\"><v>{}</v></c></row>", text(0), text(1));
    }
    let sheets: Vec<_> = (1..=sheets).map(|number| (format!("Sheet{number}"), data.clone())).collect();
    package(&sheets, texts)
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

/// Sheets are their names with their rows.
fn package(sheets: &[(String, String)], texts: &[String]) -> Vec<u8> {
    let kind = "application/vnd.openxmlformats-officedocument.spreadsheetml";
    let relation = |id: &str, what: &str, target: &str| {
        format!("<Relationship Id=\"{id}\" Type=\"{OFFICE}/{what}\" Target=\"{target}\"/>")
    };
    let relations = |all: String| format!("<Relationships xmlns=\"{PACKAGE}/relationships\">{all}</Relationships>");
    let part =
        |name: &str, what: &str| format!("<Override PartName=\"/xl/{name}.xml\" ContentType=\"{kind}.{what}+xml\"/>");
    let (mut types, mut tabs, mut links) = (part("workbook", "sheet.main"), String::new(), String::new());
    for (number, (title, _)) in (1..).zip(sheets) {
        let (name, id) = (format!("worksheets/sheet{number}"), format!("rId{number}"));
        types += &part(&name, "worksheet");
        tabs += &format!("<sheet name=\"{title}\" sheetId=\"{number}\" r:id=\"{id}\"/>");
        links += &relation(&id, "worksheet", &format!("{name}.xml"));
    }
    let mut members =
        vec![("_rels/.rels".to_owned(), relations(relation("rId1", "officeDocument", "xl/workbook.xml")))];
    if !texts.is_empty() {
        types += &part("sharedStrings", "sharedStrings");
        links += &relation("texts", "sharedStrings", "sharedStrings.xml");
        let all: String = texts.iter().map(|text| format!("<si><t>{}</t></si>", escape(text))).collect();
        members.push(("xl/sharedStrings.xml".to_owned(), format!("<sst xmlns=\"{MAIN}\">{all}</sst>")));
    }
    members.push(("xl/_rels/workbook.xml.rels".to_owned(), relations(links)));
    let workbook = format!("<workbook xmlns=\"{MAIN}\" xmlns:r=\"{OFFICE}\"><sheets>{tabs}</sheets></workbook>");
    members.push(("xl/workbook.xml".to_owned(), workbook));
    members
        .push(("[Content_Types].xml".to_owned(), format!("<Types xmlns=\"{PACKAGE}/content-types\">{types}</Types>")));
    for (number, (_, data)) in (1..).zip(sheets) {
        let sheet = format!("<worksheet xmlns=\"{MAIN}\"><sheetData>{data}</sheetData></worksheet>");
        members.push((format!("xl/worksheets/sheet{number}.xml"), sheet));
    }
    let mut package = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, text) in members {
        package.start_file(name, SimpleFileOptions::default()).unwrap();
        package.write_all(text.as_bytes()).unwrap();
    }
    package.finish().unwrap().into_inner()
}
