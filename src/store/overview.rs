//! The queue and the fleet at a glance: what ended when, what failed why, and the workers without their actors.
use super::{queue::COUNTED, word::Word};
use chrono::{DateTime, Utc};
use serde_json::Value;
use sqlx::{PgConnection, types::Json};
use svc_client::wire::{ErrorType, FailureChoice, FailureGroup, FailurePlace, LaneUse, MinuteCount, WorkerOverview};
use svc_ids::{DocumentId, RootId, TaskId};

#[derive(sqlx_macros::FromRow)]
struct MinuteRow {
    minute: DateTime<Utc>,
    arrived: i64,
    completed: i64,
    failed: i64,
    lost: i64,
}

/// The tasks that were queued and the attempts that ended in the last `minutes`, by the minute; a minute without either is left out. What only
/// lacks a part, or failed with another task, is not counted as a failure, and what a reprocess notes of tasks that failed before it is no work.
pub async fn throughput(conn: &mut PgConnection, minutes: u32) -> sqlx::Result<Vec<MinuteCount>> {
    let rows: Vec<MinuteRow> = sqlx::query_as(
        "WITH since AS MATERIALIZED (SELECT date_trunc('minute', clock_timestamp()) - make_interval(mins => $1 - 1) AS at),
         ended AS (
             SELECT date_trunc('minute', ended_at) AS minute, count(*) FILTER (WHERE outcome IN ('completed', 'skipped') AND code IS DISTINCT FROM 'reprocessed') AS completed,
                    count(*) FILTER (WHERE outcome = 'failed' AND error_type IS DISTINCT FROM 'dependency') AS failed, count(*) FILTER (WHERE outcome = 'lease_lost') AS lost
               FROM task_attempts WHERE ended_at > (SELECT at FROM since) GROUP BY 1),
         queued AS (
             SELECT date_trunc('minute', created_at) AS minute, count(*) AS arrived FROM task_queue
              WHERE id >= first_task_since((SELECT at FROM since)) AND created_at > (SELECT at FROM since) GROUP BY 1)
         SELECT minute, coalesce(q.arrived, 0) AS arrived, coalesce(e.completed, 0) AS completed, coalesce(e.failed, 0) AS failed, coalesce(e.lost, 0) AS lost
           FROM ended e FULL JOIN queued q USING (minute) ORDER BY 1",
    )
    .bind(i32::try_from(minutes).unwrap_or(i32::MAX))
    .fetch_all(conn)
    .await?;
    let read = |MinuteRow { minute, arrived, completed, failed, lost }| MinuteCount {
        minute,
        arrived,
        completed,
        failed,
        lost,
    };
    Ok(rows.into_iter().map(read).collect())
}

/// How many tasks ended in the last minute, by task type and by worker: they completed, were skipped, or failed for good. A failure that is tried
/// again ends nothing, and what a reprocess notes of tasks that failed before it ended none of them. No task is asked, because a reprocess may have taken it.
pub async fn pace(conn: &mut PgConnection) -> sqlx::Result<Vec<(String, String, i64)>> {
    sqlx::query_as(
        "SELECT a.task_type, a.worker, count(*) FROM task_attempts a
          WHERE a.ended_at > clock_timestamp() - interval '1 minute'
            AND (a.outcome = 'completed' OR (a.outcome = 'skipped' AND a.code IS DISTINCT FROM 'reprocessed') OR (a.outcome = 'failed' AND a.is_last))
          GROUP BY 1, 2",
    )
    .fetch_all(conn)
    .await
}

/// How many attempts are looked at for what is usual.
const USUAL_AMONG: i64 = 100_000;
/// How many attempts of a type count, and how many it takes to call anything usual.
const USUAL_OF: i64 = 1_000;
const USUAL_FROM: i64 = 20;

