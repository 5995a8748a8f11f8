//! Wake-ups between processes. The poll stays the truth: a lost one costs at most one poll.
use crate::store::queue;
use sqlx::{
    PgPool,
    postgres::{PgConnectOptions, PgListener, PgPoolOptions},
};
use std::{sync::Arc, time::Duration};
use svc_actors::Waker;
use tokio::{sync::Notify, task::JoinHandle};

const CHANNEL: &str = "svc_tasks";
/// Says that a held task is to be cancelled.
pub const CANCEL: &str = "svc_cancel";
/// At most one notification in this time: NOTIFY takes a lock that serialises commits.
const DEBOUNCE: Duration = Duration::from_millis(50);

/// After so long without a notification the connection is asked whether it is still there: one that was cut off in silence
/// says nothing.
const QUIET: Duration = Duration::from_secs(30);
/// How long it may take to answer.
const ANSWER: Duration = Duration::from_secs(5);

/// Listens for other processes' work on one connection, and tells them of ours, after the commits, on another.
pub fn start(options: PgConnectOptions, pool: PgPool, wake: Arc<Notify>, waker: Waker) -> Vec<JoinHandle<()>> {
    let elsewhere = waker.clone();
    let listen = tokio::spawn(async move {
        let own = PgPoolOptions::new().max_connections(1).connect_lazy_with(options);
        loop {
            if let Err(error) = listen(&own, &elsewhere).await {
                tracing::debug!(error = %error, "not listening; the poll carries on");
            }
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
    });
    vec![listen, tell(pool, wake, Some(waker))]
}

/// Tells the other processes, and the worker of this one if there is one, whenever tasks were queued here.
pub fn tell(pool: PgPool, wake: Arc<Notify>, waker: Option<Waker>) -> JoinHandle<()> {
    let here = move || waker.iter().for_each(Waker::wake);
    tokio::spawn(async move {
        loop {
            wake.notified().await;
            here();
            tokio::time::sleep(DEBOUNCE).await;
            here();
            // Lost where the database is away: the poll finds the work.
            let _ = queue::announce(&pool, CHANNEL).await;
        }
    })
}

async fn listen(pool: &PgPool, waker: &Waker) -> sqlx::Result<()> {
    let mut listener = PgListener::connect_with(pool).await?;
    listener.listen_all([CHANNEL, CANCEL]).await?;
    // What was said before is lost.
    waker.beat();
    waker.wake();
    loop {
        match tokio::time::timeout(QUIET, listener.recv()).await {
            // The beat's answer names the tasks that are to end.
            Ok(said) => match said?.channel() {
                CANCEL => waker.beat(),
                _ => waker.wake(),
            },
            Err(_) => match tokio::time::timeout(ANSWER, queue::listens(&mut listener)).await {
                Ok(answer) => answer?,
                Err(_) => return Err(sqlx::Error::PoolTimedOut),
            },
        }
    }
}
