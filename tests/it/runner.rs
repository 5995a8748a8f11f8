//! One process embeds for others.
mod refused;
mod windows;

use crate::{
    admin::of_root,
    crash::{Process, url},
    support::{self, TOKEN, TestApp, Wish, invariants, sample, until},
};
use axum::{
    body::{Body, Bytes},
    extract::Request,
    response::{IntoResponse, Response},
};
use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read},
    process::{Command, Stdio},
    sync::{Arc, Mutex},
};
use svc::app::load_embedder;
use svc_client::{
    Client, Code, Json, Remote,
    wire::{
        BlockedBy, DocumentPath, EmbedQuery, Floats, GroupBy, HybridSearch, RunnerModelQuery, RunnerTextKind,
        RunnerTexts, RunnerTokenTexts, RunnerVectors, SearchResponse, Settled, VectorSearch,
    },
};
use svc_models::Engine;

const KEY: &str = "the-runner-key-of-the-tests";

pub async fn runner() -> TestApp {
    runner_with(support::engine()).await
}

/// A runner of another model.
pub async fn runner_with(engine: Engine) -> TestApp {
    let settings = [("SVC_RUNNER_KEY", KEY)];
    TestApp::with(Wish { settings: &settings, no_worker: true, engine: Some(engine), ..Default::default() }).await
}

fn client(base: &str, key: &str) -> Client<Remote> {
    Client(Remote::new(base, key, support::http()))
}

fn texts(texts: &[&str]) -> RunnerTexts {
    let texts = texts.iter().map(|text| (*text).to_owned()).collect();
    RunnerTexts { texts, kind: RunnerTextKind::Document, model: None }
}

/// Settings of a process that has no model and uses this runner.
pub fn far(base: &str) -> [(&str, &str); 4] {
    [
        ("SVC_RUNNER_URL", base),
        ("SVC_RUNNER_KEY", KEY),
        ("SVC_EMBEDDING_MODEL", "/nowhere/no-model"),
        ("SVC_RUNNER_TIMEOUT_SECONDS", "2"),
    ]
}

async fn far_app(base: &str) -> TestApp {
    TestApp::with(Wish { settings: &far(base), ..Default::default() }).await
}

/// Stands before a runner: answers a call itself, or passes it on.
pub struct Script {
    pub base: String,
    calls: Arc<Mutex<Vec<String>>>,
    answer: Arc<Mutex<Answer>>,
    server: tokio::task::JoinHandle<()>,
}

/// A status and a body, by the path and how often it was called before; status 0 never answers.
type Answer = Box<dyn FnMut(&str, usize) -> Option<(u16, String)> + Send>;

impl Drop for Script {
    fn drop(&mut self) {
        self.server.abort();
    }
}

impl Script {
    pub async fn before(
        runner: &str,
        answer: impl FnMut(&str, usize) -> Option<(u16, String)> + Send + 'static,
    ) -> Script {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        Script::on(listener, runner, answer)
    }

    fn on(
        listener: tokio::net::TcpListener,
        runner: &str,
        answer: impl FnMut(&str, usize) -> Option<(u16, String)> + Send + 'static,
    ) -> Script {
        let base = format!("http://{}", listener.local_addr().unwrap());
        let calls = Arc::<Mutex<Vec<String>>>::default();
        let answer: Arc<Mutex<Answer>> = Arc::new(Mutex::new(Box::new(answer)));
        let (seen, said, runner) = (calls.clone(), answer.clone(), runner.to_owned());
        let router = axum::Router::new().fallback(move |request: Request| {
            let (seen, said, runner) = (seen.clone(), said.clone(), runner.clone());
            async move {
                let path = request.uri().path_and_query().unwrap().to_string();
                let before = {
                    let mut seen = seen.lock().unwrap();
                    seen.push(path.clone());
                    seen.iter().filter(|call| **call == path).count() - 1
                };
                let scripted = said.lock().unwrap()(&path, before);
                match scripted {
                    Some((0, _)) => std::future::pending().await,
                    Some((status, body)) => (http::StatusCode::from_u16(status).unwrap(), body).into_response(),
                    None => pass_on(&format!("{runner}{path}"), request).await,
                }
            }
        });
        let server = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Script { base, calls, answer, server }
    }

