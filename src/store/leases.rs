//! Claims while they last: heartbeats, what is given back, and what is taken back from a silent worker.
use super::{
    advisory::AdvisoryLock,
    interval::interval,
    tasks::{fail_dependents, release},
    transaction,
};
use chrono::{DateTime, Utc};
use serde_json::Value;
use sqlx::{PgConnection, PgPool, types::Json};
use std::{collections::HashSet, time::Duration};
use svc_ids::{DocumentId, RootId, TaskId};
use uuid::Uuid;

/// At this many losses that count, a task ends for good.
const LAST_LOSS: i32 = 3;
/// How many leases of a task may expire over a restart of the server without counting. A task that crashes the whole
/// machine ends after these.
const FORGIVEN_RESTARTS: i32 = 10;
/// How many leases of a task that runs alone may expire before it has begun without counting. It ends after these, whatever keeps it from beginning.
const UNBEGUN: i32 = 100;
/// A task that has lost this many leases still waits for the lease of a dead service that served for less than a lease, so that a task which kills every service
/// leaves the next one time to serve.
const AT_ONCE: i32 = 3;

/// Whether an expired lease of task `t` counts. It does if the worker `w`, as it was when it claimed, is gone. It does
/// not if that worker sends heartbeats again, as after a pause or an interrupted network, nor if the server restarted
/// after the task's last heartbeat, because both may have been on one machine, and the worker may be back under its name.
/// Nor does it if the task was to run alone and had not begun, because its worker writes that it runs before it begins.
macro_rules! counts {
    () => {
        "NOT coalesce(w.beat_at > clock_timestamp() - w.lease OR (t.heartbeat_at < pg_postmaster_start_time() AND t.lapses < $2)
                      OR (t.status = 'claimed' AND t.lease_losses > 0 AND t.lapses < $4), false)"
    };
}
macro_rules! expired {
    () => {
        "task_queue t LEFT JOIN workers w ON w.worker_id = t.claimed_by AND w.started_at <= t.heartbeat_at
          WHERE t.claim_token IS NOT NULL AND t.status IN ('claimed', 'running') AND is_lapsed(t.lease_until)"
    };
}

/// A held task that must end for good.
#[derive(Debug, sqlx_macros::FromRow)]
pub struct Held {
    pub id: TaskId,
    pub claim_token: Uuid,
    pub heartbeat_at: DateTime<Utc>,
    pub scope_document_id: DocumentId,
    pub task_type: String,
    pub params: Json<Value>,
    /// True if a cancel was requested; otherwise its lease expired once too often.
    pub cancelled: bool,
}

/// Gives back claims whose tasks have not ended: the tasks are pending again, and this counts as no retry. Returns
/// those with a requested cancel, which are left to [`end`].
pub async fn give_back(pool: &PgPool, tokens: &[Uuid]) -> sqlx::Result<Vec<Held>> {
    let mut tx = transaction::begin(pool).await?;
    let ids: Vec<TaskId> = sqlx::query_scalar(
        "UPDATE task_queue SET status = 'pending', ready = true, parked_on = NULL, claim_token = NULL, claimed_by = NULL, heartbeat_at = NULL
          WHERE id IN (SELECT id FROM task_queue WHERE claim_token = ANY($1) ORDER BY id FOR NO KEY UPDATE)
            AND claim_token = ANY($1) AND status IN ('claimed', 'running') AND cancel_requested_at IS NULL RETURNING id",
    )
    .bind(tokens)
    .fetch_all(&mut *tx)
    .await?;
    for id in ids {
        release(&mut tx, id).await?;
    }
    let cancelled = cancelled(&mut tx, tokens).await?;
    tx.commit().await?;
    Ok(cancelled)
}

/// The tasks of these claims whose cancel was requested, which are left to [`end`].
pub async fn cancelled(conn: &mut PgConnection, tokens: &[Uuid]) -> sqlx::Result<Vec<Held>> {
    sqlx::query_as(
        "SELECT id, claim_token, heartbeat_at, scope_document_id, task_type, params, true AS cancelled FROM task_queue
          WHERE claim_token = ANY($1) AND status IN ('claimed', 'running') AND cancel_requested_at IS NOT NULL ORDER BY id",
    )
    .bind(tokens)
    .fetch_all(conn)
    .await
}

