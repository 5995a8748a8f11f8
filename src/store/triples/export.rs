//! Facts in the order of a graph, with the IRIs of their ends.
use super::fact_readable;
use crate::store::{
    documents::add,
    scope::{Readable, readable},
    text::Verbatim,
    word::Word,
};
use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use svc_client::wire::FactType;
use svc_ids::{DocumentId, PredicateId, TripleId};

/// A fact between two nodes, or from a node to a literal.
#[derive(Clone, Debug, sqlx_macros::FromRow)]
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
    pub valid_from: Option<DateTime<Utc>>,
    pub valid_until: Option<DateTime<Utc>>,
    pub recorded_at: DateTime<Utc>,
    /// When the store ceased to believe it, as far as that was known.
    pub invalidated_at: Option<DateTime<Utc>>,
    pub derived_by: Option<String>,
    pub fact_type: Word<FactType>,
    pub source_id: Option<DocumentId>,
    pub source_iri: Option<String>,
    /// The documents that state it, as far as the scope covers them, the source first, at most `store::archive::MOST_SOURCES`; none without a history.
    pub cited: Vec<DocumentId>,
}

/// Which facts are exported.
#[derive(Clone, Copy, Debug)]
pub struct Exported {
    pub parent_id: Option<i64>,
    pub asserted_only: bool,
    /// Whether facts about the classes of ontologies are exported, wherever these stand.
    pub classes: bool,
    /// Whether facts that were closed are exported too.
    pub history: bool,
    /// `None` for all times.
    pub valid_at: Option<DateTime<Utc>>,
    pub known_at: DateTime<Utc>,
}

/// The place of a fact in the order of a graph: by subject, predicate and id.
pub type After = (DocumentId, PredicateId, TripleId);

/// Facts that follow each other. There may be none, though others follow.
#[derive(Debug)]
pub struct Page {
    pub edges: Vec<Edge>,
    /// After which the next page begins; `None` if no fact follows.
    pub next: Option<After>,
}

/// How much a page may have: facts, and bytes of literals, which the last fact may exceed.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    pub facts: i64,
    pub bytes: i64,
}

/// A fact of a page, with the number of facts that the page would have if it had no limit of bytes.
#[derive(sqlx_macros::FromRow)]
struct Row {
    #[sqlx(flatten)]
    edge: Edge,
    found: i64,
}

/// The most facts that one statement reads to find those of a page: a caller may read few of all, and a document have few under it.
const READ: i64 = 50_000;

/// The facts after a place.
pub async fn page(
    conn: &mut PgConnection,
    scope: &Readable,
    wanted: &Exported,
    after: After,
    limit: Limit,
) -> sqlx::Result<Page> {
    let end: Option<After> = sqlx::query_as(
        "SELECT subject_id, predicate_id, id FROM triples WHERE (subject_id, predicate_id, id) > ($1, $2, $3)
          ORDER BY subject_id, predicate_id, id OFFSET $4 LIMIT 1",
    )
    .bind(after.0)
    .bind(after.1)
    .bind(after.2)
    .bind(READ)
    .fetch_optional(&mut *conn)
    .await?;
    let mut arguments = scope.arguments();
    add(&mut arguments, wanted.known_at);
    add(&mut arguments, wanted.valid_at);
    add(&mut arguments, wanted.asserted_only);
    add(&mut arguments, wanted.parent_id);
    add(&mut arguments, after.0);
    add(&mut arguments, after.1);
    add(&mut arguments, after.2);
    add(&mut arguments, limit.facts);
    add(&mut arguments, wanted.history);
    add(&mut arguments, limit.bytes);
    add(&mut arguments, wanted.classes);
    add(&mut arguments, end.map(|end| end.0));
    add(&mut arguments, end.map(|end| end.1));
    add(&mut arguments, end.map(|end| end.2));
    let query = concat!(
        "SELECT t.id, t.subject_id, s.iri AS subject_iri, s.blank AS subject_blank, t.predicate_id, t.object_id, o.iri AS object_iri,
                o.blank AS object_blank, t.object_literal, t.object_datatype, t.object_language, t.valid_from, t.valid_until, t.recorded_at,
                CASE WHEN t.invalidated_at <= $3 THEN t.invalidated_at END AS invalidated_at, t.derived_by, t.fact_type, t.source_id, r.iri AS source_iri, t.found,
                CASE WHEN $11 THEN ARRAY(SELECT c.document_id FROM triple_citations c JOIN documents d ON d.id = c.document_id
                                          WHERE c.triple_id = t.id AND c.cited_at <= $3 AND ",
        readable!(),
        " GROUP BY c.document_id ORDER BY c.document_id IS DISTINCT FROM t.source_id, min(c.cited_at), c.document_id LIMIT 1000) ELSE '{}' END AS cited
           FROM (SELECT t.*, count(*) OVER () AS found,
                        sum(octet_length(coalesce(t.object_literal, ''))) OVER (ORDER BY t.subject_id, t.predicate_id, t.id) - octet_length(coalesce(t.object_literal, '')) AS bytes
                   FROM (SELECT t.* FROM triples t
                  WHERE (t.subject_id, t.predicate_id, t.id) > ($7, $8, $9)
                    AND ($14::bigint IS NULL OR (t.subject_id, t.predicate_id, t.id) <= ($14, $15, $16))
                    AND t.recorded_at <= $3 AND ($11 OR t.invalidated_at IS NULL OR t.invalidated_at > $3)
                    AND ($4::timestamptz IS NULL OR t.valid @> $4)
                    AND (NOT $5 OR t.derived_by IS NULL)
                    AND ($6::bigint IS NULL OR t.subject_id = $6
                         OR EXISTS (SELECT FROM documents d WHERE d.id = t.subject_id AND d.path @> ARRAY[$6])
                         OR EXISTS (SELECT FROM triple_citations c JOIN documents d ON d.id = c.document_id
                                     WHERE c.triple_id = t.id AND c.cited_at <= $3 AND (d.id = $6 OR d.path @> ARRAY[$6]) AND ",
        readable!(),
        ")
                         OR ($13 AND EXISTS (SELECT FROM ontology_classes c JOIN documents d ON d.id = c.ontology_id WHERE c.document_id = t.subject_id AND ",
        readable!(),
        ")))
                    AND ",
        fact_readable!(),
        " ORDER BY t.subject_id, t.predicate_id, t.id LIMIT $10) t) t
           LEFT JOIN graph_nodes s ON s.document_id = t.subject_id LEFT JOIN graph_nodes o ON o.document_id = t.object_id
           LEFT JOIN graph_nodes r ON r.document_id = t.source_id AND NOT r.blank
          WHERE t.bytes < $12 ORDER BY t.subject_id, t.predicate_id, t.id"
    );
    let rows: Vec<Row> = sqlx::query_as_with(query, arguments).persistent(false).fetch_all(conn).await?;
    let found = rows.first().map_or(0, |row| row.found);
    let is_full = found == limit.facts || (rows.len() as i64) < found;
    let edges: Vec<Edge> = rows.into_iter().map(|row| row.edge).collect();
    let last = edges.last().filter(|_| is_full).map(|last| (last.subject_id, last.predicate_id, last.id));
    Ok(Page { edges, next: last.or(end) })
}
