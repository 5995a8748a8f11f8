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
    collections::{BTreeMap, HashMap},
    fmt,
    sync::{Arc, LazyLock, Mutex, OnceLock},
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
                validate(&content["schema"], &value, broken);
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

/// A schema as it was read, once, because tests hold every answer against some.
#[derive(Default)]
struct Schema {
    rules: Vec<(&'static str, &'static Value, Rule)>,
    /// Schemas that hold of the same value.
    branches: Vec<Part>,
    entries: Option<Part>,
    members: HashMap<&'static str, Part>,
    others: Others,
}

/// What a keyword demands of a value.
enum Rule {
    Types(Vec<fn(&Value) -> bool>),
    Words(&'static [Value]),
    AtLeast(f64),
    AtMost(f64),
    Above(f64),
    LeastLength(u64),
    MostLength(u64),
    LeastEntries(u64),
    MostEntries(u64),
    Required(Vec<&'static str>),
    Time,
    Base64,
    Name,
    One(Vec<Part>),
    Any(Vec<Part>),
    /// The keyword is not known here.
    Unknown,
}

/// Which members are allowed that no schema names.
#[derive(Default)]
enum Others {
    /// Those that other schemas of the same value name.
    #[default]
    Unsaid,
    Forbidden,
    Allowed,
    As(Part),
}

/// A schema within a schema. It is read when a value first meets it, because a schema may lead back to itself.
struct Part {
    source: &'static Value,
    schema: OnceLock<&'static Schema>,
}

impl Part {
    fn new(source: &'static Value) -> Part {
        Part { source, schema: OnceLock::new() }
    }

    fn schema(&self) -> &'static Schema {
        self.schema.get_or_init(|| Schema::of(self.source))
    }
}

impl Schema {
    /// Reads a schema, unless it was read before.
    fn of(source: &'static Value) -> &'static Schema {
        static READ: Mutex<BTreeMap<usize, &'static Schema>> = Mutex::new(BTreeMap::new());
        let source = resolve(source);
        let mut all = READ.lock().unwrap();
        let read = || -> &'static Schema { Box::leak(Box::new(Schema::read(source))) };
        all.entry(std::ptr::from_ref(source).addr()).or_insert_with(read)
    }

    fn read(source: &'static Value) -> Schema {
        let mut schema = Schema::default();
        for (keyword, wanted) in source.as_object().expect("a schema is an object") {
            let (number, size) = (wanted.as_f64(), wanted.as_u64());
            let list = wanted.as_array().map(Vec::as_slice);
            let parts = || list.unwrap().iter().map(Part::new).collect::<Vec<Part>>();
            let rule = match keyword.as_str() {
                "type" => Rule::Types(match wanted {
                    Value::Array(kinds) => kinds.iter().map(is_of).collect(),
                    kind => vec![is_of(kind)],
                }),
                "enum" => Rule::Words(list.unwrap()),
                "minimum" => Rule::AtLeast(number.unwrap()),
                "maximum" => Rule::AtMost(number.unwrap()),
                "exclusiveMinimum" => Rule::Above(number.unwrap()),
                "minLength" => Rule::LeastLength(size.unwrap()),
                "maxLength" => Rule::MostLength(size.unwrap()),
                "minItems" => Rule::LeastEntries(size.unwrap()),
                "maxItems" => Rule::MostEntries(size.unwrap()),
                "required" => Rule::Required(list.unwrap().iter().map(|name| name.as_str().unwrap()).collect()),
                "format" => match wanted.as_str().unwrap() {
                    "date-time" => Rule::Time,
                    "byte" => Rule::Base64,
                    _ => continue,
                },
                // The only pattern of what is answered.
                "pattern" if *wanted == "^[a-zA-Z0-9_:.-]+$" => Rule::Name,
                "oneOf" => Rule::One(parts()),
                "anyOf" => Rule::Any(parts()),
                "allOf" => {
                    schema.branches = parts();
                    continue;
                }
                "items" => {
                    schema.entries = Some(Part::new(wanted));
                    continue;
                }
                "properties" => {
                    let members = wanted.as_object().unwrap();
                    schema.members = members.iter().map(|(name, of)| (name.as_str(), Part::new(of))).collect();
                    continue;
                }
                "additionalProperties" => {
                    schema.others = match wanted {
                        Value::Bool(true) => Others::Allowed,
                        Value::Bool(false) => Others::Forbidden,
                        of => Others::As(Part::new(of)),
                    };
                    continue;
                }
                "propertyNames" | "description" | "title" | "default" | "example" | "examples" => continue,
                _ => Rule::Unknown,
            };
            schema.rules.push((keyword.as_str(), wanted, rule));
        }
        schema
    }

    /// The schemas of which one, or some, hold of a value.
    fn choices(&self) -> impl Iterator<Item = &Part> {
        self.rules.iter().flat_map(|(_, _, rule)| match rule {
            Rule::One(parts) | Rule::Any(parts) => parts.as_slice(),
            _ => <&[Part]>::default(),
        })
    }
}

/// How to tell whether a value is of a type.
fn is_of(kind: &Value) -> fn(&Value) -> bool {
    match kind.as_str().unwrap() {
        "object" => Value::is_object,
        "array" => Value::is_array,
        "string" => Value::is_string,
        "integer" => |value: &Value| value.is_i64() || value.is_u64(),
        "number" => Value::is_number,
        "boolean" => Value::is_boolean,
        "null" => Value::is_null,
        other => panic!("there is no type {other}"),
    }
}

impl Rule {
    fn holds(&self, value: &Value) -> bool {
        let number = |fits: &dyn Fn(f64) -> bool| value.as_f64().is_none_or(fits);
        let length = |fits: &dyn Fn(u64) -> bool| value.as_str().is_none_or(|text| fits(text.chars().count() as u64));
        let entries = |fits: &dyn Fn(u64) -> bool| value.as_array().is_none_or(|all| fits(all.len() as u64));
        let text = |fits: &dyn Fn(&str) -> bool| value.as_str().is_none_or(fits);
        match self {
            Rule::Types(kinds) => kinds.iter().any(|is_of| is_of(value)),
            Rule::Words(words) => words.contains(value),
            Rule::AtLeast(least) => number(&|number| number >= *least),
            Rule::AtMost(most) => number(&|number| number <= *most),
            Rule::Above(bound) => number(&|number| number > *bound),
            Rule::LeastLength(least) => length(&|length| length >= *least),
            Rule::MostLength(most) => length(&|length| length <= *most),
            Rule::LeastEntries(least) => entries(&|count| count >= *least),
            Rule::MostEntries(most) => entries(&|count| count <= *most),
            Rule::Required(names) => {
                value.as_object().is_none_or(|members| names.iter().all(|name| members.contains_key(*name)))
            }
            Rule::Time => text(&|text| chrono::DateTime::parse_from_rfc3339(text).is_ok()),
            Rule::Base64 => text(&|text| text.len().is_multiple_of(4)),
            Rule::Name => text(&|text| {
                !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_:.-".contains(&byte))
            }),
            Rule::One(choices) => choices.iter().filter(|choice| fits(choice.schema(), value)).count() == 1,
            Rule::Any(choices) => choices.iter().any(|choice| fits(choice.schema(), value)),
            Rule::Unknown => false,
        }
    }
}

/// Where a value is in an answer. It is written out only if something is wrong there.
enum Place<'a> {
    Top,
    Member(&'a Place<'a>, &'a str),
    Entry(&'a Place<'a>, usize),
}

impl fmt::Display for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Top => Ok(()),
            Place::Member(above, name) => write!(f, "{above}/{name}"),
            Place::Entry(above, at) => write!(f, "{above}/{at}"),
        }
    }
}

