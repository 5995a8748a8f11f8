//! Workers whose network fails: cut off, black-holed, slow.
use crate::{
    admin::{long_text, of_root, worker_command},
    crash::Process,
    support::{
        TestApp, Wish, invariants,
        proxy::{Proxy, Weather},
        s3::BYTES_IN_DATABASE,
        until,
    },
};
use sqlx::{Connection, PgConnection};
use std::{
    path::PathBuf,
    process::{Command, Stdio},
    time::Duration,
};
use svc_client::wire::{DocumentPath, Settled, TaskQuery, TaskStatus};

/// A worker whose connections all go through the proxy.
fn behind(app: &TestApp, proxy: &Proxy, name: &str, pace: &[&str]) -> Process {
    let (user, database) = (app.options.get_username(), app.options.get_database().unwrap());
    let url = format!("postgres://{user}@{}/{database}?sslmode=disable", proxy.address);
    let mut command = worker_command(app, &[&["--worker-id", name][..], pace].concat());
    Process(command.env("SVC_DATABASE_URL", url).spawn().unwrap())
}

/// A lease short enough for the test to see it expire, and long enough for the heart of a worker that is alone to get its turns on a loaded machine: a task
/// that loses its lease too often fails.
const HASTE: &[&str] =
    &["--poll-seconds", "0.1", "--heartbeat-seconds", "0.5", "--lease-seconds", "5", "--reap-seconds", "0.3"];

fn socket(app: &TestApp) -> PathBuf {
    app.options.get_socket().unwrap().join(format!(".s.PGSQL.{}", app.options.get_port()))
}

async fn proxy(app: &TestApp) -> Proxy {
    Proxy::start(socket(app)).await
}

/// Waits until this worker runs a task.
async fn runs(app: &TestApp, root: i64, worker: &str) {
    until("the worker to run an embed task", async || {
        let query =
            TaskQuery { status: Some(TaskStatus::Running), task_type: Some("embed".to_owned()), ..of_root(root) };
        let tasks = app.client.list_tasks(query).await.unwrap().tasks;
        tasks.into_iter().find(|task| task.claimed_by.as_deref() == Some(worker))
    })
    .await;
}

/// What is between a worker and the database.
trait Road {
    fn worker(&self, app: &TestApp, name: &str) -> Process;
    fn close(&self);
    fn open(&self);
}

/// A proxy whose weather turns.
struct Stormy(Proxy, Weather);

impl Road for Stormy {
    fn worker(&self, app: &TestApp, name: &str) -> Process {
        behind(app, &self.0, name, HASTE)
    }
    fn close(&self) {
        self.0.set(self.1);
    }
    fn open(&self) {
        self.0.set(Weather::Fair);
    }
}

