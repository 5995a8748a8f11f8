//! Many searches in one call.
use crate::{
    principals::{grant, someone},
    support::TestApp,
};
use serde_json::{Value, json};
use svc_client::{
    Client, Code, Failure, Json, Remote,
    wire::{
        ContextConfig, DocumentPath, GrantRight, GroupBy, NewContext, SearchAnswer, SearchBatch, SearchResponse,
        TemplateSearch,
    },
};

async fn together(client: &Client<Remote>, searches: &[Value]) -> Result<Vec<SearchAnswer>, Failure> {
    let batch: SearchBatch = serde_json::from_value(json!({"searches": searches})).unwrap();
    Ok(client.search_batch(Json(batch)).await?.answers)
}

/// The same search by its own operation.
async fn alone(client: &Client<Remote>, search: &Value) -> Result<SearchResponse, Failure> {
    let mut body = search.clone();
    let method = body.as_object_mut().unwrap().remove("method");
    macro_rules! by {
        ($call:ident) => {
            client.$call(Json(serde_json::from_value(body).unwrap())).await
        };
    }
    match method.as_ref().and_then(Value::as_str) {
        Some("vector") => by!(search_vector),
        Some("fulltext") => by!(search_fulltext),
        Some("bm25") => by!(search_bm25),
        Some("maxsim") => by!(search_maxsim),
        Some("hybrid") => by!(search_hybrid),
        _ => by!(search_auto),
    }
}

/// All that an answer says but for its time.
fn said(mut found: SearchResponse) -> Value {
    found.latency_ms = 0.0;
    serde_json::to_value(found).unwrap()
}

#[tokio::test]
async fn each_search_of_a_batch_is_answered_as_if_it_were_asked_alone() {
    let app = TestApp::start().await;
    let open = app.create("Ponds", "Where herons stand.", None).await.id;
    let closed = app.create("Closed", "The heron of the closed pond.", None).await.id;
    for n in 0..6 {
        app.create(&format!("Heron {n}"), &format!("Heron {n} stands in the reeds."), Some([open, closed][n % 2]))
            .await;
    }
    app.client.protect_document(DocumentPath { id: closed }).await.unwrap();
    let (reader, stranger) = (someone(&app, "reader").await, someone(&app, "stranger").await);
    grant(&app, &reader, closed, GrantRight::Read).await;
    let config = ContextConfig { parent_id: Some(open), group_by: Some(GroupBy::File), ..ContextConfig::default() };
    app.client.create_context(Json(NewContext { name: "ponds".to_owned(), config })).await.unwrap();
    let first = alone(&app.client, &json!({"query": "heron", "method": "bm25", "limit": 2})).await.unwrap();
    let searches = [
        json!({"query": "where do herons stand"}),
        json!({"query": "where do herons stand", "method": "vector", "min_similarity": 0.1, "include_embed": true}),
        json!({"query": "heron", "method": "bm25", "limit": 2, "cursor": first.next_cursor}),
        json!({"query": "heron", "method": "fulltext", "facets": [{"by": "parent"}]}),
        json!({"query": "closed pond", "method": "hybrid", "weights": {}, "mmr_lambda": 0.5}),
        json!({"query": "closed pond", "method": "hybrid", "context": "ponds"}),
        json!({"query": "reeds", "method": "maxsim", "parent_id": closed}),
        json!({"query": "reeds", "parent_id": closed, "group_by": "none"}),
        json!({"query": "word ".repeat(1_500), "method": "vector"}),
        json!({"query": "heron", "context": "no-such-context"}),
        json!({"query": "heron", "method": "bm25", "index": "no-such-index"}),
        json!({"query": "-heron", "method": "fulltext"}),
    ];
    let mut failed = Vec::new();
    for client in [&app.client, &reader.client, &stranger.client] {
        let answers = together(client, &searches).await.unwrap();
        assert_eq!(answers.len(), searches.len());
        let mut failures = 0;
        for (search, answer) in searches.iter().zip(answers) {
            match alone(client, search).await {
                Ok(found) => assert_eq!(said(answer.found.unwrap()), said(found), "{search}"),
                Err(failure) => {
                    let told = answer.failure.unwrap();
                    assert_eq!((told.code, told.detail), (failure.code, failure.detail), "{search}");
                    failures += 1;
                }
            }
        }
        failed.push(failures);
    }
    assert_eq!(failed, [4, 4, 6], "the stranger does not reach what is closed");
    app.end().await;
}

