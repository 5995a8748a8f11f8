//! What the operator of the service sees: tasks with what they wait for, the fleet, held regions, pauses.
mod changes;
mod findings;

use super::{
    documents::add,
    queue,
    scope::{Readable, readable},
    tasks,
    word::Word,
};
pub use changes::*;
use chrono::{DateTime, Utc};
pub use findings::*;
use serde_json::Value;
use sqlx::{PgConnection, types::Json};
use std::collections::{BTreeMap, HashMap};
use svc_actors::path_key;
use svc_client::wire::{
    ActorNode, Blockage, BlockedBy, ErrorType, FrontierStage, LeafRange, ParkedIn, ReservationResponse, SnapshotPart,
    TaskError, TaskLane, TaskQuery, TaskResponse, TaskStatus, TaskTypeState, WorkerResponse, WriteMode,
};
use svc_ids::{DocumentId, RootId, TaskId};
use uuid::Uuid;

#[derive(sqlx_macros::FromRow)]
struct TaskRow {
    id: i64,
    task_type: String,
    scope_document_id: i64,
    root_id: i64,
    status: Word<TaskStatus>,
    r#final: bool,
    write_mode: Word<WriteMode>,
    lane: Word<TaskLane>,
    service_badge: Option<String>,
    priority: i32,
    dependencies: Vec<i64>,
    params: Json<Value>,
    retry_count: i32,
    max_retries: i32,
    retry_after: Option<DateTime<Utc>>,
    error_type: Option<Word<ErrorType>>,
    lease_losses: i32,
    claimed_by: Option<String>,
    heartbeat_at: Option<DateTime<Utc>>,
    cancel_requested_at: Option<DateTime<Utc>>,
    created_at: DateTime<Utc>,
    title: Option<String>,
    reprocess_of: Option<i64>,
    has_error: bool,
    error_code: Option<String>,
    error_message: Option<String>,
    blocked_by: Option<Word<BlockedBy>>,
    at_task: Option<i64>,
    until: Option<DateTime<Utc>>,
    batch_id: Option<i64>,
    batch_provider: Option<String>,
    batched_at: Option<DateTime<Utc>>,
    batched_seconds: Option<f64>,
}

impl From<TaskRow> for TaskResponse {
    fn from(row: TaskRow) -> TaskResponse {
        TaskResponse {
            id: row.id,
            task_type: row.task_type,
            document_id: row.scope_document_id,
            root_id: row.root_id,
            reprocess_of: row.reprocess_of,
            status: row.status.0,
            finished: row.r#final,
            write_mode: row.write_mode.0,
            lane: row.lane.0,
            badge: row.service_badge,
            priority: row.priority,
            dependencies: row.dependencies,
            params: row.params.0,
            retry_count: row.retry_count,
            max_retries: row.max_retries,
            retry_after: row.retry_after,
            error_type: row.error_type.map(|Word(error_type)| error_type),
            lease_losses: row.lease_losses,
            claimed_by: row.claimed_by,
            heartbeat_at: row.heartbeat_at,
            cancel_requested_at: row.cancel_requested_at,
            created_at: row.created_at,
            title: row.title,
            last_error: row.has_error.then_some(TaskError { code: row.error_code, message: row.error_message }),
            blocked_by: row.blocked_by.map(|Word(reason)| Blockage {
                reason,
                task_id: row.at_task,
                until: row.until,
                batch: row.batch_id.zip(row.batched_at).map(|(id, since)| ParkedIn {
                    id,
                    provider: row.batch_provider.unwrap_or_default(),
                    since,
                    seconds: row.batched_seconds.unwrap_or_default(),
                }),
            }),
            running: None,
        }
    }
}

