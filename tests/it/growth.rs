//! The signs that one server will not do for much longer: each is provoked, and found wherever one looks.
use crate::{
    admin::{of_root, run, worker_command},
    console::Console,
    edits::patched,
    queue::{LEASE, claimer, node, task},
    runner::{Script, far, runner},
    support::{TOKEN, TestApp, Wish, repository, sample, searches::ask, server, until},
};
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use svc::{
    store::growth::{self, Timed},
    worker::queue::PgQueue,
};
use svc_actors::{Lane, Queue, WriteMode};
use svc_client::{
    Code, Failure,
    wire::{DocumentPath, Finding, FindingKind},
};

/// Each sign, with a part of what helps.
const SIGNS: &[(FindingKind, &str)] = &[
    (FindingKind::FileBytes, "rung 2: name an object store in SVC_BLOB_STORE"),
    (FindingKind::VectorMemory, "rung 1: give the server more memory"),
    (FindingKind::SlowSearches, "rung 3: let standbys answer reads"),
    (FindingKind::SlowIngestion, "rung 4: give the server faster disks"),
    (FindingKind::SlowBm25, "rung 5: search indexes of parts"),
    (FindingKind::SlowClaims, "the queue: run fewer and larger workers"),
];

/// So many calls are enough to say how long they take.
const ENOUGH: usize = 50;

fn signs(findings: Vec<Finding>) -> Vec<Finding> {
    findings.into_iter().filter(|finding| SIGNS.iter().any(|(kind, _)| *kind == finding.kind)).collect()
}

