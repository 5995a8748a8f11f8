//! The integration tests: the whole service against a real PostgreSQL.
#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may panic")]

mod support;

mod admin;
mod architecture;
mod bm25;
mod bytes;
mod chaining;
mod claims;
mod cli;
mod conditional;
mod contract;
mod crash;
mod documents;
mod embedded;
mod events;
mod extension;
mod faults;
mod fleet;
mod hangups;
mod hostile;
mod ingest;
mod leaves;
mod listener;
mod locks;
mod losses;
mod network;
mod outage;
mod priority;
mod probes;
mod queue;
mod reading;
mod regions;
mod rerank;
mod rudeness;
mod runner;
mod schema;
mod search;
mod secrets;
mod sheets;
mod sizes;
mod spool;
mod surface;
mod transactions;
mod upkeep;
mod uploads;