    /// From here on it only passes calls on.
    pub fn relent(&self) {
        *self.answer.lock().unwrap() = Box::new(|_, _| None);
    }

    fn calls(&self, path: &str) -> usize {
        self.calls.lock().unwrap().iter().filter(|call| *call == path).count()
    }
}

async fn pass_on(url: &str, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body: Bytes = axum::body::to_bytes(body, 1 << 24).await.unwrap();
    let mut onward = support::http().request(parts.method, url).body(body);
    for name in ["authorization", "content-type", "x-svc-version"] {
        if let Some(value) = parts.headers.get(name) {
            onward = onward.header(name, value);
        }
    }
    let answer = onward.send().await.unwrap();
    let status = answer.status();
    let mut response = Response::new(Body::from(answer.bytes().await.unwrap()));
    *response.status_mut() = status;
    response
}

/// The vectors under a file by the path of titles and positions, which do not depend on ids.
async fn vectors(app: &TestApp, id: i64) -> BTreeMap<String, Vec<f32>> {
    let mut vectors = BTreeMap::new();
    for node in app.subtree(id).await {
        let read = app
            .client
            .read_document(DocumentPath { id: node.id }, EmbedQuery { include_embed: true })
            .await
            .unwrap()
            .value()
            .unwrap();
        let name = format!("{} {:?} {} {}", read.path.len(), read.position, read.title, read.content);
        vectors.extend(read.embed.map(|embed| (name, embed)));
    }
    vectors
}

fn found(response: &SearchResponse) -> Vec<(String, String, f64)> {
    response.results.iter().map(|r| (r.document.title.clone(), r.document.content.clone(), r.score)).collect()
}

#[tokio::test]
async fn a_service_without_a_model_ingests_and_searches_as_one_with_it() {
    let runner = runner().await;
    let (near, far) = (TestApp::start().await, far_app(&runner.base).await);
    let file = sample("handbook.md");
    let (near_id, far_id) = (near.ingest(&file).await.0, far.ingest(&file).await.0);
    let (expected, got) = (vectors(&near, near_id).await, vectors(&far, far_id).await);
    assert!(expected.len() > 10 && expected.keys().eq(got.keys()), "{:?}", got.keys());
    for (name, vector) in &expected {
        let cosine: f32 = vector.iter().zip(&got[name]).map(|(a, b)| a * b).sum();
        assert!(cosine > 0.999_999, "{name}: {cosine}");
    }
    let query = VectorSearch::new("what to do when the radar gauge fails");
    let (near_found, far_found) = (
        near.client.search_vector(Json(query.clone())).await.unwrap(),
        far.client.search_vector(Json(query)).await.unwrap(),
    );
    let (expected, got) = (found(&near_found), found(&far_found));
    assert!(!expected.is_empty() && expected.len() == got.len());
    for ((title, content, score), (far_title, far_content, far_score)) in expected.iter().zip(&got) {
        assert_eq!((title, content), (far_title, far_content));
        assert!((score - far_score).abs() < 1e-5, "{title}: {score} and {far_score}");
    }
    // It says whose model it uses, and is no runner itself.
    far.sampled().await;
    let model = far.client.read_readiness().await.unwrap().models.remove(0);
    assert_eq!(model.identity, support::engine().info().identity);
    let refused = client(&far.base, KEY).runner_embed(Json(texts(&["x"]))).await.unwrap_err();
    assert_eq!((refused.status, &refused.members["setting"]), (501, &"SVC_RUNNER_URL".into()));
    for app in [near, far, runner] {
        app.end().await;
    }
}

