//! Search indexes, the subtrees they cover, and which documents they hold; the postings are in [`postings`] and [`terms`].

use sqlx::PgConnection;
use sqlx::types::Json;

use svc_ranking::{AnalyzerConfig, Config, ConfigError};

mod copy;
pub mod postings;
pub mod terms;

/// Why an index is not made, changed or read.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    #[error("no search index has the id {0}; list the indexes for those that exist")]
    Unknown(i64),
    #[error("index config: {0}")]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

/// What an index can answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Capabilities {
    pub bm25: bool,
    pub maxsim: bool,
}

#[derive(Clone, Debug, sqlx::FromRow)]
pub struct SearchIndex {
    pub id: i64,
    pub name: String,
    pub config: Json<Config>,
    pub capabilities: Json<Capabilities>,
    pub generation: i64,
    pub avgdl_built: f64,
    pub created_at: chrono::DateTime<chrono::Utc>,
}

/// An index as one snapshot sees it: N, its tokens, and what its bounds are good for.
#[derive(Clone, Copy, Debug)]
pub struct Totals {
    pub config: Config,
    pub generation: i64,
    pub rescored_at: i64,
    pub docs: i64,
    pub tokens: i64,
}

impl Totals {
    /// Tokens a document; 0 for an empty index.
    pub fn average_length(&self) -> f64 {
        if self.docs > 0 { self.tokens.max(0) as f64 / self.docs as f64 } else { 0.0 }
    }
}

pub async fn create(
    conn: &mut PgConnection,
    name: &str,
    config: &Config,
    capabilities: Capabilities,
) -> Result<SearchIndex, IndexError> {
    config.validate()?;
    Ok(sqlx::query_as(
        "INSERT INTO search_indexes (name, config, capabilities) VALUES ($1, $2, $3)
         RETURNING id, name, config, capabilities, generation, avgdl_built, created_at",
    )
    .bind(name)
    .bind(Json(config))
    .bind(Json(capabilities))
    .fetch_one(conn)
    .await?)
}

pub async fn get(conn: &mut PgConnection, id: i64) -> sqlx::Result<Option<SearchIndex>> {
    sqlx::query_as(
        "SELECT id, name, config, capabilities, generation, avgdl_built, created_at FROM search_indexes WHERE id = $1",
    )
    .bind(id)
    .fetch_optional(conn)
    .await
}

pub async fn by_name(conn: &mut PgConnection, name: &str) -> sqlx::Result<Option<SearchIndex>> {
    sqlx::query_as(
        "SELECT id, name, config, capabilities, generation, avgdl_built, created_at FROM search_indexes WHERE name = $1",
    )
    .bind(name)
    .fetch_optional(conn)
    .await
}

/// Indexes after `after` by id, at most `limit`.
pub async fn list(conn: &mut PgConnection, after: i64, limit: i64) -> sqlx::Result<Vec<SearchIndex>> {
    sqlx::query_as(
        "SELECT id, name, config, capabilities, generation, avgdl_built, created_at FROM search_indexes
         WHERE id > $1 ORDER BY id LIMIT $2",
    )
    .bind(after)
    .bind(limit)
    .fetch_all(conn)
    .await
}

/// Renames an index or changes what it answers; false where there is none.
pub async fn update(conn: &mut PgConnection, id: i64, name: &str, capabilities: Capabilities) -> sqlx::Result<bool> {
    let done = sqlx::query("UPDATE search_indexes SET name = $2, capabilities = $3 WHERE id = $1")
        .bind(id)
        .bind(name)
        .bind(Json(capabilities))
        .execute(conn)
        .await?;
    Ok(done.rows_affected() == 1)
}

/// Changes k1, b and the analyzer. A change of k1 or b holds at once, with the sealed bounds put out of use until
/// compaction has rewritten them; a change of the analyzer asks for an empty index, see [`clear`]. Waits for a compaction
/// that is under way.
pub async fn configure(conn: &mut PgConnection, id: i64, config: &Config) -> Result<(), IndexError> {
    config.validate()?;
    postings::lock_compaction(&mut *conn, id).await?;
    let row: Option<(Json<Config>, bool)> = sqlx::query_as(
        "SELECT config, EXISTS (SELECT FROM search_index_entries e WHERE e.index_id = i.id)
         FROM search_indexes i WHERE id = $1 FOR UPDATE",
    )
    .bind(id)
    .fetch_optional(&mut *conn)
    .await?;
    let (Json(old), filled) = row.ok_or(IndexError::Unknown(id))?;
    if old == *config {
        return Ok(());
    }
    if filled && !old.analyzer.same_terms(&config.analyzer) {
        return Err(analyzer_change(&old.analyzer));
    }
    sqlx::query(
        "UPDATE search_indexes SET config = $2, generation = generation + 1, rescored_at = generation + 1 WHERE id = $1",
    )
    .bind(id)
    .bind(Json(config))
    .execute(conn)
    .await?;
    Ok(())
}

