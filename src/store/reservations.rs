//! Edits that come over REST rather than from the queue, and the regions that tasks hold.
use super::tasks::path_key;
use sqlx::PgConnection;
use svc_actors::WriteMode;

/// Who holds a region that overlaps.
#[derive(Debug, sqlx::FromRow)]
pub struct Holder {
    pub task_id: i64,
    pub task_type: String,
    pub worker: String,
}

/// Keeps claims away from a node's region until the transaction ends, or says who holds it.
///
/// It locks the rows of what waits there, which claims pass over. A reservation of its own would have every claim of the
/// fleet wait for this transaction: whether it conflicts is open until then.
pub async fn hold_for_edit(
    conn: &mut PgConnection,
    path: &[i64],
    id: i64,
    mode: WriteMode,
) -> sqlx::Result<Option<Holder>> {
    if let Some(holder) = holder(conn, path, id, mode).await? {
        return Ok(Some(holder));
    }
    // A row that is being claimed is waited for, and is held then. By their ids, as whoever ends a task comes to its dependents.
    sqlx::query(
        "WITH around(id, above) AS (
             SELECT unnest($1::bigint[]), true UNION ALL SELECT $2, false
             UNION ALL SELECT d.id, false FROM documents d WHERE $3 AND d.path @> ARRAY[$2::bigint])
         SELECT count(*) FROM (
             SELECT t.id FROM task_queue t JOIN around ON around.id = t.scope_document_id
              WHERE NOT t.final AND t.claim_token IS NULL AND NOT (around.above AND t.write_mode = 'self')
              ORDER BY t.id FOR UPDATE OF t) locked",
    )
    .bind(path)
    .bind(id)
    .bind(mode != WriteMode::Itself)
    .execute(&mut *conn)
    .await?;
    holder(conn, path, id, mode).await
}

async fn holder(conn: &mut PgConnection, path: &[i64], id: i64, mode: WriteMode) -> sqlx::Result<Option<Holder>> {
    sqlx::query_as(
        "SELECT r.task_id, t.task_type, r.worker FROM task_reservation r JOIN task_queue t ON t.id = r.task_id
          WHERE r.prange && region_paths($1, $3, NULL, NULL) AND r.drange && region_depths($2, $3, NULL) LIMIT 1",
    )
    .bind(path_key(path, id))
    .bind(i32::try_from(path.len()).unwrap_or(i32::MAX))
    .bind(mode.as_str())
    .fetch_optional(conn)
    .await
}
