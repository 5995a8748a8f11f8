//! The titles above chunks: whether they are still as they were read, and what hangs on them when they change.
use super::{
    nodes::{TextRow, is_titled, titles_on},
    places::Place,
    rollups,
    tasks::fingerprint,
};
use crate::usetype::Usetype;
use serde_json::{Value, json};
use sqlx::PgConnection;
use std::collections::HashMap;
use svc_ids::DocumentId;

/// Whether the title of a document stands above `d`, which is at or under it, because all that lies between is parts. The arguments are the
/// placeholders of how many ids lead down to the document, itself among them, and of the usetypes of parts.
macro_rules! has_title_of {
    ($line:literal, $parts:literal) => {
        concat!(
            "NOT EXISTS (SELECT FROM unnest((d.path || d.id)[",
            $line,
            " + 1 :]) AS s(id) JOIN documents p ON p.id = s.id WHERE p.usetype <> ALL(",
            $parts,
            "))"
        )
    };
}

/// Whether chunks have other titles above them than when they were read. The caller has locked their rows, so that whoever changes a title
/// from here on finds what the caller writes.
pub async fn have_changed(conn: &mut PgConnection, rows: &[TextRow]) -> sqlx::Result<bool> {
    let chunks: HashMap<DocumentId, &[String]> = rows
        .iter()
        .filter(|row| Usetype::named(&row.usetype).is_some_and(Usetype::is_titled))
        .map(|row| (row.id, row.titles.as_slice()))
        .collect();
    if chunks.is_empty() {
        return Ok(false);
    }
    let ids: Vec<DocumentId> = chunks.keys().copied().collect();
    let now: Vec<(DocumentId, Vec<String>)> = sqlx::query_as(concat!(
        "SELECT d.id, ",
        titles_on!("d.path", "d.guard", "$2"),
        " FROM documents d WHERE d.id = ANY($1) AND ",
        is_titled!("$3")
    ))
    .bind(ids)
    .bind(Usetype::parts())
    .bind(Usetype::titled())
    .fetch_all(conn)
    .await?;
    Ok(now.iter().any(|(id, titles)| chunks.get(id).is_some_and(|read| *read != titles.as_slice())))
}

/// The titles that stand above a chunk directly under each of these documents.
pub async fn under(
    conn: &mut PgConnection,
    documents: &[DocumentId],
) -> sqlx::Result<HashMap<DocumentId, Vec<String>>> {
    let rows: Vec<(DocumentId, Vec<String>)> = sqlx::query_as(concat!(
        "SELECT d.id, ",
        titles_on!("d.path || d.id", "d.guard", "$2"),
        " FROM documents d WHERE d.id = ANY($1)"
    ))
    .bind(documents)
    .bind(Usetype::parts())
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().collect())
}

/// What a document is to the titles above chunks.
#[derive(Clone, Copy, Debug, sqlx_macros::FromRow)]
pub struct Above {
    /// It is a part of another document, whose titles stand above its chunks too.
    pub is_part: bool,
    /// Its own title may stand above chunks.
    pub has_parts: bool,
    /// It is a container of a file.
    pub is_container: bool,
    /// Some index has the titles above chunks, or may have some that it was built with before.
    pub is_indexed: bool,
}

/// What a document is to the titles above chunks; `None` if it is gone.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = place.id().0))]
pub async fn above(conn: &mut PgConnection, place: &Place) -> sqlx::Result<Option<Above>> {
    sqlx::query_as(
        "SELECT usetype = ANY($2) AS is_part,
                EXISTS (SELECT FROM documents c WHERE c.parent_id = d.id AND c.usetype = ANY($2)) AS has_parts,
                EXISTS (SELECT FROM ingest_node n WHERE n.document_id = d.id) AS is_container,
                EXISTS (SELECT FROM search_indexes WHERE built_to IS NOT NULL OR coalesce((config ->> 'title_paths')::boolean, false)) AS is_indexed
           FROM documents d WHERE id = $1",
    )
    .bind(place.id())
    .bind(Usetype::parts())
    .fetch_optional(conn)
    .await
}

/// The chunks and tables at a place and in its parts that can be found. The caller has changed their rows: what is in flight has a task that
/// embeds it, and that sees the change.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = place.id().0))]
pub async fn settled_chunks(conn: &mut PgConnection, place: &Place) -> sqlx::Result<Vec<DocumentId>> {
    sqlx::query_scalar(concat!(
        "SELECT d.id FROM documents d WHERE (d.id = $1 OR d.path @> ARRAY[$1::bigint]) AND d.settled = 'settled' AND ",
        is_titled!("$2"),
        " AND ",
        has_title_of!("$3", "$4")
    ))
    .bind(place.id())
    .bind(Usetype::titled())
    .bind(i32::try_from(place.path().len() + 1).unwrap_or(i32::MAX))
    .bind(Usetype::parts())
    .fetch_all(conn)
    .await
}

/// Whether one of these chunks was embedded with titles above it.
pub async fn are_in_vectors(conn: &mut PgConnection, chunks: &[DocumentId]) -> sqlx::Result<bool> {
    sqlx::query_scalar(
        "SELECT EXISTS (SELECT FROM node_evidence WHERE document_id = ANY($1) AND name = 'embed' AND value ? 'titles')",
    )
    .bind(chunks)
    .fetch_one(conn)
    .await
}

