//! The managed PostgreSQL: a server of our own in the data folder, for users who bring none.
//!
//! One service uses a data folder at a time, which a lock ensures. The server has a private socket and no network. It
//! is started with the service, watched, and stopped with it. The next start ends a server that a killed service left
//! running.

use crate::store::roles;
use sqlx::{
    Connection, PgConnection,
    postgres::{PgConnectOptions, PgSslMode},
};
use std::{
    io,
    path::{Path, PathBuf},
};
use tokio::sync::watch;

mod account;
mod admission;
pub mod backup;
mod cluster;
mod holder;
mod relocation;
mod server;
mod supervisor;

use self::{cluster::Cluster, holder::Holder, supervisor::Supervisor};

/// The database of the service.
const NAME: &str = "svc";
/// The role of the service. It owns the database and is no superuser.
const ROLE: &str = "svc_app";
/// The role that the cluster was made with, for what needs a superuser.
pub const SUPERUSER: &str = "svc";
/// The server listens on no network, so the number only names the socket file.
const PORT: u16 = 5432;

/// Why the embedded PostgreSQL cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum EmbeddedError {
    #[error(
        "no PostgreSQL server in {home}: run `make setup`, or set SVC_DATABASE_URL to a server with pgvector",
        home = .0.display()
    )]
    NoServer(PathBuf),
    #[error(
        "the data folder {path} is in use by {holder}: stop that service, or give this one another SVC_DATA_DIR",
        path = path.display()
    )]
    InUse { path: PathBuf, holder: String },
    #[error(
        "PostgreSQL runs as user {uid}, which may not enter {folder}: allow it (chmod o+x), or set SVC_DATA_DIR elsewhere",
        folder = folder.display()
    )]
    Unreachable { folder: PathBuf, uid: u32 },
    #[error("{path} belongs to user {uid}: run the service as that user or as root, or set SVC_DATA_DIR elsewhere", path = path.display())]
    ForeignOwner { path: PathBuf, uid: u32 },
    #[error("{path} is not a private folder of user {uid}: remove it, or set a shorter SVC_DATA_DIR", path = path.display())]
    SocketFolder { path: PathBuf, uid: u32 },
    #[error(
        "PostgreSQL's own programs cannot handle a path with a quote, `$`, backslash or line break: {path:?}; choose another"
    )]
    PathForShell { path: PathBuf },
    #[error("run as root, PostgreSQL needs an unprivileged user, and there is neither postgres nor nobody: create one")]
    NoAccount,
    #[error(
        "user {uid}, who runs the service, has no name on this machine, and PostgreSQL needs one: add it to /etc/passwd"
    )]
    Nameless { uid: u32 },
    #[error("cannot {action} {path}: {source}", path = path.display())]
    File { action: &'static str, path: PathBuf, source: io::Error },
    #[error("PostgreSQL could not make its data folder ({status}): {output}")]
    Initdb { status: String, output: String },
    #[error("PostgreSQL did not start ({status}); the end of {log}: {output}", log = log.display())]
    Start { status: String, log: PathBuf, output: String },
    #[error("a PostgreSQL of an earlier service (process {pid}) does not end: end it, then start again")]
    Leftover { pid: u32 },
    #[error("the embedded PostgreSQL answers, but not to the service: {0}")]
    Database(#[from] sqlx::Error),
    #[error("no service runs on the data folder {path}: start one, or set SVC_DATABASE_URL", path = .0.display())]
    NotRunning(PathBuf),
    #[error(
        "a restore into the data folder {path} broke off: run `svc restore` again, or empty the folder",
        path = .0.display()
    )]
    Unrestored(PathBuf),
    #[error("preparing the embedded PostgreSQL was interrupted")]
    Cancelled,
}

impl EmbeddedError {
    /// For `map_err`: says what was being done to which path.
    fn file(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_path_buf();
        move |source| Self::File { action, path, source }
    }
}

