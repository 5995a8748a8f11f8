//! Shape bindings: which nodes are held against which shapes.
use super::{
    documents::add,
    scope::{Readable, Writable, readable},
    word::Word,
};
use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use svc_client::wire::ShapeMode;
use svc_ids::{DocumentId, PrincipalId, ShapeBindingId};

#[derive(Clone, Debug, sqlx_macros::FromRow)]
pub struct BindingRow {
    pub id: ShapeBindingId,
    pub ontology_id: DocumentId,
    /// The IRI that the ontology gives itself.
    pub iri: Option<String>,
    /// One shape; `None` for all of the ontology.
    pub shape: Option<String>,
    pub document_id: Option<DocumentId>,
    pub mode: Word<ShapeMode>,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
    /// Whether the caller may read the ontology.
    pub reads_ontology: bool,
    /// Whether facts are held against it, as far as its mode says.
    pub holds: bool,
}

/// Whether facts are held against `shape_bindings b`: what a principal bound holds for as long as that one may write the document, and does no more once it is
/// disabled. Its ontology may be one that nobody else may change.
macro_rules! holds {
    () => {
        "(b.bound_by IS NULL OR EXISTS (SELECT FROM documents t JOIN access_grants g ON g.document_id = ANY (t.path || t.id)
                                          JOIN principals p ON p.id = g.principal_id AND NOT p.disabled
                                         WHERE t.id = b.document_id AND g.principal_id = b.bound_by AND g.can_write))"
    };
}

