//! How tensors of every family are read.
use crate::{
    ModelError,
    body::Shape,
    kernels::{LayerNorm, RelativeBias},
    weights::{Linear, WeightFile},
};
use serde::de::DeserializeOwned;
use std::path::Path;

pub(super) fn parse<T: DeserializeOwned>(json: &[u8], path: &Path) -> Result<T, ModelError> {
    serde_json::from_slice(json)
        .map_err(|error| ModelError::Corrupt { path: path.to_owned(), problem: error.to_string() })
}

pub(super) fn unsupported<T>(path: &Path, what: String, supported: &'static str) -> Result<T, ModelError> {
    Err(ModelError::Unsupported { path: path.to_owned(), what, supported })
}

/// Reads a weight `[outputs, inputs]` with its bias.
pub(super) fn linear(file: &mut WeightFile, name: &str, inputs: usize, outputs: usize) -> Result<Linear, ModelError> {
    file.linear(&[name.to_owned()], inputs, outputs, true)
}

/// Reads a weight `[outputs, inputs]` without a bias.
pub(super) fn linear_without_bias(
    file: &mut WeightFile,
    name: &str,
    inputs: usize,
    outputs: usize,
) -> Result<Linear, ModelError> {
    file.linear(&[name.to_owned()], inputs, outputs, false)
}

pub(super) fn norm(file: &mut WeightFile, name: &str, shape: &Shape) -> Result<LayerNorm, ModelError> {
    let mut norm = norm_without_offset(file, name, shape)?;
    norm.offset = file.tensor(&format!("{name}.bias"), &[shape.hidden])?.to_vec();
    Ok(norm)
}

pub(super) fn norm_without_offset(file: &mut WeightFile, name: &str, shape: &Shape) -> Result<LayerNorm, ModelError> {
    let gain = file.tensor(&format!("{name}.weight"), &[shape.hidden])?.to_vec();
    Ok(LayerNorm { gain, offset: vec![0.0; shape.hidden], epsilon: shape.epsilon as f32 })
}

/// The bias of each distance for each head, from a table `[buckets, heads]`.
pub(super) fn relative_bias(
    table: &[f32],
    heads: usize,
    positions: usize,
    bucket: impl Fn(i64) -> usize,
) -> RelativeBias {
    let reach = positions as i64 - 1;
    let buckets: Vec<usize> = (-reach..=reach).map(bucket).collect();
    let by_head = (0..heads).flat_map(|head| buckets.iter().map(move |bucket| table[bucket * heads + head]));
    RelativeBias { values: by_head.collect(), positions }
}
