//! What is wrong with the queue, for an operator to read.
use crate::store::{
    database,
    growth::{self, Growth},
    interval::interval,
    model_moves, queue,
    word::Word,
};
use sqlx::PgConnection;
use std::time::Duration;
use svc_client::wire::{Finding, FindingKind};

/// With fewer free connections than this the next process may not start.
const FEW_CONNECTIONS: i64 = 5;

/// What helps where the bulk feed has no broker.
pub const FEED_REMEDY: &str =
    "see that the broker runs, and that SVC_AMQP_URL names it; the service tries again by itself, at least every 15 s";

/// What helps where no living worker can run a task type.
pub fn who_runs(task_type: &str) -> &'static str {
    match task_type {
        model_moves::TASK => {
            "give svc-worker the coming model: SVC_EMBEDDING_COMING_MODEL, or SVC_RUNNER_COMING_URL where runners have the models"
        }
        _ => "start svc-worker, of the version that queued it and with the badge of its tasks if they have one",
    }
}

/// A finding with what an operator can do about it.
fn finding(kind: FindingKind, about: String, tasks: i64, seconds: f64) -> Finding {
    let remedy = match kind {
        FindingKind::Unserved if about.is_empty() => "start a worker that takes tasks without a badge: svc-worker",
        FindingKind::Unserved => "start a worker with this badge: svc-worker --badge ",
        FindingKind::NoHandler => who_runs(&about),
        FindingKind::Lapsed => "the worker fell silent; a living one takes the tasks back within its reap interval",
        FindingKind::Stuck => "look at the task in the way: GET /admin/tasks/{id}",
        FindingKind::Starved => {
            "start more workers, or raise the priority: svc priority ID N, or PUT /ingest/file/{id}/priority; younger uploads are overtaking these"
        }
        FindingKind::Stalled => "workers send heartbeats but take nothing: look at their logs, and restart them",
        FindingKind::UnequalLeases => {
            "set SVC_WORKER_LEASE_SECONDS and SVC_WORKER_HEARTBEAT_SECONDS alike for all workers"
        }
        FindingKind::ReadOnly => {
            "have SVC_DATABASE_URL lead to the primary, or have this server take writes again: until then writes are refused and tasks wait"
        }
        FindingKind::Connections => {
            "raise max_connections of the server, or the limit of the database or role, or lower SVC_DATABASE_POOL_SIZE: without a free connection processes do not start, requests are refused and tasks wait"
        }
        FindingKind::Disk => "free space: once there is none, uploads are refused and tasks wait",
        FindingKind::BlobStore => {
            "until it is there again uploads are refused, and tasks that need stored bytes wait: look at it, and at the SVC_BLOB_ settings"
        }
        FindingKind::FeedAway => FEED_REMEDY,
        FindingKind::BatchStalled => {
            "see that svc-batch-worker runs and what it logs; svc-batch-worker cancel has the tasks tried again"
        }
        FindingKind::RulesFailed => {
            "what follows from the facts of this predicate is out of date: mend what the reason names; the worker that derives tries again every second, and its log says more"
        }
        FindingKind::Paused => "resume the task type: POST /admin/task-types/{task_type}/resume",
        FindingKind::StandbyAway => {
            "rung 3: the primary answers what this server would: see that it runs as a standby of the primary, and that SVC_DATABASE_READ_URL names it"
        }
        FindingKind::StandbyBehind => {
            "rung 3: the primary answers what this server would: see that its replay is not paused, give it faster disks, or lower its max_standby_streaming_delay"
        }
        FindingKind::OtherModel => {
            "no search by meaning finds them: name the service's model in SVC_EMBEDDING_COMING_MODEL as well (its runner in SVC_RUNNER_COMING_URL), and run svc reembed; while the old model can be had, set \
             SVC_EMBEDDING_MODEL back to it first, and it answers until the move is done"
        }
        FindingKind::IndexNumbers => {
            "have it built anew (POST /indexes/{id}/refresh), and once more when that is done and workers have compacted it: then its numbers begin at 1 again. Without any left, no document enters it"
        }
        FindingKind::FileBytes => {
            "rung 2: name an object store in SVC_BLOB_STORE and run svc blobs move --to object; the table shrinks when VACUUM FULL pg_largeobject rewrites it. \
             SVC_GROWTH_FILE_BYTES says from where on this is told"
        }
        FindingKind::VectorMemory => {
            "rung 1: give the server more memory and say so in its effective_cache_size, or embed with a narrower model; half the width takes little over half the memory. \
             Indexes of bits (SVC_VECTOR_INDEX=bit, then svc reindex --vectors) take a third of it or less and find less"
        }
        FindingKind::SlowSearches => {
            "rung 3: let standbys answer reads (SVC_DATABASE_READ_URL), or give the server more processors and memory, after a look whether SVC_DATABASE_POOL_SIZE is too small. \
             SVC_GROWTH_SEARCH_SECONDS says from where on this is told"
        }
        FindingKind::SlowIngestion => {
            "rung 4: give the server faster disks, more processors, and memory for its HNSW indexes; more runners do not help. Above 50 million vectors \
             put them in parts (SVC_VECTOR_PARTITIONS, then svc reindex --vectors)"
        }
        FindingKind::SlowBm25 => {
            "rung 5: search indexes of parts of the tree (POST /indexes), give the server faster processors, and see that workers compact; another search engine \
             is not built. SVC_GROWTH_SEARCH_SECONDS says from where on this is told"
        }
        FindingKind::SlowClaims => {
            "the queue: run fewer and larger workers, and see that vacuum keeps up with task_queue; several locks for claims are not built. \
             SVC_GROWTH_CLAIM_SECONDS says from where on this is told"
        }
    };
    let mut remedy = remedy.to_owned();
    if kind == FindingKind::Unserved {
        remedy.push_str(&about);
    }
    Finding { kind, about, tasks, seconds, remedy }
}

