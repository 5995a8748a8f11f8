//! What happened, recorded in the transaction that makes it true. A rollback leaves nothing of it.
//!
//! An event keeps the path and the guard that the document has at that moment, so that it is known later who could read
//! the document. So an event is recorded after the document has its final guard, and a deletion before the document is
//! gone. Nothing is told of the documents that a reprocess builds until they take their place.
use super::{
    evidence::Evidence,
    nodes::{OF_CALLERS, braces},
    scope::visible,
    text::storable_json,
};
use serde_json::{Value, json};
use sqlx::PgConnection;
use svc_client::wire::{Audience, EventKind};
use svc_ids::{DocumentId, RootId, TaskId, TripleId};

/// The columns that every event of a document has, and where they come from: `documents d`. The file that a document belongs to is the
/// nearest at or above it that was ingested.
macro_rules! of_document {
    () => {
        "d.id, coalesce((SELECT n.document_id FROM ingest_node n WHERE n.document_id = ANY (d.path || d.id) AND n.root_id = n.document_id
                          ORDER BY array_position(d.path || d.id, n.document_id) DESC LIMIT 1), d.id), d.path, d.guard"
    };
}

/// Whether what becomes of `documents d` is told by itself: it is an access root, or no task made it. The argument of the macro is the parameter
/// that has [`OF_CALLERS`].
macro_rules! on_its_own {
    ($of_callers:literal) => {
        concat!(
            "(NOT EXISTS (SELECT 1 FROM node_origins o WHERE o.document_id = d.id AND o.rule <> ALL(",
            $of_callers,
            ")) OR EXISTS (SELECT 1 FROM access_roots a WHERE a.document_id = d.id))"
        )
    };
}

/// Records that the same happened to each of these documents. That one was created or updated is recorded with its
/// parent and usetype.
pub async fn record(
    conn: &mut PgConnection,
    kind: EventKind,
    documents: &[DocumentId],
    data: &Value,
) -> sqlx::Result<()> {
    let names_place = matches!(kind, EventKind::DocumentCreated | EventKind::DocumentUpdated);
    sqlx::query(concat!(
        "INSERT INTO event_outbox (document_id, root_id, path, guard, kind, data, owner_only)
         SELECT ",
        of_document!(),
        ", $2, CASE WHEN $4 THEN jsonb_build_object('parent_id', d.parent_id, 'usetype', d.usetype) ELSE '{}' END || $3, $5
           FROM documents d WHERE d.id = ANY($1) AND ",
        visible!(),
        " ORDER BY d.id"
    ))
    .bind(documents)
    .bind(kind.as_str())
    .bind(storable_json(data).as_ref())
    .bind(names_place)
    .bind(kind.audience() == Audience::Owner)
    .execute(conn)
    .await
    .map(|_| ())
}

/// Records that these documents came from an archive: an event for each file, access root and document that no task made, of which a deletion has
/// one too, and for each of `tops`, with which the archive begins, whatever made them.
pub async fn imported(conn: &mut PgConnection, documents: &[DocumentId], tops: &[DocumentId]) -> sqlx::Result<()> {
    let told: Vec<DocumentId> = sqlx::query_scalar(concat!(
        "SELECT d.id FROM documents d WHERE d.id = ANY($1) AND (d.id = ANY($3) OR ",
        on_its_own!("$2"),
        ")"
    ))
    .bind(documents)
    .bind(&OF_CALLERS[..])
    .bind(tops)
    .fetch_all(&mut *conn)
    .await?;
    record(conn, EventKind::DocumentCreated, &told, &json!({})).await
}

/// Records what happened to facts, an event for each subject and for those who may read all of it: a fact whose object or source has other
/// readers than its subject is told to the owner alone.
pub(super) async fn facts(conn: &mut PgConnection, kind: EventKind, facts: &[TripleId]) -> sqlx::Result<()> {
    facts_about(conn, kind, facts, &[], &[]).await
}

/// Does the same for facts whose objects may be among these documents, which the transaction has deleted, each with the guard that it had.
pub(super) async fn facts_about(
    conn: &mut PgConnection,
    kind: EventKind,
    facts: &[TripleId],
    gone: &[DocumentId],
    guards: &[i64],
) -> sqlx::Result<()> {
    sqlx::query(concat!(
        "INSERT INTO event_outbox (document_id, root_id, path, guard, kind, data, owner_only)
         SELECT ",
        of_document!(),
        ", $2, jsonb_build_object('triple_ids', to_jsonb((f.ids)[:256]), 'triples', cardinality(f.ids)), f.owner_only
           FROM (SELECT t.subject_id, array_agg(t.id ORDER BY t.id) AS ids,
                        NOT (t.zone IN (0, s.guard) AND coalesce(o.guard, g.guard, 0) IN (0, s.guard)) AS owner_only
                   FROM triples t JOIN documents s ON s.id = t.subject_id AND s.guard <> -1
                   LEFT JOIN documents o ON o.id = t.object_id
                   LEFT JOIN unnest($3::bigint[], $4::bigint[]) AS g(id, guard) ON g.id = t.object_id
                  WHERE t.id = ANY($1) AND (t.object_id IS NULL OR coalesce(o.guard, g.guard) <> -1) GROUP BY 1, 3) f
           JOIN documents d ON d.id = f.subject_id ORDER BY d.id"
    ))
    .bind(facts)
    .bind(kind.as_str())
    .bind(gone)
    .bind(guards)
    .execute(conn)
    .await
    .map(|_| ())
}

