//! PDF: text by page, and the outline's headings.

mod document;
mod layout;
mod outline;
mod page_text;
mod strings;

use std::io::{Read, Seek};

use crate::{Access, Extraction, FormatError, Heading, Limits, Page, Pattern, Patterns, extraction::check_text};
use document::Document;
use page_text::PageText;

/// Pages a probe looks at, spread over the whole file.
const PROBED_PAGES: usize = 48;
/// Fewer characters than this under a large image are a stamp or a page number, not the page's text.
const SCANNED_CHARACTERS: usize = 10;
const SCANNED_COVERAGE: f64 = 0.5;

pub(crate) fn probe<R: Read + Seek>(source: R, access: Access<'_>) -> Result<Patterns, FormatError> {
    let limits = access.limits;
    let document = match Document::open(source, access) {
        Ok(document) => document,
        // What it holds cannot be known, but that it is closed is an answer.
        Err(FormatError::Encrypted { .. }) => return Ok(Patterns::default().with(Pattern::IsEncrypted, true)),
        Err(error) => return Err(error),
    };
    let count = document.page_count();
    let step = count.div_ceil(PROBED_PAGES).max(1);
    let mut reader = document.reader();
    let (mut looked_at, mut with_text, mut scanned, mut with_images) = (0usize, 0usize, 0usize, 0usize);
    for index in (0..count).step_by(step) {
        let page = reader.read(index);
        looked_at += 1;
        with_text += usize::from(page.has_usable_text() && !is_scanned(&page));
        scanned += usize::from(is_scanned(&page));
        with_images += usize::from(page.image_coverage > 0.0);
    }
    let outline = outline::read(&document, limits)?;
    Ok(Patterns::default()
        .with(Pattern::HasTextLayer, with_text > 0)
        // A title that points nowhere heads nothing.
        .with(Pattern::HasHeadings, outline.iter().any(|entry| entry.page.is_some()))
        .with(Pattern::HasOutline, !outline.is_empty())
        .with(Pattern::IsScanned, scanned * 2 > looked_at)
        .with(Pattern::HasImages, with_images > 0)
        .with(Pattern::IsEncrypted, document.is_encrypted()))
}

fn is_scanned(page: &PageText) -> bool {
    page.characters < SCANNED_CHARACTERS && page.image_coverage >= SCANNED_COVERAGE
}

pub(crate) fn extract<R: Read + Seek>(source: R, access: Access<'_>) -> Result<Extraction, FormatError> {
    let limits = access.limits;
    let document = Document::open(source, access)?;
    let mut reader = document.reader();
    let mut extraction = Extraction::default();
    let (mut unreadable, mut unusable, mut unknown) = (0usize, 0usize, 0usize);
    for index in 0..document.page_count() {
        let page = reader.read(index);
        unreadable += usize::from(page.failed);
        unusable += usize::from(page.characters > 0 && !page.has_usable_text());
        unknown += page.unknown;
        if !extraction.text.is_empty() && !page.text.is_empty() {
            extraction.text.push_str("\n\n");
        }
        let start = extraction.text.len();
        if page.has_usable_text() {
            extraction.text.push_str(&page.text);
        }
        extraction.pages.push(Page { number: index as u32 + 1, start, end: extraction.text.len() });
        check_text(extraction.text.len(), limits)?;
    }
    extraction.headings = headings(&document, &extraction, limits)?;
    if !extraction.headings.is_empty() {
        extraction.headings_from = Some("outline".to_owned());
    }
    extraction.facts.insert("page_count".to_owned(), document.page_count().into());
    for (fact, count) in [("unreadable_pages", unreadable), ("unusable_pages", unusable), ("unknown_glyphs", unknown)] {
        if count > 0 {
            extraction.facts.insert(fact.to_owned(), count.into());
        }
    }
    if extraction.text.is_empty() {
        extraction.facts.insert("empty".to_owned(), "needs_ocr".into());
    }
    extraction.within(limits)
}

/// The outline's entries, each at its title's line on its page, or where the page begins.
fn headings(document: &Document, extraction: &Extraction, limits: &Limits) -> Result<Vec<Heading>, FormatError> {
    let mut headings = Vec::new();
    // Thousands of entries may point to one long page: all searches together read the text a few times, then titles stay unsought.
    let mut budget = extraction.text.len().saturating_mul(16);
    // Entries of one page come in order: the search for one goes on where the one before was found.
    let (mut on_page, mut from) = (None, 0);
    for entry in outline::read(document, limits)? {
        let Some(page) = entry.page.and_then(|index| extraction.pages.get(index)) else { continue };
        if entry.page != on_page {
            on_page = entry.page;
            from = page.start;
        }
        let text = &extraction.text[from..page.end];
        if let Some(left) = budget.checked_sub(text.len()) {
            budget = left;
            from += find_title(text, &entry.title).unwrap_or(0);
        }
        headings.push(Heading { level: entry.level, title: entry.title, start: from });
    }
    // An outline may point backwards; offsets rise.
    headings.sort_by_key(|heading| heading.start);
    Ok(headings)
}

/// The start of the first line that begins with the title, white space and case aside.
fn find_title(text: &str, title: &str) -> Option<usize> {
    // Longer titles are told apart by less, and a line is compared in constant time.
    const COMPARED: usize = 64;
    fn letters(text: &str) -> impl Iterator<Item = char> {
        text.chars().filter(|character| !character.is_whitespace()).flat_map(char::to_lowercase)
    }
    let wanted: Vec<char> = letters(title).take(COMPARED).collect();
    if wanted.is_empty() {
        return None;
    }
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        if letters(&text[at..]).take(wanted.len()).eq(wanted.iter().copied()) {
            return Some(at);
        }
        at += line.len();
    }
    None
}
