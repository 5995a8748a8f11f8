//! The operator's console over HTTP: who gets in, what it shows, and what it changes. `browser` looks at it as a person does.

mod bounds;
mod browser;
mod documents;
mod feed;
mod limits;
mod reader;
mod running;

use crate::{
    admin::idle,
    principals::{grant, someone},
    queue::{node, task},
    support::{TOKEN, TestApp, http, sample, until, until_a_statement_like_this_waits},
};
use futures_util::StreamExt;
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use std::{net::SocketAddr, time::Duration};
use svc::{
    console,
    listener::{self, Limits},
    store::workers::{self, WorkerRow},
};
use svc_actors::WriteMode;
use svc_client::wire::{
    ApiTokenPath, AuditQuery, GrantRight, PageQuery, PrincipalPath, TaskPath, TaskStatus, TaskTypePath,
};
use tokio::sync::watch;

/// Every page of an operator.
pub const PAGES: &[&str] =
    &["/", "/actors", "/regions", "/tasks", "/failed", "/documents", "/workers", "/feed", "/view"];
const HOSTILE: &str = "<script>alert(1)</script>";

/// A console on a port of its own, beside a service.
pub struct Console {
    pub base: String,
    stop: watch::Sender<bool>,
    server: tokio::task::JoinHandle<()>,
}

impl Console {
    pub async fn of(app: &TestApp) -> Console {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address: SocketAddr = listener.local_addr().unwrap();
        let router = console::router(app.service.clone(), address);
        let (stop, stopped) = watch::channel(false);
        let server = tokio::spawn(listener::serve(listener, router, Limits::of(&app.service.settings), stopped));
        Console { base: format!("http://{address}"), stop, server }
    }

    pub async fn end(self) {
        self.stop.send(true).unwrap();
        self.server.abort();
    }

    fn send(&self, method: Method, path: &str, cookie: Option<&str>) -> RequestBuilder {
        let client = crate::support::http_builder().redirect(reqwest::redirect::Policy::none()).build().unwrap();
        let request = client.request(method, format!("{}{path}", self.base));
        match cookie {
            Some(cookie) => request.header("cookie", cookie),
            None => request,
        }
    }

    async fn get(&self, path: &str, cookie: &str) -> Response {
        self.send(Method::GET, path, Some(cookie)).send().await.unwrap()
    }

    pub async fn text(&self, path: &str, cookie: &str) -> String {
        let answer = self.get(path, cookie).await;
        let (status, text) = (answer.status(), answer.text().await.unwrap());
        assert_eq!(status, 200, "{path}: {text}");
        text
    }

    fn post(&self, path: &str, cookie: Option<&str>, fields: &[(&str, &str)]) -> RequestBuilder {
        let encode = |text: &str| text.bytes().map(|byte| format!("%{byte:02x}")).collect::<String>();
        let body: Vec<String> = fields.iter().map(|(name, value)| format!("{name}={}", encode(value))).collect();
        let request = self.send(Method::POST, path, cookie).header("origin", &self.base);
        request.header("content-type", "application/x-www-form-urlencoded").body(body.join("&"))
    }

    async fn sign_in_as(&self, token: &str) -> Response {
        self.post("/login", None, &[("token", token)]).send().await.unwrap()
    }

    /// Signs in, and returns the cookie.
    pub async fn sign_in(&self, token: &str) -> String {
        let answer = self.sign_in_as(token).await;
        assert_eq!((answer.status(), &answer.headers()["location"]), (StatusCode::SEE_OTHER, &"/".parse().unwrap()));
        let cookie = answer.headers()["set-cookie"].to_str().unwrap();
        cookie.split(';').next().unwrap().to_owned()
    }
}

/// Where an answer leads.
fn location(answer: &Response) -> String {
    answer.headers()["location"].to_str().unwrap().to_owned()
}

