//! Indexes that are dropped while a store is filled: one that is made at the end is made faster.
use crate::figure::BoxError;
use sqlx::{AssertSqlSafe, Connection, PgConnection, PgPool, postgres::PgPoolOptions};
use std::time::Duration;
use svc::store::reindex;

/// What makes an index faster.
const FASTER: [(&str, &str); 3] =
    [("maintenance_work_mem", "3GB"), ("max_parallel_maintenance_workers", "2"), ("statement_timeout", "0")];

/// The time between two looks whether the vectors have their index.
const LOOK: Duration = Duration::from_millis(200);

/// Indexes that were dropped, by the statements that make them again, and whoever keeps the workers from making those of the vectors meanwhile.
pub struct SetAside {
    alone: PgConnection,
    made: Vec<String>,
}

impl SetAside {
    /// Drops the indexes of vectors, and those with these parts in their definitions, each of which must name one index.
    pub async fn take(pool: &PgPool, parts: &[&str]) -> Result<SetAside, BoxError> {
        let alone = reindex::alone(pool).await?;
        let of_vectors: Vec<String> = sqlx::query_scalar(
            "SELECT indexname::text FROM pg_indexes WHERE tablename = 'document_vectors' AND position('USING hnsw' IN indexdef) > 0",
        )
        .fetch_all(pool)
        .await?;
        for name in of_vectors {
            sqlx::raw_sql(AssertSqlSafe(format!("DROP INDEX {name}"))).execute(pool).await?;
        }
        let mut made = Vec::new();
        for part in parts {
            let (name, create): (String, String) = sqlx::query_as(
                "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = current_schema() AND position($1 IN indexdef) > 0",
            )
            .bind(part)
            .fetch_one(pool)
            .await
            .map_err(|error| format!("there is no index with `{part}`: {error}"))?;
            sqlx::raw_sql(AssertSqlSafe(format!("DROP INDEX {name}"))).execute(pool).await?;
            made.push(create);
        }
        Ok(SetAside { alone, made })
    }

    /// Makes them again, and gives the planner its statistics.
    pub async fn restore(self, pool: &PgPool) -> Result<(), BoxError> {
        let options = (*pool.connect_options()).clone().options(FASTER);
        let faster = PgPoolOptions::new().max_connections(4).connect_with(options).await?;
        for create in self.made {
            sqlx::raw_sql(AssertSqlSafe(create)).execute(&faster).await?;
        }
        self.alone.close().await?;
        loop {
            let lacking = reindex::without_index(&mut *faster.acquire().await?, 0).await?;
            let Some((model, width)) = lacking.first() else { break };
            reindex::add_index(&faster, model, usize::try_from(*width)?).await?;
            // A worker may have been first.
            tokio::time::sleep(LOOK).await;
        }
        sqlx::raw_sql("VACUUM ANALYZE").execute(&faster).await?;
        faster.close().await;
        Ok(())
    }
}
