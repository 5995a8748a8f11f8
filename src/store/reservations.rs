//! Edits that come over REST and not from the queue, and the regions that tasks hold.
use super::{interval::interval, leases::Held, llm_batches, places::Place};
use crate::error::IntoFailure;
use sqlx::PgConnection;
use std::time::Duration;
use svc_actors::{WriteMode, path_key};
use svc_client::{Code, Failure};
use svc_ids::TaskId;

/// The holder of an overlapping region.
#[derive(Debug, sqlx_macros::FromRow)]
pub struct Holder {
    pub task_id: TaskId,
    pub task_type: String,
    pub worker: String,
}

/// Why a region cannot be edited.
#[derive(Debug, thiserror::Error)]
pub enum EditError {
    #[error("task {} of worker {} holds a part of the region", .0.task_id, .0.worker)]
    Held(Holder),
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

impl IntoFailure for EditError {
    fn into_failure(self) -> Failure {
        match self {
            EditError::Held(holder) => Failure::new(Code::Conflict, "this part of the tree is being ingested")
                .with("retry_after", 5)
                .with("task_id", holder.task_id.0)
                .with("task_type", holder.task_type)
                .with("worker", holder.worker)
                .with(
                    "remedy",
                    "try again when the task is done; `POST /ingest/file/{id}/cancel` ends the ingestion of a whole file at once",
                ),
            EditError::Database(error) => error.into_failure(),
        }
    }
}

/// Whether the row `t` is a task that works at and under one node alone; the arguments are the placeholders of the node's path and of its id.
macro_rules! is_within {
    ($path:literal, $id:literal) => {
        // A task that embeds documents of several folders is not.
        concat!(
            "starts_with(t.node_path, ",
            $path,
            ") AND NOT EXISTS (SELECT 1 FROM jsonb_array_elements_text(t.params -> 'documents') AS member(id)
                                 JOIN documents d ON d.id = member.id::bigint WHERE d.id <> ",
            $id,
            " AND NOT d.path @> ARRAY[",
            $id,
            "::bigint])"
        )
    };
}

/// Keeps claims away from a node's region until the transaction ends; fails if a task holds an overlapping one.
///
/// It locks the rows of tasks that wait there, which claims then skip. With a reservation of its own, every claim of
/// the fleet would wait for this transaction, because whether the reservations conflict is unknown until it ends.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = place.id().0))]
pub async fn hold_for_edit(conn: &mut PgConnection, place: &Place, mode: WriteMode) -> Result<(), EditError> {
    // A task that waits in a batch of a provider, perhaps for a day, keeps nobody from editing. Of what is changed of a node alone, only its text
    // concerns such a task, which leaves when the text is embedded anew.
    if mode != WriteMode::Itself {
        llm_batches::leave(conn, place, mode).await?;
    }
    if let Some(holder) = holder(conn, place, mode).await? {
        return Err(EditError::Held(holder));
    }
    // This waits for a row that is being claimed, which is then held. Rows are locked by id, in the order in which the
    // end of a task locks its dependents.
    sqlx::query(
        "WITH around(id, above) AS (
             SELECT unnest($1::bigint[]), true UNION ALL SELECT $2, false
             UNION ALL SELECT d.id, false FROM documents d WHERE $3 AND d.path @> ARRAY[$2::bigint])
         SELECT count(*) FROM (
             SELECT t.id FROM task_queue t JOIN around ON around.id = t.scope_document_id
              WHERE NOT t.final AND t.claim_token IS NULL AND NOT (around.above AND t.write_mode = 'self')
              ORDER BY t.id FOR UPDATE OF t) locked",
    )
    .bind(place.path())
    .bind(place.id())
    .bind(mode != WriteMode::Itself)
    .execute(&mut *conn)
    .await?;
    holder(conn, place, mode).await?.map_or(Ok(()), |holder| Err(EditError::Held(holder)))
}

async fn holder(conn: &mut PgConnection, place: &Place, mode: WriteMode) -> sqlx::Result<Option<Holder>> {
    sqlx::query_as(
        "SELECT r.task_id, t.task_type, r.worker FROM task_reservation r JOIN task_queue t ON t.id = r.task_id
          WHERE r.prange && region_paths($1, $3, NULL, NULL) AND r.drange && region_depths($2, $3, NULL) AND NOT ($3 = 'self' AND t.batch_id IS NOT NULL) LIMIT 1",
    )
    .bind(path_key(&place.children_path()))
    .bind(i32::try_from(place.path().len()).unwrap_or(i32::MAX))
    .bind(mode.as_str())
    .fetch_optional(conn)
    .await
}

/// Whether a worker holds a part of what is at and under a node, or of what encloses it. The line goes from the root down to the node.
pub async fn is_worked_on(conn: &mut PgConnection, line: &[i64]) -> sqlx::Result<bool> {
    sqlx::query_scalar(
        "SELECT EXISTS (SELECT 1 FROM task_reservation r JOIN task_queue t ON t.id = r.task_id
                         WHERE r.prange && region_paths($1, 'subtree', NULL, NULL) AND r.drange && region_depths($2, 'subtree', NULL) AND t.batch_id IS NULL)",
    )
    .bind(path_key(line))
    .bind(i32::try_from(line.len().saturating_sub(1)).unwrap_or(i32::MAX))
    .fetch_one(conn)
    .await
}

