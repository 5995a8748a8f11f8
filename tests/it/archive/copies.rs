//! Copies of files whose bytes the store has already.
use super::{done, drained};
use crate::support::{TestApp, sample};
use serde_json::json;
use svc_client::{
    Code, FileUpload, Json, OptionalJson,
    wire::{DocumentPath, IngestQuery, UploadQuery},
};

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
