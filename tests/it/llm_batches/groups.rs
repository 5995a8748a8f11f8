//! The groups of answers that are applied together.
use super::{
    app, effective, finished,
    keeper::keeper,
    once, tasks,
    together::{COMPLETED, batching, files, held, together, transactions},
    waiting,
};
use crate::{
    summarize::{children, section, upload},
    support::{
        TestApp,
        batches::{BatchProvider, Ends, Says},
        invariants, until, until_a_statement_waits,
    },
};
use serde_json::json;
use std::sync::Arc;
use svc::{
    llm_batches::{Batching, ProviderName},
    store::llm_batches::BatchCaps,
    worker::together::Together,
};
use svc_client::{
    FileUpload,
    wire::{Settled, TaskStatus, UploadQuery},
};

/// Batches of two requests at most, so that the answers of a few files are several groups.
fn small_batching() -> Arc<Batching> {
    let caps = BatchCaps { requests: 2, ..ProviderName::Anthropic.caps() };
    Batching::new(ProviderName::Anthropic, "batch-model".to_owned(), caps)
}

/// Has the tasks that wait asked of in so many batches, and keeps the answers. Returns the documents that were asked of, in the order of their batches.
async fn answered(
    app: &TestApp,
    provider: &BatchProvider,
    (together, batching): (&Together, &Arc<Batching>),
    batches: i64,
) -> Vec<i64> {
    let spool = tempfile::tempdir().unwrap();
    let mut keeper = keeper(app, provider, batching, spool.path());
    assert!(together.ask().await, "nothing has to be asked of alone");
    until("the answers", async || {
        keeper.pass(true).await.unwrap();
        let ended = "SELECT count(*) FROM llm_batches WHERE state = 'ended'";
        let ended: i64 = sqlx::query_scalar(ended).fetch_one(&app.pool).await.unwrap();
        (ended == batches).then_some(())
    })
    .await;
    let asked = "SELECT document_id FROM llm_batch_requests ORDER BY batch_id, document_id";
    sqlx::query_scalar(asked).fetch_all(&app.pool).await.unwrap()
}

