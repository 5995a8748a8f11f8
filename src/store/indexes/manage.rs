//! Making, changing and building indexes.
use super::{DEFAULT, IndexError, covers, postings, takes};
use crate::store::places::Place;
use chrono::{DateTime, Utc};
use sqlx::{AssertSqlSafe, PgConnection, types::Json};
use svc_client::wire::IndexCapabilities;
use svc_ids::{DocumentId, IndexId};
use svc_ranking::Config;

/// An index as its owner sees it.
#[derive(Clone, Debug, sqlx_macros::FromRow)]
pub struct IndexRow {
    pub id: IndexId,
    pub name: String,
    pub config: Json<Config>,
    pub capabilities: Json<IndexCapabilities>,
    pub restricted: bool,
    pub members: i64,
    pub documents: i64,
    /// The last document that a build has looked at; `None` if there is nothing to build.
    pub built_to: Option<DocumentId>,
    pub created_at: DateTime<Utc>,
}

macro_rules! columns {
    () => {
        "i.id, i.name, i.config, i.capabilities, i.restricted, i.built_to, i.created_at,
         (SELECT count(*) FROM search_index_members m WHERE m.index_id = i.id) AS members,
         i.docs + (SELECT coalesce(sum(docs), 0)::bigint FROM search_index_deltas x WHERE x.index_id = i.id) AS documents"
    };
}

/// Stores an index that is still to be built, and that these usetypes are kept out of, or those of the index `default`; `None` if the name is taken.
pub async fn insert(
    conn: &mut PgConnection,
    name: &str,
    config: &Config,
    capabilities: IndexCapabilities,
    excluded: Option<&[String]>,
) -> Result<Option<IndexId>, IndexError> {
    config.validate()?;
    Ok(sqlx::query_scalar(
        "INSERT INTO search_indexes (name, config, capabilities, excluded, built_to)
         VALUES ($1, $2, $3, coalesce($4, (SELECT excluded FROM search_indexes WHERE name = $5)), 0) ON CONFLICT DO NOTHING RETURNING id",
    )
    .bind(name)
    .bind(Json(config))
    .bind(Json(capabilities))
    .bind(excluded)
    .bind(DEFAULT)
    .fetch_optional(conn)
    .await?)
}

pub async fn read(conn: &mut PgConnection, id: IndexId) -> sqlx::Result<Option<IndexRow>> {
    sqlx::query_as(concat!("SELECT ", columns!(), " FROM search_indexes i WHERE i.id = $1"))
        .bind(id)
        .fetch_optional(conn)
        .await
}

/// Indexes after `after` by id, at most `limit`.
pub async fn page(conn: &mut PgConnection, after: IndexId, limit: u32) -> sqlx::Result<Vec<IndexRow>> {
    sqlx::query_as(concat!("SELECT ", columns!(), " FROM search_indexes i WHERE i.id > $1 ORDER BY i.id LIMIT $2"))
        .bind(after)
        .bind(i64::from(limit))
        .fetch_all(conn)
        .await
}

/// Whether there is such an index, and it has the postings of what it covers.
pub async fn has_bm25(conn: &mut PgConnection, name: &str) -> sqlx::Result<bool> {
    sqlx::query_scalar(
        "SELECT EXISTS (SELECT FROM search_indexes WHERE name = $1 AND (capabilities ->> 'bm25')::boolean)",
    )
    .bind(name)
    .fetch_one(conn)
    .await
}

/// Whether the index of this name is being built, so that it may lack some of what it covers.
pub async fn is_building(conn: &mut PgConnection, name: &str) -> sqlx::Result<bool> {
    sqlx::query_scalar("SELECT EXISTS (SELECT FROM search_indexes WHERE name = $1 AND built_to IS NOT NULL)")
        .bind(name)
        .fetch_one(conn)
        .await
}

