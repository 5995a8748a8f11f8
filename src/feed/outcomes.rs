//! Tells what became of messages: one process of the fleet reads the events in their order, publishes those of messages, and moves on when
//! the broker has them. If it dies in between, an outcome is told twice. Only a queue that is full, and refuses what it has no room for,
//! misses an outcome: the queue of one producer must not hold up what all the others are told.
use super::{
    broker::{Broker, BrokerError, Sent},
    turn::{Lost, PAUSE},
};
use crate::{
    service::Service,
    store::{
        advisory::{self, AdvisoryLock, SILENCE, within},
        bulk::{self, Outcome, Receipt, Told},
        event_feed,
    },
};
use lapin::BasicProperties;
use serde_json::{Map, Value, json};
use std::{collections::VecDeque, sync::Arc};
use svc_client::wire::EventKind;

/// How many events are read at once.
const PAGE: i64 = 500;
/// How many messages are sent before the first of them is confirmed.
const UNCONFIRMED: usize = 64;
/// The facts of an event that a producer is told.
const FACTS: &[&str] =
    &["code", "detail", "remedy", "linked", "nodes", "nodes_failed", "seconds", "task_type", "error_type"];

/// Tells outcomes until the broker cannot be used.
pub(super) async fn tell(service: &Arc<Service>, broker: &Broker) -> BrokerError {
    loop {
        match turn(service, broker).await {
            Ok(()) => {}
            Err(Lost::Broker(error)) => return error,
            Err(Lost::Database(error)) => tracing::debug!(%error, "outcomes wait while the database is away"),
        }
        tokio::time::sleep(PAUSE).await;
    }
}

