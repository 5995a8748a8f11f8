//! Requests that ask for too much, and others beside them that must not notice.
use crate::support::{TestApp, Wish, invariants, until};
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection};
use svc_client::{
    Code, Json,
    wire::{FulltextSearch, HybridSearch, PageQuery},
};

/// Locks the documents until it is closed, so that readers wait.
async fn hold_documents(app: &TestApp) -> PgConnection {
    let mut holder = PgConnection::connect_with(&app.options).await.unwrap();
    sqlx::raw_sql("BEGIN; LOCK TABLE documents IN ACCESS EXCLUSIVE MODE").execute(&mut holder).await.unwrap();
    holder
}

#[tokio::test]
async fn a_leg_that_fails_leaves_the_other_in_no_transaction() {
    let app = TestApp::start().await;
    app.create("Tides", "The moon pulls the oceans.", None).await;
    let long = "ab ".repeat(2000);
    for _ in 0..20 {
        let failure = app.client.search_hybrid(Json(HybridSearch::new(&long))).await.unwrap_err();
        assert_eq!(failure.code, Code::TextTooLong, "{failure}");
    }
    invariants::check_idle(&app.pool).await;
    for _ in 0..40 {
        app.client.list_roots(PageQuery::default()).await.unwrap();
        app.client.search_hybrid(Json(HybridSearch::new("moon"))).await.unwrap();
    }
    app.end().await;
}

#[tokio::test]
async fn a_body_of_too_many_values_is_refused_while_it_is_read() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let many = format!("[{}0]", r#"{"":0},"#.repeat(200_000));
    let send = async |path: &str, body: String| {
        let request = app.raw("POST", path).header("content-type", "application/json").body(body);
        let answer = request.send().await.unwrap();
        (answer.status().as_u16(), answer.json::<Value>().await.unwrap())
    };
    let content = json!({"content": many.as_str()}).to_string();
    for (path, field, body) in [
        ("/conversations", "messages", format!("{{\"messages\":{many}}}")),
        ("/conversations", "options", format!("{{\"options\":{{\"a\":{many}}}}}")),
        ("/conversations", "content", content),
        ("/ingest/explain", "options", format!("{{\"format\":\"text\",\"options\":{{\"a\":{many}}}}}")),
        ("/ingest/explain", "patterns", format!("{{\"format\":\"text\",\"patterns\":{{\"a\":{many}}}}}")),
        (
            "/ingest",
            "turns",
            format!(
                "{{\"entry\":\"conversation\",\"turns\":[{{\"speaker\":\"Ann\",\"text\":\"x\",\"metadata\":{{\"a\":{many}}}}}]}}"
            ),
        ),
        (
            "/search/bm25",
            "filter",
            format!("{{\"query\":\"x\",\"filter\":{{\"any\":[{}{{}}]}}}}", "{},".repeat(300_000)),
        ),
    ] {
        let (status, problem) = send(path, body).await;
        let at = problem["field"].as_str().unwrap_or_default();
        assert!(status == 422 && at.starts_with(field), "{path} {field}: {problem}");
        let detail = problem["detail"].as_str().unwrap();
        assert!(detail.contains("values"), "{path} {field}: {detail}");
    }
    let call = format!("{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/list\",\"params\":{many}}}");
    let (status, refused) = send("/mcp", call).await;
    assert_eq!((status, &refused["error"]["code"]), (413, &json!(-32600)), "{refused}");
    app.end().await;
}

#[tokio::test]
async fn a_query_of_words_that_must_not_occur_is_refused() {
    let app = TestApp::start().await;
    app.create("Tides", "The moon pulls the oceans.", None).await;
    let search = async |query: &str| app.client.search_fulltext(Json(FulltextSearch::new(query))).await;
    for query in [
        "-fox ".repeat(1500),
        "-fox ".repeat(64),
        "-fox".to_owned(),
        "-\"red fox\"".to_owned(),
        "moon or -fox".to_owned(),
    ] {
        let failure = search(&query).await.unwrap_err();
        assert_eq!((failure.code, failure.members["field"].as_str()), (Code::InvalidField, Some("query")), "{query}");
    }
    let failure = search(&"moon ".repeat(65)).await.unwrap_err();
    assert_eq!(failure.members["limit"], 64, "{failure}");
    assert_eq!(search(&"moon ".repeat(64)).await.unwrap().total, 1);
    assert_eq!(search("moon -fox").await.unwrap().total, 1);
    assert_eq!(search("moon or fox -bread").await.unwrap().total, 1);
    // Words that are everywhere are in no index, and find nothing.
    assert_eq!(search("the of").await.unwrap().total, 0);
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_search_more_than_may_be_at_work_is_told_to_come_again() {
    let app = TestApp::with(Wish { settings: &[("SVC_SEARCHES_AT_ONCE", "2")], ..Wish::default() }).await;
    app.create("Tides", "The moon pulls the oceans.", None).await;
    let holder = hold_documents(&app).await;
    let searches: Vec<_> =
        (0..2).map(|_| tokio::spawn(app.raw("POST", "/search/bm25").json(&json!({"query": "moon"})).send())).collect();
    until("both searches", async || (app.service.admission.free_searches() == 0).then_some(())).await;
    let answer = app.raw("POST", "/search/fulltext").json(&json!({"query": "moon"})).send().await.unwrap();
    assert_eq!((answer.status().as_u16(), answer.headers().contains_key("retry-after")), (429, true));
    let problem: Value = answer.json().await.unwrap();
    assert_eq!(
        (problem["code"].as_str(), problem["setting"].as_str()),
        (Some("too_many_requests"), Some("SVC_SEARCHES_AT_ONCE"))
    );
    // Nobody else waits for a slot.
    app.client.read_health().await.unwrap();
    holder.close().await.unwrap();
    for search in searches {
        let found: Value = search.await.unwrap().unwrap().json().await.unwrap();
        assert_eq!(found["results"][0]["title"], "Tides", "{found}");
    }
    app.end().await;
}

#[tokio::test]
async fn a_statement_that_takes_too_long_is_given_up_by_the_server() {
    // Long enough for what nobody holds up, on a loaded machine too.
    let app = TestApp::with(Wish { settings: &[("SVC_STATEMENT_TIMEOUT_SECONDS", "2")], ..Wish::default() }).await;
    let id = app.create("Tides", "The moon pulls the oceans.", None).await.id;
    let holder = hold_documents(&app).await;
    for (method, path, body) in [
        ("POST", "/search/fulltext", json!({"query": "moon"})),
        ("POST", "/search/hybrid", json!({"query": "moon"})),
        ("POST", "/documents", json!({"title": "Bread", "content": "Yeast."})),
        ("GET", "/documents/roots", Value::Null),
    ] {
        let request = app.raw(method, path);
        let request = if body.is_null() { request } else { request.json(&body) };
        let answer = request.send().await.unwrap();
        let (status, problem) = (answer.status().as_u16(), answer.json::<Value>().await.unwrap());
        assert_eq!((status, problem["code"].as_str()), (503, Some("timed_out")), "{path}: {problem}");
        assert_eq!(problem["setting"], "SVC_STATEMENT_TIMEOUT_SECONDS");
        assert!(problem["remedy"].is_string(), "{problem}");
    }
    // Tasks have limits of their own.
    let limit: String = sqlx::query_scalar("SHOW statement_timeout").fetch_one(&app.service.task_pool).await.unwrap();
    assert_eq!(limit, "0");
    holder.close().await.unwrap();
    app.raw("GET", &format!("/documents/{id}")).send().await.unwrap().error_for_status().unwrap();
    app.end().await;
}
