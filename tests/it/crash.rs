//! Processes that die at the worst moment: real programs, killed with SIGKILL.
use crate::{
    members,
    support::{self, PATIENCE, TOKEN, TestApp, Wish, invariants, sample, until},
};
use rand::{RngExt, SeedableRng, rngs::SmallRng};
use rustix::process::{Pid, Signal, kill_process};
use sqlx::{Connection, PgConnection};
use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use svc_client::{
    Client, Code, FileUpload, Json, Remote,
    wire::{DocumentPath, Settled, UploadQuery, WaitQuery},
};

/// A child that ends with the test.
pub(crate) struct Process(pub Child);

impl Process {
    pub fn kill(mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(crate) fn url(options: &sqlx::postgres::PgConnectOptions) -> String {
    let socket = options.get_socket().map(|path| path.display().to_string()).unwrap_or_default();
    format!(
        "postgres://{}@localhost/{}?host={socket}",
        options.get_username(),
        options.get_database().unwrap_or_default()
    )
}

/// The service's program without a worker, on this test's database and on ports that are free.
pub(crate) fn serve_command(app: &TestApp) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_svc"));
    command
        .args(["serve", "--config", "/dev/null"])
        .env("SVC_DATABASE_URL", url(&app.options))
        .env("SVC_DATA_DIR", support::server::work_dir().join("data"))
        .envs(support::s3::of_all_tests(&app.options))
        .env("SVC_INGEST_WORKER_ENABLED", "false")
        .env("SVC_LISTEN", "127.0.0.1:0")
        .env("SVC_CONSOLE_LISTEN", "127.0.0.1:0")
        .env("SVC_API_TOKEN", TOKEN)
        .stdin(Stdio::null());
    command
}

pub(crate) fn worker(app: &TestApp, number: usize) -> Process {
    Process(worker_command(app, number).spawn().unwrap())
}

/// A worker that ends when the queue is empty.
pub(crate) fn draining(app: &TestApp, number: usize) -> Process {
    Process(worker_command(app, number).arg("--drain").spawn().unwrap())
}

pub(crate) fn worker_command(app: &TestApp, number: usize) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_svc-worker"));
    command
        .args([
            "--worker-id",
            &format!("victim-{number}"),
            "--poll-seconds",
            "0.05",
            "--heartbeat-seconds",
            "0.3",
            "--lease-seconds",
            "1",
            "--reap-seconds",
            "0.3",
        ])
        .args(["--log-level", "error", "--config", "/dev/null"])
        .env("SVC_DATABASE_URL", url(&app.options))
        .env("SVC_DATA_DIR", support::server::work_dir().join("data"))
        .envs(support::s3::of_all_tests(&app.options))
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    command
}

