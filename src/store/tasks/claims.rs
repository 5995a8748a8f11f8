//! How tasks are claimed and started.
use crate::store::{advisory::AdvisoryLock, away::LOCK_NOT_AVAILABLE, interval::interval, word::Word};
use chrono::{DateTime, Utc};
use serde_json::Value;
use sqlx::{FromRow, PgConnection, PgExecutor, Row, postgres::PgRow, types::Json};
use std::{cmp::Reverse, num::ParseIntError, time::Duration};
use svc_actors::{Claimed, Grant, Lane, LeafRange, Region, WriteMode};
use svc_ids::{DocumentId, RootId, TaskId};
use uuid::Uuid;

/// How long a claim that met such a lock waits before it is answered.
const LOCK_PAUSE: Duration = Duration::from_millis(100);

/// Who claims, and what it may take.
#[derive(Clone, Debug)]
pub struct Claimer {
    pub worker_id: String,
    /// `None`: every task.
    pub badges: Option<Vec<String>>,
    /// Whether to leave tasks without a badge to others.
    pub strict: bool,
    /// How long a claim lasts without a heartbeat.
    pub lease: Duration,
}

#[derive(sqlx_macros::FromRow)]
struct ClaimedRow {
    id: TaskId,
    task_type: String,
    scope_document_id: DocumentId,
    root_id: RootId,
    write_mode: Word<WriteMode>,
    params: Json<Value>,
    lane: Word<Lane>,
    node_path: String,
    first_leaf: Option<String>,
    last_leaf: Option<String>,
    retry_count: i32,
    lapses: i32,
    lease_losses: i32,
    claim_token: Uuid,
    priority: i32,
    created_at: DateTime<Utc>,
    traceparent: Option<String>,
}

/// Claims up to the wanted number of tasks of each lane, in one statement under the claim lock.
pub async fn claim(
    connection: impl PgExecutor<'_>,
    claimer: &Claimer,
    want: &[(Lane, usize)],
) -> sqlx::Result<Claimed> {
    let claimed: sqlx::Result<Vec<PgRow>> = sqlx::query(
        "SELECT id, task_type, scope_document_id, root_id, write_mode, params, lane, node_path, first_leaf, last_leaf, retry_count, lapses, lease_losses, claim_token, priority, created_at, traceparent
           FROM claim_batch($1, $2, $3, $4, $5, $6, 8, interval '60 seconds', $7)",
    )
    .bind(AdvisoryLock::Claim.key())
    .bind(&claimer.worker_id)
    .bind(&claimer.badges)
    .bind(claimer.strict)
    .bind(want.iter().map(|(lane, _)| lane.as_str()).collect::<Vec<_>>())
    .bind(want.iter().map(|(_, count)| i32::try_from(*count).unwrap_or(i32::MAX)).collect::<Vec<_>>())
    .bind(interval(claimer.lease))
    .fetch_all(connection)
    .await;
    let claimed = match claimed {
        // Somebody holds a row that the claim reached. Nobody may wait for that while holding the claim lock, so the
        // next claim looks again, after a pause in which others may claim.
        Err(sqlx::Error::Database(error)) if error.code().as_deref() == Some(LOCK_NOT_AVAILABLE) => {
            tokio::time::sleep(LOCK_PAUSE).await;
            return Ok(Claimed { grants: Vec::new(), more: true });
        }
        claimed => claimed?,
    };
    read_claimed(&claimed)
}

/// Claims the tasks that share the pass of a held one which embeds a short document: at most so many, with at most so many bytes of texts among all
/// of them. They run at once, but no heartbeat renews their leases.
#[tracing::instrument(level = "debug", skip_all, fields(task.id = grant.task_id.0, document.id = grant.document_id.0, root.id = grant.root_id.0))]
pub async fn claim_beside(
    conn: &mut PgConnection,
    claimer: &Claimer,
    grant: &Grant,
    (most, most_bytes): (usize, usize),
) -> sqlx::Result<Vec<Grant>> {
    let claimed: Vec<PgRow> = sqlx::query(
        "SELECT id, task_type, scope_document_id, root_id, write_mode, params, lane, node_path, first_leaf, last_leaf, retry_count, lapses, lease_losses, claim_token, priority, created_at, traceparent
           FROM claim_beside($1, $2, $3, $4, $5, $6, $7)",
    )
    .bind(AdvisoryLock::Claim.key())
    .bind(grant.task_id)
    .bind(grant.token)
    .bind(&claimer.worker_id)
    .bind(i32::try_from(most).unwrap_or(i32::MAX))
    .bind(i32::try_from(most_bytes).unwrap_or(i32::MAX))
    .bind(interval(claimer.lease))
    .fetch_all(conn)
    .await?;
    read_claimed(&claimed).map(|claimed| claimed.grants)
}

/// Reads the rows of a claim, in the order of the claim.
pub(in crate::store) fn read_claimed(claimed: &[PgRow]) -> sqlx::Result<Claimed> {
    let (mut rows, mut more) = (Vec::with_capacity(claimed.len()), false);
    for row in claimed {
        match row.try_get::<Option<TaskId>, _>("id")? {
            Some(_) => rows.push(ClaimedRow::from_row(row)?),
            // The row of NULLs says that there may be more.
            None => more = true,
        }
    }
    rows.sort_unstable_by_key(|row| (Reverse(row.priority), row.created_at, row.id));
    Ok(Claimed { grants: rows.into_iter().map(grant).collect::<sqlx::Result<_>>()?, more })
}

fn grant(row: ClaimedRow) -> sqlx::Result<Grant> {
    let leaves = match row.first_leaf.zip(row.last_leaf) {
        Some((first, last)) => Some(LeafRange { first: path(&first)?, last: path(&last)? }),
        None => None,
    };
    Ok(Grant {
        task_id: row.id,
        token: row.claim_token,
        deadline: None,
        lane: row.lane.0,
        document_id: row.scope_document_id,
        root_id: row.root_id,
        region: Region { path: path(&row.node_path)?, mode: row.write_mode.0, leaves },
        attempt: row.retry_count + row.lapses + 1,
        runs_alone: row.lease_losses > 0,
        task_type: row.task_type,
        params: row.params.0,
        traceparent: row.traceparent,
    })
}

/// The ids in a [`path_key`].
pub(in crate::store) fn path(key: &str) -> sqlx::Result<Vec<i64>> {
    let ids = key.split_terminator('/').map(str::parse).collect::<Result<_, ParseIntError>>();
    ids.map_err(|error| sqlx::Error::Decode(format!("the key {key:?} of a path: {error}").into()))
}

/// Changes `claimed` to `running` for all these tasks; returns the tokens that are still ours, including those of tasks
/// that were running already. Do not call it inside another transaction, because its commit does not wait for the disk.
pub async fn start(
    conn: &mut PgConnection,
    tasks: &[TaskId],
    tokens: &[Uuid],
    lease: Duration,
) -> sqlx::Result<Vec<Uuid>> {
    sqlx::query_scalar("SELECT start_tasks($1, $2, $3)")
        .bind(tasks)
        .bind(tokens)
        .bind(interval(lease))
        .fetch_one(conn)
        .await
}
