//! Builds indexes: what a move, a change of members or another analyzer left to be built, one process of the fleet builds.
use crate::{
    core::Core,
    search::bm25,
    store::{
        advisory::AdvisoryLock,
        event_feed,
        indexes::manage::{self, Building},
    },
};
use std::{collections::HashSet, time::Duration};
use svc_ids::IndexId;
use tokio::task::JoinHandle;

/// The time between two looks for something to build. Until it is built, searches miss what a move brought.
const PAUSE: Duration = Duration::from_secs(1);
/// The pause after a build that broke off, because its reason may last.
const RETRY: Duration = Duration::from_secs(30);
/// How many batches of an index are built before the next one has its turn.
const BATCHES: usize = 100;

/// Builds indexes whenever there is something to build, until it is aborted.
pub fn start(core: Core) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut seen = Vec::new();
        loop {
            let pause = build(&core, &mut seen).await.unwrap_or_else(|error| {
                tracing::debug!(%error, "indexes wait while the database is away");
                PAUSE
            });
            tokio::time::sleep(pause).await;
        }
    })
}

/// Builds the indexes that nobody builds, which are those that are where the last look saw them. Returns the pause before the next look.
async fn build(core: &Core, seen: &mut Vec<(IndexId, Building)>) -> sqlx::Result<Duration> {
    let unbuilt = manage::unbuilt(&mut *core.pool.acquire().await?).await?;
    let mut left: HashSet<IndexId> = unbuilt.iter().filter(|now| seen.contains(now)).map(|(id, _)| *id).collect();
    *seen = unbuilt;
    if left.is_empty() {
        return Ok(PAUSE);
    }
    // Two that build the same would read each document for nothing.
    let Some(mut alone) = event_feed::alone(&core.pool, AdvisoryLock::Indexes).await? else { return Ok(PAUSE) };
    let mut broken = HashSet::new();
    while !left.is_empty() {
        for index in &left {
            if let Err(error) = bm25::build(core, *index, BATCHES).await {
                // The others need not wait for what fails.
                tracing::warn!(index.id = index.0, %error, "the build of an index broke off; it goes on soon");
                broken.insert(*index);
            }
        }
        let unbuilt = manage::unbuilt(&mut alone).await?;
        let is_ours = |now: &&(IndexId, Building)| left.contains(&now.0) || seen.contains(now);
        left = unbuilt.iter().filter(is_ours).map(|(id, _)| *id).filter(|id| !broken.contains(id)).collect();
        *seen = unbuilt;
    }
    Ok(if broken.is_empty() { PAUSE } else { RETRY })
}
