//! What can be done to the fleet.
use crate::support::{
    broker::Broker,
    disk::Disk,
    proxy::{Proxy, Weather},
};
use rand::{RngExt, rngs::SmallRng};
use rustix::process::{Pid, Signal, kill_process};
use sqlx::{Connection, PgConnection, postgres::PgConnectOptions};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};
use svc::embedded::EmbeddedPostgres;

/// The lease of all workers but the first; short, so that many expire within a minute.
pub const LEASE: Duration = Duration::from_millis(1500);
/// The lease of the first worker; as long as a real fleet's, so that whatever waits for it waits visibly.
pub const LONG_LEASE: Duration = Duration::from_secs(30);
/// A shorter run never outlasts the long lease.
const LONG_RUN: Duration = Duration::from_secs(300);
const WORKERS: usize = 4;

/// Each fault, with how often it is drawn.
const FAULTS: &[(Fault, u32)] = &[
    (Fault::KillWorker, 6),
    (Fault::StopWorker, 4),
    (Fault::StopWithinLease, 3),
    (Fault::OutlastLongLease, 1),
    (Fault::TerminateBackend, 6),
    (Fault::KillBackend, 2),
    (Fault::RestartServer, 1),
    (Fault::ExhaustConnections, 2),
    (Fault::CutNetwork, 3),
    (Fault::BlackholeNetwork, 3),
    (Fault::SlowNetwork, 2),
    (Fault::FillDisk, 1),
    (Fault::CrashBroker, 2),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    KillWorker,
    /// Stops a worker until its lease has expired, and lets it go on: a zombie.
    StopWorker,
    /// The first worker stops for a while, and nobody else may wait for it.
    StopWithinLease,
    /// The first worker becomes a zombie.
    OutlastLongLease,
    TerminateBackend,
    /// SIGKILL, after which the whole server recovers.
    KillBackend,
    RestartServer,
    ExhaustConnections,
    CutNetwork,
    BlackholeNetwork,
    SlowNetwork,
    FillDisk,
    /// SIGKILL; it comes back with what it had written.
    CrashBroker,
}

/// The processes that are hurt.
pub struct Fleet {
    pub options: PgConnectOptions,
    pub database: EmbeddedPostgres,
    pub counts: BTreeMap<Fault, u32>,
    proxy: Proxy,
    workers: Workers,
    started: usize,
    data_dir: PathBuf,
    disk: Option<Disk>,
    broker: Option<Broker>,
    is_long: bool,
}

/// The processes, each with its slot. They end with the test, however it ends.
struct Workers(Vec<(Child, usize)>);

impl Drop for Workers {
    fn drop(&mut self) {
        for (worker, _) in &mut self.0 {
            let _ = worker.kill();
            let _ = worker.wait();
        }
    }
}

impl Fleet {
    /// Starts the fleet for a run of this length.
    pub async fn start(
        database: EmbeddedPostgres,
        data_dir: &Path,
        disk: Option<Disk>,
        broker: Option<Broker>,
        time: Duration,
    ) -> Fleet {
        let options = database.connect_options();
        let socket = options.get_socket().unwrap().join(format!(".s.PGSQL.{}", options.get_port()));
        let proxy = Proxy::start(socket).await;
        let mut fleet = Fleet {
            options,
            database,
            counts: BTreeMap::new(),
            proxy,
            workers: Workers(Vec::new()),
            started: 0,
            data_dir: data_dir.to_owned(),
            disk,
            broker,
            is_long: time >= LONG_RUN,
        };
        for slot in 0..WORKERS {
            let worker = fleet.spawn(slot);
            fleet.workers.0.push((worker, slot));
        }
        fleet
    }

