//! The bulk feed, on a real broker.
mod bulk;
mod conservation;
mod dead;
mod events;
mod full;
mod manifest;
mod records;
mod seen;
mod sources;
mod tls;

use crate::{
    principals::{Someone, grant, someone},
    support::{
        TestApp, Wish,
        broker::{self, Producer},
        document,
        proxy::{Proxy, Weather},
        until,
    },
};
use lapin::{
    BasicProperties,
    options::QueueDeclareOptions,
    types::{AMQPValue, FieldTable},
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use sqlx::PgPool;
use svc_client::{
    Json,
    wire::{
        CheckedPart, DocumentPath, EmbedQuery, GrantRight, HealthStatus, PrincipalChange, PrincipalKind, PrincipalPath,
        ReadinessCheck,
    },
};

const ENVELOPE: &str = "application/vnd.svc.upload+json";

fn hash(bytes: &[u8]) -> String {
    hex::encode(Sha256::digest(bytes))
}

/// A text that no other test has.
pub fn note(number: usize) -> String {
    format!("# Note {number}\n\nThe heron saw {number} ducks on the pond, and wrote it down.\n")
}

/// A message whose body is the file.
pub fn plain(id: &str, bytes: &[u8], headers: &[(&str, AMQPValue)]) -> BasicProperties {
    let mut table = FieldTable::default();
    table.insert("svc-sha256".into(), AMQPValue::LongString(hash(bytes).into()));
    table.insert("svc-filename".into(), AMQPValue::LongString(format!("{id}.md").into()));
    for (name, value) in headers {
        table.insert((*name).into(), value.clone());
    }
    let properties = BasicProperties::default().with_message_id(id.into()).with_delivery_mode(2);
    properties.with_user_id("guest".into()).with_content_type("text/markdown".into()).with_headers(table)
}

/// A message that describes the file.
fn envelope(id: &str) -> BasicProperties {
    BasicProperties::default()
        .with_message_id(id.into())
        .with_user_id("guest".into())
        .with_content_type(ENVELOPE.into())
}

pub fn text(value: &str) -> AMQPValue {
    AMQPValue::LongString(value.into())
}

/// A service with a feed of its own, a producer, and the principal that answers for the messages.
pub struct Feed {
    pub app: TestApp,
    /// The broker, as producers see it.
    url: String,
    pub producer: Producer,
    pub uploader: Someone,
}

/// `None` if there is no broker.
pub async fn feed(no_worker: bool, settings: &[(&str, &str)]) -> Option<Feed> {
    let url = broker::shared().await?;
    Some(feed_at(&url, &url, no_worker, settings).await)
}

async fn feed_at(url: &str, of_producer: &str, no_worker: bool, settings: &[(&str, &str)]) -> Feed {
    let prefix = broker::prefix();
    let mut all = vec![("SVC_AMQP_URL", url), ("SVC_AMQP_PREFIX", prefix.as_str())];
    all.extend(settings);
    let app = TestApp::with(Wish { settings: &all, no_worker, ..Wish::default() }).await;
    if no_worker {
        drop(svc::events::sequencer::start(app.pool.clone()));
    }
    let uploader = answering(&app, "producer", "guest").await;
    let producer = Producer::connect(of_producer, &prefix).await;
    Feed { app, url: of_producer.to_owned(), producer, uploader }
}

/// A service that answers for a user of the broker.
async fn answering(app: &TestApp, name: &str, user: &str) -> Someone {
    let uploader = someone(app, name).await;
    let change = PrincipalChange {
        kind: Some(PrincipalKind::Service),
        amqp_user: Some(user.to_owned()),
        ..PrincipalChange::default()
    };
    let changed = app.client.update_principal(PrincipalPath { id: uploader.id }, Json(change)).await.unwrap();
    assert_eq!(changed.amqp_user.as_deref(), Some(user));
    uploader
}

impl Feed {
    pub async fn end(self) {
        self.app.end().await;
        self.producer.clear().await;
    }
}

/// What `/ready` says of the feed, whether or not the service is ready.
async fn state(app: &TestApp) -> Option<ReadinessCheck> {
    let checks = match app.client.read_readiness().await {
        Ok(ready) => ready.checks,
        Err(failure) => serde_json::from_value(failure.members.get("checks")?.clone()).unwrap(),
    };
    checks.into_iter().find(|check| check.name == CheckedPart::Feed)
}

async fn count(pool: &PgPool, table: &'static str) -> i64 {
    sqlx::query_scalar(sqlx::AssertSqlSafe(format!("SELECT count(*) FROM {table}"))).fetch_one(pool).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_becomes_a_document_of_its_uploader_and_its_outcome_is_told() {
    let Some(mut feed) = feed(false, &[]).await else { return };
    let own = QueueDeclareOptions { exclusive: true, ..QueueDeclareOptions::default() };
    let answers = feed.producer.channel.queue_declare("".into(), own, FieldTable::default()).await.unwrap();
    let answers = answers.name().as_str().to_owned();
    let bytes = note(1);
    let properties = plain("one", bytes.as_bytes(), &[("svc-private", AMQPValue::Boolean(true))]);
    let properties = properties.with_correlation_id("mark".into()).with_reply_to(answers.as_str().into());
    feed.producer.publish(properties, bytes.as_bytes()).await;
    let (accepted, mark) = feed.producer.outcome().await;
    assert_eq!(
        (&accepted["outcome"], &accepted["message_id"], &accepted["v"]),
        (&json!("accepted"), &json!("one"), &json!(1))
    );
    assert_eq!(accepted["sha256"], format!("sha256:{}", hash(bytes.as_bytes())));
    assert_eq!(mark.as_deref(), Some("mark"));
    let id = accepted["document_id"].as_i64().unwrap();
    let (settled, _) = feed.producer.outcome().await;
    assert_eq!((&settled["outcome"], &settled["document_id"]), (&json!("settled"), &json!(id)));
    assert!(settled["nodes"].as_i64().unwrap() > 1 && settled["seconds"].is_number(), "{settled}");
    for outcome in [&accepted, &settled] {
        let answer = until("an answer", async || feed.producer.get(&answers).await).await;
        assert_eq!(&serde_json::from_slice::<Value>(&answer.data).unwrap(), outcome);
    }
    let mine =
        feed.uploader.client.read_document(DocumentPath { id }, EmbedQuery::default()).await.unwrap().value().unwrap();
    assert_eq!(mine.title, "one.md");
    let stranger = someone(&feed.app, "stranger").await;
    assert!(stranger.client.read_document(DocumentPath { id }, EmbedQuery::default()).await.is_err(), "it is private");

    // The same bytes in an envelope are found again, as by an upload over HTTP.
    let again = json!({"v": 1, "source": {"inline_base64": base64(bytes.as_bytes())}, "sha256": hash(bytes.as_bytes()), "private": true});
    feed.producer.publish(envelope("two"), again.to_string().as_bytes()).await;
    let (duplicate, _) = feed.producer.outcome().await;
    assert_eq!((&duplicate["outcome"], &duplicate["document_id"]), (&json!("duplicate"), &json!(id)));
    assert_eq!(duplicate["linked"], false);
    assert_eq!((count(&feed.app.pool, "document_blobs").await, count(&feed.app.pool, "bulk_message").await), (1, 2));
    assert_eq!(feed.producer.depth("dead").await, 0);
    feed.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_producer_is_told_in_the_order_in_which_all_are() {
    let Some(mut feed) = feed(true, &[]).await else { return };
    let own = QueueDeclareOptions { exclusive: true, ..QueueDeclareOptions::default() };
    let answers = feed.producer.channel.queue_declare("".into(), own, FieldTable::default()).await.unwrap();
    let answers = answers.name().as_str().to_owned();
    for number in 0..200 {
        let properties = plain(&number.to_string(), b"other bytes", &[]).with_reply_to(answers.as_str().into());
        feed.producer.publish(properties, b"bytes").await;
    }
    for _ in 0..200 {
        let (outcome, _) = feed.producer.outcome().await;
        let answer = until("an answer", async || feed.producer.get(&answers).await).await;
        assert_eq!(serde_json::from_slice::<Value>(&answer.data).unwrap(), outcome);
    }
    feed.end().await;
}

fn base64(bytes: &[u8]) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(bytes)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_comes_again_is_stored_once_and_its_id_belongs_to_its_bytes() {
    let Some(mut feed) = feed(true, &[]).await else { return };
    let bytes = note(2);
    for time in 0..3 {
        feed.producer.publish(plain("same", bytes.as_bytes(), &[]), bytes.as_bytes()).await;
        let (outcome, _) = feed.producer.outcome().await;
        assert_eq!((&outcome["outcome"], &outcome["message_id"]), (&json!("accepted"), &json!("same")), "{outcome}");
        assert_eq!(outcome["again"] == true, time > 0, "{outcome}");
    }
    assert_eq!((count(&feed.app.pool, "documents").await, count(&feed.app.pool, "bulk_message").await), (1, 1));
    let other = note(3);
    feed.producer.publish(plain("same", other.as_bytes(), &[]), other.as_bytes()).await;
    let (refused, _) = feed.producer.outcome().await;
    assert_eq!((&refused["outcome"], &refused["code"]), (&json!("rejected"), &json!("conflict")), "{refused}");
    // Its first outcome stands.
    feed.producer.publish(plain("same", bytes.as_bytes(), &[]), bytes.as_bytes()).await;
    assert_eq!(feed.producer.outcome().await.0["outcome"], "accepted");
    until("the dead message", async || (feed.producer.depth("dead").await == 1).then_some(())).await;
    feed.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_delivery_of_a_message_is_answered_by_its_own_mark_however_late_the_first_one_is_told() {
    let Some(feed) = feed(true, &[]).await else { return };
    let own = QueueDeclareOptions { exclusive: true, ..QueueDeclareOptions::default() };
    let answers = feed.producer.channel.queue_declare("".into(), own, FieldTable::default()).await.unwrap();
    let answers = answers.name().as_str().to_owned();
    // Without a number no event is told.
    let mut held = feed.app.pool.begin().await.unwrap();
    sqlx::query("SELECT last FROM event_counter FOR UPDATE").execute(&mut *held).await.unwrap();
    let bytes = note(7);
    let deliver = async |mark: &str| {
        let properties = plain("same", bytes.as_bytes(), &[]).with_reply_to(answers.as_str().into());
        feed.producer.publish(properties.with_correlation_id(mark.into()), bytes.as_bytes()).await;
    };
    let answer = async || {
        let answer = until("an answer", async || feed.producer.get(&answers).await).await;
        let mark = answer.properties.correlation_id().as_ref().unwrap().as_str().to_owned();
        (mark, serde_json::from_slice::<Value>(&answer.data).unwrap()["outcome"].as_str().unwrap().to_owned())
    };
    deliver("stored").await;
    until("the file", async || (count(&feed.app.pool, "bulk_message").await == 1).then_some(())).await;
    deliver("again").await;
    let accepted = |mark: &str| (mark.to_owned(), "accepted".to_owned());
    assert_eq!([answer().await, answer().await], [accepted("stored"), accepted("again")]);
    held.rollback().await.unwrap();
    assert_eq!(answer().await, accepted("again"), "its event is told at last");
    feed.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_can_never_be_stored_is_dead_with_its_reason() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("root");
    std::fs::create_dir_all(&root).unwrap();
    std::fs::write(folder.path().join("secret"), "outside").unwrap();
    std::os::unix::fs::symlink("../secret", root.join("link")).unwrap();
    std::fs::write(root.join("inside.md"), note(4)).unwrap();
    let root = root.display().to_string();
    let Some(mut feed) = feed(true, &[("SVC_BULK_ROOT", &root), ("SVC_BULK_INLINE_BYTES", "1 KiB")]).await else {
        return;
    };
    let create = async |title: &str| {
        feed.app.client.create_document(Default::default(), Json(document(title, "Text."))).await.unwrap().document.id
    };
    let (closed, open) = (create("Closed").await, create("Read only").await);
    feed.app.client.protect_document(DocumentPath { id: closed }).await.unwrap();
    feed.app.client.protect_document(DocumentPath { id: open }).await.unwrap();
    grant(&feed.app, &feed.uploader, open, GrantRight::Read).await;
    let bytes = note(5);
    let (body, sha256) = (bytes.as_bytes(), hash(bytes.as_bytes()));
    let (large, wide) = ("x".repeat(1025), "x".repeat(130_850));
    let source = |path: &str| json!({"source": {"path": path}, "sha256": hash(b"outside")}).to_string();
    let inline = |source: Value| json!({"source": source, "sha256": sha256}).to_string();
    let cases: Vec<(&str, BasicProperties, Vec<u8>)> = vec![
        ("malformed_request", BasicProperties::default().with_user_id("guest".into()), body.to_vec()),
        ("malformed_request", envelope("json"), b"{".to_vec()),
        ("malformed_request", envelope("field"), format!("{{\"{}\": 1}}", "x".repeat(60_000)).into_bytes()),
        ("malformed_request", plain("type", body, &[]).with_type("svc.upload.v9".into()), body.to_vec()),
        ("unsupported_media_type", plain("packed", body, &[]).with_content_encoding("gzip".into()), body.to_vec()),
        ("invalid_field", plain("hash", b"other bytes", &[]), body.to_vec()),
        ("invalid_field", plain("no-hash", body, &[("svc-sha256", text("12"))]), body.to_vec()),
        ("unknown_option", plain("option", body, &[("svc-options", text(r#"{"nonsense": {}}"#))]), body.to_vec()),
        // Their headers fill the frame, into which the reason goes too.
        ("invalid_field", plain("wide", body, &[("svc-options", text(&wide))]), body.to_vec()),
        ("invalid_field", plain("pad", b"other bytes", &[("pad", text(&wide))]), body.to_vec()),
        ("too_large", plain("large", large.as_bytes(), &[]), large.clone().into_bytes()),
        (
            "too_large",
            envelope("large-inline"),
            inline(json!({"inline_base64": base64(large.as_bytes())})).into_bytes(),
        ),
        ("invalid_field", envelope("base64"), inline(json!({"inline_base64": "?"})).into_bytes()),
        ("invalid_field", envelope("out"), source("../secret").into_bytes()),
        ("invalid_field", envelope("link"), source("link").into_bytes()),
        (
            "invalid_field",
            envelope("absolute"),
            source(&folder.path().join("secret").display().to_string()).into_bytes(),
        ),
        ("not_found", plain("closed", body, &[("svc-parent-id", AMQPValue::LongLongInt(closed))]), body.to_vec()),
        ("forbidden", plain("open", body, &[("svc-parent-id", AMQPValue::LongLongInt(open))]), body.to_vec()),
        ("unauthenticated", clone_without_user(&plain("nobody", body, &[])), body.to_vec()),
        (
            "unauthenticated",
            clone_without_user(&plain("forged", body, &[("svc-uploader", text("guest"))])),
            body.to_vec(),
        ),
    ];
    let documents = count(&feed.app.pool, "documents").await;
    for (dead, (code, properties, body)) in cases.iter().enumerate() {
        let id = properties.message_id().as_ref().map(|id| id.as_str().to_owned());
        feed.producer.publish(properties.clone(), body).await;
        let (outcome, _) = feed.producer.outcome().await;
        assert_eq!((&outcome["outcome"], &outcome["message_id"]), (&json!("rejected"), &json!(id)), "{outcome}");
        assert_eq!(outcome["code"], *code, "{outcome}");
        let detail = outcome["detail"].as_str().unwrap();
        assert!(!detail.contains(&folder.path().display().to_string()), "{outcome}");
        assert!(detail.chars().count() <= 1_000, "{outcome}");
        until("the dead message", async || (feed.producer.depth("dead").await == dead as u32 + 1).then_some(())).await;
    }
    assert_eq!(count(&feed.app.pool, "documents").await, documents, "nothing was stored");
    let told = "event_outbox WHERE kind = 'feed.dead' AND owner_only AND seq IS NOT NULL";
    assert_eq!(count(&feed.app.pool, told).await, cases.len() as i64);
    assert_eq!(count(&feed.app.pool, "bulk_message").await, cases.len() as i64 - 1, "one had no id");

    // What is mended is taken, although its id was rejected before.
    feed.producer.publish(plain("hash", body, &[]), body).await;
    let (mended, _) = feed.producer.outcome().await;
    assert_eq!((&mended["outcome"], &mended["message_id"]), (&json!("accepted"), &json!("hash")), "{mended}");
    let inside = json!({"source": {"path": "inside.md"}, "sha256": hash(note(4).as_bytes())}).to_string();
    feed.producer.publish(envelope("inside"), inside.as_bytes()).await;
    let (taken, _) = feed.producer.outcome().await;
    assert_eq!((&taken["outcome"], &taken["message_id"]), (&json!("accepted"), &json!("inside")), "{taken}");
    feed.end().await;
}

fn clone_without_user(properties: &BasicProperties) -> BasicProperties {
    BasicProperties::default()
        .with_message_id(properties.message_id().clone().unwrap())
        .with_headers(properties.headers().clone().unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_not_there_yet_is_taken_later_for_the_same_uploader() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().display().to_string();
    let Some(mut feed) = feed(true, &[("SVC_BULK_ROOT", &root), ("SVC_AMQP_PRINCIPAL", "nameless")]).await else {
        return;
    };
    let nameless = someone(&feed.app, "nameless").await;
    let bytes = note(6);
    let body =
        json!({"source": {"path": "in/later.md"}, "sha256": hash(bytes.as_bytes()), "private": true}).to_string();
    let without = BasicProperties::default().with_message_id("later".into()).with_content_type(ENVELOPE.into());
    feed.producer.publish(without, body.as_bytes()).await;
    until("it is put aside", async || (feed.producer.depth("retry.5s").await == 1).then_some(())).await;
    std::fs::create_dir(folder.path().join("in")).unwrap();
    std::fs::write(folder.path().join("in/later.md"), &bytes).unwrap();
    let (accepted, _) = feed.producer.outcome().await;
    assert_eq!((&accepted["outcome"], &accepted["message_id"]), (&json!("accepted"), &json!("later")), "{accepted}");
    let id = accepted["document_id"].as_i64().unwrap();
    assert!(nameless.client.read_document(DocumentPath { id }, EmbedQuery::default()).await.is_ok());
    let other = feed.uploader.client.read_document(DocumentPath { id }, EmbedQuery::default()).await;
    assert!(other.is_err(), "the service's own user of the broker is not who published it");
    feed.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_whose_answer_is_lost_is_not_done_again() {
    let Some(url) = broker::shared().await else { return };
    let Ok(address) = url.split('@').nth(1).unwrap().split('/').next().unwrap().parse() else { return };
    let proxy = Proxy::of_service(address).await;
    let mut feed = feed_at(&broker::url(proxy.address), &url, true, &[]).await;
    let bytes = note(7);
    // The commit waits for a lock that the upload takes.
    let mut held = feed.app.pool.begin().await.unwrap();
    sqlx::query("SELECT pg_advisory_xact_lock(7377, hashtext($1))")
        .bind(format!("sha256:{}", hash(bytes.as_bytes())))
        .execute(&mut *held)
        .await
        .unwrap();
    feed.producer.publish(plain("lost", bytes.as_bytes(), &[]), bytes.as_bytes()).await;
    until("the upload waits", async || {
        let of_the_upload = "pg_locks WHERE locktype = 'advisory' AND classid = 7377 AND NOT granted
                                AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
        let waiting = count(&feed.app.pool, of_the_upload).await;
        (waiting > 0).then_some(())
    })
    .await;
    proxy.set(Weather::Blackhole);
    held.rollback().await.unwrap();
    until("the commit", async || (count(&feed.app.pool, "bulk_message").await == 1).then_some(())).await;
    proxy.set(Weather::Cut);
    until("the feed knows", async || state(&feed.app).await.filter(|check| !check.ok)).await;
    proxy.set(Weather::Fair);
    loop {
        let (outcome, _) = feed.producer.outcome().await;
        assert_eq!((&outcome["outcome"], &outcome["message_id"]), (&json!("accepted"), &json!("lost")), "{outcome}");
        if outcome["again"] == true {
            break;
        }
    }
    until("it is answered", async || (feed.producer.depth("upload").await == 0).then_some(())).await;
    assert_eq!((count(&feed.app.pool, "documents").await, count(&feed.app.pool, "bulk_message").await), (1, 1));
    feed.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_taken_while_too_many_tasks_are_ready() {
    let Some(mut feed) = feed(true, &[("SVC_BULK_HIGH_WATER", "10")]).await else { return };
    const ALL: usize = 200;
    for number in 0..ALL {
        let bytes = note(1000 + number);
        feed.producer.publish(plain(&format!("m{number}"), bytes.as_bytes(), &[]), bytes.as_bytes()).await;
    }
    until("it pauses", async || state(&feed.app).await.filter(|check| check.detail.contains("pauses"))).await;
    // What was handed out already is taken: the prefetch, and as much for each look at the queue of tasks.
    let taken = count(&feed.app.pool, "bulk_message").await;
    assert!((10..=10 + 3 * 12).contains(&taken), "{taken}");
    assert_eq!(i64::from(feed.producer.depth("upload").await), ALL as i64 - taken);
    feed.app.start_worker().await;
    until("all are taken", async || (count(&feed.app.pool, "bulk_message").await == ALL as i64).then_some(())).await;
    assert_eq!(count(&feed.app.pool, "documents WHERE parent_id IS NULL").await, ALL as i64);
    let ids: Vec<i64> =
        sqlx::query_scalar("SELECT document_id FROM bulk_message").fetch_all(&feed.app.pool).await.unwrap();
    for id in ids {
        feed.app.settled(id).await;
    }
    feed.producer.outcome().await;
    feed.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_feed_without_a_broker_is_degraded_and_nothing_else_is() {
    // Nothing listens at this port, and the password shows nowhere.
    let settings = [("SVC_AMQP_URL", "amqp://someone:hush-hush@127.0.0.1:1/%2f")];
    let app = TestApp::with(Wish { settings: &settings, ..Wish::default() }).await;
    app.sampled().await;
    let tried = async || state(&app).await.filter(|check| check.detail.contains("cannot be used"));
    let check = until("it is known", tried).await;
    assert!(app.client.read_readiness().await.unwrap().ready);
    assert!(!check.ok && !check.detail.contains("hush"), "{check:?}");
    assert_eq!(app.client.read_health().await.unwrap().status, HealthStatus::Degraded);
    let created = app.client.create_document(Default::default(), Json(document("Still", "It works."))).await.unwrap();
    assert!(created.document.id > 0);
    app.end().await;
}
