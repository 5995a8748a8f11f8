//! What a language model answers when it is asked for facts, and which of these are kept: those that the text has the words and the names of.
use crate::graph::{
    literal::{IllTyped, literal},
    occurrences,
    quotes::{self, Place},
    resolve,
};
use chrono::{DateTime, NaiveDate, SubsecRound, Utc};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashMap, HashSet};
use svc_client::{
    constraint::Constraint,
    wire::{FactType, LITERAL_BYTES},
};
use svc_ids::PredicateId;

/// The most characters of a quote, as in a request.
const QUOTE_CHARS: usize = 10_000;
/// The most characters of a predicate's name.
const PREDICATE_CHARS: usize = 100;
const XSD_STRING: &str = "xsd:string";
const XSD: &str = "http://www.w3.org/2001/XMLSchema#";
/// The most letters of the name of a type.
const TYPE_CHARS: usize = 40;

/// The form of an answer.
pub fn schema() -> Value {
    let text = json!({"type": "string"});
    let optional = json!({"type": ["string", "null"]});
    let properties = json!({
        "subject": text, "subject_type": optional, "predicate": text, "object": text,
        "object_kind": {"type": "string", "enum": ["entity", "literal"]}, "object_type": optional, "datatype": optional,
        "fact_type": {"type": "string", "enum": ["static", "dynamic", "atemporal"]}, "valid_from": optional, "valid_until": optional,
        "confidence": {"type": "number"}, "quote": text,
    });
    let names: Vec<&String> = properties.as_object().map(|all| all.keys().collect()).unwrap_or_default();
    let fact = json!({"type": "object", "properties": properties, "required": names, "additionalProperties": false});
    json!({
        "type": "object", "properties": {"facts": {"type": "array", "items": fact}}, "required": ["facts"], "additionalProperties": false,
    })
}

/// The facts of an answer, each as the model says it. Of one that the endpoint cut off, those that are whole. An error is what a JSON parser says.
pub fn read(answer: &str, is_cut: bool) -> Result<Vec<Value>, String> {
    let Some(begin) = answer.find(['{', '[']) else { return Err("it holds no JSON object".to_owned()) };
    let mut values = serde_json::Deserializer::from_str(&answer[begin..]).into_iter::<Value>();
    match values.next() {
        Some(Ok(Value::Array(facts))) => Ok(facts),
        Some(Ok(Value::Object(mut object))) => match object.remove("facts") {
            Some(Value::Array(facts)) => Ok(facts),
            _ => Err("the object has no list `facts`".to_owned()),
        },
        Some(Err(error)) if !is_cut => Err(error.to_string()),
        _ => whole_ones(&answer[begin..]).ok_or_else(|| "it was cut off before its first fact".to_owned()),
    }
}

/// The elements of the first list of an answer that are whole; `None` if no list begins.
fn whole_ones(answer: &str) -> Option<Vec<Value>> {
    let mut rest = &answer[answer.find('[')? + 1..];
    let mut facts = Vec::new();
    loop {
        rest = rest.trim_start_matches(|c: char| c.is_whitespace() || c == ',');
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<Value>();
        match values.next() {
            Some(Ok(value)) => facts.push(value),
            _ => return Some(facts),
        }
        rest = &rest[values.byte_offset()..];
    }
}

/// A fact as a model says it. What may be missing is missing in the answers of some.
#[derive(Deserialize)]
struct Said {
    subject: String,
    #[serde(default)]
    subject_type: Option<String>,
    predicate: String,
    object: Value,
    #[serde(default)]
    object_kind: Option<String>,
    #[serde(default)]
    object_type: Option<String>,
    #[serde(default)]
    datatype: Option<String>,
    #[serde(default)]
    fact_type: Option<String>,
    #[serde(default)]
    valid_from: Option<String>,
    #[serde(default)]
    valid_until: Option<String>,
    #[serde(default)]
    confidence: Option<f64>,
    quote: String,
}

