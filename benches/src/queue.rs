//! The task queue: tasks that are claimed, started and finished a second, each finish a durable commit of its own; beside it
//! procrastinate and graphile-worker on the same server. And the frontier of a large file.
mod peers;

use crate::figure::{BoxError, Figure, median};
use peers::Peers;
use serde_json::Map;
use sqlx::{Connection, PgPool};
use std::{sync::Arc, time::Instant};
use svc::store::{
    kept::KeptConnection,
    tasks::{self, AttemptRow, Claimer},
};
use svc_actors::{Grant, Lane};
use tokio::task::JoinSet;

/// Tasks of one turn, enough that what is done once a connection counts for nothing; a multiple of every batch times
/// every number of claimers.
const TASKS: usize = 4_000;
/// Tasks that are finished in one go to see the queue after long work, with no vacuum in between.
const WORN: usize = 100_000;
/// Times that all take turns in each measurement, so that what else the machine does hits all of them.
const ROUNDS: usize = 3;
/// Batch and claimers of each measurement.
const SHAPES: [(usize, usize); 4] = [(1, 1), (10, 1), (1, 8), (10, 8)];

pub async fn run(pool: &PgPool, sizes: &[usize], out: &mut dyn FnMut(Figure)) -> Result<(), BoxError> {
    let peers = Peers::set_up()?;
    for &pending in sizes {
        let all = pending + TASKS * ROUNDS * SHAPES.len();
        let queues = peers.with_tasks(pool, all).await?;
        eprintln!("bench: svc with {pending} pending");
        fill(pool, all).await?;
        for (batch, claimers) in SHAPES {
            let mut our_seconds = 0.0;
            let mut theirs = vec![(0, 0.0); queues.len()];
            for _ in 0..ROUNDS {
                our_seconds += run_tasks(pool, TASKS, batch, claimers).await?;
                for (queue, (tasks, seconds)) in queues.iter().zip(&mut theirs) {
                    let (done, took) = queue.run(TASKS, batch, claimers).await?;
                    *tasks += done;
                    *seconds += took;
                }
            }
            let tasks = TASKS * ROUNDS;
            let name = format!("queue/claim_finish/pending={pending},batch={batch},claimers={claimers}");
            for (queue, (done, seconds)) in queues.iter().zip(theirs) {
                let peer = queue.figure(batch, done as f64 / seconds);
                out(Figure::beside(
                    &format!("{name}/{}", peer.name),
                    tasks,
                    "tasks/s",
                    tasks as f64 / our_seconds,
                    peer,
                ));
            }
        }
        frontier(pool, pending, out).await?;
        if pending > WORN + TASKS {
            worn(pool, pending, out).await?;
        }
    }
    Ok(())
}

