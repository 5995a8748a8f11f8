//! Manifests of `svc bulk`: every field of a message by row, through the broker and by uploads, what is said beforehand, and what is waited for.
use super::{
    base64,
    bulk::{by_broker, by_uploads, ran, text},
    count, feed, hash, note,
};
use crate::{
    cli::lines,
    support::{TestApp, Wish, document, proxy::Proxy, until, web::Web},
};
use serde_json::{Value, json};
use std::{fs, path::Path, process::Output};
use svc_client::{
    Json,
    wire::{DocumentPath, EmbedQuery, GrantRight, WaitQuery},
};

/// Writes a manifest beside its files.
fn manifest(folder: &Path, rows: &[Value]) -> String {
    let path = folder.join("files.jsonl");
    fs::write(&path, rows.iter().map(|row| format!("{row}\n")).collect::<String>()).unwrap();
    text(&path)
}

fn last(output: &Output) -> Value {
    lines(output).pop().unwrap_or_else(|| panic!("{}", String::from_utf8_lossy(&output.stderr)))
}

/// Three rows that say everything: a path, bytes in the row and an address.
fn rows(folder: &Path, parent: i64, url: &str) -> Vec<Value> {
    fs::create_dir_all(folder.join("in")).unwrap();
    fs::write(folder.join("in/a.bin"), note(95_001)).unwrap();
    vec![
        json!({
            "v": 1, "source": {"path": "in/a.bin"}, "sha256": hash(note(95_001).as_bytes()), "byte_size": note(95_001).len(),
            "filename": "heron.md", "declared_mime": "text/x-heron", "parent_id": parent, "priority": 3,
            "event_time": "2026-05-01T12:00:00Z", "options": {"structure": {"max_tokens": 200}},
        }),
        json!({"source": {"inline_base64": base64(note(95_002).as_bytes())}, "filename": "inline.md", "private": true}),
        json!({"source": {"url": url}, "filename": "fetched.md", "parent_id": parent}),
    ]
}

