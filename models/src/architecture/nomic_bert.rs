//! NomicBERT (nomic-embed-text-v1.5): normalisation after each sublayer, rotary positions, SwiGLU, no biases in the
//! linear layers.
//!
//! The tensors have the names of the model's own files; transformers 5 lists these in its conversion mapping for
//! `nomic_bert` and renames them on loading.

use super::tensors::{linear_without_bias, norm, parse, unsupported};
use crate::{
    ModelError,
    body::{Activation, Embeddings, EncoderWeights, LayerWeights, NormPlace, Shape},
    kernels::Rotary,
    weights::WeightFile,
};
use serde::Deserialize;
use std::{path::Path, sync::Arc};

pub(super) struct Config {
    pub token_types: usize,
    rotary: Arc<Rotary>,
}

/// The fields have the names of the model's own config.json (`n_embd` and the like, from GPT-2) or those of
/// transformers.
#[derive(Deserialize)]
struct File {
    vocab_size: usize,
    n_embd: Option<usize>,
    hidden_size: Option<usize>,
    n_inner: Option<usize>,
    intermediate_size: Option<usize>,
    n_head: Option<usize>,
    num_attention_heads: Option<usize>,
    n_layer: Option<usize>,
    num_hidden_layers: Option<usize>,
    n_positions: Option<usize>,
    max_position_embeddings: Option<usize>,
    type_vocab_size: Option<usize>,
    layer_norm_epsilon: Option<f64>,
    layer_norm_eps: Option<f64>,
    activation_function: Option<String>,
    hidden_act: Option<String>,
    rotary_emb_base: Option<f64>,
    rope_parameters: Option<RopeParameters>,
    rotary_scaling_factor: Option<f64>,
    rotary_emb_fraction: Option<f64>,
    rotary_emb_interleaved: Option<bool>,
    prenorm: Option<bool>,
    use_rms_norm: Option<bool>,
    qkv_proj_bias: Option<bool>,
    mlp_fc1_bias: Option<bool>,
    mlp_fc2_bias: Option<bool>,
}

#[derive(Deserialize)]
struct RopeParameters {
    #[serde(default)]
    rope_theta: Option<f64>,
    #[serde(default)]
    rope_type: Option<String>,
}

pub(super) fn read(json: &[u8], path: &Path) -> Result<(Shape, Config), ModelError> {
    let file: File = parse(json, path)?;
    // A number that is missing under both names is 0, which the check refuses by name.
    let shape = Shape {
        vocabulary: file.vocab_size,
        hidden: file.n_embd.or(file.hidden_size).unwrap_or(0),
        wide: file.n_inner.or(file.intermediate_size).unwrap_or(0),
        heads: file.n_head.or(file.num_attention_heads).unwrap_or(0),
        layers: file.n_layer.or(file.num_hidden_layers).unwrap_or(0),
        positions: file.n_positions.or(file.max_position_embeddings).unwrap_or(0),
        epsilon: file.layer_norm_epsilon.or(file.layer_norm_eps).unwrap_or(1e-12),
    };
    let shape = shape.check(path)?;
    let token_types = file.type_vocab_size.unwrap_or(2);
    if !(1..=256).contains(&token_types) {
        let problem = format!("type_vocab_size is {token_types}");
        return Err(ModelError::Corrupt { path: path.to_owned(), problem });
    }
    // The model's own file names the whole layer; transformers names the gate's function.
    let activation = file.activation_function.or(file.hidden_act);
    if let Some(activation) = activation.filter(|name| !["swiglu", "silu"].contains(&name.as_str())) {
        return unsupported(path, format!("activation {activation:?}"), "supported: swiglu");
    }
    let (rope_theta, rope_type) =
        file.rope_parameters.map_or((None, None), |parameters| (parameters.rope_theta, parameters.rope_type));
    let is_scaled = file.rotary_scaling_factor.is_some() || rope_type.is_some_and(|kind| kind != "default");
    let biases = [file.qkv_proj_bias, file.mlp_fc1_bias, file.mlp_fc2_bias];
    for (what, is_there) in [
        ("scaled rotary positions", is_scaled),
        ("rotary positions on a part of a head", file.rotary_emb_fraction.is_some_and(|fraction| fraction != 1.0)),
        ("interleaved rotary positions", file.rotary_emb_interleaved == Some(true)),
        ("normalisation before a sublayer", file.prenorm == Some(true)),
        ("RMS normalisation", file.use_rms_norm == Some(true)),
        ("a bias in a linear layer", biases.contains(&Some(true))),
    ] {
        if is_there {
            return unsupported(path, what.to_owned(), "supported: what nomic-embed-text-v1.5 has");
        }
    }
    let rotary = shape.rotary(file.rotary_emb_base.or(rope_theta).unwrap_or(1000.0), path)?;
    Ok((shape, Config { token_types, rotary: Arc::new(rotary) }))
}

pub(super) fn load(file: &mut WeightFile, shape: &Shape, config: &Config) -> Result<EncoderWeights, ModelError> {
    let (hidden, wide) = (shape.hidden, shape.wide);
    let types = file.tensor("embeddings.token_type_embeddings.weight", &[config.token_types, hidden])?;
    let embeddings = Embeddings {
        words: file.tensor("embeddings.word_embeddings.weight", &[shape.vocabulary, hidden])?,
        positions: None,
        token_types: Some(types),
        norm: norm(file, "emb_ln", shape)?,
    };
    let mut layers = Vec::new();
    for layer in 0..shape.layers {
        let name = |part: &str| format!("encoder.layers.{layer}.{part}");
        let qkv = linear_without_bias(file, &name("attn.Wqkv"), hidden, 3 * hidden)?;
        let output = linear_without_bias(file, &name("attn.out_proj"), hidden, hidden)?;
        let up = file.linear(&[name("mlp.fc12"), name("mlp.fc11")], hidden, wide, false)?;
        layers.push(LayerWeights {
            qkv,
            output,
            attention_norm: Some(norm(file, &name("norm1"), shape)?),
            up,
            down: linear_without_bias(file, &name("mlp.fc2"), wide, hidden)?,
            norm: norm(file, &name("norm2"), shape)?,
            window: None,
            rotary: Some(Arc::clone(&config.rotary)),
        });
    }
    Ok(EncoderWeights {
        shape: *shape,
        embeddings,
        relative_bias: None,
        layers,
        norm_place: NormPlace::After,
        activation: Activation::GatedSilu,
        final_norm: None,
        head: None,
    })
}
