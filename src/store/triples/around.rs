//! The facts around nodes at one moment, as shapes look at them.
use super::fact_readable;
use crate::store::{
    documents::add,
    scope::{Readable, readable},
    text::Verbatim,
};
use chrono::{DateTime, Utc};
use sqlx::{PgConnection, postgres::PgArguments};
use svc_ids::{DocumentId, PredicateId, TripleId};

/// The moment that facts are read at.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    pub valid_at: DateTime<Utc>,
    pub known_at: DateTime<Utc>,
    pub asserted_only: bool,
}

/// What a fact leads to, with the IRI that a node came with and whether it came without.
#[derive(Clone, Debug, sqlx_macros::FromRow)]
pub struct End {
    pub id: Option<DocumentId>,
    pub iri: Option<String>,
    pub blank: Option<bool>,
    pub literal: Option<Verbatim>,
    pub datatype: Option<String>,
    pub language: Option<String>,
}

/// A fact beside what was asked for, by the position of that, from 1.
#[derive(Clone, Debug, sqlx_macros::FromRow)]
pub struct Beside {
    pub at: i64,
    pub triple_id: TripleId,
    pub predicate_id: PredicateId,
    #[sqlx(flatten)]
    pub end: End,
}

/// The predicate over `triples t` for what holds and is believed at a moment; its arguments are $3 to $5.
macro_rules! at_moment {
    () => {
        "t.recorded_at <= $3 AND (t.invalidated_at IS NULL OR t.invalidated_at > $3) AND t.valid @> $4 AND (NOT $5 OR t.derived_by IS NULL)"
    };
}

macro_rules! object {
    () => {
        "t.id AS triple_id, t.predicate_id, t.object_id AS id, n.iri, n.blank, t.object_literal AS literal, t.object_datatype AS datatype,
         t.object_language AS language"
    };
}

macro_rules! subject {
    () => {
        "t.id AS triple_id, t.predicate_id, t.subject_id AS id, n.iri, n.blank, NULL::text AS literal, NULL::text AS datatype,
         NULL::text AS language"
    };
}

fn arguments(scope: &Readable, moment: &Moment) -> PgArguments {
    let mut arguments = scope.arguments();
    add(&mut arguments, moment.known_at);
    add(&mut arguments, moment.valid_at);
    add(&mut arguments, moment.asserted_only);
    arguments
}

/// Where predicates lead from nodes; of all predicates if none is named.
pub async fn values(
    conn: &mut PgConnection,
    scope: &Readable,
    moment: &Moment,
    asked: &[(DocumentId, Option<PredicateId>)],
    limit: i64,
) -> sqlx::Result<Vec<Beside>> {
    let mut arguments = arguments(scope, moment);
    add(&mut arguments, asked.iter().map(|(node, _)| *node).collect::<Vec<_>>());
    add(&mut arguments, asked.iter().map(|(_, predicate)| *predicate).collect::<Vec<_>>());
    add(&mut arguments, limit);
    let query = concat!(
        "SELECT a.at, ",
        object!(),
        " FROM unnest($6::bigint[], $7::bigint[]) WITH ORDINALITY a(node, predicate, at)
           JOIN triples t ON t.subject_id = a.node AND (a.predicate IS NULL OR t.predicate_id = a.predicate)
           LEFT JOIN graph_nodes n ON n.document_id = t.object_id
          WHERE ",
        at_moment!(),
        " AND ",
        fact_readable!(),
        " ORDER BY a.at, t.id LIMIT $8"
    );
    sqlx::query_as_with(query, arguments).persistent(false).fetch_all(conn).await
}

