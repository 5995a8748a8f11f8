//! The worker processes of the fleet.
use super::{interval::interval, text::storable_json};
use serde_json::Value;
use sqlx::PgConnection;
use std::time::Duration;
use svc_client::wire::{EventKind, WorkerState};
use uuid::Uuid;

/// A worker as it presents itself.
#[derive(Clone, Debug)]
pub struct WorkerRow {
    pub worker_id: String,
    pub boot_nonce: Uuid,
    pub version: String,
    /// If empty, the worker takes every task.
    pub badges: Vec<String>,
    /// Whether the worker leaves tasks without a badge to others.
    pub strict: bool,
    /// Whether the worker is in the service that holds the lock of the database's data folder.
    pub holds_folder: bool,
    pub task_types: Vec<String>,
    pub lease: Duration,
}

/// Registers a worker, or records its heartbeat.
pub async fn beat(conn: &mut PgConnection, worker: &WorkerRow, snapshot: &Value) -> sqlx::Result<()> {
    // A worker that is unknown, has started again or was lost joins the fleet, and an event tells of that.
    sqlx::query(
        "WITH known AS (SELECT 1 FROM workers WHERE worker_id = $1 AND boot_nonce = $2 AND NOT lost),
         beat AS (
             INSERT INTO workers (worker_id, boot_nonce, version, badges, task_types, lease, snapshot, strict, holds_folder)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $10)
             ON CONFLICT (worker_id) DO UPDATE SET beat_at = clock_timestamp(), snapshot = EXCLUDED.snapshot, boot_nonce = EXCLUDED.boot_nonce,
                 version = EXCLUDED.version, badges = EXCLUDED.badges, task_types = EXCLUDED.task_types, lease = EXCLUDED.lease, strict = EXCLUDED.strict,
                 holds_folder = EXCLUDED.holds_folder, lost = false,
                 started_at = CASE WHEN workers.boot_nonce = EXCLUDED.boot_nonce THEN workers.started_at ELSE clock_timestamp() END
             RETURNING worker_id, version, badges)
         INSERT INTO event_outbox (kind, data, owner_only) SELECT $9, to_jsonb(beat), true FROM beat WHERE NOT EXISTS (SELECT 1 FROM known)",
    )
    .bind(&worker.worker_id)
    .bind(worker.boot_nonce)
    .bind(&worker.version)
    .bind(&worker.badges)
    .bind(&worker.task_types)
    .bind(interval(worker.lease))
    .bind(storable_json(snapshot).as_ref())
    .bind(worker.strict)
    .bind(EventKind::WorkerJoined.as_str())
    .bind(worker.holds_folder)
    .execute(conn)
    .await
    .map(|_| ())
}

/// Signs a worker off, and records what it served until now; what older such records say is over.
pub async fn remove(conn: &mut PgConnection, worker_id: &str, boot_nonce: Uuid) -> sqlx::Result<()> {
    let is_gone: bool = sqlx::query_scalar(
        "WITH gone AS (DELETE FROM workers WHERE worker_id = $1 AND boot_nonce = $2 RETURNING badges, strict, task_types),
         over AS MATERIALIZED (
             SELECT worker_id FROM workers_left WHERE left_at < clock_timestamp() - interval '1 minute' AND worker_id <> $1 FOR UPDATE SKIP LOCKED),
         forgotten AS (DELETE FROM workers_left WHERE worker_id IN (SELECT worker_id FROM over)),
         recorded AS (
             INSERT INTO workers_left (worker_id, badges, strict, task_types, left_at)
             SELECT $1, badges, strict, task_types, clock_timestamp() FROM gone
             ON CONFLICT (worker_id) DO UPDATE SET badges = excluded.badges, strict = excluded.strict, task_types = excluded.task_types, left_at = excluded.left_at)
         SELECT EXISTS (SELECT 1 FROM gone)",
    )
    .bind(worker_id)
    .bind(boot_nonce)
    .fetch_one(&mut *conn)
    .await?;
    match is_gone {
        true => super::events::worker_signed_off(conn, worker_id).await,
        false => Ok(()),
    }
}

/// Removes workers that have been silent for a day.
pub async fn forget_silent(conn: &mut PgConnection) -> sqlx::Result<()> {
    sqlx::query("DELETE FROM workers WHERE beat_at < now() - interval '1 day'").execute(conn).await.map(|_| ())
}

/// The workers with a heartbeat within their lease.
pub async fn alive(conn: &mut PgConnection) -> sqlx::Result<Vec<WorkerState>> {
    let rows: Vec<(String, String, Vec<String>, f64, i64)> = sqlx::query_as(
        "SELECT w.worker_id, w.version, w.badges, extract(epoch FROM clock_timestamp() - w.beat_at)::float8,
                (SELECT count(*) FROM task_reservation r WHERE r.worker = w.worker_id)
           FROM workers w WHERE w.beat_at > now() - w.lease ORDER BY w.worker_id",
    )
    .fetch_all(conn)
    .await?;
    Ok(rows
        .into_iter()
        .map(|(worker_id, version, badges, silent_seconds, tasks_held)| WorkerState {
            worker_id,
            version,
            badges,
            silent_seconds,
            tasks_held,
        })
        .collect())
}
