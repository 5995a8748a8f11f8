//! Predicates: what facts say of their subjects.
use super::{
    documents::add,
    scope::{Readable, readable},
    triples::fact_readable,
};
use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use svc_client::wire::{NewPredicate, PredicateChange, PredicateQuery};
use svc_ids::{DocumentId, PredicateId, PrincipalId};

/// The namespace of a predicate that is named without one.
pub const DEFAULT_NAMESPACE: &str = "default";

#[derive(Clone, Debug, sqlx_macros::FromRow)]
pub struct PredicateRow {
    pub id: PredicateId,
    pub namespace: String,
    pub name: String,
    pub iri: Option<String>,
    pub label: Option<String>,
    pub description: Option<String>,
    pub is_functional: bool,
    pub is_inverse_functional: bool,
    pub is_symmetric: bool,
    pub is_asymmetric: bool,
    pub is_transitive: bool,
    pub is_irreflexive: bool,
    pub inverse_of: Option<i64>,
    pub sub_property_of: Vec<i64>,
    pub disjoint_with: Vec<i64>,
    pub ontology_id: Option<DocumentId>,
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

/// The predicates that are named in a column, by hand and in the ontologies that the scope covers.
macro_rules! named_in {
    ($column:literal) => {
        concat!(
            "ARRAY(SELECT unnest(p.",
            $column,
            ") UNION SELECT n FROM ontology_predicates a JOIN documents d ON d.id = a.ontology_id AND ",
            readable!(),
            " CROSS JOIN unnest(a.",
            $column,
            ") n WHERE a.predicate_id = p.id ORDER BY 1)"
        )
    };
}

/// A predicate with what is said of it by hand and in the ontologies that the scope covers, as `shown`; its arguments are $1 and $2. A label
/// that was given by hand comes before those of ontologies, and of these that of an open one first. Where closed graphs and texts alone have it,
/// its time is that of the first fact with it that the scope covers, so that it does not tell when others stored theirs.
macro_rules! shown {
    () => {
        concat!(
            "SELECT p.id, p.namespace, p.name, p.iri, p.is_declared, coalesce(p.label, o.label) AS label, coalesce(p.description, o.description) AS description,
                    p.is_functional OR o.is_functional AS is_functional, p.is_inverse_functional OR o.is_inverse_functional AS is_inverse_functional,
                    p.is_symmetric OR o.is_symmetric AS is_symmetric, p.is_asymmetric OR o.is_asymmetric AS is_asymmetric,
                    p.is_transitive OR o.is_transitive AS is_transitive, p.is_irreflexive OR o.is_irreflexive AS is_irreflexive,
                    coalesce(p.inverse_of, o.inverse_of) AS inverse_of, ",
            named_in!("sub_property_of"),
            " AS sub_property_of, ",
            named_in!("disjoint_with"),
            " AS disjoint_with, o.ontology_id, coalesce(f.created_at, p.created_at) AS created_at,
                    coalesce(f.created_at, p.updated_at) AS updated_at
               FROM predicates p CROSS JOIN LATERAL (
                    SELECT (array_agg(a.ontology_id ORDER BY d.guard <> 0, a.ontology_id))[1] AS ontology_id,
                           (array_agg(a.label ORDER BY d.guard <> 0, a.ontology_id) FILTER (WHERE a.label IS NOT NULL))[1] AS label,
                           (array_agg(a.description ORDER BY d.guard <> 0, a.ontology_id) FILTER (WHERE a.description IS NOT NULL))[1] AS description,
                           coalesce(bool_or(a.is_functional), false) AS is_functional,
                           coalesce(bool_or(a.is_inverse_functional), false) AS is_inverse_functional,
                           coalesce(bool_or(a.is_symmetric), false) AS is_symmetric, coalesce(bool_or(a.is_asymmetric), false) AS is_asymmetric,
                           coalesce(bool_or(a.is_transitive), false) AS is_transitive, coalesce(bool_or(a.is_irreflexive), false) AS is_irreflexive,
                           (array_agg(a.inverse_of ORDER BY d.guard <> 0, a.ontology_id) FILTER (WHERE a.inverse_of IS NOT NULL))[1] AS inverse_of
                      FROM ontology_predicates a JOIN documents d ON d.id = a.ontology_id AND ",
            readable!(),
            " WHERE a.predicate_id = p.id) o
               LEFT JOIN LATERAL (
                    SELECT t.created_at FROM triples t
                     WHERE NOT $1::boolean AND NOT p.is_declared AND NOT p.is_open AND t.predicate_id = p.id AND ",
            fact_readable!(),
            " ORDER BY t.id LIMIT 1) f ON true"
        )
    };
}

/// The predicate over `predicates p` for what a caller may read; its arguments are $1 and $2.
macro_rules! predicate_readable {
    () => {
        concat!(
            "($1::boolean OR p.is_declared OR EXISTS (SELECT FROM triples t WHERE t.predicate_id = p.id AND ",
            fact_readable!(),
            "))"
        )
    };
}

/// Stores a predicate that a principal declares, or the owner (`by` is `None`); `None` if another one that was declared has its name or its IRI.
/// What came with a graph or a text keeps its name and is declared by the owner alone: whoever else declares a predicate need not be able to read
/// facts with it, and is not told whether there are any.
pub async fn insert(
    conn: &mut PgConnection,
    new: &NewPredicate,
    by: Option<PrincipalId>,
) -> sqlx::Result<Option<PredicateId>> {
    let namespace = new.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE);
    sqlx::query_scalar(
        "WITH given AS (SELECT $1::text AS namespace, $2::text AS name, $3::text AS iri, $4::text AS label, $5::text AS description,
                $6::boolean AS is_functional, $7::boolean AS is_inverse_functional, $8::boolean AS is_symmetric, $9::boolean AS is_asymmetric,
                $10::boolean AS is_transitive, $11::boolean AS is_irreflexive, $12::bigint AS inverse_of, $13::bigint[] AS sub_property_of,
                $14::bigint[] AS disjoint_with),
         declared AS (
             UPDATE predicates p SET namespace = g.namespace, name = g.name, label = g.label, description = g.description,
                    is_functional = g.is_functional, is_inverse_functional = g.is_inverse_functional, is_symmetric = g.is_symmetric,
                    is_asymmetric = g.is_asymmetric, is_transitive = g.is_transitive, is_irreflexive = g.is_irreflexive,
                    inverse_of = g.inverse_of, sub_property_of = g.sub_property_of, disjoint_with = g.disjoint_with,
                    is_declared = true, created_at = clock_timestamp(), updated_at = clock_timestamp()
               FROM given g
              WHERE NOT p.is_declared AND $15::bigint IS NULL
                AND (p.iri = g.iri OR (p.iri IS NULL AND g.iri IS NULL AND p.namespace = g.namespace AND p.name = g.name))
                AND NOT EXISTS (SELECT FROM predicates q WHERE q.is_declared AND q.namespace = g.namespace AND q.name = g.name)
             RETURNING p.id),
         made AS (
             INSERT INTO predicates (namespace, name, iri, label, description, is_functional, is_inverse_functional, is_symmetric,
                    is_asymmetric, is_transitive, is_irreflexive, inverse_of, sub_property_of, disjoint_with, is_declared, declared_by)
             SELECT g.*, true, $15 FROM given g WHERE NOT EXISTS (SELECT FROM declared) ON CONFLICT DO NOTHING RETURNING id)
         SELECT id FROM declared UNION ALL SELECT id FROM made",
    )
    .bind(namespace)
    .bind(&new.name)
    .bind(&new.iri)
    .bind(&new.label)
    .bind(&new.description)
    .bind(new.functional)
    .bind(new.inverse_functional)
    .bind(new.symmetric)
    .bind(new.asymmetric)
    .bind(new.transitive)
    .bind(new.irreflexive)
    .bind(new.inverse_of)
    .bind(&new.sub_property_of)
    .bind(&new.disjoint_with)
    .bind(by)
    .fetch_optional(conn)
    .await
}

#[tracing::instrument(level = "debug", skip_all, fields(predicate.id = id.0))]
pub async fn read(conn: &mut PgConnection, scope: &Readable, id: PredicateId) -> sqlx::Result<Option<PredicateRow>> {
    let mut arguments = scope.arguments();
    add(&mut arguments, id);
    let query = concat!(shown!(), " WHERE p.id = $3 AND ", predicate_readable!());
    sqlx::query_as_with(query, arguments).persistent(false).fetch_optional(conn).await
}

/// The predicate that was declared with this name in a namespace, or with this IRI.
pub async fn taken(
    conn: &mut PgConnection,
    namespace: &str,
    name: &str,
    iri: Option<&str>,
) -> sqlx::Result<Option<PredicateId>> {
    sqlx::query_scalar("SELECT id FROM predicates WHERE is_declared AND ((namespace = $1 AND name = $2) OR iri = $3) ORDER BY id LIMIT 1")
        .bind(namespace)
        .bind(name)
        .bind(iri)
        .fetch_optional(conn)
        .await
}

/// Predicates after `after` by id, at most `limit`.
pub async fn page(
    conn: &mut PgConnection,
    scope: &Readable,
    query: &PredicateQuery,
    after: PredicateId,
    limit: u32,
) -> sqlx::Result<Vec<PredicateRow>> {
    let mut arguments = scope.arguments();
    add(&mut arguments, after);
    add(&mut arguments, query.namespace.clone());
    add(&mut arguments, query.q.clone());
    add(&mut arguments, i64::from(limit));
    let query = concat!(
        shown!(),
        " WHERE p.id > $3 AND ($4::text IS NULL OR p.namespace = $4)
            AND ($5::text IS NULL OR strpos(lower(p.name), lower($5)) > 0 OR strpos(lower(coalesce(p.label, o.label, '')), lower($5)) > 0)
            AND ",
        predicate_readable!(),
        " ORDER BY p.id LIMIT $6"
    );
    sqlx::query_as_with(query, arguments).persistent(false).fetch_all(conn).await
}

/// How requests name a predicate.
#[derive(Clone, Copy, Debug)]
pub struct Named<'a> {
    /// Its namespace and its name, if the text can be read so.
    pub name: Option<(&'a str, &'a str)>,
    pub iri: &'a str,
    /// The IRI is one that the service derives from that name.
    pub is_derived: bool,
}

