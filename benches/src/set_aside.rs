//! Indexes that are dropped while a store is filled: one that is made at the end is made faster.
use crate::figure::BoxError;
use sqlx::{AssertSqlSafe, PgPool};

/// Indexes that were dropped, by the statements that make them again.
pub struct SetAside(Vec<String>);

impl SetAside {
    /// Drops the indexes with these parts in their definitions, each of which must name one index.
    pub async fn take(pool: &PgPool, parts: &[&str]) -> Result<SetAside, BoxError> {
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
        Ok(SetAside(made))
    }

    /// Makes them again, and gives the planner its statistics.
    pub async fn restore(self, pool: &PgPool) -> Result<(), BoxError> {
        let mut conn = pool.acquire().await?;
        sqlx::raw_sql(
            "SET maintenance_work_mem = '3GB'; SET max_parallel_maintenance_workers = 2; SET statement_timeout = 0",
        )
        .execute(&mut *conn)
        .await?;
        for create in self.0 {
            sqlx::raw_sql(AssertSqlSafe(create)).execute(&mut *conn).await?;
        }
        sqlx::raw_sql("VACUUM ANALYZE").execute(&mut *conn).await?;
        // The settings above are not for whoever takes this connection next.
        Ok(conn.close().await?)
    }
}
