//! Measures what `/health`, `/ready` and `/metrics` report. One task of the process does it and keeps the result, so
//! that these never ask the database, however often they are called.
pub mod feed;

use crate::{
    blobs::{BlobError, Blobs},
    disk::Disk,
    embedding::{EmbedError, Embedder, Serving},
    load::{self, Load},
    replicas::Replicas,
    store::{
        admin::{self, Outside},
        database::{self, DatabaseError},
        growth::Sizes,
        overview,
        queue::{self, FailedCount, TaskCount},
        schema, workers,
    },
};
use sqlx::{PgConnection, PgPool};
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use svc_client::wire::{Finding, ModelState, OverviewResponse, QueueState, TypeOverview, WorkerState};
use tokio::sync::watch;

/// The shortest time between two samples while somebody looks.
const WATCHED_EVERY: Duration = Duration::from_secs(1);
/// How long after a look samples come that often.
const WATCHED: Duration = Duration::from_secs(15);
/// The fleet is told again after this time that somebody looks.
const TOLD_EVERY: Duration = Duration::from_secs(10);
/// How many minutes of throughput an overview has.
const MINUTES: u32 = 60;
/// How long a task may wait before the overview reports it; the default of `svc-worker doctor`.
const WAIT: Duration = Duration::from_secs(600);
/// The shortest time between two samples.
const EVERY: Duration = Duration::from_secs(2);
/// After a sample, this many times its own duration pass without one.
const REST: u32 = 100;
/// The longest time between two samples.
const SELDOM: Duration = Duration::from_secs(60);
/// The time between two looks at what is usual, which changes slowly.
const USUAL_EVERY: Duration = Duration::from_secs(60);
/// How long a sample may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// An older sample says nothing about the present.
const STALE: Duration = Duration::from_secs(150);

/// What the database knows of itself and of the queue.
#[derive(Debug)]
pub struct Numbers {
    /// Why this program cannot work on the schema, if it cannot.
    pub schema: Result<(), String>,
    /// Why the server takes no writes, if it takes none.
    pub writes: Result<(), String>,
    pub sizes: Sizes,
    pub unfinished: Vec<TaskCount>,
    /// Tasks that failed for good, by type.
    pub failed: Vec<FailedCount>,
    pub workers: Vec<WorkerState>,
    /// For each badge, how many tasks there are and the age of the oldest in seconds.
    pub unserved_badges: Vec<(String, i64, f64)>,
    /// The same for each task type.
    pub unserved_types: Vec<(String, i64, f64)>,
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
    /// The time that the last sample leaves until the next one, if it did not fail.
    rest: Option<Duration>,
    /// The runner's model, if there is a runner, or why it is not known.
    pub runner: Option<Result<ModelState, String>>,
    /// The same of the coming model's runner, which is only asked where the other model is not known to serve.
    pub coming_runner: Option<Result<ModelState, String>>,
    /// How the object store is, if bytes of files are in one, or why they cannot be read.
    pub blob_store: Option<Result<String, String>>,
    /// The last overview, which is only taken while somebody looks, and when it was taken.
    pub overview: Option<(Instant, Arc<OverviewResponse>)>,
    /// When somebody last tried to take one, whatever came of it.
    tried: Option<Instant>,
    /// What is usual, which is only measured while somebody looks, and when it was measured.
    usual: Option<(Instant, Arc<Usual>)>,
}

/// For each task type the milliseconds that an attempt usually takes at most.
pub type Usual = BTreeMap<String, u64>;

impl Known {
    /// The sample, unless it is too old.
    pub fn fresh(&self) -> Option<&Sample> {
        self.sample.as_deref().filter(|sample| self.failure.is_none() && sample.taken.elapsed() < STALE)
    }

    /// The overview, unless it is time for a new one.
    fn recent(&self) -> Option<Arc<OverviewResponse>> {
        self.younger_than(self.lasts())
    }

    /// How long an overview is shown before somebody who looks has a new one taken.
    fn lasts(&self) -> Duration {
        EVERY.max(self.rest.unwrap_or_default() * 2).min(STALE)
    }

    /// The overview, if it was taken within this time.
    fn younger_than(&self, age: Duration) -> Option<Arc<OverviewResponse>> {
        self.overview.as_ref().filter(|(taken, _)| taken.elapsed() < age).map(|(_, overview)| overview.clone())
    }
}

