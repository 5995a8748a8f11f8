//! What the transaction does that puts a generation in the place of a file's tree.
use super::{
    super::nodes::{NOT_OF_A_FILE, OF_CALLERS},
    Generation,
};
use crate::store::{extraction, indexes::manage, places::Place, raptor, vectors, word::Word};
use serde_json::Value;
use sqlx::PgConnection;
use std::collections::HashMap;
use svc_client::wire::ShapeMode;
use svc_ids::{DocumentId, ShapeBindingId, TripleId, WebhookId};

/// The types of tasks that callers asked for, and that do not go with the tree of a file.
const ASKED_FOR: [&str; 2] = [raptor::RULE, extraction::TASK];

/// A node under a file.
#[derive(Clone, Copy, Debug, sqlx_macros::FromRow)]
pub struct Descendant {
    pub id: DocumentId,
    pub parent_id: DocumentId,
    /// A task made it of the file; no caller created, uploaded or cut it.
    pub is_made: bool,
    pub has_failed: bool,
    /// Whoever may read the file may read it: a grant on a closed file covers what is closed again inside it.
    pub is_shown: bool,
}

/// Whether a file itself failed, so that no tree was made of it.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = file.id().0))]
pub async fn has_failed(conn: &mut PgConnection, file: &Place) -> sqlx::Result<bool> {
    sqlx::query_scalar("SELECT settled = 'failed' FROM documents WHERE id = $1").bind(file.id()).fetch_one(conn).await
}

/// Everything under a file, each node before what is under it.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = file.id().0))]
pub async fn descendants(conn: &mut PgConnection, file: &Place) -> sqlx::Result<Vec<Descendant>> {
    sqlx::query_as(
        "SELECT d.id, d.parent_id, coalesce(o.rule <> ALL($2), false) AS is_made, d.settled = 'failed' AS has_failed, f.guard <> 0 OR d.guard = 0 AS is_shown
           FROM documents f JOIN documents d ON d.path @> ARRAY[$1::bigint] LEFT JOIN node_origins o ON o.document_id = d.id
          WHERE f.id = $1 ORDER BY cardinality(d.path), d.id",
    )
    .bind(file.id())
    .bind(&OF_CALLERS[..])
    .fetch_all(conn)
    .await
}

/// Which of these nodes are access roots; at most ten.
pub async fn access_roots(conn: &mut PgConnection, among: &[DocumentId]) -> sqlx::Result<Vec<DocumentId>> {
    sqlx::query_scalar("SELECT document_id FROM access_roots WHERE document_id = ANY($1) ORDER BY 1 LIMIT 10")
        .bind(among)
        .fetch_all(conn)
        .await
}

/// The node of a generation that has the anchor, the usetype and the rule of each of these nodes. Where several nodes have all three, the
/// first corresponds to the first. Boxes do not count, because another run of an OCR engine may place the same words a little beside.
#[tracing::instrument(level = "debug", skip_all, fields(root.id = generation.id.0))]
pub async fn counterparts(
    conn: &mut PgConnection,
    generation: &Generation,
    of: &[DocumentId],
) -> sqlx::Result<HashMap<DocumentId, DocumentId>> {
    let pairs: Vec<(DocumentId, DocumentId)> = sqlx::query_as(
        "WITH old AS (
             SELECT d.id, d.usetype, o.rule, a.anchor, row_number() OVER (PARTITION BY d.usetype, o.rule, a.anchor ORDER BY d.id) AS nth
               FROM unnest($2::bigint[]) AS n(id) JOIN documents d ON d.id = n.id JOIN node_origins o ON o.document_id = d.id,
                    LATERAL (SELECT CASE jsonb_typeof(o.anchor) WHEN 'object' THEN o.anchor - 'boxes' ELSE o.anchor END AS anchor) a
              WHERE o.anchor IS NOT NULL AND o.rule <> ALL($3)),
         new AS (
             SELECT d.id, d.usetype, o.rule, a.anchor, row_number() OVER (PARTITION BY d.usetype, o.rule, a.anchor ORDER BY d.id) AS nth
               FROM documents d JOIN node_origins o ON o.document_id = d.id,
                    LATERAL (SELECT CASE jsonb_typeof(o.anchor) WHEN 'object' THEN o.anchor - 'boxes' ELSE o.anchor END AS anchor) a
              WHERE d.path @> ARRAY[$1::bigint])
         SELECT old.id, new.id FROM old JOIN new USING (usetype, rule, anchor, nth)",
    )
    .bind(generation.id)
    .bind(of)
    .bind(&NOT_OF_A_FILE[..])
    .fetch_all(conn)
    .await?;
    Ok(pairs.into_iter().collect())
}