/// Selects what a caller is shown of `shape_bindings b`, by a further condition: what binds an ontology and a document that it may read, and whatever binds
/// a document that it may write. The first two arguments are those of what it may read, and $3 the guards of what it may write.
macro_rules! shown {
    ($condition:literal) => {
        concat!(
            "SELECT b.id, b.ontology_id, o.iri, b.shape, b.document_id, b.mode, b.created_at, b.updated_at, r.reads_ontology, ",
            holds!(),
            " AS holds
               FROM shape_bindings b JOIN ontologies o ON o.document_id = b.ontology_id
              CROSS JOIN LATERAL (SELECT EXISTS (SELECT FROM documents d WHERE d.id = b.ontology_id AND ",
            readable!(),
            ") AS reads_ontology) r
              WHERE ",
            $condition,
            " AND ($1::boolean
                   OR (r.reads_ontology AND (b.document_id IS NULL OR EXISTS (SELECT FROM documents d WHERE d.id = b.document_id AND ",
            readable!(),
            "))) OR EXISTS (SELECT FROM documents d WHERE d.id = b.document_id AND d.guard = ANY ($3::bigint[])))"
        )
    };
}

/// The ontology that has a shape with this IRI, or the IRI itself, which is then true, as far as the scope covers it: the caller's own before those that
/// are open to all, these before others, and of several the newest. The owner reads what principals keep for themselves, so that none of these is what
/// the owner means by an IRI of theirs.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = document_id.map(|id| id.0)))]
pub async fn source(
    conn: &mut PgConnection,
    scope: &Readable,
    by: Option<PrincipalId>,
    iri: &str,
    document_id: Option<DocumentId>,
) -> sqlx::Result<Option<(DocumentId, bool)>> {
    let mut arguments = scope.arguments();
    add(&mut arguments, iri.to_owned());
    add(&mut arguments, document_id);
    add(&mut arguments, by);
    let query = concat!(
        "SELECT o.document_id, o.shapes @> ARRAY[$3::text] IS NOT TRUE
           FROM ontologies o JOIN documents d ON d.id = o.document_id AND ",
        readable!(),
        " WHERE o.document_id = $4 OR ((o.iri = $3 OR o.shapes @> ARRAY[$3::text]) AND ($5::bigint IS NOT NULL OR o.loaded_by IS NULL OR d.guard = 0))
          ORDER BY o.document_id = $4 DESC NULLS LAST, o.loaded_by IS DISTINCT FROM $5::bigint, d.guard <> 0, o.iri = $3 DESC NULLS LAST,
                   o.document_id DESC LIMIT 1"
    );
    sqlx::query_as_with(query, arguments).persistent(false).fetch_optional(conn).await
}

/// Stores a binding of a principal, or of the owner; `None` if the shape is bound there already.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = document_id.map(|id| id.0), ontology.id = ontology_id.0))]
pub async fn insert(
    conn: &mut PgConnection,
    ontology_id: DocumentId,
    shape: Option<&str>,
    document_id: Option<DocumentId>,
    mode: ShapeMode,
    by: Option<PrincipalId>,
) -> sqlx::Result<Option<ShapeBindingId>> {
    sqlx::query_scalar(
        "INSERT INTO shape_bindings (ontology_id, shape, document_id, mode, bound_by) VALUES ($1, $2, $3, $4, $5)
         ON CONFLICT DO NOTHING RETURNING id",
    )
    .bind(ontology_id)
    .bind(shape)
    .bind(document_id)
    .bind(mode.as_str())
    .bind(by)
    .fetch_optional(conn)
    .await
}

#[tracing::instrument(level = "debug", skip_all, fields(shape_binding.id = id.0))]
pub async fn read(
    conn: &mut PgConnection,
    scope: &Readable,
    writable: &Writable,
    id: ShapeBindingId,
) -> sqlx::Result<Option<BindingRow>> {
    let mut arguments = scope.arguments();
    add(&mut arguments, writable.guards());
    add(&mut arguments, id);
    sqlx::query_as_with(shown!("b.id = $4"), arguments).persistent(false).fetch_optional(conn).await
}

/// Bindings after `after` by id, at most `limit`.
pub async fn page(
    conn: &mut PgConnection,
    scope: &Readable,
    writable: &Writable,
    after: ShapeBindingId,
    limit: u32,
) -> sqlx::Result<Vec<BindingRow>> {
    let mut arguments = scope.arguments();
    add(&mut arguments, writable.guards());
    add(&mut arguments, after);
    add(&mut arguments, i64::from(limit));
    let query = concat!(shown!("b.id > $4"), " ORDER BY b.id LIMIT $5");
    sqlx::query_as_with(query, arguments).persistent(false).fetch_all(conn).await
}

/// Keeps a binding as it is until the transaction ends.
#[tracing::instrument(level = "debug", skip_all, fields(shape_binding.id = id.0))]
pub async fn lock(conn: &mut PgConnection, id: ShapeBindingId) -> sqlx::Result<()> {
    let lock = sqlx::query("SELECT FROM shape_bindings WHERE id = $1 FOR NO KEY UPDATE");
    lock.bind(id).execute(conn).await.map(|_| ())
}

/// Changes what becomes of a write that breaks the shape. With `by`, a principal or the owner, it is as if that one had bound the shape.
#[tracing::instrument(level = "debug", skip_all, fields(shape_binding.id = id.0))]
pub async fn update(
    conn: &mut PgConnection,
    id: ShapeBindingId,
    mode: ShapeMode,
    by: Option<Option<PrincipalId>>,
) -> sqlx::Result<()> {
    sqlx::query(
        "UPDATE shape_bindings SET mode = $2, bound_by = CASE WHEN $3 THEN $4 ELSE bound_by END, updated_at = clock_timestamp() WHERE id = $1",
    )
    .bind(id)
    .bind(mode.as_str())
    .bind(by.is_some())
    .bind(by.flatten())
    .execute(conn)
    .await
    .map(|_| ())
}

#[tracing::instrument(level = "debug", skip_all, fields(shape_binding.id = id.0))]
pub async fn delete(conn: &mut PgConnection, id: ShapeBindingId) -> sqlx::Result<bool> {
    let done = sqlx::query("DELETE FROM shape_bindings WHERE id = $1").bind(id).execute(conn).await?;
    Ok(done.rows_affected() == 1)
}

/// A binding that concerns writes, with those of the written documents that it covers.
#[derive(Clone, Debug, sqlx_macros::FromRow)]
pub struct Concerned {
    pub id: ShapeBindingId,
    pub ontology_id: DocumentId,
    pub shape: Option<String>,
    pub mode: Word<ShapeMode>,
    /// Changes with the text of the ontology, and with what relative IRIs in it are resolved against.
    pub version: String,
    pub documents: Vec<DocumentId>,
}

/// The bindings that are not off, hold and cover some of these documents, by id.
pub async fn concerned(conn: &mut PgConnection, documents: &[DocumentId]) -> sqlx::Result<Vec<Concerned>> {
    // Writers of facts wait meanwhile, so bindings are looked up by each document above, and those of other places are not read.
    sqlx::query_as(concat!(
        "WITH written AS MATERIALIZED (SELECT d.id, d.path || d.id AS places FROM documents d WHERE d.id = ANY($1))
         SELECT b.id, b.ontology_id, b.shape, b.mode, concat(o.content_hash, ' ', n.base) AS version, array_agg(b.written ORDER BY b.written) AS documents
           FROM (SELECT s.*, w.id AS written FROM written w CROSS JOIN LATERAL unnest(w.places) p(id) JOIN shape_bindings s ON s.document_id = p.id
                  UNION ALL
                 SELECT s.*, w.id FROM shape_bindings s CROSS JOIN written w WHERE s.document_id IS NULL) b
           JOIN documents o ON o.id = b.ontology_id JOIN ontologies n ON n.document_id = o.id
          WHERE b.mode <> 'off' AND ",
        holds!(),
        " GROUP BY b.id, b.ontology_id, b.shape, b.mode, o.content_hash, n.base ORDER BY b.id"
    ))
    .bind(documents)
    .persistent(false)
    .fetch_all(conn)
    .await
}