/// Selects tasks, as `t`, from a table or a subquery. Each task is looked up in the view by itself: joined as a whole, a planner without
/// fresh statistics compares every task with every other.
macro_rules! select_tasks {
    ($from:literal) => {
        concat!(
            "SELECT t.id, t.task_type, t.scope_document_id, t.root_id, t.status, t.final, t.write_mode, t.lane, t.service_badge, t.priority, t.dependencies,
                    t.params, t.retry_count, t.max_retries, t.retry_after, t.error_type, t.lease_losses, t.claimed_by, t.heartbeat_at, t.cancel_requested_at,
                    t.created_at, (SELECT d.title FROM documents d WHERE d.id = t.root_id) AS title,
                    (SELECT g.document_id FROM generations g WHERE g.generation_id = t.root_id) AS reprocess_of,
                    e.id IS NOT NULL OR t.put_off_code IS NOT NULL AS has_error,
                    coalesce(t.put_off_code, e.code) AS error_code, coalesce(t.put_off_message, e.message) AS error_message, b.blocked_by, b.at_task, b.until,
                    t.batch_id::bigint AS batch_id, t.batched_at, (SELECT l.provider FROM llm_batches l WHERE l.id = t.batch_id::bigint) AS batch_provider,
                    extract(epoch FROM clock_timestamp() - t.batched_at)::float8 AS batched_seconds
               FROM ",
            $from,
            " t LEFT JOIN LATERAL (SELECT v.blocked_by, v.at_task, v.until FROM task_blockage v WHERE v.task_id = t.id OFFSET 0) b ON true
               LEFT JOIN LATERAL (SELECT id, code, message FROM task_attempts a
                                   WHERE a.task_id = t.id AND a.outcome NOT IN ('completed', 'skipped', 'batched') ORDER BY id DESC LIMIT 1) e ON t.error_type IS NOT NULL"
        )
    };
}

/// One task and what it waits for.
#[tracing::instrument(level = "debug", skip_all, fields(task.id = id.0))]
pub async fn task(conn: &mut PgConnection, id: TaskId) -> sqlx::Result<Option<TaskResponse>> {
    let row: Option<TaskRow> =
        sqlx::query_as(concat!(select_tasks!("task_queue"), " WHERE t.id = $1")).bind(id).fetch_optional(conn).await?;
    Ok(row.map(TaskResponse::from))
}

/// How many files with unfinished tasks under a folder are looked at.
const FILES_UNDER: i64 = 10_000;

/// What lies at or under a document.
#[derive(sqlx_macros::FromRow)]
struct Under {
    /// The keys of the paths of everything there lie from here on, and before the other.
    first: String,
    past: String,
    /// The roots of unfinished tasks that may be there: steps from root to root, so that no other task is read.
    roots: Vec<RootId>,
}

/// What lies at or under a document; `None` if the document does not exist.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = id.0))]
async fn under(conn: &mut PgConnection, id: DocumentId) -> sqlx::Result<Option<Under>> {
    sqlx::query_as(
        "WITH RECURSIVE root(id) AS (
             (SELECT root_id FROM task_queue WHERE NOT final ORDER BY root_id LIMIT 1)
             UNION ALL
             SELECT next.root_id FROM root CROSS JOIN LATERAL (
                 SELECT root_id FROM task_queue WHERE NOT final AND root_id > root.id ORDER BY root_id LIMIT 1) next)
         SELECT array_to_string(f.path || f.id, '/') || '/' AS first, array_to_string(f.path || f.id, '/') || '0' AS past,
                ARRAY(SELECT root.id FROM root JOIN documents d ON d.id = root.id
                       WHERE d.id = f.id OR d.path @> ARRAY[f.id] OR d.id = ANY (f.path) ORDER BY root.id LIMIT $2) AS roots
           FROM documents f WHERE f.id = $1",
    )
    .bind(id)
    .bind(FILES_UNDER)
    .fetch_optional(conn)
    .await
}

