//! Writes facts. Whoever calls a function of this file has the pen, which [`take_pen`] takes as the last lock of a transaction.
use super::FactRow;
use crate::store::{
    documents::add,
    events,
    places::Place,
    scope::{Readable, Writable, readable},
    text::Verbatim,
};
use chrono::{DateTime, Utc};
use sha2::{Digest, Sha256};
use sqlx::PgConnection;
use svc_client::wire::{EventKind, FactType};
use svc_ids::{DocumentId, PredicateId, TripleId};
use uuid::Uuid;

/// What a fact leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Object {
    Node(DocumentId),
    Literal { value: String, datatype: String, language: Option<String> },
}

/// What a fact says, whenever that holds: the first half of the SHA-256 of subject, predicate and object.
pub fn statement(subject: DocumentId, predicate: PredicateId, object: &Object) -> Uuid {
    let mut hash = Sha256::new();
    hash.update(subject.0.to_be_bytes());
    hash.update(predicate.0.to_be_bytes());
    match object {
        Object::Node(id) => hash.update(id.0.to_be_bytes()),
        Object::Literal { value, datatype, language } => {
            for part in [value, datatype, language.as_ref().unwrap_or(&String::new())] {
                hash.update((part.len() as u64).to_be_bytes());
                hash.update(part);
            }
        }
    }
    let hash = hash.finalize();
    let mut half = [0; 16];
    half.copy_from_slice(&hash[..16]);
    Uuid::from_bytes(half)
}

/// Takes the pen until the transaction ends, and returns the moment at which all that it writes is recorded.
pub async fn take_pen(conn: &mut PgConnection) -> sqlx::Result<DateTime<Utc>> {
    sqlx::query_scalar("SELECT take_pen()").fetch_one(conn).await
}

/// Moves on to the next moment: what the transaction, which has the pen, writes from here on is recorded after all that it has written, so that it may close
/// some of that. Returns that moment.
pub async fn move_on(conn: &mut PgConnection) -> sqlx::Result<DateTime<Utc>> {
    sqlx::query_scalar(
        "UPDATE knowledge_clock SET at = greatest(clock_timestamp(), at + interval '1 microsecond') RETURNING at",
    )
    .fetch_one(conn)
    .await
}

/// The documents among `ids` that the scope covers, with their guards. They are not deleted before the transaction ends.
pub async fn lock_ends(
    conn: &mut PgConnection,
    scope: &Readable,
    ids: &[DocumentId],
) -> sqlx::Result<Vec<(DocumentId, DocumentId)>> {
    let mut arguments = scope.arguments();
    add(&mut arguments, ids.to_vec());
    let query = concat!(
        "SELECT d.id, d.guard FROM documents d WHERE d.id = ANY($3) AND ",
        readable!(),
        " ORDER BY d.id FOR KEY SHARE"
    );
    sqlx::query_as_with(query, arguments).persistent(false).fetch_all(conn).await
}

/// The places among `ids` that the scope covers.
pub async fn places(conn: &mut PgConnection, scope: &Writable, ids: &[DocumentId]) -> sqlx::Result<Vec<Place>> {
    let mut arguments = scope.arguments();
    add(&mut arguments, ids.to_vec());
    let query = concat!("SELECT d.id, d.path FROM documents d WHERE d.id = ANY($3) AND ", readable!());
    sqlx::query_as_with(query, arguments).persistent(false).fetch_all(conn).await
}

/// How many bytes the texts of these documents have.
pub async fn quoted_bytes(conn: &mut PgConnection, documents: &[DocumentId]) -> sqlx::Result<i64> {
    let query = "SELECT coalesce(sum(octet_length(content)), 0)::bigint FROM documents WHERE id = ANY($1)";
    sqlx::query_scalar(query).bind(documents).fetch_one(conn).await
}

/// The hashes of the texts of documents.
pub async fn content_hashes(
    conn: &mut PgConnection,
    documents: &[DocumentId],
) -> sqlx::Result<Vec<(DocumentId, String)>> {
    let query = "SELECT id, content_hash FROM documents WHERE id = ANY($1)";
    sqlx::query_as(query).bind(documents).fetch_all(conn).await
}

