//! One PostgreSQL per test run, one database per test.
use sqlx::{Connection, PgConnection, postgres::PgConnectOptions};
use std::{
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering},
    },
};
use svc::embedded::EmbeddedPostgres;
use tokio::runtime::Handle;

struct Server {
    options: PgConnectOptions,
    /// The service's own role cannot create databases.
    superuser: PgConnectOptions,
    work_dir: PathBuf,
    /// Where its own folder is: in memory, if this machine has room there.
    folder: PathBuf,
    /// The runtime for everything that outlives a test.
    runtime: Handle,
    /// Ends the server and removes the folders when this process ends in any way, because then its pipe closes.
    _watchdog: Child,
}

static SERVER: OnceLock<Server> = OnceLock::new();

fn server() -> &'static Server {
    SERVER.get_or_init(|| std::thread::spawn(start).join().expect("PostgreSQL starts"))
}

/// It runs on its own thread and runtime, which outlive every test.
fn start() -> Server {
    super::statements::record();
    // It is not in the home folder: if we are root, PostgreSQL runs as another user, who may not enter that.
    let work_dir = std::env::temp_dir().join(format!("svc-it-{}", std::process::id()));
    // Where the server's folder is in memory, nothing else makes this one.
    std::fs::create_dir_all(&work_dir).unwrap();
    let home = super::settings(&[]).postgres_home;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let in_memory = in_memory().map(|memory| memory.join(format!("svc-it-{}", std::process::id())));
    let folder = in_memory.unwrap_or_else(|| work_dir.clone());
    let at = folder.join("server");
    let postgres = runtime.block_on(async {
        let postgres = EmbeddedPostgres::start(&at, &home).await.expect("`make setup` was run");
        changed(postgres, &at, &home, OF_TESTS).await
    });
    let (options, superuser) = (postgres.connect_options(), postgres.superuser_options());
    runtime.block_on(make_template(&options, &superuser));
    let script = format!(
        "cat >/dev/null; kill -INT {pid} 2>/dev/null; while kill -0 {pid} 2>/dev/null; do sleep 0.1; done; rm -rf '{work_dir}' '{folder}'",
        pid = postgres.server_pid().unwrap(),
        work_dir = work_dir.display(),
        folder = folder.display()
    );
    let watchdog = Command::new("sh")
        .args(["-c", &script])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // What ends the tests and all that they started must not end this.
        .process_group(0)
        .spawn()
        .unwrap();
    std::mem::forget(postgres);
    let handle = runtime.handle().clone();
    std::mem::forget(runtime);
    Server { options, superuser, work_dir, folder, runtime: handle, _watchdog: watchdog }
}

/// A file system in memory with room for the databases of all tests that run at once, if this machine has one. Each test makes and removes
/// about a thousand files with its database; on a file system on a disk that takes a sixth of all processor time.
fn in_memory() -> Option<&'static Path> {
    const ROOM: u64 = 8 << 30;
    let memory = Path::new("/dev/shm");
    let statistics = rustix::fs::statvfs(memory).ok()?;
    let known = std::fs::read_to_string("/proc/meminfo").ok()?;
    let free = known.lines().find_map(|line| line.strip_prefix("MemAvailable:")?.trim().strip_suffix(" kB"))?;
    // The size of the file system only says how much memory it may take.
    let free = free.parse::<u64>().ok()?.saturating_mul(1024);
    (statistics.f_bavail.saturating_mul(statistics.f_frsize) >= ROOM && free >= 2 * ROOM).then_some(memory)
}

/// The settings of the server of all tests. They are unfit for data that anybody needs.
const OF_TESTS: &[&str] = &[
    // Nothing waits for the disk, because nobody needs the data of this server after a crash of the machine.
    "ALTER SYSTEM SET fsync = off",
    "ALTER SYSTEM SET full_page_writes = off",
    // The copy of the template for each test goes through the log, and takes longer to compress than to write.
    "ALTER SYSTEM SET wal_compression = off",
    // Each database that is dropped has all buffers looked at, and each connection maps those that it reads.
    "ALTER SYSTEM SET shared_buffers = '256MB'",
    // Each test that runs has pools of its own.
    "ALTER SYSTEM SET max_connections = 400",
];

