//! Measures how well MaxSim ranks by a share of each text's tokens, on Cranfield with all-MiniLM-L6-v2.
use super::{
    THREADS,
    cranfield::{Cranfield, first},
    dot, fitting,
    peer::{Attention, Peers},
};
use crate::figure::{BoxError, Figure};
use std::{
    collections::{HashMap, HashSet},
    thread,
};
use svc_models::{Engine, ModelSettings, TokenVectors};

/// How many texts are in one call.
const TEXTS: usize = 64;

/// How important a token of a text is: the tokens with the greatest numbers are kept.
type Measure = fn(&Text<'_>, usize) -> f32;

/// A text with everything that a measure may use.
struct Text<'a> {
    tokens: &'a TokenVectors,
    /// The whole text's vector, of the same width.
    vector: &'a [f32],
    /// For each token, how few texts contain it.
    idf: &'a HashMap<u32, f32>,
    attention: [&'a [f32]; 2],
}

impl Text<'_> {
    fn norm(&self, token: usize) -> f32 {
        self.tokens.importance[token]
    }

    fn idf(&self, token: usize) -> f32 {
        self.idf.get(&self.tokens.token_ids[token]).copied().unwrap_or_default()
    }

    fn attention(&self, place: usize, token: usize) -> f32 {
        self.attention[place][token]
    }

    fn likeness(&self, token: usize) -> f32 {
        self.tokens.rows().nth(token).map_or(0.0, |row| dot(row, self.vector))
    }

    /// How much the other tokens are like this one: many tokens lean towards an important one.
    fn likeness_of_others(&self, token: usize) -> f32 {
        let row = self.tokens.rows().nth(token).unwrap_or_default();
        self.tokens.rows().map(|other| dot(row, other)).sum()
    }
}

/// The service uses `norm`. `chance` is what remains without any knowledge of the tokens.
const MEASURES: [(&str, Measure); 9] = [
    ("norm", |text, token| text.norm(token)),
    ("idf", |text, token| text.idf(token)),
    ("norm x idf", |text, token| text.norm(token) * text.idf(token)),
    ("attention received in the last layer", |text, token| text.attention(0, token)),
    ("attention received in the last three layers", |text, token| text.attention(1, token)),
    ("likeness to the text", |text, token| text.likeness(token)),
    ("distance from the text", |text, token| -text.likeness(token)),
    ("likeness of the others", |text, token| text.likeness_of_others(token)),
    ("chance", |_, token| ((token as u32).wrapping_mul(2_654_435_769) >> 8) as f32),
];
const SHARES: [f64; 2] = [0.5, 0.3];
/// How many components of a token the service keeps.
const SHORT: usize = 256;

/// Which tokens of each document are kept.
struct Choice {
    name: String,
    kept: Vec<Vec<bool>>,
}

/// Runs the bench with `questions` of the 225 questions, evenly spread.
pub async fn run(questions: usize, out: &mut dyn FnMut(Figure)) -> Result<(), BoxError> {
    let collection = Cranfield::read()?;
    let engine = Engine::load(&ModelSettings::default())?;
    let step = collection.questions.len().div_ceil(questions);
    let asked: Vec<usize> = (0..collection.questions.len()).step_by(step).collect();
    eprintln!("bench: token vectors of {} texts", collection.documents.len());
    let (mut documents, mut vectors) = (Vec::<TokenVectors>::new(), Vec::new());
    for texts in collection.documents.chunks(TEXTS) {
        let texts: Vec<String> = texts.iter().map(|text| fitting(&engine, text)).collect::<Result<_, _>>()?;
        vectors.extend(engine.embed_documents(texts.clone()).await?.into_iter().map(|embedding| embedding.vector));
        documents.extend(engine.token_vectors(texts).await?);
    }
    eprintln!("bench: the attention that their tokens receive");
    let peers = Peers::prepare()?;
    let mut looks = peers.start_attention(&peers.minilm(), THREADS)?;
    let mut attention = Attention::default();
    for texts in documents.chunks(TEXTS) {
        let tokens: Vec<&[u32]> = texts.iter().map(|text| text.token_ids.as_slice()).collect();
        for (all, told) in attention.iter_mut().zip(looks.attention(&tokens)?) {
            if !told.iter().map(Vec::len).eq(tokens.iter().map(|text| text.len())) {
                return Err("attention.py did not answer for every token".into());
            }
            all.extend(told);
        }
    }
    let mut queries = Vec::new();
    for &question in &asked {
        queries.push(engine.query_token_vectors(collection.questions[question].clone()).await?);
    }
    eprintln!("bench: {} questions", asked.len());
    let choices = choices(&documents, &vectors, &attention, engine.info().native_width);
    let scores = all_scores(&queries, &documents, &choices);
    let short = |texts: &[TokenVectors]| texts.iter().map(|text| text.shortened(SHORT)).collect::<Result<Vec<_>, _>>();
    let short = all_scores(&short(&queries)?, &short(&documents)?, &choices[..2]);
    // The scores of one choice, by question.
    fn of(scores: &[Vec<Vec<f32>>], choice: usize) -> Vec<&[f32]> {
        scores.iter().map(|scores| scores[choice].as_slice()).collect()
    }
    let all = of(&scores, 0);
    let mut tell = |name: &str, scores: &[&[f32]]| {
        let found: usize = all.iter().zip(scores).map(|(all, scores)| in_both(all, scores)).sum();
        let figure = format!("encoder/importance/first ten of all tokens found by {name}");
        out(Figure::alone(&figure, asked.len(), "results", found as f64 / asked.len() as f64));
        let ndcg = collection.ndcg(|question| Some(scores[asked.binary_search(&question).ok()?].to_vec()));
        out(Figure::alone(&format!("encoder/importance/MaxSim by {name}"), asked.len(), "nDCG@10", ndcg));
    };
    for (at, choice) in choices.iter().enumerate() {
        tell(&choice.name, &of(&scores, at));
    }
    for (at, choice) in choices[..2].iter().enumerate() {
        tell(&format!("{}, {SHORT} components", choice.name), &of(&short, at));
    }
    Ok(())
}

