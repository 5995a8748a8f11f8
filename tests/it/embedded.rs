//! The managed PostgreSQL: what it keeps when it crashes and when the service does.

use crate::support::PATIENCE;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use sqlx::{Connection, PgConnection, Row};
use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::{
        fs::{MetadataExt, PermissionsExt},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
};
use svc::{
    embedded::{EmbeddedError, EmbeddedPostgres, ServerState},
    settings::Settings,
};
use tokio::time::timeout;

/// A data folder that is removed with the test.
struct DataDir(PathBuf);

impl DataDir {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        // It is not in the home folder: if we are root, PostgreSQL runs as another user, who may not enter that.
        Self(std::env::temp_dir().join(format!("svc-embedded-{}-{number}", std::process::id())))
    }
}

impl Drop for DataDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn postgres_home() -> PathBuf {
    let home = Settings::load(None, std::env::vars()).unwrap().postgres_home;
    assert!(home.join("bin/postgres").exists(), "no PostgreSQL in {}: run `make setup`", home.display());
    home
}

async fn start(data_dir: &Path) -> EmbeddedPostgres {
    timeout(PATIENCE, EmbeddedPostgres::start(data_dir, &postgres_home())).await.unwrap().unwrap()
}

async fn connect(postgres: &EmbeddedPostgres) -> PgConnection {
    PgConnection::connect_with(&postgres.connect_options()).await.unwrap()
}

async fn text(connection: &mut PgConnection, query: &'static str) -> String {
    sqlx::query(query).fetch_one(connection).await.unwrap().get(0)
}

fn pid_of(pid: u32) -> Pid {
    Pid::from_raw(i32::try_from(pid).unwrap()).unwrap()
}

#[tokio::test]
async fn what_is_committed_is_there_after_a_stop_and_a_start() {
    let folder = DataDir::new();
    let postgres = start(&folder.0).await;
    let pid = postgres.server_pid().unwrap();
    let mut connection = connect(&postgres).await;
    for (query, expected) in [
        ("SHOW server_encoding", "UTF8"),
        ("SHOW data_checksums", "on"),
        ("SHOW fsync", "on"),
        ("SHOW jit", "off"),
        ("SHOW listen_addresses", ""),
        ("SHOW timezone", "UTC"),
        // Letters beyond ASCII fold, and texts sort by code point.
        ("SELECT lower('ÄÉ')", "äé"),
        ("SELECT to_tsvector('simple', 'ÉCOLE')::text", "'école':1"),
        ("SELECT max(letter) FROM unnest(ARRAY['B', 'a']) AS letter", "a"),
    ] {
        assert_eq!(text(&mut connection, query).await, expected, "{query}");
    }
    sqlx::raw_sql("CREATE TABLE kept AS SELECT '[1,2]'::vector::text AS text").execute(&mut connection).await.unwrap();
    drop(connection);
    let elsewhere = EmbeddedPostgres::connect_options_of(&folder.0).unwrap();
    PgConnection::connect_with(&elsewhere).await.unwrap().close().await.unwrap();
    postgres.stop().await;
    assert!(test_kill_process(pid_of(pid)).is_err(), "the server outlives its stop");
    let refusal = EmbeddedPostgres::connect_options_of(&folder.0).unwrap_err();
    assert!(matches!(refusal, EmbeddedError::NotRunning(_)), "{refusal}");

    let postgres = start(&folder.0).await;
    let mut connection = connect(&postgres).await;
    assert_eq!(text(&mut connection, "SELECT text FROM kept").await, "[1,2]");
    postgres.stop().await;
}

