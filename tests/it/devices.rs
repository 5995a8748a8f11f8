//! A model whose device is lost.
use crate::{
    admin::of_root,
    support::{self, TestApp, Wish, invariants, sample, server, settings, until},
};
use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};
use svc::settings::model_settings;
use svc_client::{
    Code, Json,
    wire::{BlockedBy, Settled, VectorSearch},
};
use svc_models::{Engine, ModelSettings, default_models_dir};

const WEIGHTS: &str = "model.safetensors";

fn small_model() -> PathBuf {
    default_models_dir().unwrap().join("all-MiniLM-L6-v2")
}

/// The small model in a folder of its own, from which its weights can be taken, so that its device cannot be opened again.
fn engine(folder: &Path) -> Engine {
    fs::create_dir_all(folder).unwrap();
    for file in ["config.json", "tokenizer.json", "1_Pooling", WEIGHTS] {
        symlink(small_model().join(file), folder.join(file)).unwrap();
    }
    let settings = ModelSettings { model: folder.display().to_string(), ..model_settings(&settings(&[])) };
    Engine::load(&settings).expect("the model of `make setup`")
}

#[tokio::test]
async fn readiness_watches_the_device_of_the_model_that_serves() {
    for coming_is_lost in [true, false] {
        let folder = server::work_dir().join(format!("lost-device-{coming_is_lost}"));
        let lost = engine(&folder);
        let (old, coming) = match coming_is_lost {
            true => (support::engine(), lost.clone()),
            false => (lost.clone(), support::engine()),
        };
        let serving = coming.info().identity.clone();
        let from = old.info().identity.clone();
        assert_ne!(serving, from, "the folder is a part of the model's name");
        let app = TestApp::with(Wish { engine: Some(old), coming: Some(coming), ..Wish::default() }).await;
        sqlx::query(
            "INSERT INTO model_moves (serving, from_model, to_model, replaced, state, wanted) VALUES ($2, $1, $2, ARRAY[$1], 'done', 1)",
        )
        .bind(&from)
        .bind(&serving)
        .execute(&app.pool)
        .await
        .unwrap();
        let ready = async || {
            app.sampled().await;
            app.client.read_readiness().await
        };
        let is_told = async || ready().await.ok().filter(|ready| ready.models[0].identity == serving);
        until("the model that serves to be told of", is_told).await;
        fs::remove_file(folder.join(WEIGHTS)).unwrap();
        lost.lose_device("the processor fell off the bus");
        match (coming_is_lost, ready().await) {
            (true, Err(unready)) => assert!(unready.detail.contains("model: the model's device is lost"), "{unready}"),
            (true, Ok(ready)) => panic!("the model that serves is gone: {ready:?}"),
            // Nobody works with the other one.
            (false, Err(unready)) => assert!(!unready.detail.contains("model:"), "{unready}"),
            (false, Ok(ready)) => assert_eq!(ready.models[0].identity, serving),
        }
        symlink(small_model().join(WEIGHTS), folder.join(WEIGHTS)).unwrap();
        until("the device to be open again", async || lost.ready().ok()).await;
        until("the service to be ready", is_told).await;
        app.end().await;
    }
}

#[tokio::test]
async fn tasks_wait_for_a_lost_device_without_an_attempt_and_ready_says_so_until_it_is_open_again() {
    let folder = server::work_dir().join("lost-device");
    let engine = engine(&folder);
    let app = TestApp::with(Wish { engine: Some(engine.clone()), ..Wish::default() }).await;
    fs::remove_file(folder.join(WEIGHTS)).unwrap();
    engine.lose_device("the processor fell off the bus");

    let id = app.upload(&sample("handbook.md")).await.unwrap().document_id;
    let waiting = until("a task that is put off", async || {
        let tasks = app.client.list_tasks(of_root(id)).await.unwrap().tasks;
        tasks.into_iter().find(|task| task.blocked_by.as_ref().is_some_and(|why| why.reason == BlockedBy::Backoff))
    })
    .await;
    assert_eq!((waiting.retry_count, waiting.finished), (0, false), "{waiting:?}");
    let spent: i64 = sqlx::query_scalar("SELECT count(*) FROM task_attempts WHERE task_id = $1")
        .bind(waiting.id)
        .fetch_one(&app.pool)
        .await
        .unwrap();
    assert_eq!(spent, 0);
    app.sampled().await;
    let failure = app.client.read_readiness().await.unwrap_err();
    assert!(failure.status == 503 && failure.detail.contains("model: the model's device is lost"), "{failure}");
    assert!(!failure.detail.contains("bus"), "anyone may ask: {failure}");
    let failure = app.client.search_vector(Json(VectorSearch::new("gauge"))).await.unwrap_err();
    assert!(failure.code == Code::Unavailable && failure.members.contains_key("retry_after"), "{failure}");

    symlink(small_model().join(WEIGHTS), folder.join(WEIGHTS)).unwrap();
    assert_eq!(app.settled(id).await.settled, Settled::Settled);
    app.sampled().await;
    app.client.read_readiness().await.unwrap();
    app.client.search_vector(Json(VectorSearch::new("gauge"))).await.unwrap();
    invariants::check_drained(&app.pool).await;
    app.end().await;
}
