//! What the pipeline recorded about a node.
mod names;
#[cfg(test)]
mod tests;

use super::{
    text::{storable, storable_json},
    word::Word,
};
use chrono::{DateTime, Utc};
pub use names::Evidence;
use serde_json::{Map, Value};
use sqlx::{PgConnection, types::Json};
use std::collections::HashMap;
use svc_client::wire::{Attempt, AttemptOutcome, ErrorType};
use svc_ids::{DocumentId, RootId, TaskId};

/// Records a value under a name; null says that a task ran and produced nothing.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = document_id.0))]
pub async fn record(
    conn: &mut PgConnection,
    document_id: DocumentId,
    name: Evidence,
    value: &Value,
) -> sqlx::Result<()> {
    record_as(conn, document_id, name.as_str(), value).await
}

/// Does the same as [`record`] under any name: a task of another crate may use names that [`Evidence`] does not list.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = document_id.0))]
pub(super) async fn record_as(
    conn: &mut PgConnection,
    document_id: DocumentId,
    name: &str,
    value: &Value,
) -> sqlx::Result<()> {
    sqlx::query(
        "INSERT INTO node_evidence (document_id, name, value) VALUES ($1, $2, $3)
         ON CONFLICT (document_id, name) DO UPDATE SET value = EXCLUDED.value, recorded_at = now()",
    )
    .bind(document_id)
    .bind(name)
    .bind(storable_json(value).as_ref())
    .execute(conn)
    .await
    .map(|_| ())
}

/// Removes what was recorded under a name, because it holds no more.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = document_id.0))]
pub async fn remove(conn: &mut PgConnection, document_id: DocumentId, name: Evidence) -> sqlx::Result<()> {
    remove_all(conn, &[document_id], name).await
}

/// Does the same for many nodes.
pub async fn remove_all(conn: &mut PgConnection, documents: &[DocumentId], name: Evidence) -> sqlx::Result<()> {
    let query = "DELETE FROM node_evidence WHERE document_id = ANY($1) AND name = $2";
    sqlx::query(query).bind(documents).bind(name.as_str()).execute(conn).await.map(|_| ())
}

/// Records values of many nodes, as [`record`] does; each node has one value of a name.
pub async fn record_all(conn: &mut PgConnection, values: &[(DocumentId, Evidence, Value)]) -> sqlx::Result<()> {
    sqlx::query(
        "INSERT INTO node_evidence (document_id, name, value)
         SELECT id, name, value FROM unnest($1::bigint[], $2::text[], $3::jsonb[]) AS e(id, name, value)
         ON CONFLICT (document_id, name) DO UPDATE SET value = EXCLUDED.value, recorded_at = now()",
    )
    .bind(values.iter().map(|(id, ..)| *id).collect::<Vec<_>>())
    .bind(values.iter().map(|(_, name, _)| name.as_str()).collect::<Vec<_>>())
    .bind(values.iter().map(|(.., value)| storable_json(value).into_owned()).collect::<Vec<_>>())
    .execute(conn)
    .await
    .map(|_| ())
}

/// Adds to the count of a reason under a name.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = document_id.0))]
pub async fn count(
    conn: &mut PgConnection,
    document_id: DocumentId,
    name: Evidence,
    reason: &str,
    more: usize,
) -> sqlx::Result<()> {
    sqlx::query(
        "INSERT INTO node_evidence AS e (document_id, name, value) VALUES ($1, $2, jsonb_build_object($3::text, $4::bigint))
         ON CONFLICT (document_id, name) DO UPDATE
            SET value = e.value || jsonb_build_object($3::text, coalesce((e.value ->> $3)::bigint, 0) + $4), recorded_at = now()",
    )
    .bind(document_id)
    .bind(name.as_str())
    .bind(reason)
    .bind(i64::try_from(more).unwrap_or(i64::MAX))
    .execute(conn)
    .await
    .map(|_| ())
}

/// Records where a node came from.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = document_id.0))]
pub async fn record_origin(
    conn: &mut PgConnection,
    document_id: DocumentId,
    rule: &str,
    anchor: Option<&Value>,
) -> sqlx::Result<()> {
    sqlx::query(
        "INSERT INTO node_origins (document_id, rule, anchor) VALUES ($1, $2, $3) ON CONFLICT (document_id) DO NOTHING",
    )
    .bind(document_id)
    .bind(rule)
    .bind(anchor)
    .execute(conn)
    .await
    .map(|_| ())
}