/// The predicates that are named, by their position in `names`: first the one with that name that the owner declared, then the oldest that came with a
/// graph or a text under that name, or that has that IRI, and then a principal's. So no principal takes over the name or the IRI of what others use.
/// A derived IRI means one that has no other first, because only such a one is written with it; one that got its own since then still counts.
pub async fn resolve(
    conn: &mut PgConnection,
    scope: &Readable,
    names: &[Named<'_>],
) -> sqlx::Result<Vec<(i64, PredicateId)>> {
    let split = |part: fn((&'_ str, &'_ str)) -> String| -> Vec<Option<String>> {
        names.iter().map(|named| named.name.map(part)).collect()
    };
    let mut arguments = scope.arguments();
    add(&mut arguments, split(|(namespace, _)| namespace.to_owned()));
    add(&mut arguments, split(|(_, name)| name.to_owned()));
    add(&mut arguments, names.iter().map(|named| named.iri.to_owned()).collect::<Vec<_>>());
    add(&mut arguments, names.iter().map(|named| named.is_derived).collect::<Vec<_>>());
    let query = concat!(
        "SELECT n.at, p.id
           FROM unnest($3::text[], $4::text[], $5::text[], $6::bool[]) WITH ORDINALITY n(namespace, name, iri, is_derived, at)
          CROSS JOIN LATERAL (
                SELECT p.id FROM predicates p
                 WHERE ((p.namespace = n.namespace AND p.name = n.name) OR p.iri = n.iri) AND ",
        predicate_readable!(),
        "        ORDER BY n.is_derived AND p.iri IS NOT NULL,
                       CASE WHEN p.is_declared AND p.declared_by IS NULL AND p.namespace = n.namespace AND p.name = n.name THEN 0
                            WHEN p.iri = n.iri OR p.declared_by IS NULL THEN 1 ELSE 2 END, p.id LIMIT 1) p"
    );
    sqlx::query_as_with(query, arguments).persistent(false).fetch_all(conn).await
}

/// A predicate that comes with a graph.
#[derive(Clone, Debug)]
pub struct Imported {
    pub iri: String,
    pub namespace: String,
    pub name: String,
}

/// The predicates of a graph with their names. In an open one, $4, a predicate whose name somebody declared, or another one of the graph has, gets
/// another name; in a closed one it is called by its IRI alone, whatever else is there.
macro_rules! of_graph {
    () => {
        "SELECT n.iri, n.namespace,
                CASE WHEN $4::boolean AND (n.nth > 1 OR EXISTS (
                              SELECT FROM predicates p WHERE p.is_declared AND p.namespace = n.namespace AND p.name = n.name))
                     THEN left(n.name, 160) || '-' || left(encode(sha256(convert_to(n.iri, 'UTF8')), 'hex'), 16) ELSE n.name END AS name
           FROM (SELECT n.*, row_number() OVER (PARTITION BY n.namespace, n.name ORDER BY n.iri) AS nth
                   FROM unnest($1::text[], $2::text[], $3::text[]) n(iri, namespace, name)) n"
    };
}

/// Stores the predicates of a graph that are not there yet, and returns which those are. One that is open to all names those that only closed
/// graphs had.
pub async fn import(conn: &mut PgConnection, new: &[Imported], is_open: bool) -> sqlx::Result<Vec<PredicateId>> {
    let iris: Vec<&str> = new.iter().map(|new| new.iri.as_str()).collect();
    let namespaces: Vec<&str> = new.iter().map(|new| new.namespace.as_str()).collect();
    let names: Vec<&str> = new.iter().map(|new| new.name.as_str()).collect();
    // Every import takes those that are there in the order of their IRIs, and then makes the others in it, so that none waits in a circle.
    sqlx::query(concat!(
        "WITH g AS (",
        of_graph!(),
        "), held AS (SELECT p.id, g.namespace, g.name FROM g JOIN predicates p ON p.iri = g.iri
                      WHERE $4 AND NOT p.is_declared AND NOT p.is_open ORDER BY p.iri FOR NO KEY UPDATE OF p)
         UPDATE predicates p SET namespace = h.namespace, name = h.name, is_open = true, created_at = clock_timestamp(), updated_at = clock_timestamp()
           FROM held h WHERE p.id = h.id"
    ))
    .bind(&iris)
    .bind(&namespaces)
    .bind(&names)
    .bind(is_open)
    .execute(&mut *conn)
    .await?;
    sqlx::query_scalar(concat!(
        "INSERT INTO predicates (namespace, name, iri, is_functional, is_inverse_functional, is_symmetric, is_asymmetric, is_transitive,
                is_irreflexive, sub_property_of, disjoint_with, is_declared, is_open)
         SELECT g.namespace, g.name, g.iri, false, false, false, false, false, false, '{}', '{}', false, $4 FROM (",
        of_graph!(),
        ") g WHERE NOT EXISTS (SELECT FROM predicates p WHERE p.iri = g.iri) ORDER BY g.iri ON CONFLICT DO NOTHING RETURNING id"
    ))
    .bind(iris)
    .bind(namespaces)
    .bind(names)
    .bind(is_open)
    .fetch_all(conn)
    .await
}

