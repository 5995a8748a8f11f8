//! Pages of one answer. A language model pays for each character, and clients cut what is too long without a word; so a long answer
//! is shown in windows, and `next_cursor` leads on.
use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::io;
use svc_client::Failure;

/// The most bytes of an answer, as JSON.
pub const MOST: usize = 64 * 1024;
/// Room for what each page repeats.
const FRAME: usize = 4 * 1024;
/// A part up to this size is not divided while it can be the first of the next page.
const WHOLE: usize = MOST / 4;
/// A text up to this length is on each page.
const SHORT: usize = 256;
/// Tells a cursor of ours from one of the service.
const MARK: char = '~';
/// The longest cursor: the way to a place in an answer, and the service's own cursor.
const CURSOR_BYTES: usize = 16 * 1024;

/// Where a page begins.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Place {
    /// The way to the first part that is shown: names of members, numbers of entries, and at last the number of a text's characters.
    at: Vec<Value>,
    /// The cursor of the service's own page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    of: Option<String>,
}

/// A cursor that leads to a place in the service's page that begins with `of`.
pub fn write_cursor(at: Vec<Value>, of: Option<String>) -> String {
    let text = serde_json::to_vec(&Place { at, of }).unwrap_or_default();
    format!("{MARK}{}", BASE64_URL_SAFE_NO_PAD.encode(text))
}

/// The place of a cursor, and the service's own cursor; what is not ours is the service's.
pub fn read_cursor(text: &str) -> Result<(Vec<Value>, Option<String>), Failure> {
    let Some(ours) = text.strip_prefix(MARK) else { return Ok((Vec::new(), Some(text.to_owned()))) };
    let place = (text.len() <= CURSOR_BYTES).then(|| BASE64_URL_SAFE_NO_PAD.decode(ours).ok()).flatten();
    let place: Option<Place> = place.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let place = place.ok_or_else(|| Failure::field("cursor", "takes a next_cursor of this tool"))?;
    Ok((place.at, place.of))
}

/// A part of an answer that begins at a place, and the place after it; `None` at the end. Every short member that the schema names is
/// on each page, and everything else is on one.
pub fn page(answer: &Value, schema: &Value, from: &[Value]) -> (Value, Option<Vec<Value>>) {
    if from.is_empty() && size(answer) <= MOST {
        return (answer.clone(), None);
    }
    let mut walk = Walk { room: MOST - FRAME, stopped: None, took: false };
    let shown = walk.open(answer, schema, from);
    let next = walk.stopped.map(|mut way| {
        way.reverse();
        way
    });
    (shown, next)
}

/// The bytes of a value as JSON.
pub fn size(value: &Value) -> usize {
    struct Count(usize);
    impl io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // A value can always be written, and nothing but the count is wanted.
    drop(serde_json::to_writer(&mut count, value));
    count.0
}

struct Walk {
    room: usize,
    /// The way to where the next page begins, from its end.
    stopped: Option<Vec<Value>>,
    /// Whether the page has anything yet.
    took: bool,
}

impl Walk {
    /// Takes a value whole if there is room; else a part of it, or nothing if it can begin the next page.
    fn take(&mut self, value: &Value, schema: &Value) -> Option<Value> {
        let bytes = size(value);
        if bytes <= self.room {
            self.room -= bytes;
            self.took = true;
            return Some(value.clone());
        }
        if self.took && bytes <= WHOLE {
            self.stopped = Some(Vec::new());
            return None;
        }
        Some(self.open(value, schema, &[]))
    }

    /// Takes of a value what follows a place in it.
    fn open(&mut self, value: &Value, schema: &Value, from: &[Value]) -> Value {
        match value {
            Value::Object(members) => Value::Object(self.members(members, schema, from)),
            Value::Array(entries) => self.entries(entries, &schema["items"], from),
            Value::String(text) => Value::String(self.characters(text, from)),
            other => {
                self.took = true;
                self.room = self.room.saturating_sub(size(other));
                other.clone()
            }
        }
    }

    fn members(&mut self, members: &Map<String, Value>, schema: &Value, from: &[Value]) -> Map<String, Value> {
        let first = from.first().and_then(Value::as_str);
        let mut shown = Map::new();
        for (name, value) in members {
            let known = &schema["properties"][name];
            let before = first.is_some_and(|first| name.as_str() < first);
            let part = if before || self.stopped.is_some() {
                frame(value, known)
            } else {
                self.room = self.room.saturating_sub(name.len() + 4);
                let part = match first == Some(name.as_str()) {
                    true => Some(self.open(value, known, &from[1..])),
                    false => self.take(value, known),
                };
                if let Some(way) = &mut self.stopped {
                    way.push(name.as_str().into());
                }
                part.or_else(|| frame(value, known))
            };
            if let Some(part) = part {
                shown.insert(name.clone(), part);
            }
        }
        shown
    }

    fn entries(&mut self, entries: &[Value], schema: &Value, from: &[Value]) -> Value {
        let first = from.first().and_then(Value::as_u64).and_then(|first| usize::try_from(first).ok()).unwrap_or(0);
        let mut shown = Vec::new();
        for (number, value) in entries.iter().enumerate().skip(first) {
            self.room = self.room.saturating_sub(1);
            let part = match number == first && from.len() > 1 {
                true => Some(self.open(value, schema, &from[1..])),
                false => self.take(value, schema),
            };
            shown.extend(part);
            if let Some(way) = &mut self.stopped {
                way.push(number.into());
                break;
            }
        }
        Value::Array(shown)
    }

