//! Workbooks built by hand, one for each trap.

mod boxes;
mod cells;
mod kinds;
mod package;
mod sheets;
mod tables;

use super::*;
use std::io::{Cursor, Write};
use zip::{ZipWriter, write::SimpleFileOptions};

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

    /// Sets the number formats of styles 1, 2 ...
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
        cells(self.bytes().into(), 0, range.parse().unwrap(), &Limits::default()).unwrap()
    }

    fn profile(&self) -> SheetProfile {
        profile_sheet(self.bytes().into(), 0, true, &Limits::default()).unwrap()
    }

    fn records(&self) -> (RecordsHead, Vec<Record>) {
        let (head, all, loose) = self.rows(false);
        assert!(loose.is_empty(), "only who looks for tables is given what is in none");
        (head, all)
    }

    fn rows(&self, tables: bool) -> (RecordsHead, Vec<Record>, Vec<LooseRow>) {
        let (mut head, mut all, mut loose, mut end) = (None, Vec::new(), Vec::new(), None);
        records(self.bytes().into(), 0, tables, &Limits::default(), &mut |part| {
            match part {
                RecordsPart::Head(given) => head = Some(given),
                RecordsPart::Batch(batch) => all.extend(batch),
                RecordsPart::Loose(batch) => loose.extend(batch),
                RecordsPart::End { records } => end = Some(records),
            }
            Ok(())
        })
        .unwrap();
        assert_eq!(end, Some(all.len() as u64));
        (head.unwrap(), all, loose)
    }
}

/// `A1=text` for each filled cell, with its formula if it has one.
pub(super) fn listed(cells: &Cells) -> Vec<String> {
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
