//! Uploads of files, and the ingestion that follows.
use super::admin::announce_cancel;
use crate::{
    access::Caller,
    error::OrFail,
    ingest::{cancel, reprocess, settle, upload::upload},
    registry::Handle,
    service::Service,
    spool::SpooledUpload,
    store::{self, audit::Entry, ingest_nodes::Belongs, places::Place},
};
use sqlx::PgConnection;
use svc_actors::Lanes;
use svc_client::{
    Call, Code, Failure, ops,
    wire::{AuditAct, CancelResponse, PriorityResponse, UploadResponse},
};
use svc_ids::DocumentId;

impl Handle<ops::upload_file> for Service {
    async fn handle(
        &self,
        caller: &Caller,
        call: Call<ops::upload_file, SpooledUpload>,
    ) -> Result<UploadResponse, Failure> {
        upload(self, self.intake(), caller, call.query, call.body).await
    }
}

impl Handle<ops::change_priority> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::change_priority>) -> Result<PriorityResponse, Failure> {
        let priority = call.body.0.priority;
        let mut tx = store::transaction::begin(&self.pool).await.or_fail()?;
        let file = ingested_file(&mut tx, caller, DocumentId(call.path.id)).await?;
        store::ingest_nodes::set_priority(&mut tx, &file, priority).await.or_fail()?;
        let generation = store::reprocess::running(&mut tx, file.id()).await.or_fail()?.map(|running| running.place());
        if let Some(generation) = &generation {
            store::ingest_nodes::set_priority(&mut tx, generation, priority).await.or_fail()?;
        }
        tx.commit().await.or_fail()?;
        // This is a separate transaction, because the end of a task locks the task's row before those of the tree.
        let mut tx = store::transaction::begin(&self.pool).await.or_fail()?;
        let mut tasks_changed = store::admin::follow_priority(&mut tx, &file).await.or_fail()?;
        if let Some(generation) = &generation {
            tasks_changed += store::admin::follow_priority(&mut tx, generation).await.or_fail()?;
        }
        tx.commit().await.or_fail()?;
        Ok(PriorityResponse { document_id: file.id().0, priority, tasks_changed })
    }
}

impl Handle<ops::cancel_ingest> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::cancel_ingest>) -> Result<CancelResponse, Failure> {
        let mut tx = store::transaction::begin(&self.pool).await.or_fail()?;
        let file = ingested_file(&mut tx, caller, DocumentId(call.path.id)).await?;
        let root_id = file.id().as_root();
        store::locks::files_around(&mut tx, root_id.document()).await.or_fail()?;
        if let Some(running) = store::reprocess::running(&mut tx, file.id()).await.or_fail()? {
            let given_up = reprocess::give_up(&mut tx, &file).await.or_fail()?;
            reprocess::record_cancel(&mut tx, &file, &running).await.or_fail()?;
            let entry = Entry::new(AuditAct::IngestCancel).document(file.id());
            caller.record(&mut tx, entry).await.or_fail()?;
            tx.commit().await.or_fail()?;
            let (tasks_cancelled, tasks_stopping) = (given_up.cancelled, given_up.stopping);
            super::reprocess::after_giving_up(self, given_up).await;
            return Ok(CancelResponse { document_id: root_id.0, tasks_cancelled, tasks_stopping });
        }
        let ended = cancel::begin(&mut tx, &file).await.or_fail()?;
        if ended.are_new {
            let entry = Entry::new(AuditAct::IngestCancel).document(file.id());
            caller.record(&mut tx, entry).await.or_fail()?;
        }
        tx.commit().await.or_fail()?;
        announce_cancel(self, ended.stopping).await;
        self.wake.notify(Lanes::ALL);
        cancel::finish(&self.pool, root_id).await;
        // A stopped task that ended in the meantime left its events, because the file was locked for the cancel.
        settle::settle_or_leave(self, root_id).await;
        Ok(CancelResponse { document_id: root_id.0, tasks_cancelled: ended.cancelled, tasks_stopping: ended.stopping })
    }
}

/// An ingested file by its id: 404 if the caller does not see the document, 403 if it may not change it, 409 if it is
/// not an ingested file.
async fn ingested_file(conn: &mut PgConnection, caller: &Caller, id: DocumentId) -> Result<Place, Failure> {
    let row = store::documents::read(conn, &caller.readable(), id, false).await.or_fail()?;
    row.ok_or_else(|| Failure::no_document(id.0))?;
    let place = caller.writes(conn, id).await.or_fail()??;
    match store::ingest_nodes::belongs(conn, id).await.or_fail()? {
        Some(Belongs { root_id, .. }) if root_id.document() == id => Ok(place),
        Some(Belongs { root_id, .. }) => {
            let detail = format!("document {id} is a part of the file {root_id}: use that id");
            Err(Failure::new(Code::Conflict, detail).with("file_id", root_id.0))
        }
        None => Err(Failure::new(Code::Conflict, format!("document {id} is not an ingested file"))
            .with("remedy", "GET /documents/files lists the files")),
    }
}
