//! The second half of every task: one short transaction whose last statement is fenced by the claim token.
use super::{
    OrTaskFailure, beside,
    types::{OCR, SUMMARIZE, SUMMARIZE_LLM},
};
use crate::{
    ingest::{Tools, settle},
    otlp,
    store::{
        self,
        tasks::{AttemptRow, Claimer},
    },
    telemetry, words,
};
use chrono::{DateTime, Utc};
use serde_json::{Map, Value};
use sqlx::PgConnection;
use std::time::Duration;
use svc_actors::{CancelToken, Grant, Lane, Lanes, Meter, Outcome, Permit, TaskFailure};
use svc_ids::DocumentId;
use tracing::Instrument;

/// The least time that a statement of a task may take, however short the lease is.
const LEAST_TIME: Duration = Duration::from_secs(30);

/// A task on its way to its commit.
pub struct Apply<'a> {
    pub grant: &'a Grant,
    tools: &'a Tools,
    claims: &'a Claims,
    started_at: DateTime<Utc>,
    permit: Permit,
    /// Where the handler says how far the task is, if it knows.
    pub meter: Meter,
    /// Fires when the task is stopped; work on another thread must then end soon.
    pub cancel: CancelToken,
}

/// How the end of a task claims the next one.
#[derive(Clone, Debug)]
pub struct Claims {
    pub claimer: Claimer,
    pub deadlines: Deadlines,
    /// Whether a task may take others along. A worker that ends after some tasks counts them one by one.
    pub take_along: bool,
}

/// How long tasks may run.
#[derive(Clone, Copy, Debug)]
pub struct Deadlines {
    usual: Duration,
    /// A file may have many scanned pages, and each has a limit of its own.
    ocr: Duration,
}

impl Deadlines {
    /// The deadlines of a process whose tasks usually have this one.
    pub fn new(usual: Duration, tools: &Tools) -> Deadlines {
        // Each page is drawn and read, and either may take its time.
        let pages = u32::try_from(tools.settings.ocr_pages).unwrap_or(u32::MAX);
        let reading = tools.settings.ocr_page_time.saturating_mul(pages).saturating_mul(2);
        Deadlines { usual, ocr: usual.saturating_add(reading) }
    }

    /// The deadline of a task of this type.
    pub fn of(&self, task_type: &str) -> Duration {
        if task_type == OCR.name { self.ocr } else { self.usual }
    }
}