/// A link with an end among nodes that go.
#[derive(Clone, Debug, sqlx_macros::FromRow)]
pub struct Link {
    pub id: i64,
    pub source_id: DocumentId,
    pub target_id: DocumentId,
    pub link_type: String,
    /// Whoever may read the file may read both ends.
    pub is_shown: bool,
    /// Where in the file the end was that goes.
    pub anchor: Option<Value>,
}

/// The links from and to nodes that go, except those of summaries.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = file.id().0))]
pub async fn links(conn: &mut PgConnection, file: &Place, gone: &[DocumentId]) -> sqlx::Result<Vec<Link>> {
    sqlx::query_as(
        "WITH gone AS MATERIALIZED (SELECT unnest($2::bigint[]) AS id),
         ends AS (SELECT l.id FROM gone g JOIN document_links l ON l.source_id = g.id
                  UNION SELECT l.id FROM gone g JOIN document_links l ON l.target_id = g.id)
         SELECT l.id, l.source_id, l.target_id, l.link_type, s.guard IN (0, f.guard) AND t.guard IN (0, f.guard) AS is_shown,
                CASE WHEN l.source_id IN (SELECT id FROM gone) THEN so.anchor ELSE ao.anchor END AS anchor
           FROM ends JOIN document_links l ON l.id = ends.id JOIN documents f ON f.id = $1
           JOIN documents s ON s.id = l.source_id JOIN documents t ON t.id = l.target_id
           LEFT JOIN node_origins so ON so.document_id = s.id LEFT JOIN node_origins ao ON ao.document_id = t.id
          WHERE so.rule IS DISTINCT FROM $3 ORDER BY l.id",
    )
    .bind(file.id())
    .bind(gone)
    .bind(raptor::RULE)
    .fetch_all(conn)
    .await
}

/// A fact about or of nodes that go.
#[derive(Clone, Copy, Debug, sqlx_macros::FromRow)]
pub struct ShownFact {
    pub id: TripleId,
    pub subject_id: DocumentId,
    pub object_id: Option<DocumentId>,
}

/// Those of some facts that whoever may read the file may read, the nodes that go among their ends.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = file.id().0))]
pub async fn shown_facts(
    conn: &mut PgConnection,
    file: &Place,
    facts: &[TripleId],
    gone: &[DocumentId],
) -> sqlx::Result<Vec<ShownFact>> {
    if facts.is_empty() {
        return Ok(Vec::new());
    }
    sqlx::query_as(
        "SELECT t.id, t.subject_id, t.object_id
           FROM triples t JOIN documents f ON f.id = $1 JOIN documents s ON s.id = t.subject_id LEFT JOIN documents o ON o.id = t.object_id
          WHERE t.id = ANY($2) AND (t.zone IN (0, f.guard) OR t.source_id = ANY($3)) AND (s.guard IN (0, f.guard) OR s.id = ANY($3))
            AND (o.id IS NULL OR o.guard IN (0, f.guard) OR o.id = ANY($3)) ORDER BY t.id",
    )
    .bind(file.id())
    .bind(facts)
    .bind(gone)
    .persistent(false)
    .fetch_all(conn)
    .await
}

/// Gives links their new ends.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = file.id().0))]
pub async fn redirect(
    conn: &mut PgConnection,
    file: &Place,
    links: &[(i64, DocumentId, DocumentId)],
) -> sqlx::Result<()> {
    sqlx::query(
        "UPDATE document_links l SET source_id = n.source_id, target_id = n.target_id
           FROM unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS n(id, source_id, target_id) WHERE l.id = n.id",
    )
    .bind(links.iter().map(|link| link.0).collect::<Vec<_>>())
    .bind(links.iter().map(|link| link.1).collect::<Vec<_>>())
    .bind(links.iter().map(|link| link.2).collect::<Vec<_>>())
    .execute(conn)
    .await
    .map(|_| ())
}

