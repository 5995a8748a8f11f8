//! Requests to which a provider gives no answer, or none that is whole, and the last tries of their tasks.
use super::{app, app_of_context, command, effective, ended, finished, run_arguments, tasks, waiting};
use crate::{
    summarize::{evidence, section, upload},
    support::{
        TestApp,
        batches::{BatchProvider, Ends, Says, chat, message},
        invariants,
        llm::{Llm, Reply},
        until,
    },
};
use serde_json::{Value, json};
use svc_client::wire::{DocumentPath, Settled, TaskPath, TaskStatus};

/// What is said of an answer without a text.
fn silent(finish: &str, members: Value) -> Value {
    let mut body = chat("", finish);
    for (name, value) in members.as_object().unwrap() {
        body["choices"][0]["message"][name] = value.clone();
    }
    body
}

/// Uploads a file about a subject, whose summary is asked for in batches, and returns it with how many batches that took.
async fn summarised(app: &TestApp, provider: &BatchProvider, name: &str, subject: &str) -> (i64, usize) {
    let before = provider.batches().len();
    let file = upload(app, &section("", subject, 80), json!({})).await;
    waiting(app, 1).await;
    assert_eq!(finished(app, provider, name, &[], file).await, Settled::Settled);
    (file, provider.batches().len() - before)
}

async fn why_not(app: &TestApp, file: i64) -> String {
    evidence(app, file).await["rollup"]["not_summarized"]["reason"].as_str().unwrap_or_default().to_owned()
}

