//! Events while writers hold their commits, sequencers are killed and readers are cut off.
use super::{create, query};
use crate::{
    access::Random,
    support::{
        PATIENCE, TestApp, Wish,
        proxy::{Proxy, Weather},
        server, until,
    },
    webhooks::Receiver,
};
use futures_util::StreamExt;
use serde_json::json;
use sqlx::{
    PgPool,
    postgres::{PgConnectOptions, PgPoolOptions, PgSslMode},
};
use std::{collections::BTreeSet, time::Duration};
use svc::{
    events::sequencer,
    store::{event_feed, events, transaction},
    webhooks,
};
use svc_client::{
    Client, Json, Meta, Remote,
    wire::{EventKind, NewWebhook},
};
use svc_ids::DocumentId;

const WRITERS: u64 = 8;
const ROUNDS: u64 = 60;
/// The usual and the longest time for which a commit is held, in milliseconds.
const USUAL: usize = 60;
const LONGEST: usize = 5_000;
const CUTS: usize = 100;
const KILLS: u64 = 20;
/// The number in the event after all others.
const LAST: i64 = -1;

/// Records events, holds their commits for random times, one for seconds, and undoes some; returns the numbers that it committed.
async fn write(pool: PgPool, id: i64, writer: u64) -> Vec<i64> {
    let (mut random, mut committed) = (Random(0x9e37_79b9 + writer * 7919), Vec::new());
    let slow = random.below(usize::try_from(ROUNDS).unwrap()) as u64;
    for round in 0..ROUNDS {
        let number = i64::try_from(writer * 1000 + round).unwrap();
        let mut tx = transaction::begin(&pool).await.unwrap();
        let fields = json!({"fields": [number]});
        events::record(&mut tx, EventKind::DocumentUpdated, &[DocumentId(id)], &fields).await.unwrap();
        let held = if round == slow { LONGEST / 2 + random.below(LONGEST / 2) } else { random.below(USUAL) };
        // The time itself is what is tested: a commit comes after those of events that were recorded later.
        tokio::time::sleep(Duration::from_millis(held as u64)).await;
        if random.below(8) == 0 {
            tx.rollback().await.unwrap();
        } else {
            tx.commit().await.unwrap();
            committed.push(number);
        }
    }
    committed
}

/// Ends the connection of whoever numbers, again and again.
async fn kill_sequencers(pool: PgPool) -> u64 {
    let mut killed = 0;
    while killed <= KILLS {
        // A sequencer has time to number some events before it is killed.
        tokio::time::sleep(Duration::from_millis(150)).await;
        killed += kill_sequencer(&pool).await;
    }
    killed
}

/// Ends the connection of whoever numbers, if somebody does; returns how many that were.
async fn kill_sequencer(pool: &PgPool) -> u64 {
    sqlx::query(
        "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND objid = $1::bigint::oid AND granted
            AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
    )
    .bind(0x7376_6307_i64)
    .execute(pool)
    .await
    .unwrap()
    .rows_affected()
}

/// Reads a few events at a time, each time from where it was cut off; returns them with their numbers, and how often it was.
async fn read(client: Client<Remote>) -> (Vec<(i64, i64)>, usize) {
    let (mut random, mut seen, mut last) = (Random(42), Vec::new(), None::<String>);
    let mut cut_off = 0;
    loop {
        let meta = Meta { last_event_id: last.clone(), ..Meta::default() };
        let mut events = client.given(meta).follow_events(query("document.updated", "")).await.unwrap();
        for _ in 0..=random.below(5) {
            let Ok(event) = tokio::time::timeout(PATIENCE, events.next()).await else {
                return (seen, cut_off);
            };
            let event = event.expect("no end").unwrap();
            last = event.id;
            seen.push((event.data.seq, event.data.data["fields"][0].as_i64().unwrap()));
            if event.data.data["fields"][0] == LAST {
                return (seen, cut_off);
            }
        }
        cut_off += 1;
    }
}

