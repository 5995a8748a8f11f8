//! The single order of locks: task ends, cancels, deletes and settling meet on the same rows and never wait in a
//! circle.
use crate::{
    queue::{app, finish},
    support::{self, TestApp, Wish, document, invariants, sample, until, until_a_statement_like_this_waits},
};
use rand::{RngExt, SeedableRng, rngs::SmallRng};
use std::time::Duration;
use svc::store::{ingest_nodes, tasks, transaction};
use svc_actors::Lane;
use svc_client::{
    Code, Failure, FileUpload, Json,
    wire::{AttemptOutcome, DocumentPath, Settled, UploadQuery, WaitQuery},
};
use svc_ids::{DocumentId, RootId};

/// Panics with the server's own words if it has found a deadlock in this database.
async fn no_deadlock(app: &TestApp) {
    let found: i64 = sqlx::query_scalar("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")
        .fetch_one(&app.pool)
        .await
        .unwrap();
    if found == 0 {
        return;
    }
    let mut folders = vec![support::server::work_dir().to_owned(), support::server::folder().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            match path.extension().and_then(|extension| extension.to_str()) {
                Some("log") => {
                    let log = std::fs::read_to_string(&path).unwrap_or_default();
                    let lines: Vec<&str> = log.lines().collect();
                    for at in (0..lines.len()).filter(|at| lines[*at].contains("deadlock detected")) {
                        eprintln!("{}", lines[at..lines.len().min(at + 40)].join("\n"));
                    }
                }
                _ if path.is_dir() => folders.push(path),
                _ => {}
            }
        }
    }
    panic!("{found} deadlocks");
}

/// Counts the sessions that wait for a row or an advisory lock.
async fn waiting(app: &TestApp) -> i64 {
    sqlx::query_scalar(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'",
    )
    .fetch_one(&app.pool)
    .await
    .unwrap()
}

#[tokio::test]
async fn a_cancel_waits_for_a_task_that_applies_and_the_task_does_not_wait_for_it() {
    let app = app().await;
    let id = app.upload(&sample("handbook.md")).await.unwrap().document_id;
    let claimer = crate::queue::claimer("w");
    let probe = tasks::claim(&app.pool, &claimer, &[(Lane::Cpu, 1)]).await.unwrap().grants.remove(0);
    let mut apply = app.pool.begin().await.unwrap();
    ingest_nodes::task_over(&mut apply, DocumentId(id)).await.unwrap();
    let cancel = {
        let client = app.client.clone();
        tokio::spawn(async move { client.cancel_ingest(DocumentPath { id }).await })
    };
    until("the cancel to wait for the task", async || (waiting(&app).await > 0).then_some(())).await;
    let detail = serde_json::Map::new();
    let attempt = tasks::AttemptRow {
        grant: &probe,
        worker: "w",
        started_at: chrono::Utc::now(),
        outcome: AttemptOutcome::Completed,
        detail: &detail,
    };
    assert!(tasks::finish(&mut apply, &attempt).await.unwrap(), "the task ends while the cancel waits");
    apply.commit().await.unwrap();
    cancel.await.unwrap().unwrap();
    no_deadlock(&app).await;
    assert!(!finish(&app.pool, &probe).await);
    sqlx::query("DELETE FROM task_queue").execute(&app.pool).await.unwrap();
    app.client.delete_document(DocumentPath { id }).await.unwrap();
    app.end().await;
}

