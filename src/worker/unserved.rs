//! Tasks that nobody can work on are an error in the log of one process, a worker's or that of a service without one: a fleet that
//! is gone says nothing itself.
use crate::store;
use sqlx::PgPool;
use std::time::Duration;
use tokio::task::JoinHandle;

/// Badges that nobody serves are told of from this age on.
const SECONDS: f64 = 60.0;

/// A stall by badge or by task type is loud, of one process at a time.
pub async fn tell(pool: &PgPool, every: Duration) -> sqlx::Result<()> {
    let mut conn = pool.acquire().await?;
    // A little early, since the same process comes again after that time.
    if !store::upkeep::take_turn(&mut conn, "unserved", every.mul_f64(0.9)).await? {
        return Ok(());
    }
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
                "no living worker answers to this badge: start one with `svc-worker --badge`"
            ),
        }
    }
    for (task_type, tasks, oldest_seconds) in store::queue::unserved_types(&mut conn).await? {
        tracing::error!(
            task_type,
            tasks,
            oldest_seconds,
            "no living worker can run this task type: start a worker of the version that queued it"
        );
    }
    Ok(())
}

/// Looks again and again, until the runtime ends.
pub fn watch(pool: PgPool, every: Duration) -> JoinHandle<()> {
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(every).await;
            if let Err(error) = tell(&pool, every).await {
                tracing::warn!(error = %error, "nobody looks for tasks without a worker while the database is away");
            }
        }
    })
}
