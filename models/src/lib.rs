//! Text embeddings on Burn: encoders, tokenizers, pooling and batching. This crate knows nothing of documents.
//!
//! [`fetch_model`] fetches a model's files if they are not all on this machine. [`Engine::load`], which never uses the
//! network, reads such a folder (`config.json`, `tokenizer.json`, `model.safetensors`) and starts the model's threads;
//! the handle is cheap to clone. Every vector has unit length and [`VECTOR_WIDTH`] components. The vectors of a
//! narrower model are padded with zeros, which leaves every cosine unchanged; a wider model is refused.
//!
//! A text is tokenised on the caller's side, packed into a micro-batch with others of its length, queued in a bounded
//! queue in which queries overtake documents, run by one of the model's threads, pooled and normalised. [`sum_of_nearest`] compares
//! the token vectors of a query with those of a document.

mod architecture;
mod body;
mod catalog;
mod counter;
mod device;
mod encoder;
mod engine;
mod error;
mod folder;
mod health;
mod hub;
mod kernels;
mod late_interaction;
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
mod wordpiece;
mod worker;

#[cfg(test)]
mod sample;

pub use architecture::Architecture;
pub use catalog::{CatalogEntry, ModelKind, bundled_models_dir, catalog, default_models_dir};
pub use counter::TokenCounter;
pub use device::Device;
pub use engine::Engine;
pub use error::ModelError;
pub use hub::{FetchError, HubSettings, Progress, fetch_model};
pub use late_interaction::{sum_of_nearest, unpack};
pub use library::{LibraryModel, library};
pub use passes::Heard;
pub use pooling::{Embedding, Pooling};
pub use precision::Precision;
pub use reranker::{Reranker, RerankerInfo, RerankerSettings};
pub use settings::{ModelInfo, ModelSettings};
pub use token_vectors::TokenVectors;

/// The number of components in every vector, whatever the model.
pub const VECTOR_WIDTH: usize = 768;
