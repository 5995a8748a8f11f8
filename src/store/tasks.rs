//! Tasks: enqueue, claim, start, finish, fail.
mod claims;

use super::{
    advisory::AdvisoryLock,
    interval::interval,
    text::{storable, storable_json},
    transaction::Transaction,
    word::Word,
};
use chrono::{DateTime, Utc};
pub use claims::{Claimer, claim, claim_beside, start};
pub(super) use claims::{path, read_claimed};
use serde_json::{Map, Value};
use sqlx::{PgConnection, Row, postgres::PgRow, types::Json};
use std::time::Duration;
use svc_actors::{Claimed, ErrorClass, Grant, Lane, LeafRange, TaskFailure, WriteMode, path_key};
use svc_client::wire::{AttemptOutcome, TaskStatus};
use svc_ids::{DocumentId, RootId, TaskId};

/// A task to be queued.
pub struct NewTask<'a> {
    pub task_type: &'a str,
    pub lane: Lane,
    pub document_id: DocumentId,
    /// The ids of the document's ancestors, root first.
    pub path: &'a [i64],
    pub root_id: RootId,
    pub write_mode: WriteMode,
    /// Where the task writes some leaves under the document and nothing else: only they are reserved.
    pub leaves: Option<&'a LeafRange>,
    /// Tasks of the same node that must be completed first.
    pub dependencies: &'a [TaskId],
    pub params: &'a Value,
    pub badge: Option<&'a str>,
    /// The priority of the creation, -100 to 100. If the root is an uploaded file, that file's priority is used
    /// instead.
    pub priority: i32,
    /// The trace of what queues it; `None` for that of the file's upload.
    pub traceparent: Option<String>,
}

/// Identifies what a task was asked to do.
pub fn fingerprint(params: &Value) -> String {
    use sha2::{Digest, Sha256};
    hex::encode(&Sha256::digest(params.to_string())[..8])
}

/// Queues a task and returns its id. Only the function `task_priority` computes its priority, from the upload's and the
/// stage. The lock on the file's row makes a change of the file's priority wait for tasks that are being queued with
/// the old one.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = task.document_id.0, root.id = task.root_id.0))]
pub async fn enqueue(conn: &mut PgConnection, task: &NewTask<'_>) -> sqlx::Result<TaskId> {
    let depth = i32::try_from(task.path.len()).unwrap_or(i32::MAX);
    sqlx::query_scalar(
        "INSERT INTO task_queue (task_type, lane, scope_document_id, node_path, node_depth, root_id, write_mode, dependencies,
                                 params, param_fingerprint, service_badge, first_leaf, last_leaf, priority, unmet_deps, ready, traceparent)
         SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $14, $15,
                task_priority(coalesce(file.priority, $12), $13), unmet, unmet = 0, coalesce($16, file.traceparent)
           FROM (SELECT count(*)::int AS unmet FROM task_queue WHERE id = ANY($8) AND status <> 'completed') AS deps
           LEFT JOIN LATERAL (SELECT n.priority, n.traceparent FROM ingest_node n WHERE n.document_id = $6 FOR KEY SHARE) AS file ON true
         RETURNING id",
    )
    .bind(task.task_type)
    .bind(task.lane.as_str())
    .bind(task.document_id)
    .bind(path_key(&[task.path, &[task.document_id.0]].concat()))
    .bind(depth)
    .bind(task.root_id)
    .bind(task.write_mode.as_str())
    .bind(task.dependencies)
    .bind(Json(task.params))
    .bind(fingerprint(task.params))
    .bind(task.badge)
    .bind(task.priority)
    .bind(svc_actors::stage::stage(task.task_type))
    .bind(task.leaves.map(|leaves| path_key(&leaves.first)))
    .bind(task.leaves.map(|leaves| path_key(&leaves.last)))
    .bind(task.traceparent.as_deref())
    .fetch_one(conn)
    .await
}

