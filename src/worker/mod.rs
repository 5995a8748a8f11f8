//! A worker process: the actors of `svc-actors` with their ports on PostgreSQL.
mod building;
pub mod heart;
mod indexing;
mod moving;
pub mod queue;
pub mod settling;
mod starts;
pub mod together;
pub(crate) mod unserved;
pub mod wakeup;

pub use crate::graph::deriving;
use crate::{
    events::sequencer,
    ingest::{
        Tools,
        tasks::{Claims, Deadlines, TaskHandler, beside::Sharing},
    },
    load,
    settings::Settings,
    store::{self, tasks::Claimer, workers::WorkerRow},
    webhooks,
};
use sqlx::{PgPool, postgres::PgConnectOptions};
use std::{sync::Arc, time::Duration};
use svc_actors::{Lane, Permits, Worker, WorkerEnd, WorkerError, WorkerSettings};
use uuid::Uuid;

/// The time that a reading task may take beyond its reader's limit, for copying bytes in and writing nodes out.
const READING_MARGIN: Duration = Duration::from_secs(60);

/// How long the end of a worker waits until tasks that shared a pass are given back.
const GIVING_BACK: Duration = Duration::from_secs(5);

/// How many tasks are put into batches, or taken up after them, at once.
const BATCH_PERMITS: usize = 16;

/// What a worker process is told beyond the settings.
#[derive(Clone, Debug)]
pub struct Role {
    pub worker_id: String,
    /// If empty, the worker takes every task.
    pub badges: Vec<String>,
    /// Whether to leave tasks without a badge to others.
    pub strict_badges: bool,
    /// Whether this process holds the lock of the data folder of its database, so that the next holder of the lock knows that this process is dead.
    pub holds_folder: bool,
    pub poll: Duration,
    pub heartbeat: Duration,
    pub lease: Duration,
    pub reap: Duration,
    /// Whether to end when the queue is empty.
    pub drain: bool,
    /// End after this many tasks, not counting those put off.
    pub max_tasks: Option<u64>,
}

impl Role {
    /// The role that the settings give.
    pub fn of(settings: &Settings) -> Role {
        Role {
            worker_id: settings.worker_id.clone(),
            badges: settings.worker_badge.clone(),
            strict_badges: false,
            holds_folder: false,
            poll: settings.ingest_worker_poll,
            heartbeat: settings.worker_heartbeat,
            lease: settings.worker_lease,
            reap: settings.worker_reap,
            drain: false,
            max_tasks: None,
        }
    }

    fn claimer(&self) -> Claimer {
        Claimer {
            worker_id: self.worker_id.clone(),
            badges: (!self.badges.is_empty()).then(|| self.badges.clone()),
            strict: self.strict_badges,
            lease: self.lease,
        }
    }
}

/// A worker that runs in this process.
pub struct RunningWorker {
    worker: Worker,
    pool: PgPool,
    row: WorkerRow,
    sharing: Arc<Sharing>,
    listeners: Vec<tokio::task::JoinHandle<()>>,
}

/// How many tasks of models run at once. While some wait for the database, others keep each of the model's threads busy, and two more have their
/// texts ready. Half of the connections are left to other tasks.
fn model_permits(threads: usize, connections: usize) -> usize {
    (threads + 2).min(connections / 2).max(2)
}

