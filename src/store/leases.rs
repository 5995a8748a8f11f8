//! Claims while they last: beats, what is given back, and what is taken back from a worker that fell silent.
use super::{
    tasks::{fail_dependents, release},
    transaction,
};
use serde_json::Value;
use sqlx::{PgConnection, PgPool, types::Json};
use std::time::Duration;
use uuid::Uuid;

/// Held by the one worker of the fleet that reaps.
const REAP_LOCK: i64 = 0x7376_6302;

/// Gives claims back that never ended: pending again, no retry counted. One that was to be cancelled is left to the reaper.
pub async fn give_back(pool: &PgPool, tokens: &[Uuid]) -> sqlx::Result<()> {
    let mut tx = transaction::begin(pool).await?;
    let ids: Vec<i64> = sqlx::query_scalar(
        "UPDATE task_queue SET status = 'pending', ready = true, parked_on = NULL, claim_token = NULL, claimed_by = NULL, heartbeat_at = NULL
          WHERE claim_token = ANY($1) AND status IN ('claimed', 'running') AND cancel_requested_at IS NULL RETURNING id",
    )
    .bind(tokens)
    .fetch_all(&mut *tx)
    .await?;
    for id in ids {
        release(&mut tx, id).await?;
    }
    tx.commit().await
}

/// Gives back what this worker claimed for so long and does not know of: the answer to the claim never came, as where a task was cut
/// off in the message that ended it. What has begun to run is left to its lease. Returns how many.
pub async fn give_back_unheard(
    conn: &mut PgConnection,
    worker_id: &str,
    known: &[Uuid],
    since: Duration,
) -> sqlx::Result<u64> {
    sqlx::query(
        "WITH back AS (
             UPDATE task_queue SET status = 'pending', ready = true, parked_on = NULL, claim_token = NULL, claimed_by = NULL, heartbeat_at = NULL
              WHERE claimed_by = $1 AND status = 'claimed' AND claim_token <> ALL($2) AND heartbeat_at < clock_timestamp() - $3
                AND cancel_requested_at IS NULL RETURNING id)
         DELETE FROM task_reservation r USING back WHERE r.task_id = back.id",
    )
    .bind(worker_id)
    .bind(known)
    .bind(since)
    .execute(conn)
    .await
    .map(|done| done.rows_affected())
}

/// One beat for all tokens: those that come back are still held; the flag says that a cancel was asked for.
pub async fn beat(conn: &mut PgConnection, tokens: &[Uuid]) -> sqlx::Result<Vec<(Uuid, bool)>> {
    sqlx::query_as(
        "UPDATE task_queue SET heartbeat_at = clock_timestamp() WHERE claim_token = ANY($1) AND status IN ('claimed', 'running')
         RETURNING claim_token, cancel_requested_at IS NOT NULL",
    )
    .bind(tokens)
    .fetch_all(conn)
    .await
}

/// A claim whose worker fell silent.
#[derive(Debug, sqlx::FromRow)]
pub struct Reaped {
    pub id: i64,
    pub scope_document_id: i64,
    pub task_type: String,
    pub params: Json<Value>,
    /// Lost its third lease, or was to be cancelled: failed rather than queued again.
    pub is_final: bool,
}

/// Takes back the claims whose lease ran out, at most a thousand a call; empty where another worker is at it.
pub async fn reap(conn: &mut PgConnection, lease: Duration) -> sqlx::Result<Vec<Reaped>> {
    let ours: bool =
        sqlx::query_scalar("SELECT pg_try_advisory_xact_lock($1)").bind(REAP_LOCK).fetch_one(&mut *conn).await?;
    if !ours {
        return Ok(Vec::new());
    }
    let reaped: Vec<Reaped> = sqlx::query_as(
        "WITH expired AS (
             SELECT id, claimed_by, heartbeat_at, cancel_requested_at IS NOT NULL AS cancelled, lease_losses >= 2 OR cancel_requested_at IS NOT NULL AS ends
               FROM task_queue WHERE claim_token IS NOT NULL AND status IN ('claimed', 'running') AND heartbeat_at < clock_timestamp() - $1
              ORDER BY id LIMIT 1000 FOR UPDATE SKIP LOCKED),
         attempts AS (
             INSERT INTO task_attempts (document_id, task_id, task_type, attempt, outcome, error_type, code, message, worker, started_at, param_fingerprint)
             SELECT t.scope_document_id, t.id, t.task_type, t.retry_count + t.lease_losses + 1,
                    CASE WHEN ends THEN 'failed' ELSE 'lease_lost' END, CASE WHEN cancelled THEN 'permanent' ELSE 'timeout' END,
                    CASE WHEN cancelled THEN 'cancelled' ELSE 'lease_expired' END, 'worker ' || coalesce(t.claimed_by, '?') || ' fell silent', coalesce(t.claimed_by, ''), t.heartbeat_at, t.param_fingerprint
               FROM task_queue t JOIN expired USING (id))
         UPDATE task_queue t SET lease_losses = t.lease_losses + 1, claim_token = NULL, claimed_by = NULL, heartbeat_at = NULL,
                status = CASE WHEN ends THEN 'failed' ELSE 'pending' END,
                error_type = CASE WHEN cancelled THEN 'permanent' WHEN ends THEN 'timeout' ELSE t.error_type END,
                ready = NOT ends, final = ends, parked_on = NULL
           FROM expired WHERE t.id = expired.id
         RETURNING t.id, t.scope_document_id, t.task_type, t.params, t.final AS is_final",
    )
    .bind(lease)
    .fetch_all(&mut *conn)
    .await?;
    for task in &reaped {
        release(conn, task.id).await?;
        if task.is_final {
            fail_dependents(conn, task.id, task.scope_document_id).await?;
        }
    }
    Ok(reaped)
}
