//! Plain text and Markdown: charsets and headings.

use super::*;

#[test]
fn texts_decode_and_declare_their_headings() {
    for entry in corpus("made/").into_iter().filter(|entry| entry.detector == "text") {
        let (read, expect) = (entry.extract().unwrap(), &entry.expect);
        if let Some(text) = expect["text"].as_str() {
            assert_eq!(read.text.trim(), text, "{}", entry.name);
        }
        if let Some(part) = expect["text_contains"].as_str() {
            assert!(read.text.contains(part), "{}: {}", entry.name, read.text);
        }
        if let Some(charset) = expect["charset"].as_str() {
            assert_eq!(read.charset.as_deref(), Some(charset), "{}", entry.name);
        }
        if expect["headings"].is_array() {
            let headings: Vec<_> =
                read.headings.iter().map(|heading| serde_json::json!([heading.level, heading.title])).collect();
            assert_eq!(Value::Array(headings), expect["headings"], "{}", entry.name);
        }
    }
}
