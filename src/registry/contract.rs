//! The contract as it is served: the rows of the table as one OpenAPI document.
use super::{Mounted, Schemas, lifetime, registry};
use crate::{
    ingest::options::{self, OptionGroup},
    service::Service,
};
use serde_json::{Map, Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::OnceLock,
};
use svc_client::{Access, Code, Described, Failure, Meta, Need, OperationInfo, VERSION, constraint::Constraint};
use utoipa::openapi::{self, HttpMethod, Paths};

/// What the families of operations are about, by the first segment of their paths.
const FAMILIES: &[(&str, &str)] = &[
    ("ingest", "Files that are being ingested."),
    ("documents", "The nodes of the tree."),
    ("search", "Finding documents."),
    ("events", "What happens to the documents that a caller may read."),
    ("webhooks", "Addresses that are called with events."),
    ("access", "Principals, their tokens and grants, and the record of who changed them."),
    ("runner", "Vectors for texts, for workers and services that load no model."),
    ("admin", "The queue and the fleet, for the operator of the service."),
    ("health", "Whether the process is alive."),
    ("ready", "Whether the service can do its work."),
    ("metrics", "Measurements in Prometheus' text form."),
    ("openapi", "This contract."),
];

/// The contract, made once.
pub fn contract() -> &'static Value {
    static CONTRACT: OnceLock<Value> = OnceLock::new();
    CONTRACT.get_or_init(|| build(&registry(), &[]))
}

/// The contract of a service, whose registered task types may have options.
pub fn contract_of(service: &Service) -> Value {
    match service.task_types.groups() {
        [] => contract().clone(),
        groups => build(&registry(), groups),
    }
}

pub(super) fn build(rows: &[Mounted], registered: &[&OptionGroup]) -> Value {
    let mut paths = Paths::new();
    let mut schemas: Schemas = vec![("Failure".to_owned(), <Failure as utoipa::PartialSchema>::schema())];
    <Failure as utoipa::ToSchema>::schemas(&mut schemas);
    let mut answers = Vec::new();
    for row in rows {
        let info = &row.form.info;
        let entry = (row.describe)(&mut schemas).operation_id(Some(info.name)).summary(Some(info.summary()));
        paths.add_path_operation(info.path, vec![http_method(&info.method)], entry.build());
        answers.push(row.forms().flat_map(|form| (form.describe)(&mut schemas)).collect::<Vec<_>>());
    }
    let mut components = openapi::ComponentsBuilder::new();
    for (name, schema) in schemas {
        components = components.schema(name, schema);
    }
    let document = openapi::OpenApiBuilder::new().paths(paths).components(Some(components.build())).build();
    let mut document = serde_json::to_value(document).unwrap_or_default();
    document["info"] = json!({
        "title": "svc", "version": VERSION, "description": env!("CARGO_PKG_DESCRIPTION"),
        "license": {"name": "MIT OR Apache-2.0", "identifier": env!("CARGO_PKG_LICENSE")},
        "contact": {"name": "The maintainers of svc"},
    });
    document["servers"] = json!([{"url": "/", "description": "The service that serves this document"}]);
    document["tags"] = FAMILIES.iter().map(|(name, about)| json!({"name": name, "description": about})).collect();
    document["components"]["securitySchemes"] = json!({
        "bearer": {"type": "http", "scheme": "bearer", "description": "The owner token, which is SVC_API_TOKEN of the service, or a principal's token, which the owner issues."},
        "runner": {"type": "http", "scheme": "bearer", "description": "The key of the runner: SVC_RUNNER_KEY of the service."},
    });
    document["components"]["headers"] = headers();
    for (row, answers) in rows.iter().zip(answers) {
        complete(&mut document, row, answers, registered);
    }
    document
}

