//! Answers of searches that hold some fields of their documents.
use crate::{
    cli::{lines, svc},
    principals::someone,
    support::TestApp,
};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use svc_client::{
    Json,
    wire::{Bm25Search, DocumentField, DocumentPath},
};

const METHODS: [&str; 6] = ["vector", "fulltext", "bm25", "maxsim", "hybrid", "auto"];

/// What a result has that is no field of its document.
const OWN: [&str; 6] = ["score", "no_tokens", "legs", "snippet", "hits", "texts"];

/// The fields of the documents in a result, which are its own and those of its hits.
fn fields(result: &Value) -> Vec<BTreeSet<String>> {
    let of = |object: &Value| -> BTreeSet<String> {
        object.as_object().unwrap().keys().filter(|name| !OWN.contains(&name.as_str())).cloned().collect()
    };
    std::iter::once(result).chain(result["hits"].as_array().into_iter().flatten()).map(of).collect()
}

async fn post(app: &TestApp, path: &str, body: Value) -> (u16, Value) {
    let answer = app.raw("POST", path).json(&body).send().await.unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap())
}

async fn get(app: &TestApp, path: &str) -> (u16, Value) {
    let answer = app.raw("GET", path).send().await.unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap())
}

/// Checks that each document of an answer has these fields alone, and returns how many documents there are.
fn hold((status, answer): (u16, Value), expected: &[&str]) -> usize {
    assert_eq!(status, 200, "{answer}");
    let expected: BTreeSet<String> = expected.iter().map(|name| (*name).to_owned()).collect();
    let shown: Vec<_> = answer["results"].as_array().unwrap().iter().flat_map(fields).collect();
    for fields in &shown {
        assert_eq!(*fields, expected, "{answer}");
    }
    shown.len()
}

#[tokio::test]
async fn an_answer_holds_the_fields_that_were_asked_for_and_no_others() {
    let app = TestApp::start().await;
    let text = "# Light\n\nThe lighthouse keeper reads.\n\n# Dark\n\nThe lighthouse is dark.\n";
    let file = app.upload_bytes("lighthouse.md", text).await.unwrap().document_id;
    app.settled(file).await;
    let note = app.create("Note", "The lighthouse stands.", None).await.id;
    for method in METHODS {
        let path = format!("/search/{method}");
        for group_by in ["none", "file"] {
            let body =
                json!({"query": "lighthouse", "group_by": group_by, "per_group": 3, "fields": ["title", "id", "id"]});
            assert!(hold(post(&app, &path, body).await, &["id", "title"]) >= 2, "{method}");
        }
        // What is named is there, also a vector and what is null.
        let body = json!({
            "query": "stands", "group_by": "none", "filter": {"exclude": [file]}, "fields": ["embed", "event_time", "content"],
        });
        let answer = post(&app, &path, body).await;
        let result = answer.1["results"][0].clone();
        assert_eq!(hold(answer, &["content", "embed", "event_time"]), 1, "{method}");
        assert_eq!((&result["content"], &result["event_time"]), (&json!("The lighthouse stands."), &Value::Null));
        assert!(result["embed"].as_array().unwrap().len() > 100);
    }
    assert!(hold(get(&app, "/search/?q=lighthouse&per_group=3&fields=id,%20usetype").await, &["id", "usetype"]) >= 3);
    let similar = format!("/documents/{note}/similar?fields=path");
    assert!(hold(get(&app, &similar).await, &["path"]) >= 1);
    let (status, batch) =
        post(&app, "/search/batch", json!({"searches": [{"query": "lighthouse", "fields": ["title"]}]})).await;
    assert!(hold((status, batch["answers"][0]["found"].clone()), &["title"]) >= 2);

    // A search that names none shows all, and the pages of a search may show other fields.
    let first = Bm25Search { limit: 1, fields: Some(vec![DocumentField::Title]), ..Bm25Search::new("lighthouse") };
    let page = app.client.search_bm25(Json(first.clone())).await.unwrap();
    assert_eq!(page.results[0].document.shown, Some(vec![DocumentField::Title]));
    assert!(!page.results[0].document.title.is_empty() && page.results[0].document.content.is_empty());
    let second = Bm25Search { fields: None, cursor: page.next_cursor, ..first };
    let page = app.client.search_bm25(Json(second)).await.unwrap();
    assert!(page.results[0].document.shown.is_none() && page.results[0].document.id > 0);

    // Fields open nothing.
    let reader = someone(&app, "reader").await;
    app.client.protect_document(DocumentPath { id: note }).await.unwrap();
    let body = Bm25Search { fields: Some(vec![DocumentField::Id]), ..Bm25Search::new("stands") };
    assert_eq!(reader.client.search_bm25(Json(body.clone())).await.unwrap().results.len(), 0);
    assert_eq!(app.client.search_bm25(Json(body)).await.unwrap().results.len(), 1);

    let printed = svc(&app, &["search", "lighthouse", "--table", "--fields", "id,title"]).await;
    let printed: Vec<BTreeSet<String>> = lines(&printed).iter().flat_map(fields).collect();
    let asked = BTreeSet::from(["id".to_owned(), "title".to_owned()]);
    assert!(printed.len() >= 2 && printed.iter().all(|fields| *fields == asked), "{printed:?}");
    app.end().await;
}

