//! Puts the vectors of documents in parts, or back in one table, and under indexes of another kind, while services and workers run.
//!
//! The next table is filled beside the present one, while a trigger does to it whatever is done to that one; then the two change names. So at
//! each moment there is one whole table, and what was killed goes on from what the catalog says.
use super::{
    advisory::AdvisoryLock,
    away::LOCK_NOT_AVAILABLE,
    model_moves,
    scope::{Readable, visible},
    search::Eligible,
    transaction, upkeep,
    vectors::{self, Index, LOOKED_AT, Layout, Stored, index_name},
};
use pgvector::HalfVector;
use sqlx::{AssertSqlSafe, Connection, PgConnection, PgExecutor, PgPool};
use std::{borrow::Cow, collections::BTreeMap, time::Duration};
use svc_ids::DocumentId;

/// The table that searches read.
const PRESENT: &str = "document_vectors";
/// The table that is being filled.
const NEXT: &str = "document_vectors_next";

/// Each result of an exact search that an index finds counts towards its recall, up to so many of a search.
const NEAREST: usize = 10;
/// Scores that differ by less are the same.
const EQUAL: f64 = 1e-6;

/// Whoever was killed is gone from the server within a second or two.
const TRIES: usize = 20;
const BETWEEN_TRIES: Duration = Duration::from_millis(500);
/// While something like an export holds the table for long, searches must have it most of the time.
const LONGEST_PAUSE: Duration = Duration::from_secs(8);

/// The error of an exchange that would lose an index.
const LACKS_INDEX: &str = "SV002";

/// The HNSW indexes that svc made, as a condition on the row of their table in `pg_index`.
macro_rules! made_by_svc {
    () => {
        "FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am a ON a.oid = c.relam
          WHERE a.amname = 'hnsw' AND i.indisvalid AND c.relname ~ '^document_vectors_(bits_)?[0-9]+_[0-9a-f]{12}$'"
    };
}

/// What is to become of the vectors.
#[derive(Clone, Copy, Debug)]
pub struct Wanted {
    /// In how many parts they are to be; 1 for one table.
    pub parts: usize,
    pub index: Index,
    /// How many vectors are copied in one transaction.
    pub batch: i64,
    /// How many documents are searched for to measure the recall of an index of bits.
    pub sample: i32,
    /// An index of bits with less recall is given up.
    pub least_recall: f64,
}

/// What has just begun or was done.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// So many vectors of about so many are in the next table.
    Copied { vectors: i64, of: f64 },
    /// This index is being built; it takes longest.
    Building { index: String },
    /// The next table is the present one.
    Exchanged { parts: usize },
    /// An index of bits was held against exact searches.
    Measured { model: String, searches: usize, recall: f64 },
    /// This index is no longer needed, and is gone.
    Dropped { index: String },
}

/// Why the vectors are not as they were to become. What was done stays, and the next call goes on from there.
#[derive(Debug, thiserror::Error)]
pub enum ReindexError {
    #[error(
        "somebody else changes the indexes of the vectors, such as another svc reindex or a worker that builds a missing one: wait for the end of that"
    )]
    Busy,
    #[error(
        "the index of bits for {model} finds {:.1} % of what exact searches find, less than the {:.1} % that are demanded: the index of halves stays. Set SVC_VECTOR_INDEX=halfvec, or accept less with --least-recall",
        .recall * 100.0,
        .least * 100.0
    )]
    LowRecall { model: String, recall: f64, least: f64 },
    #[error(transparent)]
    Sql(#[from] sqlx::Error),
}

/// Brings the vectors into the form that is wanted; does nothing if they are in it.
pub async fn vectors(pool: &PgPool, wanted: &Wanted, mut tell: impl FnMut(Step)) -> Result<(), ReindexError> {
    let holder = alone(pool).await?;
    let done = bring(pool, wanted, &mut tell).await;
    // With the connection its lock goes.
    let closed = holder.close().await;
    done?;
    Ok(closed?)
}

