use super::*;
use crate::{Heading, Page};

fn of(text: &str) -> Tables {
    tables(&Extraction { text: text.to_owned(), ..Extraction::default() })
}

fn drawn(rows: &[&[&str]], range: Range<usize>) -> Table {
    let rows: Vec<Vec<String>> = rows.iter().map(|row| row.iter().map(|cell| (*cell).to_owned()).collect()).collect();
    let has_header = names_columns(&rows);
    Table { ranges: vec![range], rule: TableRule::Lines, has_header, rows, parts: 1 }
}

#[test]
fn a_table_in_markdown_has_its_text_and_its_values() {
    let text = "Before\n\n| Pond | Ducks | Seen |\n| --- | ---: | --- |\n| Mill \\| lock | 1,204 | 2023-04-03 |\n| Quay |  | true |\n\nafter";
    let found = of(text);
    assert_eq!((found.tables.len(), &found.left_out), (1, &BTreeMap::new()));
    let table = &found.tables[0];
    assert_eq!(table.columns().unwrap(), ["Pond", "Ducks", "Seen"]);
    let values: Vec<_> = table.values().collect();
    let text_of = |text: &str| Some(Value::Text(text.to_owned()));
    let day = Some(Value::Date("2023-04-03T00:00:00".to_owned()));
    assert_eq!(values[0], [text_of("Mill | lock"), Some(Value::Number(1204.0)), day]);
    assert_eq!(values[1], [text_of("Quay"), None, Some(Value::Boolean(true))]);
    let content = table.content(text);
    assert!(content.starts_with("| Pond |") && content.ends_with("true |"), "{content}");
    assert_eq!(&text[table.span()], format!("{content}\n"));
}

#[test]
fn what_is_no_table_stays_text() {
    let code = "```\n| a | b |\n| - | - |\n| c | d |\n```";
    for text in
        ["| a |\n| - |\n| b |", "| a | b |\n| - | - |", "| a |  |\n| - | - |\n| b |  |", code, "a | b\nc | d", ""]
    {
        assert_eq!(of(text), Tables::default(), "{text}");
        assert!(!has_tables(text), "{text}");
    }
    let wide = format!("|{}\n|{}\n|{}", " a |".repeat(300), " - |".repeat(300), " b |".repeat(300));
    assert_eq!(of(&wide).left_out, BTreeMap::from([("columns", 1)]));
    let long = format!("| a | b |\n| - | - |\n{}", "| c | d |\n".repeat(MOST_ROWS));
    assert_eq!(of(&long).left_out, BTreeMap::from([("rows", 1)]));
    // A bar is a row, and is as wide as its table.
    let bars = format!("|{}\n|{}\n{}", " a |".repeat(200), " - |".repeat(200), "|\n".repeat(MOST_ROWS - 1));
    let hostile = bars.repeat(20);
    assert!(of(&hostile).tables.is_empty(), "what is filled up counts");
}

#[test]
fn no_more_cells_are_made_than_are_kept() {
    // A table of few bytes and many cells, which are filled up.
    let table = format!("|{}\n|{}\n| b | c |\n{}\n", " a |".repeat(200), " - |".repeat(200), "|\n".repeat(300));
    let text = table.repeat(100);
    let made = of_markdown(&text).filter(Result::is_ok).count();
    assert!(made > 0 && made * 302 * 200 <= MOST_CELLS, "{made}");
    let found = of(&text);
    assert_eq!((found.tables.len(), &found.left_out), (made, &BTreeMap::from([("bytes", 100 - made)])));
}

#[test]
fn a_first_row_names_columns_if_each_but_the_first_has_a_name_of_its_own() {
    let rows = |names: &[&str]| vec![names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()];
    for names in [&["Pond", "Ducks"][..], &["", "Ducks", "Geese"], &["", "2019", "2020"]] {
        assert!(names_columns(&rows(names)), "{names:?}");
    }
    for none in [&["Pond", ""][..], &["Ducks", "Ducks"], &["14", "17"], &["", ""], &[]] {
        assert!(!names_columns(&rows(none)), "{none:?}");
    }
}

