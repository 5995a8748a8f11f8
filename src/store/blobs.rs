//! Where stored bytes are: in PostgreSQL's large objects, which are transactional and streamed in and out here, or in an object store.
use super::{
    advisory::LockOf,
    interval::interval,
    places::Place,
    scope::{Readable, readable},
    word::Word,
};
use crate::usetype::Usetype;
use serde_json::Value;
use sqlx::{
    FromRow, PgConnection, PgPool, Row,
    postgres::{PgRow, types::Oid},
};
use std::{collections::HashMap, fmt, time::Duration};
use svc_client::wire::DetectedBy;
use svc_ids::DocumentId;
use uuid::Uuid;

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

/// Where bytes are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlobPlace {
    LargeObject(Oid),
    /// The key of an object of the object store.
    Object(String),
}

impl BlobPlace {
    fn columns(&self) -> (Option<Oid>, Option<&str>) {
        match self {
            BlobPlace::LargeObject(oid) => (Some(*oid), None),
            BlobPlace::Object(key) => (None, Some(key)),
        }
    }
}

impl fmt::Display for BlobPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BlobPlace::LargeObject(oid) => write!(f, "lob:{}", oid.0),
            BlobPlace::Object(key) => write!(f, "obj:{key}"),
        }
    }
}

impl FromRow<'_, PgRow> for BlobPlace {
    fn from_row(row: &PgRow) -> sqlx::Result<BlobPlace> {
        match row.try_get("object")? {
            Some(key) => Ok(BlobPlace::Object(key)),
            None => row.try_get("lob").map(BlobPlace::LargeObject),
        }
    }
}

/// The bytes of a file node, or of a picture of a file.
#[derive(Clone, Debug, sqlx_macros::FromRow)]
pub struct BlobRow {
    pub document_id: DocumentId,
    #[sqlx(flatten)]
    pub place: BlobPlace,
    pub mime_type: Option<String>,
    pub declared_mime: Option<String>,
    pub detected_by: Option<Word<DetectedBy>>,
    pub format: Option<String>,
    pub byte_size: i64,
    pub content_hash: String,
    pub options: Value,
}

/// Attaches bytes to their file node, or to the node of a picture, which the rule that made it tells from a file.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = file.id().0))]
pub async fn insert(conn: &mut PgConnection, file: &Place, row: &BlobRow) -> sqlx::Result<()> {
    let (lob, object) = row.place.columns();
    sqlx::query(
        "INSERT INTO document_blobs (document_id, lob, object, mime_type, declared_mime, detected_by, format, byte_size, content_hash, options, is_file)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, NOT EXISTS (SELECT FROM node_origins o WHERE o.document_id = $1 AND o.rule = $11))",
    )
    .bind(file.id())
    .bind(lob)
    .bind(object)
    .bind(&row.mime_type)
    .bind(&row.declared_mime)
    .bind(row.detected_by.map(|Word(by)| by.as_str()))
    .bind(&row.format)
    .bind(row.byte_size)
    .bind(&row.content_hash)
    .bind(&row.options)
    .bind(super::images::RULE)
    .execute(conn)
    .await
    .map(|_| ())
}

/// How many files' bytes one call of [`unlink_orphans`] deletes.
const PART: i64 = 1_000;

/// Whether so many nodes at and under a document have their bytes in the database that one transaction may not delete them all.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = id.0))]
pub async fn are_many(conn: &mut PgConnection, id: DocumentId) -> sqlx::Result<bool> {
    sqlx::query_scalar(
        "SELECT count(*) > $2 FROM (SELECT FROM documents d JOIN document_blobs b ON b.document_id = d.id
                                     WHERE (d.id = $1 OR d.path @> ARRAY[$1::bigint]) AND b.lob IS NOT NULL LIMIT $2 + 1) held",
    )
    .bind(id)
    .bind(PART)
    .fetch_one(conn)
    .await
}

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