/// Keeps everybody else from changing the indexes of vectors while the connection lasts.
pub async fn alone(pool: &PgPool) -> Result<PgConnection, ReindexError> {
    let mut conn = PgConnection::connect_with(&pool.connect_options()).await?;
    for _ in 0..TRIES {
        let is_alone: bool = sqlx::query_scalar("SELECT pg_try_advisory_lock($1)")
            .bind(AdvisoryLock::Reindex.key())
            .fetch_one(&mut conn)
            .await?;
        if is_alone {
            return Ok(conn);
        }
        tokio::time::sleep(BETWEEN_TRIES).await;
    }
    Err(ReindexError::Busy)
}

async fn bring(pool: &PgPool, wanted: &Wanted, tell: &mut impl FnMut(Step)) -> Result<(), ReindexError> {
    drop_old(pool).await?;
    let parts = if wanted.parts > 1 { i64::try_from(wanted.parts).unwrap_or(i64::MAX) } else { 0 };
    let (present, next): (i64, Option<i64>) = sqlx::query_as(
        "SELECT (SELECT count(*) FROM pg_inherits h WHERE h.inhparent = to_regclass($1)),
                CASE WHEN to_regclass($2) IS NOT NULL THEN (SELECT count(*) FROM pg_inherits h WHERE h.inhparent = to_regclass($2)) END",
    )
    .bind(PRESENT)
    .bind(NEXT)
    .fetch_one(pool)
    .await?;
    let is_begun = next == Some(parts) && present != parts;
    if next.is_some() && !is_begun {
        patiently(pool, "DROP TRIGGER mirror_vector ON document_vectors; DROP TABLE document_vectors_next").await?;
    }
    if present != parts {
        if !is_begun {
            patiently(pool, &creation(parts)).await?;
        }
        copy(pool, wanted.batch, tell).await?;
        // From the first search on the planner knows the table, and a count reads no row.
        sqlx::raw_sql("VACUUM (ANALYZE) document_vectors_next").execute(pool).await?;
        loop {
            for (name, rest) in indexes(pool).await? {
                build(pool, NEXT, &name, &rest, tell).await?;
            }
            if exchange(pool).await? {
                break;
            }
        }
        tell(Step::Exchanged { parts: wanted.parts });
        drop_old(pool).await?;
    }
    // Who asks for a form of the indexes gets them for few vectors too.
    let lacking = without_index(&mut *pool.acquire().await?, 0).await?;
    for (model, width) in lacking {
        build_of(pool, &model, usize::try_from(width).unwrap_or_default(), tell).await?;
    }
    for (name, rest) in indexes(pool).await? {
        rebuild(pool, wanted, &name, &rest, tell).await?;
    }
    for name in half_built(pool).await? {
        drop_index(pool, &name).await?;
        tell(Step::Dropped { index: name });
    }
    Ok(())
}

/// The statements that make the next table, and the trigger that does to it what is done to the present one.
fn creation(parts: i64) -> String {
    let (how, rest) = if parts > 0 {
        let part = |n: i64| {
            format!(
                "CREATE TABLE document_vectors_{parts}_{n} PARTITION OF document_vectors_next FOR VALUES WITH (MODULUS {parts}, REMAINDER {n});"
            )
        };
        ("PARTITION BY HASH (root_id)", (0..parts).map(part).collect())
    } else {
        ("", "ALTER TABLE document_vectors_next ALTER COLUMN root_id SET DEFAULT 0;".to_owned())
    };
    format!(
        "CREATE TABLE document_vectors_next (LIKE document_vectors INCLUDING STORAGE INCLUDING CONSTRAINTS) {how}; {rest}
         ALTER TABLE document_vectors_next ADD CONSTRAINT document_vectors_next_pkey PRIMARY KEY (document_id, embed_model, root_id),
               ADD CONSTRAINT document_vectors_document_id_fkey FOREIGN KEY (document_id) REFERENCES documents (id) ON DELETE CASCADE;
         CREATE INDEX document_vectors_next_embed_model ON document_vectors_next (embed_model);
         CREATE TRIGGER mirror_vector AFTER INSERT OR UPDATE OR DELETE ON document_vectors FOR EACH ROW EXECUTE FUNCTION mirror_vector()"
    )
}

