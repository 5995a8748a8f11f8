//! What an index refuses, and what it is after the database was restored.
use super::{find, leftovers, plain_index, put, texts};
use crate::support::until_a_statement_waits;
use std::collections::BTreeSet;
use svc::{
    search::bm25::{self, Allowed, Hit},
    store::indexes::{self, IndexError, manage},
};
use svc_ids::{DocumentId, IndexId};
use svc_ranking::{AnalyzerConfig, Cache, Config};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_refused_is_named_and_leaves_nothing() {
    let pool = crate::support::server::new_pool().await;
    let cache = Cache::new(1 << 20);
    let (index, _) = plain_index(&pool, "refusing").await;
    let one = vec![(1, "alpha beta".to_owned())];
    let prepared = bm25::prepare(&pool, &cache, index, texts(&one)).await.expect("prepared");
    let mut tx = pool.begin().await.expect("begun");
    bm25::append(&mut tx, &prepared).await.expect("appended");
    tx.rollback().await.expect("rolled back");
    assert!(find(&pool, &cache, index, "alpha", 5, Allowed::All).await.is_empty());
    put(&pool, &cache, index, &one).await;
    let mut tx = pool.begin().await.expect("begun");
    let again = bm25::append(&mut tx, &prepared).await.expect_err("twice");
    assert!(matches!(again, bm25::Error::AlreadyIndexed(id) if id == index), "{again}");
    drop(tx);
    assert_eq!(find(&pool, &cache, index, "ALPHA", 5, Allowed::All).await.len(), 1);
    let unknown = bm25::prepare(&pool, &cache, IndexId(4_711), texts(&one)).await.expect_err("no such index");
    assert!(matches!(unknown, bm25::Error::Index(IndexError::Unknown(IndexId(4_711)))), "{unknown}");
    for odd in ["", "   ", "\u{0}", "zzz", "!!!", &"alpha ".repeat(100_000), &"é".repeat(100_000)] {
        let found = find(&pool, &cache, index, odd, 5, Allowed::All).await;
        assert_eq!(found.len(), usize::from(odd.starts_with("alpha")));
    }
    let many: String = (0..20_000).map(|i| format!("q{i} ")).collect::<String>() + &"alpha ".repeat(3);
    assert_eq!(find(&pool, &cache, index, &many, 5, Allowed::All).await.len(), 1);
    assert!(find(&pool, &cache, index, "alpha", 0, Allowed::All).await.is_empty());
    assert_eq!(find(&pool, &cache, index, "alpha", usize::MAX, Allowed::All).await.len(), 1);
    sqlx::query("UPDATE search_term_postings SET data = '\\x0102' WHERE index_id = $1")
        .bind(index)
        .execute(&pool)
        .await
        .expect("broken");
    let corrupt = bm25::search(&pool, &cache, "refusing", "alpha".into(), 5, Allowed::All).await.expect_err("corrupt");
    assert!(matches!(corrupt, bm25::Error::Corrupt { .. }), "{corrupt}");
    let missing = bm25::search(&pool, &cache, "nowhere", "alpha".into(), 5, Allowed::All).await.expect("looked for");
    assert_eq!(missing, None);

    // An entry that its postings outlive is told of, and no document is missing in silence.
    put(&pool, &Cache::new(1 << 20), plain_index(&pool, "dangling").await.0, &one).await;
    sqlx::query(
        "DELETE FROM search_index_entries e USING search_indexes i WHERE i.id = e.index_id AND i.name = 'dangling'",
    )
    .execute(&pool)
    .await
    .expect("broken");
    let dangling =
        bm25::search(&pool, &cache, "dangling", "alpha".into(), 5, Allowed::All).await.expect_err("dangling");
    assert!(matches!(dangling, bm25::Error::Dangling(_)), "{dangling}");
}

/// The tables of all indexes, as in a backup.
const TABLES: [&str; 6] = [
    "search_indexes",
    "search_index_entries",
    "search_index_deltas",
    "search_term_stats",
    "search_term_postings",
    "search_term_tombstones",
];