/// Queues many tasks that depend on no other and reserve no single leaves, each as [`enqueue`] does; returns their ids in the same order.
pub async fn enqueue_all(conn: &mut PgConnection, tasks: &[NewTask<'_>]) -> sqlx::Result<Vec<TaskId>> {
    sqlx::query_scalar(
        "INSERT INTO task_queue (task_type, lane, scope_document_id, node_path, node_depth, root_id, write_mode, params, param_fingerprint, service_badge,
                                 priority, traceparent)
         SELECT n.task_type, n.lane, n.document_id, n.node_path, n.depth, n.root_id, n.write_mode, n.params, n.fingerprint, n.badge,
                task_priority(coalesce(file.priority, n.priority), n.stage), coalesce(n.traceparent, file.traceparent)
           FROM unnest($1::text[], $2::text[], $3::bigint[], $4::text[], $5::integer[], $6::bigint[], $7::text[], $8::jsonb[], $9::text[], $10::text[],
                       $11::integer[], $12::integer[], $13::text[]) WITH ORDINALITY
                AS n(task_type, lane, document_id, node_path, depth, root_id, write_mode, params, fingerprint, badge, priority, stage, traceparent, at)
           LEFT JOIN LATERAL (SELECT f.priority, f.traceparent FROM ingest_node f WHERE f.document_id = n.root_id FOR KEY SHARE) AS file ON true
          ORDER BY n.at
         RETURNING id",
    )
    .bind(tasks.iter().map(|task| task.task_type).collect::<Vec<_>>())
    .bind(tasks.iter().map(|task| task.lane.as_str()).collect::<Vec<_>>())
    .bind(tasks.iter().map(|task| task.document_id).collect::<Vec<_>>())
    .bind(tasks.iter().map(|task| path_key(&[task.path, &[task.document_id.0]].concat())).collect::<Vec<_>>())
    .bind(tasks.iter().map(|task| i32::try_from(task.path.len()).unwrap_or(i32::MAX)).collect::<Vec<_>>())
    .bind(tasks.iter().map(|task| task.root_id).collect::<Vec<_>>())
    .bind(tasks.iter().map(|task| task.write_mode.as_str()).collect::<Vec<_>>())
    .bind(tasks.iter().map(|task| Json(task.params)).collect::<Vec<_>>())
    .bind(tasks.iter().map(|task| fingerprint(task.params)).collect::<Vec<_>>())
    .bind(tasks.iter().map(|task| task.badge).collect::<Vec<_>>())
    .bind(tasks.iter().map(|task| task.priority).collect::<Vec<_>>())
    .bind(tasks.iter().map(|task| svc_actors::stage::stage(task.task_type)).collect::<Vec<_>>())
    .bind(tasks.iter().map(|task| task.traceparent.as_deref()).collect::<Vec<_>>())
    .fetch_all(conn)
    .await
}

/// How a task ended, for the node's attempt log.
pub struct AttemptRow<'a> {
    pub grant: &'a Grant,
    pub worker: &'a str,
    pub started_at: DateTime<Utc>,
    pub outcome: AttemptOutcome,
    pub detail: &'a Map<String, Value>,
}

/// The fenced end of an apply, as the last statement of its transaction. False means that the token is stale or a
/// cancel was requested, and that the caller must roll back everything.
#[tracing::instrument(level = "debug", skip_all, fields(task.id = attempt.grant.task_id.0, document.id = attempt.grant.document_id.0, root.id = attempt.grant.root_id.0))]
pub async fn finish(conn: &mut PgConnection, attempt: &AttemptRow<'_>) -> sqlx::Result<bool> {
    let grant = attempt.grant;
    sqlx::query_scalar("SELECT finish_task($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)")
        .bind(grant.task_id)
        .bind(grant.token)
        .bind(grant.document_id)
        .bind(&grant.task_type)
        .bind(grant.attempt)
        .bind(attempt.outcome.as_str())
        .bind(attempt.worker)
        .bind(attempt.started_at)
        .bind(fingerprint(&grant.params))
        .bind(storable_json(&Value::Object(attempt.detail.clone())).as_ref())
        .fetch_one(conn)
        .await
}

