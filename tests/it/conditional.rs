//! Answers to callers who already have a version.
use crate::support::{TestApp, document};
use serde_json::json;
use svc_client::{
    Json, Meta, Validated,
    wire::{DocumentPath, EmbedQuery, WaitQuery},
};

/// Reads a document as a caller who has this version.
async fn having(app: &TestApp, id: i64, etags: &str) -> Validated<svc_client::wire::DocumentResponse> {
    let meta = Meta { if_none_match: Some(etags.to_owned()), ..Meta::default() };
    app.client.given(meta).read_document(DocumentPath { id }, EmbedQuery::default()).await.unwrap()
}

#[tokio::test]
async fn a_caller_who_has_the_current_version_gets_304_and_no_body() {
    let app = TestApp::start().await;
    let id = app.create("Tides", "The moon pulls the oceans.", None).await.id;
    let read = app.client.read_document(DocumentPath { id }, EmbedQuery::default()).await.unwrap();
    let etag = read.etag().to_owned();
    assert!(etag.starts_with('"') && etag.ends_with('"') && etag.len() > 20, "a strong entity tag: {etag}");
    for known in [etag.clone(), format!("W/{etag}"), format!("\"other\", {etag}"), "*".to_owned()] {
        let again = having(&app, id, &known).await;
        assert!(matches!(&again, Validated::NotModified { etag: now } if *now == etag), "{known}");
    }
    for other in ["\"other\"", "", etag.trim_matches('"')] {
        let again = having(&app, id, other).await.value().unwrap();
        assert_eq!(again.content, "The moon pulls the oceans.");
    }

    let raw = app.raw("GET", &format!("/documents/{id}")).header("if-none-match", &etag).send().await.unwrap();
    assert_eq!((raw.status().as_u16(), raw.headers()["etag"].to_str().unwrap()), (304, etag.as_str()));
    assert_eq!(raw.headers()["cache-control"], "private, no-cache");
    assert!(raw.bytes().await.unwrap().is_empty());

    // A call in process gets the same answer.
    let meta = Meta { if_none_match: Some(etag.clone()), ..Meta::default() };
    let local = app.in_process.given(meta).read_document(DocumentPath { id }, EmbedQuery::default()).await.unwrap();
    assert!(matches!(local, Validated::NotModified { .. }));
    app.end().await;
}

#[tokio::test]
async fn the_entity_tag_changes_with_whatever_the_answer_shows() {
    let app = TestApp::start().await;
    let id = app.create("Tides", "The moon pulls the oceans.", None).await.id;
    let tag = async |include_embed| {
        let read = app.client.read_document(DocumentPath { id }, EmbedQuery { include_embed }).await.unwrap();
        read.etag().to_owned()
    };
    let mut seen = vec![tag(false).await];
    let with_vector = tag(true).await;
    assert_ne!(seen[0], with_vector, "another answer has another tag");
    assert_eq!(seen[0], tag(false).await, "an unchanged one has the same");
    for change in [
        "title = 'Low tide'",
        "content = 'The sun pulls too.'",
        "structured_content = '{\"a\": 1}'",
        "position = 3",
        "settled = 'failed'",
        "event_time = '2001-01-01'",
    ] {
        let change = sqlx::AssertSqlSafe(format!("UPDATE documents SET {change} WHERE id = {id}"));
        sqlx::raw_sql(change).execute(&app.pool).await.unwrap();
        let now = tag(false).await;
        assert!(!seen.contains(&now), "the tag stays the same though something changed");
        assert!(matches!(having(&app, id, &seen.concat()).await, Validated::Modified { .. }));
        seen.push(now);
    }
    // Only this test can bring about this state.
    app.client.delete_document(DocumentPath { id }).await.unwrap();
    app.end().await;
}

#[tokio::test]
async fn a_document_that_is_gone_is_404_whatever_version_the_caller_has() {
    let app = TestApp::with(crate::support::Wish { no_worker: true, ..Default::default() }).await;
    let created = app.client.create_document(WaitQuery::default(), Json(document("Tides", "The moon."))).await.unwrap();
    app.client.delete_document(DocumentPath { id: created.id }).await.unwrap();
    let gone = app.raw("GET", &format!("/documents/{}", created.id)).header("if-none-match", "*").send().await.unwrap();
    let status = gone.status().as_u16();
    let problem: serde_json::Value = gone.json().await.unwrap();
    assert_eq!((status, &problem["code"]), (404, &json!("not_found")));
    app.end().await;
}
