//! The end of a cancelled ingestion: everything of it that is in flight fails. A file may have a million nodes, so they
//! fail in parts, each in a short transaction. The file itself fails at once, with its tasks, and the workers that hold
//! them are told before the rest is begun: how soon they stop does not depend on how many nodes the file has.
use crate::store::{self, admin::Cancel, cancelled, evidence::Evidence, ingest_nodes::Frontier, places::Place};
use serde_json::json;
use sqlx::{PgConnection, PgPool};
use svc_client::wire::{EventKind, Settled};
use svc_ids::{DocumentId, RootId};

/// The nodes of one transaction.
const PART: i64 = 2_000;

/// The tasks that a cancel ended.
#[derive(Clone, Copy, Debug)]
pub struct Ended {
    /// They waited, and have failed.
    pub cancelled: i64,
    /// Workers hold them, and are to stop, as this or an earlier cancel asked.
    pub stopping: i64,
    /// Whether this cancel found any that no earlier one of the file had.
    pub are_new: bool,
}

/// Cancels the tasks of a file, and fails the file with them, so that nothing settles under it any more. The other nodes are left to [`fail_nodes`].
/// A file that has settled or failed stays as it is: only the tasks that add to it end, for which nothing waits. Parts that have settled stay so too, and
/// with them the tasks that embed them anew.
pub async fn begin(conn: &mut PgConnection, file: &Place) -> sqlx::Result<Ended> {
    let root_id = file.id().as_root();
    store::locks::documents(conn, &[file.id()]).await?;
    // From here on no task of the file commits, so none leaves new tasks behind.
    store::locks::nodes(conn, root_id).await?;
    let is_in_flight = cancelled::settled(conn, root_id).await? == Some(Settled::InFlight);
    let which = if is_in_flight { Cancel::Ingestion(file) } else { Cancel::Additions(file) };
    let (mut asked, mut waited) = (0, Vec::new());
    // A waiting task may be claimed between two looks.
    loop {
        asked += store::admin::cancel_held(conn, which).await?;
        waited.extend(store::admin::cancel_waiting(conn, which).await?);
        if !store::admin::goes_on(conn, which).await? {
            break;
        }
    }
    let (cancelled, stopping) = (waited.len() as i64, store::admin::stopping(conn, root_id).await?);
    // Those that are being stopped may have been cancelled one by one, and the file goes on.
    let are_new = asked + cancelled > 0 || (stopping > 0 && is_in_flight);
    let ended = Ended { cancelled, stopping, are_new };
    if !ended.are_new {
        return Ok(ended);
    }
    let nodes: Vec<DocumentId> = waited.iter().map(|task| task.scope_document_id).collect();
    cancelled::recount_tasks(conn, &nodes).await?;
    if !is_in_flight {
        return Ok(ended);
    }
    let failed = cancelled::fail_root(conn, file).await?;
    let tasks = cancelled + stopping;
    let evidence = json!({"at": chrono::Utc::now(), "nodes_failed": failed, "tasks_cancelled": tasks});
    store::evidence::record(conn, file.id(), Evidence::Cancelled, &evidence).await?;
    // What it says was true when the file had settled.
    store::evidence::remove(conn, file.id(), Evidence::FailedParts).await?;
    store::bulk::ended(conn, &[file.id()]).await?;
    store::events::record(conn, EventKind::IngestCancelled, &[file.id()], &json!({"tasks": tasks})).await?;
    count(conn, root_id, failed).await?;
    Ok(ended)
}

/// Fails a part of the nodes under a root, those with the lowest ids above `after`, if the root is still marked as cancelled.
/// Returns where the next part begins, or `None` if this was the last. If this is interrupted, the sweep does the rest.
pub async fn fail_nodes(pool: &PgPool, root_id: RootId, after: DocumentId) -> sqlx::Result<Option<DocumentId>> {
    let mut tx = store::transaction::begin(pool).await?;
    if !cancelled::lock(&mut tx, root_id).await? {
        return Ok(None);
    }
    let next = fail_part(&mut tx, root_id, after).await?;
    tx.commit().await?;
    Ok(next)
}

/// Fails the nodes of a committed cancel: the first part before this returns, the others of a large file in the background.
/// An error is logged and not returned, because the cancel took effect; the sweep does what is left.
pub async fn finish(pool: &PgPool, root_id: RootId) {
    let left = move |error: sqlx::Error| {
        tracing::warn!(root.id = root_id.0, error = %error, "could not mark all nodes of a cancelled file; the sweep will mark the rest");
    };
    match fail_nodes(pool, root_id, root_id.document()).await {
        Ok(None) => {}
        Ok(Some(after)) => {
            let pool = pool.clone();
            tokio::spawn(async move { fail_rest(&pool, root_id, after).await.unwrap_or_else(left) });
        }
        Err(error) => left(error),
    }
}

/// Fails all nodes with ids above `after`, part by part.
pub async fn fail_rest(pool: &PgPool, root_id: RootId, after: DocumentId) -> sqlx::Result<()> {
    let mut next = Some(after);
    while let Some(after) = next {
        next = fail_nodes(pool, root_id, after).await?;
    }
    Ok(())
}

/// Fails all nodes of a cancelled file within the caller's transaction, which must find none left.
pub async fn fail_rest_here(conn: &mut PgConnection, root_id: RootId) -> sqlx::Result<()> {
    let mut next = cancelled::lock(conn, root_id).await?.then_some(root_id.document());
    while let Some(after) = next {
        next = fail_part(conn, root_id, after).await?;
    }
    Ok(())
}

async fn fail_part(conn: &mut PgConnection, root_id: RootId, after: DocumentId) -> sqlx::Result<Option<DocumentId>> {
    let nodes = cancelled::fail_nodes(conn, root_id, after, PART).await?;
    let failed = nodes.len() as i64;
    count(conn, root_id, failed).await?;
    cancelled::add_to_evidence(conn, root_id, failed).await?;
    if failed < PART {
        cancelled::done(conn, root_id).await?;
        return Ok(None);
    }
    Ok(nodes.last().copied())
}

async fn count(conn: &mut PgConnection, root_id: RootId, failed: i64) -> sqlx::Result<()> {
    store::ingest_nodes::count(conn, root_id.document(), Frontier { in_flight: -failed, failed, ..Frontier::default() })
        .await
}
