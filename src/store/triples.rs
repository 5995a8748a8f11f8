//! Facts over two times, as they are read. `triples/write.rs` writes them, `triples/follow.rs` has them follow their documents, and
//! `triples/paths.rs` reads them as a graph.
pub mod around;
mod citations;
pub mod derived;
pub mod export;
pub mod follow;
pub mod paths;
pub mod write;

use super::{
    documents::add,
    merges,
    scope::{Readable, readable},
    text::Verbatim,
    word::Word,
};
use chrono::{DateTime, Utc};
pub use citations::sizes;
use sqlx::{PgConnection, postgres::PgArguments};
use std::collections::{HashMap, HashSet};
use svc_client::wire::{FactResponse, FactType, predicate_name};
use svc_ids::{DocumentId, PredicateId, TripleId};
use uuid::Uuid;

/// The predicate over `triples t` for what a caller may read; its arguments are $1 and $2. Facts whose ends are gone are the owner's alone.
macro_rules! fact_readable {
    () => {
        concat!(
            "($1::boolean OR (t.zone = ANY($2::bigint[]) AND EXISTS (SELECT FROM documents d WHERE d.id = t.subject_id AND ",
            readable!(),
            ") AND (t.object_id IS NULL OR EXISTS (SELECT FROM documents d WHERE d.id = t.object_id AND ",
            readable!(),
            "))))"
        )
    };
}
pub(super) use fact_readable;

/// A fact, with its predicate's name.
#[derive(Clone, Debug, sqlx_macros::FromRow)]
pub struct FactRow {
    pub id: TripleId,
    pub zone: DocumentId,
    pub subject_id: DocumentId,
    pub predicate_id: PredicateId,
    namespace: String,
    name: String,
    pub object_id: Option<DocumentId>,
    pub object_literal: Option<Verbatim>,
    pub object_datatype: Option<String>,
    pub object_language: Option<String>,
    pub statement: Uuid,
    pub valid_from: Option<DateTime<Utc>>,
    pub valid_until: Option<DateTime<Utc>>,
    pub fact_type: Word<FactType>,
    pub source_id: Option<DocumentId>,
    pub created_at: DateTime<Utc>,
    recorded_at: DateTime<Utc>,
    pub invalidated_at: Option<DateTime<Utc>>,
    pub invalidated_by: Option<TripleId>,
    invalidation: Option<String>,
    previous_id: Option<TripleId>,
    pub derived_by: Option<String>,
}

macro_rules! columns {
    () => {
        "t.id, t.zone, t.subject_id, t.predicate_id, p.namespace, p.name, t.object_id, t.object_literal, t.object_datatype,
         t.object_language, t.statement, t.valid_from, t.valid_until, t.fact_type, t.source_id, t.created_at, t.recorded_at,
         t.invalidated_at, t.invalidated_by, t.invalidation, t.previous_id, t.derived_by"
    };
}

/// Which facts are read.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Any of these, which are taken for one.
    pub subjects: Option<Vec<DocumentId>>,
    pub predicate_id: Option<PredicateId>,
    pub objects: Option<Vec<DocumentId>>,
    pub object_literal: Option<String>,
    pub source_id: Option<i64>,
    pub parent_id: Option<i64>,
    pub fact_type: Option<FactType>,
    pub invalidated: bool,
    /// What rules derived, or what somebody asserted; `None` for both.
    pub derived: Option<bool>,
    /// `None` for all times.
    pub valid_at: Option<DateTime<Utc>>,
}

/// The last moment that the store has recorded something at, as this transaction sees it.
pub async fn known_to(conn: &mut PgConnection) -> sqlx::Result<DateTime<Utc>> {
    sqlx::query_scalar("SELECT at FROM knowledge_clock").fetch_one(conn).await
}

/// The same without what this transaction has recorded itself.
pub async fn known_before(conn: &mut PgConnection) -> sqlx::Result<DateTime<Utc>> {
    sqlx::query_scalar(
        "SELECT CASE WHEN xmin = pg_current_xact_id_if_assigned()::xid THEN before ELSE at END FROM knowledge_clock",
    )
    .fetch_one(conn)
    .await
}

