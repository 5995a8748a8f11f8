//! The pictures of files, which are nodes with bytes and a text under their file, and no files, and the charts beside them.
use super::places::Place;
use sqlx::PgConnection;

/// The rule of the nodes of pictures, by which their bytes are told from those of files, and of those of charts, which have none.
pub const RULE: &str = "extract:images";
/// Pictures and charts come after all other children of their file, however late these are made.
pub const FIRST_POSITION: i32 = 1_000_000;

/// Whether a document is a picture with these bytes, by where it comes from. An import makes the document before the bytes.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = document.id().0))]
pub async fn is_picture(conn: &mut PgConnection, document: &Place, content_hash: &str) -> sqlx::Result<bool> {
    sqlx::query_scalar(
        "SELECT EXISTS (SELECT FROM node_origins WHERE document_id = $1 AND rule = $2 AND anchor ->> 'sha256' = $3)",
    )
    .bind(document.id())
    .bind(RULE)
    .bind(content_hash)
    .fetch_one(conn)
    .await
}