/// Runs statements as one transaction that waits for no lock for long: whoever waits for a whole table has everybody wait behind it.
async fn patiently(pool: &PgPool, statements: &str) -> sqlx::Result<()> {
    let mut pause = BETWEEN_TRIES;
    loop {
        let mut tx = transaction::begin(pool).await?;
        let bounded = format!("SET LOCAL lock_timeout = '300ms'; {statements}");
        match sqlx::raw_sql(AssertSqlSafe(bounded)).execute(&mut *tx).await {
            Ok(_) => return tx.commit().await,
            Err(error) if is_in_the_way(&error) => tx.rollback().await?,
            Err(error) => return Err(error),
        }
        tokio::time::sleep(pause).await;
        pause = (2 * pause).min(LONGEST_PAUSE);
    }
}

/// Whether somebody else held a lock for too long. We give up before the server looks for circles, so that nobody else is made to.
fn is_in_the_way(error: &sqlx::Error) -> bool {
    matches!(code_of(error).as_deref(), Some(LOCK_NOT_AVAILABLE | "40P01"))
}

fn code_of(error: &sqlx::Error) -> Option<Cow<'_, str>> {
    error.as_database_error().and_then(|error| error.code())
}

/// Fills the next table with what it lacks.
async fn copy(pool: &PgPool, batch: i64, tell: &mut impl FnMut(Step)) -> sqlx::Result<()> {
    let mut conn = pool.acquire().await?;
    let of = vectors::rows(&mut conn, PRESENT).await?;
    drop(conn);
    let (mut after, mut vectors, mut had) = (0, 0, 0);
    loop {
        let (lacked, last) = match copy_after(pool, after, batch).await {
            Err(error) if is_in_the_way(&error) => {
                tokio::time::sleep(BETWEEN_TRIES).await;
                continue;
            }
            copied => copied?,
        };
        vectors += lacked;
        if lacked > 0 {
            tell(Step::Copied { vectors, of });
        }
        match last {
            Some(last) => after = last,
            // A walk from the beginning found nothing more: the trigger does the rest.
            None if vectors == had => return Ok(()),
            None => (after, had) = (0, vectors),
        }
    }
}

/// Looks at so many vectors by their ids, and copies those that the next table lacks. Returns how many these were, and the last that was looked
/// at. Nobody changes these rows meanwhile, and nobody moves a document to another root; who wants to waits for no more than one batch. The rows
/// of documents are locked first, as by whoever deletes them, so that nobody waits in a circle.
async fn copy_after(pool: &PgPool, after: i64, batch: i64) -> sqlx::Result<(i64, Option<i64>)> {
    let mut tx = transaction::begin_creating(pool).await?;
    // Nothing is known of the next table yet, and a plan that read one of the tables whole would do so for each batch.
    sqlx::raw_sql(
        "SET LOCAL lock_timeout = '500ms'; SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL enable_hashjoin = off;
         SET LOCAL enable_mergejoin = off; SET LOCAL enable_sort = off",
    )
    .execute(&mut *tx)
    .await?;
    let copied = sqlx::query_as(
        "WITH looked_at AS MATERIALIZED (SELECT document_id FROM document_vectors WHERE document_id > $1 ORDER BY document_id LIMIT $2),
         kept AS MATERIALIZED (
             SELECT d.id FROM documents d
              WHERE d.id = ANY (ARRAY(SELECT v.document_id FROM looked_at l JOIN document_vectors v ON v.document_id = l.document_id
                                       WHERE (SELECT true FROM document_vectors_next n
                                               WHERE n.document_id = v.document_id AND n.embed_model = v.embed_model LIMIT 1) IS NULL))
              ORDER BY d.id FOR KEY SHARE OF d),
         lacking AS (
             SELECT v.document_id, v.embed_model, v.embed, v.weight FROM document_vectors v
              WHERE v.document_id = ANY (ARRAY(SELECT id FROM kept)) ORDER BY v.document_id FOR SHARE OF v),
         copied AS (
             INSERT INTO document_vectors_next (document_id, embed_model, embed, weight, root_id)
             SELECT document_id, embed_model, embed, weight, vector_root(to_regclass('document_vectors_next'), document_id) FROM lacking
             ON CONFLICT (document_id, embed_model, root_id) DO NOTHING)
         SELECT (SELECT count(*) FROM lacking), (SELECT max(document_id) FROM looked_at)",
    )
    .bind(after)
    .bind(batch)
    .persistent(false)
    .fetch_one(&mut *tx)
    .await?;
    tx.commit().await?;
    Ok(copied)
}