/// Where a document is before it moves.
#[derive(Clone, Debug, sqlx_macros::FromRow)]
pub struct Origin {
    id: DocumentId,
    parent_id: Option<DocumentId>,
    path: Vec<i64>,
    guard: i64,
}

/// Reads where documents are, in the transaction that moves them and before it does.
pub async fn origins(conn: &mut PgConnection, ids: &[DocumentId]) -> sqlx::Result<Vec<Origin>> {
    sqlx::query_as("SELECT id, parent_id, path, guard FROM documents WHERE id = ANY($1)")
        .bind(ids)
        .fetch_all(conn)
        .await
}

/// Records that documents were moved, each with everything under it.
pub async fn moved(conn: &mut PgConnection, from: &[Origin]) -> sqlx::Result<()> {
    sqlx::query(concat!(
        "INSERT INTO event_outbox (document_id, root_id, path, guard, kind, from_path, from_guard, data, owner_only)
         SELECT ",
        of_document!(),
        ", $2, o.path::bigint[], o.guard,
                jsonb_build_object('parent_id', d.parent_id, 'from_parent_id', o.parent_id, 'usetype', d.usetype), false
           FROM unnest($1::bigint[], $3::text[], $4::bigint[], $5::bigint[]) AS o(id, path, guard, parent_id)
           JOIN documents d ON d.id = o.id ORDER BY d.id"
    ))
    .bind(from.iter().map(|origin| origin.id).collect::<Vec<_>>())
    .bind(EventKind::DocumentMoved.as_str())
    .bind(from.iter().map(|origin| braces(&origin.path)).collect::<Vec<_>>())
    .bind(from.iter().map(|origin| origin.guard).collect::<Vec<_>>())
    .bind(from.iter().map(|origin| origin.parent_id).collect::<Vec<_>>())
    .execute(conn)
    .await
    .map(|_| ())
}

/// Records that documents are deleted with everything under them, before they are: an event for each of the documents,
/// and for each file, access root and document under them that no task made. An event keeps the principals whose grants
/// go with its document.
pub(super) async fn deleted(conn: &mut PgConnection, tops: &[DocumentId]) -> sqlx::Result<()> {
    sqlx::query(concat!(
        "INSERT INTO event_outbox (document_id, root_id, path, guard, kind, readers, data, owner_only)
         SELECT ",
        of_document!(),
        ", $2, (SELECT array_agg(DISTINCT g.principal_id) FROM access_grants g
                 WHERE g.document_id = ANY ((d.path || d.id)[cardinality(t.path) + 1:])),
                jsonb_build_object('parent_id', d.parent_id, 'usetype', d.usetype), false
           FROM documents t CROSS JOIN LATERAL (
                SELECT t.* UNION ALL SELECT u.* FROM documents u WHERE u.path @> ARRAY[t.id]) d
          WHERE t.id = ANY($1)
            AND (d.id = t.id OR ",
        on_its_own!("$3"),
        ") ORDER BY d.id"
    ))
    .bind(tops)
    .bind(EventKind::DocumentDeleted.as_str())
    .bind(&OF_CALLERS[..])
    .execute(conn)
    .await
    .map(|_| ())
}

/// Records that files have settled, after a warning for each evidence that their readers should know.
pub async fn settled(conn: &mut PgConnection, roots: &[RootId]) -> sqlx::Result<()> {
    warnings(conn, roots).await?;
    let files: Vec<DocumentId> = roots.iter().map(|root_id| root_id.document()).collect();
    super::bulk::ended(conn, &files).await?;
    sqlx::query(concat!(
        "INSERT INTO event_outbox (document_id, root_id, path, guard, kind, data, owner_only)
         SELECT d.id, d.id, d.path, d.guard, $2, jsonb_build_object('nodes', f.total, 'nodes_failed', f.failed,
                'seconds', round(extract(epoch FROM clock_timestamp() - d.created_at)::numeric, 3)), false
           FROM documents d CROSS JOIN LATERAL (SELECT coalesce(sum(total), 0)::bigint AS total, coalesce(sum(failed), 0)::bigint AS failed
                                                  FROM frontier_delta WHERE root_id = d.id) f WHERE d.id = ANY($1) AND ",
        visible!(),
        " ORDER BY d.id"
    ))
    .bind(roots)
    .bind(EventKind::IngestSettled.as_str())
    .execute(conn)
    .await
    .map(|_| ())
}