/// Lets the tasks that wait at and under a node, and those of these nodes above it that work there, wait this long, so that an edit goes first.
/// Tasks that wait for others of their node are left alone, because a retry does not look at what they wait for; so are rows that somebody
/// has locked.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = place.id().0))]
pub async fn put_off_waiting(
    conn: &mut PgConnection,
    place: &Place,
    above: &[i64],
    delay: Duration,
) -> sqlx::Result<()> {
    sqlx::query(
        "WITH around(id, above) AS (
             SELECT unnest($1::bigint[]), true UNION ALL SELECT $2, false
             UNION ALL SELECT d.id, false FROM documents d WHERE d.path @> ARRAY[$2::bigint]),
         waiting AS MATERIALIZED (
             SELECT t.id FROM task_queue t JOIN around ON around.id = t.scope_document_id
              WHERE NOT t.final AND t.claim_token IS NULL AND t.status IN ('pending', 'failed') AND t.unmet_deps = 0
                AND NOT (around.above AND t.write_mode = 'self')
                AND (t.retry_after IS NULL OR t.retry_after < clock_timestamp() + $3::interval / 2)
              ORDER BY t.id FOR UPDATE OF t SKIP LOCKED)
         UPDATE task_queue t SET status = 'failed', error_type = coalesce(t.error_type, 'retryable'), ready = false, parked_on = NULL,
                retry_after = clock_timestamp() + $3::interval, put_off_code = 'edited', put_off_message = 'an edit of this part of the tree goes first'
           FROM waiting WHERE t.id = waiting.id",
    )
    .bind(above)
    .bind(place.id())
    .bind(interval(delay))
    .execute(conn)
    .await
    .map(|_| ())
}

/// Lets the tasks at and under a node go on that stood back for an edit of the caller, which is over; rows that somebody has locked are left alone.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = place.id().0))]
pub async fn let_go_on(conn: &mut PgConnection, place: &Place) -> sqlx::Result<()> {
    sqlx::query(
        "WITH around(id) AS (SELECT $1::bigint UNION ALL SELECT d.id FROM documents d WHERE d.path @> ARRAY[$1::bigint]),
         standing_back AS MATERIALIZED (
             SELECT t.id FROM task_queue t JOIN around ON around.id = t.scope_document_id
              WHERE NOT t.final AND t.claim_token IS NULL AND t.put_off_code = 'edited' AND t.retry_after > clock_timestamp()
              ORDER BY t.id FOR UPDATE OF t SKIP LOCKED)
         UPDATE task_queue t SET retry_after = clock_timestamp() FROM standing_back WHERE t.id = standing_back.id",
    )
    .bind(place.id())
    .execute(conn)
    .await
    .map(|_| ())
}

/// Requests the end of the tasks that workers hold at and under a node, which is about to be deleted, if all of them write nothing but what is there:
/// while one goes on, the others would be ended for a delete that may be refused. Returns how many had no such request before.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = place.id().0))]
pub async fn cancel_held_within(conn: &mut PgConnection, place: &Place) -> sqlx::Result<i64> {
    sqlx::query(concat!(
        "WITH around AS MATERIALIZED (
             SELECT t.id, ",
        is_within!("$1", "$3"),
        " AS is_within
               FROM task_queue t
              WHERE t.batch_id IS NULL AND t.id IN (
                        SELECT r.task_id FROM task_reservation r
                         WHERE r.prange && region_paths($1, 'subtree', NULL, NULL) AND r.drange && region_depths($2, 'subtree', NULL))),
         held AS MATERIALIZED (
             SELECT t.id FROM task_queue t JOIN around ON around.id = t.id
              WHERE t.status IN ('claimed', 'running') AND t.cancel_requested_at IS NULL AND NOT EXISTS (SELECT 1 FROM around WHERE NOT is_within)
              ORDER BY t.id FOR UPDATE OF t)
         UPDATE task_queue t SET cancel_requested_at = clock_timestamp()
           FROM held WHERE t.id = held.id AND t.status IN ('claimed', 'running') AND t.cancel_requested_at IS NULL"
    ))
    .bind(path_key(&place.children_path()))
    .bind(i32::try_from(place.path().len()).unwrap_or(i32::MAX))
    .bind(place.id())
    .execute(conn)
    .await
    .map(|done| i64::try_from(done.rows_affected()).unwrap_or(i64::MAX))
}

/// The tasks that work at and under a node alone and that workers still hold, though their end was requested this long ago. The worker of such a
/// task may have died; [`super::leases::end`] ends the task.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = place.id().0))]
pub async fn not_let_go(conn: &mut PgConnection, place: &Place, patience: Duration) -> sqlx::Result<Vec<Held>> {
    sqlx::query_as(concat!(
        "SELECT t.id, t.claim_token, t.heartbeat_at, t.scope_document_id, t.task_type, t.params, true AS cancelled FROM task_queue t
          WHERE t.batch_id IS NULL AND t.status IN ('claimed', 'running') AND t.cancel_requested_at <= clock_timestamp() - $4::interval
            AND t.id IN (
                SELECT r.task_id FROM task_reservation r
                 WHERE r.prange && region_paths($1, 'subtree', NULL, NULL) AND r.drange && region_depths($2, 'subtree', NULL))
            AND ",
        is_within!("$1", "$3"),
        " ORDER BY t.id LIMIT 1000"
    ))
    .bind(path_key(&place.children_path()))
    .bind(i32::try_from(place.path().len()).unwrap_or(i32::MAX))
    .bind(place.id())
    .bind(interval(patience))
    .fetch_all(conn)
    .await
}
