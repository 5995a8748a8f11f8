//! Schemas of the contract as tools need them: one object without references, as short as it can be, because a language model
//! reads all of it.
use serde_json::{Map, Value, json};

/// What tools neither take nor show: vectors say nothing to a language model, and counts and the finer means of a search are for people who
/// narrow it by hand.
pub const HIDDEN: &[&str] = &[
    "include_embed",
    "include_scores",
    "explain",
    "explanation",
    "forgiving",
    "searched_instead",
    "embed",
    "facets",
    "weights",
    "fusion",
    "mmr_lambda",
    "rerank_method",
    "rerank_top",
    "per_group",
    "recency_half_life_days",
    "index",
    "fields",
    "keys",
    "sort",
    "sort_order",
    "sort_top",
    "sorted",
    "with_whole",
    "expand",
    "expanded_by",
];

/// A schema of the contract with everything in it that it refers to.
pub fn argument(contract: &Value, schema: &Value) -> Value {
    plain(inlined(contract, schema, &mut Vec::new()), 0, usize::MAX)
}

/// The schema of an answer, with objects in it described to this depth: 1 for the fields of the answer itself.
pub fn answer(contract: &Value, schema: &Value, depth: usize) -> Value {
    plain(inlined(contract, schema, &mut Vec::new()), 0, depth)
}

/// `within` are the references that lead here: a schema within itself is not shown again.
fn inlined<'a>(contract: &'a Value, schema: &'a Value, within: &mut Vec<&'a str>) -> Value {
    match schema {
        Value::Object(members) => {
            let mut own: Map<String, Value> = members
                .iter()
                .filter(|(name, _)| !["$ref", "allOf"].contains(&name.as_str()))
                .map(|(name, member)| (name.clone(), inlined(contract, member, within)))
                .collect();
            let reference =
                members.get("$ref").and_then(Value::as_str).and_then(|reference| reference.strip_prefix('#'));
            if let Some(reference) = reference.filter(|reference| !within.contains(reference))
                && let Some(part) = contract.pointer(reference)
            {
                within.push(reference);
                merge(&mut own, inlined(contract, part, within));
                within.pop();
            }
            for part in members.get("allOf").and_then(Value::as_array).into_iter().flatten() {
                merge(&mut own, inlined(contract, part, within));
            }
            Value::Object(own)
        }
        Value::Array(entries) => entries.iter().map(|entry| inlined(contract, entry, within)).collect(),
        other => other.clone(),
    }
}

/// Adds what a part of a schema says. What the schema says itself stays.
fn merge(own: &mut Map<String, Value>, part: Value) {
    let Value::Object(part) = part else { return };
    for (name, value) in part {
        match (own.get_mut(&name), value) {
            (Some(Value::Object(mine)), Value::Object(more)) if name == "properties" => {
                for (name, schema) in more {
                    mine.entry(name).or_insert(schema);
                }
            }
            (Some(Value::Array(mine)), Value::Array(more)) if name == "required" => mine.extend(more),
            (Some(_), _) => {}
            (None, value) => {
                own.insert(name, value);
            }
        }
    }
}

/// Leaves out what says nothing: the width of numbers, hidden fields, and what is in objects deeper than `depth`. Of an answer it
/// leaves names and types, since a model sees the answer itself; of what is told of an argument, the first sentence. How long a text or a list may be, the service says when one is too long.
fn plain(schema: Value, level: usize, depth: usize) -> Value {
    let Value::Object(mut members) = without_choice(schema) else { return Value::Bool(true) };
    let is_of_answer = depth != usize::MAX;
    for name in ["minimum", "maximum"] {
        let widest = [json!(i64::MIN), json!(i64::MAX), json!(i32::MIN), json!(i32::MAX)];
        if members.get(name).is_some_and(|bound| is_of_answer || widest.contains(bound)) {
            members.remove(name);
        }
    }
    if members.get("format").is_some_and(|format| is_of_answer || format != "date-time") {
        members.remove("format");
    }
    if let Some(Value::String(text)) = members.get_mut("description") {
        *text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        if level > 1
            && let Some(end) = text.find(". ")
        {
            text.truncate(end + 1);
        }
    }
    for name in ["propertyNames", "pattern", "minLength", "maxLength", "minItems", "maxItems"] {
        members.remove(name);
    }
    if members.get("default").is_some_and(Value::is_null) {
        members.remove("default");
    }
    if !is_of_answer {
        without_null(&mut members);
    }
    if is_of_answer {
        // What is true of every answer need not be told.
        members.remove("required");
        members.remove("additionalProperties");
        members.remove("description");
        members.remove("enum");
    }
    if let Some(Value::Object(fields)) = members.remove("properties")
        && level < depth
    {
        let fields = fields.into_iter().filter(|(name, _)| !HIDDEN.contains(&name.as_str()));
        let fields: Map<String, Value> = fields.map(|(name, field)| (name, plain(field, level + 1, depth))).collect();
        members.insert("properties".to_owned(), Value::Object(fields));
    } else {
        members.remove("required");
    }
    if let Some(items) = members.remove("items") {
        members.insert("items".to_owned(), plain(items, level, depth));
    }
    for name in ["oneOf", "anyOf"] {
        if let Some(Value::Array(choices)) = members.remove(name) {
            let choices = choices.into_iter().map(|choice| plain(choice, level, depth)).collect();
            members.insert(name.to_owned(), choices);
        }
    }
    Value::Object(members)
}

