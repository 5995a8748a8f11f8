//! What a caller may read and what it may write: one predicate, in one place, for every leg of every search, every read and every
//! change.
//!
//! Each document bears its guard, the nearest access root at or above it, or 0 for none. So rights are a short list of guards. What a
//! reprocess builds bears -1 until it takes its place under its file, and is out of everybody's reach.
use sqlx::postgres::PgArguments;
use svc_ids::DocumentId;

/// The guard of a document under no access root.
const NO_GUARD: DocumentId = DocumentId(0);

/// The documents that a caller may read, by the rights that it had when they were looked up.
#[derive(Clone, Debug, Default)]
pub struct Readable(Guards);

/// The documents that a caller may change. A function of the store that changes something takes this, and never a [`Readable`].
#[derive(Clone, Debug, Default)]
pub struct Writable(Guards);

#[derive(Clone, Debug, Default)]
struct Guards {
    everything: bool,
    guards: Vec<DocumentId>,
}

impl Guards {
    fn arguments(&self) -> PgArguments {
        use sqlx::Arguments;
        let mut arguments = PgArguments::default();
        let added = arguments.add(self.everything).and_then(|()| arguments.add(&self.guards));
        debug_assert!(added.is_ok(), "booleans and bigint arrays always encode");
        arguments
    }
}

impl Readable {
    /// Everything; the owner's.
    pub fn everything() -> Readable {
        Readable(Guards { everything: true, guards: Vec::new() })
    }

    /// What bears one of these guards, and what bears none.
    pub fn under(guards: &[DocumentId]) -> Readable {
        let open = [NO_GUARD];
        Readable(Guards { everything: false, guards: open.iter().chain(guards).copied().collect() })
    }

    /// Whether this is everything.
    pub fn is_everything(&self) -> bool {
        self.0.everything
    }

    /// The first two arguments of every statement that holds the macro `readable!`.
    pub fn arguments(&self) -> PgArguments {
        self.0.arguments()
    }

    /// A statement that contains the macro `readable!`, with the macro's two arguments written into the text.
    pub(super) fn written(&self, statement: &str) -> String {
        let guards: Vec<String> = self.0.guards.iter().map(|guard| guard.0.to_string()).collect();
        let guards = format!("'{{{}}}'::bigint[]", guards.join(","));
        statement.replace("$1::boolean", &self.0.everything.to_string()).replace("$2::bigint[]", &guards)
    }
}

impl Writable {
    /// Everything; the owner's.
    pub fn everything() -> Writable {
        Writable(Guards { everything: true, guards: Vec::new() })
    }

    /// What bears one of these guards. What bears none is the owner's to change.
    pub fn under(guards: &[DocumentId]) -> Writable {
        Writable(Guards {
            everything: false,
            guards: guards.iter().copied().filter(|guard| *guard != NO_GUARD).collect(),
        })
    }

    /// Whether this is everything.
    pub fn is_everything(&self) -> bool {
        self.0.everything
    }

    /// The first two arguments of every statement that holds the macro `readable!`.
    pub fn arguments(&self) -> PgArguments {
        self.0.arguments()
    }

    /// The guards alone, for a statement that asks what a caller may read too; the owner's are none.
    pub(super) fn guards(&self) -> Vec<DocumentId> {
        self.0.guards.clone()
    }
}

/// The predicate over `documents d` that leaves out what a reprocess builds, which not even the owner reaches.
macro_rules! visible {
    () => {
        "d.guard <> -1"
    };
}
pub(crate) use visible;

/// The predicate over `documents d`; its arguments are $1 and $2, by [`Readable::arguments`] or [`Writable::arguments`]. A statement that
/// scans has to be planned with their values: only a constant list is hashed, and only then is the owner's `true` folded away.
macro_rules! readable {
    () => {
        "(d.guard <> -1 AND ($1::boolean OR d.guard = ANY($2::bigint[])))"
    };
}
pub(crate) use readable;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_written_scope_is_the_scope_and_leaves_no_parameter() {
        let written = |scope: &Readable| scope.written(readable!());
        assert_eq!(
            written(&Readable::everything()),
            "(d.guard <> -1 AND (true OR d.guard = ANY('{}'::bigint[])))",
            "what a reprocess builds is out of the owner's reach too"
        );
        let under = Readable::under(&[DocumentId(7), DocumentId(i64::MIN)]);
        assert_eq!(
            written(&under),
            "(d.guard <> -1 AND (false OR d.guard = ANY('{0,7,-9223372036854775808}'::bigint[])))"
        );
        assert_eq!(written(&Readable::default()), "(d.guard <> -1 AND (false OR d.guard = ANY('{}'::bigint[])))");
    }
}
