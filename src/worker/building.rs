//! Builds indexes: what a move, a change of members or another analyzer left to be built, one process of the fleet builds.
use crate::{
    core::Core,
    search::bm25,
    store::{
        advisory::{self, AdvisoryLock},
        indexes::manage::{self, Building},
    },
};
use std::{
    collections::{HashMap, HashSet},
    time::{Duration, Instant},
};
use svc_ids::IndexId;
use tokio::task::JoinHandle;

/// The time between two looks for something to build. Until it is built, searches miss what a move brought.
const PAUSE: Duration = Duration::from_secs(1);
/// How long an index whose build broke off is left alone, because the reason may last.
const RETRY: Duration = Duration::from_secs(30);
/// How many batches of an index are built before the next one has its turn.
const BATCHES: usize = 100;

/// What earlier looks saw.
#[derive(Default)]
struct Seen {
    /// Where the builds were at the last look.
    unbuilt: Vec<(IndexId, Building)>,
    /// The indexes whose builds broke off, and when.
    broken: HashMap<IndexId, Instant>,
}

/// Builds indexes whenever there is something to build, until it is aborted.
pub fn start(core: Core) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut seen = Seen::default();
        loop {
            if let Err(error) = build(&core, &mut seen).await {
                tracing::debug!(%error, "indexes wait while the database is away");
            }
            tokio::time::sleep(PAUSE).await;
        }
    })
}

/// Builds the indexes that nobody builds, which are those that are where the last look saw them.
async fn build(core: &Core, seen: &mut Seen) -> sqlx::Result<()> {
    seen.broken.retain(|_, since| since.elapsed() < RETRY);
    let unbuilt = manage::unbuilt(&mut *core.pool.acquire().await?).await?;
    let is_left = |now: &&(IndexId, Building)| seen.unbuilt.contains(now) && !seen.broken.contains_key(&now.0);
    let mut left: HashSet<IndexId> = unbuilt.iter().filter(is_left).map(|(id, _)| *id).collect();
    seen.unbuilt = unbuilt;
    if left.is_empty() {
        return Ok(());
    }
    // Two that build the same would read each document for nothing.
    let Some(mut alone) = advisory::alone(&core.pool, AdvisoryLock::Indexes).await? else { return Ok(()) };
    while !left.is_empty() {
        for index in &left {
            if let Err(error) = bm25::build(core, *index, BATCHES).await {
                // The others need not wait for what fails.
                tracing::warn!(index.id = index.0, %error, "the build of an index broke off; it goes on soon");
                seen.broken.insert(*index, Instant::now());
            }
        }
        let unbuilt = manage::unbuilt(&mut alone).await?;
        let is_ours = |now: &&(IndexId, Building)| left.contains(&now.0) || seen.unbuilt.contains(now);
        let ours = unbuilt.iter().filter(is_ours).map(|(id, _)| *id);
        left = ours.filter(|id| !seen.broken.contains_key(id)).collect();
        seen.unbuilt = unbuilt;
    }
    Ok(())
}
