//! The caller's own JSON, bounded while it is read, because a value takes many times the memory of its text.
use serde::{
    Deserialize, Deserializer,
    de::{DeserializeSeed, Error, IgnoredAny, MapAccess, SeqAccess, Visitor},
};
use serde_json::{Map, Number, Value};
use std::fmt;

/// The most values in one object, including nested ones.
const VALUES: usize = 100_000;
/// The most levels of nesting; the object itself is the first.
const LEVELS: usize = 64;
/// The most bytes in all its keys and texts.
const TEXT_BYTES: usize = 1 << 20;
/// How many more values and levels a document of an archive may have: ingestion puts what a caller gives, such as the metadata of a turn, into an
/// object of its own.
const MORE: usize = 16;

/// Begins keys by which serde_json tells itself what a value was: an object with one of them could not be read again.
const RESERVED: &str = "$serde_json::private::";

/// Reads an object. What exceeds a limit is skipped and then refused under the name of the field.
pub(super) fn object<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Map<String, Value>, D::Error> {
    object_within(Read::default(), deserializer)
}

/// Reads an object as [`object`] does, however long its keys and texts are, which only the body bounds.
fn object_of_any_length<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Map<String, Value>, D::Error> {
    object_within(Read { most_text: usize::MAX, ..Read::default() }, deserializer)
}

/// Reads an object that ingestion may have made: of a row, whose texts only the body bounds, or around what a caller gave.
pub(super) fn object_of_ingestion<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Map<String, Value>, D::Error> {
    let read =
        Read { most_text: usize::MAX, most_values: VALUES + MORE, most_levels: LEVELS + MORE, ..Read::default() };
    object_within(read, deserializer)
}

fn object_within<'de, D: Deserializer<'de>>(mut read: Read, deserializer: D) -> Result<Map<String, Value>, D::Error> {
    match deserializer.deserialize_map(Bounded { read: &mut read, level: 0 })? {
        _ if read.over.is_some() => Err(D::Error::custom(read.over.unwrap_or_default())),
        Value::Object(object) => Ok(object),
        _ => Err(D::Error::custom("takes a JSON object")),
    }
}

/// Reads any value, with the limits of [`object`], for a field that may be absent.
pub(super) fn value<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    let mut read = Read::default();
    let value = Bounded { read: &mut read, level: 0 }.deserialize(deserializer)?;
    match read.over {
        Some(over) => Err(D::Error::custom(over)),
        None => Ok((!value.is_null()).then_some(value)),
    }
}

/// Reads an object as [`object`] does, for a field that may be absent.
pub(super) fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Map<String, Value>>, D::Error> {
    object(deserializer).map(Some)
}

/// A value that a caller gives as a text of JSON, `None` for null, with the limits of other JSON of a caller's own: 100,000 values, 64 levels,
/// 1 MiB of keys and texts, and no key twice in one object.
#[derive(Clone, Debug, Deserialize)]
pub struct OwnJson(#[serde(deserialize_with = "value")] pub Option<Value>);

/// Reads a list of objects, each as [`object`] does, for a field that may be absent. Only the body bounds their texts, which may hold pictures.
pub(super) fn objects<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<Map<String, Value>>>, D::Error> {
    #[derive(Deserialize)]
    struct One(#[serde(deserialize_with = "object_of_any_length")] Map<String, Value>);

    let list = Option::<Vec<One>>::deserialize(deserializer)?;
    Ok(list.map(|list| list.into_iter().map(|One(object)| object).collect()))
}

/// Reads an object as [`object`] does, or null.
pub(super) fn optional<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Map<String, Value>>, D::Error> {
    struct Optional;
    impl<'de> Visitor<'de> for Optional {
        type Value = Option<Map<String, Value>>;
        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a JSON object or null")
        }
        fn visit_none<E: Error>(self) -> Result<Self::Value, E> {
            Ok(None)
        }
        fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
            Ok(None)
        }
        fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
            object(deserializer).map(Some)
        }
    }
    deserializer.deserialize_option(Optional)
}

/// What was read so far.
struct Read {
    values: usize,
    text: usize,
    /// The most bytes in all keys and texts.
    most_text: usize,
    most_values: usize,
    most_levels: usize,
    /// The first limit that was exceeded, or the first key that is not taken.
    over: Option<String>,
}

impl Default for Read {
    fn default() -> Read {
        Read { values: 0, text: 0, most_text: TEXT_BYTES, most_values: VALUES, most_levels: LEVELS, over: None }
    }
}