/// Replaces the anchor of a node, once more is known.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = document_id.0))]
pub async fn set_anchor(conn: &mut PgConnection, document_id: DocumentId, anchor: &Value) -> sqlx::Result<()> {
    sqlx::query("UPDATE node_origins SET anchor = $2 WHERE document_id = $1")
        .bind(document_id)
        .bind(storable_json(anchor).as_ref())
        .execute(conn)
        .await
        .map(|_| ())
}

/// The rule of a node that no task and no upload made.
const ASSERTED: &str = "asserted";

/// Everything recorded about a node except its attempts, by name.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = document_id.0))]
pub async fn read(conn: &mut PgConnection, document_id: DocumentId) -> sqlx::Result<Map<String, Value>> {
    let rows: Vec<(String, Value)> = sqlx::query_as(
        "SELECT name, value FROM node_evidence WHERE document_id = $1
         UNION ALL SELECT $2, to_jsonb(coalesce((SELECT rule FROM node_origins WHERE document_id = $1), $4))
         UNION ALL SELECT $3, anchor FROM node_origins WHERE document_id = $1 AND anchor IS NOT NULL
         ORDER BY 1",
    )
    .bind(document_id)
    .bind(Evidence::Rule.as_str())
    .bind(Evidence::Anchor.as_str())
    .bind(ASSERTED)
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().collect())
}

/// One value, if the name was recorded.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = document_id.0))]
pub async fn read_one(conn: &mut PgConnection, document_id: DocumentId, name: Evidence) -> sqlx::Result<Option<Value>> {
    sqlx::query_scalar("SELECT value FROM node_evidence WHERE document_id = $1 AND name = $2")
        .bind(document_id)
        .bind(name.as_str())
        .fetch_optional(conn)
        .await
}

/// The values of one node under some names; a name that was not recorded is absent.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = document_id.0))]
pub async fn read_some(
    conn: &mut PgConnection,
    document_id: DocumentId,
    names: &[Evidence],
) -> sqlx::Result<HashMap<String, Value>> {
    let names: Vec<&str> = names.iter().map(|name| name.as_str()).collect();
    let values: Vec<(String, Value)> =
        sqlx::query_as("SELECT name, value FROM node_evidence WHERE document_id = $1 AND name = ANY($2)")
            .bind(document_id)
            .bind(names)
            .fetch_all(conn)
            .await?;
    Ok(values.into_iter().collect())
}

/// The values of many nodes under one name; a node for which it was not recorded is absent.
pub async fn read_each(
    conn: &mut PgConnection,
    documents: &[DocumentId],
    name: Evidence,
) -> sqlx::Result<HashMap<DocumentId, Value>> {
    let values: Vec<(DocumentId, Value)> =
        sqlx::query_as("SELECT document_id, value FROM node_evidence WHERE document_id = ANY($1) AND name = $2")
            .bind(documents)
            .bind(name.as_str())
            .fetch_all(conn)
            .await?;
    Ok(values.into_iter().collect())
}

#[derive(sqlx_macros::FromRow)]
struct AttemptRow {
    id: i64,
    task_id: i64,
    task_type: String,
    attempt: i32,
    outcome: Word<AttemptOutcome>,
    error_type: Option<Word<ErrorType>>,
    code: Option<String>,
    message: Option<String>,
    worker: String,
    started_at: DateTime<Utc>,
    ended_at: DateTime<Utc>,
    param_fingerprint: String,
    detail: Json<Map<String, Value>>,
}

/// The last thousand attempts at a node's tasks, newest last.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = document_id.0))]
pub async fn attempts(conn: &mut PgConnection, document_id: DocumentId) -> sqlx::Result<Vec<Attempt>> {
    let rows: Vec<AttemptRow> = sqlx::query_as(
        "SELECT * FROM (SELECT id, task_id, task_type, attempt, outcome, error_type, code, message, worker, started_at, ended_at, param_fingerprint, detail
                          FROM task_attempts WHERE document_id = $1 ORDER BY id DESC LIMIT 1000) a ORDER BY id",
    )
    .bind(document_id)
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(Attempt::from).collect())
}

