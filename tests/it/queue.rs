//! The queue and its regions, with the real server and many claimers at once.
use crate::support::{TestApp, Wish, document, invariants};
use chrono::Utc;
use rand::{RngExt, SeedableRng, rngs::SmallRng};
use serde_json::{Map, json};
use sqlx::{PgConnection, PgPool};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use svc::store::{
    kept::KeptConnections,
    leases::{self, Lapsed},
    tasks::{self, AttemptRow, Claimer, Failed, NewTask},
};
use svc_actors::{Grant, Lane, TaskFailure, WriteMode};
use svc_client::{
    Json,
    wire::{AttemptOutcome, TaskPath, WaitQuery},
};
use svc_ids::{DocumentId, RootId, TaskId};

pub(crate) const LEASE: Duration = Duration::from_secs(90);

pub(crate) async fn app() -> TestApp {
    TestApp::with(Wish { no_worker: true, ..Default::default() }).await
}

pub(crate) fn claimer(worker_id: &str) -> Claimer {
    Claimer { worker_id: worker_id.to_owned(), badges: None, strict: false, lease: LEASE }
}

/// A node with nothing to do.
pub(crate) async fn node(app: &TestApp, parent_id: Option<i64>) -> (i64, Vec<i64>) {
    let mut new = document("node", "");
    new.parent_id = parent_id;
    let created = app.client.create_document(WaitQuery::default(), Json(new)).await.unwrap();
    sqlx::query("DELETE FROM task_queue WHERE scope_document_id = $1")
        .bind(created.id)
        .execute(&app.pool)
        .await
        .unwrap();
    (created.id, created.document.path)
}

pub(crate) async fn task(
    app: &TestApp,
    node: &(i64, Vec<i64>),
    mode: WriteMode,
    priority: i32,
    badge: Option<&str>,
) -> TaskId {
    let task = NewTask {
        task_type: "test",
        lane: Lane::Io,
        document_id: DocumentId(node.0),
        path: &node.1,
        root_id: RootId(*node.1.first().unwrap_or(&node.0)),
        write_mode: mode,
        leaves: None,
        dependencies: &[],
        params: &json!({}),
        badge,
        priority,
        traceparent: None,
    };
    tasks::enqueue(&mut app.pool.acquire().await.unwrap(), &task).await.unwrap()
}

pub(crate) async fn claim(app: &TestApp, count: usize) -> Vec<Grant> {
    tasks::claim(&app.pool, &claimer("w"), &[(Lane::Io, count)]).await.unwrap().grants
}

pub(crate) async fn finish(pool: &PgPool, grant: &Grant) -> bool {
    let mut tx = pool.begin().await.unwrap();
    let detail = Map::new();
    let attempt =
        AttemptRow { grant, worker: "w", started_at: Utc::now(), outcome: AttemptOutcome::Completed, detail: &detail };
    let ours = tasks::finish(&mut tx, &attempt).await.unwrap();
    if ours {
        tx.commit().await.unwrap();
    }
    ours
}

pub(crate) async fn status(app: &TestApp, id: TaskId) -> (String, bool, Option<TaskId>) {
    sqlx::query_as("SELECT status, ready, parked_on FROM task_queue WHERE id = $1")
        .bind(id)
        .fetch_one(&app.pool)
        .await
        .unwrap()
}

