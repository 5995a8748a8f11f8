//! Generations: the trees that reprocesses of files build, out of everybody's reach until they take their place.
mod swap;

use super::{
    documents::add,
    evidence::Evidence,
    places::Place,
    scope::{Readable, readable},
    word::Word,
};
use chrono::{DateTime, Utc};
use serde_json::Value;
use sqlx::PgConnection;
use svc_client::wire::{EventKind, Settled};
use svc_ids::{DocumentId, RootId};
pub use swap::*;

/// A generation of a file.
#[derive(Clone, Debug, sqlx_macros::FromRow)]
pub struct Generation {
    pub id: RootId,
    pub options: Value,
    pub started_at: DateTime<Utc>,
    pub settled: Word<Settled>,
}

impl Generation {
    /// The place of a generation, which lies under nothing. Whoever began the reprocess had the right to change the file.
    pub fn place(&self) -> Place {
        Place { id: self.id.document(), path: Vec::new() }
    }
}

/// The generation that is being built for a file.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = file.0))]
pub async fn running(conn: &mut PgConnection, file: DocumentId) -> sqlx::Result<Option<Generation>> {
    sqlx::query_as(
        "SELECT g.generation_id AS id, g.options, g.started_at, d.settled FROM generations g JOIN documents d ON d.id = g.generation_id
          WHERE g.document_id = $1 AND NOT g.abandoned",
    )
    .bind(file)
    .fetch_optional(conn)
    .await
}

/// What the tasks cannot read from the bytes, because a request made it of them, such as with a password that is stored nowhere. The text is kept beside it.
const READ_BY_REQUESTS: [Evidence; 2] = [Evidence::Unlocked, Evidence::Prepared];

/// Whether a request made the text of a file and the text is not here, because an export leaves it behind.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = file.id().0))]
pub async fn lacks_text(conn: &mut PgConnection, file: &Place) -> sqlx::Result<bool> {
    sqlx::query_scalar(
        "SELECT EXISTS (SELECT FROM node_evidence WHERE document_id = $1 AND name = ANY($2))
            AND NOT EXISTS (SELECT FROM extractions WHERE document_id = $1)",
    )
    .bind(file.id())
    .bind(READ_BY_REQUESTS.map(Evidence::as_str).as_slice())
    .fetch_one(conn)
    .await
}

/// Begins a generation of a file: a root of its own with the file's title, and with what the requests that stored the file recorded
/// about it.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = file.id().0))]
pub async fn begin(conn: &mut PgConnection, file: &Place, options: &Value) -> sqlx::Result<Place> {
    let id: DocumentId = sqlx::query_scalar(
        "INSERT INTO documents (title, content, usetype, event_time, content_hash, settled, guard)
         SELECT title, '', usetype, event_time, content_hash, 'in_flight', -1 FROM documents WHERE id = $1 RETURNING id",
    )
    .bind(file.id())
    .fetch_one(&mut *conn)
    .await?;
    sqlx::query("INSERT INTO generations (generation_id, document_id, root_id, options) VALUES ($1, $2, $3, $4)")
        .bind(id)
        .bind(file.id())
        .bind(file.path().first().copied().unwrap_or(file.id().0))
        .bind(options)
        .execute(&mut *conn)
        .await?;
    let names: Vec<&str> = Evidence::OF_REQUESTS.iter().map(|evidence| evidence.as_str()).collect();
    sqlx::query(
        "INSERT INTO node_evidence (document_id, name, value, recorded_at)
         SELECT $2, name, value, recorded_at FROM node_evidence WHERE document_id = $1 AND name = ANY($3)",
    )
    .bind(file.id())
    .bind(id)
    .bind(names)
    .execute(&mut *conn)
    .await?;
    sqlx::query(
        "INSERT INTO extractions (document_id, text, layout)
         SELECT $2, text, layout FROM extractions x WHERE x.document_id = $1
            AND EXISTS (SELECT 1 FROM node_evidence e WHERE e.document_id = $1 AND e.name = ANY($3))",
    )
    .bind(file.id())
    .bind(id)
    .bind(READ_BY_REQUESTS.map(Evidence::as_str).as_slice())
    .execute(conn)
    .await?;
    Ok(Place { id, path: Vec::new() })
}

