//! Webhooks: who is called, for what, and with which key.
use super::{
    advisory::AdvisoryLock, documents::add, event_feed::Audience, interval::interval, scope::Readable, word::Word,
};
use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use std::time::Duration;
use svc_client::wire::{EventKind, WebhookResponse};
use svc_ids::{DocumentId, PrincipalId, WebhookId};

/// The most webhooks of one creator.
pub const MOST: i64 = 100;

/// The columns of a [`Row`].
macro_rules! columns {
    () => {
        "id, principal_id, url, kinds, root_id, created_at, CASE WHEN old_until > now() THEN old_until END AS old_until, failing_since, off_since"
    };
}

/// Whose webhooks a caller sees: a principal ($2) its own, the owner ($1) all.
macro_rules! own {
    () => {
        "($1::boolean OR principal_id = $2)"
    };
}

/// Whose webhooks are meant.
#[derive(Clone, Copy, Debug)]
pub enum Of {
    Everyone,
    Principal(PrincipalId),
}

impl Of {
    pub(super) fn arguments(self) -> sqlx::postgres::PgArguments {
        let mut arguments = sqlx::postgres::PgArguments::default();
        add(&mut arguments, matches!(self, Of::Everyone));
        add(
            &mut arguments,
            match self {
                Of::Everyone => None,
                Of::Principal(id) => Some(id),
            },
        );
        arguments
    }
}

#[derive(sqlx_macros::FromRow)]
struct Row {
    id: i64,
    principal_id: Option<i64>,
    url: String,
    kinds: Vec<Word<EventKind>>,
    root_id: Option<i64>,
    created_at: DateTime<Utc>,
    old_until: Option<DateTime<Utc>>,
    failing_since: Option<DateTime<Utc>>,
    off_since: Option<DateTime<Utc>>,
}

impl From<Row> for WebhookResponse {
    fn from(row: Row) -> WebhookResponse {
        WebhookResponse {
            id: row.id,
            principal_id: row.principal_id,
            url: row.url,
            kinds: row.kinds.into_iter().map(|Word(kind)| kind).collect(),
            root: row.root_id,
            created_at: row.created_at,
            old_secret_until: row.old_until,
            failing_since: row.failing_since,
            off_since: row.off_since,
        }
    }
}

/// A webhook to store.
pub struct NewRow<'a> {
    /// `None` for the owner.
    pub principal_id: Option<PrincipalId>,
    pub url: &'a str,
    pub kinds: &'a [EventKind],
    pub root_id: Option<i64>,
    pub secret: &'a [u8; 32],
}

/// Stores a webhook, which begins with the next event that is numbered; `None` if its creator has [`MOST`] already.
pub async fn insert(conn: &mut PgConnection, row: &NewRow<'_>) -> sqlx::Result<Option<WebhookResponse>> {
    // The owner has no row to lock, so that creators wait for each other.
    sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(AdvisoryLock::Webhooks.key()).execute(&mut *conn).await?;
    let stored: Option<Row> = sqlx::query_as(concat!(
        "INSERT INTO webhooks (principal_id, url, kinds, root_id, secret, after_seq)
         SELECT $1, $2, $3, $4, $5, c.last FROM event_counter c
          WHERE (SELECT count(*) FROM webhooks w WHERE w.principal_id IS NOT DISTINCT FROM $1) < $6
         RETURNING ",
        columns!()
    ))
    .bind(row.principal_id)
    .bind(row.url)
    .bind(row.kinds.iter().map(|kind| kind.as_str()).collect::<Vec<_>>())
    .bind(row.root_id)
    .bind(row.secret.as_slice())
    .bind(MOST)
    .fetch_optional(conn)
    .await?;
    Ok(stored.map(WebhookResponse::from))
}

/// The webhooks after `after`, by id.
pub async fn list(conn: &mut PgConnection, of: Of, after: WebhookId, limit: u32) -> sqlx::Result<Vec<WebhookResponse>> {
    let mut arguments = of.arguments();
    add(&mut arguments, after);
    add(&mut arguments, i64::from(limit));
    let query = concat!("SELECT ", columns!(), " FROM webhooks WHERE id > $3 AND ", own!(), " ORDER BY id LIMIT $4");
    let rows: Vec<Row> = sqlx::query_as_with(query, arguments).persistent(false).fetch_all(conn).await?;
    Ok(rows.into_iter().map(WebhookResponse::from).collect())
}

/// Reads one webhook; `None` if it does not exist or is not one of these.
pub async fn read(conn: &mut PgConnection, of: Of, id: WebhookId) -> sqlx::Result<Option<WebhookResponse>> {
    let mut arguments = of.arguments();
    add(&mut arguments, id);
    let query = concat!("SELECT ", columns!(), " FROM webhooks WHERE id = $3 AND ", own!());
    let row: Option<Row> = sqlx::query_as_with(query, arguments).fetch_optional(conn).await?;
    Ok(row.map(WebhookResponse::from))
}

