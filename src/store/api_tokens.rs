//! The tokens of principals, and who holds one.
use super::interval::interval;
use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use std::time::Duration;
use svc_client::wire::ApiTokenResponse;
use svc_ids::{ApiTokenId, DocumentId, PrincipalId};

/// The columns of an [`ApiTokenRow`].
macro_rules! columns {
    () => {
        "id, principal_id, name, prefix, created_at, expires_at, last_used_at, rotated_at, revoked_at"
    };
}

#[derive(sqlx_macros::FromRow)]
struct ApiTokenRow {
    id: i64,
    principal_id: i64,
    name: String,
    prefix: String,
    created_at: DateTime<Utc>,
    expires_at: Option<DateTime<Utc>>,
    last_used_at: Option<DateTime<Utc>>,
    rotated_at: Option<DateTime<Utc>>,
    revoked_at: Option<DateTime<Utc>>,
}

impl From<ApiTokenRow> for ApiTokenResponse {
    fn from(row: ApiTokenRow) -> ApiTokenResponse {
        ApiTokenResponse {
            id: row.id,
            principal_id: row.principal_id,
            name: row.name,
            prefix: row.prefix,
            created_at: row.created_at,
            expires_at: row.expires_at,
            last_used_at: row.last_used_at,
            rotated_at: row.rotated_at,
            revoked_at: row.revoked_at,
        }
    }
}

/// A token to be stored.
pub struct NewRow<'a> {
    pub principal_id: PrincipalId,
    pub name: &'a str,
    /// SHA-256 of the secret.
    pub hash: &'a [u8; 32],
    /// The beginning of the secret.
    pub prefix: &'a str,
    pub expires_at: Option<DateTime<Utc>>,
}

/// Stores a token.
pub async fn insert(conn: &mut PgConnection, row: &NewRow<'_>) -> sqlx::Result<ApiTokenResponse> {
    let stored: ApiTokenRow = sqlx::query_as(concat!(
        "INSERT INTO api_tokens (principal_id, name, hash, prefix, expires_at) VALUES ($1, $2, $3, $4, $5) RETURNING ",
        columns!()
    ))
    .bind(row.principal_id)
    .bind(row.name)
    .bind(row.hash.as_slice())
    .bind(row.prefix)
    .bind(row.expires_at)
    .fetch_one(conn)
    .await?;
    Ok(stored.into())
}

/// Reads one token.
pub async fn read(conn: &mut PgConnection, id: ApiTokenId) -> sqlx::Result<Option<ApiTokenResponse>> {
    let row: Option<ApiTokenRow> = sqlx::query_as(concat!("SELECT ", columns!(), " FROM api_tokens WHERE id = $1"))
        .bind(id)
        .fetch_optional(conn)
        .await?;
    Ok(row.map(ApiTokenResponse::from))
}

/// The tokens of a principal after `after`, by id.
pub async fn list(
    conn: &mut PgConnection,
    principal_id: PrincipalId,
    after: ApiTokenId,
    limit: u32,
) -> sqlx::Result<Vec<ApiTokenResponse>> {
    let rows: Vec<ApiTokenRow> = sqlx::query_as(concat!(
        "SELECT ",
        columns!(),
        " FROM api_tokens WHERE principal_id = $1 AND id > $2 ORDER BY id LIMIT $3"
    ))
    .bind(principal_id)
    .bind(after)
    .bind(i64::from(limit))
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(ApiTokenResponse::from).collect())
}

/// Revokes a token; returns it, and whether it was not revoked before.
pub async fn revoke(conn: &mut PgConnection, id: ApiTokenId) -> sqlx::Result<Option<(ApiTokenResponse, bool)>> {
    let revoked: Option<ApiTokenRow> = sqlx::query_as(concat!(
        "UPDATE api_tokens SET revoked_at = now() WHERE id = $1 AND revoked_at IS NULL RETURNING ",
        columns!()
    ))
    .bind(id)
    .fetch_optional(&mut *conn)
    .await?;
    match revoked {
        Some(row) => Ok(Some((row.into(), true))),
        None => Ok(read(conn, id).await?.map(|token| (token, false))),
    }
}

/// A token that is being rotated.
#[derive(Debug, sqlx_macros::FromRow)]
pub struct Rotated {
    pub principal_id: PrincipalId,
    pub name: String,
    /// Whether it may be rotated: it still opens the service, and has no successor yet.
    pub is_current: bool,
    /// When a token would expire that lasts as long from now on as this one was to last, or the last moment that the API can say.
    pub expires_at: Option<DateTime<Utc>>,
}

