//! What the console says of tasks that run and of those that wait: how far they are, how long that usually takes, why they wait, and who acted on them.
use super::Console;
use crate::{
    admin::{idle, pretend},
    crash,
    queue::{claim, finish, node, task},
    support::{TOKEN, TestApp, Wish, place, until},
};
use async_trait::async_trait;
use rand::{RngExt, SeedableRng, rngs::SmallRng, seq::IndexedRandom};
use serde_json::{Map, json};
use sqlx::PgConnection;
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use svc::{
    ingest::extension::{FinalFailure, Task, TaskDeclaration, TaskHandler, TaskOutcome, TaskTypes},
    store::tasks::{self, NewTask},
};
use svc_actors::{Lane, TaskFailure, WriteMode};
use svc_client::wire::{ActorNode, BlockedBy, TaskPath, TaskProgress, TaskQuery, TaskTypePath, WorkerQuery};
use svc_ids::{DocumentId, RootId, TaskId};
use tokio::sync::Semaphore;

const COUNTS: &str = "test:counts";

/// Says that 3 of 1,000 pages are done, and ends when it may.
struct Counts(Arc<Semaphore>);

#[async_trait]
impl TaskHandler for Counts {
    async fn run(&self, task: &Task<'_>, _: &mut PgConnection) -> Result<TaskOutcome, TaskFailure> {
        task.meter.set(2, 1_000, "pages");
        task.meter.advance(1);
        let _end = self.0.acquire().await.unwrap();
        Ok(TaskOutcome::Completed(Map::new()))
    }
}

