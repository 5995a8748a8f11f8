//! The one way in which a task comes into the queue.
use crate::store::tasks::{self, NewTask};
use serde_json::Value;
use sqlx::PgConnection;
use std::collections::BTreeMap;
use svc_actors::{Lane, WriteMode};

/// What the tasks of one tree have in common.
#[derive(Clone, Copy)]
pub struct Queueing<'a> {
    /// The document whose supervisor runs them: the file, or a document that was created by itself.
    pub root_id: i64,
    /// The pool that runs a task type, by the settings.
    pub badges: &'a BTreeMap<String, String>,
    /// Of a document that was created by itself; a file's own stands with its node and holds for all its tasks.
    pub priority: i32,
}

/// What is to be done at a node.
pub struct Work<'a> {
    pub task_type: &'a str,
    pub lane: Lane,
    pub write_mode: WriteMode,
    pub params: &'a Value,
    /// Tasks of the same node that must be completed first.
    pub after: &'a [i64],
}

impl<'a> Queueing<'a> {
    /// Tasks of an ingested file.
    pub fn of_file(root_id: i64, badges: &'a BTreeMap<String, String>) -> Queueing<'a> {
        Queueing { root_id, badges, priority: 0 }
    }

    /// Queues a task of a document, whose ancestors are given from the root on; returns the task's id.
    pub async fn add(
        &self,
        conn: &mut PgConnection,
        (document_id, ancestors): (i64, &[i64]),
        work: Work<'_>,
    ) -> sqlx::Result<i64> {
        let task = NewTask {
            task_type: work.task_type,
            lane: work.lane,
            document_id,
            path: ancestors,
            root_id: self.root_id,
            write_mode: work.write_mode,
            dependencies: work.after,
            params: work.params,
            badge: self.badges.get(work.task_type).map(String::as_str),
            priority: self.priority,
        };
        tasks::enqueue(conn, &task).await
    }
}
