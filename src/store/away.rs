//! What an error of the database means: whether the server, its disk or the connection is away, and what the wire is
//! told.
use crate::error::{IntoFailure, disk_is_full, storage_full, unauthenticated};
use std::{
    borrow::Cow,
    io::ErrorKind,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};
use svc_client::{Code, Failure};

/// When a server last refused a write because it takes none. A process talks to one database.
static READ_ONLY_AT: Mutex<Option<Instant>> = Mutex::new(None);

/// Within this time of a refusal no other one is noted, so that refused writes do not close the connections of reads again and again.
const NOTED_EVERY: Duration = Duration::from_secs(1);

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

/// The SQLSTATE of a statement that waited for a lock longer than its `lock_timeout`.
pub const LOCK_NOT_AVAILABLE: &str = "55P03";

/// The SQLSTATE of a statement that took longer than its `statement_timeout`, or was cancelled.
pub const QUERY_CANCELED: &str = "57014";

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
        "25006" => {
            note_read_only();
            Some(Away::ReadOnly)
        }
        state if state.starts_with("08") => Some(Away::NoConnection),
        state if state.starts_with("53") => Some(Away::Exhausted),
        state if state.starts_with("57P") => Some(Away::Stopped),
        _ => None,
    }
}

/// Notes that a server takes no writes. Connections that are older are asked before they are used again, because after a failover new ones may
/// lead to another server.
fn note_read_only() {
    let mut noted = READ_ONLY_AT.lock().unwrap_or_else(PoisonError::into_inner);
    if noted.is_none_or(|at| at.elapsed() >= NOTED_EVERY) {
        *noted = Some(Instant::now());
    }
}

/// Whether a server has refused a write within so much time because it takes none.
pub(super) fn refused_writes_within(time: Duration) -> bool {
    READ_ONLY_AT.lock().unwrap_or_else(PoisonError::into_inner).is_some_and(|at| at.elapsed() < time)
}

/// Whether the connection to the database was lost, by a fault of either side or between them.
pub fn connection_was_lost(error: &sqlx::Error) -> bool {
    // 25P03: the server ended a transaction that was idle for too long.
    matches!(error, sqlx::Error::Io(_) | sqlx::Error::WorkerCrashed | sqlx::Error::Tls(_))
        || sql_state(error).as_ref() == "25P03"
}

/// Which value the database cannot hold, if an error with this SQLSTATE means that, and what its sender can do. The database does not say in which
/// field it came.
fn not_held(state: &str) -> Option<(&'static str, &'static str)> {
    Some(match state {
        "22007" | "22008" => ("a time is outside of what can be stored", "send times of the years -4711 to 9999"),
        "22003" => ("a number is outside of what can be stored", "send a number that is nearer to 0"),
        "22021" | "22P05" => ("a text has the character U+0000, which cannot be stored", "take it out of the text"),
        "54000" => ("a text is too large to be stored or searched for in one piece", "send it in parts"),
        _ if state.starts_with("22") || state.starts_with("54") => (
            "a value is none that can be stored or searched for",
            "the log has the value's fault under this request's id",
        ),
        _ => return None,
    })
}

/// An error that several callers are told of, each under its own request.
impl IntoFailure for Arc<sqlx::Error> {
    fn into_failure(self) -> Failure {
        failure_of(&self)
    }
}

impl IntoFailure for sqlx::Error {
    fn into_failure(self) -> Failure {
        failure_of(&self)
    }
}

fn failure_of(error: &sqlx::Error) -> Failure {
    super::replicas::note_failure();
    let away = away(error);
    if away == Some(Away::DiskFull) {
        tracing::error!(%error, "the disk of the database is full");
        return storage_full();
    }
    if away == Some(Away::ReadOnly) {
        tracing::error!(%error, "the database takes no writes");
        return Failure::new(Code::Unavailable, "the database takes no writes now")
            .with("remedy", "try again shortly; if this persists, SVC_DATABASE_URL names a standby")
            .with("retry_after", 5);
    }
    if away.is_some() || connection_was_lost(error) {
        tracing::warn!(%error, "the database is away");
        return Failure::new(Code::Unavailable, "the database does not answer now")
            .with("remedy", "try again shortly")
            .with("retry_after", 2);
    }
    if sql_state(error).as_ref() == QUERY_CANCELED {
        tracing::warn!(%error, "a statement of a request took too long");
        return Failure::new(
            Code::TimedOut,
            "the database needs longer for this than SVC_STATEMENT_TIMEOUT_SECONDS allows",
        )
        .with("setting", "SVC_STATEMENT_TIMEOUT_SECONDS")
        .with("remedy", "ask for less at a time, or raise SVC_STATEMENT_TIMEOUT_SECONDS");
    }
    let state = sql_state(error);
    if let Some((detail, remedy)) = not_held(&state) {
        tracing::warn!(%error, "a request has a value that the database cannot hold");
        return Failure::new(Code::InvalidField, detail).with("remedy", remedy);
    }
    if state == LOCK_NOT_AVAILABLE {
        tracing::warn!(%error, "a request waited too long for the changes of others");
        return Failure::new(
            Code::Unavailable,
            "others change for too long what this must change alone; nothing was changed",
        )
        .with("remedy", "try again once less is being ingested")
        .with("retry_after", 10);
    }
    // The principal that calls was deleted meanwhile. Who stores something for another one locks it first.
    let constraint = error.as_database_error().and_then(|error| error.constraint());
    if state == "23503" && constraint.is_some_and(|name| name.ends_with("_principal_id_fkey")) {
        return unauthenticated();
    }
    // Two changes conflicted and this one gave way.
    if state.starts_with("40") {
        return Failure::new(Code::Unavailable, "another change was under way at the same place")
            .with("remedy", "try again")
            .with("retry_after", 1);
    }
    tracing::error!(%error, "a statement failed");
    Failure::new(Code::Internal, "the request could not be carried out; the log has the cause under this request's id")
}

#[cfg(test)]
mod tests {
    use super::not_held;

    #[test]
    fn what_the_database_cannot_hold_is_named_with_a_remedy() {
        for (state, what, remedy) in [
            ("22008", "a time", "-4711 to 9999"),
            ("22003", "a number", "nearer to 0"),
            ("22P05", "U+0000", "take it out"),
            ("54000", "a text is too large", "in parts"),
            ("22P02", "a value", "the log"),
            ("54001", "a value", "the log"),
        ] {
            let (detail, says) = not_held(state).expect(state);
            assert!(detail.contains(what) && says.contains(remedy), "{state}: {detail}; {says}");
        }
        for other in ["", "23505", "40001", "57014"] {
            assert_eq!(not_held(other), None, "{other}");
        }
    }
}
