//! What counts as an answer, why there is none yet, and how long one is kept.
use super::*;
use svc_client::wire::{NoAnswer, SynthesizeSearch};

#[tokio::test]
async fn thoughts_whose_beginning_stands_in_the_prompt_are_not_the_summary() {
    let llm = Llm::start().await;
    let app = app(&llm, &[]).await;
    let told = async |id: i64| evidence(&app, id).await["effective_content"]["text"].clone();
    llm.will([Reply::said("Okay, the user wants a summary.\n</think>\n\nThe ovens, briefly.")]);
    let file = upload(&app, &section("", "oven", 80), json!({})).await;
    assert_eq!(app.settled(file).await.settled, Settled::Settled);
    assert_eq!((told(file).await, llm.asked().len()), (json!("The ovens, briefly."), 1));
    // A model that says nothing after its thoughts is asked once more not to think.
    llm.will([Reply::said("On and on.\n</think>\n"), Reply::said("The volcanoes, briefly.")]);
    let file = upload(&app, &section("", "volcano", 80), json!({})).await;
    assert_eq!(app.settled(file).await.settled, Settled::Settled);
    assert_eq!(told(file).await, "The volcanoes, briefly.");
    let thinks: Vec<Value> = llm.asked().iter().map(|call| call.body["chat_template_kwargs"].clone()).collect();
    assert_eq!(thinks, [Value::Null, json!({"enable_thinking": false})]);
    let usage = app.client.read_llm_usage(LlmUsageQuery::default()).await.unwrap().usage;
    assert_eq!(usage.iter().map(|used| (used.calls, used.failed_calls)).collect::<Vec<_>>(), [(3, 1)]);
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn a_summary_that_waits_for_a_busy_endpoint_says_what_the_endpoint_said() {
    let llm = Llm::start().await;
    let app = app(&llm, &[("SVC_LLM_API_KEY", "sk-of-the-test")]).await;
    let quota = json!({"error": {"message": "sk-of-the-test exceeded its quota.", "code": "insufficient_quota"}});
    llm.will([Reply::status("429 Too Many Requests", "retry-after: 1\r\n", &quota.to_string())]);
    let file = upload(&app, &section("", "oven", 80), json!({})).await;
    let why = until("the first attempt", async || {
        let waiting = only_task(&app, file, TaskStatus::Failed).await.filter(|task| !task.finished)?;
        waiting.last_error?.message
    })
    .await;
    assert!(why.contains("it answers 429 Too Many Requests: [key] exceeded its quota. insufficient_quota"), "{why}");
    llm.will_say(tell);
    assert_eq!(app.settled(file).await.settled, Settled::Settled);
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn what_the_endpoint_says_of_a_model_that_one_file_names_holds_for_no_other() {
    let llm = Llm::start().await;
    let app = app(&llm, &[]).await;
    let refusal = json!({"error": {"message": "Unsupported value: 'temperature' does not support 0."}}).to_string();
    llm.will_say(move |call| match (call.body["model"] == "named", call.body.get("temperature")) {
        (true, Some(_)) => Reply::status("400 Bad Request", "", &refusal),
        (true, None) => Reply::status("429 Too Many Requests", "retry-after: 600\r\n", ""),
        (false, _) => tell(call),
    });
    let named = upload(&app, &section("", "volcano", 80), json!({"rollup": {"llm_model": "named"}})).await;
    until("the first attempt", async || only_task(&app, named, TaskStatus::Failed).await.filter(|task| !task.finished))
        .await;
    let file = upload(&app, &section("", "oven", 80), json!({})).await;
    assert_eq!(app.settled(file).await.settled, Settled::Settled);
    assert_eq!(evidence(&app, file).await["effective_content"]["text"], "The text describes the oven in numbers.");
    let (of_named, others): (Vec<Asked>, Vec<Asked>) =
        llm.asked().into_iter().partition(|call| call.body["model"] == "named");
    assert_eq!((of_named.len(), others.len()), (2, 1), "nobody asks the named model before its time");
    assert_eq!(others[0].body["temperature"], 0.0, "the other one has not refused it");
    llm.will([Reply::said("{\"answered\": false, \"sentences\": []}")]);
    let question = Json(SynthesizeSearch::new("what is described of the oven"));
    assert_eq!(app.client.synthesize(question).await.unwrap().reason, Some(NoAnswer::NotInSources));
    app.client.cancel_ingest(DocumentPath { id: named }).await.unwrap();
    assert_eq!(app.settled(named).await.settled, Settled::Failed);
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn every_further_tree_of_a_file_asks_nothing_that_the_first_one_has_asked() {
    let llm = Llm::start().await;
    let app = app(&llm, &[("SVC_LLM_CONTEXT_TOKENS", "2048")]).await;
    llm.will_say(tell);
    let options = json!({"rollup": {"max_children": 1000}});
    let file = upload(&app, &section("", "oven", 400), options.clone()).await;
    assert_eq!(app.settled(file).await.settled, Settled::Settled);
    let calls = llm.asked().len();
    assert!(calls > 4, "the file is summarised in groups: {calls}");
    let kept = async || -> i64 {
        let query = "SELECT count(*) FROM llm_answers WHERE document_id = $1";
        sqlx::query_scalar(query).bind(file).fetch_one(&app.pool).await.unwrap()
    };
    assert_eq!(kept().await, calls as i64);
    for _ in 0..2 {
        llm.will_say(tell);
        let request = ReprocessRequest { options: Some(options.clone()), ..ReprocessRequest::default() };
        let request = svc_client::OptionalJson(Some(request));
        let begun = app.client.reprocess_file(DocumentPath { id: file }, request).await.unwrap();
        let begun = json!(begun.started_at);
        until("the end of the old tree", async || {
            let told = evidence(&app, file).await["reprocess"].clone();
            let hidden: i64 = sqlx::query_scalar("SELECT count(*) FROM documents WHERE guard = -1")
                .fetch_one(&app.pool)
                .await
                .unwrap();
            (told["state"] == "done" && told["started_at"] == begun && hidden == 0).then_some(())
        })
        .await;
        assert_eq!((llm.asked().len(), kept().await), (0, calls as i64));
        assert_eq!(evidence(&app, file).await["effective_content"]["method"], "llm_summary");
    }
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn what_becomes_of_a_note_under_a_section_takes_no_summary_of_its_file_away() {
    let (llm, app, file) = of_two_sections().await;
    let ovens = children(&app, file).await[0].id;
    let told = async |id: i64| evidence(&app, id).await["effective_content"]["text"].as_str().map(str::to_owned);
    let paid = async || -> (Option<String>, Option<String>, i64) {
        let kept = sqlx::query_scalar("SELECT count(*) FROM llm_answers").fetch_one(&app.pool).await.unwrap();
        (told(file).await, told(ovens).await, kept)
    };
    let before = paid().await;
    assert!(before.0.is_some() && before.1.is_some() && before.2 == 2, "{before:?}");
    let note = app.create("A note", "The bread is good.", Some(ovens)).await.id;
    patched(&app, note, json!({"content": "The bread is dark."})).await;
    assert_eq!(paid().await, before, "another text");
    app.client.protect_document(DocumentPath { id: note }).await.unwrap();
    assert_eq!(paid().await, before, "other readers");
    patched(&app, note, json!({"parent_id": null})).await;
    assert_eq!(paid().await, before, "another place");
    let note = app.create("Another note", "The bread is gone.", Some(ovens)).await.id;
    app.client.delete_document(DocumentPath { id: note }).await.unwrap();
    assert_eq!(paid().await, before, "a note that is deleted");

    llm.will_say(tell);
    let request = ReprocessRequest { options: Some(json!({})), ..ReprocessRequest::default() };
    let request = svc_client::OptionalJson(Some(request));
    app.client.reprocess_file(DocumentPath { id: file }, request).await.unwrap();
    until("the new tree", async || (evidence(&app, file).await["reprocess"]["state"] == "done").then_some(())).await;
    assert_eq!(llm.asked().len(), 0);
    assert_eq!(app.settled(file).await.settled, Settled::Settled);
    invariants::check_drained(&app.pool).await;
    app.end().await;
}
