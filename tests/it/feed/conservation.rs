//! The law of the feed: whatever is killed, each message that the broker confirmed ends in one outcome.
use crate::{
    crash::{Process, serve_command},
    feed::{answering, count, hash, note, plain},
    support::{
        TestApp, Wish,
        broker::{self, Broker, Producer},
        say, server, until,
    },
};
use rustix::process::{Pid, Signal, kill_process};
use std::{
    collections::{BTreeMap, BTreeSet},
    time::Instant,
};

/// Enough for the kills to meet messages in every state, at some hundred a second; SVC_TEST_MESSAGES names another number.
fn messages() -> usize {
    std::env::var("SVC_TEST_MESSAGES").ok().and_then(|number| number.parse().ok()).unwrap_or(400)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kills_of_service_broker_and_database_lose_no_message_and_store_none_twice() {
    let Some(mut broker) = tokio::task::spawn_blocking(Broker::start).await.unwrap() else { return };
    let database = server::own("law").await;
    let wish = Wish { no_worker: true, database: Some(database.connect_options()), ..Wish::default() };
    let app = TestApp::with(wish).await;
    let begun = Instant::now();
    answering(&app, "producer", "guest").await;
    let (url, prefix) = (broker::url(broker.address), broker::prefix());
    let serve = || {
        let mut command = serve_command(&app);
        command.env("SVC_AMQP_URL", &url).env("SVC_AMQP_PREFIX", &prefix).env("SVC_LOG_LEVEL", "error");
        // Nothing works on the tasks, which would stop the feed once there are too many.
        command.env("SVC_BULK_HIGH_WATER", "1000000");
        Process(command.stdout(std::process::Stdio::null()).spawn().unwrap())
    };
    let all = messages();
    let mut service = serve();
    let producer = Producer::connect(&url, &prefix).await;
    let mut expected = BTreeMap::new();
    for number in 0..all {
        // Of ten messages one brings the bytes of another, one has a wrong hash, and one comes twice.
        let (id, bytes) = (format!("m{number}"), note(10_000 + if number % 10 == 7 { number - 1 } else { number }));
        let is_wrong = number % 10 == 3;
        let said = if is_wrong { "something else".to_owned() } else { bytes.clone() };
        for _ in 0..1 + usize::from(number % 10 == 5) {
            producer.publish(plain(&id, said.as_bytes(), &[]), bytes.as_bytes()).await;
        }
        expected.insert(id, (hash(bytes.as_bytes()), is_wrong));
    }
    drop(producer);
    let done = async |part: usize| {
        let most = (all * part / 8) as i64;
        // The connections of the test are ended too.
        let ask = || sqlx::query_scalar("SELECT count(*) FROM bulk_message").fetch_one(&app.pool);
        until("some messages are done", async || ask().await.ok().filter(|done: &i64| *done >= most)).await;
    };
    done(1).await;
    service.kill();
    service = serve();
    done(2).await;
    let broker = tokio::task::spawn_blocking(move || {
        broker.crash();
        broker
    })
    .await
    .unwrap();
    done(3).await;
    let backends = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()";
    let hurt =
        async || until("the connections end", async || sqlx::query(backends).execute(&app.pool).await.ok()).await;
    // The server dies as in a crash, and what watches it starts it again on what it had written.
    let kill_database = async || {
        let pid = database.server_pid().and_then(|pid| Pid::from_raw(pid.try_into().unwrap())).unwrap();
        kill_process(pid, Signal::KILL).unwrap();
        let is_back = async || {
            let is_another = database.server_pid().is_some_and(|now| now != pid.as_raw_nonzero().get().unsigned_abs());
            (is_another && sqlx::query("SELECT 1").execute(&app.pool).await.is_ok()).then_some(())
        };
        until("the database is back", is_back).await;
    };
    kill_database().await;
    done(4).await;
    hurt().await;
    done(5).await;
    service.kill();
    service = serve();
    done(6).await;
    // All three at once.
    service.kill();
    let (broker, ()) = tokio::join!(
        async {
            let crashed = tokio::task::spawn_blocking(move || {
                let mut broker = broker;
                broker.crash();
                broker
            });
            crashed.await.unwrap()
        },
        kill_database(),
    );
    service = serve();
    done(8).await;
    let producer = Producer::connect(&url, &prefix).await;
    until("every message is answered", async || (producer.depth("upload").await == 0).then_some(())).await;
    let wrong: BTreeSet<String> =
        expected.iter().filter(|(_, (_, is_wrong))| *is_wrong).map(|(id, _)| id.clone()).collect();
    let mut dead = BTreeSet::new();
    while let Some(message) = producer.get(&format!("{prefix}.dead")).await {
        dead.insert(message.properties.message_id().as_ref().unwrap().to_string());
    }
    service.kill();
    drop(broker);

    let rows: Vec<(String, String, Option<String>, Option<i64>)> =
        sqlx::query_as("SELECT message_id, outcome, sha256, document_id FROM bulk_message")
            .fetch_all(&app.pool)
            .await
            .unwrap();
    assert_eq!(rows.len(), all, "one outcome for each message");
    for (id, outcome, sha256, document_id) in &rows {
        let (hash, is_wrong) = &expected[id];
        assert_eq!(outcome == "rejected", *is_wrong, "{id} is {outcome}");
        assert_eq!(document_id.is_none(), *is_wrong);
        assert!(*is_wrong || sha256.as_deref() == Some(format!("sha256:{hash}").as_str()), "{id}");
    }
    // A broker that is killed while it buries a message may bury it again.
    assert_eq!(dead, wrong, "what was rejected is dead, and nothing else is");
    let files = count(&app.pool, "document_blobs").await;
    let hashes = count(&app.pool, "(SELECT DISTINCT sha256 FROM bulk_message WHERE outcome <> 'rejected') h").await;
    assert_eq!((files, count(&app.pool, "documents").await), (hashes, hashes), "one document for each file");
    let accepted = count(&app.pool, "bulk_message WHERE outcome = 'accepted'").await;
    assert_eq!(accepted, hashes, "each was accepted once");
    let duplicate = count(&app.pool, "bulk_message WHERE outcome = 'duplicate'").await;
    say(&format!(
        "the law of the feed: {all} messages confirmed = {accepted} accepted + {duplicate} duplicate + {} rejected and dead, none queued, with kills of service, broker and database in {:.0} s",
        dead.len(),
        begun.elapsed().as_secs_f64()
    ));
    app.end().await;
    database.stop().await;
}