/// The most nodes that one event names.
const NODES: i64 = 256;

/// Records that nodes settled together, each with the file that it is of: an event for those under the same node that the same callers may read. A node
/// that is an access root has an event of its own, because whoever may read it has a grant there.
pub async fn nodes(conn: &mut PgConnection, settled: &[(RootId, DocumentId)]) -> sqlx::Result<()> {
    sqlx::query(concat!(
        "INSERT INTO event_outbox (document_id, root_id, path, guard, kind, data, owner_only)
         SELECT at.id, part.root_id, at.path, part.guard, $3, jsonb_build_object('nodes', part.nodes), false
           FROM (SELECT root_id, place, guard, jsonb_agg(id ORDER BY id) AS nodes
                   FROM (SELECT s.root_id, d.id, d.guard, place, (row_number() OVER (PARTITION BY s.root_id, place, d.guard ORDER BY d.id) - 1) / $4 AS part
                           FROM unnest($1::bigint[], $2::bigint[]) AS s(id, root_id) JOIN documents d ON d.id = s.id
                          CROSS JOIN LATERAL (SELECT CASE d.guard WHEN d.id THEN d.id ELSE d.parent_id END AS place) p
                          WHERE d.id <> s.root_id AND ",
        visible!(),
        ") n GROUP BY root_id, place, guard, part) part JOIN documents at ON at.id = part.place ORDER BY part.nodes -> 0"
    ))
    .bind(settled.iter().map(|(_, id)| *id).collect::<Vec<_>>())
    .bind(settled.iter().map(|(root_id, _)| *root_id).collect::<Vec<_>>())
    .bind(EventKind::IngestNodes.as_str())
    .bind(NODES)
    .execute(conn)
    .await
    .map(|_| ())
}

/// Records a warning for each evidence of files that their readers should know.
pub async fn warnings(conn: &mut PgConnection, roots: &[RootId]) -> sqlx::Result<()> {
    let warnings = Evidence::WARNINGS.map(Evidence::as_str);
    sqlx::query(concat!(
        "INSERT INTO event_outbox (document_id, root_id, path, guard, kind, data, owner_only)
         SELECT d.id, d.id, d.path, d.guard, $2, jsonb_build_object('warning', e.name, 'detail', e.value), false
           FROM documents d JOIN node_evidence e ON e.document_id = d.id AND e.name = ANY($3) AND e.value <> 'null' WHERE d.id = ANY($1) AND ",
        visible!(),
        " ORDER BY d.id, e.name"
    ))
    .bind(roots)
    .bind(EventKind::IngestWarning.as_str())
    .bind(warnings.as_slice())
    .execute(conn)
    .await
    .map(|_| ())
}

/// Records that a node failed because its last task did, and why that failed. If the node is the file itself, the file
/// failed; anything else is a warning.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = id.0, root.id = root_id.0))]
pub async fn failed(conn: &mut PgConnection, id: DocumentId, root_id: RootId) -> sqlx::Result<()> {
    match id == root_id.document() {
        true => {
            super::bulk::ended(conn, &[id]).await?;
            told_failed(conn, id, root_id, EventKind::IngestFailed).await
        }
        false => part_failed(conn, id, root_id).await,
    }
}

/// Records as a warning that nodes under a node failed because its last task did, and why that failed.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = id.0, root.id = root_id.0))]
pub async fn part_failed(conn: &mut PgConnection, id: DocumentId, root_id: RootId) -> sqlx::Result<()> {
    told_failed(conn, id, root_id, EventKind::IngestWarning).await
}

/// Why the last task of `documents d` failed, as the event of that says.
macro_rules! last_failure {
    () => {
        "(SELECT jsonb_build_object('task_type', max(a.task_type), 'error_type', max(a.error_type), 'code', max(a.code)) AS reason
            FROM (SELECT task_type, error_type, code FROM task_attempts
                   WHERE document_id = d.id AND outcome = 'failed' AND error_type <> 'dependency' ORDER BY id DESC LIMIT 1) a)"
    };
}
pub(super) use last_failure;

async fn told_failed(conn: &mut PgConnection, id: DocumentId, root_id: RootId, kind: EventKind) -> sqlx::Result<()> {
    sqlx::query(concat!(
        "INSERT INTO event_outbox (document_id, root_id, path, guard, kind, data, owner_only)
         SELECT d.id, $2, d.path, d.guard, $3,
                CASE WHEN $4 THEN reason ELSE jsonb_build_object('warning', 'part_failed', 'detail', reason) END, false
           FROM documents d CROSS JOIN LATERAL ",
        last_failure!(),
        " last WHERE d.id = $1 AND ",
        visible!()
    ))
    .bind(id)
    .bind(root_id)
    .bind(kind.as_str())
    .bind(kind == EventKind::IngestFailed)
    .execute(conn)
    .await
    .map(|_| ())
}

/// Records that a task failed for good, from its last attempt; for the owner. The event of a task of a reprocess names
/// the file.
#[tracing::instrument(level = "debug", skip_all, fields(task.id = task_id.0, document.id = document_id.0))]
pub(super) async fn task_failed(conn: &mut PgConnection, task_id: TaskId, document_id: DocumentId) -> sqlx::Result<()> {
    sqlx::query(
        "INSERT INTO event_outbox (document_id, root_id, kind, data, owner_only)
         SELECT coalesce(g.document_id, $2), coalesce(g.document_id, t.root_id), $3,
                jsonb_build_object('task_id', $1::bigint, 'task_type', a.task_type, 'error_type', a.error_type, 'code', a.code), true
           FROM task_attempts a LEFT JOIN task_queue t ON t.id = a.task_id LEFT JOIN generations g ON g.generation_id = t.root_id
          WHERE a.document_id = $2 AND a.task_id = $1 AND (g.generation_id IS NULL OR (g.document_id IS NOT NULL AND NOT g.abandoned))
          ORDER BY a.id DESC LIMIT 1",
    )
    .bind(task_id)
    .bind(document_id)
    .bind(EventKind::TaskFailed.as_str())
    .execute(conn)
    .await
    .map(|_| ())
}

/// Records that a worker left the fleet by itself; for the owner.
pub(super) async fn worker_signed_off(conn: &mut PgConnection, worker_id: &str) -> sqlx::Result<()> {
    sqlx::query("INSERT INTO event_outbox (kind, data, owner_only) VALUES ($1, jsonb_build_object('worker_id', $2::text, 'reason', 'signed_off'), true)")
        .bind(EventKind::WorkerLost.as_str())
        .bind(worker_id)
        .execute(conn)
        .await
        .map(|_| ())
}

/// Records which workers have fallen silent since the last call; for the owner.
pub async fn silent_workers(conn: &mut PgConnection) -> sqlx::Result<()> {
    sqlx::query(
        "WITH silent AS (UPDATE workers SET lost = true WHERE NOT lost AND beat_at < clock_timestamp() - lease RETURNING worker_id)
         INSERT INTO event_outbox (kind, data, owner_only)
         SELECT $1, jsonb_build_object('worker_id', worker_id, 'reason', 'silent'), true FROM silent",
    )
    .bind(EventKind::WorkerLost.as_str())
    .execute(conn)
    .await
    .map(|_| ())
}

/// What no living worker serves: a badge or a task type, with how many tasks wait and the seconds of the oldest.
#[derive(Clone, Debug)]
pub struct Unserved {
    /// `badge` or `task_type`.
    pub what: &'static str,
    pub name: String,
    pub tasks: i64,
    pub seconds: f64,
}

/// Records what has lost its workers and what is served again since the last call; for the owner.
pub async fn unserved(conn: &mut PgConnection, all: &[Unserved]) -> sqlx::Result<()> {
    sqlx::query(
        "WITH present AS (SELECT * FROM unnest($1::text[], $2::text[], $3::bigint[], $4::float8[]) AS p(what, name, tasks, seconds)),
         begun AS (INSERT INTO queue_stall (what, name) SELECT what, name FROM present ON CONFLICT DO NOTHING RETURNING what, name),
         over AS (DELETE FROM queue_stall s WHERE NOT EXISTS (SELECT 1 FROM present p WHERE p.what = s.what AND p.name = s.name)
                  RETURNING what, name, since)
         INSERT INTO event_outbox (kind, data, owner_only)
         SELECT $5, to_jsonb(p), true FROM begun JOIN present p USING (what, name)
         UNION ALL
         SELECT $6, jsonb_build_object('what', what, 'name', name, 'seconds', extract(epoch FROM clock_timestamp() - since)::float8), true FROM over",
    )
    .bind(all.iter().map(|unserved| unserved.what).collect::<Vec<_>>())
    .bind(all.iter().map(|unserved| unserved.name.as_str()).collect::<Vec<_>>())
    .bind(all.iter().map(|unserved| unserved.tasks).collect::<Vec<_>>())
    .bind(all.iter().map(|unserved| unserved.seconds).collect::<Vec<_>>())
    .bind(EventKind::QueueStalled.as_str())
    .bind(EventKind::QueueServed.as_str())
    .execute(conn)
    .await
    .map(|_| ())
}