/// A page of the facts that the scope covers, as their ids in their order, of those that were known at a time.
pub async fn page(
    conn: &mut PgConnection,
    scope: &Readable,
    wanted: &Wanted,
    known_at: DateTime<Utc>,
    after: TripleId,
    limit: u32,
) -> sqlx::Result<Vec<TripleId>> {
    let mut arguments = scope.arguments();
    add(&mut arguments, known_at);
    add(&mut arguments, after);
    add(&mut arguments, i64::from(limit));
    add(&mut arguments, wanted.subjects.clone());
    add(&mut arguments, wanted.predicate_id);
    add(&mut arguments, wanted.objects.clone());
    add(&mut arguments, wanted.object_literal.clone().map(Verbatim));
    add(&mut arguments, wanted.source_id);
    add(&mut arguments, wanted.parent_id);
    add(&mut arguments, wanted.fact_type.map(FactType::as_str));
    add(&mut arguments, wanted.invalidated);
    add(&mut arguments, wanted.derived);
    add(&mut arguments, wanted.valid_at);
    // The planner sees the values, and chooses the index of what is given.
    sqlx::query_scalar_with(
        concat!(
            "SELECT t.id FROM triples t
               WHERE t.id > $4 AND t.recorded_at <= $3
                 AND CASE WHEN $13 THEN t.invalidated_at <= $3 ELSE (t.invalidated_at IS NULL OR t.invalidated_at > $3) END
                 AND ($6::bigint[] IS NULL OR t.subject_id = ANY($6)) AND ($7::bigint IS NULL OR t.predicate_id = $7)
                 AND ($8::bigint[] IS NULL OR t.object_id = ANY($8)) AND ($9::text IS NULL OR t.object_literal = $9)
                 AND ($10::bigint IS NULL OR t.id = ANY(ARRAY(SELECT c.triple_id FROM triple_citations c WHERE c.document_id = $10 AND c.cited_at <= $3)))
                 AND ($11::bigint IS NULL OR t.subject_id = $11 OR EXISTS (SELECT FROM documents d WHERE d.id = t.subject_id AND d.path @> ARRAY[$11]))
                 AND ($12::text IS NULL OR t.fact_type = $12) AND ($14::boolean IS NULL OR (t.derived_by IS NOT NULL) = $14)
                 AND ($15::timestamptz IS NULL OR t.valid @> $15) AND ",
            fact_readable!(),
            " ORDER BY t.id LIMIT $5"
        ),
        arguments,
    )
    .persistent(false)
    .fetch_all(conn)
    .await
}

impl FactRow {
    /// Shows a fact as it was before what became of it later.
    fn forget_after(&mut self, known_at: DateTime<Utc>) {
        if self.invalidated_at.is_some_and(|at| at > known_at) {
            (self.invalidated_at, self.invalidated_by, self.invalidation) = (None, None, None);
        }
    }
}

fn of_ids(scope: &Readable, ids: &[TripleId]) -> PgArguments {
    let mut arguments = scope.arguments();
    add(&mut arguments, ids.to_vec());
    arguments
}

/// The facts among `ids` that the scope covers, by id.
pub async fn read_many(conn: &mut PgConnection, scope: &Readable, ids: &[TripleId]) -> sqlx::Result<Vec<FactRow>> {
    sqlx::query_as_with(
        concat!(
            "SELECT ",
            columns!(),
            " FROM triples t JOIN predicates p ON p.id = t.predicate_id WHERE t.id = ANY($3) AND ",
            fact_readable!(),
            " ORDER BY t.id"
        ),
        of_ids(scope, ids),
    )
    .fetch_all(conn)
    .await
}