impl Read {
    fn count(&mut self, text: usize, level: usize) {
        self.values += 1;
        self.text += text;
        let limits = [
            (self.values, self.most_values, "values"),
            (level, self.most_levels, "levels"),
            (self.text, self.most_text, "bytes of keys and texts"),
        ];
        for (count, limit, what) in limits {
            if count > limit && self.over.is_none() {
                self.over = Some(format!("takes at most {limit} {what}"));
            }
        }
    }
}

struct Bounded<'a> {
    read: &'a mut Read,
    level: usize,
}

impl<'de> DeserializeSeed<'de> for Bounded<'_> {
    type Value = Value;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        match self.read.over {
            Some(_) => deserializer.deserialize_ignored_any(IgnoredAny).map(|_| Value::Null),
            None => deserializer.deserialize_any(self),
        }
    }
}

impl<'de> Visitor<'de> for Bounded<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.level == 0 { "a JSON object" } else { "a JSON value" })
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        self.read.count(0, self.level);
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        self.read.count(0, self.level);
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        self.read.count(0, self.level);
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        self.read.count(0, self.level);
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        self.read.count(0, self.level);
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        self.read.count(value.len(), self.level);
        Ok(if self.read.over.is_none() { Value::String(value.to_owned()) } else { Value::Null })
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        self.read.count(value.len(), self.level);
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let level = self.level + 1;
        self.read.count(0, level);
        let mut values = Vec::new();
        while let Some(value) = items.next_element_seed(Bounded { read: &mut *self.read, level })? {
            if self.read.over.is_none() {
                values.push(value);
            }
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let level = self.level + 1;
        self.read.count(0, level);
        let mut object = Map::new();
        while let Some(key) = members.next_key::<String>()? {
            self.read.text += key.len();
            if key.starts_with(RESERVED) && self.read.over.is_none() {
                self.read.over = Some(format!("takes no key that begins with `{RESERVED}`"));
            }
            // Only one of the two values could be kept.
            if object.contains_key(&key) && self.read.over.is_none() {
                let shown: String = key.chars().take(100).collect();
                self.read.over =
                    Some(format!("takes each key of an object only once, and `{shown}` stands there twice"));
            }
            let value = members.next_value_seed(Bounded { read: &mut *self.read, level })?;
            if self.read.over.is_none() {
                object.insert(key, value);
            }
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::ArchivedDocument;

    #[derive(Debug, Deserialize)]
    struct Body {
        #[serde(default, deserialize_with = "object")]
        own: Map<String, Value>,
        #[serde(default, deserialize_with = "optional")]
        filter: Option<Map<String, Value>>,
        #[serde(default, deserialize_with = "objects")]
        list: Option<Vec<Map<String, Value>>>,
    }

    fn read(own: &str) -> Result<Map<String, Value>, String> {
        serde_json::from_str::<Body>(&format!("{{\"own\": {own}}}"))
            .map(|body| body.own)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn an_object_within_the_limits_is_read_as_it_is() {
        let text = r#"{"a": [null, true, -1, 18446744073709551615, 1.5, "ä\u0000", {}], "b": {"c": []}}"#;
        assert_eq!(Value::Object(read(text).unwrap()), serde_json::from_str::<Value>(text).unwrap());
        assert!(read(&format!("{{\"a\": [{}0]}}", "0,".repeat(VALUES - 3))).is_ok());
        assert!(read(&format!("{{\"a\": \"{}\"}}", "x".repeat(TEXT_BYTES - 1))).is_ok());
        assert!(read(&format!("{{\"a\": {}{}}}", "[".repeat(LEVELS - 1), "]".repeat(LEVELS - 1))).is_ok());
        let filter = |text: &str| serde_json::from_str::<Body>(text).unwrap().filter;
        assert_eq!((filter("{}"), filter(r#"{"filter": null}"#)), (None, None));
        assert_eq!(filter(r#"{"filter": {"a": 1}}"#).unwrap()["a"], 1);
    }

    #[test]
    fn a_key_that_could_not_be_read_again_is_refused() {
        for text in
            [r#"{"a": {"$serde_json::private::RawValue": "5"}}"#, r#"{"a": [{"$serde_json::private::Number": "x"}]}"#]
        {
            assert!(read(text).unwrap_err().starts_with("takes no key that begins with `$serde_json::private::`"));
        }
        assert!(read(r#"{"$a": {"$serde": "5"}}"#).is_ok());
    }

    #[test]
    fn a_key_that_stands_twice_in_one_object_is_refused() {
        for text in [r#"{"a": 1, "a": 2}"#, r#"{"b": [{"a": 1, "c": 2, "a": null}]}"#, r#"{"a": 1, "\u0061": 1}"#] {
            let error = read(text).unwrap_err();
            assert!(error.contains("takes each key of an object only once, and `a`"), "{text}: {error}");
        }
        assert!(read(r#"{"a": {"a": [{"a": 1}, {"a": 2}]}}"#).is_ok(), "in different objects");
        let list =
            |text: &str| serde_json::from_str::<Body>(text).map(|body| body.list).map_err(|error| error.to_string());
        assert!(list(r#"{"list": [{}, {"a": 1, "a": 1}]}"#).unwrap_err().contains("`a` stands there twice"));
        assert_eq!(list(r#"{"list": [{"a": 1}, {"a": 2}]}"#).unwrap().unwrap().len(), 2);
        let long = "x".repeat(TEXT_BYTES + 1);
        assert!(list(&format!("{{\"list\": [{{\"a\": \"{long}\"}}]}}")).is_ok(), "only the body bounds them");
        assert!(list(r#"{"list": [7]}"#).is_err() && list(r#"{"list": null}"#).unwrap().is_none());
        assert!(serde_json::from_str::<OwnJson>(r#"{"a": {"b": 1, "b": 2}}"#).is_err());
        assert_eq!(serde_json::from_str::<OwnJson>("[1]").unwrap().0, Some(serde_json::json!([1])));
    }

    #[test]
    fn a_document_of_an_archive_may_hold_longer_texts_than_a_caller_gives() {
        let long = "x".repeat(2 * TEXT_BYTES);
        let line = |own: Value| {
            serde_json::json!({"id": 1, "title": "articles row 2", "content": "", "structured_content": own, "usetype": "record",
                "created_at": "2024-01-01T00:00:00Z", "updated_at": "2024-01-01T00:00:00Z", "content_hash": "sha256:", "settled": "settled"})
            .to_string()
        };
        let read = |line: &str| serde_json::from_str::<ArchivedDocument>(line).map_err(|error| error.to_string());
        let document = read(&line(serde_json::json!({"record": {"body": long}}))).unwrap();
        assert_eq!(document.structured_content["record"]["body"].as_str().map(str::len), Some(2 * TEXT_BYTES));
        let wide = line(serde_json::json!({"a": vec![0; VALUES + MORE]}));
        assert!(read(&wide).unwrap_err().contains("100016 values"), "only the length of texts is the body's to bound");
    }

    #[test]
    fn a_document_of_an_archive_may_hold_what_a_caller_gave_within_an_object_of_ingestion() {
        let line = |metadata: &str| {
            format!(
                r#"{{"id": 1, "title": "t", "content": "", "structured_content": {{"speaker": "Ann", "index": 0, "role": "r", "metadata": {metadata}}},
                    "usetype": "section", "created_at": "2024-01-01T00:00:00Z", "updated_at": "2024-01-01T00:00:00Z", "content_hash": "sha256:",
                    "settled": "settled"}}"#
            )
        };
        let read = |line: &str| serde_json::from_str::<ArchivedDocument>(line).map_err(|error| error.to_string());
        let deep = |levels: usize| format!("{{\"a\": {}{}}}", "[".repeat(levels - 1), "]".repeat(levels - 1));
        for metadata in [deep(LEVELS), format!("{{\"a\": [{}0]}}", "0,".repeat(VALUES - 3))] {
            assert!(self::read(&metadata).is_ok(), "a caller may give it");
            assert!(read(&line(&metadata)).is_ok(), "{:?}", read(&line(&metadata)).map(|_| ()));
        }
        assert!(read(&line(&deep(LEVELS + MORE))).unwrap_err().contains("80 levels"));
    }

    #[test]
    fn what_is_over_a_limit_is_refused_by_its_name() {
        for (text, limit) in [
            (format!("{{\"a\": [{}0]}}", "0,".repeat(VALUES - 2)), "100000 values"),
            (format!("{{\"a\": [{}]}}", vec!["[]"; VALUES].join(",")), "100000 values"),
            (format!("{{\"a\": \"{}\"}}", "x".repeat(TEXT_BYTES)), "1048576 bytes"),
            (format!("{{\"{}\": 1}}", "x".repeat(TEXT_BYTES + 1)), "1048576 bytes"),
            (format!("{{\"a\": {}{}}}", "[".repeat(LEVELS), "]".repeat(LEVELS)), "64 levels"),
        ] {
            let error = read(&text).unwrap_err();
            assert!(error.contains("takes at most") && error.contains(limit), "{error}");
        }
        for no_object in ["[]", "1", "\"x\"", "null", "true"] {
            assert!(read(no_object).unwrap_err().contains("a JSON object"), "{no_object}");
        }
    }
}
