//! What a document's supervisor knows of its document, kept where the tree's snapshot can read it.

use crate::{
    grant::{Grant, TaskFailure},
    stage,
};
use chrono::{DateTime, Utc};
use serde::Serialize;
use std::sync::{Mutex, MutexGuard, PoisonError};
use svc_ids::{RootId, TaskId};

/// How many characters of a document's title are kept.
const MOST_TITLE: usize = 100;
/// How many characters of a failure's message are kept.
const MOST_MESSAGE: usize = 300;

/// How far a document has come, as far as this process knows.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Progress {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The kind of the most advanced task that is running here, or else of the last one that was: `probe`, `extract`,
    /// `structure`, `embed`, `rollup`, or the task's type if it is none of these.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stage: Option<String>,
    pub tasks: TaskCounts,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_failure: Option<LastFailure>,
}

/// A document's tasks, counted by this process since its supervisor started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct TaskCounts {
    /// Unfinished tasks in the whole queue at the last look, up to a cap; `None` before the first look.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open: Option<u64>,
    /// Tasks running here.
    pub held: usize,
    pub done: u64,
    pub failed: u64,
}

/// The last failure among a document's tasks.
#[derive(Clone, Debug, Serialize)]
pub struct LastFailure {
    pub task_id: TaskId,
    pub task_type: String,
    pub code: String,
    pub message: String,
    pub at: DateTime<Utc>,
}

/// What the queue knows of a document whose supervisor is here.
#[derive(Clone, Debug)]
pub struct DocumentFacts {
    pub root_id: RootId,
    pub title: Option<String>,
    /// Unfinished tasks; an implementation may stop counting at a cap.
    pub open_tasks: u64,
}

/// The progress of one document. Its supervisor and the documents actor write it; the snapshot reads it.
#[derive(Default)]
pub(crate) struct Record(Mutex<Progress>);

impl Record {
    fn lock(&self) -> MutexGuard<'_, Progress> {
        // A panic cannot leave this plain data half-written, so a poisoned lock is still good.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn read(&self) -> Progress {
        self.lock().clone()
    }

    /// Sets the tasks that are running here now. If there are none, the stage of the last one stays.
    pub fn at_work<'a>(&self, tasks: impl ExactSizeIterator<Item = &'a Grant>) {
        let held = tasks.len();
        let furthest = tasks.max_by_key(|grant| stage::stage(&grant.task_type));
        let mut progress = self.lock();
        progress.tasks.held = held;
        if let Some(grant) = furthest {
            progress.stage = Some(stage::kind(&grant.task_type).to_owned());
        }
    }

    pub fn done(&self) {
        self.lock().tasks.done += 1;
    }

    pub fn failed(&self, grant: &Grant, failure: &TaskFailure) {
        let last = LastFailure {
            task_id: grant.task_id,
            task_type: grant.task_type.clone(),
            code: failure.code.clone(),
            message: failure.message.chars().take(MOST_MESSAGE).collect(),
            at: Utc::now(),
        };
        let mut progress = self.lock();
        // A task that was only put off has not failed.
        progress.tasks.failed += u64::from(failure.counts);
        progress.last_failure = Some(last);
    }

    pub fn learn(&self, facts: &DocumentFacts) {
        let mut progress = self.lock();
        progress.tasks.open = Some(facts.open_tasks);
        if let Some(title) = &facts.title {
            progress.title = Some(title.chars().take(MOST_TITLE).collect());
        }
    }
}