#[tokio::test]
async fn token_vectors_come_over_whole() {
    let runner = runner().await;
    let settings = support::settings(&far(&runner.base));
    let model = load_embedder(&settings).await.unwrap().model().await.unwrap();
    let engine = support::engine();
    let asked: Vec<String> =
        (0..20).map(|n| format!("Bread {n} rises, and the moon pulls the sea. {}", "é ".repeat(n))).collect();
    let expected = engine.token_vectors(asked.clone()).await.unwrap();
    let got = model.token_vectors(asked.clone(), RunnerTextKind::Document).await.unwrap();
    assert_eq!(got.len(), expected.len());
    for (got, expected) in got.iter().zip(&expected) {
        assert_eq!((&got.token_ids, &got.offsets, got.width), (&expected.token_ids, &expected.offsets, expected.width));
        let far_off = got.values.iter().zip(&expected.values).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(far_off < 1e-4 && got.tiers.len() == got.len(), "{far_off}");
    }
    // These are counted here, to the token and without a call.
    for text in &asked {
        assert_eq!(model.count_tokens(text).unwrap(), engine.count_tokens(text).unwrap());
    }
    let query = model.token_vectors(vec!["the moon".to_owned()], RunnerTextKind::Query).await.unwrap();
    assert_eq!(query[0].token_ids, engine.query_token_vectors("the moon".to_owned()).await.unwrap().token_ids);
    runner.end().await;
}

#[tokio::test]
async fn only_the_runner_key_opens_the_runner() {
    let runner = runner().await;
    for wrong in ["", TOKEN, "wrong", &KEY[1..]] {
        let refused = client(&runner.base, wrong).runner_embed(Json(texts(&["x"]))).await.unwrap_err();
        assert_eq!((refused.status, refused.code), (401, Code::Unauthenticated), "{wrong}");
        assert!(refused.detail.contains("SVC_RUNNER_KEY"), "{refused}");
    }
    let bare = support::http().post(format!("{}/runner/tokens", runner.base)).send().await.unwrap();
    assert_eq!((bare.status().as_u16(), bare.headers()["www-authenticate"].as_bytes()), (401, &b"Bearer"[..]));
    assert_eq!(
        client(&runner.base, KEY).list_roots(Default::default()).await.unwrap_err().status,
        401,
        "it opens nothing else"
    );
    let model = client(&runner.base, KEY).runner_model(RunnerModelQuery::default()).await.unwrap();
    assert!(model.tokenizer.is_none() && model.model.width == 384);
    runner.end().await;

    let closed = TestApp::with(Wish { no_worker: true, ..Default::default() }).await;
    for key in ["", KEY, TOKEN] {
        let refused = client(&closed.base, key).runner_embed(Json(texts(&["x"]))).await.unwrap_err();
        assert_eq!((refused.status, &refused.members["setting"]), (501, &"SVC_RUNNER_KEY".into()));
    }
    closed.end().await;
}