/// The HNSW indexes of the present table that svc made, each with what follows the table's name in its definition.
async fn indexes(connection: impl PgExecutor<'_>) -> sqlx::Result<BTreeMap<String, String>> {
    let found: Vec<(String, String)> = sqlx::query_as(concat!(
        "SELECT c.relname::text, substring(pg_get_indexdef(c.oid) FROM ' USING .*') ",
        made_by_svc!(),
        " AND i.indrelid = to_regclass($1)"
    ))
    .bind(PRESENT)
    .fetch_all(connection)
    .await?;
    Ok(found.into_iter().collect())
}

/// What is left of indexes whose building was stopped and that nobody wants any more: each write would go to them too.
async fn half_built(connection: impl PgExecutor<'_>) -> sqlx::Result<Vec<String>> {
    sqlx::query_scalar(
        "SELECT c.relname::text FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am a ON a.oid = c.relam
          WHERE a.amname = 'hnsw' AND c.relname ~ '^document_vectors_([0-9]+_[0-9]+_)?(bits_)?[0-9]+_[0-9a-f]{12}$'
            AND CASE WHEN i.indrelid = to_regclass($1) THEN NOT i.indisvalid
                     ELSE i.indrelid IN (SELECT h.inhrelid FROM pg_inherits h WHERE h.inhparent = to_regclass($1))
                          AND NOT EXISTS (SELECT FROM pg_inherits p WHERE p.inhrelid = i.indexrelid) END
          ORDER BY 1",
    )
    .bind(PRESENT)
    .fetch_all(connection)
    .await
}

/// Builds an index of a table while others write to it, part by part. `name` is the one that it has on the present table. What a kill left half
/// built is built anew.
async fn build(pool: &PgPool, table: &str, name: &str, rest: &str, tell: &mut impl FnMut(Step)) -> sqlx::Result<()> {
    let whole = if table == NEXT { format!("{name}_next") } else { name.to_owned() };
    let parts: Vec<String> = sqlx::query_scalar(
        "SELECT c.relname::text FROM pg_inherits h JOIN pg_class c ON c.oid = h.inhrelid WHERE h.inhparent = to_regclass($1) ORDER BY c.oid",
    )
    .bind(table)
    .fetch_all(pool)
    .await?;
    let places: Vec<(&str, String)> = match parts.as_slice() {
        [] => vec![(table, whole.clone())],
        parts => parts.iter().map(|part| (part.as_str(), name.replacen(PRESENT, part, 1))).collect(),
    };
    for (place, index) in places {
        let is_valid: Option<bool> =
            sqlx::query_scalar("SELECT i.indisvalid FROM pg_index i WHERE i.indexrelid = to_regclass($1)")
                .bind(&index)
                .fetch_optional(pool)
                .await?;
        if is_valid == Some(true) {
            continue;
        }
        if is_valid == Some(false) {
            drop_index(pool, &index).await?;
        }
        tell(Step::Building { index: index.clone() });
        let statement = format!("CREATE INDEX CONCURRENTLY {index} ON {place}{rest}");
        sqlx::raw_sql(AssertSqlSafe(statement)).execute(pool).await?;
    }
    if !parts.is_empty() {
        // It takes the indexes of the parts for its own.
        patiently(pool, &format!("CREATE INDEX IF NOT EXISTS {whole} ON {table}{rest}")).await?;
    }
    Ok(())
}

async fn drop_index(pool: &PgPool, name: &str) -> sqlx::Result<()> {
    patiently(pool, &format!("DROP INDEX IF EXISTS {name}")).await
}

/// The end of the names of a model's indexes.
fn hash_of(model: &str) -> String {
    let name = index_name(PRESENT, Index::Halves, model, 0);
    name.rsplit('_').next().unwrap_or_default().to_owned()
}

/// Whether the vectors of a model have an index.
pub async fn has_index(conn: &mut PgConnection, model: &str) -> sqlx::Result<bool> {
    sqlx::query_scalar(concat!(
        "SELECT EXISTS (SELECT ",
        made_by_svc!(),
        " AND i.indrelid = to_regclass($1) AND right(c.relname, 12) = $2)"
    ))
    .bind(PRESENT)
    .bind(hash_of(model))
    .fetch_one(conn)
    .await
}

