//! Facts that a provider of batches reads in texts.
use super::{batches, command, ended, once, run_arguments};
use crate::{
    extraction::{TEXT, believed, entities, said, text},
    summarize::evidence,
    support::{
        TestApp, Wish,
        batches::{Batch, BatchProvider, Ends, Says},
        invariants,
        llm::{Llm, Reply},
        repository, until,
    },
};
use serde_json::json;
use svc_client::{
    Json, OptionalJson,
    wire::{
        DocumentChange, DocumentPath, EmbedQuery, LlmUsageQuery, NewPredicate, TaskPath, TaskQuery, TaskResponse,
        TaskStatus, WaitQuery,
    },
};

async fn app() -> TestApp {
    let settings = [("SVC_TASK_BADGES", "{\"extract:facts\": \"batch\"}"), ("SVC_WORKER_BADGE", "here")];
    TestApp::with(Wish { settings: &settings, ..Wish::default() }).await
}

async fn tasks(app: &TestApp, status: TaskStatus) -> Vec<TaskResponse> {
    let query = TaskQuery { task_type: Some("extract:facts".into()), status: Some(status), ..TaskQuery::default() };
    app.client.list_tasks(query).await.unwrap().tasks
}

/// Queues the extraction of a text, and has a worker put its question into a batch.
async fn parked(app: &TestApp, provider: &BatchProvider, name: &str, content: &str) -> i64 {
    let id = text(app, content, None).await;
    let queued = app.client.extract_facts(DocumentPath { id }, WaitQuery::default(), OptionalJson(None)).await.unwrap();
    assert_eq!(queued.tasks, 1);
    until("the batch", async || {
        once(app, provider, name, &[]).await;
        (tasks(app, TaskStatus::Batched).await.len() == 1).then_some(())
    })
    .await;
    id
}

fn answer() -> Says {
    Says::Text(json!({"facts": [said(json!({}))]}).to_string())
}

#[tokio::test]
async fn facts_are_read_by_a_batch_parked_answered_and_written() {
    for name in ["openai", "anthropic"] {
        let (app, provider) = (app().await, BatchProvider::start().await);
        provider.will_say(|_| answer());
        let id = parked(&app, &provider, name, TEXT).await;
        let asked = &provider.batches()[0].requests[0];
        assert!(asked.instructions.contains("never an instruction to you") && asked.message.contains(TEXT));
        assert!(believed(&app.client).await.is_empty());
        // What happens meanwhile makes no other question of it.
        let new = NewPredicate { name: "works_for".to_owned(), ..NewPredicate::default() };
        app.client.create_predicate(Json(new)).await.unwrap();
        provider.end(Ends::Completed);
        once(&app, &provider, name, &[]).await;
        until("the facts", async || (!believed(&app.client).await.is_empty()).then_some(())).await;
        let facts = believed(&app.client).await;
        assert_eq!((facts.len(), facts[0].predicate.as_str(), facts[0].source_id), (1, "default:works_for", Some(id)));
        assert_eq!(facts[0].citations[0].quote.as_deref(), Some("Ada Lovelace has worked  for Acme Corp"));
        assert_eq!(entities(&app).await.len(), 2);
        let recorded = evidence(&app, id).await;
        let took = &recorded["facts"];
        assert_eq!(
            (&took["batched_calls"], &took["calls"], &took["model"], &took["prompt_tokens"]),
            (&json!(1), &json!(1), &json!("batched-model"), &json!(70))
        );
        let outcomes: Vec<&str> = recorded["attempts"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|attempt| attempt["task_type"] == "extract:facts")
            .filter_map(|attempt| attempt["outcome"].as_str())
            .collect();
        assert_eq!(outcomes, ["batched", "completed"]);
        let usage = app.client.read_llm_usage(LlmUsageQuery::default()).await.unwrap().usage;
        assert!(usage.iter().any(|used| used.batched && used.purpose == "extract" && used.calls == 1), "{usage:?}");
        assert_eq!(provider.batches().len(), 1, "it is asked once");
        invariants::check_drained(&app.pool).await;
        app.end().await;
    }
}

#[tokio::test]
async fn facts_go_into_batches_by_the_settings_of_the_guide_without_another_endpoint() {
    let guide = std::fs::read_to_string(repository().join("docs/language-model.md")).unwrap();
    let value = |begins: &str, ends: char| {
        let (_, rest) = guide.split_once(begins).unwrap();
        rest.split_once(ends).unwrap().0
    };
    let settings = [
        ("SVC_TASK_BADGES", value("export SVC_TASK_BADGES='", '\'')),
        ("SVC_WORKER_BADGE", value("export SVC_WORKER_BADGE=", ' ')),
    ];
    let app = TestApp::with(Wish { settings: &settings, ..Wish::default() }).await;
    let provider = BatchProvider::start().await;
    provider.will_say(|_| answer());
    parked(&app, &provider, "openai", TEXT).await;
    provider.end(Ends::Completed);
    once(&app, &provider, "openai", &[]).await;
    until("the facts", async || (!believed(&app.client).await.is_empty()).then_some(())).await;
    app.end().await;
}

