//! Checks every answer of a test's service against the contract that it serves: the status, the headers, the media type
//! and the body.
use axum::{
    body::{Body, Bytes, HttpBody},
    extract::{Request, State},
    http::{StatusCode, response::Parts},
    middleware::Next,
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, LazyLock, Mutex},
};
use svc::registry::contract;
use svc_client::Failure;

/// Answers of an app that the contract does not allow.
#[derive(Default)]
pub struct Breaches(Mutex<Vec<String>>);

impl Breaches {
    /// Panics if there was a breach.
    pub fn check(&self) {
        let breaches = self.0.lock().unwrap();
        assert!(breaches.is_empty(), "answers that break the contract:\n{}", breaches.join("\n"));
    }
}

/// A problem of any code: the answer to a request that reaches no operation.
static ANY_PROBLEM: LazyLock<Value> = LazyLock::new(
    || json!({"content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Failure"}}}}),
);

/// Passes an answer on if it keeps the contract; any other becomes a status that no client accepts.
pub async fn hold(State(breaches): State<Arc<Breaches>>, request: Request, next: Next) -> Response {
    let (method, path) = (request.method().as_str().to_ascii_lowercase(), request.uri().path().to_owned());
    let (parts, body) = next.run(request).await.into_parts();
    let mut broken = Vec::new();
    // A streamed answer is passed on as it arrives, and only its head is checked.
    let (bytes, body) = if body.size_hint().exact().is_some() {
        let bytes = axum::body::to_bytes(body, usize::MAX).await.unwrap();
        (Some(bytes.clone()), Body::from(bytes))
    } else {
        (None, body)
    };
    judge(&method, &path, &parts, bytes.as_ref(), &mut broken);
    if broken.is_empty() {
        return Response::from_parts(parts, body);
    }
    let text = format!("{method} {path} {}: {}", parts.status, broken.join("; "));
    eprintln!("{text}");
    breaches.0.lock().unwrap().push(text.clone());
    (StatusCode::from_u16(599).unwrap(), text).into_response()
}

fn judge(method: &str, path: &str, parts: &Parts, bytes: Option<&Bytes>, broken: &mut Vec<String>) {
    let status = parts.status.as_u16();
    let Some(entry) = entry(method, path) else {
        // It is a page, or nothing; the contract only covers the errors. Those of a message of /mcp are JSON-RPC's.
        let is_rpc = path == "/mcp"
            && bytes.is_some_and(|bytes| bytes.starts_with(b"{\"error\":") || bytes.starts_with(b"{\"jsonrpc\":"));
        if status >= 400 && !is_rpc {
            body(&ANY_PROBLEM, parts, bytes, broken);
        }
        return;
    };
    let Some(response) = entry["responses"].get(status.to_string()) else {
        return broken.push("the status is not documented".to_owned());
    };
    let response = resolve(response);
    for name in response["headers"].as_object().into_iter().flatten().map(|(name, _)| name) {
        let is_optional = ["Retry-After", "RateLimit", "RateLimit-Policy"].contains(&name.as_str());
        if !is_optional && !parts.headers.contains_key(name.to_ascii_lowercase()) {
            broken.push(format!("the header {name} is missing"));
        }
    }
    body(response, parts, bytes, broken);
}

fn body(response: &'static Value, parts: &Parts, bytes: Option<&Bytes>, broken: &mut Vec<String>) {
    let media_type = parts.headers.get("content-type").and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media_type = media_type.split(';').next().unwrap_or_default();
    match (response.get("content").map(|content| content.get(media_type).or(content.get("*/*"))), bytes) {
        (None, Some(bytes)) if bytes.is_empty() => {}
        (None, _) => broken.push("a body where none is documented".to_owned()),
        (Some(None), _) => broken.push(format!("`{media_type}` is not documented")),
        (Some(Some(content)), Some(bytes)) if media_type.ends_with("json") => match serde_json::from_slice(bytes) {
            Ok(value) => {
                validate(&content["schema"], &value, "", broken);
                if media_type == "application/problem+json" {
                    members(value, broken);
                }
            }
            Err(error) => broken.push(format!("the body is no JSON: {error}")),
        },
        (Some(Some(_)), _) => {}
    }
}

/// Reports the members of a problem that its code does not list.
fn members(problem: Value, broken: &mut Vec<String>) {
    let Ok(failure) = serde_json::from_value::<Failure>(problem) else { return };
    let listed = failure.code.members();
    for name in failure.members.keys().filter(|name| !["remedy", "retry_after"].contains(&name.as_str())) {
        if !listed.contains(&name.as_str()) {
            let code = failure.code.as_str();
            broken.push(format!("`{code}` does not list the member `{name}`: add it in client/src/failure.rs"));
        }
    }
}

/// The segments of a path of the contract, and what it has.
type Path = (Vec<&'static str>, &'static Value);

/// The paths of the contract by their number of segments. A path without a placeholder goes before one with it.
static PATHS: LazyLock<BTreeMap<usize, Vec<Path>>> = LazyLock::new(|| {
    let mut paths: BTreeMap<usize, Vec<Path>> = BTreeMap::new();
    for (template, item) in contract()["paths"].as_object().into_iter().flatten() {
        let segments: Vec<&str> = template.split('/').collect();
        paths.entry(segments.len()).or_default().push((segments, item));
    }
    let has_placeholder = |(segments, _): &Path| segments.iter().any(|segment| segment.starts_with('{'));
    paths.values_mut().for_each(|paths| paths.sort_by_key(has_placeholder));
    paths
});

