//! Wake-ups between processes. Polling guarantees progress, so a lost wake-up costs at most one poll interval.
pub use crate::core::Wake;
use crate::store::queue;
use rand::RngExt;
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

/// The pause before a notification that could not be sent is tried again.
const AGAIN: Duration = Duration::from_secs(1);

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
        let (mut unannounced, mut round) = (Lanes::NONE, 0);
        let mut due = Instant::now();
        loop {
            tokio::select! {
                () = wake.notified() => {
                    let lanes = wake.take();
                    if let Some(waker) = &waker {
                        waker.wake(lanes);
                    }
                    if unannounced.is_empty() {
                        (due, round) = (Instant::now() + DEBOUNCE, 0);
                    }
                    unannounced = unannounced.with(lanes).with(wake.take_elsewhere());
                }
                () = tokio::time::sleep_until(due), if !unannounced.is_empty() => {
                    // Work that somebody has taken meanwhile is not announced.
                    let announced = queue::announce_work(&pool, CHANNEL, unannounced, round, wake.sender()).await;
                    due = Instant::now() + if announced.is_ok() { DEBOUNCE } else { AGAIN };
                    unannounced = announced.unwrap_or(unannounced);
                    round += 1;
                }
            }
        }
    })
}

async fn listen(pool: &PgPool, waker: &Waker, own: Uuid) -> sqlx::Result<()> {
    let mut listener = PgListener::connect_with(pool).await?;
    listener.listen_all([CHANNEL, CANCEL, queue::WATCH]).await?;
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
                    queue::WATCH => waker.watch(),
                    _ => waker.wake(heard(notification.payload(), own)),
                }
            }
            Err(_) => match tokio::time::timeout(ANSWER, queue::listens(&mut listener)).await {
                Ok(answer) => answer?,
                Err(_) => return Err(sqlx::Error::PoolTimedOut),
            },
        }
    }
}

/// The lanes in which this process looks for work after a notification. A notification names its sender, then each lane
/// with the share of listeners, in thousandths, that should look. Our own notifications are no news.
pub fn heard(payload: &str, own: Uuid) -> Lanes {
    let Some((_, lanes)) = payload.split_once(' ').filter(|(sender, _)| sender.parse() != Ok(own)) else {
        return Lanes::NONE;
    };
    let is_meant = |share: &str| share.parse().is_ok_and(|share: u32| rand::rng().random_range(0..1000) < share);
    let lane = |(name, share): (&str, &str)| name.parse::<Lane>().ok().filter(|_| is_meant(share));
    lanes.split(' ').filter_map(|named| named.split_once(':')).filter_map(lane).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notification_names_its_lanes_and_ones_own_is_no_news() {
        let (own, other) = (Uuid::new_v4(), Uuid::new_v4());
        let lanes = |payload: String| heard(&payload, own);
        assert_eq!(lanes(format!("{other} cpu:1000 model:1000")), Lanes::from_iter([Lane::Cpu, Lane::Model]));
        assert_eq!(lanes(format!("{other} cpu:0 model:1000")), Lanes::of(Lane::Model));
        assert_eq!(lanes(format!("{own} cpu:1000 model:1000")), Lanes::NONE);
        for unknown in ["quantum:1000", "cpu", "cpu:", "cpu:-1", ":"] {
            assert_eq!(lanes(format!("{other} {unknown}")), Lanes::NONE);
        }
        assert_eq!(lanes(String::new()), Lanes::NONE);
    }

    #[test]
    fn a_share_of_its_hearers_look() {
        let (own, other) = (Uuid::new_v4(), Uuid::new_v4());
        let looked = (0..10_000).filter(|_| !heard(&format!("{other} io:300"), own).is_empty()).count();
        assert!((2_500..3_500).contains(&looked), "{looked}");
    }
}