/// Adds to an operation's entry what its row says and its types do not.
fn complete(document: &mut Value, row: &Mounted, answers: Vec<Described>, registered: &[&OptionGroup]) {
    let info = &row.form.info;
    let Some(mut entry) = document.pointer_mut(&entry_pointer(info)).map(Value::take) else { return };
    for (name, constraint) in (row.constraints.parameters)() {
        if let Some(schema) = parameter(&mut entry, name) {
            constrain(schema, &constraint);
        }
    }
    for parameter in entry.get_mut("parameters").and_then(Value::as_array_mut).into_iter().flatten() {
        bound(parameter);
        // A parameter is either present or absent: an address has no null.
        if let Some(schema) = parameter.get_mut("schema") {
            without_null(schema);
        }
    }
    if let Some(media) = entry.pointer_mut("/requestBody/content/multipart~1form-data") {
        media["schema"]["properties"]["options"] = options::schema(registered);
        media["encoding"] = json!({"options": {"contentType": "application/json"}});
    }
    if let Some(body) = entry.pointer("/requestBody/content/application~1json/schema").cloned() {
        for (name, constraint) in (row.constraints.body)() {
            if let Some(schema) = property(document, &body, name) {
                constrain(schema, &constraint);
            }
        }
        if let Some(schema) = property(document, &body, "options") {
            *schema = options::schema(registered);
        }
        bound_all(document, &body);
    }
    let heeded: BTreeSet<&str> = row.forms().flat_map(|form| (form.heeds)()).collect();
    let known = Meta::headers();
    for header in known.iter().filter(|header| heeded.contains(header.name.as_str())) {
        let parameter = json!({
            "name": title_case(header.name.as_str()), "in": "header", "description": header.about, "required": false,
            "schema": {"type": "string"},
        });
        match entry["parameters"].as_array_mut() {
            Some(parameters) => parameters.push(parameter),
            None => entry["parameters"] = json!([parameter]),
        }
    }
    let mut answered = Map::new();
    for Described { status, response, headers } in answers {
        let mut response = serde_json::to_value(response).unwrap_or_default();
        response["headers"] = common_headers();
        for header in headers {
            response["headers"][header] = json!({"$ref": format!("#/components/headers/{header}")});
        }
        // The two forms of a row may share a status; their media types differ.
        let place = answered.entry(status.to_string()).or_insert(Value::Null);
        match (place.get_mut("content").and_then(Value::as_object_mut), response.get("content")) {
            (Some(content), Some(Value::Object(more))) => content.extend(more.clone()),
            _ => *place = response,
        }
    }
    let mut by_status: BTreeMap<u16, Vec<Code>> = BTreeMap::new();
    for code in refusals(info, &entry) {
        by_status.entry(code.status()).or_default().push(code);
    }
    for (status, codes) in by_status {
        let name = problem_name(&codes);
        answered.insert(status.to_string(), json!({"$ref": format!("#/components/responses/{name}")}));
        let schema = format!("{name}Problem");
        document["components"]["responses"][&name] = problem_response(status, &codes, &schema);
        document["components"]["schemas"][&schema] = problem_schema(&codes);
    }
    entry["responses"] = Value::Object(answered);
    entry["security"] = match info.access {
        Access::Public => json!([]),
        Access::Metrics => json!([{}, {"bearer": []}]),
        Access::RunnerKey => json!([{"runner": []}]),
        Access::Read | Access::Write | Access::Owner => json!([{"bearer": []}]),
    };
    let family = info.path.split('/').nth(1).unwrap_or_default();
    entry["tags"] = json!([family.trim_end_matches(".json")]);
    entry["description"] = description(info).into();
    if let Some(place) = document.pointer_mut(&entry_pointer(info)) {
        *place = entry;
    }
}

fn entry_pointer(info: &OperationInfo) -> String {
    let path = info.path.replace('~', "~0").replace('/', "~1");
    format!("/paths/{path}/{}", info.method.as_str().to_ascii_lowercase())
}

fn description(info: &OperationInfo) -> String {
    let access = match info.access {
        Access::Public => "Anyone may call it.",
        Access::Metrics => "Anyone may call it if SVC_PUBLIC_METRICS says so, else only the owner.",
        Access::RunnerKey => "It needs the runner's key; a service without such a key answers 501.",
        Access::Read => "It needs a bearer token that may read the documents named in the call.",
        Access::Write => {
            "It needs a bearer token that may write the documents named in the call; a token that may read one of them but not write it gets 403; a call that answers for each document by itself says so in that document's answer."
        }
        Access::Owner => "It needs the owner's bearer token.",
    };
    let need = match info.needs {
        None => "",
        Some(Need::Model) => " A service without an embedding model answers 501.",
        Some(Need::OwnModel) => " A service that uses a runner itself answers 501.",
    };
    format!("{} {access}{need}", info.description())
}