/// Ends a token after a grace time, or when it ends anyway if that is sooner; one that is not current stays as it is.
pub async fn outdate(conn: &mut PgConnection, id: ApiTokenId, grace: Duration) -> sqlx::Result<Option<Rotated>> {
    sqlx::query_as(
        "WITH old AS (
             SELECT id, principal_id, name,
                    revoked_at IS NULL AND rotated_at IS NULL AND (expires_at IS NULL OR expires_at > now()) AS is_current,
                    CASE WHEN expires_at IS NOT NULL THEN least(now() + (expires_at - created_at), '9999-12-31T23:59:59Z') END AS expires_at
               FROM api_tokens WHERE id = $1 FOR UPDATE),
         outdated AS (
             UPDATE api_tokens t SET expires_at = least(t.expires_at, now() + $2), rotated_at = now()
               FROM old WHERE t.id = old.id AND old.is_current)
         SELECT principal_id, name, is_current, expires_at FROM old",
    )
    .bind(id)
    .bind(interval(grace))
    .fetch_optional(conn)
    .await
}

/// Who holds a living token, and the guards under its grants.
#[derive(Debug, sqlx_macros::FromRow)]
pub struct Holder {
    /// `None` if it was found without a token.
    pub token_id: Option<ApiTokenId>,
    pub principal_id: PrincipalId,
    pub name: String,
    /// Whether the last use was recorded a minute ago or earlier.
    pub is_use_due: bool,
    /// The guards of what it may read, besides what is open to all.
    pub read: Vec<DocumentId>,
    /// The guards of what it may change.
    pub write: Vec<DocumentId>,
}

/// The statement that finds a [`Holder`] among those that this query gives. A grant on a root covers the roots under it too.
macro_rules! holder {
    ($($held:tt)+) => {
        concat!(
            "WITH RECURSIVE held AS (", $($held)+, " AND NOT p.disabled),
             reached(id, can_write) AS (
                 SELECT g.document_id, g.can_write FROM held h JOIN access_grants g ON g.principal_id = h.principal_id
                 UNION
                 SELECT a.document_id, r.can_write FROM reached r JOIN access_roots a ON a.above = r.id)
             SELECT h.*, ARRAY(SELECT DISTINCT id FROM reached) AS read, ARRAY(SELECT id FROM reached WHERE can_write) AS write FROM held h"
        )
    };
}

/// The holders of tokens that are valid, by this condition on `api_tokens t`.
macro_rules! by_token {
    ($condition:literal) => {
        concat!(
            "SELECT t.id AS token_id, t.principal_id, p.name, coalesce(t.last_used_at <= now() - interval '1 minute', true) AS is_use_due
               FROM api_tokens t JOIN principals p ON p.id = t.principal_id
              WHERE ", $condition, " AND t.revoked_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > now())"
        )
    };
}

/// The principals that need no token, by this condition on `principals p`.
macro_rules! by_itself {
    ($condition:literal) => {
        concat!("SELECT NULL::bigint AS token_id, p.id AS principal_id, p.name, false AS is_use_due FROM principals p WHERE ", $condition)
    };
}

/// Who holds the token whose secret has this SHA-256; `None` if there is no such token, if it has expired or was revoked, and if its
/// principal is disabled.
pub async fn holder(conn: &mut PgConnection, hash: &[u8; 32]) -> sqlx::Result<Option<Holder>> {
    sqlx::query_as(holder!(by_token!("t.hash = $1"))).bind(hash.as_slice()).fetch_optional(conn).await
}

/// Does the same as [`holder`] by the token's id.
pub async fn holder_again(conn: &mut PgConnection, token_id: ApiTokenId) -> sqlx::Result<Option<Holder>> {
    sqlx::query_as(holder!(by_token!("t.id = $1"))).bind(token_id).fetch_optional(conn).await
}

/// The service for whose messages this user of the broker answers; `None` if there is none that is enabled.
pub async fn by_amqp_user(conn: &mut PgConnection, user: &str) -> sqlx::Result<Option<Holder>> {
    sqlx::query_as(holder!(by_itself!("p.amqp_user = $1 AND p.kind = 'service'"))).bind(user).fetch_optional(conn).await
}

/// The principal of this name; `None` if there is none that is enabled.
pub async fn by_name(conn: &mut PgConnection, name: &str) -> sqlx::Result<Option<Holder>> {
    sqlx::query_as(holder!(by_itself!("p.name = $1"))).bind(name).fetch_optional(conn).await
}

/// The principal of this id; `None` if there is none that is enabled.
pub async fn by_id(conn: &mut PgConnection, id: PrincipalId) -> sqlx::Result<Option<Holder>> {
    sqlx::query_as(holder!(by_itself!("p.id = $1"))).bind(id).fetch_optional(conn).await
}

/// Records that a token is used, unless that was recorded within the last minute or another request is recording it.
pub async fn record_use(conn: &mut PgConnection, token_id: ApiTokenId) -> sqlx::Result<()> {
    sqlx::query(
        "UPDATE api_tokens SET last_used_at = now() WHERE id = (
             SELECT id FROM api_tokens WHERE id = $1 AND coalesce(last_used_at <= now() - interval '1 minute', true)
                FOR NO KEY UPDATE SKIP LOCKED)",
    )
    .bind(token_id)
    .execute(conn)
    .await
    .map(|_| ())
}
