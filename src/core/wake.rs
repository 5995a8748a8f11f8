//! News of work, from the code that queued it to the workers that claim it.
use std::sync::Arc;
use svc_actors::{Lanes, SharedLanes};
use tokio::sync::Notify;
use uuid::Uuid;

/// News of work in this process. Its own worker learns of it at once, the other processes soon after.
#[derive(Clone, Debug)]
pub struct Wake(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    lanes: SharedLanes,
    /// Lanes that only other processes must hear about.
    elsewhere: SharedLanes,
    news: Notify,
    /// Identifies what this process sent, so that it ignores its own notifications.
    sender: Uuid,
}

impl Default for Wake {
    fn default() -> Wake {
        Wake(Arc::new(Shared {
            lanes: SharedLanes::default(),
            elsewhere: SharedLanes::default(),
            news: Notify::new(),
            sender: Uuid::new_v4(),
        }))
    }
}

impl Wake {
    /// Announces that these lanes may have work. Call it after the commit that brought the work.
    pub fn notify(&self, lanes: Lanes) {
        if !lanes.is_empty() {
            self.0.lanes.add(lanes);
            self.0.news.notify_one();
        }
    }

    /// Announces lanes to other processes only, because the worker of this one has just claimed what it can run.
    pub fn notify_elsewhere(&self, lanes: Lanes) {
        if !lanes.is_empty() {
            self.0.elsewhere.add(lanes);
            self.0.news.notify_one();
        }
    }

    /// Waits until there is news that nobody has waited for yet.
    pub(crate) async fn notified(&self) {
        self.0.news.notified().await;
    }

    /// Takes the lanes that were announced since the last call.
    pub(crate) fn take(&self) -> Lanes {
        self.0.lanes.take()
    }

    /// Takes the lanes that were announced for other processes only.
    pub(crate) fn take_elsewhere(&self) -> Lanes {
        self.0.elsewhere.take()
    }

    /// Identifies the notifications of this process.
    pub fn sender(&self) -> Uuid {
        self.0.sender
    }
}
