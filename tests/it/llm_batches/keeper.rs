//! The keeper of batches between the worker of this process and a provider.
use super::{
    app, batches, effective, tasks,
    together::{files, together},
};
use crate::{
    summarize::{section, upload},
    support::{
        self, TOKEN, TestApp,
        batches::{BatchProvider, Ends, Fate},
        invariants, until, until_a_statement_waits,
    },
};
use serde_json::json;
use std::{path::Path, sync::Arc, time::Duration};
use svc::{
    llm_batches::{Batching, Keeper, KeeperError, KeeperSettings, Provider, ProviderName},
    service::Service,
    store::{self, advisory::AdvisoryLock, llm_batches::BatchCaps, transaction},
    worker::{Role, RunningWorker},
};
use svc_client::wire::{LlmBatchOutcome, LlmBatchState, Settled, TaskStatus};

/// A keeper that leaves out every pause.
pub(super) fn keeper(app: &TestApp, provider: &BatchProvider, batching: &Arc<Batching>, spool: &Path) -> Keeper {
    let key = app.service.settings.batch_anthropic_key.clone();
    let settings = KeeperSettings {
        provider: Provider::anthropic(&provider.base, key).unwrap(),
        batching: batching.clone(),
        store: None,
        spool: spool.to_owned(),
        wait: Duration::ZERO,
        poll: Duration::ZERO,
        kept: Duration::from_secs(3600),
    };
    Keeper::new(app.pool.clone(), settings)
}

/// Ends the connection by which a keeper is the only one that moves the batches of Anthropic on.
pub(super) async fn cut_off(app: &TestApp) {
    let cut = "SELECT count(pg_terminate_backend(pid)) FROM pg_locks WHERE locktype = 'advisory' AND objid = $1::bigint::oid AND granted
                  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    let key = AdvisoryLock::LlmBatches.key() + ProviderName::Anthropic as i64;
    let cut: i64 = sqlx::query_scalar(cut).bind(key).fetch_one(&app.pool).await.unwrap();
    assert_eq!(cut, 1);
}

/// Waits until so many summaries are in batches, the last one of which is open, however often they failed before.
async fn parked(app: &TestApp, count: usize) {
    until("the summary in a batch", async || {
        sqlx::query("UPDATE task_queue SET retry_after = now() WHERE retry_after > now()")
            .execute(&app.pool)
            .await
            .unwrap();
        let is_open = batches(app).await.first().is_some_and(|batch| batch.state == LlmBatchState::Open);
        (is_open && tasks(app, TaskStatus::Batched).await.len() == count).then_some(())
    })
    .await;
}

