//! BERT and its relatives (MiniLM, bge, e5): normalisation after each sublayer, biases, learned positions, erf GELU.
//!
//! The tensors have the names that `BertModel` of transformers writes. In a model with a head they carry the prefix
//! `bert.`.

use super::tensors::{linear, norm, parse, unsupported};
use crate::{
    ModelError,
    body::{Activation, Embeddings, EncoderWeights, LayerWeights, NormPlace, Shape},
    weights::WeightFile,
};
use serde::Deserialize;
use std::path::Path;

pub(super) struct Config {
    pub token_types: usize,
}

#[derive(Deserialize)]
struct File {
    vocab_size: usize,
    hidden_size: usize,
    intermediate_size: usize,
    num_attention_heads: usize,
    num_hidden_layers: usize,
    max_position_embeddings: usize,
    #[serde(default = "two")]
    type_vocab_size: usize,
    #[serde(default = "epsilon")]
    layer_norm_eps: f64,
    #[serde(default = "gelu")]
    hidden_act: String,
    #[serde(default)]
    position_embedding_type: Option<String>,
    #[serde(default)]
    is_decoder: bool,
}

fn two() -> usize {
    2
}

fn epsilon() -> f64 {
    1e-12
}

fn gelu() -> String {
    "gelu".to_owned()
}

pub(super) fn read(json: &[u8], path: &Path) -> Result<(Shape, Config), ModelError> {
    let file: File = parse(json, path)?;
    let shape = Shape {
        vocabulary: file.vocab_size,
        hidden: file.hidden_size,
        wide: file.intermediate_size,
        heads: file.num_attention_heads,
        layers: file.num_hidden_layers,
        positions: file.max_position_embeddings,
        epsilon: file.layer_norm_eps,
    };
    let shape = shape.check(path)?;
    // Token types are kept as bytes.
    if !(1..=256).contains(&file.type_vocab_size) {
        let problem = format!("type_vocab_size is {}", file.type_vocab_size);
        return Err(ModelError::Corrupt { path: path.to_owned(), problem });
    }
    if file.hidden_act != "gelu" {
        return unsupported(path, format!("hidden_act {:?}", file.hidden_act), "supported: gelu");
    }
    if let Some(kind) = file.position_embedding_type.as_deref().filter(|&kind| kind != "absolute") {
        return unsupported(path, format!("position_embedding_type {kind:?}"), "supported: absolute");
    }
    if file.is_decoder {
        return unsupported(path, "a decoder".to_owned(), "supported: encoders");
    }
    Ok((shape, Config { token_types: file.type_vocab_size }))
}

/// The prefix of the encoder's tensors.
fn root(file: &WeightFile) -> &'static str {
    if file.contains("bert.embeddings.word_embeddings.weight") { "bert." } else { "" }
}

pub(super) fn load(file: &mut WeightFile, shape: &Shape, config: &Config) -> Result<EncoderWeights, ModelError> {
    let root = root(file);
    let (hidden, wide) = (shape.hidden, shape.wide);
    let embedding = |name: &str| format!("{root}embeddings.{name}");
    let embeddings = Embeddings {
        words: file.tensor(&embedding("word_embeddings.weight"), &[shape.vocabulary, hidden])?,
        positions: Some(file.tensor(&embedding("position_embeddings.weight"), &[shape.positions, hidden])?),
        token_types: Some(file.tensor(&embedding("token_type_embeddings.weight"), &[config.token_types, hidden])?),
        norm: norm(file, &embedding("LayerNorm"), shape)?,
    };
    let mut layers = Vec::new();
    for layer in 0..shape.layers {
        let name = |part: &str| format!("{root}encoder.layer.{layer}.{part}");
        let thirds = ["query", "key", "value"].map(|third| name(&format!("attention.self.{third}")));
        layers.push(LayerWeights {
            qkv: file.linear(&thirds, hidden, hidden, true)?,
            output: linear(file, &name("attention.output.dense"), hidden, hidden)?,
            attention_norm: Some(norm(file, &name("attention.output.LayerNorm"), shape)?),
            up: linear(file, &name("intermediate.dense"), hidden, wide)?,
            down: linear(file, &name("output.dense"), wide, hidden)?,
            norm: norm(file, &name("output.LayerNorm"), shape)?,
            window: None,
            rotary: None,
        });
    }
    Ok(EncoderWeights {
        shape: *shape,
        embeddings,
        relative_bias: None,
        layers,
        norm_place: NormPlace::After,
        activation: Activation::Gelu,
        final_norm: None,
        head: None,
    })
}
