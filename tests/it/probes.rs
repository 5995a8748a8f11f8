//! What the service tells about itself, to whom, and what that costs.
use crate::{
    admin::worker_row,
    queue::{node, task},
    support::{self, TestApp, Wish, until},
};
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection};
use std::time::Duration;
use svc::store::{
    admin::{self, Outside},
    queue::{COUNTED, UNFINISHED},
    workers::{self, WorkerRow},
};
use svc_actors::WriteMode;
use svc_client::wire::{FindingKind, HealthStatus, TaskQuery, TaskStatus};
use svc_ids::TaskId;

async fn idle() -> TestApp {
    TestApp::with(Wish { no_worker: true, ..Wish::default() }).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn probes_answer_without_the_database_however_many_they_are() {
    let app = idle().await;
    app.sampled().await;
    let mut holder = PgConnection::connect_with(&app.options.clone().application_name("test")).await.unwrap();
    sqlx::raw_sql("BEGIN; LOCK TABLE task_queue, workers, documents, _sqlx_migrations IN ACCESS EXCLUSIVE MODE")
        .execute(&mut holder)
        .await
        .unwrap();
    let client = support::http();
    let mut at_work = 0;
    for _ in 0..20 {
        let asked = (0..50).map(|at| {
            let path = ["/health", "/ready", "/metrics"][at % 3];
            let request = client.get(format!("{}{path}", app.base));
            async move { (path, request.send().await.unwrap().status().as_u16()) }
        });
        for (path, status) in futures_util::future::join_all(asked).await {
            // No worker runs here, which the service knew before the tables were locked.
            assert_eq!(status, if path == "/ready" { 503 } else { 200 }, "{path}");
        }
        let statements: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'svc' AND state = 'active'",
        )
        .fetch_one(&mut holder)
        .await
        .unwrap();
        at_work = at_work.max(statements);
    }
    assert!(at_work <= 1, "{at_work} statements, and the sampler alone may have one");
    holder.close().await.unwrap();
    app.end().await;
}

#[tokio::test]
async fn health_is_not_ok_without_workers() {
    let mut app = idle().await;
    let status = async |app: &TestApp| {
        app.sampled().await;
        app.client.read_health().await.unwrap()
    };
    let health = status(&app).await;
    assert_eq!(health.status, HealthStatus::Degraded, "nobody works");
    assert!(health.sampled_seconds_ago.is_some());
    app.start_worker().await;
    until("a worker's beat", async || (status(&app).await.status == HealthStatus::Ok).then_some(())).await;
    sqlx::query("UPDATE workers SET beat_at = now() - interval '1 hour', badges = '{cpu}'")
        .execute(&app.pool)
        .await
        .unwrap();
    until("the next beat", async || (status(&app).await.status == HealthStatus::Ok).then_some(())).await;
    app.end().await;
}

#[tokio::test]
async fn health_is_not_ok_where_a_badge_has_no_worker() {
    let app = TestApp::with(Wish { settings: &[("SVC_WORKER_BADGE", "cpu")], ..Default::default() }).await;
    let root = node(&app, None).await;
    task(&app, &root, WriteMode::Itself, 0, Some("gpu")).await;
    app.sampled().await;
    assert_eq!(app.client.read_health().await.unwrap().status, HealthStatus::Degraded);
    // Whoever pauses the type wants nobody to run it.
    let pause = "INSERT INTO paused_task_type (task_type) SELECT DISTINCT task_type FROM task_queue";
    sqlx::query(pause).execute(&app.pool).await.unwrap();
    app.sampled().await;
    assert_eq!(app.client.read_health().await.unwrap().status, HealthStatus::Ok);
    sqlx::query("DELETE FROM task_queue").execute(&app.pool).await.unwrap();
    app.end().await;
}

