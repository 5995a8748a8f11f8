//! The task queue: how many short tasks are claimed and finished per second, each finish a durable commit of its own;
//! beside it procrastinate and graphile-worker on the same server. Also the frontier of a large file.
pub mod backlog;
pub mod claimer;
pub mod claims;
pub mod fleet;
pub mod offered;
pub mod peers;

use crate::figure::{BoxError, Figure, median};
use claimer::Spent;
use peers::{Peers, Queue};
use sqlx::{Connection, PgConnection, PgPool};
use std::time::{Duration, Instant};
use svc::store::tasks::Claimer;

/// The tasks of one turn: so many that work done once per connection does not matter, and a multiple of every batch
/// times every number of claimers.
const TASKS: usize = 2_000;
/// Tasks that are finished in one go without a vacuum, to measure the queue after long work.
const WORN: usize = 100_000;
/// How many turns all take in each measurement: many short ones, so that other load on the machine affects all of them.
const ROUNDS: usize = 10;
/// Batch and claimers of each measurement.
const SHAPES: [(usize, usize); 4] = [(1, 1), (10, 1), (1, 8), (10, 8)];

pub async fn run(pool: &PgPool, sizes: &[usize], out: &mut dyn FnMut(Figure)) -> Result<(), BoxError> {
    let peers = Peers::set_up()?;
    for &pending in sizes {
        let all = pending + TASKS * ROUNDS * SHAPES.len();
        let queues = peers.with_tasks(pool, all).await?;
        eprintln!("bench: svc with {pending} pending");
        // Ours is worked on in two ways.
        fill(pool, all + TASKS * ROUNDS * SHAPES.len()).await?;
        let ours = [Queue::ours(pool, claimer::EVEN)?, Queue::ours(pool, claimer::OVERLAPPED)?];
        for (batch, claimers) in SHAPES {
            let mut took: Vec<Took> = ours.iter().chain(&queues).map(|_| Took::default()).collect();
            for round in 0..ROUNDS {
                // The order rotates, so that nobody always follows the same one.
                let mut turns: Vec<(&Queue, &mut Took)> = ours.iter().chain(&queues).zip(&mut took).collect();
                let first = round % turns.len();
                turns.rotate_left(first);
                for (queue, took) in turns {
                    let turn = queue.run(TASKS, batch, claimers).await?;
                    took.tasks += turn.tasks;
                    took.seconds += turn.seconds;
                    for said in turn.said.iter().filter(|said| !said.is_empty()) {
                        took.spent.add(said)?;
                    }
                }
            }
            let (even, overlapped) = (&took[0], &took[1]);
            let name = format!("queue/claim_finish/pending={pending},batch={batch},claimers={claimers}");
            for (queue, theirs) in queues.iter().zip(&took[ours.len()..]) {
                let peer = queue.figure(batch, theirs.rate());
                out(Figure::beside(&format!("{name}/{}", peer.name), even.tasks, "tasks/s", even.rate(), peer));
            }
            out(Figure::alone(&format!("{name}/overlapped"), overlapped.tasks, "tasks/s", overlapped.rate()));
            let calls = even.tasks / batch;
            for (step, seconds) in [("claim", even.spent.claims), ("finish", even.spent.finishes)] {
                out(Figure::alone(&format!("{name}/{step}"), calls, "ms", seconds / calls as f64 * 1000.0));
            }
        }
        frontier(pool, pending, out).await?;
        if pending > WORN + TASKS {
            worn(pool, pending, out).await?;
        }
    }
    Ok(())
}

/// The sum over the turns of one queue.
#[derive(Default)]
struct Took {
    tasks: usize,
    seconds: f64,
    /// The sum over all its claimers.
    spent: Spent,
}

impl Took {
    fn rate(&self) -> f64 {
        self.tasks as f64 / self.seconds
    }
}

