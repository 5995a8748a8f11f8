//! What a caller may read: one predicate in one place, for every leg of every search and every read.
use sqlx::postgres::PgArguments;

/// Resolved once per request.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    /// True for the owner, who may read everything.
    pub everything: bool,
    /// Containers that may be read, together with what is directly under them.
    pub containers: Vec<i64>,
    /// Nodes directly under a readable container that may not be read.
    pub denied: Vec<i64>,
    /// Nodes that may be read although those above them may not.
    pub regranted: Vec<i64>,
}

impl Scope {
    /// The owner's scope.
    pub fn everything() -> Scope {
        Scope { everything: true, ..Scope::default() }
    }

    /// The first four arguments of every statement that contains [`readable!`].
    pub fn arguments(&self) -> PgArguments {
        use sqlx::Arguments;
        let mut arguments = PgArguments::default();
        let added = arguments
            .add(self.everything)
            .and_then(|()| arguments.add(&self.containers))
            .and_then(|()| arguments.add(&self.denied))
            .and_then(|()| arguments.add(&self.regranted));
        debug_assert!(added.is_ok(), "booleans and bigint arrays always encode");
        arguments
    }
}

/// The predicate over `documents d`; its arguments are $1 to $4, from [`Scope::arguments`].
macro_rules! readable {
    () => {
        "($1::boolean OR d.id = ANY($2::bigint[]) OR (d.parent_id = ANY($2) AND d.id <> ALL($3::bigint[])) OR d.id = ANY($4::bigint[]))"
    };
}
pub(crate) use readable;
