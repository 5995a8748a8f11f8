//! Documents and what hangs on them, on their way into the store.
use crate::store::{
    lexicon::Lexicon,
    members,
    nodes::braces,
    places::Place,
    text::{storable, storable_json},
};
use chrono::{DateTime, Utc};
use pgvector::HalfVector;
use serde_json::Value;
use sqlx::PgConnection;
use svc_client::wire::Settled;
use svc_ids::{DocumentId, PrincipalId, RootId};

/// A document to be stored as it was elsewhere.
pub struct Restored<'a> {
    pub place: Place,
    pub title: &'a str,
    pub content: &'a str,
    /// A JSON object.
    pub structured_content: Value,
    pub usetype: &'a str,
    pub position: Option<i32>,
    pub event_time: Option<DateTime<Utc>>,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
    pub content_hash: String,
    pub settled: Settled,
}

/// Stores documents, parents before their children; each is as guarded as the nearest ancestor that was there before. The transaction is
/// one of [`begin_creating`](crate::store::transaction::begin_creating).
pub async fn insert(conn: &mut PgConnection, lexicon: &Lexicon, documents: &[Restored<'_>]) -> sqlx::Result<()> {
    let words = lexicon.words(documents.iter().map(|new| (new.title, new.content)).collect()).await;
    sqlx::query(
        "WITH made AS (
                 INSERT INTO documents (id, parent_id, path, title, content, usetype, position, event_time, created_at, updated_at, content_hash,
                                        structured_content, settled, guard)
                 OVERRIDING SYSTEM VALUE
                 SELECT id, path[cardinality(path)], path, title, content, usetype, position, event_time, created_at, updated_at, content_hash,
                        structured_content, settled,
                        coalesce((SELECT p.guard FROM documents p WHERE p.id = ANY(n.path) ORDER BY cardinality(p.path) DESC LIMIT 1), 0)
                   FROM (SELECT id, path::bigint[] AS path, title, content, usetype, position, event_time, created_at, updated_at, content_hash,
                                structured_content, settled
                           FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::int[], $7::timestamptz[], $8::timestamptz[],
                                       $9::timestamptz[], $10::text[], $11::jsonb[], $12::text[])
                             AS n(id, path, title, content, usetype, position, event_time, created_at, updated_at, content_hash, structured_content, settled)) n
                 RETURNING id)
         INSERT INTO document_words (document_id, words)
         SELECT id, words::tsvector FROM made JOIN unnest($1::bigint[], $13::text[]) AS w (id, words) USING (id)",
    )
    .bind(documents.iter().map(|new| new.place.id()).collect::<Vec<_>>())
    .bind(documents.iter().map(|new| braces(new.place.path())).collect::<Vec<_>>())
    .bind(documents.iter().map(|new| storable(new.title).into_owned()).collect::<Vec<_>>())
    .bind(documents.iter().map(|new| storable(new.content).into_owned()).collect::<Vec<_>>())
    .bind(documents.iter().map(|new| new.usetype).collect::<Vec<_>>())
    .bind(documents.iter().map(|new| new.position).collect::<Vec<_>>())
    .bind(documents.iter().map(|new| new.event_time).collect::<Vec<_>>())
    .bind(documents.iter().map(|new| new.created_at).collect::<Vec<_>>())
    .bind(documents.iter().map(|new| new.updated_at).collect::<Vec<_>>())
    .bind(documents.iter().map(|new| new.content_hash.as_str()).collect::<Vec<_>>())
    .bind(documents.iter().map(|new| storable_json(&new.structured_content).into_owned()).collect::<Vec<_>>())
    .bind(documents.iter().map(|new| new.settled.as_str()).collect::<Vec<_>>())
    .bind(words)
    .execute(conn)
    .await
    .map(|_| ())
}

/// Records what made documents, and where in their files they come from.
pub async fn record_origins(
    conn: &mut PgConnection,
    origins: &[(DocumentId, &str, Option<Value>)],
) -> sqlx::Result<()> {
    sqlx::query("INSERT INTO node_origins (document_id, rule, anchor) SELECT * FROM unnest($1::bigint[], $2::text[], $3::jsonb[])")
        .bind(origins.iter().map(|(id, ..)| *id).collect::<Vec<_>>())
        .bind(origins.iter().map(|(_, rule, _)| *rule).collect::<Vec<_>>())
        .bind(origins.iter().map(|(.., anchor)| anchor.as_ref().map(|anchor| storable_json(anchor).into_owned())).collect::<Vec<_>>())
        .execute(conn)
        .await
        .map(|_| ())
}

