//! docx: headings, lists, tables, tracked changes.

use super::*;

#[test]
fn structure_is_that_of_the_references() {
    for entry in corpus("").into_iter().filter(|entry| entry.detector == "docx" && entry.expect["headings"].is_array())
    {
        let read = entry.extract().unwrap_or_else(|error| panic!("{}: {error}", entry.name));
        let expect = &entry.expect;
        let headings: Vec<_> =
            read.headings.iter().map(|heading| (u64::from(heading.level), heading.title.clone())).collect();
        let expected: Vec<_> = expect["headings"]
            .as_array()
            .unwrap()
            .iter()
            .map(|heading| (heading["level"].as_u64().unwrap(), heading["text"].as_str().unwrap().to_owned()))
            .collect();
        assert_eq!(headings, expected, "{}", entry.name);
        for (heading, expected) in read.headings.iter().zip(expect["headings"].as_array().unwrap()) {
            let marks = "#".repeat(expected["atx"].as_u64().unwrap() as usize);
            assert!(read.text[heading.start..].starts_with(&format!("{marks} {}", heading.title)), "{}", entry.name);
        }
        let lines =
            |starts: &str| read.text.lines().filter(|line| line.trim_start().starts_with(starts)).count() as u64;
        if let Some(list_paragraphs) = expect["list_paragraphs"].as_u64() {
            println!("{}: {} list items, reference {list_paragraphs}", entry.name, lines("- "));
        }
        if let Some(tables) = expect["top_level_tables"].as_array() {
            let delimiters: Vec<_> = read
                .text
                .lines()
                .filter(|line| line.starts_with("| ---"))
                .map(|line| line.matches("---").count() as u64)
                .collect();
            let columns: Vec<_> = tables.iter().map(|table| table["grid_cols"].as_u64().unwrap()).collect();
            assert_eq!(delimiters, columns, "{}", entry.name);
            let rows: u64 = tables.iter().map(|table| table["rows"].as_u64().unwrap()).sum();
            assert_eq!(lines("|"), rows + tables.len() as u64, "{}", entry.name);
        }
        let text = bare(&read.text);
        let contains = |wanted: &Value| text.contains(&bare(wanted.as_str().unwrap()));
        for key in ["tracked_insertions_must_appear", "must_contain"] {
            assert!(expect[key].as_array().into_iter().flatten().all(contains), "{}: {key}", entry.name);
        }
        assert!(
            !expect["tracked_deletions_must_not_appear"].as_array().into_iter().flatten().any(contains),
            "{}",
            entry.name
        );
    }
}
