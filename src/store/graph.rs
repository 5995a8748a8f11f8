//! The documents and what leads from one to another, as analyses read them. `graph/diff.rs` compares moments, `graph/lint.rs` finds what is
//! wrong, `graph/stats.rs` counts.
pub mod diff;
pub mod lint;
pub mod stats;

use super::{
    documents::add,
    scope::{Readable, readable},
    triples::around::Moment,
};
use futures_util::TryStreamExt;
use sqlx::PgConnection;
use svc_ids::DocumentId;

/// A document in its tree.
#[derive(Clone, Copy, Debug, sqlx_macros::FromRow)]
pub struct Node {
    pub id: i64,
    pub parent_id: Option<i64>,
    /// Where it stands among its siblings.
    pub place: i64,
}

/// Hands over the documents that the scope covers, or those at and under one of them, by id; at most `limit`.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = parent_id.map(|id| id.0)))]
pub async fn documents(
    conn: &mut PgConnection,
    scope: &Readable,
    parent_id: Option<DocumentId>,
    limit: i64,
    mut take: impl FnMut(Node),
) -> sqlx::Result<()> {
    let mut arguments = scope.arguments();
    add(&mut arguments, parent_id);
    add(&mut arguments, limit);
    let query = concat!(
        "SELECT d.id, d.parent_id, coalesce(d.position::bigint, 2147483648) AS place FROM documents d
          WHERE ($3::bigint IS NULL OR d.id = $3 OR d.path @> ARRAY[$3]) AND ",
        readable!(),
        " ORDER BY d.id LIMIT $4"
    );
    let mut rows = sqlx::query_as_with(query, arguments).persistent(false).fetch(conn);
    while let Some(node) = rows.try_next().await? {
        take(node);
    }
    Ok(())
}

/// Which facts and links are edges.
#[derive(Clone, Copy, Debug)]
pub struct Edges<'a> {
    pub moment: Moment,
    /// Only those that begin at these documents; all if there are too many to name.
    pub from: Option<&'a [i64]>,
}

/// Hands over the facts between two documents, as the ids of both, until `take` returns false. Those of rdf: and rdfs: are about classes and
/// names. The scope covers what states the facts; it says nothing of the documents.
pub async fn facts(
    conn: &mut PgConnection,
    scope: &Readable,
    edges: &Edges<'_>,
    mut take: impl FnMut(i64, i64) -> bool,
) -> sqlx::Result<()> {
    let mut arguments = scope.arguments();
    add(&mut arguments, edges.moment.known_at);
    add(&mut arguments, edges.moment.valid_at);
    add(&mut arguments, edges.moment.asserted_only);
    add(&mut arguments, edges.from.map(<[i64]>::to_vec));
    let query = "SELECT t.subject_id, t.object_id FROM triples t
          WHERE t.object_id IS NOT NULL AND t.subject_id <> t.object_id AND t.recorded_at <= $3 AND (t.invalidated_at IS NULL OR t.invalidated_at > $3)
            AND t.valid @> $4 AND (NOT $5 OR t.derived_by IS NULL) AND ($1::boolean OR t.zone = ANY($2::bigint[]))
            AND ($6::bigint[] IS NULL OR t.subject_id = ANY($6))
            AND t.predicate_id <> ALL(ARRAY(SELECT p.id FROM predicates p WHERE starts_with(p.iri, 'http://www.w3.org/1999/02/22-rdf-syntax-ns#')
                                                                         OR starts_with(p.iri, 'http://www.w3.org/2000/01/rdf-schema#')))";
    let mut rows = sqlx::query_as_with::<_, (i64, i64), _>(query, arguments).persistent(false).fetch(conn);
    while let Some((from, to)) = rows.try_next().await? {
        if !take(from, to) {
            break;
        }
    }
    Ok(())
}

/// Hands over the links between documents, as the ids of both, until `take` returns false. Whether the caller may read the ends is for
/// `take` to say.
pub async fn links(
    conn: &mut PgConnection,
    edges: &Edges<'_>,
    mut take: impl FnMut(i64, i64) -> bool,
) -> sqlx::Result<()> {
    let query = "SELECT l.source_id, l.target_id FROM document_links l
                  WHERE l.source_id <> l.target_id AND ($1::bigint[] IS NULL OR l.source_id = ANY($1))";
    let from = edges.from.map(<[i64]>::to_vec);
    let mut rows = sqlx::query_as::<_, (i64, i64)>(query).bind(from).persistent(false).fetch(conn);
    while let Some((from, to)) = rows.try_next().await? {
        if !take(from, to) {
            break;
        }
    }
    Ok(())
}

/// What a document is called.
#[derive(Clone, Debug, sqlx_macros::FromRow)]
pub struct Named {
    pub id: i64,
    pub title: String,
    pub usetype: String,
}

/// What these documents are called, as far as the scope covers them.
pub async fn names(conn: &mut PgConnection, scope: &Readable, ids: &[i64]) -> sqlx::Result<Vec<Named>> {
    let mut arguments = scope.arguments();
    add(&mut arguments, ids.to_vec());
    let query = concat!("SELECT d.id, d.title, d.usetype FROM documents d WHERE d.id = ANY($3) AND ", readable!());
    sqlx::query_as_with(query, arguments).fetch_all(conn).await
}

/// Those of these documents that have a usetype, and that the scope covers.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = parent_id.map(|id| id.0)))]
pub async fn of_usetype(
    conn: &mut PgConnection,
    scope: &Readable,
    parent_id: Option<DocumentId>,
    usetype: &str,
) -> sqlx::Result<Vec<i64>> {
    let mut arguments = scope.arguments();
    add(&mut arguments, parent_id);
    add(&mut arguments, usetype);
    let query = concat!(
        "SELECT d.id FROM documents d WHERE d.usetype = $4 AND ($3::bigint IS NULL OR d.id = $3 OR d.path @> ARRAY[$3]) AND ",
        readable!()
    );
    sqlx::query_scalar_with(query, arguments).persistent(false).fetch_all(conn).await
}