/// The bytes of a node that has some. A generation of a file has the file's bytes, and options of its own.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = document_id.0))]
pub async fn of_document(conn: &mut PgConnection, document_id: DocumentId) -> sqlx::Result<Option<BlobRow>> {
    sqlx::query_as(
        "SELECT b.document_id, b.lob, b.object, b.mime_type, b.declared_mime, b.detected_by, b.format, b.byte_size, b.content_hash, coalesce(g.options, b.options) AS options
           FROM (SELECT $1::bigint AS id) n LEFT JOIN generations g ON g.generation_id = n.id
           JOIN document_blobs b ON b.document_id = CASE WHEN g.generation_id IS NULL THEN n.id ELSE g.document_id END",
    )
    .bind(document_id)
    .fetch_optional(conn)
    .await
}

/// The options of those of these documents that are file nodes; a generation of a file has its own.
pub async fn options(conn: &mut PgConnection, documents: &[DocumentId]) -> sqlx::Result<HashMap<DocumentId, Value>> {
    let options: Vec<(DocumentId, Value)> = sqlx::query_as(
        "SELECT n.id, coalesce(g.options, b.options) FROM unnest($1::bigint[]) AS n(id) LEFT JOIN generations g ON g.generation_id = n.id
           JOIN document_blobs b ON b.document_id = CASE WHEN g.generation_id IS NULL THEN n.id ELSE g.document_id END",
    )
    .bind(documents)
    .fetch_all(conn)
    .await?;
    Ok(options.into_iter().collect())
}

