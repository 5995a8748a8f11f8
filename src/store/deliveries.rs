//! The deliveries of webhooks: claimed by any process, at most a few at a time for each webhook.
use super::{documents::add, interval::interval, webhooks::Of, word::Word};
use chrono::{DateTime, Utc};
use serde_json::json;
use sqlx::{PgConnection, postgres::PgArguments};
use std::time::Duration;
use svc_client::wire::{DeliveryResponse, DeliveryState, EventKind};
use svc_ids::{DeliveryId, WebhookId};
use uuid::Uuid;

/// The most deliveries that are sent to one webhook at a time, by the whole fleet. Statements hold the number, because their plans depend on it.
macro_rules! at_once {
    () => {
        4
    };
}

/// How many webhooks one claim serves.
const SERVED: i64 = 16;
/// How many old deliveries are deleted in one statement.
const SWEPT: i64 = 1_000;

/// The columns of a [`Row`], from `webhook_delivery d`, whose state may be shown as another one.
macro_rules! columns {
    () => {
        columns!("d.state")
    };
    ($state:literal) => {
        concat!("d.id, d.webhook_id, d.seq, ", $state, " AS state, d.tries, d.due_at, d.tried_at, d.status, d.error")
    };
}

/// What may be claimed of `webhook_delivery` for the webhook `w`, in its order. Time stands still within a statement, so that the index finds it.
macro_rules! due {
    () => {
        "webhook_id = w.id AND state = 'pending' AND due_at <= statement_timestamp()
                    AND coalesce(claimed_until <= statement_timestamp(), true) ORDER BY due_at, id"
    };
}

/// How many deliveries of the webhook `w` are under way.
macro_rules! under_way {
    () => {
        "(SELECT count(*) FROM webhook_delivery b
           WHERE b.webhook_id = w.id AND b.claimed_until IS NOT NULL AND b.claimed_until > statement_timestamp())"
    };
}

#[derive(sqlx_macros::FromRow)]
struct Row {
    id: i64,
    webhook_id: i64,
    seq: Option<i64>,
    state: Word<DeliveryState>,
    tries: i32,
    due_at: DateTime<Utc>,
    tried_at: Option<DateTime<Utc>>,
    status: Option<i32>,
    error: Option<String>,
}

/// The id of a message, the same in every try.
pub fn message_id(id: i64, seq: Option<i64>) -> String {
    seq.map_or_else(|| format!("test_{id}"), |seq| format!("evt_{seq}"))
}

impl From<Row> for DeliveryResponse {
    fn from(row: Row) -> DeliveryResponse {
        DeliveryResponse {
            id: row.id,
            webhook_id: row.webhook_id,
            message_id: message_id(row.id, row.seq),
            state: row.state.0,
            tries: row.tries,
            due_at: row.due_at,
            tried_at: row.tried_at,
            status: row.status,
            error: row.error,
        }
    }
}

/// Queues a test: a delivery without an event.
pub async fn insert_test(conn: &mut PgConnection, webhook_id: WebhookId) -> sqlx::Result<DeliveryResponse> {
    let row: Row =
        sqlx::query_as(concat!("INSERT INTO webhook_delivery AS d (webhook_id) VALUES ($1) RETURNING ", columns!()))
            .bind(webhook_id)
            .fetch_one(conn)
            .await?;
    Ok(row.into())
}

/// The deliveries of a webhook before `before`, newest first. What waits for a webhook that is switched off is never sent, so it is dead.
pub async fn list(
    conn: &mut PgConnection,
    webhook_id: WebhookId,
    before: i64,
    limit: u32,
) -> sqlx::Result<Vec<DeliveryResponse>> {
    let rows: Vec<Row> = sqlx::query_as(concat!(
        "SELECT ",
        columns!(
            "CASE WHEN d.state = 'pending' AND EXISTS (SELECT 1 FROM webhooks w WHERE w.id = d.webhook_id AND w.off_since IS NOT NULL)
                  THEN 'dead' ELSE d.state END"
        ),
        " FROM webhook_delivery d WHERE d.webhook_id = $1 AND d.id < $2 ORDER BY d.id DESC LIMIT $3"
    ))
    .bind(webhook_id)
    .bind(before)
    .bind(i64::from(limit))
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(DeliveryResponse::from).collect())
}

