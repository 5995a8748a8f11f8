//! Settles what nobody else settles. Whoever finds the settler's lock of a file taken leaves its events to the holder; a holder that only kept the settler away
//! does not take them, and one that was killed cannot.
use crate::{core::Core, ingest::settle, store::ingest_nodes};
use std::{collections::HashMap, time::Duration};
use svc_ids::RootId;
use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;

/// The time between two looks for events that nobody takes.
const PAUSE: Duration = Duration::from_secs(1);

/// The oldest event of each root, and how many looks have seen it.
type Seen = HashMap<RootId, (i64, u32)>;

/// Settles whatever is left, until it is aborted. A draining worker waits for the tasks of the tracker.
pub fn start(core: Core, settling: TaskTracker) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut seen = Seen::new();
        loop {
            if let Err(error) = settling.track_future(look(&core, &mut seen)).await {
                tracing::debug!(%error, "what is left to settle waits while the database is away");
            }
            tokio::time::sleep(PAUSE).await;
        }
    })
}

async fn look(core: &Core, seen: &mut Seen) -> sqlx::Result<()> {
    let oldest = ingest_nodes::oldest_events(&mut *core.pool.acquire().await?).await?;
    let left = left(&oldest, seen);
    if !left.is_empty() && settle::settle_all_or_leave(core, &left).await {
        core.wake.notify(settle::QUEUES);
    }
    Ok(())
}

/// How many looks pass at most between two tries of what stays, because somebody holds its file for long, or because it cannot be settled, which the sweep
/// repairs.
const SELDOM: u32 = 8;

/// The roots whose oldest event was there at the last look already, so that nobody is about to take it.
fn left(oldest: &[(RootId, i64)], seen: &mut Seen) -> Vec<RootId> {
    let again = |root_id: &RootId, event: i64| match seen.get(root_id) {
        Some((before, looks)) if *before == event => looks + 1,
        _ => 0,
    };
    *seen = oldest.iter().map(|(root_id, event)| (*root_id, (*event, again(root_id, *event)))).collect();
    let is_left = |root_id: &&RootId| {
        seen.get(root_id)
            .is_some_and(|(_, looks)| looks.is_power_of_two() || *looks > 0 && looks.is_multiple_of(SELDOM))
    };
    oldest.iter().map(|(root_id, _)| root_id).filter(is_left).copied().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_stays_is_settled_and_what_stays_on_more_seldom() {
        let (one, two) = (RootId(1), RootId(2));
        let mut seen = Seen::new();
        assert!(left(&[(one, 10)], &mut seen).is_empty(), "somebody may be about to take it");
        assert_eq!(left(&[(one, 10), (two, 11)], &mut seen), [one]);
        assert_eq!(left(&[(one, 12), (two, 11)], &mut seen), [two], "the other one has another event now");
        assert!(left(&[], &mut seen).is_empty());
        let tried = (0..34).filter(|_| !left(&[(one, 20)], &mut seen).is_empty()).collect::<Vec<i32>>();
        assert_eq!(tried, [1, 2, 4, 8, 16, 24, 32]);
    }
}
