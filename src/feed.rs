//! The bulk feed: takes files from a queue of a message broker (AMQP 0-9-1), and tells there what became of them, and what else happens.
//!
//! A message is acknowledged after the commit that stores its file, never before. Whatever ends in between, a process, the broker or the
//! database, brings the message again; its id then finds the outcome of the first time. docs/feed.md has the contract.
pub mod broker;
mod consumer;
pub mod dead;
mod events;
mod figures;
mod levels;
pub mod message;
mod outcomes;
pub mod producer;
mod source;
mod turn;

use crate::{
    sampler::feed::{State, Work},
    service::Service,
    telemetry,
};
use broker::{Broker, BrokerError};
use futures_util::FutureExt;
pub use source::open_beneath;
use std::{panic::AssertUnwindSafe, sync::Arc, time::Duration};
use tokio::task::JoinHandle;

/// The time between two tries to reach the broker, first and later.
const SOONEST: Duration = Duration::from_millis(250);
const LATEST: Duration = Duration::from_secs(15);

/// Serves the feed until the service ends; `None` if the settings name no broker. Requests wait for it at the end of the process, because
/// what it is storing is one.
pub fn start(service: &Arc<Service>) -> Option<JoinHandle<()>> {
    if service.settings.amqp_url.is_blank() {
        return None;
    }
    note(service, Err("the broker has not been reached yet".to_owned()));
    Some(service.requests.spawn(serve(service.clone())))
}

/// Notes how the feed is, for those who look and for the metrics.
fn note(service: &Service, state: State) {
    metrics::gauge!(telemetry::FEED_CONNECTED).set(if state.is_ok() { 1.0 } else { 0.0 });
    service.sampler.feed.note(state);
}

/// Serves one connection after another.
async fn serve(service: Arc<Service>) {
    let mut pause = SOONEST;
    let mut one_by_one = false;
    while !service.ending.is_cancelled() {
        // It heeds the end of the service itself, because it must not leave half done what it has taken.
        let Err(ended) = guarded(Box::pin(connected(&service, &mut pause, &mut one_by_one))).await else { break };
        one_by_one |= ended.is_by_a_message();
        tracing::warn!(error = %ended, "the bulk feed has no broker and tries again");
        note(&service, Err(ended.to_string()));
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = service.ending.cancelled() => return,
        }
        pause = (pause * 2).min(LATEST);
    }
}

/// Why a connection is served no longer.
#[derive(Debug, thiserror::Error)]
enum Ended {
    #[error(transparent)]
    Broker(#[from] BrokerError),
    #[error("a defect ended the feed's connection; the log of this process has it as a panic")]
    Panic,
}

impl Ended {
    /// Whether a message may have ended it, and the next one has to be taken alone.
    fn is_by_a_message(&self) -> bool {
        match self {
            Ended::Broker(error) => error.ended_by_a_message(),
            Ended::Panic => true,
        }
    }
}

/// Serves a connection so that a panic ends only this connection: the broker gives what was in hand again.
async fn guarded(connection: impl Future<Output = Result<(), BrokerError>>) -> Result<(), Ended> {
    match AssertUnwindSafe(connection).catch_unwind().await {
        Ok(ended) => Ok(ended?),
        Err(_) => Err(Ended::Panic),
    }
}

/// Serves one connection to its end, which is an error unless the service ends.
async fn connected(service: &Arc<Service>, pause: &mut Duration, one_by_one: &mut bool) -> Result<(), BrokerError> {
    let broker = Broker::connect(&service.settings).await?;
    broker.declare().await?;
    *pause = SOONEST;
    note(service, Ok(Work::Takes));
    tracing::info!("the bulk feed takes messages");
    // Each is boxed: together they would take the better part of a thread's stack.
    let ended = tokio::select! {
        ended = Box::pin(consumer::consume(service, &broker, one_by_one)) => ended,
        error = broker.watch() => Err(error),
        error = Box::pin(outcomes::tell(service, &broker)) => Err(error),
        error = Box::pin(events::publish(service, &broker)) => Err(error),
        error = Box::pin(figures::tell(service, &broker)) => Err(error),
    };
    broker.forget_ready();
    broker.close().await;
    ended
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_ends_one_connection_and_has_the_next_one_take_messages_one_by_one() {
        let ended = guarded(async { panic!("a message that nobody thought of") }).await.expect_err("a panic is no end");
        assert!(ended.is_by_a_message(), "{ended}");
        guarded(async { Ok(()) }).await.expect("the service ends");
    }
}
