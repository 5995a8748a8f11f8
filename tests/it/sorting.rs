//! Results in another order than that of their scores.
use crate::{
    cli::svc,
    edits::patched,
    support::{TestApp, document, searches::ask},
};
use serde_json::{Value, json};
use std::cmp::Ordering;
use svc_client::{
    Json,
    wire::{
        ContextConfig, DocumentResponse, NewContext, NewDocument, SearchQuery, SearchResponse, SortBy, SortOrder,
        SynthesizeSearch, TotalIs, WaitQuery,
    },
};

const METHODS: [&str; 6] = ["vector", "fulltext", "bm25", "maxsim", "hybrid", "auto"];

fn ids(found: &SearchResponse) -> Vec<i64> {
    found.results.iter().map(|result| result.document.id).collect()
}

/// Documents that have the words of the query once each, and one after the other more words beside them. Some have a time.
async fn gauges(app: &TestApp) {
    let titles = ["delta", "Alpha", "echo", "bravo", "Echo", "charlie", "alpha", "Golf", "foxtrot"];
    for (n, title) in titles.into_iter().enumerate() {
        let text = format!("The radar gauge of tank {n}. {}", "It stands there and is read. ".repeat(n));
        let new = NewDocument {
            event_time: (n % 3 != 0).then(|| format!("20{:02}-01-01T00:00:00Z", (n * 4) % 9).parse().unwrap()),
            ..document(title, &text)
        };
        app.client.create_document(WaitQuery { wait: true, ..WaitQuery::default() }, Json(new)).await.unwrap();
    }
}

/// How two documents stand to each other, by the contract.
fn compare(by: &str, order: &str, one: &DocumentResponse, other: &DocumentResponse) -> Ordering {
    let directed = |ordering: Ordering| if order == "desc" { ordering.reverse() } else { ordering };
    match by {
        "created_at" => directed(one.created_at.cmp(&other.created_at)),
        "updated_at" => directed(one.updated_at.cmp(&other.updated_at)),
        "title" => directed(one.title.to_lowercase().cmp(&other.title.to_lowercase())),
        _ => match (one.event_time, other.event_time) {
            (Some(one), Some(other)) => directed(one.cmp(&other)),
            // What has no time comes last either way.
            (one, other) => one.is_none().cmp(&other.is_none()),
        },
    }
}

#[tokio::test]
async fn every_method_sorts_what_it_finds_and_its_pages_lead_through_that() {
    let app = TestApp::start().await;
    gauges(&app).await;
    for method in METHODS {
        let body = json!({"query": "radar gauge", "limit": 100, "group_by": "none"});
        let ranked = ask(&app.client, method, &body).await.unwrap();
        assert_eq!((ranked.results.len(), ranked.sorted), (9, None), "{method}");
        for by in ["created_at", "updated_at", "event_time", "title"] {
            for order in ["asc", "desc"] {
                let mut expected = ranked.results.clone();
                // What is equal stays as it was ranked.
                expected.sort_by(|one, other| compare(by, order, &one.document, &other.document));
                let expected: Vec<i64> = expected.iter().map(|result| result.document.id).collect();
                let mut body = body.clone();
                body["sort"] = json!(by);
                body["sort_order"] = json!(order);
                let whole = ask(&app.client, method, &body).await.unwrap();
                assert_eq!(ids(&whole), expected, "{method} {by} {order}");
                let sorted = whole.sorted.unwrap();
                assert_eq!((sorted.by.as_str(), sorted.order.as_str()), (by, order));
                assert_eq!((sorted.count, sorted.count_is), (9, TotalIs::Exact), "{method}");
                body["limit"] = json!(4);
                let mut pages = Vec::new();
                loop {
                    let page = ask(&app.client, method, &body).await.unwrap();
                    pages.extend(ids(&page));
                    assert!(pages.len() <= 9, "{method} {by} {order}");
                    let Some(cursor) = page.next_cursor else { break };
                    body["cursor"] = cursor.into();
                }
                assert_eq!(pages, expected, "{method} {by} {order}");
                // A cursor is of one order.
                body["sort_order"] = json!(if order == "asc" { "desc" } else { "asc" });
                assert_eq!(ask(&app.client, method, &body).await.unwrap_err().members["field"], "cursor");
            }
        }
        // By default the newest times and the first titles come first.
        for (by, order) in [("created_at", SortOrder::Desc), ("event_time", SortOrder::Desc), ("title", SortOrder::Asc)]
        {
            let body = json!({"query": "radar gauge", "sort": by});
            assert_eq!(ask(&app.client, method, &body).await.unwrap().sorted.unwrap().order, order);
        }
        let by_score = json!({"query": "radar gauge", "limit": 100, "group_by": "none", "sort": "score"});
        let by_score = ask(&app.client, method, &by_score).await.unwrap();
        assert_eq!((ids(&by_score), by_score.sorted), (ids(&ranked), None), "{method}");
    }
    app.end().await;
}

