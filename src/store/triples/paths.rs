//! Facts as the edges of a graph.
use crate::store::{
    documents::add,
    scope::{Readable, readable},
};
use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use svc_client::wire::{Direction, predicate_name};
use svc_ids::{DocumentId, PredicateId, TripleId};

/// Which facts are edges.
#[derive(Clone, Debug)]
pub struct Along {
    pub direction: Direction,
    /// All of them if this is `None`.
    pub predicates: Option<Vec<PredicateId>>,
    pub valid_at: DateTime<Utc>,
    pub known_at: DateTime<Utc>,
    pub asserted_only: bool,
}

/// A fact that leads from a document of the frontier to another one.
#[derive(Clone, Copy, Debug, sqlx_macros::FromRow)]
pub struct Edge {
    pub id: TripleId,
    pub from: DocumentId,
    pub to: DocumentId,
}

/// The predicate over `triples t` for the facts that are edges.
macro_rules! along {
    () => {
        "t.object_id IS NOT NULL AND t.valid @> $4 AND t.recorded_at <= $5 AND (t.invalidated_at IS NULL OR t.invalidated_at > $5)
         AND ($6::bigint[] IS NULL OR t.predicate_id = ANY($6)) AND (NOT $7 OR t.derived_by IS NULL)
         AND ($1::boolean OR t.zone = ANY($2::bigint[]))"
    };
}

/// The edges from a frontier to documents that exist and that the scope covers, at most `limit`; a step against a direction is made where
/// the search goes backwards.
pub async fn edges(
    conn: &mut PgConnection,
    scope: &Readable,
    frontier: &[DocumentId],
    along: &Along,
    backwards: bool,
    limit: i64,
) -> sqlx::Result<Vec<Edge>> {
    let (out, into) = match (along.direction, backwards) {
        (Direction::Any, _) => (true, true),
        (Direction::Out, false) | (Direction::In, true) => (true, false),
        (Direction::In, false) | (Direction::Out, true) => (false, true),
    };
    let mut arguments = scope.arguments();
    add(&mut arguments, frontier.to_vec());
    add(&mut arguments, along.valid_at);
    add(&mut arguments, along.known_at);
    add(&mut arguments, along.predicates.clone());
    add(&mut arguments, along.asserted_only);
    add(&mut arguments, out);
    add(&mut arguments, into);
    add(&mut arguments, limit);
    sqlx::query_as_with(
        concat!(
            r#"SELECT e.id, e."from", e."to" FROM (
                 SELECT t.id, t.subject_id AS "from", t.object_id AS "to" FROM triples t WHERE $8 AND t.subject_id = ANY($3) AND "#,
            along!(),
            r#" UNION ALL
                 SELECT t.id, t.object_id, t.subject_id FROM triples t WHERE $9 AND t.object_id = ANY($3) AND t.object_id <> t.subject_id AND "#,
            along!(),
            r#") e JOIN documents d ON d.id = e."to" AND "#,
            readable!(),
            " LIMIT $10"
        ),
        arguments,
    )
    .persistent(false)
    .fetch_all(conn)
    .await
}

/// A fact on a path, as it is shown.
#[derive(Clone, Debug, sqlx_macros::FromRow)]
pub struct StepRow {
    pub id: TripleId,
    pub subject_id: DocumentId,
    namespace: String,
    name: String,
    pub object_id: DocumentId,
}

impl StepRow {
    pub fn predicate(&self) -> String {
        predicate_name(&self.namespace, &self.name)
    }
}

/// The facts of paths that [`edges`] found for the same scope.
pub async fn steps(conn: &mut PgConnection, facts: &[TripleId]) -> sqlx::Result<Vec<StepRow>> {
    sqlx::query_as(
        "SELECT t.id, t.subject_id, p.namespace, p.name, t.object_id
           FROM triples t JOIN predicates p ON p.id = t.predicate_id WHERE t.id = ANY($1) AND t.object_id IS NOT NULL",
    )
    .bind(facts)
    .fetch_all(conn)
    .await
}
