//! The queue as a whole: its numbers, what nobody serves, and announcements to other processes.
use super::word::Word;
use sqlx::{PgConnection, PgPool, postgres::PgListener};
use svc_actors::{DocumentFacts, Lane, Lanes};
use svc_client::wire::{BlockedBy, QueueState, TaskLane, TaskStatus};
use svc_ids::{RootId, TaskId};
use uuid::Uuid;

/// The channel which announces that somebody looks at the actors of the fleet.
pub const WATCH: &str = "svc_watch";

/// Tells the workers of other processes that there may be work, or that a cancel was requested.
pub async fn announce(pool: &PgPool, channel: &str) -> sqlx::Result<()> {
    sqlx::query("SELECT pg_notify($1, '')").bind(channel).execute(pool).await.map(|_| ())
}

/// Tells other processes which of these lanes have ready tasks, with `sender` as the sender; sends nothing if there are
/// none. A notification says of each lane which share of the fleet, in thousandths, should look: about twice as many
/// workers as tasks wait, and twice as many in each further round. Returns the lanes to be announced again soon: those
/// which not everybody has heard of, and those whose ready tasks were all queued just now, because the process that
/// queued them usually takes them at once.
pub async fn announce_work(
    pool: &PgPool,
    channel: &str,
    lanes: Lanes,
    round: u32,
    sender: Uuid,
) -> sqlx::Result<Lanes> {
    let (again, _): (Vec<String>, Option<String>) = sqlx::query_as(
        "SELECT coalesce(array_agg(told.lane) FILTER (WHERE told.share < 1000), '{}'),
                CASE WHEN bool_or(told.share > 0) THEN pg_notify($1, $3 || string_agg(' ' || told.lane || ':' || told.share, '') FILTER (WHERE told.share > 0))::text END
           FROM (SELECT wanted.lane, CASE WHEN waiting.tasks = 0 THEN 0 WHEN fleet.workers = 0 THEN 1000
                                          ELSE least(ceil(1000.0 * $4 * greatest(2 * waiting.tasks, 3) / fleet.workers), 1000)::integer END AS share
                   FROM (SELECT count(*) AS workers FROM workers w WHERE w.beat_at > clock_timestamp() - w.lease) fleet
                  CROSS JOIN unnest($2::text[]) AS wanted(lane)
                  CROSS JOIN LATERAL (SELECT count(*) AS tasks FROM (
                        SELECT 1 FROM task_queue t WHERE t.ready AND t.lane = wanted.lane AND t.created_at < clock_timestamp() - interval '25 ms'
                         LIMIT fleet.workers + 1) t) waiting
                  WHERE EXISTS (SELECT 1 FROM task_queue t WHERE t.ready AND t.lane = wanted.lane)) told",
    )
    .bind(channel)
    .bind(lanes.iter().map(Lane::as_str).collect::<Vec<_>>())
    .bind(sender.to_string())
    .bind(1i32 << round.min(20))
    .fetch_one(pool)
    .await?;
    Ok(lanes.iter().filter(|lane| again.iter().any(|name| name == lane.as_str())).collect())
}

/// Fails if the listening connection has been lost.
pub async fn listens(listener: &mut PgListener) -> sqlx::Result<()> {
    sqlx::query("SELECT 1").execute(listener).await.map(|_| ())
}

/// How many tasks of a kind are counted; a greater number is reported as this one. Counting a million rows would take
/// seconds and tell nobody more.
pub const COUNTED: i64 = 10_000;

/// Tasks that are alike: of one type, in one state, for one reason.
#[derive(Clone, Debug, sqlx_macros::FromRow)]
pub struct TaskCount {
    pub task_type: String,
    pub lane: Word<TaskLane>,
    pub status: Word<TaskStatus>,
    pub tasks: i64,
    pub oldest_seconds: f64,
    /// Why they do not run; `None` if they do.
    pub blocked_by: Option<Word<BlockedBy>>,
}

/// The task types of unfinished tasks, each with each of its badges, as `pair(task_type, badge)`; the empty badge is that of tasks without one. Steps
/// through the index from pair to pair.
macro_rules! pairs {
    () => {
        "pair(task_type, badge) AS (
             (SELECT task_type, coalesce(service_badge, '') FROM task_queue WHERE NOT final ORDER BY task_type, coalesce(service_badge, '') LIMIT 1)
             UNION ALL
             SELECT next.task_type, next.badge FROM pair CROSS JOIN LATERAL (
                 SELECT task_type, coalesce(service_badge, '') AS badge FROM task_queue
                  WHERE NOT final AND (task_type, coalesce(service_badge, '')) > (pair.task_type, pair.badge)
                  ORDER BY task_type, coalesce(service_badge, '') LIMIT 1) next)"
    };
}
pub(super) use pairs;

