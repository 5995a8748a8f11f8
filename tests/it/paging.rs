//! Results page by page, and what each stage of a search says of them.
use crate::{
    principals::someone,
    support::{TestApp, searches::ask},
};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use svc_client::{
    Code, Json,
    wire::{
        BatchItem, Bm25Search, DocumentPath, FulltextSearch, GroupBy, HybridSearch, MaxsimSearch, NewBatch,
        RerankMethod, SearchMethod, SearchQuery, SearchResponse, SynthesizeSearch, VectorSearch,
    },
};

const METHODS: [&str; 6] = ["vector", "fulltext", "bm25", "maxsim", "hybrid", "auto"];

fn ids(found: &SearchResponse) -> Vec<i64> {
    found.results.iter().map(|result| result.document.id).collect()
}

/// The results of all pages, and how many pages there were.
async fn leaf_through(app: &TestApp, method: &str, mut body: Value) -> (Vec<i64>, usize) {
    let (mut all, mut pages) = (Vec::new(), 0);
    loop {
        let page = ask(&app.client, method, &body).await.unwrap();
        assert!(page.results.len() as u64 <= body["limit"].as_u64().unwrap());
        all.extend(ids(&page));
        pages += 1;
        match page.next_cursor {
            Some(cursor) => body["cursor"] = cursor.into(),
            None => return (all, pages),
        }
        assert!(pages < 50, "{method} comes to no end");
    }
}

/// Documents of which each has more words beside those of the query than the one before.
async fn gauges(app: &TestApp, count: usize) -> Vec<i64> {
    let mut ids = Vec::new();
    for n in 0..count {
        let text = format!("The radar gauge of tank {n}. {}", "It stands there and is read. ".repeat(n));
        ids.push(app.create(&format!("Tank {n}"), &text, None).await.id);
    }
    ids
}

#[tokio::test]
async fn the_pages_of_a_search_are_its_results_in_their_order() {
    let app = TestApp::start().await;
    let all = gauges(&app, 23).await;
    app.client.embed_tokens(DocumentPath { id: all[0] }).await.unwrap();
    for method in METHODS {
        let body = json!({"query": "radar gauge", "limit": 100});
        let whole = ask(&app.client, method, &body).await.unwrap();
        assert_eq!((whole.results.len(), whole.next_cursor.as_deref()), (23, None), "{method}");
        for limit in [1, 7, 22, 23] {
            let (paged, pages) = leaf_through(&app, method, json!({"query": "radar gauge", "limit": limit})).await;
            assert_eq!(paged, ids(&whole), "{method} by {limit}");
            assert!((23_usize.div_ceil(limit)..=23 / limit + 1).contains(&pages), "{method} by {limit}: {pages}");
        }
    }
    // Pages may differ in their size and in what they show of a result.
    let body = json!({"query": "radar gauge", "limit": 5});
    let first = ask(&app.client, "bm25", &body).await.unwrap();
    let cursor = first.next_cursor.unwrap();
    let more =
        json!({"query": "radar gauge", "limit": 3, "include_content": false, "snippets": true, "cursor": cursor});
    let second = ask(&app.client, "bm25", &more).await.unwrap();
    let whole = ask(&app.client, "bm25", &json!({"query": "radar gauge", "limit": 8})).await.unwrap();
    assert_eq!(ids(&second), ids(&whole)[5..]);

    // Everything else belongs to the search.
    for other in [
        json!({"query": "radar gauges", "cursor": cursor}),
        json!({"query": "radar gauge", "parent_id": all[0], "cursor": cursor}),
        json!({"query": "radar gauge", "group_by": "file", "cursor": cursor}),
        json!({"query": "radar gauge", "filter": {"exclude": [all[3]]}, "cursor": cursor}),
        json!({"query": "radar gauge", "cursor": "1.2.3.4"}),
        json!({"query": "radar gauge", "cursor": "99.5.3.4"}),
        json!({"query": "radar gauge", "cursor": "7"}),
    ] {
        for method in ["bm25", "auto"] {
            let refused = ask(&app.client, method, &other).await.unwrap_err();
            assert_eq!((refused.code, &refused.members["field"]), (Code::InvalidField, &json!("cursor")), "{other}");
        }
    }
    let refused = ask(&app.client, "vector", &json!({"query": "radar gauge", "cursor": cursor})).await.unwrap_err();
    assert_eq!(refused.members["field"], "cursor");
    let answer = SynthesizeSearch { cursor: Some(cursor), ..SynthesizeSearch::new("radar gauge") };
    assert_eq!(app.client.synthesize(Json(answer)).await.unwrap_err().members["field"], "cursor");
    app.end().await;
}