/// Checks that what the first two rows say is so.
async fn is_as_said(app: &TestApp, parent: i64) {
    let (id, mime, time): (i64, Option<String>, Option<String>) = sqlx::query_as(
        "SELECT d.id, b.declared_mime, (d.event_time AT TIME ZONE 'UTC')::text FROM documents d JOIN document_blobs b ON b.document_id = d.id
          WHERE d.title = 'heron.md' AND d.parent_id = $1",
    )
    .bind(parent)
    .fetch_one(&app.pool)
    .await
    .unwrap();
    assert_eq!((mime.as_deref(), time.as_deref()), (Some("text/x-heron"), Some("2026-05-01 12:00:00")));
    let evidence = app.client.read_evidence(DocumentPath { id }).await.unwrap().evidence;
    assert_eq!(evidence["options"]["structure"]["max_tokens"], 200, "{evidence:?}");
    let priority = app.client.read_frontier(DocumentPath { id }).await.unwrap().priority;
    assert_eq!(priority, Some(3));
    let private = "documents d JOIN access_roots a ON a.document_id = d.id WHERE d.title = 'inline.md'";
    assert_eq!(count(&app.pool, private).await, 1);
    let fetched: i64 =
        sqlx::query_scalar("SELECT id FROM documents WHERE title = 'fetched.md'").fetch_one(&app.pool).await.unwrap();
    let read =
        app.client.read_document(DocumentPath { id: fetched }, EmbedQuery::default()).await.unwrap().value().unwrap();
    assert_eq!(read.parent_id, Some(parent));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_says_all_that_a_message_says_and_bad_rows_are_refused_by_their_line() {
    let web = Web::start().await;
    web.put("/f.md", "200 OK", "content-type: text/markdown\r\n", note(95_003).as_bytes());
    let allow = format!("[{:?}]", web.at);
    let Some(feed) = feed(true, &[("SVC_FETCH_ALLOW", &allow)]).await else { return };
    let parent = feed.app.client.create_document(WaitQuery::default(), Json(document("Folder", "."))).await.unwrap().id;
    feed.app.client.protect_document(DocumentPath { id: parent }).await.unwrap();
    crate::principals::grant(&feed.app, &feed.uploader, parent, GrantRight::Write).await;
    let work = tempfile::tempdir().unwrap();
    let mut all = rows(work.path(), parent, &web.url("/f.md"));
    all.extend([
        json!({"source": {"path": "in/a.bin"}, "nonsense": 1}),
        json!({"source": {"path": "in/none.md"}}),
        json!({"source": {"path": "in/a.bin"}, "sha256": hash(b"other"), "filename": "wrong.md"}),
    ]);
    let path = manifest(work.path(), &all);
    let journal = work.path().join("journal");
    let run = async |more: &[&str]| {
        let arguments: Vec<&str> = [path.as_str()].iter().chain(more).copied().collect();
        ran(by_broker(&feed, &journal, &arguments)).await
    };
    let dry = run(&["--dry-run"]).await;
    assert_eq!(dry.status.code(), Some(3), "{dry:?}");
    let said = lines(&dry);
    let left: Vec<&str> =
        said.iter().filter(|line| line["outcome"] == "left").map(|line| line["file"].as_str().unwrap()).collect();
    assert!(left.len() == 3 && left[0].ends_with("files.jsonl:4"), "{left:?}");
    let would: Vec<&Value> = said.iter().filter(|line| line["outcome"] == "would_send").collect();
    assert_eq!((would.len(), &would[0]["filename"], &would[0]["parent_id"]), (3, &json!("heron.md"), &json!(parent)));
    assert_eq!(last(&dry), json!({"would_send": 3, "left": 3, "before": 0}));
    assert!(!journal.exists() && web.asked().is_empty() && count(&feed.app.pool, "bulk_message").await == 0);

    let sent = run(&[]).await;
    let account = last(&sent);
    assert_eq!((&account["accepted"], &account["left"]), (&json!(3), &json!(3)), "{account}");
    assert_eq!(sent.status.code(), Some(3));
    is_as_said(&feed.app, parent).await;
    // What was sent is not sent again, and a mended row is.
    let sha256 = hash(note(95_003).as_bytes());
    all[3] =
        json!({"source": {"url": web.url("/f.md")}, "sha256": sha256, "filename": "again.md", "parent_id": parent});
    all.truncate(4);
    manifest(work.path(), &all);
    assert_eq!(last(&run(&["--dry-run"]).await), json!({"would_send": 1, "left": 0, "before": 3}));
    let again = run(&[]).await;
    assert_eq!(
        (&last(&again)["duplicate"], &last(&again)["before"], again.status.code()),
        (&json!(1), &json!(3), Some(0))
    );
    feed.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_broker_a_row_says_the_same() {
    let web = Web::start().await;
    let page =
        format!("<!doctype html><html><body><article><p>{}</p></article></body></html>", note(95_003).repeat(20));
    web.put("/f.html", "200 OK", "content-type: text/html\r\n", page.as_bytes());
    let allow = format!("[{:?}]", web.at);
    let wish = Wish { settings: &[("SVC_FETCH_ALLOW", &allow)], no_worker: true, ..Wish::default() };
    let app = TestApp::with(wish).await;
    let parent = app.client.create_document(WaitQuery::default(), Json(document("Folder", "."))).await.unwrap().id;
    let work = tempfile::tempdir().unwrap();
    let mut all = rows(work.path(), parent, &web.url("/f.html"));
    web.put("/g.md", "200 OK", "content-type: text/markdown\r\n", note(95_004).as_bytes());
    all.extend([
        // Nobody would look at these.
        json!({"source": {"url": web.url("/f.html")}, "sha256": hash(b"x")}),
        json!({"source": {"url": web.url("/f.html")}, "declared_mime": "text/plain"}),
        // No entry takes what is there.
        json!({"source": {"url": web.url("/g.md")}}),
    ]);
    let path = manifest(work.path(), &all);
    let journal = work.path().join("journal");
    let sent = ran(by_uploads(&app, &journal, &[&path])).await;
    let account = last(&sent);
    let counts = ["accepted", "left", "rejected"].map(|name| account[name].as_u64().unwrap());
    assert_eq!(counts, [3, 2, 1], "{sent:?}");
    let said = lines(&sent);
    let reasons = |outcome: &str| -> Vec<(&str, &str)> {
        let of = said.iter().filter(|line| line["outcome"] == outcome);
        of.map(|line| (line["file"].as_str().unwrap(), line["reason"].as_str().unwrap())).collect()
    };
    for ((file, reason), (number, name)) in reasons("left").into_iter().zip([(4, "sha256"), (5, "declared_mime")]) {
        assert!(file.ends_with(&format!("files.jsonl:{number}")), "{file}");
        assert!(
            reason.contains(name) && reason.contains("leave it out") && reason.contains("SVC_AMQP_URL"),
            "{reason}"
        );
    }
    let [(_, reason)] = reasons("rejected")[..] else { panic!("{said:?}") };
    for part in ["files.jsonl:6: ", "text/markdown", "name its path", "SVC_AMQP_URL"] {
        assert!(reason.contains(part), "{part}: {reason}");
    }
    is_as_said(&app, parent).await;
    // What was rejected is tried again.
    let again = ran(by_uploads(&app, &journal, &[&path, "--dry-run"])).await;
    assert_eq!(last(&again), json!({"would_send": 1, "left": 2, "before": 3}));
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_keeps_its_priority_though_the_service_is_away_after_it_was_fetched() {
    let web = Web::start().await;
    let page =
        format!("<!doctype html><html><body><article><p>{}</p></article></body></html>", note(95_030).repeat(20));
    web.put("/f.html", "200 OK", "content-type: text/html\r\n", page.as_bytes());
    let allow = format!("[{:?}]", web.at);
    let wish = Wish { settings: &[("SVC_FETCH_ALLOW", &allow)], no_worker: true, ..Wish::default() };
    let app = TestApp::with(wish).await;
    // The database takes no writes when the priority is first changed.
    sqlx::raw_sql(
        "CREATE SEQUENCE changes;
         CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN IF nextval('changes') = 1 THEN RAISE EXCEPTION 'a fault' USING ERRCODE = '25006'; END IF; RETURN NEW; END $$;
         CREATE TRIGGER refuse BEFORE UPDATE OF priority ON ingest_node FOR EACH ROW EXECUTE FUNCTION refuse()",
    )
    .execute(&app.pool)
    .await
    .unwrap();
    let work = tempfile::tempdir().unwrap();
    let path = manifest(work.path(), &[json!({"source": {"url": web.url("/f.html")}, "priority": 5})]);
    let sent = ran(by_uploads(&app, &work.path().join("journal"), &[&path])).await;
    let account = last(&sent);
    assert_eq!((&account["accepted"], &account["duplicate"]), (&json!(1), &json!(0)), "{sent:?}");
    let kept: Vec<(i32, i64)> = sqlx::query_as("SELECT priority, (SELECT last_value FROM changes) FROM ingest_node")
        .fetch_all(&app.pool)
        .await
        .unwrap();
    assert_eq!(kept, [(5, 2)]);
    app.end().await;
}

/// A file that is ingested, and one that is taken and then fails.
fn good_and_bad(folder: &Path) -> String {
    fs::write(folder.join("good.md"), note(95_010)).unwrap();
    fs::copy(crate::support::sample("corrupt.pdf"), folder.join("bad.pdf")).unwrap();
    manifest(folder, &[json!({"source": {"path": "good.md"}}), json!({"source": {"path": "bad.pdf"}})])
}

fn is_failed(output: &Output) {
    let account = last(output);
    let counts = ["accepted", "settled", "failed", "waiting"].map(|name| account[name].as_u64().unwrap());
    assert_eq!((counts, output.status.code()), ([2, 1, 1, 0], Some(3)), "{output:?}");
    let said = lines(output);
    let failed = said.iter().find(|line| line["outcome"] == "failed").unwrap_or_else(|| panic!("{said:?}"));
    assert!(failed["file"].as_str().unwrap().ends_with("bad.pdf"), "{failed}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_learns_what_failed_after_it_was_taken() {
    let Some(feed) = feed(false, &[]).await else { return };
    let work = tempfile::tempdir().unwrap();
    let path = good_and_bad(work.path());
    is_failed(&ran(by_broker(&feed, &work.path().join("journal"), &[&path, "--wait"])).await);
    // Who does not wait is done when it is taken.
    let taken = ran(by_broker(&feed, &work.path().join("other"), &[&path])).await;
    assert_eq!(taken.status.code(), Some(0), "{taken:?}");
    // Who comes later learns what others were told when it happened.
    is_failed(&ran(by_broker(&feed, &work.path().join("third"), &[&path, "--wait", "--patience", "10"])).await);
    feed.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_learns_the_end_of_what_came_again_and_of_what_is_deleted() {
    let Some(feed) = feed(true, &[]).await else { return };
    let work = tempfile::tempdir().unwrap();
    fs::write(work.path().join("a.md"), note(95_040)).unwrap();
    let path = manifest(work.path(), &[json!({"source": {"path": "a.md"}})]);
    let taken = ran(by_broker(&feed, &work.path().join("first"), &[&path])).await;
    assert_eq!(taken.status.code(), Some(0), "{taken:?}");
    let journal = work.path().join("second");
    let running = tokio::spawn(ran(by_broker(&feed, &journal, &[&path, "--wait", "--patience", "30"])));
    until("it is waited for", async || {
        fs::read_to_string(&journal).is_ok_and(|text| text.contains(r#""outcome":"accepted""#)).then_some(())
    })
    .await;
    let id: i64 = sqlx::query_scalar("SELECT id FROM documents").fetch_one(&feed.app.pool).await.unwrap();
    feed.app.client.delete_document(DocumentPath { id }).await.unwrap();
    let output = running.await.unwrap();
    let account = last(&output);
    assert_eq!((&account["failed"], &account["waiting"]), (&json!(1), &json!(0)), "{account}");
    let said = lines(&output);
    let cancelled = said.iter().find(|line| line["outcome"] == "cancelled").unwrap_or_else(|| panic!("{said:?}"));
    assert!(cancelled["reason"].as_str().unwrap().contains("deleted"), "{cancelled}");
    feed.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_without_a_broker_learns_the_same() {
    let app = TestApp::start().await;
    let work = tempfile::tempdir().unwrap();
    let path = good_and_bad(work.path());
    is_failed(&ran(by_uploads(&app, &work.path().join("journal"), &[&path, "--wait"])).await);
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_without_a_broker_is_patient_since_the_last_file_ended() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let proxy = Proxy::of_service(app.base.trim_start_matches("http://").parse().unwrap()).await;
    let work = tempfile::tempdir().unwrap();
    let names = ["a.md", "b.md"];
    for (name, number) in names.into_iter().zip(95_020..) {
        fs::write(work.path().join(name), note(number)).unwrap();
    }
    let path = manifest(work.path(), &names.map(|name| json!({"source": {"path": name}})));
    let mut command = by_uploads(&app, &work.path().join("journal"), &[&path, "--wait", "--patience", "5"]);
    command.env("SVC_URL", format!("http://{}", proxy.address));
    let running = tokio::spawn(ran(command));
    let [first, second] = until("both are stored", async || {
        let stored: Vec<i64> =
            sqlx::query_scalar("SELECT id FROM documents ORDER BY id").fetch_all(&app.pool).await.unwrap();
        <[i64; 2]>::try_from(stored).ok()
    })
    .await;
    let asked = |id: i64| proxy.times_heard(&format!("GET /ingest/file/{id}/frontier"));
    until("the first one is waited for", async || (asked(first) > 0).then_some(())).await;
    app.client.delete_document(DocumentPath { id: second }).await.unwrap();
    // It is followed, then looked at with the other one, and followed again because that has ended.
    until("it is waited for once more", async || (asked(first) > 2).then_some(())).await;
    app.client.delete_document(DocumentPath { id: first }).await.unwrap();
    let account = last(&running.await.unwrap());
    assert_eq!((&account["failed"], &account["waiting"]), (&json!(2), &json!(0)), "{account}");
    app.end().await;
}