/// Takes the oldest unclaimed tasks of each type and badge, and all claimed ones, which are as many as the fleet has slots. What is alike is counted
/// first, and its reason is asked for once.
pub const UNFINISHED: &str = concat!(
    "WITH RECURSIVE ",
    pairs!(),
    ",
    unfinished AS (
        SELECT pair.task_type AS name, oldest.* FROM pair CROSS JOIN LATERAL (
            SELECT lane, status, service_badge, NULL::timestamptz AS lease_until, sign(parked_on) AS parked, unmet_deps > 0 AS has_unmet,
                   retry_after > clock_timestamp() AS backs_off, created_at FROM task_queue t
             WHERE NOT final AND t.task_type = pair.task_type AND coalesce(service_badge, '') = pair.badge AND claim_token IS NULL
             ORDER BY created_at LIMIT $1) oldest
        UNION ALL
        SELECT task_type, lane, status, service_badge, lease_until, sign(parked_on), unmet_deps > 0, retry_after > clock_timestamp(), created_at
          FROM task_queue WHERE claim_token IS NOT NULL),
    alike AS (
        SELECT name, lane, status, service_badge, status IN ('claimed', 'running') AND is_lapsed(lease_until) AS has_lapsed, parked, has_unmet, backs_off,
               count(*) AS tasks, min(created_at) AS oldest FROM unfinished GROUP BY 1, 2, 3, 4, 5, 6, 7, 8)
    SELECT a.name AS task_type, a.lane, a.status, a.tasks, extract(epoch FROM clock_timestamp() - a.oldest)::float8 AS oldest_seconds,
           blocked_by(a.status, a.has_lapsed, a.has_unmet, a.backs_off, a.parked < 0 OR p.id IS NOT NULL, a.parked IS NOT NULL, a.name,
                      a.service_badge, f.workers, f.takes_all, f.takes_unbadged, f.badges, f.serves) AS blocked_by
      FROM alike a CROSS JOIN fleet f LEFT JOIN paused_task_type p ON p.task_type = a.name ORDER BY 1, 3"
);

/// Tasks that still owe work, by type, state and reason; of each type and badge up to [`COUNTED`] unclaimed ones, the oldest.
pub async fn unfinished(conn: &mut PgConnection) -> sqlx::Result<Vec<TaskCount>> {
    sqlx::query_as(UNFINISHED).bind(COUNTED).fetch_all(conn).await
}

/// Whether a living worker can run this task: it runs the type and takes the badge.
#[tracing::instrument(level = "debug", skip_all, fields(task.id = task_id.0))]
pub async fn is_served(conn: &mut PgConnection, task_id: TaskId) -> sqlx::Result<bool> {
    sqlx::query_scalar(
        "SELECT EXISTS (SELECT 1 FROM task_queue t CROSS JOIN fleet f WHERE t.id = $1 AND is_served(t.task_type, t.service_badge, f.serves))",
    )
    .bind(task_id)
    .fetch_one(conn)
    .await
}

/// Tasks of a type that failed for good.
#[derive(Clone, Debug, sqlx_macros::FromRow)]
pub struct FailedCount {
    pub task_type: String,
    pub tasks: i64,
    /// How many of them failed because a part that they need is not configured.
    pub not_configured: i64,
}

/// Tasks that failed for good, by type; up to [`COUNTED`] in all.
pub async fn failed(conn: &mut PgConnection) -> sqlx::Result<Vec<FailedCount>> {
    // A task that failed because of another one still has that as an unmet dependency.
    sqlx::query_as(
        "SELECT task_type, count(*) AS tasks, count(*) FILTER (WHERE error_type = 'dependency' AND unmet_deps = 0) AS not_configured
           FROM (SELECT task_type, error_type, unmet_deps FROM task_queue WHERE final AND error_type IS NOT NULL ORDER BY id DESC LIMIT $1) f
          GROUP BY 1 ORDER BY 1",
    )
    .bind(COUNTED)
    .fetch_all(conn)
    .await
}

/// The queue in numbers.
pub fn state(unfinished: &[TaskCount], failed: &[FailedCount]) -> QueueState {
    let count =
        |of: fn(TaskStatus) -> bool| unfinished.iter().filter(|row| of(row.status.0)).map(|row| row.tasks).sum();
    QueueState {
        pending: count(|status| status == TaskStatus::Pending),
        held: count(TaskStatus::is_held),
        waiting_for_retry: count(|status| status == TaskStatus::Failed),
        failed: failed.iter().map(|row| row.tasks - row.not_configured).sum(),
        not_configured: failed.iter().map(|row| row.not_configured).sum(),
        oldest_seconds: unfinished.iter().map(|row| row.oldest_seconds).reduce(f64::max),
    }
}

/// The workers of the last minute, as `recent(badges, strict, task_types)`. One that is gone counts for so long, because another one may be about to take
/// its place.
macro_rules! recent {
    () => {
        "recent AS MATERIALIZED (
             SELECT badges, strict, task_types FROM workers WHERE beat_at > clock_timestamp() - lease - interval '1 minute'
             UNION ALL SELECT badges, strict, task_types FROM workers_left WHERE left_at > clock_timestamp() - interval '1 minute')"
    };
}

