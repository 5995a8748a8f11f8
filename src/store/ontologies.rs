//! Ontologies: the documents that hold their texts, and what was read from these.
use super::{
    documents::add,
    scope::{Readable, Writable, readable},
};
use chrono::{DateTime, Utc};
use serde::Serialize;
use sqlx::{PgConnection, types::Json};
use std::collections::BTreeMap;
use svc_ids::{DocumentId, PredicateId, PrincipalId};

#[derive(Clone, Debug, sqlx_macros::FromRow)]
pub struct OntologyRow {
    pub document_id: DocumentId,
    pub iri: Option<String>,
    pub title: String,
    pub classes: i32,
    pub predicates: i32,
    pub shapes: Vec<String>,
    pub facts: i32,
    pub not_used: Json<BTreeMap<String, u32>>,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

macro_rules! columns {
    () => {
        "o.document_id, o.iri, d.title, o.classes, o.predicates, o.shapes, o.facts, o.not_used, o.created_at, o.updated_at"
    };
}

/// What was read from the text of an ontology.
#[derive(Clone, Debug)]
pub struct Loaded<'a> {
    /// `None` for the owner.
    pub by: Option<PrincipalId>,
    pub iri: Option<&'a str>,
    /// What relative IRIs of the text are resolved against.
    pub base: Option<&'a str>,
    pub predicates: usize,
    pub shapes: &'a [String],
    pub facts: usize,
    pub not_used: &'a BTreeMap<String, u32>,
    pub classes: &'a [DocumentId],
}

/// Keeps other loads of the same ontology away until the transaction ends.
pub async fn hold(conn: &mut PgConnection, iri: &str) -> sqlx::Result<()> {
    sqlx::query("SELECT pg_advisory_xact_lock(hashtextextended($1, 1))").bind(iri).execute(conn).await.map(|_| ())
}

/// The ontology with this IRI that somebody loaded under a document, or at the top, if the scope covers it. What is to be private takes the place
/// of nothing that others may read.
pub async fn find(
    conn: &mut PgConnection,
    scope: &Writable,
    loaded_by: Option<PrincipalId>,
    iri: &str,
    parent_id: Option<i64>,
    is_private: bool,
) -> sqlx::Result<Option<DocumentId>> {
    let mut arguments = scope.arguments();
    add(&mut arguments, iri.to_owned());
    add(&mut arguments, parent_id);
    add(&mut arguments, loaded_by);
    add(&mut arguments, is_private);
    let query = concat!(
        "SELECT o.document_id FROM ontologies o JOIN documents d ON d.id = o.document_id AND ",
        readable!(),
        " WHERE o.iri = $3 AND d.parent_id IS NOT DISTINCT FROM $4 AND o.loaded_by IS NOT DISTINCT FROM $5
            AND (NOT $6 OR d.guard = d.id) ORDER BY o.document_id LIMIT 1"
    );
    sqlx::query_scalar_with(query, arguments).persistent(false).fetch_optional(conn).await
}

/// Records what was read from the text of a document that the caller has just written.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = id.0))]
pub async fn record(conn: &mut PgConnection, id: DocumentId, loaded: &Loaded<'_>) -> sqlx::Result<()> {
    let count = |count: usize| i32::try_from(count).unwrap_or(i32::MAX);
    sqlx::query(
        "INSERT INTO ontologies (document_id, iri, classes, predicates, shapes, facts, not_used, base, loaded_by) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
         ON CONFLICT (document_id) DO UPDATE SET iri = excluded.iri, base = excluded.base, classes = excluded.classes, predicates = excluded.predicates,
                shapes = excluded.shapes, facts = excluded.facts, not_used = excluded.not_used, updated_at = clock_timestamp()",
    )
    .bind(id)
    .bind(loaded.iri)
    .bind(count(loaded.classes.len()))
    .bind(count(loaded.predicates))
    .bind(loaded.shapes)
    .bind(count(loaded.facts))
    .bind(Json(loaded.not_used))
    .bind(loaded.base)
    .bind(loaded.by)
    .execute(&mut *conn)
    .await?;
    sqlx::query("DELETE FROM ontology_classes WHERE ontology_id = $1 AND document_id <> ALL($2)")
        .bind(id)
        .bind(loaded.classes)
        .persistent(false)
        .execute(&mut *conn)
        .await?;
    sqlx::query("INSERT INTO ontology_classes (ontology_id, document_id) SELECT $1, c FROM unnest($2::bigint[]) c ON CONFLICT DO NOTHING")
        .bind(id)
        .bind(loaded.classes)
        .execute(conn)
        .await
        .map(|_| ())
}

