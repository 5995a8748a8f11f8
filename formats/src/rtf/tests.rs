use super::*;
use crate::{Limit, detect, sections};
use proptest::prelude::*;
use std::io::Cursor;

const RULES: &[u8] = include_bytes!("../../tests/files/pond-rules.rtf");

fn of(rtf: impl AsRef<[u8]>) -> Extraction {
    extract(Cursor::new(rtf.as_ref()), &Limits::default()).unwrap()
}

fn text(body: &str) -> String {
    of(format!("{{\\rtf1\\ansi {body}}}")).text
}

#[test]
fn a_document_is_read_as_people_see_it() {
    assert_eq!(detect(&mut Cursor::new(RULES)).unwrap().format, Some(Format::Rtf));
    let read = of(RULES);
    let expected = "# Rules of the mill pond\n\n\
        The pond opens at sunrise – the heron is there „earlier“, café or not. (It nests upstream.)\n\n\
        ## Boats\n\n\
        - Two rowing boats\n  - one with a мотор\n\n\
        Names: Łukasz Żołna, 水位, 🦆.\nSecond line of it.\n\n\
        | Day | Herons |\n| --- | --- |\n| Monday morning | 12 \\| 14 |\n\n\
        the map shows it.\n\n\
        the drawing\n\n\
        \\# Not a heading";
    assert_eq!(read.text, expected);
    let headings: Vec<_> = read.headings.iter().map(|heading| (heading.level, heading.title.as_str())).collect();
    assert_eq!(headings, [(1, "Rules of the mill pond"), (2, "Boats")]);
    assert_eq!((read.headings_from.as_deref(), sections(&read).len()), (Some("styles"), 2));
    let facts = ["title", "author", "pictures_left_out"].map(|name| read.facts[name].clone());
    assert_eq!(
        facts,
        [serde_json::json!("Rules of the mill pond"), serde_json::json!("Ann Onym"), serde_json::json!(1)]
    );
}

#[test]
fn characters_come_in_every_way_that_rtf_has() {
    for (rtf, expected) in [
        (r"\'e4\u228 a\u228\'e4b", "äääb"),
        (r"\uc0\u228 b\uc2\u228 xyb", "äbäb"),
        (r"\u228\endash b", "äb"),
        (r"{\u228}x", "äx"),
        (r"{\uc3\u228 x}y", "äy"),
        (r"a\~b\_c\-d\{\}\\", "a\u{A0}b\u{2011}cd{}\\"),
        ("a\\\nb", "a\n\nb"),
        (r"a\tab b\line c", "a\tb\nc"),
        (r"\u-10178?\u-8826?\u-10178?x", "🦆x"),
        (r"{\upr{\'e4}{\*\ud{\u228 }}}", "ä"),
        (r"{\*\unknown{x}y}z", "z"),
        (r"{\pict\bin5 }}}}}}z", "z"),
    ] {
        assert_eq!(text(rtf), expected, "{rtf}");
    }
    assert_eq!(of(b"{\\rtf1\\ansicpg1251 \\'cf\\'f0\xE8\xE2\xE5\xF2}").text, "Привет");
    assert_eq!(of(b"{\\rtf1\\mac \\'8e}").text, "é");
}