/// Changes settings of a server and starts it again, because some take effect only with a start.
async fn changed(postgres: EmbeddedPostgres, folder: &Path, home: &Path, changes: &[&'static str]) -> EmbeddedPostgres {
    let mut conn = PgConnection::connect_with(&postgres.superuser_options()).await.unwrap();
    for change in changes {
        sqlx::raw_sql(*change).execute(&mut conn).await.unwrap();
    }
    conn.close().await.unwrap();
    postgres.stop().await;
    EmbeddedPostgres::start(folder, home).await.unwrap()
}

async fn make_template(options: &PgConnectOptions, superuser: &PgConnectOptions) {
    make_empty("template_svc", options, superuser).await;
    let pool = sqlx::PgPool::connect_with(options.clone().database("template_svc")).await.unwrap();
    svc::store::schema::migrate(&pool).await.unwrap();
    super::transitions::hold(&pool).await;
    pool.close().await;
}

/// Makes a database with pgvector, for which it must be superuser, and nothing else.
async fn make_empty(name: &str, options: &PgConnectOptions, superuser: &PgConnectOptions) {
    let mut conn = PgConnection::connect_with(superuser).await.unwrap();
    let create = format!("CREATE DATABASE {name} OWNER {}", options.get_username());
    sqlx::raw_sql(sqlx::AssertSqlSafe(create)).execute(&mut conn).await.unwrap();
    let mut conn = PgConnection::connect_with(&superuser.clone().database(name)).await.unwrap();
    sqlx::raw_sql("CREATE EXTENSION vector").execute(&mut conn).await.unwrap();
    conn.close().await.unwrap();
}

/// A database without a schema.
pub async fn new_empty_database(name: &str) -> PgConnectOptions {
    let server = tokio::task::spawn_blocking(server).await.unwrap();
    make_empty(name, &server.options, &server.superuser).await;
    server.options.clone().database(name)
}

/// A database without a schema whose texts may be of any encoding.
pub async fn new_ascii_database(name: &str) -> PgConnectOptions {
    let server = tokio::task::spawn_blocking(server).await.unwrap();
    let mut conn = PgConnection::connect_with(&server.superuser).await.unwrap();
    let create = format!(
        "CREATE DATABASE {name} OWNER {} ENCODING 'SQL_ASCII' LOCALE_PROVIDER libc LOCALE 'C' TEMPLATE template0",
        server.options.get_username()
    );
    sqlx::raw_sql(sqlx::AssertSqlSafe(create)).execute(&mut conn).await.unwrap();
    conn.close().await.unwrap();
    server.options.clone().database(name)
}

/// A folder that is removed when the tests end.
pub fn work_dir() -> &'static Path {
    &server().work_dir
}

/// A folder for the data of another server, in memory if that has room now. It is removed when the tests end. What dies in a test is a process,
/// after which nothing is missing that was not on the disk yet.
pub fn folder() -> &'static Path {
    let server = server();
    if in_memory().is_some() { &server.folder } else { &server.work_dir }
}

/// The runtime for everything that outlives a test.
pub fn runtime() -> &'static Handle {
    &server().runtime
}

/// A new database with the schema in it, and the table of [`super::transitions`].
pub async fn new_database() -> PgConnectOptions {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let server = tokio::task::spawn_blocking(server).await.unwrap();
    let name = format!("it_{}", COUNT.fetch_add(1, Ordering::Relaxed));
    let mut conn = PgConnection::connect_with(&server.superuser).await.unwrap();
    // The template is copied once at a time, because PostgreSQL refuses a template that somebody else is reading.
    sqlx::raw_sql("SELECT pg_advisory_lock(1)").execute(&mut conn).await.unwrap();
    let create = format!("CREATE DATABASE {name} TEMPLATE template_svc OWNER {}", server.options.get_username());
    sqlx::raw_sql(sqlx::AssertSqlSafe(create)).execute(&mut conn).await.unwrap();
    conn.close().await.unwrap();
    server.options.clone().database(&name)
}

/// Drops a database of a test that has ended, and cuts off whoever is still connected to it. Many that nobody uses would keep the server's
/// autovacuum busy and fill the disk. No test waits for it.
pub fn drop_database(options: &PgConnectOptions) {
    let drop = format!("DROP DATABASE {} WITH (FORCE)", options.get_database().unwrap());
    server().runtime.spawn(async move {
        let mut conn = PgConnection::connect_with(&server().superuser).await?;
        sqlx::raw_sql(sqlx::AssertSqlSafe(drop)).execute(&mut conn).await?;
        conn.close().await
    });
}

/// A server with an empty database and its schema, which a test may kill. It ends when it is dropped.
pub async fn own(name: &str) -> EmbeddedPostgres {
    let folder = tokio::task::spawn_blocking(folder).await.unwrap().join(name);
    own_in(&folder, &super::settings(&[]).postgres_home).await
}

/// The same with changes of its settings, which it has once its schema is there.
pub async fn own_with(name: &str, changes: &[&'static str]) -> EmbeddedPostgres {
    let folder = tokio::task::spawn_blocking(folder).await.unwrap().join(name);
    let home = super::settings(&[]).postgres_home;
    changed(own_in(&folder, &home).await, &folder, &home, changes).await
}

async fn own_in(folder: &Path, home: &Path) -> EmbeddedPostgres {
    let postgres = EmbeddedPostgres::start(folder, home).await.unwrap();
    let pool = sqlx::PgPool::connect_with(postgres.connect_options()).await.unwrap();
    svc::store::schema::migrate(&pool).await.unwrap();
    super::transitions::hold(&pool).await;
    pool.close().await;
    postgres
}

/// A pool on a new database.
pub async fn new_pool() -> sqlx::PgPool {
    sqlx::postgres::PgPoolOptions::new().max_connections(16).connect_with(new_database().await).await.unwrap()
}