#[tokio::test]
async fn the_answers_of_several_batches_are_applied_in_a_transaction_for_each() {
    let (app, provider, batching) = (app().await, BatchProvider::start().await, small_batching());
    provider.ends_at_once();
    let together = together(&app, batching.clone());
    let files = files(&app, &["oven", "volcano", "heron", "bridge", "court"]).await;
    answered(&app, &provider, (&together, &batching), 3).await;
    together.apply().await;
    for file in files {
        assert_eq!(app.settled(file).await.settled, Settled::Settled);
        assert_eq!(effective(&app, file).await["method"], "llm_summary");
    }
    assert_eq!(transactions(&app, COMPLETED).await, 3);
    together.stop().await;
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn a_group_that_waits_for_somebody_keeps_no_group_of_other_trees_from_being_applied() {
    let (app, provider, batching) = (app().await, BatchProvider::start().await, small_batching());
    provider.ends_at_once();
    let together = together(&app, batching.clone());
    files(&app, &["oven", "volcano", "heron", "bridge"]).await;
    let asked = answered(&app, &provider, (&together, &batching), 2).await;
    let held = held(&app, asked[0]).await;
    let applies = together.clone();
    let applying = tokio::spawn(async move { applies.apply().await });
    for file in &asked[2..] {
        assert_eq!(app.settled(*file).await.settled, Settled::Settled);
    }
    assert!(!applying.is_finished(), "the first group still waits");
    assert_eq!(tasks(&app, TaskStatus::Batched).await.len(), 2);
    held.rollback().await.unwrap();
    applying.await.unwrap();
    for file in asked {
        assert_eq!(app.settled(file).await.settled, Settled::Settled);
        assert_eq!(effective(&app, file).await["method"], "llm_summary");
    }
    assert_eq!(transactions(&app, COMPLETED).await, 2);
    together.stop().await;
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn groups_of_one_tree_are_applied_one_after_the_other_and_leave_nobody_out() {
    let (app, provider, batching) = (app().await, BatchProvider::start().await, small_batching());
    provider.ends_at_once();
    let together = together(&app, batching.clone());
    let folder = app.create("Folder", "Files lie here.", None).await.id;
    for subject in ["oven", "volcano", "heron", "bridge", "court", "comet"] {
        let query = UploadQuery { parent_id: Some(folder), ..UploadQuery::default() };
        let file = FileUpload::from_bytes(&format!("{subject}.md"), section("", subject, 80), None);
        app.client.upload_file(query, file).await.unwrap();
    }
    waiting(&app, 6).await;
    let asked = answered(&app, &provider, (&together, &batching), 3).await;
    let held = held(&app, asked[1]).await;
    let applies = together.clone();
    let applying = tokio::spawn(async move { applies.apply().await });
    until_a_statement_waits(&app.pool).await;
    held.rollback().await.unwrap();
    applying.await.unwrap();
    assert!(tasks(&app, TaskStatus::Batched).await.is_empty(), "none is left to a task of its own");
    for file in asked {
        assert_eq!(app.settled(file).await.settled, Settled::Settled);
        assert_eq!(effective(&app, file).await["method"], "llm_summary");
    }
    assert_eq!(transactions(&app, COMPLETED).await, 3);
    together.stop().await;
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

/// Whoever applies an answer need not look for what was asked of.
#[tokio::test]
async fn a_question_keeps_the_texts_that_it_is_made_of_in_their_order() {
    let (app, provider, batching) = (app().await, BatchProvider::start().await, batching());
    provider.ends_at_once();
    let together = together(&app, batching.clone());
    let options = json!({"structure": {"max_tokens": 200}, "rollup": {"max_children": 1000}});
    let file = upload(&app, &section("", "oven", 80), options).await;
    waiting(&app, 1).await;
    answered(&app, &provider, (&together, &batching), 1).await;
    let kept: Vec<i64> =
        sqlx::query_scalar("SELECT sources FROM llm_batch_requests").fetch_one(&app.pool).await.unwrap();
    let chunks: Vec<i64> = children(&app, file).await.iter().map(|chunk| chunk.id).collect();
    assert!(chunks.len() > 2, "{chunks:?}");
    assert_eq!(kept, chunks);
    together.apply().await;
    assert_eq!(app.settled(file).await.settled, Settled::Settled);
    assert_eq!(effective(&app, file).await["method"], "llm_summary");
    together.stop().await;
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

#[tokio::test]
async fn an_answer_that_does_not_fit_the_window_is_asked_for_again_and_holds_no_other_up() {
    let (app, provider) = (app().await, BatchProvider::start().await);
    let files = files(&app, &["oven", "volcano", "heron"]).await;
    once(&app, &provider, "openai", &[]).await;
    provider.will_say(|asked| {
        let about = |subject: &str| asked.message.contains(&format!("The {subject} of"));
        // One of them has too many bytes to be read with others.
        let hot = [("oven", 300), ("volcano", 1000)].into_iter().find(|(subject, _)| about(subject));
        Says::Text(hot.map_or_else(|| "Herons eat fish.".to_owned(), |(_, times)| "It is hot here. ".repeat(times)))
    });
    provider.end(Ends::Completed);
    once(&app, &provider, "openai", &[]).await;
    assert_eq!(app.settled(files[2]).await.settled, Settled::Settled);
    assert_eq!(effective(&app, files[2]).await["text"], "Herons eat fish.");
    assert_eq!(tasks(&app, TaskStatus::Batched).await.len(), 2, "they are asked for shorter ones");
    provider.will_say(|_| Says::Text("It is hot.".to_owned()));
    for file in &files[..2] {
        assert_eq!(finished(&app, &provider, "openai", &[], *file).await, Settled::Settled);
        assert_eq!(effective(&app, *file).await["text"], "It is hot.");
    }
    invariants::check_drained(&app.pool).await;
    app.end().await;
}
