//! What an error of the database means: whether the server, its disk or the connection is away, and what the wire is
//! told.
use crate::error::{IntoFailure, disk_is_full, storage_full};
use std::{borrow::Cow, io::ErrorKind};
use svc_client::{Code, Failure};

/// Why a statement could not run, if the statement itself is not the cause; the same one may well succeed later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Away {
    /// No connection was available, so nothing was asked of the database.
    NoConnection,
    /// The server takes no writes: it is a standby, or became one.
    ReadOnly,
    /// A disk is full, the server's or this process's own.
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

/// The SQLSTATE that the server sent with an error; empty if it sent none.
pub fn sql_state(error: &sqlx::Error) -> Cow<'_, str> {
    error.as_database_error().and_then(|error| error.code()).unwrap_or_default()
}

/// Says what was away, if nothing else can cause the error. A connection that broke in the middle of a statement does
/// not count, because the statement itself may have crashed its server process.
pub fn away(error: &sqlx::Error) -> Option<Away> {
    match error {
        sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed => return Some(Away::NoConnection),
        sqlx::Error::Io(error) if disk_is_full(error) => return Some(Away::DiskFull),
        sqlx::Error::Io(error) => {
            let unreached = matches!(
                error.kind(),
                // NotFound: the server's socket is missing because it is down.
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

/// Whether the connection to the database was lost, by a fault of either side or between them.
pub fn connection_was_lost(error: &sqlx::Error) -> bool {
    // 25P03: the server ended a transaction that was idle for too long.
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
                .with("remedy", "try again shortly; if this persists, SVC_DATABASE_URL names a standby")
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
                "the database needs longer for this than SVC_STATEMENT_TIMEOUT_SECONDS allows",
            )
            .with("setting", "SVC_STATEMENT_TIMEOUT_SECONDS")
            .with("remedy", "ask for less at a time, or raise SVC_STATEMENT_TIMEOUT_SECONDS");
        }
        match sql_state(&self).get(..2) {
            // PostgreSQL cannot hold the value: a NUL, a time out of range, a text with too many words.
            Some("22" | "54") => {
                return Failure::new(
                    Code::InvalidField,
                    "a value is outside the range that can be stored or searched for",
                );
            }
            // Two changes conflicted and this one gave way.
            Some("40") => {
                return Failure::new(Code::Unavailable, "another change was under way at the same place")
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
