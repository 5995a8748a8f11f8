//! Documents: the nodes of the tree.
use super::{
    ingest_nodes::Frontier,
    lexicon::Lexicon,
    nodes::braces,
    places::Place,
    scope::{Readable, readable},
    vectors,
    word::Word,
};
use chrono::{DateTime, Utc};
use pgvector::HalfVector;
use serde_json::{Map, Value};
use sqlx::{Arguments, PgConnection, postgres::PgArguments, types::Json};
use std::slice;
use svc_client::wire::{DocumentResponse, Settled};
use svc_ids::DocumentId;

mod list;
mod reading;
pub(super) use list::json_bytes;
use list::waiting;
pub use list::*;
pub use reading::{Read, reading};

/// The columns of a [`DocumentRow`], from `documents d`; $3 says whether to include the vector, and is not looked at `without embed`.
macro_rules! columns {
    (@plain $content:literal, $structured_content:literal) => {
        concat!(
            "d.id, d.parent_id, d.path, d.title, ",
            $content,
            " AS content, ",
            $structured_content,
            " AS structured_content, d.usetype, d.position, d.event_time, d.created_at, d.updated_at, d.content_hash, \
             d.settled, "
        )
    };
    ($content:literal, $structured_content:literal $(,)?) => {
        concat!(
            columns!(@plain $content, $structured_content),
            "CASE WHEN $3::boolean THEN (SELECT v.embed FROM document_vectors v WHERE v.document_id = d.id \
             ORDER BY v.embed_model = (SELECT m.serving FROM model_moves m) DESC LIMIT 1) END AS embed"
        )
    };
    ($content:literal, $structured_content:literal, without embed) => {
        concat!(columns!(@plain $content, $structured_content), "NULL::halfvec AS embed")
    };
}

/// What to read of documents besides their plain columns.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub embed: bool,
    pub content: bool,
    pub structured_content: bool,
}

impl Shape {
    /// The columns that are left out of a document; `fits` says whether the document has room.
    fn omitted(self, fits: bool) -> Vec<&'static str> {
        let columns = [(self.content, "content"), (self.structured_content, "structured_content")];
        columns.iter().filter(|(is_asked, _)| !(fits && *is_asked)).map(|(_, name)| *name).collect()
    }
}

/// A document as it is stored.
#[derive(Debug, sqlx_macros::FromRow)]
pub struct DocumentRow {
    pub id: DocumentId,
    pub parent_id: Option<DocumentId>,
    pub path: Vec<i64>,
    pub title: String,
    pub content: String,
    pub structured_content: Json<Map<String, Value>>,
    pub usetype: String,
    pub position: Option<i32>,
    pub event_time: Option<DateTime<Utc>>,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
    pub content_hash: String,
    pub settled: Word<Settled>,
    /// The vector, at the width of its model.
    pub embed: Option<HalfVector>,
    /// Columns that were not asked for.
    #[sqlx(skip)]
    pub omitted: Vec<&'static str>,
}

impl DocumentRow {
    /// Leaves out what there is no room for.
    pub fn strip(&mut self) {
        self.content.clear();
        self.structured_content.0.clear();
        self.omitted = vec!["content", "structured_content"];
    }
}

impl From<DocumentRow> for DocumentResponse {
    fn from(row: DocumentRow) -> DocumentResponse {
        DocumentResponse {
            id: row.id.0,
            parent_id: row.parent_id.map(|id| id.0),
            title: row.title,
            content: row.content,
            structured_content: row.structured_content.0,
            path: row.path,
            usetype: row.usetype,
            position: row.position,
            event_time: row.event_time,
            created_at: row.created_at,
            updated_at: row.updated_at,
            content_hash: row.content_hash,
            settled: row.settled.0,
            embed: row.embed.map(|vector| vectors::shown(&vector)),
            omitted: row.omitted.into_iter().map(str::to_owned).collect(),
            shown: None,
        }
    }
}

/// A document to be stored.
pub struct NewRow<'a> {
    pub parent: Option<&'a Place>,
    pub title: &'a str,
    pub content: &'a str,
    pub structured_content: &'a Map<String, Value>,
    pub usetype: &'a str,
    pub position: Option<i32>,
    pub event_time: Option<DateTime<Utc>>,
    pub content_hash: &'a str,
    pub settled: Settled,
}

