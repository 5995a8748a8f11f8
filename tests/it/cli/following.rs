//! What is told of files that wait, and of files that failed.
use super::{end_of, interrupt, lines, start, svc, text};
use crate::support::{TestApp, Wish, proxy::Proxy, sample, until, until_a_statement_like_this_waits};
use std::io::{BufRead, BufReader};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_nobody_takes_says_what_it_waits_for() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let mut child = start(&app.base, &["ingest", sample("handbook.md").to_str().unwrap()]);
    let mut errors = BufReader::new(child.stderr.take().unwrap());
    let first = tokio::task::spawn_blocking(move || {
        let mut line = String::new();
        errors.read_line(&mut line).unwrap();
        (line, errors)
    });
    let (said, errors) = first.await.unwrap();
    assert!(said.starts_with("document ") && said.contains("no worker is alive: start svc-worker"), "{said}");
    interrupt(&child);
    let done = end_of(child).await;
    assert_eq!(done.status.code(), Some(130));
    drop(errors);
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_are_reported_though_nobody_says_why_one_failed() {
    let app = TestApp::start().await;
    let (path, other) = (sample("corrupt.pdf"), sample("handbook.md"));
    let (id, _) = app.ingest(&path).await;
    let service = app.base.strip_prefix("http://").unwrap().parse().unwrap();
    // The first makes the call one that the service does not take, and the second one for a document that is gone.
    for (heard, state) in [(b"XET /documents/", "failed"), (b"GET /documentz/", "deleted")] {
        let proxy = Proxy::rewriting(service, b"GET /documents/", heard).await;
        let files = ["ingest", path.to_str().unwrap(), other.to_str().unwrap()];
        let done = end_of(start(&format!("http://{}", proxy.address), &files)).await;
        let said = text(&done.stderr);
        let reports = lines(&done);
        assert_eq!((done.status.code(), reports.len()), (Some(3), 2), "{said}");
        assert_eq!((&reports[0]["document_id"], &reports[0]["state"]), (&id.into(), &state.into()), "{said}");
        assert_eq!(reports[1]["state"], "settled", "{said}");
        assert_eq!(said.contains("does not say why files failed"), state == "failed", "{said}");
    }
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_are_reported_though_nobody_waits_until_it_is_known_why_one_failed() {
    let app = TestApp::start().await;
    let path = sample("corrupt.pdf");
    let (id, _) = app.ingest(&path).await;
    // An upload of a file that failed looks for the reason too.
    let mut of_the_upload = app.pool.begin().await.unwrap();
    sqlx::query("LOCK TABLE task_attempts").execute(&mut *of_the_upload).await.unwrap();
    let mut child = start(&app.base, &["ingest", path.to_str().unwrap()]);
    until_a_statement_like_this_waits(&app.pool, "%FROM task_attempts WHERE document_id = $1 %LIMIT 1000%").await;
    let mut of_the_reason = app.pool.begin().await.unwrap();
    let locked = tokio::spawn(async move {
        sqlx::query("LOCK TABLE node_origins").execute(&mut *of_the_reason).await.unwrap();
        of_the_reason
    });
    until_a_statement_like_this_waits(&app.pool, "LOCK TABLE node_origins").await;
    of_the_upload.rollback().await.unwrap();
    let of_the_reason = locked.await.unwrap();
    until_a_statement_like_this_waits(&app.pool, "%SELECT $3, anchor FROM node_origins%").await;
    interrupt(&child);
    until("the command to end", async || child.try_wait().unwrap()).await;
    of_the_reason.rollback().await.unwrap();
    let done = end_of(child).await;
    let (said, reports) = (text(&done.stderr), lines(&done));
    assert_eq!((done.status.code(), reports.len()), (Some(3), 1), "{said}");
    assert_eq!((&reports[0]["document_id"], &reports[0]["state"]), (&id.into(), &"failed".into()), "{said}");
    assert!(reports[0]["reason"].is_null() && said.contains("stopped before it was known why"), "{said}");
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_is_told_what_a_search_could_not_show() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    app.upload(&sample("handbook.md")).await.unwrap();
    let found = svc(&app, &["search", "radar gauge", "--method", "bm25"]).await;
    assert!(found.status.success() && found.stdout.is_empty(), "{}", text(&found.stdout));
    assert!(text(&found.stderr).contains("1 nodes are still being ingested"), "{}", text(&found.stderr));
    app.end().await;
}
