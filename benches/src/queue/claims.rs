//! Claims alone: how many a second by connections that claim at once, and what one costs by how many tasks hold up others.
use super::{claimer_named, fill};
use crate::figure::{BoxError, Figure, median};
use sqlx::{Connection, PgConnection, PgPool};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};
use svc::store::{database, tasks};
use svc_actors::Lane;
use tokio::task::JoinSet;

/// Connections that claim at once.
const CONNECTIONS: [usize; 4] = [1, 4, 16, 64];
/// Tasks of one turn, which are claimed one at a time.
const TASKS: usize = 1_000;
/// How many turns each number of connections takes.
const ROUNDS: usize = 8;
/// How many tasks are held, each of which holds up another one.
const BLOCKERS: [usize; 3] = [0, 500, 5_000];
/// How many claims are timed beside them.
const TIMED: usize = 500;

pub async fn run(pool: &PgPool, pending: usize, out: &mut dyn FnMut(Figure)) -> Result<(), BoxError> {
    by_connections(pool, pending, out).await?;
    by_blockers(pool, out).await
}

async fn by_connections(pool: &PgPool, pending: usize, out: &mut dyn FnMut(Figure)) -> Result<(), BoxError> {
    let most = CONNECTIONS.iter().copied().max().unwrap_or(1);
    fill(pool, pending + most + TASKS * ROUNDS * CONNECTIONS.len()).await?;
    let options = database::guarded((*pool.connect_options()).clone(), Duration::from_secs(90));
    let mut connections = Vec::new();
    for _ in 0..most {
        // A worker's connections last, so each has its statements planned before the clock runs.
        let conn = PgConnection::connect_with(&options).await?;
        connections.push(claim_all(conn, Arc::new(AtomicUsize::new(1))).await?.0);
    }
    let mut took = [0.0; CONNECTIONS.len()];
    let mut waited: [Vec<f64>; CONNECTIONS.len()] = Default::default();
    for round in 0..ROUNDS {
        for turn in 0..CONNECTIONS.len() {
            let at = (turn + round) % CONNECTIONS.len();
            let left = Arc::new(AtomicUsize::new(TASKS));
            let mut claiming = JoinSet::new();
            let start = Instant::now();
            for conn in connections.drain(..CONNECTIONS[at]) {
                claiming.spawn(claim_all(conn, left.clone()));
            }
            while let Some(done) = claiming.join_next().await {
                let (conn, times) = done??;
                connections.push(conn);
                waited[at].extend(times);
            }
            took[at] += start.elapsed().as_secs_f64();
            // So that no turn has more regions in its way than another.
            sqlx::query("TRUNCATE task_reservation").execute(&mut connections[0]).await?;
        }
    }
    let claims = TASKS * ROUNDS;
    let rates = took.map(|seconds| claims as f64 / seconds);
    for ((count, rate), times) in CONNECTIONS.iter().zip(rates).zip(&mut waited) {
        let name = format!("queue/claims/pending={pending},connections={count}");
        out(Figure::alone(&name, claims, "claims/s", rate));
        out(Figure::alone(&format!("{name}/of_one"), claims, "times", rate / rates[0]));
        times.sort_unstable_by(f64::total_cmp);
        let p95 = times.get(times.len() * 95 / 100).copied().unwrap_or(f64::NAN);
        out(Figure::alone(&format!("{name}/p95"), claims, "ms", p95 * 1000.0));
    }
    for conn in connections {
        conn.close().await?;
    }
    Ok(())
}

/// Claims one task after another until as many as are left were claimed; returns how long each took.
async fn claim_all(mut conn: PgConnection, left: Arc<AtomicUsize>) -> Result<(PgConnection, Vec<f64>), BoxError> {
    let claimer = claimer_named("claims");
    let mut times = Vec::new();
    while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok() {
        let start = Instant::now();
        let got = tasks::claim(&mut conn, &claimer, &[(Lane::Io, 1)]).await?.grants;
        times.push(start.elapsed().as_secs_f64());
        if got.len() != 1 {
            return Err("a claim found nothing although a task was pending".into());
        }
    }
    Ok((conn, times))
}

/// Times claims while tasks are held, each with one that waits for its region.
async fn by_blockers(pool: &PgPool, out: &mut dyn FnMut(Figure)) -> Result<(), BoxError> {
    for blockers in BLOCKERS {
        fill(pool, blockers + TIMED).await?;
        let mut conn = pool.acquire().await?;
        let claimer = claimer_named("blockers");
        let mut held = 0;
        while held < blockers {
            held += tasks::claim(&mut *conn, &claimer, &[(Lane::Io, (blockers - held).min(500))]).await?.grants.len();
        }
        sqlx::query(
            "INSERT INTO task_queue (task_type, lane, scope_document_id, node_path, node_depth, root_id, write_mode)
             SELECT 'bench', 'model', scope_document_id, node_path, 0, root_id, 'self' FROM task_queue WHERE status = 'claimed'",
        )
        .execute(&mut *conn)
        .await?;
        // The first claims park what is held up.
        while tasks::claim(&mut *conn, &claimer, &[(Lane::Model, 1)]).await?.more {}
        let parked: i64 =
            sqlx::query_scalar("SELECT count(DISTINCT parked_on) FROM task_queue WHERE parked_on IS NOT NULL")
                .fetch_one(&mut *conn)
                .await?;
        if usize::try_from(parked)? != blockers {
            return Err(format!("{parked} of {blockers} tasks hold up others").into());
        }
        sqlx::query("VACUUM ANALYZE task_queue, task_reservation").execute(&mut *conn).await?;
        let mut times = Vec::new();
        for _ in 0..TIMED {
            let start = Instant::now();
            if tasks::claim(&mut *conn, &claimer, &[(Lane::Io, 1)]).await?.grants.len() != 1 {
                return Err("a claim found nothing although a task was pending".into());
            }
            times.push(start.elapsed().as_secs_f64() * 1000.0);
        }
        out(Figure::alone(&format!("queue/claims/blockers={blockers}"), TIMED, "ms", median(&mut times)));
    }
    Ok(())
}
