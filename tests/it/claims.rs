//! The ends of tasks and the claims after them: what a client that stops midway may delay, and what it may not.
use crate::{
    queue::{app, claim, claimer, finish, node, status, task},
    support::{
        PATIENCE, TestApp, invariants,
        transitions::{FORGED, LEGAL},
        until,
    },
};
use chrono::Utc;
use serde_json::{Map, Value, json};
use sqlx::{Connection, PgConnection};
use std::time::Duration;
use svc::{
    store::{
        leases,
        tasks::{self, AttemptRow, Claimer, Ended},
        transaction, upkeep,
    },
    worker::{Role, RunningWorker},
};
use svc_actors::{Grant, Lane, WorkerEnd, WriteMode};
use svc_client::wire::AttemptOutcome;
use svc_ids::TaskId;

fn attempt<'a>(grant: &'a Grant, detail: &'a Map<String, Value>) -> AttemptRow<'a> {
    AttemptRow { grant, worker: "w", started_at: Utc::now(), outcome: AttemptOutcome::Completed, detail }
}

#[tokio::test]
async fn an_end_that_was_sent_is_committed_though_its_client_stops() {
    let app = app().await;
    let root = node(&app, None).await;
    let id = task(&app, &root, WriteMode::Subtree, 0, None).await;
    let grant = claim(&app, 1).await.remove(0);
    let mut tx = transaction::begin(&app.pool).await.unwrap();
    sqlx::query("UPDATE documents SET title = 'written by the task' WHERE id = $1")
        .bind(root.0)
        .execute(&mut *tx)
        .await
        .unwrap();
    let detail = Map::new();
    let attempt = attempt(&grant, &detail);
    let mut end = Box::pin(tasks::finish_and_commit(tx, &attempt));
    // The message is sent, and from here on the client neither reads the answer nor sends anything.
    assert!(futures_util::poll!(&mut end).is_pending());
    until("the commit", async || (status(&app, id).await.0 == "completed").then_some(())).await;
    let title: String = sqlx::query_scalar("SELECT title FROM documents WHERE id = $1")
        .bind(root.0)
        .fetch_one(&app.pool)
        .await
        .unwrap();
    assert_eq!(title, "written by the task");
    assert_eq!(end.await.unwrap(), Some(Ended { is_waited_for: false }));
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn an_end_that_is_refused_commits_nothing() {
    let app = app().await;
    let root = node(&app, None).await;
    task(&app, &root, WriteMode::Itself, 0, None).await;
    let grant = claim(&app, 1).await.remove(0);
    let stale = Grant { token: uuid::Uuid::new_v4(), ..grant.clone() };
    let mut tx = transaction::begin(&app.pool).await.unwrap();
    sqlx::query("UPDATE documents SET title = 'written by a zombie'").execute(&mut *tx).await.unwrap();
    assert_eq!(tasks::finish_and_commit(tx, &attempt(&stale, &Map::new())).await.unwrap(), None);
    let title: String = sqlx::query_scalar("SELECT title FROM documents").fetch_one(&app.pool).await.unwrap();
    assert_eq!(title, "node");
    assert!(finish(&app.pool, &grant).await, "whoever holds it still ends it");
    app.end().await;
}

#[tokio::test]
async fn what_a_task_says_at_its_end_is_stored_as_it_was_said() {
    let app = app().await;
    let root = node(&app, None).await;
    task(&app, &root, WriteMode::Itself, 0, None).await;
    let grant = claim(&app, 1).await.remove(0);
    let said = r#"'; ROLLBACK; DROP TABLE task_queue; -- \' \\ \x27 " $$ E'' %s ü 🌳"#;
    let detail = Map::from_iter([(said.to_owned(), json!([said, "\0\n\r\t", 1.5]))]);
    let worker = format!("worker {said}");
    let tx = transaction::begin(&app.pool).await.unwrap();
    let attempt = AttemptRow { worker: &worker, ..attempt(&grant, &detail) };
    tasks::finish_and_commit(tx, &attempt).await.unwrap().unwrap();
    let stored: (String, Value) =
        sqlx::query_as("SELECT worker, detail FROM task_attempts").fetch_one(&app.pool).await.unwrap();
    assert_eq!(stored, (worker.clone(), json!({said: [said, "\n\r\t", 1.5]})));
    app.end().await;
}

#[tokio::test]
async fn no_claim_waits_for_an_end_that_is_not_committed() {
    let app = app().await;
    let root = node(&app, None).await;
    let children = [node(&app, Some(root.0)).await, node(&app, Some(root.0)).await];
    let whole = task(&app, &root, WriteMode::Subtree, 9, None).await;
    let held = claim(&app, 1).await.remove(0);
    assert_eq!(held.task_id, whole);
    let below = [
        task(&app, &children[0], WriteMode::Itself, 5, None).await,
        task(&app, &children[1], WriteMode::Itself, 5, None).await,
    ];
    let mut unrelated = Vec::new();
    for _ in 0..6 {
        unrelated.push(task(&app, &node(&app, None).await, WriteMode::Itself, 0, None).await);
    }
    // This client stopped between the end of its task and the commit, and nothing ends its transaction.
    let mut stopped = PgConnection::connect_with(&app.options).await.unwrap();
    sqlx::raw_sql("BEGIN").execute(&mut stopped).await.unwrap();
    assert!(tasks::finish(&mut stopped, &attempt(&held, &Map::new())).await.unwrap());

    // One claim, and then several at once, which meet what is under the region first.
    let mut got = Vec::new();
    for count in [1, 1, 4] {
        let pool = app.pool.clone();
        let claiming =
            tokio::spawn(async move { tasks::claim(&pool, &claimer("w"), &[(Lane::Io, count)]).await.unwrap().grants });
        let grants = tokio::time::timeout(PATIENCE, claiming).await.expect("a claim waits for the open end").unwrap();
        got.extend(grants.iter().map(|grant| grant.task_id));
    }
    assert_eq!(got, unrelated);
    sqlx::raw_sql("COMMIT").execute(&mut stopped).await.unwrap();
    let mut next: Vec<TaskId> = claim(&app, 9).await.iter().map(|grant| grant.task_id).collect();
    next.sort_unstable();
    assert_eq!(next, below, "they woke with the commit");
    invariants::check(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn a_claim_that_would_wait_for_a_lock_is_to_be_repeated() {
    let app = app().await;
    let root = node(&app, None).await;
    let first = task(&app, &root, WriteMode::Itself, 1, None).await;
    let second = task(&app, &root, WriteMode::Itself, 0, None).await;
    // Nothing of ours reserves a region without the lock of claims.
    let mut other = PgConnection::connect_with(&app.options).await.unwrap();
    sqlx::raw_sql("BEGIN").execute(&mut other).await.unwrap();
    sqlx::query(
        "INSERT INTO task_reservation (task_id, claim_token, worker, node_path, node_depth, write_mode, prange, drange)
         SELECT id, gen_random_uuid(), 'w', node_path, node_depth, write_mode, region_paths(node_path, write_mode, NULL, NULL), region_depths(node_depth, write_mode, NULL)
           FROM task_queue WHERE id = $1",
    )
    .bind(second)
    .execute(&mut other)
    .await
    .unwrap();
    let claimed = tasks::claim(&app.pool, &claimer("w"), &[(Lane::Io, 1)]).await.unwrap();
    assert!(claimed.grants.is_empty() && claimed.more, "{claimed:?}");
    sqlx::raw_sql("ROLLBACK").execute(&mut other).await.unwrap();
    assert_eq!(claim(&app, 1).await[0].task_id, first);
    app.end().await;
}

/// Makes this many tasks on nodes under this one. The nodes do not exist, because only their regions matter.
async fn many(app: &TestApp, under: i64, task_type: &str, count: i32, priority: i32) {
    sqlx::query(
        "INSERT INTO task_queue (task_type, lane, scope_document_id, node_path, node_depth, root_id, write_mode, priority)
         SELECT $2, 'io', $1, $1 || '/' || (1000000 + n) || '/', 1, $1, 'self', $4 FROM generate_series(1, $3) n",
    )
    .bind(under)
    .bind(task_type)
    .bind(count)
    .bind(priority)
    .execute(&app.pool)
    .await
    .unwrap();
}

/// Claims one task of a lane as a worker does, which asks again while there is more. Returns the task and how often it
/// asked.
async fn claim_on(app: &TestApp) -> (Option<TaskId>, usize) {
    let mut claims = 0;
    loop {
        let claimed = tasks::claim(&app.pool, &claimer("w"), &[(Lane::Io, 1)]).await.unwrap();
        claims += 1;
        if let Some(grant) = claimed.grants.first() {
            return (Some(grant.task_id), claims);
        }
        if !claimed.more {
            return (None, claims);
        }
    }
}

#[tokio::test]
async fn a_free_task_behind_thousands_that_are_held_up_is_claimed_at_once() {
    let app = app().await;
    let root = node(&app, None).await;
    let whole = task(&app, &root, WriteMode::Subtree, 9, None).await;
    let held = claim(&app, 1).await.remove(0);
    assert_eq!(held.task_id, whole);
    many(&app, root.0, "test", 5_000, 5).await;
    let free = task(&app, &node(&app, None).await, WriteMode::Itself, 0, None).await;
    let (got, claims) = claim_on(&app).await;
    assert_eq!(got, Some(free));
    assert!(claims <= 6, "{claims} claims");
    assert_eq!(claim_on(&app).await, (None, 1), "what is parked costs no claim");
    assert!(finish(&app.pool, &held).await);
    assert_eq!(claim(&app, 20).await.len(), 20, "its end woke them");
    invariants::check(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn a_pause_of_a_type_with_a_long_backlog_stops_no_other() {
    let app = app().await;
    let root = node(&app, None).await;
    let pause = "INSERT INTO paused_task_type (task_type) VALUES ('ocr')";
    sqlx::query(pause).execute(&app.pool).await.unwrap();
    many(&app, root.0, "ocr", 20_000, 5).await;
    let free = task(&app, &node(&app, None).await, WriteMode::Itself, 0, None).await;
    let (got, claims) = claim_on(&app).await;
    assert_eq!(got, Some(free));
    assert!(claims <= 22, "{claims} claims");
    sqlx::query("DELETE FROM paused_task_type").execute(&app.pool).await.unwrap();
    assert_eq!(claim(&app, 20).await.len(), 20, "the end of the pause woke them");
    app.end().await;
}

#[tokio::test]
async fn a_drain_leaves_no_work_behind_what_is_held_up() {
    let app = app().await;
    let (root, other) = (node(&app, None).await, node(&app, None).await);
    let whole = task(&app, &root, WriteMode::Subtree, 9, None).await;
    let held = claim(&app, 1).await.remove(0);
    assert_eq!(held.task_id, whole);
    many(&app, root.0, "test", 3_000, 5).await;
    // The document of this task was created over REST, so the worker can embed it.
    let free: TaskId = sqlx::query_scalar(
        "INSERT INTO task_queue (task_type, lane, scope_document_id, node_path, node_depth, root_id, write_mode, priority)
         VALUES ('embed', 'cpu', $1, $1 || '/', 0, $1, 'self', 0) RETURNING id",
    )
    .bind(other.0)
    .fetch_one(&app.pool)
    .await
    .unwrap();
    sqlx::query("UPDATE task_queue SET lane = 'cpu'").execute(&app.pool).await.unwrap();
    let role = Role { drain: true, ..Role::of(&app.service.settings) };
    let mut worker = RunningWorker::start(role, app.service.tools(), app.options.clone()).await.unwrap();
    let end = tokio::time::timeout(PATIENCE, worker.wait()).await.unwrap();
    assert_eq!((end, status(&app, free).await.0), (WorkerEnd::Drained, "completed".to_owned()));
    worker.stop(Duration::from_secs(5), std::future::pending()).await;
    app.end().await;
}

#[tokio::test]
async fn the_reaper_goes_by_the_lease_of_whoever_holds_a_task() {
    let app = app().await;
    let (one, two) = (node(&app, None).await, node(&app, None).await);
    let long = task(&app, &one, WriteMode::Itself, 9, None).await;
    let short = task(&app, &two, WriteMode::Itself, 0, None).await;
    let with_lease = |worker_id: &str, lease| Claimer { lease, ..claimer(worker_id) };
    let want = [(Lane::Io, 1)];
    let minute = with_lease("long", Duration::from_secs(60));
    let one = tasks::claim(&app.pool, &minute, &want).await.unwrap().grants.remove(0);
    let instant = with_lease("short", Duration::from_millis(1));
    let two = tasks::claim(&app.pool, &instant, &want).await.unwrap().grants.remove(0);
    assert_eq!((one.task_id, two.task_id), (long, short));
    let reaped = until("the end of the short lease", async || {
        let mut tx = transaction::begin(&app.pool).await.unwrap();
        let reaped = leases::reap(&mut tx).await.unwrap();
        tx.commit().await.unwrap();
        (!reaped.again.is_empty()).then_some(reaped.again)
    })
    .await;
    assert_eq!(reaped.iter().map(|lapsed| lapsed.id).collect::<Vec<_>>(), [short]);
    assert_eq!(status(&app, long).await.0, "claimed");
    // A heartbeat and a start renew the lease, each by the worker's own length.
    let mut conn = app.pool.acquire().await.unwrap();
    let seconds_left = async |conn: &mut PgConnection| -> f64 {
        sqlx::query_scalar(
            "SELECT extract(epoch FROM lease_until - clock_timestamp())::float8 FROM task_queue WHERE id = $1",
        )
        .bind(long)
        .fetch_one(conn)
        .await
        .unwrap()
    };
    leases::beat(&mut conn, &[one.token], Duration::from_secs(600)).await.unwrap();
    assert!(seconds_left(&mut conn).await > 500.0);
    tasks::start(&mut conn, &[long], &[one.token], Duration::from_secs(6000)).await.unwrap();
    assert!(seconds_left(&mut conn).await > 5000.0);
    drop(conn);
    app.end().await;
}

#[tokio::test]
async fn a_row_that_somebody_has_locked_for_long_costs_no_other_task_its_lease() {
    let app = app().await;
    for _ in 0..2 {
        task(&app, &node(&app, None).await, WriteMode::Itself, 0, None).await;
    }
    let grants = claim(&app, 2).await;
    let tokens = [grants[0].token, grants[1].token];
    sqlx::query("UPDATE task_queue SET lease_until = now() - interval '1 minute' WHERE id = $1")
        .bind(grants[0].task_id)
        .execute(&app.pool)
        .await
        .unwrap();
    // This is a delete that takes long: it has requested the end of one of them, and has not committed.
    let mut delete = PgConnection::connect_with(&app.options).await.unwrap();
    sqlx::raw_sql("BEGIN").execute(&mut delete).await.unwrap();
    sqlx::query("UPDATE task_queue SET cancel_requested_at = now() WHERE id = $1")
        .bind(grants[0].task_id)
        .execute(&mut delete)
        .await
        .unwrap();
    let beat = async || {
        let mut conn = app.pool.acquire().await.unwrap();
        let beat = leases::beat(&mut conn, &tokens, Duration::from_secs(600));
        let mut held = tokio::time::timeout(PATIENCE, beat).await.expect("a heartbeat waits for the delete").unwrap();
        held.sort_unstable_by_key(|(token, _)| *token != tokens[0]);
        held
    };
    let are_extended = async || -> Vec<bool> {
        sqlx::query_scalar("SELECT lease_until > now() + interval '500 seconds' FROM task_queue ORDER BY id")
            .fetch_all(&app.pool)
            .await
            .unwrap()
    };
    assert_eq!(beat().await, [(tokens[0], false), (tokens[1], false)]);
    assert_eq!(are_extended().await, [false, true]);
    let mut tx = transaction::begin(&app.pool).await.unwrap();
    let reaped = leases::reap(&mut tx).await.unwrap();
    tx.commit().await.unwrap();
    assert!(reaped.again.is_empty() && reaped.to_end.is_empty(), "the reaper passes over it too: {reaped:?}");
    sqlx::raw_sql("COMMIT").execute(&mut delete).await.unwrap();
    assert_eq!(beat().await, [(tokens[0], true), (tokens[1], false)]);
    assert_eq!(are_extended().await, [true, true]);
    app.end().await;
}

#[tokio::test]
async fn rows_that_an_edit_has_locked_hide_nothing_behind_them() {
    let app = app().await;
    let mut ids = Vec::new();
    for _ in 0..2 {
        ids.push(task(&app, &node(&app, None).await, WriteMode::Itself, 0, None).await);
    }
    let mut edit = PgConnection::connect_with(&app.options).await.unwrap();
    sqlx::raw_sql("BEGIN").execute(&mut edit).await.unwrap();
    sqlx::query("SELECT 1 FROM task_queue WHERE id = $1 FOR UPDATE").bind(ids[0]).execute(&mut edit).await.unwrap();
    // It names a badge twice, which makes no task of it two.
    let badged = Claimer { badges: Some(vec!["cpu".to_owned(), "cpu".to_owned()]), ..claimer("b") };
    let claimed = async || {
        let grants = tasks::claim(&app.pool, &badged, &[(Lane::Io, 1)]).await.unwrap().grants;
        grants.iter().map(|grant| grant.task_id).collect::<Vec<_>>()
    };
    assert_eq!(claimed().await, [ids[1]]);
    sqlx::raw_sql("ROLLBACK").execute(&mut edit).await.unwrap();
    assert_eq!(claimed().await, [ids[0]]);

    // Nor do those that an end would wake first.
    let root = node(&app, None).await;
    let whole = task(&app, &root, WriteMode::Subtree, 9, None).await;
    let held = claim(&app, 1).await.remove(0);
    assert_eq!(held.task_id, whole);
    many(&app, root.0, "test", 40, 5).await;
    assert!(claim(&app, 1).await.is_empty());
    sqlx::raw_sql("BEGIN").execute(&mut edit).await.unwrap();
    let locked = sqlx::query(
        "SELECT 1 FROM task_queue WHERE parked_on = $1 ORDER BY priority DESC, created_at, id LIMIT 32 FOR UPDATE",
    );
    assert_eq!(locked.bind(whole).fetch_all(&mut edit).await.unwrap().len(), 32);
    assert!(finish(&app.pool, &held).await);
    assert_eq!(claim(&app, 20).await.len(), 8);
    sqlx::raw_sql("ROLLBACK").execute(&mut edit).await.unwrap();
    assert_eq!(claim(&app, 40).await.len(), 32);
    invariants::check(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn a_task_that_lost_its_lease_is_the_last_of_its_claim() {
    let app = app().await;
    let mut ids = Vec::new();
    for _ in 0..5 {
        ids.push(task(&app, &node(&app, None).await, WriteMode::Itself, 0, None).await);
    }
    sqlx::query("UPDATE task_queue SET lease_losses = 1 WHERE id = ANY($1)")
        .bind(vec![ids[1], ids[2]])
        .execute(&app.pool)
        .await
        .unwrap();
    let alone = async || {
        let grants = claim(&app, 9).await;
        grants.iter().map(|grant| (grant.task_id, grant.runs_alone)).collect::<Vec<_>>()
    };
    assert_eq!(alone().await, [(ids[0], false), (ids[1], true)]);
    assert_eq!(alone().await, [(ids[2], true)]);
    assert_eq!(alone().await, [(ids[3], false), (ids[4], false)]);
    app.end().await;
}

#[tokio::test]
async fn what_was_parked_and_forgotten_is_found_by_the_sweep() {
    let app = app().await;
    let root = node(&app, None).await;
    let lost = task(&app, &root, WriteMode::Itself, 0, None).await;
    // Nothing of ours leaves a row in this state.
    sqlx::query("UPDATE task_queue SET ready = false, parked_on = 4711 WHERE id = $1")
        .bind(lost)
        .execute(&app.pool)
        .await
        .unwrap();
    assert!(claim(&app, 1).await.is_empty());
    let mut conn = app.pool.acquire().await.unwrap();
    assert_eq!(upkeep::find_forgotten_releases(&mut conn).await.unwrap(), 1);
    assert_eq!(upkeep::find_forgotten_releases(&mut conn).await.unwrap(), 0, "it has been told of now");
    drop(conn);
    assert_eq!(claim(&app, 1).await.remove(0).task_id, lost);
    app.end().await;
}

/// So every test holds the service to the table, because its database does.
#[tokio::test]
async fn a_database_of_the_tests_refuses_what_no_task_may_become() {
    let app = app().await;
    let id = task(&app, &node(&app, None).await, WriteMode::Itself, 0, None).await;
    let put = async |how: &str, status: &str| {
        let update = format!("UPDATE task_queue {how} SET status = $2 WHERE id = $1");
        sqlx::query(sqlx::AssertSqlSafe(update)).bind(id).bind(status).execute(&app.pool).await
    };
    for (from, ways) in LEGAL {
        for (to, _) in LEGAL {
            put(FORGED, from).await.unwrap();
            let gone = put("", to).await;
            assert_eq!(gone.is_ok(), from == to || ways.contains(to), "{from} to {to}: {gone:?}");
        }
    }
    sqlx::query("DELETE FROM task_queue").execute(&app.pool).await.unwrap();
    app.end().await;
}
