//! Task types of other crates, registered with a worker.
use crate::{
    queue::{app, node},
    support::{TestApp, until},
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
    ingest::extension::{Task, TaskHandler, TaskOutcome},
    store::{
        documents, ingest_nodes,
        tasks::{self, NewTask},
    },
    worker::{Role, RunningWorker},
};
use svc_actors::{Lane, TaskFailure, WriteMode};
use svc_client::wire::{DocumentPath, EmbedQuery};
use svc_ids::{DocumentId, RootId, TaskId};

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

async fn queue(app: &TestApp, node: &(i64, Vec<i64>), params: Value) -> TaskId {
    let task = NewTask {
        task_type: RENAME,
        lane: Lane::Io,
        document_id: DocumentId(node.0),
        path: &node.1,
        root_id: RootId(node.0),
        write_mode: WriteMode::Itself,
        leaves: None,
        dependencies: &[],
        params: &params,
        badge: None,
        priority: 0,
    };
    tasks::enqueue(&mut app.pool.acquire().await.unwrap(), &task).await.unwrap()
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
    let app = app().await;
    let mut tools = app.service.tools();
    tools.register(RENAME, Lane::Io, Arc::new(Rename)).unwrap();
    for taken in [RENAME, "embed"] {
        let refused = tools.register(taken, Lane::Io, Arc::new(Rename)).unwrap_err();
        assert!(refused.to_string().contains(taken), "{refused}");
    }
    let worker = RunningWorker::start(Role::of(&app.service.settings), tools, app.options.clone()).await.unwrap();
    let node = node(&app, None).await;
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
    worker.stop(std::time::Duration::from_secs(10), std::future::pending()).await;
    app.end().await;
}

#[tokio::test]
async fn what_is_logged_within_a_function_of_the_store_names_what_it_works_on() {
    let app = app().await;
    let (node, _) = node(&app, None).await;
    let mut conn = app.pool.acquire().await.unwrap();
    let log = Arc::new(tempfile::tempfile().unwrap());
    // sqlx logs each statement at debug in the place where it warns of a slow one.
    let subscriber =
        tracing_subscriber::fmt().json().with_max_level(tracing::Level::DEBUG).with_writer(log.clone()).finish();
    let guard = tracing::subscriber::set_default(subscriber);
    assert!(documents::is_readable(&mut conn, &Caller::Owner.readable(), DocumentId(node)).await.unwrap());
    assert!(!ingest_nodes::has_events(&mut conn, RootId(node)).await.unwrap());
    assert_eq!(tasks::ended(&mut conn, TaskId(424_242)).await.unwrap(), Some(true));
    drop(guard);
    drop(conn);

    let mut log: &File = &log;
    log.seek(SeekFrom::Start(0)).unwrap();
    let lines = BufReader::new(log).lines().map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
    let spans: Vec<Value> =
        lines.filter(|line| line["target"] == "sqlx::query").map(|line| line["span"].clone()).collect();
    let expected = [
        json!({"name": "is_readable", "document.id": node}),
        json!({"name": "has_events", "root.id": node}),
        json!({"name": "ended", "task.id": 424_242}),
    ];
    assert_eq!(spans, expected);
    app.end().await;
}