/// Does for many tasks what [`finish`] does for one, also for those that wait in a batch of a provider. Returns how many have ended; if that is not
/// all, the caller must roll back everything. A task that the caller ends after them is `last`: its row is locked with theirs, by id.
#[tracing::instrument(level = "debug", skip_all, fields(task.id = last.map(|grant| grant.task_id.0), document.id = last.map(|grant| grant.document_id.0), root.id = last.map(|grant| grant.root_id.0)))]
pub async fn finish_all(
    conn: &mut PgConnection,
    attempts: &[AttemptRow<'_>],
    last: Option<&Grant>,
) -> sqlx::Result<i64> {
    let rows: Vec<TaskId> =
        attempts.iter().map(|attempt| attempt.grant).chain(last).map(|grant| grant.task_id).collect();
    let of = |field: fn(&Grant) -> i64| attempts.iter().map(|attempt| field(attempt.grant)).collect::<Vec<_>>();
    let detail = |attempt: &AttemptRow<'_>| storable_json(&Value::Object(attempt.detail.clone())).into_owned();
    sqlx::query_scalar("SELECT finish_tasks($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)")
        .bind(of(|grant| grant.task_id.0))
        .bind(attempts.iter().map(|attempt| attempt.grant.token).collect::<Vec<_>>())
        .bind(of(|grant| grant.document_id.0))
        .bind(attempts.iter().map(|attempt| attempt.grant.task_type.as_str()).collect::<Vec<_>>())
        .bind(attempts.iter().map(|attempt| attempt.grant.attempt).collect::<Vec<_>>())
        .bind(attempts.iter().map(|attempt| attempt.outcome.as_str()).collect::<Vec<_>>())
        .bind(attempts.iter().map(|attempt| attempt.worker).collect::<Vec<_>>())
        .bind(attempts.iter().map(|attempt| attempt.started_at).collect::<Vec<_>>())
        .bind(attempts.iter().map(|attempt| fingerprint(&attempt.grant.params)).collect::<Vec<_>>())
        .bind(attempts.iter().map(detail).collect::<Vec<_>>())
        .bind(rows)
        .fetch_one(conn)
        .await
}

/// The error at the end of a task if the token is stale or a cancel was requested.
const STALE: &str = "SV001";

/// The end of a task, committed.
#[derive(Debug, PartialEq, Eq)]
pub struct Ended {
    /// Others wait for its region.
    pub is_waited_for: bool,
}

impl Ended {
    fn read(rows: &[PgRow]) -> sqlx::Result<Ended> {
        Ok(Ended { is_waited_for: rows.first().map(|row| row.try_get(0)).transpose()?.unwrap_or(false) })
    }
}

/// Does the same as [`finish`] and commits the transaction, in one message, so that a client which stops at any moment
/// never keeps others waiting for a region that it has almost released. `None` means that the token is stale or a
/// cancel was requested, and that nothing is committed.
#[tracing::instrument(level = "debug", skip_all, fields(task.id = attempt.grant.task_id.0, document.id = attempt.grant.document_id.0, root.id = attempt.grant.root_id.0))]
pub async fn finish_and_commit(tx: Transaction, attempt: &AttemptRow<'_>) -> sqlx::Result<Option<Ended>> {
    match tx.commit_after(&end_of(attempt)).await {
        Ok(rows) => Ended::read(&rows).map(Some),
        Err(error) => stale(error),
    }
}

/// Does the same as [`finish_and_commit`] and claims the next tasks too, for a worker with that much room. This claim
/// sees what the end led to, and is in the order of all claims. The second value is `None` if nothing was asked,
/// because another claim is under way, or if no answer came.
#[tracing::instrument(level = "debug", skip_all, fields(task.id = attempt.grant.task_id.0, document.id = attempt.grant.document_id.0, root.id = attempt.grant.root_id.0))]
pub async fn finish_and_claim(
    tx: Transaction,
    attempt: &AttemptRow<'_>,
    claimer: &Claimer,
    want: &[(Lane, usize)],
) -> sqlx::Result<Option<(Ended, Option<Claimed>)>> {
    let list = |texts: &mut dyn Iterator<Item = String>| format!("ARRAY[{}]", texts.collect::<Vec<_>>().join(","));
    let badges = claimer.badges.as_ref();
    let badges = badges.map_or("NULL".to_owned(), |badges| list(&mut badges.iter().map(|badge| literal(badge))));
    let lanes = list(&mut want.iter().map(|(lane, _)| literal(lane.as_str())));
    let wants = list(&mut want.iter().map(|(_, count)| i32::try_from(*count).unwrap_or(i32::MAX).to_string()));
    let lock = AdvisoryLock::Claim.key();
    let claim = format!(
        "SELECT try_claim_lock({lock});
         SELECT id, task_type, scope_document_id, root_id, write_mode, params, lane, node_path, first_leaf, last_leaf, retry_count, lapses, lease_losses, claim_token, priority, created_at, traceparent
           FROM claim_at_end({lock}, {}, {badges}::text[], {}, {lanes}::text[], {wants}::integer[], interval '{} ms')",
        literal(&claimer.worker_id),
        claimer.strict,
        claimer.lease.as_millis(),
    );
    match tx.commit_after_and(&end_of(attempt), &claim).await {
        Ok((rows, claimed)) => {
            let ended = Ended::read(&rows)?;
            let Some([locked, claimed, ..]) = claimed.as_deref() else { return Ok(Some((ended, None))) };
            let asked = locked.first().is_some_and(|row| row.try_get(0).unwrap_or(false));
            let is_answer = asked || !claimed.is_empty();
            let claimed = read_claimed(claimed)?;
            Ok(Some((ended, is_answer.then_some(claimed))))
        }
        Err(error) => stale(error),
    }
}

fn stale<T>(error: sqlx::Error) -> sqlx::Result<Option<T>> {
    match error {
        sqlx::Error::Database(error) if error.code().as_deref() == Some(STALE) => Ok(None),
        error => Err(error),
    }
}

/// The last statement of a task. It has no parameters, because only such statements can share a message.
fn end_of(attempt: &AttemptRow<'_>) -> String {
    let grant = attempt.grant;
    let detail = Value::Object(attempt.detail.clone());
    format!(
        "SELECT end_task({}, '{}', {}, {}, {}, {}, {}, '{}', {}, {})",
        grant.task_id,
        grant.token,
        grant.document_id,
        literal(&grant.task_type),
        grant.attempt,
        literal(attempt.outcome.as_str()),
        literal(attempt.worker),
        attempt.started_at.to_rfc3339(),
        literal(&fingerprint(&grant.params)),
        literal(&storable_json(&detail).to_string()),
    )
}

/// A text as a literal that reads as that text whatever it holds, by the rules of libpq's PQescapeLiteral. It cannot
/// end a message early either, because NUL is left out.
fn literal(text: &str) -> String {
    format!("E'{}'", storable(text).replace('\\', r"\\").replace('\'', "''"))
}

/// Whether a cancel was requested of a task that this token still holds.
#[tracing::instrument(level = "debug", skip_all, fields(task.id = grant.task_id.0, document.id = grant.document_id.0, root.id = grant.root_id.0))]
pub async fn is_cancelled(conn: &mut PgConnection, grant: &Grant) -> sqlx::Result<bool> {
    sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM task_queue WHERE id = $1 AND claim_token = $2 AND cancel_requested_at IS NOT NULL)")
        .bind(grant.task_id)
        .bind(grant.token)
        .fetch_one(conn)
        .await
}

