//! The callers besides the owner.
use super::word::Word;
use chrono::{DateTime, Utc};
use serde_json::{Map, Value};
use sqlx::{PgConnection, types::Json};
use svc_client::wire::{NewPrincipal, PrincipalChange, PrincipalKind, PrincipalResponse};
use svc_ids::PrincipalId;

#[derive(sqlx_macros::FromRow)]
struct Row {
    id: i64,
    name: String,
    kind: Word<PrincipalKind>,
    disabled: bool,
    amqp_user: Option<String>,
    created_at: DateTime<Utc>,
}

impl From<Row> for PrincipalResponse {
    fn from(row: Row) -> PrincipalResponse {
        PrincipalResponse {
            id: row.id,
            name: row.name,
            kind: row.kind.0,
            disabled: row.disabled,
            amqp_user: row.amqp_user,
            created_at: row.created_at,
        }
    }
}

/// Stores a principal; `None` if its name is taken.
pub async fn insert(conn: &mut PgConnection, new: &NewPrincipal) -> sqlx::Result<Option<PrincipalResponse>> {
    let row: Option<Row> = sqlx::query_as(
        "INSERT INTO principals (name, kind) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING
         RETURNING id, name, kind, disabled, amqp_user, created_at",
    )
    .bind(&new.name)
    .bind(new.kind.as_str())
    .fetch_optional(conn)
    .await?;
    Ok(row.map(PrincipalResponse::from))
}

/// Reads one principal.
pub async fn read(conn: &mut PgConnection, id: PrincipalId) -> sqlx::Result<Option<PrincipalResponse>> {
    let row: Option<Row> =
        sqlx::query_as("SELECT id, name, kind, disabled, amqp_user, created_at FROM principals WHERE id = $1")
            .bind(id)
            .fetch_optional(conn)
            .await?;
    Ok(row.map(PrincipalResponse::from))
}

/// Reads one principal, and keeps it from being deleted until the transaction ends.
pub async fn hold(conn: &mut PgConnection, id: PrincipalId) -> sqlx::Result<Option<PrincipalResponse>> {
    let row: Option<Row> = sqlx::query_as(
        "SELECT id, name, kind, disabled, amqp_user, created_at FROM principals WHERE id = $1 FOR KEY SHARE",
    )
    .bind(id)
    .fetch_optional(conn)
    .await?;
    Ok(row.map(PrincipalResponse::from))
}

/// The principals after `after`, by id; or only the named one.
pub async fn list(
    conn: &mut PgConnection,
    name: Option<&str>,
    after: PrincipalId,
    limit: u32,
) -> sqlx::Result<Vec<PrincipalResponse>> {
    let rows: Vec<Row> = sqlx::query_as(
        "SELECT id, name, kind, disabled, amqp_user, created_at FROM principals
          WHERE id > $1 AND ($2::text IS NULL OR name = $2) ORDER BY id LIMIT $3",
    )
    .bind(after)
    .bind(name)
    .bind(i64::from(limit))
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(PrincipalResponse::from).collect())
}

/// Changes the fields that are given; `None` if there is no such principal. If the name or the user of
/// the broker is taken, the error is a unique violation.
pub async fn update(
    conn: &mut PgConnection,
    id: PrincipalId,
    change: &PrincipalChange,
) -> sqlx::Result<Option<PrincipalResponse>> {
    let row: Option<Row> = sqlx::query_as(
        "UPDATE principals SET name = coalesce($2, name), kind = coalesce($3, kind), disabled = coalesce($4, disabled),
                amqp_user = CASE WHEN $5::text IS NULL THEN amqp_user ELSE nullif($5, '') END
          WHERE id = $1 RETURNING id, name, kind, disabled, amqp_user, created_at",
    )
    .bind(id)
    .bind(&change.name)
    .bind(change.kind.map(PrincipalKind::as_str))
    .bind(change.disabled)
    .bind(&change.amqp_user)
    .fetch_optional(conn)
    .await?;
    Ok(row.map(PrincipalResponse::from))
}

/// The most grants, tokens and webhooks of a principal that are listed when it goes.
const LISTED: i64 = 1_000;

/// Deletes a principal with its tokens, grants and webhooks. Returns its name, and for the audit how many of each went, and the first
/// thousand of them; `None` if there is no such principal.
pub async fn delete(conn: &mut PgConnection, id: PrincipalId) -> sqlx::Result<Option<(String, Map<String, Value>)>> {
    // From here on it gets none of them.
    let name: Option<String> = sqlx::query_scalar("SELECT name FROM principals WHERE id = $1 FOR UPDATE")
        .bind(id)
        .fetch_optional(&mut *conn)
        .await?;
    let Some(name) = name else { return Ok(None) };
    let Json(gone): Json<Map<String, Value>> = sqlx::query_scalar(
        "SELECT jsonb_build_object(
             'grants_total', (SELECT count(*) FROM access_grants WHERE principal_id = $1),
             'grants', (SELECT coalesce(jsonb_agg(jsonb_build_object('document_id', g.document_id,
                                                   'right', CASE WHEN g.can_write THEN 'write' ELSE 'read' END) ORDER BY g.document_id), '[]')
                          FROM (SELECT * FROM access_grants WHERE principal_id = $1 ORDER BY document_id LIMIT $2) g),
             'tokens_total', (SELECT count(*) FROM api_tokens WHERE principal_id = $1),
             'tokens', (SELECT coalesce(jsonb_agg(jsonb_build_object('token_id', t.id, 'name', t.name, 'prefix', t.prefix) ORDER BY t.id), '[]')
                          FROM (SELECT * FROM api_tokens WHERE principal_id = $1 ORDER BY id LIMIT $2) t),
             'webhooks_total', (SELECT count(*) FROM webhooks WHERE principal_id = $1),
             'webhooks', (SELECT coalesce(jsonb_agg(jsonb_build_object('webhook_id', w.id, 'url', w.url) ORDER BY w.id), '[]')
                            FROM (SELECT * FROM webhooks WHERE principal_id = $1 ORDER BY id LIMIT $2) w))",
    )
    .bind(id)
    .bind(LISTED)
    .fetch_one(&mut *conn)
    .await?;
    sqlx::query("DELETE FROM principals WHERE id = $1").bind(id).execute(conn).await?;
    Ok(Some((name, gone)))
}
