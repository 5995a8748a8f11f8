//! Filters by the values at keys of structured content.
use crate::{
    principals::someone,
    support::{TestApp, document, searches::ask},
};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use svc_client::{
    Client, Json, Remote,
    wire::{DocumentPath, NewDocument, WaitQuery},
};

const METHODS: [&str; 6] = ["vector", "fulltext", "bm25", "maxsim", "hybrid", "auto"];

/// Documents that every query here finds, with these contents.
async fn notes(app: &TestApp) -> Vec<i64> {
    let contents = [
        json!({"price": 5, "colour": "red", "tags": ["a", "b"], "spec": {"day": "2021-03-04"}}),
        json!({"price": 20, "colour": "teal", "tags": ["b"], "spec": {"day": "2021-03-10"}}),
        json!({"price": 20.0, "colour": ["red", "blue"], "spec": [{"day": "2020-01-01"}, {"day": "2022-01-01"}]}),
        json!({"price": "20", "colour": null, "tags": [], "new": true}),
        json!({}),
    ];
    stored(app, &contents).await
}

async fn stored(app: &TestApp, contents: &[Value]) -> Vec<i64> {
    let mut ids = Vec::new();
    for content in contents {
        let new = NewDocument {
            structured_content: content.as_object().unwrap().clone(),
            ..document(&format!("Note {}", ids.len()), "The lighthouse keeper.")
        };
        let query = WaitQuery { wait: true, ..WaitQuery::default() };
        ids.push(app.client.create_document(query, Json(new)).await.unwrap().document.id);
    }
    ids
}

async fn found(client: &Client<Remote>, method: &str, filter: &Value) -> BTreeSet<i64> {
    let body = json!({"query": "lighthouse", "limit": 100, "group_by": "none", "filter": filter});
    let found = ask(client, method, &body).await.unwrap();
    found.results.into_iter().map(|result| result.document.id).collect()
}

#[tokio::test]
async fn every_method_finds_what_has_the_values_that_are_asked_for() {
    let app = TestApp::start().await;
    let ids = notes(&app).await;
    let day = ["spec", "day"];
    let cases = [
        (json!([{"path": ["price"], "in": [20]}]), vec![1, 2]),
        (json!([{"path": ["price"], "in": ["20"]}]), vec![3]),
        (json!([{"path": ["price"], "in": [20, "20", 5.0]}]), vec![0, 1, 2, 3]),
        (json!([{"path": ["new"], "in": [true]}]), vec![3]),
        // A list stands for its entries.
        (json!([{"path": ["colour"], "in": ["red"]}]), vec![0, 2]),
        (json!([{"path": ["tags"], "in": ["b", "c"]}]), vec![0, 1]),
        // A bound is of numbers or of texts, and lets the others not pass.
        (json!([{"path": ["price"], "from": 5, "until": 20}]), vec![0]),
        (json!([{"path": ["price"], "from": 5}]), vec![0, 1, 2]),
        (json!([{"path": ["price"], "until": -1}]), vec![]),
        (json!([{"path": ["price"], "from": "2"}]), vec![3]),
        (json!([{"path": day, "from": "2021-03-05", "until": "2022-01-01"}]), vec![1]),
        (json!([{"path": day, "from": "2021-01-01"}]), vec![0, 1, 2]),
        // One entry must be within both bounds.
        (json!([{"path": day, "from": "2020-06-01", "until": "2021-06-01"}]), vec![0, 1]),
        (json!([{"path": ["price"], "in": [5, 20], "from": 6}]), vec![1, 2]),
        (json!([{"path": ["colour"], "exists": true}]), vec![0, 1, 2, 3]),
        (json!([{"path": ["colour"], "exists": false}]), vec![4]),
        (json!([{"path": ["tags"], "exists": true}]), vec![0, 1, 3]),
        (json!([{"path": day, "exists": false}]), vec![3, 4]),
        (json!([{"path": ["colour"], "in": ["red"]}, {"path": ["price"], "from": 10}]), vec![2]),
        // What a caller writes is a name, and never a part of the question.
        (json!([{"path": ["a\" ? (true)"], "exists": true}]), vec![]),
        (json!([{"path": ["colour\" ? (1 == 1)"], "in": ["x\" || @ != \""]}]), vec![]),
    ];
    for method in METHODS {
        for (keys, expected) in &cases {
            let expected: BTreeSet<i64> = expected.iter().map(|place: &usize| ids[*place]).collect();
            assert_eq!(found(&app.client, method, &json!({"keys": keys})).await, expected, "{method} {keys}");
            // Within other filters as by themselves.
            let within = json!({"any": [{"usetype": ["nothing"]}, {"all": [{"keys": keys}]}]});
            assert_eq!(found(&app.client, method, &within).await, expected, "{method} {within}");
            let others: BTreeSet<i64> = ids.iter().copied().filter(|id| !expected.contains(id)).collect();
            assert_eq!(found(&app.client, method, &json!({"none": [{"keys": keys}]})).await, others, "{method} {keys}");
        }
    }
    // No value tells of a document that the caller may not read.
    let reader = someone(&app, "reader").await;
    app.client.protect_document(DocumentPath { id: ids[1] }).await.unwrap();
    for method in METHODS {
        let filter = json!({"keys": [{"path": ["price"], "in": [20]}]});
        assert_eq!(found(&reader.client, method, &filter).await, BTreeSet::from([ids[2]]), "{method}");
    }
    app.end().await;
}

