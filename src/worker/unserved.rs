//! Reports tasks that nobody can work on, as an event and as an error in the log of one process: a worker, or a service without one. A
//! fleet that is gone cannot report anything itself.
use crate::store::{self, events::Unserved};
use sqlx::PgPool;
use std::time::Duration;
use tokio::task::JoinHandle;

/// Tasks whose badge nobody serves are reported from this age on.
const SECONDS: f64 = 60.0;

/// Logs each badge or task type that is stuck and tells of it once, and tells of workers that fell silent, in one process at a time.
pub async fn log(pool: &PgPool, every: Duration) -> sqlx::Result<()> {
    let mut conn = pool.acquire().await?;
    // The turn is a little shorter, because the same process comes again after `every`.
    if !store::upkeep::take_turn(&mut conn, "unserved", every.mul_f64(0.9)).await? {
        return Ok(());
    }
    let mut unserved = Vec::new();
    for (badge, tasks, oldest_seconds) in store::queue::unserved_badges(&mut conn).await? {
        if oldest_seconds <= SECONDS {
            continue;
        }
        match badge.as_str() {
            "" => {
                tracing::error!(tasks, oldest_seconds, "no living worker takes tasks without a badge: start svc-worker")
            }
            badge => tracing::error!(
                badge,
                tasks,
                oldest_seconds,
                "no living worker answers to this badge: start one with `svc-worker --badge` and its name"
            ),
        }
        unserved.push(Unserved { what: "badge", name: badge, tasks, seconds: oldest_seconds });
    }
    for (task_type, tasks, oldest_seconds) in store::queue::unserved_types(&mut conn).await? {
        let remedy = store::admin::who_runs(&task_type);
        tracing::error!(task_type, tasks, oldest_seconds, "no living worker can run this task type: {remedy}");
        unserved.push(Unserved { what: "task_type", name: task_type, tasks, seconds: oldest_seconds });
    }
    store::events::unserved(&mut conn, &unserved).await?;
    store::events::silent_workers(&mut conn).await?;
    Ok(())
}

/// Looks again and again until the runtime ends.
pub fn watch(pool: PgPool, every: Duration) -> JoinHandle<()> {
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(every).await;
            if let Err(error) = log(&pool, every).await {
                tracing::warn!(error = %error, "cannot look for tasks without a worker while the database is away");
            }
        }
    })
}
