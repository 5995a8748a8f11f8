//! Edits of a subtree go before the tasks that wait in it.
use crate::{
    edits::patch,
    principals::{grant, someone},
    queue::{app, claim, finish, node, status, task},
    support::{TestApp, Wish, invariants, refusing_soon, until},
};
use serde_json::json;
use std::time::Duration;
use svc::{service::Waits, store::tasks};
use svc_actors::{TaskFailure, WriteMode};
use svc_client::{
    Code, Json,
    wire::{BatchItem, DocumentPath, EmbedQuery, GrantRight, NewBatch, WaitQuery},
};

#[tokio::test]
async fn a_move_goes_before_tasks_that_have_not_begun() {
    let app = app().await;
    let (folder, target) = (node(&app, None).await, node(&app, None).await);
    let (one, other) = (node(&app, Some(folder.0)).await, node(&app, Some(folder.0)).await);
    task(&app, &one, WriteMode::Itself, 0, None).await;
    let waiting = task(&app, &other, WriteMode::Itself, 0, None).await;
    let held = claim(&app, 1).await;
    let ends = async {
        until("the other task to stand back", async || (!status(&app, waiting).await.1).then_some(())).await;
        assert!(claim(&app, 9).await.is_empty(), "nobody begins it meanwhile");
        assert!(finish(&app.pool, &held[0]).await, "a move ends no task");
    };
    let (moved, ()) = tokio::join!(patch(&app, folder.0, json!({"parent_id": target.0})), ends);
    assert_eq!(moved.unwrap().value.document.parent_id, Some(target.0));
    let grant = until("the other task to be claimed", async || claim(&app, 9).await.pop()).await;
    assert_eq!((grant.task_id, &grant.region.path), (waiting, &vec![target.0, folder.0, other.0]));
    assert!(finish(&app.pool, &grant).await);
    app.end().await;
}

#[tokio::test]
async fn a_delete_ends_what_a_worker_holds_and_takes_what_waits() {
    let app = app().await;
    let folder = node(&app, None).await;
    let (one, other) = (node(&app, Some(folder.0)).await, node(&app, Some(folder.0)).await);
    task(&app, &one, WriteMode::Itself, 0, None).await;
    task(&app, &other, WriteMode::Itself, 0, None).await;
    let held = claim(&app, 1).await;
    let lets_go = async {
        let mut conn = app.pool.acquire().await.unwrap();
        until("the end of the task to be requested", async || {
            tasks::is_cancelled(&mut conn, &held[0]).await.unwrap().then_some(())
        })
        .await;
        let mut tx = app.pool.begin().await.unwrap();
        tasks::fail(&mut tx, &held[0], &TaskFailure::cancelled(), "w", Duration::ZERO).await.unwrap();
        tx.commit().await.unwrap();
    };
    let (deleted, ()) = tokio::join!(app.client.delete_document(DocumentPath { id: folder.0 }), lets_go);
    deleted.unwrap();
    let left: i64 = sqlx::query_scalar("SELECT count(*) FROM task_queue WHERE task_type = 'test'")
        .fetch_one(&app.pool)
        .await
        .unwrap();
    assert_eq!(left, 0);
    app.end().await;
}

