//! A connection beside the pool.
use sqlx::{Connection, PgConnection, PgPool, Postgres, pool::PoolConnection};
use std::{
    ops::{Deref, DerefMut},
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::sync::{Mutex, OwnedMutexGuard};

/// For so long a connection may lie idle and be used without asking whether it still answers.
const PRESUMED_ALIVE: Duration = Duration::from_secs(1);

/// Where the connection lies while nobody has it, and since when.
type Place = Option<(PgConnection, Instant)>;

/// One connection for short statements that follow each other. The pool asks each connection that comes back whether it still
/// answers, and hands out another one next: for statements of a fraction of a millisecond that doubles their time.
#[derive(Clone, Debug)]
pub struct KeptConnection {
    /// Where a new one comes from, with its options.
    pool: PgPool,
    place: Arc<Mutex<Place>>,
}

impl KeptConnection {
    pub fn new(pool: PgPool) -> KeptConnection {
        KeptConnection { pool, place: Arc::default() }
    }

    /// Runs statements, one caller at a time. After an error, or where the caller goes away, the next one gets a new connection.
    pub async fn run<T>(&self, work: impl AsyncFnOnce(&mut PgConnection) -> sqlx::Result<T>) -> sqlx::Result<T> {
        let mut lent = self.take(self.place.clone().lock_owned().await).await?;
        let done = work(&mut lent).await?;
        lent.keep();
        Ok(done)
    }

    /// It, or one of the pool where somebody has it.
    pub async fn lend(&self) -> sqlx::Result<Lent> {
        match self.place.clone().try_lock_owned() {
            Ok(place) => self.take(place).await,
            Err(_) => Ok(Lent::Pooled(Pooled { conn: self.pool.acquire().await?, done: false })),
        }
    }

    async fn take(&self, mut place: OwnedMutexGuard<Place>) -> sqlx::Result<Lent> {
        let kept = match place.take() {
            Some((conn, used)) if used.elapsed() < PRESUMED_ALIVE => Some(conn),
            Some((conn, _)) => asked(conn).await,
            None => None,
        };
        let conn = match kept {
            Some(conn) => conn,
            None => self.pool.acquire().await?.detach(),
        };
        Ok(Lent::Kept { conn, place })
    }
}

async fn asked(mut conn: PgConnection) -> Option<PgConnection> {
    conn.ping().await.ok().map(|()| conn)
}

/// A connection that is closed with whatever stands open in it, unless it is given back by [`Lent::keep`].
#[derive(Debug)]
pub enum Lent {
    Kept { conn: PgConnection, place: OwnedMutexGuard<Place> },
    Pooled(Pooled),
}

impl Lent {
    /// Nothing is open in it, and nothing went wrong.
    pub fn keep(self) {
        match self {
            Lent::Kept { conn, mut place } => *place = Some((conn, Instant::now())),
            Lent::Pooled(mut pooled) => pooled.done = true,
        }
    }
}

impl Deref for Lent {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        match self {
            Lent::Kept { conn, .. } => conn,
            Lent::Pooled(pooled) => &pooled.conn,
        }
    }
}

impl DerefMut for Lent {
    fn deref_mut(&mut self) -> &mut PgConnection {
        match self {
            Lent::Kept { conn, .. } => conn,
            Lent::Pooled(pooled) => &mut pooled.conn,
        }
    }
}

/// One of the pool.
#[derive(Debug)]
pub struct Pooled {
    conn: PoolConnection<Postgres>,
    done: bool,
}

impl Drop for Pooled {
    fn drop(&mut self) {
        if !self.done {
            // A server that does not answer would hold up a rollback as it held up what came before.
            self.conn.close_on_drop();
        }
    }
}
