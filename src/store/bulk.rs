//! The messages of the bulk feed: what became of each, and the outcomes that are still to be told.
use super::{
    events::last_failure,
    evidence::Evidence,
    interval::interval,
    text::{storable, storable_json},
    word::Word,
};
use chrono::{DateTime, Utc};
use serde_json::{Value, json};
use sqlx::{PgConnection, types::Json};
use std::time::Duration;
use svc_client::{
    Failure,
    wire::{EventKind, FeedCounts, FeedOutcome, FeedUploader, MessageOutcome},
};
use svc_ids::{DocumentId, PrincipalId};

/// The name of the reader of events that tells the outcomes.
pub const READER: &str = "feed";
/// How many rejected messages are forgotten in one statement.
const SWEPT: i64 = 1_000;
/// How many messages are counted.
const COUNTED: i64 = 10_000;
/// How many uploaders and outcomes are shown.
const UPLOADERS: i64 = 100;
const LATEST: i64 = 20;
/// How much of a reason is shown.
const DETAIL: i32 = 300;

/// What a message says of itself besides the file.
#[derive(Clone, Debug)]
pub struct Receipt {
    /// The uploader; `None` if none could be told.
    pub principal_id: Option<PrincipalId>,
    pub message_id: String,
    pub reply_to: Option<String>,
    pub correlation_id: Option<String>,
}

/// What became of a message.
#[derive(Clone, Debug, sqlx_macros::FromRow)]
pub struct Outcome {
    /// `accepted` or `duplicate`.
    pub outcome: String,
    pub sha256: Option<String>,
    pub document_id: Option<DocumentId>,
    /// The queue that is told of it, and by which mark: those of the delivery that was stored, until another one took their place.
    pub reply_to: Option<String>,
    pub correlation_id: Option<String>,
}

/// What became of a message that was stored; `None` if it was not, also if it was rejected: what was wrong may have been mended.
pub async fn stored(conn: &mut PgConnection, receipt: &Receipt) -> sqlx::Result<Option<Outcome>> {
    sqlx::query_as(
        "SELECT outcome, sha256, document_id, reply_to, correlation_id FROM bulk_message
          WHERE principal_id IS NOT DISTINCT FROM $1 AND message_id = $2 AND outcome <> 'rejected'",
    )
    .bind(receipt.principal_id)
    .bind(&receipt.message_id)
    .fetch_optional(conn)
    .await
}

/// How the ingestion of what a message brought has ended.
#[derive(Clone, Debug, sqlx_macros::FromRow)]
pub struct End {
    pub kind: Word<EventKind>,
    /// Why it failed, as its event says.
    pub data: Json<Value>,
}

/// Has the end of the ingestion of what a message brought told where this delivery of it says, and returns the end if it is there already; the end of what
/// was deleted meanwhile is the delete. These are two statements, so that an end that comes in between is told one way or the other.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = document_id.0))]
pub async fn follow(conn: &mut PgConnection, receipt: &Receipt, document_id: DocumentId) -> sqlx::Result<Option<End>> {
    sqlx::query(
        "UPDATE bulk_message SET reply_to = $4, correlation_id = $5
          WHERE document_id = $1 AND message_id = $2 AND principal_id IS NOT DISTINCT FROM $3 AND outcome = 'accepted'
            AND $4 IS NOT NULL AND (reply_to, correlation_id) IS DISTINCT FROM ($4, $5)",
    )
    .bind(document_id)
    .bind(&receipt.message_id)
    .bind(receipt.principal_id)
    .bind(&receipt.reply_to)
    .bind(&receipt.correlation_id)
    .execute(&mut *conn)
    .await?;
    sqlx::query_as(concat!(
        "SELECT CASE WHEN d.id IS NULL THEN $6::text WHEN d.settled = 'settled' THEN $2::text WHEN c.is_cancelled THEN $3::text ELSE $4::text END AS kind,
                CASE WHEN d.id IS NULL OR d.settled = 'settled' OR c.is_cancelled THEN '{}' ELSE last.reason END AS data
           FROM (SELECT $1::bigint AS id) brought LEFT JOIN documents d ON d.id = brought.id CROSS JOIN LATERAL ",
        last_failure!(),
        " last CROSS JOIN LATERAL (
                SELECT EXISTS (SELECT 1 FROM node_evidence e WHERE e.document_id = d.id AND e.name = $5) AS is_cancelled) c
          WHERE d.id IS NULL OR d.settled <> 'in_flight'"
    ))
    .bind(document_id)
    .bind(EventKind::IngestSettled.as_str())
    .bind(EventKind::IngestCancelled.as_str())
    .bind(EventKind::IngestFailed.as_str())
    .bind(Evidence::Cancelled.as_str())
    .bind(EventKind::DocumentDeleted.as_str())
    .fetch_optional(conn)
    .await
}

