//! Typed edges between documents.
use super::{
    advisory::AdvisoryLock,
    documents::{add, json_bytes},
    places::Place,
    scope::{Readable, readable},
};
use chrono::{DateTime, Utc};
use serde_json::{Map, Value};
use sqlx::{PgConnection, postgres::PgArguments, types::Json};
use svc_client::wire::{LinkResponse, NewLink};
use svc_ids::DocumentId;

#[derive(sqlx_macros::FromRow)]
struct LinkRow {
    id: i64,
    source_id: i64,
    target_id: i64,
    link_type: String,
    score: Option<f64>,
    metadata: Json<Map<String, Value>>,
    created_at: DateTime<Utc>,
}

/// A link of a page, see [`fitting!`].
#[derive(sqlx_macros::FromRow)]
struct FoundLink {
    #[sqlx(flatten)]
    link: LinkRow,
    found: i64,
}

impl From<LinkRow> for LinkResponse {
    fn from(row: LinkRow) -> LinkResponse {
        LinkResponse {
            id: row.id,
            source_id: row.source_id,
            target_id: row.target_id,
            link_type: row.link_type,
            score: row.score,
            metadata: row.metadata.0,
            created_at: row.created_at,
        }
    }
}

/// Makes a document contain another one; adding the same link again changes nothing.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = source.id().0))]
pub async fn contain(conn: &mut PgConnection, source: &Place, target_id: DocumentId) -> sqlx::Result<()> {
    sqlx::query(
        "INSERT INTO document_links (source_id, target_id, link_type) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING",
    )
    .bind(source.id())
    .bind(target_id)
    .bind(CONTAINS)
    .execute(conn)
    .await
    .map(|_| ())
}

/// Adds a link; `None` if there is such a link already.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = source.id().0))]
pub async fn create(conn: &mut PgConnection, source: &Place, new: &NewLink) -> sqlx::Result<Option<LinkResponse>> {
    let row: Option<LinkRow> = sqlx::query_as(
        "INSERT INTO document_links (source_id, target_id, link_type, score, metadata) VALUES ($1, $2, $3, $4, $5)
         ON CONFLICT DO NOTHING RETURNING id, source_id, target_id, link_type, score, metadata, created_at",
    )
    .bind(source.id())
    .bind(new.target_id)
    .bind(&new.link_type)
    .bind(new.score)
    .bind(Json(&new.metadata))
    .fetch_optional(conn)
    .await?;
    Ok(row.map(LinkResponse::from))
}

/// The id of a link between two documents.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = source_id.0))]
pub async fn find(
    conn: &mut PgConnection,
    source_id: DocumentId,
    target_id: DocumentId,
    link_type: &str,
) -> sqlx::Result<Option<i64>> {
    sqlx::query_scalar("SELECT id FROM document_links WHERE source_id = $1 AND target_id = $2 AND link_type = $3")
        .bind(source_id)
        .bind(target_id)
        .bind(link_type)
        .fetch_optional(conn)
        .await
}

/// The type of the links that stand for parentage.
pub const CONTAINS: &str = "contains";

/// Whether a document contains another one, by the tree and by links of the type [`CONTAINS`]; links from documents that the scope does
/// not cover do not count. Ask it before anything is put under `below`, by a link or in the tree: if it is so, that would close a circle.
/// Until the transaction ends, nobody else asks this.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = below.0, above.id = above.0))]
pub async fn contains(
    conn: &mut PgConnection,
    scope: &Readable,
    above: DocumentId,
    below: DocumentId,
) -> sqlx::Result<bool> {
    sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(AdvisoryLock::Links.key()).execute(&mut *conn).await?;
    let mut arguments = scope.arguments();
    add(&mut arguments, above);
    add(&mut arguments, below);
    add(&mut arguments, CONTAINS);
    sqlx::query_scalar_with(
        concat!(
            "WITH RECURSIVE above(id) AS (
                 SELECT unnest(path || id) FROM documents WHERE id = $4
                 UNION
                 SELECT up.id FROM above a JOIN document_links l ON l.target_id = a.id AND l.link_type = $5
                   JOIN documents d ON d.id = l.source_id AND ",
            readable!(),
            " CROSS JOIN LATERAL unnest(d.path || d.id) AS up(id))
             SELECT EXISTS (SELECT 1 FROM above WHERE id = $3)"
        ),
        arguments,
    )
    .fetch_one(conn)
    .await
}