/// Badges of ready tasks that no worker has answered to for a minute, each with the number of tasks, counted up to [`COUNTED`] per
/// lane, and the seconds that the oldest has waited. Tasks of a paused type do not count, because nobody is to run them. Steps through the index from badge
/// to badge.
pub async fn unserved_badges(conn: &mut PgConnection) -> sqlx::Result<Vec<(String, i64, f64)>> {
    sqlx::query_as(concat!(
        "WITH RECURSIVE ",
        recent!(),
        ",
         pair(lane, badge) AS (
             (SELECT lane, coalesce(service_badge, '') FROM task_queue WHERE ready ORDER BY lane, coalesce(service_badge, '') LIMIT 1)
             UNION ALL
             SELECT next.lane, next.badge FROM pair CROSS JOIN LATERAL (
                 SELECT lane, coalesce(service_badge, '') AS badge FROM task_queue
                  WHERE ready AND (lane, coalesce(service_badge, '')) > (pair.lane, pair.badge)
                  ORDER BY lane, coalesce(service_badge, '') LIMIT 1) next),
         unserved AS (
             SELECT lane, badge FROM pair WHERE NOT EXISTS (SELECT 1 FROM recent r WHERE takes_badge(r.badges, r.strict, pair.badge)))
         SELECT u.badge, count(*), extract(epoch FROM clock_timestamp() - min(t.created_at))::float8
           FROM unserved u CROSS JOIN LATERAL (
               SELECT q.task_type, q.created_at FROM task_queue q WHERE q.ready AND q.lane = u.lane AND coalesce(q.service_badge, '') = u.badge LIMIT $1) t
          WHERE NOT EXISTS (SELECT 1 FROM paused_task_type p WHERE p.task_type = t.task_type)
          GROUP BY 1 ORDER BY 1"
    ))
    .bind(COUNTED)
    .fetch_all(conn)
    .await
}

/// Task types of tasks that no worker could run for a minute, each with the number of tasks and the seconds that the oldest has waited: among tasks that a
/// worker put off for that reason, and, while any worker lives, among those that have been ready for a minute, because nobody has a slot in their lane.
/// A worker counts for a task if it runs the type and takes the badge; where workers run the type and none takes the badge, [`unserved_badges`] tells of
/// it. A paused type does not count. Examines [`COUNTED`] tasks that were put off, and as many of each such type and badge.
pub async fn unserved_types(conn: &mut PgConnection) -> sqlx::Result<Vec<(String, i64, f64)>> {
    sqlx::query_as(concat!(
        "WITH RECURSIVE ",
        recent!(),
        ", ",
        pairs!(),
        ",
         unserved AS MATERIALIZED (
             SELECT p.task_type, p.badge FROM pair p
              WHERE NOT EXISTS (SELECT 1 FROM recent r WHERE p.task_type = ANY (r.task_types) AND takes_badge(r.badges, r.strict, p.badge))
                AND (EXISTS (SELECT 1 FROM recent r WHERE takes_badge(r.badges, r.strict, p.badge))
                     OR NOT EXISTS (SELECT 1 FROM recent r WHERE p.task_type = ANY (r.task_types)))
                AND NOT EXISTS (SELECT 1 FROM paused_task_type q WHERE q.task_type = p.task_type)),
         waiting AS (
             SELECT t.task_type, t.created_at
               FROM (SELECT task_type, coalesce(service_badge, '') AS badge, created_at FROM task_queue
                      WHERE retry_after IS NOT NULL AND NOT final AND NOT ready AND parked_on IS NULL AND claim_token IS NULL LIMIT $1) t
               JOIN unserved USING (task_type, badge)
             UNION ALL
             SELECT u.task_type, t.created_at
               FROM unserved u CROSS JOIN fleet f CROSS JOIN LATERAL (
                    SELECT q.ready, q.created_at FROM task_queue q
                     WHERE NOT q.final AND q.task_type = u.task_type AND coalesce(q.service_badge, '') = u.badge ORDER BY q.created_at LIMIT $1) t
              WHERE f.workers > 0 AND t.ready AND t.created_at < clock_timestamp() - interval '1 minute')
         SELECT task_type, count(*), extract(epoch FROM clock_timestamp() - min(created_at))::float8 FROM waiting GROUP BY 1 ORDER BY 1"
    ))
    .bind(COUNTED)
    .fetch_all(conn)
    .await
}

/// How many unfinished tasks of one document are counted; a file of a million rows may have more.
const MOST_OPEN: i64 = 1000;

/// The titles of the documents with these roots, and how many unfinished tasks each has, up to a thousand. A document
/// that is gone is left out.
pub async fn documents(conn: &mut PgConnection, roots: &[RootId]) -> sqlx::Result<Vec<DocumentFacts>> {
    let rows: Vec<(RootId, String, i64)> = sqlx::query_as(
        "SELECT d.id, d.title, (SELECT count(*) FROM (SELECT 1 FROM task_queue t WHERE t.root_id = d.id AND NOT t.final LIMIT $2) open)
           FROM documents d WHERE d.id = ANY($1)",
    )
    .bind(roots)
    .bind(MOST_OPEN)
    .fetch_all(conn)
    .await?;
    let facts = |(root_id, title, open): (RootId, String, i64)| DocumentFacts {
        root_id,
        title: Some(title),
        open_tasks: u64::try_from(open).unwrap_or(0),
    };
    Ok(rows.into_iter().map(facts).collect())
}
