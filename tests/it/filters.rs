//! Filters that few documents pass.
mod composed;
mod keys;

use crate::{
    principals::{grant, someone},
    support::{TestApp, Wish},
};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use svc::store::{
    search::{Composed, Eligible, few_files, listed},
    transaction::begin_search,
};
use svc_client::{
    Code, Json,
    wire::{
        Bm25Search, FulltextSearch, GrantRight, GroupBy, HybridSearch, MaxsimSearch, SearchFilter, SearchResponse,
        VectorSearch,
    },
};
use svc_ids::IndexId;

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
    let index: IndexId = sqlx::query_scalar(
        "WITH i AS (SELECT id FROM search_indexes WHERE name = 'default'),
              e AS (INSERT INTO search_index_entries (index_id, docno, document_id, length, terms, tfs)
                    SELECT i.id, nextval(('search_docno_' || i.id)::regclass)::int, d.id, 1, '{}', '{}' FROM documents d, i WHERE d.usetype = 'rare')
         SELECT id FROM i",
    )
    .fetch_one(&app.pool)
    .await
    .unwrap();
    let everything = Eligible { scope: svc::store::scope::Readable::everything(), ..Eligible::default() };
    let until = |year: i32| Some(format!("{year}-01-01T00:00:00Z").parse().unwrap());
    let of = |filter: Value| Eligible {
        composed: Composed { filter: serde_json::from_value(filter).unwrap(), ..Composed::default() },
        ..everything.clone()
    };
    let filters = [
        Eligible { usetypes: Some(vec!["rare".to_owned()]), ..everything.clone() },
        Eligible { created_at: (None, until(2000)), ..everything.clone() },
        Eligible { event_time: (until(2001), until(2002)), ..everything.clone() },
        Eligible { structured_content: Some(json!({"colour": "teal"})), ..everything.clone() },
        Eligible {
            usetypes: Some(vec!["rare".to_owned()]),
            excluded: vec![svc_ids::DocumentId(i64::MAX)],
            ..everything.clone()
        },
        of(json!({"usetype": ["rare"], "none": [{"under": [1]}]})),
        of(json!({"keys": [{"path": ["colour"], "in": ["teal", "amber"]}]})),
        of(json!({"any": [{"usetype": ["nothing"]}, {"keys": [{"path": ["colour"], "in": ["teal"]}]}]})),
        of(json!({"any": [
            {"usetype": ["rare"], "structured_content": {"colour": "teal"}},
            {"event_time_from": "2001-01-01T00:00:00Z", "event_time_until": "2002-01-01T00:00:00Z"},
            {"created_at_until": "2000-01-01T00:00:00Z"},
            {"under": [i64::MAX]},
        ]})),
    ];
    for filter in filters {
        let mut tx = begin_search(&app.pool).await.unwrap();
        let few = listed(&mut tx, &filter, index).await.unwrap().expect("few pass");
        assert!(few.len() == FEW && few.is_sorted_by_key(|one| one.docno), "{filter:?}");
        let scans: i64 =
            sqlx::query_scalar("SELECT seq_scan FROM pg_stat_xact_user_tables WHERE relname = 'documents'")
                .fetch_one(&mut *tx)
                .await
                .unwrap();
        assert_eq!(scans, 0, "{filter:?}");
        tx.commit().await.unwrap();
    }
    // No file has the format, so nothing lies in one.
    let mut filter = of(json!({"format": ["pdf"]}));
    let mut tx = begin_search(&app.pool).await.unwrap();
    filter.composed.few_files = few_files(&mut tx, &["pdf"]).await.unwrap();
    assert_eq!(listed(&mut tx, &filter, index).await.unwrap().map(|few| few.len()), Some(0));
    let scans = "SELECT seq_scan FROM pg_stat_xact_user_tables WHERE relname = 'documents'";
    assert_eq!(sqlx::query_scalar::<_, i64>(scans).fetch_one(&mut *tx).await.unwrap(), 0);
    assert!(listed(&mut tx, &everything, index).await.unwrap().is_none(), "twenty thousand are not few");
    tx.commit().await.unwrap();
    sqlx::raw_sql("DELETE FROM search_index_entries").execute(&app.pool).await.unwrap();
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

/// Of every set of one or two documents, for the owner and for somebody who reads a part.
#[tokio::test]
async fn what_is_excluded_is_found_by_no_method_and_nothing_under_it_is() {
    let app = TestApp::start().await;
    // The parent of each by its place, before it.
    let mut nodes: Vec<(i64, Vec<i64>)> = Vec::new();
    for (n, parent) in [None, Some(0), Some(1), Some(0), None, Some(4)].into_iter().enumerate() {
        let under = parent.map(|parent: usize| nodes[parent].clone());
        let id = app.create(&format!("Note {n}"), "The lighthouse keeper.", under.as_ref().map(|(id, _)| *id)).await.id;
        nodes.push((id, under.map(|(id, path)| [path, vec![id]].concat()).unwrap_or_default()));
    }
    let reader = someone(&app, "reader").await;
    grant(&app, &reader, nodes[1].0, GrantRight::Read).await;
    let ids: Vec<i64> = nodes.iter().map(|(id, _)| *id).collect();
    let sets =
        ids.iter().flat_map(|one| ids.iter().filter(move |other| one <= *other).map(move |other| vec![*one, *other]));
    let ids_of =
        |found: SearchResponse| found.results.into_iter().map(|result| result.document.id).collect::<BTreeSet<_>>();
    for exclude in sets.chain([vec![], vec![i64::MIN, i64::MAX]]) {
        let filter = Some(SearchFilter { exclude: Some(exclude.clone()), ..SearchFilter::default() });
        for client in [&app.client, &reader.client] {
            macro_rules! found { ($($type:ident $method:ident),*) => { [$({
                let body = |filter| Json($type { filter, ..$type::new("lighthouse") });
                let open = ids_of(client.$method(body(None)).await.unwrap());
                (open, ids_of(client.$method(body(filter.clone())).await.unwrap()))
            }),*] } }
            let found = found!(VectorSearch search_vector, FulltextSearch search_fulltext, Bm25Search search_bm25, MaxsimSearch search_maxsim, HybridSearch search_hybrid);
            for (open, left) in found {
                let stays = |id: &&i64| {
                    let (id, path) = nodes.iter().find(|(node, _)| node == *id).unwrap();
                    !exclude.contains(id) && !path.iter().any(|above| exclude.contains(above))
                };
                assert_eq!(left, open.iter().filter(stays).copied().collect(), "{exclude:?} of {open:?}");
                assert!(open.len() >= 2, "{open:?}");
            }
        }
    }
    // Nor does a group show it.
    let filter = Some(SearchFilter { exclude: Some(vec![nodes[1].0]), ..SearchFilter::default() });
    let body = Bm25Search { filter, group_by: Some(GroupBy::File), per_group: 10, ..Bm25Search::new("lighthouse") };
    let shown = app.client.search_bm25(Json(body)).await.unwrap();
    let hits = shown.results.iter().flat_map(|result| result.hits.iter().flatten().map(|hit| hit.document.id));
    assert!(
        hits.chain(shown.results.iter().map(|result| result.document.id))
            .all(|id| id != nodes[1].0 && id != nodes[2].0)
    );
    let exclude = Some((0..1_001).collect());
    let filter = Some(SearchFilter { exclude, ..SearchFilter::default() });
    let refused =
        app.client.search_bm25(Json(Bm25Search { filter, ..Bm25Search::new("lighthouse") })).await.unwrap_err();
    assert_eq!(refused.code, Code::InvalidField);
    app.end().await;
}
