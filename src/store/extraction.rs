//! The texts that facts are extracted from, and what came of it.
use super::{
    documents::add,
    evidence::Evidence,
    places::Place,
    predicates,
    scope::{Readable, Writable, readable},
    word::Word,
};
use chrono::{DateTime, Utc};
use serde_json::Value;
use sqlx::PgConnection;
use std::collections::HashMap;
use svc_client::wire::Settled;
use svc_ids::{DocumentId, PredicateId, RootId, TaskId, TripleId};

/// The type of the tasks that read texts.
pub const TASK: &str = "extract:facts";
/// The usetypes that are no texts of others: what the service says of them, what stands beside pictures, and what is meant for machines.
const NO_TEXTS: [&str; 7] = ["entity", "summary", "raptor", "profile", "image", "template", "ontology"];

/// A text whose facts are wanted.
#[derive(Debug, sqlx_macros::FromRow)]
pub struct TextNode {
    #[sqlx(flatten)]
    pub place: Place,
    /// The document whose supervisor runs its tasks, if it was ingested.
    root_id: Option<RootId>,
    pub content_hash: String,
}

impl TextNode {
    pub fn root_id(&self) -> RootId {
        self.root_id.unwrap_or(self.place.id().as_root())
    }
}

/// The predicate over `documents d` for texts that were not cut into parts, of which some may lie in segments. The segments themselves hold what is under a
/// text, and are no parts of it. The argument is the placeholder of the rule of summaries.
macro_rules! uncut {
    ($raptor:literal) => {
        concat!(
            "NOT EXISTS (SELECT FROM documents c JOIN node_origins o ON o.document_id = c.id AND o.rule NOT IN ('upload', 'segment', ",
            $raptor,
            ") WHERE c.parent_id = d.id)
             AND NOT EXISTS (SELECT FROM documents s JOIN node_origins g ON g.document_id = s.id AND g.rule = 'segment' CROSS JOIN LATERAL (
                      SELECT FROM documents c JOIN node_origins o ON o.document_id = c.id AND o.rule IN ('split', 'chunk') AND o.anchor -> 'source' = to_jsonb(d.id)
                       WHERE c.path @> ARRAY[s.id] OFFSET 0) p WHERE s.parent_id = d.id)"
        )
    };
}

/// Settled texts at and under a document that the scope covers, by id, after `after`. A text that was cut into parts is read in these.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = under.0))]
pub async fn texts(
    conn: &mut PgConnection,
    scope: &Writable,
    under: DocumentId,
    after: DocumentId,
    limit: i64,
) -> sqlx::Result<Vec<TextNode>> {
    let mut arguments = scope.arguments();
    add(&mut arguments, under);
    add(&mut arguments, after);
    add(&mut arguments, NO_TEXTS.map(str::to_owned).to_vec());
    add(&mut arguments, super::raptor::RULE.to_owned());
    add(&mut arguments, limit);
    let query = concat!(
        "SELECT d.id, d.path, d.content_hash,
                (SELECT n.root_id FROM unnest(d.path || d.id) WITH ORDINALITY a(id, depth) JOIN ingest_node n ON n.document_id = a.id
                  ORDER BY a.depth DESC LIMIT 1) AS root_id
           FROM documents d
          WHERE (d.id = $3 OR d.path @> ARRAY[$3::bigint]) AND d.id > $4 AND d.settled = 'settled' AND d.content <> '' AND d.usetype <> ALL($5) AND ",
        uncut!("$6"),
        " AND ",
        readable!(),
        " ORDER BY d.id LIMIT $7"
    );
    sqlx::query_as_with(query, arguments).persistent(false).fetch_all(conn).await
}

