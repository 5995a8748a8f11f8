use super::{Amount, Strict};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;

#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Outer {
    text: String,
    #[serde(default)]
    number: Option<u32>,
    #[serde(default)]
    flag: bool,
    #[serde(default)]
    inner: Option<Inner>,
    #[serde(default)]
    many: Vec<Inner>,
    #[serde(default)]
    by_name: BTreeMap<String, Inner>,
    #[serde(default)]
    any: Value,
    #[serde(default)]
    word: Option<Word>,
    #[serde(default)]
    time: Option<chrono::DateTime<chrono::Utc>>,
}

#[derive(Debug, PartialEq, Deserialize)]
struct Inner {
    a: i64,
    b: f64,
}

#[derive(Debug, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Word {
    OneWord,
    Other,
}

fn read(text: &str) -> Result<Outer, (String, String)> {
    let mut deserializer = serde_json::Deserializer::from_str(text);
    serde_path_to_error::deserialize(Strict::json(&mut deserializer, &Amount::of_bytes(0)))
        .map_err(|error| (error.path().to_string(), error.inner().to_string()))
}

#[test]
fn what_is_right_is_read_as_ever() {
    let value = json!({
        "text": "ä\n\u{1}", "number": 7, "flag": true, "inner": {"a": -1, "b": 2}, "many": [{"a": 1, "b": 0.5}],
        "by_name": {"x": {"a": 1, "b": 1.0}}, "any": [1, {"k": [null, "v"]}], "word": "one_word", "time": "2026-01-02T03:04:05Z"
    });
    let strict = read(&value.to_string()).expect("valid");
    assert_eq!(strict, serde_json::from_value(value).expect("valid"));
    assert_eq!(strict.word, Some(Word::OneWord));
}

