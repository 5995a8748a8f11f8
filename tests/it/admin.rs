//! What an operator sees of the queue and the fleet, and does to them.
mod cancels;
mod reasons;

use crate::{
    crash::{Process, url},
    queue::{node, task},
    support::{self, TOKEN, TestApp, Wish, invariants, sample, until},
};
use chrono::{DateTime, Utc};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    process::{Command, Output, Stdio},
    time::Duration,
};
use svc::store::{
    tasks::{self, Claimer, NewTask},
    upkeep,
    word::Word,
    workers::{self, WorkerRow},
};
use svc_actors::{Grant, Lane, TaskFailure, WriteMode};
use svc_client::{
    Failure,
    wire::{
        BlockedBy, DocumentPath, ErrorType, FindingKind, FrontierResponse, PageQuery, Settled, TaskPath, TaskQuery,
        TaskStatus, TaskTypePath,
    },
};
use svc_ids::{DocumentId, RootId, TaskId};

pub(crate) async fn idle() -> TestApp {
    TestApp::with(Wish { no_worker: true, ..Default::default() }).await
}

/// A worker without badges.
pub(crate) fn worker_row(worker_id: &str) -> WorkerRow {
    WorkerRow {
        worker_id: worker_id.to_owned(),
        boot_nonce: uuid::Uuid::new_v4(),
        version: "test".to_owned(),
        badges: Vec::new(),
        strict: false,
        holds_folder: false,
        task_types: vec!["test".to_owned()],
        lease: Duration::from_secs(600),
    }
}

/// A worker that is only a row.
pub(crate) async fn pretend(app: &TestApp, worker_id: &str, badges: &[&str], strict: bool) {
    let badges = badges.iter().map(|badge| (*badge).to_owned()).collect();
    let row = WorkerRow { badges, strict, ..worker_row(worker_id) };
    workers::beat(&mut app.pool.acquire().await.unwrap(), &row, &serde_json::json!({})).await.unwrap();
}

async fn claim(app: &TestApp, count: usize) -> Vec<Grant> {
    let claimer = Claimer { worker_id: "w".to_owned(), badges: None, strict: false, lease: crate::queue::LEASE };
    tasks::claim(&app.pool, &claimer, &[(Lane::Io, count)]).await.unwrap().grants
}

async fn reason(app: &TestApp, id: TaskId) -> Option<BlockedBy> {
    app.client.read_task(TaskPath { id: id.0 }).await.unwrap().blocked_by.map(|blockage| blockage.reason)
}

pub(crate) fn of_root(root_id: i64) -> TaskQuery {
    TaskQuery { root_id: Some(root_id), ..TaskQuery::default() }
}

#[tokio::test]
async fn a_stored_word_that_no_value_has_is_an_error_that_names_it() {
    let app = idle().await;
    let read = async |word: &str| {
        sqlx::query_scalar::<_, Word<Settled>>("SELECT $1").bind(word.to_owned()).fetch_one(&app.pool).await
    };
    assert_eq!(read("failed").await.unwrap(), Word(Settled::Failed));
    let unknown = read("forgotten").await.unwrap_err().to_string();
    assert!(unknown.contains("takes in_flight, settled, failed, got `forgotten`"), "{unknown}");
    app.end().await;
}