#[tokio::test]
async fn one_keeper_moves_batches_on_and_gives_up_what_may_have_been_paid_thrice() {
    let provider = BatchProvider::start().await;
    // A batch with one request is full.
    let caps = BatchCaps { requests: 1, ..ProviderName::Anthropic.caps() };
    let batching = Batching::new(ProviderName::Anthropic, "batch-model".to_owned(), caps);
    let app = app().await;
    let embedder = Some(support::engine().into());
    let service = Service::new(app.service.settings.clone(), app.pool.clone(), embedder, TOKEN, support::reader());
    let service = service.with_batching(batching.clone());
    let mut role = Role::of(&service.settings);
    (role.worker_id, role.badges) = ("of-the-batches".to_owned(), vec!["batch".to_owned()]);
    let worker = RunningWorker::start(role, service.tools(), app.options.clone()).await.unwrap();
    let spool = tempfile::tempdir().unwrap();
    let mut first = keeper(&app, &provider, &batching, spool.path());
    let file = upload(&app, &section("", "oven", 80), json!({})).await;
    parked(&app, 1).await;

    // This provider cannot be asked whether it has a batch, so the third answer that is lost is the last.
    provider.will(|call| if call.starts_with("POST") { Fate::AnswerLost } else { Fate::Answered });
    for submissions in 1..=3 {
        let ended = first.pass(true).await.unwrap();
        assert_eq!((ended, provider.batches().len()), (submissions == 3, submissions));
        assert_eq!(first.problem().is_some(), submissions < 3);
    }
    let batch = &batches(&app).await[0];
    assert_eq!(batch.outcome, Some(LlmBatchOutcome::Failed));
    assert!(batch.problem.as_ref().unwrap().contains("after 3 submissions"), "{:?}", batch.problem);
    let second = keeper(&app, &provider, &batching, spool.path()).pass(true).await;
    assert!(matches!(second, Err(KeeperError::Another)), "{second:?}");

    // What was asked for in vain is asked for in the next batch.
    provider.will(|_| Fate::Answered);
    parked(&app, 1).await;
    assert!(!first.pass(true).await.unwrap());
    assert!(!first.pass(true).await.unwrap(), "the provider works on it");
    provider.end(Ends::Completed);
    assert!(first.pass(true).await.unwrap(), "{:?}", first.problem());
    assert_eq!(app.settled(file).await.settled, Settled::Settled);
    assert_eq!(effective(&app, file).await["method"], "llm_summary");

    // A batch that somebody cancels before the provider has it is never sent, be it full or not.
    let files = [
        upload(&app, &section("", "volcano", 80), json!({})).await,
        upload(&app, &section("", "comet", 80), json!({})).await,
    ];
    parked(&app, 2).await;
    let mut conn = app.pool.acquire().await.unwrap();
    let open = store::llm_batches::not_ended(&mut conn).await.unwrap();
    assert_eq!(open.len(), 2);
    for id in open {
        assert!(store::llm_batches::cancel(&mut conn, id).await.unwrap());
    }
    drop(conn);
    let sent = provider.batches().len();
    assert!(first.pass(true).await.unwrap());
    let outcomes: Vec<_> = batches(&app).await.iter().take(2).map(|batch| batch.outcome).collect();
    assert_eq!((outcomes, provider.batches().len()), (vec![Some(LlmBatchOutcome::Cancelled); 2], sent));
    provider.ends_at_once();
    parked(&app, 2).await;
    until("the summaries", async || {
        first.pass(true).await.unwrap();
        (tasks(&app, TaskStatus::Batched).await.is_empty()).then_some(())
    })
    .await;
    for file in files {
        assert_eq!(app.settled(file).await.settled, Settled::Settled);
    }
    worker.stop(Duration::from_secs(10), std::future::pending()).await;
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

/// A server that crashes may lose results that were kept a moment ago, and ends all connections.
#[tokio::test]
async fn a_batch_whose_keeper_was_cut_off_while_it_kept_results_does_not_end_before_they_are_read_again() {
    let (app, provider) = (app().await, BatchProvider::start().await);
    let batching = Batching::new(ProviderName::Anthropic, "batch-model".to_owned(), ProviderName::Anthropic.caps());
    provider.ends_at_once();
    let together = together(&app, batching.clone());
    let spool = tempfile::tempdir().unwrap();
    let mut keeper = keeper(&app, &provider, &batching, spool.path());
    let file = files(&app, &["oven"]).await[0];
    assert!(together.ask().await, "nothing has to be asked of alone");
    assert!(!keeper.pass(true).await.unwrap(), "it is submitted");

    let mut held = transaction::begin(&app.pool).await.unwrap();
    sqlx::query("SELECT 1 FROM llm_batch_requests FOR UPDATE").execute(&mut *held).await.unwrap();
    let cutting = async {
        until_a_statement_waits(&app.pool).await;
        cut_off(&app).await;
        held.rollback().await.unwrap();
    };
    let (passed, ()) = tokio::join!(keeper.pass(true), cutting);
    assert!(matches!(passed, Err(KeeperError::Database(_))), "{passed:?}");
    assert_eq!(batches(&app).await[0].state, LlmBatchState::Submitted);

    // Whatever became of what was kept, nothing is asked again.
    let lose = "DELETE FROM llm_answers; UPDATE llm_batch_requests SET is_over = false";
    sqlx::raw_sql(lose).execute(&app.pool).await.unwrap();
    // The right to keep batches is free once the server has taken note of the end of that connection.
    until("the batch to end", async || matches!(keeper.pass(true).await, Ok(true)).then_some(())).await;
    together.apply().await;
    assert_eq!(app.settled(file).await.settled, Settled::Settled);
    assert_eq!(effective(&app, file).await["method"], "llm_summary");
    assert_eq!(provider.batches().len(), 1, "no answer is paid again");
    together.stop().await;
    invariants::check_drained(&app.pool).await;
    app.end().await;
}
