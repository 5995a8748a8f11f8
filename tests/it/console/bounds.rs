//! Pages stay short however much there is, and show first what an operator needs.
use super::Console;
use crate::{
    admin::idle,
    queue::{node, task},
    support::{TOKEN, until},
};
use serde_json::{Value, json};
use svc_actors::WriteMode;

#[tokio::test(flavor = "multi_thread")]
async fn of_many_workers_the_living_come_first_and_the_others_are_counted() {
    let app = idle().await;
    let console = Console::of(&app).await;
    sqlx::query(
        "INSERT INTO workers (worker_id, boot_nonce, version, badges, task_types, lease, beat_at, snapshot)
         SELECT name, gen_random_uuid(), '1', '{}', '{test}', interval '10 minutes', now() - silent,
                '{\"actors\": 3, \"totals\": [], \"lanes\": [], \"omitted\": 0}'
           FROM (SELECT 'dead-' || n AS name, interval '1 hour' + make_interval(secs => n) AS silent FROM generate_series(1, 3000) n
                  UNION ALL SELECT 'zz-living', interval '0') w",
    )
    .execute(&app.pool)
    .await
    .unwrap();
    let cookie = console.sign_in(TOKEN).await;
    let page = until("the sampler has read the workers", async || {
        let page = console.text("/workers", &cookie).await;
        page.contains("dead-").then_some(page)
    })
    .await;
    let at = |page: &str, name: &str| page.find(&format!("/workers/{name}\"")).unwrap_or(usize::MAX);
    assert!(
        at(&page, "zz-living") < at(&page, "dead-1") && at(&page, "dead-1") < at(&page, "dead-2"),
        "the latest of the silent"
    );
    assert!(page.contains("and 2,801 more, all silent"), "{page}");
    assert!(at(&console.text("/", &cookie).await, "zz-living") < usize::MAX, "the first page has a living one");
    let actors = console.text("/actors", &cookie).await;
    assert!(at(&actors, "zz-living") < at(&actors, "dead-1"));
    assert!(actors.contains("and 2,901 more processes"), "{actors}");
    // One that is asked for is shown, wherever it stands.
    let opened = console.text("/actors?open=dead-3000", &cookie).await;
    assert!(at(&opened, "dead-3000") < at(&opened, "zz-living"));
    for page in [page, actors, opened] {
        let rows = page.matches("<tr").count();
        assert!(page.len() < 250 * 1024 && rows <= 500, "{} bytes, {rows} rows", page.len());
    }
    sqlx::query("DELETE FROM workers").execute(&app.pool).await.unwrap();
    console.end().await;
    app.end().await;
}

/// What a busy worker tells of its actors: documents with four tasks each.
fn busy(documents: i64) -> Value {
    let now = chrono::Utc::now();
    let actor = |kind: &str, children: Vec<Value>| json!({"kind": kind, "state": "running", "since": now, "handled": 7, "queued": 0, "restarts": 0, "children": children});
    let document = |id: i64| {
        let task = |number: i64| {
            let mut task = actor("embed", Vec::new());
            for (name, value) in
                [("task_id", json!(id * 4 + number)), ("document_id", json!(id)), ("attempt", json!(1))]
            {
                task[name] = value;
            }
            task["task_type"] = json!("embed");
            task["lane"] = json!("model");
            task["region"] = json!({"path": [id], "mode": "self"});
            task["phase"] = json!("preparing");
            task
        };
        let mut document = actor("document", (0..4).map(task).collect());
        document["document_id"] = json!(id);
        document["title"] = json!(format!("file {id}.pdf"));
        document["tasks"] = json!({"open": 40, "held": 4, "done": 6, "failed": 0});
        document
    };
    let root = actor("root", vec![actor("documents", (1..=documents).map(document).collect())]);
    json!({"taken_at": now, "actors": documents * 5 + 2, "omitted": 0, "root": root, "totals": [], "lanes": []})
}

#[tokio::test(flavor = "multi_thread")]
async fn many_busy_workers_have_a_short_page_of_actors() {
    let app = idle().await;
    let console = Console::of(&app).await;
    sqlx::query(
        "INSERT INTO workers (worker_id, boot_nonce, version, badges, task_types, lease, beat_at, snapshot)
         SELECT 'busy-' || n, gen_random_uuid(), '1', '{}', '{embed}', interval '10 minutes', now(), $1 FROM generate_series(1, 20) n",
    )
    .bind(busy(100))
    .execute(&app.pool)
    .await
    .unwrap();
    let cookie = console.sign_in(TOKEN).await;
    for (path, said) in [
        ("/actors", "this process alone"),
        ("/actors?filter=long", ""),
        ("/actors?open=busy-7", "all tasks that run"),
        ("/workers/busy-7", "all tasks that run"),
    ] {
        let page = console.text(path, &cookie).await;
        let rows = page.matches("id=\"a-").count();
        assert!(page.len() < 250 * 1024 && rows <= 500, "{path}: {} bytes, {rows} actors", page.len());
        // Nothing is left out in silence: a file that is shown has its tasks, or the page says how many more there are.
        let has_tasks = page.contains("file 1.pdf");
        assert_eq!(has_tasks, !path.contains("long"), "{path}");
        assert!(!has_tasks || page.contains(said), "{path}: {page}");
    }
    sqlx::query("DELETE FROM workers").execute(&app.pool).await.unwrap();
    console.end().await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_waits_for_many_has_a_short_page() {
    let app = idle().await;
    let console = Console::of(&app).await;
    let root = node(&app, None).await;
    let cookie = console.sign_in(TOKEN).await;
    for (tasks, more) in [(50, None), (51, Some("and 1 more")), (20_000, Some("and 19,950 more"))] {
        // Each has a page of its own, since a page is kept for a moment.
        let id = task(&app, &root, WriteMode::Itself, 0, None).await;
        sqlx::query("UPDATE task_queue SET dependencies = ARRAY(SELECT 100000 + generate_series(1, $2)) WHERE id = $1")
            .bind(id.0)
            .bind(tasks)
            .execute(&app.pool)
            .await
            .unwrap();
        let page = console.text(&format!("/tasks/{id}"), &cookie).await;
        assert_eq!(page.matches("href=\"/tasks/1000").count(), 50, "{tasks}");
        assert_eq!(page.contains(" more"), more.is_some(), "{tasks}");
        assert!(more.is_none_or(|more| page.contains(more)), "{tasks}: {page}");
    }
    sqlx::query("DELETE FROM task_queue").execute(&app.pool).await.unwrap();
    console.end().await;
    app.end().await;
}
