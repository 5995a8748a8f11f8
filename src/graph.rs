//! What the store knows of facts beyond storing them: when they hold, what takes their place, what follows from them, and how they lead from
//! one document to another.
pub mod deriving;
pub mod facts;
mod interval;
pub mod literal;
pub mod named;
pub mod network;
pub mod occurrences;
pub mod paths;
pub mod quotes;
pub mod resolve;
mod rules;
pub mod terms;
