//! Edits of single documents: their fields, and what no longer fits a text that has changed.
use super::{
    evidence::{self, Evidence},
    indexes::postings,
    lexicon::{CHARACTERS, Lexicon},
    llm_batches,
    nodes::NOT_OF_A_FILE,
    places::Place,
    word::Word,
};
use chrono::{DateTime, Utc};
use serde_json::{Map, Value};
use sqlx::{PgConnection, types::Json};
use std::collections::HashMap;
use svc_actors::path_key;
use svc_client::wire::Settled;
use svc_ids::{DocumentId, RootId, TaskId};

/// An estimate, for the counts of tokens under containers. A rollup whose text may fit the model's window counts exactly.
pub const CHARACTERS_OF_A_TOKEN: i64 = 4;

/// What ingestion knows of a document.
#[derive(Clone, Copy, Debug, sqlx_macros::FromRow)]
pub struct Part {
    /// The file whose ingestion made the document; `None` for the file itself and for what a caller created.
    pub file: Option<RootId>,
    /// Its vector is that of what is under it.
    pub is_container: bool,
    /// It is a summary, or holds summaries, of what is beside it.
    pub is_summary: bool,
}

/// The file whose ingestion made `documents d`, see [`Part::file`]; the argument is the placeholder of the rules that are of no file.
macro_rules! file_of {
    ($others:literal) => {
        concat!(
            "CASE WHEN own.document_id IS NOT NULL THEN nullif(own.root_id, d.id) WHEN o.rule <> ALL(",
            $others,
            ") THEN above.root_id END"
        )
    };
}

/// Documents `d` with what ingestion knows of them and of what is above them.
macro_rules! with_origins {
    () => {
        "documents d LEFT JOIN ingest_node own ON own.document_id = d.id
           LEFT JOIN ingest_node above ON above.document_id = d.parent_id LEFT JOIN node_origins o ON o.document_id = d.id"
    };
}

/// What ingestion knows of a document; `None` if the document is gone.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = place.id().0))]
pub async fn part(conn: &mut PgConnection, place: &Place) -> sqlx::Result<Option<Part>> {
    sqlx::query_as(concat!(
        "SELECT ",
        file_of!("$2"),
        " AS file, own.document_id IS NOT NULL AS is_container, coalesce(o.rule = $3, false) AS is_summary FROM ",
        with_origins!(),
        " WHERE d.id = $1"
    ))
    .bind(place.id())
    .bind(&NOT_OF_A_FILE[..])
    .bind(super::raptor::RULE)
    .fetch_optional(conn)
    .await
}

/// The files whose ingestion made documents, by document; those that are no part of a file are left out, see [`Part::file`].
pub async fn files(conn: &mut PgConnection, places: &[Place]) -> sqlx::Result<HashMap<DocumentId, RootId>> {
    let files: Vec<(DocumentId, Option<RootId>)> =
        sqlx::query_as(concat!("SELECT d.id, ", file_of!("$2"), " FROM ", with_origins!(), " WHERE d.id = ANY($1)"))
            .bind(places.iter().map(Place::id).collect::<Vec<_>>())
            .bind(&NOT_OF_A_FILE[..])
            .fetch_all(conn)
            .await?;
    Ok(files.into_iter().filter_map(|(id, file)| Some((id, file?))).collect())
}

/// The fields of a document that change.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Edit<'a> {
    pub title: Option<&'a str>,
    /// The text and its hash.
    pub content: Option<(&'a str, &'a str)>,
    pub structured_content: Option<&'a Map<String, Value>>,
    pub usetype: Option<&'a str>,
    pub position: Option<Option<i32>>,
    pub event_time: Option<Option<DateTime<Utc>>>,
}