/// Frees a task's region; the next claim wakes what was parked on it.
#[tracing::instrument(level = "debug", skip_all, fields(task.id = task_id.0))]
pub(super) async fn release(conn: &mut PgConnection, task_id: TaskId) -> sqlx::Result<()> {
    sqlx::query("DELETE FROM task_reservation WHERE task_id = $1").bind(task_id).execute(conn).await.map(|_| ())
}

/// Whether this failure of a task that its token still holds is its last one.
#[tracing::instrument(level = "debug", skip_all, fields(task.id = grant.task_id.0, document.id = grant.document_id.0, root.id = grant.root_id.0))]
pub async fn is_last(conn: &mut PgConnection, grant: &Grant, failure: &TaskFailure) -> sqlx::Result<bool> {
    sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM task_queue WHERE id = $1 AND claim_token = $2 AND NOT ($3 AND retry_count < max_retries))")
        .bind(grant.task_id)
        .bind(grant.token)
        .bind(matches!(failure.class, ErrorClass::Retryable | ErrorClass::Timeout))
        .fetch_one(conn)
        .await
}

/// What a failure led to.
#[derive(Debug, PartialEq, Eq)]
pub enum Failed {
    /// The token is stale, so nothing was written.
    NotOurs,
    /// The task will be tried again later.
    Retry,
    /// The task will not be tried again.
    Final,
}

