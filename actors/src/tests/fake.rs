//! A queue in memory with the real rules: regions, tokens, fenced writes.

use crate::*;
use async_trait::async_trait;
use futures_util::future::BoxFuture;
use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};
use svc_ids::{DocumentId, RootId, TaskId};
use tokio::sync::Notify;
use uuid::Uuid;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Pending,
    Claimed,
    Running,
    Completed,
    Failed,
}

#[derive(Clone, Debug)]
pub struct Task {
    pub lane: Lane,
    pub region: Region,
    pub task_type: &'static str,
    pub deadline: Option<Duration>,
    pub state: State,
    pub token: Option<Uuid>,
    pub attempt: i32,
    pub cancel_requested: bool,
    pub runs_alone: bool,
    pub given_back: u32,
    pub failures: Vec<TaskFailure>,
}

#[derive(Default)]
pub struct FakeQueue {
    tasks: Mutex<Vec<Task>>,
    pub most_held: Mutex<HashMap<Lane, usize>>,
    /// Every call of the queue's port fails.
    pub down: AtomicBool,
    pub start_fails: AtomicBool,
    /// A start takes effect, but its answer is lost.
    pub start_answer_is_lost: AtomicBool,
    pub claim_panics: AtomicBool,
    /// How long the answer to a claim takes.
    pub claim_takes: Mutex<Duration>,
    /// Grants one task more than asked for.
    pub generous: AtomicBool,
    pub claims: AtomicU64,
    pub sweeps: AtomicU64,
    pub looks: AtomicU64,
    pub beats: AtomicU64,
    pub beat_fails: AtomicBool,
    pub beat_panics: AtomicU64,
    /// While a test holds this lock, a heartbeat hangs.
    pub beat_gate: Mutex<()>,
    pub last_snapshot: Mutex<Option<TreeSnapshot>>,
}

pub fn region(path: &[i64], mode: WriteMode) -> Region {
    Region { path: path.to_vec(), mode, leaves: None }
}

impl FakeQueue {
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Adds a task on the region and returns its id.
    pub fn add(&self, task_type: &'static str, lane: Lane, path: &[i64], mode: WriteMode) -> TaskId {
        let mut tasks = self.tasks();
        tasks.push(Task {
            lane,
            region: region(path, mode),
            task_type,
            deadline: None,
            state: State::Pending,
            token: None,
            attempt: 0,
            cancel_requested: false,
            runs_alone: false,
            given_back: 0,
            failures: Vec::new(),
        });
        TaskId(tasks.len() as i64 - 1)
    }

    pub fn tasks(&self) -> MutexGuard<'_, Vec<Task>> {
        self.tasks.lock().unwrap()
    }

    pub fn task(&self, id: TaskId) -> Task {
        self.tasks()[id.0 as usize].clone()
    }

    pub fn edit(&self, id: TaskId, change: impl FnOnce(&mut Task)) {
        change(&mut self.tasks()[id.0 as usize]);
    }

    pub fn count(&self, state: State) -> usize {
        self.tasks().iter().filter(|task| task.state == state).count()
    }

    fn port(&self) -> Result<(), PortError> {
        if self.down.load(SeqCst) { Err(PortError::new("connection refused")) } else { Ok(()) }
    }

    /// What a claim grants, whether it comes alone or with the end of a task.
    pub fn grant(&self, want: &[(Lane, usize)]) -> Claimed {
        let mut left: HashMap<Lane, usize> = want.iter().copied().collect();
        assert!(left.values().all(|slots| *slots > 0), "asked without a free permit: {want:?}");
        if self.generous.load(SeqCst) {
            left.values_mut().for_each(|slots| *slots += 1);
        }
        let mut tasks = self.tasks();
        let mut held: Vec<Region> =
            tasks.iter().filter(|task| task.token.is_some()).map(|task| task.region.clone()).collect();
        let mut grants = Vec::new();
        for (id, task) in tasks.iter_mut().enumerate() {
            let slots = left.entry(task.lane).or_default();
            if task.state != State::Pending || *slots == 0 || held.iter().any(|other| other.overlaps(&task.region)) {
                continue;
            }
            *slots -= 1;
            held.push(task.region.clone());
            let token = Uuid::new_v4();
            (task.state, task.token) = (State::Claimed, Some(token));
            task.attempt += 1;
            grants.push(Grant {
                task_id: TaskId(id as i64),
                token,
                task_type: task.task_type.to_owned(),
                lane: task.lane,
                document_id: DocumentId(task.region.path[task.region.path.len() - 1]),
                root_id: RootId(task.region.path[0]),
                region: task.region.clone(),
                attempt: task.attempt,
                runs_alone: task.runs_alone,
                deadline: task.deadline,
                params: serde_json::Value::Null,
                traceparent: None,
            });
            if task.runs_alone {
                break;
            }
        }
        let mut most = self.most_held.lock().unwrap();
        for lane in Lane::ALL {
            let now = tasks.iter().filter(|task| task.token.is_some() && task.lane == lane).count();
            let seen = most.entry(lane).or_default();
            *seen = now.max(*seen);
        }
        Claimed { grants, more: false }
    }

    /// What a handler's transaction ends with.
    pub fn commit(&self, grant: &Grant) -> Outcome {
        let mut tasks = self.tasks();
        let task = &mut tasks[grant.task_id.0 as usize];
        if task.token != Some(grant.token) {
            return Outcome::LostLease;
        }
        (task.state, task.token) = (State::Completed, None);
        Outcome::Completed
    }
}