/// Writes the fields that change, and the words of the title and the text if one of these changes.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = place.id().0))]
pub async fn write(conn: &mut PgConnection, lexicon: &Lexicon, place: &Place, edit: &Edit<'_>) -> sqlx::Result<()> {
    let searched: Option<(Option<String>, Option<String>)> = sqlx::query_as(
        "UPDATE documents SET title = coalesce($2, title), content = coalesce($3, content), content_hash = coalesce($4, content_hash),
                structured_content = coalesce($5, structured_content), usetype = coalesce($6, usetype),
                position = CASE WHEN $7 THEN $8 ELSE position END, event_time = CASE WHEN $9 THEN $10 ELSE event_time END,
                updated_at = clock_timestamp()
          WHERE id = $1
        RETURNING CASE WHEN $2::text IS NOT NULL OR $3::text IS NOT NULL THEN title END,
                  CASE WHEN $2::text IS NOT NULL OR $3::text IS NOT NULL THEN left(content, $11) END",
    )
    .bind(place.id())
    .bind(edit.title)
    .bind(edit.content.map(|(content, _)| content))
    .bind(edit.content.map(|(_, hash)| hash))
    .bind(edit.structured_content.map(Json))
    .bind(edit.usetype)
    .bind(edit.position.is_some())
    .bind(edit.position.flatten())
    .bind(edit.event_time.is_some())
    .bind(edit.event_time.flatten())
    .bind(CHARACTERS)
    .fetch_optional(&mut *conn)
    .await?;
    match searched {
        Some((Some(title), Some(content))) => {
            let words = lexicon.words(vec![(&title, &content)]).await;
            super::fulltext::set_words(conn, &[place.id()], words).await
        }
        _ => Ok(()),
    }
}

/// Removes the vector and the token vectors of a document, and the evidence of how it got its vector or why it has none. Returns whether
/// there were token vectors. The caller removes the index postings.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = place.id().0, root.id = file.map(|file| file.0)))]
pub async fn forget_vectors(conn: &mut PgConnection, place: &Place, file: Option<RootId>) -> sqlx::Result<bool> {
    let tokens: bool = sqlx::query_scalar(
        "WITH vector AS (DELETE FROM document_vectors WHERE document_id = $1),
              tokens AS (DELETE FROM token_embeddings WHERE document_id = $1),
              pack AS (DELETE FROM token_packs WHERE document_id = $1 RETURNING 1)
         SELECT EXISTS (SELECT 1 FROM pack)",
    )
    .bind(place.id())
    .fetch_one(&mut *conn)
    .await?;
    forget_notes(conn, &[place.id()], file).await?;
    Ok(tokens)
}

/// Removes the evidence of how documents got their vectors or why they have none, and takes those without one out of their file's counts.
#[tracing::instrument(level = "debug", skip_all, fields(root.id = file.map(|file| file.0)))]
pub async fn forget_notes(conn: &mut PgConnection, documents: &[DocumentId], file: Option<RootId>) -> sqlx::Result<()> {
    if let Some(file) = file {
        uncount_skipped(conn, documents, file).await?;
    }
    evidence::remove_all(conn, documents, Evidence::Embed).await
}