    fn characters(&mut self, text: &str, from: &[Value]) -> String {
        let first = from.first().and_then(Value::as_u64).and_then(|first| usize::try_from(first).ok()).unwrap_or(0);
        let mut shown = String::new();
        for (number, character) in text.chars().enumerate().skip(first) {
            let bytes = match character {
                '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
                control if u32::from(control) < 0x20 => 6,
                other => other.len_utf8(),
            };
            if self.took && bytes > self.room {
                self.stopped = Some(vec![number.into()]);
                break;
            }
            self.room = self.room.saturating_sub(bytes);
            self.took = true;
            shown.push(character);
        }
        shown
    }
}

/// What a page shows of a part that is on another one: only what the schema names, and of that what is short.
fn frame(value: &Value, schema: &Value) -> Option<Value> {
    if !schema.is_object() {
        return None;
    }
    Some(match value {
        Value::String(text) if text.len() > SHORT => json!(""),
        Value::Array(_) => json!([]),
        Value::Object(members) => {
            let parts = members
                .iter()
                .filter_map(|(name, value)| Some((name.clone(), frame(value, &schema["properties"][name])?)));
            parts.collect()
        }
        other => other.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every page of an answer, each by the cursor of the one before.
    fn pages(answer: &Value, schema: &Value) -> Vec<Value> {
        let (mut from, mut pages) = (Vec::new(), Vec::new());
        loop {
            let (shown, next) = page(answer, schema, &from);
            assert!(size(&shown) <= MOST, "{}", size(&shown));
            pages.push(shown);
            assert!(pages.len() < 100, "no end");
            let Some(next) = next else { return pages };
            let cursor = write_cursor(next, Some("7.9".to_owned()));
            let read = read_cursor(&cursor).expect("our own");
            assert_eq!(read.1.as_deref(), Some("7.9"));
            from = read.0;
        }
    }

    fn texts(pages: &[Value], at: &str) -> String {
        pages.iter().filter_map(|page| page.pointer(at)?.as_str()).collect()
    }

    #[test]
    fn a_long_text_is_told_to_its_end() {
        let text: String = (0..50_000).map(|number| ["é", "\n", "x", "\u{1}", "漢"][number % 5]).collect();
        let schema = json!({"properties": {"id": {}, "content": {}, "title": {}}});
        let pages = pages(&json!({"id": 7, "content": text, "title": "t"}), &schema);
        assert!(pages.len() > 1 && pages.iter().all(|page| page["id"] == 7 && page["title"] == "t"));
        assert_eq!(texts(&pages, "/content"), text);
    }

    #[test]
    fn every_entry_is_on_one_page_and_a_long_one_on_several() {
        let row =
            |number: usize| json!({"id": number, "content": "x".repeat(if number == 20 { 200_000 } else { 9_000 })});
        let rows: Vec<Value> = (0..40).map(row).collect();
        let schema = json!({"properties": {"rows": {"items": {"properties": {"id": {}, "content": {}}}}, "total": {}}});
        let pages = pages(&json!({"rows": rows, "total": 40}), &schema);
        assert!(pages.iter().all(|page| page["total"] == 40));
        let mut read: Vec<(u64, usize)> = Vec::new();
        for row in pages.iter().flat_map(|page| page["rows"].as_array().expect("rows")) {
            let (id, length) = (row["id"].as_u64().expect("an id"), row["content"].as_str().expect("a text").len());
            match read.last_mut().filter(|last| last.0 == id) {
                Some(last) => last.1 += length,
                None => read.push((id, length)),
            }
        }
        let whole: Vec<_> = (0..40).map(|id| (id, if id == 20 { 200_000 } else { 9_000 })).collect();
        assert_eq!(read, whole);
    }

    #[test]
    fn what_no_schema_names_is_paged_too() {
        let evidence: Map<String, Value> = (0..5_000)
            .map(|number| (format!("name-{number:04}"), json!({"value": "x".repeat(number % 300)})))
            .collect();
        let pages = pages(
            &json!({"evidence": evidence, "id": 7}),
            &json!({"properties": {"evidence": {"type": "object"}, "id": {}}}),
        );
        let read: Vec<_> = pages.iter().flat_map(|page| page["evidence"].as_object().expect("evidence")).collect();
        assert!(pages.len() > 5 && read.len() == 5_000, "{} pages, {} members", pages.len(), read.len());
        assert!(read.into_iter().all(|(name, value)| evidence[name] == *value));
    }

    #[test]
    fn a_foreign_cursor_is_refused_or_the_services_own() {
        assert_eq!(read_cursor("7.9").expect("the service's"), (Vec::new(), Some("7.9".to_owned())));
        for bad in ["~", "~!", "~e30", &format!("~{}", "A".repeat(CURSOR_BYTES))] {
            assert_eq!(read_cursor(bad).expect_err("no cursor").members["field"], "cursor", "{bad:.9}");
        }
        let answer = json!({"rows": ["a", {"b": "c"}], "text": "x"});
        for at in [
            json!([]),
            json!(["rows", 1, "z", 9]),
            json!([7]),
            json!(["text", -1]),
            json!(["rows", u64::MAX]),
            json!([null]),
        ] {
            page(&answer, &json!({}), at.as_array().expect("a way"));
        }
    }
}
