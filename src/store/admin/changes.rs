//! What the operator of the service does to tasks: cancel, put back, pause, resume.
use crate::{
    store::{
        advisory::LockOf,
        indexes::postings,
        llm_batches::{SEARCHED, SEARCHED_ANEW},
        places::Place,
        word::Word,
    },
    usetype::Usetype,
};
use serde_json::Value;
use sqlx::{PgConnection, types::Json};
use svc_client::wire::TaskStatus;
use svc_ids::{DocumentId, RootId, TaskId};

/// A task that was failed from outside, or put back.
#[derive(Debug, sqlx_macros::FromRow)]
pub struct Moved {
    pub id: TaskId,
    pub scope_document_id: DocumentId,
    pub task_type: String,
    pub params: Json<Value>,
}

/// The tasks to cancel.
#[derive(Clone, Copy, Debug)]
pub enum Cancel<'a> {
    /// All tasks of a file.
    Root(&'a Place),
    /// The tasks of a file that is in flight. Parts of it may have settled, and those by which these are found go on.
    Ingestion(&'a Place),
    /// The tasks of a file that only add to it. Those by which its texts are found as they are now go on.
    Additions(&'a Place),
    Task(TaskId),
}

impl Cancel<'_> {
    fn root(self) -> Option<RootId> {
        match self {
            Cancel::Root(file) | Cancel::Ingestion(file) | Cancel::Additions(file) => Some(file.id().as_root()),
            Cancel::Task(_) => None,
        }
    }

    fn task(self) -> Option<TaskId> {
        match self {
            Cancel::Root(_) | Cancel::Ingestion(_) | Cancel::Additions(_) => None,
            Cancel::Task(id) => Some(id),
        }
    }

    /// The types of the tasks that go on.
    fn spared(self) -> &'static [&'static str] {
        match self {
            Cancel::Ingestion(_) => &SEARCHED_ANEW,
            Cancel::Additions(_) => &SEARCHED,
            Cancel::Root(_) | Cancel::Task(_) => &[],
        }
    }
}

/// Fails waiting tasks as cancelled, also those that wait in a batch. Tasks that stood back for their intents are woken.
#[tracing::instrument(level = "debug", skip_all, fields(root.id = which.root().map(|id| id.0), task.id = which.task().map(|id| id.0)))]
pub async fn cancel_waiting(conn: &mut PgConnection, which: Cancel<'_>) -> sqlx::Result<Vec<Moved>> {
    let cancelled: Vec<Moved> = sqlx::query_as(
        "WITH cancelled AS (
             UPDATE task_queue t SET status = 'failed', error_type = 'permanent', final = true, ready = false, parked_on = NULL, retry_after = NULL,
                    put_off_code = NULL, put_off_message = NULL, claim_token = NULL, batch_id = NULL, batched_at = NULL
              WHERE t.id IN (SELECT id FROM task_queue WHERE NOT final AND status IN ('pending', 'failed', 'batched')
                                AND (root_id = $1 OR id = $2) AND task_type <> ALL($3) ORDER BY id FOR UPDATE)
             RETURNING t.id, t.scope_document_id, t.task_type, t.params, t.retry_count, t.param_fingerprint),
         intents AS (DELETE FROM task_intent i USING cancelled c WHERE i.task_id = c.id),
         freed AS (DELETE FROM task_reservation r USING cancelled c WHERE r.task_id = c.id),
         asked AS (
             SELECT batch_id, custom_id FROM llm_batch_requests WHERE task_id IN (SELECT id FROM cancelled) AND NOT is_over ORDER BY batch_id, custom_id FOR UPDATE),
         unasked AS (UPDATE llm_batch_requests q SET is_dropped = true, line = NULL FROM asked a WHERE q.batch_id = a.batch_id AND q.custom_id = a.custom_id),
         logged AS (
             INSERT INTO task_attempts (document_id, task_id, task_type, attempt, outcome, error_type, code, message, worker, started_at, param_fingerprint, is_last)
             SELECT scope_document_id, id, task_type, retry_count, 'failed', 'permanent', 'cancelled', 'the task was cancelled', '', clock_timestamp(), param_fingerprint, true
               FROM cancelled)
         SELECT id, scope_document_id, task_type, params FROM cancelled ORDER BY id",
    )
    .bind(which.root())
    .bind(which.task())
    .bind(which.spared())
    .fetch_all(&mut *conn)
    .await?;
    Ok(cancelled)
}