#[tokio::test]
async fn the_best_are_sorted_and_the_answer_says_that_others_match() {
    let app = TestApp::start().await;
    gauges(&app).await;
    let ask = async |body: Value| ask(&app.client, "bm25", &body).await.unwrap();
    let ranked = ask(json!({"query": "radar gauge", "limit": 5})).await;
    let mut expected = ids(&ranked);
    expected.sort_unstable();
    let mut body =
        json!({"query": "radar gauge", "limit": 3, "sort": "created_at", "sort_order": "asc", "sort_top": 5});
    let first = ask(body.clone()).await;
    let sorted = first.sorted.unwrap();
    assert_eq!((sorted.count, sorted.count_is, sorted.by), (5, TotalIs::AtLeast, SortBy::CreatedAt));
    body["cursor"] = first.next_cursor.clone().into();
    let second = ask(body).await;
    assert_eq!([ids(&first), ids(&second)].concat(), expected);
    assert_eq!(second.next_cursor, None);
    // What a result scores, it scores in any order.
    let score = |found: &SearchResponse, id: i64| found.results.iter().find(|one| one.document.id == id).unwrap().score;
    assert!(ids(&first).into_iter().all(|id| score(&first, id) == score(&ranked, id)));

    // What is stored between two pages comes before what was shown, and brings nothing twice.
    let body = json!({"query": "radar gauge", "limit": 4, "sort": "created_at"});
    let first = ask(body.clone()).await;
    let new = app.create("hotel", "The radar gauge of the hotel.", None).await.id;
    let mut more = body.clone();
    more["cursor"] = first.next_cursor.clone().into();
    let second = ask(more).await;
    assert!(ids(&second).iter().all(|id| *id != new && !ids(&first).contains(id)));
    assert_eq!(ids(&ask(body).await)[0], new);
    app.end().await;
}

/// Whoever marks what a page shows moves it to the other end of the order.
#[tokio::test]
async fn what_changes_its_place_between_two_pages_is_not_shown_again_and_hides_nothing() {
    let app = TestApp::start().await;
    gauges(&app).await;
    for (by, order, change) in [
        ("title", "asc", json!({"title": "zulu"})),
        ("title", "desc", json!({"title": "aardvark"})),
        ("updated_at", "asc", json!({"structured_content": {"read": 1}})),
        ("updated_at", "desc", json!({"structured_content": {"read": 2}})),
        ("event_time", "desc", json!({"event_time": "1969-07-20T20:17:40.123456Z"})),
        ("event_time", "asc", json!({"event_time": "2050-01-01T00:00:00Z"})),
    ] {
        for (group_by, changed) in [("none", 2..3), ("file", 0..3)] {
            let mut body = json!({
                "query": "radar gauge", "limit": 100, "group_by": group_by, "sort": by, "sort_order": order,
            });
            let expected = ids(&ask(&app.client, "bm25", &body).await.unwrap());
            assert_eq!(expected.len(), 9);
            body["limit"] = json!(3);
            let first = ask(&app.client, "bm25", &body).await.unwrap();
            for id in &ids(&first)[changed] {
                patched(&app, *id, change.clone()).await;
                app.settled(*id).await;
            }
            let (mut pages, mut next) = (ids(&first), first.next_cursor);
            while let Some(cursor) = next {
                body["cursor"] = cursor.into();
                let page = ask(&app.client, "bm25", &body).await.unwrap();
                pages.extend(ids(&page));
                assert!(pages.len() <= 9, "{by} {order} {group_by}: {pages:?}");
                next = page.next_cursor;
            }
            assert_eq!(pages, expected, "{by} {order} {group_by}");
        }
    }
    app.end().await;
}

