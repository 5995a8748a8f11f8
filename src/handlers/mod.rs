//! What each operation does, one file per family: authorize, act, answer.
pub mod access;
pub mod admin;
pub mod api_tokens;
pub mod batch;
pub mod bytes;
pub mod documents;
mod entries;
pub mod frontier;
pub mod grants;
pub mod ingest;
pub mod lists;
pub mod plan;
pub mod raptor;
pub mod runner;
pub mod search;
pub mod sheets;
pub mod system;
pub mod token_vectors;
