//! What PostgreSQL's text and JSON can hold: everything that ours can, except NUL.
use serde_json::{Map, Value};
use sqlx::{
    Decode, Encode, Postgres, Type,
    encode::IsNull,
    error::BoxDynError,
    postgres::{PgArgumentBuffer, PgHasArrayType, PgTypeInfo, PgValueRef},
};
use std::borrow::Cow;

/// Begins two characters that stand for one. Unicode keeps this one free of any meaning.
const ESCAPE: char = '\u{10ffff}';

/// A text that is kept to the letter, NUL and all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verbatim(pub String);

impl Verbatim {
    pub fn stored(&self) -> Cow<'_, str> {
        match self.0.contains(['\0', ESCAPE]) {
            true => Cow::Owned(self.0.replace(ESCAPE, "\u{10ffff}1").replace('\0', "\u{10ffff}0")),
            false => Cow::Borrowed(&self.0),
        }
    }

    fn read(stored: &str) -> Verbatim {
        Verbatim(match stored.contains(ESCAPE) {
            true => stored.replace("\u{10ffff}0", "\0").replace("\u{10ffff}1", "\u{10ffff}"),
            false => stored.to_owned(),
        })
    }
}

impl Type<Postgres> for Verbatim {
    fn type_info() -> PgTypeInfo {
        <String as Type<Postgres>>::type_info()
    }
    fn compatible(ty: &PgTypeInfo) -> bool {
        <String as Type<Postgres>>::compatible(ty)
    }
}
impl PgHasArrayType for Verbatim {
    fn array_type_info() -> PgTypeInfo {
        <String as PgHasArrayType>::array_type_info()
    }
}
impl Encode<'_, Postgres> for Verbatim {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        <&str as Encode<'_, Postgres>>::encode(self.stored().as_ref(), buffer)
    }
}
impl<'r> Decode<'r, Postgres> for Verbatim {
    fn decode(value: PgValueRef<'r>) -> Result<Verbatim, BoxDynError> {
        <&str as Decode<'r, Postgres>>::decode(value).map(Verbatim::read)
    }
}

/// A text without NUL, which texts from files may contain.
pub fn storable(text: &str) -> Cow<'_, str> {
    if has_nul(text) { Cow::Owned(text.replace('\0', "")) } else { Cow::Borrowed(text) }
}

/// Begins names by which serde_json tells itself what a value was. An object with one of them is read as something else, or not at all.
const RESERVED: &str = "$serde_json::private::";

/// A value whose texts and names hold no NUL, and whose names can be read again. The value is no deeper than the service's own types.
pub fn storable_json(value: &Value) -> Cow<'_, Value> {
    if is_unstorable(value) { Cow::Owned(cleaned(value)) } else { Cow::Borrowed(value) }
}

/// Whether a text contains a NUL. `memchr` is fast even if this crate is built without optimisation.
fn has_nul(text: &str) -> bool {
    memchr::memchr(0, text.as_bytes()).is_some()
}

fn is_unstorable(value: &Value) -> bool {
    match value {
        Value::String(text) => has_nul(text),
        Value::Array(values) => values.iter().any(is_unstorable),
        Value::Object(members) => {
            members.iter().any(|(name, value)| has_nul(name) || name.starts_with(RESERVED) || is_unstorable(value))
        }
        _ => false,
    }
}

fn cleaned(value: &Value) -> Value {
    match value {
        Value::String(text) => storable(text).into(),
        Value::Array(values) => values.iter().map(cleaned).collect(),
        Value::Object(members) => {
            let named = |name: &str| {
                let name = storable(name);
                if name.starts_with(RESERVED) { name.trim_start_matches('$').to_owned() } else { name.into_owned() }
            };
            let members = members.iter().map(|(name, value)| (named(name), cleaned(value)));
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
    fn a_verbatim_text_is_read_as_it_was_given() {
        for text in ["", "a", "\0", "a\0\0b", "\u{10ffff}", "\u{10ffff}0", "\u{10ffff}1\0\u{10ffff}", "0\u{10ffff}1"] {
            let verbatim = Verbatim(text.to_owned());
            let stored = verbatim.stored().into_owned();
            assert!(!stored.contains('\0'), "{stored:?}");
            assert_eq!(Verbatim::read(&stored), verbatim, "{stored:?}");
        }
    }

    #[test]
    fn only_nul_and_what_cannot_be_read_again_is_taken_out() {
        let value = json!({"a\u{0}": ["b\u{0}c", 1, null, {"ü\n": "\u{1}"}]});
        assert_eq!(*storable_json(&value), json!({"a": ["bc", 1, null, {"ü\n": "\u{1}"}]}));
        assert!(matches!(storable_json(&json!({"a": "b"})), Cow::Borrowed(_)));
        let poison =
            json!({"a": {"$serde_json::private::RawValue": "no JSON"}, "$a": 1, "\0$serde_json::private::Number": "2"});
        let kept =
            json!({"a": {"serde_json::private::RawValue": "no JSON"}, "$a": 1, "serde_json::private::Number": "2"});
        assert_eq!(*storable_json(&poison), kept);
        assert_eq!(serde_json::from_str::<Value>(&kept.to_string()).unwrap(), kept);
        assert_eq!(storable("a\0b"), "ab");
    }
}