/// Gives back what this worker claimed at least this long ago and does not know of, because the answer to the claim
/// never arrived, for example when a task was cut off in the message that ended it. A task that has begun to run is
/// left to its lease, and one whose row somebody has locked to the next call. Returns how many were given back.
pub async fn give_back_unheard(
    conn: &mut PgConnection,
    worker_id: &str,
    known: &[Uuid],
    since: Duration,
) -> sqlx::Result<u64> {
    sqlx::query(
        "WITH unheard AS MATERIALIZED (
             SELECT id FROM task_queue
              WHERE claim_token IS NOT NULL AND claimed_by = $1 AND status = 'claimed' AND claim_token <> ALL($2)
                AND heartbeat_at < clock_timestamp() - $3 AND cancel_requested_at IS NULL ORDER BY id FOR NO KEY UPDATE SKIP LOCKED),
         back AS (
             UPDATE task_queue SET status = 'pending', ready = true, parked_on = NULL, claim_token = NULL, claimed_by = NULL, heartbeat_at = NULL
              WHERE id = ANY (ARRAY(SELECT id FROM unheard)) AND status = 'claimed' RETURNING id)
         DELETE FROM task_reservation r USING back WHERE r.task_id = back.id",
    )
    .bind(worker_id)
    .bind(known)
    .bind(interval(since))
    .execute(conn)
    .await
    .map(|done| done.rows_affected())
}

/// Extends the leases of all tokens by `lease`. Returns the tokens that are still held, each with whether a cancel was
/// requested.
///
/// A row that somebody has locked is held as before, but its lease is left to the next call: a delete may lock one for minutes, and waiting for
/// it would cost all other tokens their leases. The reaper passes over such a row too.
pub async fn beat(conn: &mut PgConnection, tokens: &[Uuid], lease: Duration) -> sqlx::Result<Vec<(Uuid, bool)>> {
    let mut held: Vec<(Uuid, bool)> = sqlx::query_as(
        "WITH held AS MATERIALIZED (SELECT id FROM task_queue WHERE claim_token = ANY($1) ORDER BY id FOR NO KEY UPDATE SKIP LOCKED)
         UPDATE task_queue SET heartbeat_at = clock_timestamp(), lease_until = clock_timestamp() + $2 WHERE id IN (SELECT id FROM held) AND claim_token = ANY($1) AND status IN ('claimed', 'running')
         RETURNING claim_token, cancel_requested_at IS NOT NULL",
    )
    .bind(tokens)
    .bind(interval(lease))
    .fetch_all(&mut *conn)
    .await?;
    let extended: HashSet<Uuid> = held.iter().map(|(token, _)| *token).collect();
    let rest: Vec<Uuid> = tokens.iter().copied().filter(|token| !extended.contains(token)).collect();
    if rest.is_empty() {
        return Ok(held);
    }
    // This reads what is committed by now, so that a token which somebody took meanwhile is missing.
    let locked: Vec<(Uuid, bool)> = sqlx::query_as(
        "SELECT claim_token, cancel_requested_at IS NOT NULL FROM task_queue WHERE claim_token = ANY($1) AND status IN ('claimed', 'running')",
    )
    .bind(&rest)
    .fetch_all(conn)
    .await?;
    held.extend(locked);
    Ok(held)
}

/// Whether all these tokens are still held, and nobody wants the end of any. This writes nothing, so it may be asked more often than leases are
/// extended.
pub async fn are_held(conn: &mut PgConnection, tokens: &[Uuid]) -> sqlx::Result<bool> {
    sqlx::query_scalar(
        "SELECT count(*) = cardinality($1) FROM task_queue
          WHERE claim_token = ANY($1) AND status IN ('claimed', 'running') AND cancel_requested_at IS NULL",
    )
    .bind(tokens)
    .fetch_one(conn)
    .await
}

/// A task that was queued again because its lease expired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lapsed {
    pub id: TaskId,
    /// Whether the loss counts against the task.
    pub counts: bool,
}

/// The result of a look at the leases.
#[derive(Debug, Default)]
pub struct Reaped {
    pub again: Vec<Lapsed>,
    /// Tasks that [`end`] must end, each in a separate transaction, because the rows of its nodes are locked before its
    /// own.
    pub to_end: Vec<Held>,
}

/// Takes back the claims whose lease has expired, each by its own worker's lease, at most a thousand per call. Does
/// nothing if another worker is doing it.
pub async fn reap(conn: &mut PgConnection) -> sqlx::Result<Reaped> {
    let ours: bool = sqlx::query_scalar("SELECT pg_try_advisory_xact_lock($1)")
        .bind(AdvisoryLock::Reap.key())
        .fetch_one(&mut *conn)
        .await?;
    if !ours {
        return Ok(Reaped::default());
    }
    forgive(conn).await?;
    take_back(conn, None).await
}