fn analyzer_change(old: &AnalyzerConfig) -> IndexError {
    IndexError::Config(ConfigError(format!(
        "the analyzer cannot change under indexed documents (its language is {:?}); clear the index first, or create another one",
        old.language
    )))
}

/// Empties an index and keeps its configuration, members and term ids, which other processes may remember.
pub async fn clear(conn: &mut PgConnection, id: i64) -> Result<(), IndexError> {
    postings::lock_compaction(&mut *conn, id).await?;
    // Keeps writers out until this transaction ends: what they had appended is deleted whole or not at all.
    let found = sqlx::query("SELECT FROM search_indexes WHERE id = $1 FOR UPDATE").bind(id).execute(&mut *conn).await?;
    if found.rows_affected() == 0 {
        return Err(IndexError::Unknown(id));
    }
    postings::delete_all(&mut *conn, id).await?;
    terms::forget_frequencies(&mut *conn, id).await?;
    sqlx::query(
        "UPDATE search_indexes SET docs = 0, tokens = 0, avgdl_built = 0, generation = generation + 1 WHERE id = $1",
    )
    .bind(id)
    .execute(conn)
    .await?;
    Ok(())
}

/// Deletes an index with all it holds; false where there is none.
pub async fn delete(conn: &mut PgConnection, id: i64) -> sqlx::Result<bool> {
    postings::lock_compaction(&mut *conn, id).await?;
    let done = sqlx::query("DELETE FROM search_indexes WHERE id = $1").bind(id).execute(&mut *conn).await?;
    postings::delete_all(&mut *conn, id).await?;
    terms::delete_all(conn, id).await?;
    Ok(done.rows_affected() == 1)
}

/// The roots an index covers, ascending; none: every document.
pub async fn members(conn: &mut PgConnection, id: i64) -> sqlx::Result<Vec<i64>> {
    sqlx::query_scalar("SELECT root_document_id FROM search_index_members WHERE index_id = $1 ORDER BY 1")
        .bind(id)
        .fetch_all(conn)
        .await
}

