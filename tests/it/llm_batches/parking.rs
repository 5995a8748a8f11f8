//! Tasks that begin to wait for a batch in one transaction.
use super::{BATCHED, waiting};
use crate::{
    queue::{app, claim, claimer, node, task},
    summarize::{section, upload},
    support::{TestApp, Wish, until, until_a_statement_like_this_waits},
};
use serde_json::json;
use sqlx::PgConnection;
use std::time::Duration;
use svc::store::{
    llm_batches::{self, BatchCaps, Parked, Parking, Request},
    locks, tasks, transaction,
};
use svc_actors::{Grant, Lane, WriteMode};
use svc_client::{
    Json,
    wire::{DocumentPath, NewBatch, TaskTypePath},
};
use svc_ids::DocumentId;
use uuid::Uuid;

async fn parking(app: &TestApp, grant: &Grant) -> Parking {
    let hash: String = sqlx::query_scalar("SELECT content_hash FROM documents WHERE id = $1")
        .bind(grant.document_id)
        .fetch_one(&app.pool)
        .await
        .unwrap();
    let request = Request {
        custom_id: format!("task-{}", grant.task_id),
        asked: grant.task_id.0.to_le_bytes().to_vec(),
        sources: vec![grant.document_id],
        line: "{}".to_owned(),
    };
    Parking {
        grant: grant.clone(),
        model: "m".to_owned(),
        requests: vec![request],
        sources: vec![(grant.document_id, hash)],
    }
}

async fn park(app: &TestApp, tasks: &[Parking]) -> Vec<Parked> {
    let mut tx = transaction::begin(&app.pool).await.unwrap();
    let became = llm_batches::park(&mut tx, "mock", BatchCaps { requests: 2, bytes: 1 << 20 }, tasks).await.unwrap();
    tx.commit().await.unwrap();
    became
}

#[tokio::test]
async fn what_keeps_one_task_from_waiting_keeps_no_other_and_full_batches_are_closed() {
    let app = app().await;
    for _ in 0..6 {
        let root = node(&app, None).await;
        task(&app, &root, WriteMode::Itself, 0, None).await;
    }
    let grants = claim(&app, 6).await;
    let mut tasks = Vec::new();
    for grant in &grants {
        tasks.push(parking(&app, grant).await);
    }
    tasks[1].grant.token = Uuid::new_v4();
    tasks[2].sources[0].1 = "another text".to_owned();
    // Somebody deletes in the tree of the fourth.
    let mut deleting = transaction::begin(&app.pool).await.unwrap();
    locks::tree(&mut deleting, DocumentId(tasks[3].grant.document_id.0)).await.unwrap();
    assert_eq!(
        park(&app, &tasks).await,
        [Parked::Waits, Parked::Lost, Parked::Changed, Parked::Later, Parked::Waits, Parked::Waits]
    );
    deleting.rollback().await.unwrap();
    assert_eq!(park(&app, &tasks[3..4]).await, [Parked::Waits]);
    // Who waits already is not claimed any more.
    assert_eq!(park(&app, &tasks[4..5]).await, [Parked::Lost]);
    let batches: Vec<(String, i32, i64, i64)> = sqlx::query_as(
        "SELECT b.state::text, b.requests, b.bytes, (SELECT count(*) FROM llm_batch_requests q JOIN task_queue t ON t.id = q.task_id AND t.batch_id = b.id::text AND t.status = 'batched'
                                           WHERE q.batch_id = b.id) FROM llm_batches b ORDER BY b.id",
    )
    .fetch_all(&app.pool)
    .await
    .unwrap();
    assert_eq!(batches, [("closed".to_owned(), 2, 6, 2), ("open".to_owned(), 2, 6, 2)]);
    let attempts: Vec<i64> =
        sqlx::query_scalar("SELECT task_id FROM task_attempts WHERE outcome = 'batched' ORDER BY task_id")
            .fetch_all(&app.pool)
            .await
            .unwrap();
    let waiting = [0, 3, 4, 5].map(|at: usize| grants[at].task_id.0);
    assert_eq!(attempts, waiting);
    app.end().await;
}

