//! Reads books in the EPUB format: web pages in a zip, in the order that the book's package names.

mod images;
#[cfg(test)]
mod tests;

use crate::{
    Extraction, Format, FormatError, Limits, Pattern, Patterns,
    extraction::check_text,
    html,
    package::Package,
    xml::{Node, XmlReader},
};
pub(crate) use images::images;
use std::{
    collections::{HashMap, HashSet},
    io::{Read, Seek},
};

pub(crate) fn probe<R: Read + Seek>(source: R, limits: &Limits) -> Result<Patterns, FormatError> {
    let mut package = Package::open(source, Format::Epub, limits)?;
    let patterns = read(&mut package, limits)?.patterns();
    Ok(patterns.with(Pattern::HasImages, images::has_images(&package)))
}

/// The book's pages, one after the other, with the headings that they have.
pub(crate) fn extract<R: Read + Seek>(source: R, limits: &Limits) -> Result<Extraction, FormatError> {
    read(&mut Package::open(source, Format::Epub, limits)?, limits)
}

fn read<R: Read + Seek>(package: &mut Package<R>, limits: &Limits) -> Result<Extraction, FormatError> {
    let root = root(package, limits)?;
    let Book { title, creators, language, spine } = Book::read(package, &root, limits)?;
    let sealed = encrypted(package, limits)?;
    if spine.iter().any(|page| sealed.contains(page)) {
        return Err(FormatError::Sealed { format: Format::Epub });
    }
    let mut book = Extraction::default();
    let mut missing = 0u64;
    for page in &spine {
        let Some(part) = package.part(page)? else {
            missing += 1;
            continue;
        };
        let mut bytes = Vec::new();
        // A member that does not inflate is damage, and a limit on the way is its own error.
        part.take(limits.text_bytes.saturating_add(1)).read_to_end(&mut bytes).map_err(
            |error| match FormatError::from(error) {
                FormatError::Io { reason } => FormatError::corrupt(Format::Epub, reason),
                ours => ours,
            },
        )?;
        check_text(bytes.len(), limits)?;
        append(&mut book, html::Source::decode(&bytes, None).of_xml().body(limits)?);
        check_text(book.text.len(), limits)?;
    }
    if missing > 0 && book.text.is_empty() {
        return Err(FormatError::corrupt(Format::Epub, "the package has none of its pages"));
    }
    if !book.headings.is_empty() {
        book.headings_from = Some("html".to_owned());
    }
    let texts = [("title", title), ("author", Some(creators.join(", "))), ("language", language)];
    for (name, text) in texts {
        if let Some(text) = text.filter(|text| !text.is_empty()) {
            book.facts.insert(name.to_owned(), text.into());
        }
    }
    if missing > 0 {
        book.facts.insert("epub.missing_pages".to_owned(), missing.into());
    }
    book.within(limits)
}

fn append(book: &mut Extraction, page: Extraction) {
    if page.text.trim().is_empty() {
        return;
    }
    if !book.text.is_empty() {
        book.text.push_str("\n\n");
    }
    let shift = book.text.len();
    book.text.push_str(&page.text);
    book.headings.extend(page.headings.into_iter().map(|mut heading| {
        heading.start += shift;
        heading
    }));
}

/// The name of the part that describes the book.
fn root<R: Read + Seek>(package: &mut Package<R>, limits: &Limits) -> Result<String, FormatError> {
    let none = || FormatError::corrupt(Format::Epub, "the package names no book");
    let part = package.part("META-INF/container.xml")?.ok_or_else(none)?;
    let mut xml = XmlReader::document(part, Format::Epub, limits);
    while let Some(node) = xml.next()? {
        if let Node::Start(element) = node
            && element.name == "rootfile"
            && let Some(path) = element.attribute("full-path")
        {
            return Ok(path.to_owned());
        }
    }
    Err(none())
}

/// The parts that are encrypted; fonts often are, and hide nothing.
fn encrypted<R: Read + Seek>(package: &mut Package<R>, limits: &Limits) -> Result<HashSet<String>, FormatError> {
    let mut parts = HashSet::new();
    let Some(part) = package.part("META-INF/encryption.xml")? else { return Ok(parts) };
    let mut xml = XmlReader::document(part, Format::Epub, limits);
    while let Some(node) = xml.next()? {
        if let Node::Start(element) = node
            && element.name == "CipherReference"
            && let Some(target) = element.attribute("URI")
        {
            parts.insert(resolved("", target));
        }
    }
    Ok(parts)
}

/// What a book says of itself, and its pages in their order.
struct Book {
    title: Option<String>,
    creators: Vec<String>,
    language: Option<String>,
    spine: Vec<String>,
}

/// A text about the book is cut here, and no more creators are kept than this.
const FACT_CHARACTERS: usize = 1000;
const CREATORS: usize = 20;

impl Book {
    fn read<R: Read + Seek>(package: &mut Package<R>, root: &str, limits: &Limits) -> Result<Self, FormatError> {
        let missing = || FormatError::corrupt(Format::Epub, "the package of the book is missing");
        let mut xml = XmlReader::document(package.part(root)?.ok_or_else(missing)?, Format::Epub, limits);
        let folder = root.rsplit_once('/').map_or("", |(folder, _)| folder);
        let (mut items, mut order) = (HashMap::new(), Vec::new());
        let mut book = Self { title: None, creators: Vec::new(), language: None, spine: Vec::new() };
        let mut text: Option<(String, String)> = None;
        while let Some(node) = xml.next()? {
            match node {
                Node::Start(element) => match element.name.as_str() {
                    "title" | "creator" | "language" => text = Some((element.name, String::new())),
                    "item" => {
                        let is_page = element.attribute("media-type").is_some_and(|kind| kind.contains("html"));
                        if let (true, Some(id), Some(target)) =
                            (is_page, element.attribute("id"), element.attribute("href"))
                        {
                            items.insert(id.to_owned(), resolved(folder, target));
                        }
                    }
                    "itemref" => order.extend(element.attribute("idref").map(str::to_owned)),
                    _ => {}
                },
                Node::Text(piece) => {
                    if let Some((_, text)) = text.as_mut().filter(|(_, text)| text.len() < 4 * FACT_CHARACTERS) {
                        text.push_str(&piece);
                    }
                }
                Node::End => {
                    let Some((name, text)) = text.take() else { continue };
                    let text: String = text.trim().chars().take(FACT_CHARACTERS).collect();
                    match name.as_str() {
                        "title" => book.title = book.title.or(Some(text)),
                        "language" => book.language = book.language.or(Some(text)),
                        _ if book.creators.len() < CREATORS => book.creators.push(text),
                        _ => {}
                    }
                }
            }
        }
        // A page that comes twice is one page.
        let mut seen = HashSet::new();
        book.spine =
            order.iter().filter_map(|id| items.get(id)).filter(|page| seen.insert((*page).clone())).cloned().collect();
        if book.spine.is_empty() {
            return Err(FormatError::corrupt(Format::Epub, "the book has no pages"));
        }
        Ok(book)
    }
}

/// A target relative to a folder of the package, with its escapes (`%20`) resolved and without a fragment.
fn resolved(folder: &str, target: &str) -> String {
    let target = target.split(['#', '?']).next().unwrap_or_default();
    let mut bytes = Vec::with_capacity(target.len());
    let mut rest = target.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let digits = after.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.filter(|_| first == b'%').and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &after[2..];
            }
            None => {
                bytes.push(first);
                rest = after;
            }
        }
    }
    crate::package::resolve(folder, &String::from_utf8_lossy(&bytes))
}
