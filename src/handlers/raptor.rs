//! Summaries over a part of the tree, and the part of it that is worth reading within a budget of tokens.
use crate::{
    access::Caller,
    error::OrFail,
    ingest::{
        queueing::{Queueing, Work},
        tasks::types::RAPTOR,
    },
    registry::Handle,
    search::portfolio,
    service::Service,
    store::{self, evidence::Evidence, ingest_nodes::Belongs, places::Place, raptor::Extent, tasks::fingerprint},
};
use sqlx::PgConnection;
use std::time::Duration;
use svc_actors::{Lane, Lanes};
use svc_client::{
    Call, Code, Failure, ops,
    wire::{PortfolioResponse, RAPTOR_BYTES, RAPTOR_LEAVES, RaptorRequest, RaptorResponse, RaptorTree, Settled},
};
use svc_ids::{DocumentId, TaskId};

/// How long `?wait=true` waits.
const WAIT: Duration = Duration::from_secs(60);
/// The time between two looks at the task.
const WAIT_STEP: Duration = Duration::from_millis(50);

impl Handle<ops::make_raptor> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::make_raptor>) -> Result<RaptorResponse, Failure> {
        let (id, request) = (DocumentId(call.path.id), call.body.0.unwrap_or_default());
        let waiting = call.query.wait.then(|| self.admission.waiting(caller.principal_id())).transpose()?;
        let model = self.model().await?;
        if request.by_model == Some(true) {
            self.language_model.must_answer().await.or_fail()?;
        }
        // No document moves until this commits, because the task gets the region of its document's place.
        let mut tx = store::transaction::begin_creating(&self.pool).await.or_fail()?;
        let Some(place) = store::places::lock_parent(&mut tx, &caller.writable(), id).await.or_fail()? else {
            return Err(caller.refusal(&mut tx, id).await.or_fail()?);
        };
        let leaves = leaves(self, &mut tx, caller, &place, model.identity()).await?;
        let task_id = queue(self, &mut tx, &place, &request).await?;
        tx.commit().await.or_fail()?;
        self.wake.notify(Lanes::of(Lane::Model));
        let tree = match waiting {
            Some(waiting) => waiting.until(wait_for(self, &place, task_id)).await?,
            None => None,
        };
        Ok(RaptorResponse { document_id: id.0, task_id: task_id.0, leaves, tree })
    }
}

/// The number of leaves, if they can be summarised now.
async fn leaves(
    service: &Service,
    conn: &mut PgConnection,
    caller: &Caller,
    place: &Place,
    model: &str,
) -> Result<i64, Failure> {
    let id = place.id();
    let row = store::documents::read(conn, &caller.readable(), id, false).await.or_fail()?;
    if row.ok_or_else(|| Failure::no_document(id.0))?.settled.0 == Settled::InFlight {
        return Err(Failure::new(Code::Conflict, format!("document {id} is still being ingested"))
            .with("retry_after", 5)
            .with("remedy", "try again once it is settled"));
    }
    let excluded = &service.settings.search_exclude_usetypes;
    let Extent { leaves, bytes } =
        store::raptor::extent(conn, place, model, excluded, RAPTOR_LEAVES + 1).await.or_fail()?;
    if leaves > RAPTOR_LEAVES || bytes > RAPTOR_BYTES {
        let detail = format!(
            "more than {RAPTOR_LEAVES} leaves or {RAPTOR_BYTES} bytes of text are under document {id}, which is the most to summarise together"
        );
        return Err(Failure::new(Code::TooLarge, detail)
            .with("limit", RAPTOR_LEAVES)
            .with("remedy", "summarise documents under this one"));
    }
    match leaves {
        0 | 1 => Err(Failure::field("id", format!("fewer than two texts with a vector are under document {id}"))
            .with("remedy", "name a document that has others under it, once they are embedded")),
        leaves => Ok(leaves),
    }
}

/// Queues the task, unless it is queued already.
async fn queue(
    service: &Service,
    conn: &mut PgConnection,
    place: &Place,
    request: &RaptorRequest,
) -> Result<TaskId, Failure> {
    let params = serde_json::to_value(request).map_err(|error| Failure::new(Code::Internal, error))?;
    match store::raptor::unfinished(conn, place).await.or_fail()? {
        Some((task_id, asked)) if asked == fingerprint(&params) => return Ok(task_id),
        Some((task_id, _)) => {
            return Err(Failure::new(Code::Conflict, "summaries of this document are being made in another way")
                .with("retry_after", 5)
                .with("task_id", task_id.0)
                .with("remedy", "try again when the task is done"));
        }
        None => {}
    }
    let belongs = store::ingest_nodes::belongs(conn, place.id()).await.or_fail()?;
    let root_id = belongs.map_or(place.id().as_root(), |Belongs { root_id, .. }| root_id);
    let queueing = Queueing::of_file(root_id, &service.settings.task_badges);
    queueing.add(conn, place, Work::of(&RAPTOR).params(params)).await.or_fail()
}

/// The tree that the task makes, if it does so soon.
async fn wait_for(service: &Service, place: &Place, task_id: TaskId) -> Result<Option<RaptorTree>, Failure> {
    let ended = async {
        let mut step = WAIT_STEP;
        loop {
            let mut conn = service.pool.acquire().await.or_fail()?;
            if let Some(completed) = store::tasks::ended(&mut conn, task_id).await.or_fail()? {
                return Ok(completed);
            }
            drop(conn);
            tokio::time::sleep(step).await;
            step = step.mul_f32(1.25).min(Duration::from_millis(500));
        }
    };
    let completed = tokio::select! {
        completed = tokio::time::timeout(WAIT, ended) => completed.ok(),
        () = service.ending.cancelled() => None,
    };
    let Some(completed) = completed.transpose()? else { return Ok(None) };
    if !completed {
        let detail =
            format!("task {task_id} failed or was cancelled, and made no summaries of document {}", place.id());
        return Err(Failure::new(Code::Conflict, detail)
            .with("task_id", task_id.0)
            .with("remedy", "read the attempts in the document's evidence, mend what they name, and ask again"));
    }
    let mut conn = service.pool.acquire().await.or_fail()?;
    let trees = store::raptor::trees(&mut conn, &[place.id()]).await.or_fail()?;
    let Some(tree) = trees.first() else { return Ok(None) };
    let recorded = store::evidence::read_one(&mut conn, tree.id(), Evidence::Raptor).await.or_fail()?;
    recorded.map(serde_json::from_value).transpose().map_err(|error| Failure::new(Code::Internal, error))
}

impl Handle<ops::choose_portfolio> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::choose_portfolio>) -> Result<PortfolioResponse, Failure> {
        let _permit = self.admission.search(caller.principal_id()).await?;
        portfolio::portfolio(self, caller, DocumentId(call.path.id), call.body.0).await
    }
}
