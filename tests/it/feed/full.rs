//! Queues that are full and refuse: one of them must not hold up what others are told, nor end the connection. And a broker that refuses a right.
use super::{Feed, envelope, feed_at, hash, note, plain, state};
use crate::support::{
    TestApp, Wish,
    broker::{self, Broker, Producer},
    proxy::Proxy,
    until,
};
use lapin::{
    Connection, ConnectionProperties,
    options::{QueueBindOptions, QueueDeclareOptions},
    types::{AMQPValue, FieldTable},
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::{collections::BTreeMap, fs, net::SocketAddr, path::Path};

/// A feed that reaches its broker through a proxy, which knows how often it connected.
async fn watched(broker: SocketAddr, settings: &[(&str, &str)]) -> (Feed, Proxy) {
    let proxy = Proxy::of_service(broker).await;
    let feed = feed_at(&broker::url(proxy.address), &broker::url(broker), true, settings).await;
    (feed, proxy)
}

fn connections(proxy: &Proxy) -> usize {
    proxy.times_heard("AMQP")
}

/// A queue with room for one message, which refuses others.
async fn narrow(feed: &Feed, name: &str) -> String {
    let name = format!("{}-{name}", feed.producer.prefix);
    let mut one = FieldTable::default();
    one.insert("x-max-length".into(), AMQPValue::LongInt(1));
    one.insert("x-overflow".into(), AMQPValue::LongString("reject-publish".into()));
    let own = QueueDeclareOptions { exclusive: true, ..QueueDeclareOptions::default() };
    feed.producer.channel.queue_declare(name.as_str().into(), own, one).await.unwrap();
    name
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_queue_of_a_producer_misses_outcomes_and_nobody_else_does() {
    let Some(url) = broker::shared().await else { return };
    let Ok(address) = url.split('@').nth(1).unwrap().split('/').next().unwrap().parse() else { return };
    let (mut feed, proxy) = watched(address, &[]).await;
    let full = narrow(&feed, "answers").await;
    let own = QueueDeclareOptions { exclusive: true, ..QueueDeclareOptions::default() };
    let answers = feed.producer.channel.queue_declare("".into(), own, FieldTable::default()).await.unwrap();
    let answers = answers.name().as_str().to_owned();
    let send = async |feed: &Feed, number: usize, to: &str| {
        let bytes = note(80_000 + number);
        let properties = plain(&format!("m{number}"), bytes.as_bytes(), &[]).with_reply_to(to.into());
        feed.producer.publish(properties, bytes.as_bytes()).await;
    };
    for number in 0..3 {
        send(&feed, number, &full).await;
    }
    for number in 3..10 {
        send(&feed, number, &answers).await;
    }
    let mut told: BTreeMap<String, usize> = BTreeMap::new();
    for _ in 0..10 {
        let (outcome, _) = feed.producer.outcome().await;
        assert_eq!(outcome["outcome"], "accepted", "{outcome}");
        *told.entry(outcome["message_id"].as_str().unwrap().to_owned()).or_default() += 1;
    }
    assert!(told.len() == 10 && told.values().all(|times| *times == 1), "each is told once: {told:?}");
    for _ in 3..10 {
        until("an answer", async || feed.producer.get(&answers).await).await;
    }
    assert!(feed.producer.get(&answers).await.is_none(), "none came twice");

    // The same where a message comes again, and where one of those who listen to all outcomes has no room.
    send(&feed, 1, &full).await;
    assert_eq!(feed.producer.outcome().await.0["again"], true);
    let deaf = narrow(&feed, "listens").await;
    let (events, options) = (format!("{}.events", feed.producer.prefix), QueueBindOptions::default());
    let bound = feed.producer.channel.queue_bind(
        deaf.as_str().into(),
        events.into(),
        "result.#".into(),
        options,
        FieldTable::default(),
    );
    bound.await.unwrap();
    for number in 10..20 {
        send(&feed, number, &answers).await;
        let told = feed.producer.outcome().await.0;
        assert_eq!(told["message_id"], format!("m{number}"), "{told}");
        let answer = until("an answer", async || feed.producer.get(&answers).await).await;
        assert_eq!(serde_json::from_slice::<Value>(&answer.data).unwrap(), told);
    }
    send(&feed, 10, &full).await;
    assert_eq!(feed.producer.outcome().await.0["again"], true);
    assert!(feed.producer.get(&full).await.is_some() && feed.producer.get(&deaf).await.is_some(), "they had one each");
    assert_eq!(connections(&proxy), 1, "the feed kept its connection");
    assert!(state(&feed.app).await.is_some_and(|check| check.ok));
    feed.end().await;
}

/// What a broker begins with: a user who may write to what `write` matches, and these policies.
fn definitions(write: &str, policies: &Value) -> String {
    let (salt, mut hashed) = ([1, 2, 3, 4], Sha256::new());
    hashed.update(salt);
    hashed.update("guest");
    let password = super::base64(&[&salt[..], &hashed.finalize()].concat());
    let all = ".*";
    json!({
        "users": [{"name": "guest", "password_hash": password, "hashing_algorithm": "rabbit_password_hashing_sha256", "tags": []}],
        "vhosts": [{"name": "/"}],
        "permissions": [{"user": "guest", "vhost": "/", "configure": all, "write": write, "read": all}],
        "policies": policies,
    })
    .to_string()
}

async fn prepared(definitions: String) -> Option<Broker> {
    let write = move |folder: &Path| fs::write(folder.join("definitions.json"), definitions).unwrap();
    tokio::task::spawn_blocking(|| Broker::prepared(write)).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_who_may_not_write_to_the_default_exchange_is_named_before_a_message_is_taken() {
    let Some(broker) = prepared(definitions("^(?!amq[.]default$).*", &json!([]))).await else { return };
    let url = broker::url(broker.address);
    let app = TestApp::with(Wish { settings: &[("SVC_AMQP_URL", &url)], ..Wish::default() }).await;
    app.sampled().await;
    let named = async || state(&app).await.filter(|check| check.detail.contains("`amq.default`"));
    let check = until("the feed says which right it lacks", named).await;
    assert!(!check.ok && check.detail.contains("`guest`"), "{check:?}");
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_dead_queue_keeps_what_was_given_up_first() {
    let narrow = json!([{"vhost": "/", "name": "narrow", "pattern": "[.]dead$", "apply-to": "queues", "priority": 1, "definition": {"max-length": 1}}]);
    let Some(broker) = prepared(definitions(".*", &narrow)).await else { return };
    let url = broker::url(broker.address);
    let mut feed = feed_at(&url, &url, true, &[]).await;
    for number in 0..3 {
        feed.producer.publish(plain(&format!("wrong-{number}"), b"other bytes", &[]), note(83_000).as_bytes()).await;
        let (outcome, _) = feed.producer.outcome().await;
        assert_eq!(outcome["outcome"], "rejected", "{outcome}");
    }
    let dead = format!("{}.dead", feed.producer.prefix);
    let first = until("a dead message", async || feed.producer.get(&dead).await).await;
    assert_eq!(first.properties.message_id().as_ref().map(|id| id.as_str()), Some("wrong-0"));
    feed.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dead_queue_of_an_earlier_version_stops_no_feed() {
    let Some(url) = broker::shared().await else { return };
    let prefix = broker::prefix();
    let connection = Connection::connect(&url, ConnectionProperties::default()).await.unwrap();
    let channel = connection.create_channel().await.unwrap();
    let mut earlier = FieldTable::default();
    earlier.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
    earlier.insert("x-delivery-limit".into(), AMQPValue::LongLongInt(1_000_000));
    let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    channel.queue_declare(format!("{prefix}.dead").into(), durable, earlier).await.unwrap();
    let settings = [("SVC_AMQP_URL", url.as_str()), ("SVC_AMQP_PREFIX", prefix.as_str())];
    let app = TestApp::with(Wish { settings: &settings, no_worker: true, ..Wish::default() }).await;
    until("the feed takes messages", async || state(&app).await.filter(|check| check.ok)).await;
    let producer = Producer::connect(&url, &prefix).await;
    app.end().await;
    producer.clear().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_queue_of_retries_holds_up_only_what_goes_there() {
    let narrow = json!([{"vhost": "/", "name": "narrow", "pattern": "[.]retry[.]", "apply-to": "queues", "priority": 1, "definition": {"max-length": 1}}]);
    let Some(broker) = prepared(definitions(".*", &narrow)).await else { return };
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().display().to_string();
    let (mut feed, proxy) = watched(broker.address, &[("SVC_BULK_ROOT", &root)]).await;
    let miss = async |feed: &Feed, number: usize| {
        let sha256 = hash(note(81_000 + number).as_bytes());
        let body = json!({"source": {"path": format!("{number}.md")}, "sha256": sha256}).to_string();
        feed.producer.publish(envelope(&format!("missing-{number}")), body.as_bytes()).await;
    };
    // One by one, because a queue takes all that comes at once, whatever its room is.
    let mut missing = 0;
    until("all queues of retries are full", async || {
        let mut aside = Vec::new();
        for part in ["retry.5s", "retry.1m", "retry.10m"] {
            aside.push(feed.producer.depth(part).await);
        }
        if aside.iter().all(|depth| *depth > 0) {
            return Some(());
        }
        if aside.iter().sum::<u32>() as usize >= missing {
            miss(&feed, missing).await;
            missing += 1;
        }
        None
    })
    .await;
    // There is no room for these.
    for _ in 0..4 {
        miss(&feed, missing).await;
        missing += 1;
    }
    // Others are stored meanwhile.
    for number in 0..20 {
        let bytes = note(82_000 + number);
        feed.producer.publish(plain(&format!("good-{number}"), bytes.as_bytes(), &[]), bytes.as_bytes()).await;
        let (outcome, _) = feed.producer.outcome().await;
        assert_eq!(outcome["message_id"], format!("good-{number}"), "{outcome}");
        assert_eq!(outcome["outcome"], "accepted", "{outcome}");
    }
    for number in 0..missing {
        fs::write(folder.path().join(format!("{number}.md")), note(81_000 + number)).unwrap();
    }
    // The shortest queue empties again and again, and what waits goes through it.
    let (outcome, _) = feed.producer.outcome().await;
    assert_eq!(outcome["outcome"], "accepted", "{outcome}");
    assert_eq!(connections(&proxy), 1, "the feed kept its connection");
    assert_eq!(feed.producer.depth("dead").await, 0);
    feed.end().await;
}
