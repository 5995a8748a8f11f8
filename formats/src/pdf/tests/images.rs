//! Pictures of pages.

use super::*;
use crate::{Format, ImageHead, ImagePart, images};

const SMALL_GREY: &str = "/Subtype /Image /Width 16 /Height 16 /ColorSpace /DeviceGray /BitsPerComponent 8";

/// The pictures of a file with the bytes of each, and the names and reasons of those left out.
type Read = (Vec<(ImageHead, Vec<u8>)>, Vec<(String, &'static str)>);

fn read(pdf: Pdf) -> Read {
    let (mut given, mut left_out) = (Vec::new(), Vec::new());
    let limits = Limits::default();
    images(Format::Pdf, Cursor::new(pdf.build()), &limits, &mut |part| {
        match part {
            ImagePart::Begin(head) => given.push((head, Vec::new())),
            ImagePart::Bytes(piece) => given.last_mut().unwrap().1.extend(piece),
            ImagePart::End | ImagePart::Chart(_) => {}
            ImagePart::LeftOut { name, reason, .. } => left_out.push((name, reason.as_str())),
        }
        Ok(())
    })
    .unwrap();
    (given, left_out)
}

#[test]
fn a_picture_comes_once_with_its_pages_and_its_caption() {
    let rows = "abcdefghijklmnop".repeat(16);
    let text = lines(50, 700, 12, &["The mill stands at the pond, and its wheel turns."]);
    let caption = lines(50, 300, 12, &["Figure 1: Letters in grey"]);
    let drawn = format!("{text} q 100 0 0 100 50 400 cm /Grey Do Q {caption}");
    let pdf = Pdf::new()
        .object(90, "<< /Grey 100 0 R /Form 101 0 R >>")
        .stream(100, SMALL_GREY, &rows)
        .stream(101, "/Subtype /Form /BBox [0 0 1 1] /Resources << /XObject << /In 100 0 R >> >>", "/In Do")
        .page(&drawn)
        .page("q 50 0 0 50 0 0 cm /Form Do Q BT /F1 12 Tf 50 500 Td (A page with words enough) Tj ET");
    let (given, left_out) = read(pdf);
    let [(head, bytes)] = given.as_slice() else { panic!("{given:?} {left_out:?}") };
    assert_eq!(
        (head.mime.as_str(), head.width, head.height, &head.pages),
        ("image/png", Some(16), Some(16), &vec![1, 2])
    );
    assert_eq!(head.caption, "Figure 1: Letters in grey");
    assert_eq!(head.nearby, "The mill stands at the pond, and its wheel turns.");
    assert!(bytes.starts_with(b"\x89PNG") && left_out.is_empty(), "{left_out:?}");
}

#[test]
fn a_large_picture_beside_the_title_of_its_page_is_no_scan() {
    let title = lines(50, 785, 8, &["The pond in March, seen from the mill"]);
    let pdf = |drawn: &str| {
        let rows = "0".repeat(256);
        let pictures = Pdf::new().object(90, "<< /Large 100 0 R /Small 101 0 R >>");
        read(pictures.stream(100, SMALL_GREY, &rows).stream(101, SMALL_GREY, &rows).page(&format!("{drawn} {title}")))
    };
    let (given, left_out) = pdf("q 600 0 0 650 0 0 cm /Large Do Q");
    assert_eq!((given.len(), left_out.len()), (1, 0), "{left_out:?}");
    let (given, left_out) = pdf("q 600 0 0 800 0 0 cm /Large Do Q q 100 0 0 100 50 400 cm /Small Do Q");
    assert_eq!((given.len(), left_out.as_slice()), (1, &[("object 100".to_owned(), "whole_page")][..]));
    let strips = "q 600 0 0 400 0 0 cm /Large Do Q q 600 0 0 400 0 400 cm /Small Do Q";
    let (given, left_out) = pdf(strips);
    assert_eq!((given.len(), left_out.len()), (0, 2), "a scan in two pieces");
}

#[test]
fn what_cannot_be_shown_or_is_the_page_itself_is_left_out() {
    let rows = "0".repeat(256);
    let words = lines(50, 700, 12, &["Words enough for a page with text."]);
    let pdf = Pdf::new()
        .object(90, "<< /Page 100 0 R /Mask 101 0 R /Fax 102 0 R /Ink 103 0 R /Short 105 0 R /Unused 106 0 R >>")
        .stream(100, SMALL_GREY, &rows)
        .stream(101, "/Subtype /Image /Width 16 /Height 16 /ImageMask true", &rows)
        .stream(102, &format!("{SMALL_GREY} /Filter /CCITTFaxDecode"), &rows)
        .stream(103, "/Subtype /Image /Width 16 /Height 16 /ColorSpace /DeviceCMYK /BitsPerComponent 8", &rows)
        .stream(105, SMALL_GREY, "too short")
        .stream(106, SMALL_GREY, &rows)
        .page(&format!(
            "{words} q 600 0 0 800 0 0 cm /Page Do Q q 90 0 0 90 9 9 cm /Mask Do /Fax Do /Ink Do /Short Do Q"
        ));
    let (given, mut left_out) = read(pdf);
    left_out.sort();
    let expected =
        [("100", "whole_page"), ("101", "mask"), ("102", "compression"), ("103", "colors"), ("105", "damaged")];
    assert_eq!(left_out, expected.map(|(number, reason)| (format!("object {number}"), reason)));
    assert!(given.is_empty(), "{given:?}");
}