/// Makes search indexes of single subtrees cover the counterparts of the nodes that they covered. While these were made, the indexes did not cover
/// them.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = file.id().0))]
pub async fn redirect_indexes(
    conn: &mut PgConnection,
    file: &Place,
    counterparts: &HashMap<DocumentId, DocumentId>,
) -> sqlx::Result<()> {
    let (old, new): (Vec<DocumentId>, Vec<DocumentId>) = counterparts.iter().unzip();
    sqlx::query(
        "UPDATE search_index_members m SET root_document_id = n.new FROM unnest($1::bigint[], $2::bigint[]) AS n(old, new)
          WHERE m.root_document_id = n.old",
    )
    .bind(old)
    .bind(&new)
    .execute(&mut *conn)
    .await?;
    manage::follow_parts(conn, file, &new).await
}

/// Has webhooks tell of the counterparts of the nodes that they told of. Returns those that told of a node without one.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = file.id().0))]
pub async fn redirect_webhooks(
    conn: &mut PgConnection,
    file: &Place,
    counterparts: &HashMap<DocumentId, DocumentId>,
    gone: &[DocumentId],
) -> sqlx::Result<Vec<WebhookId>> {
    let (old, new): (Vec<DocumentId>, Vec<DocumentId>) = counterparts.iter().unzip();
    sqlx::query(
        "UPDATE webhooks w SET root_id = n.new FROM unnest($1::bigint[], $2::bigint[]) AS n(old, new) WHERE w.root_id = n.old",
    )
    .bind(old)
    .bind(new)
    .execute(&mut *conn)
    .await?;
    sqlx::query_scalar("SELECT id FROM webhooks WHERE root_id = ANY($1) ORDER BY id")
        .bind(gone)
        .persistent(false)
        .fetch_all(conn)
        .await
}

/// Has the tasks of the generation $2 of which this holds follow it under its file $1.
macro_rules! follow_tasks {
    ($task:literal) => {
        concat!(
            "UPDATE task_queue t SET root_id = $1, scope_document_id = CASE WHEN t.scope_document_id = $2 THEN $1 ELSE t.scope_document_id END,
                    node_path = f.key || substr(t.node_path, length($2::text) + 2), node_depth = t.node_depth + f.depth,
                    first_leaf = f.key || substr(t.first_leaf, length($2::text) + 2), last_leaf = f.key || substr(t.last_leaf, length($2::text) + 2)
               FROM (SELECT array_to_string(path || id, '/') || '/' AS key, cardinality(path) AS depth FROM documents WHERE id = $1) f
              WHERE t.root_id = $2 AND ",
            $task
        )
    };
}

