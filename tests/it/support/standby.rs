//! A standby of a server that a test started, which it may pause, promote and kill.
use super::{server, until};
use rustix::process::{Pid, Signal, kill_process};
use sqlx::{Connection, PgConnection, postgres::PgConnectOptions};
use std::{
    fs,
    os::unix::{
        fs::{MetadataExt, PermissionsExt, chown},
        process::CommandExt,
    },
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};
use svc::embedded::EmbeddedPostgres;

pub struct Standby {
    /// How the service connects to it.
    pub options: PgConnectOptions,
    superuser: PgConnectOptions,
    data: PathBuf,
    /// Ends the server when this process ends in any way, because then its pipe closes.
    _watchdog: Child,
}

impl Standby {
    /// Copies a server and starts the copy, which replays what the server writes.
    pub async fn of(primary: &EmbeddedPostgres, name: &str) -> Standby {
        let source = primary.superuser_options();
        let socket = source.get_socket().unwrap().clone();
        let account = Account::of(primary, &socket);
        account.admit(&source, &socket).await;
        let at = tokio::task::spawn_blocking(server::folder).await.unwrap();
        let (data, run) = (account.folder(&at.join(name)), account.folder(&at.join(format!("{name}-run"))));

        let mut copy = account.command("pg_basebackup");
        copy.arg("--pgdata").arg(&data).arg("--host").arg(&socket).args(["--username", source.get_username()]);
        copy.args(["--no-password", "--checkpoint=fast", "--wal-method=stream", "--write-recovery-conf"]);
        copy.args(["--port", &source.get_port().to_string()]);
        let copied = tokio::task::spawn_blocking(move || copy.output()).await.unwrap().unwrap();
        assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));

        let mut watchdog = account.command_of(Path::new("/bin/sh"));
        watchdog
            .args(["-c", r#""$0" "$@" & server=$!; cat >/dev/null; kill -INT $server; wait $server"#])
            .arg(account.home.join("bin/postgres"))
            .arg("-D")
            .arg(&data)
            .args(["-c", "listen_addresses=", "-c", "shared_buffers=64MB", "-c"])
            .arg(format!("unix_socket_directories={}", run.display()))
            .arg("-c")
            .arg(format!("port={}", source.get_port()))
            .arg("-c")
            .arg(format!("cluster_name={name}"))
            .stdin(Stdio::piped())
            // Nobody reads it, and a full pipe would stop the server.
            .stderr(Stdio::null());
        let watchdog = watchdog.spawn().unwrap();
        let options = primary.connect_options().socket(&run);
        until("the standby to answer", async || PgConnection::connect_with(&options).await.ok()).await;
        Standby { superuser: source.socket(&run), options, data, _watchdog: watchdog }
    }

    /// How the service calls it.
    pub fn name(&self) -> String {
        self.options.get_socket().unwrap().display().to_string()
    }

    /// Asks it something, or has it do it, as superuser.
    pub async fn ask<T>(&self, statement: &'static str) -> T
    where
        T: for<'r> sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres> + Send + Unpin,
    {
        self.try_ask(statement).await.unwrap()
    }

    /// The same where replay may end the question.
    pub async fn try_ask<T>(&self, statement: &'static str) -> sqlx::Result<T>
    where
        T: for<'r> sqlx::Decode<'r, sqlx::Postgres> + sqlx::Type<sqlx::Postgres> + Send + Unpin,
    {
        let mut conn = PgConnection::connect_with(&self.superuser).await?;
        let answer = sqlx::query_scalar(statement).fetch_one(&mut conn).await?;
        conn.close().await?;
        Ok(answer)
    }

    /// Changes how it is set up.
    pub async fn set(&self, change: &'static str) {
        let mut conn = PgConnection::connect_with(&self.superuser).await.unwrap();
        sqlx::raw_sql(change).execute(&mut conn).await.unwrap();
        sqlx::query("SELECT pg_reload_conf()").execute(&mut conn).await.unwrap();
        conn.close().await.unwrap();
    }

    /// Has it replay what another standby replays, and go on with that one where it is promoted.
    pub async fn follow(&self, other: &Standby) {
        let (of, name) = (&other.superuser, other.name());
        let address = format!("host={name} port={} user={}", of.get_port(), of.get_username());
        let mut conn = PgConnection::connect_with(&self.superuser).await.unwrap();
        let change = format!("ALTER SYSTEM SET primary_conninfo = '{address}'");
        sqlx::raw_sql(sqlx::AssertSqlSafe(change)).execute(&mut conn).await.unwrap();
        sqlx::query("SELECT pg_reload_conf()").execute(&mut conn).await.unwrap();
        conn.close().await.unwrap();
        until("the other one to send it its log", async || {
            let streams = "SELECT EXISTS (SELECT FROM pg_stat_replication WHERE state = 'streaming')";
            other.ask::<bool>(streams).await.then_some(())
        })
        .await;
    }

    /// The file of the socket that it listens on.
    pub fn socket(&self) -> PathBuf {
        self.options.get_socket().unwrap().join(format!(".s.PGSQL.{}", self.options.get_port()))
    }

    /// Stops its replay, so that it stays as it is.
    pub async fn pause(&self) {
        self.ask::<i32>("SELECT 1 FROM pg_wal_replay_pause()").await;
        until("the replay to pause", async || {
            self.ask::<bool>("SELECT pg_get_wal_replay_pause_state() = 'paused'").await.then_some(())
        })
        .await;
    }

    pub async fn resume(&self) {
        self.ask::<i32>("SELECT 1 FROM pg_wal_replay_resume()").await;
    }

    /// Ends it as a loss of power does.
    pub fn kill(&self) {
        let text = fs::read_to_string(self.data.join("postmaster.pid")).unwrap();
        let pid = Pid::from_raw(text.lines().next().unwrap().parse().unwrap()).unwrap();
        kill_process(pid, Signal::KILL).unwrap();
    }
}

/// The user of the primary's server, who also runs its standbys, and the server's programs.
struct Account {
    uid: u32,
    gid: u32,
    home: PathBuf,
    cluster: PathBuf,
}

impl Account {
    fn of(primary: &EmbeddedPostgres, socket: &Path) -> Account {
        // The system says which files the server has, because they may have been copied to where its user can read them.
        let process = PathBuf::from(format!("/proc/{}", primary.server_pid().unwrap()));
        let program = fs::read_link(process.join("exe")).unwrap();
        let home = program.parent().and_then(Path::parent).unwrap().to_owned();
        let cluster = fs::read_link(process.join("cwd")).unwrap();
        let owner = fs::metadata(socket).unwrap();
        Account { uid: owner.uid(), gid: owner.gid(), home, cluster }
    }

    /// Lets this user connect to the primary, which admits the service's user alone.
    async fn admit(&self, superuser: &PgConnectOptions, socket: &Path) {
        let users = fs::read_to_string("/etc/passwd").unwrap();
        let uid = self.uid.to_string();
        let is_it = |line: &&str| line.split(':').nth(2) == Some(uid.as_str());
        let user = users.lines().find(is_it).and_then(|line| line.split(':').next()).unwrap();
        let map = self.cluster.join("pg_ident.conf");
        let line = format!("svc \"{user}\" {}\n", superuser.get_username());
        let admitted = fs::read_to_string(&map).unwrap();
        if admitted.contains(&line) {
            return;
        }
        fs::write(&map, admitted + &line).unwrap();
        let mut conn = PgConnection::connect_with(superuser).await.unwrap();
        sqlx::query("SELECT pg_reload_conf()").execute(&mut conn).await.unwrap();
        conn.close().await.unwrap();
        until("the primary to admit its standbys", async || {
            let mut look = self.command("psql");
            look.arg("--host").arg(socket).args(["--username", superuser.get_username(), "--no-password"]);
            look.args(["--port", &superuser.get_port().to_string(), "--command", "SELECT 1", "postgres"]);
            let output = tokio::task::spawn_blocking(move || look.output()).await.unwrap().unwrap();
            output.status.success().then_some(())
        })
        .await;
    }

    /// An empty folder of this user's.
    fn folder(&self, path: &Path) -> PathBuf {
        fs::create_dir(path).unwrap();
        if rustix::process::geteuid().is_root() {
            chown(path, Some(self.uid), Some(self.gid)).unwrap();
        }
        fs::set_permissions(path, fs::Permissions::from_mode(0o700)).unwrap();
        path.to_owned()
    }

    fn command(&self, program: &str) -> Command {
        self.command_of(&self.home.join("bin").join(program))
    }

    /// A program that this user runs, in a process group of its own.
    fn command_of(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env_clear().env("LC_ALL", "C").env("PATH", "/usr/bin:/bin");
        command.env("LD_LIBRARY_PATH", self.home.join("lib"));
        command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0);
        if rustix::process::geteuid().is_root() {
            command.uid(self.uid).gid(self.gid);
        }
        command
    }
}