    /// The first slots connect to the server's socket, the last one through the proxy.
    fn url(&self, slot: usize) -> String {
        let (user, database) = (self.options.get_username(), self.options.get_database().unwrap_or_default());
        if slot + 1 == WORKERS {
            return format!("postgres://{user}@{}/{database}?sslmode=disable", self.proxy.address);
        }
        let socket = self.options.get_socket().unwrap().display().to_string();
        format!("postgres://{user}@localhost:{}/{database}?host={socket}", self.options.get_port())
    }

    fn spawn(&mut self, slot: usize) -> Child {
        self.started += 1;
        let lease = if slot == 0 { LONG_LEASE } else { LEASE };
        let seconds = |part: f64| (lease.as_secs_f64() * part).to_string();
        Command::new(env!("CARGO_BIN_EXE_svc-worker"))
            .args(["--worker-id", &format!("worker-{slot}-{}", self.started), "--config", "/dev/null"])
            .args(["--poll-seconds", "0.05", "--heartbeat-seconds", &seconds(0.3), "--lease-seconds", &seconds(1.0)])
            .args(["--reap-seconds", "0.3", "--log-level", "error"])
            .env("SVC_DATABASE_URL", self.url(slot))
            .env("SVC_DATA_DIR", &self.data_dir)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    }

    fn draw(&self, random: &mut SmallRng) -> Fault {
        let faults = FAULTS.iter().filter(|(fault, _)| match fault {
            Fault::FillDisk => self.disk.is_some(),
            Fault::CrashBroker => self.broker.is_some(),
            Fault::OutlastLongLease => self.is_long,
            _ => true,
        });
        let mut at = random.random_range(0..faults.clone().map(|(_, weight)| weight).sum());
        for (fault, weight) in faults {
            if at < *weight {
                return *fault;
            }
            at -= weight;
        }
        Fault::KillWorker
    }

    /// Applies one fault, and ends it if it has an end.
    pub async fn hurt(&mut self, random: &mut SmallRng) {
        self.revive();
        let fault = self.draw(random);
        *self.counts.entry(fault).or_default() += 1;
        let slot = random.random_range(0..WORKERS);
        let while_it_lasts = Duration::from_millis(random.random_range(100..2500));
        let pick: usize = random.random_range(0..1000);
        match fault {
            Fault::KillWorker => self.kill(slot),
            Fault::StopWorker => self.stop(1 + slot % (WORKERS - 1), LEASE + LEASE / 2).await,
            Fault::StopWithinLease => {
                let before = self.progress().await;
                self.stop(0, Duration::from_secs(2) + 2 * while_it_lasts).await;
                self.check_progress(before).await;
            }
            Fault::OutlastLongLease => {
                let before = self.progress().await;
                self.stop(0, LONG_LEASE + LONG_LEASE / 2).await;
                self.check_progress(before).await;
            }
            Fault::TerminateBackend => {
                if let Some(pid) = self.backend(pick).await
                    && let Ok(mut conn) = PgConnection::connect_with(&self.options).await
                {
                    let _ = sqlx::query("SELECT pg_terminate_backend($1)").bind(pid).execute(&mut conn).await;
                }
            }
            Fault::KillBackend => {
                if let Some(pid) = self.backend(pick).await.and_then(Pid::from_raw) {
                    let _ = kill_process(pid, Signal::KILL);
                }
            }
            Fault::RestartServer => {
                // This is an immediate shutdown: the supervisor restarts the server, which then recovers.
                if let Some(pid) = self.database.server_pid().and_then(|pid| Pid::from_raw(pid.cast_signed())) {
                    let _ = kill_process(pid, Signal::QUIT);
                }
            }
            Fault::ExhaustConnections => {
                let mut held = Vec::new();
                for _ in 0..1000 {
                    match PgConnection::connect_with(&self.options).await {
                        Ok(conn) => held.push(conn),
                        Err(_) => break,
                    }
                }
                tokio::time::sleep(while_it_lasts).await;
            }
            Fault::CutNetwork => self.weather(Weather::Cut, while_it_lasts).await,
            Fault::BlackholeNetwork => self.weather(Weather::Blackhole, while_it_lasts + LEASE).await,
            Fault::SlowNetwork => self.weather(Weather::Slow(Duration::from_millis(30)), while_it_lasts).await,
            Fault::FillDisk => {
                if let Some(disk) = &self.disk {
                    disk.fill();
                    tokio::time::sleep(while_it_lasts).await;
                    disk.free();
                }
            }
            Fault::CrashBroker => {
                if let Some(mut broker) = self.broker.take() {
                    let crashed = tokio::task::spawn_blocking(move || {
                        broker.crash();
                        broker
                    });
                    self.broker = Some(crashed.await.unwrap());
                }
            }
        }
    }

