//! Batches of requests for a provider of language models, and the tasks that wait in them. A task is `batched` from the moment in which its
//! requests are in a batch that is still open, so that no crash loses it, until the batch has ended and a worker takes it up again.
mod answered;
mod refused;
mod results;
mod steps;

use super::{
    advisory::AdvisoryLock,
    interval::interval,
    nodes::braces,
    places::Place,
    tasks::{Claimer, fingerprint, read_claimed},
    text::storable,
    word::Word,
};
pub use answered::{ended, lock, sources, waiting, with_errors};
use chrono::{DateTime, Utc};
pub use refused::{refuse, refused, sent};
pub use results::{BatchCounts, BatchResult, Said, Unanswered, end, forget_said, record, said};
use sqlx::{PgConnection, PgPool};
use std::{
    collections::{BTreeMap, HashMap, HashSet},
    time::Duration,
};
pub use steps::{BatchRow, not_sent, owed, put_off, submitted, submitting};
use svc_actors::{Claimed, Grant, WriteMode, path_key};
use svc_client::wire::{LlmBatchOutcome, LlmBatchResponse, LlmBatchState};
use svc_ids::{DocumentId, TaskId};
use uuid::Uuid;

/// A question of a task, as a provider is asked.
#[derive(Clone, Debug)]
pub struct Request {
    pub custom_id: String,
    /// The hash of the question, see the table llm_answers.
    pub asked: Vec<u8>,
    /// The documents whose texts are the question, in its order; empty where it is not of whole texts.
    pub sources: Vec<DocumentId>,
    /// What is sent.
    pub line: String,
}

impl Request {
    fn source_ids(&self) -> Vec<i64> {
        self.sources.iter().map(|source| source.0).collect()
    }
}

/// What a provider takes in one batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchCaps {
    pub requests: i64,
    pub bytes: i64,
}

/// A task that is to wait for a batch.
#[derive(Clone, Debug)]
pub struct Parking {
    pub grant: Grant,
    /// All requests of a batch are for one model.
    pub model: String,
    pub requests: Vec<Request>,
    /// The documents that it asks of, each with the hash of its text.
    pub sources: Vec<(DocumentId, String)>,
}

impl Parking {
    fn bytes(&self) -> i64 {
        self.requests.iter().map(|request| i64::try_from(request.line.len()).unwrap_or(i64::MAX / 2) + 1).sum()
    }

    fn count(&self) -> i64 {
        i64::try_from(self.requests.len()).unwrap_or(i64::MAX)
    }
}

/// The tasks by which a text is found as it is now. In a batch, another task of the text would keep them waiting for up to a day.
pub const SEARCHED: [&str; 3] = ["embed", "embed:titles", super::model_moves::TASK];

/// Those of them that embed a settled text anew. No container waits for one.
pub const SEARCHED_ANEW: [&str; 2] = ["embed:titles", super::model_moves::TASK];

/// How many tasks give way to these in one transaction.
const GIVING_WAY: i64 = 1_000;

/// What became of a task that was to wait for a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Parked {
    /// It waits.
    Waits,
    /// One of the documents that it asks of is another by now.
    Changed,
    /// One of the [`SEARCHED`] waits for its document, and goes first.
    Awaited,
    /// The token is stale, or a cancel was requested.
    Lost,
    /// Somebody works in the tree of its document. This only happens to several at once; one alone waits for them.
    Later,
}

