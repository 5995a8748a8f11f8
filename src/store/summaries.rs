//! What a language model is given of a container, and what it answered.
use super::{nodes::NOT_OF_A_TEXT, places::Place, raptor::Placed, vectors::Weighted};
use crate::usetype::Usetype;
use sqlx::PgConnection;
use std::{
    collections::{BTreeSet, HashMap, HashSet},
    slice,
};
use svc_ids::{DocumentId, TaskId};

/// A text under a container: that of a leaf, or the summary of a container below.
#[derive(Debug, PartialEq, Eq, sqlx_macros::FromRow)]
pub struct Source {
    /// The container that is told of.
    pub container: DocumentId,
    pub id: DocumentId,
    /// The ids of its ancestors, root first.
    pub path: Vec<i64>,
    pub position: Option<i32>,
    pub title: String,
    pub content_hash: String,
    /// The size of the text of a leaf; 0 for a summary, which is no longer than a window of the embedding model.
    pub bytes: i32,
}

impl Source {
    /// Where it stands.
    pub fn placed(&self) -> Placed<'_> {
        (self.id, &self.path, self.position)
    }
}

/// The texts under containers that whoever reads a container may read too: the summaries below it, and the settled leaves that tasks
/// made outside of these. Files that somebody put under a container do not count. Nothing is read of a container whose texts have more than `most` bytes together; a
/// summary, whose size is not known before it is read, counts as 64. What is under a container is a range of the order in which the tree is read, which
/// also costs little where much was written a moment ago, unlike the index of ancestors.
pub async fn sources(
    conn: &mut PgConnection,
    containers: &[DocumentId],
    most: Option<i64>,
) -> sqlx::Result<Vec<Source>> {
    sqlx::query_as(
        "SELECT s.* FROM (
         SELECT s.*, sum(CASE s.bytes WHEN 0 THEN 64 ELSE s.bytes END) OVER (PARTITION BY s.container) AS size
           FROM unnest($1::bigint[]) AS u(container) CROSS JOIN LATERAL (
             WITH under AS MATERIALIZED (
                 SELECT d.id, d.path, d.position, d.title, d.content_hash, d.usetype, d.settled, d.guard = c.guard AS is_alike,
                        octet_length(d.content) AS bytes, n.root_id = d.id AS is_guest, n.root_id IS NOT NULL AS is_container
                   FROM documents c JOIN documents d ON d.path || d.id > c.path || c.id AND d.path || d.id < c.path || (c.id + 1)
                   LEFT JOIN LATERAL (SELECT i.root_id FROM ingest_node i WHERE i.document_id = d.id OFFSET 0) n ON true
                  WHERE c.id = u.container),
             guests AS MATERIALIZED (SELECT coalesce(array_agg(id) FILTER (WHERE is_guest), '{}') AS ids FROM under),
             told AS MATERIALIZED (
                 SELECT coalesce(array_agg(d.id), '{}') AS ids FROM under d CROSS JOIN guests g
                  WHERE d.is_container AND NOT d.is_guest AND d.is_alike AND d.settled = 'settled' AND NOT d.path && g.ids
                    AND (SELECT e.value ? 'text' FROM node_evidence e WHERE e.document_id = d.id AND e.name = 'effective_content'))
             SELECT u.container, d.id, d.path, d.position, d.title, d.content_hash, CASE WHEN d.id = ANY(t.ids) THEN 0 ELSE d.bytes END AS bytes
               FROM under d CROSS JOIN guests g CROSS JOIN told t
              WHERE d.is_alike AND NOT d.path && g.ids AND NOT d.path && t.ids AND (d.id = ANY(t.ids)
                    OR (d.usetype = ANY($2) AND d.settled = 'settled' AND d.bytes > 0 AND NOT d.is_container
                        AND (SELECT o.rule <> ALL($3) FROM node_origins o WHERE o.document_id = d.id)))) s) s
          WHERE $4::bigint IS NULL OR s.size <= $4 ORDER BY s.container, s.id",
    )
    .bind(containers)
    .bind(Usetype::texts())
    .bind(&NOT_OF_A_TEXT[..])
    .bind(most)
    .fetch_all(conn)
    .await
}

