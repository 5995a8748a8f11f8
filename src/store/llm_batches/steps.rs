//! The way of a batch to its provider.
use crate::store::{interval::interval, text::storable, word::Word};
use chrono::{DateTime, Utc};
use sqlx::{PgConnection, PgExecutor};
use std::time::Duration;
use svc_client::wire::LlmBatchState;
use uuid::Uuid;

/// How long a provider may take to cancel a batch.
const CANCELLING: Duration = Duration::from_secs(3600);
/// How long after its time a batch may end.
const OVERDUE: Duration = Duration::from_secs(24 * 3600);

/// A batch as its worker sees it.
#[derive(Clone, Debug, sqlx_macros::FromRow)]
pub struct BatchRow {
    pub id: i64,
    pub key: Uuid,
    pub model: String,
    pub state: Word<LlmBatchState>,
    pub provider_id: Option<String>,
    pub submitting_at: Option<DateTime<Utc>>,
    /// How often it was sent to a provider that may have it since and cannot be asked.
    pub doubts: i32,
    pub is_cancelled: bool,
    /// Its provider should have ended it.
    pub is_overdue: bool,
    /// Its provider was asked to end it for so long, or should have ended it so long ago, that nobody waits for it any more.
    pub is_given_up: bool,
    /// Its provider has no room for it yet beside another batch of its model.
    pub is_put_off: bool,
}

/// The batches of a provider that owe something, oldest first.
pub async fn owed(conn: &mut PgConnection, provider: &str) -> sqlx::Result<Vec<BatchRow>> {
    sqlx::query_as(
        "SELECT b.id, b.key, b.model, b.state, b.provider_id, b.submitting_at, b.doubts, b.cancel_requested_at IS NOT NULL AS is_cancelled,
                coalesce(b.expires_at < clock_timestamp(), false) AS is_overdue,
                coalesce(b.cancel_requested_at < clock_timestamp() - $2, false) OR coalesce(b.expires_at < clock_timestamp() - $3, false) AS is_given_up,
                coalesce(b.put_off_until > clock_timestamp(), false)
                    AND EXISTS (SELECT 1 FROM llm_batches o WHERE o.provider = b.provider AND o.model = b.model AND o.state = 'submitted' AND NOT o.is_done)
                    AS is_put_off
           FROM llm_batches b
          WHERE b.provider = $1 AND NOT b.is_done AND b.state <> 'ended' ORDER BY b.id",
    )
    .bind(provider)
    .bind(interval(CANCELLING))
    .bind(interval(OVERDUE))
    .fetch_all(conn)
    .await
}

/// Records that the provider is about to get a batch, and what of it. If nobody can ask the provider whether it has the batch, that is counted as in
/// doubt from here on, so that also a crash at any later moment leaves it counted. Returns false if the batch is not waiting for that.
pub async fn submitting(
    conn: &mut PgConnection,
    id: i64,
    (requests, bytes): (i32, u64),
    in_doubt: bool,
) -> sqlx::Result<bool> {
    sqlx::query(
        "UPDATE llm_batches SET state = 'submitting', submitting_at = coalesce(submitting_at, clock_timestamp()), requests = $2, bytes = $3,
                doubts = doubts + $4, put_off_until = NULL
          WHERE id = $1 AND state IN ('closed', 'submitting')",
    )
    .bind(id)
    .bind(requests)
    .bind(i64::try_from(bytes).unwrap_or(i64::MAX))
    .bind(i32::from(in_doubt))
    .execute(conn)
    .await
    .map(|done| done.rows_affected() == 1)
}

/// Takes a doubt back, because the provider surely did not get the batch.
pub async fn not_sent(conn: &mut PgConnection, id: i64) -> sqlx::Result<()> {
    sqlx::query("UPDATE llm_batches SET doubts = doubts - 1 WHERE id = $1 AND doubts > 0")
        .bind(id)
        .execute(conn)
        .await
        .map(|_| ())
}

/// Records that the provider has a batch, about which there is no doubt any more. Returns false if it is not being submitted, or the provider has it
/// under another name. Who tries again because it is unknown whether this was recorded is told that it was.
pub async fn submitted(
    connection: impl PgExecutor<'_>,
    id: i64,
    provider_id: &str,
    expires_at: Option<DateTime<Utc>>,
) -> sqlx::Result<bool> {
    sqlx::query_scalar(
        "WITH recorded AS (
             UPDATE llm_batches SET state = 'submitted', provider_id = $2, submitted_at = clock_timestamp(), problem = NULL,
                    doubts = greatest(doubts - 1, 0), expires_at = coalesce($3, clock_timestamp() + interval '24 hours')
              WHERE id = $1 AND state = 'submitting' AND provider_id IS NULL RETURNING id)
         SELECT EXISTS (SELECT 1 FROM recorded) OR EXISTS (SELECT 1 FROM llm_batches WHERE id = $1 AND provider_id = $2)",
    )
    .bind(id)
    .bind(provider_id)
    .bind(expires_at)
    .fetch_one(connection)
    .await
}

/// Has a batch that its provider did not begin wait for this long, or until no other batch of its model is at the provider. It gets another key, by which
/// the one that is over is not found. Returns false if there is no other batch, whose end could make room for it.
pub async fn put_off(conn: &mut PgConnection, id: i64, wait: Duration, problem: &str) -> sqlx::Result<bool> {
    sqlx::query(
        "UPDATE llm_batches b SET state = 'closed', key = gen_random_uuid(), provider_id = NULL, submitting_at = NULL, submitted_at = NULL, expires_at = NULL,
                put_off_until = clock_timestamp() + $2, problem = left($3, 2000)
          WHERE b.id = $1 AND b.state = 'submitted'
            AND EXISTS (SELECT 1 FROM llm_batches o
                         WHERE o.provider = b.provider AND o.model = b.model AND o.id <> b.id AND o.state = 'submitted' AND NOT o.is_done)",
    )
    .bind(id)
    .bind(interval(wait))
    .bind(storable(problem).as_ref())
    .execute(conn)
    .await
    .map(|done| done.rows_affected() == 1)
}