#[tokio::test]
async fn what_is_stored_and_deleted_between_two_pages_brings_no_result_twice_and_leaves_none_out() {
    let app = TestApp::start().await;
    let all = gauges(&app, 12).await;
    let ask = async |cursor: Option<String>| {
        let body = Bm25Search { limit: 4, cursor, ..Bm25Search::new("radar gauge") };
        app.client.search_bm25(Json(body)).await.unwrap()
    };
    let first = ask(None).await;
    assert_eq!(ids(&first), all[..4]);
    // These are better than the first page, whose results only have the words once: more of them than a page has.
    let mut better = Vec::new();
    for n in 0..6 {
        better.push(app.create(&format!("Better {n}"), "radar gauge radar gauge", None).await.id);
    }
    let second = ask(first.next_cursor.clone()).await;
    assert_eq!(ids(&second), better[..4], "what was stored since comes too");
    app.client.delete_document(DocumentPath { id: all[1] }).await.unwrap();
    let third = ask(second.next_cursor).await;
    assert_eq!(ids(&third), [&better[4..], &all[4..6]].concat(), "nothing comes twice");
    let fourth = ask(third.next_cursor).await;
    assert_eq!(ids(&fourth), all[6..10]);
    let fifth = ask(fourth.next_cursor).await;
    assert_eq!((ids(&fifth).as_slice(), fifth.next_cursor), (&all[10..], None), "nothing is left out");
    app.client.delete_document(DocumentPath { id: all[3] }).await.unwrap();
    assert_eq!(ids(&ask(first.next_cursor).await), better[..4]);
    app.end().await;
}

#[tokio::test]
async fn a_deleted_result_takes_no_other_out_of_the_pages() {
    let app = TestApp::start().await;
    let mut all: BTreeSet<i64> = gauges(&app, 20).await.into_iter().collect();
    for method in ["vector", "fulltext", "bm25", "hybrid"] {
        let mut body = json!({"query": "radar gauge", "limit": 3});
        let first = ask(&app.client, method, &body).await.unwrap();
        // The last of them, and then all of them.
        for gone in [&ids(&first)[2..], &ids(&first)[..2]] {
            for id in gone {
                app.client.delete_document(DocumentPath { id: *id }).await.unwrap();
                all.remove(id);
            }
            body["cursor"] = first.next_cursor.clone().into();
            let (rest, _) = leaf_through(&app, method, body.clone()).await;
            let left: BTreeSet<i64> = all.iter().copied().filter(|id| !ids(&first).contains(id)).collect();
            assert_eq!((rest.len(), rest.into_iter().collect::<BTreeSet<_>>()), (left.len(), left), "{method}");
        }
    }
    app.end().await;
}

