//! The tool `upload_file`, whose file is in the arguments or at an address, and which may wait for the ingestion.
use super::{arguments::Asked, door::Telling, ingestion, toolbox::Row};
use base64::{Engine, prelude::BASE64_STANDARD};
use rmcp::model::JsonObject;
use serde_json::{Map, Value, json};
use svc_client::{Code, Failure, FileUpload, Remote, UntypedBody};

pub const NAME: &str = "upload_file";
/// The arguments that say what is stored, besides those of the operation.
const OWN: &[&str] = &["filename", "base64", "url", "wait", "options"];

/// Adds to the schemas what this tool takes and answers besides the operation's parameters and answer.
pub fn describe(taken: &mut Map<String, Value>, answer: &mut Value) {
    let text = |about: &str| json!({"type": "string", "description": about});
    taken.insert("filename".into(), text("The file's name; with `base64`."));
    taken.insert("base64".into(), text("The file's bytes. Give this with `filename`, or `url`."));
    taken.insert(
        "url".into(),
        text("An address that the service fetches: a web page or a PDF file. The call then waits for its ingestion."),
    );
    taken.insert(
        "wait".into(),
        json!({"type": "boolean", "description": "Answer when the file is ingested, with its `frontier`."}),
    );
    taken.insert(
        "options".into(),
        json!({"type": "object", "description": "Ingest options by group, as the tool `ingest` takes them."}),
    );
    if let Some(priority) = taken.get_mut("priority") {
        let about = priority["description"].as_str().map(|about| format!("{} With `base64`.", about.trim()));
        priority["description"] = about.into();
    }
    answer["properties"]["frontier"] =
        json!({"type": "object", "description": "What the ingestion came to, after `wait`."});
}

/// Stores the file and answers as the operation does, or when it is ingested.
pub async fn call(row: &Row, asked: Asked, calls: &Remote, telling: &Telling) -> Result<Value, Failure> {
    let mut arguments = asked.arguments;
    let mut own: JsonObject = JsonObject::new();
    for name in OWN {
        own.extend(arguments.remove(*name).filter(|value| !value.is_null()).map(|value| ((*name).to_owned(), value)));
    }
    let text = |name: &str| match own.get(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(_) => Err(Failure::field(name, "takes a text")),
    };
    let wait = match own.get("wait") {
        None => false,
        Some(Value::Bool(wait)) => *wait,
        Some(_) => return Err(Failure::field("wait", "takes true or false")),
    };
    let options = own.get("options").cloned();
    match (text("base64")?, text("url")?) {
        (Some(bytes), None) => {
            let name = text("filename")?.ok_or_else(|| Failure::field("filename", "must be given with `base64`"))?;
            // Many programs break it into lines.
            let bytes: String = bytes.split_ascii_whitespace().collect();
            let bytes = BASE64_STANDARD.decode(bytes);
            let bytes = bytes.map_err(|error| Failure::field("base64", format!("is not base64: {error}")))?;
            let mut call = row.places.fill(arguments)?;
            call.body = UntypedBody::File(FileUpload::from_bytes(&name, bytes, options));
            let mut answer = calls.call(row.info, call).await?;
            if wait {
                let id = answer["document_id"].as_i64().unwrap_or_default();
                let frontier = ingestion::follow(calls, id, telling).await?;
                answer["settled"] = json!(frontier.settled);
                answer["frontier"] = json!(frontier);
            }
            Ok(answer)
        }
        (None, Some(url)) => fetched(calls, &url, options, arguments, telling).await,
        (None, None) => Err(Failure::field("base64", "must be given, or `url`")),
        (Some(_), Some(_)) => Err(Failure::field("url", "takes the place of `base64`: give one of them")),
    }
}

/// Has the service fetch an address, as a web page or as a PDF file, whichever it turns out to be.
async fn fetched(
    calls: &Remote,
    url: &str,
    options: Option<Value>,
    arguments: JsonObject,
    telling: &Telling,
) -> Result<Value, Failure> {
    let given: JsonObject = arguments.into_iter().filter(|(_, value)| !value.is_null()).collect();
    if given.contains_key("priority") {
        return Err(Failure::field("priority", "goes with `base64`: what is fetched is ingested at once"));
    }
    let path = url.split(['?', '#']).next().unwrap_or(url);
    let mut entries = ["wiki:url", "wiki:pdf"];
    if path.to_ascii_lowercase().ends_with(".pdf") {
        entries.reverse();
    }
    let mut refusal = None;
    for entry in entries {
        let mut body = Value::Object(given.clone());
        body["entry"] = entry.into();
        body["url"] = url.into();
        if let Some(options) = &options {
            body["options"] = options.clone();
        }
        let call = svc_client::Untyped { body: UntypedBody::Json(body), ..Default::default() };
        match ingestion::call(calls, call, telling).await {
            Ok(tree) => {
                return Ok(json!({
                    "document_id": tree["document_id"],
                    "settled": tree["document"]["settled"],
                    "content_hash": tree["document"]["content_hash"],
                    "was_existing": tree["was_existing"],
                    "linked_into_parent": tree["linked_into_parent"],
                    "attempts": tree["attempts"],
                    "frontier": tree["frontier"],
                }));
            }
            // What is there has another media type; the second refusal says what.
            Err(failure) if failure.code == Code::FetchFailed && refusal.is_none() => refusal = Some(failure),
            Err(failure) => return Err(failure),
        }
    }
    Err(refusal.unwrap_or_else(|| Failure::field("url", "cannot be fetched")))
}