/// False where the root was a member already.
pub async fn add_member(conn: &mut PgConnection, id: i64, root: i64) -> sqlx::Result<bool> {
    let done = sqlx::query(
        "INSERT INTO search_index_members (index_id, root_document_id) VALUES ($1, $2) ON CONFLICT DO NOTHING",
    )
    .bind(id)
    .bind(root)
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// False where the root was no member.
pub async fn remove_member(conn: &mut PgConnection, id: i64, root: i64) -> sqlx::Result<bool> {
    let done = sqlx::query("DELETE FROM search_index_members WHERE index_id = $1 AND root_document_id = $2")
        .bind(id)
        .bind(root)
        .execute(conn)
        .await?;
    Ok(done.rows_affected() == 1)
}

/// `(index, document)` for each BM25 index that covers each of `documents`, whatever their state.
pub async fn covering(conn: &mut PgConnection, documents: &[i64]) -> sqlx::Result<Vec<(i64, i64)>> {
    sqlx::query_as(
        "SELECT i.id, d.id FROM search_indexes i CROSS JOIN documents d
         WHERE d.id = ANY($1) AND (i.capabilities ->> 'bm25')::boolean
           AND (NOT EXISTS (SELECT FROM search_index_members m WHERE m.index_id = i.id)
                OR EXISTS (SELECT FROM search_index_members m
                           WHERE m.index_id = i.id AND (m.root_document_id = d.id OR m.root_document_id = ANY(d.path))))
         ORDER BY 1, 2",
    )
    .bind(documents)
    .fetch_all(conn)
    .await
}

/// Settled documents that the index covers and does not hold, after the id `after`, at most `limit`.
pub async fn unindexed(
    conn: &mut PgConnection,
    id: i64,
    excluded_usetypes: &[String],
    after: i64,
    limit: i64,
) -> sqlx::Result<Vec<i64>> {
    sqlx::query_scalar(
        "SELECT d.id FROM documents d
         WHERE d.id > $3 AND d.settled = 'settled' AND d.usetype <> ALL($2)
           AND NOT EXISTS (SELECT FROM search_index_entries e WHERE e.document_id = d.id AND e.index_id = $1)
           AND (NOT EXISTS (SELECT FROM search_index_members m WHERE m.index_id = $1)
                OR EXISTS (SELECT FROM search_index_members m
                           WHERE m.index_id = $1 AND (m.root_document_id = d.id OR m.root_document_id = ANY(d.path))))
         ORDER BY d.id LIMIT $4",
    )
    .bind(id)
    .bind(excluded_usetypes)
    .bind(after)
    .bind(limit)
    .fetch_all(conn)
    .await
}

/// Documents that the index holds and should not: gone, not settled, excluded, or under no member; as [`unindexed`].
pub async fn stray(
    conn: &mut PgConnection,
    id: i64,
    excluded_usetypes: &[String],
    after: i64,
    limit: i64,
) -> sqlx::Result<Vec<i64>> {
    sqlx::query_scalar(
        "SELECT e.document_id FROM search_index_entries e LEFT JOIN documents d ON d.id = e.document_id
         WHERE e.index_id = $1 AND e.document_id > $3
           AND (d.id IS NULL OR d.settled <> 'settled' OR d.usetype = ANY($2)
                OR (EXISTS (SELECT FROM search_index_members m WHERE m.index_id = $1)
                    AND NOT EXISTS (SELECT FROM search_index_members m
                                    WHERE m.index_id = $1
                                      AND (m.root_document_id = d.id OR m.root_document_id = ANY(d.path)))))
         ORDER BY e.document_id LIMIT $4",
    )
    .bind(id)
    .bind(excluded_usetypes)
    .bind(after)
    .bind(limit)
    .fetch_all(conn)
    .await
}

/// The totals of an index, folded ones and deltas together, exact in the statement's snapshot.
pub async fn totals(conn: &mut PgConnection, id: i64) -> Result<Totals, IndexError> {
    let row: Option<(Json<Config>, i64, i64, i64, i64)> = sqlx::query_as(
        "SELECT i.config, i.generation, i.rescored_at, i.docs + d.docs, i.tokens + d.tokens FROM search_indexes i,
                LATERAL (SELECT coalesce(sum(docs), 0)::bigint AS docs, coalesce(sum(tokens), 0)::bigint AS tokens
                         FROM search_index_deltas WHERE index_id = i.id) d
         WHERE i.id = $1",
    )
    .bind(id)
    .fetch_optional(conn)
    .await?;
    let (Json(config), generation, rescored_at, docs, tokens) = row.ok_or(IndexError::Unknown(id))?;
    Ok(Totals { config, generation, rescored_at, docs, tokens })
}

/// Moves the deltas into the totals.
pub async fn fold_totals(conn: &mut PgConnection, id: i64) -> sqlx::Result<()> {
    sqlx::query(
        "WITH gone AS (DELETE FROM search_index_deltas WHERE index_id = $1 RETURNING docs, tokens),
              added AS (SELECT coalesce(sum(docs), 0)::bigint AS docs, coalesce(sum(tokens), 0)::bigint AS tokens FROM gone)
         UPDATE search_indexes i SET docs = i.docs + a.docs, tokens = i.tokens + a.tokens,
                avgdl_built = greatest(i.tokens + a.tokens, 0)::double precision / greatest(i.docs + a.docs, 1)
         FROM added a WHERE i.id = $1 AND (a.docs <> 0 OR a.tokens <> 0)",
    )
    .bind(id)
    .execute(conn)
    .await?;
    Ok(())
}

/// Says that every sealed list has the bounds of the present weights, unless these changed after `rescored_at` was read.
pub async fn all_rescored(conn: &mut PgConnection, id: i64, rescored_at: i64) -> sqlx::Result<()> {
    sqlx::query("UPDATE search_indexes SET rescored_at = 0 WHERE id = $1 AND rescored_at = $2")
        .bind(id)
        .bind(rescored_at)
        .execute(conn)
        .await?;
    Ok(())
}

/// Counts one change of the sealed postings.
pub async fn set_generation(conn: &mut PgConnection, id: i64, generation: i64) -> sqlx::Result<()> {
    sqlx::query("UPDATE search_indexes SET generation = $2 WHERE id = $1")
        .bind(id)
        .bind(generation)
        .execute(conn)
        .await?;
    Ok(())
}

/// Holds the index in being until the transaction ends; false where there is none.
pub async fn hold(conn: &mut PgConnection, id: i64) -> sqlx::Result<bool> {
    let found = sqlx::query("SELECT FROM search_indexes WHERE id = $1 FOR KEY SHARE").bind(id).execute(conn).await?;
    Ok(found.rows_affected() == 1)
}
