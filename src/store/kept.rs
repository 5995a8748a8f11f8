//! A connection beside the pool.
use sqlx::{Connection, PgConnection, PgPool};
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// For so long a connection may lie idle and be used without asking whether it still answers.
const PRESUMED_ALIVE: Duration = Duration::from_secs(1);

/// One connection for short statements that follow each other. The pool asks each connection that comes back whether it still
/// answers, and hands out another one next: for statements of a fraction of a millisecond that doubles their time.
#[derive(Debug)]
pub struct KeptConnection {
    /// Where a new one comes from, with its options.
    pool: PgPool,
    place: Mutex<Option<(PgConnection, Instant)>>,
}

impl KeptConnection {
    pub fn new(pool: PgPool) -> KeptConnection {
        KeptConnection { pool, place: Mutex::new(None) }
    }

    /// Runs statements, one caller at a time. After an error, or where the caller goes away, the next one gets a new connection.
    pub async fn run<T>(&self, work: impl AsyncFnOnce(&mut PgConnection) -> sqlx::Result<T>) -> sqlx::Result<T> {
        let mut place = self.place.lock().await;
        let kept = match place.take() {
            Some((conn, used)) if used.elapsed() < PRESUMED_ALIVE => Some(conn),
            Some((conn, _)) => asked(conn).await,
            None => None,
        };
        let mut conn = match kept {
            Some(conn) => conn,
            None => self.pool.acquire().await?.detach(),
        };
        let done = work(&mut conn).await?;
        *place = Some((conn, Instant::now()));
        Ok(done)
    }
}

async fn asked(mut conn: PgConnection) -> Option<PgConnection> {
    conn.ping().await.ok().map(|()| conn)
}