/// The attempts at a task of this node that came before the attempt `before`, latest first, each with its id.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = document_id.0, task.id = task_id.0))]
pub async fn attempts_at(
    conn: &mut PgConnection,
    document_id: DocumentId,
    task_id: TaskId,
    before: i64,
    limit: u32,
) -> sqlx::Result<Vec<(i64, Attempt)>> {
    let rows: Vec<AttemptRow> = sqlx::query_as(
        "SELECT id, task_id, task_type, attempt, outcome, error_type, code, message, worker, started_at, ended_at, param_fingerprint, detail
           FROM task_attempts WHERE document_id = $1 AND task_id = $2 AND id < $3 ORDER BY id DESC LIMIT $4",
    )
    .bind(document_id)
    .bind(task_id)
    .bind(before)
    .bind(i64::from(limit))
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|row| (row.id, Attempt::from(row))).collect())
}

impl From<AttemptRow> for Attempt {
    fn from(row: AttemptRow) -> Attempt {
        Attempt {
            task_id: row.task_id,
            task_type: row.task_type,
            attempt: row.attempt,
            outcome: row.outcome.0,
            error_type: row.error_type.map(|Word(error_type)| error_type),
            code: row.code,
            message: row.message,
            worker: Some(row.worker),
            duration_ms: (row.ended_at - row.started_at).num_milliseconds(),
            started_at: row.started_at,
            param_fingerprint: row.param_fingerprint,
            detail: row.detail.0,
        }
    }
}

/// Why nodes under a root of ingestion failed: the ten most frequent reasons with their numbers of tasks, by the last
/// attempt of each task. If more than a thousand nodes failed, a thousand of them are examined.
#[tracing::instrument(level = "debug", skip_all, fields(root.id = root_id.0))]
pub async fn reasons_of_failures(conn: &mut PgConnection, root_id: RootId) -> sqlx::Result<Vec<(String, i64)>> {
    // A leaf fails through a task of a node above it.
    sqlx::query_as(
        "WITH failed AS (SELECT id, path FROM documents WHERE path @> ARRAY[$1::bigint] AND settled = 'failed' LIMIT 1000),
              related AS (SELECT DISTINCT node FROM failed, unnest(path[array_position(path, $1):] || id) AS node),
              last AS (SELECT DISTINCT ON (a.task_id) a.outcome, a.code, a.detail, a.error_type FROM related JOIN task_attempts a ON a.document_id = related.node ORDER BY a.task_id, a.id DESC)
         SELECT coalesce(detail ->> 'limit', code, outcome) AS reason, count(*) FROM last WHERE outcome NOT IN ('completed', 'skipped', 'batched') AND error_type IS DISTINCT FROM 'dependency'
          GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT 10",
    )
    .bind(root_id)
    .fetch_all(conn)
    .await
}

/// The first failed nodes under a root of ingestion, from the top down, without those under another failed one.
#[tracing::instrument(level = "debug", skip_all, fields(root.id = root_id.0))]
pub async fn first_failed(conn: &mut PgConnection, root_id: RootId, most: i64) -> sqlx::Result<Vec<i64>> {
    sqlx::query_scalar(
        "WITH failed AS (SELECT id, path, position FROM documents WHERE path @> ARRAY[$1::bigint] AND settled = 'failed' LIMIT 1000)
         SELECT id FROM failed WHERE NOT EXISTS (SELECT FROM failed above WHERE above.id = ANY(failed.path))
          ORDER BY cardinality(path), position, id LIMIT $2",
    )
    .bind(root_id)
    .bind(most)
    .fetch_all(conn)
    .await
}

/// Stores the text that a reader extracted from a file.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = document_id.0))]
pub async fn store_extraction(
    conn: &mut PgConnection,
    document_id: DocumentId,
    text: &str,
    layout: &Value,
) -> sqlx::Result<()> {
    sqlx::query(
        "INSERT INTO extractions (document_id, text, layout) VALUES ($1, $2, $3)
         ON CONFLICT (document_id) DO UPDATE SET text = EXCLUDED.text, layout = EXCLUDED.layout",
    )
    .bind(document_id)
    .bind(storable(text).as_ref())
    .bind(storable_json(layout).as_ref())
    .execute(conn)
    .await
    .map(|_| ())
}

/// The text of a file, and its pages and headings.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = document_id.0))]
pub async fn extraction(conn: &mut PgConnection, document_id: DocumentId) -> sqlx::Result<Option<(String, Value)>> {
    sqlx::query_as("SELECT text, layout FROM extractions WHERE document_id = $1")
        .bind(document_id)
        .fetch_optional(conn)
        .await
}
