//! Access roots, the guards that documents bear because of them, and the grants on them.
//!
//! The guard of a document is the nearest access root at or above it, 0 for none. Whoever creates nodes holds
//! [`AdvisoryLock::Access`] shared from its first statement on, before it reads the guard of a parent; whoever changes
//! guards holds it alone. So no node is born with a guard that is being changed. Taken later, after locks of rows, the
//! lock could deadlock.
use super::{
    advisory::AdvisoryLock,
    away::{LOCK_NOT_AVAILABLE, sql_state},
    documents::add,
    places::Place,
    scope::{Readable, readable},
};
use chrono::{DateTime, Utc};
use sqlx::{AssertSqlSafe, PgConnection};
use std::time::Duration;
use svc_client::wire::{AccessRootResponse, GrantResponse, GrantRight};
use svc_ids::{DocumentId, PrincipalId};

/// How long a change of guards waits at first for those who create nodes. Whoever wants to create meanwhile waits behind it, so it then lets the
/// others create for as long as it waited, and waits twice as long the next time.
const SHORTEST_WAIT: Duration = Duration::from_millis(250);
/// How long it waits the last time.
const LONGEST_WAIT: Duration = Duration::from_secs(16);

/// A statement that lets its transaction create nodes and returns true if that is possible at once; false means that it has to wait. It has no
/// parameters, and is the transaction's first statement.
pub(super) fn sharing() -> String {
    format!("SELECT pg_try_advisory_xact_lock_shared({})", AdvisoryLock::Access.key())
}

/// Lets this transaction create nodes, however long that has to wait. Call it as the transaction's first statement.
pub(super) async fn share(conn: &mut PgConnection) -> sqlx::Result<()> {
    sqlx::query("SELECT pg_advisory_xact_lock_shared($1)")
        .bind(AdvisoryLock::Access.key())
        .execute(conn)
        .await
        .map(|_| ())
}

/// Lets this transaction change guards. Call it as the transaction's first statement. It counts the change, by which a standby is known to
/// have replayed it. From here on each statement is planned with its values: a plan for any values would take the index of guards where
/// most guards have few documents, and read all open ones to close a single one.
pub async fn hold_alone(conn: &mut PgConnection) -> sqlx::Result<()> {
    let mut wait = SHORTEST_WAIT;
    while let Err(error) = wait_to_be_alone(conn, wait).await {
        if sql_state(&error) != LOCK_NOT_AVAILABLE || wait >= LONGEST_WAIT {
            return Err(error);
        }
        // The server does the pause, because it would end a transaction that is idle for longer than half a lease.
        let pause = wait.as_secs_f64();
        let statements = format!("ROLLBACK TO SAVEPOINT alone; RELEASE SAVEPOINT alone; SELECT pg_sleep({pause})");
        sqlx::raw_sql(AssertSqlSafe(statements)).execute(&mut *conn).await?;
        wait *= 2;
    }
    sqlx::query("UPDATE access_changes SET changes = changes + 1").execute(conn).await.map(|_| ())
}

/// Waits until nobody creates nodes, but no longer than so. After an error the transaction goes on from its savepoint `alone`.
async fn wait_to_be_alone(conn: &mut PgConnection, wait: Duration) -> sqlx::Result<()> {
    let (wait, key) = (wait.as_millis(), AdvisoryLock::Access.key());
    let statements = format!(
        "SAVEPOINT alone; SET LOCAL lock_timeout = {wait};
         SELECT pg_advisory_xact_lock({key}), set_config('plan_cache_mode', 'force_custom_plan', true);
         SET LOCAL lock_timeout TO DEFAULT; RELEASE SAVEPOINT alone"
    );
    sqlx::raw_sql(AssertSqlSafe(statements)).execute(conn).await.map(|_| ())
}

/// Makes a node that this transaction created, and that has nothing under it, an access root.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = place.id().0))]
pub async fn protect_new(conn: &mut PgConnection, place: &Place) -> sqlx::Result<()> {
    let id = place.id();
    sqlx::query("INSERT INTO access_roots (document_id, above) SELECT id, guard FROM documents WHERE id = $1")
        .bind(id)
        .execute(&mut *conn)
        .await?;
    sqlx::query("UPDATE documents SET guard = id WHERE id = $1").bind(id).execute(conn).await.map(|_| ())
}

