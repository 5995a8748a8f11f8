//! What views need besides documents: where these come from, what is beside them, and which texts name them.
use super::{
    documents::{SiblingCursor, add},
    scope::{Readable, readable},
};
use serde_json::Value;
use sqlx::PgConnection;
use std::collections::HashMap;
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

/// The siblings before a place, nearest first.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = parent.0))]
pub async fn before(
    conn: &mut PgConnection,
    scope: &Readable,
    parent: DocumentId,
    place: SiblingCursor,
    limit: i64,
) -> sqlx::Result<Vec<DocumentId>> {
    let mut arguments = scope.arguments();
    add(&mut arguments, parent);
    add(&mut arguments, place.position);
    add(&mut arguments, place.id);
    add(&mut arguments, limit);
    sqlx::query_scalar_with(
        concat!(
            "SELECT d.id FROM documents d WHERE d.parent_id = $3 AND (coalesce(d.position::bigint, 2147483648), d.id) < ($4, $5) AND ",
            readable!(),
            " ORDER BY coalesce(d.position::bigint, 2147483648) DESC, d.id DESC LIMIT $6"
        ),
        arguments,
    )
    .persistent(false)
    .fetch_all(conn)
    .await
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
