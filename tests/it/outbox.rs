//! What is recorded as having happened, in the transaction that makes it true.
use crate::{
    principals::{grant, idle, someone},
    support::{TestApp, Wish, document, poison, sample, server, until},
};
use serde_json::{Value, json};
use sqlx::PgPool;
use std::time::Duration;
use svc::store::{
    self,
    events::{self, Unserved},
    transaction,
    workers::WorkerRow,
};
use svc_client::{
    FileUpload, Json,
    wire::{DocumentPath, EventKind, GrantRight, NewDocument, UploadQuery, WaitQuery},
};
use svc_ids::DocumentId;
use uuid::Uuid;

/// The kinds of what was recorded of a document, in the order of recording, each with its data.
/// What is told of a document, besides that nodes directly under it settled.
async fn told(pool: &PgPool, document: Option<i64>) -> Vec<(String, Value)> {
    sqlx::query_as(
        "SELECT kind, data FROM event_outbox WHERE document_id IS NOT DISTINCT FROM $1 AND kind <> 'ingest.nodes' ORDER BY id",
    )
    .bind(document)
    .fetch_all(pool)
    .await
    .unwrap()
}

async fn kinds(pool: &PgPool, document: i64) -> Vec<String> {
    told(pool, Some(document)).await.into_iter().map(|(kind, _)| kind).collect()
}

#[tokio::test]
async fn of_an_ingest_the_file_is_told_of_and_what_fails() {
    let app = TestApp::with(Wish { engine: Some(poison::engine()), ..Wish::default() }).await;
    let (id, frontier) = app.ingest(&sample("handbook.md")).await;
    app.upload(&sample("handbook.md")).await.unwrap();
    let told_of = told(&app.pool, Some(id)).await;
    let of: Vec<&str> = told_of.iter().map(|(kind, _)| kind.as_str()).collect();
    assert_eq!(of, ["ingest.accepted", "ingest.settled", "ingest.duplicate"]);
    assert_eq!((&told_of[0].1["format"], &told_of[2].1["linked"]), (&json!("text"), &json!(false)));
    assert_eq!((&told_of[1].1["nodes"], &told_of[1].1["nodes_failed"]), (&json!(frontier.nodes_total), &json!(0)));
    let nodes: i64 =
        sqlx::query_scalar("SELECT count(*) FROM event_outbox WHERE document_id > $1 AND kind <> 'ingest.nodes'")
            .bind(id)
            .fetch_one(&app.pool)
            .await
            .unwrap();
    assert_eq!(nodes, 0, "its nodes are only told of where they settle");

    let corrupt =
        app.upload_bytes("corrupt.pdf", &b"%PDF-1.4\nnothing of a PDF follows"[..]).await.unwrap().document_id;
    app.settled(corrupt).await;
    let told_of = told(&app.pool, Some(corrupt)).await;
    let (_, failed) = told_of.iter().find(|(kind, _)| kind == "ingest.failed").expect("the failure");
    assert_eq!((&failed["task_type"], &failed["error_type"]), (&json!("probe"), &json!("permanent")));
    assert!(told_of.iter().any(|(kind, data)| kind == "task.failed" && data["task_type"] == "probe"), "{told_of:?}");
    assert!(told_of.iter().all(|(kind, _)| kind != "ingest.settled"));

    let scan = format!("# Glass\n\nA text about {}.\n\n# Else\n\nA text about herons.\n", poison::WORD);
    let refused = app.upload_bytes("glass.md", scan).await.unwrap().document_id;
    app.settled(refused).await;
    let told_of = told(&app.pool, Some(refused)).await;
    let [.., (warning, data), (last, _)] = &told_of[..] else { panic!("{told_of:?}") };
    assert_eq!((warning.as_str(), last.as_str()), ("ingest.warning", "ingest.settled"), "{told_of:?}");
    assert_eq!(data["warning"], "without_vector");
    app.end().await;
}

#[tokio::test]
async fn a_cancel_is_told_of_once_and_nothing_settles_after_it() {
    let app = idle().await;
    let id = app.upload(&sample("handbook.md")).await.unwrap().document_id;
    app.client.cancel_ingest(DocumentPath { id }).await.unwrap();
    app.client.cancel_ingest(DocumentPath { id }).await.unwrap();
    assert_eq!(kinds(&app.pool, id).await, ["ingest.accepted", "ingest.cancelled"]);
    app.end().await;
}

#[tokio::test]
async fn a_deletion_is_told_of_for_all_that_was_created_and_keeps_whose_grants_go() {
    let app = idle().await;
    let (reader, other) = (someone(&app, "reader").await, someone(&app, "other").await);
    let create = async |parent_id| {
        let new = NewDocument { parent_id, ..document("A place", "A text about herons.") };
        app.client.create_document(WaitQuery::default(), Json(new)).await.unwrap().document.id
    };
    let top = create(None).await;
    let (closed, open) = (create(Some(top)).await, create(Some(top)).await);
    let query = UploadQuery { parent_id: Some(closed), ..UploadQuery::default() };
    let file = FileUpload::from_path(&sample("handbook.md"), None).await.unwrap();
    let file = app.client.upload_file(query, file).await.unwrap().document_id;
    grant(&app, &reader, closed, GrantRight::Read).await;
    grant(&app, &other, create(None).await, GrantRight::Read).await;
    app.client.delete_document(DocumentPath { id: top }).await.unwrap();
    type Gone = (i64, Option<i64>, i64, Option<Vec<i64>>);
    let gone: Vec<Gone> = sqlx::query_as(
        "SELECT document_id, root_id, guard, readers FROM event_outbox WHERE kind = 'document.deleted' ORDER BY id",
    )
    .fetch_all(&app.pool)
    .await
    .unwrap();
    let readers = Some(vec![reader.id]);
    let expected = [
        (top, Some(top), 0, None),
        (closed, Some(closed), closed, readers.clone()),
        (open, Some(open), 0, None),
        (file, Some(file), closed, readers),
    ];
    assert_eq!(gone, expected);
    assert_eq!(kinds(&app.pool, open).await, ["document.created", "document.deleted"]);
    assert_eq!(told(&app.pool, Some(open)).await[1].1, json!({"parent_id": top, "usetype": "markdown"}));
    app.end().await;
}

