//! What callers bound to parts of a file, and what they asked for of these, when another tree takes its place.
use super::*;
use crate::{
    extraction, ontologies, shape_bindings,
    support::llm::{Llm, Reply},
};
use svc_client::wire::{ExtractFactsRequest, OntologyQuery, ShapeBindingPath, ShapeMode};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shape_that_was_bound_to_a_part_guards_its_successor_and_one_without_is_listed() {
    let app = TestApp::start().await;
    ontologies::load(&app.client, OntologyQuery::default(), shape_bindings::SHAPES).await.unwrap();
    let id = ingested(&app, None).await;
    let tree = app.subtree(id).await;
    let (section, chunk) = (of(&tree, "section", "Herons")[0], of(&tree, "chunk", "Herons")[0]);
    let shape = "http://example.org/PersonShape";
    let bound = shape_bindings::bind(&app.client, shape, Some(section), Some(ShapeMode::Reject)).await.unwrap();
    let lost = shape_bindings::bind(&app.client, shape, Some(chunk), None).await.unwrap();
    reprocess(&app, id, short(), false).await.unwrap();
    app.settled(id).await;

    let section = of(&app.subtree(id).await, "section", "Herons")[0];
    let read = async |id: i64| app.client.read_shape_binding(ShapeBindingPath { id }).await;
    let now = read(bound.id).await.unwrap();
    assert_eq!((now.document_id, now.mode), (Some(section), ShapeMode::Reject));
    assert_eq!(read(lost.id).await.unwrap_err().code, Code::NotFound);
    let told = evidence(&app, id, "reprocess").await;
    assert_eq!((&told["bindings_followed"], &told["bindings_lost"]), (&json!(1), &json!(1)));
    let listed = &told["lost_bindings"][0];
    assert_eq!(
        (&listed["binding_id"], &listed["document_id"], &listed["shape"], &listed["mode"]),
        (&json!(lost.id), &json!(chunk), &json!(shape), &json!("warn"))
    );
    // Who may read the file is told nothing of an ontology that it may not read.
    let reader = someone(&app, "reader").await;
    grant(&app, &reader, id, GrantRight::Read).await;
    app.client.protect_document(DocumentPath { id: lost.ontology_id }).await.unwrap();
    let shown = reader.client.read_evidence(DocumentPath { id }).await.unwrap().evidence;
    assert_eq!(shown["reprocess"]["lost_bindings"], json!([]));
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn facts_that_are_still_to_be_extracted_are_extracted_of_what_stays_and_of_successors() {
    let llm = Llm::start().await;
    llm.will_say(|call| match call.body.get("response_format") {
        Some(_) => extraction::facts(&[]),
        None => Reply::said("Birds stand in the reeds."),
    });
    let app = extraction::app(&llm, &[]).await;
    let id = ingested(&app, None).await;
    let section = of(&app.subtree(id).await, "section", "Herons")[0];
    let guest = app.create("Guest", "A caller's remark on herons.", Some(section)).await.id;
    pause(&app, "extract:facts").await;
    let extract = async || {
        let asked = app.client.extract_facts(DocumentPath { id }, WaitQuery::default(), OptionalJson(None)).await;
        asked.unwrap().tasks
    };
    let reprocessed = async || {
        let begun = json!(reprocess(&app, id, short(), false).await.unwrap().started_at);
        until("the new tree", async || {
            let told = evidence(&app, id, "reprocess").await;
            (told["state"] == "done" && told["started_at"] == begun).then_some(told)
        })
        .await
    };
    let tasks = async |status: Option<TaskStatus>| -> BTreeSet<i64> {
        let task_type = Some("extract:facts".to_owned());
        let query = TaskQuery { root_id: Some(id), task_type, status, ..TaskQuery::default() };
        app.client.list_tasks(query).await.unwrap().tasks.iter().map(|task| task.document_id).collect()
    };

    // No chunk of the new options begins and ends where one of the old ones did.
    let asked = extract().await;
    assert!(asked > 2, "{asked}");
    assert_eq!(reprocessed().await["extractions_lost"], asked - 1);
    assert_eq!(tasks(None).await, BTreeSet::from([guest]));
    // With the same options every chunk has a successor.
    let asked = extract().await;
    assert_eq!(reprocessed().await["extractions_lost"], 0);
    let texts = app.subtree(id).await.into_iter().filter(|node| !node.content.is_empty()).map(|node| node.id);
    let texts: BTreeSet<i64> = texts.collect();
    assert_eq!((tasks(None).await, asked), (texts.clone(), texts.len() as i64));
    invariants::check(&app.pool).await;
    resume(&app, "extract:facts").await;
    app.settled(id).await;
    assert_eq!(tasks(Some(TaskStatus::Completed)).await, texts);
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_for_facts_is_told_of_those_of_the_new_tree_alone() {
    let llm = Llm::start().await;
    llm.will_say(|call| match call.body.get("response_format") {
        Some(_) => extraction::facts(&[extraction::said(json!({"quote": "No text says this"}))]),
        None => Reply::said("Birds stand in the reeds."),
    });
    let app = extraction::app(&llm, &[]).await;
    let id = ingested(&app, None).await;
    let chunks: Vec<i64> =
        app.subtree(id).await.iter().filter(|node| node.usetype == "chunk").map(|node| node.id).collect();
    let first = extraction::extract(&app.client, id, ExtractFactsRequest::default()).await;
    assert_eq!(first.dropped.values().sum::<i64>(), chunks.len() as i64);

    pause(&app, "extract:facts").await;
    let again = tokio::spawn({
        let client = app.client.clone();
        async move { extraction::extract(&client, id, ExtractFactsRequest::default()).await }
    });
    let open = "SELECT count(*) FROM task_queue WHERE task_type = 'extract:facts' AND NOT final";
    until("the tasks", async || {
        (sqlx::query_scalar::<_, i64>(open).fetch_one(&app.pool).await.unwrap() == chunks.len() as i64).then_some(())
    })
    .await;
    // The old tree can be moved, and not deleted.
    let mut held = app.pool.begin().await.unwrap();
    sqlx::query("SELECT id FROM documents WHERE id = ANY($1) FOR KEY SHARE")
        .bind(&chunks)
        .execute(&mut *held)
        .await
        .unwrap();
    reprocess(&app, id, json!({}), false).await.unwrap();
    until("the new tree", async || (evidence(&app, id, "reprocess").await["state"] == "done").then_some(())).await;
    resume(&app, "extract:facts").await;
    let told = again.await.unwrap();
    assert_eq!((told.facts, told.failed, &told.dropped), (0, 0, &first.dropped));
    let left: i64 = sqlx::query_scalar("SELECT count(*) FROM documents WHERE id = ANY($1)")
        .bind(&chunks)
        .fetch_one(&mut *held)
        .await
        .unwrap();
    assert_eq!(left, chunks.len() as i64, "the old tree is still there");
    held.rollback().await.unwrap();
    invariants::check_drained(&app.pool).await;
    app.end().await;
}