/// Puts running tasks with their requests into the open batch of their model. A batch that they would make too large is closed, and they begin the
/// next one. Returns what became of each; the caller commits.
pub async fn park(
    conn: &mut PgConnection,
    provider: &str,
    caps: BatchCaps,
    tasks: &[Parking],
) -> sqlx::Result<Vec<Parked>> {
    // Who deletes or moves something in a tree waits, and then takes its tasks out of their batches, or was here before this looks.
    let free = match tasks {
        [task] => {
            super::locks::tree(&mut *conn, task.grant.document_id).await?;
            vec![true]
        }
        _ => {
            let documents: Vec<DocumentId> = tasks.iter().map(|task| task.grant.document_id).collect();
            super::locks::try_trees(&mut *conn, &documents).await?
        }
    };
    let claims: Vec<(DocumentId, &[(DocumentId, String)])> =
        tasks.iter().map(|task| (task.grant.document_id, task.sources.as_slice())).collect();
    let unchanged = super::raptor::all_unchanged(&mut *conn, &claims).await?;
    let (claimed, awaited) = (claimed(conn, tasks).await?, awaited(conn, tasks).await?);
    let became: Vec<Parked> = (tasks.iter().zip(free).zip(unchanged))
        .map(|((task, is_free), is_unchanged)| match (is_free, is_unchanged) {
            (false, _) => Parked::Later,
            (true, false) => Parked::Changed,
            (true, true) if !claimed.contains(&task.grant.task_id) => Parked::Lost,
            (true, true) if awaited.contains(&task.grant.document_id) => Parked::Awaited,
            (true, true) => Parked::Waits,
        })
        .collect();
    let mut models: BTreeMap<&str, Vec<&Parking>> = BTreeMap::new();
    for (task, _) in tasks.iter().zip(&became).filter(|(_, became)| **became == Parked::Waits) {
        models.entry(&task.model).or_default().push(task);
    }
    for (model, waiting) in models {
        let mut rest = waiting.as_slice();
        while let Some(first) = rest.first() {
            let (batch_id, mut requests, mut bytes) = open_for(conn, (provider, model), caps, first).await?;
            // The first one has room, however large it is.
            let fits = |(at, task): &(usize, &&Parking)| {
                (requests, bytes) = (requests + task.count(), bytes + task.bytes());
                *at == 0 || (requests <= caps.requests && bytes <= caps.bytes)
            };
            let fitting = rest.iter().enumerate().take_while(fits).count();
            let (part, after) = rest.split_at(fitting);
            put_into(conn, provider, batch_id, part).await?;
            rest = after;
        }
    }
    Ok(became)
}

/// Locks the tasks that are still claimed by these tokens and of which nobody wants the end.
async fn claimed(conn: &mut PgConnection, tasks: &[Parking]) -> sqlx::Result<HashSet<TaskId>> {
    let (ids, tokens): (Vec<TaskId>, Vec<Uuid>) =
        tasks.iter().map(|task| (task.grant.task_id, task.grant.token)).unzip();
    let claimed: Vec<TaskId> = sqlx::query_scalar(
        "SELECT t.id FROM task_queue t
          WHERE t.id = ANY($1) AND (t.id, t.claim_token) IN (SELECT * FROM unnest($1::bigint[], $2::uuid[]))
            AND t.status IN ('claimed', 'running') AND t.cancel_requested_at IS NULL
          ORDER BY t.id FOR NO KEY UPDATE OF t",
    )
    .bind(ids)
    .bind(tokens)
    .fetch_all(conn)
    .await?;
    Ok(claimed.into_iter().collect())
}

/// The documents of these tasks that one of the [`SEARCHED`] waits for. One of a type that somebody has paused waits for that one, and one of
/// single leaves does not need the document's own region.
async fn awaited(conn: &mut PgConnection, tasks: &[Parking]) -> sqlx::Result<HashSet<DocumentId>> {
    let documents: Vec<DocumentId> = tasks.iter().map(|task| task.grant.document_id).collect();
    let awaited: Vec<DocumentId> = sqlx::query_scalar(
        "SELECT DISTINCT t.scope_document_id FROM task_queue t
          WHERE t.scope_document_id = ANY($1) AND t.task_type = ANY($2) AND NOT t.final AND t.claim_token IS NULL AND t.first_leaf IS NULL
            AND NOT EXISTS (SELECT 1 FROM paused_task_type p WHERE p.task_type = t.task_type)",
    )
    .bind(documents)
    .bind(&SEARCHED[..])
    .fetch_all(conn)
    .await?;
    Ok(awaited.into_iter().collect())
}

