//! Files on their way in.
use crate::{access::Caller, error::OrFail, ingest::upload::upload, registry::Handle, service::Service, store};
use svc_client::{
    Call, Failure, ops,
    wire::{FrontierResponse, UploadResponse},
};

impl Handle<ops::upload_file> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::upload_file>) -> Result<UploadResponse, Failure> {
        upload(self, caller, call.query, call.body).await
    }
}

impl Handle<ops::read_frontier> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::read_frontier>) -> Result<FrontierResponse, Failure> {
        let id = call.path.id;
        // One moment for all counts: else a file could look done between two statements.
        let mut tx = store::transaction::begin_snapshot(&self.pool).await.or_fail()?;
        let row = store::documents::read(&mut tx, &caller.scope(), id, false).await.or_fail()?;
        let settled = store::documents::settled(&row.ok_or_else(|| Failure::no_document(id))?.settled);
        let counts = match store::ingest_nodes::frontier(&mut tx, id).await.or_fail()? {
            Some(counts) => counts,
            None => store::ingest_nodes::count_by_path(&mut tx, id).await.or_fail()?,
        };
        let empty = store::evidence::read_one(&mut tx, id, "extract.empty").await.or_fail()?;
        let warnings =
            empty.iter().filter_map(|value| value.as_str()).map(|reason| format!("extract.empty: {reason}")).collect();
        let (stages, oldest_seconds, blocked_by) = store::admin::frontier(&mut tx, id).await.or_fail()?;
        Ok(FrontierResponse {
            document_id: id,
            settled,
            nodes_total: counts.total,
            nodes_settled: counts.settled,
            nodes_in_flight: counts.in_flight,
            nodes_failed: counts.failed,
            tasks_unfinished: stages.iter().map(|stage| stage.pending + stage.held + stage.waiting_for_retry).sum(),
            stages,
            oldest_seconds,
            blocked_by,
            warnings,
        })
    }
}
