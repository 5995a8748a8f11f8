//! Regions held by edits that come over REST rather than from the queue.
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

/// Holds a node's region until the transaction ends, or says who holds it. The row that is left
/// behind in a success goes with [`release_edit`], in the same transaction.
pub async fn reserve_for_edit(
    conn: &mut PgConnection,
    path: &[i64],
    id: i64,
    mode: WriteMode,
) -> sqlx::Result<Result<i64, Option<Holder>>> {
    let key = path_key(path, id);
    let depth = i32::try_from(path.len()).unwrap_or(i32::MAX);
    let task_id: Option<i64> = sqlx::query_scalar(
        "WITH edit AS (
             INSERT INTO task_queue (task_type, lane, scope_document_id, node_path, node_depth, root_id, write_mode, status, ready, claim_token)
             VALUES ('edit', 'io', $1, $2, $3, $1, $4, 'running', false, gen_random_uuid()) RETURNING id, claim_token)
         INSERT INTO task_reservation (task_id, claim_token, worker, node_path, node_depth, write_mode, prange, drange)
         SELECT id, claim_token, 'rest', $2, $3, $4, region_paths($2, $4), region_depths($3, $4) FROM edit
         ON CONFLICT DO NOTHING RETURNING task_id",
    )
    .bind(id)
    .bind(&key)
    .bind(depth)
    .bind(mode.as_str())
    .fetch_optional(&mut *conn)
    .await?;
    if let Some(task_id) = task_id {
        return Ok(Ok(task_id));
    }
    let holder = sqlx::query_as(
        "SELECT r.task_id, t.task_type, r.worker FROM task_reservation r JOIN task_queue t ON t.id = r.task_id
          WHERE r.prange && region_paths($1, $3) AND r.drange && region_depths($2, $3) LIMIT 1",
    )
    .bind(&key)
    .bind(depth)
    .bind(mode.as_str())
    .fetch_optional(conn)
    .await?;
    Ok(Err(holder))
}

/// Ends an edit's hold; the next claim wakes what was parked on it.
pub async fn release_edit(conn: &mut PgConnection, task_id: i64) -> sqlx::Result<()> {
    sqlx::query("DELETE FROM task_queue WHERE id = $1").bind(task_id).execute(conn).await.map(|_| ())
}