/// Records that a message was stored as this document, in the transaction that stores it. Returns false if another delivery of the message
/// was stored meanwhile; then the transaction must not commit.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = document_id.0))]
pub async fn record(
    conn: &mut PgConnection,
    receipt: &Receipt,
    document_id: DocumentId,
    sha256: &str,
    is_new: bool,
) -> sqlx::Result<bool> {
    let done = sqlx::query(
        "INSERT INTO bulk_message AS m (principal_id, message_id, sha256, document_id, outcome, reply_to, correlation_id)
         VALUES ($1, $2, $3, $4, CASE WHEN $5 THEN 'accepted' ELSE 'duplicate' END, $6, $7)
         ON CONFLICT (principal_id, message_id) DO UPDATE
            SET sha256 = excluded.sha256, document_id = excluded.document_id, outcome = excluded.outcome, code = NULL, detail = NULL,
                reply_to = excluded.reply_to, correlation_id = excluded.correlation_id, at = clock_timestamp()
          WHERE m.outcome = 'rejected'",
    )
    .bind(receipt.principal_id)
    .bind(&receipt.message_id)
    .bind(sha256)
    .bind(document_id)
    .bind(is_new)
    .bind(&receipt.reply_to)
    .bind(&receipt.correlation_id)
    .execute(conn)
    .await?;
    Ok(done.rows_affected() == 1)
}

/// Records that the ingestion of these documents has ended, in the transaction that records the event of it, so that a later delete is not told as
/// another end.
pub async fn ended(conn: &mut PgConnection, documents: &[DocumentId]) -> sqlx::Result<()> {
    sqlx::query(
        "UPDATE bulk_message SET has_ended = true
          WHERE document_id = ANY($1) AND outcome = 'accepted' AND NOT has_ended",
    )
    .bind(documents)
    .execute(conn)
    .await
    .map(|_| ())
}

/// Records that a message was given up, and tells of it. What was stored under the same id before stays as it is.
pub async fn reject(
    conn: &mut PgConnection,
    receipt: &Receipt,
    sha256: Option<&str>,
    failure: &Failure,
) -> sqlx::Result<()> {
    sqlx::query(
        "INSERT INTO bulk_message AS m (principal_id, message_id, sha256, outcome, code, detail, reply_to, correlation_id)
         VALUES ($1, $2, $3, 'rejected', $4, $5, $6, $7)
         ON CONFLICT (principal_id, message_id) DO UPDATE
            SET sha256 = excluded.sha256, code = excluded.code, detail = excluded.detail, reply_to = excluded.reply_to,
                correlation_id = excluded.correlation_id, at = clock_timestamp()
          WHERE m.outcome = 'rejected'",
    )
    .bind(receipt.principal_id)
    .bind(&receipt.message_id)
    .bind(sha256)
    .bind(failure.code.as_str())
    .bind(storable(&failure.detail).as_ref())
    .bind(&receipt.reply_to)
    .bind(&receipt.correlation_id)
    .execute(&mut *conn)
    .await?;
    dead(conn, Some(receipt), sha256, failure).await
}

/// Tells that a message was given up; one without an id has no row of its own.
pub async fn dead(
    conn: &mut PgConnection,
    receipt: Option<&Receipt>,
    sha256: Option<&str>,
    failure: &Failure,
) -> sqlx::Result<()> {
    let told = json!({
        "message_id": receipt.map(|receipt| &receipt.message_id),
        "code": failure.code.as_str(),
        "detail": failure.detail,
        "remedy": failure.members.get("remedy"),
        "content_hash": sha256,
        "reply_to": receipt.and_then(|receipt| receipt.reply_to.as_ref()),
        "correlation_id": receipt.and_then(|receipt| receipt.correlation_id.as_ref()),
    });
    sqlx::query("INSERT INTO event_outbox (kind, data, owner_only) VALUES ($1, $2, true)")
        .bind(EventKind::FeedDead.as_str())
        .bind(storable_json(&told).as_ref())
        .execute(conn)
        .await
        .map(|_| ())
}

