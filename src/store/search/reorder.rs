//! What a search needs to know in order to rank its results by more than their scores.
use crate::store::{
    documents::add,
    scope::{Readable, readable},
};
use pgvector::HalfVector;
use sqlx::PgConnection;
use std::collections::HashMap;
use svc_ids::DocumentId;

/// How many days old these documents are: by the time that they are about, or the nearest document above them that has one, or else since
/// they were created. What is to come is new.
pub async fn ages(
    conn: &mut PgConnection,
    scope: &Readable,
    ids: &[DocumentId],
) -> sqlx::Result<HashMap<DocumentId, f64>> {
    let mut arguments = scope.arguments();
    add(&mut arguments, ids.to_vec());
    let statement = concat!(
        "SELECT m.id, extract(epoch FROM now() - least(now(), coalesce(
                (SELECT d.event_time FROM unnest(m.path || m.id) WITH ORDINALITY AS p (id, place) JOIN documents d ON d.id = p.id
                  WHERE d.event_time IS NOT NULL AND ",
        readable!(),
        " ORDER BY p.place DESC LIMIT 1), m.created_at)))::float8 / 86400
           FROM documents m WHERE m.id = ANY($3::bigint[])"
    );
    let rows: Vec<(DocumentId, f64)> = sqlx::query_as_with(statement, arguments).fetch_all(conn).await?;
    Ok(rows.into_iter().collect())
}

/// The vectors that these documents have of a model.
pub async fn vectors(
    conn: &mut PgConnection,
    scope: &Readable,
    ids: &[DocumentId],
    model: &str,
) -> sqlx::Result<HashMap<DocumentId, HalfVector>> {
    let mut arguments = scope.arguments();
    add(&mut arguments, ids.to_vec());
    add(&mut arguments, model.to_owned());
    let statement = concat!(
        "SELECT d.id, v.embed FROM documents d JOIN document_vectors v ON v.document_id = d.id AND v.embed_model = $4
          WHERE d.id = ANY($3::bigint[]) AND ",
        readable!()
    );
    let rows: Vec<(DocumentId, HalfVector)> = sqlx::query_as_with(statement, arguments).fetch_all(conn).await?;
    Ok(rows.into_iter().collect())
}
