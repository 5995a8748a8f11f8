//! Indexes of bits in the place of those of halves.
use super::{answers, filled, indexes, program, reindexed, stopped_after, wanted};
use crate::{
    admin::run,
    support::{self, TestApp, Wish, until},
};
use serde_json::Value;
use svc::store::{
    reindex::{self, ReindexError, Step, Wanted},
    scope::Readable,
    search::Eligible,
    transaction::begin_search,
    vectors::{self, Index, LOOKED_AT, Stored},
};
use svc_client::wire::DocumentPath;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bits_take_the_place_of_halves_only_if_they_find_enough() {
    let app = TestApp::start().await;
    let roots = filled(&app).await;
    let before = answers(&app, &roots).await;
    let halves = indexes(&app).await;
    let bits = |parts| Wanted { sample: 10, ..wanted(parts, Index::Bits) };
    for parts in [1, 2] {
        reindexed(&app, &wanted(parts, Index::Halves)).await;
        let strict = Wanted { least_recall: 1.1, ..bits(parts) };
        let refused = reindex::vectors(&app.pool, &strict, |_| ()).await.unwrap_err();
        assert!(matches!(refused, ReindexError::LowRecall { .. }), "{refused}");
        assert_eq!(indexes(&app).await, halves, "the index that is there stays");
        let steps = reindexed(&app, &bits(parts)).await;
        let recall = steps.iter().find_map(|step| match step {
            Step::Measured { searches, recall, .. } => Some((*searches, *recall)),
            _ => None,
        });
        let (searches, recall) = recall.unwrap();
        assert!((1..=10).contains(&searches) && recall >= 0.95, "{steps:?}");
        assert!(steps.contains(&Step::Dropped { index: halves[0].clone() }), "{steps:?}");
        let now = indexes(&app).await;
        assert!(now.len() == 1 && now[0].starts_with("document_vectors_bits_384_"), "{now:?}");
        assert_eq!(answers(&app, &roots).await, before);
        let info = support::engine().info().clone();
        let vector = support::engine().embed_query("why the sea rises".to_owned()).await.unwrap();
        let query = Stored::new(&info.identity, info.native_width, &vector);
        let everything = Eligible { scope: Readable::everything(), ..Eligible::default() };
        let mut tx = begin_search(&app.pool).await.unwrap();
        let layout = vectors::layout(&mut tx, &everything, &query).await.unwrap();
        assert!(layout.bits.is_some(), "{layout:?}");
        let near = vectors::approximate(&mut tx, &everything, &query, 5, 20, LOOKED_AT, &layout).await.unwrap();
        let exact = vectors::exact(&mut tx, &everything, &query, 5, i64::MAX, &layout).await.unwrap().unwrap();
        tx.commit().await.unwrap();
        assert_eq!(near, exact.ranked, "bits propose, and the vectors score");
        // What makes the index of a model that has none makes no second one.
        app.create("Loons", "A loon calls at night.", Some(roots[1])).await;
        reindex::add_index(&app.pool, &info.identity, info.native_width).await.unwrap();
        assert_eq!(indexes(&app).await, now);
        let id: i64 =
            sqlx::query_scalar("SELECT id FROM documents WHERE title = 'Loons'").fetch_one(&app.pool).await.unwrap();
        app.client.delete_document(DocumentPath { id }).await.unwrap();
    }
    reindexed(&app, &wanted(1, Index::Halves)).await;
    assert_eq!((indexes(&app).await, answers(&app, &roots).await), (halves, before));
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_gives_up_indexes_of_bits_keeps_none_that_were_half_built() {
    let app = TestApp::start().await;
    let roots = filled(&app).await;
    let halves = wanted(2, Index::Halves);
    reindexed(&app, &halves).await;
    let before = (indexes(&app).await, answers(&app, &roots).await);
    assert!(!stopped_after(&app, &wanted(2, Index::Bits), 2).await);
    until("the indexes of bits to be gone", async || {
        reindexed(&app, &halves).await;
        let left =
            "SELECT count(*) FROM pg_class WHERE relkind IN ('i', 'I') AND relname LIKE 'document_vectors%bits%'";
        let left: i64 = sqlx::query_scalar(left).fetch_one(&app.pool).await.unwrap();
        (left == 0).then_some(())
    })
    .await;
    assert_eq!((indexes(&app).await, answers(&app, &roots).await), before);
    app.end().await;
}

/// All numbers of these vectors are positive, so all have the same bits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bits_that_tell_nothing_are_refused_with_what_was_measured() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    sqlx::query(
        "WITH made AS (
             INSERT INTO documents (title, content, usetype, content_hash, guard)
             SELECT 'Leaf', 'Leaf', 'note', 'x', 0 FROM generate_series(1, 2000) RETURNING id)
         INSERT INTO document_vectors (document_id, embed_model, embed, weight)
         SELECT m.id, 'positive@1', (SELECT array_agg(0.01 + random() + 0 * n * m.id) FROM generate_series(1, 16) n)::vector::halfvec, 1 FROM made m",
    )
    .execute(&app.pool)
    .await
    .unwrap();
    reindex::add_index(&app.pool, "positive@1", 16).await.unwrap();
    let before = indexes(&app).await;
    let bit = [("SVC_VECTOR_INDEX", "bit")];
    let refused = run(program(&app, &bit, &["--vectors", "--sample", "20"])).await;
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success() && said.contains("positive@1") && said.contains("--least-recall"), "{refused:?}");
    assert_eq!(indexes(&app).await, before);
    let accepted = run(program(&app, &bit, &["--vectors", "--sample", "20", "--least-recall", "0"])).await;
    assert!(accepted.status.success(), "{accepted:?}");
    let lines: Vec<Value> =
        String::from_utf8_lossy(&accepted.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let measured = lines.iter().find(|line| line["step"] == "measured").unwrap();
    assert!(measured["searches"].as_u64() > Some(10) && measured["recall"].as_f64() < Some(0.95), "{measured}");
    let now = indexes(&app).await;
    assert!(now.iter().all(|index| index.starts_with("document_vectors_bits_")), "{now:?}");
    sqlx::query("DELETE FROM documents").execute(&app.pool).await.unwrap();
    app.end().await;
}