/// Requests the end of held tasks. From here on none of them can complete. Returns how many had no such request before.
#[tracing::instrument(level = "debug", skip_all, fields(root.id = which.root().map(|id| id.0), task.id = which.task().map(|id| id.0)))]
pub async fn cancel_held(conn: &mut PgConnection, which: Cancel<'_>) -> sqlx::Result<i64> {
    sqlx::query(
        "UPDATE task_queue t SET cancel_requested_at = clock_timestamp()
          WHERE t.id IN (SELECT id FROM task_queue WHERE NOT final AND status IN ('claimed', 'running') AND cancel_requested_at IS NULL
                            AND (root_id = $1 OR id = $2) AND task_type <> ALL($3) ORDER BY id FOR UPDATE)
            AND t.status IN ('claimed', 'running')",
    )
    .bind(which.root())
    .bind(which.task())
    .bind(which.spared())
    .execute(conn)
    .await
    .map(|done| i64::try_from(done.rows_affected()).unwrap_or(i64::MAX))
}

/// Whether one of the tasks to cancel owes work and nobody has requested its end.
#[tracing::instrument(level = "debug", skip_all, fields(root.id = which.root().map(|id| id.0), task.id = which.task().map(|id| id.0)))]
pub async fn goes_on(conn: &mut PgConnection, which: Cancel<'_>) -> sqlx::Result<bool> {
    sqlx::query_scalar(
        "SELECT EXISTS (SELECT 1 FROM task_queue WHERE NOT final AND cancel_requested_at IS NULL
                           AND (root_id = $1 OR id = $2) AND task_type <> ALL($3))",
    )
    .bind(which.root())
    .bind(which.task())
    .bind(which.spared())
    .fetch_one(conn)
    .await
}

/// How many tasks of a root are being stopped.
#[tracing::instrument(level = "debug", skip_all, fields(root.id = root_id.0))]
pub async fn stopping(conn: &mut PgConnection, root_id: RootId) -> sqlx::Result<i64> {
    sqlx::query_scalar(
        "SELECT count(*) FROM task_queue WHERE root_id = $1 AND NOT final AND cancel_requested_at IS NOT NULL",
    )
    .bind(root_id)
    .fetch_one(conn)
    .await
}

/// The newest task of a type at a node, with its status.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = document_id.0))]
pub async fn newest(
    conn: &mut PgConnection,
    document_id: DocumentId,
    task_type: &str,
) -> sqlx::Result<Option<(TaskId, TaskStatus)>> {
    let row: Option<(TaskId, Word<TaskStatus>)> = sqlx::query_as(
        "SELECT id, status FROM task_queue WHERE scope_document_id = $1 AND task_type = $2 ORDER BY id DESC LIMIT 1 FOR UPDATE",
    )
    .bind(document_id)
    .bind(task_type)
    .fetch_optional(conn)
    .await?;
    Ok(row.map(|(id, Word(status))| (id, status)))
}

