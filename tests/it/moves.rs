//! Moves of subtrees, and what holds after any changes of the tree.
use crate::{
    access::Random,
    edits::{patch, patched},
    principals::{grant, someone},
    support::{TestApp, Wish, document, insert, invariants, place, sample, until, until_a_statement_waits},
};
use serde_json::json;
use std::collections::BTreeSet;
use svc::store::{
    documents::delete_subtrees,
    reindex::{self, Wanted},
    transaction,
    vectors::Index,
};
use svc_client::{
    Code, FileUpload, Json, Located, OptionalJson,
    wire::{
        Bm25Search, DocumentPath, EmbedQuery, GrantRight, LinkPath, NewDocument, NewLink, PageQuery, ReprocessRequest,
        Settled, UploadQuery, WaitQuery,
    },
};

async fn add(app: &TestApp, title: &str, parent_id: Option<i64>) -> i64 {
    let new = NewDocument { parent_id, ..document(title, "The heron waits by the water.") };
    app.client.create_document(WaitQuery::default(), Json(new)).await.unwrap().id
}

async fn path(app: &TestApp, id: i64) -> Vec<i64> {
    let read = app.client.read_document(DocumentPath { id }, EmbedQuery::default()).await.unwrap();
    read.value().unwrap().path
}

async fn total(app: &TestApp, id: i64) -> i64 {
    app.client.read_frontier(DocumentPath { id }).await.unwrap().nodes_total
}

#[tokio::test]
async fn a_subtree_moves_whole_and_is_listed_parents_first() {
    let app = TestApp::with(Wish { no_worker: true, ..Default::default() }).await;
    let low = add(&app, "low", None).await;
    let leaf = add(&app, "leaf", Some(low)).await;
    let middle = add(&app, "middle", None).await;
    let top = add(&app, "top", None).await;
    // Each parent is younger than its child from here on.
    let moved = patch(&app, low, json!({"parent_id": middle})).await.unwrap().value.document;
    assert_eq!((moved.parent_id, moved.path), (Some(middle), vec![middle]));
    patch(&app, middle, json!({"parent_id": top, "title": "the middle"})).await.unwrap();
    assert_eq!(path(&app, leaf).await, [top, middle, low]);
    let listed: Vec<i64> = app.subtree(top).await.iter().map(|document| document.id).collect();
    assert_eq!(listed, [middle, low, leaf]);
    let mut one_by_one = Vec::new();
    let mut cursor = None;
    loop {
        let query = PageQuery { cursor, limit: Some(1), ..PageQuery::default() };
        let page = app.client.list_subtree(DocumentPath { id: top }, query).await.unwrap();
        one_by_one.extend(page.documents.iter().map(|document| document.id));
        match page.next_cursor {
            Some(next) => cursor = Some(next),
            None => break,
        }
    }
    assert_eq!(one_by_one, listed);
    for (id, parent) in [(top, leaf), (middle, middle), (top, middle)] {
        let refused = patch(&app, id, json!({"parent_id": parent})).await.unwrap_err();
        assert_eq!((refused.code, refused.members["field"].as_str()), (Code::InvalidField, Some("parent_id")));
    }
    assert_eq!(patch(&app, top, json!({"parent_id": 424_242})).await.unwrap_err().code, Code::NotFound);
    patch(&app, low, json!({"parent_id": null})).await.unwrap();
    assert_eq!((path(&app, low).await, path(&app, leaf).await), (vec![], vec![low]));
    assert_eq!(app.subtree(top).await.len(), 1);
    let moves: i64 = sqlx::query_scalar("SELECT count(*) FROM event_outbox WHERE kind = 'document.moved'")
        .fetch_one(&app.pool)
        .await
        .unwrap();
    assert_eq!(moves, 3);
    app.end().await;
}

