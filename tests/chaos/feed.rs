//! A producer of the bulk feed, where there is a broker: what it was told has arrived must have one outcome in the end.
use crate::{
    faults::Fleet,
    support::{TOKEN, broker, http},
};
use lapin::{
    BasicProperties, Channel, Confirmation, Connection, ConnectionProperties,
    options::{BasicPublishOptions, ConfirmSelectOptions},
    types::{AMQPValue, FieldTable},
};
use sha2::{Digest, Sha256};
use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use svc_client::{
    Client, Json, Remote,
    wire::{NewPrincipal, PrincipalChange, PrincipalKind, PrincipalPath},
};

/// What begins the names of the feed.
pub const PREFIX: &str = "chaos";
/// The time between two messages, so that the work neither runs out nor piles up.
const PACE: Duration = Duration::from_millis(150);
/// How long the broker may take.
const ANSWER: Duration = Duration::from_secs(10);

/// Has a principal answer for the user of the broker.
pub async fn answer_for_guest(base: &str) {
    let client = Client(Remote::new(base, TOKEN, http()));
    let new = NewPrincipal { name: "producer".to_owned(), kind: PrincipalKind::Service };
    let id = client.create_principal(Json(new)).await.unwrap().id;
    let change = PrincipalChange { amqp_user: Some("guest".to_owned()), ..PrincipalChange::default() };
    client.update_principal(PrincipalPath { id }, Json(change)).await.unwrap();
}

/// Publishes small files until told to end, each until the broker says that it has it; returns how many. Every fifth comes twice, and every
/// seventh says a wrong hash.
pub async fn publish(address: SocketAddr, done: Arc<AtomicBool>) -> usize {
    let (mut number, mut channel) = (0, None);
    while !done.load(Ordering::SeqCst) {
        for _ in 0..1 + usize::from(number % 5 == 0) {
            while !sent(address, &mut channel, number).await {
                channel = None;
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
        number += 1;
        tokio::time::sleep(PACE).await;
    }
    number
}

/// Whether a message of this number is to be rejected.
pub fn is_wrong(number: usize) -> bool {
    number % 7 == 3
}

async fn sent(address: SocketAddr, open: &mut Option<(Connection, Channel)>, number: usize) -> bool {
    let work = async {
        if open.is_none() {
            let connection = Connection::connect(&broker::url(address), ConnectionProperties::default()).await.ok()?;
            let channel = connection.create_channel().await.ok()?;
            channel.confirm_select(ConfirmSelectOptions::default()).await.ok()?;
            *open = Some((connection, channel));
        }
        let (_, channel) = open.as_ref()?;
        let body = format!("# Message {number}\n\nPlain words about message {number}.\n");
        let said = if is_wrong(number) { "something else" } else { &body };
        let mut headers = FieldTable::default();
        headers.insert("svc-sha256".into(), AMQPValue::LongString(hex::encode(Sha256::digest(said)).into()));
        let properties = BasicProperties::default().with_message_id(format!("m{number}").into()).with_delivery_mode(2);
        let properties = properties.with_user_id("guest".into()).with_headers(headers);
        let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        let sent = channel.basic_publish(PREFIX.into(), "upload.file".into(), options, body.as_bytes(), properties);
        Some(sent.await.ok()?.await.ok()? == Confirmation::Ack(None))
    };
    tokio::time::timeout(ANSWER, work).await.ok().flatten() == Some(true)
}

/// Waits until every message has an outcome, and checks that it is the one that it must have; returns the documents that are of messages.
pub async fn check(pool: &sqlx::PgPool, fleet: &mut Fleet, messages: usize, patience: Duration) -> Vec<i64> {
    let begun = std::time::Instant::now();
    loop {
        fleet.revive();
        let known: Result<i64, _> = sqlx::query_scalar("SELECT count(*) FROM bulk_message").fetch_one(pool).await;
        match known {
            Ok(known) if known as usize >= messages => break,
            _ if begun.elapsed() > patience => {
                panic!("of {messages} messages only {known:?} have an outcome; {}", fleet.database_text().await)
            }
            _ => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    }
    let rows: Vec<(String, String, Option<i64>)> =
        sqlx::query_as("SELECT message_id, outcome, document_id FROM bulk_message").fetch_all(pool).await.unwrap();
    assert_eq!(rows.len(), messages, "one outcome for each message");
    for (id, outcome, _) in &rows {
        let number: usize = id.trim_start_matches('m').parse().unwrap();
        assert_eq!(outcome.as_str(), if is_wrong(number) { "rejected" } else { "accepted" }, "{id}");
    }
    let stored: Vec<i64> = rows.iter().filter_map(|(_, _, id)| *id).collect();
    println!("chaos: {messages} messages of the feed, {} stored, {} rejected", stored.len(), messages - stored.len());
    stored
}