#[tokio::test]
async fn a_list_in_a_list_stands_for_no_entry() {
    let app = TestApp::start().await;
    let contents = [
        json!({"v": 1}),
        json!({"v": [1, [2]]}),
        json!({"v": [[1]]}),
        json!({"v": {"k": [1]}}),
        json!({"v": {"k": [[1]]}}),
        json!({"v": [{"k": [[1], 2]}]}),
        json!({"v": [[{"k": 1}]]}),
    ];
    let ids = stored(&app, &contents).await;
    for (key, expected) in [
        (json!({"path": ["v"], "in": [1]}), vec![0, 1]),
        (json!({"path": ["v"], "in": [2]}), vec![]),
        (json!({"path": ["v"], "from": 1, "until": 3}), vec![0, 1]),
        (json!({"path": ["v", "k"], "in": [1]}), vec![3]),
        (json!({"path": ["v", "k"], "in": [1, 2], "from": 0}), vec![3, 5]),
        (json!({"path": ["v", "k"], "from": 1}), vec![3, 5]),
        (json!({"path": ["v", "k"], "exists": true}), vec![3, 4, 5]),
    ] {
        let expected: BTreeSet<i64> = expected.into_iter().map(|place: usize| ids[place]).collect();
        let others: BTreeSet<i64> = ids.iter().copied().filter(|id| !expected.contains(id)).collect();
        for method in ["vector", "bm25"] {
            let found_of = async |filter: Value| found(&app.client, method, &filter).await;
            assert_eq!(found_of(json!({"keys": [&key]})).await, expected, "{method} {key}");
            assert_eq!(found_of(json!({"none": [{"keys": [&key]}]})).await, others, "{method} {key}");
        }
    }
    app.end().await;
}

/// What else a path asks must not keep the index from what it asks to be equal.
#[tokio::test]
async fn the_index_finds_what_a_key_is_asked_to_be() {
    let app = TestApp::start().await;
    stored(&app, &[json!({"v": 1}), json!({"v": 3}), json!({"v": [4]})]).await;
    let path = r#"$."v" ? (@.type() != "array" && (@ == 1 || @ == 2))"#;
    let mut tx = app.pool.begin().await.unwrap();
    sqlx::query("SET LOCAL enable_seqscan = off").execute(&mut *tx).await.unwrap();
    let plan: Vec<String> = sqlx::query_scalar(
        "EXPLAIN (ANALYZE, COSTS false, TIMING false) SELECT id FROM documents WHERE structured_content <> '{}' AND structured_content @? $1::text::jsonpath",
    )
    .bind(path)
    .fetch_all(&mut *tx)
    .await
    .unwrap();
    tx.rollback().await.unwrap();
    let of_index = plan.iter().find(|line| line.contains("documents_structured_content")).unwrap();
    assert!(of_index.contains("rows=1"), "the index itself leaves out the others: {plan:?}");
    app.end().await;
}

#[tokio::test]
async fn what_asks_for_nothing_or_too_much_is_refused_by_its_name() {
    let app = TestApp::start().await;
    let refused = async |filter: Value| {
        let body = json!({"query": "lighthouse", "filter": filter});
        let answer = app.raw("POST", "/search/bm25").json(&body).send().await.unwrap();
        match answer.status().as_u16() {
            200 => None,
            422 => Some(answer.json::<Value>().await.unwrap()["field"].as_str().unwrap().to_owned()),
            other => panic!("{other} to {filter}"),
        }
    };
    let of = |key: Value| json!({"keys": [key]});
    let many = |count: usize| (0..count).collect::<Vec<_>>();
    let names = |count: usize| vec!["a"; count];
    for fits in [
        of(json!({"path": names(8), "in": many(100)})),
        of(json!({"path": ["a".repeat(255)], "in": ["b".repeat(1_000)]})),
        json!({"keys": vec![json!({"path": ["a"], "exists": true}); 100]}),
    ] {
        assert_eq!(refused(fits.clone()).await, None, "{fits}");
    }
    for (filter, field) in [
        (of(json!({"path": [], "exists": true})), "filter.keys[0].path"),
        (of(json!({"path": [""], "exists": true})), "filter.keys[0].path"),
        (of(json!({"path": names(9), "exists": true})), "filter.keys[0].path"),
        (of(json!({"path": ["a".repeat(256)], "exists": true})), "filter.keys[0].path"),
        (of(json!({"exists": true})), "filter.keys[0].path"),
        (of(json!({"path": ["a"]})), "filter.keys[0]"),
        (of(json!({"path": ["a"], "in": []})), "filter.keys[0].in"),
        (of(json!({"path": ["a"], "in": many(101)})), "filter.keys[0].in"),
        (of(json!({"path": ["a"], "in": ["b".repeat(1_001)]})), "filter.keys[0].in"),
        (of(json!({"path": ["a"], "in": [[1]]})), "filter.keys[0].in[0]"),
        (of(json!({"path": ["a"], "from": true})), "filter.keys[0].from"),
        (of(json!({"path": ["a"], "from": 1, "until": "b"})), "filter.keys[0].until"),
        (of(json!({"path": ["a"], "in": [1], "exists": true})), "filter.keys[0].exists"),
        (json!({"keys": []}), "filter.keys"),
        (json!({"keys": vec![json!({"path": ["a"], "exists": true}); 101]}), "filter.keys"),
        (json!({"any": [{}, of(json!({"path": ["a"]}))]}), "filter.any[1].keys[0]"),
        // Of 101 keys and values each, the twentieth is too many.
        (json!({"keys": vec![json!({"path": ["a"], "in": many(100)}); 20]}), "filter"),
    ] {
        assert_eq!(refused(filter.clone()).await.as_deref(), Some(field), "{filter}");
    }
    app.end().await;
}
