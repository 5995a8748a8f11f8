//! A store with more than a thousand indexes.
use crate::{
    bm25,
    queue::{LEASE, claimer},
    support::{TestApp, Wish},
};
use svc::worker::queue::PgQueue;
use svc_actors::Queue;
use svc_ids::IndexId;
use svc_ranking::Cache;

#[tokio::test]
async fn the_upkeep_comes_to_the_last_of_a_thousand_and_one_indexes() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    // The others hold no words, and need no numbers for their documents.
    sqlx::raw_sql(
        r#"ALTER TABLE search_indexes DISABLE TRIGGER search_indexes_numbers;
           INSERT INTO search_indexes (name, config, capabilities)
               SELECT 'index ' || n, config, '{"bm25": false, "maxsim": false}' FROM search_indexes CROSS JOIN generate_series(2, 1000) n WHERE name = 'default';
           ALTER TABLE search_indexes ENABLE TRIGGER search_indexes_numbers;
           INSERT INTO search_indexes (name, config) SELECT 'the last', config FROM search_indexes WHERE name = 'default'"#,
    )
    .execute(&app.pool)
    .await
    .unwrap();
    let last: IndexId = sqlx::query_scalar("SELECT max(id) FROM search_indexes").fetch_one(&app.pool).await.unwrap();
    bm25::put(&app.pool, &Cache::new(1 << 20), last, &[(4_711, "bittern".to_owned())]).await;
    assert_eq!(bm25::take(&app.pool, &[4_711]).await, 1);
    let queue = PgQueue::new(&app.service.tools(), claimer("w"), LEASE, None);
    queue.sweep().await.unwrap();
    let terms: i64 = sqlx::query_scalar("SELECT count(*) FROM search_term_stats WHERE index_id = $1")
        .bind(last)
        .fetch_one(&app.pool)
        .await
        .unwrap();
    assert_eq!(terms, 0, "it was compacted, and the term that no document has was purged");
    app.end().await;
}
