//! The documents into which a text was cut because a caller asked for it.
use super::places::Place;
use sqlx::PgConnection;
use svc_ids::DocumentId;

/// Locks the documents that an operation cut out of another one and that are still directly under it or under one of its
/// `segments`, until the transaction ends. Pieces of other documents may have been moved there.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = under.id().0))]
pub async fn lock(
    conn: &mut PgConnection,
    under: &Place,
    segments: &[DocumentId],
    rule: &str,
) -> sqlx::Result<Vec<Place>> {
    sqlx::query_as(
        "SELECT d.id, d.path FROM documents d JOIN node_origins o ON o.document_id = d.id AND o.rule = $2
          WHERE (d.parent_id = $1 OR d.parent_id = ANY($3)) AND o.anchor -> 'source' = to_jsonb($1) ORDER BY d.id FOR UPDATE OF d",
    )
    .bind(under.id())
    .bind(rule)
    .bind(segments)
    .fetch_all(conn)
    .await
}

/// One of these documents that has something under it.
pub async fn occupied(conn: &mut PgConnection, pieces: &[Place]) -> sqlx::Result<Option<DocumentId>> {
    sqlx::query_scalar("SELECT parent_id FROM documents WHERE parent_id = ANY($1) LIMIT 1")
        .bind(pieces.iter().map(Place::id).collect::<Vec<_>>())
        .fetch_optional(conn)
        .await
}

/// A reason why the model refused documents or left their ends out, and how many.
#[derive(Debug, sqlx_macros::FromRow)]
pub struct Refused {
    pub documents: i64,
    pub reason: String,
    pub remedy: String,
}

/// The reasons why some of these documents have no vector, or one that lacks their ends.
pub async fn refused(conn: &mut PgConnection, ids: &[DocumentId]) -> sqlx::Result<Vec<Refused>> {
    sqlx::query_as(
        "SELECT count(*) AS documents, coalesce(value ->> 'skipped', 'left_out') AS reason, coalesce(max(value ->> 'remedy'), '') AS remedy
           FROM node_evidence WHERE document_id = ANY($1) AND name = 'embed' AND value ? 'remedy' GROUP BY 2 ORDER BY 2",
    )
    .bind(ids)
    .fetch_all(conn)
    .await
}
