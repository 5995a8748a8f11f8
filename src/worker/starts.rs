//! Batches `start` writes: the tasks of one claim reach the 50 ms mark together and are written in one call.
use crate::store::{kept::KeptConnections, tasks};
use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};
use svc_actors::{Grant, PortError};
use svc_ids::TaskId;
use tokio::sync::oneshot;
use uuid::Uuid;

type Answer = Result<bool, String>;

/// A task that waits for the call that writes its start.
struct Waiting {
    task_id: TaskId,
    token: Uuid,
    answer: oneshot::Sender<Answer>,
}

pub struct Starts {
    kept: KeptConnections,
    /// The lease, which begins anew with the start. A call may take no longer either, because no claim can run
    /// meanwhile.
    lease: Duration,
    waiting: Mutex<Vec<Waiting>>,
    /// The task that holds this lock writes for all that wait.
    turn: tokio::sync::Mutex<()>,
}

impl Starts {
    pub fn new(kept: KeptConnections, lease: Duration) -> Starts {
        Starts { kept, lease, waiting: Mutex::default(), turn: tokio::sync::Mutex::default() }
    }

    /// Whether the task was still ours and has begun.
    pub async fn start(&self, grant: &Grant) -> Result<bool, PortError> {
        let (answer, answered) = oneshot::channel();
        let waiting = Waiting { task_id: grant.task_id, token: grant.token, answer };
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).push(waiting);
        let turn = self.turn.lock().await;
        // This lets tasks join that begin at the same moment.
        tokio::task::yield_now().await;
        let batch = std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        if !batch.is_empty() {
            // The call has a task of its own, so that the others get their answer even if the caller goes away.
            tokio::spawn(write(self.kept.clone(), self.lease, batch)).await.map_err(PortError::new)?;
        }
        drop(turn);
        match answered.await {
            Ok(answer) => answer.map_err(PortError::new),
            Err(_) => Err(PortError::new("the call that should have started the task ended early")),
        }
    }
}

async fn write(kept: KeptConnections, lease: Duration, batch: Vec<Waiting>) {
    let ids: Vec<TaskId> = batch.iter().map(|waiting| waiting.task_id).collect();
    let tokens: Vec<Uuid> = batch.iter().map(|waiting| waiting.token).collect();
    let call = kept.run(async |conn| tasks::start(conn, &ids, &tokens, lease).await);
    let started = match tokio::time::timeout(lease, call).await {
        Ok(started) => started.map_err(|error| error.to_string()),
        Err(_) => Err(format!("the start of tasks was not answered within {lease:?}")),
    };
    for waiting in batch {
        let started = match &started {
            Ok(started) => Ok(started.contains(&waiting.token)),
            Err(error) => Err(error.clone()),
        };
        // A caller that went away does not need the answer.
        let _ = waiting.answer.send(started);
    }
}
