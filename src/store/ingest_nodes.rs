//! The counters of ingestion and settle events.
mod frontier;

use super::{nodes::braces, places::Place, transaction::Transaction, word::Word};
use crate::otlp;
pub use frontier::*;
use sqlx::{FromRow, PgConnection};
use svc_client::wire::Settled;
use svc_ids::{DocumentId, RootId};

/// Starts counting for containers in flight.
#[tracing::instrument(level = "debug", skip_all, fields(root.id = root_id.0))]
pub async fn insert(conn: &mut PgConnection, root_id: RootId, rows: &[IngestNode]) -> sqlx::Result<()> {
    sqlx::query(
        "INSERT INTO ingest_node (document_id, parent_id, root_id, open_tasks, open_children, tokens, traceparent)
         SELECT id, parent_id, $1, open_tasks, open_children, tokens, CASE WHEN id = $1 THEN $7::text END
           FROM unnest($2::bigint[], $3::bigint[], $4::int[], $5::int[], $6::bigint[]) AS n(id, parent_id, open_tasks, open_children, tokens)",
    )
    .bind(root_id)
    .bind(rows.iter().map(|r| r.document_id).collect::<Vec<_>>())
    .bind(rows.iter().map(|r| r.parent_id).collect::<Vec<_>>())
    .bind(rows.iter().map(|r| r.open_tasks).collect::<Vec<_>>())
    .bind(rows.iter().map(|r| r.open_children).collect::<Vec<_>>())
    .bind(rows.iter().map(|r| r.tokens).collect::<Vec<_>>())
    .bind(otlp::traceparent())
    .execute(conn)
    .await
    .map(|_| ())
}

/// The priority that a file was uploaded with, or was given since; `None` if nothing was ever ingested there.
#[tracing::instrument(level = "debug", skip_all, fields(root.id = root_id.0))]
pub async fn priority(conn: &mut PgConnection, root_id: RootId) -> sqlx::Result<Option<i32>> {
    sqlx::query_scalar("SELECT priority FROM ingest_node WHERE document_id = $1")
        .bind(root_id)
        .fetch_optional(conn)
        .await
}

/// Gives a file another priority, after those who queue tasks with the old one have committed. Everything queued from
/// then on has the new one.
#[tracing::instrument(level = "debug", skip_all, fields(root.id = file.id().0))]
pub async fn set_priority(conn: &mut PgConnection, file: &Place, priority: i32) -> sqlx::Result<()> {
    sqlx::query("SELECT 1 FROM ingest_node WHERE document_id = $1 FOR UPDATE")
        .bind(file.id())
        .execute(&mut *conn)
        .await?;
    sqlx::query("UPDATE ingest_node SET priority = $2 WHERE document_id = $1")
        .bind(file.id())
        .bind(priority)
        .execute(conn)
        .await
        .map(|_| ())
}

/// A container in flight.
#[derive(Clone, Debug)]
pub struct IngestNode {
    pub document_id: DocumentId,
    /// The container whose count falls when this node is done.
    pub parent_id: Option<DocumentId>,
    pub open_tasks: i32,
    pub open_children: i32,
    /// The number of tokens in the text under the container.
    pub tokens: i64,
}

/// The types of tasks that only add to what is there. No container waits for one, so its count of tasks has none of them: such a task may itself wait for
/// something that is away.
pub const UNCOUNTED: [&str; 4] =
    ["embed:titles", super::model_moves::TASK, super::raptor::RULE, super::extraction::TASK];

/// Whether a container waits for tasks of this type.
pub fn is_counted(task_type: &str) -> bool {
    !UNCOUNTED.contains(&task_type)
}

/// Adds to a container's counts: tasks queued, children made, tokens under it.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = document_id.0))]
pub async fn grow(
    conn: &mut PgConnection,
    document_id: DocumentId,
    tasks: i32,
    children: i32,
    tokens: i64,
) -> sqlx::Result<()> {
    sqlx::query("UPDATE ingest_node SET open_tasks = open_tasks + $2, open_children = open_children + $3, tokens = tokens + $4 WHERE document_id = $1")
        .bind(document_id)
        .bind(tasks)
        .bind(children)
        .bind(tokens)
        .execute(conn)
        .await
        .map(|_| ())
}

/// Records that one task that a node waited for is over. If the node has nothing left open, the settler is told to look at it.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = document_id.0))]
pub async fn task_over(conn: &mut PgConnection, document_id: DocumentId) -> sqlx::Result<()> {
    sqlx::query(
        "WITH node AS (
             UPDATE ingest_node SET open_tasks = open_tasks - 1 WHERE document_id = $1 RETURNING root_id, document_id, open_tasks)
         INSERT INTO settle_event (root_id, document_id, done, failed) SELECT root_id, document_id, 0, 0 FROM node WHERE open_tasks = 0",
    )
    .bind(document_id)
    .execute(conn)
    .await
    .map(|_| ())
}