/// Makes a document an access root; false if it does not exist or is one already. Call it as the transaction's first
/// statement.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = id.0))]
pub async fn protect(conn: &mut PgConnection, id: DocumentId) -> sqlx::Result<bool> {
    hold_alone(conn).await?;
    protect_held(conn, id).await
}

/// Does the same as [`protect`] in a transaction that called [`hold_alone`].
#[tracing::instrument(level = "debug", skip_all, fields(document.id = id.0))]
pub async fn protect_held(conn: &mut PgConnection, id: DocumentId) -> sqlx::Result<bool> {
    let old: Option<i64> = sqlx::query_scalar(
        "INSERT INTO access_roots (document_id, above) SELECT id, guard FROM documents WHERE id = $1 AND guard <> -1
         ON CONFLICT DO NOTHING RETURNING above",
    )
    .bind(id)
    .fetch_optional(&mut *conn)
    .await?;
    let Some(old) = old else { return Ok(false) };
    sqlx::query(
        "UPDATE access_roots a SET above = $1 FROM documents d
          WHERE a.above = $2 AND d.id = a.document_id AND d.path @> ARRAY[$1::bigint]",
    )
    .bind(id)
    .bind(old)
    .execute(&mut *conn)
    .await?;
    sqlx::query("UPDATE documents SET guard = $1 WHERE guard = $2 AND (id = $1 OR path @> ARRAY[$1::bigint])")
        .bind(id)
        .bind(old)
        .execute(&mut *conn)
        .await?;
    super::triples::follow::into_zones(conn, id).await?;
    super::entities::into_zones(conn, id).await?;
    Ok(true)
}

/// Makes an access root an ordinary document again, as open as what is above it, in a transaction that called
/// [`hold_alone`]. The grants on it go too. False if it was no access root.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = id.0))]
pub async fn unprotect_held(conn: &mut PgConnection, id: DocumentId) -> sqlx::Result<bool> {
    let above: Option<i64> = sqlx::query_scalar("DELETE FROM access_roots WHERE document_id = $1 RETURNING above")
        .bind(id)
        .fetch_optional(&mut *conn)
        .await?;
    let Some(above) = above else { return Ok(false) };
    for change in
        ["UPDATE access_roots SET above = $2 WHERE above = $1", "UPDATE documents SET guard = $2 WHERE guard = $1"]
    {
        sqlx::query(change).bind(id).bind(above).execute(&mut *conn).await?;
    }
    super::triples::follow::into_zones(conn, id).await?;
    super::entities::into_zones(conn, id).await?;
    Ok(true)
}

/// Whether something under a document is beyond the scope, which is the case if an access root under it is.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = id.0))]
pub async fn hides(conn: &mut PgConnection, scope: &Readable, id: DocumentId) -> sqlx::Result<bool> {
    if scope.is_everything() {
        return Ok(false);
    }
    let mut arguments = scope.arguments();
    add(&mut arguments, id);
    sqlx::query_scalar_with(
        concat!(
            "SELECT EXISTS (SELECT 1 FROM access_roots a JOIN documents d ON d.id = a.document_id
                             WHERE d.path @> ARRAY[$3::bigint] AND NOT ",
            readable!(),
            ")"
        ),
        arguments,
    )
    .persistent(false)
    .fetch_one(conn)
    .await
}

/// A document as an access root; `None` if it is none.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = id.0))]
pub async fn root(conn: &mut PgConnection, id: DocumentId) -> sqlx::Result<Option<AccessRootResponse>> {
    let row: Option<(i64, DateTime<Utc>)> =
        sqlx::query_as("SELECT above, created_at FROM access_roots WHERE document_id = $1")
            .bind(id)
            .fetch_optional(conn)
            .await?;
    let of = |(above, created_at): (i64, DateTime<Utc>)| AccessRootResponse {
        document_id: id.0,
        above: Some(above).filter(|above| *above != 0),
        created_at,
    };
    Ok(row.map(of))
}

#[derive(sqlx_macros::FromRow)]
struct GrantRow {
    document_id: i64,
    principal_id: i64,
    principal: String,
    can_write: bool,
    created_at: DateTime<Utc>,
}