/// The text of a document that the caller was shown to be able to read.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = id.0))]
pub async fn text(conn: &mut PgConnection, id: DocumentId) -> sqlx::Result<String> {
    sqlx::query_scalar("SELECT content FROM documents WHERE id = $1").bind(id).fetch_one(conn).await
}

/// A part of time that a statement is asserted for.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    pub statement: Uuid,
    pub zone: DocumentId,
    pub valid_from: Option<DateTime<Utc>>,
    pub valid_until: Option<DateTime<Utc>>,
}

/// A believed fact that overlaps what is asked.
#[derive(Clone, Debug, sqlx_macros::FromRow)]
pub struct Believed {
    pub id: TripleId,
    pub statement: Uuid,
    pub zone: DocumentId,
    pub valid_from: Option<DateTime<Utc>>,
    pub valid_until: Option<DateTime<Utc>>,
    pub created_at: DateTime<Utc>,
    pub source_id: Option<DocumentId>,
}

/// The believed facts with the same statements in the same zones that overlap, each once. What rules derived is not among them: it makes room
/// for what is asserted. The times that are asked for one statement are united first, so that no fact is found again and again.
pub async fn believed(conn: &mut PgConnection, asked: &[Asked]) -> sqlx::Result<Vec<Believed>> {
    sqlx::query_as(
        "SELECT DISTINCT t.id, t.statement, t.zone, t.valid_from, t.valid_until, t.created_at, t.source_id
           FROM (SELECT statement, zone, unnest(range_agg(tstzrange(valid_from, valid_until))) AS during
                   FROM unnest($1::uuid[], $2::bigint[], $3::timestamptz[], $4::timestamptz[]) a(statement, zone, valid_from, valid_until)
                  GROUP BY statement, zone) a
          CROSS JOIN LATERAL believed_during(a.statement, a.zone, a.during) t WHERE t.derived_by IS NULL",
    )
    .bind(asked.iter().map(|asked| asked.statement).collect::<Vec<_>>())
    .bind(asked.iter().map(|asked| asked.zone).collect::<Vec<_>>())
    .bind(asked.iter().map(|asked| asked.valid_from).collect::<Vec<_>>())
    .bind(asked.iter().map(|asked| asked.valid_until).collect::<Vec<_>>())
    .persistent(false)
    .fetch_all(conn)
    .await
}

/// A fact to record.
#[derive(Clone, Debug)]
pub struct NewTriple {
    /// One of those that [`reserve`] gives.
    pub id: TripleId,
    /// Whoever writes a fact may change its subject.
    pub subject: Place,
    pub predicate_id: PredicateId,
    pub object: Object,
    pub statement: Uuid,
    pub zone: DocumentId,
    pub valid_from: Option<DateTime<Utc>>,
    pub valid_until: Option<DateTime<Utc>>,
    /// `None` if the statement is learned now.
    pub created_at: Option<DateTime<Utc>>,
    pub previous_id: Option<TripleId>,
    pub fact_type: FactType,
    pub source_id: Option<DocumentId>,
    pub derived_by: Option<String>,
}

/// Ids for facts that are to be recorded.
pub async fn reserve(conn: &mut PgConnection, count: usize) -> sqlx::Result<Vec<TripleId>> {
    if count == 0 {
        return Ok(Vec::new());
    }
    sqlx::query_scalar("SELECT nextval(pg_get_serial_sequence('triples', 'id')) FROM generate_series(1, $1::bigint)")
        .bind(count as i64)
        .fetch_all(conn)
        .await
}

