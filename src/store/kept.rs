//! Connections beside the pool.
use super::database::is_trusted;
use sqlx::{Connection, PgConnection, PgPool, Postgres, pool::PoolConnection};
use std::{
    ops::{Deref, DerefMut},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Idle time below which a connection is reused without a ping.
const PRESUMED_ALIVE: Duration = Duration::from_secs(1);

/// How long an idle connection may take to answer a ping.
const ANSWER: Duration = Duration::from_secs(5);

/// Two connections for short, consecutive work: at most one for statements, and at most one lent. The pool pings each
/// returned connection and hands out another one next, which doubles the time of statements that take a fraction of a
/// millisecond.
#[derive(Clone, Debug)]
pub struct KeptConnections {
    /// Where a new connection comes from, with its options.
    pool: PgPool,
    idle: Idle,
    statements: Arc<tokio::sync::Mutex<()>>,
    lent: Arc<Semaphore>,
}

/// The unused connections. The one used last is used next, because its server process has everything cached.
#[derive(Clone, Debug, Default)]
struct Idle(Arc<Mutex<Vec<(Own, Instant)>>>);

/// A connection, and since when it is kept.
#[derive(Debug)]
struct Own {
    conn: PgConnection,
    since: Instant,
}

impl Idle {
    fn pop(&self) -> Option<(Own, Instant)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    fn push(&self, own: Own) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push((own, Instant::now()));
    }
}

impl KeptConnections {
    pub fn new(pool: PgPool) -> KeptConnections {
        KeptConnections { pool, idle: Idle::default(), statements: Arc::default(), lent: Arc::new(Semaphore::new(1)) }
    }

    /// Runs statements, one caller at a time. After an error, or if the caller goes away, the connection is closed.
    pub async fn run<T>(&self, work: impl AsyncFnOnce(&mut PgConnection) -> sqlx::Result<T>) -> sqlx::Result<T> {
        let _turn = self.statements.lock().await;
        let mut own = self.take().await?;
        let done = work(&mut own.conn).await?;
        self.idle.push(own);
        Ok(done)
    }

    /// Lends a connection for a transaction, or one from the pool if somebody else has it.
    pub async fn lend(&self) -> sqlx::Result<Lent> {
        match self.lent.clone().try_acquire_owned() {
            Ok(permit) => Ok(Lent::Kept(Kept { own: self.take().await?, idle: self.idle.clone(), _permit: permit })),
            Err(_) => Ok(Lent::pooled(self.pool.acquire().await?)),
        }
    }

    /// Where new connections come from.
    pub fn pool(&self) -> &PgPool {
        &self.pool
    }

    async fn take(&self) -> sqlx::Result<Own> {
        // A write may be refused elsewhere while this connection is used, and that says as much of it.
        if let Some((mut own, used)) = self.idle.pop()
            && (used.elapsed() < PRESUMED_ALIVE || answers(&mut own.conn).await)
            && matches!(is_trusted(&mut own.conn, own.since.elapsed(), used.elapsed()).await, Ok(true))
        {
            return Ok(own);
        }
        let since = Instant::now();
        Ok(Own { conn: self.pool.acquire().await?.detach(), since })
    }
}

async fn answers(conn: &mut PgConnection) -> bool {
    matches!(tokio::time::timeout(ANSWER, conn.ping()).await, Ok(Ok(())))
}

/// A lent connection. Dropping it closes it with any open transaction; [`Lent::keep`] gives it back.
#[derive(Debug)]
pub enum Lent {
    Kept(Kept),
    Pooled(Pooled),
}

impl Lent {
    /// Lends a connection of the pool.
    pub fn pooled(conn: PoolConnection<Postgres>) -> Lent {
        Lent::Pooled(Pooled { conn, done: false })
    }

    /// Gives the connection back, if nothing is open in it and nothing went wrong.
    pub fn keep(self) {
        match self {
            Lent::Kept(kept) => kept.idle.push(kept.own),
            Lent::Pooled(mut pooled) => pooled.done = true,
        }
    }
}

impl Deref for Lent {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        match self {
            Lent::Kept(kept) => &kept.own.conn,
            Lent::Pooled(pooled) => &pooled.conn,
        }
    }
}

impl DerefMut for Lent {
    fn deref_mut(&mut self) -> &mut PgConnection {
        match self {
            Lent::Kept(kept) => &mut kept.own.conn,
            Lent::Pooled(pooled) => &mut pooled.conn,
        }
    }
}

/// One of the two kept connections.
#[derive(Debug)]
pub struct Kept {
    own: Own,
    idle: Idle,
    _permit: OwnedSemaphorePermit,
}

#[derive(Debug)]
pub struct Pooled {
    conn: PoolConnection<Postgres>,
    done: bool,
}

impl Drop for Pooled {
    fn drop(&mut self) {
        if !self.done {
            // A server that does not answer would delay a rollback as it delayed what came before.
            self.conn.close_on_drop();
        }
    }
}
