//! The contract as it is served: the rows of the table as one OpenAPI document.
use super::{Mounted, Schemas, registry};
use crate::ingest::options;
use serde_json::{Map, Value, json};
use std::{collections::BTreeSet, sync::OnceLock};
use svc_client::{Access, Code, Failure, Need, OperationInfo, VERSION, constraint::Constraint};
use utoipa::openapi::{self, HttpMethod, Paths};

/// A family of operations, by the first segment of its paths.
const FAMILIES: &[(&str, &str)] = &[
    ("ingest", "Files on their way in."),
    ("documents", "The nodes of the tree."),
    ("search", "Finding documents."),
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
    CONTRACT.get_or_init(|| build(&registry()))
}

fn build(rows: &[Mounted]) -> Value {
    let mut paths = Paths::new();
    let mut schemas: Schemas = vec![("Failure".to_owned(), <Failure as utoipa::PartialSchema>::schema())];
    <Failure as utoipa::ToSchema>::schemas(&mut schemas);
    for Mounted { info, describe, .. } in rows {
        let entry = describe(&mut schemas).operation_id(Some(info.name)).summary(Some(info.summary));
        paths.add_path_operation(info.path, vec![http_method(&info.method)], entry.build());
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
        "bearer": {"type": "http", "scheme": "bearer", "description": "The owner token: SVC_API_TOKEN of the service."},
        "runner": {"type": "http", "scheme": "bearer", "description": "The key of the runner: SVC_RUNNER_KEY of the service."},
    });
    document["components"]["headers"] = headers();
    document["components"]["responses"] = problems();
    for row in rows {
        complete(&mut document, row);
    }
    let text = document["paths"].to_string();
    if let Some(problems) = document["components"]["responses"].as_object_mut() {
        problems.retain(|name, _| text.contains(&format!("/{name}\"")));
    }
    document
}

/// Writes what stands in the row of an operation, and not in its types, into its entry.
fn complete(document: &mut Value, row: &Mounted) {
    let info = &row.info;
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
        media["schema"]["properties"]["options"] = options::schema();
        media["encoding"] = json!({"options": {"contentType": "application/json"}});
    }
    if let Some(body) = entry.pointer("/requestBody/content/application~1json/schema").cloned() {
        for (name, constraint) in (row.constraints.body)() {
            if let Some(schema) = property(document, &body, name) {
                constrain(schema, &constraint);
            }
        }
        if let Some(schema) = target(document, &body) {
            bound(schema);
        }
    }
    let responses = entry["responses"].as_object_mut().map(std::mem::take).unwrap_or_default();
    let mut answered = Map::new();
    for (status, mut response) in responses {
        response["headers"] = common_headers();
        if status == "201" {
            response["headers"]["Location"] = json!({"$ref": "#/components/headers/Location"});
        }
        answered.insert(status, response);
    }
    for status in refusals(info, &entry) {
        answered.insert(status.to_string(), json!({"$ref": format!("#/components/responses/Problem{status}")}));
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
        Access::RunnerKey => "It wants the key of the runner; a service without one answers 501.",
        Access::Read => "It wants a bearer token that may read the documents it names.",
        Access::Write => {
            "It wants a bearer token that may write the documents it names; one that may only read them gets 403."
        }
        Access::Owner => "It wants the owner's bearer token.",
    };
    let need = match info.needs {
        None => "",
        Some(Need::Model) => " A service without an embedding model answers 501.",
        Some(Need::OwnModel) => " A service that uses a runner itself answers 501.",
    };
    format!("{} {access}{need}", info.summary)
}

/// Every status of a refusal that an operation can answer with, by what it takes.
fn refusals(info: &OperationInfo, entry: &Value) -> BTreeSet<u16> {
    // Every operation refuses a body or a parameter that it does not take.
    let mut statuses = BTreeSet::from([415, 422, 426, 500]);
    let parameters = entry["parameters"].as_array().map(Vec::as_slice).unwrap_or_default();
    let takes = |name: &str| parameters.iter().any(|parameter| parameter["name"] == name);
    let (reads, searches) = (info.method == http::Method::GET, info.path.starts_with("/search"));
    if info.access != Access::Public {
        statuses.extend([401, 429, 503]);
    }
    if info.access == Access::Write {
        statuses.insert(403);
    }
    if info.name == "read_readiness" {
        statuses.insert(503);
    }
    if info.path.contains('{') || takes("parent_id") || searches {
        statuses.insert(404);
    }
    if !reads && !searches && info.access != Access::RunnerKey {
        statuses.insert(409);
    }
    if entry.get("requestBody").is_some() {
        // The body may name a parent, an index or the like.
        statuses.extend([400, 404, 408, 413]);
    }
    // Cells are read from the stored bytes, which may be damaged.
    if takes("ref") {
        statuses.extend([409, 413]);
    }
    if info.needs.is_some() || searches {
        statuses.insert(501);
    }
    if info.needs == Some(Need::OwnModel) {
        statuses.insert(409);
    }
    // A full disk refuses whatever stores something.
    if !reads && Code::ALL.iter().any(|code| code.status() == 507) {
        statuses.insert(507);
    }
    statuses
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
        "Retry-After": {"description": "Seconds after which another try may succeed.", "schema": {"type": "integer", "minimum": 0}},
    })
}

/// One response a status that any code is sent with.
fn problems() -> Value {
    let statuses: BTreeSet<u16> = Code::ALL.iter().map(|code| code.status()).filter(|status| *status != 0).collect();
    let problem = |status: u16| {
        let codes: Vec<String> = Code::ALL
            .iter()
            .filter(|code| code.status() == status)
            .map(|code| format!("`{}`: {}", code.as_str(), code.title()))
            .collect();
        let mut headers = common_headers();
        if matches!(status, 409 | 429 | 503) {
            headers["Retry-After"] = json!({"$ref": "#/components/headers/Retry-After"});
        }
        if status == 401 {
            headers["WWW-Authenticate"] = json!({"$ref": "#/components/headers/WWW-Authenticate"});
        }
        let content = json!({"application/problem+json": {"schema": {"$ref": "#/components/schemas/Failure"}}});
        json!({"description": format!("{}.", codes.join("; ")), "headers": headers, "content": content})
    };
    statuses.into_iter().map(|status| (format!("Problem{status}"), problem(status))).collect::<Map<_, _>>().into()
}

fn parameter<'a>(entry: &'a mut Value, name: &str) -> Option<&'a mut Value> {
    let parameters = entry.get_mut("parameters")?.as_array_mut()?;
    parameters.iter_mut().find(|parameter| parameter["name"] == name)?.get_mut("schema")
}

/// The named schema that a schema refers to, even if that may be null.
fn target<'a>(document: &'a mut Value, schema: &Value) -> Option<&'a mut Value> {
    let choices = schema.get("oneOf").or_else(|| schema.get("anyOf")).and_then(Value::as_array);
    let reference = |schema: &Value| schema.get("$ref").and_then(Value::as_str).map(str::to_owned);
    let reference = reference(schema).or_else(|| choices?.iter().find_map(reference))?;
    document.pointer_mut(reference.strip_prefix('#')?)
}

/// The schema of a field of a body; `outer.inner` for a field of a nested object.
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