/// The types, or the badges, of unfinished tasks that may wait for a reason which lies with a pause or with the fleet; nothing for a reason that
/// the task itself tells. A blank badge stands for the tasks without one. What no worker can run has three lists: types of tasks without a badge, types of
/// others, and the badges of these. What is in the queue is read in steps from one to the next.
async fn unserved(conn: &mut PgConnection, reason: Option<BlockedBy>) -> sqlx::Result<Vec<Vec<String>>> {
    let query = match reason {
        Some(BlockedBy::Paused) => "SELECT task_type FROM paused_task_type",
        Some(BlockedBy::NoHandler) => {
            let (without, types, badges): (Vec<String>, Vec<String>, Vec<String>) = sqlx::query_as(concat!(
                "WITH RECURSIVE ",
                queue::pairs!(),
                ",
                 unserved AS (
                     SELECT p.task_type, p.badge FROM pair p CROSS JOIN fleet f
                      WHERE f.workers > 0 AND NOT is_served(p.task_type, p.badge, f.serves)
                        AND (f.takes_all OR p.badge = ANY (f.badges) OR (p.badge = '' AND f.takes_unbadged)))
                 SELECT ARRAY(SELECT task_type FROM unserved WHERE badge = ''), ARRAY(SELECT DISTINCT task_type FROM unserved WHERE badge <> ''),
                        ARRAY(SELECT DISTINCT badge FROM unserved WHERE badge <> '')"
            ))
            .fetch_one(conn)
            .await?;
            return Ok(vec![without, types, badges]);
        }
        Some(BlockedBy::NoWorkerForBadge) => {
            "WITH RECURSIVE badge(name) AS (
                 (SELECT service_badge FROM task_queue WHERE service_badge IS NOT NULL AND NOT final ORDER BY service_badge LIMIT 1)
                 UNION ALL
                 SELECT next.service_badge FROM badge CROSS JOIN LATERAL (
                     SELECT service_badge FROM task_queue WHERE service_badge IS NOT NULL AND NOT final AND service_badge > badge.name
                      ORDER BY service_badge LIMIT 1) next)
             SELECT name FROM badge CROSS JOIN fleet f WHERE f.workers > 0 AND NOT f.takes_all AND name <> ALL (f.badges)
             UNION ALL SELECT '' FROM fleet f WHERE f.workers > 0 AND NOT f.takes_unbadged"
        }
        _ => return Ok(Vec::new()),
    };
    Ok(vec![sqlx::query_scalar(query).fetch_all(conn).await?])
}

