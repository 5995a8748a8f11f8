//! Searches of an index that was not written since it was last read: one statement reads it and verifies what is found.
use super::{
    naive::{Naive, Random, assert_same},
    plain_index, put, take,
};
use crate::support::statements::counted;
use sqlx::{PgConnection, PgPool};
use std::sync::atomic::{AtomicUsize, Ordering};
use svc::{
    search::bm25::{self, Allowed, Answer, Hit, Verify},
    store::{
        self,
        indexes::{self, postings::Resolved},
        scope::Readable,
        search::Eligible,
    },
};
use svc_ids::{DocumentId, IndexId};
use svc_ranking::{Cache, Config, Totals};

/// How many more searches are counted: each connection asks once for types that it does not know.
const WARMING: usize = 5;

/// What a search finds, and how many statements it takes.
async fn asked(
    pool: &PgPool,
    cache: &Cache,
    (index, query): (&str, &str),
    limit: usize,
    allowed: Allowed<'_>,
) -> (Vec<Hit>, usize) {
    let search = bm25::search(pool, cache, index, query.into(), limit, allowed);
    let (found, statements) = counted(Box::pin(search)).await;
    (found.expect("searched").expect("there is such an index"), statements)
}

/// What the oracle finds is found at once by each process, and then again, by one statement if all is sealed.
async fn check(pool: &PgPool, processes: &[&Cache], naive: &Naive, is_sealed: bool, what: &str) {
    for (at, cache) in processes.iter().enumerate() {
        for query in ["all w0 w3", "w1", "late", "w0 nowhere", "early w2 w2"] {
            let expected = naive.search(query, 10, |_| true);
            let what = format!("{what}, process {at}, {query}");
            let mut fewest = usize::MAX;
            for _ in 0..=WARMING {
                let (found, statements) = asked(pool, cache, ("foreseen", query), 10, Allowed::All).await;
                assert_same(&found, &expected, &what);
                fewest = fewest.min(statements);
            }
            assert!(!is_sealed || fewest == 1, "{what}: {fewest} statements");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_is_written_after_a_search_counts_in_the_next_one() {
    let pool = crate::support::server::new_pool().await;
    let (index, config) = plain_index(&pool, "foreseen").await;
    // Each process remembers what it read itself; the third one writes and does not search.
    let (one, other, writer) = (Cache::new(1 << 20), Cache::new(1 << 20), Cache::new(1 << 20));
    let processes = [&one, &other];
    let mut naive = Naive::new(config);
    let mut random = Random(17);
    let texts = (0..300).map(|id| (id, format!("all early {}", random.text(20, 15)))).collect();
    let write = async |naive: &mut Naive, pairs: Vec<(i64, String)>| {
        pairs.iter().for_each(|(id, text)| naive.put(*id, text));
        put(&pool, &writer, index, &pairs).await;
    };
    let seal = async || {
        let sealed = bm25::compact(&pool, index).await.expect("compacted");
        assert!(sealed.sealed_postings + sealed.purged_postings > 0);
    };
    write(&mut naive, texts).await;
    check(&pool, &processes, &naive, false, "never sealed").await;
    seal().await;
    check(&pool, &processes, &naive, true, "sealed").await;

    // This one has the best text of all, and a word that was in none.
    write(&mut naive, vec![(900, "late w0 w3 w1".to_owned())]).await;
    check(&pool, &processes, &naive, false, "appended").await;
    seal().await;
    check(&pool, &processes, &naive, true, "appended and sealed").await;

    let best: Vec<i64> = naive.search("all w0 w3", 5, |_| true).iter().map(|hit| hit.document_id.0).collect();
    take(&pool, &best).await;
    best.iter().for_each(|id| drop(naive.texts.remove(id)));
    check(&pool, &processes, &naive, false, "deleted").await;
    seal().await;
    check(&pool, &processes, &naive, true, "deleted and sealed").await;

    let [one_text, other_text] = ["early w2 w2 w2", "late w1 w0 w3"].map(str::to_owned);
    write(&mut naive, vec![(10, one_text.clone()), (11, other_text.clone())]).await;
    check(&pool, &processes, &naive, false, "replaced").await;
    seal().await;
    check(&pool, &processes, &naive, true, "replaced and sealed").await;

    // There are as many documents and tokens as before.
    write(&mut naive, vec![(10, other_text.clone()), (11, one_text.clone())]).await;
    check(&pool, &processes, &naive, false, "swapped").await;
    seal().await;
    check(&pool, &processes, &naive, true, "swapped and sealed").await;

    // A restored database repeats its generations, so that only the seals tell its postings from those that were lost.
    let numbers = async || {
        let mut conn = pool.acquire().await.expect("a connection");
        indexes::totals(&mut conn, index).await.expect("read")
    };
    let before = numbers().await;
    sqlx::query("UPDATE search_indexes SET generation = generation - 1 WHERE id = $1")
        .bind(index)
        .execute(&pool)
        .await
        .expect("restored");
    write(&mut naive, vec![(10, one_text), (11, other_text)]).await;
    seal().await;
    assert_eq!(numbers().await, Totals { contents: numbers().await.contents, ..before });
    check(&pool, &processes, &naive, true, "restored and written otherwise").await;

    let config = Config { k1: 0.3, b: 0.1, ..naive.config };
    let mut tx = pool.begin().await.expect("begun");
    indexes::configure(&mut tx, index, &config).await.expect("configured");
    tx.commit().await.expect("committed");
    naive.config = config;
    check(&pool, &processes, &naive, true, "weighed otherwise").await;

    // Lists that are remembered have bounds for the other weights, so that these processes have to read them again.
    let before = numbers().await;
    bm25::compact(&pool, index).await.expect("compacted");
    let now = numbers().await;
    assert!(before.rescored_at > 0 && now.rescored_at == 0 && now.contents != before.contents, "{before:?}, {now:?}");
    check(&pool, &processes, &naive, true, "with new bounds").await;

    // A word that no text has any more is as one that none ever had.
    let late: Vec<i64> = naive.search("late", 300, |_| true).iter().map(|hit| hit.document_id.0).collect();
    assert!(!late.is_empty());
    take(&pool, &late).await;
    late.iter().for_each(|id| drop(naive.texts.remove(id)));
    seal().await;
    check(&pool, &processes, &naive, true, "without a word").await;
}

/// A filter that the statement verifies which reads the postings.
struct Filter {
    eligible: Eligible,
    /// How many documents were verified, as the search tells.
    verified: AtomicUsize,
    /// How many of them took a statement of their own.
    resolved: AtomicUsize,
}

impl Filter {
    fn of(scope: Readable) -> Filter {
        let eligible = Eligible { scope, ..Eligible::default() };
        Filter { eligible, verified: AtomicUsize::new(0), resolved: AtomicUsize::new(0) }
    }
}

impl Verify for Filter {
    fn resolve<'a>(
        &'a self,
        conn: &'a mut PgConnection,
        index: IndexId,
        docnos: &'a [i32],
    ) -> Answer<'a, Vec<Resolved>> {
        self.resolved.fetch_add(docnos.len(), Ordering::Relaxed);
        Box::pin(store::search::resolve(conn, &self.eligible, index, docnos))
    }

    fn eligible(&self) -> Option<&Eligible> {
        Some(&self.eligible)
    }

    fn verified(&self, documents: usize) {
        self.verified.fetch_add(documents, Ordering::Relaxed);
    }

    fn list<'a>(&'a self, _: &'a mut PgConnection, _: IndexId) -> Answer<'a, Option<Vec<Resolved>>> {
        Box::pin(async { Ok(None) })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_caller_may_not_read_is_not_found_by_what_others_found() {
    let pool = crate::support::server::new_pool().await;
    let cache = Cache::new(1 << 20);
    let (index, _) = plain_index(&pool, "closed").await;
    let mut ids: Vec<i64> = sqlx::query_scalar(
        "INSERT INTO documents (title, content, usetype, settled, content_hash, guard)
         SELECT 't', 'c', 'chunk', 'settled', 'sha256:' || n, 77 FROM generate_series(1, 40) n RETURNING id",
    )
    .fetch_all(&pool)
    .await
    .expect("inserted");
    ids.sort_unstable();
    // The first ones are the best.
    let text = |at: usize| format!("heron {}", "reeds ".repeat(at));
    let pairs: Vec<(i64, String)> = ids.iter().enumerate().map(|(at, id)| (*id, text(at))).collect();
    put(&pool, &cache, index, &pairs).await;
    bm25::compact(&pool, index).await.expect("compacted");
    let found = async |guards: &[DocumentId]| {
        let filter = Filter::of(Readable::under(guards));
        let (hits, statements) = asked(&pool, &cache, ("closed", "heron"), 10, Allowed::Verify(&filter)).await;
        let of: Vec<i64> = hits.iter().map(|hit| hit.document_id.0).collect();
        assert!(filter.verified.into_inner() >= of.len());
        (of, statements, filter.resolved.into_inner())
    };
    let by_one_statement = async |expected: &[i64], stranger: &[i64], what: &str| {
        let (mut fewest, mut apart) = (usize::MAX, usize::MAX);
        for _ in 0..=WARMING {
            let (of, statements, resolved) = found(&[DocumentId(77)]).await;
            assert_eq!(of, expected, "{what}");
            fewest = fewest.min(statements);
            apart = apart.min(resolved);
        }
        assert_eq!((fewest, apart), (1, 0), "{what}");
        assert_eq!(found(&[DocumentId(78)]).await.0, stranger, "{what}");
        assert_eq!(found(&[]).await.0, [0i64; 0], "{what}");
    };
    by_one_statement(&ids[..10], &[], "granted").await;
    // None of these changes the index, and each holds for the very next search.
    for (at, change) in [
        "UPDATE documents SET guard = 78 WHERE id = $1",
        "UPDATE documents SET settled = 'in_flight' WHERE id = $1",
        "UPDATE documents SET guard = -1 WHERE id = $1",
        "DELETE FROM documents WHERE id = $1",
    ]
    .into_iter()
    .enumerate()
    {
        sqlx::query(change).bind(ids[at]).execute(&pool).await.expect("changed");
        by_one_statement(&ids[at + 1..at + 11], &ids[..1], change).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_entry_that_is_gone_is_told_of_also_where_the_postings_are_remembered() {
    let pool = crate::support::server::new_pool().await;
    let cache = Cache::new(1 << 20);
    let (index, _) = plain_index(&pool, "gone").await;
    put(&pool, &cache, index, &[(1, "alpha".to_owned()), (2, "alpha beta".to_owned())]).await;
    bm25::compact(&pool, index).await.expect("compacted");
    let mut fewest = usize::MAX;
    for _ in 0..=WARMING {
        let (found, statements) = asked(&pool, &cache, ("gone", "alpha"), 5, Allowed::All).await;
        assert_eq!(found.len(), 2);
        fewest = fewest.min(statements);
    }
    assert_eq!(fewest, 1);
    sqlx::query("DELETE FROM search_index_entries WHERE index_id = $1 AND document_id = 2")
        .bind(index)
        .execute(&pool)
        .await
        .expect("broken");
    let gone = bm25::search(&pool, &cache, "gone", "alpha".into(), 5, Allowed::All).await.expect_err("dangling");
    assert!(matches!(gone, bm25::Error::Dangling(_)), "{gone}");
}