/// A thing that a text names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mention {
    pub name: String,
    /// The name and the type as they are compared.
    pub key: String,
    pub type_key: String,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Object {
    Thing(Mention),
    Literal { value: String, datatype: String },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Predicate {
    Known(PredicateId),
    /// It is to be made.
    New(String),
}

/// A fact that the text has the words of.
#[derive(Clone, Debug, PartialEq)]
pub struct Checked {
    pub subject: Mention,
    pub predicate: Predicate,
    pub object: Object,
    pub fact_type: FactType,
    pub valid_from: Option<DateTime<Utc>>,
    pub valid_until: Option<DateTime<Utc>>,
    pub confidence: f64,
    /// The words as they stand in the text.
    pub quote: String,
}

/// What facts are held to.
pub struct Rules<'a> {
    pub text: &'a str,
    /// The predicates that exist, by their names to the letter and by [`predicate_key`].
    pub predicates: &'a HashMap<String, PredicateId>,
    pub makes_predicates: bool,
    pub threshold: f64,
    pub most: usize,
}

/// The facts that are kept, in the order of the answer, and how many were dropped, by the reason.
pub fn check(said: Vec<Value>, rules: &Rules<'_>) -> (Vec<Checked>, BTreeMap<&'static str, usize>) {
    let mut dropped: BTreeMap<&'static str, usize> = BTreeMap::new();
    let mut drop = |reason| *dropped.entry(reason).or_default() += 1;
    let mut read: Vec<(usize, Said)> = Vec::new();
    for (position, fact) in said.into_iter().enumerate() {
        match serde_json::from_value(fact) {
            Ok(fact) => read.push((position, fact)),
            Err(_) => drop("bad_form"),
        }
    }
    let quotes = read.iter().map(|(_, fact)| fact.quote.as_str());
    let quotes: Vec<&str> = quotes.map(|quote| if quote.chars().count() > QUOTE_CHARS { "" } else { quote }).collect();
    let places = quotes::find(rules.text, &quotes);
    let standing = standing(rules.text, &read);
    let mut kept: Vec<(usize, Checked)> = Vec::new();
    for ((position, fact), place) in read.into_iter().zip(places) {
        match one(fact, place, rules, &standing) {
            Ok(checked) => kept.push((position, checked)),
            Err(reason) => drop(reason),
        }
    }
    kept.sort_by(|(_, one), (_, other)| other.confidence.total_cmp(&one.confidence));
    if kept.len() > rules.most {
        dropped.insert("too_many", kept.len() - rules.most);
        kept.truncate(rules.most);
    }
    kept.sort_by_key(|(position, _)| *position);
    (kept.into_iter().map(|(_, checked)| checked).collect(), dropped)
}

/// The keys of names that stand in the text. All names are looked for at once.
fn standing(text: &str, said: &[(usize, Said)]) -> HashSet<String> {
    let names = said.iter().flat_map(|(_, fact)| [Some(fact.subject.as_str()), fact.object.as_str()]);
    let keys: HashSet<String> = names.flatten().map(|name| resolve::key(&cleaned(name))).collect();
    let keys: Vec<String> = keys.into_iter().filter(|key| !key.is_empty()).collect();
    // An ending may follow a name, as in a genitive, and nothing comes before it in its word; where words have no spaces between them anything may.
    let words: Vec<String> =
        keys.iter().map(|key| if key.is_ascii() { format!(" {key}") } else { key.clone() }).collect();
    let text = format!(" {}", resolve::key(text));
    let found = occurrences::first(&text, &words.iter().map(String::as_str).collect::<Vec<_>>());
    keys.into_iter().zip(found).filter(|(_, place)| place.is_some()).map(|(key, _)| key).collect()
}