/// Has facts extracted of the counterparts of nodes that go, where somebody asked for those of the nodes, and forgets the tasks of the others. Returns how
/// many of these had not ended. What a language model answered of a text goes to the counterpart that has the same text, so that nobody pays for it again.
/// The generation is in its place, and nobody holds one of the tasks.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = file.id().0))]
pub async fn redirect_extractions(
    conn: &mut PgConnection,
    file: &Place,
    counterparts: &HashMap<DocumentId, DocumentId>,
    gone: &[DocumentId],
) -> sqlx::Result<i64> {
    let (old, new): (Vec<DocumentId>, Vec<DocumentId>) = counterparts.iter().unzip();
    sqlx::query(
        "UPDATE llm_answers a SET document_id = n.new
           FROM unnest($1::bigint[], $2::bigint[]) AS n(old, new) JOIN documents o ON o.id = n.old JOIN documents d ON d.id = n.new
          WHERE a.document_id = n.old AND a.task_type = $3 AND d.content_hash = o.content_hash",
    )
    .bind(&old)
    .bind(&new)
    .bind(extraction::TASK)
    .execute(&mut *conn)
    .await?;
    // The tasks of the file are found by its root, those that have ended by another index than the others; see put_in_place.
    sqlx::query(
        "WITH moved AS (
             UPDATE task_queue t SET scope_document_id = d.id, node_path = array_to_string(d.path || d.id, '/') || '/', node_depth = cardinality(d.path)
               FROM unnest($2::bigint[], $3::bigint[]) AS n(old, new) JOIN documents d ON d.id = n.new
              WHERE t.root_id = $1 AND t.scope_document_id = n.old AND t.task_type = $4 AND NOT t.final RETURNING t.id)
         DELETE FROM task_intent i USING moved m WHERE i.task_id = m.id",
    )
    .bind(file.id())
    .bind(old)
    .bind(new)
    .bind(extraction::TASK)
    .execute(&mut *conn)
    .await?;
    sqlx::query(
        "DELETE FROM task_queue WHERE root_id = $1 AND final AND status = 'failed' AND scope_document_id = ANY($2) AND task_type = $3",
    )
    .bind(file.id())
    .bind(gone)
    .bind(extraction::TASK)
    .execute(&mut *conn)
    .await?;
    sqlx::query_scalar(
        "WITH lost AS (
             DELETE FROM task_queue WHERE root_id = $1 AND NOT final AND scope_document_id = ANY($2) AND task_type = $3 RETURNING id)
         SELECT count(*) FROM lost",
    )
    .bind(file.id())
    .bind(gone)
    .bind(extraction::TASK)
    .fetch_one(conn)
    .await
}

/// A shape binding of a node that goes.
#[derive(Clone, Debug, sqlx_macros::FromRow)]
pub struct LostBinding {
    pub id: ShapeBindingId,
    pub ontology_id: DocumentId,
    pub shape: Option<String>,
    pub document_id: DocumentId,
    pub mode: Word<ShapeMode>,
    /// Whoever may read the file may read the ontology.
    pub is_shown: bool,
    /// Where in the file the node was.
    pub anchor: Option<Value>,
}

/// Binds the counterparts of nodes that go to the shapes that the nodes were bound to, and takes the bindings of the others away. Returns how many follow,
/// of those that whoever may read the file may know of, and the others.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = file.id().0))]
pub async fn redirect_bindings(
    conn: &mut PgConnection,
    file: &Place,
    counterparts: &HashMap<DocumentId, DocumentId>,
    gone: &[DocumentId],
) -> sqlx::Result<(i64, Vec<LostBinding>)> {
    let (old, new): (Vec<DocumentId>, Vec<DocumentId>) = counterparts.iter().unzip();
    let followed = sqlx::query_scalar(
        "WITH moved AS (
             UPDATE shape_bindings b SET document_id = n.new FROM unnest($2::bigint[], $3::bigint[]) AS n(old, new)
              WHERE b.document_id = n.old RETURNING b.ontology_id)
         SELECT count(*) FROM moved m JOIN documents o ON o.id = m.ontology_id JOIN documents f ON f.id = $1 WHERE o.guard IN (0, f.guard)",
    )
    .bind(file.id())
    .bind(old)
    .bind(new)
    .fetch_one(&mut *conn)
    .await?;
    let lost = sqlx::query_as(
        "WITH lost AS (DELETE FROM shape_bindings WHERE document_id = ANY($2) RETURNING id, ontology_id, shape, document_id, mode)
         SELECT l.id, l.ontology_id, l.shape, l.document_id, l.mode, o.guard IN (0, f.guard) AS is_shown, n.anchor
           FROM lost l JOIN documents o ON o.id = l.ontology_id JOIN documents f ON f.id = $1
           LEFT JOIN node_origins n ON n.document_id = l.document_id ORDER BY l.id",
    )
    .bind(file.id())
    .bind(gone)
    .fetch_all(conn)
    .await?;
    Ok((followed, lost))
}

/// A merge in force of a node that goes.
#[derive(Clone, Copy, Debug, sqlx_macros::FromRow)]
pub struct LostMerge {
    pub id: i64,
    pub kept_id: DocumentId,
    pub merged_id: DocumentId,
}