/// Keeps everybody else from changing or deleting the index until the transaction ends; waits for a compaction and for writers under
/// way. Returns its configuration.
pub async fn lock(conn: &mut PgConnection, id: IndexId) -> Result<Config, IndexError> {
    postings::lock_compaction(&mut *conn, id).await?;
    let config: Option<Json<Config>> = sqlx::query_scalar("SELECT config FROM search_indexes WHERE id = $1 FOR UPDATE")
        .bind(id)
        .fetch_optional(conn)
        .await?;
    config.map(|Json(config)| config).ok_or(IndexError::Unknown(id))
}

pub async fn rename(conn: &mut PgConnection, id: IndexId, name: &str) -> sqlx::Result<()> {
    sqlx::query("UPDATE search_indexes SET name = $2 WHERE id = $1").bind(id).bind(name).execute(conn).await.map(|_| ())
}

/// Half of the numbers that an index has for its documents.
const HALF: i32 = 1 << 30;
/// With fewer left than an eighth, a build may not have enough for all documents.
const NEARLY_ALL: i64 = 7 << 28;

/// Prepares a locked index for new numbers of all of its documents. They begin at 1 again once it has used half of them and holds none of that half; those that it
/// holds are found meanwhile. Returns true if it holds some of that half and has nearly used up the other one too: then it has to be emptied first.
async fn number_anew(conn: &mut PgConnection, id: IndexId) -> sqlx::Result<bool> {
    let (used, are_free): (i64, bool) = sqlx::query_as(
        "SELECT coalesce(pg_sequence_last_value(('search_docno_' || $1::bigint)::regclass), 0),
                NOT EXISTS (SELECT FROM search_index_entries WHERE index_id = $1 AND docno <= $2)
                AND NOT EXISTS (SELECT FROM search_term_tombstones WHERE index_id = $1 AND first_doc <= $2)",
    )
    .bind(id)
    .bind(HALF)
    .fetch_one(&mut *conn)
    .await?;
    if used > i64::from(HALF) && are_free {
        let restart = format!("ALTER SEQUENCE search_docno_{id} RESTART");
        sqlx::raw_sql(AssertSqlSafe(restart)).execute(conn).await?;
    }
    Ok(used > NEARLY_ALL && !are_free)
}

/// Takes everything out of a locked index, to be built anew with this configuration.
async fn empty(conn: &mut PgConnection, id: IndexId, config: &Config) -> Result<(), IndexError> {
    config.validate()?;
    clear(&mut *conn, id).await?;
    number_anew(&mut *conn, id).await?;
    sqlx::query(
        "UPDATE search_indexes SET config = $2, generation = generation + 1, rescored_at = 0, avgdl_built = 0, docs = 0, tokens = 0, contents = $3,
                built_to = 0, builds = builds + 1, replaces = true WHERE id = $1",
    )
    .bind(id)
    .bind(Json(config))
    .bind(rand::random::<i64>())
    .execute(conn)
    .await?;
    Ok(())
}

/// Has a locked index built anew with this configuration, which makes other postings. If its terms stay the same, what it holds is found
/// until it is replaced.
pub async fn build_anew(conn: &mut PgConnection, id: IndexId, old: &Config, config: &Config) -> Result<(), IndexError> {
    if !old.analyzer.same_terms(&config.analyzer) || number_anew(&mut *conn, id).await? {
        return empty(conn, id, config).await;
    }
    config.validate()?;
    sqlx::query(
        "UPDATE search_indexes SET config = $2, generation = generation + 1, rescored_at = generation + 1, contents = contents # $3, built_to = 0,
                builds = builds + 1, replaces = true WHERE id = $1",
    )
    .bind(id)
    .bind(Json(config))
    .bind(rand::random::<i64>())
    .execute(conn)
    .await?;
    Ok(())
}

/// Deletes a locked index.
pub async fn delete(conn: &mut PgConnection, id: IndexId) -> sqlx::Result<()> {
    clear(&mut *conn, id).await?;
    sqlx::query("DELETE FROM search_indexes WHERE id = $1").bind(id).execute(conn).await.map(|_| ())
}

