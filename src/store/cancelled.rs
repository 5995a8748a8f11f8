//! The nodes of a cancelled ingestion, until all of them are marked as failed.
use super::{evidence::Evidence, ingest_nodes::UNCOUNTED, places::Place, word::Word};
use sqlx::PgConnection;
use svc_client::wire::Settled;
use svc_ids::{DocumentId, RootId};

/// How far a root is; `None` if it is gone. The caller has locked its row.
#[tracing::instrument(level = "debug", skip_all, fields(root.id = root_id.0))]
pub async fn settled(conn: &mut PgConnection, root_id: RootId) -> sqlx::Result<Option<Settled>> {
    let settled = sqlx::query_scalar("SELECT settled FROM documents WHERE id = $1").bind(root_id);
    let settled: Option<Word<Settled>> = settled.fetch_optional(conn).await?;
    Ok(settled.map(|settled| settled.0))
}

/// Marks the root as failed and cancelled, so that nothing under it settles or is rolled up any more. The caller has locked the counts of all nodes of the
/// root. Returns how many nodes failed: one, or none if the root was not in flight.
#[tracing::instrument(level = "debug", skip_all, fields(root.id = file.id().0))]
pub async fn fail_root(conn: &mut PgConnection, file: &Place) -> sqlx::Result<i64> {
    let root_id = file.id();
    let failed = sqlx::query("UPDATE documents SET settled = 'failed' WHERE id = $1 AND settled = 'in_flight'")
        .bind(root_id)
        .execute(&mut *conn)
        .await?;
    sqlx::query("UPDATE ingest_node SET cancelled = true WHERE document_id = $1")
        .bind(root_id)
        .execute(&mut *conn)
        .await?;
    close(conn, &[root_id]).await?;
    Ok(i64::try_from(failed.rows_affected()).unwrap_or(i64::MAX))
}

/// Counts the tasks of these containers anew, after some of them were cancelled. The caller has locked the counts.
pub async fn recount_tasks(conn: &mut PgConnection, nodes: &[DocumentId]) -> sqlx::Result<()> {
    sqlx::query(
        "UPDATE ingest_node n
            SET open_tasks = (SELECT count(*) FROM task_queue t WHERE t.scope_document_id = n.document_id AND NOT t.final AND t.task_type <> ALL($2))
          WHERE n.document_id = ANY($1)",
    )
    .bind(nodes)
    .bind(&UNCOUNTED[..])
    .execute(conn)
    .await
    .map(|_| ())
}

/// Marks up to `limit` nodes in flight under a root as failed, those with the lowest ids above `after`, and returns them in the order of their ids. It skips
/// files in the tree that have their own ingestion.
#[tracing::instrument(level = "debug", skip_all, fields(root.id = root_id.0))]
pub async fn fail_nodes(
    conn: &mut PgConnection,
    root_id: RootId,
    after: DocumentId,
    limit: i64,
) -> sqlx::Result<Vec<DocumentId>> {
    // Making a bitmap of the whole subtree anew for each part would make the walk quadratic.
    sqlx::query("SELECT set_config('enable_bitmapscan', 'off', true)").execute(&mut *conn).await?;
    let nodes: Vec<DocumentId> = sqlx::query_scalar(
        "WITH part AS (
             SELECT d.id FROM documents d
              WHERE d.settled = 'in_flight' AND d.id > $2 AND d.path @> ARRAY[$1::bigint]
                AND NOT EXISTS (SELECT 1 FROM ingest_node own WHERE own.root_id = own.document_id
                                   AND own.document_id = ANY (d.path[array_position(d.path, $1) + 1:] || d.id))
              ORDER BY d.id LIMIT $3 FOR NO KEY UPDATE),
         failed AS (UPDATE documents d SET settled = 'failed' FROM part WHERE d.id = part.id RETURNING d.id)
         SELECT id FROM failed ORDER BY id",
    )
    .bind(root_id)
    .bind(after)
    .bind(limit)
    .fetch_all(&mut *conn)
    .await?;
    sqlx::query("SELECT set_config('enable_bitmapscan', 'on', true)").execute(&mut *conn).await?;
    // The end of a stopped task changes these counts and the task together, so that they are locked before the tasks are counted.
    sqlx::query(
        "SELECT count(*) FROM (
             SELECT n.document_id FROM ingest_node n
              WHERE n.document_id = ANY($1) OR n.document_id = ANY(ARRAY(SELECT DISTINCT d.parent_id FROM documents d WHERE d.id = ANY($1)))
              ORDER BY n.document_id FOR NO KEY UPDATE) locked",
    )
    .bind(&nodes)
    .execute(&mut *conn)
    .await?;
    close(conn, &nodes).await?;
    // What is above some of them may be of a later part, and is in flight until then.
    sqlx::query(
        "UPDATE ingest_node n SET open_children = n.open_children - c.count
           FROM (SELECT d.parent_id, count(*)::int AS count FROM documents d WHERE d.id = ANY($1) GROUP BY d.parent_id) c
           JOIN documents p ON p.id = c.parent_id AND p.settled = 'in_flight'
          WHERE n.document_id = c.parent_id",
    )
    .bind(&nodes)
    .execute(conn)
    .await?;
    Ok(nodes)
}

