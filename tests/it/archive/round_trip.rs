//! A whole store goes into an archive and comes out of it in another place, where it answers as before.
use super::done;
use crate::{
    access::Random,
    support::{TestApp, invariants, say, searches::ask, until},
};
use serde_json::{Value, json};
use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};
use svc_client::{Json, wire::NewBatch};

/// How many documents go; SVC_TEST_ROUND_TRIP_NODES names another number.
const NODES: usize = 300;

/// How many documents are created at once; the first of them is the folder of the others.
const AT_ONCE: usize = 100;
const METHODS: [&str; 4] = ["vector", "bm25", "fulltext", "hybrid"];
/// How many queries each method is asked.
const QUERIES: usize = 50;
const LIMIT: usize = 10;
/// Up to so many documents all vectors are compared. Beyond, two indexes of the same vectors may each miss others of the nearest.
const COMPARED: usize = 10_000;
/// Up to so many documents a hybrid search reads all that have a word of a query. Beyond, it leaves out some of those that are equally good.
const FUSED: usize = 500;
const SYLLABLES: [&str; 16] =
    ["ba", "ke", "li", "mo", "nu", "ra", "se", "ti", "vo", "zu", "fa", "ge", "hi", "jo", "du", "pe"];

/// Words of a language of 256.
fn words(random: &mut Random, count: usize) -> String {
    let mut syllable = || SYLLABLES[random.below(SYLLABLES.len())];
    let words: Vec<String> = (0..count).map(|_| format!("{}{}", syllable(), syllable())).collect();
    words.join(" ")
}

async fn fill(app: &TestApp, random: &mut Random, all: usize) {
    for first in (0..all).step_by(AT_ONCE) {
        let mut documents = Vec::new();
        for number in first..all.min(first + AT_ONCE) {
            let length = 8 + random.below(13);
            let mut document =
                json!({"title": format!("Note {number}"), "content": words(random, length), "key": number.to_string()});
            if number > first {
                document["parent_key"] = first.to_string().into();
            }
            documents.push(document);
        }
        let batch: NewBatch = serde_json::from_value(json!({"documents": documents})).unwrap();
        app.client.create_documents(Json(batch)).await.unwrap();
    }
}

/// Waits until every task is done, for as long as there are fewer and fewer.
async fn drained(app: &TestApp) {
    let unfinished = async || -> i64 {
        let count = "SELECT count(*) FROM task_queue WHERE NOT final";
        sqlx::query_scalar(count).fetch_one(&app.pool).await.unwrap()
    };
    let mut left = i64::MAX;
    while left > 0 {
        let before = left;
        left = until("fewer tasks", async || Some(unfinished().await).filter(|now| *now < before)).await;
    }
}

/// The best results by score and title. Of those that are as good as the last one others may be cut off.
async fn best(app: &TestApp, method: &str, query: &str) -> BTreeSet<(String, String)> {
    let found = ask(&app.client, method, &json!({"query": query, "limit": LIMIT})).await.unwrap();
    let found = serde_json::to_value(found).unwrap();
    let of = |result: &Value| {
        (format!("{:.5}", result["score"].as_f64().unwrap()), result["title"].as_str().unwrap().to_owned())
    };
    let mut results: Vec<(String, String)> = found["results"].as_array().unwrap().iter().map(of).collect();
    if results.len() == LIMIT
        && let Some((last, _)) = results.last().cloned()
    {
        results.retain(|(score, _)| *score != last);
    }
    results.into_iter().collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_searches_are_answered_alike_after_an_export_and_an_import() {
    let named: Option<usize> =
        std::env::var("SVC_TEST_ROUND_TRIP_NODES").ok().map(|number| number.parse().expect("a number of documents"));
    let (all, mut random) = (named.unwrap_or(NODES), Random(6_700_417));
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("archive");
    let app = TestApp::start().await;
    let begun = Instant::now();
    fill(&app, &mut random, all).await;
    drained(&app).await;
    let (filled, begun) = (begun.elapsed(), Instant::now());
    let exported = done(&app, &["export", archive.to_str().unwrap()]).await;
    assert!(exported["counts"]["documents"].as_u64() >= Some(all as u64), "{exported}");
    let came_out = begun.elapsed();
    let other = TestApp::start().await;
    let begun = Instant::now();
    let imported = done(&other, &["import", archive.to_str().unwrap()]).await;
    assert_eq!(
        (&imported["documents"], &imported["vectors"]),
        (&exported["counts"]["documents"], &exported["counts"]["vectors"]),
        "{imported}"
    );
    let went_in = begun.elapsed();
    drained(&other).await;
    invariants::check_drained(&other.pool).await;

    let (mut seen, mut alike, mut near, mut near_again) = (0, 0, 0, 0);
    for _ in 0..QUERIES {
        let query = words(&mut random, 3);
        for method in METHODS {
            let (was, is) = (best(&app, method, &query).await, best(&other, method, &query).await);
            seen += was.len();
            alike += usize::from(was == is);
            let is_exact = match method {
                "vector" => all <= COMPARED,
                "hybrid" => all <= FUSED,
                _ => true,
            };
            if is_exact {
                assert_eq!(is, was, "{method}: {query}");
            } else {
                // A result that one index misses moves the ranks of others, by which a hybrid search scores.
                let titles = |of: &BTreeSet<(String, String)>| of.iter().map(|(_, title)| title.clone()).collect();
                let (was, is): (BTreeSet<String>, BTreeSet<String>) = (titles(&was), titles(&is));
                near += was.len();
                near_again += was.intersection(&is).count();
            }
        }
    }
    if named.is_some() {
        let rate =
            |took: Duration| format!("{:.0} s, {:.0} a second", took.as_secs_f64(), all as f64 / took.as_secs_f64());
        say(&format!(
            "{all} documents: made and embedded in {}; exported in {}; imported in {}\n{alike} of {} searches are answered exactly alike, and of \
             those through two indexes of vectors {near_again} of {near} results are found again (goal: 200 searches alike, and 95 % there)",
            rate(filled),
            rate(came_out),
            rate(went_in),
            QUERIES * METHODS.len(),
        ));
    }
    assert!(seen > QUERIES * LIMIT, "{seen} results are too few to tell");
    assert!(near_again * 100 >= near * 95, "{near_again} of {near} are found again");
    app.end().await;
    other.end().await;
}
