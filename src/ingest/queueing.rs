//! The only way in which a task gets into the queue.
use crate::{
    ingest::tasks::types::{EMBED, TaskType},
    otlp,
    store::{
        places::Place,
        tasks::{self, NewTask},
    },
};
use serde_json::{Value, json};
use sqlx::PgConnection;
use std::collections::BTreeMap;
use svc_actors::{LeafRange, WriteMode};
use svc_ids::{RootId, TaskId};

/// The most documents that one task embeds.
const TOGETHER: usize = 64;
/// The most bytes of their texts; a longer document has a task of its own.
const TOGETHER_BYTES: usize = 128 * 1024;

/// What the tasks of one tree have in common.
#[derive(Clone, Copy)]
pub struct Queueing<'a> {
    /// The document whose supervisor runs them: the file, or a document that was created by itself.
    pub root_id: RootId,
    /// The badge of each task type, from the settings.
    pub badges: &'a BTreeMap<String, String>,
    /// The priority of a document that was created by itself. A file's priority is stored with its node and applies to
    /// all its tasks.
    pub priority: i32,
}

/// A task to queue at a node. The table of task types gives everything that is not set here.
pub struct Work<'a> {
    task_type: &'a TaskType,
    write_mode: WriteMode,
    leaves: Option<&'a LeafRange>,
    params: Value,
    after: &'a [TaskId],
}

impl<'a> Work<'a> {
    pub fn of(task_type: &'a TaskType) -> Work<'a> {
        Work { task_type, write_mode: task_type.write_mode, leaves: None, params: json!({}), after: &[] }
    }

    #[must_use]
    pub fn params(self, params: Value) -> Work<'a> {
        Work { params, ..self }
    }

    /// The task writes only these leaves under the node, so only they are reserved.
    #[must_use]
    pub fn leaves(self, leaves: &'a LeafRange) -> Work<'a> {
        Work { leaves: Some(leaves), ..self }
    }

    #[must_use]
    pub fn write_mode(self, write_mode: WriteMode) -> Work<'a> {
        Work { write_mode, ..self }
    }

    /// Tasks of the same node that must be completed first.
    #[must_use]
    pub fn after(self, after: &'a [TaskId]) -> Work<'a> {
        Work { after, ..self }
    }
}

impl<'a> Queueing<'a> {
    /// For tasks of an ingested file.
    pub fn of_file(root_id: RootId, badges: &'a BTreeMap<String, String>) -> Queueing<'a> {
        Queueing { root_id, badges, priority: 0 }
    }

    /// Queues a task of a document; returns the task's id.
    pub async fn add(&self, conn: &mut PgConnection, place: &Place, work: Work<'_>) -> sqlx::Result<TaskId> {
        let task = NewTask {
            task_type: work.task_type.name,
            lane: work.task_type.lane,
            document_id: place.id(),
            path: place.path(),
            root_id: self.root_id,
            write_mode: work.write_mode,
            leaves: work.leaves,
            dependencies: work.after,
            params: &work.params,
            badge: self.badges.get(work.task_type.name).map(String::as_str),
            priority: self.priority,
            traceparent: otlp::traceparent(),
        };
        tasks::enqueue(conn, &task).await
    }
}

/// Queues a task of one type at each of these places, which come with their files and what is asked of the task there.
pub async fn add_to_files(
    badges: &BTreeMap<String, String>,
    conn: &mut PgConnection,
    task_type: &TaskType,
    places: &[(RootId, Place, Value)],
) -> sqlx::Result<()> {
    let tasks: Vec<NewTask<'_>> = places
        .iter()
        .map(|(root_id, place, params)| NewTask {
            task_type: task_type.name,
            lane: task_type.lane,
            document_id: place.id(),
            path: place.path(),
            root_id: *root_id,
            write_mode: task_type.write_mode,
            leaves: None,
            dependencies: &[],
            params,
            badge: badges.get(task_type.name).map(String::as_str),
            priority: 0,
            traceparent: otlp::traceparent(),
        })
        .collect();
    tasks::enqueue_all(conn, &tasks).await.map(|_| ())
}

/// A document that a call created by itself.
pub struct Created<'a> {
    pub place: &'a Place,
    pub priority: i32,
    /// The trace of the call.
    pub traceparent: Option<String>,
}

/// Queues the tasks that embed these documents, one each; returns their ids in the same order.
pub async fn embed_each(
    badges: &BTreeMap<String, String>,
    conn: &mut PgConnection,
    documents: Vec<Created<'_>>,
) -> sqlx::Result<Vec<TaskId>> {
    let params = json!({});
    let tasks: Vec<NewTask<'_>> = documents
        .into_iter()
        .map(|Created { place, priority, traceparent }| NewTask {
            task_type: EMBED.name,
            lane: EMBED.lane,
            document_id: place.id(),
            path: place.path(),
            root_id: place.id().as_root(),
            write_mode: WriteMode::Itself,
            leaves: None,
            dependencies: &[],
            params: &params,
            badge: badges.get(EMBED.name).map(String::as_str),
            priority,
            traceparent,
        })
        .collect();
    tasks::enqueue_all(conn, &tasks).await
}

/// Queues the tasks that embed documents, which come with the bytes of their texts; one task embeds many. It stands at its first document and reserves
/// only that; see `ingest/tasks/embed.rs` for what happens if another one changes meanwhile.
pub async fn embed_together(
    badges: &BTreeMap<String, String>,
    conn: &mut PgConnection,
    documents: &[(Place, usize)],
    priority: i32,
) -> sqlx::Result<Vec<TaskId>> {
    let (mut rest, mut tasks) = (documents, Vec::new());
    while let Some((first, _)) = rest.first() {
        let mut bytes = 0;
        let fits = |(_, size): &&(Place, usize)| {
            bytes += size;
            bytes <= TOGETHER_BYTES
        };
        let together = rest.iter().take(TOGETHER).take_while(fits).count().max(1);
        let (group, after) = rest.split_at(together);
        rest = after;
        let params = match group {
            [_] => json!({}),
            group => json!({"documents": group.iter().map(|(place, _)| place.id()).collect::<Vec<_>>()}),
        };
        let queueing = Queueing { root_id: first.id().as_root(), badges, priority };
        let work = Work::of(&EMBED).write_mode(WriteMode::Itself).params(params);
        tasks.push(queueing.add(conn, first, work).await?);
    }
    Ok(tasks)
}
