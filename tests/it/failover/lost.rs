//! A failover that lost commits: a process that lived through it answers as one that starts afterwards, and nobody is told that anything broke.
use super::{kill, passes};
use crate::support::{
    TestApp, Wish, document,
    proxy::{Proxy, Weather},
    say,
    searches::ask,
    server,
    standby::Standby,
    until,
};
use serde_json::{Value, json};
use sqlx::{PgPool, postgres::PgConnectOptions};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use svc::search::bm25;
use svc_client::{
    Json,
    wire::{Bm25Search, WaitQuery},
};
use svc_ids::IndexId;

/// How many failovers there are; SVC_TEST_FAILOVERS names another number.
const FAILOVERS: usize = 1;
/// How many documents are written before the standby is cut off, and again by each server from there on.
const DOCUMENTS: usize = 6;
/// How many writes are acknowledged after a standby took the primary's place.
const WRITES: usize = 5;
const METHODS: [&str; 4] = ["bm25", "fulltext", "vector", "hybrid"];
/// Words that all documents have, that those of one server have, and both.
const QUERIES: [&str; 6] = ["heron", "reeds", "harbour", "mountain", "heron in the harbour", "heron on the mountain"];

/// What every search answers.
async fn answers(app: &TestApp) -> Vec<(String, Value)> {
    let mut all = Vec::new();
    for method in METHODS {
        for query in QUERIES {
            let found = ask(&app.client, method, &json!({"query": query, "limit": 100})).await.unwrap();
            let found = serde_json::to_value(found).unwrap();
            all.push((format!("{method}: {query}"), found["results"].clone()));
        }
    }
    all
}

/// Seals all postings of the default index; returns its generation.
async fn sealed(pool: &PgPool) -> i64 {
    let index: IndexId =
        sqlx::query_scalar("SELECT id FROM search_indexes WHERE name = 'default'").fetch_one(pool).await.unwrap();
    let done = bm25::compact(pool, index).await.unwrap();
    assert!(!done.busy && done.batches == 1, "{done:?}");
    let generation = sqlx::query_scalar("SELECT generation FROM search_indexes WHERE id = $1").bind(index);
    generation.fetch_one(pool).await.unwrap()
}

async fn written(app: &TestApp, name: &str, place: &str) {
    for number in 0..DOCUMENTS {
        let text = format!("The heron number {number} waits {place}.").repeat(1 + number % 3);
        app.create(&format!("{name} {number}"), &text, None).await;
    }
}

/// Waits until no task is left to do.
async fn drained(app: &TestApp) {
    until("all tasks to end", async || {
        let left = "SELECT count(*) FROM task_queue WHERE NOT final";
        let left: i64 = sqlx::query_scalar(left).fetch_one(&app.pool).await.ok()?;
        (left == 0).then_some(())
    })
    .await;
}

/// The process that lived through it against one that starts now, on the same server.
async fn answers_as_a_fresh_one(app: &TestApp, heir: &Standby) -> usize {
    let options = Some(heir.options.clone());
    let fresh = TestApp::with(Wish { no_worker: true, database: options, ..Wish::default() }).await;
    let (ours, theirs) = (answers(app).await, answers(&fresh).await);
    for ((search, found), (_, expected)) in ours.iter().zip(&theirs) {
        assert_eq!(found, expected, "{search}");
        let mut titles = found.as_array().unwrap().iter().map(|result| result["title"].as_str().unwrap());
        assert!(titles.all(|title| !title.starts_with("Lost")), "{search}: {found}");
    }
    let found_anything = |(_, found): &(String, Value)| found.as_array().is_some_and(|results| !results.is_empty());
    assert!(ours.iter().filter(|answer| found_anything(answer)).count() > METHODS.len(), "{ours:?}");
    fresh.end().await;
    ours.len()
}