/// The entry of the operation that a path leads to.
fn entry(method: &str, path: &str) -> Option<&'static Value> {
    let segments: Vec<&str> = path.split('/').collect();
    let fits = |template: &[&str]| {
        template.iter().zip(&segments).all(|(part, segment)| part.starts_with('{') || part == segment)
    };
    let of_its_length = PATHS.get(&segments.len())?.iter();
    of_its_length.filter(|(template, _)| fits(template)).map(|(_, item)| &item[method]).find(|entry| !entry.is_null())
}

/// What a reference leads to.
pub fn resolve(value: &'static Value) -> &'static Value {
    match value["$ref"].as_str() {
        Some(reference) => resolve(contract().pointer(&reference[1..]).expect("every reference resolves")),
        None => value,
    }
}

/// Reports each way in which a value differs from its schema, including members that no schema names and keywords that
/// are not known here.
pub fn validate(schema: &'static Value, value: &Value, path: &str, broken: &mut Vec<String>) {
    shape(schema, value, path, broken);
    let mut known = BTreeSet::new();
    if let Value::Object(members) = value
        && names(schema, value, &mut known)
        && !known.is_empty()
    {
        let unknown = members.keys().filter(|name| !known.contains(name.as_str()));
        broken.extend(unknown.map(|name| format!("{path}/{name} is not documented")));
    }
}

/// Collects the members that a schema names; returns false if it accepts others too.
fn names(schema: &'static Value, value: &Value, known: &mut BTreeSet<&'static str>) -> bool {
    let schema = resolve(schema);
    known.extend(schema["properties"].as_object().into_iter().flatten().map(|(name, _)| name.as_str()));
    let mut closed = schema.get("additionalProperties").is_none_or(|more| *more == false);
    for branch in schema["allOf"].as_array().into_iter().flatten() {
        closed &= names(branch, value, known);
    }
    for choice in ["oneOf", "anyOf"].into_iter().filter_map(|key| schema[key].as_array()).flatten() {
        if fits(choice, value) {
            closed &= names(choice, value, known);
        }
    }
    closed
}

fn fits(schema: &'static Value, value: &Value) -> bool {
    let mut broken = Vec::new();
    shape(schema, value, "", &mut broken);
    broken.is_empty()
}

fn shape(schema: &'static Value, value: &Value, path: &str, broken: &mut Vec<String>) {
    let schema = resolve(schema);
    let Some(keywords) = schema.as_object() else { return broken.push(format!("{path}: {schema} is no schema")) };
    let mut say = |text: String| broken.push(format!("{path}: {text}"));
    for (keyword, wanted) in keywords {
        let number =
            |fits: fn(f64, f64) -> bool| value.as_f64().is_none_or(|value| fits(value, wanted.as_f64().unwrap()));
        let length = value.as_str().map(|text| text.chars().count() as u64);
        let entries = value.as_array().map(|entries| entries.len() as u64);
        let holds = match keyword.as_str() {
            "type" => match wanted {
                Value::Array(kinds) => kinds.iter().any(|kind| is_of(value, kind)),
                kind => is_of(value, kind),
            },
            "enum" => wanted.as_array().unwrap().contains(value),
            "minimum" => number(|value, least| value >= least),
            "maximum" => number(|value, most| value <= most),
            "exclusiveMinimum" => number(|value, least| value > least),
            "minLength" => length.is_none_or(|length| length >= wanted.as_u64().unwrap()),
            "maxLength" => length.is_none_or(|length| length <= wanted.as_u64().unwrap()),
            "minItems" => entries.is_none_or(|count| count >= wanted.as_u64().unwrap()),
            "maxItems" => entries.is_none_or(|count| count <= wanted.as_u64().unwrap()),
            "required" => value.as_object().is_none_or(|members| {
                wanted.as_array().unwrap().iter().all(|name| members.contains_key(name.as_str().unwrap()))
            }),
            "format" => value.as_str().is_none_or(|text| match wanted.as_str().unwrap() {
                "date-time" => chrono::DateTime::parse_from_rfc3339(text).is_ok(),
                "byte" => text.len().is_multiple_of(4),
                _ => true,
            }),
            // The only pattern of what is answered.
            "pattern" if *wanted == "^[a-zA-Z0-9_:.-]+$" => value.as_str().is_none_or(|text| {
                !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_:.-".contains(&byte))
            }),
            "oneOf" => wanted.as_array().unwrap().iter().filter(|choice| fits(choice, value)).count() == 1,
            "anyOf" => wanted.as_array().unwrap().iter().any(|choice| fits(choice, value)),
            "properties" | "items" | "additionalProperties" | "allOf" | "propertyNames" => true,
            "description" | "title" | "default" | "example" | "examples" => true,
            _ => false,
        };
        if !holds {
            let shown: String = value.to_string().chars().take(200).collect();
            say(format!("{shown} breaks `{keyword}`: {wanted}"));
        }
    }
    for branch in schema["allOf"].as_array().into_iter().flatten() {
        shape(branch, value, path, broken);
    }
    match value {
        Value::Array(entries) => {
            let Some(items) = schema.get("items") else { return };
            for (place, entry) in entries.iter().enumerate() {
                validate(items, entry, &format!("{path}/{place}"), broken);
            }
        }
        Value::Object(members) => {
            for (name, member) in members {
                let path = format!("{path}/{name}");
                match (schema["properties"].get(name), schema.get("additionalProperties")) {
                    (Some(schema), _) => validate(schema, member, &path, broken),
                    (None, Some(more @ Value::Object(_))) => validate(more, member, &path, broken),
                    (None, Some(Value::Bool(false))) => broken.push(format!("{path} is not documented")),
                    _ => {}
                }
            }
        }
        _ => {}
    }
}

fn is_of(value: &Value, kind: &Value) -> bool {
    match kind.as_str().unwrap() {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        other => panic!("there is no type {other}"),
    }
}