/// Records facts.
pub async fn insert(conn: &mut PgConnection, at: DateTime<Utc>, new: &[NewTriple]) -> sqlx::Result<()> {
    if new.is_empty() {
        return Ok(());
    }
    let (mut nodes, mut values, mut datatypes, mut languages) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for row in new {
        let (node, value, datatype, language) = match &row.object {
            Object::Node(id) => (Some(*id), None, None, None),
            Object::Literal { value, datatype, language } => {
                (None, Some(Verbatim(value.clone())), Some(datatype), language.as_ref())
            }
        };
        nodes.push(node);
        values.push(value);
        datatypes.push(datatype);
        languages.push(language);
    }
    sqlx::query(
        "INSERT INTO triples (id, zone, subject_id, predicate_id, object_id, object_literal, object_datatype, object_language, statement,
                valid_from, valid_until, created_at, recorded_at, previous_id, fact_type, source_id, derived_by) OVERRIDING SYSTEM VALUE
         SELECT n.id, n.zone, n.subject_id, n.predicate_id, n.object_id, n.literal, n.datatype, n.language, n.statement,
                n.valid_from, n.valid_until, coalesce(n.created_at, $1), $1, n.previous_id, n.fact_type, n.source_id, n.derived_by
           FROM unnest($2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::text[], $8::text[], $9::text[], $10::uuid[],
                       $11::timestamptz[], $12::timestamptz[], $13::timestamptz[], $14::bigint[], $15::text[], $16::bigint[], $17::text[])
                n(id, zone, subject_id, predicate_id, object_id, literal, datatype, language, statement, valid_from, valid_until,
                  created_at, previous_id, fact_type, source_id, derived_by)",
    )
    .bind(at)
    .bind(new.iter().map(|row| row.id).collect::<Vec<_>>())
    .bind(new.iter().map(|row| row.zone).collect::<Vec<_>>())
    .bind(new.iter().map(|row| row.subject.id()).collect::<Vec<_>>())
    .bind(new.iter().map(|row| row.predicate_id).collect::<Vec<_>>())
    .bind(nodes)
    .bind(values)
    .bind(datatypes)
    .bind(languages)
    .bind(new.iter().map(|row| row.statement).collect::<Vec<_>>())
    .bind(new.iter().map(|row| row.valid_from).collect::<Vec<_>>())
    .bind(new.iter().map(|row| row.valid_until).collect::<Vec<_>>())
    .bind(new.iter().map(|row| row.created_at).collect::<Vec<_>>())
    .bind(new.iter().map(|row| row.previous_id).collect::<Vec<_>>())
    .bind(new.iter().map(|row| row.fact_type.as_str()).collect::<Vec<_>>())
    .bind(new.iter().map(|row| row.source_id).collect::<Vec<_>>())
    .bind(new.iter().map(|row| row.derived_by.as_deref()).collect::<Vec<_>>())
    .execute(&mut *conn)
    .await?;
    // What an older fact is left of is nothing new.
    let told: Vec<TripleId> = new.iter().filter(|row| row.previous_id.is_none()).map(|row| row.id).collect();
    events::facts(conn, EventKind::TripleCreated, &told).await
}

/// A fact to close, with its subject, which the caller may change.
#[derive(Clone, Debug)]
pub struct Closing {
    pub subject: Place,
    pub id: TripleId,
    /// The fact that takes its place, which the transaction records next.
    pub by: Option<TripleId>,
}

/// Ends the belief in facts.
pub async fn close(
    conn: &mut PgConnection,
    at: DateTime<Utc>,
    closings: &[Closing],
    invalidation: &str,
) -> sqlx::Result<()> {
    if closings.is_empty() {
        return Ok(());
    }
    sqlx::query(
        "UPDATE triples t SET invalidated_at = $1, invalidated_by = c.by, invalidation = $2
           FROM unnest($3::bigint[], $4::bigint[], $5::bigint[]) c(id, by, subject_id)
          WHERE t.id = c.id AND t.subject_id = c.subject_id AND t.invalidated_at IS NULL",
    )
    .bind(at)
    .bind(invalidation)
    .bind(closings.iter().map(|closing| closing.id).collect::<Vec<_>>())
    .bind(closings.iter().map(|closing| closing.by).collect::<Vec<_>>())
    .bind(closings.iter().map(|closing| closing.subject.id()).collect::<Vec<_>>())
    .execute(&mut *conn)
    .await?;
    let kind = if closings.iter().any(|closing| closing.by.is_some()) {
        EventKind::TripleSuperseded
    } else {
        EventKind::TripleInvalidated
    };
    events::facts(conn, kind, &closings.iter().map(|closing| closing.id).collect::<Vec<_>>()).await
}

