//! Edits of a subtree that find a task at work there: what has not begun waits for them, and they wait a bounded time for what has.
use super::super::admin::announce_cancel;
use crate::{
    access::Caller,
    error::OrFail,
    ingest::held,
    service::Service,
    store::{self, leases::Held},
};
use serde_json::Value;
use std::time::{Duration, Instant};
use svc_actors::Lanes;
use svc_client::{Code, Failure};
use svc_ids::DocumentId;

/// How long tasks that have not begun stand back after the last look, so that they go on by themselves whatever becomes of the edit.
const STAND_BACK: Duration = Duration::from_secs(2);
/// The shortest time between two looks at the region.
const STEP: Duration = Duration::from_millis(50);
/// How often a move is tried again. A task may work at its new place, where this does not look.
const TRIES: u32 = 5;
/// How often an edit gives way to others that change the same at once, before its caller is told.
const GIVES_WAY: u32 = 5;

/// The claim of one edit to go before the tasks at and under a node.
pub(super) struct Precedence {
    id: DocumentId,
    /// The edit takes what the tasks work for, so it may end them.
    ends_tasks: bool,
    begun: Instant,
    /// How often the edit may be tried again.
    tries: u32,
    /// How often it may still give way.
    gives_way: u32,
}

impl Precedence {
    pub fn of_delete(id: DocumentId) -> Precedence {
        Precedence { id, ends_tasks: true, begun: Instant::now(), tries: u32::MAX, gives_way: GIVES_WAY }
    }

    pub fn of_move(id: DocumentId) -> Precedence {
        Precedence { id, ends_tasks: false, begun: Instant::now(), tries: TRIES, gives_way: GIVES_WAY }
    }

    /// Waits until no task holds anything at or under the node, if an edit failed because one does. An edit that gave way to another one is
    /// tried again at once: it waits for the other one where the two met. An error says that the edit is not to be tried again, and why.
    pub async fn after(&mut self, service: &Service, caller: &Caller, failure: Failure) -> Result<(), Failure> {
        if gave_way(&failure) && self.gives_way > 0 {
            self.gives_way -= 1;
            return Ok(());
        }
        let is_held = failure.code == Code::Conflict && failure.members.contains_key("task_id");
        if !is_held || self.tries == 0 {
            return Err(failure);
        }
        // While it waits, others have work to do; where too many wait already, it is refused as if it had waited.
        let Ok(waiting) = service.admission.waiting(caller.principal_id()) else { return Err(failure) };
        self.tries -= 1;
        let free = self.until_free(service, caller, failure);
        match self.ends_tasks {
            // What has ended tasks takes the document too, whatever its client does.
            true => waiting.carry_out(free).await,
            false => waiting.until(free).await,
        }
    }

    async fn until_free(&self, service: &Service, caller: &Caller, failure: Failure) -> Result<(), Failure> {
        loop {
            if self.begun.elapsed() >= service.waits.longest {
                return Err(failure);
            }
            let begun = Instant::now();
            let mut tx = store::transaction::begin(&service.pool).await.or_fail()?;
            let place = caller.writes(&mut tx, self.id).await.or_fail()??;
            let stopping = match self.ends_tasks && self.begun.elapsed() >= service.waits.grace {
                true => store::reservations::cancel_held_within(&mut tx, &place).await.or_fail()?,
                false => 0,
            };
            // Whoever may not change what a task above works on does not hold it up either.
            let above = store::places::above(&mut tx, &caller.writable(), &place).await.or_fail()?;
            store::reservations::put_off_waiting(&mut tx, &place, &above, STAND_BACK).await.or_fail()?;
            let is_free = !store::reservations::is_worked_on(&mut tx, &place.children_path()).await.or_fail()?;
            let not_let_go = match self.ends_tasks && !is_free {
                true => store::reservations::not_let_go(&mut tx, &place, service.waits.let_go).await.or_fail()?,
                false => Vec::new(),
            };
            tx.commit().await.or_fail()?;
            announce_cancel(service, stopping).await;
            if is_free {
                return Ok(());
            }
            if !not_let_go.is_empty() {
                self.end(service, &not_let_go, &failure).await?;
                continue;
            }
            tokio::select! {
                () = tokio::time::sleep(rest(begun.elapsed())) => {}
                () = service.ending.cancelled() => return Err(failure),
            }
        }
    }

    /// Ends tasks as if their leases had expired. A worker that stands still may have the rows of one locked, for which this waits as long as the
    /// edit may wait.
    async fn end(&self, service: &Service, tasks: &[Held], failure: &Failure) -> Result<(), Failure> {
        let left = service.waits.longest.saturating_sub(self.begun.elapsed());
        let ended = held::end(service, &service.task_types, tasks);
        let ended = tokio::time::timeout(left, ended).await;
        // Others may have waited for their regions.
        service.wake.notify(Lanes::ALL);
        match ended {
            Ok(ended) => ended.or_fail(),
            Err(_) => Err(failure.clone()),
        }
    }
}

/// Whether an edit failed only because somebody changed the same at that moment: the answer would tell its caller to try again after a second.
fn gave_way(failure: &Failure) -> bool {
    failure.code == Code::Unavailable && failure.members.get("retry_after").and_then(Value::as_u64) == Some(1)
}

/// How long an edit rests after a look that took this long. A look walks the whole region, so that a large one is looked at less often, but before
/// the tasks that stand back begin: a look leaves each of them at least half of the time, and the next look takes as long as this one.
fn rest(look: Duration) -> Duration {
    let left = (STAND_BACK / 2).saturating_sub(look);
    (look * 4).min(STAND_BACK / 4).min(left).max(STEP)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_look_at_a_large_region_is_followed_by_a_longer_rest_that_lets_no_task_begin() {
        for milliseconds in [0, 1, 40, 100, 400, 700, 900, 8000] {
            let look = Duration::from_millis(milliseconds);
            let rest = rest(look);
            assert!(rest >= STEP && (rest == STEP || rest + look <= STAND_BACK / 2), "{rest:?} after {look:?}");
            assert!(look > Duration::from_millis(100) || rest >= look * 4, "{rest:?} after {look:?}");
        }
    }
}
