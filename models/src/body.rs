//! The description of an encoder: its shape, its layers and their weights, for any architecture.

use crate::{
    ModelError,
    kernels::{LayerNorm, RelativeBias, Rotary},
    weights::{Floats, Linear},
};
use std::{path::Path, sync::Arc};

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
/// Positions times the width of a head: a quarter of a gigabyte of cosines and sines.
const MOST_ROTATIONS: usize = 1 << 26;

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
        if self.positions.saturating_mul(self.head_width()) > MOST_ROTATIONS {
            return corrupt(format!(
                "{} positions of heads {} wide need a table of rotations of gigabytes",
                self.positions,
                self.head_width()
            ));
        }
        if !(theta.is_finite() && theta > 1.0) {
            return corrupt(format!("the base of its rotary positions is {theta}"));
        }
        Ok(Rotary::new(theta, self.head_width(), self.positions))
    }
}

/// All weights of an encoder as plain numbers, for any architecture.
pub(crate) struct EncoderWeights {
    pub shape: Shape,
    pub embeddings: Embeddings,
    /// All layers share it.
    pub relative_bias: Option<Arc<RelativeBias>>,
    pub layers: Vec<LayerWeights>,
    pub norm_place: NormPlace,
    pub activation: Activation,
    pub final_norm: Option<LayerNorm>,
    /// Only a cross-encoder has one.
    pub head: Option<Head>,
}

/// The head of a cross-encoder, as in `BertForSequenceClassification` of transformers: it takes the first token's row
/// through the pooler and tanh to one number.
pub(crate) struct Head {
    pub pooler: Linear,
    pub classifier: Linear,
}

/// A token's first row is the normalised sum of these.
pub(crate) struct Embeddings {
    /// `[vocabulary, hidden]`
    pub words: Floats,
    /// `[positions, hidden]`; rotary models have none.
    pub positions: Option<Floats>,
    /// `[types, hidden]`
    pub token_types: Option<Floats>,
    pub norm: LayerNorm,
}

pub(crate) struct LayerWeights {
    /// Queries, keys and values side by side, so that one product replaces three.
    pub qkv: Linear,
    pub output: Linear,
    pub attention_norm: Option<LayerNorm>,
    /// If the activation is gated, this is twice as wide as `down` is deep; the half that goes through the function
    /// comes first.
    pub up: Linear,
    pub down: Linear,
    /// The norm of the feed-forward part.
    pub norm: LayerNorm,
    /// How many tokens a token sees to each side; `None`: all.
    pub window: Option<usize>,
    pub rotary: Option<Arc<Rotary>>,
}

/// Where a sublayer is normalised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NormPlace {
    /// Its input is normalised; its output is added to the input as it was before.
    Before,
    /// The sum of its input and its output is normalised.
    After,
}

/// The function after a linear layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Activation {
    Nothing,
    Tanh,
    /// GELU with erf.
    Gelu,
    /// GELU of the first half times the second.
    GatedGelu,
    /// SiLU of the first half times the second.
    GatedSilu,
}

impl Activation {
    /// Whether it makes one number of two.
    pub fn is_gated(self) -> bool {
        matches!(self, Self::GatedGelu | Self::GatedSilu)
    }
}
