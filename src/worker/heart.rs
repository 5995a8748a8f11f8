//! The heart's port: its own connection, on the heart's own thread, so that nothing else delays a heartbeat.
use crate::store::{self, workers::WorkerRow};
use sqlx::{Connection, PgConnection, postgres::PgConnectOptions};
use std::time::{Duration, Instant};
use svc_actors::{Beat, BeatAnswer, BeatFactory, PortError, TreeSnapshot};
use uuid::Uuid;

/// Makes hearts that connect to this database and speak for this worker.
pub fn factory(options: PgConnectOptions, row: WorkerRow) -> BeatFactory {
    Box::new(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        Box::new(PgBeat { runtime: runtime.ok(), options: options.clone(), row: row.clone(), conn: None, looked: None })
    })
}

struct PgBeat {
    runtime: Option<tokio::runtime::Runtime>,
    options: PgConnectOptions,
    row: WorkerRow,
    conn: Option<PgConnection>,
    /// When this last looked for claims that this worker does not know of.
    looked: Option<Instant>,
}

impl Beat for PgBeat {
    fn beat(&mut self, tokens: &[Uuid], snapshot: &TreeSnapshot) -> Result<Vec<BeatAnswer>, PortError> {
        let runtime = self
            .runtime
            .as_ref()
            .ok_or_else(|| PortError::new("the heart has no runtime: too many threads or files are open"))?;
        let snapshot = serde_json::to_value(snapshot).map_err(PortError::new)?;
        let (options, row, kept) = (&self.options, &self.row, self.conn.take());
        // A connection that hangs is dropped well before the lease expires, and the next heartbeat makes a new one.
        let limit = row.lease / 3;
        // Not every heartbeat looks, because heartbeats must be quick.
        let look = self.looked.is_none_or(|looked| looked.elapsed() >= limit);
        let beat = async move {
            let mut conn = match kept {
                Some(conn) => conn,
                None => PgConnection::connect_with(options).await?,
            };
            let held = store::leases::beat(&mut conn, tokens, row.lease).await?;
            store::workers::beat(&mut conn, row, &snapshot).await?;
            if look {
                let unheard = store::leases::give_back_unheard(&mut conn, &row.worker_id, tokens, limit).await?;
                if unheard > 0 {
                    tracing::info!(tasks = unheard, "giving back tasks whose grant never arrived here");
                }
            }
            Ok::<_, sqlx::Error>((conn, held))
        };
        let (conn, held) = runtime.block_on(within(limit, beat))?;
        self.conn = Some(conn);
        if look {
            self.looked = Some(Instant::now());
        }
        Ok(held.into_iter().map(|(token, cancel_requested)| BeatAnswer { token, cancel_requested }).collect())
    }
}

async fn within<T>(limit: Duration, work: impl Future<Output = Result<T, sqlx::Error>>) -> Result<T, PortError> {
    match tokio::time::timeout(limit, work).await {
        Ok(done) => done.map_err(PortError::new),
        Err(_) => Err(PortError::new(format!("the database did not answer a heartbeat within {limit:?}"))),
    }
}
