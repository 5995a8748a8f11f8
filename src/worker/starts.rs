//! Starts of tasks, joined: what one claim granted has taken a while at the same moment, and is written in one call.
use crate::store::{kept::KeptConnections, tasks};
use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};
use svc_actors::{Grant, PortError};
use tokio::sync::oneshot;
use uuid::Uuid;

type Answer = Result<bool, String>;

/// A task that waits for the call that takes it along.
struct Waiting {
    task_id: i64,
    token: Uuid,
    tell: oneshot::Sender<Answer>,
}

pub struct Starts {
    kept: KeptConnections,
    /// The lease, which begins anew with the start; a call takes no longer either, since nothing is claimed meanwhile.
    lease: Duration,
    waiting: Mutex<Vec<Waiting>>,
    /// Whoever has it writes for all who wait.
    turn: tokio::sync::Mutex<()>,
}

impl Starts {
    pub fn new(kept: KeptConnections, lease: Duration) -> Starts {
        Starts { kept, lease, waiting: Mutex::default(), turn: tokio::sync::Mutex::default() }
    }

    /// Whether the task was still ours, and has begun.
    pub async fn start(&self, grant: &Grant) -> Result<bool, PortError> {
        let (tell, told) = oneshot::channel();
        let waiting = Waiting { task_id: grant.task_id, token: grant.token, tell };
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).push(waiting);
        let turn = self.turn.lock().await;
        // Lets those come along that begin at the same moment.
        tokio::task::yield_now().await;
        let batch = std::mem::take(&mut *self.waiting.lock().unwrap_or_else(PoisonError::into_inner));
        if !batch.is_empty() {
            // A task of its own: the others get their answer even if the caller goes away.
            tokio::spawn(write(self.kept.clone(), self.lease, batch)).await.map_err(PortError::new)?;
        }
        drop(turn);
        match told.await {
            Ok(answer) => answer.map_err(PortError::new),
            Err(_) => Err(PortError::new("the call that was to start the task ended early")),
        }
    }
}

async fn write(kept: KeptConnections, lease: Duration, batch: Vec<Waiting>) {
    let ids: Vec<i64> = batch.iter().map(|waiting| waiting.task_id).collect();
    let tokens: Vec<Uuid> = batch.iter().map(|waiting| waiting.token).collect();
    let call = kept.run(async |conn| tasks::start(conn, &ids, &tokens, lease).await);
    let started = match tokio::time::timeout(lease, call).await {
        Ok(started) => started.map_err(|error| error.to_string()),
        Err(_) => Err(format!("the start of tasks was not answered within {lease:?}")),
    };
    for waiting in batch {
        let answer = match &started {
            Ok(started) => Ok(started.contains(&waiting.token)),
            Err(error) => Err(error.clone()),
        };
        // Whoever went away has no use for it.
        let _ = waiting.tell.send(answer);
    }
}