#[tokio::test]
async fn a_delete_waits_for_the_settler_and_holds_nothing_that_it_needs() {
    let app = app().await;
    let id = app.upload(&sample("handbook.md")).await.unwrap().document_id;
    let (mut settler, taken) = transaction::begin_settling(&app.pool, &[RootId(id)]).await.unwrap();
    assert_eq!(taken, [RootId(id)]);
    let (other, taken) = transaction::begin_settling(&app.pool, &[RootId(id)]).await.unwrap();
    assert_eq!(taken, [], "one settles at a time");
    other.rollback().await.unwrap();
    let delete = {
        let client = app.client.clone();
        tokio::spawn(async move { client.delete_document(DocumentPath { id }).await })
    };
    until("the delete to wait for the settler", async || (waiting(&app).await > 0).then_some(())).await;
    sqlx::query("UPDATE documents SET settled = 'settled' WHERE id = $1")
        .bind(id)
        .execute(&mut *settler)
        .await
        .unwrap();
    settler.rollback().await.unwrap();
    delete.await.unwrap().unwrap();
    no_deadlock(&app).await;
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

/// Whether a change beside others was done. Its document may also be gone or held by a task; any other failure, such as
/// a loss against another change, panics.
fn expected<T>(outcome: Result<T, Failure>) -> bool {
    match outcome {
        Ok(_) => true,
        Err(failure) if matches!(failure.code, Code::NotFound | Code::Conflict) => false,
        Err(failure) => panic!("{failure}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn hundreds_of_cancels_and_deletes_beside_running_tasks_meet_no_deadlock() {
    let app = TestApp::start().await;
    let mut random = SmallRng::seed_from_u64(12);
    for round in 0..40 {
        let pairs = (0..8).map(|file| {
            let (first, second) = (random.random_range(0..60), random.random_range(0..60));
            let client = app.client.clone();
            tokio::spawn(async move {
                let sections: String =
                    (0..4).map(|part| format!("# Part {part}\n\nWords of file {round} {file}.\n\n")).collect();
                let upload = FileUpload::from_bytes(&format!("{round}-{file}.md"), sections, None);
                let id = client.upload_file(UploadQuery::default(), upload).await.unwrap().document_id;
                let cancel = async {
                    tokio::time::sleep(Duration::from_millis(first)).await;
                    expected(client.cancel_ingest(DocumentPath { id }).await)
                };
                let delete = async {
                    tokio::time::sleep(Duration::from_millis(second)).await;
                    while !expected(client.delete_document(DocumentPath { id }).await) {
                        if client.read_document(DocumentPath { id }, Default::default()).await.is_err() {
                            return;
                        }
                        tokio::time::sleep(Duration::from_millis(5)).await;
                    }
                };
                tokio::join!(cancel, delete);
            })
        });
        for pair in pairs.collect::<Vec<_>>() {
            pair.await.unwrap();
        }
    }
    no_deadlock(&app).await;
    until("the last tasks to end", async || {
        let left: i64 = sqlx::query_scalar("SELECT count(*) FROM documents").fetch_one(&app.pool).await.unwrap();
        (left == 0).then_some(())
    })
    .await;
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

/// Makes a folder with this many stored files of one byte each.
async fn folder(app: &TestApp, parent_id: Option<i64>, files: i32) -> i64 {
    let mut new = document("A folder", "");
    new.parent_id = parent_id;
    let folder = app.client.create_document(WaitQuery::default(), Json(new)).await.unwrap();
    sqlx::query("DELETE FROM task_queue WHERE scope_document_id = $1")
        .bind(folder.id)
        .execute(&app.pool)
        .await
        .unwrap();
    let path: Vec<i64> = folder.path.iter().copied().chain([folder.id]).collect();
    sqlx::query(
        "WITH made AS (
             INSERT INTO documents (parent_id, path, title, content, usetype, content_hash, guard)
             SELECT $1, $2, 'file ' || n, '', 'file', 'sha256:' || $1 || '-' || n, 0 FROM generate_series(1, $3) AS n RETURNING id, content_hash),
         nodes AS (INSERT INTO ingest_node (document_id, root_id, rollup) SELECT id, id, 'done' FROM made)
         INSERT INTO document_blobs (document_id, lob, byte_size, content_hash, options)
         SELECT id, lo_from_bytea(0, 'x'), 1, content_hash, '{}' FROM made",
    )
    .bind(folder.id)
    .bind(path)
    .bind(files)
    .execute(&app.pool)
    .await
    .unwrap();
    folder.id
}

async fn count(app: &TestApp, table: &str) -> i64 {
    let query = format!("SELECT count(*) FROM {table}");
    sqlx::query_scalar(sqlx::AssertSqlSafe(query)).fetch_one(&app.pool).await.unwrap()
}

/// Waits until no bytes are left; those of many files go once their delete is answered.
async fn bytes_are_gone(app: &TestApp) {
    until("the bytes to go", async || {
        let left = count(app, "pg_largeobject_metadata").await + count(app, "blob_orphan").await;
        (left == 0).then_some(())
    })
    .await;
}

/// A server with room for few locks. It promises 24 for each of 40 connections and of its 36 own processes, and its memory holds about twice
/// as many, which are more than a part of the bytes takes and fewer than there are files.
const FEW_LOCKS: &[&str] = &[
    "ALTER SYSTEM SET max_connections = 40",
    "ALTER SYSTEM SET max_locks_per_transaction = 24",
    "ALTER SYSTEM SET max_pred_locks_per_transaction = 10",
];

/// More files than one transaction may delete there.
const FILES: i32 = 6_000;

/// Deletes a document with everything under it, whose bytes do not go in one transaction.
async fn is_deleted_whole(app: &TestApp, id: i64) {
    let mut conn = app.pool.acquire().await.unwrap();
    let refused =
        sqlx::query("SELECT count(lo_unlink(lob)) FROM document_blobs").execute(&mut *conn).await.unwrap_err();
    // The server tells the error before it gives up the locks, without which it has none for anybody else.
    sqlx::Connection::ping(&mut *conn).await.unwrap();
    drop(conn);
    let code = refused.as_database_error().and_then(|error| error.code());
    assert_eq!(code.as_deref(), Some("53200"), "one transaction has no room for the locks: {refused}");
    app.client.delete_document(DocumentPath { id }).await.unwrap();
    for table in ["documents", "ingest_node", "document_blobs"] {
        assert_eq!(count(app, table).await, 0, "{table}");
    }
    bytes_are_gone(app).await;
}

#[tokio::test]
async fn more_files_or_pictures_than_a_transaction_may_delete_are_deleted_whole() {
    let database = support::server::own_with("few-locks", FEW_LOCKS).await;
    let wish = Wish { database: Some(database.connect_options()), no_worker: true, ..Wish::default() };
    let app = TestApp::with(wish).await;
    let files = folder(&app, None, FILES).await;
    assert_eq!(count(&app, "pg_largeobject_metadata").await, i64::from(FILES));
    is_deleted_whole(&app, files).await;

    let file = folder(&app, None, 1).await;
    sqlx::query(
        "WITH made AS (
             INSERT INTO documents (parent_id, path, title, content, usetype, content_hash, guard)
             SELECT f.id, f.path || f.id, 'picture ' || n, 'beside it', 'image', 'sha256:' || n, 0
               FROM documents f, generate_series(1, $2) AS n WHERE f.parent_id = $1 RETURNING id, content_hash)
         INSERT INTO document_blobs (document_id, lob, byte_size, content_hash, options, is_file)
         SELECT id, lo_from_bytea(0, 'x'), 1, content_hash, '{}', false FROM made",
    )
    .bind(file)
    .bind(FILES)
    .execute(&app.pool)
    .await
    .unwrap();
    is_deleted_whole(&app, file).await;
    app.end().await;
    database.stop().await;
}

#[tokio::test]
async fn a_delete_of_many_files_is_answered_before_their_bytes_are_gone() {
    let app = app().await;
    let folder = folder(&app, None, 1_500).await;
    let mut held = app.pool.begin().await.unwrap();
    sqlx::query("SELECT lo_unlink(min(lob)) FROM document_blobs").execute(&mut *held).await.unwrap();
    app.client.delete_document(DocumentPath { id: folder }).await.unwrap();
    assert_eq!(count(&app, "documents").await, 0);
    // The bytes wait for whoever has one of them.
    until_a_statement_like_this_waits(&app.pool, "%DELETE FROM blob_orphan%").await;
    held.rollback().await.unwrap();
    bytes_are_gone(&app).await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn settlers_at_work_and_deletes_of_many_files_disturb_each_other_not() {
    let app = TestApp::start().await;
    let mut new = document("The tree", "");
    new.parent_id = None;
    let tree = app.client.create_document(WaitQuery::default(), Json(new)).await.unwrap().id;
    let mut kept = Vec::new();
    for round in 0..4 {
        let gone = folder(&app, Some(tree), 1_500).await;
        for file in 0..6 {
            let text = format!("# One\n\nFile {round} {file}.\n\n# Two\n\nMore of it.\n");
            let query = UploadQuery { parent_id: Some(tree), ..UploadQuery::default() };
            let upload = FileUpload::from_bytes("kept.md", text, None);
            kept.push(app.client.upload_file(query, upload).await.unwrap().document_id);
        }
        app.client.delete_document(DocumentPath { id: gone }).await.unwrap();
    }
    for id in kept {
        let frontier = app.settled(id).await;
        assert_eq!((frontier.settled, frontier.nodes_failed), (Settled::Settled, 0));
    }
    no_deadlock(&app).await;
    invariants::check_drained(&app.pool).await;
    app.end().await;
}
