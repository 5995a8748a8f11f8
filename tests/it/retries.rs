//! Tasks that failed for good and are tried again, together with what failed elsewhere in their file.
use crate::support::{TestApp, invariants, until};
use serde_json::json;
use svc_client::{
    FileUpload,
    wire::{DocumentPath, Settled, TaskPath, TaskQuery, TaskStatus, TaskTypePath, UploadQuery},
};

/// A file whose text has no room in the model's window, of sections with several chunks each.
async fn long_file(app: &TestApp) -> i64 {
    let part = |n: usize| {
        format!("## Part {n}\n\n{}\n\n", format!("The heron number {n} waits for fish in the reeds. ").repeat(30))
    };
    let text: String = (0..4).map(part).collect();
    let options = json!({"structure": {"max_tokens": 60}});
    let upload = FileUpload::from_bytes("herons.md", format!("# Herons\n\n{text}"), Some(options));
    app.client.upload_file(UploadQuery::default(), upload).await.unwrap().document_id
}

async fn pause(app: &TestApp, task_type: &str) {
    app.client.pause_task_type(TaskTypePath { task_type: task_type.into() }).await.unwrap();
}

async fn resume(app: &TestApp, task_type: &str) {
    app.client.resume_task_type(TaskTypePath { task_type: task_type.into() }).await.unwrap();
}

/// The tasks of a file with this status and type.
async fn tasks(app: &TestApp, file: i64, status: TaskStatus, task_type: &str) -> Vec<i64> {
    let asked = TaskQuery {
        status: Some(status),
        task_type: Some(task_type.into()),
        root_id: Some(file),
        limit: Some(1000),
        ..TaskQuery::default()
    };
    app.client.list_tasks(asked).await.unwrap().tasks.into_iter().map(|task| task.id).collect()
}

/// Cancels the file's task that waits to embed, and lets the rest end.
async fn cancel_embedding(app: &TestApp, file: i64) {
    pause(app, "embed").await;
    let waiting = until("a task that waits to embed", async || {
        tasks(app, file, TaskStatus::Pending, "embed").await.first().copied()
    })
    .await;
    app.client.cancel_task(TaskPath { id: waiting }).await.unwrap();
    resume(app, "embed").await;
    assert_eq!(app.settled(file).await.settled, Settled::Settled);
}

/// How many children of each container are said to have failed, summed up.
async fn failed_children(app: &TestApp, file: i64) -> i64 {
    sqlx::query_scalar("SELECT sum(failed_children) FROM ingest_node WHERE root_id = $1")
        .bind(file)
        .fetch_one(&app.pool)
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_summary_that_is_tried_again_beside_an_embedding_leaves_the_file_its_vector() {
    let app = TestApp::start().await;
    pause(&app, "embed").await;
    let file = long_file(&app).await;
    cancel_embedding(&app, file).await;
    let embeds = tasks(&app, file, TaskStatus::Failed, "embed").await;
    let summaries = tasks(&app, file, TaskStatus::Failed, "summarize:llm").await;
    assert!(!embeds.is_empty() && !summaries.is_empty(), "{embeds:?} {summaries:?}");
    // The summaries end while the chunks still wait: the file is summarized once it has them.
    pause(&app, "embed").await;
    for id in embeds.iter().chain(&summaries) {
        app.client.retry_task(TaskPath { id: *id }).await.unwrap();
    }
    until("the summaries to end", async || {
        let ended = tasks(&app, file, TaskStatus::Completed, "summarize:llm").await;
        summaries.iter().all(|id| ended.contains(id)).then_some(())
    })
    .await;
    resume(&app, "embed").await;
    let frontier = app.settled(file).await;
    assert_eq!((frontier.settled, frontier.nodes_failed), (Settled::Settled, 0), "{frontier:?}");
    let has_vector: bool = sqlx::query_scalar("SELECT EXISTS (SELECT FROM document_vectors WHERE document_id = $1)")
        .bind(file)
        .fetch_one(&app.pool)
        .await
        .unwrap();
    assert!(has_vector);
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_failed_twice_counts_once_and_what_succeeds_at_last_does_not_count() {
    let app = TestApp::start().await;
    pause(&app, "embed").await;
    let file = long_file(&app).await;
    cancel_embedding(&app, file).await;
    let failed = failed_children(&app, file).await;
    let chunks = app.client.read_frontier(DocumentPath { id: file }).await.unwrap().nodes_failed;
    assert!(chunks > 3 && failed == chunks, "{failed} of {chunks}");
    let again = async || {
        for id in tasks(&app, file, TaskStatus::Failed, "embed").await {
            app.client.retry_task(TaskPath { id }).await.unwrap();
        }
    };
    pause(&app, "embed").await;
    again().await;
    cancel_embedding(&app, file).await;
    assert_eq!(failed_children(&app, file).await, chunks);
    again().await;
    assert_eq!(app.settled(file).await.nodes_failed, 0);
    assert_eq!(failed_children(&app, file).await, 0);
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

/// What failed because of another task waits for that one again, which is tried again with it.
#[tokio::test]
async fn a_task_that_failed_with_another_one_takes_that_along_when_it_is_tried_again() {
    let app = TestApp::start().await;
    pause(&app, "extract:text").await;
    let file = app.upload_bytes("heron.txt", "The heron waits.").await.unwrap().document_id;
    let extract = until("a task that waits to extract", async || {
        tasks(&app, file, TaskStatus::Pending, "extract:text").await.first().copied()
    })
    .await;
    app.client.cancel_task(TaskPath { id: extract }).await.unwrap();
    assert_eq!(app.settled(file).await.settled, Settled::Failed);
    let asked = TaskQuery { status: Some(TaskStatus::Failed), root_id: Some(file), ..TaskQuery::default() };
    let failed = app.client.list_tasks(asked).await.unwrap().tasks;
    let with = failed.iter().find(|task| task.id != extract).expect("another one failed with it").id;
    resume(&app, "extract:text").await;
    app.client.retry_task(TaskPath { id: with }).await.unwrap();
    until("the file", async || (app.settled(file).await.settled == Settled::Settled).then_some(())).await;
    invariants::check_drained(&app.pool).await;
    app.end().await;
}
