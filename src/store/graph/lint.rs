//! What is wrong with a graph: each function finds one kind of it, as far as the scope covers it. Nothing here is quadratic in the facts of
//! one document: what must be unique is compared along the time in which it holds.
use crate::store::{
    documents::add,
    merges::Sets,
    scope::{Readable, readable},
    triples::fact_readable,
};
use chrono::{DateTime, Utc};
use sqlx::{PgConnection, postgres::PgArguments};
use svc_ids::{DocumentId, PredicateId, TripleId};

/// What is looked at, and how much of it is shown.
#[derive(Clone, Debug)]
pub struct Within {
    pub scope: Readable,
    pub parent_id: Option<DocumentId>,
    pub limit: i64,
}

impl Within {
    fn arguments(&self) -> PgArguments {
        let mut arguments = self.scope.arguments();
        add(&mut arguments, self.parent_id);
        add(&mut arguments, self.limit);
        arguments
    }

    /// The same, with the documents that are taken for others.
    fn arguments_with(&self, sets: &Sets) -> PgArguments {
        let mut arguments = self.arguments();
        let (ids, canonical): (Vec<DocumentId>, Vec<DocumentId>) = sets.all().unzip();
        add(&mut arguments, ids);
        add(&mut arguments, canonical);
        arguments
    }
}

/// Something that is wrong, with how much of its kind there is.
#[derive(Clone, Debug, sqlx_macros::FromRow)]
pub struct Found {
    pub total: i64,
    pub document_id: Option<i64>,
    pub triple_ids: Vec<i64>,
    pub namespace: Option<String>,
    pub name: Option<String>,
    pub since: Option<DateTime<Utc>>,
}

/// The predicate over `documents d` for those that are looked at.
macro_rules! within {
    () => {
        concat!("($3::bigint IS NULL OR d.id = $3 OR d.path @> ARRAY[$3]) AND ", readable!())
    };
}

/// The predicate over `triples t` for the believed facts that are looked at.
macro_rules! believed {
    () => {
        concat!(
            "t.invalidated_at IS NULL AND ($3::bigint IS NULL OR t.subject_id = $3
                OR EXISTS (SELECT FROM documents d WHERE d.id = t.subject_id AND d.path @> ARRAY[$3])) AND ",
            fact_readable!()
        )
    };
}

/// Predicates of which something is said, as far as the scope covers who says it: what is said in a closed ontology holds for what is open and for
/// what is in its zone.
#[derive(Clone, Debug, Default)]
struct Ruled {
    open: Vec<PredicateId>,
    closed: Vec<(PredicateId, DocumentId)>,
}

impl Ruled {
    fn is_empty(&self) -> bool {
        self.open.is_empty() && self.closed.is_empty()
    }

    /// The arguments from $7 on of a statement that holds the macro `ruled!`.
    fn add(self, arguments: &mut PgArguments) {
        let (predicates, zones): (Vec<PredicateId>, Vec<DocumentId>) = self.closed.into_iter().unzip();
        add(arguments, self.open);
        add(arguments, predicates);
        add(arguments, zones);
    }
}

/// The predicates of which some columns of `predicate_axioms x` are said, with the zones that this holds in, for [`ruled`].
macro_rules! said_of {
    ($condition:literal) => {
        concat!(
            "SELECT DISTINCT x.predicate_id, x.zone FROM predicate_axioms x WHERE ",
            $condition,
            " AND (x.zone = 0 OR (x.zone > 0 AND ($1::boolean OR x.zone = ANY($2::bigint[]))))"
        )
    };
}

/// Reads predicates of which something is said. They are read before their facts, because the planner then knows how many facts they have.
async fn ruled(conn: &mut PgConnection, within: &Within, query: &'static str) -> sqlx::Result<Ruled> {
    let rows: Vec<(PredicateId, DocumentId)> =
        sqlx::query_as_with(query, within.scope.arguments()).persistent(false).fetch_all(conn).await?;
    let (open, closed): (Vec<_>, Vec<_>) = rows.into_iter().partition(|(_, zone)| zone.0 == 0);
    Ok(Ruled { open: open.into_iter().map(|(predicate, _)| predicate).collect(), closed })
}