#[async_trait]
impl Queue for FakeQueue {
    async fn claim(&self, want: &[(Lane, usize)]) -> Result<Claimed, PortError> {
        self.claims.fetch_add(1, SeqCst);
        assert!(!self.claim_panics.load(SeqCst), "the claim is broken");
        self.port()?;
        let grants = self.grant(want);
        let takes = *self.claim_takes.lock().unwrap();
        tokio::time::sleep(takes).await;
        Ok(grants)
    }

    async fn start(&self, grant: &Grant) -> Result<bool, PortError> {
        self.port()?;
        if self.start_fails.load(SeqCst) {
            return Err(PortError::new("connection reset"));
        }
        let mut tasks = self.tasks();
        let task = &mut tasks[grant.task_id.0 as usize];
        let ours = task.token == Some(grant.token);
        if ours {
            task.state = State::Running;
        }
        if self.start_answer_is_lost.swap(false, SeqCst) {
            return Err(PortError::new("connection reset"));
        }
        Ok(ours)
    }

    async fn give_back(&self, tokens: &[Uuid]) -> Result<(), PortError> {
        self.port()?;
        for task in self.tasks().iter_mut().filter(|task| task.token.is_some_and(|token| tokens.contains(&token))) {
            (task.state, task.token) = (State::Pending, None);
            task.given_back += 1;
        }
        Ok(())
    }

    async fn fail(&self, grant: &Grant, failure: &TaskFailure) -> Result<bool, PortError> {
        self.port()?;
        let mut tasks = self.tasks();
        let task = &mut tasks[grant.task_id.0 as usize];
        if task.token != Some(grant.token) {
            return Ok(false);
        }
        (task.state, task.token) = (State::Failed, None);
        task.failures.push(failure.clone());
        Ok(true)
    }

    async fn documents(&self, roots: &[RootId]) -> Result<Vec<DocumentFacts>, PortError> {
        self.looks.fetch_add(1, SeqCst);
        self.port()?;
        let tasks = self.tasks();
        let open = |root: RootId| {
            let open =
                |task: &&Task| task.region.path[0] == root.0 && !matches!(task.state, State::Completed | State::Failed);
            tasks.iter().filter(open).count() as u64
        };
        let facts = |root: &RootId| DocumentFacts {
            root_id: *root,
            title: Some(format!("title {root}")),
            open_tasks: open(*root),
        };
        Ok(roots.iter().map(facts).collect())
    }

    async fn reap(&self) -> Result<u64, PortError> {
        self.port().map(|()| 0)
    }

    async fn sweep(&self) -> Result<bool, PortError> {
        self.sweeps.fetch_add(1, SeqCst);
        self.port().map(|()| false)
    }
}

pub struct FakeBeat(pub Arc<FakeQueue>);

impl Beat for FakeBeat {
    fn beat(&mut self, tokens: &[Uuid], snapshot: &TreeSnapshot) -> Result<Vec<BeatAnswer>, PortError> {
        drop(self.0.beat_gate.lock().unwrap());
        let panics = self.0.beat_panics.load(SeqCst);
        if panics > 0 {
            self.0.beat_panics.store(panics - 1, SeqCst);
            panic!("the heartbeat is broken");
        }
        if self.0.beat_fails.load(SeqCst) {
            return Err(PortError::new("connection refused"));
        }
        *self.0.last_snapshot.lock().unwrap() = Some(snapshot.clone());
        let tasks = self.0.tasks();
        let ours = tasks.iter().filter(|task| task.token.is_some_and(|token| tokens.contains(&token)));
        let answers =
            ours.map(|task| BeatAnswer { token: task.token.unwrap(), cancel_requested: task.cancel_requested });
        let answers = answers.collect();
        self.0.beats.fetch_add(1, SeqCst);
        Ok(answers)
    }
}

