//! The end of a task claims what its worker runs next, in one message.
use crate::{
    queue::{app, claim, claimer, node, status, task},
    support::TestApp,
};
use chrono::Utc;
use serde_json::Map;
use std::time::Duration;
use svc::store::{
    advisory::AdvisoryLock,
    leases,
    tasks::{self, AttemptRow, Claimer, Ended},
    transaction,
};
use svc_actors::{Grant, Lane, WriteMode};
use svc_client::wire::{AttemptOutcome, TaskTypePath};

async fn end(app: &TestApp, grant: &Grant, claimer: &Claimer) -> Option<(Ended, Option<Vec<Grant>>)> {
    let detail = Map::new();
    let attempt =
        AttemptRow { grant, worker: "w", started_at: Utc::now(), outcome: AttemptOutcome::Completed, detail: &detail };
    let tx = transaction::begin(&app.pool).await.unwrap();
    let ended = tasks::finish_and_claim(tx, &attempt, claimer, &[(Lane::Io, 1)]).await.unwrap();
    ended.map(|(ended, claimed)| (ended, claimed.map(|claimed| claimed.grants)))
}

/// The tasks that the end of a task claimed; fails if it was not asked for any.
async fn next(app: &TestApp, grant: &Grant, claimer: &Claimer) -> Vec<Grant> {
    end(app, grant, claimer).await.unwrap().1.unwrap()
}

async fn clear(app: TestApp) {
    sqlx::query("DELETE FROM task_queue").execute(&app.pool).await.unwrap();
    app.end().await;
}

#[tokio::test]
async fn the_end_of_a_task_claims_in_the_order_of_every_claim() {
    let app = app().await;
    let (file, other) = (node(&app, None).await, node(&app, None).await);
    let child = node(&app, Some(file.0)).await;
    let w = claimer("it's a \\ worker");
    let first = task(&app, &file, WriteMode::Subtree, 0, None).await;
    let held = claim(&app, 1).await.remove(0);
    assert_eq!(held.task_id, first);
    // The end of the first task frees what it blocked, and an urgent task of another file still goes first.
    let same = task(&app, &child, WriteMode::Itself, 1, None).await;
    let badged = task(&app, &other, WriteMode::Itself, 9, Some("gpu")).await;
    let urgent = task(&app, &other, WriteMode::Itself, 5, None).await;
    let cpu = Claimer { badges: Some(vec!["cpu".to_owned()]), ..w.clone() };
    let mut granted = next(&app, &held, &cpu).await;
    assert_eq!(granted.iter().map(|grant| grant.task_id).collect::<Vec<_>>(), [urgent]);
    assert_eq!(status(&app, first).await.0, "completed");
    let mut granted = next(&app, &granted.remove(0), &w).await;
    assert_eq!(granted[0].task_id, badged, "a worker without badges takes it");
    app.client.pause_task_type(TaskTypePath { task_type: "test".to_owned() }).await.unwrap();
    assert!(next(&app, &granted.remove(0), &w).await.is_empty(), "its type is paused");
    app.client.resume_task_type(TaskTypePath { task_type: "test".to_owned() }).await.unwrap();

    // The grant is the same as that of a separate claim.
    let one = claim(&app, 1).await.remove(0);
    assert_eq!((one.task_id, one.region.path.as_slice()), (same, [file.0, child.0].as_slice()));
    let again = task(&app, &child, WriteMode::Itself, 1, None).await;
    let two = next(&app, &one, &w).await.remove(0);
    assert_eq!((two.task_id, two.root_id, two.attempt, two.lane), (again, one.root_id, 1, one.lane));
    assert_eq!((&two.region, &two.params, two.document_id), (&one.region, &one.params, one.document_id));
    let by: String = sqlx::query_scalar("SELECT claimed_by FROM task_queue WHERE id = $1")
        .bind(again)
        .fetch_one(&app.pool)
        .await
        .unwrap();
    assert_eq!(by, w.worker_id);
    clear(app).await;
}

#[tokio::test]
async fn a_stale_end_claims_nothing_and_a_busy_lock_holds_up_no_end() {
    let app = app().await;
    let node = node(&app, None).await;
    let first = task(&app, &node, WriteMode::Itself, 0, None).await;
    let waits = task(&app, &node, WriteMode::Itself, -1, None).await;
    let held = claim(&app, 1).await.remove(0);
    let stale = Grant { token: uuid::Uuid::new_v4(), ..held.clone() };
    assert!(end(&app, &stale, &claimer("w")).await.is_none());
    assert_eq!((status(&app, first).await.0, status(&app, waits).await.0), ("claimed".into(), "pending".into()));

    let mut other = app.pool.begin().await.unwrap();
    sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(AdvisoryLock::Claim.key()).execute(&mut *other).await.unwrap();
    let (_, asked) = end(&app, &held, &claimer("w")).await.unwrap();
    assert!(asked.is_none(), "another claim was under way");
    assert_eq!((status(&app, first).await.0, status(&app, waits).await.0), ("completed".into(), "pending".into()));
    other.rollback().await.unwrap();
    clear(app).await;
}

#[tokio::test]
async fn a_worker_gives_back_what_it_claimed_and_never_heard_of() {
    let app = app().await;
    let node = node(&app, None).await;
    let id = task(&app, &node, WriteMode::Itself, 0, None).await;
    let grant = claim(&app, 1).await.remove(0);
    let mut conn = app.pool.acquire().await.unwrap();
    let lately = Duration::from_secs(60);
    assert_eq!(leases::give_back_unheard(&mut conn, "w", &[], lately).await.unwrap(), 0, "its answer may be under way");
    sqlx::query("UPDATE task_queue SET heartbeat_at = now() - interval '2 minutes'").execute(&app.pool).await.unwrap();
    assert_eq!(leases::give_back_unheard(&mut conn, "another", &[], lately).await.unwrap(), 0);
    assert_eq!(leases::give_back_unheard(&mut conn, "w", &[grant.token], lately).await.unwrap(), 0, "it knows of it");
    assert_eq!(leases::give_back_unheard(&mut conn, "w", &[], lately).await.unwrap(), 1);
    assert_eq!(status(&app, id).await, ("pending".to_owned(), true, None));
    let losses: i32 = sqlx::query_scalar("SELECT lease_losses FROM task_queue WHERE id = $1")
        .bind(id)
        .fetch_one(&mut *conn)
        .await
        .unwrap();
    assert_eq!(losses, 0, "no lease was lost");
    assert!(end(&app, &grant, &claimer("w")).await.is_none(), "an answer that comes later is refused");
    assert_eq!(claim(&app, 1).await[0].task_id, id, "its region is free");
    drop(conn);
    clear(app).await;
}
