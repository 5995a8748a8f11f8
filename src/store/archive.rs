//! Documents, links and grants on their way out of the store, with all that hangs on them.
mod taking_in;
mod tokens;

use super::{
    documents::{add, json_bytes},
    links::{self, Page, fitting},
    raptor,
    scope::{Readable, readable},
    word::Word,
};
use chrono::{DateTime, Utc};
use pgvector::HalfVector;
use serde_json::{Map, Value};
use sqlx::{PgConnection, types::Json};
use svc_client::wire::{ArchivedKey, DetectedBy, Settled};
use svc_ids::{DocumentId, IndexId, PrincipalId};
pub use taking_in::*;
pub use tokens::{Packed, TokenRow, packed, text_hashes, tokens};

/// How many of the documents that state a fact an archive names.
pub const MOST_SOURCES: usize = 1_000;

/// Leaves out the trees of summaries, which the service makes anew; the argument is their rule.
macro_rules! no_summary {
    ($rule:literal) => {
        concat!(
            "NOT EXISTS (SELECT FROM node_origins r WHERE r.rule = ",
            $rule,
            " AND r.document_id = ANY(d.path || d.id))"
        )
    };
}
pub(super) use no_summary;

/// A document in the order of the tree.
#[derive(Clone, Debug, sqlx_macros::FromRow)]
pub struct Line {
    /// The ids from its root down to itself.
    pub line: Vec<i64>,
    pub id: DocumentId,
    /// An estimate of what it takes in an answer.
    pub bytes: i64,
}

/// Where a page begins.
pub struct Start<'a> {
    pub line: &'a [i64],
    /// Whether the document there was on the page before.
    pub is_behind: bool,
}

/// The documents from a place on, each before what is under it, up to the line `end`.
pub async fn lines(
    conn: &mut PgConnection,
    scope: &Readable,
    from: Start<'_>,
    end: Option<&[i64]>,
    limit: u32,
) -> sqlx::Result<Vec<Line>> {
    let mut arguments = scope.arguments();
    add(&mut arguments, from.line.to_vec());
    add(&mut arguments, from.is_behind);
    add(&mut arguments, end.map(<[i64]>::to_vec));
    add(&mut arguments, i64::from(limit));
    add(&mut arguments, raptor::RULE);
    sqlx::query_as_with(
        concat!(
            "SELECT d.path || d.id AS line, d.id,
                    octet_length(d.content)::bigint + 16 * pg_column_size(d.structured_content)::bigint
                    + coalesce((SELECT sum(16 * pg_column_size(e.value)::bigint) FROM node_evidence e WHERE e.document_id = d.id), 0)::bigint AS bytes
               FROM documents d
              WHERE d.path || d.id >= $3::bigint[] AND (NOT $4 OR d.path || d.id <> $3::bigint[])
                AND ($5::bigint[] IS NULL OR d.path || d.id < $5::bigint[]) AND ",
            readable!(),
            " AND ",
            no_summary!("$7"),
            " ORDER BY d.path || d.id LIMIT $6"
        ),
        arguments,
    )
    .persistent(false)
    .fetch_all(conn)
    .await
}

/// A document with all that hangs on it.
#[derive(Debug, sqlx_macros::FromRow)]
pub struct Exported {
    pub id: DocumentId,
    pub parent_id: Option<DocumentId>,
    pub is_parent_readable: bool,
    pub guard: DocumentId,
    /// Whether its guard is above it, at or under the document that is exported.
    pub is_guard_inside: bool,
    pub keys: Option<Json<Vec<ArchivedKey>>>,
    pub name_key: Option<String>,
    pub type_key: Option<String>,
    pub name_model: Option<String>,
    pub name_embed: Option<HalfVector>,
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
    pub rule: Option<String>,
    pub anchor: Option<Value>,
    pub evidence: Option<Json<Map<String, Value>>>,
    pub iri: Option<String>,
    pub blank: Option<bool>,
    pub embed_model: Option<String>,
    pub weight: Option<f32>,
    pub embed: Option<HalfVector>,
    pub is_indexed: bool,
    pub byte_size: Option<i64>,
    pub blob_hash: Option<String>,
    pub mime_type: Option<String>,
    pub declared_mime: Option<String>,
    pub detected_by: Option<Word<DetectedBy>>,
    pub format: Option<String>,
    pub options: Option<Value>,
    pub root_id: Option<DocumentId>,
    pub tokens: Option<i64>,
    pub failed_children: Option<i32>,
}

