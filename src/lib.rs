//! A document store organised as a tree: it ingests files and finds what is in them by meaning and by words.
//!
//! ARCHITECTURE.md at the top of the repository is the place to start.
pub mod access;
mod admission;
pub mod app;
pub mod cli;
pub mod console;
mod core;
mod disk;
pub mod embedded;
pub mod embedding;
mod error;
pub mod events;
pub mod feed;
pub mod fetch;
mod graph;
mod handlers;
pub mod ingest;
pub mod listener;
mod llm;
mod logging;
pub mod mcp;
mod rdf;
pub mod reader;
pub mod registry;
mod sampler;
pub mod search;
mod secrets;
pub mod service;
pub mod settings;
pub mod spool;
pub mod store;
mod telemetry;
pub mod usetype;
mod view;
pub mod webhooks;
mod words;
pub mod worker;
