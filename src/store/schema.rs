//! The schema of a database: the numbered files of `migrations/`, and then its functions and views, one file each.
//!
//! Two ledgers say what a database has: sqlx's for the numbered files, and `schema_functions` for the rest. They alone
//! decide whether a program and a database fit.
use super::{advisory::AdvisoryLock, database::DatabaseError, transaction};
use sha2::{Digest, Sha256};
use sqlx::{AssertSqlSafe, PgConnection, PgPool, migrate::Migrator};
use std::collections::HashMap;

/// The numbered files of `migrations/`, in sqlx's ledger.
pub static MIGRATIONS: Migrator = sqlx_macros::migrate!();

/// The functions and views, in the order in which they can be made.
const SOURCES: &[Source] = include!(concat!(env!("OUT_DIR"), "/schema_sources.rs"));

/// A file that makes a function or a view, of the file's name.
#[derive(Debug)]
struct Source {
    name: &'static str,
    sql: &'static str,
}

impl Source {
    fn hash(&self) -> String {
        hex::encode(Sha256::digest(self.sql))
    }
}

/// A row of the ledger of functions and views.
#[derive(Debug, sqlx_macros::FromRow)]
struct Made {
    name: String,
    hash: String,
    migration: i64,
    version: String,
}

/// A database's schema beside the one that this program was built for.
#[derive(Debug, Default)]
pub struct Schema {
    /// The migrations that the database lacks, oldest first, as (number, name).
    pub missing: Vec<(i64, String)>,
    /// The functions and views that the database lacks or has in another form, and those that no file makes any more.
    pub stale: Vec<String>,
    /// The newest migration that this program does not know.
    newer: Option<(i64, String)>,
    /// A function or view that a later version of svc made, as (name, version).
    newer_function: Option<(String, String)>,
    /// A migration whose file was different when it was applied.
    changed: Option<(i64, String)>,
}

impl Schema {
    /// Refuses a schema that is behind or ahead of this program, or that another program made.
    pub fn check(&self) -> Result<(), DatabaseError> {
        if let Some((version, name)) = self.changed.clone() {
            return Err(DatabaseError::Foreign { version, name });
        }
        if let Some((theirs, name)) = self.newer.clone() {
            return Err(DatabaseError::Ahead { theirs, name, ours: newest() });
        }
        if let Some((name, theirs)) = self.newer_function.clone() {
            return Err(DatabaseError::AheadInFunctions { theirs, name });
        }
        match (self.missing.len(), self.stale.len()) {
            (0, 0) => Ok(()),
            (migrations, functions) => Err(DatabaseError::Behind { migrations, functions }),
        }
    }
}

/// The number of the last numbered file.
fn newest() -> i64 {
    MIGRATIONS.iter().map(|migration| migration.version).max().unwrap_or(0)
}

/// Reads the ledgers, and changes nothing.
pub async fn read(pool: &PgPool) -> Result<Schema, DatabaseError> {
    let mut conn = pool.acquire().await.map_err(DatabaseError::Unreachable)?;
    let (has_ledger, has_functions): (bool, bool) = sqlx::query_as(
        "SELECT to_regclass('_sqlx_migrations') IS NOT NULL, to_regclass('schema_functions') IS NOT NULL",
    )
    .fetch_one(&mut *conn)
    .await
    .map_err(DatabaseError::Unreachable)?;
    let applied: Vec<(i64, String, Vec<u8>)> = match has_ledger {
        true => {
            let ledger =
                "SELECT version, description, checksum FROM _sqlx_migrations WHERE success ORDER BY version DESC";
            sqlx::query_as(ledger).fetch_all(&mut *conn).await?
        }
        false => Vec::new(),
    };
    let made = if has_functions { made(&mut conn).await? } else { Vec::new() };
    let of = |version: i64| MIGRATIONS.iter().find(|m| m.version == version);
    let missing = MIGRATIONS
        .iter()
        .filter(|m| !applied.iter().any(|(version, ..)| *version == m.version))
        .map(|m| (m.version, m.description.to_string()));
    let changed = applied.iter().find(|(version, _, sum)| of(*version).is_some_and(|m| *m.checksum != **sum));
    Ok(Schema {
        missing: missing.collect(),
        stale: stale(&made),
        newer_function: newer_function(&made),
        changed: changed.map(|(version, name, _)| (*version, name.clone())),
        newer: applied
            .into_iter()
            .find(|(version, ..)| of(*version).is_none())
            .map(|(version, name, _)| (version, name)),
    })
}