#[tokio::test]
async fn a_restored_database_is_searched_and_written_as_it_is_and_not_as_it_was() {
    let pool = crate::support::server::new_pool().await;
    let cache = Cache::new(1 << 20);
    let (index, _) = plain_index(&pool, "restored").await;
    put(&pool, &cache, index, &[(1, "common old".to_owned())]).await;
    for table in TABLES {
        let copy = format!("CREATE TABLE backup_{table} AS TABLE {table}");
        sqlx::raw_sql(sqlx::AssertSqlSafe(copy)).execute(&pool).await.unwrap();
    }
    let term: i64 = sqlx::query_scalar("SELECT last_value FROM search_term_seq").fetch_one(&pool).await.unwrap();
    let numbers = format!("search_docno_{index}");
    let docno: i64 = sqlx::query_scalar("SELECT pg_sequence_last_value($1::text::regclass)")
        .bind(&numbers)
        .fetch_one(&pool)
        .await
        .unwrap();

    // What is lost was written, sealed and searched, and so is remembered.
    put(&pool, &cache, index, &[(2, "common lost".to_owned()), (3, "common lost again".to_owned())]).await;
    bm25::compact(&pool, index).await.unwrap();
    assert_eq!(find(&pool, &cache, index, "common", 9, Allowed::All).await.len(), 3);
    for table in TABLES {
        let back = format!("DELETE FROM {table}; INSERT INTO {table} OVERRIDING SYSTEM VALUE TABLE backup_{table}");
        sqlx::raw_sql(sqlx::AssertSqlSafe(back)).execute(&pool).await.unwrap();
    }
    for (sequence, value) in [("search_term_seq", term), (&*numbers, docno)] {
        sqlx::query("SELECT setval($1::text::regclass, $2)").bind(sequence).bind(value).execute(&pool).await.unwrap();
    }

    // Another process writes other documents: the generation is the same, and the ids of terms belonged to others
    // before.
    let other = Cache::new(1 << 20);
    put(&pool, &other, index, &[(4, "common new words".to_owned())]).await;
    bm25::compact(&pool, index).await.unwrap();
    let ids = |hits: Vec<Hit>| hits.into_iter().map(|hit| hit.document_id.0).collect::<BTreeSet<_>>();
    assert_eq!(ids(find(&pool, &cache, index, "common", 9, Allowed::All).await), BTreeSet::from([1, 4]));

    // This process remembers ids of terms that are gone or belong to another term.
    let pairs = [(5, "lost again".to_owned())];
    let stale = bm25::prepare(&pool, &cache, index, texts(&pairs)).await.unwrap();
    let mut tx = pool.begin().await.unwrap();
    let refused = bm25::replace(&mut tx, &stale).await.unwrap_err();
    assert!(matches!(refused, bm25::Error::StaleTerms(of) if of == index), "{refused}");
    tx.rollback().await.unwrap();
    cache.forget_term_ids();
    put(&pool, &cache, index, &pairs).await;
    assert_eq!(ids(find(&pool, &cache, index, "again", 9, Allowed::All).await), BTreeSet::from([5]));
    assert_eq!(ids(find(&pool, &cache, index, "new words", 9, Allowed::All).await), BTreeSet::from([4]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_document_that_is_deleted_while_its_index_is_leaves_nothing_there() {
    let pool = crate::support::server::new_pool().await;
    let cache = Cache::new(1 << 20);
    for is_deleted in [true, false] {
        let (index, config) = plain_index(&pool, &format!("deleted {is_deleted}")).await;
        put(&pool, &cache, index, &[(1, "alpha".to_owned()), (2, "alpha beta".to_owned())]).await;
        let mut deleting = pool.begin().await.unwrap();
        assert_eq!(bm25::remove(&mut deleting, Some(index), &[DocumentId(1)]).await.unwrap(), 1);
        let emptying = async {
            let mut tx = pool.begin().await.unwrap();
            manage::lock(&mut tx, index).await.unwrap();
            if is_deleted {
                manage::delete(&mut tx, index).await.unwrap();
            } else {
                let english = Config { analyzer: AnalyzerConfig::default(), ..config };
                manage::build_anew(&mut tx, index, &config, &english).await.unwrap();
            }
            tx.commit().await.unwrap();
        };
        let committing = async {
            until_a_statement_waits(&pool).await;
            deleting.commit().await.unwrap();
        };
        tokio::join!(emptying, committing);
        assert_eq!(leftovers(&pool, index).await, (0, 0, 0), "deleted: {is_deleted}");
    }
}

#[tokio::test]
async fn tombstones_that_have_to_wait_are_kept() {
    let pool = crate::support::server::new_pool().await;
    let mut conn = pool.acquire().await.unwrap();
    let waiting = vec![(1, 3, vec![3, 5]), (2, 4, vec![4])];
    indexes::postings::insert_tombstones(&mut conn, IndexId(7), &waiting).await.unwrap();
    assert_eq!(indexes::postings::tombstones(&mut conn, IndexId(7), &[1, 2], 9).await.unwrap(), waiting);
}

#[tokio::test]
async fn a_writer_that_waits_too_long_for_an_index_is_told_that_it_is_being_emptied() {
    let pool = crate::support::server::new_pool().await;
    let cache = Cache::new(1 << 20);
    let (index, _) = plain_index(&pool, "emptied").await;
    let pairs = [(1, "alpha".to_owned())];
    let prepared = bm25::prepare(&pool, &cache, index, texts(&pairs)).await.unwrap();
    let mut emptying = pool.begin().await.unwrap();
    manage::lock(&mut emptying, index).await.unwrap();
    for limit in ["statement_timeout", "lock_timeout"] {
        let mut tx = pool.begin().await.unwrap();
        let limit = sqlx::AssertSqlSafe(format!("SET LOCAL {limit} = '200ms'"));
        sqlx::raw_sql(limit).execute(&mut *tx).await.unwrap();
        let refused = bm25::replace(&mut tx, &prepared).await.unwrap_err();
        assert!(matches!(refused, bm25::Error::Emptied(of) if of == index), "{refused}");
        tx.rollback().await.unwrap();
    }
    emptying.rollback().await.unwrap();
    put(&pool, &cache, index, &pairs).await;
    assert_eq!(find(&pool, &cache, index, "alpha", 5, Allowed::All).await.len(), 1);
}