#[tokio::test]
async fn a_tree_has_a_bottom() {
    let app = TestApp::with(Wish { no_worker: true, ..Default::default() }).await;
    let mut line = vec![add(&app, "top", None).await];
    let deepest = svc::store::places::DEEPEST;
    // Rows that the service would make one by one.
    for _ in 1..deepest {
        let last = *line.last().unwrap();
        let id: i64 = sqlx::query_scalar(
            "WITH made AS (INSERT INTO documents (parent_id, path, title, content, usetype, content_hash, guard)
                           SELECT id, path || id, 't', '', 'markdown', 'sha256:', 0 FROM documents WHERE id = $1 RETURNING id, title, content)
             INSERT INTO document_words SELECT id, to_tsvector(title) FROM made RETURNING document_id",
        )
        .bind(last)
        .fetch_one(&app.pool)
        .await
        .unwrap();
        line.push(id);
    }
    let bottom = *line.last().unwrap();
    let refused = app
        .client
        .create_document(WaitQuery::default(), Json(NewDocument { parent_id: Some(bottom), ..document("t", "") }))
        .await
        .unwrap_err();
    assert_eq!((refused.code, refused.members["limit"].as_u64()), (Code::InvalidField, Some(deepest as u64)));
    let query = UploadQuery { parent_id: Some(bottom), ..UploadQuery::default() };
    let refused = app.client.upload_file(query, FileUpload::from_bytes("x.txt", "x", None)).await.unwrap_err();
    assert_eq!(refused.code, Code::InvalidField);
    let pair = add(&app, "pair", None).await;
    add(&app, "child", Some(pair)).await;
    let above = line[deepest - 2];
    assert_eq!(patch(&app, pair, json!({"parent_id": above})).await.unwrap_err().code, Code::InvalidField);
    patch(&app, pair, json!({"parent_id": line[deepest - 3]})).await.unwrap();
    assert_eq!(app.subtree(line[0]).await.len(), deepest + 1);
    app.end().await;
}

#[tokio::test]
async fn a_move_needs_the_right_to_write_at_both_ends_and_takes_the_guard_of_its_new_place() {
    let app = TestApp::with(Wish { no_worker: true, ..Default::default() }).await;
    let (one, other) = (someone(&app, "one").await, someone(&app, "other").await);
    let (mine, theirs, open) =
        (add(&app, "mine", None).await, add(&app, "theirs", None).await, add(&app, "open", None).await);
    let node = add(&app, "node", Some(mine)).await;
    let inner = add(&app, "inner", Some(node)).await;
    let nested = add(&app, "nested", Some(inner)).await;
    grant(&app, &one, mine, GrantRight::Write).await;
    grant(&app, &other, theirs, GrantRight::Write).await;
    app.client.protect_document(DocumentPath { id: nested }).await.unwrap();
    let try_move = async |parent: Option<i64>| {
        let change = crate::edits::change(json!({"parent_id": parent}));
        let moved = one.client.update_document(DocumentPath { id: node }, WaitQuery::default(), change).await;
        moved.map(|moved| moved.value.document.path).map_err(|failure| failure.code)
    };
    assert_eq!(try_move(Some(theirs)).await, Err(Code::NotFound), "a closed place looks like a missing one");
    assert_eq!(try_move(Some(open)).await, Err(Code::Forbidden), "it may read that place, and not write there");
    grant(&app, &one, theirs, GrantRight::Read).await;
    assert_eq!(try_move(Some(theirs)).await, Err(Code::Forbidden));
    grant(&app, &one, theirs, GrantRight::Write).await;
    assert_eq!(try_move(Some(theirs)).await, Ok(vec![theirs]));
    let read = async |id| other.client.read_document(DocumentPath { id }, EmbedQuery::default()).await.is_ok();
    assert!(
        read(node).await && read(inner).await && read(nested).await,
        "who reaches the new place reaches what came there"
    );
    invariants::check(&app.pool).await;
    patch(&app, node, json!({"parent_id": open})).await.unwrap();
    assert!(read(inner).await && !read(nested).await, "the root within keeps its own door");
    invariants::check(&app.pool).await;
    patch(&app, nested, json!({"parent_id": mine})).await.unwrap();
    patch(&app, node, json!({"parent_id": nested})).await.unwrap();
    assert!(!read(inner).await);
    app.end().await;

    // Where new roots are their creator's, so is what is moved to the top.
    let settings = [("SVC_DEFAULT_VISIBILITY", "owner")];
    let app = TestApp::with(Wish { no_worker: true, settings: &settings, ..Default::default() }).await;
    let (one, other) = (someone(&app, "one").await, someone(&app, "other").await);
    let top = add(&app, "top", None).await;
    let node = add(&app, "node", Some(top)).await;
    let inner = add(&app, "inner", Some(node)).await;
    grant(&app, &one, top, GrantRight::Write).await;
    let change = crate::edits::change(json!({"parent_id": null}));
    one.client.update_document(DocumentPath { id: node }, WaitQuery::default(), change).await.unwrap();
    for id in [node, inner] {
        let read = EmbedQuery::default();
        assert!(one.client.read_document(DocumentPath { id }, read).await.is_ok());
        assert_eq!(other.client.read_document(DocumentPath { id }, read).await.unwrap_err().code, Code::NotFound);
    }
    app.end().await;
}

