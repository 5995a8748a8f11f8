//! What tells that one server will not do for much longer: how large things are, and how long what processes do takes. docs/operations.md
//! says what helps next.
use super::{interval::interval, queue::pairs};
use sqlx::{PgConnection, PgExecutor};
use std::time::Duration;
use svc_client::wire::FindingKind;
use uuid::Uuid;

/// What was timed longer ago says nothing about the present.
pub const RECENT: Duration = Duration::from_secs(600);
/// From so many calls on, one can say what 95 of 100 took at most.
const ENOUGH: i32 = 50;
/// From so many tasks on, one can say what their time goes to.
const ENOUGH_TASKS: i64 = 20;
/// While less than this share of the time of embed tasks goes to models, these wait for the database.
const IDLE_SHARE: f64 = 0.5;
/// How many waiting tasks are counted.
const COUNTED: i64 = 10_000;

/// What processes time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timed {
    /// The vectors or the full text of a search, in the database.
    Search,
    /// The BM25 of a search.
    Bm25,
    /// A claim of tasks.
    Claim,
    /// An embed task that did not fail.
    Embed,
    /// What models took of an embed task, also of one that failed.
    Encode,
}

impl Timed {
    pub const ALL: [Timed; 5] = [Timed::Search, Timed::Bm25, Timed::Claim, Timed::Embed, Timed::Encode];

    fn as_str(self) -> &'static str {
        match self {
            Timed::Search => "search",
            Timed::Bm25 => "bm25",
            Timed::Claim => "claim",
            Timed::Embed => "embed",
            Timed::Encode => "encode",
        }
    }
}

/// How long one thing took in a process lately.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    pub what: Timed,
    pub calls: i32,
    /// 95 of 100 calls took at most so many seconds.
    pub p95: f64,
    /// All calls together, in seconds.
    pub total: f64,
}

/// Stores what a process tells, in place of what it told before, and forgets processes that are long gone.
pub async fn tell(connection: impl PgExecutor<'_>, process: Uuid, figures: &[Figure]) -> sqlx::Result<()> {
    let kinds: Vec<&str> = figures.iter().map(|figure| figure.what.as_str()).collect();
    let calls: Vec<i32> = figures.iter().map(|figure| figure.calls).collect();
    let p95: Vec<f64> = figures.iter().map(|figure| figure.p95).collect();
    let total: Vec<f64> = figures.iter().map(|figure| figure.total).collect();
    sqlx::query(
        "WITH gone AS (DELETE FROM process_timings WHERE told_at < clock_timestamp() - interval '1 day' AND process <> $1)
         INSERT INTO process_timings (process, kind, told_at, calls, p95_seconds, total_seconds)
         SELECT $1, f.kind, clock_timestamp(), f.calls, f.p95, f.total
           FROM unnest($2::text[], $3::int[], $4::float8[], $5::float8[]) AS f(kind, calls, p95, total) ORDER BY f.kind
         ON CONFLICT (process, kind) DO UPDATE SET told_at = excluded.told_at, calls = excluded.calls, p95_seconds = excluded.p95_seconds,
                total_seconds = excluded.total_seconds",
    )
    .bind(process)
    .bind(kinds)
    .bind(calls)
    .bind(p95)
    .bind(total)
    .execute(connection)
    .await
    .map(|_| ())
}

/// How large what grows is, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sizes {
    /// The table of large objects, in which the bytes of files are.
    pub large_objects: i64,
    /// The HNSW indexes.
    pub vector_indexes: i64,
    /// The memory that the server has for pages, as its `effective_cache_size` says.
    pub cache: i64,
}

/// Reads the sizes, of files and from the settings; no table is counted. `None` while somebody holds one of them alone, as VACUUM FULL does for
/// hours, because a look at it would wait for that.
pub async fn sizes(conn: &mut PgConnection) -> sqlx::Result<Option<Sizes>> {
    let found: Option<(i64, i64, i64)> = sqlx::query_as(
        "WITH indexes AS MATERIALIZED (
             SELECT i.oid FROM pg_class i JOIN pg_am a ON a.oid = i.relam
              WHERE i.relkind = 'i' AND a.amname = 'hnsw' AND i.relnamespace = current_schema()::regnamespace)
         SELECT pg_total_relation_size('pg_catalog.pg_largeobject'),
                (SELECT coalesce(sum(pg_relation_size(i.oid)), 0)::bigint FROM indexes i),
                pg_size_bytes(current_setting('effective_cache_size'))
          WHERE NOT EXISTS (
                SELECT FROM pg_locks l
                 WHERE l.mode = 'AccessExclusiveLock' AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
                   AND (l.relation = 'pg_catalog.pg_largeobject'::regclass OR l.relation IN (SELECT i.oid FROM indexes i)))",
    )
    .fetch_optional(conn)
    .await?;
    Ok(found.map(|(large_objects, vector_indexes, cache)| Sizes { large_objects, vector_indexes, cache }))
}

/// Where the signs begin.
#[derive(Clone, Copy, Debug)]
pub struct Thresholds {
    /// Bytes of large objects.
    pub files: u64,
    /// What 95 of 100 searches may take in the database.
    pub search: Duration,
    /// What 95 of 100 claims may take.
    pub claim: Duration,
    /// The share of `effective_cache_size` that the HNSW indexes may have, which is half of the server's memory.
    pub vectors: f64,
}