/// An event, and the message that is to be told of it.
#[derive(Clone, Debug, sqlx_macros::FromRow)]
pub struct Told {
    pub seq: i64,
    /// `None` if the event is of no message.
    pub kind: Option<Word<EventKind>>,
    pub at: DateTime<Utc>,
    pub document_id: Option<i64>,
    pub data: Json<Value>,
    pub message_id: Option<String>,
    pub sha256: Option<String>,
    pub reply_to: Option<String>,
    pub correlation_id: Option<String>,
}

/// The messages of this table that `event_outbox e` is told of.
macro_rules! messages {
    ($table:literal) => {
        concat!(
            "SELECT b.message_id, b.sha256, b.reply_to, b.correlation_id FROM ",
            $table,
            "     b WHERE e.kind IN ($4, $5) AND b.document_id = e.document_id AND b.message_id = e.data ->> 'message_id' AND 'ingest.' || b.outcome = e.kind
             UNION ALL
             SELECT b.message_id, b.sha256, b.reply_to, b.correlation_id FROM ",
            $table,
            "     b WHERE e.kind IN ($6, $7, $8) AND e.root_id = e.document_id AND b.document_id = e.document_id AND b.outcome = 'accepted'"
        )
    };
}

/// The next events that have not been told, at most `limit`, also those that no message is told of. Each finds its message by an index: any
/// number of messages may have brought the bytes of one document. A document that was deleted meanwhile has its messages too, and the delete is the
/// end of an ingestion that had none.
pub async fn untold(conn: &mut PgConnection, limit: i64) -> sqlx::Result<Vec<Told>> {
    sqlx::query_as(concat!(
        "SELECT e.seq, CASE WHEN m.message_id IS NOT NULL OR e.kind = $3 THEN e.kind END AS kind, e.at, e.document_id, e.data,
                coalesce(m.message_id, e.data ->> 'message_id') AS message_id, coalesce(m.sha256, e.data ->> 'content_hash') AS sha256,
                coalesce(m.reply_to, e.data ->> 'reply_to') AS reply_to, coalesce(m.correlation_id, e.data ->> 'correlation_id') AS correlation_id
           FROM (SELECT * FROM event_outbox WHERE seq > coalesce((SELECT seq FROM event_reader WHERE name = $1), 0)
                  ORDER BY seq LIMIT $2) e
           LEFT JOIN LATERAL (",
        messages!("bulk_message"),
        " UNION ALL ",
        messages!("bulk_gone"),
        " UNION ALL
             SELECT b.message_id, b.sha256, b.reply_to, b.correlation_id FROM bulk_gone b
              WHERE e.kind = $9 AND b.document_id = e.document_id AND b.outcome = 'accepted' AND NOT b.has_ended) m ON true
          ORDER BY e.seq"
    ))
    .bind(READER)
    .bind(limit)
    .bind(EventKind::FeedDead.as_str())
    .bind(EventKind::IngestAccepted.as_str())
    .bind(EventKind::IngestDuplicate.as_str())
    .bind(EventKind::IngestSettled.as_str())
    .bind(EventKind::IngestFailed.as_str())
    .bind(EventKind::IngestCancelled.as_str())
    .bind(EventKind::DocumentDeleted.as_str())
    .fetch_all(conn)
    .await
}

/// How many tasks could run now; counts no further than `limit`.
pub async fn ready_tasks(conn: &mut PgConnection, limit: i64) -> sqlx::Result<i64> {
    sqlx::query_scalar("SELECT count(*) FROM (SELECT 1 FROM task_queue WHERE ready LIMIT $1) r")
        .bind(limit)
        .fetch_one(conn)
        .await
}

/// Forgets rejected messages that are older than this, and messages whose documents were deleted before; what was stored is remembered as long as its
/// document. Returns whether there may be more.
pub async fn sweep(conn: &mut PgConnection, retention: Duration) -> sqlx::Result<bool> {
    let gone = sqlx::query(
        "DELETE FROM bulk_message WHERE ctid = ANY (ARRAY(
             SELECT ctid FROM bulk_message WHERE outcome = 'rejected' AND at < clock_timestamp() - $1 ORDER BY at LIMIT $2))",
    )
    .bind(interval(retention))
    .bind(SWEPT)
    .execute(&mut *conn)
    .await?;
    let of_deleted = sqlx::query(
        "DELETE FROM bulk_gone WHERE ctid = ANY (ARRAY(SELECT ctid FROM bulk_gone WHERE at < clock_timestamp() - $1 ORDER BY at LIMIT $2))",
    )
    .bind(interval(retention))
    .bind(SWEPT)
    .execute(conn)
    .await?;
    Ok(gone.rows_affected().max(of_deleted.rows_affected()) == SWEPT.unsigned_abs())
}

