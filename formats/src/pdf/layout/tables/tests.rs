use crate::{
    Table, TableRule,
    pdf::layout::{
        lay_out,
        tests::{LEFT, RIGHT, Set, page},
    },
};
use kurbo::{Rect, Vec2};

fn tables(set: &[Set<'_>], rulings: Vec<Rect>) -> Vec<Table> {
    let mut page = page(set, Vec2::new(1.0, 0.0));
    page.rulings = rulings;
    lay_out(&page).tables
}

/// Rows of text, the cells of each at these places.
fn set<'t>(rows: &[&[&'t str]], places: &[f64]) -> Vec<Set<'t>> {
    let row = |(index, cells): (usize, &&[&'t str])| {
        let y = 12.0 + 15.0 * index as f64;
        cells.iter().zip(places).filter(|(cell, _)| !cell.is_empty()).map(|(cell, x)| (*cell, *x, y, 10.0)).collect()
    };
    rows.iter().enumerate().map(row).collect::<Vec<Vec<Set<'t>>>>().concat()
}

/// The lines of a grid: down at `xs`, across every 15 points.
fn grid(xs: &[f64], rows: usize) -> Vec<Rect> {
    let (left, right, bottom) = (xs[0], xs[xs.len() - 1], 15.0 * rows as f64);
    let across = (0..=rows).map(|row| Rect::new(left, 15.0 * row as f64, right, 15.0 * row as f64));
    across.chain(xs.iter().map(|x| Rect::new(*x, 0.0, *x, bottom))).collect()
}

const COUNTS: &[&[&str]] = &[&["Pond", "Ducks", "Seen by"], &["Mill lock", "14", "Ada"], &["Quay", "", "Bert and Cy"]];
const PLACES: [f64; 3] = [5.0, 65.0, 125.0];
const BORDERS: [f64; 4] = [0.0, 60.0, 120.0, 200.0];

#[test]
fn lines_between_cells_make_a_table() {
    let found = tables(&set(COUNTS, &PLACES), grid(&BORDERS, 3));
    assert_eq!(found.len(), 1);
    assert_eq!((&found[0].rows, found[0].rule, found[0].has_header), (&rows(COUNTS), TableRule::Lines, true));
    // It is all of the page's text.
    let text = lay_out(&page(&set(COUNTS, &PLACES), Vec2::new(1.0, 0.0))).text;
    assert_eq!((found[0].ranges.len(), found[0].span()), (1, 0..text.len()));
    // Nothing but a frame is drawn, and there are too few numbers to tell.
    let frame = vec![Rect::new(0.0, 0.0, 200.0, 0.0), Rect::new(0.0, 45.0, 200.0, 45.0)];
    let sides = vec![Rect::new(0.0, 0.0, 0.0, 45.0), Rect::new(200.0, 0.0, 200.0, 45.0)];
    assert_eq!(tables(&set(COUNTS, &PLACES), sides.clone()), []);
    let framed = tables(&set(COUNTS, &PLACES), [frame, sides].concat());
    assert_eq!(framed.iter().map(|table| table.rule).collect::<Vec<_>>(), [TableRule::Alignment]);
}

fn rows(of: &[&[&str]]) -> Vec<Vec<String>> {
    of.iter().map(|row| row.iter().map(|cell| (*cell).to_owned()).collect()).collect()
}

#[test]
fn a_cell_may_span_columns_and_hold_several_lines() {
    let mut lines = grid(&BORDERS, 3);
    // The first row has no line between its second and its third column.
    lines.retain(|line| line.x0 != 120.0);
    lines.push(Rect::new(120.0, 15.0, 120.0, 45.0));
    // Nothing is drawn between the last two rows of the first column.
    lines.retain(|line| line.y0 != 30.0 || line.y1 != 30.0);
    lines.push(Rect::new(60.0, 30.0, 200.0, 30.0));
    let text = [&["Pond", "Counts"][..], &["Mill", "14", "7"], &["lock", "15", "8"]];
    let found = tables(&set(&text, &PLACES), lines);
    let expected: &[&[&str]] = &[&["Pond", "Counts", ""], &["Mill lock", "14", "7"], &["", "15", "8"]];
    assert_eq!(found.iter().map(|table| &table.rows).collect::<Vec<_>>(), [&rows(expected)]);
}

#[test]
fn a_few_boxes_of_which_one_is_empty_are_a_drawing() {
    let of = |text: &[&[&str]]| tables(&set(text, &PLACES), grid(&BORDERS[..3], text.len())).len();
    assert_eq!(of(&[&["Mandatory", "Optional"], &["Optional", ""]]), 0);
    assert_eq!(of(&[&["Mandatory", "Optional"], &["Optional", "None"]]), 1);
    assert_eq!(of(&[&["", "Ducks"], &["Mill", "14"]]), 1, "the corner of a table");
    assert_eq!(of(&[&["Pond", "Ducks"], &["Mill", "14"], &["Lock", ""], &["Quay", "3"]]), 1, "four rows");
}

#[test]
fn cells_below_each_other_make_a_table_if_they_are_numbers() {
    let text: &[&[&str]] = &[
        &["Model", "Recall", "Time"],
        &["", "of all", "in s"],
        &["OTSL", "0.965", "2.73"],
        &["HTML", "0.969", "5.39"],
        &["Both", "—", "4.00"],
    ];
    let found = tables(&set(text, &PLACES), Vec::new());
    let expected: &[&[&str]] = &[
        &["Model", "Recall of all", "Time in s"],
        &["OTSL", "0.965", "2.73"],
        &["HTML", "0.969", "5.39"],
        &["Both", "—", "4.00"],
    ];
    assert_eq!(found.len(), 1);
    assert_eq!((&found[0].rows, found[0].rule, found[0].has_header), (&rows(expected), TableRule::Alignment, true));
}

