//! The frontier: how many nodes under a root are in flight, settled and failed.
use crate::store::{
    documents::add,
    scope::{Readable, readable},
};
use sqlx::PgConnection;
use std::{collections::HashMap, ops::Neg};
use svc_client::wire::Settled;
use svc_ids::{DocumentId, RootId};

/// The counts of nodes under a root, or changes of these counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, sqlx_macros::FromRow)]
pub struct Frontier {
    pub total: i64,
    pub in_flight: i64,
    pub settled: i64,
    pub failed: i64,
}

impl Frontier {
    /// Counts one more node.
    pub fn add(&mut self, settled: Settled) {
        self.total += 1;
        *match settled {
            Settled::InFlight => &mut self.in_flight,
            Settled::Settled => &mut self.settled,
            Settled::Failed => &mut self.failed,
        } += 1;
    }
}

impl Neg for Frontier {
    type Output = Frontier;

    fn neg(self) -> Frontier {
        Frontier { total: -self.total, in_flight: -self.in_flight, settled: -self.settled, failed: -self.failed }
    }
}

/// Adds a change at or under a node to the counts of every root of ingestion at or above it; this only appends.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = at.0))]
pub async fn count(conn: &mut PgConnection, at: DocumentId, change: Frontier) -> sqlx::Result<()> {
    count_all(conn, &[(at, change)]).await
}

/// Adds many changes, each at or under a node.
pub async fn count_all(conn: &mut PgConnection, changes: &[(DocumentId, Frontier)]) -> sqlx::Result<()> {
    let of = |field: fn(&Frontier) -> i64| changes.iter().map(|(_, change)| field(change)).collect::<Vec<_>>();
    // OFFSET 0 keeps each look-up by id in its subquery. Otherwise, while statistics lag behind a bulk upload, the planner reads all nodes for each change.
    sqlx::query(
        "INSERT INTO frontier_delta
         SELECT n.document_id, c.total, c.in_flight, c.settled, c.failed
           FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[]) AS c(at, total, in_flight, settled, failed)
          CROSS JOIN LATERAL (SELECT unnest(d.path || d.id) AS id FROM documents d WHERE d.id = c.at OFFSET 0) above
          CROSS JOIN LATERAL (SELECT r.document_id FROM ingest_node r WHERE r.document_id = above.id AND r.root_id = above.id OFFSET 0) n",
    )
    .bind(changes.iter().map(|(at, _)| *at).collect::<Vec<_>>())
    .bind(of(|change| change.total))
    .bind(of(|change| change.in_flight))
    .bind(of(|change| change.settled))
    .bind(of(|change| change.failed))
    .execute(conn)
    .await
    .map(|_| ())
}

/// The counts under a root of ingestion; `None` if nothing was ever counted there.
#[tracing::instrument(level = "debug", skip_all, fields(root.id = root_id.0))]
pub async fn frontier(conn: &mut PgConnection, root_id: RootId) -> sqlx::Result<Option<Frontier>> {
    let row: (Option<i64>, Option<i64>, Option<i64>, Option<i64>) = sqlx::query_as(
        "SELECT sum(total)::bigint, sum(in_flight)::bigint, sum(settled)::bigint, sum(failed)::bigint FROM frontier_delta WHERE root_id = $1",
    )
    .bind(root_id)
    .fetch_one(conn)
    .await?;
    Ok(match row {
        (Some(total), Some(in_flight), Some(settled), Some(failed)) => {
            Some(Frontier { total, in_flight, settled, failed })
        }
        _ => None,
    })
}

/// The counts at and under any node, of what the scope covers, by its path; for nodes that are not a root of ingestion, and for
/// callers who may not read all that is under them.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = id.0))]
pub async fn count_by_path(conn: &mut PgConnection, scope: &Readable, id: DocumentId) -> sqlx::Result<Frontier> {
    let mut arguments = scope.arguments();
    add(&mut arguments, id);
    sqlx::query_as_with(
        concat!(
            "SELECT count(*) AS total, count(*) FILTER (WHERE settled = 'in_flight') AS in_flight,
                    count(*) FILTER (WHERE settled = 'settled') AS settled, count(*) FILTER (WHERE settled = 'failed') AS failed
               FROM documents d WHERE (d.id = $3 OR d.path @> ARRAY[$3::bigint]) AND ",
            readable!()
        ),
        arguments,
    )
    .persistent(false)
    .fetch_one(conn)
    .await
}

#[derive(sqlx_macros::FromRow)]
struct FoldedRow {
    root_id: RootId,
    #[sqlx(flatten)]
    frontier: Frontier,
}

/// Folds the deltas of each of these roots into one row, and returns what it counts; call it when nobody else counts under them.
pub async fn fold_frontiers(conn: &mut PgConnection, roots: &[RootId]) -> sqlx::Result<HashMap<RootId, Frontier>> {
    let folded: Vec<FoldedRow> = sqlx::query_as(
        "WITH old AS (DELETE FROM frontier_delta WHERE root_id = ANY($1) RETURNING *)
         INSERT INTO frontier_delta SELECT root_id, sum(total), sum(in_flight), sum(settled), sum(failed) FROM old GROUP BY root_id
         RETURNING root_id, total, in_flight, settled, failed",
    )
    .bind(roots)
    .fetch_all(conn)
    .await?;
    Ok(folded.into_iter().map(|row| (row.root_id, row.frontier)).collect())
}