/// How many messages ended in the last minute and in the last hour, of the latest ones.
pub async fn rates(conn: &mut PgConnection) -> sqlx::Result<(FeedCounts, FeedCounts)> {
    let rows: Vec<(Word<MessageOutcome>, i64, i64)> = sqlx::query_as(
        "SELECT outcome, count(*) FILTER (WHERE at > clock_timestamp() - interval '1 minute'), count(*)
           FROM (SELECT outcome, at FROM bulk_message WHERE at > clock_timestamp() - interval '1 hour' ORDER BY at DESC LIMIT $1) latest
          GROUP BY outcome",
    )
    .bind(COUNTED)
    .fetch_all(conn)
    .await?;
    let (mut minute, mut hour) = (FeedCounts::default(), FeedCounts::default());
    for (Word(outcome), of_minute, of_hour) in rows {
        for (counts, number) in [(&mut minute, of_minute), (&mut hour, of_hour)] {
            match outcome {
                MessageOutcome::Accepted => counts.accepted = number,
                MessageOutcome::Duplicate => counts.duplicate = number,
                MessageOutcome::Rejected => counts.rejected = number,
            }
        }
    }
    Ok((minute, hour))
}

#[derive(sqlx_macros::FromRow)]
struct UploaderRow {
    principal_id: i64,
    name: String,
    amqp_user: Option<String>,
    is_default: bool,
    disabled: bool,
    messages: i64,
}

/// Who uploads what messages bring: the services that answer for a user of the broker, and the principal of this name.
pub async fn uploaders(conn: &mut PgConnection, default: &str) -> sqlx::Result<Vec<FeedUploader>> {
    let rows: Vec<UploaderRow> = sqlx::query_as(
        "SELECT p.id AS principal_id, p.name, CASE p.kind WHEN 'service' THEN p.amqp_user END AS amqp_user, p.name = $1 AS is_default,
                p.disabled, coalesce(latest.messages, 0) AS messages
           FROM principals p
           LEFT JOIN (SELECT principal_id, count(*) AS messages
                        FROM (SELECT principal_id FROM bulk_message WHERE at > clock_timestamp() - interval '1 hour'
                               ORDER BY at DESC LIMIT $2) m GROUP BY principal_id) latest ON latest.principal_id = p.id
          WHERE (p.amqp_user IS NOT NULL AND p.kind = 'service') OR p.name = $1
          ORDER BY messages DESC, p.name LIMIT $3",
    )
    .bind(default)
    .bind(COUNTED)
    .bind(UPLOADERS)
    .fetch_all(conn)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| FeedUploader {
            principal_id: row.principal_id,
            name: row.name,
            amqp_user: row.amqp_user,
            is_default: row.is_default,
            disabled: row.disabled,
            messages: row.messages,
        })
        .collect())
}

#[derive(sqlx_macros::FromRow)]
struct OutcomeRow {
    at: DateTime<Utc>,
    message_id: String,
    outcome: Word<MessageOutcome>,
    principal: Option<String>,
    document_id: Option<i64>,
    title: Option<String>,
    code: Option<String>,
    detail: Option<String>,
}

/// The latest outcomes, latest first.
pub async fn latest(conn: &mut PgConnection) -> sqlx::Result<Vec<FeedOutcome>> {
    let rows: Vec<OutcomeRow> = sqlx::query_as(
        "SELECT m.at, m.message_id, m.outcome, p.name AS principal, m.document_id, left(d.title, $2) AS title, m.code, left(m.detail, $2) AS detail
           FROM (SELECT * FROM bulk_message ORDER BY at DESC LIMIT $1) m
           LEFT JOIN principals p ON p.id = m.principal_id
           LEFT JOIN documents d ON d.id = m.document_id
          ORDER BY m.at DESC",
    )
    .bind(LATEST)
    .bind(DETAIL)
    .fetch_all(conn)
    .await?;
    Ok(rows
        .into_iter()
        .map(|row| FeedOutcome {
            at: row.at,
            message_id: row.message_id,
            outcome: row.outcome.0,
            principal: row.principal,
            document_id: row.document_id,
            title: row.title,
            code: row.code,
            detail: row.detail,
        })
        .collect())
}
