//! Held tasks that do not end by themselves.
use super::{Tools, settle, tasks::types::TaskTypes};
use crate::{
    core::Core,
    store::{self, away::away, leases::Held},
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

/// Ends held tasks, each in a transaction of its own, and notes the files that are to be settled. One that cannot be ended keeps none of the others held; its
/// lease runs out, and then the reaper tries again.
async fn end_all(pool: &PgPool, types: &TaskTypes, held: &[Held], roots: &mut HashSet<RootId>) -> sqlx::Result<()> {
    let mut all = Ok(());
    for task in held {
        match end_counted(pool, types, task).await {
            Ok(root_id) => roots.extend(root_id),
            // Without the database the others cannot be ended either.
            Err(error) if away(&error).is_some() => return Err(error),
            Err(error) => {
                tracing::warn!(task.id = task.id.0, document.id = task.scope_document_id.0, %error, "a task could not be ended; the reaper tries again once its lease is over");
                all = Err(error);
            }
        }
    }
    all
}

/// Ends a held task, after a recount if the count of its node does not let it. Returns the file that is to be settled.
async fn end_counted(pool: &PgPool, types: &TaskTypes, task: &Held) -> sqlx::Result<Option<RootId>> {
    match end_one(pool, types, task).await {
        Err(error) if settle::is_miscounted(&error) => {
            settle::recount_tasks(pool, task.scope_document_id, &error).await?;
            end_one(pool, types, task).await
        }
        ended => ended,
    }
}

/// Ends a held task if its claim still holds it. Returns the file that is to be settled.
async fn end_one(pool: &PgPool, types: &TaskTypes, task: &Held) -> sqlx::Result<Option<RootId>> {
    let mut tx = store::transaction::begin(pool).await?;
    settle::lock_for_failure(&mut tx, types, &task.task_type, task.scope_document_id, &task.params.0).await?;
    if !store::leases::end(&mut tx, task).await? {
        return Ok(None);
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
    Ok(root_id)
}