/// Has the counterparts of nodes that go taken for what the nodes were taken for, and takes the merges of the others away. Returns how many merges in force
/// follow, and the others. Who may read the file may know of each, because the documents of such a merge have one guard.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = file.id().0))]
pub async fn redirect_merges(
    conn: &mut PgConnection,
    file: &Place,
    counterparts: &HashMap<DocumentId, DocumentId>,
    gone: &[DocumentId],
) -> sqlx::Result<(i64, Vec<LostMerge>)> {
    let (old, new): (Vec<DocumentId>, Vec<DocumentId>) = counterparts.iter().unzip();
    for statement in [
        "UPDATE entity_merges e SET kept_id = n.new FROM unnest($1::bigint[], $2::bigint[]) AS n(old, new) WHERE e.kept_id = n.old",
        "UPDATE entity_merges e SET merged_id = n.new FROM unnest($1::bigint[], $2::bigint[]) AS n(old, new) WHERE e.merged_id = n.old",
    ] {
        sqlx::query(statement).bind(&old).bind(&new).execute(&mut *conn).await?;
    }
    let lost = sqlx::query_as(
        "WITH lost AS (DELETE FROM entity_merges WHERE kept_id = ANY($1) OR merged_id = ANY($1) RETURNING id, kept_id, merged_id, undone_at)
         SELECT l.id, l.kept_id, l.merged_id FROM lost l JOIN documents k ON k.id = l.kept_id JOIN documents m ON m.id = l.merged_id AND m.guard = k.guard
          WHERE l.undone_at IS NULL ORDER BY l.id",
    )
    .bind(gone)
    .persistent(false)
    .fetch_all(&mut *conn)
    .await?;
    let followed = sqlx::query_scalar(
        "SELECT count(*) FROM entity_merges e JOIN documents k ON k.id = e.kept_id JOIN documents m ON m.id = e.merged_id AND m.guard = k.guard
          WHERE (e.kept_id = ANY($1) OR e.merged_id = ANY($1)) AND e.undone_at IS NULL",
    )
    .bind(new)
    .persistent(false)
    .fetch_one(conn)
    .await?;
    Ok((followed, lost))
}

