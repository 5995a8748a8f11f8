//! The command line, as a program reads it and as a person does.
mod away;
mod following;
mod killed;
mod listings;
mod pipes;

use crate::support::{
    TOKEN, TestApp, Wish, http, left_out,
    proxy::{Proxy, Weather},
    repository, sample, until,
};
use reqwest::Response;
use serde_json::Value;
use std::{
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
};
use svc_client::wire::TaskTypePath;

/// Runs `svc` against the service of a test.
pub async fn svc(app: &TestApp, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_svc"));
    command
        .args(arguments)
        .env("SVC_URL", &app.base)
        .env("SVC_API_TOKEN", TOKEN)
        .env("SVC_CONFIG", "/dev/null")
        .current_dir(repository());
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

pub fn lines(output: &Output) -> Vec<Value> {
    String::from_utf8_lossy(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_is_ingested_searched_and_shown() {
    let app = TestApp::start().await;
    let folder = repository().join("tests/samples").display().to_string();
    let ingested = svc(&app, &["ingest", &folder]).await;
    assert_eq!(ingested.status.code(), Some(3), "some samples are broken: {}", text(&ingested.stderr));
    let reports = lines(&ingested);
    let of = |name: &str| reports.iter().find(|r| r["file"].as_str().unwrap().ends_with(name)).unwrap();
    assert_eq!(
        (of("handbook.md")["state"].as_str(), of("handbook.md")["nodes_failed"].as_i64()),
        (Some("settled"), Some(0))
    );
    assert_eq!(of("corrupt.pdf")["state"], "failed");
    assert!(of("corrupt.pdf")["reason"].as_str().unwrap().contains("damaged"), "{}", of("corrupt.pdf"));
    assert_eq!(of("empty.txt")["warnings"][0], "extract.empty: no_text");

    let found = svc(&app, &["search", "what to do when the radar gauge fails", "--limit", "3"]).await;
    assert!(found.status.success(), "{}", text(&found.stderr));
    let results = lines(&found);
    assert_eq!(results.len(), 3);
    let text_of = |result: &Value| result["hits"][0]["content"].as_str().unwrap_or_default().to_owned();
    assert!(text_of(&results[0]).contains("radar gauge is silent"), "{}", results[0]);
    let files: std::collections::BTreeSet<i64> = results.iter().filter_map(|result| result["id"].as_i64()).collect();
    assert!(files.len() == 3 && results.iter().all(|result| result["usetype"] == "file"), "{results:?}");
    let id = of("handbook.md")["document_id"].to_string();
    let shown =
        text(&svc(&app, &["--table", "search", "radar gauge", "--under", &id, "--method", "bm25"]).await.stdout);
    assert!(shown.contains("results by bm25") && shown.contains("handbook.md ›"), "{shown}");
    let got = text(&svc(&app, &["--table", "get", &id]).await.stdout);
    assert!(got.contains("ETag \"") && got.contains(&format!("svc tree {id}")), "a file says where its text is: {got}");
    let section: i64 =
        sqlx::query_scalar("SELECT id FROM documents WHERE usetype = 'section' AND content = '' LIMIT 1")
            .fetch_one(&app.pool)
            .await
            .unwrap();
    for (id, has_bytes) in [(&id, true), (&section.to_string(), false)] {
        let got = text(&svc(&app, &["--table", "get", id]).await.stdout);
        assert_eq!(got.contains("svc bytes"), has_bytes, "{got}");
    }
    let tree = text(&svc(&app, &["--table", "tree", &id]).await.stdout);
    assert!(tree.contains("file “handbook.md” [settled]") && tree.contains("    "), "{tree}");
    let made = lines(&svc(&app, &["raptor", &id]).await);
    assert!(made[0]["tree"]["summaries"].as_u64().unwrap() > 0, "{}", made[0]);
    let chosen = ["--table", "portfolio", &id, "--tokens", "300", "--query", "what to do when the radar gauge fails"];
    let chosen = text(&svc(&app, &chosen).await.stdout);
    assert!(chosen.contains("radar gauge is silent") && chosen.contains("of what is possible"), "{chosen}");
    app.sampled().await;
    let status = lines(&svc(&app, &["status"]).await);
    assert_eq!((status[0]["ready"].as_bool(), status[0]["queue"]["pending"].as_i64()), (Some(true), Some(0)));
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_file_of_a_folder_is_counted() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let folder = tempfile::tempdir().unwrap();
    std::fs::copy(sample("handbook.md"), folder.path().join("handbook.md")).unwrap();
    std::os::unix::fs::symlink("handbook.md", folder.path().join("link.md")).unwrap();
    let path = folder.path().display().to_string();
    let done = svc(&app, &["ingest", "--no-wait", &path]).await;
    assert!(done.status.success(), "{}", text(&done.stderr));
    assert_eq!(lines(&done).len(), 1);
    assert!(text(&done.stderr).contains("1 thing that is no file was left out"), "{}", text(&done.stderr));
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn documents_are_added_edited_moved_and_removed() {
    let app = TestApp::start().await;
    let added = svc(&app, &["add", "--content", "# Herons\n\nThey wait.", "--position", "-2", "--wait"]).await;
    assert!(added.status.success(), "{}", text(&added.stderr));
    let herons = lines(&added).remove(0);
    assert_eq!((herons["title"].as_str(), herons["position"].as_i64()), (Some("# Herons"), Some(-2)));
    let id = herons["id"].to_string();
    let file = sample("release-notes.txt").display().to_string();
    let notes =
        lines(&svc(&app, &["add", "--title", "Notes", "--file", &file, "--under", &id, "--wait"]).await).remove(0);
    assert_eq!(notes["parent_id"], herons["id"]);
    let note = notes["id"].to_string();
    let edited = svc(&app, &["edit", &id, "--title", "Herons", "--position", "none"]).await;
    let edited = lines(&edited).remove(0);
    assert_eq!((edited["title"].as_str(), &edited["position"]), (Some("Herons"), &Value::Null));
    // What `get` shows as the ETag is what `edit` takes.
    let etag = lines(&svc(&app, &["get", &note]).await)[0]["etag"].as_str().unwrap().to_owned();
    assert!(svc(&app, &["edit", &note, "--title", "Notes", "--if-match", &etag]).await.status.success());
    let whereto = text(&svc(&app, &["mv", &note]).await.stderr);
    assert!(whereto.contains("UNDER") && whereto.contains("--top"), "{whereto}");
    let stale = svc(&app, &["edit", &note, "--title", "x", "--if-match", "\"old\""]).await;
    assert!(stale.status.code() == Some(1) && text(&stale.stderr).contains("precondition_failed"));
    assert_eq!(lines(&svc(&app, &["mv", &note, "--top"]).await)[0]["parent_id"], Value::Null);
    let shown = text(&svc(&app, &["--table", "mv", &note, &id]).await.stdout);
    assert!(shown.contains(&format!("moved document {note}: Notes, under document {id}")), "{shown}");
    assert_eq!(lines(&svc(&app, &["ls", &id]).await).len(), 1);
    assert!(svc(&app, &["rm", &id]).await.status.success());
    assert!(!svc(&app, &["get", &note]).await.status.success());
    app.end().await;
}

#[tokio::test]
async fn a_reader_that_has_enough_is_no_failure() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_svc"))
        .args(["--table", "config"])
        .env("SVC_CONFIG", "/dev/null")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_goes_wrong_is_said_in_one_line_with_its_remedy() {
    let app = TestApp::start().await;
    let path = sample("handbook.md").display().to_string();
    for (arguments, says) in [
        (&["tree", "424242"][..], "there is no document 424242"),
        (&["ingest", "/no/such/file"], "/no/such/file"),
        (&["ingest", "/dev/null"], "/dev/null is neither a file nor a folder"),
        (&["ingest", &path, "--options", "{"], "--options is not JSON"),
        (
            &["ingest", &path, "--options", r#"{"skip": {}, "skip": {}}"#],
            "--options: takes each key of an object only once, and `skip`",
        ),
        (&["explain", "pdf", "--patterns", r#"{"a": 1, "a": 2}"#], "--patterns: takes each key of an object only once"),
        (&["explain", "pdf", "--patterns", "[]"], "--patterns takes a JSON object"),
        (&["search", ""], "query: must not be empty"),
        (&["import", "tests/samples", "--priority", "5"], "--priority is for a file"),
        (&["migrate"], "SVC_DATABASE_URL"),
    ] {
        let output = svc(&app, arguments).await;
        let said = text(&output.stderr);
        assert!(
            output.status.code() == Some(1) && said.contains(says) && said.lines().count() == 1,
            "{arguments:?}: {said}"
        );
    }
    let refused = lines(&svc(&app, &["ingest", &path, "--options", r#"{"structure": {"tokens": 1}}"#]).await);
    assert_eq!(refused[0]["state"], "refused");
    assert!(refused[0]["reason"].as_str().unwrap().contains("structure.tokens"), "{}", refused[0]);
    let wrong = Command::new(env!("CARGO_BIN_EXE_svc"))
        .args(["status"])
        .env("SVC_URL", "http://127.0.0.1:9")
        .env("SVC_CONFIG", "/dev/null")
        .output()
        .unwrap();
    assert!(
        text(&wrong.stderr)
            .contains("nothing listens at http://127.0.0.1:9 (connection refused): start `svc serve`, or set SVC_URL"),
        "{}",
        text(&wrong.stderr)
    );
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn models_are_listed_and_fetched_and_a_text_is_embedded() {
    let app = TestApp::start().await;
    let listed = lines(&svc(&app, &["models"]).await);
    let of = |name: &str| listed.iter().find(|row| row["name"] == name).unwrap();
    let minilm = of("all-MiniLM-L6-v2");
    assert_eq!((minilm["cached"].as_bool(), minilm["width"].as_i64()), (Some(true), Some(384)), "{minilm}");
    assert_eq!(minilm["loaded"]["document_window"], 512, "the service has it: {minilm}");
    assert_eq!(minilm["loaded"]["precision"], "bf16", "{minilm}");
    assert!(of("nomic-ai/modernbert-embed-base")["loaded"].is_null());
    assert_eq!(of("cross-encoder/ms-marco-MiniLM-L6-v2")["kind"], "cross-encoder");

    let embedded = lines(&svc(&app, &["embed", "a text"]).await);
    let vector = embedded[0]["vector"].as_array().unwrap();
    let norm: f64 = vector.iter().map(|value| value.as_f64().unwrap().powi(2)).sum();
    assert!(vector.len() == 768 && (norm - 1.0).abs() < 1e-5, "{} components, norm {norm}", vector.len());
    assert_eq!((embedded[0]["tokens"].as_i64(), &embedded[0]["model"]), (Some(4), &minilm["loaded"]["identity"]));
    let shown = text(&svc(&app, &["--table", "embed", "a text"]).await.stdout);
    assert!(shown.contains("4 tokens, 384 components of 768"), "{shown}");
    let tokens = lines(&svc(&app, &["embed", "--tokens", "The radar, silent"]).await);
    let words: Vec<&str> = tokens.iter().map(|token| token["token"].as_str().unwrap()).collect();
    assert_eq!(words, ["The", "radar", ",", "silent"]);
    assert!(tokens.iter().all(|token| token["vector"].as_array().unwrap().len() == 384));
    let mut tiers: Vec<u64> = tokens.iter().map(|token| token["tier"].as_u64().unwrap()).collect();
    tiers.sort_unstable();
    assert_eq!(tiers, [10, 30, 60, 80]);
    app.end().await;

    // A test fetches nothing: there is no hub at this address.
    let fetch = |model: &str, offline: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_svc"));
        command.args(["models", "fetch", model]).env("SVC_CONFIG", "/dev/null");
        command.env("SVC_HUB_ENDPOINT", "http://127.0.0.1:9").env("SVC_HUB_OFFLINE", offline).output().unwrap()
    };
    let here = lines(&fetch("all-MiniLM-L6-v2", "true"));
    assert_eq!(here[0]["folder"], minilm["folder"]);
    let refused = fetch("owner/unheard-of", "true");
    assert_eq!(refused.status.code(), Some(1));
    assert!(text(&refused.stderr).contains("fetching is switched off"), "{}", text(&refused.stderr));
    let unknown = text(&fetch("unheard of", "true").stderr);
    assert!(unknown.contains("all-MiniLM-L6-v2") && unknown.lines().count() == 1, "{unknown}");
}

#[tokio::test]
async fn settings_are_shown_with_their_origin_and_no_secret() {
    let output = Command::new(env!("CARGO_BIN_EXE_svc"))
        .args(["config"])
        .env("SVC_CONFIG", "/dev/null")
        .env("SVC_API_TOKEN", "very-secret-token")
        .env("SVC_BM25_K1", "1.5")
        .output()
        .unwrap();
    let rows = lines(&output);
    let of = |name: &str| rows.iter().find(|row| row["name"] == name).unwrap();
    assert_eq!(
        (of("SVC_BM25_K1")["value"].as_str(), of("SVC_BM25_B")["origin"].as_str()),
        (Some("1.5"), Some("default"))
    );
    assert!(of("SVC_BM25_K1")["origin"].as_str().unwrap().contains("environment"));
    assert!(!text(&output.stdout).contains("very-secret"), "{}", of("SVC_API_TOKEN"));
    let bad = Command::new(env!("CARGO_BIN_EXE_svc"))
        .args(["config"])
        .env("SVC_CONFIG", "/dev/null")
        .env("SVC_BM25_K1", "lots")
        .output()
        .unwrap();
    let said = text(&bad.stderr);
    assert!(
        !bad.status.success() && said.contains("SVC_BM25_K1") && said.contains("lots") && said.contains("takes"),
        "{said}"
    );
    let short = Command::new(env!("CARGO_BIN_EXE_svc-worker"))
        .args(["--lease-seconds", "5", "--heartbeat-seconds", "2", "--config", "/dev/null"])
        .output()
        .unwrap();
    let said = text(&short.stderr);
    assert_eq!(short.status.code(), Some(2));
    assert!(said.contains("SVC_WORKER_LEASE_SECONDS") && said.contains("SVC_WORKER_HEARTBEAT_SECONDS"), "{said}");
}

#[tokio::test]
async fn the_documentation_page_needs_nothing_from_elsewhere() {
    let app = TestApp::with(Wish { no_worker: true, ..Default::default() }).await;
    let page = http().get(format!("{}/docs/", app.base)).send().await.unwrap();
    assert_eq!(page.status(), 200);
    let page = page.text().await.unwrap();
    assert!(page.contains("swagger") && !page.contains("https://") && !page.contains("//cdn"), "{page}");
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_token_is_said_once_and_ends_a_command_with_1() {
    let app = TestApp::with(Wish { no_worker: true, ..Default::default() }).await;
    let (one, other) = (sample("handbook.md").display().to_string(), sample("empty.txt").display().to_string());
    for arguments in [&["status"][..], &["ingest", &one, &other], &["search", "x"], &["ls"]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_svc"));
        command.args(arguments).env("SVC_URL", &app.base).env("SVC_API_TOKEN", "wrong").env("SVC_CONFIG", "/dev/null");
        let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
        assert!(said.contains("SVC_TOKEN") && said.lines().count() == 1, "{arguments:?}: {said}");
    }
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_proxy_sees_nothing_of_what_is_meant_for_this_machine() {
    let app = TestApp::with(Wish { no_worker: true, ..Default::default() }).await;
    let proxy = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    proxy.set_nonblocking(true).unwrap();
    let address = format!("http://{}", proxy.local_addr().unwrap());
    let mut command = Command::new(env!("CARGO_BIN_EXE_svc"));
    command.args(["ls"]).env("SVC_URL", &app.base).env("SVC_API_TOKEN", TOKEN).env("SVC_CONFIG", "/dev/null");
    for name in ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"] {
        command.env(name, &address);
    }
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(proxy.accept().is_err(), "the proxy was called");
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn documents_are_listed_shown_and_deleted() {
    let app = TestApp::with(Wish { no_worker: true, ..Default::default() }).await;
    let create = async |title: &str, parent_id| {
        let new = svc_client::wire::NewDocument { parent_id, ..crate::support::document(title, "Its text.") };
        app.client.create_document(Default::default(), svc_client::Json(new)).await.unwrap().id.to_string()
    };
    let top = create("Top", None).await;
    let below = create("Below", Some(top.parse().unwrap())).await;
    let listed = |output: &Output| lines(output).iter().map(|line| line["id"].to_string()).collect::<Vec<_>>();
    assert_eq!(listed(&svc(&app, &["ls"]).await), [top.as_str()]);
    assert_eq!(listed(&svc(&app, &["ls", &top]).await), [below.as_str()]);
    let shown = text(&svc(&app, &["--table", "get", &below]).await.stdout);
    assert!(shown.contains("Below") && shown.contains("Its text."), "{shown}");
    assert!(svc(&app, &["rm", &top]).await.status.success());
    let gone = svc(&app, &["get", &below]).await;
    assert!(gone.status.code() == Some(1) && text(&gone.stderr).contains("there is no document"), "{gone:?}");
    app.end().await;
}

#[tokio::test]
async fn a_shell_gets_completions_of_every_command() {
    for (shell, mark) in [("bash", "complete -F"), ("zsh", "#compdef svc"), ("fish", "complete -c svc")] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_svc"));
        command.args(["completions", shell]).env("SVC_CONFIG", "/nowhere/at/all");
        let done = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
        let text = text(&done.stdout);
        assert!(done.status.success() && text.contains(mark), "{shell}: {text}");
        for command in ["ingest", "bytes", "search", "completions"] {
            assert!(text.contains(command), "{shell} does not know {command}");
        }
    }
}

/// Runs a script in a shell that has loaded the completions of `svc`; `None` if the shell is not installed.
fn in_shell(shell: &str, script: &str) -> Option<Output> {
    Command::new(shell).arg("--version").output().ok()?;
    let svc = Path::new(env!("CARGO_BIN_EXE_svc")).parent().unwrap();
    let path = format!("{}:{}", svc.display(), std::env::var("PATH").unwrap_or_default());
    Some(Command::new(shell).args(["-c", script]).env("PATH", path).output().unwrap())
}

#[test]
fn shells_load_the_completions_and_complete_with_them() {
    let bash = r#"
        set -u
        source <(svc completions bash)
        complete_line() {
            COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
            _svc svc "${@: -1}" "${@: -2:1}"
            echo "${COMPREPLY[*]}"
        }
        complete_line svc in
        complete_line svc acc
        complete_line svc ingest --no
        complete -p svc"#;
    let zsh = "autoload -U compinit && compinit -D && source <(svc completions zsh) && whence -w _svc && print ${_comps[svc]}";
    let fish = "svc completions fish | source; complete -C 'svc in'";
    for (shell, script, expected) in [
        ("bash", bash, &["ingest", "access", "--no-wait", "_svc"][..]),
        ("zsh", zsh, &["_svc: function", "_svc"]),
        ("fish", fish, &["ingest"]),
    ] {
        let Some(done) = in_shell(shell, script) else {
            assert_ne!(shell, "bash", "bash is needed to build");
            left_out(&format!("the completions in {shell}, which is not installed"));
            continue;
        };
        let (answer, errors) = (text(&done.stdout), text(&done.stderr));
        assert!(done.status.success() && errors.is_empty(), "{shell}: {errors}");
        let answered: Vec<&str> = answer.lines().collect();
        assert!(answered.len() >= expected.len(), "{shell}: {answer}");
        for (line, expected) in answered.iter().zip(expected) {
            assert!(line.contains(expected), "{shell}: {answer}");
        }
    }
}

/// Files that are small and differ.
fn some_files(app: &TestApp, count: usize) -> PathBuf {
    // Other tests have the same data folder.
    let folder = app.service.settings.data_dir.join(format!("to-ingest-{count}"));
    std::fs::create_dir_all(&folder).unwrap();
    for number in 0..count {
        std::fs::write(
            folder.join(format!("{number}.md")),
            format!("# Gauge {number}\n\nIt was read {number} times.\n"),
        )
        .unwrap();
    }
    folder
}

/// Starts `svc`, to be ended later.
fn start(base: &str, arguments: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_svc"));
    command.args(arguments).env("SVC_URL", base).env("SVC_API_TOKEN", TOKEN).env("SVC_CONFIG", "/dev/null");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

async fn end_of(child: Child) -> Output {
    tokio::task::spawn_blocking(move || child.wait_with_output().unwrap()).await.unwrap()
}

fn interrupt(child: &Child) {
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
}

fn embed() -> TaskTypePath {
    TaskTypePath { task_type: "embed".to_owned() }
}

/// Takes as many streams of events as there are, and returns them.
async fn free_streams(app: &TestApp) -> Vec<Response> {
    let mut taken = Vec::new();
    loop {
        let stream = app.raw("GET", "/events?since=now").send().await.unwrap();
        match stream.status().as_u16() {
            200 => taken.push(stream),
            429 => return taken,
            other => panic!("{other}"),
        }
    }
}

/// A proxy before the service.
async fn before(app: &TestApp) -> Proxy {
    Proxy::of_service(app.base.strip_prefix("http://").unwrap().parse().unwrap()).await
}

/// Waits until `svc ingest` has uploaded its files and follows events.
async fn follows(proxy: &Proxy) {
    until("events to be followed", async || proxy.has_heard("GET /events?").then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_are_followed_through_a_connection_that_breaks_and_events_that_are_missed() {
    const FILES: usize = 12;
    let app = TestApp::start().await;
    app.client.pause_task_type(embed()).await.unwrap();
    let folder = some_files(&app, FILES);
    let proxy = before(&app).await;
    let child = start(&format!("http://{}", proxy.address), &["ingest", &folder.display().to_string()]);
    follows(&proxy).await;
    proxy.set(Weather::Cut);
    let roots = app.client.list_roots(Default::default()).await.unwrap().documents;
    assert_eq!(roots.len(), FILES);
    app.client.resume_task_type(embed()).await.unwrap();
    for root in &roots {
        app.settled(root.id).await;
    }
    // All that there was to tell is over when the service can be reached again.
    proxy.set(Weather::Fair);
    let done = end_of(child).await;
    assert!(done.status.success(), "{}", text(&done.stderr));
    assert!(lines(&done).iter().all(|report| report["state"] == "settled"), "{}", text(&done.stdout));
    assert_eq!(lines(&done).len(), FILES);
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_are_followed_where_no_stream_is_to_be_had() {
    let app = TestApp::with(Wish { settings: &[("SVC_EVENT_STREAMS", "2")], ..Default::default() }).await;
    let taken = free_streams(&app).await;
    assert_eq!(taken.len(), 2);
    let done = svc(&app, &["ingest", &some_files(&app, 4).display().to_string()]).await;
    assert!(done.status.success(), "{}", text(&done.stderr));
    assert!(lines(&done).iter().all(|report| report["state"] == "settled"), "{}", text(&done.stdout));
    drop(taken);
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ctrl_c_says_what_goes_on_without_the_command() {
    let app = TestApp::start().await;
    app.client.pause_task_type(embed()).await.unwrap();
    let folder = some_files(&app, 3).display().to_string();
    let proxy = before(&app).await;
    let ingest = start(&format!("http://{}", proxy.address), &["ingest", &folder]);
    follows(&proxy).await;
    interrupt(&ingest);
    let done = end_of(ingest).await;
    let said = text(&done.stderr);
    assert_eq!(done.status.code(), Some(130), "{said}");
    assert!(said.contains("3 files continue in the background") && said.contains("`svc cancel ID`"), "{said}");
    assert!(!said.contains("not uploaded"), "{said}");
    let reports = lines(&done);
    let is_told = |report: &Value| report["state"] == "in_flight" && report["document_id"].is_i64();
    assert!(reports.len() == 3 && reports.iter().all(is_told), "{reports:?}");

    // Its input stays open, as a terminal does.
    let mut import = start(&app.base, &["import", "-"]);
    let mut input = import.stdin.take().unwrap();
    for number in 0..500 {
        writeln!(input, r#"{{"title": "Line {number}", "content": "It was read."}}"#).unwrap();
    }
    until("the first lines to be stored", async || {
        let stored: i64 = sqlx::query_scalar("SELECT count(*) FROM documents WHERE title LIKE 'Line %'")
            .fetch_one(&app.pool)
            .await
            .unwrap();
        (stored == 500).then_some(())
    })
    .await;
    interrupt(&import);
    let done = end_of(import).await;
    let said = text(&done.stderr);
    assert_eq!(done.status.code(), Some(130), "{said}");
    assert!(said.contains("stopped at line") && said.contains("run the same command again"), "{said}");
    drop(input);

    let mut events = start(&app.base, &["events", "--since", "0"]);
    let mut output = BufReader::new(events.stdout.take().unwrap());
    let mut first = String::new();
    output.read_line(&mut first).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&first).unwrap()["seq"], 1);
    interrupt(&events);
    std::io::copy(&mut output, &mut std::io::sink()).unwrap();
    let done = end_of(events).await;
    let said = text(&done.stderr);
    assert!(done.status.success() && said.contains("`svc events --since "), "{:?} {said}", done.status);
    app.end().await;
}

/// The service goes on with what a command waited for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ctrl_c_says_what_goes_on_of_one_call() {
    let app = TestApp::start().await;
    for task_type in ["raptor", "probe"] {
        app.client.pause_task_type(TaskTypePath { task_type: task_type.to_owned() }).await.unwrap();
    }
    let id = app.create("Birds", "Herons and coots.", None).await.id.to_string();
    for bird in ["A heron waits by the water.", "A coot dives for its food."] {
        app.create("Bird", bird, Some(id.parse().unwrap())).await;
    }
    let folder = app.service.settings.data_dir.clone();
    let (talk, facts) = (folder.join("talk.json"), folder.join("facts.ttl"));
    std::fs::write(&talk, r#"[{"role": "user", "content": "Where is the heron?"}]"#).unwrap();
    std::fs::write(&facts, "<http://example.org/heron> <http://example.org/eats> <http://example.org/fish> .\n")
        .unwrap();
    let is_queued = async |task_type: &str| {
        until("the task to be queued", async || {
            sqlx::query_scalar::<_, i64>("SELECT id FROM task_queue WHERE task_type = $1 AND NOT final")
                .bind(task_type)
                .fetch_optional(&app.pool)
                .await
                .unwrap()
        })
        .await
    };
    let ended = async |child: Child| {
        interrupt(&child);
        let done = end_of(child).await;
        assert_eq!(done.status.code(), Some(130), "{}", text(&done.stderr));
        text(&done.stderr)
    };
    let raptor = start(&app.base, &["raptor", &id]);
    is_queued("raptor").await;
    let said = ended(raptor).await;
    assert!(said.contains(&format!("the summaries of document {id} are made in the background")), "{said}");
    let conversation = start(&app.base, &["conversation", "import", talk.to_str().unwrap(), "--wait"]);
    is_queued("probe").await;
    let said = ended(conversation).await;
    assert!(said.contains("ingested in the background") && said.contains("stores nothing twice"), "{said}");
    let mut held = app.pool.begin().await.unwrap();
    sqlx::query("LOCK triples").execute(&mut *held).await.unwrap();
    let proxy = before(&app).await;
    let import = start(&format!("http://{}", proxy.address), &["rdf", "import", facts.to_str().unwrap()]);
    until("the call to begin", async || proxy.has_heard("POST /rdf/turtle").then_some(())).await;
    let said = ended(import).await;
    assert!(said.contains("0 triples of the file are stored; running the command again adds the others"), "{said}");
    held.rollback().await.unwrap();
    app.end().await;
}