impl<'a> Apply<'a> {
    /// Starts the clock of the attempt.
    pub fn new(
        tools: &'a Tools,
        grant: &'a Grant,
        claims: &'a Claims,
        permit: Permit,
        cancel: CancelToken,
    ) -> Apply<'a> {
        let meter = permit.meter().clone();
        Apply { grant, tools, claims, started_at: Utc::now(), permit, meter, cancel }
    }

    /// Who claimed the task.
    pub fn claimer(&self) -> &'a Claimer {
        &self.claims.claimer
    }

    /// Whether this task may take others along.
    pub fn may_take_along(&self) -> bool {
        self.claims.take_along && !self.grant.runs_alone
    }

    /// Claims tasks that share this one's pass: at most so many, with at most so many bytes of texts among all of them.
    pub async fn claim_beside(&self, most: (usize, usize)) -> sqlx::Result<Vec<Grant>> {
        let Apply { grant, tools, claims, .. } = self;
        tools.kept.run(async |conn| store::tasks::claim_beside(conn, &claims.claimer, grant, most).await).await
    }

    pub async fn begin(self) -> Result<Transaction<'a>, TaskFailure> {
        let conn = store::transaction::begin_bounded(&self.tools.kept, self.limit()).await.classified()?;
        Ok(Transaction { apply: self, conn })
    }

    /// Begins the transaction of a task whose statements look for a few rows by their keys.
    pub async fn begin_by_keys(self) -> Result<Transaction<'a>, TaskFailure> {
        let conn = store::transaction::begin_bounded_by_keys(&self.tools.kept, self.limit()).await.classified()?;
        Ok(Transaction { apply: self, conn })
    }

    /// Does the same and says whether no other transaction settles under the task's file, which none does then until this one ends.
    pub async fn begin_settling(self) -> Result<(Transaction<'a>, bool), TaskFailure> {
        let begun = store::transaction::begin_bounded_settling(&self.tools.kept, self.limit(), self.grant.root_id);
        let (conn, is_alone) = begun.await.classified()?;
        Ok((Transaction { apply: self, conn }, is_alone))
    }

    /// Begins the transaction of a task that creates nodes.
    pub async fn begin_creating(self) -> Result<Transaction<'a>, TaskFailure> {
        let conn = store::transaction::begin_bounded_creating(&self.tools.kept, self.limit()).await.classified()?;
        Ok(Transaction { apply: self, conn })
    }

    /// Begins the transaction of a task that creates nodes, and keeps everybody away who settles or deletes in the tree of a node. Whoever closes or moves a
    /// document waits for such a transaction, and must not wait with it for a long delete, so it begins anew once the tree is free.
    pub async fn begin_creating_in_tree(self, id: DocumentId) -> Result<Transaction<'a>, TaskFailure> {
        let mut apply = self;
        loop {
            let mut tx = apply.begin_creating().await?;
            if store::locks::try_trees(tx.conn(), &[id]).await.classified()? == [true] {
                return Ok(tx);
            }
            apply = tx.undo().await?;
            let mut waiting = apply.begin().await?;
            store::locks::tree(waiting.conn(), id).await.classified()?;
            apply = waiting.undo().await?;
        }
    }

    /// Begins the transaction of a task that creates nodes, and whose statements look for a few rows by their keys.
    pub async fn begin_creating_by_keys(self) -> Result<Transaction<'a>, TaskFailure> {
        let kept = &self.tools.kept;
        let conn = store::transaction::begin_bounded_creating_by_keys(kept, self.limit()).await.classified()?;
        Ok(Transaction { apply: self, conn })
    }

    /// How long a statement of the task may take.
    fn limit(&self) -> Duration {
        self.tools.settings.worker_lease.max(LEAST_TIME)
    }
}

/// The open transaction of a task. If it is dropped without a commit, nothing of it remains.
pub struct Transaction<'a> {
    apply: Apply<'a>,
    conn: store::transaction::Transaction,
}