/// The predicates with these IRIs as their own, which are not deleted before the transaction ends.
pub async fn with_iris(conn: &mut PgConnection, iris: &[&str]) -> sqlx::Result<Vec<(String, PredicateId)>> {
    sqlx::query_as("SELECT iri, id FROM predicates WHERE iri = ANY($1) FOR KEY SHARE").bind(iris).fetch_all(conn).await
}

/// The namespace, the name and the IRI of each of these predicates.
pub async fn names(
    conn: &mut PgConnection,
    ids: &[PredicateId],
) -> sqlx::Result<Vec<(PredicateId, String, String, Option<String>)>> {
    sqlx::query_as("SELECT id, namespace, name, iri FROM predicates WHERE id = ANY($1)").bind(ids).fetch_all(conn).await
}

/// Which of these predicates exist. They are not deleted before the transaction ends.
pub async fn existing(conn: &mut PgConnection, scope: &Readable, ids: &[i64]) -> sqlx::Result<Vec<PredicateId>> {
    let mut arguments = scope.arguments();
    add(&mut arguments, ids.to_vec());
    let query =
        concat!("SELECT id FROM predicates p WHERE id = ANY($3) AND ", predicate_readable!(), " FOR KEY SHARE OF p");
    sqlx::query_scalar_with(query, arguments).persistent(false).fetch_all(conn).await
}

