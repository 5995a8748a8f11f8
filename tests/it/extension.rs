//! Task types of other crates, registered with a worker.
use crate::{
    queue::node,
    support::{TestApp, Wish, place, until},
};
use async_trait::async_trait;
use serde_json::{Map, Value, json};
use sqlx::PgConnection;
use std::{
    fs::File,
    io::{BufRead, BufReader, Seek, SeekFrom},
    sync::Arc,
};
use svc::{
    access::Caller,
    ingest::extension::{
        EnqueueError, FinalFailure, OptionGroup, OptionKey, Preset, RegisterError, Task, TaskDeclaration, TaskHandler,
        TaskOutcome, TaskTypes,
    },
    store::{documents, ingest_nodes, tasks},
};
use svc_actors::{Lane, TaskFailure, WriteMode};
use svc_client::{
    Code, FileUpload, Json,
    constraint::Constraint,
    wire::{DocumentPath, EmbedQuery, Plan, PlanOutcome, PlanRow, Settled, UploadQuery},
};
use svc_ids::{DocumentId, RootId, TaskId};

/// A task type of one test, with its parameters.
static RECOGNITION: OptionGroup = OptionGroup {
    name: "ocr",
    keys: &[
        OptionKey {
            name: "language",
            default: Preset::Text("eng"),
            constraint: Some(Constraint::OneOf(&["eng", "deu"])),
        },
        OptionKey { name: "dpi", default: Preset::Whole(300), constraint: Some(Constraint::Whole(72, 1200)) },
        OptionKey { name: "contrast", default: Preset::Number(1.0), constraint: None },
        OptionKey { name: "deskew", default: Preset::Flag(true), constraint: None },
    ],
};

const RENAME: &str = "test:rename";

/// Gives the task's document the title from the parameters.
struct Rename;

#[async_trait]
impl TaskHandler for Rename {
    async fn run(&self, task: &Task<'_>, session: &mut PgConnection) -> Result<TaskOutcome, TaskFailure> {
        tracing::info!("renaming");
        let Some(title) = task.params["title"].as_str() else {
            return Ok(TaskOutcome::Skipped { reason: "no title is given".to_owned(), detail: Map::new() });
        };
        sqlx::query("UPDATE documents SET title = $2 WHERE id = $1")
            .bind(task.document_id)
            .bind(title)
            .execute(session)
            .await
            .map_err(|error| TaskFailure::retryable("database", error.to_string()))?;
        if title.is_empty() {
            return Err(TaskFailure::permanent("no_title", "a title is never empty"));
        }
        let mut detail = Map::new();
        detail.insert("characters".to_owned(), title.len().into());
        Ok(TaskOutcome::Completed(detail))
    }
}

fn renaming() -> TaskDeclaration {
    TaskDeclaration {
        name: RENAME,
        lane: Lane::Io,
        write_mode: WriteMode::Itself,
        options: None,
        final_failure: FinalFailure::Node,
        handler: Arc::new(Rename),
    }
}

/// Reads the text of a scanned page, and renames the file by it.
struct Recognise;

#[async_trait]
impl TaskHandler for Recognise {
    async fn run(&self, task: &Task<'_>, session: &mut PgConnection) -> Result<TaskOutcome, TaskFailure> {
        let title = format!("a page in {}", task.params["ocr"]["language"]);
        let params = Map::from_iter([("title".to_owned(), title.into())]);
        let queued = task.tools.enqueue(session, &task.place, task.root_id, RENAME, params).await;
        queued.map_err(|error| TaskFailure::retryable("database", error.to_string()))?;
        Ok(TaskOutcome::Completed(Map::new()))
    }
}

fn recognition() -> TaskDeclaration {
    TaskDeclaration {
        name: "ocr",
        lane: Lane::Io,
        write_mode: WriteMode::Subtree,
        options: Some(&RECOGNITION),
        final_failure: FinalFailure::Node,
        handler: Arc::new(Recognise),
    }
}

