//! Tests turns, bounds, cancellation and panics with an encoder that the test controls.

use super::*;
use crate::{
    Architecture, Pooling, Precision, Reranker, RerankerSettings,
    encoder::{Encoder, Place},
    sample,
};
use std::{
    sync::{
        Mutex,
        mpsc::{Receiver, Sender, channel},
    },
    time::Duration,
};
use tokio::{
    task::{JoinHandle, yield_now},
    time::timeout,
};

/// How long a test waits for a broken engine; a working one never takes this long.
const LIMIT: Duration = Duration::from_secs(60);

/// An encoder that reports its input and waits until the test lets it go on. The word "dog" makes it panic, and "far"
/// makes its output not a number.
struct Gate {
    entered: Sender<Vec<u32>>,
    open: Mutex<Receiver<()>>,
    ended: Option<Sender<()>>,
}

const CAT: u32 = 5;
const SAT: u32 = 6;
const MAT: u32 = 8;
const DOG: u32 = 9;
const FAR: u32 = 11;

impl Encoder for Gate {
    fn forward(&self, batch: &Ragged, _: Wanted, _: &dyn Place) -> Vec<f32> {
        self.entered.send(batch.token_ids.clone()).unwrap();
        self.open.lock().unwrap().recv().unwrap();
        assert!(!batch.token_ids.contains(&DOG), "no dogs");
        let value = if batch.token_ids.contains(&FAR) { f32::NAN } else { 1.0 };
        vec![value; batch.sequences.len() * sample::HIDDEN]
    }

    fn hidden_size(&self) -> usize {
        sample::HIDDEN
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        if let Some(ended) = &self.ended {
            let _ = ended.send(());
        }
    }
}

struct Gated {
    engine: Engine,
    entered: Receiver<Vec<u32>>,
    open: Sender<()>,
    ended: Receiver<()>,
}

impl Gated {
    /// Waits for the encoder's next input.
    fn next(&self) -> Vec<u32> {
        self.entered.recv_timeout(LIMIT).expect("a pass is run")
    }
}

/// Makes an engine with one thread and a [`Gate`].
fn gated(queue_capacity: usize) -> Gated {
    let (entered_in, entered) = channel();
    let (open, open_out) = channel();
    let (ended_in, ended) = channel();
    let settings = ModelSettings { threads: 1, queue_capacity, ..ModelSettings::default() };
    let (info, tokenizer) = described();
    let gate = Gate { entered: entered_in, open: Mutex::new(open_out), ended: Some(ended_in) };
    let device = Watched::new(Arc::new(gate), Box::new(|| Err(ModelError::Stopped)), LIMIT);
    let engine = Engine::start(info, tokenizer, device, Device::Cpu, &settings).unwrap();
    Gated { engine, entered, open, ended }
}

/// What an engine says of itself in these tests, and its tokenizer.
pub(super) fn described() -> (ModelInfo, TextTokenizer) {
    let info = ModelInfo {
        name: "gate".into(),
        identity: "gate@0".into(),
        architecture: Architecture::Bert,
        pooling: Pooling::Mean,
        native_width: sample::HIDDEN,
        width: VECTOR_WIDTH,
        max_positions: 700,
        doc_window: 700,
        token_window: 512,
        query_prefix: String::new(),
        document_prefix: String::new(),
        is_centred: false,
        device: "cpu".into(),
        precision: Precision::F32,
        threads: 1,
    };
    let tokenizer = TextTokenizer::from_json(sample::TOKENIZER_JSON.as_bytes(), sample::VOCABULARY).unwrap();
    (info, tokenizer)
}

fn reranker_beside(engine: &Engine) -> Reranker {
    let folder = tempfile::tempdir().unwrap();
    sample::write_cross_encoder(folder.path());
    let model = folder.path().to_str().unwrap().to_owned();
    Reranker::load(&RerankerSettings { model, ..RerankerSettings::default() }, Some(engine)).unwrap()
}

pub(super) type Vectors = Result<Vec<Vec<f32>>, ModelError>;

pub(super) fn document(engine: &Engine, text: &str) -> JoinHandle<Vectors> {
    let (engine, text) = (engine.clone(), text.to_owned());
    tokio::spawn(async move {
        let embeddings = engine.embed_documents(vec![text]).await?;
        Ok(embeddings.into_iter().map(|embedding| embedding.vector).collect())
    })
}

fn query(engine: &Engine, text: &str) -> JoinHandle<Result<Vec<f32>, ModelError>> {
    let (engine, text) = (engine.clone(), text.to_owned());
    tokio::spawn(async move { engine.embed_query(text).await })
}

