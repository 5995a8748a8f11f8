//! What a search of an index finds.
use super::{
    create, find,
    naive::{Naive, Random, assert_same},
    plain_index, put,
};
use crate::cranfield::{self, Cranfield};
use sqlx::PgConnection;
use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicUsize, Ordering},
};
use svc::{
    search::bm25::{self, Allowed, Answer, Verify},
    store::indexes::{self, postings::Resolved},
};
use svc_ids::{DocumentId, IndexId};
use svc_ranking::{Cache, Config, Language, StopWords};

/// Which of the documents with these numbers pass.
fn passing<'a>(
    conn: &'a mut PgConnection,
    index: IndexId,
    docnos: &'a [i32],
    pass: impl Fn(DocumentId) -> bool + Send + 'a,
) -> Answer<'a, Vec<Resolved>> {
    Box::pin(async move {
        let all = indexes::postings::documents(conn, index, docnos).await?;
        Ok(all.into_iter().map(|one| Resolved { passes: pass(one.document_id), ..one }).collect())
    })
}

/// A verifier that passes what `pass` accepts and counts its calls.
pub(super) struct Passing<F> {
    pub(super) pass: F,
    pub(super) asked: AtomicUsize,
}

impl<F: Fn(i64) -> bool + Send + Sync> Verify for Passing<F> {
    fn resolve<'a>(
        &'a self,
        conn: &'a mut PgConnection,
        index: IndexId,
        docnos: &'a [i32],
    ) -> Answer<'a, Vec<Resolved>> {
        self.asked.fetch_add(docnos.len(), Ordering::Relaxed);
        passing(conn, index, docnos, |id| (self.pass)(id.0))
    }

    fn list<'a>(&'a self, _: &'a mut PgConnection, _: IndexId) -> Answer<'a, Option<Vec<Resolved>>> {
        Box::pin(async { Ok(None) })
    }
}

/// A filter that lists these documents once `after` were verified.
pub(super) struct Listing {
    pub(super) ids: Vec<DocumentId>,
    pub(super) after: usize,
}

