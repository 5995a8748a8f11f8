//! Predicates: what facts say of their subjects.
use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use svc_client::wire::{NewPredicate, PredicateChange, PredicateQuery};
use svc_ids::PredicateId;

/// The namespace of a predicate that is named without one.
pub const DEFAULT_NAMESPACE: &str = "default";

#[derive(Clone, Debug, sqlx::FromRow)]
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
    pub created_at: DateTime<Utc>,
    pub updated_at: DateTime<Utc>,
}

macro_rules! columns {
    () => {
        "id, namespace, name, iri, label, description, is_functional, is_inverse_functional, is_symmetric, is_asymmetric, is_transitive, is_irreflexive,
         inverse_of, sub_property_of, disjoint_with, created_at, updated_at"
    };
}

/// Stores a predicate; `None` if its name or its IRI is taken.
pub async fn insert(conn: &mut PgConnection, new: &NewPredicate) -> sqlx::Result<Option<PredicateRow>> {
    sqlx::query_as(concat!(
        "INSERT INTO predicates (namespace, name, iri, label, description, is_functional, is_inverse_functional, is_symmetric, is_asymmetric,
                is_transitive, is_irreflexive, inverse_of, sub_property_of, disjoint_with)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14) ON CONFLICT DO NOTHING RETURNING ",
        columns!()
    ))
    .bind(new.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE))
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
    .fetch_optional(conn)
    .await
}

#[tracing::instrument(level = "debug", skip_all, fields(predicate.id = id.0))]
pub async fn read(conn: &mut PgConnection, id: PredicateId) -> sqlx::Result<Option<PredicateRow>> {
    sqlx::query_as(concat!("SELECT ", columns!(), " FROM predicates WHERE id = $1")).bind(id).fetch_optional(conn).await
}

/// The predicate that has this name in a namespace, or this IRI as its own.
pub async fn taken(
    conn: &mut PgConnection,
    namespace: &str,
    name: &str,
    iri: Option<&str>,
) -> sqlx::Result<Option<PredicateId>> {
    sqlx::query_scalar("SELECT id FROM predicates WHERE (namespace = $1 AND name = $2) OR iri = $3 ORDER BY id LIMIT 1")
        .bind(namespace)
        .bind(name)
        .bind(iri)
        .fetch_optional(conn)
        .await
}

/// Predicates after `after` by id, at most `limit`.
pub async fn page(
    conn: &mut PgConnection,
    query: &PredicateQuery,
    after: PredicateId,
    limit: u32,
) -> sqlx::Result<Vec<PredicateRow>> {
    sqlx::query_as(concat!(
        "SELECT ",
        columns!(),
        " FROM predicates
           WHERE id > $1 AND ($2::text IS NULL OR namespace = $2)
             AND ($3::text IS NULL OR strpos(lower(name), lower($3)) > 0 OR strpos(lower(coalesce(label, '')), lower($3)) > 0)
           ORDER BY id LIMIT $4"
    ))
    .bind(after)
    .bind(&query.namespace)
    .bind(&query.q)
    .bind(i64::from(limit))
    .fetch_all(conn)
    .await
}

/// How requests name a predicate.
#[derive(Clone, Copy, Debug)]
pub struct Named<'a> {
    /// Its namespace and its name, if the text can be read so.
    pub name: Option<(&'a str, &'a str)>,
    pub iri: &'a str,
}

/// The predicates that are named, by their position in `names`. A name comes before an IRI that reads the same.
pub async fn resolve(conn: &mut PgConnection, names: &[Named<'_>]) -> sqlx::Result<Vec<(i64, PredicateId)>> {
    let split = |part: fn((&'_ str, &'_ str)) -> String| -> Vec<Option<String>> {
        names.iter().map(|named| named.name.map(part)).collect()
    };
    sqlx::query_as(
        "SELECT n.at, p.id FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY n(namespace, name, iri, at)
           JOIN predicates p ON p.id = coalesce((SELECT id FROM predicates q WHERE q.namespace = n.namespace AND q.name = n.name),
                                                (SELECT id FROM predicates q WHERE q.iri = n.iri))",
    )
    .bind(split(|(namespace, _)| namespace.to_owned()))
    .bind(split(|(_, name)| name.to_owned()))
    .bind(names.iter().map(|named| named.iri).collect::<Vec<_>>())
    .fetch_all(conn)
    .await
}

/// Which of these predicates exist. They are not deleted before the transaction ends.
pub async fn existing(conn: &mut PgConnection, ids: &[i64]) -> sqlx::Result<Vec<PredicateId>> {
    sqlx::query_scalar("SELECT id FROM predicates WHERE id = ANY($1) FOR KEY SHARE").bind(ids).fetch_all(conn).await
}

/// Changes what is given; `None` if there is no such predicate.
#[tracing::instrument(level = "debug", skip_all, fields(predicate.id = id.0))]
pub async fn update(
    conn: &mut PgConnection,
    id: PredicateId,
    change: &PredicateChange,
) -> sqlx::Result<Option<PredicateRow>> {
    sqlx::query_as(concat!(
        "UPDATE predicates SET namespace = coalesce($2, namespace), name = coalesce($3, name), iri = CASE WHEN $4 THEN $5 ELSE iri END,
                label = CASE WHEN $6 THEN $7 ELSE label END, description = CASE WHEN $8 THEN $9 ELSE description END,
                is_functional = coalesce($10, is_functional), is_inverse_functional = coalesce($11, is_inverse_functional),
                is_symmetric = coalesce($12, is_symmetric), is_asymmetric = coalesce($13, is_asymmetric), is_transitive = coalesce($14, is_transitive),
                is_irreflexive = coalesce($15, is_irreflexive), inverse_of = CASE WHEN $16 THEN $17 ELSE inverse_of END,
                sub_property_of = coalesce($18, sub_property_of), disjoint_with = coalesce($19, disjoint_with),
                updated_at = clock_timestamp()
          WHERE id = $1 RETURNING ",
        columns!()
    ))
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
    .fetch_optional(conn)
    .await
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
    sqlx::query(
        "UPDATE predicates SET sub_property_of = array_remove(sub_property_of, $1), disjoint_with = array_remove(disjoint_with, $1)
          WHERE $1 = ANY(sub_property_of) OR $1 = ANY(disjoint_with)",
    )
    .bind(id)
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}