/// The open batch, with its requests and bytes. One that has no room for the task is closed first.
async fn open_for(
    conn: &mut PgConnection,
    (provider, model): (&str, &str),
    caps: BatchCaps,
    task: &Parking,
) -> sqlx::Result<(i64, i64, i64)> {
    loop {
        let open: Option<(i64, i32, i64)> = sqlx::query_as(
            "SELECT id, requests, bytes FROM llm_batches WHERE provider = $1 AND model = $2 AND state = 'open' FOR UPDATE",
        )
        .bind(provider)
        .bind(model)
        .fetch_optional(&mut *conn)
        .await?;
        match open {
            None => {
                sqlx::query("INSERT INTO llm_batches (provider, model) VALUES ($1, $2) ON CONFLICT DO NOTHING")
                    .bind(provider)
                    .bind(model)
                    .execute(&mut *conn)
                    .await?;
            }
            Some((id, held, size))
                if held > 0 && (i64::from(held) + task.count() > caps.requests || size + task.bytes() > caps.bytes) =>
            {
                close(conn, id).await?;
            }
            Some((id, held, size)) => return Ok((id, held.into(), size)),
        }
    }
}

/// Puts tasks into a batch; its row and theirs are locked.
async fn put_into(conn: &mut PgConnection, provider: &str, batch_id: i64, tasks: &[&Parking]) -> sqlx::Result<()> {
    sqlx::query(
        "UPDATE task_queue SET status = 'batched', batch_id = $2::text, batched_at = clock_timestamp(), claimed_by = NULL, heartbeat_at = NULL,
                error_type = NULL, put_off_code = NULL, put_off_message = NULL
          WHERE id = ANY($1)",
    )
    .bind(tasks.iter().map(|task| task.grant.task_id).collect::<Vec<_>>())
    .bind(batch_id)
    .execute(&mut *conn)
    .await?;
    let each = || tasks.iter().flat_map(|task| task.requests.iter().map(|request| (&task.grant, request)));
    sqlx::query(
        "WITH held AS (UPDATE llm_batches SET requests = requests + $7, bytes = bytes + $8 WHERE id = $1)
         INSERT INTO llm_batch_requests (batch_id, custom_id, task_id, document_id, asked, sources, line)
         SELECT $1, r.custom_id, r.task_id, r.document_id, r.asked, r.sources::bigint[], r.line
           FROM unnest($2::text[], $3::bigint[], $4::bigint[], $5::bytea[], $6::text[], $9::text[])
                AS r(custom_id, task_id, document_id, asked, line, sources)
          ORDER BY r.custom_id
         ON CONFLICT (batch_id, custom_id) DO UPDATE SET asked = excluded.asked, sources = excluded.sources, line = excluded.line, is_dropped = false",
    )
    .bind(batch_id)
    .bind(each().map(|(_, request)| request.custom_id.as_str()).collect::<Vec<_>>())
    .bind(each().map(|(grant, _)| grant.task_id).collect::<Vec<_>>())
    .bind(each().map(|(grant, _)| grant.document_id).collect::<Vec<_>>())
    .bind(each().map(|(_, request)| request.asked.as_slice()).collect::<Vec<_>>())
    .bind(each().map(|(_, request)| request.line.as_str()).collect::<Vec<_>>())
    .bind(i32::try_from(tasks.iter().map(|task| task.requests.len()).sum::<usize>()).unwrap_or(i32::MAX))
    .bind(tasks.iter().map(|task| task.bytes()).sum::<i64>())
    .bind(each().map(|(_, request)| braces(&request.source_ids())).collect::<Vec<_>>())
    .execute(&mut *conn)
    .await?;
    sqlx::query(
        "INSERT INTO task_attempts (document_id, task_id, task_type, attempt, outcome, worker, started_at, param_fingerprint, detail)
         SELECT p.document_id, p.task_id, p.task_type, p.attempt, 'batched', r.worker, r.since, p.fingerprint,
                jsonb_build_object('batch_id', $7::bigint, 'provider', $8::text, 'requests', p.requests)
           FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::integer[], $5::text[], $6::bigint[])
                AS p(document_id, task_id, task_type, attempt, fingerprint, requests)
           JOIN task_reservation r ON r.task_id = p.task_id",
    )
    .bind(tasks.iter().map(|task| task.grant.document_id).collect::<Vec<_>>())
    .bind(tasks.iter().map(|task| task.grant.task_id).collect::<Vec<_>>())
    .bind(tasks.iter().map(|task| task.grant.task_type.as_str()).collect::<Vec<_>>())
    .bind(tasks.iter().map(|task| task.grant.attempt).collect::<Vec<_>>())
    .bind(tasks.iter().map(|task| fingerprint(&task.grant.params)).collect::<Vec<_>>())
    .bind(tasks.iter().map(|task| task.count()).collect::<Vec<_>>())
    .bind(batch_id)
    .bind(provider)
    .execute(conn)
    .await
    .map(|_| ())
}

