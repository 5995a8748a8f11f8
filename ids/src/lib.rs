//! Ids as types of their own, so that none is taken for another. In JSON and in the database they are plain numbers.
//!
//! ```compile_fail,E0308
//! fn of_task(_: svc_ids::TaskId) {}
//! of_task(svc_ids::DocumentId(7));
//! ```
use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! ids { ($( $(#[doc = $doc:literal])* $name:ident, )*) => { $(
    $(#[doc = $doc])*
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    #[serde(transparent)]
    #[cfg_attr(feature = "sqlx", derive(sqlx_macros::Type), sqlx(transparent))]
    pub struct $name(pub i64);

    // The macro writes this implementation only if it is compiled with the driver.
    #[cfg(feature = "sqlx")]
    impl sqlx::postgres::PgHasArrayType for $name {
        fn array_type_info() -> sqlx::postgres::PgTypeInfo {
            <i64 as sqlx::postgres::PgHasArrayType>::array_type_info()
        }
    }

    impl fmt::Display for $name {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            fmt::Display::fmt(&self.0, f)
        }
    }
)* } }

ids! {
    /// A document: a node of the tree.
    DocumentId,
    /// The root of an ingestion, to which all its tasks belong: an uploaded file, or a document that was created by
    /// itself.
    RootId,
    /// A task of the queue.
    TaskId,
    /// A search index.
    IndexId,
    /// A search context.
    ContextId,
    /// What facts say of their subjects.
    PredicateId,
    /// A fact.
    TripleId,
    /// A shape that facts are held against.
    ShapeBindingId,
    /// A caller with a token of its own.
    PrincipalId,
    /// The token of a principal.
    ApiTokenId,
    /// An address that is called when something happens.
    WebhookId,
    /// One event for one webhook.
    DeliveryId,
}

impl RootId {
    /// The document that is the root.
    pub const fn document(self) -> DocumentId {
        DocumentId(self.0)
    }
}

impl DocumentId {
    /// This document as a root of ingestion.
    pub const fn as_root(self) -> RootId {
        RootId(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_written_as_its_number() {
        let id = RootId(i64::MAX);
        let text = id.to_string();
        assert_eq!((text.as_str(), id.document().to_string()), ("9223372036854775807", text.clone()));
        assert_eq!(id.document().as_root(), id);
    }
}
