//! How fast the tokens of texts are counted, beside the tokenizers' own library, in English and with an accent on every fourth word.
use super::cranfield::Cranfield;
use crate::figure::{BoxError, Figure, Peer, median};
use std::time::Instant;
use svc_models::{Engine, ModelSettings};
use tokenizers::Tokenizer;

/// How many abstracts are counted.
const TEXTS: usize = 300;

pub fn run(rounds: usize, out: &mut dyn FnMut(Figure)) -> Result<(), BoxError> {
    let mut english = Cranfield::read()?.documents;
    english.truncate(TEXTS);
    let accented: Vec<String> = english.iter().map(|text| accented(text)).collect();
    let engine = Engine::load(&ModelSettings::default())?;
    let mut library = Tokenizer::from_bytes(engine.tokenizer_json())?;
    library.with_padding(None).with_truncation(None)?;
    for (name, texts) in [("in English", english), ("with accents", accented)] {
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for round in 0..=rounds {
            let (start, mut counted) = (Instant::now(), 0);
            for text in &texts {
                counted += engine.count_content_tokens(text)?;
            }
            let our_time = start.elapsed().as_secs_f64();
            let (start, mut counted_there) = (Instant::now(), 0);
            for text in &texts {
                counted_there += library.encode_fast(text.as_str(), false)?.len();
            }
            let their_time = start.elapsed().as_secs_f64();
            if counted != counted_there {
                return Err(format!("{counted} tokens were counted, and {counted_there} by the library").into());
            }
            // The first round only warms up.
            if round > 0 {
                ours.push(counted as f64 / our_time);
                theirs.push(counted as f64 / their_time);
            }
        }
        let peer = Peer { name: "tokenizers", version: "0.23".into(), value: median(&mut theirs) };
        let name = format!("encoder/tokens/{name}");
        out(Figure::beside(&name, texts.len(), "tokens/s", median(&mut ours), peer));
    }
    Ok(())
}

fn accented(text: &str) -> String {
    let words = text
        .split(' ')
        .enumerate()
        .map(|(at, word)| if at % 4 == 0 { word.replacen('e', "é", 1) } else { word.to_owned() });
    words.collect::<Vec<_>>().join(" ")
}
