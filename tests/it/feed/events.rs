//! What happens, as it is published to the broker: in order, by the rights of a principal, and whatever is killed.
use super::{Feed, feed};
use crate::{
    crash::{Process, serve_command},
    principals::{grant, someone},
    support::{
        TestApp, Wish,
        broker::{self, Broker, Producer},
        document, until,
    },
};
use futures_util::StreamExt;
use lapin::{
    options::{QueueBindOptions, QueueDeclareOptions, QueueDeleteOptions},
    types::{AMQPValue, FieldTable},
};
use serde_json::Value;
use std::collections::BTreeSet;
use svc_client::{
    Json,
    wire::{DocumentPath, EventQuery, GrantRight, NewDocument, PrincipalChange, PrincipalPath, WaitQuery},
};

/// Every kind, and no outcome.
const KEYS: &[&str] = &["document.#", "ingest.#", "triple.#", "task.#", "worker.#", "queue.#", "webhook.#"];

async fn create(app: &TestApp, title: &str, parent_id: Option<i64>) -> i64 {
    let new = NewDocument { parent_id, ..document(title, "A text about herons.") };
    app.client.create_document(WaitQuery::default(), Json(new)).await.unwrap().document.id
}

/// The next event in a queue, with its key and its id.
async fn next(producer: &Producer, queue: &str) -> (Value, String, String) {
    let message = until("an event", async || producer.get(queue).await).await;
    let id = message.properties.message_id().as_ref().unwrap().to_string();
    (serde_json::from_slice(&message.data).unwrap(), message.routing_key.to_string(), id)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_are_published_in_order_by_the_rights_of_a_principal() {
    let Some(feed) = feed(true, &[("SVC_AMQP_EVENTS_PRINCIPAL", "listener")]).await else { return };
    let Feed { app, producer, .. } = &feed;
    let queue = format!("{}.listener", producer.prefix);
    producer.listen(&queue, KEYS).await;
    let begun = async || -> Option<i64> {
        sqlx::query_scalar("SELECT seq FROM event_reader WHERE name = 'amqp'").fetch_optional(&app.pool).await.unwrap()
    };
    assert_eq!(until("a reader", begun).await, 0);
    // Nobody of this name is there yet. What happens meanwhile waits, so that all of it is read by the rights that there are in the end.
    let open = create(app, "Open", None).await;
    let listener = someone(app, "nobody").await;
    let (closed, shown) = (create(app, "Closed", None).await, create(app, "Shown", None).await);
    for id in [closed, shown] {
        app.client.protect_document(DocumentPath { id }).await.unwrap();
    }
    grant(app, &listener, shown, GrantRight::Read).await;
    let (hidden, seen) = (create(app, "Hidden", Some(closed)).await, create(app, "Seen", Some(shown)).await);
    for id in [hidden, seen, open] {
        app.client.delete_document(DocumentPath { id }).await.unwrap();
    }
    let named = PrincipalChange { name: Some("listener".to_owned()), ..PrincipalChange::default() };
    app.client.update_principal(PrincipalPath { id: listener.id }, Json(named)).await.unwrap();
    // A marker at the end, which everybody may read.
    let last = create(app, "Last", None).await;
    let mut told =
        listener.client.follow_events(EventQuery { since: Some("0".into()), ..EventQuery::default() }).await.unwrap();
    let mut documents = BTreeSet::new();
    loop {
        let expected = told.next().await.unwrap().unwrap();
        let (event, key, id) = next(producer, &queue).await;
        assert_eq!(event, serde_json::to_value(&expected.data).unwrap(), "the broker is told what the principal is");
        assert_eq!((key, id), (expected.name.to_string(), format!("evt_{}", expected.data.seq)));
        documents.insert(expected.data.document_id.unwrap());
        if expected.data.document_id == Some(last) {
            break;
        }
    }
    assert!(documents.contains(&seen) && documents.contains(&open), "{documents:?}");
    assert!(!documents.contains(&closed) && !documents.contains(&hidden), "{documents:?}");

    // While the principal is disabled, nothing is published; after that, what it may read is.
    let disabled = |disabled| PrincipalChange { disabled: Some(disabled), ..PrincipalChange::default() };
    let path = || PrincipalPath { id: listener.id };
    app.client.update_principal(path(), Json(disabled(true))).await.unwrap();
    let meanwhile = create(app, "Meanwhile", None).await;
    until("its number", async || {
        let seq: Option<i64> = sqlx::query_scalar("SELECT seq FROM event_outbox WHERE document_id = $1")
            .bind(meanwhile)
            .fetch_one(&app.pool)
            .await
            .unwrap();
        seq
    })
    .await;
    assert!(producer.get(&queue).await.is_none());
    app.client.update_principal(path(), Json(disabled(false))).await.unwrap();
    assert_eq!(next(producer, &queue).await.0["document_id"], meanwhile);

    // An event that the broker does not take waits, and goes by the rights that there are when it does.
    let full = format!("{}.full", producer.prefix);
    let mut one = FieldTable::default();
    one.insert("x-max-length".into(), AMQPValue::LongInt(1));
    one.insert("x-overflow".into(), AMQPValue::LongString("reject-publish".into()));
    producer.channel.queue_declare(full.as_str().into(), QueueDeclareOptions::default(), one).await.unwrap();
    let (events, table) = (format!("{}.events", producer.prefix), FieldTable::default());
    let options = QueueBindOptions::default();
    producer
        .channel
        .queue_bind(full.as_str().into(), events.into(), "document.#".into(), options, table)
        .await
        .unwrap();
    let until_told = async |id: i64| -> Vec<i64> {
        let mut told = Vec::new();
        while told.last() != Some(&id) {
            told.extend(next(producer, &queue).await.0["document_id"].as_i64());
        }
        told
    };
    create(app, "Fills", None).await;
    let secret = create(app, "Secret", None).await;
    // Other queues get what one of them refuses, again and again.
    until_told(secret).await;
    app.client.protect_document(DocumentPath { id: secret }).await.unwrap();
    let after = create(app, "After", None).await;
    until_told(after).await;
    producer.channel.queue_delete(full.as_str().into(), QueueDeleteOptions::default()).await.unwrap();
    let end = create(app, "End", None).await;
    assert!(!until_told(end).await.contains(&secret));
    producer.channel.queue_delete(queue.as_str().into(), QueueDeleteOptions::default()).await.unwrap();
    feed.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_of_the_broker_and_of_services_lose_no_event_and_keep_their_order() {
    let Some(mut broker) = tokio::task::spawn_blocking(Broker::start).await.unwrap() else { return };
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let (url, prefix) = (broker::url(broker.address), broker::prefix());
    let serve = || {
        let mut command = serve_command(&app);
        command.env("SVC_AMQP_URL", &url).env("SVC_AMQP_PREFIX", &prefix).env("SVC_LOG_LEVEL", "error");
        command.env("SVC_AMQP_EVENTS_PRINCIPAL", "owner");
        Process(command.stdout(std::process::Stdio::null()).spawn().unwrap())
    };
    // Two services, of which one publishes; when it is killed, the other goes on.
    let (mut first, mut second) = (serve(), serve());
    let producer = Producer::connect(&url, &prefix).await;
    let queue = format!("{prefix}.all");
    producer.listen(&queue, KEYS).await;
    drop(producer);
    let position = async || -> i64 {
        let known: Option<i64> = sqlx::query_scalar("SELECT seq FROM event_reader WHERE name = 'amqp'")
            .fetch_optional(&app.pool)
            .await
            .unwrap();
        known.unwrap_or(-1)
    };
    let begun = until("a reader", async || Some(position().await).filter(|at| *at >= 0)).await;
    // Each batch is more than one page, so that a kill meets some that are on their way.
    let mut made = 0;
    let happen = async |many: usize| {
        for _ in 0..many {
            create(&app, "Something", None).await;
        }
    };
    let published =
        async |least: i64| until("events are published", async || (position().await >= least).then_some(())).await;
    for round in 0..4 {
        happen(150).await;
        made += 150;
        // Some of them have been published.
        published(begun + made - 140).await;
        match round {
            0 => {
                first.kill();
                first = serve();
            }
            1 | 2 => {
                broker = tokio::task::spawn_blocking(move || {
                    broker.crash();
                    broker
                })
                .await
                .unwrap();
            }
            _ => {
                second.kill();
                second = serve();
            }
        }
    }
    happen(20).await;
    published(begun + made + 20).await;
    first.kill();
    second.kill();
    let producer = Producer::connect_to_queues(&url, &prefix).await;
    let mut seqs = Vec::new();
    while let Some(message) = producer.get(&queue).await {
        let event: Value = serde_json::from_slice(&message.data).unwrap();
        seqs.push(event["seq"].as_i64().unwrap());
    }
    let told: BTreeSet<i64> = seqs.iter().copied().collect();
    let newest: i64 = sqlx::query_scalar("SELECT last FROM event_counter").fetch_one(&app.pool).await.unwrap();
    let missing: Vec<i64> = (begun + 1..=newest).filter(|seq| !told.contains(seq)).collect();
    assert!(missing.is_empty(), "{missing:?} were never published");
    // What comes again after a break goes back a page at most, and from there in order.
    let mut highest = begun;
    for two in seqs.windows(2) {
        highest = highest.max(two[0]);
        assert!(two[1] == two[0] + 1 || (two[1] <= highest && two[1] + 100 > highest), "{two:?} after {highest}");
    }
    drop(broker);
    app.end().await;
}