/// The worker of the task has died, or takes long to hear of the request.
#[tokio::test]
async fn a_delete_goes_on_without_a_worker_that_does_not_let_go() {
    let (grace, let_go) = (Duration::from_millis(100), Duration::from_millis(300));
    let waits = Waits { grace, let_go, ..Waits::default() };
    let app = TestApp::with(Wish { waits, no_worker: true, ..Wish::default() }).await;
    let folder = node(&app, None).await;
    let below = node(&app, Some(folder.0)).await;
    task(&app, &below, WriteMode::Itself, 0, None).await;
    let held = claim(&app, 1).await;
    app.client.delete_document(DocumentPath { id: folder.0 }).await.unwrap();
    assert!(!finish(&app.pool, &held[0]).await, "nothing that it wrote is kept");
    let mut tx = app.pool.begin().await.unwrap();
    tasks::fail(&mut tx, &held[0], &TaskFailure::cancelled(), "w", Duration::ZERO).await.unwrap();
    tx.commit().await.unwrap();
    let left: i64 = sqlx::query_scalar(
        "SELECT (SELECT count(*) FROM task_queue WHERE task_type = 'test') + (SELECT count(*) FROM task_reservation WHERE task_id = $1)
              + (SELECT count(*) FROM task_attempts WHERE task_id = $1)",
    )
    .bind(held[0].task_id)
    .fetch_one(&app.pool)
    .await
    .unwrap();
    assert_eq!(left, 0);
    invariants::check(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn a_delete_that_has_begun_to_end_tasks_goes_on_without_its_client() {
    // Its client goes while it waits for the worker, which has as long for that as by default.
    let waits = Waits { grace: Duration::ZERO, ..Waits::default() };
    let app = TestApp::with(Wish { waits, no_worker: true, ..Wish::default() }).await;
    let folder = node(&app, None).await;
    task(&app, &folder, WriteMode::Itself, 0, None).await;
    let held = claim(&app, 1).await;
    let client = app.client.clone();
    let delete = tokio::spawn(async move { client.delete_document(DocumentPath { id: folder.0 }).await });
    let mut conn = app.pool.acquire().await.unwrap();
    until("the end of the task to be requested", async || {
        tasks::is_cancelled(&mut conn, &held[0]).await.unwrap().then_some(())
    })
    .await;
    drop(conn);
    delete.abort();
    assert!(delete.await.unwrap_err().is_cancelled(), "the client is gone before it is answered");
    until("the document to be deleted", async || {
        let is_there: bool = sqlx::query_scalar("SELECT EXISTS (SELECT FROM documents WHERE id = $1)")
            .bind(folder.0)
            .fetch_one(&app.pool)
            .await
            .unwrap();
        (!is_there).then_some(())
    })
    .await;
    invariants::check(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn a_move_waits_for_a_task_whose_end_was_requested() {
    let app = TestApp::with(Wish { waits: refusing_soon(), no_worker: true, ..Wish::default() }).await;
    let (folder, target) = (node(&app, None).await, node(&app, None).await);
    let below = node(&app, Some(folder.0)).await;
    let id = task(&app, &below, WriteMode::Itself, 0, None).await;
    claim(&app, 1).await;
    sqlx::query("UPDATE task_queue SET cancel_requested_at = clock_timestamp() - interval '1 hour' WHERE id = $1")
        .bind(id)
        .execute(&app.pool)
        .await
        .unwrap();
    let refused = patch(&app, folder.0, json!({"parent_id": target.0})).await.unwrap_err();
    assert_eq!((refused.code, refused.members["task_id"].as_i64()), (Code::Conflict, Some(id.0)));
    app.patient().delete_document(DocumentPath { id: folder.0 }).await.unwrap();
    app.end().await;
}

#[tokio::test]
async fn an_edit_that_waits_keeps_no_other_request_waiting() {
    let settings = [("SVC_REQUESTS_AT_ONCE", "1")];
    let app = TestApp::with(Wish { settings: &settings, no_worker: true, ..Wish::default() }).await;
    let (folder, target) = (node(&app, None).await, node(&app, None).await);
    let (one, other) = (node(&app, Some(folder.0)).await, node(&app, Some(folder.0)).await);
    task(&app, &one, WriteMode::Itself, 0, None).await;
    let waiting = task(&app, &other, WriteMode::Itself, 0, None).await;
    let held = claim(&app, 1).await;
    let reads = async {
        until("the other task to stand back", async || (!status(&app, waiting).await.1).then_some(())).await;
        app.client.read_document(DocumentPath { id: target.0 }, EmbedQuery::default()).await.unwrap();
        assert!(finish(&app.pool, &held[0]).await);
    };
    let (moved, ()) = tokio::join!(patch(&app, folder.0, json!({"parent_id": target.0})), reads);
    assert_eq!(moved.unwrap().value.document.parent_id, Some(target.0));
    app.end().await;
}

/// The second one would else wait for as long as the first one may, and both would be refused.
#[tokio::test]
async fn an_edit_that_finds_too_many_waiting_is_refused_at_once() {
    let settings = [("SVC_WAITS_AT_ONCE", "1")];
    let app = TestApp::with(Wish { settings: &settings, no_worker: true, ..Wish::default() }).await;
    let (folder, other, target) = (node(&app, None).await, node(&app, None).await, node(&app, None).await);
    for place in [node(&app, Some(folder.0)).await, node(&app, Some(other.0)).await] {
        task(&app, &place, WriteMode::Itself, 0, None).await;
    }
    let held = claim(&app, 2).await;
    let waiting = task(&app, &node(&app, Some(folder.0)).await, WriteMode::Itself, 0, None).await;
    let meanwhile = async {
        until("the first edit to wait", async || (!status(&app, waiting).await.1).then_some(())).await;
        let refused = patch(&app, other.0, json!({"parent_id": target.0})).await.unwrap_err();
        assert_eq!(refused.code, Code::Conflict, "{refused:?}");
        for grant in &held {
            assert!(finish(&app.pool, grant).await);
        }
    };
    let (moved, ()) = tokio::join!(patch(&app, folder.0, json!({"parent_id": target.0})), meanwhile);
    assert_eq!(moved.unwrap().value.document.parent_id, Some(target.0));
    app.end().await;
}

#[tokio::test]
async fn who_may_not_change_what_a_task_works_on_does_not_hold_it_up() {
    let app = app().await;
    let top = node(&app, None).await;
    let folder = node(&app, Some(top.0)).await;
    let writer = someone(&app, "writer").await;
    grant(&app, &writer, folder.0, GrantRight::Write).await;
    let (one, target) = (node(&app, Some(folder.0)).await, node(&app, Some(folder.0)).await);
    let below = node(&app, Some(one.0)).await;
    task(&app, &one, WriteMode::Itself, 0, None).await;
    let held = claim(&app, 1).await;
    let waiting = task(&app, &below, WriteMode::Itself, 0, None).await;
    let above = task(&app, &top, WriteMode::Subtree, 0, None).await;
    let ends = async {
        until("the task below to stand back", async || (!status(&app, waiting).await.1).then_some(())).await;
        let put_off: Option<String> = sqlx::query_scalar("SELECT put_off_code FROM task_queue WHERE id = $1")
            .bind(above)
            .fetch_one(&app.pool)
            .await
            .unwrap();
        assert_eq!(put_off, None);
        assert!(finish(&app.pool, &held[0]).await);
    };
    let change = Json(serde_json::from_value(json!({"parent_id": target.0})).unwrap());
    let moves = writer.client.update_document(DocumentPath { id: one.0 }, WaitQuery::default(), change);
    let (moved, ()) = tokio::join!(moves, ends);
    assert_eq!(moved.unwrap().value.document.parent_id, Some(target.0));
    app.end().await;
}

#[tokio::test]
async fn a_delete_that_is_refused_for_a_task_above_has_ended_none_below() {
    // It could end tasks from its first look on.
    let waits = Waits { grace: Duration::ZERO, ..refusing_soon() };
    let app = TestApp::with(Wish { waits, no_worker: true, ..Wish::default() }).await;
    let above = node(&app, None).await;
    let folder = node(&app, Some(above.0)).await;
    let below = node(&app, Some(folder.0)).await;
    task(&app, &above, WriteMode::Children, 0, None).await;
    task(&app, &below, WriteMode::Itself, 0, None).await;
    let held = claim(&app, 2).await;
    assert_eq!(held.len(), 2);
    let refused = app.client.delete_document(DocumentPath { id: folder.0 }).await.unwrap_err();
    assert_eq!(refused.code, Code::Conflict);
    let mut conn = app.pool.acquire().await.unwrap();
    for grant in &held {
        assert!(!tasks::is_cancelled(&mut conn, grant).await.unwrap(), "task {} goes on", grant.task_id);
    }
    drop(conn);
    for grant in &held {
        assert!(finish(&app.pool, grant).await);
    }
    app.client.delete_document(DocumentPath { id: folder.0 }).await.unwrap();
    app.end().await;
}

/// Two changes that wait for each other are told apart by the server, which ends one of them.
#[tokio::test]
async fn a_delete_that_gives_way_to_another_change_is_tried_again_by_itself() {
    let app = app().await;
    let (one, other) = (node(&app, None).await, node(&app, None).await);
    let run = async |statements: &'static str| sqlx::raw_sql(statements).execute(&app.pool).await.unwrap();
    run("CREATE SEQUENCE tries;
         CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
         DECLARE try bigint := nextval('tries');
         BEGIN
             IF try = 1 OR try > 3 THEN RAISE 'in a circle' USING ERRCODE = 'deadlock_detected'; END IF;
             IF try = 2 THEN RAISE 'something is under it' USING ERRCODE = 'foreign_key_violation'; END IF;
             RETURN OLD;
         END $$;
         CREATE TRIGGER refuse BEFORE DELETE ON documents FOR EACH ROW EXECUTE FUNCTION refuse()")
    .await;
    app.client.delete_document(DocumentPath { id: one.0 }).await.unwrap();
    // One that always has to give way is refused in the end.
    let refused = app.client.delete_document(DocumentPath { id: other.0 }).await.unwrap_err();
    assert_eq!((refused.code, refused.members["retry_after"].as_i64()), (Code::Unavailable, Some(1)));
    let tries: i64 = sqlx::query_scalar("SELECT last_value FROM tries").fetch_one(&app.pool).await.unwrap();
    assert!((5..20).contains(&tries), "{tries} tries");
    run("DROP TRIGGER refuse ON documents").await;
    app.client.delete_document(DocumentPath { id: other.0 }).await.unwrap();
    app.end().await;
}

#[tokio::test]
async fn what_is_being_embedded_or_ingested_can_be_deleted() {
    let app = TestApp::start().await;
    let folder = app.create("Shelf", "What stands on it.", None).await.id;
    let item = |n: usize| BatchItem {
        parent_id: Some(folder),
        title: format!("Note {n}"),
        content: format!("The heron of note {n} waits by the water. ").repeat(8),
        ..BatchItem::default()
    };
    let batch = NewBatch { documents: (0..400).map(item).collect(), priority: 0 };
    app.client.create_documents(Json(batch)).await.unwrap();
    let text: String = (0..200).map(|n| format!("# Part {n}\n\nThe coot of part {n} dives.\n\n")).collect();
    let file = app.upload_bytes("parts.md", text).await.unwrap().document_id;
    for id in [folder, file] {
        app.client.delete_document(DocumentPath { id }).await.unwrap();
        let gone = app.client.read_document(DocumentPath { id }, EmbedQuery::default()).await.unwrap_err();
        assert_eq!(gone.code, Code::NotFound);
    }
    app.end().await;
}
