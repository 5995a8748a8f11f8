//! Reads PDF: text by page in the order of reading, and headings.

mod annotations;
mod boxes;
mod coverage;
mod document;
mod drawn_fonts;
mod encryption;
mod glyphs;
mod headings;
mod images;
mod layout;
mod pages;
mod png;
mod render;
mod rulings;
mod scans;
mod streams;
mod strings;
#[cfg(test)]
mod tests;
mod unicode;

use crate::{
    Access, Extraction, FormatError, Limits, Page, Pattern, Patterns,
    extraction::check_text,
    tables::{MOST_BYTES_OF_ALL, MOST_TABLES},
};
use document::Document;
use headings::Headings;
pub(crate) use images::images;
pub use layout::join_lines;
use pages::{PageReader, PageText};
pub(crate) use render::render;
pub use render::{PictureSize, Raster};
pub use scans::{ReadPage, is_without_blanks};
use serde_json::{Value, json};
use std::io::{Read, Seek};

/// How many pages a probe reads, spread evenly over the whole file and including the first.
const PROBED_PAGES: usize = 32;
/// How many elements of the structure tree a probe, or an extraction, examines.
const PROBED_ELEMENTS: usize = 50_000;
const MOST_ELEMENTS: usize = 2_000_000;

/// How often an extraction says how far it is.
const TOLD: u32 = 32;

/// Why an encrypted file does not open.
pub(crate) fn refusal<R: Read + Seek>(source: R) -> Option<FormatError> {
    Document::open(source, (&Limits::default()).into()).err()
}

/// Reads [`PROBED_PAGES`]. An outline or tags declare headings for the whole file. Headings by font sizes are found
/// only among these pages, so a file whose only headings are on other pages has none; so it is with scanned pages, pages whose
/// fonts cannot be read, and tables. A file is scanned if over half of these pages are.
pub(crate) fn probe<R: Read + Seek>(source: R, access: Access<'_>) -> Result<Patterns, FormatError> {
    let document = match Document::open(source, access) {
        Ok(document) => document,
        // What it holds cannot be known, but that it is closed is an answer.
        Err(FormatError::Encrypted { .. } | FormatError::Sealed { .. }) => {
            return Ok(Patterns::default().with(Pattern::IsEncrypted, true));
        }
        Err(error) => return Err(error),
    };
    let (mut headings, has_outline) = Headings::find(&document, PROBED_ELEMENTS, access.limits)?;
    let count = document.page_count();
    let step = count.div_ceil(PROBED_PAGES).max(1);
    let mut reader = PageReader::new(&document, access.limits);
    let (mut looked_at, mut with_text, mut scanned, mut with_images) = (0usize, 0usize, 0usize, 0usize);
    let (mut has_tables, mut has_unusable) = (false, false);
    for index in (0..count).step_by(step) {
        let page = reader.read(index)?;
        looked_at += 1;
        scanned += usize::from(page.is_scanned());
        has_unusable |= page.is_unusable();
        with_images += usize::from(page.images.count > 0);
        if page.has_usable_text() {
            with_text += usize::from(page.has_own_text());
            headings.add_page(index, &page.laid, 0);
            has_tables |= !page.laid.tables.is_empty();
        }
    }
    Ok(Patterns::default()
        .with(Pattern::HasTextLayer, with_text > 0)
        .with(Pattern::HasHeadings, headings.are_likely())
        .with(Pattern::HasOutline, has_outline)
        .with(Pattern::IsScanned, scanned * 2 > looked_at)
        .with(Pattern::HasScannedPages, scanned > 0)
        .with(Pattern::HasUnusablePages, has_unusable)
        .with(Pattern::HasImages, with_images > 0)
        .with(Pattern::HasTables, has_tables)
        .with(Pattern::IsEncrypted, document.is_encrypted()))
}

