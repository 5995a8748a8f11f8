use std::path::Path;

use serde::de::DeserializeOwned;

use crate::{
    ModelError,
    encoder::{Linear, RelativeBias},
    kernels::{LayerNorm, Rotary},
    weights::WeightFile,
};

/// The numbers that every encoder has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    /// How many tokens have weights.
    pub vocabulary: usize,
    pub hidden: usize,
    /// The width of the feed-forward layer.
    pub wide: usize,
    pub heads: usize,
    pub layers: usize,
    /// The longest sequence, in tokens.
    pub positions: usize,
    pub epsilon: f64,
}

/// Far above any encoder. It keeps the product of two such numbers inside usize.
const MOST: usize = 10_000_000;
/// A table of rotations or biases has a row for each position, so a config must not be able to ask for gigabytes of it.
const MOST_POSITIONS: usize = 1 << 20;

impl Shape {
    /// Refuses numbers that no tensor can have.
    pub fn check(self, path: &Path) -> Result<Self, ModelError> {
        let corrupt = |problem| Err(ModelError::Corrupt { path: path.to_owned(), problem });
        for (name, value) in [
            ("vocab_size", self.vocabulary),
            ("hidden_size", self.hidden),
            ("intermediate_size", self.wide),
            ("num_attention_heads", self.heads),
            ("num_hidden_layers", self.layers),
            ("max_position_embeddings", self.positions),
        ] {
            if value == 0 || value > MOST {
                return corrupt(format!("{name} is {value}"));
            }
        }
        if self.positions > MOST_POSITIONS {
            return corrupt(format!("max_position_embeddings is {}", self.positions));
        }
        if !self.hidden.is_multiple_of(self.heads) {
            return corrupt(format!(
                "hidden_size {} is not a multiple of num_attention_heads {}",
                self.hidden, self.heads
            ));
        }
        if !(self.epsilon >= 0.0 && self.epsilon < 1.0) {
            return corrupt(format!("the epsilon of its layer norm is {}", self.epsilon));
        }
        Ok(self)
    }

    pub fn head_width(&self) -> usize {
        self.hidden / self.heads
    }

    /// Makes the rotations for `theta`, or refuses a base from which no frequencies can be made.
    pub fn rotary(&self, theta: f64, path: &Path) -> Result<Rotary, ModelError> {
        let corrupt = |problem| Err(ModelError::Corrupt { path: path.to_owned(), problem });
        if !self.head_width().is_multiple_of(2) {
            return corrupt(format!("a head is {} wide; rotary positions need an even width", self.head_width()));
        }
        if !(theta.is_finite() && theta > 1.0) {
            return corrupt(format!("the base of its rotary positions is {theta}"));
        }
        Ok(Rotary::new(theta, self.head_width(), self.positions))
    }
}

pub(super) fn parse<T: DeserializeOwned>(json: &[u8], path: &Path) -> Result<T, ModelError> {
    serde_json::from_slice(json)
        .map_err(|error| ModelError::Corrupt { path: path.to_owned(), problem: error.to_string() })
}

pub(super) fn unsupported<T>(path: &Path, what: String, supported: &'static str) -> Result<T, ModelError> {
    Err(ModelError::Unsupported { path: path.to_owned(), what, supported })
}

/// Reads a weight `[outputs, inputs]` with its bias.
pub(crate) fn linear(file: &mut WeightFile, name: &str, inputs: usize, outputs: usize) -> Result<Linear, ModelError> {
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
