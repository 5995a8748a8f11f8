//! How long a query waits for the model while documents are embedded without a pause.
use super::{load, peer::Peers, text};
use crate::figure::{Bound, BoxError, Figure, median};
use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Instant,
};
use svc_models::Engine;

/// How many callers embed documents at a time, so that every thread of the model always has a pass.
const CALLERS: usize = 4;
const QUERIES_A_ROUND: usize = 20;
/// The most milliseconds that a query may wait for the model.
pub const LONGEST_WAIT_MS: f64 = 50.0;

pub async fn run(rounds: usize, out: &mut dyn FnMut(Figure)) -> Result<(), BoxError> {
    let peers = Peers::prepare()?;
    for (model, folder, tokens) in [
        ("minilm", peers.minilm(), 120),
        ("minilm", peers.minilm(), 256),
        ("modernbert", peers.modernbert(), 120),
        ("modernbert", peers.modernbert(), 512),
        ("modernbert", peers.modernbert(), 4096),
    ] {
        eprintln!("bench: a query of {model} beside documents of {tokens} tokens");
        let engine = load(&folder, None)?;
        let mut alone = queries(&engine, rounds).await?;
        let is_done = AtomicBool::new(false);
        let documents = async || {
            while !is_done.load(Ordering::Relaxed) {
                let texts = (0..(2048 / tokens).max(1)).map(|seed| text(tokens, seed)).collect();
                engine.embed_documents(texts).await?;
            }
            Ok::<(), BoxError>(())
        };
        let asked = async {
            let asked = queries(&engine, rounds).await;
            is_done.store(true, Ordering::Relaxed);
            asked
        };
        let (mut beside, embedded) =
            tokio::join!(asked, futures_util::future::join_all((0..CALLERS).map(|_| documents())));
        embedded.into_iter().collect::<Result<(), BoxError>>()?;
        let beside = beside.as_mut().map_err(|error| error.to_string())?;
        let alone = median(&mut alone);
        let mut tell = |what: &str, seconds: f64| {
            let name = format!("encoder/beside/{model}/documents of {tokens} tokens/{what}");
            let figure = Figure::alone(&name, rounds * QUERIES_A_ROUND, "ms", (seconds - alone).max(0.0) * 1e3);
            out(figure.meant_to_be(Bound::OursAtMost(LONGEST_WAIT_MS)));
        };
        tell("median wait of a query", median(beside));
        tell("95% of the queries wait at most", beside[beside.len() * 95 / 100]);
        tell("longest wait of a query", beside[beside.len() - 1]);
    }
    Ok(())
}

/// The times of single queries, one after the other.
async fn queries(engine: &Engine, rounds: usize) -> Result<Vec<f64>, BoxError> {
    let mut seconds = Vec::new();
    for seed in 0..rounds * QUERIES_A_ROUND {
        let query = text(9, seed);
        let start = Instant::now();
        engine.embed_query(query).await?;
        seconds.push(start.elapsed().as_secs_f64());
    }
    Ok(seconds)
}
