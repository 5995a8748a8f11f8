//! Where the files of messages come from, what becomes of a message whose file does not come, and services that share a queue.
use super::{Feed, count, envelope, feed, feed_at, hash, note, plain};
use crate::{
    crash::{Process, serve_command},
    support::{broker, until, web::Web},
};
use lapin::{
    options::QueueDeclareOptions,
    types::{AMQPValue, FieldTable},
};
use serde_json::{Value, json};
use std::{collections::BTreeSet, process::Stdio};

/// Delays between two tries that nobody waits for.
const SOON: (&str, &str) = ("SVC_BULK_RETRY_SECONDS", "0.1, 0.2, 0.3");

async fn told(feed: &mut Feed) -> Value {
    feed.producer.outcome().await.0
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_is_fetched_if_a_setting_allows_it_and_again_while_it_is_away() {
    let web = Web::start().await;
    let allow = format!("[{:?}]", web.at);
    let Some(mut feed) = feed(true, &[("SVC_FETCH_ALLOW", &allow), SOON]).await else { return };
    let bytes = note(90_001);
    web.put("/in/a.md", "200 OK", "content-type: text/markdown\r\n", bytes.as_bytes());
    let send = async |feed: &Feed, id: &str, body: Value| {
        feed.producer.publish(envelope(id), body.to_string().as_bytes()).await;
    };
    send(&feed, "fetched", json!({"source": {"url": web.url("/in/a.md")}})).await;
    let accepted = told(&mut feed).await;
    assert_eq!((&accepted["outcome"], &accepted["message_id"]), (&json!("accepted"), &json!("fetched")), "{accepted}");
    assert_eq!(accepted["sha256"], format!("sha256:{}", hash(bytes.as_bytes())));
    let title: String = sqlx::query_scalar("SELECT title FROM documents").fetch_one(&feed.app.pool).await.unwrap();
    assert_eq!(title, "a.md", "called as a file of a path is");

    // What it sends is compared where the message says what it is.
    send(&feed, "other", json!({"source": {"url": web.url("/in/a.md")}, "sha256": hash(b"else")})).await;
    let refused = told(&mut feed).await;
    assert_eq!((&refused["outcome"], &refused["code"]), (&json!("rejected"), &json!("invalid_field")), "{refused}");

    // Nothing is there yet.
    send(&feed, "later", json!({"source": {"url": web.url("/later.md")}})).await;
    let asked = async || web.asked().iter().filter(|path| *path == "/later.md").count();
    until("it is asked for", async || (asked().await > 0).then_some(())).await;
    web.put("/later.md", "200 OK", "content-type: text/markdown\r\n", note(90_002).as_bytes());
    let accepted = told(&mut feed).await;
    assert_eq!((&accepted["outcome"], &accepted["message_id"]), (&json!("accepted"), &json!("later")), "{accepted}");

    // No setting allows this one, whatever it would answer.
    let closed = Web::start().await;
    closed.put("/a.md", "200 OK", "content-type: text/markdown\r\n", b"secret");
    send(&feed, "closed", json!({"source": {"url": closed.url("/a.md")}})).await;
    let refused = told(&mut feed).await;
    assert_eq!((&refused["outcome"], &refused["message_id"]), (&json!("rejected"), &json!("closed")), "{refused}");
    assert!(closed.asked().is_empty());
    assert_eq!(count(&feed.app.pool, "document_blobs").await, 2);
    feed.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fetched_table_is_told_by_its_ending_or_its_media_type() {
    let web = Web::start().await;
    let allow = format!("[{:?}]", web.at);
    let Some(mut feed) = feed(true, &[("SVC_FETCH_ALLOW", &allow)]).await else { return };
    for (id, path, media_type) in
        [("ending", "/prices.csv", "application/octet-stream"), ("media-type", "/export", "text/csv")]
    {
        let table = format!("Bird,Eggs\nHeron,{}\nDuck,9\nSwan,5\n", path.len());
        web.put(path, "200 OK", &format!("content-type: {media_type}\r\n"), table.as_bytes());
        let body = json!({"source": {"url": web.url(path)}}).to_string();
        feed.producer.publish(envelope(id), body.as_bytes()).await;
        let accepted = told(&mut feed).await;
        assert_eq!((&accepted["outcome"], &accepted["message_id"]), (&json!("accepted"), &json!(id)), "{accepted}");
        let stored: (String, Option<String>) = sqlx::query_as(
            "SELECT d.title, b.format FROM document_blobs b JOIN documents d ON d.id = b.document_id ORDER BY d.id DESC LIMIT 1",
        )
        .fetch_one(&feed.app.pool)
        .await
        .unwrap();
        let expected = if id == "ending" { "prices.csv" } else { "export.csv" };
        assert_eq!(stored, (expected.to_owned(), Some("csv".to_owned())));
    }
    feed.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_never_comes_is_tried_six_times_more_and_then_dead_with_its_reason() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().display().to_string();
    let Some(mut feed) = feed(true, &[("SVC_BULK_ROOT", &root), SOON]).await else { return };
    let body = json!({"source": {"path": "never.md"}, "sha256": hash(b"never")}).to_string();
    feed.producer.publish(envelope("never"), body.as_bytes()).await;
    let refused = told(&mut feed).await;
    assert_eq!((&refused["outcome"], &refused["message_id"]), (&json!("rejected"), &json!("never")), "{refused}");
    assert!(refused["detail"].as_str().unwrap().contains("no such file"), "{refused}");
    let dead = format!("{}.dead", feed.producer.prefix);
    let dead = until("the dead message", async || feed.producer.get(&dead).await).await;
    let headers = dead.properties.headers().clone().unwrap();
    let header = |name: &str| headers.inner().get(name).cloned();
    assert_eq!(header("svc-rounds"), Some(AMQPValue::LongLongInt(6)), "{headers:?}");
    let Some(AMQPValue::LongString(code)) = header("svc-code") else { panic!("{headers:?}") };
    assert_eq!(code.as_bytes(), refused["code"].as_str().unwrap().as_bytes());
    assert_eq!(dead.data, body.as_bytes(), "it lies there as it came");
    for part in ["upload", "retry.100ms", "retry.200ms", "retry.300ms"] {
        assert_eq!(feed.producer.depth(part).await, 0, "{part}");
    }
    feed.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_services_on_one_queue_store_each_message_once() {
    const MESSAGES: usize = 200;
    let Some(url) = broker::shared().await else { return };
    let mut feed = feed_at(&url, &url, true, &[]).await;
    let prefix = feed.producer.prefix.clone();
    let mut command = serve_command(&feed.app);
    command.env("SVC_AMQP_URL", &url).env("SVC_AMQP_PREFIX", &prefix).env("SVC_LOG_LEVEL", "error");
    let second = Process(command.stdout(Stdio::null()).spawn().unwrap());
    until("both take messages", async || {
        let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        let name = format!("{prefix}.upload");
        let queue = feed.producer.channel.queue_declare(name.into(), passive, FieldTable::default()).await.unwrap();
        (queue.consumer_count() == 2).then_some(())
    })
    .await;
    for number in 0..MESSAGES {
        let bytes = note(91_000 + number);
        feed.producer.publish(plain(&format!("m{number}"), bytes.as_bytes(), &[]), bytes.as_bytes()).await;
    }
    let mut ids = BTreeSet::new();
    for _ in 0..MESSAGES {
        let outcome = told(&mut feed).await;
        assert_eq!((&outcome["outcome"], outcome.get("again")), (&json!("accepted"), None), "{outcome}");
        assert!(ids.insert(outcome["message_id"].as_str().unwrap().to_owned()), "{outcome} is told twice");
    }
    let stored = (count(&feed.app.pool, "bulk_message").await, count(&feed.app.pool, "document_blobs").await);
    assert_eq!(stored, (MESSAGES as i64, MESSAGES as i64));
    assert_eq!((feed.producer.depth("upload").await, feed.producer.depth("dead").await), (0, 0));
    second.kill();
    feed.end().await;
}