/// The texts of sources.
pub async fn texts(conn: &mut PgConnection, sources: &[DocumentId]) -> sqlx::Result<HashMap<DocumentId, String>> {
    let texts: Vec<(DocumentId, String)> = sqlx::query_as(
        "SELECT d.id, coalesce(e.value ->> 'text', d.content) FROM documents d
           LEFT JOIN node_evidence e ON e.document_id = d.id AND e.name = 'effective_content' WHERE d.id = ANY($1)",
    )
    .bind(sources)
    .fetch_all(conn)
    .await?;
    Ok(texts.into_iter().collect())
}

/// What a language model answered.
#[derive(Clone, Debug, sqlx_macros::FromRow)]
pub struct LlmAnswer {
    pub answer: String,
    /// Whether the endpoint cut it off.
    pub is_cut: bool,
    /// The model, as its endpoint names it.
    pub model: String,
    pub prompt_tokens: i64,
    pub completion_tokens: i64,
    /// The batch that brought it; `None` after a call of its own.
    pub batch_id: Option<i64>,
}

/// What a document is asked about: by tasks of this type, for this document.
#[derive(Clone, Copy, Debug)]
pub struct Asker<'a> {
    pub document_id: DocumentId,
    pub task_type: &'a str,
}

/// The answer to a question that was asked before, for this document or another. Another document's is kept for this one too, so that what becomes
/// of the other one takes nothing from it.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = asker.document_id.0))]
pub async fn answer(conn: &mut PgConnection, asker: Asker<'_>, asked: &[u8]) -> sqlx::Result<Option<LlmAnswer>> {
    sqlx::query_as(
        "WITH known AS MATERIALIZED (
             SELECT document_id, answer, is_cut, model, prompt_tokens, completion_tokens, batch_id FROM llm_answers
              WHERE asked = $2 ORDER BY document_id <> $1, document_id LIMIT 1),
         own AS (
             INSERT INTO llm_answers (document_id, asked, task_type, answer, is_cut, model, prompt_tokens, completion_tokens, batch_id)
             SELECT d.id, $2, $3, k.answer, k.is_cut, k.model, k.prompt_tokens, k.completion_tokens, k.batch_id
               FROM known k JOIN documents d ON d.id = $1 WHERE k.document_id <> $1 FOR KEY SHARE OF d
             ON CONFLICT DO NOTHING)
         SELECT answer, is_cut, model, prompt_tokens, completion_tokens, batch_id FROM known",
    )
    .bind(asker.document_id)
    .bind(asked)
    .bind(asker.task_type)
    .fetch_optional(conn)
    .await
}

#[derive(sqlx_macros::FromRow)]
struct AnswerRow {
    document_id: DocumentId,
    #[sqlx(flatten)]
    kept: LlmAnswer,
}

/// The whole answers of at most so many bytes to questions that were asked for these documents, one question for each.
pub async fn answers(
    conn: &mut PgConnection,
    documents: &[DocumentId],
    asked: &[Vec<u8>],
    most: i64,
) -> sqlx::Result<HashMap<DocumentId, LlmAnswer>> {
    let rows: Vec<AnswerRow> = sqlx::query_as(
        "SELECT a.document_id, a.answer, a.is_cut, a.model, a.prompt_tokens, a.completion_tokens, a.batch_id
           FROM unnest($1::bigint[], $2::bytea[]) AS q(document_id, asked) JOIN llm_answers a ON a.document_id = q.document_id AND a.asked = q.asked
          WHERE NOT a.is_cut AND octet_length(a.answer) <= $3",
    )
    .bind(documents)
    .bind(asked)
    .bind(most)
    .fetch_all(conn)
    .await?;
    Ok(rows.into_iter().map(|row| (row.document_id, row.kept)).collect())
}