/// Stores one document, as [`insert_all`] does; returns its place, and the document as it was stored.
pub async fn insert(
    conn: &mut PgConnection,
    lexicon: &Lexicon,
    row: &NewRow<'_>,
) -> sqlx::Result<(Place, DocumentRow)> {
    insert_all(conn, lexicon, slice::from_ref(row)).await?.pop().ok_or(sqlx::Error::RowNotFound)
}

/// Stores documents; returns their places, and the documents as they were stored, in the same order. Each gets its parent's guard; the
/// transaction is one of [`super::transaction::begin_creating`]. The limit makes the planner expect a row or so whatever the arrays are, so that the
/// connection keeps the plan.
pub async fn insert_all(
    conn: &mut PgConnection,
    lexicon: &Lexicon,
    rows: &[NewRow<'_>],
) -> sqlx::Result<Vec<(Place, DocumentRow)>> {
    let words = lexicon.words(rows.iter().map(|row| (row.title, row.content)).collect()).await;
    let paths: Vec<String> =
        rows.iter().map(|row| braces(&row.parent.map(Place::children_path).unwrap_or_default())).collect();
    let stored: Vec<DocumentRow> = sqlx::query_as(concat!(
        "WITH new AS MATERIALIZED (
             SELECT nextval(pg_get_serial_sequence('documents', 'id')) AS id, n.*
               FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::jsonb[], $6::text[], $7::int[], $8::timestamptz[], $9::text[], $10::text[],
                           $11::text[]) WITH ORDINALITY
                    AS n(parent_id, path, title, content, structured_content, usetype, position, event_time, content_hash, settled, words, at)
              ORDER BY n.at LIMIT $12),
         made AS (
             INSERT INTO documents (id, parent_id, path, title, content, structured_content, usetype, position, event_time, content_hash, settled, guard)
             OVERRIDING SYSTEM VALUE
             SELECT id, parent_id, path::bigint[], title, content, structured_content, usetype, position, event_time, content_hash, settled,
                    coalesce((SELECT p.guard FROM documents p WHERE p.id = new.parent_id), 0)
               FROM new RETURNING *),
         words AS (INSERT INTO document_words (document_id, words) SELECT id, words::tsvector FROM new)
         SELECT ",
        columns!("d.content", "d.structured_content", without embed),
        " FROM made d ORDER BY d.id"
    ))
    .bind(rows.iter().map(|row| row.parent.map(Place::id)).collect::<Vec<_>>())
    .bind(paths)
    .bind(rows.iter().map(|row| row.title).collect::<Vec<_>>())
    .bind(rows.iter().map(|row| row.content).collect::<Vec<_>>())
    .bind(rows.iter().map(|row| Json(row.structured_content)).collect::<Vec<_>>())
    .bind(rows.iter().map(|row| row.usetype).collect::<Vec<_>>())
    .bind(rows.iter().map(|row| row.position).collect::<Vec<_>>())
    .bind(rows.iter().map(|row| row.event_time).collect::<Vec<_>>())
    .bind(rows.iter().map(|row| row.content_hash).collect::<Vec<_>>())
    .bind(rows.iter().map(|row| row.settled.as_str()).collect::<Vec<_>>())
    .bind(words)
    .bind(i64::try_from(rows.len()).unwrap_or(i64::MAX))
    .fetch_all(conn)
    .await?;
    Ok(stored.into_iter().map(|row| (Place { id: row.id, path: row.path.clone() }, row)).collect())
}

/// Reads one document that the scope covers.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = id.0))]
pub async fn read(
    conn: &mut PgConnection,
    scope: &Readable,
    id: DocumentId,
    include_embed: bool,
) -> sqlx::Result<Option<DocumentRow>> {
    let mut arguments = scope.arguments();
    add(&mut arguments, include_embed);
    add(&mut arguments, id);
    sqlx::query_as_with(
        concat!(
            "SELECT ",
            columns!("d.content", "d.structured_content"),
            " FROM documents d WHERE d.id = $4 AND ",
            readable!()
        ),
        arguments,
    )
    .fetch_optional(conn)
    .await
}

