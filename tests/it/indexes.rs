//! Search indexes over REST.
mod emptying;
mod excluded;
mod many;

use crate::support::{TestApp, Wish, document, own_engine, until, until_a_statement_waits};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use svc::{
    search::bm25,
    store::indexes::{manage::documents_after, postings::lock_compaction},
};
use svc_client::{
    Code, FileUpload, Json, OptionalJson,
    wire::{
        Bm25Search, DocumentChange, DocumentPath, FindingKind, IndexAnalyzer, IndexChange, IndexDocumentPath,
        IndexLanguage, IndexPath, IndexResponse, IndexState, MaxsimSearch, NewIndex, NewMembers, PageQuery,
        ReprocessRequest, SearchResult, TaskTypePath, UploadQuery, WaitQuery,
    },
};
use svc_ids::{DocumentId, IndexId};

async fn find(app: &TestApp, index: &str, query: &str) -> Vec<String> {
    let search = Bm25Search { index: Some(index.to_owned()), ..Bm25Search::new(query) };
    let found = app.client.search_bm25(Json(search)).await.unwrap();
    found.results.into_iter().map(|result| result.document.title).collect()
}

fn new(name: &str, more: serde_json::Value) -> Json<NewIndex> {
    let mut new = json!({"name": name});
    new.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    Json(serde_json::from_value(new).unwrap())
}

async fn index(app: &TestApp, name: &str, more: serde_json::Value) -> IndexResponse {
    let made = app.client.create_index(new(name, more)).await.unwrap();
    assert_eq!(made.state, IndexState::Ready);
    made
}

#[tokio::test]
async fn an_index_covers_its_members_and_reads_texts_in_its_language() {
    let app = TestApp::start().await;
    let home = app.create("home", "Viele Häuser am See", None).await.id;
    app.create("inside", "Das Haus am Meer", Some(home)).await;
    let other = app.create("outside", "Ein Haus im Wald", None).await.id;
    let german =
        index(&app, "german", json!({"analyzer": {"language": "german"}, "members": [home], "k1": 1.5, "b": 0.5}))
            .await;
    assert_eq!((german.documents, german.members, german.k1, german.b), (2, 1, 1.5, 0.5));
    let mut found = find(&app, "german", "haus").await;
    found.sort();
    assert_eq!(found, ["home", "inside"]);
    assert_eq!(find(&app, "default", "haus").await.len(), 2, "to English a plural of German is another word");
    // What comes later is indexed with it.
    app.create("later", "Häusern", Some(home)).await;
    assert_eq!(find(&app, "german", "haus").await.len(), 3);
    let path = IndexPath { id: german.id };
    let wider = app.client.add_index_members(path, Json(NewMembers { members: vec![other, other] })).await.unwrap();
    assert_eq!((wider.members, wider.documents, wider.state), (2, 4, IndexState::Ready));
    assert_eq!(app.client.list_index_members(path, PageQuery::default()).await.unwrap().members, [home, other]);
    app.client.remove_index_member(IndexDocumentPath { id: german.id, document_id: home }).await.unwrap();
    assert_eq!(find(&app, "german", "haus").await, ["outside"]);
    let last =
        app.client.remove_index_member(IndexDocumentPath { id: german.id, document_id: other }).await.unwrap_err();
    assert_eq!(last.code, Code::Conflict);
    // With another analyzer it is built anew.
    let change = IndexChange {
        name: Some("plain".into()),
        analyzer: Some(IndexAnalyzer { language: IndexLanguage::None, stop_words: None }),
        ..IndexChange::default()
    };
    let plain = app.client.update_index(path, Json(change)).await.unwrap();
    assert_eq!((plain.name.as_str(), plain.documents, plain.state), ("plain", 1, IndexState::Ready));
    assert_eq!((find(&app, "plain", "hauses").await.len(), find(&app, "plain", "Haus").await.len()), (0, 1));
    app.client.delete_index(path).await.unwrap();
    assert_eq!(app.client.read_index(path).await.unwrap_err().code, Code::NotFound);
    let search = Bm25Search { index: Some("plain".into()), ..Bm25Search::new("haus") };
    assert_eq!(app.client.search_bm25(Json(search)).await.unwrap_err().code, Code::NotFound);
    app.end().await;
}

