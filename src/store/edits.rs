//! Edits of single documents: their fields, and what no longer fits a text that has changed.
use super::{documents::words, nodes::NOT_OF_A_FILE, places::Place, word::Word};
use chrono::{DateTime, Utc};
use serde_json::{Map, Value};
use sqlx::{PgConnection, types::Json};
use svc_actors::path_key;
use svc_client::wire::Settled;
use svc_ids::{DocumentId, RootId, TaskId};

/// What ingestion knows of a document.
#[derive(Clone, Copy, Debug, sqlx::FromRow)]
pub struct Part {
    /// The file whose ingestion made the document; `None` for the file itself and for what a caller created.
    pub file: Option<RootId>,
    /// Its vector is that of what is under it.
    pub is_container: bool,
    /// It is a summary, or holds summaries, of what is beside it.
    pub is_summary: bool,
}

/// What ingestion knows of a document; `None` if the document is gone.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = place.id().0))]
pub async fn part(conn: &mut PgConnection, place: &Place) -> sqlx::Result<Option<Part>> {
    sqlx::query_as(
        "SELECT CASE WHEN own.document_id IS NOT NULL THEN nullif(own.root_id, d.id)
                     WHEN o.rule <> ALL($2) THEN above.root_id END AS file,
                own.document_id IS NOT NULL AS is_container, coalesce(o.rule = $3, false) AS is_summary
           FROM documents d LEFT JOIN ingest_node own ON own.document_id = d.id
           LEFT JOIN ingest_node above ON above.document_id = d.parent_id LEFT JOIN node_origins o ON o.document_id = d.id
          WHERE d.id = $1",
    )
    .bind(place.id())
    .bind(&NOT_OF_A_FILE[..])
    .bind(super::raptor::RULE)
    .fetch_optional(conn)
    .await
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
pub async fn write(conn: &mut PgConnection, place: &Place, edit: &Edit<'_>) -> sqlx::Result<()> {
    sqlx::query(
        "UPDATE documents SET title = coalesce($2, title), content = coalesce($3, content), content_hash = coalesce($4, content_hash),
                structured_content = coalesce($5, structured_content), usetype = coalesce($6, usetype),
                position = CASE WHEN $7 THEN $8 ELSE position END, event_time = CASE WHEN $9 THEN $10 ELSE event_time END,
                updated_at = clock_timestamp()
          WHERE id = $1",
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
    .execute(&mut *conn)
    .await?;
    if edit.title.is_none() && edit.content.is_none() {
        return Ok(());
    }
    sqlx::query(concat!(
        "INSERT INTO document_words (document_id, words) SELECT id, ",
        words!(),
        " FROM documents WHERE id = $1 ON CONFLICT (document_id) DO UPDATE SET words = excluded.words"
    ))
    .bind(place.id())
    .execute(conn)
    .await
    .map(|_| ())
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
    // The file counts its chunks without a vector by the reason.
    sqlx::query(
        "WITH gone AS (DELETE FROM node_evidence WHERE document_id = $1 AND name = 'embed' RETURNING value ->> 'skipped' AS reason)
         UPDATE node_evidence e
            SET value = CASE WHEN (e.value ->> g.reason)::bigint > 1
                             THEN e.value || jsonb_build_object(g.reason, (e.value ->> g.reason)::bigint - 1) ELSE e.value - g.reason END
           FROM gone g WHERE g.reason IS NOT NULL AND e.document_id = $2 AND e.name = 'without_vector'",
    )
    .bind(place.id())
    .bind(file)
    .execute(&mut *conn)
    .await?;
    sqlx::query("DELETE FROM node_evidence WHERE document_id = $1 AND name = 'without_vector' AND value = '{}'")
        .bind(file)
        .execute(conn)
        .await?;
    Ok(tokens)
}

/// The task that waits to embed a document, by itself or with other leaves. It reads the text when it runs.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = place.id().0))]
pub async fn waiting_embed(
    conn: &mut PgConnection,
    place: &Place,
    embed: &str,
    with_tokens: bool,
) -> sqlx::Result<Option<TaskId>> {
    sqlx::query_scalar(
        "SELECT id FROM task_queue
          WHERE task_type = $4 AND status = 'pending' AND claim_token IS NULL AND (NOT $5 OR coalesce((params ->> 'tokens')::boolean, false))
            AND ((scope_document_id = $1 AND first_leaf IS NULL) OR (scope_document_id = ANY($2) AND $3 BETWEEN first_leaf AND last_leaf))
          ORDER BY id LIMIT 1",
    )
    .bind(place.id())
    .bind(place.path())
    .bind(path_key(&place.children_path()))
    .bind(embed)
    .bind(with_tokens)
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

/// Puts a leaf and its containers back in flight, so that they are found again only once they are embedded and rolled
/// up anew. The caller has locked the rows by [`lock_line`], and holds the file's lock so that nobody settles it.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = leaf.id().0))]
pub async fn reopen(conn: &mut PgConnection, leaf: &Place, what: Reopening<'_>) -> sqlx::Result<Reopened> {
    // A task that is to roll the containers up leaves those out whose rollup is no longer queued.
    let moved: Vec<(Option<DocumentId>, Word<Settled>)> = sqlx::query_as(
        "WITH was AS (SELECT id, settled FROM documents WHERE (id = ANY($1) OR id = $2) AND settled <> 'in_flight')
         UPDATE documents d SET settled = 'in_flight' FROM was WHERE d.id = was.id RETURNING d.parent_id, was.settled",
    )
    .bind(what.containers)
    .bind(leaf.id())
    .fetch_all(&mut *conn)
    .await?;
    sqlx::query(
        "UPDATE ingest_node n SET rollup = 'none', tokens = greatest(n.tokens + $4, 0),
                open_children = n.open_children + (SELECT count(*)::int FROM unnest($2::bigint[]) AS m(parent_id) WHERE m.parent_id = n.document_id),
                failed_children = greatest(n.failed_children - (SELECT count(*)::int FROM unnest($3::bigint[]) AS m(parent_id) WHERE m.parent_id = n.document_id), 0)
          WHERE n.document_id = ANY($1)",
    )
    .bind(what.containers)
    .bind(moved.iter().map(|(parent, _)| *parent).collect::<Vec<_>>())
    .bind(moved.iter().filter(|(_, was)| was.0 == Settled::Failed).map(|(parent, _)| *parent).collect::<Vec<_>>())
    .bind(what.tokens)
    .execute(conn)
    .await?;
    let failed = moved.iter().filter(|(_, was)| was.0 == Settled::Failed).count() as i64;
    Ok(Reopened { settled: moved.len() as i64 - failed, failed })
}