/// What differs from a schema: each way, or only whether there is one.
enum Broken<'a> {
    Told(&'a mut Vec<String>),
    Seen(bool),
}

impl Broken<'_> {
    fn say(&mut self, text: impl FnOnce() -> String) {
        match self {
            Broken::Told(all) => all.push(text()),
            Broken::Seen(any) => *any = true,
        }
    }
}

/// Reports each way in which a value differs from its schema, including members that no schema names and keywords that
/// are not known here.
pub fn validate(schema: &'static Value, value: &Value, broken: &mut Vec<String>) {
    whole(Schema::of(schema), value, &Place::Top, &mut Broken::Told(broken));
}

fn whole(schema: &'static Schema, value: &Value, place: &Place<'_>, broken: &mut Broken<'_>) {
    shape(schema, value, place, broken);
    let Value::Object(members) = value else { return };
    let mut schemas = Vec::new();
    let is_closed = collect(schema, value, &mut schemas);
    if !is_closed || schemas.iter().all(|schema| schema.members.is_empty()) {
        return;
    }
    for name in members.keys() {
        if !schemas.iter().any(|schema| schema.members.contains_key(name.as_str())) {
            broken.say(|| format!("{place}/{name} is not documented"));
        }
    }
}

/// Collects the schemas that hold of a value, and may name its members; returns false if they accept others too.
fn collect(schema: &'static Schema, value: &Value, schemas: &mut Vec<&'static Schema>) -> bool {
    schemas.push(schema);
    let mut is_closed = matches!(schema.others, Others::Unsaid | Others::Forbidden);
    for branch in &schema.branches {
        is_closed &= collect(branch.schema(), value, schemas);
    }
    for choice in schema.choices() {
        if fits(choice.schema(), value) {
            is_closed &= collect(choice.schema(), value, schemas);
        }
    }
    is_closed
}

fn fits(schema: &'static Schema, value: &Value) -> bool {
    let mut broken = Broken::Seen(false);
    shape(schema, value, &Place::Top, &mut broken);
    matches!(broken, Broken::Seen(false))
}

fn shape(schema: &'static Schema, value: &Value, place: &Place<'_>, broken: &mut Broken<'_>) {
    for (keyword, wanted, rule) in &schema.rules {
        if matches!(broken, Broken::Seen(true)) {
            return;
        }
        if !rule.holds(value) {
            broken.say(|| {
                let shown: String = value.to_string().chars().take(200).collect();
                format!("{place}: {shown} breaks `{keyword}`: {wanted}")
            });
        }
    }
    for branch in &schema.branches {
        shape(branch.schema(), value, place, broken);
    }
    match value {
        Value::Array(entries) => {
            let Some(part) = &schema.entries else { return };
            for (at, entry) in entries.iter().enumerate() {
                whole(part.schema(), entry, &Place::Entry(place, at), broken);
            }
        }
        Value::Object(members) => {
            for (name, member) in members {
                let place = Place::Member(place, name);
                match (schema.members.get(name.as_str()), &schema.others) {
                    (Some(part), _) => whole(part.schema(), member, &place, broken),
                    (None, Others::As(part)) => whole(part.schema(), member, &place, broken),
                    (None, Others::Forbidden) => broken.say(|| format!("{place} is not documented")),
                    (None, Others::Unsaid | Others::Allowed) => {}
                }
            }
        }
        _ => {}
    }
}
