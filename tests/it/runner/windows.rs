//! A runner whose window is not the one that it told of.
use super::{KEY, Script, client, far, runner_with};
use crate::support::{TestApp, Wish, settings};
use svc::settings::model_settings;
use svc_client::wire::{DocumentPath, RunnerModelQuery, Settled};
use svc_models::Engine;

const BEFORE: u64 = 512;
const NOW: u64 = 128;

#[tokio::test]
async fn a_long_text_is_cut_by_the_window_that_the_runner_has_by_now() {
    let window = NOW.to_string();
    let small = settings(&[("SVC_EMBEDDING_DOC_WINDOW", window.as_str()), ("SVC_EMBEDDING_THREADS", "1")]);
    let runner = runner_with(Engine::load(&model_settings(&small)).unwrap()).await;
    // It was described before it was started anew.
    let described = client(&runner.base, KEY).runner_model(RunnerModelQuery { tokenizer: true }).await.unwrap();
    let mut described = serde_json::to_value(&described).unwrap();
    assert_eq!(described["model"]["document_window"], NOW);
    described["model"]["document_window"] = BEFORE.into();
    let described = described.to_string();
    let script = Script::before(&runner.base, move |path, _| {
        path.starts_with("/runner/model").then(|| (200, described.clone()))
    })
    .await;
    let mut patient = far(&script.base).to_vec();
    patient.push(("SVC_RUNNER_TIMEOUT_SECONDS", "300"));
    let far = TestApp::with(Wish { settings: &patient, ..Wish::default() }).await;
    let words: String = (0..60).map(|n| format!("Clerk {n} files the minutes of the meeting. ")).collect();
    // A word of so many letters is one token, which the model does not know.
    let long = format!("{} ", "heron".repeat(200)).repeat(1_060);
    let text = words + &long;
    assert!(text.len() > 1 << 20, "{}", text.len());
    let id = far.create("Report", &text, None).await.id;
    assert_eq!(far.settled(id).await.settled, Settled::Settled);
    let note = far.client.read_evidence(DocumentPath { id }).await.unwrap().evidence["embed"].clone();
    let [windows, tokens] = ["windows", "tokens"].map(|name| note[name].as_u64().unwrap());
    assert!(tokens > BEFORE && windows > tokens / NOW, "{note}");
    far.end().await;
    runner.end().await;
}
