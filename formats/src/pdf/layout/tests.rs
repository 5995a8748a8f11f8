use super::*;
use crate::pdf::glyphs::Glyph;
use kurbo::{Point, Rect, Vec2};

/// Text set at a place in a size; each character is half as wide as the size.
pub(super) type Set<'t> = (&'t str, f64, f64, f64);

pub(super) fn page(set: &[Set<'_>], direction: Vec2) -> PageGlyphs {
    let mut page = PageGlyphs::default();
    for &(text, x, y, size) in set {
        for (index, character) in text.chars().enumerate() {
            let start = page.text.len() as u32;
            page.text.push(character);
            let origin = Point::new(x, y) + direction * (index as f64 * size * 0.5);
            let text = start..page.text.len() as u32;
            page.glyphs.push(Glyph {
                text,
                origin,
                direction,
                advance: size * 0.5,
                size,
                bold: false,
                content: None,
                annotated: false,
                begins: index == 0,
            });
        }
    }
    page
}

fn laid(set: &[Set<'_>]) -> String {
    lay_out(&page(set, Vec2::new(1.0, 0.0))).text
}

#[test]
fn gaps_make_words_lines_and_paragraphs() {
    let text = laid(&[
        ("Title", 0.0, 10.0, 20.0),
        ("one", 0.0, 40.0, 10.0),
        ("two", 18.0, 40.0, 10.0),
        ("three", 0.0, 52.0, 10.0),
    ]);
    assert_eq!(text, "Title\n\none two\nthree");
    assert_eq!(laid(&[("a", 0.0, 10.0, 10.0), ("b", 0.0, 40.0, 10.0)]), "a\n\nb");
}

#[test]
fn superscripts_stay_and_soft_hyphens_go() {
    assert_eq!(laid(&[("x", 0.0, 10.0, 10.0), ("2", 5.0, 7.0, 6.0), (" + y", 8.0, 10.0, 10.0)]), "x2 + y");
    assert_eq!(laid(&[("infan\u{AD}", 0.0, 10.0, 10.0), ("try", 0.0, 22.0, 10.0)]), "infantry");
    assert_eq!(laid(&[("infan-", 0.0, 10.0, 10.0), ("try goes", 0.0, 22.0, 10.0)]), "infantry goes");
}

#[test]
fn a_raised_number_is_no_part_of_the_number_before_it() {
    let set = |before: &str, after: &str, up: f64, size: f64| {
        laid(&[(before, 0.0, 10.0, 10.0), (after, 5.0 * before.chars().count() as f64, 10.0 - up, size)])
    };
    for (before, after, up, size, expected) in [
        ("10", "6", 4.0, 6.0, "10^6"),
        ("in 2019", "13", 3.5, 7.0, "in 2019^13"),
        ("10", "−3", 4.0, 6.0, "10^−3"),
        ("x", "2", 4.0, 6.0, "x2"),
        ("1", "st", 4.0, 6.0, "1st"),
        ("5", "+x", 4.0, 6.0, "5+x"),
        ("12", "6", 0.0, 6.0, "126"),
        ("12", "6", 4.0, 10.0, "126"),
        ("12", "6", -2.0, 6.0, "126"),
    ] {
        assert_eq!(set(before, after, up, size), expected, "{before} and {after}");
    }
    let half = [("2", 0.0, 10.0, 10.0), ("1", 5.0, 6.5, 6.0), ("/", 8.0, 10.0, 10.0), ("2", 13.0, 10.0, 6.0)];
    assert_eq!(laid(&half), "2 1/2");
    let share = |before: &str, after: &str| {
        let raised_at = 5.0 * before.len() as f64;
        laid(&[(before, 0.0, 10.0, 10.0), ("3", raised_at, 6.0, 6.0), (after, raised_at + 3.0, 10.0, 10.0)])
    };
    assert_eq!(share("10", "/L"), "10^3/L");
    assert_eq!(share("2019", "/20"), "2019^3/20");
    assert_eq!(share("2019", "12/2020"), "2019^312/2020");
}

#[test]
fn each_of_many_raised_numbers_of_a_row_is_told_by_few_looks() {
    let number = |at: usize| [("1", at as f64 * 8.0, 10.0, 10.0), ("2", at as f64 * 8.0 + 5.0, 6.0, 6.0)];
    let set: Vec<Set<'_>> = (0..40_000).flat_map(number).collect();
    let before = row_text::LOOKED_AT.get();
    assert_eq!(laid(&set), "1^2".repeat(40_000));
    let looked_at = row_text::LOOKED_AT.get() - before;
    assert!((40_000..800_000).contains(&looked_at), "{looked_at}");
}

#[test]
fn letters_set_apart_are_a_word() {
    let apart: Vec<_> =
        "CHAPTER".chars().enumerate().map(|(at, _)| (&"CHAPTER"[at..=at], at as f64 * 8.0, 10.0, 10.0)).collect();
    assert_eq!(laid(&apart), "CHAPTER");
    let digits: Vec<_> =
        "12345".chars().enumerate().map(|(at, _)| (&"12345"[at..=at], at as f64 * 8.0, 10.0, 10.0)).collect();
    assert_eq!(laid(&digits), "1 2 3 4 5", "cells of a table");
}

#[test]
fn words_set_closely_are_apart_where_letters_are_not() {
    // Words are a tenth of the size apart and drawn one by one; a letter is half as wide as the size.
    let mut x = 0.0;
    let words: Vec<Set<'_>> = ["words", "are", "close", "but", "clear"]
        .into_iter()
        .map(|word| {
            let set = (word, x, 10.0, 10.0);
            x += 5.0 * word.len() as f64 + 0.9;
            set
        })
        .collect();
    assert_eq!(laid(&words), "words are close but clear");
}

#[test]
fn numbers_of_narrow_columns_are_apart() {
    let numbers: Vec<Set<'_>> =
        ["12", "13", "1,4"].iter().enumerate().map(|(at, number)| (*number, at as f64 * 11.0, 10.0, 10.0)).collect();
    assert_eq!(laid(&numbers), "12 13 1,4");
    assert_eq!(laid(&[("11", 0.0, 10.0, 10.0), ("2", 10.5, 10.0, 10.0)]), "112", "closer than columns stand");
    assert_eq!(laid(&[("1", 0.0, 10.0, 10.0), ("2", 6.0, 10.0, 10.0)]), "12", "digits drawn one by one");
}

pub(super) const LEFT: [&str; 5] = [
    "the left column begins here",
    "and it is read to its end",
    "before the right column is",
    "read, whatever the order is",
    "in which they were drawn",
];
pub(super) const RIGHT: [&str; 5] = [
    "Then comes the right column",
    "which goes on as if nothing",
    "had stood beside it at all",
    "since that is what a reader",
    "of such a page would do too",
];

#[test]
fn columns_are_read_one_after_the_other() {
    let at = |line: usize| 50.0 + 12.0 * line as f64;
    let left = |line: usize| (LEFT[line], 0.0, at(line), 10.0);
    let right = |line: usize| (RIGHT[line], 160.0, at(line), 10.0);
    let expected = format!(
        "A title over both of the columns\n\n{}\n\n{}\n\nA footer under both of the columns",
        LEFT.join("\n"),
        RIGHT.join("\n")
    );
    let title = ("A title over both of the columns", 40.0, 10.0, 10.0);
    let footer = ("A footer under both of the columns", 40.0, 140.0, 10.0);
    let mut across = vec![title];
    across.extend((0..5).flat_map(|line| [left(line), right(line)]));
    across.push(footer);
    assert_eq!(laid(&across), expected, "drawn line by line across both");
    let mut one_by_one = vec![footer, title];
    one_by_one.extend((0..5).map(left).chain((0..5).map(right)));
    assert_eq!(laid(&one_by_one), expected, "drawn one by one, the footer first");
}

#[test]
fn rows_of_a_table_stay_rows() {
    let mut cells = Vec::new();
    for (row, [name, count, price]) in [
        ["Name", "Count", "Price"],
        ["Duck", "200", "3.50"],
        ["Goose", "11", "9.00"],
        ["Swan", "7", "12.00"],
        ["Teal", "35", "2.10"],
    ]
    .into_iter()
    .enumerate()
    {
        let y = 10.0 + 14.0 * row as f64;
        cells.extend([(name, 0.0, y, 10.0), (count, 100.0, y, 10.0), (price, 200.0, y, 10.0)]);
    }
    assert_eq!(laid(&cells), "Name Count Price\nDuck 200 3.50\nGoose 11 9.00\nSwan 7 12.00\nTeal 35 2.10");
}

#[test]
fn indents_begin_paragraphs() {
    let text = laid(&[
        ("the first paragraph of the text", 0.0, 10.0, 10.0),
        ("goes on to its end here", 0.0, 22.0, 10.0),
        ("the second is set further in", 15.0, 34.0, 10.0),
        ("than the lines around its first", 0.0, 46.0, 10.0),
    ]);
    assert_eq!(text.matches("\n\n").count(), 1);
    assert!(text.contains("here\n\nthe second"), "{text}");
}

#[test]
fn turned_text_reads_as_if_upright() {
    let upward = Vec2::new(0.0, -1.0);
    let text = lay_out(&page(&[("first line", 10.0, 500.0, 10.0), ("second line", 22.0, 500.0, 10.0)], upward)).text;
    assert_eq!(text, "first line\nsecond line");
    let mut both = page(&[("the page's own text runs along", 0.0, 10.0, 10.0)], Vec2::new(1.0, 0.0));
    let stamp = page(&[("a stamp", 500.0, 500.0, 10.0)], upward);
    let shift = both.text.len() as u32;
    both.text.push_str(&stamp.text);
    both.glyphs.splice(
        0..0,
        stamp.glyphs.into_iter().map(|glyph| Glyph { text: glyph.text.start + shift..glyph.text.end + shift, ..glyph }),
    );
    assert_eq!(lay_out(&both).text, "the page's own text runs along\n\na stamp", "that of most glyphs first");
}

/// What is drawn on one page after the other, on one.
fn together(pages: Vec<PageGlyphs>) -> PageGlyphs {
    let mut all = PageGlyphs::default();
    for page in pages {
        let shift = all.text.len() as u32;
        all.text.push_str(&page.text);
        let moved = |glyph: Glyph| Glyph { text: glyph.text.start + shift..glyph.text.end + shift, ..glyph };
        all.glyphs.extend(page.glyphs.into_iter().map(moved));
    }
    all
}

#[test]
fn lines_of_a_scan_that_are_tilted_by_different_angles_are_read_from_top_to_bottom() {
    for degrees in [0.7, -0.7, 1.6] {
        let tilt = Vec2::from_angle(f64::to_radians(degrees));
        let level = Vec2::new(1.0, 0.0);
        let body = |lines: [&str; 2], y: f64| page(&[(lines[0], 0.0, y, 10.0), (lines[1], 0.0, y + 12.0, 10.0)], tilt);
        let heading = |text: &str, y: f64| page(&[(text, 0.0, y, 14.0)], level);
        let first = ["The first paragraph goes on for a long line of many words that", "stay together"];
        let second = ["The second one is as long as that, and a heading is above it so", "that all is read"];
        let scan =
            together(vec![heading("Ducks", 10.0), body(first, 40.0), heading("Geese", 100.0), body(second, 130.0)]);
        let expected = format!("Ducks\n\n{}\n\nGeese\n\n{}", first.join("\n"), second.join("\n"));
        assert_eq!(lay_out(&scan).text, expected, "tilted by {degrees} degrees");
    }
}

#[test]
fn a_long_line_that_is_tilted_within_a_frame_stays_a_line() {
    let tilt = Vec2::from_angle(f64::to_radians(1.4));
    let lines: Vec<String> = (0..4).map(|at| format!("line {at} {}", "of many words ".repeat(6).trim_end())).collect();
    let set: Vec<Set<'_>> = (0..4).map(|at| (lines[at].as_str(), 0.0, 50.0 + 12.0 * at as f64, 10.0)).collect();
    let scan = together(vec![page(&set[..1], tilt), page(&set[1..], Vec2::new(1.0, 0.0))]);
    assert_eq!(lay_out(&scan).text, lines.join("\n"));
}

#[test]
fn a_tilted_line_whose_words_differ_by_a_rounding_error_stays_a_line() {
    let tilt = f64::to_radians(1.4);
    let lines: Vec<String> = (0..4).map(|at| format!("line {at} {}", "of many words ".repeat(6).trim_end())).collect();
    let mut drawn = Vec::new();
    let mut begin = Point::new(0.0, 50.0);
    for (index, word) in lines[0].split_inclusive(' ').enumerate() {
        let direction = Vec2::from_angle(tilt + index as f64 * 1e-15);
        drawn.push(page(&[(word, begin.x, begin.y, 10.0)], direction));
        begin += direction * (word.len() as f64 * 5.0);
    }
    assert_ne!(drawn[0].glyphs[0].direction, drawn[1].glyphs[0].direction);
    let set: Vec<Set<'_>> = (1..4).map(|at| (lines[at].as_str(), 0.0, 50.0 + 12.0 * at as f64, 10.0)).collect();
    drawn.push(page(&set, Vec2::new(1.0, 0.0)));
    assert_eq!(lay_out(&together(drawn)).text, lines.join("\n"));
}

#[test]
fn text_that_runs_left_is_made_logical() {
    // This is how it is on the page, from left to right.
    let visual: String = "שלום עולם".chars().rev().collect();
    assert_eq!(laid(&[(&visual, 0.0, 10.0, 10.0)]), "שלום עולם");
    let letters: Vec<(String, f64)> =
        "שלום".chars().enumerate().map(|(at, letter)| (letter.to_string(), 100.0 - 5.0 * at as f64)).collect();
    let logical: Vec<Set<'_>> = letters.iter().map(|(letter, x)| (letter.as_str(), *x, 10.0, 10.0)).collect();
    assert_eq!(laid(&logical), "שלום", "drawn in its logical order");
}

#[test]
fn a_letter_that_another_font_draws_after_its_row_is_in_its_word() {
    let text = "الجامعة الدولية والعربية";
    let places: Vec<(String, f64)> =
        text.chars().enumerate().map(|(at, letter)| (letter.to_string(), 200.0 - 5.0 * at as f64)).collect();
    let (late, others): (Vec<_>, Vec<_>) = places.iter().partition(|(letter, _)| letter == "ة");
    let drawn: Vec<Set<'_>> = others.iter().chain(&late).map(|(letter, x)| (letter.as_str(), *x, 10.0, 10.0)).collect();
    assert_eq!(laid(&drawn), text);
}

#[test]
fn what_is_drawn_first_but_stands_last_is_read_last() {
    let text = laid(&[
        ("page 7", 100.0, 700.0, 10.0),
        ("the text of the page", 0.0, 50.0, 10.0),
        ("and its second line", 0.0, 62.0, 10.0),
    ]);
    assert_eq!(text, "the text of the page\nand its second line\n\npage 7");
}

#[test]
fn a_header_and_a_footer_that_are_drawn_first_stand_around_the_page() {
    let text = laid(&[
        ("the header of the page", 0.0, 10.0, 10.0),
        ("page 7", 100.0, 700.0, 10.0),
        ("the text of the page stands here", 0.0, 50.0, 10.0),
        ("and its second line", 0.0, 62.0, 10.0),
        ("and its third", 0.0, 74.0, 10.0),
    ]);
    assert_eq!(
        text,
        "the header of the page\n\nthe text of the page stands here\nand its second line\nand its third\n\npage 7"
    );
}

fn laid_with(boxes: &[Rect], set: &[Set<'_>]) -> String {
    let boxes = boxes.to_vec();
    lay_out(&PageGlyphs { boxes, ..page(set, Vec2::new(1.0, 0.0)) }).text
}

#[test]
fn boxes_beside_each_other_are_read_one_by_one() {
    let boxes = [Rect::new(-5.0, 30.0, 60.0, 80.0), Rect::new(65.0, 30.0, 140.0, 80.0)];
    let set = [
        ("A diagram", 0.0, 10.0, 10.0),
        ("Lake", 0.0, 44.0, 10.0),
        ("River", 75.0, 44.0, 10.0),
        ("name: text", 0.0, 58.0, 10.0),
        ("depth: 3", 0.0, 70.0, 10.0),
        ("flow: text", 75.0, 58.0, 10.0),
        ("length: 9", 75.0, 70.0, 10.0),
    ];
    let expected = "A diagram\n\nLake\nname: text\ndepth: 3\n\nRiver\nflow: text\nlength: 9";
    assert_eq!(laid_with(&boxes, &set), expected);
    // These boxes have shadows, and a frame of their own.
    let shadows = boxes.map(|own| own + Vec2::new(2.0, 2.0));
    let frame = [Rect::new(-20.0, 0.0, 200.0, 120.0)];
    assert_eq!(laid_with(&[&frame[..], &shadows, &boxes].concat(), &set), expected);
}

#[test]
fn a_box_around_a_column_of_a_table_takes_nothing_out_of_its_rows() {
    let rows = [["Name", "Count"], ["Duck", "200"], ["Goose", "11"]];
    let cells: Vec<Set<'_>> = (0..)
        .zip(rows)
        .flat_map(|(row, [name, count])| {
            let y = 10.0 + 14.0 * f64::from(row);
            [(name, 0.0, y, 10.0), (count, 100.0, y, 10.0)]
        })
        .collect();
    assert_eq!(laid_with(&[Rect::new(95.0, 0.0, 150.0, 60.0)], &cells), "Name Count\nDuck 200\nGoose 11");
}

#[test]
fn points_belong_to_numbers_and_begin_words() {
    let set = |before, after| laid(&[(before, 0.0, 10.0, 10.0), (after, 18.5, 10.0, 10.0)]);
    assert_eq!(set("462", ".9"), "462.9", "decimals below each other");
    assert_eq!(set("the", ".tex"), "the .tex");
    assert_eq!(set("and", ", so"), "and , so");
}

#[test]
fn lines_tell_where_they_stand() {
    let laid = lay_out(&page(
        &[("infan-", 0.0, 10.0, 10.0), ("try goes", 0.0, 22.0, 10.0), ("on", 0.0, 60.0, 10.0)],
        Vec2::new(1.0, 0.0),
    ));
    let lines: Vec<&str> = laid.lines.iter().map(|line| &laid.text[line.range.clone()]).collect();
    assert_eq!(lines, ["infan", "try goes", "on"]);
    let edges: Vec<(bool, bool)> = laid.lines.iter().map(|line| (line.first, line.last)).collect();
    assert_eq!(edges, [(true, false), (false, true), (true, true)]);
}
