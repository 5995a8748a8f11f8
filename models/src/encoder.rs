//! The encoder: one description for every architecture, and two ways to run it.
//!
//! [`FastEncoder`] has its own kernels and runs on the processor. [`PlainEncoder`] uses Burn's tensor API and runs on
//! any of its backends. Each checks the other in tests.

use crate::ragged::Ragged;

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