/// Takes back the claims whose lease has expired, only those of these workers if any are named. It skips a claim that somebody else is taking back.
async fn take_back(conn: &mut PgConnection, workers: Option<&[String]>) -> sqlx::Result<Reaped> {
    let again: Vec<(TaskId, DocumentId, RootId, bool)> = sqlx::query_as(concat!(
        "WITH expired AS MATERIALIZED (SELECT t.id, t.lease_losses, w.boot_nonce, ",
        counts!(),
        " AS counts FROM ",
        expired!(),
        " AND ($3::text[] IS NULL OR t.claimed_by = ANY($3)) AND t.cancel_requested_at IS NULL ORDER BY t.id LIMIT 1000 FOR UPDATE OF t SKIP LOCKED),
         lost AS MATERIALIZED (SELECT * FROM expired WHERE NOT (counts AND lease_losses + 1 >= $1)),
         attempts AS (
             INSERT INTO task_attempts (document_id, task_id, task_type, attempt, outcome, error_type, code, message, worker, started_at, param_fingerprint)
             SELECT t.scope_document_id, t.id, t.task_type, t.retry_count + t.lapses + 1, 'lease_lost', 'timeout', 'lease_expired',
                    'worker ' || coalesce(t.claimed_by, '?') || CASE WHEN counts THEN ' fell silent' ELSE ' was away or had not begun the task, which does not count' END,
                    coalesce(t.claimed_by, ''), t.heartbeat_at, t.param_fingerprint
               FROM task_queue t JOIN lost USING (id)),
         losses AS (INSERT INTO task_loss (task_id, boot_nonce) SELECT id, boot_nonce FROM lost WHERE counts AND boot_nonce IS NOT NULL),
         freed AS (DELETE FROM task_reservation r USING lost WHERE r.task_id = lost.id)
         UPDATE task_queue t SET lapses = t.lapses + 1, lease_losses = t.lease_losses + lost.counts::integer, claim_token = NULL, claimed_by = NULL,
                heartbeat_at = NULL, status = 'pending', ready = true, parked_on = NULL, put_off_code = NULL, put_off_message = NULL
           FROM lost WHERE t.id = lost.id
         RETURNING t.id, t.scope_document_id, t.root_id, lost.counts"
    ))
    .bind(LAST_LOSS)
    .bind(FORGIVEN_RESTARTS)
    .bind(workers)
    .bind(UNBEGUN)
    .fetch_all(&mut *conn)
    .await?;
    for (task_id, document_id, root_id, counts) in &again {
        tracing::warn!(
            task.id = task_id.0,
            document.id = document_id.0,
            root.id = root_id.0,
            counts,
            "a lease expired"
        );
    }
    let to_end = sqlx::query_as(concat!(
        "SELECT t.id, t.claim_token, t.heartbeat_at, t.scope_document_id, t.task_type, t.params, t.cancel_requested_at IS NOT NULL AS cancelled FROM ",
        expired!(),
        " AND ($3::text[] IS NULL OR t.claimed_by = ANY($3)) AND (t.cancel_requested_at IS NOT NULL OR (t.lease_losses + 1 >= $1 AND ",
        counts!(),
        ")) ORDER BY t.id LIMIT 1000"
    ))
    .bind(LAST_LOSS)
    .bind(FORGIVEN_RESTARTS)
    .bind(workers)
    .bind(UNBEGUN)
    .fetch_all(conn)
    .await?;
    let again = again.into_iter().map(|(id, _, _, counts)| Lapsed { id, counts }).collect();
    Ok(Reaped { again, to_end })
}

