//! The bulk feed: takes files from a queue of a message broker (AMQP 0-9-1), and tells there what became of them, and what else happens.
//!
//! A message is acknowledged after the commit that stores its file, never before. Whatever ends in between, a process, the broker or the
//! database, brings the message again; its id then finds the outcome of the first time. docs/feed.md has the contract.
pub mod broker;
mod consumer;
pub mod dead;
mod events;
mod figures;
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
pub use source::open_beneath;
use std::{sync::Arc, time::Duration};
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
        let Err(error) = connected(&service, &mut pause, &mut one_by_one).await else { break };
        one_by_one |= matches!(error, BrokerError::Unreadable);
        tracing::warn!(%error, "the bulk feed has no broker and tries again");
        note(&service, Err(error.to_string()));
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = service.ending.cancelled() => return,
        }
        pause = (pause * 2).min(LATEST);
    }
}

/// Serves one connection to its end, which is an error unless the service ends.
async fn connected(service: &Arc<Service>, pause: &mut Duration, one_by_one: &mut bool) -> Result<(), BrokerError> {
    let broker = Broker::connect(&service.settings).await?;
    broker.declare().await?;
    *pause = SOONEST;
    note(service, Ok(Work::Takes));
    tracing::info!("the bulk feed takes messages");
    let ended = tokio::select! {
        ended = consumer::consume(service, &broker, one_by_one) => ended,
        error = broker.watch() => Err(error),
        error = outcomes::tell(service, &broker) => Err(error),
        error = events::publish(service, &broker) => Err(error),
        error = figures::tell(service, &broker) => Err(error),
    };
    broker.forget_ready();
    broker.close().await;
    ended
}
