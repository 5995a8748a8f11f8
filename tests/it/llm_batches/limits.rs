//! Batches for which a provider has no room beside others of their model.
use super::{app, batches, command, ended, run_arguments, tasks, together::files};
use crate::{
    summarize::evidence,
    support::{
        TestApp,
        batches::{BatchProvider, Ends},
        invariants,
        llm::{Llm, Reply},
    },
};
use std::time::Duration;
use svc::store::llm_batches::put_off;
use svc_client::wire::{DocumentPath, LlmBatchOutcome, LlmBatchState, Settled, TaskStatus};

/// One pass of a worker that puts each request into a batch of its own, and has an endpoint for the last attempt of a task.
async fn once(app: &TestApp, provider: &BatchProvider, llm: &Llm) {
    let arguments = [run_arguments(provider, "openai"), vec!["--once", "--max-requests", "1"]].concat();
    let mut command = command(app, &arguments);
    command.env("SVC_LLM_BASE_URL", &llm.base).env("SVC_LLM_MODEL", "asked-model");
    let output = ended(command).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test]
async fn a_batch_for_which_the_provider_has_no_room_waits_for_the_one_before_it_and_costs_no_attempt() {
    let (app, provider, llm) = (app().await, BatchProvider::start().await, Llm::start().await);
    llm.will([Reply::said("The endpoint describes them at its full price.")]);
    let both = files(&app, &["oven", "volcano"]).await;
    // A task whose batch failed would ask the endpoint.
    sqlx::query("UPDATE task_queue SET max_retries = 0 WHERE NOT final").execute(&app.pool).await.unwrap();
    once(&app, &provider, &llm).await;
    let ids: Vec<String> = provider.batches().into_iter().map(|batch| batch.id).collect();
    assert_eq!(ids.len(), 2);
    provider.end_one(&ids[1], Ends::Limited);
    // It is not tried again as long as the first one is at the provider.
    for _ in 0..2 {
        once(&app, &provider, &llm).await;
        let batch = batches(&app).await.remove(0);
        assert_eq!((batch.state, batch.tasks, batch.provider_id), (LlmBatchState::Closed, 1, None));
        assert!(batch.problem.as_ref().unwrap().contains("Enqueued token limit"), "{:?}", batch.problem);
        assert_eq!(tasks(&app, TaskStatus::Batched).await.len(), 2);
        assert_eq!(provider.batches().len(), 2);
    }
    assert_eq!(provider.files().len(), 1, "its requests are not left at the provider");
    invariants::check(&app.pool).await;
    provider.end(Ends::Completed);
    once(&app, &provider, &llm).await;
    assert_eq!(provider.batches().len(), 3, "the first one has made room");
    provider.end(Ends::Completed);
    once(&app, &provider, &llm).await;
    for file in both {
        assert_eq!(app.settled(file).await.settled, Settled::Settled);
        let of_file = evidence(&app, file).await;
        assert_eq!(of_file["llm.summarize"]["batched_calls"], 1, "{of_file}");
    }
    let completed = tasks(&app, TaskStatus::Completed).await;
    assert!(completed.len() == 2 && completed.iter().all(|task| task.retry_count == 0), "{completed:?}");
    assert!(llm.asked().is_empty());

    // No other batch makes room for one that is alone.
    let alone = files(&app, &["heron"]).await[0];
    once(&app, &provider, &llm).await;
    provider.end(Ends::Limited);
    once(&app, &provider, &llm).await;
    let batch = batches(&app).await.remove(0);
    assert_eq!(batch.outcome, Some(LlmBatchOutcome::Failed));
    let failed = tasks(&app, TaskStatus::Failed).await;
    assert_eq!((failed.len(), failed[0].retry_count, failed[0].finished), (1, 1, false));
    let mut conn = app.pool.acquire().await.unwrap();
    assert!(!put_off(&mut conn, batch.id, Duration::ZERO, "it has ended").await.unwrap());
    drop(conn);
    app.client.cancel_ingest(DocumentPath { id: alone }).await.unwrap();
    assert_eq!(app.settled(alone).await.settled, Settled::Failed);
    invariants::check_drained(&app.pool).await;
    app.end().await;
}