/// Which of these questions have an answer, for whichever document.
pub async fn answered(conn: &mut PgConnection, asked: &[Vec<u8>]) -> sqlx::Result<HashSet<Vec<u8>>> {
    let answered: Vec<Vec<u8>> = sqlx::query_scalar("SELECT DISTINCT asked FROM llm_answers WHERE asked = ANY($1)")
        .bind(asked)
        .fetch_all(conn)
        .await?;
    Ok(answered.into_iter().collect())
}

/// Keeps an answer for a document, unless the document is gone.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = asker.document_id.0))]
pub async fn keep_answer(
    conn: &mut PgConnection,
    asker: Asker<'_>,
    asked: &[u8],
    answer: &LlmAnswer,
) -> sqlx::Result<()> {
    sqlx::query(
        "INSERT INTO llm_answers (document_id, asked, task_type, answer, is_cut, model, prompt_tokens, completion_tokens)
         SELECT id, $2, $3, $4, $5, $6, $7, $8 FROM documents WHERE id = $1 FOR KEY SHARE ON CONFLICT DO NOTHING",
    )
    .bind(asker.document_id)
    .bind(asked)
    .bind(asker.task_type)
    .bind(&answer.answer)
    .bind(answer.is_cut)
    .bind(&answer.model)
    .bind(answer.prompt_tokens)
    .bind(answer.completion_tokens)
    .execute(conn)
    .await
    .map(|_| ())
}

/// Removes the answers to these questions, whichever document they were asked for: they are of no use to any.
pub async fn forget(conn: &mut PgConnection, asked: &[Vec<u8>]) -> sqlx::Result<()> {
    sqlx::query("DELETE FROM llm_answers WHERE asked = ANY($1)").bind(asked).execute(conn).await.map(|_| ())
}

/// Removes what tasks of this type were answered for a document, but these answers. As long as another such task of the document may still run,
/// which is until it completes, nothing is removed: that one has paid for its answers too.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = asker.document_id.0, task.id = task_id.0))]
pub async fn keep_only(
    conn: &mut PgConnection,
    asker: Asker<'_>,
    task_id: TaskId,
    asked: &[Vec<u8>],
) -> sqlx::Result<()> {
    sqlx::query(
        "DELETE FROM llm_answers WHERE document_id = $1 AND task_type = $2 AND asked <> ALL($3)
            AND NOT EXISTS (SELECT FROM task_queue t WHERE t.scope_document_id = $1 AND t.task_type = $2 AND t.id <> $4 AND t.status <> 'completed')",
    )
    .bind(asker.document_id)
    .bind(asker.task_type)
    .bind(asked)
    .bind(task_id)
    .execute(conn)
    .await
    .map(|_| ())
}

/// The same for many documents, of each of which one task asked one question.
pub async fn keep_only_one(
    conn: &mut PgConnection,
    task_type: &str,
    documents: &[DocumentId],
    tasks: &[TaskId],
    asked: &[Vec<u8>],
) -> sqlx::Result<()> {
    sqlx::query(
        "DELETE FROM llm_answers a USING unnest($1::bigint[], $2::bigint[], $3::bytea[]) AS kept(document_id, task_id, asked)
          WHERE a.document_id = kept.document_id AND a.task_type = $4 AND a.asked <> kept.asked
            AND NOT EXISTS (SELECT FROM task_queue t WHERE t.scope_document_id = kept.document_id AND t.task_type = $4 AND t.id <> kept.task_id
                               AND t.status <> 'completed')",
    )
    .bind(documents)
    .bind(tasks)
    .bind(asked)
    .bind(task_type)
    .execute(conn)
    .await
    .map(|_| ())
}

/// Gives containers the vectors of their summaries. In the vectors above, each counts as much as before.
pub async fn set_vectors(
    conn: &mut PgConnection,
    containers: &[DocumentId],
    vectors: &[Weighted],
    model: &str,
) -> sqlx::Result<()> {
    write_vectors(conn, containers, vectors, model, true).await
}

