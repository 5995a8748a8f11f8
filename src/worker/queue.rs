//! The queue's port on PostgreSQL.
use super::{starts::Starts, unserved};
use crate::{
    blobs::BlobError,
    core::Core,
    ingest::{
        Tools, held, reprocess, settle,
        tasks::{
            Deadlines,
            types::{PROBE, TaskTypes},
        },
    },
    search::bm25,
    store::{
        self,
        growth::Timed,
        indexes::SearchIndex,
        kept::KeptConnections,
        leases::Held,
        tasks::{Claimer, Failed},
    },
    telemetry,
};
use async_trait::async_trait;
use rand::RngExt;
use sqlx::PgPool;
use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicI64, Ordering},
    },
    time::{Duration, Instant},
};
use svc_actors::{Claimed, DocumentFacts, Grant, Lane, PortError, Queue, TaskFailure};
use svc_ids::{IndexId, RootId, TaskId};
use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

/// The first delay before a retry; each further one is twice as long.
const FIRST_DELAY: Duration = Duration::from_secs(5);
/// No retry waits longer, except for jitter and a provider's own demand.
const LONGEST_DELAY: Duration = Duration::from_secs(600);
/// The most chunks of the queue, and of the events, that one look purges: more than the fleet completes between two looks.
const PURGE_CHUNKS: usize = 100;

/// The time between two repairs of what a bug left behind, by one worker of the fleet; a little less than the time
/// between two sweeps of one worker.
const REPAIR: Duration = Duration::from_secs(50);

/// The time between two looks of the fleet for objects that nothing names. There are few, so it may be long.
const SWEEP_OBJECTS: Duration = Duration::from_secs(7 * 24 * 3600);
/// How long a look has the turn before it is over; one that was cut off is made again after this time.
const SWEEPING: Duration = Duration::from_secs(24 * 3600);
/// The turn by which one worker of the fleet takes that look.
const SWEEP_TURN: &str = "sweep_objects";

/// The time between two looks of the fleet for terms that no document has any more. Each look reads the terms of all indexes.
const PURGE_TERMS: Duration = Duration::from_secs(24 * 3600);
/// How long a look has the turn; one that was cut off, or kept out by writers, is made again after this time.
const PURGING_TERMS: Duration = Duration::from_secs(3600);
/// The turn by which one worker of the fleet takes that look.
const TERMS_TURN: &str = "purge_terms";

pub struct PgQueue {
    core: Core,
    pool: PgPool,
    kept: KeptConnections,
    starts: Starts,
    claimer: Claimer,
    types: TaskTypes,
    deadlines: Deadlines,
    /// What the tasks of this process left to be settled.
    settling: TaskTracker,
    /// The look for reprocesses that have ended, if one goes on.
    reprocesses: TaskTracker,
    /// The time between two looks for tasks that nobody can work on.
    unserved_every: Duration,
    /// How long ended tasks are kept; `None`: for ever.
    retention: Option<Duration>,
    events_kept: Duration,
    /// The last task that a purge has looked at.
    purged_up_to: AtomicI64,
    /// What removes objects that nobody needs. The object store may be slow or away, so nothing else waits for it.
    tidying: Mutex<Option<AbortOnDrop>>,
}

