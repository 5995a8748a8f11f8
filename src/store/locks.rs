//! The order in which everything takes locks, so that nobody waits in a circle: the lock of an index's compaction, then that of who creates or
//! moves nodes (`AdvisoryLock::Access`), then the advisory lock of a file (or of the
//! tree that it is in), then rows of documents, of ingest_node, of task_queue and of task_reservation, and within one
//! table by id; but a document that lies under another one comes after it: a delete, `segments::hold` and `keep_in_place` lock from the top down.
//!
//! `keep_in_place` comes late and may wait for a row with a lower id. If somebody waits for its caller at that moment, PostgreSQL ends one of the
//! two transactions, which has then changed nothing and whose caller is told to try again.
//!
//! Code that settles, cancels, deletes or puts back holds the file's lock. A task that applies does not, but a rollup takes it where nobody has
//! it; each takes its row locks in this order.
use super::{advisory::LockOf, nodes::braces};
use sqlx::PgConnection;
use std::collections::HashMap;
use svc_ids::{DocumentId, RootId};

const FILE: i32 = LockOf::File.key();
const TREE: i32 = LockOf::Tree.key();
/// Above this number of files the whole tree is locked instead, because PostgreSQL has room for about 14,000 locks of
/// all sessions.
const ONE_BY_ONE: i64 = 1_000;

/// A statement that takes the locks of those of these files under whose root no other transaction settles, until its transaction ends, and returns these
/// files. It has no parameters, waits for nothing, and so can go in one message with the beginning of its transaction.
pub(super) fn trying_files(roots: &[RootId]) -> String {
    let ids: Vec<i64> = roots.iter().map(|root| root.document().0).collect();
    format!("SELECT try_files('{}', {TREE}, {FILE})", braces(&ids))
}

/// Waits for anybody who settles under this root, and keeps them away until the transaction ends.
#[tracing::instrument(level = "debug", skip_all, fields(root.id = root_id.0))]
pub async fn file(conn: &mut PgConnection, root_id: RootId) -> sqlx::Result<()> {
    share_tree(conn, root_id.document()).await?;
    each(conn, &[root_id]).await
}

/// Waits for anybody who settles or deletes in the tree of a node, and keeps them away until the transaction ends.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = id.0))]
pub async fn tree(conn: &mut PgConnection, id: DocumentId) -> sqlx::Result<()> {
    sqlx::query(
        "SELECT pg_advisory_xact_lock($2, hashint8(coalesce((SELECT path[1] FROM documents WHERE id = $1), $1)))",
    )
    .bind(id)
    .bind(TREE)
    .execute(conn)
    .await
    .map(|_| ())
}

/// Takes the locks of the trees of nodes where nobody else has them, as [`tree`] does; says for each node whether its tree is locked.
pub async fn try_trees(conn: &mut PgConnection, nodes: &[DocumentId]) -> sqlx::Result<Vec<bool>> {
    let locked: Vec<(i64, bool)> = sqlx::query_as(
        "SELECT n.at, pg_try_advisory_xact_lock($2, hashint8(coalesce((SELECT path[1] FROM documents WHERE id = n.id), n.id)))
           FROM unnest($1::bigint[]) WITH ORDINALITY AS n(id, at)",
    )
    .bind(nodes)
    .bind(TREE)
    .fetch_all(conn)
    .await?;
    let locked: HashMap<i64, bool> = locked.into_iter().collect();
    Ok((1..).take(nodes.len()).map(|at| locked.get(&at).copied().unwrap_or_default()).collect())
}

/// Keeps the settler away from every root of ingestion at, above and under a node, and from what reprocesses of the
/// files at and under it build, until the transaction ends. Returns true if there are so many that their whole tree is
/// locked; then tasks of other files in it may leave settle events that nobody takes, and the caller has them taken
/// after its commit.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = id.0))]
pub async fn files_around(conn: &mut PgConnection, id: DocumentId) -> sqlx::Result<bool> {
    let roots: Vec<RootId> = sqlx::query_scalar(
        "SELECT n.root_id FROM ingest_node n WHERE n.document_id = ANY ((SELECT path || id FROM documents WHERE id = $1)::bigint[])
         UNION SELECT n.root_id FROM documents d JOIN ingest_node n ON n.document_id = d.id WHERE d.path @> ARRAY[$1::bigint] LIMIT $2",
    )
    .bind(id)
    .bind(ONE_BY_ONE + 1)
    .fetch_all(&mut *conn)
    .await?;
    let are_many = i64::try_from(roots.len()).unwrap_or(i64::MAX) > ONE_BY_ONE;
    if are_many {
        tree(conn, id).await?;
    } else {
        share_tree(conn, id).await?;
        each(conn, &roots).await?;
    }
    let generations: Vec<RootId> = sqlx::query_scalar(
        "SELECT g.generation_id FROM generations g JOIN documents d ON d.id = g.document_id WHERE d.id = $1 OR d.path @> ARRAY[$1::bigint]",
    )
    .bind(id)
    .fetch_all(&mut *conn)
    .await?;
    each(conn, &generations).await?;
    Ok(are_many)
}

async fn share_tree(conn: &mut PgConnection, id: DocumentId) -> sqlx::Result<()> {
    sqlx::query(
        "SELECT pg_advisory_xact_lock_shared($2, hashint8(coalesce((SELECT path[1] FROM documents WHERE id = $1), $1)))",
    )
    .bind(id)
    .bind(TREE)
    .execute(conn)
    .await
    .map(|_| ())
}

async fn each(conn: &mut PgConnection, roots: &[RootId]) -> sqlx::Result<()> {
    sqlx::query("SELECT pg_advisory_xact_lock($2, key) FROM (SELECT DISTINCT hashint8(root_id) AS key FROM unnest($1::bigint[]) AS root_id ORDER BY 1) AS keys")
        .bind(roots)
        .bind(FILE)
        .execute(conn)
        .await
        .map(|_| ())
}

/// Locks these documents.
pub async fn documents(conn: &mut PgConnection, ids: &[DocumentId]) -> sqlx::Result<()> {
    sqlx::query(
        "SELECT count(*) FROM (SELECT id FROM documents WHERE id = ANY($1) ORDER BY id FOR NO KEY UPDATE) locked",
    )
    .bind(ids)
    .execute(conn)
    .await
    .map(|_| ())
}

/// Locks the counts of a node.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = document_id.0))]
pub async fn node(conn: &mut PgConnection, document_id: DocumentId) -> sqlx::Result<()> {
    sqlx::query("SELECT 1 FROM ingest_node WHERE document_id = $1 FOR NO KEY UPDATE")
        .bind(document_id)
        .execute(conn)
        .await
        .map(|_| ())
}

/// Locks the counts of all nodes of a root. From here on no task under it commits until the transaction ends.
#[tracing::instrument(level = "debug", skip_all, fields(root.id = root_id.0))]
pub async fn nodes(conn: &mut PgConnection, root_id: RootId) -> sqlx::Result<()> {
    let mut before = None;
    loop {
        let count: i64 = sqlx::query_scalar(
            "SELECT count(*) FROM (SELECT document_id FROM ingest_node WHERE root_id = $1 ORDER BY document_id FOR NO KEY UPDATE) locked",
        )
        .bind(root_id)
        .fetch_one(&mut *conn)
        .await?;
        // A task that committed while this waited may have made more.
        if before.replace(count) == Some(count) {
            return Ok(());
        }
    }
}