#[tokio::test]
async fn health_is_not_ok_where_those_that_are_left_of_the_fleet_run_no_such_task() {
    let app = idle().await;
    // Who asks by batches takes tasks without a badge, and has slots for its own types alone.
    let batches = WorkerRow { task_types: vec!["summarize:llm".to_owned()], ..worker_row("batches") };
    // Who has the handler leaves tasks without its badge alone.
    let (badges, task_types) = (vec!["cpu".to_owned()], vec!["probe".to_owned()]);
    let strict = WorkerRow { badges, strict: true, task_types, ..worker_row("strict") };
    for row in [batches, strict] {
        workers::beat(&mut app.pool.acquire().await.unwrap(), &row, &json!({})).await.unwrap();
    }
    let probe = task(&app, &node(&app, None).await, WriteMode::Itself, 0, None).await;
    let waits = async |since: &str| {
        sqlx::query("UPDATE task_queue SET task_type = 'probe', created_at = now() - $2::text::interval WHERE id = $1")
            .bind(probe)
            .bind(since)
            .execute(&app.pool)
            .await
            .unwrap();
        app.sampled().await;
        app.client.read_health().await.unwrap().status
    };
    assert_eq!(waits("1 second").await, HealthStatus::Ok, "a worker that is just being exchanged is no fault");
    assert_eq!(waits("1 hour").await, HealthStatus::Degraded);
    let failure = app.client.read_readiness().await.unwrap_err();
    assert!(failure.detail.contains("1 tasks of type `probe` have no worker that can run them"), "{failure}");
    let metrics = app.client.read_metrics().await.unwrap();
    assert!(metrics.contains("svc_tasks_without_handler{task_type=\"probe\"} 1"), "{metrics}");
    let findings = async || {
        let (mut conn, patience) = (app.pool.acquire().await.unwrap(), Duration::from_secs(600));
        let found = admin::findings(&mut conn, patience, patience, Outside::default()).await.unwrap();
        found.into_iter().filter(|finding| finding.kind == FindingKind::NoHandler).collect::<Vec<_>>()
    };
    let found = findings().await;
    assert_eq!((found.len(), found[0].about.as_str(), found[0].tasks), (1, "probe", 1), "{found:?}");
    // Whoever pauses the type wants nobody to run it.
    sqlx::query("INSERT INTO paused_task_type (task_type) VALUES ('probe')").execute(&app.pool).await.unwrap();
    assert!(findings().await.is_empty());
    sqlx::query("DELETE FROM task_queue").execute(&app.pool).await.unwrap();
    app.end().await;
}

#[tokio::test]
async fn a_task_type_or_a_badge_lacks_a_worker_a_minute_after_the_last_one_that_served_it_is_gone() {
    let app = idle().await;
    let row = |id: &str, badge: Option<&str>, task_type: &str| WorkerRow {
        badges: badge.map(str::to_owned).into_iter().collect(),
        task_types: vec![task_type.to_owned()],
        ..worker_row(id)
    };
    let beat = async |row: &WorkerRow| {
        workers::beat(&mut app.pool.acquire().await.unwrap(), row, &json!({})).await.unwrap();
    };
    beat(&row("batches", Some("batch"), "summarize:llm")).await;
    let probe = task(&app, &node(&app, None).await, WriteMode::Itself, 0, None).await;
    // There is always a backlog.
    sqlx::query("UPDATE task_queue SET task_type = 'probe', created_at = now() - interval '1 hour' WHERE id = $1")
        .bind(probe)
        .execute(&app.pool)
        .await
        .unwrap();
    let status = async || {
        app.sampled().await;
        app.client.read_health().await.unwrap().status
    };
    let execute = async |statement: &'static str| {
        sqlx::query(statement).execute(&app.pool).await.unwrap();
    };
    for (badge, said) in [
        (None, "1 tasks of type `probe` have no worker that can run them"),
        (Some("gpu"), "1 tasks with badge `gpu` have no worker"),
    ] {
        let worker = row("worker", badge, "probe");
        beat(&worker).await;
        let with_badge = sqlx::query("UPDATE task_queue SET service_badge = $1").bind(badge);
        with_badge.execute(&app.pool).await.unwrap();
        assert_eq!(status().await, HealthStatus::Ok, "{said}");
        workers::remove(&mut app.pool.acquire().await.unwrap(), "worker", worker.boot_nonce).await.unwrap();
        assert_eq!(status().await, HealthStatus::Ok, "another one is about to take its place: {said}");
        assert!(app.client.read_readiness().await.is_ok(), "{said}");
        execute("UPDATE workers_left SET left_at = left_at - interval '1 minute'").await;
        assert_eq!(status().await, HealthStatus::Degraded, "{said}");
        let failure = app.client.read_readiness().await.unwrap_err();
        assert!(failure.detail.contains(said), "{failure}");
        // The same of one that was killed.
        beat(&worker).await;
        execute("UPDATE workers SET beat_at = now() - lease - interval '1 second' WHERE worker_id = 'worker'").await;
        assert_eq!(status().await, HealthStatus::Ok, "{said}");
        execute("UPDATE workers SET beat_at = beat_at - interval '1 minute' WHERE worker_id = 'worker'").await;
        assert_eq!(status().await, HealthStatus::Degraded, "{said}");
    }
    sqlx::query("DELETE FROM task_queue").execute(&app.pool).await.unwrap();
    app.end().await;
}

#[tokio::test]
async fn only_the_owner_is_told_why() {
    let app = TestApp::start().await;
    let ready = async |token: Option<&str>| {
        let request = support::http().get(format!("{}/ready", app.base));
        let answer =
            token.map_or(request.try_clone().unwrap(), |token| request.bearer_auth(token)).send().await.unwrap();
        (answer.status().as_u16(), answer.json::<Value>().await.unwrap())
    };
    let all = until("the service to be ready", async || {
        app.sampled().await;
        Some(ready(Some(support::TOKEN)).await).filter(|(status, _)| *status == 200)
    })
    .await
    .1;
    for part in ["checks", "queue", "workers", "models", "sampled_seconds_ago"] {
        assert!(!all[part].is_null(), "{part} is missing: {all}");
    }
    for token in [None, Some("wrong")] {
        assert_eq!(ready(token).await, (200, json!({"ready": true})));
    }
    let app = {
        app.end().await;
        idle().await
    };
    app.sampled().await;
    let answer = support::http().get(format!("{}/ready", app.base)).send().await.unwrap();
    assert_eq!(answer.status().as_u16(), 503);
    let problem: Value = answer.json().await.unwrap();
    assert!(problem["checks"].is_null() && !problem.to_string().contains("worker"), "{problem}");
    let failure = app.client.read_readiness().await.unwrap_err();
    assert!(failure.detail.contains("no worker is alive"), "{failure}");
    app.end().await;
}

