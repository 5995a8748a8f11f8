//! The numbered events: who numbers them, who may read which, and until when they are kept.
use super::{documents::add, interval::interval, scope::Readable, word::Word};
use chrono::{DateTime, Utc};
use serde_json::Value;
use sqlx::{
    PgConnection, PgPool,
    postgres::{PgConnectOptions, PgListener, PgPoolOptions},
    types::Json,
};
use std::time::Duration;
use svc_client::wire::{EventKind, EventResponse};
use svc_ids::PrincipalId;

/// The channel on which the newest number is announced.
pub const CHANNEL: &str = "svc_events";
/// How many events are numbered in one transaction.
pub const BATCH: i32 = 1_000;
/// How many events are read at once.
pub const PAGE: i64 = 500;
/// How many old events are deleted in one statement.
const SWEPT: i64 = 1_000;

/// How far a reader inside the service is. A new one begins with the next event that is numbered.
pub async fn position(conn: &mut PgConnection, reader: &str) -> sqlx::Result<i64> {
    sqlx::query_scalar(
        "INSERT INTO event_reader (name, seq) SELECT $1, last FROM event_counter ON CONFLICT (name) DO UPDATE SET name = excluded.name RETURNING seq",
    )
    .bind(reader)
    .fetch_one(conn)
    .await
}

/// Moves a reader on: everything up to this number has arrived where it tells of it.
pub async fn moved(conn: &mut PgConnection, reader: &str, seq: i64) -> sqlx::Result<()> {
    sqlx::query(
        "INSERT INTO event_reader (name, seq) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET seq = excluded.seq",
    )
    .bind(reader)
    .bind(seq)
    .execute(conn)
    .await
    .map(|_| ())
}

/// Numbers the next committed events and announces the newest number; returns how many it numbered, at most [`BATCH`].
pub async fn number(conn: &mut PgConnection) -> sqlx::Result<i32> {
    sqlx::query_scalar("SELECT number_events($1, $2)").bind(BATCH).bind(CHANNEL).fetch_one(conn).await
}

/// The numbers of the events that are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, sqlx_macros::FromRow)]
pub struct Kept {
    /// The number of the oldest event; the next number to be given if none is kept.
    pub oldest: i64,
    /// The last number that was given, 0 before the first.
    pub newest: i64,
}

/// Reads which events are kept.
pub async fn kept(conn: &mut PgConnection) -> sqlx::Result<Kept> {
    sqlx::query_as(
        "SELECT coalesce((SELECT min(seq) FROM event_outbox), last + 1) AS oldest, last AS newest FROM event_counter",
    )
    .fetch_one(conn)
    .await
}

/// What tells whether a number still belongs to the event that had it. After a failover that lost commits, numbers are given again.
#[derive(Clone, Copy, Debug, sqlx_macros::FromRow)]
pub struct Given {
    /// The last number that was given.
    pub newest: i64,
    /// When the event with the number happened; `None` if no such event is kept.
    pub at: Option<DateTime<Utc>>,
}

/// Reads which event has a number.
pub async fn given(conn: &mut PgConnection, seq: i64) -> sqlx::Result<Given> {
    sqlx::query_as("SELECT c.last AS newest, e.at FROM event_counter c LEFT JOIN event_outbox e ON e.seq = $1")
        .bind(seq)
        .fetch_one(conn)
        .await
}

/// The last number that was given.
pub async fn newest(pool: &PgPool) -> sqlx::Result<i64> {
    sqlx::query_scalar("SELECT last FROM event_counter").fetch_one(pool).await
}

/// The last number that was given to an event, and the id of the last attempt at a task.
pub async fn latest(conn: &mut PgConnection) -> sqlx::Result<(i64, i64)> {
    sqlx::query_as("SELECT last, coalesce((SELECT max(id) FROM task_attempts), 0) FROM event_counter")
        .fetch_one(conn)
        .await
}

/// Listens to the announcements of new numbers, on a connection of its own.
pub async fn listener(pool: &PgPool) -> sqlx::Result<PgListener> {
    let options = PgConnectOptions::clone(&pool.connect_options());
    let own = PgPoolOptions::new().max_connections(1).connect_lazy_with(options);
    let mut listener = PgListener::connect_with(&own).await?;
    listener.listen(CHANNEL).await?;
    Ok(listener)
}

/// Who reads events.
#[derive(Clone, Debug)]
pub struct Audience {
    pub readable: Readable,
    /// `None` for the owner.
    pub principal: Option<PrincipalId>,
}

/// Which events are wanted.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub kinds: Vec<EventKind>,
    /// Only what happened at or under this document, and what moved away from under it.
    pub root: Option<i64>,
}

/// Whether a principal ($3) could read the document of `event_outbox e` when the event happened: the document was under
/// no access root, or the principal has a grant on it or on a document above it that was made before the event.
macro_rules! could_read {
    ($guard:literal, $path:literal) => {
        concat!(
            "(",
            $guard,
            " = 0 OR EXISTS (SELECT 1 FROM access_grants g WHERE g.principal_id = $3 AND g.document_id = ANY (",
            $path,
            " || e.document_id) AND g.created_at <= e.at))"
        )
    };
}