/// Deletes a webhook with its deliveries; false if it does not exist or is not one of these.
pub async fn delete(conn: &mut PgConnection, of: Of, id: WebhookId) -> sqlx::Result<bool> {
    let mut arguments = of.arguments();
    add(&mut arguments, id);
    let query = concat!("DELETE FROM webhooks WHERE id = $3 AND ", own!());
    sqlx::query_with(query, arguments).execute(conn).await.map(|gone| gone.rows_affected() > 0)
}

/// Gives a webhook another key; the old one signs too for a grace time.
pub async fn rotate(
    conn: &mut PgConnection,
    of: Of,
    id: WebhookId,
    secret: &[u8; 32],
    grace: Duration,
) -> sqlx::Result<Option<WebhookResponse>> {
    let mut arguments = of.arguments();
    add(&mut arguments, id);
    add(&mut arguments, secret.to_vec());
    add(&mut arguments, interval(grace));
    let query = concat!(
        "UPDATE webhooks SET old_secret = secret, old_until = now() + $5, secret = $4 WHERE id = $3 AND ",
        own!(),
        " RETURNING ",
        columns!()
    );
    let row: Option<Row> = sqlx::query_as_with(query, arguments).fetch_optional(conn).await?;
    Ok(row.map(WebhookResponse::from))
}

/// What must be known of a webhook to choose its events.
#[derive(Debug, sqlx_macros::FromRow)]
pub struct Served {
    pub id: WebhookId,
    pub kinds: Vec<Word<EventKind>>,
    pub root_id: Option<i64>,
    pub after_seq: i64,
    /// `None` for the owner.
    principal_id: Option<PrincipalId>,
    /// What its creator may read.
    read: Vec<DocumentId>,
    /// The creator is disabled, so it may read nothing.
    is_disabled: bool,
}

impl Served {
    /// The rights of its creator.
    pub fn audience(&self) -> Audience {
        let readable = match (self.principal_id, self.is_disabled) {
            (None, _) => Readable::everything(),
            (Some(_), false) => Readable::under(&self.read),
            (Some(_), true) => Readable::default(),
        };
        // A disabled creator is not among the readers of a deletion either.
        Audience { readable, principal: self.principal_id.filter(|_| !self.is_disabled) }
    }
}

/// The columns of [`Served`], from `webhooks w`.
macro_rules! served {
    () => {
        "w.id, w.kinds, w.root_id, w.after_seq, w.principal_id, coalesce(p.disabled, false) AS is_disabled, ARRAY(
             WITH RECURSIVE reached(id) AS (
                 SELECT g.document_id FROM access_grants g WHERE g.principal_id = w.principal_id
                 UNION SELECT a.document_id FROM reached r JOIN access_roots a ON a.above = r.id)
             SELECT id FROM reached) AS read
           FROM webhooks w LEFT JOIN principals p ON p.id = w.principal_id"
    };
}

/// Locks a webhook that has not looked at the newest events; `None` if there is none, or if other processes have locked
/// them all.
pub async fn behind(conn: &mut PgConnection) -> sqlx::Result<Option<Served>> {
    sqlx::query_as(concat!(
        "SELECT ",
        served!(),
        " WHERE w.off_since IS NULL AND w.after_seq < (SELECT last FROM event_counter) ORDER BY w.after_seq, w.id
            FOR NO KEY UPDATE OF w SKIP LOCKED LIMIT 1"
    ))
    .fetch_optional(conn)
    .await
}

/// Queues a delivery for each of these events, and records that the webhook has looked at everything up to a number.
pub async fn enqueue(conn: &mut PgConnection, id: WebhookId, seqs: &[i64], up_to: i64) -> sqlx::Result<()> {
    sqlx::query(
        "WITH queued AS (
             INSERT INTO webhook_delivery (webhook_id, seq) SELECT $1, seq FROM unnest($2::bigint[]) AS e(seq) ORDER BY seq ON CONFLICT DO NOTHING)
         UPDATE webhooks SET after_seq = $3 WHERE id = $1",
    )
    .bind(id)
    .bind(seqs)
    .bind(up_to)
    .execute(conn)
    .await
    .map(|_| ())
}

/// The webhook of a delivery, as it is now.
pub async fn served(conn: &mut PgConnection, id: WebhookId) -> sqlx::Result<Option<Served>> {
    sqlx::query_as(concat!("SELECT ", served!(), " WHERE w.id = $1")).bind(id).fetch_optional(conn).await
}

/// Where a webhook is called, and with which keys what is sent now is signed, the newest first.
pub struct Target {
    pub url: String,
    pub keys: Vec<Vec<u8>>,
}

/// Reads where and how a webhook is called; `None` if it is switched off or gone.
pub async fn target(conn: &mut PgConnection, id: WebhookId) -> sqlx::Result<Option<Target>> {
    let row: Option<(String, Vec<u8>, Option<Vec<u8>>)> = sqlx::query_as(
        "SELECT url, secret, CASE WHEN old_until > now() THEN old_secret END FROM webhooks WHERE id = $1 AND off_since IS NULL",
    )
    .bind(id)
    .fetch_optional(conn)
    .await?;
    Ok(row.map(|(url, secret, old)| Target { url, keys: std::iter::once(secret).chain(old).collect() }))
}
