//! Token vectors that the options of a file ask for. No index of these tests keeps any.
use crate::{
    crash::worker_command,
    edits::patched,
    members::archive,
    support::{TestApp, Wish, invariants},
};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use svc_client::{
    Code, FileUpload, Json, OptionalJson,
    wire::{DocumentPath, EmbedOptions, MaxsimSearch, ReprocessRequest, SearchResult, Settled, UploadQuery},
};

const LOAVES: &str = "# Loaves\n\nA loaf is put into the oven after an hour.\n\n# Rolls\n\nRolls are quick to bake.\n";
const CAKES: &str =
    "# Cakes\n\nA cake is put into the oven at once.\n\n# Pies\n\nPies are baked with a lid of dough.\n";

fn asking() -> Value {
    json!({"embed": {"tokens": true}})
}

/// Uploads a file and waits for its tree.
async fn ingested(app: &TestApp, name: &str, bytes: impl Into<bytes::Bytes>, options: Option<Value>) -> i64 {
    let upload = FileUpload::from_bytes(name, bytes, options);
    let id = app.client.upload_file(UploadQuery::default(), upload).await.unwrap().document_id;
    let frontier = app.settled(id).await;
    assert_eq!((frontier.settled, frontier.nodes_failed), (Settled::Settled, 0), "{frontier:?}");
    id
}

/// The leaves with a text under a file, and those of them that have token vectors.
async fn leaves(app: &TestApp, id: i64) -> (BTreeSet<i64>, BTreeSet<i64>) {
    let rows: Vec<(i64, bool)> = sqlx::query_as(
        "SELECT d.id, EXISTS (SELECT FROM token_packs p WHERE p.document_id = d.id) FROM documents d
          WHERE d.path @> ARRAY[$1::bigint] AND d.content <> ''
            AND NOT EXISTS (SELECT FROM ingest_node n WHERE n.document_id = d.id)",
    )
    .bind(id)
    .fetch_all(&app.pool)
    .await
    .unwrap();
    let with = rows.iter().filter(|(_, has_tokens)| *has_tokens).map(|(id, _)| *id).collect();
    (rows.into_iter().map(|(id, _)| id).collect(), with)
}

/// How many tokens of a document are stored.
async fn tokens(app: &TestApp, id: i64) -> i64 {
    sqlx::query_scalar("SELECT count(*) FROM token_embeddings WHERE document_id = $1")
        .bind(id)
        .fetch_one(&app.pool)
        .await
        .unwrap()
}

fn ids(results: &[&SearchResult]) -> BTreeSet<i64> {
    results.iter().map(|result| result.document.id).collect()
}