/// What the service's role must be able to do, and what it must not.
async fn is_the_service_s_own(connection: &mut PgConnection) {
    assert_eq!(text(connection, "SELECT current_user::text").await, "svc_app");
    assert_eq!(text(connection, "SELECT rolsuper::text FROM pg_roles WHERE rolname = current_user").await, "false");
    for forbidden in [
        "COPY (SELECT 1) TO PROGRAM 'true'",
        "SELECT pg_read_file('/etc/passwd')",
        "ALTER SYSTEM SET work_mem = '1MB'",
        "CREATE ROLE other",
        "ALTER ROLE svc_app SUPERUSER",
        "SET ROLE svc",
    ] {
        let error = sqlx::raw_sql(forbidden).execute(&mut *connection).await.unwrap_err();
        let code = error.as_database_error().and_then(|error| error.code()).unwrap_or_default().into_owned();
        assert_eq!(code, "42501", "{forbidden}: {error}");
    }
}

#[tokio::test]
async fn the_service_is_no_superuser_and_nobody_is_let_in_untold() {
    let folder = DataDir::new();
    let postgres = start(&folder.0).await;
    is_the_service_s_own(&mut connect(&postgres).await).await;
    let admission = fs::read_to_string(folder.0.join("postgres/cluster/pg_hba.conf")).unwrap();
    assert!(admission.contains("peer") && !admission.contains("trust"), "{admission}");
    // Another user who can reach the socket: a child of ours that is allowed into the folders.
    if rustix::process::geteuid().is_root() {
        for path in ["postgres", "postgres/run", "postgres/run/.s.PGSQL.5432"] {
            fs::set_permissions(folder.0.join(path), fs::Permissions::from_mode(0o777)).unwrap();
        }
        let said = tokio::task::spawn_blocking({
            let socket = folder.0.join("postgres/run/.s.PGSQL.5432");
            move || as_nobody(&socket)
        });
        let said = said.await.unwrap();
        assert!(said.contains("28000"), "refused by the server, by name: {said}");
    }
    postgres.stop().await;
}

const STRANGER: &str = "SVC_TEST_EMBEDDED_STRANGER";

/// This is not a test but the process of another user.
#[test]
fn helper_stranger() {
    use std::io::{Read, Write};
    let Ok(socket) = std::env::var(STRANGER) else { return };
    let mut stream = std::os::unix::net::UnixStream::connect(socket).unwrap();
    // A start-up message of protocol 3.0.
    let parameters = b"user\0svc\0database\0svc\0\0";
    let length = u32::try_from(8 + parameters.len()).unwrap();
    stream.write_all(&[&length.to_be_bytes()[..], &196_608u32.to_be_bytes(), parameters].concat()).unwrap();
    let mut answer = Vec::new();
    stream.take(4096).read_to_end(&mut answer).unwrap();
    println!("\nstranger is told {}", String::from_utf8_lossy(&answer).replace(['\0', '\n'], " "));
}

