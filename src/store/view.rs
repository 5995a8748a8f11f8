//! What views need besides documents: where these come from, what is beside them, and which texts name them.
use super::{
    documents::{SiblingCursor, add, sibling_position},
    scope::{Readable, readable},
};
use serde_json::Value;
use sqlx::PgConnection;
use std::collections::{HashMap, HashSet};
use svc_ids::DocumentId;

/// How many texts with a word one page looks into.
const LOOKED_INTO: i64 = 5000;

/// The file that a document is, or comes from.
#[derive(Debug, sqlx_macros::FromRow)]
pub struct FileRow {
    pub document_id: DocumentId,
    pub title: String,
    pub usetype: String,
    /// `None` if nothing recognised its bytes.
    pub mime_type: Option<String>,
    pub byte_size: i64,
}

/// The nearest file among a document and those above it that the scope covers.
pub async fn file(conn: &mut PgConnection, scope: &Readable, line: &[i64]) -> sqlx::Result<Option<FileRow>> {
    let mut arguments = scope.arguments();
    add(&mut arguments, line.to_vec());
    sqlx::query_as_with(
        concat!(
            "SELECT d.id AS document_id, d.title, d.usetype, b.mime_type, b.byte_size FROM document_blobs b JOIN documents d ON d.id = b.document_id
              WHERE b.is_file AND d.id = ANY($3) AND ",
            readable!(),
            " ORDER BY cardinality(d.path) DESC LIMIT 1"
        ),
        arguments,
    )
    .fetch_optional(conn)
    .await
}

/// Where documents that the caller has read come from in their files; those without such a place are left out.
pub async fn anchors(conn: &mut PgConnection, ids: &[DocumentId]) -> sqlx::Result<HashMap<i64, Value>> {
    let rows: Vec<(DocumentId, Value)> = sqlx::query_as(
        "SELECT document_id, anchor FROM node_origins WHERE document_id = ANY($1) AND anchor IS NOT NULL",
    )
    .bind(ids)
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|(id, anchor)| (id.0, anchor)).collect())
}

/// Those of these documents that are segments, which ingestion puts between a container and its children.
pub async fn segments(conn: &mut PgConnection, ids: &[DocumentId]) -> sqlx::Result<HashSet<DocumentId>> {
    if ids.is_empty() {
        return Ok(HashSet::new());
    }
    let segments: Vec<DocumentId> = sqlx::query_scalar(
        "SELECT document_id FROM node_origins WHERE document_id = ANY($1) AND rule = 'structure:semantic'",
    )
    .bind(ids)
    .fetch_all(conn)
    .await?;
    Ok(segments.into_iter().collect())
}

/// A document among its siblings.
#[derive(Clone, Copy, Debug, sqlx_macros::FromRow)]
pub struct Sibling {
    pub id: DocumentId,
    pub position: Option<i32>,
    /// It is one of [`segments`].
    pub is_segment: bool,
}

impl Sibling {
    pub fn place(&self) -> SiblingCursor {
        SiblingCursor { position: sibling_position(self.position), id: self.id }
    }
}

/// The columns of a [`Sibling`], from `documents d`.
macro_rules! sibling {
    () => {
        "d.id, d.position, EXISTS (SELECT FROM node_origins o WHERE o.document_id = d.id AND o.rule = 'structure:semantic') AS is_segment"
    };
}

/// These documents in the order of their ids here, whoever may read them.
pub async fn line(conn: &mut PgConnection, ids: &[DocumentId]) -> sqlx::Result<Vec<Sibling>> {
    sqlx::query_as(concat!(
        "SELECT ",
        sibling!(),
        " FROM unnest($1::bigint[]) WITH ORDINALITY AS l(id, depth) JOIN documents d ON d.id = l.id ORDER BY l.depth"
    ))
    .bind(ids)
    .fetch_all(conn)
    .await
}

/// A side of a place among siblings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Before,
    Behind,
}

