//! Facts in the order of a graph, with the IRIs of their ends.
use super::fact_readable;
use crate::store::{
    documents::add,
    scope::{Readable, readable},
    text::Verbatim,
};
use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use svc_ids::{DocumentId, PredicateId, TripleId};

/// A fact between two nodes, or from a node to a literal.
#[derive(Clone, Debug, sqlx::FromRow)]
pub struct Edge {
    pub id: TripleId,
    pub subject_id: DocumentId,
    /// The IRI that the subject came with, and whether it came without.
    pub subject_iri: Option<String>,
    pub subject_blank: Option<bool>,
    pub predicate_id: PredicateId,
    pub object_id: Option<DocumentId>,
    pub object_iri: Option<String>,
    pub object_blank: Option<bool>,
    pub object_literal: Option<Verbatim>,
    pub object_datatype: Option<String>,
    pub object_language: Option<String>,
}

/// Which facts are exported.
#[derive(Clone, Copy, Debug)]
pub struct Exported {
    pub parent_id: Option<i64>,
    pub asserted_only: bool,
    pub valid_at: DateTime<Utc>,
    pub known_at: DateTime<Utc>,
}

/// The place of a fact in the order of a graph: by subject, predicate and id.
pub type After = (DocumentId, PredicateId, TripleId);

/// The facts after a place, at most `limit`.
pub async fn page(
    conn: &mut PgConnection,
    scope: &Readable,
    wanted: &Exported,
    after: After,
    limit: i64,
) -> sqlx::Result<Vec<Edge>> {
    let mut arguments = scope.arguments();
    add(&mut arguments, wanted.known_at);
    add(&mut arguments, wanted.valid_at);
    add(&mut arguments, wanted.asserted_only);
    add(&mut arguments, wanted.parent_id);
    add(&mut arguments, after.0);
    add(&mut arguments, after.1);
    add(&mut arguments, after.2);
    add(&mut arguments, limit);
    // The condition on the subject alone is what the index is entered by.
    let query = concat!(
        "SELECT t.id, t.subject_id, s.iri AS subject_iri, s.blank AS subject_blank, t.predicate_id, t.object_id, o.iri AS object_iri,
                o.blank AS object_blank, t.object_literal, t.object_datatype, t.object_language
           FROM (SELECT t.* FROM triples t
                  WHERE t.subject_id >= $7 AND (t.subject_id, t.predicate_id, t.id) > ($7, $8, $9)
                    AND t.recorded_at <= $3 AND (t.invalidated_at IS NULL OR t.invalidated_at > $3) AND t.valid @> $4
                    AND (NOT $5 OR t.derived_by IS NULL)
                    AND ($6::bigint IS NULL OR t.subject_id = $6
                         OR EXISTS (SELECT FROM documents d WHERE d.id = t.subject_id AND d.path @> ARRAY[$6])
                         OR EXISTS (SELECT FROM triple_citations c JOIN documents d ON d.id = c.document_id
                                     WHERE c.triple_id = t.id AND (d.id = $6 OR d.path @> ARRAY[$6])))
                    AND ",
        fact_readable!(),
        " ORDER BY t.subject_id, t.predicate_id, t.id LIMIT $10) t
           LEFT JOIN graph_nodes s ON s.document_id = t.subject_id LEFT JOIN graph_nodes o ON o.document_id = t.object_id
          ORDER BY t.subject_id, t.predicate_id, t.id"
    );
    sqlx::query_as_with(query, arguments).persistent(false).fetch_all(conn).await
}
