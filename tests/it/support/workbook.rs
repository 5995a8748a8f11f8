//! Small workbooks, written as a test needs them.
use std::io::{Cursor, Write};
use zip::{ZipWriter, write::SimpleFileOptions};

const MAIN: &str = "http://schemas.openxmlformats.org/spreadsheetml/2006/main";
const OFFICE: &str = "http://schemas.openxmlformats.org/officeDocument/2006/relationships";
const PACKAGE: &str = "http://schemas.openxmlformats.org/package/2006";

/// A workbook of one sheet, `Sheet1`, with texts as its cells.
pub fn workbook<T: AsRef<str>>(rows: &[Vec<T>]) -> Vec<u8> {
    let escape = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;");
    let mut data = String::new();
    for row in rows {
        data.push_str("<row>");
        for cell in row {
            data += &format!("<c t=\"inlineStr\"><is><t>{}</t></is></c>", escape(cell.as_ref()));
        }
        data.push_str("</row>");
    }
    let kind = "application/vnd.openxmlformats-officedocument.spreadsheetml";
    let relation = |what: &str, target: &str| {
        format!(
            "<Relationships xmlns=\"{PACKAGE}/relationships\"><Relationship Id=\"rId1\" Type=\"{OFFICE}/{what}\" Target=\"{target}\"/></Relationships>"
        )
    };
    let members = [
        (
            "[Content_Types].xml",
            format!(
                "<Types xmlns=\"{PACKAGE}/content-types\"><Override PartName=\"/xl/workbook.xml\" ContentType=\"{kind}.sheet.main+xml\"/>\
                 <Override PartName=\"/xl/worksheets/sheet1.xml\" ContentType=\"{kind}.worksheet+xml\"/></Types>"
            ),
        ),
        ("_rels/.rels", relation("officeDocument", "xl/workbook.xml")),
        (
            "xl/workbook.xml",
            format!(
                "<workbook xmlns=\"{MAIN}\" xmlns:r=\"{OFFICE}\"><sheets><sheet name=\"Sheet1\" sheetId=\"1\" r:id=\"rId1\"/></sheets></workbook>"
            ),
        ),
        ("xl/_rels/workbook.xml.rels", relation("worksheet", "worksheets/sheet1.xml")),
        ("xl/worksheets/sheet1.xml", format!("<worksheet xmlns=\"{MAIN}\"><sheetData>{data}</sheetData></worksheet>")),
    ];
    let mut package = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, text) in members {
        package.start_file(name, SimpleFileOptions::default()).unwrap();
        package.write_all(text.as_bytes()).unwrap();
    }
    package.finish().unwrap().into_inner()
}
