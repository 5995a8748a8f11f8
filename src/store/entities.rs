//! Entities that texts speak of, by their names. Whoever adds one holds the zone, see [`super::graph_nodes::hold_zone`].
use super::{
    advisory::AdvisoryLock,
    transaction,
    vectors::{self, Index},
};
use pgvector::HalfVector;
use sqlx::{AssertSqlSafe, PgConnection, PgPool};
use svc_ids::DocumentId;

/// Up to how many names of a zone are compared one by one; of more, an index gives the nearest.
const COMPARED: i64 = 2_000;
/// How many entries the index looks at before it returns the first.
const LOOKED_AT: i64 = 100;
/// How many of the nearest names are looked at.
const NEAREST: i64 = 10;

/// An entity that has a name.
#[derive(Clone, Debug, sqlx_macros::FromRow)]
pub struct NamedEntity {
    pub document_id: DocumentId,
    pub zone: DocumentId,
    pub name_key: String,
    pub type_key: String,
}

/// The entities of a zone, and those that are open to all, that have these names.
#[tracing::instrument(level = "debug", skip_all, fields(zone.id = zone.0))]
pub async fn named(conn: &mut PgConnection, zone: DocumentId, names: &[&str]) -> sqlx::Result<Vec<NamedEntity>> {
    sqlx::query_as(
        "SELECT document_id, zone, name_key, type_key FROM entity_names WHERE zone IN ($1, 0) AND name_key = ANY($2) ORDER BY document_id",
    )
    .bind(zone)
    .bind(names)
    .fetch_all(conn)
    .await
}

/// A name near to one that was asked for, by the position of that, from 1.
#[derive(Clone, Debug, sqlx_macros::FromRow)]
pub struct NearName {
    pub at: i64,
    pub document_id: DocumentId,
    pub name_key: String,
    pub type_key: String,
    /// The cosine.
    pub score: f64,
}

/// The names and types of these entities, as far as they are of a zone.
#[tracing::instrument(level = "debug", skip_all, fields(zone.id = zone.0))]
pub async fn names(
    conn: &mut PgConnection,
    zone: DocumentId,
    ids: &[DocumentId],
) -> sqlx::Result<Vec<(DocumentId, String, String)>> {
    sqlx::query_as("SELECT document_id, name_key, type_key FROM entity_names WHERE document_id = ANY($2) AND zone = $1")
        .bind(zone)
        .bind(ids)
        .fetch_all(conn)
        .await
}

/// The entity of a zone that came last.
#[tracing::instrument(level = "debug", skip_all, fields(zone.id = zone.0))]
pub async fn youngest(conn: &mut PgConnection, zone: DocumentId) -> sqlx::Result<DocumentId> {
    sqlx::query_scalar("SELECT coalesce(max(document_id), 0) FROM entity_names WHERE zone = $1")
        .bind(zone)
        .fetch_one(conn)
        .await
}

/// Creates the HNSW index of the names that a model has made vectors of, if it is missing. Call it before the model's first vectors are written,
/// when the index is still empty. If other writers hold the table for long, or are creating the index at this moment, the next call tries again;
/// until the index exists, every name is compared.
pub async fn ensure_index(pool: &PgPool, model: &str, width: usize) -> sqlx::Result<()> {
    let name = vectors::index_name("entity_names", Index::Halves, model, width);
    let is_there: bool = sqlx::query_scalar("SELECT to_regclass($1) IS NOT NULL").bind(&name).fetch_one(pool).await?;
    if is_there {
        return Ok(());
    }
    let mut tx = transaction::begin(pool).await?;
    let is_alone: bool = sqlx::query_scalar("SELECT pg_try_advisory_xact_lock($1)")
        .bind(AdvisoryLock::VectorIndex.key())
        .fetch_one(&mut *tx)
        .await?;
    if !is_alone {
        return tx.rollback().await;
    }
    sqlx::raw_sql("SET LOCAL lock_timeout = '2s'").execute(&mut *tx).await?;
    let quoted: String = sqlx::query_scalar("SELECT quote_literal($1)").bind(model).fetch_one(&mut *tx).await?;
    let rest = vectors::definition(Index::Halves, width, &format!(" WHERE embed_model = {quoted}"));
    let create = format!("CREATE INDEX IF NOT EXISTS {name} ON entity_names{rest}");
    match sqlx::raw_sql(AssertSqlSafe(create)).execute(&mut *tx).await {
        Ok(_) => tx.commit().await,
        Err(error) => {
            tracing::warn!(%error, model, "the index of the names' vectors could not be made; the next task tries again");
            tx.rollback().await
        }
    }
}

