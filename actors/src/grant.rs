//! What the queue grants, and how a task can end.

use crate::{region::Region, words::UnknownWord};
use serde::Serialize;
use serde_json::{Map, Value};
use std::{
    fmt,
    str::FromStr,
    sync::atomic::{AtomicU8, Ordering},
    time::Duration,
};
use svc_ids::{DocumentId, RootId, TaskId};
use tracing::Span;
use uuid::Uuid;

/// Kinds of work. Each lane has its own permits, so that a thousand probes do not starve one rollup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Lane {
    /// Parsing and other work that keeps a core busy.
    Cpu,
    /// Passes through a local model.
    Model,
    /// Calls to a language model elsewhere.
    Llm,
    /// Everything that mostly waits.
    Io,
}

impl Lane {
    pub const ALL: [Lane; 4] = [Lane::Cpu, Lane::Model, Lane::Llm, Lane::Io];

    pub const fn as_str(self) -> &'static str {
        match self {
            Lane::Cpu => "cpu",
            Lane::Model => "model",
            Lane::Llm => "llm",
            Lane::Io => "io",
        }
    }
}

impl FromStr for Lane {
    type Err = UnknownWord;

    fn from_str(word: &str) -> Result<Self, Self::Err> {
        let known = Lane::ALL.into_iter().find(|lane| lane.as_str() == word);
        known.ok_or_else(|| UnknownWord::new("lane", word, "cpu, model, llm or io"))
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lanes(u8);

impl Lanes {
    pub const NONE: Lanes = Lanes(0);
    pub const ALL: Lanes = Lanes(0b1111);

    pub const fn of(lane: Lane) -> Lanes {
        Lanes(1 << lane as u8)
    }

    pub const fn contains(self, lane: Lane) -> bool {
        self.0 & Lanes::of(lane).0 != 0
    }

    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    #[must_use]
    pub const fn with(self, other: Lanes) -> Lanes {
        Lanes(self.0 | other.0)
    }

    #[must_use]
    pub const fn without(self, other: Lanes) -> Lanes {
        Lanes(self.0 & !other.0)
    }

    pub fn iter(self) -> impl Iterator<Item = Lane> {
        Lane::ALL.into_iter().filter(move |lane| self.contains(*lane))
    }
}

impl FromIterator<Lane> for Lanes {
    fn from_iter<I: IntoIterator<Item = Lane>>(lanes: I) -> Lanes {
        lanes.into_iter().map(Lanes::of).fold(Lanes::NONE, Lanes::with)
    }
}

/// A set of lanes that one side adds to and the other side takes.
#[derive(Debug, Default)]
pub struct SharedLanes(AtomicU8);

impl SharedLanes {
    pub fn add(&self, lanes: Lanes) {
        self.0.fetch_or(lanes.0, Ordering::AcqRel);
    }

    /// Takes all lanes that were added since the last call.
    pub fn take(&self) -> Lanes {
        Lanes(self.0.swap(0, Ordering::AcqRel))
    }
}

impl fmt::Display for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One claimed task: a row of the queue together with its reservation.
#[derive(Clone, Debug)]
pub struct Grant {
    pub task_id: TaskId,
    /// Proves the reservation; it is random and never used twice.
    pub token: Uuid,
    pub task_type: String,
    pub lane: Lane,
    /// The node the task is scoped to.
    pub document_id: DocumentId,
    /// The document whose supervisor runs the task.
    pub root_id: RootId,
    pub region: Region,
    /// 1 for the first attempt.
    pub attempt: i32,
    /// The task lost a lease and may have taken its worker down. It runs while the worker holds nothing else, so that
    /// it cannot bring other tasks down with it.
    pub runs_alone: bool,
    /// How long the handler may run; `None`: as long as its lease is renewed.
    pub deadline: Option<Duration>,
    /// The task's parameters.
    pub params: Value,
    /// The trace of what queued the task, as W3C writes it; for its handler.
    pub traceparent: Option<String>,
}

impl Grant {
    /// The span of the task: every line that is logged about the task is in it.
    pub fn span(&self) -> Span {
        tracing::info_span!(
            "task",
            "task.id" = self.task_id.0,
            "task.type" = self.task_type,
            "document.id" = self.document_id.0,
            "root.id" = self.root_id.0
        )
    }
}

/// How a handler ended without failing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The handler committed its effects and the task's completion in one transaction.
    Completed,
    /// The commit found that the token is no longer ours; everything was rolled back.
    LostLease,
    /// The work was never attempted; the handler recorded this reason.
    Skipped { reason: String },
    /// The task waits outside of the worker and keeps its region; another claim takes it up again.
    Batched,
}

/// Decides whether a failed task is tried again: `retryable` and `timeout` are, the other classes are not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorClass {
    Retryable,
    Permanent,
    Timeout,
    Dependency,
}

impl ErrorClass {
    /// The word stored as `error_type`.
    pub const fn as_str(self) -> &'static str {
        match self {
            ErrorClass::Retryable => "retryable",
            ErrorClass::Permanent => "permanent",
            ErrorClass::Timeout => "timeout",
            ErrorClass::Dependency => "dependency",
        }
    }
}

impl fmt::Display for ErrorClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why a task failed. The queue's port decides by class and attempt whether and when the task runs again.
///
/// This crate itself writes these codes: `panic` (retryable in the first two attempts, then permanent), `stopped`
/// (retryable; the task's actor ended before it for the third time in a row), `timeout` (timeout), `cancelled`
/// (permanent).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{class} {code}: {message}")]
pub struct TaskFailure {
    pub class: ErrorClass,
    /// Stable, snake_case.
    pub code: String,
    pub message: String,
    /// A wait that was asked for from outside. The longer of this and the backoff applies.
    pub retry_after: Option<Duration>,
    /// False if something that the task needs was away, which says nothing about the task. The task returns later and
    /// spends no attempt.
    pub counts: bool,
    /// For how long the task's permit stays empty after this. A worker that lacks what the task needs lacks it for all like it, and would take them away
    /// from the workers that have it.
    pub rest: Option<Duration>,
    /// Further details for the attempt log; the queue's port stores them with the failure.
    pub detail: Map<String, Value>,
    /// What was learned about the node before the failure, by evidence name. The port stores it if the failure is
    /// final.
    pub evidence: Map<String, Value>,
}

impl TaskFailure {
    pub fn new(class: ErrorClass, code: impl Into<String>, message: impl Into<String>) -> Self {
        TaskFailure {
            class,
            code: code.into(),
            message: message.into(),
            retry_after: None,
            counts: true,
            rest: None,
            detail: Map::new(),
            evidence: Map::new(),
        }
    }

    pub fn retryable(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(ErrorClass::Retryable, code, message)
    }

    pub fn permanent(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(ErrorClass::Permanent, code, message)
    }

    /// The failure of a task that somebody cancelled.
    pub fn cancelled() -> Self {
        Self::permanent("cancelled", "the task was cancelled")
    }

    /// The failure for something the task needs that is away, possibly for hours: the attempt does not count.
    pub fn away(code: impl Into<String>, message: impl Into<String>) -> Self {
        TaskFailure { counts: false, ..Self::retryable(code, message) }
    }

    /// Adds a detail for the attempt log.
    #[must_use]
    pub fn with_detail(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.detail.insert(name.to_owned(), value.into());
        self
    }

    /// Adds to the node's evidence.
    #[must_use]
    pub fn with_evidence(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.evidence.insert(name.to_owned(), value.into());
        self
    }
}