/// Claims tasks whose batch has ended. They keep their regions. An array of their ids, of which a planner expects few, has their rows found by the
/// index also where the plan does not know how many are wanted. A range of one batch has the order of the index of batches; where a batch is
/// equal to a value, a planner may walk along the ids of all tasks instead, past all that ended before.
pub async fn resume(conn: &mut PgConnection, claimer: &Claimer, provider: &str, most: usize) -> sqlx::Result<Claimed> {
    let rows = sqlx::query(
        "WITH waiting AS MATERIALIZED (
             SELECT t.id FROM llm_batches b CROSS JOIN LATERAL (
                    SELECT q.id FROM task_queue q WHERE q.batch_id >= b.id::text AND q.batch_id <= b.id::text AND q.status = 'batched'
                     ORDER BY q.batch_id, q.id LIMIT $4
                       FOR NO KEY UPDATE SKIP LOCKED) t
              WHERE b.provider = $3 AND b.state = 'ended' AND NOT b.is_done LIMIT $4),
         taken AS (
             UPDATE task_queue t SET status = 'claimed', claimed_by = $1, heartbeat_at = clock_timestamp(), lease_until = clock_timestamp() + $2,
                    claim_token = gen_random_uuid(), batch_id = NULL, batched_at = NULL
              WHERE t.id = ANY (ARRAY(SELECT id FROM waiting))
             RETURNING t.id, t.task_type, t.scope_document_id, t.root_id, t.write_mode, t.params, t.lane, t.node_path, t.first_leaf, t.last_leaf, t.retry_count,
                    t.lapses, t.lease_losses, t.claim_token, t.priority, t.created_at, t.traceparent),
         held AS (
             UPDATE task_reservation r SET claim_token = taken.claim_token, worker = $1, since = clock_timestamp() FROM taken WHERE r.task_id = taken.id)
         SELECT * FROM taken",
    )
    .bind(&claimer.worker_id)
    .bind(interval(claimer.lease))
    .bind(provider)
    .bind(i64::try_from(most).unwrap_or(i64::MAX))
    .fetch_all(conn)
    .await?;
    read_claimed(&rows)
}

/// Takes tasks out of their batches: those of documents at or under a place, and those of the containers above. They wait in the queue again, to
/// ask of what is there then; a request that was not sent yet never is, and an answer that still comes is dropped.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = place.id().0))]
pub async fn leave(conn: &mut PgConnection, place: &Place, mode: WriteMode) -> sqlx::Result<()> {
    if !any(conn).await? {
        return Ok(());
    }
    let tasks: Vec<TaskId> = sqlx::query_scalar(
        "SELECT t.id FROM task_reservation r JOIN task_queue t ON t.id = r.task_id
          WHERE t.batch_id IS NOT NULL AND r.prange && region_paths($1, $3, NULL, NULL) AND r.drange && region_depths($2, $3, NULL)",
    )
    .bind(path_key(&place.children_path()))
    .bind(i32::try_from(place.path().len()).unwrap_or(i32::MAX))
    .bind(mode.as_str())
    .fetch_all(&mut *conn)
    .await?;
    put_back(conn, &tasks).await
}

