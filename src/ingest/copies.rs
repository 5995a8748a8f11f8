//! Connections on which files are copied into the database. A copy occupies its connection for as long as it takes, so
//! copies have their own connections: searches and reads never wait for files.
use sqlx::PgPool;
use tokio::sync::{Semaphore, SemaphorePermit};

/// How many copies run at a time. More would not be faster together, because the server also writes each byte to its
/// log.
const AT_ONCE: u32 = 4;

/// The slots and connections of copies.
pub struct Copies {
    places: Semaphore,
    pool: PgPool,
}

impl Copies {
    /// Makes connections to the same database and with the same options as `pool`; none is opened before it is needed.
    pub fn new(pool: &PgPool) -> Copies {
        let options = pool.options().clone().max_connections(AT_ONCE).min_connections(0);
        let pool = options.connect_lazy_with(pool.connect_options().as_ref().clone());
        Copies { places: Semaphore::new(AT_ONCE as usize), pool }
    }

    /// Waits for a turn. Uploads are few, so every wait ends. The holder of a turn finds a free connection in the pool.
    pub async fn turn(&self) -> (&PgPool, Option<SemaphorePermit<'_>>) {
        // Nobody closes the semaphore.
        (&self.pool, self.places.acquire().await.ok())
    }

    pub async fn close(&self) {
        self.pool.close().await;
    }
}
