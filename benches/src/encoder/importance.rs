//! How well MaxSim ranks by a share of each text's tokens: Cranfield, all-MiniLM-L6-v2.
use super::cranfield::{Cranfield, first};
use crate::figure::{BoxError, Figure};
use std::thread;
use svc_models::{Engine, ModelError, ModelSettings, TokenVectors};

/// Texts of one call.
const TEXTS: usize = 64;

/// Which tokens of a text are kept.
struct Choice {
    name: &'static str,
    keep: fn(&TokenVectors, usize) -> bool,
}

/// The tiers are tenths; every other token is what one keeps who knows nothing of them.
const CHOICES: [Choice; 5] = [
    Choice { name: "all tokens", keep: |_, _| true },
    Choice { name: "most important 50%", keep: |text, token| text.tiers[token] <= 50 },
    Choice { name: "every other token", keep: |_, token| token % 2 == 0 },
    Choice { name: "most important 30%", keep: |text, token| text.tiers[token] <= 30 },
    Choice { name: "least important 50%", keep: |text, token| text.tiers[token] > 50 },
];

/// `questions`: how many of the 225 are asked, evenly spread.
pub async fn run(questions: usize, out: &mut dyn FnMut(Figure)) -> Result<(), BoxError> {
    let collection = Cranfield::read()?;
    let engine = Engine::load(&ModelSettings::default())?;
    let step = collection.questions.len().div_ceil(questions);
    let asked: Vec<usize> = (0..collection.questions.len()).step_by(step).collect();
    eprintln!("bench: token vectors of {} texts", collection.documents.len());
    let mut documents = Vec::new();
    for texts in collection.documents.chunks(TEXTS) {
        let texts = texts.iter().map(|text| fitting(&engine, text)).collect::<Result<_, _>>()?;
        documents.extend(engine.token_vectors(texts).await?);
    }
    let mut queries = Vec::new();
    for &question in &asked {
        queries.push(engine.query_token_vectors(collection.questions[question].clone()).await?);
    }
    eprintln!("bench: {} questions", asked.len());
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let scores: Vec<Vec<Vec<f32>>> = thread::scope(|scope| {
        let parts = queries.chunks(queries.len().div_ceil(threads).max(1));
        let parts: Vec<_> = parts
            .map(|part| scope.spawn(|| part.iter().map(|query| scores(query, &documents)).collect::<Vec<_>>()))
            .collect();
        parts.into_iter().flat_map(|part| part.join().unwrap_or_default()).collect()
    });
    for (at, choice) in CHOICES.iter().enumerate() {
        let kept: usize = scores.iter().map(|scores| in_both(&scores[0], &scores[at])).sum();
        let name = format!("encoder/importance/first ten of all tokens found by {}", choice.name);
        out(Figure::alone(&name, asked.len(), "results", kept as f64 / asked.len() as f64));
        let ndcg = collection.ndcg(|question| {
            let place = asked.binary_search(&question).ok()?;
            Some(scores.get(place)?[at].clone())
        });
        out(Figure::alone(&format!("encoder/importance/MaxSim by {}", choice.name), asked.len(), "nDCG@10", ndcg));
    }
    Ok(())
}

/// How many documents two rankings have in common at their heads.
fn in_both(left: &[f32], right: &[f32]) -> usize {
    let right = first(right);
    first(left).iter().filter(|document| right.contains(document)).count()
}

/// The text, or as much of its beginning as the window holds.
fn fitting(engine: &Engine, text: &str) -> Result<String, ModelError> {
    let mut end = text.len();
    while engine.count_tokens(&text[..end])? > engine.info().token_window {
        end = text.floor_char_boundary(end * 9 / 10);
    }
    Ok(text[..end].to_owned())
}

/// By choice, the score of each document.
fn scores(query: &TokenVectors, documents: &[TokenVectors]) -> Vec<Vec<f32>> {
    let mut scores = vec![vec![0f32; documents.len()]; CHOICES.len()];
    for (place, document) in documents.iter().enumerate() {
        for asked in query.rows() {
            let mut best = [-1f32; CHOICES.len()];
            for (token, row) in document.rows().enumerate() {
                let similarity = dot(asked, row);
                for (best, choice) in best.iter_mut().zip(&CHOICES) {
                    if similarity > *best && (choice.keep)(document, token) {
                        *best = similarity;
                    }
                }
            }
            for (scores, best) in scores.iter_mut().zip(best) {
                scores[place] += best;
            }
        }
    }
    scores
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
