//! The live actor tree, watched rather than guessed: every actor takes a seat, and the snapshot reads the seats.

use crate::grant::{Grant, Lane};
use crate::progress::{Progress, Record};
use crate::region::Region;
use crate::stage;
use chrono::{DateTime, Utc};
use ractor::rpc::CallResult;
use ractor::{ActorCell, ActorRef, ActorStatus, Message, MessagingErr, RpcReplyPort};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use uuid::Uuid;

/// Nodes in one snapshot, the root included.
const MOST_NODES: usize = 500;
/// Characters kept of an error.
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

/// The actors of one worker at one moment; at most 500 nodes, the upper levels first.
#[derive(Clone, Debug, Serialize)]
pub struct TreeSnapshot {
    pub worker_id: String,
    pub taken_at: DateTime<Utc>,
    /// Actors alive.
    pub actors: usize,
    /// Of these, not in `root` for the sake of its size.
    pub omitted: usize,
    /// None before the tree has started and after it has ended.
    pub root: Option<TreeNode>,
}

#[derive(Clone, Debug, Serialize)]
pub struct TreeNode {
    /// `root`, `lock_manager`, `dispatcher`, `heart`, `documents`, `document`; of a task `probe`, `extract`, `structure`, `embed`,
    /// `rollup`, or its type where it is none of these.
    pub kind: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_id: Option<i64>,
    /// The node of a task, the root of a document.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub document_id: Option<i64>,
    /// Of a task.
    #[serde(flatten)]
    pub run: Option<TaskRun>,
    /// Of a document.
    #[serde(flatten)]
    pub progress: Option<Progress>,
    /// `starting`, `running`, `draining`, `stopping` or `stopped`.
    pub state: &'static str,
    pub since: DateTime<Utc>,
    /// Messages handled.
    pub handled: u64,
    /// Messages sent and not handled yet.
    pub queued: u64,
    pub restarts: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    pub children: Vec<TreeNode>,
}

/// One task at work.
#[derive(Clone, Debug, Serialize)]
pub struct TaskRun {
    /// 1 for the first.
    pub attempt: i32,
    pub lane: Lane,
    /// What it has reserved.
    pub region: Region,
    pub phase: Phase,
}

/// How far a task is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Reserved, and not begun.
    Claimed,
    Preparing,
    /// All that is left is the end of its transaction.
    Committing,
    /// Told to end, or ended: what is owed to the queue is being written.
    Stopping,
}

/// What an actor has to do and has done. Mailboxes have no length, so what goes in and out is counted.
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

    /// Work that came by no message.
    pub fn handled_unsent(&self) {
        self.sent.fetch_add(1, Ordering::Relaxed);
        self.handled();
    }

    pub fn error(&self, error: impl ToString) {
        let text = error.to_string().chars().take(MOST_ERROR).collect();
        *lock(&self.last_error) = Some(text);
    }

    /// The old mailbox is gone with what was in it.
    pub fn restarted(&self) {
        self.restarts.fetch_add(1, Ordering::Relaxed);
        self.handled.store(self.sent.load(Ordering::Relaxed), Ordering::Relaxed);
    }
}

/// An address that counts what is sent to it.
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
    pub document_id: Option<i64>,
    pub record: Option<Arc<Record>>,
}

impl Label {
    pub fn of(kind: ActorKind, parent: u64) -> Self {
        Label { kind, parent: Some(parent), task: None, document_id: None, record: None }
    }
}

struct Place {
    label: Label,
    cell: ActorCell,
    since: DateTime<Utc>,
    load: Arc<Load>,
}

/// The seats of one worker.
#[derive(Default)]
pub(crate) struct Board {
    places: Mutex<BTreeMap<u64, Place>>,
    next: AtomicU64,
}

/// Part of an actor's state: given up when the state is dropped, however the actor ended.
pub(crate) struct Seat {
    board: Arc<Board>,
    pub id: u64,
    pub load: Arc<Load>,
}

impl Drop for Seat {
    fn drop(&mut self) {
        let place = lock(&self.board.places).remove(&self.id);
        // Its parts are dropped outside the lock.
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

    /// `phases`: of every token that is held.
    pub fn snapshot(&self, worker_id: &str, phases: &HashMap<Uuid, Phase>) -> TreeSnapshot {
        let places = lock(&self.places);
        let mut below: HashMap<Option<u64>, Vec<u64>> = HashMap::new();
        for (id, place) in places.iter() {
            below.entry(place.label.parent).or_default().push(*id);
        }
        // Level by level, so that what is left out are tasks before documents, and documents before the permanent actors.
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
        // Children stand behind their parents in `order`, so each is complete when it is moved up.
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
            root,
        }
    }
}

/// Moving up went from the last to the first; the tree has four levels, so this does not recurse deep.
fn in_order(node: &mut TreeNode) {
    node.children.reverse();
    node.children.iter_mut().for_each(in_order);
}

fn node(place: &Place, phases: &HashMap<Uuid, Phase>) -> TreeNode {
    let handled = place.load.handled.load(Ordering::Relaxed);
    let task = place.label.task.as_deref();
    TreeNode {
        kind: task.map_or(place.label.kind.as_str(), |grant| stage::kind(&grant.task_type)).to_owned(),
        task_type: task.map(|grant| grant.task_type.clone()),
        task_id: task.map(|grant| grant.task_id),
        document_id: place.label.document_id,
        run: task.map(|grant| TaskRun {
            attempt: grant.attempt,
            lane: grant.lane,
            region: grant.region.clone(),
            phase: phases.get(&grant.token).copied().unwrap_or(Phase::Stopping),
        }),
        progress: place.label.record.as_deref().map(Record::read),
        state: match place.cell.get_status() {
            ActorStatus::Unstarted | ActorStatus::Starting => "starting",
            ActorStatus::Running | ActorStatus::Upgrading => "running",
            ActorStatus::Draining => "draining",
            ActorStatus::Stopping => "stopping",
            ActorStatus::Stopped => "stopped",
        },
        since: place.since,
        handled,
        queued: place.load.sent.load(Ordering::Relaxed).saturating_sub(handled),
        restarts: place.load.restarts.load(Ordering::Relaxed),
        last_error: lock(&place.load.last_error).clone(),
        children: Vec::new(),
    }
}

/// A poisoned lock still guards plain data that is whole after every statement.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