/// Every code that an operation can refuse with, in the order of the table of codes: the codes that follow from its
/// parameters and body, and those that its row names.
fn refusals(info: &OperationInfo, entry: &Value) -> Vec<Code> {
    // Every operation refuses a body or a parameter that it does not expect.
    let mut codes =
        vec![Code::UnsupportedMediaType, Code::InvalidField, Code::VersionMismatch, Code::Internal, Code::Unavailable];
    codes.extend(info.fails);
    let parameters = entry["parameters"].as_array().map(Vec::as_slice).unwrap_or_default();
    let takes = |name: &str| parameters.iter().any(|parameter| parameter["name"] == name);
    let (reads, searches) = (info.method == http::Method::GET, info.searches());
    if info.access != Access::Public {
        codes.extend([Code::Unauthenticated, Code::TooManyRequests]);
    }
    if matches!(info.access, Access::Write | Access::Owner) {
        codes.push(Code::Forbidden);
    }
    if lifetime::only_reads(info) && info.access != Access::RunnerKey {
        codes.push(Code::TimedOut);
    }
    if info.path.contains('{') || takes("parent_id") || searches {
        codes.push(Code::NotFound);
    }
    if !reads && !searches && info.access != Access::RunnerKey {
        codes.push(Code::Conflict);
    }
    if entry.get("requestBody").is_some() {
        // The body may name a parent, an index or the like.
        codes.extend([Code::MalformedRequest, Code::NotFound, Code::RequestTimeout, Code::TooLarge]);
    }
    if info.needs.is_some() || info.access == Access::RunnerKey {
        codes.push(Code::NotConfigured);
    }
    // The statements of an operation that stores something have a time limit.
    if !reads {
        codes.push(Code::TimedOut);
    }
    // A read needs room too, for copies of stored files and where the database sorts; a probe and a runner read neither.
    if !reads || !matches!(info.access, Access::Public | Access::Metrics | Access::RunnerKey) {
        codes.push(Code::StorageFull);
    }
    Code::ALL.iter().copied().filter(|code| codes.contains(code)).collect()
}

fn common_headers() -> Value {
    json!({
        "X-Request-Id": {"$ref": "#/components/headers/X-Request-Id"},
        "X-Svc-Version": {"$ref": "#/components/headers/X-Svc-Version"},
    })
}

fn headers() -> Value {
    let text = |about: &str| json!({"description": about, "schema": {"type": "string"}});
    json!({
        "X-Request-Id": text("Identifies the request in the service's log."),
        "X-Svc-Version": text("The version of the contract; a client of another version is refused with 426."),
        "Location": text("Where the new resource can be read."),
        "WWW-Authenticate": text("`Bearer`."),
        "ETag": text("Identifies this version of the answer; it changes with everything that the answer shows."),
        "Cache-Control": text("Only the caller may store the answer, and must ask again before using it again."),
        "Accept-Ranges": text("`bytes`: a request may ask for a range of bytes."),
        "Content-Disposition": text("`attachment`, with the file's name."),
        "Content-Range": text("The range that is sent and the size of the whole file; in a refusal, only the size."),
        "Content-Length": {"description": "Bytes of the body.", "schema": {"type": "integer", "minimum": 0}},
        "RateLimit": text("If the caller is a principal: the class of the operation, `r` requests that are left of it, and `t` seconds until all are back, or until the next one is taken if none is left."),
        "RateLimit-Policy": text("If the caller is a principal: the class of the operation, with `q` requests in `w` seconds."),
        "Retry-After": {"description": "Seconds after which another try may succeed.", "schema": {"type": "integer", "minimum": 0}},
    })
}

/// The name in the contract of a refusal with one of these codes, for example `NotFound` or
/// `InvalidFieldOrTextTooLong`.
fn problem_name(codes: &[Code]) -> String {
    let names: Vec<String> = codes.iter().map(|code| format!("{code:?}")).collect();
    names.join("Or")
}

/// A refusal with one of several codes that share a status.
fn problem_response(status: u16, codes: &[Code], schema: &str) -> Value {
    let meanings: Vec<String> = codes.iter().map(|code| format!("`{}`: {}", code.as_str(), code.title())).collect();
    let mut headers = common_headers();
    let mut with = |name: &str| headers[name] = json!({"$ref": format!("#/components/headers/{name}")});
    match status {
        401 => with("WWW-Authenticate"),
        409 | 503 | 507 => with("Retry-After"),
        429 => ["Retry-After", "RateLimit", "RateLimit-Policy"].into_iter().for_each(with),
        416 => with("Content-Range"),
        _ => {}
    }
    let content = json!({"application/problem+json": {"schema": {"$ref": format!("#/components/schemas/{schema}")}}});
    json!({"description": format!("{}.", meanings.join("; ")), "headers": headers, "content": content})
}

/// The schema of a failure with one of these codes.
fn problem_schema(codes: &[Code]) -> Value {
    let words: Vec<&str> = codes.iter().map(|code| code.as_str()).collect();
    let titles: Vec<String> = codes.iter().map(|code| format!("{}.", code.title())).collect();
    json!({
        "description": titles.join(" "),
        "allOf": [
            {"$ref": "#/components/schemas/Failure"},
            {"type": "object", "properties": {"code": {"type": "string", "enum": words}}},
        ],
    })
}

