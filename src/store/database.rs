//! The connection to PostgreSQL, and what svc needs of a server.
use super::{
    away::{self, Away},
    transaction::{GRACE, drain},
};
use sqlx::{
    Connection, PgConnection, PgExecutor, PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use std::{str::FromStr, time::Duration};

/// How long after a refused write older connections are asked each time before they are used whether their server takes writes. One that has not
/// been used since is asked however long ago that was.
const SUSPECTED: Duration = Duration::from_secs(60);

/// How long a read waits for a connection to a standby, before the primary answers it.
const STANDBY_PATIENCE: Duration = Duration::from_secs(1);

/// Idle time below which a connection of the pool is used without a ping.
const PRESUMED_ALIVE: Duration = Duration::from_secs(1);

/// Why the database cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    #[error("SVC_DATABASE_URL is not a PostgreSQL URL: {0}")]
    Url(String),
    #[error(
        "SVC_DATABASE_READ_URL has an address that is no PostgreSQL URL: it takes postgres://user:password@host:port/database"
    )]
    ReadUrl,
    #[error("the database does not answer: {0}")]
    Unreachable(#[source] sqlx::Error),
    #[error("PostgreSQL {found} is too old: svc needs {needed} or later")]
    TooOld { found: String, needed: u32 },
    #[error("the database has no pgvector: install its package for this PostgreSQL (0.8 or later)")]
    NoVector,
    #[error("pgvector {0} is too old: svc needs 0.8 or later")]
    OldVector(String),
    #[error(
        "the database has pgvector {installed}, which is too old, though its server has {available}: run ALTER EXTENSION vector UPDATE in it"
    )]
    VectorNotUpdated { installed: String, available: String },
    #[error(
        "the database has the encoding {0}, which stays as it is, and svc needs UTF8: make another one with CREATE DATABASE svc ENCODING 'UTF8' LOCALE 'C' TEMPLATE template0"
    )]
    Encoding(String),
    #[error(
        "what answers at SVC_DATABASE_URL drops the settings that svc asks for with a connection, as a pooler does: name the PostgreSQL server itself"
    )]
    SettingsDropped,
    #[error(
        "the schema is behind by {migrations} migrations and {functions} functions: run `svc migrate`, or set SVC_MIGRATE=auto"
    )]
    Behind { migrations: usize, functions: usize },
    #[error(
        "the schema is newer than this program: the database has migration {theirs} ({name}), and svc {} knows them up to {ours}; start the version of svc that applied it, or a later one",
        env!("CARGO_PKG_VERSION")
    )]
    Ahead { theirs: i64, name: String, ours: i64 },
    #[error(
        "the schema is newer than this program: svc {theirs} made its function {name}, and this is svc {}; start that version of svc, or a later one",
        env!("CARGO_PKG_VERSION")
    )]
    AheadInFunctions { theirs: String, name: String },
    #[error(
        "the database was migrated by files that are not those of svc {}: migration {version} ({name}) was another when it was applied. A database of a development version cannot be carried over: give svc a new database (SVC_DATABASE_URL) or a new data folder (SVC_DATA_DIR), and upload the documents again",
        env!("CARGO_PKG_VERSION")
    )]
    Foreign { version: i64, name: String },
    #[error("the database takes no writes: {0}; SVC_DATABASE_URL must name a primary server that takes writes")]
    ReadOnly(&'static str),
    #[error("the migrations cannot be applied: {0}")]
    Migrate(#[from] sqlx::migrate::MigrateError),
    #[error(transparent)]
    Sql(#[from] sqlx::Error),
}

impl DatabaseError {
    /// Whether the database answered, be it with this error.
    pub fn has_answer(&self) -> bool {
        let (DatabaseError::Unreachable(error) | DatabaseError::Sql(error)) = self else { return true };
        error.as_database_error().is_some() && !matches!(away::away(error), Some(Away::NoConnection | Away::Stopped))
    }
}

/// Reads SVC_DATABASE_URL. The message never repeats the URL, because it may hold a password.
pub fn options(url: &str) -> Result<PgConnectOptions, DatabaseError> {
    PgConnectOptions::from_str(url)
        .map_err(|_| DatabaseError::Url("it takes postgres://user:password@host:port/database".to_owned()))
}

/// Reads an address of SVC_DATABASE_READ_URL, which the message does not repeat either.
pub fn read_options(url: &str) -> Result<PgConnectOptions, DatabaseError> {
    PgConnectOptions::from_str(url).map_err(|_| DatabaseError::ReadUrl)
}

/// Options with which a connection can neither hang for hours on a dead peer nor keep a transaction open past the
/// lease, and no statement is compiled.
pub fn guarded(options: PgConnectOptions, lease: Duration) -> PgConnectOptions {
    let idle = format!("{}ms", (lease.as_millis() / 2).max(1000));
    options.application_name("svc").options([
        ("idle_in_transaction_session_timeout", idle.as_str()),
        // A statement whose client has hung up ends, and releases its rows and locks.
        ("client_connection_check_interval", "1000"),
        // Estimates of what lies under a document are high, and compiling such a statement takes longer than running it.
        ("jit", "off"),
        ("tcp_keepalives_idle", "10"),
        ("tcp_keepalives_interval", "5"),
        ("tcp_keepalives_count", "3"),
        ("tcp_user_timeout", "30000"),
    ])
}

/// A pool of guarded connections.
pub fn pool(options: PgConnectOptions, connections: u32, lease: Duration) -> PgPool {
    connect(guarded(options, lease), connections)
}

/// Another pool to the same database, for requests: the server ends a statement that takes longer than `limit`.
pub fn pool_of_requests(pool: &PgPool, connections: u32, limit: Duration) -> PgPool {
    let limit = format!("{}ms", limit.as_millis().clamp(1, i32::MAX as u128));
    let options = PgConnectOptions::clone(&pool.connect_options());
    connect(options.options([("statement_timeout", limit.as_str())]), connections)
}

/// One connection to the same database, for counts that must not read whole tables. The planner prefers reading a whole
/// table if it believes that a limit is reached soon, which is wrong for a table whose first million rows are done.
pub fn pool_of_samples(pool: &PgPool, limit: Duration) -> PgPool {
    let limit = format!("{}ms", limit.as_millis());
    let options = PgConnectOptions::clone(&pool.connect_options());
    connect(options.options([("statement_timeout", limit.as_str()), ("enable_seqscan", "off")]), 1)
}

/// A pool to a standby, whose server ends a statement that takes longer than `limit`.
pub fn pool_of_reads(options: PgConnectOptions, connections: u32, lease: Duration, limit: Duration) -> PgPool {
    let limit = format!("{}ms", limit.as_millis().clamp(1, i32::MAX as u128));
    let options = guarded(options, lease).options([("statement_timeout", limit.as_str())]);
    tested(connections)
        .acquire_timeout(STANDBY_PATIENCE)
        .before_acquire(|conn, idle| {
            Box::pin(async move {
                if idle.idle_for > PRESUMED_ALIVE {
                    conn.ping().await?;
                }
                Ok(true)
            })
        })
        .connect_lazy_with(options)
}

fn connect(options: PgConnectOptions, connections: u32) -> PgPool {
    tested(connections)
        .acquire_timeout(Duration::from_secs(5))
        .before_acquire(|conn, idle| {
            Box::pin(async move {
                if !is_trusted(conn, idle.age, idle.idle_for).await? {
                    return Ok(false);
                }
                if idle.idle_for > PRESUMED_ALIVE {
                    conn.ping().await?;
                }
                Ok(true)
            })
        })
        .connect_lazy_with(options)
}

/// Pools whose connections are tested when they are returned; one that was used just now is not tested again.
fn tested(connections: u32) -> PgPoolOptions {
    PgPoolOptions::new().max_connections(connections).test_before_acquire(false).after_release(|conn, _| {
        Box::pin(async move {
            // A caller that is cut off in the middle of a statement leaves the statement behind. The server cancels
            // it soon after its connection is closed, and nobody else has to wait for its end.
            match tokio::time::timeout(GRACE, drain(conn)).await {
                Ok(drained) => drained.map(|()| true),
                Err(_) => Ok(false),
            }
        })
    })
}

/// Refuses a server that svc cannot work on, saying what is missing.
pub async fn check_server(pool: &PgPool) -> Result<(), DatabaseError> {
    let (number, version, encoding): (i32, String, String) = sqlx::query_as(
        "SELECT current_setting('server_version_num')::int, current_setting('server_version'), current_setting('server_encoding')",
    )
    .fetch_one(pool)
    .await
    .map_err(DatabaseError::Unreachable)?;
    if number < 140_000 {
        return Err(DatabaseError::TooOld { found: version, needed: 14 });
    }
    // Any other counts and cuts texts elsewhere, or lacks characters.
    if encoding != "UTF8" {
        return Err(DatabaseError::Encoding(encoding));
    }
    // Without them a statement has no end, and a process that hangs in a transaction keeps its locks.
    if !has_settings(pool).await? {
        return Err(DatabaseError::SettingsDropped);
    }
    let vector: Option<(Option<String>, String)> =
        sqlx::query_as("SELECT installed_version, default_version FROM pg_available_extensions WHERE name = 'vector'")
            .fetch_optional(pool)
            .await?;
    let (installed, available) = vector.ok_or(DatabaseError::NoVector)?;
    check_vector(installed, available)
}

/// Whether the connection has the settings of [`guarded`], which a pooler drops.
pub async fn has_settings(connection: impl PgExecutor<'_>) -> sqlx::Result<bool> {
    sqlx::query_scalar(
        "SELECT source IN ('client', 'session') FROM pg_settings WHERE name = 'idle_in_transaction_session_timeout'",
    )
    .fetch_one(connection)
    .await
}

/// Refuses a pgvector that is too old: the one that the database has, or the one that it would get.
fn check_vector(installed: Option<String>, available: String) -> Result<(), DatabaseError> {
    let is_before = |version: &str, minor: u32| {
        let mut parts = version.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
        (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) < (0, minor)
    };
    match installed {
        Some(version) if is_before(&version, 8) && is_before(&available, 8) => Err(DatabaseError::OldVector(version)),
        // What svc needs of 0.8 is in the library of the server, and the types and functions that it needs in the database came with 0.7.
        Some(installed) if is_before(&installed, 7) => Err(DatabaseError::VectorNotUpdated { installed, available }),
        None if is_before(&available, 8) => Err(DatabaseError::OldVector(available)),
        _ => Ok(()),
    }
}

/// Refuses a server that takes no writes.
pub async fn check_writable(pool: &PgPool) -> Result<(), DatabaseError> {
    let mut conn = pool.acquire().await.map_err(DatabaseError::Unreachable)?;
    match why_read_only(&mut conn).await.map_err(DatabaseError::Unreachable)? {
        Some(reason) => Err(DatabaseError::ReadOnly(reason)),
        None => Ok(()),
    }
}

/// Why the server takes no writes; `None` if it takes them.
pub async fn why_read_only(conn: &mut PgConnection) -> sqlx::Result<Option<&'static str>> {
    let (is_standby, is_read_only): (bool, bool) =
        sqlx::query_as("SELECT pg_is_in_recovery(), current_setting('transaction_read_only') = 'on'")
            .fetch_one(conn)
            .await?;
    Ok(match (is_standby, is_read_only) {
        (true, _) => Some("it is a standby"),
        (false, true) => Some("default_transaction_read_only is on"),
        (false, false) => None,
    })
}

/// Whether a connection of this age that was idle for so long may be used again: not if its server takes no writes, where a write was refused
/// meanwhile.
pub(super) async fn is_trusted(conn: &mut PgConnection, age: Duration, idle: Duration) -> sqlx::Result<bool> {
    Ok(!away::refused_writes_within(suspicious(age, idle)) || why_read_only(conn).await?.is_none())
}

/// The time within which a refused write makes a connection suspected.
fn suspicious(age: Duration, idle: Duration) -> Duration {
    age.min(SUSPECTED).max(idle)
}

/// Checks whether the server has room for a few more megabytes, by writing them and taking them back.
pub async fn try_room(pool: &PgPool) -> sqlx::Result<()> {
    let mut tx = super::transaction::begin(pool).await?;
    sqlx::query("CREATE TEMPORARY TABLE room ON COMMIT DROP AS SELECT repeat('x', 1000) FROM generate_series(1, 8000)")
        .execute(&mut *tx)
        .await?;
    tx.rollback().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_was_idle_while_a_write_was_refused_is_suspected_however_long_ago_that_was() {
        let [second, minutes, hour] = [1, 300, 3600].map(Duration::from_secs);
        assert_eq!(suspicious(hour, minutes), minutes);
        assert_eq!(suspicious(hour, second), SUSPECTED, "one in use is not asked for ever");
        assert_eq!(suspicious(second, second), second, "what was refused before it was made says nothing of it");
    }

    #[test]
    fn the_pgvector_that_the_database_has_counts_before_that_of_its_server() {
        let check = |installed: Option<&str>, available: &str| {
            check_vector(installed.map(str::to_owned), available.to_owned()).map_err(|error| error.to_string())
        };
        assert_eq!(check(None, "0.8.1"), Ok(()));
        assert_eq!(check(Some("0.8.0"), "0.7.4"), Ok(()));
        assert_eq!(check(Some("1.0"), "1.0"), Ok(()));
        assert_eq!(check(Some("0.7.4"), "0.8.1"), Ok(()), "an update adds nothing that svc uses");
        let outdated = check(Some("0.6.2"), "0.8.1").expect_err("its types are missing");
        assert!(outdated.contains("0.6.2") && outdated.contains("ALTER EXTENSION vector UPDATE"), "{outdated}");
        for (installed, available) in [(None, "0.7.4"), (Some("0.7.4"), "0.7.4")] {
            let old = check(installed, available).expect_err("both are too old");
            assert!(old.contains("0.7.4") && !old.contains("ALTER"), "{old}");
        }
    }

    #[test]
    fn no_statement_is_compiled_whatever_the_server_does_by_itself() {
        let options = guarded(PgConnectOptions::new(), Duration::from_secs(60));
        assert!(options.get_options().is_some_and(|options| options.contains("-c jit=off")), "{options:?}");
    }
}