#[test]
fn numbers_are_read_as_print_writes_them() {
    for (cell, number) in [("12,345.5", Some(12345.5)), ("\u{2212}7", Some(-7.0)), ("1,23", None), ("12 %", None)] {
        let expected = number.map_or_else(|| Value::Text(cell.to_owned()), Value::Number);
        assert_eq!(value(cell), expected, "{cell}");
    }
}

#[test]
fn a_table_of_many_pages_goes_on_as_far_as_a_table_may() {
    let (mut read, page) = (Extraction::default(), "Year Ducks\n2019 14\n\n");
    for number in 1..=3 {
        let start = read.text.len();
        read.text.push_str(page);
        read.pages.push(Page { number, start, end: read.text.len() });
        let mut table = drawn(&[&["Year", "Ducks"], &["2019", "14"]], start..start + 18);
        table.rows.resize(MOST_ROWS / 2, vec!["2020".to_owned(), "17".to_owned()]);
        read.tables.push(table);
    }
    let found = tables(&read);
    assert_eq!(found.tables.iter().map(|table| table.parts).collect::<Vec<_>>(), [2, 1], "{:?}", found.left_out);
    assert!(found.left_out.is_empty() && found.tables.iter().all(|table| table.rows[0] == ["Year", "Ducks"]));
}

#[test]
fn a_caption_between_two_pages_is_that_of_another_table() {
    let shown = "Year Ducks\n2019 14";
    for (between, count) in
        [("7", 1), ("Table 2: Geese", 2), ("Tab. 3", 2), ("Table 1 (continued)", 1), ("Tables and 4 chairs", 1)]
    {
        let text = format!("{shown}\n\n{between}\n\n{shown}");
        let second = text.len() - shown.len();
        let page = |number, start, end| Page { number, start, end };
        let pages = vec![page(1, 0, second - 2), page(2, second, text.len())];
        let table = |range| drawn(&[&["Year", "Ducks"], &["2019", "14"]], range);
        let found = vec![table(0..shown.len()), table(second..text.len())];
        let read = Extraction { text, pages, tables: found, ..Extraction::default() };
        assert_eq!(tables(&read).tables.len(), count, "{between}");
    }
}

#[test]
fn a_header_that_comes_again_on_the_next_page_continues_its_table() {
    let text = "Year Ducks\n2019 14\n2020 17\n\n7\n\nYear Ducks\n2021 22\nend";
    let second = text.rfind("Year").unwrap();
    let mut read = Extraction { text: text.to_owned(), ..Extraction::default() };
    let end = second - 2;
    read.pages = vec![Page { number: 1, start: 0, end }, Page { number: 2, start: second, end: text.len() }];
    read.tables = vec![
        drawn(&[&["Year", "Ducks"], &["2019", "14"], &["2020", "17"]], 0..26),
        drawn(&[&["Year", "Ducks"], &["2021", "22"]], second..second + 18),
    ];
    let found = tables(&read).tables;
    assert_eq!((found.len(), found[0].parts, found[0].rows.len()), (1, 2, 4));
    assert_eq!(found[0].ranges, [0..26, second..second + 18]);
    assert_eq!(found[0].content(text), "| Year | Ducks |\n| --- | --- |\n| 2019 | 14 |\n| 2020 | 17 |\n| 2021 | 22 |");
    // A section that begins between them has a table of its own.
    let mut divided = read.clone();
    divided.headings = vec![Heading { level: 1, title: "7".to_owned(), start: 28 }];
    assert_eq!((tables(&divided).tables.len(), tables(&divided).left_out.len()), (2, 0));
    // Another header is another table, and so is one on the same page.
    let mut other = read.clone();
    other.tables[1].rows[0][1] = "Geese".to_owned();
    assert_eq!(tables(&other).tables.len(), 2);
    read.pages = vec![Page { number: 1, start: 0, end: text.len() }];
    assert_eq!(tables(&read).tables.len(), 2);
    // A section that begins within it says that it is none.
    read.headings = vec![Heading { level: 1, title: "2020".to_owned(), start: 19 }];
    assert_eq!(tables(&read).left_out, BTreeMap::from([("heading", 1)]));
}
