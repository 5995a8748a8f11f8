//! The live tree of actors, observed and not guessed: every actor takes a seat, and the snapshot reads the seats.

use crate::{
    grant::{Grant, Lane},
    meter::{Meter, TaskProgress},
    progress::{Progress, Record},
    region::Region,
    stage,
};
use chrono::{DateTime, Utc};
use ractor::{ActorCell, ActorRef, ActorStatus, Message, MessagingErr, RpcReplyPort, rpc::CallResult};
use serde::Serialize;
use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};
use svc_ids::{DocumentId, TaskId};
use uuid::Uuid;

/// The most nodes in one snapshot, including the root.
const MOST_NODES: usize = 500;
/// How many characters of an error are kept.
const MOST_ERROR: usize = 300;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ActorKind {
    Root,
    LockManager,
    Dispatcher,
    Heart,
    Documents,
    Document,
    Task,
}

impl ActorKind {
    pub const fn as_str(self) -> &'static str {
        match self {
            ActorKind::Root => "root",
            ActorKind::LockManager => "lock_manager",
            ActorKind::Dispatcher => "dispatcher",
            ActorKind::Heart => "heart",
            ActorKind::Documents => "documents",
            ActorKind::Document => "document",
            ActorKind::Task => "task",
        }
    }
}

/// The actors of one worker at one moment: at most 500 nodes, the upper levels first.
#[derive(Clone, Debug, Serialize)]
pub struct TreeSnapshot {
    pub worker_id: String,
    pub taken_at: DateTime<Utc>,
    /// The number of living actors.
    pub actors: usize,
    /// How many of them are missing in `root` because there are too many.
    pub omitted: usize,
    /// All actors, also those missing in `root`, counted by what they are and do.
    pub totals: Vec<Total>,
    /// The lanes that this worker takes tasks of.
    pub lanes: Vec<LaneUse>,
    /// `None` before the tree has started and after it has ended.
    pub root: Option<TreeNode>,
}

/// Actors that are alike.
#[derive(Clone, Debug, Serialize)]
pub struct Total {
    pub kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_type: Option<String>,
    pub state: ActorState,
    pub count: usize,
    /// When the oldest of them started.
    pub oldest: DateTime<Utc>,
    /// Messages sent to them and not yet handled.
    pub queued: u64,
}

/// How much of a lane is in use.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct LaneUse {
    pub lane: Lane,
    pub permits: usize,
    pub busy: usize,
}

#[derive(Clone, Debug, Serialize)]
pub struct TreeNode {
    /// `root`, `lock_manager`, `dispatcher`, `heart`, `documents`, `document`; for a task `probe`, `extract`,
    /// `structure`, `embed`, `rollup`, or its type if it is none of these.
    pub kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_id: Option<TaskId>,
    /// For a task its node, for a document its root.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub document_id: Option<DocumentId>,
    /// Set for a task.
    #[serde(flatten)]
    pub run: Option<TaskRun>,
    /// Set for a document.
    #[serde(flatten)]
    pub progress: Option<Progress>,
    pub state: ActorState,
    pub since: DateTime<Utc>,
    /// The number of messages handled.
    pub handled: u64,
    /// The number of messages sent and not yet handled.
    pub queued: u64,
    pub restarts: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    pub children: Vec<TreeNode>,
}

#[derive(Clone, Debug, Serialize)]
pub struct TaskRun {
    /// 1 for the first attempt.
    pub attempt: i32,
    pub lane: Lane,
    pub region: Region,
    pub phase: Phase,
    /// `None` while its handler has not said how far it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<TaskProgress>,
}

/// The state of an actor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ActorState {
    Starting,
    Running,
    Draining,
    Stopping,
    Stopped,
}

impl ActorState {
    const fn as_str(self) -> &'static str {
        match self {
            ActorState::Starting => "starting",
            ActorState::Running => "running",
            ActorState::Draining => "draining",
            ActorState::Stopping => "stopping",
            ActorState::Stopped => "stopped",
        }
    }
}

/// How far a task has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Reserved but not begun.
    Claimed,
    Preparing,
    /// Only the end of its transaction is left.
    Committing,
    /// It was told to end or has ended, and what is owed to the queue is being written.
    Stopping,
}

