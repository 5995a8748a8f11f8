use crate::ragged::Ragged;

/// A model's body: token ids in, one row of hidden state per token out.
pub(crate) trait Encoder: Send + Sync {
    /// `[tokens, hidden]` row by row, in the order of the tokens. May panic on ids or lengths that the model has no
    /// weights for; the engine checks these before, and a worker outlives it.
    fn forward(&self, batch: &Ragged) -> Vec<f32>;

    fn hidden_size(&self) -> usize;
}
