use std::io::{Cursor, Write};

use zip::{ZipWriter, write::SimpleFileOptions};

use super::*;

const STYLES: &str = r#"<w:styles xmlns:w="w">
<w:style w:styleId="berschrift1"><w:name w:val="heading 1"/><w:pPr><w:outlineLvl w:val="0"/></w:pPr></w:style>
<w:style w:styleId="Own"><w:name w:val="Chapter"/><w:basedOn w:val="berschrift1"/></w:style>
<w:style w:styleId="Toc"><w:name w:val="TOC Heading"/><w:basedOn w:val="berschrift1"/><w:pPr><w:outlineLvl w:val="9"/></w:pPr></w:style>
<w:style w:styleId="Nine"><w:name w:val="heading 9"/></w:style>
<w:style w:styleId="Bullet"><w:name w:val="List Bullet"/><w:pPr><w:numPr><w:numId w:val="4"/></w:numPr></w:pPr></w:style>
<w:style w:styleId="LoopA"><w:name w:val="a"/><w:basedOn w:val="LoopB"/></w:style>
<w:style w:styleId="LoopB"><w:name w:val="b"/><w:basedOn w:val="LoopA"/></w:style>
</w:styles>"#;

fn docx(body: &str) -> Cursor<Vec<u8>> {
    let relation = |kind: &str, target: &str| {
        format!(
            r#"<Relationships><Relationship Id="r1" Type="http://example.org/rel/{kind}" Target="{target}"/></Relationships>"#
        )
    };
    let members = [
        ("_rels/.rels", relation("officeDocument", "/word/main.xml")),
        ("word/_rels/main.xml.rels", relation("styles", "styles.xml")),
        ("word/styles.xml", STYLES.to_owned()),
        ("word/main.xml", format!(r#"<w:document xmlns:w="w" xmlns:mc="mc"><w:body>{body}</w:body></w:document>"#)),
    ];
    let mut writer = ZipWriter::new(Cursor::new(Vec::new()));
    for (name, text) in members {
        writer.start_file(name, SimpleFileOptions::default()).unwrap();
        writer.write_all(text.as_bytes()).unwrap();
    }
    writer.finish().unwrap()
}

fn read(body: &str) -> Extraction {
    extract(docx(body), &Limits::default()).unwrap()
}

fn paragraph(properties: &str, text: &str) -> String {
    format!("<w:p><w:pPr>{properties}</w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>")
}

#[test]
fn headings_go_by_name_through_based_on() {
    let style = |id: &str, text: &str| paragraph(&format!(r#"<w:pStyle w:val="{id}"/>"#), text);
    let body = [
        style("Own", "One"),
        style("Toc", "Contents"),
        style("Nine", "Deep"),
        style("LoopA", "x"),
        style("Heading1", "y"),
    ];
    let read = read(&body.concat());
    assert_eq!(read.text, "# One\n\nContents\n\n###### Deep\n\nx\n\ny");
    let levels: Vec<_> = read.headings.iter().map(|heading| (heading.level, heading.start)).collect();
    assert_eq!(levels, [(1, 0), (9, 17)]);
    assert_eq!(read.headings_from.as_deref(), Some("styles"));
}

#[test]
fn lists_come_from_the_paragraph_or_its_style() {
    let number =
        |number: u8, level: u8| format!(r#"<w:numPr><w:ilvl w:val="{level}"/><w:numId w:val="{number}"/></w:numPr>"#);
    let bullet = r#"<w:pStyle w:val="Bullet"/>"#;
    let body = [
        paragraph(bullet, "a"),
        paragraph(&number(1, 1), "b"),
        paragraph(&format!("{bullet}{}", number(0, 0)), "taken out"),
        paragraph("", "# no heading"),
    ];
    assert_eq!(read(&body.concat()).text, "- a\n  - b\n\ntaken out\n\n\\# no heading");
}

#[test]
fn tracked_changes_read_as_accepted() {
    let body = r#"<w:p><w:pPr><w:pPrChange><w:pPr><w:pStyle w:val="Own"/></w:pPr></w:pPrChange></w:pPr>
        <w:ins><w:r><w:t>new </w:t></w:r></w:ins><w:del><w:r><w:delText>old</w:delText><w:t>old</w:t></w:r></w:del>
        <w:moveFrom><w:r><w:t>gone</w:t></w:r></w:moveFrom><w:moveTo><w:r><w:t>here &amp; now</w:t></w:r></w:moveTo>
        <w:r><w:instrText>PAGE</w:instrText></w:r></w:p>"#;
    assert_eq!(read(body).text, "new here & now");
}

#[test]
fn one_branch_of_an_alternate_is_read() {
    let text_box = |text: &str| format!("<w:pict><w:txbxContent>{}</w:txbxContent></w:pict>", paragraph("", text));
    let body = format!(
        "<w:p><w:r><w:t>around</w:t><mc:AlternateContent><mc:Choice>{}</mc:Choice><mc:Fallback>{}</mc:Fallback></mc:AlternateContent></w:r></w:p>",
        text_box("boxed"),
        text_box("boxed"),
    );
    assert_eq!(read(&body).text, "around\n\nboxed");
}

#[test]
fn tables_become_gfm_with_spans_filled() {
    let cell =
        |properties: &str, text: &str| format!("<w:tc><w:tcPr>{properties}</w:tcPr>{}</w:tc>", paragraph("", text));
    let body = [
        "<w:tbl><w:tr>".to_owned(),
        cell(r#"<w:gridSpan w:val="2"/>"#, "a|b"),
        cell(r#"<w:vMerge w:val="restart"/>"#, "c"),
        "</w:tr><w:tr>".to_owned(),
        cell("", "d"),
        format!("<w:tc>{}<w:tbl><w:tr>{}</w:tr></w:tbl></w:tc>", paragraph("", "e"), cell("", "nested")),
        cell("<w:vMerge/>", "hidden"),
        "</w:tr><w:tr><w:trPr><w:del/></w:trPr>".to_owned(),
        cell("", "deleted"),
        "</w:tr></w:tbl>".to_owned(),
        paragraph("", "after"),
    ];
    assert_eq!(read(&body.concat()).text, "| a\\|b |  | c |\n| --- | --- | --- |\n| d | e nested |  |\n\nafter");
}

#[test]
fn patterns_are_those_of_the_contract() {
    let patterns = probe(docx(&paragraph("", "text")), &Limits::default()).unwrap();
    let names: Vec<_> = patterns.0.iter().map(|(pattern, value)| (pattern.as_str(), value.clone())).collect();
    assert_eq!(names, [("has_text_layer", true.into()), ("has_heading_styles", false.into())]);
}

#[test]
fn a_member_cut_anywhere_is_a_permanent_error() {
    let whole = docx(&paragraph("", &"text ".repeat(50))).into_inner();
    for cut in (0..whole.len()).step_by(7) {
        let error = extract(Cursor::new(&whole[..cut]), &Limits::default()).unwrap_err();
        assert!(error.is_permanent(), "{error}");
    }
}