#[tokio::test]
async fn pages_of_groups_are_the_groups_in_their_order() {
    let app = TestApp::start().await;
    let mut files = Vec::new();
    for n in 0..7 {
        let other = "Nothing else is said here. ".repeat(n);
        let text =
            format!("# Tank {n}\n\nThe radar gauge of tank {n}. {other}\n\n# More\n\nA second radar gauge {n}.\n");
        files.push(app.upload_bytes(&format!("tank-{n}.md"), text).await.unwrap().document_id);
    }
    for file in &files {
        app.settled(*file).await;
    }
    for method in METHODS {
        for group_by in ["file", "section"] {
            let body =
                |limit: u32| json!({"query": "radar gauge", "limit": limit, "group_by": group_by, "per_group": 2});
            let whole = ids(&ask(&app.client, method, &body(100)).await.unwrap());
            assert!(whole.len() >= 7, "{method} {group_by}");
            let (paged, _) = leaf_through(&app, method, body(3)).await;
            assert_eq!(paged, whole, "{method} by {group_by}");
        }
    }
    // A second stage ranks the same groups again for every page, and no more than it was told to.
    let texts = ask(&app.client, "bm25", &json!({"query": "radar gauge", "limit": 100, "usetype": ["chunk"]})).await;
    for id in ids(&texts.unwrap()) {
        app.client.embed_tokens(DocumentPath { id }).await.unwrap();
    }
    for method in ["vector", "bm25", "hybrid"] {
        let body = |limit: u32| json!({"query": "second radar gauge 3", "limit": limit, "group_by": "file", "rerank": true, "rerank_method": "maxsim", "rerank_top": 5});
        let whole = ids(&ask(&app.client, method, &body(5)).await.unwrap());
        assert_eq!(whole.len(), 5, "{method}");
        for limit in [1, 2, 3] {
            let (paged, pages) = leaf_through(&app, method, body(limit)).await;
            assert_eq!(paged, whole, "{method} by {limit}");
            assert_eq!(pages, 5_usize.div_ceil(limit as usize), "{method} by {limit}");
        }
    }
    let query = SearchQuery { limit: 4, ..SearchQuery::new("radar gauge") };
    let first = app.client.search(query.clone()).await.unwrap();
    let second = app.client.search(SearchQuery { cursor: first.next_cursor.clone(), ..query }).await.unwrap();
    let mut seen = [ids(&first), ids(&second)].concat();
    seen.sort_unstable();
    assert_eq!(seen, files);
    app.end().await;
}

#[tokio::test]
async fn pages_behind_the_depth_of_the_legs_skip_and_repeat_nothing() {
    let app = TestApp::start().await;
    let words = ["tank", "valve", "pump", "meter", "hose", "seal", "filter", "boiler"];
    // The legs disagree on the order of these: BM25 counts the word, and the vectors compare what else is said.
    let text = |n: usize| {
        let others: Vec<&str> = (0..6).map(|at| words[(n * (at + 3) + at * at) % words.len()]).collect();
        format!("{} {}", "gauge ".repeat(1 + n * 7 % 5), others.join(" "))
    };
    let document = |n: usize| BatchItem { title: format!("Part {n}"), content: text(n), ..BatchItem::default() };
    let batch = NewBatch { documents: (0..230).map(document).collect(), priority: 0 };
    let made = app.client.create_documents(Json(batch)).await.unwrap().documents;
    for document in &made {
        app.settled(document.document_id).await;
    }
    let mut all: Vec<i64> = made.iter().map(|document| document.document_id).collect();
    all.sort_unstable();
    let halves = json!({"vector": 0.5, "bm25": 0.5});
    let mostly_words = json!({"vector": 0.05, "bm25": 0.95});
    for (method, weights, fusion) in [
        ("hybrid", &halves, json!("rank")),
        ("hybrid", &mostly_words, json!("rank")),
        ("hybrid", &halves, json!("score")),
        ("hybrid", &mostly_words, json!("score")),
        ("auto", &halves, json!("score")),
        ("maxsim", &Value::Null, Value::Null),
    ] {
        let mut body = json!({"query": "pressure gauge of the boiler", "limit": 23});
        for (name, value) in [("weights", weights), ("fusion", &fusion)] {
            if !value.is_null() {
                body[name] = value.clone();
            }
        }
        let (mut paged, _) = leaf_through(&app, method, body.clone()).await;
        // What the first hundred are, deeper legs do not change.
        body["limit"] = json!(100);
        let first = ask(&app.client, method, &body).await.unwrap();
        assert_eq!(paged[..100], ids(&first)[..], "{method} {weights} {fusion}");
        paged.sort_unstable();
        assert_eq!(paged, all, "{method} {weights} {fusion}");
    }
    app.end().await;
}