impl<'a> Transaction<'a> {
    /// The task's grant.
    pub fn grant(&self) -> &'a Grant {
        self.apply.grant
    }

    /// Where the task says how far it is.
    pub fn meter(&self) -> &Meter {
        &self.apply.meter
    }

    /// The connection that the task writes on.
    pub fn conn(&mut self) -> &mut PgConnection {
        &mut self.conn
    }

    /// Undoes what was written, and begins anew the transaction of a task that creates nodes.
    pub async fn anew(self) -> Result<Transaction<'a>, TaskFailure> {
        self.undo().await?.begin_creating().await
    }

    /// Undoes what was written.
    pub async fn undo(self) -> Result<Apply<'a>, TaskFailure> {
        self.conn.rollback().await.classified()?;
        Ok(self.apply)
    }

    /// Completes tasks that share this one's work since they were claimed, each with its own detail. If that fails, the caller must undo
    /// everything.
    pub async fn complete_beside(
        &mut self,
        others: &[(&Grant, Map<String, Value>)],
        started_at: DateTime<Utc>,
    ) -> Result<(), TaskFailure> {
        let (grant, claims) = (self.apply.grant, self.apply.claims);
        let (worker, outcome) = (&claims.claimer.worker_id, words::attempt_outcome(&Outcome::Completed));
        let attempts: Vec<AttemptRow<'_>> =
            others.iter().map(|(grant, detail)| AttemptRow { grant, worker, started_at, outcome, detail }).collect();
        let ended = store::tasks::finish_all(&mut self.conn, &attempts, Some(grant)).await.classified()?;
        if ended < attempts.len() as i64 { Err(beside::stale()) } else { Ok(()) }
    }

    /// Completes the task and commits. If the token is stale or the task was cancelled, nothing is written.
    pub async fn complete(self, detail: Map<String, Value>) -> Result<Outcome, TaskFailure> {
        self.end(Outcome::Completed, detail).await
    }

    /// Commits as [`complete`](Self::complete) does, for work that was never attempted.
    pub async fn skip(self, reason: String, mut detail: Map<String, Value>) -> Result<Outcome, TaskFailure> {
        detail.insert("reason".to_owned(), reason.as_str().into());
        self.end(Outcome::Skipped { reason }, detail).await
    }

    async fn end(mut self, outcome: Outcome, detail: Map<String, Value>) -> Result<Outcome, TaskFailure> {
        let Apply { grant, tools, claims, started_at, permit, .. } = self.apply;
        if store::ingest_nodes::is_counted(&grant.task_type) {
            let counted = store::ingest_nodes::task_over(&mut self.conn, grant.document_id).await;
            if let Err(error) = &counted
                && settle::is_miscounted(error)
            {
                self.conn.rollback().await.classified()?;
                settle::recount_tasks(&tools.pool, grant.document_id, error).await.classified()?;
                let message = "the tasks of the node were counted wrongly, and are counted anew";
                return Err(TaskFailure::away("miscounted", message));
            }
            counted.classified()?;
        }
        // From here on another task may run in place of this one. Not sooner, because the writes above may be long, and
        // take memory and a connection.
        let ending = permit.end();
        let worker = &claims.claimer.worker_id;
        let attempt =
            AttemptRow { grant, worker, started_at, outcome: words::attempt_outcome(&outcome), detail: &detail };
        // Who asks by batches first takes up what a provider has answered, which only a claim of its own does.
        let ended = match ending.want() {
            want if want.is_empty() || tools.batching.is_some() => {
                store::tasks::finish_and_commit(self.conn, &attempt).await.map(|ended| ended.map(|ended| (ended, None)))
            }
            want => store::tasks::finish_and_claim(self.conn, &attempt, &claims.claimer, want).await,
        };
        let Some((ended, next)) = ended.classified()? else {
            let mut conn = tools.pool.acquire().await.classified()?;
            return match store::tasks::is_cancelled(&mut conn, grant).await.classified()? {
                true => Err(TaskFailure::cancelled()),
                false => Ok(Outcome::LostLease),
            };
        };
        let leads_to = match (ended.is_waited_for, &tools.batching) {
            (true, _) => Lanes::ALL,
            (false, Some(_)) => tools.types.leads_to(&grant.task_type).with(Lanes::of(Lane::Llm)),
            (false, None) => tools.types.leads_to(&grant.task_type),
        };
        match next {
            Some(mut claimed) => {
                claimed
                    .grants
                    .iter_mut()
                    .for_each(|grant| grant.deadline = Some(claims.deadlines.of(&grant.task_type)));
                metrics::counter!(telemetry::CLAIMED).increment(claimed.grants.len() as u64);
                tools.wake.notify_elsewhere(if claimed.more { Lanes::ALL } else { leads_to });
                ending.granted(claimed, leads_to);
            }
            None => {
                tools.wake.notify_elsewhere(leads_to);
                ending.brought(leads_to);
            }
        }
        // Settling runs apart from this task, whose region and permit are free now. Whatever goes wrong, the events
        // stay and the sweep takes them.
        let (tools, root_id) = (tools.clone(), grant.root_id);
        let settling = tools.settling.clone();
        // What a rollup stands at has waited for it.
        let is_rollup = [SUMMARIZE.name, SUMMARIZE_LLM.name].contains(&grant.task_type.as_str());
        let likely: Vec<DocumentId> = is_rollup.then_some(grant.document_id).into_iter().collect();
        let settle = async move {
            if settle::settle_likely_or_leave(&tools, root_id, &likely).await {
                tools.wake.notify(settle::QUEUES);
            }
        };
        settling.spawn(otlp::carried(settle).in_current_span());
        Ok(outcome)
    }
}
