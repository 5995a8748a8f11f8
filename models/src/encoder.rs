//! The encoder: one description for every architecture on Burn's tensors, for any device.
//!
//! [`BurnEncoder`] is the description. [`ops`] has its operations as an extension of Burn's backends: this crate's kernels
//! on the processor, and bodies composed of Burn's own operations elsewhere.

use crate::{Pooling, ragged::Ragged};

mod composed;
mod model;
mod ops;
#[cfg(test)]
mod tests;

pub(crate) use model::{BurnEncoder, Composed, Form, Placement};

/// What is made of the rows of hidden state that an encoder computes, one for each token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// One row for each text, which points where its vector points.
    Vector(Pooling),
    /// All rows as they are.
    Rows,
    /// One number for each pair of texts, from the model's head.
    Score,
}

/// A model's body: it takes token ids and gives numbers.
pub(crate) trait Encoder: Send + Sync {
    /// Returns what is wanted row by row, in the order of the batch. It may panic on ids or lengths that the model has
    /// no weights for; the engine checks these first, and a worker survives the panic.
    fn forward(&self, batch: &Ragged, wanted: Wanted, place: &dyn Place) -> Vec<f32>;

    fn hidden_size(&self) -> usize;
}

/// Where a pass runs: on the thread that took it, or on all threads while it is the only pass.
pub(crate) trait Place: Sync {
    /// Lets others go first. A pass on one thread calls this every few milliseconds, however long its texts are.
    fn pause(&self) {}

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
