//! What an operator sees at a glance: the overview, findings, failures, files with their stories, regions as boxes.
use crate::{
    admin::idle,
    queue::{LEASE, node, task},
    support::{TestApp, Wish, engine, sample, until},
};
use std::time::Duration;
use svc::store::tasks::{self, Claimer};
use svc_actors::{Grant, Lane, TaskFailure, WriteMode};
use svc_client::{
    Code, Json,
    wire::{
        BlockedBy, DocumentPath, ErrorType, FailureChoice, FailureQuery, FileQuery, Finding, FindingKind, PageQuery,
        RegionMapQuery, Settled, SnapshotPart, StoryQuery, TaskLane, TaskPath, TaskQuery, TaskStatus, TaskTypePath,
        ThroughputQuery, WorkerPath, WorkerQuery,
    },
};

async fn claim(app: &TestApp, count: usize) -> Vec<Grant> {
    let claimer = Claimer { worker_id: "w".to_owned(), badges: None, strict: false, lease: LEASE };
    tasks::claim(&app.pool, &claimer, &[(Lane::Io, count)]).await.unwrap().grants
}

async fn fail(app: &TestApp, grant: &Grant, code: &str) {
    let mut conn = app.pool.acquire().await.unwrap();
    let failure = TaskFailure::permanent(code, "<script>alert(1)</script>");
    tasks::fail(&mut conn, grant, &failure, "w", Duration::ZERO).await.unwrap();
}

#[tokio::test]
async fn the_overview_counts_what_runs_and_what_waits_for_what() {
    let app = idle().await;
    let root = node(&app, None).await;
    let child = node(&app, Some(root.0)).await;
    let other = node(&app, None).await;
    let whole = task(&app, &root, WriteMode::Subtree, 9, None).await;
    let below = task(&app, &child, WriteMode::Itself, 8, None).await;
    task(&app, &other, WriteMode::Itself, -9, Some("gpu")).await;
    let held = claim(&app, 1).await;
    assert_eq!(held[0].task_id, whole);
    app.client.pause_task_type(TaskTypePath { task_type: "embed".to_owned() }).await.unwrap();

    // A full disk is found wherever one looks.
    app.service.disk.refused();
    let overview = app.client.read_overview().await.unwrap();
    let of = |name: &str| overview.task_types.iter().find(|row| row.task_type == name);
    let test = of("test").unwrap();
    let waiting: i64 = test.blocked_by.values().sum();
    assert_eq!(
        (test.running, waiting, overview.regions_held),
        (held.len() as i64, 3 - held.len() as i64, held.len() as i64)
    );
    assert!(of("embed").unwrap().paused_since.is_some());
    // Each reason is the one that the task itself tells.
    let mut reasons = std::collections::BTreeMap::new();
    for task in app.client.list_tasks(crate::admin::of_root(root.0)).await.unwrap().tasks {
        if let Some(blockage) = task.blocked_by {
            *reasons.entry(blockage.reason).or_insert(0) += 1;
        }
    }
    for (reason, tasks) in reasons {
        assert!(test.blocked_by[&reason] >= tasks, "{reason}: {:?}", test.blocked_by);
    }
    assert_eq!(overview.queue.held, held.len() as i64);
    assert!(!overview.findings.is_empty(), "nobody works");
    let findings = app.client.list_findings().await.unwrap().findings;
    let kinds =
        |findings: &[Finding]| findings.iter().map(|finding| (finding.kind, finding.about.clone())).collect::<Vec<_>>();
    assert_eq!(kinds(&overview.findings), kinds(&findings));
    assert!(findings.iter().any(|finding| finding.kind == FindingKind::Disk), "{findings:?}");
    assert!(findings.iter().all(|finding| !finding.remedy.is_empty()));
    let metrics = async {
        app.sampled().await;
        app.client.read_metrics().await.unwrap()
    };
    assert!(metrics.await.contains("svc_tasks_blocked{blocked_by=\"no_worker\"}"));

    let blockage = app.client.read_task(TaskPath { id: below.0 }).await.unwrap().blocked_by.unwrap();
    assert_eq!(blockage.reason, BlockedBy::NoWorker);
    sqlx::query("DELETE FROM task_reservation").execute(&app.pool).await.unwrap();
    sqlx::query("DELETE FROM task_queue").execute(&app.pool).await.unwrap();
    app.end().await;
}