/// From where predicates lead to nodes.
pub async fn subjects(
    conn: &mut PgConnection,
    scope: &Readable,
    moment: &Moment,
    asked: &[(DocumentId, PredicateId)],
    limit: i64,
) -> sqlx::Result<Vec<Beside>> {
    let mut arguments = arguments(scope, moment);
    add(&mut arguments, asked.iter().map(|(node, _)| *node).collect::<Vec<_>>());
    add(&mut arguments, asked.iter().map(|(_, predicate)| *predicate).collect::<Vec<_>>());
    add(&mut arguments, limit);
    let query = concat!(
        "SELECT a.at, ",
        subject!(),
        " FROM unnest($6::bigint[], $7::bigint[]) WITH ORDINALITY a(node, predicate, at)
           JOIN triples t ON t.object_id = a.node AND t.predicate_id = a.predicate
           LEFT JOIN graph_nodes n ON n.document_id = t.subject_id
          WHERE ",
        at_moment!(),
        " AND ",
        fact_readable!(),
        " ORDER BY a.at, t.id LIMIT $8"
    );
    sqlx::query_as_with(query, arguments).persistent(false).fetch_all(conn).await
}

/// A literal that predicates lead to.
#[derive(Clone, Debug)]
pub struct AskedLiteral {
    pub value: String,
    pub datatype: String,
    pub language: Option<String>,
    pub predicate_id: PredicateId,
}

/// From where predicates lead to literals.
pub async fn subjects_of_literals(
    conn: &mut PgConnection,
    scope: &Readable,
    moment: &Moment,
    asked: &[AskedLiteral],
    limit: i64,
) -> sqlx::Result<Vec<Beside>> {
    let mut arguments = arguments(scope, moment);
    add(
        &mut arguments,
        asked.iter().map(|asked| Verbatim(asked.value.clone()).stored().into_owned()).collect::<Vec<_>>(),
    );
    add(&mut arguments, asked.iter().map(|asked| asked.datatype.clone()).collect::<Vec<_>>());
    add(&mut arguments, asked.iter().map(|asked| asked.language.clone()).collect::<Vec<_>>());
    add(&mut arguments, asked.iter().map(|asked| asked.predicate_id).collect::<Vec<_>>());
    add(&mut arguments, limit);
    let query = concat!(
        "SELECT a.at, ",
        subject!(),
        " FROM unnest($6::text[], $7::text[], $8::text[], $9::bigint[]) WITH ORDINALITY a(value, datatype, language, predicate, at)
           JOIN triples t ON t.object_literal = a.value AND t.predicate_id = a.predicate AND t.object_datatype = a.datatype
                         AND t.object_language IS NOT DISTINCT FROM a.language
           LEFT JOIN graph_nodes n ON n.document_id = t.subject_id
          WHERE ",
        at_moment!(),
        " AND ",
        fact_readable!(),
        " ORDER BY a.at, t.id LIMIT $10"
    );
    sqlx::query_as_with(query, arguments).persistent(false).fetch_all(conn).await
}

/// Which facts make nodes the targets of a shape.
#[derive(Clone, Debug)]
pub struct Of<'a> {
    pub predicate_id: PredicateId,
    /// Only facts that lead to one of these.
    pub objects: Option<&'a [DocumentId]>,
    /// Only nodes at and under this document.
    pub parent_id: Option<DocumentId>,
}

/// The subjects of facts, by id, each once.
pub async fn subjects_of(
    conn: &mut PgConnection,
    scope: &Readable,
    moment: &Moment,
    of: &Of<'_>,
    limit: i64,
) -> sqlx::Result<Vec<DocumentId>> {
    let mut arguments = arguments(scope, moment);
    add(&mut arguments, of.predicate_id);
    add(&mut arguments, of.objects.map(<[DocumentId]>::to_vec));
    add(&mut arguments, of.parent_id);
    add(&mut arguments, limit);
    let query = concat!(
        "SELECT DISTINCT t.subject_id FROM triples t
          WHERE t.predicate_id = $6 AND ($7::bigint[] IS NULL OR t.object_id = ANY($7))
            AND ($8::bigint IS NULL OR t.subject_id = $8 OR EXISTS (SELECT FROM documents d WHERE d.id = t.subject_id AND d.path @> ARRAY[$8]))
            AND ",
        at_moment!(),
        " AND ",
        fact_readable!(),
        " ORDER BY t.subject_id LIMIT $9"
    );
    sqlx::query_scalar_with(query, arguments).persistent(false).fetch_all(conn).await
}

