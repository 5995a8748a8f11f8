//! Held tasks that do not end by themselves.
use super::{Tools, settle, tasks::types::TaskTypes};
use crate::{
    core::Core,
    store::{self, leases::Held},
};
use sqlx::PgPool;
use std::collections::HashSet;
use svc_ids::RootId;
use uuid::Uuid;

/// Gives claims back whose tasks have not ended, and ends those of which somebody wants the end.
pub(crate) async fn give_back(tools: &Tools, tokens: &[Uuid]) -> sqlx::Result<()> {
    let cancelled = store::leases::give_back(&tools.pool, tokens).await?;
    end(tools, &tools.types, &cancelled).await
}

/// Ends held tasks for good, and then settles what they were done for.
pub(crate) async fn end(core: &Core, types: &TaskTypes, held: &[Held]) -> sqlx::Result<()> {
    let mut roots = HashSet::new();
    let ended = end_all(&core.pool, types, held, &mut roots).await;
    // Of many tasks, each that is settled for would have its file walked anew.
    for root_id in roots {
        settle::settle_or_leave(core, root_id).await;
    }
    ended
}

/// Ends held tasks, each in a transaction of its own, and notes the files that are to be settled.
async fn end_all(pool: &PgPool, types: &TaskTypes, held: &[Held], roots: &mut HashSet<RootId>) -> sqlx::Result<()> {
    for task in held {
        let mut tx = store::transaction::begin(pool).await?;
        settle::lock_for_failure(&mut tx, types, &task.task_type, task.scope_document_id, &task.params.0).await?;
        if !store::leases::end(&mut tx, task).await? {
            continue;
        }
        let (id, params) = (task.scope_document_id, &task.params.0);
        let root_id = match task.cancelled {
            true => settle::task_cancelled(&mut tx, types, &task.task_type, id, params).await?,
            false => settle::task_failed(&mut tx, types, &task.task_type, id, params).await?,
        };
        tx.commit().await?;
        if !task.cancelled {
            tracing::error!(
                task.id = task.id.0,
                task.r#type = task.task_type,
                document.id = task.scope_document_id.0,
                root.id = root_id.map(|root_id| root_id.0),
                "a task lost its last lease and failed"
            );
        }
        roots.extend(root_id);
    }
    Ok(())
}
