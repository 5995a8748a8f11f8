//! Stored bytes leave the database once per process, however many tasks read them, and arrive as they were stored.
use crate::support::{TestApp, Wish, s3::BYTES_IN_DATABASE, workbook_of_sheets};
use futures_util::future::join_all;
use sqlx::PgPool;
use std::io::Read;
use svc::{
    blobs::BlobError,
    spool::{SpoolCache, SpoolError},
    store,
};
use svc_client::wire::{DocumentPath, Settled};
use svc_ids::DocumentId;

/// A workbook whose shared strings are large enough to be read once and stored.
fn workbook() -> Vec<u8> {
    let names = ["Place".to_owned(), "Bird".to_owned()];
    let texts = (0..4_000u64).map(|n| format!("{:x}", n.wrapping_mul(0x9E37_79B9_7F4A_7C15)));
    workbook_of_sheets(8, 3, &names.into_iter().chain(texts).collect::<Vec<_>>())
}

async fn idle(settings: &[(&str, &str)]) -> TestApp {
    TestApp::with(Wish { no_worker: true, settings, ..Wish::default() }).await
}

/// Takes the bytes of a document out of the database.
async fn lose_bytes(pool: &PgPool, id: i64) {
    sqlx::query("SELECT lo_unlink(lob) FROM document_blobs WHERE document_id = $1")
        .bind(id)
        .execute(pool)
        .await
        .unwrap();
}

#[tokio::test]
async fn the_tasks_of_an_upload_read_what_came_in_and_parse_shared_strings_once() {
    let mut app = idle(&[BYTES_IN_DATABASE]).await;
    let stored = app.upload_bytes("birds.xlsx", workbook()).await.unwrap();
    let id = stored.document_id;
    lose_bytes(&app.pool, id).await;
    app.start_worker().await;
    let frontier = app.settled(id).await;
    assert_eq!((frontier.settled, frontier.nodes_failed), (Settled::Settled, 0), "no task needed the database's bytes");
    let nodes = app.subtree(id).await;
    let records = nodes.iter().filter(|node| node.usetype == "record");
    let mut contents: Vec<&str> = records.map(|record| record.content.as_str()).collect();
    contents.sort_unstable();
    contents.dedup();
    assert_eq!((nodes.iter().filter(|node| node.usetype == "sheet").count(), contents.len()), (8, 3), "{contents:?}");
    assert!(contents.iter().all(|text| text.contains("Place") && text.contains("Bird")), "{contents:?}");
    app.client.delete_document(DocumentPath { id }).await.unwrap();
    app.end().await;
}

#[tokio::test]
async fn callers_that_come_at_once_wait_for_one_copy_and_later_ones_need_none() {
    let app = idle(&[BYTES_IN_DATABASE]).await;
    let bytes = workbook();
    let id = app.upload_bytes("birds.xlsx", bytes.clone()).await.unwrap().document_id;
    let blob =
        store::blobs::of_document(&mut app.pool.acquire().await.unwrap(), DocumentId(id)).await.unwrap().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let cache = SpoolCache::new(app.service.blobs.clone(), folder.path(), 1 << 20);
    let files = join_all((0..8).map(|_| cache.open(&app.pool, &blob))).await;
    let files: Vec<_> = files.into_iter().map(Result::unwrap).collect();
    assert!(files.iter().all(|file| std::sync::Arc::ptr_eq(file, &files[0])), "eight callers, one copy");
    lose_bytes(&app.pool, id).await;
    let again = cache.open(&app.pool, &blob).await.unwrap();
    let mut read = Vec::new();
    std::io::copy(&mut again.open().unwrap(), &mut read).unwrap();
    assert!(read == bytes);
    app.client.delete_document(DocumentPath { id }).await.unwrap();
    app.end().await;
}

#[tokio::test]
async fn a_file_whose_bytes_are_lost_is_deleted_and_uploaded_again_as_its_error_advises() {
    let app = idle(&[BYTES_IN_DATABASE, ("SVC_SPOOL_MAX_BYTES", "0")]).await;
    let lost = app.upload_bytes("notes.txt", "what was stored").await.unwrap().document_id;
    lose_bytes(&app.pool, lost).await;
    app.client.delete_document(DocumentPath { id: lost }).await.unwrap();
    let id = app.upload_bytes("notes.txt", "what was stored").await.unwrap().document_id;
    assert_ne!(id, lost);
    let blob =
        store::blobs::of_document(&mut app.pool.acquire().await.unwrap(), DocumentId(id)).await.unwrap().unwrap();
    let mut read = String::new();
    let stored = app.service.spool.open(&app.pool, &blob).await.unwrap();
    stored.open().unwrap().read_to_string(&mut read).unwrap();
    assert_eq!(read, "what was stored");
    app.end().await;
}

#[tokio::test]
async fn bytes_that_are_not_those_that_were_stored_are_named_and_read_by_nobody() {
    let mut app = idle(&[BYTES_IN_DATABASE, ("SVC_SPOOL_MAX_BYTES", "0")]).await;
    let id = app.upload_bytes("notes.txt", "what was stored").await.unwrap().document_id;
    sqlx::query("SELECT lo_put(lob, 5, 'XXX') FROM document_blobs WHERE document_id = $1")
        .bind(id)
        .execute(&app.pool)
        .await
        .unwrap();
    let blob =
        store::blobs::of_document(&mut app.pool.acquire().await.unwrap(), DocumentId(id)).await.unwrap().unwrap();
    let damaged = app.service.spool.open(&app.pool, &blob).await.err();
    assert!(
        matches!(damaged, Some(SpoolError::Stored(BlobError::Damaged { document_id, .. })) if document_id.0 == id),
        "{damaged:?}"
    );
    app.start_worker().await;
    let frontier = app.settled(id).await;
    assert_eq!(frontier.settled, Settled::Failed);
    let said: String = sqlx::query_scalar("SELECT string_agg(message, ' ') FROM task_attempts WHERE document_id = $1")
        .bind(id)
        .fetch_one(&app.pool)
        .await
        .unwrap();
    assert!(said.contains("damaged") && said.contains("upload the file again"), "{said}");
    app.end().await;
}
