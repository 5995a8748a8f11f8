//! The extraction of facts from texts by a language model.
use crate::{
    access::Caller,
    error::OrFail,
    ingest::{
        queueing::{Queueing, Work},
        tasks::{facts::Parameters, types::EXTRACT_FACTS},
    },
    registry::Handle,
    service::Service,
    store::{self, evidence::Evidence, tasks::fingerprint},
};
use std::time::Duration;
use svc_actors::{Lane, Lanes};
use svc_client::{
    Call, Code, Failure, ops,
    wire::{EXTRACT_TEXTS, ExtractFactsRequest, ExtractFactsResponse, ExtractedFacts},
};
use svc_ids::{DocumentId, TaskId};

/// How long `?wait=true` waits.
const WAIT: Duration = Duration::from_secs(60);
/// The time between two looks at the tasks.
const WAIT_STEP: Duration = Duration::from_millis(50);
/// The texts whose tasks are queued in one transaction.
const PAGE: i64 = 500;

impl Handle<ops::extract_facts> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::extract_facts>) -> Result<ExtractFactsResponse, Failure> {
        let (id, request) = (DocumentId(call.path.id), call.body.0.unwrap_or_default());
        let waiting = call.query.wait.then(|| self.admission.waiting(caller.principal_id())).transpose()?;
        let mut conn = self.pool.acquire().await.or_fail()?;
        caller.writes(&mut conn, id).await.or_fail()??;
        // Another process may ask by batches.
        if !self.settings.task_badges.contains_key(EXTRACT_FACTS.name) {
            self.language_model.must_answer().await.or_fail()?;
        }
        let count = store::extraction::count(&mut conn, &caller.writable(), id, EXTRACT_TEXTS + 1).await.or_fail()?;
        drop(conn);
        if count > EXTRACT_TEXTS {
            let detail = format!("more than {EXTRACT_TEXTS} texts are at and under document {id}");
            return Err(Failure::new(Code::TooLarge, detail)
                .with("limit", EXTRACT_TEXTS)
                .with("remedy", "have facts extracted from documents under this one"));
        }
        let queued = queue(self, caller, id, &request).await?;
        self.wake.notify(Lanes::of(Lane::Llm));
        let done = match waiting {
            Some(waiting) => waiting.until(wait_for(self, &queued, request.dry_run)).await?,
            None => None,
        };
        Ok(ExtractFactsResponse { document_id: id.0, tasks: queued.len() as i64, done })
    }
}

/// Queues a task for each text, unless the same is queued already. Returns the tasks.
async fn queue(
    service: &Service,
    caller: &Caller,
    under: DocumentId,
    request: &ExtractFactsRequest,
) -> Result<Vec<TaskId>, Failure> {
    let (mut queued, mut after) = (Vec::new(), DocumentId(0));
    let mut conn = service.pool.acquire().await.or_fail()?;
    let parameters = Parameters::new(service, &mut conn, under, request).await.or_fail()?;
    drop(conn);
    loop {
        // No document moves until this commits, because each task gets the region of its document's place.
        let mut tx = store::transaction::begin_creating(&service.pool).await.or_fail()?;
        let texts = store::extraction::texts(&mut tx, &caller.writable(), under, after, PAGE).await.or_fail()?;
        let Some(last) = texts.last() else { return Ok(queued) };
        after = last.place.id();
        let ids: Vec<DocumentId> = texts.iter().map(|text| text.place.id()).collect();
        let unfinished = store::extraction::unfinished(&mut tx, &ids).await.or_fail()?;
        for text in &texts {
            let id = text.place.id();
            let parameters = parameters.of(text.content_hash.clone());
            let params = serde_json::to_value(&parameters).map_err(|error| Failure::new(Code::Internal, error))?;
            if let Some(task) = unfinished.get(&(id, fingerprint(&params))) {
                queued.push(*task);
                continue;
            }
            let queueing = Queueing::of_file(text.root_id(), &service.settings.task_badges);
            let task = queueing.add(&mut tx, &text.place, Work::of(&EXTRACT_FACTS).params(params)).await.or_fail()?;
            queued.push(task);
        }
        tx.commit().await.or_fail()?;
    }
}

/// What came of the tasks, if they all end soon.
async fn wait_for(service: &Service, tasks: &[TaskId], dry_run: bool) -> Result<Option<ExtractedFacts>, Failure> {
    let ended = async {
        let mut step = WAIT_STEP;
        loop {
            let mut conn = service.pool.acquire().await.or_fail()?;
            let (open, failed, completed) = store::extraction::progress(&mut conn, tasks).await.or_fail()?;
            if open == 0 {
                return Ok::<_, Failure>((failed, completed));
            }
            drop(conn);
            tokio::time::sleep(step).await;
            step = step.mul_f32(1.25).min(Duration::from_millis(500));
        }
    };
    let ended = tokio::select! {
        ended = tokio::time::timeout(WAIT, ended) => ended.ok(),
        () = service.ending.cancelled() => None,
    };
    let Some((failed, completed)) = ended.transpose()? else { return Ok(None) };
    let mut done = ExtractedFacts { failed: failed.len() as i64, ..ExtractedFacts::default() };
    let name = if dry_run { Evidence::FactsDryRun } else { Evidence::Facts };
    // A reprocess may have put a task at the part that took the place of its text; what an earlier task said of that text counts no more.
    let mut conn = service.pool.acquire().await.or_fail()?;
    for page in completed.chunks(PAGE as usize) {
        for said in store::extraction::recorded(&mut conn, page, name).await.or_fail()? {
            let number = |name: &str| match &said[name] {
                serde_json::Value::Array(all) => all.len() as i64,
                value => value.as_i64().unwrap_or_default(),
            };
            done.facts += number(if dry_run { "would" } else { "facts" });
            done.entities += number("entities");
            done.merges += number("merges");
            for (reason, count) in said["dropped"].as_object().into_iter().flatten() {
                *done.dropped.entry(reason.clone()).or_default() += count.as_i64().unwrap_or_default();
            }
        }
    }
    Ok(Some(done))
}
