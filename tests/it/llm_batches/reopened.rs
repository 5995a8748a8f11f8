//! Containers that edits put back in flight while their summaries wait for a provider.
use super::{app, finished, once, tasks, waiting};
use crate::{
    edits::patched,
    summarize::{children, section, upload},
    support::{
        batches::{BatchProvider, Ends},
        invariants, until,
    },
};
use serde_json::json;
use svc_client::wire::{DocumentPath, Settled, TaskStatus, TaskTypePath};

#[tokio::test]
async fn nobody_is_asked_of_a_container_before_its_edited_part_is_whole_again() {
    let (app, provider) = (app().await, BatchProvider::start().await);
    let text = section("Ovens", "oven", 30) + &section("Volcanoes", "volcano", 30);
    let file = upload(&app, &text, json!({})).await;
    waiting(&app, 1).await;
    once(&app, &provider, "openai", &[]).await;
    assert_eq!(tasks(&app, TaskStatus::Batched).await.len(), 1);
    let embed = || TaskTypePath { task_type: "embed".into() };
    app.client.pause_task_type(embed()).await.unwrap();
    let part = children(&app, file).await[0].id;
    let chunk = children(&app, part).await[0].id;
    patched(&app, chunk, json!({"content": "The glacier moved."})).await;
    once(&app, &provider, "openai", &[]).await;
    assert_eq!(provider.batches().len(), 1, "what is in flight would be missing from the question");
    assert!(tasks(&app, TaskStatus::Batched).await.is_empty());
    app.client.resume_task_type(embed()).await.unwrap();
    provider.end(Ends::Completed);
    assert_eq!(finished(&app, &provider, "openai", &[], file).await, Settled::Settled);
    let asked = provider.batches().pop().unwrap().requests[0].message.clone();
    assert!(asked.contains("The glacier moved.") && asked.contains("The volcano"), "{asked}");

    // A new title alone has a task leave its batch too.
    let text = section("Courts", "court", 30) + &section("Comets", "comet", 30);
    let file = upload(&app, &text, json!({})).await;
    waiting(&app, 1).await;
    once(&app, &provider, "openai", &[]).await;
    assert_eq!(tasks(&app, TaskStatus::Batched).await.len(), 1);
    let part = children(&app, file).await[0].id;
    let chunk = children(&app, part).await[0].id;
    patched(&app, chunk, json!({"title": "Another title"})).await;
    assert!(
        tasks(&app, TaskStatus::Batched).await.is_empty(),
        "it would keep the file in flight until the provider is done"
    );
    provider.end(Ends::Completed);
    assert_eq!(finished(&app, &provider, "openai", &[], file).await, Settled::Settled);
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn a_section_that_is_closed_or_renamed_while_its_batch_is_away_is_embedded_anew_at_once() {
    let (app, provider) = (app().await, BatchProvider::start().await);
    let text = section("Ovens", "oven", 80) + &section("Volcanoes", "volcano", 80);
    let file = upload(&app, &text, json!({})).await;
    waiting(&app, 2).await;
    once(&app, &provider, "openai", &[]).await;
    let batched = async || -> Vec<i64> {
        let mut ids: Vec<i64> = tasks(&app, TaskStatus::Batched).await.iter().map(|task| task.document_id).collect();
        ids.sort_unstable();
        ids
    };
    let mut sections: Vec<i64> = children(&app, file).await.iter().map(|section| section.id).collect();
    sections.sort_unstable();
    assert_eq!(batched().await, sections);
    let embedded = async |count: i64| {
        until("the chunks with their titles", async || {
            let done = "SELECT count(*) FROM task_queue WHERE task_type = 'embed:titles' AND status = 'completed'";
            (sqlx::query_scalar::<_, i64>(done).fetch_one(&app.pool).await.unwrap() == count).then_some(())
        })
        .await;
    };
    app.client.protect_document(DocumentPath { id: sections[0] }).await.unwrap();
    assert_eq!(batched().await, sections[1..], "the other one has paid for its question");
    embedded(1).await;
    patched(&app, sections[1], json!({"title": "Craters"})).await;
    assert!(batched().await.is_empty());
    embedded(2).await;
    provider.end(Ends::Completed);
    assert_eq!(finished(&app, &provider, "openai", &[], file).await, Settled::Settled);
    invariants::check_drained(&app.pool).await;
    app.end().await;
}