#[tokio::test]
async fn a_long_queue_costs_no_more_than_a_short_one() {
    let app = idle().await;
    let root = node(&app, None).await;
    task(&app, &root, WriteMode::Itself, 0, None).await;
    sqlx::query(
        "INSERT INTO task_queue (task_type, scope_document_id, lane, node_path, node_depth, root_id, write_mode, final, ready, status)
         SELECT task_type, scope_document_id, lane, node_path, node_depth, root_id, write_mode, n <= 30000, n > 30000,
                CASE WHEN n <= 30000 THEN 'completed' ELSE 'pending' END
           FROM task_queue, generate_series(1, 60000) n ORDER BY n",
    )
    .execute(&app.pool)
    .await
    .unwrap();
    sqlx::query("ANALYZE task_queue").execute(&app.pool).await.unwrap();
    app.sampled().await;
    let sample = app.service.sampler.known().sample.unwrap();
    let queue = sample.numbers.queue();
    assert_eq!((queue.pending, queue.held), (COUNTED, 0));
    assert_eq!(sample.numbers.unserved_badges[0].1, COUNTED, "nobody works");
    let metrics = app.client.read_metrics().await.unwrap();
    assert!(metrics.contains("svc_sample_age_seconds"), "{metrics}");

    let samples = svc::store::database::pool_of_samples(&app.pool, Duration::from_secs(60));
    let explain = sqlx::AssertSqlSafe(format!("EXPLAIN (ANALYZE) {UNFINISHED}"));
    let plan: Vec<String> = sqlx::query_scalar(explain).bind(COUNTED).fetch_all(&samples).await.unwrap();
    let plan = plan.join("\n");
    assert!(plan.contains("task_queue_unfinished") && !plan.contains("Seq Scan on task_queue"), "{plan}");
    samples.close().await;
    sqlx::query("DELETE FROM task_queue").execute(&app.pool).await.unwrap();
    app.end().await;
}

#[tokio::test]
async fn a_page_of_tasks_reads_none_that_it_does_not_show() {
    let app = idle().await;
    let root = node(&app, None).await;
    task(&app, &root, WriteMode::Itself, 0, None).await;
    // Few owe work or have failed, after all those of a week that are done.
    sqlx::query(
        "INSERT INTO task_queue (task_type, scope_document_id, lane, node_path, node_depth, root_id, write_mode, final, ready, status, error_type)
         SELECT task_type, scope_document_id, lane, node_path, node_depth, root_id, write_mode, n <= 30020, n > 30040, 
                CASE WHEN n <= 30000 THEN 'completed' WHEN n <= 30040 THEN 'failed' ELSE 'pending' END,
                CASE WHEN n BETWEEN 30001 AND 30020 THEN 'permanent' WHEN n BETWEEN 30021 AND 30040 THEN 'retryable' END
           FROM task_queue, generate_series(1, 30060) n ORDER BY n",
    )
    .execute(&app.pool)
    .await
    .unwrap();
    sqlx::query("ANALYZE task_queue").execute(&app.pool).await.unwrap();
    let states = [
        None,
        Some(TaskStatus::Pending),
        Some(TaskStatus::Running),
        Some(TaskStatus::Failed),
        Some(TaskStatus::Completed),
    ];
    for (status, shown) in states.into_iter().zip([41, 21, 0, 40, 51]) {
        for task_type in [None, Some("test".to_owned())] {
            let query = TaskQuery { status, task_type, ..TaskQuery::default() };
            let mut tx = app.pool.begin().await.unwrap();
            let tasks = admin::tasks(&mut tx, &query, TaskId(0), 51).await.unwrap();
            assert_eq!(tasks.len(), shown, "{query:?}");
            assert!(tasks.is_sorted_by_key(|task| task.id), "{query:?}");
            let read: i64 = sqlx::query_scalar(
                "SELECT seq_tup_read + coalesce(idx_tup_fetch, 0) FROM pg_stat_xact_user_tables WHERE relname = 'task_queue'",
            )
            .fetch_one(&mut *tx)
            .await
            .unwrap();
            // Each task that is shown is looked up a few times more.
            assert!(read < 1000, "{query:?} reads {read} rows");
        }
    }
    sqlx::query("DELETE FROM task_queue").execute(&app.pool).await.unwrap();
    app.end().await;
}