/// The ids of the rows of the statement of a fact, after `after`.
#[tracing::instrument(level = "debug", skip_all, fields(triple.id = fact.id.0))]
pub async fn history(
    conn: &mut PgConnection,
    scope: &Readable,
    fact: &FactRow,
    after: TripleId,
    limit: u32,
) -> sqlx::Result<Vec<TripleId>> {
    let mut arguments = scope.arguments();
    add(&mut arguments, fact.subject_id);
    add(&mut arguments, fact.predicate_id);
    add(&mut arguments, fact.statement);
    add(&mut arguments, fact.zone);
    add(&mut arguments, after);
    add(&mut arguments, i64::from(limit));
    sqlx::query_scalar_with(
        concat!(
            "SELECT t.id FROM triples t
               WHERE t.subject_id = $3 AND t.predicate_id = $4 AND t.statement = $5 AND t.zone = $6 AND t.id > $7 AND ",
            fact_readable!(),
            " ORDER BY t.id LIMIT $8"
        ),
        arguments,
    )
    .fetch_all(conn)
    .await
}

/// What facts are to be shown as: their citations, their premises, what they are left of and what took their place, as far as the scope covers these;
/// at a time that was known all of it is as it was then.
pub async fn shown(
    conn: &mut PgConnection,
    scope: &Readable,
    mut rows: Vec<FactRow>,
    known_at: Option<DateTime<Utc>>,
) -> sqlx::Result<Vec<FactResponse>> {
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    if let Some(known_at) = known_at {
        rows.iter_mut().for_each(|row| row.forget_after(known_at));
    }
    let ids: Vec<TripleId> = rows.iter().map(|row| row.id).collect();
    let mut citations = citations::read(conn, scope, &ids, known_at).await?;
    let derived: Vec<TripleId> = rows.iter().filter(|row| row.derived_by.is_some()).map(|row| row.id).collect();
    let mut premises = match derived.is_empty() {
        true => HashMap::new(),
        false => derived::premises(conn, scope, &derived, known_at).await?,
    };
    let others: Vec<TripleId> = rows.iter().flat_map(|row| [row.invalidated_by, row.previous_id]).flatten().collect();
    let visible: HashSet<TripleId> = match others.is_empty() || scope.is_everything() {
        true => others.into_iter().collect(),
        false => sqlx::query_scalar_with(
            concat!("SELECT t.id FROM triples t WHERE t.id = ANY($3) AND ", fact_readable!()),
            of_ids(scope, &others),
        )
        .fetch_all(&mut *conn)
        .await?
        .into_iter()
        .collect(),
    };
    let known_at = match known_at {
        Some(known_at) => known_at,
        None => known_to(conn).await?,
    };
    let ends: Vec<DocumentId> = rows.iter().flat_map(|row| [Some(row.subject_id), row.object_id]).flatten().collect();
    let named = merges::named(conn, scope, &ends, known_at).await?;
    let canonical = |id: DocumentId| named.get(&id).copied().unwrap_or(id).0;
    let stated = |id: DocumentId| named.contains_key(&id).then_some(id.0);
    let show = |row: FactRow| FactResponse {
        id: row.id.0,
        subject_id: canonical(row.subject_id),
        stated_subject_id: stated(row.subject_id),
        predicate_id: row.predicate_id.0,
        predicate: predicate_name(&row.namespace, &row.name),
        object_id: row.object_id.map(canonical),
        stated_object_id: row.object_id.and_then(stated),
        object_literal: row.object_literal.map(|literal| literal.0),
        object_datatype: row.object_datatype,
        object_language: row.object_language,
        valid_from: row.valid_from,
        valid_until: row.valid_until,
        fact_type: row.fact_type.0,
        source_id: row.source_id.map(|id| id.0),
        created_at: row.created_at,
        recorded_at: row.recorded_at,
        invalidated_at: row.invalidated_at,
        invalidated_by: row.invalidated_by.filter(|id| visible.contains(id)).map(|id| id.0),
        invalidation: row.invalidation,
        previous_id: row.previous_id.filter(|id| visible.contains(id)).map(|id| id.0),
        derived_by: row.derived_by,
        premises: premises.remove(&row.id).unwrap_or_default(),
        citations: citations.remove(&row.id).unwrap_or_default(),
    };
    Ok(rows.into_iter().map(show).collect())
}
