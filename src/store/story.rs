//! Files, and what happened to each.
use super::{
    documents::add,
    scope::{Readable, readable},
    word::Word,
};
use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use svc_client::wire::{AttemptOutcome, ErrorType, FileQuery, FileResponse, Settled, StoryEntry};
use svc_ids::{DocumentId, RootId};

/// How many files a search for a name looks at, of those that its caller may read: others must not keep a file from being found.
pub const NAMED: i64 = 10_000;

#[derive(sqlx_macros::FromRow)]
struct FileRow {
    id: i64,
    title: String,
    settled: Word<Settled>,
    format: Option<String>,
    byte_size: i64,
    created_at: DateTime<Utc>,
    nodes_total: Option<i64>,
    nodes_settled: Option<i64>,
}

/// Whether a list wants the file that is `documents d`: $5 and $6 are the state and the part of the title that it has, if they matter.
macro_rules! wanted {
    () => {
        concat!(
            "($5::text IS NULL OR d.settled = $5) AND ($6::text IS NULL OR strpos(lower(d.title), lower($6)) > 0) AND ",
            readable!()
        )
    };
}

/// The rows of some files. In both statements $3 is where the page begins, $4 how long it is, and $7 is [`NAMED`].
macro_rules! rows {
    ($($files:tt)*) => {
        concat!(
            "SELECT f.id, f.title, f.settled, f.format, f.byte_size, f.created_at, n.total AS nodes_total, n.settled AS nodes_settled
               FROM (",
            $($files)*,
            ") f
               LEFT JOIN LATERAL (SELECT sum(total)::bigint AS total, sum(settled)::bigint AS settled FROM frontier_delta x
                                   WHERE $1::boolean AND x.root_id = f.id) n ON true
              ORDER BY f.id DESC"
        )
    };
}

/// The files of who may read everything.
const OF_ALL: &str = rows!(
    "SELECT d.id, d.title, d.settled, d.created_at, b.format, b.byte_size FROM document_blobs b JOIN documents d ON d.id = b.document_id
      WHERE b.is_file AND b.document_id < $3
        AND ($6::text IS NULL OR b.document_id >= coalesce(
                (SELECT l.document_id FROM document_blobs l JOIN documents d ON d.id = l.document_id WHERE l.is_file AND ",
    readable!(),
    "             ORDER BY l.document_id DESC OFFSET $7 LIMIT 1), 0))
        AND ",
    wanted!(),
    " ORDER BY b.document_id DESC LIMIT $4"
);

/// The files of who may read what bears some guards: the latest ones of each guard, and none of others, so that the time does not tell how many there are of
/// these. Rows are compared as pairs and ordered by the guard too, because the planner might otherwise go through the files of all guards where it
/// expects one guard alone. Documents are looked up by their ids alone for the same reason.
const OF_GUARDS: &str = rows!(
    "SELECT d.id, d.title, d.settled, d.created_at, i.format, i.byte_size
       FROM (SELECT b.* FROM (SELECT DISTINCT unnest($2::bigint[]) AS guard) g CROSS JOIN LATERAL (
                 SELECT b.document_id, b.format, b.byte_size FROM document_blobs b
                  WHERE b.is_file AND (b.guard, b.document_id) < (g.guard, $3)
                    AND (b.guard, b.document_id) >= (g.guard, CASE WHEN $6::text IS NULL THEN 0 ELSE coalesce(
                            (SELECT l.document_id FROM (SELECT DISTINCT unnest($2::bigint[]) AS guard) h CROSS JOIN LATERAL (
                                 SELECT m.document_id FROM document_blobs m WHERE m.is_file AND m.guard >= h.guard AND m.guard <= h.guard
                                  ORDER BY m.guard DESC, m.document_id DESC LIMIT $7 + 1) l
                              ORDER BY l.document_id DESC OFFSET $7 LIMIT 1), 0) END)
                    AND (SELECT ",
    wanted!(),
    "                      FROM documents d WHERE d.id = b.document_id)
                  ORDER BY b.guard DESC, b.document_id DESC LIMIT $4) b
              ORDER BY b.document_id DESC LIMIT $4) i
      CROSS JOIN LATERAL (SELECT d.id, d.title, d.settled, d.created_at FROM documents d WHERE d.id = i.document_id OFFSET 0) d"
);

/// The files that come after `after`, latest first. Only who may read everything is told how many nodes they have, because some of these may be
/// hidden.
pub async fn files(
    conn: &mut PgConnection,
    scope: &Readable,
    query: &FileQuery,
    after: DocumentId,
    limit: u32,
) -> sqlx::Result<Vec<FileResponse>> {
    let mut arguments = scope.arguments();
    add(&mut arguments, after);
    add(&mut arguments, i64::from(limit));
    add(&mut arguments, query.state.map(Settled::as_str));
    add(&mut arguments, query.name.clone());
    add(&mut arguments, NAMED);
    let statement = if scope.is_everything() { OF_ALL } else { OF_GUARDS };
    let rows: Vec<FileRow> = sqlx::query_as_with(statement, arguments).persistent(false).fetch_all(conn).await?;
    let read = |row: FileRow| FileResponse {
        id: row.id,
        title: row.title,
        state: row.settled.0,
        format: row.format,
        byte_size: row.byte_size,
        created_at: row.created_at,
        nodes_total: row.nodes_total,
        nodes_settled: row.nodes_settled,
    };
    Ok(rows.into_iter().map(read).collect())
}

#[derive(sqlx_macros::FromRow)]
struct EntryRow {
    task_type: String,
    outcome: Option<Word<AttemptOutcome>>,
    attempt: i32,
    error_type: Option<Word<ErrorType>>,
    code: Option<String>,
    message: Option<String>,
    attempts: i64,
    for_good: i64,
    task_id: i64,
    queued_at: Option<DateTime<Utc>>,
    started_at: DateTime<Utc>,
    ended_at: Option<DateTime<Utc>>,
    seconds: f64,
    worker: Option<String>,
    workers: i64,
    place: i64,
}

/// What happened at and under a root: its attempts, and those that run, folded where they are alike, in the order in which they began: at most
/// `limit` before the place `before`, the latest of these, with the place of the first. Places are counted from 1.
/// An attempt waited since its task was created, or since the attempt before it ended. The last one of a task failed for good if that did, also once
/// its row was purged. Of attempts that are alike one that did speaks for the others.
#[tracing::instrument(level = "debug", skip_all, fields(root.id = root_id.0))]
pub async fn story(
    conn: &mut PgConnection,
    scope: &Readable,
    root_id: RootId,
    before: i64,
    limit: u32,
) -> sqlx::Result<(Vec<StoryEntry>, i64)> {
    let mut arguments = scope.arguments();
    add(&mut arguments, root_id);
    add(&mut arguments, i64::from(limit));
    add(&mut arguments, before);
    // Only nodes with tasks or children have a row of ingestion, and they are few beside the leaves.
    let rows: Vec<EntryRow> = sqlx::query_as_with(
        concat!(
            "WITH node AS MATERIALIZED (
                 SELECT d.id FROM (SELECT document_id AS id FROM ingest_node WHERE root_id = $3 UNION SELECT $3) n
                   JOIN documents d ON d.id = n.id WHERE ",
            readable!(),
            "),
             attempt AS (
                 SELECT a.task_id, a.task_type, a.outcome, a.attempt, a.error_type, a.code, a.message, a.worker, a.started_at, a.ended_at,
                        coalesce(lag(a.ended_at) OVER at_task, t.created_at) AS queued_at,
                        a.outcome = 'failed' AND lead(a.id) OVER at_task IS NULL AND coalesce(t.final AND t.status = 'failed', true) AS is_for_good
                   FROM node JOIN task_attempts a ON a.document_id = node.id LEFT JOIN task_queue t ON t.id = a.task_id
                 WINDOW at_task AS (PARTITION BY a.task_id ORDER BY a.id)
                 UNION ALL
                 SELECT t.id, t.task_type, NULL, t.retry_count + t.lapses + 1, NULL, NULL, NULL, t.claimed_by, r.since, NULL, t.created_at, false
                   FROM task_queue t JOIN node ON node.id = t.scope_document_id JOIN task_reservation r ON r.task_id = t.id
                  WHERE NOT t.final)
             SELECT * FROM (
             SELECT task_type, outcome, attempt, error_type, code, (array_agg(message ORDER BY is_for_good DESC, started_at DESC))[1] AS message,
                    count(*) AS attempts, count(*) FILTER (WHERE is_for_good) AS for_good, (array_agg(task_id ORDER BY is_for_good DESC, started_at DESC))[1] AS task_id, min(queued_at) AS queued_at,
                    min(started_at) AS started_at, max(ended_at) AS ended_at,
                    coalesce(avg(extract(epoch FROM coalesce(ended_at, clock_timestamp()) - started_at)), 0)::float8 AS seconds,
                    (array_agg(nullif(worker, '') ORDER BY started_at DESC))[1] AS worker, count(DISTINCT worker) AS workers,
                    row_number() OVER (ORDER BY min(started_at), task_type, outcome, attempt, error_type, code) AS place
               FROM attempt GROUP BY 1, 2, 3, 4, 5) story
              WHERE place < $5 ORDER BY place DESC LIMIT $4"
        ),
        arguments,
    )
    .persistent(false)
    .fetch_all(conn)
    .await?;
    let read = |row: EntryRow| StoryEntry {
        task_type: row.task_type,
        outcome: row.outcome.map(|Word(outcome)| outcome),
        attempt: row.attempt,
        error_type: row.error_type.map(|Word(error_type)| error_type),
        code: row.code,
        message: row.message,
        attempts: row.attempts,
        for_good: row.for_good,
        task_id: row.task_id,
        queued_at: row.queued_at,
        started_at: row.started_at,
        ended_at: row.ended_at,
        seconds: row.seconds,
        worker: row.worker,
        workers: row.workers,
    };
    let first = rows.last().map_or(1, |row| row.place);
    Ok((rows.into_iter().rev().map(read).collect(), first))
}

/// Whether one of the attempts after an id, up to another, was at a document that the scope covers, or at what a reprocess builds for one.
pub async fn has_attempts(conn: &mut PgConnection, scope: &Readable, after: i64, until: i64) -> sqlx::Result<bool> {
    let mut arguments = scope.arguments();
    add(&mut arguments, after);
    add(&mut arguments, until);
    let query = concat!(
        "SELECT EXISTS (SELECT 1 FROM task_attempts a JOIN documents n ON n.id = a.document_id
               LEFT JOIN generations g ON n.guard = -1 AND g.generation_id = coalesce(n.path[1], n.id)
               JOIN documents d ON d.id = coalesce(g.document_id, n.id)
              WHERE a.id > $3 AND a.id <= $4 AND ",
        readable!(),
        ")"
    );
    sqlx::query_scalar_with(query, arguments).persistent(false).fetch_one(conn).await
}
