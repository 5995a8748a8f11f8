use super::*;
use serde_json::json;

#[test]
fn comments_and_notes_are_facts_with_their_places() {
    let comments = r#"<w:comments><w:comment w:id="7" w:author="Ada" w:date="2024-05-01T10:00:00Z"><w:p><w:r><w:annotationRef/></w:r>
        <w:r><w:t>Why &amp; how?</w:t></w:r></w:p><w:p><w:r><w:t>Twice.</w:t></w:r></w:p></w:comment>
        <w:comment w:id="8" w:author="Ada"><w:p/></w:comment>
        <w:comment w:id="9" w:author=""><w:p><w:r><w:t>nowhere</w:t></w:r></w:p></w:comment></w:comments>"#;
    let footnotes = r#"<w:footnotes><w:footnote w:id="-1" w:type="separator"><w:p><w:r><w:t>line</w:t></w:r></w:p></w:footnote>
        <w:footnote w:id="1"><w:p><w:r><w:footnoteRef/><w:t xml:space="preserve"> See </w:t></w:r><w:del><w:r><w:delText>not</w:delText></w:r></w:del>
        <w:r><w:instrText>PAGE</w:instrText><w:t>there.</w:t></w:r></w:p></w:footnote></w:footnotes>"#;
    let endnotes =
        r#"<w:endnotes><w:endnote w:id="1"><w:p><w:r><w:t>The end.</w:t></w:r></w:p></w:endnote></w:endnotes>"#;
    let body = [
        paragraph("", "vorüber"),
        r#"<w:tbl><w:tr><w:tc><w:p><w:r><w:t>cell</w:t><w:endnoteReference w:id="1"/></w:r></w:p></w:tc></w:tr></w:tbl>"#
            .to_owned(),
        r#"<w:p><w:commentRangeStart w:id="7"/><w:r><w:t>claim</w:t><w:footnoteReference w:id="1"/></w:r>
        <w:commentRangeEnd w:id="7"/><w:r><w:commentReference w:id="7"/></w:r></w:p>"#
            .to_owned(),
    ];
    let parts = [("comments", comments), ("footnotes", footnotes), ("endnotes", endnotes)];
    let read = read_with(&body.concat(), &parts);
    assert_eq!(read.text, "vorüber\n\n| cell |\n| --- |\n\nclaim");
    let expected = json!([
        {"author": "Ada", "date": "2024-05-01T10:00:00Z", "text": "Why & how?\nTwice.", "at": 27},
        {"text": "nowhere"},
    ]);
    assert_eq!(read.facts["docx.comments"], expected);
    assert_eq!(read.facts["docx.footnotes"], json!([{"text": "See there.", "at": 27}]));
    assert_eq!(read.facts["docx.endnotes"], json!([{"text": "The end.", "at": 9}]));
}

#[test]
fn tracked_changes_are_facts_and_not_text() {
    let change = |name: &str, text: &str| {
        format!(r#"<w:{name} w:id="1" w:author="Bo" w:date="2024-05-02T00:00:00Z"><w:r>{text}</w:r></w:{name}>"#)
    };
    let body = [
        paragraph("", "first"),
        "<w:p>".to_owned(),
        change("ins", "<w:t>new</w:t>"),
        change("del", "<w:delText>old</w:delText><w:tab/><w:delText>one</w:delText>"),
        change("moveFrom", "<w:t>moved</w:t>"),
        change("moveTo", "<w:t> moved</w:t>"),
        "</w:p>".to_owned(),
        r#"<w:tbl><w:tr><w:trPr><w:del w:author="Bo"/></w:trPr><w:tc><w:p><w:r><w:t>row</w:t></w:r></w:p></w:tc></w:tr>
        <w:tr><w:tc><w:p/></w:tc></w:tr></w:tbl>"#
            .to_owned(),
    ];
    let read = read(&body.concat());
    assert_eq!(read.text, "first\n\nnew moved\n\n|  |\n| --- |");
    let changes: Vec<_> = read.facts["docx.tracked_changes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|change| (change["change"].as_str().unwrap(), change["text"].as_str().unwrap(), change["at"].as_u64()))
        .collect();
    let expected = [
        ("inserted", "new", Some(7)),
        ("deleted", "old\tone", Some(7)),
        ("moved_from", "moved", Some(7)),
        ("moved_to", "moved", Some(7)),
        ("deleted", "row", Some(18)),
    ];
    assert_eq!(changes, expected);
    assert_eq!(read.facts["docx.tracked_changes"][0]["author"], "Bo");
}

#[test]
fn marks_of_a_paragraph_without_text_have_a_place_too() {
    let deleted = r#"<w:p><w:del><w:r><w:delText>gone</w:delText></w:r></w:del></w:p>"#;
    let boxed = format!(
        "<w:p><w:del><w:r><w:delText>gone</w:delText></w:r></w:del><w:r><w:txbxContent>{}</w:txbxContent></w:r></w:p>",
        paragraph("", "box")
    );
    let read = read(&format!("{}{deleted}{boxed}", paragraph("", "before")));
    let places: Vec<_> =
        read.facts["docx.tracked_changes"].as_array().unwrap().iter().map(|change| change["at"].clone()).collect();
    assert_eq!((read.text.as_str(), places), ("before\n\nbox", vec![json!(6), json!(8)]));
}

#[test]
fn a_flood_of_facts_is_cut_and_counted() {
    let body = r#"<w:p><w:ins w:author="x"><w:r><w:t>y</w:t></w:r></w:ins></w:p>"#.repeat(1_200);
    let read = read(&body);
    assert_eq!(read.facts["docx.tracked_changes"].as_array().unwrap().len(), 1_000);
    assert_eq!(read.facts["docx.tracked_changes.left_out"], 200);
    assert_eq!(read.facts["docx.paragraphs"], 1_200);
}
