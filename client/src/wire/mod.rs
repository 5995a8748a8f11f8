//! The values of the contract, one file per family.
mod access;
mod admin;
mod documents;
mod entries;
mod events;
mod ingest;
mod plan;
mod raptor;
mod runner;
mod search;
mod sheets;
mod structured;
mod system;
mod token_vectors;

pub use access::*;
pub use admin::*;
pub use documents::*;
pub use entries::*;
pub use events::*;
pub use ingest::*;
pub use plan::*;
pub use raptor::*;
pub use runner::*;
pub use search::*;
pub use sheets::*;
pub use system::*;
pub use token_vectors::*;