/// A move keeps everybody from creating, so that somebody without the right to it could keep everybody waiting.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_may_not_move_is_refused_while_others_create() {
    let app = TestApp::with(Wish { no_worker: true, ..Default::default() }).await;
    let one = someone(&app, "one").await;
    let (open, mine, hidden) =
        (add(&app, "open", None).await, add(&app, "mine", None).await, add(&app, "hidden", None).await);
    let (inner, deep) = (add(&app, "inner", Some(open)).await, add(&app, "deep", Some(mine)).await);
    grant(&app, &one, inner, GrantRight::Write).await;
    grant(&app, &one, mine, GrantRight::Write).await;
    app.client.protect_document(DocumentPath { id: hidden }).await.unwrap();
    let creating = transaction::begin_creating(&app.pool).await.unwrap();
    for (id, parent, code) in [
        (hidden, None, Code::NotFound),
        (424_242, Some(mine), Code::NotFound),
        (open, None, Code::Forbidden),
        (open, Some(mine), Code::Forbidden),
        (deep, Some(hidden), Code::NotFound),
        (deep, Some(open), Code::Forbidden),
        (inner, Some(mine), Code::Forbidden),
    ] {
        let change = crate::edits::change(json!({"parent_id": parent}));
        let refused = tokio::select! {
            answer = one.client.update_document(DocumentPath { id }, WaitQuery::default(), change) => answer.unwrap_err(),
            () = until_a_statement_waits(&app.pool) => panic!("the move of {id} to {parent:?} waits for who creates"),
        };
        assert_eq!(refused.code, code, "{id} to {parent:?}");
    }
    // Whoever may move waits for its turn.
    let change = crate::edits::change(json!({"parent_id": mine, "title": "moved"}));
    let owners = app.client.update_document(DocumentPath { id: inner }, WaitQuery::default(), change);
    let (moved, ()) = tokio::join!(owners, async {
        until_a_statement_waits(&app.pool).await;
        creating.commit().await.unwrap();
    });
    assert_eq!(moved.unwrap().value.document.path, [mine]);
    app.end().await;
}