/// What an actor has to do and has done. Mailboxes have no length, so messages are counted as they go in and out.
#[derive(Default)]
pub(crate) struct Load {
    sent: AtomicU64,
    handled: AtomicU64,
    restarts: AtomicU32,
    last_error: Mutex<Option<String>>,
}

impl Load {
    pub fn handled(&self) {
        self.handled.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts work that no message brought.
    pub fn handled_unsent(&self) {
        self.sent.fetch_add(1, Ordering::Relaxed);
        self.handled();
    }

    pub fn error(&self, error: impl ToString) {
        let text = error.to_string().chars().take(MOST_ERROR).collect();
        *lock(&self.last_error) = Some(text);
    }

    fn queued(&self) -> u64 {
        self.sent.load(Ordering::Relaxed).saturating_sub(self.handled.load(Ordering::Relaxed))
    }

    fn has_failed(&self) -> bool {
        self.restarts.load(Ordering::Relaxed) > 0 || lock(&self.last_error).is_some()
    }

    /// Counts a restart. The old mailbox is gone with its messages.
    pub fn restarted(&self) {
        self.restarts.fetch_add(1, Ordering::Relaxed);
        self.handled.store(self.sent.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// An address that counts the messages sent to it.
pub(crate) struct Post<M> {
    pub actor: ActorRef<M>,
    pub load: Arc<Load>,
}

impl<M> Clone for Post<M> {
    fn clone(&self) -> Self {
        Post { actor: self.actor.clone(), load: self.load.clone() }
    }
}

impl<M: Message> Post<M> {
    pub fn cast(&self, message: M) -> Result<(), MessagingErr<M>> {
        self.load.sent.fetch_add(1, Ordering::Relaxed);
        self.actor.cast(message).inspect_err(|_| self.load.handled())
    }

    pub async fn call<R: Send + 'static>(
        &self,
        message: impl FnOnce(RpcReplyPort<R>) -> M,
        patience: Duration,
    ) -> Result<CallResult<R>, MessagingErr<M>> {
        self.load.sent.fetch_add(1, Ordering::Relaxed);
        self.actor.call(message, Some(patience)).await.inspect_err(|_| self.load.handled())
    }
}

/// Who an actor is, for its seat.
pub(crate) struct Label {
    pub kind: ActorKind,
    pub parent: Option<u64>,
    pub task: Option<Arc<Grant>>,
    pub document_id: Option<DocumentId>,
    pub record: Option<Arc<Record>>,
    /// What the handler of a task says.
    pub meter: Meter,
}

impl Label {
    pub fn of(kind: ActorKind, parent: u64) -> Self {
        Label { kind, parent: Some(parent), task: None, document_id: None, record: None, meter: Meter::default() }
    }
}

struct Place {
    label: Label,
    cell: ActorCell,
    since: DateTime<Utc>,
    load: Arc<Load>,
}

impl Place {
    fn kind(&self) -> &str {
        let task = self.label.task.as_deref();
        task.map_or(self.label.kind.as_str(), |grant| stage::kind(&grant.task_type))
    }
}

/// The seats of one worker.
#[derive(Default)]
pub(crate) struct Board {
    places: Mutex<BTreeMap<u64, Place>>,
    next: AtomicU64,
}

/// A part of an actor's state. It is given up when the state is dropped, however the actor ended.
pub(crate) struct Seat {
    board: Arc<Board>,
    pub id: u64,
    pub load: Arc<Load>,
}

impl Drop for Seat {
    fn drop(&mut self) {
        let place = lock(&self.board.places).remove(&self.id);
        // The parts of the place are dropped outside the lock.
        drop(place);
    }
}

impl Board {
    pub fn sit(self: &Arc<Self>, cell: ActorCell, label: Label, load: Arc<Load>) -> Seat {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let place = Place { label, cell, since: Utc::now(), load: load.clone() };
        lock(&self.places).insert(id, place);
        Seat { board: self.clone(), id, load }
    }

    /// Takes a snapshot. `phases` has the phase of every held token.
    pub fn snapshot(&self, worker_id: &str, phases: &HashMap<Uuid, Phase>, lanes: Vec<LaneUse>) -> TreeSnapshot {
        let places = lock(&self.places);
        let mut below: HashMap<Option<u64>, Vec<u64>> = HashMap::new();
        for (id, place) in places.iter() {
            below.entry(place.label.parent).or_default().push(*id);
        }
        // What has failed comes first, then what is oldest, so that a snapshot that is cut off shows what an operator looks for.
        for siblings in below.values_mut() {
            siblings.sort_by_key(|id| !places.get(id).is_some_and(|place| place.load.has_failed()));
        }
        // The order is level by level, so that tasks are left out before documents, and documents before the permanent
        // actors.
        let mut order: Vec<(u64, Option<usize>)> = Vec::new();
        let mut queue: VecDeque<(u64, Option<usize>)> =
            below.get(&None).and_then(|roots| roots.first()).map(|id| (*id, None)).into_iter().collect();
        while order.len() < MOST_NODES
            && let Some((id, parent)) = queue.pop_front()
        {
            let at = order.len();
            order.push((id, parent));
            queue.extend(below.get(&Some(id)).into_iter().flatten().map(|child| (*child, Some(at))));
        }
        let mut nodes: Vec<Option<TreeNode>> =
            order.iter().map(|(id, _)| places.get(id).map(|place| node(place, phases))).collect();
        // Children come after their parents in `order`, so each child is complete when it is moved into its parent.
        for at in (1..nodes.len()).rev() {
            let child = nodes[at].take();
            if let (Some(child), Some(parent)) = (child, order[at].1)
                && let Some(parent) = nodes[parent].as_mut()
            {
                parent.children.push(child);
            }
        }
        let mut root = nodes.into_iter().next().flatten();
        if let Some(root) = root.as_mut() {
            in_order(root);
        }
        TreeSnapshot {
            worker_id: worker_id.to_owned(),
            taken_at: Utc::now(),
            actors: places.len(),
            omitted: places.len() - order.len(),
            totals: totals(places.values()),
            lanes,
            root,
        }
    }
}

/// Counts the actors by what they are and do.
fn totals<'a>(places: impl Iterator<Item = &'a Place>) -> Vec<Total> {
    let mut totals: BTreeMap<(&str, Option<&str>, &str), Total> = BTreeMap::new();
    for place in places {
        let task_type = place.label.task.as_deref().map(|grant| grant.task_type.as_str());
        let (kind, state) = (place.kind(), state(&place.cell));
        let total = totals.entry((kind, task_type, state.as_str())).or_insert_with(|| Total {
            kind: kind.to_owned(),
            task_type: task_type.map(str::to_owned),
            state,
            count: 0,
            oldest: place.since,
            queued: 0,
        });
        total.count += 1;
        total.oldest = total.oldest.min(place.since);
        total.queued += place.load.queued();
    }
    totals.into_values().collect()
}

/// The children were moved from last to first. The tree has four levels, so this recursion is shallow.
fn in_order(node: &mut TreeNode) {
    node.children.reverse();
    node.children.iter_mut().for_each(in_order);
}

fn state(cell: &ActorCell) -> ActorState {
    match cell.get_status() {
        ActorStatus::Unstarted | ActorStatus::Starting => ActorState::Starting,
        ActorStatus::Running | ActorStatus::Upgrading => ActorState::Running,
        ActorStatus::Draining => ActorState::Draining,
        ActorStatus::Stopping => ActorState::Stopping,
        ActorStatus::Stopped => ActorState::Stopped,
    }
}

fn node(place: &Place, phases: &HashMap<Uuid, Phase>) -> TreeNode {
    let task = place.label.task.as_deref();
    TreeNode {
        kind: place.kind().to_owned(),
        task_type: task.map(|grant| grant.task_type.clone()),
        task_id: task.map(|grant| grant.task_id),
        document_id: place.label.document_id,
        run: task.map(|grant| TaskRun {
            attempt: grant.attempt,
            lane: grant.lane,
            region: grant.region.clone(),
            phase: phases.get(&grant.token).copied().unwrap_or(Phase::Stopping),
            progress: place.label.meter.read(),
        }),
        progress: place.label.record.as_deref().map(Record::read),
        state: state(&place.cell),
        since: place.since,
        handled: place.load.handled.load(Ordering::Relaxed),
        queued: place.load.queued(),
        restarts: place.load.restarts.load(Ordering::Relaxed),
        last_error: lock(&place.load.last_error).clone(),
        children: Vec::new(),
    }
}

/// A panic cannot leave this plain data half-written, so a poisoned lock is still good.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