#[tokio::test]
async fn what_a_runner_does_not_take_is_refused_by_name() {
    let settings = [("SVC_RUNNER_KEY", KEY), ("SVC_MAX_BODY_BYTES", "65536")];
    let runner = TestApp::with(Wish { settings: &settings, no_worker: true, ..Default::default() }).await;
    let client = client(&runner.base, KEY);
    let long = "word ".repeat(600);
    for kind in [RunnerTextKind::Document, RunnerTextKind::Query] {
        let refused = client.runner_embed(Json(RunnerTexts { kind, ..texts(&["short", &long]) })).await.unwrap_err();
        assert_eq!((refused.status, refused.code), (422, Code::TextTooLong));
        for (member, value) in [("index", 1), ("token_count", 602), ("limit", 512), ("chars_total", 3000)] {
            assert_eq!(refused.members[member], value, "{member}: {refused}");
        }
        let tokens = RunnerTokenTexts {
            texts: vec!["short".to_owned(), long.clone()],
            kind: RunnerTextKind::Document,
            model: None,
        };
        let refused = client.runner_tokens(Json(tokens)).await.unwrap_err();
        assert_eq!((refused.code, &refused.members["index"]), (Code::TextTooLong, &1.into()));
    }
    for texts in [texts(&[]), texts(&["x"; RunnerTexts::MOST + 1])] {
        let refused = client.runner_embed(Json(texts)).await.unwrap_err();
        assert_eq!((refused.status, &refused.members["field"]), (422, &"texts".into()));
    }
    let refused = client.runner_embed(Json(texts(&[&"x".repeat(70_000)]))).await.unwrap_err();
    assert_eq!((refused.status, &refused.members["setting"]), (413, &"SVC_MAX_BODY_BYTES".into()));
    let other = RunnerTexts { model: Some("another@0".to_owned()), ..texts(&["x"]) };
    let refused = client.runner_embed(Json(other)).await.unwrap_err();
    assert_eq!((refused.status, &refused.members["model"]), (409, &support::engine().info().identity.clone().into()));
    // A remote caller learns which of all its texts it was, whichever call carried the text.
    let model = load_embedder(&support::settings(&far(&runner.base))).await.unwrap().model().await.unwrap();
    let mut many = vec!["short".to_owned(); 150];
    many[140] = long;
    let error = model.embed_documents(many).await.unwrap_err().to_string();
    assert!(error.contains("text 140 has 602 tokens"), "{error}");
    runner.end().await;
}

#[tokio::test]
async fn a_runner_that_is_full_says_when_to_come_again_and_callers_do() {
    let runner = runner().await;
    let full = runner.service.runner_documents.acquire_many(16).await.unwrap();
    let answer = support::http()
        .post(format!("{}/runner/embed", runner.base))
        .bearer_auth(KEY)
        .json(&texts(&["x"]))
        .send()
        .await
        .unwrap();
    assert_eq!((answer.status().as_u16(), answer.headers()["retry-after"].as_bytes()), (429, &b"1"[..]));
    let query = RunnerTexts { kind: RunnerTextKind::Query, ..texts(&["x"]) };
    client(&runner.base, KEY).runner_embed(Json(query)).await.expect("documents do not keep queries out");
    let script = Script::before(&runner.base, |_, _| None).await;
    let model = load_embedder(&support::settings(&far(&script.base))).await.unwrap().model().await.unwrap();
    let embedding = tokio::spawn(async move { model.embed_documents(vec!["x".to_owned()]).await });
    until("a second try", async || (script.calls("/runner/embed") >= 2).then_some(())).await;
    drop(full);
    assert_eq!(embedding.await.unwrap().unwrap().len(), 1);
    runner.end().await;
}

#[tokio::test]
async fn a_runner_that_is_away_loses_no_task_and_spends_no_attempt() {
    let runner = runner().await;
    // Nobody listens there yet.
    let (socket, place) = support::nobody();
    let far = far_app(&format!("http://{place}")).await;
    let id = far.upload(&sample("handbook.md")).await.unwrap().document_id;
    let waiting = until("a task that is put off", async || {
        let tasks = far.client.list_tasks(of_root(id)).await.unwrap().tasks;
        tasks.into_iter().find(|task| task.blocked_by.as_ref().is_some_and(|why| why.reason == BlockedBy::Backoff))
    })
    .await;
    assert_eq!((waiting.retry_count, waiting.finished), (0, false), "{waiting:?}");
    let spent: i64 = sqlx::query_scalar("SELECT count(*) FROM task_attempts WHERE task_id = $1")
        .bind(waiting.id)
        .fetch_one(&far.pool)
        .await
        .unwrap();
    assert_eq!(spent, 0);
    far.sampled().await;
    let failure = far.client.read_readiness().await.unwrap_err();
    assert!(failure.status == 503 && failure.detail.contains("model: the runner does not answer"), "{failure}");
    assert!(!failure.detail.contains(&place.to_string()), "anyone may ask: {failure}");
    let failure = far.client.search_vector(Json(VectorSearch::new("gauge"))).await.unwrap_err();
    assert!(failure.code == Code::Unavailable && failure.members.contains_key("retry_after"), "{failure}");

    let listener = socket.listen(64).unwrap();
    let script = Script::on(listener, &runner.base, |_, _| None);
    assert_eq!(far.settled(id).await.settled, Settled::Settled);
    far.sampled().await;
    far.client.read_readiness().await.unwrap();
    far.client.search_vector(Json(VectorSearch::new("gauge"))).await.unwrap();
    drop(script);
    invariants::check_drained(&far.pool).await;
    far.end().await;
    runner.end().await;
}

