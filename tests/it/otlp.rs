//! Traces and metrics, as a collector of OpenTelemetry gets them from real processes.
use crate::{
    crash::{Process, serve_command, worker_command},
    queue::{node, task},
    support::{
        PATIENCE, TOKEN, TestApp, Wish,
        collector::{Collector, Mood, Span},
        http,
        llm::{Llm, Reply},
        repository, sample,
        searches::ask,
        until,
    },
};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, BTreeSet},
    io::{BufRead, BufReader},
    process::{Command, Stdio},
};
use svc_actors::WriteMode;
use svc_client::{
    Client, Json, Remote,
    wire::{DocumentPath, Settled, SynthesizeSearch},
};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const CALLER: &str = "00f067aa0ba902b7";
/// Stands in the file's text, in its name and in what is searched for.
const WORD: &str = "zeppelinheron";
const KEY: &str = "the-key-of-the-collector";

/// A service in a process of its own, and a client of it.
struct Served {
    process: Process,
    base: String,
    client: Client<Remote>,
}

/// Starts a service that sends to this collector.
async fn serve(app: &TestApp, endpoint: &str, change: impl FnOnce(&mut Command)) -> Served {
    let mut command = serve_command(app);
    command
        .env("SVC_OTLP_ENDPOINT", endpoint)
        .env("SVC_OTLP_HEADERS", format!("x-key={KEY}"))
        .env("SVC_LOG_LEVEL", "warn");
    command.env("SVC_FALLBACK_LLM_URL", "").stdout(Stdio::piped());
    change(&mut command);
    let mut process = Process(command.spawn().unwrap());
    let lines = BufReader::new(process.0.stdout.take().unwrap()).lines().map_while(Result::ok);
    let address = tokio::task::spawn_blocking(move || {
        let mut lines = lines;
        lines.find_map(|line| Some(line.split_once(" serves ")?.1.split_whitespace().next()?.to_owned()))
    });
    let address = tokio::time::timeout(PATIENCE, address).await.unwrap().unwrap().expect("it serves");
    let base = address.trim_end_matches('/').to_owned();
    let client = Client(Remote::new(&base, TOKEN, http()));
    Served { process, base, client }
}

/// Asks a process to stop, and waits for its end.
async fn stop(mut process: Process) {
    kill_process(Pid::from_child(&process.0), Signal::TERM).unwrap();
    let ended = tokio::task::spawn_blocking(move || process.0.wait()).await.unwrap().unwrap();
    assert!(ended.success(), "{ended}");
}

/// Uploads a file as a caller who is in a trace.
async fn upload(served: &Served, name: &str, text: &str, traceparent: Option<&str>) -> i64 {
    let part = reqwest::multipart::Part::text(text.to_owned()).file_name(name.to_owned());
    let form = reqwest::multipart::Form::new().part("file", part);
    let request = http().post(format!("{}/ingest/file", served.base)).bearer_auth(TOKEN).multipart(form);
    let request = traceparent.into_iter().fold(request, |request, value| request.header("traceparent", value));
    let answer = request.send().await.unwrap();
    assert_eq!(answer.status(), 202);
    answer.json::<Value>().await.unwrap()["document_id"].as_i64().unwrap()
}

