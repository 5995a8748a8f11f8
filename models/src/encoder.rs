//! The encoder: one description for every architecture, and two ways to run it.
//!
//! [`FastEncoder`] has its own kernels and runs on the processor, [`PlainEncoder`] is on Burn's tensor API and runs on any of
//! its backends. Each is the other's oracle in tests.

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

/// A model's body: token ids in, one row of hidden state per token out.
pub(crate) trait Encoder: Send + Sync {
    /// `[tokens, hidden]` row by row, in the order of the tokens. May panic on ids or lengths that the model has no
    /// weights for; the engine checks these before, and a worker outlives it.
    fn forward(&self, batch: &Ragged) -> Vec<f32>;

    /// As [`Self::forward`], wherever `place` has it run.
    fn forward_in(&self, batch: &Ragged, place: &dyn Place) -> Vec<f32> {
        let mut rows = Vec::new();
        place.run(&mut |_| rows = self.forward(batch));
        rows
    }

    fn hidden_size(&self) -> usize;
}

/// Where a pass runs: on the thread that took it, or on all of them while it is the only one.
pub(crate) trait Place {
    /// Runs `work`, and tells it by a function when to come back: what is left is then better run in another place.
    fn run(&self, work: &mut (dyn FnMut(&dyn Fn() -> bool) + Send));
}

/// The rayon pool that this is called in.
pub(crate) struct Here;

impl Place for Here {
    fn run(&self, work: &mut (dyn FnMut(&dyn Fn() -> bool) + Send)) {
        work(&|| false);
    }
}

/// All weights of an encoder as plain numbers, whatever its architecture.
pub(crate) struct EncoderWeights {
    pub shape: Shape,
    pub embeddings: Embeddings,
    /// One for all layers.
    pub relative_bias: Option<RelativeBias>,
    pub layers: Vec<LayerWeights>,
    pub norm_place: NormPlace,
    pub activation: Activation,
    pub final_norm: Option<LayerNorm>,
}

/// What a token's first row is the normalised sum of.
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
    /// Queries, keys and values side by side: one product instead of three.
    pub qkv: Linear,
    pub output: Linear,
    pub attention_norm: Option<LayerNorm>,
    /// Twice as wide as `down` is deep where the activation is gated: the half that goes through the function first.
    pub up: Linear,
    pub down: Linear,
    /// The feed-forward part's.
    pub norm: LayerNorm,
    /// Tokens that a token sees to each side; `None`: all.
    pub window: Option<usize>,
    pub rotary: Option<Arc<Rotary>>,
}

/// A linear layer, its weight `[inputs, outputs]`.
pub(crate) struct Linear {
    pub weight: Floats,
    pub bias: Option<Vec<f32>>,
    pub inputs: usize,
    pub outputs: usize,
}

/// What is added to a score for how far its key stands from its query.
pub(crate) struct RelativeBias {
    /// For each head, by distance from `1 - positions` to `positions - 1`.
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

/// Where a sublayer's normalisation stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NormPlace {
    /// Before it, on what goes in; what comes out is added to what was not normalised.
    Before,
    /// After it, on the sum of what went in and what came out.
    After,
}

/// What stands between the two linear layers of the feed-forward part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Activation {
    /// GELU by erf.
    Gelu,
    /// GELU of the first half times the second.
    GatedGelu,
    /// SiLU of the first half times the second.
    GatedSilu,
}