/// A fact that is kept, or why it is dropped.
fn one(
    said: Said,
    place: Option<Place>,
    rules: &Rules<'_>,
    standing: &HashSet<String>,
) -> Result<Checked, &'static str> {
    let quote = place.and_then(|place| rules.text.get(place.bytes)).ok_or("quote_not_found")?.to_owned();
    let subject = mention(&said.subject, said.subject_type.as_deref(), standing)?;
    let value = match said.object {
        Value::String(text) => text,
        Value::Number(number) => number.to_string(),
        Value::Bool(flag) => flag.to_string(),
        _ => return Err("bad_form"),
    };
    let object = match said.object_kind.as_deref() {
        Some("literal") => typed(value, said.datatype.as_deref())?,
        Some("entity") | None => Object::Thing(mention(&value, said.object_type.as_deref(), standing)?),
        Some(_) => return Err("bad_form"),
    };
    if matches!(&object, Object::Thing(thing) if thing.key == subject.key) {
        return Err("self_loop");
    }
    let fact_type = match said.fact_type.as_deref() {
        None => FactType::Dynamic,
        Some(word) => word.parse().map_err(|_| "bad_form")?,
    };
    let valid_from = said.valid_from.as_deref().map(moment).transpose()?.flatten();
    let valid_until = said.valid_until.as_deref().map(moment).transpose()?.flatten();
    let has_bounds = valid_from.is_some() || valid_until.is_some();
    // A leap second is the second after it, as the store keeps it.
    let is_empty = |(from, until): (DateTime<Utc>, DateTime<Utc>)| from.timestamp_micros() >= until.timestamp_micros();
    if valid_from.zip(valid_until).is_some_and(is_empty) || (fact_type == FactType::Atemporal && has_bounds) {
        return Err("bad_time");
    }
    let confidence = said.confidence.unwrap_or_default().clamp(0.0, 1.0);
    if confidence < rules.threshold {
        return Err("below_threshold");
    }
    let key = predicate_key(&said.predicate);
    let predicate = match rules.predicates.get(said.predicate.trim()).or_else(|| rules.predicates.get(&key)) {
        Some(id) => Predicate::Known(*id),
        None if key.is_empty() => return Err("bad_form"),
        None if !rules.makes_predicates => return Err("unknown_predicate"),
        None => Predicate::New(key),
    };
    Ok(Checked { subject, predicate, object, fact_type, valid_from, valid_until, confidence, quote })
}

/// A name without what nobody sees of it: it becomes the title of a document, in which marks of direction would have others look like what they are
/// not, and which the database stores without NUL.
fn cleaned(name: &str) -> String {
    let name: String = name
        .chars()
        .filter(|c| !resolve::is_mark_of_direction(*c))
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    name.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// A name that stands in the text.
fn mention(name: &str, kind: Option<&str>, standing: &HashSet<String>) -> Result<Mention, &'static str> {
    let name = cleaned(name);
    if resolve::is_pronoun(&name) {
        return Err("pronoun");
    }
    let key = resolve::key(&name);
    if name.chars().count() > resolve::NAME_CHARS || !standing.contains(&key) {
        return Err("name_not_in_text");
    }
    let type_key: String = resolve::key(kind.unwrap_or_default()).chars().take(PREDICATE_CHARS).collect();
    Ok(Mention { name, key, type_key: type_key.trim_end().to_owned() })
}

/// A literal of a type that has its value.
fn typed(value: String, datatype: Option<&str>) -> Result<Object, &'static str> {
    let datatype = match datatype.map(str::trim).filter(|datatype| !datatype.is_empty()) {
        None => XSD_STRING.to_owned(),
        // Models forget the prefix.
        Some(name) if !name.contains(':') => format!("xsd:{name}"),
        Some(name) => name.to_owned(),
    };
    let name = datatype.strip_prefix("xsd:").or_else(|| datatype.strip_prefix(XSD));
    let is_of_xsd = name.is_some_and(|name| {
        (1..=TYPE_CHARS).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_alphabetic())
    });
    let is_blank = value.trim().is_empty();
    if !is_of_xsd
        || is_blank
        || value.contains('\0')
        || value.len() > LITERAL_BYTES
        || literal(&value, Some(&datatype), None, IllTyped::Refused).is_err()
    {
        return Err("bad_literal");
    }
    Ok(Object::Literal { value, datatype })
}

/// A moment by its year, month, day or time, at the precision of the store; `None` for a blank.
fn moment(text: &str) -> Result<Option<DateTime<Utc>>, &'static str> {
    let text = text.trim();
    if text.is_empty() || text.eq_ignore_ascii_case("null") {
        return Ok(None);
    }
    let day = |text: &str| NaiveDate::parse_from_str(text, "%Y-%m-%d").ok();
    let is_short = text.len() <= 10 && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
    let begun = match text.len() {
        _ if !is_short => None,
        4 => day(&format!("{text}-01-01")),
        7 => day(&format!("{text}-01")),
        10 => day(text),
        _ => None,
    };
    let begun = begun.and_then(|day| day.and_hms_opt(0, 0, 0)).map(|begun| begun.and_utc());
    let moment = begun.or_else(|| text.parse::<DateTime<Utc>>().ok()).map(|moment| moment.trunc_subsecs(6));
    moment.filter(|moment| Constraint::Moment.check("time", moment).is_ok()).map(Some).ok_or("bad_time")
}