pub(super) async fn until_depth(engine: &Engine, depth: usize) {
    let reached = async {
        while engine.queue_depth() != depth {
            yield_now().await;
        }
    };
    timeout(LIMIT, reached).await.expect("the queue reaches its depth");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_overtakes_the_documents_that_wait() {
    let gated = gated(16);
    let first = document(&gated.engine, "cat");
    assert!(gated.next().contains(&CAT));
    let second = document(&gated.engine, "sat");
    until_depth(&gated.engine, 1).await;
    let asked = query(&gated.engine, "mat");
    until_depth(&gated.engine, 2).await;
    for _ in 0..3 {
        gated.open.send(()).unwrap();
    }
    assert!(gated.next().contains(&MAT), "the query comes next");
    assert!(gated.next().contains(&SAT));
    first.await.unwrap().unwrap();
    second.await.unwrap().unwrap();
    asked.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_pairs_of_a_reranker_beside_it_go_before_its_documents() {
    let gated = gated(16);
    let reranker = reranker_beside(&gated.engine);
    assert_eq!(reranker.info().threads, 1, "it starts no threads of its own");
    let running = document(&gated.engine, "cat");
    gated.next();
    let waiting = document(&gated.engine, "sat");
    until_depth(&gated.engine, 1).await;
    let pairs = tokio::spawn(async move { reranker.score("cat", vec!["mat".into()]).await });
    until_depth(&gated.engine, 2).await;
    // This lets only the running pass go on: if the document came next, it would stay before the pairs for ever.
    gated.open.send(()).unwrap();
    running.await.unwrap().unwrap();
    let scores = timeout(LIMIT, pairs).await.expect("the pairs come first").unwrap().unwrap();
    assert_eq!(scores.len(), 1);
    gated.open.send(()).unwrap();
    waiting.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn texts_that_somebody_waits_for_go_before_the_documents_that_wait() {
    let gated = gated(16);
    let running = document(&gated.engine, "cat");
    assert!(gated.next().contains(&CAT));
    let waiting = [document(&gated.engine, "sat"), document(&gated.engine, "sat")];
    until_depth(&gated.engine, 2).await;
    let engine = gated.engine.clone();
    let asked = tokio::spawn(async move { engine.embed_waited_for(vec!["mat".into()]).await });
    until_depth(&gated.engine, 3).await;
    for _ in 0..4 {
        gated.open.send(()).unwrap();
    }
    assert!(gated.next().contains(&MAT), "it comes next");
    running.await.unwrap().unwrap();
    assert_eq!(asked.await.unwrap().unwrap().len(), 1);
    for document in waiting {
        document.await.unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_overtakes_the_pairs_that_wait() {
    let gated = gated(16);
    let reranker = reranker_beside(&gated.engine);
    let running = document(&gated.engine, "cat");
    gated.next();
    let pairs = tokio::spawn(async move { reranker.score("cat", vec!["mat".into()]).await });
    until_depth(&gated.engine, 1).await;
    let asked = query(&gated.engine, "mat");
    until_depth(&gated.engine, 2).await;
    gated.open.send(()).unwrap();
    assert!(gated.next().contains(&MAT));
    assert_eq!(gated.engine.queue_depth(), 1, "the pairs still wait");
    gated.open.send(()).unwrap();
    running.await.unwrap().unwrap();
    asked.await.unwrap().unwrap();
    assert_eq!(pairs.await.unwrap().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_waits_for_any_more_is_not_run() {
    let gated = gated(16);
    let first = document(&gated.engine, "cat");
    gated.next();
    let second = document(&gated.engine, "sat");
    until_depth(&gated.engine, 1).await;
    second.abort();
    assert!(second.await.unwrap_err().is_cancelled());
    assert_eq!(gated.engine.queue_depth(), 0);
    let reranker = reranker_beside(&gated.engine);
    let pairs = tokio::spawn(async move { reranker.score("cat", vec!["mat".into()]).await });
    until_depth(&gated.engine, 1).await;
    pairs.abort();
    assert!(pairs.await.unwrap_err().is_cancelled());
    until_depth(&gated.engine, 0).await;
    let third = document(&gated.engine, "mat");
    gated.open.send(()).unwrap();
    gated.open.send(()).unwrap();
    first.await.unwrap().unwrap();
    third.await.unwrap().unwrap();
    assert!(gated.next().contains(&MAT));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_queue_is_bounded_and_documents_do_not_keep_queries_out() {
    let gated = gated(1);
    let running = document(&gated.engine, "cat");
    gated.next();
    let documents: Vec<_> = (0..10).map(|_| document(&gated.engine, "sat")).collect();
    until_depth(&gated.engine, 1).await;
    let asked = query(&gated.engine, "mat");
    until_depth(&gated.engine, 2).await;
    for _ in 0..100 {
        yield_now().await;
        assert_eq!(gated.engine.queue_depth(), 2, "nine documents wait outside");
    }
    for _ in 0..12 {
        gated.open.send(()).unwrap();
    }
    assert!(gated.next().contains(&MAT), "the query was let in");
    running.await.unwrap().unwrap();
    asked.await.unwrap().unwrap();
    for document in documents {
        document.await.unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_queries_does_not_stop_documents() {
    let gated = gated(1000);
    let first = query(&gated.engine, "cat");
    gated.next();
    let waiting = document(&gated.engine, "sat");
    until_depth(&gated.engine, 1).await;
    let flood: Vec<_> = (0..200).map(|_| query(&gated.engine, "mat")).collect();
    until_depth(&gated.engine, 201).await;
    for _ in 0..202 {
        gated.open.send(()).unwrap();
    }
    first.await.unwrap().unwrap();
    waiting.await.unwrap().unwrap();
    for asked in flood {
        asked.await.unwrap().unwrap();
    }
    let turns: Vec<Vec<u32>> = gated.entered.try_iter().collect();
    let turn = turns.iter().position(|ids| ids.contains(&SAT)).unwrap();
    assert!((1..100).contains(&turn), "the document had turn {turn} of 201");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_panic_is_the_error_of_its_batch_alone() {
    let gated = gated(16);
    for _ in 0..3 {
        gated.open.send(()).unwrap();
    }
    let failed = gated.engine.embed_documents(vec!["dog".into()]).await.unwrap_err();
    assert!(matches!(&failed, ModelError::ForwardPanicked { message } if message.contains("no dogs")), "{failed}");
    let failed = gated.engine.embed_query("far".into()).await.unwrap_err();
    assert!(matches!(failed, ModelError::NoDirection { .. }), "{failed}");
    assert_eq!(gated.engine.embed_query("cat".into()).await.unwrap().len(), VECTOR_WIDTH);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_threads_end_with_the_last_handle() {
    let gated = gated(16);
    drop(gated.engine);
    gated.ended.recv_timeout(LIMIT).expect("the encoder is dropped with its thread");
}