/// The titles of what a search by token vectors finds, and of what of it has none.
async fn by_tokens(app: &TestApp, query: &str) -> (Vec<String>, Vec<String>) {
    let found = app.client.search_maxsim(Json(MaxsimSearch::new(query))).await.unwrap().results;
    let (without, with): (Vec<_>, Vec<_>) = found.into_iter().partition(|result| result.no_tokens);
    let titles = |results: Vec<SearchResult>| {
        let mut titles: Vec<String> = results.into_iter().map(|result| result.document.title).collect();
        titles.sort();
        titles
    };
    (titles(with), titles(without))
}

#[tokio::test]
async fn an_index_for_late_interaction_keeps_the_token_vectors_of_what_it_covers() {
    let app = TestApp::start().await;
    let home = app.create("home", "All about bread.", None).await.id;
    app.create("before", "Bread is baked in an oven.", Some(home)).await;
    app.create("outside", "An oven is a hot place for bread.", None).await;
    assert_eq!(
        by_tokens(&app, "oven for bread").await,
        (vec![], vec!["before".into(), "home".into(), "outside".into()])
    );
    // Beside the settled documents of the one batch that the call itself reads nothing is left to build.
    let kept = index(&app, "late", json!({"capabilities": {"bm25": false, "maxsim": true}, "members": [home]})).await;
    assert_eq!(kept.documents, 0, "it holds no words");
    let later = app.create("later", "Dough rests before the oven.", Some(home)).await.id;
    let (with, without) = by_tokens(&app, "oven for bread").await;
    assert_eq!((with, without), (vec!["before".into(), "home".into(), "later".into()], vec!["outside".into()]));
    // A file's chunks are covered while the file is ingested.
    let file = "# Loaves\n\nA loaf is put into the oven after an hour.\n\n# Rolls\n\nRolls are quick to bake.\n";
    let query = UploadQuery { parent_id: Some(home), ..UploadQuery::default() };
    let uploaded = app.client.upload_file(query, FileUpload::from_bytes("loaves.md", file, None)).await.unwrap();
    app.settled(uploaded.document_id).await;
    let leaves: (i64, i64) = sqlx::query_as(
        "SELECT count(*), count(p.document_id) FROM documents d LEFT JOIN token_packs p ON p.document_id = d.id
          WHERE d.path @> ARRAY[$1::bigint] AND d.content <> ''",
    )
    .bind(uploaded.document_id)
    .fetch_one(&app.pool)
    .await
    .unwrap();
    assert!(leaves.0 > 1 && leaves.0 == leaves.1, "{leaves:?}");
    // A new text has vectors of its own tokens, and no stale ones meanwhile.
    let change = json!({"content": "Yeast needs warmth."});
    let path = DocumentPath { id: later };
    let wait = WaitQuery { wait: true, ..WaitQuery::default() };
    app.client.update_document(path, wait, Json(serde_json::from_value(change).unwrap())).await.unwrap();
    let words: i64 = sqlx::query_scalar("SELECT count(*) FROM token_embeddings WHERE document_id = $1")
        .bind(later)
        .fetch_one(&app.pool)
        .await
        .unwrap();
    assert!((1..=4).contains(&words), "{words}");
    app.client.delete_index(IndexPath { id: kept.id }).await.unwrap();
    app.create("after", "A cold oven.", Some(home)).await;
    assert!(by_tokens(&app, "oven").await.1.contains(&"after".to_owned()));
    app.end().await;
}

#[tokio::test]
async fn an_index_that_finds_out_the_language_of_each_document_stems_each_in_its_own() {
    let app = TestApp::start().await;
    app.create(
        "de",
        "Die alten Häuser in der kleinen Stadt gehören seit vielen Jahren der Gemeinde, und niemand wohnt darin.",
        None,
    )
    .await;
    app.create(
        "en",
        "The old houses of the small town have belonged to the parish for many years, and nobody lives in them.",
        None,
    )
    .await;
    app.create(
        "fr",
        "Les vieilles maisons de la petite ville appartiennent depuis longtemps à la commune, et personne n'y habite.",
        None,
    )
    .await;
    app.create("ru", "Старые дома в маленьком городе давно принадлежат общине, и никто в них не живёт.", None).await;
    index(&app, "any", json!({"analyzer": {"language": "detect"}})).await;
    for (query, title) in [
        ("Haus", "de"),
        ("house", "en"),
        ("maison", "fr"),
        ("общины", "ru"),
        ("kleine Häusern", "de"),
        ("living", "en"),
    ] {
        assert_eq!(find(&app, "any", query).await, [title], "{query}");
    }
    app.end().await;
}