/// A predicate's name as it is compared and made: words in small letters with underscores between them.
pub fn predicate_key(name: &str) -> String {
    let name = name.trim();
    let name =
        name.strip_prefix(crate::store::extraction::NAMESPACE).and_then(|rest| rest.strip_prefix(':')).unwrap_or(name);
    let (mut key, mut was_small) = (String::new(), false);
    for character in name.chars() {
        if character.is_alphanumeric() {
            if character.is_uppercase() && was_small {
                key.push('_');
            }
            key.extend(character.to_lowercase());
        } else if !key.is_empty() && !key.ends_with('_') {
            key.push('_');
        }
        was_small = character.is_lowercase() || character.is_numeric();
    }
    let key: String = key.trim_end_matches('_').chars().take(PREDICATE_CHARS).collect();
    key.trim_end_matches('_').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &str =
        "Ada Lovelace has worked  for Acme Corp\nsince March 2024. She earns 12.50 pounds. Canada is far away.";

    fn fact(changes: Value) -> Value {
        let mut fact = json!({
            "subject": "Ada Lovelace", "subject_type": "Person", "predicate": "worksFor", "object": "Acme Corp", "object_kind": "entity", "object_type": null,
            "datatype": null, "fact_type": "dynamic", "valid_from": "2024-03", "valid_until": null, "confidence": 0.9,
            "quote": "Ada Lovelace has worked for Acme Corp",
        });
        for (name, value) in changes.as_object().unwrap() {
            fact[name] = value.clone();
        }
        fact
    }

    fn checked(said: Vec<Value>, makes_predicates: bool) -> (Vec<Checked>, BTreeMap<&'static str, usize>) {
        let predicates = HashMap::from([("works_for".to_owned(), PredicateId(7))]);
        check(said, &Rules { text: TEXT, predicates: &predicates, makes_predicates, threshold: 0.5, most: 3 })
    }

    #[test]
    fn a_fact_is_kept_with_the_words_of_the_text() {
        let (kept, dropped) = checked(vec![fact(json!({}))], false);
        assert!(dropped.is_empty(), "{dropped:?}");
        let one = &kept[0];
        assert_eq!(
            (one.quote.as_str(), &one.predicate),
            ("Ada Lovelace has worked  for Acme Corp", &Predicate::Known(PredicateId(7)))
        );
        assert_eq!((one.subject.key.as_str(), one.subject.type_key.as_str()), ("ada lovelace", "person"));
        assert_eq!(one.valid_from.unwrap().to_rfc3339(), "2024-03-01T00:00:00+00:00");
    }

    #[test]
    fn a_fact_is_dropped_for_its_reason() {
        for (changes, reason) in [
            (json!({"quote": "Ada Lovelace works for Acme Corp"}), "quote_not_found"),
            (json!({"quote": " "}), "quote_not_found"),
            (json!({"subject": "Ada Byron"}), "name_not_in_text"),
            (json!({"subject": "nada"}), "name_not_in_text"),
            (json!({"object": "..."}), "name_not_in_text"),
            (json!({"subject": "She"}), "pronoun"),
            (json!({"object": "ADA  lovelace"}), "self_loop"),
            (json!({"valid_from": "soon"}), "bad_time"),
            (json!({"valid_from": "2024-02-30"}), "bad_time"),
            (json!({"valid_until": "2023"}), "bad_time"),
            (json!({"valid_from": "-9999-01-01T00:00:00Z"}), "bad_time"),
            (json!({"valid_from": "+12000-01-01T00:00:00Z"}), "bad_time"),
            (
                json!({"valid_from": "2024-03-01T00:00:00.0000001Z", "valid_until": "2024-03-01T00:00:00.0000002Z"}),
                "bad_time",
            ),
            (json!({"valid_from": "2024-05-05T10:20:60Z", "valid_until": "2024-05-05T10:21:00Z"}), "bad_time"),
            (json!({"fact_type": "atemporal"}), "bad_time"),
            (json!({"object_kind": "literal", "object": "soon", "datatype": "xsd:date"}), "bad_literal"),
            (json!({"object_kind": "literal", "object": "x", "datatype": "http://elsewhere/type"}), "bad_literal"),
            (json!({"object_kind": "literal", "object": "a\u{0}b"}), "bad_literal"),
            (json!({"object_kind": "literal", "object": "x", "datatype": "xsd:a\u{0}b"}), "bad_literal"),
            (json!({"object_kind": "literal", "object": "x", "datatype": "xsd:a b> <c"}), "bad_literal"),
            (json!({"subject": "Ada ".repeat(2_500)}), "name_not_in_text"),
            (json!({"quote": "Ada Lovelace has worked for Acme Corp".repeat(1_000)}), "quote_not_found"),
            (json!({"confidence": 0.49}), "below_threshold"),
            (json!({"confidence": null}), "below_threshold"),
            (json!({"predicate": "lives in"}), "unknown_predicate"),
            (json!({"predicate": "?!"}), "bad_form"),
            (json!({"object": ["Acme Corp"]}), "bad_form"),
            (json!({"fact_type": "eternal"}), "bad_form"),
            (json!({"quote": null}), "bad_form"),
        ] {
            let (kept, dropped) = checked(vec![fact(changes.clone())], false);
            assert_eq!((kept.len(), dropped), (0, BTreeMap::from([(reason, 1)])), "{changes}");
        }
        let (kept, _) = checked(
            vec![fact(
                json!({"predicate": "extracted:Lives  in", "object": 12.5, "object_kind": "literal", "datatype": "decimal"}),
            )],
            true,
        );
        assert_eq!(kept[0].predicate, Predicate::New("lives_in".to_owned()));
        assert_eq!(kept[0].object, Object::Literal { value: "12.5".to_owned(), datatype: "xsd:decimal".to_owned() });
    }

    #[test]
    fn what_nobody_sees_in_a_name_is_not_in_its_title() {
        for name in
            ["Ada\u{0}Lovelace", "\u{202e}Ada Love\u{200f}lace", "Ada\r\nLovelace", "\u{2066}Ada Lovelace\u{2069}"]
        {
            let (kept, dropped) = checked(vec![fact(json!({"subject": name}))], false);
            assert!(dropped.is_empty(), "{name:?}: {dropped:?}");
            assert_eq!((kept[0].subject.name.as_str(), kept[0].subject.key.as_str()), ("Ada Lovelace", "ada lovelace"));
        }
    }

    #[test]
    fn the_surest_facts_are_kept_and_of_equal_ones_the_first() {
        let said = [0.8, 0.9, 0.8, 1.0, 0.8].map(|confidence| fact(json!({"confidence": confidence}))).to_vec();
        let (kept, dropped) = checked(said, false);
        assert_eq!(kept.iter().map(|fact| fact.confidence).collect::<Vec<_>>(), [0.8, 0.9, 1.0]);
        assert_eq!(dropped, BTreeMap::from([("too_many", 2)]));
    }

    #[test]
    fn an_answer_is_read_as_far_as_it_is_whole() {
        let whole = json!({"facts": [{"a": "]}"}, {"b": 2}]}).to_string();
        assert_eq!(read(&format!("Sure:\n```json\n{whole}\n```"), false).unwrap().len(), 2);
        assert_eq!(read("[{\"a\": 1}]", false).unwrap().len(), 1);
        for bad in ["", "I cannot.", "{\"facts\": 3}", "{\"fact\": []}", &whole[..whole.len() - 4]] {
            assert!(read(bad, false).is_err(), "{bad}");
        }
        for at in 0..whole.len() {
            let facts = read(&whole[..at], true).map_or(0, |facts| facts.len());
            let ends = [whole.find("},").unwrap() + 1, whole.len() - 2];
            assert_eq!(facts, ends.iter().filter(|end| at >= **end).count(), "{}", &whole[..at]);
        }
        assert!(read(&"[".repeat(1 << 20), false).is_err(), "a deep answer is an error, and no overflow");
        assert!(read(&"[".repeat(1 << 20), true).is_ok_and(|facts| facts.is_empty()));
    }

    proptest! {
        #[test]
        fn no_answer_brings_a_fact_without_a_quote_that_the_text_has(quote in "[Adaw Lovelckmrh\\n]{0,30}", subject in "\\PC{0,20}", noise in "\\PC{0,60}") {
            let said = read(&noise, true).unwrap_or_default();
            let (kept, _) = checked(said.into_iter().chain([fact(json!({"quote": quote, "subject": subject}))]).collect(), true);
            for fact in kept {
                prop_assert!(!fact.quote.trim().is_empty() && TEXT.contains(&fact.quote));
            }
        }
    }
}