#[tokio::test]
async fn what_is_rolled_back_is_not_told_of_and_a_move_names_both_places() {
    let app = idle().await;
    let create = async |parent_id| {
        let new = NewDocument { parent_id, ..document("A place", "A text about herons.") };
        app.client.create_document(WaitQuery::default(), Json(new)).await.unwrap().document.id
    };
    let (from, to) = (create(None).await, create(None).await);
    let id = create(Some(from)).await;
    let mut tx = transaction::begin(&app.pool).await.unwrap();
    let origin = events::origins(&mut tx, &[DocumentId(id)]).await.unwrap();
    events::moved(&mut tx, &origin).await.unwrap();
    events::record(&mut tx, EventKind::DocumentUpdated, &[DocumentId(id)], &json!({})).await.unwrap();
    tx.rollback().await.unwrap();
    assert_eq!(kinds(&app.pool, id).await, ["document.created"]);
    let change = crate::edits::change(json!({"parent_id": to, "title": "Another place"}));
    app.client.update_document(DocumentPath { id }, WaitQuery::default(), change).await.unwrap();
    assert_eq!(kinds(&app.pool, id).await, ["document.created", "document.moved", "document.updated"]);
    let told = told(&app.pool, Some(id)).await;
    assert_eq!(told[1].1, json!({"parent_id": to, "from_parent_id": from, "usetype": "markdown"}));
    assert_eq!(told[2].1, json!({"parent_id": to, "usetype": "markdown", "fields": ["title"]}));
    app.end().await;
}

#[tokio::test]
async fn a_worker_that_joins_falls_silent_and_signs_off_is_told_of_each_time_once() {
    let pool = server::new_pool().await;
    let mut conn = pool.acquire().await.unwrap();
    let mut worker = WorkerRow {
        worker_id: "w".to_owned(),
        boot_nonce: Uuid::new_v4(),
        version: "1".to_owned(),
        badges: vec!["gpu".to_owned()],
        strict: false,
        holds_folder: false,
        task_types: Vec::new(),
        lease: Duration::from_secs(60),
    };
    for _ in 0..2 {
        store::workers::beat(&mut conn, &worker, &json!({})).await.unwrap();
        events::silent_workers(&mut conn).await.unwrap();
    }
    sqlx::query("UPDATE workers SET beat_at = now() - interval '1 hour'").execute(&mut *conn).await.unwrap();
    for _ in 0..2 {
        events::silent_workers(&mut conn).await.unwrap();
    }
    store::workers::beat(&mut conn, &worker, &json!({})).await.unwrap();
    worker.boot_nonce = Uuid::new_v4();
    store::workers::beat(&mut conn, &worker, &json!({})).await.unwrap();
    for _ in 0..2 {
        store::workers::remove(&mut conn, &worker.worker_id, worker.boot_nonce).await.unwrap();
    }
    let told = told(&pool, None).await;
    let of: Vec<(&str, Option<&str>)> =
        told.iter().map(|(kind, data)| (kind.as_str(), data["reason"].as_str())).collect();
    let joined = ("worker.joined", None);
    assert_eq!(of, [joined, ("worker.lost", Some("silent")), joined, joined, ("worker.lost", Some("signed_off"))]);
    assert_eq!(told[0].1, json!({"worker_id": "w", "version": "1", "badges": ["gpu"]}));
}

#[tokio::test]
async fn what_nobody_serves_is_told_of_once_and_again_when_it_is_over() {
    let pool = server::new_pool().await;
    let mut conn = pool.acquire().await.unwrap();
    let stall = |name: &str| Unserved { what: "badge", name: name.to_owned(), tasks: 3, seconds: 61.5 };
    for all in [&[stall("gpu")][..], &[stall("gpu"), stall("")], &[stall("")], &[]] {
        events::unserved(&mut conn, all).await.unwrap();
        events::unserved(&mut conn, all).await.unwrap();
    }
    let told = told(&pool, None).await;
    let of: Vec<(&str, &str)> =
        told.iter().map(|(kind, data)| (kind.as_str(), data["name"].as_str().unwrap())).collect();
    assert_eq!(of, [("queue.stalled", "gpu"), ("queue.stalled", ""), ("queue.served", "gpu"), ("queue.served", "")]);
    assert_eq!(told[0].1, json!({"what": "badge", "name": "gpu", "tasks": 3, "seconds": 61.5}));
}

#[tokio::test]
async fn a_worker_of_the_service_joins_the_fleet_and_leaves_it() {
    // The database of a service outlives it only if the test made it.
    let options = server::new_database().await;
    let app = TestApp::with(Wish { database: Some(options.clone()), ..Wish::default() }).await;
    let pool = PgPool::connect_with(options.clone()).await.unwrap();
    let joined = async || told(&pool, None).await.iter().any(|(kind, _)| kind == "worker.joined").then_some(());
    until("the worker", joined).await;
    app.end().await;
    assert_eq!(told(&pool, None).await.last().unwrap().0, "worker.lost");
    pool.close().await;
    server::drop_database(&options);
}