/// The same for the tasks of these documents.
pub async fn leave_of(conn: &mut PgConnection, documents: &[i64]) -> sqlx::Result<()> {
    if !any(conn).await? {
        return Ok(());
    }
    let tasks: Vec<TaskId> = sqlx::query_scalar(
        "SELECT id FROM task_queue WHERE scope_document_id = ANY($1) AND batch_id IS NOT NULL ORDER BY id",
    )
    .bind(documents)
    .fetch_all(&mut *conn)
    .await?;
    put_back(conn, &tasks).await
}

/// Takes tasks out of their batches that keep one of the [`SEARCHED`] of the same document waiting: that one was queued while the other entered its batch,
/// and neither saw the other. Returns how many.
pub async fn give_way(conn: &mut PgConnection) -> sqlx::Result<usize> {
    if !any(conn).await? {
        return Ok(0);
    }
    // A task of another document may enter its batch again before the one that waits, so it stays.
    let tasks: Vec<TaskId> = sqlx::query_scalar(
        "SELECT DISTINCT b.id FROM task_queue t JOIN task_queue b ON b.id = t.parked_on AND b.scope_document_id = t.scope_document_id
          WHERE t.parked_on > 0 AND t.task_type = ANY($1) AND b.batch_id IS NOT NULL
            AND NOT EXISTS (SELECT 1 FROM paused_task_type p WHERE p.task_type = t.task_type)
          ORDER BY b.id LIMIT $2",
    )
    .bind(&SEARCHED[..])
    .bind(GIVING_WAY)
    .fetch_all(&mut *conn)
    .await?;
    put_back(conn, &tasks).await?;
    Ok(tasks.len())
}

/// Whether any task is in a batch, as hardly ever.
async fn any(conn: &mut PgConnection) -> sqlx::Result<bool> {
    sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM task_queue WHERE batch_id IS NOT NULL)").fetch_one(conn).await
}

async fn put_back(conn: &mut PgConnection, tasks: &[TaskId]) -> sqlx::Result<()> {
    if tasks.is_empty() {
        return Ok(());
    }
    sqlx::query(
        "WITH left_ AS (
             UPDATE task_queue SET status = 'pending', ready = true, parked_on = NULL, claim_token = NULL, claimed_by = NULL, batch_id = NULL, batched_at = NULL
              WHERE id IN (SELECT id FROM task_queue WHERE id = ANY($1) ORDER BY id FOR NO KEY UPDATE) AND status = 'batched' RETURNING id),
         freed AS (DELETE FROM task_reservation r USING left_ WHERE r.task_id = left_.id),
         asked AS (
             SELECT batch_id, custom_id FROM llm_batch_requests WHERE task_id IN (SELECT id FROM left_) AND NOT is_over ORDER BY batch_id, custom_id FOR UPDATE)
         UPDATE llm_batch_requests q SET is_dropped = true, line = NULL FROM asked a WHERE q.batch_id = a.batch_id AND q.custom_id = a.custom_id",
    )
    .bind(tasks)
    .execute(conn)
    .await
    .map(|_| ())
}

/// A connection of its own that alone may move the batches of a provider until it is closed; `None` if another has that right.
pub async fn lead(pool: &PgPool, provider: i64) -> sqlx::Result<Option<PgConnection>> {
    let mut conn = pool.acquire().await?;
    let ours: bool = sqlx::query_scalar("SELECT pg_try_advisory_lock($1)")
        .bind(AdvisoryLock::LlmBatches.key() + provider)
        .fetch_one(&mut *conn)
        .await?;
    // The lock belongs to the session, so the connection never goes back to the pool.
    Ok(ours.then(|| conn.detach()))
}

