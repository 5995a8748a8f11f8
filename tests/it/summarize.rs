//! Summaries of long containers by a language model, against an endpoint that plays every part of a real one.
mod answers;

use crate::{
    edits::patched,
    members::archive,
    principals::{grant, someone},
    support::{
        TOKEN, TestApp, Wish, invariants,
        llm::{Asked, Llm, Reply},
        until,
    },
};
use rand::{RngExt, SeedableRng, rngs::SmallRng};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use svc_client::{
    FileUpload, Json,
    wire::{
        DocumentPath, DocumentResponse, ErrorType, GrantRight, LlmUsageQuery, PageQuery, ReprocessRequest, Settled,
        TaskPath, TaskQuery, TaskStatus, UploadQuery, VectorSearch, WaitQuery,
    },
};

pub(crate) async fn app(llm: &Llm, more: &[(&str, &str)]) -> TestApp {
    let mut settings = vec![("SVC_LLM_BASE_URL", llm.base.as_str()), ("SVC_LLM_MODEL", "asked-model")];
    settings.extend(more);
    TestApp::with(Wish { settings: &settings, ..Wish::default() }).await
}

/// A section of about `lines` times 12 tokens.
pub(crate) fn section(title: &str, subject: &str, lines: usize) -> String {
    let lines = (0..lines).map(|n| format!("The {subject} of number {n} is described here in a few words.\n"));
    let title = if title.is_empty() { String::new() } else { format!("# {title}\n\n") };
    format!("{title}{}\n", lines.collect::<String>())
}

pub(crate) async fn upload(app: &TestApp, text: &str, options: Value) -> i64 {
    let file = FileUpload::from_bytes("book.md", text.to_owned(), Some(options));
    app.client.upload_file(UploadQuery::default(), file).await.unwrap().document_id
}

pub(crate) async fn evidence(app: &TestApp, id: i64) -> Value {
    Value::Object(app.client.read_evidence(DocumentPath { id }).await.unwrap().evidence)
}

pub(crate) async fn children(app: &TestApp, id: i64) -> Vec<DocumentResponse> {
    let page = PageQuery { limit: Some(1000), ..PageQuery::default() };
    app.client.list_children(DocumentPath { id }, page).await.unwrap().documents
}

/// A model that says what the text is about, and of summaries that it was given some.
fn tell(call: &Asked) -> Reply {
    let subjects = ["oven", "volcano", "court", "glacier"].iter().filter(|subject| call.message().contains(**subject));
    let what = subjects.copied().collect::<Vec<_>>().join(" and the ");
    Reply::said(&format!("The text describes the {what} in numbers."))
}

/// The calls that had each of these texts in them.
fn calls_with(llm: &Llm, text: &str) -> usize {
    llm.asked().iter().filter(|call| call.message().contains(text)).count()
}

/// The attempts of summaries, by how they ended.
fn outcomes(evidence: &Value) -> Vec<(String, Option<String>)> {
    let attempts = evidence["attempts"].as_array().unwrap().iter();
    let word = |value: &Value| value.as_str().map(str::to_owned);
    let of = attempts.filter(|attempt| attempt["task_type"] == "summarize:llm");
    of.map(|attempt| (word(&attempt["outcome"]).unwrap(), word(&attempt["code"]))).collect()
}

async fn only_task(app: &TestApp, root_id: i64, status: TaskStatus) -> Option<svc_client::wire::TaskResponse> {
    let task_type = Some("summarize:llm".to_owned());
    let query = TaskQuery { root_id: Some(root_id), task_type, status: Some(status), ..TaskQuery::default() };
    app.client.list_tasks(query).await.unwrap().tasks.pop()
}

