//! How many facts there are, and of what kind.
use crate::store::{
    documents::add,
    scope::{Readable, readable},
    triples::{around::Moment, fact_readable},
};
use sqlx::{PgConnection, postgres::PgArguments};
use svc_ids::DocumentId;

/// Facts by what they are.
#[derive(Clone, Copy, Debug, sqlx_macros::FromRow)]
pub struct Counts {
    pub facts: i64,
    pub literals: i64,
    pub derived: i64,
    pub atemporal: i64,
    pub r#static: i64,
    pub dynamic: i64,
    pub predicates: i64,
}

fn arguments(scope: &Readable, moment: &Moment, parent_id: Option<DocumentId>) -> PgArguments {
    let mut arguments = scope.arguments();
    add(&mut arguments, moment.known_at);
    add(&mut arguments, moment.valid_at);
    add(&mut arguments, moment.asserted_only);
    add(&mut arguments, parent_id);
    arguments
}

macro_rules! counted {
    () => {
        concat!(
            "t.recorded_at <= $3 AND (t.invalidated_at IS NULL OR t.invalidated_at > $3) AND t.valid @> $4 AND (NOT $5 OR t.derived_by IS NULL)
             AND ($6::bigint IS NULL OR t.subject_id = $6 OR EXISTS (SELECT FROM documents d WHERE d.id = t.subject_id AND d.path @> ARRAY[$6])) AND ",
            fact_readable!()
        )
    };
}

/// Counts the facts of a moment about documents at and under one, or about all.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = parent_id.map(|id| id.0)))]
pub async fn counts(
    conn: &mut PgConnection,
    scope: &Readable,
    moment: &Moment,
    parent_id: Option<DocumentId>,
) -> sqlx::Result<Counts> {
    let query = concat!(
        "SELECT count(*) AS facts, count(t.object_literal) AS literals, count(t.derived_by) AS derived,
                count(*) FILTER (WHERE t.fact_type = 'atemporal') AS atemporal, count(*) FILTER (WHERE t.fact_type = 'static') AS static,
                count(*) FILTER (WHERE t.fact_type = 'dynamic') AS dynamic, count(DISTINCT t.predicate_id) AS predicates
           FROM triples t WHERE ",
        counted!()
    );
    sqlx::query_as_with(query, arguments(scope, moment, parent_id)).persistent(false).fetch_one(conn).await
}

/// The predicates with the most facts, as namespace, name and count.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = parent_id.map(|id| id.0)))]
pub async fn by_predicate(
    conn: &mut PgConnection,
    scope: &Readable,
    moment: &Moment,
    parent_id: Option<DocumentId>,
    limit: i64,
) -> sqlx::Result<Vec<(String, String, i64)>> {
    let mut arguments = arguments(scope, moment, parent_id);
    add(&mut arguments, limit);
    let query = concat!(
        "SELECT p.namespace, p.name, c.facts FROM (SELECT t.predicate_id, count(*) AS facts FROM triples t WHERE ",
        counted!(),
        " GROUP BY 1) c JOIN predicates p ON p.id = c.predicate_id ORDER BY c.facts DESC, p.namespace, p.name LIMIT $7"
    );
    sqlx::query_as_with(query, arguments).persistent(false).fetch_all(conn).await
}
