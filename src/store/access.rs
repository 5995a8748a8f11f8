//! Access-control roots, the guards that documents bear because of them, and the grants on them.
//!
//! The guard of a document is the nearest root at or above it, 0 for none. Whoever creates nodes holds the ACCESS lock shared from its
//! first statement on, before it reads the guard of a parent; whoever moves guards holds it alone. So no node is born with a guard that
//! is being changed. Taken later, after locks of rows, it could deadlock.
use sqlx::PgConnection;

/// The advisory lock between those who create nodes and those who change guards.
const ACCESS: i64 = 0x7376_6304;

/// Lets this transaction create nodes; its first statement.
pub(super) async fn share(conn: &mut PgConnection) -> sqlx::Result<()> {
    sqlx::query("SELECT pg_advisory_xact_lock_shared($1)").bind(ACCESS).execute(conn).await.map(|_| ())
}

async fn hold_alone(conn: &mut PgConnection) -> sqlx::Result<()> {
    sqlx::query("SELECT pg_advisory_xact_lock($1)").bind(ACCESS).execute(conn).await.map(|_| ())
}

/// Makes a node that this transaction created, and that has nothing under it, an access-control root.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = id))]
pub async fn protect_new(conn: &mut PgConnection, id: i64) -> sqlx::Result<()> {
    sqlx::query("INSERT INTO access_roots (document_id, above) SELECT id, guard FROM documents WHERE id = $1")
        .bind(id)
        .execute(&mut *conn)
        .await?;
    sqlx::query("UPDATE documents SET guard = id WHERE id = $1").bind(id).execute(conn).await.map(|_| ())
}

/// Makes a document an access-control root; the transaction's first statement. False if it does not exist or is one already.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = id))]
pub async fn protect(conn: &mut PgConnection, id: i64) -> sqlx::Result<bool> {
    hold_alone(conn).await?;
    let old: Option<i64> = sqlx::query_scalar(
        "INSERT INTO access_roots (document_id, above) SELECT id, guard FROM documents WHERE id = $1
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
        .execute(conn)
        .await?;
    Ok(true)
}

/// Makes an access-control root an ordinary document again, as open as what is above it; the transaction's first statement. Its grants
/// go with it. False if it was none.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = id))]
pub async fn unprotect(conn: &mut PgConnection, id: i64) -> sqlx::Result<bool> {
    hold_alone(conn).await?;
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
    Ok(true)
}

/// Grants a principal what is under a root, to read, or to write too. The last grant of a pair holds.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = root))]
pub async fn grant(conn: &mut PgConnection, principal: i64, root: i64, can_write: bool) -> sqlx::Result<()> {
    sqlx::query(
        "INSERT INTO access_grants (principal_id, document_id, can_write) VALUES ($1, $2, $3)
         ON CONFLICT (principal_id, document_id) DO UPDATE SET can_write = excluded.can_write",
    )
    .bind(principal)
    .bind(root)
    .bind(can_write)
    .execute(conn)
    .await
    .map(|_| ())
}

/// The guards under a principal's grants, each with whether it may write there. Rights add up downwards.
pub async fn guards(conn: &mut PgConnection, principal: i64) -> sqlx::Result<Vec<(i64, bool)>> {
    sqlx::query_as(
        "WITH RECURSIVE reached(id, can_write) AS (
             SELECT document_id, can_write FROM access_grants WHERE principal_id = $1
             UNION
             SELECT a.document_id, r.can_write FROM reached r JOIN access_roots a ON a.above = r.id)
         SELECT id, bool_or(can_write) FROM reached GROUP BY id",
    )
    .bind(principal)
    .fetch_all(conn)
    .await
}