/// All tokens first, then each measure at each share.
fn choices(documents: &[TokenVectors], vectors: &[Vec<f32>], attention: &Attention, width: usize) -> Vec<Choice> {
    let mut texts_with: HashMap<u32, usize> = HashMap::new();
    for document in documents {
        let tokens: HashSet<u32> = document.token_ids.iter().copied().collect();
        tokens.into_iter().for_each(|token| *texts_with.entry(token).or_default() += 1);
    }
    let idf = |count: usize| (1.0 + documents.len() as f32 / count as f32).ln();
    let idf: HashMap<u32, f32> = texts_with.into_iter().map(|(token, count)| (token, idf(count))).collect();
    let all = documents.iter().map(|document| vec![true; document.len()]).collect();
    let mut choices = vec![Choice { name: "all tokens".to_owned(), kept: all }];
    for share in SHARES {
        for (name, measure) in MEASURES {
            let kept = documents.iter().zip(vectors).enumerate().map(|(place, (tokens, vector))| {
                let attention = [0, 1].map(|layers| attention[layers][place].as_slice());
                let text = Text { tokens, vector: &vector[..width], idf: &idf, attention };
                let worth: Vec<f32> = (0..tokens.len()).map(|token| measure(&text, token)).collect();
                let mut order: Vec<usize> = (0..tokens.len()).collect();
                order.sort_by(|&left, &right| worth[right].total_cmp(&worth[left]).then(left.cmp(&right)));
                let mut kept = vec![false; tokens.len()];
                let count = (share * tokens.len() as f64).ceil() as usize;
                order.into_iter().take(count).for_each(|token| kept[token] = true);
                kept
            });
            choices.push(Choice { name: format!("{:.0}% by {name}", share * 100.0), kept: kept.collect() });
        }
    }
    choices
}

/// The score of each document, by question and choice.
fn all_scores(queries: &[TokenVectors], documents: &[TokenVectors], choices: &[Choice]) -> Vec<Vec<Vec<f32>>> {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        let parts = queries.chunks(queries.len().div_ceil(threads).max(1));
        let parts: Vec<_> = parts
            .map(|part| scope.spawn(|| part.iter().map(|query| scores(query, documents, choices)).collect::<Vec<_>>()))
            .collect();
        parts.into_iter().flat_map(|part| part.join().unwrap_or_default()).collect()
    })
}

/// How many of their first documents two rankings have in common.
fn in_both(left: &[f32], right: &[f32]) -> usize {
    let right = first(right);
    first(left).iter().filter(|document| right.contains(document)).count()
}

/// The score of each document, by choice.
fn scores(query: &TokenVectors, documents: &[TokenVectors], choices: &[Choice]) -> Vec<Vec<f32>> {
    let mut scores = vec![vec![0f32; documents.len()]; choices.len()];
    for (place, document) in documents.iter().enumerate() {
        for asked in query.rows() {
            let similarities: Vec<f32> = document.rows().map(|row| dot(asked, row)).collect();
            for (scores, choice) in scores.iter_mut().zip(choices) {
                let kept = similarities.iter().zip(&choice.kept[place]).filter(|(_, kept)| **kept);
                scores[place] += kept.map(|(similarity, _)| *similarity).fold(-1.0, f32::max);
            }
        }
    }
    scores
}
