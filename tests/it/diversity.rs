//! Results in another order: the newer ones first, and those that say something new before those that repeat.
use crate::{
    principals::someone,
    support::{TestApp, document, searches::ask},
};
use serde_json::{Value, json};
use svc_client::{
    Code, Json,
    wire::{ContextConfig, DocumentPath, NewContext, SearchResponse, WaitQuery},
};

const METHODS: [&str; 6] = ["vector", "fulltext", "bm25", "maxsim", "hybrid", "auto"];

fn ids(found: &SearchResponse) -> Vec<i64> {
    found.results.iter().map(|result| result.document.id).collect()
}

/// Notes on radar gauges, each with others that say the same, the later ones about later days.
async fn notes(app: &TestApp) -> Vec<i64> {
    let places =
        ["in the harbour by the sea", "on a bridge over the river", "in a tank of milk", "at the foot of a dam"];
    let mut all = Vec::new();
    for n in 0..16 {
        let text = format!(
            "The radar gauge stands {}.{}",
            places[n / 4],
            ["", " It is read.", " It is new.", " It was built well."][n % 4]
        );
        let mut note = document(&format!("Gauge {n}"), &text);
        note.event_time = Some(format!("20{:02}-01-01T00:00:00Z", 1 + n).parse().unwrap());
        all.push(
            app.client
                .create_document(WaitQuery { wait: true, ..WaitQuery::default() }, Json(note))
                .await
                .unwrap()
                .document
                .id,
        );
    }
    app.client.embed_tokens(DocumentPath { id: all[0] }).await.unwrap();
    all
}

#[tokio::test]
async fn without_ages_and_with_lambda_one_every_method_has_its_plain_order() {
    let app = TestApp::start().await;
    let all = notes(&app).await;
    for method in METHODS {
        for group_by in ["none", "file"] {
            let ask = async |more: Value| {
                let mut body =
                    json!({"query": "radar gauge", "limit": 100, "group_by": group_by, "include_scores": true});
                body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
                ask(&app.client, method, &body).await.unwrap()
            };
            let plain = ask(json!({})).await;
            assert_eq!(plain.results.len(), all.len(), "{method}");
            assert_eq!(ids(&ask(json!({"mmr_lambda": 1.0})).await), ids(&plain), "{method} {group_by}");
            // The ages differ by years, of which none counts.
            let patient = ask(json!({"mmr_lambda": 1.0, "recency_half_life_days": 100_000})).await;
            assert!(patient.results.iter().all(|result| result.legs.unwrap().recency.is_some()), "{method}");
            let newest_first = ask(json!({"recency_half_life_days": 1})).await;
            let newest: Vec<i64> = all.iter().rev().copied().collect();
            assert_eq!(ids(&newest_first), newest, "{method} {group_by}");
            // The score says what it said without.
            for result in &newest_first.results {
                let before = plain.results.iter().find(|other| other.document.id == result.document.id).unwrap();
                assert_eq!(result.score, before.score, "{method}");
            }
            for (rank, result) in (1..).zip(&newest_first.results) {
                assert_eq!(result.legs.unwrap().recency.unwrap().rank, rank);
            }
        }
    }
    app.end().await;
}

#[tokio::test]
async fn diverse_results_are_the_same_ones_in_an_order_that_repeats_less() {
    let app = TestApp::start().await;
    let all = notes(&app).await;
    let kind = |id: &i64| all.iter().position(|other| other == id).unwrap() / 4;
    for method in METHODS {
        let body = json!({"query": "radar gauge in the harbour", "limit": 100, "group_by": "none"});
        let plain = ask(&app.client, method, &body).await.unwrap();
        let body = json!({"query": "radar gauge in the harbour", "limit": 100, "group_by": "none", "mmr_lambda": 0.1, "include_scores": true});
        let diverse = ask(&app.client, method, &body).await.unwrap();
        assert_eq!(ids(&diverse)[0], ids(&plain)[0], "{method}: the best one is the best");
        let sorted = |found: &SearchResponse| {
            let mut ids = ids(found);
            ids.sort_unstable();
            ids
        };
        assert_eq!(sorted(&diverse), sorted(&plain), "{method}");
        let kinds: std::collections::BTreeSet<usize> = ids(&diverse)[..4].iter().map(kind).collect();
        assert_eq!(kinds.len(), 4, "{method}: {:?}", ids(&diverse));
        assert_eq!(diverse.results[1].legs.unwrap().mmr.unwrap().rank, 2);
    }
    app.end().await;
}

