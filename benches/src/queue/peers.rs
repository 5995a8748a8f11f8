//! The queues of other projects at the same work, each on its own database of the same server; and the working
//! processes, theirs and ours.
use crate::figure::{BoxError, Peer};
use sqlx::{Connection, PgConnection, PgPool, postgres::PgConnectOptions};
use std::{
    path::{Path, PathBuf},
    process::Stdio,
    time::Instant,
};
use svc::embedded::SUPERUSER;
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
};

pub struct Peers {
    folder: PathBuf,
    has_node: bool,
}

/// A worker process that waits for its start.
struct Worker {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    stdin: ChildStdin,
}

impl Peers {
    /// Fetches them if necessary.
    pub fn set_up() -> Result<Peers, BoxError> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("queue/setup.sh");
        let made = std::process::Command::new("bash").arg(script).stderr(Stdio::inherit()).output()?;
        if !made.status.success() {
            return Err("the queue's peers could not be set up; the message above says why".into());
        }
        let folder = PathBuf::from(String::from_utf8(made.stdout)?.trim());
        let has_node = folder.join("node_modules/graphile-worker").is_dir();
        Ok(Peers { folder, has_node })
    }

    /// The available peers, each with a queue of this many tasks in its own database.
    pub async fn with_tasks(&self, pool: &PgPool, pending: usize) -> Result<Vec<Queue>, BoxError> {
        let mut queues = Vec::new();
        for (name, program) in [("procrastinate", Some(self.procrastinate())), ("graphile", self.graphile())] {
            let Some(program) = program else { continue };
            let url = self.prepare(pool, &program, name, pending).await?;
            queues.push(Queue { name, program, url });
        }
        Ok(queues)
    }

    fn procrastinate(&self) -> [PathBuf; 2] {
        [self.folder.join("venv/bin/python"), self.folder.join("procrastinate_peer.py")]
    }

    fn graphile(&self) -> Option<[PathBuf; 2]> {
        self.has_node.then(|| [PathBuf::from("node"), self.folder.join("graphile.mjs")])
    }

    /// Makes a database with this many tasks, and returns its URL.
    async fn prepare(
        &self,
        pool: &PgPool,
        program: &[PathBuf; 2],
        name: &str,
        pending: usize,
    ) -> Result<String, BoxError> {
        eprintln!("bench: {name} with {pending} pending");
        let options = superuser(pool);
        let mut admin = PgConnection::connect_with(&options).await?;
        let database = format!("peer_{name}");
        for statement in [format!("DROP DATABASE IF EXISTS {database} (FORCE)"), format!("CREATE DATABASE {database}")]
        {
            sqlx::raw_sql(sqlx::AssertSqlSafe(statement)).execute(&mut admin).await?;
        }
        let url = url(&options, &database, "")?;
        let prepared = command(program).args(["prepare", &url, &pending.to_string()]).status().await?;
        if !prepared.success() {
            return Err(format!("{name} could not be prepared").into());
        }
        sqlx::raw_sql("CHECKPOINT").execute(&mut admin).await?;
        Ok(url)
    }
}

/// The bench's server as superuser, because the service's own role may neither create databases nor disable triggers.
pub fn superuser(pool: &PgPool) -> PgConnectOptions {
    (*pool.connect_options()).clone().username(SUPERUSER)
}

/// The address of a database of the bench's server: its socket, whatever host is named.
fn url(options: &PgConnectOptions, database: &str, host: &str) -> Result<String, BoxError> {
    let socket = options.get_socket().ok_or("the bench's server has a socket")?.display().to_string();
    let (user, port) = (options.get_username(), options.get_port());
    Ok(format!("postgresql://{user}@{host}/{database}?host={}&port={port}", socket.replace('/', "%2F")))
}

/// The tasks of a peer, or ours.
pub struct Queue {
    name: &'static str,
    program: [PathBuf; 2],
    url: String,
}

/// What workers did in one turn.
pub struct Turn {
    pub tasks: usize,
    pub seconds: f64,
    /// What else each worker reported.
    pub said: Vec<String>,
}

impl Queue {
    /// Our queue, worked on by this program's subcommand of that name.
    pub fn ours(pool: &PgPool, subcommand: &'static str) -> Result<Queue, BoxError> {
        let options = pool.connect_options();
        let database = options.get_database().ok_or("the bench's database has a name")?;
        let program = [std::env::current_exe()?, subcommand.into()];
        // sqlx needs a host there, and its peers need none.
        Ok(Queue { name: subcommand, program, url: url(&options, database, "localhost")? })
    }

    /// Has this many workers, one process each, run this many tasks, each as many at once as a batch holds.
    /// procrastinate always fetches and finishes one at a time.
    pub async fn run(&self, tasks: usize, batch: usize, workers: usize) -> Result<Turn, BoxError> {
        let mut ready = Vec::new();
        for _ in 0..workers {
            ready.push(Worker::start(&self.program, &self.url, tasks / workers, batch).await?);
        }
        let start = Instant::now();
        for worker in &mut ready {
            worker.stdin.write_all(b"go\n").await?;
        }
        let mut turn = Turn { tasks: 0, seconds: 0.0, said: Vec::new() };
        for worker in &mut ready {
            let done = worker.expect("done").await?;
            let (tasks, said) = done.split_once(' ').unwrap_or((&done, ""));
            turn.tasks += tasks.parse::<usize>()?;
            turn.said.push(said.to_owned());
        }
        turn.seconds = start.elapsed().as_secs_f64();
        for mut worker in ready {
            let _ = worker.child.kill().await;
        }
        Ok(turn)
    }

    /// A figure of its rate per second with batches of this size.
    pub fn figure(&self, batch: usize, value: f64) -> Peer {
        let (name, version) = match (self.name, batch) {
            ("procrastinate", _) => ("procrastinate", "3.10.0"),
            (_, 1) => ("graphile-worker", "0.18.0"),
            _ => ("graphile-worker batched", "0.18.0"),
        };
        Peer { name, version: version.into(), value }
    }
}

fn command(program: &[PathBuf; 2]) -> Command {
    let mut command = Command::new(&program[0]);
    // Standard output is for figures, and the peers report every task on standard error.
    command.arg(&program[1]).kill_on_drop(true).stdout(Stdio::null()).stderr(Stdio::null());
    command
}

impl Worker {
    async fn start(program: &[PathBuf; 2], url: &str, tasks: usize, batch: usize) -> Result<Worker, BoxError> {
        let mut child = command(program)
            .args(["work", url, &tasks.to_string(), &batch.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let (Some(stdin), Some(stdout)) = (stdin, stdout) else { return Err("the pipes were asked for".into()) };
        let mut worker = Worker { child, lines: BufReader::new(stdout).lines(), stdin };
        worker.expect("ready").await?;
        Ok(worker)
    }

    /// Waits for a line that begins with a word, and returns the rest of the line.
    async fn expect(&mut self, word: &str) -> Result<String, BoxError> {
        while let Some(line) = self.lines.next_line().await? {
            if let Some(rest) = line.strip_prefix(word) {
                return Ok(rest.trim().to_owned());
            }
            if let Some(reason) = line.strip_prefix("failed ") {
                return Err(reason.into());
            }
        }
        Err(format!("a peer ended before it was {word}").into())
    }
}