/// For each task type the milliseconds that 95 of 100 of its latest [`USUAL_OF`] completed attempts took at most. A type with fewer than
/// [`USUAL_FROM`] of them among the latest [`USUAL_AMONG`] attempts is left out.
pub async fn usual(conn: &mut PgConnection) -> sqlx::Result<Vec<(String, i64)>> {
    sqlx::query_as(
        "SELECT task_type, ceil(greatest(percentile_cont(0.95) WITHIN GROUP (ORDER BY took), 1))::bigint
           FROM (SELECT task_type, (extract(epoch FROM ended_at - started_at) * 1000)::float8 AS took,
                        row_number() OVER (PARTITION BY task_type ORDER BY id DESC) AS nth
                   FROM (SELECT id, task_type, started_at, ended_at, outcome FROM task_attempts ORDER BY id DESC LIMIT $1) latest
                  WHERE outcome = 'completed') ended
          WHERE nth <= $2 GROUP BY 1 HAVING count(*) >= $3",
    )
    .bind(USUAL_AMONG)
    .bind(USUAL_OF)
    .bind(USUAL_FROM)
    .fetch_all(conn)
    .await
}

/// The paused task types, each with the time of its pause.
pub async fn paused(conn: &mut PgConnection) -> sqlx::Result<Vec<(String, DateTime<Utc>)>> {
    sqlx::query_as("SELECT task_type, since FROM paused_task_type ORDER BY 1").fetch_all(conn).await
}

/// How many regions are held.
pub async fn regions_held(conn: &mut PgConnection) -> sqlx::Result<i64> {
    sqlx::query_scalar("SELECT count(*) FROM task_reservation").fetch_one(conn).await
}

#[derive(sqlx_macros::FromRow)]
struct WorkerRow {
    worker_id: String,
    version: String,
    badges: Vec<String>,
    alive: bool,
    silent_seconds: f64,
    started_at: DateTime<Utc>,
    tasks_held: i64,
    actors: Option<i64>,
    lanes: Option<Json<Value>>,
}

/// Every worker that is still on record, without its actors: the living by name, then the silent, first what still holds tasks, then the latest.
pub async fn workers(conn: &mut PgConnection) -> sqlx::Result<Vec<WorkerOverview>> {
    let rows: Vec<WorkerRow> = sqlx::query_as(
        "SELECT worker_id, version, badges, beat_at > now() - lease AS alive, started_at,
                extract(epoch FROM clock_timestamp() - beat_at)::float8 AS silent_seconds,
                (SELECT count(*) FROM task_reservation r WHERE r.worker = w.worker_id) AS tasks_held,
                CASE jsonb_typeof(snapshot -> 'actors') WHEN 'number' THEN (snapshot ->> 'actors')::bigint END AS actors,
                snapshot -> 'lanes' AS lanes
           FROM workers w ORDER BY worker_id",
    )
    .fetch_all(conn)
    .await?;
    // A worker of another version may have written the lanes.
    let lanes = |lanes: Option<Json<Value>>| -> Vec<LaneUse> {
        lanes.and_then(|lanes| serde_json::from_value(lanes.0).ok()).unwrap_or_default()
    };
    let read = |row: WorkerRow| WorkerOverview {
        worker_id: row.worker_id,
        version: row.version,
        badges: row.badges,
        alive: row.alive,
        silent_seconds: row.silent_seconds,
        started_at: row.started_at,
        tasks_held: row.tasks_held,
        actors: row.actors.and_then(|actors| u64::try_from(actors).ok()).unwrap_or_default(),
        lanes: lanes(row.lanes),
        ended_a_minute: 0,
    };
    let mut workers: Vec<WorkerOverview> = rows.into_iter().map(read).collect();
    // The living keep their places from one reading to the next.
    workers.sort_by(|one, other| {
        let rank = |worker: &WorkerOverview| (!worker.alive, if worker.alive { 0 } else { -worker.tasks_held });
        let silent = |worker: &WorkerOverview| if worker.alive { 0.0 } else { worker.silent_seconds };
        rank(one).cmp(&rank(other)).then(silent(one).total_cmp(&silent(other)))
    });
    Ok(workers)
}

