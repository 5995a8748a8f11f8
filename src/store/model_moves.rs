//! Moves of all vectors from one embedding model to another: how far the last one is, what it has yet to do, and the vectors that it makes beside
//! those which serve. What is left to do is read from the vectors themselves, so a move goes on wherever it was stopped, and whoever writes a
//! vector of the model that serves takes that of the coming one away and has it made anew.
use super::{
    evidence::Evidence,
    nodes::SEGMENT,
    places::Place,
    rollups,
    segments::sums,
    summaries,
    vectors::{self, Weighted},
    word::Word,
};
use chrono::{DateTime, Utc};
use serde_json::Value;
use sqlx::PgConnection;
use std::{collections::HashMap, fmt};
use svc_client::wire::ModelMoveState;
use svc_ids::DocumentId;

/// The task type that makes vectors of the coming model.
pub const TASK: &str = "reembed";
/// The most documents that are counted where the exact number says no more.
const COUNTED: i64 = 10_000;
/// The most vectors that one transaction deletes.
const DELETED: i64 = 1_000;

/// Whether the document `d` has only vectors of other models than this one, and may get one of it. The argument is the model's placeholder.
macro_rules! lacks {
    ($model:literal) => {
        concat!(
            "EXISTS (SELECT FROM document_vectors v WHERE v.document_id = d.id AND v.embed_model <> ",
            $model,
            ") AND NOT EXISTS (SELECT FROM document_vectors v WHERE v.document_id = d.id AND v.embed_model = ",
            $model,
            ") AND NOT EXISTS (SELECT FROM model_move_refusals r WHERE r.document_id = d.id AND r.seen_at = d.updated_at)"
        )
    };
}

/// The last move.
#[derive(Clone, Debug, sqlx_macros::FromRow)]
pub struct Move {
    pub serving: String,
    pub from_model: String,
    pub to_model: String,
    pub state: Word<ModelMoveState>,
    /// The last document that this pass has given to a task.
    pub up_to: DocumentId,
    pub passes: i32,
    pub done: i64,
    pub wanted: i64,
    pub started_at: DateTime<Utc>,
    pub served_at: Option<DateTime<Utc>>,
    pub ended_at: Option<DateTime<Utc>>,
    /// The next pass waits a little.
    pub rests: bool,
    /// The new model has served for so long that each process knows of it, and that no search uses the vectors of others any more.
    pub is_known: bool,
}

/// The columns of a [`Move`].
macro_rules! columns {
    () => {
        "serving, from_model, to_model, state, up_to, passes, done, wanted, started_at, served_at, ended_at, rests_until > now() AS rests,
         coalesce(served_at < now() - interval '10 seconds', false) AS is_known"
    };
}

/// The last move; `None` if there was none.
pub async fn read(conn: &mut PgConnection) -> sqlx::Result<Option<Move>> {
    sqlx::query_as(concat!("SELECT ", columns!(), " FROM model_moves")).fetch_optional(conn).await
}

/// The same, held by this transaction; `None` if there is nothing to move, or if somebody else is about to.
pub async fn take(conn: &mut PgConnection) -> sqlx::Result<Option<Move>> {
    sqlx::query_as(concat!(
        "SELECT ",
        columns!(),
        " FROM model_moves WHERE state IN ('moving', 'emptying', 'cancelling') FOR NO KEY UPDATE SKIP LOCKED"
    ))
    .fetch_optional(conn)
    .await
}

/// The model whose vectors serve, those that were replaced, the one to which vectors are being moved, and whether they are of two models meanwhile.
#[derive(Clone, Debug, sqlx_macros::FromRow)]
pub struct Served {
    pub serving: String,
    pub replaced: Vec<String>,
    pub coming: Option<String>,
    pub moves: bool,
}

