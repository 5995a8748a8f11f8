//! What keeps the queue lean and moving over months.
use crate::{
    admin::worker_row,
    bm25,
    queue::{node, task},
    support::{TestApp, Wish, invariants, sample, until},
};
use chrono::Utc;
use serde_json::Map;
use sqlx::Connection;
use std::time::Duration;
use svc::{
    store::{
        kept::KeptConnections,
        tasks::{self, AttemptRow, Claimer},
        transaction,
        upkeep::{self, Purged},
        workers,
    },
    worker::queue::PgQueue,
};
use svc_actors::{Grant, Lane, Queue, WriteMode};
use svc_client::wire::{
    AttemptOutcome, DocumentPath, ErrorType, Settled, TaskPath, TaskQuery, TaskStatus, TaskTypePath,
};
use svc_ids::{IndexId, TaskId};
use svc_ranking::Cache;

async fn idle() -> TestApp {
    TestApp::with(Wish { no_worker: true, ..Default::default() }).await
}

async fn claim(app: &TestApp, count: usize) -> Vec<Grant> {
    let claimer = Claimer { worker_id: "w".to_owned(), badges: None, strict: false, lease: crate::queue::LEASE };
    tasks::claim(&app.pool, &claimer, &[(Lane::Io, count)]).await.unwrap().grants
}

async fn finish(app: &TestApp, grant: &Grant) {
    let mut tx = app.pool.begin().await.unwrap();
    assert_eq!(
        tasks::start(&mut tx, &[grant.task_id], &[grant.token], crate::queue::LEASE).await.unwrap(),
        [grant.token]
    );
    let detail = Map::new();
    let attempt =
        AttemptRow { grant, worker: "w", started_at: Utc::now(), outcome: AttemptOutcome::Completed, detail: &detail };
    assert!(tasks::finish(&mut tx, &attempt).await.unwrap());
    tx.commit().await.unwrap();
}

/// Makes everything look as if it had happened a month ago.
pub(crate) async fn age(app: &TestApp) {
    for change in [
        "UPDATE task_queue SET created_at = created_at - interval '30 days'",
        "UPDATE task_attempts SET ended_at = ended_at - interval '30 days'",
    ] {
        sqlx::raw_sql(change).execute(&app.pool).await.unwrap();
    }
}

async fn purge(app: &TestApp, days: u64) -> Purged {
    let mut tx = app.pool.begin().await.unwrap();
    let purged = upkeep::purge(&mut tx, Duration::from_secs(days * 86_400), TaskId(0), "test").await.unwrap();
    tx.commit().await.unwrap();
    purged
}

async fn ids(app: &TestApp) -> Vec<TaskId> {
    sqlx::query_scalar("SELECT id FROM task_queue ORDER BY id").fetch_all(&app.pool).await.unwrap()
}

#[tokio::test]
async fn a_purge_takes_what_completed_long_ago_and_nothing_that_anybody_needs() {
    let app = idle().await;
    let (done, busy) = (node(&app, None).await, node(&app, None).await);
    let below = node(&app, Some(busy.0)).await;
    let first = task(&app, &done, WriteMode::Itself, 9, None).await;
    let second = task(&app, &below, WriteMode::Itself, 8, None).await;
    let failed = task(&app, &done, WriteMode::Itself, 7, None).await;
    let open = task(&app, &busy, WriteMode::Itself, 0, None).await;
    for (grant, expected) in claim(&app, 2).await.iter().zip([first, second]) {
        assert_eq!(grant.task_id, expected);
        finish(&app, grant).await;
    }
    app.client.cancel_task(TaskPath { id: failed.0 }).await.unwrap();
    assert_eq!(purge(&app, 7).await, Purged { rows: 0, next: None }, "all of it is young");
    age(&app).await;
    assert_eq!(purge(&app, 31).await.rows, 0);
    // It was queued long ago and completed just now.
    sqlx::query("UPDATE task_attempts SET ended_at = now() WHERE task_id = $1")
        .bind(first)
        .execute(&app.pool)
        .await
        .unwrap();
    assert_eq!(purge(&app, 7).await.rows, 0);
    age(&app).await;
    assert_eq!(purge(&app, 7).await.rows, 1);
    assert_eq!(
        ids(&app).await,
        [second, failed, open],
        "a root with an open task keeps all of its rows, and what failed stays"
    );
    // What failed can still be retried, although another task of its root is gone.
    assert_eq!(app.client.retry_task(TaskPath { id: failed.0 }).await.unwrap().status, TaskStatus::Pending);
    let attempts: i64 = sqlx::query_scalar("SELECT count(*) FROM task_attempts WHERE task_id = $1")
        .bind(first)
        .fetch_one(&app.pool)
        .await
        .unwrap();
    assert_eq!(attempts, 1, "the evidence stays");
    for grant in claim(&app, 9).await {
        finish(&app, &grant).await;
    }
    age(&app).await;
    assert_eq!(purge(&app, 7).await.rows, 3);
    assert_eq!(ids(&app).await, Vec::<TaskId>::new());
    app.end().await;
}