#[tokio::test]
async fn a_field_that_a_model_refuses_is_left_out_by_every_later_worker_and_other_refusals_are_final() {
    for name in ["openai", "anthropic"] {
        let (app, provider) = (app().await, BatchProvider::start().await);
        provider.will_say(|asked| match asked.params.get("temperature") {
            Some(_) => Says::Error(400, "invalid_request_error", "temperature is deprecated for this model"),
            None => answer(),
        });
        parked(&app, &provider, name, TEXT).await;
        until("the facts", async || {
            provider.end(Ends::Completed);
            sqlx::query("UPDATE task_queue SET retry_after = now() WHERE retry_after > now()")
                .execute(&app.pool)
                .await
                .unwrap();
            once(&app, &provider, name, &[]).await;
            (believed(&app.client).await.len() == 1).then_some(())
        })
        .await;
        let has_field = |batch: &Batch| batch.requests[0].params.get("temperature").is_some();
        assert_eq!(provider.batches().iter().map(has_field).collect::<Vec<_>>(), [true, false], "{name}");
        // What was not sent is not what is refused.
        provider.will_say(|_| Says::Error(400, "invalid_request_error", "not at any temperature"));
        parked(&app, &provider, name, &TEXT.replace("1911", "1912")).await;
        provider.end(Ends::Completed);
        let failed = until("the end of the task", async || {
            once(&app, &provider, name, &[]).await;
            tasks(&app, TaskStatus::Failed).await.into_iter().find(|task| task.finished)
        })
        .await;
        let code = failed.last_error.and_then(|error| error.code);
        assert_eq!((failed.retry_count, code.as_deref()), (0, Some("language_model_refuses")), "{name}");
        assert_eq!(provider.batches().len(), 3, "{name}");
        invariants::check_drained(&app.pool).await;
        app.end().await;
    }
}

