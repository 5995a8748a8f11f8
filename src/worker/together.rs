//! What a process that asks by batches does for many tasks at once, beside its actors, which do the rest one by one.
use super::Role;
use crate::{
    ingest::{Tools, held, tasks::together},
    store::{self, leases::Held, tasks::Claimer},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use svc_actors::{Grant, Lane, Lanes};
use svc_ids::TaskId;
use tokio_util::task::TaskTracker;
use tracing::instrument::WithSubscriber;
use uuid::Uuid;

/// How many tasks are claimed at once to be asked of. A process that is killed meanwhile leaves them to their leases.
const ASKED: usize = 100;
/// The most tasks that are held, because they have to be asked of one by one, until the others have been asked of.
const HELD: usize = 500;

/// How long tasks are asked of before what is held is given back. The heart knows none of these claims and gives back those that are old
/// ([`unheard_after`](super::heart::unheard_after)): a task that it gave back while it was asked of is not parked, and its question was made in vain. So the
/// last group begins while it has time to end before the first claims are that old.
fn time_to_ask(lease: Duration) -> Duration {
    lease / 4
}

/// Asks and applies for many tasks at once. What goes wrong is logged, and left to the actors.
#[derive(Clone)]
pub struct Together {
    tools: Tools,
    claimer: Claimer,
    /// The work under way, which goes on if whoever waits for it goes away.
    work: TaskTracker,
    stops: Arc<AtomicBool>,
}

impl Together {
    pub fn new(role: &Role, tools: Tools) -> Together {
        Together { claimer: role.claimer(), tools, work: TaskTracker::new(), stops: Arc::default() }
    }

    /// Applies the answers of the batches that have ended.
    pub async fn apply(&self) {
        let this = self.clone();
        let work = async move {
            if let Err(error) = this.apply_all().await {
                tracing::warn!(error = %error, "the answers of batches cannot be applied together; they are applied one by one");
            }
        };
        // What panics has committed nothing, and the actors do it.
        let _ = self.work.spawn(work.with_current_subscriber()).await;
    }

    async fn apply_all(&self) -> sqlx::Result<()> {
        let Some(batching) = &self.tools.batching else { return Ok(()) };
        let _applying = batching.applying();
        together::apply(&self.tools, &self.claimer.worker_id, &self.stops).await
    }

    /// Puts the questions of the tasks that wait into batches. Returns false if those that wait now have to be asked of one by one.
    pub async fn ask(&self) -> bool {
        let this = self.clone();
        let work = async move {
            let (mut held, mut unasked) = (Vec::new(), Vec::new());
            let asked = this.ask_all(&mut held, &mut unasked).await;
            let given_back = this.give_back(&[held.as_slice(), &unasked].concat()).await;
            if let Err(error) = asked.and(given_back) {
                tracing::warn!(error = %error, "tasks cannot be put into batches together; they are put there one by one");
            }
            held.is_empty()
        };
        self.work.spawn(work.with_current_subscriber()).await.unwrap_or(false)
    }

    /// Asks of what waits, a group at a time. What has to be asked of alone is held meanwhile, and what was claimed too many stays unasked.
    async fn ask_all(&self, held: &mut Vec<Uuid>, unasked: &mut Vec<Uuid>) -> sqlx::Result<()> {
        let begun = Instant::now();
        let mut claimed = self.claim().await?;
        while !claimed.is_empty() {
            let tokens: Vec<(TaskId, Uuid)> = claimed.iter().map(|grant| (grant.task_id, grant.token)).collect();
            // While these are asked of, the database claims the next ones.
            let (asked, next) =
                tokio::join!(together::ask(&self.tools, &self.claimer.worker_id, claimed), self.claim());
            held.extend(tokens.iter().filter(|(id, _)| !asked.contains(id)).map(|(_, token)| *token));
            claimed = next?;
            let has_time = held.len() < HELD && begun.elapsed() < time_to_ask(self.claimer.lease);
            let goes_on = has_time && !self.stops.load(Ordering::Relaxed);
            // Nothing else tells of a cancel until they are given back.
            let ended = if goes_on { self.end_cancelled(held).await } else { Ok(()) };
            if !goes_on || ended.is_err() {
                unasked.extend(claimed.iter().map(|grant| grant.token));
                return ended;
            }
            if claimed.is_empty() && !asked.is_empty() {
                // What is in a batch may have made room for others.
                claimed = self.claim().await?;
            }
        }
        Ok(())
    }

    async fn claim(&self) -> sqlx::Result<Vec<Grant>> {
        let want = [(Lane::Llm, ASKED)];
        let claimed = self.tools.kept.run(async |conn| store::tasks::claim(conn, &self.claimer, &want).await).await?;
        Ok(claimed.grants)
    }

    async fn give_back(&self, held: &[Uuid]) -> sqlx::Result<()> {
        if held.is_empty() {
            return Ok(());
        }
        held::give_back(&self.tools, held).await?;
        self.tools.wake.notify(Lanes::of(Lane::Llm));
        Ok(())
    }

    /// Ends those of these claims of which somebody wants the end.
    async fn end_cancelled(&self, held: &[Uuid]) -> sqlx::Result<()> {
        if held.is_empty() {
            return Ok(());
        }
        let mut conn = self.tools.pool.acquire().await?;
        let cancelled = store::leases::cancelled(&mut conn, held).await?;
        drop(conn);
        self.end(&cancelled).await
    }

    async fn end(&self, cancelled: &[Held]) -> sqlx::Result<()> {
        let tools = &self.tools;
        held::end(tools, &tools.types, cancelled).await
    }

    /// Begins nothing new, and waits for what is under way.
    pub async fn stop(&self) {
        self.stops.store(true, Ordering::Relaxed);
        self.work.close();
        self.work.wait().await;
    }
}

#[cfg(test)]
mod tests {
    use super::{super::heart, *};

    #[test]
    fn what_is_asked_of_together_is_over_before_the_heart_takes_it_for_unheard() {
        for lease in [6, 60, 300].map(Duration::from_secs) {
            let (asks, unheard) = (time_to_ask(lease), heart::unheard_after(lease));
            assert!(asks + lease / 20 < unheard, "{asks:?} leaves the last group no time before {unheard:?}");
        }
    }
}
