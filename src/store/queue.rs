//! The queue as a whole: its numbers, what nobody serves, and word of it to other processes.
use sqlx::{PgConnection, PgPool, postgres::PgListener};
use svc_actors::DocumentFacts;
use svc_client::wire::QueueState;

/// Tells the workers of other processes that there may be work, or that a cancel was asked for.
pub async fn announce(pool: &PgPool, channel: &str) -> sqlx::Result<()> {
    sqlx::query("SELECT pg_notify($1, '')").bind(channel).execute(pool).await.map(|_| ())
}

/// An error where whoever listens is cut off.
pub async fn listens(listener: &mut PgListener) -> sqlx::Result<()> {
    sqlx::query("SELECT 1").execute(listener).await.map(|_| ())
}

/// The queue in numbers.
pub async fn state(conn: &mut PgConnection) -> sqlx::Result<QueueState> {
    let (pending, held, waiting_for_retry, failed, oldest_seconds) = sqlx::query_as(
        "SELECT count(*) FILTER (WHERE status = 'pending'), count(*) FILTER (WHERE status IN ('claimed', 'running', 'batched')),
                count(*) FILTER (WHERE status = 'failed' AND NOT final),
                (SELECT count(*) FROM task_queue WHERE final AND error_type IS NOT NULL),
                extract(epoch FROM clock_timestamp() - min(created_at))::float8
           FROM task_queue WHERE NOT final",
    )
    .fetch_one(conn)
    .await?;
    Ok(QueueState { pending, held, waiting_for_retry, failed, oldest_seconds })
}

/// Tasks that owe work or failed for good, by type and status; what completed is counted by the workers as it does.
pub async fn by_type_and_status(conn: &mut PgConnection) -> sqlx::Result<Vec<(String, String, i64)>> {
    sqlx::query_as(
        "SELECT task_type, status, count(*) FROM (
             SELECT task_type, status FROM task_queue WHERE NOT final
             UNION ALL SELECT task_type, status FROM task_queue WHERE final AND error_type IS NOT NULL) t
          GROUP BY 1, 2 ORDER BY 1, 2",
    )
    .fetch_all(conn)
    .await
}

/// Badges of ready tasks that no living worker answers to, with how many there are and how long the oldest has waited in
/// seconds. Skips through the index from badge to badge, so that a long queue costs no more than a short one.
pub async fn unserved_badges(conn: &mut PgConnection) -> sqlx::Result<Vec<(String, i64, f64)>> {
    sqlx::query_as(
        "WITH RECURSIVE pair(lane, badge) AS (
             (SELECT lane, coalesce(service_badge, '') FROM task_queue WHERE ready ORDER BY lane, coalesce(service_badge, '') LIMIT 1)
             UNION ALL
             SELECT next.lane, next.badge FROM pair CROSS JOIN LATERAL (
                 SELECT lane, coalesce(service_badge, '') AS badge FROM task_queue
                  WHERE ready AND (lane, coalesce(service_badge, '')) > (pair.lane, pair.badge)
                  ORDER BY lane, coalesce(service_badge, '') LIMIT 1) next),
         unserved AS (
             SELECT lane, badge FROM pair WHERE NOT EXISTS (
                 SELECT 1 FROM workers w WHERE w.beat_at > now() - w.lease AND (w.badges = '{}' OR (pair.badge = '' AND NOT w.strict) OR pair.badge = ANY(w.badges))))
         SELECT u.badge, count(*), extract(epoch FROM clock_timestamp() - min(t.created_at))::float8
           FROM unserved u JOIN task_queue t ON t.ready AND t.lane = u.lane AND coalesce(t.service_badge, '') = u.badge
          GROUP BY 1 ORDER BY 1",
    )
    .fetch_all(conn)
    .await
}

/// Task types that no living worker can run, of tasks that a worker tried and put off for that reason, with how many there
/// are and how long the oldest has waited in seconds.
pub async fn unserved_types(conn: &mut PgConnection) -> sqlx::Result<Vec<(String, i64, f64)>> {
    sqlx::query_as(
        "SELECT t.task_type, count(*), extract(epoch FROM clock_timestamp() - min(t.created_at))::float8 FROM task_queue t
          WHERE t.retry_after IS NOT NULL AND NOT t.final AND NOT t.ready AND t.parked_on IS NULL AND t.claim_token IS NULL
            AND NOT EXISTS (SELECT 1 FROM workers w WHERE w.beat_at > now() - w.lease AND t.task_type = ANY(w.task_types))
          GROUP BY 1 ORDER BY 1",
    )
    .fetch_all(conn)
    .await
}

/// Unfinished tasks of one document that are counted; a file of a million rows may have more.
const MOST_OPEN: i64 = 1000;

/// The titles of the documents with these roots, and how many unfinished tasks each has, up to a thousand. One that is gone
/// is left out.
pub async fn documents(conn: &mut PgConnection, roots: &[i64]) -> sqlx::Result<Vec<DocumentFacts>> {
    let rows: Vec<(i64, String, i64)> = sqlx::query_as(
        "SELECT d.id, d.title, (SELECT count(*) FROM (SELECT 1 FROM task_queue t WHERE t.root_id = d.id AND NOT t.final LIMIT $2) open)
           FROM documents d WHERE d.id = ANY($1)",
    )
    .bind(roots)
    .bind(MOST_OPEN)
    .fetch_all(conn)
    .await?;
    let facts = |(root_id, title, open): (i64, String, i64)| DocumentFacts {
        root_id,
        title: Some(title),
        open_tasks: u64::try_from(open).unwrap_or(0),
    };
    Ok(rows.into_iter().map(facts).collect())
}
