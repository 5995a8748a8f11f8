//! All SQL, one file a table group; plain functions on a connection.
//!
//! Whoever calls begins and ends the transaction, by [`transaction`] alone. Every read that a caller's request leads to takes
//! the [`scope::Scope`] of what that caller may read.
pub mod admin;
pub mod away;
pub mod blobs;
pub mod cancelled;
pub mod database;
pub mod documents;
pub mod evidence;
pub mod indexes;
pub mod ingest_nodes;
pub mod kept;
pub mod leases;
pub mod links;
pub mod locks;
pub mod nodes;
pub mod queue;
pub mod reservations;
pub mod roles;
pub mod schema;
pub mod scope;
pub mod search;
pub mod sheets;
pub mod tasks;
pub mod text;
pub mod tokens;
pub mod transaction;
pub mod upkeep;
pub mod workers;
