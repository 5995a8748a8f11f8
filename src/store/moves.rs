//! Moves of subtrees. Whoever moves holds [`AdvisoryLock::Access`](super::advisory::AdvisoryLock) alone, see
//! [`begin_moving`](super::transaction::begin_moving): meanwhile nothing is created, and no other guard changes.
use super::{ingest_nodes::Frontier, places::Place, vectors};
use sqlx::PgConnection;
use svc_actors::path_key;

/// How many levels there are under a node.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = place.id().0))]
pub async fn height(conn: &mut PgConnection, place: &Place) -> sqlx::Result<usize> {
    let deepest: Option<i32> =
        sqlx::query_scalar("SELECT max(cardinality(path)) FROM documents WHERE path @> ARRAY[$1::bigint]")
            .bind(place.id())
            .fetch_one(conn)
            .await?;
    Ok(deepest.map_or(0, |deepest| usize::try_from(deepest).unwrap_or_default().saturating_sub(place.path().len())))
}

/// What came of a move.
#[derive(Clone, Copy, Debug)]
pub struct Moved {
    /// Other callers may read it now.
    pub has_other_readers: bool,
    /// What the roots of ingestion above count of it. What somebody deleted before its rows were locked is not among it.
    pub counts: Frontier,
}

/// Puts a node with everything under it under another one, or at the top: paths, parent and guards.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = place.id().0, parent.id = under.map(|under| under.id().0)))]
pub async fn relocate(conn: &mut PgConnection, place: &Place, under: Option<&Place>) -> sqlx::Result<Moved> {
    let moved = place.moved(under);
    let guard = "SELECT coalesce((SELECT guard FROM documents WHERE id = $1), 0)";
    let old: i64 = sqlx::query_scalar(guard).bind(place.path().last()).fetch_one(&mut *conn).await?;
    let new: i64 = sqlx::query_scalar(guard).bind(moved.path().last()).fetch_one(&mut *conn).await?;
    sqlx::query(
        "UPDATE access_roots a SET above = $3 FROM documents d
          WHERE a.above = $2 AND d.id = a.document_id AND (d.id = $1 OR d.path @> ARRAY[$1::bigint])",
    )
    .bind(place.id())
    .bind(old)
    .bind(new)
    .execute(&mut *conn)
    .await?;
    let counts: Frontier = sqlx::query_as(
        "WITH moved AS (
             UPDATE documents SET path = $2::bigint[] || path[$3 + 1 :], parent_id = CASE WHEN id = $1 THEN $4 ELSE parent_id END,
                    guard = CASE WHEN guard = $5 THEN $6 ELSE guard END,
                    updated_at = CASE WHEN id = $1 THEN clock_timestamp() ELSE updated_at END
              WHERE id = $1 OR path @> ARRAY[$1::bigint] RETURNING settled, guard)
         SELECT count(*) AS total, count(*) FILTER (WHERE settled = 'in_flight') AS in_flight,
                count(*) FILTER (WHERE settled = 'settled') AS settled, count(*) FILTER (WHERE settled = 'failed') AS failed
           FROM moved WHERE guard <> -1",
    )
    .bind(place.id())
    .bind(moved.path())
    .bind(i32::try_from(place.path().len()).unwrap_or(i32::MAX))
    .bind(under.map(Place::id))
    .bind(old)
    .bind(new)
    .fetch_one(&mut *conn)
    .await?;
    if place.path().first() != moved.path().first() {
        vectors::follow(conn, place.id()).await?;
    }
    if old != new {
        super::triples::follow::into_zones(conn, place.id()).await?;
        super::entities::into_zones(conn, place.id()).await?;
    }
    Ok(Moved { has_other_readers: old != new, counts })
}

/// Gives the unfinished tasks at and under a node the regions of its new place. They are not held; what waited for an
/// intent of theirs is woken.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = from.id().0, parent.id = to.path().last()))]
pub async fn relocate_tasks(conn: &mut PgConnection, from: &Place, to: &Place) -> sqlx::Result<()> {
    let (old, new) = (path_key(&from.children_path()), path_key(&to.children_path()));
    let depth = |place: &Place| i32::try_from(place.path().len()).unwrap_or(i32::MAX);
    sqlx::query(
        "WITH moved AS (
             UPDATE task_queue t SET node_path = $2 || substr(t.node_path, $3), node_depth = t.node_depth + $4,
                    first_leaf = $2 || substr(t.first_leaf, $3), last_leaf = $2 || substr(t.last_leaf, $3)
               FROM documents d WHERE t.scope_document_id = d.id AND NOT t.final AND (d.id = $1 OR d.path @> ARRAY[$1::bigint])
             RETURNING t.id)
         DELETE FROM task_intent i USING moved m WHERE i.task_id = m.id",
    )
    .bind(from.id())
    .bind(&new)
    .bind(i32::try_from(old.len() + 1).unwrap_or(i32::MAX))
    .bind(depth(to) - depth(from))
    .execute(conn)
    .await
    .map(|_| ())
}

/// Counts what left the roots of ingestion above the old place of a node and came under those above the new one.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = from.id().0, parent.id = to.path().last()))]
pub async fn count(conn: &mut PgConnection, from: &Place, to: &Place, counts: Frontier) -> sqlx::Result<()> {
    sqlx::query(
        "INSERT INTO frontier_delta
         SELECT n.document_id, side.sign * $3, side.sign * $4, side.sign * $5, side.sign * $6
           FROM (SELECT unnest($1::bigint[]) AS id, -1 AS sign UNION ALL SELECT unnest($2::bigint[]), 1) side
           JOIN ingest_node n ON n.document_id = side.id AND n.root_id = side.id",
    )
    .bind(from.path())
    .bind(to.path())
    .bind(counts.total)
    .bind(counts.in_flight)
    .bind(counts.settled)
    .bind(counts.failed)
    .execute(conn)
    .await
    .map(|_| ())
}
