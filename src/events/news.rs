//! Tells the readers of a process that there are new events. They share one connection, and none is held while nobody reads.
use crate::store::event_feed;
use sqlx::{PgPool, postgres::PgListener};
use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};
use tokio::sync::watch;

/// The time after which the newest number is read, because an announcement may have been lost.
const QUIET: Duration = Duration::from_secs(1);
/// The time between two tries to listen.
const RETRY: Duration = Duration::from_secs(5);

/// The newest number of an event, as far as this process knows. It gets smaller only after a failover that lost commits.
#[derive(Clone)]
pub struct News(Arc<Shared>);

struct Shared {
    pool: PgPool,
    newest: watch::Sender<i64>,
    /// Whether a task keeps the number up to date.
    is_watched: Mutex<bool>,
}

impl News {
    /// Reads and listens on connections of this pool, once somebody follows.
    pub fn new(pool: &PgPool) -> News {
        News(Arc::new(Shared { pool: pool.clone(), newest: watch::Sender::new(0), is_watched: Mutex::new(false) }))
    }

    /// Follows the newest number.
    pub fn follow(&self) -> watch::Receiver<i64> {
        let mut is_watched = self.0.is_watched.lock().unwrap_or_else(PoisonError::into_inner);
        let receiver = self.0.newest.subscribe();
        if !std::mem::replace(&mut *is_watched, true) {
            tokio::spawn(self.0.clone().watch());
        }
        receiver
    }
}

impl Shared {
    /// Keeps the number up to date until nobody follows it.
    async fn watch(self: Arc<Self>) {
        let mut listener = None;
        let mut tried = None;
        // The first look reads what was announced before.
        let mut announced = None;
        loop {
            if listener.is_none() && tried.is_none_or(|at: tokio::time::Instant| at.elapsed() >= RETRY) {
                tried = Some(tokio::time::Instant::now());
                listener = event_feed::listener(&self.pool).await.ok();
            }
            let known = *self.newest.borrow();
            let newest = match announced.filter(|announced| *announced > known) {
                Some(newest) => Ok(newest),
                // A smaller number was announced late, or a failover has lost the greater ones. What this reads began after all that is known was
                // learned, so it is right in both cases.
                None => event_feed::newest(&self.pool).await,
            };
            if let Ok(newest) = newest {
                self.newest.send_if_modified(|known| std::mem::replace(known, newest) != newest);
            }
            if self.newest.receiver_count() == 0 {
                // Nobody begins to follow while this is locked.
                let mut is_watched = self.is_watched.lock().unwrap_or_else(PoisonError::into_inner);
                if self.newest.receiver_count() == 0 {
                    *is_watched = false;
                    return;
                }
            }
            announced = next(&mut listener).await;
        }
    }
}

/// The next number that is announced; `None` if none is within the quiet time. A listener that is lost is dropped.
async fn next(listener: &mut Option<PgListener>) -> Option<i64> {
    let Some(listening) = listener else {
        tokio::time::sleep(QUIET).await;
        return None;
    };
    match tokio::time::timeout(QUIET, listening.recv()).await {
        Ok(Ok(announced)) => announced.payload().parse().ok(),
        Ok(Err(_)) => {
            *listener = None;
            None
        }
        Err(_) => None,
    }
}