/// The tasks after `after`, by id, that pass the query's filters. Under a document that does not exist there are none.
pub async fn tasks(
    conn: &mut PgConnection,
    query: &TaskQuery,
    after: TaskId,
    limit: u32,
) -> sqlx::Result<Vec<TaskResponse>> {
    let place = match query.under {
        None => None,
        Some(id) => match under(conn, DocumentId(id)).await? {
            Some(place) => Some(place),
            None => return Ok(Vec::new()),
        },
    };
    // Each state in the words of an index, so that no page reads the finished tasks of a week to find the others.
    let of_states: &[&str] = match query.status {
        None | Some(TaskStatus::Pending) => &["NOT t.final"],
        Some(TaskStatus::Batched) => &["t.batch_id IS NOT NULL"],
        Some(TaskStatus::Claimed | TaskStatus::Running) => &["t.claim_token IS NOT NULL"],
        Some(TaskStatus::Failed) => &["t.final AND t.error_type IS NOT NULL", "NOT t.final"],
        Some(TaskStatus::Completed) => &["true"],
    };
    let unserved = unserved(conn, query.blocked_by).await?;
    // Each reason is looked up in an index where there is one; the view says the same of every task that it finds. From $11 on is what nobody serves.
    let of_reasons: &[&str] = match query.blocked_by {
        Some(BlockedBy::Backoff) => {
            &["retry_after IS NOT NULL AND NOT ready AND NOT final AND parked_on IS NULL AND claim_token IS NULL"]
        }
        Some(BlockedBy::Reservation) => &["parked_on IS NOT NULL"],
        Some(BlockedBy::Dependency) => &["unmet_deps > 0 AND NOT final"],
        Some(BlockedBy::LeaseLapsed) => &["claim_token IS NOT NULL"],
        Some(BlockedBy::BatchParked) => &["batch_id IS NOT NULL"],
        Some(BlockedBy::Paused) => {
            &["NOT final AND parked_on < 0", "NOT final AND task_type = ANY ($11) AND coalesce(parked_on, 0) >= 0"]
        }
        Some(BlockedBy::NoHandler) => &[
            "NOT final AND task_type = ANY ($11) AND service_badge IS NULL",
            "NOT final AND task_type = ANY ($12) AND service_badge = ANY ($13)",
        ],
        Some(BlockedBy::NoWorkerForBadge) => {
            &["NOT final AND service_badge = ANY ($11)", "NOT final AND service_badge IS NULL AND '' = ANY ($11)"]
        }
        Some(BlockedBy::NoWorker) => &["NOT final AND (SELECT f.workers = 0 FROM fleet f)"],
        Some(BlockedBy::WorkersBusy) | None => &["true"],
    };
    // Without a reason the page is taken first, so that only its own tasks are looked up.
    let page = |of_state: &str, of_reason: &str| {
        format!(
            "(SELECT * FROM task_queue t WHERE t.id > $1 AND {of_reason} AND {of_state} AND ($2::text IS NULL OR t.status = $2)
                 AND ($3::text IS NULL OR t.task_type = $3) AND ($4::text IS NULL OR t.service_badge = $4) AND ($5::bigint IS NULL OR t.root_id = $5)
                 AND ($8::text IS NULL OR (t.node_path >= $8 AND t.node_path < $9 AND (t.final OR t.root_id = ANY ($10))))
               ORDER BY t.id LIMIT CASE WHEN $6::text IS NULL THEN $7::bigint END)"
        )
    };
    let mut pages: Vec<String> = Vec::new();
    for of_state in of_states {
        pages.extend(of_reasons.iter().map(|of_reason| page(of_state, of_reason)));
    }
    let statement = select_tasks!("({pages})").replace("{pages}", &pages.join(" UNION ALL "))
        + " WHERE $6::text IS NULL OR b.blocked_by = $6 ORDER BY t.id LIMIT $7";
    let mut listed = sqlx::query_as::<_, TaskRow>(sqlx::AssertSqlSafe(statement))
        .bind(after)
        .bind(query.status.map(TaskStatus::as_str))
        .bind(&query.task_type)
        .bind(&query.badge)
        .bind(query.root_id)
        .bind(query.blocked_by.map(BlockedBy::as_str))
        .bind(i64::from(limit))
        .bind(place.as_ref().map(|place| &place.first))
        .bind(place.as_ref().map(|place| &place.past))
        .bind(place.as_ref().map(|place| &place.roots));
    for list in unserved {
        listed = listed.bind(list);
    }
    // Planned with its values: which index is best depends on the filters that are given.
    let rows = listed.persistent(false).fetch_all(conn).await?;
    Ok(rows.into_iter().map(TaskResponse::from).collect())
}

#[derive(sqlx_macros::FromRow)]
struct AlikeRow {
    task_type: String,
    status: Word<TaskStatus>,
    tasks: i64,
    oldest_seconds: f64,
    blocked_by: Option<Word<BlockedBy>>,
}

/// The unfinished tasks at and under a node.
#[derive(Debug)]
pub struct Unfinished {
    /// By task type.
    pub stages: Vec<FrontierStage>,
    /// The age of the oldest task; `None` if there is none.
    pub oldest_seconds: Option<f64>,
    /// How many tasks wait for what.
    pub blocked_by: BTreeMap<BlockedBy, i64>,
}