#[tokio::test]
async fn every_unfinished_task_says_what_it_waits_for() {
    let app = idle().await;
    let nodes = [node(&app, None).await, node(&app, None).await, node(&app, None).await];
    let root = node(&app, None).await;
    let child = node(&app, Some(root.0)).await;
    let plain = task(&app, &nodes[0], WriteMode::Itself, 0, None).await;
    let gpu = task(&app, &nodes[1], WriteMode::Itself, -9, Some("gpu")).await;
    assert_eq!(reason(&app, plain).await, Some(BlockedBy::NoWorker));

    pretend(&app, "w", &["cpu"], false).await;
    assert_eq!(reason(&app, plain).await, Some(BlockedBy::WorkersBusy));
    assert_eq!(reason(&app, gpu).await, Some(BlockedBy::NoWorkerForBadge));
    pretend(&app, "w", &["gpu"], true).await;
    assert_eq!(reason(&app, gpu).await, Some(BlockedBy::WorkersBusy));
    assert_eq!(reason(&app, plain).await, Some(BlockedBy::NoWorkerForBadge), "a strict worker leaves it alone");
    pretend(&app, "w", &[], false).await;

    let unknown = NewTask {
        task_type: "from_the_future",
        lane: Lane::Cpu,
        document_id: DocumentId(nodes[2].0),
        path: &nodes[2].1,
        root_id: RootId(nodes[2].0),
        write_mode: WriteMode::Itself,
        leaves: None,
        dependencies: &[plain],
        params: &serde_json::json!({}),
        badge: None,
        priority: 0,
        traceparent: None,
    };
    let mut conn = app.pool.acquire().await.unwrap();
    let dependent = tasks::enqueue(&mut conn, &unknown).await.unwrap();
    let unknown = tasks::enqueue(&mut conn, &NewTask { dependencies: &[], ..unknown }).await.unwrap();
    assert_eq!(reason(&app, unknown).await, Some(BlockedBy::NoHandler));
    let blockage = app.client.read_task(TaskPath { id: dependent.0 }).await.unwrap().blocked_by.unwrap();
    assert_eq!((blockage.reason, blockage.task_id), (BlockedBy::Dependency, Some(plain.0)));

    let whole = task(&app, &root, WriteMode::Subtree, 9, None).await;
    let below = task(&app, &child, WriteMode::Itself, 8, None).await;
    let held = claim(&app, 1).await;
    assert_eq!(held[0].task_id, whole);
    assert_eq!(claim(&app, 1).await[0].task_id, plain, "the claim passes the blocked one by and parks it");
    let blockage = app.client.read_task(TaskPath { id: below.0 }).await.unwrap().blocked_by.unwrap();
    assert_eq!((blockage.reason, blockage.task_id), (BlockedBy::Reservation, Some(whole.0)));
    assert_eq!(reason(&app, whole).await, None, "it is held by a worker that beats");
    let regions = app.client.list_reservations(PageQuery::default()).await.unwrap().reservations;
    assert_eq!((regions.len(), regions[1].task_id, regions[1].tasks_waiting), (2, whole.0, 1));

    sqlx::query("UPDATE task_queue SET lease_until = now() - interval '1 hour', heartbeat_at = now() - interval '1 hour' WHERE id = $1")
        .bind(whole)
        .execute(&app.pool)
        .await
        .unwrap();
    assert_eq!(reason(&app, whole).await, Some(BlockedBy::LeaseLapsed));
    let failure = TaskFailure::retryable("x", "y");
    tasks::fail(&mut conn, &held[0], &failure, "w", Duration::from_secs(3600)).await.unwrap();
    let blockage = app.client.read_task(TaskPath { id: whole.0 }).await.unwrap().blocked_by.unwrap();
    assert!(blockage.reason == BlockedBy::Backoff && blockage.until.unwrap() > Utc::now());

    // The list filters by all of these, and pages.
    let ids = |page: svc_client::wire::TaskPage| page.tasks.into_iter().map(|task| TaskId(task.id)).collect::<Vec<_>>();
    let list = |query| app.client.list_tasks(query);
    let blocked = |by| TaskQuery { blocked_by: Some(by), ..TaskQuery::default() };
    assert_eq!(ids(list(blocked(BlockedBy::Backoff)).await.unwrap()), [whole]);
    assert_eq!(ids(list(blocked(BlockedBy::Dependency)).await.unwrap()), [dependent]);
    assert_eq!(ids(list(TaskQuery { badge: Some("gpu".into()), ..TaskQuery::default() }).await.unwrap()), [gpu]);
    assert_eq!(ids(list(of_root(root.0)).await.unwrap()), [whole, below]);
    let first = list(TaskQuery { limit: Some(4), ..TaskQuery::default() }).await.unwrap();
    let second = list(TaskQuery { cursor: first.next_cursor.clone(), ..TaskQuery::default() }).await.unwrap();
    assert_eq!([ids(first), ids(second)].concat(), [plain, gpu, dependent, unknown, whole, below]);
    for (field, word) in [("blocked_by", "workers_busy"), ("status", "batched")] {
        let url = format!("{}/admin/tasks?{field}=the%20weather", app.base);
        let answer = support::http().get(url).bearer_auth(TOKEN).send().await.unwrap();
        let wrong: Failure = answer.json().await.unwrap();
        assert_eq!((wrong.status, wrong.members["field"].as_str()), (422, Some(field)), "{wrong}");
        assert!(wrong.detail.contains(word) && wrong.detail.contains("the weather"), "{wrong}");
    }

    app.sampled().await;
    let metrics = app.client.read_metrics().await.unwrap();
    assert!(metrics.contains("svc_tasks_blocked{blocked_by=\"dependency\"} 1"), "{metrics}");
    drop(conn);
    sqlx::query("DELETE FROM task_queue").execute(&app.pool).await.unwrap();
    app.end().await;
}