#[tokio::test]
async fn a_batch_has_a_bound_and_names_the_search_that_is_wrong() {
    let app = TestApp::start().await;
    let of = |count: usize| vec![json!({"query": "heron", "method": "bm25"}); count];
    assert_eq!(together(&app.client, &of(SearchBatch::MOST)).await.unwrap().len(), SearchBatch::MOST);
    for searches in [of(0), of(SearchBatch::MOST + 1)] {
        assert_eq!(together(&app.client, &searches).await.unwrap_err().members["field"], "searches");
    }
    for (wrong, field) in [
        (json!({"query": " "}), "searches[1].query"),
        (json!({"query": "heron", "limit": 101}), "searches[1].limit"),
        (json!({"query": "heron", "method": "bm25", "min_similarity": 0.1}), "searches[1].min_similarity"),
        (json!({"query": "heron", "method": "vector", "weights": {}}), "searches[1].weights"),
        (json!({"query": "heron", "method": "fulltext", "index": "default"}), "searches[1].index"),
        (json!({"query": "heron", "facets": [{"by": "structured_content"}]}), "searches[1].facets[0].key"),
    ] {
        let refused = together(&app.client, &[of(1).remove(0), wrong.clone()]).await.unwrap_err();
        assert_eq!((refused.code, &refused.members["field"]), (Code::InvalidField, &json!(field)), "{wrong}");
        assert_eq!(refused.members["index"], 1);
        assert!(refused.detail.starts_with(field), "{}", refused.detail);
    }
    // All answers share the room that one has for its texts.
    let text = format!("heron {} ", "x".repeat(114)).repeat(500);
    for n in 0..8 {
        app.create(&format!("Heron {n}"), &text, None).await;
    }
    let answers = together(&app.client, &of(SearchBatch::MOST)).await.unwrap();
    let found: Vec<SearchResponse> = answers.into_iter().map(|answer| answer.found.unwrap()).collect();
    let bytes: usize = found.iter().flat_map(|found| &found.results).map(|result| result.document.content.len()).sum();
    let all = SearchBatch::MOST * 8 * text.len();
    assert!(all > 8 << 20 && bytes > 0 && bytes <= 8 << 20, "{bytes} of {all}");
    assert!(found.iter().all(|found| found.results.len() == 8), "what is left out is its text alone");
    app.end().await;
}

/// The search of templates goes the same way.
#[tokio::test]
async fn a_search_of_templates_by_a_method_takes_its_context() {
    let app = TestApp::start().await;
    let named = TemplateSearch {
        method: Some(svc_client::wire::SearchMethod::Bm25),
        context: Some("no-such-context".to_owned()),
        ..TemplateSearch::new("heron")
    };
    assert_eq!(app.client.search_templates(Json(named)).await.unwrap_err().code, Code::NotFound);
    app.end().await;
}

#[tokio::test]
async fn a_search_of_templates_refuses_what_its_method_does_not_know() {
    let app = TestApp::start().await;
    for (body, field, known_by) in [
        (json!({"query": "heron", "min_similarity": 0.1}), "min_similarity", "vector"),
        (json!({"query": "heron", "method": "bm25", "min_similarity": 0.1}), "min_similarity", "vector"),
        (json!({"query": "heron", "method": "vector", "weights": {}}), "weights", "hybrid"),
        (json!({"query": "heron", "method": "fulltext", "index": "default"}), "index", "bm25 or maxsim or hybrid"),
        (json!({"query": "heron", "method": "maxsim", "expand": true}), "expand", "bm25 or hybrid"),
    ] {
        let search: TemplateSearch = serde_json::from_value(body.clone()).unwrap();
        let refused = app.client.search_templates(Json(search)).await.unwrap_err();
        assert_eq!((refused.code, &refused.members["field"]), (Code::InvalidField, &json!(field)), "{body}");
        assert!(refused.detail.ends_with(&format!("the method {known_by}")), "{refused}");
    }
    for body in [
        json!({"query": "heron", "method": "vector", "min_similarity": 0.1}),
        json!({"query": "heron", "weights": {}, "index": "default"}),
        json!({"query": "heron", "method": "bm25", "index": "default"}),
    ] {
        let search: TemplateSearch = serde_json::from_value(body.clone()).unwrap();
        assert!(app.client.search_templates(Json(search)).await.is_ok(), "{body}");
    }
    app.end().await;
}
