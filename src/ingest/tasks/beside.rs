//! Embed tasks of single short documents that are done in the pass and the transaction of another one: a task costs the same however little it embeds.
//!
//! Each keeps its claim, with a region and a token of its own. Whatever goes wrong in a pass that is shared, its tasks go back into the queue, and the
//! first one embeds its document alone.
use super::{Apply, trace, types::EMBED};
use crate::{
    ingest::{Tools, held},
    otlp::Attribute,
    store::{self, tasks::Claimer},
    telemetry, words,
};
use chrono::{DateTime, Utc};
use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::{Duration, Instant},
};
use svc_actors::{Grant, Lane, Lanes, Outcome, TaskFailure};
use tokio::runtime::Handle;
use tokio_util::task::{TaskTracker, task_tracker::TaskTrackerToken};
use uuid::Uuid;

/// The most tasks that one takes along.
const MOST: usize = 63;
/// The most bytes of the texts of a pass.
const MOST_BYTES: usize = 32 * 1024;
/// The longest time between two looks at the claims, which tell of cancels; most passes end sooner.
const LONGEST_STEP: Duration = Duration::from_secs(1);
/// The code of the failure of a pass whose tasks are not all ours any more.
const STALE: &str = "stale";

/// What the tasks of a process know of each other's shared passes.
#[derive(Debug, Default)]
pub(crate) struct Sharing {
    /// The claims of those that are taken along, until they have ended or were given back.
    claims: TaskTracker,
    /// How many tasks take none along, so that a text that fails, or on which a model hangs, meets a pass of its own soon, and not one shared pass
    /// after the other.
    alone: AtomicUsize,
}

impl Sharing {
    /// Whether the next task may take others along.
    fn is_free(&self) -> bool {
        self.alone.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_err()
    }

    /// Says that a pass failed that this many tasks shared with another one.
    fn has_failed(&self, tasks: usize) {
        self.alone.fetch_add(tasks, Ordering::Relaxed);
    }

    /// Waits until no claim is left, but not longer than this.
    pub async fn ended(&self, within: Duration) {
        self.claims.close();
        if tokio::time::timeout(within, self.claims.wait()).await.is_err() {
            tracing::warn!("tasks that shared a pass are not given back yet; they are left to their leases");
        }
        self.claims.reopen();
    }
}

/// The failure of a pass whose tasks are not all ours any more.
pub(super) fn stale() -> TaskFailure {
    TaskFailure::retryable(STALE, "a task beside this one was cancelled, or lost its lease")
}

/// The claims of those that are taken along. If this is dropped before they have ended, they are given back.
pub(super) struct Beside<'a> {
    tools: &'a Tools,
    claimer: &'a Claimer,
    claimed_at: DateTime<Utc>,
    grants: Vec<Grant>,
    /// Tells whoever ends the worker that there are claims.
    counted: Option<TaskTrackerToken>,
    /// The pass ends because a task was taken away, so no text is to blame.
    is_stale: bool,
}