#[tokio::test]
async fn the_leaves_of_a_file_that_asks_for_token_vectors_have_them_when_it_is_settled() {
    let app = TestApp::start().await;
    let asked = ingested(&app, "loaves.md", LOAVES, Some(asking())).await;
    let other = ingested(&app, "cakes.md", CAKES, None).await;
    let (all, with) = leaves(&app, asked).await;
    assert!(all.len() > 1 && all == with, "{all:?} {with:?}");
    let (of_other, none) = leaves(&app, other).await;
    assert!(of_other.len() > 1 && none.is_empty(), "{of_other:?} {none:?}");
    let search = MaxsimSearch { limit: 100, ..MaxsimSearch::new("put into the oven") };
    let found = app.client.search_maxsim(Json(search)).await.unwrap().results;
    let (without, ranked): (Vec<_>, Vec<_>) = found.iter().partition(|result| result.no_tokens);
    assert!(!found[0].no_tokens && ids(&ranked) == all, "{ranked:?}");
    assert!(of_other.is_subset(&ids(&without)), "{without:?}");
    // What a caller puts under a part of the file is no part of it.
    let section = app.subtree(asked).await.into_iter().find(|node| node.usetype == "section").unwrap().id;
    let guest = app.create("Guest", "A caller's remark on loaves.", Some(section)).await.id;
    assert_eq!(tokens(&app, guest).await, 0);
    // Records of a sheet are leaves too, and the files of an archive have its options.
    let counts = "Pond,Ducks,Warden\nMill lock,1204,Ada\nOld quay,17,Bertram\nUpper pond,9,Cyprian\n";
    let packed = archive(&[
        ("tarts.md", "# Tarts\n\nA tart is a flat pie without a lid of dough.\n"),
        ("buns.md", "# Buns\n\nA bun is small, round and mostly sweet.\n"),
    ]);
    let files: [(&str, bytes::Bytes); 2] = [("counts.csv", counts.into()), ("packed.zip", packed.into())];
    for (name, bytes) in files {
        let id = ingested(&app, name, bytes, Some(asking())).await;
        let (all, with) = leaves(&app, id).await;
        assert!(all.len() > 1 && all == with, "{name}: {all:?} {with:?}");
    }
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn an_edited_chunk_of_such_a_file_has_the_token_vectors_of_its_new_text() {
    let app = TestApp::start().await;
    let file = ingested(&app, "loaves.md", LOAVES, Some(asking())).await;
    let chunk = app.subtree(file).await.into_iter().find(|node| node.usetype == "chunk").unwrap().id;
    let edited = async |content: &str| {
        patched(&app, chunk, json!({"content": content})).await;
        app.settled(file).await;
        tokens(&app, chunk).await
    };
    let words = edited("Yeast needs warmth.").await;
    assert!((1..=4).contains(&words), "{words}");
    let long: String = (0..300).map(|n| format!("word{n} and more words here ")).collect();
    assert_eq!(edited(&long).await, 0, "it is longer than the model's window");
    // The options ask for them, whatever the text before had.
    assert!(edited("Dough rests before the oven.").await > 0);
    app.end().await;
}

#[tokio::test]
async fn a_reprocess_makes_token_vectors_or_removes_them_as_its_options_say() {
    let app = TestApp::start().await;
    let id = ingested(&app, "loaves.md", LOAVES, None).await;
    assert!(leaves(&app, id).await.1.is_empty());
    let other = FileUpload::from_bytes("loaves.md", LOAVES, Some(asking()));
    let refused = app.client.upload_file(UploadQuery::default(), other).await.unwrap_err();
    assert_eq!(refused.code, Code::StoredWithOtherOptions);
    assert_eq!(refused.members["requested_options"]["embed"], json!({"tokens": true}));
    assert_eq!(refused.members["stored_options"]["embed"], json!({"tokens": false}));
    for (options, expected) in [(asking(), true), (json!({}), false)] {
        let request = ReprocessRequest { options: Some(options), replace: false };
        app.client.reprocess_file(DocumentPath { id }, OptionalJson(Some(request))).await.unwrap();
        app.settled(id).await;
        let evidence = app.client.read_evidence(DocumentPath { id }).await.unwrap().evidence;
        assert_eq!(
            (&evidence["reprocess"]["state"], &evidence["options"]["embed"]["tokens"]),
            (&json!("done"), &json!(expected))
        );
        let (all, with) = leaves(&app, id).await;
        let wanted = if expected { all.clone() } else { BTreeSet::new() };
        assert!(all.len() > 1 && with == wanted, "{all:?} {with:?}");
    }
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_does_not_start_with_widths_that_its_model_lacks() {
    let app = TestApp::with(Wish { no_worker: true, ..Wish::default() }).await;
    let mut worker = worker_command(&app, 0);
    worker.arg("--drain").env("SVC_TOKEN_EMBED_DIMS", "[512]");
    let ended = tokio::task::spawn_blocking(move || worker.output()).await.unwrap().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(!ended.status.success() && said.contains("take of 256, 384"), "{said}");
    app.end().await;
}

#[tokio::test]
async fn a_file_that_asks_for_token_vectors_is_ingested_without_them_where_none_are_stored() {
    for widths in ["[]", "[512]"] {
        let app = TestApp::with(Wish { settings: &[("SVC_TOKEN_EMBED_DIMS", widths)], ..Wish::default() }).await;
        let id = ingested(&app, "loaves.md", LOAVES, Some(asking())).await;
        let (all, with) = leaves(&app, id).await;
        assert!(all.len() > 1 && with.is_empty(), "{widths}: {with:?}");
        let found: i64 = sqlx::query_scalar("SELECT count(*) FROM document_vectors WHERE document_id = ANY($1)")
            .bind(all.iter().copied().collect::<Vec<_>>())
            .fetch_one(&app.pool)
            .await
            .unwrap();
        assert_eq!(found, all.len() as i64, "{widths}");
        let searched = app.client.search_maxsim(Json(MaxsimSearch::new("oven"))).await.unwrap_err();
        let leaf = DocumentPath { id: all.into_iter().next().unwrap() };
        let asked = app.client.embed_tokens(leaf).await.unwrap_err();
        let embed =
            async |with_tokens| app.client.embed_document(leaf, EmbedOptions { with_tokens }, OptionalJson(None)).await;
        let with_tokens = embed(Some(true)).await.unwrap_err();
        assert!(with_tokens.members["remedy"].as_str().unwrap().contains("with_tokens=false"), "{with_tokens:?}");
        for refused in [searched, asked, with_tokens] {
            assert_eq!(refused.code, Code::NotConfigured, "{widths}: {refused:?}");
            assert_eq!(refused.members["setting"], "SVC_TOKEN_EMBED_DIMS");
        }
        // Whoever says nothing of them gets what can be made.
        let embedded = embed(None).await.unwrap();
        assert_eq!((embedded.embedded, embedded.with_tokens, embedded.token_count), (true, false, 0), "{widths}");
        app.settled(id).await;
        invariants::check_drained(&app.pool).await;
        app.end().await;
    }
}
