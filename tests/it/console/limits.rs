//! What one viewer may take of the console, so that the others keep theirs.
use super::{Console, csrf};
use crate::{
    admin::idle,
    principals::{grant, new_token, someone},
    queue::{node, task},
    support::{TOKEN, TestApp, Wish, document, http, until},
};
use futures_util::{StreamExt, future::join_all};
use reqwest::Method;
use std::time::Duration;
use svc::store::workers::{self, WorkerRow};
use svc_actors::WriteMode;
use svc_client::{
    Json,
    wire::{ApiTokenPath, DocumentPath, GrantPath, GrantRight, NewDocument, PrincipalPath, TaskTypePath, WaitQuery},
};

#[tokio::test(flavor = "multi_thread")]
async fn tokens_that_are_tried_at_once_are_counted_before_they_are_looked_for() {
    let app = idle().await;
    let console = Console::of(&app).await;
    let tries = join_all((0..30).map(|_| console.sign_in_as("wrong"))).await;
    let mut statuses: Vec<u16> = tries.iter().map(|answer| answer.status().as_u16()).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [vec![403; 5], vec![429; 25]].concat());
    // Everybody behind a proxy has its address, and who tries tokens there keeps the others out of nothing.
    console.sign_in(TOKEN).await;
    assert_eq!(console.sign_in_as("wrong").await.status(), 429);
    console.end().await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_live_page_ends_with_its_session_and_a_principal_leaves_places_to_others() {
    let app = TestApp::with(Wish { settings: &[("SVC_PRINCIPAL_SHARE", "0.02")], ..Wish::default() }).await;
    let console = Console::of(&app).await;
    let who = someone(&app, "viewer").await;
    let cookie = console.sign_in(&who.secret).await;
    let open = async |cookie: &str| {
        http().get(format!("{}/live", console.base)).header("cookie", cookie).send().await.unwrap()
    };
    let mut streams = Vec::new();
    let refused = loop {
        let answer = open(&cookie).await;
        if answer.status() != 200 {
            break answer;
        }
        streams.push(answer);
        assert!(streams.len() <= 4, "a fiftieth of 200 places");
    };
    assert_eq!((refused.status().as_u16(), streams.len()), (429, 4));
    let other = someone(&app, "other").await;
    for token in [&other.secret, TOKEN] {
        let cookie = console.sign_in(token).await;
        assert_eq!(open(&cookie).await.status(), 200);
    }
    app.client.revoke_api_token(ApiTokenPath { id: who.token_id }).await.unwrap();
    for stream in streams {
        let mut stream = stream.bytes_stream();
        until("the end of a stream whose token is revoked", async || stream.next().await.is_none().then_some(())).await;
    }
    console.end().await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pages_of_a_principal_count_as_its_requests_and_keep_no_operator_waiting() {
    let app = TestApp::with(Wish { settings: &[("SVC_RATE_READS", "1")], ..Wish::default() }).await;
    let console = Console::of(&app).await;
    let owner = console.sign_in(TOKEN).await;
    let mut viewers = Vec::new();
    for number in 0..4 {
        let who = someone(&app, &format!("viewer{number}")).await;
        viewers.push(console.sign_in(&who.secret).await);
    }
    // Pages of four principals wait for a lock.
    let mut held = app.pool.begin().await.unwrap();
    sqlx::query("LOCK TABLE documents IN ACCESS EXCLUSIVE MODE").execute(&mut *held).await.unwrap();
    let pages = viewers.iter().map(|cookie| console.get("/documents", cookie));
    let waiting = async {
        until("the pages wait", async || {
            let waiting: i64 = sqlx::query_scalar(
                "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'documents'::regclass
                    AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
            )
            .fetch_one(&app.pool)
            .await
            .unwrap();
            (waiting >= 4).then_some(())
        })
        .await;
        assert_eq!(console.get("/workers", &owner).await.status(), 200, "the operator does not wait behind them");
        held.rollback().await.unwrap();
    };
    let (pages, ()) = tokio::join!(join_all(pages), waiting);
    // A page whose reading takes too long says so.
    assert!(pages.iter().all(|page| [200, 503].contains(&page.status().as_u16())));
    // The page of a document takes several reads, and a principal has those of ten seconds.
    let path = format!("/documents/{}", app.create("Heron", "It waits.", None).await.id);
    let mut statuses = Vec::new();
    while !statuses.contains(&429) {
        statuses.push(console.get(&path, &viewers[1]).await.status().as_u16());
        assert!(statuses.len() < 20, "{statuses:?}");
    }
    assert!(statuses.contains(&200), "{statuses:?}");
    assert_eq!(console.get("/documents", &owner).await.status(), 200);
    console.end().await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_who_wait_for_an_overview_that_cannot_be_read_wait_for_one_look() {
    let app = idle().await;
    sqlx::raw_sql(
        "CREATE SEQUENCE looks;
         CREATE FUNCTION is_read() RETURNS boolean STABLE LANGUAGE plpgsql AS $$ BEGIN PERFORM nextval('looks'); RAISE EXCEPTION 'not now'; END $$;
         ALTER TABLE paused_task_type RENAME TO elsewhere;
         CREATE VIEW paused_task_type AS SELECT * FROM elsewhere WHERE is_read()",
    )
    .execute(&app.pool)
    .await
    .unwrap();
    let seen = join_all((0..20).map(|_| app.service.sampler.overview())).await;
    assert!(seen.iter().all(Option::is_none));
    let looks: i64 = sqlx::query_scalar("SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM looks")
        .fetch_one(&app.pool)
        .await
        .unwrap();
    // The sampler may take a look by itself meanwhile.
    assert!((1..10).contains(&looks), "{looks} looks for twenty who asked at once");
    sqlx::raw_sql(
        "DROP VIEW paused_task_type; ALTER TABLE elsewhere RENAME TO paused_task_type; DROP FUNCTION is_read; DROP SEQUENCE looks",
    )
    .execute(&app.pool)
    .await
    .unwrap();
    until("an overview", async || app.service.sampler.overview().await.map(drop)).await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_count_that_ends_early_says_so_and_many_silent_workers_are_one_thing_to_look_at() {
    let app = idle().await;
    let console = Console::of(&app).await;
    let root = node(&app, None).await;
    task(&app, &root, WriteMode::Itself, 0, None).await;
    sqlx::query(
        "INSERT INTO task_queue (task_type, scope_document_id, lane, node_path, node_depth, root_id, write_mode)
         SELECT 'test:0', scope_document_id, lane, node_path, node_depth, root_id, write_mode
           FROM task_queue, generate_series(1, 12000) n",
    )
    .execute(&app.pool)
    .await
    .unwrap();
    for number in 0..5 {
        let row = WorkerRow {
            worker_id: format!("gone-{number}"),
            boot_nonce: uuid::Uuid::new_v4(),
            version: "0".to_owned(),
            badges: Vec::new(),
            strict: false,
            holds_folder: false,
            task_types: vec!["test:0".to_owned()],
            lease: Duration::from_secs(1),
        };
        workers::beat(&mut app.pool.acquire().await.unwrap(), &row, &serde_json::json!({})).await.unwrap();
    }
    sqlx::query("UPDATE workers SET beat_at = now() - interval '1 minute' WHERE worker_id LIKE 'gone-%'")
        .execute(&app.pool)
        .await
        .unwrap();
    let cookie = console.sign_in(TOKEN).await;
    let page = until("the overview", async || {
        let page = console.text("/", &cookie).await;
        (page.contains("test:0") && page.contains("gone-")).then_some(page)
    })
    .await;
    assert!(page.contains("10,000+") && page.contains("5 workers have gone silent lately."), "{page}");
    assert!(!page.contains("10,000<") && !page.contains(">12,0"), "{page}");
    let tasks = console.text("/tasks", &cookie).await;
    assert!(tasks.contains(">10,000+<") && tasks.contains(">10,001+<"), "{tasks}");
    assert!(!tasks.contains("10,000<") && !tasks.contains("10,001<"), "{tasks}");
    sqlx::query("DELETE FROM task_queue").execute(&app.pool).await.unwrap();
    console.end().await;
    app.end().await;
}

/// A document that nobody embeds.
async fn waiting(app: &TestApp, title: &str) -> i64 {
    app.client.create_document(WaitQuery::default(), Json(document(title, "Text."))).await.unwrap().document.id
}

/// Has an attempt at the task of a document end.
async fn attempted(app: &TestApp, id: i64) {
    sqlx::query(
        "INSERT INTO task_attempts (document_id, task_id, task_type, attempt, outcome, worker, started_at, param_fingerprint)
         SELECT scope_document_id, id, task_type, 1, 'lease_lost', 'w', now(), '' FROM task_queue WHERE scope_document_id = $1",
    )
    .bind(id)
    .execute(&app.pool)
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_ends_here_ends_for_its_live_pages_at_once() {
    let app = idle().await;
    let console = Console::of(&app).await;
    let fragment = async |cookie: &str| {
        let request = console.send(Method::GET, "/documents", Some(cookie)).header("x-fragment", "page");
        request.send().await.unwrap().status().as_u16()
    };
    let who = someone(&app, "viewer").await;
    let (one, two) = (console.sign_in(&who.secret).await, console.sign_in(&who.secret).await);
    let token = csrf(&console.text("/documents", &one).await);
    for cookie in [&one, &two] {
        // What is read for the first of these is what the second is answered by.
        assert_eq!((fragment(cookie).await, fragment(cookie).await), (200, 200));
    }
    assert_eq!(console.post("/logout", Some(&one), &[("csrf", &token)]).send().await.unwrap().status(), 303);
    assert_eq!((fragment(&one).await, fragment(&two).await), (401, 200), "only the one that signed out");
    app.client.revoke_api_token(ApiTokenPath { id: who.token_id }).await.unwrap();
    assert_eq!(fragment(&two).await, 401);
    // The rights of a live page are those of now, too.
    let who = someone(&app, "reader").await;
    let cookie = console.sign_in(&who.secret).await;
    let closed = waiting(&app, "Closed").await;
    app.client.protect_document(DocumentPath { id: closed }).await.unwrap();
    let path = format!("/documents/{closed}");
    let sees = async || {
        console
            .send(Method::GET, &path, Some(&cookie))
            .header("x-fragment", "page")
            .send()
            .await
            .unwrap()
            .status()
            .as_u16()
    };
    assert_eq!(sees().await, 404);
    grant(&app, &who, closed, GrantRight::Read).await;
    assert_eq!(sees().await, 200);
    app.client.delete_grant(GrantPath { id: closed, principal_id: who.id }).await.unwrap();
    assert_eq!(sees().await, 404);
    console.end().await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_signs_in_again_and_again_signs_nobody_else_out() {
    let app = idle().await;
    let console = Console::of(&app).await;
    let owner = console.sign_in(TOKEN).await;
    let who = someone(&app, "viewer").await;
    let first = console.sign_in(&who.secret).await;
    // Stands for as many times that somebody has signed in.
    let signed_in = async |token_id: i64, times: i64| {
        sqlx::query(
            "INSERT INTO console_sessions (hash, token_id, csrf)
             SELECT sha256(convert_to(format('%s %s', $1::bigint, n), 'UTF8')), $1, 'c' FROM generate_series(1, $2) n",
        )
        .bind(token_id)
        .bind(times)
        .execute(&app.pool)
        .await
        .unwrap();
    };
    let count = async |of: &'static str| -> i64 {
        let query = sqlx::AssertSqlSafe(format!("SELECT count(*) FROM console_sessions WHERE {of}"));
        sqlx::query_scalar(query).fetch_one(&app.pool).await.unwrap()
    };
    signed_in(who.token_id, 1_000).await;
    let latest = console.sign_in(&who.secret).await;
    let answers = async |path: &str, cookie: &str| console.get(path, cookie).await.status().as_u16();
    assert_eq!(answers("/workers", &owner).await, 200, "the owner is signed in");
    assert_eq!((answers("/documents", &latest).await, answers("/documents", &first).await), (200, 303));
    assert_eq!((count("token_id IS NOT NULL").await, count("token_id IS NULL").await), (50, 1));
    // With many tokens it goes no better.
    for number in 0..25 {
        let token = new_token(&format!("token {number}"));
        let issued = app.client.issue_api_token(PrincipalPath { id: who.id }, Json(token)).await.unwrap();
        signed_in(issued.token.id, 50).await;
    }
    let latest = console.sign_in(&who.secret).await;
    assert_eq!((answers("/workers", &owner).await, answers("/documents", &latest).await), (200, 200));
    assert_eq!((count("true").await, count("token_id IS NULL").await), (1_000, 1));
    console.end().await;
    app.end().await;
}

/// A principal's live page, which hears something at each beat.
struct Heard {
    answer: reqwest::Response,
    beats: u32,
}

impl Heard {
    async fn open(console: &Console, cookie: &str) -> Heard {
        let asked = http().get(format!("{}/live", console.base)).header("cookie", cookie);
        let mut answer = asked.send().await.unwrap();
        assert!(answer.chunk().await.unwrap().unwrap().starts_with(b"retry:"));
        Heard { answer, beats: 0 }
    }

    /// What is heard at the next beat, and whether the page would have heard of news whatever happened.
    async fn beat(&mut self) -> (bool, bool) {
        let piece = self.answer.chunk().await.unwrap().unwrap();
        let text = std::str::from_utf8(&piece).unwrap();
        assert!(text.contains("event: changed") || text.contains(": quiet"), "{text}");
        self.beats += 1;
        (text.contains("event: changed"), self.beats.is_multiple_of(5))
    }

    /// Whether something happened, by the next beat that says so.
    async fn is_news(&mut self) -> bool {
        loop {
            let (is_news, is_always) = self.beat().await;
            if !is_always {
                return is_news;
            }
            assert!(is_news, "every fifth beat says so");
        }
    }

    async fn until(&mut self, is_news: bool) {
        until("the live page to hear that", async || (self.is_news().await == is_news).then_some(())).await;
    }

    /// Waits until the page reads itself again, for whatever reason.
    async fn changed(&mut self) {
        until("the live page to be told", async || self.beat().await.0.then_some(())).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_of_a_principal_is_told_of_news_only_when_there_is_some() {
    let app = idle().await;
    drop(svc::events::sequencer::start(app.pool.clone()));
    let console = Console::of(&app).await;
    let who = someone(&app, "viewer").await;
    let cookie = console.sign_in(&who.secret).await;
    let mut heard = Heard::open(&console, &cookie).await;
    heard.until(false).await;
    let heron = waiting(&app, "Heron").await;
    heard.until(true).await;
    heard.until(false).await;
    // What is ingested changes before an event says so.
    attempted(&app, heron).await;
    heard.until(true).await;
    heard.until(false).await;
    let closed = waiting(&app, "Closed").await;
    app.client.protect_document(DocumentPath { id: closed }).await.unwrap();
    heard.until(false).await;
    grant(&app, &who, closed, GrantRight::Read).await;
    heard.changed().await;
    sqlx::raw_sql("DELETE FROM task_attempts; DELETE FROM task_queue").execute(&app.pool).await.unwrap();
    console.end().await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_of_a_principal_is_told_nothing_of_what_it_may_not_read() {
    let app = idle().await;
    drop(svc::events::sequencer::start(app.pool.clone()));
    let console = Console::of(&app).await;
    let who = someone(&app, "viewer").await;
    let folder = waiting(&app, "Folder").await;
    app.client.protect_document(DocumentPath { id: folder }).await.unwrap();
    let cookie = console.sign_in(&who.secret).await;
    let mut heard = Heard::open(&console, &cookie).await;
    heard.until(false).await;
    for _ in 0..2 {
        let new = NewDocument { parent_id: Some(folder), ..document("Hidden", "Text.") };
        let id = app.client.create_document(WaitQuery::default(), Json(new)).await.unwrap().document.id;
        attempted(&app, id).await;
        // Between two pieces the service looks once for what happened.
        for _ in 0..3 {
            assert!(!heard.is_news().await);
        }
    }
    waiting(&app, "Heron").await;
    heard.until(true).await;
    sqlx::raw_sql("DELETE FROM task_attempts; DELETE FROM task_queue").execute(&app.pool).await.unwrap();
    console.end().await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_of_a_principal_follows_what_its_tasks_wait_for() {
    let app = idle().await;
    let console = Console::of(&app).await;
    let who = someone(&app, "viewer").await;
    let cookie = console.sign_in(&who.secret).await;
    let embed = || TaskTypePath { task_type: "embed".to_owned() };
    app.client.pause_task_type(embed()).await.unwrap();
    let path = format!("/documents/{}", waiting(&app, "Heron").await);
    let mut heard = Heard::open(&console, &cookie).await;
    heard.until(false).await;
    let is_paused = async || console.text(&path, &cookie).await.contains(">paused<");
    assert!(is_paused().await);
    app.client.resume_task_type(embed()).await.unwrap();
    // No attempt ends, and no event says that the task waits for something else now.
    heard.changed().await;
    assert!(!is_paused().await);
    sqlx::raw_sql("DELETE FROM task_queue").execute(&app.pool).await.unwrap();
    console.end().await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_live_page_tells_nothing_of_what_its_viewer_may_not_read_any_more() {
    let app = idle().await;
    let console = Console::of(&app).await;
    let who = someone(&app, "viewer").await;
    let closed = waiting(&app, "Closed").await;
    grant(&app, &who, closed, GrantRight::Read).await;
    let cookie = console.sign_in(&who.secret).await;
    let mut heard = Heard::open(&console, &cookie).await;
    app.client.delete_grant(GrantPath { id: closed, principal_id: who.id }).await.unwrap();
    attempted(&app, closed).await;
    let mut news = 0;
    for _ in 0..4 {
        news += u32::from(heard.is_news().await);
    }
    assert!(news <= 1, "it hears that it lost the right, and nothing of the attempt: {news}");
    sqlx::raw_sql("DELETE FROM task_attempts; DELETE FROM task_queue").execute(&app.pool).await.unwrap();
    console.end().await;
    app.end().await;
}