/// Which model serves; `None` if no move has ever begun.
pub async fn served(conn: &mut PgConnection) -> sqlx::Result<Option<Served>> {
    sqlx::query_as(
        "SELECT serving, replaced, CASE WHEN state IN ('moving', 'emptying', 'cancelling') THEN to_model END AS coming,
                state IN ('moving', 'emptying', 'cancelling') AND from_model <> to_model AS moves
           FROM model_moves",
    )
    .fetch_optional(conn)
    .await
}

/// Whether there are vectors of other models than this one. An index has both ends at hand.
pub async fn has_others(conn: &mut PgConnection, model: &str) -> sqlx::Result<bool> {
    sqlx::query_scalar("SELECT coalesce(min(embed_model) <> $1 OR max(embed_model) <> $1, false) FROM document_vectors")
        .bind(model)
        .fetch_one(conn)
        .await
}

/// The documents that have vectors of other models alone.
#[derive(Clone, Debug, PartialEq, Eq, sqlx_macros::FromRow)]
pub struct LeftBehind {
    model: String,
    /// How many there are, up to 10,000, the first of them, and their models.
    documents: i64,
    first: Vec<i64>,
    models: Vec<String>,
}

impl fmt::Display for LeftBehind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LeftBehind { model, documents, first, models } = self;
        let first: Vec<String> = first.iter().map(ToString::to_string).collect();
        let count = if *documents < COUNTED { documents.to_string() } else { format!("at least {COUNTED}") };
        write!(
            formatter,
            "{count} documents, such as {}, have vectors of {} and none of {model}",
            first.join(", "),
            models.join(", ")
        )
    }
}

/// The documents with vectors of other models alone; `None` if there are none.
pub async fn left_behind(conn: &mut PgConnection, model: &str) -> sqlx::Result<Option<LeftBehind>> {
    sqlx::query_as(
        "SELECT $1 AS model, count(*) AS documents, (array_agg(id ORDER BY id))[1:5] AS first, (array_agg(DISTINCT model))[1:3] AS models
           FROM (SELECT v.document_id AS id, min(v.embed_model) AS model FROM document_vectors v
                  WHERE (v.embed_model < $1 OR v.embed_model > $1)
                    AND NOT EXISTS (SELECT FROM document_vectors n WHERE n.document_id = v.document_id AND n.embed_model = $1)
                  GROUP BY 1 LIMIT $2) o
         HAVING count(*) > 0",
    )
    .bind(model)
    .bind(COUNTED)
    .fetch_optional(conn)
    .await
}

/// Begins a move, unless one is under way; says whether it did.
pub async fn start(conn: &mut PgConnection, from: &str, to: &str) -> sqlx::Result<bool> {
    let begun: Option<bool> = sqlx::query_scalar(
        "INSERT INTO model_moves AS m (serving, from_model, to_model, state, wanted)
         SELECT $1, $1, $2, 'moving',
                (SELECT count(*) FROM (SELECT document_id FROM document_vectors WHERE embed_model <> $2
                                       EXCEPT SELECT document_id FROM document_vectors WHERE embed_model = $2) w)
         ON CONFLICT (only_one) DO UPDATE
            SET serving = excluded.serving, from_model = excluded.from_model, to_model = excluded.to_model, state = excluded.state,
                wanted = excluded.wanted, up_to = 0, passes = 0, done = 0, started_at = now(), served_at = NULL, ended_at = NULL, rests_until = now()
          WHERE m.state IN ('done', 'cancelled')
         RETURNING true",
    )
    .bind(from)
    .bind(to)
    .fetch_optional(&mut *conn)
    .await?;
    if begun.is_none() {
        return Ok(false);
    }
    sqlx::query("DELETE FROM model_move_refusals").execute(conn).await?;
    Ok(true)
}

/// Calls a move off whose model does not serve yet; says whether there was one. A task that comes after it keeps nothing of what it made.
pub async fn cancel(conn: &mut PgConnection) -> sqlx::Result<bool> {
    let done = sqlx::query(
        "UPDATE model_moves SET state = CASE WHEN from_model = to_model THEN 'cancelled' ELSE 'cancelling' END,
                ended_at = CASE WHEN from_model = to_model THEN now() END
          WHERE state = 'moving'",
    )
    .execute(conn)
    .await?;
    Ok(done.rows_affected() > 0)
}

