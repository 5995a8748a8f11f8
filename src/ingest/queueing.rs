//! The only way in which a task gets into the queue.
use crate::store::tasks::{self, NewTask};
use serde_json::Value;
use sqlx::PgConnection;
use std::collections::BTreeMap;
use svc_actors::{Lane, LeafRange, WriteMode};

/// What the tasks of one tree have in common.
#[derive(Clone, Copy)]
pub struct Queueing<'a> {
    /// The document whose supervisor runs them: the file, or a document that was created by itself.
    pub root_id: i64,
    /// The badge of each task type, from the settings.
    pub badges: &'a BTreeMap<String, String>,
    /// The priority of a document that was created by itself. A file's priority is stored with its node and applies to
    /// all its tasks.
    pub priority: i32,
}

/// What must be done at a node.
pub struct Work<'a> {
    pub task_type: &'a str,
    pub lane: Lane,
    pub write_mode: WriteMode,
    /// Where the task writes some leaves under the node and nothing else: only they are reserved.
    pub leaves: Option<&'a LeafRange>,
    pub params: &'a Value,
    /// Tasks of the same node that must be completed first.
    pub after: &'a [i64],
}

impl<'a> Queueing<'a> {
    /// For tasks of an ingested file.
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
            leaves: work.leaves,
            dependencies: work.after,
            params: work.params,
            badge: self.badges.get(work.task_type).map(String::as_str),
            priority: self.priority,
        };
        tasks::enqueue(conn, &task).await
    }
}
