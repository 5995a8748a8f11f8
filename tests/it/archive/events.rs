//! What followers of events are told of an import.
use super::{done, drained};
use crate::support::{TestApp, sample};
use svc_client::{
    FileUpload,
    wire::{DocumentPath, UploadQuery},
};

async fn newest(app: &TestApp) -> i64 {
    sqlx::query_scalar("SELECT max(id) FROM event_outbox").fetch_one(&app.pool).await.unwrap()
}

/// The documents to which this happened after another event.
async fn told(app: &TestApp, kind: &str, after: i64) -> Vec<i64> {
    sqlx::query_scalar("SELECT document_id FROM event_outbox WHERE kind = $1 AND id > $2 ORDER BY document_id")
        .bind(kind)
        .bind(after)
        .fetch_all(&app.pool)
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_import_and_its_deletion_tell_of_files_access_roots_and_documents_and_not_of_the_parts_of_files() {
    let app = TestApp::start().await;
    let top = app.create("Birds", "Herons and coots.", None).await.id;
    let upload = FileUpload::from_path(&sample("handbook.md"), None).await.unwrap();
    let query = UploadQuery { parent_id: Some(top), ..UploadQuery::default() };
    let file = app.client.upload_file(query, upload).await.unwrap().document_id;
    drained(&app).await;
    let closed = app.subtree(file).await.into_iter().find(|node| node.parent_id == Some(file)).unwrap().id;
    app.client.protect_document(DocumentPath { id: closed }).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("archive");
    let archive = archive.to_str().unwrap();
    done(&app, &["export", archive, "--under", &top.to_string(), "--json"]).await;

    let copies = app.create("Copies", "What was imported.", None).await.id;
    let before = newest(&app).await;
    done(&app, &["import", archive, "--under", &copies.to_string(), "--json"]).await;
    drained(&app).await;
    let whole = app.subtree(copies).await.len();
    let expected: Vec<i64> = sqlx::query_scalar(
        "SELECT d.id FROM documents d WHERE d.path @> ARRAY[$1::bigint]
            AND (d.usetype IN ('file', 'markdown') OR EXISTS (SELECT FROM access_roots a WHERE a.document_id = d.id)) ORDER BY d.id",
    )
    .bind(copies)
    .fetch_all(&app.pool)
    .await
    .unwrap();
    assert!(expected.len() == 3 && whole > 2 * expected.len(), "{expected:?} of {whole}");
    assert_eq!(told(&app, "document.created", before).await, expected);
    app.client.delete_document(DocumentPath { id: copies }).await.unwrap();
    let with_copies: Vec<i64> = [copies].into_iter().chain(expected).collect();
    assert_eq!(told(&app, "document.deleted", before).await, with_copies);
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_import_of_a_part_of_a_file_and_its_deletion_tell_of_the_part() {
    let app = TestApp::start().await;
    let upload = FileUpload::from_path(&sample("handbook.md"), None).await.unwrap();
    let file = app.client.upload_file(UploadQuery::default(), upload).await.unwrap().document_id;
    drained(&app).await;
    let part = app.subtree(file).await.into_iter().find(|node| node.usetype == "section").unwrap().id;
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("archive");
    let archive = archive.to_str().unwrap();
    done(&app, &["export", archive, "--under", &part.to_string(), "--json"]).await;

    let copies = app.create("Copies", "What was imported.", None).await.id;
    let before = newest(&app).await;
    done(&app, &["import", archive, "--under", &copies.to_string(), "--json"]).await;
    drained(&app).await;
    let imported = app.subtree(copies).await;
    let top = imported.iter().find(|node| node.parent_id == Some(copies)).unwrap().id;
    assert!(imported.iter().any(|node| node.parent_id == Some(top)), "{imported:?}");
    assert_eq!(told(&app, "document.created", before).await, [top]);
    app.client.delete_document(DocumentPath { id: top }).await.unwrap();
    assert_eq!(told(&app, "document.deleted", before).await, [top]);
    app.end().await;
}