/// Lets the new model serve. The vectors of others stay until [`delete_others`] takes them; their models are replaced too, where the settings had named
/// the new one without a move. Others have ten seconds from now on, and not from when the transaction began, to learn of it.
pub async fn serve(conn: &mut PgConnection) -> sqlx::Result<()> {
    sqlx::query(
        "UPDATE model_moves SET state = 'emptying', serving = to_model, served_at = clock_timestamp(), up_to = 0, passes = passes + 1,
                replaced = ARRAY(
                    SELECT m.name FROM unnest(replaced || from_model || (SELECT ARRAY[min(v.embed_model), max(v.embed_model)] FROM document_vectors v))
                           WITH ORDINALITY AS m(name, at)
                     WHERE m.name <> to_model GROUP BY m.name ORDER BY min(m.at))",
    )
    .execute(conn)
    .await
    .map(|_| ())
}

/// Begins the next pass over all documents, after a rest. One that found nothing to do counts for none.
pub async fn begin_pass(conn: &mut PgConnection) -> sqlx::Result<()> {
    sqlx::query("UPDATE model_moves SET up_to = 0, passes = passes + (up_to > 0)::integer, rests_until = now() + interval '1 second'")
        .execute(conn)
        .await
        .map(|_| ())
}

/// Records up to which document this pass has given all to tasks.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = up_to.0))]
pub async fn advance(conn: &mut PgConnection, up_to: DocumentId) -> sqlx::Result<()> {
    sqlx::query("UPDATE model_moves SET up_to = $1").bind(up_to).execute(conn).await.map(|_| ())
}

/// How many tasks of this type are unfinished.
pub async fn unfinished(conn: &mut PgConnection, task_type: &str) -> sqlx::Result<i64> {
    sqlx::query_scalar("SELECT count(*) FROM task_queue WHERE task_type = $1 AND NOT final")
        .bind(task_type)
        .fetch_one(conn)
        .await
}

/// A document that lacks a vector of the new model.
#[derive(Clone, Debug, sqlx_macros::FromRow)]
pub struct Lacking {
    #[sqlx(flatten)]
    pub place: Place,
    /// The bytes of its text.
    pub bytes: i64,
    /// The tasks of its file are counted at it.
    pub is_container: bool,
    /// A task of it waits in a batch of a provider, and keeps its region.
    pub is_batched: bool,
}

/// The last columns of a [`Lacking`], from `documents d`.
macro_rules! lacking {
    () => {
        "octet_length(d.content)::bigint AS bytes, EXISTS (SELECT FROM ingest_node n WHERE n.document_id = d.id) AS is_container,
                EXISTS (SELECT FROM task_queue t WHERE t.scope_document_id = d.id AND t.batch_id IS NOT NULL) AS is_batched"
    };
}

/// The next documents that lack a vector of this model, by id. What is in flight gets one when its task ends, and what a reprocess builds once it
/// is in its place.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = after.0))]
pub async fn lacking(
    conn: &mut PgConnection,
    model: &str,
    after: DocumentId,
    limit: i64,
) -> sqlx::Result<Vec<Lacking>> {
    // A plan that read the table whole would do so for each page.
    sqlx::raw_sql(
        "SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off",
    )
    .execute(&mut *conn)
    .await?;
    let found = sqlx::query_as(concat!(
        "SELECT d.id, d.path, ",
        lacking!(),
        " FROM (SELECT DISTINCT v.document_id FROM document_vectors v
                  WHERE v.document_id > $2 AND v.embed_model <> $1
                    AND NOT EXISTS (SELECT FROM document_vectors n WHERE n.document_id = v.document_id AND n.embed_model = $1)
                  ORDER BY 1) w
           JOIN documents d ON d.id = w.document_id
          WHERE d.settled = 'settled' AND d.guard <> -1
            AND NOT EXISTS (SELECT FROM model_move_refusals r WHERE r.document_id = d.id AND r.seen_at = d.updated_at)
          ORDER BY w.document_id LIMIT $3"
    ))
    .bind(model)
    .bind(after)
    .bind(limit)
    .persistent(false)
    .fetch_all(&mut *conn)
    .await?;
    sqlx::raw_sql(
        "SET LOCAL enable_seqscan = on; SET LOCAL enable_bitmapscan = on; SET LOCAL enable_hashjoin = on; SET LOCAL enable_mergejoin = on",
    )
    .execute(conn)
    .await?;
    Ok(found)
}

