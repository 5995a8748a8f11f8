//! Task types of other crates: a name and a handler, registered with the [`Tools`](super::Tools) of a worker.
use crate::ingest::tasks::Apply;
pub use crate::ingest::tasks::types::DuplicateTaskType;
use async_trait::async_trait;
use serde_json::{Map, Value};
use sqlx::PgConnection;
use svc_actors::{CancelToken, Grant, Outcome, TaskFailure};
use svc_ids::{DocumentId, RootId, TaskId};

/// The task as its handler sees it.
pub struct Task<'a> {
    pub id: TaskId,
    pub document_id: DocumentId,
    /// The file, or the document that was created on its own.
    pub root_id: RootId,
    pub params: &'a Value,
    /// Fires when the task is stopped, for work that the handler moved to another thread.
    pub cancel: &'a CancelToken,
}

/// The outcome of a task; a handler that fails returns an error instead.
#[derive(Clone, Debug, PartialEq)]
pub enum TaskOutcome {
    Completed(Map<String, Value>),
    /// The work was never attempted.
    Skipped {
        /// The `reason` in the task's detail.
        reason: String,
        detail: Map<String, Value>,
    },
}

/// Runs the tasks of one type.
#[async_trait]
pub trait TaskHandler: Send + Sync {
    /// Does the task's writes in the worker's session, which is one transaction of this task. The worker commits it if
    /// this returns an outcome and the task is still ours, and rolls it back otherwise.
    async fn run(&self, task: &Task<'_>, session: &mut PgConnection) -> Result<TaskOutcome, TaskFailure>;
}

pub(crate) async fn run_registered(handler: &dyn TaskHandler, apply: Apply<'_>) -> Result<Outcome, TaskFailure> {
    let Grant { task_id, document_id, root_id, params, .. } = apply.grant;
    let cancel = apply.cancel.clone();
    let task = Task { id: *task_id, document_id: *document_id, root_id: *root_id, params, cancel: &cancel };
    let mut tx = apply.begin().await?;
    let outcome = handler.run(&task, tx.conn()).await?;
    match outcome {
        TaskOutcome::Completed(detail) => tx.complete(detail).await,
        TaskOutcome::Skipped { reason, detail } => tx.skip(reason, detail).await,
    }
}