/// Makes uploads of the same bytes go one after the other, so that the later ones find the node of the first.
pub async fn lock_hash(conn: &mut PgConnection, content_hash: &str) -> sqlx::Result<()> {
    sqlx::query("SELECT pg_advisory_xact_lock($2, hashtext($1))")
        .bind(content_hash)
        .bind(LockOf::Upload.key())
        .execute(conn)
        .await
        .map(|_| ())
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
            "SELECT b.document_id, b.lob, b.object, b.mime_type, b.declared_mime, b.detected_by, b.format, b.byte_size, b.content_hash, b.options
               FROM document_blobs b JOIN documents d ON d.id = b.document_id
              WHERE b.content_hash = $3 AND b.is_file AND d.usetype = $5
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

/// Whether a document has the bytes of a file. Those of a picture are no file's.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = document.id().0))]
pub async fn is_file(conn: &mut PgConnection, document: &Place) -> sqlx::Result<bool> {
    sqlx::query_scalar("SELECT EXISTS (SELECT FROM document_blobs WHERE document_id = $1 AND is_file)")
        .bind(document.id())
        .fetch_one(conn)
        .await
}

/// Where the bytes of a file node are now, which a move may have changed.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = document_id.0))]
pub async fn place_of(conn: &mut PgConnection, document_id: DocumentId) -> sqlx::Result<Option<BlobPlace>> {
    sqlx::query_as("SELECT lob, object FROM document_blobs WHERE document_id = $1")
        .bind(document_id)
        .fetch_optional(conn)
        .await
}

/// Gives the bytes of a file another place, unless they have left the old one meanwhile. What was in the old one is given up.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = file.id().0))]
pub async fn replace(conn: &mut PgConnection, file: &Place, old: &BlobPlace, new: &BlobPlace) -> sqlx::Result<bool> {
    let ((old_lob, old_object), (lob, object)) = (old.columns(), new.columns());
    let changed = sqlx::query(
        "UPDATE document_blobs SET lob = $4, object = $5
          WHERE document_id = $1 AND lob IS NOT DISTINCT FROM $2 AND object IS NOT DISTINCT FROM $3",
    )
    .bind(file.id())
    .bind(old_lob)
    .bind(old_object)
    .bind(lob)
    .bind(object)
    .execute(conn)
    .await?;
    Ok(changed.rows_affected() > 0)
}

/// Files whose bytes are in the object store, or those whose bytes are not, in the order of their ids.
pub async fn by_place(
    conn: &mut PgConnection,
    in_object_store: bool,
    after: DocumentId,
    limit: i64,
) -> sqlx::Result<Vec<BlobRow>> {
    sqlx::query_as(
        "SELECT document_id, lob, object, mime_type, declared_mime, detected_by, format, byte_size, content_hash, options
           FROM document_blobs WHERE (object IS NOT NULL) = $1 AND document_id > $2 ORDER BY document_id LIMIT $3",
    )
    .bind(in_object_store)
    .bind(after)
    .bind(limit)
    .fetch_all(conn)
    .await
}

/// How many files have their bytes in the database, and how many in the object store.
pub async fn count_places(conn: &mut PgConnection) -> sqlx::Result<(i64, i64)> {
    sqlx::query_as("SELECT count(lob), count(object) FROM document_blobs").fetch_one(conn).await
}

/// Whether any file has its bytes in an object store. The order has the index used, which finds at once that there is none.
pub async fn has_objects(conn: &mut PgConnection) -> sqlx::Result<bool> {
    sqlx::query_scalar(
        "SELECT (SELECT object FROM document_blobs WHERE object IS NOT NULL ORDER BY object LIMIT 1) IS NOT NULL",
    )
    .fetch_one(conn)
    .await
}

/// The id by which this database and its object store know each other.
pub async fn store_id(conn: &mut PgConnection) -> sqlx::Result<Uuid> {
    sqlx::query_scalar("SELECT id FROM blob_store").fetch_one(conn).await
}

/// The files whose objects have keys that begin with `prefix`, which holds neither `%` nor `_`.
pub async fn with_keys(conn: &mut PgConnection, prefix: &str) -> sqlx::Result<Vec<BlobRow>> {
    sqlx::query_as(
        "SELECT document_id, lob, object, mime_type, declared_mime, detected_by, format, byte_size, content_hash, options
           FROM document_blobs WHERE object LIKE $1 || '%'",
    )
    .bind(prefix)
    .persistent(false)
    .fetch_all(conn)
    .await
}

/// Which of these keys are neither a file's nor known as garbage.
pub async fn unknown_keys(conn: &mut PgConnection, keys: &[String]) -> sqlx::Result<Vec<String>> {
    sqlx::query_scalar(
        "SELECT key FROM unnest($1::text[]) AS key
          WHERE NOT EXISTS (SELECT FROM document_blobs b WHERE b.object = key) AND NOT EXISTS (SELECT FROM blob_garbage g WHERE g.object = key)",
    )
    .bind(keys)
    .fetch_all(conn)
    .await
}

/// Notes objects that nothing names as garbage; returns how many.
pub async fn note_orphans(conn: &mut PgConnection, keys: &[String]) -> sqlx::Result<u64> {
    let noted = sqlx::query(
        "INSERT INTO blob_garbage (object)
         SELECT key FROM unnest($1::text[]) AS key WHERE NOT EXISTS (SELECT FROM document_blobs b WHERE b.object = key)
         ON CONFLICT (object) DO NOTHING",
    )
    .bind(keys)
    .execute(conn)
    .await?;
    Ok(noted.rows_affected())
}

/// Keys of objects that have been garbage for this long.
pub async fn garbage(conn: &mut PgConnection, kept: Duration, limit: i64) -> sqlx::Result<Vec<String>> {
    sqlx::query_scalar(
        "SELECT object FROM blob_garbage g WHERE since <= now() - $1
            AND NOT EXISTS (SELECT FROM document_blobs b WHERE b.object = g.object) ORDER BY since LIMIT $2",
    )
    .bind(interval(kept))
    .bind(limit)
    .fetch_all(conn)
    .await
}

/// Puts off garbage that the object store would not delete, so that what has been garbage for long enough goes before it meanwhile.
pub async fn put_off_garbage(
    conn: &mut PgConnection,
    keys: &[String],
    kept: Duration,
    pause: Duration,
) -> sqlx::Result<()> {
    sqlx::query("UPDATE blob_garbage SET since = now() - $2 + $3 WHERE object = ANY($1) AND since <= now() - $2")
        .bind(keys)
        .bind(interval(kept))
        .bind(interval(pause))
        .execute(conn)
        .await
        .map(|_| ())
}

/// Forgets garbage that is gone from the object store.
pub async fn forget_garbage(conn: &mut PgConnection, keys: &[String]) -> sqlx::Result<()> {
    sqlx::query("DELETE FROM blob_garbage WHERE object = ANY($1)").bind(keys).execute(conn).await.map(|_| ())
}