/// One worker is cut off in the middle of a task, and another takes over. Then the first comes back and works alone.
async fn cut_off(app: TestApp, road: impl Road, other: impl FnOnce(&TestApp) -> Process) {
    // No embed task ends before the road is closed, which may take a while.
    let mut locker = PgConnection::connect_with(&app.options).await.unwrap();
    sqlx::raw_sql("BEGIN; LOCK TABLE document_vectors IN SHARE MODE").execute(&mut locker).await.unwrap();
    let first = app.upload_bytes("first.md", long_text()).await.unwrap().document_id;
    let far = road.worker(&app, "far");
    runs(&app, first, "far").await;
    road.close();
    sqlx::raw_sql("ROLLBACK").execute(&mut locker).await.unwrap();
    locker.close().await.unwrap();
    let near = other(&app);
    assert_eq!(app.settled(first).await.settled, Settled::Settled, "another worker takes over");
    let count = async |outcome: &str, worker: &str| -> i64 {
        sqlx::query_scalar("SELECT count(*) FROM task_attempts WHERE outcome = $1 AND worker = $2")
            .bind(outcome)
            .bind(worker)
            .fetch_one(&app.pool)
            .await
            .unwrap()
    };
    assert!(count("lease_lost", "far").await > 0, "the lease of the one cut off ran out");
    let before = count("completed", "far").await;
    drop(near);
    road.open();
    // Alone again, it comes back by itself and works.
    let mut second = long_text();
    second.extend(b"# And another part\n\nSo that these are other bytes.\n");
    let second = app.upload_bytes("second.md", second).await.unwrap().document_id;
    assert_eq!(app.settled(second).await.settled, Settled::Settled);
    assert!(count("completed", "far").await > before, "the one that was cut off works again");
    drop(far);
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

fn near(app: &TestApp) -> Process {
    Process(worker_command(app, &[&["--worker-id", "near"][..], HASTE].concat()).spawn().unwrap())
}

async fn idle() -> TestApp {
    TestApp::with(Wish { no_worker: true, ..Default::default() }).await
}

#[tokio::test]
async fn a_worker_whose_connections_are_cut_loses_its_tasks_and_comes_back() {
    let app = idle().await;
    let road = Stormy(proxy(&app).await, Weather::Cut);
    cut_off(app, road, near).await;
}

#[tokio::test]
async fn a_worker_in_a_black_hole_loses_its_tasks_and_comes_back() {
    let app = idle().await;
    let road = Stormy(proxy(&app).await, Weather::Blackhole);
    cut_off(app, road, near).await;
}

#[tokio::test]
async fn a_slow_network_slows_work_and_breaks_nothing() {
    let app = idle().await;
    let proxy = proxy(&app).await;
    proxy.set(Weather::Slow(Duration::from_millis(5)));
    let _far = behind(&app, &proxy, "far", &["--poll-seconds", "0.1"]);
    let id = app.upload(&crate::support::sample("handbook.md")).await.unwrap().document_id;
    assert_eq!(app.settled(id).await.settled, Settled::Settled);
    assert_eq!(app.client.read_frontier(DocumentPath { id }).await.unwrap().nodes_failed, 0);
    invariants::check_drained(&app.pool).await;
    app.end().await;
}

/// A host of its own: a network namespace with one cable to the database's host.
struct Host {
    name: String,
    cable: String,
    database: String,
}

impl Host {
    /// Returns `None` if the kernel does not let this user make one.
    fn new(number: u8) -> Option<Host> {
        let tag = std::process::id() % 10_000;
        let (name, cable, far_end) =
            (format!("svc{tag}h{number}"), format!("svc{tag}v{number}"), format!("svc{tag}e{number}"));
        // 198.51.100.0/24 is a documentation network, which nobody uses but these tests.
        let (here, there) = free_addresses(std::process::id() + u32::from(number))?;
        let host = Host { name: name.clone(), cable: cable.clone(), database: here.clone() };
        let done = ip(&["netns", "add", &name])
            && ip(&["link", "add", &cable, "type", "veth", "peer", "name", &far_end, "netns", &name])
            && ip(&["addr", "add", &format!("{here}/30"), "dev", &cable])
            && ip(&["link", "set", &cable, "up"])
            && ip(&["-n", &name, "addr", "add", &format!("{there}/30"), "dev", &far_end])
            && ip(&["-n", &name, "link", "set", &far_end, "up"])
            && ip(&["-n", &name, "link", "set", "lo", "up"])
            // Some containers let one make a host, and not run anything on it.
            && ip(&["netns", "exec", &name, "true"]);
        done.then_some(host)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        ip(&["netns", "delete", &self.name]);
        ip(&["link", "delete", &self.cable]);
    }
}

/// Two addresses of a cable that no other cable has, such as one of another run of these tests or of one that was killed. Returns `None` if this machine does
/// not tell its addresses.
fn free_addresses(start: u32) -> Option<(String, String)> {
    let told = Command::new("ip").args(["-4", "-o", "addr", "show"]).stdin(Stdio::null()).output().ok()?;
    let taken = String::from_utf8_lossy(&told.stdout);
    let mut pairs = (0..62)
        .map(|at| (start + at) % 62 * 4)
        .map(|first| (format!("198.51.100.{}", first + 1), format!("198.51.100.{}", first + 2)));
    pairs.find(|(here, _)| told.status.success() && !taken.contains(&format!(" {here}/")))
}

fn ip(arguments: &[&str]) -> bool {
    let status = Command::new("ip").args(arguments).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

/// A host's way to the database: its cable, and the forwarder from there to the server's socket.
struct Cable {
    host: Host,
    server: Proxy,
}

impl Cable {
    async fn new(app: &TestApp, host: Host) -> Cable {
        let server = Proxy::start_on(&host.database, socket(app)).await;
        Cable { host, server }
    }
}

impl Road for Cable {
    fn worker(&self, app: &TestApp, name: &str) -> Process {
        let worker = worker_command(app, &[&["--worker-id", name][..], HASTE].concat());
        let (user, database) = (app.options.get_username(), app.options.get_database().unwrap());
        let url = format!("postgres://{user}@{}/{database}?sslmode=disable", self.server.address);
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.host.name]);
        command.arg(worker.get_program()).args(worker.get_args()).stdin(Stdio::null());
        for (variable, value) in worker.get_envs() {
            command.env(variable, value.unwrap_or_default());
        }
        Process(command.env("SVC_DATABASE_URL", url).envs([BYTES_IN_DATABASE]).spawn().unwrap())
    }
    fn close(&self) {
        assert!(ip(&["link", "set", &self.host.cable, "down"]));
    }
    fn open(&self) {
        assert!(ip(&["link", "set", &self.host.cable, "up"]));
    }
}

#[tokio::test]
async fn of_two_hosts_one_is_cut_off_and_comes_back() {
    let (Some(first), Some(second)) = (Host::new(1), Host::new(2)) else {
        crate::support::left_out(
            "two hosts (the kernel gives this user no network namespaces, or iproute2 is missing)",
        );
        return;
    };
    // A cable leads to the database alone.
    let settings = &[BYTES_IN_DATABASE];
    let app = TestApp::with(Wish { no_worker: true, settings, ..Default::default() }).await;
    let (first, second) = (Cable::new(&app, first).await, Cable::new(&app, second).await);
    cut_off(app, first, |app| second.worker(app, "near")).await;
}
