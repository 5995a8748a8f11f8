//! The SQL of the search legs that PostgreSQL runs itself, and the filter that all legs share.
mod composed;
mod expectations;
pub mod facets;
pub mod groups;
mod keys;
pub mod reorder;

use super::{
    documents::add,
    indexes::postings::Resolved,
    scope::{Readable, readable},
    vectors::Layout,
};
use chrono::{DateTime, Utc};
pub use composed::{Composed, few_files};
pub use expectations::Expectations;
use serde_json::Value;
use sqlx::{
    FromRow, PgConnection,
    postgres::{PgArguments, PgRow},
};
use svc_ids::{DocumentId, IndexId};

/// Up to about this many eligible documents are compared exactly; above, the HNSW index may propose candidates.
pub const EXACT_LIMIT: i64 = 10_000;

/// What a search may return.
#[derive(Clone, Debug, Default)]
pub struct Eligible {
    pub scope: Readable,
    pub parent_id: Option<DocumentId>,
    pub usetypes: Option<Vec<String>>,
    pub excluded_usetypes: Vec<String>,
    pub event_time: (Option<DateTime<Utc>>, Option<DateTime<Utc>>),
    pub created_at: (Option<DateTime<Utc>>, Option<DateTime<Utc>>),
    /// An object with at least one key.
    pub structured_content: Option<Value>,
    /// None of these is found, and nothing under them.
    pub excluded: Vec<DocumentId>,
    /// Filters in filters; they hold beside all of the above.
    pub composed: Composed,
}

/// The predicate over `documents d`; its arguments are $1 to $11, from [`Eligible::arguments`]. [`Eligible::statement`] completes it with what
/// the filter asks for besides, so that a plan for any values reads no column that does not matter.
macro_rules! eligible {
    () => {
        concat!("d.settled = 'settled' AND ", readable!(), " AND d.usetype <> ALL($5::text[]) AND {filters}")
    };
}
pub(super) use eligible;

impl Eligible {
    /// Lists of documents: everything eligible is under one document of each.
    pub fn under(&self) -> Vec<Vec<i64>> {
        self.parent_id.map(|id| vec![id.0]).into_iter().chain(self.composed.filter.under.clone()).collect()
    }

    /// Whether everything is eligible but for some usetypes.
    pub fn is_open(&self) -> bool {
        self.scope.is_everything()
            && self.parent_id.is_none()
            && self.usetypes.is_none()
            && self.event_time == (None, None)
            && self.created_at == (None, None)
            && self.structured_content.is_none()
            && self.excluded.is_empty()
            && self.composed.is_open()
    }

    pub(super) fn arguments(&self) -> PgArguments {
        let mut arguments = self.scope.arguments();
        add(&mut arguments, self.parent_id);
        add(&mut arguments, self.usetypes.clone());
        add(&mut arguments, self.excluded_usetypes.clone());
        add(&mut arguments, self.event_time.0);
        add(&mut arguments, self.event_time.1);
        add(&mut arguments, self.created_at.0);
        add(&mut arguments, self.created_at.1);
        add(&mut arguments, self.structured_content.clone());
        add(&mut arguments, (!self.excluded.is_empty()).then(|| self.excluded.clone()));
        arguments
    }

    /// A statement with `eligible!()` in it where everything is eligible but for some usetypes, with these written into it, so that it has none of the
    /// arguments of the predicate.
    pub(super) fn written(&self, statement: &str) -> String {
        let usetypes: Vec<String> = self.excluded_usetypes.iter().map(|usetype| literal(usetype)).collect();
        let usetypes = format!("ARRAY[{}]::text[]", usetypes.join(", "));
        self.scope.written(statement).replace("{filters}", "true").replace("$5::text[]", &usetypes)
    }

    /// What the filter asks for but for scope and excluded usetypes: the parts of the predicate that hold something.
    fn filters(&self) -> Vec<&'static str> {
        let parts = [
            (self.parent_id.is_some(), "d.path @> ARRAY[$3::bigint]"),
            (self.usetypes.is_some(), "d.usetype = ANY($4::text[])"),
            (self.event_time.0.is_some(), "d.event_time >= $6::timestamptz"),
            (self.event_time.1.is_some(), "d.event_time < $7::timestamptz"),
            (self.created_at.0.is_some(), "d.created_at >= $8::timestamptz"),
            (self.created_at.1.is_some(), "d.created_at < $9::timestamptz"),
            (
                self.structured_content.is_some(),
                "(d.structured_content <> '{}' AND d.structured_content @> $10::jsonb)",
            ),
            (!self.excluded.is_empty(), "NOT (d.id = ANY($11::bigint[]) OR d.path && $11::bigint[])"),
        ];
        parts.into_iter().filter(|(is_wanted, _)| *is_wanted).map(|(_, part)| part).collect()
    }
}

/// What the planner expects of a filter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Expected {
    /// How many documents are eligible.
    pub eligible: f64,
    /// How many documents there are.
    pub all: f64,
}

impl Expected {
    /// The share of the documents that are eligible: at most 1, and more than 0.
    pub fn share(&self) -> f64 {
        (self.eligible / self.all.max(1.0)).clamp(1e-6, 1.0)
    }

    /// The same beside what is in the parts of the vectors that have to be read.
    pub fn beside(self, layout: &Layout) -> Expected {
        if layout.root.is_none() {
            return self;
        }
        Expected { all: (self.all / layout.parts.max(1) as f64).max(self.eligible), ..self }
    }
}

