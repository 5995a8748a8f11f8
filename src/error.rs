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
    Failure::new(Code::StorageFull, "the disk is full, so the service could not do this; nothing was changed")
        .with("remedy", "free space on the disk of the data folder and of the database, then ask again")
        .with("retry_after", 30)
}

/// The 401 for a missing or bad token. It is always the same, byte for byte.
pub(crate) fn unauthenticated() -> Failure {
    Failure::new(Code::Unauthenticated, "send `Authorization: Bearer <token>` with a valid token")
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
