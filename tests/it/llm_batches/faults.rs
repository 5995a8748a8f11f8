//! Batches that expire, are refused or are killed under: nothing is lost, paid twice without need, or applied twice.
use super::{app, batches, command, effective, ended, finished, going_on, once, run_arguments, tasks, waiting};
use crate::{
    crash::Process,
    summarize::{children, evidence, section, upload},
    support::{
        self, TestApp, Wish,
        batches::{Batch, BatchProvider, Ends, Fate, Says},
        invariants,
        llm::{Llm, Reply},
        until,
    },
};
use rand::{RngExt, SeedableRng, rngs::SmallRng};
use serde_json::json;
use std::{
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};
use svc_client::{
    Json,
    wire::{DocumentPath, LlmBatchOutcome, LlmUsageQuery, Settled, TaskPath, TaskStatus, WaitQuery},
};

#[tokio::test]
async fn a_batch_that_expires_fails_or_is_cancelled_gives_its_tasks_back_and_keeps_what_was_answered() {
    let (app, provider) = (app().await, BatchProvider::start().await);
    let text = section("Ovens", "oven", 80) + &section("Volcanoes", "volcano", 80);
    let file = upload(&app, &text, json!({})).await;
    waiting(&app, 2).await;
    provider.will_say(|asked| match asked.message.contains("The oven") {
        true => Says::Text("About ovens.".into()),
        false => Says::Expires,
    });
    for (round, ends) in [Ends::Expired, Ends::Failed].into_iter().enumerate() {
        once(&app, &provider, "openai", &[]).await;
        provider.end(ends);
        once(&app, &provider, "openai", &[]).await;
        let batch = &batches(&app).await[0];
        let failed = tasks(&app, TaskStatus::Failed).await;
        assert_eq!(failed.len(), 1, "the one without an answer");
        assert_eq!((failed[0].retry_count, failed[0].finished), (round as i32 + 1, false));
        let (outcome, code) = match ends {
            Ends::Expired => (LlmBatchOutcome::Expired, "batch_expired"),
            _ => (LlmBatchOutcome::Failed, "batch_broken"),
        };
        assert_eq!(batch.outcome, Some(outcome));
        assert_eq!(failed[0].last_error.as_ref().unwrap().code.as_deref(), Some(code));
        if ends == Ends::Failed {
            assert!(batch.problem.as_ref().unwrap().contains("The file is not readable"), "{batch:?}");
        }
        sqlx::query("UPDATE task_queue SET retry_after = now() WHERE retry_after > now()")
            .execute(&app.pool)
            .await
            .unwrap();
    }
    // An operator ends a batch that the provider has.
    once(&app, &provider, "openai", &[]).await;
    let id = batches(&app).await[0].id.to_string();
    let said = ended(command(&app, &["cancel", &id])).await;
    assert!(said.status.success());
    once(&app, &provider, "openai", &[]).await;
    assert!(provider.calls().iter().any(|call| call.ends_with("/cancel")));
    let batch = &batches(&app).await[0];
    assert_eq!((batch.outcome, batch.tasks), (Some(LlmBatchOutcome::Cancelled), 0));
    assert_eq!(
        tasks(&app, TaskStatus::Failed).await[0].last_error.as_ref().unwrap().code.as_deref(),
        Some("batch_cancelled")
    );
    let said = ended(command(&app, &["cancel", &id])).await;
    assert!(!said.status.success(), "it has ended");
    provider.will_say(|_| Says::Text("About volcanoes.".into()));
    sqlx::query("UPDATE task_queue SET retry_after = now() WHERE retry_after > now()")
        .execute(&app.pool)
        .await
        .unwrap();
    once(&app, &provider, "openai", &[]).await;
    provider.end(Ends::Completed);
    once(&app, &provider, "openai", &[]).await;
    assert_eq!(finished(&app, &provider, "openai", &[], file).await, Settled::Settled);
    let ovens = provider
        .batches()
        .iter()
        .flat_map(|batch| batch.requests.clone())
        .filter(|asked| asked.message.contains("The oven"))
        .count();
    assert_eq!(ovens, 1, "what was answered in the expired batch is not paid again");
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn what_a_batch_did_not_answer_is_asked_again_as_a_whole_and_without_what_was_refused() {
    let settings = [
        ("SVC_TASK_BADGES", "{\"summarize:llm\": \"batch\"}"),
        ("SVC_WORKER_BADGE", "here"),
        ("SVC_LLM_CONTEXT_TOKENS", "2048"),
    ];
    let app = TestApp::with(Wish { settings: &settings, ..Wish::default() }).await;
    let provider = BatchProvider::start().await;
    let file = upload(&app, &section("", "oven", 500), json!({"rollup": {"max_children": 1000}})).await;
    waiting(&app, 1).await;
    let worker = {
        let mut command = command(&app, &run_arguments(&provider, "openai"));
        command.env("SVC_LLM_CONTEXT_TOKENS", "2048").stdout(Stdio::null()).stderr(Stdio::null());
        Process(command.spawn().unwrap())
    };
    // All of many questions are refused for a field that need not be sent: the task tries once more, and asks all of them without it.
    provider.will_say(|asked| match asked.params.get("max_tokens") {
        Some(_) => Says::Error(
            400,
            "invalid_request_error",
            "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens'.",
        ),
        None => Says::Expires,
    });
    let of_round = async |round: usize| {
        until("a batch", async || {
            sqlx::query("UPDATE task_queue SET retry_after = now() WHERE retry_after > now()")
                .execute(&app.pool)
                .await
                .unwrap();
            provider.batches().get(round).cloned()
        })
        .await
    };
    let first = of_round(0).await;
    assert!(first.requests.len() > 6, "more questions than a task has retries");
    provider.end(Ends::Completed);
    let second = of_round(1).await;
    let ids = |batch: &Batch| batch.requests.iter().map(|asked| asked.message.len()).collect::<Vec<_>>();
    assert_eq!(ids(&first), ids(&second), "all are asked again at once");
    assert!(second.requests.iter().all(|asked| asked.params.get("max_completion_tokens").is_some()));
    // The same where the whole batch expires.
    provider.end(Ends::Expired);
    let third = of_round(2).await;
    assert_eq!(ids(&first), ids(&third));
    let retries: i32 = sqlx::query_scalar("SELECT retry_count FROM task_queue WHERE batch_id IS NOT NULL")
        .fetch_one(&app.pool)
        .await
        .unwrap();
    assert_eq!(retries, 2);
    provider.will_say(|asked| Says::Text(format!("A summary for {}.", asked.custom_id)));
    provider.ends_at_once();
    provider.end(Ends::Completed);
    assert_eq!(app.settled(file).await.settled, Settled::Settled);
    assert_eq!(effective(&app, file).await["method"], "llm_summary");
    drop(worker);

    // An address that knows nothing throws no batch away, and one batch without results holds no other up.
    let (first, second) = (upload(&app, &section("", "volcano", 80), json!({})).await, section("", "comet", 80));
    waiting(&app, 1).await;
    let provider = BatchProvider::start().await;
    once(&app, &provider, "openai", &[]).await;
    let elsewhere = BatchProvider::start().await;
    let arguments = [&run_arguments(&elsewhere, "openai")[..], &["--once"]].concat();
    let said = String::from_utf8(ended(command(&app, &arguments)).await.stderr).unwrap();
    assert!(said.contains("does not know the batch") && said.contains("svc-batch-worker cancel"), "{said}");
    assert_eq!(tasks(&app, TaskStatus::Batched).await.len(), 1, "nothing that was paid is thrown away");
    let second = upload(&app, &second, json!({})).await;
    waiting(&app, 1).await;
    once(&app, &provider, "openai", &[]).await;
    provider.end(Ends::Completed);
    let lost = provider.batches()[0].id.clone();
    provider.will(
        move |call| if call.contains("/files/") && call.contains(&lost) { Fate::Refused(404) } else { Fate::Answered },
    );
    once(&app, &provider, "openai", &[]).await;
    assert_eq!(app.settled(second).await.settled, Settled::Settled);
    sqlx::query("UPDATE task_queue SET retry_after = now() WHERE retry_after > now()")
        .execute(&app.pool)
        .await
        .unwrap();
    assert_eq!(finished(&app, &provider, "openai", &[], first).await, Settled::Settled);
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn a_model_that_only_thinks_is_asked_once_more_not_to_before_its_task_fails() {
    let (app, provider) = (app().await, BatchProvider::start().await);
    for never_answers in [false, true] {
        let subject = if never_answers { "volcano" } else { "oven" };
        provider.will_say(move |asked| match asked.params.get("chat_template_kwargs") {
            Some(_) if !never_answers => Says::Text("About ovens.".into()),
            _ => Says::Thought("Hm, hm.".into()),
        });
        let file = upload(&app, &section("", subject, 80), json!({})).await;
        waiting(&app, 1).await;
        let before = provider.batches().len();
        let state = finished(&app, &provider, "openai", &[], file).await;
        let asked: Vec<bool> = provider.batches()[before..]
            .iter()
            .flat_map(|batch| &batch.requests)
            .map(|asked| asked.params["chat_template_kwargs"] == json!({"enable_thinking": false}))
            .collect();
        assert_eq!((state, asked), (Settled::Settled, vec![false, true]), "once with thinking and once without");
        let of_file = evidence(&app, file).await;
        if never_answers {
            let why = of_file["rollup"]["not_summarized"]["reason"].as_str().unwrap();
            assert!(why.contains("SVC_SUMMARIZATION_DISABLE_THINKING"), "{why}");
        } else {
            assert_eq!(of_file["effective_content"]["text"], "About ovens.");
        }
    }
    // What was only thought is paid for too.
    let usage = app.client.read_llm_usage(LlmUsageQuery::default()).await.unwrap().usage;
    let of_batches: Vec<_> = usage.iter().filter(|used| used.batched).collect();
    assert_eq!(of_batches.len(), 1, "{usage:?}");
    assert_eq!((of_batches[0].calls, of_batches[0].failed_calls), (4, 3));
    assert_eq!((of_batches[0].prompt_tokens, of_batches[0].completion_tokens), (280, 28));
    // Whoever has the task retried has the model asked again.
    provider.will_say(|_| Says::Text("About volcanoes.".into()));
    let failed = tasks(&app, TaskStatus::Failed).await;
    assert_eq!((failed.len(), failed[0].retry_count), (1, 0), "{failed:?}");
    app.client.retry_task(TaskPath { id: failed[0].id }).await.unwrap();
    let file = failed[0].root_id;
    assert_eq!(finished(&app, &provider, "openai", &[], file).await, Settled::Settled);
    until("the summary", async || {
        once(&app, &provider, "openai", &[]).await;
        provider.end(Ends::Completed);
        (effective(&app, file).await["text"] == "About volcanoes.").then_some(())
    })
    .await;
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn what_no_batch_answers_is_asked_of_the_endpoint_in_the_last_attempt() {
    let (app, provider, llm) = (app().await, BatchProvider::start().await, Llm::start().await);
    provider.will_say(|_| Says::Expires);
    llm.will([Reply::said("The endpoint describes ovens.")]);
    let run = async |endpoint: Option<&str>| {
        let mut command = command(&app, &[&run_arguments(&provider, "openai")[..], &["--once"]].concat());
        if let Some(endpoint) = endpoint {
            command.env("SVC_LLM_BASE_URL", endpoint).env("SVC_LLM_MODEL", "asked-model");
        }
        let output = ended(command).await;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    for endpoint in [Some(llm.base.as_str()), None] {
        let file = upload(&app, &section("", if endpoint.is_some() { "oven" } else { "volcano" }, 80), json!({})).await;
        waiting(&app, 1).await;
        sqlx::query("UPDATE task_queue SET max_retries = 1 WHERE NOT final").execute(&app.pool).await.unwrap();
        let before = provider.batches().len();
        for batches in 1..=2 {
            run(endpoint).await;
            assert_eq!(provider.batches().len(), before + batches);
            provider.end(Ends::Expired);
            run(endpoint).await;
            sqlx::query("UPDATE task_queue SET retry_after = now() WHERE retry_after > now()")
                .execute(&app.pool)
                .await
                .unwrap();
        }
        assert_eq!(app.settled(file).await.settled, Settled::Settled);
        let of_file = evidence(&app, file).await;
        match endpoint {
            Some(_) => {
                assert_eq!(of_file["effective_content"]["text"], "The endpoint describes ovens.");
                let took = &of_file["llm.summarize"];
                assert_eq!((&took["calls"], &took["batched_calls"]), (&json!(1), &json!(0)));
            }
            None => assert!(of_file["rollup"]["not_summarized"]["reason"].as_str().unwrap().contains("expired")),
        }
    }
    assert_eq!(llm.asked().len(), 1, "only the last attempt calls");
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn the_last_attempt_asks_the_endpoint_of_every_part_of_a_long_text() {
    let settings = [
        ("SVC_TASK_BADGES", "{\"summarize:llm\": \"batch\"}"),
        ("SVC_WORKER_BADGE", "here"),
        ("SVC_LLM_CONTEXT_TOKENS", "2048"),
    ];
    let app = TestApp::with(Wish { settings: &settings, ..Wish::default() }).await;
    let (provider, llm) = (BatchProvider::start().await, Llm::start().await);
    provider.will_say(|_| Says::Expires);
    llm.will_say(|_| Reply::said("The endpoint describes ovens."));
    let file = upload(&app, &section("", "oven", 400), json!({"rollup": {"max_children": 1000}})).await;
    waiting(&app, 1).await;
    sqlx::query("UPDATE task_queue SET max_retries = 0 WHERE NOT final").execute(&app.pool).await.unwrap();
    for _ in 0..2 {
        let mut command = command(&app, &[&run_arguments(&provider, "openai")[..], &["--once"]].concat());
        command.env("SVC_LLM_CONTEXT_TOKENS", "2048");
        command.env("SVC_LLM_BASE_URL", &llm.base).env("SVC_LLM_MODEL", "asked-model");
        let output = ended(command).await;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        provider.end(Ends::Expired);
    }
    let made = provider.batches();
    assert_eq!(made.len(), 1, "no part waits for another batch");
    assert!(made[0].requests.len() > 4 && llm.asked().len() > made[0].requests.len(), "{}", llm.asked().len());
    assert_eq!(app.settled(file).await.settled, Settled::Settled);
    let of_file = evidence(&app, file).await;
    assert_eq!(of_file["effective_content"]["text"], "The endpoint describes ovens.");
    assert_eq!(of_file["llm.summarize"]["batched_calls"], 0);
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

/// Kills the worker at each step of a batch's way, before and after the provider has done what it was asked, and has another go on.
#[tokio::test]
async fn a_worker_that_is_killed_between_any_two_steps_loses_no_task_and_applies_none_twice() {
    let app = app().await;
    let steps = [
        ("openai", "POST /files"),
        ("openai", "POST /batches"),
        ("openai", "GET /batches/"),
        ("openai", "GET /files/"),
        ("anthropic", "POST /messages/batches"),
        ("anthropic", "GET /messages/batches/msg"),
    ];
    let fates = [Fate::HeldBefore, Fate::Held];
    for (at, ((name, step), fate)) in
        steps.into_iter().flat_map(|step| fates.each_ref().map(|fate| (step, fate))).enumerate()
    {
        let provider = BatchProvider::start().await;
        provider.ends_at_once();
        let file = upload(&app, &section("", "oven", 80 + at), json!({})).await;
        waiting(&app, 1).await;
        let hurt = Arc::new(AtomicUsize::new(0));
        let (counted, of_step) = (hurt.clone(), fate.clone());
        provider.will(move |call| match call.starts_with(step) && counted.fetch_add(1, Ordering::Relaxed) == 0 {
            true => of_step.clone(),
            false => Fate::Answered,
        });
        let victim = going_on(&app, &provider, name);
        provider.called(step).await;
        victim.kill();
        let other = going_on(&app, &provider, name);
        assert_eq!(app.settled(file).await.settled, Settled::Settled, "{name} {step} {fate:?}");
        assert_eq!(effective(&app, file).await["method"], "llm_summary", "{name} {step} {fate:?}");
        // In doubt a batch is paid twice where the provider cannot be asked for it, and only there.
        let most = if name == "anthropic" && step.starts_with("POST") { 2 } else { 1 };
        let made = provider.batches().len();
        assert!((1..=most).contains(&made), "{name} {step} {fate:?}: {made} batches");
        other.kill();
        invariants::check(&app.pool).await;
    }
    // What those who were killed had written goes with them. All tests share the folder, and nobody's files have names there.
    let spool = support::server::work_dir().join("data/spool");
    until("a disk without requests", async || std::fs::read_dir(&spool).unwrap().next().is_none().then_some(())).await;
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

/// A worker that is killed after it brought a file of requests and before it had a batch made of it leaves no copy of the texts behind.
#[tokio::test]
async fn a_file_of_requests_of_which_no_batch_was_made_is_deleted() {
    let (app, provider) = (app().await, BatchProvider::start().await);
    let file = upload(&app, &section("", "oven", 80), json!({})).await;
    waiting(&app, 1).await;
    provider.has_files(&["of somebody else.jsonl"]);
    provider.will(|call| if call == "POST /batches" { Fate::HeldBefore } else { Fate::Answered });
    let victim = going_on(&app, &provider, "openai");
    provider.called("POST /batches").await;
    victim.kill();
    let left = provider.files().pop().unwrap();
    assert!(left.name.starts_with("svc-") && provider.batches().is_empty(), "{left:?}");
    // The list has several pages, and the first try to read it fails.
    provider.has_files(&["svc-of-another-service.jsonl", "b.jsonl", "c.jsonl"]);
    provider.will(|call| if call == "GET /files" { Fate::Refused(503) } else { Fate::Answered });
    let arguments = [&run_arguments(&provider, "openai")[..], &["--once"]].concat();
    let refused = ended(command(&app, &arguments)).await;
    assert!(!refused.status.success());
    assert_eq!(provider.files().len(), 5, "no other file is brought before the first is found");
    provider.will(|_| Fate::Answered);
    once(&app, &provider, "openai", &[]).await;
    assert_eq!(provider.batches().len(), 1);
    let kept = provider.files();
    assert!(kept.iter().all(|file| file.id != left.id), "{kept:?}");
    let names: Vec<&str> = kept.iter().map(|file| file.name.as_str()).collect();
    // The name is that of the batch, whichever try brought the file.
    assert_eq!(
        names,
        ["of somebody else.jsonl", "svc-of-another-service.jsonl", "b.jsonl", "c.jsonl", left.name.as_str()]
    );
    // A batch that was made although its answer was lost keeps its file, and none is made again.
    let other = upload(&app, &section("", "volcano", 80), json!({})).await;
    waiting(&app, 1).await;
    provider.will(|call| if call == "POST /batches" { Fate::AnswerLost } else { Fate::Answered });
    let lost = ended(command(&app, &arguments)).await;
    assert!(!lost.status.success());
    provider.will(|_| Fate::Answered);
    once(&app, &provider, "openai", &[]).await;
    assert_eq!((provider.batches().len(), provider.files().len()), (2, 6));
    provider.end(Ends::Completed);
    for file in [file, other] {
        assert_eq!(finished(&app, &provider, "openai", &[], file).await, Settled::Settled);
    }
    // A server that lists no files is asked in vain, and gets the batch.
    let third = upload(&app, &section("", "comet", 80), json!({})).await;
    waiting(&app, 1).await;
    provider.will(|call| match call {
        "POST /batches" => Fate::Refused(503),
        "GET /files" => Fate::Refused(404),
        _ => Fate::Answered,
    });
    assert!(!ended(command(&app, &arguments)).await.status.success());
    provider.will(|call| if call == "GET /files" { Fate::Refused(404) } else { Fate::Answered });
    once(&app, &provider, "openai", &[]).await;
    provider.end(Ends::Completed);
    assert_eq!(finished(&app, &provider, "openai", &[], third).await, Settled::Settled);
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn a_file_of_requests_that_its_server_does_not_delete_holds_no_batch_up() {
    let (app, provider) = (app().await, BatchProvider::start().await);
    let file = upload(&app, &section("", "oven", 80), json!({})).await;
    waiting(&app, 1).await;
    provider.will(|call| if call == "POST /batches" { Fate::Refused(503) } else { Fate::Answered });
    let arguments = [&run_arguments(&provider, "openai")[..], &["--once"]].concat();
    assert!(!ended(command(&app, &arguments)).await.status.success());
    assert_eq!((provider.files().len(), provider.batches().len()), (1, 0));
    provider.will(|call| if call.starts_with("DELETE /files") { Fate::Refused(405) } else { Fate::Answered });
    once(&app, &provider, "openai", &[]).await;
    assert_eq!((provider.files().len(), provider.batches().len()), (2, 1));
    assert_eq!(finished(&app, &provider, "openai", &[], file).await, Settled::Settled);
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

/// Random results, cancels, expiries, edits and kills: each task ends once, and every region is free at the end.
#[tokio::test]
async fn whatever_comes_in_whatever_order_each_task_ends_once() {
    let seed: u64 = rand::random();
    println!("seed {seed}");
    let mut random = SmallRng::seed_from_u64(seed);
    let (app, provider) = (app().await, BatchProvider::start().await);
    let name = if random.random() { "openai" } else { "anthropic" };
    let mut says = SmallRng::seed_from_u64(seed ^ 1);
    provider.will_say(move |asked| match says.random_range(0..10) {
        0 => Says::Expires,
        1 => Says::Nothing,
        2 => Says::Error(500, "api_error", "broken"),
        3 => Says::Cut("A whole sentence. And".into()),
        _ => Says::Text(format!("A summary for {}.", asked.custom_id)),
    });
    let mut lines = SmallRng::seed_from_u64(seed ^ 2);
    provider.spoils(move |results| {
        if !results.is_empty() && lines.random_bool(0.5) {
            let again = results[lines.random_range(0..results.len())].clone();
            results.push(again);
        }
    });
    let mut fates = SmallRng::seed_from_u64(seed ^ 3);
    provider.will(move |_| match fates.random_range(0..12) {
        0 => Fate::Lost,
        1 => Fate::AnswerLost,
        2 => Fate::Refused(503),
        _ => Fate::Answered,
    });
    let mut files = Vec::new();
    for n in 0..6 {
        files.push(upload(&app, &section(&format!("File {n}"), "oven", 80 + n), json!({})).await);
    }
    waiting(&app, files.len()).await;
    let mut gone = Vec::new();
    let mut worker = Some(going_on(&app, &provider, name));
    for _ in 0..15 {
        match random.random_range(0..8) {
            0..3 => provider.end(Ends::Completed),
            3 => provider.end(Ends::Expired),
            4 => {
                if let Some(worker) = worker.take() {
                    worker.kill();
                }
            }
            5 if !files.is_empty() && gone.len() < 3 => {
                let at = random.random_range(0..files.len());
                match random.random_range(0..3) {
                    0 => {
                        let file = files.swap_remove(at);
                        app.client.cancel_ingest(DocumentPath { id: file }).await.unwrap();
                        gone.push(file);
                    }
                    1 => {
                        let file = files.swap_remove(at);
                        // It may be held for a moment.
                        until("the delete", async || app.client.delete_document(DocumentPath { id: file }).await.ok())
                            .await;
                    }
                    _ => {
                        let mut part = files[at];
                        while let Some(child) = children(&app, part).await.first() {
                            part = child.id;
                        }
                        let content = format!("The glacier moved {} times.", random.random::<u32>());
                        let change = serde_json::from_value(json!({"content": content})).unwrap();
                        // What is held at this moment is not edited.
                        let path = DocumentPath { id: part };
                        let _ = app.client.update_document(path, WaitQuery::default(), Json(change)).await;
                    }
                }
            }
            6 => {
                ended(command(&app, &["cancel", "--all"])).await;
            }
            _ => {}
        }
        if worker.is_none() {
            worker = Some(going_on(&app, &provider, name));
        }
        sqlx::query("UPDATE task_queue SET retry_after = now() WHERE retry_after > now()")
            .execute(&app.pool)
            .await
            .unwrap();
        invariants::check(&app.pool).await;
        tokio::task::yield_now().await;
        until("a step of the worker", {
            let before = provider.calls().len();
            let provider = provider.clone();
            let mut tries = 0;
            async move || {
                tries += 1;
                (provider.calls().len() > before || tries > 20).then_some(())
            }
        })
        .await;
    }
    // From here on all goes well.
    provider.will(|_| Fate::Answered);
    provider.will_say(|asked| Says::Text(format!("A summary for {}.", asked.custom_id)));
    provider.ends_at_once();
    until("the end", async || {
        provider.end(Ends::Completed);
        sqlx::query("UPDATE task_queue SET retry_after = now() WHERE retry_after > now()")
            .execute(&app.pool)
            .await
            .unwrap();
        let open: i64 =
            sqlx::query_scalar("SELECT count(*) FROM task_queue WHERE NOT final").fetch_one(&app.pool).await.unwrap();
        (open == 0).then_some(())
    })
    .await;
    // The queue may be empty for a moment before a file's summary is queued.
    for file in files {
        assert_eq!(app.settled(file).await.settled, Settled::Settled, "seed {seed}");
    }
    drop(worker);
    let ends: Vec<(i64, i64)> = sqlx::query_as(
        "SELECT task_id, count(*) FROM task_attempts WHERE task_type = 'summarize:llm' AND outcome IN ('completed', 'skipped') GROUP BY 1 HAVING count(*) > 1",
    )
    .fetch_all(&app.pool)
    .await
    .unwrap();
    assert!(ends.is_empty(), "seed {seed}: {ends:?}");
    invariants::check_drained(&app.pool).await;
    app.end().await;
}