/// The token of the forms of a page.
fn csrf(page: &str) -> String {
    let (_, rest) = page.split_once(r#"name="csrf" value=""#).unwrap();
    rest.split('"').next().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn only_who_shows_a_valid_token_gets_in_and_the_token_stays_out_of_sight() {
    let app = idle().await;
    let console = Console::of(&app).await;
    for path in PAGES.iter().chain(&["/tasks/1", "/documents/1", "/workers/w", "/find?q=1", "/nowhere"]) {
        for cookie in [None, Some("svc_console=0000"), Some("svc_console=")] {
            let answer = console.send(Method::GET, path, cookie).send().await.unwrap();
            let asked = path.replace('/', "%2F").replace('?', "%3F").replace('=', "%3D");
            let to = if *path == "/" { "/login".to_owned() } else { format!("/login?to={asked}") };
            assert_eq!((answer.status().as_u16(), location(&answer)), (303, to), "{path}");
        }
    }
    assert_eq!(console.send(Method::GET, "/live", None).send().await.unwrap().status(), 401);
    let login = console.send(Method::GET, "/login", None).send().await.unwrap();
    assert_eq!(login.status(), 200);

    let answer = console.sign_in_as(TOKEN).await;
    let cookie = answer.headers()["set-cookie"].to_str().unwrap().to_owned();
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict") && !cookie.contains(TOKEN), "{cookie}");
    assert!(!cookie.contains("Secure"), "the connection is not encrypted");
    let cookie = console.sign_in(TOKEN).await;
    for path in PAGES {
        let answer = console.get(path, &cookie).await;
        let policy = answer.headers()["content-security-policy"].to_str().unwrap().to_owned();
        assert!(policy.starts_with("default-src 'none'; script-src 'self';"), "{policy}");
        assert!(!policy.contains("unsafe"), "{policy}");
        for (header, value) in
            [("x-content-type-options", "nosniff"), ("cache-control", "no-store"), ("x-frame-options", "DENY")]
        {
            assert_eq!(answer.headers()[header], value, "{path}");
        }
        let text = answer.text().await.unwrap();
        assert!(!text.contains(TOKEN) && !text.contains(" style="), "{path}");
        assert!(!text.contains("//") || !text.contains("src=\"http"), "{path} loads something from elsewhere");
    }
    let stored: Vec<Vec<u8>> =
        sqlx::query_scalar("SELECT hash FROM console_sessions").fetch_all(&app.pool).await.unwrap();
    let secret = cookie.split_once('=').unwrap().1.as_bytes().to_vec();
    assert!(stored.len() == 2 && !stored.contains(&secret), "only a digest of the secret is stored");

    // A page that a person asks for keeps it from ending.
    sqlx::query("UPDATE console_sessions SET seen_at = now() - interval '50 minutes'")
        .execute(&app.pool)
        .await
        .unwrap();
    console.text("/", &cookie).await;
    let kept: i64 =
        sqlx::query_scalar("SELECT count(*) FROM console_sessions WHERE seen_at > now() - interval '49 minutes'")
            .fetch_one(&app.pool)
            .await
            .unwrap();
    assert_eq!(kept, 1);

    // A session ends by itself, by signing out, and with the token that opened it.
    sqlx::query("UPDATE console_sessions SET seen_at = now() - interval '61 minutes'")
        .execute(&app.pool)
        .await
        .unwrap();
    assert_eq!(console.get("/", &cookie).await.status(), 303, "an hour without a look ends it");
    let cookie = console.sign_in(TOKEN).await;
    let left: i64 = sqlx::query_scalar("SELECT count(*) FROM console_sessions").fetch_one(&app.pool).await.unwrap();
    assert_eq!(left, 1, "what has ended is forgotten");
    let token = csrf(&console.text("/", &cookie).await);
    assert_eq!(console.post("/logout", Some(&cookie), &[("csrf", "wrong")]).send().await.unwrap().status(), 403);
    assert_eq!(console.post("/logout", Some(&cookie), &[("csrf", &token)]).send().await.unwrap().status(), 303);
    assert_eq!(console.get("/", &cookie).await.status(), 303);
    let cookie = console.sign_in(TOKEN).await;
    sqlx::query("UPDATE console_sessions SET owner_mark = '\\x00'").execute(&app.pool).await.unwrap();
    assert_eq!(console.get("/", &cookie).await.status(), 303, "the owner's token is another now");

    let who = someone(&app, "one").await;
    let cookie = console.sign_in(&who.secret).await;
    assert_eq!(console.get("/documents", &cookie).await.status(), 200);
    let tokens = app.client.list_api_tokens(PrincipalPath { id: who.id }, PageQuery::default()).await.unwrap().tokens;
    app.client.revoke_api_token(ApiTokenPath { id: tokens[0].id }).await.unwrap();
    assert_eq!(console.get("/documents", &cookie).await.status(), 303);

    for _ in 0..5 {
        assert_eq!(console.sign_in_as("wrong").await.status(), 403);
    }
    assert_eq!(console.sign_in_as("wrong").await.status(), 429);
    assert_eq!(console.sign_in_as(TOKEN).await.status(), 303, "a token of another kind may be tried");
    console.end().await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_a_form_of_the_session_changes_anything() {
    let app = idle().await;
    let console = Console::of(&app).await;
    let root = node(&app, None).await;
    let id = task(&app, &root, WriteMode::Itself, 0, None).await;
    let cookie = console.sign_in(TOKEN).await;
    let other = console.sign_in(TOKEN).await;
    let token = csrf(&console.text("/", &cookie).await);
    let foreign = csrf(&console.text("/", &other).await);
    assert_ne!(token, foreign);
    let (cancel, retry, pause) =
        (format!("/tasks/{id}/cancel"), format!("/tasks/{id}/retry"), "/task-types/test/pause");
    let status = async || app.client.read_task(TaskPath { id: id.0 }).await.unwrap().status;
    let is_paused = async || {
        let types = app.client.list_task_types().await.unwrap().task_types;
        types.iter().any(|row| row.task_type == "test" && row.paused)
    };

    for path in [cancel.as_str(), pause] {
        for fields in [&[][..], &[("csrf", "")], &[("csrf", foreign.as_str())], &[("csrf", "x")]] {
            assert_eq!(console.post(path, Some(&cookie), fields).send().await.unwrap().status(), 403, "{path}");
        }
        let good = [("csrf", token.as_str())];
        let elsewhere = console.post(path, Some(&cookie), &good).header("sec-fetch-site", "cross-site");
        assert_eq!(elsewhere.send().await.unwrap().status(), 403, "a foreign page sends it");
        let elsewhere = console.send(Method::POST, path, Some(&cookie)).body(format!("csrf={token}"));
        assert_eq!(elsewhere.send().await.unwrap().status(), 403, "nobody says which page sends it");
        let elsewhere = console.send(Method::POST, path, Some(&cookie)).header("origin", "http://evil.example");
        assert_eq!(elsewhere.body(format!("csrf={token}")).send().await.unwrap().status(), 403);
        assert_eq!(console.post(path, None, &good).send().await.unwrap().status(), 303, "nobody is signed in");
        assert_eq!(console.get(path, &cookie).await.status(), 405, "no GET changes anything");
    }
    assert!(status().await == TaskStatus::Pending && !is_paused().await);

    let act = async |path: &str, back: &str| {
        let answer = console.post(path, Some(&cookie), &[("csrf", &token), ("back", back)]).send().await.unwrap();
        assert_eq!(answer.status(), 303, "{path}");
        let notice = answer.headers()["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned();
        let to = answer.headers()["location"].to_str().unwrap().to_owned();
        (to.clone(), console.text(&to, &format!("{cookie}; {notice}")).await)
    };
    let (to, page) = act(pause, "/tasks?type=test").await;
    assert!(to == "/tasks?type=test" && page.contains("Paused test.") && is_paused().await, "{to}");
    let (_, page) = act("/task-types/test/resume", "/").await;
    assert!(page.contains("Resumed test.") && !is_paused().await);
    let (to, page) = act(&cancel, "//evil.example").await;
    assert!(to == "/" && page.contains(&format!("Cancelled task {id}.")), "{to}");
    assert_eq!(status().await, TaskStatus::Failed);
    let (_, page) = act(&cancel, "/").await;
    assert!(page.contains("Refused:"), "it has been cancelled already");
    let (_, page) = act(&retry, &format!("/tasks/{id}")).await;
    assert!(page.contains(&format!("Queued task {id} again.")) && status().await == TaskStatus::Pending);
    act(&cancel, "/").await;
    let fields = [("csrf", token.as_str()), ("task_type", "test"), ("error_type", "permanent"), ("code", "cancelled")];
    let failed = console.text("/failed", &cookie).await;
    assert!(failed.contains("cancelled") && failed.contains("Retry 1"), "{failed}");
    let lately = console.text("/failed?minutes=60", &cookie).await;
    assert!(
        lately.contains("1 task failed for good in the last hour") && lately.contains(r#"name="minutes" value="60""#),
        "{lately}"
    );
    sqlx::query("UPDATE task_attempts SET ended_at = ended_at - interval '2 hours'").execute(&app.pool).await.unwrap();
    // Each has an address of its own, since a page is kept for a moment.
    assert!(console.text("/failed?minutes=90", &cookie).await.contains("Nothing has failed in the last 1 h 30"));
    assert!(console.text("/failed?minutes=180", &cookie).await.contains("Retry 1"));
    assert_eq!(console.get("/failed?minutes=soon", &cookie).await.status(), 422);
    let under = console.text(&format!("/tasks?status=failed&under={}", root.0), &cookie).await;
    assert!(under.contains(&format!("/tasks/{id}\"")) && under.contains("under "), "{under}");
    assert!(
        console.text(&format!("/documents/{}", root.0), &cookie).await.contains(&format!("/tasks?under={}\"", root.0))
    );
    assert_eq!(console.post("/failed/retry", Some(&cookie), &fields).send().await.unwrap().status(), 303);
    assert_eq!(status().await, TaskStatus::Pending);

    let acts: Vec<String> = app
        .client
        .list_audit(AuditQuery::default())
        .await
        .unwrap()
        .entries
        .into_iter()
        .map(|entry| entry.act.to_string())
        .collect();
    assert_eq!(
        acts,
        ["task.retry", "task.cancel", "task.retry", "task.cancel", "task_type.resume", "task_type.pause"],
        "each act is on record, once"
    );
    // Whoever goes to another page meanwhile hangs up on the form, and the act goes on.
    let mut held = app.pool.begin().await.unwrap();
    sqlx::query("LOCK TABLE access_audit IN EXCLUSIVE MODE").execute(&mut *held).await.unwrap();
    let form = tokio::spawn(console.post(pause, Some(&cookie), &[("csrf", token.as_str())]).send());
    until_a_statement_like_this_waits(&app.pool, "%INTO access_audit%").await;
    form.abort();
    assert!(form.await.unwrap_err().is_cancelled(), "it waits for the lock");
    // The console hears of that before it answers what comes later.
    for path in ["/workers", "/regions", "/actors"] {
        console.text(path, &cookie).await;
    }
    held.rollback().await.unwrap();
    until("the act to be carried out", async || is_paused().await.then_some(())).await;
    let host = console.send(Method::GET, "/login", None).header("host", "evil.example").send().await.unwrap();
    assert_eq!(host.status(), 403, "a foreign name that leads here");
    app.client.resume_task_type(TaskTypePath { task_type: "test".to_owned() }).await.unwrap();
    sqlx::query("DELETE FROM task_queue").execute(&app.pool).await.unwrap();
    console.end().await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sign_in_leads_to_the_page_that_was_asked_for_and_to_no_other_site() {
    let app = idle().await;
    let console = Console::of(&app).await;
    let get = async |path: &str| console.send(Method::GET, path, None).send().await.unwrap();
    let asked = "/view/7?cursor=x";
    let to = location(&get(asked).await);
    assert_eq!(to, "/login?to=%2Fview%2F7%3Fcursor%3Dx");
    let field = format!("type=\"hidden\" name=\"to\" value=\"{asked}\"");
    let page = get(&to).await.text().await.unwrap();
    assert!(page.contains(&field) && page.contains(&format!("<a href=\"{asked}\">")), "{page}");
    let sign_in = async |token: &str, to: &str| {
        console.post("/login", None, &[("token", token), ("to", to)]).send().await.unwrap()
    };
    let again = sign_in("wrong", asked).await;
    assert_eq!(again.status(), 403);
    assert!(again.text().await.unwrap().contains(&field), "the next try leads there as well");
    let evil = ["//evil.example", "/\\evil.example", "https://evil.example", "evil", "/a b", ""];
    for (given, leads) in [(asked, asked)].into_iter().chain(evil.map(|given| (given, "/"))) {
        let answer = sign_in(TOKEN, given).await;
        assert_eq!((answer.status().as_u16(), location(&answer).as_str()), (303, leads), "{given}");
    }
    for path in ["/login", "/login?to=%2F%2Fevil.example", "/login?to=https:%2F%2Fevil.example"] {
        let page = get(path).await.text().await.unwrap();
        assert!(!page.contains("name=\"to\"") && !page.contains("evil"), "{path}: {page}");
    }
    let file = get("/view/7/bytes?x=1").await;
    assert_eq!(location(&file), "/login?to=%2Fview%2F7", "a file that is saved leaves the browser where it was");
    // An address that would not fit into the form is left behind, and a form that was sent is not sent again.
    assert_eq!(location(&get(&format!("/view?q={}", "a".repeat(3_000))).await), "/login");
    let form = console.post("/task-types/embed/pause", None, &[]).send().await.unwrap();
    assert_eq!(location(&form), "/login");
    console.end().await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_from_others_is_shown_as_text() {
    let app = TestApp::start().await;
    let console = Console::of(&app).await;
    let name = "<script>alert(1)\"'><img src=x onerror=alert(2)>.md".to_owned();
    let id = app.upload_bytes(&name, "# A\n\nheron\n").await.unwrap().document_id;
    app.settled(id).await;
    let row = WorkerRow {
        worker_id: HOSTILE.to_owned(),
        boot_nonce: uuid::Uuid::new_v4(),
        version: HOSTILE.to_owned(),
        badges: vec![HOSTILE.to_owned()],
        strict: false,
        holds_folder: false,
        task_types: vec!["test".to_owned()],
        lease: Duration::from_secs(600),
    };
    workers::beat(&mut app.pool.acquire().await.unwrap(), &row, &serde_json::json!({})).await.unwrap();
    sqlx::query(
        "UPDATE task_queue /* forged */ SET status = 'failed', error_type = 'permanent', service_badge = $2 WHERE root_id = $1 AND task_type = 'probe'",
    )
    .bind(id)
    .bind(HOSTILE)
    .execute(&app.pool)
    .await
    .unwrap();
    sqlx::query("UPDATE task_attempts SET outcome = 'failed', code = $1, message = $1 WHERE task_type = 'probe'")
        .bind(HOSTILE)
        .execute(&app.pool)
        .await
        .unwrap();
    let cookie = console.sign_in(TOKEN).await;
    let task: i64 =
        sqlx::query_scalar("SELECT id FROM task_queue WHERE task_type = 'probe'").fetch_one(&app.pool).await.unwrap();
    let others = [
        format!("/documents/{id}"),
        format!("/tasks/{task}"),
        "/tasks?status=failed".to_owned(),
        format!("/workers/{}", "%3Cscript%3Ealert(1)%3C%2Fscript%3E"),
        "/documents?name=%3Cscript%3E".to_owned(),
        format!("/find?q={HOSTILE}"),
    ];
    for path in PAGES.iter().copied().chain(others.iter().map(String::as_str)) {
        let answer = console.get(path, &format!("{cookie}; svc_notice=%3Cscript%3Ealert(3)")).await;
        assert!([200, 303].contains(&answer.status().as_u16()), "{path}: {}", answer.status());
        let text = answer.text().await.unwrap();
        assert!(!text.contains("<script>alert") && !text.contains("<img"), "{path}");
    }
    let page = console.text(&format!("/documents/{id}"), &cookie).await;
    assert!(page.contains("&lt;script&gt;alert(1)"), "{page}");
    let failed = console.text("/failed", &cookie).await;
    assert!(failed.contains("&lt;script&gt;alert(1)&lt;/script&gt;"), "{failed}");
    sqlx::query("UPDATE task_queue /* forged */ SET status = 'completed', error_type = NULL, service_badge = NULL WHERE id = $1")
        .bind(task)
        .execute(&app.pool)
        .await
        .unwrap();
    sqlx::query(
        "UPDATE task_attempts SET outcome = 'completed', code = NULL, message = NULL WHERE task_type = 'probe'",
    )
    .execute(&app.pool)
    .await
    .unwrap();
    sqlx::query("DELETE FROM workers WHERE worker_id = $1").bind(HOSTILE).execute(&app.pool).await.unwrap();
    console.end().await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_no_operator_sees_documents_that_it_may_read_and_nothing_else() {
    let app = TestApp::start().await;
    let console = Console::of(&app).await;
    let (mine, _) = app.ingest(&sample("handbook.md")).await;
    let (hidden, _) = app.ingest(&sample("incident-report.md")).await;
    let (who, other) = (someone(&app, "reader").await, someone(&app, "other").await);
    grant(&app, &who, mine, GrantRight::Read).await;
    grant(&app, &other, hidden, GrantRight::Read).await;
    let cookie = console.sign_in(&who.secret).await;
    let first = console.get("/", &cookie).await;
    assert_eq!((first.status().as_u16(), first.headers()["location"].to_str().unwrap()), (303, "/view"));
    let list = console.text("/documents", &cookie).await;
    assert!(list.contains("handbook.md") && !list.contains("incident-report"), "{list}");
    assert!(!list.contains("href=\"/tasks\"") && list.contains("reader"), "the column has no page of an operator");
    let page = console.text(&format!("/documents/{mine}"), &cookie).await;
    let worker: String = sqlx::query_scalar("SELECT worker_id FROM workers").fetch_one(&app.pool).await.unwrap();
    assert!(page.contains("What happened") && !page.contains(&worker), "names of machines are the owner's");
    assert_eq!(console.get(&format!("/documents/{hidden}"), &cookie).await.status(), 404);
    for path in ["/actors", "/regions", "/tasks", "/failed", "/workers", "/feed", "/tasks/1", "/workers/w"] {
        let answer = console.get(path, &cookie).await;
        assert_eq!(answer.status(), 403, "{path}");
        assert!(answer.text().await.unwrap().contains("owner"), "{path} says whose it is");
    }
    let token = csrf(&page);
    for path in ["/tasks/1/retry", "/task-types/embed/pause"] {
        let answer = console.post(path, Some(&cookie), &[("csrf", &token)]).send().await.unwrap();
        let notice = answer.headers()["set-cookie"].to_str().unwrap();
        assert!(notice.contains("Refused"), "{path}: {notice}");
    }
    assert!(app.client.list_task_types().await.unwrap().task_types.iter().all(|row| !row.paused));
    console.end().await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_queue_makes_no_long_page_and_many_viewers_one_reading() {
    let app = idle().await;
    let console = Console::of(&app).await;
    let root = node(&app, None).await;
    task(&app, &root, WriteMode::Itself, 0, None).await;
    sqlx::query(
        "INSERT INTO task_queue (task_type, scope_document_id, lane, node_path, node_depth, root_id, write_mode)
         SELECT 'test:' || n % 9, scope_document_id, lane, node_path, node_depth, root_id, write_mode FROM task_queue, generate_series(1, 5000) n",
    )
    .execute(&app.pool)
    .await
    .unwrap();
    let cookie = console.sign_in(TOKEN).await;
    for path in PAGES.iter().copied().chain([format!("/documents/{}", root.0).as_str()]) {
        let page = console.text(path, &cookie).await;
        let rows = page.matches("<tr").count();
        assert!(page.len() < 250 * 1024 && rows <= 500, "{path}: {} bytes, {rows} rows", page.len());
    }
    let page = console.text("/tasks?type=test:1", &cookie).await;
    let (_, next) = page.split_once("href=\"/tasks?type=test:1&amp;cursor=").unwrap();
    let next = console.text(&format!("/tasks?type=test:1&cursor={}", next.split('"').next().unwrap()), &cookie).await;
    assert!(next.contains("test:1") && next != page);

    // All who ask in the same second are shown one reading.
    let fetch = async || {
        let answer = console.send(Method::GET, "/tasks?type=test:2", Some(&cookie)).header("x-fragment", "page").send();
        let text = answer.await.unwrap().text().await.unwrap();
        assert!(text.starts_with("<div id=\"page\">"), "{text}");
        text
    };
    let seen = futures_util::future::join_all((0..50).map(|_| fetch())).await;
    let distinct: std::collections::BTreeSet<_> = seen.into_iter().collect();
    assert!(distinct.len() <= 5, "{} readings for 50 viewers", distinct.len());
    sqlx::query("DELETE FROM task_queue").execute(&app.pool).await.unwrap();
    console.end().await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_live_page_is_told_of_news_and_the_stream_ends_with_the_service() {
    let app = TestApp::start().await;
    let console = Console::of(&app).await;
    let cookie = console.sign_in(TOKEN).await;
    let answer = http().get(format!("{}/live", console.base)).header("cookie", &cookie).send().await.unwrap();
    assert_eq!(answer.headers()["content-type"], "text/event-stream");
    let mut stream = answer.bytes_stream();
    let mut heard = String::new();
    until("news", async || {
        heard += std::str::from_utf8(&stream.next().await.unwrap().unwrap()).unwrap();
        heard.contains("event: changed").then_some(())
    })
    .await;
    app.service.ending.cancel();
    until("the end of the stream", async || stream.next().await.is_none().then_some(())).await;
    for query in ["handbook", "999999", "#999999"] {
        let answer =
            console.send(Method::GET, &format!("/find?q={}", query.replace('#', "%23")), Some(&cookie)).send().await;
        assert_eq!(answer.unwrap().status(), 303);
    }
    console.end().await;
    app.end().await;
}