/// Tells for as long as this process is the one and has its connection.
async fn turn(service: &Service, broker: &Broker) -> Result<(), Lost> {
    let ours = within(SILENCE, advisory::alone(&service.task_pool, AdvisoryLock::Outcomes)).await?;
    let Some(mut conn) = ours else { return Ok(()) };
    loop {
        let events = within(SILENCE, bulk::untold(&mut conn, PAGE)).await?;
        let Some(last) = events.last().map(|event| event.seq) else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let is_full = events.len() as i64 >= PAGE;
        // A producer is told what became of its message in the order in which it happened.
        let mut unconfirmed: VecDeque<Sent> = VecDeque::new();
        for event in events.into_iter().filter(|event| event.kind.is_some()) {
            let (word, outcome) = outcome(&event);
            let sent = send(broker, word, &outcome, event.reply_to.as_deref(), event.correlation_id.as_deref()).await;
            unconfirmed.extend(sent.map_err(Lost::Broker)?);
            while unconfirmed.len() >= UNCONFIRMED
                && let Some(oldest) = unconfirmed.pop_front()
            {
                arrived(oldest).await.map_err(Lost::Broker)?;
            }
        }
        for rest in unconfirmed {
            arrived(rest).await.map_err(Lost::Broker)?;
        }
        within(SILENCE, event_feed::moved(&mut conn, bulk::READER, last)).await?;
        if !is_full {
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// The last word of a key.
fn word(kind: Option<EventKind>) -> &'static str {
    match kind {
        Some(EventKind::IngestDuplicate) => "duplicate",
        Some(EventKind::IngestSettled) => "settled",
        Some(EventKind::IngestFailed) => "failed",
        Some(EventKind::IngestCancelled | EventKind::DocumentDeleted) => "cancelled",
        Some(EventKind::FeedDead) => "rejected",
        _ => "accepted",
    }
}

/// What a producer is told of the data of an event.
fn facts(data: &Value) -> Map<String, Value> {
    let facts = FACTS.iter().filter_map(|name| Some(((*name).to_owned(), data.get(*name)?.clone())));
    facts.filter(|(_, value)| !value.is_null()).collect()
}

/// The last word of a key, and what is told.
fn outcome(event: &Told) -> (&'static str, Value) {
    let kind = event.kind.as_ref().map(|kind| kind.0);
    let (word, mut told) = (word(kind), facts(&event.data));
    if kind == Some(EventKind::DocumentDeleted) {
        told.insert("detail".to_owned(), json!("the file was deleted before it was ingested"));
    }
    told.extend([
        ("v".to_owned(), json!(1)),
        ("message_id".to_owned(), json!(event.message_id)),
        ("outcome".to_owned(), json!(word)),
        ("document_id".to_owned(), json!(event.document_id)),
        ("sha256".to_owned(), json!(event.sha256)),
        ("at".to_owned(), json!(event.at)),
    ]);
    (word, told.into())
}

/// Tells the producer of a message that came again what became of it the first time, and how its ingestion ended. An end that is still to come is
/// told where this delivery says.
///
/// The outcome of the delivery that was stored is told by the mark that is stored, perhaps not yet, so the delivery that takes the place of that mark has
/// it told first.
pub(super) async fn again(service: &Service, broker: &Broker, receipt: &Receipt, known: &Outcome) -> Result<(), Lost> {
    let (reply_to, mark) = (receipt.reply_to.as_deref(), receipt.correlation_id.as_deref());
    let (before, mark_before) = (known.reply_to.as_deref(), known.correlation_id.as_deref());
    let takes_place = known.outcome == "accepted" && reply_to.is_some() && (before, mark_before) != (reply_to, mark);
    if let Some(before) = before.filter(|_| takes_place) {
        let told = outcome_again(receipt, known, &known.outcome, Map::new());
        arrived(reply(broker, before, &told, mark_before).await.map_err(Lost::Broker)?).await.map_err(Lost::Broker)?;
    }
    let end = match known.document_id.filter(|_| known.outcome == "accepted") {
        Some(id) => bulk::follow(&mut *service.pool.acquire().await?, receipt, id).await?,
        None => None,
    };
    let end = end.map(|end| {
        let (kind, mut told) = (end.kind.0, facts(&end.data));
        if kind == EventKind::DocumentDeleted {
            told.insert("detail".to_owned(), json!("the file was deleted meanwhile"));
        }
        (word(Some(kind)), told)
    });
    for (word, told) in std::iter::once((known.outcome.as_str(), Map::new())).chain(end) {
        let told = outcome_again(receipt, known, word, told);
        for sent in send(broker, word, &told, reply_to, mark).await.map_err(Lost::Broker)? {
            arrived(sent).await.map_err(Lost::Broker)?;
        }
    }
    Ok(())
}

/// What is told of a message that came again.
fn outcome_again(receipt: &Receipt, known: &Outcome, word: &str, mut told: Map<String, Value>) -> Value {
    told.extend([
        ("v".to_owned(), json!(1)),
        ("message_id".to_owned(), json!(receipt.message_id)),
        ("outcome".to_owned(), json!(word)),
        ("document_id".to_owned(), json!(known.document_id.map(|id| id.0))),
        ("sha256".to_owned(), json!(known.sha256)),
        ("again".to_owned(), json!(true)),
    ]);
    told.into()
}

/// Returns when the broker has an outcome, or when a full queue has refused it.
async fn arrived(sent: Sent) -> Result<(), BrokerError> {
    let to = sent.to.clone();
    match sent.confirmed().await {
        Err(BrokerError::Refused(reason)) => {
            tracing::warn!(to, reason, "an outcome is not told where there is no room for it");
            Ok(())
        }
        confirmed => confirmed,
    }
}

/// Sends an outcome to all who listen, and to its producer.
async fn send(
    broker: &Broker,
    word: &str,
    outcome: &Value,
    reply_to: Option<&str>,
    correlation_id: Option<&str>,
) -> Result<Vec<Sent>, BrokerError> {
    let (events, key) = (broker.name("events"), format!("result.{word}"));
    // Nobody needs to listen.
    let to_all = broker.send(&events, &key, outcome.to_string().as_bytes(), properties(correlation_id), false).await?;
    let mut sent = vec![to_all];
    if let Some(queue) = reply_to {
        sent.push(reply(broker, queue, outcome, correlation_id).await?);
    }
    Ok(sent)
}

/// Sends an outcome to its producer alone.
async fn reply(
    broker: &Broker,
    queue: &str,
    outcome: &Value,
    correlation_id: Option<&str>,
) -> Result<Sent, BrokerError> {
    broker.send("", queue, outcome.to_string().as_bytes(), properties(correlation_id), false).await
}

fn properties(correlation_id: Option<&str>) -> BasicProperties {
    let properties = BasicProperties::default()
        .with_content_type("application/json".into())
        .with_type("svc.result.v1".into())
        .with_delivery_mode(2);
    match correlation_id {
        Some(id) => properties.with_correlation_id(id.into()),
        None => properties,
    }
}