#[tokio::test]
async fn claims_go_by_priority_then_age_and_badges_only_filter() {
    let app = app().await;
    let nodes = [node(&app, None).await, node(&app, None).await, node(&app, None).await, node(&app, None).await];
    let old = task(&app, &nodes[0], WriteMode::Itself, 0, None).await;
    let gpu = task(&app, &nodes[1], WriteMode::Itself, 5, Some("gpu")).await;
    let young = task(&app, &nodes[2], WriteMode::Itself, 0, None).await;
    let urgent = task(&app, &nodes[3], WriteMode::Itself, 1, None).await;
    let ids = |grants: &[Grant]| grants.iter().map(|g| g.task_id).collect::<Vec<_>>();
    let badged = |badges: &[&str], strict| Claimer {
        worker_id: "b".into(),
        badges: Some(badges.iter().map(|b| (*b).to_owned()).collect()),
        strict,
        lease: LEASE,
    };
    assert_eq!(
        ids(&tasks::claim(&app.pool, &badged(&["cpu"], true), &[(Lane::Io, 9)]).await.unwrap().grants),
        Vec::<TaskId>::new()
    );
    let first = tasks::claim(&app.pool, &badged(&["cpu"], false), &[(Lane::Io, 2)]).await.unwrap().grants;
    assert_eq!(ids(&first), [urgent, old]);
    let tokens: Vec<_> = first.iter().map(|g| g.token).collect();
    leases::give_back(&app.pool, &tokens).await.unwrap();
    assert_eq!(
        ids(&tasks::claim(&app.pool, &badged(&["gpu", "x"], false), &[(Lane::Io, 2)]).await.unwrap().grants),
        [gpu, urgent]
    );
    assert_eq!(ids(&claim(&app, 9).await), [old, young], "a worker without badges takes everything");
    assert_eq!(claim(&app, 9).await.len(), 0);
    let other_lane = tasks::claim(&app.pool, &claimer("w"), &[(Lane::Cpu, 9)]).await.unwrap().grants;
    assert!(other_lane.is_empty());
    invariants::check(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn a_blocked_task_parks_and_wakes_when_its_blocker_ends() {
    let app = app().await;
    let root = node(&app, None).await;
    let child = node(&app, Some(root.0)).await;
    let grandchild = node(&app, Some(child.0)).await;
    let whole = task(&app, &root, WriteMode::Subtree, 9, None).await;
    let below = task(&app, &grandchild, WriteMode::Itself, 0, None).await;
    let held = claim(&app, 9).await;
    assert_eq!(held.len(), 1);
    assert_eq!(status(&app, below).await, ("pending".into(), false, Some(whole)));
    assert!(finish(&app.pool, &held[0]).await);
    let next = claim(&app, 9).await;
    assert_eq!(next[0].task_id, below);
    // children(root) contains the child but not the grandchild.
    let near = task(&app, &root, WriteMode::Children, 0, None).await;
    let child_task = task(&app, &child, WriteMode::Itself, 0, None).await;
    let claimed = claim(&app, 9).await;
    assert_eq!(claimed.iter().map(|g| g.task_id).collect::<Vec<_>>(), [near]);
    assert_eq!(status(&app, child_task).await.2, Some(near));
    invariants::check(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn however_many_are_parked_they_wake_by_priority_and_all_of_them() {
    let app = app().await;
    let root = node(&app, None).await;
    let whole = task(&app, &root, WriteMode::Subtree, 1000, None).await;
    sqlx::query(
        "INSERT INTO task_queue (task_type, lane, scope_document_id, node_path, node_depth, root_id, write_mode, priority)
         SELECT 'test', 'io', $1, $1 || '/' || (1000000 + n) || '/', 1, $1, 'self', (n * 37) % 100 FROM generate_series(1, 100) n",
    )
    .bind(root.0)
    .execute(&app.pool)
    .await
    .unwrap();
    let held = claim(&app, 200).await;
    assert_eq!(held.iter().map(|g| g.task_id).collect::<Vec<_>>(), [whole]);
    let parked: i64 = sqlx::query_scalar("SELECT count(*) FROM task_queue WHERE parked_on = $1")
        .bind(whole)
        .fetch_one(&app.pool)
        .await
        .unwrap();
    assert_eq!(parked, 100);
    // Given back and claimed again, it blocks as before; ending a hold without a finish wakes the blocked tasks too.
    leases::give_back(&app.pool, &[held[0].token]).await.unwrap();
    assert_eq!(claim(&app, 1).await.iter().map(|g| g.task_id).collect::<Vec<_>>(), [whole]);
    sqlx::query("DELETE FROM task_queue WHERE id = $1").bind(whole).execute(&app.pool).await.unwrap();
    let mut priorities = Vec::new();
    loop {
        let grants = claim(&app, 7).await;
        if grants.is_empty() {
            break;
        }
        for grant in grants {
            let priority: i32 = sqlx::query_scalar("SELECT priority FROM task_queue WHERE id = $1")
                .bind(grant.task_id)
                .fetch_one(&app.pool)
                .await
                .unwrap();
            priorities.push(priority);
            assert!(finish(&app.pool, &grant).await);
        }
    }
    assert_eq!(priorities, (0..100).rev().collect::<Vec<_>>());
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn a_subtree_task_under_a_stream_of_small_ones_gets_its_turn() {
    let app = app().await;
    let root = node(&app, None).await;
    let children = [node(&app, Some(root.0)).await, node(&app, Some(root.0)).await];
    task(&app, &children[0], WriteMode::Itself, 0, None).await;
    let mut held = claim(&app, 1).await;
    let whole = task(&app, &root, WriteMode::Subtree, 0, None).await;
    // One small task is always held, and a younger one waits.
    for round in 0..30 {
        task(&app, &children[(round + 1) % 2], WriteMode::Itself, 0, None).await;
        held.extend(claim(&app, 1).await);
        let done = held.remove(0);
        assert!(finish(&app.pool, &done).await);
        if done.task_id == whole {
            assert!(round > 2, "the stream was no obstacle");
            invariants::check(&app.pool).await;
            return app.end().await;
        }
        if held.is_empty() {
            held.extend(claim(&app, 1).await);
        }
    }
    panic!("the subtree task starved");
}

#[tokio::test]
async fn a_claim_of_several_lanes_gets_what_each_wants_and_parks_what_is_in_the_way() {
    let app = app().await;
    let root = node(&app, None).await;
    let mut children = Vec::new();
    for _ in 0..6 {
        children.push(node(&app, Some(root.0)).await);
    }
    let whole = task(&app, &root, WriteMode::Subtree, 9, None).await;
    let held = claim(&app, 1).await.remove(0);
    assert_eq!(held.task_id, whole);
    // In each lane the first task is under what is held.
    let mut expected = Vec::new();
    for (lane, child) in [("cpu", 0), ("io", 1)] {
        let blocked = task(&app, &children[child], WriteMode::Itself, 5, None).await;
        let free = [node(&app, None).await, node(&app, None).await, node(&app, None).await];
        let mut ids = vec![blocked];
        for node in &free {
            ids.push(task(&app, node, WriteMode::Itself, 0, None).await);
        }
        sqlx::query("UPDATE task_queue SET lane = $1 WHERE id = ANY($2)")
            .bind(lane)
            .bind(&ids)
            .execute(&app.pool)
            .await
            .unwrap();
        expected.push(ids);
    }
    let want = [(Lane::Cpu, 2), (Lane::Io, 1)];
    let got: Vec<_> =
        tasks::claim(&app.pool, &claimer("w"), &want).await.unwrap().grants.iter().map(|g| g.task_id).collect();
    assert_eq!(got, [expected[0][1], expected[0][2], expected[1][1]], "by age, two and one");
    for ids in &expected {
        assert_eq!(status(&app, ids[0]).await, ("pending".to_owned(), false, Some(whole)));
    }
    // What the end of the first task frees comes before the rest, by its priority.
    assert!(finish(&app.pool, &held).await);
    let got: Vec<_> =
        tasks::claim(&app.pool, &claimer("w"), &want).await.unwrap().grants.iter().map(|g| g.task_id).collect();
    assert_eq!(got, [expected[0][0], expected[1][0], expected[0][3]]);
    app.end().await;
}

#[tokio::test]
async fn a_claim_of_one_is_the_first_that_is_free_and_parks_what_is_in_the_way() {
    let app = app().await;
    let root = node(&app, None).await;
    let child = node(&app, Some(root.0)).await;
    let whole = task(&app, &root, WriteMode::Subtree, 9, None).await;
    let first = claim(&app, 1).await.remove(0);
    assert_eq!((first.task_id, first.attempt), (whole, 1));
    let blocked = task(&app, &child, WriteMode::Itself, 5, None).await;
    let mut free = Vec::new();
    for _ in 0..3 {
        let node = node(&app, None).await;
        free.push(task(&app, &node, WriteMode::Itself, 0, None).await);
    }
    let one = async || claim(&app, 1).await.iter().map(|grant| grant.task_id).collect::<Vec<_>>();
    // A client that holds a row does not delay the claims.
    let mut locked = app.pool.begin().await.unwrap();
    sqlx::query("SELECT 1 FROM task_queue WHERE id = $1 FOR UPDATE").bind(free[0]).execute(&mut *locked).await.unwrap();
    assert_eq!(one().await, [free[1]]);
    locked.rollback().await.unwrap();
    assert_eq!(status(&app, blocked).await, ("pending".to_owned(), false, Some(whole)));
    assert_eq!(one().await, [free[0]]);
    assert_eq!(one().await, [free[2]]);
    assert!(one().await.is_empty());
    assert_eq!(status(&app, free[2]).await, ("claimed".to_owned(), false, None));
    assert!(finish(&app.pool, &first).await);
    assert_eq!(claim(&app, 1).await.remove(0).task_id, blocked, "it woke");
    app.end().await;
}

#[tokio::test]
async fn a_kept_connection_is_used_again_and_one_that_is_cut_off_is_closed() {
    async fn server(conn: &mut PgConnection) -> sqlx::Result<i32> {
        sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(conn).await
    }
    let app = app().await;
    let kept = KeptConnections::new(app.pool.clone());
    let mut first = kept.lend().await.unwrap();
    let one = server(&mut first).await.unwrap();
    // While it is lent, statements use another one, and a second borrower gets one from the pool.
    let two = kept.run(server).await.unwrap();
    let mut pooled = kept.lend().await.unwrap();
    let three = server(&mut pooled).await.unwrap();
    assert!(one != two && two != three && one != three);
    pooled.keep();
    first.keep();
    assert_eq!(kept.run(server).await.unwrap(), one, "the one that was used last");
    let mut cut_off = kept.lend().await.unwrap();
    assert_eq!(server(&mut cut_off).await.unwrap(), one);
    let root = node(&app, None).await;
    sqlx::raw_sql("BEGIN; UPDATE documents SET title = 'half'").execute(&mut *cut_off).await.unwrap();
    drop(cut_off);
    let mut next = kept.lend().await.unwrap();
    assert_eq!(server(&mut next).await.unwrap(), two);
    // Waits for the row until the server has noticed that the other client is gone.
    sqlx::query("UPDATE documents SET title = title || '!' WHERE id = $1")
        .bind(root.0)
        .execute(&mut *next)
        .await
        .unwrap();
    let title: String = sqlx::query_scalar("SELECT title FROM documents WHERE id = $1")
        .bind(root.0)
        .fetch_one(&mut *next)
        .await
        .unwrap();
    assert_eq!(title, "node!");
    // A connection that the server has closed fails once, and is not used again.
    sqlx::query("SELECT pg_terminate_backend($1)").bind(two).execute(&app.pool).await.unwrap();
    next.keep();
    kept.run(server).await.unwrap_err();
    assert!(![one, two].contains(&kept.run(server).await.unwrap()));
    app.end().await;
}

#[tokio::test]
async fn a_stale_token_never_changes_a_row() {
    let app = app().await;
    let root = node(&app, None).await;
    let id = task(&app, &root, WriteMode::Itself, 0, None).await;
    let stale = claim(&app, 1).await.remove(0);
    sqlx::query("UPDATE task_queue SET lease_until = now() - interval '1 hour' WHERE id = $1")
        .bind(id)
        .execute(&app.pool)
        .await
        .unwrap();
    let mut tx = app.pool.begin().await.unwrap();
    assert_eq!(leases::reap(&mut tx).await.unwrap().again, [Lapsed { id, counts: true }]);
    tx.commit().await.unwrap();
    assert_eq!(status(&app, id).await.0, "pending");
    let fresh = claim(&app, 1).await.remove(0);
    assert_eq!((fresh.task_id, fresh.attempt), (id, 2));
    assert!(!finish(&app.pool, &stale).await);
    let mut conn = app.pool.acquire().await.unwrap();
    let failure = TaskFailure::retryable("late", "a worker that was thought dead");
    assert_eq!(tasks::fail(&mut conn, &stale, &failure, "w", Duration::ZERO).await.unwrap(), Failed::NotOurs);
    let mut tx = app.pool.begin().await.unwrap();
    let started = tasks::start(&mut tx, &[id, id], &[stale.token, fresh.token], LEASE).await.unwrap();
    assert_eq!(started, [fresh.token], "of starts in one call, those hold whose token does");
    assert_eq!(tasks::start(&mut tx, &[id], &[fresh.token], LEASE).await.unwrap(), [fresh.token], "asked again");
    tx.rollback().await.unwrap();
    assert_eq!(leases::beat(&mut conn, &[stale.token, fresh.token], LEASE).await.unwrap(), [(fresh.token, false)]);
    drop(conn);
    leases::give_back(&app.pool, &[stale.token]).await.unwrap();
    assert_eq!(status(&app, id).await.0, "claimed");
    // A short task is never started separately; one that takes a while is.
    let short = task(&app, &node(&app, None).await, WriteMode::Itself, 0, None).await;
    let grant = claim(&app, 1).await.remove(0);
    assert!(grant.task_id == short && finish(&app.pool, &grant).await && !finish(&app.pool, &grant).await);
    let mut conn = app.pool.acquire().await.unwrap();
    assert_eq!(tasks::start(&mut conn, &[id], &[fresh.token], LEASE).await.unwrap(), [fresh.token]);
    assert_eq!(status(&app, id).await.0, "running");
    drop(conn);
    assert!(finish(&app.pool, &fresh).await && !finish(&app.pool, &fresh).await);
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn retries_wait_and_end_at_the_cap_and_dependents_fail_with_their_task() {
    let app = app().await;
    let root = node(&app, None).await;
    let id = task(&app, &root, WriteMode::Itself, 0, None).await;
    let hopeless = task(&app, &root, WriteMode::Itself, 90, None).await;
    let dependent = NewTask {
        task_type: "after",
        lane: Lane::Io,
        document_id: DocumentId(root.0),
        path: &root.1,
        root_id: RootId(root.0),
        write_mode: WriteMode::Itself,
        leaves: None,
        dependencies: &[id, hopeless],
        params: &json!({}),
        badge: None,
        priority: 50,
        traceparent: None,
    };
    let after = tasks::enqueue(&mut app.pool.acquire().await.unwrap(), &dependent).await.unwrap();
    let grant = claim(&app, 1).await.remove(0);
    assert_eq!(grant.task_id, hopeless);
    let mut tx = app.pool.begin().await.unwrap();
    let failure = TaskFailure::permanent("hopeless", "never");
    assert_eq!(tasks::fail(&mut tx, &grant, &failure, "w", Duration::ZERO).await.unwrap(), Failed::Final);
    tx.commit().await.unwrap();
    for attempt in 1..=6 {
        let grants = claim(&app, 9).await;
        assert_eq!(
            grants.iter().map(|g| (g.task_id, g.attempt)).collect::<Vec<_>>(),
            [(id, attempt)],
            "the dependent must wait"
        );
        let failure = TaskFailure::retryable("flaky", "not this time");
        let mut tx = app.pool.begin().await.unwrap();
        let failed = tasks::fail(&mut tx, &grants[0], &failure, "w", Duration::from_secs(3600)).await.unwrap();
        tx.commit().await.unwrap();
        assert_eq!(failed, if attempt == 6 { Failed::Final } else { Failed::Retry });
        assert!(claim(&app, 9).await.is_empty(), "a retry waits its time");
        sqlx::query("UPDATE task_queue SET retry_after = now() WHERE id = $1 AND NOT final")
            .bind(id)
            .execute(&app.pool)
            .await
            .unwrap();
    }
    let row: (String, Option<String>) = sqlx::query_as("SELECT status, error_type FROM task_queue WHERE id = $1")
        .bind(after)
        .fetch_one(&app.pool)
        .await
        .unwrap();
    assert_eq!(row, ("failed".into(), Some("dependency".into())));
    invariants::check_drained(&app.pool).await;
    // Whichever is tried again, all are that would keep one of them waiting for ever.
    app.client.retry_task(TaskPath { id: id.0 }).await.unwrap();
    let mut done = Vec::new();
    while let [grant] = &claim(&app, 1).await[..] {
        assert!(finish(&app.pool, grant).await);
        done.push(grant.task_id);
    }
    assert_eq!(done, [hopeless, id, after]);
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

/// The way that does not work: skip what is locked, and check whether something held is in the way.
const NAIVE: &str =
    "UPDATE task_queue u SET status = 'claimed', ready = false, claimed_by = $1, heartbeat_at = now() WHERE id = (
    SELECT t.id FROM task_queue t WHERE t.ready AND t.status = 'pending' AND NOT EXISTS (
        SELECT 1 FROM task_queue h WHERE h.status = 'claimed'
           AND (h.node_path = t.node_path OR (h.write_mode = 'subtree' AND starts_with(t.node_path, h.node_path)) OR (t.write_mode = 'subtree' AND starts_with(h.node_path, t.node_path))))
     ORDER BY t.priority DESC, t.created_at, t.id LIMIT 1 FOR UPDATE SKIP LOCKED) RETURNING id";

/// Pairs of held tasks that overlap.
const OVERLAPS: &str = "SELECT count(*) FROM task_queue a JOIN task_queue b ON a.id < b.id AND a.root_id = b.root_id AND a.status IN ('claimed','running') AND b.status IN ('claimed','running')
   AND CASE WHEN a.first_leaf IS NOT NULL AND b.first_leaf IS NOT NULL THEN a.first_leaf <= b.last_leaf AND b.first_leaf <= a.last_leaf
            WHEN a.first_leaf IS NOT NULL AND b.write_mode = 'self' THEN b.node_path BETWEEN a.first_leaf AND a.last_leaf
            WHEN b.first_leaf IS NOT NULL AND a.write_mode = 'self' THEN a.node_path BETWEEN b.first_leaf AND b.last_leaf
            ELSE a.node_path = b.node_path OR a.write_mode = 'subtree' OR b.write_mode = 'subtree' END";

/// 200 trees, each with 8 tasks of the whole tree, 8 of one node, and 4 of six leaves, of which neighbours share two. Claiming two of
/// one tree that overlap is wrong.
async fn hot_set(app: &TestApp) {
    for _ in 0..200 {
        node(app, None).await;
    }
    sqlx::query(
        "INSERT INTO task_queue (task_type, lane, scope_document_id, node_path, node_depth, root_id, write_mode, priority, first_leaf, last_leaf)
         SELECT 'test', 'io', d.id, CASE WHEN n.small THEN d.id || '/' || (1000000 + n.n) || '/' ELSE d.id || '/' END, n.small::integer, d.id,
                CASE WHEN n.small THEN 'self' ELSE 'subtree' END, 0,
                CASE WHEN n.n >= 16 THEN d.id || '/' || (1000000 + (n.n - 16) * 4) || '/' END, CASE WHEN n.n >= 16 THEN d.id || '/' || (1000005 + (n.n - 16) * 4) || '/' END
           FROM documents d CROSS JOIN (SELECT n, n < 16 AND n % 2 = 1 AS small FROM generate_series(0, 19) n) n ORDER BY n.n % 4, n.n, d.id",
    )
    .execute(&app.pool)
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn eight_claimers_on_a_hot_set_never_overlap_and_the_naive_way_does() {
    let app = app().await;
    hot_set(&app).await;
    let naive = (0..8).map(|worker| {
        let pool = app.pool.clone();
        tokio::spawn(async move {
            let mut overlaps = 0;
            for _ in 0..120 {
                let _: Option<i64> =
                    sqlx::query_scalar(NAIVE).bind(format!("w{worker}")).fetch_optional(&pool).await.unwrap();
                overlaps = sqlx::query_scalar::<_, i64>(OVERLAPS).fetch_one(&pool).await.unwrap();
                if overlaps > 0 {
                    break;
                }
            }
            overlaps
        })
    });
    let overlaps: i64 = futures_util::future::join_all(naive).await.into_iter().map(Result::unwrap).sum();
    assert!(overlaps > 0, "the control held: this test would not notice a claim that is wrong");
    sqlx::query("DELETE FROM task_queue").execute(&app.pool).await.unwrap();

    sqlx::query("DELETE FROM documents").execute(&app.pool).await.unwrap();
    hot_set(&app).await;
    let (seen, done) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let workers = (0..8u64).map(|worker| {
        let (pool, seen, done) = (app.pool.clone(), seen.clone(), done.clone());
        tokio::spawn(async move {
            let mut random = SmallRng::seed_from_u64(worker);
            let claimer = claimer(&format!("w{worker}"));
            let mut held: Vec<Grant> = Vec::new();
            while done.load(Ordering::SeqCst) < 4000 {
                held.extend(
                    tasks::claim(&pool, &claimer, &[(Lane::Io, random.random_range(1..=10))]).await.unwrap().grants,
                );
                if random.random_bool(0.2) {
                    let overlaps: i64 = sqlx::query_scalar(OVERLAPS).fetch_one(&pool).await.unwrap();
                    seen.fetch_add(overlaps as usize, Ordering::SeqCst);
                }
                for grant in held.drain(..) {
                    assert!(finish(&pool, &grant).await);
                    done.fetch_add(1, Ordering::SeqCst);
                }
            }
        })
    });
    for worker in futures_util::future::join_all(workers).await {
        worker.unwrap();
    }
    assert_eq!((seen.load(Ordering::SeqCst), done.load(Ordering::SeqCst)), (0, 4000));
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn a_badge_that_nobody_answers_to_is_told_of() {
    let app = TestApp::with(Wish { settings: &[("SVC_WORKER_BADGE", "cpu")], ..Default::default() }).await;
    let root = node(&app, None).await;
    task(&app, &root, WriteMode::Itself, 0, Some("gpu")).await;
    let not_ready = async {
        loop {
            match app.client.read_readiness().await {
                Err(failure) if failure.detail.contains("badge `gpu`") => return failure,
                _ => tokio::time::timeout(Duration::from_millis(50), std::future::pending::<()>()).await.unwrap_err(),
            };
        }
    };
    let failure = tokio::time::timeout(crate::support::PATIENCE, not_ready).await.unwrap();
    assert_eq!(failure.status, 503);
    let metrics = app.client.read_metrics().await.unwrap();
    assert!(metrics.contains("svc_tasks_unserved{badge=\"gpu\"} 1"), "{metrics}");
    sqlx::query("DELETE FROM task_queue").execute(&app.pool).await.unwrap();
    app.end().await;
}