/// Marks a container as waiting for a task of its rollup that was put back. If anything under it is in flight, its rollup is made anew
/// after that, and does not wait for the task.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = document_id.0))]
pub async fn queue_rollup_again(conn: &mut PgConnection, document_id: DocumentId) -> sqlx::Result<()> {
    sqlx::query("UPDATE ingest_node SET rollup = 'queued' WHERE document_id = $1 AND open_children = 0")
        .bind(document_id)
        .execute(conn)
        .await
        .map(|_| ())
}

/// Records how far a container's rollup has come, so that the settler takes the next step.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = document_id.0))]
pub async fn set_rollup(conn: &mut PgConnection, document_id: DocumentId, to: Rollup) -> sqlx::Result<()> {
    sqlx::query("UPDATE ingest_node SET rollup = $2 WHERE document_id = $1")
        .bind(document_id)
        .bind(to.as_str())
        .execute(conn)
        .await
        .map(|_| ())
}

/// Records the same at the end of a task that was a step of the rollup, unless the container was reopened since the task was
/// queued: then the whole rollup is made anew.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = document_id.0))]
pub async fn end_rollup(conn: &mut PgConnection, document_id: DocumentId, to: Rollup) -> sqlx::Result<()> {
    sqlx::query("UPDATE ingest_node SET rollup = $2 WHERE document_id = $1 AND rollup = 'queued'")
        .bind(document_id)
        .bind(to.as_str())
        .execute(conn)
        .await
        .map(|_| ())
}

/// Children of one container that are done.
#[derive(Clone, Copy, Debug)]
pub struct ChildrenDone {
    pub root_id: RootId,
    pub parent_id: DocumentId,
    pub done: i32,
    /// How many of them failed.
    pub failed: i32,
}

/// Tells the settler about children that are done.
pub async fn children_done(conn: &mut PgConnection, by_parent: &[ChildrenDone]) -> sqlx::Result<()> {
    sqlx::query("INSERT INTO settle_event (root_id, document_id, done, failed) SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::int[], $4::int[])")
        .bind(by_parent.iter().map(|children| children.root_id).collect::<Vec<_>>())
        .bind(by_parent.iter().map(|children| children.parent_id).collect::<Vec<_>>())
        .bind(by_parent.iter().map(|children| children.done).collect::<Vec<_>>())
        .bind(by_parent.iter().map(|children| children.failed).collect::<Vec<_>>())
        .execute(conn)
        .await
        .map(|_| ())
}

svc_client::words! {
    /// How far a container's rollup has come.
    pub Rollup {
        None = "none",
        /// Its children were cut into segments, or cannot be; it is not cut again.
        Segmented = "segmented",
        /// A task of the rollup is queued.
        Queued = "queued",
        Done = "done",
    }
}

/// A container with done children or tasks, after its counts were brought up to date.
#[derive(Debug, sqlx_macros::FromRow)]
pub struct Touched {
    pub document_id: DocumentId,
    /// The root of ingestion that it belongs to.
    pub root_id: RootId,
    pub parent_id: Option<DocumentId>,
    pub open_tasks: i32,
    pub open_children: i32,
    pub failed_children: i32,
    pub rollup: Word<Rollup>,
    pub settled: Word<Settled>,
    /// Whether its file was cancelled, and it fails soon if it has not yet.
    pub is_cancelled: bool,
    path: Vec<i64>,
}

impl Touched {
    /// The place of the container, whose rollup was admitted with its file.
    pub fn place(&self) -> Place {
        Place { id: self.document_id, path: self.path.clone() }
    }
}

/// How many events are taken at once.
const MOST_EVENTS: i64 = 10_000;