/// Gives up the generation of a file; `None` if none is being built.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = file.id().0))]
pub async fn abandon(conn: &mut PgConnection, file: &Place) -> sqlx::Result<Option<Generation>> {
    sqlx::query_as(
        "UPDATE generations g SET abandoned = true FROM documents d
          WHERE g.document_id = $1 AND NOT g.abandoned AND d.id = g.generation_id
         RETURNING g.generation_id AS id, g.options, g.started_at, d.settled",
    )
    .bind(file.id())
    .fetch_optional(conn)
    .await
}

/// Gives up the generations of all files at and under a place, which is about to be deleted.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = place.id().0))]
pub async fn abandon_under(conn: &mut PgConnection, place: &Place) -> sqlx::Result<Vec<Generation>> {
    sqlx::query_as(
        "UPDATE generations g SET abandoned = true FROM documents d, documents f
          WHERE f.id = g.document_id AND (f.id = $1 OR f.path @> ARRAY[$1::bigint]) AND NOT g.abandoned AND d.id = g.generation_id
         RETURNING g.generation_id AS id, g.options, g.started_at, d.settled",
    )
    .bind(place.id())
    .fetch_all(conn)
    .await
}

/// The generations that have ended, or that nobody wants any more.
pub async fn ended(conn: &mut PgConnection) -> sqlx::Result<Vec<RootId>> {
    sqlx::query_scalar(
        "SELECT g.generation_id FROM generations g JOIN documents d ON d.id = g.generation_id
          WHERE g.abandoned OR g.document_id IS NULL OR d.settled <> 'in_flight' ORDER BY 1 LIMIT 1000",
    )
    .fetch_all(conn)
    .await
}

/// Those of them that are this root, or are built for it.
#[tracing::instrument(level = "debug", skip_all, fields(root.id = root_id.0))]
pub async fn ended_of(conn: &mut PgConnection, root_id: RootId) -> sqlx::Result<Vec<RootId>> {
    sqlx::query_scalar("SELECT unnest(ended) FROM left_to_settle(ARRAY[$1::bigint])")
        .bind(root_id)
        .fetch_all(conn)
        .await
}

/// What is to become of a generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Its tasks go on, or a worker still holds one that must be stopped first.
    Wait,
    /// Nobody wants it any more.
    Remove,
    Fail,
    Swap,
}

/// What is to become of a generation; `None` if it is gone.
#[tracing::instrument(level = "debug", skip_all, fields(root.id = id.0))]
pub async fn fate(conn: &mut PgConnection, id: RootId) -> sqlx::Result<Option<Fate>> {
    let row: Option<(bool, bool, Word<Settled>)> = sqlx::query_as(
        "SELECT g.abandoned OR g.document_id IS NULL,
                EXISTS (SELECT 1 FROM task_queue t WHERE t.root_id = g.generation_id AND t.claim_token IS NOT NULL AND NOT t.final), d.settled
           FROM generations g JOIN documents d ON d.id = g.generation_id WHERE g.generation_id = $1",
    )
    .bind(id)
    .fetch_optional(conn)
    .await?;
    Ok(row.map(|row| match row {
        (_, true, _) | (false, _, Word(Settled::InFlight)) => Fate::Wait,
        (true, ..) => Fate::Remove,
        (false, _, Word(Settled::Failed)) => Fate::Fail,
        (false, _, Word(Settled::Settled)) => Fate::Swap,
    }))
}

/// The file of a generation that somebody still wants.
#[tracing::instrument(level = "debug", skip_all, fields(root.id = id.0))]
pub async fn file_of(conn: &mut PgConnection, id: RootId) -> sqlx::Result<Option<DocumentId>> {
    sqlx::query_scalar(
        "SELECT document_id FROM generations WHERE generation_id = $1 AND NOT abandoned AND document_id IS NOT NULL",
    )
    .bind(id)
    .fetch_optional(conn)
    .await
}