impl<'a> Beside<'a> {
    /// No claims.
    fn none(tools: &'a Tools, claimer: &'a Claimer) -> Beside<'a> {
        Beside { tools, claimer, claimed_at: Utc::now(), grants: Vec::new(), counted: None, is_stale: false }
    }

    /// Claims what a task can take along.
    pub async fn claim(tools: &'a Tools, apply: &Apply<'a>) -> Beside<'a> {
        let (grant, claimer) = (apply.grant, apply.claimer());
        let is_plain = grant.params.as_object().is_some_and(|params| params.is_empty());
        let is_alike = is_plain && grant.root_id.document() == grant.document_id;
        if !is_alike || !apply.may_take_along() || !tools.sharing.is_free() {
            return Beside::none(tools, claimer);
        }
        let claimed_at = Utc::now();
        let grants = apply.claim_beside((MOST, MOST_BYTES)).await.unwrap_or_else(|error| {
            // What is really wrong meets the task itself too.
            tracing::debug!(%error, "no tasks could be claimed beside this one");
            Vec::new()
        });
        let counted = (!grants.is_empty()).then(|| tools.sharing.claims.token());
        Beside { tools, claimer, claimed_at, grants, counted, is_stale: false }
    }

    pub fn grants(&self) -> &[Grant] {
        &self.grants
    }

    pub fn claimed_at(&self) -> DateTime<Utc> {
        self.claimed_at
    }

    fn tokens(&self) -> Vec<Uuid> {
        self.grants.iter().map(|grant| grant.token).collect()
    }

    /// Keeps the leases for as long as it is polled, because the worker's heart does not know of these claims. It ends with the failure of the pass once
    /// somebody wants the end of a task, or has it.
    pub async fn kept(&self) -> TaskFailure {
        let tokens = self.tokens();
        if tokens.is_empty() {
            return std::future::pending().await;
        }
        let lease = self.claimer.lease;
        let mut extended = Instant::now();
        loop {
            tokio::time::sleep(LONGEST_STEP.min(lease / 3)).await;
            let is_due = extended.elapsed() >= lease / 4;
            let are_held = async {
                let mut conn = self.tools.pool.acquire().await?;
                if !is_due {
                    return store::leases::are_held(&mut conn, &tokens).await;
                }
                let held = store::leases::beat(&mut conn, &tokens, lease).await?;
                Ok(held.len() == tokens.len() && held.iter().all(|(_, is_cancelled)| !is_cancelled))
            };
            match are_held.await {
                Ok(true) if is_due => extended = Instant::now(),
                Ok(true) => {}
                Ok(false) => return stale(),
                Err(error) => tracing::debug!(%error, "the leases of a shared pass could not be kept"),
            }
        }
    }

    /// Gives the claims back because their pass failed, and goes on without any.
    pub fn given_up(mut self, failure: &TaskFailure) -> Beside<'a> {
        let tasks = self.grants.len();
        tracing::info!(tasks, error = %failure, "a shared pass failed; its documents are embedded one by one");
        self.is_stale = failure.code == STALE;
        Beside::none(self.tools, self.claimer)
    }

    /// Says that they have ended with the task that took them along.
    pub fn have_ended(mut self) {
        let ended = std::mem::take(&mut self.grants);
        if ended.is_empty() {
            return;
        }
        let outcome = words::attempt_outcome(&Outcome::Completed).as_str();
        for grant in &ended {
            trace(grant, &self.claimer.worker_id).end([Attribute::new("task.outcome", outcome)], None);
        }
        let count = ended.len() as u64;
        metrics::counter!(telemetry::CLAIMED).increment(count);
        metrics::counter!(telemetry::TASKS_ENDED, "task_type" => EMBED.name, "outcome" => outcome).increment(count);
        // Anything may have waited for their regions.
        self.tools.wake.notify(Lanes::ALL);
    }
}

impl Drop for Beside<'_> {
    fn drop(&mut self) {
        let (tokens, counted) = (self.tokens(), self.counted.take());
        if !self.is_stale {
            self.tools.sharing.has_failed(tokens.len());
        }
        // Outside a runtime they are left to their leases.
        let (false, Ok(runtime)) = (tokens.is_empty(), Handle::try_current()) else { return };
        let tools = self.tools.clone();
        let give_back = async move {
            if let Err(error) = held::give_back(&tools, &tokens).await {
                tracing::warn!(%error, "tasks that shared a pass could not be given back; they are left to their leases");
            }
            tools.wake.notify(Lanes::of(Lane::Model));
            drop(counted);
        };
        self.tools.settling.spawn_on(give_back, &runtime);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_shared_pass_failed_as_many_tasks_as_it_had_take_none_along() {
        let sharing = Sharing::default();
        assert!(sharing.is_free() && sharing.is_free());
        sharing.has_failed(2);
        assert_eq!([(); 4].map(|()| sharing.is_free()), [false, false, true, true]);
    }

    #[tokio::test]
    async fn who_ends_a_worker_waits_for_what_is_taken_along_but_not_for_ever() {
        let sharing = Sharing::default();
        sharing.ended(Duration::MAX).await;
        let counted = sharing.claims.token();
        sharing.ended(Duration::from_millis(1)).await;
        drop(counted);
        sharing.ended(Duration::MAX).await;
    }
}
