//! Tests texts without a vector, and a lost device, with an encoder whose faults the test sets.

use super::{queue_tests::described, *};
use crate::{
    encoder::{Encoder, Place},
    sample,
};
use std::{
    sync::atomic::{AtomicU32, Ordering},
    time::Duration,
};

/// The id of the word whose output is not a number.
const FAR: u32 = 11;

/// Whether the device works, and how often it was opened.
#[derive(Default)]
struct Faults {
    is_lost: AtomicU32,
    opened: AtomicU32,
}

struct Faulty(Arc<Faults>);

impl Encoder for Faulty {
    fn forward(&self, batch: &Ragged, _: Wanted, _: &dyn Place) -> Vec<f32> {
        assert_eq!(self.0.is_lost.load(Ordering::SeqCst), 0, "no device");
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
        again.opened.fetch_add(1, Ordering::SeqCst);
        Ok(Arc::new(Faulty(Arc::clone(&again))))
    };
    let device = Watched::new(Arc::new(Faulty(Arc::clone(&faults))), Box::new(open), Duration::from_millis(5));
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
