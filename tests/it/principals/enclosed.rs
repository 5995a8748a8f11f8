//! New documents at the top where SVC_DEFAULT_VISIBILITY closes them.
use super::{place, someone};
use crate::support::{TOKEN, TestApp, Wish, document, http};
use serde_json::json;
use svc_client::{
    Code,
    wire::{NewDocument, UploadQuery},
};

#[tokio::test]
async fn new_documents_at_the_top_are_closed_if_the_setting_says_so() {
    let settings = [("SVC_DEFAULT_VISIBILITY", "owner")];
    let app = TestApp::with(Wish { no_worker: true, settings: &settings, ..Wish::default() }).await;
    let (one, two) = (someone(&app, "one").await, someone(&app, "two").await);
    let (owners, ones) = (place(&app, None).await, one.creates(document("t", "c")).await.unwrap().id);
    let file = one.uploads(UploadQuery::default(), "A note.").await.unwrap().document_id;
    assert_eq!(one.reads(owners).await.unwrap_err(), Code::NotFound);
    for id in [ones, file] {
        assert!(one.reads(id).await.is_ok());
        assert_eq!(two.reads(id).await.unwrap_err(), Code::NotFound);
    }
    // What is under something is as open as that.
    let child = one.creates(NewDocument { parent_id: Some(ones), ..document("t", "c") }).await.unwrap().id;
    let roots: Vec<i64> =
        sqlx::query_scalar("SELECT document_id FROM access_roots ORDER BY 1").fetch_all(&app.pool).await.unwrap();
    assert_eq!(roots, [owners, ones, file]);
    assert!(one.deletes(child).await.is_ok());
    app.end().await;
}

/// Whatever makes a document at the top encloses it.
#[tokio::test]
async fn no_way_in_leaves_a_new_root_open_if_the_setting_says_so() {
    let settings = [("SVC_DEFAULT_VISIBILITY", "owner")];
    let app = TestApp::with(Wish { settings: &settings, ..Wish::default() }).await;
    let one = someone(&app, "one").await;
    let (json_type, turtle) = ("application/json", "text/turtle");
    let ways: &[(&str, &str, String)] = &[
        ("/documents", json_type, json!({"title": "t", "content": "c"}).to_string()),
        ("/documents/batch", json_type, json!({"documents": [{"title": "t", "content": "c"}]}).to_string()),
        ("/ingest", json_type, json!({"entry": "markdown", "content": "# A heron\n\nStands."}).to_string()),
        ("/ingest", json_type, json!({"entry": "raw", "content": "A coot swims."}).to_string()),
        ("/ingest", json_type, json!({"entry": "transcript", "content": "ANNA: Good day."}).to_string()),
        ("/conversations", json_type, json!({"turns": [{"speaker": "Anna", "text": "Good day."}]}).to_string()),
        ("/templates", json_type, json!({"title": "t", "content": "Dear reader"}).to_string()),
        ("/rdf/turtle", turtle, "<http://e/a> <http://e/p> <http://e/b> .".to_owned()),
        (
            "/ontologies",
            turtle,
            "<http://e/o> a <http://www.w3.org/2002/07/owl#Ontology> . <http://e/C> a <http://www.w3.org/2000/01/rdf-schema#Class> ."
                .to_owned(),
        ),
    ];
    let roots = async || -> (i64, i64) {
        sqlx::query_as(
            "SELECT count(*), count(*) FILTER (WHERE guard = 0) FROM documents WHERE path = '{}' AND guard <> -1",
        )
        .fetch_one(&app.pool)
        .await
        .unwrap()
    };
    let mut before = 0;
    for secret in [TOKEN, one.secret.as_str()] {
        for (path, content_type, body) in ways {
            let call = http().post(format!("{}{path}", app.base)).bearer_auth(secret);
            let answer = call.header("content-type", *content_type).body(body.clone()).send().await.unwrap();
            let (status, text) = (answer.status(), answer.text().await.unwrap());
            assert!(status.is_success(), "{path}: {status} {text}");
            let (all, open) = roots().await;
            assert_eq!(open, 0, "{path} left a root open");
            assert!(all > before, "{path} made no root");
            before = all;
        }
    }
    app.end().await;
}
