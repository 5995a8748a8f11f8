use super::*;

/// A part in UTF-16, with its mark.
fn utf_16(xml: &str) -> Vec<u8> {
    format!("\u{FEFF}<?xml version=\"1.0\" encoding=\"UTF-16\"?>{xml}")
        .encode_utf16()
        .flat_map(u16::to_le_bytes)
        .collect()
}

#[test]
fn names_with_backslashes_capitals_and_utf_16_parts_are_found() {
    let members = [
        ("_rels\\.rels", utf_16(&sample::relationships(&[("r1", "officeDocument", "\\Word\\Document2.xml")]))),
        ("word\\_rels\\document2.xml.rels", utf_16(&sample::relationships(&[("r1", "styles", "STYLES.xml")]))),
        ("word\\styles.xml", utf_16(STYLES)),
        ("word\\document2.xml", utf_16(&document(&styled("Own", "Größe")))),
    ];
    assert_eq!(extract(sample::package(members), &Limits::default()).unwrap().text, "# Größe");
}

#[test]
fn strict_namespaces_and_other_prefixes_read_alike() {
    let strict = "http://purl.oclc.org/ooxml/officeDocument/relationships";
    let relation = |kind: &str, target: &str| {
        format!(r#"<Relationships><Relationship Id="r" Type="{strict}/{kind}" Target="{target}"/></Relationships>"#)
    };
    let members = [
        ("_rels/.rels", relation("officeDocument", "d.xml")),
        ("_rels/d.xml.rels", relation("styles", "s.xml")),
        ("s.xml", STYLES.replace("w:", "x:")),
        ("d.xml", document(&styled("Own", "Head")).replace("w:", "")),
    ];
    assert_eq!(extract(sample::package(members), &Limits::default()).unwrap().text, "# Head");
}

#[test]
fn patterns_are_those_of_the_contract() {
    const NONE: [(&str, bool); 2] = [("has_images", false), ("has_tables", false)];
    let of = |body: &str| {
        let patterns = probe(docx_with(body, &[]), &Limits::default()).unwrap();
        patterns.0.iter().map(|(pattern, value)| (pattern.as_str(), value == true)).collect::<Vec<_>>()
    };
    let known = |text, headings| [[("has_text_layer", text), ("has_heading_styles", headings)], NONE].concat();
    assert_eq!(of(&paragraph("", "text")), known(true, false));
    assert_eq!(of(&styled("Own", "text")), known(true, true));
    let blank = "<w:tbl><w:tr><w:tc><w:p/></w:tc></w:tr></w:tbl>";
    assert_eq!(of(blank), known(false, false));
}

#[test]
fn a_member_cut_anywhere_is_a_permanent_error() {
    let whole = docx_with(&paragraph("", &"text ".repeat(50)), &[]).into_inner();
    for cut in (0..whole.len()).step_by(7) {
        let error = extract(Cursor::new(&whole[..cut]), &Limits::default()).unwrap_err();
        assert!(error.is_permanent(), "{error}");
    }
}

#[test]
fn depth_and_text_are_bounded() {
    let limits = Limits { xml_depth: 60, text_bytes: 1_000, ..Limits::default() };
    let of = |body: &str| extract(docx_with(body, &[]), &limits).unwrap_err().limit();
    let nested = format!("{}x{}", "<w:p><w:r><w:txbxContent>".repeat(30), "</w:txbxContent></w:r></w:p>".repeat(30));
    assert_eq!(of(&nested), Some(crate::Limit::XmlDepth));
    // All of it is in one cell, so the limit must apply before anything is written.
    let cell = format!("<w:tbl><w:tr><w:tc>{}</w:tc></w:tr></w:tbl>", paragraph("", "ten bytes.").repeat(200));
    assert_eq!(of(&cell), Some(crate::Limit::TextBytes));
    assert_eq!(of(&paragraph("", "ten bytes.").repeat(200)), Some(crate::Limit::TextBytes));
}