#[tokio::test]
async fn bad_answers_are_asked_for_again_where_that_helps_and_only_there() {
    let runner = runner().await;
    let fails = |path: &str, before: usize| {
        let bad = [(502, "<html>bad gateway</html>"), (503, "{}"), (200, "garbage"), (429, "")];
        let (status, body) = bad.get(before).filter(|_| path == "/runner/embed")?;
        Some((*status, (*body).to_owned()))
    };
    let script = Script::before(&runner.base, fails).await;
    let far = far_app(&script.base).await;
    let id = far.create("Bread", "Yeast eats the sugar in the dough.", None).await.id;
    assert_eq!(script.calls("/runner/embed"), 5);
    let attempts: Vec<String> = sqlx::query_scalar("SELECT outcome FROM task_attempts WHERE document_id = $1")
        .bind(id)
        .fetch_all(&far.pool)
        .await
        .unwrap();
    assert_eq!(attempts, ["completed"], "one attempt held all calls");

    // A key that is no longer accepted is sent once, and nothing is lost.
    *script.answer.lock().unwrap() = Box::new(|path, _| (path == "/runner/embed").then(|| (401, String::new())));
    let before = script.calls("/runner/embed");
    let failure = far.client.search_vector(Json(VectorSearch::new("dough"))).await.unwrap_err();
    assert_eq!((failure.code, script.calls("/runner/embed") - before), (Code::Unavailable, 1), "{failure}");
    assert!(!failure.to_string().contains(KEY));
    let new = support::document("Tides", "The moon pulls the oceans.");
    let id = far.client.create_document(Default::default(), Json(new)).await.unwrap().id;
    let put_off = until("a task that is put off", async || {
        let tasks = far.client.list_tasks(of_root(id)).await.unwrap().tasks;
        tasks.into_iter().find(|task| task.retry_after.is_some())
    })
    .await;
    assert_eq!((put_off.retry_count, put_off.finished), (0, false), "{put_off:?}");
    script.relent();
    sqlx::query("UPDATE task_queue SET retry_after = now() WHERE id = $1")
        .bind(put_off.id)
        .execute(&far.pool)
        .await
        .unwrap();
    assert_eq!(far.settled(id).await.settled, Settled::Settled);

    // Vectors that stand for no text are the runner's fault, and not that of the query.
    let model = client(&runner.base, KEY).runner_model(RunnerModelQuery { tokenizer: false }).await.unwrap();
    let model = model.model.identity;
    for number in [f32::NAN, 1e30, 0.0] {
        let vectors = vec![Floats(vec![number; 384])];
        let odd = RunnerVectors { model: model.clone(), vectors, weights: Floats(vec![]) };
        let odd = serde_json::to_string(&odd).unwrap();
        *script.answer.lock().unwrap() = Box::new(move |path, _| (path == "/runner/embed").then(|| (200, odd.clone())));
        let failure = far.client.search_vector(Json(VectorSearch::new("dough"))).await.unwrap_err();
        assert_eq!(failure.code, Code::Unavailable, "{number}: {failure}");
    }

    // The caller gives up on one that hangs after SVC_RUNNER_TIMEOUT_SECONDS.
    *script.answer.lock().unwrap() = Box::new(|path, _| (path == "/runner/embed").then(|| (0, String::new())));
    let failure = far.client.search_vector(Json(VectorSearch::new("moon"))).await.unwrap_err();
    assert_eq!(failure.code, Code::Unavailable);
    far.end().await;
    runner.end().await;
}