async fn queue(app: &TestApp, node: &(i64, Vec<i64>), params: Value) -> TaskId {
    let mut conn = app.pool.acquire().await.unwrap();
    let (place, tools) = (place(&mut conn, node.0).await, app.service.tools());
    let params = params.as_object().unwrap().clone();
    let unknown = tools.enqueue(&mut conn, &place, RootId(node.0), "test:nobody", Map::new()).await;
    assert!(matches!(unknown, Err(EnqueueError::UnknownType(name)) if name == "test:nobody"));
    tools.enqueue(&mut conn, &place, RootId(node.0), RENAME, params).await.unwrap()
}

/// The outcome and the detail of a task's first attempt.
async fn attempt(app: &TestApp, task: TaskId) -> (String, Value) {
    until("the attempt", async || {
        sqlx::query_as("SELECT outcome, detail FROM task_attempts WHERE task_id = $1 ORDER BY id LIMIT 1")
            .bind(task)
            .fetch_optional(&app.pool)
            .await
            .unwrap()
    })
    .await
}

#[tokio::test]
async fn a_registered_handler_writes_in_the_workers_session_and_its_log_names_the_task() {
    let log = Arc::new(tempfile::tempfile().unwrap());
    let subscriber = tracing_subscriber::fmt().json().with_writer(log.clone()).finish();
    // The whole runtime of the test is on this thread.
    let _guard = tracing::subscriber::set_default(subscriber);
    let mut types = TaskTypes::default();
    types.register(renaming()).unwrap();
    let mut app = TestApp::with(Wish { types, no_worker: true, ..Wish::default() }).await;
    let node = node(&app, None).await;
    app.start_worker().await;
    let title = async || {
        app.client
            .read_document(DocumentPath { id: node.0 }, EmbedQuery::default())
            .await
            .unwrap()
            .value()
            .unwrap()
            .title
    };

    let renamed = queue(&app, &node, json!({"title": "another"})).await;
    assert_eq!(attempt(&app, renamed).await, ("completed".to_owned(), json!({"characters": 7})));
    assert_eq!(title().await, "another");
    let skipped = queue(&app, &node, json!({})).await;
    assert_eq!(attempt(&app, skipped).await, ("skipped".to_owned(), json!({"reason": "no title is given"})));
    let failed = queue(&app, &node, json!({"title": ""})).await;
    assert_eq!(attempt(&app, failed).await.0, "failed");
    assert_eq!(title().await, "another", "what a failed handler wrote is rolled back");

    let mut log: &File = &log;
    log.seek(SeekFrom::Start(0)).unwrap();
    let lines: Vec<Value> =
        BufReader::new(log).lines().map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect();
    for task in [renamed, skipped, failed] {
        let of_the_task =
            json!({"name": "task", "task.id": task, "task.type": RENAME, "document.id": node.0, "root.id": node.0});
        let named = lines.iter().filter(|line| line["fields"]["message"] == "renaming" && line["span"] == of_the_task);
        assert_eq!(named.count(), 1, "{lines:?}");
        let ends =
            lines.iter().filter(|line| line["fields"]["message"] == "task failed" && line["span"] == of_the_task);
        assert_eq!(ends.count(), usize::from(task == failed), "{lines:?}");
    }
    app.end().await;
}

#[test]
fn a_name_has_one_handler_and_a_group_one_owner() {
    let mut types = TaskTypes::default();
    let once = recognition();
    let again = TaskDeclaration { handler: once.handler.clone(), ..recognition() };
    types.register(once).unwrap();
    types.register(again).expect("the same handler");
    for taken in ["ocr", "embed"] {
        let refused = types.register(TaskDeclaration { name: taken, ..renaming() }).unwrap_err();
        assert!(matches!(refused, RegisterError::Duplicate(name) if name == taken), "{refused}");
    }
    let refused = types.register(TaskDeclaration { options: Some(&RECOGNITION), ..renaming() }).unwrap_err();
    assert!(matches!(refused, RegisterError::DuplicateGroup(RENAME, "ocr")), "{refused}");
    static STRUCTURE: OptionGroup = OptionGroup { name: "structure", keys: &[] };
    static OUT_OF_RANGE: OptionGroup = OptionGroup {
        name: "own",
        keys: &[OptionKey { name: "dpi", default: Preset::Whole(9), constraint: Some(Constraint::Whole(72, 1200)) }],
    };
    for group in [&STRUCTURE, &OUT_OF_RANGE] {
        let refused = types.register(TaskDeclaration { options: Some(group), ..renaming() }).unwrap_err();
        assert!(matches!(refused, RegisterError::Options(RENAME, _)), "{refused}");
    }
}