#[tokio::test]
async fn a_purge_takes_what_failed_long_ago_and_leaves_its_evidence() {
    let app = idle().await;
    let id = app.upload(&sample("corrupt.pdf")).await.unwrap().document_id;
    let node = node(&app, None).await;
    let failed = task(&app, &node, WriteMode::Itself, 0, None).await;
    app.client.cancel_task(TaskPath { id: failed.0 }).await.unwrap();
    app.client.cancel_ingest(DocumentPath { id }).await.unwrap();
    age(&app).await;
    let before = app.client.read_evidence(DocumentPath { id }).await.unwrap().evidence;
    assert!(before.contains_key("attempts"), "{before:?}");
    let mut tx = app.pool.begin().await.unwrap();
    // A failed probe is kept because a later password starts from it.
    let purged = upkeep::purge(&mut tx, Duration::from_secs(7 * 86_400), TaskId(0), "probe").await.unwrap();
    tx.commit().await.unwrap();
    let left: Vec<String> = sqlx::query_scalar("SELECT task_type FROM task_queue").fetch_all(&app.pool).await.unwrap();
    assert_eq!((purged.rows, left), (1, vec!["probe".to_owned()]));
    assert_eq!(app.client.read_evidence(DocumentPath { id }).await.unwrap().evidence, before);
    assert_eq!(app.client.read_frontier(DocumentPath { id }).await.unwrap().settled, Settled::Failed);
    app.end().await;
}

#[tokio::test]
async fn of_many_workers_one_has_the_turn() {
    let app = idle().await;
    let turns = (0..8).map(|_| async {
        let mut conn = app.pool.acquire().await.unwrap();
        upkeep::take_turn(&mut conn, "test", Duration::from_secs(3600)).await.unwrap()
    });
    let taken = futures_util::future::join_all(turns).await;
    assert_eq!(taken.iter().filter(|taken| **taken).count(), 1, "{taken:?}");
    let mut conn = app.pool.acquire().await.unwrap();
    assert!(upkeep::take_turn(&mut conn, "another", Duration::from_secs(3600)).await.unwrap());
    assert!(upkeep::take_turn(&mut conn, "test", Duration::ZERO).await.unwrap(), "it comes round again");
    drop(conn);
    app.end().await;
}