/// The first documents that have token vectors of other models than this one, by id.
pub async fn lacking_tokens(conn: &mut PgConnection, model: &str, limit: i64) -> sqlx::Result<Vec<Lacking>> {
    sqlx::query_as(concat!(
        "SELECT d.id, d.path, ",
        lacking!(),
        " FROM token_packs p JOIN documents d ON d.id = p.document_id
          WHERE p.model <> $1 AND d.settled = 'settled' AND d.guard <> -1 ORDER BY d.id LIMIT $2"
    ))
    .bind(model)
    .bind(limit)
    .fetch_all(conn)
    .await
}

/// Those of these documents that have such.
pub async fn stale_tokens(conn: &mut PgConnection, ids: &[DocumentId], model: &str) -> sqlx::Result<Vec<DocumentId>> {
    sqlx::query_scalar("SELECT document_id FROM token_packs WHERE document_id = ANY($1) AND model <> $2 ORDER BY 1")
        .bind(ids)
        .bind(model)
        .fetch_all(conn)
        .await
}

/// Removes token vectors that no search uses any more.
pub async fn forget_tokens(conn: &mut PgConnection, ids: &[DocumentId]) -> sqlx::Result<()> {
    sqlx::query(
        "WITH packs AS (DELETE FROM token_packs WHERE document_id = ANY($1)) DELETE FROM token_embeddings WHERE document_id = ANY($1)",
    )
    .bind(ids)
    .execute(conn)
    .await
    .map(|_| ())
}

/// How a document gets its vector.
#[derive(Clone, Debug, PartialEq, Eq, sqlx_macros::FromRow)]
pub struct Kind {
    pub id: DocumentId,
    /// The ids above it, root first.
    pub path: Vec<i64>,
    /// It is the sum of the vectors under it: of a container of a file, or of a segment that a caller asked for.
    pub is_sum: bool,
    pub is_segment: bool,
    /// The text of the language model's summary that a container has in place of a sum.
    pub summary: Option<String>,
}