#[tokio::test]
async fn what_failed_is_told_by_its_reason_and_put_back_together() {
    let app = idle().await;
    let mut failed = Vec::new();
    for _ in 0..3 {
        let root = node(&app, None).await;
        failed.push(task(&app, &root, WriteMode::Itself, 0, None).await);
    }
    let grants = claim(&app, 3).await;
    fail(&app, &grants[0], "away").await;
    fail(&app, &grants[1], "away").await;
    fail(&app, &grants[2], "corrupt").await;

    let list = app.client.list_failures(FailureQuery::default()).await.unwrap();
    let groups: Vec<_> =
        list.failures.iter().map(|group| (group.code.as_deref(), group.tasks, group.error_type)).collect();
    assert_eq!(groups, [(Some("away"), 2, ErrorType::Permanent), (Some("corrupt"), 1, ErrorType::Permanent)]);
    let first = &list.failures[0];
    assert_eq!((list.examined, first.sample.title.as_deref()), (3, Some("node")));
    assert_eq!(first.message.as_deref(), Some("<script>alert(1)</script>"));
    let row = app.client.read_task(TaskPath { id: first.sample.task_id }).await.unwrap();
    assert_eq!((row.title.as_deref(), row.last_error.unwrap().code.as_deref()), (Some("node"), Some("away")));

    let minutes = app.client.read_throughput(ThroughputQuery::default()).await.unwrap().minutes;
    assert_eq!(
        minutes.iter().map(|minute| (minute.arrived, minute.completed, minute.failed)).fold((0, 0, 0), |a, b| (
            a.0 + b.0,
            a.1 + b.1,
            a.2 + b.2
        )),
        (3, 0, 3)
    );

    // One of them failed two hours ago.
    sqlx::query("UPDATE task_attempts SET ended_at = ended_at - interval '2 hours' WHERE task_id = $1")
        .bind(grants[0].task_id.0)
        .execute(&app.pool)
        .await
        .unwrap();
    let within = async |minutes| {
        let list = app.client.list_failures(FailureQuery { minutes: Some(minutes) }).await.unwrap();
        let groups = list.failures.into_iter().map(|group| (group.code.unwrap(), group.tasks));
        groups.collect::<std::collections::BTreeMap<_, _>>()
    };
    let counts = |away| [("away".to_owned(), away), ("corrupt".to_owned(), 1)].into();
    assert_eq!((within(60).await, within(180).await), (counts(1), counts(2)));
    for minutes in [0, 43_201] {
        let refused = app.client.list_failures(FailureQuery { minutes: Some(minutes) }).await.unwrap_err();
        assert_eq!((refused.code, &refused.members["field"]), (Code::InvalidField, &"minutes".into()));
    }
    let lately = FailureChoice {
        task_type: "test".into(),
        error_type: ErrorType::Permanent,
        code: Some("away".into()),
        minutes: Some(60),
    };
    let retried = app.client.retry_failures(Json(lately)).await.unwrap();
    assert_eq!((retried.retried, retried.left), (1, 0), "only what was shown is queued again");
    assert_eq!(within(60).await, [("corrupt".to_owned(), 1)].into());

    let away = FailureChoice {
        task_type: "test".into(),
        error_type: ErrorType::Permanent,
        code: Some("away".into()),
        minutes: None,
    };
    let retried = app.client.retry_failures(Json(away.clone())).await.unwrap();
    assert_eq!((retried.retried, retried.left), (1, 0));
    for grant in &grants[..2] {
        let row = app.client.read_task(TaskPath { id: grant.task_id.0 }).await.unwrap();
        assert_eq!((row.status, row.finished), (TaskStatus::Pending, false));
    }
    assert_eq!(
        app.client.list_failures(FailureQuery::default()).await.unwrap().failures.len(),
        1,
        "the other reason stays"
    );
    assert_eq!(app.client.retry_failures(Json(away)).await.unwrap().retried, 0);
    sqlx::query("DELETE FROM task_queue").execute(&app.pool).await.unwrap();
    app.end().await;
}