/// Makes failed containers wait for nothing but the tasks that are being stopped.
async fn close(conn: &mut PgConnection, nodes: &[DocumentId]) -> sqlx::Result<()> {
    sqlx::query(
        "UPDATE ingest_node n SET rollup = 'done', open_children = 0,
                open_tasks = (SELECT count(*) FROM task_queue t WHERE t.scope_document_id = n.document_id AND NOT t.final AND t.task_type <> ALL($2))
          WHERE n.document_id = ANY($1)",
    )
    .bind(nodes)
    .bind(&UNCOUNTED[..])
    .execute(conn)
    .await
    .map(|_| ())
}

/// Adds failed nodes to the number in the cancel's evidence.
#[tracing::instrument(level = "debug", skip_all, fields(root.id = root_id.0))]
pub async fn add_to_evidence(conn: &mut PgConnection, root_id: RootId, failed: i64) -> sqlx::Result<()> {
    sqlx::query(
        "UPDATE node_evidence SET value = jsonb_set(value, '{nodes_failed}', to_jsonb((value->>'nodes_failed')::bigint + $2))
          WHERE document_id = $1 AND name = $3",
    )
    .bind(root_id)
    .bind(failed)
    .bind(Evidence::Cancelled.as_str())
    .execute(conn)
    .await
    .map(|_| ())
}

/// Whether a root is cancelled with nodes left in flight. This waits for anybody who marks them or settles under the
/// root, and keeps them away until the transaction ends.
#[tracing::instrument(level = "debug", skip_all, fields(root.id = root_id.0))]
pub async fn lock(conn: &mut PgConnection, root_id: RootId) -> sqlx::Result<bool> {
    super::locks::file(conn, root_id).await?;
    let cancelled: Option<bool> = sqlx::query_scalar("SELECT cancelled FROM ingest_node WHERE document_id = $1")
        .bind(root_id)
        .fetch_optional(conn)
        .await?;
    Ok(cancelled.unwrap_or(false))
}

/// Records that all nodes of a root are marked.
#[tracing::instrument(level = "debug", skip_all, fields(root.id = root_id.0))]
pub async fn done(conn: &mut PgConnection, root_id: RootId) -> sqlx::Result<()> {
    sqlx::query("UPDATE ingest_node SET cancelled = false WHERE document_id = $1")
        .bind(root_id)
        .execute(conn)
        .await
        .map(|_| ())
}

/// Roots that are cancelled with nodes left in flight.
pub async fn roots(conn: &mut PgConnection) -> sqlx::Result<Vec<RootId>> {
    sqlx::query_scalar("SELECT document_id FROM ingest_node WHERE cancelled ORDER BY document_id LIMIT 1000")
        .fetch_all(conn)
        .await
}