/// Fifty different small files, including Markdown, PDF and broken ones.
fn files() -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<(String, Vec<u8>)> =
        ["quarterly-review.pdf", "onboarding-checklist.docx", "corrupt.pdf", "corrupt.docx", "handbook.md"]
            .map(|name| (name.to_owned(), std::fs::read(sample(name)).unwrap()))
            .into();
    let birds =
        ["heron", "coot", "smew"].map(|bird| (format!("{bird}.md"), format!("# The {bird}\n\nIt waits in the reeds.")));
    let birds: Vec<_> = birds.iter().map(|(name, text)| (name.as_str(), text)).collect();
    let inner = members::archive(&birds);
    files.push(("birds.zip".to_owned(), members::archive(&[("inner.zip", &inner), ("again.zip", &inner)])));
    for n in files.len()..50 {
        let sections: String = (0..1 + n % 5)
            .map(|s| {
                format!("# Part {s} of file {n}\n\n{}\n\n", "A few plain words about nothing much. ".repeat(3 + n % 7))
            })
            .collect();
        files.push((format!("file-{n}.md"), sections.into_bytes()));
    }
    files
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn twenty_kills_of_a_worker_lose_nothing_and_do_nothing_twice() {
    let app = TestApp::with(Wish { no_worker: true, ..Default::default() }).await;
    let mut ids = Vec::new();
    for (name, bytes) in files() {
        ids.push(app.upload_bytes(&name, bytes).await.unwrap().document_id);
    }
    let mut random = SmallRng::seed_from_u64(20);
    let (mut kills, mut working) = (0, 0);
    let started = Instant::now();
    while kills < 20 {
        assert!(started.elapsed() < PATIENCE, "workers take too long to start");
        let victim = worker(&app, kills);
        // It is killed a while after it holds something, so that each kill hurts.
        let name = format!("victim-{kills}");
        let holds = async {
            loop {
                let held: i64 = sqlx::query_scalar("SELECT count(*) FROM task_queue WHERE claimed_by = $1")
                    .bind(&name)
                    .fetch_one(&app.pool)
                    .await
                    .unwrap();
                let left: i64 = sqlx::query_scalar("SELECT count(*) FROM task_queue WHERE NOT final")
                    .fetch_one(&app.pool)
                    .await
                    .unwrap();
                if held > 0 || left == 0 {
                    return held > 0;
                }
                tokio::time::timeout(Duration::from_millis(5), std::future::pending::<()>()).await.unwrap_err();
            }
        };
        working += usize::from(tokio::time::timeout(PATIENCE, holds).await.unwrap());
        tokio::time::timeout(Duration::from_millis(random.random_range(0..150)), std::future::pending::<()>())
            .await
            .unwrap_err();
        victim.kill();
        kills += 1;
        invariants::check(&app.pool).await;
    }
    assert!(working >= 5, "only {working} of {kills} kills met a worker at work");
    let last = worker(&app, kills);
    let mut failed = 0;
    for id in ids {
        let frontier = app.settled(id).await;
        failed += i64::from(frontier.settled == Settled::Failed);
    }
    // The broken files failed, and tasks that were held three times by workers that died.
    assert!(failed >= 2, "{failed}");
    last.kill();
    let deaths: i64 = sqlx::query_scalar("SELECT count(*) FROM task_attempts WHERE outcome = 'lease_lost'")
        .fetch_one(&app.pool)
        .await
        .unwrap();
    assert!(deaths > 0, "no lease was ever lost: the kills hit nothing");
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

/// `svc serve` with its own PostgreSQL.
struct Serving {
    process: Process,
    client: Client<Remote>,
}

fn serve(data_dir: &Path, lease: &str) -> Serving {
    let mut command = Command::new(env!("CARGO_BIN_EXE_svc"));
    command
        .args(["serve", "--config", "/dev/null"])
        .env("SVC_DATA_DIR", data_dir)
        .env("SVC_LISTEN", "127.0.0.1:0")
        .env("SVC_CONSOLE_LISTEN", "127.0.0.1:0")
        .env("SVC_API_TOKEN", "kept")
        .env("SVC_LOG_LEVEL", "error")
        .env("SVC_WORKER_HEARTBEAT_SECONDS", "0.5")
        .env("SVC_WORKER_LEASE_SECONDS", lease)
        .env("SVC_WORKER_REAP_SECONDS", "0.5")
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let line = lines.find_map(|line| line.ok().filter(|line| line.contains("serves"))).expect("the service starts");
    let address =
        line.split_whitespace().find(|word| word.starts_with("http://")).unwrap().trim_end_matches('/').to_owned();
    // The pipe stays open, because otherwise the service could not print its last line.
    std::thread::spawn(move || lines.for_each(drop));
    Serving { process: Process(child), client: Client(Remote::new(&address, "kept", support::http())) }
}

async fn done(client: &Client<Remote>, id: i64) -> Settled {
    let done = async {
        loop {
            let frontier = client.read_frontier(DocumentPath { id }).await.unwrap();
            if frontier.nodes_in_flight == 0 && frontier.tasks_unfinished == 0 {
                return frontier.settled;
            }
            tokio::time::timeout(Duration::from_millis(50), std::future::pending::<()>()).await.unwrap_err();
        }
    };
    tokio::time::timeout(PATIENCE, done).await.expect("ingestion ends")
}

struct Folder(PathBuf);
impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_killed_in_mid_ingest_goes_on_where_it_was() {
    let folder = Folder(support::server::folder().join("crash"));
    let first = tokio::task::spawn_blocking({
        let folder = folder.0.clone();
        move || serve(&folder, "2")
    })
    .await
    .unwrap();
    let mut ids = Vec::new();
    for (name, bytes) in files().into_iter().take(20) {
        let stored =
            first.client.upload_file(UploadQuery::default(), FileUpload::from_bytes(&name, bytes, None)).await.unwrap();
        ids.push(stored.document_id);
    }
    first.process.kill();
    let second = tokio::task::spawn_blocking({
        let folder = folder.0.clone();
        move || serve(&folder, "2")
    })
    .await
    .unwrap();
    for id in ids {
        done(&second.client, id).await;
    }
    let options = svc::embedded::EmbeddedPostgres::connect_options_of(&folder.0).unwrap();
    let pool = sqlx::PgPool::connect_with(options).await.unwrap();
    invariants::check_drained(&pool).await;
    pool.close().await;
    stopped(second).await;
}

/// Asks a service to stop: it ends in order and with success.
async fn stopped(serving: Serving) {
    let mut process = serving.process;
    let pid = Pid::from_raw(process.0.id().cast_signed()).unwrap();
    kill_process(pid, Signal::TERM).unwrap();
    let status = tokio::task::spawn_blocking(move || process.0.wait()).await.unwrap().unwrap();
    assert!(status.success(), "{status}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_takes_up_at_once_what_the_killed_one_on_its_data_folder_held() {
    let folder = Folder(support::server::folder().join("successor"));
    // The lease is so long that the test would not outlast it.
    let start = async || {
        let folder = folder.0.clone();
        tokio::task::spawn_blocking(move || serve(&folder, "3600")).await.unwrap()
    };
    let first = start().await;
    let options = svc::embedded::EmbeddedPostgres::connect_options_of(&folder.0).unwrap();
    let mut conn = PgConnection::connect_with(&options).await.unwrap();
    let mut locker = PgConnection::connect_with(&options).await.unwrap();
    until("its worker", async || {
        let is_there = "SELECT EXISTS (SELECT FROM workers WHERE holds_folder)";
        sqlx::query_scalar::<_, bool>(is_there).fetch_one(&mut conn).await.unwrap().then_some(())
    })
    .await;
    // No task can end, because its attempt cannot be logged.
    sqlx::raw_sql("BEGIN; LOCK TABLE task_attempts IN EXCLUSIVE MODE").execute(&mut locker).await.unwrap();
    let file = FileUpload::from_bytes("heron.md", "# The heron\n\nIt waits in the reeds.", None);
    let id = first.client.upload_file(UploadQuery::default(), file).await.unwrap().document_id;
    until("a task that is held", async || {
        let is_held = "SELECT EXISTS (SELECT FROM task_queue WHERE claim_token IS NOT NULL)";
        sqlx::query_scalar::<_, bool>(is_held).fetch_one(&mut conn).await.unwrap().then_some(())
    })
    .await;
    first.process.kill();
    // The server finishes the statements of a client that is gone.
    until("its statements to end", async || {
        let ended = "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock')";
        sqlx::query_scalar::<_, bool>(ended).fetch_one(&mut conn).await.unwrap().then_some(())
    })
    .await;
    // The start of the next service ends the server, and with it these connections and the lock.
    let second = start().await;
    drop((conn, locker));
    assert_eq!(done(&second.client, id).await, Settled::Settled);
    let pool = sqlx::PgPool::connect_with(options).await.unwrap();
    let lost: (i64, i64) = sqlx::query_as(
        "SELECT (SELECT count(*) FROM task_attempts WHERE outcome = 'lease_lost'), (SELECT coalesce(sum(lease_losses), 0) FROM task_queue)",
    )
    .fetch_one(&pool)
    .await
    .unwrap();
    assert_eq!(lost, (1, 0), "it was taken back, and a service that is killed costs its tasks nothing");
    invariants::check_drained(&pool).await;
    pool.close().await;
    stopped(second).await;
}

/// How many callers create documents at once, and how many documents are acknowledged before the service is killed.
const CALLERS: usize = 400;
const ACKNOWLEDGED: usize = 300;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_hundreds_create_at_once_is_whole_or_not_there_when_the_service_is_killed() {
    let folder = Folder(support::server::folder().join("creating"));
    let start = async || {
        let folder = folder.0.clone();
        tokio::task::spawn_blocking(move || serve(&folder, "2")).await.unwrap()
    };
    let first = start().await;
    let acknowledged = Arc::new(Mutex::new(Vec::new()));
    let mut calls = tokio::task::JoinSet::new();
    for caller in 0..CALLERS {
        let (client, acknowledged) = (first.client.clone(), acknowledged.clone());
        calls.spawn(async move {
            // Whoever is told to come again comes again, until nobody answers any more.
            for number in 0.. {
                let new = support::document(&format!("Note {caller} {number}"), "A heron waits in the reeds.");
                match client.create_document(WaitQuery::default(), Json(new)).await {
                    Ok(made) => acknowledged.lock().unwrap().push(made.document.id),
                    Err(failure) if failure.code == Code::TooManyRequests => {}
                    Err(_) => return,
                }
            }
        });
    }
    until("documents", async || (acknowledged.lock().unwrap().len() >= ACKNOWLEDGED).then_some(())).await;
    first.process.kill();
    while calls.join_next().await.is_some() {}
    let second = start().await;
    let options = svc::embedded::EmbeddedPostgres::connect_options_of(&folder.0).unwrap();
    let pool = sqlx::PgPool::connect_with(options).await.unwrap();
    until("all texts to be embedded", async || {
        let left: i64 =
            sqlx::query_scalar("SELECT count(*) FROM task_queue WHERE NOT final").fetch_one(&pool).await.unwrap();
        (left == 0).then_some(())
    })
    .await;
    let acknowledged = std::mem::take(&mut *acknowledged.lock().unwrap());
    let (lost, half): (i64, i64) = sqlx::query_as(
        "SELECT (SELECT count(*) FROM unnest($1::bigint[]) AS a(id) WHERE NOT EXISTS (SELECT FROM documents d WHERE d.id = a.id)),
                (SELECT count(*) FROM documents d WHERE NOT EXISTS (SELECT FROM document_vectors v WHERE v.document_id = d.id)
                     OR NOT EXISTS (SELECT FROM search_index_entries e WHERE e.document_id = d.id)
                     OR NOT EXISTS (SELECT FROM document_words w WHERE w.document_id = d.id)
                     OR NOT EXISTS (SELECT FROM event_outbox e WHERE e.document_id = d.id AND e.kind = 'document.created'))",
    )
    .bind(&acknowledged)
    .fetch_one(&pool)
    .await
    .unwrap();
    assert_eq!((lost, half), (0, 0), "of {} that were acknowledged", acknowledged.len());
    invariants::check_drained(&pool).await;
    pool.close().await;
    stopped(second).await;
}
