//! The tools: the operations of the table that are offered, with what the contract says of them.
use super::{
    arguments::Places,
    schema::{self, HIDDEN},
    upload,
};
use rmcp::model::{JsonObject, Tool as Description, ToolAnnotations};
use serde_json::{Map, Value, json};
use std::{collections::HashMap, sync::Arc};
use svc_client::{OPERATIONS, OperationInfo, Tool};

/// One operation as a tool.
pub struct Row {
    pub info: &'static OperationInfo,
    pub kind: Tool,
    pub description: Description,
    /// Where each argument goes in a request.
    pub places: Places,
    /// What its answers are, for dividing them into pages.
    pub answer: Value,
}

impl Row {
    pub fn name(&self) -> &'static str {
        self.info.name
    }

    /// Whether the service answers with pages of its own.
    pub fn is_list(&self) -> bool {
        self.places.query.iter().chain(self.places.body.iter().flatten()).any(|name| name == "cursor")
    }
}

/// The tools that a client is offered.
pub struct Toolbox {
    rows: Vec<Row>,
}

impl Toolbox {
    /// The tools of the contract up to this kind.
    pub fn new(contract: &Value, most: Tool) -> Toolbox {
        let offered = OPERATIONS.iter().filter_map(|info| Some((info, info.tool.filter(|kind| *kind <= most)?)));
        let mut told = HashMap::new();
        Toolbox { rows: offered.map(|(info, kind)| row(contract, info, kind, &mut told)).collect() }
    }

    /// All of them as they are listed.
    pub fn list(&self) -> Vec<Description> {
        self.rows.iter().map(|row| row.description.clone()).collect()
    }

    pub fn find(&self, name: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.name() == name)
    }
}

/// How deep the answers are described by which they are divided.
const PAGED_DEPTH: usize = 2;
/// The most bytes of the description of an answer that is shown with objects in it; a longer one has the fields of the answer alone, and one
/// that is still longer none: a model sees the answer itself.
const ANSWER_BYTES: usize = 250;
/// From this many bytes on, an argument that another tool takes in the same way is described there alone.
const TOLD_BYTES: usize = 80;

/// Which tool describes an argument, by its name and schema.
type Told = HashMap<(String, String), &'static str>;

/// The page that comes after: what a tool with long answers takes. A model is told of it once, before it sees a tool.
const CURSOR: &str = "`next_cursor` of the page before.";

/// The tool that reads what another one has written, with the same fields: its cursors lead on in an answer of the other one.
pub fn reader_of(name: &str) -> Option<&'static str> {
    (name == "create_document").then_some("read_document")
}

fn row(contract: &Value, info: &'static OperationInfo, kind: Tool, told: &mut Told) -> Row {
    let entry = &contract["paths"][info.path][info.method.as_str().to_ascii_lowercase()];
    let mut taken = Map::new();
    let mut required = Vec::new();
    let mut places = Places::default();
    for parameter in entry["parameters"].as_array().into_iter().flatten() {
        let Some(name) = parameter["name"].as_str().filter(|name| !HIDDEN.contains(name)) else { continue };
        match parameter["in"].as_str() {
            Some("path") => places.path.push(name.to_owned()),
            Some("query") => places.query.push(name.to_owned()),
            _ => continue,
        }
        let mut field = schema::argument(contract, &parameter["schema"]);
        if let Some(about) = parameter["description"].as_str() {
            field["description"] = schema::sentence(about).into();
        }
        if parameter["required"] == true {
            required.push(name.into());
        }
        taken.insert(name.to_owned(), field);
    }
    if let Some(body) = entry.pointer("/requestBody/content/application~1json/schema") {
        let body = schema::argument(contract, body);
        let fields = body["properties"].as_object().cloned().unwrap_or_default();
        places.body = Some(fields.keys().cloned().collect());
        taken.extend(fields);
        required.extend(body["required"].as_array().cloned().unwrap_or_default());
    }
    let none = json!({"type": "object"});
    let answers = success(entry).unwrap_or(&none);
    let mut answer = schema::answer(contract, answers, PAGED_DEPTH);
    let depths = (0..=PAGED_DEPTH).rev().map(|depth| schema::answer(contract, answers, depth));
    let mut shown = none.clone();
    for schema in depths {
        shown = schema;
        if shown.to_string().len() <= ANSWER_BYTES {
            break;
        }
    }
    if shown.get("properties").is_none() {
        // Its fields are not named, and what is named below is not all.
        shown["additionalProperties"] = true.into();
    }
    if info.name == upload::NAME {
        upload::describe(&mut taken, &mut shown);
    }
    for (name, field) in &mut taken {
        tell_once(name, field, info.name, told);
    }
    if let Some(reader) = reader_of(info.name) {
        let next = format!("For the rest, call `{reader}` with this as `cursor`.");
        shown["properties"]["next_cursor"] = json!({"type": "string", "description": next});
    }
    if kind == Tool::Read {
        taken.insert("cursor".to_owned(), json!({"type": "string", "description": CURSOR}));
        let next = json!({"type": ["string", "null"]});
        if let Some(fields) = shown.get_mut("properties") {
            fields["next_cursor"] = next.clone();
        }
        answer["properties"]["next_cursor"] = next;
    }
    let input = json!({"type": "object", "properties": taken, "required": required, "additionalProperties": false});
    let mut description = Description::new(info.name, info.summary(), object(input));
    if success(entry).is_some() {
        description.output_schema = Some(object(shown));
    }
    let hints = ToolAnnotations::new().read_only(kind == Tool::Read);
    description.annotations = Some(match kind {
        Tool::Read => hints,
        Tool::Write => hints.destructive(false),
        Tool::Destructive => hints.destructive(true),
    });
    Row { info, kind, description, places, answer }
}

/// Refers to the tool that describes the same argument already.
fn tell_once(name: &str, field: &mut Value, tool: &'static str, told: &mut Told) {
    let text = field.to_string();
    if text.len() < TOLD_BYTES {
        return;
    }
    match told.get(&(name.to_owned(), text.clone())) {
        Some(other) => *field = json!({"type": field["type"], "description": format!("As in `{other}`.")}),
        None => drop(told.insert((name.to_owned(), text), tool)),
    }
}

/// The schema of what an operation answers if all goes well; `None` if that has no body.
fn success(entry: &Value) -> Option<&Value> {
    let answers = entry["responses"].as_object()?.iter().filter(|(status, _)| status.starts_with('2'));
    answers.into_iter().find_map(|(_, answer)| answer.pointer("/content/application~1json/schema"))
}

fn object(schema: Value) -> Arc<JsonObject> {
    match schema {
        Value::Object(members) => Arc::new(members),
        _ => Arc::default(),
    }
}
