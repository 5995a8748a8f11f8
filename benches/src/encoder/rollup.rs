//! What a container's vector may be made of, on Cranfield: its whole text once more, or what its chunks have already.
use super::{cranfield::Cranfield, dot, fitting};
use crate::figure::{BoxError, Figure};
use svc_models::{Embedding, Engine, ModelSettings, TokenVectors};

/// How many texts are in one call.
const TEXTS: usize = 64;
/// About how many tokens a chunk has.
const CHUNK: usize = 64;

/// The vectors of one container and of its chunks.
struct Made {
    whole: Vec<f32>,
    chunks: Vec<Embedding>,
    /// Each chunk's vector from the rows of the whole text.
    late: Vec<Vec<f32>>,
}

pub async fn run(out: &mut dyn FnMut(Figure)) -> Result<(), BoxError> {
    let collection = Cranfield::read()?;
    let engine = Engine::load(&ModelSettings::default())?;
    let mut questions = Vec::new();
    for question in &collection.questions {
        questions.push(engine.embed_query(question.clone()).await?);
    }
    for (name, is_titled) in [("text", false), ("titled sections", true)] {
        eprintln!("bench: Cranfield, {name}");
        let mut made = Vec::new();
        for texts in collection.documents.chunks(TEXTS) {
            made.extend(embed(&engine, texts, is_titled).await?);
        }
        tell(&collection, &questions, &made, name, out);
    }
    Ok(())
}

async fn embed(engine: &Engine, texts: &[String], is_titled: bool) -> Result<Vec<Made>, BoxError> {
    let texts: Vec<String> = texts.iter().map(|text| fitting(engine, text)).collect::<Result<_, _>>()?;
    let mut spans = Vec::new();
    for text in &texts {
        spans.push(cut(engine, text)?);
    }
    let chunk = |text: &str, start: usize, end: usize| match text.split_once('\n').filter(|_| is_titled && start > 0) {
        Some((title, _)) => format!("{title}\n{}", &text[start..end]),
        None => text[start..end].to_owned(),
    };
    let chunks =
        texts.iter().zip(&spans).flat_map(|(text, spans)| spans.iter().map(|span| chunk(text, span.0, span.1)));
    let mut chunks = engine.embed_documents(chunks.collect()).await?.into_iter();
    let whole = engine.embed_documents(texts.clone()).await?;
    let rows = engine.token_vectors(texts).await?;
    let of_text = whole.into_iter().zip(rows).zip(spans).map(|((whole, rows), spans)| Made {
        whole: whole.vector,
        chunks: chunks.by_ref().take(spans.len()).collect(),
        late: spans.iter().map(|span| late(&rows, *span)).collect(),
    });
    Ok(of_text.collect())
}

/// The first and the last byte of each chunk: whole words, about as many tokens as a chunk has.
fn cut(engine: &Engine, text: &str) -> Result<Vec<(usize, usize)>, BoxError> {
    let (mut spans, mut start, mut tokens, mut at) = (Vec::new(), 0, 0, 0);
    for word in text.split_inclusive(char::is_whitespace) {
        tokens += engine.count_content_tokens(word)?;
        at += word.len();
        if tokens >= CHUNK {
            spans.push((start, at));
            (start, tokens) = (at, 0);
        }
    }
    if tokens > 0 || spans.is_empty() {
        spans.push((start, text.len()));
    }
    Ok(spans)
}

/// The sum of a chunk's rows, each with the length that the model gave it.
fn late(rows: &TokenVectors, (start, end): (usize, usize)) -> Vec<f32> {
    let mut sum = vec![0.0; rows.width];
    let tokens = rows.rows().zip(&rows.offsets).zip(&rows.importance);
    for ((row, _), length) in tokens.filter(|((_, offset), _)| start <= offset.start && offset.start < end) {
        sum.iter_mut().zip(row).for_each(|(sum, value)| *sum += value * length);
    }
    sum
}

fn tell(collection: &Cranfield, questions: &[Vec<f32>], made: &[Made], name: &str, out: &mut dyn FnMut(Figure)) {
    let by = |of: &dyn Fn(&Made) -> Vec<Vec<f32>>| {
        let vectors: Vec<Vec<Vec<f32>>> = made.iter().map(|made| of(made).into_iter().map(unit).collect()).collect();
        collection.ndcg(|question| {
            let best = |vectors: &Vec<Vec<f32>>| {
                vectors.iter().map(|vector| dot(&questions[question], vector)).fold(f32::NEG_INFINITY, f32::max)
            };
            Some(vectors.iter().map(best).collect())
        })
    };
    let chunks = |made: &Made| made.chunks.iter().map(|chunk| chunk.vector.clone()).collect::<Vec<_>>();
    let mean = |made: &Made| sum(made.chunks.iter().map(|chunk| (&chunk.vector[..], 1.0)));
    let weighted = |made: &Made| sum(made.chunks.iter().map(|chunk| (&chunk.vector[..], chunk.weight)));
    let late = |made: &Made| sum(made.late.iter().map(|chunk| (&chunk[..], 1.0)));
    let beside = |container: Vec<f32>, mut chunks: Vec<Vec<f32>>| {
        chunks.push(container);
        chunks
    };
    for (what, value) in [
        ("container/whole text", by(&|made| vec![made.whole.clone()])),
        ("container/mean", by(&|made| vec![mean(made)])),
        ("container/weighted sum", by(&|made| vec![weighted(made)])),
        ("container/late chunking", by(&|made| vec![late(made)])),
        ("chunks/alone", by(&chunks)),
        ("chunks/late chunking", by(&|made| made.late.clone())),
        ("both/whole text", by(&|made| beside(made.whole.clone(), chunks(made)))),
        ("both/weighted sum", by(&|made| beside(weighted(made), chunks(made)))),
        ("both/late chunking", by(&|made| beside(late(made), made.late.clone()))),
    ] {
        out(Figure::alone(&format!("encoder/rollup/{name}/{what}"), questions.len(), "nDCG@10", value));
    }
    let likeness = |of: &dyn Fn(&Made) -> Vec<f32>| {
        made.iter().map(|made| f64::from(dot(&made.whole, &unit(of(made))))).sum::<f64>() / made.len() as f64
    };
    for (what, value) in
        [("mean", likeness(&mean)), ("weighted sum", likeness(&weighted)), ("late chunking", likeness(&late))]
    {
        out(Figure::alone(
            &format!("encoder/rollup/{name}/likeness to the whole text/{what}"),
            made.len(),
            "cosine",
            value,
        ));
    }
}

fn sum<'a>(vectors: impl Iterator<Item = (&'a [f32], f32)>) -> Vec<f32> {
    let mut sum = Vec::new();
    for (vector, weight) in vectors {
        sum.resize(sum.len().max(vector.len()), 0.0);
        sum.iter_mut().zip(vector).for_each(|(sum, value)| *sum += value * weight);
    }
    sum
}

fn unit(mut vector: Vec<f32>) -> Vec<f32> {
    let length = vector.iter().map(|value| value * value).sum::<f32>().sqrt();
    // A document of the collection has no text.
    vector.iter_mut().filter(|_| length > 0.0).for_each(|value| *value /= length);
    vector
}
