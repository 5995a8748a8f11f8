//! The queue and the fleet, for the operator of the service.
use super::documents::{id_cursor, page_by_id};
use crate::{
    access::Caller,
    error::OrFail,
    ingest::{requeue::requeue, settle},
    registry::Handle,
    sampler::Usual,
    service::Service,
    store::{self, admin::Cancel, audit::Entry},
    worker::wakeup,
};
use sqlx::PgConnection;
use std::collections::{BTreeSet, HashMap};
use svc_actors::Lanes;
use svc_client::{
    Call, Code, Failure, ops,
    wire::{
        ActorNode, AttemptPage, AuditAct, ReservationPage, SnapshotPart, TaskPage, TaskResponse, TaskRunning,
        TaskTypeList, TaskTypeState, WorkerList, WorkerQuery, WorkerResponse,
    },
};
use svc_ids::{DocumentId, RootId, TaskId};

fn no_task(id: TaskId) -> Failure {
    Failure::new(Code::NotFound, format!("there is no task {id}"))
}

async fn task(conn: &mut PgConnection, id: TaskId) -> Result<TaskResponse, Failure> {
    store::admin::task(conn, id).await.or_fail()?.ok_or_else(|| no_task(id))
}

impl Handle<ops::list_tasks> for Service {
    async fn handle(&self, _: &Caller, call: Call<ops::list_tasks>) -> Result<TaskPage, Failure> {
        let (limit, after) = (call.query.limit.unwrap_or(100), id_cursor(call.query.cursor.as_deref())?);
        let mut conn = self.pool.acquire().await.or_fail()?;
        let rows = store::admin::tasks(&mut conn, &call.query, TaskId(after), limit + 1).await.or_fail()?;
        let (mut tasks, next_cursor) = page_by_id(rows, limit, |task| task.id);
        self.say_running(&mut conn, &mut tasks).await?;
        Ok(TaskPage { tasks, next_cursor })
    }
}

impl Handle<ops::read_task> for Service {
    async fn handle(&self, _: &Caller, call: Call<ops::read_task>) -> Result<TaskResponse, Failure> {
        let mut conn = self.pool.acquire().await.or_fail()?;
        let mut read = task(&mut conn, TaskId(call.path.id)).await?;
        if holder(&read).is_some() {
            self.sampler.look();
        }
        self.say_running(&mut conn, std::slice::from_mut(&mut read)).await?;
        Ok(read)
    }
}

/// The worker that runs a task.
fn holder(task: &TaskResponse) -> Option<&str> {
    task.claimed_by.as_deref().filter(|_| !task.finished && task.blocked_by.is_none())
}

impl Service {
    /// Says of tasks that run how far they are, as their workers told last.
    async fn say_running(&self, conn: &mut PgConnection, tasks: &mut [TaskResponse]) -> Result<(), Failure> {
        let held: Vec<(i64, &str)> = tasks.iter().filter_map(|task| Some((task.id, holder(task)?))).collect();
        if held.is_empty() {
            return Ok(());
        }
        let (ids, workers): (Vec<i64>, BTreeSet<&str>) = held.into_iter().unzip();
        let workers: Vec<&str> = workers.into_iter().collect();
        let found = store::admin::actors_of(conn, &workers, &ids).await.or_fail()?;
        let mut found: HashMap<i64, ActorNode> =
            found.into_iter().filter_map(|node| Some((node.task_id?, node))).collect();
        let usual = self.sampler.usual();
        for task in tasks {
            task.running = found.remove(&task.id).map(|node| TaskRunning {
                since: node.since,
                progress: node.progress,
                usual_ms: usual.get(&task.task_type).copied(),
            });
        }
        Ok(())
    }
}

/// Says of each task in a worker's tree what its type usually takes.
fn say_usual(node: &mut ActorNode, usual: &Usual) {
    node.usual_ms = node.task_type.as_ref().and_then(|name| usual.get(name)).copied();
    node.children.iter_mut().for_each(|child| say_usual(child, usual));
}

impl Handle<ops::list_attempts> for Service {
    async fn handle(&self, _: &Caller, call: Call<ops::list_attempts>) -> Result<AttemptPage, Failure> {
        let (limit, id) = (call.query.rows(), TaskId(call.path.id));
        let before = match call.query.cursor.as_deref() {
            None => i64::MAX,
            cursor => id_cursor(cursor)?,
        };
        let mut conn = self.pool.acquire().await.or_fail()?;
        let node = DocumentId(task(&mut conn, id).await?.document_id);
        let rows = store::evidence::attempts_at(&mut conn, node, id, before, limit + 1).await.or_fail()?;
        let (rows, next_cursor) = page_by_id(rows, limit, |(id, _)| *id);
        Ok(AttemptPage { attempts: rows.into_iter().map(|(_, attempt)| attempt).collect(), next_cursor })
    }
}

