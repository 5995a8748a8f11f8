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
    let (place, cancel, meter) = (Place::of_claim(apply.grant), apply.cancel.clone(), apply.meter.clone());
    let (id, document_id, root_id) = (*task_id, *document_id, *root_id);
    let task = Task { id, document_id, root_id, params, place, tools, cancel: &cancel, meter: &meter };
    let mut tx = apply.begin().await?;
    let outcome = handler.run(&task, tx.conn()).await?;
    match outcome {
        TaskOutcome::Completed(detail) => tx.complete(detail).await,
        TaskOutcome::Skipped { reason, detail } => tx.skip(reason, detail).await,
    }
}
