//! Stored bytes as PostgreSQL large objects: transactional, and streamed in and out.
use super::{
    places::Place,
    scope::{Readable, readable},
    word::Word,
};
use crate::usetype::Usetype;
use serde_json::Value;
use sqlx::{PgConnection, PgPool, postgres::types::Oid};
use svc_client::wire::DetectedBy;
use svc_ids::DocumentId;

/// The most bytes that one statement reads or writes.
pub const PIECE: usize = 256 * 1024;

/// An open large object of the current transaction; a rollback leaves nothing of it.
pub struct Writer {
    oid: Oid,
    handle: i32,
}

/// Makes an empty large object and opens it.
pub async fn create(conn: &mut PgConnection) -> sqlx::Result<Writer> {
    let oid: Oid = sqlx::query_scalar("SELECT lo_create(0)").fetch_one(&mut *conn).await?;
    // 0x20000: INV_WRITE.
    let handle = sqlx::query_scalar("SELECT lo_open($1, 131072)").bind(oid).fetch_one(conn).await?;
    Ok(Writer { oid, handle })
}

impl Writer {
    pub async fn write(&self, conn: &mut PgConnection, bytes: &[u8]) -> sqlx::Result<()> {
        sqlx::query("SELECT lowrite($1, $2)").bind(self.handle).bind(bytes).execute(conn).await.map(|_| ())
    }

    /// Closes the object, of which the transaction holds a handle until then.
    pub async fn close(self, conn: &mut PgConnection) -> sqlx::Result<Oid> {
        sqlx::query("SELECT lo_close($1)").bind(self.handle).execute(conn).await?;
        Ok(self.oid)
    }
}

/// Reads up to `length` bytes from `offset`; empty at the end.
pub async fn read_at(conn: &mut PgConnection, oid: Oid, offset: i64, length: i32) -> sqlx::Result<Vec<u8>> {
    sqlx::query_scalar("SELECT lo_get($1, $2, $3)").bind(oid).bind(offset).bind(length).fetch_one(conn).await
}

/// A file node's bytes.
#[derive(Clone, Debug, sqlx::FromRow)]
pub struct BlobRow {
    pub document_id: DocumentId,
    pub lob: Oid,
    pub mime_type: Option<String>,
    pub declared_mime: Option<String>,
    pub detected_by: Option<Word<DetectedBy>>,
    pub format: Option<String>,
    pub byte_size: i64,
    pub content_hash: String,
    pub options: Value,
}

/// Attaches bytes to their file node.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = file.id().0))]
pub async fn insert(conn: &mut PgConnection, file: &Place, row: &BlobRow) -> sqlx::Result<()> {
    sqlx::query(
        "INSERT INTO document_blobs (document_id, lob, mime_type, declared_mime, detected_by, format, byte_size, content_hash, options)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)",
    )
    .bind(file.id())
    .bind(row.lob)
    .bind(&row.mime_type)
    .bind(&row.declared_mime)
    .bind(row.detected_by.map(|Word(by)| by.as_str()))
    .bind(&row.format)
    .bind(row.byte_size)
    .bind(&row.content_hash)
    .bind(&row.options)
    .execute(conn)
    .await
    .map(|_| ())
}

/// How many files' bytes one call of [`unlink_orphans`] deletes.
const PART: i64 = 1_000;

/// From here on, the bytes of files deleted in this transaction are only noted, for [`unlink_orphans`].
pub async fn unlink_later(conn: &mut PgConnection) -> sqlx::Result<()> {
    sqlx::query("SELECT set_config('svc.unlink_later', 'on', true)").execute(conn).await.map(|_| ())
}

/// Deletes the noted bytes of at most a thousand files; returns of how many.
pub async fn unlink_orphans(pool: &PgPool) -> sqlx::Result<i64> {
    sqlx::query_scalar(
        "WITH part AS (
             DELETE FROM blob_orphan WHERE lob IN (SELECT lob FROM blob_orphan LIMIT $1 FOR UPDATE SKIP LOCKED) RETURNING lob)
         SELECT count(CASE WHEN EXISTS (SELECT 1 FROM pg_largeobject_metadata WHERE oid = lob) THEN lo_unlink(lob) ELSE 0 END) FROM part",
    )
    .bind(PART)
    .fetch_one(pool)
    .await
}

/// The bytes of a file node. A generation of a file has the file's bytes, and options of its own.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = document_id.0))]
pub async fn of_document(conn: &mut PgConnection, document_id: DocumentId) -> sqlx::Result<Option<BlobRow>> {
    sqlx::query_as(
        "SELECT b.document_id, b.lob, b.mime_type, b.declared_mime, b.detected_by, b.format, b.byte_size, b.content_hash, coalesce(g.options, b.options) AS options
           FROM (SELECT $1::bigint AS id) n LEFT JOIN generations g ON g.generation_id = n.id
           JOIN document_blobs b ON b.document_id = CASE WHEN g.generation_id IS NULL THEN n.id ELSE g.document_id END",
    )
    .bind(document_id)
    .fetch_optional(conn)
    .await
}

/// Makes uploads of the same bytes go one after the other, so that the later ones find the node of the first.
pub async fn lock_hash(conn: &mut PgConnection, content_hash: &str) -> sqlx::Result<()> {
    sqlx::query("SELECT pg_advisory_xact_lock(7377, hashtext($1))").bind(content_hash).execute(conn).await.map(|_| ())
}

/// The oldest file node of this usetype with these bytes that the scope covers; with `private`, only among those at or
/// under an access root. A member of a container is not found, because it goes with its container.
pub async fn find(
    conn: &mut PgConnection,
    scope: &Readable,
    usetype: Usetype,
    content_hash: &str,
    private: bool,
) -> sqlx::Result<Option<BlobRow>> {
    let mut arguments = scope.arguments();
    super::documents::add(&mut arguments, content_hash.to_owned());
    super::documents::add(&mut arguments, private);
    super::documents::add(&mut arguments, usetype.as_str());
    super::documents::add(&mut arguments, super::members::RULE);
    sqlx::query_as_with(
        concat!(
            "SELECT b.document_id, b.lob, b.mime_type, b.declared_mime, b.detected_by, b.format, b.byte_size, b.content_hash, b.options
               FROM document_blobs b JOIN documents d ON d.id = b.document_id
              WHERE b.content_hash = $3 AND d.usetype = $5
                AND (NOT $4::boolean OR d.guard <> 0)
                AND NOT EXISTS (SELECT FROM node_origins o WHERE o.document_id = d.id AND o.rule = $6) AND ",
            readable!(),
            " ORDER BY d.id LIMIT 1"
        ),
        arguments,
    )
    .fetch_optional(conn)
    .await
}
