//! Containers that edits put back in flight while their summaries wait for a provider.
use super::{app, finished, once, tasks, waiting};
use crate::{
    edits::patched,
    summarize::{children, section, upload},
    support::{
        batches::{BatchProvider, Ends},
        invariants,
    },
};
use serde_json::json;
use svc_client::wire::{Settled, TaskStatus, TaskTypePath};

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
