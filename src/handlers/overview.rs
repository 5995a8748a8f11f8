//! The state of the queue and the fleet at a glance, what is wrong with them, and what failed.
use crate::{
    access::Caller,
    error::OrFail,
    ingest::requeue::requeue,
    registry::Handle,
    service::Service,
    store::{self, audit::Entry},
};
use std::time::{Duration, Instant};
use svc_actors::Lanes;
use svc_client::{
    Call, Code, Failure, ops,
    wire::{AuditAct, FailureList, FailuresRetried, FindingList, OverviewResponse, ThroughputResponse},
};
use svc_ids::{DocumentId, RootId, TaskId};

/// How many tasks one call queues again.
const RETRIED_AT_ONCE: usize = 1000;
/// How long a call may queue tasks again before it answers.
const RETRY_TIME: Duration = Duration::from_secs(10);

impl Handle<ops::read_overview> for Service {
    async fn handle(&self, _: &Caller, _: Call<ops::read_overview>) -> Result<OverviewResponse, Failure> {
        match self.sampler.overview().await {
            Some(overview) => Ok(OverviewResponse::clone(&overview)),
            None => {
                Err(Failure::new(Code::Unavailable, "the state of the queue could not be read").with("retry_after", 2))
            }
        }
    }
}

impl Handle<ops::list_findings> for Service {
    async fn handle(&self, _: &Caller, _: Call<ops::list_findings>) -> Result<FindingList, Failure> {
        let mut conn = self.pool.acquire().await.or_fail()?;
        Ok(FindingList { findings: self.sampler.findings(&mut conn).await.or_fail()? })
    }
}

impl Handle<ops::read_throughput> for Service {
    async fn handle(&self, _: &Caller, call: Call<ops::read_throughput>) -> Result<ThroughputResponse, Failure> {
        let mut conn = self.pool.acquire().await.or_fail()?;
        let minutes = store::overview::throughput(&mut conn, call.query.minutes.unwrap_or(60)).await.or_fail()?;
        Ok(ThroughputResponse { minutes })
    }
}

impl Handle<ops::list_failures> for Service {
    async fn handle(&self, _: &Caller, call: Call<ops::list_failures>) -> Result<FailureList, Failure> {
        let mut conn = self.pool.acquire().await.or_fail()?;
        let failures = store::overview::failures(&mut conn, call.query.minutes).await.or_fail()?;
        Ok(FailureList { examined: failures.iter().map(|group| group.tasks).sum(), failures })
    }
}

impl Handle<ops::retry_failures> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::retry_failures>) -> Result<FailuresRetried, Failure> {
        let begun = Instant::now();
        let mut conn = self.pool.acquire().await.or_fail()?;
        let failed = store::overview::failed_alike(&mut conn, &call.body.0).await.or_fail()?;
        drop(conn);
        let (mut retried, mut seen) = (0, 0);
        for (id, document_id, root_id) in failed.iter().take(RETRIED_AT_ONCE) {
            if begun.elapsed() > RETRY_TIME {
                break;
            }
            seen += 1;
            retried += i64::from(retry(self, caller, &call.body.0.task_type, (*id, *document_id, *root_id)).await?);
        }
        self.wake.notify(Lanes::ALL);
        Ok(FailuresRetried { retried, left: failed.len().saturating_sub(seen).try_into().unwrap_or(i64::MAX) })
    }
}

/// Queues one task again; returns false if it has been already. Each is a transaction of its own, because each locks the nodes of its file,
/// and one transaction that locked those of many files would meet others that lock them in another order.
async fn retry(
    service: &Service,
    caller: &Caller,
    task_type: &str,
    (id, document_id, root_id): (TaskId, DocumentId, RootId),
) -> Result<bool, Failure> {
    let mut tx = store::transaction::begin_creating(&service.pool).await.or_fail()?;
    if !requeue(&mut tx, &service.task_types, id, document_id, root_id).await? {
        return Ok(false);
    }
    let entry = Entry::new(AuditAct::TaskRetry).document(document_id);
    caller.record(&mut tx, entry.with("task_id", id.0).with("task_type", task_type)).await.or_fail()?;
    tx.commit().await.or_fail()?;
    Ok(true)
}
