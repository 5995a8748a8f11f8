//! What each operation does, one file a family: authorize, do, answer.
pub mod admin;
pub mod documents;
pub mod ingest;
pub mod lists;
pub mod runner;
pub mod search;
pub mod sheets;
pub mod system;
pub mod tokens;