#[tokio::test]
async fn a_further_page_goes_on_with_the_method_of_the_first_and_shows_what_its_reader_may_read() {
    let app = TestApp::start().await;
    for n in 0..3 {
        app.create(&format!("Order {n}"), &format!("Order XK-4471-B was billed {n} times."), None).await;
    }
    app.create("Tides", "The tide comes in twice a day.", None).await;
    let body = json!({"query": "XK-4471-B", "limit": 2, "group_by": "none"});
    let first = ask(&app.client, "auto", &body).await.unwrap();
    assert_eq!((first.method, first.results.len()), (SearchMethod::Bm25, 2));
    let mut next = body.clone();
    next["cursor"] = first.next_cursor.clone().into();
    let second = ask(&app.client, "auto", &next).await.unwrap();
    assert_eq!((second.method, second.results.len(), second.next_cursor.as_deref()), (SearchMethod::Bm25, 1, None));
    assert_eq!(second.why.as_deref(), Some("the first page took it"));

    // A cursor shows nobody more than a search does.
    let closed = ids(&second)[0];
    app.client.protect_document(DocumentPath { id: closed }).await.unwrap();
    let p = someone(&app, "p").await;
    let seen = p.client.search_auto(Json(serde_json::from_value(next).unwrap())).await.unwrap();
    assert!(!ids(&seen).contains(&closed));
    app.end().await;
}

#[tokio::test]
async fn each_stage_says_its_rank_and_score_if_asked() {
    let app = TestApp::start().await;
    let all = gauges(&app, 5).await;
    for id in &all {
        app.client.embed_tokens(DocumentPath { id: *id }).await.unwrap();
    }
    macro_rules! legs {
        ($type:ident, $method:ident, $with:expr) => {{
            let body = $type { include_scores: $with, ..$type::new("radar gauge") };
            app.client.$method(Json(body)).await.unwrap().results
        }};
    }
    for (place, result) in (1..).zip(legs!(VectorSearch, search_vector, true)) {
        let leg = result.legs.unwrap().vector.unwrap();
        assert_eq!((leg.rank, leg.score), (place, result.score));
    }
    for (place, result) in (1..).zip(legs!(Bm25Search, search_bm25, true)) {
        let legs = result.legs.unwrap();
        assert_eq!((legs.bm25.unwrap().rank, legs.vector), (place, None));
    }
    for (place, result) in (1..).zip(legs!(FulltextSearch, search_fulltext, true)) {
        assert_eq!(result.legs.unwrap().fulltext.unwrap().rank, place);
    }
    for (place, result) in (1..).zip(legs!(MaxsimSearch, search_maxsim, true)) {
        let legs = result.legs.unwrap();
        assert_eq!((legs.maxsim.unwrap().rank, legs.vector.is_some(), legs.bm25.is_some()), (place, true, true));
    }
    assert!(legs!(VectorSearch, search_vector, false).iter().all(|result| result.legs.is_none()));
    assert!(legs!(HybridSearch, search_hybrid, false).iter().all(|result| result.legs.is_some()));
    let reranked = HybridSearch {
        rerank: Some(true),
        rerank_method: Some(RerankMethod::Maxsim),
        include_scores: true,
        group_by: Some(GroupBy::None),
        ..HybridSearch::new("radar gauge")
    };
    let found = app.client.search_hybrid(Json(reranked)).await.unwrap();
    for (place, result) in (1..).zip(found.results) {
        let legs = result.legs.unwrap();
        let rerank = legs.rerank.unwrap();
        assert_eq!((rerank.rank, rerank.score), (place, result.score));
        assert!(legs.vector.is_some());
    }
    app.end().await;
}
