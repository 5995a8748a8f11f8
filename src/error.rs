//! Turns what goes wrong inside into the error of the wire.
use std::io::ErrorKind;
use svc_client::{Code, Failure};

/// Turns an inner error into the wire's. This trait is ours, because both types are foreign to this crate.
pub trait IntoFailure {
    fn into_failure(self) -> Failure;
}

/// Whether a file could not be written because its disk is full.
pub fn disk_is_full(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

/// 507: a disk is full, here or at the database.
pub(crate) fn storage_full() -> Failure {
    Failure::new(Code::StorageFull, "the disk is full; nothing was stored")
        .with("remedy", "free space on the disk of the data folder and of the database, then send this again")
        .with("retry_after", 30)
}

impl IntoFailure for std::io::Error {
    fn into_failure(self) -> Failure {
        if disk_is_full(&self) {
            tracing::error!(error = %self, "the disk of the data folder is full");
            return storage_full();
        }
        tracing::error!(error = %self, "a working file could not be used");
        Failure::new(Code::Internal, "a working file could not be used; the log has the cause under this request's id")
    }
}

/// Makes `?` work on inner errors in handlers.
pub trait OrFail<T> {
    fn or_fail(self) -> Result<T, Failure>;
}
impl<T, E: IntoFailure> OrFail<T> for Result<T, E> {
    fn or_fail(self) -> Result<T, Failure> {
        self.map_err(IntoFailure::into_failure)
    }
}