/// Tells the database what this process remembers, and what is found then.
async fn told(app: &TestApp) -> Vec<Finding> {
    app.service.load.tell(&app.pool).await.unwrap();
    signs(app.client.list_findings().await.unwrap().findings)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_sign_is_found_wherever_one_looks_and_names_the_next_rung() {
    let options = server::new_database().await;
    let patient = [("SVC_GROWTH_SEARCH_SECONDS", "60"), ("SVC_GROWTH_CLAIM_SECONDS", "60")];
    let wish = Wish { settings: &patient, database: Some(options.clone()), ..Wish::default() };
    let app = TestApp::with(wish).await;
    app.ingest(&sample("handbook.md")).await;
    let small = told(&app).await;
    assert!(small.is_empty(), "a small store has room to grow: {small:?}");
    app.end().await;

    // In this database the server seems to have hardly any memory.
    let mut conn = PgConnection::connect_with(&options).await.unwrap();
    let change = format!("ALTER DATABASE {} SET effective_cache_size = '8kB'", options.get_database().unwrap());
    sqlx::raw_sql(sqlx::AssertSqlSafe(change)).execute(&mut conn).await.unwrap();
    conn.close().await.unwrap();
    let hasty = [
        // The index of no large objects has a page.
        ("SVC_GROWTH_FILE_BYTES", "8192"),
        ("SVC_GROWTH_SEARCH_SECONDS", "0.000001"),
        ("SVC_GROWTH_CLAIM_SECONDS", "0.000001"),
    ];
    let wish = Wish { settings: &hasty, no_worker: true, database: Some(options), ..Wish::default() };
    let app = TestApp::with(wish).await;
    for _ in 0..ENOUGH {
        ask(&app.client, "hybrid", &json!({"query": "What does the handbook say of holidays?"})).await.unwrap();
    }
    let queue = PgQueue::new(&app.service.tools(), claimer("w"), LEASE, None);
    for _ in 0..ENOUGH {
        queue.claim(&[(Lane::Io, 1)]).await.unwrap();
    }
    // A task waits to be embedded, and those that ran waited for the database most of their time.
    let waits = task(&app, &node(&app, None).await, WriteMode::Itself, 0, None).await;
    sqlx::query("UPDATE task_queue SET task_type = 'embed', created_at = now() - interval '1 hour' WHERE id = $1")
        .bind(waits)
        .execute(&app.pool)
        .await
        .unwrap();
    app.index_vectors().await;
    for _ in 0..ENOUGH {
        app.service.load.record(Timed::Embed, Duration::from_secs(1));
        app.service.load.record(Timed::Encode, Duration::from_millis(100));
    }
    // Where all tests have an object store, the database has no bytes of files.
    let is_there = |kind: FindingKind| kind != FindingKind::FileBytes || !app.service.blobs.are_outside();
    let expected: Vec<_> = SIGNS.iter().filter(|(kind, _)| is_there(*kind)).collect();
    let findings = until("all signs", async || {
        let findings = told(&app).await;
        (findings.len() == expected.len()).then_some(findings)
    })
    .await;
    for (finding, (kind, remedy)) in findings.iter().zip(&expected) {
        assert!(finding.kind == *kind && finding.remedy.starts_with(remedy), "{finding:?}");
        assert!(!finding.about.is_empty(), "{finding:?}");
    }
    let ingestion = findings.iter().find(|finding| finding.kind == FindingKind::SlowIngestion).unwrap();
    assert!(ingestion.tasks == 1 && ingestion.about.contains("% of the time of embed tasks"), "{ingestion:?}");
    assert_eq!(signs(app.client.read_overview().await.unwrap().findings).len(), findings.len());

    let console = Console::of(&app).await;
    let cookie = console.sign_in(TOKEN).await;
    let page = console.text("/", &cookie).await;
    assert!(page.contains("The indexes of vectors are larger than half the memory"), "{page}");
    console.end().await;

    let mut doctor = worker_command(&app, &["doctor", "--json"]);
    doctor.envs(hasty);
    let said = run(doctor).await;
    let text = String::from_utf8(said.stdout).unwrap();
    assert_eq!(said.status.code(), Some(1), "{text}");
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let guide = std::fs::read_to_string(repository().join("docs/operations.md")).unwrap();
    for (kind, remedy) in expected {
        let line = lines
            .iter()
            .find(|line| line["kind"] == kind.as_str())
            .unwrap_or_else(|| panic!("the doctor does not name {kind}"));
        assert!(line["remedy"].as_str().unwrap().starts_with(remedy), "{line}");
        assert!(guide.contains(&format!("`{kind}`")), "docs/operations.md does not name {kind}");
    }

    app.sampled().await;
    let metrics = app.client.read_metrics().await.unwrap();
    for name in [
        "svc_large_object_bytes ",
        "svc_vector_index_bytes ",
        "svc_database_cache_bytes ",
        "svc_search_seconds_bucket{",
        "svc_bm25_seconds_bucket{",
        "svc_encode_seconds_bucket{",
        "svc_claim_seconds_bucket{",
    ] {
        assert!(metrics.lines().any(|line| line.starts_with(name)), "{name} is not in {metrics}");
    }

    // Where models take most of the time, a larger database would not help.
    app.service.load.record(Timed::Encode, Duration::from_secs(60));
    until("the sign to be over", async || {
        told(&app).await.iter().all(|finding| finding.kind != FindingKind::SlowIngestion).then_some(())
    })
    .await;
    sqlx::query("DELETE FROM task_queue").execute(&app.pool).await.unwrap();
    app.end().await;
}

/// How many embed tasks the database is told of and how long they took together, and the same of the model's part in them.
async fn timed(app: &TestApp) -> [(i32, f64); 2] {
    app.service.load.tell(&app.pool).await.unwrap();
    let of = async |kind: &str| {
        let told = "SELECT calls, total_seconds FROM process_timings WHERE kind = $1";
        let told: Option<(i32, f64)> = sqlx::query_as(told).bind(kind).fetch_optional(&app.pool).await.unwrap();
        told.unwrap_or_default()
    };
    [of("embed").await, of("encode").await]
}

#[tokio::test]
async fn a_task_that_waits_for_a_model_does_not_seem_to_wait_for_the_database() {
    let runner = runner().await;
    let (is_late, is_silent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (late, silent) = (is_late.clone(), is_silent.clone());
    // The caller comes again after as many seconds.
    let refusal = Failure::new(Code::Unavailable, "later").with("retry_after", 4);
    let refusal = serde_json::to_string(&refusal).unwrap();
    let script = Script::before(&runner.base, move |path, _| match path {
        "/runner/tokens" if late.swap(false, Ordering::Relaxed) => Some((503, refusal.clone())),
        "/runner/embed" if silent.swap(false, Ordering::Relaxed) => Some((0, String::new())),
        _ => None,
    })
    .await;
    let app = TestApp::with(Wish { settings: &far(&script.base), ..Wish::default() }).await;
    let calls = async |expected: i32| {
        until("the calls to be told", async || {
            let told = timed(&app).await;
            (told[0].0 + told[1].0 == expected).then_some(told)
        })
        .await
    };
    let id = app.create("Bread", "Yeast eats the sugar in the dough.", None).await.id;
    app.client.embed_tokens(DocumentPath { id }).await.unwrap();
    let before = calls(2).await;

    // A document that had token vectors gets them again, and the model is asked for these by themselves.
    is_late.store(true, Ordering::Relaxed);
    patched(&app, id, json!({"content": "Rye bread is sour."})).await;
    let late = calls(4).await;
    let (of_task, of_model) = (late[0].1 - before[0].1, late[1].1 - before[1].1);
    assert!(of_model > 4.0 && of_model >= 0.8 * of_task, "{of_model} of {of_task}");

    // A task that was given no answer fails, and is done at its next attempt.
    is_silent.store(true, Ordering::Relaxed);
    patched(&app, id, json!({"content": "Wheat bread is mild."})).await;
    let failed = until("an attempt to fail", async || {
        let tasks = app.client.list_tasks(of_root(id)).await.unwrap().tasks;
        tasks.into_iter().find(|task| task.retry_after.is_some())
    })
    .await;
    let again = sqlx::query("UPDATE task_queue SET retry_after = now() WHERE id = $1").bind(failed.id);
    again.execute(&app.pool).await.unwrap();
    let silent = calls(7).await;
    assert_eq!((silent[0].0, silent[1].0), (3, 4), "the failed attempt took the model's time alone");
    assert!(silent[1].1 - late[1].1 >= 2.0, "{silent:?}");
    app.end().await;
    runner.end().await;
}

#[tokio::test]
async fn whoever_holds_what_is_measured_alone_keeps_nobody_waiting() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    sqlx::raw_sql("CREATE INDEX held ON document_vectors USING hnsw ((embed::halfvec(4)) halfvec_cosine_ops)")
        .execute(&app.pool)
        .await
        .unwrap();
    let mut conn = app.pool.acquire().await.unwrap();
    sqlx::raw_sql("SET statement_timeout = '20s'").execute(&mut *conn).await.unwrap();
    let mut tx = app.pool.begin().await.unwrap();
    sqlx::raw_sql("REINDEX INDEX held").execute(&mut *tx).await.unwrap();
    assert!(growth::sizes(&mut conn).await.unwrap().is_none());
    // A doctor has measured nothing before.
    let said = run(worker_command(&app, &["doctor", "--json"])).await;
    assert!(said.status.success(), "{said:?}");
    tx.rollback().await.unwrap();
    let sizes = growth::sizes(&mut conn).await.unwrap().expect("nobody holds anything");
    assert!(sizes.vector_indexes > 0 && sizes.cache > 0, "{sizes:?}");
    conn.close().await.unwrap();
    sqlx::raw_sql("DROP INDEX held").execute(&app.pool).await.unwrap();
    app.end().await;
}

#[tokio::test]
async fn the_oldest_of_very_many_tasks_that_wait_is_told() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    task(&app, &node(&app, None).await, WriteMode::Itself, 0, None).await;
    // More than are counted wait for an hour, and behind them one with a badge, which is less urgent, for two.
    sqlx::query(
        "INSERT INTO task_queue (task_type, scope_document_id, lane, node_path, node_depth, root_id, write_mode, priority, created_at, service_badge)
         SELECT 'embed', scope_document_id, lane, node_path, node_depth, root_id, write_mode, n, now() - make_interval(hours => 2 - least(n, 1)), CASE n WHEN 0 THEN 'gpu' END
           FROM task_queue, generate_series(20000, 0, -1) n ORDER BY n DESC",
    )
    .execute(&app.pool)
    .await
    .unwrap();
    sqlx::query("ANALYZE task_queue").execute(&app.pool).await.unwrap();
    for _ in 0..ENOUGH {
        app.service.load.record(Timed::Embed, Duration::from_secs(1));
    }
    let found = until("the sign", async || {
        told(&app).await.into_iter().find(|finding| finding.kind == FindingKind::SlowIngestion)
    })
    .await;
    assert!(found.tasks == 10_000 && found.seconds > 7_000.0, "{found:?}");
    // Whoever watches the console has this read again and again.
    let mut tx = app.pool.begin().await.unwrap();
    let sizes = app.service.load.growth(&mut tx).await.unwrap();
    let read =
        "SELECT seq_tup_read + coalesce(idx_tup_fetch, 0) FROM pg_stat_xact_user_tables WHERE relname = 'task_queue'";
    let before: i64 = sqlx::query_scalar(read).fetch_one(&mut *tx).await.unwrap();
    growth::signs(&mut tx, Duration::from_secs(60), &sizes).await.unwrap();
    let after: i64 = sqlx::query_scalar(read).fetch_one(&mut *tx).await.unwrap();
    tx.rollback().await.unwrap();
    assert!((10_000..12_000).contains(&(after - before)), "{} of 20,001 tasks were read", after - before);
    sqlx::query("DELETE FROM task_queue").execute(&app.pool).await.unwrap();
    app.end().await;
}

