//! Documents that are created together: their keys, their rows, and the tasks that embed many of them at once.
use super::{
    documents::content_hash,
    lexicon::Lexicon,
    nodes::braces,
    places::Place,
    scope::{Readable, readable},
    text::{storable, storable_json},
};
use chrono::{DateTime, Utc};
use serde_json::Value;
use sqlx::PgConnection;
use std::collections::{HashMap, HashSet};
use svc_ids::{DocumentId, PrincipalId, TaskId};

/// A document to be made.
pub struct NewDocument<'a> {
    /// One of [`super::nodes::reserve_ids`].
    pub place: Place,
    pub title: &'a str,
    pub content: &'a str,
    pub structured_content: Value,
    pub usetype: &'a str,
    pub position: Option<i32>,
    pub event_time: Option<DateTime<Utc>>,
}

/// The place of a document that [`insert`] is to make, under a parent that may be written, or at the top.
pub fn new_place(parent: Option<&Place>, id: DocumentId) -> Place {
    Place { id, path: parent.map(Place::children_path).unwrap_or_default() }
}

/// Stores documents, parents before their children; each is as guarded as the nearest ancestor that was there before. The transaction is
/// one of [`super::transaction::begin_creating`].
pub async fn insert(conn: &mut PgConnection, lexicon: &Lexicon, documents: &[NewDocument<'_>]) -> sqlx::Result<()> {
    let words = lexicon.words(documents.iter().map(|new| (new.title, new.content)).collect()).await;
    let contents: Vec<String> = documents.iter().map(|new| storable(new.content).into_owned()).collect();
    sqlx::query(
        "WITH words AS (INSERT INTO document_words (document_id, words) SELECT id, words::tsvector FROM unnest($1::bigint[], $10::text[]) AS w(id, words))
         INSERT INTO documents (id, parent_id, path, title, content, usetype, position, event_time, content_hash, structured_content, guard)
         OVERRIDING SYSTEM VALUE
         SELECT id, path[cardinality(path)], path, title, content, usetype, position, event_time, content_hash, structured_content,
                coalesce((SELECT p.guard FROM documents p WHERE p.id = ANY(n.path) ORDER BY cardinality(p.path) DESC LIMIT 1), 0)
           FROM (SELECT id, path::bigint[] AS path, title, content, usetype, position, event_time, content_hash, structured_content
                   FROM unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::int[], $7::timestamptz[], $8::text[], $9::jsonb[])
                     AS n(id, path, title, content, usetype, position, event_time, content_hash, structured_content)) n",
    )
    .bind(documents.iter().map(|new| new.place.id()).collect::<Vec<_>>())
    .bind(documents.iter().map(|new| braces(new.place.path())).collect::<Vec<_>>())
    .bind(documents.iter().map(|new| storable(new.title).into_owned()).collect::<Vec<_>>())
    .bind(&contents)
    .bind(documents.iter().map(|new| new.usetype).collect::<Vec<_>>())
    .bind(documents.iter().map(|new| new.position).collect::<Vec<_>>())
    .bind(documents.iter().map(|new| new.event_time).collect::<Vec<_>>())
    .bind(contents.iter().map(|content| content_hash(content)).collect::<Vec<_>>())
    .bind(documents.iter().map(|new| storable_json(&new.structured_content).into_owned()).collect::<Vec<_>>())
    .bind(words)
    .execute(conn)
    .await
    .map(|_| ())
}

/// The documents that a caller created with these keys; `None` is the owner.
pub async fn with_keys(
    conn: &mut PgConnection,
    principal: Option<PrincipalId>,
    keys: &[&str],
) -> sqlx::Result<HashMap<String, DocumentId>> {
    let rows: Vec<(String, DocumentId)> = sqlx::query_as(
        "SELECT key, document_id FROM document_keys WHERE key = ANY($2) AND principal_id IS NOT DISTINCT FROM $1",
    )
    .bind(principal)
    .bind(keys)
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().collect())
}

/// Gives new documents their keys, in place of documents that lose theirs; false if another call of the caller has just taken one of
/// them.
pub async fn give_keys(
    conn: &mut PgConnection,
    principal: Option<PrincipalId>,
    keys: &[(&str, DocumentId)],
    lost: &[DocumentId],
) -> sqlx::Result<bool> {
    let (keys, ids): (Vec<&str>, Vec<DocumentId>) = keys.iter().copied().unzip();
    sqlx::query(
        "DELETE FROM document_keys WHERE document_id = ANY($1) AND key = ANY($2) AND principal_id IS NOT DISTINCT FROM $3",
    )
    .bind(lost)
    .bind(&keys)
    .bind(principal)
    .execute(&mut *conn)
    .await?;
    let given = sqlx::query(
        "INSERT INTO document_keys (principal_id, key, document_id)
         SELECT $1, key, id FROM unnest($2::text[], $3::bigint[]) AS k(key, id) ORDER BY key ON CONFLICT DO NOTHING",
    )
    .bind(principal)
    .bind(&keys)
    .bind(&ids)
    .execute(conn)
    .await?;
    Ok(given.rows_affected() == keys.len() as u64)
}