/// A page that is nothing but a picture.
fn scan() -> Vec<u8> {
    let stream =
        |entries: &str, data: &str| format!("<< {entries} /Length {} >> stream\n{data}\nendstream", data.len());
    let image = "/Type /XObject /Subtype /Image /Width 1 /Height 1 /ColorSpace /DeviceGray /BitsPerComponent 8";
    let objects = [
        "<< /Type /Catalog /Pages 2 0 R >>".to_owned(),
        "<< /Type /Pages /Kids [3 0 R] /Count 1 >>".to_owned(),
        "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Resources << /XObject << /Im 5 0 R >> >> /Contents 4 0 R >>"
            .to_owned(),
        stream("", "q 600 0 0 800 0 0 cm /Im Do Q"),
        stream(image, "x"),
    ];
    let (mut file, mut table) = ("%PDF-1.7\n".to_owned(), "xref\n0 1\n0000000000 65535 f \n".to_owned());
    for (number, body) in (1..).zip(&objects) {
        table += &format!("{number} 1\n{:010} 00000 n \n", file.len());
        file += &format!("{number} 0 obj\n{body}\nendobj\n");
    }
    let start = file.len();
    file += &format!("{table}trailer << /Root 1 0 R /Size 6 >>\nstartxref\n{start}\n%%EOF\n");
    file.into_bytes()
}

fn row(plan: &Plan) -> &PlanRow {
    plan.tasks.iter().find(|row| row.task == "ocr").unwrap()
}

