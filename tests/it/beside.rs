//! Short documents that were created one by one, and are embedded in passes that they share.
use crate::{
    queue::claimer,
    runner::{Script, far, runner},
    support::{TestApp, Wish, document, invariants, until, until_a_statement_waits},
};
use chrono::Utc;
use serde_json::{Map, Value, json};
use sqlx::PgConnection;
use svc::store::{
    leases,
    tasks::{self, AttemptRow},
};
use svc_actors::{Grant, Lane};
use svc_client::{
    Json,
    wire::{AttemptOutcome, TaskQuery, WaitQuery},
};

/// What a task takes along at most, and the bytes of all texts.
const ROOM: (usize, usize) = (63, 10_000);

async fn without_worker() -> TestApp {
    TestApp::with(Wish { no_worker: true, ..Wish::default() }).await
}

async fn create(app: &TestApp, count: usize) -> Vec<i64> {
    let mut ids = Vec::with_capacity(count);
    for number in 0..count {
        let text = format!("Heron {number} stands in the shallow water and waits for a fish.");
        let new = document(&format!("Heron {number}"), &text);
        ids.push(app.client.create_document(WaitQuery::default(), Json(new)).await.unwrap().document.id);
    }
    ids
}

async fn drained(app: &TestApp) {
    until("the queue is empty", async || {
        app.client.list_tasks(TaskQuery::default()).await.unwrap().tasks.is_empty().then_some(())
    })
    .await;
}