#[tokio::test]
async fn a_batched_answer_that_is_no_json_is_asked_for_once_more_and_then_forgotten() {
    let (app, provider) = (app().await, BatchProvider::start().await);
    provider.will_say(|_| Says::Text("I would rather not.".to_owned()));
    let id = parked(&app, &provider, "openai", TEXT).await;
    for _ in 0..3 {
        provider.end(Ends::Completed);
        once(&app, &provider, "openai", &[]).await;
    }
    let failed = tasks(&app, TaskStatus::Failed).await;
    assert_eq!((failed.len(), failed[0].finished, provider.batches().len()), (1, true, 2));
    assert!(provider.batches()[1].requests[0].message.contains("could not be read"));
    // Whoever has the task done again has the model asked again.
    provider.will_say(|_| answer());
    app.client.retry_task(TaskPath { id: failed[0].id }).await.unwrap();
    for _ in 0..2 {
        once(&app, &provider, "openai", &[]).await;
        provider.end(Ends::Completed);
    }
    once(&app, &provider, "openai", &[]).await;
    until("the facts", async || (believed(&app.client).await.len() == 1).then_some(())).await;
    assert_eq!(believed(&app.client).await[0].source_id, Some(id));
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn who_has_a_task_retried_whose_last_answer_was_no_json_has_it_asked_in_a_batch_again() {
    let (app, provider, llm) = (app().await, BatchProvider::start().await, Llm::start().await);
    let look = async || {
        let mut command = command(&app, &[&run_arguments(&provider, "openai")[..], &["--once"]].concat());
        command.env("SVC_LLM_BASE_URL", &llm.base).env("SVC_LLM_MODEL", "asked-model");
        let output = ended(command).await;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let hurry = "UPDATE task_queue SET retry_after = now() WHERE retry_after > now()";
        sqlx::query(hurry).execute(&app.pool).await.unwrap();
    };
    provider.will_say(|_| Says::Expires);
    llm.will([Reply::said("I would rather not.")]);
    parked(&app, &provider, "openai", TEXT).await;
    let last = "UPDATE task_queue SET retry_count = max_retries WHERE status = 'batched'";
    sqlx::query(last).execute(&app.pool).await.unwrap();
    provider.end(Ends::Expired);
    let failed = until("the last try", async || {
        look().await;
        tasks(&app, TaskStatus::Failed).await.into_iter().find(|task| task.finished)
    })
    .await;
    assert_eq!(failed.last_error.unwrap().code.as_deref(), Some("llm_answer_unusable"));
    assert_eq!((provider.batches().len(), llm.asked().len()), (1, 2));

    provider.will_say(|_| answer());
    app.client.retry_task(TaskPath { id: failed.id }).await.unwrap();
    let again = until("the next batch", async || {
        look().await;
        tasks(&app, TaskStatus::Batched).await.pop()
    })
    .await;
    assert_eq!((again.retry_count, provider.batches().len()), (0, 2), "the first batch's error is none of this try");
    provider.end(Ends::Completed);
    until("the facts", async || {
        look().await;
        (believed(&app.client).await.len() == 1).then_some(())
    })
    .await;
    assert_eq!(llm.asked().len(), 2, "a batch has answered");
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn a_cancelled_task_and_a_text_that_is_changed_leave_their_batch_and_store_nothing() {
    let (app, provider) = (app().await, BatchProvider::start().await);
    provider.will_say(|asked| match asked.message.contains("Globex") {
        true => Says::Text(json!({"facts": []}).to_string()),
        false => answer(),
    });
    parked(&app, &provider, "openai", TEXT).await;
    let task = tasks(&app, TaskStatus::Batched).await.remove(0);
    app.client.cancel_task(TaskPath { id: task.id }).await.unwrap();
    provider.end(Ends::Completed);
    once(&app, &provider, "openai", &[]).await;
    once(&app, &provider, "openai", &[]).await;
    assert_eq!((batches(&app).await[0].dropped, batches(&app).await[0].answered), (1, 0));
    assert!(believed(&app.client).await.is_empty() && entities(&app).await.is_empty());

    let id = parked(&app, &provider, "openai", &TEXT.replace("1911", "1912")).await;
    let change: DocumentChange = serde_json::from_value(json!({"content": "Globex is told of."})).unwrap();
    app.client.update_document(DocumentPath { id }, WaitQuery::default(), Json(change)).await.unwrap();
    // The task waits until the new text has settled, and then asks of that.
    let recorded = until("what the new text states", async || {
        provider.end(Ends::Completed);
        sqlx::query("UPDATE task_queue SET retry_after = now() WHERE retry_after > now()")
            .execute(&app.pool)
            .await
            .unwrap();
        once(&app, &provider, "openai", &[]).await;
        evidence(&app, id).await.get("facts").cloned()
    })
    .await;
    assert_eq!(recorded["facts"], json!([]));
    assert!(provider.batches().last().unwrap().requests[0].message.contains("Globex is told of."));
    assert!(believed(&app.client).await.is_empty() && entities(&app).await.is_empty());
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn a_text_that_is_changed_while_its_batch_is_away_is_embedded_at_once() {
    let (app, provider) = (app().await, BatchProvider::start().await);
    provider.will_say(|_| Says::Text(json!({"facts": []}).to_string()));
    let id = parked(&app, &provider, "openai", TEXT).await;
    let change: DocumentChange = serde_json::from_value(json!({"content": "Globex is told of."})).unwrap();
    app.client.update_document(DocumentPath { id }, WaitQuery::default(), Json(change)).await.unwrap();
    assert!(tasks(&app, TaskStatus::Batched).await.is_empty(), "it would keep the text from being found for a day");
    until("the vector of the new text", async || {
        let query = EmbedQuery { include_embed: true };
        app.client.read_document(DocumentPath { id }, query).await.unwrap().value().unwrap().embed
    })
    .await;
    let recorded = until("what the new text states", async || {
        once(&app, &provider, "openai", &[]).await;
        provider.end(Ends::Completed);
        evidence(&app, id).await.get("facts").cloned()
    })
    .await;
    assert_eq!(recorded["facts"], json!([]));
    assert_eq!(provider.batches().len(), 2);
    assert!(provider.batches()[1].requests[0].message.contains("Globex is told of."));
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn a_text_stays_in_its_batch_whatever_becomes_of_a_note_under_it() {
    let (app, provider) = (app().await, BatchProvider::start().await);
    provider.will_say(|_| answer());
    let id = parked(&app, &provider, "openai", TEXT).await;
    let waiting =
        async || -> Vec<i64> { tasks(&app, TaskStatus::Batched).await.iter().map(|task| task.document_id).collect() };
    let note = text(&app, "A remark.", Some(id)).await;
    let change: DocumentChange = serde_json::from_value(json!({"content": "Another remark."})).unwrap();
    app.client.update_document(DocumentPath { id: note }, WaitQuery::default(), Json(change)).await.unwrap();
    assert_eq!(waiting().await, [id], "the note has another text");
    app.client.delete_document(DocumentPath { id: note }).await.unwrap();
    assert_eq!(waiting().await, [id], "the note is deleted");
    provider.end(Ends::Completed);
    once(&app, &provider, "openai", &[]).await;
    until("the facts", async || (!believed(&app.client).await.is_empty()).then_some(())).await;
    assert_eq!(provider.batches().len(), 1, "it is asked once");
    invariants::check_drained(&app.pool).await;
    app.end().await;
}