/// One failover; returns how many searches were compared, and how many calls were told to come again.
async fn failover(run: usize) -> (usize, usize) {
    let names = [format!("lost-{run}"), format!("lost-{run}-heir")];
    let primary = server::own(&names[0]).await;
    let options = primary.connect_options();
    // Nobody else seals postings here, so that both servers count the same generations.
    let alone = PgPool::connect_with(options.clone()).await.unwrap();
    sqlx::query("INSERT INTO upkeep_turn VALUES ('repair', now() + interval '1 day')").execute(&alone).await.unwrap();
    alone.close().await;
    let heir = Standby::of(&primary, &names[1]).await;
    let socket = options.get_socket().unwrap().join(format!(".s.PGSQL.{}", options.get_port()));
    let address = Proxy::start(socket).await;
    let (user, database) = (options.get_username(), options.get_database().unwrap());
    let through = format!("postgres://{user}@{}/{database}?sslmode=disable", address.address);
    let through: PgConnectOptions = through.parse().unwrap();
    let app = TestApp::with(Wish { database: Some(through), ..Wish::default() }).await;

    written(&app, "Kept", "in the reeds").await;
    drained(&app).await;
    let kept = sealed(&app.pool).await;
    sqlx::query("INSERT INTO upkeep_turn VALUES ('the last that is kept', now())").execute(&app.pool).await.unwrap();
    until("the heir to have what is kept", async || {
        let has = "SELECT EXISTS (SELECT FROM upkeep_turn WHERE name = 'the last that is kept')";
        heir.ask::<bool>(has).await.then_some(())
    })
    .await;
    heir.set("ALTER SYSTEM SET primary_conninfo = ''").await;
    until("the heir to receive no more", async || {
        heir.ask::<bool>("SELECT NOT EXISTS (SELECT FROM pg_stat_wal_receiver)").await.then_some(())
    })
    .await;

    // This is lost, and the process remembers it.
    written(&app, "Lost", "in the harbour").await;
    drained(&app).await;
    let lost = sealed(&app.pool).await;
    assert_eq!(lost, kept + 1);
    let before = answers(&app).await;
    let is_found =
        |(search, found): &(String, Value)| !search.contains("harbour") || found.to_string().contains("Lost");
    assert!(before.iter().all(is_found), "{before:?}");

    let (refused, acknowledged, is_over) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicBool::new(false));
    let call = async {
        for number in 0.. {
            if is_over.load(Ordering::Relaxed) {
                return;
            }
            let text = format!("A heron wades while nobody knows who is the primary, for the time number {number}.");
            let new = Json(document("Caller", &text));
            match app.client.create_document(WaitQuery::default(), new).await {
                Ok(_) => {
                    acknowledged.fetch_add(1, Ordering::Relaxed);
                }
                Err(failure) => {
                    passes(&failure);
                    refused.fetch_add(1, Ordering::Relaxed);
                }
            }
            if let Err(failure) = app.client.search_bm25(Json(Bm25Search::new("heron"))).await {
                passes(&failure);
                refused.fetch_add(1, Ordering::Relaxed);
            }
        }
    };
    let switch = async {
        until("a write", async || (acknowledged.load(Ordering::Relaxed) > 0).then_some(())).await;
        address.set(Weather::Cut);
        kill(&primary);
        until("a call that is refused", async || (refused.load(Ordering::Relaxed) > 0).then_some(())).await;
        assert!(heir.ask::<bool>("SELECT pg_promote()").await);
        let before = acknowledged.load(Ordering::Relaxed);
        address.lead_to(heir.socket());
        address.set(Weather::Fair);
        until("writes at the new primary", async || {
            (acknowledged.load(Ordering::Relaxed) >= before + WRITES).then_some(())
        })
        .await;
        is_over.store(true, Ordering::Relaxed);
    };
    tokio::join!(call, switch);

    drained(&app).await;
    let mut compared = answers_as_a_fresh_one(&app, &heir).await;
    written(&app, "New", "on the mountain").await;
    drained(&app).await;
    compared += answers_as_a_fresh_one(&app, &heir).await;
    // The new server counts the generation that was lost once more, with other postings in it.
    assert_eq!(sealed(&app.pool).await, lost);
    compared += answers_as_a_fresh_one(&app, &heir).await;

    app.end().await;
    primary.stop().await;
    heir.kill();
    drop(heir);
    // Ten pairs of servers would fill a small disk.
    for name in names {
        for place in [server::folder(), server::work_dir()] {
            let _ = std::fs::remove_dir_all(place.join(&name));
        }
    }
    (compared, refused.into_inner())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_lived_through_lost_commits_answers_as_a_fresh_one() {
    let named: Option<usize> =
        std::env::var("SVC_TEST_FAILOVERS").ok().map(|number| number.parse().expect("a number of failovers"));
    let runs = named.unwrap_or(FAILOVERS);
    for run in 1..=runs {
        let (compared, refused) = failover(run).await;
        if named.is_some() {
            say(&format!(
                "failover {run} of {runs}: {compared} searches were answered as by a fresh process (goal: all of each run); {refused} calls \
                 of the switch were told to come again, and none failed otherwise (goal: no 500)"
            ));
        }
    }
}
