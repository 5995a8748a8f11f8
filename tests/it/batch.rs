//! Many documents in one call, and files of them.
use crate::{
    queue,
    support::{
        TOKEN, TestApp, Wish, invariants, place, repository, until, until_a_statement_like_this_waits,
        until_a_statement_waits,
    },
};
use serde_json::{Value, json};
use std::process::{Command, Output};
use svc::store::{
    documents::delete_subtrees,
    moves,
    transaction::{self, Transaction},
};
use svc_actors::WriteMode;
use svc_client::{
    Code, Failure, Json,
    wire::{
        ArchivePart, BatchResponse, Bm25Search, DocumentChange, DocumentPath, ImportedArchive, NewBatch, PageQuery,
        TaskQuery, TaskTypePath, VectorSearch, WaitQuery,
    },
};

async fn create(app: &TestApp, documents: Value) -> Result<BatchResponse, Failure> {
    let batch: NewBatch = serde_json::from_value(json!({"documents": documents})).unwrap();
    app.client.create_documents(Json(batch)).await
}

fn ids(answer: &BatchResponse) -> Vec<i64> {
    answer.documents.iter().map(|document| document.document_id).collect()
}

/// Waits until every task is done.
async fn drained(app: &TestApp) {
    until("the queue is empty", async || {
        app.client.list_tasks(TaskQuery::default()).await.unwrap().tasks.is_empty().then_some(())
    })
    .await;
}

async fn documents(app: &TestApp) -> i64 {
    sqlx::query_scalar("SELECT count(*) FROM documents").fetch_one(&app.pool).await.unwrap()
}

fn embeds() -> TaskTypePath {
    TaskTypePath { task_type: "embed".to_owned() }
}

#[tokio::test]
async fn the_attempts_of_a_document_do_not_count_what_was_created_with_it() {
    let app = TestApp::start().await;
    let mut batch = vec![json!({"title": "Open", "content": "About birds."})];
    batch.extend((0..5).map(|n| json!({"title": format!("Closed {n}"), "content": "About it.", "private": true})));
    let open = ids(&create(&app, batch.into()).await.unwrap())[0];
    drained(&app).await;
    let evidence = app.client.read_evidence(DocumentPath { id: open }).await.unwrap().evidence;
    let attempts = evidence["attempts"].as_array().unwrap();
    assert_eq!((attempts.len(), &attempts[0]["task_type"]), (1, &json!("embed")), "{attempts:?}");
    assert_eq!(attempts[0]["detail"]["embedded"], 1, "{attempts:?}");
    app.end().await;
}

