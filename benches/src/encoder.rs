//! The encoder in every precision beside onnxruntime and torch: tokens per second, and the time for one query. All take
//! turns in the same run, with two threads each, so that other load on the machine affects all of them. Each embeds at
//! least three times a turn, and the median counts: the first time finds the caches full of another one's weights, and
//! threads of that one that still spin.
mod beside;
pub mod cranfield;
mod importance;
mod peak;
mod peer;
mod precision;
mod rollup;
mod start;
mod tokens;

use crate::figure::{Bound, BoxError, Figure, Peer, median};
pub use beside::{LONGEST_WAIT_MS, run as beside};
pub use importance::run as importance;
use peer::{IN_F32, IN_INT8, Peers};
pub use precision::run as precision;
pub use rollup::run as rollup;
pub use start::run as start;
use std::{path::Path, time::Instant};
use svc_models::{Engine, ModelError, ModelSettings, Precision};
pub use tokens::run as tokens;

const THREADS: usize = 2;
/// Words that are one token each in the tokenizer of MiniLM, which both models use here.
const WORDS: [&str; 10] = ["tree", "of", "documents", "store", "the", "query", "finds", "what", "was", "asked"];

/// What is embedded: its name, the texts, and how many times in a round.
struct Work {
    name: &'static str,
    texts: Vec<String>,
    times: usize,
    /// The least ratio of f32 to onnxruntime in f32, if the work has goals.
    goal: Option<f64>,
}

/// The least ratio of the default precision to onnxruntime in f32, and of int8 to onnxruntime in int8.
const DEFAULT_GOAL: f64 = 1.6;
const INT8_GOAL: f64 = 1.2;

impl Work {
    /// The least ratio of one of our precisions to a peer; a query alone must be no slower than either onnxruntime.
    fn goal(&self, precision: Precision, is_default: bool, peer: &str) -> Option<f64> {
        let in_f32 = self.goal?;
        let is_query = self.name.contains("/latency/");
        match (precision, peer) {
            _ if is_query && is_default && (peer == IN_F32[0] || peer == IN_INT8) => Some(in_f32),
            _ if is_query => None,
            _ if is_default && peer == IN_F32[0] => Some(DEFAULT_GOAL),
            (Precision::F32, peer) if peer == IN_F32[0] => Some(in_f32),
            (Precision::Int8, IN_INT8) => Some(INT8_GOAL),
            _ => None,
        }
    }
}

pub async fn run(rounds: usize, selected: &str, out: &mut dyn FnMut(Figure)) -> Result<(), BoxError> {
    let peers = Peers::prepare()?;
    let minilm = [
        Work {
            name: "encoder/throughput/minilm/32 x 100 tokens",
            texts: (0..32).map(|seed| text(100, seed)).collect(),
            times: 3,
            goal: Some(1.3),
        },
        Work {
            name: "encoder/throughput/minilm/256 x 10 to 256 tokens",
            texts: (0..256).map(|seed| text(10 + seed * 37 % 247, seed)).collect(),
            times: 3,
            goal: Some(1.3),
        },
        Work {
            name: "encoder/throughput/minilm/64 x 9 tokens",
            texts: (0..64).map(|seed| text(9, seed)).collect(),
            times: 5,
            goal: Some(1.0),
        },
        Work { name: "encoder/latency/minilm/query of 9 tokens", texts: vec![text(9, 0)], times: 50, goal: Some(1.0) },
    ];
    let of = |name, count, tokens| Work {
        name,
        texts: (0..count).map(|seed| text(tokens, seed)).collect(),
        times: 3,
        goal: None,
    };
    let modernbert = [
        of("encoder/throughput/modernbert/16 x 128 tokens", 16, 128),
        of("encoder/throughput/modernbert/4 x 512 tokens", 4, 512),
        of("encoder/throughput/modernbert/1 x 4096 tokens", 1, 4096),
        Work { times: 5, ..of("encoder/latency/modernbert/query of 9 tokens", 1, 9) },
    ];
    for (model, folder, works) in
        [("minilm", peers.minilm(), &minilm[..]), ("modernbert", peers.modernbert(), &modernbert[..])]
    {
        let works: Vec<&Work> = works.iter().filter(|work| work.name.starts_with(selected)).collect();
        if !works.is_empty() {
            measure(&peers, model, &folder, &works, rounds, out).await?;
        }
    }
    Ok(())
}