/// Makes a delivery due now and gives it all its tries again; `None` if these webhooks have no such delivery, or if its
/// webhook is switched off.
pub async fn retry(conn: &mut PgConnection, of: Of, id: DeliveryId) -> sqlx::Result<Option<DeliveryResponse>> {
    let mut arguments: PgArguments = of.arguments();
    add(&mut arguments, id);
    let row: Option<Row> = sqlx::query_as_with(
        concat!(
            "UPDATE webhook_delivery d SET state = 'pending', tries = 0, due_at = clock_timestamp() FROM webhooks w
              WHERE d.id = $3 AND w.id = d.webhook_id AND w.off_since IS NULL AND ($1::boolean OR w.principal_id = $2) RETURNING ",
            columns!()
        ),
        arguments,
    )
    .fetch_optional(conn)
    .await?;
    Ok(row.map(DeliveryResponse::from))
}

/// A delivery that this process sends now.
#[derive(Clone, Debug, sqlx_macros::FromRow)]
pub struct Claimed {
    pub id: DeliveryId,
    pub webhook_id: WebhookId,
    /// The number of the event; `None` for a test.
    pub seq: Option<i64>,
    /// The tries that were begun, this one included.
    pub tries: i32,
    claim: Uuid,
}

/// Claims due deliveries for as long as a try may take, in the caller's transaction. The webhooks that were tried longest ago come first, so that many slow
/// receivers cannot keep another webhook from its turn. It reads a few deliveries of each webhook, however many wait.
pub async fn claim(conn: &mut PgConnection, limit: Duration) -> sqlx::Result<Vec<Claimed>> {
    let locked: Vec<WebhookId> = sqlx::query_scalar(concat!(
        "SELECT w.id FROM webhooks w CROSS JOIN LATERAL (SELECT 1 FROM webhook_delivery WHERE ",
        due!(),
        " LIMIT 1) d
          WHERE w.off_since IS NULL AND ",
        under_way!(),
        " < ",
        at_once!(),
        " ORDER BY w.tried_at NULLS FIRST, w.id FOR NO KEY UPDATE OF w SKIP LOCKED LIMIT $1"
    ))
    .bind(SERVED)
    .fetch_all(&mut *conn)
    .await?;
    if locked.is_empty() {
        return Ok(Vec::new());
    }
    // From here on nobody else claims for these webhooks, so what this statement counts is what is under way.
    sqlx::query_as(concat!(
        "WITH due AS (
             SELECT d.id FROM unnest($1::bigint[]) AS w(id) CROSS JOIN LATERAL (
                 SELECT f.id FROM (SELECT id, due_at FROM webhook_delivery WHERE ",
        due!(),
        " LIMIT ",
        at_once!(),
        ") f ORDER BY f.due_at, f.id LIMIT greatest(",
        at_once!(),
        " - ",
        under_way!(),
        ", 0)) d),
              turns AS (UPDATE webhooks SET tried_at = clock_timestamp() WHERE id = ANY ($1))
         UPDATE webhook_delivery d SET claimed_until = clock_timestamp() + $2, claim = gen_random_uuid(), tries = tries + 1, tried_at = clock_timestamp()
          WHERE d.id = ANY (ARRAY(SELECT id FROM due)) RETURNING d.id, d.webhook_id, d.seq, d.tries, d.claim"
    ))
    .bind(locked)
    .bind(interval(limit))
    .fetch_all(conn)
    .await
}

/// How a try ended.
#[derive(Clone, Debug)]
pub enum Ended {
    /// With 2xx.
    Delivered { status: u16 },
    /// It failed, and the next try is due after this time; `None` if this was the last.
    Failed { status: Option<u16>, error: String, again: Option<Duration> },
    /// It was not sent, because the event is no longer kept.
    Expired,
    /// It was not sent, because the creator of the webhook may not read the event any more.
    Withheld,
}

/// Records how a try ended; nothing if another process has claimed the delivery since. Who has asked for another try meanwhile gets it, unless this one
/// arrived.
pub async fn record(conn: &mut PgConnection, claimed: &Claimed, ended: &Ended) -> sqlx::Result<()> {
    let (state, status, error, again) = match ended {
        Ended::Delivered { status } => (DeliveryState::Delivered, Some(*status), None, None),
        Ended::Failed { status, error, again: Some(again) } => {
            (DeliveryState::Pending, *status, Some(error.as_str()), Some(*again))
        }
        Ended::Failed { status, error, again: None } => (DeliveryState::Dead, *status, Some(error.as_str()), None),
        Ended::Expired => (DeliveryState::Dead, None, Some("the event is no longer kept"), None),
        Ended::Withheld => (DeliveryState::Withheld, None, None, None),
    };
    // What was not sent says nothing of the receiver.
    let is_of_receiver = matches!(ended, Ended::Delivered { .. } | Ended::Failed { .. });
    sqlx::query(
        "WITH tried AS (
             UPDATE webhook_delivery SET status = $4, error = $5, state = CASE WHEN $5 IS NOT NULL AND tries < $8 THEN 'pending' ELSE $3 END,
                    due_at = clock_timestamp() + CASE WHEN tries < $8 THEN interval '0' ELSE coalesce($6, interval '0') END,
                    claimed_until = NULL, claim = NULL
              WHERE id = $1 AND claim = $2 RETURNING webhook_id)
         UPDATE webhooks w SET failing_since = CASE WHEN $5 IS NOT NULL THEN coalesce(w.failing_since, clock_timestamp()) END
           FROM tried WHERE w.id = tried.webhook_id AND $7 AND (w.failing_since IS NULL) = ($5 IS NOT NULL)",
    )
    .bind(claimed.id)
    .bind(claimed.claim)
    .bind(state.as_str())
    .bind(status.map(i32::from))
    .bind(error.map(super::text::storable).as_deref())
    .bind(again.map(interval))
    .bind(is_of_receiver)
    .bind(claimed.tries)
    .execute(conn)
    .await
    .map(|_| ())
}

/// Switches a webhook off: at once if the receiver is gone, else if every try has failed for this long. The webhook
/// shows it, and an event tells the owner. Callers ask for it when they give up a delivery that failed, so that each
/// delivery has all its tries as long as its event is kept.
pub async fn switch_off(conn: &mut PgConnection, id: WebhookId, is_gone: bool, patience: Duration) -> sqlx::Result<()> {
    let reason = if is_gone { "gone" } else { "failing" };
    sqlx::query(
        "WITH off AS (
             UPDATE webhooks SET off_since = clock_timestamp()
              WHERE id = $1 AND off_since IS NULL AND ($2 OR failing_since < clock_timestamp() - $3) RETURNING id)
         INSERT INTO event_outbox (kind, data, owner_only)
         SELECT $4, $5 || jsonb_build_object('webhook_id', id), true FROM off",
    )
    .bind(id)
    .bind(is_gone)
    .bind(interval(patience))
    .bind(EventKind::WebhookOff.as_str())
    .bind(json!({"reason": reason}))
    .execute(conn)
    .await
    .map(|_| ())
}

/// Deletes deliveries that are over and were queued longer ago than this, and those that wait for a webhook that was switched off longer ago; returns
/// whether there may be more.
pub async fn sweep(conn: &mut PgConnection, retention: Duration) -> sqlx::Result<bool> {
    let gone = sqlx::query(
        "DELETE FROM webhook_delivery WHERE id = ANY (ARRAY(
             SELECT id FROM (SELECT id, created_at FROM webhook_delivery WHERE state <> 'pending' ORDER BY id LIMIT $2) o
              WHERE o.created_at < clock_timestamp() - $1
             UNION ALL
             (SELECT d.id FROM webhooks w CROSS JOIN LATERAL (
                     SELECT id FROM webhook_delivery WHERE webhook_id = w.id AND state = 'pending' ORDER BY due_at, id LIMIT $2) d
               WHERE w.off_since < clock_timestamp() - $1 LIMIT $2)))",
    )
    .bind(interval(retention))
    .bind(SWEPT)
    .execute(conn)
    .await?;
    Ok(gone.rows_affected() >= SWEPT.unsigned_abs())
}
