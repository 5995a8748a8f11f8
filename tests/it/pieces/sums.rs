//! The vectors of segments into which other texts come than those that tasks embed.
use super::{assert_sums, drained, ids_under, notes, segment};
use crate::support::{TestApp, document};
use svc_client::{
    Json, OptionalJson,
    wire::{
        ArchivePart, ArchiveQuery, DocumentPath, EmbedOptions, ImportedArchive, NewDocument, SegmentRequest, TaskPath,
        TaskTypePath, WaitQuery,
    },
};

/// It is about nothing that the notes are about, so that a sum with it is another one.
const BREAD: &str = "Bread rises because yeast fills the dough with gas, and the baker folds it twice before it rests.";

/// Three segments of eight notes.
async fn segments(app: &TestApp) -> Vec<i64> {
    let (top, _) = notes(app).await;
    let made = segment(app, top, SegmentRequest::default()).await.unwrap().segments;
    assert_eq!(made.len(), 3, "{made:?}");
    made.iter().map(|segment| segment.id).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_embedded_on_request_counts_in_the_vector_of_its_segment() {
    let app = TestApp::start().await;
    let segments = segments(&app).await;
    let embed = || TaskTypePath { task_type: "embed".into() };
    app.client.pause_task_type(embed()).await.unwrap();
    let new = NewDocument { parent_id: Some(segments[1]), ..document("Bread", BREAD) };
    let id = app.client.create_document(WaitQuery::default(), Json(new)).await.unwrap().id;
    let task: i64 = sqlx::query_scalar("SELECT id FROM task_queue WHERE scope_document_id = $1 AND NOT final")
        .bind(id)
        .fetch_one(&app.pool)
        .await
        .unwrap();
    app.client.cancel_task(TaskPath { id: task }).await.unwrap();
    app.client.resume_task_type(embed()).await.unwrap();
    drained(&app).await;
    app.client.embed_document(DocumentPath { id }, EmbedOptions::default(), OptionalJson(None)).await.unwrap();
    drained(&app).await;
    assert_sums(&app, &segments).await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_imported_into_a_segment_counts_in_its_vector() {
    let app = TestApp::start().await;
    let segments = segments(&app).await;
    let bread = app.create("Bread", BREAD, None).await.id;
    let query = ArchiveQuery { parent_id: Some(bread), ..ArchiveQuery::default() };
    let documents = app.client.export_documents(query).await.unwrap().documents;
    let of = ImportedArchive { archive: "a-loaf-of-bread".to_owned(), parent_id: Some(segments[1]) };
    let imported = app.client.import_documents(of, Json(ArchivePart { documents })).await.unwrap();
    assert_eq!((imported.documents.len(), imported.vectors, imported.queued), (1, 1, 0));
    drained(&app).await;
    assert_sums(&app, &segments).await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_segment_that_was_exported_before_its_sum_was_made_gets_one_where_it_comes_in() {
    let app = TestApp::start().await;
    let (top, _) = notes(&app).await;
    let made = segment(&app, top, SegmentRequest::default()).await.unwrap().segments;
    let embed = || TaskTypePath { task_type: "embed".into() };
    app.client.pause_task_type(embed()).await.unwrap();
    let note = ids_under(&app, made[1].id).await[0];
    app.client.delete_document(DocumentPath { id: note }).await.unwrap();
    let query = ArchiveQuery { parent_id: Some(top), ..ArchiveQuery::default() };
    let documents = app.client.export_documents(query).await.unwrap().documents;
    let without = documents.iter().find(|document| document.id == made[1].id);
    assert!(without.unwrap().vector.is_none(), "the task that makes its sum is paused");
    let of = ImportedArchive { archive: "notes-in-segments".to_owned(), parent_id: None };
    let imported = app.client.import_documents(of, Json(ArchivePart { documents })).await.unwrap().documents;
    app.client.resume_task_type(embed()).await.unwrap();
    drained(&app).await;
    let is_segment = |id: i64| made.iter().any(|segment| segment.id == id);
    let segments: Vec<i64> =
        imported.iter().filter(|document| is_segment(document.id)).map(|document| document.document_id).collect();
    assert_eq!(segments.len(), made.len());
    assert_sums(&app, &segments).await;
    app.end().await;
}