impl Handle<ops::retry_task> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::retry_task>) -> Result<TaskResponse, Failure> {
        let id = TaskId(call.path.id);
        // No document moves until this commits, because a task that is put back gets the region of its document's
        // place.
        let mut tx = store::transaction::begin_creating(&self.pool).await.or_fail()?;
        let before = task(&mut tx, id).await?;
        if !requeue(&mut tx, &self.task_types, id, DocumentId(before.document_id), RootId(before.root_id)).await? {
            // Somebody else may have queued it since the look above.
            let status = task(&mut tx, id).await?.status;
            let detail = format!("task {id} is {status}: only a task that has failed for good can be queued again");
            return Err(Failure::new(Code::Conflict, detail).with("task_status", status.as_str()));
        }
        let after = task(&mut tx, id).await?;
        caller.record(&mut tx, on_task(AuditAct::TaskRetry, &before)).await.or_fail()?;
        tx.commit().await.or_fail()?;
        self.wake.notify(Lanes::ALL);
        Ok(after)
    }
}

impl Handle<ops::cancel_task> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::cancel_task>) -> Result<TaskResponse, Failure> {
        let id = TaskId(call.path.id);
        let mut tx = store::transaction::begin(&self.pool).await.or_fail()?;
        let before = task(&mut tx, id).await?;
        if before.finished {
            let detail = format!("task {id} is already {}", before.status);
            return Err(Failure::new(Code::Conflict, detail).with("task_status", before.status.as_str()));
        }
        let document_id = DocumentId(before.document_id);
        settle::lock_for_failure(&mut tx, &self.task_types, &before.task_type, document_id, &before.params)
            .await
            .or_fail()?;
        let which = Cancel::Task(id);
        // A waiting task may be claimed, and a held one given back, between two looks.
        let (stopping, cancelled) = loop {
            let stopping = store::admin::cancel_held(&mut tx, which).await.or_fail()?;
            let cancelled = store::admin::cancel_waiting(&mut tx, which).await.or_fail()?;
            if stopping > 0 || !cancelled.is_empty() || !store::admin::goes_on(&mut tx, which).await.or_fail()? {
                break (stopping, cancelled);
            }
        };
        for task in &cancelled {
            store::tasks::fail_dependents(&mut tx, task.id, task.scope_document_id).await.or_fail()?;
            settle::task_failed(&mut tx, &self.task_types, &task.task_type, task.scope_document_id, &task.params.0)
                .await
                .or_fail()?;
        }
        caller.record(&mut tx, on_task(AuditAct::TaskCancel, &before)).await.or_fail()?;
        tx.commit().await.or_fail()?;
        announce_cancel(self, stopping).await;
        if !cancelled.is_empty() {
            settle::settle_or_leave(self, RootId(before.root_id)).await;
            self.wake.notify(Lanes::ALL);
        }
        let mut conn = self.pool.acquire().await.or_fail()?;
        task(&mut conn, id).await
    }
}

/// An act on a task, for the audit.
fn on_task(act: AuditAct, task: &TaskResponse) -> Entry<'static> {
    let entry = Entry::new(act)
        .document(DocumentId(task.document_id))
        .with("task_id", task.id)
        .with("task_type", task.task_type.as_str());
    match task.claimed_by.as_deref().filter(|_| !task.finished) {
        Some(worker) => entry.with("worker", worker),
        None => entry,
    }
}

/// Tells the workers of a cancel at once; otherwise they learn of it at their next heartbeat.
pub(super) async fn announce_cancel(service: &Service, stopping: i64) {
    if stopping > 0
        && let Err(error) = store::queue::announce(&service.pool, wakeup::CANCEL).await
    {
        tracing::warn!(error = %error, "the workers will learn of a cancel only at their next heartbeat");
    }
}

impl Handle<ops::list_task_types> for Service {
    async fn handle(&self, _: &Caller, _: Call<ops::list_task_types>) -> Result<TaskTypeList, Failure> {
        let mut tx = store::transaction::begin(&self.pool).await.or_fail()?;
        let task_types = store::admin::task_types(&mut tx, None).await.or_fail()?;
        tx.commit().await.or_fail()?;
        Ok(TaskTypeList { task_types })
    }
}

