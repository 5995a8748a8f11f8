//! The second half of every task: one short transaction whose last statement is fenced by the claim token.
use super::OrTaskFailure;
use crate::{
    ingest::{Tools, settle},
    store::{self, tasks::AttemptRow},
};
use chrono::{DateTime, Utc};
use serde_json::{Map, Value};
use sqlx::{PgConnection, PgTransaction};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};
use svc_actors::{Grant, Outcome, TaskFailure};

/// A task on its way to its commit.
pub struct Apply<'a> {
    pub grant: &'a Grant,
    tools: &'a Tools,
    worker_id: &'a str,
    started_at: DateTime<Utc>,
    /// Set when there is no way back.
    applying: Arc<AtomicBool>,
}

impl<'a> Apply<'a> {
    /// Starts the clock of the attempt.
    pub fn new(tools: &'a Tools, grant: &'a Grant, worker_id: &'a str, applying: Arc<AtomicBool>) -> Apply<'a> {
        Apply { grant, tools, worker_id, started_at: Utc::now(), applying }
    }

    /// Begins the transaction.
    pub async fn begin(self) -> Result<Transaction<'a>, TaskFailure> {
        self.applying.store(true, Ordering::SeqCst);
        let tx = self.tools.pool.begin().await.classified()?;
        Ok(Transaction { apply: self, tx })
    }
}

/// The open transaction of a task; dropped without a commit, nothing of it remains.
pub struct Transaction<'a> {
    apply: Apply<'a>,
    tx: PgTransaction<'static>,
}

impl<'a> Transaction<'a> {
    /// The task.
    pub fn grant(&self) -> &'a Grant {
        self.apply.grant
    }

    /// The connection that the task writes on.
    pub fn conn(&mut self) -> &mut PgConnection {
        &mut self.tx
    }

    /// Completes the task and commits, unless the token is stale or the task was cancelled: then nothing was written.
    pub async fn complete(mut self, detail: Map<String, Value>) -> Result<Outcome, TaskFailure> {
        let Apply { grant, tools, worker_id, started_at, .. } = self.apply;
        store::ingest_nodes::task_over(&mut self.tx, grant.document_id).await.classified()?;
        let attempt = AttemptRow { grant, worker: worker_id, started_at, outcome: "completed", detail: &detail };
        if !store::tasks::finish(&mut self.tx, &attempt).await.classified()? {
            self.tx.rollback().await.classified()?;
            let mut conn = tools.pool.acquire().await.classified()?;
            return match store::tasks::is_cancelled(&mut conn, grant).await.classified()? {
                true => Err(TaskFailure::permanent("cancelled", "the task was cancelled")),
                false => Ok(Outcome::LostLease),
            };
        }
        self.tx.commit().await.classified()?;
        // Apart from this task, whose region and permit are free now. Whatever goes wrong, the events stand and the sweep takes them.
        let (tools, root) = (tools.clone(), grant.root_id);
        tokio::spawn(async move {
            if let Err(error) = settle::settle(&tools.pool, &tools.settings.task_badges, root).await {
                tracing::warn!(document.id = root, error = %error, "settling is left to the sweep");
            }
            tools.wake.notify_one();
        });
        Ok(Outcome::Completed)
    }
}