/// Takes up to 10,000 events of roots and lowers the counts, with one aggregated change per node in the order of ids. Returns the touched nodes. A failed
/// container waits for no child: a cancel has set its count to 0, and the tasks that it stopped end after that.
pub async fn apply_events(conn: &mut PgConnection, roots: &[RootId]) -> sqlx::Result<Vec<Touched>> {
    sqlx::query_as(
        "WITH taken AS (
             DELETE FROM settle_event WHERE root_id = ANY($1) AND id = ANY(ARRAY(
                    SELECT e.id FROM unnest($1::bigint[]) AS r(id)
                     CROSS JOIN LATERAL (SELECT s.id FROM settle_event s WHERE s.root_id = r.id ORDER BY s.id LIMIT $2) e LIMIT $2))
             RETURNING document_id, done, failed),
         e AS MATERIALIZED (
             SELECT document_id AS id, least(sum(done), 2147483647)::integer AS done, least(sum(failed), 2147483647)::integer AS failed
               FROM taken GROUP BY document_id ORDER BY document_id LIMIT $2)
         UPDATE ingest_node n SET open_children = n.open_children - CASE d.settled WHEN 'failed' THEN 0 ELSE e.done END,
                failed_children = n.failed_children + e.failed
           FROM e CROSS JOIN LATERAL (SELECT d.settled, d.path FROM documents d WHERE d.id = e.id OFFSET 0) d
          WHERE n.document_id = e.id
         RETURNING n.document_id, n.root_id, n.parent_id, n.open_tasks, n.open_children, n.failed_children, n.rollup, d.settled, d.path,
                coalesce((SELECT r.cancelled FROM ingest_node r WHERE r.document_id = n.root_id), false) AS is_cancelled",
    )
    .bind(roots)
    .bind(MOST_EVENTS)
    .fetch_all(conn)
    .await
}

/// Records that a node failed, so nothing is counted for it any more. Its other tasks failed with it, as dependents or
/// by themselves.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = document_id.0))]
pub async fn close(conn: &mut PgConnection, document_id: DocumentId) -> sqlx::Result<()> {
    sqlx::query(
        "UPDATE ingest_node SET rollup = 'done',
                open_tasks = (SELECT count(*) FROM task_queue t WHERE t.scope_document_id = $1 AND NOT t.final AND t.task_type <> ALL($2))
          WHERE document_id = $1",
    )
    .bind(document_id)
    .bind(&UNCOUNTED[..])
    .execute(conn)
    .await
    .map(|_| ())
}

/// Where a node belongs in an ingestion.
#[derive(Clone, Copy, Debug, sqlx_macros::FromRow)]
pub struct Belongs {
    pub root_id: RootId,
    /// The container whose count falls when the node is done.
    pub parent_id: Option<DocumentId>,
}

/// The root of ingestion above a node, and the container that waits for the node.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = document_id.0))]
pub async fn belongs(conn: &mut PgConnection, document_id: DocumentId) -> sqlx::Result<Option<Belongs>> {
    sqlx::query_as("SELECT root_id, parent_id FROM ingest_node WHERE document_id = $1")
        .bind(document_id)
        .fetch_optional(conn)
        .await
}

/// Roots with settle events that nobody has taken.
pub async fn roots_with_events(conn: &mut PgConnection) -> sqlx::Result<Vec<RootId>> {
    sqlx::query_scalar("SELECT DISTINCT root_id FROM settle_event ORDER BY 1 LIMIT 1000").fetch_all(conn).await
}

/// Roots with settle events that nobody has taken, each with its oldest one.
pub async fn oldest_events(conn: &mut PgConnection) -> sqlx::Result<Vec<(RootId, i64)>> {
    sqlx::query_as("SELECT root_id, min(id) FROM settle_event GROUP BY root_id ORDER BY 1 LIMIT 1000")
        .fetch_all(conn)
        .await
}

/// Roots with nodes in flight but neither a task nor an event left: the effect of a defect, which is repaired and
/// logged.
pub async fn stalled_roots(conn: &mut PgConnection) -> sqlx::Result<Vec<RootId>> {
    sqlx::query_scalar(
        "SELECT DISTINCT n.root_id FROM ingest_node n JOIN documents d ON d.id = n.document_id
          WHERE d.settled = 'in_flight'
            AND NOT EXISTS (SELECT 1 FROM task_queue t WHERE t.root_id = n.root_id AND NOT t.final)
            AND NOT EXISTS (SELECT 1 FROM settle_event e WHERE e.root_id = n.root_id)
            AND NOT EXISTS (SELECT 1 FROM ingest_node r WHERE r.document_id = n.root_id AND r.cancelled)
            AND NOT EXISTS (SELECT 1 FROM generations g WHERE g.generation_id = n.root_id AND (g.abandoned OR g.document_id IS NULL)) LIMIT 100",
    )
    .fetch_all(conn)
    .await
}

/// What is left to do once the events of a root were taken.
#[derive(Debug, sqlx_macros::FromRow)]
pub struct Left {
    pub root_id: RootId,
    /// There are events that nobody has taken.
    pub has_events: bool,
    /// The generations that have ended, of the root itself and of those that are built for it.
    pub ended: Vec<RootId>,
}

