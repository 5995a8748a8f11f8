//! What the store knows of facts beyond storing them: when they hold, what takes their place, and how they lead from one document to another.
pub mod facts;
mod interval;
pub mod literal;
pub mod named;
pub mod network;
pub mod paths;
pub mod quotes;
pub mod resolve;
