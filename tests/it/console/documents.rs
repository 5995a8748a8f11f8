//! The page of a document: why it is not done, and who may do what about it.
use super::{Console, csrf};
use crate::{
    admin::{idle, of_root},
    principals::someone,
    queue,
    support::{TOKEN, TestApp, sample, until, until_a_statement_like_this_waits},
};
use reqwest::Method;
use serde_json::json;
use std::collections::BTreeSet;
use svc_actors::WriteMode;
use svc_client::{
    Code, FileUpload, OptionalJson,
    wire::{
        AttemptOutcome, AuditAct, AuditQuery, DocumentPath, PageQuery, StoryQuery, TaskPath, TaskQuery, TaskStatus,
        TaskTypePath, UploadQuery,
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
    // Of two that are listed the second one is gone when its turn comes.
    let gone = queue::task(&app, &root, WriteMode::Itself, 0, None).await;
    for id in [failed, gone] {
        app.client.cancel_task(TaskPath { id: id.0 }).await.unwrap();
    }
    let mut held = app.pool.begin().await.unwrap();
    sqlx::query("LOCK TABLE access_audit IN EXCLUSIVE MODE").execute(&mut *held).await.unwrap();
    let retry = console.post(&format!("/documents/{}/retry", root.0), Some(&owner), &[("csrf", &token)]).send();
    let purge = async {
        until_a_statement_like_this_waits(&app.pool, "%INTO access_audit%").await;
        sqlx::query("DELETE FROM task_queue WHERE id = $1").bind(gone.0).execute(&app.pool).await.unwrap();
        held.rollback().await.unwrap();
    };
    let (retry, ()) = tokio::join!(retry, purge);
    let notice = retry.unwrap().headers()["set-cookie"].to_str().unwrap().to_owned();
    assert!(notice.contains("Queued%201%20task%20again."), "{notice}");
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

/// Forges tasks of a file that have ended like this.
async fn forged(app: &TestApp, id: i64, ended: &[&str]) -> Vec<i64> {
    sqlx::query_scalar(
        "INSERT INTO task_queue (task_type, scope_document_id, lane, node_path, node_depth, root_id, write_mode, status, ready, final, error_type)
         SELECT 'test', scope_document_id, lane, node_path, node_depth, root_id, write_mode, e.status, false, true, CASE e.status WHEN 'failed' THEN 'timeout' END
           FROM (SELECT * FROM task_queue WHERE root_id = $1 LIMIT 1) t, unnest($2::text[]) WITH ORDINALITY AS e(status, n) ORDER BY n RETURNING id",
    )
    .bind(id)
    .bind(ended)
    .fetch_all(&app.pool)
    .await
    .unwrap()
}

/// Forges an attempt at a task of a file, as one that began this many seconds from now. What failed was slow.
async fn attempted(app: &TestApp, id: i64, (task, attempt): (i64, i32), second: i32, outcome: &str, message: &str) {
    sqlx::query(
        "INSERT INTO task_attempts (document_id, task_id, task_type, attempt, outcome, error_type, code, message, worker, started_at, ended_at, param_fingerprint)
         SELECT $1, $2, 'test', $3, $4, CASE WHEN $6 THEN 'timeout' END, CASE WHEN $6 THEN 'slow' END, $7, 'w', at, at, ''
           FROM (SELECT now() + $5::int4 * interval '1 second' AS at) t",
    )
    .bind(id)
    .bind(task)
    .bind(attempt)
    .bind(outcome)
    .bind(second)
    .bind(outcome == "failed")
    .bind(message)
    .execute(&app.pool)
    .await
    .unwrap();
}

/// The card of a page that says why a file is not done.
fn not_done(page: &str) -> &str {
    let (_, card) = page.split_once("Why is it not done?").unwrap();
    card.split_once("</section>").unwrap().0
}

#[tokio::test(flavor = "multi_thread")]
async fn what_succeeded_later_is_no_reason_why_a_file_is_not_done() {
    let app = TestApp::start().await;
    let console = Console::of(&app).await;
    let id = app.upload_bytes("broken.pdf", "%PDF-1.7\nnothing of the kind").await.unwrap().document_id;
    app.settled(id).await;
    let tasks = forged(&app, id, &["completed", "completed"]).await;
    // Of what failed the first task began last, and of what succeeded the other one.
    let attempts =
        [(tasks[1], 1, "failed"), (tasks[0], 1, "failed"), (tasks[0], 2, "completed"), (tasks[1], 2, "completed")];
    for (second, (task, attempt, outcome)) in (1..).zip(attempts) {
        attempted(&app, id, (task, attempt), second, outcome, "in time").await;
    }
    let story = app.client.read_story(DocumentPath { id }, StoryQuery::default()).await.unwrap().entries;
    let slow = story.iter().find(|entry| entry.code.as_deref() == Some("slow")).unwrap();
    assert_eq!((slow.attempts, slow.for_good), (2, 0));
    assert!(story.iter().any(|entry| entry.for_good > 0), "{story:?}");
    let owner = console.sign_in(TOKEN).await;
    let page = console.text(&format!("/documents/{id}"), &owner).await;
    let card = not_done(&page);
    assert!(card.contains("permanent") && !card.contains("slow"), "{card}");
    console.end().await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn of_attempts_that_are_alike_one_that_failed_for_good_says_why_a_file_is_not_done() {
    let app = TestApp::start().await;
    let console = Console::of(&app).await;
    let id = app.upload_bytes("broken.pdf", "%PDF-1.7\nnothing of the kind").await.unwrap().document_id;
    app.settled(id).await;
    let tasks = forged(&app, id, &["completed", "failed"]).await;
    // The one that began last was tried again, and succeeded.
    attempted(&app, id, (tasks[1], 1), 1, "failed", "member b.doc took too long").await;
    attempted(&app, id, (tasks[0], 1), 2, "failed", "member a.doc took too long").await;
    attempted(&app, id, (tasks[0], 2), 3, "completed", "in time").await;
    let story = app.client.read_story(DocumentPath { id }, StoryQuery::default()).await.unwrap().entries;
    let slow = story.iter().find(|entry| entry.code.as_deref() == Some("slow")).unwrap();
    assert_eq!((slow.attempts, slow.for_good, slow.task_id), (2, 1, tasks[1]));
    assert_eq!(slow.message.as_deref(), Some("member b.doc took too long"));
    let owner = console.sign_in(TOKEN).await;
    let page = console.text(&format!("/documents/{id}"), &owner).await;
    let card = not_done(&page);
    assert!(card.contains("b.doc") && !card.contains("a.doc"), "{card}");
    console.end().await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_tree_before_a_reprocess_failed_at_is_no_reason_why_a_file_is_not_done() {
    let app = TestApp::start().await;
    let console = Console::of(&app).await;
    let of_type = |task_type: &str| TaskTypePath { task_type: task_type.to_owned() };
    app.client.pause_task_type(of_type("probe")).await.unwrap();
    let id = app.upload_bytes("coots.md", "# Coots\n\nThe coot dives for weeds.").await.unwrap().document_id;
    app.client.cancel_ingest(DocumentPath { id }).await.unwrap();
    app.client.resume_task_type(of_type("probe")).await.unwrap();
    // A purge has taken one of these, and the other one is to be tried again.
    let tasks = forged(&app, id, &["failed", "failed"]).await;
    for task in &tasks {
        attempted(&app, id, (*task, 1), 1, "failed", "it took too long").await;
    }
    sqlx::query("DELETE FROM task_queue WHERE id = $1").bind(tasks[0]).execute(&app.pool).await.unwrap();
    sqlx::query("UPDATE task_queue SET final = false, retry_after = now() + interval '1 day' WHERE id = $1")
        .bind(tasks[1])
        .execute(&app.pool)
        .await
        .unwrap();

    app.client.pause_task_type(of_type("embed")).await.unwrap();
    let root = app.client.reprocess_file(DocumentPath { id }, OptionalJson(None)).await.unwrap().root_id;
    let embeds = || TaskQuery { task_type: Some("embed".to_owned()), ..of_root(root) };
    let part = until("a part of the new tree to be embedded", async || {
        app.client.list_tasks(embeds()).await.unwrap().tasks.first().map(|task| task.id)
    })
    .await;
    app.client.cancel_task(TaskPath { id: part }).await.unwrap();
    app.client.resume_task_type(of_type("embed")).await.unwrap();
    assert!(app.settled(id).await.nodes_failed > 0);
    let evidence = app.client.read_evidence(DocumentPath { id }).await.unwrap().evidence;
    assert_eq!(evidence["reprocess"]["state"], "done");

    let story = app.client.read_story(DocumentPath { id }, StoryQuery::default()).await.unwrap().entries;
    let for_good = |task_type: &str| -> i64 {
        story.iter().filter(|entry| entry.task_type == task_type).map(|entry| entry.for_good).sum()
    };
    assert_eq!((for_good("embed"), for_good("probe"), for_good("test")), (1, 0, 0), "{story:?}");
    let replaced = story.iter().filter(|entry| entry.code.as_deref() == Some("reprocessed"));
    let replaced: BTreeSet<&str> = replaced.map(|entry| entry.task_type.as_str()).collect();
    assert_eq!(replaced, BTreeSet::from(["probe", "test"]));
    let owner = console.sign_in(TOKEN).await;
    let page = console.text(&format!("/documents/{id}"), &owner).await;
    let card = not_done(&page);
    assert!(card.contains("embed") && !card.contains("probe") && !card.contains("slow"), "{card}");
    console.end().await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_list_of_files_by_name_says_how_far_it_looks() {
    let app = idle().await;
    let console = Console::of(&app).await;
    app.upload(&sample("handbook.md")).await.unwrap();
    let owner = console.sign_in(TOKEN).await;
    let none = console.text("/documents?name=zzz", &owner).await;
    assert!(none.contains("No such file is among the latest 10,000") && none.contains("\"/view?q=zzz\""), "{none}");
    let some = console.text("/documents?name=hand", &owner).await;
    assert!(some.contains("handbook.md") && some.contains("older ones are not looked at"), "{some}");
    let failed = console.text("/documents?state=failed", &owner).await;
    assert!(failed.contains("No such file.") && !failed.contains("latest 10,000"), "{failed}");
    console.end().await;
    app.end().await;
}
