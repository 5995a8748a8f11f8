//! Uploads of files, and the ingestion that follows.
use crate::{
    access::Caller,
    error::OrFail,
    ingest::{
        plan::{analyze, explain},
        upload::{Intake, upload},
    },
    registry::Handle,
    service::Service,
    spool::SpooledUpload,
    store::{self, ingest_nodes::Belongs},
};
use sqlx::PgConnection;
use svc_client::{
    Call, Code, Failure, ops,
    wire::{AnalyzeResponse, Plan, PriorityResponse, UploadResponse},
};
use svc_ids::{DocumentId, RootId};

impl Handle<ops::upload_file> for Service {
    async fn handle(
        &self,
        caller: &Caller,
        call: Call<ops::upload_file, SpooledUpload>,
    ) -> Result<UploadResponse, Failure> {
        upload(self, Intake { admission: &self.admission, copies: &self.copies }, caller, call.query, call.body).await
    }
}

impl Handle<ops::explain_ingest> for Service {
    async fn handle(&self, _: &Caller, call: Call<ops::explain_ingest>) -> Result<Plan, Failure> {
        explain(call.body.0)
    }
}

impl Handle<ops::analyze_file> for Service {
    async fn handle(
        &self,
        caller: &Caller,
        call: Call<ops::analyze_file, SpooledUpload>,
    ) -> Result<AnalyzeResponse, Failure> {
        analyze(self, &self.admission, caller, call.body).await
    }
}

impl Handle<ops::change_priority> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::change_priority>) -> Result<PriorityResponse, Failure> {
        let priority = call.body.0.priority;
        let mut tx = store::transaction::begin(&self.pool).await.or_fail()?;
        let root_id = ingested_file(&mut tx, caller, DocumentId(call.path.id)).await?;
        store::ingest_nodes::set_priority(&mut tx, root_id, priority).await.or_fail()?;
        tx.commit().await.or_fail()?;
        // This is a separate transaction, because the end of a task locks the task's row before those of the tree.
        let mut tx = store::transaction::begin(&self.pool).await.or_fail()?;
        let tasks_changed = store::admin::follow_priority(&mut tx, root_id).await.or_fail()?;
        tx.commit().await.or_fail()?;
        Ok(PriorityResponse { document_id: root_id.0, priority, tasks_changed })
    }
}

/// An ingested file by its id: 404 if the caller does not see the document, 403 if it may not change it, 409 if it is
/// not an ingested file.
pub(super) async fn ingested_file(conn: &mut PgConnection, caller: &Caller, id: DocumentId) -> Result<RootId, Failure> {
    let row = store::documents::read(conn, &caller.readable(), id, false).await.or_fail()?;
    row.ok_or_else(|| Failure::no_document(id.0))?;
    caller.writes(conn, id).await.or_fail()??;
    match store::ingest_nodes::belongs(conn, id).await.or_fail()? {
        Some(Belongs { root_id, .. }) if root_id.document() == id => Ok(root_id),
        Some(Belongs { root_id, .. }) => {
            let detail = format!("document {id} is a part of the file {root_id}: use that id");
            Err(Failure::new(Code::Conflict, detail).with("file_id", root_id.0))
        }
        None => Err(Failure::new(Code::Conflict, format!("document {id} is not an ingested file"))),
    }
}
