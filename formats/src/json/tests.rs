use super::*;
use crate::{detect, sections};
use proptest::prelude::*;
use std::io::Cursor;

fn of(json: &str) -> Extraction {
    extract(Cursor::new(json), &Limits::default()).unwrap()
}

fn detected(bytes: impl AsRef<[u8]>) -> Option<Format> {
    detect(&mut Cursor::new(bytes.as_ref())).unwrap().format
}

const ORCHARD: &str = include_str!("../../tests/files/orchard-survey.json");

#[test]
fn a_value_stands_under_its_keys_and_nothing_is_punctuation() {
    let read = of(ORCHARD);
    assert_eq!(detected(ORCHARD), Some(Format::Json));
    for kept in [
        "- title: Survey of the old orchards",
        "# station\n\n- name: Mill pond\n\nstation.position\n- lat: 52.5170\n- lon: 13.3889",
        "# notes\n\n- The quince at the wall",
        "notes:\n\nLines of a note:\n## Not a heading\n\nThe redstart",
        "# trees\n\ntrees[0]\nid: B-001; kind: pear; height: 7.50; tags: old, hollow",
        "trees[1]\nid: B-002; kind: plum; height: 1.2e1; owner.name: Żaneta Vörösmarty; owner.since: 1998",
        "# licence\n\n- licence: CC-BY-4.0",
    ] {
        let escaped = kept.replace("\n## Not", "\n\\## Not");
        assert!(read.text.contains(&escaped), "{kept}: {}", read.text);
    }
    assert!(!read.text.contains(['{', '}', '"']), "{}", read.text);
    let titles: Vec<_> = read.headings.iter().map(|heading| heading.title.as_str()).collect();
    assert_eq!(titles, ["station", "trees", "notes", "licence"]);
    assert_eq!((read.headings_from.as_deref(), sections(&read).len()), (Some("json"), 4));
}

