//! The page of a document: why it is not done, and who may do what about it.
use super::{Console, csrf};
use crate::{
    admin::{idle, of_root},
    principals::someone,
    queue,
    support::{TOKEN, TestApp, sample},
};
use reqwest::Method;
use serde_json::json;
use std::collections::BTreeSet;
use svc_actors::WriteMode;
use svc_client::{
    Code, FileUpload, OptionalJson,
    wire::{
        AttemptOutcome, AuditAct, AuditQuery, DocumentPath, PageQuery, StoryQuery, TaskPath, TaskQuery, TaskStatus,
        UploadQuery,
    },
};

#[tokio::test(flavor = "multi_thread")]
async fn the_page_of_a_failed_file_says_why_and_offers_only_what_its_viewer_may_do() {
    let app = TestApp::start().await;
    let console = Console::of(&app).await;
    let id = app.upload_bytes("broken.pdf", "%PDF-1.7\nnothing of the kind").await.unwrap().document_id;
    app.settled(id).await;
    let owner = console.sign_in(TOKEN).await;
    let page = console.text(&format!("/documents/{id}"), &owner).await;
    let (_, card) = page.split_once("Why is it not done?").unwrap();
    let (card, _) = card.split_once("</section>").unwrap();
    assert!(card.contains("It failed, and nothing more will be done.") && card.contains("permanent"), "{card}");
    let attempts = app.client.read_story(DocumentPath { id }, StoryQuery::default()).await.unwrap().entries;
    let last = attempts.iter().rev().find_map(|entry| entry.message.clone()).unwrap();
    let text = card.replace("&quot;", "\"").replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    assert!(text.contains(&last), "{last}: {card}");
    assert!(page.contains("Retry what failed") && page.contains("/tasks/"));
    let reader = someone(&app, "reader").await;
    let cookie = console.sign_in(&reader.secret).await;
    let page = console.text(&format!("/documents/{id}"), &cookie).await;
    assert!(
        page.contains("permanent") && !page.contains("Retry what failed") && !page.contains("href=\"/tasks/"),
        "{page}"
    );
    console.end().await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_there_cannot_be_acted_on_and_a_number_leads_to_what_has_it() {
    let app = TestApp::start().await;
    let console = Console::of(&app).await;
    let (id, _) = app.ingest(&sample("handbook.md")).await;
    let owner = console.sign_in(TOKEN).await;
    let token = csrf(&console.text("/", &owner).await);
    for (path, says) in [
        ("/documents/999999/retry", "there%20is%20no%20document%20999999"),
        ("/task-types/nope/resume", "there%20is%20no%20task%20type%20%60nope%60"),
        ("/task-types/nope/pause", "there%20is%20no%20task%20type%20%60nope%60"),
    ] {
        let answer = console.post(path, Some(&owner), &[("csrf", &token)]).send().await.unwrap();
        let notice = answer.headers()["set-cookie"].to_str().unwrap().to_owned();
        assert!(notice.contains(says), "{path}: {notice}");
    }
    let task: i64 = sqlx::query_scalar("SELECT min(id) FROM task_queue").fetch_one(&app.pool).await.unwrap();
    for (query, to) in [
        (id.to_string(), format!("/documents/{id}")),
        (format!("%23{task}"), format!("/tasks/{task}")),
        ("2024".to_owned(), "/documents?name=2024".to_owned()),
        ("%23999999".to_owned(), "/documents?name=%23999999".to_owned()),
    ] {
        let answer = console.send(Method::GET, &format!("/find?q={query}"), Some(&owner)).send().await.unwrap();
        assert_eq!(answer.headers()["location"].to_str().unwrap(), to, "{query}");
    }
    console.end().await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_is_on_record() {
    let app = idle().await;
    let console = Console::of(&app).await;
    let id = app.upload(&sample("handbook.md")).await.unwrap().document_id;
    let owner = console.sign_in(TOKEN).await;
    let token = csrf(&console.text("/", &owner).await);
    let cancel = console.post(&format!("/documents/{id}/cancel"), Some(&owner), &[("csrf", &token)]);
    assert_eq!(cancel.send().await.unwrap().status(), 303);
    let query = AuditQuery { document_id: Some(id), ..AuditQuery::default() };
    let entries = app.client.list_audit(query).await.unwrap().entries;
    assert_eq!(entries.iter().map(|entry| entry.act).collect::<Vec<_>>(), [AuditAct::IngestCancel]);
    assert!(console.text(&format!("/documents/{id}"), &owner).await.contains("ingest.cancel"));
    // What has ended cannot be cancelled, and nothing is recorded of that.
    console.post(&format!("/documents/{id}/cancel"), Some(&owner), &[("csrf", &token)]).send().await.unwrap();
    let query = AuditQuery { document_id: Some(id), ..AuditQuery::default() };
    assert_eq!(app.client.list_audit(query).await.unwrap().entries.len(), 1);
    console.end().await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_which_nothing_has_run_yet_can_be_cancelled() {
    let app = idle().await;
    let console = Console::of(&app).await;
    let id = app.upload(&sample("handbook.md")).await.unwrap().document_id;
    let owner = console.sign_in(TOKEN).await;
    let path = format!("/documents/{id}");
    let page = console.text(&path, &owner).await;
    assert!(page.contains("No task has run here.") && page.contains("Retry what failed"), "{page}");
    assert!(page.contains(&format!("action=\"{path}/cancel\"")), "{page}");
    let token = csrf(&page);
    let cancel = console.post(&format!("{path}/cancel"), Some(&owner), &[("csrf", &token)]).send().await.unwrap();
    assert!(cancel.headers()["set-cookie"].to_str().unwrap().contains("Cancelled%20the%20ingestion"));
    let page = console.text(&format!("{path}?look=2"), &owner).await;
    assert!(!page.contains(&format!("action=\"{path}/cancel\"")), "{page}");
    console.end().await;
    app.end().await;
}

/// The documents that a page links to.
fn linked(page: &str) -> BTreeSet<i64> {
    let links = page.split("href=\"/documents/").skip(1).map(|rest| rest.split('"').next().unwrap());
    links.map(|link| link.parse().unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reprocess_is_seen_and_cancelled_at_its_file_and_what_belongs_to_it_leads_there() {
    let mut app = TestApp::start().await;
    let console = Console::of(&app).await;
    let (id, _) = app.ingest(&sample("handbook.md")).await;
    app.stop_worker().await;
    let begun = app.client.reprocess_file(DocumentPath { id }, OptionalJson(None)).await.unwrap();
    let root = begun.root_id;
    let owner = console.sign_in(TOKEN).await;
    let path = format!("/documents/{id}");
    let page = console.text(&path, &owner).await;
    assert!(page.contains("<h2>Reprocess</h2>") && page.contains("a reprocess builds another tree"), "{page}");
    assert!(page.contains(&format!("/tasks?file={root}\"")) && page.contains("no worker is alive"), "{page}");
    assert!(page.contains(&format!("action=\"{path}/cancel\"")), "{page}");
    assert!(page.contains("Cancel the reprocess of") && !page.contains("It owes no work."), "{page}");

    let task = app.client.list_tasks(of_root(root)).await.unwrap().tasks.remove(0);
    assert_eq!((task.root_id, task.reprocess_of), (root, Some(id)));
    // What a worker tells of its actors, and a task that has failed.
    let now = chrono::Utc::now();
    let actor = |kind: &str, children: Vec<serde_json::Value>| json!({"kind": kind, "state": "running", "since": now, "handled": 1, "queued": 0, "restarts": 0, "children": children});
    let mut document = actor("document", Vec::new());
    document["document_id"] = json!(root);
    document["title"] = json!("handbook.md");
    let tree = actor("root", vec![actor("documents", vec![document])]);
    sqlx::query(
        "INSERT INTO workers (worker_id, boot_nonce, version, badges, task_types, lease, beat_at, snapshot)
         VALUES ('busy', gen_random_uuid(), '1', '{}', '{probe}', interval '10 minutes', now(), $1)",
    )
    .bind(json!({"taken_at": now, "actors": 3, "omitted": 0, "root": tree, "totals": [], "lanes": []}))
    .execute(&app.pool)
    .await
    .unwrap();
    let ended = async |status: &str, is_final: bool, error_type: Option<&str>| {
        sqlx::query("UPDATE task_queue SET status = $2, final = $3, ready = NOT $3, error_type = $4 WHERE id = $1")
            .bind(task.id)
            .bind(status)
            .bind(is_final)
            .bind(error_type)
            .execute(&app.pool)
            .await
            .unwrap();
    };
    let pages = ["/tasks".to_owned(), format!("/tasks/{}", task.id), "/actors".to_owned()];
    let mut shown = Vec::new();
    for page in &pages {
        shown.push(console.text(page, &owner).await);
    }
    ended("failed", true, Some("permanent")).await;
    shown.push(console.text("/failed", &owner).await);
    ended("pending", false, None).await;
    for page in shown {
        let links = linked(&page);
        assert!(links.contains(&id), "{page}");
        for link in links {
            assert_eq!(console.get(&format!("/documents/{link}"), &owner).await.status(), 200, "{link}: {page}");
        }
        assert!(!page.contains(&format!("/documents/{root}\"")), "{page}");
    }
    // Whoever has the number of the tree finds the file.
    assert_eq!(linked(&console.text(&format!("/documents/{root}"), &owner).await), [id].into());
    let reader = someone(&app, "reader").await;
    let cookie = console.sign_in(&reader.secret).await;
    assert_eq!(console.get(&format!("/documents/{root}"), &cookie).await.status(), 404);

    let token = csrf(&page);
    console.post(&format!("{path}/cancel"), Some(&owner), &[("csrf", &token)]).send().await.unwrap();
    assert_eq!(app.client.read_frontier(DocumentPath { id }).await.unwrap().reprocess, None);
    let page = console.text(&format!("{path}?look=2"), &owner).await;
    assert!(!page.contains("<h2>Reprocess</h2>") && page.contains("It owes no work."), "{page}");
    assert_eq!(console.get(&format!("/documents/{root}?look=2"), &owner).await.status(), 404);
    sqlx::query("DELETE FROM workers").execute(&app.pool).await.unwrap();
    console.end().await;
    app.end().await;
}

/// Forgets all attempts but the last: whoever tries again what failed for good has more of them than a task makes by itself.
async fn forget_tries(app: &TestApp) {
    sqlx::query("DELETE FROM task_attempts a USING task_attempts b WHERE b.task_id = a.task_id AND b.id > a.id")
        .execute(&app.pool)
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_failed_is_tried_again_from_the_page_of_a_file_a_part_and_a_folder() {
    let app = TestApp::start().await;
    let console = Console::of(&app).await;
    let folder = app.create("Folder", "Files.", None).await.id;
    let query = UploadQuery { parent_id: Some(folder), ..UploadQuery::default() };
    let broken = FileUpload::from_bytes("broken.pdf", "%PDF-1.7\nnothing of the kind", None);
    let file = app.client.upload_file(query, broken).await.unwrap().document_id;
    app.settled(file).await;
    let owner = console.sign_in(TOKEN).await;
    let token = csrf(&console.text("/", &owner).await);
    let retry = async |id: i64| {
        let answer =
            console.post(&format!("/documents/{id}/retry"), Some(&owner), &[("csrf", &token)]).send().await.unwrap();
        answer.headers()["set-cookie"].to_str().unwrap().to_owned()
    };
    for id in [file, folder] {
        let notice = retry(id).await;
        assert!(notice.contains("Queued%201%20task%20again."), "{id}: {notice}");
        app.settled(file).await;
    }
    let beside = app.create("Beside", "Nothing failed here.", None).await.id;
    let notice = retry(beside).await;
    assert!(notice.contains("Nothing%20has%20failed%20for%20good%20here."), "{notice}");
    forget_tries(&app).await;
    console.end().await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_failed_for_good_is_found_behind_whatever_is_tried_again_by_itself() {
    // More than are read at a time.
    const AGAIN: i64 = 1_001;
    let app = idle().await;
    let console = Console::of(&app).await;
    let root = queue::node(&app, None).await;
    queue::task(&app, &root, WriteMode::Itself, 0, None).await;
    sqlx::query(
        "INSERT INTO task_queue (task_type, scope_document_id, lane, node_path, node_depth, root_id, write_mode, status, ready, error_type, retry_after)
         SELECT task_type, scope_document_id, lane, node_path, node_depth, root_id, write_mode, 'failed', false, 'retryable', now() + interval '1 hour'
           FROM task_queue, generate_series(1, $1) n",
    )
    .bind(AGAIN)
    .execute(&app.pool)
    .await
    .unwrap();
    let failed = queue::task(&app, &root, WriteMode::Itself, 0, None).await;
    app.client.cancel_task(TaskPath { id: failed.0 }).await.unwrap();
    let owner = console.sign_in(TOKEN).await;
    let token = csrf(&console.text("/", &owner).await);
    for says in ["Queued%201%20task%20again.", "Nothing%20has%20failed%20for%20good%20here."] {
        let retry = console.post(&format!("/documents/{}/retry", root.0), Some(&owner), &[("csrf", &token)]);
        let notice = retry.send().await.unwrap().headers()["set-cookie"].to_str().unwrap().to_owned();
        assert!(notice.contains(says), "{says}: {notice}");
    }
    assert_eq!(app.client.read_task(TaskPath { id: failed.0 }).await.unwrap().status, TaskStatus::Pending);
    sqlx::query("DELETE FROM task_queue").execute(&app.pool).await.unwrap();
    console.end().await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_latest_of_a_long_story_is_shown_first_and_leads_to_what_was_before() {
    const LATE: i64 = 450;
    let app = TestApp::start().await;
    let console = Console::of(&app).await;
    let (id, _) = app.ingest(&sample("handbook.md")).await;
    let whole = app.client.read_story(DocumentPath { id }, StoryQuery::default()).await.unwrap();
    assert!(whole.entries.len() > 3 && whole.next_cursor.is_none());
    sqlx::query(
        "INSERT INTO task_attempts (document_id, task_id, task_type, attempt, outcome, error_type, code, message, worker, started_at, ended_at, param_fingerprint)
         SELECT $1, max(id), 'late', n, 'failed', 'permanent', 'corrupt', 'try ' || n, 'w', now() + n * interval '1 second', now() + n * interval '1 second', ''
           FROM task_queue, generate_series(1, $2) n GROUP BY n",
    )
    .bind(id)
    .bind(LATE)
    .execute(&app.pool)
    .await
    .unwrap();
    let (mut parts, mut cursor) = (Vec::new(), None);
    loop {
        let query = StoryQuery { cursor, limit: Some(130) };
        let part = app.client.read_story(DocumentPath { id }, query).await.unwrap();
        assert!(part.entries.is_sorted_by_key(|entry| entry.started_at));
        parts.push(part.entries);
        cursor = part.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    assert_eq!(
        parts[0].last().unwrap().message.as_deref(),
        Some(format!("try {LATE}").as_str()),
        "the latest comes first"
    );
    parts.reverse();
    let told: Vec<(String, i32)> = parts.concat().into_iter().map(|entry| (entry.task_type, entry.attempt)).collect();
    let before = whole.entries.into_iter().map(|entry| (entry.task_type, entry.attempt));
    assert_eq!(told, before.chain((1..=LATE).map(|n| ("late".to_owned(), n as i32))).collect::<Vec<_>>());
    let refused = StoryQuery { cursor: Some("soon".to_owned()), limit: None };
    assert_eq!(app.client.read_story(DocumentPath { id }, refused).await.unwrap_err().members["field"], "cursor");

    let owner = console.sign_in(TOKEN).await;
    let mut address = format!("/documents/{id}");
    let mut seen = 0;
    for (latest, is_last) in [(LATE, false), (LATE - 200, false), (LATE - 400, true)] {
        let page = console.text(&address, &owner).await;
        assert!(
            page.contains(&format!("try {latest}<")) && !page.contains(&format!("try {}<", latest + 1)),
            "{address}"
        );
        assert_eq!(page.contains("there is more before this"), !is_last, "{address}");
        assert_eq!(page.contains("This is an earlier part"), latest < LATE, "{address}");
        seen += 1;
        let Some((_, link)) = page.split_once(&format!("href=\"/documents/{id}?before=")) else { break };
        let cursor = link.split('"').next().unwrap();
        address = format!("/documents/{id}?before={cursor}");
    }
    assert_eq!(seen, 3);
    for (query, status) in [("state=failed", 200), ("state=nonsense", 422), ("state=", 200)] {
        let answer = console.get(&format!("/documents?{query}"), &owner).await;
        assert_eq!(answer.status().as_u16(), status, "{query}");
        assert_eq!(answer.text().await.unwrap().contains("nonsense"), status == 422);
    }
    forget_tries(&app).await;
    console.end().await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_of_a_task_shows_each_attempt_at_it() {
    let app = TestApp::start().await;
    let console = Console::of(&app).await;
    let id = app.upload_bytes("broken.pdf", "%PDF-1.7\nnothing of the kind").await.unwrap().document_id;
    app.settled(id).await;
    let failed = TaskQuery { status: Some(TaskStatus::Failed), under: Some(id), ..TaskQuery::default() };
    let task = app.client.list_tasks(failed).await.unwrap().tasks.remove(0).id;
    app.client.retry_task(TaskPath { id: task }).await.unwrap();
    app.settled(id).await;
    let page = async |cursor: Option<String>| {
        app.client
            .list_attempts(TaskPath { id: task }, PageQuery { cursor, limit: Some(1), ..PageQuery::default() })
            .await
            .unwrap()
    };
    let latest = page(None).await;
    let first = page(latest.next_cursor.clone()).await;
    assert_eq!((latest.attempts.len(), first.attempts.len(), first.next_cursor), (1, 1, None));
    let (latest, first) = (&latest.attempts[0], &first.attempts[0]);
    assert!(first.started_at < latest.started_at && latest.task_id == task);
    assert!(latest.outcome == AttemptOutcome::Failed && latest.worker.is_some() && latest.message.is_some());
    let missing = app.client.list_attempts(TaskPath { id: 999_999 }, PageQuery::default()).await.unwrap_err();
    assert!(missing.code == Code::NotFound && missing.detail.contains("999999"), "{missing}");

    let owner = console.sign_in(TOKEN).await;
    let shown = console.text(&format!("/tasks/{task}"), &owner).await;
    let (_, card) = shown.split_once("<h2>Attempts</h2>").unwrap();
    let (card, _) = card.split_once("</section>").unwrap();
    let rows = card.matches("<tr>").count() - 1;
    assert_eq!((rows, card.matches(latest.worker.as_deref().unwrap()).count()), (2, 2), "{card}");
    assert!(card.contains(latest.code.as_deref().unwrap()), "{card}");
    // One that nobody has tried says so.
    let waits = queue::task(&app, &queue::node(&app, None).await, WriteMode::Itself, 0, Some("nobody")).await;
    assert!(console.text(&format!("/tasks/{waits}"), &owner).await.contains("No attempt has ended."));
    sqlx::query("DELETE FROM task_queue WHERE service_badge = 'nobody'").execute(&app.pool).await.unwrap();
    forget_tries(&app).await;
    console.end().await;
    app.end().await;
}
