//! What the lower precisions of all-MiniLM-L6-v2 gain and lose, on Cranfield: tokens per second, the likeness of
//! vectors to those of f32, and the quality of rankings.
use super::{THREADS, cranfield::Cranfield, dot, embed, fitting, text};
use crate::figure::{BoxError, Figure, median};
use svc_models::{Engine, ModelSettings, Precision};

/// How many texts are in one call.
const TEXTS: usize = 64;

/// The vectors of Cranfield in one precision.
struct Vectors {
    documents: Vec<Vec<f32>>,
    questions: Vec<Vec<f32>>,
}

pub async fn run(rounds: usize, out: &mut dyn FnMut(Figure)) -> Result<(), BoxError> {
    let collection = Cranfield::read()?;
    let engines = Precision::NAMES.map(|(name, precision)| {
        let settings = ModelSettings { precision: Some(precision), threads: THREADS, ..ModelSettings::default() };
        Engine::load(&settings).map(|engine| (name, engine))
    });
    let engines = engines.into_iter().collect::<Result<Vec<_>, _>>()?;
    let works = [
        ("32 x 100 tokens", (0..32).map(|seed| text(100, seed)).collect::<Vec<_>>(), 1),
        ("query of 9 tokens", vec![text(9, 0)], 50),
    ];
    for (work, texts, times) in works {
        // All take turns, so that other load on the machine affects all of them.
        let mut seconds = vec![Vec::new(); engines.len()];
        for round in 0..=rounds {
            for ((_, engine), seconds) in engines.iter().zip(&mut seconds) {
                let (median, _) = embed(engine, &texts, times).await?;
                // The first round only warms up.
                if round > 0 {
                    seconds.push(median);
                }
            }
        }
        for ((name, engine), seconds) in engines.iter().zip(&mut seconds) {
            let mut tokens = 0;
            for text in &texts {
                tokens += engine.count_tokens(text)?;
            }
            let figure = format!("encoder/precision/{name}/{work}");
            out(Figure::alone(&figure, texts.len() * times * rounds, "tokens/s", tokens as f64 / median(seconds)));
        }
    }
    let mut whole: Option<Vectors> = None;
    for (name, engine) in &engines {
        eprintln!("bench: Cranfield in {name}");
        let vectors = vectors(engine, &collection).await?;
        let score = |question: usize| {
            Some(vectors.documents.iter().map(|document| dot(&vectors.questions[question], document)).collect())
        };
        let figure = format!("encoder/precision/{name}/Cranfield");
        out(Figure::alone(&figure, collection.questions.len(), "nDCG@10", collection.ndcg(score)));
        if let Some(whole) = &whole {
            let pairs = whole.documents.iter().zip(&vectors.documents);
            let pairs = pairs.chain(whole.questions.iter().zip(&vectors.questions));
            let cosines: Vec<f64> = pairs.map(|(whole, low)| f64::from(dot(whole, low))).collect();
            let mean = cosines.iter().sum::<f64>() / cosines.len() as f64;
            let worst = cosines.iter().copied().fold(1.0, f64::min);
            out(Figure::alone(
                &format!("encoder/precision/{name}/mean likeness to f32"),
                cosines.len(),
                "cosine",
                mean,
            ));
            out(Figure::alone(
                &format!("encoder/precision/{name}/worst likeness to f32"),
                cosines.len(),
                "cosine",
                worst,
            ));
        }
        whole.get_or_insert(vectors);
    }
    Ok(())
}

async fn vectors(engine: &Engine, collection: &Cranfield) -> Result<Vectors, BoxError> {
    let (mut documents, mut questions) = (Vec::new(), Vec::new());
    for texts in collection.documents.chunks(TEXTS) {
        let texts = texts.iter().map(|text| fitting(engine, text)).collect::<Result<_, _>>()?;
        documents.extend(engine.embed_documents(texts).await?.into_iter().map(|embedding| embedding.vector));
    }
    for question in &collection.questions {
        questions.push(engine.embed_query(question.clone()).await?);
    }
    Ok(Vectors { documents, questions })
}