#[tracing::instrument(level = "debug", skip_all, fields(document.id = id.0))]
pub async fn read(conn: &mut PgConnection, scope: &Readable, id: DocumentId) -> sqlx::Result<Option<OntologyRow>> {
    let mut arguments = scope.arguments();
    add(&mut arguments, id);
    let query = concat!(
        "SELECT ",
        columns!(),
        " FROM ontologies o JOIN documents d ON d.id = o.document_id WHERE o.document_id = $3 AND ",
        readable!()
    );
    sqlx::query_as_with(query, arguments).persistent(false).fetch_optional(conn).await
}

/// Ontologies after `after` by id, at most `limit`.
pub async fn page(
    conn: &mut PgConnection,
    scope: &Readable,
    after: DocumentId,
    limit: u32,
) -> sqlx::Result<Vec<OntologyRow>> {
    let mut arguments = scope.arguments();
    add(&mut arguments, after);
    add(&mut arguments, i64::from(limit));
    let query = concat!(
        "SELECT ",
        columns!(),
        " FROM ontologies o JOIN documents d ON d.id = o.document_id WHERE o.document_id > $3 AND ",
        readable!(),
        " ORDER BY o.document_id LIMIT $4"
    );
    sqlx::query_as_with(query, arguments).persistent(false).fetch_all(conn).await
}

/// A class of an ontology.
#[derive(Clone, Debug, sqlx_macros::FromRow)]
pub struct ClassRow {
    pub document_id: DocumentId,
    pub iri: Option<String>,
    pub title: String,
}

/// The classes of an ontology after `after` by id, at most `limit`.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = id.0))]
pub async fn classes(
    conn: &mut PgConnection,
    scope: &Readable,
    id: DocumentId,
    after: DocumentId,
    limit: u32,
) -> sqlx::Result<Vec<ClassRow>> {
    let mut arguments = scope.arguments();
    add(&mut arguments, id);
    add(&mut arguments, after);
    add(&mut arguments, i64::from(limit));
    let query = concat!(
        "SELECT c.document_id, n.iri, d.title FROM ontology_classes c JOIN documents d ON d.id = c.document_id
           LEFT JOIN graph_nodes n ON n.document_id = c.document_id
          WHERE c.ontology_id = $3 AND c.document_id > $4 AND ",
        readable!(),
        " ORDER BY c.document_id LIMIT $5"
    );
    sqlx::query_as_with(query, arguments).persistent(false).fetch_all(conn).await
}

/// The text of an ontology and what relative IRIs in it are resolved against, whoever asks.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = id.0))]
pub async fn text(conn: &mut PgConnection, id: DocumentId) -> sqlx::Result<Option<(String, Option<String>)>> {
    sqlx::query_as(
        "SELECT d.content, o.base FROM ontologies o JOIN documents d ON d.id = o.document_id WHERE o.document_id = $1",
    )
    .bind(id)
    .fetch_optional(conn)
    .await
}

/// What an ontology says of a predicate.
#[derive(Clone, Debug, Serialize)]
pub struct Described {
    pub id: PredicateId,
    pub label: Option<String>,
    pub description: Option<String>,
    pub functional: bool,
    pub inverse_functional: bool,
    pub symmetric: bool,
    pub asymmetric: bool,
    pub transitive: bool,
    pub irreflexive: bool,
    pub inverse_of: Option<PredicateId>,
    pub sub_property_of: Vec<PredicateId>,
    pub disjoint_with: Vec<PredicateId>,
    /// By their IRIs.
    pub domains: Vec<String>,
    pub ranges: Vec<String>,
}

