mod facts;
mod lists;
mod package;
mod pieces;
mod tables;
mod text;

use super::*;
use crate::sample;
use std::io::Cursor;

const STYLES: &str = r#"<w:styles xmlns:w="w">
<w:style w:styleId="berschrift1"><w:name w:val="heading 1"/><w:pPr><w:outlineLvl w:val="0"/></w:pPr></w:style>
<w:style w:styleId="Own"><w:name w:val="Chapter"/><w:basedOn w:val="berschrift1"/></w:style>
<w:style w:styleId="Toc"><w:name w:val="TOC Heading"/><w:basedOn w:val="berschrift1"/><w:pPr><w:outlineLvl w:val="9"/></w:pPr></w:style>
<w:style w:styleId="Clause"><w:name w:val="Clause"/><w:pPr><w:outlineLvl w:val="1"/></w:pPr></w:style>
<w:style w:styleId="Inner"><w:name w:val="Inner clause"/><w:basedOn w:val="Clause"/></w:style>
<w:style w:styleId="Plain"><w:name w:val="Plain"/><w:basedOn w:val="Clause"/><w:pPr><w:outlineLvl w:val="9"/></w:pPr></w:style>
<w:style w:styleId="Titel"><w:name w:val="Title"/></w:style>
<w:style w:styleId="Seven"><w:name w:val="heading 7"/></w:style>
<w:style w:styleId="Nine"><w:name w:val="heading 9"/></w:style>
<w:style w:styleId="Bullet"><w:name w:val="List Bullet"/><w:pPr><w:numPr><w:numId w:val="4"/></w:numPr></w:pPr></w:style>
<w:style w:styleId="Second"><w:name w:val="List Number 2"/><w:pPr><w:numPr><w:numId w:val="5"/></w:numPr></w:pPr></w:style>
<w:style w:styleId="Numbered"><w:name w:val="heading 2"/><w:pPr><w:numPr><w:ilvl w:val="1"/><w:numId w:val="5"/></w:numPr></w:pPr></w:style>
<w:style w:styleId="Secret"><w:name w:val="Secret"/><w:rPr><w:vanish/></w:rPr></w:style>
<w:style w:styleId="Mark"><w:name w:val="mark"/><w:rPr><w:vertAlign w:val="superscript"/></w:rPr></w:style>
<w:style w:styleId="LoopA"><w:name w:val="a"/><w:basedOn w:val="LoopB"/></w:style>
<w:style w:styleId="LoopB"><w:name w:val="b"/><w:basedOn w:val="LoopA"/></w:style>
</w:styles>"#;

const NUMBERING: &str = r#"<w:numbering xmlns:w="w">
<w:abstractNum w:abstractNumId="0"><w:lvl w:ilvl="0"><w:numFmt w:val="bullet"/><w:lvlText w:val="•"/></w:lvl>
  <w:lvl w:ilvl="1"><w:numFmt w:val="bullet"/></w:lvl></w:abstractNum>
<w:abstractNum w:abstractNumId="1">
  <w:lvl w:ilvl="0"><w:start w:val="1"/><w:numFmt w:val="decimal"/><w:lvlText w:val="%1."/></w:lvl>
  <w:lvl w:ilvl="1"><w:start w:val="1"/><w:numFmt w:val="lowerLetter"/><w:lvlText w:val="%1.%2)"/><w:pStyle w:val="Second"/></w:lvl>
  <w:lvl w:ilvl="2"><w:start w:val="3"/><w:numFmt w:val="upperRoman"/><w:lvlText w:val="(%3)"/></w:lvl></w:abstractNum>
<w:num w:numId="4"><w:abstractNumId w:val="0"/></w:num>
<w:num w:numId="5"><w:abstractNumId w:val="1"/></w:num>
<w:num w:numId="6"><w:abstractNumId w:val="1"/><w:lvlOverride w:ilvl="0"><w:startOverride w:val="7"/></w:lvlOverride></w:num>
</w:numbering>"#;

fn document(body: &str) -> String {
    format!(r#"<w:document xmlns:w="w" xmlns:mc="mc" xmlns:m="m"><w:body>{body}</w:body></w:document>"#)
}

/// A document made of a body, with any notes and comments.
fn docx_with(body: &str, parts: &[(&str, &str)]) -> Cursor<Vec<u8>> {
    let mut related = vec![
        ("r1".to_owned(), "styles", "styles.xml".to_owned()),
        ("r2".to_owned(), "numbering", "numbering.xml".to_owned()),
    ];
    let mut members = vec![
        ("_rels/.rels".to_owned(), sample::relationships(&[("r1", "officeDocument", "/word/main.xml")])),
        ("word/styles.xml".to_owned(), STYLES.to_owned()),
        ("word/numbering.xml".to_owned(), NUMBERING.to_owned()),
        ("word/main.xml".to_owned(), document(body)),
    ];
    for (kind, xml) in parts {
        related.push((format!("r-{kind}"), kind, format!("{kind}.xml")));
        members.push((format!("word/{kind}.xml"), (*xml).to_owned()));
    }
    let related: Vec<_> = related.iter().map(|(id, kind, target)| (&**id, *kind, &**target)).collect();
    members.push(("word/_rels/main.xml.rels".to_owned(), sample::relationships(&related)));
    sample::package(members)
}

fn read_with(body: &str, parts: &[(&str, &str)]) -> Extraction {
    extract(docx_with(body, parts), &Limits::default()).unwrap()
}

fn read(body: &str) -> Extraction {
    read_with(body, &[])
}

fn run(text: &str) -> String {
    format!("<w:r><w:t>{text}</w:t></w:r>")
}

fn paragraph(properties: &str, text: &str) -> String {
    format!("<w:p><w:pPr>{properties}</w:pPr>{}</w:p>", run(text))
}

fn styled(style: &str, text: &str) -> String {
    paragraph(&format!(r#"<w:pStyle w:val="{style}"/>"#), text)
}

fn numbered(list: u8, level: u8, text: &str) -> String {
    paragraph(&format!(r#"<w:numPr><w:ilvl w:val="{level}"/><w:numId w:val="{list}"/></w:numPr>"#), text)
}