#[tokio::test]
async fn what_is_given_back_though_it_was_cancelled_ends_at_once() {
    let app = idle().await;
    let id = app.upload(&sample("handbook.md")).await.unwrap().document_id;
    let lease = Duration::from_secs(600);
    let claimer = Claimer { worker_id: "w".to_owned(), badges: None, strict: false, lease };
    let held = tasks::claim(&app.pool, &claimer, &[(Lane::Cpu, 1)]).await.unwrap().grants.remove(0);
    app.client.cancel_ingest(DocumentPath { id }).await.unwrap();
    let queue = PgQueue::new(&app.service.tools(), claimer, lease, None);
    queue.give_back(&[held.token]).await.unwrap();
    let task = app.client.read_task(TaskPath { id: held.task_id.0 }).await.unwrap();
    assert_eq!((task.finished, task.error_type), (true, Some(ErrorType::Permanent)), "{task:?}");
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn a_worker_purges_by_itself_and_the_file_is_as_it_was() {
    let app = TestApp::with(Wish { settings: &[("SVC_TASK_RETENTION_DAYS", "7")], ..Default::default() }).await;
    let (id, before) = app.ingest(&sample("handbook.md")).await;
    let evidence = app.client.read_evidence(DocumentPath { id }).await.unwrap().evidence;
    let young = node(&app, None).await;
    age(&app).await;
    let kept = task(&app, &young, WriteMode::Itself, 0, Some("nobody")).await;
    until("the purge", async || (ids(&app).await == [kept]).then_some(())).await;
    let after = app.client.read_frontier(DocumentPath { id }).await.unwrap();
    assert_eq!((after.nodes_total, after.settled), (before.nodes_total, Settled::Settled));
    let stands = app.client.read_evidence(DocumentPath { id }).await.unwrap().evidence;
    assert_eq!(stands.keys().collect::<Vec<_>>(), evidence.keys().collect::<Vec<_>>());
    assert_eq!(app.upload(&sample("handbook.md")).await.unwrap().document_id, id);
    sqlx::query("DELETE FROM task_queue").execute(&app.pool).await.unwrap();
    app.end().await;
}

#[tokio::test]
async fn nobody_stands_back_for_a_task_that_cannot_run() {
    let app = idle().await;
    let worker = worker_row("w");
    workers::beat(&mut app.pool.acquire().await.unwrap(), &worker, &serde_json::json!({})).await.unwrap();
    let root = node(&app, None).await;
    let below = [node(&app, Some(root.0)).await, node(&app, Some(root.0)).await];
    let small = task(&app, &below[0], WriteMode::Itself, 9, None).await;
    let whole = task(&app, &root, WriteMode::Subtree, 5, None).await;
    assert_eq!(claim(&app, 1).await[0].task_id, small);
    assert!(claim(&app, 1).await.is_empty(), "the whole waits for the small one");
    sqlx::query(
        "INSERT INTO task_intent SELECT id, priority, created_at, region_paths(node_path, write_mode, NULL, NULL), region_depths(node_depth, write_mode, NULL)
           FROM task_queue WHERE id = $1",
    )
    .bind(whole)
    .execute(&app.pool)
    .await
    .unwrap();
    let young = task(&app, &below[1], WriteMode::Itself, 0, None).await;
    assert!(claim(&app, 1).await.is_empty(), "a younger one stands back for it");
    let lease = Duration::from_secs(600);
    let claimer = Claimer { worker_id: "w".to_owned(), badges: None, strict: false, lease };
    let queue = PgQueue::new(&app.service.tools(), claimer, lease, None);
    let intents = async || -> i64 {
        queue.reap().await.unwrap();
        sqlx::query_scalar("SELECT count(*) FROM task_intent").fetch_one(&app.pool).await.unwrap()
    };
    assert_eq!(intents().await, 1, "it only waits its turn");
    assert!(claim(&app, 1).await.is_empty());
    app.client.pause_task_type(TaskTypePath { task_type: "test".to_owned() }).await.unwrap();
    assert_eq!(intents().await, 0, "now it would not run if it could");
    app.client.resume_task_type(TaskTypePath { task_type: "test".to_owned() }).await.unwrap();
    assert_eq!(claim(&app, 9).await.iter().map(|grant| grant.task_id).collect::<Vec<_>>(), [young]);
    sqlx::query("DELETE FROM task_queue").execute(&app.pool).await.unwrap();
    app.end().await;
}

/// Backends that wait for a lock.
async fn waiting(app: &TestApp) -> i64 {
    sqlx::query_scalar(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND wait_event = 'relation'",
    )
    .fetch_one(&app.pool)
    .await
    .unwrap()
}

#[tokio::test]
async fn a_task_that_is_cut_off_while_it_applies_leaves_no_connection_behind() {
    let app = TestApp::start().await;
    let mut other = sqlx::PgConnection::connect_with(&app.options).await.unwrap();
    sqlx::raw_sql("BEGIN; LOCK TABLE extractions IN SHARE MODE").execute(&mut other).await.unwrap();
    let id = app.upload(&sample("handbook.md")).await.unwrap().document_id;
    until("the apply that waits for the lock", async || (waiting(&app).await > 0).then_some(())).await;
    let query = TaskQuery { root_id: Some(id), task_type: Some("extract:text".to_owned()), ..TaskQuery::default() };
    let held = app.client.list_tasks(query).await.unwrap().tasks.remove(0);
    app.client.cancel_ingest(DocumentPath { id }).await.unwrap();
    let ended = until("the end of the task", async || {
        Some(app.client.read_task(TaskPath { id: held.id }).await.unwrap()).filter(|task| task.finished)
    })
    .await;
    assert_eq!(ended.error_type, Some(ErrorType::Permanent));
    until("the end of its transaction", async || (waiting(&app).await == 0).then_some(())).await;
    sqlx::raw_sql("ROLLBACK").execute(&mut other).await.unwrap();
    other.close().await.unwrap();
    let stored: i64 = sqlx::query_scalar("SELECT count(*) FROM extractions").fetch_one(&app.pool).await.unwrap();
    assert_eq!(stored, 0);
    assert_eq!(
        app.client.read_document(DocumentPath { id }, Default::default()).await.unwrap().value().unwrap().settled,
        Settled::Failed
    );
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn the_server_itself_gives_up_a_statement_that_takes_too_long() {
    let app = idle().await;
    let kept = KeptConnections::new(app.pool.clone());
    let mut tx = transaction::begin_bounded(&kept, Duration::from_millis(50)).await.unwrap();
    let error = sqlx::query("SELECT pg_sleep(60)").execute(&mut *tx).await.unwrap_err();
    assert_eq!(error.as_database_error().unwrap().code().as_deref(), Some("57014"), "{error}");
    drop(tx);
    // The bound ends with its transaction.
    transaction::begin_bounded(&kept, Duration::from_millis(50)).await.unwrap().commit().await.unwrap();
    let mut conn = kept.lend().await.unwrap();
    let limit: String = sqlx::query_scalar("SHOW statement_timeout").fetch_one(&mut *conn).await.unwrap();
    assert_eq!(limit, "0");
    drop((conn, kept));
    app.end().await;
}

#[tokio::test]
async fn a_worker_takes_the_terms_that_no_document_has_once_a_day() {
    let app = idle().await;
    let (index, cache) = (IndexId(1), Cache::new(1 << 20));
    bm25::put(&app.pool, &cache, index, &[(4_711, "bittern".to_owned())]).await;
    assert_eq!(bm25::take(&app.pool, &[4_711]).await, 1);
    let lease = Duration::from_secs(600);
    let claimer = Claimer { worker_id: "w".to_owned(), badges: None, strict: false, lease };
    let queue = PgQueue::new(&app.service.tools(), claimer, lease, None);
    let terms_after = async |turns: &str| -> i64 {
        sqlx::raw_sql(sqlx::AssertSqlSafe(turns.to_owned())).execute(&app.pool).await.unwrap();
        queue.sweep().await.unwrap();
        sqlx::query_scalar("SELECT count(*) FROM search_term_stats").fetch_one(&app.pool).await.unwrap()
    };
    let repair = "DELETE FROM upkeep_turn WHERE name = 'repair'";
    let taken = format!("{repair}; INSERT INTO upkeep_turn VALUES ('purge_terms', now() - interval '23 hours')");
    assert_eq!(terms_after(&taken).await, 1);
    let is_due =
        format!("{repair}; UPDATE upkeep_turn SET taken_at = now() - interval '25 hours' WHERE name = 'purge_terms'");
    assert_eq!(terms_after(&is_due).await, 0);
    let kept: bool =
        sqlx::query_scalar("SELECT taken_at > now() - interval '1 hour' FROM upkeep_turn WHERE name = 'purge_terms'")
            .fetch_one(&app.pool)
            .await
            .unwrap();
    assert!(kept, "the next look is in a day");
    app.end().await;
}