#[tokio::test]
async fn a_model_that_hides_its_thoughts_is_asked_once_more_not_to_think() {
    let (app, provider) = (app().await, BatchProvider::start().await);
    let mut hidden = silent("length", json!({}));
    hidden["usage"]["completion_tokens_details"] = json!({"reasoning_tokens": 7});
    let mut uncounted = silent("length", json!({}));
    uncounted["usage"] = Value::Null;
    for (body, subject) in [(hidden, "oven"), (uncounted, "volcano")] {
        let before = provider.batches().len();
        provider.will_say(move |_| Says::Message(body.clone()));
        let (file, batches) = summarised(&app, &provider, "openai", subject).await;
        let thinks: Vec<Value> = provider.batches()[before..]
            .iter()
            .flat_map(|batch| &batch.requests)
            .map(|asked| asked.params["chat_template_kwargs"].clone())
            .collect();
        assert_eq!((batches, thinks), (2, vec![Value::Null, json!({"enable_thinking": false})]), "{subject}");
        let why = why_not(&app, file).await;
        assert!(why.contains("SVC_SUMMARIZATION_DISABLE_THINKING"), "{why}");
    }
    assert!(tasks(&app, TaskStatus::Failed).await.iter().all(|task| task.retry_count == 0));
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn a_text_that_a_model_or_a_filter_refuses_is_asked_of_in_one_batch() {
    let (app, provider) = (app().await, BatchProvider::start().await);
    // The name of a field in a model's words is not that of one which the provider does not know.
    let said = json!({"content": null, "refusal": "I'm sorry, not at any temperature."});
    for (body, subject, says) in [
        (silent("stop", said), "oven", "I'm sorry, not at any temperature."),
        (silent("content_filter", json!({})), "volcano", "its filter"),
    ] {
        provider.will_say(move |_| Says::Message(body.clone()));
        let (file, batches) = summarised(&app, &provider, "openai", subject).await;
        let why = why_not(&app, file).await;
        assert!(batches == 1 && why.contains(says), "{batches} batches: {why}");
    }
    let failed = tasks(&app, TaskStatus::Failed).await;
    let codes: Vec<Option<&str>> =
        failed.iter().map(|task| task.last_error.as_ref().and_then(|error| error.code.as_deref())).collect();
    assert_eq!(codes, [Some("language_model_refuses"); 2]);
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn an_answer_that_is_broken_off_is_asked_for_once_more_and_thoughts_are_none() {
    let part = "A whole sentence. And half a";
    for (name, broken) in [
        ("openai", chat(part, "content_filter")),
        ("anthropic", message(part, "refusal")),
        ("anthropic", message(part, "model_context_window_exceeded")),
    ] {
        let (app, provider) = (app().await, BatchProvider::start().await);
        let mut is_first = true;
        provider.will_say(move |_| match std::mem::take(&mut is_first) {
            true => Says::Message(broken.clone()),
            false => Says::Text("About ovens.".to_owned()),
        });
        let (file, batches) = summarised(&app, &provider, name, "oven").await;
        assert_eq!((batches, effective(&app, file).await["text"].clone()), (2, json!("About ovens.")), "{name}");
        invariants::check_drained(&app.pool).await;
        app.end().await;
    }
    // The beginning of the thoughts stands in the prompt.
    let (app, provider) = (app().await, BatchProvider::start().await);
    provider.will_say(|_| Says::Text("Okay, the user wants a summary.\n</think>\n\nAbout ovens.".to_owned()));
    let (file, batches) = summarised(&app, &provider, "openai", "oven").await;
    assert_eq!((batches, effective(&app, file).await["text"].clone()), (1, json!("About ovens.")));
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

/// Has a worker with an endpoint of a language model look once, ends what it has submitted so, and returns what has become of the file.
async fn tried(app: &TestApp, provider: &BatchProvider, llm: &Llm, ends: Ends, file: i64) -> Settled {
    let mut command = command(app, &[&run_arguments(provider, "openai")[..], &["--once"]].concat());
    command.env("SVC_LLM_CONTEXT_TOKENS", "2048");
    command.env("SVC_LLM_BASE_URL", &llm.base).env("SVC_LLM_MODEL", "asked-model");
    let output = ended(command).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    provider.end(ends);
    let hurry = "UPDATE task_queue SET retry_after = now() WHERE retry_after > now()";
    sqlx::query(hurry).execute(&app.pool).await.unwrap();
    app.client.read_frontier(DocumentPath { id: file }).await.unwrap().settled
}

#[tokio::test]
async fn a_last_try_whose_endpoint_is_busy_goes_on_with_it_and_waits_for_no_further_batch() {
    let app = app_of_context("2048").await;
    let (provider, llm) = (BatchProvider::start().await, Llm::start().await);
    provider.will_say(|_| Says::Expires);
    // It is busy at the third part, and at the first summary of summaries, of which no batch was asked.
    let (mut calls, mut has_come) = (0, false);
    llm.will_say(move |call| {
        calls += 1;
        let is_above = !call.message().contains("oven of number");
        match calls == 3 || (is_above && !std::mem::replace(&mut has_come, true)) {
            true => Reply::status("429 Too Many Requests", "retry-after: 1\r\n", ""),
            false => Reply::said("The endpoint describes ovens."),
        }
    });
    let file = upload(&app, &section("", "oven", 400), json!({"rollup": {"max_children": 1000}})).await;
    waiting(&app, 1).await;
    sqlx::query("UPDATE task_queue SET max_retries = 0 WHERE NOT final").execute(&app.pool).await.unwrap();
    until("the file", async || {
        let state = tried(&app, &provider, &llm, Ends::Expired, file).await;
        (state != Settled::InFlight).then_some(())
    })
    .await;
    assert_eq!(provider.batches().len(), 1, "no part waits for another batch");
    assert_eq!(effective(&app, file).await["text"], "The endpoint describes ovens.");
    let asked = llm.asked();
    assert!(asked.iter().filter(|call| !call.message().contains("oven of number")).count() > 1);
    for n in 0..400 {
        let text = format!("oven of number {n} is");
        let times = asked.iter().filter(|call| call.message().contains(&text)).count();
        assert_eq!(times, if asked[2].message().contains(&text) { 2 } else { 1 }, "{text}");
    }
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn who_has_a_task_retried_whose_last_try_failed_has_it_asked_in_a_batch_again() {
    let app = app_of_context("2048").await;
    let (provider, llm) = (BatchProvider::start().await, Llm::start().await);
    provider.will_say(|_| Says::Expires);
    llm.will([Reply::status("401 Unauthorized", "", "")]);
    let file = upload(&app, &section("", "oven", 80), json!({})).await;
    waiting(&app, 1).await;
    sqlx::query("UPDATE task_queue SET max_retries = 0 WHERE NOT final").execute(&app.pool).await.unwrap();
    until("the file", async || {
        let state = tried(&app, &provider, &llm, Ends::Expired, file).await;
        (state != Settled::InFlight).then_some(())
    })
    .await;
    let failed = tasks(&app, TaskStatus::Failed).await;
    assert_eq!((failed.len(), provider.batches().len(), llm.asked().len()), (1, 1, 1));
    provider.will_say(|_| Says::Text("About ovens.".to_owned()));
    app.client.retry_task(TaskPath { id: failed[0].id }).await.unwrap();
    until("the summary", async || {
        tried(&app, &provider, &llm, Ends::Completed, file).await;
        (effective(&app, file).await["text"] == "About ovens.").then_some(())
    })
    .await;
    assert!(provider.batches().len() > 1);
    assert_eq!(llm.asked().len(), 1, "batches have answered all of it");
    invariants::check_drained(&app.pool).await;
    app.end().await;
}