#[tokio::test]
async fn tasks_arrive_in_the_minute_in_which_they_were_queued() {
    let app = idle().await;
    let root = node(&app, None).await;
    task(&app, &root, WriteMode::Itself, 0, None).await;
    // A week of tasks, of which 10 arrived in each minute.
    sqlx::query(
        "INSERT INTO task_queue (task_type, scope_document_id, lane, node_path, node_depth, root_id, write_mode, final, ready, status, created_at)
         SELECT task_type, scope_document_id, lane, node_path, node_depth, root_id, write_mode, true, false, 'completed',
                date_trunc('minute', now()) - make_interval(mins => 10079 - n / 10) - interval '30 seconds'
           FROM task_queue, generate_series(0, 100789) n ORDER BY n",
    )
    .execute(&app.pool)
    .await
    .unwrap();
    let minutes = app.client.read_throughput(ThroughputQuery { minutes: Some(30) }).await.unwrap().minutes;
    assert!((27..=30).contains(&minutes.len()), "{}", minutes.len());
    assert!(minutes.iter().rev().skip(1).all(|minute| (minute.arrived, minute.completed) == (10, 0)), "{minutes:?}");
    // Only what arrived since is read.
    let plan: Vec<String> = sqlx::query_scalar(
        "EXPLAIN (ANALYZE) SELECT count(*) FROM task_queue WHERE id >= first_task_since(now() - interval '1 hour')",
    )
    .fetch_all(&app.pool)
    .await
    .unwrap();
    let first: i64 =
        sqlx::query_scalar("SELECT first_task_since(now() - interval '1 hour')").fetch_one(&app.pool).await.unwrap();
    let later: i64 = sqlx::query_scalar("SELECT count(*) FROM task_queue WHERE id >= $1")
        .bind(first)
        .fetch_one(&app.pool)
        .await
        .unwrap();
    assert!((580..=610).contains(&later), "{later} of an hour: {plan:?}");
    sqlx::query("DELETE FROM task_queue").execute(&app.pool).await.unwrap();
    app.end().await;
}

