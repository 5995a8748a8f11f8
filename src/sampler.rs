//! Measures what `/health`, `/ready` and `/metrics` report. One task of the process does it and keeps the result, so
//! that these never ask the database, however often they are called.
use crate::{
    embedding::{EmbedError, Embedder},
    store::{
        admin, database,
        queue::{self, FailedCount, TaskCount},
        schema, workers,
    },
};
use sqlx::PgPool;
use std::{
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use svc_client::wire::{BlockedBy, ModelState, QueueState, WorkerState};

/// The shortest time between two samples.
const EVERY: Duration = Duration::from_secs(2);
/// After a sample, this many times its own duration pass without one.
const REST: u32 = 20;
/// The longest time between two samples.
const SELDOM: Duration = Duration::from_secs(60);
/// How long a sample may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// An older sample says nothing about the present.
const STALE: Duration = Duration::from_secs(150);

/// What the database knows of itself and of the queue.
#[derive(Debug)]
pub struct Numbers {
    /// Why this program cannot work on the schema, if it cannot.
    pub schema: Result<(), String>,
    pub unfinished: Vec<TaskCount>,
    /// Tasks that failed for good, by type.
    pub failed: Vec<FailedCount>,
    pub workers: Vec<WorkerState>,
    /// For each badge, how many tasks there are and the age of the oldest in seconds.
    pub unserved_badges: Vec<(String, i64, f64)>,
    /// The same for each task type.
    pub unserved_types: Vec<(String, i64, f64)>,
    /// By reason.
    pub blocked: Vec<(BlockedBy, i64)>,
}

impl Numbers {
    /// The queue in numbers.
    pub fn queue(&self) -> QueueState {
        queue::state(&self.unfinished, &self.failed)
    }

    /// Which tasks have no worker, in words for people.
    pub fn unserved(&self) -> Vec<String> {
        let badges = self.unserved_badges.iter().map(|(badge, tasks, _)| match badge.as_str() {
            "" => format!("{tasks} tasks without a badge have no worker, because all workers have strict badges"),
            badge => format!("{tasks} tasks with badge `{badge}` have no worker"),
        });
        let types = self.unserved_types.iter();
        let types =
            types.map(|(name, tasks, _)| format!("{tasks} tasks of type `{name}` have no worker that can run them"));
        badges.chain(types).collect()
    }
}

/// Numbers, and when they were read.
#[derive(Debug)]
pub struct Sample {
    pub taken: Instant,
    pub numbers: Numbers,
}

/// What is known now.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// The last sample that could be read.
    pub sample: Option<Arc<Sample>>,
    /// Why there is no later one.
    pub failure: Option<String>,
    /// The runner's model, if there is a runner, or why it is not known.
    pub runner: Option<Result<ModelState, String>>,
}

impl Known {
    /// The sample, unless it is too old.
    pub fn fresh(&self) -> Option<&Sample> {
        self.sample.as_deref().filter(|sample| self.failure.is_none() && sample.taken.elapsed() < STALE)
    }
}

/// Takes samples from its start until its service is gone.
pub struct Sampler {
    /// It has one connection of its own, so that neither requests nor tasks keep it waiting.
    pool: PgPool,
    embedder: Option<Embedder>,
    known: Mutex<Known>,
    started: AtomicBool,
    turn: tokio::sync::Mutex<()>,
}

impl Sampler {
    pub fn new(pool: &PgPool, embedder: Option<Embedder>) -> Sampler {
        Sampler {
            pool: database::pool_of_samples(pool, PATIENCE),
            embedder: embedder.filter(|embedder| embedder.engine().is_none()),
            known: Mutex::default(),
            started: AtomicBool::new(false),
            turn: tokio::sync::Mutex::default(),
        }
    }

    /// Begins to take samples; further calls do nothing.
    pub fn start(self: &Arc<Sampler>) {
        if self.started.swap(true, Ordering::Relaxed) {
            return;
        }
        tokio::spawn(again_and_again(Arc::downgrade(self), async |sampler| sampler.sample().await));
        if self.embedder.is_some() {
            tokio::spawn(again_and_again(Arc::downgrade(self), async |sampler| sampler.ask_runner().await));
        }
    }

    /// What is known, without waiting for anything.
    pub fn known(&self) -> Known {
        self.lock().clone()
    }

    /// Takes a sample now.
    pub async fn sample(&self) {
        let _turn = self.turn.lock().await;
        let taken = Instant::now();
        let read = match tokio::time::timeout(PATIENCE, self.read()).await {
            Ok(read) => read.map_err(|error| {
                tracing::warn!(error = %error, "the state of the database and the queue could not be read");
                "does not answer".to_owned()
            }),
            Err(_) => Err(format!("did not answer within {} s", PATIENCE.as_secs())),
        };
        let mut known = self.lock();
        match read {
            Ok(numbers) => {
                known.sample = Some(Arc::new(Sample { taken, numbers }));
                known.failure = None;
            }
            Err(reason) => known.failure = Some(reason),
        }
    }

    /// Asks the runner, if there is one, for its model now.
    pub async fn ask_runner(&self) {
        let Some(embedder) = &self.embedder else { return };
        let state = embedder.state().await.map_err(|error| {
            tracing::warn!(error = %error, "the runner's model cannot be used");
            // Anyone may read this, so the runner's address stays in the log.
            match error {
                EmbedError::Refused(_) => {
                    "the runner refuses to work for this service; the service's log says why".to_owned()
                }
                _ => "the runner does not answer; tasks that need vectors wait for it".to_owned(),
            }
        });
        self.lock().runner = Some(state);
    }

    /// Closes the connection, which ends the sampling.
    pub async fn close(&self) {
        self.pool.close().await;
    }

    async fn read(&self) -> Result<Numbers, database::DatabaseError> {
        let schema = schema::read(&self.pool).await?.check().map_err(|problem| problem.to_string());
        let mut conn = self.pool.acquire().await?;
        Ok(Numbers {
            schema,
            unfinished: queue::unfinished(&mut conn).await?,
            failed: queue::failed(&mut conn).await?,
            workers: workers::alive(&mut conn).await?,
            unserved_badges: queue::unserved_badges(&mut conn).await?,
            unserved_types: queue::unserved_types(&mut conn).await?,
            blocked: admin::blocked(&mut conn).await?,
        })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Repeats the work, and holds the sampler only while it works.
async fn again_and_again(sampler: Weak<Sampler>, work: impl AsyncFn(&Sampler)) {
    loop {
        let rest = match sampler.upgrade() {
            Some(sampler) if !sampler.pool.is_closed() => {
                let begun = Instant::now();
                work(&sampler).await;
                (begun.elapsed() * REST).clamp(EVERY, SELDOM)
            }
            _ => return,
        };
        tokio::time::sleep(rest).await;
    }
}
