//! Facts that are lists (comments, notes, tracked changes), kept small whatever the file holds.

use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The most entries in one list.
const ENTRIES: usize = 1_000;

/// The most bytes in one list, counting names and punctuation roughly.
const BYTES: usize = 256 << 10;

/// The most bytes of one text in an entry.
pub(crate) const TEXT_BYTES: usize = 4 << 10;

/// A bounded list of entries, which counts what did not fit.
#[derive(Debug, Default)]
pub(crate) struct FactList {
    entries: Vec<Map<String, Value>>,
    bytes: usize,
    left_out: u64,
}

impl FactList {
    /// Adds an entry with the fields that have a value, and returns its index; `None` if the list is full.
    pub(crate) fn push<const N: usize>(&mut self, fields: [(&str, Option<Value>); N]) -> Option<usize> {
        let end = self.entries.len();
        self.insert(end, fields).then_some(end)
    }

    /// Inserts an entry before the one at `index`; returns false if the list is full.
    pub(crate) fn insert<const N: usize>(&mut self, index: usize, fields: [(&str, Option<Value>); N]) -> bool {
        let entry: Map<_, _> = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
        // The 32 bytes leave room for a place that is added later.
        let bytes = 32 + entry.iter().map(|(name, value)| name.len() + 4 + size(value)).sum::<usize>();
        if self.entries.len() >= ENTRIES || self.bytes + bytes > BYTES {
            self.left_out += 1;
            return false;
        }
        self.bytes += bytes;
        self.entries.insert(index.min(self.entries.len()), entry);
        true
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Sets a number in an existing entry.
    pub(crate) fn set(&mut self, index: usize, name: &str, number: usize) {
        if let Some(entry) = self.entries.get_mut(index) {
            entry.insert(name.to_owned(), number.into());
        }
    }

    /// Records the list under its name, and the number of omitted entries under `<name>.left_out`. An empty list is not
    /// recorded.
    pub(crate) fn record(self, name: &str, facts: &mut BTreeMap<String, Value>) {
        if !self.entries.is_empty() {
            facts.insert(name.to_owned(), self.entries.into_iter().map(Value::Object).collect());
        }
        if self.left_out > 0 {
            facts.insert(format!("{name}.left_out"), self.left_out.into());
        }
    }
}

fn size(value: &Value) -> usize {
    match value {
        Value::String(text) => text.len(),
        _ => 8,
    }
}

/// A text as a value: trimmed, without NUL, which the store's JSON refuses, and ending in an ellipsis if it was cut.
pub(crate) fn text(text: &str) -> Value {
    let text = text.trim();
    let end = text.floor_char_boundary(TEXT_BYTES);
    let kept = text[..end].replace('\0', "");
    if end < text.len() { format!("{kept}…").into() } else { kept.into() }
}

/// Appends to a text for a fact, until it is a little longer than what is kept.
pub(crate) fn append(kept: &mut String, text: &str) {
    if kept.len() <= TEXT_BYTES {
        kept.push_str(&text[..text.floor_char_boundary(TEXT_BYTES + 1)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_bounded_in_entries_and_bytes_and_says_what_it_left_out() {
        let mut facts = BTreeMap::new();
        let mut many = FactList::default();
        for index in 0..1_500usize {
            many.push([("number", Some(index.into())), ("author", None)]);
        }
        many.record("many", &mut facts);
        assert_eq!(facts["many"].as_array().unwrap().len(), 1_000);
        assert_eq!((&facts["many"][7], &facts["many.left_out"]), (&serde_json::json!({"number": 7}), &500.into()));
        let mut large = FactList::default();
        for _ in 0..100 {
            large.push([("text", Some(text(&"ä".repeat(10_000))))]);
        }
        large.record("large", &mut facts);
        assert!(facts["large"].to_string().len() <= 257 << 10);
        assert_eq!(facts["large.left_out"], 100 - facts["large"].as_array().unwrap().len());
        assert!(facts["large"][0]["text"].as_str().unwrap().ends_with("ää…"));
        assert_eq!(text(" a\0b "), "ab");
        FactList::default().record("none", &mut facts);
        assert!(!facts.contains_key("none"));
    }

    #[test]
    fn a_kept_text_stops_growing() {
        let mut kept = String::new();
        for _ in 0..100_000 {
            append(&mut kept, "wörter ");
        }
        assert!(kept.len() < 2 * TEXT_BYTES && text(&kept).as_str().unwrap().ends_with('…'));
    }
}