#[tokio::test]
async fn tasks_are_listed_by_the_folder_that_they_are_under() {
    let app = idle().await;
    let folder = node(&app, None).await;
    let inner = node(&app, Some(folder.0)).await;
    let deep = node(&app, Some(inner.0)).await;
    let beside = node(&app, None).await;
    let mut tasks = Vec::new();
    for place in [&folder, &inner, &deep, &beside] {
        tasks.push(task(&app, place, WriteMode::Itself, 0, None).await.0);
    }
    // The file is the inner one: its tasks and those of its parts have it as their root.
    sqlx::query("UPDATE task_queue SET root_id = $1 WHERE scope_document_id = ANY ($2)")
        .bind(inner.0)
        .bind([inner.0, deep.0])
        .execute(&app.pool)
        .await
        .unwrap();
    let under = async |id: i64, status: Option<TaskStatus>| {
        let query = TaskQuery { under: Some(id), status, ..TaskQuery::default() };
        app.client.list_tasks(query).await.unwrap().tasks.into_iter().map(|task| task.id).collect::<Vec<_>>()
    };
    for status in [None, Some(TaskStatus::Pending)] {
        assert_eq!(under(folder.0, status).await, tasks[..3]);
        assert_eq!(under(inner.0, status).await, tasks[1..3]);
        assert_eq!(under(deep.0, status).await, tasks[2..3], "a part of a file has its own");
        assert_eq!(under(beside.0, status).await, tasks[3..]);
        assert!(under(999_999, status).await.is_empty());
    }
    sqlx::query(
        "UPDATE task_queue SET final = true, ready = false, status = 'failed', error_type = 'permanent' WHERE id = $1",
    )
    .bind(tasks[2])
    .execute(&app.pool)
    .await
    .unwrap();
    assert_eq!(under(folder.0, None).await, tasks[..2]);
    assert_eq!(under(folder.0, Some(TaskStatus::Failed)).await, tasks[2..3]);
    sqlx::query("DELETE FROM task_queue").execute(&app.pool).await.unwrap();
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_story_tells_of_the_whole_tree_in_its_order() {
    let app = TestApp::start().await;
    let (first, _) = app.ingest(&sample("handbook.md")).await;
    let hostile = app.upload_bytes("<script>alert(1).md", "# One\n\nA heron.\n\n# Two\n\nA coot.\n").await.unwrap();
    app.settled(hostile.document_id).await;

    let story = app.client.read_story(DocumentPath { id: hostile.document_id }, StoryQuery::default()).await.unwrap();
    assert_eq!((story.title.as_str(), story.state), ("<script>alert(1).md", Settled::Settled));
    let types: Vec<&str> = story.entries.iter().map(|entry| entry.task_type.as_str()).collect();
    assert_eq!(types[..2], ["probe", "extract:text"]);
    assert!(
        types.contains(&"embed") && types.contains(&"summarize"),
        "tasks of nodes under the file are told too: {types:?}"
    );
    for entry in &story.entries {
        let (queued, ended) = (entry.queued_at.unwrap(), entry.ended_at.unwrap());
        assert!(queued <= entry.started_at && entry.started_at <= ended, "{entry:?}");
        assert!(entry.worker.is_some() && entry.attempts >= 1 && entry.outcome.is_some());
    }
    let missing = app.client.read_story(DocumentPath { id: 999_999 }, StoryQuery::default()).await.unwrap_err();
    assert_eq!(missing.code, Code::NotFound);

    let page = |query| app.client.list_files(query);
    let latest = page(FileQuery { limit: Some(1), ..FileQuery::default() }).await.unwrap();
    assert_eq!((latest.files[0].id, latest.files[0].state), (hostile.document_id, Settled::Settled));
    assert!(latest.files[0].nodes_total.unwrap() >= 4 && latest.files[0].nodes_total == latest.files[0].nodes_settled);
    let rest = page(FileQuery { cursor: latest.next_cursor, ..FileQuery::default() }).await.unwrap();
    assert_eq!(rest.files.iter().map(|file| file.id).collect::<Vec<_>>(), [first]);
    let named = page(FileQuery { name: Some("SCRIPT>a".to_owned()), ..FileQuery::default() }).await.unwrap();
    assert_eq!(named.files.len(), 1);
    let failed = page(FileQuery { state: Some(Settled::Failed), ..FileQuery::default() }).await.unwrap();
    assert!(failed.files.is_empty());
    app.end().await;
}

#[tokio::test]
async fn a_region_is_a_box_in_its_file_and_two_held_ones_never_meet() {
    let app = idle().await;
    let root = node(&app, None).await;
    let left = node(&app, Some(root.0)).await;
    let right = node(&app, Some(root.0)).await;
    let deep = node(&app, Some(right.0)).await;
    let held_left = task(&app, &left, WriteMode::Subtree, 9, None).await;
    let held_deep = task(&app, &deep, WriteMode::Itself, 8, None).await;
    let waits = task(&app, &root, WriteMode::Subtree, 7, None).await;
    assert_eq!(claim(&app, 3).await.len(), 2);

    let map = app.client.draw_regions(RegionMapQuery::default()).await.unwrap();
    assert_eq!((map.files.len(), map.held, map.tasks_waiting), (1, 2, 1));
    let file = &map.files[0];
    assert_eq!(
        file.columns.iter().map(|column| (column.from, column.to)).collect::<Vec<_>>(),
        [(0.0, 0.5), (0.5, 1.0)]
    );
    let [a, b] = &file.held[..] else { panic!("{:?}", file.held) };
    assert_eq!([a.task_id, b.task_id], [held_left.0, held_deep.0]);
    assert_eq!((a.from, a.to, a.top, a.bottom), (0.0, 0.5, 1, None));
    assert_eq!((b.from, b.to, b.top, b.bottom), (0.5, 1.0, 2, Some(3)));
    assert_eq!(b.worker.as_deref(), Some("w"));
    assert!(a.to <= b.from || b.to <= a.from);
    let waiting = &file.waiting[0];
    assert_eq!((waiting.task_id, waiting.from, waiting.to, waiting.top), (waits.0, 0.0, 1.0, 0));
    assert!([held_left.0, held_deep.0].contains(&waiting.behind.unwrap()));
    let none =
        app.client.draw_regions(RegionMapQuery { root_id: Some(left.0), ..RegionMapQuery::default() }).await.unwrap();
    assert!(none.files.is_empty());
    let regions = app.client.list_reservations(PageQuery::default()).await.unwrap().reservations;
    assert_eq!(regions.len(), 2);
    sqlx::query("DELETE FROM task_reservation").execute(&app.pool).await.unwrap();
    sqlx::query("DELETE FROM task_queue").execute(&app.pool).await.unwrap();
    app.end().await;
}

/// However many files have regions, only those that are shown are looked up.
#[tokio::test]
async fn regions_are_shown_page_by_page_with_the_numbers_of_all() {
    const FILES: usize = 40;
    let app = idle().await;
    let mut roots = Vec::new();
    for number in 0..FILES {
        let root = node(&app, None).await;
        task(&app, &root, WriteMode::Subtree, 9, None).await;
        // The later a file, the more of its tasks wait.
        for _ in 0..=number / 10 {
            task(&app, &root, WriteMode::Itself, 0, None).await;
        }
        roots.push(root.0);
    }
    assert_eq!(claim(&app, FILES).await.len(), FILES);
    assert!(claim(&app, 200).await.is_empty(), "all others wait for them");
    let mut tx = svc::store::transaction::begin(&app.pool).await.unwrap();
    // A table this small would be read whole.
    sqlx::query("SET LOCAL enable_seqscan = off").execute(&mut *tx).await.unwrap();
    let read = "SELECT coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0) FROM pg_stat_xact_user_tables WHERE relname = 'documents'";
    let before: i64 = sqlx::query_scalar(read).fetch_one(&mut *tx).await.unwrap();
    let (page, all) = svc::store::regions::files(&mut tx, None, 0, 3).await.unwrap();
    let rows = sqlx::query_scalar::<_, i64>(read).fetch_one(&mut *tx).await.unwrap() - before;
    tx.rollback().await.unwrap();
    assert!(page.len() == 3 && rows <= 3, "{rows} documents were read for {} files", page.len());
    assert_eq!((all.files, all.held, all.waiting), (FILES as i64, FILES as i64, 100));

    let (mut cursor, mut shown) = (None, Vec::new());
    loop {
        let query = RegionMapQuery { cursor, limit: Some(7), ..RegionMapQuery::default() };
        let map = app.client.draw_regions(query).await.unwrap();
        assert_eq!((map.files_total, map.held, map.tasks_waiting), (FILES as i64, FILES as i64, 100));
        shown.extend(map.files.iter().map(|file| file.root_id));
        cursor = map.next_cursor;
        if cursor.is_none() {
            break;
        }
    }
    roots.reverse();
    assert_eq!(shown, roots, "those with most waiting tasks first, then the latest");
    let past = RegionMapQuery { cursor: Some("1000".to_owned()), ..RegionMapQuery::default() };
    let past = app.client.draw_regions(past).await.unwrap();
    assert_eq!((past.files.len(), past.files_total), (0, FILES as i64));
    sqlx::query("DELETE FROM task_reservation").execute(&app.pool).await.unwrap();
    sqlx::query("DELETE FROM task_queue").execute(&app.pool).await.unwrap();
    app.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn who_looks_at_the_actors_sees_them_as_they_are_now() {
    // Heartbeats come so seldom that the second snapshot is there only because somebody looks.
    let settings = [
        ("SVC_WORKER_HEARTBEAT_SECONDS", "300"),
        ("SVC_WORKER_LEASE_SECONDS", "900"),
        ("SVC_WORKER_ID", "looked/at me"),
    ];
    let app = TestApp::with(Wish { settings: &settings, ..Wish::default() }).await;
    let read = async |part| {
        let query = WorkerQuery { snapshot: Some(part) };
        app.client.read_worker(WorkerPath { id: "looked/at me".to_owned() }, query).await.ok()
    };
    let taken =
        async || read(SnapshotPart::Tree).await?.snapshot.filter(|now| now.root.is_some()).map(|now| now.taken_at);
    let first = until("the first heartbeat", taken).await;
    until("a heartbeat that somebody asked for", async || taken().await.filter(|later| *later > first)).await;

    let totals = read(SnapshotPart::Totals).await.unwrap().snapshot.unwrap();
    assert!(totals.root.is_none() && totals.totals.iter().map(|total| total.count).sum::<u64>() == totals.actors);
    let permits = totals.lanes.iter().find(|lane| lane.lane == TaskLane::Model).map(|lane| lane.permits);
    // The settings have 16 connections, half of which are for tasks of models.
    assert_eq!(permits, Some((engine().info().threads + 2).min(8) as u64), "each thread of the model has work");
    assert!(read(SnapshotPart::Nothing).await.unwrap().snapshot.is_none());
    let none =
        app.client.read_worker(WorkerPath { id: "nobody".to_owned() }, WorkerQuery::default()).await.unwrap_err();
    assert_eq!(none.code, Code::NotFound);
    // An overview may be of a moment before the first heartbeat.
    until("an overview of the worker", async || {
        let overview = app.client.read_overview().await.unwrap();
        let worker = &overview.workers[0];
        (worker.alive && !worker.lanes.is_empty() && worker.actors > 3).then_some(())
    })
    .await;
    app.end().await;
}
