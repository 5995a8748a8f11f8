//! The record of who changed principals, tokens, grants, access roots, webhooks, search contexts, indexes and rules of views, who moved
//! documents to other readers or their vectors to another model, and who acted on the queue. Rows are only added.
use super::{text::storable_json, word::Word};
use chrono::{DateTime, Utc};
use serde_json::{Map, Value};
use sqlx::{PgConnection, types::Json};
use svc_client::wire::{AuditAct, AuditEntry, AuditQuery, OWNER};
use svc_ids::{DocumentId, PrincipalId};

/// The caller that acts.
#[derive(Clone, Copy, Debug)]
pub enum Actor<'a> {
    Owner,
    Principal { id: PrincipalId, name: &'a str },
}

impl<'a> Actor<'a> {
    /// The id, if it has one, and the name.
    fn columns(self) -> (Option<PrincipalId>, &'a str) {
        match self {
            Actor::Owner => (None, OWNER),
            Actor::Principal { id, name } => (Some(id), name),
        }
    }
}

/// An act to be recorded.
#[derive(Debug)]
pub struct Entry<'a> {
    act: AuditAct,
    principal: Option<(PrincipalId, &'a str)>,
    document_id: Option<DocumentId>,
    detail: Map<String, Value>,
}

impl<'a> Entry<'a> {
    pub fn new(act: AuditAct) -> Entry<'a> {
        Entry { act, principal: None, document_id: None, detail: Map::new() }
    }

    /// Names the principal that is acted on.
    #[must_use]
    pub fn principal(self, id: PrincipalId, name: &'a str) -> Entry<'a> {
        Entry { principal: Some((id, name)), ..self }
    }

    /// Names the document that is acted on.
    #[must_use]
    pub fn document(self, id: DocumentId) -> Entry<'a> {
        Entry { document_id: Some(id), ..self }
    }

    /// Adds what else is known, which is never a secret.
    #[must_use]
    pub fn with(mut self, name: &str, value: impl Into<Value>) -> Entry<'a> {
        self.detail.insert(name.to_owned(), value.into());
        self
    }
}

/// Records an act, in the transaction that carries it out.
pub async fn record(conn: &mut PgConnection, actor: Actor<'_>, entry: Entry<'_>) -> sqlx::Result<()> {
    let (actor_id, actor) = actor.columns();
    // Somebody else may have written a part of it.
    let detail = Value::Object(entry.detail);
    sqlx::query(
        "INSERT INTO access_audit (actor_id, actor, act, principal_id, principal, document_id, detail)
         VALUES ($1, $2, $3, $4, $5, $6, $7)",
    )
    .bind(actor_id)
    .bind(actor)
    .bind(entry.act.as_str())
    .bind(entry.principal.map(|(id, _)| id))
    .bind(entry.principal.map(|(_, name)| name))
    .bind(entry.document_id)
    .bind(storable_json(&detail).as_ref())
    .execute(conn)
    .await
    .map(|_| ())
}

/// Records which of these nodes are no access roots any more, and with `and_under` the same of every root under them. The entries
/// list the grants that go too, so call this before they go.
pub async fn record_unprotected(
    conn: &mut PgConnection,
    actor: Actor<'_>,
    ids: &[DocumentId],
    and_under: bool,
) -> sqlx::Result<()> {
    let (actor_id, actor) = actor.columns();
    sqlx::query(
        "INSERT INTO access_audit (actor_id, actor, act, document_id, detail)
         SELECT $1, $2, $3, a.document_id, jsonb_build_object('is_deleted', $5::boolean, 'grants', coalesce(
                    (SELECT jsonb_agg(jsonb_build_object('principal_id', p.id, 'principal', p.name,
                                                         'right', CASE WHEN g.can_write THEN 'write' ELSE 'read' END) ORDER BY p.id)
                       FROM access_grants g JOIN principals p ON p.id = g.principal_id WHERE g.document_id = a.document_id), '[]'))
           FROM access_roots a JOIN documents d ON d.id = a.document_id
          WHERE d.id = ANY($4) OR ($5 AND d.path && $4) ORDER BY a.document_id",
    )
    .bind(actor_id)
    .bind(actor)
    .bind(AuditAct::DocumentUnprotect.as_str())
    .bind(ids)
    .bind(and_under)
    .persistent(false)
    .execute(conn)
    .await
    .map(|_| ())
}

#[derive(sqlx_macros::FromRow)]
struct Row {
    id: i64,
    at: DateTime<Utc>,
    actor_id: Option<i64>,
    actor: String,
    act: Word<AuditAct>,
    principal_id: Option<i64>,
    principal: Option<String>,
    document_id: Option<i64>,
    detail: Json<Map<String, Value>>,
}

impl From<Row> for AuditEntry {
    fn from(row: Row) -> AuditEntry {
        AuditEntry {
            id: row.id,
            at: row.at,
            actor_id: row.actor_id,
            actor: row.actor,
            act: row.act.0,
            principal_id: row.principal_id,
            principal: row.principal,
            document_id: row.document_id,
            detail: row.detail.0,
        }
    }
}

/// The entries before `before`, newest first.
pub async fn list(
    conn: &mut PgConnection,
    query: &AuditQuery,
    before: i64,
    limit: u32,
) -> sqlx::Result<Vec<AuditEntry>> {
    let rows: Vec<Row> = sqlx::query_as(
        "SELECT id, at, actor_id, actor, act, principal_id, principal, document_id, detail FROM access_audit
          WHERE id < $1 AND ($2::bigint IS NULL OR principal_id = $2) AND ($3::bigint IS NULL OR document_id = $3)
            AND ($4::text IS NULL OR detail ->> 'task_id' = $4) AND ($5::text IS NULL OR detail ->> 'worker' = $5)
          ORDER BY id DESC LIMIT $6",
    )
    .bind(before)
    .bind(query.principal_id)
    .bind(query.document_id)
    .bind(query.task_id.map(|id| id.to_string()))
    .bind(&query.worker)
    .bind(i64::from(limit))
    .persistent(false)
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(AuditEntry::from).collect())
}