/// Puts back a task that failed for good, those of its node because of which it failed, and those that failed because of any of these; returns
/// `None` if it did not fail.
#[tracing::instrument(level = "debug", skip_all, fields(task.id = task_id.0))]
pub async fn put_back(conn: &mut PgConnection, task_id: TaskId) -> sqlx::Result<Option<Vec<Moved>>> {
    let moved: Vec<Moved> = sqlx::query_as(
        "WITH RECURSIVE again(id, scope, dependencies) AS (
             SELECT id, scope_document_id, dependencies FROM task_queue WHERE id = $1 AND status = 'failed' AND final
             UNION SELECT t.id, t.scope_document_id, t.dependencies FROM task_queue t JOIN again a ON t.scope_document_id = a.scope
              WHERE t.status = 'failed' AND t.final AND (t.id = ANY(a.dependencies) OR (a.id = ANY(t.dependencies) AND t.error_type = 'dependency'))),
         unmet AS (
             SELECT a.id, (SELECT count(*) FROM task_queue d JOIN task_queue t ON t.id = a.id AND d.id = ANY(t.dependencies)
                            WHERE d.status <> 'completed')::int AS count FROM again a)
         UPDATE task_queue t SET status = 'pending', final = false, error_type = NULL, put_off_code = NULL, put_off_message = NULL, retry_count = 0, lease_losses = 0, lapses = 0, retry_after = NULL,
                node_path = l.key, node_depth = l.depth, first_leaf = l.key || substr(t.first_leaf, length(t.node_path) + 1),
                last_leaf = l.key || substr(t.last_leaf, length(t.node_path) + 1), cancel_requested_at = NULL, claimed_by = NULL, park_count = 0, parked_since = NULL, unmet_deps = u.count, ready = (u.count = 0),
                priority = coalesce((SELECT with_upload_priority(t.priority, n.priority) FROM ingest_node n WHERE n.document_id = t.root_id), t.priority)
           FROM unmet u, LATERAL (
                -- Its document may have been moved since the task ended.
                SELECT array_to_string(d.path || d.id, '/') || '/' AS key, cardinality(d.path) AS depth
                  FROM task_queue o JOIN documents d ON d.id = o.scope_document_id WHERE o.id = u.id) l
          -- Somebody else may have put it back while this waited for its row.
          WHERE t.id = u.id AND t.status = 'failed' AND t.final
         RETURNING t.id, t.scope_document_id, t.task_type, t.params",
    )
    .bind(task_id)
    .fetch_all(&mut *conn)
    .await?;
    let ids: Vec<TaskId> = moved.iter().map(|task| task.id).collect();
    follow_moves(conn, &ids).await?;
    sqlx::query("DELETE FROM task_loss WHERE task_id = ANY($1)").bind(&ids).execute(&mut *conn).await?;
    // Questions against which a provider said something are asked again, in a batch again too. A text stays too long.
    sqlx::query(
        "DELETE FROM llm_batch_requests WHERE task_id = ANY($1) AND is_over AND error_code IS NOT NULL AND error_code <> 'too_long'",
    )
    .bind(&ids)
    .execute(conn)
    .await?;
    Ok((!moved.is_empty()).then_some(moved))
}

/// Gives tasks the regions of their nodes' present places: since they failed, the nodes may have moved.
async fn follow_moves(conn: &mut PgConnection, tasks: &[TaskId]) -> sqlx::Result<()> {
    sqlx::query(
        "UPDATE task_queue t SET node_path = at.key, node_depth = at.depth,
                first_leaf = coalesce(at.first_leaf, t.first_leaf), last_leaf = coalesce(at.last_leaf, t.last_leaf)
           FROM (SELECT q.id, array_to_string(d.path || d.id, '/') || '/' AS key, cardinality(d.path) AS depth, leaf.first_leaf, leaf.last_leaf
                   FROM task_queue q JOIN documents d ON d.id = q.scope_document_id
                  CROSS JOIN LATERAL (
                        SELECT min(x.key) AS first_leaf, max(x.key) AS last_leaf
                          FROM (SELECT (array_to_string(l.path || l.id, '/') || '/') COLLATE \"C\" AS key
                                  FROM jsonb_array_elements(q.params -> 'leaves') AS run
                                  JOIN documents l ON l.id BETWEEN (run ->> 0)::bigint AND (run ->> 1)::bigint AND l.path @> ARRAY[d.id]
                                 WHERE q.first_leaf IS NOT NULL AND l.usetype = ANY($2)
                                   AND NOT EXISTS (SELECT 1 FROM ingest_node n WHERE n.document_id = l.id)) x) leaf
                  WHERE q.id = ANY($1)) at
          WHERE t.id = at.id",
    )
    .bind(tasks)
    .bind(Usetype::leaves())
    .execute(conn)
    .await
    .map(|_| ())
}

