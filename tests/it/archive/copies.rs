//! Copies of files: whose bytes the store has already, whose text stayed behind, or that were a part of another file.
use super::{done, drained};
use crate::{
    members,
    support::{TestApp, invariants, sample},
};
use serde_json::json;
use svc_client::{
    Code, FileUpload, Json, OptionalJson,
    wire::{DocumentPath, IngestQuery, ReprocessRequest, Settled, UploadQuery},
};

/// The document at the top that has a usetype.
async fn at_the_top(app: &TestApp, usetype: &str) -> i64 {
    sqlx::query_scalar("SELECT id FROM documents WHERE parent_id IS NULL AND usetype = $1 AND guard <> -1")
        .bind(usetype)
        .fetch_one(&app.pool)
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_without_bytes_says_so_and_gets_them_once_the_other_file_is_gone() {
    let app = TestApp::start().await;
    let top = app.create("Birds", "Herons and coots.", None).await.id;
    let upload = FileUpload::from_path(&sample("handbook.md"), None).await.unwrap();
    let query = UploadQuery { parent_id: Some(top), ..UploadQuery::default() };
    let file = app.client.upload_file(query, upload).await.unwrap().document_id;
    drained(&app).await;
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("archive");
    let archive = archive.to_str().unwrap();
    done(&app, &["export", archive, "--under", &top.to_string(), "--json"]).await;
    let imported = done(&app, &["import", archive, "--json"]).await;
    assert_eq!(imported["same_bytes"], 1, "{imported}");
    let id: i64 = sqlx::query_scalar("SELECT id FROM documents WHERE usetype = 'file' AND id <> $1")
        .bind(file)
        .fetch_one(&app.pool)
        .await
        .unwrap();
    let copy = DocumentPath { id };
    let refusals = [
        (app.client.read_bytes(copy).await.err().unwrap(), Code::NotFound),
        (app.client.reprocess_file(copy, OptionalJson(None)).await.err().unwrap(), Code::Conflict),
    ];
    for (refusal, code) in refusals {
        assert_eq!(refusal.code, code, "{refusal}");
        assert!(refusal.detail.contains("another document has"), "{refusal}");
        assert!(refusal.members["remedy"].as_str().unwrap().contains("import"), "{refusal}");
    }
    app.client.delete_document(DocumentPath { id: top }).await.unwrap();
    done(&app, &["import", archive, "--json"]).await;
    assert!(app.client.read_bytes(copy).await.is_ok());
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_copy_without_bytes_of_what_came_through_an_entry_says_so_too() {
    let app = TestApp::start().await;
    let new = serde_json::from_value(json!({"entry": "markdown", "content": "# Herons\n\nThey wait."})).unwrap();
    let text = app.client.ingest(IngestQuery::default(), Json(new)).await.unwrap().document_id;
    drained(&app).await;
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("archive");
    let archive = archive.to_str().unwrap();
    done(&app, &["export", archive, "--under", &text.to_string(), "--json"]).await;
    let imported = done(&app, &["import", archive, "--json"]).await;
    assert_eq!(imported["same_bytes"], 1, "{imported}");
    let id: i64 = sqlx::query_scalar("SELECT id FROM documents WHERE usetype = 'markdown' AND id <> $1")
        .bind(text)
        .fetch_one(&app.pool)
        .await
        .unwrap();
    let refused = app.client.read_bytes(DocumentPath { id }).await.err().unwrap();
    assert!(refused.detail.contains("another document has"), "{refused}");
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_whose_text_stayed_behind_keeps_its_tree_until_it_can_be_read_again() {
    let (app, other) = (TestApp::start().await, TestApp::start().await);
    // What Ann says has no heading of the file, and its bytes do not tell.
    let turns =
        json!([{"speaker": "Ann", "text": "# Herons\n\nThey wait."}, {"speaker": "Ben", "text": "Coots dive."}]);
    let new = serde_json::from_value(json!({"entry": "conversation", "turns": turns})).unwrap();
    app.client.ingest(IngestQuery::default(), Json(new)).await.unwrap();
    let password = json!({"extract": {"password": "heron"}});
    let upload = FileUpload::from_path(&sample("locked.pdf"), Some(password.clone())).await.unwrap();
    app.client.upload_file(UploadQuery::default(), upload).await.unwrap();
    drained(&app).await;
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("archive");
    done(&app, &["export", archive.to_str().unwrap()]).await;
    done(&other, &["import", archive.to_str().unwrap()]).await;
    let (conversation, locked) = (at_the_top(&other, "conversation").await, at_the_top(&other, "file").await);
    for id in [conversation, locked] {
        let refused = other.client.reprocess_file(DocumentPath { id }, OptionalJson(None)).await.unwrap_err();
        assert!(refused.code == Code::Conflict && refused.detail.contains("imported without the text"), "{refused}");
        assert!(refused.members["remedy"].as_str().unwrap().contains("extract.password"), "{refused}");
    }
    let request = ReprocessRequest { options: Some(password), replace: false };
    other.client.reprocess_file(DocumentPath { id: locked }, OptionalJson(Some(request))).await.unwrap();
    assert_eq!(other.settled(locked).await.settled, Settled::Settled);
    let evidence = other.client.read_evidence(DocumentPath { id: locked }).await.unwrap().evidence;
    assert_eq!(evidence["reprocess"]["state"], "done");
    app.end().await;
    other.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_within_a_file_that_goes_alone_is_a_file_of_its_own_where_it_goes() {
    let (app, other) = (TestApp::start().await, TestApp::start().await);
    let inner = members::archive(&[("herons.md", "# Herons\n\nThey wait.\n\n# Coots\n\nThey dive.")]);
    let bundle = members::archive(&[("inner.zip", inner), ("ducks.txt", b"Ducks swim.".to_vec())]);
    let bundle = app.upload_bytes("bundle.zip", bundle).await.unwrap().document_id;
    assert_eq!(app.settled(bundle).await.nodes_failed, 0);
    drained(&app).await;
    let nodes = app.subtree(bundle).await;
    let inner = nodes.iter().find(|node| node.title == "inner.zip").unwrap().id;
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("archive");
    done(&app, &["export", archive.to_str().unwrap(), "--under", &inner.to_string()]).await;
    let imported = done(&other, &["import", archive.to_str().unwrap()]).await;
    assert_eq!((&imported["files"], &imported["queued"]), (&json!(2), &json!(0)), "{imported}");
    let id = at_the_top(&other, "file").await;
    let titles = async || {
        let nodes = other.subtree(id).await.into_iter();
        let mut titles: Vec<(usize, String)> = nodes.map(|node| (node.path.len(), node.title)).collect();
        titles.sort();
        titles
    };
    let before = titles().await;
    assert!(before.iter().any(|(_, title)| title == "Coots"), "{before:?}");
    other.client.reprocess_file(DocumentPath { id }, OptionalJson(None)).await.unwrap();
    let frontier = other.settled(id).await;
    assert_eq!((frontier.settled, frontier.nodes_failed), (Settled::Settled, 0));
    let evidence = other.client.read_evidence(DocumentPath { id }).await.unwrap().evidence;
    assert_eq!((&evidence["reprocess"]["state"], &evidence["rule"]), (&json!("done"), &json!("upload")));
    assert_eq!(titles().await, before);
    drained(&other).await;
    invariants::check_drained(&other.pool).await;
    app.end().await;
    other.end().await;
}
