//! Typed edges between documents.
use super::{
    documents::add,
    places::Place,
    scope::{Readable, readable},
};
use chrono::{DateTime, Utc};
use serde_json::{Map, Value};
use sqlx::{PgConnection, types::Json};
use svc_client::wire::LinkResponse;
use svc_ids::DocumentId;

#[derive(sqlx::FromRow)]
struct LinkRow {
    id: i64,
    source_id: i64,
    target_id: i64,
    link_type: String,
    score: Option<f64>,
    metadata: Json<Map<String, Value>>,
    created_at: DateTime<Utc>,
}

/// Links two documents; adding the same link again changes nothing.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = source.id().0))]
pub async fn insert(
    conn: &mut PgConnection,
    source: &Place,
    target_id: DocumentId,
    link_type: &str,
) -> sqlx::Result<()> {
    sqlx::query(
        "INSERT INTO document_links (source_id, target_id, link_type) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
    )
    .bind(source.id())
    .bind(target_id)
    .bind(link_type)
    .execute(conn)
    .await
    .map(|_| ())
}

/// A document's links after a cursor, in both directions, if the scope covers the other end.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = id.0))]
pub async fn of_document(
    conn: &mut PgConnection,
    scope: &Readable,
    id: DocumentId,
    after: i64,
    limit: u32,
) -> sqlx::Result<Vec<LinkResponse>> {
    let mut arguments = scope.arguments();
    add(&mut arguments, id);
    add(&mut arguments, after);
    add(&mut arguments, i64::from(limit));
    let rows: Vec<LinkRow> = sqlx::query_as_with(
        concat!(
            "SELECT l.id, l.source_id, l.target_id, l.link_type, l.score, l.metadata, l.created_at
               FROM document_links l JOIN documents d ON d.id = CASE WHEN l.source_id = $3 THEN l.target_id ELSE l.source_id END
              WHERE (l.source_id = $3 OR l.target_id = $3) AND l.id > $4 AND ",
            readable!(),
            " ORDER BY l.id LIMIT $5"
        ),
        arguments,
    )
    .fetch_all(conn)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| LinkResponse {
            id: row.id,
            source_id: row.source_id,
            target_id: row.target_id,
            link_type: row.link_type,
            score: row.score,
            metadata: row.metadata.0,
            created_at: row.created_at,
        })
        .collect())
}
