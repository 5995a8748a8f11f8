//! Tokens a second and the time of a query, with the model that SVC_TEST_MODEL_DIR or the cache folder holds.
//!
//!     cargo run -p svc-models --example throughput [threads]

use std::time::Instant;

use svc_models::{Engine, ModelError, ModelSettings};

fn main() -> Result<(), ModelError> {
    let mut settings = ModelSettings::default();
    if let Ok(folder) = std::env::var("SVC_TEST_MODEL_DIR") {
        settings.model = folder;
    }
    if let Ok(device) = std::env::var("SVC_EMBEDDING_DEVICE") {
        settings.device = device;
    }
    settings.threads = std::env::args().nth(1).and_then(|threads| threads.parse().ok()).unwrap_or(0);
    let start = Instant::now();
    let engine = Engine::load(&settings)?;
    println!("{} on {} threads, loaded in {:?}", engine.info().identity, engine.info().threads, start.elapsed());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().expect("a runtime starts");

    let words = ["tree", "of", "documents", "store", "the", "query", "finds", "what", "was", "asked"];
    let text = |tokens: usize, seed: usize| {
        (0..tokens - 2).map(|word| words[(word * 7 + seed) % words.len()]).collect::<Vec<_>>().join(" ")
    };
    let uniform: Vec<String> = (0..32).map(|seed| text(100, seed)).collect();
    let varied: Vec<String> = (0..256).map(|seed| text(10 + seed * 37 % 247, seed)).collect();
    for (name, texts) in [("uniform", uniform), ("varied", varied)] {
        let tokens = texts.iter().try_fold(0, |sum, text| Ok::<_, ModelError>(sum + engine.count_tokens(text)?))?;
        let mut best = f64::INFINITY;
        for _ in 0..5 {
            let start = Instant::now();
            runtime.block_on(engine.embed_documents(texts.clone()))?;
            best = best.min(start.elapsed().as_secs_f64());
        }
        println!("{name}: {} texts, {tokens} tokens, {:.0} tokens/s", texts.len(), tokens as f64 / best);
    }
    let mut times = Vec::new();
    for seed in 0..200 {
        let start = Instant::now();
        runtime.block_on(engine.embed_query(text(9, seed)))?;
        times.push(start.elapsed());
    }
    times.sort();
    println!("query of 9 tokens: median {:?}, best {:?}", times[100], times[0]);
    Ok(())
}