#[tokio::test]
async fn few_calls_and_those_of_long_ago_are_no_sign() {
    let settings = [("SVC_GROWTH_CLAIM_SECONDS", "0.05")];
    let app = TestApp::with(Wish { settings: &settings, no_worker: true, ..Wish::default() }).await;
    let is_slow = async || told(&app).await.iter().any(|finding| finding.kind == FindingKind::SlowClaims);
    for _ in 1..ENOUGH {
        app.service.load.record(Timed::Claim, Duration::from_secs(1));
    }
    assert!(!is_slow().await, "that is too few to tell");
    app.service.load.record(Timed::Claim, Duration::from_secs(1));
    until("the sign", async || is_slow().await.then_some(())).await;
    // One slow call of twenty is usual.
    for _ in 0..19 * ENOUGH {
        app.service.load.record(Timed::Claim, Duration::from_millis(1));
    }
    until("the sign to be over", async || (!is_slow().await).then_some(())).await;

    // A process that ended an hour ago was slow, and of one that ended long ago nothing is kept.
    sqlx::query(
        "INSERT INTO process_timings (process, kind, told_at, calls, p95_seconds, total_seconds)
         VALUES (gen_random_uuid(), 'claim', now() - interval '1 hour', 1000, 9, 9000),
                (gen_random_uuid(), 'claim', now() - interval '2 days', 1000, 9, 9000)",
    )
    .execute(&app.pool)
    .await
    .unwrap();
    assert!(!is_slow().await);
    app.service.load.record(Timed::Claim, Duration::from_millis(1));
    until("the row of long ago to be gone", async || {
        assert!(!is_slow().await);
        let count: i64 = sqlx::query_scalar("SELECT count(*) FROM process_timings").fetch_one(&app.pool).await.unwrap();
        (count == 2).then_some(())
    })
    .await;
    app.end().await;
}
