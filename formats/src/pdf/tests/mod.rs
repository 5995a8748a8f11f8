//! Files that show one thing each.

mod builder;
mod encryption;
mod glyphs;
mod images;

use super::*;
use crate::{Limit, Limits};
use builder::{Pdf, lines};
use flate2::{Compression, write::ZlibEncoder};
use std::io::{Cursor, Write};

fn read(pdf: Pdf) -> Extraction {
    extract(Cursor::new(pdf.build()), (&Limits::default()).into()).unwrap()
}

fn probed(pdf: Pdf) -> Patterns {
    probe(Cursor::new(pdf.build()), (&Limits::default()).into()).unwrap()
}

/// So many bytes that they exceed the limits, packed and written in hexadecimal digits.
fn bomb(byte: u8) -> String {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(&vec![byte; 64 << 20]).unwrap();
    encoder.finish().unwrap().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Level, title and page of each heading.
fn headings(read: &Extraction) -> Vec<(u8, &str, u32)> {
    let of = |heading: &'_ crate::Heading| read.page_at(heading.start).unwrap();
    read.headings.iter().map(|heading| (heading.level, heading.title.as_str(), of(heading))).collect()
}

#[test]
fn the_outline_finds_its_targets_by_every_way() {
    let pdf = || {
        Pdf::new()
            .page(&lines(50, 700, 12, &["One", "text"]))
            .page(&lines(50, 700, 12, &["before", "Two", "text"]))
            .page(&lines(50, 700, 12, &["Three"]))
            .catalog("/Outlines 100 0 R /Dests << /old [12 0 R /Fit] >> /Names << /Dests 110 0 R >>")
            .object(100, "<< /First 101 0 R >>")
            .object(101, "<< /Title (One) /Dest [10 0 R /Fit] /Next 102 0 R /First 104 0 R >>")
            .object(102, "<< /Title (Two) /Dest /old /Next 103 0 R >>")
            // The last entry leads back to the first.
            .object(103, "<< /Title (Three) /A << /S /GoTo /D (new) >> /Next 101 0 R >>")
            .object(104, "<< /Title (Nowhere) /Dest (missing) /Next 105 0 R >>")
            .object(105, "<< /Title (Part of One) /Dest [0 /Fit] /First 101 0 R >>")
            .object(110, "<< /Kids [111 0 R 110 0 R] >>")
            .object(111, "<< /Names [(new) << /D [14 0 R /Fit] >>] >>")
    };
    let read = read(pdf());
    assert_eq!(headings(&read), [(1, "One", 1), (2, "Part of One", 1), (1, "Two", 2), (1, "Three", 3)]);
    assert_eq!(read.headings_from.as_deref(), Some("outline"));
    assert!(read.text[read.headings[2].start..].starts_with("Two\n"), "at its line, not where its page begins");
    let patterns = probed(pdf());
    assert!(patterns.holds(Pattern::HasOutline) && patterns.holds(Pattern::HasHeadings));
}

#[test]
fn an_outline_finds_its_titles_whether_it_or_the_page_has_their_numbers() {
    let at = |titles: &[&str], page: &[&str]| {
        let mut pdf =
            Pdf::new().page(&lines(50, 700, 12, page)).catalog("/Outlines 100 0 R").object(100, "<< /First 101 0 R >>");
        for (number, title) in (101..).zip(titles) {
            let next =
                if number < 100 + titles.len() as u32 { format!("/Next {} 0 R", number + 1) } else { String::new() };
            pdf = pdf.object(number, &format!("<< /Title ({title}) /Dest [10 0 R /Fit] {next} >>"));
        }
        let read = read(pdf);
        let line = |heading: &crate::Heading| read.text[heading.start..].lines().next().unwrap().to_owned();
        read.headings.iter().map(line).collect::<Vec<_>>()
    };
    let page = ["1 Introduction", "ours are boats", "2.1 Boats", "A method is used here.", "A Method", "text"];
    let found = at(&["Introduction", "Boats", "Method"], &page);
    assert_eq!(found, ["1 Introduction", "2.1 Boats", "A Method"], "the sentence that begins like one is no title");
    let page = [
        "1 Introduction",
        "We row",
        "methods of old boats and",
        "2 Method",
        "We count, which gave the",
        "results shown in the table, and",
        "3 Results",
    ];
    let found = at(&["Introduction", "Method", "Results"], &page);
    assert_eq!(found, ["1 Introduction", "2 Method", "3 Results"], "lines that only begin like titles come last");
    let found = at(&["2 Boats", "2.1 Boats", "Nests"], &["2 Boats", "2.1 Boats", "Nests: how they are made"]);
    assert_eq!(found, ["2 Boats", "2.1 Boats", "Nests: how they are made"]);
    let page = ["above", "I. INTRODUCTION", "text", "II. NESTS", "of reed", "Boats", "4 boats were seen."];
    let found = at(&["I Introduction", "II Nests of Reed", "3 Boats", "Boat 7"], &page);
    assert_eq!(found, ["I. INTRODUCTION", "II. NESTS", "Boats", "Boats"], "where the last was, if it is nowhere");
}

#[test]
fn tags_head_where_no_outline_does() {
    let tagged = "/H1 << /MCID 0 >> BDC BT /F1 12 Tf 50 700 Td (The first) Tj ET EMC
        /P << /MCID 1 >> BDC BT /F1 12 Tf 50 680 Td (has text) Tj ET EMC
        /Span << /MCID 2 >> BDC BT /F1 12 Tf 50 640 Td (A section's) Tj ET EMC
        /Span << /MCID 3 >> BDC BT /F1 12 Tf 50 626 Td (title) Tj ET EMC
        /P << /MCID 4 >> BDC BT /F1 12 Tf 50 600 Td (has more) Tj ET EMC";
    let pdf = || {
        Pdf::new()
            .page(tagged)
            .catalog("/MarkInfo << /Marked true >> /StructTreeRoot 100 0 R")
            .object(100, "<< /Type /StructTreeRoot /RoleMap << /Headline /H2 >> /K [101 0 R 102 0 R 103 0 R 100 0 R] >>")
            .object(101, "<< /S /H1 /Pg 10 0 R /K 0 >>")
            .object(102, "<< /S /P /Pg 10 0 R /K [1] >>")
            .object(103, "<< /S /Sect /K [<< /S /Headline /K [<< /S /Span /Pg 10 0 R /K 2 >> << /MCID 3 /Pg 10 0 R >>] >> 101 0 R] >>")
    };
    let read = read(pdf());
    assert_eq!(headings(&read), [(1, "The first", 1), (2, "A section's title", 1)]);
    assert_eq!((read.headings_from.as_deref(), &read.facts["tagged"]), (Some("tags"), &true.into()));
    assert!(probed(pdf()).holds(Pattern::HasHeadings));
}

#[test]
fn sizes_head_where_nothing_else_does() {
    let body =
        ["A paragraph of the body is longer than its headings", "are, so that its size is that of most characters."];
    let section = |y: u32, title: &str| {
        lines(50, y, 18, &[title]) + &lines(50, y - 30, 11, &body) + &lines(50, y - 70, 11, &body)
    };
    let pdf = || {
        let first = lines(50, 760, 28, &["The Title"]) + &section(700, "1 Begin") + &section(500, "2 Go on");
        Pdf::new().page(&first).page(&section(700, "3 End"))
    };
    let read = read(pdf());
    assert_eq!(headings(&read), [(1, "The Title", 1), (2, "1 Begin", 1), (2, "2 Go on", 1), (2, "3 End", 2)]);
    assert_eq!(read.headings_from.as_deref(), Some("font_sizes"));
    assert!(probed(pdf()).holds(Pattern::HasHeadings));
    assert!(read.text.starts_with("The Title\n\n1 Begin\n\nA paragraph"), "{}", read.text);
    let plain = || Pdf::new().page(&lines(50, 700, 11, &body));
    assert!(self::read(plain()).headings.is_empty() && !probed(plain()).holds(Pattern::HasHeadings));
}

#[test]
fn bold_type_heads_the_body_whatever_its_font_says_of_itself() {
    let body = ["A paragraph of the body goes on for as long as it", "takes to say what there is to be said about it."];
    let bold = |y: u32, title: &str| format!("BT /F2 12 Tf 50 {y} Td ({title}) Tj ET\n");
    let section = |y: u32, title: &str| bold(y, title) + &lines(50, y - 30, 12, &body) + &lines(50, y - 90, 12, &body);
    let pdf = || {
        // A standard font has no program that could tell its weight.
        Pdf::new()
            .page(&(section(700, "First steps") + &section(500, "Further steps")))
            .object(4, "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica-Bold /Encoding /WinAnsiEncoding >>")
    };
    let read = read(pdf());
    assert_eq!(headings(&read), [(1, "First steps", 1), (1, "Further steps", 1)], "{}", read.text);
    assert!(probed(pdf()).holds(Pattern::HasHeadings));
}

#[test]
fn hidden_text_is_text() {
    let scan = "q 600 0 0 800 0 0 cm /Im Do Q BT 3 Tr /F1 12 Tf 50 700 Td (What the OCR has read) Tj ET";
    let read = read(Pdf::new().page(scan).object(90, "<< /Im 101 0 R >>").stream(
        101,
        "/Type /XObject /Subtype /Image /Width 1 /Height 1 /ColorSpace /DeviceGray /BitsPerComponent 8",
        "x",
    ));
    assert_eq!(read.text, "What the OCR has read");
    assert_eq!(read.facts["page_images"][0]["coverage"], 1.0);
    assert!(!read.facts.contains_key("scanned_pages"));
}

#[test]
fn a_picture_of_a_page_is_scanned_in_strips_too() {
    let strip = |y: u32| format!("q 600 0 0 100 0 {y} cm /Im Do Q\n");
    let pdf = || {
        let strips: String = (0..5).map(|at| strip(at * 100)).collect();
        let image = "/Type /XObject /Subtype /Image /Width 1 /Height 1 /ColorSpace /DeviceGray /BitsPerComponent 8";
        // The image's data does not unpack, because nobody reads it.
        Pdf::new().page(&(strips + &lines(50, 700, 12, &["p. 7"]))).object(90, "<< /Im 101 0 R >>").stream(
            101,
            &format!("{image} /Filter /JBIG2Decode"),
            "no such image",
        )
    };
    let read = read(pdf());
    assert_eq!((&read.facts["scanned_pages"][0], read.text.as_str()), (&1.into(), "p. 7"));
    let images = &read.facts["page_images"][0];
    assert_eq!((&images["count"], &images["largest_coverage"]), (&5.into(), &0.13.into()));
    assert!((images["coverage"].as_f64().unwrap() - 0.625).abs() < 0.02, "{images}");
    let patterns = probed(pdf());
    assert!(patterns.holds(Pattern::IsScanned) && patterns.holds(Pattern::HasImages));
    assert!(!patterns.holds(Pattern::HasTextLayer));
}

#[test]
fn a_picture_of_a_page_is_scanned_whatever_is_stamped_on_it() {
    let stamp = "Case 1:20-cv-01234 Page 3 of 9";
    let pdf = |entries: &str, height: u32, text: &str| {
        let image = "/Type /XObject /Subtype /Image /Width 1 /Height 1 /ColorSpace /DeviceGray /BitsPerComponent 8";
        let content = format!("q 600 0 0 {height} 0 0 cm /Im Do Q {text}");
        Pdf::new().page_with(entries, &content).object(90, "<< /Im 101 0 R >>").stream(101, image, "x")
    };
    let edge = lines(50, 785, 8, &[stamp]);
    let stamped = read(pdf("", 800, &edge));
    assert_eq!((&stamped.facts["scanned_pages"][0], stamped.text.as_str()), (&1.into(), stamp));
    let patterns = probed(pdf("", 800, &edge));
    assert!(patterns.holds(Pattern::IsScanned) && patterns.holds(Pattern::HasTextLayer), "nobody need read the stamp");
    let field = "/Annots [<< /Subtype /Widget /Rect [150 400 450 420] /FT /Tx /V (What was filled in) >>]";
    assert!(read(pdf(field, 800, "")).facts.contains_key("scanned_pages"), "a form on paper");
    let middle = lines(50, 400, 12, &["A slide with a picture behind its text"]);
    for (height, text, what) in [
        (800, &middle, "a slide"),
        (500, &edge, "a figure below the head of its page"),
        (650, &edge, "a picture below the title of its slide"),
    ] {
        assert!(!read(pdf("", height, text)).facts.contains_key("scanned_pages"), "{what}");
    }
    assert!(read(pdf("", 750, &edge)).facts.contains_key("scanned_pages"), "made smaller for its stamp");
}

#[test]
fn turned_pages_read_as_they_are_seen() {
    // The text runs along the sheet's long side, and the page's own rotation makes it upright.
    let sideways =
        "BT /F1 12 Tf 0 1 -1 0 100 50 Tm (first line) Tj ET BT /F1 12 Tf 0 1 -1 0 114 50 Tm (second line) Tj ET";
    assert_eq!(read(Pdf::new().page_with("/Rotate 90", sideways)).text, "first line\nsecond line");
    let upright = lines(50, 700, 12, &["first line", "second line"]);
    for turn in [0, 90, 180, 270] {
        let page = Pdf::new().page_with(&format!("/Rotate {turn}"), &upright);
        assert_eq!(read(page).text, "first line\nsecond line", "turned by {turn}");
    }
}

#[test]
fn turned_pages_are_drawn_as_they_are_seen() {
    let drawn = |turn: u32| {
        // The lower half of the page is black.
        let file = Pdf::new().page_with(&format!("/Rotate {turn}"), "0 0 600 400 re f").build();
        let raster = Raster { dpi: 72, pixels: 1_000_000 };
        let (size, pixels) = render(Cursor::new(file), 1, raster, (&Limits::default()).into()).unwrap();
        let at = |x: u32, y: u32| pixels[(y * size.width + x) as usize];
        let (right, bottom) = (size.width - 1, size.height - 1);
        let middle = (right / 2, bottom / 2);
        let edges = [at(middle.0, 5), at(right - 5, middle.1), at(middle.0, bottom - 5), at(5, middle.1)];
        ((size.width, size.height), edges)
    };
    let is_black = |edges: [u8; 4], edge: usize| edges[edge] < 50 && edges[(edge + 2) % 4] > 200;
    for (turn, edge, size) in [(0, 2, (600, 800)), (90, 3, (800, 600)), (180, 0, (600, 800)), (270, 1, (800, 600))] {
        let (found, edges) = drawn(turn);
        assert!(found == size && is_black(edges, edge), "turned by {turn}: {found:?} {edges:?}");
    }
}

#[test]
fn text_that_runs_left_is_logical() {
    let map = "/CIDInit /ProcSet findresource begin begincmap 1 begincodespacerange <00> <FF> endcodespacerange
        4 beginbfchar <61> <05E9> <62> <05DC> <63> <05D5> <64> <05DD> endbfchar endcmap end";
    let pdf = Pdf::new()
        .page("BT /F2 12 Tf 50 700 Td (2026 dcba) Tj ET")
        .object(4, "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /ToUnicode 101 0 R >>")
        .stream(101, "", map);
    assert_eq!(read(pdf).text, "שלום 2026");
}

#[test]
fn forms_that_draw_themselves_come_to_an_end() {
    let form = |number: u32| {
        format!(
            "/Type /XObject /Subtype /Form /BBox [0 0 600 800] /Resources << /XObject << /A {number} 0 R /B {number} 0 R >> >>"
        )
    };
    let mut pdf = Pdf::new()
        .page(&(lines(50, 700, 12, &["the page's text"]) + "/Self Do /A Do"))
        .object(90, "<< /Self 100 0 R /A 101 0 R >>")
        .stream(100, &form(100), "/A Do /B Do");
    // Each form draws the next one twice.
    for level in 101..140 {
        pdf = pdf.stream(level, &form(level + 1), "/A Do /B Do");
    }
    let read = read(pdf.stream(140, "/Type /XObject /Subtype /Form /BBox [0 0 1 1]", "q Q"));
    assert_eq!((read.text.as_str(), &read.facts["unreadable_pages"]), ("the page's text", &1.into()));
}

#[test]
fn fields_of_forms_are_text_and_the_page_is_not_doubled() {
    let annotation = |number: u32, subtype: &str, more: &str| {
        format!("<< /Subtype /{subtype} /Rect [50 600 250 620] /AP << /N {number} 0 R >> {more} >>")
    };
    let appearance = "/Subtype /Form /BBox [0 0 200 20] /Resources << /Font << /F1 3 0 R >> >>";
    let shown = |text: &str| format!("BT /F1 12 Tf 2 5 Td ({text}) Tj ET");
    let annotations = [
        annotation(101, "Widget", ""),
        annotation(102, "FreeText", "/Contents (Name:)"),
        annotation(103, "Widget", "/F 2"),
        annotation(104, "Highlight", ""),
    ];
    let read = read(
        Pdf::new()
            .page_with(&format!("/Annots [{}]", annotations.join(" ")), &lines(50, 640, 12, &["Name:"]))
            .stream(101, appearance, &shown("Ada Lovelace"))
            .stream(102, appearance, &shown("Name:"))
            .stream(103, appearance, &shown("hidden"))
            .stream(104, appearance, &shown("marked")),
    );
    assert_eq!(read.text.split_whitespace().collect::<Vec<_>>(), ["Name:", "Ada", "Lovelace"]);
}

#[test]
fn what_was_filled_in_is_text_where_no_program_has_drawn_it() {
    let field = |top: u32, more: &str| format!("<< /Subtype /Widget /Rect [150 {} 450 {top}] {more} >>", top - 20);
    let annotations = [
        field(712, "/FT /Tx /V (Ada Lovelace)"),
        // Its appearance is empty, and its value is that of the field above it.
        field(672, "/Parent 102 0 R /AP << /N 101 0 R >>"),
        field(632, "/FT /Ch /V [(1) <FEFF0043006F006F00740073>] /Opt [(Ducks) [(1) (Herons)] [(2) (Swans)]]"),
        field(532, "/FT /Tx /V <FEFF05E905DC05D505DD00200028003100320029>"),
        field(592, "/FT /Tx /Ff 8192 /V (a password)"),
        field(592, "/FT /Btn /V /Yes"),
        field(592, "/FT /Tx /F 2 /V (hidden)"),
        field(592, "/FT /Tx /V (drawn otherwise) /AP << /N 103 0 R >>"),
        field(592, "/FT /Tx /Parent 104 0 R"),
        "<< /Subtype /FreeText /Rect [50 540 450 580] /Contents (They wait\\rand they strike.) >>".to_owned(),
        "<< /Subtype /Widget /Rect [0 0 0 0] /FT /Tx /V (nowhere) >>".to_owned(),
    ];
    let appearance = "/Subtype /Form /BBox [0 0 300 20] /Resources << /Font << /F1 3 0 R >> >>";
    let labels = [(700, "Name:"), (660, "Town:"), (620, "Birds:"), (580, "More:")];
    let labels = labels.map(|(top, label)| lines(50, top, 12, &[label])).concat();
    let read = read(
        Pdf::new()
            .page_with(&format!("/Annots [{}]", annotations.join(" ")), &labels)
            .stream(101, appearance, "/Tx BMC EMC")
            .object(102, "<< /FT /Tx /V (London) /Parent 102 0 R >>")
            .stream(103, appearance, "BT /F1 12 Tf 2 5 Td (as drawn) Tj ET")
            .object(104, "<< /Parent 104 0 R >>"),
    );
    let lines: Vec<&str> = read.text.lines().filter(|line| !line.is_empty()).collect();
    assert_eq!(
        lines,
        [
            "Name: Ada Lovelace",
            "Town: London",
            "Birds: Herons",
            "Coots",
            "More: as drawn",
            "They wait",
            "and they strike.",
            "שלום (12)"
        ]
    );
}

#[test]
fn a_value_that_is_a_stream_is_text_too() {
    let field = |top: u32, more: &str| format!("<< /Subtype /Widget /Rect [150 {} 450 {top}] {more} >>", top - 20);
    let annotations = [
        field(712, "/FT /Tx /V 101 0 R"),
        field(672, "/Parent 102 0 R"),
        // What it has from above is over the limits, and the page has its other text.
        field(632, "/Parent 104 0 R"),
    ];
    let bomb = bomb(b'a');
    let labels = [(700, "Name:"), (660, "Town:"), (620, "Notes:")];
    let labels = labels.map(|(top, label)| lines(50, top, 12, &[label])).concat();
    let read = read(
        Pdf::new()
            .page_with(&format!("/Annots [{}]", annotations.join(" ")), &labels)
            .stream(101, "", "Ada Lovelace")
            .object(102, "<< /FT /Tx /V 103 0 R >>")
            .stream(103, "/Filter /ASCIIHexDecode", "FEFF004C006F006E0064006F006E>")
            .object(104, "<< /FT /Tx /V 105 0 R >>")
            .stream(105, "/Filter [/ASCIIHexDecode /FlateDecode]", &bomb),
    );
    let lines: Vec<&str> = read.text.lines().filter(|line| !line.is_empty()).collect();
    assert_eq!(lines, ["Name: Ada Lovelace", "Town: London", "Notes:"]);
}

#[test]
fn a_value_that_many_fields_share_is_not_unpacked_for_each_of_them() {
    let field = |top: u32, more: &str| format!("<< /Subtype /Widget /Rect [150 {} 450 {top}] {more} >>", top - 20);
    let mut annotations = vec![field(632, "/Parent 104 0 R"); 1_900];
    annotations.extend([field(672, "/Parent 102 0 R"), field(712, "/FT /Tx /V (Ada Lovelace)")]);
    let read = read(
        Pdf::new()
            .page_with(&format!("/Annots [{}]", annotations.join(" ")), &lines(50, 700, 12, &["Name:"]))
            .object(102, "<< /FT /Tx /V 103 0 R >>")
            .stream(103, "", "one stream more than a form has")
            .object(104, "<< /FT /Tx /V 105 0 R >>")
            .stream(105, "/Filter [/ASCIIHexDecode /FlateDecode]", &bomb(b'a')),
    );
    assert_eq!(read.text, "Name: Ada Lovelace");
}

#[test]
fn what_stands_off_the_page_is_not_on_it() {
    let both = lines(50, 700, 12, &["on the page"]) + &lines(50, 1500, 12, &["above it"]);
    assert_eq!(read(Pdf::new().page(&both)).text, "on the page");
    for size in ["[0 0 999999999999 999999999999]", "[0 0 0 0]", "[0 0 -5 -9]", "[9 9]", "[(a) /b nan 1e30]"] {
        let file = Pdf::new().page_with(&format!("/MediaBox {size}"), &both).build();
        let read = extract(Cursor::new(file), (&Limits::default()).into());
        assert!(read.map_or_else(|error| error.is_permanent(), |read| read.pages.len() == 1), "{size}");
    }
}

#[test]
fn an_extraction_of_many_pages_says_how_far_it_is() {
    let told = |pages: u32| {
        let pdf = (0..pages).fold(Pdf::new(), |pdf, page| pdf.page(&lines(50, 700, 12, &[&format!("Page {page}")])));
        let told = std::cell::RefCell::new(Vec::new());
        let tell = |done, of| {
            told.borrow_mut().push((done, of));
            Ok(())
        };
        let limits = Limits::default();
        extract(Cursor::new(pdf.build()), Access { pages: Some(&tell), ..Access::from(&limits) }).unwrap();
        told.into_inner()
    };
    assert!(told(10).is_empty(), "nobody looks so soon");
    let many = told(100);
    assert!((20..=32).contains(&many.len()) && many.iter().all(|(_, of)| *of == 100), "{many:?}");
    assert!(many.windows(2).all(|two| two[0].0 < two[1].0), "{many:?}");
}

#[test]
fn a_page_that_the_tree_names_twice_is_two_pages() {
    let pdf = Pdf::new()
        .page(&lines(50, 700, 12, &["One"]))
        .page(&lines(50, 700, 12, &["Two"]))
        // A node that leads back to the top is skipped.
        .object(2, "<< /Type /Pages /Kids [10 0 R 12 0 R 100 0 R 10 0 R] /Count 4 >>")
        .object(100, "<< /Type /Pages /Kids [2 0 R 10 0 R] /Count 2 >>");
    let read = read(pdf);
    let pages: Vec<&str> = read.pages.iter().map(|page| &read.text[page.start..page.end]).collect();
    assert_eq!(pages, ["One", "Two", "One", "One"]);
    assert_eq!(read.facts["page_count"], 4);
}

#[test]
fn what_stands_for_a_soft_hyphen_is_none_of_the_word() {
    let hyphen = "/Span << /ActualText <FEFF00AD> >> BDC (-) Tj EMC";
    let pdf = Pdf::new().page(&format!(
        "BT /F1 12 Tf 14 TL 50 700 Td (It is a self) Tj {hyphen} T* (help group for in) Tj {hyphen} (fantry) Tj ET"
    ));
    assert_eq!(read(pdf).text, "It is a selfhelp group for infantry");
}

#[test]
fn drawn_letters_are_as_large_as_they_are_wide() {
    // The font claims 58 points, but its letters are 6 wide.
    let pdf = Pdf::new()
        .page("BT /F2 58 Tf 50 700 Td (account) Tj 46 0 Td (sees) Tj ET")
        .object(
            4,
            "<< /Type /Font /Subtype /Type3 /FontBBox [0 0 0 0] /FontMatrix [0.0042 0 0 0.0042 0 0] /FirstChar 97
                /LastChar 117 /Widths [25 25 25 25 25 25 25 25 25 25 25 25 25 25 25 25 25 25 25 25 25]
                /Encoding << /Differences [97 /a 99 /c 101 /e 110 /n /o 115 /s /t /u] >>
                /CharProcs << /a 100 0 R /c 100 0 R /e 100 0 R /n 100 0 R /o 100 0 R /s 100 0 R /t 100 0 R /u 100 0 R >> >>",
        )
        .stream(100, "", "25 0 0 0 20 30 d1 0 0 20 30 re f");
    assert_eq!(read(pdf).text, "account sees");
}

#[test]
fn drawn_letters_have_the_numbers_of_their_names() {
    let font = |differences: &str| {
        format!(
            "<< /Type /Font /Subtype /Type3 /FontBBox [0 0 0 0] /FontMatrix [0.001 0 0 0.001 0 0] /FirstChar 1
                /LastChar 5 /Widths [500 500 500 500 500] /Encoding << /Differences [1 {differences}] >>
                /CharProcs << >> >>"
        )
    };
    let shown = "BT /F2 12 Tf 50 700 Td (\\001\\002\\003\\004\\005) Tj ET";
    let of = |differences: &str| read(Pdf::new().page(shown).object(4, &font(differences)));
    assert_eq!(of("/a233 /a116 /a97 /a105 /a115").text, "étais");
    let unknown = of("/g36 /g37 /g38 /g39 /g40");
    assert_eq!((unknown.text.as_str(), &unknown.facts["unusable_pages"][0]), ("", &1.into()), "numbers of glyphs");
}

#[test]
fn glyphs_in_the_usual_order_are_characters_where_they_read_like_a_text() {
    let font = "<< /Type /Font /Subtype /Type0 /BaseFont /Arial /Encoding /Identity-H /DescendantFonts [<< /Type /Font
        /Subtype /CIDFontType2 /BaseFont /Arial /DW 500
        /CIDSystemInfo << /Registry (Adobe) /Ordering (Identity) /Supplement 0 >> >>] >>";
    let shown = |text: &str, shift: u32| {
        let codes: String = text.chars().map(|one| format!("{:04X}", one as u32 - shift)).collect();
        read(Pdf::new().page(&format!("BT /F2 8 Tf 50 700 Td <{codes}> Tj ET")).object(4, font))
    };
    let text = "Die Herausgeber danken allen die an diesem Buch mitgewirkt haben";
    assert_eq!(shown(text, 29).text, text);
    let other = shown(&text.replace(' ', "x"), 40);
    assert_eq!((other.text.as_str(), &other.facts["unusable_pages"][0]), ("", &1.into()), "another order");
}

#[test]
fn unknown_glyphs_are_no_text_layer() {
    let pdf = || {
        Pdf::new()
            .page("BT /F2 12 Tf 50 700 Td (abcabcabc) Tj ET")
            .page(&lines(50, 700, 12, &["legible"]))
            .object(4, "<< /Type /Font /Subtype /Type1 /BaseFont /Odd /Encoding << /Differences [97 /qqqa /qqqb /qqqc] >> /FontDescriptor << /Type /FontDescriptor /FontName /Odd /Flags 4 >> /FirstChar 97 /LastChar 99 /Widths [600 600 600] >>")
    };
    let read = read(pdf());
    assert_eq!((read.text.as_str(), &read.facts["unusable_pages"][0]), ("legible", &1.into()));
    assert_eq!(read.pages[0].start, read.pages[0].end);
}

#[test]
fn streams_of_any_packing_are_held_to_the_limits() {
    let bomb = bomb(0);
    let refused = |pdf: Pdf| extract(Cursor::new(pdf.build()), (&Limits::default()).into()).unwrap_err().limit();
    let packed = "/Filter [/ASCIIHexDecode /FlateDecode]";
    assert_eq!(refused(Pdf::new().page("").stream(11, packed, &bomb)), Some(Limit::ZipRatio), "a page's content");
    let font = "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /ToUnicode 101 0 R >>";
    let named = Pdf::new().page(&lines(50, 700, 12, &["text"])).object(3, font).stream(101, packed, &bomb);
    assert_eq!(refused(named), Some(Limit::ZipRatio), "a font's map");
    let objects = Pdf::new().page("").stream(101, &format!("/Type /ObjStm /N 1 /First 4 {packed}"), &bomb);
    assert_eq!(read(objects).text, "", "what nothing leads to is not unpacked");
    let attached = "<< /Subtype /FileAttachment /Rect [0 0 9 9] /FS << /EF << /F 101 0 R >> >> >>";
    let page = |annotation: &str| {
        let annotations = format!("/Annots [{annotation}]");
        Pdf::new().page_with(&annotations, &lines(50, 700, 12, &["text"])).stream(101, packed, &bomb)
    };
    assert_eq!(read(page(attached)).text, "text", "an attached file is not unpacked");
    let shown = "<< /Subtype /Stamp /Rect [0 0 9 9] /AS /EF /AP << /N << /EF 101 0 R >> >> >>";
    assert_eq!(refused(page(shown)), Some(Limit::ZipRatio), "an appearance of that name");
}

/// Rows of cells 100 points apart from `y` down, with lines between them if they are `ruled`.
fn rows(y: u32, ruled: bool, rows: &[[&str; 3]]) -> String {
    let mut content = String::new();
    for (row, top) in rows.iter().zip((0..y).rev().step_by(14)) {
        for (cell, x) in row.iter().zip([60, 160, 260]) {
            content.push_str(&lines(x, top - 11, 10, &[*cell]));
        }
    }
    if ruled {
        let bottom = y - 1 - 14 * rows.len() as u32;
        for level in (bottom..y).step_by(14) {
            content.push_str(&format!("50 {level} m 350 {level} l S\n"));
        }
        for x in [50, 150, 250, 350] {
            content.push_str(&format!("{x} {bottom} m {x} {} l S\n", y - 1));
        }
    }
    content
}

#[test]
fn a_table_on_two_pages_is_one_and_its_text_stays_in_its_place() {
    const NAMES: [&str; 3] = ["Pond", "Ducks", "Warden"];
    let pdf = || {
        let before = lines(50, 760, 10, &["Each pond is counted by its warden."]);
        let first = before + &rows(700, true, &[NAMES, ["Mill", "1,204", "Ada"], ["Quay", "17", "Bert"]]);
        Pdf::new().page(&first).page(&rows(700, true, &[NAMES, ["Lock", "9", "Cy"]]))
    };
    let read = read(pdf());
    assert!(read.text.starts_with("Each pond is counted by its warden.\n\nPond Ducks Warden\n"), "{}", read.text);
    assert_eq!(read.tables.len(), 2);
    let found = crate::tables(&read).tables;
    assert_eq!((found.len(), found[0].parts, found[0].rule), (1, 2, crate::TableRule::Lines));
    let gfm = "| Pond | Ducks | Warden |\n| --- | --- | --- |\n| Mill | 1,204 | Ada |\n| Quay | 17 | Bert |\n| Lock | 9 | Cy |";
    assert_eq!(found[0].content(&read.text), gfm);
    let texts: Vec<&str> = found[0].ranges.iter().map(|range| &read.text[range.clone()]).collect();
    assert!(texts.len() == 2 && texts[1] == "Pond Ducks Warden\nLock 9 Cy", "{texts:?}");
    assert!(probed(pdf()).holds(Pattern::HasTables));
}

#[test]
fn numbers_below_each_other_are_a_table_and_words_are_none() {
    let of = |cells: &[[&str; 3]]| read(Pdf::new().page(&rows(700, false, cells))).tables;
    let found = of(&[["Year", "Ducks", "Geese"], ["2019", "14", "3"], ["2020", "17", "5"]]);
    assert_eq!((found.len(), found[0].rule, found[0].has_header), (1, crate::TableRule::Alignment, true));
    assert_eq!(found[0].rows[2], ["2020", "17", "5"]);
    assert_eq!(of(&[["Pond", "Warden", "Boat"], ["Mill", "Ada", "Coot"], ["Quay", "Bert", "Heron"]]), []);
}

#[test]
fn the_mark_of_a_note_in_a_cell_is_no_digit_of_its_number() {
    let cells = rows(700, true, &[["Mill", "Herons", "Year"], ["Weir", "120", "2019"], ["Quay", "17", "2020"]]);
    let read = read(Pdf::new().page(&cells.replace("(120) Tj", "(120) Tj /F1 6 Tf 4 Ts (2) Tj 0 Ts")));
    assert_eq!(read.tables[0].rows[1], ["Weir", "120^2", "2019"]);
    assert_eq!(read.tables[0].rows[2], ["Quay", "17", "2020"]);
}