/// A container of a file whose ingestion is over.
#[derive(Clone, Copy, Debug)]
pub struct Container {
    pub id: DocumentId,
    pub root_id: RootId,
    pub tokens: i64,
    pub failed_children: i32,
}

/// Keeps what ingestion counted under containers, and counts new documents under the roots of ingestion that are above them.
pub async fn count(conn: &mut PgConnection, documents: &[DocumentId], containers: &[Container]) -> sqlx::Result<()> {
    sqlx::query(
        "INSERT INTO ingest_node (document_id, parent_id, root_id, tokens, failed_children, rollup)
         SELECT n.id, CASE WHEN n.id <> n.root THEN d.parent_id END, n.root, n.tokens, n.failed, 'done'
           FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::int[]) AS n(id, root, tokens, failed) JOIN documents d ON d.id = n.id",
    )
    .bind(containers.iter().map(|container| container.id).collect::<Vec<_>>())
    .bind(containers.iter().map(|container| container.root_id).collect::<Vec<_>>())
    .bind(containers.iter().map(|container| container.tokens).collect::<Vec<_>>())
    .bind(containers.iter().map(|container| container.failed_children).collect::<Vec<_>>())
    .execute(&mut *conn)
    .await?;
    sqlx::query(
        "INSERT INTO frontier_delta (root_id, total, in_flight, settled, failed)
         SELECT n.document_id, count(*), 0, count(*) FILTER (WHERE d.settled = 'settled'), count(*) FILTER (WHERE d.settled = 'failed')
           FROM documents d CROSS JOIN unnest(d.path || d.id) AS above(id)
           JOIN ingest_node n ON n.document_id = above.id AND n.root_id = above.id
          WHERE d.id = ANY($1) GROUP BY n.document_id",
    )
    .bind(documents)
    .execute(conn)
    .await
    .map(|_| ())
}

/// Gives documents the keys of principals, by their names, and of the owner. A key that its caller has given to another document stays with that,
/// and one of a principal that is not here is left out.
pub async fn restore_keys(conn: &mut PgConnection, keys: &[(DocumentId, Option<&str>, &str)]) -> sqlx::Result<()> {
    if keys.is_empty() {
        return Ok(());
    }
    sqlx::query(
        "WITH held AS MATERIALIZED (SELECT id, name FROM principals WHERE name = ANY($2::text[]) ORDER BY id FOR KEY SHARE)
         INSERT INTO document_keys (principal_id, key, document_id)
         SELECT p.id, k.key, k.id FROM unnest($1::bigint[], $2::text[], $3::text[]) k(id, principal, key)
           LEFT JOIN held p ON p.name = k.principal
          WHERE k.principal IS NULL OR p.id IS NOT NULL ORDER BY k.key, p.id ON CONFLICT DO NOTHING",
    )
    .bind(keys.iter().map(|(id, ..)| *id).collect::<Vec<_>>())
    .bind(keys.iter().map(|(_, principal, _)| *principal).collect::<Vec<_>>())
    .bind(keys.iter().map(|(.., key)| *key).collect::<Vec<_>>())
    .execute(conn)
    .await
    .map(|_| ())
}

/// The name of a document, with its vector and the model of that.
pub struct RestoredEntity<'a> {
    pub id: DocumentId,
    pub name: &'a str,
    pub kind: &'a str,
    pub vector: Option<(&'a str, &'a HalfVector)>,
}

