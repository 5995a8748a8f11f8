//! What PostgreSQL's text and JSON can hold: everything that ours can, except NUL.
use serde_json::{Map, Value};
use std::borrow::Cow;

/// A text without NUL, which texts from files may contain.
pub fn storable(text: &str) -> Cow<'_, str> {
    if has_nul(text) { Cow::Owned(text.replace('\0', "")) } else { Cow::Borrowed(text) }
}

/// A value whose texts and names hold no NUL. The value is no deeper than the service's own types.
pub fn storable_json(value: &Value) -> Cow<'_, Value> {
    if holds_nul(value) { Cow::Owned(cleaned(value)) } else { Cow::Borrowed(value) }
}

/// Whether a text contains a NUL. `memchr` is fast even if this crate is built without optimisation.
fn has_nul(text: &str) -> bool {
    memchr::memchr(0, text.as_bytes()).is_some()
}

fn holds_nul(value: &Value) -> bool {
    match value {
        Value::String(text) => has_nul(text),
        Value::Array(values) => values.iter().any(holds_nul),
        Value::Object(members) => members.iter().any(|(name, value)| has_nul(name) || holds_nul(value)),
        _ => false,
    }
}

fn cleaned(value: &Value) -> Value {
    match value {
        Value::String(text) => storable(text).into(),
        Value::Array(values) => values.iter().map(cleaned).collect(),
        Value::Object(members) => {
            let members = members.iter().map(|(name, value)| (storable(name).into_owned(), cleaned(value)));
            Value::Object(members.collect::<Map<_, _>>())
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_nul_is_taken_out() {
        let value = json!({"a\u{0}": ["b\u{0}c", 1, null, {"ü\n": "\u{1}"}]});
        assert_eq!(*storable_json(&value), json!({"a": ["bc", 1, null, {"ü\n": "\u{1}"}]}));
        assert!(matches!(storable_json(&json!({"a": "b"})), Cow::Borrowed(_)));
        assert_eq!(storable("a\0b"), "ab");
    }
}