/// Puts everything of a generation under its file: nodes, counts, tasks, attempts, evidence, text and vector. The tasks of the old tree
/// go that have not ended, or that have failed and could be put back; nobody holds one of them. Summaries that somebody asked for stay
/// wanted, and are made of the new leaves. Facts that are to be extracted stay wanted too.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = file.id().0, root.id = generation.id.0))]
pub async fn put_in_place(conn: &mut PgConnection, file: &Place, generation: &Generation) -> sqlx::Result<()> {
    let (id, root) = (file.id(), generation.id);
    // One index has the tasks of a root that have not ended, and another one those that have: no statement here reads the whole queue, as nobody
    // creates meanwhile.
    for statement in [
        // What waits at the file for the titles above chunks has those to do too that callers put under the file.
        "DELETE FROM task_queue WHERE root_id = $1 AND NOT final AND task_type <> ALL($2) AND NOT (scope_document_id = $1 AND task_type = 'embed:titles')",
        "DELETE FROM task_queue WHERE root_id = $1 AND final AND status = 'failed' AND task_type <> ALL($2)",
    ] {
        sqlx::query(statement).bind(id).bind(&ASKED_FOR[..]).execute(&mut *conn).await?;
    }
    // What the old tree failed at is no reason why the new one lacks something, also where a purge has taken the task.
    sqlx::query(
        "INSERT INTO task_attempts (document_id, task_id, task_type, attempt, outcome, code, message, worker, started_at, param_fingerprint)
         SELECT $1, a.task_id, a.task_type, a.attempt, 'skipped', 'reprocessed', 'another tree took the place of the one that this was for', '',
                clock_timestamp(), a.param_fingerprint
           FROM (SELECT DISTINCT ON (task_id) task_id, task_type, attempt, outcome, param_fingerprint
                   FROM task_attempts WHERE document_id = $1 ORDER BY task_id, id DESC) a
          WHERE a.outcome = 'failed' AND NOT EXISTS (SELECT 1 FROM task_queue t WHERE t.id = a.task_id)",
    )
    .bind(id)
    .execute(&mut *conn)
    .await?;
    for statement in [
        "DELETE FROM settle_event WHERE root_id = $1",
        "DELETE FROM node_evidence WHERE document_id = $1",
        "DELETE FROM extractions WHERE document_id = $1",
        "DELETE FROM document_vectors WHERE document_id = $1",
        "DELETE FROM token_embeddings WHERE document_id = $1",
        "DELETE FROM token_packs WHERE document_id = $1",
    ] {
        sqlx::query(statement).bind(id).execute(&mut *conn).await?;
    }
    for statement in [
        "WITH was AS (DELETE FROM ingest_node WHERE document_id = $1 RETURNING priority)
         UPDATE ingest_node SET document_id = $1, priority = (SELECT priority FROM was) WHERE document_id = $2",
        "UPDATE ingest_node SET root_id = $1, parent_id = CASE WHEN parent_id = $2 THEN $1 ELSE parent_id END WHERE root_id = $2",
        follow_tasks!("NOT t.final"),
        follow_tasks!("t.final"),
        "UPDATE task_attempts SET document_id = $1 WHERE document_id = $2",
        "UPDATE node_evidence SET document_id = $1 WHERE document_id = $2",
        // What was answered for the file itself went with the summaries of the old tree.
        "UPDATE llm_answers SET document_id = $1 WHERE document_id = $2",
        "UPDATE extractions SET document_id = $1 WHERE document_id = $2",
        "UPDATE document_vectors SET document_id = $1 WHERE document_id = $2",
        "UPDATE document_blobs SET options = (SELECT options FROM generations WHERE generation_id = $2) WHERE document_id = $1",
        "UPDATE documents SET settled = (SELECT settled FROM documents WHERE id = $2) WHERE id = $1",
        "UPDATE documents d SET path = f.path || f.id || d.path[2:], parent_id = CASE WHEN d.parent_id = $2 THEN $1 ELSE d.parent_id END, guard = f.guard
           FROM documents f WHERE f.id = $1 AND d.path @> ARRAY[$2::bigint]",
    ] {
        sqlx::query(statement).bind(id).bind(root).execute(&mut *conn).await?;
    }
    // They have had the root of the file since the reprocess began, and it may have been moved meanwhile.
    vectors::follow(conn, id).await
}

/// The place of a node under a file.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = id.0, root.id = file.id().0))]
pub async fn place_under(conn: &mut PgConnection, file: &Place, id: DocumentId) -> sqlx::Result<Option<Place>> {
    sqlx::query_as("SELECT id, path FROM documents WHERE id = $1 AND (id = $2 OR path @> ARRAY[$2::bigint])")
        .bind(id)
        .bind(file.id())
        .fetch_optional(conn)
        .await
}

/// Puts nodes under a file that another tree took the place of out of everybody's reach: under the generation, which is given up with them. To
/// delete them takes many times as long. Nobody holds a task of theirs, and what waits to be done with them goes.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = file.id().0, root.id = generation.id.0))]
pub async fn set_aside(
    conn: &mut PgConnection,
    file: &Place,
    generation: &Generation,
    nodes: &[DocumentId],
) -> sqlx::Result<()> {
    sqlx::query("DELETE FROM task_queue WHERE scope_document_id = ANY($1) AND NOT final")
        .bind(nodes)
        .execute(&mut *conn)
        .await?;
    sqlx::query("DELETE FROM ingest_node WHERE document_id = ANY($1)").bind(nodes).execute(&mut *conn).await?;
    sqlx::query(
        "UPDATE documents SET path = ARRAY[$1::bigint] || path[$3 + 2 :], parent_id = CASE WHEN parent_id = $2 THEN $1 ELSE parent_id END, guard = -1
          WHERE id = ANY($4)",
    )
    .bind(generation.id)
    .bind(file.id())
    .bind(i32::try_from(file.path().len()).unwrap_or(i32::MAX))
    .bind(nodes)
    .execute(&mut *conn)
    .await?;
    sqlx::query("UPDATE generations SET abandoned = true WHERE generation_id = $1")
        .bind(generation.id)
        .execute(conn)
        .await
        .map(|_| ())
}