/// Gives documents the names by which texts mean them, in the zones that they are in; a name that another one has there stays with that.
pub async fn restore_entities(conn: &mut PgConnection, names: &[RestoredEntity<'_>]) -> sqlx::Result<()> {
    if names.is_empty() {
        return Ok(());
    }
    sqlx::query(
        "INSERT INTO entity_names (document_id, zone, name_key, type_key, embed_model, embed)
         SELECT d.id, d.guard, n.name, n.kind, n.model, n.embed
           FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::halfvec[]) n(id, name, kind, model, embed) JOIN documents d ON d.id = n.id
          ORDER BY d.guard, n.name, n.kind ON CONFLICT DO NOTHING",
    )
    .bind(names.iter().map(|entity| entity.id).collect::<Vec<_>>())
    .bind(names.iter().map(|entity| storable(entity.name).into_owned()).collect::<Vec<_>>())
    .bind(names.iter().map(|entity| storable(entity.kind).into_owned()).collect::<Vec<_>>())
    .bind(names.iter().map(|entity| entity.vector.map(|(model, _)| storable(model).into_owned())).collect::<Vec<_>>())
    .bind(names.iter().map(|entity| entity.vector.map(|(_, vector)| vector.clone())).collect::<Vec<_>>())
    .execute(conn)
    .await
    .map(|_| ())
}

/// The guards of documents.
pub async fn guards(conn: &mut PgConnection, ids: &[DocumentId]) -> sqlx::Result<Vec<(DocumentId, DocumentId)>> {
    sqlx::query_as("SELECT guard, id FROM documents WHERE id = ANY($1) ORDER BY guard, id")
        .bind(ids)
        .fetch_all(conn)
        .await
}

/// Whether a document came with an archive.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = document.id().0))]
pub async fn is_imported(conn: &mut PgConnection, document: &Place) -> sqlx::Result<bool> {
    sqlx::query_scalar(
        "SELECT EXISTS (SELECT FROM document_keys WHERE document_id = $1 AND starts_with(key, 'archive:'))",
    )
    .bind(document.id())
    .fetch_one(conn)
    .await
}

/// Another document that has the bytes of a file, where the same callers read both, and neither is a member of a container.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = file.id().0))]
pub async fn same_bytes(conn: &mut PgConnection, file: &Place, content_hash: &str) -> sqlx::Result<Option<DocumentId>> {
    sqlx::query_scalar(
        "SELECT b.document_id FROM documents f JOIN document_blobs b ON b.content_hash = $2 AND b.is_file
           JOIN documents d ON d.id = b.document_id AND d.usetype = f.usetype AND d.guard = f.guard AND d.id <> f.id
          WHERE f.id = $1 AND NOT EXISTS (SELECT FROM node_origins o WHERE o.document_id IN (f.id, d.id) AND o.rule = $3) ORDER BY d.id LIMIT 1",
    )
    .bind(file.id())
    .bind(content_hash)
    .bind(members::RULE)
    .fetch_optional(conn)
    .await
}

/// A link to be made.
pub struct RestoredLink<'a> {
    pub source: &'a Place,
    pub target_id: DocumentId,
    pub link_type: &'a str,
    pub score: Option<f64>,
    /// A JSON object.
    pub metadata: Value,
}

/// Adds links, but those that are there already; returns how many were not.
pub async fn add_links(conn: &mut PgConnection, links: &[RestoredLink<'_>]) -> sqlx::Result<u64> {
    let made = sqlx::query(
        "INSERT INTO document_links (source_id, target_id, link_type, score, metadata)
         SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::float8[], $5::jsonb[]) ON CONFLICT DO NOTHING",
    )
    .bind(links.iter().map(|link| link.source.id()).collect::<Vec<_>>())
    .bind(links.iter().map(|link| link.target_id).collect::<Vec<_>>())
    .bind(links.iter().map(|link| storable(link.link_type).into_owned()).collect::<Vec<_>>())
    .bind(links.iter().map(|link| link.score).collect::<Vec<_>>())
    .bind(links.iter().map(|link| storable_json(&link.metadata).into_owned()).collect::<Vec<_>>())
    .execute(conn)
    .await?;
    Ok(made.rows_affected())
}

/// The principals with these names.
pub async fn principals(conn: &mut PgConnection, names: &[&str]) -> sqlx::Result<Vec<(String, PrincipalId)>> {
    sqlx::query_as("SELECT name, id FROM principals WHERE name = ANY($1)").bind(names).fetch_all(conn).await
}

/// The grants on documents: the document and the principal.
pub async fn granted(
    conn: &mut PgConnection,
    documents: &[DocumentId],
) -> sqlx::Result<Vec<(DocumentId, PrincipalId)>> {
    sqlx::query_as("SELECT document_id, principal_id FROM access_grants WHERE document_id = ANY($1)")
        .bind(documents)
        .fetch_all(conn)
        .await
}
