//! The heart's port: its own connection, on the heart's own thread, so that nothing else delays a heartbeat.
use crate::store::{
    self,
    away::{self, Away},
    workers::WorkerRow,
};
use sqlx::{Connection, PgConnection, PgPool, postgres::PgConnectOptions};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use svc_actors::{Beat, BeatAnswer, BeatFactory, PortError, TreeSnapshot};
use uuid::Uuid;

/// How old a claim is that the heart gives back if its worker does not know of it.
pub(super) fn unheard_after(lease: Duration) -> Duration {
    lease / 3
}

/// Makes hearts that connect to this database and speak for the worker that `row` describes at each heartbeat. `pool` is the worker's own, to the same
/// database.
pub fn factory(
    options: PgConnectOptions,
    pool: PgPool,
    row: impl Fn() -> WorkerRow + Send + Sync + 'static,
) -> BeatFactory {
    let row = Arc::new(row);
    Box::new(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        Box::new(PgBeat {
            runtime: runtime.ok(),
            options: options.clone(),
            pool: pool.clone(),
            row: row.clone(),
            conn: None,
            looked: None,
        })
    })
}

struct PgBeat {
    runtime: Option<tokio::runtime::Runtime>,
    options: PgConnectOptions,
    pool: PgPool,
    row: Arc<dyn Fn() -> WorkerRow + Send + Sync>,
    conn: Option<Connected>,
    /// When this last looked for claims that this worker does not know of.
    looked: Option<Instant>,
}

struct Connected {
    conn: PgConnection,
    /// It was the pool's, and the runtime of the tasks drives it.
    is_borrowed: bool,
}

impl Beat for PgBeat {
    fn beat(&mut self, tokens: &[Uuid], snapshot: &TreeSnapshot) -> Result<Vec<BeatAnswer>, PortError> {
        let runtime = self
            .runtime
            .as_ref()
            .ok_or_else(|| PortError::new("the heart has no runtime: too many threads or files are open"))?;
        let snapshot = serde_json::to_value(snapshot).map_err(PortError::new)?;
        let (options, pool, row, kept) = (&self.options, &self.pool, (self.row)(), self.conn.take());
        // A connection that hangs is dropped well before the lease expires, and the next heartbeat makes a new one.
        let limit = unheard_after(row.lease);
        // Not every heartbeat looks, because heartbeats must be quick.
        let look = self.looked.is_none_or(|looked| looked.elapsed() >= limit);
        let beat = async move {
            let mut connected = connect(options, pool, kept).await?;
            let conn = &mut connected.conn;
            let held = store::leases::beat(conn, tokens, row.lease).await?;
            store::workers::beat(conn, &row, &snapshot).await?;
            if look {
                let unheard = store::leases::give_back_unheard(conn, &row.worker_id, tokens, limit).await?;
                if unheard > 0 {
                    tracing::info!(tasks = unheard, "giving back tasks whose grant never arrived here");
                }
            }
            Ok::<_, sqlx::Error>((connected, held))
        };
        let (connected, held) = runtime.block_on(within(limit, beat))?;
        self.conn = Some(connected);
        if look {
            self.looked = Some(Instant::now());
        }
        Ok(held.into_iter().map(|(token, cancel_requested)| BeatAnswer { token, cancel_requested }).collect())
    }
}

/// Makes a connection of the heart's own unless it has one. A full server gives none, so the heart takes one of the pool's until the server does: else it
/// would fall silent, and its worker would lose tasks that it works on.
async fn connect(options: &PgConnectOptions, pool: &PgPool, kept: Option<Connected>) -> sqlx::Result<Connected> {
    let borrowed = match kept {
        Some(own) if !own.is_borrowed => return Ok(own),
        borrowed => borrowed,
    };
    match (PgConnection::connect_with(options).await, borrowed) {
        (Ok(conn), _) => Ok(Connected { conn, is_borrowed: false }),
        (Err(_), Some(borrowed)) => Ok(borrowed),
        (Err(error), None) if away::away(&error) == Some(Away::NoConnection) => {
            Ok(Connected { conn: pool.acquire().await?.detach(), is_borrowed: true })
        }
        (Err(error), None) => Err(error),
    }
}

async fn within<T>(limit: Duration, work: impl Future<Output = Result<T, sqlx::Error>>) -> Result<T, PortError> {
    match tokio::time::timeout(limit, work).await {
        Ok(done) => done.map_err(PortError::new),
        Err(_) => Err(PortError::new(format!("the database did not answer a heartbeat within {limit:?}"))),
    }
}