async fn task_type(conn: &mut PgConnection, name: &str) -> Result<TaskTypeState, Failure> {
    let mut found = store::admin::task_types(conn, Some(name)).await.or_fail()?;
    found.pop().ok_or_else(|| Failure::new(Code::NotFound, format!("there is no task type `{name}`")))
}

/// 404 for a task type of which nobody has heard.
async fn check_known(service: &Service, conn: &mut PgConnection, name: &str) -> Result<(), Failure> {
    let known = task_type(conn, name).await?;
    let ours = service.task_types.names_in(None).any(|known| known == name);
    if ours || known.has_handler || known.paused || known.pending + known.held + known.waiting_for_retry > 0 {
        return Ok(());
    }
    let detail = format!("there is no task type `{name}` in the queue, and no living worker knows it");
    Err(Failure::new(Code::NotFound, detail))
}

impl Handle<ops::pause_task_type> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::pause_task_type>) -> Result<TaskTypeState, Failure> {
        let name = call.path.task_type;
        let mut tx = store::transaction::begin(&self.pool).await.or_fail()?;
        check_known(self, &mut tx, &name).await?;
        store::admin::pause(&mut tx, &name).await.or_fail()?;
        let entry = Entry::new(AuditAct::TaskTypePause).with("task_type", name.as_str());
        caller.record(&mut tx, entry).await.or_fail()?;
        let state = task_type(&mut tx, &name).await?;
        tx.commit().await.or_fail()?;
        Ok(state)
    }
}

impl Handle<ops::resume_task_type> for Service {
    async fn handle(&self, caller: &Caller, call: Call<ops::resume_task_type>) -> Result<TaskTypeState, Failure> {
        let mut tx = store::transaction::begin(&self.pool).await.or_fail()?;
        check_known(self, &mut tx, &call.path.task_type).await?;
        store::admin::resume(&mut tx, &call.path.task_type).await.or_fail()?;
        let entry = Entry::new(AuditAct::TaskTypeResume).with("task_type", call.path.task_type.as_str());
        caller.record(&mut tx, entry).await.or_fail()?;
        let state = task_type(&mut tx, &call.path.task_type).await?;
        tx.commit().await.or_fail()?;
        self.wake.notify(Lanes::ALL);
        Ok(state)
    }
}

impl Handle<ops::list_workers> for Service {
    async fn handle(&self, _: &Caller, call: Call<ops::list_workers>) -> Result<WorkerList, Failure> {
        let workers = workers(self, call.query, None).await?;
        Ok(WorkerList { workers })
    }
}

impl Handle<ops::read_worker> for Service {
    async fn handle(&self, _: &Caller, call: Call<ops::read_worker>) -> Result<WorkerResponse, Failure> {
        let id = call.path.id;
        let found = workers(self, call.query, Some(&id)).await?.pop();
        found.ok_or_else(|| Failure::new(Code::NotFound, format!("there is no worker `{id}`")))
    }
}

async fn workers(service: &Service, query: WorkerQuery, only: Option<&str>) -> Result<Vec<WorkerResponse>, Failure> {
    let part = query.snapshot.unwrap_or(SnapshotPart::Tree);
    if part != SnapshotPart::Nothing {
        service.sampler.look();
    }
    let mut conn = service.pool.acquire().await.or_fail()?;
    let mut workers = store::admin::workers(&mut conn, part, only).await.or_fail()?;
    let usual = service.sampler.usual();
    let roots = workers.iter_mut().filter_map(|worker| worker.snapshot.as_mut()?.root.as_mut());
    roots.for_each(|root| say_usual(root, &usual));
    Ok(workers)
}

impl Handle<ops::list_reservations> for Service {
    async fn handle(&self, _: &Caller, call: Call<ops::list_reservations>) -> Result<ReservationPage, Failure> {
        let (limit, after) = (call.query.rows(), id_cursor(call.query.cursor.as_deref())?);
        let mut conn = self.pool.acquire().await.or_fail()?;
        let rows = store::admin::reservations(&mut conn, TaskId(after), limit + 1).await.or_fail()?;
        let (reservations, next_cursor) = page_by_id(rows, limit, |row| row.task_id);
        Ok(ReservationPage { reservations, next_cursor })
    }
}
