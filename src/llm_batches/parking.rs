//! Tasks that are ready to wait for a batch at the same moment begin to wait in one transaction.
use super::Batching;
use crate::store::{
    self,
    group_commit::Limits,
    llm_batches::{Parked, Parking},
    transaction,
};
use sqlx::PgPool;
use std::{slice, time::Duration};

/// Tasks with more bytes of requests than this share no transaction.
pub(super) const LIMITS: Limits = Limits { items: 64, bytes: 8 << 20, transactions: 1, patience: Duration::MAX };

/// The bytes of the requests of a task.
pub(super) fn bytes(task: &Parking) -> usize {
    task.requests.iter().map(|request| request.line.len()).sum()
}

/// Has tasks wait for a batch, in one transaction if it takes all of them; says of each what became of it.
pub(super) async fn park(pool: &PgPool, batching: &Batching, tasks: &[Parking]) -> Vec<sqlx::Result<Parked>> {
    // What is wrong with one of several must not keep the others from waiting, so each is then tried alone.
    let became = match together(pool, batching, tasks).await {
        Ok(became) => became.into_iter().map(Some).collect(),
        Err(error) if tasks.len() == 1 => return vec![Err(error)],
        Err(error) => {
            tracing::debug!(error = %error, tasks = tasks.len(), "tasks cannot begin to wait for a batch together; each is tried alone");
            vec![None; tasks.len()]
        }
    };
    let mut told = Vec::with_capacity(tasks.len());
    for (task, became) in tasks.iter().zip(became) {
        told.push(match became {
            None | Some(Parked::Later) => {
                let alone = together(pool, batching, slice::from_ref(task)).await;
                alone.map(|became| became.first().copied().unwrap_or(Parked::Lost))
            }
            Some(became) => Ok(became),
        });
    }
    told
}

/// Has tasks wait for a batch in one transaction.
pub(super) async fn together(pool: &PgPool, batching: &Batching, tasks: &[Parking]) -> sqlx::Result<Vec<Parked>> {
    // If a crash of the server takes it back, the tasks are left to their leases.
    let mut tx = transaction::begin_unflushed(pool).await?;
    let became = store::llm_batches::park(&mut tx, batching.provider.as_str(), batching.caps, tasks).await?;
    tx.commit().await?;
    Ok(became)
}