/// A large file may be created for long, and whoever creates something else does not wait until then because of a move.
#[tokio::test]
async fn documents_are_created_while_a_move_waits_for_a_long_creation() {
    let app = TestApp::with(Wish { no_worker: true, ..Default::default() }).await;
    let (node, shelf) = (add(&app, "node", None).await, add(&app, "shelf", None).await);
    let long = transaction::begin_creating(&app.pool).await.unwrap();
    let (moved, ()) = tokio::join!(patch(&app, node, json!({"parent_id": shelf})), async {
        until_a_statement_waits(&app.pool).await;
        for title in ["one", "two", "three"] {
            add(&app, title, None).await;
        }
        long.commit().await.unwrap();
    });
    assert_eq!(moved.unwrap().value.document.path, [shelf]);
    invariants::check(&app.pool).await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_deleted_while_what_is_above_it_moves_is_counted_nowhere() {
    let app = TestApp::with(Wish { no_worker: true, ..Default::default() }).await;
    let folder = add(&app, "folder", None).await;
    // Nothing waits to be done with it, so that the move meets it only once it writes the row.
    let mut creating = transaction::begin_creating(&app.pool).await.unwrap();
    let inner = insert(&mut creating, Some(folder)).await;
    creating.commit().await.unwrap();
    let file = app.upload_bytes("outer.md", "# Outer\n\nA file.").await.unwrap().document_id;
    let mut deleting = transaction::begin(&app.pool).await.unwrap();
    let doomed = place(&mut deleting, inner.0).await;
    delete_subtrees(&mut deleting, &[doomed]).await.unwrap();
    let (moved, ()) = tokio::join!(patch(&app, folder, json!({"parent_id": file})), async {
        until_a_statement_waits(&app.pool).await;
        deleting.commit().await.unwrap();
    });
    assert_eq!(moved.unwrap().value.document.path, [file]);
    assert_eq!(total(&app, file).await, 2, "the file and the folder");
    invariants::check(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn neither_a_move_nor_an_upload_closes_a_circle_of_what_contains_what() {
    let app = TestApp::with(Wish { no_worker: true, ..Default::default() }).await;
    let (box_, shelf) = (add(&app, "box", None).await, add(&app, "shelf", None).await);
    let inner = add(&app, "inner", Some(box_)).await;
    let board = add(&app, "board", Some(shelf)).await;
    let contain = async |id, target_id| {
        let new = NewLink { target_id, link_type: "contains".into(), score: None, metadata: Default::default() };
        app.client.create_link(DocumentPath { id }, Json(new)).await.map(|link| link.id)
    };
    let link_id = contain(inner, shelf).await.unwrap();
    for parent in [shelf, board] {
        let refused = patch(&app, box_, json!({"parent_id": parent})).await.unwrap_err();
        assert_eq!((refused.code, refused.members["field"].as_str()), (Code::InvalidField, Some("parent_id")));
        assert!(refused.members.contains_key("remedy"), "{refused}");
        assert_eq!(patch(&app, inner, json!({"parent_id": parent})).await.unwrap_err().code, Code::InvalidField);
    }
    // The other way round the shelf is in the box twice, which is no circle.
    patch(&app, shelf, json!({"parent_id": box_})).await.unwrap();
    patch(&app, shelf, json!({"parent_id": null})).await.unwrap();
    app.client.delete_link(LinkPath { id: inner, link_id }).await.unwrap();
    patch(&app, box_, json!({"parent_id": board})).await.unwrap();
    patch(&app, box_, json!({"parent_id": null})).await.unwrap();

    // A file is adopted by whoever uploads its bytes again.
    let upload = async |parent_id| {
        let query = UploadQuery { parent_id, ..UploadQuery::default() };
        app.client.upload_file(query, FileUpload::from_bytes("note.txt", "A heron waits.", None)).await
    };
    let file = upload(None).await.unwrap().document_id;
    let note = add(&app, "note", Some(file)).await;
    contain(note, shelf).await.unwrap();
    for parent in [file, note, shelf, board] {
        let refused = upload(Some(parent)).await.unwrap_err();
        assert_eq!((refused.code, refused.members["field"].as_str()), (Code::InvalidField, Some("parent_id")));
    }
    let adopted = upload(Some(box_)).await.unwrap();
    assert!(adopted.was_existing && adopted.linked_into_parent && adopted.document_id == file);
    assert_eq!(contain(board, box_).await.unwrap_err().code, Code::InvalidField);
    invariants::check(&app.pool).await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_in_the_queue_moves_with_its_document() {
    let mut app = TestApp::with(Wish { no_worker: true, ..Default::default() }).await;
    let (from, to) = (add(&app, "from", None).await, add(&app, "to", None).await);
    let folder = add(&app, "folder", Some(from)).await;
    let note = add(&app, "note", Some(folder)).await;
    let query = UploadQuery { parent_id: Some(folder), ..UploadQuery::default() };
    let upload = FileUpload::from_path(&sample("handbook.md"), None).await.unwrap();
    let file = app.client.upload_file(query, upload).await.unwrap().document_id;
    let query = UploadQuery { parent_id: Some(to), ..UploadQuery::default() };
    let outer = app.client.upload_file(query, FileUpload::from_bytes("outer.md", "# Outer\n\nA file.", None)).await;
    let outer = outer.unwrap().document_id;
    patch(&app, folder, json!({"parent_id": outer})).await.unwrap();
    invariants::check(&app.pool).await;
    assert_eq!((total(&app, outer).await, total(&app, file).await), (4, 1));
    app.start_worker().await;
    assert_eq!(app.settled(file).await.settled, Settled::Settled);
    assert_eq!(app.settled(outer).await.settled, Settled::Settled);
    until("all to be found", async || {
        let found = app.client.search_bm25(Json(Bm25Search { limit: 100, ..Bm25Search::new("heron") })).await.unwrap();
        (found.results.iter().any(|result| result.document.id == note)).then_some(())
    })
    .await;
    assert_eq!(total(&app, outer).await, 1 + app.subtree(outer).await.len() as i64);
    until("the folder to move", async || patch(&app, folder, json!({"parent_id": null})).await.ok()).await;
    assert_eq!(total(&app, outer).await, 1 + app.subtree(outer).await.len() as i64);
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

/// Many create under a folder while it moves between an open and a closed place.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_created_under_a_moving_folder_is_where_the_folder_is() {
    let app = TestApp::start().await;
    let (open, closed) = (add(&app, "open", None).await, add(&app, "closed", None).await);
    app.client.protect_document(DocumentPath { id: closed }).await.unwrap();
    let folder = add(&app, "folder", Some(open)).await;
    let create = async || {
        for n in 0..25 {
            add(&app, &format!("note {n}"), Some(folder)).await;
        }
    };
    let moves = async || {
        for n in 0..12 {
            let parent = if n % 2 == 0 { closed } else { open };
            patched(&app, folder, json!({"parent_id": parent})).await;
        }
        patched(&app, folder, json!({"parent_id": closed})).await;
    };
    tokio::join!(create(), create(), moves());
    let guards: BTreeSet<i64> = sqlx::query_scalar("SELECT DISTINCT guard FROM documents WHERE path @> ARRAY[$1]")
        .bind(folder)
        .fetch_all(&app.pool)
        .await
        .unwrap()
        .into_iter()
        .collect();
    assert_eq!((guards, app.subtree(folder).await.len()), (BTreeSet::from([closed]), 50));
    app.end().await;
}

#[tokio::test]
async fn links_have_two_ends_and_contain_in_no_circle() {
    let app = TestApp::with(Wish { no_worker: true, ..Default::default() }).await;
    let one = someone(&app, "one").await;
    let (source, target) = (add(&app, "source", None).await, add(&app, "target", None).await);
    let child = add(&app, "child", Some(target)).await;
    let hidden = add(&app, "hidden", None).await;
    grant(&app, &one, source, GrantRight::Write).await;
    app.client.protect_document(DocumentPath { id: hidden }).await.unwrap();
    let new = |target_id, link_type: &str| {
        Json(NewLink { target_id, link_type: link_type.to_owned(), score: Some(0.5), metadata: Default::default() })
    };
    let link = async |id, new| one.client.create_link(DocumentPath { id }, new).await;
    let made = link(source, new(target, "cites")).await.unwrap();
    assert_eq!(made.location(), format!("/documents/{source}/links/{}", made.id));
    assert_eq!((made.source_id, made.target_id, made.score), (source, target, Some(0.5)));
    let again = link(source, new(target, "cites")).await.unwrap_err();
    assert_eq!((again.code, again.members["link_id"].as_i64()), (Code::Conflict, Some(made.id)));
    assert_eq!(link(source, new(hidden, "cites")).await.unwrap_err().code, Code::NotFound);
    assert_eq!(link(target, new(source, "cites")).await.unwrap_err().code, Code::Forbidden);
    assert_eq!(link(source, new(source, "cites")).await.unwrap_err().code, Code::InvalidField);
    link(source, new(target, "contains")).await.unwrap();
    // The source contains the target, and so what is under the target.
    let circle = app.client.create_link(DocumentPath { id: child }, new(source, "contains")).await.unwrap_err();
    assert_eq!((circle.code, circle.members["field"].as_str()), (Code::InvalidField, Some("target_id")));
    let up = app.client.create_link(DocumentPath { id: child }, new(target, "contains")).await.unwrap_err();
    assert_eq!(up.code, Code::InvalidField);
    app.client.create_link(DocumentPath { id: child }, new(source, "cites")).await.unwrap();
    let unlink = async |id, link_id| app.client.delete_link(LinkPath { id, link_id }).await;
    assert_eq!(unlink(target, made.id).await.unwrap_err().code, Code::NotFound, "it leads from the other end");
    unlink(source, made.id).await.unwrap();
    assert_eq!(unlink(source, made.id).await.unwrap_err().code, Code::NotFound);
    let links = app.client.list_links(DocumentPath { id: source }, PageQuery::default()).await.unwrap().links;
    assert_eq!(links.iter().map(|link| link.link_type.as_str()).collect::<Vec<_>>(), ["contains", "cites"]);
    app.end().await;
}

#[tokio::test]
async fn a_link_whose_end_is_deleted_meanwhile_is_refused_by_that_end() {
    let app = TestApp::with(Wish { no_worker: true, ..Default::default() }).await;
    for (loses_source, link_type) in [(true, "cites"), (false, "cites"), (true, "contains"), (false, "contains")] {
        let (source, target) = (add(&app, "source", None).await, add(&app, "target", None).await);
        let gone = if loses_source { source } else { target };
        let mut deleting = transaction::begin(&app.pool).await.unwrap();
        let doomed = place(&mut deleting, gone).await;
        delete_subtrees(&mut deleting, &[doomed]).await.unwrap();
        let new = NewLink { target_id: target, link_type: link_type.into(), score: None, metadata: Default::default() };
        let deleted = async {
            until_a_statement_waits(&app.pool).await;
            deleting.commit().await.unwrap();
        };
        let (made, ()) = tokio::join!(app.client.create_link(DocumentPath { id: source }, Json(new)), deleted);
        let refused = made.unwrap_err();
        assert_eq!((refused.code, refused.detail), (Code::NotFound, format!("there is no document {gone}")));
    }
    app.end().await;
}

/// After random creations, uploads, moves, edits, links, reprocesses and deletes, no row points to nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_points_to_nothing_whatever_was_made_moved_edited_reprocessed_and_deleted() {
    // Each mostly waits for its tasks.
    let (one, other) = tokio::join!(changed_at_random(5, 1), changed_at_random(11, 3));
    // Links `contains`, and bytes that were there already.
    let contained = |kind: usize| one[kind] + other[kind];
    assert!(contained(8) > 0 && contained(9) + contained(10) > 0, "{one:?} and {other:?}");
}

/// Changes a tree of its own at random, holds it to the invariants meanwhile, and returns how many changes of each kind were made. Its
/// vectors are in so many parts, by the roots that moves change.
async fn changed_at_random(seed: u64, parts: usize) -> [usize; 11] {
    let (app, mut random) = (TestApp::start().await, Random(seed * 15_485_863));
    let wanted = Wanted { parts, index: Index::Halves, batch: 100, sample: 1, least_recall: 1.0 };
    reindex::vectors(&app.pool, &wanted, |_| ()).await.unwrap();
    let mut done = [0; 11];
    for step in 0..110 {
        let ids: Vec<i64> =
            sqlx::query_scalar("SELECT id FROM documents ORDER BY id").fetch_all(&app.pool).await.unwrap();
        let any = |random: &mut Random| (!ids.is_empty()).then(|| ids[random.below(ids.len())]);
        let (id, other) = (any(&mut random), any(&mut random).filter(|_| random.below(4) > 0));
        let files: Vec<i64> =
            sqlx::query_scalar("SELECT document_id FROM document_blobs ORDER BY 1").fetch_all(&app.pool).await.unwrap();
        let file = (!files.is_empty()).then(|| files[random.below(files.len())]);
        let kind = random.below(16);
        let outcome = match (kind, id) {
            (0..=2, _) | (_, None) => {
                let new = NewDocument { parent_id: other, ..document(&format!("Note {step}"), "A heron waits.") };
                app.client.create_document(WaitQuery::default(), Json(new)).await.map(|_| 0)
            }
            (3, _) => {
                let text =
                    format!("# File {step}\n\nA heron in file {step}.\n\n# More\n\nAnd one more heron of {step}.");
                let query = UploadQuery { parent_id: other, ..UploadQuery::default() };
                let file = FileUpload::from_bytes(&format!("{step}.md"), text, None);
                app.client.upload_file(query, file).await.map(|_| 1)
            }
            (4..=6, Some(id)) => patch(&app, id, json!({"parent_id": other})).await.map(|_| 2),
            (7 | 8, Some(id)) => patch(&app, id, json!({"content": format!("A coot at {step}.")})).await.map(|_| 3),
            (9, Some(id)) => {
                let new = NewLink {
                    target_id: other.unwrap_or(id),
                    link_type: ["cites", "contains"][random.below(2)].into(),
                    score: None,
                    metadata: Default::default(),
                };
                app.client.create_link(DocumentPath { id }, Json(new)).await.map(|_| 4)
            }
            (12 | 13, _) => {
                let Some(id) = file else { continue };
                // A file that is being ingested is refused.
                if kind == 12 {
                    app.settled(id).await;
                }
                let options = json!({"structure": {"max_tokens": 8 + random.below(60)}});
                let request = ReprocessRequest { options: Some(options), replace: random.below(2) == 0 };
                app.client.reprocess_file(DocumentPath { id }, OptionalJson(Some(request))).await.map(|_| 7)
            }
            (14, Some(id)) => {
                let new = NewLink {
                    target_id: other.unwrap_or(id),
                    link_type: "contains".into(),
                    score: None,
                    metadata: Default::default(),
                };
                app.client.create_link(DocumentPath { id }, Json(new)).await.map(|_| 8)
            }
            (15, _) => {
                // Bytes that may be there already: whoever sends them again adopts their file.
                let query = UploadQuery { parent_id: other, ..UploadQuery::default() };
                let file = FileUpload::from_bytes("same.md", "# The same\n\nA heron, again.", None);
                app.client.upload_file(query, file).await.map(|stored| 9 + usize::from(stored.linked_into_parent))
            }
            (10, Some(id)) => app.client.protect_document(DocumentPath { id }).await.map(|_| 5),
            (_, Some(id)) => app.client.delete_document(DocumentPath { id }).await.map(|()| 6),
        };
        match outcome {
            Ok(kind) => done[kind] += 1,
            Err(failure) => {
                let expected = [
                    Code::Conflict,
                    Code::Unavailable,
                    Code::InvalidField,
                    Code::NotFound,
                    Code::StoredWithOtherOptions,
                ];
                assert!(expected.contains(&failure.code), "seed {seed}, step {step}: {failure}");
            }
        }
        if step % 10 == 9 {
            invariants::check(&app.pool).await;
        }
    }
    assert!(done[..8].iter().all(|count| *count > 0), "seed {seed}: {done:?}");
    let files: Vec<i64> = sqlx::query_scalar("SELECT id FROM documents WHERE usetype = 'file' AND guard <> -1")
        .fetch_all(&app.pool)
        .await
        .unwrap();
    for file in files {
        app.settled(file).await;
    }
    until("the queue to be empty", async || {
        let open: i64 =
            sqlx::query_scalar("SELECT count(*) FROM task_queue WHERE NOT final").fetch_one(&app.pool).await.unwrap();
        (open == 0).then_some(())
    })
    .await;
    invariants::check_drained(&app.pool).await;
    app.end().await;
    done
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn moves_that_wait_leave_connections_to_others() {
    let settings = [("SVC_DATABASE_POOL_SIZE", "6")];
    let app = TestApp::with(Wish { settings: &settings, no_worker: true, ..Default::default() }).await;
    let shelf = add(&app, "shelf", None).await;
    let mut nodes = Vec::new();
    for number in 0..8 {
        nodes.push(add(&app, &format!("{number}"), None).await);
    }
    // A large file is being stored.
    let storing = transaction::begin_creating(&app.pool).await.unwrap();
    let moves =
        futures_util::future::join_all(nodes.iter().map(|node| patch(&app, *node, json!({"parent_id": shelf}))));
    // These wait for the same.
    let protects = futures_util::future::join_all(
        nodes.iter().map(|node| app.client.protect_document(DocumentPath { id: *node })),
    );
    let read = async {
        until_a_statement_waits(&app.pool).await;
        let read = app.client.read_document(DocumentPath { id: shelf }, EmbedQuery::default()).await;
        storing.commit().await.unwrap();
        read.unwrap();
    };
    let (moved, protected, ()) = tokio::join!(moves, protects, read);
    assert!(moved.iter().any(|moved| moved.is_ok()));
    for refused in moved.into_iter().filter_map(Result::err).chain(protected.into_iter().filter_map(Result::err)) {
        assert!(refused.detail.contains("moves"), "{refused}");
    }
    app.end().await;
}
