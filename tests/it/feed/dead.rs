//! `svc bulk dead`: what was given up is shown with its reason, and tried once more without being lost.
use crate::{
    cli::lines,
    crash::Process,
    feed::{Feed, count, feed, note, plain, text},
    principals::grant,
    support::{
        broker::{self, Producer},
        document,
        proxy::Proxy,
        until,
    },
};
use lapin::types::{AMQPValue, FieldTable};
use serde_json::json;
use std::{
    process::{Command, Output, Stdio},
    slice,
};
use svc_client::{
    Json,
    wire::{DeadChoice, DocumentPath, GrantRight},
};

fn command(feed: &Feed, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_svc"));
    command.args(["bulk", "dead"]).args(arguments).env("SVC_CONFIG", "/dev/null");
    command.env("SVC_AMQP_URL", &feed.url).env("SVC_AMQP_PREFIX", &feed.producer.prefix);
    command
}

async fn dead(feed: &Feed, arguments: &[&str]) -> Output {
    let mut command = command(feed, arguments);
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

/// A document that the uploader does not see yet.
async fn closed(feed: &Feed) -> i64 {
    let made = feed.app.client.create_document(Default::default(), Json(document("Closed", "Text."))).await.unwrap();
    feed.app.client.protect_document(DocumentPath { id: made.document.id }).await.unwrap();
    made.document.id
}

async fn lie_dead(feed: &Feed, number: u32) {
    until("the dead messages", async || (feed.producer.depth("dead").await == number).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_messages_are_listed_shown_replayed_and_dropped() {
    let Some(mut feed) = feed(true, &[]).await else { return };
    let parent = closed(&feed).await;
    let bytes = note(50_000);
    let body = bytes.as_bytes();
    let under = ("svc-parent-id", AMQPValue::LongLongInt(parent));
    let short_lived = plain("closed", body, &[under]).with_expiration("600000".into());
    for properties in [short_lived, plain("option", body, &[("svc-options", text(r#"{"nonsense": {}}"#))])] {
        feed.producer.publish(properties, body).await;
    }
    feed.producer.publish(plain("a\u{1b}[2J\nhash", b"other bytes", &[]), body).await;
    lie_dead(&feed, 3).await;
    let listed = dead(&feed, &[]).await;
    let mut codes: Vec<String> = lines(&listed).iter().map(|line| line["code"].as_str().unwrap().to_owned()).collect();
    codes.sort();
    assert_eq!(codes, ["invalid_field", "not_found", "unknown_option"]);
    assert_eq!(lines(&dead(&feed, &["list", "--code", "not_found"]).await).len(), 1);
    let shown = lines(&dead(&feed, &["show", "closed"]).await).remove(0);
    assert_eq!((&shown["user"], &shown["parent_id"]), (&json!("guest"), &json!(parent)), "{shown}");
    assert_eq!((&shown["filename"], &shown["bytes"]), (&json!("closed.md"), &json!(body.len())), "{shown}");
    let table = command(&feed, &["list", "--table"]).output().unwrap();
    let table = String::from_utf8(table.stdout).unwrap();
    assert!(table.contains("3 dead messages") && !table.contains('\u{1b}') && table.lines().count() == 4, "{table}");
    for (arguments, code) in
        [(&["replay"][..], 2), (&["show", "none"], 1), (&["drop", "none"], 1), (&["replay", "--all", "x"], 2)]
    {
        assert_eq!(dead(&feed, arguments).await.status.code(), Some(code), "{arguments:?}");
    }
    // Looking changes nothing, however often.
    lie_dead(&feed, 3).await;

    // What no queue takes stays where it is.
    let (channel, prefix) = (&feed.producer.channel, feed.producer.prefix.as_str());
    let (queue, table) = (format!("{prefix}.upload"), FieldTable::default());
    channel.queue_unbind(queue.as_str().into(), prefix.into(), "upload.#".into(), table.clone()).await.unwrap();
    assert_eq!(dead(&feed, &["replay", "--all"]).await.status.code(), Some(1));
    let bound = Default::default();
    channel.queue_bind(queue.as_str().into(), prefix.into(), "upload.#".into(), bound, table).await.unwrap();
    lie_dead(&feed, 3).await;

    // What is not mended dies again, and what is mended is stored as its publisher's.
    let replayed = dead(&feed, &["replay", "--all"]).await;
    assert_eq!(lines(&replayed)[0], json!({"replayed": 3, "failed": 0}));
    lie_dead(&feed, 3).await;
    grant(&feed.app, &feed.uploader, parent, GrantRight::Write).await;
    assert_eq!(lines(&dead(&feed, &["replay", "closed"]).await)[0]["replayed"], 1);
    loop {
        let (outcome, _) = feed.producer.outcome().await;
        if outcome["outcome"] == "accepted" {
            assert_eq!(outcome["message_id"], "closed");
            break;
        }
    }
    let of = format!(
        "bulk_message WHERE message_id = 'closed' AND outcome = 'accepted' AND principal_id = {}",
        feed.uploader.id
    );
    assert_eq!(count(&feed.app.pool, Box::leak(of.into_boxed_str())).await, 1, "the uploader is who it was");
    lie_dead(&feed, 2).await;
    assert_eq!(lines(&dead(&feed, &["drop", "--code", "unknown_option"]).await)[0]["dropped"], 1);
    assert_eq!(lines(&dead(&feed, &["drop", "--all"]).await)[0]["dropped"], 1);
    lie_dead(&feed, 0).await;
    feed.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replay_that_is_killed_loses_no_message_and_stores_none_twice() {
    const MESSAGES: u32 = 300;
    let Some(feed) = feed(true, &[]).await else { return };
    let parent = closed(&feed).await;
    for number in 0..MESSAGES {
        let bytes = note(60_000 + number as usize);
        let under = ("svc-parent-id", AMQPValue::LongLongInt(parent));
        feed.producer.publish(plain(&format!("m{number}"), bytes.as_bytes(), &[under]), bytes.as_bytes()).await;
    }
    lie_dead(&feed, MESSAGES).await;
    grant(&feed.app, &feed.uploader, parent, GrantRight::Write).await;
    let stored = async || count(&feed.app.pool, "bulk_message WHERE outcome = 'accepted'").await;
    let mut killed = 0;
    for step in [20, 60, 120] {
        let mut replay = command(&feed, &["replay", "--all"]);
        let mut replay = Process(replay.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
        until("some are stored", async || {
            (stored().await >= step || replay.0.try_wait().unwrap().is_some()).then_some(())
        })
        .await;
        killed += usize::from(replay.0.try_wait().unwrap().is_none());
        replay.kill();
    }
    assert!(killed > 0, "it was killed at work");
    until("the broker has them back", async || {
        let done = dead(&feed, &["replay", "--all"]).await;
        (done.status.success() && stored().await == i64::from(MESSAGES)).then_some(())
    })
    .await;
    lie_dead(&feed, 0).await;
    assert_eq!(count(&feed.app.pool, "document_blobs").await, i64::from(MESSAGES), "each is stored once");
    feed.end().await;
}

/// A reason may quote what a message says, and that may be any character.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reason_with_a_nul_is_told_like_any_other() {
    let Some(mut feed) = feed(true, &[]).await else { return };
    let body = note(50_001);
    let quoted = plain("nul", body.as_bytes(), &[("svc-options", text("{\"a\\u0000\": 1}"))]);
    feed.producer.publish(quoted, body.as_bytes()).await;
    let (outcome, _) = feed.producer.outcome().await;
    assert_eq!((&outcome["outcome"], &outcome["message_id"]), (&json!("rejected"), &json!("nul")), "{outcome}");
    // Nor is an id with a NUL in the way of those who take what was given up, each of which is on record.
    feed.producer.publish(plain("a\0b", body.as_bytes(), &[]), body.as_bytes()).await;
    lie_dead(&feed, 2).await;
    let all = DeadChoice { all: true, ..DeadChoice::default() };
    let dropped = feed.app.client.drop_dead(Json(all)).await.unwrap();
    assert_eq!((dropped.taken, dropped.refused), (2, 0));
    lie_dead(&feed, 0).await;
    assert_eq!(count(&feed.app.pool, "access_audit WHERE act = 'feed.drop'").await, 2);
    feed.end().await;
}

/// A client that reads a value within a value by a call within a call would end the whole process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_whose_headers_lie_deep_within_each_other_is_a_message_like_any_other() {
    let Some(mut feed) = feed(true, &[]).await else { return };
    // The client of the test sends a text, of which the broker hears that it is an array.
    let hostile = Proxy::rewriting(broker::address(&feed.url), b"deep-S", b"deep-A").await;
    let producer = Producer::connect(&broker::url(hostile.address), &feed.producer.prefix).await;
    let nested = (0..5_000).fold(b"V".to_vec(), |value, _| {
        [b"A".as_slice(), &u32::try_from(value.len()).unwrap().to_be_bytes(), &value].concat()
    });
    let (body, deep) = (note(50_003), ("deep-", AMQPValue::LongString(nested.into())));
    producer.publish(plain("good", body.as_bytes(), slice::from_ref(&deep)), body.as_bytes()).await;
    let (outcome, _) = feed.producer.outcome().await;
    assert_eq!((&outcome["outcome"], &outcome["message_id"]), (&json!("accepted"), &json!("good")), "{outcome}");
    producer.publish(plain("bad", b"other bytes", &[deep]), body.as_bytes()).await;
    lie_dead(&feed, 1).await;
    let listed = dead(&feed, &[]).await;
    assert_eq!((listed.status.code(), &lines(&listed)[0]["message_id"]), (Some(0), &json!("bad")), "{listed:?}");
    feed.end().await;
}

/// What the client cannot read costs nobody else anything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_nobody_can_read_takes_no_other_along() {
    let Some(mut feed) = feed(true, &[]).await else { return };
    let hostile = Proxy::rewriting(broker::address(&feed.url), b"caf-utf8.pdf", b"caf\xE9utf8.pdf").await;
    let producer = Producer::connect(&broker::url(hostile.address), &feed.producer.prefix).await;
    let body = note(50_002);
    let good = |number: usize| note(51_000 + number);
    // They come one right after the other, so that the broker hands them out together.
    producer.publish(plain("caf-utf8.pdf", body.as_bytes(), &[]), body.as_bytes()).await;
    for number in 0..30 {
        let body = good(number);
        feed.producer.publish(plain(&number.to_string(), body.as_bytes(), &[]), body.as_bytes()).await;
    }
    let mut accepted = std::collections::BTreeSet::new();
    while accepted.len() < 30 {
        let (outcome, _) = feed.producer.outcome().await;
        assert_eq!(outcome["outcome"], "accepted", "{outcome}");
        accepted.insert(outcome["message_id"].as_str().unwrap().to_owned());
    }
    lie_dead(&feed, 1).await;
    assert_eq!(feed.producer.depth("upload").await, 0);
    let listed = dead(&feed, &[]).await;
    let said = String::from_utf8_lossy(&listed.stderr);
    assert!(!listed.status.success() && said.contains("not UTF-8"), "{listed:?}");
    feed.end().await;
}