/// Whether a caller ($1: the owner, $2: its guards, $3: its id) is told of `event_outbox e`; docs/events.md explains
/// the rule. If the document `d` is gone, the guard of its nearest ancestor that still exists stands for its own: nearest as of the event, because
/// ancestors may have moved since.
macro_rules! is_told {
    () => {
        concat!(
            "($1::boolean OR (NOT e.owner_only AND ($3 = ANY (e.readers) OR (",
            could_read!("e.guard", "e.path"),
            " AND (e.from_guard IS NULL OR ",
            could_read!("e.from_guard", "e.from_path"),
            ") AND coalesce(d.guard, (SELECT p.guard FROM documents p WHERE p.id = ANY (e.path) ORDER BY array_position(e.path, p.id) DESC LIMIT 1), 0)
                   = ANY ($2::bigint[])))))"
        )
    };
}

impl Wanted {
    /// Everything that happens.
    pub fn all() -> Wanted {
        Wanted { kinds: EventKind::ALL.to_vec(), root: None }
    }
}

/// What a caller ($1, $2) is told by `event_outbox e`: of nodes only those that it may read now; null if it may read none. The argument of the
/// macro is that parameter which names the kind `ingest.nodes`.
macro_rules! told_data {
    ($nodes:literal) => {
        concat!(
            "CASE WHEN $1::boolean OR e.kind <> ",
            $nodes,
            " THEN e.data
              ELSE (SELECT jsonb_build_object('nodes', jsonb_agg(n.id ORDER BY n.id)) FROM documents n
                     WHERE n.id IN (SELECT jsonb_array_elements(e.data -> 'nodes')::bigint) AND n.guard = ANY ($2::bigint[])
                    HAVING count(*) > 0) END"
        )
    };
}

#[derive(sqlx_macros::FromRow)]
struct Row {
    seq: i64,
    kind: Word<EventKind>,
    at: DateTime<Utc>,
    document_id: Option<i64>,
    root_id: Option<i64>,
    /// Null for an event that is not shown.
    data: Option<Json<Value>>,
}

/// Some events in their order.
#[derive(Debug)]
pub struct Page {
    /// The events that are wanted and that the audience is told of.
    pub events: Vec<EventResponse>,
    /// The number of the first and the last event that was looked at; `None` if there was none.
    pub looked_at: Option<(i64, i64)>,
    /// When the last of these happened.
    pub last_at: Option<DateTime<Utc>>,
}

/// Looks at the next events after a number, at most `limit`.
pub async fn page(
    conn: &mut PgConnection,
    audience: &Audience,
    wanted: &Wanted,
    after: i64,
    limit: i64,
) -> sqlx::Result<Page> {
    let mut arguments = audience.readable.arguments();
    add(&mut arguments, audience.principal);
    add(&mut arguments, after);
    add(&mut arguments, limit);
    add(&mut arguments, wanted.kinds.iter().map(|kind| kind.as_str()).collect::<Vec<_>>());
    add(&mut arguments, wanted.root);
    add(&mut arguments, EventKind::IngestNodes.as_str());
    let rows: Vec<Row> = sqlx::query_as_with(
        concat!(
            "SELECT e.seq, e.kind, e.at, e.document_id, e.root_id,
                    CASE WHEN e.kind = ANY ($6::text[])
                          AND ($7::bigint IS NULL OR e.document_id = $7 OR e.path @> ARRAY[$7] OR e.from_path @> ARRAY[$7]) AND ",
            is_told!(),
            " THEN ",
            told_data!("$8"),
            " END AS data
               FROM (SELECT * FROM event_outbox WHERE seq > $4 ORDER BY seq LIMIT $5) e LEFT JOIN documents d ON d.id = e.document_id
              ORDER BY e.seq"
        ),
        arguments,
    )
    .fetch_all(conn)
    .await?;
    let looked_at = rows.first().map(|row| row.seq).zip(rows.last().map(|row| row.seq));
    let last_at = rows.last().map(|row| row.at);
    let shown = |row: Row| {
        let Row { seq, kind: Word(kind), at, document_id, root_id, data } = row;
        data.map(|Json(data)| EventResponse { seq, kind, at, document_id, root_id, data, position: None })
    };
    Ok(Page { events: rows.into_iter().filter_map(shown).collect(), looked_at, last_at })
}

/// Whether the audience is told of one of the events after a number, up to another.
pub async fn has_news(conn: &mut PgConnection, audience: &Audience, after: i64, until: i64) -> sqlx::Result<bool> {
    let mut arguments = audience.readable.arguments();
    add(&mut arguments, audience.principal);
    add(&mut arguments, after);
    add(&mut arguments, until);
    add(&mut arguments, EventKind::IngestNodes.as_str());
    let query = concat!(
        "SELECT EXISTS (SELECT 1 FROM event_outbox e LEFT JOIN documents d ON d.id = e.document_id WHERE e.seq > $4 AND e.seq <= $5 AND ",
        is_told!(),
        " AND ",
        told_data!("$6"),
        " IS NOT NULL)"
    );
    sqlx::query_scalar_with(query, arguments).fetch_one(conn).await
}

/// Deletes the oldest events if they are older than this, up to the first that is not, so that those that are kept have no gap.
/// Returns whether there may be more.
pub async fn sweep(conn: &mut PgConnection, retention: Duration) -> sqlx::Result<bool> {
    let gone = sqlx::query(
        "WITH oldest AS MATERIALIZED (
             SELECT seq, at < clock_timestamp() - $1 AS is_old FROM event_outbox WHERE seq IS NOT NULL ORDER BY seq LIMIT $2)
         DELETE FROM event_outbox e USING oldest o
          WHERE e.seq = o.seq AND o.seq < coalesce((SELECT min(seq) FROM oldest WHERE NOT is_old), o.seq + 1)",
    )
    .bind(interval(retention))
    .bind(SWEPT)
    .execute(conn)
    .await?;
    Ok(gone.rows_affected() == SWEPT.unsigned_abs())
}
