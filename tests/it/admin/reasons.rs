//! What a list of the tasks that wait for a reason finds, and how much it reads for that.
use super::{idle, pretend};
use crate::{
    queue::{node, task},
    support::TestApp,
};
use svc::store::admin;
use svc_actors::WriteMode;
use svc_client::wire::{BlockedBy, TaskQuery, TaskResponse, TaskTypePath};
use svc_ids::TaskId;

/// How many tasks owe work.
const OPEN: u32 = 4_000;

/// The tasks that a query finds, and how many rows of the queue are read for that.
async fn found(app: &TestApp, query: &TaskQuery, limit: u32) -> (Vec<TaskResponse>, i64) {
    let read =
        "SELECT seq_tup_read + coalesce(idx_tup_fetch, 0) FROM pg_stat_xact_user_tables WHERE relname = 'task_queue'";
    let mut tx = app.pool.begin().await.unwrap();
    let before: i64 = sqlx::query_scalar(read).fetch_one(&mut *tx).await.unwrap();
    let tasks = admin::tasks(&mut tx, query, TaskId(0), limit).await.unwrap();
    let after: i64 = sqlx::query_scalar(read).fetch_one(&mut *tx).await.unwrap();
    tx.rollback().await.unwrap();
    (tasks, after - before)
}

fn ids(tasks: &[TaskResponse]) -> Vec<i64> {
    tasks.iter().map(|task| task.id).collect()
}

/// Each reason finds the tasks that say it themselves. Returns how many tasks wait for each, and how many rows its first page reads.
async fn reasons(app: &TestApp) -> Vec<(BlockedBy, usize, i64)> {
    let (all, _) = found(app, &TaskQuery::default(), 2 * OPEN).await;
    assert_eq!(all.len(), OPEN as usize);
    let mut seen = Vec::new();
    for word in BlockedBy::WORDS {
        let reason: BlockedBy = word.parse().unwrap();
        let query = TaskQuery { blocked_by: Some(reason), ..TaskQuery::default() };
        let says = |task: &&TaskResponse| task.blocked_by.as_ref().is_some_and(|blockage| blockage.reason == reason);
        let wanted: Vec<i64> = all.iter().filter(says).map(|task| task.id).collect();
        let (whole, _) = found(app, &query, 2 * OPEN).await;
        assert_eq!(ids(&whole), wanted, "{reason}");
        let (page, read) = found(app, &query, 101).await;
        assert_eq!(ids(&page), wanted[..wanted.len().min(101)], "{reason}");
        seen.push((reason, wanted.len(), read));
    }
    seen
}

#[tokio::test]
async fn tasks_that_wait_for_a_reason_are_found_without_those_that_wait_for_another() {
    let app = idle().await;
    let root = node(&app, None).await;
    task(&app, &root, WriteMode::Itself, 0, None).await;
    // Nearly all wait for a worker. Of the others one is paused and stands behind another task, and three still stand behind a pause that is over.
    sqlx::query(
        "INSERT INTO task_queue (task_type, scope_document_id, lane, node_path, node_depth, root_id, write_mode, service_badge, parked_on, unmet_deps, ready)
         SELECT CASE WHEN n <= 7 THEN 'paused' WHEN n <= 12 THEN 'from_the_future' ELSE task_type END, scope_document_id, lane, node_path, node_depth, root_id,
                write_mode, CASE WHEN n BETWEEN 13 AND 17 THEN 'gpu' WHEN n BETWEEN 18 AND 20 THEN 'cpu' END,
                CASE WHEN n BETWEEN 21 AND 23 THEN -1000 WHEN n IN (7, 24) THEN id END, (n = 25)::integer, n <> 7 AND n NOT BETWEEN 21 AND 25
           FROM task_queue, generate_series(1, $1) n ORDER BY n",
    )
    .bind(i64::from(OPEN - 1))
    .execute(&app.pool)
    .await
    .unwrap();
    sqlx::query("ANALYZE task_queue").execute(&app.pool).await.unwrap();
    pretend(&app, "w", &["cpu"], false).await;
    let knows = async || {
        sqlx::query("UPDATE workers SET task_types = '{test,paused}'").execute(&app.pool).await.unwrap();
    };
    knows().await;
    let paused = || TaskTypePath { task_type: "paused".to_owned() };
    app.client.pause_task_type(paused()).await.unwrap();

    let seen = reasons(&app).await;
    let waits = |wanted: BlockedBy| seen.iter().find(|(reason, ..)| *reason == wanted).unwrap().1;
    let counts =
        [BlockedBy::Paused, BlockedBy::NoHandler, BlockedBy::NoWorkerForBadge, BlockedBy::Reservation].map(waits);
    assert_eq!(counts, [10, 5, 5, 1]);
    for (reason, tasks, read) in &seen {
        // Each task that is shown is looked up a few times more.
        let most = if *reason == BlockedBy::WorkersBusy { i64::MAX } else { 400 };
        assert!(*read < most, "{reason}: {read} of {OPEN} rows are read for {tasks} tasks");
    }
    let query = TaskQuery { blocked_by: Some(BlockedBy::Paused), ..TaskQuery::default() };
    let listed = app.client.list_tasks(query.clone()).await.unwrap().tasks;
    assert_eq!(ids(&listed), ids(&found(&app, &query, 101).await.0));

    // A worker that leaves tasks without a badge to others, and then none at all.
    pretend(&app, "w", &["cpu"], true).await;
    knows().await;
    reasons(&app).await;
    // One that has a badge and runs other types serves none of the tasks with that badge.
    pretend(&app, "g", &["gpu"], true).await;
    let others = "UPDATE workers SET task_types = '{from_the_future}' WHERE worker_id = 'g'";
    sqlx::query(others).execute(&app.pool).await.unwrap();
    let seen = reasons(&app).await;
    let without_handler = seen.iter().find(|(reason, ..)| *reason == BlockedBy::NoHandler).unwrap();
    assert_eq!(without_handler.1, 5, "those with the badge");
    assert!(without_handler.2 < 400, "{} of {OPEN} rows are read for them", without_handler.2);
    sqlx::query("DELETE FROM workers").execute(&app.pool).await.unwrap();
    reasons(&app).await;
    app.client.resume_task_type(paused()).await.unwrap();
    sqlx::query("DELETE FROM task_queue").execute(&app.pool).await.unwrap();
    app.end().await;
}