/// The time without a sample after one that took so long, while nothing asks for one.
fn rest(took: Duration) -> Duration {
    (took * REST).min(SELDOM)
}

/// The time between two looks, of which the first took so long. A look that failed waited for somebody who is away, and what comes back must be told
/// soon, so that the rest is no longer than the look.
fn pause(took: Duration, has_told: bool, is_watched: bool) -> Duration {
    let rest = if has_told { rest(took) } else { took.min(SELDOM) };
    rest.max(if is_watched { WATCHED_EVERY } else { EVERY })
}

/// Takes samples from its start until its service is gone.
pub struct Sampler {
    /// It has one connection of its own, so that neither requests nor tasks keep it waiting.
    pool: PgPool,
    embedder: Option<Embedder>,
    /// The model to which vectors may be moved, if the settings name one.
    pub coming: OnceLock<Embedder>,
    blobs: Arc<Blobs>,
    disk: Arc<Disk>,
    load: Arc<Load>,
    known: Mutex<Known>,
    started: AtomicBool,
    turn: tokio::sync::Mutex<()>,
    looks: Mutex<Looks>,
    /// How many overviews have been taken.
    taken: watch::Sender<u64>,
    /// What the bulk feed says of itself.
    pub feed: feed::Feed,
    /// The standbys that may answer reads, if the settings name some.
    pub replicas: OnceLock<Arc<Replicas>>,
    /// After this time in a batch of a provider a task counts as stalled.
    batch_stall: Duration,
    /// Which model this process works with.
    serving: Arc<Serving>,
}

/// When somebody looked last, and when the fleet was told.
#[derive(Default)]
struct Looks {
    last: Option<Instant>,
    told: Option<Instant>,
}

impl Sampler {
    pub fn new(
        pool: &PgPool,
        embedder: Option<Embedder>,
        blobs: Arc<Blobs>,
        disk: Arc<Disk>,
        load: Arc<Load>,
        batch_stall: Duration,
        serving: Arc<Serving>,
    ) -> Sampler {
        Sampler {
            pool: database::pool_of_samples(pool, PATIENCE),
            embedder,
            coming: OnceLock::new(),
            blobs,
            disk,
            load,
            known: Mutex::default(),
            started: AtomicBool::new(false),
            turn: tokio::sync::Mutex::default(),
            looks: Mutex::default(),
            taken: watch::Sender::new(0),
            feed: feed::Feed::default(),
            replicas: OnceLock::new(),
            batch_stall,
            serving,
        }
    }

    /// Begins to take samples; further calls do nothing.
    pub fn start(self: &Arc<Sampler>) {
        if self.started.swap(true, Ordering::Relaxed) {
            return;
        }
        tokio::spawn(again_and_again(Arc::downgrade(self), async |sampler| sampler.sample().await));
        tokio::spawn(again_and_again(Arc::downgrade(self), async |sampler| sampler.ask_blob_store().await));
        drop(load::keep_told(&self.load, self.pool.clone()));
        if let Some(replicas) = self.replicas.get() {
            replicas.start();
        }
        if self.embedder.iter().chain(self.coming.get()).any(|embedder| embedder.engine().is_none()) {
            tokio::spawn(again_and_again(Arc::downgrade(self), async |sampler| sampler.ask_runner().await));
        }
    }

    /// What is known, without waiting for anything.
    pub fn known(&self) -> Known {
        self.lock().clone()
    }

    /// Notes that somebody looks: overviews are taken for a while, and the workers send heartbeats more often.
    pub fn look(self: &Arc<Sampler>) {
        let mut looks = self.looks.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        looks.last = Some(now);
        if looks.told.is_none_or(|told| now - told > TOLD_EVERY) {
            looks.told = Some(now);
            let sampler = self.clone();
            tokio::spawn(async move {
                if let Err(error) = queue::announce(&sampler.pool, queue::WATCH).await {
                    tracing::debug!(error = %error, "the workers could not be told that somebody looks");
                }
            });
        }
    }

    fn is_watched(&self) -> bool {
        let looks = self.looks.lock().unwrap_or_else(PoisonError::into_inner);
        looks.last.is_some_and(|last| last.elapsed() < WATCHED)
    }