#[tokio::test]
async fn a_registered_handler_makes_a_deferred_task_one_that_is_planned_queued_and_run_with_its_options() {
    let mut types = TaskTypes::default();
    types.register(renaming()).unwrap();
    types.register(recognition()).unwrap();
    let app = TestApp::with(Wish { types, ..Wish::default() }).await;
    let upload = |options: Value| FileUpload::from_bytes("scan.pdf", scan(), Some(options));
    let explain = async |body: Value| app.client.explain_ingest(Json(serde_json::from_value(body).unwrap())).await;
    let options = json!({"ocr": {"language": "deu", "contrast": 2}});
    let params = json!({"ocr": {"language": "deu", "dpi": 300, "contrast": 2.0, "deskew": true}});

    let patterns = json!({"is_scanned": true, "has_text_layer": false});
    let explained = explain(json!({"format": "pdf", "patterns": patterns, "options": options})).await.unwrap();
    let explained = row(&explained).clone();
    assert_eq!((explained.outcome, explained.write_mode.as_str()), (PlanOutcome::Enqueued, "subtree"));
    assert_eq!(Value::Object(explained.params.clone()), params);
    let defaults = explain(json!({"format": "pdf"})).await.unwrap();
    assert_eq!(defaults.options["ocr"], json!({"language": "eng", "dpi": 300, "contrast": 1.0, "deskew": true}));
    assert_eq!(row(&defaults).if_condition_holds, Some(PlanOutcome::Enqueued));
    let analyzed = app.client.analyze_file(upload(options.clone())).await.unwrap().plan.unwrap();
    assert_eq!(row(&analyzed), &explained);

    let stored = app.client.upload_file(UploadQuery::default(), upload(options.clone())).await.unwrap();
    let id = stored.document_id;
    assert_eq!(app.settled(id).await.settled, Settled::Settled);
    let document = app.client.read_document(DocumentPath { id }, EmbedQuery::default()).await.unwrap();
    assert_eq!(document.value().unwrap().title, "a page in \"deu\"");
    let evidence = app.client.read_evidence(DocumentPath { id }).await.unwrap().evidence;
    assert_eq!(evidence["plan"]["tasks"], serde_json::to_value(&analyzed.tasks).unwrap());
    let queued: Vec<(String, String, String, Value, String)> = sqlx::query_as(
        "SELECT task_type, lane, write_mode, params, param_fingerprint FROM task_queue WHERE root_id = $1 AND task_type IN ('ocr', $2) ORDER BY id",
    )
    .bind(id)
    .bind(RENAME)
    .fetch_all(&app.pool)
    .await
    .unwrap();
    let [(ocr, lane, mode, shown, fingerprint), (follow_up, ..)] = queued.as_slice() else { panic!("{queued:?}") };
    assert_eq!([ocr, lane, mode, follow_up], ["ocr", "io", "subtree", RENAME]);
    assert_eq!((shown, fingerprint), (&params, &tasks::fingerprint(&params)));

    assert!(app.client.upload_file(UploadQuery::default(), upload(options)).await.unwrap().was_existing);
    let other = app.client.upload_file(UploadQuery::default(), upload(json!({}))).await.unwrap_err();
    assert_eq!(other.code, Code::StoredWithOtherOptions);
    for (wrong, code, named) in [
        (json!({"ocr": {"dpi": 12}}), Code::InvalidField, "ocr.dpi"),
        (json!({"ocr": {"deskew": 1}}), Code::InvalidField, "ocr.deskew"),
        (json!({"ocr": {"language": "lat"}}), Code::InvalidField, "ocr.language"),
        (json!({"ocr": {"colour": true}}), Code::UnknownOption, "ocr.colour"),
    ] {
        let refused = explain(json!({"format": "pdf", "options": wrong})).await.unwrap_err();
        assert_eq!(refused.code, code, "{refused:?}");
        assert!(format!("{refused:?}").contains(named), "{refused:?}");
        assert_eq!(app.client.analyze_file(upload(wrong.clone())).await.unwrap_err().detail, refused.detail);
        assert_eq!(
            app.client.upload_file(UploadQuery::default(), upload(wrong)).await.unwrap_err().detail,
            refused.detail
        );
    }
    let contract = app.client.read_openapi().await.unwrap().0;
    let pointer = "/components/schemas/ExplainRequest/properties/options/properties/ocr/properties/dpi";
    assert_eq!(
        contract.pointer(pointer).unwrap(),
        &json!({"type": "integer", "default": 300, "minimum": 72, "maximum": 1200})
    );
    app.end().await;
}

#[tokio::test]
async fn what_is_logged_within_a_function_of_the_store_names_what_it_works_on() {
    let app = crate::queue::app().await;
    let (node, _) = node(&app, None).await;
    let mut conn = app.pool.acquire().await.unwrap();
    let log = Arc::new(tempfile::tempfile().unwrap());
    // sqlx logs each statement at debug in the place where it warns of a slow one.
    let subscriber =
        tracing_subscriber::fmt().json().with_max_level(tracing::Level::DEBUG).with_writer(log.clone()).finish();
    let guard = tracing::subscriber::set_default(subscriber);
    assert!(documents::is_readable(&mut conn, &Caller::Owner.readable(), DocumentId(node)).await.unwrap());
    assert_eq!(ingest_nodes::priority(&mut conn, RootId(node)).await.unwrap(), None);
    assert_eq!(tasks::ended(&mut conn, TaskId(424_242)).await.unwrap(), Some(true));
    drop(guard);
    drop(conn);

    let mut log: &File = &log;
    log.seek(SeekFrom::Start(0)).unwrap();
    let lines = BufReader::new(log).lines().map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
    let spans: Vec<Value> = lines
        .filter(|line| line["target"] == "sqlx::query" && !line["span"].is_null())
        .map(|line| line["span"].clone())
        .collect();
    let expected = [
        json!({"name": "is_readable", "document.id": node}),
        json!({"name": "priority", "root.id": node}),
        json!({"name": "ended", "task.id": 424_242}),
    ];
    assert_eq!(spans, expected);
    app.end().await;
}