#[tokio::test]
async fn a_long_container_is_summarised_from_the_summaries_below_it() {
    let llm = Llm::start().await;
    let app = app(&llm, &[("SVC_SUMMARIZATION_DISABLE_THINKING", "true")]).await;
    llm.will_say(tell);
    let text = section("Ovens", "oven", 80) + &section("Volcanoes", "volcano", 80) + &section("Rent", "court", 2);
    let file = upload(&app, &text, json!({})).await;
    let frontier = app.settled(file).await;
    assert_eq!((frontier.settled, frontier.nodes_failed, &frontier.warnings), (Settled::Settled, 0, &vec![]));
    let sections = children(&app, file).await;
    assert_eq!(sections.len(), 3);
    let calls = llm.asked();
    assert_eq!(calls.len(), 2, "the two long sections");
    for call in &calls {
        let body = &call.body;
        assert_eq!((&body["model"], &body["reasoning_effort"]), (&json!("asked-model"), &json!("none")));
        assert_eq!(body["chat_template_kwargs"], json!({"enable_thinking": false}));
    }
    for (id, says) in [
        (sections[0].id, "The text describes the oven in numbers."),
        (sections[1].id, "The text describes the volcano in numbers."),
    ] {
        let evidence = evidence(&app, id).await;
        let effective = &evidence["effective_content"];
        assert_eq!((&effective["method"], &effective["text"]), (&json!("llm_summary"), &json!(says)));
        assert_eq!(effective["characters"], says.len());
        assert!(effective["tokens"].as_u64() > effective["window"].as_u64(), "{effective}");
        assert_eq!(effective["source_children"], children(&app, id).await.len());
        assert_eq!(evidence["rollup"]["embedding"], "summary of a language model");
        let took = &evidence["llm.summarize"];
        assert_eq!((&took["model"], &took["prompt"]), (&json!("scripted"), &json!("summarize/1")));
        assert_eq!((&took["calls"], &took["kept_calls"], &took["prompt_tokens"]), (&json!(1), &json!(0), &json!(70)));
    }
    assert_eq!(evidence(&app, sections[2].id).await["effective_content"]["method"], "concatenated");
    // What is below the file is short enough by now, so nobody is asked.
    let of_file = evidence(&app, file).await;
    let says = "Ovens\nThe text describes the oven in numbers.\n\nVolcanoes\nThe text describes the volcano in numbers.\n\n# Rent\n\nThe court of number 0";
    let text = of_file["effective_content"]["text"].as_str().unwrap();
    assert!(text.starts_with(says) && !text.contains("oven of number"), "{text}");
    assert_eq!((&of_file["llm.summarize"]["calls"], &of_file["llm.summarize"]["model"]), (&json!(0), &Value::Null));
    // The summary is what the section is found by.
    let query = VectorSearch { limit: 100, ..VectorSearch::new("The text describes the volcano in numbers.") };
    let found = app.client.search_vector(Json(query)).await.unwrap();
    assert_eq!(found.results[0].document.id, sections[1].id);
    assert!(found.results[0].score > 0.99, "{}", found.results[0].score);
    let metrics = app.raw("GET", "/metrics").send().await.unwrap().text().await.unwrap();
    assert!(metrics.contains("svc_llm_calls_total{purpose=\"summarize\",outcome=\"answered\"}"), "{metrics}");
    invariants::check_drained(&app.pool).await;

    // Another attempt, and another tree of the same bytes, ask nobody what was answered before; another model is asked.
    llm.will_say(tell);
    let again = |options| async {
        let request = ReprocessRequest { options: Some(options), ..ReprocessRequest::default() };
        app.client.reprocess_file(DocumentPath { id: file }, svc_client::OptionalJson(Some(request))).await.unwrap();
        assert_eq!(app.settled(file).await.settled, Settled::Settled);
        until("the new tree", async || {
            let rows: i64 = sqlx::query_scalar("SELECT count(*) FROM task_queue WHERE NOT final")
                .fetch_one(&app.pool)
                .await
                .unwrap();
            (rows == 0).then_some(())
        })
        .await;
    };
    again(json!({"rollup": {"penalty": 1.5}})).await;
    assert_eq!(llm.asked().len(), 0);
    let first = children(&app, file).await[0].id;
    assert_eq!(evidence(&app, first).await["llm.summarize"]["kept_calls"], 1);
    again(json!({"rollup": {"llm_model": "another"}})).await;
    let models: Vec<Value> = llm.asked().iter().map(|call| call.body["model"].clone()).collect();
    assert_eq!(models, vec![json!("another"); 2]);
    app.end().await;
}

