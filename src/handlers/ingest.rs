//! Files on their way in.
use crate::{
    access::Caller,
    error::OrFail,
    ingest::{
        settle::FAILED_PARTS,
        upload::{Intake, upload},
    },
    registry::Handle,
    service::Service,
    store,
};
use serde_json::Map;
use sqlx::PgConnection;
use svc_client::{
    Call, Code, Failure, ops,
    wire::{FrontierResponse, PriorityResponse, UploadResponse},
};

impl Handle<ops::upload_file> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::upload_file>) -> Result<UploadResponse, Failure> {
        upload(self, Intake { admission: &self.admission, copies: &self.copies }, caller, call.query, call.body).await
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
        let priority = match store::ingest_nodes::root_of(&mut tx, id).await.or_fail()? {
            Some((root, _)) => store::ingest_nodes::priority(&mut tx, root).await.or_fail()?,
            None => None,
        };
        let empty = store::evidence::read_one(&mut tx, id, "extract.empty").await.or_fail()?;
        let mut warnings: Vec<String> =
            empty.iter().filter_map(|value| value.as_str()).map(|reason| format!("extract.empty: {reason}")).collect();
        let failed = store::evidence::read_one(&mut tx, id, FAILED_PARTS).await.or_fail()?;
        warnings.extend(failed.map(|failed| {
            let reasons: Vec<_> =
                failed["tasks_by_reason"].as_object().into_iter().flat_map(Map::keys).cloned().collect();
            format!("{FAILED_PARTS}: {} ({})", failed["nodes"], reasons.join(", "))
        }));
        let (stages, oldest_seconds, blocked_by) = store::admin::frontier(&mut tx, id).await.or_fail()?;
        Ok(FrontierResponse {
            document_id: id,
            settled,
            priority,
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

impl Handle<ops::change_priority> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::change_priority>) -> Result<PriorityResponse, Failure> {
        let (id, priority) = (call.path.id, call.body.0.priority);
        let mut tx = store::transaction::begin(&self.pool).await.or_fail()?;
        ingested_file(&mut tx, caller, id).await?;
        store::ingest_nodes::set_priority(&mut tx, id, priority).await.or_fail()?;
        tx.commit().await.or_fail()?;
        // This is a separate transaction, because the end of a task locks the task's row before those of the tree.
        let mut tx = store::transaction::begin(&self.pool).await.or_fail()?;
        let tasks_changed = store::admin::follow_priority(&mut tx, id).await.or_fail()?;
        tx.commit().await.or_fail()?;
        Ok(PriorityResponse { document_id: id, priority, tasks_changed })
    }
}

/// 404 if the caller can see no such document, 409 if it is not an ingested file.
pub(super) async fn ingested_file(conn: &mut PgConnection, caller: &Caller, id: i64) -> Result<(), Failure> {
    let row = store::documents::read(conn, &caller.scope(), id, false).await.or_fail()?;
    row.ok_or_else(|| Failure::no_document(id))?;
    match store::ingest_nodes::root_of(conn, id).await.or_fail()? {
        Some((root, _)) if root == id => Ok(()),
        Some((root, _)) => {
            let detail = format!("document {id} is a part of the file {root}: use that id");
            Err(Failure::new(Code::Conflict, detail).with("file_id", root))
        }
        None => Err(Failure::new(Code::Conflict, format!("document {id} is not an ingested file"))),
    }
}