    /// Counts the overviews; changes with each new one.
    pub fn follow(&self) -> watch::Receiver<u64> {
        self.taken.subscribe()
    }

    /// The last overview, or a new one if that is old. Any number of callers share one.
    pub async fn overview(self: &Arc<Sampler>) -> Option<Arc<OverviewResponse>> {
        self.look();
        if let Some(overview) = self.recent() {
            return Some(overview);
        }
        let asked = Instant::now();
        let turn = self.turn.lock().await;
        // Whoever waited for the look of another shares what came of it, even if that is nothing. Otherwise all who ask a slow database would wait one
        // behind another.
        let is_answered = self.lock().tried.is_some_and(|tried| tried > asked);
        if !is_answered && self.recent().is_none() {
            self.sample_in_turn().await;
        }
        drop(turn);
        // What is older is told as unknown.
        self.lock().younger_than(STALE)
    }

    fn recent(&self) -> Option<Arc<OverviewResponse>> {
        self.lock().recent()
    }

    /// Takes a sample now; returns whether it could be read.
    pub async fn sample(&self) -> bool {
        let _turn = self.turn.lock().await;
        self.sample_in_turn().await
    }

    async fn sample_in_turn(&self) -> bool {
        let taken = Instant::now();
        let read = match tokio::time::timeout(PATIENCE, self.read()).await {
            Ok(read) => read.map_err(|error| {
                tracing::warn!(error = %error, "the state of the database and the queue could not be read");
                match error.has_answer() {
                    true => "answers, but its state cannot be read; the service's log says why".to_owned(),
                    false => "does not answer".to_owned(),
                }
            }),
            Err(_) => Err(format!("did not answer within {} s", PATIENCE.as_secs())),
        };
        let is_watched = self.is_watched();
        let overview = match &read {
            Ok(numbers) if is_watched => {
                let read = tokio::time::timeout(PATIENCE, self.read_overview(numbers)).await;
                read.map_err(|_| "no answer in time".to_owned())
                    .and_then(|read| read.map_err(|error| error.to_string()))
            }
            _ => Err(String::new()),
        };
        let mut known = self.lock();
        known.rest = Some(rest(taken.elapsed()));
        if is_watched || read.is_err() {
            known.tried = Some(Instant::now());
        }
        match overview {
            Ok(overview) => {
                known.overview = Some((Instant::now(), Arc::new(overview)));
                self.taken.send_modify(|count| *count += 1);
            }
            Err(reason) if reason.is_empty() => {}
            Err(reason) => tracing::warn!(error = reason, "the overview could not be read"),
        }
        match read {
            Ok(numbers) => {
                known.sample = Some(Arc::new(Sample { taken, numbers }));
                known.failure = None;
            }
            Err(reason) => known.failure = Some(reason),
        }
        known.failure.is_none()
    }

    /// Asks the runner with the model that serves, if it is at one, for its state now; returns whether it could tell. Which model a runner has only its
    /// answer says, so both are asked until one of them is known to serve.
    pub async fn ask_runner(&self) -> bool {
        let (own, coming) = (self.embedder.as_ref(), self.coming.get());
        let served = self.serving.served();
        let serves = |embedder: Option<&Embedder>, told: Option<&Result<ModelState, String>>| {
            let identity = embedder.and_then(|embedder| embedder.identity(told));
            served.as_ref().is_some_and(|served| identity == Some(served.model.as_str()))
        };
        let Known { mut runner, coming_runner: told_before, .. } = self.known();
        if !serves(coming, told_before.as_ref()) {
            runner = told_by_runner(own).await;
        }
        let coming_runner = match served.is_some() && !serves(own, runner.as_ref()) {
            true => told_by_runner(coming).await,
            false => None,
        };
        let has_failed = [&runner, &coming_runner].into_iter().any(|told| matches!(told, Some(Err(_))));
        let has_told = serves(own, runner.as_ref()) || serves(coming, coming_runner.as_ref()) || !has_failed;
        let mut known = self.lock();
        (known.runner, known.coming_runner) = (runner, coming_runner);
        has_told
    }

