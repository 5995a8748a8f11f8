//! Connections beside the pool.
use sqlx::{Connection, PgConnection, PgPool, Postgres, pool::PoolConnection};
use std::{
    ops::{Deref, DerefMut},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// For so long a connection may lie idle and be used without asking whether it still answers.
const PRESUMED_ALIVE: Duration = Duration::from_secs(1);

/// How long a connection that lay idle may take to say that it still answers.
const ANSWER: Duration = Duration::from_secs(5);

/// Two connections for short work that follows each other: one at most for statements, one at most lent. The pool asks each
/// connection that comes back whether it still answers, and hands out another one next: for statements of a fraction of a
/// millisecond that doubles their time.
#[derive(Clone, Debug)]
pub struct KeptConnections {
    /// Where a new one comes from, with its options.
    pool: PgPool,
    idle: Idle,
    statements: Arc<tokio::sync::Mutex<()>>,
    lent: Arc<Semaphore>,
}

/// Those that nobody has. The one that was used last is used next: its process at the server has everything at hand.
#[derive(Clone, Debug, Default)]
struct Idle(Arc<Mutex<Vec<(PgConnection, Instant)>>>);

impl Idle {
    fn pop(&self) -> Option<(PgConnection, Instant)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    fn push(&self, conn: PgConnection) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((conn, Instant::now()));
    }
}

impl KeptConnections {
    pub fn new(pool: PgPool) -> KeptConnections {
        KeptConnections { pool, idle: Idle::default(), statements: Arc::default(), lent: Arc::new(Semaphore::new(1)) }
    }

    /// Runs statements, one caller at a time. After an error, or where the caller goes away, the connection is closed.
    pub async fn run<T>(&self, work: impl AsyncFnOnce(&mut PgConnection) -> sqlx::Result<T>) -> sqlx::Result<T> {
        let _turn = self.statements.lock().await;
        let mut conn = self.take().await?;
        let done = work(&mut conn).await?;
        self.idle.push(conn);
        Ok(done)
    }

    /// One for a transaction; one of the pool where somebody else was lent it.
    pub async fn lend(&self) -> sqlx::Result<Lent> {
        match self.lent.clone().try_acquire_owned() {
            Ok(permit) => Ok(Lent::Kept(Kept { conn: self.take().await?, idle: self.idle.clone(), _permit: permit })),
            Err(_) => Ok(Lent::pooled(self.pool.acquire().await?)),
        }
    }

    /// Where new connections come from.
    pub fn pool(&self) -> &PgPool {
        &self.pool
    }

    async fn take(&self) -> sqlx::Result<PgConnection> {
        if let Some((mut conn, used)) = self.idle.pop()
            && (used.elapsed() < PRESUMED_ALIVE || answers(&mut conn).await)
        {
            return Ok(conn);
        }
        Ok(self.pool.acquire().await?.detach())
    }
}

async fn answers(conn: &mut PgConnection) -> bool {
    matches!(tokio::time::timeout(ANSWER, conn.ping()).await, Ok(Ok(())))
}

/// A connection that is closed with whatever stands open in it, unless it is given back by [`Lent::keep`].
#[derive(Debug)]
pub enum Lent {
    Kept(Kept),
    Pooled(Pooled),
}

impl Lent {
    /// One of the pool.
    pub fn pooled(conn: PoolConnection<Postgres>) -> Lent {
        Lent::Pooled(Pooled { conn, done: false })
    }

    /// Nothing is open in it, and nothing went wrong.
    pub fn keep(self) {
        match self {
            Lent::Kept(kept) => kept.idle.push(kept.conn),
            Lent::Pooled(mut pooled) => pooled.done = true,
        }
    }
}

impl Deref for Lent {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        match self {
            Lent::Kept(kept) => &kept.conn,
            Lent::Pooled(pooled) => &pooled.conn,
        }
    }
}

impl DerefMut for Lent {
    fn deref_mut(&mut self) -> &mut PgConnection {
        match self {
            Lent::Kept(kept) => &mut kept.conn,
            Lent::Pooled(pooled) => &mut pooled.conn,
        }
    }
}

/// One of the two.
#[derive(Debug)]
pub struct Kept {
    conn: PgConnection,
    idle: Idle,
    _permit: OwnedSemaphorePermit,
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
