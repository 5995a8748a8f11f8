//! Terms that no document has any more.
use super::{find, plain_index, put, take, texts};
use crate::support::PATIENCE;
use sqlx::PgPool;
use std::sync::atomic::{AtomicBool, Ordering};
use svc::{
    search::bm25::{self, Allowed, PurgedTerms},
    store::indexes,
};
use svc_ids::IndexId;
use svc_ranking::Cache;

async fn purged(pool: &PgPool, index: IndexId) -> PurgedTerms {
    bm25::purge_terms(pool, index).await.expect("purged")
}

async fn found(pool: &PgPool, cache: &Cache, index: IndexId, query: &str) -> Vec<i64> {
    find(pool, cache, index, query, 9, Allowed::All).await.into_iter().map(|hit| hit.document_id.0).collect()
}

#[tokio::test]
async fn the_terms_of_documents_that_are_gone_go_after_their_postings_and_may_come_again() {
    let pool = crate::support::server::new_pool().await;
    let cache = Cache::new(1 << 20);
    let (index, _) = plain_index(&pool, "purged").await;
    put(&pool, &cache, index, &[(1, "heron 4711".to_owned()), (2, "heron coot".to_owned())]).await;
    bm25::compact(&pool, index).await.expect("compacted");
    assert_eq!(take(&pool, &[1]).await, 1);
    assert_eq!(purged(&pool, index).await, PurgedTerms::default(), "its postings are still there");
    bm25::compact(&pool, index).await.expect("compacted");
    assert_eq!(purged(&pool, index).await, PurgedTerms { busy: false, terms: 1 });
    let left: Vec<String> = sqlx::query_scalar("SELECT term FROM search_term_stats WHERE index_id = $1 ORDER BY term")
        .bind(index)
        .fetch_all(&pool)
        .await
        .expect("read");
    assert_eq!(left, ["coot", "heron"]);

    // This process remembers the id that the term had.
    let again = [(3, "4711".to_owned())];
    let stale = bm25::prepare(&pool, &cache, index, texts(&again)).await.expect("prepared");
    let mut tx = pool.begin().await.expect("begun");
    let refused = bm25::replace(&mut tx, &stale).await.expect_err("stale");
    assert!(matches!(refused, bm25::Error::StaleTerms(of) if of == index), "{refused}");
    tx.rollback().await.expect("rolled back");
    cache.forget_term_ids();
    put(&pool, &cache, index, &again).await;
    assert_eq!(found(&pool, &cache, index, "4711").await, [3]);
    assert_eq!(found(&pool, &cache, index, "heron").await, [2]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_term_that_is_being_written_again_stays() {
    let pool = crate::support::server::new_pool().await;
    let cache = Cache::new(1 << 20);
    let (index, _) = plain_index(&pool, "written").await;
    put(&pool, &cache, index, &[(1, "heron 4711".to_owned()), (2, "heron".to_owned())]).await;
    assert_eq!(take(&pool, &[1]).await, 1);
    bm25::compact(&pool, index).await.expect("compacted");
    let again = bm25::prepare(&pool, &cache, index, texts(&[(3, "4711 bittern".to_owned())])).await.expect("prepared");
    let mut writing = pool.begin().await.expect("begun");
    bm25::replace(&mut writing, &again).await.expect("replaced");
    assert_eq!(purged(&pool, index).await, PurgedTerms { busy: true, terms: 0 });
    writing.commit().await.expect("committed");
    assert_eq!(purged(&pool, index).await, PurgedTerms::default(), "it has postings again");
    assert_eq!(found(&pool, &cache, index, "4711").await, [3]);
    assert_eq!(found(&pool, &cache, index, "bittern").await, [3]);
}

#[tokio::test]
async fn terms_that_were_prepared_and_never_written_go_at_the_second_purge() {
    let pool = crate::support::server::new_pool().await;
    let cache = Cache::new(1 << 20);
    let (index, _) = plain_index(&pool, "prepared").await;
    let pairs = [(1, "bittern 4711".to_owned())];
    let prepared = bm25::prepare(&pool, &cache, index, texts(&pairs)).await.expect("prepared");
    assert_eq!(purged(&pool, index).await, PurgedTerms::default(), "it may be about to be written");
    put(&pool, &cache, index, &[(2, "bittern".to_owned())]).await;
    bm25::prepare(&pool, &cache, index, texts(&[(3, "coot".to_owned())])).await.expect("prepared");
    assert_eq!(purged(&pool, index).await, PurgedTerms { busy: false, terms: 1 }, "one was written and one is new");
    let mut tx = pool.begin().await.expect("begun");
    let refused = bm25::replace(&mut tx, &prepared).await.expect_err("stale");
    assert!(matches!(refused, bm25::Error::StaleTerms(of) if of == index), "{refused}");
    tx.rollback().await.expect("rolled back");
    cache.forget_term_ids();
    put(&pool, &cache, index, &pairs).await;
    assert_eq!(found(&pool, &cache, index, "4711").await, [1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_purge_gives_way_to_writers_that_overlap() {
    let pool = crate::support::server::new_pool().await;
    let cache = Cache::new(1 << 20);
    let (index, _) = plain_index(&pool, "overlapping").await;
    put(&pool, &cache, index, &[(1, "heron 4711".to_owned()), (2, "heron".to_owned())]).await;
    assert_eq!(take(&pool, &[1]).await, 1);
    bm25::compact(&pool, index).await.expect("compacted");
    let holding = async || {
        let mut tx = pool.begin().await.expect("begun");
        indexes::hold(&mut tx, index).await.expect("held").expect("there");
        tx
    };
    let mut held = holding().await;
    let is_over = AtomicBool::new(false);
    let writing = async {
        while !is_over.load(Ordering::Relaxed) {
            // The next one holds the index before this one ends.
            let next = holding().await;
            std::mem::replace(&mut held, next).commit().await.expect("committed");
        }
        held.commit().await.expect("committed");
    };
    let purging = async {
        let purged = tokio::time::timeout(PATIENCE, purged(&pool, index)).await;
        is_over.store(true, Ordering::Relaxed);
        purged.expect("it ends")
    };
    let (purged_meanwhile, ()) = tokio::join!(purging, writing);
    assert_eq!(purged_meanwhile, PurgedTerms { busy: true, terms: 0 });
    assert_eq!(purged(&pool, index).await, PurgedTerms { busy: false, terms: 1 });
}