#[tokio::test]
async fn what_makes_no_index_is_refused_and_names_the_field() {
    let app = TestApp::start().await;
    index(&app, "one", json!({})).await;
    let default = app.client.list_indexes(PageQuery::default()).await.unwrap().indexes[0].clone();
    assert_eq!((default.name.as_str(), default.state), ("default", IndexState::Ready));
    let path = IndexPath { id: default.id };
    assert_eq!(app.client.create_index(new("one", json!({}))).await.unwrap_err().code, Code::Conflict);
    assert_eq!(app.client.delete_index(path).await.unwrap_err().code, Code::Conflict);
    let change = IndexChange { k1: Some(2.0), ..IndexChange::default() };
    assert_eq!(app.client.update_index(path, Json(change)).await.unwrap_err().code, Code::Conflict);
    for (body, field) in [
        (json!({"name": ""}), "name"),
        (json!({"name": "a b"}), "name"),
        (json!({"name": "x", "k1": -1}), "k1"),
        (json!({"name": "x", "b": 1.5}), "b"),
        (json!({"name": "x", "members": []}), "members"),
        (json!({"name": "x", "members": [987_654]}), "members"),
        (json!({"name": "x", "members": vec![1; 10_001]}), "members"),
        (json!({"name": "x", "analyzer": {"language": "french", "stop_words": "remove"}}), "analyzer.stop_words"),
    ] {
        let answer = app.raw("POST", "/indexes").json(&body).send().await.unwrap();
        assert_eq!(answer.status(), 422, "{field}");
        let problem: serde_json::Value = answer.json().await.unwrap();
        assert_eq!(problem["field"], field, "{problem}");
    }
    for body in [json!({"name": "x", "analyzer": {"language": "klingon"}}), json!({"name": "x", "colour": 1})] {
        assert_eq!(app.raw("POST", "/indexes").json(&body).send().await.unwrap().status(), 422);
    }
    let gone = IndexPath { id: 4_711 };
    assert_eq!(app.client.refresh_index(gone).await.unwrap_err().code, Code::NotFound);
    app.end().await;
}

#[tokio::test]
async fn ten_thousand_members_and_a_build_of_many_batches() {
    let app = TestApp::start().await;
    let ids: Vec<i64> = sqlx::query_scalar(
        "WITH made AS (INSERT INTO documents (title, content, usetype, content_hash, structured_content, settled, path, guard)
                       SELECT 't' || n, 'wombat ' || n, 'markdown', 'sha256:', '{}', 'settled', '{}', 0 FROM generate_series(1, 10000) n RETURNING id),
              words AS (INSERT INTO document_words SELECT id, '' FROM made)
         SELECT id FROM made",
    )
    .fetch_all(&app.pool)
    .await
    .unwrap();
    let made = app.client.create_index(new("many", json!({"members": ids}))).await.unwrap();
    assert_eq!((made.members, made.state), (10_000, IndexState::Building));
    // A worker does the rest.
    let done = until("the index is built", async || {
        let index = app.client.read_index(IndexPath { id: made.id }).await.unwrap();
        (index.state == IndexState::Ready).then_some(index)
    })
    .await;
    assert_eq!(done.documents, 10_000);
    assert_eq!(find(&app, "many", "wombat").await.len(), 10);
    app.end().await;
}

