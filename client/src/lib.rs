//! The wire contract of svc, and the clients that speak it.
//!
//! `operations.rs` is the table of the service: REST route, OpenAPI entry, in-process method and remote method are all
//! derived from its rows.
#[macro_use]
mod define;

mod body;
pub mod constraint;
mod events;
mod failure;
mod incoming;
mod meta;
mod operation;
mod operations;
mod position;
mod remote;
mod reply;
pub mod wire;
mod words;

pub use body::{Body, FileUpload, Json, Nothing, OptionalJson, RdfSyntax, RdfText, TurtleText};
pub use events::{Event, EventStream, Events, PROBLEM, Sent, event_data};
pub use failure::{Code, Failure};
pub use incoming::Incoming;
pub use meta::{Given, Meta, MetaHeader};
pub use operation::{Access, Call, Need, On, Operation, OperationInfo, Outcome, Params, Tool, Transport, Wire};
pub use operations::{Client, OPERATIONS, ops};
pub use position::{AFTER_HEADER, NOW, NoPosition, POSITION_HEADER, Position};
pub use remote::{Remote, Sender, Untyped, UntypedBody};
#[cfg(feature = "openapi")]
pub use reply::Described;
pub use reply::{
    Accepted, Conditional, Created, Download, FileBytes, Guarded, Html, Located, MediaType, NTriples, NoContent,
    Pieces, Prometheus, Reply, Text, TextStream, Turtle, Validated, Version, Versioned,
};
#[doc(hidden)]
pub use words::ReadWord;
pub use words::UnknownWord;

/// The version of the contract, sent both ways as `X-Svc-Version`; a server refuses any other.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The header that carries [`VERSION`].
pub const VERSION_HEADER: &str = "x-svc-version";
