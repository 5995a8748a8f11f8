//! Batches of a provider that cannot be asked whether it has them, and workers that end while they send one.
use super::{
    app, batches, command, effective, finished, going_on,
    keeper::{cut_off, keeper},
    run_arguments, tasks,
    together::{batching, files, together},
    waiting,
};
use crate::{
    crash::Process,
    summarize::{section, upload},
    support::{
        TestApp, Wish,
        batches::{BatchProvider, Ends, Fate},
        invariants, until,
    },
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use std::process::Stdio;
use svc::{
    llm_batches::{KeeperError, ProviderName},
    store::llm_batches::{lead, submitted},
};
use svc_client::wire::{LlmBatchOutcome, LlmBatchState, Settled, TaskStatus};

/// What becomes of the calls of a provider if this becomes of each submission.
fn of_submissions(fate: Fate) -> impl FnMut(&str) -> Fate + Send + 'static {
    move |call| if call == "POST /messages/batches" { fate.clone() } else { Fate::Answered }
}

#[tokio::test]
async fn a_batch_whose_workers_are_killed_while_they_send_it_is_paid_thrice_at_most() {
    let (app, provider) = (app().await, BatchProvider::start().await);
    let file = upload(&app, &section("", "oven", 80), json!({})).await;
    waiting(&app, 1).await;
    provider.will(of_submissions(Fate::Held));
    for sent in 1..=3 {
        let victim = going_on(&app, &provider, "anthropic");
        until("the batch", async || (provider.batches().len() == sent).then_some(())).await;
        victim.kill();
    }
    let last = going_on(&app, &provider, "anthropic");
    let sent = until("the end of the batch, or another one", async || {
        let has_failed = !tasks(&app, TaskStatus::Failed).await.is_empty();
        let sent = provider.batches().len();
        (has_failed || sent > 3).then_some(sent)
    })
    .await;
    last.kill();
    assert_eq!(sent, 3);
    let batch = batches(&app).await.remove(0);
    assert_eq!(batch.outcome, Some(LlmBatchOutcome::Failed));
    assert!(batch.problem.as_ref().unwrap().contains("after 3 submissions"), "{:?}", batch.problem);
    invariants::check(&app.pool).await;
    // The task asks again in another batch.
    provider.will(|_| Fate::Answered);
    sqlx::query("UPDATE task_queue SET retry_after = now() WHERE retry_after > now()")
        .execute(&app.pool)
        .await
        .unwrap();
    assert_eq!(finished(&app, &provider, "anthropic", &[], file).await, Settled::Settled);
    assert_eq!(effective(&app, file).await["method"], "llm_summary");
    assert_eq!(provider.batches().len(), 4);
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn only_a_batch_that_the_provider_may_have_is_in_doubt_and_what_it_accepts_is_recorded_whatever_is_lost() {
    let (app, provider, batching) = (app().await, BatchProvider::start().await, batching());
    let together = together(&app, batching.clone());
    let spool = tempfile::tempdir().unwrap();
    let mut keeper = keeper(&app, &provider, &batching, spool.path());
    let file = files(&app, &["oven"]).await[0];
    assert!(together.ask().await, "nothing has to be asked of alone");
    // A server that has too much to do has not got the batch, however often it says so.
    provider.will(of_submissions(Fate::Refused(503)));
    for _ in 0..4 {
        assert!(!keeper.pass(true).await.unwrap(), "it is tried again");
    }
    // The right to be the only keeper is lost while the provider takes the batch.
    provider.will(of_submissions(Fate::HeldUntilReleased));
    let cutting = async {
        until("the batch", async || (provider.batches().len() == 1).then_some(())).await;
        cut_off(&app).await;
        provider.release();
    };
    let (passed, ()) = tokio::join!(keeper.pass(true), cutting);
    assert!(matches!(passed, Err(KeeperError::Database(_))), "{passed:?}");
    let batch = batches(&app).await.remove(0);
    assert_eq!(batch.state, LlmBatchState::Submitted);
    assert_eq!(batch.provider_id, Some(provider.batches()[0].id.clone()));
    provider.will(|_| Fate::Answered);
    provider.end(Ends::Completed);
    until("the batch to end", async || matches!(keeper.pass(true).await, Ok(true)).then_some(())).await;
    together.apply().await;
    assert_eq!(app.settled(file).await.settled, Settled::Settled);
    assert_eq!(effective(&app, file).await["method"], "llm_summary");
    assert_eq!(provider.batches().len(), 1, "nothing is paid again");
    together.stop().await;
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

/// The database has recorded it, and its answer was lost.
#[tokio::test]
async fn a_submission_that_is_recorded_again_is_still_the_same_one() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let begun = "INSERT INTO llm_batches (provider, model, state, doubts) VALUES ('anthropic', 'a-model', 'submitting', 2) RETURNING id";
    let id: i64 = sqlx::query_scalar(begun).fetch_one(&app.pool).await.unwrap();
    for _ in 0..2 {
        assert!(submitted(&app.pool, id, "msgbatch_1", None).await.unwrap());
        let doubts: i32 = sqlx::query_scalar("SELECT doubts FROM llm_batches").fetch_one(&app.pool).await.unwrap();
        assert_eq!(doubts, 1, "one doubt is no more");
    }
    assert!(!submitted(&app.pool, id, "msgbatch_2", None).await.unwrap(), "the provider has it twice");
    sqlx::query("DELETE FROM llm_batches").execute(&app.pool).await.unwrap();
    app.end().await;
}

/// Whether a worker of batches has signed on and not off.
async fn is_at_work(app: &TestApp) -> bool {
    let query = "SELECT EXISTS (SELECT 1 FROM workers WHERE badges = ARRAY['batch'])";
    sqlx::query_scalar(query).fetch_one(&app.pool).await.unwrap()
}

#[tokio::test]
async fn a_worker_that_is_asked_to_stop_while_it_sends_a_batch_records_what_the_provider_answers() {
    let (app, provider) = (app().await, BatchProvider::start().await);
    provider.will(of_submissions(Fate::HeldUntilReleased));
    let mut worker = going_on(&app, &provider, "anthropic");
    until("the worker", async || is_at_work(&app).await.then_some(())).await;
    let file = upload(&app, &section("", "oven", 80), json!({})).await;
    until("the batch", async || (provider.batches().len() == 1).then_some(())).await;
    let pid = Pid::from_raw(worker.0.id().cast_signed()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    until("the worker to begin nothing new", async || (!is_at_work(&app).await).then_some(())).await;
    provider.release();
    let status = tokio::task::spawn_blocking(move || worker.0.wait()).await.unwrap().unwrap();
    assert!(status.success(), "{status}");
    let batch = batches(&app).await.remove(0);
    assert_eq!(batch.state, LlmBatchState::Submitted);
    assert_eq!(batch.provider_id, Some(provider.batches()[0].id.clone()));
    provider.will(|_| Fate::Answered);
    assert_eq!(finished(&app, &provider, "anthropic", &[], file).await, Settled::Settled);
    assert_eq!(provider.batches().len(), 1, "nothing is paid again");
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn a_worker_that_waits_for_the_right_to_move_batches_stops_when_it_is_asked_to() {
    let (app, provider) = (app().await, BatchProvider::start().await);
    let right = lead(&app.pool, ProviderName::Anthropic as i64).await.unwrap().unwrap();
    let begun: chrono::DateTime<chrono::Utc> =
        sqlx::query_scalar("SELECT clock_timestamp()").fetch_one(&app.pool).await.unwrap();
    let mut command = command(&app, &run_arguments(&provider, "anthropic"));
    // The right of a worker that was killed seems to last for as long as a lease.
    command.env("SVC_WORKER_LEASE_SECONDS", "60").stdout(Stdio::null()).stderr(Stdio::null());
    let mut worker = Process(command.spawn().unwrap());
    let asks = "SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND backend_start > $1
                    AND query = 'SELECT pg_try_advisory_lock($1)')";
    until("the worker to ask for the right", async || {
        sqlx::query_scalar::<_, bool>(asks).bind(begun).fetch_one(&app.pool).await.unwrap().then_some(())
    })
    .await;
    kill_process(Pid::from_child(&worker.0), Signal::TERM).unwrap();
    let status = until("its end", async || worker.0.try_wait().unwrap()).await;
    assert_eq!(status.code(), Some(0), "{status}");
    drop(right);
    app.end().await;
}
