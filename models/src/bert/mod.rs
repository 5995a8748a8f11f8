//! BERT (MiniLM, bge, e5 and their like): normalisation after each sublayer, biases, learned positions, erf GELU.
//!
//! Two paths over one set of weights: [`FlexBert`], fast, on one backend; [`PlainBert`], on Burn's public tensor API. Each is
//! the other's oracle in tests.

mod config;
mod flex;
mod plain;
mod weights;

pub(crate) use config::BertConfig;
pub(crate) use flex::FlexBert;
pub(crate) use plain::PlainBert;
pub(crate) use weights::BertWeights;