#[test]
fn numbers_and_keys_that_come_twice_are_kept() {
    let read = of(r#"{"a": 1.10, "a": 12345678901234567890.5, "b": [true, null, "x"], "c": {}, "d": []}"#);
    assert_eq!(read.text, "- a: 1.10\n- a: 12345678901234567890.5\n- b: true, null, x");
}

#[test]
fn lines_of_json_are_records() {
    let lines =
        "{\"name\":\"duck\",\"at\":{\"place\":\"mill\"}}\n{\"name\":\"heron\",\"seen\":[{\"day\":1},{\"day\":2}]}\n";
    assert_eq!(detected(lines), Some(Format::Json));
    let read = of(lines);
    assert_eq!(read.text, "name: duck; at.place: mill\n\nname: heron\n\nseen[0]\nday: 1\n\nseen[1]\nday: 2");
    assert_eq!(read.facts["lines"], 2);
}

#[test]
fn a_path_is_said_again_in_a_long_paragraph() {
    let members: Vec<_> = (0..100).map(|index| format!("\"key{index}\": \"some value {index}\"")).collect();
    let json = format!("{{\"deep\": {{\"part\": {{{}}}}}}}", members.join(","));
    let read = of(&json);
    assert!(read.text.matches("deep.part\n").count() > 4, "{}", read.text);
    assert!(read.text.split("\n\n").all(|paragraph| paragraph.len() < 600), "{}", read.text);
}

#[test]
fn many_numbers_are_counted_and_encoded_bytes_left_out() {
    let numbers: Vec<_> = (0..5000).map(|number| format!("[{number}]")).collect();
    let bytes = "iVBORw0KGgo".repeat(100);
    let read = of(&format!(
        "{{\"line\": [{}], \"image\": \"data:image/png;base64,{bytes}\", \"raw\": \"{bytes}\"}}",
        numbers.join(",")
    ));
    assert!(read.text.contains(", and 4000 more numbers") && !read.text.contains("iVBOR"), "{}", read.text);
    assert_eq!(read.facts["numbers_left_out"], 4000);
    assert!(read.text.contains("raw: (1100 characters of encoded data are left out)"), "{}", read.text);
}

#[test]
fn pages_in_values_are_read_as_what_they_show() {
    let read = of(
        r#"[{"id": 7, "body": "<p>The <b>heron</b> waits &amp; <a href='https://example.org/x'>fishes</a>.</p>\n<ul><li>one</li></ul>",
        "code": "if a <b and c> d", "short": "<div class='x'>It is <i>deep</i>.</div>"}]"#,
    );
    assert!(read.text.contains("The **heron** waits & [fishes](https://example.org/x)."), "{}", read.text);
    assert!(read.text.contains("one") && read.text.contains("deep"), "{}", read.text);
    assert!(read.text.contains("code: if a <b and c> d"), "{}", read.text);
    for gone in ["<p>", "<li>", "&amp;", "<i>", "class"] {
        assert!(!read.text.contains(gone), "{gone}: {}", read.text);
    }
    // A value that is nested too deep stays as it is, and so does the rest of the file.
    let deep = format!("{}x{}", "<div>".repeat(600), "</div>".repeat(600));
    let read = of(&format!(r#"{{"menu": "<nav>Ponds</nav>", "deep": "{deep}", "last": "heron"}}"#));
    for shown in ["menu: Ponds", deep.as_str(), "last: heron"] {
        assert!(read.text.contains(shown), "{shown}: {}", read.text);
    }
}

#[test]
fn what_only_looks_like_json_stays_text() {
    for text in [
        "[a link](b.html) and words",
        "{ this is no JSON }",
        "{\"a\": 1,}",
        "// settings\n{\"a\": 1}",
        "{\"a\": NaN}",
        "[1] A footnote\n[2] Another\n",
        "{\"a\": \"cut of",
        "\"a\"",
        "42",
        "",
    ] {
        assert_eq!(detected(text), Some(Format::Text), "{text}");
    }
    let late = format!("[{}\"a\" \"b\"]", "\"some words\",".repeat(20_000));
    assert_eq!(detected(&late), Some(Format::Text));
    assert_eq!(detected(late.replace("\"a\" ", "")), Some(Format::Json));
}

#[test]
fn every_encoding_of_text_is_read() {
    let text = "{\"name\": \"Żaneta\"}";
    let wide: Vec<u8> = format!("\u{FEFF}{text}").encode_utf16().flat_map(u16::to_le_bytes).collect();
    let large: Vec<u8> = text.chars().flat_map(|character| u32::from(character).to_le_bytes()).collect();
    assert_eq!(detected(large), Some(Format::Text));
    for bytes in [text.as_bytes().to_vec(), format!("\u{FEFF}{text}").into_bytes(), wide] {
        assert_eq!(detected(&bytes), Some(Format::Json));
        assert_eq!(extract(Cursor::new(bytes), &Limits::default()).unwrap().text, "- name: Żaneta");
    }
}

#[test]
fn what_is_too_much_is_refused_by_name() {
    let deep = format!("{}{}", "[".repeat(1000), "]".repeat(1000));
    assert_eq!(extract(Cursor::new(deep), &Limits::default()).unwrap_err().limit(), Some(Limit::XmlDepth));
    let limits = Limits { text_bytes: 100, ..Limits::default() };
    assert_eq!(extract(Cursor::new(ORCHARD), &limits).unwrap_err().limit(), Some(Limit::TextBytes));
    let limits = Limits { input_bytes: 100, ..Limits::default() };
    assert_eq!(extract(Cursor::new(ORCHARD), &limits).unwrap_err().limit(), Some(Limit::InputBytes));
    assert_eq!(extract(Cursor::new("{\"a\""), &Limits::default()).unwrap_err().code(), "corrupt");
}

#[test]
fn many_keys_make_no_more_headings_than_allowed() {
    let members: Vec<_> = (0..2000).map(|index| format!("\"key{index}\": {{\"value\": {index}}}")).collect();
    let read = of(&format!("{{{}}}", members.join(",")));
    assert_eq!(read.headings.len(), 500);
    assert!(read.text.contains("key1999\n- value: 1999"), "{}", &read.text[read.text.len() - 200..]);
}

fn any_json() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        "[a-z #|\n-]{0,300}".prop_map(Into::into),
        Just(serde_json::Value::Null),
    ];
    leaf.prop_recursive(6, 60, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Into::into),
            prop::collection::vec(("[a-z.]{0,10}", inner), 0..6)
                .prop_map(|members| serde_json::Value::Object(members.into_iter().collect())),
        ]
    })
}

/// Every word of the texts, and every key over a value.
fn words(value: &serde_json::Value, all: &mut Vec<String>) {
    match value {
        serde_json::Value::String(text) => all.extend(text.split_whitespace().map(str::to_owned)),
        serde_json::Value::Number(number) => all.push(number.to_string()),
        serde_json::Value::Array(values) => values.iter().for_each(|value| words(value, all)),
        serde_json::Value::Object(members) => members.values().for_each(|value| words(value, all)),
        _ => {}
    }
}

proptest! {
    #[test]
    fn every_word_is_in_the_text_and_headings_are_where_they_say(value in any_json()) {
        let json = serde_json::json!([value]).to_string();
        let read = of(&json);
        let mut all = Vec::new();
        words(&value, &mut all);
        for word in all {
            prop_assert!(read.text.contains(&word), "{word}: {}", read.text);
        }
        let wrapped = of(&serde_json::json!({"a": value, "b": {"c": "d"}}).to_string());
        for heading in &wrapped.headings {
            prop_assert!(wrapped.text[heading.start..].starts_with("# "));
        }
    }
}