/// A number given at the insert would fail here: a transaction that is held longer commits a smaller one after a greater.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_is_cut_off_sees_every_commit_once_whatever_is_killed() {
    let settings: &[(&str, &str)] = &[("SVC_WEBHOOK_PRIVATE", "true")];
    let app = TestApp::with(Wish { no_worker: true, settings, ..Wish::default() }).await;
    let mut tasks: Vec<_> = (0..3).map(|_| sequencer::start(app.pool.clone())).collect();
    tasks.push(webhooks::start(app.pool.clone(), &app.service.settings));
    let receiver = Receiver::start().await;
    let kinds = Some("document.updated".to_owned());
    let webhook = NewWebhook { url: receiver.url.clone(), kinds, root: None };
    app.client.create_webhook(Json(webhook)).await.unwrap();
    let id = create(&app, None).await;

    let killer = tokio::spawn(kill_sequencers(app.pool.clone()));
    let reader = tokio::spawn(read(app.client.clone()));
    let writers: Vec<_> = (0..WRITERS).map(|writer| tokio::spawn(write(app.pool.clone(), id, writer))).collect();
    let mut committed = BTreeSet::new();
    for writer in writers {
        committed.extend(writer.await.unwrap());
    }
    assert!(killer.await.unwrap() > KILLS);
    let mut conn = app.pool.acquire().await.unwrap();
    let last = json!({"fields": [LAST]});
    events::record(&mut conn, EventKind::DocumentUpdated, &[DocumentId(id)], &last).await.unwrap();
    drop(conn);

    let (seen, cut_off) = reader.await.unwrap();
    assert!(cut_off >= CUTS, "{cut_off}");
    assert!(seen.is_sorted_by(|a, b| a.0 < b.0), "in order: {seen:?}");
    let numbers: Vec<i64> = seen.iter().map(|(_, number)| *number).filter(|number| *number >= 0).collect();
    assert_eq!(numbers.len(), committed.len(), "each once");
    assert_eq!(numbers.into_iter().collect::<BTreeSet<_>>(), committed);
    let (count, first, newest): (i64, i64, i64) =
        sqlx::query_as("SELECT count(*), min(seq), max(seq) FROM event_outbox").fetch_one(&app.pool).await.unwrap();
    assert_eq!((first, newest), (1, count), "numbers have no gaps");

    committed.insert(LAST);
    let called = until("all calls of the webhook", async || {
        let numbers: BTreeSet<i64> =
            receiver.seen().iter().map(|call| call.json()["data"]["data"]["fields"][0].as_i64().unwrap()).collect();
        (numbers.len() >= committed.len()).then_some(numbers)
    });
    assert_eq!(called.await, committed, "the webhook is told of each at least once");
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
    app.end().await;
}

/// A database's host that vanishes closes no connection.
#[tokio::test]
async fn events_are_numbered_again_after_the_database_fell_silent() {
    let known = server::new_database().await;
    let direct = PgPoolOptions::new().connect_with(known.clone()).await.unwrap();
    let socket = known.get_socket().unwrap().join(format!(".s.PGSQL.{}", known.get_port()));
    let proxy = Proxy::start(socket).await;
    let behind = PgConnectOptions::new_without_pgpass()
        .host("127.0.0.1")
        .port(proxy.address.port())
        .username(known.get_username())
        .database(known.get_database().unwrap())
        .ssl_mode(PgSslMode::Disable);
    let pool = PgPoolOptions::new().connect_with(behind).await.unwrap();
    let task = sequencer::start_with(pool.clone(), Duration::from_secs(2));
    let made = "INSERT INTO documents (path, title, content, usetype, content_hash, guard) VALUES ('{}', 't', 'c', 'markdown', 'sha256:', 0) RETURNING id";
    let id: DocumentId = sqlx::query_scalar(made).fetch_one(&direct).await.unwrap();
    let numbered = async |count: i64| {
        let mut conn = direct.acquire().await.unwrap();
        events::record(&mut conn, EventKind::DocumentUpdated, &[id], &json!({})).await.unwrap();
        until("the event's number", async || {
            (event_feed::kept(&mut conn).await.unwrap().newest == count).then_some(())
        })
        .await;
    };
    numbered(1).await;
    proxy.set(Weather::Blackhole);
    pool.set_connect_options(known);
    // The server gives up a client that vanished.
    until("the end of who numbered", async || (kill_sequencer(&direct).await == 1).then_some(())).await;
    numbered(2).await;
    task.abort();
}