#[tokio::test]
async fn a_runner_that_loads_another_model_is_described_anew() {
    let runner = runner().await;
    let identity = support::engine().info().identity.clone();
    let described = serde_json::to_string(
        &client(&runner.base, KEY).runner_model(RunnerModelQuery { tokenizer: true }).await.unwrap(),
    )
    .unwrap();
    let script = Script::before(&runner.base, move |path, before| {
        let of_old = described.replace(&identity, "the-old-model@0");
        (path.starts_with("/runner/model") && before == 0).then_some((200, of_old))
    })
    .await;
    let far = far_app(&script.base).await;
    assert_eq!(far.service.model().await.unwrap().identity(), "the-old-model@0");
    let failure = far.client.search_vector(Json(VectorSearch::new("moon"))).await.unwrap_err();
    assert_eq!(failure.code, Code::Unavailable, "nothing of the new model passes for the old one's: {failure}");
    far.client.search_vector(Json(VectorSearch::new("moon"))).await.unwrap();
    assert_eq!(far.service.model().await.unwrap().identity(), support::engine().info().identity);
    far.end().await;
    runner.end().await;
}

#[tokio::test]
async fn what_can_never_work_stops_the_start_and_says_why() {
    let runner = runner().await;
    let wide = |described: serde_json::Value| {
        let mut wide = described;
        wide["model"]["width"] = 1024.into();
        wide.to_string()
    };
    let described = client(&runner.base, KEY).runner_model(RunnerModelQuery { tokenizer: true }).await.unwrap();
    let mut bare = serde_json::to_value(&described).unwrap();
    let wide = wide(bare.clone());
    bare["tokenizer"] = "{}".into();
    for (status, body, said) in [
        (200, wide, &["1024", "768", "SVC_EMBEDDING_MODEL"][..]),
        (401, String::new(), &["SVC_RUNNER_KEY"]),
        (404, "<html>".to_owned(), &["SVC_RUNNER_URL"]),
        (200, "<html>".to_owned(), &["answer does not have the form of this version"]),
        (200, bare.to_string(), &["tokenizer.json"]),
    ] {
        let script = Script::before(&runner.base, move |_, _| Some((status, body.clone()))).await;
        let error = load_embedder(&support::settings(&far(&script.base))).await.unwrap_err().to_string();
        assert!(said.iter().all(|word| error.contains(word)) && !error.contains(KEY), "{error}");
    }
    let keyless = [("SVC_RUNNER_URL".to_owned(), runner.base.clone()), ("HOME".to_owned(), "/nowhere".to_owned())];
    let error =
        svc::settings::Settings::load(Some(std::path::Path::new("/dev/null")), keyless.into_iter()).unwrap_err();
    assert!(error.to_string().contains("SVC_RUNNER_KEY is blank"), "{error}");
    runner.end().await;
}

