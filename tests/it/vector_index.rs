//! The HNSW index of the vectors of a model, which many vectors get while others are written, and few do not need.
use crate::support::{TestApp, until};
use svc::store::{
    reindex::has_index,
    scope::Readable,
    search::Eligible,
    transaction::begin_search,
    vectors::{self, FEW, LOOKED_AT, Layout, Stored},
};
use svc_ids::DocumentId;

/// Stores so many documents with random vectors of a model.
async fn store(app: &TestApp, model: &str, count: i64) {
    sqlx::query(
        "WITH made AS (INSERT INTO documents (title, content, usetype, content_hash, guard)
                       SELECT 'note', 'note', 'note', 'sha256:' || n, 0 FROM generate_series(1, $2) n RETURNING id)
         INSERT INTO document_vectors (document_id, embed_model, embed, weight)
         SELECT id, $1, (ARRAY(SELECT random() - 0.5 FROM generate_series(1, 8) WHERE id > 0))::halfvec, 1 FROM made",
    )
    .bind(model)
    .bind(count)
    .execute(&app.pool)
    .await
    .unwrap();
}

/// Waits for the worker's next look at what lacks an index.
async fn looked(app: &TestApp, model: &str) {
    until("the index of a model with many vectors", async || {
        has_index(&mut app.pool.acquire().await.unwrap(), model).await.unwrap().then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_gets_its_index_once_it_has_many_vectors_and_whoever_writes_meanwhile_is_in_it() {
    let app = TestApp::start().await;
    let is_indexed = async |model: &str| has_index(&mut app.pool.acquire().await.unwrap(), model).await.unwrap();
    store(&app, "few@1", FEW).await;
    store(&app, "many@1", FEW + 1).await;
    // Somebody has written one more, and has not yet committed it.
    let mut writer = app.pool.begin().await.unwrap();
    let last: DocumentId = sqlx::query_scalar(
        "INSERT INTO documents (title, content, usetype, content_hash, guard) VALUES ('last', 'last', 'note', 'sha256:last', 0) RETURNING id",
    )
    .fetch_one(&mut *writer)
    .await
    .unwrap();
    sqlx::query("INSERT INTO document_vectors (document_id, embed_model, embed, weight) VALUES ($1, 'many@1', '[3,1,4,1,5,9,2,6]', 1)")
        .bind(last)
        .execute(&mut *writer)
        .await
        .unwrap();
    let building =
        "SELECT EXISTS (SELECT FROM pg_stat_progress_create_index WHERE relid = 'document_vectors'::regclass) OR NULL";
    until("the index to be built", async || {
        sqlx::query_scalar::<_, Option<bool>>(building).fetch_one(&app.pool).await.unwrap()
    })
    .await;
    // Others write on while the index waits for this transaction.
    store(&app, "many@1", 1).await;
    assert!(!is_indexed("many@1").await);
    writer.commit().await.unwrap();
    looked(&app, "many@1").await;
    assert!(!is_indexed("few@1").await);

    let everything = Eligible { scope: Readable::everything(), ..Eligible::default() };
    let query = Stored::new("many@1", 8, &[3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0, 6.0]);
    let mut tx = begin_search(&app.pool).await.unwrap();
    // So few and short vectors are read as fast without an index.
    sqlx::raw_sql("SET LOCAL enable_sort = off; SET LOCAL enable_seqscan = off").execute(&mut *tx).await.unwrap();
    for (model, unindexed) in [("few@1", true), ("many@1", false)] {
        let layout = vectors::layout(&mut tx, &everything, &Stored::new(model, 8, &[1.0; 8])).await.unwrap();
        assert_eq!(layout, Layout { unindexed, ..Layout::default() }, "{model}");
    }
    let scans = "SELECT sum(pg_stat_get_xact_numscans(i.indexrelid))::bigint FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
                   JOIN pg_am a ON a.oid = c.relam WHERE i.indrelid = 'document_vectors'::regclass AND a.amname = 'hnsw'";
    let before: i64 = sqlx::query_scalar(scans).fetch_one(&mut *tx).await.unwrap();
    let near = vectors::approximate(&mut tx, &everything, &query, 10, 40, LOOKED_AT, &Layout::default()).await.unwrap();
    let after: i64 = sqlx::query_scalar(scans).fetch_one(&mut *tx).await.unwrap();
    assert!(after > before, "the index was read");
    let exact = vectors::exact(&mut tx, &everything, &query, 1, i64::MAX, &Layout::default()).await.unwrap().unwrap();
    tx.commit().await.unwrap();
    assert_eq!((near[0].0, exact.ranked[0].0), (last, last), "what was written meanwhile is found");
    assert_eq!(exact.count, FEW + 3);
    // One more, and the other model gets its own.
    store(&app, "few@1", 1).await;
    looked(&app, "few@1").await;
    app.end().await;
}
