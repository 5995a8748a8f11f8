//! Builds indexes: what a move, a change of members or another analyzer left to be built, one process of the fleet builds.
use crate::{
    core::Core,
    search::bm25,
    store::{advisory::AdvisoryLock, event_feed, indexes::manage},
};
use std::time::Duration;
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
        loop {
            let pause = build(&core).await.unwrap_or_else(|error| {
                tracing::debug!(%error, "indexes wait while the database is away");
                PAUSE
            });
            tokio::time::sleep(pause).await;
        }
    })
}

/// Builds all indexes that wait, unless another process does. Returns the pause before the next look.
async fn build(core: &Core) -> sqlx::Result<Duration> {
    let mut unbuilt = manage::unbuilt(&mut *core.pool.acquire().await?).await?;
    if unbuilt.is_empty() {
        return Ok(PAUSE);
    }
    // Two that build the same would read each document for nothing.
    let Some(mut alone) = event_feed::alone(&core.pool, AdvisoryLock::Indexes).await? else { return Ok(PAUSE) };
    let mut pause = PAUSE;
    while !unbuilt.is_empty() && pause == PAUSE {
        for index in unbuilt {
            if let Err(error) = bm25::build(core, index, BATCHES).await {
                // The others need not wait for what fails.
                tracing::warn!(index.id = index.0, %error, "the build of an index broke off; it goes on soon");
                pause = RETRY;
            }
        }
        unbuilt = manage::unbuilt(&mut alone).await?;
    }
    Ok(pause)
}