/// How many documents the planner expects to be eligible. That takes no longer however many there are, and is as true
/// as the statistics of the table, so that the choice of a way may depend on it, but no result.
pub async fn expected(conn: &mut PgConnection, eligible: &Eligible) -> sqlx::Result<Expected> {
    let mut arguments = eligible.arguments();
    let statement = eligible
        .statement(concat!("EXPLAIN (FORMAT JSON) SELECT FROM documents d WHERE ", eligible!()), &mut arguments);
    let plan: Value = sqlx::query_scalar_with(statement, arguments)
        .persistent(eligible.composed.is_open())
        .fetch_one(&mut *conn)
        .await?;
    let eligible = plan.pointer("/0/Plan/Plan Rows").and_then(Value::as_f64).unwrap_or_default();
    let all: f32 =
        sqlx::query_scalar("SELECT reltuples FROM pg_class WHERE oid = 'documents'::regclass").fetch_one(conn).await?;
    // A table that was never analysed has no such number.
    Ok(Expected { eligible, all: f64::from(all).max(eligible) })
}

/// The statement that tells which documents that were found by their vectors are not in an index of words, and which documents that were found by their
/// words have no vector of a model; [`read_not_held`] reads its rows. If vectors are in parts, it looks only into the part of the document.
pub fn not_held(
    (near, index): (&[DocumentId], &str),
    (worded, model): (&[DocumentId], &str),
    layout: &Layout,
) -> String {
    format!(
        "SELECT by_words, by_vectors FROM not_held({}, {}, {}, {}, {})",
        written_ids(near),
        literal(index),
        written_ids(worded),
        literal(model),
        layout.parts > 0,
    )
}

/// What the rows of [`not_held`] say.
pub fn read_not_held(rows: &[PgRow]) -> sqlx::Result<(Vec<DocumentId>, Vec<DocumentId>)> {
    match rows.first() {
        Some(row) => FromRow::from_row(row),
        None => Err(sqlx::Error::RowNotFound),
    }
}

/// Ids in a statement without parameters.
fn written_ids(ids: &[DocumentId]) -> String {
    let ids: Vec<String> = ids.iter().map(|id| id.0.to_string()).collect();
    format!("'{{{}}}'::bigint[]", ids.join(","))
}

/// A text in a statement. Whatever the text contains, it cannot end the literal, and has nothing in it that stands for a value.
pub(super) fn literal(text: &str) -> String {
    let escaped = [('\\', r"\x5c"), ('\'', r"\x27"), ('{', r"\x7b"), ('$', r"\x24"), ('\0', r"\x00")];
    let text = escaped.into_iter().fold(text.to_owned(), |text, (character, code)| text.replace(character, code));
    format!("E'{text}'")
}

/// The eligible documents that an index has, ascending by their numbers there, if at most [`EXACT_LIMIT`] documents are eligible.
pub async fn listed(
    conn: &mut PgConnection,
    eligible: &Eligible,
    index: IndexId,
) -> sqlx::Result<Option<Vec<Resolved>>> {
    let mut arguments = eligible.arguments();
    add(&mut arguments, index);
    add(&mut arguments, EXACT_LIMIT + 1);
    let statement = eligible.statement(
        concat!(
            "WITH few AS MATERIALIZED (SELECT ARRAY(SELECT d.id FROM documents d WHERE ",
            eligible!(),
            " LIMIT $13) AS ids)
             SELECT cardinality(f.ids) < $13, e.docno, e.document_id
               FROM few f LEFT JOIN (SELECT n.docno, n.document_id FROM search_index_entries n
                      WHERE n.index_id = $12 AND n.document_id = ANY((SELECT ids FROM few WHERE cardinality(ids) < $13)::bigint[])) e ON true
              ORDER BY e.docno"
        ),
        &mut arguments,
    );
    // A statement that is not kept is planned for this very filter.
    let rows: Vec<(bool, Option<i32>, Option<DocumentId>)> =
        sqlx::query_as_with(statement, arguments).persistent(false).fetch_all(conn).await?;
    let are_few = rows.first().is_some_and(|(are_few, ..)| *are_few);
    let entry = |(_, docno, document_id): (bool, Option<i32>, Option<DocumentId>)| {
        Some(Resolved { docno: docno?, document_id: document_id?, passes: true })
    };
    Ok(are_few.then(|| rows.into_iter().filter_map(entry).collect()))
}

/// The documents that have these numbers in an index, each with whether it is eligible.
pub async fn resolve(
    conn: &mut PgConnection,
    eligible: &Eligible,
    index: IndexId,
    docnos: &[i32],
) -> sqlx::Result<Vec<Resolved>> {
    let mut arguments = eligible.arguments();
    add(&mut arguments, index);
    add(&mut arguments, docnos.to_vec());
    let statement = eligible.statement(
        concat!(
            "SELECT e.docno, e.document_id, d.id IS NOT NULL AS passes
               FROM search_index_entries e LEFT JOIN documents d ON d.id = e.document_id AND ",
            eligible!(),
            " WHERE e.index_id = $12 AND e.docno = ANY($13)"
        ),
        &mut arguments,
    );
    sqlx::query_as_with(statement, arguments).persistent(eligible.composed.is_open()).fetch_all(conn).await
}