/// The predicate over a fact for what is said of its predicate; its arguments are $7 to $9, by [`Ruled::add`].
macro_rules! ruled {
    ($fact:literal) => {
        concat!(
            "(",
            $fact,
            ".predicate_id = ANY($7::bigint[]) OR EXISTS (SELECT FROM unnest($8::bigint[], $9::bigint[]) x(predicate_id, zone) WHERE x.predicate_id = ",
            $fact,
            ".predicate_id AND ",
            $fact,
            ".zone IN (0, x.zone)))"
        )
    };
}

/// All that a query finds, counted, and as much of it as is shown. A query gives document_id, triple_ids, namespace, name and since.
macro_rules! found {
    ($($query:expr),* $(,)?) => {
        concat!("SELECT count(*) OVER () AS total, f.* FROM (", $($query),*, ") f ORDER BY f.document_id, f.triple_ids, f.namespace, f.name LIMIT $4")
    };
}

/// Facts with a ruled predicate whose key has one value at a time: those that hold while another value does, with the one that holds longest of those
/// before. What has a key alone is left out first. Values in two languages are not held against each other; one without a language, which is blank
/// then, is held against all.
macro_rules! not_unique {
    ($key:literal, $value:literal, $language:literal, $node:literal) => {
        found!(
            "SELECT f.subject_id AS document_id, ARRAY[f.before[2]::bigint, f.id] AS triple_ids, p.namespace, p.name, NULL::timestamptz AS since
               FROM (SELECT k.*, CASE WHEN k.language = '' THEN max(k.until) OVER (of_key ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
                                      ELSE greatest(max(k.until) FILTER (WHERE k.language = '') OVER (of_key ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING),
                                                    max(k.until) OVER (of_language ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)) END AS before
                       FROM (SELECT u.*, ARRAY[extract(epoch FROM coalesce(upper(u.held), 'infinity')), u.id] AS until FROM (
                             SELECT min(c.id) AS id, min(c.subject_id) AS subject_id, c.predicate_id, c.key, min(c.language) AS language,
                                    unnest(range_agg(c.valid)) AS held
                               FROM (SELECT c.*, count(*) OVER (PARTITION BY c.predicate_id, c.key) AS together
                                       FROM (SELECT t.id, t.subject_id, t.predicate_id, t.valid, ", $key, " AS key, ", $value, " AS value, ", $language, " AS language
                                               FROM triples t LEFT JOIN graph_nodes n ON n.document_id = ", $node, "
                                               LEFT JOIN unnest($5::bigint[], $6::bigint[]) s(id, one) ON s.id = t.subject_id
                                               LEFT JOIN unnest($5::bigint[], $6::bigint[]) o(id, one) ON o.id = t.object_id
                                              WHERE t.predicate_id = ANY($7::bigint[] || $8::bigint[]) AND ", ruled!("t"), " AND ", believed!(), " OFFSET 0) c) c
                              WHERE c.together > 1 GROUP BY c.predicate_id, c.key, c.value) u) k
                     WINDOW of_key AS (PARTITION BY k.predicate_id, k.key ORDER BY coalesce(lower(k.held), '-infinity'), k.id),
                            of_language AS (PARTITION BY k.predicate_id, k.key, k.language ORDER BY coalesce(lower(k.held), '-infinity'), k.id)) f
               JOIN predicates p ON p.id = f.predicate_id
              WHERE extract(epoch FROM coalesce(lower(f.held), '-infinity')) < f.before[1]"
        )
    };
}

/// Whether the scope covers the document of a column.
macro_rules! reads {
    ($id:literal) => {
        concat!("EXISTS (SELECT FROM documents d WHERE d.id = ", $id, " AND ", readable!(), ")")
    };
}

/// The predicate over `documents d` for those that, as far as the scope covers, have no children and no links. What is hidden below a document or
/// linked with it does not show.
macro_rules! alone {
    () => {
        concat!(
            "NOT EXISTS (SELECT FROM documents c WHERE c.parent_id = d.id AND ",
            reads!("c.id"),
            ") AND NOT EXISTS (SELECT FROM document_links l WHERE l.source_id = d.id AND ",
            reads!("l.target_id"),
            ") AND NOT EXISTS (SELECT FROM document_links l WHERE l.target_id = d.id AND ",
            reads!("l.source_id"),
            ")"
        )
    };
}

/// Entities without facts and links.
pub async fn entities(conn: &mut PgConnection, within: &Within) -> sqlx::Result<Vec<Found>> {
    let query = found!(
        "SELECT d.id AS document_id, '{}'::bigint[] AS triple_ids, NULL::text AS namespace, NULL::text AS name, NULL::timestamptz AS since
           FROM documents d
          WHERE d.usetype = 'entity' AND ",
        alone!(),
        " AND NOT EXISTS (SELECT FROM triples t WHERE t.subject_id = d.id AND t.invalidated_at IS NULL AND ",
        fact_readable!(),
        ") AND NOT EXISTS (SELECT FROM triples t WHERE t.object_id = d.id AND t.invalidated_at IS NULL AND ",
        fact_readable!(),
        ") AND ",
        within!()
    );
    sqlx::query_as_with(query, within.arguments()).persistent(false).fetch_all(conn).await
}

/// Roots without children, facts and links.
pub async fn lonely_roots(conn: &mut PgConnection, within: &Within) -> sqlx::Result<Vec<Found>> {
    let query = found!(
        "SELECT d.id AS document_id, '{}'::bigint[] AS triple_ids, NULL::text AS namespace, NULL::text AS name, NULL::timestamptz AS since
           FROM documents d
          WHERE d.parent_id IS NULL AND d.usetype <> 'entity' AND ",
        alone!(),
        " AND NOT EXISTS (SELECT FROM triples t WHERE t.subject_id = d.id AND t.invalidated_at IS NULL AND ",
        fact_readable!(),
        ") AND NOT EXISTS (SELECT FROM triples t WHERE t.object_id = d.id AND t.invalidated_at IS NULL AND ",
        fact_readable!(),
        ") AND ",
        within!()
    );
    sqlx::query_as_with(query, within.arguments()).persistent(false).fetch_all(conn).await
}

/// Predicates that somebody created, with which there is no fact. They are under no document, so a look at a part of the tree finds none.
pub async fn unused_predicates(conn: &mut PgConnection, within: &Within) -> sqlx::Result<Vec<Found>> {
    let query = found!(
        "SELECT NULL::bigint AS document_id, '{}'::bigint[] AS triple_ids, p.namespace, p.name, NULL::timestamptz AS since
           FROM predicates p
          WHERE p.is_declared AND $3::bigint IS NULL AND NOT EXISTS (SELECT FROM triples t WHERE t.predicate_id = p.id AND t.invalidated_at IS NULL AND ",
        fact_readable!(),
        ")"
    );
    sqlx::query_as_with(query, within.arguments()).persistent(false).fetch_all(conn).await
}

/// The believed facts with an end, which a column of `triples t` names, in a gap `g` between the ids of two documents.
macro_rules! in_gap {
    ($end:literal) => {
        concat!(
            "SELECT t.id, t.zone, t.subject_id, t.object_id, t.predicate_id, t.invalidated_at FROM triples t WHERE t.",
            $end,
            " > g.after AND t.",
            $end,
            " < g.before AND t.invalidated_at IS NULL"
        )
    };
}

/// Believed facts of which an end or the source is gone. A delete closes such facts, so that only what went around the service leaves them behind;
/// they are the owner's alone. What is gone is in a gap between the ids of two documents that exist. There is at most one gap more than documents, and each is looked
/// up in the indexes of the ends, so that no fact is read whose ends exist.
pub async fn dangling(conn: &mut PgConnection, within: &Within) -> sqlx::Result<Vec<Found>> {
    let query = found!(
        "WITH gaps AS MATERIALIZED (
             SELECT g.after, g.before
               FROM (SELECT d.id AS after, lead(d.id, 1, 9223372036854775807) OVER (ORDER BY d.id) AS before FROM documents d) g
              WHERE g.before > g.after + 1
              UNION ALL
             SELECT '-9223372036854775808'::bigint, coalesce(min(d.id), 9223372036854775807) FROM documents d)
         SELECT t.subject_id AS document_id, ARRAY[t.id] AS triple_ids, p.namespace, p.name, NULL::timestamptz AS since
           FROM (SELECT DISTINCT u.* FROM gaps g CROSS JOIN LATERAL (",
        in_gap!("subject_id"),
        " UNION ALL ",
        in_gap!("object_id"),
        " UNION ALL ",
        in_gap!("source_id"),
        // The planner expects a gap to hold a part of all facts, and would read all of them for each one.
        " OFFSET 0) u) t JOIN predicates p ON p.id = t.predicate_id WHERE ",
        believed!()
    );
    sqlx::query_as_with(query, within.arguments()).persistent(false).fetch_all(conn).await
}

/// An object of a fact: a document, or a literal with its datatype and language.
#[derive(Debug, sqlx_macros::FromRow)]
pub struct Value {
    pub id: TripleId,
    pub object_id: Option<DocumentId>,
    pub literal: String,
}

/// The objects of facts that the caller was shown.
pub async fn values(conn: &mut PgConnection, facts: &[TripleId]) -> sqlx::Result<Vec<Value>> {
    sqlx::query_as(
        "SELECT id, object_id, md5(concat_ws(' ', object_datatype, object_language, object_literal)) AS literal FROM triples WHERE id = ANY($1)",
    )
    .bind(facts)
    .fetch_all(conn)
    .await
}

/// Objects of a functional predicate that hold beside another one. Documents that are merged, or have one IRI, are the same. What is said in one
/// language contradicts nothing that is said in another.
pub async fn functional(conn: &mut PgConnection, within: &Within, sets: &Sets) -> sqlx::Result<Vec<Found>> {
    let ruled = ruled(conn, within, said_of!("x.is_functional")).await?;
    if ruled.is_empty() {
        return Ok(Vec::new());
    }
    let query = not_unique!(
        "coalesce(s.one, t.subject_id)",
        "coalesce(o.one::text, n.iri, t.object_id::text, concat_ws(' ', t.object_datatype, t.object_language, t.object_literal))",
        "lower(coalesce(t.object_language, ''))",
        "t.object_id"
    );
    let mut arguments = within.arguments_with(sets);
    ruled.add(&mut arguments);
    sqlx::query_as_with(query, arguments).persistent(false).fetch_all(conn).await
}

/// Subjects of an inverse functional predicate that hold beside another one.
pub async fn inverse_functional(conn: &mut PgConnection, within: &Within, sets: &Sets) -> sqlx::Result<Vec<Found>> {
    let ruled = ruled(conn, within, said_of!("x.is_inverse_functional")).await?;
    if ruled.is_empty() {
        return Ok(Vec::new());
    }
    let query = not_unique!(
        "coalesce(o.one::text, t.object_id::text, concat_ws(' ', t.object_datatype, t.object_language, t.object_literal))",
        "coalesce(s.one::text, n.iri, t.subject_id::text)",
        "''::text",
        "t.subject_id"
    );
    let mut arguments = within.arguments_with(sets);
    ruled.add(&mut arguments);
    sqlx::query_as_with(query, arguments).persistent(false).fetch_all(conn).await
}

/// The columns of a fact that is compared with others, with the documents that its ends are taken for; of a literal the hash. The condition is over
/// `triples t` and the documents `s` and `o` that its ends are taken for.
macro_rules! compared {
    ($predicates:literal, $condition:literal) => {
        concat!(
            "(SELECT t.id, t.zone, coalesce(s.one, t.subject_id) AS subject_id, t.predicate_id,
                     coalesce(o.one, t.object_id, hashtextextended(t.object_literal, 0)) AS object, t.object_id IS NULL AS is_literal, t.valid
                FROM triples t LEFT JOIN unnest($5::bigint[], $6::bigint[]) s(id, one) ON s.id = t.subject_id
                LEFT JOIN unnest($5::bigint[], $6::bigint[]) o(id, one) ON o.id = t.object_id WHERE t.predicate_id = ANY(",
            $predicates,
            ") AND ",
            $condition,
            " AND ",
            believed!(),
            // Each side is read once and then hashed: to look up one fact after another would be quadratic at a document with many.
            " OFFSET 0)"
        )
    };
}

/// Facts between the same ends with two predicates that exclude each other.
pub async fn disjoint_predicates(conn: &mut PgConnection, within: &Within, sets: &Sets) -> sqlx::Result<Vec<Found>> {
    let pairs: Vec<(PredicateId, PredicateId, DocumentId)> = sqlx::query_as_with(
        "SELECT DISTINCT least(x.predicate_id, y.id), greatest(x.predicate_id, y.id), x.zone
           FROM predicate_axioms x JOIN predicates y ON y.id = ANY(x.disjoint_with) WHERE x.zone = 0 OR (x.zone > 0 AND ($1::boolean OR x.zone = ANY($2::bigint[])))",
        within.scope.arguments(),
    )
    .persistent(false)
    .fetch_all(&mut *conn)
    .await?;
    if pairs.is_empty() {
        return Ok(Vec::new());
    }
    let mut arguments = within.arguments_with(sets);
    add(&mut arguments, pairs.iter().map(|(one, ..)| *one).collect::<Vec<_>>());
    add(&mut arguments, pairs.iter().map(|(_, other, _)| *other).collect::<Vec<_>>());
    add(&mut arguments, pairs.iter().map(|(.., zone)| *zone).collect::<Vec<_>>());
    let query = found!(
        "SELECT DISTINCT a.subject_id AS document_id, ARRAY[a.id, b.id] AS triple_ids, p.namespace, p.name, NULL::timestamptz AS since
           FROM unnest($7::bigint[], $8::bigint[], $9::bigint[]) e(one, other, zone) JOIN predicates p ON p.id = e.one JOIN ",
        compared!("$7::bigint[]", "true"),
        " a ON a.predicate_id = e.one JOIN ",
        compared!("$8::bigint[]", "true"),
        " b ON b.predicate_id = e.other AND b.subject_id = a.subject_id AND b.object = a.object AND b.is_literal = a.is_literal AND b.valid && a.valid
           JOIN triples v ON v.id = a.id JOIN triples w ON w.id = b.id AND coalesce(w.object_literal, '') = coalesce(v.object_literal, '')
            AND coalesce(w.object_datatype, '') = coalesce(v.object_datatype, '') AND coalesce(w.object_language, '') = coalesce(v.object_language, '')
          WHERE e.zone = 0 OR (a.zone IN (0, e.zone) AND b.zone IN (0, e.zone))"
    );
    sqlx::query_as_with(query, arguments).persistent(false).fetch_all(conn).await
}

/// Facts of types, with the document that each is taken for.
macro_rules! typed {
    () => {
        concat!(
            "(SELECT t.id, t.predicate_id, coalesce(s.one, t.subject_id) AS subject_id, t.object_id, t.valid
                FROM triples t LEFT JOIN unnest($5::bigint[], $6::bigint[]) s(id, one) ON s.id = t.subject_id WHERE ",
            believed!(),
            ")"
        )
    };
}

/// Documents of two classes of which a fact says that they exclude each other. Classes are compared by IRI.
pub async fn disjoint_classes(conn: &mut PgConnection, within: &Within, sets: &Sets) -> sqlx::Result<Vec<Found>> {
    let query = found!(
        "SELECT a.subject_id AS document_id, ARRAY[min(a.id), min(b.id)] AS triple_ids, NULL::text AS namespace, NULL::text AS name, NULL::timestamptz AS since
           FROM (SELECT least(s.iri, o.iri) AS one, greatest(s.iri, o.iri) AS other
                   FROM predicates p JOIN triples t ON t.predicate_id = p.id JOIN graph_nodes s ON s.document_id = t.subject_id
                   JOIN graph_nodes o ON o.document_id = t.object_id
                  WHERE p.iri = 'http://www.w3.org/2002/07/owl#disjointWith' AND t.invalidated_at IS NULL AND ",
        fact_readable!(),
        " GROUP BY 1, 2) e JOIN graph_nodes x ON x.iri = e.one JOIN graph_nodes y ON y.iri = e.other
           JOIN predicates p ON p.iri = 'http://www.w3.org/1999/02/22-rdf-syntax-ns#type'
           JOIN ",
        typed!(),
        " a ON a.predicate_id = p.id AND a.object_id = x.document_id JOIN ",
        typed!(),
        " b ON b.predicate_id = p.id AND b.object_id = y.document_id AND b.subject_id = a.subject_id AND b.valid && a.valid
          GROUP BY a.subject_id, e.one, e.other"
    );
    sqlx::query_as_with(query, within.arguments_with(sets)).persistent(false).fetch_all(conn).await
}

/// Facts with an asymmetric predicate in both directions. Those that lead to the smaller id are held against those that lead to the larger one, so
/// that each fact is on one side alone.
pub async fn asymmetric(conn: &mut PgConnection, within: &Within, sets: &Sets) -> sqlx::Result<Vec<Found>> {
    let ruled = ruled(conn, within, said_of!("x.is_asymmetric")).await?;
    if ruled.is_empty() {
        return Ok(Vec::new());
    }
    let mut arguments = within.arguments_with(sets);
    ruled.add(&mut arguments);
    let query = found!(
        "SELECT CASE WHEN a.id < b.id THEN a.subject_id ELSE b.subject_id END AS document_id, ARRAY[least(a.id, b.id), greatest(a.id, b.id)] AS triple_ids,
                p.namespace, p.name, NULL::timestamptz AS since
           FROM ",
        compared!("$7::bigint[] || $8::bigint[]", "coalesce(s.one, t.subject_id) < coalesce(o.one, t.object_id)"),
        " a JOIN ",
        compared!("$7::bigint[] || $8::bigint[]", "coalesce(s.one, t.subject_id) > coalesce(o.one, t.object_id)"),
        " b ON b.predicate_id = a.predicate_id AND b.subject_id = a.object AND b.object = a.subject_id AND b.valid && a.valid
           JOIN predicates p ON p.id = a.predicate_id
          WHERE ",
        ruled!("a"),
        " AND ",
        ruled!("b")
    );
    sqlx::query_as_with(query, arguments).persistent(false).fetch_all(conn).await
}

/// Facts from a document to itself with a predicate that excludes it, as asymmetric ones do too.
pub async fn irreflexive(conn: &mut PgConnection, within: &Within, sets: &Sets) -> sqlx::Result<Vec<Found>> {
    let ruled = ruled(conn, within, said_of!("(x.is_irreflexive OR x.is_asymmetric)")).await?;
    if ruled.is_empty() {
        return Ok(Vec::new());
    }
    let mut arguments = within.arguments_with(sets);
    ruled.add(&mut arguments);
    let query = found!(
        "SELECT t.one AS document_id, ARRAY[t.id] AS triple_ids, p.namespace, p.name, NULL::timestamptz AS since
           FROM (SELECT t.*, coalesce(s.one, t.subject_id) AS one FROM triples t LEFT JOIN unnest($5::bigint[], $6::bigint[]) s(id, one) ON s.id = t.subject_id
                   LEFT JOIN unnest($5::bigint[], $6::bigint[]) o(id, one) ON o.id = t.object_id
                  WHERE t.predicate_id = ANY($7::bigint[] || $8::bigint[]) AND t.invalidated_at IS NULL AND coalesce(s.one, t.subject_id) = coalesce(o.one, t.object_id)",
        // Who may read a fact is asked of those that are left alone; asked of all, the planner would expect few of them and look up one after another.
        " OFFSET 0) t JOIN predicates p ON p.id = t.predicate_id WHERE ",
        ruled!("t"),
        " AND ",
        believed!()
    );
    sqlx::query_as_with(query, arguments).persistent(false).fetch_all(conn).await
}

/// Dynamic facts that hold and whose last support is older than a moment. A fact is supported when it is recorded, when it is cited, and when a
/// text that it cites changes.
pub async fn old(
    conn: &mut PgConnection,
    within: &Within,
    now: DateTime<Utc>,
    before: DateTime<Utc>,
) -> sqlx::Result<Vec<Found>> {
    let mut arguments = within.arguments();
    add(&mut arguments, now);
    add(&mut arguments, before);
    let query = found!(
        "SELECT t.subject_id AS document_id, ARRAY[t.id] AS triple_ids, p.namespace, p.name, greatest(t.recorded_at, s.at) AS since
           FROM triples t JOIN predicates p ON p.id = t.predicate_id
           LEFT JOIN LATERAL (SELECT max(greatest(c.cited_at, d.updated_at)) AS at FROM triple_citations c JOIN documents d ON d.id = c.document_id AND ",
        readable!(),
        " WHERE c.triple_id = t.id) s ON true
          WHERE t.recorded_at < $6 AND t.fact_type = 'dynamic' AND t.derived_by IS NULL AND t.valid @> $5 AND (s.at IS NULL OR s.at < $6) AND ",
        believed!()
    );
    sqlx::query_as_with(query, arguments).persistent(false).fetch_all(conn).await
}

/// Facts of which a cited text has another content than whenever it was cited.
pub async fn source_changed(conn: &mut PgConnection, within: &Within) -> sqlx::Result<Vec<Found>> {
    let query = found!(
        "SELECT t.subject_id AS document_id, ARRAY[t.id] AS triple_ids, p.namespace, p.name, s.at AS since
           FROM triples t JOIN predicates p ON p.id = t.predicate_id
           JOIN (SELECT c.triple_id, max(c.cited_at) AS at FROM triple_citations c JOIN documents d ON d.id = c.document_id AND d.content_hash <> c.source_hash AND ",
        readable!(),
        " WHERE NOT EXISTS (SELECT FROM triple_citations x WHERE x.triple_id = c.triple_id AND x.document_id = c.document_id AND x.source_hash = d.content_hash)
           GROUP BY 1) s ON s.triple_id = t.id WHERE ",
        believed!()
    );
    sqlx::query_as_with(query, within.arguments()).persistent(false).fetch_all(conn).await
}

/// Roots under no access root, which every principal may read.
pub async fn open_roots(conn: &mut PgConnection, within: &Within) -> sqlx::Result<Vec<Found>> {
    let query = found!(
        "SELECT d.id AS document_id, '{}'::bigint[] AS triple_ids, NULL::text AS namespace, NULL::text AS name, NULL::timestamptz AS since
           FROM documents d WHERE d.parent_id IS NULL AND d.guard = 0 AND ",
        within!()
    );
    sqlx::query_as_with(query, within.arguments()).persistent(false).fetch_all(conn).await
}

/// Predicates from whose facts more follows than may be written, in a zone that the scope covers.
pub async fn given_up(conn: &mut PgConnection, within: &Within) -> sqlx::Result<Vec<Found>> {
    let query = found!(
        "SELECT NULL::bigint AS document_id, '{}'::bigint[] AS triple_ids, p.namespace, p.name, min(g.given_up_at) AS since
           FROM derivations_given_up g JOIN predicates p ON p.id = g.predicate_id
          WHERE ($1::boolean OR g.zone = ANY($2::bigint[])) AND (p.is_declared OR EXISTS (SELECT FROM triples t WHERE t.predicate_id = p.id AND ",
        believed!(),
        ")) GROUP BY p.namespace, p.name"
    );
    sqlx::query_as_with(query, within.arguments()).persistent(false).fetch_all(conn).await
}

/// The settled documents with text of a usetype, how many of them can be found by what, and how many facts cite.
#[derive(Clone, Debug, sqlx_macros::FromRow)]
pub struct Covered {
    pub usetype: String,
    pub all: i64,
    pub vectors: i64,
    pub bm25: i64,
    pub tokens: i64,
    pub facts: i64,
    /// Whether there is an index of words that it could be in.
    pub has_index: bool,
}

/// How many documents of each usetype can be found. Vectors of another model than this one are found by no query.
pub async fn coverage(conn: &mut PgConnection, within: &Within, model: Option<&str>) -> sqlx::Result<Vec<Covered>> {
    let mut arguments = within.scope.arguments();
    add(&mut arguments, within.parent_id);
    add(&mut arguments, model.map(str::to_owned));
    let query = concat!(
        r#"SELECT d.usetype, count(*) AS "all", count(v.document_id) AS vectors, count(e.document_id) AS bm25, count(k.document_id) AS tokens,
                  count(f.document_id) AS facts,
                  EXISTS (SELECT FROM search_indexes i WHERE (i.capabilities ->> 'bm25')::boolean AND d.usetype <> ALL(i.excluded)) AS has_index
             FROM documents d
             LEFT JOIN (SELECT DISTINCT document_id FROM document_vectors WHERE $4::text IS NULL OR embed_model = $4) v ON v.document_id = d.id
             LEFT JOIN token_packs k ON k.document_id = d.id
             LEFT JOIN (SELECT DISTINCT document_id FROM search_index_entries) e ON e.document_id = d.id
             LEFT JOIN (SELECT DISTINCT c.document_id FROM triple_citations c JOIN triples t ON t.id = c.triple_id AND t.invalidated_at IS NULL AND "#,
        fact_readable!(),
        r#") f ON f.document_id = d.id
            WHERE d.settled = 'settled' AND d.content <> '' AND "#,
        within!(),
        " GROUP BY d.usetype ORDER BY d.usetype"
    );
    sqlx::query_as_with(query, arguments).persistent(false).fetch_all(conn).await
}