/// Scores decide where times are the same, and every text that is stored changes how rare a word is.
#[tokio::test]
async fn what_is_level_with_the_last_result_and_now_ranks_before_it_comes_on_the_next_page() {
    let app = TestApp::start().await;
    let create = async |title: &str, text: &str, time: Option<&str>| {
        let new = NewDocument { event_time: time.map(|time| time.parse().unwrap()), ..document(title, text) };
        let query = WaitQuery { wait: true, ..WaitQuery::default() };
        app.client.create_document(query, Json(new)).await.unwrap().document.id
    };
    let time = Some("2024-01-01T00:00:00Z");
    let radar = create("One", "radar apparatus", time).await;
    let gauge = create("Two", "gauge apparatus", time).await;
    let other = create("Three", "gauge dial", None).await;
    let mut body = json!({"query": "radar gauge", "limit": 1, "group_by": "none", "sort": "event_time"});
    let first = ask(&app.client, "bm25", &body).await.unwrap();
    assert_eq!(ids(&first), [radar], "the rarer word ranks first");
    let mut new = Vec::new();
    for title in ["Four", "Five", "Six"] {
        new.push(create(title, "radar dial", None).await);
    }
    assert_eq!(ids(&ask(&app.client, "bm25", &body).await.unwrap()), [gauge], "now the other word is rarer");
    let (mut pages, mut next) = (ids(&first), first.next_cursor);
    while let Some(cursor) = next {
        body["cursor"] = cursor.into();
        let page = ask(&app.client, "bm25", &body).await.unwrap();
        pages.extend(ids(&page));
        assert!(pages.len() <= 6, "{pages:?}");
        next = page.next_cursor;
    }
    assert_eq!(pages[..3], [radar, gauge, other]);
    pages[3..].sort_unstable();
    assert_eq!(pages[3..], new);
    app.end().await;
}

/// Else a larger page would bring in others before those that were shown.
#[tokio::test]
async fn a_larger_page_sorts_no_more_than_the_first_one_did() {
    let app = TestApp::start().await;
    gauges(&app).await;
    for method in METHODS {
        for group_by in ["none", "file"] {
            let mut body = json!({
                "query": "radar gauge", "limit": 5, "group_by": group_by, "sort": "created_at", "sort_order": "desc",
                "sort_top": 5,
            });
            let whole = ask(&app.client, method, &body).await.unwrap();
            assert_eq!((whole.results.len(), whole.next_cursor.as_deref()), (5, None), "{method} {group_by}");
            body["limit"] = json!(2);
            let first = ask(&app.client, method, &body).await.unwrap();
            body["limit"] = json!(100);
            body["cursor"] = first.next_cursor.clone().into();
            let second = ask(&app.client, method, &body).await.unwrap();
            assert_eq!([ids(&first), ids(&second)].concat(), ids(&whole), "{method} {group_by}");
            assert_eq!((second.sorted.unwrap().count, second.next_cursor), (5, None), "{method} {group_by}");
        }
    }
    app.end().await;
}