impl From<GrantRow> for GrantResponse {
    fn from(row: GrantRow) -> GrantResponse {
        GrantResponse {
            document_id: row.document_id,
            principal_id: row.principal_id,
            principal: row.principal,
            right: if row.can_write { GrantRight::Write } else { GrantRight::Read },
            created_at: row.created_at,
        }
    }
}

/// Grants a principal what is under a root, in place of an earlier grant on it. `None` if there is no such root or no
/// such principal.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = root.0))]
pub async fn grant(
    conn: &mut PgConnection,
    principal: PrincipalId,
    root: DocumentId,
    right: GrantRight,
) -> sqlx::Result<Option<GrantResponse>> {
    let row: Option<GrantRow> = sqlx::query_as(
        "WITH put AS (
             INSERT INTO access_grants (principal_id, document_id, can_write)
             SELECT p.id, a.document_id, $3 FROM principals p, access_roots a WHERE p.id = $1 AND a.document_id = $2
                FOR KEY SHARE
             ON CONFLICT (principal_id, document_id) DO UPDATE SET can_write = excluded.can_write
             RETURNING *)
         SELECT g.document_id, g.principal_id, p.name AS principal, g.can_write, g.created_at
           FROM put g JOIN principals p ON p.id = g.principal_id",
    )
    .bind(principal)
    .bind(root)
    .bind(right == GrantRight::Write)
    .fetch_optional(conn)
    .await?;
    Ok(row.map(GrantResponse::from))
}

/// Whether a principal has a grant to write on this very root.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = root.0))]
pub async fn is_writer(conn: &mut PgConnection, principal: PrincipalId, root: DocumentId) -> sqlx::Result<bool> {
    sqlx::query_scalar(
        "SELECT EXISTS (SELECT 1 FROM access_grants WHERE principal_id = $1 AND document_id = $2 AND can_write)",
    )
    .bind(principal)
    .bind(root)
    .fetch_one(conn)
    .await
}

/// Whether a principal has at least so many grants to write.
pub async fn has_write_grants(conn: &mut PgConnection, principal: PrincipalId, count: u32) -> sqlx::Result<bool> {
    sqlx::query_scalar(
        "SELECT count(*) >= $2 FROM (SELECT FROM access_grants WHERE principal_id = $1 AND can_write LIMIT $2) g",
    )
    .bind(principal)
    .bind(i64::from(count))
    .fetch_one(conn)
    .await
}

/// Takes a grant away; the root stays, and stays closed. False if there was no such grant.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = root.0))]
pub async fn ungrant(conn: &mut PgConnection, principal: PrincipalId, root: DocumentId) -> sqlx::Result<bool> {
    let gone = sqlx::query("DELETE FROM access_grants WHERE principal_id = $1 AND document_id = $2")
        .bind(principal)
        .bind(root)
        .execute(conn)
        .await?;
    Ok(gone.rows_affected() > 0)
}

/// The grants on a document to principals with ids above `after`, by that id.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = document.0))]
pub async fn grants_on(
    conn: &mut PgConnection,
    document: DocumentId,
    after: PrincipalId,
    limit: u32,
) -> sqlx::Result<Vec<GrantResponse>> {
    let rows: Vec<GrantRow> = sqlx::query_as(
        "SELECT g.document_id, g.principal_id, p.name AS principal, g.can_write, g.created_at
           FROM access_grants g JOIN principals p ON p.id = g.principal_id
          WHERE g.document_id = $1 AND g.principal_id > $2 ORDER BY g.principal_id LIMIT $3",
    )
    .bind(document)
    .bind(after)
    .bind(i64::from(limit))
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(GrantResponse::from).collect())
}

/// The grants of a principal on documents with ids above `after`, by that id.
pub async fn grants_of(
    conn: &mut PgConnection,
    principal: PrincipalId,
    after: DocumentId,
    limit: u32,
) -> sqlx::Result<Vec<GrantResponse>> {
    let rows: Vec<GrantRow> = sqlx::query_as(
        "SELECT g.document_id, g.principal_id, p.name AS principal, g.can_write, g.created_at
           FROM access_grants g JOIN principals p ON p.id = g.principal_id
          WHERE g.principal_id = $1 AND g.document_id > $2 ORDER BY g.document_id LIMIT $3",
    )
    .bind(principal)
    .bind(after)
    .bind(i64::from(limit))
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(GrantResponse::from).collect())
}
