//! ModernBERT (modernbert-embed-base, gte-modernbert-base): normalisation before each sublayer, rotary positions,
//! GeGLU, no biases. Most layers see a window around each token; every third layer sees all tokens.
//!
//! The tensors have the names that `ModernBertModel` of transformers writes. In a model with a head they carry the
//! prefix `model.`.

use super::tensors::{linear_without_bias, norm_without_offset, parse, unsupported};
use crate::{
    ModelError,
    body::{Activation, Embeddings, EncoderWeights, LayerWeights, NormPlace, Shape},
    kernels::Rotary,
    weights::WeightFile,
};
use serde::Deserialize;
use std::{path::Path, sync::Arc};

pub(super) struct Config {
    /// For each layer, whether it sees only a window.
    is_local: Vec<bool>,
    /// How many tokens a local layer sees to each side.
    window: usize,
    global_rotary: Arc<Rotary>,
    local_rotary: Arc<Rotary>,
}

#[derive(Deserialize)]
struct File {
    vocab_size: usize,
    hidden_size: usize,
    intermediate_size: usize,
    num_attention_heads: usize,
    num_hidden_layers: usize,
    max_position_embeddings: usize,
    #[serde(default = "epsilon")]
    norm_eps: f64,
    #[serde(default = "gelu")]
    hidden_activation: String,
    #[serde(default = "one_hundred_and_twenty_eight")]
    local_attention: usize,
    #[serde(default = "three")]
    global_attn_every_n_layers: usize,
    #[serde(default)]
    layer_types: Option<Vec<String>>,
    #[serde(default)]
    global_rope_theta: Option<f64>,
    #[serde(default)]
    local_rope_theta: Option<f64>,
    #[serde(default)]
    rope_parameters: Option<RopeParameters>,
    #[serde(default)]
    rope_scaling: Option<serde_json::Value>,
    #[serde(default)]
    norm_bias: bool,
    #[serde(default)]
    attention_bias: bool,
    #[serde(default)]
    mlp_bias: bool,
}

/// The form in which transformers 5 writes both thetas. Earlier versions wrote `global_rope_theta` and
/// `local_rope_theta`.
#[derive(Default, Deserialize)]
struct RopeParameters {
    #[serde(default)]
    full_attention: Rope,
    #[serde(default)]
    sliding_attention: Rope,
}

#[derive(Default, Deserialize)]
struct Rope {
    #[serde(default)]
    rope_theta: Option<f64>,
    #[serde(default)]
    rope_type: Option<String>,
}

fn epsilon() -> f64 {
    1e-5
}

fn gelu() -> String {
    "gelu".to_owned()
}

fn three() -> usize {
    3
}

fn one_hundred_and_twenty_eight() -> usize {
    128
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
        epsilon: file.norm_eps,
    };
    let shape = shape.check(path)?;
    let corrupt = |problem| ModelError::Corrupt { path: path.to_owned(), problem };
    if file.hidden_activation != "gelu" {
        return unsupported(path, format!("hidden_activation {:?}", file.hidden_activation), "supported: gelu");
    }
    if file.norm_bias || file.attention_bias || file.mlp_bias {
        return unsupported(path, "a bias".to_owned(), "supported: ModernBERT without biases");
    }
    let RopeParameters { full_attention: global, sliding_attention: local } = file.rope_parameters.unwrap_or_default();
    let scaled =
        [&global, &local].into_iter().any(|rope| rope.rope_type.as_ref().is_some_and(|kind| kind != "default"));
    if scaled || file.rope_scaling.is_some_and(|scaling| !scaling.is_null()) {
        return unsupported(path, "scaled rotary positions".to_owned(), "supported: unscaled ones");
    }
    if file.global_attn_every_n_layers == 0 {
        return Err(corrupt("global_attn_every_n_layers is 0".to_owned()));
    }
    let is_local = match file.layer_types {
        None => (0..shape.layers).map(|layer| layer % file.global_attn_every_n_layers != 0).collect(),
        Some(types) if types.len() == shape.layers => types
            .iter()
            .map(|kind| match kind.as_str() {
                "full_attention" => Ok(false),
                "sliding_attention" => Ok(true),
                _ => unsupported(path, format!("a layer of type {kind:?}"), "supported: full and sliding attention"),
            })
            .collect::<Result<_, _>>()?,
        Some(types) => return Err(corrupt(format!("{} layer_types for {} layers", types.len(), shape.layers))),
    };
    let global_theta = global.rope_theta.or(file.global_rope_theta).unwrap_or(160_000.0);
    let local_theta = local.rope_theta.or(file.local_rope_theta).unwrap_or(10_000.0);
    let config = Config {
        is_local,
        window: file.local_attention / 2,
        global_rotary: Arc::new(shape.rotary(global_theta, path)?),
        local_rotary: Arc::new(shape.rotary(local_theta, path)?),
    };
    Ok((shape, config))
}

pub(super) fn load(file: &mut WeightFile, shape: &Shape, config: &Config) -> Result<EncoderWeights, ModelError> {
    let root = if file.contains("model.embeddings.tok_embeddings.weight") { "model." } else { "" };
    let (hidden, wide) = (shape.hidden, shape.wide);
    let embeddings = Embeddings {
        words: file.tensor(&format!("{root}embeddings.tok_embeddings.weight"), &[shape.vocabulary, hidden])?,
        positions: None,
        token_types: None,
        norm: norm_without_offset(file, &format!("{root}embeddings.norm"), shape)?,
    };
    let mut layers = Vec::new();
    for (layer, &is_local) in config.is_local.iter().enumerate() {
        let name = |part: &str| format!("{root}layers.{layer}.{part}");
        // The embeddings are normalised already, so the first layer has no norm of its own.
        let attention_norm = match layer {
            0 => None,
            _ => Some(norm_without_offset(file, &name("attn_norm"), shape)?),
        };
        layers.push(LayerWeights {
            qkv: linear_without_bias(file, &name("attn.Wqkv"), hidden, 3 * hidden)?,
            output: linear_without_bias(file, &name("attn.Wo"), hidden, hidden)?,
            attention_norm,
            up: linear_without_bias(file, &name("mlp.Wi"), hidden, 2 * wide)?,
            down: linear_without_bias(file, &name("mlp.Wo"), wide, hidden)?,
            norm: norm_without_offset(file, &name("mlp_norm"), shape)?,
            window: is_local.then_some(config.window),
            rotary: Some(Arc::clone(if is_local { &config.local_rotary } else { &config.global_rotary })),
        });
    }
    Ok(EncoderWeights {
        shape: *shape,
        embeddings,
        relative_bias: None,
        layers,
        norm_place: NormPlace::Before,
        activation: Activation::GatedGelu,
        final_norm: Some(norm_without_offset(file, &format!("{root}final_norm"), shape)?),
        head: None,
    })
}
