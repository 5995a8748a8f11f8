//! The ends of tasks and the claims after them: what a client that stops midway may hold up, and what it may not.
use crate::{
    queue::{app, claim, claimer, finish, node, status, task},
    support::{PATIENCE, invariants, until},
};
use chrono::Utc;
use serde_json::{Map, Value, json};
use sqlx::{Connection, PgConnection};
use svc::store::{
    tasks::{self, AttemptRow, Ended},
    transaction,
};
use svc_actors::{Grant, Lane, WriteMode};

fn attempt<'a>(grant: &'a Grant, detail: &'a Map<String, Value>) -> AttemptRow<'a> {
    AttemptRow { grant, worker: "w", started_at: Utc::now(), outcome: "completed", detail }
}

#[tokio::test]
async fn an_end_that_was_sent_is_committed_though_its_client_stops() {
    let app = app().await;
    let root = node(&app, None).await;
    let id = task(&app, &root, WriteMode::Subtree, 0, None).await;
    let grant = claim(&app, 1).await.remove(0);
    let mut tx = transaction::begin(&app.pool).await.unwrap();
    sqlx::query("UPDATE documents SET title = 'written by the task' WHERE id = $1")
        .bind(root.0)
        .execute(&mut *tx)
        .await
        .unwrap();
    let detail = Map::new();
    let attempt = attempt(&grant, &detail);
    let mut end = Box::pin(tasks::finish_and_commit(tx, &attempt));
    // Sent, and from here on the client does nothing: it neither reads the answer nor says anything more.
    assert!(futures_util::poll!(&mut end).is_pending());
    until("the commit", async || (status(&app, id).await.0 == "completed").then_some(())).await;
    let title: String = sqlx::query_scalar("SELECT title FROM documents WHERE id = $1")
        .bind(root.0)
        .fetch_one(&app.pool)
        .await
        .unwrap();
    assert_eq!(title, "written by the task");
    assert_eq!(end.await.unwrap(), Some(Ended { is_waited_for: false }));
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn an_end_that_is_refused_commits_nothing() {
    let app = app().await;
    let root = node(&app, None).await;
    task(&app, &root, WriteMode::Itself, 0, None).await;
    let grant = claim(&app, 1).await.remove(0);
    let stale = Grant { token: uuid::Uuid::new_v4(), ..grant.clone() };
    let mut tx = transaction::begin(&app.pool).await.unwrap();
    sqlx::query("UPDATE documents SET title = 'written by a zombie'").execute(&mut *tx).await.unwrap();
    assert_eq!(tasks::finish_and_commit(tx, &attempt(&stale, &Map::new())).await.unwrap(), None);
    let title: String = sqlx::query_scalar("SELECT title FROM documents").fetch_one(&app.pool).await.unwrap();
    assert_eq!(title, "node");
    assert!(finish(&app.pool, &grant).await, "whoever holds it still ends it");
    app.end().await;
}

#[tokio::test]
async fn what_a_task_says_at_its_end_is_stored_as_it_was_said() {
    let app = app().await;
    let root = node(&app, None).await;
    task(&app, &root, WriteMode::Itself, 0, None).await;
    let grant = claim(&app, 1).await.remove(0);
    let said = r#"'; ROLLBACK; DROP TABLE task_queue; -- \' \\ \x27 " $$ E'' %s ü 🌳"#;
    let detail = Map::from_iter([(said.to_owned(), json!([said, "\0\n\r\t", 1.5]))]);
    let worker = format!("worker {said}");
    let tx = transaction::begin(&app.pool).await.unwrap();
    let attempt = AttemptRow { worker: &worker, ..attempt(&grant, &detail) };
    tasks::finish_and_commit(tx, &attempt).await.unwrap().unwrap();
    let stored: (String, Value) =
        sqlx::query_as("SELECT worker, detail FROM task_attempts").fetch_one(&app.pool).await.unwrap();
    assert_eq!(stored, (worker.clone(), json!({said: [said, "\n\r\t", 1.5]})));
    app.end().await;
}

#[tokio::test]
async fn no_claim_waits_for_an_end_that_is_not_committed() {
    let app = app().await;
    let root = node(&app, None).await;
    let children = [node(&app, Some(root.0)).await, node(&app, Some(root.0)).await];
    let whole = task(&app, &root, WriteMode::Subtree, 9, None).await;
    let held = claim(&app, 1).await.remove(0);
    assert_eq!(held.task_id, whole);
    let below = [
        task(&app, &children[0], WriteMode::Itself, 5, None).await,
        task(&app, &children[1], WriteMode::Itself, 5, None).await,
    ];
    let mut unrelated = Vec::new();
    for _ in 0..6 {
        unrelated.push(task(&app, &node(&app, None).await, WriteMode::Itself, 0, None).await);
    }
    // A client that stopped between the end of its task and the commit; nothing ends its transaction for it.
    let mut stopped = PgConnection::connect_with(&app.options).await.unwrap();
    sqlx::raw_sql("BEGIN").execute(&mut stopped).await.unwrap();
    assert!(tasks::finish(&mut stopped, &attempt(&held, &Map::new())).await.unwrap());

    // Claims of one, and of several at once: those meet what lies under the region first.
    let mut got = Vec::new();
    for count in [1, 1, 4] {
        let pool = app.pool.clone();
        let claiming =
            tokio::spawn(async move { tasks::claim(&pool, &claimer("w"), &[(Lane::Io, count)]).await.unwrap() });
        let grants = tokio::time::timeout(PATIENCE, claiming).await.expect("a claim waits for the open end").unwrap();
        got.extend(grants.iter().map(|grant| grant.task_id));
    }
    assert_eq!(got, unrelated);
    sqlx::raw_sql("COMMIT").execute(&mut stopped).await.unwrap();
    let mut next: Vec<i64> = claim(&app, 9).await.iter().map(|grant| grant.task_id).collect();
    next.sort_unstable();
    assert_eq!(next, below, "they woke with the commit");
    invariants::check(&app.pool).await;
    app.end().await;
}
