//! When documents enter the BM25 indexes: what settles is found at once, by its title if it has no text, and a refresh adds nothing.
use crate::{
    edits::patched,
    support::{TestApp, Wish, invariants, until, until_a_statement_like_this_waits, until_a_statement_waits},
};
use serde_json::json;
use sqlx::{PgConnection, PgPool};
use std::collections::BTreeSet;
use svc::search::bm25;
use svc_client::{
    FileUpload, Json, OptionalJson,
    wire::{Bm25Search, DocumentPath, IndexPath, IndexState, NewIndex, PageQuery, Settled, TaskTypePath, UploadQuery},
};
use svc_ids::{DocumentId, IndexId};

/// The documents that an index finds, by usetype and title.
async fn find(app: &TestApp, index: &str, query: &str) -> BTreeSet<(String, String)> {
    let search = Bm25Search { index: Some(index.to_owned()), ..Bm25Search::new(query) };
    let found = app.client.search_bm25(Json(search)).await.unwrap();
    found.results.into_iter().map(|result| (result.document.usetype, result.document.title)).collect()
}

fn set(documents: &[(&str, &str)]) -> BTreeSet<(String, String)> {
    documents.iter().map(|(usetype, title)| ((*usetype).to_owned(), (*title).to_owned())).collect()
}

/// How many documents the index has that is there from the start.
async fn held(app: &TestApp) -> i64 {
    app.client.list_indexes(PageQuery::default()).await.unwrap().indexes[0].documents
}

async fn pause(app: &TestApp, task_type: &str) {
    app.client.pause_task_type(TaskTypePath { task_type: task_type.to_owned() }).await.unwrap();
}

async fn resume(app: &TestApp, task_type: &str) {
    app.client.resume_task_type(TaskTypePath { task_type: task_type.to_owned() }).await.unwrap();
}

/// Waits until a task of a type that is paused waits.
async fn until_waits(app: &TestApp, task_type: &str) {
    let waits = "SELECT EXISTS (SELECT FROM task_queue WHERE task_type = $1 AND status = 'pending')";
    until("the task to wait", async || {
        sqlx::query_scalar::<_, bool>(waits).bind(task_type).fetch_one(&app.pool).await.unwrap().then_some(())
    })
    .await;
}

#[tokio::test]
async fn what_settles_enters_the_indexes_and_a_refresh_adds_nothing() {
    let app = TestApp::start().await;
    let file = app.upload_bytes("otters.md", "# Kingfisher\n\nIt dives.\n\n## Nest\n\nA tunnel.\n").await.unwrap();
    app.settled(file.document_id).await;
    assert_eq!(
        find(&app, "default", "kingfisher").await,
        set(&[("section", "Kingfisher"), ("chunk", "Kingfisher"), ("chunk", "Nest")])
    );
    assert!(find(&app, "default", "otters").await.contains(&("file".to_owned(), "otters.md".to_owned())));
    // Nothing settles under a file without a text.
    let blank = app.upload_bytes("bittern.txt", " \n").await.unwrap();
    assert_eq!(app.settled(blank.document_id).await.settled, Settled::Settled);
    assert_eq!(find(&app, "default", "bittern").await, set(&[("file", "bittern.txt")]));
    invariants::check_drained(&app.pool).await;
    let before = held(&app).await;
    app.client.refresh_index(IndexPath { id: 1 }).await.unwrap();
    assert_eq!(held(&app).await, before);
    app.end().await;
}

#[tokio::test]
async fn a_container_is_found_by_its_present_title() {
    for titles in ["true", "false"] {
        let app = TestApp::with(Wish { settings: &[("SVC_TITLE_PATHS", titles)], ..Wish::default() }).await;
        svc::app::weigh_indexes(&app.pool, &app.service.settings).await.unwrap();
        until("the index to be built", async || {
            let indexes = app.client.list_indexes(PageQuery::default()).await.unwrap().indexes;
            (indexes[0].state == IndexState::Ready).then_some(())
        })
        .await;
        let file = app.upload_bytes("otters.md", "# Kingfisher\n\nIt dives.\n").await.unwrap().document_id;
        app.settled(file).await;
        let section = app.subtree(file).await.into_iter().find(|node| node.usetype == "section").unwrap().id;
        for (id, title, old) in [(file, "Grebes", "otters"), (section, "Bittern", "kingfisher")] {
            patched(&app, id, json!({"title": title})).await;
            let is_found = async |query| find(&app, "default", query).await.iter().any(|(_, found)| found == title);
            until("the new title to be indexed", async || is_found(title).await.then_some(())).await;
            assert!(!is_found(old).await, "{old}");
        }
        invariants::check_drained(&app.pool).await;
        app.end().await;
    }
}

