//! A document store organised as a tree: ingestion, retrieval and a knowledge graph in one unit.
//!
//! ARCHITECTURE.md at the top of the repository is the way in.
pub mod access;
pub mod admission;
pub mod app;
pub mod cli;
pub mod core;
pub mod disk;
pub mod embedded;
pub mod embedding;
pub mod error;
pub mod handlers;
pub mod ingest;
pub mod listener;
pub mod logging;
pub mod reader;
pub mod registry;
pub mod sampler;
pub mod search;
pub mod secrets;
pub mod service;
pub mod settings;
pub mod store;
pub mod telemetry;
pub mod worker;
