//! What keeps the queue lean and moving: putting tasks off, deleting rows that nobody needs, and removing intents of
//! tasks that cannot run.
use super::{advisory::AdvisoryLock, interval::interval, tasks::release, text::storable};
use sqlx::PgConnection;
use std::time::Duration;
use svc_actors::{Grant, TaskFailure};
use svc_ids::TaskId;

/// How many rows one call looks at.
const CHUNK: i64 = 2000;

/// Gives back a task that could not be tried, to be claimed again after `delay`; this neither spends nor logs an
/// attempt, but the task says why. Returns false if the token is stale or the task's end was requested.
#[tracing::instrument(level = "debug", skip_all, fields(task.id = grant.task_id.0, document.id = grant.document_id.0, root.id = grant.root_id.0))]
pub async fn put_off(
    conn: &mut PgConnection,
    grant: &Grant,
    failure: &TaskFailure,
    delay: Duration,
) -> sqlx::Result<bool> {
    let ours: Option<TaskId> = sqlx::query_scalar(
        "UPDATE task_queue SET status = 'failed', error_type = 'retryable', claim_token = NULL, claimed_by = NULL, heartbeat_at = NULL,
                ready = false, retry_after = clock_timestamp() + $3, put_off_code = $4, put_off_message = left($5, 2000)
          WHERE id = $1 AND claim_token = $2 AND status IN ('claimed', 'running') AND cancel_requested_at IS NULL RETURNING id",
    )
    .bind(grant.task_id)
    .bind(grant.token)
    .bind(interval(delay))
    .bind(storable(&failure.code).into_owned())
    .bind(storable(&failure.message).into_owned())
    .fetch_optional(&mut *conn)
    .await?;
    match ours {
        Some(id) => release(conn, id).await.map(|()| true),
        None => Ok(false),
    }
}

/// Whether it is this worker's turn to do what one worker does for the fleet: it is if nobody has taken the turn for
/// this long.
pub async fn take_turn(conn: &mut PgConnection, name: &str, every: Duration) -> sqlx::Result<bool> {
    begin_turn(conn, name, every, every).await
}

/// Takes a turn as [`take_turn`] does, for work that may be cut off: unless [`keep_turn`] follows, the turn comes round again after `held`.
pub async fn begin_turn(conn: &mut PgConnection, name: &str, every: Duration, held: Duration) -> sqlx::Result<bool> {
    let taken: Option<i32> = sqlx::query_scalar(
        "INSERT INTO upkeep_turn VALUES ($1, clock_timestamp() - $2 + $3)
         ON CONFLICT (name) DO UPDATE SET taken_at = EXCLUDED.taken_at WHERE upkeep_turn.taken_at <= clock_timestamp() - $2 RETURNING 1",
    )
    .bind(name)
    .bind(interval(every))
    .bind(interval(held))
    .fetch_optional(conn)
    .await?;
    Ok(taken.is_some())
}

/// Keeps a turn whose work is done.
pub async fn keep_turn(conn: &mut PgConnection, name: &str) -> sqlx::Result<()> {
    let kept = sqlx::query("UPDATE upkeep_turn SET taken_at = clock_timestamp() WHERE name = $1");
    kept.bind(name).execute(conn).await.map(|_| ())
}

/// Gives back a turn whose work could not be done, so that the next worker that asks takes it.
pub async fn give_back_turn(conn: &mut PgConnection, name: &str) -> sqlx::Result<()> {
    sqlx::query("DELETE FROM upkeep_turn WHERE name = $1").bind(name).execute(conn).await.map(|_| ())
}

/// The result of a look at a chunk of the queue.
#[derive(Debug, PartialEq, Eq)]
pub struct Purged {
    pub rows: u64,
    /// The last id that was looked at; `None` at the end of what is old enough, or if another worker is doing this.
    pub next: Option<TaskId>,
}

/// Deletes tasks that ended longer ago than `retention`, among the next rows after `after`. Tasks of a root that still
/// has unfinished tasks stay, and so does a failed task of the type `kept_failed`. What the tasks left and their
/// attempts belong to the documents and stay with them.
pub async fn purge(
    conn: &mut PgConnection,
    retention: Duration,
    after: TaskId,
    kept_failed: &str,
) -> sqlx::Result<Purged> {
    let ours: bool = sqlx::query_scalar("SELECT pg_try_advisory_xact_lock($1)")
        .bind(AdvisoryLock::Purge.key())
        .fetch_one(&mut *conn)
        .await?;
    if !ours {
        return Ok(Purged { rows: 0, next: None });
    }
    // The walk is by id and so by age: a task that was queued too recently ends it. An extra index would cost every
    // finish. The conditions on the row itself are checked again if somebody puts the task back meanwhile.
    let (rows, last, seen): (i64, Option<TaskId>, i64) = sqlx::query_as(
        "WITH seen AS MATERIALIZED (
             SELECT * FROM (
                    SELECT id, final, status, task_type, root_id, scope_document_id, created_at FROM task_queue WHERE id > $1 ORDER BY id LIMIT $3) chunk
              WHERE created_at < clock_timestamp() - $2),
         gone AS (
             DELETE FROM task_queue t USING seen
              WHERE t.id = seen.id AND t.final AND t.status = seen.status AND seen.final AND (seen.status = 'completed' OR seen.task_type <> $4)
                AND NOT EXISTS (SELECT 1 FROM task_queue open WHERE open.root_id = seen.root_id AND NOT open.final)
                AND NOT EXISTS (SELECT 1 FROM task_attempts a
                                 WHERE a.document_id = seen.scope_document_id AND a.task_id = seen.id AND a.ended_at >= clock_timestamp() - $2)
             RETURNING 1)
         SELECT (SELECT count(*) FROM gone), (SELECT max(id) FROM seen), (SELECT count(*) FROM seen)",
    )
    .bind(after)
    .bind(interval(retention))
    .bind(CHUNK)
    .bind(kept_failed)
    .fetch_one(conn)
    .await?;
    Ok(Purged { rows: u64::try_from(rows).unwrap_or(0), next: last.filter(|_| seen == CHUNK) })
}

/// Finds tasks that are parked on something gone and were forgotten, so that the next claim wakes them. Returns how
/// many blockers there were; any is the effect of a defect.
pub async fn find_forgotten_releases(conn: &mut PgConnection) -> sqlx::Result<i64> {
    sqlx::query_scalar("SELECT find_forgotten_releases()").fetch_one(conn).await
}

/// Removes the intents of tasks that cannot run whatever becomes free: done, held, paused, without a worker for them,
/// or waiting for a dependency or a retry. Younger tasks need not stand back for those, and each leaves another intent
/// when it has waited too long again. Returns how many were removed.
pub async fn drop_idle_intents(conn: &mut PgConnection) -> sqlx::Result<u64> {
    sqlx::query(
        "DELETE FROM task_intent i USING task_queue t
          WHERE t.id = i.task_id AND (t.final OR t.status NOT IN ('pending', 'failed') OR EXISTS (
                SELECT 1 FROM task_blockage b
                 WHERE b.task_id = i.task_id AND b.blocked_by IN ('paused', 'no_worker_for_badge', 'no_handler', 'dependency', 'backoff')))",
    )
    .execute(conn)
    .await
    .map(|done| done.rows_affected())
}