/// A header's name in its usual spelling, for example `Retry-After`.
fn title_case(name: &str) -> String {
    let words = name.split('-').map(|word| {
        let (first, rest) = word.split_at(word.len().min(1));
        if word == "id" { "ID".to_owned() } else { first.to_ascii_uppercase() + rest }
    });
    words.collect::<Vec<_>>().join("-")
}

fn parameter<'a>(entry: &'a mut Value, name: &str) -> Option<&'a mut Value> {
    let parameters = entry.get_mut("parameters")?.as_array_mut()?;
    parameters.iter_mut().find(|parameter| parameter["name"] == name)?.get_mut("schema")
}

/// The named schema that a schema refers to, even if that may be null, or is that of each entry of a list.
fn target<'a>(document: &'a mut Value, schema: &Value) -> Option<&'a mut Value> {
    let choices = schema.get("oneOf").or_else(|| schema.get("anyOf")).and_then(Value::as_array);
    let reference = |schema: &Value| schema.get("$ref").and_then(Value::as_str).map(str::to_owned);
    let of_entries = || reference(schema.get("items")?);
    let reference = reference(schema).or_else(|| choices?.iter().find_map(reference)).or_else(of_entries)?;
    document.pointer_mut(reference.strip_prefix('#')?)
}

/// The schema of a field of a body; `outer.inner` for a field of a nested object, or of each entry of a list.
fn property<'a>(document: &'a mut Value, body: &Value, name: &str) -> Option<&'a mut Value> {
    let (outer, inner) = name.split_once('.').map_or((name, None), |(outer, inner)| (outer, Some(inner)));
    let Some(inner) = inner else {
        return target(document, body)?.get_mut("properties")?.get_mut(outer);
    };
    let schema = target(document, body)?.get("properties")?.get(outer)?.clone();
    property(document, &schema, inner)
}

/// Adds the keywords of a constraint to a schema.
fn constrain(schema: &mut Value, constraint: &Constraint) {
    merge(schema, constraint.keywords());
}

fn merge(schema: &mut Value, keywords: Map<String, Value>) {
    for (keyword, value) in keywords {
        match value {
            Value::Object(inner) => merge(&mut schema[&keyword], inner),
            value => schema[&keyword] = value,
        }
    }
}

/// Adds the bounds that the width of a number sets, unless there are narrower ones.
fn bound(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            let widest = match members.get("format").and_then(Value::as_str) {
                Some("int32") => Some((json!(i32::MIN), json!(i32::MAX))),
                Some("int64") => Some((json!(i64::MIN), json!(i64::MAX))),
                _ => None,
            };
            if let Some((least, most)) = widest {
                members.entry("minimum").or_insert(least);
                members.entry("maximum").or_insert(most);
            }
            members.values_mut().for_each(bound);
        }
        Value::Array(entries) => entries.iter_mut().for_each(bound),
        _ => {}
    }
}

/// Does the same for a schema and everything that it refers to.
fn bound_all(document: &mut Value, schema: &Value) {
    let mut seen = BTreeSet::new();
    let mut open = references(schema);
    while let Some(reference) = open.pop() {
        let Some(schema) = reference.strip_prefix('#').and_then(|place| document.pointer_mut(place)) else { continue };
        bound(schema);
        let more = references(schema);
        if seen.insert(reference) {
            open.extend(more);
        }
    }
}

fn references(schema: &Value) -> Vec<String> {
    match schema {
        Value::Object(members) => members
            .iter()
            .flat_map(|(name, value)| match (name.as_str(), value) {
                ("$ref", Value::String(reference)) => vec![reference.clone()],
                _ => references(value),
            })
            .collect(),
        Value::Array(entries) => entries.iter().flat_map(references).collect(),
        _ => Vec::new(),
    }
}

fn without_null(schema: &mut Value) {
    if let Some(kinds) = schema.get_mut("type").and_then(Value::as_array_mut) {
        kinds.retain(|kind| kind != "null");
        if let [kind] = kinds.as_slice() {
            schema["type"] = kind.clone();
        }
    }
    for choices in ["oneOf", "anyOf"] {
        let Some(kinds) = schema.get_mut(choices).and_then(Value::as_array_mut) else { continue };
        kinds.retain(|kind| kind["type"] != "null");
        if let [kind] = kinds.as_slice() {
            *schema = kind.clone();
        }
    }
}

fn http_method(method: &http::Method) -> HttpMethod {
    match method.as_str() {
        "POST" => HttpMethod::Post,
        "PUT" => HttpMethod::Put,
        "PATCH" => HttpMethod::Patch,
        "DELETE" => HttpMethod::Delete,
        _ => HttpMethod::Get,
    }
}