#[tokio::test]
async fn a_text_that_waits_to_be_embedded_goes_before_what_is_asked_of_it() {
    let app = app().await;
    let root = node(&app, None).await;
    task(&app, &root, WriteMode::Itself, 0, None).await;
    let grant = claim(&app, 1).await.remove(0);
    let asked = [parking(&app, &grant).await];
    let waits = task(&app, &root, WriteMode::Itself, 0, None).await;
    for task_type in llm_batches::SEARCHED {
        sqlx::query("UPDATE task_queue SET task_type = $2 WHERE id = $1")
            .bind(waits)
            .bind(task_type)
            .execute(&app.pool)
            .await
            .unwrap();
        assert_eq!(park(&app, &asked).await, [Parked::Awaited], "{task_type} would wait for the whole batch");
    }
    // What nobody may run now has to wait in any case.
    sqlx::query("INSERT INTO paused_task_type (task_type) SELECT task_type FROM task_queue WHERE id = $1")
        .bind(waits)
        .execute(&app.pool)
        .await
        .unwrap();
    assert_eq!(park(&app, &asked).await, [Parked::Waits]);
    app.end().await;
}

/// Claims a task of a lane, while a worker claims others.
async fn claimed(app: &TestApp, lane: Lane) -> Grant {
    until("the claim", async || tasks::claim(&app.pool, &claimer("w"), &[(lane, 1)]).await.unwrap().grants.pop()).await
}

/// Waits until so many tasks of a type have completed.
async fn completed(app: &TestApp, task_type: &str, count: i64) {
    until("the tasks", async || {
        let query = "SELECT count(*) FROM task_queue WHERE task_type = $1 AND status = 'completed'";
        let done: i64 = sqlx::query_scalar(query).bind(task_type).fetch_one(&app.pool).await.unwrap();
        (done == count).then_some(())
    })
    .await;
}

#[tokio::test]
async fn chunks_of_a_section_that_is_closed_while_its_task_enters_a_batch_are_embedded_anew_all_the_same() {
    let app = super::app().await;
    upload(&app, &(section("Ovens", "oven", 80) + &section("Volcanoes", "volcano", 80)), json!({})).await;
    waiting(&app, 2).await;
    let grant = claimed(&app, Lane::Llm).await;
    let asked = [parking(&app, &grant).await];
    let mut tx = transaction::begin(&app.pool).await.unwrap();
    let caps = BatchCaps { requests: 2, bytes: 1 << 20 };
    assert_eq!(llm_batches::park(&mut tx, "mock", caps, &asked).await.unwrap(), [Parked::Waits]);
    app.client.protect_document(DocumentPath { id: grant.document_id.0 }).await.unwrap();
    tx.commit().await.unwrap();
    completed(&app, "embed:titles", 1).await;
    app.end().await;
}

#[tokio::test]
async fn a_text_that_changes_while_it_is_embedded_with_others_waits_for_no_batch() {
    let settings = [BATCHED.as_slice(), &[("SVC_WORKER_REAP_SECONDS", "600")]].concat();
    let app = TestApp::with(Wish { settings: &settings, ..Wish::default() }).await;
    let embed = || TaskTypePath { task_type: "embed".to_owned() };
    app.client.pause_task_type(embed()).await.unwrap();
    let [one, other] = ["herons", "ovens"].map(|subject| json!({"title": subject, "content": "They stand."}));
    let two: NewBatch = serde_json::from_value(json!({"documents": [one, other]})).unwrap();
    let second = app.client.create_documents(Json(two)).await.unwrap().documents[1].document_id;
    // One task embeds both and stands at the first, and the other's own task waits for a provider.
    task(&app, &(second, Vec::new()), WriteMode::Itself, 0, Some("batch")).await;
    let grant = claimed(&app, Lane::Io).await;
    assert_eq!(park(&app, &[parking(&app, &grant).await]).await, [Parked::Waits]);
    let mut tx = transaction::begin(&app.pool).await.unwrap();
    sqlx::query("UPDATE documents SET updated_at = clock_timestamp() WHERE id = $1")
        .bind(second)
        .execute(&mut *tx)
        .await
        .unwrap();
    app.client.resume_task_type(embed()).await.unwrap();
    let vectors = "%FROM documents WHERE id = ANY($1) ORDER BY id FOR NO KEY UPDATE) locked%";
    until_a_statement_like_this_waits(&app.pool, vectors).await;
    tx.commit().await.unwrap();
    completed(&app, "embed", 2).await;
    app.end().await;
}

