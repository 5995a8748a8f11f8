//! The rules by which views show documents, as far as the owner changed or made them.
use chrono::{DateTime, Utc};
use sqlx::{PgConnection, types::Json};
use svc_client::wire::NewPresentation;

/// The most rules that there may be.
pub const MOST: usize = 1000;

type Row = (Json<NewPresentation>, DateTime<Utc>);

/// Every rule, with the time of its last change.
pub async fn all(conn: &mut PgConnection) -> sqlx::Result<Vec<(NewPresentation, DateTime<Utc>)>> {
    let rows: Vec<Row> =
        sqlx::query_as("SELECT rule, changed_at FROM usetype_presentations ORDER BY usetype").fetch_all(conn).await?;
    Ok(rows.into_iter().map(|(Json(rule), changed_at)| (rule, changed_at)).collect())
}

/// Lets nobody else change rules until the transaction ends.
pub async fn alone(conn: &mut PgConnection) -> sqlx::Result<()> {
    sqlx::query("LOCK TABLE usetype_presentations IN SHARE ROW EXCLUSIVE MODE").execute(conn).await.map(|_| ())
}

/// Stores a rule in the place of the one that its usetype had.
pub async fn put(conn: &mut PgConnection, rule: &NewPresentation) -> sqlx::Result<DateTime<Utc>> {
    sqlx::query_scalar(
        "INSERT INTO usetype_presentations (usetype, rule, changed_at) VALUES ($1, $2, clock_timestamp())
         ON CONFLICT (usetype) DO UPDATE SET rule = excluded.rule, changed_at = excluded.changed_at RETURNING changed_at",
    )
    .bind(&rule.usetype)
    .bind(Json(rule))
    .fetch_one(conn)
    .await
}

/// Returns false if there is no such rule.
pub async fn delete(conn: &mut PgConnection, usetype: &str) -> sqlx::Result<bool> {
    let done = sqlx::query("DELETE FROM usetype_presentations WHERE usetype = $1").bind(usetype).execute(conn).await?;
    Ok(done.rows_affected() == 1)
}
