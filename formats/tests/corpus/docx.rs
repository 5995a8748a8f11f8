//! docx: headings, lists, tables, tracked changes.

use super::*;

/// The references count every paragraph that is numbered by its own properties. Not all of those show as list items,
/// and items may be numbered by their style alone. This lists for each file how many of theirs are not items, and how
/// many items they miss.
const OTHER_COUNTS: [(&str, u64, u64, &str); 5] = [
    ("docx/word_sample.docx", 2, 0, "two are numbered by list 0, which is none"),
    ("docx/unit_test_headers_numbered.docx", 2, 0, "two are headings"),
    ("docx/docx_lists.docx", 0, 4, "four are numbered by their style"),
    ("docx/textbox.docx", 5, 0, "text boxes are counted in both branches of their alternate"),
    ("docx/delins.docx", 3, 0, "three have no text"),
];

#[test]
fn structure_is_that_of_the_references() {
    for entry in corpus("").into_iter().filter(|entry| entry.detector == "docx" && entry.expect["headings"].is_array())
    {
        let read = entry.extract().unwrap_or_else(|error| panic!("{}: {error}", entry.name));
        let (name, expect) = (&entry.name, &entry.expect);
        let headings: Vec<_> =
            read.headings.iter().map(|heading| (u64::from(heading.level), heading.title.clone())).collect();
        let expected: Vec<_> = expect["headings"]
            .as_array()
            .unwrap()
            .iter()
            .map(|heading| (heading["level"].as_u64().unwrap(), heading["text"].as_str().unwrap().to_owned()))
            .collect();
        assert_eq!(headings, expected, "{name}");
        for (heading, expected) in read.headings.iter().zip(expect["headings"].as_array().unwrap()) {
            let marks = "#".repeat(expected["atx"].as_u64().unwrap() as usize);
            assert!(read.text[heading.start..].starts_with(&format!("{marks} {}", heading.title)), "{name}");
        }
        let lines =
            |starts: &str| read.text.lines().filter(|line| line.trim_start().starts_with(starts)).count() as u64;
        if let Some(tables) = expect["top_level_tables"].as_array() {
            let delimiters: Vec<_> = read
                .text
                .lines()
                .filter(|line| line.starts_with("| ---"))
                .map(|line| line.matches("---").count() as u64)
                .collect();
            let columns: Vec<_> = tables.iter().map(|table| table["grid_cols"].as_u64().unwrap()).collect();
            assert_eq!(delimiters, columns, "{name}");
            let rows: u64 = tables.iter().map(|table| table["rows"].as_u64().unwrap()).sum();
            assert_eq!(lines("|"), rows + tables.len() as u64, "{name}");
        }
        if let Some(paragraphs) = expect["body_paragraphs_nonempty"].as_u64() {
            assert_eq!(read.facts["docx.paragraphs"], paragraphs, "{name}");
        }
        if let Some(numbered) = expect["list_paragraphs"].as_u64() {
            let other = OTHER_COUNTS.iter().find(|other| other.0 == name);
            let (no_items, by_style) = other.map_or((0, 0), |other| (other.1, other.2));
            assert_eq!(lines("- "), numbered - no_items + by_style, "{name}: {:?}", other.map(|other| other.3));
        }
        if !expect["has_comments"].is_null() {
            assert_eq!(read.facts.contains_key("docx.comments"), expect["has_comments"], "{name}");
            assert_eq!(read.facts["docx.images"].as_u64() > Some(0), expect["has_images"], "{name}");
        }
        let text = bare(&read.text);
        let contains = |wanted: &Value| text.contains(&bare(wanted.as_str().unwrap()));
        for key in ["tracked_insertions_must_appear", "must_contain"] {
            assert!(expect[key].as_array().into_iter().flatten().all(contains), "{name}: {key}");
        }
        let deleted = expect["tracked_deletions_must_not_appear"].as_array().into_iter().flatten();
        let changes = read.facts.get("docx.tracked_changes").map(|changes| bare(&changes.to_string()));
        for text in deleted {
            assert!(!contains(text), "{name}: {text}");
            let told = Value::from(bare(text.as_str().unwrap())).to_string();
            assert!(changes.as_ref().unwrap().contains(told.trim_matches('"')), "{name}: {text} in {changes:?}");
        }
    }
}

#[test]
fn hostile_files_end_by_their_limit_or_code() {
    let expected = [
        ("made/bomb_document_xml.docx", "limit_exceeded", Some(Limit::ZipRatio)),
        ("made/deep_nesting.docx", "limit_exceeded", Some(Limit::XmlDepth)),
        ("made/billion_laughs.docx", "corrupt", None),
        ("made/truncated.docx", "corrupt", None),
        ("made/bad_deflate.docx", "corrupt", None),
        ("made/no_main_part.docx", "corrupt", None),
    ];
    for entry in corpus("made/").into_iter().filter(|entry| entry.name.ends_with(".docx")) {
        if entry.expect["expected_error"].is_null() {
            continue;
        }
        let (_, code, limit) = expected.iter().find(|expected| expected.0 == entry.name).unwrap();
        for error in [
            extract(Format::Docx, entry.open(), &Limits::default()).unwrap_err(),
            probe(Format::Docx, entry.open(), &Limits::default()).unwrap_err(),
        ] {
            assert_eq!((error.code(), error.limit(), error.is_permanent()), (*code, *limit, true), "{}", entry.name);
        }
    }
}

#[test]
fn a_locked_document_is_opened_by_its_password_alone() {
    for entry in corpus("ole2/").into_iter().filter(|entry| entry.name.ends_with("example_password.docx")) {
        let limits = Limits::default();
        let with = |password: &str| {
            let password = Secret::new(password);
            extract(Format::Ole2, entry.open(), Access { password: Some(&password), ..Access::from(&limits) })
        };
        let read = with("Password1234_").unwrap();
        assert!(read.text.chars().any(char::is_alphabetic), "{}", read.text);
        assert_eq!(with("Password1234").unwrap_err(), FormatError::Encrypted { format: Format::Ole2 });
    }
}