/// Closes the batches of a provider that have been open for `wait`.
pub async fn close_due(conn: &mut PgConnection, provider: &str, wait: Duration) -> sqlx::Result<u64> {
    sqlx::query(
        "UPDATE llm_batches SET state = 'closed' WHERE provider = $1 AND state = 'open' AND opened_at <= clock_timestamp() - $2",
    )
    .bind(provider)
    .bind(interval(wait))
    .execute(conn)
    .await
    .map(|done| done.rows_affected())
}

async fn close(conn: &mut PgConnection, id: i64) -> sqlx::Result<()> {
    sqlx::query("UPDATE llm_batches SET state = 'closed' WHERE id = $1 AND state = 'open'")
        .bind(id)
        .execute(conn)
        .await
        .map(|_| ())
}

/// Notes what went wrong with a batch.
pub async fn note(conn: &mut PgConnection, id: i64, problem: &str) -> sqlx::Result<()> {
    sqlx::query(
        "UPDATE llm_batches SET problem = left($2, 2000) WHERE id = $1 AND problem IS DISTINCT FROM left($2, 2000)",
    )
    .bind(id)
    .bind(storable(problem).as_ref())
    .execute(conn)
    .await
    .map(|_| ())
}

/// Requests the end of a batch that has not ended; returns false if there is none with this number.
pub async fn cancel(conn: &mut PgConnection, id: i64) -> sqlx::Result<bool> {
    sqlx::query(
        "UPDATE llm_batches SET cancel_requested_at = coalesce(cancel_requested_at, clock_timestamp()) WHERE id = $1 AND state <> 'ended'",
    )
    .bind(id)
    .execute(conn)
    .await
    .map(|done| done.rows_affected() == 1)
}

/// The batches that have not ended.
pub async fn not_ended(conn: &mut PgConnection) -> sqlx::Result<Vec<i64>> {
    sqlx::query_scalar("SELECT id FROM llm_batches WHERE NOT is_done AND state <> 'ended' ORDER BY id")
        .fetch_all(conn)
        .await
}

/// The lines of a batch after the one with this id, as many as have about four megabytes.
pub async fn lines(conn: &mut PgConnection, id: i64, after: &str) -> sqlx::Result<Vec<(String, String)>> {
    sqlx::query_as(
        "SELECT custom_id, line FROM (
             SELECT custom_id, line, sum(octet_length(line)) OVER (ORDER BY custom_id) AS size FROM (
                    SELECT custom_id, line FROM llm_batch_requests WHERE batch_id = $1 AND custom_id > $2 AND line IS NOT NULL AND NOT is_dropped
                     ORDER BY custom_id LIMIT 1000) page) sized
          WHERE size <= 4194304 OR custom_id = (SELECT min(custom_id) FROM llm_batch_requests WHERE batch_id = $1 AND custom_id > $2 AND line IS NOT NULL AND NOT is_dropped)
          ORDER BY custom_id",
    )
    .bind(id)
    .bind(after)
    .fetch_all(conn)
    .await
}

/// The providers of the batches with these keys.
pub async fn providers(conn: &mut PgConnection, keys: &[Uuid]) -> sqlx::Result<HashMap<Uuid, String>> {
    let rows: Vec<(Uuid, String)> =
        sqlx::query_as("SELECT key, provider FROM llm_batches WHERE key = ANY($1)").bind(keys).fetch_all(conn).await?;
    Ok(rows.into_iter().collect())
}

/// Ends the care for batches that nobody waits for, and forgets those of a provider that ended longer ago than this. Those of others are left to their
/// own workers, who know their files, for twice that time.
pub async fn tidy(conn: &mut PgConnection, provider: &str, kept: Duration) -> sqlx::Result<Vec<(i64, Uuid)>> {
    sqlx::query(
        "UPDATE llm_batches b SET is_done = true WHERE b.state = 'ended' AND NOT b.is_done
            AND NOT EXISTS (SELECT 1 FROM task_queue t WHERE t.batch_id = b.id::text)",
    )
    .execute(&mut *conn)
    .await?;
    sqlx::query_as(
        "DELETE FROM llm_batches WHERE is_done AND ended_at < clock_timestamp() - CASE WHEN provider = $1 THEN $2 ELSE $2 * 2 END RETURNING id, key",
    )
    .bind(provider)
    .bind(interval(kept))
    .fetch_all(conn)
    .await
}

