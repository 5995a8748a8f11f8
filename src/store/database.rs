//! The connection to PostgreSQL, and its schema.
use super::transaction::{GRACE, drain};
use sqlx::{
    Connection, PgPool,
    migrate::Migrator,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use std::{str::FromStr, time::Duration};

/// The numbered files of `migrations/`, in sqlx's ledger.
pub static MIGRATIONS: Migrator = sqlx::migrate!();

/// How long a connection of the pool may lie idle and be taken without asking whether it still answers.
const PRESUMED_ALIVE: Duration = Duration::from_secs(1);

/// Why the database cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    #[error("SVC_DATABASE_URL is not a PostgreSQL URL: {0}")]
    Url(String),
    #[error("the database does not answer: {0}")]
    Unreachable(#[source] sqlx::Error),
    #[error("PostgreSQL {found} is too old: svc needs {needed} or later")]
    TooOld { found: String, needed: u32 },
    #[error("the database has no pgvector: install its package for this PostgreSQL (0.8 or later)")]
    NoVector,
    #[error("pgvector {0} is too old: svc needs 0.8 or later")]
    OldVector(String),
    #[error("the schema is behind by {0} migrations: run `svc migrate`, or set SVC_MIGRATE=auto")]
    Behind(usize),
    #[error(
        "the schema is newer than this program: the database has migration {theirs} ({name}), and svc {} knows them up to {ours}; start the version of svc that applied it, or a later one",
        env!("CARGO_PKG_VERSION")
    )]
    Ahead { theirs: i64, name: String, ours: i64 },
    #[error(
        "the database takes no writes: {0}; SVC_DATABASE_URL has to name the primary server, and one that takes writes"
    )]
    ReadOnly(&'static str),
    #[error("the migrations cannot be applied: {0}")]
    Migrate(#[from] sqlx::migrate::MigrateError),
    #[error(transparent)]
    Sql(#[from] sqlx::Error),
}

/// Reads SVC_DATABASE_URL; the message never repeats the URL, since it may hold a password.
pub fn options(url: &str) -> Result<PgConnectOptions, DatabaseError> {
    PgConnectOptions::from_str(url)
        .map_err(|_| DatabaseError::Url("it takes postgres://user:password@host:port/database".to_owned()))
}

/// Connections that cannot hang for hours on a dead peer, nor keep a transaction open past the lease.
pub fn guarded(options: PgConnectOptions, lease: Duration) -> PgConnectOptions {
    let idle = format!("{}ms", (lease.as_millis() / 2).max(1000));
    options.application_name("svc").options([
        ("idle_in_transaction_session_timeout", idle.as_str()),
        // A statement whose client has hung up ends, with the rows and the locks that it holds.
        ("client_connection_check_interval", "1000"),
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

/// Another pool to the same database, for requests: the server gives up a statement that takes longer than `limit`.
pub fn pool_of_requests(pool: &PgPool, connections: u32, limit: Duration) -> PgPool {
    let limit = format!("{}ms", limit.as_millis().clamp(1, i32::MAX as u128));
    let options = PgConnectOptions::clone(&pool.connect_options());
    connect(options.options([("statement_timeout", limit.as_str())]), connections)
}

/// One connection to the same database, for counts that must not read whole tables. The planner takes a whole table for cheaper
/// where it believes that a limit is reached soon, which is wrong of a table whose first million rows are done.
pub fn pool_of_samples(pool: &PgPool, limit: Duration) -> PgPool {
    let limit = format!("{}ms", limit.as_millis());
    let options = PgConnectOptions::clone(&pool.connect_options());
    connect(options.options([("statement_timeout", limit.as_str()), ("enable_seqscan", "off"), ("jit", "off")]), 1)
}

fn connect(options: PgConnectOptions, connections: u32) -> PgPool {
    PgPoolOptions::new()
        .max_connections(connections)
        .acquire_timeout(Duration::from_secs(5))
        // Each was asked as it came back; one that was used just now is not asked again.
        .test_before_acquire(false)
        .before_acquire(|conn, idle| {
            Box::pin(async move {
                if idle.idle_for > PRESUMED_ALIVE {
                    conn.ping().await?;
                }
                Ok(true)
            })
        })
        .after_release(|conn, _| {
            Box::pin(async move {
                // Whoever is cut off in the middle of a statement leaves it behind. The server cancels it soon after its connection
                // is closed, and nobody else has to wait for its end.
                match tokio::time::timeout(GRACE, drain(conn)).await {
                    Ok(drained) => drained.map(|()| true),
                    Err(_) => Ok(false),
                }
            })
        })
        .connect_lazy_with(options)
}

/// Refuses a server that svc cannot work on, saying what is missing.
pub async fn check_server(pool: &PgPool) -> Result<(), DatabaseError> {
    let (number, version): (i32, String) =
        sqlx::query_as("SELECT current_setting('server_version_num')::int, current_setting('server_version')")
            .fetch_one(pool)
            .await
            .map_err(DatabaseError::Unreachable)?;
    if number < 140_000 {
        return Err(DatabaseError::TooOld { found: version, needed: 14 });
    }
    let vector: Option<String> =
        sqlx::query_scalar("SELECT default_version FROM pg_available_extensions WHERE name = 'vector'")
            .fetch_optional(pool)
            .await?;
    let vector = vector.ok_or(DatabaseError::NoVector)?;
    let mut parts = vector.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    match (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) {
        (0, minor) if minor < 8 => Err(DatabaseError::OldVector(vector)),
        _ => Ok(()),
    }
}

/// Refuses a server that takes no writes.
pub async fn check_writable(pool: &PgPool) -> Result<(), DatabaseError> {
    let (is_standby, is_read_only): (bool, bool) =
        sqlx::query_as("SELECT pg_is_in_recovery(), current_setting('transaction_read_only') = 'on'")
            .fetch_one(pool)
            .await
            .map_err(DatabaseError::Unreachable)?;
    match (is_standby, is_read_only) {
        (true, _) => Err(DatabaseError::ReadOnly("it is a standby")),
        (false, true) => Err(DatabaseError::ReadOnly("default_transaction_read_only is on")),
        (false, false) => Ok(()),
    }
}

/// A database's schema beside the one that this program was built for.
#[derive(Debug, Default)]
pub struct Schema {
    /// The migrations that the database lacks, oldest first, as (number, name).
    pub missing: Vec<(i64, String)>,
    /// The newest migration that this program does not know.
    pub newer: Option<(i64, String)>,
    /// One that was another when it was applied.
    changed: Option<i64>,
}

impl Schema {
    /// Refuses a schema that is behind this program, or ahead of it.
    pub fn check(&self) -> Result<(), DatabaseError> {
        match (&self.newer, self.missing.len()) {
            (Some((theirs, name)), _) => Err(DatabaseError::Ahead {
                theirs: *theirs,
                name: name.clone(),
                ours: MIGRATIONS.iter().map(|m| m.version).max().unwrap_or(0),
            }),
            (None, 0) => Ok(()),
            (None, count) => Err(DatabaseError::Behind(count)),
        }
    }
}

/// Reads the ledger of migrations, and changes nothing.
pub async fn schema(pool: &PgPool) -> Result<Schema, DatabaseError> {
    let has_ledger: bool = sqlx::query_scalar("SELECT to_regclass('_sqlx_migrations') IS NOT NULL")
        .fetch_one(pool)
        .await
        .map_err(DatabaseError::Unreachable)?;
    let applied: Vec<(i64, String, Vec<u8>)> = match has_ledger {
        true => {
            let ledger =
                "SELECT version, description, checksum FROM _sqlx_migrations WHERE success ORDER BY version DESC";
            sqlx::query_as(ledger).fetch_all(pool).await?
        }
        false => Vec::new(),
    };
    let of = |version: i64| MIGRATIONS.iter().find(|m| m.version == version);
    let missing = MIGRATIONS
        .iter()
        .filter(|m| !applied.iter().any(|(version, ..)| *version == m.version))
        .map(|m| (m.version, m.description.to_string()));
    let changed = applied.iter().find(|(version, _, sum)| of(*version).is_some_and(|m| *m.checksum != **sum));
    Ok(Schema {
        missing: missing.collect(),
        changed: changed.map(|(version, ..)| *version),
        newer: applied
            .into_iter()
            .find(|(version, ..)| of(*version).is_none())
            .map(|(version, name, _)| (version, name)),
    })
}

/// Applies what is missing, under sqlx's advisory lock; where nothing is, it writes nothing.
pub async fn migrate(pool: &PgPool) -> Result<(), DatabaseError> {
    let schema = schema(pool).await?;
    if let Some(version) = schema.changed {
        return Err(sqlx::migrate::MigrateError::VersionMismatch(version).into());
    }
    match schema.check() {
        Err(DatabaseError::Behind(_)) => Ok(MIGRATIONS.run(pool).await?),
        other => other,
    }
}

/// Whether the server has room for a few megabytes more, which it is given and takes back.
pub async fn try_room(pool: &PgPool) -> sqlx::Result<()> {
    let mut tx = super::transaction::begin(pool).await?;
    sqlx::query("CREATE TEMPORARY TABLE room ON COMMIT DROP AS SELECT repeat('x', 1000) FROM generate_series(1, 8000)")
        .execute(&mut *tx)
        .await?;
    tx.rollback().await
}