/// The columns of a [`Kind`], from `documents d`; the arguments are the placeholders of the rule of segments that callers asked for, and of what
/// the evidence says of a summary.
macro_rules! kind {
    ($segment:literal, $summary:literal) => {
        concat!(
            "d.id, d.path, k.is_segment,
             k.is_segment OR (k.is_container AND EXISTS (
                 SELECT FROM documents c JOIN document_vectors v ON v.document_id = c.id WHERE c.parent_id = d.id)) AS is_sum,
             CASE WHEN k.is_container AND EXISTS (SELECT FROM node_evidence e WHERE e.document_id = d.id AND e.name = 'rollup' AND e.value ->> 'embedding' = ",
            $summary,
            ") THEN (SELECT e.value ->> 'text' FROM node_evidence e WHERE e.document_id = d.id AND e.name = 'effective_content') END AS summary
               FROM documents d CROSS JOIN LATERAL (
                    SELECT EXISTS (SELECT FROM ingest_node n WHERE n.document_id = d.id) AS is_container,
                           d.content = '' AND EXISTS (SELECT FROM node_origins o WHERE o.document_id = d.id AND o.rule = ",
            $segment,
            ") AS is_segment) k"
        )
    };
}

/// Those of these documents that still lack a vector of this model, and how each gets one.
pub async fn kinds(conn: &mut PgConnection, ids: &[DocumentId], model: &str) -> sqlx::Result<Vec<Kind>> {
    sqlx::query_as(concat!(
        "SELECT ",
        kind!("$3", "$4"),
        " WHERE d.id = ANY($1) AND d.settled = 'settled' AND ",
        lacks!("$2"),
        " ORDER BY d.id"
    ))
    .bind(ids)
    .bind(model)
    .bind(SEGMENT)
    .bind(rollups::OF_SUMMARY)
    .fetch_all(conn)
    .await
}

/// Those of these documents whose vectors are sums, or may be once they settle.
pub async fn containers(conn: &mut PgConnection, ids: &[DocumentId]) -> sqlx::Result<Vec<DocumentId>> {
    sqlx::query_scalar(
        "SELECT d.id FROM documents d WHERE d.id = ANY($1)
            AND (EXISTS (SELECT FROM ingest_node n WHERE n.document_id = d.id)
                 OR EXISTS (SELECT FROM node_origins o WHERE o.document_id = d.id AND o.rule = $2)) ORDER BY d.id",
    )
    .bind(ids)
    .bind(SEGMENT)
    .fetch_all(conn)
    .await
}

/// Those of these documents whose vectors are sums.
pub async fn sums_of(conn: &mut PgConnection, ids: &[DocumentId]) -> sqlx::Result<Vec<Kind>> {
    sqlx::query_as(concat!(
        "SELECT * FROM (SELECT ",
        kind!("$2", "$3"),
        " WHERE d.id = ANY($1) AND d.settled = 'settled') s WHERE s.is_sum AND s.summary IS NULL ORDER BY s.id"
    ))
    .bind(ids)
    .bind(SEGMENT)
    .bind(rollups::OF_SUMMARY)
    .fetch_all(conn)
    .await
}

/// Whether the model of the move that is under way serves already; `None` if no move to this model is.
pub async fn serves(conn: &mut PgConnection, model: &str) -> sqlx::Result<Option<bool>> {
    sqlx::query_scalar(
        "SELECT serving = to_model FROM model_moves WHERE to_model = $1 AND state IN ('moving', 'emptying')",
    )
    .bind(model)
    .fetch_optional(conn)
    .await
}

/// Counts vectors that were made, as the last statement of whoever made them: from here on the move is not called off until the transaction
/// ends. False means that it was, and that what was made must not stay.
pub async fn count(conn: &mut PgConnection, model: &str, made: i64) -> sqlx::Result<bool> {
    let counted =
        sqlx::query("UPDATE model_moves SET done = done + $2 WHERE to_model = $1 AND state IN ('moving', 'emptying')")
            .bind(model)
            .bind(made)
            .execute(conn)
            .await?;
    Ok(counted.rows_affected() > 0)
}

/// Stores vectors of the new model beside those that the documents have.
pub async fn add(conn: &mut PgConnection, ids: &[DocumentId], made: &[Weighted], model: &str) -> sqlx::Result<()> {
    vectors::write(conn, ids, made, model, false).await
}

/// Those of these containers under which no child waits for a vector of this model. A pass goes from the first child to the last, so what waits is
/// looked for from the last one on: a container may have a million, and each of its tasks asks.
pub async fn ready(conn: &mut PgConnection, containers: &[DocumentId], model: &str) -> sqlx::Result<Vec<DocumentId>> {
    sqlx::query_scalar(concat!(
        "SELECT c.id FROM unnest($1::bigint[]) AS c(id)
          WHERE (SELECT true FROM documents d WHERE d.parent_id = c.id AND d.settled = 'settled' AND ",
        lacks!("$2"),
        " ORDER BY coalesce(d.position::bigint, 2147483648) DESC, d.id DESC LIMIT 1) IS NULL"
    ))
    .bind(containers)
    .bind(model)
    .fetch_all(conn)
    .await
}

/// Gives containers of files the sums of their children's vectors of the new model, beside the vectors that they have. Returns of how many vectors each is.
pub async fn add_sums(
    conn: &mut PgConnection,
    containers: &[DocumentId],
    model: &str,
) -> sqlx::Result<HashMap<DocumentId, i64>> {
    let made = rollups::sum_vectors(conn, containers, model, false).await?;
    let without: Vec<DocumentId> = containers.iter().copied().filter(|id| !made.contains_key(id)).collect();
    take_back(conn, &without, model).await?;
    Ok(made)
}

/// The same for segments that callers asked for.
pub async fn add_segments(conn: &mut PgConnection, segments: &[DocumentId], model: &str) -> sqlx::Result<()> {
    sums::write(conn, segments, model, false).await
}

/// Gives containers, which have their sums already, the vectors of their summaries.
pub async fn add_summaries(
    conn: &mut PgConnection,
    containers: &[DocumentId],
    made: &[Weighted],
    model: &str,
) -> sqlx::Result<()> {
    summaries::write_vectors(conn, containers, made, model, false).await
}

/// Takes the vectors of the new model from documents that have others, so that they are made anew.
pub async fn take_back(conn: &mut PgConnection, ids: &[DocumentId], model: &str) -> sqlx::Result<()> {
    sqlx::query(
        "DELETE FROM document_vectors v WHERE v.document_id = ANY($1) AND v.embed_model = $2
            AND EXISTS (SELECT FROM document_vectors o WHERE o.document_id = v.document_id AND o.embed_model <> $2)",
    )
    .bind(ids)
    .bind(model)
    .execute(conn)
    .await
    .map(|_| ())
}

/// Records to which documents the new model gives no vector, with what is then said of them. The caller has locked them.
pub async fn refuse(conn: &mut PgConnection, refused: &[(DocumentId, Value)]) -> sqlx::Result<()> {
    sqlx::query(
        "INSERT INTO model_move_refusals (document_id, seen_at, note)
         SELECT d.id, d.updated_at, r.note FROM unnest($1::bigint[], $2::jsonb[]) AS r(id, note) JOIN documents d ON d.id = r.id
         ON CONFLICT (document_id) DO UPDATE SET seen_at = excluded.seen_at, note = excluded.note",
    )
    .bind(refused.iter().map(|(id, _)| *id).collect::<Vec<_>>())
    .bind(refused.iter().map(|(_, note)| note.clone()).collect::<Vec<_>>())
    .execute(conn)
    .await
    .map(|_| ())
}

/// To how many documents the new model gives no vector; those that were changed since count no longer.
pub async fn refusals(conn: &mut PgConnection) -> sqlx::Result<i64> {
    sqlx::query_scalar(
        "SELECT count(*) FROM model_move_refusals r JOIN documents d ON d.id = r.document_id AND d.updated_at = r.seen_at",
    )
    .fetch_one(conn)
    .await
}

/// Whether the vectors of other models than this one that the document of `v` has are not needed any more; the argument is the model's placeholder.
macro_rules! is_moved {
    ($model:literal) => {
        concat!(
            "(EXISTS (SELECT FROM document_vectors n WHERE n.document_id = v.document_id AND n.embed_model = ",
            $model,
            ") OR EXISTS (SELECT FROM documents d WHERE d.id = v.document_id AND d.settled = 'failed')
              OR EXISTS (SELECT FROM model_move_refusals r JOIN documents d ON d.id = r.document_id WHERE r.document_id = v.document_id AND r.seen_at = d.updated_at))"
        )
    };
}

/// Deletes some vectors of other models than the one that serves now; says whether there were any.
pub async fn delete_others(conn: &mut PgConnection, model: &str) -> sqlx::Result<bool> {
    let found: Vec<DocumentId> = sqlx::query_scalar(concat!(
        "SELECT v.document_id FROM document_vectors v
          WHERE v.embed_model <> $1 AND v.embed_model = ANY (ARRAY(SELECT min(embed_model) FROM document_vectors UNION SELECT max(embed_model) FROM document_vectors))
            AND ",
        is_moved!("$1"),
        " LIMIT $2"
    ))
    .bind(model)
    .bind(DELETED)
    .fetch_all(&mut *conn)
    .await?;
    if found.is_empty() {
        return Ok(false);
    }
    // Whoever writes a vector has the document locked, so from here on nobody takes one away that makes these needless.
    super::locks::documents(conn, &found).await?;
    sqlx::query(concat!(
        "DELETE FROM document_vectors v WHERE v.document_id = ANY($2) AND v.embed_model <> $1 AND ",
        is_moved!("$1")
    ))
    .bind(model)
    .bind(&found)
    .execute(&mut *conn)
    .await?;
    let refused: Vec<(DocumentId, Value)> = sqlx::query_as(
        "SELECT r.document_id, r.note FROM model_move_refusals r WHERE r.document_id = ANY($1)
            AND NOT EXISTS (SELECT FROM document_vectors v WHERE v.document_id = r.document_id)",
    )
    .bind(&found)
    .fetch_all(&mut *conn)
    .await?;
    let notes: Vec<_> = refused.into_iter().map(|(id, note)| (id, Evidence::Embed, note)).collect();
    super::evidence::record_all(conn, &notes).await?;
    Ok(true)
}

/// Ends a move once there are no vectors of other models, of texts or of tokens, and nobody is at work who may have begun with such a model; says
/// whether it did. A task that waits for the answers of a provider begins with the model that serves when they come.
pub async fn end(conn: &mut PgConnection) -> sqlx::Result<bool> {
    let ended = sqlx::query(
        "UPDATE model_moves SET state = 'done', ended_at = now()
          WHERE state = 'emptying'
            AND (SELECT coalesce(min(v.embed_model) = to_model AND max(v.embed_model) = to_model, true) FROM document_vectors v)
            AND NOT EXISTS (SELECT FROM task_queue t WHERE t.claim_token IS NOT NULL AND t.created_at < served_at + interval '10 seconds'
                               AND NOT EXISTS (SELECT FROM llm_batches b WHERE b.id::text = t.batch_id AND b.state <> 'ended'))
            AND NOT EXISTS (SELECT FROM token_packs p JOIN documents d ON d.id = p.document_id
                             WHERE p.model <> to_model AND d.settled = 'settled' AND d.guard <> -1)",
    )
    .execute(conn)
    .await?;
    Ok(ended.rows_affected() > 0)
}

/// Deletes some vectors that a move made which was called off; says whether there were any.
pub async fn undo(conn: &mut PgConnection, model: &str) -> sqlx::Result<bool> {
    let found: Vec<DocumentId> = sqlx::query_scalar(
        "SELECT c.document_id FROM document_vectors c WHERE c.embed_model = $1
            AND EXISTS (SELECT FROM document_vectors o WHERE o.document_id = c.document_id AND o.embed_model <> $1) LIMIT $2",
    )
    .bind(model)
    .bind(DELETED)
    .fetch_all(&mut *conn)
    .await?;
    if found.is_empty() {
        return Ok(false);
    }
    // Whoever writes vectors locks the documents first, so that nobody waits in a circle.
    super::locks::documents(conn, &found).await?;
    take_back(conn, &found, model).await?;
    Ok(true)
}

/// Ends a move that was called off, of which nothing is left.
pub async fn end_undone(conn: &mut PgConnection) -> sqlx::Result<()> {
    sqlx::query("UPDATE model_moves SET state = 'cancelled', ended_at = now() WHERE state = 'cancelling'")
        .execute(conn)
        .await
        .map(|_| ())
}
