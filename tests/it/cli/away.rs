//! What brings files in while the service is away.
use super::{before, end_of, lines, some_files, start, text};
use crate::support::{TOKEN, TestApp, Wish, proxy::Weather, sample, until, web::Web};
use std::time::Duration;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_that_sends_calls_on_is_named_with_the_one_to_set_and_no_token_goes_there() {
    let (elsewhere, moved) = (Web::start().await, Web::start().await);
    let location = format!("location: {}\r\n", elsewhere.url("/documents/1"));
    for path in ["/documents/1", "/documents/1?include_embed=false"] {
        moved.put(path, "301 Moved Permanently", &location, b"");
    }
    for arguments in [["get", "1"], ["rm", "1"]] {
        let done = end_of(start(&format!("http://{}", moved.at), &arguments)).await;
        let said = text(&done.stderr);
        assert_eq!(done.status.code(), Some(1), "{arguments:?}: {said}");
        assert!(said.contains(&elsewhere.at) && said.contains("SVC_URL"), "{arguments:?}: {said}");
        assert!(!said.contains(TOKEN) && !said.contains("refuses the token"), "{arguments:?}: {said}");
    }
    assert!(elsewhere.asked().is_empty(), "{:?}", elsewhere.asked());
}

#[tokio::test]
async fn a_service_that_is_not_there_is_said_once_and_at_once() {
    let (one, other) = (sample("handbook.md").display().to_string(), sample("empty.txt").display().to_string());
    for arguments in [&["ingest", &one, &other][..], &["fetch", "http://example.org/heron", "2301.00001"]] {
        let done = end_of(start("http://127.0.0.1:9", arguments)).await;
        let said = text(&done.stderr);
        assert_eq!(done.status.code(), Some(1), "{arguments:?}: {said}");
        assert!(said.contains("start `svc serve`") && said.lines().count() == 1, "{arguments:?}: {said}");
        assert!(done.stdout.is_empty(), "no file was refused: {}", text(&done.stdout));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn uploads_wait_for_a_service_that_goes_away_for_a_moment() {
    const FILES: usize = 24;
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let folder = some_files(&app, FILES);
    let proxy = before(&app).await;
    proxy.set(Weather::Slow(Duration::from_millis(20)));
    let ingest = start(&format!("http://{}", proxy.address), &["ingest", "--no-wait", &folder.display().to_string()]);
    until("some files to be stored", async || {
        let stored: i64 = sqlx::query_scalar("SELECT count(*) FROM document_blobs").fetch_one(&app.pool).await.unwrap();
        (stored >= 4).then_some(())
    })
    .await;
    proxy.set(Weather::Cut);
    until("the command to lose the service", async || (!proxy.is_carrying()).then_some(())).await;
    proxy.set(Weather::Fair);
    let done = end_of(ingest).await;
    assert!(done.status.success(), "{} {}", text(&done.stdout), text(&done.stderr));
    let reports = lines(&done);
    assert_eq!(reports.len(), FILES);
    assert!(reports.iter().all(|report| report["document_id"].is_i64()), "{reports:?}");
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_is_to_be_looked_after_only_where_the_call_may_have_changed_something() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    for (arguments, asks, looks) in [
        (&["status"][..], "GET /health", false),
        (&["ls"], "GET /documents/roots", false),
        (&["search", "heron"], "POST /search/", false),
        (&["rm", "1"], "DELETE /documents/1", true),
    ] {
        let proxy = before(&app).await;
        proxy.set(Weather::Blackhole);
        let child = start(&format!("http://{}", proxy.address), arguments);
        until("the command to ask", async || proxy.has_heard(asks).then_some(())).await;
        proxy.set(Weather::Cut);
        let done = end_of(child).await;
        let said = text(&done.stderr);
        assert_eq!(done.status.code(), Some(1), "{arguments:?}: {said}");
        assert!(said.contains("no answer from") && !said.contains("start `svc serve`"), "{arguments:?}: {said}");
        assert_eq!(said.contains("carried out"), looks, "{arguments:?}: {said}");
    }
    app.end().await;
}