/// The first sentence of a text, on one line.
pub fn sentence(text: &str) -> String {
    let mut text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if let Some(end) = text.find(". ") {
        text.truncate(end + 1);
    }
    text
}

/// An argument without null: whoever has no value leaves the argument out, and some clients take one type at a time only.
fn without_null(members: &mut Map<String, Value>) {
    if let Some(Value::Array(words)) = members.get_mut("enum") {
        words.retain(|word| !word.is_null());
    }
    let Some(Value::Array(kinds)) = members.get_mut("type") else { return };
    kinds.retain(|kind| kind != "null");
    if let [kind] = kinds.as_slice() {
        let kind = kind.clone();
        members.insert("type".to_owned(), kind);
    }
}

/// A schema of something that may be null, as one that has null among its types.
fn without_choice(schema: Value) -> Value {
    let Value::Object(mut members) = schema else { return schema };
    for name in ["oneOf", "anyOf"] {
        let Some(Value::Array(choices)) = members.get(name) else { continue };
        let [one, other] = choices.as_slice() else { continue };
        let null = json!({"type": "null"});
        let mut kept = match (one == &null, other == &null) {
            (true, false) => other.clone(),
            (false, true) => one.clone(),
            _ => continue,
        };
        let Some(kind) = kept["type"].as_str().map(str::to_owned) else { continue };
        kept["type"] = json!([kind, "null"]);
        if let Some(Value::Array(words)) = kept.get_mut("enum") {
            words.push(Value::Null);
        }
        members.remove(name);
        merge(&mut members, kept);
        return Value::Object(members);
    }
    Value::Object(members)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_needs_nothing_but_itself() {
        let contract = json!({"components": {"schemas": {
            "Page": {"type": "object", "properties": {"rows": {"type": "array", "items": {"$ref": "#/components/schemas/Found"}}}},
            "Found": {"description": "one\nrow", "allOf": [
                {"$ref": "#/components/schemas/Row"},
                {"type": "object", "required": ["score"], "properties": {"score": {"type": "number"}}},
            ]},
            "Row": {"type": "object", "required": ["id"], "properties": {
                "id": {"type": "integer", "format": "int64", "minimum": i64::MIN, "maximum": 7},
                "embed": {"type": "array", "items": {"type": "number"}},
                "state": {"oneOf": [{"$ref": "#/components/schemas/State"}, {"type": "null"}]},
                "more": {"type": "object", "properties": {"deep": {"type": "string"}}, "required": ["deep"]},
            }},
            "State": {"type": "string", "enum": ["a", "b"]},
        }}});
        let page = json!({"$ref": "#/components/schemas/Page"});
        let row = |id: Value, state: Value, more: Value| {
            json!({"type": "object", "properties": {"rows": {"type": "array", "items": {
                "type": "object", "required": ["id", "score"], "description": "one row",
                "properties": {"id": id, "state": state, "more": more, "score": {"type": "number"}},
            }}}})
        };
        let deep = json!({"type": "object", "properties": {"deep": {"type": "string"}}, "required": ["deep"]});
        assert_eq!(
            argument(&contract, &page),
            row(json!({"type": "integer", "maximum": 7}), json!({"type": "string", "enum": ["a", "b"]}), deep)
        );
        let state = json!({"type": ["string", "null"]});
        let mut told = row(json!({"type": "integer"}), state, json!({"type": "object"}));
        if let Some(items) = told["properties"]["rows"]["items"].as_object_mut() {
            items.retain(|name, _| !["required", "description"].contains(&name.as_str()));
        }
        assert_eq!(answer(&contract, &page, 2), told);
    }

    #[test]
    fn a_schema_that_contains_itself_ends() {
        let contract = json!({"a": {"type": "object", "properties": {"again": {"$ref": "#/a"}}}});
        assert!(argument(&contract, &json!({"$ref": "#/a"})).to_string().len() < 2000);
    }
}
