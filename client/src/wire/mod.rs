//! The values of the contract, one file a family.
mod admin;
mod documents;
mod ingest;
mod search;
mod sheets;
mod system;

pub use admin::*;
pub use documents::*;
pub use ingest::*;
pub use search::*;
pub use sheets::*;
pub use system::*;
