use super::*;
use crate::{Limit, sample};
use serde_json::json;
use std::io::Cursor;

/// Ids, kinds and targets of a slide's relationships.
type Related<'a> = &'a [(&'a str, &'a str, &'a str)];

/// A deck of slides, each with its XML and its relationships, and further members.
fn deck(slides: &[(&str, Related<'_>)], more: &[(&str, &str)]) -> Cursor<Vec<u8>> {
    let ids: String =
        (1..=slides.len()).map(|number| format!(r#"<p:sldId id="{}" r:id="r{number}"/>"#, 255 + number)).collect();
    let main = format!(
        r#"<p:presentation xmlns:p="p" xmlns:r="r"><p:sldIdLst>{ids}</p:sldIdLst>
        <p:extLst><p:ext><p14:sectionLst><p14:sldIdLst><p14:sldId id="256"/></p14:sldIdLst></p14:sectionLst></p:ext></p:extLst></p:presentation>"#
    );
    let targets: Vec<_> = (1..=slides.len()).map(|n| (format!("r{n}"), format!("slides/s{n}.xml"))).collect();
    let mut related: Vec<_> = targets.iter().map(|(id, target)| (&**id, "slide", &**target)).collect();
    related.push(("a1", "commentAuthors", "authors.xml"));
    let mut members = vec![
        ("_rels/.rels".to_owned(), sample::relationships(&[("r1", "officeDocument", "ppt/main.xml")])),
        ("ppt/main.xml".to_owned(), main),
        ("ppt/_rels/main.xml.rels".to_owned(), sample::relationships(&related)),
    ];
    for (number, (xml, related)) in (1..).zip(slides) {
        if !xml.is_empty() {
            members.push((format!("ppt/slides/s{number}.xml"), (*xml).to_owned()));
        }
        members.push((format!("ppt/slides/_rels/s{number}.xml.rels"), sample::relationships(related)));
    }
    members.extend(more.iter().map(|(name, xml)| ((*name).to_owned(), (*xml).to_owned())));
    sample::package(members)
}

fn slide(shapes: &str) -> String {
    format!(r#"<p:sld xmlns:p="p" xmlns:a="a"><p:cSld><p:spTree><p:nvGrpSpPr/>{shapes}</p:spTree></p:cSld></p:sld>"#)
}

fn shape(placeholder: &str, paragraphs: &str) -> String {
    format!(
        "<p:sp><p:nvSpPr><p:cNvPr id=\"2\"/><p:nvPr>{placeholder}</p:nvPr></p:nvSpPr><p:spPr/><p:txBody><a:bodyPr/><a:lstStyle/>{paragraphs}</p:txBody></p:sp>"
    )
}

fn line(text: &str) -> String {
    format!("<a:p><a:r><a:rPr/><a:t>{text}</a:t></a:r></a:p>")
}

fn bullet(level: u8, text: &str) -> String {
    format!("<a:p><a:pPr lvl=\"{level}\"><a:buChar char=\"•\"/></a:pPr><a:r><a:t>{text}</a:t></a:r></a:p>")
}

const TITLE: &str = r#"<p:ph type="title"/>"#;
const BODY: &str = r#"<p:ph idx="1"/>"#;

fn read_deck(deck: Cursor<Vec<u8>>) -> Extraction {
    extract(deck, &Limits::default()).unwrap()
}

fn read(shapes: &str) -> Extraction {
    read_deck(deck(&[(&slide(shapes), &[])], &[]))
}

#[test]
fn slides_are_sections_in_the_order_of_the_list_and_pages_are_slides() {
    let main = r#"<p:presentation><p:sldIdLst><p:sldId id="300" r:id="r2"/><p:sldId r:id="r1" id="256"/></p:sldIdLst></p:presentation>"#;
    let one = slide(&(shape(BODY, &line("body")) + &shape(TITLE, &line("One"))));
    let two = slide(&shape(r#"<p:ph type="ctrTitle"/>"#, &(line("Two") + &line("lines"))));
    let members = [
        ("_rels/.rels", sample::relationships(&[("r1", "officeDocument", "main.xml")])),
        ("main.xml", main.to_owned()),
        ("_rels/main.xml.rels", sample::relationships(&[("r1", "slide", "a.xml"), ("r2", "slide", "b.xml")])),
        ("a.xml", one),
        ("b.xml", two),
    ];
    let read = read_deck(sample::package(members));
    assert_eq!(read.text, "# Two lines\n\n# One\n\nbody");
    assert_eq!(read.page_kind, PageKind::Slide);
    assert_eq!(read.pages, [Page { number: 1, start: 0, end: 11 }, Page { number: 2, start: 13, end: 24 }]);
    assert_eq!(read.headings_from.as_deref(), Some("slides"));
    assert_eq!(read.facts["promoted_title_count"], 0);
}

#[test]
fn the_first_line_is_promoted_where_there_is_no_title() {
    let of = |shapes: &str| {
        let read = read(shapes);
        (read.text, read.facts["promoted_title_count"].as_u64().unwrap())
    };
    let empty_title = shape(TITLE, "<a:p><a:endParaRPr/></a:p>");
    assert_eq!(of(&(empty_title + &shape("", &line("first")))), ("# first".to_owned(), 1));
    let broken = "<a:p><a:r><a:t>top</a:t></a:r><a:br/><a:r><a:t>rest</a:t></a:r></a:p>";
    assert_eq!(of(&shape("", broken)), ("# top\n\nrest".to_owned(), 1));
    assert_eq!(of(&shape("", &(bullet(0, "a") + &bullet(1, "b")))), ("# a\n\n- b".to_owned(), 1));
    let table = "<p:graphicFrame><a:tbl><a:tr><a:tc><a:txBody><a:p/></a:txBody></a:tc><a:tc><a:txBody><a:p><a:r><a:t>cell</a:t></a:r></a:p></a:txBody></a:tc></a:tr></a:tbl></p:graphicFrame>";
    let whole = "|  | cell |\n| --- | --- |";
    assert_eq!(of(table), (format!("# Slide 1\n\n{whole}"), 0));
    assert_eq!(of(&(table.to_owned() + &shape("", &line("text")))), (format!("# text\n\n{whole}"), 1));
}

#[test]
fn a_slide_without_text_is_a_section_still_and_the_evidence_says_so() {
    let titled = slide(&shape(TITLE, &line("Title")));
    let blank = slide(
        "<p:pic/><p:graphicFrame><a:graphic><a:graphicData><dgm:relIds/></a:graphicData></a:graphic></p:graphicFrame>",
    );
    let hidden = titled.replacen("<p:sld ", r#"<p:sld show="0" "#, 1);
    let read = read_deck(deck(&[(&titled, &[]), (&blank, &[]), ("", &[]), (&hidden, &[])], &[]));
    assert_eq!(read.text, "# Title\n\n# Slide 2\n\n# Title");
    assert_eq!(read.pages.iter().map(|page| page.number).collect::<Vec<_>>(), [1, 2, 4]);
    let expected = json!({
        "promoted_title_count": 0, "pptx.slides": 4, "pptx.hidden_slides": [4], "pptx.missing_slides": [3],
        "pptx.slides_without_text": [2],
    });
    assert_eq!(serde_json::to_value(&read.facts).unwrap(), expected);
}

#[test]
fn a_deck_none_of_whose_slides_is_there_is_damaged() {
    assert_eq!(extract(deck(&[("", &[]), ("", &[])], &[]), &Limits::default()).unwrap_err().code(), "corrupt");
    assert_eq!(read_deck(deck(&[], &[])).text, "");
}

#[test]
fn bullets_nest_by_level_and_breaks_are_soft() {
    let body = bullet(0, "a") + &bullet(1, "b_x000B_c") + &bullet(0, "d") + &line("plain\u{b}text");
    let read = read(&(shape(TITLE, &line("a_x000B_title")) + &shape("", &body)));
    assert_eq!(read.text, "# a title\n\n- a\n  - b c\n- d\n\nplain\ntext");
}

#[test]
fn bullets_are_inherited_from_layout_and_master() {
    let list = |levels: &str| format!("<a:lstStyle>{levels}</a:lstStyle>");
    let holder = |placeholder: &str, style: &str| {
        format!(
            "<p:sp><p:nvSpPr><p:nvPr>{placeholder}</p:nvPr></p:nvSpPr><p:txBody>{style}<a:p><a:r><a:t>Click to edit</a:t></a:r></a:p></p:txBody></p:sp>"
        )
    };
    let layout = format!(
        "<p:sldLayout>{}{}</p:sldLayout>",
        holder(r#"<p:ph type="subTitle" idx="1"/>"#, &list("<a:lvl1pPr><a:buNone/></a:lvl1pPr>")),
        holder(r#"<p:ph type="body" idx="7"/>"#, &list("<a:lvl2pPr><a:buNone/></a:lvl2pPr>")),
    );
    let master = format!(
        "<p:sldMaster>{}<p:txStyles><p:titleStyle><a:lvl1pPr><a:buNone/></a:lvl1pPr></p:titleStyle><p:bodyStyle><a:lvl1pPr><a:buChar char=\"•\"/></a:lvl1pPr>\
         <a:lvl2pPr><a:buAutoNum type=\"arabicPeriod\"/></a:lvl2pPr></p:bodyStyle></p:txStyles></p:sldMaster>",
        holder(r#"<p:ph type="body" idx="1"/>"#, "<a:lstStyle/>"),
    );
    let second = r#"<a:p><a:pPr lvl="1"/><a:r><a:t>second</a:t></a:r></a:p>"#;
    let none = "<a:p><a:pPr><a:buNone/></a:pPr><a:r><a:t>none</a:t></a:r></a:p>";
    let own =
        shape(r#"<p:ph idx="9"/>"#, &line("own")).replace("<a:lstStyle/>", &list("<a:lvl1pPr><a:buNone/></a:lvl1pPr>"));
    let shapes = [
        shape(TITLE, &line("Title")),
        shape(r#"<p:ph type="subTitle" idx="1"/>"#, &line("subtitle")),
        shape(r#"<p:ph type="body" idx="7"/>"#, &(line("first") + second + none)),
        shape(r#"<p:ph idx="9"/>"#, &(line("object") + second)),
        own,
        shape("", &line("a box")),
    ];
    let related = [("l", "slideLayout", "../layouts/l.xml")];
    let more = [
        ("ppt/layouts/l.xml", &*layout),
        ("ppt/layouts/_rels/l.xml.rels", &*sample::relationships(&[("m", "slideMaster", "/ppt/m.xml")])),
        ("ppt/m.xml", &*master),
    ];
    let read = read_deck(deck(&[(&slide(&shapes.concat()), &related), (&slide(&shapes.concat()), &related)], &more));
    let once = "# Title\n\nsubtitle\n\n- first\n\nsecond\n\nnone\n\n- object\n\nsecond\n\nown\n\na box";
    // The layout's body placeholder replaces the one whose index it lacks.
    assert_eq!(read.text, format!("{once}\n\n{once}"));
    assert!(!read.text.contains("Click to edit"));
}

#[test]
fn what_repeats_on_every_slide_is_left_out() {
    let shapes: String = ["sldNum", "dt", "ftr", "hdr"]
        .iter()
        .map(|kind| shape(&format!(r#"<p:ph type="{kind}" idx="10"/>"#), &line(kind)))
        .chain([
            shape(TITLE, &line("Title")),
            shape("", "<a:p><a:fld type=\"slidenum\"><a:rPr/><a:pPr lvl=\"3\"/><a:t>4</a:t></a:fld></a:p>"),
        ])
        .collect();
    assert_eq!(read(&shapes).text, "# Title\n\n4");
}

#[test]
fn groups_alternates_and_mathematics_are_entered() {
    let boxed = |text: &str| shape("", &line(text));
    let shapes = format!(
        "{}<p:grpSp><p:nvGrpSpPr/>{}<p:grpSp>{}</p:grpSp></p:grpSp><mc:AlternateContent><mc:Choice>{}</mc:Choice><mc:Fallback>{}</mc:Fallback></mc:AlternateContent>{}",
        shape(TITLE, &line("Title")),
        boxed("outer"),
        boxed("inner"),
        boxed("once"),
        boxed("once"),
        shape(
            "",
            "<a:p><mc:AlternateContent><mc:Choice><a14:m><m:r><m:rPr/><m:t>x=1</m:t></m:r></a14:m></mc:Choice><mc:Fallback><a:r><a:t>picture</a:t></a:r></mc:Fallback></mc:AlternateContent></a:p>"
        ),
    );
    assert_eq!(read(&shapes).text, "# Title\n\nouter\n\ninner\n\nonce\n\nx=1");
}

#[test]
fn tables_keep_their_grid_under_merges() {
    let cell = |attributes: &str, text: &str| {
        format!("<a:tc {attributes}><a:txBody><a:bodyPr/><a:lstStyle/>{}</a:txBody><a:tcPr/></a:tc>", line(text))
    };
    let frame = format!(
        "<p:graphicFrame><p:nvGraphicFramePr/><a:graphic><a:graphicData><a:tbl><a:tblPr/><a:tblGrid/><a:tr>{}{}</a:tr><a:tr>{}{}</a:tr></a:tbl></a:graphicData></a:graphic></p:graphicFrame>",
        cell("gridSpan=\"2\"", "a|b"),
        cell("hMerge=\"1\"", "covered"),
        cell("vMerge=\"1\"", "covered"),
        cell("", "two</a:t></a:r></a:p><a:p><a:r><a:t>lines"),
    );
    let read = read(&(shape(TITLE, &line("Title")) + &frame));
    assert_eq!(read.text, "# Title\n\n| a\\|b |  |\n| --- | --- |\n|  | two lines |");
}

#[test]
fn notes_are_the_body_placeholder_alone() {
    let notes = format!(
        "<p:notes><p:cSld><p:spTree>{}{}{}{}</p:spTree></p:cSld></p:notes>",
        shape(r#"<p:ph type="sldImg"/>"#, &line("image")),
        shape(r#"<p:ph type="body" idx="1"/>"#, &(line("said") + &line("# aloud"))),
        shape(r#"<p:ph type="sldNum" idx="5"/>"#, &line("4")),
        shape("", &line("a stray box")),
    );
    let title = slide(&shape(TITLE, &line("Title")));
    let related = [("n", "notesSlide", "../notes/n.xml")];
    let silent = [("n", "notesSlide", "../notes/none.xml")];
    let read = read_deck(deck(&[(&title, &related), (&title, &silent)], &[("ppt/notes/n.xml", &notes)]));
    assert_eq!(read.text, "# Title\n\n## Notes\n\nsaid\n\n\\# aloud\n\n# Title");
    let levels: Vec<_> = read.headings.iter().map(|heading| (heading.level, &*heading.title)).collect();
    assert_eq!(levels, [(1, "Title"), (2, "Notes"), (1, "Title")]);
}

#[test]
fn comments_of_both_forms_are_facts() {
    let authors = r#"<p:cmAuthorLst><p:cmAuthor id="3" name="Ada"/><p188:author id="{A}" name="Bo"/></p:cmAuthorLst>"#;
    let legacy = r#"<p:cmLst><p:cm authorId="3" dt="2024-01-01" idx="1"><p:pos x="1" y="2"/><p:text>Old &amp; plain</p:text></p:cm></p:cmLst>"#;
    let threaded = r#"<p188:cmLst><p188:cm id="{1}" authorId="{A}" created="2024-02-02"><pc:sldMkLst/>
        <p188:replyLst><p188:reply id="{2}" authorId="{X}" created="2024-02-03"><p188:txBody><a:p><a:r><a:t>Yes.</a:t></a:r></a:p></p188:txBody></p188:reply></p188:replyLst>
        <p188:txBody><a:bodyPr/><a:p><a:r><a:t>Is it?</a:t></a:r></a:p><a:p><a:r><a:t>Really?</a:t></a:r></a:p></p188:txBody></p188:cm></p188:cmLst>"#;
    let title = slide(&shape(TITLE, &line("Title")));
    let related = [("c1", "comments", "../c1.xml"), ("c2", "comments", "../c2.xml")];
    let more = [("ppt/authors.xml", authors), ("ppt/c1.xml", legacy), ("ppt/c2.xml", threaded)];
    let made = deck(&[(&title, &[]), (&title, &related)], &more);
    let patterns = probe(made.clone(), &Limits::default()).unwrap();
    assert!(patterns.holds(Pattern::HasComments));
    let expected = json!([
        {"slide": 2, "author": "Ada", "date": "2024-01-01", "text": "Old & plain"},
        {"slide": 2, "author": "Bo", "date": "2024-02-02", "text": "Is it?\nReally?"},
        {"slide": 2, "date": "2024-02-03", "text": "Yes.", "reply": true},
    ]);
    let read = read_deck(made);
    assert_eq!(read.facts["pptx.comments"], expected);
    assert_eq!(read.text, "# Title\n\n# Title");
}

#[test]
fn patterns_say_what_a_deck_holds() {
    let of = |deck: Cursor<Vec<u8>>| {
        let patterns = probe(deck, &Limits::default()).unwrap();
        patterns.0.iter().filter(|(_, value)| **value == true).map(|(pattern, _)| pattern.as_str()).collect::<Vec<_>>()
    };
    let blank = slide("<p:pic/>");
    assert_eq!(of(deck(&[], &[])), [""; 0]);
    assert_eq!(of(deck(&[(&blank, &[])], &[("ppt/media/image1.PNG", "")])), ["has_slides", "has_images"]);
    assert_eq!(of(deck(&[(&blank, &[("d", "diagramData", "../d.xml")])], &[])), ["has_slides", "has_smartart"]);
    let text = slide(&shape("", &line("text")));
    assert_eq!(
        of(deck(&[(&blank, &[]), (&text, &[])], &[("ppt/media/film.mp4", "")])),
        ["has_text_layer", "has_slides"]
    );
}

#[test]
fn slides_and_text_are_bounded() {
    let title = slide(&shape(TITLE, &line("Title")));
    let three = deck(&[(&title, &[]), (&title, &[]), (&title, &[])], &[]);
    let refused = |limits: Limits| extract(three.clone(), &limits).unwrap_err().limit();
    assert_eq!(refused(Limits { pages: 2, ..Limits::default() }), Some(Limit::Pages));
    assert_eq!(refused(Limits { text_bytes: 12, ..Limits::default() }), Some(Limit::TextBytes));
    // A slide that is listed repeatedly is unpacked and counted each time.
    assert_eq!(refused(Limits { unpacked_bytes: 1_500, ..Limits::default() }), Some(Limit::UnpackedBytes));
}

#[test]
fn a_deck_cut_anywhere_is_a_permanent_error() {
    let title = slide(&shape(TITLE, &line(&"Title ".repeat(50))));
    let whole = deck(&[(&title, &[])], &[]).into_inner();
    for cut in (0..whole.len()).step_by(7) {
        let error = extract(Cursor::new(&whole[..cut]), &Limits::default()).unwrap_err();
        assert!(error.is_permanent(), "{error}");
    }
}

#[test]
fn a_raised_number_and_a_glyph_are_read_as_they_are_shown() {
    let runs = r#"<a:p><a:r><a:rPr/><a:t>10</a:t></a:r><a:r><a:rPr baseline="30000"/><a:t>6</a:t></a:r><a:r><a:t>7 </a:t></a:r>
        <a:r><a:rPr><a:sym typeface="Wingdings"/></a:rPr><a:t>&#61664;</a:t></a:r><a:r><a:t> 8</a:t></a:r></a:p>"#;
    let read = read_deck(deck(&[(&slide(&shape(BODY, runs)), &[])], &[]));
    assert!(read.text.contains("10^67 🡪 8"), "{}", read.text);
}