#[derive(sqlx_macros::FromRow)]
struct ShownRow {
    id: i64,
    provider: String,
    model: String,
    state: Word<LlmBatchState>,
    outcome: Option<Word<LlmBatchOutcome>>,
    provider_id: Option<String>,
    requests: i32,
    bytes: i64,
    tasks: i64,
    opened_at: DateTime<Utc>,
    submitted_at: Option<DateTime<Utc>>,
    expires_at: Option<DateTime<Utc>>,
    ended_at: Option<DateTime<Utc>>,
    cancel_requested_at: Option<DateTime<Utc>>,
    answered: i32,
    failed: i32,
    unanswered: i32,
    unknown: i32,
    repeated: i32,
    dropped: i32,
    problem: Option<String>,
    is_stalled: bool,
}

/// Batches as they are shown. One is stalled if tasks have waited in it for longer than `$1`, or if it is still not over when its provider should have
/// given it up.
macro_rules! shown {
    () => {
        "SELECT b.id, b.provider, b.model, b.state, b.outcome, b.provider_id, b.requests, b.bytes, b.opened_at, b.submitted_at, b.expires_at, b.ended_at,
                b.cancel_requested_at, b.answered, b.failed, b.unanswered, b.unknown, b.repeated, b.dropped, b.problem,
                (SELECT count(*) FROM task_queue t WHERE t.batch_id = b.id::text) AS tasks,
                NOT b.is_done AND (coalesce((SELECT min(t.batched_at) FROM task_queue t WHERE t.batch_id = b.id::text) < clock_timestamp() - $1, false)
                    OR coalesce(b.state <> 'ended' AND b.expires_at < clock_timestamp(), false)) AS is_stalled
           FROM llm_batches b"
    };
}

/// Batches with ids below `before`, newest first, and which of them are stalled after this much patience.
pub async fn list(
    conn: &mut PgConnection,
    before: i64,
    limit: u32,
    patience: Duration,
) -> sqlx::Result<Vec<LlmBatchResponse>> {
    let rows: Vec<ShownRow> = sqlx::query_as(concat!(shown!(), " WHERE b.id < $2 ORDER BY b.id DESC LIMIT $3"))
        .bind(interval(patience))
        .bind(before)
        .bind(i64::from(limit))
        .fetch_all(conn)
        .await?;
    Ok(rows.into_iter().map(LlmBatchResponse::from).collect())
}

/// All batches that are stalled, newest first.
pub async fn stalled(conn: &mut PgConnection, patience: Duration) -> sqlx::Result<Vec<LlmBatchResponse>> {
    let rows: Vec<ShownRow> = sqlx::query_as(concat!(
        "SELECT * FROM (",
        shown!(),
        " WHERE NOT b.is_done) shown WHERE is_stalled ORDER BY id DESC"
    ))
    .bind(interval(patience))
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(LlmBatchResponse::from).collect())
}

impl From<ShownRow> for LlmBatchResponse {
    fn from(row: ShownRow) -> LlmBatchResponse {
        LlmBatchResponse {
            id: row.id,
            provider: row.provider,
            model: row.model,
            state: row.state.0,
            outcome: row.outcome.map(|Word(outcome)| outcome),
            provider_id: row.provider_id,
            requests: row.requests,
            bytes: row.bytes,
            tasks: row.tasks,
            opened_at: row.opened_at,
            submitted_at: row.submitted_at,
            expires_at: row.expires_at,
            ended_at: row.ended_at,
            cancel_requested_at: row.cancel_requested_at,
            answered: row.answered,
            failed: row.failed,
            unanswered: row.unanswered,
            unknown: row.unknown,
            repeated: row.repeated,
            dropped: row.dropped,
            problem: row.problem,
            stalled: row.is_stalled,
        }
    }
}
