//! Books built by hand.

use super::*;
use crate::{Limit, detect};
use std::io::{Cursor, Write};
use zip::{ZipWriter, write::SimpleFileOptions};

const CONTAINER: &str = "<container><rootfiles><rootfile full-path=\"OEBPS/book.opf\"/></rootfiles></container>";
const BOOK: &str = "<package><metadata><dc:title>The Pond</dc:title><dc:creator>A. Keeper</dc:creator><dc:language>en</dc:language></metadata>\
    <manifest><item id=\"two\" href=\"two%20b.xhtml\" media-type=\"application/xhtml+xml\"/>\
    <item id=\"one\" href=\"text/../one.xhtml#top\" media-type=\"application/xhtml+xml\"/>\
    <item id=\"css\" href=\"a.css\" media-type=\"text/css\"/></manifest>\
    <spine><itemref idref=\"one\"/><itemref idref=\"css\"/><itemref idref=\"two\"/><itemref idref=\"one\"/></spine></package>";

fn page(body: &str) -> String {
    format!(
        "<?xml version=\"1.0\"?><!DOCTYPE html><html xmlns=\"http://www.w3.org/1999/xhtml\"><body>{body}</body></html>"
    )
}

fn package(parts: &[(&str, &str)]) -> Vec<u8> {
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, text) in [("mimetype", "application/epub+zip")].iter().chain(parts) {
        writer.start_file(*name, SimpleFileOptions::default()).unwrap();
        writer.write_all(text.as_bytes()).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

fn read(parts: &[(&str, &str)]) -> Result<Extraction, FormatError> {
    let bytes = package(parts);
    assert_eq!(detect(&mut Cursor::new(&bytes)).unwrap().format, Some(Format::Epub));
    extract(Cursor::new(bytes), &Limits::default())
}

#[test]
fn pages_follow_the_order_of_the_spine() {
    let (one, two) = (page("<h1>Ducks</h1><p>They &#8212; return.</p>"), page("<h2>Herons</h2><p>Two.</p>"));
    let parts = [
        ("META-INF/container.xml", CONTAINER),
        ("OEBPS/book.opf", BOOK),
        ("OEBPS/two b.xhtml", &two),
        ("OEBPS/one.xhtml", &one),
    ];
    let book = read(&parts).unwrap();
    assert_eq!(book.text, "# Ducks\n\nThey — return.\n\n## Herons\n\nTwo.");
    assert!(book.headings.iter().all(|heading| book.text[heading.start..].starts_with('#')), "{:?}", book.headings);
    assert_eq!((&book.facts["title"], &book.facts["author"]), (&"The Pond".into(), &"A. Keeper".into()));
    let partly = read(&parts[..3]).unwrap();
    assert_eq!((partly.text.as_str(), &partly.facts["epub.missing_pages"]), ("## Herons\n\nTwo.", &1.into()));
}

#[test]
fn an_element_that_ends_where_it_begins_takes_nothing_of_the_page() {
    for empty in
        ["<object data=\"a.svg\" type=\"image/svg+xml\"/>", "<canvas/>", "<button/>", "<nav/>", "<a id=\"p2\"/>"]
    {
        let one = page(&format!("<p>One</p><p>{empty}</p><p>Two</p>"));
        let parts = [("META-INF/container.xml", CONTAINER), ("OEBPS/book.opf", BOOK), ("OEBPS/one.xhtml", &one)];
        let text = read(&parts).unwrap().text;
        assert_eq!(text.split_whitespace().collect::<Vec<_>>(), ["One", "Two"], "{empty}");
    }
}

#[test]
fn what_is_no_book_is_refused_by_name() {
    let one = page("<p>x</p>");
    let with = |more: &[(&'static str, &str)]| {
        let parts = [("META-INF/container.xml", CONTAINER), ("OEBPS/book.opf", BOOK)];
        let parts: Vec<(&str, &str)> = parts.iter().chain(more).copied().collect();
        read(&parts)
    };
    assert_eq!(read(&[]).unwrap_err().code(), "corrupt");
    assert_eq!(read(&[("META-INF/container.xml", CONTAINER)]).unwrap_err().code(), "corrupt");
    assert_eq!(with(&[]).unwrap_err().code(), "corrupt");
    let bomb = page(&" ".repeat(30 << 20));
    assert_eq!(with(&[("OEBPS/one.xhtml", &bomb)]).unwrap_err().limit(), Some(Limit::ZipRatio));
    let locked = |part: &str| {
        format!("<encryption><EncryptedData><CipherReference URI=\"{part}\"/></EncryptedData></encryption>")
    };
    let (pages, fonts) = (locked("OEBPS/one.xhtml"), locked("OEBPS/font.otf"));
    let closed = with(&[("OEBPS/one.xhtml", &one), ("META-INF/encryption.xml", &pages)]);
    assert_eq!(closed.unwrap_err().code(), "encrypted");
    assert!(with(&[("OEBPS/one.xhtml", &one), ("META-INF/encryption.xml", &fonts)]).is_ok());
    let deep = page(&"<div>".repeat(200_000));
    assert!(with(&[("OEBPS/one.xhtml", &deep)]).unwrap_err().is_permanent());
}