/// The documents among `ids` that the scope covers, in any order, with the evidence of these names; all are at or under `root`. What hangs on names
/// of others is the owner's to see.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = root.map(|id| id.0)))]
pub async fn read(
    conn: &mut PgConnection,
    scope: &Readable,
    ids: &[DocumentId],
    evidence: &[&str],
    index: Option<IndexId>,
    root: Option<DocumentId>,
) -> sqlx::Result<Vec<Exported>> {
    let mut arguments = scope.arguments();
    add(&mut arguments, ids.to_vec());
    add(&mut arguments, evidence.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
    add(&mut arguments, index);
    add(&mut arguments, root);
    sqlx::query_as_with(
        concat!(
            "SELECT d.id, d.parent_id, d.guard,
                    coalesce(array_position(d.path, d.guard) >= coalesce(array_position(d.path, $6::bigint), 1), false)
                    AND d.id IS DISTINCT FROM $6 AS is_guard_inside,
                    CASE WHEN $1 THEN (SELECT jsonb_agg(jsonb_strip_nulls(jsonb_build_object('principal', p.name, 'key', k.key)) ORDER BY k.key, p.name)
                                         FROM document_keys k LEFT JOIN principals p ON p.id = k.principal_id
                                        WHERE k.document_id = d.id AND NOT starts_with(k.key, 'archive:')) END AS keys,
                    e.name_key, e.type_key, e.embed_model AS name_model, e.embed AS name_embed,
                    d.title, d.content, d.structured_content, d.usetype, d.position, d.event_time, d.created_at,
                    d.updated_at, d.content_hash, d.settled,
                    EXISTS (SELECT FROM documents p WHERE p.id = d.parent_id AND p.guard <> -1 AND ($1::boolean OR p.guard = ANY($2::bigint[]))) AS is_parent_readable,
                    o.rule, o.anchor, g.iri, g.blank, v.embed_model, v.weight, v.embed,
                    (SELECT jsonb_object_agg(e.name, e.value) FROM node_evidence e WHERE e.document_id = d.id AND e.name = ANY($4::text[])) AS evidence,
                    EXISTS (SELECT FROM search_index_entries x WHERE x.document_id = d.id AND x.index_id = $5::bigint) AS is_indexed,
                    b.byte_size, b.content_hash AS blob_hash, b.mime_type, b.declared_mime, b.detected_by, b.format, b.options,
                    -- Where the file that it belongs to stays behind, the topmost one with bytes that comes along takes its place.
                    coalesce((SELECT i.document_id FROM unnest(d.path || d.id) WITH ORDINALITY a(id, at)
                                JOIN ingest_node i ON i.document_id = a.id AND i.root_id = n.root_id
                                JOIN documents f ON f.id = a.id AND f.guard <> -1 AND ($1::boolean OR f.guard = ANY($2::bigint[]))
                               WHERE a.at >= coalesce(array_position(d.path || d.id, $6::bigint), 1)
                                 AND (a.id = n.root_id OR EXISTS (SELECT FROM document_blobs m WHERE m.document_id = a.id AND m.is_file))
                               ORDER BY a.at LIMIT 1), n.root_id) AS root_id, n.tokens, n.failed_children
               FROM documents d LEFT JOIN node_origins o ON o.document_id = d.id LEFT JOIN graph_nodes g ON g.document_id = d.id
               LEFT JOIN LATERAL (SELECT o.embed_model, o.weight, o.embed FROM document_vectors o WHERE o.document_id = d.id
                                   ORDER BY o.embed_model = (SELECT m.serving FROM model_moves m) DESC LIMIT 1) v ON true
               LEFT JOIN entity_names e ON $1 AND e.document_id = d.id
               LEFT JOIN document_blobs b ON b.document_id = d.id
               LEFT JOIN ingest_node n ON n.document_id = d.id
              WHERE d.id = ANY($3) AND ",
            readable!()
        ),
        arguments,
    )
    .fetch_all(conn)
    .await
}

/// A link with both ends.
#[derive(Debug, sqlx_macros::FromRow)]
pub struct ExportedLink {
    pub id: i64,
    pub source_id: DocumentId,
    pub target_id: DocumentId,
    pub link_type: String,
    pub score: Option<f64>,
    pub metadata: Json<Map<String, Value>>,
    /// Whether one of its ends is not at or under the document.
    pub is_outside: bool,
    /// How many there are without the bound of bytes.
    found: i64,
}

/// The most links that one statement reads to find those of a page: a caller may read few of all, and a document have few under it.
const READ: i64 = 10_000;

/// The links after `after`, by id, with an end at or under a document, or all, without one: at most `limit`, and no more after these take `bytes`. The
/// second value is the id after which the next page begins, if there may be one; a page may be empty and not the last.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = under.map(|id| id.0)))]
pub async fn links(
    conn: &mut PgConnection,
    scope: &Readable,
    under: Option<DocumentId>,
    after: i64,
    limit: u32,
    bytes: u64,
) -> sqlx::Result<(Vec<ExportedLink>, Option<i64>)> {
    let end: Option<i64> =
        sqlx::query_scalar("SELECT id FROM document_links WHERE id > $1 ORDER BY id OFFSET $2 LIMIT 1")
            .bind(after)
            .bind(READ)
            .fetch_optional(&mut *conn)
            .await?;
    macro_rules! end {
        ($column:literal) => {
            concat!(
                "(SELECT ($4::bigint IS NULL OR d.id = $4 OR d.path @> ARRAY[$4]) AS is_inside FROM documents d WHERE d.id = ",
                $column,
                " AND ",
                readable!(),
                " AND ",
                no_summary!("$6"),
                ")"
            )
        };
    }
    // What is under a document is hashed once if it is little, so that the other links cost next to nothing.
    macro_rules! inside {
        ($column:literal) => {
            concat!(
                "EXISTS (SELECT FROM documents d WHERE d.id = ",
                $column,
                " AND (d.id = $4 OR d.path @> ARRAY[$4]))"
            )
        };
    }
    let mut arguments = scope.arguments();
    add(&mut arguments, after);
    add(&mut arguments, under);
    add(&mut arguments, i64::from(limit) + 1);
    add(&mut arguments, raptor::RULE);
    links::room(&mut arguments, bytes);
    add(&mut arguments, end);
    let rows = sqlx::query_as_with(
        fitting!(
            "$7",
            "$8",
            "SELECT l.id, l.source_id, l.target_id, l.link_type, l.score, l.metadata, NOT (s.is_inside AND t.is_inside) AS is_outside
               FROM document_links l CROSS JOIN LATERAL ",
            end!("l.source_id"),
            " s CROSS JOIN LATERAL ",
            end!("l.target_id"),
            " t WHERE l.id > $3 AND ($9::bigint IS NULL OR l.id <= $9) AND ($4::bigint IS NULL OR ",
            inside!("l.source_id"),
            " OR ",
            inside!("l.target_id"),
            ") ORDER BY l.id LIMIT $5"
        ),
        arguments,
    )
    .persistent(false)
    .fetch_all(conn)
    .await?;
    let Page { rows, has_more } = Page::of(rows, limit, |row: &ExportedLink| row.found);
    let next = if has_more { rows.last().map(|row| row.id) } else { end };
    Ok((rows, next))
}

/// A grant, with the name of its principal.
#[derive(Debug, sqlx_macros::FromRow)]
pub struct ExportedGrant {
    pub document_id: DocumentId,
    pub principal_id: PrincipalId,
    pub principal: String,
    pub can_write: bool,
}

/// The grants at and under a document, or all, after that on `after.0` to the principal `after.1`.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = under.map(|id| id.0)))]
pub async fn grants(
    conn: &mut PgConnection,
    under: Option<DocumentId>,
    after: (DocumentId, PrincipalId),
    limit: u32,
) -> sqlx::Result<Vec<ExportedGrant>> {
    sqlx::query_as(
        "SELECT g.document_id, g.principal_id, p.name AS principal, g.can_write
           FROM access_grants g JOIN principals p ON p.id = g.principal_id JOIN documents d ON d.id = g.document_id
          WHERE (g.document_id, g.principal_id) > ($1, $2) AND ($3::bigint IS NULL OR d.id = $3 OR d.path @> ARRAY[$3])
          ORDER BY g.document_id, g.principal_id LIMIT $4",
    )
    .bind(after.0)
    .bind(after.1)
    .bind(under)
    .bind(i64::from(limit))
    .fetch_all(conn)
    .await
}
