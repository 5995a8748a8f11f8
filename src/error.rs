//! What goes wrong inside, as the one error of the wire.
use crate::search::bm25;
use svc_client::{Code, Failure};
use svc_models::ModelError;

/// Turns an inner error into the wire's. A trait of ours, since both types are foreign to this crate.
pub trait IntoFailure {
    fn into_failure(self) -> Failure;
}

/// Whether there was no connection to be had: nothing was asked of the database.
pub fn no_connection(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed => true,
        // No connection left; starting up.
        sqlx::Error::Database(error) => error.code().is_some_and(|code| code == "53300" || code == "57P03"),
        _ => false,
    }
}

/// Whether the database itself is away, rather than the statement wrong.
pub fn database_is_away(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::WorkerCrashed
        | sqlx::Error::Tls(_) => true,
        // 57P0x: shut down, crashed, starting up. 08xxx: connection. 53300: no connection left. 25P03: idle too long.
        sqlx::Error::Database(error) => error.code().is_some_and(|code| {
            code.starts_with("57P") || code.starts_with("08") || code == "53300" || code == "25P03"
        }),
        _ => false,
    }
}

impl IntoFailure for sqlx::Error {
    fn into_failure(self) -> Failure {
        if database_is_away(&self) {
            tracing::warn!(error = %self, "the database is away");
            return Failure::new(Code::Unavailable, "the database does not answer now")
                .with("remedy", "try again shortly")
                .with("retry_after", 2);
        }
        if self.as_database_error().and_then(|error| error.code()).as_deref() == Some("57014") {
            tracing::warn!(error = %self, "a statement of a request took too long");
            return Failure::new(
                Code::TimedOut,
                "the database takes longer over this than SVC_STATEMENT_TIMEOUT_SECONDS allows",
            )
            .with("setting", "SVC_STATEMENT_TIMEOUT_SECONDS")
            .with("remedy", "ask for less at a time, or raise SVC_STATEMENT_TIMEOUT_SECONDS");
        }
        let state = self.as_database_error().and_then(|error| error.code()).unwrap_or_default();
        match state.get(..2) {
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

impl IntoFailure for bm25::Error {
    fn into_failure(self) -> Failure {
        match self {
            bm25::Error::Database(error) => error.into_failure(),
            error => {
                tracing::error!(error = %error, "the BM25 index failed");
                Failure::new(
                    Code::Internal,
                    "the index could not be searched; the log has the cause under this request's id",
                )
            }
        }
    }
}

impl IntoFailure for ModelError {
    fn into_failure(self) -> Failure {
        match self {
            ModelError::TextTooLong { token_count, limit, chars_total, .. } => Failure::new(
                Code::TextTooLong,
                format!("the text has {token_count} tokens, the model's window is {limit}"),
            )
            .with("token_count", token_count)
            .with("limit", limit)
            .with("chars_total", chars_total)
            .with("remedy", "chunk the text first, or ask for a document vector only (with_tokens=false)"),
            error => {
                tracing::error!(error = %error, "the model failed");
                Failure::new(Code::Internal, "the model failed; the log has the cause under this request's id")
            }
        }
    }
}

impl IntoFailure for std::io::Error {
    fn into_failure(self) -> Failure {
        tracing::error!(error = %self, "a file of the service's own could not be used");
        Failure::new(Code::Internal, "a working file could not be used; the log has the cause under this request's id")
    }
}

/// `?` on inner errors in handlers.
pub trait OrFail<T> {
    fn or_fail(self) -> Result<T, Failure>;
}
impl<T, E: IntoFailure> OrFail<T> for Result<T, E> {
    fn or_fail(self) -> Result<T, Failure> {
        self.map_err(IntoFailure::into_failure)
    }
}
