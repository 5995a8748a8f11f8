//! Queues a task again that failed for good, and makes what failed with it wait again.
use crate::{
    error::OrFail,
    ingest::{cancel, tasks::types::TaskTypes},
    store::{
        self,
        admin::{Moved, Returned},
        ingest_nodes::Frontier,
    },
};
use sqlx::PgConnection;
use svc_client::{Failure, wire::Settled};
use svc_ids::{DocumentId, RootId, TaskId};

/// Queues a task of a node again, with those that failed because of it; returns false if it did not fail for good.
pub async fn requeue(
    conn: &mut PgConnection,
    types: &TaskTypes,
    task_id: TaskId,
    document_id: DocumentId,
    root_id: RootId,
) -> Result<bool, Failure> {
    // The settler must not look at the tree while its counts are recomputed.
    store::locks::files_around(conn, root_id.document()).await.or_fail()?;
    // Nodes that a cancel has yet to mark would fail while the task works on them.
    cancel::fail_rest_here(conn, root_id).await.or_fail()?;
    store::locks::nodes(conn, root_id).await.or_fail()?;
    let Some(moved) = store::admin::put_back(conn, task_id).await.or_fail()? else { return Ok(false) };
    let mut nodes = Vec::new();
    for task in &moved {
        nodes.extend(nodes_of(conn, types, task).await?);
    }
    if store::ingest_nodes::belongs(conn, document_id).await.or_fail()?.is_some() {
        let Returned { settled, failed } = store::admin::back_in_flight(conn, &nodes, root_id).await.or_fail()?;
        let change = Frontier { in_flight: settled + failed, settled: -settled, failed: -failed, total: 0 };
        store::ingest_nodes::count(conn, root_id.document(), change).await.or_fail()?;
        store::ingest_nodes::recount(conn, root_id).await.or_fail()?;
        // The task itself is the next step of such a rollup.
        for task in &moved {
            if types.rollup_after_failure(&task.task_type).is_some() {
                store::ingest_nodes::queue_rollup_again(conn, task.scope_document_id).await.or_fail()?;
            }
            if let Some(containers) = types.containers_of_failure(&task.task_type, &task.params.0) {
                store::rollups::queue_again(conn, task.scope_document_id, &containers).await.or_fail()?;
            }
        }
    }
    Ok(true)
}

/// The nodes that failed with a task.
async fn nodes_of(conn: &mut PgConnection, types: &TaskTypes, task: &Moved) -> Result<Vec<DocumentId>, Failure> {
    if let Some(runs) = types.leaves_of_failure(&task.task_type, &task.params.0) {
        if types.is_addition(&task.task_type) {
            return Ok(vec![task.scope_document_id]);
        }
        // A task that fails alone is tried again alone.
        if runs.is_empty() {
            if store::ingest_nodes::is_counted(&task.task_type) {
                store::ingest_nodes::grow(conn, task.scope_document_id, 1, 0, 0).await.or_fail()?;
            }
            return Ok(Vec::new());
        }
        let rows = store::nodes::leaves(conn, task.scope_document_id, &runs).await.or_fail()?;
        let failed = rows.into_iter().filter(|row| row.settled.0 == Settled::Failed).map(|row| row.id);
        return Ok(failed.chain([task.scope_document_id]).collect());
    }
    if let Some(containers) = types.containers_of_failure(&task.task_type, &task.params.0) {
        store::ingest_nodes::grow(conn, task.scope_document_id, 1, 0, 0).await.or_fail()?;
        return Ok(containers);
    }
    Ok(vec![task.scope_document_id])
}