#[tokio::test]
async fn a_batch_makes_a_tree_that_is_found_and_may_be_repeated() {
    let app = TestApp::start().await;
    let folder = app.create("Folder", "", None).await.id;
    let mut batch = vec![json!({"title": "Birds", "content": "About birds.", "key": "birds", "parent_id": folder})];
    let text = |n| format!("Heron number {n} stands in the shallow water and waits for a fish.");
    batch.extend((0..150).map(|n| json!({"title": format!("Heron {n}"), "content": text(n), "parent_key": "birds"})));
    batch.push(json!({"title": "Apart", "content": "A lighthouse.", "private": true, "key": "apart", "position": 3}));
    batch.push(json!({"title": "Under it", "content": "Its lamp.", "parent_key": "apart"}));
    let answer = create(&app, batch.clone().into()).await.unwrap();
    assert!(
        answer.documents.iter().zip(0..).all(|(document, index)| document.index == index && !document.was_existing)
    );
    let ids = ids(&answer);
    drained(&app).await;
    let read = async |at: usize| {
        app.client.read_document(DocumentPath { id: ids[at] }, Default::default()).await.unwrap().value().unwrap()
    };
    assert_eq!((read(0).await.path, read(7).await.path), (vec![folder], vec![folder, ids[0]]));
    assert_eq!(
        (read(7).await.content, read(151).await.position, read(152).await.path),
        (text(6), Some(3), vec![ids[151]])
    );
    let found = app.client.search_vector(Json(VectorSearch::new("a bird that fishes"))).await.unwrap();
    assert_eq!((found.total, found.scope_state.in_flight), (ids.len() as u64 + 1, 0));
    let tasks: i64 =
        sqlx::query_scalar("SELECT count(*) FROM task_queue WHERE task_type = 'embed' AND scope_document_id > $1")
            .bind(folder)
            .fetch_one(&app.pool)
            .await
            .unwrap();
    assert_eq!(tasks, 3, "a task embeds many documents");
    let guards: Vec<i64> = sqlx::query_scalar("SELECT guard FROM documents WHERE id = ANY($1) ORDER BY id")
        .bind(&ids[150..])
        .fetch_all(&app.pool)
        .await
        .unwrap();
    assert_eq!(guards, [0, ids[151], ids[151]]);

    // Those with a key are found again, also as parents of later calls; the others are new ones.
    let keyed = json!([batch[0], {"title": "One more", "content": "", "parent_key": "birds"}]);
    let again = create(&app, keyed).await.unwrap();
    assert_eq!((again.documents[0].document_id, again.documents[0].was_existing), (ids[0], true));
    assert!(!again.documents[1].was_existing);
    let children =
        app.client.list_children(DocumentPath { id: ids[0] }, PageQuery { limit: Some(1000), ..PageQuery::default() });
    assert_eq!(children.await.unwrap().documents.len(), 151);
    drained(&app).await;
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn one_bad_document_stores_none_and_is_named() {
    let app = TestApp::with(Wish { no_worker: true, ..Default::default() }).await;
    let good = json!({"title": "Good", "content": "Fine."});
    for (bad, code, says) in [
        (json!({"title": "", "content": ""}), Code::InvalidField, "documents[1].title"),
        (json!({"title": "t", "content": "", "usetype": "no spaces"}), Code::InvalidField, "documents[1].usetype"),
        (json!({"title": "t", "content": "", "parent_id": 4711}), Code::NotFound, "4711"),
        (json!({"title": "t", "content": "", "parent_key": "later"}), Code::InvalidField, "`later`"),
        (json!({"title": "t", "content": "", "parent_key": "a", "parent_id": 1}), Code::InvalidField, "parent_key"),
    ] {
        let refused =
            create(&app, json!([good, bad, {"title": "t", "content": "", "key": "later"}])).await.unwrap_err();
        assert_eq!((refused.code, refused.members["index"].as_u64()), (code, Some(1)), "{refused:?}");
        assert!(refused.detail.contains(says), "{refused:?}");
    }
    let twice =
        create(&app, json!([{"title": "t", "content": "", "key": "k"}, {"title": "t", "content": "", "key": "k"}]));
    assert_eq!(twice.await.unwrap_err().members["index"], 1);
    for wrong in [json!([]), json!(vec![good; 1001])] {
        assert_eq!(create(&app, wrong).await.unwrap_err().members["field"], "documents");
    }
    assert_eq!(documents(&app).await, 0);
    app.end().await;
}

#[tokio::test]
async fn what_is_deleted_or_changed_of_a_batch_keeps_no_other_document_from_being_found() {
    let app = TestApp::start().await;
    app.client.pause_task_type(embeds()).await.unwrap();
    let batch: Vec<Value> = (0..9).map(|n| json!({"title": format!("Note {n}"), "content": "A heron."})).collect();
    let ids = ids(&create(&app, batch.into()).await.unwrap());
    let waiting = app.client.search_vector(Json(VectorSearch::new("heron"))).await.unwrap();
    assert_eq!((waiting.total, waiting.scope_state.in_flight), (0, 9));
    // The task stands at the first one.
    for id in &ids[..2] {
        app.client.delete_document(DocumentPath { id: *id }).await.unwrap();
    }
    invariants::check(&app.pool).await;
    app.client.resume_task_type(embeds()).await.unwrap();
    drained(&app).await;
    let found = app.client.search_vector(Json(VectorSearch::new("heron"))).await.unwrap();
    assert_eq!((found.total, found.scope_state.in_flight), (7, 0));
    for id in ids[2..].iter() {
        app.client.delete_document(DocumentPath { id: *id }).await.unwrap();
    }
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

/// Where the tasks stand that embed.
async fn embedding_at(app: &TestApp) -> Vec<i64> {
    let open = "SELECT scope_document_id FROM task_queue WHERE task_type = 'embed' AND NOT final ORDER BY 1";
    sqlx::query_scalar(open).fetch_all(&app.pool).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_task_of_a_batch_goes_to_no_document_that_somebody_is_deleting() {
    let app = TestApp::start().await;
    app.client.pause_task_type(embeds()).await.unwrap();
    let three: Vec<Value> = (0..3).map(|n| json!({"title": format!("Note {n}"), "content": "A heron."})).collect();
    let three = ids(&create(&app, three.into()).await.unwrap());
    assert_eq!(embedding_at(&app).await, three[..1]);
    let delete = |id: i64| {
        let client = app.client.clone();
        tokio::spawn(async move { client.delete_document(DocumentPath { id }).await })
    };
    let deleted = async |id: i64| -> Transaction {
        let mut deleting = transaction::begin(&app.pool).await.unwrap();
        let doomed = place(&mut deleting, id).await;
        delete_subtrees(&mut deleting, &[doomed]).await.unwrap();
        deleting
    };
    let deleting = deleted(three[1]).await;
    let first = delete(three[0]);
    until("the other delete to end, or to wait", async || {
        let waits = "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')";
        let waits: bool = sqlx::query_scalar(waits).fetch_one(&app.pool).await.unwrap();
        (first.is_finished() || waits).then_some(())
    })
    .await;
    deleting.commit().await.unwrap();
    first.await.unwrap().unwrap();
    assert_eq!(embedding_at(&app).await, three[2..]);

    // Where nobody else is left it waits for what becomes of the last one.
    for is_kept in [true, false] {
        let two = json!([{"title": "One", "content": "A coot."}, {"title": "Two", "content": "A coot."}]);
        let two = ids(&create(&app, two).await.unwrap());
        let deleting = deleted(two[1]).await;
        let first = delete(two[0]);
        until_a_statement_waits(&app.pool).await;
        match is_kept {
            true => deleting.rollback().await.unwrap(),
            false => deleting.commit().await.unwrap(),
        }
        first.await.unwrap().unwrap();
        let left = if is_kept { &two[1..] } else { &[] };
        assert_eq!(embedding_at(&app).await, [&three[2..], left].concat());
        for id in left {
            app.client.delete_document(DocumentPath { id: *id }).await.unwrap();
        }
    }
    app.client.resume_task_type(embeds()).await.unwrap();
    drained(&app).await;
    let found = app.client.search_vector(Json(VectorSearch::new("heron"))).await.unwrap();
    assert_eq!(found.results.iter().map(|result| result.document.id).collect::<Vec<_>>(), three[2..]);
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

/// Creates one document by itself.
async fn alone(app: &TestApp, title: &str, parent_id: Option<i64>) -> i64 {
    let new = json!([{"title": title, "content": "A coot.", "parent_id": parent_id}]);
    ids(&create(app, new).await.unwrap())[0]
}

/// Creates a document under each of these, all with one task.
async fn herons(app: &TestApp, parents: [Option<i64>; 3]) -> Vec<i64> {
    let new = parents.map(|parent| json!({"title": "Note", "content": "A heron.", "parent_id": parent}));
    ids(&create(app, json!(new)).await.unwrap())
}

fn deleting(app: &TestApp, id: i64) -> tokio::task::JoinHandle<Result<(), Failure>> {
    let client = app.client.clone();
    tokio::spawn(async move { client.delete_document(DocumentPath { id }).await })
}

/// Keeps documents from being deleted.
async fn held(app: &TestApp, ids: &[i64]) -> sqlx::Transaction<'static, sqlx::Postgres> {
    let mut held = app.pool.begin().await.unwrap();
    sqlx::query("SELECT id FROM documents WHERE id = ANY($1) FOR UPDATE").bind(ids).execute(&mut *held).await.unwrap();
    held
}

/// How many statements wait for documents that others have locked.
async fn waiting(app: &TestApp) -> i64 {
    let waiting = "SELECT count(*) FROM pg_stat_activity
                    WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '%FROM documents%'";
    sqlx::query_scalar(waiting).fetch_one(&app.pool).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_task_of_a_batch_goes_to_no_document_under_a_folder_that_somebody_is_deleting() {
    let app = TestApp::start().await;
    app.client.pause_task_type(embeds()).await.unwrap();
    let mut last = Vec::new();
    for is_folder_first in [true, false] {
        let folder = alone(&app, "Folder", None).await;
        // It is deleted before what comes into the folder later.
        let there = alone(&app, "There", Some(folder)).await;
        let three = herons(&app, [None, Some(folder), None]).await;
        let under = alone(&app, "Under it", Some(three[0])).await;
        let (first, second, held_up) = match is_folder_first {
            true => (folder, three[0], there),
            false => (three[0], folder, under),
        };
        let held = held(&app, &[held_up]).await;
        let first = deleting(&app, first);
        until("the first delete to wait", async || (waiting(&app).await == 1).then_some(())).await;
        let second = deleting(&app, second);
        until("the second delete to end, or to wait", async || {
            (second.is_finished() || waiting(&app).await == 2).then_some(())
        })
        .await;
        held.rollback().await.unwrap();
        first.await.unwrap().unwrap();
        second.await.unwrap().unwrap();
        last.push(three[2]);
        assert_eq!(embedding_at(&app).await, last);
    }
    app.client.resume_task_type(embeds()).await.unwrap();
    drained(&app).await;
    let found = app.client.search_vector(Json(VectorSearch::new("heron"))).await.unwrap();
    let mut found: Vec<i64> = found.results.iter().map(|result| result.document.id).collect();
    found.sort_unstable();
    assert_eq!(found, last);
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn folders_with_documents_of_the_same_batches_are_deleted_at_once() {
    let app = TestApp::start().await;
    app.client.pause_task_type(embeds()).await.unwrap();
    let mut folders = Vec::new();
    for title in ["One", "Two", "Three"] {
        folders.push(alone(&app, title, None).await);
    }
    let &[one, two, three] = folders.as_slice() else { panic!("three folders: {folders:?}") };
    let held_up = [alone(&app, "In one", Some(one)).await, alone(&app, "In two", Some(two)).await];
    let here = herons(&app, [Some(one), Some(two), Some(three)]).await;
    let there = herons(&app, [Some(two), Some(one), Some(three)]).await;
    let held = held(&app, &held_up).await;
    let first = deleting(&app, one);
    until("the first delete to wait", async || (waiting(&app).await == 1).then_some(())).await;
    let second = deleting(&app, two);
    until("both to wait", async || (waiting(&app).await == 2).then_some(())).await;
    held.rollback().await.unwrap();
    first.await.unwrap().unwrap();
    second.await.unwrap().unwrap();
    assert_eq!(embedding_at(&app).await, [three, here[2], there[2]]);
    app.client.resume_task_type(embeds()).await.unwrap();
    drained(&app).await;
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_delete_that_waits_for_that_of_a_folder_holds_nothing_in_the_folder() {
    let app = TestApp::start().await;
    app.client.pause_task_type(embeds()).await.unwrap();
    // A folder that was moved may be older than the one that it is in.
    let older = alone(&app, "Older", None).await;
    let outer = alone(&app, "Outer", None).await;
    // It is deleted before the folders beside it.
    let there = alone(&app, "There", Some(outer)).await;
    let inner = alone(&app, "Inner", Some(outer)).await;
    let into = DocumentChange { parent_id: Some(Some(outer)), ..DocumentChange::default() };
    app.client.update_document(DocumentPath { id: older }, WaitQuery::default(), Json(into)).await.unwrap();
    let other = alone(&app, "Other", None).await;
    // One task has a place to go to, and the other one has none but in the folder.
    let saved = herons(&app, [Some(other), Some(inner), None]).await;
    herons(&app, [Some(other), Some(older), Some(inner)]).await;
    let held = held(&app, &[there]).await;
    let first = deleting(&app, outer);
    until("the first delete to wait", async || (waiting(&app).await == 1).then_some(())).await;
    let second = deleting(&app, other);
    until("both to wait", async || (waiting(&app).await == 2).then_some(())).await;
    held.rollback().await.unwrap();
    first.await.unwrap().unwrap();
    second.await.unwrap().unwrap();
    assert_eq!(embedding_at(&app).await, saved[2..]);
    app.client.resume_task_type(embeds()).await.unwrap();
    drained(&app).await;
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_task_of_a_batch_follows_the_last_of_its_documents_that_is_being_moved() {
    let app = TestApp::start().await;
    app.client.pause_task_type(embeds()).await.unwrap();
    let (from, to) = (alone(&app, "From", None).await, alone(&app, "To", None).await);
    let three = herons(&app, [None, Some(from), None]).await;
    app.client.delete_document(DocumentPath { id: three[2] }).await.unwrap();
    let mut moving = transaction::begin_moving(&app.pool).await.unwrap();
    let (moved, to) = (place(&mut moving, three[1]).await, place(&mut moving, to).await);
    moves::relocate(&mut moving, &moved, Some(&to)).await.unwrap();
    let deleting = deleting(&app, three[0]);
    until("the delete to wait", async || (waiting(&app).await == 1).then_some(())).await;
    moving.commit().await.unwrap();
    deleting.await.unwrap().unwrap();
    let at = "SELECT node_path FROM task_queue WHERE scope_document_id = $1";
    let at: String = sqlx::query_scalar(at).bind(three[1]).fetch_one(&app.pool).await.unwrap();
    assert_eq!(at, format!("{}/{}/", to.id(), three[1]));
    app.client.resume_task_type(embeds()).await.unwrap();
    drained(&app).await;
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

/// Runs `svc import` on a file of these lines.
async fn import(app: &TestApp, lines: &str, arguments: &[&str]) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("documents.ndjson");
    std::fs::write(&file, lines).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_svc"));
    command
        .args(["--json", "import", file.to_str().unwrap()])
        .args(arguments)
        .env("SVC_URL", &app.base)
        .env("SVC_API_TOKEN", TOKEN)
        .env("SVC_CONFIG", "/dev/null")
        .current_dir(repository());
    let output = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    drop(folder);
    output
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_of_documents_is_imported_once_however_often() {
    let app = TestApp::start().await;
    let parent = app.create("Imported", "", None).await.id;
    let mut lines: String =
        (0..1200).map(|n| format!("{}\n", json!({"title": format!("Line {n}"), "content": "c"}))).collect();
    lines += "\n{\"title\": \"no content\"}\nnot json\n";
    lines += "{\"title\": \"Child\", \"content\": \"\", \"parent_key\": \"nobody\"}\n";
    lines += "{\"title\": \"Same\", \"content\": \"s\"}\n{\"title\": \"Same\", \"content\": \"s\"}";
    let parent = parent.to_string();
    let first = import(&app, &lines, &["--under", &parent]).await;
    let said: Vec<Value> =
        String::from_utf8_lossy(&first.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(first.status.code(), Some(3), "{}", String::from_utf8_lossy(&first.stderr));
    let refused: Vec<u64> = said.iter().filter_map(|line| line["line"].as_u64()).collect();
    assert_eq!(refused, [1202, 1203, 1204], "{said:?}");
    assert!(said[2]["reason"].as_str().unwrap().contains("`nobody`"), "{said:?}");
    assert_eq!(said[3], json!({"lines": 1206, "stored": 1202, "existing": 0, "refused": 3}));
    let again = import(&app, &lines, &["--parent", &parent]).await;
    let summary = String::from_utf8_lossy(&again.stdout).lines().last().unwrap().to_owned();
    assert_eq!(serde_json::from_str::<Value>(&summary).unwrap()["existing"], 1202, "{summary}");
    assert_eq!(documents(&app).await, 1203);
    drained(&app).await;
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn a_batch_makes_no_tree_that_is_too_deep() {
    let app = TestApp::with(Wish { no_worker: true, ..Default::default() }).await;
    let deepest = svc::store::places::DEEPEST;
    let line = |from: usize, to: usize| -> Vec<Value> {
        let item = |n: usize| match n {
            0 => json!({"title": "t", "content": "", "key": "k0"}),
            n => json!({"title": "t", "content": "", "key": format!("k{n}"), "parent_key": format!("k{}", n - 1)}),
        };
        (from..to).map(item).collect()
    };
    let refused = create(&app, line(0, 1000).into()).await.unwrap_err();
    assert_eq!(
        (refused.code, &refused.members["index"], &refused.members["limit"]),
        (Code::InvalidField, &json!(deepest), &json!(deepest))
    );
    assert_eq!(documents(&app).await, 0);
    create(&app, line(0, deepest).into()).await.unwrap();
    let refused = create(&app, line(deepest, deepest + 1).into()).await.unwrap_err();
    assert_eq!((&refused.members["index"], &refused.members["field"]), (&json!(0), &json!("documents[0].parent_id")));
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_that_the_service_refuses_keeps_no_other_line_from_being_imported() {
    let app =
        TestApp::with(Wish { settings: &[("SVC_MAX_BODY_BYTES", "1 MiB")], no_worker: true, ..Default::default() })
            .await;
    let line = |title: &str, content: String| format!("{}\n", json!({"title": title, "content": content}));
    let lines = [
        line("first", "c".to_owned()),
        line("zero", "a\0b".to_owned()),
        line("long", "w ".repeat(300_000)),
        line("too long", "w ".repeat(700_000)),
        line("long too", "v ".repeat(300_000)),
        line("last", "c".to_owned()),
    ]
    .concat();
    let output = import(&app, &lines, &[]).await;
    let said: Vec<Value> =
        String::from_utf8_lossy(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(output.status.code(), Some(3), "{}", String::from_utf8_lossy(&output.stderr));
    let refused: Vec<u64> = said.iter().filter_map(|line| line["line"].as_u64()).collect();
    assert_eq!(refused, [2, 4], "{said:?}");
    assert_eq!(said[2], json!({"lines": 6, "stored": 4, "existing": 0, "refused": 2}));
    app.end().await;
}

#[tokio::test]
async fn a_database_that_takes_too_long_is_no_fault_of_a_document() {
    // Long enough for what nobody holds up, on a loaded machine too.
    let settings = &[("SVC_STATEMENT_TIMEOUT_SECONDS", "2")];
    let app = TestApp::with(Wish { settings, no_worker: true, ..Wish::default() }).await;
    let parent = ids(&create(&app, json!([{"title": "Folder", "content": ""}])).await.unwrap())[0];
    let mut other = app.pool.begin().await.unwrap();
    sqlx::query("SELECT 1 FROM documents FOR UPDATE").execute(&mut *other).await.unwrap();
    let under = json!([{"title": "t", "content": "", "parent_id": parent}]);
    let refused = create(&app, under.clone()).await.unwrap_err();
    assert_eq!((refused.code, refused.members.get("index")), (Code::TimedOut, None), "{refused:?}");
    let part = json!({"documents": [{"id": 1, "title": "t", "content": "c", "usetype": "markdown", "settled": "settled",
        "content_hash": "sha256:", "created_at": "2024-01-01T00:00:00Z", "updated_at": "2024-01-01T00:00:00Z"}]});
    let part: ArchivePart = serde_json::from_value(part).unwrap();
    let of = ImportedArchive { archive: "an-archive".to_owned(), parent_id: Some(parent) };
    let refused = app.client.import_documents(of, Json(part)).await.unwrap_err();
    assert_eq!((refused.code, refused.members.get("index")), (Code::TimedOut, None), "{refused:?}");
    other.rollback().await.unwrap();
    create(&app, under).await.unwrap();
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_line_that_the_database_cannot_hold_is_refused_and_no_other() {
    let app = TestApp::with(Wish { no_worker: true, ..Default::default() }).await;
    // The database says neither which document it refuses nor by which field.
    sqlx::raw_sql(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'out of range' USING ERRCODE = '22003'; END $$;
         CREATE TRIGGER refuse BEFORE INSERT ON documents FOR EACH ROW WHEN (NEW.title = 'bad') EXECUTE FUNCTION refuse()",
    )
    .execute(&app.pool)
    .await
    .unwrap();
    // A private document has those before it stored with it.
    let [bad, good] =
        [json!({"title": "bad", "content": ""}), json!({"title": "good", "content": "", "private": true})];
    let output = import(&app, &format!("{bad}\n{good}\n"), &[]).await;
    let said = String::from_utf8_lossy(&output.stdout);
    let said: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(output.status.code(), Some(3), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(said[0]["line"], 1, "{said:?}");
    assert_eq!(said[1], json!({"lines": 2, "stored": 1, "existing": 0, "refused": 1}));
    sqlx::raw_sql("DROP TRIGGER refuse ON documents; DROP FUNCTION refuse()").execute(&app.pool).await.unwrap();
    app.end().await;
}

#[tokio::test]
async fn a_key_names_one_line_of_an_import_however_far_apart_two_are() {
    let app = TestApp::with(Wish { no_worker: true, ..Default::default() }).await;
    let line = |n: usize, key: &str| format!("{}\n", json!({"title": format!("Line {n}"), "content": "", "key": key}));
    let mut lines: String = (1..=600).map(|n| line(n, &format!("key {n}"))).collect();
    lines.push_str(&line(601, "key 2"));
    let output = import(&app, &lines, &[]).await;
    let said = String::from_utf8_lossy(&output.stdout);
    let said: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(said[0], json!({"line": 601, "reason": "line 2 has the key too"}));
    assert_eq!(said[1], json!({"lines": 601, "stored": 600, "existing": 0, "refused": 1}));
    app.end().await;
}

#[tokio::test]
async fn batches_under_the_same_documents_hold_their_tasks_in_the_same_order() {
    let app = queue::app().await;
    let mut folders = Vec::new();
    for _ in 0..8 {
        let folder = queue::node(&app, None).await;
        let task = queue::task(&app, &folder, WriteMode::Children, 0, None).await;
        folders.push((folder.0, task));
    }
    let mut held = app.pool.begin().await.unwrap();
    let first = "SELECT FROM task_queue WHERE id = $1 FOR UPDATE";
    sqlx::query(first).bind(folders[0].1).execute(&mut *held).await.unwrap();
    let notes = folders.iter().rev().map(|(id, _)| json!({"title": "Note", "content": "", "parent_id": id}));
    let batch: NewBatch = serde_json::from_value(json!({"documents": notes.collect::<Vec<_>>()})).unwrap();
    let client = app.client.clone();
    let batch = tokio::spawn(async move { client.create_documents(Json(batch)).await });
    until_a_statement_like_this_waits(&app.pool, "%JOIN around%").await;
    let free = "SELECT count(*) FROM (SELECT FROM task_queue WHERE task_type = 'test' FOR UPDATE SKIP LOCKED) free";
    let free: i64 = sqlx::query_scalar(free).fetch_one(&app.pool).await.unwrap();
    assert_eq!(free, 7, "it holds none before the first, for which another batch may wait");
    held.rollback().await.unwrap();
    assert_eq!(batch.await.unwrap().unwrap().documents.len(), 8);
    sqlx::query("DELETE FROM task_queue").execute(&app.pool).await.unwrap();
    app.end().await;
}

/// A ranking is walked for as long as that pays; behind a narrow filter, the few eligible documents are listed instead.
#[tokio::test]
async fn a_narrow_filter_finds_its_documents_far_down_a_long_ranking() {
    let app = TestApp::start().await;
    let mut wanted = Vec::new();
    for part in 0..3 {
        let mut batch: Vec<Value> = (0..900).map(|_| json!({"title": "Tide", "content": "tide"})).collect();
        // A longer text about the same is ranked below all the others.
        let event = format!("2020-01-0{}T00:00:00Z", part + 1);
        let content = "The tide is mentioned once in this longer text about the harbour.";
        batch.push(json!({"title": "Log", "content": content, "event_time": event}));
        wanted.push(*ids(&create(&app, batch.into()).await.unwrap()).last().unwrap());
    }
    drained(&app).await;
    // The planner knows by now how few they are.
    sqlx::query("ANALYZE documents").execute(&app.pool).await.unwrap();
    let mut search = Bm25Search::new("tide");
    search.filter = Some(serde_json::from_value(json!({"event_time_until": "2020-02-01T00:00:00Z"})).unwrap());
    let found = app.client.search_bm25(Json(search)).await.unwrap();
    assert_eq!(found.results.iter().map(|hit| hit.document.id).collect::<Vec<_>>(), wanted);
    app.end().await;
}