#[tokio::test]
async fn more_than_the_model_reads_is_summarised_in_groups_and_no_group_is_paid_twice() {
    let llm = Llm::start().await;
    // So little room that a group has less than four thousand bytes.
    let app = app(&llm, &[("SVC_LLM_CONTEXT_TOKENS", "2048")]).await;
    let mut calls = 0;
    llm.will_say(move |call| {
        calls += 1;
        if calls == 4 { Reply::status("500 Internal Server Error", "", "") } else { tell(call) }
    });
    let file = upload(&app, &section("", "oven", 400), json!({"rollup": {"max_children": 1000}})).await;
    assert_eq!(app.settled(file).await.settled, Settled::Settled);
    let of_file = evidence(&app, file).await;
    let failed = ("failed".to_owned(), Some("language_model_failed".to_owned()));
    assert_eq!(outcomes(&of_file), [failed, ("completed".to_owned(), None)]);
    let took = &of_file["llm.summarize"];
    assert_eq!(took["kept_calls"], 3, "{took}");
    let asked = llm.asked();
    assert_eq!(
        took["calls"].as_u64().unwrap() as usize + 1,
        asked.len(),
        "only the call that failed is made again: {took}"
    );
    for n in 0..400 {
        let text = format!("oven of number {n} is");
        let times = asked.iter().filter(|call| call.message().contains(&text)).count();
        assert!(times == 1 || (times == 2 && asked[3].message().contains(&text)), "{text}: {times}");
    }
    assert!(asked.iter().all(|call| call.message().len() < 4000), "a group fits what the model reads");
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn too_long_an_answer_is_asked_for_again_and_then_cut_and_too_long_a_question_is_halved() {
    let llm = Llm::start().await;
    let app = app(&llm, &[]).await;
    let sentence = "The ovens of the bakery are described in a great many words that nobody needs. ";
    llm.will([Reply::said(&sentence.repeat(90)), Reply::said("The ovens, briefly.")]);
    let file = upload(&app, &section("", "oven", 80), json!({})).await;
    app.settled(file).await;
    let effective = evidence(&app, file).await["effective_content"].clone();
    assert_eq!((&effective["text"], effective.get("truncated_at")), (&json!("The ovens, briefly."), None));
    let words =
        |call: &Asked| call.message().split("at most ").nth(1).unwrap().split(' ').next().unwrap().parse::<usize>();
    let asked: Vec<usize> = llm.asked().iter().map(|call| words(call).unwrap()).collect();
    assert!(asked.len() == 2 && asked[1] < asked[0], "{asked:?}");

    for reply in [Reply::said(&sentence.repeat(90)), Reply::cut(&format!("{sentence}And it br"))] {
        llm.will([reply]);
        let file = upload(
            &app,
            &section("", "volcano", 80 + llm.asked().len()),
            json!({"rollup": {"penalty": rand::random::<f32>()}}),
        )
        .await;
        app.settled(file).await;
        let effective = evidence(&app, file).await["effective_content"].clone();
        let text = effective["text"].as_str().unwrap();
        assert!(text.ends_with("nobody needs."), "{text}");
        assert_eq!(effective["truncated_at"], text.len());
        assert_eq!(llm.asked().len(), 2);
        app.client.delete_document(DocumentPath { id: file }).await.unwrap();
    }

    llm.will_say(|call| match call.message().len() {
        ..4000 => tell(call),
        _ => Reply::status(
            "400 Bad Request",
            "",
            &json!({"error": {"code": "context_length_exceeded", "message": "too long"}}).to_string(),
        ),
    });
    let file = upload(&app, &section("", "glacier", 120), json!({})).await;
    app.settled(file).await;
    let of_file = evidence(&app, file).await;
    assert_eq!(outcomes(&of_file), [("completed".to_owned(), None)]);
    assert!(of_file["effective_content"]["text"].as_str().unwrap().contains("glacier"));
    for n in 0..120 {
        assert!(
            llm.asked().iter().any(
                |call| call.message().len() < 4000 && call.message().contains(&format!("glacier of number {n} is"))
            )
        );
    }
    app.end().await;
}

#[tokio::test]
async fn what_fails_for_good_settles_the_container_and_what_is_away_waits() {
    let llm = Llm::start().await;
    let app = app(&llm, &[("SVC_LLM_API_KEY", "sk-of-the-test")]).await;
    for (at, (reply, code)) in [
        (Reply::status("401 Unauthorized", "", "bad sk-of-the-test"), "language_model_refuses"),
        (Reply::status("404 Not Found", "", ""), "language_model_refuses"),
        (Reply::said("<think>and on and on"), "only_reasoning"),
        (Reply::status("413 Payload Too Large", "", ""), "text_too_long"),
    ]
    .into_iter()
    .enumerate()
    {
        llm.will([reply]);
        let file = upload(&app, &section("", "oven", 80 + at), json!({})).await;
        let frontier = app.settled(file).await;
        assert_eq!((frontier.settled, frontier.nodes_failed), (Settled::Settled, 0), "{code}");
        let of_file = evidence(&app, file).await;
        assert_eq!(outcomes(&of_file), [("failed".to_owned(), Some(code.to_owned()))]);
        assert_eq!(only_task(&app, file, TaskStatus::Failed).await.unwrap().error_type, Some(ErrorType::Permanent));
        let why = &of_file["rollup"]["not_summarized"];
        assert_eq!(why["embedding"], "weighted sum of the children's vectors");
        assert!(!of_file.to_string().contains("sk-of-the-test"), "{of_file}");
    }
    // Who has too much to do is left alone for as long as it says, and that spends no attempt.
    llm.will_say({
        let mut calls = 0;
        move |call| {
            calls += 1;
            if calls == 1 { Reply::status("429 Too Many Requests", "retry-after: 1\r\n", "") } else { tell(call) }
        }
    });
    let file = upload(&app, &section("", "volcano", 80), json!({})).await;
    assert_eq!(app.settled(file).await.settled, Settled::Settled);
    let of_file = evidence(&app, file).await;
    assert_eq!(of_file["effective_content"]["method"], "llm_summary");
    assert_eq!((llm.asked().len(), only_task(&app, file, TaskStatus::Completed).await.unwrap().retry_count), (2, 0));
    app.end().await;

    // Nobody is at the address yet: the container waits, and settles once somebody is.
    let (place, free) = crate::support::nobody();
    let base = format!("http://{free}/v1");
    let app = TestApp::with(Wish { settings: &[("SVC_LLM_BASE_URL", &base)], ..Wish::default() }).await;
    let file = upload(&app, &section("", "oven", 80), json!({})).await;
    let waiting = until("the first attempt", async || {
        only_task(&app, file, TaskStatus::Failed).await.filter(|task| !task.finished)
    });
    let waiting = waiting.await;
    let why = waiting.last_error.unwrap();
    assert_eq!((waiting.retry_count, why.code.as_deref()), (0, Some("language_model_away")));
    assert!(why.message.as_ref().is_some_and(|message| message.contains(&base)), "{why:?}");
    let late = Llm::on(place.listen(64).unwrap());
    late.will_say(tell);
    assert_eq!(app.settled(file).await.settled, Settled::Settled);
    assert_eq!(evidence(&app, file).await["effective_content"]["text"], "The text describes the oven in numbers.");
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

/// A service with a settled file of two sections, both of which a language model has summarised.
async fn of_two_sections() -> (Llm, TestApp, i64) {
    let llm = Llm::start().await;
    let app = app(&llm, &[]).await;
    llm.will_say(tell);
    let text = section("Ovens", "oven", 80) + &section("Volcanoes", "volcano", 80);
    let file = upload(&app, &text, json!({})).await;
    app.settled(file).await;
    (llm, app, file)
}

#[tokio::test]
async fn a_summary_tells_nobody_what_is_closed_to_them_and_forgets_what_is_closed_later() {
    let (llm, app, file) = of_two_sections().await;
    let volcanoes = children(&app, file).await[1].id;
    let told = async |id: i64| evidence(&app, id).await["effective_content"]["text"].as_str().map(str::to_owned);
    assert!(told(file).await.unwrap().contains("volcano"));
    // A grant on a section closes it to all others.
    let p = someone(&app, "p").await;
    grant(&app, &p, volcanoes, GrantRight::Read).await;
    assert_eq!(told(file).await, None);
    assert!(evidence(&app, file).await["effective_content"]["text_removed"].is_string());
    assert!(told(volcanoes).await.unwrap().contains("volcano"), "its own readers read it still");
    let kept: i64 = sqlx::query_scalar("SELECT count(*) FROM llm_answers WHERE document_id = $1")
        .bind(file)
        .fetch_one(&app.pool)
        .await
        .unwrap();
    assert_eq!(kept, 0);
    // The summary that is made next is made of what all readers of the file may read.
    llm.will_say(tell);
    let chunk = children(&app, children(&app, file).await[0].id).await[0].id;
    let change = serde_json::from_value(json!({"content": "The glacier moved."})).unwrap();
    app.client.update_document(DocumentPath { id: chunk }, WaitQuery::default(), Json(change)).await.unwrap();
    assert_eq!(app.settled(file).await.settled, Settled::Settled);
    let text = told(file).await.unwrap();
    assert!(text.contains("glacier") && !text.contains("volcano"), "{text}");
    assert_eq!(calls_with(&llm, "volcano"), 0);
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn no_summary_keeps_a_title_that_a_section_had() {
    let (llm, app, file) = of_two_sections().await;
    let told = async |id: i64| evidence(&app, id).await["effective_content"]["text"].as_str().map(str::to_owned);
    assert!(told(file).await.unwrap().contains("Ovens"));
    let ovens = children(&app, file).await[0].id;
    let of_section = told(ovens).await.unwrap();
    llm.will_say(tell);
    patched(&app, ovens, json!({"title": "Kilns"})).await;
    // It may be told anew already.
    let text = told(file).await.unwrap_or_default();
    assert!(!text.contains("Ovens"), "{text}");
    assert_eq!(app.settled(file).await.settled, Settled::Settled);
    let text = told(file).await.unwrap();
    assert!(text.contains("Kilns") && text.contains("Volcanoes") && !text.contains("Ovens"), "{text}");
    // The section's own summary is of the texts under it, so it stays as it was paid for.
    assert_eq!(told(ovens).await.as_deref(), Some(of_section.as_str()));
    assert_eq!(llm.asked().len(), 0);
    let kept: i64 = sqlx::query_scalar("SELECT count(*) FROM llm_answers WHERE document_id = $1")
        .bind(ovens)
        .fetch_one(&app.pool)
        .await
        .unwrap();
    assert_eq!(kept, 1);
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn an_answer_of_white_space_alone_is_none() {
    let llm = Llm::start().await;
    let app = app(&llm, &[]).await;
    let says = "The text describes the oven in numbers.";
    llm.will([Reply::said("\n\n"), Reply::said(&format!("\n\n{says}\n"))]);
    let file = upload(&app, &section("", "oven", 80), json!({})).await;
    assert_eq!(app.settled(file).await.settled, Settled::Settled);
    let of_file = evidence(&app, file).await;
    let failed = ("failed".to_owned(), Some("language_model_failed".to_owned()));
    assert_eq!(outcomes(&of_file), [failed, ("completed".to_owned(), None)]);
    assert_eq!(of_file["effective_content"]["text"], says);
    let kept = "SELECT answer FROM llm_answers";
    let kept: Vec<String> = sqlx::query_scalar(kept).fetch_all(&app.pool).await.unwrap();
    assert_eq!(kept, [says]);
    // Where one was kept all the same, the model is asked again.
    sqlx::query("UPDATE llm_answers SET answer = ' '").execute(&app.pool).await.unwrap();
    llm.will_say(tell);
    let options = Some(json!({"rollup": {"penalty": 1.5}}));
    let request = ReprocessRequest { options, ..ReprocessRequest::default() };
    app.client.reprocess_file(DocumentPath { id: file }, svc_client::OptionalJson(Some(request))).await.unwrap();
    until("the new tree", async || {
        let rows = "SELECT count(*) FROM task_queue WHERE NOT final";
        let rows: i64 = sqlx::query_scalar(rows).fetch_one(&app.pool).await.unwrap();
        (rows == 0 && app.settled(file).await.settled == Settled::Settled).then_some(())
    })
    .await;
    assert_eq!((llm.asked().len(), &evidence(&app, file).await["effective_content"]["text"]), (1, &json!(says)));
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn a_summary_of_what_is_cancelled_is_not_written_and_its_call_ends() {
    let llm = Llm::start().await;
    let app = app(&llm, &[]).await;
    llm.will([Reply::Hold(Vec::new())]);
    let file = upload(&app, &section("", "oven", 80), json!({})).await;
    until("the call", async || (!llm.asked().is_empty()).then_some(())).await;
    app.client.cancel_ingest(DocumentPath { id: file }).await.unwrap();
    llm.hung_up().await;
    assert_eq!(app.settled(file).await.settled, Settled::Failed);
    assert_eq!(evidence(&app, file).await["effective_content"]["method"], Value::Null);
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn a_summary_that_failed_is_made_once_there_is_a_model() {
    let llm = Llm::start().await;
    let app = app(&llm, &[]).await;
    llm.will([Reply::status("401 Unauthorized", "", "")]);
    let file = upload(&app, &section("", "oven", 80), json!({})).await;
    app.settled(file).await;
    llm.will_say(tell);
    let task = only_task(&app, file, TaskStatus::Failed).await.unwrap();
    app.client.retry_task(TaskPath { id: task.id }).await.unwrap();
    assert_eq!(app.settled(file).await.settled, Settled::Settled);
    let of_file = evidence(&app, file).await;
    assert_eq!(of_file["effective_content"]["method"], "llm_summary");
    assert_eq!(
        (&of_file["rollup"]["not_summarized"], &of_file["rollup"]["embedding"]),
        (&Value::Null, &json!("summary of a language model"))
    );
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn no_more_calls_are_under_way_than_the_setting_says() {
    const TAKES: Duration = Duration::from_millis(100);
    let llm = Llm::start().await;
    let app = app(&llm, &[("SVC_LLM_CONCURRENCY", "2")]).await;
    let begun = Arc::new(Mutex::new(Vec::new()));
    let noted = begun.clone();
    llm.will_say(move |call| {
        noted.lock().unwrap().push(Instant::now());
        tell(call).after(TAKES)
    });
    let mut files = Vec::new();
    for more in 0..6 {
        files.push(upload(&app, &section("", "oven", 80 + more), json!({})).await);
    }
    for file in files {
        assert_eq!(app.settled(file).await.settled, Settled::Settled);
    }
    let begun = begun.lock().unwrap().clone();
    assert_eq!(begun.len(), 6);
    // Of any three calls one was over when the last began.
    for three in begun.windows(3) {
        assert!(three[2] - three[0] >= TAKES, "{begun:?}");
    }
    app.end().await;
}

/// What became of each call about a file.
type Calls = Arc<Mutex<BTreeMap<usize, Vec<&'static str>>>>;

#[tokio::test]
async fn a_hundred_files_settle_beside_an_endpoint_that_fails_now_and_then_and_none_is_paid_twice() {
    const FILES: usize = 100;
    let llm = Llm::start().await;
    let app = app(&llm, &[]).await;
    let calls = Calls::default();
    let (noted, mut random) = (calls.clone(), SmallRng::seed_from_u64(7));
    llm.will_say(move |call| {
        let number = call.message().split("file-").nth(1).unwrap().split('.').next().unwrap().parse().unwrap();
        let (word, reply) = match random.random_range(0..100) {
            0..4 => ("busy", Reply::status("429 Too Many Requests", "retry-after: 1\r\n", "")),
            4..10 => ("broken", Reply::status("500 Internal Server Error", "", "")),
            10..12 => ("cut", Reply::cut("A whole sentence about ovens. And half of")),
            _ => ("said", Reply::said("The text describes ovens.")),
        };
        noted.lock().unwrap().entry(number).or_default().push(word);
        reply.after(Duration::from_millis(50))
    });
    let mut files = Vec::new();
    for number in 0..FILES {
        let text = section("", "oven", 60);
        let file = FileUpload::from_bytes(&format!("file-{number}.md"), format!("file-{number}.\n\n{text}"), None);
        files.push(app.client.upload_file(UploadQuery::default(), file).await.unwrap().document_id);
    }
    for file in files {
        assert_eq!(app.settled(file).await.settled, Settled::Settled);
        let of_file = evidence(&app, file).await;
        assert_eq!(of_file["effective_content"]["method"], "llm_summary", "{of_file}");
    }
    let calls = calls.lock().unwrap().clone();
    assert_eq!(calls.len(), FILES);
    for (number, calls) in &calls {
        // One answer is enough, unless its end was cut off: then a shorter one is asked for.
        let answers: Vec<&str> = calls.iter().copied().filter(|word| ["said", "cut"].contains(word)).collect();
        assert!(matches!(answers.as_slice(), ["said"] | ["cut", "said" | "cut"]), "file {number}: {calls:?}");
    }
    let all: usize = calls.values().map(Vec::len).sum();
    let failed = calls.values().flatten().filter(|word| ["busy", "broken"].contains(word)).count();
    assert!(failed > 0, "the endpoint did not fail");
    let usage = app.client.read_llm_usage(LlmUsageQuery::default()).await.unwrap().usage;
    let (counted, lost): (i64, i64) =
        usage.iter().fold((0, 0), |(all, lost), used| (all + used.calls, lost + used.failed_calls));
    // Tasks that the pause of the lane turned away called nobody.
    assert_eq!((counted as usize, lost as usize), (all, failed), "{usage:?}");
    let mut status = std::process::Command::new(env!("CARGO_BIN_EXE_svc"));
    status
        .args(["status", "--table"])
        .env("SVC_URL", &app.base)
        .env("SVC_API_TOKEN", TOKEN)
        .env("SVC_CONFIG", "/dev/null");
    let shown = tokio::task::spawn_blocking(move || status.output().unwrap()).await.unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    let says = format!(
        "summarize by scripted: {} calls in 30 days, 0 failed; {} tokens in",
        all - failed,
        70 * (all - failed)
    );
    assert!(shown.contains(&says), "{shown}");
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

/// Together they do not fit the model's window, though each does.
#[tokio::test]
async fn an_archive_of_short_files_is_summarised_by_their_texts() {
    let llm = Llm::start().await;
    let app = app(&llm, &[]).await;
    llm.will_say(tell);
    let files = [("ovens.md", section("", "oven", 30)), ("volcanoes.md", section("", "volcano", 30))];
    let file = app.upload_bytes("both.zip", archive(&files)).await.unwrap().document_id;
    assert_eq!(app.settled(file).await.settled, Settled::Settled);
    let effective = evidence(&app, file).await["effective_content"].clone();
    assert_eq!(
        (&effective["method"], &effective["text"]),
        (&json!("llm_summary"), &json!("The text describes the oven and the volcano in numbers."))
    );
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

/// What the rows of sheets have is counted at the sheets alone, two levels below the archive that holds their files.
#[tokio::test]
async fn an_archive_counts_the_tokens_of_the_tables_in_it_at_any_depth() {
    let llm = Llm::start().await;
    let app = app(&llm, &[]).await;
    llm.will_say(tell);
    let table = |subject: &str| {
        let row = |n: usize| format!("{n},The {subject} of number {n} is described here in a few words\n");
        format!("number,description\n{}", (0..60).map(row).collect::<String>())
    };
    let inner = archive(&[("ovens.csv", table("oven")), ("volcanoes.csv", table("volcano"))]);
    let file = app.upload_bytes("outer.zip", archive(&[("inner.zip", inner)])).await.unwrap().document_id;
    assert_eq!(app.settled(file).await.settled, Settled::Settled);
    let inner = children(&app, file).await[0].id;
    for id in [inner, file] {
        let effective = evidence(&app, id).await["effective_content"].clone();
        assert_eq!(effective["method"], "llm_summary");
        assert!(effective["tokens"].as_u64() > effective["window"].as_u64(), "{effective}");
    }
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn models_that_callers_name_are_one_model_in_the_metrics() {
    let llm = Llm::start().await;
    let app = app(&llm, &[]).await;
    // Servers name the model that they were asked for.
    llm.will_say(|call| match tell(call) {
        Reply::Bytes(bytes) => {
            let text = String::from_utf8(bytes).unwrap();
            Reply::Bytes(text.replace("scripted", call.body["model"].as_str().unwrap()).into_bytes())
        }
        other => other,
    });
    for (name, subject) in [("", "oven"), ("named-once", "volcano"), ("named-twice", "glacier")] {
        let file = upload(&app, &section("", subject, 100), json!({"rollup": {"llm_model": name}})).await;
        assert_eq!(app.settled(file).await.settled, Settled::Settled);
    }
    let metrics = app.client.read_metrics().await.unwrap();
    let of = |model: &str| metrics.matches(&format!("{{purpose=\"summarize\",model=\"{model}\",direction=")).count();
    assert_eq!((of("asked-model"), of("other"), metrics.contains("named-")), (2, 2, false), "{metrics}");
    let usage = app.client.read_llm_usage(LlmUsageQuery::default()).await.unwrap().usage;
    let named = usage.iter().filter(|used| used.model.starts_with("named-")).count();
    assert_eq!(named, 2, "{usage:?}");
    app.end().await;
}
