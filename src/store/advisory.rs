//! The advisory locks: those that exist once in a database, and those that each thing of a kind has. PostgreSQL knows them by number alone, and two with one
//! number would keep each other waiting for no reason; the compiler refuses an enum in which two have the same.
use sqlx::{PgConnection, PgPool, Postgres, pool::PoolConnection};
use std::{io::ErrorKind, time::Duration};

/// A kind of thing of which each has a lock of its own. The kind is the first of the lock's two keys, so that an id never collides with a lock that exists
/// once.
#[derive(Clone, Copy, Debug)]
#[repr(i32)]
pub enum LockOf {
    /// A root of ingestion, held by whoever settles under it or keeps the settler away.
    File = 7376,
    /// The bytes of an upload, by their hash.
    Upload = 7377,
    /// A tree, by its topmost node: shared by whoever locks a file in the tree, or held alone for all of its files.
    Tree = 7378,
    /// A root of ingestion, held by whoever makes nodes of the files within the file.
    Members = 7379,
    /// A root of ingestion, held by whoever gives its tasks the file's priority.
    Priority = 7380,
}

impl LockOf {
    /// The number by which PostgreSQL knows the kind.
    pub const fn key(self) -> i32 {
        self as i32
    }
}

/// What a transaction may hold without holding a row.
#[derive(Clone, Copy, Debug)]
#[repr(i64)]
pub enum AdvisoryLock {
    /// Held by a claim, so that claims see each other's reservations.
    Claim = 0x7376_6301,
    /// Held while expired leases are reaped.
    Reap = 0x7376_6302,
    /// Held while an index of the vectors of names is built.
    VectorIndex = 0x7376_6303,
    /// Shared by those who create nodes, and held alone by those who change guards.
    Access = 0x7376_6304,
    /// Held while the schema is brought up to date.
    Schema = 0x7376_6305,
    /// Held while what is too old is purged.
    Purge = 0x7376_6306,
    /// Held by the connection that numbers events, for as long as it lasts.
    Sequencer = 0x7376_6307,
    /// Held by the connection that tells the outcomes of the bulk feed, for as long as it lasts.
    Outcomes = 0x7376_6308,
    /// Held by the connection that derives facts by rules, for as long as it lasts.
    Rules = 0x7376_6309,
    /// Held by the connection that publishes events to the broker, for as long as it lasts.
    EventsOut = 0x7376_630a,
    /// Held by the connection of the process that builds indexes, for as long as there is something to build.
    Indexes = 0x7376_630b,
    /// Held by the connection that moves the vectors of documents into another form, for as long as it lasts.
    Reindex = 0x7376_630c,
    /// Held by the connection that moves the batches of a provider, for as long as it lasts. The provider's number is added.
    LlmBatches = 0x7376_6320,
    /// Held while a link is added that must not close a circle.
    Links = 0x7376_6310,
    /// Held while webhooks are counted before one is added.
    Webhooks = 0x7376_6311,
}

impl AdvisoryLock {
    /// The number by which PostgreSQL knows it.
    pub const fn key(self) -> i64 {
        self as i64
    }
}

/// A connection on which somebody asks for a right. It is closed if nobody waits for the answer any more, because it may hold the lock then.
struct Asking(Option<PoolConnection<Postgres>>);

impl Drop for Asking {
    fn drop(&mut self) {
        drop(self.0.take().map(PoolConnection::detach));
    }
}

/// A connection of its own that may do something alone until it is closed, such as numbering the events; `None` if another has that right.
pub async fn alone(pool: &PgPool, right: AdvisoryLock) -> sqlx::Result<Option<PgConnection>> {
    let (conn, mut asking) = (pool.acquire().await?, Asking(None));
    let conn = asking.0.insert(conn);
    let ours: bool =
        sqlx::query_scalar("SELECT pg_try_advisory_lock($1)").bind(right.key()).fetch_one(&mut **conn).await?;
    let conn = asking.0.take();
    // The lock belongs to the session, so the connection never goes back to the pool.
    Ok(conn.filter(|_| ours).map(PoolConnection::detach))
}

/// How long the database may take for a step of who does something alone or calls webhooks. A host that has vanished answers nothing, and without this the
/// connections to it would wait for as long as the system repeats what they sent, which is a quarter of an hour or for ever.
pub const SILENCE: Duration = Duration::from_secs(60);

/// Waits for a step no longer than this. Who is told of the fault drops the connection.
pub async fn within<T>(silence: Duration, step: impl Future<Output = sqlx::Result<T>>) -> sqlx::Result<T> {
    tokio::time::timeout(silence, step).await.unwrap_or_else(|_| Err(sqlx::Error::Io(ErrorKind::TimedOut.into())))
}