/// How many such texts there are, counted up to `most`.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = under.0))]
pub async fn count(conn: &mut PgConnection, scope: &Writable, under: DocumentId, most: i64) -> sqlx::Result<i64> {
    let mut arguments = scope.arguments();
    add(&mut arguments, under);
    add(&mut arguments, NO_TEXTS.map(str::to_owned).to_vec());
    add(&mut arguments, super::raptor::RULE.to_owned());
    add(&mut arguments, most);
    let query = concat!(
        "SELECT count(*) FROM (SELECT FROM documents d
          WHERE (d.id = $3 OR d.path @> ARRAY[$3::bigint]) AND d.settled = 'settled' AND d.content <> '' AND d.usetype <> ALL($4) AND ",
        uncut!("$5"),
        " AND ",
        readable!(),
        " LIMIT $6) t"
    );
    sqlx::query_scalar_with(query, arguments).persistent(false).fetch_one(conn).await
}

/// The tasks of these documents that have not ended, each with the fingerprint of what it was asked to do.
pub async fn unfinished(
    conn: &mut PgConnection,
    documents: &[DocumentId],
) -> sqlx::Result<HashMap<(DocumentId, String), TaskId>> {
    let rows: Vec<(DocumentId, String, TaskId)> = sqlx::query_as(
        "SELECT scope_document_id, param_fingerprint, id FROM task_queue WHERE scope_document_id = ANY($1) AND task_type = $2 AND NOT final",
    )
    .bind(documents)
    .bind(TASK)
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|(document, fingerprint, task)| ((document, fingerprint), task)).collect())
}

/// How many of these tasks still owe work, the documents of those that failed for good, and the documents of those that completed.
pub async fn progress(
    conn: &mut PgConnection,
    tasks: &[TaskId],
) -> sqlx::Result<(i64, Vec<DocumentId>, Vec<DocumentId>)> {
    sqlx::query_as(
        "SELECT count(*) FILTER (WHERE NOT final), coalesce(array_agg(scope_document_id) FILTER (WHERE final AND status <> 'completed'), '{}'),
                coalesce(array_agg(scope_document_id) FILTER (WHERE status = 'completed'), '{}')
           FROM task_queue WHERE id = ANY($1)",
    )
    .bind(tasks)
    .fetch_one(conn)
    .await
}

/// What the evidence of these documents says under a name.
pub async fn recorded(conn: &mut PgConnection, documents: &[DocumentId], name: Evidence) -> sqlx::Result<Vec<Value>> {
    sqlx::query_scalar("SELECT value FROM node_evidence WHERE document_id = ANY($1) AND name = $2")
        .bind(documents)
        .bind(name.as_str())
        .fetch_all(conn)
        .await
}

/// When what a document `d` tells happened: its own time, or that of the nearest document above it that has one and that its readers read too; else when
/// it was stored. What a task made of a file was stored with the file, so that another tree of the same file says the same.
macro_rules! told_at {
    () => {
        "coalesce(
            (SELECT a.event_time FROM unnest(d.path || d.id) WITH ORDINALITY p(id, depth) JOIN documents a ON a.id = p.id AND a.guard = d.guard
              WHERE a.event_time IS NOT NULL ORDER BY p.depth DESC LIMIT 1),
            (SELECT f.created_at FROM node_origins o CROSS JOIN unnest(d.path) WITH ORDINALITY p(id, depth)
               JOIN node_origins u ON u.document_id = p.id AND u.rule = 'upload' JOIN documents f ON f.id = u.document_id AND f.guard = d.guard
              WHERE o.document_id = d.id AND o.rule NOT IN ('upload', 'split', 'chunk', 'segment') ORDER BY p.depth DESC LIMIT 1),
            d.created_at)"
    };
}

/// A text as a language model is to read it.
#[derive(Clone, Debug, sqlx_macros::FromRow)]
pub struct SourceText {
    pub content: String,
    pub content_hash: String,
    /// The guard of the document.
    pub zone: DocumentId,
    pub settled: Word<Settled>,
    /// When what it tells happened, or when it was stored.
    pub told_at: DateTime<Utc>,
    /// The titles from the top down to its own, of documents that all who read the text read too.
    pub titles: Vec<String>,
}

