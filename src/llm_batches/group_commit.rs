//! Tasks that are ready to wait for a batch at the same moment begin to wait in one transaction.
use super::Batching;
use crate::store::{
    self,
    llm_batches::{Parked, Parking},
    transaction,
};
use sqlx::PgPool;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::oneshot;

/// The most tasks of one transaction.
const TASKS: usize = 64;
/// Tasks with more bytes of requests than this share no transaction.
const BYTES: usize = 8 << 20;

type Told = oneshot::Sender<sqlx::Result<Parked>>;

/// The tasks that are ready to wait.
#[derive(Debug, Default)]
pub(super) struct GroupCommit {
    ready: Mutex<Vec<(Parking, Told)>>,
    turn: tokio::sync::Mutex<()>,
}

impl GroupCommit {
    /// Has a task wait for a batch, together with those that became ready while a transaction of others was under way.
    pub async fn park(&self, pool: &PgPool, batching: &Arc<Batching>, task: Parking) -> sqlx::Result<Parked> {
        let (told, became) = oneshot::channel();
        self.ready().push((task, told));
        let turn = self.turn.lock().await;
        // Whoever had the turn before may have taken this task along.
        let group = self.take();
        if !group.is_empty() {
            // A task that is stopped takes no other one with it.
            let (pool, batching) = (pool.clone(), batching.clone());
            let work = tokio::spawn(async move { commit(&pool, &batching, group).await });
            // A group that panics tells nobody anything, which each of its tasks finds out below.
            let _ = work.await;
        }
        drop(turn);
        became.await.unwrap_or(Err(sqlx::Error::WorkerCrashed))
    }

    fn ready(&self) -> std::sync::MutexGuard<'_, Vec<(Parking, Told)>> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The tasks of the next transaction, those that came first; one is always among them.
    fn take(&self) -> Vec<(Parking, Told)> {
        let mut ready = self.ready();
        let mut bytes = 0;
        let fitting = ready.iter().take(TASKS).take_while(|(task, _)| {
            bytes += task.requests.iter().map(|request| request.line.len()).sum::<usize>();
            bytes <= BYTES
        });
        let count = fitting.count().max(1).min(ready.len());
        ready.drain(..count).collect()
    }
}

/// Tells each task of a group what became of it.
async fn commit(pool: &PgPool, batching: &Batching, group: Vec<(Parking, Told)>) {
    let (tasks, told): (Vec<Parking>, Vec<Told>) = group.into_iter().unzip();
    // What is wrong with one of several must not keep the others from waiting, so each is then tried alone.
    let became = match together(pool, batching, &tasks).await {
        Ok(became) => became.into_iter().map(Some).collect(),
        Err(error) if tasks.len() == 1 => {
            let _ = told.into_iter().next().map(|told| told.send(Err(error)));
            return;
        }
        Err(error) => {
            tracing::debug!(error = %error, tasks = tasks.len(), "tasks cannot begin to wait for a batch together; each is tried alone");
            vec![None; tasks.len()]
        }
    };
    for ((task, told), became) in tasks.iter().zip(told).zip(became) {
        let became = match became {
            None | Some(Parked::Later) => {
                let alone = together(pool, batching, std::slice::from_ref(task)).await;
                alone.map(|became| became.first().copied().unwrap_or(Parked::Lost))
            }
            Some(became) => Ok(became),
        };
        // A task that was stopped meanwhile does not listen any more.
        let _ = told.send(became);
    }
}

/// Has tasks wait for a batch in one transaction.
pub(super) async fn together(pool: &PgPool, batching: &Batching, tasks: &[Parking]) -> sqlx::Result<Vec<Parked>> {
    // If a crash of the server takes it back, the tasks are left to their leases.
    let mut tx = transaction::begin_unflushed(pool).await?;
    let became = store::llm_batches::park(&mut tx, batching.provider.as_str(), batching.caps, tasks).await?;
    tx.commit().await?;
    Ok(became)
}
