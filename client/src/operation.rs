//! One operation: a row of the table, as a type.
use crate::{Code, Failure, body::Body, constraint::Constraint, meta::Meta, position::Position, reply::Reply};
use http::Method;
use serde::{Serialize, de::DeserializeOwned};

/// The facts of a row, without its types.
#[derive(Clone, Debug)]
pub struct OperationInfo {
    /// The name in snake_case, which marker type, handler, client method, operationId and metric label share.
    pub name: &'static str,
    pub method: Method,
    /// Has `{placeholders}` for the path parameters.
    pub path: &'static str,
    pub access: Access,
    /// A part of the service that the operation needs: without it the answer is 501 or 503.
    pub needs: Option<Need>,
    /// What a language model may do with it, if it is a tool.
    pub tool: Option<Tool>,
    /// Which servers of the database may answer it.
    pub on: On,
    /// See [`Body::most_bytes`].
    pub most_bytes: fn(u64) -> u64,
    /// The codes that the handler refuses with, besides those that follow from the operation's parameters and body.
    pub fails: &'static [Code],
    /// The lines of documentation; the first is the summary.
    pub docs: &'static [&'static str],
}

impl OperationInfo {
    /// The operation in one line.
    pub fn summary(&self) -> &'static str {
        self.docs.first().map_or("", |line| line.trim())
    }

    /// All of the documentation, as CommonMark.
    pub fn description(&self) -> String {
        self.docs.iter().map(|line| line.trim()).collect::<Vec<_>>().join("\n")
    }

    /// Whether it changes nothing, so that a call whose answer was lost can be made again.
    pub fn only_reads(&self) -> bool {
        self.method == Method::GET || self.access == Access::Read
    }

    /// Whether it is a search.
    pub fn searches(&self) -> bool {
        self.path.starts_with("/search/")
    }
}

/// Who may call an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Anyone who may read the documents that the call names; others get 404.
    Read,
    /// Anyone who may write the documents that the call names; a caller who may only read them gets 403.
    Write,
    /// Only the owner token.
    Owner,
    /// Anyone with `SVC_RUNNER_KEY`.
    RunnerKey,
    /// Anyone.
    Public,
    /// Anyone if `SVC_PUBLIC_METRICS` says so, else the owner.
    Metrics,
}

/// A part of the service that an operation needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// The embedding model, here or at a runner.
    Model,
    /// The embedding model, in this process.
    OwnModel,
}

/// Which servers of the database may answer an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    /// The primary alone: it writes, or it follows work that goes on there.
    Primary,
    /// A standby too, if there is one: it reads, and nothing of its answer is sent before all of it is read.
    Replica,
}

/// What an operation does as a tool of a language model, which is told so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tool {
    /// It changes nothing.
    Read,
    /// It adds something, or ends work that can be begun again.
    Write,
    /// What it takes away does not come back.
    Destructive,
}

/// One operation of the service, as a type.
pub trait Operation: Send + Sync + 'static {
    const INFO: OperationInfo;
    type Path: Params;
    type Query: Params;
    type Body: Body;
    type Reply: Reply;
}

/// What a caller sends. `B` is the type of the body: as the caller sends it, or as the service has received it.
pub struct Call<O: Operation, B = <O as Operation>::Body> {
    pub meta: Meta,
    pub path: O::Path,
    pub query: O::Query,
    pub body: B,
}

/// What a caller gets.
pub type Outcome<O> = Result<<<O as Operation>::Reply as Reply>::Value, Failure>;

/// Carries a call to the service, over HTTP or in process.
pub trait Transport<O: Operation> {
    fn send(&self, call: Call<O>) -> impl Future<Output = Outcome<O>> + Send;
}

#[cfg(feature = "openapi")]
mod described {
    pub use utoipa::{IntoParams, ToSchema};
}
#[cfg(not(feature = "openapi"))]
mod described {
    /// Without the `openapi` feature nothing is described, so every type qualifies.
    pub trait IntoParams {}
    impl<T> IntoParams for T {}
    pub trait ToSchema {}
    impl<T> ToSchema for T {}
}
pub(crate) use described::{IntoParams, ToSchema};

/// Path or query parameters.
pub trait Params: Clone + Serialize + DeserializeOwned + IntoParams + Send + Sync + 'static {
    /// Constraints on fields beyond their types, by the names on the wire.
    fn constraints() -> Vec<(&'static str, Constraint)> {
        Vec::new()
    }
    /// Names the first field that breaks a constraint which its type cannot express.
    fn check(&self) -> Result<(), Failure> {
        Ok(())
    }
}

/// A JSON value of the contract.
pub trait Wire: Clone + Serialize + DeserializeOwned + ToSchema + Send + Sync + 'static {
    /// Constraints on fields beyond their types, by the names on the wire; `outer.inner` names a field of a nested
    /// object, or of each object of a list.
    fn constraints() -> Vec<(&'static str, Constraint)> {
        Vec::new()
    }
    /// Names the first field that breaks a constraint which its type cannot express.
    fn check(&self) -> Result<(), Failure> {
        Ok(())
    }
    /// The most bytes of a body, where a service takes others of so many.
    fn most_bytes(usual: u64) -> u64 {
        usual
    }
    /// Whether `include_embed` may also stand in the query of a request with this body.
    const SHOWS_EMBED: bool = false;
    /// Asks for the vectors of the documents that the answer shows.
    fn show_embed(&mut self) {}
    /// The position that a store has reached at least if it shows what this tells; `None` if this names no position.
    fn position(&self) -> Option<Position> {
        None
    }
    /// The failure that says what took the place of a field of an earlier release, if the field is one. A request with
    /// such a field gets it, whatever else is wrong with the request.
    fn retired(_field: &str) -> Option<Failure> {
        None
    }
}
