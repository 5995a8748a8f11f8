//! Tests BM25 with PostgreSQL; each case has an empty, migrated database.

mod added;
mod answers;
mod foreseen;
mod languages;
mod naive;
mod refusals;
mod terms;

use answers::{Listing, Passing};
use naive::{Naive, Random, assert_same};
use sqlx::PgPool;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};
use svc::search::bm25::{self, Allowed, Hit, Text};
use svc_ids::{DocumentId, IndexId};
use svc_ranking::{AnalyzerConfig, Cache, Config, Language};

fn texts(pairs: &[(i64, String)]) -> Vec<Text> {
    pairs.iter().map(|(id, text)| Text::new(DocumentId(*id), "chunk", "", text, &[])).collect()
}

async fn create(pool: &PgPool, name: &str, config: &Config) -> IndexId {
    sqlx::query_scalar("INSERT INTO search_indexes (name, config) VALUES ($1, $2) RETURNING id")
        .bind(name)
        .bind(sqlx::types::Json(config))
        .fetch_one(pool)
        .await
        .expect("created")
}

async fn plain_index(pool: &PgPool, name: &str) -> (IndexId, Config) {
    let config: Config = Config {
        analyzer: AnalyzerConfig { language: Language::None, ..AnalyzerConfig::default() },
        ..Config::default()
    };
    (create(pool, name, &config).await, config)
}

pub(crate) async fn put(pool: &PgPool, cache: &Cache, index: IndexId, pairs: &[(i64, String)]) {
    let prepared = bm25::prepare(pool, cache, index, texts(pairs)).await.expect("prepared");
    let mut tx = pool.begin().await.expect("begun");
    bm25::replace(&mut tx, &prepared).await.expect("replaced");
    tx.commit().await.expect("committed");
}

pub(crate) async fn take(pool: &PgPool, ids: &[i64]) -> i64 {
    let ids: Vec<DocumentId> = ids.iter().copied().map(DocumentId).collect();
    let mut tx = pool.begin().await.expect("begun");
    let taken = bm25::remove(&mut tx, None, &ids).await.expect("removed");
    tx.commit().await.expect("committed");
    taken
}

async fn find(
    pool: &PgPool,
    cache: &Cache,
    index: IndexId,
    query: &str,
    limit: usize,
    allowed: Allowed<'_>,
) -> Vec<Hit> {
    let name: String = sqlx::query_scalar("SELECT name FROM search_indexes WHERE id = $1")
        .bind(index)
        .fetch_one(pool)
        .await
        .expect("there");
    bm25::search(pool, cache, &name, query.into(), limit, allowed)
        .await
        .expect("searched")
        .expect("there is such an index")
}