impl RunningWorker {
    /// Starts the actors. `options` say where the heart and the listener for notifications connect, each on its own connection.
    pub async fn start(role: Role, tools: Tools, options: PgConnectOptions) -> Result<RunningWorker, WorkerError> {
        let options = store::database::guarded(options, role.lease);
        tools.look_at_moves().await;
        tools.follow_moves();
        if let Some(to) = tools.serving.served().and_then(|served| served.coming) {
            moving::offer(&tools, &tools.types, &to).await;
        }
        let cores = std::thread::available_parallelism().map_or(2, std::num::NonZero::get);
        // A runner's threads are unknown here.
        let threads = tools.beside().map_or(1, |engine| engine.info().threads);
        // Readers are separate processes, and the model has its own threads.
        // Who asks by batches does nothing else, and waits for no answer.
        let batches = tools.batching.is_some();
        let permits = |lane, most| if tools.types.use_lane(lane) && (!batches || lane == Lane::Llm) { most } else { 0 };
        let permits = Permits {
            cpu: permits(Lane::Cpu, cores),
            model: permits(Lane::Model, model_permits(threads, tools.settings.database_pool_size)),
            llm: permits(Lane::Llm, if batches { BATCH_PERMITS } else { tools.settings.llm_concurrency }),
            io: permits(Lane::Io, 8),
        };
        // A drain that put off what waits for its turn would end without it.
        let tools = if role.drain { tools } else { tools.with_model_permits(permits.model) };
        let mut settings = WorkerSettings::new(role.worker_id.clone(), permits);
        settings.poll = role.poll;
        settings.heartbeat = role.heartbeat;
        settings.lease = role.lease;
        settings.reap = role.reap;
        settings.drain_once = role.drain;
        settings.max_tasks = role.max_tasks;
        let row = WorkerRow {
            worker_id: role.worker_id.clone(),
            boot_nonce: Uuid::new_v4(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            badges: role.badges.clone(),
            strict: role.strict_badges,
            holds_folder: role.holds_folder,
            task_types: Vec::new(),
            lease: role.lease,
        };
        // Which task types have a handler here changes while vectors are moved.
        let (types, only, unnamed) = (tools.types.clone(), batches.then_some(Lane::Llm), row.clone());
        let named = move || {
            let task_types = types.names_in(only).map(str::to_owned).collect();
            WorkerRow { task_types, ..unnamed.clone() }
        };
        let claimer = role.claimer();
        let sending = webhooks::start(tools.pool.clone(), &tools.settings);
        let deriving = deriving::start(tools.pool.clone(), tools.settings.rules_max_derived);
        let (pool, wake) = (tools.pool.clone(), tools.wake.clone());
        let retention = Some(tools.settings.task_retention_days).filter(|days| *days > 0.0);
        let retention = retention.map(|days| Duration::from_secs_f64(days * 86_400.0));
        // A summary may take several calls of a language model; each is kept, so that a next attempt goes on from there.
        let longest = tools.settings.parser_wall_time.max(2 * tools.language_model.timeout());
        let deadline = longest + READING_MARGIN;
        let claims = Claims {
            claimer: claimer.clone(),
            deadlines: Deadlines::new(deadline, &tools),
            take_along: role.max_tasks.is_none(),
        };
        let queue = queue::PgQueue::new(&tools, claimer, deadline, retention);
        let heart = heart::factory(options.clone(), pool.clone(), named);
        let building = (!batches).then(|| building::start((*tools).clone()));
        let indexing = (!batches).then(|| indexing::start(pool.clone()));
        let moving = (!batches).then(|| moving::start((*tools).clone(), tools.types.clone()));
        let settling = settling::start((*tools).clone(), tools.settling.clone());
        let telling = load::keep_told(&tools.load, pool.clone());
        let sharing = tools.sharing.clone();
        let worker = Worker::start(settings, Arc::new(queue), heart, Arc::new(TaskHandler::new(tools, claims))).await?;
        let mut listeners = wakeup::start(options, pool.clone(), wake, worker.waker());
        listeners.push(sequencer::start(pool.clone()));
        listeners.push(sending);
        listeners.push(deriving);
        listeners.extend(building);
        listeners.extend(indexing);
        listeners.extend(moving);
        listeners.push(settling);
        listeners.push(telling);
        Ok(RunningWorker { worker, pool, row, sharing, listeners })
    }

    /// Waits until the worker ends by itself.
    pub async fn wait(&mut self) -> WorkerEnd {
        self.worker.wait().await
    }

    /// Finishes what is held, for up to `within` or until `hurry` completes, gives the rest back, and signs off.
    pub async fn stop(self, within: Duration, hurry: impl Future<Output = ()>) {
        self.worker.stop_unless(within, hurry).await;
        // A lease of a worker that has signed off counts as lost.
        self.sharing.ended(GIVING_BACK).await;
        for listener in self.listeners {
            listener.abort();
        }
        let signed_off = async {
            let mut conn = self.pool.acquire().await?;
            store::workers::remove(&mut conn, &self.row.worker_id, self.row.boot_nonce).await
        };
        if let Err(error) = signed_off.await {
            tracing::warn!(error = %error, "the worker could not sign off; its row will expire");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// docs/operations.md and the setting SVC_DATABASE_POOL_SIZE say this too.
    #[test]
    fn a_model_has_two_tasks_more_than_threads_and_at_most_half_of_the_connections() {
        for (threads, connections, tasks) in [(8, 20, 10), (8, 12, 6), (32, 16, 8), (1, 16, 3), (4, 2, 2)] {
            assert_eq!(model_permits(threads, connections), tasks, "{threads} threads, {connections} connections");
        }
    }
}