/// Writes a failure, with the token check; a task whose end was requested gets no retry, and nothing is written. `delay` is how long a retry would wait. Before the last failure the caller
/// locks the rows of the task's nodes, see [`is_last`].
#[tracing::instrument(level = "debug", skip_all, fields(task.id = grant.task_id.0, document.id = grant.document_id.0, root.id = grant.root_id.0))]
pub async fn fail(
    conn: &mut PgConnection,
    grant: &Grant,
    failure: &TaskFailure,
    worker: &str,
    delay: Duration,
) -> sqlx::Result<Failed> {
    let retryable = matches!(failure.class, ErrorClass::Retryable | ErrorClass::Timeout);
    let is_final: Option<bool> = sqlx::query_scalar(
        "UPDATE task_queue SET status = 'failed', error_type = $3, put_off_code = NULL, put_off_message = NULL, claim_token = NULL, heartbeat_at = NULL, ready = false,
                final = NOT ($4 AND retry_count < max_retries),
                retry_count = retry_count + CASE WHEN $4 AND retry_count < max_retries THEN 1 ELSE 0 END,
                retry_after = CASE WHEN $4 AND retry_count < max_retries THEN clock_timestamp() + $5 END
          WHERE id = $1 AND claim_token = $2 AND status IN ('claimed', 'running')
            AND NOT ($4 AND retry_count < max_retries AND cancel_requested_at IS NOT NULL) RETURNING final",
    )
    .bind(grant.task_id)
    .bind(grant.token)
    .bind(failure.class.as_str())
    .bind(retryable)
    .bind(interval(delay))
    .fetch_optional(&mut *conn)
    .await?;
    let Some(is_final) = is_final else { return Ok(Failed::NotOurs) };
    sqlx::query(
        "INSERT INTO task_attempts (document_id, task_id, task_type, attempt, outcome, error_type, code, message, worker, started_at, param_fingerprint, detail, is_last)
         SELECT $1, $2, $3, $4, 'failed', $5, $6, $7, $8, coalesce((SELECT since FROM task_reservation WHERE task_id = $2), clock_timestamp()), $9, $10, $11",
    )
    .bind(grant.document_id)
    .bind(grant.task_id)
    .bind(&grant.task_type)
    .bind(grant.attempt)
    .bind(failure.class.as_str())
    .bind(&failure.code)
    .bind(storable(&failure.message).as_ref())
    .bind(worker)
    .bind(fingerprint(&grant.params))
    .bind(storable_json(&Value::Object(failure.detail.clone())).as_ref())
    .bind(is_final)
    .execute(&mut *conn)
    .await?;
    release(conn, grant.task_id).await?;
    if is_final {
        for (name, value) in &failure.evidence {
            super::evidence::record_as(conn, grant.document_id, name, value).await?;
        }
        // A task that only lacks a part which is not configured is no event: its node's evidence says so, and there may
        // be thousands.
        if failure.class != ErrorClass::Dependency {
            super::events::task_failed(conn, grant.task_id, grant.document_id).await?;
        }
        fail_dependents(conn, grant.task_id, grant.document_id).await?;
    }
    Ok(if is_final { Failed::Final } else { Failed::Retry })
}

/// Fails the tasks of the node that waited for one that will not run again.
#[tracing::instrument(level = "debug", skip_all, fields(task.id = task_id.0, document.id = document_id.0))]
pub async fn fail_dependents(conn: &mut PgConnection, task_id: TaskId, document_id: DocumentId) -> sqlx::Result<()> {
    sqlx::query(
        "WITH RECURSIVE lost(id) AS (
             SELECT $1::bigint UNION SELECT t.id FROM task_queue t JOIN lost ON lost.id = ANY(t.dependencies)
              WHERE t.scope_document_id = $2 AND t.status = 'pending'),
         failed AS (
             UPDATE task_queue t SET status = 'failed', error_type = 'dependency', final = true, ready = false, parked_on = NULL
               FROM lost WHERE t.id = lost.id AND t.id <> $1 AND t.status = 'pending' RETURNING t.id, t.task_type, t.param_fingerprint)
         INSERT INTO task_attempts (document_id, task_id, task_type, attempt, outcome, error_type, code, message, worker, started_at, param_fingerprint, is_last)
         SELECT $2, id, task_type, 0, 'failed', 'dependency', 'dependency_failed', 'task ' || $1 || ' of this node will not complete', '', clock_timestamp(), param_fingerprint, true
           FROM failed",
    )
    .bind(task_id)
    .bind(document_id)
    .execute(conn)
    .await
    .map(|_| ())
}

/// How a task ended: `None` while it still owes work, else whether it completed. A task that is gone counts as
/// completed.
#[tracing::instrument(level = "debug", skip_all, fields(task.id = task_id.0))]
pub async fn ended(conn: &mut PgConnection, task_id: TaskId) -> sqlx::Result<Option<bool>> {
    let row: Option<(bool, Word<TaskStatus>)> =
        sqlx::query_as("SELECT final, status FROM task_queue WHERE id = $1").bind(task_id).fetch_optional(conn).await?;
    Ok(match row {
        Some((false, _)) => None,
        Some((true, Word(status))) => Some(status == TaskStatus::Completed),
        None => Some(true),
    })
}
