//! Writes small PDFs, so that a test shows what it reads.

use std::{collections::BTreeMap, fmt::Write};

/// A file's objects by number: 1 is the catalog, 2 the page tree, 3 a font that pages call F1. From 10 on come the
/// pages, each followed by its content. What a test adds has numbers from 100 on.
pub(super) struct Pdf {
    objects: BTreeMap<u32, String>,
    catalog: String,
    trailer: String,
    pages: u32,
}

impl Pdf {
    pub(super) fn new() -> Self {
        let font = "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>".to_owned();
        Self { objects: BTreeMap::from([(3, font)]), catalog: String::new(), trailer: String::new(), pages: 0 }
    }

    pub(super) fn catalog(mut self, entries: &str) -> Self {
        self.catalog.push_str(entries);
        self
    }

    pub(super) fn trailer(mut self, entries: &str) -> Self {
        self.trailer.push_str(entries);
        self
    }

    pub(super) fn object(mut self, number: u32, body: &str) -> Self {
        self.objects.insert(number, body.to_owned());
        self
    }

    pub(super) fn stream(self, number: u32, entries: &str, data: &str) -> Self {
        self.object(number, &format!("<< {entries} /Length {} >> stream\n{data}\nendstream", data.len()))
    }

    pub(super) fn page(self, content: &str) -> Self {
        self.page_with("", content)
    }

    /// Adds a page of 600 by 800 points with its own entries, whose `/XObject` and `/Properties` are objects 90 and 91.
    pub(super) fn page_with(mut self, entries: &str, content: &str) -> Self {
        let number = 10 + 2 * self.pages;
        self.pages += 1;
        let resources = "/Resources << /Font << /F1 3 0 R /F2 4 0 R >> /XObject 90 0 R >>";
        let size = if entries.contains("/MediaBox") { "" } else { "/MediaBox [0 0 600 800]" };
        let page = format!("<< /Type /Page /Parent 2 0 R {size} {resources} /Contents {} 0 R {entries} >>", number + 1);
        self.object(number, &page).stream(number + 1, "", content)
    }

    pub(super) fn build(mut self) -> Vec<u8> {
        let kids: String = (0..self.pages).map(|page| format!("{} 0 R ", 10 + 2 * page)).collect();
        self.objects.insert(1, format!("<< /Type /Catalog /Pages 2 0 R {} >>", self.catalog));
        let tree = format!("<< /Type /Pages /Kids [{kids}] /Count {} >>", self.pages);
        // The test may have one of its own.
        self.objects.entry(2).or_insert(tree);
        let mut file = "%PDF-1.7\n".to_owned();
        let mut table = "xref\n".to_owned();
        for (number, body) in &self.objects {
            write!(table, "{number} 1\n{:010} 00000 n \n", file.len()).unwrap();
            write!(file, "{number} 0 obj\n{body}\nendobj\n").unwrap();
        }
        let start = file.len();
        write!(file, "{table}trailer << /Root 1 0 R /Size 1000 {} >>\nstartxref\n{start}\n%%EOF\n", self.trailer)
            .unwrap();
        file.into_bytes()
    }
}

/// Operators that show lines of text at a place, 14 points apart.
pub(super) fn lines(x: u32, y: u32, size: u32, lines: &[&str]) -> String {
    let shown: String = lines.iter().map(|line| format!("({line}) Tj T*\n")).collect();
    format!("BT /F1 {size} Tf 14 TL {x} {y} Td\n{shown}ET\n")
}