/// Leaves out the documents that the scope does not cover.
pub async fn readable_of(
    conn: &mut PgConnection,
    scope: &Readable,
    ids: &[DocumentId],
) -> sqlx::Result<HashSet<DocumentId>> {
    let mut arguments = scope.arguments();
    super::documents::add(&mut arguments, ids.to_vec());
    let query = concat!("SELECT d.id FROM documents d WHERE d.id = ANY($3) AND ", readable!());
    let ids: Vec<DocumentId> = sqlx::query_scalar_with(query, arguments).fetch_all(conn).await?;
    Ok(ids.into_iter().collect())
}

/// The documents among these that still exist, each with the time of its last change, by id.
pub async fn times(conn: &mut PgConnection, ids: &[DocumentId]) -> sqlx::Result<Vec<(DocumentId, DateTime<Utc>)>> {
    sqlx::query_as("SELECT id, updated_at FROM documents WHERE id = ANY($1) ORDER BY id")
        .bind(ids)
        .fetch_all(conn)
        .await
}

/// Leaves out the documents that were changed after the time beside them, or deleted. The caller has locked them.
pub async fn unchanged(
    conn: &mut PgConnection,
    documents: &[(DocumentId, DateTime<Utc>)],
) -> sqlx::Result<HashSet<DocumentId>> {
    let (ids, times): (Vec<DocumentId>, Vec<DateTime<Utc>>) = documents.iter().copied().unzip();
    let ids: Vec<DocumentId> = sqlx::query_scalar(
        "SELECT d.id FROM unnest($1::bigint[], $2::timestamptz[]) AS seen(id, at) JOIN documents d ON d.id = seen.id AND d.updated_at = seen.at",
    )
    .bind(&ids)
    .bind(&times)
    .fetch_all(conn)
    .await?;
    Ok(ids.into_iter().collect())
}

/// The places of those documents that still exist.
pub async fn places(conn: &mut PgConnection, ids: &[DocumentId]) -> sqlx::Result<Vec<Place>> {
    sqlx::query_as("SELECT id, path FROM documents WHERE id = ANY($1) ORDER BY id").bind(ids).fetch_all(conn).await
}

/// Has tasks that embed many documents ($1) stand at another one of these, not at or under documents that go ($2), and returns the tasks for which there is
/// one. Nobody deletes or moves that one, nor deletes what is above it, until the transaction ends. $3 says what is done about a document that somebody has
/// locked: whether this waits, or looks for another one. What is above a document is locked before it, from the top down, as `keep_in_place` explains.
const STAND_ELSEWHERE: &str = "
    WITH heirs AS MATERIALIZED (
        SELECT t.id AS task_id, h.id, h.path FROM task_queue t JOIN documents s ON s.id = t.scope_document_id CROSS JOIN LATERAL (
               SELECT m.id, m.path FROM (
                      SELECT d.id, d.path FROM documents d
                       WHERE d.id IN (SELECT member.id::bigint FROM jsonb_array_elements_text(t.params -> 'documents') AS member(id))
                         AND d.id <> ALL($2) AND NOT d.path && $2 ORDER BY d.id OFFSET 0) m
                -- Whoever deletes what is above the place of the task too waits for the task.
                WHERE keep_in_place(m.id, m.path, ARRAY(SELECT above.id FROM unnest(m.path) WITH ORDINALITY AS above(id, depth)
                                                         WHERE above.id <> ALL(s.path) ORDER BY above.depth), $3) LIMIT 1) h
         WHERE t.id = ANY($1))
    UPDATE task_queue t SET scope_document_id = h.id, root_id = h.id, node_depth = cardinality(h.path),
           node_path = array_to_string(h.path || h.id, '/') || '/'
      FROM heirs h WHERE t.id = h.task_id RETURNING t.id";

/// Saves the tasks that embed many documents and stand at or under one that is about to be deleted: each goes to
/// another of its documents. Whoever changes that one, or deletes what is above it, waits until the transaction ends, however much it deletes: a lock
/// that let changes through would let moves through too, and the task would stay in the old place.
pub async fn hand_over(conn: &mut PgConnection, gone: &[Place]) -> sqlx::Result<()> {
    let gone: Vec<DocumentId> = gone.iter().map(Place::id).collect();
    let mut left: Vec<TaskId> = sqlx::query_scalar(
        "SELECT t.id FROM documents g JOIN task_queue t ON t.scope_document_id = g.id
          WHERE (g.id = ANY($1) OR g.path && $1) AND NOT t.final AND t.params ? 'documents'",
    )
    .bind(&gone)
    .fetch_all(&mut *conn)
    .await?;
    // A document that somebody deletes or moves now, by itself or with what is above it, gets a task only where all others are locked too, and then
    // once it is known what becomes of it. The last look finds what was moved while the one before it waited.
    for waits in [false, true, true] {
        if left.is_empty() {
            break;
        }
        let saved: Vec<TaskId> =
            sqlx::query_scalar(STAND_ELSEWHERE).bind(&left).bind(&gone).bind(waits).fetch_all(&mut *conn).await?;
        left.retain(|task| !saved.contains(task));
    }
    Ok(())
}
