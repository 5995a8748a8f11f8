//! One worker: the tree of actors seen from outside.

use crate::{
    dispatcher::DispatcherMessage,
    grant::Lanes,
    port::{BeatFactory, Handler, Queue, bounded},
    root::{Root, RootMessage},
    settings::{WorkerError, WorkerSettings},
    shared::Shared,
    tree::TreeSnapshot,
};
use ractor::{Actor, ActorRef};
use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};
use svc_ids::RootId;
use tokio::time::timeout;

/// Why a worker ended by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WorkerEnd {
    /// The queue is empty and `drain_once` was set.
    Drained,
    /// The worker has done `max_tasks` tasks.
    MaxTasks,
    /// An actor kept failing; the reason names it.
    Failed(String),
}

/// Wakes a worker from anywhere. It is cheap to clone, and harmless after the worker's end.
#[derive(Clone)]
pub struct Waker(Arc<Shared>);

impl Waker {
    /// Announces that these lanes may have work, so that the worker looks now and not at the next poll. Any number of
    /// calls between two looks count as one.
    pub fn wake(&self, lanes: Lanes) {
        self.0.wake(lanes);
    }

    /// Asks for a heartbeat now and not at its usual time, because a task held here may have to end.
    pub fn beat(&self) {
        self.0.beat();
    }

    /// Has heartbeats come every second for the next 15 seconds, because somebody looks at the snapshots.
    pub fn watch(&self) {
        self.0.watch();
    }
}

/// A running worker. [`Worker::stop`] ends it in order. If it is dropped instead, its tasks are killed and the leases
/// of what it held expire.
pub struct Worker {
    shared: Arc<Shared>,
    root: ActorRef<RootMessage>,
}

impl Worker {
    /// Starts the actors on the current tokio runtime, and the heart on its own thread.
    pub async fn start(
        settings: WorkerSettings,
        queue: Arc<dyn Queue>,
        beat: BeatFactory,
        handler: Arc<dyn Handler>,
    ) -> Result<Worker, WorkerError> {
        settings.check()?;
        let shared = Arc::new(Shared::new(settings, queue, handler, beat));
        let (root, _) =
            Actor::spawn(None, Root, shared.clone()).await.map_err(|error| WorkerError::Spawn(error.to_string()))?;
        Ok(Worker { shared, root })
    }

    #[cfg(test)]
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    pub fn waker(&self) -> Waker {
        Waker(self.shared.clone())
    }

    pub fn wake(&self) {
        self.shared.wake(Lanes::ALL);
    }

    /// Waits until the worker ends by itself. Call [`Worker::stop`] afterwards all the same.
    pub async fn wait(&mut self) -> WorkerEnd {
        let mut end = self.shared.end.subscribe();
        match end.wait_for(Option::is_some).await {
            Ok(end) => end.clone().unwrap_or_else(|| WorkerEnd::Failed(String::new())),
            // The sender lives in `shared`, so this cannot happen.
            Err(_) => WorkerEnd::Failed("the worker is gone".to_owned()),
        }
    }

    pub fn snapshot(&self) -> TreeSnapshot {
        self.shared.snapshot()
    }

    /// Stops every task of the document that is held here and fails it as `cancelled`. Returns when that is written, or
    /// after `drain_timeout`. It is up to the queue to keep further tasks of the document from being claimed.
    pub async fn cancel_document(&self, root_id: RootId) {
        self.shared.ledger.stop_document(root_id);
        let gone = self.shared.ledger.until_none(|grant| grant.root_id == root_id);
        let _ = timeout(self.shared.settings.drain_timeout, gone).await;
    }

    /// Claims nothing more, lets running tasks finish for up to `within`, then stops the rest and gives it back. This
    /// takes at most `within` plus twice the `drain_timeout`.
    pub async fn stop(self, within: Duration) {
        self.stop_unless(within, std::future::pending()).await;
    }

    /// Does the same, but stops waiting for running tasks once `hurry` completes.
    pub async fn stop_unless(self, within: Duration, hurry: impl Future<Output = ()>) {
        let shared = &self.shared;
        let (ledger, patience) = (&shared.ledger, shared.settings.drain_timeout);
        shared.closing.store(true, Ordering::Release);
        // A tree that failed writes nothing any more.
        if !matches!(*shared.end.borrow(), Some(WorkerEnd::Failed(_))) {
            tokio::select! {
                _ = timeout(within, ledger.until_none(|_| true)) => {}
                () = hurry => {}
            }
            let stopped = async {
                ledger.stop_all();
                // A claim under way is handed out before this is answered, so its tasks are stopped too.
                if let Some(dispatcher) = shared.dispatcher.get() {
                    let _ = dispatcher.call(DispatcherMessage::Quiet, patience).await;
                    ledger.stop_all();
                }
                ledger.until_none(|_| true).await;
            };
            // Half of the patience is left for the tree, in case what is owed is not written in time.
            if timeout(patience / 2, stopped).await.is_err() {
                tracing::warn!("the worker ends while it still holds tasks");
            }
        }
        self.root.stop(None);
        let ended = async {
            self.root.get_cell().wait(None).await.ok();
            ledger.until_ended().await;
        };
        let _ = timeout(patience / 2, ended).await;
        let left = ledger.tokens();
        if !left.is_empty()
            && let Err(error) = bounded(patience, shared.queue.give_back(&left)).await
        {
            tracing::warn!(tasks = left.len(), error = %error, "giving back failed; the tasks run again when their leases expire");
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.shared.closing.store(true, Ordering::Release);
        self.root.stop(None);
    }
}