async fn made(conn: &mut PgConnection) -> sqlx::Result<Vec<Made>> {
    sqlx::query_as("SELECT name, hash, migration, version FROM schema_functions").fetch_all(conn).await
}

/// What must be made, made again or dropped.
fn stale(made: &[Made]) -> Vec<String> {
    let known: HashMap<&str, &Made> = made.iter().map(|row| (row.name.as_str(), row)).collect();
    let due = |source: &&Source| {
        known.get(source.name).is_none_or(|row| row.hash != source.hash() || row.migration != newest())
    };
    let dropped = made.iter().filter(|row| SOURCES.iter().all(|source| source.name != row.name));
    SOURCES.iter().filter(due).map(|source| source.name.to_owned()).chain(dropped.map(|row| row.name.clone())).collect()
}

/// What a later version of svc made in a form that this version does not know.
fn newer_function(made: &[Made]) -> Option<(String, String)> {
    let is_known = |row: &Made| SOURCES.iter().any(|source| source.name == row.name && source.hash() == row.hash);
    let newer = made.iter().find(|row| parts(&row.version) > parts(env!("CARGO_PKG_VERSION")) && !is_known(row))?;
    Some((newer.name.clone(), newer.version.clone()))
}

/// The numbers of a version, which are ordered as versions are.
fn parts(version: &str) -> Vec<u64> {
    let release = version.split(['-', '+']).next().unwrap_or_default();
    release.split('.').map(|part| part.parse().unwrap_or(u64::MAX)).collect()
}

/// Applies what is missing, under sqlx's advisory lock, and then replaces what is stale. A complete schema is only
/// read.
pub async fn migrate(pool: &PgPool) -> Result<(), DatabaseError> {
    let found = read(pool).await?;
    match found.check() {
        Err(DatabaseError::Behind { .. }) => {
            if !found.missing.is_empty() {
                MIGRATIONS.run(pool).await?;
            }
            replace(pool).await
        }
        other => other,
    }
}

/// Makes the stale functions and views in one transaction, so that other programs see all of them or none.
async fn replace(pool: &PgPool) -> Result<(), DatabaseError> {
    let mut tx = transaction::begin(pool).await?;
    sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(AdvisoryLock::Schema.key()).execute(&mut *tx).await?;
    // Bodies name functions that come later. If tasks hold the tables of the triggers for longer, the next start tries
    // again.
    sqlx::raw_sql("SET LOCAL check_function_bodies = off; SET LOCAL lock_timeout = '5s'").execute(&mut *tx).await?;
    let stale = stale(&made(&mut tx).await?);
    for source in SOURCES.iter().filter(|source| stale.iter().any(|name| name == source.name)) {
        sqlx::raw_sql(source.sql).execute(&mut *tx).await?;
        sqlx::query(
            "INSERT INTO schema_functions (name, hash, migration, version) VALUES ($1, $2, $3, $4)
             ON CONFLICT (name) DO UPDATE SET hash = excluded.hash, migration = excluded.migration, version = excluded.version, replaced_at = now()",
        )
        .bind(source.name)
        .bind(source.hash())
        .bind(newest())
        .bind(env!("CARGO_PKG_VERSION"))
        .execute(&mut *tx)
        .await?;
    }
    drop_old_forms(&mut tx, &stale).await?;
    tx.commit().await?;
    Ok(())
}

/// Drops the forms of the named functions that this transaction has not made: those with an earlier signature, and
/// those whose file is gone. If something still uses one, the transaction cannot commit.
async fn drop_old_forms(conn: &mut PgConnection, names: &[String]) -> sqlx::Result<()> {
    let gone: Vec<&str> =
        names.iter().map(String::as_str).filter(|name| SOURCES.iter().all(|source| source.name != *name)).collect();
    let drops: Vec<String> = sqlx::query_scalar(
        "SELECT 'DROP VIEW ' || oid::regclass FROM pg_class WHERE relkind = 'v' AND relnamespace = current_schema()::regnamespace AND relname = ANY($1)
         UNION ALL
         SELECT 'DROP FUNCTION ' || oid::regprocedure FROM pg_proc
          WHERE pronamespace = current_schema()::regnamespace AND proname = ANY($2) AND xmin <> pg_current_xact_id()::xid",
    )
    .bind(&gone)
    .bind(names)
    .fetch_all(&mut *conn)
    .await?;
    for drop in drops {
        sqlx::raw_sql(AssertSqlSafe(drop)).execute(&mut *conn).await?;
    }
    sqlx::query("DELETE FROM schema_functions WHERE name = ANY($1)").bind(&gone).execute(conn).await?;
    Ok(())
}