/// Takes back at once the tasks of workers that held the data folder of this database. The caller holds that folder's lock, and none of its own workers has
/// begun, so those workers are dead and nobody has to wait for their leases. Other workers may live, and keep what they hold. A task that must end for good,
/// and each task beyond a thousand, only loses its lease here, so that the next [`reap`] finds it.
pub async fn reap_holders_of_folder(conn: &mut PgConnection) -> sqlx::Result<Reaped> {
    // From now on these workers count as silent, which is how their losses are judged as those of dead workers.
    let dead: Vec<(String, bool)> = sqlx::query_as(
        "WITH dead AS MATERIALIZED (SELECT worker_id, beat_at - started_at >= lease AS has_served FROM workers WHERE holds_folder ORDER BY worker_id FOR NO KEY UPDATE)
         UPDATE workers w SET beat_at = least(w.beat_at, clock_timestamp() - w.lease) FROM dead WHERE w.worker_id = dead.worker_id
         RETURNING w.worker_id, dead.has_served",
    )
    .fetch_all(&mut *conn)
    .await?;
    if dead.is_empty() {
        return Ok(Reaped::default());
    }
    let have_served: Vec<String> =
        dead.iter().filter(|(_, has_served)| *has_served).map(|(id, _)| id.clone()).collect();
    let dead: Vec<String> = dead.into_iter().map(|(id, _)| id).collect();
    sqlx::query(
        "WITH held AS MATERIALIZED (
             SELECT id FROM task_queue WHERE claim_token IS NOT NULL AND status IN ('claimed', 'running') AND claimed_by = ANY($1)
                AND (lapses < $2 OR claimed_by = ANY($3)) ORDER BY id FOR NO KEY UPDATE)
         UPDATE task_queue SET lease_until = NULL WHERE id IN (SELECT id FROM held)",
    )
    .bind(&dead)
    .bind(AT_ONCE)
    .bind(&have_served)
    .execute(&mut *conn)
    .await?;
    take_back(conn, Some(&dead)).await
}

/// Stops counting losses of workers that came back.
async fn forgive(conn: &mut PgConnection) -> sqlx::Result<()> {
    sqlx::query(
        "WITH ours AS MATERIALIZED (
             SELECT t.id FROM task_queue t WHERE t.id IN (
                    SELECT l.task_id FROM task_loss l JOIN workers w ON w.boot_nonce = l.boot_nonce AND w.beat_at > l.lost_at)
              ORDER BY t.id FOR NO KEY UPDATE SKIP LOCKED),
         back AS (
             DELETE FROM task_loss l USING workers w
              WHERE l.task_id IN (SELECT id FROM ours) AND w.boot_nonce = l.boot_nonce AND w.beat_at > l.lost_at RETURNING l.task_id)
         UPDATE task_queue t SET lease_losses = greatest(t.lease_losses - b.losses, 0)
           FROM (SELECT task_id, count(*)::integer AS losses FROM back GROUP BY 1) b WHERE t.id = b.task_id AND NOT t.final",
    )
    .execute(conn)
    .await
    .map(|_| ())
}

/// Ends a held task for good, with those that waited for it; returns false if this claim no longer holds it, or if
/// its lease was extended meanwhile. The caller has locked the rows of its nodes.
#[tracing::instrument(level = "debug", skip_all, fields(task.id = held.id.0, document.id = held.scope_document_id.0))]
pub async fn end(conn: &mut PgConnection, held: &Held) -> sqlx::Result<bool> {
    let ended: Option<TaskId> = sqlx::query_scalar(
        "WITH ended AS (
             UPDATE task_queue SET status = 'failed', final = true, ready = false, parked_on = NULL, claim_token = NULL, heartbeat_at = NULL,
                    put_off_code = NULL, put_off_message = NULL, error_type = CASE WHEN $4 THEN 'permanent' ELSE 'timeout' END,
                    lapses = lapses + (NOT $4)::integer, lease_losses = lease_losses + (NOT $4)::integer
              WHERE id = $1 AND claim_token = $2 AND status IN ('claimed', 'running') AND ($4 OR heartbeat_at = $3)
             RETURNING id, scope_document_id, task_type, retry_count, lapses, claimed_by, param_fingerprint),
         attempts AS (
             INSERT INTO task_attempts (document_id, task_id, task_type, attempt, outcome, error_type, code, message, worker, started_at, param_fingerprint, is_last)
             SELECT scope_document_id, id, task_type, retry_count + lapses + $4::integer, 'failed', CASE WHEN $4 THEN 'permanent' ELSE 'timeout' END,
                    CASE WHEN $4 THEN 'cancelled' ELSE 'lease_expired' END,
                    CASE WHEN $4 THEN 'the task was cancelled' ELSE 'worker ' || coalesce(claimed_by, '?') || ' fell silent' END,
                    coalesce(claimed_by, ''), $3, param_fingerprint, true
               FROM ended)
         SELECT id FROM ended",
    )
    .bind(held.id)
    .bind(held.claim_token)
    .bind(held.heartbeat_at)
    .bind(held.cancelled)
    .fetch_optional(&mut *conn)
    .await?;
    if ended.is_none() {
        return Ok(false);
    }
    release(conn, held.id).await?;
    super::events::task_failed(conn, held.id, held.scope_document_id).await?;
    fail_dependents(conn, held.id, held.scope_document_id).await?;
    Ok(true)
}