/// Whoever takes documents out at the same time has no lock of the index. So the entries go first, which waits for them, and then, in a later statement, what they
/// have left in their place.
async fn clear(conn: &mut PgConnection, id: IndexId) -> sqlx::Result<()> {
    sqlx::query("DELETE FROM search_index_entries WHERE index_id = $1").bind(id).execute(&mut *conn).await?;
    sqlx::query(
        "WITH d AS (DELETE FROM search_index_deltas WHERE index_id = $1),
              t AS (DELETE FROM search_term_tombstones WHERE index_id = $1), p AS (DELETE FROM search_term_postings WHERE index_id = $1)
         DELETE FROM search_term_stats WHERE index_id = $1",
    )
    .bind(id)
    .execute(conn)
    .await
    .map(|_| ())
}

/// Has a locked index of this configuration built from the first document on; what it holds stays until it is replaced or left out.
pub async fn rebuild(conn: &mut PgConnection, id: IndexId, config: &Config) -> Result<(), IndexError> {
    if number_anew(&mut *conn, id).await? {
        return empty(conn, id, config).await;
    }
    sqlx::query("UPDATE search_indexes SET built_to = 0, builds = builds + 1, replaces = true WHERE id = $1")
        .bind(id)
        .execute(conn)
        .await?;
    Ok(())
}

/// Keeps these usetypes, and no others, out of an index. A build takes out what the index holds of them, and adds what was kept out before. Nothing changes if it is so
/// already, which another process may have seen to.
pub async fn exclude(conn: &mut PgConnection, id: IndexId, excluded: &[String]) -> sqlx::Result<()> {
    sqlx::query(
        "UPDATE search_indexes i SET excluded = $2, builds = builds + 1, replaces = replaces AND built_to IS NOT NULL,
                built_to = CASE WHEN (capabilities ->> 'bm25')::boolean THEN 0 ELSE built_to END
          WHERE i.id = $1 AND NOT (i.excluded @> $2 AND i.excluded <@ $2)",
    )
    .bind(id)
    .bind(excluded)
    .execute(conn)
    .await
    .map(|_| ())
}

