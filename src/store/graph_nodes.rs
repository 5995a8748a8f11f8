//! The documents that stand for nodes of imported graphs, by their IRIs. The same IRI may stand in several zones, once in each.
use super::{
    documents::add,
    scope::{Readable, Writable, readable},
};
use sqlx::PgConnection;
use svc_ids::{DocumentId, PrincipalId};

/// Keeps other imports into a zone away until the transaction ends, so that no IRI gets two documents there.
#[tracing::instrument(level = "debug", skip_all, fields(zone.id = zone.0))]
pub async fn hold_zone(conn: &mut PgConnection, zone: DocumentId) -> sqlx::Result<()> {
    sqlx::query("SELECT pg_advisory_xact_lock(hashtextextended('graph_nodes', $1))")
        .bind(zone)
        .execute(conn)
        .await
        .map(|_| ())
}

/// The documents of a zone that have these IRIs, by the positions of the IRIs, from 1.
#[tracing::instrument(level = "debug", skip_all, fields(zone.id = zone.0))]
pub async fn in_zone(conn: &mut PgConnection, zone: DocumentId, iris: &[&str]) -> sqlx::Result<Vec<(i64, DocumentId)>> {
    sqlx::query_as(
        "SELECT n.at, min(g.document_id) FROM unnest($1::text[]) WITH ORDINALITY n(iri, at) JOIN graph_nodes g ON g.iri = n.iri
           JOIN documents d ON d.id = g.document_id AND d.guard = $2 GROUP BY n.at",
    )
    .bind(iris)
    .bind(zone)
    .fetch_all(conn)
    .await
}

/// A document that an IRI stands for.
#[derive(Clone, Copy, Debug, sqlx_macros::FromRow)]
pub struct Resolved {
    /// The position of the IRI, from 1.
    pub at: i64,
    pub id: DocumentId,
    /// Not everybody may read it, and neither a source beside it nor the lack of another one says that it is meant.
    pub is_doubtful: bool,
}