/// The models that have more than so many vectors and no index of them, each with the width of its vectors. While vectors move from one model to
/// another, only the one that serves: the move makes the index that it needs besides, and drops others.
pub async fn without_index(conn: &mut PgConnection, few: i64) -> sqlx::Result<Vec<(String, i32)>> {
    // If this looked for a model's vectors by equality, the planner might read the whole table, whose first million rows may be of another model.
    sqlx::query_as(concat!(
        "WITH RECURSIVE models AS (
             (SELECT embed_model FROM document_vectors ORDER BY embed_model LIMIT 1)
             UNION ALL
             SELECT (SELECT v.embed_model FROM document_vectors v WHERE v.embed_model > m.embed_model ORDER BY v.embed_model LIMIT 1)
               FROM models m WHERE m.embed_model IS NOT NULL),
         lacking AS MATERIALIZED (
             SELECT m.embed_model FROM models m
              WHERE m.embed_model IS NOT NULL
                AND NOT EXISTS (SELECT FROM model_moves w WHERE w.state NOT IN ('done', 'cancelled') AND w.serving <> m.embed_model)
                AND NOT EXISTS (SELECT ",
        made_by_svc!(),
        " AND i.indrelid = to_regclass($1) AND right(c.relname, 12) = left(encode(sha256(convert_to(m.embed_model, 'UTF8')), 'hex'), 12)))
         SELECT l.embed_model,
                (SELECT vector_dims(v.embed) FROM document_vectors v WHERE v.embed_model >= l.embed_model ORDER BY v.embed_model LIMIT 1)
           FROM lacking l
          WHERE $2 < (SELECT count(*) FROM (SELECT v.embed_model FROM document_vectors v WHERE v.embed_model >= l.embed_model
                                              ORDER BY v.embed_model LIMIT $2 + 1) first WHERE first.embed_model = l.embed_model)"
    ))
    .bind(PRESENT)
    .bind(few)
    .fetch_all(conn)
    .await
}

/// Builds the index of halves of a model's vectors.
async fn build_of(pool: &PgPool, model: &str, width: usize, tell: &mut impl FnMut(Step)) -> sqlx::Result<()> {
    let quoted: String = sqlx::query_scalar("SELECT quote_literal($1)").bind(model).fetch_one(pool).await?;
    let rest = vectors::definition(Index::Halves, width, &format!(" WHERE embed_model = {quoted}"));
    build(pool, PRESENT, &index_name(PRESENT, Index::Halves, model, width), &rest, tell).await
}

/// Makes the index of a model's vectors if they have none, while others write to the table, which is large by now. If somebody else changes
/// indexes, a later call does; says whether nobody did.
pub async fn add_index(pool: &PgPool, model: &str, width: usize) -> sqlx::Result<bool> {
    add(pool, model, width, false).await
}

/// The same for a move to the model. Nobody would ever drop an index that comes after the move was called off, so then none is made.
pub async fn add_index_of_move(pool: &PgPool, model: &str, width: usize) -> sqlx::Result<bool> {
    add(pool, model, width, true).await
}

async fn add(pool: &PgPool, model: &str, width: usize, is_of_move: bool) -> sqlx::Result<bool> {
    let mut holder = PgConnection::connect_with(&pool.connect_options()).await?;
    let is_alone: bool = sqlx::query_scalar("SELECT pg_try_advisory_lock($1)")
        .bind(AdvisoryLock::Reindex.key())
        .fetch_one(&mut holder)
        .await?;
    // Whoever held the lock may have made it, or have ended the move.
    let is_wanted = is_alone
        && !has_index(&mut holder, model).await?
        && (!is_of_move || model_moves::serves(&mut holder, model).await?.is_some());
    let built = if is_wanted { build_of(pool, model, width, &mut |_: Step| ()).await } else { Ok(()) };
    // With the connection its lock goes.
    let closed = holder.close().await;
    built?;
    closed.map(|()| is_alone)
}

/// How often one process of the fleet tries to drop indexes while somebody holds the table.
const DROPPING: Duration = Duration::from_secs(5);

/// Drops the indexes of the vectors of other models than this one; says whether none is left. If somebody else changes indexes, who may be making
/// one, or holds the table, a later call does.
pub async fn drop_indexes_of_others(pool: &PgPool, model: &str) -> sqlx::Result<bool> {
    let own = hash_of(model);
    let mut conn = pool.acquire().await?;
    let is_known = indexes(&mut *conn).await?.into_keys().any(|name| !name.ends_with(&own));
    // Each try keeps searches waiting for as long as it waits itself.
    if is_known && !upkeep::take_turn(&mut conn, "drop_vector_indexes", DROPPING).await? {
        return Ok(false);
    }
    drop(conn);
    let mut tx = transaction::begin(pool).await?;
    let is_alone: bool = sqlx::query_scalar("SELECT pg_try_advisory_xact_lock($1)")
        .bind(AdvisoryLock::Reindex.key())
        .fetch_one(&mut *tx)
        .await?;
    if !is_alone {
        return tx.rollback().await.map(|()| false);
    }
    let whole = indexes(&mut *tx).await?.into_keys();
    let others = whole.chain(half_built(&mut *tx).await?).filter(|name| !name.ends_with(&own));
    let drops: String = others.map(|name| format!("DROP INDEX IF EXISTS {name};")).collect();
    // After a second an automatic vacuum gives way to who waits for it.
    let bounded = format!("SET LOCAL lock_timeout = '1500ms'; {drops}");
    match sqlx::raw_sql(AssertSqlSafe(bounded)).execute(&mut *tx).await {
        Ok(_) => tx.commit().await.map(|()| true),
        Err(error) if is_in_the_way(&error) => tx.rollback().await.map(|()| false),
        Err(error) => Err(error),
    }
}

/// Lets the next table be the present one, with the names of its indexes. Returns false if somebody has made an index on the present one
/// meanwhile that the next one lacks.
async fn exchange(pool: &PgPool) -> sqlx::Result<bool> {
    let renamed: Vec<String> = sqlx::query_scalar(
        "SELECT format('ALTER INDEX %I RENAME TO %I;', c.relname, c.relname || '_old')
           FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE i.indrelid = to_regclass($1)",
    )
    .bind(PRESENT)
    .fetch_all(pool)
    .await?;
    let named: Vec<String> = sqlx::query_scalar(
        "SELECT format('ALTER INDEX %I RENAME TO %I;', c.relname, replace(c.relname, '_next', ''))
           FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid WHERE i.indrelid = to_regclass($1)",
    )
    .bind(NEXT)
    .fetch_all(pool)
    .await?;
    let (renamed, named) = (renamed.concat(), named.concat());
    let made = made_by_svc!();
    let statements = format!(
        "LOCK TABLE document_vectors IN ACCESS EXCLUSIVE MODE;
         DO $$ BEGIN
             IF EXISTS (SELECT c.relname {made} AND i.indrelid = to_regclass('{PRESENT}') AND to_regclass(c.relname || '_next') IS NULL) THEN
                 RAISE EXCEPTION 'the table of vectors has an index that the next one lacks' USING ERRCODE = '{LACKS_INDEX}';
             END IF;
         END $$;
         DROP TRIGGER mirror_vector ON document_vectors; {renamed}
         ALTER TABLE document_vectors RENAME TO document_vectors_old; {named}
         ALTER TABLE document_vectors_next RENAME TO document_vectors"
    );
    match patiently(pool, &statements).await {
        Err(error) if code_of(&error).as_deref() == Some(LACKS_INDEX) => Ok(false),
        exchanged => exchanged.map(|()| true),
    }
}

/// Drops the table that another one took the place of.
async fn drop_old(pool: &PgPool) -> sqlx::Result<()> {
    patiently(pool, "DROP TABLE IF EXISTS document_vectors_old").await
}

/// Puts an index of the wanted kind in the place of this one. Searches use an index of bits once it is the only one.
async fn rebuild(
    pool: &PgPool,
    wanted: &Wanted,
    name: &str,
    rest: &str,
    tell: &mut impl FnMut(Step),
) -> Result<(), ReindexError> {
    let model_and_width = name.trim_start_matches("document_vectors_");
    let (kind, of) = match model_and_width.strip_prefix("bits_") {
        Some(of) => (Index::Bits, of),
        None => (Index::Halves, model_and_width),
    };
    if kind == wanted.index {
        return Ok(());
    }
    let Some((width, _)) = of.split_once('_') else { return Ok(()) };
    let condition = rest.find(" WHERE ").map_or("", |at| &rest[at..]);
    let other = match wanted.index {
        Index::Halves => format!("document_vectors_{of}"),
        Index::Bits => format!("document_vectors_bits_{of}"),
    };
    let rest = vectors::definition(wanted.index, width, condition);
    build(pool, PRESENT, &other, &rest, tell).await?;
    if wanted.index == Index::Bits {
        let of_model = format!("SELECT embed_model FROM document_vectors{condition} LIMIT 1");
        let model: Option<String> = sqlx::query_scalar(AssertSqlSafe(of_model)).fetch_optional(pool).await?;
        if let Some(model) = model {
            let (searches, recall) = recall(pool, wanted.sample, &model, &other).await?;
            tell(Step::Measured { model: model.clone(), searches, recall });
            if recall < wanted.least_recall {
                drop_index(pool, &other).await?;
                return Err(ReindexError::LowRecall { model, recall, least: wanted.least_recall });
            }
        }
    }
    drop_index(pool, name).await?;
    tell(Step::Dropped { index: name.to_owned() });
    Ok(())
}

/// How much of what exact searches find an index of bits finds, by searches for what is like documents of the store; and how many these were.
async fn recall(pool: &PgPool, sample: i32, model: &str, index: &str) -> sqlx::Result<(usize, f64)> {
    let eligible = Eligible { scope: Readable::everything(), ..Eligible::default() };
    let mut conn = pool.acquire().await?;
    let bits = vectors::rows(&mut conn, index).await?;
    let parts = vectors::parts(&mut conn).await?;
    let queries: Vec<(DocumentId, HalfVector)> = sqlx::query_as(
        "SELECT DISTINCT ON (v.document_id) v.document_id, v.embed
           FROM (SELECT random() * (SELECT max(document_id) FROM document_vectors) AS at FROM generate_series(1, $2::int)) r
          CROSS JOIN LATERAL (
                SELECT n.document_id, n.embed FROM document_vectors n
                 WHERE n.embed_model = $1 AND n.document_id >= floor(r.at)::bigint ORDER BY n.document_id LIMIT 1) v",
    )
    .bind(model)
    .bind(sample)
    .fetch_all(&mut *conn)
    .await?;
    drop(conn);
    let layout = Layout { parts: if parts > 1 { parts as i64 } else { 0 }, bits: Some(bits), ..Layout::default() };
    let (mut found, mut wanted) = (0, 0);
    for (id, vector) in &queries {
        let query = Stored { model, vector: vector.clone() };
        let mut tx = transaction::begin_search(pool).await?;
        let exact = nearest(&mut tx, &query, *id).await?;
        // The document itself is the nearest to its vector, and says nothing.
        let limit = NEAREST as i64 + 1;
        let near = vectors::approximate(&mut tx, &eligible, &query, limit, 4 * limit, LOOKED_AT, &layout).await?;
        tx.commit().await?;
        let Some(least) = exact.last() else { continue };
        let others = near.iter().filter(|(other, _)| other != id).take(exact.len());
        found += others.filter(|(_, score)| *score >= least - EQUAL).count();
        wanted += exact.len();
    }
    Ok((queries.len(), if wanted == 0 { 1.0 } else { found as f64 / wanted as f64 }))
}

/// The scores of the documents whose vectors are nearest to that of a document, found by comparing all.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = id.0))]
async fn nearest(conn: &mut PgConnection, query: &Stored<'_>, id: DocumentId) -> sqlx::Result<Vec<f64>> {
    sqlx::query_scalar(concat!(
        "SELECT 1 - n.distance FROM (
             SELECT v.embed <=> $2 AS distance FROM document_vectors v JOIN documents d ON d.id = v.document_id
              WHERE v.embed_model = $1 AND d.settled = 'settled' AND v.document_id <> $3 AND ",
        visible!(),
        " ORDER BY 1 LIMIT $4) n ORDER BY 1 DESC"
    ))
    .bind(query.model)
    .bind(query.vector.clone())
    .bind(id)
    .bind(NEAREST as i64)
    .fetch_all(conn)
    .await
}