impl Side {
    /// The place that has all siblings on this side.
    pub fn start(self) -> SiblingCursor {
        match self {
            Side::Before => SiblingCursor { position: i64::MAX, id: DocumentId(i64::MAX) },
            Side::Behind => SiblingCursor { position: i64::MIN, id: DocumentId(0) },
        }
    }
}

/// The siblings on one side of a place, nearest first.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = parent.0))]
pub async fn beside(
    conn: &mut PgConnection,
    scope: &Readable,
    parent: DocumentId,
    place: SiblingCursor,
    side: Side,
    limit: i64,
) -> sqlx::Result<Vec<Sibling>> {
    let mut arguments = scope.arguments();
    add(&mut arguments, parent);
    add(&mut arguments, place.position);
    add(&mut arguments, place.id);
    add(&mut arguments, limit);
    macro_rules! siblings {
        ($lies:literal, $order:literal) => {
            concat!(
                "SELECT ",
                sibling!(),
                " FROM documents d WHERE d.parent_id = $3 AND (coalesce(d.position::bigint, 2147483648), d.id) ",
                $lies,
                " ($4, $5) AND ",
                readable!(),
                " ORDER BY coalesce(d.position::bigint, 2147483648) ",
                $order,
                ", d.id ",
                $order,
                " LIMIT $6"
            )
        };
    }
    let query = match side {
        Side::Before => siblings!("<", "DESC"),
        Side::Behind => siblings!(">", "ASC"),
    };
    sqlx::query_as_with(query, arguments).persistent(false).fetch_all(conn).await
}

/// The links to a document after a cursor whose other end the scope covers: the link, its type, and where it comes from.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = id.0))]
pub async fn links_to(
    conn: &mut PgConnection,
    scope: &Readable,
    id: DocumentId,
    after: i64,
    limit: i64,
) -> sqlx::Result<Vec<(i64, String, DocumentId)>> {
    let mut arguments = scope.arguments();
    add(&mut arguments, id);
    add(&mut arguments, after);
    add(&mut arguments, limit);
    sqlx::query_as_with(
        concat!(
            "SELECT l.id, l.link_type, l.source_id FROM document_links l JOIN documents d ON d.id = l.source_id
              WHERE l.target_id = $3 AND l.id > $4 AND ",
            readable!(),
            " ORDER BY l.id LIMIT $5"
        ),
        arguments,
    )
    .fetch_all(conn)
    .await
}

/// Texts after a cursor that name a document as `[[id]]`, by id, and where the next page begins if there may be more. A page looks
/// into some thousand texts that have the number, so it may have fewer entries than asked for.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = id.0))]
pub async fn texts_naming(
    conn: &mut PgConnection,
    scope: &Readable,
    id: DocumentId,
    after: i64,
    limit: usize,
) -> sqlx::Result<(Vec<DocumentId>, Option<i64>)> {
    let mut arguments = scope.arguments();
    add(&mut arguments, id.0.to_string());
    add(&mut arguments, format!("[[{}]]", id.0));
    add(&mut arguments, after);
    add(&mut arguments, LOOKED_INTO);
    add(&mut arguments, id);
    let rows: Vec<(DocumentId, bool)> = sqlx::query_as_with(
        concat!(
            "SELECT d.id, d.id <> $7 AND strpos(d.content, $4) > 0 FROM document_words w JOIN documents d ON d.id = w.document_id
              WHERE w.words @@ $3::tsquery AND d.id > $5 AND ",
            readable!(),
            " ORDER BY d.id LIMIT $6"
        ),
        arguments,
    )
    .persistent(false)
    .fetch_all(conn)
    .await?;
    let is_whole = (rows.len() as i64) < LOOKED_INTO;
    let end = rows.last().map(|(id, _)| id.0);
    let mut found: Vec<DocumentId> = rows.into_iter().filter(|(_, names)| *names).map(|(id, _)| id).collect();
    let next = match found.len() > limit {
        true => found.get(limit.saturating_sub(1)).map(|last| last.0),
        false if is_whole => None,
        false => end,
    };
    found.truncate(limit);
    Ok((found, next))
}