/// Gives what a reprocess builds of a file the title that the file has by now; `None` if nothing is being built.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = file.id().0))]
pub async fn tell_generation(conn: &mut PgConnection, file: &Place) -> sqlx::Result<Option<Place>> {
    sqlx::query_as(
        "UPDATE documents d SET title = f.title FROM generations g JOIN documents f ON f.id = g.document_id
          WHERE g.document_id = $1 AND NOT g.abandoned AND d.id = g.generation_id RETURNING d.id, d.path",
    )
    .bind(file.id())
    .fetch_optional(conn)
    .await
}

/// Has the task of this type that waits at a document, perhaps to be tried again, begin with everything under it; false if none waits.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = place.id().0))]
pub async fn begin_anew(conn: &mut PgConnection, place: &Place, task_type: &str) -> sqlx::Result<bool> {
    let params = json!({});
    sqlx::query_scalar(
        "WITH waiting AS (
             SELECT id FROM task_queue
              WHERE scope_document_id = $1 AND task_type = $2 AND NOT final AND status IN ('pending', 'failed') AND claim_token IS NULL
              ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED),
         anew AS (UPDATE task_queue t SET params = $3, param_fingerprint = $4 FROM waiting w WHERE t.id = w.id RETURNING t.id)
         SELECT EXISTS (SELECT FROM anew)",
    )
    .bind(place.id())
    .bind(task_type)
    .bind(&params)
    .bind(fingerprint(&params))
    .fetch_one(conn)
    .await
}

/// Whether a task of this type waits at a document with one of these parameters.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = place.id().0))]
pub async fn waits(conn: &mut PgConnection, place: &Place, task_type: &str, params: &[Value]) -> sqlx::Result<bool> {
    sqlx::query_scalar(
        "SELECT EXISTS (SELECT FROM task_queue
                         WHERE scope_document_id = $1 AND task_type = $2 AND NOT final AND status IN ('pending', 'failed') AND claim_token IS NULL
                           AND params = ANY($3))",
    )
    .bind(place.id())
    .bind(task_type)
    .bind(params)
    .fetch_one(conn)
    .await
}

/// A document at or under another one.
#[derive(Clone, Debug, sqlx_macros::FromRow)]
pub struct Below {
    pub id: DocumentId,
    /// The ids from the upper one's child down to it; empty for the upper one itself.
    pub way: Vec<i64>,
    /// It is a chunk, or a table without chunks of its own, that the title of the upper one stands above.
    pub is_chunk: bool,
    /// The bytes of its text.
    pub size: i64,
}

/// What is at and under a place after the document to which the way `after` leads, each before what is under it. An index has this
/// order, so a page reads no more than its own rows.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = place.id().0))]
pub async fn page(
    conn: &mut PgConnection,
    place: &Place,
    after: Option<&[i64]>,
    limit: i64,
) -> sqlx::Result<Vec<Below>> {
    let line = place.children_path();
    let end: Vec<i64> = place.path().iter().copied().chain([place.id().0.saturating_add(1)]).collect();
    sqlx::query_as(concat!(
        "SELECT d.id, (d.path || d.id)[$3 + 1 :] AS way, octet_length(d.content)::bigint AS size, ",
        is_titled!("$6"),
        " AND ",
        has_title_of!("$3", "$7"),
        " AS is_chunk
           FROM documents d
          WHERE d.path || d.id >= $1::bigint[] AND d.path || d.id < $2::bigint[] AND (NOT $5 OR d.path || d.id > $1::bigint[])
          ORDER BY d.path || d.id LIMIT $4"
    ))
    .bind([&line[..], after.unwrap_or_default()].concat())
    .bind(end)
    .bind(i32::try_from(line.len()).unwrap_or(i32::MAX))
    .bind(limit)
    .bind(after.is_some())
    .bind(Usetype::titled())
    .bind(Usetype::parts())
    .fetch_all(conn)
    .await
}

/// Whether a settled container of a file has the sum of its children's vectors; the argument is the placeholder of what evidence says of others.
macro_rules! is_sum {
    ($summary:literal) => {
        concat!(
            "d.settled = 'settled' AND NOT EXISTS (
                SELECT FROM node_evidence e WHERE e.document_id = d.id AND e.name = 'rollup' AND e.value ->> 'embedding' = ",
            $summary,
            ")"
        )
    };
}

/// Those of these documents that are containers of files with the sum of their children's vectors.
pub async fn sums(conn: &mut PgConnection, documents: &[DocumentId]) -> sqlx::Result<Vec<DocumentId>> {
    sqlx::query_scalar(concat!(
        "SELECT n.document_id FROM ingest_node n JOIN documents d ON d.id = n.document_id WHERE n.document_id = ANY($1) AND ",
        is_sum!("$2")
    ))
    .bind(documents)
    .bind(rollups::OF_SUMMARY)
    .fetch_all(conn)
    .await
}

/// Such containers at a place and in its parts.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = place.id().0))]
pub async fn sums_under(conn: &mut PgConnection, place: &Place) -> sqlx::Result<Vec<DocumentId>> {
    sqlx::query_scalar(concat!(
        "SELECT n.document_id FROM documents d JOIN ingest_node n ON n.document_id = d.id WHERE (d.id = $1 OR d.path @> ARRAY[$1::bigint]) AND ",
        is_sum!("$2"),
        " AND ",
        has_title_of!("$3", "$4")
    ))
    .bind(place.id())
    .bind(rollups::OF_SUMMARY)
    .bind(i32::try_from(place.path().len() + 1).unwrap_or(i32::MAX))
    .bind(Usetype::parts())
    .fetch_all(conn)
    .await
}
