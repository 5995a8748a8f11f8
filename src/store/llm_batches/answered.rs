//! Tasks whose batch has ended, taken up many at once in the transaction that applies their answers: until it commits they wait in their batch, so that
//! a crash leaves them there.
use crate::store::{summaries::Source, tasks::read_claimed};
use sqlx::PgConnection;
use std::collections::HashSet;
use svc_actors::Grant;
use svc_ids::TaskId;
use uuid::Uuid;

/// The batches of a provider that have ended and in which tasks may wait.
pub async fn ended(conn: &mut PgConnection, provider: &str) -> sqlx::Result<Vec<i64>> {
    sqlx::query_scalar("SELECT id FROM llm_batches WHERE provider = $1 AND state = 'ended' AND NOT is_done ORDER BY id")
        .bind(provider)
        .fetch_all(conn)
        .await
}

/// A page of the tasks of a type that wait in a batch, with the tokens by which they hold their regions; nothing is claimed. Returns the last of the
/// page too, where the next one begins.
pub async fn waiting(
    conn: &mut PgConnection,
    batch_id: i64,
    task_type: &str,
    (after, most): (i64, usize),
) -> sqlx::Result<Option<(Vec<Grant>, i64)>> {
    let rows = sqlx::query(
        "SELECT id, task_type, scope_document_id, root_id, write_mode, params, lane, node_path, first_leaf, last_leaf, retry_count, lapses, lease_losses,
                claim_token, priority, created_at, traceparent
           FROM task_queue
          WHERE (batch_id, id) > ($1::text, $2) AND batch_id <= $1::text AND status = 'batched' AND task_type = $3 AND cancel_requested_at IS NULL
          ORDER BY batch_id, id LIMIT $4",
    )
    .bind(batch_id)
    .bind(after)
    .bind(task_type)
    .bind(i64::try_from(most).unwrap_or(i64::MAX))
    .fetch_all(conn)
    .await?;
    let grants = read_claimed(&rows)?.grants;
    let last = grants.iter().map(|grant| grant.task_id.0).max();
    Ok(last.map(|last| (grants, last)))
}

/// The texts that the questions of these tasks are made of, as far as they are of whole texts: as they are now, those of each task in the order of its
/// question.
pub async fn sources(conn: &mut PgConnection, batch_id: i64, tasks: &[TaskId]) -> sqlx::Result<Vec<Source>> {
    sqlx::query_as(
        "SELECT q.document_id AS container, d.id, d.path, d.position, d.title, d.content_hash, octet_length(d.content) AS bytes
           FROM llm_batch_requests q CROSS JOIN LATERAL unnest(q.sources) WITH ORDINALITY AS s(id, at) JOIN documents d ON d.id = s.id
          WHERE q.task_id = ANY($2) AND q.batch_id = $1 ORDER BY q.task_id, s.at",
    )
    .bind(batch_id)
    .bind(tasks)
    .fetch_all(conn)
    .await
}

/// Locks tasks that wait in batches, for a transaction that ends them. Returns those that still hold their regions by these tokens and of which nobody
/// wants the end.
pub async fn lock(conn: &mut PgConnection, tasks: &[&Grant]) -> sqlx::Result<HashSet<TaskId>> {
    let (ids, tokens): (Vec<TaskId>, Vec<Uuid>) = tasks.iter().map(|grant| (grant.task_id, grant.token)).unzip();
    let held: Vec<TaskId> = sqlx::query_scalar(
        "SELECT t.id FROM task_queue t
          WHERE t.id = ANY($1) AND (t.id, t.claim_token) IN (SELECT * FROM unnest($1::bigint[], $2::uuid[]))
            AND t.status = 'batched' AND t.cancel_requested_at IS NULL
          ORDER BY t.id FOR NO KEY UPDATE OF t",
    )
    .bind(ids)
    .bind(tokens)
    .fetch_all(conn)
    .await?;
    Ok(held.into_iter().collect())
}

/// Those of these tasks against whose questions a provider said something, which a task of its own has to look at.
pub async fn with_errors(conn: &mut PgConnection, tasks: &[TaskId]) -> sqlx::Result<HashSet<TaskId>> {
    let tasks: Vec<TaskId> = sqlx::query_scalar(
        "SELECT DISTINCT task_id FROM llm_batch_requests WHERE task_id = ANY($1) AND is_over AND error_code IS NOT NULL AND NOT is_dropped",
    )
    .bind(tasks)
    .fetch_all(conn)
    .await?;
    Ok(tasks.into_iter().collect())
}