/// Takes parts of a file that have no vector out of the file's counts of them by the reason.
#[tracing::instrument(level = "debug", skip_all, fields(root.id = file.0))]
async fn uncount_skipped(conn: &mut PgConnection, parts: &[DocumentId], file: RootId) -> sqlx::Result<()> {
    sqlx::query(
        "WITH gone AS (SELECT value ->> 'skipped' AS reason, count(*) AS parts FROM node_evidence
                        WHERE document_id = ANY($1) AND name = 'embed' AND value ? 'skipped' GROUP BY 1),
              fewer AS (SELECT jsonb_object_agg(c.reason, c.parts - coalesce(g.parts, 0)) FILTER (WHERE c.parts > coalesce(g.parts, 0)) AS value
                          FROM node_evidence e CROSS JOIN jsonb_each(e.value) AS each(reason, value)
                          CROSS JOIN LATERAL (SELECT each.reason, (each.value #>> '{}')::bigint AS parts) c LEFT JOIN gone g ON g.reason = c.reason
                         WHERE e.document_id = $2 AND e.name = 'without_vector')
         UPDATE node_evidence e SET value = coalesce(f.value, '{}') FROM fewer f
          WHERE e.document_id = $2 AND e.name = 'without_vector' AND EXISTS (SELECT 1 FROM gone)",
    )
    .bind(parts)
    .bind(file)
    .execute(&mut *conn)
    .await?;
    sqlx::query("DELETE FROM node_evidence WHERE document_id = $1 AND name = 'without_vector' AND value = '{}'")
        .bind(file)
        .execute(conn)
        .await
        .map(|_| ())
}

/// The task that waits to embed a document, by itself or with other leaves of the file that it is a part of. It reads the text when it runs.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = place.id().0, root.id = file.map(|file| file.0)))]
pub async fn waiting_embed(
    conn: &mut PgConnection,
    place: &Place,
    file: Option<RootId>,
    embed: &str,
    with_tokens: bool,
) -> sqlx::Result<Option<TaskId>> {
    // Between two leaves of a file there may be documents of callers, which the task of these leaves does not embed.
    sqlx::query_scalar(
        "SELECT id FROM task_queue
          WHERE task_type = $4 AND status = 'pending' AND claim_token IS NULL AND (NOT $5 OR coalesce((params ->> 'tokens')::boolean, false))
            AND ((scope_document_id = $1 AND first_leaf IS NULL)
                 OR (root_id = $6 AND scope_document_id = ANY($2) AND $3 BETWEEN first_leaf AND last_leaf
                     AND EXISTS (SELECT FROM jsonb_array_elements(params -> 'leaves') AS run
                                  WHERE $1 BETWEEN (run ->> 0)::bigint AND (run ->> 1)::bigint)))
          ORDER BY id LIMIT 1",
    )
    .bind(place.id())
    .bind(place.path())
    .bind(path_key(&place.children_path()))
    .bind(embed)
    .bind(with_tokens)
    .bind(file)
    .fetch_optional(conn)
    .await
}

/// Locks the rows of a leaf and of its containers, and the containers' counts. Returns false if the file is being
/// cancelled.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = leaf.id().0))]
pub async fn lock_line(conn: &mut PgConnection, leaf: &Place, containers: &[DocumentId]) -> sqlx::Result<bool> {
    let rows: Vec<DocumentId> = containers.iter().copied().chain([leaf.id()]).collect();
    super::locks::documents(conn, &rows).await?;
    sqlx::query_scalar(
        "SELECT NOT coalesce(bool_or(cancelled), false)
           FROM (SELECT cancelled FROM ingest_node WHERE document_id = ANY($1) ORDER BY document_id FOR NO KEY UPDATE) locked",
    )
    .bind(containers)
    .fetch_one(conn)
    .await
}

/// What is put back in flight.
#[derive(Clone, Copy, Debug)]
pub struct Reopening<'a> {
    /// The containers of the leaf, from the file down.
    pub containers: &'a [DocumentId],
    /// By how much the text under the containers grew, as an estimate in tokens.
    pub tokens: i64,
}

/// How many nodes were put back in flight, by what they were before.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reopened {
    pub settled: i64,
    pub failed: i64,
}

