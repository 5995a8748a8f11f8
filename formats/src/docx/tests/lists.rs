use super::*;
use serde_json::json;

#[test]
fn lists_come_from_the_paragraph_or_its_style() {
    let taken_out = r#"<w:pStyle w:val="Bullet"/><w:numPr><w:numId w:val="0"/></w:numPr>"#;
    let body = [
        styled("Bullet", "a"),
        numbered(5, 1, "b"),
        styled("Second", "c"),
        paragraph(taken_out, "taken out"),
        paragraph("", "# no heading"),
        numbered(4, 2, "deep from the start"),
        numbered(4, 4, "deeper"),
        numbered(4, 0, "out again"),
    ];
    let expected = "- a\n  - b\n  - c\n\ntaken out\n\n\\# no heading\n\n- deep from the start\n  - deeper\n- out again";
    assert_eq!(read(&body.concat()).text, expected);
}

#[test]
fn the_evidence_tells_what_kind_a_list_is_and_which_number_an_item_has() {
    let body = [
        numbered(5, 0, "ä"),
        numbered(5, 0, "second"),
        numbered(5, 1, "below"),
        styled("Second", "below, by its style"),
        styled("Numbered", "a heading"),
        numbered(5, 2, "starts at three"),
        numbered(5, 0, "third"),
        numbered(5, 1, "begins anew"),
        numbered(6, 0, "starts at seven"),
        numbered(4, 0, "bullet"),
        numbered(9, 0, "of no list that is defined"),
    ];
    let read = read(&body.concat());
    let items = read.facts["docx.lists"].as_array().unwrap();
    let labels: Vec<_> = items.iter().map(|item| item["label"].as_str().unwrap_or("-")).collect();
    assert_eq!(labels, ["1.", "2.", "2.a)", "2.b)", "2.c)", "(III)", "3.", "3.a)", "7.", "-", "-"]);
    assert_eq!(items[0], json!({"at": 0, "level": 0, "ordered": true, "number": 1, "label": "1."}));
    // Places count characters: the first item has 3 of them in 4 bytes, and a line end.
    assert_eq!(items[1]["at"], 4);
    assert_eq!((&items[4]["heading"], &items[9]["ordered"]), (&json!(true), &json!(false)));
}

#[test]
fn an_item_without_text_counts_as_far_as_its_number_is_shown() {
    let item = |properties: &str| {
        let place = r#"<w:numPr><w:ilvl w:val="0"/><w:numId w:val="5"/></w:numPr>"#;
        paragraph(&format!("{place}{properties}"), "")
    };
    let body = [
        numbered(5, 0, "first"),
        item(""),
        numbered(5, 0, "third"),
        item("<w:rPr><w:vanish/></w:rPr>"),
        item(r#"<w:sectPr><w:pgSz w:w="1"/></w:sectPr>"#),
        numbered(5, 0, "fourth"),
        styled("Second", ""),
        styled("Second", "b"),
    ];
    let read = read(&body.concat());
    assert_eq!(read.text, "- first\n- third\n- fourth\n  - b");
    let items = read.facts["docx.lists"].as_array().unwrap();
    let labels: Vec<_> = items.iter().map(|item| item["label"].as_str().unwrap_or("-")).collect();
    assert_eq!(labels, ["1.", "3.", "4.", "4.b)"]);
}

#[test]
fn numbers_show_as_their_format_says() {
    let numbering = |format: &str, start: u32| {
        format!(
            r#"<w:numbering><w:abstractNum w:abstractNumId="1"><w:styleLink w:val="Mine"/><w:lvl w:ilvl="0"><w:start w:val="{start}"/>
            <w:numFmt w:val="{format}"/><w:lvlText w:val="§%1"/></w:lvl></w:abstractNum>
            <w:abstractNum w:abstractNumId="2"><w:numStyleLink w:val="Mine"/></w:abstractNum>
            <w:num w:numId="1"><w:abstractNumId w:val="2"/></w:num></w:numbering>"#
        )
    };
    for (format, start, expected) in [
        ("decimal", 12, "§12"),
        ("decimalZero", 7, "§07"),
        ("lowerLetter", 28, "§bb"),
        ("upperLetter", 26, "§Z"),
        ("lowerRoman", 1994, "§mcmxciv"),
        ("upperRoman", 4000, "§4000"),
        ("ideographDigital", 3, "§3"),
        ("upperLetter", 0, "§0"),
        ("lowerLetter", u32::MAX, &format!("§{}", "u".repeat(30))),
    ] {
        let members = [
            ("_rels/.rels", sample::relationships(&[("r1", "officeDocument", "w/d.xml")])),
            ("w/_rels/d.xml.rels", sample::relationships(&[("r1", "numbering", "n.xml")])),
            ("w/n.xml", numbering(format, start)),
            ("w/d.xml", document(&numbered(1, 0, "x"))),
        ];
        let read = extract(sample::package(members), &Limits::default()).unwrap();
        assert_eq!(read.facts["docx.lists"][0]["label"], expected, "{format} {start}");
    }
}
