//! The command line, as a program reads it and as a person does.
use crate::support::{TOKEN, TestApp, http, repository, sample};
use serde_json::Value;
use std::process::{Command, Output};

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
    assert!(results[0]["content"].as_str().unwrap().contains("radar gauge is silent"), "{}", results[0]);
    let id = of("handbook.md")["document_id"].to_string();
    let shown =
        text(&svc(&app, &["--table", "search", "radar gauge", "--under", &id, "--method", "bm25"]).await.stdout);
    assert!(shown.contains("results by bm25") && shown.contains("handbook.md ›"), "{shown}");
    let tree = text(&svc(&app, &["--table", "tree", &id]).await.stdout);
    assert!(tree.contains("file “handbook.md” [settled]") && tree.contains("    "), "{tree}");
    app.sampled().await;
    let status = lines(&svc(&app, &["status"]).await);
    assert_eq!((status[0]["ready"].as_bool(), status[0]["queue"]["pending"].as_i64()), (Some(true), Some(0)));
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
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
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
        (&["ingest", &path, "--options", "{"], "--options is not JSON"),
        (&["search", ""], "query: must not be empty"),
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
    assert_eq!(minilm["loaded"]["precision"], "f32", "{minilm}");
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
    let app = TestApp::with(crate::support::Wish { no_worker: true, ..Default::default() }).await;
    let page = http().get(format!("{}/docs/", app.base)).send().await.unwrap();
    assert_eq!(page.status(), 200);
    let page = page.text().await.unwrap();
    assert!(page.contains("swagger") && !page.contains("https://") && !page.contains("//cdn"), "{page}");
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_token_is_said_once_and_ends_a_command_with_1() {
    let app = TestApp::with(crate::support::Wish { no_worker: true, ..Default::default() }).await;
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
    let app = TestApp::with(crate::support::Wish { no_worker: true, ..Default::default() }).await;
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
    let app = TestApp::with(crate::support::Wish { no_worker: true, ..Default::default() }).await;
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
