//! BM25 over blocks of postings: they are kept in tables, and the crate `svc-ranking` encodes and scores them.
//!
//! Writing: [`prepare`] analyses texts and interns their terms outside any transaction. [`append`], [`remove`] and
//! [`replace`] are bulk statements in the caller's transaction. [`compact`] seals what they left, and [`purge_terms`] deletes the terms
//! that no document has any more. Reading: [`search`].
//!
//! N, the average length and every document frequency are exact in each reader's snapshot. The totals are the folded
//! ones plus the deltas; df is the sealed count plus the tail postings minus the tombstones. The same transaction
//! writes all of these and the postings.

mod build;
mod compact;
mod load;
mod read;
mod write;

use crate::{error::IntoFailure, store::indexes::IndexError};
pub use build::{build, put};
pub use compact::{Compaction, PurgedTerms, compact, purge_terms};
pub use read::{Allowed, Answer, Hit, Query, Verify, search};
use svc_client::{Code, Failure};
use svc_ids::IndexId;
pub use write::{Prepared, Text, append, intern, prepare, remove, replace};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Index(IndexError),
    #[error("a document of this batch is already in index {0}; remove it first, in the same transaction")]
    AlreadyIndexed(IndexId),
    #[error(
        "the ids of terms in index {0} differ from those that this process remembers, because terms that no document had were deleted, or the database was restored; try again"
    )]
    StaleTerms(IndexId),
    #[error("documents or titles above them changed again and again while these were put into an index; try again")]
    Changed,
    #[error("which indexes cover a document changed while its postings were made; try again")]
    OtherIndexes,
    #[error(
        "postings of term {term} in index {index} cannot be read ({reason}); restore the database, or have the documents embedded anew"
    )]
    Corrupt { index: IndexId, term: i32, reason: &'static str },
    #[error(
        "an entry is missing in index `{0}` for a document that its postings name; restore the database, or have the documents embedded anew"
    )]
    Dangling(Box<str>),
    #[error("index `{0}` was built by another version of svc, and is built anew when this one starts; try again later")]
    OtherAnalyzer(String),
    #[error("index {0} is kept from being written for long, such as while it is emptied; try again later")]
    Emptied(IndexId),
    #[error("index {0} has no number left for a document; have it built anew: POST /indexes/{0}/refresh")]
    Full(IndexId),
    #[error("the token vectors of an index could not be made: {0}")]
    Tokens(String),
    #[error("analysis or scoring was interrupted because the process is ending")]
    Stopped,
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

impl From<IndexError> for Error {
    fn from(error: IndexError) -> Error {
        match error {
            IndexError::Database(error) => Error::Database(error),
            error => Error::Index(error),
        }
    }
}

impl IntoFailure for Error {
    fn into_failure(self) -> Failure {
        match self {
            Error::Database(error) => error.into_failure(),
            Error::OtherAnalyzer(index) => {
                Failure::new(Code::Unavailable, format!("index `{index}` was built by another version of svc"))
                    .with("retry_after", 60)
                    .with("remedy", "restart the service if no other version of it runs beside it")
            }
            Error::Changed | Error::OtherIndexes | Error::StaleTerms(_) => {
                Failure::new(Code::Unavailable, self).with("retry_after", 1)
            }
            Error::Emptied(_) | Error::Full(_) => Failure::new(Code::Unavailable, self).with("retry_after", 60),
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