#[tokio::test]
async fn a_query_may_ask_for_the_vectors_of_all_documents_in_an_answer() {
    let app = TestApp::start().await;
    let note = app.create("Note", "The lighthouse stands.", None).await.id;
    let width = |document: &Value| document["embed"].as_array().map(Vec::len);
    let search = json!({"query": "lighthouse"});
    for path in METHODS.map(|method| format!("/search/{method}")) {
        let (status, found) = post(&app, &format!("{path}?include_embed=true"), search.clone()).await;
        assert_eq!((status, width(&found["results"][0])), (200, Some(768)), "{path}: {found}");
        for query in ["", "?include_embed=false"] {
            let (_, found) = post(&app, &format!("{path}{query}"), search.clone()).await;
            assert!(found["results"][0].as_object().is_some_and(|result| !result.contains_key("embed")), "{found}");
        }
        for (query, field) in [("include_embed=maybe", "include_embed"), ("limit=3", "limit")] {
            let (status, problem) = post(&app, &format!("{path}?{query}"), search.clone()).await;
            assert_eq!((status, &problem["field"]), (422, &json!(field)), "{path}: {problem}");
        }
        // What goes with no vector of the body goes with none of the query.
        let body = json!({"query": "lighthouse", "fields": ["id"]});
        let (status, problem) = post(&app, &format!("{path}?include_embed=true"), body).await;
        assert_eq!((status, &problem["field"]), (422, &json!("include_embed")), "{path}: {problem}");
    }
    let body = json!({"searches": [{"query": "lighthouse"}, {"query": "stands", "method": "bm25"}]});
    let (_, batch) = post(&app, "/search/batch?include_embed=true", body).await;
    for answer in batch["answers"].as_array().unwrap() {
        assert_eq!(width(&answer["found"]["results"][0]), Some(768), "{batch}");
    }
    let body = json!({"from_id": note, "to_id": note});
    let (_, found) = post(&app, "/triples/path-find?include_embed=true", body.clone()).await;
    assert_eq!(width(&found["documents"][0]), Some(768), "{found}");
    let (_, found) = post(&app, "/triples/path-find", body).await;
    assert_eq!((&found["documents"][0]["id"], width(&found["documents"][0])), (&json!(note), None), "{found}");
    app.end().await;
}

#[tokio::test]
async fn an_unknown_field_is_refused_with_those_that_are_known() {
    let app = TestApp::start().await;
    let similar = app.create("Note", "The lighthouse stands.", None).await.id;
    for method in METHODS {
        for (mut body, field, says) in [
            (json!({"fields": ["id", "titel"]}), "fields", "content_hash"),
            (json!({"fields": []}), "fields", "empty"),
            (json!({"fields": ["id"], "include_content": false}), "include_content", "fields"),
            (json!({"fields": ["id"], "include_embed": true}), "include_embed", "fields"),
        ] {
            body["query"] = json!("lighthouse");
            let (status, problem) = post(&app, &format!("/search/{method}"), body).await;
            assert!(status == 422 && problem["field"].as_str().unwrap().starts_with(field), "{problem}");
            assert!(problem["detail"].as_str().unwrap().contains(says), "{problem}");
        }
    }
    for path in ["/search/?q=lighthouse&".to_owned(), format!("/documents/{similar}/similar?")] {
        for query in ["fields=titel", "fields=id,,title"] {
            let (status, problem) = get(&app, &format!("{path}{query}")).await;
            assert_eq!((status, &problem["field"]), (422, &json!("fields")), "{problem}");
            assert!(problem["detail"].as_str().unwrap().contains("content_hash"), "{problem}");
        }
    }
    app.end().await;
}