/// Reads the documents among `ids` that the scope covers, in any order.
pub async fn read_many(
    conn: &mut PgConnection,
    scope: &Readable,
    ids: &[DocumentId],
    shape: Shape,
) -> sqlx::Result<Vec<DocumentRow>> {
    let mut arguments = scope.arguments();
    add(&mut arguments, shape.embed);
    add(&mut arguments, ids.to_vec());
    add(&mut arguments, shape.content);
    add(&mut arguments, shape.structured_content);
    let mut rows: Vec<DocumentRow> = sqlx::query_as_with(
        concat!(
            "SELECT ",
            columns!(
                "CASE WHEN $5::boolean THEN d.content ELSE '' END",
                "CASE WHEN $6::boolean THEN d.structured_content ELSE '{}'::jsonb END"
            ),
            " FROM documents d WHERE d.id = ANY($4) AND ",
            readable!()
        ),
        arguments,
    )
    .fetch_all(conn)
    .await?;
    for row in &mut rows {
        row.omitted = shape.omitted(true);
    }
    Ok(rows)
}

/// How a document begins.
#[derive(Debug, sqlx_macros::FromRow)]
pub struct Beginning {
    pub id: DocumentId,
    pub usetype: String,
    pub title: String,
    /// The beginning of its text.
    pub text: String,
}

/// The beginnings of the documents among `ids` that the scope covers, in any order.
pub async fn beginnings(
    conn: &mut PgConnection,
    scope: &Readable,
    ids: &[DocumentId],
    characters: i32,
) -> sqlx::Result<Vec<Beginning>> {
    let mut arguments = scope.arguments();
    add(&mut arguments, ids.to_vec());
    add(&mut arguments, characters);
    sqlx::query_as_with(
        concat!(
            "SELECT d.id, d.usetype, d.title, left(d.content, $4) AS text FROM documents d WHERE d.id = ANY($3) AND ",
            readable!()
        ),
        arguments,
    )
    .fetch_all(conn)
    .await
}

/// What an answer shows of documents.
pub struct Wanted<'a> {
    pub ids: &'a [DocumentId],
    pub shape: Shape,
    /// The most bytes of each for which its text and structured content come at once.
    pub share: u64,
    /// The documents whose beginnings are wanted as well, and how many characters of each.
    pub spoken: &'a [DocumentId],
    pub characters: i32,
}

/// A document of an answer.
#[derive(Debug, sqlx_macros::FromRow)]
pub struct ShownRow {
    #[sqlx(flatten)]
    pub document: DocumentRow,
    /// As [`Listed`] has them.
    pub content_bytes: i64,
    pub structured_bytes: i64,
    /// Whether the document is within the share, so that this row has what was asked for.
    pub fits: bool,
    /// The beginning of the text, if it was asked for and the row lacks the whole text.
    pub beginning: Option<String>,
    #[sqlx(flatten)]
    pub waiting: Waiting,
}