/// What the server tells a user that it does not know.
fn as_nobody(socket: &Path) -> String {
    let module = module_path!().split_once("::").map_or(String::new(), |(_, module)| format!("{module}::"));
    let output = Command::new("/proc/self/exe")
        .args(["--exact", "--nocapture", &format!("{module}helper_stranger")])
        .env(STRANGER, socket)
        .current_dir("/")
        .uid(65_534)
        .gid(65_534)
        .output()
        .unwrap();
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[tokio::test]
async fn a_folder_of_an_earlier_release_is_upgraded_whatever_step_its_upgrade_stopped_at() {
    let folder = DataDir::new();
    let postgres = start(&folder.0).await;
    let mut superuser = PgConnection::connect_with(&postgres.superuser_options()).await.unwrap();
    // The state that release left: everything belongs to the superuser that it worked as.
    sqlx::raw_sql(
        "CREATE TABLE kept (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, text text);
         CREATE SEQUENCE numbers; CREATE VIEW seen AS SELECT * FROM kept; CREATE DOMAIN state AS text;
         CREATE TYPE pathrange AS RANGE (subtype = text); CREATE TYPE pair AS (a int, b int); CREATE TYPE mood AS ENUM ('good');
         CREATE FUNCTION one() RETURNS int LANGUAGE sql AS 'SELECT 1';
         CREATE TABLE parts (id int) PARTITION BY LIST (id); CREATE TABLE part PARTITION OF parts DEFAULT;
         INSERT INTO kept (text) VALUES ('kept');
         SELECT lo_from_bytea(0, 'bytes') FROM generate_series(1, 2500);
         ALTER DATABASE svc OWNER TO svc;",
    )
    .execute(&mut superuser)
    .await
    .unwrap();
    sqlx::raw_sql("DROP OWNED BY svc_app").execute(&mut superuser).await.unwrap();
    sqlx::raw_sql("DROP ROLE svc_app").execute(&mut superuser).await.unwrap();
    drop(superuser);
    postgres.stop().await;
    fs::write(folder.0.join("postgres/cluster/pg_hba.conf"), "local all all trust\n").unwrap();
    fs::write(folder.0.join("postgres/cluster/pg_ident.conf"), "").unwrap();

    // The second start finds some of it done, and the third everything.
    for round in 0..3 {
        let postgres = start(&folder.0).await;
        let mut connection = connect(&postgres).await;
        is_the_service_s_own(&mut connection).await;
        let owners_work =
            "ALTER TABLE kept ADD more text; ALTER TABLE kept DROP more; INSERT INTO kept (text) VALUES ('more');
             SELECT nextval('numbers'); CREATE OR REPLACE VIEW seen AS SELECT * FROM kept; ALTER DOMAIN state SET DEFAULT '';
             ALTER TYPE pathrange RENAME TO pathranges; ALTER TYPE pathranges RENAME TO pathrange; ALTER TYPE pair ADD ATTRIBUTE c int;
             ALTER TYPE pair DROP ATTRIBUTE c; ALTER TYPE mood RENAME VALUE 'good' TO 'better'; ALTER TYPE mood RENAME VALUE 'better' TO 'good';
             CREATE OR REPLACE FUNCTION one() RETURNS int LANGUAGE sql AS 'SELECT 1'; INSERT INTO parts VALUES (1); SELECT lo_unlink(min(oid)) FROM pg_largeobject_metadata; VACUUM kept";
        for statement in owners_work.split(';') {
            let done = sqlx::raw_sql(statement).execute(&mut connection).await;
            done.unwrap_or_else(|error| panic!("{statement}: {error}"));
        }
        assert_eq!(text(&mut connection, "SELECT text FROM seen LIMIT 1").await, "kept");
        let foreign = "SELECT count(*)::text FROM pg_largeobject_metadata WHERE lomowner <> 'svc_app'::regrole";
        assert_eq!(text(&mut connection, foreign).await, "0");
        let mut superuser = PgConnection::connect_with(&postgres.superuser_options()).await.unwrap();
        if round == 0 {
            // It was killed in the middle, so a part belongs to the superuser again.
            sqlx::raw_sql(
                "ALTER TABLE kept OWNER TO svc; ALTER FUNCTION one() OWNER TO svc; SELECT lo_from_bytea(0, 'bytes')",
            )
            .execute(&mut superuser)
            .await
            .unwrap();
        }
        superuser.close().await.unwrap();
        connection.close().await.unwrap();
        postgres.stop().await;
    }
}

#[tokio::test]
async fn nobody_else_gets_at_the_socket_or_the_data() {
    let folder = DataDir::new();
    let postgres = start(&folder.0).await;
    let mode = |path: &str| fs::metadata(folder.0.join(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode("postgres"), 0o700);
    assert_eq!(mode("postgres/run"), 0o700);
    assert_eq!(mode("postgres/cluster"), 0o700);
    postgres.stop().await;
}

#[tokio::test]
async fn a_killed_server_comes_back_with_what_was_committed() {
    let folder = DataDir::new();
    let postgres = start(&folder.0).await;
    let mut connection = connect(&postgres).await;
    sqlx::raw_sql("CREATE TABLE kept AS SELECT 'kept' AS text").execute(&mut connection).await.unwrap();

    let mut state = postgres.state();
    for _ in 0..2 {
        let pid = postgres.server_pid().unwrap();
        kill_process(pid_of(pid), Signal::KILL).unwrap();
        timeout(PATIENCE, state.wait_for(|state| *state == ServerState::Restarting)).await.unwrap().unwrap();
        timeout(PATIENCE, state.wait_for(|state| *state == ServerState::Running)).await.unwrap().unwrap();
        assert_ne!(postgres.server_pid().unwrap(), pid);
        let mut connection = connect(&postgres).await;
        assert_eq!(text(&mut connection, "SELECT text FROM kept").await, "kept");
    }
    postgres.stop().await;
    assert_eq!(*state.borrow(), ServerState::Stopped);
}

const HELPER: &str = "SVC_TEST_EMBEDDED_HELPER";

/// This is not a test but the process that plays the killed service.
#[tokio::test]
async fn helper_service() {
    let Ok(data_dir) = std::env::var(HELPER) else { return };
    let postgres = start(Path::new(&data_dir)).await;
    let mut connection = connect(&postgres).await;
    sqlx::raw_sql("CREATE TABLE kept AS SELECT 'kept' AS text").execute(&mut connection).await.unwrap();
    println!("\nhelper runs {}", postgres.server_pid().unwrap());
    // It waits until the test kills it, or ends and closes its input.
    let _ = std::io::stdin().lines().next();
    postgres.stop().await;
}

/// Starts the helper process, and returns it and the process id of its server.
fn spawn_helper(data_dir: &Path) -> (Child, u32) {
    let module = module_path!().split_once("::").map_or(String::new(), |(_, module)| format!("{module}::"));
    let mut helper = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", &format!("{module}helper_service")])
        .env(HELPER, data_dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(helper.stdout.take().unwrap()).lines().map_while(Result::ok);
    let pid = lines.find_map(|line| line.strip_prefix("helper runs ")?.parse().ok());
    (helper, pid.expect("the helper's server runs"))
}

#[tokio::test]
async fn a_killed_service_leaves_nothing_that_stops_the_next_one() {
    let folder = DataDir::new();
    let data_dir = folder.0.clone();
    let (mut helper, orphan) = tokio::task::spawn_blocking(move || spawn_helper(&data_dir)).await.unwrap();

    let refusal = EmbeddedPostgres::start(&folder.0, &postgres_home()).await.unwrap_err();
    assert!(matches!(refusal, EmbeddedError::InUse { .. }), "{refusal}");
    assert!(refusal.to_string().contains(&format!("process {}", helper.id())), "{refusal}");

    helper.kill().unwrap();
    helper.wait().unwrap();
    assert!(test_kill_process(pid_of(orphan)).is_ok(), "this test needs a server that outlives its service");

    let postgres = start(&folder.0).await;
    assert_ne!(postgres.server_pid(), Some(orphan));
    let mut connection = connect(&postgres).await;
    assert_eq!(text(&mut connection, "SELECT text FROM kept").await, "kept");
    postgres.stop().await;
}

#[tokio::test]
async fn half_made_folders_and_stale_pid_files_do_not_stop_a_start() {
    let folder = DataDir::new();
    let half = folder.0.join("postgres/cluster.new");
    fs::create_dir_all(&half).unwrap();
    fs::write(half.join("PG_VERSION"), "18\n").unwrap();
    start(&folder.0).await.stop().await;
    assert!(!half.exists());

    // This is the state after a loss of power: the number now belongs to another program of the server's user.
    let owner = fs::metadata(folder.0.join("postgres/cluster")).unwrap();
    let mut other = Command::new("cat").uid(owner.uid()).gid(owner.gid()).stdin(Stdio::piped()).spawn().unwrap();
    let (pid, path) = (other.id(), folder.0.display());
    let text = format!("{pid}\n{path}/postgres/cluster\n1\n5432\n{path}/postgres/run\n\n  1  1\nready\n");
    for file in ["postgres/cluster/postmaster.pid", "postgres/run/.s.PGSQL.5432.lock"] {
        fs::write(folder.0.join(file), &text).unwrap();
    }
    start(&folder.0).await.stop().await;
    assert!(other.try_wait().unwrap().is_none(), "a process of another program was ended");
    other.kill().unwrap();
    other.wait().unwrap();
}

#[tokio::test]
async fn a_server_in_another_folder_of_the_same_path_is_left_alone() {
    let folder = DataDir::new();
    let postgres = start(&folder.0).await;
    let name = text(&mut connect(&postgres).await, "SHOW cluster_name").await;
    postgres.stop().await;
    // In another container the same path is another folder, and what works there has the titles of this cluster.
    let mut other = Command::new("/bin/sh")
        .arg0(format!("postgres: {name}: checkpointer "))
        .args(["-c", "read line"])
        .current_dir(std::env::temp_dir())
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    start(&folder.0).await.stop().await;
    assert!(other.try_wait().unwrap().is_none(), "a process of another cluster was ended");
    other.kill().unwrap();
    other.wait().unwrap();
}

#[tokio::test]
async fn a_folder_with_a_long_and_odd_name_works() {
    let folder = DataDir::new();
    let odd = folder.0.join(format!("a, b (c) %d ü {}", "x".repeat(120)));
    fs::create_dir_all(&odd).unwrap();
    let postgres = start(&odd).await;
    let mut connection = connect(&postgres).await;
    assert_eq!(text(&mut connection, "SELECT current_database()::text").await, "svc");
    let socket_dir = postgres.connect_options().get_socket().unwrap().clone();
    postgres.stop().await;
    fs::remove_dir(socket_dir).unwrap();
}

#[tokio::test]
async fn a_missing_server_is_told_with_its_remedy() {
    let folder = DataDir::new();
    let error = EmbeddedPostgres::start(&folder.0, &folder.0.join("nowhere")).await.unwrap_err().to_string();
    assert!(error.contains("nowhere") && error.contains("make setup") && error.contains("SVC_DATABASE_URL"), "{error}");
}

#[tokio::test]
async fn a_folder_with_an_older_pgvector_gets_that_of_its_server() {
    let (folder, version) = (DataDir::new(), "SELECT extversion FROM pg_extension WHERE extname = 'vector'");
    let postgres = start(&folder.0).await;
    let mut superuser = PgConnection::connect_with(&postgres.superuser_options()).await.unwrap();
    let latest = text(&mut superuser, version).await;
    let older = "UPDATE pg_extension SET extversion = '0.8.0' WHERE extname = 'vector'";
    sqlx::raw_sql(older).execute(&mut superuser).await.unwrap();
    assert_ne!(text(&mut superuser, version).await, latest);
    drop(superuser);
    postgres.stop().await;
    let postgres = start(&folder.0).await;
    assert_eq!(text(&mut connect(&postgres).await, version).await, latest);
    postgres.stop().await;
}

#[tokio::test]
async fn a_folder_of_a_machine_with_more_memory_starts_with_the_buffers_of_this_one() {
    let folder = DataDir::new();
    let postgres = start(&folder.0).await;
    let ours = text(&mut connect(&postgres).await, "SHOW shared_buffers").await;
    postgres.stop().await;
    let known = fs::read_to_string("/proc/meminfo").unwrap();
    let total = known.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")).unwrap();
    let conf = folder.0.join("postgres/cluster/postgresql.conf");
    let settings = fs::read_to_string(&conf).unwrap();
    fs::write(&conf, format!("{settings}\nshared_buffers = '{}kB'\n", 2 * total.parse::<u64>().unwrap())).unwrap();
    let postgres = start(&folder.0).await;
    assert_eq!(text(&mut connect(&postgres).await, "SHOW shared_buffers").await, ours);
    postgres.stop().await;
}

#[tokio::test]
async fn a_server_that_cannot_start_says_why() {
    let folder = DataDir::new();
    start(&folder.0).await.stop().await;
    let conf = folder.0.join("postgres/cluster/postgresql.conf");
    let text = fs::read_to_string(&conf).unwrap();
    fs::write(&conf, format!("{text}\nshared_buffers = 'much'\n")).unwrap();
    let error = EmbeddedPostgres::start(&folder.0, &postgres_home()).await.unwrap_err().to_string();
    assert!(error.contains("shared_buffers"), "{error}");
}
