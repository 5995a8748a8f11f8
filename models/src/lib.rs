//! Text embeddings on Burn: encoders, tokenizers, pooling and batching. Knows nothing of documents.
//!
//! [`fetch_model`] brings a model's files to this machine where they are not; [`Engine::load`], which never goes to the
//! network, reads such a folder (`config.json`, `tokenizer.json`, `model.safetensors`) and starts the model's threads; the
//! handle is cheap to clone. Every vector has unit length and [`VECTOR_WIDTH`] components: a narrower model
//! is padded with zeros, which leaves every cosine as it is; a wider one is refused.
//!
//! The way of a text: tokenised on the caller's side, packed with others of its length to a micro-batch, queued in a
//! bounded queue in which queries overtake documents, run by one of the model's threads, pooled, normalised.

mod architecture;
mod catalog;
mod classifier;
mod counter;
mod device;
mod encoder;
mod engine;
mod error;
mod folder;
mod health;
mod hub;
mod kernels;
mod library;
mod location;
mod matryoshka;
mod passes;
mod pooling;
mod precision;
mod queue;
mod ragged;
mod reranker;
mod settings;
mod token_vectors;
mod tokenizer;
mod weights;
mod worker;

#[cfg(test)]
mod sample;

pub use architecture::Architecture;
pub use catalog::{CatalogEntry, ModelKind, catalog, default_models_dir};
pub use counter::TokenCounter;
pub use device::Device;
pub use engine::Engine;
pub use error::ModelError;
pub use hub::{FetchError, HubSettings, Progress, fetch_model};
pub use library::{LibraryModel, library};
pub use pooling::Pooling;
pub use precision::Precision;
pub use reranker::{Reranker, RerankerInfo, RerankerSettings};
pub use settings::{ModelInfo, ModelSettings};
pub use token_vectors::TokenVectors;

/// The width of every vector: components, whatever the model.
pub const VECTOR_WIDTH: usize = 768;