#[test]
fn numbers_of_narrow_columns_stay_apart() {
    let numbers: &[&[&str]] =
        &[&["", "", ""], &["2019", "1203", "1180"], &["2020", "1250", "1199"], &["2021", "1340", "1207"]];
    // The names are set to the right as the numbers are, which are four tenths of their size apart.
    let names = [("Year", 5.0, 12.0, 10.0), ("Q1", 39.0, 12.0, 10.0), ("Q2", 63.0, 12.0, 10.0)];
    let found = tables(&[names.to_vec(), set(numbers, &[5.0, 29.0, 53.0])].concat(), Vec::new());
    let expected = [&[&["Year", "Q1", "Q2"][..]], &numbers[1..]].concat();
    assert_eq!(found.iter().map(|table| &table.rows).collect::<Vec<_>>(), [&rows(&expected)]);
    // Thousands with a blank between them are one number, in print and on a typewriter, whose blank is as wide as a digit.
    let thousands: &[&[&str]] = &[
        &["Pond", "Count", "", "Boats"],
        &["Mill", "1", "203", "12"],
        &["Lock", "1", "250", "7"],
        &["Quay", "1", "340", "9"],
    ];
    let expected: &[&[&str]] =
        &[&["Pond", "Count", "Boats"], &["Mill", "1 203", "12"], &["Lock", "1 250", "7"], &["Quay", "1 340", "9"]];
    for behind in [72.5, 75.0] {
        let found = tables(&set(thousands, &[5.0, 65.0, behind, 125.0]), Vec::new());
        assert_eq!(found.iter().map(|table| &table.rows).collect::<Vec<_>>(), [&rows(expected)], "{behind}");
    }
}

#[test]
fn years_name_columns() {
    let text: &[&[&str]] = &[&["", "2019", "2020"], &["Ducks", "14", "17"], &["Geese", "3", "5"]];
    let found = tables(&set(text, &PLACES), Vec::new());
    assert_eq!(found.iter().map(|table| (&table.rows, table.has_header)).collect::<Vec<_>>(), [(&rows(text), true)]);
    assert_eq!(tables(&set(&text[1..], &PLACES), Vec::new()), [], "too few rows, and nothing names them");
}

#[test]
fn what_stands_around_a_table_is_not_in_it() {
    let text: &[&[&str]] = &[
        &["Table 1: what the models do"],
        &["Model", "Recall", "Time"],
        &["OTSL", "0.965", "2.73"],
        &["HTML", "0.969", "5.39"],
        &["As can be seen, they are alike."],
    ];
    let glyphs = page(&set(text, &PLACES), Vec2::new(1.0, 0.0));
    let laid = lay_out(&glyphs);
    assert_eq!(laid.tables.len(), 1);
    let texts: Vec<&str> = laid.tables[0].ranges.iter().map(|range| &laid.text[range.clone()]).collect();
    assert_eq!(texts.concat(), "Model Recall Time\nOTSL 0.965 2.73\nHTML 0.969 5.39");
    assert!(laid.is_in_table(laid.text.find("OTSL").unwrap()) && !laid.is_in_table(0));
}

#[test]
fn what_only_stands_in_columns_is_no_table() {
    let contents: &[&[&str]] = &[&["Begin", "1"], &["Middle", "4"], &["Later", "9"], &["Index", "12"]];
    let form: &[&[&str]] = &[&["Name:", "Ada"], &["Born:", "1815"], &["Town:", "London"], &["Rooms:", "14"]];
    let list: &[&[&str]] = &[&["1.", "300 g flour"], &["2.", "200 g sugar"], &["3.", "100 g butter"]];
    let words: &[&[&str]] = &[&["Pond", "Warden"], &["Mill", "Ada"], &["Quay", "Bert"]];
    let ticks: &[&[&str]] = &[&["10", "20", "30"], &["11", "21", "31"], &["12", "22", "32"]];
    let listing: &[&[&str]] = &[&["1", "let a"], &["2", "let b"], &["3", "let c"], &["4", "end"]];
    for text in [contents, form, list, words, ticks, listing] {
        assert_eq!(tables(&set(text, &PLACES), Vec::new()), [], "{text:?}");
    }
    let prose: Vec<Vec<&str>> = LEFT.iter().zip(RIGHT).map(|(left, right)| vec![*left, right]).collect();
    let prose: Vec<&[&str]> = prose.iter().map(Vec::as_slice).collect();
    assert_eq!(tables(&set(&prose, &[0.0, 160.0]), Vec::new()), []);
    assert_eq!(tables(&set(&prose, &[0.0, 160.0]), grid(&[-5.0, 150.0, 320.0], 1)), [], "one row");
}

#[test]
fn a_long_page_is_a_table_only_where_lines_say_so() {
    let row: &[&str] = &["one word", "another one"];
    let many = vec![row; 5_000];
    assert_eq!(tables(&set(&many, &[0.0, 100.0]), Vec::new()), []);
    let line = |at: u32| Rect::new(0.0, f64::from(at) * 9.0, 100.0, f64::from(at) * 9.0);
    assert_eq!(tables(&set(&many[..100], &[0.0, 100.0]), (0..4_000).map(line).collect()).len(), 1);
}