#[tokio::test]
async fn an_index_of_an_older_analyzer_is_never_read_and_is_built_anew_at_the_start() {
    let app = TestApp::start().await;
    let id = app
        .client
        .create_document(WaitQuery { wait: true, ..WaitQuery::default() }, Json(document("one", "a wombat")))
        .await
        .unwrap()
        .document
        .id;
    sqlx::query("UPDATE search_indexes SET config = jsonb_set(config, '{analyzer,version}', '1')")
        .execute(&app.pool)
        .await
        .unwrap();
    let search = Bm25Search::new("wombat");
    let refused = app.client.search_bm25(Json(search.clone())).await.unwrap_err();
    assert_eq!(refused.code, Code::Unavailable);
    svc::app::weigh_indexes(&app.pool, &app.service.settings).await.unwrap();
    let found = until("the index is built", async || {
        let found = app.client.search_bm25(Json(search.clone())).await.unwrap();
        (found.total == 1).then_some(found)
    })
    .await;
    assert_eq!(found.results[0].document.id, id);
    app.end().await;
}

/// The index once nothing of it is left to build.
async fn built(app: &TestApp, id: i64) -> IndexResponse {
    until("the index to be built", async || {
        let index = app.client.read_index(IndexPath { id }).await.unwrap();
        (index.state == IndexState::Ready).then_some(index)
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_that_are_added_at_once_are_all_indexed() {
    let app = TestApp::start().await;
    let mut homes = Vec::new();
    for number in 0..24 {
        homes.push(app.create(&format!("home {number}"), "A heron.", None).await.id);
    }
    let herons = index(&app, "herons", json!({"members": [homes[0]]})).await.id;
    let adding = homes.chunks(2).map(|members| {
        app.client.add_index_members(IndexPath { id: herons }, Json(NewMembers { members: members.to_vec() }))
    });
    for added in futures_util::future::join_all(adding).await {
        added.unwrap();
    }
    let built = built(&app, herons).await;
    assert_eq!((built.members, built.documents), (24, 24));
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn others_create_while_members_wait_for_the_compaction_of_their_index() {
    let app = TestApp::start().await;
    let home = app.create("home", "A heron.", None).await.id;
    let other = app.create("other", "A heron.", None).await.id;
    let herons = index(&app, "herons", json!({"members": [home]})).await.id;
    let mut compaction = app.pool.begin().await.unwrap();
    lock_compaction(&mut compaction, IndexId(herons)).await.unwrap();
    let adding = tokio::spawn({
        let client = app.client.clone();
        let members = Json(NewMembers { members: vec![other] });
        async move { client.add_index_members(IndexPath { id: herons }, members).await }
    });
    until_a_statement_waits(&app.pool).await;
    let new = || Json(document("later", "A heron."));
    let later = until("a document to be created", async || {
        Some(app.client.create_document(WaitQuery::default(), new()).await.unwrap().id)
    })
    .await;
    assert!(later > other && !adding.is_finished());
    compaction.rollback().await.unwrap();
    assert_eq!(adding.await.unwrap().unwrap().members, 2);
    assert_eq!(built(&app, herons).await.documents, 2);
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_settles_while_an_index_is_built_stays_in_it() {
    let app = TestApp::start().await;
    // The build locks the documents by their ids, so that it waits for this one before it holds any other.
    let lowest = app.create("lowest", "Reeds.", None).await.id;
    let all = index(&app, "all", json!({})).await.id;
    let embed = || TaskTypePath { task_type: "embed".to_owned() };
    app.client.pause_task_type(embed()).await.unwrap();
    let file = app.upload_bytes("herons.md", "# Herons\n\nA heron stands there.\n").await.unwrap().document_id;
    until("a chunk in flight", async || {
        let chunks = "SELECT count(*) FROM documents WHERE usetype = 'chunk' AND settled = 'in_flight'";
        (sqlx::query_scalar::<_, i64>(chunks).fetch_one(&app.pool).await.unwrap() > 0).then_some(())
    })
    .await;
    let mut held = app.pool.begin().await.unwrap();
    let lock = "SELECT id FROM documents WHERE id = $1 FOR NO KEY UPDATE";
    sqlx::query(lock).bind(lowest).execute(&mut *held).await.unwrap();
    let building = tokio::spawn({
        let client = app.client.clone();
        async move { client.refresh_index(IndexPath { id: all }).await }
    });
    until_a_statement_waits(&app.pool).await;
    app.client.resume_task_type(embed()).await.unwrap();
    app.settled(file).await;
    assert_eq!(find(&app, "all", "stands").await.len(), 1);
    held.rollback().await.unwrap();
    building.await.unwrap().unwrap();
    built(&app, all).await;
    assert_eq!(find(&app, "all", "stands").await.len(), 1);
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_move_takes_a_document_out_of_one_index_and_into_another() {
    let app = TestApp::start().await;
    // No repair of what is left behind comes to help.
    sqlx::query(
        "INSERT INTO upkeep_turn VALUES ('repair', now() + interval '1 day')
         ON CONFLICT (name) DO UPDATE SET taken_at = EXCLUDED.taken_at",
    )
    .execute(&app.pool)
    .await
    .unwrap();
    let (left, right) = (app.create("left", "Reeds.", None).await.id, app.create("right", "Reeds.", None).await.id);
    let folder = app.create("folder", "Reeds.", Some(left)).await.id;
    app.create("heron", "A heron stands there.", Some(folder)).await;
    let ids = [
        index(&app, "left", json!({"members": [left]})).await.id,
        index(&app, "right", json!({"members": [right]})).await.id,
    ];
    assert_eq!((find(&app, "left", "heron").await.len(), find(&app, "right", "heron").await.len()), (1, 0));
    crate::edits::patched(&app, folder, json!({"parent_id": right})).await;
    for id in ids {
        built(&app, id).await;
    }
    assert_eq!((find(&app, "left", "heron").await.len(), find(&app, "right", "heron").await.len()), (0, 1));
    crate::edits::patched(&app, folder, json!({"parent_id": null})).await;
    built(&app, ids[1]).await;
    assert_eq!(find(&app, "right", "heron").await.len(), 0);
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_index_whose_last_member_is_deleted_covers_nothing_until_it_has_another() {
    let app = TestApp::start().await;
    let [north, south] = [app.create("north", "Reeds.", None).await.id, app.create("south", "Reeds.", None).await.id];
    app.create("heron", "A heron stands there.", Some(north)).await;
    let id = index(&app, "north", json!({"members": [north]})).await.id;
    let path = IndexPath { id };
    assert_eq!(find(&app, "north", "heron").await, ["heron"]);
    app.client.delete_document(DocumentPath { id: north }).await.unwrap();
    app.create("other heron", "Another heron stands there.", Some(south)).await;
    app.client.refresh_index(path).await.unwrap();
    let bare = built(&app, id).await;
    assert_eq!((bare.restricted, bare.members, bare.documents), (true, 0, 0));
    assert_eq!(app.client.list_index_members(path, PageQuery::default()).await.unwrap().members, [0; 0]);
    assert_eq!(find(&app, "north", "heron").await, [""; 0]);
    assert_eq!(find(&app, "default", "heron").await, ["other heron"]);
    app.client.add_index_members(path, Json(NewMembers { members: vec![south] })).await.unwrap();
    assert_eq!(
        (built(&app, id).await.members, find(&app, "north", "heron").await),
        (1, vec!["other heron".to_owned()])
    );
    let all = index(&app, "all", json!({})).await;
    assert_eq!((all.restricted, all.members), (false, 0));
    app.end().await;
}

#[tokio::test]
async fn an_index_without_bm25_says_so_when_it_is_searched() {
    let app = TestApp::start().await;
    app.create("heron", "A heron stands there.", None).await;
    let nothing = new("bare", json!({"capabilities": {"bm25": false, "maxsim": false}}));
    let refused = app.client.create_index(nothing).await.unwrap_err();
    assert_eq!((refused.code, &refused.members["field"]), (Code::InvalidField, &json!("capabilities")), "{refused:?}");
    index(&app, "bare", json!({"capabilities": {"bm25": false, "maxsim": true}})).await;
    let search = Bm25Search { index: Some("bare".into()), ..Bm25Search::new("heron") };
    let refused = app.client.search_bm25(Json(search)).await.unwrap_err();
    assert_eq!((refused.code, &refused.members["field"]), (Code::InvalidField, &json!("index")), "{refused:?}");
    assert!(refused.members.contains_key("remedy"));
    app.end().await;
}

#[tokio::test]
async fn a_step_of_a_build_reads_few_long_texts_and_many_short_ones() {
    let app = TestApp::start().await;
    let mut ids = Vec::new();
    for text in ["Short.", "Long. ", "Short.", "Short."] {
        let content = if text == "Long. " { text.repeat(1_000) } else { text.to_owned() };
        ids.push(DocumentId(app.create("note", &content, None).await.id));
    }
    let mut conn = app.pool.acquire().await.unwrap();
    let mut after = async |id: DocumentId, limit, bytes| documents_after(&mut conn, id, limit, bytes).await.unwrap();
    assert_eq!(after(DocumentId(0), 200, 1 << 20).await, ids);
    assert_eq!(after(DocumentId(0), 3, 1 << 20).await, ids[..3]);
    assert_eq!(after(DocumentId(0), 200, 1_000).await, ids[..2], "a text that is too long for a step is a part of one");
    assert_eq!(after(ids[0], 200, 1).await, ids[1..2], "each step gets on");
    drop(conn);
    app.end().await;
}

/// The number of each entry of an index, by its document.
async fn numbers(app: &TestApp, index: i64) -> BTreeMap<i64, i32> {
    let entries: Vec<(i64, i32)> =
        sqlx::query_as("SELECT document_id, docno FROM search_index_entries WHERE index_id = $1")
            .bind(index)
            .fetch_all(&app.pool)
            .await
            .unwrap();
    entries.into_iter().collect()
}

#[tokio::test]
async fn what_an_index_holds_is_not_written_again_because_it_covers_more_or_less() {
    let app = TestApp::start().await;
    let [home, other] = [app.create("home", "bread", None).await.id, app.create("other", "bread", None).await.id];
    let [kept, moved] =
        [app.create("kept", "bread", Some(home)).await.id, app.create("moved", "bread", Some(home)).await.id];
    let made = index(&app, "some", json!({"members": [home]})).await;
    let before = numbers(&app, made.id).await;
    assert_eq!(before.keys().copied().collect::<Vec<_>>(), [home, kept, moved]);
    let to = |parent: i64| DocumentChange { parent_id: Some(Some(parent)), ..DocumentChange::default() };
    app.client.update_document(DocumentPath { id: moved }, WaitQuery::default(), Json(to(other))).await.unwrap();
    built(&app, made.id).await;
    let without: BTreeMap<i64, i32> =
        before.iter().map(|(id, number)| (*id, *number)).filter(|(id, _)| *id != moved).collect();
    assert_eq!(numbers(&app, made.id).await, without);
    let path = IndexPath { id: made.id };
    app.client.add_index_members(path, Json(NewMembers { members: vec![other] })).await.unwrap();
    let wider = numbers(&app, made.id).await;
    assert_eq!(wider.keys().copied().collect::<Vec<_>>(), [home, other, kept, moved]);
    assert!(without.iter().all(|(id, number)| wider[id] == *number), "{without:?} {wider:?}");
    app.client.remove_index_member(IndexDocumentPath { id: made.id, document_id: other }).await.unwrap();
    assert_eq!(numbers(&app, made.id).await, without);
    // A refresh writes everything anew, also where a move comes in between.
    let refreshed = "UPDATE search_indexes SET built_to = $2, builds = builds + 1, replaces = true WHERE id = $1";
    sqlx::query(refreshed).bind(made.id).bind(home).execute(&app.pool).await.unwrap();
    app.client.update_document(DocumentPath { id: moved }, WaitQuery::default(), Json(to(home))).await.unwrap();
    built(&app, made.id).await;
    let anew = numbers(&app, made.id).await;
    assert_eq!(anew.keys().copied().collect::<Vec<_>>(), [home, kept, moved]);
    assert!(anew[&kept] > without[&kept], "the build that was under way still replaces");
    app.end().await;
}

#[tokio::test]
async fn an_index_of_a_part_of_a_file_covers_the_part_that_takes_its_place() {
    let app = TestApp::start().await;
    let text =
        format!("# Birds\n\nAll about birds.\n\n## Kingfisher\n\n{}", "It dives for fish from a branch. ".repeat(60));
    let file = app.upload_bytes("birds.md", text).await.unwrap().document_id;
    app.settled(file).await;
    let part = app
        .subtree(file)
        .await
        .into_iter()
        .find(|node| node.title == "Kingfisher" && node.usetype == "section")
        .unwrap()
        .id;
    let made = index(&app, "part", json!({"members": [part]})).await;
    assert!(!find(&app, "part", "dives").await.is_empty());
    let options: ReprocessRequest =
        serde_json::from_value(json!({"options": {"structure": {"max_tokens": 60}}})).unwrap();
    app.client.reprocess_file(DocumentPath { id: file }, OptionalJson(Some(options))).await.unwrap();
    until("the new tree", async || {
        let gone = app.client.read_document(DocumentPath { id: part }, Default::default()).await.is_err();
        gone.then_some(())
    })
    .await;
    built(&app, made.id).await;
    let chunks = app
        .subtree(file)
        .await
        .into_iter()
        .filter(|node| node.usetype == "chunk" && node.content.contains("dives"))
        .count();
    assert!(chunks > 1, "{chunks}");
    assert_eq!(find(&app, "part", "dives").await.len(), chunks);
    app.end().await;
}

#[tokio::test]
async fn an_index_is_made_while_the_model_is_away() {
    let model = own_engine();
    let app = TestApp::with(Wish { engine: Some(model.clone()), ..Wish::default() }).await;
    app.create("home", "All about bread.", None).await;
    model.lose_device("the test took it away");
    let made =
        app.client.create_index(new("late", json!({"capabilities": {"bm25": true, "maxsim": true}}))).await.unwrap();
    assert_eq!(made.state, IndexState::Building);
    // One of words alone needs no model.
    assert_eq!(index(&app, "words", json!({})).await.documents, 1);
    until("the model", async || model.ready().is_ok().then_some(())).await;
    built(&app, made.id).await;
    assert_eq!(by_tokens(&app, "bread").await, (vec!["home".to_owned()], Vec::new()));
    app.end().await;
}

/// Pretends that an index has given out all numbers up to this one.
async fn used(app: &TestApp, index: i64, number: i64) {
    sqlx::query("SELECT setval($1::text::regclass, $2)")
        .bind(format!("search_docno_{index}"))
        .bind(number)
        .execute(&app.pool)
        .await
        .unwrap();
}

#[tokio::test]
async fn the_numbers_of_an_index_that_is_built_anew_begin_again_before_they_end() {
    let app = TestApp::start().await;
    for title in ["one", "two", "three"] {
        app.create(title, "A heron.", None).await;
    }
    let all = index(&app, "all", json!({})).await.id;
    let first = BTreeSet::from([1, 2, 3]);
    let given = async || numbers(&app, all).await.into_values().collect::<BTreeSet<_>>();
    assert_eq!(given().await, first, "an index has numbers of its own");
    let refreshed = async || {
        app.client.refresh_index(IndexPath { id: all }).await.unwrap();
        built(&app, all).await;
        assert_eq!(find(&app, "all", "heron").await.len(), 3);
        // Until then what was replaced keeps its numbers.
        until("a compaction", async || {
            bm25::compact(&app.pool, IndexId(all)).await.unwrap();
            let left = "SELECT count(*) FROM search_term_tombstones WHERE index_id = $1";
            let left: i64 = sqlx::query_scalar(left).bind(all).fetch_one(&app.pool).await.unwrap();
            (left == 0).then_some(())
        })
        .await;
        given().await
    };
    used(&app, all, 1_200_000_000).await;
    let later = refreshed().await;
    assert!(later.iter().all(|number| *number > 1_200_000_000), "the first ones were still in use: {later:?}");
    assert_eq!(refreshed().await, first);

    used(&app, all, 2_000_000_000).await;
    let found = until("the finding", async || {
        let findings = app.client.list_findings().await.unwrap().findings;
        findings.into_iter().find(|found| found.kind == FindingKind::IndexNumbers)
    })
    .await;
    assert_eq!(found.about, format!("index {all} (all), 93 % of them"));
    assert!(found.remedy.contains("/indexes/{id}/refresh"), "{found:?}");

    used(&app, all, i64::from(i32::MAX)).await;
    let path = IndexDocumentPath { id: all, document_id: *numbers(&app, all).await.keys().next().unwrap() };
    let refused = app.client.index_document(path).await.unwrap_err();
    assert!(refused.code == Code::Unavailable && refused.detail.contains("no number left"), "{refused}");
    assert_eq!(refreshed().await, first);
    app.create("four", "A coot.", None).await;
    assert_eq!(find(&app, "all", "coot").await, ["four"]);
    app.end().await;
}
