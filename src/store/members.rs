//! The files within containers: members of archives and attachments of messages, which are file nodes of their container.
use super::{advisory::LockOf, nodes::NewNode, places::Place};
use sqlx::PgConnection;
use svc_ids::{DocumentId, RootId};

/// The rule of the nodes of members.
pub const RULE: &str = "extract:members";

/// What the members under a root of ingestion have together, however deep they lie.
#[derive(Clone, Copy, Debug, sqlx_macros::FromRow)]
pub struct Taken {
    pub members: i64,
    pub bytes: i64,
}

/// Makes the tasks that make members under a root go one after the other, so that they see what the others took.
#[tracing::instrument(level = "debug", skip_all, fields(root.id = root_id.0))]
pub async fn lock(conn: &mut PgConnection, root_id: RootId) -> sqlx::Result<()> {
    sqlx::query("SELECT pg_advisory_xact_lock($2, hashint8($1))")
        .bind(root_id)
        .bind(LockOf::Members.key())
        .execute(conn)
        .await
        .map(|_| ())
}

/// What the members under a root have together.
#[tracing::instrument(level = "debug", skip_all, fields(root.id = root_id.0))]
pub async fn taken(conn: &mut PgConnection, root_id: RootId) -> sqlx::Result<Taken> {
    sqlx::query_as(
        "SELECT count(*) AS members, coalesce(sum(b.byte_size), 0)::bigint AS bytes
           FROM ingest_node n JOIN document_blobs b ON b.document_id = n.document_id WHERE n.root_id = $1 AND n.document_id <> $1",
    )
    .bind(root_id)
    .fetch_one(conn)
    .await
}

/// The first of `count` positions after those of all children of a node, or of the last ones if there are too few, because a caller may have
/// chosen the very last.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = container.0))]
pub async fn next_position(conn: &mut PgConnection, container: DocumentId, count: usize) -> sqlx::Result<i32> {
    sqlx::query_scalar(
        "SELECT least(coalesce(max(position)::bigint + 1, 0), 2147483647 - $2::int)::int FROM documents WHERE parent_id = $1",
    )
    .bind(container)
    .bind(i32::try_from(count).unwrap_or(i32::MAX))
    .fetch_one(conn)
    .await
}

/// Gives members that this transaction made the hashes of their bytes.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = container.id().0))]
pub async fn set_hashes(
    conn: &mut PgConnection,
    container: &Place,
    members: &[NewNode],
    hashes: &[&str],
) -> sqlx::Result<()> {
    sqlx::query(
        "UPDATE documents d SET content_hash = n.hash FROM unnest($2::bigint[], $3::text[]) AS n(id, hash)
          WHERE d.id = n.id AND d.parent_id = $1",
    )
    .bind(container.id())
    .bind(members.iter().map(|member| member.id).collect::<Vec<_>>())
    .bind(hashes)
    .execute(conn)
    .await
    .map(|_| ())
}
