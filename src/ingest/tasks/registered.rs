//! Tasks of the types that another crate registered.
use super::Apply;
use crate::{
    ingest::{
        Tools,
        extension::{Task, TaskHandler, TaskOutcome},
    },
    store::places::Place,
};
use svc_actors::{Grant, Outcome, TaskFailure};

pub async fn run(handler: &dyn TaskHandler, tools: &Tools, apply: Apply<'_>) -> Result<Outcome, TaskFailure> {
    let Grant { task_id, document_id, root_id, params, .. } = apply.grant;
    let (place, cancel) = (Place::of_claim(apply.grant), apply.cancel.clone());
    let task =
        Task { id: *task_id, document_id: *document_id, root_id: *root_id, params, place, tools, cancel: &cancel };
    let mut tx = apply.begin().await?;
    let outcome = handler.run(&task, tx.conn()).await?;
    match outcome {
        TaskOutcome::Completed(detail) => tx.complete(detail).await,
        TaskOutcome::Skipped { reason, detail } => tx.skip(reason, detail).await,
    }
}
