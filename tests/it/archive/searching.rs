//! What only searches go by: token vectors, search indexes and search contexts.
use super::{done, drained, hostile::change, rights::svc_as, rows, said};
use crate::{
    principals::{grant, someone},
    support::{TestApp, Wish, invariants, until},
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::{collections::BTreeSet, fs, path::Path};
use svc_client::{
    Json,
    wire::{
        Bm25Search, DocumentPath, GrantRight, IndexPath, IndexState, MaxsimSearch, NewBatch, NewContext, NewIndex,
        PageQuery,
    },
};

/// Two trees, four indexes and four contexts. Returns the tops of the trees.
async fn grow(app: &TestApp) -> (i64, i64) {
    let home = app.create("home", "All about bread.", None).await.id;
    app.create("oven", "Bread is baked in an oven.", Some(home)).await;
    let within = app.create("dough", "Dough rests before the oven.", Some(home)).await.id;
    let apart = app.create("apart", "An oven is a hot place for bread.", None).await.id;
    for index in [
        json!({"name": "late", "capabilities": {"bm25": false, "maxsim": true}, "members": [home]}),
        json!({"name": "german", "analyzer": {"language": "german"}, "k1": 1.5, "b": 0.5, "title_weight": 3, "title_paths": false}),
        json!({"name": "both", "members": [within, apart]}),
        json!({"name": "other", "members": [apart]}),
    ] {
        let index: NewIndex = serde_json::from_value(index).unwrap();
        app.client.create_index(Json(index)).await.unwrap();
    }
    for context in [
        json!({"name": "at-home", "config": {"parent_id": home, "index": "german", "recency_half_life_days": 7.0}}),
        json!({"name": "not-dough", "config": {"filter": {"all": [{"under": [home, apart]}, {"exclude": [within]}]}}}),
        json!({"name": "apart", "config": {"parent_id": apart, "index": "other"}}),
        json!({"name": "anywhere", "config": {"method": "bm25"}}),
    ] {
        let context: NewContext = serde_json::from_value(context).unwrap();
        app.client.create_context(Json(context)).await.unwrap();
    }
    ready(app).await;
    (home, apart)
}

/// Waits until every task is done and every index is built; a loaded machine may leave a build to a worker.
async fn ready(app: &TestApp) {
    drained(app).await;
    until("the indexes to be built", async || {
        let indexes = app.client.list_indexes(PageQuery::default()).await.unwrap().indexes;
        indexes.iter().all(|index| index.state == IndexState::Ready).then_some(())
    })
    .await;
}

/// The token vectors of a store, by the titles of their documents.
async fn tokens(app: &TestApp) -> Vec<(String, String, i32, i32, String, String)> {
    sqlx::query_as(
        "SELECT d.title, p.model, p.width, p.tokens, md5(p.vectors),
                (SELECT md5(string_agg(t::text, '' ORDER BY t.token_idx))
                   FROM (SELECT token_idx, token_id, tier, embed_256, embed_384, embed_512 FROM token_embeddings WHERE document_id = d.id) t)
           FROM token_packs p JOIN documents d ON d.id = p.document_id ORDER BY d.title",
    )
    .fetch_all(&app.pool)
    .await
    .unwrap()
}

/// Indexes with what they cover, and contexts, with titles in place of ids.
async fn searches(app: &TestApp) -> (BTreeSet<String>, BTreeSet<String>) {
    let titles: Vec<(i64, String)> =
        sqlx::query_as("SELECT id, title FROM documents ORDER BY id").fetch_all(&app.pool).await.unwrap();
    let title = |id: i64| titles.iter().find(|(of, _)| *of == id).map(|(_, title)| title.clone()).unwrap();
    let mut indexes = BTreeSet::new();
    for index in app.client.list_indexes(PageQuery::default()).await.unwrap().indexes {
        let path = IndexPath { id: index.id };
        let members = app.client.list_index_members(path, PageQuery::default()).await.unwrap().members;
        let members: BTreeSet<String> = members.into_iter().map(title).collect();
        let mut row = serde_json::to_value(index).unwrap();
        for of_the_store in ["id", "created_at", "state"] {
            row.as_object_mut().unwrap().remove(of_the_store);
        }
        indexes.insert(format!("{row} {members:?}"));
    }
    let mut contexts = BTreeSet::new();
    for context in app.client.list_contexts(PageQuery::default()).await.unwrap().contexts {
        let mut config = serde_json::to_value(&context.config).unwrap();
        for pointer in ["/parent_id", "/filter/all/0/under/0", "/filter/all/0/under/1", "/filter/all/1/exclude/0"] {
            if let Some(id) = config.pointer_mut(pointer) {
                *id = title(id.as_i64().unwrap()).into();
            }
        }
        contexts.insert(format!("{} {config}", context.name));
    }
    (indexes, contexts)
}

/// What late interaction finds, with its scores.
async fn late(app: &TestApp) -> BTreeSet<String> {
    let found = app.client.search_maxsim(Json(MaxsimSearch::new("oven for bread"))).await.unwrap().results;
    found.iter().map(|result| format!("{} {:.5} {}", result.document.title, result.score, result.no_tokens)).collect()
}

/// Makes an archive of the first form of one of the second.
fn of_the_first_form(archive: &Path) {
    let manifest = archive.join("manifest.json");
    let mut value: Value = serde_json::from_slice(&fs::read(&manifest).unwrap()).unwrap();
    value["format"] = 1.into();
    let fresh = ["tokens.ndjson", "indexes.ndjson", "contexts.ndjson"];
    value["files"].as_array_mut().unwrap().retain(|file| !fresh.contains(&file["name"].as_str().unwrap()));
    let of_the_second = ["tokens", "indexes", "members", "members_outside", "contexts", "contexts_outside"];
    value["counts"].as_object_mut().unwrap().retain(|name, _| !of_the_second.contains(&name.as_str()));
    fs::write(&manifest, value.to_string()).unwrap();
    fresh.iter().for_each(|name| fs::remove_file(archive.join(name)).unwrap());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn token_vectors_indexes_and_contexts_go_along() {
    let (mut app, other) = (TestApp::start().await, TestApp::start().await);
    let (home, _) = grow(&app).await;
    // On a loaded machine the worker may still be at a step of a build, and make token vectors that a request has made already.
    app.stop_worker().await;
    // Whether they are taken over or made again shows where there is one fewer than the model would make.
    for statement in [
        "DELETE FROM token_embeddings t WHERE token_idx = (SELECT max(token_idx) FROM token_embeddings u WHERE u.document_id = t.document_id)",
        "UPDATE token_packs SET tokens = tokens - 1, vectors = substr(vectors, 1, 2 * width * (tokens - 1))",
    ] {
        sqlx::query(statement).execute(&app.pool).await.unwrap();
    }
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("archive");
    let archive_path = archive.to_str().unwrap();
    let exported = done(&app, &["export", archive_path]).await;
    let counted = ["tokens", "indexes", "members", "members_outside", "contexts", "contexts_outside"];
    assert_eq!(counted.map(|name| exported["counts"][name].as_i64().unwrap()), [3, 4, 4, 0, 4, 0], "{exported}");

    // They say of which texts they were made: of this one's title and content.
    let text = format!("sha256:{}", hex::encode(Sha256::digest("oven\nBread is baked in an oven.")));
    assert!(rows(&archive, "tokens.ndjson").iter().any(|row| row["text_hash"] == text.as_str()), "{text}");

    let imported = done(&other, &["import", archive_path]).await;
    let created = |of: &Value| ["tokens", "indexes", "contexts"].map(|name| of[name]["created"].as_i64().unwrap());
    assert_eq!(created(&imported), [3, 4, 4], "{imported}");
    ready(&other).await;
    let was = tokens(&app).await;
    assert!(was.len() == 3 && was.iter().all(|(_, _, _, tokens, ..)| *tokens > 0), "{was:?}");
    assert_eq!(tokens(&other).await, was);
    assert_eq!(searches(&other).await, searches(&app).await);
    assert_eq!(late(&other).await, late(&app).await);
    let search = Bm25Search { context: Some("at-home".to_owned()), ..Bm25Search::new("oven") };
    let found = other.client.search_bm25(Json(search)).await.unwrap().results;
    let titles: BTreeSet<&str> = found.iter().map(|result| result.document.title.as_str()).collect();
    assert_eq!(titles, BTreeSet::from(["oven", "dough"]));
    // Running it again changes nothing.
    let again = done(&other, &["import", archive_path]).await;
    assert_eq!(created(&again), [0, 0, 0], "{again}");
    let existing = ["tokens", "indexes", "contexts"].map(|name| again[name]["existing"].as_i64().unwrap());
    assert_eq!((existing, tokens(&other).await), ([3, 4, 4], was));
    assert_eq!(searches(&other).await, searches(&app).await);

    // Of a part of the tree, what covers or names some of it goes along, without the rest.
    let part = folder.path().join("part");
    let exported = done(&app, &["export", part.to_str().unwrap(), "--under", &home.to_string()]).await;
    assert_eq!(counted.map(|name| exported["counts"][name].as_i64().unwrap()), [3, 2, 2, 1, 2, 1], "{exported}");
    let third = TestApp::start().await;
    let imported = done(&third, &["import", part.to_str().unwrap()]).await;
    assert_eq!(created(&imported), [3, 2, 0], "{imported}");
    // One names what stayed behind, and the other one an index that covers everything and stayed there too.
    assert_eq!((&imported["contexts"]["outside"], &imported["index_members_outside"]), (&json!(2), &json!(1)));
    let indexes = third.client.list_indexes(PageQuery::default()).await.unwrap().indexes;
    let covered: BTreeSet<(String, i64)> = indexes.into_iter().map(|index| (index.name, index.members)).collect();
    let expected = [("default", 0), ("late", 1), ("both", 1)].map(|(name, members)| (name.to_owned(), members));
    assert_eq!(covered, BTreeSet::from(expected));
    for app in [app, other, third] {
        app.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn words_are_found_as_the_store_that_imports_indexes_them_whatever_the_other_one_held() {
    let settings = &[("SVC_BM25_EXCLUDE_USETYPES", "markdown")];
    let app = TestApp::with(Wish { settings, ..Wish::default() }).await;
    svc::app::weigh_indexes(&app.pool, &app.service.settings).await.unwrap();
    let other = TestApp::start().await;
    app.create("oven", "Bread is baked in an oven.", None).await;
    drained(&app).await;
    let titles = async |app: &TestApp| -> Vec<String> {
        let found = app.client.search_bm25(Json(Bm25Search::new("bread"))).await.unwrap().results;
        found.into_iter().map(|result| result.document.title).collect()
    };
    assert!(titles(&app).await.is_empty(), "it is kept out there");
    let folder = tempfile::tempdir().unwrap();
    let archive = folder.path().join("archive");
    done(&app, &["export", archive.to_str().unwrap()]).await;
    let imported = done(&other, &["import", archive.to_str().unwrap()]).await;
    assert_eq!((&imported["vectors"], &imported["queued"]), (&json!(1), &json!(0)), "{imported}");
    assert_eq!(titles(&other).await, ["oven"]);
    drained(&other).await;
    invariants::check_drained(&other.pool).await;
    for app in [app, other] {
        app.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn token_vectors_of_another_text_or_caller_stay_out_and_older_archives_are_read() {
    let (app, other) = (TestApp::start().await, TestApp::start().await);
    let alice = someone(&app, "alice").await;
    let documents = json!([{"title": "open", "content": "A heron waits.", "key": "open"},
        {"title": "closed", "content": "A gauge fails.", "key": "closed", "private": true},
        {"title": "hers", "content": "A river rises.", "key": "hers", "private": true}]);
    let batch: NewBatch = serde_json::from_value(json!({"documents": documents})).unwrap();
    let made = app.client.create_documents(Json(batch)).await.unwrap();
    let [open, closed, hers] = [0, 1, 2].map(|at: usize| made.documents[at].document_id);
    drained(&app).await;
    for id in [open, closed, hers] {
        app.client.embed_tokens(DocumentPath { id }).await.unwrap();
    }
    grant(&app, &alice, hers, GrantRight::Read).await;
    let index = json!({"name": "closed", "members": [closed]});
    app.client.create_index(Json(serde_json::from_value(index).unwrap())).await.unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (whole, part) = (folder.path().join("whole"), folder.path().join("part"));
    let output = svc_as(&app, &alice, &["export", part.to_str().unwrap()]).await;
    assert!(output.status.success(), "{}", said(&output));
    let of: BTreeSet<i64> = rows(&part, "tokens.ndjson").iter().map(|row| row["document"].as_i64().unwrap()).collect();
    assert_eq!(of, BTreeSet::from([open, hers]));
    assert!(rows(&part, "indexes.ndjson").is_empty(), "indexes are the owner's to see");

    done(&app, &["export", whole.to_str().unwrap()]).await;
    let bob = someone(&other, "bob").await;
    let output = svc_as(&other, &bob, &["import", whole.to_str().unwrap()]).await;
    assert!(output.status.success(), "{}", said(&output));
    let imported: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&imported["tokens"]["created"], &imported["searches_left_out"]), (&json!(3), &json!(true)));
    // What is said to be of another text is given to nobody.
    let hash = rows(&whole, "tokens.ndjson")[0]["text_hash"].as_str().unwrap().to_owned();
    change(&whole, "tokens.ndjson", |text| text.replace(&hash, &format!("sha256:{}", "0".repeat(64))));
    let third = TestApp::start().await;
    let imported = done(&third, &["import", whole.to_str().unwrap()]).await;
    assert_eq!(
        (&imported["tokens"]["created"], &imported["tokens"]["left_out"], &imported["indexes"]["created"]),
        (&json!(2), &json!(1), &json!(1)),
        "{imported}"
    );

    of_the_first_form(&whole);
    let fourth = TestApp::start().await;
    let imported = done(&fourth, &["import", whole.to_str().unwrap()]).await;
    assert_eq!((&imported["documents"], &imported["tokens"]["created"]), (&json!(3), &json!(0)), "{imported}");
    for app in [app, other, third, fourth] {
        app.end().await;
    }
}
