//! Search indexes, the subtrees they cover, and the documents they hold; the postings are in [`postings`] and
//! [`terms`].

use super::away::{LOCK_NOT_AVAILABLE, QUERY_CANCELED, sql_state};
use sqlx::{AssertSqlSafe, PgConnection, types::Json};
use svc_ids::{DocumentId, IndexId};
use svc_ranking::{Config, ConfigError, Totals};

mod copy;
pub mod manage;
pub mod postings;
pub mod reading;
pub mod terms;

/// The name of the index that is there from the start, which the settings configure.
pub const DEFAULT: &str = "default";

/// Why an index cannot be made, changed or read.
#[derive(Debug, thiserror::Error)]
pub enum IndexError {
    #[error("no search index has the id {0}")]
    Unknown(IndexId),
    #[error("index config: {0}")]
    Config(#[from] ConfigError),
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

#[derive(Clone, Debug, sqlx_macros::FromRow)]
pub struct SearchIndex {
    pub id: IndexId,
    pub name: String,
    pub config: Json<Config>,
    /// The usetypes that are kept out of it.
    pub excluded: Vec<String>,
}

pub async fn by_name(conn: &mut PgConnection, name: &str) -> sqlx::Result<Option<SearchIndex>> {
    sqlx::query_as("SELECT id, name, config, excluded FROM search_indexes WHERE name = $1")
        .bind(name)
        .fetch_optional(conn)
        .await
}

/// Indexes after `after` by id, at most `limit`.
pub async fn list(conn: &mut PgConnection, after: IndexId, limit: i64) -> sqlx::Result<Vec<SearchIndex>> {
    sqlx::query_as(
        "SELECT id, name, config, excluded FROM search_indexes
         WHERE id > $1 ORDER BY id LIMIT $2",
    )
    .bind(after)
    .bind(limit)
    .fetch_all(conn)
    .await
}

/// Changes the configuration. A change of k1 or b takes effect at once; the sealed bounds are not used until compaction has
/// rewritten them. A change of the analyzer, or of what titles count, needs an empty index. This waits for a compaction under
/// way.
pub async fn configure(conn: &mut PgConnection, id: IndexId, config: &Config) -> Result<(), IndexError> {
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
    if filled && !old.same_postings(config) {
        return Err(other_postings(&old));
    }
    sqlx::query(
        "UPDATE search_indexes SET config = $2, generation = generation + 1, rescored_at = generation + 1, contents = contents # $3
          WHERE id = $1",
    )
    .bind(id)
    .bind(Json(config))
    .bind(rand::random::<i64>())
    .execute(conn)
    .await?;
    Ok(())
}

fn other_postings(old: &Config) -> IndexError {
    IndexError::Config(ConfigError(format!(
        "the analyzer and what titles count cannot change under indexed documents (the language is {:?}); create another index",
        old.analyzer.language
    )))
}

/// Whether the index `i` covers the document `d`, whatever its state. A generation of a file is covered as the file is.
macro_rules! covers {
    () => {
        "(NOT i.restricted
          OR EXISTS (SELECT FROM search_index_members m
                      -- One look-up by the key for each of a few documents, however many members there are.
                      WHERE m.index_id = i.id AND m.root_document_id = ANY(d.path || d.id || ARRAY(
                            SELECT unnest(f.path || f.id) FROM generations g JOIN documents f ON f.id = g.document_id
                             WHERE g.generation_id = coalesce(d.path[1], d.id)))))"
    };
}
pub(super) use covers;

/// Whether the words of the document `d` belong into the index `i`, whatever the document's state.
macro_rules! takes {
    () => {
        concat!("(i.capabilities ->> 'bm25')::boolean AND d.usetype <> ALL(i.excluded) AND ", covers!())
    };
}
pub(super) use takes;

/// `(index, document)` for each BM25 index that each of `documents` belongs into.
pub async fn covering(conn: &mut PgConnection, documents: &[DocumentId]) -> sqlx::Result<Vec<(IndexId, DocumentId)>> {
    sqlx::query_as(concat!(
        "SELECT i.id, d.id FROM search_indexes i CROSS JOIN documents d WHERE d.id = ANY($1) AND ",
        takes!(),
        " ORDER BY 1, 2"
    ))
    .bind(documents)
    .fetch_all(conn)
    .await
}

/// A BM25 index that covers what will be under a document.
#[derive(Clone, Debug, PartialEq, Eq, sqlx_macros::FromRow)]
pub struct Covering {
    pub index_id: IndexId,
    /// `None` for what will be under none.
    pub under: Option<DocumentId>,
    /// The usetypes that are kept out of the index.
    excluded: Vec<String>,
}

impl Covering {
    /// Whether a new document of this usetype belongs into the index.
    pub fn takes(&self, usetype: &str) -> bool {
        self.excluded.iter().all(|excluded| excluded != usetype)
    }
}

/// The BM25 indexes that cover what will be under each of `documents`, and under none, by index and document.
pub async fn covering_under(conn: &mut PgConnection, documents: &[DocumentId]) -> sqlx::Result<Vec<Covering>> {
    sqlx::query_as(concat!(
        "SELECT i.id AS index_id, d.id AS under, i.excluded FROM search_indexes i CROSS JOIN documents d
          WHERE d.id = ANY($1) AND (i.capabilities ->> 'bm25')::boolean AND ",
        covers!(),
        " UNION ALL
         SELECT i.id, NULL, i.excluded FROM search_indexes i WHERE (i.capabilities ->> 'bm25')::boolean AND NOT i.restricted
         ORDER BY index_id, under"
    ))
    .bind(documents)
    .fetch_all(conn)
    .await
}

/// A document as the indexes take it.
#[derive(Clone, Debug, PartialEq, Eq, sqlx_macros::FromRow)]
pub struct Taken {
    pub id: DocumentId,
    pub usetype: String,
    pub title: String,
    pub content_hash: String,
    /// The bytes of its text.
    pub size: i64,
    /// The BM25 indexes that it belongs into, by id.
    pub indexes: Vec<IndexId>,
}

/// Those of these documents that belong into some BM25 index, by id.
pub async fn taken(conn: &mut PgConnection, documents: &[DocumentId]) -> sqlx::Result<Vec<Taken>> {
    sqlx::query_as(concat!(
        "SELECT * FROM (
             SELECT d.id, d.usetype, d.title, d.content_hash, octet_length(d.content)::bigint AS size,
                    ARRAY(SELECT i.id FROM search_indexes i WHERE ",
        takes!(),
        " ORDER BY i.id) AS indexes
               FROM documents d WHERE d.id = ANY($1)) t
          WHERE indexes <> '{}' ORDER BY id"
    ))
    .bind(documents)
    .fetch_all(conn)
    .await
}

/// The totals of an index, folded ones plus deltas, exact in the statement's snapshot.
pub async fn totals(conn: &mut PgConnection, id: IndexId) -> Result<Totals, IndexError> {
    let row: Option<(Json<Config>, i64, i64, i64, i64, i64)> = sqlx::query_as(
        "SELECT i.config, i.generation, i.rescored_at, i.docs + d.docs, i.tokens + d.tokens, i.contents # d.contents FROM search_indexes i,
                LATERAL (SELECT coalesce(sum(docs), 0)::bigint AS docs, coalesce(sum(tokens), 0)::bigint AS tokens,
                                coalesce(bit_xor(contents), 0) AS contents
                         FROM search_index_deltas WHERE index_id = i.id) d
         WHERE i.id = $1",
    )
    .bind(id)
    .fetch_optional(conn)
    .await?;
    let (Json(config), generation, rescored_at, docs, tokens, contents) = row.ok_or(IndexError::Unknown(id))?;
    Ok(Totals { config, generation, rescored_at, docs, tokens, contents })
}

/// Moves the deltas into the totals.
pub async fn fold_totals(conn: &mut PgConnection, id: IndexId) -> sqlx::Result<()> {
    sqlx::query(
        "WITH gone AS (DELETE FROM search_index_deltas WHERE index_id = $1 RETURNING docs, tokens, contents),
              added AS (SELECT coalesce(sum(docs), 0)::bigint AS docs, coalesce(sum(tokens), 0)::bigint AS tokens,
                               coalesce(bit_xor(contents), 0) AS contents FROM gone)
         UPDATE search_indexes i SET docs = i.docs + a.docs, tokens = i.tokens + a.tokens, contents = i.contents # a.contents,
                avgdl_built = greatest(i.tokens + a.tokens, 0)::double precision / greatest(i.docs + a.docs, 1)
         FROM added a WHERE i.id = $1 AND (a.docs <> 0 OR a.tokens <> 0 OR a.contents <> 0)",
    )
    .bind(id)
    .execute(conn)
    .await?;
    Ok(())
}

/// Records that every sealed list has bounds for the present weights, unless these changed after `rescored_at` was
/// read. Whoever remembers a list with other bounds has to read it again, as if the contents had changed.
pub async fn all_rescored(conn: &mut PgConnection, id: IndexId, rescored_at: i64) -> sqlx::Result<()> {
    sqlx::query(
        "UPDATE search_indexes SET rescored_at = 0, contents = contents # $3 WHERE id = $1 AND rescored_at = $2",
    )
    .bind(id)
    .bind(rescored_at)
    .bind(rand::random::<i64>())
    .execute(conn)
    .await?;
    Ok(())
}

/// Sets the number that counts the changes of the sealed postings.
pub async fn set_generation(conn: &mut PgConnection, id: IndexId, generation: i64) -> sqlx::Result<()> {
    sqlx::query("UPDATE search_indexes SET generation = $2 WHERE id = $1")
        .bind(id)
        .bind(generation)
        .execute(conn)
        .await?;
    Ok(())
}

/// Keeps the index from being deleted and emptied until the transaction ends. Returns its configuration; `None` if there is none.
pub async fn hold(conn: &mut PgConnection, id: IndexId) -> sqlx::Result<Option<Config>> {
    let config: Option<Json<Config>> =
        sqlx::query_scalar("SELECT config FROM search_indexes WHERE id = $1 FOR KEY SHARE")
            .bind(id)
            .fetch_optional(conn)
            .await?;
    Ok(config.map(|Json(config)| config))
}

/// Keeps the index from being written until the transaction ends. Returns false if writers leave no room for that within two seconds; then the transaction can only be
/// rolled back.
pub async fn try_hold_alone(conn: &mut PgConnection, id: IndexId) -> sqlx::Result<bool> {
    // Among writers that overlap it waits for one after the other, so that the statement has the limit and not each wait.
    let lock = format!(
        "SET LOCAL statement_timeout = '2s'; SELECT FROM search_indexes WHERE id = {id} FOR UPDATE; SET LOCAL statement_timeout TO DEFAULT"
    );
    match sqlx::raw_sql(AssertSqlSafe(lock)).execute(conn).await {
        Err(error) if [LOCK_NOT_AVAILABLE, QUERY_CANCELED].contains(&sql_state(&error).as_ref()) => Ok(false),
        held => held.map(|_| true),
    }
}
