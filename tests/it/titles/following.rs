//! The titles above the chunks of callers, when another tree takes the place of the one that these are in.
use super::{found, lamps, of_type, own_chunk, section, upload};
use crate::{
    edits::{get, patched},
    support::{TestApp, invariants, until},
};
use serde_json::json;
use std::collections::BTreeSet;
use svc_client::{
    OptionalJson,
    wire::{DocumentPath, ReprocessRequest},
};

/// Ingests a file again, and waits until its new tree has its place.
async fn reprocess(app: &TestApp, id: i64) {
    let options = Some(json!({"structure": {"max_tokens": 30}}));
    let request = ReprocessRequest { options, ..ReprocessRequest::default() };
    app.client.reprocess_file(DocumentPath { id }, OptionalJson(Some(request))).await.unwrap();
    until("the new tree", async || {
        let evidence = app.client.read_evidence(DocumentPath { id }).await.unwrap().evidence;
        (evidence.get("reprocess")?["state"] == "done").then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chunk_of_a_caller_is_found_by_the_titles_of_the_new_tree_alone() {
    let app = TestApp::start().await;
    let (file, tree) = upload(&app, "Lighthouses.md", lamps()).await;
    let zanzibar = section(&tree, "Zanzibar");
    let own = own_chunk(&app, "A heron.", zanzibar).await;
    patched(&app, zanzibar, json!({"title": "Madagascar"})).await;
    until("the new title", async || found(&app.client, "madagascar").await.contains(&own).then_some(())).await;
    reprocess(&app, file).await;
    assert_eq!(found(&app.client, "heron").await, BTreeSet::from([own]), "nothing is lost meanwhile");
    invariants::check_drained(&app.pool).await;
    let tree = app.subtree(file).await;
    assert_eq!(get(&app, own).await.parent_id, Some(section(&tree, "Zanzibar")));
    assert_eq!(found(&app.client, "madagascar").await, BTreeSet::new());
    assert!(found(&app.client, "zanzibar").await.contains(&own));
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_waits_for_the_titles_of_an_old_tree_is_done_after_the_new_one_took_its_place() {
    let app = TestApp::start().await;
    let (file, tree) = upload(&app, "Lighthouses.md", lamps()).await;
    let zanzibar = section(&tree, "Zanzibar");
    let own = own_chunk(&app, "A heron.", zanzibar).await;
    let beside = own_chunk(&app, "A coot.", file).await;
    app.client.pause_task_type(of_type("embed:titles")).await.unwrap();
    app.client.protect_document(DocumentPath { id: zanzibar }).await.unwrap();
    app.client.unprotect_document(DocumentPath { id: zanzibar }).await.unwrap();
    patched(&app, file, json!({"title": "Beacons.md"})).await;
    assert_eq!(found(&app.client, "heron").await, BTreeSet::new(), "it has neither its words nor its vector");
    reprocess(&app, file).await;
    app.client.resume_task_type(of_type("embed:titles")).await.unwrap();
    invariants::check_drained(&app.pool).await;
    assert_eq!(found(&app.client, "heron").await, BTreeSet::from([own]));
    let found = found(&app.client, "beacons").await;
    assert!(found.contains(&own) && found.contains(&beside), "{found:?}");
    app.end().await;
}