/// Locks a file and its generation, in order to end the generation; `None` if nobody wants it any more. The place is
/// the file's: whoever began the reprocess had the right to change it.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = file.0, root.id = id.0))]
pub async fn lock(conn: &mut PgConnection, file: DocumentId, id: RootId) -> sqlx::Result<Option<(Place, Generation)>> {
    let place: Option<Place> = sqlx::query_as("SELECT id, path FROM documents WHERE id = $1 FOR NO KEY UPDATE")
        .bind(file)
        .fetch_optional(&mut *conn)
        .await?;
    let generation: Option<Generation> = sqlx::query_as(
        "SELECT g.generation_id AS id, g.options, g.started_at, d.settled FROM generations g JOIN documents d ON d.id = g.generation_id
          WHERE g.generation_id = $1 AND g.document_id = $2 AND NOT g.abandoned FOR UPDATE OF g",
    )
    .bind(id)
    .bind(file)
    .fetch_optional(conn)
    .await?;
    Ok(place.zip(generation))
}

/// Leaves out of the evidence of a reprocess the lost links, facts, merges and bindings with an end, or of an ontology, that the scope does not cover: that
/// may have changed since.
pub async fn hide_lost(conn: &mut PgConnection, scope: &Readable, evidence: &mut Value) -> sqlx::Result<()> {
    let ends = |lost: &Value| {
        ["source_id", "target_id", "subject_id", "object_id", "ontology_id", "kept_id", "merged_id"]
            .map(|end| lost.get(end).and_then(Value::as_i64).map(DocumentId))
    };
    let lists = ["lost", "lost_facts", "lost_bindings", "lost_merges"];
    let lost = lists.iter().filter_map(|name| evidence.get(name)?.as_array()).flatten();
    let all: Vec<DocumentId> = lost.flat_map(ends).flatten().collect();
    if all.is_empty() {
        return Ok(());
    }
    let mut arguments = scope.arguments();
    add(&mut arguments, all);
    // The end that the reprocess took away is there no more, or is set aside until it is deleted.
    let hidden: Vec<DocumentId> = sqlx::query_scalar_with(
        concat!("SELECT d.id FROM documents d WHERE d.id = ANY($3) AND d.guard <> -1 AND NOT ", readable!()),
        arguments,
    )
    .fetch_all(conn)
    .await?;
    for name in lists {
        if let Some(lost) = evidence.get_mut(name).and_then(Value::as_array_mut) {
            lost.retain(|lost| !ends(lost).iter().flatten().any(|end| hidden.contains(end)));
        }
    }
    Ok(())
}

/// Deletes a generation; returns the ids of its nodes, whose index postings the caller must remove.
#[tracing::instrument(level = "debug", skip_all, fields(root.id = id.0))]
pub async fn remove(conn: &mut PgConnection, id: RootId) -> sqlx::Result<Vec<DocumentId>> {
    sqlx::query_scalar("WITH gone AS (DELETE FROM documents WHERE id = $1 OR path @> ARRAY[$1::bigint] RETURNING id) SELECT id FROM gone")
        .bind(id)
        .fetch_all(conn)
        .await
}

/// Why a generation failed: the last failure of a task of its root, as `task_type`, `error_type`, `code` and `message`.
#[tracing::instrument(level = "debug", skip_all, fields(root.id = id.0))]
pub async fn reason(conn: &mut PgConnection, id: RootId) -> sqlx::Result<Option<Value>> {
    sqlx::query_scalar(
        "SELECT jsonb_build_object('task_type', task_type, 'error_type', error_type, 'code', code, 'message', message)
           FROM task_attempts WHERE document_id = $1 AND outcome = 'failed' AND error_type <> 'dependency' ORDER BY id DESC LIMIT 1",
    )
    .bind(id)
    .fetch_optional(conn)
    .await
}

/// Records how a reprocess ended, as evidence of the file; if it did not succeed, the file's readers are warned.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = file.id().0))]
pub async fn record(conn: &mut PgConnection, file: &Place, outcome: &Value) -> sqlx::Result<()> {
    let name = Evidence::Reprocess;
    super::evidence::record(conn, file.id(), name, outcome).await?;
    if outcome["state"] != "done" {
        let told = serde_json::json!({"warning": name.as_str(), "detail": {"state": outcome["state"], "reason": {
            "task_type": outcome["reason"]["task_type"], "error_type": outcome["reason"]["error_type"], "code": outcome["reason"]["code"]}}});
        super::events::record(conn, EventKind::IngestWarning, &[file.id()], &told).await?;
    }
    Ok(())
}