/// The unfinished tasks at and under a node. `line` has the ids of the node's ancestors, root first, and its own. Equal tasks are counted first, because
/// there may be a hundred thousand.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = line.last()))]
pub async fn frontier(conn: &mut PgConnection, scope: &Readable, line: &[i64]) -> sqlx::Result<Unfinished> {
    let mut arguments = scope.arguments();
    add(&mut arguments, path_key(line));
    let query = concat!(
        "WITH alike AS (
             SELECT task_type, status, service_badge, CASE WHEN claim_token IS NOT NULL THEN lease_until END AS lease_until,
                    sign(parked_on) AS parked, unmet_deps > 0 AS has_unmet,
                    retry_after > clock_timestamp() AS backs_off, count(*) AS tasks, min(created_at) AS oldest
               FROM task_queue t WHERE node_path >= $3 AND node_path < rtrim($3, '/') || '0' AND NOT final
                AND ($1::boolean OR EXISTS (SELECT 1 FROM documents d WHERE d.id = t.scope_document_id AND ",
        readable!(),
        ")) GROUP BY 1, 2, 3, 4, 5, 6, 7)
         SELECT a.task_type, a.status::text AS status, a.tasks, extract(epoch FROM clock_timestamp() - a.oldest)::float8 AS oldest_seconds,
                blocked_by(a.status, a.status IN ('claimed', 'running') AND is_lapsed(a.lease_until), a.has_unmet, a.backs_off,
                           a.parked < 0 OR p.id IS NOT NULL, a.parked IS NOT NULL, a.task_type, a.service_badge,
                           f.workers, f.takes_all, f.takes_unbadged, f.badges, f.serves) AS blocked_by
           FROM alike a CROSS JOIN fleet f LEFT JOIN paused_task_type p ON p.task_type = a.task_type"
    );
    let alike: Vec<AlikeRow> = sqlx::query_as_with(query, arguments).persistent(false).fetch_all(conn).await?;
    let mut stages: BTreeMap<String, FrontierStage> = BTreeMap::new();
    let mut blocked_by: BTreeMap<BlockedBy, i64> = BTreeMap::new();
    let oldest_seconds = alike.iter().map(|row| row.oldest_seconds).reduce(f64::max);
    for row in alike {
        let stage = stages.entry(row.task_type).or_insert_with_key(|task_type| FrontierStage {
            task_type: task_type.clone(),
            pending: 0,
            held: 0,
            waiting_for_retry: 0,
        });
        match row.status.0 {
            TaskStatus::Pending => stage.pending += row.tasks,
            TaskStatus::Failed => stage.waiting_for_retry += row.tasks,
            TaskStatus::Claimed | TaskStatus::Running | TaskStatus::Batched => stage.held += row.tasks,
            TaskStatus::Completed => {}
        }
        if let Some(Word(reason)) = row.blocked_by {
            *blocked_by.entry(reason).or_default() += row.tasks;
        }
    }
    Ok(Unfinished { stages: stages.into_values().collect(), oldest_seconds, blocked_by })
}

#[derive(sqlx_macros::FromRow)]
struct TaskTypeRow {
    task_type: String,
    paused_since: Option<DateTime<Utc>>,
    has_handler: bool,
}

/// The task types that are in the queue, known to a living worker, or paused; or only the named one. Of each type and badge, at
/// most [`queue::COUNTED`] tasks that nobody holds are counted. Inside a transaction, the count uses only indexes.
pub async fn task_types(conn: &mut PgConnection, only: Option<&str>) -> sqlx::Result<Vec<TaskTypeState>> {
    sqlx::query("SELECT set_config('enable_seqscan', 'off', true)").execute(&mut *conn).await?;
    let counts = queue::unfinished(conn).await?;
    sqlx::query("SELECT set_config('enable_seqscan', 'on', true)").execute(&mut *conn).await?;
    let queued: Vec<&str> = counts.iter().map(|count| count.task_type.as_str()).collect();
    let rows: Vec<TaskTypeRow> = sqlx::query_as(
        "WITH known AS (SELECT DISTINCT unnest(task_types) AS task_type FROM workers WHERE beat_at > now() - lease),
         named AS (SELECT unnest($2::text[]) AS task_type UNION SELECT task_type FROM known UNION SELECT task_type FROM paused_task_type UNION SELECT $1 WHERE $1 IS NOT NULL)
         SELECT n.task_type, p.since AS paused_since, k.task_type IS NOT NULL AS has_handler
           FROM named n LEFT JOIN known k USING (task_type) LEFT JOIN paused_task_type p USING (task_type)
          WHERE $1 IS NULL OR n.task_type = $1 ORDER BY 1",
    )
    .bind(only)
    .bind(queued)
    .fetch_all(conn)
    .await?;
    let sum = |task_type: &str, of: fn(TaskStatus) -> bool| {
        let of_type = counts.iter().filter(|count| count.task_type == task_type);
        of_type.filter(|count| of(count.status.0)).map(|count| count.tasks).sum()
    };
    let states = rows.into_iter().map(|row| TaskTypeState {
        pending: sum(&row.task_type, |status| status == TaskStatus::Pending),
        held: sum(&row.task_type, TaskStatus::is_held),
        waiting_for_retry: sum(&row.task_type, |status| status == TaskStatus::Failed),
        task_type: row.task_type,
        paused: row.paused_since.is_some(),
        paused_since: row.paused_since,
        has_handler: row.has_handler,
    });
    Ok(states.collect())
}

#[derive(sqlx_macros::FromRow)]
struct WorkerRow {
    worker_id: String,
    boot_nonce: Uuid,
    version: String,
    badges: Vec<String>,
    strict: bool,
    task_types: Vec<String>,
    started_at: DateTime<Utc>,
    beat_at: DateTime<Utc>,
    lease_seconds: f64,
    alive: bool,
    tasks_held: i64,
    snapshot: Json<Value>,
}

/// The workers that are still on record, or only the named one, each with this part of its snapshot.
pub async fn workers(
    conn: &mut PgConnection,
    part: SnapshotPart,
    only: Option<&str>,
) -> sqlx::Result<Vec<WorkerResponse>> {
    let rows: Vec<WorkerRow> = sqlx::query_as(
        "SELECT w.worker_id, w.boot_nonce, w.version, w.badges, w.strict, w.task_types, w.started_at, w.beat_at,
                extract(epoch FROM w.lease)::float8 AS lease_seconds, w.beat_at > now() - w.lease AS alive,
                (SELECT count(*) FROM task_reservation r WHERE r.worker = w.worker_id) AS tasks_held,
                CASE $1 WHEN 'none' THEN '{}' WHEN 'totals' THEN w.snapshot - 'root' ELSE w.snapshot END AS snapshot
           FROM workers w WHERE $2::text IS NULL OR w.worker_id = $2 ORDER BY w.worker_id",
    )
    .bind(part.as_str())
    .bind(only)
    .fetch_all(&mut *conn)
    .await?;
    let mut workers: Vec<WorkerResponse> = rows
        .into_iter()
        .map(|row| WorkerResponse {
            worker_id: row.worker_id,
            boot_nonce: row.boot_nonce.to_string(),
            version: row.version,
            badges: row.badges,
            strict_badges: row.strict,
            task_types: row.task_types,
            started_at: row.started_at,
            beat_at: row.beat_at,
            lease_seconds: row.lease_seconds,
            alive: row.alive,
            tasks_held: row.tasks_held,
            // A worker of another version may have written it.
            snapshot: serde_json::from_value(row.snapshot.0).ok(),
        })
        .collect();
    name_reprocessed(conn, &mut workers).await?;
    Ok(workers)
}

/// Says of each document in the trees of actors that a reprocess builds which file is reprocessed.
async fn name_reprocessed(conn: &mut PgConnection, workers: &mut [WorkerResponse]) -> sqlx::Result<()> {
    let roots = workers.iter_mut().filter_map(|worker| worker.snapshot.as_mut()?.root.as_mut());
    let mut open: Vec<&mut ActorNode> = roots.collect();
    let mut documents: HashMap<i64, Vec<&mut ActorNode>> = HashMap::new();
    while let Some(node) = open.pop() {
        match node.document_id.filter(|_| node.task_id.is_none()) {
            Some(id) => documents.entry(id).or_default().push(node),
            None => open.extend(node.children.iter_mut()),
        }
    }
    if documents.is_empty() {
        return Ok(());
    }
    let ids: Vec<i64> = documents.keys().copied().collect();
    let generations: Vec<(i64, i64)> = sqlx::query_as(
        "SELECT generation_id, document_id FROM generations WHERE generation_id = ANY($1) AND document_id IS NOT NULL",
    )
    .bind(ids)
    .fetch_all(conn)
    .await?;
    for (generation, file) in generations {
        for node in documents.remove(&generation).into_iter().flatten() {
            node.reprocess_of = Some(file);
        }
    }
    Ok(())
}

/// The actors of these tasks in the last trees of these workers.
pub async fn actors_of(conn: &mut PgConnection, workers: &[&str], tasks: &[i64]) -> sqlx::Result<Vec<ActorNode>> {
    // The root has the documents under it, these a document each, and a document its tasks.
    let nodes: Vec<Json<Value>> = sqlx::query_scalar(
        "SELECT n FROM workers w CROSS JOIN LATERAL jsonb_path_query(w.snapshot, '$.root.children[*].children[*].children[*]') n
          WHERE w.worker_id = ANY($1) AND n->>'task_id' = ANY($2)",
    )
    .bind(workers)
    .bind(tasks.iter().map(i64::to_string).collect::<Vec<_>>())
    .fetch_all(conn)
    .await?;
    // A worker of another version may have written them.
    Ok(nodes.into_iter().filter_map(|Json(node)| serde_json::from_value(node).ok()).collect())
}

#[derive(sqlx_macros::FromRow)]
struct ReservationRow {
    task_id: i64,
    task_type: String,
    scope_document_id: i64,
    root_id: i64,
    write_mode: Word<WriteMode>,
    first_leaf: Option<String>,
    last_leaf: Option<String>,
    worker: String,
    since: DateTime<Utc>,
    tasks_waiting: i64,
}

/// The held regions of tasks with ids above `after`, by that id.
pub async fn reservations(
    conn: &mut PgConnection,
    after: TaskId,
    limit: u32,
) -> sqlx::Result<Vec<ReservationResponse>> {
    let rows: Vec<ReservationRow> = sqlx::query_as(
        "SELECT r.task_id, t.task_type, t.scope_document_id, t.root_id, r.write_mode, t.first_leaf, t.last_leaf, r.worker, r.since,
                (SELECT count(*) FROM task_queue p WHERE p.parked_on = r.task_id) AS tasks_waiting
           FROM task_reservation r JOIN task_queue t ON t.id = r.task_id WHERE r.task_id > $1 ORDER BY r.task_id LIMIT $2",
    )
    .bind(after)
    .bind(i64::from(limit))
    .fetch_all(conn)
    .await?;
    let read = |row: ReservationRow| {
        let leaves = match row.first_leaf.zip(row.last_leaf) {
            Some((first, last)) => Some(LeafRange { first: tasks::path(&first)?, last: tasks::path(&last)? }),
            None => None,
        };
        Ok(ReservationResponse {
            task_id: row.task_id,
            task_type: row.task_type,
            document_id: row.scope_document_id,
            root_id: row.root_id,
            write_mode: row.write_mode.0,
            leaves,
            worker: row.worker,
            since: row.since,
            tasks_waiting: row.tasks_waiting,
        })
    };
    rows.into_iter().map(read).collect()
}
