//! The encoder: one description for every architecture, and two ways to run it.
//!
//! [`FastEncoder`] has its own kernels and runs on the processor. [`PlainEncoder`] uses Burn's tensor API and runs on
//! any of its backends. Each checks the other in tests.

use std::sync::Arc;

use crate::{
    architecture::Shape,
    kernels::{LayerNorm, Rotary},
    ragged::Ragged,
    weights::Floats,
};

mod fast;
mod plain;
#[cfg(test)]
mod tests;

pub(crate) use fast::FastEncoder;
pub(crate) use plain::PlainEncoder;

/// A model's body: it takes token ids and gives one row of hidden state per token.
pub(crate) trait Encoder: Send + Sync {
    /// Returns `[tokens, hidden]` row by row, in the order of the tokens. It may panic on ids or lengths that the model
    /// has no weights for; the engine checks these first, and a worker survives the panic.
    fn forward(&self, batch: &Ragged) -> Vec<f32>;

    /// Does the same as [`Self::forward`] wherever `place` runs it.
    fn forward_in(&self, batch: &Ragged, place: &dyn Place) -> Vec<f32> {
        let mut rows = Vec::new();
        place.run(&mut |_| rows = self.forward(batch));
        rows
    }

    fn hidden_size(&self) -> usize;
}

/// Where a pass runs: on the thread that took it, or on all threads while it is the only pass.
pub(crate) trait Place {
    /// Runs `work`, passing a function that returns true when `work` should return so that the rest can run elsewhere.
    fn run(&self, work: &mut (dyn FnMut(&dyn Fn() -> bool) + Send));
}

/// The rayon pool of the caller.
pub(crate) struct Here;

impl Place for Here {
    fn run(&self, work: &mut (dyn FnMut(&dyn Fn() -> bool) + Send)) {
        work(&|| false);
    }
}

/// All weights of an encoder as plain numbers, for any architecture.
pub(crate) struct EncoderWeights {
    pub shape: Shape,
    pub embeddings: Embeddings,
    /// All layers share it.
    pub relative_bias: Option<RelativeBias>,
    pub layers: Vec<LayerWeights>,
    pub norm_place: NormPlace,
    pub activation: Activation,
    pub final_norm: Option<LayerNorm>,
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

/// A linear layer with its weight `[inputs, outputs]`.
pub(crate) struct Linear {
    pub weight: Floats,
    pub bias: Option<Vec<f32>>,
    pub inputs: usize,
    pub outputs: usize,
}

/// A number added to each score, which depends on the distance between key and query.
pub(crate) struct RelativeBias {
    /// For each head, the bias of each distance from `1 - positions` to `positions - 1`.
    pub values: Vec<f32>,
    pub positions: usize,
}

impl RelativeBias {
    /// For one head and one query, the biases of the keys from `first_key` on.
    pub fn row(&self, head: usize, query: usize, first_key: usize) -> &[f32] {
        let width = 2 * self.positions - 1;
        let at = (self.positions - 1 + first_key).saturating_sub(query);
        &self.values[head * width + at..(head + 1) * width]
    }
}

/// Where a sublayer is normalised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NormPlace {
    /// Its input is normalised; its output is added to the input as it was before.
    Before,
    /// The sum of its input and its output is normalised.
    After,
}

/// The function between the two linear layers of the feed-forward part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Activation {
    /// GELU with erf.
    Gelu,
    /// GELU of the first half times the second.
    GatedGelu,
    /// SiLU of the first half times the second.
    GatedSilu,
}
