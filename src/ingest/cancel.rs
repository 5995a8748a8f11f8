//! The end of an ingestion that was cancelled: what of it is in flight fails. A file may have a million nodes, so they fail in
//! parts, each a short transaction; the file itself fails at once, with its tasks, and whoever works on it is told before the
//! rest is begun.
use crate::store::{self, cancelled, ingest_nodes::Frontier};
use serde_json::json;
use sqlx::{PgConnection, PgPool};

/// Nodes of one transaction.
const PART: i64 = 5_000;

/// Fails the file and its containers, in the transaction that cancels the tasks: nothing settles under it any more. The others
/// are left for [`fail_leaves`].
pub async fn fail_containers(conn: &mut PgConnection, root: i64, tasks: i64) -> sqlx::Result<()> {
    let failed = cancelled::fail_containers(conn, root).await?;
    let evidence = json!({"at": chrono::Utc::now(), "nodes_failed": failed, "tasks_cancelled": tasks});
    store::evidence::record(conn, root, "cancelled", &evidence).await?;
    count(conn, root, failed).await
}

/// Fails a part of the leaves, those with the lowest ids above `after`, if the root is still marked as cancelled. Returns where
/// the next part begins; None where this one was the last. Whoever is cut off in the middle leaves the rest to the sweep.
pub async fn fail_leaves(pool: &PgPool, root: i64, after: i64) -> sqlx::Result<Option<i64>> {
    let mut tx = store::transaction::begin(pool).await?;
    if !cancelled::lock(&mut tx, root).await? {
        return Ok(None);
    }
    let next = fail_part(&mut tx, root, after).await?;
    tx.commit().await?;
    Ok(next)
}

/// Fails the leaves of a cancel that stands: those of a file of usual size before this returns, what is left of a larger one
/// in the background. An error is logged and no one's answer, since the cancel took effect; the sweep does what is left.
pub async fn finish(pool: &PgPool, root: i64) {
    let left = move |error: sqlx::Error| {
        tracing::warn!(document.id = root, error = %error, "marking the nodes of a cancelled file is left to the sweep");
    };
    match fail_leaves(pool, root, root).await {
        Ok(None) => {}
        Ok(Some(after)) => {
            let pool = pool.clone();
            tokio::spawn(async move { fail_rest(&pool, root, after).await.unwrap_or_else(left) });
        }
        Err(error) => left(error),
    }
}

/// All parts from one on.
pub async fn fail_rest(pool: &PgPool, root: i64, after: i64) -> sqlx::Result<()> {
    let mut next = Some(after);
    while let Some(after) = next {
        next = fail_leaves(pool, root, after).await?;
    }
    Ok(())
}

/// The same in a transaction that must find nothing of it left.
pub async fn fail_rest_here(conn: &mut PgConnection, root: i64) -> sqlx::Result<()> {
    let mut next = cancelled::lock(conn, root).await?.then_some(root);
    while let Some(after) = next {
        next = fail_part(conn, root, after).await?;
    }
    Ok(())
}

async fn fail_part(conn: &mut PgConnection, root: i64, after: i64) -> sqlx::Result<Option<i64>> {
    let (failed, last) = cancelled::fail_leaves(conn, root, after, PART).await?;
    count(conn, root, failed).await?;
    cancelled::add_to_evidence(conn, root, failed).await?;
    if failed < PART {
        cancelled::done(conn, root).await?;
        return Ok(None);
    }
    Ok(last)
}

async fn count(conn: &mut PgConnection, root: i64, failed: i64) -> sqlx::Result<()> {
    store::ingest_nodes::count(conn, root, Frontier { in_flight: -failed, failed, ..Frontier::default() }).await
}