/// What the signs are read from, besides what processes told the database.
#[derive(Clone, Copy, Debug)]
pub struct Growth {
    pub thresholds: Thresholds,
    pub sizes: Sizes,
}

/// A sign that it is time for the next rung.
#[derive(Clone, Debug)]
pub struct Sign {
    pub kind: FindingKind,
    /// The figure that tells.
    pub about: String,
    /// The tasks that wait for it, and for how many seconds the oldest does.
    pub tasks: i64,
    pub seconds: f64,
}

impl Sign {
    fn new(kind: FindingKind, about: String) -> Sign {
        Sign { kind, about, tasks: 0, seconds: 0.0 }
    }
}

/// What all processes told lately of one kind.
#[derive(Debug, Default)]
struct Told {
    calls: i64,
    /// Of the slowest process that has enough calls.
    p95: Option<f64>,
    total: f64,
}

/// The signs that are there. Tasks count as waiting after `patience`.
pub async fn signs(conn: &mut PgConnection, patience: Duration, growth: &Growth) -> sqlx::Result<Vec<Sign>> {
    let Growth { thresholds, sizes } = growth;
    let told: Vec<(String, i64, Option<f64>, f64)> = sqlx::query_as(
        "SELECT kind, sum(calls)::bigint, max(p95_seconds) FILTER (WHERE calls >= $2), sum(total_seconds) FROM process_timings
          WHERE told_at > clock_timestamp() - $1 GROUP BY 1",
    )
    .bind(interval(RECENT))
    .bind(ENOUGH)
    .fetch_all(&mut *conn)
    .await?;
    let of = |what: Timed| {
        let row = told.iter().find(|(kind, ..)| kind == what.as_str());
        row.map_or(Told::default(), |(_, calls, p95, total)| Told { calls: *calls, p95: *p95, total: *total })
    };
    let slow = |what: Timed, kind: FindingKind, limit: Duration| {
        let p95 = of(what).p95.filter(|p95| *p95 > limit.as_secs_f64())?;
        Some(Sign::new(kind, format!("95 of 100 took up to {:.0} ms", p95 * 1000.0)))
    };
    let mut signs = Vec::new();
    if u64::try_from(sizes.large_objects).is_ok_and(|bytes| bytes > thresholds.files) {
        signs.push(Sign::new(FindingKind::FileBytes, format!("{} of large objects", in_words(sizes.large_objects))));
    }
    if sizes.vector_indexes as f64 > sizes.cache as f64 * thresholds.vectors {
        let (indexes, cache) = (in_words(sizes.vector_indexes), in_words(sizes.cache));
        let about = format!("{indexes} of HNSW indexes beside {cache} of effective_cache_size");
        signs.push(Sign::new(FindingKind::VectorMemory, about));
    }
    signs.extend(slow(Timed::Search, FindingKind::SlowSearches, thresholds.search));
    let (embed, encode) = (of(Timed::Embed), of(Timed::Encode));
    if embed.calls >= ENOUGH_TASKS && encode.total < embed.total * IDLE_SHARE {
        let (tasks, seconds) = waiting(conn, patience).await?;
        if tasks > 0 {
            let share = 100.0 * encode.total / embed.total;
            let about = format!("models take {share:.0} % of the time of embed tasks");
            signs.push(Sign { tasks, seconds, ..Sign::new(FindingKind::SlowIngestion, about) });
        }
    }
    signs.extend(slow(Timed::Bm25, FindingKind::SlowBm25, thresholds.search));
    signs.extend(slow(Timed::Claim, FindingKind::SlowClaims, thresholds.claim));
    Ok(signs)
}

/// How many embed tasks could run and have waited for so long, and for how many seconds the oldest has.
async fn waiting(conn: &mut PgConnection, patience: Duration) -> sqlx::Result<(i64, f64)> {
    // What is ready is not final, and an index has what is not final by type, badge and age.
    sqlx::query_as(concat!(
        "WITH RECURSIVE ",
        pairs!(),
        " SELECT least(count(*), $2), coalesce(extract(epoch FROM clock_timestamp() - min(waiting.created_at))::float8, 0)
            FROM pair p CROSS JOIN LATERAL (
                 SELECT t.created_at FROM task_queue t
                  WHERE t.ready AND NOT t.final AND t.task_type = p.task_type AND coalesce(t.service_badge, '') = p.badge
                    AND t.created_at < clock_timestamp() - $1 ORDER BY t.created_at LIMIT $2) waiting
           WHERE p.task_type = 'embed'"
    ))
    .bind(interval(patience))
    .bind(COUNTED)
    .fetch_one(conn)
    .await
}

/// A number of bytes for people.
fn in_words(bytes: i64) -> String {
    let units = [("TB", 1e12), ("GB", 1e9), ("MB", 1e6)];
    match units.into_iter().find(|(_, size)| bytes as f64 >= *size) {
        Some((unit, size)) => format!("{:.1} {unit}", bytes as f64 / size),
        None => format!("{:.1} kB", bytes as f64 / 1e3),
    }
}

#[cfg(test)]
mod tests {
    use super::in_words;

    #[test]
    fn bytes_are_told_by_their_largest_unit() {
        for (bytes, words) in [(0, "0.0 kB"), (8_192, "8.2 kB"), (2_500_000, "2.5 MB"), (1_200_000_000_000, "1.2 TB")] {
            assert_eq!(in_words(bytes), words);
        }
    }
}