/// The documents that have a vector.
async fn embedded(app: &TestApp) -> Vec<i64> {
    sqlx::query_scalar("SELECT document_id FROM document_vectors ORDER BY 1").fetch_all(&app.pool).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn documents_that_were_created_one_by_one_share_passes() {
    let mut app = without_worker().await;
    let ids = create(&app, 120).await;
    app.start_worker().await;
    drained(&app).await;
    assert_eq!(embedded(&app).await, ids);

    app.service.load.tell(&app.pool).await.unwrap();
    let passes: i32 = sqlx::query_scalar("SELECT calls FROM process_timings WHERE kind = 'encode'")
        .fetch_one(&app.pool)
        .await
        .unwrap();
    assert!(passes as usize * 3 < ids.len(), "{passes} passes of {} documents", ids.len());

    // Each has a task and an attempt of its own all the same, which tell nothing of the others.
    let attempts: Vec<(i64, String, i64)> = sqlx::query_as(
        "SELECT document_id, outcome, (detail ->> 'embedded')::bigint FROM task_attempts WHERE task_type = 'embed' ORDER BY 1",
    )
    .fetch_all(&app.pool)
    .await
    .unwrap();
    let wanted: Vec<(i64, String, i64)> = ids.iter().map(|id| (*id, "completed".to_owned(), 1)).collect();
    assert_eq!(attempts, wanted);
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_document_that_fails_fails_alone() {
    let mut app = without_worker().await;
    let ids = create(&app, 30).await;
    let bad = ids[17];
    let refuse = format!(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
             IF NEW.document_id = {bad} THEN RAISE EXCEPTION 'refused'; END IF;
             RETURN NEW;
         END $$;
         CREATE TRIGGER refuse BEFORE INSERT ON document_vectors FOR EACH ROW EXECUTE FUNCTION refuse()"
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(refuse)).execute(&app.pool).await.unwrap();
    app.start_worker().await;
    until("all tasks are over", async || {
        let open: bool = sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM task_queue WHERE NOT final)")
            .fetch_one(&app.pool)
            .await
            .unwrap();
        (!open).then_some(())
    })
    .await;
    let others: Vec<i64> = ids.into_iter().filter(|id| *id != bad).collect();
    assert_eq!(embedded(&app).await, others);
    let failed: Vec<i64> = sqlx::query_scalar("SELECT document_id FROM task_attempts WHERE outcome <> 'completed'")
        .fetch_all(&app.pool)
        .await
        .unwrap();
    assert_eq!(failed, [bad], "no attempt of another one was spent");
    sqlx::raw_sql("DROP TRIGGER refuse ON document_vectors; DROP FUNCTION refuse()").execute(&app.pool).await.unwrap();
    app.end().await;
}

async fn first(conn: &mut PgConnection) -> Grant {
    tasks::claim(conn, &claimer("w"), &[(Lane::Model, 1)]).await.unwrap().grants.remove(0)
}

fn documents(grants: &[Grant]) -> Vec<i64> {
    grants.iter().map(|grant| grant.document_id.0).collect()
}

/// The ends of these tasks.
fn attempts<'a>(grants: &'a [Grant], detail: &'a Map<String, Value>) -> Vec<AttemptRow<'a>> {
    let started_at = Utc::now();
    let outcome = AttemptOutcome::Completed;
    grants.iter().map(|grant| AttemptRow { grant, worker: "w", started_at, outcome, detail }).collect()
}

#[tokio::test]
async fn a_task_takes_along_what_comes_next_and_passes_nothing_over() {
    let app = without_worker().await;
    let ids = create(&app, 5).await;
    sqlx::query("UPDATE task_queue SET params = '{\"tokens\": true}' WHERE scope_document_id = $1")
        .bind(ids[3])
        .execute(&app.pool)
        .await
        .unwrap();
    let mut conn = app.pool.acquire().await.unwrap();
    let leader = first(&mut conn).await;
    assert_eq!(leader.document_id.0, ids[0]);
    let none = tasks::claim_beside(&mut conn, &claimer("w"), &leader, (63, 100)).await.unwrap();
    assert_eq!(documents(&none), [0; 0], "two of the texts have more bytes than that");
    let one = tasks::claim_beside(&mut conn, &claimer("w"), &leader, (1, ROOM.1)).await.unwrap();
    assert_eq!(documents(&one), [ids[1]]);
    let beside = tasks::claim_beside(&mut conn, &claimer("w"), &leader, ROOM).await.unwrap();
    assert_eq!(documents(&beside), [ids[2]], "the next but one comes after a task of another kind");
    invariants::check(&app.pool).await;

    // That one is of another kind itself, and takes nothing along.
    let other = first(&mut conn).await;
    assert_eq!(other.document_id.0, ids[3]);
    let none = tasks::claim_beside(&mut conn, &claimer("w"), &other, ROOM).await.unwrap();
    assert_eq!(documents(&none), [0; 0]);
    let tokens: Vec<_> = [&leader, &one[0], &beside[0], &other].map(|grant| grant.token).to_vec();
    leases::give_back(&app.pool, &tokens).await.unwrap();

    // Nor does one that has failed before, or is held by nobody.
    sqlx::query("UPDATE task_queue SET retry_count = 1 WHERE scope_document_id = $1")
        .bind(ids[0])
        .execute(&app.pool)
        .await
        .unwrap();
    let again = first(&mut conn).await;
    assert_eq!(again.document_id.0, ids[0]);
    for grant in [&again, &leader] {
        let none = tasks::claim_beside(&mut conn, &claimer("w"), grant, ROOM).await.unwrap();
        assert_eq!(documents(&none), [0; 0]);
    }
    leases::give_back(&app.pool, &[again.token]).await.unwrap();
    drop(conn);
    app.end().await;
}

#[tokio::test]
async fn who_cancels_a_document_of_a_pass_undoes_the_pass_and_only_its_own_task_ends() {
    let app = without_worker().await;
    let ids = create(&app, 3).await;
    let mut conn = app.pool.acquire().await.unwrap();
    let leader = first(&mut conn).await;
    let beside = tasks::claim_beside(&mut conn, &claimer("w"), &leader, ROOM).await.unwrap();
    assert_eq!(documents(&beside), ids[1..]);
    sqlx::query("UPDATE task_queue SET cancel_requested_at = now() WHERE scope_document_id = $1")
        .bind(ids[2])
        .execute(&mut *conn)
        .await
        .unwrap();
    let detail = Map::from_iter([("embedded".to_owned(), json!(1))]);
    let attempts = attempts(&beside, &detail);
    let mut tx = svc::store::transaction::begin(&app.pool).await.unwrap();
    let ended = tasks::finish_all(&mut tx, &attempts, Some(&leader)).await.unwrap();
    assert_eq!(ended, 1, "the cancelled one is not completed");
    tx.rollback().await.unwrap();

    let cancelled = leases::give_back(&app.pool, &[beside[0].token, beside[1].token]).await.unwrap();
    assert_eq!(cancelled.iter().map(|held| held.scope_document_id.0).collect::<Vec<_>>(), [ids[2]]);
    assert!(leases::end(&mut conn, &cancelled[0]).await.unwrap());
    // What was given back is stale, so that it completes nothing any more.
    assert_eq!(tasks::finish_all(&mut conn, &attempts, Some(&leader)).await.unwrap(), 0);
    leases::give_back(&app.pool, &[leader.token]).await.unwrap();
    drop(conn);
    let mut app = app;
    app.start_worker().await;
    until("the others are embedded", async || (embedded(&app).await == ids[..2]).then_some(())).await;
    app.end().await;
}

/// A connection keeps the plan from a time when reading the whole queue was the fastest.
#[tokio::test]
async fn the_end_of_a_pass_looks_up_its_tasks_however_many_others_there_are() {
    let app = without_worker().await;
    let ids = create(&app, 3).await;
    let mut conn = app.pool.acquire().await.unwrap();
    let leader = first(&mut conn).await;
    let beside = tasks::claim_beside(&mut conn, &claimer("w"), &leader, ROOM).await.unwrap();
    let detail = Map::new();
    let read = async |conn: &mut PgConnection| -> (i64, i64) {
        let query = "SELECT coalesce(sum(seq_scan), 0)::bigint, coalesce(sum(idx_tup_fetch), 0)::bigint
                       FROM pg_stat_xact_user_tables WHERE relname IN ('task_queue', 'task_reservation')";
        sqlx::query_as(query).fetch_one(conn).await.unwrap()
    };
    let mut end = async || {
        sqlx::query("BEGIN").execute(&mut *conn).await.unwrap();
        let before = read(&mut conn).await;
        assert_eq!(tasks::finish_all(&mut conn, &attempts(&beside, &detail), Some(&leader)).await.unwrap(), 2);
        let after = read(&mut conn).await;
        sqlx::query("ROLLBACK").execute(&mut *conn).await.unwrap();
        (after.0 - before.0, after.1 - before.1)
    };
    for _ in 0..7 {
        end().await;
    }
    sqlx::query(
        "INSERT INTO task_queue (task_type, lane, scope_document_id, node_path, node_depth, root_id, write_mode, status, ready, final)
         SELECT 'test', 'io', $1, $1 || '/', 0, $1, 'self', 'completed', false, true FROM generate_series(1, 5000)",
    )
    .bind(ids[0])
    .execute(&app.pool)
    .await
    .unwrap();
    let (scans, tuples) = end().await;
    assert_eq!(scans, 0);
    assert!(tuples < 100, "{tuples} rows were read");
    sqlx::query("DELETE FROM task_queue WHERE task_type = 'test'").execute(&app.pool).await.unwrap();
    leases::give_back(&app.pool, &[leader.token, beside[0].token, beside[1].token]).await.unwrap();
    drop(conn);
    app.end().await;
}

#[tokio::test]
async fn no_task_waits_for_a_lower_priority_or_for_what_lost_a_lease() {
    let app = without_worker().await;
    let ids = create(&app, 4).await;
    let mut conn = app.pool.acquire().await.unwrap();
    for (id, change) in [(ids[2], "lapses = 1"), (ids[3], "priority = priority - 1")] {
        let change = format!("UPDATE task_queue SET {change} WHERE scope_document_id = {id}");
        sqlx::raw_sql(sqlx::AssertSqlSafe(change)).execute(&mut *conn).await.unwrap();
    }
    let leader = first(&mut conn).await;
    let beside = tasks::claim_beside(&mut conn, &claimer("w"), &leader, ROOM).await.unwrap();
    assert_eq!(documents(&beside), [ids[1]], "the next one lost a lease and runs by itself");

    // It would take nothing along even if it had lost none, because what comes next may wait longer.
    let lost = first(&mut conn).await;
    assert_eq!(lost.document_id.0, ids[2]);
    let forgive = sqlx::query("UPDATE task_queue SET lapses = 0 WHERE id = $1").bind(lost.task_id.0);
    forgive.execute(&mut *conn).await.unwrap();
    let none = tasks::claim_beside(&mut conn, &claimer("w"), &lost, ROOM).await.unwrap();
    assert_eq!(documents(&none), [0; 0]);
    leases::give_back(&app.pool, &[leader.token, beside[0].token, lost.token]).await.unwrap();
    drop(conn);
    app.end().await;
}

#[tokio::test]
async fn the_tasks_of_a_pass_are_locked_by_id_with_the_one_that_took_them_along() {
    let app = without_worker().await;
    create(&app, 3).await;
    let mut conn = app.pool.acquire().await.unwrap();
    let leader = first(&mut conn).await;
    let beside = tasks::claim_beside(&mut conn, &claimer("w"), &leader, ROOM).await.unwrap();
    assert_eq!(beside.len(), 2);
    // Somebody who cancels all of them has come to the first one.
    let lock = "SELECT 1 FROM task_queue WHERE id = $1 FOR UPDATE NOWAIT";
    let mut canceller = app.pool.begin().await.unwrap();
    sqlx::query(lock).bind(leader.task_id.0).execute(&mut *canceller).await.unwrap();
    let tokens = [leader.token, beside[0].token, beside[1].token];
    let (pool, held) = (app.pool.clone(), leader.clone());
    let ending = tokio::spawn(async move {
        let detail = Map::new();
        let mut tx = svc::store::transaction::begin(&pool).await.unwrap();
        let ended = tasks::finish_all(&mut tx, &attempts(&beside, &detail), Some(&held)).await.unwrap();
        tx.rollback().await.unwrap();
        ended
    });
    until_a_statement_waits(&app.pool).await;
    // The pass has none of the others yet, so that nobody waits in a circle.
    sqlx::query("SELECT 1 FROM task_queue WHERE claim_token = ANY($1) FOR UPDATE NOWAIT")
        .bind(tokens.to_vec())
        .execute(&mut *canceller)
        .await
        .unwrap();
    canceller.rollback().await.unwrap();
    assert_eq!(ending.await.unwrap(), 2);
    leases::give_back(&app.pool, &tokens).await.unwrap();
    drop(conn);
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_pass_keeps_its_leases_and_ends_when_one_of_its_tasks_is_cancelled() {
    let runner = runner().await;
    let script = Script::before(&runner.base, |path, _| (path == "/runner/embed").then(|| (0, String::new()))).await;
    let settings = [far(&script.base).as_slice(), &[("SVC_RUNNER_TIMEOUT_SECONDS", "3600")]].concat();
    let mut app = TestApp::with(Wish { settings: &settings, no_worker: true, ..Wish::default() }).await;
    let ids = create(&app, 12).await;
    app.start_worker().await;
    // Some are claimed by themselves, and one of these takes the others along, above all the last one.
    let leases = async || {
        let held = "SELECT scope_document_id, extract(epoch FROM lease_until)::float8 FROM task_queue WHERE claim_token IS NOT NULL ORDER BY 1";
        let held: Vec<(i64, f64)> = sqlx::query_as(held).fetch_all(&app.pool).await.unwrap();
        (held.len() == ids.len()).then_some(held)
    };
    let claimed = until("all tasks are held", async || leases().await).await;
    until("all leases are renewed", async || {
        let renewed = leases().await?;
        renewed.iter().zip(&claimed).all(|((_, renewed), (_, claimed))| renewed > claimed).then_some(())
    })
    .await;

    // From here on the runner answers new calls, but never the ones that it has.
    script.relent();
    let cancel = async |which: &str| {
        let cancel = format!(
            "UPDATE task_queue SET cancel_requested_at = clock_timestamp() WHERE claim_token IS NOT NULL {which}"
        );
        sqlx::raw_sql(sqlx::AssertSqlSafe(cancel)).execute(&app.pool).await.unwrap();
    };
    let last = ids[11];
    cancel(&format!("AND scope_document_id = {last}")).await;
    until("the other tasks of the pass go on", async || {
        let embedded = embedded(&app).await;
        (ids[8..11].iter().all(|id| embedded.contains(id)) && !embedded.contains(&last)).then_some(())
    })
    .await;
    cancel("").await;
    drained(&app).await;
    let others: Vec<String> =
        sqlx::query_scalar("SELECT DISTINCT code FROM task_attempts WHERE outcome <> 'completed'")
            .fetch_all(&app.pool)
            .await
            .unwrap();
    assert_eq!(others, ["cancelled"], "no lease was lost");
    app.end().await;
    runner.end().await;
}