#[tokio::test]
async fn pages_of_another_order_are_its_results_once_each() {
    let app = TestApp::start().await;
    notes(&app).await;
    for method in METHODS {
        for group_by in ["none", "file"] {
            let body = |limit: u32, cursor: Option<String>| {
                json!({"query": "radar gauge", "limit": limit, "group_by": group_by, "mmr_lambda": 0.4,
                       "recency_half_life_days": 700, "rerank_top": 20, "cursor": cursor})
            };
            let whole = ask(&app.client, method, &body(20, None)).await.unwrap();
            assert_eq!((whole.results.len(), whole.next_cursor.as_deref()), (16, None), "{method}");
            let (mut paged, mut cursor) = (Vec::new(), None);
            loop {
                let page = ask(&app.client, method, &body(5, cursor)).await.unwrap();
                paged.extend(ids(&page));
                cursor = page.next_cursor;
                if cursor.is_none() {
                    break;
                }
            }
            assert_eq!(paged, ids(&whole), "{method} {group_by}");
        }
    }
    // Only the best candidates are ranked again, on all pages.
    let body = json!({"query": "radar gauge", "limit": 3, "rerank_top": 6, "recency_half_life_days": 1});
    let first = ask(&app.client, "bm25", &body).await.unwrap();
    let mut next = body.clone();
    next["cursor"] = json!(first.next_cursor);
    let second = ask(&app.client, "bm25", &next).await.unwrap();
    assert_eq!((second.results.len(), second.next_cursor.as_deref()), (3, None));
    let plain = ask(&app.client, "bm25", &json!({"query": "radar gauge", "limit": 6})).await.unwrap();
    let mut newest = ids(&plain);
    newest.sort_unstable_by(|a, b| b.cmp(a));
    assert_eq!([ids(&first), ids(&second)].concat(), newest);
    // So they are on a further page that shows more.
    for group_by in ["none", "file"] {
        let mut body = json!({"query": "radar gauge", "limit": 3, "rerank_top": 6, "recency_half_life_days": 1, "group_by": group_by});
        let first = ask(&app.client, "hybrid", &body).await.unwrap();
        let next = |limit: u32| json!({"limit": limit, "cursor": first.next_cursor});
        let mut further = Vec::new();
        for limit in [3, 100] {
            body.as_object_mut().unwrap().extend(next(limit).as_object().unwrap().clone());
            further.push(ask(&app.client, "hybrid", &body).await.unwrap());
        }
        let (three, many) = (ids(&further[0]), ids(&further[1]));
        assert_eq!((three.len(), &many[..3.min(many.len())]), (3, &three[..]), "{group_by}");
        assert!(group_by == "file" || (many.len() == 3 && further[1].next_cursor.is_none()), "{many:?}");
    }
    app.end().await;
}

#[tokio::test]
async fn the_age_of_a_part_is_that_of_the_nearest_time_above_it_that_its_reader_may_read() {
    let app = TestApp::start().await;
    let mut letter = document("Letter", "");
    letter.event_time = Some("1999-01-01T00:00:00Z".parse().unwrap());
    let letter = app
        .client
        .create_document(WaitQuery { wait: true, ..WaitQuery::default() }, Json(letter))
        .await
        .unwrap()
        .document
        .id;
    let old = app.create("Old", "radar gauge radar gauge", Some(letter)).await.id;
    let new = app.create("New", "radar gauge stands here, far from all others, and is read", None).await.id;
    let mut coming = document(
        "Coming",
        "radar gauge, to be built where there was none, by people who come over the hills with ropes and ladders, and to be read twice a day",
    );
    coming.event_time = Some("2999-01-01T00:00:00Z".parse().unwrap());
    let coming = app
        .client
        .create_document(WaitQuery { wait: true, ..WaitQuery::default() }, Json(coming))
        .await
        .unwrap()
        .document
        .id;
    let body = json!({"query": "radar gauge", "recency_half_life_days": 30});
    let found = ask(&app.client, "bm25", &body).await.unwrap();
    assert_eq!(ids(&found), [new, coming, old], "what is to come is as new as what is");
    let named = ContextConfig { recency_half_life_days: Some(30.0), ..ContextConfig::default() };
    app.client.create_context(Json(NewContext { name: "news".to_owned(), config: named })).await.unwrap();
    let by_name = ask(&app.client, "bm25", &json!({"query": "radar gauge", "context": "news"})).await.unwrap();
    assert_eq!(ids(&by_name), ids(&found));
    // Whoever does not see the letter does not learn of its time.
    app.client.protect_document(DocumentPath { id: letter }).await.unwrap();
    app.client.protect_document(DocumentPath { id: old }).await.unwrap();
    let reader = someone(&app, "reader").await;
    crate::principals::grant(&app, &reader, old, svc_client::wire::GrantRight::Read).await;
    let theirs = ask(&reader.client, "bm25", &body).await.unwrap();
    assert_eq!(ids(&theirs), [old, new, coming]);
    for (body, field) in [
        (json!({"query": "radar", "mmr_lambda": 1.1}), "mmr_lambda"),
        (json!({"query": "radar", "recency_half_life_days": 0}), "recency_half_life_days"),
    ] {
        let refused = ask(&app.client, "bm25", &body).await.unwrap_err();
        assert_eq!((refused.code, &refused.members["field"]), (Code::InvalidField, &json!(field)));
    }
    app.end().await;
}