/// The entities of a zone with the nearest names to each of these, nearest first. Only those that came after one count. Call it in a transaction.
#[tracing::instrument(level = "debug", skip_all, fields(zone.id = zone.0))]
pub async fn near(
    conn: &mut PgConnection,
    zone: DocumentId,
    model: &str,
    names: &[HalfVector],
    after: DocumentId,
    least: f64,
) -> sqlx::Result<Vec<NearName>> {
    let Some(first) = names.first() else { return Ok(Vec::new()) };
    let count: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM (SELECT FROM entity_names WHERE zone = $1 AND embed_model = $2 AND document_id > $3 LIMIT $4) n",
    )
    .bind(zone)
    .bind(model)
    .bind(after)
    .bind(COMPARED + 1)
    .persistent(false)
    .fetch_one(&mut *conn)
    .await?;
    // The expression of the index names its width, so a query that names none compares all names.
    let order = if count > COMPARED {
        vectors::look_at(conn, LOOKED_AT).await?;
        let width = first.to_vec().len();
        format!("n.embed::halfvec({width}) <=> q.embed::halfvec({width})")
    } else {
        "n.embed <=> q.embed, n.document_id".to_owned()
    };
    let statement = format!(
        "SELECT * FROM (
             SELECT q.at, s.document_id, s.name_key, s.type_key, 1 - (s.embed <=> q.embed) AS score
               FROM unnest($3::halfvec[]) WITH ORDINALITY q(embed, at) CROSS JOIN LATERAL (
                    SELECT n.* FROM entity_names n WHERE n.zone = $1 AND n.embed_model = $2 AND n.document_id > $4 ORDER BY {order} LIMIT $6) s) s
          WHERE s.score BETWEEN $5 AND 2 ORDER BY s.at, s.score DESC, s.document_id"
    );
    sqlx::query_as(AssertSqlSafe(statement))
        .bind(zone)
        .bind(model)
        .bind(names)
        .bind(after)
        .bind(least)
        .bind(NEAREST)
        .persistent(false)
        .fetch_all(conn)
        .await
}

/// An entity whose name has a vector of another model.
#[derive(Clone, Debug, sqlx_macros::FromRow)]
pub struct Outdated {
    pub document_id: DocumentId,
    pub name_key: String,
    pub title: String,
}

/// Entities of a zone whose names have a vector of a model that this one has taken the place of, at most `limit`: this one serves since vectors moved to it, or no
/// document has a vector of that one any more. So two services with different models do not take names from each other.
#[tracing::instrument(level = "debug", skip_all, fields(zone.id = zone.0))]
pub async fn outdated(
    conn: &mut PgConnection,
    zone: DocumentId,
    model: &str,
    limit: i64,
) -> sqlx::Result<Vec<Outdated>> {
    // Mostly there are none, and the index tells so: it is entered once for each model, and the names of models that stay are not read.
    sqlx::query_as(
        "WITH RECURSIVE models(model) AS (
             SELECT (SELECT min(embed_model) FROM entity_names WHERE zone = $1)
              UNION ALL
             SELECT (SELECT min(n.embed_model) FROM entity_names n WHERE n.zone = $1 AND n.embed_model > m.model) FROM models m WHERE m.model IS NOT NULL),
         replaced(model) AS (
             SELECT m.model FROM models m
              WHERE m.model <> $2 AND (EXISTS (SELECT FROM model_moves s WHERE s.serving = $2)
                                       OR NOT EXISTS (SELECT FROM document_vectors v WHERE v.embed_model = m.model)))
         SELECT n.document_id, n.name_key, d.title
           FROM replaced r CROSS JOIN LATERAL (
                SELECT e.document_id, e.name_key FROM entity_names e WHERE e.zone = $1 AND e.embed_model = r.model LIMIT $3) n
           JOIN documents d ON d.id = n.document_id LIMIT $3",
    )
    .bind(zone)
    .bind(model)
    .bind(limit)
    .persistent(false)
    .fetch_all(conn)
    .await
}

