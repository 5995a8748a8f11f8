//! What every answer shows, whatever was asked.
use crate::support::{TestApp, Wish};
use serde_json::Value;
use std::sync::atomic::Ordering;

#[tokio::test(flavor = "multi_thread")]
async fn every_answer_has_an_id_and_the_headers_that_guard_browsers() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    for (method, path, status) in [
        ("GET", "/health", 200),
        ("GET", "/documents/99", 404),
        ("GET", "/nowhere", 404),
        ("PUT", "/documents", 405),
        ("GET", "/docs/", 200),
    ] {
        let given = format!("proxy-{status}");
        let answer = app.raw(method, path).header("x-request-id", &given).send().await.unwrap();
        assert_eq!(answer.status(), status, "{path}");
        for (header, value) in
            [("x-content-type-options", "nosniff"), ("content-security-policy", "frame-ancestors 'none'")]
        {
            assert_eq!(answer.headers()[header], value, "{path}");
        }
        if status >= 400 {
            assert_eq!(answer.headers()["x-request-id"], given.as_str(), "{path}");
            assert_eq!(answer.json::<Value>().await.unwrap()["request_id"], given, "{path}");
        }
    }
    let answer = app.raw("GET", "/nowhere").header("x-request-id", "not one; of ours").send().await.unwrap();
    let id = answer.headers()["x-request-id"].to_str().unwrap();
    assert!(id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
    let metrics = app.raw("GET", "/metrics").send().await.unwrap().text().await.unwrap();
    for status in [404, 405] {
        assert!(metrics.contains(&format!("operation=\"none\",status=\"{status}\"")), "{metrics}");
    }
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_browser_comes_to_the_documentation() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let answer = app.raw("GET", "/").send().await.unwrap();
    assert!(answer.status() == 200 && answer.url().path() == "/docs/", "{answer:?}");
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_stops_is_not_ready() {
    let app = TestApp::start().await;
    app.service.stopping.store(true, Ordering::Relaxed);
    let answer = app.raw("GET", "/ready").send().await.unwrap();
    assert_eq!(answer.status(), 503);
    assert!(answer.text().await.unwrap().contains("stopping"));
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_that_takes_too_long_is_given_up_by_name() {
    let settings = [("SVC_REQUEST_TIMEOUT_SECONDS", "0.2")];
    let app = TestApp::with(Wish { settings: &settings, no_worker: true, ..Wish::default() }).await;
    let mut held = app.pool.begin().await.unwrap();
    sqlx::query("LOCK documents").execute(&mut *held).await.unwrap();
    let answer = app.raw("GET", "/documents/roots").send().await.unwrap();
    assert_eq!((answer.status().as_u16(), answer.headers().contains_key("retry-after")), (503, true));
    assert!(answer.text().await.unwrap().contains("SVC_REQUEST_TIMEOUT_SECONDS"));
    held.rollback().await.unwrap();
    assert_eq!(app.raw("GET", "/documents/roots").send().await.unwrap().status(), 200);
    app.end().await;
}