#[test]
fn characters_of_a_symbol_font_are_read_as_it_shows_them() {
    let fonts =
        r"{\fonttbl{\f0\fcharset0 Arial;}{\f3\froman\fcharset2{\*\panose 05050102}Symbol;}{\f4\fcharset0 Symbol;}}\f0 ";
    for (rtf, expected) in [
        (r"5 {\f3\u-3987\'6d}g", "5 μg"),
        (r"5 {\f3 \'6d}g, {\f3\'b3} 18", "5 μg, ≥ 18"),
        (r#"5 {\field{\*\fldinst SYMBOL 109 \\f "Symbol" \\s 12}{\fldrslt\f3\fs24}}g"#, "5 μg"),
        (r#"5 {\field{\*\fldinst {\f0 SYMBOL 0x6D \\f Symbol}}}g"#, "5 μg"),
        (r#"5 {\field{\*\fldinst SYMBOL 109 \\f "Symbol"}{\fldrslt {\f3 m}}}g"#, "5 μg"),
        (r"{\field{\*\fldinst PAGE}{\fldrslt }}5 {\f4 m}g \u-3987?\u-3913?", "5 mg •"),
    ] {
        assert_eq!(text(&format!("{fonts}{rtf}")), expected, "{rtf}");
    }
}

#[test]
fn tables_and_lists_end_where_they_end() {
    let table = r"\trowd\intbl a\cell b\cell\row\pard after\par\trowd\intbl c\cell";
    assert_eq!(text(table), "| a | b |\n| --- | --- |\n\nafter\n\n| c |\n| --- |");
    assert_eq!(text(r"\pard\ls1 a\par\ls0 b\par\pard{\pntext x\tab}c\par d\par"), "- a\n\nb\n\n- c\n\nd");
    assert_eq!(text(r"\trowd\intbl\cell\cell\row\pard x"), "x");
}

#[test]
fn an_empty_paragraph_ends_a_table() {
    let table = r"\trowd\intbl a\cell b\cell\row\pard\par\trowd\intbl c\cell d\cell e\cell\row\pard x";
    assert_eq!(text(table), "| a | b |\n| --- | --- |\n\n| c | d | e |\n| --- | --- | --- |\n\nx");
    // Cells that do not say that they are in a table stay in their row.
    assert_eq!(text(r"\trowd a\cell\par b\cell\row c\cell d\cell\row"), "| a | b |\n| --- | --- |\n| c | d |");
}

#[test]
fn a_raised_number_is_no_part_of_the_number_before_it() {
    for (rtf, expected) in [
        (r"In 2019{\super 3} it was 10{\super 6}", "In 2019^3 it was 10^6"),
        (r"10{\super \u8722?3}, 10{\super -3}", "10^−3, 10^-3"),
        (r"10{\super 1}{\super 2}, 10{\super 1{\*\bkmkstart a}2}", "10^12, 10^12"),
        (r"5{\super 1,2}, 2019{\super 1\u8211?3}, 10{\super 1.5}", "5^1,2, 2019^1–3, 10^1.5"),
        (r"10\super 6\nosupersub 5, m{\super 2}, 1{\super st}, H{\sub 2}O, 3\super\plain 4", "10^65, m2, 1st, H2O, 34"),
    ] {
        assert_eq!(text(rtf), expected, "{rtf}");
    }
}

#[test]
fn what_is_cut_or_hostile_is_read_as_far_as_it_goes_or_refused_by_name() {
    for end in 0..RULES.len() {
        let cut = extract(Cursor::new(&RULES[..end]), &Limits::default());
        assert!(cut.is_ok() || end < MARK.len(), "{end}");
    }
    assert_eq!(of("{\\rtf1 words").facts["ends_within_a_group"], true);
    assert_eq!(of("{\\rtf1 words} and {more}").text, "words");
    let refused = extract(Cursor::new("{".repeat(10_000) + "{\\rtf1" + &"{".repeat(10_000)), &Limits::default());
    assert_eq!(refused.unwrap_err().limit(), Some(Limit::XmlDepth));
    let limits = Limits { text_bytes: 100, ..Limits::default() };
    for endless in ["\\cell".repeat(1000), "words ".repeat(1000), "\\pard a\\par".repeat(1000), "\\u97 ".repeat(200)] {
        let refused = extract(Cursor::new(format!("{{\\rtf1{endless}")), &limits).unwrap_err();
        assert_eq!(refused.limit(), Some(Limit::TextBytes), "{endless}");
    }
    assert_eq!(extract(Cursor::new("words"), &Limits::default()).unwrap_err().code(), "corrupt");
}

proptest! {
    #[test]
    fn words_that_are_written_come_back(words in prop::collection::vec("[a-zäöüßЖ水🦆]{1,8}", 1..20)) {
        let encoded: Vec<_> = words.iter().map(|word| {
            word.encode_utf16().map(|unit| format!("\\u{}?", unit as i16)).collect::<String>()
        }).collect();
        prop_assert_eq!(text(&encoded.join("\\par ")), words.join("\n\n"));
    }

    #[test]
    fn no_controls_bring_it_down(
        body in "(\\{|\\}|\\\\(cell|row|par|intbl|trowd|pard|u-1|uc9|ls1|ilvl99|s1|outlinelevel3|stylesheet|fonttbl|f9|fcharset128|bin3|footnote|v|pict|'8|\\*|-) ?|[a-z#|]| ){0,60}",
    ) {
        let read = of(format!("{{\\rtf1 {body}"));
        for heading in &read.headings {
            prop_assert!(read.text[heading.start..].starts_with('#'));
        }
    }
}