async fn settled(served: &Served, id: i64) {
    let at_rest =
        async || Some(served.client.read_frontier(DocumentPath { id }).await.ok()?).filter(|now| now.is_at_rest());
    assert_eq!(until("the file to settle", at_rest).await.settled, Settled::Settled);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_trace_leads_from_the_callers_request_to_the_last_task_and_its_statements() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let collector = Collector::start(Mood::Takes).await;
    let served = serve(&app, &collector.base, |_| ()).await;
    let mut command = worker_command(&app, 1);
    command.env("SVC_OTLP_ENDPOINT", &collector.base);
    let worker = Process(command.spawn().unwrap());
    let text =
        format!("# Of {WORD}s\n\nA {WORD} flies.\n\n# More\n\n{}", format!("The {WORD} lands again. ").repeat(200));
    let traceparent = format!("00-{TRACE}-{CALLER}-01");
    let id = upload(&served, &format!("{WORD}.md"), &text, Some(&traceparent)).await;
    settled(&served, id).await;
    // A trace that its caller does not want is not sent, and neither are its tasks.
    let unwanted =
        upload(&served, "unwanted.md", "# Unwanted\n\nNobody follows this.", Some(&traceparent.replace("-01", "-00")))
            .await;
    settled(&served, unwanted).await;
    // What creates a document shares its transaction with other calls, but not its trace.
    let created = format!("c{}", &TRACE[1..]);
    let answer = http()
        .post(format!("{}/documents?wait=true", served.base))
        .bearer_auth(TOKEN)
        .header("traceparent", format!("00-{created}-{CALLER}-01"))
        .json(&json!({"title": "Created", "content": "By a call of its own."}))
        .send();
    assert_eq!(answer.await.unwrap().status(), 201);
    let search = |headers: &[(&str, &str)]| {
        let request = http().get(format!("{}/search/?q={WORD}", served.base)).bearer_auth(TOKEN);
        headers.iter().fold(request, |request, (name, value)| request.header(*name, *value)).send()
    };
    assert_eq!(search(&[]).await.unwrap().status(), 200);
    assert_eq!(search(&[("traceparent", "nonsense")]).await.unwrap().status(), 200);
    until("the metrics of the service", async || collector.metric("svc", "svc_requests_total", "\"upload_file\""))
        .await;
    until("the metrics of the worker", async || collector.metric("svc-worker", "svc_tasks_ended_total", "\"probe\""))
        .await;
    until("a gauge of the database", async || {
        collector.metric("svc", "svc_workers", "").filter(|workers| *workers == 1.0)
    })
    .await;
    let measured = collector.metric("svc", "svc_request_seconds", "\"upload_file\"");
    assert_eq!(measured, Some(2.0), "how often a duration was measured");
    stop(served.process).await;
    stop(worker).await;

    let spans = collector.spans();
    let ours: Vec<&Span> = spans.iter().filter(|span| span.trace == TRACE).collect();
    let by_id: BTreeMap<&str, &Span> = ours.iter().map(|span| (span.id.as_str(), *span)).collect();
    assert_eq!(by_id.len(), ours.len(), "no span is sent twice");
    let request = ours.iter().find(|span| span.name == "upload_file").expect("the request");
    assert_eq!((request.parent.as_str(), request.service.as_str()), (CALLER, "svc"));
    assert_eq!(
        (request.attributes["http.route"].as_str(), request.attributes["http.response.status_code"].as_str()),
        ("/ingest/file", "202")
    );
    let tasks: Vec<&&Span> = ours.iter().filter(|span| span.attributes.contains_key("task.id")).collect();
    let types: BTreeSet<&str> = tasks.iter().map(|task| task.attributes["task.type"].as_str()).collect();
    for expected in ["probe", "extract:text", "structure:declared", "embed", "summarize"] {
        assert!(types.contains(expected), "{expected} is not in {types:?}");
    }
    let of_file: i64 = sqlx::query_scalar("SELECT count(*) FROM task_queue WHERE root_id = $1")
        .bind(id)
        .fetch_one(&app.pool)
        .await
        .unwrap();
    assert_eq!(tasks.len() as i64, of_file, "each task of the file, once");
    // The queue was what led from the one process to the other.
    for task in &tasks {
        assert_eq!(task.service, "svc-worker", "{task:?}");
        // There is no language model here.
        let is_asked = task.attributes["task.type"] == "summarize:llm";
        let has_ended = ["completed", "skipped"].contains(&task.attributes["task.outcome"].as_str());
        assert!(has_ended || is_asked, "{task:?}");
    }
    for span in &ours {
        let mut above = *span;
        while above.id != request.id {
            above = by_id.get(above.parent.as_str()).unwrap_or_else(|| panic!("{above:?} hangs in the air"));
        }
        assert!(span.took_nanos >= 0, "{span:?}");
    }
    let statements: Vec<&&Span> = ours.iter().filter(|span| span.attributes.contains_key("db.query.text")).collect();
    for (kind, text) in
        [("upload_file", "INSERT INTO documents"), ("embed", "document_vectors"), ("embed", "SELECT end_task(")]
    {
        let of_kind = || statements.iter().filter(|span| by_id[span.parent.as_str()].name == kind);
        let found = of_kind().any(|span| span.attributes["db.query.text"].contains(text));
        assert!(found, "no {text} in {kind}: {:#?}", of_kind().map(|span| &span.name).collect::<BTreeSet<_>>());
    }

    let of_created: Vec<&Span> = spans.iter().filter(|span| span.trace == created).collect();
    let call = of_created.iter().find(|span| span.name == "create_document").expect("the call");
    for text in ["INSERT INTO documents", "INSERT INTO task_queue"] {
        let stores = |span: &&&Span| span.attributes.get("db.query.text").is_some_and(|query| query.contains(text));
        assert_eq!(of_created.iter().find(stores).expect(text).parent, call.id, "{text}");
    }
    let embeds = |span: &&Span| span.attributes.get("task.type").is_some_and(|of| of == "embed");
    assert!(of_created.iter().copied().any(|span| embeds(&span) && span.service == "svc-worker"));

    // Each search began a trace; polls began none.
    let searches: BTreeSet<&str> = spans
        .iter()
        .filter(|span| span.name == "search" && span.parent.is_empty())
        .map(|span| span.trace.as_str())
        .collect();
    assert_eq!(searches.len(), 2, "{:?}", spans.iter().map(|span| &span.name).collect::<BTreeSet<_>>());
    assert!(!spans.iter().any(|span| span.name == "read_frontier" || span.name == "read_metrics"));
    assert!(!spans.iter().any(|span| span.attributes.get("root.id") == Some(&unwanted.to_string())));
    let tokens: Vec<String> =
        sqlx::query_scalar("SELECT DISTINCT message FROM task_attempts WHERE message IS NOT NULL")
            .fetch_all(&app.pool)
            .await
            .unwrap();
    for span in &spans {
        for hidden in [WORD, TOKEN, KEY, "flies", "postgres://"].into_iter().chain(tokens.iter().map(String::as_str)) {
            assert!(!span.whole.contains(hidden), "{hidden} in {}", span.whole);
        }
    }
    // What ends a task holds its claim token and what it found, neither of which shows.
    let ends = statements.iter().filter(|span| span.name == "SELECT end_task");
    assert!(
        ends.clone().count() > 0
            && ends.clone().all(|span| span.attributes["db.query.text"]
                .starts_with("SELECT end_task(?, ?, ?, E?, ?, E?, E?, ?, E?, E?)")),
        "{:?}",
        ends.collect::<Vec<_>>()
    );
    assert!(collector.headers().iter().any(|headers| headers.get("x-key").is_some_and(|key| key == KEY)));
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_that_is_away_fails_or_never_answers_keeps_nobody_waiting() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let collector = Collector::start(Mood::Silent).await;
    let works = |command: &mut Command| {
        command.env("SVC_INGEST_WORKER_ENABLED", "true");
    };
    let served = serve(&app, &collector.base, works).await;
    let id = upload(&served, "silent.md", "# Silent\n\nNobody answers.", None).await;
    settled(&served, id).await;
    until("the collector is called", async || (collector.calls() > 0).then_some(())).await;
    // It ends although the collector never answers.
    stop(served.process).await;

    collector.set(Mood::Fails);
    let served = serve(&app, &collector.base, works).await;
    let id = upload(&served, "fails.md", "# Fails\n\nIt cannot.", None).await;
    settled(&served, id).await;
    let before = collector.calls();
    until("it is tried again", async || (collector.calls() > before + 1).then_some(())).await;
    // What happens later arrives once the collector is back.
    collector.set(Mood::Takes);
    let traceparent = format!("00-{TRACE}-{CALLER}-01");
    let id = upload(&served, "back.md", "# Back\n\nIt takes again.", Some(&traceparent)).await;
    settled(&served, id).await;
    until("the trace", async || collector.spans().into_iter().find(|span| span.trace == TRACE && span.name == "embed"))
        .await;
    stop(served.process).await;

    // Nothing listens at this port.
    let served = serve(&app, "http://127.0.0.1:1", works).await;
    let id = upload(&served, "away.md", "# Away\n\nNobody is there.", None).await;
    settled(&served, id).await;
    stop(served.process).await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_dashboard_asks_for_metrics_that_there_are() {
    let llm = Llm::start().await;
    llm.will([Reply::said(r#"{"answered": false, "sentences": []}"#)]);
    let settings =
        [("SVC_LLM_BASE_URL", llm.base.as_str()), ("SVC_LLM_MODEL", "asked-model"), ("SVC_WORKER_BADGE", "cpu")];
    let app = TestApp::with(Wish { settings: &settings, ..Wish::default() }).await;
    app.ingest(&sample("handbook.md")).await;
    let asked = app.client.synthesize(Json(SynthesizeSearch::new("What does the handbook say of holidays?"))).await;
    assert!(asked.is_ok(), "{asked:?}");
    ask(&app.client, "hybrid", &json!({"query": "holidays"})).await.unwrap();
    // A task that nobody serves is blocked.
    let root = node(&app, None).await;
    task(&app, &root, WriteMode::Itself, 0, Some("gpu")).await;
    app.sampled().await;
    let printed = app.client.read_metrics().await.unwrap();
    let there: BTreeSet<&str> = printed
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split(['{', ' ']).next())
        .collect();
    let dashboard: Value =
        serde_json::from_str(&std::fs::read_to_string(repository().join("docs/grafana.json")).unwrap()).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let queries = panels
        .iter()
        .flat_map(|panel| panel["targets"].as_array().unwrap())
        .map(|target| target["expr"].as_str().unwrap());
    let mut named = BTreeSet::new();
    for query in queries {
        let words = query.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        let before = named.len();
        named.extend(words.filter(|word| word.starts_with("svc_")).map(str::to_owned));
        assert!(named.len() > before || query.contains("svc_tasks"), "{query} asks for nothing of ours");
    }
    // Those of the bulk feed have a test where there is one.
    named.retain(|name| !name.starts_with("svc_feed_"));
    let missing: Vec<&String> = named.iter().filter(|name| !there.contains(name.as_str())).collect();
    assert!(missing.is_empty() && named.len() >= 15, "{missing:?} of {named:?}: {printed}");
    // And nothing is left out of it but what streams, batches, types without a handler and standbys tell.
    let described = printed
        .lines()
        .filter(|line| !line.contains("svc_feed_"))
        .filter_map(|line| line.strip_prefix("# HELP ")?.split(' ').next());
    let shown = |name: &str| named.contains(name) || named.contains(&format!("{name}_bucket"));
    let unshown: Vec<&str> = described.filter(|name| !shown(name)).collect();
    let known = [
        "svc_llm_batches_total",
        "svc_reads_total",
        "svc_spool_copies_total",
        "svc_standby_behind_seconds",
        "svc_standby_up",
        "svc_streams",
        "svc_tasks_without_handler",
    ];
    assert!(unshown.iter().all(|name| known.contains(name)), "{unshown:?}");
    sqlx::query("DELETE FROM task_queue WHERE NOT final").execute(&app.pool).await.unwrap();
    app.end().await;
}
