//! Documents built by hand, one for each trap.

use super::*;
use crate::{Limit, PageKind, Secret, detect};
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
    crate::extract(format, Cursor::new(bytes), &Limits::default())
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
fn a_raised_number_is_no_part_of_the_number_before_it() {
    let style = |name: &str, parent: &str, position: &str| {
        format!(
            "<style:style style:name=\"{name}\" style:family=\"text\" style:parent-style-name=\"{parent}\">\
             <style:text-properties {position}/></style:style>"
        )
    };
    let own = [
        style("T1", "", "style:text-position=\"super 58%\""),
        style("T2", "", "style:text-position=\"33% 58%\""),
        style("T3", "", "style:text-position=\"sub 58%\""),
        style("T4", "", "style:text-position=\"-33% 58%\""),
        style("T5", "Mark", "fo:font-weight=\"bold\""),
        style("T6", "", "style:text-position=\"0% 100%\""),
    ];
    let span = |style: &str, text: &str| format!("<text:span text:style-name=\"{style}\">{text}</text:span>");
    let text = [
        format!("10{} in 2019{}", span("T1", "6"), span("T2", "13")),
        format!(" or 10{}, 3{}", span("Mark", "−3"), span("T5", "4")),
        format!(", 1{} of m{}", span("T1", "st"), span("T1", "2")),
        format!(", 1{}{}{}{}", span("T3", "2"), span("T4", "3"), span("T6", "4"), span("none", "5")),
        format!(", 10{}{}, 10{}", span("T1", "1"), span("T2", "2"), span("T1", &span("none", "6"))),
        format!(", 10{}{}", span("T1", "−"), span("T1", "6")),
    ];
    let part = format!(
        "<office:document-content><office:automatic-styles>{}</office:automatic-styles><office:body><office:text>\
         <text:p>{}</text:p></office:text></office:body></office:document-content>",
        own.concat(),
        text.concat()
    );
    let styles = format!(
        "<office:document-styles>{}{}</office:document-styles>",
        style("Mark", "", "style:text-position=\"super 58%\""),
        style("T6", "", "style:text-position=\"super 58%\"")
    );
    let read = read_as(Format::Odt, &package("text", &[("styles.xml", &styles), ("content.xml", &part)])).unwrap();
    assert_eq!(read.text, "10^6 in 2019^13 or 10^−3, 3^4, 1st of m2, 12345, 10^12, 10^6, 10^−6");
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
fn how_a_word_is_read_out_is_no_text() {
    let read = document(
        "<text:p>In <text:ruby><text:ruby-base>漢字</text:ruby-base><text:ruby-text>かんじ</text:ruby-text></text:ruby> here.</text:p>",
    );
    assert_eq!(read.text, "In 漢字 here.");
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
fn the_title_of_a_drawing_is_not_read_and_what_has_metadata_is() {
    let read = document(
        "<text:p><draw:frame><draw:image/><svg:title>Diagram</svg:title><svg:desc>A weir</svg:desc></draw:frame>The weir opens.</text:p>\
         <text:p><draw:g><svg:title>Group</svg:title><draw:rect><svg:title>Box</svg:title><text:p>drawn</text:p></draw:rect></draw:g></text:p>\
         <text:p>See <text:meta xml:id=\"a\">the weir</text:meta> now in <text:span><text:title>The pond</text:title></text:span></text:p>",
    );
    assert_eq!(read.text, "The weir opens.\n\ndrawn\n\nSee the weir now in The pond");
}

#[test]
fn formulas_are_read_where_they_stand() {
    let half = "<!DOCTYPE math:math PUBLIC \"-//OpenOffice.org//DTD\" \"math.dtd\"><math:math><math:semantics><math:mfrac>\
                <math:mn>1</math:mn><math:mn>2</math:mn></math:mfrac><math:annotation>1 over 2</math:annotation></math:semantics></math:math>";
    let chart = content("<office:chart><text:p>chart</text:p></office:chart>");
    let objects = [
        ("Object 1/content.xml", half),
        ("Object 2/content.xml", chart.as_str()),
        ("Object 3/content.xml", "<math><mn>damaged</mn>"),
    ];
    let object = |href: &str| {
        format!(
            "<draw:frame><draw:object xlink:href=\"{href}\"/><draw:image xlink:href=\"./ObjectReplacements/Object 1\"/>\
             <svg:desc>formula</svg:desc></draw:frame>"
        )
    };
    let others = ["./Object 2", "./Object 3", "./Object 4", "../../etc/passwd", "https://example.org/Object 1"];
    let body = content(&format!(
        "<office:text><text:tracked-changes>{half}</text:tracked-changes><style:style style:name=\"T1\" style:family=\"text\">\
         <style:text-properties style:text-position=\"super 58%\"/></style:style><text:p>Of 3{half}x, {encoded}\
         <text:span text:style-name=\"T1\">3</text:span>.{others}</text:p><text:p><draw:object><math><mi>y</mi></math></draw:object></text:p></office:text>",
        half = object("./Object 1"),
        encoded = object("Object%201"),
        others = others.map(object).concat()
    ));
    let parts = |body: &str| package("text", &[objects.as_slice(), &[("content.xml", body)]].concat());
    assert_eq!(read_as(Format::Odt, &parts(&body)).unwrap().text, "Of 3 1/2 x, 1/2^3.\n\ny");
    let slide = content(&format!(
        "<office:presentation><draw:page><draw:frame presentation:class=\"title\"><draw:text-box><text:p>Share</text:p>\
         </draw:text-box></draw:frame>{}</draw:page></office:presentation>",
        object("./Object 1")
    ));
    let slides = package("presentation", &[("content.xml", slide.as_str()), ("object 1/Content.xml", half)]);
    assert_eq!(read_as(Format::Odp, &slides).unwrap().text, "# Share\n\n1/2");
    // A formula costs what its text costs.
    let long = format!("<math>{}</math>", "<mtext>heron</mtext>".repeat(100));
    let bytes = package("text", &[("content.xml", body.as_str()), ("Object 1/content.xml", long.as_str())]);
    let limits = Limits { text_bytes: 100, ..Limits::default() };
    let error = crate::extract(Format::Odt, Cursor::new(bytes), &limits).unwrap_err();
    assert_eq!(error.limit(), Some(Limit::TextBytes));
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
        if let Err(error) = crate::extract(Format::Odt, Cursor::new(&whole[..cut]), &Limits::default()) {
            assert!(error.is_permanent(), "{cut}: {error}");
        }
    }
}

/// With the key of LibreOffice: SHA-256 and AES with 256 bits. The password is `heron`.
const LOCKED: &[u8] = include_bytes!("files/locked.odt");
/// With SHA-1 and AES with 128 bits. The password is `Wehr über Erlen`.
const LOCKED_SHEETS: &[u8] = include_bytes!("files/locked.ods");

/// What a password makes of a document.
fn opened(format: Format, bytes: &[u8], password: &str) -> Result<(Patterns, Extraction), FormatError> {
    let (limits, password) = (Limits::default(), Secret::new(password));
    let access = Access { password: Some(&password), ..Access::from(&limits) };
    Ok((probe(format, Cursor::new(bytes), access)?, extract(format, Cursor::new(bytes), access)?))
}

/// The document with another manifest, in which one text stands for another.
fn with_manifest(bytes: &[u8], from: &str, to: &str) -> Vec<u8> {
    with_part(bytes, "META-INF/manifest.xml", |part| {
        let manifest = String::from_utf8(part).unwrap();
        assert!(manifest.contains(from), "{manifest}");
        manifest.replace(from, to).into_bytes()
    })
}

/// The document with another part of this name.
fn with_part(bytes: &[u8], changed: &str, change: impl Fn(Vec<u8>) -> Vec<u8>) -> Vec<u8> {
    let mut archive = zip::ZipArchive::new(Cursor::new(bytes)).unwrap();
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for index in 0..archive.len() {
        let mut part = archive.by_index(index).unwrap();
        let name = part.name().unwrap().into_owned();
        let mut bytes = Vec::new();
        part.read_to_end(&mut bytes).unwrap();
        if name == changed {
            bytes = change(bytes);
        }
        writer.start_file(name, SimpleFileOptions::default()).unwrap();
        writer.write_all(&bytes).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

#[test]
fn a_password_opens_a_locked_document_and_a_locked_spreadsheet_is_read_as_tables() {
    let (patterns, read) = opened(Format::Odt, LOCKED, "heron").unwrap();
    assert!(read.text.starts_with("# A walk around the pond") && read.text.contains("opens the weir at dawn"));
    assert_eq!(read.facts["locked_format"], "odt");
    for pattern in [Pattern::IsEncrypted, Pattern::HasTextLayer, Pattern::HasHeadings] {
        assert!(patterns.holds(pattern), "{pattern:?}");
    }
    assert_eq!(crate::refusal(Format::Odt, Cursor::new(LOCKED), &patterns), None);
    let (patterns, read) = opened(Format::Ods, LOCKED_SHEETS, "Wehr über Erlen").unwrap();
    assert!(read.text.starts_with("# Duck counts") && read.text.contains("| --- |"), "{}", read.text);
    assert!(patterns.holds(Pattern::IsEncrypted) && patterns.get(Pattern::HasSheets).is_none());
}

#[test]
fn a_locked_document_tells_without_its_password_only_that_it_is_locked() {
    for (format, bytes) in [(Format::Odt, LOCKED), (Format::Ods, LOCKED_SHEETS)] {
        let limits = Limits::default();
        let patterns = crate::probe(format, Cursor::new(bytes), &limits).unwrap();
        assert_eq!(patterns, Patterns::default().with(Pattern::IsEncrypted, true));
        let error = FormatError::Encrypted { format };
        assert!(error.to_string().contains("extract.password"), "{error}");
        assert_eq!(crate::refusal(format, Cursor::new(bytes), &patterns), Some(error.clone()));
        assert_eq!(crate::extract(format, Cursor::new(bytes), &limits).unwrap_err(), error);
        for password in ["stork", "Heron", ""] {
            assert_eq!(opened(format, bytes, password).unwrap_err(), error, "{password}");
        }
    }
    let error = xlsx::workbook(Cursor::new(LOCKED_SHEETS), &Limits::default()).unwrap_err();
    assert_eq!(error, FormatError::Encrypted { format: Format::Ods });
}

#[test]
fn a_lock_that_is_unknown_damaged_or_costs_too_much_is_refused() {
    let sealed = FormatError::Sealed { format: Format::Odt };
    let long_salt = format!("manifest:salt=\"{}", "AAAA".repeat(1000));
    for (from, to) in [
        ("xmlenc#aes256-cbc", "xmlenc11#aes256-gcm"),
        ("xmlenc#aes256-cbc", "xmlenc#blowfish-cbc"),
        ("PBKDF2", "argon2id"),
        ("key-size=\"32\" manifest:iteration", "key-size=\"4000000000\" manifest:iteration"),
        ("xmldsig#sha256", "xmldsig#sha3"),
        ("sha256-1k", "sha256-2k"),
        ("initialisation-vector=\"", "initialisation-vector=\"AAAA"),
        ("manifest:salt=\"", long_salt.as_str()),
        ("full-path=\"content.xml\"", "full-path=\"encrypted-package\""),
    ] {
        let bytes = with_manifest(LOCKED, from, to);
        assert_eq!(opened(Format::Odt, &bytes, "heron").unwrap_err(), sealed, "{to}");
        assert_eq!(crate::extract(Format::Odt, Cursor::new(&bytes), &Limits::default()).unwrap_err(), sealed, "{to}");
    }
    for turns in ["0", "2000001", "4000000000"] {
        let bytes = with_manifest(LOCKED, "iteration-count=\"1024\"", &format!("iteration-count=\"{turns}\""));
        assert_eq!(opened(Format::Odt, &bytes, "heron").unwrap_err().code(), "corrupt", "{turns}");
    }
    for length in [0, 1, 17] {
        let cut = with_part(LOCKED, "content.xml", |part| part[..length].to_vec());
        assert_eq!(opened(Format::Odt, &cut, "heron").unwrap_err().code(), "corrupt", "{length} bytes");
        let closed = crate::extract(Format::Odt, Cursor::new(&cut), &Limits::default()).unwrap_err();
        assert_eq!(closed.code(), "encrypted", "without a password nobody looks at its parts");
    }
    let limits = Limits { unpacked_bytes: 1900, ..Limits::default() };
    let password = Secret::new("heron");
    let access = Access { password: Some(&password), ..Access::from(&limits) };
    let error = extract(Format::Odt, Cursor::new(LOCKED), access).unwrap_err();
    assert_eq!(error.limit(), Some(Limit::UnpackedBytes));
    for cut in 0..LOCKED.len() {
        if let Err(error) = opened(Format::Odt, &LOCKED[..cut], "heron") {
            assert!(error.is_permanent(), "{cut}: {error}");
        }
    }
}