/// The actor of a task.
fn of_task(node: &ActorNode, id: i64) -> Option<&ActorNode> {
    if node.task_id == Some(id) { Some(node) } else { node.children.iter().find_map(|child| of_task(child, id)) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_says_how_far_it_is_wherever_it_is_shown() {
    let (end, mut types) = (Arc::new(Semaphore::new(0)), TaskTypes::default());
    let handler = Arc::new(Counts(end.clone()));
    let (options, final_failure) = (None, FinalFailure::Node);
    types
        .register(TaskDeclaration {
            name: COUNTS,
            lane: Lane::Io,
            write_mode: WriteMode::Itself,
            options,
            final_failure,
            handler,
        })
        .unwrap();
    let app = TestApp::with(Wish { types, ..Wish::default() }).await;
    let console = Console::of(&app).await;
    let root = node(&app, None).await;
    let id = {
        let mut conn = app.pool.acquire().await.unwrap();
        let place = place(&mut conn, root.0).await;
        app.service.tools().enqueue(&mut conn, &place, RootId(root.0), COUNTS, Map::new()).await.unwrap().0
    };
    let running = until("the task says how far it is", async || {
        app.client.read_task(TaskPath { id }).await.unwrap().running.filter(|running| running.progress.is_some())
    })
    .await;
    let progress = TaskProgress { done: 3, of: 1_000, unit: "pages".to_owned() };
    assert_eq!(running.progress.as_ref(), Some(&progress));
    let workers = app.client.list_workers(WorkerQuery::default()).await.unwrap().workers;
    let trees = workers.iter().filter_map(|worker| worker.snapshot.as_ref()?.root.as_ref());
    let actor = trees.into_iter().find_map(|root| of_task(root, id)).unwrap();
    assert_eq!(actor.progress.as_ref(), Some(&progress));
    let listed = app.client.list_tasks(TaskQuery::default()).await.unwrap().tasks;
    let listed = listed.into_iter().find(|task| task.id == id).and_then(|task| task.running);
    assert_eq!(listed.and_then(|running| running.progress).as_ref(), Some(&progress));
    let cookie = console.sign_in(TOKEN).await;
    assert!(console.text(&format!("/tasks/{id}"), &cookie).await.contains("3 of 1,000 pages are done"));
    for list in ["/tasks".to_owned(), "/tasks?status=running".to_owned(), format!("/documents/{}", root.0)] {
        assert!(console.text(&list, &cookie).await.contains("3 of 1,000 pages"), "{list}");
    }
    assert!(console.text("/actors", &cookie).await.contains("3 of 1,000 pages"));
    let status = crate::cli::svc(&app, &["--table", "status"]).await;
    let said = String::from_utf8(status.stdout).unwrap();
    assert!(said.contains(&format!("task {id} {COUNTS}: ")) && said.contains("3 of 1000 pages"), "{said}");
    end.add_permits(1);
    until("it has ended", async || app.client.read_task(TaskPath { id }).await.unwrap().finished.then_some(())).await;
    assert_eq!(app.client.read_task(TaskPath { id }).await.unwrap().running, None);
    console.end().await;
    app.end().await;
}

/// Attempts at tasks of a type that completed just now, each after so many seconds.
async fn ended(app: &TestApp, task_type: &str, seconds: f64, count: i32) {
    sqlx::query(
        "INSERT INTO task_attempts (document_id, task_id, task_type, attempt, outcome, worker, started_at, ended_at, param_fingerprint)
         SELECT 1, 1, $1, 1, 'completed', 'w', now() - make_interval(secs => $2), now(), '' FROM generate_series(1, $3)",
    )
    .bind(task_type)
    .bind(seconds)
    .bind(count)
    .execute(&app.pool)
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_that_takes_longer_than_usual_is_marked_and_found() {
    let app = idle().await;
    let console = Console::of(&app).await;
    // Only the latest thousand count, and 95 of 100 of these took at most 50 seconds.
    ended(&app, "embed", 5_000.0, 100).await;
    ended(&app, "embed", 1.0, 949).await;
    ended(&app, "embed", 50.0, 51).await;
    // Of a type that hardly ever ran nothing is usual.
    ended(&app, "probe", 1.0, 19).await;
    let now = chrono::Utc::now();
    let actor = |kind: &str, since: f64, children: Vec<serde_json::Value>| {
        let since = now - chrono::TimeDelta::milliseconds((since * 1e3) as i64);
        json!({"kind": kind, "state": "running", "since": since, "handled": 1, "queued": 0, "restarts": 0, "children": children})
    };
    let task = |id: i64, task_type: &str, since: f64| {
        let mut task = actor(task_type, since, Vec::new());
        for (name, value) in [
            ("task_id", json!(id)),
            ("task_type", json!(task_type)),
            ("document_id", json!(id)),
            ("attempt", json!(1)),
            ("lane", json!("model")),
            ("region", json!({"path": [id], "mode": "self"})),
            ("phase", json!("preparing")),
        ] {
            task[name] = value;
        }
        task
    };
    // One is seven times over, one is not over twice, one is over a minute, and of the last nobody would say that it is long.
    let tasks =
        vec![task(701, "embed", 370.0), task(702, "embed", 95.0), task(703, "probe", 70.0), task(704, "probe", 40.0)];
    let root = actor("root", 900.0, vec![actor("documents", 900.0, vec![actor("document", 900.0, tasks)])]);
    let snapshot = json!({"taken_at": now, "actors": 7, "omitted": 0, "root": root, "totals": [], "lanes": []});
    sqlx::query(
        "INSERT INTO workers (worker_id, boot_nonce, version, badges, task_types, lease, beat_at, snapshot)
         VALUES ('busy', gen_random_uuid(), '1', '{}', '{embed}', interval '10 minutes', now(), $1)",
    )
    .bind(snapshot)
    .execute(&app.pool)
    .await
    .unwrap();
    let overview = app.client.read_overview().await.unwrap();
    let usual = |name: &str| overview.task_types.iter().find(|row| row.task_type == name).map(|row| row.usual_ms);
    assert_eq!((usual("embed"), usual("probe")), (Some(Some(50_000)), Some(None)));
    let cookie = console.sign_in(TOKEN).await;
    let page = console.text("/actors", &cookie).await;
    assert_eq!(page.matches("times as long as usual").count(), 1, "{page}");
    assert!(page.contains("preparing, 7 times as long as usual") && page.contains("preparing, over a minute"));
    assert!(page.contains(r#"href="/actors?filter=long""#) && page.contains("Longer than usual"), "{page}");
    let long = console.text("/actors?filter=long", &cookie).await;
    let shown = [701, 702, 703, 704].map(|id| long.contains(&format!("/tasks/{id}\"")));
    assert_eq!(shown, [true, false, true, false]);
    sqlx::query("DELETE FROM workers").execute(&app.pool).await.unwrap();
    sqlx::query("DELETE FROM task_attempts").execute(&app.pool).await.unwrap();
    console.end().await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pages_of_a_task_a_worker_and_a_document_say_who_did_what_to_them() {
    let app = idle().await;
    let console = Console::of(&app).await;
    pretend(&app, "w", &[], false).await;
    let (one, other) = (node(&app, None).await, node(&app, None).await);
    let held = task(&app, &one, WriteMode::Itself, 9, None).await;
    let untouched = task(&app, &other, WriteMode::Itself, 0, None).await;
    assert_eq!(claim(&app, 1).await[0].task_id, held);
    app.client.cancel_task(TaskPath { id: held.0 }).await.unwrap();
    let cookie = console.sign_in(TOKEN).await;
    for path in [format!("/tasks/{}", held.0), "/workers/w".to_owned(), format!("/documents/{}", one.0)] {
        let page = console.text(&path, &cookie).await;
        let (_, card) = page.split_once("Who did what").unwrap_or_else(|| panic!("{path}: {page}"));
        assert!(
            card.contains("owner") && card.contains("task.cancel") && card.contains(&format!("task id {}", held.0)),
            "{card}"
        );
    }
    for path in [format!("/tasks/{}", untouched.0), format!("/documents/{}", other.0)] {
        assert!(!console.text(&path, &cookie).await.contains("Who did what"), "{path}");
    }
    sqlx::query("DELETE FROM task_queue").execute(&app.pool).await.unwrap();
    console.end().await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_worker_is_shown_as_silent_once_its_lease_is_over() {
    let app = idle().await;
    let console = Console::of(&app).await;
    let cookie = console.sign_in(TOKEN).await;
    let victim = crash::worker(&app, 1);
    // Each look has an address of its own, since a page is kept for a moment.
    let mut looks = 0;
    let mut page = async || {
        looks += 1;
        let answer = console.get(&format!("/workers/victim-1?look={looks}"), &cookie).await;
        (answer.status() == 200).then_some(answer.text().await.unwrap())
    };
    until("it is seen", async || page().await.filter(|page| page.contains("alive"))).await;
    victim.kill();
    until("it is silent", async || page().await.filter(|page| page.contains("silent for"))).await;
    let is_over: bool =
        sqlx::query_scalar("SELECT clock_timestamp() > beat_at + lease FROM workers WHERE worker_id = 'victim-1'")
            .fetch_one(&app.pool)
            .await
            .unwrap();
    assert!(is_over, "not before");
    assert!(console.text("/actors?open=victim-1", &cookie).await.contains("silent, as of"));
    sqlx::query("DELETE FROM workers").execute(&app.pool).await.unwrap();
    console.end().await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_of_every_task_of_a_random_queue_says_what_the_api_says() {
    const TASKS: usize = 80;
    let app = idle().await;
    let console = Console::of(&app).await;
    let cookie = console.sign_in(TOKEN).await;
    let seed = rand::random();
    let mut random = SmallRng::seed_from_u64(seed);
    pretend(&app, "w", &["cpu"], false).await;
    let mut nodes = vec![node(&app, None).await];
    for _ in 0..20 {
        let above = nodes.choose(&mut random).unwrap().0;
        let parent = random.random_bool(0.7).then_some(above);
        nodes.push(node(&app, parent).await);
    }
    let mut ids: Vec<TaskId> = Vec::new();
    for _ in 0..TASKS {
        let at = nodes.choose(&mut random).unwrap();
        let modes = [WriteMode::Itself, WriteMode::Children, WriteMode::Subtree];
        let badge = [None, None, Some("cpu"), Some("gpu")].choose(&mut random).copied().flatten();
        let after: Vec<TaskId> =
            ids.choose(&mut random).copied().into_iter().filter(|_| random.random_bool(0.2)).collect();
        let new = NewTask {
            task_type: ["test", "test", "from_the_future", "paused"].choose(&mut random).copied().unwrap(),
            lane: Lane::Io,
            document_id: DocumentId(at.0),
            path: &at.1,
            root_id: RootId(*at.1.first().unwrap_or(&at.0)),
            write_mode: *modes.choose(&mut random).unwrap(),
            leaves: None,
            dependencies: &after,
            params: &json!({}),
            badge,
            priority: random.random_range(-9..9),
            traceparent: None,
        };
        ids.push(tasks::enqueue(&mut app.pool.acquire().await.unwrap(), &new).await.unwrap());
    }
    sqlx::query("UPDATE workers SET task_types = '{test,paused}'").execute(&app.pool).await.unwrap();
    app.client.pause_task_type(TaskTypePath { task_type: "paused".to_owned() }).await.unwrap();
    // Some are held, some of those back off, and the lease of some is over.
    let held = claim(&app, 12).await;
    for grant in held.iter().filter(|_| random.random_bool(0.4)) {
        let failure = TaskFailure::retryable("x", "y");
        let mut conn = app.pool.acquire().await.unwrap();
        tasks::fail(&mut conn, grant, &failure, "w", Duration::from_secs(3600)).await.unwrap();
    }
    let lapsed = "UPDATE task_queue SET lease_until = now() - interval '1 hour', heartbeat_at = now() - interval '1 hour' WHERE claim_token IS NOT NULL AND id % 3 = 0";
    sqlx::query(lapsed).execute(&app.pool).await.unwrap();

    let mut seen: BTreeMap<Option<BlockedBy>, usize> = BTreeMap::new();
    for id in &ids {
        let reason =
            app.client.read_task(TaskPath { id: id.0 }).await.unwrap().blocked_by.map(|blockage| blockage.reason);
        let page = console.text(&format!("/tasks/{}", id.0), &cookie).await;
        let (_, state) = page.split_once("<dt>State</dt>").unwrap();
        let state = state.split("</dd>").next().unwrap();
        match reason {
            Some(reason) => assert!(state.contains(words(reason)), "seed {seed}, task {}: {reason}: {state}", id.0),
            None => {
                assert!(state.contains("running") || state.contains("claimed"), "seed {seed}, task {}: {state}", id.0)
            }
        }
        *seen.entry(reason).or_default() += 1;
    }
    assert!(seen.len() >= 5, "seed {seed} made a queue in which all wait for the same: {seen:?}");
    app.client.resume_task_type(TaskTypePath { task_type: "paused".to_owned() }).await.unwrap();
    for table in ["task_reservation", "task_queue", "workers"] {
        sqlx::query(sqlx::AssertSqlSafe(format!("DELETE FROM {table}"))).execute(&app.pool).await.unwrap();
    }
    console.end().await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_what_ended_a_task_counts_as_ended() {
    let app = idle().await;
    let console = Console::of(&app).await;
    pretend(&app, "w", &[], false).await;
    let mut ids = Vec::new();
    for _ in 0..4 {
        ids.push(task(&app, &node(&app, None).await, WriteMode::Itself, 0, None).await);
    }
    let &[done, broken, again, last] = &ids[..] else { panic!("{ids:?}") };
    sqlx::query("UPDATE task_queue SET max_retries = 1 WHERE id = $1").bind(last).execute(&app.pool).await.unwrap();
    let grants = claim(&app, 4).await;
    let of = |id: TaskId| grants.iter().find(|grant| grant.task_id == id).unwrap();
    assert!(finish(&app.pool, of(done)).await);
    let mut conn = app.pool.acquire().await.unwrap();
    for (id, failure, delay) in [
        (broken, TaskFailure::permanent("x", "y"), Duration::ZERO),
        (again, TaskFailure::retryable("x", "y"), Duration::from_secs(3600)),
        (last, TaskFailure::retryable("x", "y"), Duration::ZERO),
    ] {
        tasks::fail(&mut conn, of(id), &failure, "w", delay).await.unwrap();
    }
    let grants = claim(&app, 4).await;
    assert_eq!(grants.iter().map(|grant| grant.task_id).collect::<Vec<_>>(), [last]);
    tasks::fail(&mut conn, &grants[0], &TaskFailure::retryable("x", "y"), "w", Duration::ZERO).await.unwrap();
    // As a reprocess does when it takes its place.
    sqlx::query("DELETE FROM task_queue WHERE id = $1").bind(last).execute(&mut *conn).await.unwrap();
    drop(conn);
    // A task that was handed to a batch or lost its worker goes on as well, and one that failed before a reprocess had ended long ago.
    sqlx::query(
        "INSERT INTO task_attempts (document_id, task_id, task_type, attempt, outcome, code, worker, started_at, param_fingerprint)
         SELECT t.scope_document_id, t.id, t.task_type, 1, e.outcome, e.code, 'w', now(), ''
           FROM task_queue t, (VALUES ('batched', NULL), ('lease_lost', NULL), ('skipped', 'reprocessed')) AS e(outcome, code) WHERE t.id = $1",
    )
    .bind(again)
    .execute(&app.pool)
    .await
    .unwrap();
    let overview = until("an overview of what ended", async || {
        let overview = app.client.read_overview().await.unwrap();
        overview.throughput.iter().any(|minute| minute.lost > 0).then_some(overview)
    })
    .await;
    let of_type = overview.task_types.iter().find(|row| row.task_type == "test").unwrap().ended_a_minute;
    let of_worker = overview.workers.iter().find(|worker| worker.worker_id == "w").unwrap().ended_a_minute;
    assert_eq!((of_type, of_worker), (3, 3), "one is done, one broken, and one was tried for the last time");
    assert_eq!(overview.throughput.iter().map(|minute| minute.completed).sum::<i64>(), 1);
    let page = console.text("/", &console.sign_in(TOKEN).await).await;
    assert!(page.contains("<b>3</b><span>ended in the last minute"), "{page}");
    for table in ["task_attempts", "task_queue", "workers"] {
        sqlx::query(sqlx::AssertSqlSafe(format!("DELETE FROM {table}"))).execute(&app.pool).await.unwrap();
    }
    console.end().await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_that_is_made_of_an_overview_says_when_that_was_taken() {
    let app = idle().await;
    let console = Console::of(&app).await;
    let cookie = console.sign_in(TOKEN).await;
    let taken = || app.service.sampler.known().overview.map(|(_, overview)| overview.at);
    for path in ["/", "/workers"] {
        let mut looks = 0;
        until("an overview of an earlier second", async || {
            // Each look has an address of its own, since a page is kept for a moment.
            looks += 1;
            let (before, looked) = (taken(), chrono::Utc::now());
            let page = console.text(&format!("{path}?look={looks}"), &cookie).await;
            let at = before.filter(|at| taken() == Some(*at))?;
            let said = format!("as of {} UTC", at.format("%H:%M:%S"));
            assert!(page.contains(&said), "{said}: {page}");
            (at.timestamp() < looked.timestamp()).then_some(())
        })
        .await;
    }
    console.end().await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_filter_of_tasks_has_the_number_of_those_that_it_leads_to_or_none() {
    let app = idle().await;
    let console = Console::of(&app).await;
    let (one, other) = (node(&app, None).await, node(&app, None).await);
    for at in [&one, &one, &other, &other, &other] {
        task(&app, at, WriteMode::Itself, 0, None).await;
    }
    let cookie = console.sign_in(TOKEN).await;
    let number = "<span class=\"n2\">5</span>";
    let mut looks = 0;
    until("an overview of the tasks", async || {
        // Each look has an address of its own, since a page is kept for a moment.
        looks += 1;
        let page = console.text(&format!("/tasks?look={looks}"), &cookie).await;
        (page.matches(number).count() == 2).then_some(())
    })
    .await;
    let page = console.text("/tasks?blocked_by=no_worker", &cookie).await;
    let (reasons, types) = page.split_once("Every type").unwrap();
    assert!(reasons.contains(number) && !types.contains("\"n2\""), "{page}");
    for narrowed in [
        format!("under={}", one.0),
        format!("file={}", one.0),
        format!("file={}&blocked_by=no_worker", one.0),
        "badge=gpu".to_owned(),
        "status=failed".to_owned(),
        "status=running".to_owned(),
        "status=completed".to_owned(),
    ] {
        let page = console.text(&format!("/tasks?{narrowed}"), &cookie).await;
        assert!(page.contains("Every type") && page.contains("type=test"), "{narrowed}: {page}");
        assert!(!page.contains("\"n2\""), "{narrowed}: {page}");
    }
    sqlx::query("DELETE FROM task_queue").execute(&app.pool).await.unwrap();
    console.end().await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_region_of_the_page_is_known_by_its_task_and_an_act_leads_back_to_the_same_page() {
    let app = idle().await;
    let console = Console::of(&app).await;
    let root = node(&app, None).await;
    let parts = [node(&app, Some(root.0)).await, node(&app, Some(root.0)).await];
    let (mut held, mut waiting) = (Vec::new(), Vec::new());
    for part in &parts {
        held.push(task(&app, part, WriteMode::Itself, 9, None).await);
    }
    for part in &parts {
        waiting.push(task(&app, part, WriteMode::Itself, 0, None).await);
    }
    assert_eq!(claim(&app, 4).await.len(), 2);
    let cookie = console.sign_in(TOKEN).await;
    let here = format!("/regions?file={}", root.0);
    let page = console.text(&here, &cookie).await;
    for id in &held {
        let (_, row) = page.split_once(&format!("<li id=\"g-{id}\">")).unwrap_or_else(|| panic!("{id}: {page}"));
        let (row, _) = row.split_once("</li>").unwrap();
        assert!(row.contains(&format!("action=\"/tasks/{id}/cancel\"")), "{row}");
        assert!(row.contains(&format!("name=\"back\" value=\"{here}\"")), "{row}");
    }
    for id in &waiting {
        assert!(page.contains(&format!("<li id=\"g-{id}-w\">")), "{id}: {page}");
    }
    assert!(console.text("/regions", &cookie).await.contains("name=\"back\" value=\"/regions\""));
    // Of a file with many held regions not all are read, and the page says so.
    sqlx::query(
        "INSERT INTO task_queue (task_type, scope_document_id, lane, node_path, node_depth, root_id, write_mode)
         SELECT task_type, scope_document_id, lane, node_path || n || '/', node_depth + 1, root_id, write_mode
           FROM task_queue, generate_series(1000001, 1000060) n WHERE id = $1",
    )
    .bind(held[0])
    .execute(&app.pool)
    .await
    .unwrap();
    until("the others to be held", async || {
        let more = claim(&app, 20).await;
        held.extend(more.into_iter().map(|grant| grant.task_id));
        (held.len() == 62).then_some(())
    })
    .await;
    // Each look has an address of its own, since a page is kept for a moment.
    let page = console.text(&format!("{here}&look=2"), &cookie).await;
    assert!(page.contains("60+ regions held") && page.contains("and 54+ more held"), "{page}");
    for table in ["task_reservation", "task_queue"] {
        sqlx::query(sqlx::AssertSqlSafe(format!("DELETE FROM {table}"))).execute(&app.pool).await.unwrap();
    }
    console.end().await;
    app.end().await;
}

/// What a person reads of a reason.
fn words(reason: BlockedBy) -> &'static str {
    match reason {
        BlockedBy::NoWorker => "no worker is alive",
        BlockedBy::NoWorkerForBadge => "nobody serves its badge",
        BlockedBy::NoHandler => "nobody can run its type",
        BlockedBy::Paused => "paused",
        BlockedBy::Reservation => "behind a held region",
        BlockedBy::Dependency => "behind a task before it",
        BlockedBy::Backoff => "backs off",
        BlockedBy::LeaseLapsed => "lease over",
        BlockedBy::BatchParked => "parked in a batch",
        BlockedBy::WorkersBusy => "workers busy",
    }
}
