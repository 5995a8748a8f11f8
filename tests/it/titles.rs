//! The titles above chunks: what is found by them, what is shown of them, and what becomes of a change.
mod following;

use crate::{
    edits::{get, patched},
    principals::{grant, someone},
    support::{TestApp, Wish, document, invariants, settings, until, until_a_statement_waits},
};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use svc::settings::model_settings;
use svc_client::{
    Client, Code, FileUpload, Json, OptionalJson, Remote,
    wire::{
        ArchivePart, ArchiveQuery, Bm25Search, DocumentPath, DocumentResponse, EmbedOptions, Facet, FacetBy,
        GrantRight, ImportedArchive, IndexChange, IndexPath, IndexState, NewDocument, PageQuery, SnippetOf, SortBy,
        TaskPath, TaskTypePath, TotalIs, UploadQuery, WaitQuery,
    },
};
use svc_models::Engine;

/// A file with a section of several chunks, of which only the first has the heading in its text.
fn lamps() -> String {
    let sentence = |n: usize| format!("Keeper number {n} polished the brass each evening before the ships came home. ");
    let text: String = (0..12).map(sentence).collect();
    format!("# Zanzibar\n\n{text}\n\n# Bread\n\nYeast makes the dough rise.\n")
}

async fn upload(app: &TestApp, name: &str, text: String) -> (i64, Vec<DocumentResponse>) {
    let options = json!({"structure": {"max_tokens": 30}});
    let file = FileUpload::from_bytes(name, text, Some(options));
    let id = app.client.upload_file(UploadQuery::default(), file).await.unwrap().document_id;
    app.settled(id).await;
    (id, app.subtree(id).await)
}

fn section(tree: &[DocumentResponse], title: &str) -> i64 {
    tree.iter().find(|node| node.usetype == "section" && node.title == title).unwrap().id
}

fn chunks(tree: &[DocumentResponse], under: i64) -> BTreeSet<i64> {
    let is_under = |node: &&DocumentResponse| node.usetype == "chunk" && node.path.contains(&under);
    tree.iter().filter(is_under).map(|node| node.id).collect()
}

/// The chunks and tables that BM25 finds.
async fn found(client: &Client<Remote>, query: &str) -> BTreeSet<i64> {
    found_in(client, "default", query).await
}

/// The chunks and tables that an index finds.
async fn found_in(client: &Client<Remote>, index: &str, query: &str) -> BTreeSet<i64> {
    let (index, usetype) = (Some(index.to_owned()), Some(vec!["chunk".to_owned(), "table".to_owned()]));
    let search = Bm25Search { index, limit: 100, usetype, ..Bm25Search::new(query) };
    client.search_bm25(Json(search)).await.unwrap().results.iter().map(|result| result.document.id).collect()
}

async fn vector(app: &TestApp, id: i64) -> String {
    let query = "SELECT embed::text FROM document_vectors WHERE document_id = $1";
    sqlx::query_scalar(query).bind(id).fetch_one(&app.pool).await.unwrap()
}

/// Makes a chunk of a caller's own, and waits until it is found.
async fn own_chunk(app: &TestApp, content: &str, parent_id: i64) -> i64 {
    let new =
        NewDocument { usetype: Some("chunk".to_owned()), parent_id: Some(parent_id), ..document("A part", content) };
    let wait = WaitQuery { wait: true, ..WaitQuery::default() };
    app.client.create_document(wait, Json(new)).await.unwrap().document.id
}

async fn embed(app: &TestApp, id: i64) -> Option<Value> {
    app.client.read_evidence(DocumentPath { id }).await.unwrap().evidence.get("embed").cloned()
}

