//! Documents built by hand, one for each trap.

use super::*;
use crate::{Limit, PageKind, detect};
use std::io::{Cursor, Write};
use zip::{ZipWriter, write::SimpleFileOptions};

fn package(kind: &str, parts: &[(&str, &str)]) -> Vec<u8> {
    let mime = format!("application/vnd.oasis.opendocument.{kind}");
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, text) in [("mimetype", mime.as_str())].iter().chain(parts) {
        writer.start_file(*name, SimpleFileOptions::default()).unwrap();
        writer.write_all(text.as_bytes()).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

fn content(body: &str) -> String {
    format!("<office:document-content xmlns:office=\"o\"><office:body>{body}</office:body></office:document-content>")
}

fn read_as(format: Format, bytes: &[u8]) -> Result<Extraction, FormatError> {
    assert_eq!(detect(&mut Cursor::new(bytes)).unwrap().format, Some(format));
    extract(format, Cursor::new(bytes), &Limits::default())
}

fn document(body: &str) -> Extraction {
    let part = content(&format!("<office:text>{body}</office:text>"));
    read_as(Format::Odt, &package("text", &[("content.xml", &part)])).unwrap()
}

#[test]
fn headings_lists_and_paragraphs_are_markdown() {
    let read = document(
        "<text:h text:outline-level=\"2\">Ponds</text:h><text:p>Two<text:s text:c=\"3\"/>ponds<text:tab/>and <text:span>one \
         &amp; only</text:span> lake<text:line-break/>below.</text:p><text:list><text:list-item><text:p>Mill</text:p>\
         <text:list><text:list-item><text:p>deep</text:p></text:list-item></text:list></text:list-item></text:list>\
         <text:p>Counted<text:note><text:note-citation>1</text:note-citation><text:note-body><text:p>by hand</text:p>\
         </text:note-body></text:note> twice.<office:annotation><text:p>really?</text:p></office:annotation></text:p>",
    );
    assert_eq!(
        read.text,
        "## Ponds\n\nTwo   ponds\tand one & only lake\nbelow.\n\n- Mill\n  - deep\n\nCounted [by hand] twice."
    );
    assert_eq!((read.headings.len(), read.headings[0].level), (1, 2));
}

#[test]
fn a_title_is_known_by_the_style_that_its_own_derives_from() {
    let part = "<office:document-content><office:automatic-styles><style:style style:name=\"P1\" style:parent-style-name=\"Big\"/>\
                </office:automatic-styles><office:body><office:text><text:p text:style-name=\"P1\">Census</text:p>\
                <text:p text:style-name=\"Loop\">Text</text:p></office:text></office:body></office:document-content>";
    let styles = "<office:document-styles><style:style style:name=\"Big\" style:parent-style-name=\"Title\"/>\
                  <style:style style:name=\"Loop\" style:parent-style-name=\"Loop\"/></office:document-styles>";
    let read = read_as(Format::Odt, &package("text", &[("styles.xml", styles), ("content.xml", part)])).unwrap();
    assert_eq!(read.text, "# Census\n\nText");
}

#[test]
fn tables_keep_their_columns_and_no_repetition_grows_them() {
    let cell = |text: &str| format!("<table:table-cell><text:p>{text}</text:p></table:table-cell>");
    let read = document(&format!(
        "<table:table><table:table-row>{}<table:covered-table-cell/>{}</table:table-row><table:table-row>\
         <table:table-cell/>{}{}<table:table-cell table:number-columns-repeated=\"4294967295\"/></table:table-row></table:table>",
        cell("Pond"),
        cell("Ducks"),
        cell("a | b"),
        cell("<text:span>7</text:span>")
    ));
    assert_eq!(read.text, "| Pond |  | Ducks |\n| --- | --- | --- |\n|  | a \\| b | 7 |");
    let repeated =
        "<table:table-cell table:number-columns-repeated=\"999999999\"><text:p>x</text:p></table:table-cell>";
    let read = document(&format!("<table:table><table:table-row>{repeated}</table:table-row></table:table>"));
    assert!(read.text.len() < 20_000, "{} bytes", read.text.len());
    let nested = format!(
        "<table:table><table:table-row><table:table-cell><text:p>out</text:p><table:table><table:table-row>{}</table:table-row>\
         </table:table></table:table-cell></table:table-row></table:table>",
        cell("in")
    );
    assert_eq!(document(&nested).text, "| out in |\n| --- |");
}

#[test]
fn what_was_deleted_is_not_read_and_frames_are() {
    let read = document(
        "<text:tracked-changes><text:changed-region><text:deletion><text:p>gone</text:p></text:deletion></text:changed-region>\
         </text:tracked-changes><text:p>Before <draw:frame><draw:text-box><text:p>framed</text:p><text:p>twice</text:p></draw:text-box>\
         </draw:frame> after</text:p>",
    );
    assert_eq!(read.text, "Before framed twice after");
}

#[test]
fn slides_have_titles_and_notes() {
    let part = content(
        "<office:presentation><draw:page><draw:frame presentation:class=\"title\"><draw:text-box><text:p>Ducks</text:p></draw:text-box>\
         </draw:frame><draw:frame presentation:class=\"outline\"><draw:text-box><text:list><text:list-item><text:p>Mill</text:p>\
         </text:list-item></text:list></draw:text-box></draw:frame><presentation:notes><draw:page-thumbnail/><draw:frame>\
         <draw:text-box><text:p>Speak up.</text:p></draw:text-box></draw:frame></presentation:notes></draw:page>\
         <draw:page><draw:frame><draw:text-box><text:p>Herons</text:p><text:p>Two.</text:p></draw:text-box></draw:frame></draw:page>\
         <draw:page/></office:presentation>",
    );
    let read = read_as(Format::Odp, &package("presentation", &[("content.xml", &part)])).unwrap();
    assert_eq!(read.text, "# Ducks\n\n- Mill\n\n## Notes\n\nSpeak up.\n\n# Herons\n\nTwo.\n\n# Slide 3");
    assert_eq!((read.pages.len(), read.page_kind), (3, PageKind::Slide));
    assert_eq!(read.facts["promoted_title_count"], 1);
    assert!(read.pages.iter().zip(&read.headings).all(|(page, _)| read.text[page.start..].starts_with("# ")));
}

#[test]
fn what_is_hostile_is_refused_by_name() {
    let refused = |parts: &[(&str, &str)]| read_as(Format::Odt, &package("text", parts)).unwrap_err();
    let deep = content(&"<text:section>".repeat(300));
    assert_eq!(refused(&[("content.xml", &deep)]).limit(), Some(Limit::XmlDepth));
    let typed = format!("<!DOCTYPE a [<!ENTITY b 'c'>]>{}", content(""));
    assert_eq!(refused(&[("content.xml", &typed)]).code(), "corrupt");
    assert_eq!(refused(&[("other.xml", "<x/>")]).code(), "corrupt");
    let bomb = content(&format!("<office:text><text:p>{}</text:p></office:text>", " ".repeat(30 << 20)));
    assert_eq!(refused(&[("content.xml", &bomb)]).limit(), Some(Limit::ZipRatio));
    let closed = "<manifest><file-entry full-path=\"content.xml\"><encryption-data/></file-entry></manifest>";
    assert_eq!(refused(&[("META-INF/manifest.xml", closed), ("content.xml", "x")]).code(), "encrypted");
    let whole = package("text", &[("content.xml", &content("<office:text><text:p>x</text:p></office:text>"))]);
    for cut in 0..whole.len() {
        if let Err(error) = extract(Format::Odt, Cursor::new(&whole[..cut]), &Limits::default()) {
            assert!(error.is_permanent(), "{cut}: {error}");
        }
    }
}
