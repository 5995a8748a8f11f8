//! Summaries by the batch interfaces of providers: the real program against a provider that plays both of them, and misbehaves.
mod doubts;
mod facts;
mod faults;
mod groups;
mod keeper;
mod limits;
mod operators;
mod parking;
mod reopened;
mod together;
mod unanswered;

use crate::{
    crash::{Process, url},
    principals::{grant, someone},
    summarize::{children, evidence, section, upload},
    support::{
        self, TestApp, Wish,
        batches::{BatchProvider, Ends, Fate, Says},
        invariants, until,
    },
};
use serde_json::{Value, json};
use std::{
    path::Path,
    process::{Command, Output, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};
use svc::{llm_batches::ProviderName, store::advisory::AdvisoryLock};
use svc_client::{
    Json,
    wire::{
        BlockedBy, DocumentPath, GrantRight, LlmBatchOutcome, LlmBatchResponse, LlmBatchState, LlmUsageQuery,
        PageQuery, Settled, TaskQuery, TaskResponse, TaskStatus, WaitQuery,
    },
};

/// What makes the service's own worker leave summaries to the batch worker.
const BATCHED: [(&str, &str); 2] =
    [("SVC_TASK_BADGES", "{\"summarize:llm\": \"batch\"}"), ("SVC_WORKER_BADGE", "here")];

/// A service whose own worker leaves summaries to the batch worker.
async fn app() -> TestApp {
    TestApp::with(Wish { settings: &BATCHED, ..Wish::default() }).await
}

/// The same service, with a model that reads this many tokens at once.
async fn app_of_context(tokens: &str) -> TestApp {
    let settings = [BATCHED.as_slice(), &[("SVC_LLM_CONTEXT_TOKENS", tokens)]].concat();
    TestApp::with(Wish { settings: &settings, ..Wish::default() }).await
}

fn command(app: &TestApp, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_svc-batch-worker"));
    command
        .args(arguments)
        .args(["--log-level", "error", "--config", "/dev/null"])
        .env("SVC_DATABASE_URL", url(&app.options))
        .env("SVC_DATA_DIR", support::server::work_dir().join("data"))
        .envs(support::s3::of_all_tests(&app.options))
        .env("SVC_BATCH_OPENAI_KEY", "sk-of-the-test")
        .env("SVC_BATCH_ANTHROPIC_KEY", "sk-of-the-test")
        .env("SVC_WORKER_HEARTBEAT_SECONDS", "0.3")
        .env("SVC_WORKER_LEASE_SECONDS", "1")
        .env("SVC_WORKER_REAP_SECONDS", "0.3")
        .env("SVC_INGEST_WORKER_POLL_SECONDS", "0.05")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

fn run_arguments<'a>(provider: &'a BatchProvider, name: &'a str) -> Vec<&'a str> {
    vec![
        "run",
        "--provider",
        name,
        "--llm-url",
        &provider.base,
        "--model",
        "batch-model",
        "--badge",
        "batch",
        "--wait-seconds",
        "0",
        "--poll-seconds",
        "0.1",
    ]
}

async fn ended(mut command: Command) -> Output {
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

/// One pass of the worker, which must go well.
async fn once(app: &TestApp, provider: &BatchProvider, name: &str, more: &[&str]) {
    let arguments = [run_arguments(provider, name), vec!["--once"], more.to_vec()].concat();
    let output = ended(command(app, &arguments)).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Has the worker go on until a file is no longer in flight, and returns what it is then. Its containers are summarised one after the other.
async fn finished(app: &TestApp, provider: &BatchProvider, name: &str, more: &[&str], file: i64) -> Settled {
    until("the file", async || {
        once(app, provider, name, more).await;
        provider.end(Ends::Completed);
        let state = app.client.read_frontier(DocumentPath { id: file }).await.unwrap().settled;
        (state != Settled::InFlight).then_some(state)
    })
    .await
}

/// A worker that goes on until it is dropped.
fn going_on(app: &TestApp, provider: &BatchProvider, name: &str) -> Process {
    let mut command = command(app, &run_arguments(provider, name));
    Process(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
}

async fn batches(app: &TestApp) -> Vec<LlmBatchResponse> {
    app.client.list_llm_batches(PageQuery::default()).await.unwrap().batches
}

async fn tasks(app: &TestApp, status: TaskStatus) -> Vec<TaskResponse> {
    let query = TaskQuery { task_type: Some("summarize:llm".into()), status: Some(status), ..TaskQuery::default() };
    app.client.list_tasks(query).await.unwrap().tasks
}

/// Waits until so many summaries wait for the batch worker.
async fn waiting(app: &TestApp, count: usize) {
    until("the summaries", async || {
        let pending = tasks(app, TaskStatus::Pending).await;
        (pending.iter().filter(|task| task.status == TaskStatus::Pending).count() == count).then_some(())
    })
    .await;
}

async fn effective(app: &TestApp, id: i64) -> Value {
    evidence(app, id).await["effective_content"].clone()
}

#[tokio::test]
async fn a_batch_is_submitted_answered_and_applied_at_both_providers() {
    for name in ["openai", "anthropic"] {
        let (app, provider) = (app().await, BatchProvider::start().await);
        let text = section("Ovens", "oven", 80) + &section("Volcanoes", "volcano", 80);
        let file = upload(&app, &text, json!({})).await;
        waiting(&app, 2).await;
        let kept = tempfile::tempdir().unwrap();
        let store = ["--store", kept.path().to_str().unwrap()];
        once(&app, &provider, name, &store).await;

        // What was sent is what the provider asks for.
        let submitted = provider.batches();
        assert_eq!(submitted.len(), 1, "one batch for both");
        let parked = tasks(&app, TaskStatus::Batched).await;
        let ids: Vec<String> = parked.iter().map(|task| format!("task-{}", task.id)).collect();
        assert_eq!(submitted[0].requests.iter().map(|asked| asked.custom_id.clone()).collect::<Vec<_>>(), ids);
        for asked in &submitted[0].requests {
            assert_eq!(asked.model, "batch-model");
            assert!(
                asked.instructions.contains("never an instruction to you") && asked.message.contains("of number 79")
            );
        }
        let heads = provider.heads();
        match name {
            "openai" => assert!(heads.iter().all(|head| head["authorization"] == "Bearer sk-of-the-test")),
            _ => assert!(heads.iter().all(|head| head["x-api-key"] == "sk-of-the-test")),
        }
        // Who asks why the task does not run is told where it waits.
        let shown = batches(&app).await;
        assert_eq!(shown.len(), 1);
        let batch = &shown[0];
        assert_eq!((batch.state, batch.outcome, batch.tasks, batch.requests), (LlmBatchState::Submitted, None, 2, 2));
        assert_eq!(batch.provider_id.as_deref(), Some(submitted[0].id.as_str()));
        assert!((submitted[0].bytes as i64 - batch.bytes).abs() < 20, "{} {}", submitted[0].bytes, batch.bytes);
        assert!(batch.expires_at.is_some_and(|at| at > chrono::Utc::now()) && !batch.stalled);
        for task in &parked {
            let blockage = task.blocked_by.as_ref().unwrap();
            let parked = blockage.batch.as_ref().unwrap();
            assert_eq!(
                (blockage.reason, parked.id, parked.provider.as_str()),
                (BlockedBy::BatchParked, batch.id, name)
            );
            assert!((0.0..60.0).contains(&parked.seconds));
        }
        let held: i64 = sqlx::query_scalar("SELECT count(*) FROM task_reservation").fetch_one(&app.pool).await.unwrap();
        assert_eq!(held, 2, "parked tasks hold their regions");
        invariants::check(&app.pool).await;

        // Nothing happens before the provider is done.
        once(&app, &provider, name, &store).await;
        assert_eq!((provider.batches().len(), tasks(&app, TaskStatus::Batched).await.len()), (1, 2));
        provider.end(Ends::Completed);
        once(&app, &provider, name, &store).await;
        assert_eq!(finished(&app, &provider, name, &store, file).await, Settled::Settled);
        for section in children(&app, file).await {
            let of_section = evidence(&app, section.id).await;
            let effective = &of_section["effective_content"];
            assert_eq!(effective["method"], "llm_summary");
            assert!(ids.iter().any(|id| effective["text"] == format!("A summary for {id}.")), "{effective}");
            let took = &of_section["llm.summarize"];
            assert_eq!(
                (&took["batched_calls"], &took["calls"], &took["model"]),
                (&json!(1), &json!(1), &json!("batched-model"))
            );
            let outcomes: Vec<&str> = of_section["attempts"]
                .as_array()
                .unwrap()
                .iter()
                .filter(|attempt| attempt["task_type"] == "summarize:llm")
                .filter_map(|attempt| attempt["outcome"].as_str())
                .collect();
            assert_eq!(outcomes, ["batched", "completed"]);
        }
        let batch = &batches(&app).await[0];
        assert_eq!(
            (batch.outcome, batch.answered, batch.failed, batch.tasks),
            (Some(LlmBatchOutcome::Completed), 2, 0, 0)
        );
        assert_eq!(batch.problem, None);
        let usage = app.client.read_llm_usage(LlmUsageQuery::default()).await.unwrap().usage;
        let of_batches = usage.iter().find(|used| used.batched).unwrap();
        assert_eq!((of_batches.calls, of_batches.prompt_tokens, of_batches.completion_tokens), (2, 140, 14));
        // What was sent and what came is kept for its owner alone.
        for part in ["requests", "results"] {
            let mut names = std::fs::read_dir(kept.path()).unwrap().map(|entry| entry.unwrap().path());
            let path = names.find(|path| path.to_str().unwrap().ends_with(&format!(".{part}.jsonl"))).unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap().lines().count(), 2, "{}", path.display());
            let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&path).unwrap().permissions());
            assert_eq!(mode & 0o777, 0o600);
        }
        // It goes with the record of its batch, after SVC_BATCH_KEEP_DAYS.
        for (age, is_kept) in [("167 hours", true), ("2 hours", false)] {
            let older = format!("UPDATE llm_batches SET ended_at = ended_at - interval '{age}'");
            sqlx::query(sqlx::AssertSqlSafe(older)).execute(&app.pool).await.unwrap();
            once(&app, &provider, name, &store).await;
            assert_eq!(std::fs::read_dir(kept.path()).unwrap().count() > 0, is_kept);
            assert_eq!(!batches(&app).await.is_empty(), is_kept);
        }
        invariants::check_drained(&app.pool).await;
        app.end().await;
    }
}

#[tokio::test]
async fn results_in_any_order_twice_unknown_wrong_and_missing_each_do_what_they_must() {
    for name in ["openai", "anthropic"] {
        let (app, provider) = (app().await, BatchProvider::start().await);
        let subjects = ["oven", "volcano", "court", "glacier", "harbour", "comet"];
        let text: String = subjects.iter().map(|subject| section(subject, subject, 80)).collect();
        let file = upload(&app, &text, json!({})).await;
        waiting(&app, 6).await;
        let rounds = Arc::new(AtomicUsize::new(0));
        let counted = rounds.clone();
        provider.will_say(move |asked| {
            let about = |subject: &str| asked.message.contains(&format!("The {subject} of"));
            match counted.load(Ordering::Relaxed) {
                0 if about("oven") => Says::Error(429, "rate_limit_error", "slow down"),
                0 if about("volcano") => Says::Error(400, "invalid_request_error", "this is not allowed"),
                0 if about("court") && asked.message.len() > 4000 => {
                    Says::Error(400, "invalid_request_error", "prompt is too long: 9000 tokens")
                }
                0 if about("glacier") => Says::Nothing,
                0 if about("harbour") => Says::Cut("A whole sentence. And half a".to_owned()),
                _ if about("court") && asked.message.len() > 4000 => panic!("what was too long is not asked again"),
                _ => Says::Text(format!("About {}.", subjects.iter().find(|subject| about(subject)).unwrap())),
            }
        });
        provider.spoils(|lines| {
            let twice = lines[0].clone();
            lines.push(twice);
            lines.push("{\"custom_id\": \"task-999999\", \"response\": {\"status_code\": 200, \"body\": {\"choices\": [{\"message\": {\"content\": \"Foreign.\"}}]}}, \"result\": {\"type\": \"succeeded\", \"message\": {\"content\": [{\"type\": \"text\", \"text\": \"Foreign.\"}]}}}".to_owned());
            lines.push("no JSON at all".to_owned());
        });
        once(&app, &provider, name, &[]).await;
        provider.end(Ends::Completed);
        once(&app, &provider, name, &[]).await;
        let first = batches(&app).await.pop().unwrap();
        assert_eq!((first.answered, first.failed, first.unanswered), (2, 3, 1), "{name}: {first:?}");
        assert_eq!((first.repeated, first.unknown), (1, 2), "{name}: {first:?}");
        rounds.store(1, Ordering::Relaxed);
        // Those that may go well another time are asked again after their pause, those that were answered are not.
        sqlx::query("UPDATE task_queue SET retry_after = now() WHERE retry_after > now()")
            .execute(&app.pool)
            .await
            .unwrap();
        for _ in 0..3 {
            once(&app, &provider, name, &[]).await;
            provider.end(Ends::Completed);
        }
        once(&app, &provider, name, &[]).await;
        assert_eq!(finished(&app, &provider, name, &[], file).await, Settled::Settled);
        for (at, section) in children(&app, file).await.into_iter().enumerate() {
            let of_section = evidence(&app, section.id).await;
            let text = of_section["effective_content"]["text"].as_str().unwrap_or_default();
            match subjects[at] {
                "volcano" => {
                    let why = of_section["rollup"]["not_summarized"]["reason"].as_str().unwrap();
                    assert!(text.is_empty() && why.contains("this is not allowed"), "{of_section}");
                }
                // The end of the answer was cut off, so a shorter one is asked for.
                subject => {
                    // What was too long was summarised in two halves.
                    let times = if subject == "court" { 2 } else { 1 };
                    assert_eq!(text, vec![format!("About {subject}."); times].join("\n\n"), "{name}: {of_section}");
                }
            }
        }
        let asked: Vec<String> =
            provider.batches().iter().flat_map(|batch| batch.requests.clone()).map(|asked| asked.message).collect();
        let times = |subject: &str| {
            asked.iter().filter(|message| message.contains(&format!("The {subject} of number 0 "))).count()
        };
        let times: Vec<usize> = subjects.iter().map(|subject| times(subject)).collect();
        // The file is made of the volcano's text, since that has no summary.
        assert_eq!(times, [2, 2, 2, 2, 2, 1], "asked again is only what had to be: {name}");
        invariants::check_drained(&app.pool).await;
        app.end().await;
    }
}

#[tokio::test]
async fn long_texts_take_several_requests_and_levels_and_batches_keep_their_caps() {
    let settings = [
        ("SVC_TASK_BADGES", "{\"summarize:llm\": \"batch\"}"),
        ("SVC_WORKER_BADGE", "here"),
        ("SVC_LLM_CONTEXT_TOKENS", "2048"),
    ];
    let (app, provider) =
        (TestApp::with(Wish { settings: &settings, ..Wish::default() }).await, BatchProvider::start().await);
    let file = upload(&app, &section("", "oven", 400), json!({"rollup": {"max_children": 1000}})).await;
    waiting(&app, 1).await;
    let mut rounds = Vec::new();
    let run = async |app: &TestApp| {
        let arguments = [run_arguments(&provider, "openai"), vec!["--once"]].concat();
        let output = ended({
            let mut command = command(app, &arguments);
            command.env("SVC_LLM_CONTEXT_TOKENS", "2048");
            command
        })
        .await;
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    for _ in 0..6 {
        run(&app).await;
        let Some(batch) = provider.batches().get(rounds.len()).cloned() else { break };
        rounds.push(batch);
        provider.end(Ends::Completed);
    }
    assert_eq!(app.settled(file).await.settled, Settled::Settled);
    assert!(rounds.len() >= 2, "summaries are summarised in a batch of their own");
    assert!(rounds[0].requests.len() > 4, "all parts are asked at once");
    let task = tasks(&app, TaskStatus::Completed).await[0].id;
    for (at, asked) in rounds[0].requests.iter().enumerate() {
        assert!(asked.custom_id.starts_with(&format!("task-{task}-")), "{}", asked.custom_id);
        assert!(
            asked.custom_id.len() <= 64
                && asked.custom_id.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b))
        );
        assert!(rounds[0].requests[..at].iter().all(|other| other.custom_id != asked.custom_id));
    }
    for n in 0..400 {
        let text = format!("oven of number {n} is");
        let times =
            rounds.iter().flat_map(|batch| &batch.requests).filter(|asked| asked.message.contains(&text)).count();
        assert_eq!(times, 1, "{text}");
    }
    app.client.delete_document(DocumentPath { id: file }).await.unwrap();

    let text: String =
        ["oven", "volcano", "court", "glacier", "comet"].iter().map(|subject| section(subject, subject, 80)).collect();
    let file = upload(&app, &text, json!({})).await;
    waiting(&app, 5).await;
    let before = provider.batches().len();
    once(&app, &provider, "openai", &["--max-requests", "2"]).await;
    let sizes: Vec<usize> = provider.batches()[before..].iter().map(|batch| batch.requests.len()).collect();
    assert_eq!(sizes, [2, 2, 1]);
    let largest = provider.batches()[before..].iter().map(|batch| batch.bytes).max().unwrap();
    let said = ended(command(&app, &["cancel", "--all"])).await;
    assert!(said.status.success());
    once(&app, &provider, "openai", &[]).await;
    sqlx::query("UPDATE task_queue SET retry_after = now() WHERE retry_after > now()")
        .execute(&app.pool)
        .await
        .unwrap();
    let before = provider.batches().len();
    let cap = largest + 10;
    once(&app, &provider, "openai", &["--max-bytes", &cap.to_string()]).await;
    let made = &provider.batches()[before..];
    assert!(
        made.len() >= 3 && made.iter().all(|batch| batch.bytes <= cap),
        "{:?}",
        made.iter().map(|batch| batch.bytes).collect::<Vec<_>>()
    );
    assert_eq!(finished(&app, &provider, "openai", &[], file).await, Settled::Settled);
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn who_cancels_edits_deletes_or_closes_what_a_batch_asks_of_waits_for_no_provider() {
    let (app, provider) = (app().await, BatchProvider::start().await);
    // A cancelled file leaves its batch, and its answer is dropped.
    let file = upload(&app, &section("", "oven", 80), json!({})).await;
    waiting(&app, 1).await;
    once(&app, &provider, "openai", &[]).await;
    app.client.cancel_ingest(DocumentPath { id: file }).await.unwrap();
    assert_eq!(app.settled(file).await.settled, Settled::Failed);
    assert_eq!((batches(&app).await[0].tasks, tasks(&app, TaskStatus::Batched).await.len()), (0, 0));
    provider.end(Ends::Completed);
    once(&app, &provider, "openai", &[]).await;
    let batch = batches(&app).await[0].clone();
    assert_eq!((batch.dropped, batch.answered), (1, 0));
    let kept =
        async || -> i64 { sqlx::query_scalar("SELECT count(*) FROM llm_answers").fetch_one(&app.pool).await.unwrap() };
    assert_eq!(kept().await, 0);

    // A file is deleted while a batch that is still open asks of it: nothing of it is sent.
    let file = upload(&app, &section("", "volcano", 80), json!({})).await;
    waiting(&app, 1).await;
    let arguments = [&run_arguments(&provider, "openai")[..], &["--once"]].concat();
    provider.will(|_| Fate::Refused(503));
    let refused = ended(command(&app, &arguments)).await;
    assert!(!refused.status.success(), "who runs it once hears of it");
    assert_eq!(tasks(&app, TaskStatus::Batched).await.len(), 1);
    app.client.delete_document(DocumentPath { id: file }).await.unwrap();
    provider.will(|_| Fate::Answered);
    let before = provider.batches().len();
    once(&app, &provider, "openai", &[]).await;
    assert_eq!(provider.batches().len(), before, "a batch with nothing in it is not sent");

    // An edit of a part, and a grant that closes a part, have the task ask anew of what is there then.
    let text = section("Ovens", "oven", 30) + &section("Volcanoes", "volcano", 30) + &section("Courts", "court", 35);
    let file = upload(&app, &text, json!({})).await;
    waiting(&app, 1).await;
    once(&app, &provider, "openai", &[]).await;
    let sections = children(&app, file).await;
    let chunk = children(&app, sections[0].id).await[0].id;
    let change = serde_json::from_value(json!({"content": "The glacier moved."})).unwrap();
    app.client.update_document(DocumentPath { id: chunk }, WaitQuery::default(), Json(change)).await.unwrap();
    let p = someone(&app, "p").await;
    grant(&app, &p, sections[1].id, GrantRight::Read).await;
    provider.end(Ends::Completed);
    assert_eq!(finished(&app, &provider, "openai", &[], file).await, Settled::Settled);
    let last = provider.batches().pop().unwrap();
    let asked = &last.requests[0].message;
    assert!(asked.contains("The glacier moved.") && !asked.contains("The volcano"), "{asked}");
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn the_mock_provider_is_a_folder_and_the_command_says_what_is_wrong() {
    let app = app().await;
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().to_str().unwrap();
    let file = upload(&app, &section("", "oven", 80), json!({})).await;
    waiting(&app, 1).await;
    let run = ["run", "--provider", "mock", "--badge", "batch", "--store", store, "--once"];
    assert!(ended(command(&app, &run)).await.status.success());
    assert_eq!(requests(folder.path()), 1);
    let said = async |arguments: &[&str]| {
        let output = ended(command(&app, arguments)).await;
        (output.status.code().unwrap(), String::from_utf8([output.stdout, output.stderr].concat()).unwrap())
    };
    let (code, text) = said(&["status"]).await;
    let shown: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    assert_eq!(
        (code, &shown["state"], &shown["tasks"], &shown["provider"]),
        (0, &json!("submitted"), &json!(1), &json!("mock"))
    );
    assert_eq!(said(&["stalled"]).await, (0, String::new()));
    let (code, text) = said(&["stalled", "--hours", "0"]).await;
    assert!(code == 1 && text.contains("\"stalled\":true"), "{text}");
    sqlx::query("UPDATE llm_batches SET expires_at = now() - interval '1 minute'").execute(&app.pool).await.unwrap();
    assert_eq!(said(&["stalled"]).await.0, 1, "the provider should have given it up");
    let findings = app.client.list_findings().await.unwrap().findings;
    assert!(
        findings.iter().any(|found| found.kind.as_str() == "batch_stalled" && found.about.starts_with("mock batch ")),
        "{findings:?}"
    );
    let (code, text) = said(&["finalize", "--store", store]).await;
    assert!(code == 0 && text.contains("batches answered: 1"), "{text}");
    assert!(ended(command(&app, &run)).await.status.success());
    assert_eq!(app.settled(file).await.settled, Settled::Settled);
    let text = effective(&app, file).await["text"].as_str().unwrap().to_owned();
    assert!(text.starts_with("book.md The oven of number 0 is described here"), "{text}");

    for (arguments, code, says) in [
        (&["run", "--provider", "openai"][..], 2, "--model or SVC_LLM_MODEL"),
        (&["run", "--provider", "nobody"], 2, "openai"),
        (&["finalize", "--provider", "openai", "--store", "x"], 2, "only mock can be told"),
        (&["finalize", "--store", "/nowhere/at/all"], 1, "/nowhere/at/all"),
        (&["cancel", "77"], 1, "77"),
        (&["cancel"], 2, "<ID>"),
    ] {
        let (got, text) = said(arguments).await;
        assert!(got == code && text.contains(says), "{arguments:?}: {got} {text}");
    }
    let _first = Process(
        command(&app, &["run", "--provider", "mock", "--badge", "batch", "--store", store])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap(),
    );
    // A second one that begins at the same moment may be the first to have the right.
    until("the first worker", async || {
        let held = "SELECT EXISTS (SELECT 1 FROM pg_locks l JOIN pg_database b ON b.oid = l.database AND b.datname = current_database()
                     WHERE l.locktype = 'advisory' AND l.granted AND l.classid::bigint << 32 | l.objid::bigint = $1)";
        let right = AdvisoryLock::LlmBatches.key() + ProviderName::Mock as i64;
        let is_held: bool = sqlx::query_scalar(held).bind(right).fetch_one(&app.pool).await.unwrap();
        is_held.then_some(())
    })
    .await;
    let (code, text) = said(&["run", "--provider", "mock", "--badge", "batch", "--store", store, "--once"]).await;
    assert!(code == 1 && text.contains("another svc-batch-worker"), "{code} {text}");
    drop(_first);
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

/// How many requests the batches of a mock provider hold.
fn requests(folder: &Path) -> usize {
    let batches = std::fs::read_dir(folder).unwrap();
    batches
        .map(|batch| std::fs::read_to_string(batch.unwrap().path().join("requests.jsonl")).unwrap().lines().count())
        .sum()
}

#[tokio::test]
async fn what_a_provider_refuses_is_shown_without_the_key_and_ends_nothing() {
    let (app, provider) = (app().await, BatchProvider::start().await);
    let file = upload(&app, &section("", "oven", 80), json!({})).await;
    waiting(&app, 1).await;
    provider.will(|_| Fate::Refused(401));
    let arguments = [&run_arguments(&provider, "openai")[..], &["--once"]].concat();
    let refused = ended(command(&app, &arguments)).await;
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(
        !refused.status.success() && said.contains("SVC_BATCH_OPENAI_KEY") && !said.contains("sk-of-the-test"),
        "{said}"
    );
    let batch = &batches(&app).await[0];
    assert_eq!((batch.state, batch.tasks), (LlmBatchState::Submitting, 1));
    let problem = batch.problem.as_ref().unwrap();
    assert!(problem.contains("SVC_BATCH_OPENAI_KEY") && !problem.contains("sk-of-the-test"), "{problem}");
    // What the provider takes in no case is tried again as a whole, as often as any task.
    provider.will(|call| if call == "POST /batches" { Fate::Refused(400) } else { Fate::Answered });
    once(&app, &provider, "openai", &[]).await;
    once(&app, &provider, "openai", &[]).await;
    assert_eq!(batches(&app).await[0].outcome, Some(LlmBatchOutcome::Failed));
    let failed = tasks(&app, TaskStatus::Failed).await;
    assert_eq!((failed.len(), failed[0].retry_count, failed[0].finished), (1, 1, false));
    provider.will(|_| Fate::Answered);
    provider.ends_at_once();
    sqlx::query("UPDATE task_queue SET retry_after = now() WHERE retry_after > now()")
        .execute(&app.pool)
        .await
        .unwrap();
    let worker = going_on(&app, &provider, "openai");
    assert_eq!(app.settled(file).await.settled, Settled::Settled);
    drop(worker);
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

/// Nobody looked while the batch ended, and its time is long over.
#[tokio::test]
async fn what_a_batch_answered_while_nobody_looked_is_paid_once() {
    let app = app().await;
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().to_str().unwrap();
    let file = upload(&app, &section("", "oven", 80), json!({})).await;
    waiting(&app, 1).await;
    let run = ["run", "--provider", "mock", "--badge", "batch", "--store", store, "--once"];
    assert!(ended(command(&app, &run)).await.status.success());
    assert!(ended(command(&app, &["finalize", "--store", store])).await.status.success());
    sqlx::query("UPDATE llm_batches SET expires_at = now() - interval '3 days'").execute(&app.pool).await.unwrap();
    assert!(ended(command(&app, &run)).await.status.success());
    assert_eq!(app.settled(file).await.settled, Settled::Settled);
    assert!(effective(&app, file).await["text"].as_str().unwrap().contains("oven of number 0"));
    assert_eq!(requests(folder.path()), 1, "it was asked again");
    invariants::check_drained(&app.pool).await;
    app.end().await;
}