/// The same work once many tasks are done whose dead rows no vacuum has taken.
async fn worn(pool: &PgPool, pending: usize, out: &mut dyn FnMut(Figure)) -> Result<(), BoxError> {
    for table in ["task_queue", "task_reservation", "task_attempts"] {
        sqlx::query(sqlx::AssertSqlSafe(format!("ALTER TABLE {table} SET (autovacuum_enabled = false)")))
            .execute(pool)
            .await?;
    }
    let name = format!("queue/claim_finish/pending={pending},batch=10,claimers=8");
    let on_the_way = WORN as f64 / run_tasks(pool, WORN, 10, 8).await?;
    out(Figure::alone(&format!("{name}/unvacuumed"), WORN, "tasks/s", on_the_way));
    let then = TASKS as f64 / run_tasks(pool, TASKS, 10, 8).await?;
    out(Figure::alone(&format!("{name}/after={WORN},unvacuumed"), TASKS, "tasks/s", then));
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

/// As many documents with a pending task each, so that each task has a region of its own and nothing but the queue is in
/// anyone's way; and nothing left of what was before.
async fn fill(pool: &PgPool, count: usize) -> Result<(), BoxError> {
    let mut conn = pool.acquire().await?.detach();
    // A foreign key that is checked for each of a million rows makes the filling long and the figures no better; nor do the
    // indexes that searches use.
    for statement in [
        "SET session_replication_role = replica",
        "SET synchronous_commit = off",
        "DROP INDEX IF EXISTS documents_embed, documents_path, documents_words, documents_siblings",
        "TRUNCATE documents CASCADE",
        "TRUNCATE task_queue, task_reservation, task_intent, task_attempts",
    ] {
        sqlx::query(statement).execute(&mut conn).await?;
    }
    sqlx::query("INSERT INTO documents (title, content, usetype, content_hash) SELECT 'node', '', 'markdown', '' FROM generate_series(1, $1)")
        .bind(i64::try_from(count)?)
        .execute(&mut conn)
        .await?;
    sqlx::query(
        "INSERT INTO task_queue (task_type, lane, scope_document_id, node_path, node_depth, root_id, write_mode)
         SELECT 'bench', 'io', id, id || '/', 0, id, 'self' FROM documents ORDER BY id",
    )
    .execute(&mut conn)
    .await?;
    for statement in ["VACUUM ANALYZE documents", "VACUUM ANALYZE task_queue", "CHECKPOINT"] {
        sqlx::query(statement).execute(&mut conn).await?;
    }
    Ok(conn.close().await?)
}

/// The seconds until the claimers have finished so many tasks. Each claims as many as it has slots and runs them at once; while
/// their ends are committed it claims the next ones, since a task that only commits passes its permit on. A worker's claims may
/// be smaller: it asks as soon as one is passed on.
async fn run_tasks(pool: &PgPool, count: usize, batch: usize, claimers: usize) -> Result<f64, BoxError> {
    let begun = Instant::now();
    let mut running = JoinSet::new();
    for number in 0..claimers {
        let pool = pool.clone();
        // As a worker has it.
        let queue = KeptConnection::new(pool.clone());
        let claimer = Arc::new(Claimer { worker_id: format!("bench-{number}"), badges: None, strict: false });
        running.spawn(async move {
            let mut ending = JoinSet::new();
            for _ in 0..count / claimers / batch {
                let grants = queue.run(async |conn| tasks::claim(conn, &claimer, &[(Lane::Io, batch)]).await).await?;
                if grants.len() != batch {
                    return Err(format!("a claim of {batch} got {}", grants.len()).into());
                }
                let ids: Vec<_> = grants.iter().map(|grant| grant.task_id).collect();
                let tokens: Vec<_> = grants.iter().map(|grant| grant.token).collect();
                if queue.run(async |conn| tasks::start(conn, &ids, &tokens).await).await?.len() != batch {
                    return Err("a task was taken away".into());
                }
                // As many may be ending as there are slots.
                all_ended(&mut ending).await?;
                for grant in grants {
                    let (pool, claimer) = (pool.clone(), claimer.clone());
                    ending.spawn(async move { finish(&pool, &claimer.worker_id, &grant).await });
                }
            }
            all_ended(&mut ending).await
        });
    }
    all_ended(&mut running).await?;
    Ok(begun.elapsed().as_secs_f64())
}

async fn all_ended(running: &mut JoinSet<Result<(), BoxError>>) -> Result<(), BoxError> {
    while let Some(ended) = running.join_next().await {
        ended??;
    }
    Ok(())
}

/// The end of a task that wrote nothing: a durable commit of its own. A task that writes has it in its transaction; what the
/// peers' tasks write is no part of their figures either.
async fn finish(pool: &PgPool, worker: &str, grant: &Grant) -> Result<(), BoxError> {
    let mut conn = pool.acquire().await?;
    let attempt =
        AttemptRow { grant, worker, started_at: chrono::Utc::now(), outcome: "completed", detail: &Map::new() };
    if !tasks::finish(&mut conn, &attempt).await? {
        return Err(format!("task {} was taken away", grant.task_id).into());
    }
    Ok(())
}
