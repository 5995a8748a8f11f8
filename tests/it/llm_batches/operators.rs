//! What operators ask of `svc-batch-worker`, whatever happens meanwhile to a batch, to a connection or to a pipe.
use super::{command, ended};
use crate::support::{TestApp, Wish, until_a_statement_like_this_waits};
use std::{process::Output, time::Duration};
use svc::store::llm_batches;

const CANCEL: &str = "UPDATE llm_batches SET cancel_requested_at%";

/// A service with two batches that have not ended.
async fn two_batches() -> (TestApp, [i64; 2]) {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let open = "INSERT INTO llm_batches (provider, model) VALUES ('mock', 'one'), ('mock', 'two') RETURNING id";
    let mut ids: Vec<i64> = sqlx::query_scalar(open).fetch_all(&app.pool).await.unwrap();
    ids.sort_unstable();
    (app, ids.try_into().unwrap())
}

async fn is_cancelled(app: &TestApp, id: i64) -> bool {
    let asked = "SELECT cancel_requested_at IS NOT NULL FROM llm_batches WHERE id = $1";
    sqlx::query_scalar(asked).bind(id).fetch_one(&app.pool).await.unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.as_slice(), &output.stderr].concat()).into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_that_breaks_off_has_cancelled_nothing_as_it_says() {
    let (app, [first, second]) = two_batches().await;
    let mut held = app.pool.begin().await.unwrap();
    sqlx::query("SELECT 1 FROM llm_batches WHERE id = $1 FOR UPDATE").bind(second).execute(&mut *held).await.unwrap();
    let cancel = tokio::spawn(ended(command(&app, &["cancel", &first.to_string(), &second.to_string()])));
    until_a_statement_like_this_waits(&app.pool, CANCEL).await;
    let cut = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
                WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE $1";
    let cut: i64 = sqlx::query_scalar(cut).bind(CANCEL).fetch_one(&app.pool).await.unwrap();
    assert_eq!(cut, 1);
    let done = cancel.await.unwrap();
    held.rollback().await.unwrap();
    assert_eq!(done.status.code(), Some(1));
    assert!(said(&done).contains("nothing was cancelled"), "{}", said(&done));
    assert!(!is_cancelled(&app, first).await && !is_cancelled(&app, second).await);

    let done = ended(command(&app, &["cancel", &first.to_string(), &second.to_string()])).await;
    assert!(done.status.success() && said(&done).contains("will end: 2"), "{}", said(&done));
    assert!(is_cancelled(&app, first).await && is_cancelled(&app, second).await);
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_batches_are_cancelled_though_one_ends_meanwhile() {
    let (app, [first, second]) = two_batches().await;
    let mut ending = app.pool.begin().await.unwrap();
    let end =
        "UPDATE llm_batches SET state = 'ended', outcome = 'completed', ended_at = now(), is_done = true WHERE id = $1";
    sqlx::query(end).bind(first).execute(&mut *ending).await.unwrap();
    let cancel = tokio::spawn(ended(command(&app, &["cancel", "--all"])));
    until_a_statement_like_this_waits(&app.pool, CANCEL).await;
    ending.commit().await.unwrap();
    let done = cancel.await.unwrap();
    assert!(done.status.success() && said(&done).contains("will end: 1"), "{}", said(&done));
    assert!(!is_cancelled(&app, first).await && is_cancelled(&app, second).await);
    // Who names one wants to know that it had ended.
    let done = ended(command(&app, &["cancel", &first.to_string()])).await;
    assert_eq!(done.status.code(), Some(1), "{}", said(&done));
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stall_is_told_by_the_exit_code_though_nobody_reads_which_batch_it_is() {
    let (app, [first, second]) = two_batches().await;
    let give_up = "UPDATE llm_batches SET expires_at = now() - interval '1 minute'";
    sqlx::query(give_up).execute(&app.pool).await.unwrap();
    let mut stalled = command(&app, &["stalled"]).spawn().unwrap();
    drop(stalled.stdout.take());
    let done = tokio::task::spawn_blocking(move || stalled.wait_with_output().unwrap()).await.unwrap();
    assert_eq!(done.status.code(), Some(1), "{}", said(&done));

    // However many went well since, these are told.
    let later = "INSERT INTO llm_batches (provider, model, state, outcome, ended_at, is_done)
                 SELECT 'mock', 'one', 'ended', 'completed', now(), true FROM generate_series(1, 1000)";
    sqlx::query(later).execute(&app.pool).await.unwrap();
    let done = ended(command(&app, &["stalled"])).await;
    assert_eq!((done.status.code(), said(&done).lines().count()), (Some(1), 2), "{}", said(&done));
    let mut conn = app.pool.acquire().await.unwrap();
    let stalled = llm_batches::stalled(&mut conn, Duration::from_secs(3600)).await.unwrap();
    assert_eq!(stalled.iter().map(|batch| batch.id).collect::<Vec<_>>(), [second, first]);
    drop(conn);
    app.end().await;
}
