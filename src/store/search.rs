//! The SQL of the search legs that PostgreSQL runs itself, and the filter that all legs share.
mod expectations;

use super::{
    documents::add,
    scope::{Readable, readable},
};
use chrono::{DateTime, Utc};
pub use expectations::Expectations;
use serde_json::Value;
use sqlx::{PgConnection, postgres::PgArguments};
use svc_ids::DocumentId;

/// Up to about this many eligible documents are compared exactly; above, the HNSW index may propose candidates.
pub const EXACT_LIMIT: i64 = 10_000;

/// What a search may return.
#[derive(Clone, Debug, Default)]
pub struct Eligible {
    pub scope: Readable,
    pub parent_id: Option<DocumentId>,
    pub usetypes: Option<Vec<String>>,
    pub excluded_usetypes: Vec<String>,
    pub event_time: (Option<DateTime<Utc>>, Option<DateTime<Utc>>),
    pub created_at: (Option<DateTime<Utc>>, Option<DateTime<Utc>>),
    pub structured_content: Option<Value>,
}

/// The predicate over `documents d`; its arguments are $1 to $10, from [`Eligible::arguments`].
macro_rules! eligible {
    () => {
        concat!(
            "d.settled = 'settled' AND ", readable!(),
            " AND ($3::bigint IS NULL OR d.path @> ARRAY[$3::bigint]) AND ($4::text[] IS NULL OR d.usetype = ANY($4::text[])) AND d.usetype <> ALL($5::text[])
              AND ($6::timestamptz IS NULL OR d.event_time >= $6) AND ($7::timestamptz IS NULL OR d.event_time < $7)
              AND ($8::timestamptz IS NULL OR d.created_at >= $8) AND ($9::timestamptz IS NULL OR d.created_at < $9)
              AND ($10::jsonb IS NULL OR d.structured_content @> $10::jsonb)"
        )
    };
}
pub(super) use eligible;

impl Eligible {
    /// Whether everything is eligible but for some usetypes.
    pub fn is_open(&self) -> bool {
        self.scope.is_everything()
            && self.parent_id.is_none()
            && self.usetypes.is_none()
            && self.event_time == (None, None)
            && self.created_at == (None, None)
            && self.structured_content.is_none()
    }

    pub(super) fn arguments(&self) -> PgArguments {
        let mut arguments = self.scope.arguments();
        add(&mut arguments, self.parent_id);
        add(&mut arguments, self.usetypes.clone());
        add(&mut arguments, self.excluded_usetypes.clone());
        add(&mut arguments, self.event_time.0);
        add(&mut arguments, self.event_time.1);
        add(&mut arguments, self.created_at.0);
        add(&mut arguments, self.created_at.1);
        add(&mut arguments, self.structured_content.clone());
        arguments
    }
}

/// What the planner expects of a filter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Expected {
    /// How many documents are eligible.
    pub eligible: f64,
    /// How many documents there are.
    pub all: f64,
}

impl Expected {
    /// The share of the documents that are eligible: at most 1, and more than 0.
    pub fn share(&self) -> f64 {
        (self.eligible / self.all.max(1.0)).clamp(1e-6, 1.0)
    }
}

/// How many documents the planner expects to be eligible. That takes no longer however many there are, and is as true
/// as the statistics of the table, so that the choice of a way may depend on it, but no result.
pub async fn expected(conn: &mut PgConnection, eligible: &Eligible) -> sqlx::Result<Expected> {
    let plan: Value = sqlx::query_scalar_with(
        concat!("EXPLAIN (FORMAT JSON) SELECT FROM documents d WHERE ", eligible!()),
        eligible.arguments(),
    )
    .fetch_one(&mut *conn)
    .await?;
    let eligible = plan.pointer("/0/Plan/Plan Rows").and_then(Value::as_f64).unwrap_or_default();
    let all: f32 =
        sqlx::query_scalar("SELECT reltuples FROM pg_class WHERE oid = 'documents'::regclass").fetch_one(conn).await?;
    // A table that was never analysed has no such number.
    Ok(Expected { eligible, all: f64::from(all).max(eligible) })
}

/// The ids of the eligible documents, if they are at most [`EXACT_LIMIT`]. The statement is planned for this very
/// filter; the other statements of the transaction are not.
pub async fn ids_of_few(conn: &mut PgConnection, eligible: &Eligible) -> sqlx::Result<Option<Vec<DocumentId>>> {
    sqlx::query("SET LOCAL plan_cache_mode = force_custom_plan").execute(&mut *conn).await?;
    let mut arguments = eligible.arguments();
    add(&mut arguments, EXACT_LIMIT + 1);
    let ids: Vec<DocumentId> =
        sqlx::query_scalar_with(concat!("SELECT d.id FROM documents d WHERE ", eligible!(), " LIMIT $11"), arguments)
            .fetch_all(&mut *conn)
            .await?;
    sqlx::query("SET LOCAL plan_cache_mode TO DEFAULT").execute(conn).await?;
    Ok((ids.len() as i64 <= EXACT_LIMIT).then_some(ids))
}

/// Leaves out the documents that are not eligible.
pub async fn verify(conn: &mut PgConnection, eligible: &Eligible, ids: &[DocumentId]) -> sqlx::Result<Vec<DocumentId>> {
    let mut arguments = eligible.arguments();
    add(&mut arguments, ids.to_vec());
    sqlx::query_scalar_with(concat!("SELECT d.id FROM documents d WHERE d.id = ANY($11) AND ", eligible!()), arguments)
        .fetch_all(conn)
        .await
}

/// Whether an index helps with a web-style query: a word must occur, or the query has no words and finds nothing. A
/// query that only forbids words, or offers that as a choice, matches nearly everything.
pub async fn asks(conn: &mut PgConnection, query: &str) -> sqlx::Result<bool> {
    sqlx::query_scalar(
        "SELECT numnode(q) = 0 OR querytree(q) NOT IN ('', 'T') FROM websearch_to_tsquery('english', $1) q",
    )
    .bind(query)
    .fetch_one(conn)
    .await
}

/// Eligible documents that match a web-style query, by cover density, equal ones by id; and how many match in all.
pub async fn fulltext(
    conn: &mut PgConnection,
    eligible: &Eligible,
    query: &str,
    limit: i64,
) -> sqlx::Result<(Vec<(DocumentId, f64)>, i64)> {
    let mut arguments = eligible.arguments();
    add(&mut arguments, query.to_owned());
    add(&mut arguments, limit);
    let rows: Vec<(DocumentId, f64, i64)> = sqlx::query_as_with(
        concat!(
            "SELECT d.id, ts_rank_cd(w.words, q)::float8 AS score, count(*) OVER ()
               FROM websearch_to_tsquery('english', $11) q, document_words w JOIN documents d ON d.id = w.document_id WHERE ", eligible!(),
            " AND w.words @@ q ORDER BY score DESC, d.id LIMIT $12"
        ),
        arguments,
    )
    .fetch_all(conn)
    .await?;
    let count = rows.first().map_or(0, |(_, _, count)| *count);
    Ok((rows.into_iter().map(|(id, score, _)| (id, score)).collect(), count))
}