impl Verify for Listing {
    fn resolve<'a>(
        &'a self,
        conn: &'a mut PgConnection,
        index: IndexId,
        docnos: &'a [i32],
    ) -> Answer<'a, Vec<Resolved>> {
        passing(conn, index, docnos, |id| self.ids.contains(&id))
    }

    fn list<'a>(&'a self, conn: &'a mut PgConnection, index: IndexId) -> Answer<'a, Option<Vec<Resolved>>> {
        let listed = sqlx::query_as(
            "SELECT docno, document_id, true AS passes FROM search_index_entries
              WHERE index_id = $1 AND document_id = ANY($2) ORDER BY docno",
        );
        Box::pin(async move { listed.bind(index).bind(&self.ids).fetch_all(conn).await.map(Some) })
    }

    fn listed_after(&self) -> usize {
        self.after
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_filter_is_exact_however_it_is_given() {
    let pool = crate::support::server::new_pool().await;
    let cache = Cache::new(16 << 20);
    let (index, config) = plain_index(&pool, "filtered").await;
    let mut naive = Naive::new(config);
    let mut random = Random(3);
    let pairs: Vec<(i64, String)> = (0..3_000).map(|id| (id, format!("all {}", random.text(6, 20)))).collect();
    pairs.iter().for_each(|(id, text)| naive.put(*id, text));
    put(&pool, &cache, index, &pairs).await;
    bm25::compact(&pool, index).await.expect("compacted");
    let ranking = naive.search("all w0 w5", 3_000, |_| true);
    // These are the worst ones, so the search must go through the whole list to find them.
    let worst: BTreeSet<i64> = ranking[2_970..].iter().map(|hit| hit.document_id.0).collect();
    let expected = naive.search("all w0 w5", 10, |id| worst.contains(&id));
    let ids = worst.iter().copied().chain([999_999]).map(DocumentId).collect();
    let ids = Allowed::Verify(&Listing { ids, after: 0 });
    assert_same(&find(&pool, &cache, index, "all w0 w5", 10, ids).await, &expected, "ids");
    let verifier = Passing { pass: |id| worst.contains(&id), asked: AtomicUsize::new(0) };
    let found = find(&pool, &cache, index, "all w0 w5", 10, Allowed::Verify(&verifier)).await;
    assert_same(&found, &expected, "verified");
    assert!(verifier.asked.load(Ordering::Relaxed) <= 3_000, "a document was verified twice");
    let best = Passing { pass: |_| true, asked: AtomicUsize::new(0) };
    let found = find(&pool, &cache, index, "all w0 w5", 10, Allowed::Verify(&best)).await;
    assert_same(&found, &ranking[..10], "all pass");
    assert!(best.asked.load(Ordering::Relaxed) < 200, "a filter that all pass needs the head of the list only");
    let none = Passing { pass: |_| false, asked: AtomicUsize::new(0) };
    assert!(find(&pool, &cache, index, "all", 10, Allowed::Verify(&none)).await.is_empty());
    assert!(
        find(&pool, &cache, index, "all", 10, Allowed::Verify(&Listing { ids: vec![], after: 0 })).await.is_empty()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ties_go_to_the_lower_document() {
    let pool = crate::support::server::new_pool().await;
    let cache = Cache::new(1 << 20);
    let (index, _) = plain_index(&pool, "ties").await;
    // They are indexed in descending order, so that document numbers run against document ids.
    for id in (1..=300i64).rev() {
        put(&pool, &cache, index, &[(id, "same words".to_owned())]).await;
    }
    for _ in 0..2 {
        let found = find(&pool, &cache, index, "same", 7, Allowed::All).await;
        assert_eq!(found.iter().map(|hit| hit.document_id.0).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6, 7]);
        bm25::compact(&pool, index).await.expect("compacted");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changed_weights_hold_at_once() {
    let pool = crate::support::server::new_pool().await;
    let cache = Cache::new(16 << 20);
    let (index, config) = plain_index(&pool, "weights").await;
    let mut naive = Naive::new(config);
    let mut random = Random(41);
    // There are enough postings per query for pruning, so bounds left from other weights would lose documents.
    for start in (0..30_000i64).step_by(3_000) {
        let pairs: Vec<(i64, String)> =
            (start..start + 3_000).map(|id| (id, format!("all any {}", random.text(8, 40)))).collect();
        pairs.iter().for_each(|(id, text)| naive.put(*id, text));
        put(&pool, &cache, index, &pairs).await;
    }
    bm25::compact(&pool, index).await.expect("compacted");
    for (k1, b) in [(1.2, 0.75), (0.1, 0.0), (4.0, 1.0), (1.2, 0.75)] {
        let config = Config { k1, b, ..naive.config };
        let mut tx = pool.begin().await.expect("begun");
        indexes::configure(&mut tx, index, &config).await.expect("configured");
        tx.commit().await.expect("committed");
        naive.config = config;
        for query in ["all any w0", "w7 any w3", "all any w5 w1"] {
            let found = find(&pool, &cache, index, query, 10, Allowed::All).await;
            assert_same(&found, &naive.search(query, 10, |_| true), &format!("{k1} {b} {query}"));
        }
    }
    bm25::compact(&pool, index).await.expect("compacted");
    // Longer documents raise the average above the one that the sealed bounds were built for.
    let pairs: Vec<(i64, String)> = (50_000..50_400).map(|id| (id, "long tail ".repeat(900))).collect();
    pairs.iter().for_each(|(id, text)| naive.put(*id, text));
    put(&pool, &cache, index, &pairs).await;
    for _ in 0..2 {
        for query in ["all any w0", "all any w5 w1", "tail w5 all any w2"] {
            let found = find(&pool, &cache, index, query, 10, Allowed::All).await;
            assert_same(&found, &naive.search(query, 10, |_| true), query);
        }
        bm25::compact(&pool, index).await.expect("compacted");
    }
    let mut tx = pool.begin().await.expect("begun");
    let mut other = naive.config;
    other.analyzer.language = Language::English;
    let refused = indexes::configure(&mut tx, index, &other).await.expect_err("filled");
    assert!(refused.to_string().contains("create another index"), "{refused}");
    let (empty, _) = plain_index(&pool, "empty").await;
    indexes::configure(&mut tx, empty, &other).await.expect("nothing is indexed");
    tx.commit().await.expect("committed");
    put(&pool, &cache, empty, &[(1, "all running".to_owned())]).await;
    assert_eq!(find(&pool, &cache, empty, "runs", 10, Allowed::All).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_covers_everything_or_what_lies_under_its_members() {
    let pool = crate::support::server::new_pool().await;
    let mut conn = pool.acquire().await.expect("a connection");
    let insert = async |parent: Option<DocumentId>, path: &[DocumentId], usetype: &str, settled: &str| -> DocumentId {
        sqlx::query_scalar(
            "INSERT INTO documents (parent_id, path, title, content, usetype, settled, content_hash, guard)
             VALUES ($1, $2, 't', 'c', $3, $4, 'sha256:', 0) RETURNING id",
        )
        .bind(parent)
        .bind(path)
        .bind(usetype)
        .bind(settled)
        .fetch_one(&pool)
        .await
        .expect("inserted")
    };
    let root = insert(None, &[], "markdown", "settled").await;
    let child = insert(Some(root), &[root], "chunk", "settled").await;
    let outside = insert(None, &[], "markdown", "settled").await;
    let all = indexes::by_name(&mut conn, "default").await.expect("read").expect("there from the start").id;
    let (narrow, _) = plain_index(&pool, "narrow").await;
    indexes::manage::add_members(&mut conn, narrow, &[root.0]).await.expect("a member");
    let covered = indexes::covering(&mut conn, &[root, child, outside]).await.expect("read");
    assert_eq!(covered, [(all, root), (all, child), (all, outside), (narrow, root), (narrow, child)]);
    assert_eq!(indexes::list(&mut conn, IndexId(0), 10).await.expect("read").len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cranfield_reaches_its_quality() {
    let Some(Cranfield { docs, queries }) = cranfield::read() else { return };
    let pool = crate::support::server::new_pool().await;
    let mut config = Config::default();
    config.analyzer.stop_words = Some(StopWords::Remove);
    let index = create(&pool, "cranfield", &config).await;
    let cache = Cache::new(16 << 20);
    for chunk in docs.chunks(200) {
        put(&pool, &cache, index, chunk).await;
    }
    bm25::compact(&pool, index).await.expect("compacted");
    let mut sum = 0.0;
    for (query, relevant) in &queries {
        let found = find(&pool, &cache, index, query, 10, Allowed::All).await;
        let found: Vec<i64> = found.iter().map(|hit| hit.document_id.0).collect();
        sum += cranfield::ndcg(&found, relevant);
    }
    let figure = sum / queries.len() as f64;
    assert!(figure >= 0.384, "nDCG@10 is {figure:.4} with the default analyzer");
}

#[tokio::test]
async fn an_index_that_took_the_name_of_another_is_searched_by_its_own_analyzer() {
    let pool = crate::support::server::new_pool().await;
    let cache = Cache::new(1 << 20);
    let config = |text: &str| serde_json::from_str::<Config>(text).expect("a config");
    let plain = create(&pool, "one name", &config(r#"{"analyzer": {"language": "none", "version": 2}}"#)).await;
    put(&pool, &cache, plain, &[(1, "running".to_owned())]).await;
    bm25::compact(&pool, plain).await.expect("compacted");
    assert!(find(&pool, &cache, plain, "runs", 10, Allowed::All).await.is_empty());
    sqlx::query("UPDATE search_indexes SET name = 'another' WHERE id = $1")
        .bind(plain)
        .execute(&pool)
        .await
        .expect("renamed");
    let stemmed = create(&pool, "one name", &config(r#"{"analyzer": {"language": "english", "version": 2}}"#)).await;
    put(&pool, &cache, stemmed, &[(2, "running".to_owned())]).await;
    let found = |hits: Vec<bm25::Hit>| hits.into_iter().map(|hit| hit.document_id.0).collect::<Vec<_>>();
    assert_eq!(found(find(&pool, &cache, stemmed, "runs", 10, Allowed::All).await), [2]);
    assert_eq!(found(find(&pool, &cache, plain, "running", 10, Allowed::All).await), [1]);
    assert!(find(&pool, &cache, plain, "runs", 10, Allowed::All).await.is_empty());
}
