//! Gives the vectors of a model an HNSW index once they are many. Until then a search compares all of them as fast, and a write spends nothing on
//! an index. The vectors of a large load are put into the index together, which is faster than one by one.
use crate::store::{reindex, vectors::FEW};
use sqlx::PgPool;
use std::{
    collections::HashMap,
    time::{Duration, Instant},
};
use tokio::task::JoinHandle;

/// The time between two looks for vectors without an index.
const PAUSE: Duration = Duration::from_secs(5);
/// The time until the next look where somebody else changes indexes, which may take hours.
const BESIDE: Duration = Duration::from_secs(30);
/// How long a model whose index could not be built is left alone, because the reason may last.
const RETRY: Duration = Duration::from_secs(60);

/// Makes indexes whenever one is lacking, until it is aborted.
pub fn start(pool: PgPool) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut broken = HashMap::new();
        loop {
            let pause = look(&pool, &mut broken).await.unwrap_or_else(|error| {
                tracing::debug!(%error, "vectors wait for their index while the database is away");
                PAUSE
            });
            tokio::time::sleep(pause).await;
        }
    })
}

/// Builds the first index that is lacking, and knows since when others could not be built. Returns how long to wait for the next look.
async fn look(pool: &PgPool, broken: &mut HashMap<String, Instant>) -> sqlx::Result<Duration> {
    broken.retain(|_, since| since.elapsed() < RETRY);
    let lacking = reindex::without_index(&mut *pool.acquire().await?, FEW).await?;
    let Some((model, width)) = lacking.into_iter().find(|(model, _)| !broken.contains_key(model)) else {
        return Ok(PAUSE);
    };
    match reindex::add_index(pool, &model, usize::try_from(width).unwrap_or_default()).await {
        Ok(true) => {
            tracing::info!(model, "the vectors of the model are many now, and have an index");
            Ok(Duration::ZERO)
        }
        Ok(false) => Ok(BESIDE),
        Err(error) => {
            tracing::warn!(%error, model, "the index of the model's vectors could not be built, and searches compare all of them; a later look tries again");
            broken.insert(model, Instant::now());
            Ok(Duration::ZERO)
        }
    }
}
