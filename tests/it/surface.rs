//! What every answer shows, whatever was asked.
use crate::support::{IN_DATABASE, TestApp, Wish, document};
use reqwest::multipart::{Form, Part};
use serde_json::{Map, Value, json};
use std::sync::atomic::Ordering;
use svc_client::{
    Code, Json, OptionalJson,
    wire::{DocumentPath, PriorityChange, WaitQuery},
};

/// The fields that the specification's tables give an answer.
const DOCUMENT: &[&str] = &[
    "id",
    "parent_id",
    "title",
    "content",
    "structured_content",
    "path",
    "usetype",
    "position",
    "event_time",
    "created_at",
    "updated_at",
    "content_hash",
];
const UPLOAD: &[&str] = &[
    "document_id",
    "settled",
    "content_hash",
    "blob_ref",
    "detected_mime",
    "detected_by",
    "declared_mime",
    "attempts",
    "was_existing",
    "linked_into_parent",
];
const FRONTIER: &[&str] =
    &["document_id", "settled", "nodes_total", "nodes_settled", "nodes_in_flight", "nodes_failed", "tasks_unfinished"];
const EMBED: &[&str] = &["document_id", "embedded", "with_tokens", "token_count"];

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_has_an_id_and_the_headers_that_guard_browsers() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    for (method, path, status) in [
        ("GET", "/health", 200),
        ("GET", "/documents/99", 404),
        ("GET", "/nowhere", 404),
        ("PUT", "/documents", 405),
        ("GET", "/docs/", 200),
    ] {
        let given = format!("proxy-{status}");
        let answer = app.raw(method, path).header("x-request-id", &given).send().await.unwrap();
        assert_eq!(answer.status(), status, "{path}");
        for (header, value) in
            [("x-content-type-options", "nosniff"), ("content-security-policy", "frame-ancestors 'none'")]
        {
            assert_eq!(answer.headers()[header], value, "{path}");
        }
        if status >= 400 {
            assert_eq!(answer.headers()["x-request-id"], given.as_str(), "{path}");
            assert_eq!(answer.json::<Value>().await.unwrap()["request_id"], given, "{path}");
        }
    }
    let answer = app.raw("GET", "/nowhere").header("x-request-id", "not one; of ours").send().await.unwrap();
    let id = answer.headers()["x-request-id"].to_str().unwrap();
    assert!(id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
    let metrics = app.raw("GET", "/metrics").send().await.unwrap().text().await.unwrap();
    for status in [404, 405] {
        assert!(metrics.contains(&format!("operation=\"none\",status=\"{status}\"")), "{metrics}");
    }
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_browser_comes_to_the_documentation() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let answer = app.raw("GET", "/").send().await.unwrap();
    assert!(answer.status() == 200 && answer.url().path() == "/docs/", "{answer:?}");
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_stops_is_not_ready() {
    let app = TestApp::start().await;
    app.service.stopping.store(true, Ordering::Relaxed);
    let answer = app.raw("GET", "/ready").send().await.unwrap();
    assert_eq!(answer.status(), 503);
    assert!(answer.text().await.unwrap().contains("stopping"));
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_that_takes_too_long_is_given_up_by_name() {
    let settings = [("SVC_REQUEST_TIMEOUT_SECONDS", "2")];
    let app = TestApp::with(Wish { settings: &settings, no_worker: true, ..Wish::default() }).await;
    let mut held = app.pool.begin().await.unwrap();
    sqlx::query("LOCK documents").execute(&mut *held).await.unwrap();
    let answer = app.raw("GET", "/documents/roots").send().await.unwrap();
    assert_eq!((answer.status().as_u16(), answer.headers().contains_key("retry-after")), (503, true));
    assert!(answer.text().await.unwrap().contains("SVC_REQUEST_TIMEOUT_SECONDS"));
    held.rollback().await.unwrap();
    assert_eq!(app.raw("GET", "/documents/roots").send().await.unwrap().status(), 200);
    app.end().await;
}

/// An answer with the type of each value in its place.
fn shape(answer: &Value) -> Map<String, Value> {
    let kind = |value: &Value| match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    answer.as_object().unwrap().iter().map(|(name, value)| (name.clone(), kind(value).into())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_answers_that_the_specification_describes_have_its_fields() {
    let app = TestApp::with(Wish { settings: &[IN_DATABASE], ..Wish::default() }).await;
    let send = async |request: reqwest::RequestBuilder| -> Value {
        let answer = request.send().await.unwrap();
        assert!(answer.status().is_success(), "{}", answer.text().await.unwrap());
        answer.json().await.unwrap()
    };
    let form = || Form::new().part("file", Part::bytes(b"# Herons\n\nThe heron waits.\n".to_vec()).file_name("h.md"));
    let first = send(app.raw("POST", "/ingest/file").multipart(form())).await;
    let id = first["document_id"].as_i64().unwrap();
    app.settled(id).await;
    let again = send(app.raw("POST", "/ingest/file").multipart(form())).await;
    let frontier = send(app.raw("GET", &format!("/ingest/file/{id}/frontier"))).await;
    let leaf = app.subtree(id).await.into_iter().find(|node| node.usetype == "chunk").unwrap().id;
    let embedded = send(app.raw("POST", &format!("/documents/{leaf}/embed"))).await;
    let document = send(app.raw("GET", &format!("/documents/{leaf}"))).await;
    let with_vector = send(app.raw("GET", &format!("/documents/{leaf}?include_embed=true"))).await;
    let answers = [
        ("document", DOCUMENT, &document),
        ("document with its vector", DOCUMENT, &with_vector),
        ("upload", UPLOAD, &first),
        ("upload of the same bytes", UPLOAD, &again),
        ("frontier", FRONTIER, &frontier),
        ("embed", EMBED, &embedded),
    ];
    for (name, fields, answer) in answers {
        let missing: Vec<&&str> = fields.iter().filter(|field| answer.get(field).is_none()).collect();
        assert!(missing.is_empty(), "{name} lacks {missing:?}");
    }
    assert!(document.get("embed").is_none() && with_vector["embed"].is_array());
    assert!(first["content_hash"].as_str().unwrap().starts_with("sha256:"));
    assert!(first["blob_ref"].as_str().unwrap().starts_with("lob:"));
    assert_eq!((&first["was_existing"], &again["was_existing"]), (&json!(false), &json!(true)));
    assert_eq!(embedded["embedded"], true);
    let shapes: Map<String, Value> =
        answers.iter().map(|(name, _, answer)| ((*name).to_owned(), shape(answer).into())).collect();
    insta::assert_json_snapshot!("answers", shapes);
    app.end().await;
}

/// What takes a file says so of any other document, and where the files are.
#[tokio::test(flavor = "multi_thread")]
async fn what_takes_a_file_says_where_the_files_are() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let id = app.client.create_document(WaitQuery::default(), Json(document("t", "c"))).await.unwrap().document.id;
    let path = DocumentPath { id };
    let priority = Json(PriorityChange { priority: 4 });
    for refused in [
        app.client.cancel_ingest(path).await.unwrap_err(),
        app.client.change_priority(path, priority).await.unwrap_err(),
        app.client.reprocess_file(path, OptionalJson(None)).await.unwrap_err(),
    ] {
        assert_eq!(
            (refused.code, &refused.members["remedy"]),
            (Code::Conflict, &json!("GET /documents/files lists the files"))
        );
    }
    app.end().await;
}