/// Has statements wait that intern new terms, until the connection's transaction ends.
async fn keep_terms(pool: &PgPool) -> sqlx::Transaction<'static, sqlx::Postgres> {
    let mut tx = pool.begin().await.unwrap();
    sqlx::query("LOCK TABLE search_term_stats IN SHARE MODE").execute(&mut *tx).await.unwrap();
    tx
}

/// Waits until a statement that interns new terms waits.
async fn until_terms_wait(pool: &PgPool) {
    until_a_statement_like_this_waits(pool, "INSERT INTO search_term_stats%").await;
}

async fn set_title(conn: &mut PgConnection, id: i64, title: &str) {
    sqlx::query("UPDATE documents SET title = $2 WHERE id = $1").bind(id).bind(title).execute(conn).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_title_that_changes_while_its_container_settles_is_the_one_that_is_indexed() {
    // A section settles in the transaction of the task that rolls it up, and its file after that.
    for usetype in ["section", "file"] {
        let app = TestApp::start().await;
        pause(&app, "summarize").await;
        let file = app.upload_bytes("otters.md", "# Grebe\n\nIt dives.\n").await.unwrap().document_id;
        until_waits(&app, "summarize").await;
        let id = app.subtree(file).await.into_iter().find(|node| node.usetype == usetype).map_or(file, |node| node.id);
        set_title(&mut app.pool.acquire().await.unwrap(), id, "Zander").await;
        let kept = keep_terms(&app.pool).await;
        resume(&app, "summarize").await;
        until_terms_wait(&app.pool).await;
        set_title(&mut app.pool.acquire().await.unwrap(), id, "Bittern").await;
        kept.rollback().await.unwrap();
        app.settled(file).await;
        assert_eq!(find(&app, "default", "bittern").await, set(&[(usetype, "Bittern")]));
        assert!(find(&app, "default", "zander").await.is_empty(), "{usetype}");
        app.end().await;
    }
}

/// Makes an index while a task that has looked for indexes goes on.
async fn make_index(app: &TestApp) -> i64 {
    let new: NewIndex = serde_json::from_value(json!({"name": "late"})).unwrap();
    app.client.create_index(Json(new)).await.unwrap().id
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_that_is_built_while_a_text_is_embedded_has_the_text() {
    let app = TestApp::start().await;
    let kept = keep_terms(&app.pool).await;
    let file = app.upload_bytes("otters.md", "It dives.\n").await.unwrap().document_id;
    // The task that embeds the text has looked for the indexes.
    until_terms_wait(&app.pool).await;
    make_index(&app).await;
    kept.rollback().await.unwrap();
    app.settled(file).await;
    assert_eq!(find(&app, "late", "dives").await.len(), 1);
    assert_eq!(find(&app, "late", "otters").await, find(&app, "default", "otters").await);
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_that_is_built_while_a_text_is_written_has_the_text() {
    let app = TestApp::start().await;
    pause(&app, "embed").await;
    let file = app.upload_bytes("otters.md", "It dives.\n").await.unwrap().document_id;
    until_waits(&app, "embed").await;
    // The task waits for the index after it has found out, for the last time, which ones there are.
    let mut held = app.pool.begin().await.unwrap();
    sqlx::query("SELECT FROM search_indexes FOR UPDATE").execute(&mut *held).await.unwrap();
    resume(&app, "embed").await;
    until_a_statement_waits(&app.pool).await;
    let making = tokio::spawn({
        let client = app.client.clone();
        async move { client.create_index(Json(serde_json::from_value(json!({"name": "late"})).unwrap())).await }
    });
    let waiting =
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    until("the build to wait for the text", async || {
        (sqlx::query_scalar::<_, i64>(waiting).fetch_one(&app.pool).await.unwrap() > 1).then_some(())
    })
    .await;
    held.rollback().await.unwrap();
    making.await.unwrap().unwrap();
    app.settled(file).await;
    assert_eq!(find(&app, "late", "dives").await.len(), 1);
    app.end().await;
}

/// A file that failed has no entry, and its new tree settles as another root.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_gets_its_first_tree_by_a_reprocess_enters_the_indexes_that_cover_it() {
    let app = TestApp::start().await;
    let folder = app.create("Folder", "", None).await.id;
    let new: NewIndex = serde_json::from_value(json!({"name": "some", "members": [folder]})).unwrap();
    app.client.create_index(Json(new)).await.unwrap();
    pause(&app, "probe").await;
    let upload = FileUpload::from_bytes("otters.md", "# Kingfisher\n\nIt dives.\n", None);
    let query = UploadQuery { parent_id: Some(folder), ..UploadQuery::default() };
    let file = app.client.upload_file(query, upload).await.unwrap().document_id;
    app.client.cancel_ingest(DocumentPath { id: file }).await.unwrap();
    assert_eq!(app.settled(file).await.settled, Settled::Failed);
    resume(&app, "probe").await;
    app.client.reprocess_file(DocumentPath { id: file }, OptionalJson(None)).await.unwrap();
    until("the new tree", async || (app.settled(file).await.settled == Settled::Settled).then_some(())).await;
    let whole = find(&app, "some", "otters").await;
    assert!(whole.contains(&("file".to_owned(), "otters.md".to_owned())), "{whole:?}");
    assert_eq!(whole, find(&app, "default", "otters").await);
    app.end().await;
}

/// Of two containers that are finished at different moments none keeps the other from settling.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn containers_that_settle_one_after_the_other_are_all_settled_with_their_titles() {
    let app = TestApp::start().await;
    let blank: Vec<(String, String)> = (1..=30).map(|n| (format!("bittern {n}.txt"), " ".repeat(n))).collect();
    let parts: Vec<(&str, &String)> = blank.iter().map(|(name, text)| (name.as_str(), text)).collect();
    let file = app.upload_bytes("birds.zip", crate::members::archive(&parts)).await.unwrap().document_id;
    assert_eq!(app.settled(file).await.settled, Settled::Settled);
    assert_eq!(find(&app, "default", "bittern").await.len(), 10, "as many as were asked for");
    assert_eq!(find(&app, "default", "birds").await, set(&[("file", "birds.zip")]));
    app.end().await;
}

/// The build of an index has looked at a file when another tree takes its place.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_is_replaced_while_an_index_is_built_is_looked_at_again() {
    let app = TestApp::start().await;
    let file = app.upload_bytes("otters.md", "# Kingfisher\n\nIt dives.\n").await.unwrap().document_id;
    app.settled(file).await;
    let late = make_index(&app).await;
    pause(&app, "embed").await;
    app.client.reprocess_file(DocumentPath { id: file }, OptionalJson(None)).await.unwrap();
    until_waits(&app, "embed").await;
    // The swap waits for the file; meanwhile the index is as one that was made just now, whose build has looked at the file.
    let mut held = app.pool.begin().await.unwrap();
    sqlx::query("SELECT FROM documents WHERE id = $1 FOR UPDATE").bind(file).execute(&mut *held).await.unwrap();
    resume(&app, "embed").await;
    until("the new tree to settle", async || {
        let settled = "SELECT EXISTS (SELECT FROM generations g JOIN documents d ON d.id = g.generation_id WHERE d.settled = 'settled')";
        sqlx::query_scalar::<_, bool>(settled).fetch_one(&app.pool).await.unwrap().then_some(())
    })
    .await;
    let held_by_it: Vec<DocumentId> =
        sqlx::query_scalar("SELECT document_id FROM search_index_entries WHERE index_id = $1")
            .bind(late)
            .fetch_all(&mut *held)
            .await
            .unwrap();
    bm25::remove(&mut held, Some(IndexId(late)), &held_by_it).await.unwrap();
    sqlx::query("UPDATE search_indexes SET built_to = $2, builds = builds + 1, replaces = true WHERE id = $1")
        .bind(late)
        .bind(file)
        .execute(&mut *held)
        .await
        .unwrap();
    held.commit().await.unwrap();
    until("the file and its new tree in the index", async || {
        let found = find(&app, "late", "otters").await;
        (!found.is_empty() && found == find(&app, "default", "otters").await).then_some(())
    })
    .await;
    app.end().await;
}
