//! Documents whose tasks were cancelled, and what embeds them all the same.
use super::{by_meaning, by_words, derived, patched};
use crate::support::{TestApp, document, until};
use serde_json::json;
use svc_client::{
    Json, OptionalJson,
    wire::{DocumentPath, EmbedOptions, NewDocument, TaskPath, TaskTypePath, WaitQuery},
};

fn embed() -> TaskTypePath {
    TaskTypePath { task_type: "embed".into() }
}

/// The tasks at a document that are to embed texts.
async fn waiting(app: &TestApp, id: i64) -> Vec<i64> {
    sqlx::query_scalar("SELECT id FROM task_queue WHERE scope_document_id = $1 AND task_type = 'embed' AND NOT final")
        .bind(id)
        .fetch_all(&app.pool)
        .await
        .unwrap()
}

/// Cancels the task that is to embed a document, which has not begun because tasks of its type are paused.
async fn cancelled(app: &TestApp, id: i64) {
    let tasks = waiting(app, id).await;
    assert_eq!(tasks.len(), 1);
    app.client.cancel_task(TaskPath { id: tasks[0] }).await.unwrap();
    assert_eq!(waiting(app, id).await, [0; 0]);
}

async fn add(app: &TestApp, parent_id: Option<i64>, content: &str) -> i64 {
    let new = NewDocument { parent_id, ..document("Note", content) };
    app.client.create_document(WaitQuery::default(), Json(new)).await.unwrap().id
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_note_among_texts_that_wait_to_be_embedded_has_a_task_of_its_own_after_an_edit() {
    let app = TestApp::start().await;
    app.client.pause_task_type(embed()).await.unwrap();
    let text = "# Herons\n\nThe heron waits.\n\n# Ducks\n\nA duck dives.\n\n# Geese\n\nThe geese fly south.\n";
    let file = app.upload_bytes("birds.md", text).await.unwrap().document_id;
    let mut sections = until("the sections", async || {
        let nodes = app.subtree(file).await;
        let sections: Vec<i64> = nodes.iter().filter(|node| node.usetype == "section").map(|node| node.id).collect();
        (sections.len() == 3).then_some(sections)
    })
    .await;
    assert_eq!(waiting(&app, file).await.len(), 1, "one task is to embed the texts of all sections");
    // Regions are compared as texts: what is under this section lies between the texts of the two others.
    sections.sort_by_key(i64::to_string);
    let note = add(&app, Some(sections[1]), "Yeast fills the dough with bubbles of gas.").await;
    cancelled(&app, note).await;
    patched(&app, note, json!({"content": "Sourdough needs no yeast from a shop."})).await;
    assert_eq!(waiting(&app, note).await.len(), 1);
    app.client.resume_task_type(embed()).await.unwrap();
    app.settled(file).await;
    until("the new text to be found", async || {
        let is_found = by_words(&app, "sourdough").await.1 == [note];
        (is_found && by_meaning(&app, "how to bake bread").await.contains(&note)).then_some(())
    })
    .await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_document_that_is_embedded_on_request_is_found_by_its_words_too() {
    let app = TestApp::start().await;
    app.client.pause_task_type(embed()).await.unwrap();
    let embedded = async |id: i64| {
        let path = DocumentPath { id };
        app.client.embed_document(path, EmbedOptions::default(), OptionalJson(None)).await.unwrap()
    };
    let id = add(&app, None, "The moon pulls the oceans along the coast.").await;
    cancelled(&app, id).await;
    assert!(embedded(id).await.embedded);
    assert_eq!(by_words(&app, "oceans").await, (vec![id], vec![id]));
    patched(&app, id, json!({"content": "Yeast fills the dough with bubbles of gas."})).await;
    cancelled(&app, id).await;
    assert_eq!(by_words(&app, "yeast").await, (vec![id], vec![]), "postings come with the vector");
    embedded(id).await;
    assert_eq!(by_words(&app, "yeast").await, (vec![id], vec![id]));
    assert_eq!(by_words(&app, "oceans").await, (vec![], vec![]));
    assert_eq!(by_meaning(&app, "baking").await, [id]);
    embedded(id).await;
    assert_eq!(derived(&app, id).await, [1, 1, 1, 1], "what is embedded twice is indexed once");
    app.end().await;
}