/// Facts that are asserted without a source hold whatever becomes of the documents that state them too.
pub async fn stand_alone(conn: &mut PgConnection, facts: &[TripleId]) -> sqlx::Result<()> {
    if facts.is_empty() {
        return Ok(());
    }
    sqlx::query("UPDATE triples SET source_id = NULL WHERE id = ANY($1) AND zone = 0 AND source_id IS NOT NULL")
        .bind(facts)
        .execute(conn)
        .await
        .map(|_| ())
}

/// A document that states a fact.
#[derive(Clone, Debug)]
pub struct NewCitation {
    pub triple_id: TripleId,
    pub document_id: DocumentId,
    /// Characters of its text.
    pub quote: Option<(i32, i32)>,
    pub source_hash: String,
    pub confidence: Option<f64>,
}

/// Records which documents state facts; the same words of a document are cited once, and once more when its text has changed since. Of the citations
/// of its former texts only the first stays, which says since when the document states the fact.
pub async fn cite(conn: &mut PgConnection, at: DateTime<Utc>, new: &[NewCitation]) -> sqlx::Result<()> {
    if new.is_empty() {
        return Ok(());
    }
    sqlx::query(
        "WITH cited AS (
             SELECT * FROM unnest($2::bigint[], $3::bigint[], $4::int[], $5::int[], $6::text[], $7::float8[])
                    n(triple_id, document_id, quote_start, quote_end, source_hash, confidence)),
              outdated AS (
             DELETE FROM triple_citations c USING cited n
              WHERE c.triple_id = n.triple_id AND c.document_id = n.document_id AND c.source_hash <> n.source_hash
                AND EXISTS (SELECT FROM triple_citations f WHERE f.triple_id = c.triple_id AND f.document_id = c.document_id AND f.id < c.id))
         INSERT INTO triple_citations (triple_id, document_id, quote_start, quote_end, source_hash, confidence, cited_at)
         SELECT n.*, $1 FROM cited n ON CONFLICT DO NOTHING",
    )
    .bind(at)
    .bind(new.iter().map(|row| row.triple_id).collect::<Vec<_>>())
    .bind(new.iter().map(|row| row.document_id).collect::<Vec<_>>())
    .bind(new.iter().map(|row| row.quote.map(|(start, _)| start)).collect::<Vec<_>>())
    .bind(new.iter().map(|row| row.quote.map(|(_, end)| end)).collect::<Vec<_>>())
    .bind(new.iter().map(|row| row.source_hash.as_str()).collect::<Vec<_>>())
    .bind(new.iter().map(|row| row.confidence).collect::<Vec<_>>())
    .execute(conn)
    .await
    .map(|_| ())
}

/// Gives facts the citations of those that they are left of, or that they took in: pairs of old and new.
pub async fn inherit(conn: &mut PgConnection, pairs: &[(TripleId, TripleId)]) -> sqlx::Result<()> {
    if pairs.is_empty() {
        return Ok(());
    }
    sqlx::query(
        "INSERT INTO triple_citations (triple_id, document_id, quote_start, quote_end, source_hash, confidence, cited_at)
         SELECT p.new, c.document_id, c.quote_start, c.quote_end, c.source_hash, c.confidence, c.cited_at
           FROM unnest($1::bigint[], $2::bigint[]) p(old, new) JOIN triple_citations c ON c.triple_id = p.old
          ORDER BY c.id ON CONFLICT DO NOTHING",
    )
    .bind(pairs.iter().map(|(old, _)| *old).collect::<Vec<_>>())
    .bind(pairs.iter().map(|(_, new)| *new).collect::<Vec<_>>())
    .execute(conn)
    .await
    .map(|_| ())
}

/// A fact that a caller wants to close, as it is now; `None` if the scope does not cover it.
#[tracing::instrument(level = "debug", skip_all, fields(triple.id = id.0))]
pub async fn read(conn: &mut PgConnection, scope: &Readable, id: TripleId) -> sqlx::Result<Option<FactRow>> {
    Ok(super::read_many(conn, scope, &[id]).await?.pop())
}