    /// Asks the object store now, if there is one; returns whether it could tell.
    pub async fn ask_blob_store(&self) -> bool {
        let state = match tokio::time::timeout(PATIENCE, self.blobs.state(&self.pool)).await {
            Ok(state) => state,
            Err(_) => Some(Err(BlobError::Away { reason: format!("no answer within {} s", PATIENCE.as_secs()) })),
        };
        let state = state.map(|state| {
            state.map_err(|error| {
                tracing::warn!(%error, "the object store cannot be used");
                error.to_string()
            })
        });
        let has_told = !matches!(state, Some(Err(_)));
        self.lock().blob_store = state;
        has_told
    }

    /// Closes the connection, which ends the sampling.
    pub async fn close(&self) {
        self.pool.close().await;
    }

    async fn read(&self) -> Result<Numbers, DatabaseError> {
        let schema = schema::read(&self.pool).await?.check().map_err(|problem| problem.to_string());
        let writes = match database::check_writable(&self.pool).await {
            Ok(()) => Ok(()),
            Err(problem @ DatabaseError::ReadOnly(_)) => Err(problem.to_string()),
            Err(other) => return Err(other),
        };
        let mut conn = self.pool.acquire().await?;
        Ok(Numbers {
            schema,
            writes,
            sizes: self.load.sizes(&mut conn).await?,
            unfinished: queue::unfinished(&mut conn).await?,
            failed: queue::failed(&mut conn).await?,
            workers: workers::alive(&mut conn).await?,
            unserved_badges: queue::unserved_badges(&mut conn).await?,
            unserved_types: queue::unserved_types(&mut conn).await?,
        })
    }

    /// What is wrong with the queue, the disk, the object store, the standbys and the vectors now, and what grows beyond one server.
    pub async fn findings(&self, conn: &mut PgConnection) -> sqlx::Result<Vec<Finding>> {
        let growth = self.load.growth(&mut *conn).await?;
        let outside = Outside {
            disk: self.disk.check().err().into_iter().collect(),
            blob_store: self.lock().blob_store.clone().and_then(Result::err),
            feed: self.feed.is_away(),
            standbys: self.replicas.get().map(|replicas| replicas.troubles()).unwrap_or_default(),
            model: self.serving.mixed(),
            growth: Some(growth),
        };
        admin::findings(conn, WAIT, self.batch_stall, outside).await
    }

    /// What the attempts of each task type usually take, as it was measured last; empty before that.
    pub fn usual(&self) -> Arc<Usual> {
        self.lock().usual.as_ref().map(|(_, usual)| usual.clone()).unwrap_or_default()
    }

    /// What is usual, measured anew if that is due. A type of which too little ended lately keeps what it had.
    async fn measured_usual(&self, conn: &mut PgConnection) -> sqlx::Result<Arc<Usual>> {
        if let Some((at, usual)) = self.lock().usual.as_ref()
            && at.elapsed() < USUAL_EVERY
        {
            return Ok(usual.clone());
        }
        let measured = overview::usual(conn).await?;
        let mut usual = Usual::clone(&self.usual());
        usual.extend(measured.into_iter().map(|(name, ms)| (name, u64::try_from(ms).unwrap_or_default())));
        let usual = Arc::new(usual);
        self.lock().usual = Some((Instant::now(), usual.clone()));
        Ok(usual)
    }