/// Stores such vectors, beside those of other models or in their place.
pub(super) async fn write_vectors(
    conn: &mut PgConnection,
    containers: &[DocumentId],
    vectors: &[Weighted],
    model: &str,
    alone: bool,
) -> sqlx::Result<()> {
    sqlx::query(
        "WITH others AS (DELETE FROM document_vectors WHERE $5 AND document_id = ANY($1) AND embed_model <> $4)
         INSERT INTO document_vectors (document_id, embed_model, embed, weight, root_id)
         SELECT n.id, $4, n.embed, n.weight, vector_root('document_vectors', n.id) FROM unnest($1::bigint[], $2::halfvec[], $3::real[]) AS n(id, embed, weight) ORDER BY n.id
         ON CONFLICT (document_id, embed_model, root_id) DO UPDATE SET embed = excluded.embed",
    )
    .bind(containers)
    .bind(vectors.iter().map(|weighted| weighted.vector.clone()).collect::<Vec<_>>())
    .bind(vectors.iter().map(|weighted| weighted.weight).collect::<Vec<_>>())
    .bind(model)
    .bind(alone)
    .execute(conn)
    .await
    .map(|_| ())
}

/// Removes the texts of the summaries that tell of something at or under these places, and what language models answered for them and for these.
pub async fn forget_over(conn: &mut PgConnection, places: &[Place]) -> sqlx::Result<()> {
    let own: Vec<DocumentId> = places.iter().map(Place::id).collect();
    forget_texts(conn, places, Forgotten { answers: &own, shown: &own }).await.map(|_| ())
}

/// Does the same before a place is moved: what was answered for itself is still right.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = place.id().0))]
pub async fn forget_above(conn: &mut PgConnection, place: &Place) -> sqlx::Result<()> {
    let forgotten = Forgotten { answers: &[], shown: &[place.id()] };
    forget_texts(conn, slice::from_ref(place), forgotten).await.map(|_| ())
}

/// Does the same after the title of a container changed, which only the summaries above it may have: what was answered for itself is still right.
/// Returns the containers whose summaries lost their texts.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = place.id().0))]
pub async fn forget_title(conn: &mut PgConnection, place: &Place) -> sqlx::Result<Vec<DocumentId>> {
    forget_texts(conn, slice::from_ref(place), Forgotten::default()).await
}

/// Documents that lose what is their own.
#[derive(Clone, Copy, Debug, Default)]
struct Forgotten<'a> {
    /// What language models answered for these.
    answers: &'a [DocumentId],
    /// The facts that were only shown of these.
    shown: &'a [DocumentId],
}

/// The summary of a container tells of the parts of its file, and of no document that somebody put under it. A tree of summaries may tell of all that is
/// under its document. What else was asked of a document above is asked of its own text.
async fn forget_texts(
    conn: &mut PgConnection,
    places: &[Place],
    forgotten: Forgotten<'_>,
) -> sqlx::Result<Vec<DocumentId>> {
    let files = super::edits::files(conn, places).await?;
    let containers = |place: &Place| -> Vec<i64> {
        let file = files.get(&place.id()).map(|file| file.document().0);
        place.path().iter().copied().skip_while(|id| Some(*id) != file).collect()
    };
    let containers: BTreeSet<i64> = places.iter().flat_map(containers).collect();
    let containers = Vec::from_iter(containers);
    let above: BTreeSet<i64> = places.iter().flat_map(|place| place.path().iter().copied()).collect();
    if !containers.is_empty() {
        super::llm_batches::leave_of(conn, &containers).await?;
    }
    sqlx::query_scalar(
        "WITH gone AS (
             DELETE FROM llm_answers WHERE document_id = ANY($1) OR (document_id = ANY($3) AND task_type = 'summarize:llm')
                 OR (document_id = ANY($4) AND task_type = $5)),
         shown AS (DELETE FROM node_evidence WHERE document_id = ANY($2) AND name = 'facts.dry_run')
         UPDATE node_evidence SET value = (value - 'text') || '{\"text_removed\": \"a part of it was changed, moved or closed\"}'
          WHERE document_id = ANY($3) AND name = 'effective_content' AND value ? 'text' RETURNING document_id",
    )
    .bind(forgotten.answers)
    .bind(forgotten.shown)
    .bind(containers)
    .bind(Vec::from_iter(above))
    .bind(super::raptor::RULE)
    .fetch_all(conn)
    .await
}