/// `svc serve` as a runner with a key, in its own process.
fn runner_process(data_dir: &std::path::Path) -> (Process, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_svc"))
        .args(["serve", "--config", "/dev/null"])
        .env("SVC_DATA_DIR", data_dir)
        .envs([("SVC_LISTEN", "127.0.0.1:0"), ("SVC_CONSOLE_LISTEN", "127.0.0.1:0"), ("SVC_LOG_LEVEL", "debug")])
        .envs([("SVC_RUNNER_KEY", KEY), ("SVC_INGEST_WORKER_ENABLED", "false")])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(std::fs::File::create(data_dir.join("log")).unwrap())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = lines.find_map(|line| line.ok().filter(|line| line.contains("serves"))).expect("the service starts");
    let base =
        line.split_whitespace().find(|word| word.starts_with("http://")).unwrap().trim_end_matches('/').to_owned();
    std::thread::spawn(move || lines.for_each(drop));
    (Process(child), base)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_process_embeds_at_a_runner_process_and_no_key_is_ever_logged() {
    let folder = tempfile::Builder::new().prefix("svc-runner-").tempdir().unwrap();
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let data_dir = folder.path().to_owned();
    let (mut runner, base) = tokio::task::spawn_blocking(move || runner_process(&data_dir)).await.unwrap();
    let app = TestApp::with(Wish { no_worker: true, ..Default::default() }).await;
    let id = app.upload(&sample("handbook.md")).await.unwrap().document_id;
    let worker = |key: &str, name: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_svc-worker"));
        command
            .args(["--config", "/dev/null", "--log-level", "debug", "--worker-id", name])
            .args(["--poll-seconds", "0.1", "--drain"])
            .env("SVC_DATABASE_URL", url(&app.options))
            .env("SVC_DATA_DIR", support::server::work_dir().join("data"))
            .envs(support::s3::of_all_tests(&app.options))
            .envs(far(&base))
            .env("SVC_RUNNER_KEY", key)
            // This proxy does not exist: calls to this machine must not use it.
            .envs(["http_proxy", "HTTP_PROXY", "ALL_PROXY"].map(|name| (name, "http://127.0.0.1:9")))
            .env_remove("no_proxy")
            .env_remove("NO_PROXY")
            .stdin(Stdio::null());
        command
    };
    let mut wrong = worker("not-the-key-at-all", "wrong");
    let refused = tokio::task::spawn_blocking(move || wrong.output()).await.unwrap().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("SVC_RUNNER_KEY"), "{said}");
    assert!(!said.contains("not-the-key-at-all"), "{said}");

    let mut right = worker(KEY, "right");
    let done = tokio::task::spawn_blocking(move || right.output()).await.unwrap().unwrap();
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success(), "{said}");
    assert_eq!(app.settled(id).await.settled, Settled::Settled);
    let count: i64 = sqlx::query_scalar("SELECT count(*) FROM document_vectors WHERE embed_model = $1")
        .bind(&support::engine().info().identity)
        .fetch_one(&app.pool)
        .await
        .unwrap();
    assert!(count > 10, "{count}");
    let pid = rustix::process::Pid::from_raw(runner.0.id().cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    tokio::task::spawn_blocking(move || runner.0.wait()).await.unwrap().unwrap();
    let mut log = String::new();
    std::fs::File::open(folder.path().join("log")).unwrap().read_to_string(&mut log).unwrap();
    assert!(log.contains("runner_embed"), "{log}");
    for text in [&log, &said] {
        assert!(!text.contains(KEY), "the key is in a log");
    }
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn a_query_that_was_asked_a_moment_ago_is_not_embedded_again() {
    let runner = runner().await;
    let script = Script::before(&runner.base, |_, _| None).await;
    let far = far_app(&script.base).await;
    let (id, _) = far.ingest(&sample("handbook.md")).await;
    let before = script.calls("/runner/embed");
    let asked = async |query: &str| {
        let grouped = HybridSearch { group_by: Some(GroupBy::File), ..HybridSearch::new(query) };
        let found = far.client.search_hybrid(Json(grouped)).await.unwrap();
        assert_eq!(found.results[0].document.id, id, "{found:?}");
        found.results[0].score
    };
    let score = asked("pressure gauge").await;
    assert_eq!(script.calls("/runner/embed") - before, 1, "ranking and grouping share it");
    assert_eq!(asked("pressure gauge").await, score);
    assert_eq!(script.calls("/runner/embed") - before, 1);
    asked("gauge").await;
    assert_eq!(script.calls("/runner/embed") - before, 2);
    far.end().await;
    runner.end().await;
}
