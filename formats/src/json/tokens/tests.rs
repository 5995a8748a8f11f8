use super::*;
use proptest::prelude::*;

fn all(json: &str) -> Result<Vec<Token>, Fault> {
    let mut tokens = Tokens::new(json.as_bytes(), &Limits { xml_depth: 50, ..Limits::default() });
    let mut all = Vec::new();
    while let Some(token) = tokens.next()? {
        all.push(token);
    }
    Ok(all)
}

#[test]
fn numbers_stay_as_written_and_escapes_become_characters() {
    let tokens =
        all(r#"{"a":[1.50,-0,1E+9,123456789012345678901234567890],"é\u00e9\ud83e\udd86\ud800\n\ud800\u0041":null}"#);
    let tokens = tokens.unwrap();
    let numbers = tokens.iter().filter_map(|token| match token {
        Token::Number(number) => Some(number.as_str()),
        _ => None,
    });
    assert_eq!(numbers.collect::<Vec<_>>(), ["1.50", "-0", "1E+9", "123456789012345678901234567890"]);
    assert_eq!(tokens[8], Token::Key("éé🦆\u{FFFD}\n\u{FFFD}A".to_owned()));
    assert_eq!(tokens[9], Token::Word("null"));
}

#[test]
fn what_is_not_json_is_refused_where_it_stops_being_so() {
    for text in [
        "",
        "1",
        "\"a\"",
        "[1,]",
        "{,}",
        "{\"a\"}",
        "{a:1}",
        "[1 2]",
        "[01]",
        "[1.]",
        "[.5]",
        "[+1]",
        "[1e]",
        "[tru]",
        "[\"\\x\"]",
        "[\"\t\"]",
        "[\"a]",
        "[[]",
        "{]",
        "[}",
        "[1]x",
        "[1] [2]",
        "[NaN]",
        "// c\n[1]",
        "[1]]",
        "[\"\\u12g4\"]",
    ] {
        assert!(all(text).is_err(), "{text}");
    }
    assert!(matches!(all("[1, oops]"), Err(Fault::Syntax { at: 4, .. })));
    for text in ["[]", "{}\n", " [1]\r\n{\"a\":{}}\n\n[2]", "[\"\\/\\b\\f\\r\\t\"]"] {
        assert!(all(text).is_ok(), "{text}");
    }
}

#[test]
fn depth_and_texts_are_bounded() {
    assert!(matches!(all(&"[".repeat(51)), Err(Fault::TooDeep)));
    let limits = Limits { text_bytes: 8, ..Limits::default() };
    let mut tokens = Tokens::new(&b"[\"123456789\"]"[..], &limits);
    tokens.next().unwrap();
    assert!(matches!(tokens.next(), Err(Fault::TooLong)));
}

#[test]
fn a_value_is_skipped_whole() {
    let mut tokens = Tokens::new(&b"{\"a\":{\"b\":[1,{\"c\":2}]},\"d\":3,\"e\":\"x\",\"f\":4}"[..], &Limits::default());
    let mut keys = Vec::new();
    while let Some(token) = tokens.next().unwrap() {
        if let Token::Key(key) = token {
            keys.push(key);
            tokens.skip_value().unwrap();
        }
    }
    assert_eq!(keys, ["a", "d", "e", "f"]);
}

proptest! {
    /// The reference is another parser, which takes the same language.
    #[test]
    fn what_another_parser_takes_is_taken(
        number in "-?[0-9]{0,2}(\\.[0-9]{0,2})?([eE][+-]?[0-9]{0,2})?",
        pieces in prop::collection::vec(prop::sample::select(PIECES.to_vec()), 0..6),
    ) {
        for text in [format!("[{number}]"), format!("[{}]", pieces.concat())] {
            let theirs = serde_json::from_str::<serde_json::Value>(&text);
            let documents = all(&text).map(|tokens| tokens.len());
            prop_assert_eq!(documents.is_ok(), theirs.is_ok(), "{}", text);
        }
    }
}

const PIECES: [&str; 14] =
    ["[", "]", "{", "}", ":", ",", "\"a\"", "\"\\u00e9\\n\"", "{\"a\":", "1", "true", "null", " ", "[],"];