/// However many tasks wait in batches, what looks for some of them reads no others, whether its statements are planned with their values or without.
#[tokio::test]
async fn who_looks_for_some_of_many_parked_tasks_reads_only_these() {
    const PARKED: i64 = 50_000;
    const BATCHES: i64 = 20;
    const MOST: usize = 16;
    let app = app().await;
    let root = node(&app, None).await;
    task(&app, &root, WriteMode::Itself, 0, None).await;
    // Two batches have ended, in the second of which nothing waits; the others are at their provider.
    let batches: Vec<i64> = sqlx::query_scalar(
        "INSERT INTO llm_batches (provider, model, state) SELECT 'mock', 'm', CASE WHEN n < 3 THEN 'ended' ELSE 'submitted' END
           FROM generate_series(1, $1 + 1) n ORDER BY n RETURNING id",
    )
    .bind(BATCHES)
    .fetch_all(&app.pool)
    .await
    .unwrap();
    let (full, empty) = (batches[0], batches[1]);
    let full_ones: Vec<i64> = batches.iter().copied().filter(|id| *id != empty).collect();
    // As many tasks as wait have ended.
    sqlx::query(
        "INSERT INTO task_queue (task_type, scope_document_id, lane, node_path, node_depth, root_id, write_mode, ready, status, final, batch_id, batched_at, claim_token)
         SELECT 'summarize:llm', scope_document_id, 'llm', (1000000 + n) || '/', 0, root_id, 'self', false,
                CASE WHEN n > $1 THEN 'batched' ELSE 'completed' END, n <= $1, CASE WHEN n > $1 THEN ($2::bigint[])[(n % $3 + 1)::integer]::text END,
                CASE WHEN n > $1 THEN now() END, CASE WHEN n > $1 THEN gen_random_uuid() END
           FROM task_queue, generate_series(1, 2 * $1) n ORDER BY n",
    )
    .bind(PARKED)
    .bind(&full_ones)
    .bind(BATCHES)
    .execute(&app.pool)
    .await
    .unwrap();
    // Only those that are taken up need their regions here.
    sqlx::query(
        "INSERT INTO task_reservation (task_id, claim_token, worker, node_path, node_depth, write_mode, prange, drange)
         SELECT id, claim_token, 'w', node_path, node_depth, write_mode, region_paths(node_path, write_mode, NULL, NULL), region_depths(node_depth, write_mode, NULL)
           FROM task_queue WHERE batch_id = $1::text ORDER BY id LIMIT 100",
    )
    .bind(full)
    .execute(&app.pool)
    .await
    .unwrap();
    sqlx::query("ANALYZE task_queue").execute(&app.pool).await.unwrap();
    let read = async |conn: &mut PgConnection| -> (i64, i64) {
        let query = "SELECT coalesce(sum(seq_scan), 0)::bigint, coalesce(sum(idx_tup_fetch), 0)::bigint FROM pg_stat_xact_user_tables WHERE relname = 'task_queue'";
        sqlx::query_as(query).fetch_one(conn).await.unwrap()
    };
    for plan in ["auto", "force_generic_plan"] {
        for look in ["resume", "waiting", "tidy"] {
            let mut tx = transaction::begin(&app.pool).await.unwrap();
            let set = sqlx::AssertSqlSafe(format!("SET LOCAL plan_cache_mode = {plan}"));
            sqlx::query(set).execute(&mut *tx).await.unwrap();
            let before = read(&mut tx).await;
            match look {
                "resume" => {
                    let claimed = llm_batches::resume(&mut tx, &claimer("w"), "mock", MOST).await.unwrap();
                    assert_eq!(claimed.grants.len(), MOST);
                }
                "waiting" => {
                    let page = llm_batches::waiting(&mut tx, full, "summarize:llm", (0, MOST)).await.unwrap().unwrap();
                    assert_eq!(page.0.len(), MOST);
                    assert_eq!(page.1, page.0.iter().map(|grant| grant.task_id.0).max().unwrap());
                }
                _ => {
                    llm_batches::tidy(&mut tx, "mock", Duration::from_secs(3600)).await.unwrap();
                    let done: Vec<i64> = sqlx::query_scalar("SELECT id FROM llm_batches WHERE is_done")
                        .fetch_all(&mut *tx)
                        .await
                        .unwrap();
                    assert_eq!(done, [empty], "only that in which nothing waits is done with");
                }
            }
            let after = read(&mut tx).await;
            let (scans, fetched) = (after.0 - before.0, after.1 - before.1);
            assert_eq!(scans, 0, "{look} with {plan}");
            assert!(fetched <= 8 * MOST as i64, "{look} with {plan} reads {fetched} rows");
            tx.rollback().await.unwrap();
        }
    }
    for table in ["task_reservation", "task_queue", "llm_batches"] {
        sqlx::query(sqlx::AssertSqlSafe(format!("DELETE FROM {table}"))).execute(&app.pool).await.unwrap();
    }
    app.end().await;
}