/// The latest tasks that failed for good, each with the code of its last failed attempt, as `failed(id, task_type, error_type, root_id,
/// scope_document_id, code, message, ended_at)`; $1 is how many of them. With `since`, only those that failed in the last $2 minutes, which
/// the log of attempts knows.
macro_rules! failed_tasks {
    () => {
        "WITH failed AS (
             SELECT t.id, t.task_type, t.error_type, t.root_id, t.scope_document_id, a.code, a.message, a.ended_at
               FROM (SELECT id, task_type, error_type, root_id, scope_document_id FROM task_queue
                      WHERE final AND error_type IS NOT NULL ORDER BY id DESC LIMIT $1) t
               LEFT JOIN LATERAL (SELECT code, message, ended_at FROM task_attempts a
                                   WHERE a.task_id = t.id AND a.outcome NOT IN ('completed', 'skipped', 'batched') ORDER BY id DESC LIMIT 1) a ON true)"
    };
    (since) => {
        "WITH failed AS (
             SELECT t.id, t.task_type, t.error_type, t.root_id, t.scope_document_id, a.code, a.message, a.ended_at
               FROM (SELECT DISTINCT ON (task_id) task_id, code, message, ended_at FROM task_attempts
                      WHERE ended_at > clock_timestamp() - make_interval(mins => $2) AND outcome NOT IN ('completed', 'skipped', 'batched')
                      ORDER BY task_id DESC, id DESC) a
               JOIN task_queue t ON t.id = a.task_id AND t.final AND t.error_type IS NOT NULL ORDER BY t.id DESC LIMIT $1)"
    };
}

#[derive(sqlx_macros::FromRow)]
struct FailureRow {
    task_type: String,
    error_type: Word<ErrorType>,
    code: Option<String>,
    tasks: i64,
    latest: Option<DateTime<Utc>>,
    task_id: i64,
    root_id: i64,
    reprocess_of: Option<i64>,
    title: Option<String>,
    message: Option<String>,
}

/// Counts what failed by type, class and code, after [`failed_tasks`].
macro_rules! by_reason {
    () => {
        ", alike AS (SELECT task_type, error_type, code, count(*) AS tasks, max(ended_at) AS latest, max(id) AS task_id FROM failed GROUP BY 1, 2, 3
                      ORDER BY tasks DESC LIMIT 200)
         SELECT g.task_type, g.error_type, g.code, g.tasks, g.latest, g.task_id, f.root_id, f.message,
                (SELECT title FROM documents d WHERE d.id = f.root_id) AS title,
                (SELECT x.document_id FROM generations x WHERE x.generation_id = f.root_id) AS reprocess_of
           FROM alike g JOIN failed f ON f.id = g.task_id ORDER BY g.tasks DESC, g.task_id DESC"
    };
}

/// How many minutes $2 says.
fn whole(minutes: u32) -> i32 {
    i32::try_from(minutes).unwrap_or(i32::MAX)
}

/// What failed for good, by type, class and code, whenever or in the last `minutes`; the latest [`COUNTED`] tasks are looked at.
pub async fn failures(conn: &mut PgConnection, minutes: Option<u32>) -> sqlx::Result<Vec<FailureGroup>> {
    let query = match minutes {
        None => sqlx::query_as(concat!(failed_tasks!(), by_reason!())).bind(COUNTED),
        Some(minutes) => sqlx::query_as(concat!(failed_tasks!(since), by_reason!())).bind(COUNTED).bind(whole(minutes)),
    };
    let rows: Vec<FailureRow> = query.fetch_all(conn).await?;
    let read = |row: FailureRow| FailureGroup {
        task_type: row.task_type,
        error_type: row.error_type.0,
        code: row.code,
        tasks: row.tasks,
        latest: row.latest,
        sample: FailurePlace {
            task_id: row.task_id,
            root_id: row.root_id,
            reprocess_of: row.reprocess_of,
            title: row.title,
        },
        message: row.message,
    };
    Ok(rows.into_iter().map(read).collect())
}

/// The tasks of a group of failures, latest first.
pub async fn failed_alike(
    conn: &mut PgConnection,
    choice: &FailureChoice,
) -> sqlx::Result<Vec<(TaskId, DocumentId, RootId)>> {
    /// Those of the group.
    macro_rules! of_group {
        ($type:literal, $class:literal, $code:literal) => {
            concat!(
                " SELECT id, scope_document_id, root_id FROM failed WHERE task_type = ",
                $type,
                " AND error_type = ",
                $class,
                " AND code IS NOT DISTINCT FROM ",
                $code,
                " ORDER BY id DESC"
            )
        };
    }
    let query = match choice.minutes {
        None => sqlx::query_as(concat!(failed_tasks!(), of_group!("$2", "$3", "$4"))).bind(COUNTED),
        Some(minutes) => sqlx::query_as(concat!(failed_tasks!(since), of_group!("$3", "$4", "$5")))
            .bind(COUNTED)
            .bind(whole(minutes)),
    };
    query.bind(&choice.task_type).bind(choice.error_type.as_str()).bind(&choice.code).fetch_all(conn).await
}