/// Gives the names of entities of a zone these vectors of a model; one of which the model makes none has none from then on. Names that somebody
/// else changes at this moment keep theirs.
#[tracing::instrument(level = "debug", skip_all, fields(zone.id = zone.0))]
pub async fn renew(
    conn: &mut PgConnection,
    zone: DocumentId,
    model: &str,
    vectors: &[(DocumentId, Option<HalfVector>)],
) -> sqlx::Result<()> {
    // Whoever waits for nobody cannot deadlock.
    sqlx::query(
        "WITH locked AS MATERIALIZED (
             SELECT n.document_id FROM entity_names n WHERE n.zone = $1 AND n.document_id = ANY($3) FOR UPDATE SKIP LOCKED)
         UPDATE entity_names n SET embed = v.embed, embed_model = CASE WHEN v.embed IS NOT NULL THEN $2::text END
           FROM unnest($3::bigint[], $4::halfvec[]) v(id, embed) JOIN locked l ON l.document_id = v.id WHERE n.document_id = v.id",
    )
    .bind(zone)
    .bind(model)
    .bind(vectors.iter().map(|(id, _)| *id).collect::<Vec<_>>())
    .bind(vectors.iter().map(|(_, vector)| vector.clone()).collect::<Vec<_>>())
    .persistent(false)
    .execute(conn)
    .await
    .map(|_| ())
}

/// A name for a document that the caller has just made in a zone.
pub struct NewName<'a> {
    pub document_id: DocumentId,
    pub name_key: &'a str,
    pub type_key: &'a str,
    /// The model, and the vector of the name.
    pub vector: Option<(&'a str, &'a HalfVector)>,
}

/// Gives new documents of a zone their names.
#[tracing::instrument(level = "debug", skip_all, fields(zone.id = zone.0))]
pub async fn name(conn: &mut PgConnection, zone: DocumentId, new: &[NewName<'_>]) -> sqlx::Result<()> {
    if new.is_empty() {
        return Ok(());
    }
    sqlx::query(
        "INSERT INTO entity_names (document_id, zone, name_key, type_key, embed, embed_model)
         SELECT n.id, $1, n.name_key, n.type_key, n.embed, n.model
           FROM unnest($2::bigint[], $3::text[], $4::text[], $5::halfvec[], $6::text[]) n(id, name_key, type_key, embed, model)",
    )
    .bind(zone)
    .bind(new.iter().map(|new| new.document_id).collect::<Vec<_>>())
    .bind(new.iter().map(|new| new.name_key).collect::<Vec<_>>())
    .bind(new.iter().map(|new| new.type_key).collect::<Vec<_>>())
    .bind(new.iter().map(|new| new.vector.map(|(_, vector)| vector.clone())).collect::<Vec<_>>())
    .bind(new.iter().map(|new| new.vector.map(|(model, _)| model)).collect::<Vec<_>>())
    .execute(conn)
    .await
    .map(|_| ())
}

/// Has the names of entities at and under `root` follow these into other zones. Where a name is taken there the one that comes gives it up, and
/// its document is found by it no more. Call it after guards have changed, while no other does.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = root.0))]
pub async fn into_zones(conn: &mut PgConnection, root: DocumentId) -> sqlx::Result<()> {
    sqlx::query(
        "DELETE FROM entity_names WHERE document_id IN (
             SELECT m.document_id FROM (
                 SELECT n.document_id, n.name_key, n.type_key, d.guard,
                        row_number() OVER (PARTITION BY d.guard, n.name_key, n.type_key ORDER BY n.document_id) AS turn
                   FROM entity_names n JOIN documents d ON d.id = n.document_id
                  WHERE (d.id = $1 OR d.path @> ARRAY[$1::bigint]) AND n.zone <> d.guard) m
              WHERE m.turn > 1 OR EXISTS (SELECT FROM entity_names t WHERE t.zone = m.guard AND t.name_key = m.name_key AND t.type_key = m.type_key))",
    )
    .bind(root)
    .persistent(false)
    .execute(&mut *conn)
    .await?;
    sqlx::query(
        "UPDATE entity_names n SET zone = d.guard FROM documents d
          WHERE d.id = n.document_id AND (d.id = $1 OR d.path @> ARRAY[$1::bigint]) AND n.zone <> d.guard",
    )
    .bind(root)
    .persistent(false)
    .execute(conn)
    .await
    .map(|_| ())
}
