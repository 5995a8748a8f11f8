//! Connections on which files are copied into the database. A copy holds its connection for as long as it takes, so copies have
//! connections of their own: searches and reads never wait for files.
use sqlx::PgPool;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Copies at a time. More of them are not faster together, since the server writes each byte to its log too.
const AT_ONCE: u32 = 4;

/// The places and connections of copies.
pub struct Copies {
    places: Semaphore,
    pool: PgPool,
}

impl Copies {
    /// To the same database as `pool`, with connections like its own; none is opened before it is needed.
    pub fn new(pool: &PgPool) -> Copies {
        let options = pool.options().clone().max_connections(AT_ONCE).min_connections(0);
        let pool = options.connect_lazy_with(pool.connect_options().as_ref().clone());
        Copies { places: Semaphore::new(AT_ONCE as usize), pool }
    }

    /// Waits until it is one's turn; uploads are few, so every wait ends. Its holder finds a connection free in the pool.
    pub async fn turn(&self) -> (&PgPool, Option<SemaphorePermit<'_>>) {
        // Nobody closes the semaphore.
        (&self.pool, self.places.acquire().await.ok())
    }

    /// Closes the connections.
    pub async fn close(&self) {
        self.pool.close().await;
    }
}
