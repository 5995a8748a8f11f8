//! The keeper of batches between the worker of this process and a provider.
use super::{
    app, batches, effective, tasks,
    together::{batching, files, together},
};
use crate::{
    summarize::{section, upload},
    support::{
        self, TOKEN, TestApp, Wish,
        batches::{BatchProvider, Ends, Fate},
        invariants, until, until_a_statement_waits,
    },
};
use serde_json::json;
use std::{
    collections::{BTreeSet, HashMap},
    fs::File,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};
use svc::{
    llm_batches::{Batching, Keeper, KeeperError, KeeperSettings, Provider, ProviderName},
    service::Service,
    store::{
        advisory::AdvisoryLock,
        llm_batches::{self, BatchCaps},
        transaction,
    },
    worker::{Role, RunningWorker},
};
use svc_client::wire::{LlmBatchOutcome, LlmBatchState, Settled, TaskStatus};
use uuid::Uuid;

/// A keeper that leaves out every pause.
pub(super) fn keeper(app: &TestApp, provider: &BatchProvider, batching: &Arc<Batching>, spool: &Path) -> Keeper {
    keeping(app, provider, batching, (spool, None))
}

/// The same, which keeps what was sent and what came.
fn keeping(
    app: &TestApp,
    provider: &BatchProvider,
    batching: &Arc<Batching>,
    (spool, store): (&Path, Option<PathBuf>),
) -> Keeper {
    let key = app.service.settings.batch_anthropic_key.clone();
    let settings = KeeperSettings {
        provider: Provider::anthropic(&provider.base, key).unwrap(),
        batching: batching.clone(),
        store,
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
    let open = llm_batches::not_ended(&mut conn).await.unwrap();
    assert_eq!(open.len(), 2);
    for id in open {
        assert!(llm_batches::cancel(&mut conn, id).await.unwrap());
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

#[tokio::test]
async fn a_keeper_removes_what_is_kept_of_its_own_batches_and_what_nobody_else_will_remove() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    // They ended longer ago than batches are kept, which is an hour.
    let done = "INSERT INTO llm_batches (provider, model, state, outcome, ended_at, is_done)
                SELECT p, 'a-model', 'ended', 'completed', now() - interval '90 minutes', true FROM unnest(ARRAY['anthropic', 'openai']) p
                RETURNING provider, id, key";
    let done: Vec<(String, i64, Uuid)> = sqlx::query_as(done).fetch_all(&app.pool).await.unwrap();
    let stems: HashMap<&str, String> =
        done.iter().map(|(provider, id, key)| (provider.as_str(), format!("batch-{id}-{key}"))).collect();
    let (ours, theirs) = (&stems["anthropic"], &stems["openai"]);
    let unknown = |number: u128| format!("batch-7-{}.results.jsonl", Uuid::from_u128(number));
    let files = [
        (format!("{ours}.requests.jsonl"), false),
        // A keeper that was killed while it wrote has left these.
        (format!(".{ours}.x1"), false),
        (format!(".{theirs}.x1"), true),
        (format!("{theirs}.requests.jsonl"), true),
        (unknown(1), false),
        (unknown(2), true),
        ("notes.txt".to_owned(), true),
    ];
    let kept = tempfile::tempdir().unwrap();
    for (name, _) in &files {
        let file = File::create(kept.path().join(name)).unwrap();
        // One is of a batch that another database may know.
        let age = if *name == unknown(2) { Duration::ZERO } else { Duration::from_secs(7200) };
        file.set_modified(SystemTime::now() - age).unwrap();
    }
    let (provider, batching) = (BatchProvider::start().await, batching());
    let mut keeper = keeping(&app, &provider, &batching, (kept.path(), Some(kept.path().to_owned())));
    assert!(!keeper.pass(true).await.unwrap(), "nothing has ended now");
    let left: BTreeSet<String> = (std::fs::read_dir(kept.path()).unwrap())
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let want: BTreeSet<String> = files.into_iter().filter(|(_, stays)| *stays).map(|(name, _)| name).collect();
    assert_eq!(left, want);
    assert_eq!(batches(&app).await.iter().map(|batch| batch.provider.as_str()).collect::<Vec<_>>(), ["openai"]);
    // Where its own worker runs no more, its record goes later.
    sqlx::query("UPDATE llm_batches SET ended_at = now() - interval '3 hours'").execute(&app.pool).await.unwrap();
    keeper.pass(true).await.unwrap();
    assert!(batches(&app).await.is_empty());
    app.end().await;
}

#[tokio::test]
async fn a_field_is_refused_that_was_sent_and_not_one_of_which_a_text_speaks() {
    let app = TestApp::start().await;
    let document = app.create("Ovens", "An oven is hot.", None).await.id;
    let line = json!({"params": {"temperature": 0.1, "messages": [{"content": "{\"max_tokens\": 9}"}]}}).to_string();
    let batch: i64 =
        sqlx::query_scalar("INSERT INTO llm_batches (provider, model) VALUES ('anthropic', 'm') RETURNING id")
            .fetch_one(&app.pool)
            .await
            .unwrap();
    sqlx::query("INSERT INTO llm_batch_requests (batch_id, custom_id, task_id, document_id, asked, sources, line) VALUES ($1, 'task-1', 1, $2, '', '{}', $3)")
        .bind(batch)
        .bind(document)
        .bind(line)
        .execute(&app.pool)
        .await
        .unwrap();
    let mut conn = app.pool.acquire().await.unwrap();
    let fields = [("task-1", "temperature"), ("task-1", "max_tokens"), ("task-2", "temperature")];
    assert_eq!(llm_batches::sent(&mut conn, batch, &fields).await.unwrap(), [true, false, false]);
    // Another batch may have brought the same refusal.
    for _ in 0..2 {
        llm_batches::refuse(&mut conn, "anthropic", "m", &BTreeSet::from(["temperature"])).await.unwrap();
    }
    let refused = llm_batches::refused(&mut conn, "anthropic", &["m", "another"]).await.unwrap();
    assert_eq!(refused, HashMap::from([("m".to_owned(), BTreeSet::from(["temperature".to_owned()]))]));
    assert!(llm_batches::refused(&mut conn, "openai", &["m"]).await.unwrap().is_empty());
    sqlx::query("DELETE FROM llm_batches").execute(&mut *conn).await.unwrap();
    drop(conn);
    app.end().await;
}
