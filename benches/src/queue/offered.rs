//! Tasks that come at a rate, to more claimers than they need: how long each takes from when it is due to its durable end. All tasks are in the queue
//! from the beginning, so each claim chooses from a long queue; the rate is that at which the claimers claim.
use super::{claimer_named, fill, peers};
use crate::{
    figure::{Bound, BoxError, Figure},
    sandbox::{Sandbox, interruptible},
};
use serde_json::Map;
use sqlx::{Connection, PgConnection, PgPool};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use svc::{
    app::Backend,
    store::{
        database,
        tasks::{self, AttemptRow, Claimer},
    },
};
use svc_actors::Lane;
use svc_client::wire::AttemptOutcome;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep_until},
};

/// How many claimers there are, each with a connection of its own.
const CLAIMERS: usize = 100;
/// A fresh server takes a hundred connections, too few for this fleet.
const CONNECTIONS: &str = "ALTER SYSTEM SET max_connections = 200";
/// For how long tasks come.
const SECONDS: usize = 60;

/// What comes, and when.
struct Offered {
    begin: Instant,
    rate: usize,
    next: AtomicUsize,
}

impl Offered {
    fn tasks(&self) -> usize {
        self.rate * SECONDS
    }

    /// When the next task is due, for the claimer that asks; none once all have come.
    fn due(&self) -> Option<Instant> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let after = Duration::from_secs_f64(number as f64 / self.rate as f64);
        (number < self.tasks()).then(|| self.begin + after)
    }
}

/// The milliseconds of one task.
struct Took {
    claim: f64,
    /// The time since the task was due, so it includes the delay of a claimer that came late.
    all: f64,
}

pub async fn run(rate: usize, out: &mut dyn FnMut(Figure)) -> Result<(), BoxError> {
    let sandbox = Sandbox::new()?;
    let settings = sandbox.settings()?;
    let backend = Backend::start(&settings).await?;
    let changed = take_connections(&backend.pool).await;
    backend.stop().await;
    changed?;
    let backend = Backend::start(&settings).await?;
    let measured = interruptible(measure(&backend.pool, rate, out)).await;
    backend.stop().await;
    measured
}

/// Has the server take enough connections from its next start on.
async fn take_connections(pool: &PgPool) -> Result<(), BoxError> {
    let mut conn = PgConnection::connect_with(&peers::superuser(pool)).await?;
    sqlx::raw_sql(CONNECTIONS).execute(&mut conn).await?;
    Ok(conn.close().await?)
}

async fn measure(pool: &PgPool, rate: usize, out: &mut dyn FnMut(Figure)) -> Result<(), BoxError> {
    fill(pool, rate * SECONDS + CLAIMERS).await?;
    let options = database::guarded((*pool.connect_options()).clone(), Duration::from_secs(90));
    let mut claimers = Vec::new();
    for number in 0..CLAIMERS {
        let (mut conn, claimer) = (PgConnection::connect_with(&options).await?, claimer_named(&format!("w{number}")));
        // A worker's connections last, so each has its statements planned before the clock runs.
        work(&mut conn, &claimer, Instant::now()).await?;
        claimers.push((conn, claimer));
    }
    let offered = Arc::new(Offered { begin: Instant::now(), rate, next: AtomicUsize::new(0) });
    let mut working = JoinSet::new();
    for (conn, claimer) in claimers {
        working.spawn(serve(conn, claimer, offered.clone()));
    }
    let mut took = Vec::new();
    while let Some(done) = working.join_next().await {
        took.extend(done??);
    }
    let seconds = offered.begin.elapsed().as_secs_f64();
    let (name, tasks) = (format!("queue/offered/rate={rate},claimers={CLAIMERS}"), offered.tasks());
    out(Figure::alone(&name, tasks, "tasks/s", tasks as f64 / seconds));
    let claims: Vec<f64> = took.iter().map(|took| took.claim).collect();
    let wholes: Vec<f64> = took.iter().map(|took| took.all).collect();
    for (what, mut times) in [("claim", claims), ("claim_and_end", wholes)] {
        times.sort_unstable_by(f64::total_cmp);
        for percent in [50, 95, 99] {
            let time = times.get(times.len() * percent / 100).copied().unwrap_or(f64::NAN);
            let figure = Figure::alone(&format!("{name}/{what}/p{percent}"), tasks, "ms", time);
            out(match (what, percent) {
                ("claim_and_end", 95) => figure.meant_to_be(Bound::OursAtMost(25.0)),
                _ => figure,
            });
        }
    }
    Ok(())
}

/// Works on what comes until all of it has come.
async fn serve(mut conn: PgConnection, claimer: Claimer, offered: Arc<Offered>) -> Result<Vec<Took>, BoxError> {
    let mut took = Vec::new();
    while let Some(due) = offered.due() {
        sleep_until(due).await;
        took.push(work(&mut conn, &claimer, due).await?);
    }
    conn.close().await?;
    Ok(took)
}

/// Claims a task and ends it, by a durable commit of its own.
async fn work(conn: &mut PgConnection, claimer: &Claimer, due: Instant) -> Result<Took, BoxError> {
    let (started_at, asked) = (chrono::Utc::now(), Instant::now());
    let grant = loop {
        let mut claimed = tasks::claim(&mut *conn, claimer, &[(Lane::Io, 1)]).await?;
        if let Some(grant) = claimed.grants.pop() {
            break grant;
        }
        // Somebody else had locked each row that the claim reached.
        if !claimed.more {
            return Err("a claim found nothing although a task was pending".into());
        }
    };
    let claim = asked.elapsed().as_secs_f64() * 1000.0;
    let attempt = AttemptRow {
        grant: &grant,
        worker: &claimer.worker_id,
        started_at,
        outcome: AttemptOutcome::Completed,
        detail: &Map::new(),
    };
    if !tasks::finish(conn, &attempt).await? {
        return Err(format!("task {} was taken away", grant.task_id).into());
    }
    Ok(Took { claim, all: due.elapsed().as_secs_f64() * 1000.0 })
}
