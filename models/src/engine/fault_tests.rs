//! Tests texts without a vector, and a lost device, with an encoder whose faults the test sets.

use super::{
    queue_tests::{Vectors, described, document, until_depth},
    *,
};
use crate::{
    encoder::{Encoder, Place},
    sample,
};
use std::{
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    time::Duration,
};
use tokio::task::JoinHandle;

/// The id of the word whose output is not a number.
const FAR: u32 = 11;

/// Whether the device works, how often it was opened, and whether the first pass stays where it is once it has begun.
#[derive(Default)]
struct Faults {
    is_lost: AtomicU32,
    opened: AtomicU32,
    holds_first: AtomicBool,
    has_begun: AtomicBool,
}

/// An encoder, and how often the device had been opened again by then.
struct Faulty(Arc<Faults>, u32);

impl Encoder for Faulty {
    fn forward(&self, batch: &Ragged, _: Wanted, _: &dyn Place) -> Vec<f32> {
        let Self(faults, opened) = self;
        let is_first = !faults.has_begun.swap(true, Ordering::SeqCst);
        assert!(is_first || *opened == faults.opened.load(Ordering::SeqCst), "an encoder that was given up");
        while is_first && faults.holds_first.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        assert_eq!(faults.is_lost.load(Ordering::SeqCst), 0, "no device");
        let row = |ids: &[u32]| vec![if ids.contains(&FAR) { f32::NAN } else { 1.0 }; sample::HIDDEN];
        batch.sequences.iter().flat_map(|sequence| row(&batch.token_ids[sequence.clone()])).collect()
    }

    fn hidden_size(&self) -> usize {
        sample::HIDDEN
    }
}

fn faulty() -> (Engine, Arc<Faults>) {
    let faults = Arc::new(Faults::default());
    let again = Arc::clone(&faults);
    let open = move || -> Result<Arc<dyn Encoder>, ModelError> {
        let opened = again.opened.fetch_add(1, Ordering::SeqCst) + 1;
        Ok(Arc::new(Faulty(Arc::clone(&again), opened)))
    };
    let device = Watched::new(Arc::new(Faulty(Arc::clone(&faults), 0)), Box::new(open), Duration::from_millis(5));
    let (info, tokenizer) = described();
    let settings = ModelSettings { threads: 1, batch_size: 8, ..ModelSettings::default() };
    (Engine::start(info, tokenizer, device, Device::Cpu, &settings).unwrap(), faults)
}

#[tokio::test]
async fn texts_without_a_direction_are_named_and_the_others_have_their_vectors() {
    let (engine, _) = faulty();
    let texts = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
    let all = engine.embed_documents(texts(&["cat", "far", "sat", "mat far", "cat cat cat"])).await.unwrap_err();
    let ModelError::NoDirection { texts: poison } = all else { panic!("{all}") };
    assert_eq!(poison, [1, 3]);
    let others = engine.embed_documents(texts(&["cat", "sat", "cat cat cat"])).await.unwrap();
    assert_eq!(others.len(), 3);
    assert!(engine.ready().is_ok(), "a text is no fault of the device");
}

#[tokio::test]
async fn a_lost_device_makes_the_engine_unready_until_it_was_opened_again() {
    let (engine, faults) = faulty();
    let ask = || engine.embed_documents(vec!["cat".to_owned()]);
    // Two panics and a successful pass are not a streak.
    for is_lost in [1, 1, 0, 1, 1] {
        faults.is_lost.store(is_lost, Ordering::SeqCst);
        assert_eq!(ask().await.is_ok(), is_lost == 0);
    }
    assert!(engine.ready().is_ok());
    assert!(matches!(ask().await, Err(ModelError::ForwardPanicked { .. })));
    assert!(matches!(engine.ready(), Err(ModelError::DeviceLost { .. })));
    let refused = ask().await.unwrap_err();
    let ModelError::DeviceLost { message, retry_after } = refused else { panic!("{refused}") };
    assert!(message.contains("no device") && retry_after >= Duration::from_secs(1), "{message}");
    // Several attempts to open it fail.
    while faults.opened.load(Ordering::SeqCst) < 3 {
        tokio::task::yield_now().await;
    }
    assert!(engine.ready().is_err());
    faults.is_lost.store(0, Ordering::SeqCst);
    while engine.ready().is_err() {
        tokio::task::yield_now().await;
    }
    assert_eq!(ask().await.unwrap().len(), 1);
}

/// Queues so many calls; the first one is held until the test lets it go.
async fn held(engine: &Engine, faults: &Faults, count: usize) -> Vec<JoinHandle<Vectors>> {
    faults.holds_first.store(true, Ordering::SeqCst);
    let mut calls = vec![document(engine, "cat")];
    while !faults.has_begun.load(Ordering::SeqCst) {
        tokio::task::yield_now().await;
    }
    for waiting in 1..count {
        calls.push(document(engine, "cat"));
        until_depth(engine, waiting).await;
    }
    calls
}

#[tokio::test]
async fn a_pass_that_waits_while_the_device_is_lost_is_not_run() {
    let (engine, faults) = faulty();
    faults.is_lost.store(1, Ordering::SeqCst);
    let calls = held(&engine, &faults, 6).await;
    faults.holds_first.store(false, Ordering::SeqCst);
    for (at, call) in calls.into_iter().enumerate() {
        let failed = call.await.unwrap().unwrap_err();
        let is_as_expected = match &failed {
            ModelError::ForwardPanicked { .. } => at < 3,
            ModelError::DeviceLost { message, .. } => at >= 3 && message.contains("no device"),
            _ => false,
        };
        assert!(is_as_expected, "call {at}: {failed}");
    }
}

#[tokio::test]
async fn a_pass_that_waits_while_the_device_is_opened_again_runs_on_what_was_opened() {
    let (engine, faults) = faulty();
    let calls = held(&engine, &faults, 2).await;
    engine.lose_device("no device");
    while engine.ready().is_err() {
        tokio::task::yield_now().await;
    }
    faults.holds_first.store(false, Ordering::SeqCst);
    for call in calls {
        assert_eq!(call.await.unwrap().unwrap().len(), 1);
    }
}