    async fn stop(&self, slot: usize, time: Duration) {
        let pid = Pid::from_child(&self.workers.0[slot].0);
        let _ = kill_process(pid, Signal::STOP);
        tokio::time::sleep(time).await;
        let _ = kill_process(pid, Signal::CONT);
    }

    /// How many tasks were ever queued, and how many attempts were logged; `None` while the server recovers.
    async fn progress(&self) -> Option<(i64, i64)> {
        let mut conn = PgConnection::connect_with(&self.options).await.ok()?;
        let counts =
            "SELECT coalesce((SELECT max(id) FROM task_queue), 0), coalesce((SELECT max(id) FROM task_attempts), 0)";
        sqlx::query_as(counts).fetch_one(&mut conn).await.ok()
    }

    /// Checks that the others worked while one worker stood still, if anything came in.
    async fn check_progress(&self, before: Option<(i64, i64)>) {
        let (Some((queued, attempts)), Some((queued_now, attempts_now))) = (before, self.progress().await) else {
            return;
        };
        assert!(
            attempts_now > attempts || queued_now < queued + 3,
            "{} tasks were queued while one worker stood still, and no other worker did any",
            queued_now - queued
        );
    }

    async fn weather(&self, weather: Weather, time: Duration) {
        self.proxy.set(weather);
        tokio::time::sleep(time).await;
        self.proxy.set(Weather::Fair);
    }

    /// A backend of another client than the one that asks.
    async fn backend(&self, pick: usize) -> Option<i32> {
        let mut conn = PgConnection::connect_with(&self.options).await.ok()?;
        let pids: Vec<i32> = sqlx::query_scalar(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() ORDER BY pid",
        )
        .fetch_all(&mut conn)
        .await
        .ok()?;
        pids.get(pick % pids.len().max(1)).copied()
    }

    fn kill(&mut self, slot: usize) {
        let worker = &mut self.workers.0[slot].0;
        let _ = worker.kill();
        let _ = worker.wait();
        self.workers.0[slot].0 = self.spawn(slot);
    }

    /// Restarts what ended, as the operator of a fleet would.
    pub fn revive(&mut self) {
        for slot in 0..WORKERS {
            if !matches!(self.workers.0[slot].0.try_wait(), Ok(None)) {
                self.workers.0[slot].0 = self.spawn(slot);
            }
        }
    }

    /// How the database is, who is connected to it, and what was done to it.
    pub async fn database_text(&self) -> String {
        let sessions = async {
            let mut conn = PgConnection::connect_with(&self.database.superuser_options()).await?;
            let sessions = "SELECT string_agg(concat_ws(' ', pid, usename, application_name, state, wait_event, left(query, 80)), E'\\n' ORDER BY pid) FROM pg_stat_activity";
            sqlx::query_scalar::<_, String>(sessions).fetch_one(&mut conn).await
        };
        let sessions = sessions.await.unwrap_or_else(|error| format!("no answer: {error}"));
        let state = self.database.state().borrow().clone();
        format!("the database: {state:?}; done: {:?}; its sessions:\n{sessions}", self.counts)
    }

    /// Ends the workers and gives the database back.
    pub fn end(self) -> EmbeddedPostgres {
        self.database
    }
}