/// Has the build of an index `i` begin no later than at the first of the subtrees, by whose documents the index covers others now. A build that is
/// under way and replaces what the index holds still does.
macro_rules! look_at {
    ($subtrees:literal) => {
        concat!(
            "built_to = least(coalesce(i.built_to, 9223372036854775807),
                              (SELECT min(s.id) - 1 FROM (SELECT d.id FROM documents d WHERE d.id = ANY(",
            $subtrees,
            ") OR d.path && ",
            $subtrees,
            // Else the planner may look for the least id among all documents.
            " OFFSET 0) s)), builds = i.builds + 1, replaces = i.replaces AND i.built_to IS NOT NULL"
        )
    };
}

/// Has a locked index cover these subtrees, or no longer.
pub async fn cover(conn: &mut PgConnection, id: IndexId, subtrees: &[i64]) -> sqlx::Result<()> {
    sqlx::query(concat!("UPDATE search_indexes i SET ", look_at!("$2::bigint[]"), " WHERE i.id = $1"))
        .bind(id)
        .bind(subtrees)
        .persistent(false)
        .execute(conn)
        .await
        .map(|_| ())
}

/// Does the same to the indexes that covered a document with all under it, and do not cover it any more after its move, or the other
/// way round.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = from.id().0, parent.id = to.path().last()))]
pub async fn follow_move(conn: &mut PgConnection, from: &Place, to: &Place) -> sqlx::Result<()> {
    sqlx::query(concat!(
        "UPDATE search_indexes i SET ",
        look_at!("$3::bigint[]"),
        " FROM (SELECT index_id FROM search_index_members WHERE root_document_id = ANY($1 || $2)
                 GROUP BY index_id HAVING bool_or(root_document_id = ANY($1)) <> bool_or(root_document_id = ANY($2))) m
          WHERE i.id = m.index_id"
    ))
    .bind(from.path())
    .bind(to.path())
    .bind([from.id().0])
    .persistent(false)
    .execute(conn)
    .await
    .map(|_| ())
}

/// Does the same to the indexes that have one of these members, after what is under a document moved among its parts.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = document.id().0))]
pub async fn follow_parts(conn: &mut PgConnection, document: &Place, members: &[DocumentId]) -> sqlx::Result<()> {
    sqlx::query(concat!(
        "UPDATE search_indexes i SET ",
        look_at!("$2::bigint[]"),
        " WHERE i.id IN (SELECT index_id FROM search_index_members WHERE root_document_id = ANY($1))"
    ))
    .bind(members)
    .bind([document.id().0])
    .persistent(false)
    .execute(conn)
    .await
    .map(|_| ())
}

/// Keeps builds that are under way from going on until the transaction ends.
pub async fn hold_builds(conn: &mut PgConnection) -> sqlx::Result<()> {
    sqlx::query("SELECT FROM search_indexes WHERE built_to IS NOT NULL ORDER BY id FOR NO KEY UPDATE")
        .execute(conn)
        .await
        .map(|_| ())
}

/// Has the builds that are under way, and are held, look again at a document that they have passed and that their index lacks.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = document.id().0))]
pub async fn look_again(conn: &mut PgConnection, document: &Place) -> sqlx::Result<()> {
    sqlx::query(concat!(
        "UPDATE search_indexes i SET built_to = d.id - 1, builds = i.builds + 1 FROM documents d
          WHERE d.id = $1 AND i.built_to >= d.id AND ",
        takes!(),
        "   AND NOT EXISTS (SELECT FROM search_index_entries e WHERE e.index_id = i.id AND e.document_id = d.id)
            AND EXISTS (SELECT FROM search_index_entries e WHERE e.document_id = d.id)"
    ))
    .bind(document.id())
    .execute(conn)
    .await
    .map(|_| ())
}

/// Where the build of an index is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, sqlx_macros::FromRow)]
pub struct Building {
    /// Which one it is of those that were begun.
    pub build: i64,
    /// The last document that it has looked at.
    pub at: DocumentId,
    /// It also replaces what the index holds already.
    pub replaces: bool,
    /// The index has token vectors.
    pub has_tokens: bool,
}

macro_rules! build {
    () => {
        "SELECT builds AS build, built_to AS at, replaces, (capabilities ->> 'maxsim')::boolean AS has_tokens, id FROM search_indexes
          WHERE built_to IS NOT NULL"
    };
}

macro_rules! building {
    () => {
        concat!(build!(), " AND id = $1")
    };
}

/// The indexes that are still to be built, each with where its build is.
pub async fn unbuilt(conn: &mut PgConnection) -> sqlx::Result<Vec<(IndexId, Building)>> {
    #[derive(sqlx_macros::FromRow)]
    struct Unbuilt {
        id: IndexId,
        #[sqlx(flatten)]
        building: Building,
    }
    let rows: Vec<Unbuilt> = sqlx::query_as(concat!(build!(), " ORDER BY id")).fetch_all(conn).await?;
    Ok(rows.into_iter().map(|row| (row.id, row.building)).collect())
}

/// Where the build is; `None` if it is done or the index is gone. Nobody else builds or changes the index until the transaction ends.
pub async fn lock_build(conn: &mut PgConnection, id: IndexId) -> sqlx::Result<Option<Building>> {
    sqlx::query_as(concat!(building!(), " FOR NO KEY UPDATE")).bind(id).fetch_optional(conn).await
}

/// Where the build is, without a lock.
pub async fn building(conn: &mut PgConnection, id: IndexId) -> sqlx::Result<Option<Building>> {
    sqlx::query_as(building!()).bind(id).fetch_optional(conn).await
}

/// Says after which document the build goes on; with `None` it is done.
pub async fn set_built(conn: &mut PgConnection, id: IndexId, after: Option<DocumentId>) -> sqlx::Result<()> {
    sqlx::query("UPDATE search_indexes SET built_to = $2 WHERE id = $1")
        .bind(id)
        .bind(after)
        .execute(conn)
        .await
        .map(|_| ())
}

/// The documents after this one, by id: at most `limit`, and no more after their texts have this many bytes.
pub async fn documents_after(
    conn: &mut PgConnection,
    after: DocumentId,
    limit: i64,
    bytes: i64,
) -> sqlx::Result<Vec<DocumentId>> {
    sqlx::query_scalar(
        "SELECT id FROM (
             SELECT id, sum(size) OVER (ORDER BY id) - size AS before
               FROM (SELECT id, octet_length(content)::bigint AS size FROM documents WHERE id > $1 ORDER BY id LIMIT $2) d) d
          WHERE before < $3 ORDER BY id",
    )
    .bind(after)
    .bind(limit)
    .bind(bytes)
    .fetch_all(conn)
    .await
}

/// The subtrees that an index covers, after this one by id.
pub async fn members(
    conn: &mut PgConnection,
    id: IndexId,
    after: DocumentId,
    limit: u32,
) -> sqlx::Result<Vec<DocumentId>> {
    sqlx::query_scalar(
        "SELECT root_document_id FROM search_index_members WHERE index_id = $1 AND root_document_id > $2 ORDER BY root_document_id LIMIT $3",
    )
    .bind(id)
    .bind(after)
    .bind(i64::from(limit))
    .fetch_all(conn)
    .await
}

/// Those of these documents that exist. They are not deleted before the transaction ends. Call it before an index is locked, because a
/// deletion takes the locks in this order.
pub async fn lock_documents(conn: &mut PgConnection, ids: &[i64]) -> sqlx::Result<Vec<i64>> {
    sqlx::query_scalar("SELECT id FROM documents WHERE id = ANY($1) AND guard <> -1 ORDER BY id FOR KEY SHARE")
        .bind(ids)
        .fetch_all(conn)
        .await
}

/// Adds the subtrees of these documents, which are locked, to what an index covers; from here on it covers its members alone.
pub async fn add_members(conn: &mut PgConnection, id: IndexId, members: &[i64]) -> sqlx::Result<()> {
    sqlx::query("UPDATE search_indexes SET restricted = true WHERE id = $1").bind(id).execute(&mut *conn).await?;
    sqlx::query(
        "INSERT INTO search_index_members (index_id, root_document_id) SELECT $1, unnest($2::bigint[]) ON CONFLICT DO NOTHING",
    )
    .bind(id)
    .bind(members)
    .execute(conn)
    .await
    .map(|_| ())
}

/// What came of taking a subtree away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removed {
    Gone,
    /// It is none of the index's.
    Unknown,
    /// It is the only one, without which the index would cover nothing.
    Last,
}

/// Takes a subtree away from a locked index.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = member.0))]
pub async fn remove_member(conn: &mut PgConnection, id: IndexId, member: DocumentId) -> sqlx::Result<Removed> {
    let (there, count): (bool, i64) = sqlx::query_as(
        "SELECT coalesce(bool_or(root_document_id = $2), false), count(*) FROM search_index_members WHERE index_id = $1",
    )
    .bind(id)
    .bind(member)
    .fetch_one(&mut *conn)
    .await?;
    if !there || count < 2 {
        return Ok(if there { Removed::Last } else { Removed::Unknown });
    }
    sqlx::query("DELETE FROM search_index_members WHERE index_id = $1 AND root_document_id = $2")
        .bind(id)
        .bind(member)
        .execute(conn)
        .await?;
    Ok(Removed::Gone)
}