/// What the server is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerState {
    Running,
    /// It ended by itself and is being restarted.
    Restarting,
    /// It ended too often; the text says how it ended last.
    Failed(String),
    Stopped,
}

/// A running PostgreSQL of our own. Call [`EmbeddedPostgres::stop`] at the end; dropping it asks the server to stop but
/// does not wait.
#[derive(Debug)]
pub struct EmbeddedPostgres {
    socket_dir: PathBuf,
    supervisor: Supervisor,
    /// Fields are dropped in order, so this comes last: nobody else may take the folder before the server is told to
    /// stop.
    _holder: Holder,
}

impl EmbeddedPostgres {
    /// Starts the server of `postgres_home` (it holds `bin/postgres`) on `data_dir`, which is made if it is missing,
    /// and creates the service's database. Returns when the server answers.
    pub async fn start(data_dir: &Path, postgres_home: &Path) -> Result<Self, EmbeddedError> {
        let (data_dir, home) = (data_dir.to_path_buf(), postgres_home.to_path_buf());
        let prepare = move || {
            let data_dir = cluster::make_data_dir(&data_dir)?;
            let holder = Holder::take(&data_dir)?;
            Ok::<_, EmbeddedError>((Cluster::open(&data_dir, &home)?, holder))
        };
        let (cluster, holder) = tokio::task::spawn_blocking(prepare).await.map_err(|_| EmbeddedError::Cancelled)??;
        server::end_leftovers(&cluster).await?;
        cluster.initialise().await?;

        let socket_dir = cluster.socket_dir.clone();
        let supervisor = Supervisor::start(cluster).await?;
        let embedded = Self { socket_dir, supervisor, _holder: holder };
        embedded.prepare().await?;
        Ok(embedded)
    }

    /// How another process of the same user connects to the server that a service runs on `data_dir`.
    pub fn connect_options_of(data_dir: &Path) -> Result<PgConnectOptions, EmbeddedError> {
        let not_running = || EmbeddedError::NotRunning(data_dir.to_path_buf());
        let folder = std::fs::canonicalize(data_dir).map_err(|_| not_running())?;
        let socket_dir = cluster::existing_socket_dir(&folder).ok_or_else(not_running)?;
        Ok(connect_options(&socket_dir, ROLE))
    }

    /// How to connect to the service's database as its owner.
    pub fn connect_options(&self) -> PgConnectOptions {
        connect_options(&self.socket_dir, ROLE)
    }

    /// How to connect as superuser, for what the service itself never does, such as making another database.
    pub fn superuser_options(&self) -> PgConnectOptions {
        connect_options(&self.socket_dir, SUPERUSER)
    }

    /// The server's state and its changes; on `Failed` the service should end.
    pub fn state(&self) -> watch::Receiver<ServerState> {
        self.supervisor.state()
    }

    /// The process id of the server while it runs.
    pub fn server_pid(&self) -> Option<u32> {
        self.supervisor.pid()
    }

    /// Stops the server: open transactions are rolled back, everything committed is kept. Returns when it has ended.
    pub async fn stop(self) {
        self.supervisor.stop().await;
    }

    /// Makes the role, its database and the extension, whatever an earlier start left.
    async fn prepare(&self) -> Result<(), EmbeddedError> {
        let mut server = PgConnection::connect_with(&self.superuser_options().database("postgres")).await?;
        roles::ensure(&mut server, ROLE).await?;
        roles::ensure_database(&mut server, NAME, ROLE).await?;
        server.close().await?;
        let mut database = PgConnection::connect_with(&self.superuser_options()).await?;
        roles::ensure_vector(&mut database).await?;
        roles::hand_over(&mut database, ROLE).await?;
        Ok(database.close().await?)
    }
}

fn connect_options(socket_dir: &Path, role: &str) -> PgConnectOptions {
    // Password files and certificates play no part on a private socket.
    PgConnectOptions::new_without_pgpass()
        .socket(socket_dir)
        .port(PORT)
        .username(role)
        .database(NAME)
        .ssl_mode(PgSslMode::Disable)
}