/// Commits, and reads in the same message what is left to do under each of these roots.
pub async fn commit_and_look(tx: Transaction, roots: &[RootId]) -> sqlx::Result<Vec<Left>> {
    let ids: Vec<i64> = roots.iter().map(|root| root.document().0).collect();
    let left = format!("SELECT root_id, has_events, ended FROM left_to_settle('{}')", braces(&ids));
    tx.commit_and(&left).await?.iter().map(Left::from_row).collect()
}

/// The roots that the settler has to look at after it was kept away from the trees of these roots: those in the trees with events that nobody has taken,
/// and those of these whose generation may have ended.
pub async fn with_something_left(conn: &mut PgConnection, roots: &[RootId]) -> sqlx::Result<Vec<RootId>> {
    sqlx::query_scalar(
        "SELECT e.root_id FROM (SELECT DISTINCT root_id FROM settle_event) e JOIN documents d ON d.id = e.root_id
          WHERE coalesce(d.path[1], d.id) IN (SELECT coalesce(t.path[1], t.id) FROM documents t WHERE t.id = ANY($1))
         UNION
         SELECT r.id FROM unnest($1::bigint[]) AS r(id)
          WHERE EXISTS (SELECT 1 FROM generations g WHERE g.generation_id = r.id) OR EXISTS (SELECT 1 FROM generations g WHERE g.document_id = r.id)
          ORDER BY 1",
    )
    .bind(roots)
    .fetch_all(conn)
    .await
}

/// Recomputes the counts of a root from its rows, and tells the settler to look at every node in flight.
#[tracing::instrument(level = "debug", skip_all, fields(root.id = root_id.0))]
pub async fn recount(conn: &mut PgConnection, root_id: RootId) -> sqlx::Result<()> {
    sqlx::query("DELETE FROM settle_event WHERE root_id = $1").bind(root_id).execute(&mut *conn).await?;
    sqlx::query(
        "UPDATE ingest_node n SET
                open_tasks = (SELECT count(*) FROM task_queue t WHERE t.scope_document_id = n.document_id AND NOT t.final AND t.task_type <> ALL($2)),
                (open_children, failed_children) = (
                    SELECT count(*) FILTER (WHERE c.settled = 'in_flight'), count(*) FILTER (WHERE c.settled = 'failed')
                      FROM documents c LEFT JOIN ingest_node own ON own.document_id = c.id
                     WHERE c.parent_id = n.document_id AND c.settled <> 'settled' AND own.root_id IS DISTINCT FROM c.id),
                rollup = CASE WHEN n.rollup = 'queued' THEN 'none' ELSE n.rollup END
           FROM documents d WHERE d.id = n.document_id AND n.root_id = $1 AND d.settled = 'in_flight'",
    )
    .bind(root_id)
    .bind(&UNCOUNTED[..])
    .execute(&mut *conn)
    .await?;
    sqlx::query(
        "INSERT INTO settle_event (root_id, document_id, done, failed)
         SELECT n.root_id, n.document_id, 0, 0 FROM ingest_node n JOIN documents d ON d.id = n.document_id
          WHERE n.root_id = $1 AND d.settled = 'in_flight'",
    )
    .bind(root_id)
    .execute(conn)
    .await
    .map(|_| ())
}

/// Removes what was counted under roots that are gone.
pub async fn forget(conn: &mut PgConnection, gone: &[DocumentId]) -> sqlx::Result<()> {
    sqlx::query("WITH e AS (DELETE FROM settle_event WHERE root_id = ANY($1) OR document_id = ANY($1)) DELETE FROM frontier_delta WHERE root_id = ANY($1)")
        .bind(gone)
        // Only a list that the planner knows is hashed, and a large file is a long one.
        .persistent(false)
        .execute(conn)
        .await
        .map(|_| ())
}

/// A container that waits for a node.
#[derive(Clone, Copy, Debug, sqlx_macros::FromRow)]
pub struct Waiting {
    pub root_id: RootId,
    pub parent_id: DocumentId,
}

/// A node's parent, if it waits for the node, with the root of ingestion that the parent belongs to.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = document_id.0))]
pub async fn waited_for(conn: &mut PgConnection, document_id: DocumentId) -> sqlx::Result<Option<Waiting>> {
    // A file that was put under another file's tree waits only for itself.
    sqlx::query_as(
        "SELECT p.root_id, p.document_id AS parent_id FROM documents d JOIN ingest_node p ON p.document_id = d.parent_id
           LEFT JOIN ingest_node own ON own.document_id = d.id
          WHERE d.id = $1 AND d.settled = 'in_flight' AND (own.document_id IS NULL OR own.parent_id = d.parent_id)",
    )
    .bind(document_id)
    .fetch_optional(conn)
    .await
}
