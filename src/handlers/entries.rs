//! Texts, conversations and addresses as files: stored as uploads are, and answered when they are ingested.
use crate::{access::Caller, error::OrFail, ingest::entries, registry::Handle, service::Service, store};
use std::time::Duration;
use svc_client::{
    Call, Code, Failure, Meta, Nothing, ops,
    wire::{DocumentPath, FrontierResponse, IngestedTree, PageQuery, PipelineList},
};
use svc_ids::DocumentId;
use tokio::time::Instant;

/// The time between two looks at the ingestion at first, and later.
const SOONEST: Duration = Duration::from_millis(50);
const LATEST: Duration = Duration::from_secs(1);
/// The most nodes of an answer; the others are read page by page.
const NODES: u32 = 1000;

impl Handle<ops::list_pipelines> for Service {
    async fn handle(&self, _: &Caller, _: Call<ops::list_pipelines>) -> Result<PipelineList, Failure> {
        Ok(PipelineList { pipelines: entries::pipelines(&self.task_types)? })
    }
}

impl Handle<ops::ingest> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::ingest>) -> Result<IngestedTree, Failure> {
        let waiting = self.admission.waiting(caller.principal_id())?;
        let stored = entries::ingest(self, self.intake(), caller, call.body.0).await?;
        let id = stored.document_id;
        waiting.until(self.drained(id)).await?;
        // The caller may read a private document since it was stored, and another one no longer.
        let caller = &caller.again(&self.pool).await?;
        let path = DocumentPath { id };
        let document = Call { meta: Meta::default(), path, query: call.query, body: Nothing {} };
        let document = Handle::<ops::read_document>::handle(self, caller, document).await?.value()?;
        let frontier = self.frontier(caller, id).await?;
        let include_embed = call.query.include_embed;
        let query = PageQuery { limit: Some(NODES), include_embed, ..PageQuery::default() };
        let nodes = Call { meta: Meta::default(), path, query, body: Nothing {} };
        let page = Handle::<ops::list_subtree>::handle(self, caller, nodes).await?;
        let mut conn = self.pool.acquire().await.or_fail()?;
        let attempts = store::evidence::attempts(&mut conn, DocumentId(id)).await.or_fail()?;
        Ok(IngestedTree {
            document_id: id,
            was_existing: stored.was_existing,
            linked_into_parent: stored.linked_into_parent,
            document,
            nodes: page.documents,
            next_cursor: page.next_cursor,
            frontier,
            attempts: caller.told(attempts),
        })
    }
}

impl Service {
    async fn frontier(&self, caller: &Caller, id: i64) -> Result<FrontierResponse, Failure> {
        let call = Call { meta: Meta::default(), path: DocumentPath { id }, query: Nothing {}, body: Nothing {} };
        Handle::<ops::read_frontier>::handle(self, caller, call).await
    }

    /// Waits until no work is left under a file. The work goes on if the wait is given up.
    async fn drained(&self, id: i64) -> Result<(), Failure> {
        let deadline = Instant::now() + self.settings.ingest_wait;
        let mut pause = SOONEST;
        loop {
            // The parts that the caller may not read are waited for too.
            let frontier = self.frontier(&Caller::Owner, id).await?;
            if frontier.nodes_in_flight == 0 && frontier.tasks_unfinished == 0 {
                return Ok(());
            }
            if Instant::now() + pause > deadline {
                return Err(unfinished(&frontier));
            }
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.ending.cancelled() => return Err(unfinished(&frontier)),
            }
            pause = pause.mul_f32(1.5).min(LATEST);
        }
    }
}

/// 503 for a document that is stored and not ingested yet; it says what its tasks wait for.
fn unfinished(frontier: &FrontierResponse) -> Failure {
    let id = frontier.document_id;
    let waits: Vec<_> = frontier.blocked_by.iter().map(|(reason, tasks)| format!("{tasks} by {reason}")).collect();
    let waits = if waits.is_empty() { String::new() } else { format!("; tasks blocked: {}", waits.join(", ")) };
    let detail = format!("document {id} is stored, and its ingestion goes on{waits}");
    let route = format!("/ingest/file/{id}/frontier");
    Failure::new(Code::Unavailable, detail)
        .with("document_id", id)
        .with("blocked_by", serde_json::to_value(&frontier.blocked_by).unwrap_or_default())
        .with("setting", "SVC_INGEST_WAIT_SECONDS")
        .with("remedy", format!("follow GET {route} to its end, then read GET /documents/{id}/subtree"))
        .with("frontier", route)
}
