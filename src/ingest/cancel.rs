//! The end of a cancelled ingestion: everything of it that is in flight fails. A file may have a million nodes, so they
//! fail in parts, each in a short transaction. The file itself fails at once, with its tasks, and the workers that hold
//! them are told before the rest is begun.
use crate::store::{
    self,
    cancelled::{self, FailedPart},
    evidence::Evidence,
    ingest_nodes::Frontier,
    places::Place,
};
use serde_json::json;
use sqlx::{PgConnection, PgPool};
use svc_client::wire::EventKind;
use svc_ids::{DocumentId, RootId};

/// The nodes of one transaction.
const PART: i64 = 5_000;

/// Fails the file and its containers, in the transaction that cancels the tasks, so that nothing settles under it any
/// more. The other nodes are left to [`fail_leaves`].
pub async fn fail_containers(conn: &mut PgConnection, file: &Place, tasks: i64) -> sqlx::Result<()> {
    let failed = cancelled::fail_containers(conn, file).await?;
    let evidence = json!({"at": chrono::Utc::now(), "nodes_failed": failed, "tasks_cancelled": tasks});
    store::evidence::record(conn, file.id(), Evidence::Cancelled, &evidence).await?;
    // What it says was true when the file had settled.
    store::evidence::remove(conn, file.id(), Evidence::FailedParts).await?;
    let told = json!({"tasks": tasks});
    store::events::record(conn, EventKind::IngestCancelled, &[file.id()], &told).await?;
    count(conn, file.id().as_root(), failed).await
}

/// Fails a part of the leaves, those with the lowest ids above `after`, if the root is still marked as cancelled.
/// Returns where the next part begins, or `None` if this was the last. If this is interrupted, the sweep does the rest.
pub async fn fail_leaves(pool: &PgPool, root_id: RootId, after: DocumentId) -> sqlx::Result<Option<DocumentId>> {
    let mut tx = store::transaction::begin(pool).await?;
    if !cancelled::lock(&mut tx, root_id).await? {
        return Ok(None);
    }
    let next = fail_part(&mut tx, root_id, after).await?;
    tx.commit().await?;
    Ok(next)
}

/// Fails the leaves of a committed cancel: the first part before this returns, the others of a large file in the background.
/// An error is logged and not returned, because the cancel took effect; the sweep does what is left.
pub async fn finish(pool: &PgPool, root_id: RootId) {
    let left = move |error: sqlx::Error| {
        tracing::warn!(root.id = root_id.0, error = %error, "could not mark all nodes of a cancelled file; the sweep will mark the rest");
    };
    match fail_leaves(pool, root_id, root_id.document()).await {
        Ok(None) => {}
        Ok(Some(after)) => {
            let pool = pool.clone();
            tokio::spawn(async move { fail_rest(&pool, root_id, after).await.unwrap_or_else(left) });
        }
        Err(error) => left(error),
    }
}

/// Fails all leaves with ids above `after`, part by part.
pub async fn fail_rest(pool: &PgPool, root_id: RootId, after: DocumentId) -> sqlx::Result<()> {
    let mut next = Some(after);
    while let Some(after) = next {
        next = fail_leaves(pool, root_id, after).await?;
    }
    Ok(())
}

/// Fails all leaves of a cancelled file within the caller's transaction, which must find none left.
pub async fn fail_rest_here(conn: &mut PgConnection, root_id: RootId) -> sqlx::Result<()> {
    let mut next = cancelled::lock(conn, root_id).await?.then_some(root_id.document());
    while let Some(after) = next {
        next = fail_part(conn, root_id, after).await?;
    }
    Ok(())
}

async fn fail_part(conn: &mut PgConnection, root_id: RootId, after: DocumentId) -> sqlx::Result<Option<DocumentId>> {
    let FailedPart { nodes, last } = cancelled::fail_leaves(conn, root_id, after, PART).await?;
    count(conn, root_id, nodes).await?;
    cancelled::add_to_evidence(conn, root_id, nodes).await?;
    if nodes < PART {
        cancelled::done(conn, root_id).await?;
        return Ok(None);
    }
    Ok(last)
}

async fn count(conn: &mut PgConnection, root_id: RootId, failed: i64) -> sqlx::Result<()> {
    store::ingest_nodes::count(conn, root_id.document(), Frontier { in_flight: -failed, failed, ..Frontier::default() })
        .await
}