/// Changes what is given of what was said by hand; false if there is no such predicate.
#[tracing::instrument(level = "debug", skip_all, fields(predicate.id = id.0))]
pub async fn update(conn: &mut PgConnection, id: PredicateId, change: &PredicateChange) -> sqlx::Result<bool> {
    let done = sqlx::query(
        "UPDATE predicates SET namespace = coalesce($2, namespace), name = coalesce($3, name), iri = CASE WHEN $4 THEN $5 ELSE iri END,
                label = CASE WHEN $6 THEN $7 ELSE label END, description = CASE WHEN $8 THEN $9 ELSE description END,
                is_functional = coalesce($10, is_functional), is_inverse_functional = coalesce($11, is_inverse_functional),
                is_symmetric = coalesce($12, is_symmetric), is_asymmetric = coalesce($13, is_asymmetric), is_transitive = coalesce($14, is_transitive),
                is_irreflexive = coalesce($15, is_irreflexive), inverse_of = CASE WHEN $16 THEN $17 ELSE inverse_of END,
                sub_property_of = coalesce($18, sub_property_of), disjoint_with = coalesce($19, disjoint_with),
                updated_at = clock_timestamp()
          WHERE id = $1",
    )
    .bind(id)
    .bind(&change.namespace)
    .bind(&change.name)
    .bind(change.iri.is_some())
    .bind(change.iri.clone().flatten())
    .bind(change.label.is_some())
    .bind(change.label.clone().flatten())
    .bind(change.description.is_some())
    .bind(change.description.clone().flatten())
    .bind(change.functional)
    .bind(change.inverse_functional)
    .bind(change.symmetric)
    .bind(change.asymmetric)
    .bind(change.transitive)
    .bind(change.irreflexive)
    .bind(change.inverse_of.is_some())
    .bind(change.inverse_of.flatten())
    .bind(&change.sub_property_of)
    .bind(&change.disjoint_with)
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// How many predicates that the scope covers wait for somebody to derive what follows from their facts.
pub async fn waiting(conn: &mut PgConnection, scope: &Readable) -> sqlx::Result<i64> {
    let query = concat!(
        "SELECT count(*) FROM predicates p WHERE p.id IN (SELECT w.predicate_id FROM derivations w) AND ",
        predicate_readable!()
    );
    sqlx::query_scalar_with(query, scope.arguments()).persistent(false).fetch_one(conn).await
}

/// The namespaces and names of predicates from whose facts too much follows in a zone, at most `limit`, as far as the scope covers both.
pub async fn given_up(conn: &mut PgConnection, scope: &Readable, limit: i64) -> sqlx::Result<Vec<(String, String)>> {
    let mut arguments = scope.arguments();
    add(&mut arguments, limit);
    let query = concat!(
        "SELECT DISTINCT p.namespace, p.name FROM derivations_given_up g JOIN predicates p ON p.id = g.predicate_id
          WHERE ($1::boolean OR g.zone = ANY($2::bigint[])) AND ",
        predicate_readable!(),
        " ORDER BY p.namespace, p.name LIMIT $3"
    );
    sqlx::query_as_with(query, arguments).persistent(false).fetch_all(conn).await
}

/// A fact with a predicate, believed or not.
#[tracing::instrument(level = "debug", skip_all, fields(predicate.id = id.0))]
pub async fn is_used(conn: &mut PgConnection, id: PredicateId) -> sqlx::Result<bool> {
    sqlx::query_scalar("SELECT EXISTS (SELECT FROM triples WHERE predicate_id = $1)").bind(id).fetch_one(conn).await
}

/// Deletes a predicate that no fact has, and takes it out of what others say of it; false if there is none.
#[tracing::instrument(level = "debug", skip_all, fields(predicate.id = id.0))]
pub async fn delete(conn: &mut PgConnection, id: PredicateId) -> sqlx::Result<bool> {
    let done = sqlx::query("DELETE FROM predicates WHERE id = $1").bind(id).execute(&mut *conn).await?;
    for forget in [
        "UPDATE predicates SET sub_property_of = array_remove(sub_property_of, $1), disjoint_with = array_remove(disjoint_with, $1)
          WHERE $1 = ANY(sub_property_of) OR $1 = ANY(disjoint_with)",
        "UPDATE ontology_predicates SET sub_property_of = array_remove(sub_property_of, $1), disjoint_with = array_remove(disjoint_with, $1)
          WHERE $1 = ANY(sub_property_of) OR $1 = ANY(disjoint_with)",
    ] {
        sqlx::query(forget).bind(id).execute(&mut *conn).await?;
    }
    Ok(done.rows_affected() == 1)
}
