//! Filters that few documents pass.
use crate::support::{TestApp, Wish};
use serde_json::{Map, Value, json};
use svc::store::{
    search::{Eligible, ids_of_few},
    transaction::begin_search,
};
use svc_client::{
    Json,
    wire::{FulltextSearch, SearchFilter},
};

/// How many of the store's documents pass each filter below.
const FEW: usize = 20;

/// Fills a store with documents of which few pass.
async fn filled(app: &TestApp) {
    sqlx::query(
        "INSERT INTO documents (title, content, usetype, content_hash, guard, created_at, event_time, structured_content)
         SELECT 'note', 'something', CASE WHEN n <= $1 THEN 'rare' ELSE 'note' END, 'sha256:' || n, 0,
                CASE WHEN n <= $1 THEN '1999-06-01'::timestamptz ELSE now() END,
                CASE WHEN n <= $1 THEN '2001-06-01'::timestamptz WHEN n % 2 = 0 THEN now() END,
                CASE WHEN n <= $1 THEN '{\"colour\": \"teal\"}'::jsonb WHEN n % 2 = 0 THEN '{\"colour\": \"red\"}' ELSE '{}' END
           FROM generate_series(1, 20000) n",
    )
    .bind(FEW as i32)
    .execute(&app.pool)
    .await
    .unwrap();
    sqlx::query("ANALYZE documents").execute(&app.pool).await.unwrap();
}

#[tokio::test]
async fn what_few_pass_is_found_without_a_look_at_every_document() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    filled(&app).await;
    let everything = Eligible { scope: svc::store::scope::Readable::everything(), ..Eligible::default() };
    let until = |year: i32| Some(format!("{year}-01-01T00:00:00Z").parse().unwrap());
    let filters = [
        Eligible { usetypes: Some(vec!["rare".to_owned()]), ..everything.clone() },
        Eligible { created_at: (None, until(2000)), ..everything.clone() },
        Eligible { event_time: (until(2001), until(2002)), ..everything.clone() },
        Eligible { structured_content: Some(json!({"colour": "teal"})), ..everything },
    ];
    for filter in filters {
        let mut tx = begin_search(&app.pool).await.unwrap();
        let ids = ids_of_few(&mut tx, &filter).await.unwrap().expect("few pass");
        assert_eq!(ids.len(), FEW, "{filter:?}");
        let scans: i64 =
            sqlx::query_scalar("SELECT seq_scan FROM pg_stat_xact_user_tables WHERE relname = 'documents'")
                .fetch_one(&mut *tx)
                .await
                .unwrap();
        assert_eq!(scans, 0, "{filter:?}");
        tx.commit().await.unwrap();
    }
    app.end().await;
}

#[tokio::test]
async fn a_filter_of_no_keys_filters_nothing() {
    let app = TestApp::start().await;
    let id = app.create("Tides", "The moon pulls the oceans.", None).await.id;
    let found = async |keys: Map<String, Value>| {
        let filter = Some(SearchFilter { structured_content: Some(keys), ..SearchFilter::default() });
        let search = FulltextSearch { filter, ..FulltextSearch::new("moon") };
        let results = app.client.search_fulltext(Json(search)).await.unwrap().results;
        results.into_iter().map(|result| result.document.id).collect::<Vec<_>>()
    };
    assert_eq!(found(Map::new()).await, [id]);
    assert_eq!(found(Map::from_iter([("colour".to_owned(), json!("teal"))])).await, [0; 0]);
    app.end().await;
}