    async fn read_overview(&self, numbers: &Numbers) -> sqlx::Result<OverviewResponse> {
        let mut conn = self.pool.acquire().await?;
        let usual = self.measured_usual(&mut conn).await?;
        let pace = overview::pace(&mut conn).await?;
        let mut workers = overview::workers(&mut conn).await?;
        for worker in &mut workers {
            let of_worker = pace.iter().filter(|(_, by, _)| *by == worker.worker_id);
            worker.ended_a_minute = of_worker.map(|(.., ended)| ended).sum();
        }
        Ok(OverviewResponse {
            at: chrono::Utc::now(),
            queue: numbers.queue(),
            task_types: task_types(&numbers.unfinished, &overview::paused(&mut conn).await?, &pace, &usual),
            findings: self.findings(&mut conn).await?,
            workers,
            throughput: overview::throughput(&mut conn, MINUTES).await?,
            regions_held: overview::regions_held(&mut conn).await?,
        })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The unfinished, paused and just ended tasks by type, in the order of an ingestion.
fn task_types(
    unfinished: &[TaskCount],
    paused: &[(String, chrono::DateTime<chrono::Utc>)],
    pace: &[(String, String, i64)],
    usual: &Usual,
) -> Vec<TypeOverview> {
    fn of<'a, 'b>(types: &'b mut BTreeMap<(i32, &'a str), TypeOverview>, name: &'a str) -> &'b mut TypeOverview {
        types.entry((svc_actors::stage::stage(name), name)).or_insert_with(|| TypeOverview {
            task_type: name.to_owned(),
            lane: None,
            paused_since: None,
            running: 0,
            blocked_by: BTreeMap::new(),
            oldest_seconds: None,
            ended_a_minute: 0,
            usual_ms: None,
        })
    }
    let mut types = BTreeMap::new();
    for count in unfinished {
        let row = of(&mut types, &count.task_type);
        row.lane = Some(count.lane.0);
        row.oldest_seconds =
            Some(row.oldest_seconds.map_or(count.oldest_seconds, |oldest| oldest.max(count.oldest_seconds)));
        match &count.blocked_by {
            Some(reason) => *row.blocked_by.entry(reason.0).or_default() += count.tasks,
            None => row.running += count.tasks,
        }
    }
    for (name, since) in paused {
        of(&mut types, name).paused_since = Some(*since);
    }
    for (name, _, ended) in pace {
        of(&mut types, name).ended_a_minute += ended;
    }
    types.into_values().map(|row| TypeOverview { usual_ms: usual.get(&row.task_type).copied(), ..row }).collect()
}

/// What the runner of a model says of it now; `None` if the model is in this process.
async fn told_by_runner(embedder: Option<&Embedder>) -> Option<Result<ModelState, String>> {
    let embedder = embedder.filter(|embedder| embedder.engine().is_none())?;
    Some(embedder.state().await.map_err(|error| {
        tracing::warn!(error = %error, "the runner's model cannot be used");
        // Anyone may read this, so the runner's address stays in the log.
        match error {
            EmbedError::Refused(_) => {
                "the runner refuses to work for this service; the service's log says why".to_owned()
            }
            _ => "the runner does not answer; tasks that need vectors wait for it".to_owned(),
        }
    }))
}

/// Repeats the work, which returns whether it succeeded, and holds the sampler only while it works.
async fn again_and_again(sampler: Weak<Sampler>, work: impl AsyncFn(&Sampler) -> bool) {
    loop {
        let pause = match sampler.upgrade() {
            Some(sampler) if !sampler.pool.is_closed() => {
                let begun = Instant::now();
                let has_told = work(&sampler).await;
                pause(begun.elapsed(), has_told, sampler.is_watched())
            }
            _ => return,
        };
        tokio::time::sleep(pause).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_that_is_back_is_told_of_soon_however_long_the_look_took_that_missed_it() {
        for is_watched in [false, true] {
            assert_eq!(pause(PATIENCE, true, is_watched), SELDOM);
            assert!(pause(PATIENCE, false, is_watched) <= PATIENCE);
        }
        assert_eq!(pause(Duration::ZERO, false, false), EVERY);
        assert_eq!(pause(Duration::ZERO, false, true), WATCHED_EVERY);
    }

    #[test]
    fn an_overview_is_shown_for_as_long_as_the_rest_after_it_allows_and_no_longer_than_it_is_true() {
        let overview = Arc::new(OverviewResponse {
            at: chrono::Utc::now(),
            queue: queue::state(&[], &[]),
            task_types: Vec::new(),
            findings: Vec::new(),
            workers: Vec::new(),
            throughput: Vec::new(),
            regions_held: 0,
        });
        let known = |took: Duration| Known { rest: Some(rest(took)), ..Known::default() };
        let is_recent = |age: u64| {
            let taken = Instant::now().checked_sub(Duration::from_secs(age)).expect("the machine has run for longer");
            Known { overview: Some((taken, overview.clone())), ..known(Duration::from_millis(1)) }.recent().is_some()
        };
        assert!(is_recent(1) && !is_recent(3));
        assert!(Known::default().recent().is_none());
        assert_eq!(known(Duration::from_millis(100)).lasts(), Duration::from_secs(20));
        // A sample that took as long as one may is no reason to show what came of it for half an hour.
        let lasts = known(2 * PATIENCE).lasts();
        assert!(lasts == 2 * SELDOM && lasts < STALE, "{lasts:?}");
    }
}
