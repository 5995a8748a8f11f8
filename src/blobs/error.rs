//! Why stored bytes cannot be read or stored.
use crate::{
    error::{IntoFailure, disk_is_full, storage_full},
    settings::Secret,
    store::blobs::BlobPlace,
};
use std::{error::Error, io};
use svc_client::{Code, Failure};
use svc_ids::DocumentId;

/// How much of what a server says goes into an error.
const SAID_CHARS: usize = 500;

#[derive(Debug, thiserror::Error)]
pub enum BlobError {
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    /// It may well be there again later, or once somebody corrects the settings.
    #[error("the object store that SVC_BLOB_STORE names is away: {reason}")]
    Away { reason: String },
    #[error("the bytes are in an object store, and SVC_BLOB_STORE is blank: set it to the store that has them")]
    NotConfigured,
    #[error("the disk of the object store is full")]
    Full,
    #[error(
        "the stored bytes of document {document_id} are missing: {place} is not there; restore it, or delete the \
         document and upload the file again"
    )]
    Missing { document_id: DocumentId, place: BlobPlace },
    #[error(
        "the stored bytes of document {document_id} are damaged: they hash to {found}, and {expected} was stored; restore \
         them, or delete the document and upload the file again"
    )]
    Damaged { document_id: DocumentId, expected: String, found: String },
    #[error(
        "the stored bytes of document {document_id} are damaged: there are fewer than the {expected} that were stored; restore them, or \
         delete the document and upload the file again"
    )]
    Short { document_id: DocumentId, expected: u64 },
    #[error("a working file: {0}")]
    File(io::Error),
}

impl BlobError {
    /// Whether somebody else may have the bytes later: the store, or a person who corrects a setting.
    pub fn is_away(&self) -> bool {
        matches!(self, BlobError::Away { .. } | BlobError::NotConfigured)
    }
}

impl IntoFailure for BlobError {
    fn into_failure(self) -> Failure {
        match self {
            BlobError::Database(error) => error.into_failure(),
            BlobError::File(error) => error.into_failure(),
            BlobError::Full => {
                tracing::error!("the disk of the object store is full");
                storage_full()
            }
            BlobError::Away { .. } => {
                tracing::warn!(error = %self, "the object store is away");
                // Anyone may read this, so the store's address stays in the log.
                Failure::new(Code::Unavailable, "the object store, which keeps the bytes of files, does not answer now")
                    .with("setting", "SVC_BLOB_STORE")
                    .with("remedy", "try again shortly; the service's log says why")
                    .with("retry_after", 5)
            }
            BlobError::NotConfigured => {
                tracing::error!(error = %self, "bytes are in an object store that the settings do not name");
                Failure::new(Code::Unavailable, "the bytes are in an object store that this service does not know")
                    .with("setting", "SVC_BLOB_STORE")
                    .with("remedy", "set SVC_BLOB_STORE to the store that has them")
                    .with("retry_after", 30)
            }
            BlobError::Missing { document_id, .. }
            | BlobError::Damaged { document_id, .. }
            | BlobError::Short { document_id, .. } => {
                tracing::error!(document.id = document_id.0, error = %self, "stored bytes are missing or damaged");
                Failure::new(Code::Internal, format!("the stored bytes of document {document_id} are damaged"))
                    .with("remedy", "restore them from a backup, or delete the document and upload the file again")
            }
        }
    }
}

/// What an error of the object store means for whoever needs it. Whether an object is missing, or the whole store is another one, the
/// caller finds out.
pub(super) fn failed<'a>(error: object_store::Error, secrets: impl Iterator<Item = &'a Secret>) -> BlobError {
    let mut cause: Option<&dyn Error> = Some(&error);
    while let Some(inner) = cause {
        let of_io = inner.downcast_ref::<io::Error>();
        if of_io.is_some_and(disk_is_full) {
            return BlobError::Full;
        }
        // The source of an I/O error that wraps another error is what is behind that one.
        let wrapped = of_io.and_then(io::Error::get_ref).map(|error| error as &dyn Error);
        cause = wrapped.or_else(|| inner.source());
    }
    let said = secrets.fold(error.to_string(), |said, secret| said.replace(secret.expose(), "********"));
    BlobError::Away { reason: said.chars().filter(|c| !c.is_control()).take(SAID_CHARS).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_known_behind_other_errors_and_no_secret_is_told() {
        let full = io::Error::other(io::Error::from(io::ErrorKind::StorageFull));
        let nested = |source: io::Error| object_store::Error::Generic { store: "folder", source: source.into() };
        assert!(matches!(failed(nested(io::ErrorKind::StorageFull.into()), [].iter()), BlobError::Full));
        assert!(matches!(failed(nested(full), [].iter()), BlobError::Full));
        let secrets = [Secret::from("s3cret".to_owned())];
        let said = failed(nested(io::Error::other("<Token-0>s3cret</Token-0>\n")), secrets.iter()).to_string();
        assert!(said.contains("Token-0") && !said.contains("s3cret") && !said.contains('\n'), "{said}");
    }
}