/// Puts containers back in flight, and the leaf under them if it stays, so that they are found again only once they are embedded and
/// rolled up anew. Tasks of theirs leave the batches of providers, which would keep them open for long. The caller has locked the rows by
/// [`lock_line`], and holds the file's lock so that nobody settles it.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = leaf.map(|leaf| leaf.id().0)))]
pub async fn reopen(conn: &mut PgConnection, leaf: Option<&Place>, what: Reopening<'_>) -> sqlx::Result<Reopened> {
    // A task that is to roll the containers up leaves those out whose rollup is no longer queued.
    let moved: Vec<(DocumentId, Option<DocumentId>, Word<Settled>)> = sqlx::query_as(
        "WITH was AS (SELECT id, settled FROM documents WHERE (id = ANY($1) OR id = $2) AND settled <> 'in_flight')
         UPDATE documents d SET settled = 'in_flight' FROM was WHERE d.id = was.id RETURNING d.id, d.parent_id, was.settled",
    )
    .bind(what.containers)
    .bind(leaf.map(Place::id))
    .fetch_all(&mut *conn)
    .await?;
    sqlx::query(
        "UPDATE ingest_node n SET rollup = 'none', tokens = greatest(n.tokens + $4, 0),
                open_children = n.open_children + (SELECT count(*)::int FROM unnest($2::bigint[]) AS m(parent_id) WHERE m.parent_id = n.document_id),
                failed_children = greatest(n.failed_children - (SELECT count(*)::int FROM unnest($3::bigint[]) AS m(parent_id) WHERE m.parent_id = n.document_id), 0)
          WHERE n.document_id = ANY($1)",
    )
    .bind(what.containers)
    .bind(moved.iter().map(|(_, parent, _)| *parent).collect::<Vec<_>>())
    .bind(moved.iter().filter(|(_, _, was)| was.0 == Settled::Failed).map(|(_, parent, _)| *parent).collect::<Vec<_>>())
    .bind(what.tokens)
    .execute(&mut *conn)
    .await?;
    let ids: Vec<DocumentId> = moved.iter().map(|(id, _, _)| *id).collect();
    postings::bury(conn, None, &ids).await?;
    let containers: Vec<i64> = what.containers.iter().map(|container| container.0).collect();
    llm_batches::leave_of(conn, &containers).await?;
    let failed = moved.iter().filter(|(_, _, was)| was.0 == Settled::Failed).count() as i64;
    Ok(Reopened { settled: moved.len() as i64 - failed, failed })
}

/// Takes a part of a file that is about to be deleted, with what is under it, out of what the file and its containers count, and puts the
/// containers back in flight: their vectors are those of all that was under them. The caller has locked their rows by [`lock_line`] and
/// holds the file's lock.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = part.id().0, root.id = file.0))]
pub async fn take_out(
    conn: &mut PgConnection,
    part: &Place,
    file: RootId,
    containers: &[DocumentId],
) -> sqlx::Result<Reopened> {
    let parts: Vec<DocumentId> =
        sqlx::query_scalar("SELECT id FROM documents WHERE id = $1 OR path @> ARRAY[$1::bigint]")
            .bind(part.id())
            .fetch_all(&mut *conn)
            .await?;
    uncount_skipped(conn, &parts, file).await?;
    let (settled, tokens): (Word<Settled>, i64) = sqlx::query_as(
        "SELECT d.settled, coalesce(n.tokens, (char_length(d.content) / $2)::bigint)
           FROM documents d LEFT JOIN ingest_node n ON n.document_id = d.id WHERE d.id = $1",
    )
    .bind(part.id())
    .bind(CHARACTERS_OF_A_TOKEN)
    .fetch_one(&mut *conn)
    .await?;
    if settled.0 == Settled::Failed {
        sqlx::query("UPDATE ingest_node SET failed_children = greatest(failed_children - 1, 0) WHERE document_id = $1")
            .bind(containers.last())
            .execute(&mut *conn)
            .await?;
    }
    // A container that failed stays so as long as something else in it did, since nothing is tried again. What is above it was made
    // without it.
    let failed: Vec<DocumentId> = sqlx::query_scalar(
        "SELECT id FROM documents d WHERE id = ANY($1) AND settled = 'failed' AND EXISTS (
                SELECT FROM documents c LEFT JOIN ingest_node own ON own.document_id = c.id
                 WHERE c.parent_id = d.id AND c.settled = 'failed' AND c.id <> ALL($1) AND c.id <> $2 AND own.root_id IS DISTINCT FROM c.id)",
    )
    .bind(containers)
    .bind(part.id())
    .fetch_all(&mut *conn)
    .await?;
    let kept = containers.iter().rposition(|container| failed.contains(container)).map_or(0, |last| last + 1);
    let (kept, reopened) = containers.split_at(kept);
    sqlx::query("UPDATE ingest_node SET tokens = greatest(tokens - $2, 0) WHERE document_id = ANY($1)")
        .bind(kept)
        .bind(tokens)
        .execute(&mut *conn)
        .await?;
    reopen(conn, None, Reopening { containers: reopened, tokens: -tokens }).await
}
