//! The wire contract of svc, and the clients that speak it.
//!
//! [`operations`] is the table of the service: REST route, OpenAPI entry, in-process method and remote method are all
//! derived from its rows.
mod body;
pub mod constraint;
mod failure;
mod operation;
mod operations;
mod remote;
mod reply;
pub mod wire;

pub use body::{Body, FileUpload, Json, Nothing, OptionalJson, UploadOptions};
pub use failure::{Code, Failure};
pub use operation::{Access, Call, Need, Operation, OperationInfo, Outcome, Params, Transport, Wire};
pub use operations::{Client, OPERATIONS, ops};
pub use remote::Remote;
pub use reply::{Accepted, Created, Located, NoContent, Reply, Text};

/// The version of the contract, sent both ways as `X-Svc-Version`; a server refuses any other.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The header that carries [`VERSION`].
pub const VERSION_HEADER: &str = "x-svc-version";
