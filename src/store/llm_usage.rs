//! What calls of language models took.
use super::text::storable;
use chrono::NaiveDate;
use sqlx::{PgConnection, PgExecutor};
use svc_client::wire::LlmUsage;

/// Counts a call that is over.
pub async fn add(
    connection: impl PgExecutor<'_>,
    purpose: &str,
    model: &str,
    failed: bool,
    (prompt_tokens, completion_tokens): (i64, i64),
) -> sqlx::Result<()> {
    sqlx::query(
        "INSERT INTO llm_usage AS u (day, purpose, model, is_batched, calls, failed_calls, prompt_tokens, completion_tokens)
         VALUES ((clock_timestamp() AT TIME ZONE 'UTC')::date, $1, $2, false, 1, $3::int, $4, $5)
         ON CONFLICT (day, purpose, model, is_batched) DO UPDATE SET calls = u.calls + 1, failed_calls = u.failed_calls + excluded.failed_calls,
            prompt_tokens = u.prompt_tokens + excluded.prompt_tokens, completion_tokens = u.completion_tokens + excluded.completion_tokens",
    )
    .bind(purpose)
    .bind(storable(model).as_ref())
    .bind(failed)
    .bind(prompt_tokens)
    .bind(completion_tokens)
    .execute(connection)
    .await
    .map(|_| ())
}

/// What calls took in the last `days`, today included, with the first day that counts.
pub async fn read(conn: &mut PgConnection, days: i32) -> sqlx::Result<(NaiveDate, Vec<LlmUsage>)> {
    let since: NaiveDate = sqlx::query_scalar("SELECT (clock_timestamp() AT TIME ZONE 'UTC')::date - ($1 - 1)")
        .bind(days)
        .fetch_one(&mut *conn)
        .await?;
    let rows: Vec<(String, String, bool, i64, i64, i64, i64)> = sqlx::query_as(
        "SELECT purpose, model, is_batched, sum(calls)::bigint, sum(failed_calls)::bigint, sum(prompt_tokens)::bigint, sum(completion_tokens)::bigint
           FROM llm_usage WHERE day >= $1 GROUP BY 1, 2, 3 ORDER BY 1, 2, 3 LIMIT 1000",
    )
    .bind(since)
    .fetch_all(conn)
    .await?;
    let usage = rows
        .into_iter()
        .map(|(purpose, model, batched, calls, failed_calls, prompt_tokens, completion_tokens)| LlmUsage {
            purpose,
            model,
            batched,
            calls,
            failed_calls,
            prompt_tokens,
            completion_tokens,
        })
        .collect();
    Ok((since, usage))
}
