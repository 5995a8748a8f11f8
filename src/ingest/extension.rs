//! Task types of other crates. A program registers them with the [`TaskTypes`] that it gives to its service and its worker.
pub use crate::ingest::{
    options::{OptionGroup, OptionKey, Preset},
    tasks::types::{FinalFailure, RegisterError, TaskTypes},
};
use crate::{
    ingest::{
        Tools,
        queueing::{Queueing, Work},
    },
    store::{self, evidence::Evidence, places::Place},
};
use async_trait::async_trait;
use serde_json::{Map, Value};
use sqlx::PgConnection;
use std::sync::Arc;
use svc_actors::{CancelToken, Lane, Meter, TaskFailure, WriteMode};
use svc_ids::{DocumentId, RootId, TaskId};

/// A task type, and everything that the service asks of it.
pub struct TaskDeclaration {
    pub name: &'static str,
    pub lane: Lane,
    /// The region that its tasks reserve.
    pub write_mode: WriteMode,
    /// Its parameters. Plans show them, an upload may override them, and they are in the fingerprint of its tasks.
    pub options: Option<&'static OptionGroup>,
    pub final_failure: FinalFailure,
    pub handler: Arc<dyn TaskHandler>,
}

/// The task as its handler sees it.
pub struct Task<'a> {
    pub id: TaskId,
    pub document_id: DocumentId,
    /// The file, or the document that was created on its own.
    pub root_id: RootId,
    pub params: &'a Value,
    /// Where it may write.
    pub place: Place,
    /// What its process works with.
    pub tools: &'a Tools,
    /// Fires when the task is stopped, for work that the handler moved to another thread.
    pub cancel: &'a CancelToken,
    /// Where a handler that knows it says how far it is.
    pub meter: &'a Meter,
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

/// Why a task cannot be queued.
#[derive(Debug, thiserror::Error)]
pub enum EnqueueError {
    #[error("there is no task type `{0}`; register it first")]
    UnknownType(String),
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

impl Tools {
    /// Queues a task of any type that this process knows, at a document of a file. Its parameters are its group of the
    /// file's options, and `params` beside them.
    pub async fn enqueue(
        &self,
        conn: &mut PgConnection,
        place: &Place,
        root_id: RootId,
        task_type: &str,
        params: Map<String, Value>,
    ) -> Result<TaskId, EnqueueError> {
        let known = self.types.get(task_type).ok_or_else(|| EnqueueError::UnknownType(task_type.to_owned()))?;
        let options = store::evidence::read_one(conn, root_id.document(), Evidence::Options).await?;
        let options = self.types.complete(options.unwrap_or_else(|| Map::new().into()));
        let mut all = known.params(&options);
        all.extend(params);
        let queueing = Queueing::of_file(root_id, &self.settings.task_badges);
        let id = queueing.add(conn, place, Work::of(known).params(Value::Object(all))).await?;
        if store::ingest_nodes::is_counted(task_type) {
            store::ingest_nodes::grow(conn, place.id(), 1, 0, 0).await?;
        }
        Ok(id)
    }
}