async fn measure(
    peers: &Peers,
    model: &str,
    folder: &Path,
    works: &[&Work],
    rounds: usize,
    out: &mut dyn FnMut(Figure),
) -> Result<(), BoxError> {
    // The precision that runs if nobody asks for one.
    let default = load(folder, None)?.info().precision;
    let mut engines = Vec::new();
    for (name, precision) in Precision::NAMES {
        engines.push((name, load(folder, Some(precision))?));
    }
    let mut others = Vec::new();
    for name in IN_F32.into_iter().chain([IN_INT8]) {
        others.push(peers.start(name, model, folder, THREADS)?);
    }
    for work in works {
        eprintln!("bench: {}", work.name);
        let (_, engine) = &engines[0];
        let lengths: Vec<usize> = work.texts.iter().map(|text| engine.count_tokens(text)).collect::<Result<_, _>>()?;
        let tokens: usize = lengths.iter().sum();
        // This warms everything up, and checks that all give like vectors: being faster with other numbers would be
        // worthless.
        let (_, whole) = embed(engine, &work.texts, 1).await?;
        let check = |name: &str, vector: &[f32], least: f32| {
            let cosine: f32 = whole.iter().zip(vector).map(|(left, right)| left * right).sum();
            match cosine >= least {
                true => Ok(()),
                false => Err(format!("{}: the vector of {name} has cosine {cosine} with ours in f32", work.name)),
            }
        };
        for (name, engine) in &engines {
            check(name, &embed(engine, &work.texts, 1).await?.1, 0.99)?;
        }
        for other in &mut others {
            let least = if other.name() == IN_INT8 { 0.8 } else { 0.9999 };
            let vector = other.embed(&work.texts, 1)?.1;
            check(other.name(), &vector, least)?;
        }
        let mut seconds = vec![Vec::new(); engines.len()];
        let mut of_others = vec![Vec::new(); others.len()];
        let mut peaks = Vec::new();
        for _ in 0..rounds {
            peaks.push(peak::operations_per_second(THREADS)?);
            for ((_, engine), seconds) in engines.iter().zip(&mut seconds) {
                seconds.push(embed(engine, &work.texts, work.times).await?.0);
            }
            for (other, seconds) in others.iter_mut().zip(&mut of_others) {
                seconds.push(other.embed(&work.texts, work.times)?.0);
            }
        }
        for ((precision, engine), seconds) in engines.iter().zip(&mut seconds) {
            let is_default = engine.info().precision == default;
            let told = if is_default { ", the default" } else { "" };
            let (name, ours) = (format!("{} in {precision}{told}", work.name), median(seconds));
            for (other, theirs) in others.iter().zip(&mut of_others) {
                let (theirs, version) = (median(theirs), other.version().into());
                let beside = |unit, n, of: &dyn Fn(f64) -> f64| {
                    let peer = Peer { name: other.name(), version, value: of(theirs) };
                    Figure::beside(&name, n, unit, of(ours), peer)
                };
                let figure = match work.name.contains("/latency/") {
                    true => beside("ms", work.times * rounds, &|seconds| seconds * 1e3),
                    false => beside("tokens/s", work.texts.len() * rounds, &|seconds| tokens as f64 / seconds),
                };
                out(match work.goal(engine.info().precision, is_default, other.name()) {
                    Some(least) => figure.meant_to_be(Bound::RatioAtLeast(least)),
                    None => figure,
                });
            }
            if engine.info().precision == Precision::F32 && model == "minilm" && work.name.contains("/throughput/") {
                let operations = peak::operations_of_minilm(&lengths) / 1e9;
                let peak = Peer {
                    name: "multiply-adds alone",
                    version: env!("CARGO_PKG_VERSION").into(),
                    value: median(&mut peaks) / 1e9,
                };
                let name = format!("{name}, of what the processor can do");
                out(Figure::beside(&name, work.texts.len() * rounds, "Gflop/s", operations / ours, peak));
            }
        }
    }
    Ok(())
}

fn load(folder: &Path, precision: Option<Precision>) -> Result<Engine, BoxError> {
    let model = folder.to_str().ok_or("the cache folder's name is no UTF-8")?.to_owned();
    Ok(Engine::load(&ModelSettings { model, precision, threads: THREADS, ..ModelSettings::default() })?)
}

/// The median time in seconds, and the first vector.
async fn embed(engine: &Engine, texts: &[String], times: usize) -> Result<(f64, Vec<f32>), BoxError> {
    let (mut seconds, mut first) = (Vec::with_capacity(times), Vec::new());
    for _ in 0..times {
        let texts = texts.to_vec();
        let start = Instant::now();
        let mut vectors = engine.embed_documents(texts).await?;
        seconds.push(start.elapsed().as_secs_f64());
        first = vectors.swap_remove(0).vector;
    }
    Ok((median(&mut seconds), first))
}

/// A text with this many tokens, including special tokens.
fn text(tokens: usize, seed: usize) -> String {
    (0..tokens - 2).map(|word| WORDS[(word * 7 + seed) % WORDS.len()]).collect::<Vec<_>>().join(" ")
}

/// The text, or as much of its beginning as the window holds.
fn fitting(engine: &Engine, text: &str) -> Result<String, ModelError> {
    let mut end = text.len();
    while engine.count_tokens(&text[..end])? > engine.info().token_window {
        end = text.floor_char_boundary(end * 9 / 10);
    }
    Ok(text[..end].to_owned())
}

fn dot(left: &[f32], right: &[f32]) -> f32 {
    const LANES: usize = 16;
    let mut sums = [0f32; LANES];
    for (left, right) in left.chunks_exact(LANES).zip(right.chunks_exact(LANES)) {
        for lane in 0..LANES {
            sums[lane] += left[lane] * right[lane];
        }
    }
    // The widths of all models are multiples of 16.
    sums.iter().sum()
}