/// Commits and claims what runs next in the same message; tasks of type `wait` then wait at the gate.
pub struct Chains(pub Arc<FakeQueue>, pub Arc<Gate>);

#[async_trait]
impl Handler for Chains {
    async fn run(&self, grant: &Grant, _: CancelToken, permit: Permit) -> Result<Outcome, TaskFailure> {
        let ending = permit.end();
        let outcome = self.0.commit(grant);
        if !ending.want().is_empty() {
            let claimed = self.0.grant(ending.want());
            ending.granted(claimed, Lanes::NONE);
        }
        if grant.task_type == "wait" {
            self.1.clone().pass().await;
        }
        Ok(outcome)
    }
}

/// A worker whose tasks claim what runs next.
pub async fn chaining(settings: WorkerSettings, queue: &Arc<FakeQueue>) -> (Worker, Arc<Gate>) {
    let (gate, beats) = (Gate::new(), queue.clone());
    let beat: BeatFactory = Box::new(move || Box::new(FakeBeat(beats.clone())));
    let handler = Arc::new(Chains(queue.clone(), gate.clone()));
    (Worker::start(settings, queue.clone(), beat, handler).await.unwrap(), gate)
}

type Script =
    dyn Fn(Grant, CancelToken, Arc<FakeQueue>) -> BoxFuture<'static, Result<Outcome, TaskFailure>> + Send + Sync;

pub struct FakeHandler(Arc<FakeQueue>, Box<Script>);

#[async_trait]
impl Handler for FakeHandler {
    async fn run(&self, grant: &Grant, cancel: CancelToken, _: Permit) -> Result<Outcome, TaskFailure> {
        (self.1)(grant.clone(), cancel, self.0.clone()).await
    }
}

pub fn settings() -> WorkerSettings {
    WorkerSettings::new("test", Permits { cpu: 2, model: 1, llm: 3, io: 2 })
}

/// Settings with a quick heart in real time. The lease is so long that it ends nothing unless a test shortens it.
pub fn quick() -> WorkerSettings {
    WorkerSettings {
        poll: Duration::from_millis(20),
        heartbeat: Duration::from_millis(20),
        lease: Duration::from_secs(3600),
        ..settings()
    }
}

pub async fn worker<F>(
    settings: WorkerSettings,
    queue: &Arc<FakeQueue>,
    script: impl Fn(Grant, CancelToken, Arc<FakeQueue>) -> F + Send + Sync + 'static,
) -> Worker
where
    F: Future<Output = Result<Outcome, TaskFailure>> + Send + 'static,
{
    let handler =
        FakeHandler(queue.clone(), Box::new(move |grant, cancel, queue| Box::pin(script(grant, cancel, queue))));
    let beats = queue.clone();
    let beat: BeatFactory = Box::new(move || Box::new(FakeBeat(beats.clone())));
    Worker::start(settings, queue.clone(), beat, Arc::new(handler)).await.unwrap()
}

/// The plain handler: commits at once.
pub async fn commit(grant: Grant, _: CancelToken, queue: Arc<FakeQueue>) -> Result<Outcome, TaskFailure> {
    Ok(queue.commit(&grant))
}

/// Waits for a condition. The cap is far above anything needed and only keeps a failing test from hanging.
pub async fn until(what: &str, condition: impl Fn() -> bool) {
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(std::time::Instant::now() < deadline, "never came: {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

pub async fn ends(worker: &mut Worker) -> WorkerEnd {
    tokio::time::timeout(Duration::from_secs(3600), worker.wait()).await.expect("the worker never ended")
}

/// Holds handlers for a test: a handler enters, and goes on when the test lets it.
#[derive(Default)]
pub struct Gate {
    pub entered: AtomicU64,
    pub left: AtomicU64,
    open: Notify,
    pub opened: AtomicBool,
}

impl Gate {
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    pub fn open(&self) {
        self.opened.store(true, SeqCst);
        self.open.notify_waiters();
    }

    /// Enters and waits. `left` is counted however this future ends.
    pub async fn pass(self: Arc<Self>) {
        struct Leave(Arc<Gate>);
        impl Drop for Leave {
            fn drop(&mut self) {
                self.0.left.fetch_add(1, SeqCst);
            }
        }
        self.entered.fetch_add(1, SeqCst);
        let _leave = Leave(self.clone());
        let opened = self.open.notified();
        tokio::pin!(opened);
        opened.as_mut().enable();
        if !self.opened.load(SeqCst) {
            opened.await;
        }
    }

    pub fn entered(&self) -> u64 {
        self.entered.load(SeqCst)
    }

    pub fn left(&self) -> u64 {
        self.left.load(SeqCst)
    }
}