/// Has an ontology say this of predicates, and no longer what it said before. Returns the predicates that it may say nothing of: what somebody
/// created by hand is the owner's to describe.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = id.0))]
pub async fn describe(
    conn: &mut PgConnection,
    id: DocumentId,
    described: &[Described],
    is_owner: bool,
) -> sqlx::Result<Vec<PredicateId>> {
    let ids: Vec<PredicateId> = described.iter().map(|predicate| predicate.id).collect();
    let refused: Vec<PredicateId> =
        sqlx::query_scalar("SELECT id FROM predicates WHERE id = ANY($1) AND is_declared AND NOT $2")
            .bind(&ids)
            .bind(is_owner)
            .persistent(false)
            .fetch_all(&mut *conn)
            .await?;
    sqlx::query("DELETE FROM ontology_predicates WHERE ontology_id = $1 AND (predicate_id <> ALL($2) OR predicate_id = ANY($3))")
        .bind(id)
        .bind(&ids)
        .bind(&refused)
        .persistent(false)
        .execute(&mut *conn)
        .await?;
    sqlx::query(
        "INSERT INTO ontology_predicates (ontology_id, predicate_id, label, description, is_functional, is_inverse_functional, is_symmetric, is_asymmetric,
                is_transitive, is_irreflexive, inverse_of, sub_property_of, disjoint_with, domains, ranges)
         SELECT $1, g.id, g.label, g.description, g.functional, g.inverse_functional, g.\"symmetric\", g.\"asymmetric\", g.transitive, g.irreflexive,
                g.inverse_of, g.sub_property_of, g.disjoint_with, g.domains, g.ranges
           FROM jsonb_to_recordset($2) g(id bigint, label text, description text, functional boolean, inverse_functional boolean,
                \"symmetric\" boolean, \"asymmetric\" boolean, transitive boolean, irreflexive boolean, inverse_of bigint, sub_property_of bigint[],
                disjoint_with bigint[], domains text[], ranges text[])
          WHERE g.id <> ALL($3)
         ON CONFLICT (ontology_id, predicate_id) DO UPDATE SET label = excluded.label, description = excluded.description,
                is_functional = excluded.is_functional, is_inverse_functional = excluded.is_inverse_functional, is_symmetric = excluded.is_symmetric,
                is_asymmetric = excluded.is_asymmetric, is_transitive = excluded.is_transitive, is_irreflexive = excluded.is_irreflexive,
                inverse_of = excluded.inverse_of, sub_property_of = excluded.sub_property_of, disjoint_with = excluded.disjoint_with,
                domains = excluded.domains, ranges = excluded.ranges",
    )
    .bind(id)
    .bind(Json(described))
    .bind(&refused)
    .persistent(false)
    .execute(&mut *conn)
    .await?;
    // What an open ontology describes is there for all to see, and no two of it have one name.
    sqlx::query(
        "UPDATE predicates p SET is_declared = true, updated_at = clock_timestamp(),
                name = CASE WHEN n.nth > 1 OR EXISTS (SELECT FROM predicates o WHERE o.is_declared AND o.namespace = p.namespace AND o.name = p.name)
                            THEN left(p.name, 160) || '-' || left(encode(sha256(convert_to(coalesce(p.iri, p.id::text), 'UTF8')), 'hex'), 16) ELSE p.name END
           FROM (SELECT id, row_number() OVER (PARTITION BY namespace, name ORDER BY id) AS nth FROM predicates WHERE id = ANY($2) AND NOT is_declared) n
          WHERE p.id = n.id AND (SELECT d.guard = 0 FROM documents d WHERE d.id = $1)",
    )
    .bind(id)
    .bind(&ids)
    .execute(conn)
    .await?;
    Ok(refused)
}

/// What an ontology says of a predicate, with the names that the predicate has.
#[derive(Clone, Debug, sqlx_macros::FromRow)]
pub struct SaidRow {
    pub ontology_id: DocumentId,
    pub predicate_id: PredicateId,
    pub label: Option<String>,
    pub description: Option<String>,
    pub is_functional: bool,
    pub is_inverse_functional: bool,
    pub is_symmetric: bool,
    pub is_asymmetric: bool,
    pub is_transitive: bool,
    pub is_irreflexive: bool,
    pub inverse_of: Option<PredicateId>,
    pub sub_property_of: Vec<PredicateId>,
    pub disjoint_with: Vec<PredicateId>,
    pub domains: Vec<String>,
    pub ranges: Vec<String>,
}

/// What the ontologies that the scope covers say of predicates, by both, after a place, at most `limit`.
pub async fn said(
    conn: &mut PgConnection,
    scope: &Readable,
    after: (DocumentId, PredicateId),
    limit: i64,
) -> sqlx::Result<Vec<SaidRow>> {
    let mut arguments = scope.arguments();
    add(&mut arguments, after.0);
    add(&mut arguments, after.1);
    add(&mut arguments, limit);
    let query = concat!(
        "SELECT a.* FROM ontology_predicates a JOIN documents d ON d.id = a.ontology_id AND ",
        readable!(),
        " WHERE (a.ontology_id, a.predicate_id) > ($3, $4) ORDER BY a.ontology_id, a.predicate_id LIMIT $5"
    );
    sqlx::query_as_with(query, arguments).persistent(false).fetch_all(conn).await
}
