//! Glyphs that are other characters than they seem, or run another way.

use super::*;

/// A font of which nothing tells the characters of its two glyphs.
const ODD: &str =
    "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding << /Differences [97 /qqqa /qqqb] >> /FirstChar 97
    /LastChar 98 /Widths [600 600] >>";

fn shown(content: &str) -> Extraction {
    read(Pdf::new().page(&format!("BT /F1 12 Tf 14 TL 50 700 Td {content} ET")).object(4, ODD))
}

#[test]
fn what_stands_for_a_text_is_that_text() {
    for ligature in [
        "/Span << /ActualText (ffi) >> BDC (a) Tj EMC",
        "/Span << /ActualText <FEFF006600660069> >> BDC (a) Tj (b) Tj EMC",
        "/Span << /ActualText <EFBBBFEFAC83> >> BDC (a) Tj EMC",
        "/Span << /ActualText (ffi) >> BDC /Span << /ActualText (f) >> BDC (a) Tj EMC (b) Tj EMC",
    ] {
        let read = shown(&format!("(o) Tj /F2 12 Tf {ligature} /F1 12 Tf (ce) Tj"));
        assert_eq!(read.text, "office", "{ligature}");
        assert!(!read.facts.contains_key("unknown_glyphs"), "{:?}", read.facts);
    }
    assert_eq!(shown("(one) Tj /Span << /ActualText () >> BDC (xx) Tj EMC ( two) Tj").text, "one two");
}

#[test]
fn what_stands_for_a_passage_or_a_leader_is_read_glyph_by_glyph() {
    let passage = "/P << /ActualText (first line second line) >> BDC (first line) Tj T* (second line) Tj EMC";
    assert_eq!(shown(passage).text, "first line\nsecond line");
    let long = format!("/P << /ActualText ({}) >> BDC (its own text) Tj EMC", "x".repeat(300));
    assert_eq!(shown(&long).text, "its own text");
    let leader = "(Ducks) Tj /Span << /ActualText <FEFF0009> >> BDC (....) Tj EMC (5) Tj";
    assert_eq!(shown(leader).text, "Ducks....5");
}

#[test]
fn what_an_engine_read_from_right_to_left_is_logical() {
    let map = "/CIDInit /ProcSet findresource begin begincmap 1 begincodespacerange <00> <FF> endcodespacerange
        4 beginbfchar <61> <05E9> <62> <05DC> <63> <05D5> <64> <05DD> endbfchar endcmap end";
    let of = |content: &str| {
        let font = "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /ToUnicode 101 0 R >>";
        read(Pdf::new().page(content).object(4, font).stream(101, "", map)).text
    };
    let word = |font: &str, x: u32, y: u32, word: &str| format!("BT /{font} 12 Tf -1 0 0 1 {x} {y} Tm ({word}) Tj ET ");
    assert_eq!(of(&word("F2", 300, 700, "abcd")), "שלום");
    let lines = [word("F2", 300, 700, "abcd "), word("F1", 268, 700, "2026"), word("F2", 300, 686, "abc")].concat();
    assert_eq!(of(&lines), "שלום 2026\nשלו");
    assert_eq!(of(&word("F2", 300, 700, "\\(ab\\)")), "(של)");
    assert_eq!(of(&word("F1", 300, 700, "abcd")), "abcd", "seen in a mirror");
}

#[test]
fn the_bullet_of_a_font_of_symbols_is_a_bullet() {
    let map = "/CIDInit /ProcSet findresource begin begincmap 1 begincodespacerange <00> <FF> endcodespacerange
        1 beginbfchar <61> <F0B7> endbfchar endcmap end";
    let pdf = Pdf::new()
        .page("BT /F2 12 Tf 50 700 Td (a) Tj /F1 12 Tf ( First) Tj ET")
        .object(4, "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /ToUnicode 101 0 R >>")
        .stream(101, "", map);
    assert_eq!(read(pdf).text, "• First");
}