/// The documents in the scope that have these IRIs: those beside the source before those that are open to all, and these before others. Of
/// those that are closed, one that no source stands beside is doubtful, unless it is the only one of a principal: whoever may read it would read
/// what is said of it. The owner reads what principals keep for themselves, so that none of these is what the owner means.
pub async fn resolve(
    conn: &mut PgConnection,
    scope: &Readable,
    iris: &[&str],
    sources: &[Option<i64>],
) -> sqlx::Result<Vec<Resolved>> {
    let mut arguments = scope.arguments();
    add(&mut arguments, iris.iter().map(|iri| (*iri).to_owned()).collect::<Vec<_>>());
    add(&mut arguments, sources.to_vec());
    let query = concat!(
        "SELECT DISTINCT ON (f.at) f.at, f.id, f.guard <> 0 AND NOT f.is_beside AND ($1 OR f.places > 1) AS is_doubtful
           FROM (SELECT n.at, d.id, d.guard, d.guard IS NOT DISTINCT FROM s.guard AS is_beside, count(*) OVER (PARTITION BY n.at) AS places
                   FROM unnest($3::text[], $4::bigint[]) WITH ORDINALITY n(iri, source_id, at) JOIN graph_nodes g ON g.iri = n.iri
                   JOIN documents d ON d.id = g.document_id AND ",
        readable!(),
        "       LEFT JOIN documents s ON s.id = n.source_id) f
          ORDER BY f.at, NOT f.is_beside, f.guard <> 0, f.id"
    );
    sqlx::query_as_with(query, arguments).persistent(false).fetch_all(conn).await
}

/// A document of an archive that an IRI stands for.
#[derive(Clone, Copy, Debug, sqlx_macros::FromRow)]
pub struct Brought {
    /// The position of the IRI, from 1.
    pub at: i64,
    pub id: DocumentId,
    pub guard: DocumentId,
}

/// The documents in the scope that have these IRIs and that a principal, or the owner, created with keys that begin so; those that are open to all
/// come first.
pub async fn brought(
    conn: &mut PgConnection,
    scope: &Readable,
    iris: &[&str],
    creator: Option<PrincipalId>,
    keys: &str,
) -> sqlx::Result<Vec<Brought>> {
    let mut arguments = scope.arguments();
    add(&mut arguments, iris.iter().map(|iri| (*iri).to_owned()).collect::<Vec<_>>());
    add(&mut arguments, creator);
    add(&mut arguments, keys.to_owned());
    let query = concat!(
        "SELECT n.at, d.id, d.guard FROM unnest($3::text[]) WITH ORDINALITY n(iri, at) JOIN graph_nodes g ON g.iri = n.iri
           JOIN document_keys k ON k.document_id = g.document_id AND k.principal_id IS NOT DISTINCT FROM $4::bigint AND starts_with(k.key, $5)
           JOIN documents d ON d.id = g.document_id AND ",
        readable!(),
        " ORDER BY n.at, d.guard <> 0, d.id"
    );
    sqlx::query_as_with(query, arguments).persistent(false).fetch_all(conn).await
}

/// All documents in the scope that have these IRIs, by the positions of the IRIs, from 1.
pub async fn all(conn: &mut PgConnection, scope: &Readable, iris: &[&str]) -> sqlx::Result<Vec<(i64, DocumentId)>> {
    let mut arguments = scope.arguments();
    add(&mut arguments, iris.iter().map(|iri| (*iri).to_owned()).collect::<Vec<_>>());
    let query = concat!(
        "SELECT n.at, g.document_id FROM unnest($3::text[]) WITH ORDINALITY n(iri, at) JOIN graph_nodes g ON g.iri = n.iri
           JOIN documents d ON d.id = g.document_id AND ",
        readable!(),
        " ORDER BY n.at, g.document_id"
    );
    sqlx::query_as_with(query, arguments).persistent(false).fetch_all(conn).await
}

/// The IRIs that nodes were imported with, and whether they came without.
pub async fn names(conn: &mut PgConnection, ids: &[DocumentId]) -> sqlx::Result<Vec<(DocumentId, String, bool)>> {
    sqlx::query_as("SELECT document_id, iri, blank FROM graph_nodes WHERE document_id = ANY($1)")
        .bind(ids)
        .fetch_all(conn)
        .await
}

/// Which of these documents are at or under another one.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = parent.0))]
pub async fn under(conn: &mut PgConnection, ids: &[DocumentId], parent: DocumentId) -> sqlx::Result<Vec<DocumentId>> {
    sqlx::query_scalar("SELECT d.id FROM documents d WHERE d.id = ANY($1) AND (d.id = $2 OR d.path @> ARRAY[$2::bigint]) ORDER BY d.id")
        .bind(ids)
        .bind(parent)
        .fetch_all(conn)
        .await
}

/// The document at the top with this IRI that the scope covers.
pub async fn writable_root(conn: &mut PgConnection, scope: &Writable, iri: &str) -> sqlx::Result<Option<DocumentId>> {
    let mut arguments = scope.arguments();
    add(&mut arguments, iri.to_owned());
    let query = concat!(
        "SELECT d.id FROM graph_nodes g JOIN documents d ON d.id = g.document_id WHERE g.iri = $3 AND d.path = '{}' AND ",
        readable!(),
        " ORDER BY d.id LIMIT 1"
    );
    sqlx::query_scalar_with(query, arguments).persistent(false).fetch_optional(conn).await
}

/// Whether all of these documents are open to all.
pub async fn are_open(conn: &mut PgConnection, ids: &[DocumentId]) -> sqlx::Result<bool> {
    sqlx::query_scalar("SELECT NOT EXISTS (SELECT FROM documents WHERE id = ANY($1) AND guard <> 0)")
        .bind(ids)
        .persistent(false)
        .fetch_one(conn)
        .await
}

/// Gives documents, which the caller has just made, their IRIs.
pub async fn name(conn: &mut PgConnection, named: &[(DocumentId, &str, bool)]) -> sqlx::Result<()> {
    sqlx::query("INSERT INTO graph_nodes (document_id, iri, blank) SELECT * FROM unnest($1::bigint[], $2::text[], $3::boolean[])")
        .bind(named.iter().map(|(id, ..)| *id).collect::<Vec<_>>())
        .bind(named.iter().map(|(_, iri, _)| *iri).collect::<Vec<_>>())
        .bind(named.iter().map(|(_, _, blank)| *blank).collect::<Vec<_>>())
        .execute(conn)
        .await
        .map(|_| ())
}