/// What facts lead to, each once. A literal is at a document if it is said of it or of one under it.
pub async fn objects_of(
    conn: &mut PgConnection,
    scope: &Readable,
    moment: &Moment,
    of: &Of<'_>,
    limit: i64,
) -> sqlx::Result<Vec<End>> {
    let mut arguments = arguments(scope, moment);
    add(&mut arguments, of.predicate_id);
    add(&mut arguments, of.parent_id);
    add(&mut arguments, limit);
    let query = concat!(
        "SELECT DISTINCT t.object_id AS id, n.iri, n.blank, t.object_literal AS literal, t.object_datatype AS datatype, t.object_language AS language
           FROM triples t LEFT JOIN graph_nodes n ON n.document_id = t.object_id
          WHERE t.predicate_id = $6
            AND ($7::bigint IS NULL OR EXISTS (SELECT FROM documents d WHERE d.id = coalesce(t.object_id, t.subject_id) AND (d.id = $7 OR d.path @> ARRAY[$7])))
            AND ",
        at_moment!(),
        " AND ",
        fact_readable!(),
        " ORDER BY 1, 4, 5, 6 LIMIT $8"
    );
    sqlx::query_as_with(query, arguments).persistent(false).fetch_all(conn).await
}

/// The documents that facts with a predicate lead to these, over any number of others, each with the number of the one that it is below. What
/// has the IRI of such a document counts as the same.
pub async fn below(
    conn: &mut PgConnection,
    scope: &Readable,
    moment: &Moment,
    predicate_id: PredicateId,
    roots: &[(i64, DocumentId)],
    limit: i64,
) -> sqlx::Result<Vec<(i64, DocumentId)>> {
    let mut arguments = arguments(scope, moment);
    add(&mut arguments, predicate_id);
    add(&mut arguments, roots.iter().map(|(at, _)| *at).collect::<Vec<_>>());
    add(&mut arguments, roots.iter().map(|(_, id)| *id).collect::<Vec<_>>());
    add(&mut arguments, limit);
    let query = concat!(
        "WITH RECURSIVE below(at, id) AS (
             SELECT * FROM unnest($7::bigint[], $8::bigint[])
              UNION
             SELECT b.at, x.id FROM below b CROSS JOIN LATERAL (
                    SELECT t.subject_id AS id FROM triples t WHERE t.object_id = b.id AND t.predicate_id = $6 AND ",
        at_moment!(),
        " AND ",
        fact_readable!(),
        " UNION ALL
                    SELECT d.id FROM graph_nodes g JOIN graph_nodes n ON n.iri = g.iri JOIN documents d ON d.id = n.document_id
                     WHERE g.document_id = b.id AND ",
        readable!(),
        ") x)
         SELECT at, id FROM below LIMIT $9"
    );
    sqlx::query_as_with(query, arguments).persistent(false).fetch_all(conn).await
}

/// A fact between two nodes.
#[derive(Clone, Debug, sqlx_macros::FromRow)]
pub struct Between {
    pub subject_id: DocumentId,
    pub object_id: DocumentId,
}

/// The facts between nodes with a predicate that are about these subjects.
pub async fn between(
    conn: &mut PgConnection,
    scope: &Readable,
    moment: &Moment,
    predicate_id: PredicateId,
    subjects: &[DocumentId],
    limit: i64,
) -> sqlx::Result<Vec<Between>> {
    let mut arguments = arguments(scope, moment);
    add(&mut arguments, predicate_id);
    add(&mut arguments, subjects.to_vec());
    add(&mut arguments, limit);
    let query = concat!(
        "SELECT t.subject_id, t.object_id FROM triples t
          WHERE t.predicate_id = $6 AND t.object_id IS NOT NULL AND t.subject_id = ANY($7) AND ",
        at_moment!(),
        " AND ",
        fact_readable!(),
        " ORDER BY t.id LIMIT $8"
    );
    sqlx::query_as_with(query, arguments).persistent(false).fetch_all(conn).await
}
