//! Wake-ups between processes. Polling guarantees progress, so a lost wake-up costs at most one poll interval.
pub use crate::core::Wake;
use crate::store::queue;
use sqlx::{
    PgPool,
    postgres::{PgConnectOptions, PgListener, PgPoolOptions},
};
use std::time::Duration;
use svc_actors::{Lane, Lanes, Waker};
use tokio::{task::JoinHandle, time::Instant};
use uuid::Uuid;

const CHANNEL: &str = "svc_tasks";
/// The channel which announces that a held task must be cancelled.
pub const CANCEL: &str = "svc_cancel";
/// The shortest time between two notifications, because NOTIFY takes a lock that serialises commits.
const DEBOUNCE: Duration = Duration::from_millis(50);

/// After this time without a notification the connection is tested, because a silently broken one reports nothing.
const QUIET: Duration = Duration::from_secs(30);
/// How long the connection may take to answer.
const ANSWER: Duration = Duration::from_secs(5);

/// Listens for other processes' work on one connection, and announces ours, after the commits, on another.
pub fn start(options: PgConnectOptions, pool: PgPool, wake: Wake, waker: Waker) -> Vec<JoinHandle<()>> {
    let (elsewhere, sender) = (waker.clone(), wake.sender());
    let listen = tokio::spawn(async move {
        let own = PgPoolOptions::new().max_connections(1).connect_lazy_with(options);
        loop {
            if let Err(error) = listen(&own, &elsewhere, sender).await {
                tracing::debug!(error = %error, "not listening for notifications; polling continues");
            }
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
    });
    vec![listen, announce(pool, wake, Some(waker))]
}

/// Announces to the other processes, and to this process's own worker if there is one, that tasks were queued here.
pub fn announce(pool: PgPool, wake: Wake, waker: Option<Waker>) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut unannounced = Lanes::NONE;
        let mut due = Instant::now();
        loop {
            tokio::select! {
                () = wake.notified() => {
                    let lanes = wake.take();
                    if let Some(waker) = waker.as_ref().filter(|_| !lanes.is_empty()) {
                        waker.wake(lanes);
                    }
                    if unannounced.is_empty() {
                        due = Instant::now() + DEBOUNCE;
                    }
                    unannounced = unannounced.with(lanes).with(wake.take_elsewhere());
                }
                () = tokio::time::sleep_until(due), if !unannounced.is_empty() => {
                    // Work that this process's own worker has taken meanwhile is not announced. The notification is
                    // lost if the database is away; then polling finds the work.
                    let _ = queue::announce_work(&pool, CHANNEL, unannounced, wake.sender()).await;
                    unannounced = Lanes::NONE;
                }
            }
        }
    })
}

async fn listen(pool: &PgPool, waker: &Waker, own: Uuid) -> sqlx::Result<()> {
    let mut listener = PgListener::connect_with(pool).await?;
    listener.listen_all([CHANNEL, CANCEL]).await?;
    // Earlier notifications are lost.
    waker.beat();
    waker.wake(Lanes::ALL);
    loop {
        match tokio::time::timeout(QUIET, listener.recv()).await {
            Ok(notification) => {
                let notification = notification?;
                match notification.channel() {
                    // The heartbeat's answer names the tasks that must end.
                    CANCEL => waker.beat(),
                    _ => waker.wake(lanes_of(notification.payload(), own)),
                }
            }
            Err(_) => match tokio::time::timeout(ANSWER, queue::listens(&mut listener)).await {
                Ok(answer) => answer?,
                Err(_) => return Err(sqlx::Error::PoolTimedOut),
            },
        }
    }
}

/// The lanes that a notification names after its sender. It is empty for our own notifications, and all lanes if none
/// is named, as an older program sends it.
fn lanes_of(payload: &str, own: Uuid) -> Lanes {
    match payload.split_once(' ') {
        Some((sender, _)) if sender.parse() == Ok(own) => Lanes::NONE,
        Some((_, names)) => {
            let known = names.split(' ').filter_map(|name| name.parse::<Lane>().ok());
            known.map(Lanes::of).fold(Lanes::NONE, Lanes::with)
        }
        None => Lanes::ALL,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notification_names_its_lanes_and_ones_own_is_no_news() {
        let (own, other) = (Uuid::new_v4(), Uuid::new_v4());
        let lanes = |payload: String| lanes_of(&payload, own);
        assert_eq!(lanes(format!("{other} cpu model")), Lanes::of(Lane::Cpu).with(Lanes::of(Lane::Model)));
        assert_eq!(lanes(format!("{own} cpu model")), Lanes::NONE);
        assert_eq!(lanes(format!("{other} quantum")), Lanes::NONE);
        assert_eq!(lanes(String::new()), Lanes::ALL);
    }
}