async fn leftovers(pool: &PgPool, index: IndexId) -> (i64, i64, i64) {
    sqlx::query_as(
        "SELECT (SELECT count(*) FROM search_term_postings WHERE index_id = $1 AND NOT sealed),
                (SELECT count(*) FROM search_term_tombstones WHERE index_id = $1),
                (SELECT count(*) FROM search_index_deltas WHERE index_id = $1)",
    )
    .bind(index)
    .fetch_one(pool)
    .await
    .expect("counted")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_interleaving_ranks_like_a_naive_index() {
    let pool = crate::support::server::new_pool().await;
    let cache = Cache::new(1 << 20);
    for seed in 1..=5u64 {
        let (index, config) = plain_index(&pool, &format!("seed {seed}")).await;
        let mut naive = Naive::new(config);
        let mut random = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        for step in 0..60 {
            match random.below(8) {
                0..=2 => {
                    let pairs: BTreeMap<i64, String> = (0..1 + random.below(30))
                        .map(|_| (seed as i64 * 1_000 + random.below(200) as i64, random.text(40, 30)))
                        .collect();
                    let pairs: Vec<(i64, String)> = pairs.into_iter().collect();
                    put(&pool, &cache, index, &pairs).await;
                    pairs.iter().for_each(|(id, text)| naive.put(*id, text));
                }
                3 => {
                    let ids: BTreeSet<i64> = (0..20).map(|_| seed as i64 * 1_000 + random.below(200) as i64).collect();
                    let ids: Vec<i64> = ids.into_iter().collect();
                    let there = ids.iter().filter(|id| naive.texts.remove(id).is_some()).count();
                    assert_eq!(take(&pool, &ids).await, there as i64);
                }
                4 => {
                    bm25::compact(&pool, index).await.expect("compacted");
                    assert_eq!(leftovers(&pool, index).await, (0, 0, 0));
                }
                _ => {
                    let query = random.text(45, 6);
                    let limit = 1 + random.below(30) as usize;
                    let what = format!("seed {seed} step {step} {query:?}");
                    let all = find(&pool, &cache, index, &query, limit, Allowed::All).await;
                    assert_same(&all, &naive.search(&query, limit, |_| true), &what);
                    let ids = (seed as i64 * 1_000..seed as i64 * 1_000 + 210)
                        .filter(|id| id % 3 == 0)
                        .map(DocumentId)
                        .collect();
                    let some = find(
                        &pool,
                        &cache,
                        index,
                        &query,
                        limit,
                        Allowed::Verify(&Listing { ids, after: random.below(40) as usize }),
                    )
                    .await;
                    assert_same(&some, &naive.search(&query, limit, |id| id % 3 == 0), &what);
                    let odd = Passing { pass: |id| id % 5 == 0, asked: AtomicUsize::new(0) };
                    let few = find(&pool, &cache, index, &query, limit, Allowed::Verify(&odd)).await;
                    assert_same(&few, &naive.search(&query, limit, |id| id % 5 == 0), &what);
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_appends_and_compaction_lose_nothing() {
    let pool = crate::support::server::new_pool().await;
    let cache = Arc::new(Cache::new(1 << 20));
    let (index, config) = plain_index(&pool, "busy").await;
    let done = Arc::new(AtomicBool::new(false));
    let committed = Arc::new(AtomicUsize::new(0));
    let compacting = tokio::spawn({
        let (pool, done) = (pool.clone(), Arc::clone(&done));
        async move {
            while !done.load(Ordering::Acquire) {
                bm25::compact(&pool, index).await.expect("compacted");
            }
        }
    });
    let searching = tokio::spawn({
        let (pool, cache, done, committed) =
            (pool.clone(), Arc::clone(&cache), Arc::clone(&done), Arc::clone(&committed));
        async move {
            while !done.load(Ordering::Acquire) {
                let before = committed.load(Ordering::Acquire);
                let found = find(&pool, &cache, index, "everywhere", 10_000, Allowed::All).await;
                assert!(found.len() >= before, "{} of at least {before}", found.len());
                let ids: BTreeSet<DocumentId> = found.iter().map(|hit| hit.document_id).collect();
                assert_eq!(ids.len(), found.len(), "a document came twice");
            }
        }
    });
    let writers: Vec<_> = (0..8i64)
        .map(|task| {
            let (pool, cache, committed) = (pool.clone(), Arc::clone(&cache), Arc::clone(&committed));
            tokio::spawn(async move {
                let mut random = Random(task as u64 + 77);
                let mut written = vec![];
                for batch in 0..20i64 {
                    // Each batch brings its own terms, and terms that other writers intern at the same moment.
                    let pairs: Vec<(i64, String)> = (0..5)
                        .map(|i| {
                            let text = format!("everywhere b{batch} t{task}b{batch} {}", random.text(200, 20));
                            (task * 1_000 + batch * 5 + i, text)
                        })
                        .collect();
                    put(&pool, &cache, index, &pairs).await;
                    committed.fetch_add(pairs.len(), Ordering::AcqRel);
                    written.extend(pairs);
                }
                written
            })
        })
        .collect();
    let mut naive = Naive::new(config);
    for writer in writers {
        for (id, text) in writer.await.expect("a writer") {
            naive.put(id, &text);
        }
    }
    done.store(true, Ordering::Release);
    compacting.await.expect("the compaction");
    searching.await.expect("the searches");
    for sealed in [false, true] {
        for query in ["everywhere", "b3 t5b3 w0", "w1 w2 w150", "t0b0"] {
            let found = find(&pool, &cache, index, query, 2_000, Allowed::All).await;
            assert_same(&found, &naive.search(query, 2_000, |_| true), query);
        }
        if !sealed {
            bm25::compact(&pool, index).await.expect("compacted");
            assert_eq!(leftovers(&pool, index).await, (0, 0, 0));
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn documents_that_are_indexed_anew_meanwhile_are_found_all_along() {
    let pool = crate::support::server::new_pool().await;
    let cache = Arc::new(Cache::new(1 << 20));
    let (index, _) = plain_index(&pool, "anew").await;
    let pairs: Vec<(i64, String)> = (1..=40).map(|id| (id, format!("everywhere w{id}"))).collect();
    put(&pool, &cache, index, &pairs).await;
    let done = Arc::new(AtomicBool::new(false));
    let writing = tokio::spawn({
        let (pool, cache, done) = (pool.clone(), Arc::clone(&cache), Arc::clone(&done));
        async move {
            while !done.load(Ordering::Acquire) {
                put(&pool, &cache, index, &pairs).await;
            }
        }
    });
    for _ in 0..300 {
        let found = find(&pool, &cache, index, "everywhere", 100, Allowed::All).await;
        assert_eq!(found.len(), 40);
    }
    done.store(true, Ordering::Release);
    writing.await.expect("the writer");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_commit_lands_between_sealed_documents() {
    let pool = crate::support::server::new_pool().await;
    let cache = Cache::new(1 << 20);
    let (index, config) = plain_index(&pool, "late").await;
    let mut naive = Naive::new(config);
    let mut batch = |ids: std::ops::Range<i64>| -> Vec<(i64, String)> {
        let pairs: Vec<(i64, String)> =
            ids.map(|id| (id, format!("common {}", Random(id as u64 + 5).text(9, 12)))).collect();
        pairs.iter().for_each(|(id, text)| naive.put(*id, text));
        pairs
    };
    put(&pool, &cache, index, &batch(0..300)).await;
    // This one numbers its documents now, and commits after later documents were sealed.
    let prepared = bm25::prepare(&pool, &cache, index, texts(&batch(300..350))).await.expect("prepared");
    let mut late = pool.begin().await.expect("begun");
    bm25::append(&mut late, &prepared).await.expect("appended");
    put(&pool, &cache, index, &batch(350..700)).await;
    bm25::compact(&pool, index).await.expect("compacted");
    late.commit().await.expect("committed");
    for _ in 0..2 {
        let found = find(&pool, &cache, index, "common w3", 1_000, Allowed::All).await;
        assert_eq!(found.len(), 700);
        assert_same(&found, &naive.search("common w3", 1_000, |_| true), "late");
        bm25::compact(&pool, index).await.expect("compacted");
        assert_eq!(leftovers(&pool, index).await, (0, 0, 0));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_split_shrink_and_vanish() {
    let pool = crate::support::server::new_pool().await;
    let cache = Cache::new(16 << 20);
    let (index, config) = plain_index(&pool, "rows").await;
    let mut naive = Naive::new(config);
    let mut random = Random(99);
    let mut late = None;
    for start in (0..9_000i64).step_by(1_500) {
        let pairs: Vec<(i64, String)> =
            (start..start + 1_500).map(|id| (id, format!("all {}", random.text(12, 8)))).collect();
        pairs.iter().for_each(|(id, text)| naive.put(*id, text));
        put(&pool, &cache, index, &pairs).await;
        if start == 3_000 {
            let pairs: Vec<(i64, String)> = (20_000..22_600).map(|id| (id, format!("all late w{}", id % 7))).collect();
            pairs.iter().for_each(|(id, text)| naive.put(*id, text));
            let prepared = bm25::prepare(&pool, &cache, index, texts(&pairs)).await.expect("prepared");
            let mut tx = pool.begin().await.expect("begun");
            bm25::append(&mut tx, &prepared).await.expect("appended");
            late = Some(tx);
        }
        bm25::compact(&pool, index).await.expect("compacted");
    }
    late.expect("a transaction").commit().await.expect("committed");
    let check = async |naive: &Naive, what: &str| {
        for query in ["all", "w0 w9", "late w3", "all w11 w1"] {
            let found = find(&pool, &cache, index, query, 25, Allowed::All).await;
            assert_same(&found, &naive.search(query, 25, |_| true), &format!("{what}: {query}"));
        }
    };
    check(&naive, "before").await;
    bm25::compact(&pool, index).await.expect("compacted");
    check(&naive, "sealed").await;
    let every_third: Vec<i64> = (0..9_000).filter(|id| id % 3 == 0).chain(21_000..22_000).collect();
    take(&pool, &every_third).await;
    every_third.iter().for_each(|id| drop(naive.texts.remove(id)));
    check(&naive, "with tombstones").await;
    bm25::compact(&pool, index).await.expect("compacted");
    assert_eq!(leftovers(&pool, index).await, (0, 0, 0));
    check(&naive, "purged").await;
    let nearly_all: Vec<i64> = naive.texts.keys().copied().skip(40).collect();
    take(&pool, &nearly_all).await;
    nearly_all.iter().for_each(|id| drop(naive.texts.remove(id)));
    check(&naive, "nearly empty").await;
    bm25::compact(&pool, index).await.expect("compacted");
    check(&naive, "nearly empty and purged").await;
    let (postings, df): (i64, i64) = sqlx::query_as(
        "SELECT (SELECT sum(n) FROM search_term_postings WHERE index_id = $1)::bigint,
                (SELECT sum(df) FROM search_term_stats WHERE index_id = $1)::bigint",
    )
    .bind(index)
    .fetch_one(&pool)
    .await
    .expect("counted");
    let expected: usize = naive.texts.values().map(BTreeMap::len).sum();
    assert_eq!((postings, df), (expected as i64, expected as i64));
    let (largest,): (i32,) = sqlx::query_as("SELECT max(octet_length(data)) FROM search_term_postings")
        .fetch_one(&pool)
        .await
        .expect("measured");
    assert!(largest < 7_600);
}