#[tokio::test]
async fn only_the_owner_token_opens_the_queue() {
    let app = idle().await;
    for path in ["tasks", "tasks/1", "task-types", "workers", "reservations"] {
        let answer = support::http().get(format!("{}/admin/{path}", app.base)).send().await.unwrap();
        assert_eq!(answer.status(), 401, "{path}");
    }
    assert_eq!(app.client.read_task(TaskPath { id: 77 }).await.unwrap_err().status, 404);
    app.end().await;
}

/// Enough text for a few embed tasks.
pub(crate) fn long_text() -> Vec<u8> {
    let part =
        |n: usize| format!("# Part {n}\n\n{}\n\n", "Each day the gauge was read twice and written down. ".repeat(40));
    (0..40).map(part).collect::<String>().into_bytes()
}

#[tokio::test]
async fn a_paused_type_waits_and_a_cancelled_file_can_be_taken_up_again() {
    let app = TestApp::start().await;
    let embed = || TaskTypePath { task_type: "embed".to_owned() };
    let paused = app.client.pause_task_type(embed()).await.unwrap();
    assert!(paused.paused && paused.paused_since.is_some(), "{paused:?}");
    let unknown = app.client.pause_task_type(TaskTypePath { task_type: "no_such".to_owned() }).await.unwrap_err();
    assert_eq!(unknown.status, 404);

    let id = app.upload(&sample("handbook.md")).await.unwrap().document_id;
    let frontier = waits_for_pause(&app, id).await;
    assert!(frontier.stages.iter().all(|stage| stage.task_type == "embed" && stage.pending > 0), "{frontier:?}");
    assert!(frontier.oldest_seconds.is_some_and(|age| age >= 0.0) && frontier.nodes_in_flight > 0);

    let cancelled = app.client.cancel_ingest(DocumentPath { id }).await.unwrap();
    assert_eq!((cancelled.tasks_cancelled, cancelled.tasks_stopping), (frontier.tasks_unfinished, 0));
    let after = app.client.read_frontier(DocumentPath { id }).await.unwrap();
    assert_eq!((after.settled, after.nodes_in_flight, after.tasks_unfinished), (Settled::Failed, 0, 0), "{after:?}");
    invariants::check(&app.pool).await;
    let again = app.client.cancel_ingest(DocumentPath { id }).await.unwrap();
    assert_eq!((again.tasks_cancelled, again.tasks_stopping), (0, 0), "a second cancel finds nothing");
    let evidence = app.client.read_evidence(DocumentPath { id }).await.unwrap().evidence;
    assert_eq!(evidence["cancelled"]["nodes_failed"], frontier.nodes_in_flight);

    // Each of its tasks can be queued again, and once they are done the file is complete.
    let failed = TaskQuery { status: Some(TaskStatus::Failed), ..of_root(id) };
    let tasks = app.client.list_tasks(failed).await.unwrap().tasks;
    assert_eq!(tasks.len() as i64, frontier.tasks_unfinished);
    for task in &tasks {
        assert_eq!((task.error_type, task.finished), (Some(ErrorType::Permanent), true));
        let task = app.client.retry_task(TaskPath { id: task.id }).await.unwrap();
        assert_eq!((task.status, task.retry_count), (TaskStatus::Pending, 0));
        invariants::check(&app.pool).await;
    }
    let twice = app.client.retry_task(TaskPath { id: tasks[0].id }).await.unwrap_err();
    assert_eq!((twice.status, &twice.members["task_status"]), (409, &serde_json::json!("pending")));
    assert!(!app.client.resume_task_type(embed()).await.unwrap().paused);
    let whole = app.settled(id).await;
    assert_eq!((whole.settled, whole.nodes_failed), (Settled::Settled, 0), "{whole:?}");
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

/// Waits until only tasks of a paused type are left of a file, and returns its frontier.
pub(crate) async fn waits_for_pause(app: &TestApp, id: i64) -> FrontierResponse {
    until("the file to wait for the paused type alone", async || {
        let frontier = app.client.read_frontier(DocumentPath { id }).await.unwrap();
        let paused = frontier.blocked_by.get(&BlockedBy::Paused).copied().unwrap_or_default();
        (frontier.tasks_unfinished > 0 && paused == frontier.tasks_unfinished).then_some(frontier)
    })
    .await
}

pub(crate) fn worker_command(app: &TestApp, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_svc-worker"));
    command
        .args(["--config", "/dev/null", "--log-level", "error"])
        .args(arguments)
        .env("SVC_DATABASE_URL", url(&app.options))
        .env("SVC_DATA_DIR", support::server::work_dir().join("data"))
        .envs(support::s3::of_all_tests(&app.options))
        .stdin(Stdio::null());
    command
}

pub(crate) async fn run(mut command: Command) -> Output {
    tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap()
}

#[tokio::test]
async fn the_doctor_names_what_is_wrong_and_ends_with_1() {
    let app = idle().await;
    let doctor = || worker_command(&app, &["doctor"]);
    let healthy = run(doctor()).await;
    assert!(healthy.status.success(), "{healthy:?}");

    let root = node(&app, None).await;
    let child = node(&app, Some(root.0)).await;
    task(&app, &root, WriteMode::Subtree, 0, None).await;
    task(&app, &child, WriteMode::Itself, 0, None).await;
    let lonely = run(doctor()).await;
    assert_eq!(lonely.status.code(), Some(1), "nobody works: {lonely:?}");
    // This runs its statements in this process too.
    let mut conn = app.pool.acquire().await.unwrap();
    let (patience, outside) = (Duration::from_secs(60), svc::store::admin::Outside::default());
    let found = svc::store::admin::findings(&mut conn, patience, patience, outside).await.unwrap();
    let without_badge = found.iter().find(|finding| finding.kind == FindingKind::Unserved).unwrap();
    assert!(without_badge.remedy.ends_with("without a badge: svc-worker"), "{without_badge:?}");
    drop(conn);
    svc::store::database::try_room(&app.pool).await.unwrap();
    pretend(&app, "w", &["cpu"], false).await;
    task(&app, &node(&app, None).await, WriteMode::Itself, 0, Some("gpu")).await;
    claim(&app, 1).await;
    claim(&app, 1).await;
    sqlx::query("UPDATE task_queue SET lease_until = now() - interval '1 hour', heartbeat_at = now() - interval '1 hour' WHERE status = 'claimed'")
        .execute(&app.pool)
        .await
        .unwrap();
    sqlx::query("UPDATE task_queue SET parked_since = now() - interval '1 hour' WHERE parked_on IS NOT NULL")
        .execute(&app.pool)
        .await
        .unwrap();
    // The one claim took the task with the badge, as a worker without badges does.
    sqlx::query("UPDATE task_queue SET created_at = now() - interval '1 hour' WHERE ready")
        .execute(&app.pool)
        .await
        .unwrap();
    task(&app, &node(&app, None).await, WriteMode::Itself, 0, Some("tpu")).await;
    let sick = run(doctor()).await;
    let text = String::from_utf8(sick.stdout).unwrap();
    assert_eq!(sick.status.code(), Some(1), "{text}");
    let kinds: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for (kind, about) in [("unserved", "tpu"), ("lapsed", "worker w"), ("stuck", "behind task")] {
        let named = |finding: &serde_json::Value| {
            finding["kind"] == kind && finding["about"].as_str().is_some_and(|text| text.starts_with(about))
        };
        assert!(kinds.iter().any(named), "{kind} is not in {text}");
    }
    let with_badge = kinds.iter().find(|finding| finding["about"] == "tpu").unwrap();
    assert!(with_badge["remedy"].as_str().unwrap().ends_with("svc-worker --badge tpu"), "{with_badge}");
    sqlx::query("DELETE FROM task_queue").execute(&app.pool).await.unwrap();
    app.end().await;
}

#[tokio::test]
async fn the_doctor_tells_a_stall_from_a_queue_that_moves() {
    let app = idle().await;
    let found = async || {
        let output = run(worker_command(&app, &["doctor", "--log-level", "warn"])).await;
        (output.status.success(), String::from_utf8(output.stdout).unwrap())
    };
    pretend(&app, "w", &[], false).await;
    for _ in 0..3 {
        task(&app, &node(&app, None).await, WriteMode::Itself, 0, None).await;
    }
    assert!(found().await.0, "they came just now");
    sqlx::query("UPDATE task_queue SET created_at = now() - interval '1 hour'").execute(&app.pool).await.unwrap();
    let (healthy, text) = found().await;
    assert!(!healthy && text.contains(r#""kind":"stalled","about":"test","tasks":3"#), "{text}");
    let grant = claim(&app, 1).await.remove(0);
    assert!(found().await.0, "one is at work");
    let becomes = async |status: &str| {
        let forged = "UPDATE task_queue SET status = $2 /* forged */ WHERE id = $1";
        sqlx::query(forged).bind(grant.task_id).bind(status).execute(&app.pool).await.unwrap();
    };
    becomes("batched").await;
    assert!(!found().await.0, "one waits for a provider, which keeps nobody from the others");
    becomes("claimed").await;
    let away = TaskFailure::away("language_model_away", "nobody answers");
    let mut conn = app.pool.acquire().await.unwrap();
    assert!(upkeep::put_off(&mut conn, &grant, &away, Duration::from_secs(600)).await.unwrap());
    assert!(found().await.0, "the others are left alone until what they need is back");
    let then = "UPDATE task_queue SET retry_after = now() - interval '1 hour' WHERE put_off_code IS NOT NULL";
    sqlx::query(then).execute(&mut *conn).await.unwrap();
    drop(conn);
    assert!(!found().await.0, "it was due long ago");
    let grant = claim(&app, 1).await.remove(0);
    let failure = TaskFailure::permanent("x", "y");
    tasks::fail(&mut app.pool.acquire().await.unwrap(), &grant, &failure, "w", Duration::ZERO).await.unwrap();
    assert!(found().await.0, "one ended");
    sqlx::query("DELETE FROM task_queue").execute(&app.pool).await.unwrap();
    app.end().await;
}

/// Queues a task of a type that this version does not know.
async fn task_from_the_future(app: &TestApp) -> TaskId {
    let (id, path) = node(app, None).await;
    let task = NewTask {
        task_type: "from_the_future",
        lane: Lane::Cpu,
        document_id: DocumentId(id),
        path: &path,
        root_id: RootId(id),
        write_mode: WriteMode::Itself,
        leaves: None,
        dependencies: &[],
        params: &serde_json::json!({}),
        badge: None,
        priority: 0,
        traceparent: None,
    };
    tasks::enqueue(&mut app.pool.acquire().await.unwrap(), &task).await.unwrap()
}

#[tokio::test]
async fn a_task_that_only_another_worker_can_run_is_due_for_it_sooner_than_one_that_none_can() {
    let app = TestApp::start().await;
    let task = task_from_the_future(&app).await;
    let is_long = async |since: DateTime<Utc>| {
        let is_long = "SELECT retry_after - $2 > interval '20 s' FROM task_queue WHERE id = $1 AND retry_after > $2 AND put_off_code = 'no_handler'";
        until("the task to be put off", async || {
            sqlx::query_scalar::<_, bool>(is_long).bind(task).bind(since).fetch_optional(&app.pool).await.unwrap()
        })
        .await
    };
    let created = "SELECT created_at FROM task_queue WHERE id = $1";
    let created: DateTime<Utc> = sqlx::query_scalar(created).bind(task).fetch_one(&app.pool).await.unwrap();
    assert!(is_long(created).await, "no worker can run it");
    let joins = async |badges: Vec<String>| {
        let task_types = vec!["from_the_future".to_owned()];
        let newer = WorkerRow { task_types, strict: !badges.is_empty(), badges, ..worker_row("newer") };
        workers::beat(&mut app.pool.acquire().await.unwrap(), &newer, &serde_json::json!({})).await.unwrap();
        let due = "UPDATE task_queue SET retry_after = clock_timestamp() WHERE id = $1 RETURNING retry_after";
        let due: DateTime<Utc> = sqlx::query_scalar(due).bind(task).fetch_one(&app.pool).await.unwrap();
        is_long(due).await
    };
    assert!(joins(vec!["gpu".to_owned()]).await, "a worker that has the handler leaves tasks without its badge alone");
    assert!(!joins(Vec::new()).await, "another worker can");
    sqlx::query("DELETE FROM task_queue").execute(&app.pool).await.unwrap();
    app.end().await;
}

#[tokio::test]
async fn a_task_that_no_worker_can_run_is_put_off_and_told_of() {
    let app = TestApp::start().await;
    let task = task_from_the_future(&app).await;
    let put_off = until("the task to be put off", async || {
        let task = app.client.read_task(TaskPath { id: task.0 }).await.unwrap();
        task.retry_after.is_some().then_some(task)
    })
    .await;
    assert_eq!((put_off.retry_count, put_off.finished), (0, false), "{put_off:?}");
    assert_eq!(put_off.blocked_by.unwrap().reason, BlockedBy::NoHandler);
    app.sampled().await;
    let failure = app.client.read_readiness().await.unwrap_err();
    assert!(failure.detail.contains("1 tasks of type `from_the_future` have no worker that can run them"), "{failure}");
    let doctor = run(worker_command(&app, &["doctor"])).await;
    assert!(String::from_utf8(doctor.stdout).unwrap().contains(r#""kind":"no_handler","about":"from_the_future""#));
    // Whoever pauses the type wants nobody to run it.
    let paused = TaskTypePath { task_type: "from_the_future".to_owned() };
    app.client.pause_task_type(paused).await.unwrap();
    app.sampled().await;
    app.client.read_readiness().await.unwrap();
    sqlx::query("DELETE FROM task_queue").execute(&app.pool).await.unwrap();
    app.end().await;
}

#[tokio::test]
async fn a_second_signal_gives_back_what_still_runs() {
    let app = idle().await;
    let id = app.upload_bytes("long.md", long_text()).await.unwrap().document_id;
    let mut worker =
        Process(worker_command(&app, &["--worker-id", "hurried", "--poll-seconds", "0.1"]).spawn().unwrap());
    until("an embed task that runs", async || {
        let query = TaskQuery { status: Some(TaskStatus::Running), task_type: Some("embed".to_owned()), ..of_root(id) };
        app.client.list_tasks(query).await.unwrap().tasks.pop()
    })
    .await;
    let pid = Pid::from_raw(worker.0.id().cast_signed()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    // The signals come one at a time, because pending ones are not counted. The worker hears the second once it has
    // begun to stop.
    let status = until("the worker's end", async || {
        let ended = worker.0.try_wait().unwrap();
        if ended.is_none() {
            kill_process(pid, Signal::TERM).unwrap();
        }
        ended
    })
    .await;
    assert!(status.success(), "{status}");
    assert!(app.client.list_reservations(PageQuery::default()).await.unwrap().reservations.is_empty());
    let given_back: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM task_queue WHERE task_type = 'embed' AND status = 'pending' AND retry_count = 0",
    )
    .fetch_one(&app.pool)
    .await
    .unwrap();
    assert!(given_back > 0, "nothing was given back");
    let mut app = app;
    app.start_worker().await;
    assert_eq!(app.settled(id).await.settled, Settled::Settled);
    app.end().await;
}