/// How many nodes were put back in flight, by what they were before.
#[derive(Clone, Copy, Debug)]
pub struct Returned {
    pub settled: i64,
    pub failed: i64,
}

/// Puts nodes, and the containers above them up to their root of ingestion, back in flight, so that they are rolled up
/// again.
#[tracing::instrument(level = "debug", skip_all, fields(root.id = root_id.0))]
pub async fn back_in_flight(conn: &mut PgConnection, ids: &[DocumentId], root_id: RootId) -> sqlx::Result<Returned> {
    let (ids, settled): (Vec<DocumentId>, i64) = sqlx::query_as(
        "WITH nodes AS (
             SELECT d.id, d.settled FROM documents d
              WHERE d.settled <> 'in_flight' AND (d.id = ANY($1) OR (
                    d.id IN (SELECT unnest(x.path) FROM documents x WHERE x.id = ANY($1))
                    AND (d.id = $2 OR d.path @> ARRAY[$2::bigint]))) ORDER BY d.id FOR NO KEY UPDATE),
         moved AS (UPDATE documents d SET settled = 'in_flight' FROM nodes n WHERE d.id = n.id RETURNING d.id, n.settled AS was)
         SELECT coalesce(array_agg(id), '{}'), count(*) FILTER (WHERE was = 'settled') FROM moved",
    )
    .bind(ids)
    .bind(root_id)
    .fetch_one(&mut *conn)
    .await?;
    sqlx::query(
        "UPDATE ingest_node n SET rollup = 'none' FROM documents d
          WHERE d.id = n.document_id AND n.root_id = $1 AND d.settled = 'in_flight' AND n.rollup = 'done'",
    )
    .bind(root_id)
    .execute(&mut *conn)
    .await?;
    postings::bury(conn, None, &ids).await?;
    Ok(Returned { settled, failed: ids.len() as i64 - settled })
}

/// Keeps a task type from being claimed; held tasks go on.
pub async fn pause(conn: &mut PgConnection, task_type: &str) -> sqlx::Result<()> {
    sqlx::query("INSERT INTO paused_task_type (task_type) VALUES ($1) ON CONFLICT DO NOTHING")
        .bind(task_type)
        .execute(conn)
        .await
        .map(|_| ())
}

/// Lets a task type be claimed again. The next claims wake what was set aside meanwhile, a few at a time.
pub async fn resume(conn: &mut PgConnection, task_type: &str) -> sqlx::Result<()> {
    sqlx::query("DELETE FROM paused_task_type WHERE task_type = $1").bind(task_type).execute(conn).await.map(|_| ())
}

/// Gives the unfinished tasks of a file the priority that the file has now; returns how many had another one. Only one
/// such change of a file runs at a time, so that of two changes the later one applies to all tasks. What stood back for one of them is woken and
/// looks again for what comes before it, because otherwise two tasks could stand back for each other.
#[tracing::instrument(level = "debug", skip_all, fields(root.id = file.id().0))]
pub async fn follow_priority(conn: &mut PgConnection, file: &Place) -> sqlx::Result<i64> {
    let root_id = file.id();
    sqlx::query("SELECT pg_advisory_xact_lock($2, hashint8($1))")
        .bind(root_id)
        .bind(LockOf::Priority.key())
        .execute(&mut *conn)
        .await?;
    sqlx::query_scalar(
        "WITH file AS (SELECT priority FROM ingest_node WHERE document_id = $1),
         open AS (
             SELECT id FROM task_queue t, file f WHERE t.root_id = $1 AND NOT t.final AND t.priority <> with_upload_priority(t.priority, f.priority)
              ORDER BY id FOR NO KEY UPDATE OF t),
         changed AS (
             UPDATE task_queue t SET priority = with_upload_priority(t.priority, f.priority) FROM open, file f WHERE t.id = open.id
             RETURNING t.id, t.priority),
         intents AS (DELETE FROM task_intent i USING changed c WHERE i.task_id = c.id)
         SELECT count(*) FROM changed",
    )
    .bind(root_id)
    .fetch_one(conn)
    .await
}
