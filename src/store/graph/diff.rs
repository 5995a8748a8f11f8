//! Which facts changed between two moments.
use crate::store::{
    documents::add,
    scope::{Readable, readable},
    triples::fact_readable,
    word::Word,
};
use chrono::{DateTime, Utc};
use sqlx::{PgConnection, postgres::PgArguments};
use svc_client::wire::FactChange;
use svc_ids::{DocumentId, TripleId};

/// Which facts are compared.
#[derive(Clone, Copy, Debug)]
pub struct Compared {
    pub from: DateTime<Utc>,
    pub to: DateTime<Utc>,
    pub parent_id: Option<DocumentId>,
    pub asserted_only: bool,
}

/// A fact that changed, with the one that took its place.
#[derive(Clone, Copy, Debug, sqlx_macros::FromRow)]
pub struct Change {
    pub id: TripleId,
    pub kind: Word<FactChange>,
    pub by: Option<TripleId>,
}

fn arguments(scope: &Readable, compared: &Compared) -> PgArguments {
    let mut arguments = scope.arguments();
    add(&mut arguments, compared.from);
    add(&mut arguments, compared.to);
    add(&mut arguments, compared.parent_id);
    add(&mut arguments, compared.asserted_only);
    arguments
}

/// The predicate over `triples t` for the facts that are compared.
macro_rules! compared {
    () => {
        concat!(
            "($5::bigint IS NULL OR t.subject_id = $5 OR EXISTS (SELECT FROM documents d WHERE d.id = t.subject_id AND d.path @> ARRAY[$5]))
             AND (NOT $6 OR t.derived_by IS NULL) AND ",
            fact_readable!()
        )
    };
}

/// The changes of what the store believed: rows that were recorded or closed between the two moments. The row that took the place of another
/// counts as its follower if it was recorded in the same time and is believed at the end of it.
macro_rules! of_knowledge {
    () => {
        concat!(
            "WITH gone AS MATERIALIZED (
                 SELECT t.id, t.invalidated_by FROM triples t
                  WHERE t.invalidated_at > $3 AND t.invalidated_at <= $4 AND t.recorded_at <= $3 AND ",
            compared!(),
            "), came AS MATERIALIZED (
                 SELECT t.id FROM triples t
                  WHERE t.recorded_at > $3 AND t.recorded_at <= $4 AND (t.invalidated_at IS NULL OR t.invalidated_at > $4) AND ",
            compared!(),
            "), changes AS (
                 SELECT g.id, CASE WHEN c.id IS NULL THEN 'removed' ELSE 'superseded' END AS kind, c.id AS by
                   FROM gone g LEFT JOIN came c ON c.id = g.invalidated_by
                  UNION ALL
                 SELECT c.id, 'added', NULL FROM came c WHERE NOT EXISTS (SELECT FROM gone g WHERE g.invalidated_by = c.id))"
        )
    };
}

/// The changes of what holds in the world, as the store believes at $7, the last moment that the snapshot shows: statements that hold at one of the
/// two moments only, whichever zones they are stated in, each by its first row. The rows that hold at both moments are most of all, so they are looked
/// up for the statements that would otherwise have changed.
macro_rules! of_world {
    () => {
        concat!(
            "WITH there AS MATERIALIZED (
                 SELECT t.id, t.statement, t.valid @> $3 AS before, t.valid @> $4 AS after FROM triples t
                  WHERE t.recorded_at <= $7 AND (t.invalidated_at IS NULL OR t.invalidated_at > $7) AND (t.valid @> $3) <> (t.valid @> $4) AND ",
            compared!(),
            "), changes AS (
                 SELECT min(h.id) AS id, CASE WHEN bool_or(h.after) THEN 'added' ELSE 'removed' END AS kind, NULL::bigint AS by
                   FROM there h GROUP BY h.statement
                 HAVING bool_or(h.before) <> bool_or(h.after) AND NOT EXISTS (
                        SELECT FROM triples t
                         WHERE t.statement = h.statement AND t.invalidated_at IS NULL AND t.valid @> $3 AND t.valid @> $4 AND ",
            compared!(),
            " OFFSET 0))"
        )
    };
}

/// How many facts were added, removed and superseded in the store's knowledge.
pub async fn count_known(
    conn: &mut PgConnection,
    scope: &Readable,
    compared: &Compared,
) -> sqlx::Result<Vec<(Word<FactChange>, i64)>> {
    let query = concat!(of_knowledge!(), " SELECT kind, count(*) FROM changes GROUP BY kind");
    sqlx::query_as_with(query, arguments(scope, compared)).persistent(false).fetch_all(conn).await
}

/// The changes of the store's knowledge after one of them, by id.
#[tracing::instrument(level = "debug", skip_all, fields(triple.id = after.0))]
pub async fn known(
    conn: &mut PgConnection,
    scope: &Readable,
    compared: &Compared,
    kind: Option<FactChange>,
    after: TripleId,
    limit: u32,
) -> sqlx::Result<Vec<Change>> {
    let mut arguments = arguments(scope, compared);
    add(&mut arguments, kind.map(FactChange::as_str));
    add(&mut arguments, after);
    add(&mut arguments, i64::from(limit));
    let query = concat!(
        of_knowledge!(),
        " SELECT id, kind, by FROM changes WHERE ($7::text IS NULL OR kind = $7) AND id > $8 ORDER BY id LIMIT $9"
    );
    sqlx::query_as_with(query, arguments).persistent(false).fetch_all(conn).await
}

/// How many facts hold at the second moment and not at the first, and the other way around.
pub async fn count_valid(
    conn: &mut PgConnection,
    scope: &Readable,
    compared: &Compared,
    known_at: DateTime<Utc>,
) -> sqlx::Result<Vec<(Word<FactChange>, i64)>> {
    let mut arguments = arguments(scope, compared);
    add(&mut arguments, known_at);
    let query = concat!(of_world!(), " SELECT kind, count(*) FROM changes GROUP BY kind");
    sqlx::query_as_with(query, arguments).persistent(false).fetch_all(conn).await
}

/// The facts that hold at one of the two moments only, after one of them, by id.
#[tracing::instrument(level = "debug", skip_all, fields(triple.id = after.0))]
pub async fn valid(
    conn: &mut PgConnection,
    scope: &Readable,
    compared: &Compared,
    known_at: DateTime<Utc>,
    kind: Option<FactChange>,
    after: TripleId,
    limit: u32,
) -> sqlx::Result<Vec<Change>> {
    let mut arguments = arguments(scope, compared);
    add(&mut arguments, known_at);
    add(&mut arguments, kind.map(FactChange::as_str));
    add(&mut arguments, after);
    add(&mut arguments, i64::from(limit));
    let query = concat!(
        of_world!(),
        " SELECT id, kind, by FROM changes WHERE ($8::text IS NULL OR kind = $8) AND id > $9 ORDER BY id LIMIT $10"
    );
    sqlx::query_as_with(query, arguments).persistent(false).fetch_all(conn).await
}
