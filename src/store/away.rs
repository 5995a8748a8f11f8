//! What an error of the database means: whether the server, its disk or the connection is away, and what the wire is told.
use crate::error::{IntoFailure, disk_is_full, storage_full};
use std::{borrow::Cow, io::ErrorKind};
use svc_client::{Code, Failure};

/// What kept a statement from being carried out that has nothing to do with the statement: the same one may well succeed later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Away {
    /// There was no connection to be had: nothing was asked of the database.
    NoConnection,
    /// The server takes no writes: it is a standby, or became one.
    ReadOnly,
    /// Nothing more fits on the disk, the server's or this process's own.
    DiskFull,
    /// The server has no memory or other resource left.
    Exhausted,
    /// The server was stopped, or ended all connections.
    Stopped,
}

impl Away {
    /// A stable name, for logs.
    pub fn code(self) -> &'static str {
        match self {
            Away::NoConnection => "no_connection",
            Away::ReadOnly => "read_only",
            Away::DiskFull => "disk_full",
            Away::Exhausted => "server_exhausted",
            Away::Stopped => "server_stopped",
        }
    }
}

/// The SQLSTATE that the server sent with an error; empty where it sent none.
pub fn sql_state(error: &sqlx::Error) -> Cow<'_, str> {
    error.as_database_error().and_then(|error| error.code()).unwrap_or_default()
}

/// Says what was away, where an error can only come of that. A connection that broke in the middle of a statement is not among
/// them: the statement itself may have brought its server process down.
pub fn away(error: &sqlx::Error) -> Option<Away> {
    match error {
        sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed => return Some(Away::NoConnection),
        sqlx::Error::Io(error) if disk_is_full(error) => return Some(Away::DiskFull),
        sqlx::Error::Io(error) => {
            let unreached = matches!(
                error.kind(),
                // NotFound: the socket of a server that is down.
                ErrorKind::ConnectionRefused
                    | ErrorKind::NotFound
                    | ErrorKind::HostUnreachable
                    | ErrorKind::NetworkUnreachable
            );
            return unreached.then_some(Away::NoConnection);
        }
        _ => {}
    }
    let state = sql_state(error);
    match state.as_ref() {
        "53100" => Some(Away::DiskFull),
        "53300" | "57P03" => Some(Away::NoConnection),
        "25006" => Some(Away::ReadOnly),
        state if state.starts_with("08") => Some(Away::NoConnection),
        state if state.starts_with("53") => Some(Away::Exhausted),
        state if state.starts_with("57P") => Some(Away::Stopped),
        _ => None,
    }
}

/// Whether the connection to the database was lost on the way, by a fault of either side or of what lies between.
pub fn connection_was_lost(error: &sqlx::Error) -> bool {
    // 25P03: the server ended a transaction that idled too long.
    matches!(error, sqlx::Error::Io(_) | sqlx::Error::WorkerCrashed | sqlx::Error::Tls(_))
        || sql_state(error).as_ref() == "25P03"
}

impl IntoFailure for sqlx::Error {
    fn into_failure(self) -> Failure {
        let away = away(&self);
        if away == Some(Away::DiskFull) {
            tracing::error!(error = %self, "the disk of the database is full");
            return storage_full();
        }
        if away == Some(Away::ReadOnly) {
            tracing::error!(error = %self, "the database takes no writes");
            return Failure::new(Code::Unavailable, "the database takes no writes now")
                .with("remedy", "try again shortly; where this lasts, SVC_DATABASE_URL names a standby")
                .with("retry_after", 5);
        }
        if away.is_some() || connection_was_lost(&self) {
            tracing::warn!(error = %self, "the database is away");
            return Failure::new(Code::Unavailable, "the database does not answer now")
                .with("remedy", "try again shortly")
                .with("retry_after", 2);
        }
        if sql_state(&self).as_ref() == "57014" {
            tracing::warn!(error = %self, "a statement of a request took too long");
            return Failure::new(
                Code::TimedOut,
                "the database takes longer over this than SVC_STATEMENT_TIMEOUT_SECONDS allows",
            )
            .with("setting", "SVC_STATEMENT_TIMEOUT_SECONDS")
            .with("remedy", "ask for less at a time, or raise SVC_STATEMENT_TIMEOUT_SECONDS");
        }
        match sql_state(&self).get(..2) {
            // What PostgreSQL cannot hold: a NUL, a time out of range, a text with too many words.
            Some("22" | "54") => {
                return Failure::new(Code::InvalidField, "a value is outside of what can be stored or searched for");
            }
            // Two changes met and this one gave way.
            Some("40") => {
                return Failure::new(Code::Unavailable, "another change was under way here")
                    .with("remedy", "try again")
                    .with("retry_after", 1);
            }
            _ => {}
        }
        tracing::error!(error = %self, "a statement failed");
        Failure::new(
            Code::Internal,
            "the request could not be carried out; the log has the cause under this request's id",
        )
    }
}
