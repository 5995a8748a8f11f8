//! What a search needs to know in order to rank its results by more than their scores.
use crate::store::{
    documents::add,
    scope::{Readable, readable},
};
use pgvector::HalfVector;
use sqlx::PgConnection;
use std::collections::HashMap;
use svc_client::wire::{SortBy, SortOrder};
use svc_ids::DocumentId;

/// A document in an order.
#[derive(Clone, Debug, PartialEq, Eq, sqlx_macros::FromRow)]
pub struct Sorted {
    pub id: DocumentId,
    /// What it is sorted by: the microseconds of a time since 1970, or the first 60 characters of a title; absent where it has no time.
    pub key: Option<String>,
    /// Whether its key is before the one that was given (-1), the same (0) or behind it (1) where the order ascends; absent where either is.
    pub compared: Option<i32>,
}

/// The documents among `ids` that the scope covers, in an order; those that are equal in it, as they come. `given` is the key of one that was sorted
/// before, which is a whole number for a time.
pub async fn sorted(
    conn: &mut PgConnection,
    scope: &Readable,
    ids: &[DocumentId],
    by: SortBy,
    order: SortOrder,
    given: Option<&str>,
) -> sqlx::Result<Vec<Sorted>> {
    macro_rules! ordered {
        ($key:literal, $compared:expr, $given:literal, $direction:literal) => {
            concat!(
                "SELECT d.id, (",
                $compared,
                ")::text AS key, CASE WHEN ",
                $compared,
                " = ",
                $given,
                " THEN 0 WHEN ",
                $compared,
                " > ",
                $given,
                " THEN 1 WHEN ",
                $compared,
                " < ",
                $given,
                " THEN -1 END AS compared FROM unnest($3::bigint[]) WITH ORDINALITY AS u (id, place) JOIN documents d ON d.id = u.id WHERE ",
                readable!(),
                " ORDER BY ",
                $key,
                $direction,
                " NULLS LAST, u.place"
            )
        };
    }
    macro_rules! by_time {
        ($key:literal, $direction:literal) => {
            ordered!(
                $key,
                concat!("(extract(epoch FROM ", $key, ") * 1000000)::bigint"),
                "$4::text::bigint",
                $direction
            )
        };
    }
    let statement = match (by, order) {
        (SortBy::Score, _) => {
            return Ok(ids.iter().map(|id| Sorted { id: *id, key: None, compared: None }).collect());
        }
        (SortBy::CreatedAt, SortOrder::Asc) => by_time!("d.created_at", " ASC"),
        (SortBy::CreatedAt, SortOrder::Desc) => by_time!("d.created_at", " DESC"),
        (SortBy::UpdatedAt, SortOrder::Asc) => by_time!("d.updated_at", " ASC"),
        (SortBy::UpdatedAt, SortOrder::Desc) => by_time!("d.updated_at", " DESC"),
        (SortBy::EventTime, SortOrder::Asc) => by_time!("d.event_time", " ASC"),
        (SortBy::EventTime, SortOrder::Desc) => by_time!("d.event_time", " DESC"),
        (SortBy::Title, SortOrder::Asc) => ordered!("lower(d.title)", "left(lower(d.title), 60)", "$4::text", " ASC"),
        (SortBy::Title, SortOrder::Desc) => ordered!("lower(d.title)", "left(lower(d.title), 60)", "$4::text", " DESC"),
    };
    let mut arguments = scope.arguments();
    add(&mut arguments, ids.to_vec());
    add(&mut arguments, given.map(str::to_owned));
    sqlx::query_as_with(statement, arguments).fetch_all(conn).await
}

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
