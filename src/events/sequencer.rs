//! Numbers the events of the fleet. A number that an event got in its own transaction would be seen out of order, so
//! one process numbers what is committed. Every process tries to be that one, and another takes over when it is gone.
use crate::store::{
    advisory::{self, AdvisoryLock, SILENCE, within},
    event_feed,
};
use sqlx::PgPool;
use std::time::Duration;
use tokio::task::JoinHandle;

/// The time between two looks for new events. A notification by each writer would make the commits wait for each other.
const PAUSE: Duration = Duration::from_millis(200);
/// The time between two tries to become the one that numbers.
const RETRY: Duration = Duration::from_secs(1);

/// Numbers events whenever this process is the one, until it is aborted.
pub fn start(pool: PgPool) -> JoinHandle<()> {
    start_with(pool, SILENCE)
}

/// Does the same with another time that the database may take for a step.
pub fn start_with(pool: PgPool, silence: Duration) -> JoinHandle<()> {
    tokio::spawn(async move {
        loop {
            if let Err(error) = number(&pool, silence).await {
                tracing::debug!(%error, "not numbering events; another process will, or this one again");
            }
            tokio::time::sleep(RETRY).await;
        }
    })
}

/// Numbers events for as long as this process is the one and has its connection.
async fn number(pool: &PgPool, silence: Duration) -> sqlx::Result<()> {
    let ours = within(silence, advisory::alone(pool, AdvisoryLock::Sequencer)).await?;
    let Some(mut conn) = ours else { return Ok(()) };
    tracing::debug!("this process numbers the events");
    loop {
        if within(silence, event_feed::number(&mut conn)).await? < event_feed::BATCH {
            tokio::time::sleep(PAUSE).await;
        }
    }
}
