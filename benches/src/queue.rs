//! The task queue: tasks that are claimed, started and finished a second, each finish a durable commit of its own; beside it
//! procrastinate and graphile-worker on the same server. And the frontier of a large file.
mod peers;

use crate::figure::{BoxError, Figure, median};
use peers::Peers;
use serde_json::Map;
use sqlx::PgPool;
use std::time::Instant;
use svc::store::tasks::{self, AttemptRow, Claimer};
use svc_actors::{Grant, Lane};
use tokio::task::JoinSet;

/// Tasks of one measurement; a multiple of every batch times every number of claimers.
const TASKS: usize = 2_000;

pub async fn run(pool: &PgPool, sizes: &[usize], out: &mut dyn FnMut(Figure)) -> Result<(), BoxError> {
    let peers = Peers::set_up()?;
    for &pending in sizes {
        documents(pool, pending + TASKS).await?;
        for (batch, claimers) in [(1, 1), (10, 1), (1, 8), (10, 8)] {
            fill(pool).await?;
            let seconds = drain(pool, batch, claimers).await?;
            let ours = TASKS as f64 / seconds;
            let name = format!("queue/claim_finish/pending={pending},batch={batch},claimers={claimers}");
            for peer in peers.measure(pool, pending + TASKS, TASKS, batch, claimers).await? {
                out(Figure::beside(&format!("{name}/{}", peer.name), TASKS, "tasks/s", ours, peer));
            }
        }
        frontier(pool, pending, out).await?;
    }
    Ok(())
}

/// Reading the counts of a file with as many nodes, each settled by a change of its own.
async fn frontier(pool: &PgPool, nodes: usize, out: &mut dyn FnMut(Figure)) -> Result<(), BoxError> {
    let mut conn = pool.acquire().await?;
    sqlx::query("TRUNCATE frontier_delta").execute(&mut *conn).await?;
    // A structure task counts its nodes at once; the chunks settle by batches of embeddings.
    sqlx::query("INSERT INTO frontier_delta SELECT 1, $1, $1, 0, 0 UNION ALL SELECT 1, 0, -256, 256, 0 FROM generate_series(1, $1 / 256)")
        .bind(i64::try_from(nodes)?)
        .execute(&mut *conn)
        .await?;
    let mut times = Vec::new();
    for _ in 0..51 {
        let start = Instant::now();
        svc::store::ingest_nodes::frontier(&mut conn, 1).await?;
        svc::store::admin::frontier(&mut conn, 1).await?;
        times.push(start.elapsed().as_secs_f64() * 1000.0);
    }
    out(Figure::alone(&format!("queue/frontier/nodes={nodes}"), times.len(), "ms", median(&mut times)));
    Ok(())
}

/// As many documents, so that each task has a region of its own and nothing but the queue is in anyone's way.
async fn documents(pool: &PgPool, count: usize) -> Result<(), BoxError> {
    sqlx::query("TRUNCATE documents CASCADE").execute(pool).await?;
    sqlx::query("INSERT INTO documents (title, content, usetype, content_hash) SELECT 'node', '', 'markdown', '' FROM generate_series(1, $1)")
        .bind(i64::try_from(count)?)
        .execute(pool)
        .await?;
    Ok(())
}

/// One pending task a document, and nothing left of the run before.
async fn fill(pool: &PgPool) -> Result<(), BoxError> {
    sqlx::query("TRUNCATE task_queue, task_reservation, task_release, task_intent, task_attempts")
        .execute(pool)
        .await?;
    sqlx::query(
        "INSERT INTO task_queue (task_type, lane, scope_document_id, node_path, node_depth, root_id, write_mode)
         SELECT 'bench', 'io', id, id || '/', 0, id, 'self' FROM documents ORDER BY id",
    )
    .execute(pool)
    .await?;
    sqlx::query("VACUUM ANALYZE task_queue").execute(pool).await?;
    sqlx::query("CHECKPOINT").execute(pool).await?;
    Ok(())
}

/// Seconds until the claimers, each with its connection, have finished [`TASKS`] tasks.
async fn drain(pool: &PgPool, batch: usize, claimers: usize) -> Result<f64, BoxError> {
    let start = Instant::now();
    let mut running = JoinSet::new();
    for number in 0..claimers {
        let pool = pool.clone();
        let claimer = Claimer { worker_id: format!("bench-{number}"), badges: None, strict: false };
        running.spawn(async move {
            for _ in 0..TASKS / claimers / batch {
                let grants = tasks::claim(&pool, &claimer, &[(Lane::Io, batch)]).await?;
                if grants.len() != batch {
                    return Err(format!("a claim of {batch} got {}", grants.len()).into());
                }
                for grant in &grants {
                    finish(&pool, &claimer.worker_id, grant).await?;
                }
            }
            Ok::<(), BoxError>(())
        });
    }
    while let Some(ended) = running.join_next().await {
        ended??;
    }
    Ok(start.elapsed().as_secs_f64())
}

/// As a worker does it: the start by itself, the end in the transaction of what the task wrote.
async fn finish(pool: &PgPool, worker: &str, grant: &Grant) -> Result<(), BoxError> {
    let started_at = chrono::Utc::now();
    let is_ours = tasks::start(&mut *pool.acquire().await?, grant).await?;
    let mut tx = pool.begin().await?;
    let attempt = AttemptRow { grant, worker, started_at, outcome: "completed", detail: &Map::new() };
    if !is_ours || !tasks::finish(&mut tx, &attempt).await? {
        return Err(format!("task {} was taken away", grant.task_id).into());
    }
    Ok(tx.commit().await?)
}