fn of_type(name: &str) -> TaskTypePath {
    TaskTypePath { task_type: name.to_owned() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chunk_is_found_by_the_titles_above_it_and_shows_none_of_them() {
    let app = TestApp::start().await;
    let (file, tree) = upload(&app, "Lighthouses.md", lamps()).await;
    let zanzibar = section(&tree, "Zanzibar");
    let under = chunks(&tree, zanzibar);
    assert!(under.len() > 3, "{tree:?}");
    assert_eq!(found(&app.client, "zanzibar").await, under);
    assert_eq!(found(&app.client, "lighthouses").await, chunks(&tree, file));
    let body = Bm25Search {
        limit: 100,
        usetype: Some(vec!["chunk".to_owned()]),
        snippets: Some(true),
        ..Bm25Search::new("zanzibar lighthouses")
    };
    for result in app.client.search_bm25(Json(body)).await.unwrap().results {
        let (snippet, document) = (result.snippet.unwrap(), result.document);
        assert_eq!(snippet.of, SnippetOf::Content);
        assert!(document.content.contains(snippet.text.trim()), "{snippet:?} is not in {}", document.content);
        assert!(!document.content.contains("Lighthouses"), "{}", document.content);
    }
    let last = *under.last().unwrap();
    assert_eq!(embed(&app, last).await, Some(json!({"windows": 1, "titles": 2})));
    let first = *under.first().unwrap();
    assert_eq!(embed(&app, first).await, Some(json!({"windows": 1, "titles": 1})), "it says its heading itself");
    // A document that lies under another one is no part of it.
    let inside = app.create("A note", "The heron waits.", Some(file)).await.id;
    let all = app.client.search_bm25(Json(Bm25Search { limit: 100, ..Bm25Search::new("lighthouses") })).await.unwrap();
    assert!(all.results.iter().all(|result| result.document.id != inside), "{all:?}");
    assert_eq!(embed(&app, inside).await, None);
    // A chunk that a caller makes is.
    let part = own_chunk(&app, "A heron of its own.", inside).await;
    assert_eq!(found(&app.client, "note").await, BTreeSet::from([part]));
    invariants::check_drained(&app.pool).await;
    app.end().await;

    let off = TestApp::with(Wish { settings: &[("SVC_TITLE_PATHS", "false")], ..Wish::default() }).await;
    svc::app::weigh_indexes(&off.pool, &off.service.settings).await.unwrap();
    let (_, tree) = upload(&off, "Lighthouses.md", lamps()).await;
    let under = chunks(&tree, section(&tree, "Zanzibar"));
    assert_eq!(found(&off.client, "zanzibar").await, BTreeSet::from([*under.first().unwrap()]), "by its heading");
    assert_eq!(found(&off.client, "lighthouses").await, BTreeSet::new());
    assert_eq!(embed(&off, *under.last().unwrap()).await, None);
    off.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_renamed_is_found_by_its_old_title_until_it_is_by_the_new_one() {
    let app = TestApp::start().await;
    let (file, tree) = upload(&app, "Lighthouses.md", lamps()).await;
    let zanzibar = section(&tree, "Zanzibar");
    let (under, all) = (chunks(&tree, zanzibar), chunks(&tree, file));
    let last = *under.last().unwrap();
    let before = [vector(&app, last).await, vector(&app, zanzibar).await, vector(&app, file).await];
    app.client.pause_task_type(of_type("embed:titles")).await.unwrap();
    patched(&app, zanzibar, json!({"title": "Madagascar"})).await;
    patched(&app, file, json!({"title": "Beacons.md"})).await;
    // Another change waits for the same task.
    patched(&app, file, json!({"title": "Towers.md"})).await;
    let waiting = "SELECT count(*) FROM task_queue WHERE task_type = 'embed:titles' AND NOT final";
    assert_eq!(sqlx::query_scalar::<_, i64>(waiting).fetch_one(&app.pool).await.unwrap(), 2);
    assert_eq!(found(&app.client, "zanzibar").await, under, "nothing is lost meanwhile");
    assert_eq!(found(&app.client, "lighthouses").await, all);
    app.client.resume_task_type(of_type("embed:titles")).await.unwrap();
    until("the new titles to be found", async || {
        let [madagascar, towers] = [found(&app.client, "madagascar").await, found(&app.client, "towers").await];
        (madagascar == under && towers == all).then_some(())
    })
    .await;
    invariants::check_drained(&app.pool).await;
    let first = BTreeSet::from([*under.first().unwrap()]);
    assert_eq!(found(&app.client, "zanzibar").await, first, "its text has the old heading");
    assert_eq!(found(&app.client, "lighthouses beacons").await, BTreeSet::new());
    let after = [vector(&app, last).await, vector(&app, zanzibar).await, vector(&app, file).await];
    assert!(before.iter().zip(&after).all(|(before, after)| before != after), "also the sums");
    // A title above what is changed meanwhile is no reason to lose the change.
    patched(&app, last, json!({"content": "Every zeppelin has a mooring mast."})).await;
    app.settled(file).await;
    assert_eq!(found(&app.client, "zeppelin").await, BTreeSet::from([last]));
    assert!(found(&app.client, "madagascar").await.contains(&last));
    assert_eq!(get(&app, last).await.content, "Every zeppelin has a mooring mast.");
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_file_is_embedded_anew_in_several_tasks() {
    let app = TestApp::start().await;
    let text: String =
        (0..300).map(|n| format!("# Part {n}\n\nThe keeper of lamp {n} waits for the ship.\n\n")).collect();
    let (file, tree) = upload(&app, "Lighthouses.md", text).await;
    let all = chunks(&tree, file);
    assert!(all.len() >= 300, "{}", all.len());
    patched(&app, file, json!({"title": "Beacons.md"})).await;
    until("the last task", async || {
        let left = "SELECT count(*) FROM task_queue WHERE NOT final";
        (sqlx::query_scalar::<_, i64>(left).fetch_one(&app.pool).await.unwrap() == 0).then_some(())
    })
    .await;
    let tasks = "SELECT count(*) FROM task_queue WHERE task_type = 'embed:titles' AND status = 'completed'";
    assert!(sqlx::query_scalar::<_, i64>(tasks).fetch_one(&app.pool).await.unwrap() > 1, "one is not enough");
    let indexed = |title: &'static str| {
        let query = "SELECT count(DISTINCT e.document_id) FROM search_index_entries e JOIN search_term_stats s ON s.index_id = e.index_id
                      WHERE s.term = $1 AND s.term_id = ANY(e.terms)";
        sqlx::query_scalar::<_, i64>(query).bind(title).fetch_one(&app.pool)
    };
    assert_eq!(indexed("beacon").await.unwrap(), all.len() as i64 + 1, "the chunks and the file");
    assert_eq!(indexed("lighthous").await.unwrap(), 0);
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_part_is_not_found_by_a_title_that_its_readers_may_not_read() {
    let app = TestApp::start().await;
    let (file, tree) = upload(&app, "Lighthouses.md", lamps()).await;
    let zanzibar = section(&tree, "Zanzibar");
    let under = chunks(&tree, zanzibar);
    app.client.protect_document(DocumentPath { id: file }).await.unwrap();
    app.client.pause_task_type(of_type("embed:titles")).await.unwrap();
    let one = someone(&app, "one").await;
    grant(&app, &one, zanzibar, GrantRight::Read).await;
    assert_eq!(found(&one.client, "lighthouses").await, BTreeSet::new(), "not for a moment");
    let with_vector = async || -> i64 {
        let query = "SELECT count(*) FROM document_vectors WHERE document_id = ANY($1)";
        let closed: Vec<i64> = under.iter().copied().chain([zanzibar]).collect();
        sqlx::query_scalar(query).bind(closed).fetch_one(&app.pool).await.unwrap()
    };
    assert_eq!(with_vector().await, 0, "nor has a vector anything of the title");
    app.client.resume_task_type(of_type("embed:titles")).await.unwrap();
    until("the section to be found by its own title", async || {
        (found(&one.client, "zanzibar").await == under).then_some(())
    })
    .await;
    invariants::check_drained(&app.pool).await;
    assert_eq!(with_vector().await, under.len() as i64 + 1);
    assert_eq!(found(&one.client, "lighthouses").await, BTreeSet::new());
    assert_eq!(embed(&app, *under.last().unwrap()).await, Some(json!({"windows": 1, "titles": 1})));
    assert!(!found(&app.client, "lighthouses").await.is_empty(), "the rest of the file has its name");
    // Once the section is as open as the file again, so is the title.
    app.client.pause_task_type(of_type("embed:titles")).await.unwrap();
    app.client.unprotect_document(DocumentPath { id: zanzibar }).await.unwrap();
    assert_eq!(found(&app.client, "zanzibar").await, under, "nothing is lost meanwhile");
    app.client.resume_task_type(of_type("embed:titles")).await.unwrap();
    until("all to be found by the name of the file", async || {
        (found(&app.client, "lighthouses").await == chunks(&tree, file)).then_some(())
    })
    .await;
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_search_tells_of_chunks_that_wait_for_their_titles() {
    let app = TestApp::start().await;
    let (file, tree) = upload(&app, "Lighthouses.md", lamps()).await;
    let (zanzibar, bread) = (section(&tree, "Zanzibar"), section(&tree, "Bread"));
    let waiting = chunks(&tree, zanzibar).len() as i64;
    let elsewhere = app.create("Elsewhere", "The heron waits.", None).await.id;
    let one = someone(&app, "one").await;
    grant(&app, &one, elsewhere, GrantRight::Read).await;
    let state = async |client: &Client<Remote>, parent_id: Option<i64>| {
        let search = Bm25Search { parent_id, ..Bm25Search::new("brass") };
        client.search_bm25(Json(search)).await.unwrap().scope_state
    };
    app.client.pause_task_type(of_type("embed:titles")).await.unwrap();
    app.client.protect_document(DocumentPath { id: zanzibar }).await.unwrap();
    // What else is in flight outside of a guard, should the sums above be made anew meanwhile.
    let unfinished = async |guard: i64| -> i64 {
        let unfinished = "SELECT count(*) FROM documents WHERE settled = 'in_flight' AND guard <> $1";
        sqlx::query_scalar(unfinished).bind(guard).fetch_one(&app.pool).await.unwrap()
    };
    until("the chunks to be told of", async || {
        (state(&app.client, None).await.in_flight == waiting + unfinished(-1).await).then_some(())
    })
    .await;
    until("who may not read them to be told of others", async || {
        (state(&one.client, None).await.in_flight == unfinished(zanzibar).await).then_some(())
    })
    .await;
    let last = *chunks(&tree, zanzibar).last().unwrap();
    for (parent_id, expected) in [(zanzibar, waiting), (last, 1), (bread, 0)] {
        assert_eq!(state(&app.client, Some(parent_id)).await.in_flight, expected, "{parent_id}");
    }
    let task = "SELECT id FROM task_queue WHERE task_type = 'embed:titles' AND NOT final";
    let id: i64 = sqlx::query_scalar(task).fetch_one(&app.pool).await.unwrap();
    app.client.cancel_task(TaskPath { id }).await.unwrap();
    let ended = state(&app.client, Some(last)).await;
    assert_eq!((ended.in_flight, ended.failed), (0, 1), "nobody embeds it any more");
    app.client.retry_task(TaskPath { id }).await.unwrap();
    let again = state(&app.client, Some(last)).await;
    assert_eq!((again.in_flight, again.failed), (1, 0));
    app.client.resume_task_type(of_type("embed:titles")).await.unwrap();
    until("nothing to wait", async || (state(&app.client, Some(file)).await.in_flight == 0).then_some(())).await;
    assert_eq!(found(&app.client, "zanzibar").await, chunks(&tree, zanzibar));
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn titles_weigh_as_an_index_says() {
    let app = TestApp::start().await;
    let titled = app.create("Wombat", "It digs in the sand of the hills at night.", None).await.id;
    let told = app.create("Marsupials", "The wombat digs, and a wombat digs deep.", None).await.id;
    let (_, tree) = upload(&app, "Lighthouses.md", lamps()).await;
    let under = chunks(&tree, section(&tree, "Zanzibar"));
    let default = app.client.list_indexes(PageQuery::default()).await.unwrap().indexes.remove(0);
    assert_eq!((default.title_weight, default.title_paths), (1, true));
    let change = IndexChange { title_weight: Some(3), ..IndexChange::default() };
    let refused = app.client.update_index(IndexPath { id: default.id }, Json(change)).await.unwrap_err();
    assert!(refused.code == Code::Conflict && refused.detail.contains("SVC_BM25_TITLE_WEIGHT"), "{refused}");
    let refused = app.raw("POST", "/indexes").json(&json!({"name": "x", "title_weight": 11})).send().await.unwrap();
    assert_eq!(refused.status(), 422);

    let new = json!({"name": "titles", "title_weight": 10, "title_paths": false});
    let made = app.client.create_index(Json(serde_json::from_value(new).unwrap())).await.unwrap();
    assert_eq!((made.title_weight, made.title_paths, made.state), (10, false, IndexState::Ready));
    let search = async |query: &str| -> Vec<i64> {
        let search = Bm25Search { index: Some("titles".to_owned()), limit: 100, ..Bm25Search::new(query) };
        let found = app.client.search_bm25(Json(search)).await.unwrap().results.into_iter();
        found.map(|result| result.document).filter(|node| node.usetype != "section").map(|node| node.id).collect()
    };
    assert_eq!(search("wombat").await, [titled, told], "ten times in a title is more than twice in a text");
    assert_eq!(search("zanzibar").await, [*under.first().unwrap()], "by its heading");
    let path = IndexPath { id: made.id };
    let change = IndexChange { title_weight: Some(1), title_paths: Some(true), ..IndexChange::default() };
    let changed = app.client.update_index(path, Json(change)).await.unwrap();
    assert_eq!((changed.title_weight, changed.title_paths, changed.state), (1, true, IndexState::Ready));
    assert_eq!(search("wombat").await, [told, titled]);
    assert_eq!(search("zanzibar").await.into_iter().collect::<BTreeSet<_>>(), under);
    let change = IndexChange { title_weight: Some(0), ..IndexChange::default() };
    app.client.update_index(path, Json(change)).await.unwrap();
    assert_eq!(search("wombat").await, [told], "titles do not count");
    // What comes later is indexed in the same way.
    app.create("Wombats again", "Nothing of that name is in here.", None).await;
    assert_eq!(search("wombat").await, [told]);
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_that_is_built_while_a_title_changes_has_the_new_title() {
    let app = TestApp::start().await;
    // The build locks the documents by their ids, so that it waits for this one before it holds any of the file's.
    let lowest = app.create("A note", "The heron waits.", None).await.id;
    let (file, tree) = upload(&app, "Lighthouses.md", lamps()).await;
    let all = chunks(&tree, file);
    let new = json!({"name": "headed", "title_paths": true});
    let headed = app.client.create_index(Json(serde_json::from_value(new).unwrap())).await.unwrap().id;
    assert_eq!(found_in(&app.client, "headed", "lighthouses").await, all);
    app.client.pause_task_type(of_type("embed:titles")).await.unwrap();
    let mut held = app.pool.begin().await.unwrap();
    let lock = "SELECT id FROM documents WHERE id = $1 FOR NO KEY UPDATE";
    sqlx::query(lock).bind(lowest).execute(&mut *held).await.unwrap();
    let building = tokio::spawn({
        let client = app.client.clone();
        async move { client.refresh_index(IndexPath { id: headed }).await }
    });
    until_a_statement_waits(&app.pool).await;
    patched(&app, file, json!({"title": "Beacons.md"})).await;
    held.rollback().await.unwrap();
    building.await.unwrap().unwrap();
    until("the index to be built", async || {
        let index = app.client.read_index(IndexPath { id: headed }).await.unwrap();
        (index.state == IndexState::Ready).then_some(())
    })
    .await;
    assert_eq!(found_in(&app.client, "headed", "beacons").await, all);
    assert_eq!(found_in(&app.client, "headed", "lighthouses").await, BTreeSet::new());
    app.client.resume_task_type(of_type("embed:titles")).await.unwrap();
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_whose_titles_count_otherwise_finds_what_it_found_until_it_is_built() {
    let app = TestApp::start().await;
    let (file, tree) = upload(&app, "Lighthouses.md", lamps()).await;
    let all = chunks(&tree, file);
    let weighty = settings(&[("SVC_BM25_TITLE_WEIGHT", "3")]);
    // Nothing of it is built before the search.
    let mut held = app.pool.begin().await.unwrap();
    sqlx::query("SELECT id FROM documents FOR NO KEY UPDATE").execute(&mut *held).await.unwrap();
    svc::app::weigh_indexes(&app.pool, &weighty).await.unwrap();
    let default = async || app.client.list_indexes(PageQuery::default()).await.unwrap().indexes.remove(0);
    let building = default().await;
    assert_eq!((building.title_weight, building.state), (3, IndexState::Building));
    assert_eq!(found(&app.client, "lighthouses").await, all);
    let counted = async |query: &str| {
        let facets = Some(vec![Facet::by(FacetBy::Usetype)]);
        let search = Bm25Search { facets, sort: Some(SortBy::Title), ..Bm25Search::new(query) };
        let found = app.client.search_bm25(Json(search)).await.unwrap();
        [found.total_is, found.facets.unwrap().counted_is, found.sorted.unwrap().count_is]
    };
    for query in ["lighthouses", "unwritten"] {
        assert_eq!(counted(query).await, [TotalIs::AtLeast; 3], "the index may lack some that match");
    }
    held.rollback().await.unwrap();
    let built = until("the index to be built", async || {
        let index = default().await;
        (index.state == IndexState::Ready).then_some(index)
    })
    .await;
    assert_eq!(built.title_weight, 3);
    assert_eq!(found(&app.client, "lighthouses").await, all);
    for query in ["lighthouses", "unwritten"] {
        assert_eq!(counted(query).await, [TotalIs::Exact; 3]);
    }
    let counted = "SELECT max(tf) FROM search_index_entries e JOIN search_term_stats s ON s.index_id = e.index_id
                     CROSS JOIN LATERAL unnest(e.terms, e.tfs) AS t(term_id, tf)
                    WHERE e.index_id = $1 AND s.term = 'lighthous' AND s.term_id = t.term_id";
    let counted: Option<i16> = sqlx::query_scalar(counted).bind(built.id).fetch_one(&app.pool).await.unwrap();
    assert_eq!(counted, Some(3));
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_evidence_of_a_vector_follows_what_it_was_made_of() {
    let app = TestApp::start().await;
    let (file, tree) = upload(&app, "Lighthouses.md", lamps()).await;
    let zanzibar = section(&tree, "Zanzibar");
    let last = *chunks(&tree, zanzibar).last().unwrap();
    assert_eq!(embed(&app, last).await, Some(json!({"windows": 1, "titles": 2})));
    app.client.pause_task_type(of_type("embed:titles")).await.unwrap();
    patched(&app, file, json!({"title": "0012.md"})).await;
    patched(&app, zanzibar, json!({"title": "Page 7"})).await;
    let path = DocumentPath { id: last };
    app.client.embed_document(path, EmbedOptions::default(), OptionalJson(None)).await.unwrap();
    assert_eq!(embed(&app, last).await, None, "no title is left that tells something");
    app.client.resume_task_type(of_type("embed:titles")).await.unwrap();
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chunk_with_room_for_the_nearest_title_alone_has_it_however_it_is_embedded() {
    let small = settings(&[("SVC_EMBEDDING_DOC_WINDOW", "48"), ("SVC_EMBEDDING_THREADS", "1")]);
    let engine = Engine::load(&model_settings(&small)).unwrap();
    let app = TestApp::with(Wish { engine: Some(engine), ..Wish::default() }).await;
    let name = format!("{}.md", "the lights along the northern coast ".repeat(6).trim());
    let (file, tree) = upload(&app, &name, lamps()).await;
    let zanzibar = section(&tree, "Zanzibar");
    let last = *chunks(&tree, zanzibar).last().unwrap();
    let shown = async || -> Vec<f32> { serde_json::from_str(&vector(&app, last).await).unwrap() };
    let (before, of_nearest) = (shown().await, Some(json!({"windows": 1, "titles": 1})));
    assert_eq!(embed(&app, last).await, of_nearest);
    let path = DocumentPath { id: last };
    app.client.embed_document(path, EmbedOptions::default(), OptionalJson(None)).await.unwrap();
    app.settled(file).await;
    assert_eq!(embed(&app, last).await, of_nearest);
    let cosine: f32 = before.iter().zip(shown().await).map(|(before, after)| before * after).sum();
    assert!(cosine > 0.999, "{cosine}");
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_title_concerns_only_the_chunks_above_which_it_stands() {
    let app = TestApp::start().await;
    let (_, tree) = upload(&app, "Lighthouses.md", lamps()).await;
    let zanzibar = section(&tree, "Zanzibar");
    let under = chunks(&tree, zanzibar);
    // It is no part of the file, so that no title of the file stands above its chunk.
    let note = app.create("A note", "The heron waits.", Some(zanzibar)).await.id;
    let inside = own_chunk(&app, "A heron of its own.", note).await;
    let version = async |id: i64| -> String {
        let query = "SELECT xmin::text FROM document_vectors WHERE document_id = $1";
        sqlx::query_scalar(query).bind(id).fetch_one(&app.pool).await.unwrap()
    };
    let before = version(inside).await;
    patched(&app, zanzibar, json!({"title": "Madagascar"})).await;
    until("the new title to be found", async || (found(&app.client, "madagascar").await == under).then_some(())).await;
    invariants::check_drained(&app.pool).await;
    assert_eq!(version(inside).await, before, "it is not embedded for nothing");
    app.client.pause_task_type(of_type("embed:titles")).await.unwrap();
    app.client.protect_document(DocumentPath { id: zanzibar }).await.unwrap();
    assert_eq!(found(&app.client, "note").await, BTreeSet::from([inside]), "nor lost meanwhile");
    app.client.resume_task_type(of_type("embed:titles")).await.unwrap();
    invariants::check_drained(&app.pool).await;
    assert_eq!(found(&app.client, "note").await, BTreeSet::from([inside]));
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sums_above_a_chunk_that_is_closed_follow_its_vector() {
    let app = TestApp::start().await;
    let (file, tree) = upload(&app, "Lighthouses.md", lamps()).await;
    let zanzibar = section(&tree, "Zanzibar");
    let last = *chunks(&tree, zanzibar).last().unwrap();
    let vectors = async || [vector(&app, last).await, vector(&app, zanzibar).await, vector(&app, file).await];
    let before = vectors().await;
    app.client.protect_document(DocumentPath { id: last }).await.unwrap();
    until("the chunk to be embedded without titles", async || embed(&app, last).await.is_none().then_some(())).await;
    invariants::check_drained(&app.pool).await;
    assert!(before.iter().zip(&vectors().await).all(|(before, after)| before != after));
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_imported_is_found_by_the_titles_above_it() {
    let app = TestApp::start().await;
    let text =
        "# Zanzibar\n\nEach lamp has a height.\n\n| Lamp | Height |\n| --- | --- |\n| north | 12 |\n| south | 15 |\n";
    let file = app.upload_bytes("Lighthouses.md", text).await.unwrap().document_id;
    app.settled(file).await;
    let tree = app.subtree(file).await;
    let is_text = |node: &&DocumentResponse| ["chunk", "table"].contains(&node.usetype.as_str());
    let texts: BTreeSet<i64> = tree.iter().filter(is_text).map(|node| node.id).collect();
    assert!(tree.iter().any(|node| node.usetype == "table") && texts.len() > 1, "{tree:?}");
    assert_eq!(found(&app.client, "lighthouses").await, texts);
    let all = ArchiveQuery { parent_id: Some(file), ..ArchiveQuery::default() };
    let documents = app.client.export_documents(all).await.unwrap().documents;
    app.client.delete_document(DocumentPath { id: file }).await.unwrap();
    let of = ImportedArchive { archive: "lighthouses".to_owned(), parent_id: None };
    let imported = app.client.import_documents(of, Json(ArchivePart { documents })).await.unwrap();
    assert_eq!(imported.queued, 0, "nothing is embedded again");
    let is_text = imported.documents.iter().filter(|document| texts.contains(&document.id));
    let new: BTreeSet<i64> = is_text.map(|document| document.document_id).collect();
    assert_eq!(found(&app.client, "lighthouses").await, new);
    assert_eq!(found(&app.client, "zanzibar").await, new);
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_table_with_chunks_of_its_own_has_no_titles_that_nobody_would_renew() {
    let app = TestApp::start().await;
    let rows: String = (0..120).map(|row| format!("| keeper {row} | {row} |\n")).collect();
    let text = format!("# Zanzibar\n\nEach has a number.\n\n| Keeper | Lamp |\n| --- | --- |\n{rows}\n");
    let file = app.upload_bytes("Lighthouses.md", text).await.unwrap().document_id;
    app.settled(file).await;
    let tree = app.subtree(file).await;
    let table = tree.iter().find(|node| node.usetype == "table").unwrap().id;
    let all = chunks(&tree, file);
    assert!(chunks(&tree, table).len() > 1, "{tree:?}");
    let default = app.client.list_indexes(PageQuery::default()).await.unwrap().indexes.remove(0).id;
    app.client.refresh_index(IndexPath { id: default }).await.unwrap();
    until("the index to be built", async || {
        let index = app.client.read_index(IndexPath { id: default }).await.unwrap();
        (index.state == IndexState::Ready).then_some(())
    })
    .await;
    assert_eq!(found(&app.client, "lighthouses").await, all);
    patched(&app, file, json!({"title": "Beacons.md"})).await;
    until("the new title to be found", async || (found(&app.client, "beacons").await == all).then_some(())).await;
    assert_eq!(found(&app.client, "lighthouses").await, BTreeSet::new());
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_embedded_with_titles_loses_them_where_it_is_closed_though_titles_are_left_out_by_now() {
    let app = TestApp::start().await;
    let (_, tree) = upload(&app, "Lighthouses.md", lamps()).await;
    let zanzibar = section(&tree, "Zanzibar");
    let under: Vec<i64> = chunks(&tree, zanzibar).into_iter().collect();
    let wish = Wish {
        settings: &[("SVC_TITLE_PATHS", "false")],
        database: Some(app.options.clone()),
        no_worker: true,
        ..Wish::default()
    };
    let later = TestApp::with(wish).await;
    svc::app::weigh_indexes(&later.pool, &later.service.settings).await.unwrap();
    // Only then nothing but the vectors has the titles.
    until("every index to be without titles", async || {
        let with_titles = "SELECT EXISTS (SELECT FROM search_indexes
                                           WHERE built_to IS NOT NULL OR (config ->> 'title_paths')::boolean)";
        let with_titles: bool = sqlx::query_scalar(with_titles).fetch_one(&app.pool).await.unwrap();
        (!with_titles).then_some(())
    })
    .await;
    later.client.pause_task_type(of_type("embed:titles")).await.unwrap();
    let with_vector = async || -> i64 {
        let query = "SELECT count(*) FROM document_vectors WHERE document_id = ANY($1)";
        sqlx::query_scalar(query).bind(&under).fetch_one(&app.pool).await.unwrap()
    };
    assert_eq!(with_vector().await, under.len() as i64);
    later.client.protect_document(DocumentPath { id: zanzibar }).await.unwrap();
    assert_eq!(with_vector().await, 0);
    assert_eq!(found(&later.client, "lighthouses").await.intersection(&chunks(&tree, zanzibar)).count(), 0);
    later.client.resume_task_type(of_type("embed:titles")).await.unwrap();
    invariants::check_drained(&app.pool).await;
    assert_eq!(with_vector().await, under.len() as i64);
    later.end().await;
    app.end().await;
}