#[test]
fn a_whole_number_may_have_a_fraction_of_zero() {
    let read = read(r#"{"text": "t", "number": 7.0, "many": [{"a": -2e3, "b": 1.0}]}"#).expect("valid");
    assert_eq!((read.number, read.many[0].a), (Some(7), -2000));
}

#[test]
fn a_number_is_read_exactly_also_with_all_the_digits_that_postgresql_writes() {
    for number in [f64::MAX, f64::MIN, 1e308, 5e-324, 0.1 + 0.2] {
        for written in [format!("{number:e}"), format!("{number}")] {
            let outer = read(&format!(r#"{{"text": "t", "any": [{written}], "inner": {{"a": 1, "b": {written}}}}}"#))
                .expect(&written);
            assert_eq!((&outer.any, outer.inner), (&json!([number]), Some(Inner { a: 1, b: number })), "{written}");
        }
    }
    assert!(read(r#"{"text": "t", "any": 1e309}"#).is_err());
}

#[test]
fn an_object_is_no_list_at_any_depth() {
    for (text, path) in [
        (r#"["text", 7]"#, "."),
        (r#"{"text": "t", "inner": [1, 2.0]}"#, "inner"),
        (r#"{"text": "t", "many": [{"a": 1, "b": 2}, [1, 2.0]]}"#, "many[1]"),
        (r#"{"text": "t", "by_name": {"x": [1, 2.0]}}"#, "by_name.x"),
    ] {
        let (named, said) = read(text).expect_err(text);
        assert!(named == path && said.contains("expected an object"), "{text}: {named}: {said}");
    }
}

#[test]
fn a_nul_is_refused_wherever_it_stands() {
    for (text, path) in [
        (r#"{"text": "a\u0000b"}"#, "text"),
        (r#"{"text": "t", "any": [0, {"k": ["\u0000"]}]}"#, "any[1].k[0]"),
        (r#"{"text": "t", "any": {"k\u0000": 1}}"#, "any"),
        (r#"{"text": "t", "by_name": {"\u0000": {"a": 1, "b": 2}}}"#, "by_name"),
    ] {
        let (named, said) = read(text).expect_err(text);
        assert!(named.starts_with(path) && said.contains("U+0000"), "{text}: {named}: {said}");
    }
}

#[test]
fn what_is_wrong_is_said_without_a_word_of_rust() {
    for (text, path, says) in [
        (r#"{"text": 7}"#, "text", "a string"),
        (r#"{"text": "t", "number": -1}"#, "number", "a whole number from 0 to 4294967295"),
        (r#"{"text": "t", "number": 4294967296}"#, "number", "a whole number from 0 to 4294967295"),
        (r#"{"text": "t", "number": 1.5}"#, "number", "a whole number from 0"),
        (r#"{"text": "t", "number": -1.0}"#, "number", "a whole number from 0"),
        (r#"{"text": "t", "number": 4294967296.0}"#, "number", "a whole number from 0"),
        (r#"{"text": "t", "number": 1e300}"#, "number", "a whole number from 0"),
        (r#"{"text": "t", "flag": "yes"}"#, "flag", "true or false"),
        (r#"{"text": "t", "flag": 1}"#, "flag", "true or false"),
        (r#"{"text": "t", "many": {}}"#, "many", "a list"),
        (r#"{"text": "t", "by_name": []}"#, "by_name", "an object"),
        (r#"{"text": "t", "inner": {"a": 1, "b": "x"}}"#, "inner.b", "a number"),
        (r#"{"text": "t", "word": "third"}"#, "word", "one_word"),
        (r#"{"text": "t", "word": "third"}"#, "word", "takes one_word, other, got `third`"),
        (r#"{"text": "t", "word": 3}"#, "word", "one of one_word, other"),
        (
            r#"{"text": "t", "time": "2020-01-01"}"#,
            "time",
            "with its offset, such as 2020-01-01T00:00:00Z, got `2020-01-01`",
        ),
        (r#"{"text": "t", "time": "2020-01-01\u0041"}"#, "time", "such as 2020-01-01T00:00:00Z"),
        (r#"{"text": "t", "inner": {"a": "x", "b": 1}}"#, "inner.a", "a whole number below 2^63"),
        (r#""text""#, ".", "an object"),
        ("null", ".", "an object"),
    ] {
        let (named, said) = read(text).expect_err(text);
        assert!(named == path && said.contains(says), "{text}: {named}: {said}");
        for word in ["struct", "u32", "i64", "f64", "bool", "enum", "variant identifier"] {
            assert!(!said.contains(word), "{text}: {said}");
        }
    }
}

#[test]
fn a_query_says_what_a_parameter_takes() {
    #[derive(Debug, Default, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    struct Query {
        limit: Option<u32>,
        flag: bool,
        text: String,
        word: Option<Word>,
        time: Option<chrono::DateTime<chrono::Utc>>,
    }
    let read = |text: &str| {
        let deserializer = serde_html_form::Deserializer::from_bytes(text.as_bytes());
        serde_path_to_error::deserialize::<_, Query>(Strict::text(deserializer))
            .map_err(|error| (error.path().to_string(), error.inner().to_string()))
    };
    let query = read("limit=3&flag=true&text=a%20b&word=other").expect("valid");
    assert_eq!((query.limit, query.flag, query.text.as_str(), query.word), (Some(3), true, "a b", Some(Word::Other)));
    for (text, path, says) in [
        ("limit=x", "limit", "takes a whole number from 0 to 4294967295"),
        ("limit=-1", "limit", "takes a whole number"),
        ("flag=maybe", "flag", "takes true or false"),
        ("text=a%00b", "text", "U+0000"),
        ("time=2020", "time", "such as 2020-01-01T00:00:00Z, got `2020`"),
        ("word=third", "word", "one_word"),
        ("colour=1", "colour", "unknown field `colour`"),
    ] {
        let (named, said) = read(text).expect_err(text);
        assert!(named == path && said.contains(says), "{text}: {named}: {said}");
    }
}