/// Work that ends with its owner.
struct AbortOnDrop(JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Removes what has been garbage for long enough from the object store, and looks for what nothing names once a week.
async fn tidy_objects(core: Core) {
    let (blobs, pool) = (&core.blobs, &core.pool);
    let removed = async {
        let mut removed = 0;
        loop {
            match blobs.remove_garbage(pool).await? {
                0 => return Ok::<_, BlobError>(removed),
                some => removed += some,
            }
        }
    };
    match removed.await {
        Ok(0) => {}
        Ok(objects) => tracing::info!(objects, "objects of files that were deleted long ago were removed"),
        Err(error) => {
            tracing::warn!(%error, "garbage could not be removed from the object store; the next look tries again")
        }
    }
    let swept = async {
        if !store::upkeep::begin_turn(&mut *pool.acquire().await?, SWEEP_TURN, SWEEP_OBJECTS, SWEEPING).await? {
            return Ok(0);
        }
        let noted = blobs.sweep(pool).await?;
        store::upkeep::keep_turn(&mut *pool.acquire().await?, SWEEP_TURN).await?;
        Ok::<_, BlobError>(noted)
    };
    match swept.await {
        Ok(0) => {}
        Ok(objects) => tracing::warn!(objects, "objects that no file names were found, and noted to be removed"),
        Err(error) => {
            tracing::warn!(%error, "the look for objects that no file names broke off; the next look tries again");
            let given_back = async { store::upkeep::give_back_turn(&mut *pool.acquire().await?, SWEEP_TURN).await };
            if let Err(error) = given_back.await {
                tracing::warn!(%error, "the turn to look for such objects could not be given back");
            }
        }
    }
}

impl PgQueue {
    pub fn new(tools: &Tools, claimer: Claimer, deadline: Duration, retention: Option<Duration>) -> PgQueue {
        PgQueue {
            starts: Starts::new(tools.kept.clone(), claimer.lease),
            kept: tools.kept.clone(),
            core: (**tools).clone(),
            pool: tools.pool.clone(),
            claimer,
            types: tools.types.clone(),
            deadlines: Deadlines::new(deadline, tools),
            settling: tools.settling.clone(),
            reprocesses: TaskTracker::new(),
            unserved_every: tools.settings.worker_reap,
            retention,
            events_kept: Duration::from_secs_f64(tools.settings.event_retention_hours * 3600.0),
            purged_up_to: AtomicI64::new(0),
            tidying: Mutex::default(),
        }
    }

    /// Begins to remove objects that nobody needs, unless that goes on already.
    fn tidy_objects(&self) {
        if self.core.blobs.are_outside() && self.is_tidy() {
            let mut tidying = self.tidying.lock().unwrap_or_else(PoisonError::into_inner);
            *tidying = Some(AbortOnDrop(tokio::spawn(tidy_objects(self.core.clone()))));
        }
    }

    /// Whether no object is being looked for or removed now.
    pub fn is_tidy(&self) -> bool {
        let tidying = self.tidying.lock().unwrap_or_else(PoisonError::into_inner);
        tidying.as_ref().is_none_or(|work| work.0.is_finished())
    }

    fn granted(&self, mut claimed: Claimed, started: Instant) -> Claimed {
        for grant in &mut claimed.grants {
            grant.deadline = Some(self.deadlines.of(&grant.task_type));
        }
        let took = started.elapsed();
        self.core.load.record(Timed::Claim, took);
        metrics::histogram!(telemetry::CLAIM_SECONDS).record(took.as_secs_f64());
        metrics::counter!(telemetry::CLAIMED).increment(claimed.grants.len() as u64);
        claimed
    }

    async fn record_failure(&self, grant: &Grant, failure: &TaskFailure) -> sqlx::Result<(Failed, Option<RootId>)> {
        let look = async || store::tasks::is_cancelled(&mut *self.pool.acquire().await?, grant).await;
        let is_cancelled = look().await?;
        let recorded = self.record_failure_as(grant, failure, is_cancelled).await?;
        // Somebody may have requested the task's end since the look, and then there is no retry.
        if is_cancelled || recorded.0 != Failed::NotOurs || !look().await? {
            return Ok(recorded);
        }
        self.record_failure_as(grant, failure, true).await
    }

    async fn record_failure_as(
        &self,
        grant: &Grant,
        failure: &TaskFailure,
        is_cancelled: bool,
    ) -> sqlx::Result<(Failed, Option<RootId>)> {
        match self.try_to_record_failure(grant, failure, is_cancelled).await {
            Err(error) if settle::is_miscounted(&error) => {
                settle::recount_tasks(&self.pool, grant.document_id, &error).await?;
                self.try_to_record_failure(grant, failure, is_cancelled).await
            }
            recorded => recorded,
        }
    }

    async fn try_to_record_failure(
        &self,
        grant: &Grant,
        failure: &TaskFailure,
        is_cancelled: bool,
    ) -> sqlx::Result<(Failed, Option<RootId>)> {
        let mut tx = store::transaction::begin(&self.pool).await?;
        let cancelled = is_cancelled.then(TaskFailure::cancelled);
        let failure = cancelled.as_ref().unwrap_or(failure);
        if !failure.counts {
            let delay = delay(1).max(failure.retry_after.unwrap_or_default());
            let ours = store::upkeep::put_off(&mut tx, grant, failure, delay).await?;
            tx.commit().await?;
            return Ok((if ours { Failed::Retry } else { Failed::NotOurs }, None));
        }
        if store::tasks::is_last(&mut tx, grant, failure).await? {
            settle::lock_for_failure(&mut tx, &self.types, &grant.task_type, grant.document_id, &grant.params).await?;
        }
        let delay = delay(grant.attempt).max(failure.retry_after.unwrap_or_default());
        let failed = store::tasks::fail(&mut tx, grant, failure, &self.claimer.worker_id, delay).await?;
        let root_id = match failed {
            Failed::Final if cancelled.is_some() => {
                settle::task_cancelled(&mut tx, &self.types, &grant.task_type, grant.document_id, &grant.params).await?
            }
            Failed::Final => {
                settle::task_failed(&mut tx, &self.types, &grant.task_type, grant.document_id, &grant.params).await?
            }
            _ => None,
        };
        tx.commit().await?;
        Ok((failed, root_id))
    }

    async fn reap_expired(&self) -> sqlx::Result<u64> {
        let mut tx = store::transaction::begin(&self.pool).await?;
        let reaped = store::leases::reap(&mut tx).await?;
        let intents = store::upkeep::drop_idle_intents(&mut tx).await?;
        if intents > 0 {
            tracing::info!(intents, "removed the intents of tasks that cannot run now");
        }
        tx.commit().await?;
        let count = reaped.again.len() + reaped.to_end.len();
        let ended = self.end(&reaped.to_end).await;
        // A task that cannot be ended keeps nothing of this from being done.
        store::llm_batches::give_way(&mut *self.pool.acquire().await?).await?;
        unserved::log(&self.pool, self.unserved_every).await?;
        self.purge().await?;
        ended.map(|()| count as u64)
    }

    /// Ends held tasks for good.
    async fn end(&self, held: &[Held]) -> sqlx::Result<()> {
        held::end(&self.core, &self.types, held).await
    }

    /// Deletes ended tasks in small transactions. The next look continues where this one ended.
    async fn purge(&self) -> sqlx::Result<()> {
        let Some(retention) = self.retention else { return Ok(()) };
        let mut rows = 0;
        for _ in 0..PURGE_CHUNKS {
            let mut tx = store::transaction::begin(&self.pool).await?;
            let after = TaskId(self.purged_up_to.load(Ordering::Relaxed));
            let purged = store::upkeep::purge(&mut tx, retention, after, PROBE.name).await?;
            tx.commit().await?;
            rows += purged.rows;
            self.purged_up_to.store(purged.next.map_or(0, |id| id.0), Ordering::Relaxed);
            if purged.next.is_none() {
                break;
            }
        }
        if rows > 0 {
            tracing::info!(tasks = rows, "tasks that ended long ago were purged");
        }
        Ok(())
    }

    async fn upkeep(&self) -> sqlx::Result<bool> {
        // A draining worker treats an empty queue as the end, so wait here: settling may still queue tasks.
        self.settling.close();
        self.settling.wait().await;
        self.settling.reopen();
        let queued = settle::sweep(&self.core).await?;
        // A sweep is cut off after a lease; this goes on, because the tree of a large file may take longer to put in its place.
        if self.reprocesses.is_empty() {
            self.reprocesses.spawn(reprocess::sweep(self.core.clone()));
        }
        let more = self.tidy_up().await?;
        // A draining worker waits for this too, but nothing else does.
        self.reprocesses.close();
        self.reprocesses.wait().await;
        self.reprocesses.reopen();
        Ok(queued || more)
    }

    /// Does what one worker does for the fleet. Returns true if tasks may run now that could not.
    async fn tidy_up(&self) -> sqlx::Result<bool> {
        let mut conn = self.pool.acquire().await?;
        if !store::upkeep::take_turn(&mut conn, "repair", REPAIR).await? {
            return Ok(false);
        }
        settle::repair(&self.pool).await?;
        while store::blobs::unlink_orphans(&self.pool).await? > 0 {}
        self.tidy_objects();
        let forgotten = store::upkeep::find_forgotten_releases(&mut conn).await?;
        if forgotten > 0 {
            tracing::error!(
                blockers = forgotten,
                "woke tasks that waited for something already gone; this is a defect"
            );
        }
        store::workers::forget_silent(&mut conn).await?;
        for _ in 0..PURGE_CHUNKS {
            let events = store::event_feed::sweep(&mut conn, self.events_kept).await?;
            let deliveries = store::deliveries::sweep(&mut conn, self.events_kept).await?;
            let rejected = store::bulk::sweep(&mut conn, self.events_kept).await?;
            if !events && !deliveries && !rejected {
                break;
            }
        }
        let indexes = store::indexes::list(&mut conn, IndexId(0), i64::MAX).await?;
        drop(conn);
        for index in &indexes {
            match bm25::compact(&self.pool, index.id).await {
                Ok(compaction) if compaction.sealed_postings > 0 => {
                    tracing::debug!(index = index.name, postings = compaction.sealed_postings, "compacted");
                }
                Ok(_) => {}
                Err(error) => {
                    tracing::warn!(index = index.name, error = %error, "compaction failed; the next sweep tries again")
                }
            }
        }
        self.purge_terms(&indexes).await?;
        Ok(forgotten > 0)
    }

    /// Takes the terms that no document has any more out of these indexes, if it is time to.
    async fn purge_terms(&self, indexes: &[SearchIndex]) -> sqlx::Result<()> {
        let mut conn = self.pool.acquire().await?;
        if !store::upkeep::begin_turn(&mut conn, TERMS_TURN, PURGE_TERMS, PURGING_TERMS).await? {
            return Ok(());
        }
        drop(conn);
        let mut is_done = true;
        for index in indexes {
            match bm25::purge_terms(&self.pool, index.id).await {
                Ok(purged) => {
                    is_done &= !purged.busy;
                    if purged.terms > 0 {
                        self.core.postings.forget_term_ids();
                        tracing::debug!(index = index.name, terms = purged.terms, "purged terms that no document has");
                    }
                }
                Err(error) => {
                    is_done = false;
                    tracing::warn!(index = index.name, %error, "terms could not be purged; the next look tries again");
                }
            }
        }
        if is_done {
            store::upkeep::keep_turn(&mut *self.pool.acquire().await?, TERMS_TURN).await?;
        }
        Ok(())
    }
}

/// How long to wait before the retry after this attempt: doubling, capped, and jittered so that failures do not return
/// together.
fn delay(attempt: i32) -> Duration {
    let doublings = u32::try_from(attempt.clamp(1, 16) - 1).unwrap_or(0);
    let delay = FIRST_DELAY.saturating_mul(2u32.saturating_pow(doublings)).min(LONGEST_DELAY);
    delay.mul_f64(rand::rng().random_range(0.5..1.5))
}

#[async_trait]
impl Queue for PgQueue {
    async fn claim(&self, want: &[(Lane, usize)]) -> Result<Claimed, PortError> {
        let started = Instant::now();
        let mut batched = Claimed::default();
        let mut want = want.to_vec();
        // What a provider has answered comes first.
        if let Some(batching) = &self.core.batching
            && !batching.is_applying()
            && let Some((_, most)) = want.iter_mut().find(|(lane, _)| *lane == Lane::Llm)
        {
            let provider = batching.provider.as_str();
            batched = self
                .kept
                .run(async |conn| store::llm_batches::resume(conn, &self.claimer, provider, *most).await)
                .await
                .map_err(PortError::new)?;
            *most -= batched.grants.len();
            want.retain(|(_, most)| *most > 0);
        }
        if want.is_empty() {
            return Ok(self.granted(batched, started));
        }
        let mut claimed = self
            .kept
            .run(async |conn| store::tasks::claim(conn, &self.claimer, &want).await)
            .await
            .map_err(PortError::new)?;
        batched.grants.append(&mut claimed.grants);
        batched.more = claimed.more;
        Ok(self.granted(batched, started))
    }

    async fn start(&self, grant: &Grant) -> Result<bool, PortError> {
        self.starts.start(grant).await
    }

    async fn give_back(&self, tokens: &[Uuid]) -> Result<(), PortError> {
        let cancelled = store::leases::give_back(&self.pool, tokens).await.map_err(PortError::new)?;
        self.end(&cancelled).await.map_err(PortError::new)
    }

    async fn fail(&self, grant: &Grant, failure: &TaskFailure) -> Result<bool, PortError> {
        let (failed, root_id) = self.record_failure(grant, failure).await.map_err(PortError::new)?;
        if let Some(root_id) = root_id {
            settle::settle_or_leave(&self.core, root_id).await;
        } else if failed == Failed::Retry {
            // A reprocess may have waited for this attempt, and goes before the next one.
            self.settling.spawn(reprocess::sweep_root(self.core.clone(), grant.root_id));
        }
        Ok(failed != Failed::NotOurs)
    }

    async fn documents(&self, roots: &[RootId]) -> Result<Vec<DocumentFacts>, PortError> {
        let mut conn = self.pool.acquire().await.map_err(PortError::new)?;
        store::queue::documents(&mut conn, roots).await.map_err(PortError::new)
    }

    async fn reap(&self) -> Result<u64, PortError> {
        self.reap_expired().await.map_err(PortError::new)
    }

    async fn sweep(&self) -> Result<bool, PortError> {
        self.upkeep().await.map_err(PortError::new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_cap() {
        for attempt in 1..40 {
            let base = (5.0 * 2f64.powi(attempt.min(16) - 1)).min(600.0);
            let waited = delay(attempt).as_secs_f64();
            assert!((base * 0.5..=base * 1.5).contains(&waited), "attempt {attempt}: {waited}");
        }
    }
}
