//! Who is signed in to the console.
use super::interval::interval;
use sqlx::PgConnection;
use std::time::Duration;
use svc_ids::ApiTokenId;

/// How long a session lasts.
const LASTS: Duration = Duration::from_secs(12 * 3600);
/// How long a session lasts without a page that a person asked for.
const IDLE: Duration = Duration::from_secs(3600);
/// How many sessions one token has at most, or the owner; the one that was used least lately goes first.
const MOST_OF_ONE: i64 = 50;
/// How many sessions there are at most. Beyond that, those go first whose holders have most, so that nobody signs others out.
const MOST: i64 = 1000;

/// What a session belongs to.
#[derive(Clone, Copy, Debug)]
pub enum Shown {
    /// The owner's token, by a digest that no longer fits once the token is another.
    Owner([u8; 32]),
    Token(ApiTokenId),
}

/// Stores a session, and forgets those that have ended.
pub async fn begin(conn: &mut PgConnection, hash: &[u8; 32], shown: Shown, csrf: &str) -> sqlx::Result<()> {
    let (token_id, owner_mark) = match shown {
        Shown::Owner(mark) => (None, Some(mark)),
        Shown::Token(id) => (Some(id), None),
    };
    sqlx::query(
        "WITH held AS (
             SELECT hash, token_id, row_number() OVER (PARTITION BY token_id ORDER BY seen_at DESC, hash) AS nth
               FROM console_sessions WHERE created_at >= now() - $5 AND seen_at >= now() - $6),
         kept AS (
             SELECT hash FROM held WHERE nth < $7 OR token_id IS DISTINCT FROM $2 ORDER BY nth, token_id NULLS FIRST LIMIT $8),
         ended AS (DELETE FROM console_sessions WHERE hash NOT IN (SELECT hash FROM kept))
         INSERT INTO console_sessions (hash, token_id, owner_mark, csrf) VALUES ($1, $2, $3, $4)",
    )
    .bind(hash.as_slice())
    .bind(token_id)
    .bind(owner_mark.as_ref().map(<[u8; 32]>::as_slice))
    .bind(csrf)
    .bind(interval(LASTS))
    .bind(interval(IDLE))
    .bind(MOST_OF_ONE)
    .bind(MOST - 1)
    .execute(conn)
    .await
    .map(|_| ())
}

/// A session that has not ended.
#[derive(Debug, sqlx_macros::FromRow)]
pub struct Session {
    pub token_id: Option<ApiTokenId>,
    pub owner_mark: Option<Vec<u8>>,
    pub csrf: String,
    /// Its last use is to be recorded.
    pub is_use_due: bool,
}

/// The session with this digest, unless it has ended.
pub async fn read(conn: &mut PgConnection, hash: &[u8; 32]) -> sqlx::Result<Option<Session>> {
    sqlx::query_as(
        "SELECT token_id, owner_mark, csrf, seen_at < now() - interval '1 minute' AS is_use_due FROM console_sessions
          WHERE hash = $1 AND created_at > now() - $2 AND seen_at > now() - $3",
    )
    .bind(hash.as_slice())
    .bind(interval(LASTS))
    .bind(interval(IDLE))
    .fetch_optional(conn)
    .await
}

/// Records that a session is used.
pub async fn record_use(conn: &mut PgConnection, hash: &[u8; 32]) -> sqlx::Result<()> {
    let query = "UPDATE console_sessions SET seen_at = now() WHERE hash = $1";
    sqlx::query(query).bind(hash.as_slice()).execute(conn).await.map(|_| ())
}

/// Ends a session.
pub async fn end(conn: &mut PgConnection, hash: &[u8; 32]) -> sqlx::Result<()> {
    sqlx::query("DELETE FROM console_sessions WHERE hash = $1").bind(hash.as_slice()).execute(conn).await.map(|_| ())
}