/// Deletes a link that leads from a document to one that the scope covers; false if there is none.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = source.id().0))]
pub async fn delete(conn: &mut PgConnection, scope: &Readable, source: &Place, link_id: i64) -> sqlx::Result<bool> {
    let mut arguments = scope.arguments();
    add(&mut arguments, source.id());
    add(&mut arguments, link_id);
    let gone = sqlx::query_with(
        concat!(
            "DELETE FROM document_links l USING documents d WHERE l.id = $4 AND l.source_id = $3 AND d.id = l.target_id AND ",
            readable!()
        ),
        arguments,
    )
    .execute(conn)
    .await?;
    Ok(gone.rows_affected() > 0)
}

/// What a link takes in an answer that lists it, without its metadata.
const ROW_BYTES: i64 = 1024;

/// A page of a query's links: as many of the rows as there is room for in so many bytes, and at least one. `$room` and `$row` are the parameters of [`room`]. Each row
/// tells how many there are without that bound.
macro_rules! fitting {
    ($room:literal, $row:literal, $($rows:tt)*) => {
        concat!(
            "WITH page AS MATERIALIZED (",
            $($rows)*,
            "), sized AS (SELECT p.*, ",
            $row,
            "::bigint + ",
            json_bytes!("p.metadata"),
            " AS bytes FROM page p),
                  placed AS (SELECT s.*, count(*) OVER () AS found, sum(s.bytes) OVER (ORDER BY s.id) - s.bytes AS before FROM sized s)
             SELECT * FROM placed WHERE before < ",
            $room,
            "::bigint ORDER BY id"
        )
    };
}
pub(super) use fitting;

/// Some rows of a list, by id.
#[derive(Debug)]
pub struct Page<T> {
    pub rows: Vec<T>,
    /// Whether there are more behind them.
    pub has_more: bool,
}

impl<T> Page<T> {
    /// Of the rows of a [`fitting!`] query for one more than `limit`, of which `found` were found.
    pub(super) fn of(mut rows: Vec<T>, limit: u32, found: impl Fn(&T) -> i64) -> Page<T> {
        let found = rows.first().map_or(0, found);
        rows.truncate(limit as usize);
        let has_more = (rows.len() as i64) < found;
        Page { rows, has_more }
    }
}

/// How many bytes a page of links may take, as parameters of [`fitting!`].
pub(super) fn room(arguments: &mut PgArguments, bytes: u64) {
    add(arguments, i64::try_from(bytes).unwrap_or(i64::MAX));
    add(arguments, ROW_BYTES);
}

/// The links `l` of the document of `$3`, in both directions, if the scope covers the other end.
macro_rules! around {
    () => {
        concat!(
            "FROM document_links l JOIN documents d ON d.id = CASE WHEN l.source_id = $3 THEN l.target_id ELSE l.source_id END
              WHERE (l.source_id = $3 OR l.target_id = $3) AND ",
            readable!()
        )
    };
}

/// A link by its ends.
#[derive(Debug, sqlx_macros::FromRow)]
pub struct LinkEnds {
    pub id: i64,
    pub source_id: i64,
    pub target_id: i64,
    pub link_type: String,
}

/// The first links of a document, in both directions, if the scope covers the other end: at most `limit`.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = id.0))]
pub async fn ends(
    conn: &mut PgConnection,
    scope: &Readable,
    id: DocumentId,
    limit: u32,
) -> sqlx::Result<Vec<LinkEnds>> {
    let mut arguments = scope.arguments();
    add(&mut arguments, id);
    add(&mut arguments, i64::from(limit));
    sqlx::query_as_with(
        concat!("SELECT l.id, l.source_id, l.target_id, l.link_type ", around!(), " ORDER BY l.id LIMIT $4"),
        arguments,
    )
    .fetch_all(conn)
    .await
}

/// A document's links after a cursor, in both directions, if the scope covers the other end: at most `limit`, and no more after these take `bytes`.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = id.0))]
pub async fn of_document(
    conn: &mut PgConnection,
    scope: &Readable,
    id: DocumentId,
    after: i64,
    limit: u32,
    bytes: u64,
) -> sqlx::Result<Page<LinkResponse>> {
    let mut arguments = scope.arguments();
    add(&mut arguments, id);
    add(&mut arguments, after);
    add(&mut arguments, i64::from(limit) + 1);
    room(&mut arguments, bytes);
    let rows: Vec<FoundLink> = sqlx::query_as_with(
        fitting!(
            "$6",
            "$7",
            "SELECT l.id, l.source_id, l.target_id, l.link_type, l.score, l.metadata, l.created_at ",
            around!(),
            " AND l.id > $4 ORDER BY l.id LIMIT $5"
        ),
        arguments,
    )
    .fetch_all(conn)
    .await?;
    let Page { rows, has_more } = Page::of(rows, limit, |row| row.found);
    Ok(Page { rows: rows.into_iter().map(|row| row.link.into()).collect(), has_more })
}