/// What is wrong outside the queue, as whoever asks has seen it, with the reasons.
#[derive(Debug, Default)]
pub struct Outside {
    /// Why nothing more can be stored.
    pub disk: Vec<String>,
    /// Why the object store cannot be used.
    pub blob_store: Option<String>,
    /// Why the bulk feed has no broker, and for how many seconds.
    pub feed: Option<(String, f64)>,
    /// Standbys that answer no reads, with the reasons, and for how many seconds.
    pub standbys: Vec<(FindingKind, String, f64)>,
    /// The model that searches work with, if there may be vectors of others that nobody moves.
    pub model: Option<String>,
    /// From what the signs of growth are read; without it none is found.
    pub growth: Option<Growth>,
}

/// Finds what keeps tasks from running: badges and task types that no living worker serves, expired leases that were
/// not reaped, tasks parked for longer than `patience` on a region or an intent, ready tasks that younger ones overtake
/// or that nobody takes although a worker could, workers with unequal leases, paused types with waiting tasks, and batches that no provider ends;
/// predicates from whose facts nothing can be derived; search indexes that have used four fifths of their numbers for documents; a server that takes no writes, and one with few free connections; what is wrong outside the queue; documents that have only vectors of another model; and the signs that one server will not do for much longer.
pub async fn findings(
    conn: &mut PgConnection,
    patience: Duration,
    batch_stall: Duration,
    outside: Outside,
) -> sqlx::Result<Vec<Finding>> {
    let mut findings: Vec<Finding> = queue::unserved_badges(conn)
        .await?
        .into_iter()
        .map(|(badge, tasks, seconds)| finding(FindingKind::Unserved, badge, tasks, seconds))
        .collect();
    let unserved = queue::unserved_types(conn).await?;
    findings.extend(
        unserved.into_iter().map(|(name, tasks, seconds)| finding(FindingKind::NoHandler, name, tasks, seconds)),
    );
    let more: Vec<(Word<FindingKind>, String, i64, f64)> = sqlx::query_as(
        "WITH sessions AS (
             -- What the sessions of others are is told to few roles.
             SELECT datname, usename FROM pg_stat_activity WHERE datid IS NOT NULL AND coalesce(backend_type, 'client backend') = 'client backend')
         SELECT 'lapsed' AS kind, 'worker ' || coalesce(claimed_by, '?') AS about, count(*) AS tasks,
                extract(epoch FROM clock_timestamp() - min(heartbeat_at))::float8 AS seconds
           FROM task_queue t WHERE claim_token IS NOT NULL AND status IN ('claimed', 'running')
            AND is_lapsed(lease_until)
          GROUP BY 2
         UNION ALL
         SELECT 'stuck', 'behind task ' || parked_on, count(*), extract(epoch FROM clock_timestamp() - min(parked_since))::float8
           FROM task_queue WHERE parked_on > 0 AND parked_since < clock_timestamp() - $1 GROUP BY 2
         UNION ALL
         SELECT 'starved', task_type, count(*), extract(epoch FROM clock_timestamp() - min(created_at))::float8
           FROM (SELECT task_type, lane, root_id, created_at FROM task_queue WHERE ready AND created_at < clock_timestamp() - $1 LIMIT 100000) waiting
           JOIN (SELECT y.lane, max(y.root_id) AS youngest FROM (SELECT task_id, ended_at FROM task_attempts ORDER BY id DESC LIMIT 1000) a
                   JOIN task_queue y ON y.id = a.task_id WHERE a.ended_at > clock_timestamp() - $1 GROUP BY 1) ended USING (lane)
          WHERE root_id < youngest
          GROUP BY 2
         UNION ALL
         SELECT 'stalled', w.task_type, sum(w.tasks)::bigint, max(w.seconds)
           FROM (SELECT task_type, service_badge, count(*) AS tasks, extract(epoch FROM clock_timestamp() - min(created_at))::float8 AS seconds
                   FROM (SELECT * FROM task_queue WHERE ready AND created_at < clock_timestamp() - $1 LIMIT 100000) r GROUP BY 1, 2) w CROSS JOIN fleet f
          WHERE blocked_by('pending', false, false, false, false, false, w.task_type, w.service_badge, f.workers, f.takes_all, f.takes_unbadged, f.badges, f.serves) = 'workers_busy'
            -- A task that waits in a provider's batch keeps its token, but nobody works on it.
            AND NOT EXISTS (SELECT 1 FROM task_queue WHERE claim_token IS NOT NULL AND status IN ('claimed', 'running'))
            -- Whoever put a task off has taken it, and may leave the others of its lane alone until what they need is back.
            AND NOT EXISTS (SELECT 1 FROM task_queue WHERE put_off_code <> 'edited' AND retry_after > clock_timestamp() - $1
                               AND NOT ready AND NOT final AND parked_on IS NULL AND claim_token IS NULL)
            AND NOT EXISTS (SELECT 1 FROM (SELECT ended_at FROM task_attempts ORDER BY id DESC LIMIT 1000) a WHERE a.ended_at > clock_timestamp() - $1)
          GROUP BY 2
         UNION ALL
         SELECT 'unequal_leases', 'from ' || extract(epoch FROM min(lease))::float8 || ' s of ' || (array_agg(worker_id ORDER BY lease, worker_id))[1]
                || ' to ' || extract(epoch FROM max(lease))::float8 || ' s of ' || (array_agg(worker_id ORDER BY lease DESC, worker_id))[1], 0, 0
           FROM workers WHERE beat_at > now() - lease HAVING min(lease) < max(lease)
         UNION ALL
         SELECT 'paused', p.task_type, count(t.id), extract(epoch FROM clock_timestamp() - p.since)::float8
           FROM paused_task_type p JOIN task_queue t ON t.parked_on = -p.id GROUP BY p.task_type, p.since
         UNION ALL
         SELECT 'rules_failed', p.namespace || ':' || p.name || ': ' || f.reason, 0, extract(epoch FROM clock_timestamp() - f.failed_at)::float8
           FROM (SELECT * FROM derivation_failures ORDER BY failed_at, predicate_id LIMIT 20) f JOIN predicates p ON p.id = f.predicate_id
         UNION ALL
         SELECT 'batch_stalled', b.provider || ' batch ' || b.id, count(t.id), extract(epoch FROM clock_timestamp() - min(t.batched_at))::float8
           FROM llm_batches b JOIN task_queue t ON t.batch_id = b.id::text WHERE NOT b.is_done
          GROUP BY b.id HAVING min(t.batched_at) < clock_timestamp() - $2 OR (b.state <> 'ended' AND b.expires_at < clock_timestamp())
         UNION ALL
         SELECT 'index_numbers', 'index ' || i.id || ' (' || i.name || '), ' || n.used * 100 / 2147483647 || ' % of them', 0, 0
           FROM search_indexes i CROSS JOIN LATERAL (SELECT pg_sequence_last_value(to_regclass('search_docno_' || i.id)) AS used) n
          WHERE n.used > 2147483647 / 5 * 4
         UNION ALL
         (SELECT 'connections', greatest(most - used, 0) || ' of ' || most || ' are free', 0, 0
           FROM (SELECT current_setting('max_connections')::bigint - current_setting('superuser_reserved_connections')::bigint
                        - coalesce(current_setting('reserved_connections', true), '0')::bigint AS most,
                        (SELECT count(*) FROM sessions) AS used
                 UNION ALL
                 SELECT datconnlimit, (SELECT count(*) FROM sessions WHERE datname = current_database())
                   FROM pg_database WHERE datname = current_database() AND datconnlimit >= 0
                 UNION ALL
                 SELECT rolconnlimit, (SELECT count(*) FROM sessions WHERE usename = current_user)
                   FROM pg_roles WHERE rolname = current_user AND rolconnlimit >= 0
                ) limits
          WHERE most - used < $3 ORDER BY most - used LIMIT 1)
          ORDER BY 1, 2",
    )
    .bind(interval(patience))
    .bind(interval(batch_stall))
    .bind(FEW_CONNECTIONS)
    .fetch_all(&mut *conn)
    .await?;
    findings.extend(more.into_iter().map(|(Word(kind), about, tasks, seconds)| finding(kind, about, tasks, seconds)));
    let read_only = database::why_read_only(&mut *conn).await?;
    findings.extend(read_only.map(|reason| finding(FindingKind::ReadOnly, reason.to_owned(), 0, 0.0)));
    findings.extend(outside.disk.into_iter().map(|reason| finding(FindingKind::Disk, reason, 0, 0.0)));
    findings.extend(outside.blob_store.map(|reason| finding(FindingKind::BlobStore, reason, 0, 0.0)));
    findings.extend(outside.feed.map(|(reason, seconds)| finding(FindingKind::FeedAway, reason, 0, seconds)));
    findings.extend(outside.standbys.into_iter().map(|(kind, about, seconds)| finding(kind, about, 0, seconds)));
    if let Some(model) = outside.model
        && let Some(left) = model_moves::left_behind(&mut *conn, &model).await?
    {
        findings.push(finding(FindingKind::OtherModel, left.to_string(), 0, 0.0));
    }
    if let Some(growth) = outside.growth {
        let signs = growth::signs(&mut *conn, patience, &growth).await?;
        findings.extend(signs.into_iter().map(|sign| finding(sign.kind, sign.about, sign.tasks, sign.seconds)));
    }
    Ok(findings)
}
