//! The Model Context Protocol: operations as tools of a language model, documents as resources, and templates as
//! prompts.
//!
//! Rows of the table that end in `tool` are offered. What they take and answer is derived from the contract, and a call is a
//! request to the service like any other, so that it has the same rights, limits and refusals.
mod arguments;
mod door;
mod ingestion;
mod lines;
mod prompts;
mod resources;
mod schema;
mod synthesis;
mod toolbox;
mod upload;
mod window;

pub use door::Door;
pub use lines::Lines;
pub use toolbox::Toolbox;
