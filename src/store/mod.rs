//! All SQL, one file per group of tables, as plain functions on a connection.
//!
//! The caller begins and ends the transaction, only through [`transaction`]. Every read that answers a caller's request
//! takes the [`scope::Readable`] of what that caller may read, and a function that changes documents a [`places::Place`].
pub mod access;
pub mod admin;
pub mod advisory;
pub(crate) mod api_tokens;
pub(crate) mod audit;
pub(crate) mod away;
pub(crate) mod batch;
pub mod blobs;
pub(crate) mod cancelled;
pub mod database;
pub mod deliveries;
pub mod documents;
pub(crate) mod edits;
pub mod event_feed;
pub mod events;
pub(crate) mod evidence;
pub mod indexes;
pub mod ingest_nodes;
pub mod kept;
pub mod leases;
pub(crate) mod links;
pub mod locks;
pub(crate) mod moves;
pub(crate) mod nodes;
pub mod places;
pub(crate) mod principals;
pub mod queue;
pub(crate) mod raptor;
pub mod reservations;
pub(crate) mod roles;
pub mod schema;
pub mod scope;
pub mod search;
pub(crate) mod segments;
pub(crate) mod sheets;
pub mod tasks;
pub(crate) mod text;
pub(crate) mod token_vectors;
pub mod transaction;
pub mod upkeep;
pub mod vectors;
pub mod webhooks;
pub mod word;
pub mod workers;
