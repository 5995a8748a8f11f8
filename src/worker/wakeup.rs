//! Wake-ups between processes. The poll stays the truth: a lost one costs at most one poll.
use crate::store::queue;
use sqlx::{
    PgPool,
    postgres::{PgConnectOptions, PgListener, PgPoolOptions},
};
use std::{sync::Arc, time::Duration};
use svc_actors::{Lane, Lanes, SharedLanes, Waker};
use tokio::{sync::Notify, task::JoinHandle, time::Instant};
use uuid::Uuid;

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

/// Word of work in this process, told to its own worker at once and to the other processes soon.
#[derive(Clone, Debug)]
pub struct Wake(Arc<Word>);

#[derive(Debug)]
struct Word {
    lanes: SharedLanes,
    told: Notify,
    /// Known by it, what this process said is passed over where it comes back.
    sender: Uuid,
}

impl Default for Wake {
    fn default() -> Wake {
        Wake(Arc::new(Word { lanes: SharedLanes::default(), told: Notify::new(), sender: Uuid::new_v4() }))
    }
}

impl Wake {
    /// There may be work of these lanes. After the commit that brought it.
    pub fn notify(&self, lanes: Lanes) {
        if !lanes.is_empty() {
            self.0.lanes.add(lanes);
            self.0.told.notify_one();
        }
    }
}

/// Listens for other processes' work on one connection, and tells them of ours, after the commits, on another.
pub fn start(options: PgConnectOptions, pool: PgPool, wake: Wake, waker: Waker) -> Vec<JoinHandle<()>> {
    let (elsewhere, sender) = (waker.clone(), wake.0.sender);
    let listen = tokio::spawn(async move {
        let own = PgPoolOptions::new().max_connections(1).connect_lazy_with(options);
        loop {
            if let Err(error) = listen(&own, &elsewhere, sender).await {
                tracing::debug!(error = %error, "not listening; the poll carries on");
            }
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
    });
    vec![listen, tell(pool, wake, Some(waker))]
}

/// Tells the other processes, and the worker of this one if there is one, whenever tasks were queued here.
pub fn tell(pool: PgPool, wake: Wake, waker: Option<Waker>) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut untold = Lanes::NONE;
        let mut due = Instant::now();
        loop {
            tokio::select! {
                () = wake.0.told.notified() => {
                    let lanes = wake.0.lanes.take();
                    if let Some(waker) = &waker {
                        waker.wake(lanes);
                    }
                    if untold.is_empty() {
                        due = Instant::now() + DEBOUNCE;
                    }
                    untold = untold.with(lanes);
                }
                () = tokio::time::sleep_until(due), if !untold.is_empty() => {
                    // What the worker of this process took meanwhile is no news. Lost where the database is away: the poll finds the work.
                    let _ = queue::announce_work(&pool, CHANNEL, untold, wake.0.sender).await;
                    untold = Lanes::NONE;
                }
            }
        }
    })
}

async fn listen(pool: &PgPool, waker: &Waker, own: Uuid) -> sqlx::Result<()> {
    let mut listener = PgListener::connect_with(pool).await?;
    listener.listen_all([CHANNEL, CANCEL]).await?;
    // What was said before is lost.
    waker.beat();
    waker.wake(Lanes::ALL);
    loop {
        match tokio::time::timeout(QUIET, listener.recv()).await {
            Ok(said) => {
                let said = said?;
                match said.channel() {
                    // The beat's answer names the tasks that are to end.
                    CANCEL => waker.beat(),
                    _ => waker.wake(lanes_of(said.payload(), own)),
                }
            }
            Err(_) => match tokio::time::timeout(ANSWER, queue::listens(&mut listener)).await {
                Ok(answer) => answer?,
                Err(_) => return Err(sqlx::Error::PoolTimedOut),
            },
        }
    }
}

/// The lanes of which a notification tells: a sender and their names. None of what comes back from here; all where nothing is named,
/// as by an older program.
fn lanes_of(payload: &str, own: Uuid) -> Lanes {
    match payload.split_once(' ') {
        Some((sender, _)) if sender.parse() == Ok(own) => Lanes::NONE,
        Some((_, names)) => {
            let known = |name: &str| Lane::ALL.into_iter().find(|lane| lane.as_str() == name).map(Lanes::of);
            names.split(' ').filter_map(known).fold(Lanes::NONE, Lanes::with)
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