/// The statement of [`shown`]. To plan it takes longer than to run it, so one plan has to serve whatever is asked for: the planner is not told how many
/// ids there are, and a vector that is not asked for is not in the text, because the planner would expect it to cost.
macro_rules! shown {
    ($($without:tt)*) => {
        concat!(
            "SELECT ",
            columns!(
                "CASE WHEN $5::boolean AND f.fits THEN d.content ELSE '' END",
                "CASE WHEN $6::boolean AND f.fits THEN d.structured_content ELSE '{}'::jsonb END",
                $($without)*
            ),
            ", s.content_bytes, s.structured_bytes, f.fits,
                 CASE WHEN d.id = ANY($9::bigint[]) AND NOT ($5 AND f.fits) THEN left(d.content, $10::int) END AS beginning, ",
            waiting!(),
            " FROM documents d
              CROSS JOIN LATERAL (SELECT octet_length(d.content)::bigint AS content_bytes, ",
            json_bytes!("d.structured_content"),
            " AS structured_bytes) s
              CROSS JOIN LATERAL (SELECT d.id = ANY($8::bigint[])
                  AND CASE WHEN $5 THEN s.content_bytes ELSE 0 END + CASE WHEN $6 THEN s.structured_bytes ELSE 0 END <= $7::bigint AS fits) f
              WHERE d.id = ANY((SELECT $4::bigint[])::bigint[]) AND ",
            readable!()
        )
    };
}

/// Reads in one statement the documents of an answer that the scope covers, in any order, and whether anything waits (see [`unsettled`]).
pub async fn shown(conn: &mut PgConnection, scope: &Readable, wanted: &Wanted<'_>) -> sqlx::Result<Vec<ShownRow>> {
    let Wanted { ids, shape, share, spoken, characters } = *wanted;
    let mut arguments = scope.arguments();
    add(&mut arguments, shape.embed);
    add(&mut arguments, [ids, spoken].concat());
    add(&mut arguments, shape.content);
    add(&mut arguments, shape.structured_content);
    add(&mut arguments, i64::try_from(share).unwrap_or(i64::MAX));
    add(&mut arguments, ids.to_vec());
    add(&mut arguments, spoken.to_vec());
    add(&mut arguments, characters);
    let statement = if shape.embed { shown!() } else { shown!(without embed) };
    let mut rows: Vec<ShownRow> = sqlx::query_as_with(statement, arguments).fetch_all(conn).await?;
    for row in &mut rows {
        row.document.omitted = shape.omitted(row.fits);
    }
    Ok(rows)
}

/// Whether a document exists and the scope covers it.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = id.0))]
pub async fn is_readable(conn: &mut PgConnection, scope: &Readable, id: DocumentId) -> sqlx::Result<bool> {
    let mut arguments = scope.arguments();
    add(&mut arguments, id);
    let query = concat!("SELECT EXISTS (SELECT 1 FROM documents d WHERE d.id = $3 AND ", readable!(), ")");
    sqlx::query_scalar_with(query, arguments).fetch_one(conn).await
}

/// Keeps a document from being deleted until the transaction ends; false if it does not exist or the scope does not cover it.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = id.0))]
pub async fn keep(conn: &mut PgConnection, scope: &Readable, id: DocumentId) -> sqlx::Result<bool> {
    let mut arguments = scope.arguments();
    add(&mut arguments, id);
    let query = concat!("SELECT true FROM documents d WHERE d.id = $3 AND ", readable!(), " FOR KEY SHARE");
    let kept: Option<bool> = sqlx::query_scalar_with(query, arguments).fetch_optional(conn).await?;
    Ok(kept.unwrap_or_default())
}

/// Documents that were removed.
#[derive(Clone, Debug, Default)]
pub struct Gone {
    pub ids: Vec<DocumentId>,
    /// What they were in the counts of the roots of ingestion above them.
    pub counts: Frontier,
}

/// Removes documents and everything under them, with every row that depends on them, and ends the belief in facts about them. None of the documents is
/// under another. What the bulk feed still has to tell of them is kept. The caller must remove the index postings.
pub async fn delete_subtrees(conn: &mut PgConnection, roots: &[Place]) -> sqlx::Result<Gone> {
    let roots: Vec<DocumentId> = roots.iter().map(Place::id).collect();
    super::events::deleted(conn, &roots).await?;
    // A count before this delete would miss what somebody creates deep under a root between the two.
    let rows: Vec<(DocumentId, Word<Settled>, i64)> = sqlx::query_as(
        "WITH gone AS (DELETE FROM documents WHERE id = ANY($1) OR path && $1 RETURNING id, settled, guard),
              untold AS (
                  INSERT INTO bulk_gone (document_id, message_id, sha256, outcome, has_ended, reply_to, correlation_id)
                  SELECT m.document_id, m.message_id, m.sha256, m.outcome, m.has_ended OR g.settled <> 'in_flight', m.reply_to, m.correlation_id
                    FROM gone g CROSS JOIN LATERAL (SELECT b.* FROM bulk_message b WHERE b.document_id = g.id OFFSET 0) m)
         SELECT id, settled, guard FROM gone",
    )
    .bind(roots)
    .fetch_all(&mut *conn)
    .await?;
    let mut gone = Gone { ids: Vec::with_capacity(rows.len()), ..Gone::default() };
    let mut guards = Vec::with_capacity(rows.len());
    for (id, settled, guard) in rows {
        gone.ids.push(id);
        guards.push(guard);
        if guard != -1 {
            gone.counts.add(settled.0);
        }
    }
    super::triples::follow::documents_gone(conn, &gone.ids, &guards).await?;
    Ok(gone)
}

/// `sha256:<hex>` of a content.
pub fn content_hash(content: &str) -> String {
    use sha2::{Digest, Sha256};
    format!("sha256:{}", hex::encode(Sha256::digest(content)))
}

pub(crate) fn add<'q, T>(arguments: &mut PgArguments, value: T)
where
    T: sqlx::Encode<'q, sqlx::Postgres> + sqlx::Type<sqlx::Postgres> + 'q,
{
    let added = arguments.add(value);
    debug_assert!(added.is_ok(), "plain values always encode");
}