/// Does the same work after many tasks whose dead rows no vacuum has removed.
async fn worn(pool: &PgPool, pending: usize, out: &mut dyn FnMut(Figure)) -> Result<(), BoxError> {
    for table in ["task_queue", "task_reservation", "task_attempts"] {
        sqlx::query(sqlx::AssertSqlSafe(format!("ALTER TABLE {table} SET (autovacuum_enabled = false)")))
            .execute(pool)
            .await?;
    }
    let name = format!("queue/claim_finish/pending={pending},batch=10,claimers=8");
    let ours = Queue::ours(pool, claimer::EVEN)?;
    for (tasks, when) in [(WORN, "unvacuumed".to_owned()), (TASKS, format!("after={WORN},unvacuumed"))] {
        let turn = ours.run(tasks, 10, 8).await?;
        out(Figure::alone(&format!("{name}/{when}"), turn.tasks, "tasks/s", turn.tasks as f64 / turn.seconds));
    }
    Ok(())
}

/// Reads the counts of a file with this many nodes, whose chunks all wait to be embedded or have been, 256 per task.
async fn frontier(pool: &PgPool, nodes: usize, out: &mut dyn FnMut(Figure)) -> Result<(), BoxError> {
    let mut conn = pool.acquire().await?;
    sqlx::query("TRUNCATE frontier_delta").execute(&mut *conn).await?;
    // A structure task counts its nodes at once; the chunks settle in batches of embeddings.
    sqlx::query("INSERT INTO frontier_delta SELECT 1, $1, $1, 0, 0 UNION ALL SELECT 1, 0, -256, 256, 0 FROM generate_series(1, $1 / 256)")
        .bind(i64::try_from(nodes)?)
        .execute(&mut *conn)
        .await?;
    sqlx::query(
        "INSERT INTO task_queue (task_type, lane, scope_document_id, node_path, node_depth, root_id, write_mode)
         SELECT 'embed', 'model', d.id, '1/' || n || '/', 1, 1, 'self' FROM (SELECT min(id) AS id FROM documents) d, generate_series(1, $1 / 256) AS n",
    )
    .bind(i64::try_from(nodes)?)
    .execute(&mut *conn)
    .await?;
    let mut times = Vec::new();
    for _ in 0..51 {
        let start = Instant::now();
        svc::store::ingest_nodes::frontier(&mut conn, svc_ids::RootId(1)).await?;
        svc::store::admin::frontier(&mut conn, &svc::store::scope::Readable::everything(), &[1]).await?;
        times.push(start.elapsed().as_secs_f64() * 1000.0);
    }
    out(Figure::alone(
        &format!("queue/frontier/nodes={nodes},tasks={}", nodes / 256),
        times.len(),
        "ms",
        median(&mut times),
    ));
    sqlx::query("DELETE FROM task_queue WHERE task_type = 'embed'").execute(&mut *conn).await?;
    Ok(())
}

/// A worker that takes every task.
pub fn claimer_named(worker_id: &str) -> Claimer {
    Claimer { worker_id: worker_id.to_owned(), badges: None, strict: false, lease: Duration::from_secs(90) }
}

/// Makes this many documents with a pending task each, so that each task has its own region and only the queue is
/// measured. Whatever was there before is removed.
async fn fill(pool: &PgPool, count: usize) -> Result<(), BoxError> {
    let mut conn = PgConnection::connect_with(&peers::superuser(pool)).await?;
    // Checking a foreign key for each of a million rows makes the filling slow and the figures no better; nor do the
    // indexes for searches.
    for statement in [
        "SET session_replication_role = replica",
        "SET synchronous_commit = off",
        "DROP INDEX IF EXISTS documents_embed, documents_path, documents_words, documents_siblings",
        "TRUNCATE documents, task_queue, task_attempts CASCADE",
    ] {
        sqlx::query(statement).execute(&mut conn).await?;
    }
    sqlx::query("INSERT INTO documents (title, content, usetype, content_hash, guard) SELECT 'node', '', 'markdown', '', 0 FROM generate_series(1, $1)")
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