/// A document's text; `None` if the document is gone, or out of everybody's reach.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = id.0))]
pub async fn text(conn: &mut PgConnection, id: DocumentId) -> sqlx::Result<Option<SourceText>> {
    sqlx::query_as(concat!(
        "SELECT d.content, d.content_hash, d.guard AS zone, d.settled, ",
        told_at!(),
        " AS told_at,
                ARRAY(SELECT a.title FROM unnest(d.path || d.id) WITH ORDINALITY p(id, depth) JOIN documents a ON a.id = p.id AND a.guard = d.guard ORDER BY p.depth) AS titles
           FROM documents d WHERE d.id = $1 AND d.guard <> -1",
    ))
    .bind(id)
    .fetch_optional(conn)
    .await
}

/// A predicate that somebody made, as a language model is told of it.
#[derive(Clone, Debug, sqlx_macros::FromRow)]
pub struct VocabularyRow {
    pub id: PredicateId,
    pub namespace: String,
    pub name: String,
    pub label: Option<String>,
    pub description: Option<String>,
    /// The classes that its subjects and its objects are of: titles, or the ends of the IRIs of what is no document, such as a datatype.
    pub domains: Vec<String>,
    pub ranges: Vec<String>,
}

/// What the classes in a column of `ontology_predicates a` are called, those of a predicate `p` in all open ontologies together.
macro_rules! classes_in {
    ($column:literal) => {
        concat!(
            "ARRAY(SELECT DISTINCT coalesce(k.title, substring(c.iri FROM '[^/#:?]+$'), c.iri) FROM ontology_predicates a JOIN documents d ON d.id = a.ontology_id AND d.guard = 0
                    CROSS JOIN unnest(a.",
            $column,
            ") c(iri) LEFT JOIN LATERAL (SELECT k.title FROM graph_nodes n JOIN documents k ON k.id = n.document_id AND k.guard = 0
                                               WHERE n.iri = c.iri ORDER BY k.id LIMIT 1) k ON true
                   WHERE a.predicate_id = p.id ORDER BY 1 LIMIT 10)"
        )
    };
}

/// The predicates that the owner made, or somebody who may write a text, at most `limit`, with what was said of them by hand or in open ontologies;
/// those that are about classes and names are left out. Nobody else has a say in what a model is told of the text.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = text.0))]
pub async fn vocabulary(conn: &mut PgConnection, text: DocumentId, limit: i64) -> sqlx::Result<Vec<VocabularyRow>> {
    sqlx::query_as(concat!(
        "SELECT p.id, p.namespace, p.name, coalesce(p.label, o.label) AS label, coalesce(p.description, o.description) AS description, ",
        classes_in!("domains"),
        " AS domains, ",
        classes_in!("ranges"),
        " AS ranges
           FROM predicates p CROSS JOIN LATERAL (
                SELECT (array_agg(a.label ORDER BY a.ontology_id) FILTER (WHERE a.label IS NOT NULL))[1] AS label,
                       (array_agg(a.description ORDER BY a.ontology_id) FILTER (WHERE a.description IS NOT NULL))[1] AS description
                  FROM ontology_predicates a JOIN documents d ON d.id = a.ontology_id AND d.guard = 0 WHERE a.predicate_id = p.id) o
          WHERE p.is_declared AND p.namespace NOT IN ('rdf', 'rdfs', 'owl', 'sh')
            AND (p.declared_by IS NULL OR EXISTS (
                 SELECT FROM documents t JOIN access_grants g ON g.document_id = t.id OR g.document_id = ANY(t.path)
                  WHERE t.id = $2 AND g.principal_id = p.declared_by AND g.can_write))
          ORDER BY p.id LIMIT $1",
    ))
    .bind(limit)
    .bind(text)
    .fetch_all(conn)
    .await
}

