//! Tests what is refused, and parts in other encodings.

use super::{
    super::markup::{Mark, Markup},
    *,
};
use crate::Limit;

#[test]
fn what_is_over_a_limit_is_refused_by_name() {
    let refused = |rows: &str, limits: Limits| {
        let bytes = Book::new(rows).bytes();
        let profiled = profile_sheet(bytes.clone().into(), 0, true, &limits).unwrap_err();
        assert_eq!(cells(bytes.into(), 0, "A1:XFD1048576".parse().unwrap(), &limits).unwrap_err(), profiled);
        profiled
    };
    let cell = "<c><v>1</v></c>";
    let error = refused(&format!("<row>{}</row>", cell.repeat(11)), Limits { cells: 10, ..Limits::default() });
    assert_eq!(error.limit(), Some(Limit::Cells));
    let error = refused(&format!("<row>{}</row>", cell.repeat(16_385)), Limits::default());
    assert_eq!(error.code(), "corrupt");
    let error = refused("<row r=\"1048576\"/><row/>", Limits::default());
    assert!(error.to_string().contains("1048576"), "{error}");
    let error = refused(&format!("<row>{}", "<a>".repeat(300)), Limits::default());
    assert_eq!(error.limit(), Some(Limit::XmlDepth));
    let error = refused("<row><c><v>1</v>", Limits::default());
    assert_eq!(error.code(), "corrupt");
    let error = refused("<row><c><v>&nope;</v></c></row>", Limits::default());
    assert_eq!(error.code(), "corrupt");
    let long = format!("<row><c t=\"str\"><v>{}</v></c></row>", "x".repeat(17 << 20));
    assert_eq!(refused(&long, Limits { zip_ratio: 100_000, ..Limits::default() }).limit(), Some(Limit::TextBytes));
}

#[test]
fn a_part_in_the_encoding_it_declares_reads() {
    let sheet = b"<?xml version=\"1.0\" encoding='windows-1252'?><worksheet><sheetData><row><c t=\"str\"><v>Gr\xFC\xDFe</v></c></row></sheetData></worksheet>";
    let mut markup = Markup::new(sheet.as_slice(), &Limits::default());
    let mut text = String::new();
    while let Some(mark) = markup.next().unwrap() {
        if mark == (Mark::Start { empty: false }) && markup.name() == "v" {
            markup.text(&mut text).unwrap();
        }
    }
    assert_eq!(text, "Gr\u{FC}\u{DF}e");
}