/// Extracts the text with these facts: `page_count`, `tagged`, and if there are any, `page_images` (a page's number,
/// the number of images, and the shares of the page that the largest and all of them cover), `scanned_pages`,
/// `unusable_pages` (whose fonts cannot be read), `unreadable_pages`, `unknown_glyphs`, `tables_left_out` (for lack of room). A file without text has the
/// fact `empty`.
pub(crate) fn extract<R: Read + Seek>(source: R, access: Access<'_>) -> Result<Extraction, FormatError> {
    let limits = access.limits;
    let document = Document::open(source, access)?;
    let (mut headings, _) = Headings::find(&document, MOST_ELEMENTS, limits)?;
    let mut reader = PageReader::new(&document, limits);
    let mut extraction = Extraction::default();
    let mut notes = Notes::default();
    let (mut table_room, mut tables) = (MOST_BYTES_OF_ALL, 0);
    let count = document.page_count() as u32;
    for index in 0..document.page_count() {
        tell(access, index as u32, count)?;
        let page = reader.read(index)?;
        let is_usable = page.has_usable_text();
        if is_usable && !extraction.text.is_empty() {
            extraction.text.push_str("\n\n");
        }
        let start = extraction.text.len();
        if is_usable {
            extraction.text.push_str(&page.laid.text);
            headings.add_page(index, &page.laid, start);
            tables += page.laid.tables.len();
            table_room = add_tables(&mut extraction, &page, start, table_room);
        }
        let number = index as u32 + 1;
        extraction.pages.push(Page { number, start, end: extraction.text.len() });
        notes.add(number, &page);
        check_text(extraction.text.len(), limits)?;
    }
    if !(notes.scanned.is_empty() && notes.unusable.is_empty()) {
        extraction.outline = headings.outline().to_vec();
    }
    let (found, from) = headings.finish(&extraction);
    extraction.headings_from = (!found.is_empty()).then(|| from.to_owned());
    extraction.headings = found;
    extraction.facts.insert("page_count".to_owned(), document.page_count().into());
    extraction.facts.insert("tagged".to_owned(), document.is_tagged().into());
    if tables > extraction.tables.len() {
        extraction.facts.insert("tables_left_out".to_owned(), (tables - extraction.tables.len()).into());
    }
    notes.write(&mut extraction);
    extraction.within(limits)
}

/// Adds the tables of a page whose text begins at `start`, as far as there is room; returns the room that is left. The others
/// stay text.
fn add_tables(extraction: &mut Extraction, page: &PageText, start: usize, mut room: usize) -> usize {
    for table in &page.laid.tables {
        let left = room.checked_sub(table.bytes());
        match left.filter(|_| extraction.tables.len() < MOST_TABLES) {
            Some(left) => room = left,
            None => continue,
        }
        let mut table = table.clone();
        for range in &mut table.ranges {
            *range = start + range.start..start + range.end;
        }
        extraction.tables.push(table);
    }
    room
}

/// Says how many pages were read, up to [`TOLD`] times; a short file is over before anybody would look.
fn tell(access: Access<'_>, done: u32, count: u32) -> Result<(), FormatError> {
    match access.pages {
        Some(pages) if count > TOLD && done.is_multiple_of(count.div_ceil(TOLD)) => pages(done, count),
        _ => Ok(()),
    }
}

/// What is recorded of the pages.
#[derive(Default)]
struct Notes {
    images: Vec<Value>,
    scanned: Vec<u32>,
    unusable: Vec<u32>,
    unreadable: usize,
    unknown: usize,
}

impl Notes {
    fn add(&mut self, number: u32, page: &PageText) {
        let hundredths = |part: f64| (part * 100.0).round() / 100.0;
        if page.images.count > 0 {
            let (largest, all) = (hundredths(page.images.largest), hundredths(page.images.union()));
            let count = page.images.count;
            self.images.push(json!({"page": number, "count": count, "largest_coverage": largest, "coverage": all}));
        }
        if page.is_scanned() {
            self.scanned.push(number);
        }
        if page.is_unusable() {
            self.unusable.push(number);
        }
        self.unreadable += usize::from(page.failed);
        self.unknown += page.unknown;
    }

    fn write(self, extraction: &mut Extraction) {
        let facts = &mut extraction.facts;
        let counts = [("unreadable_pages", self.unreadable), ("unknown_glyphs", self.unknown)];
        facts.extend(
            counts.into_iter().filter(|(_, count)| *count > 0).map(|(fact, count)| (fact.to_owned(), count.into())),
        );
        if !self.images.is_empty() {
            facts.insert("page_images".to_owned(), self.images.into());
        }
        if !self.scanned.is_empty() {
            facts.insert("scanned_pages".to_owned(), self.scanned.into());
        }
        if !self.unusable.is_empty() {
            facts.insert("unusable_pages".to_owned(), self.unusable.into());
        }
        if extraction.text.is_empty() {
            facts.insert("empty".to_owned(), "needs_ocr".into());
        }
    }
}