/// The predicates of a namespace without an IRI of their own, by their names; those that are missing are made, and seen by their facts alone.
pub async fn make_predicates(
    conn: &mut PgConnection,
    namespace: &str,
    names: &[&str],
) -> sqlx::Result<HashMap<String, PredicateId>> {
    sqlx::query(
        "INSERT INTO predicates (namespace, name, is_functional, is_inverse_functional, is_symmetric, is_asymmetric, is_transitive, is_irreflexive,
                sub_property_of, disjoint_with, is_declared)
         SELECT $1, n, false, false, false, false, false, false, '{}', '{}', false FROM unnest($2::text[]) n
          WHERE NOT EXISTS (SELECT FROM predicates p WHERE p.namespace = $1 AND p.name = n AND p.iri IS NULL) ORDER BY n ON CONFLICT DO NOTHING",
    )
    .bind(namespace)
    .bind(names)
    .execute(&mut *conn)
    .await?;
    let rows: Vec<(String, PredicateId)> =
        sqlx::query_as("SELECT DISTINCT ON (name) name, id FROM predicates WHERE namespace = $1 AND name = ANY($2) AND iri IS NULL ORDER BY name, id")
            .bind(namespace)
            .bind(names)
            .fetch_all(conn)
            .await?;
    Ok(rows.into_iter().collect())
}

/// The predicates among these that texts gave their names, as far as the scope covers facts with them.
pub async fn extracted(
    conn: &mut PgConnection,
    scope: &Readable,
    names: &[String],
) -> sqlx::Result<Vec<(String, PredicateId)>> {
    let named: Vec<predicates::Named<'_>> = names
        .iter()
        .map(|name| predicates::Named { name: Some((NAMESPACE, name)), iri: "", is_derived: false })
        .collect();
    let found = predicates::resolve(conn, scope, &named).await?;
    let name = |at: i64| usize::try_from(at - 1).ok().and_then(|at| names.get(at).cloned());
    Ok(found.into_iter().filter_map(|(at, id)| Some((name(at)?, id))).collect())
}

/// The namespace of predicates that texts gave their names.
pub const NAMESPACE: &str = "extracted";

/// A believed fact that another one of a functional predicate may take the place of.
#[derive(Clone, Copy, Debug, sqlx_macros::FromRow)]
pub struct Rival {
    pub id: TripleId,
    /// The fact that may take its place.
    pub new_id: TripleId,
    pub valid_from: Option<DateTime<Utc>>,
    pub valid_until: Option<DateTime<Utc>>,
}

/// The facts that say something else than new ones of functional predicates for a part of their time, in the same zone, if they may go stale and
/// nothing that states them is younger than `told_at`. What somebody asserted without a source holds whatever texts say. A predicate is functional if that was said by hand, or in an ontology that is open or in
/// that zone.
pub async fn rivals(conn: &mut PgConnection, new: &[TripleId], told_at: DateTime<Utc>) -> sqlx::Result<Vec<Rival>> {
    sqlx::query_as(concat!(
        "SELECT t.id, n.id AS new_id, n.valid_from, n.valid_until
           FROM triples n JOIN triples t ON t.subject_id = n.subject_id AND t.predicate_id = n.predicate_id AND t.zone = n.zone AND t.statement <> n.statement
            AND t.invalidated_at IS NULL AND t.valid && n.valid AND t.fact_type = 'dynamic' AND t.derived_by IS NULL
            AND t.source_id IS NOT NULL
          WHERE n.id = ANY($1) AND n.invalidated_at IS NULL AND t.id <> ALL($1)
            AND EXISTS (SELECT FROM predicate_axioms a WHERE a.predicate_id = n.predicate_id AND a.is_functional AND a.zone IN (0, n.zone))
            AND (SELECT max(",
        told_at!(),
        ") FROM triple_citations c JOIN documents d ON d.id = c.document_id WHERE c.triple_id = t.id) <= $2
          ORDER BY n.id, t.id",
    ))
    .bind(new)
    .bind(told_at)
    .persistent(false)
    .fetch_all(conn)
    .await
}