#[tokio::test]
async fn groups_are_sorted_by_what_stands_for_them() {
    let app = TestApp::start().await;
    for name in ["b.md", "d.md", "a.md", "c.md"] {
        let text = format!("# Tank\n\nThe radar gauge of {name}.\n\n# More\n\nA second radar gauge of {name}.\n");
        let file = app.upload_bytes(name, text).await.unwrap().document_id;
        app.settled(file).await;
    }
    for method in METHODS {
        for (order, expected) in [("asc", ["a.md", "b.md", "c.md", "d.md"]), ("desc", ["d.md", "c.md", "b.md", "a.md"])]
        {
            let mut body = json!({
                "query": "radar gauge", "limit": 3, "group_by": "file", "sort": "title", "sort_order": order,
            });
            let first = ask(&app.client, method, &body).await.unwrap();
            assert_eq!((first.results.len(), first.sorted.unwrap().count), (3, 4), "{method}");
            body["cursor"] = first.next_cursor.clone().into();
            let second = ask(&app.client, method, &body).await.unwrap();
            let titles = first.results.iter().chain(&second.results).map(|result| result.document.title.as_str());
            assert_eq!(titles.collect::<Vec<_>>(), expected, "{method}");
            assert!(first.results.iter().all(|result| result.hits.as_ref().is_some_and(|hits| !hits.is_empty())));
        }
    }
    let query = SearchQuery { sort: Some(SortBy::Title), ..SearchQuery::new("radar gauge") };
    let found = app.client.search(query).await.unwrap();
    assert_eq!(found.results[0].document.title, "a.md");
    let shown = svc(&app, &["--table", "search", "radar gauge", "--sort", "title", "--sort-order", "desc"]).await;
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("Sorted by title desc: all 4 that match."), "{shown}");
    // Whoever reads JSON lines is told as well that older ones may be left out.
    let arguments = ["search", "radar gauge", "--sort", "created_at", "--sort-top", "2", "--limit", "2"];
    let told = String::from_utf8(svc(&app, &arguments).await.stderr).unwrap();
    assert!(told.contains("Sorted by created_at desc: the best 2 that match."), "{told}");
    app.end().await;
}

#[tokio::test]
async fn what_cannot_both_decide_the_order_is_refused() {
    let app = TestApp::start().await;
    gauges(&app).await;
    for (body, field) in [
        (json!({"sort": "title", "rerank": true}), "sort"),
        (json!({"sort": "title", "mmr_lambda": 0.5}), "sort"),
        (json!({"sort": "created_at", "recency_half_life_days": 30}), "sort"),
        (json!({"sort_order": "asc"}), "sort_order"),
        (json!({"sort": "score", "sort_order": "asc"}), "sort_order"),
        (json!({"sort_top": 10}), "sort_top"),
        (json!({"sort": "title", "sort_top": 1_001}), "sort_top"),
        // Positions order siblings alone.
        (json!({"sort": "position"}), "sort"),
    ] {
        for method in METHODS {
            let mut body = body.clone();
            body["query"] = json!("radar gauge");
            let answer = app.raw("POST", &format!("/search/{method}")).json(&body).send().await.unwrap();
            assert_eq!(answer.status(), 422, "{body}");
            assert_eq!(answer.json::<Value>().await.unwrap()["field"], field, "{body}");
        }
    }
    let answer = app.raw("GET", "/search/?q=radar&sort_order=asc").send().await.unwrap();
    assert_eq!(
        (answer.status().as_u16(), &answer.json::<Value>().await.unwrap()["field"]),
        (422, &json!("sort_order"))
    );
    let answer = SynthesizeSearch { sort: Some(SortBy::CreatedAt), ..SynthesizeSearch::new("radar gauge") };
    assert_eq!(app.client.synthesize(Json(answer)).await.unwrap_err().members["field"], "sort");

    // A search says itself how it is sorted, whatever its context says of the order.
    let config = ContextConfig { recency_half_life_days: Some(7.0), mmr_lambda: Some(0.5), ..ContextConfig::default() };
    app.client.create_context(Json(NewContext { name: "recent".to_owned(), config })).await.unwrap();
    for method in METHODS {
        let sorted = json!({"query": "radar gauge", "limit": 100, "group_by": "none", "sort": "title"});
        let alone = ask(&app.client, method, &sorted).await.unwrap();
        let mut within = sorted;
        within["context"] = json!("recent");
        let within = ask(&app.client, method, &within).await.unwrap();
        assert_eq!((ids(&within), within.sorted), (ids(&alone), alone.sorted), "{method}");
    }
    app.end().await;
}
