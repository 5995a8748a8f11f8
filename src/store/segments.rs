//! The children of a container as they are read to be segmented, and the segments that are put between the two.
pub mod sums;

use super::{
    documents::sibling_position,
    nodes::{NOT_OF_A_TEXT, SEGMENT, braces},
    places::Place,
};
use pgvector::HalfVector;
use sqlx::PgConnection;
use std::collections::HashSet;
use svc_ids::DocumentId;

/// The children that ingestion made of a file's text or rows; the arguments are the placeholder of the rules that are
/// not of a text, and the container. Other files, pictures, charts, documents of callers, the profile of a sheet and a tree of summaries stay where
/// they are.
macro_rules! segmented {
    ($others:literal, $parent:literal) => {
        concat!(
            "JOIN node_origins o ON o.document_id = d.id AND o.rule <> ALL(",
            $others,
            "::text[]) WHERE d.parent_id = ",
            $parent,
            " AND d.usetype NOT IN ('profile', 'file', 'image')"
        )
    };
}

/// The place of a sibling in its order, as the index of siblings has it.
macro_rules! order {
    () => {
        "coalesce(d.position::bigint, 2147483648), d.id"
    };
}

/// Those of these containers in which ingestion made more children than each may have.
pub async fn with_more_children(
    conn: &mut PgConnection,
    containers: &[(DocumentId, usize)],
) -> sqlx::Result<HashSet<DocumentId>> {
    let ids: Vec<DocumentId> = sqlx::query_scalar(concat!(
        "SELECT c.id FROM unnest($1::bigint[], $2::bigint[]) AS c(id, most)
          WHERE (SELECT count(*) FROM (SELECT 1 FROM documents d ",
        segmented!("$3", "c.id"),
        " LIMIT c.most + 1) children) > c.most"
    ))
    .bind(containers.iter().map(|(id, _)| *id).collect::<Vec<_>>())
    .bind(containers.iter().map(|(_, most)| i64::try_from(*most).unwrap_or(i64::MAX - 1)).collect::<Vec<_>>())
    .bind(&NOT_OF_A_TEXT[..])
    .fetch_all(conn)
    .await?;
    Ok(ids.into_iter().collect())
}

/// The child after which a page begins, by its position and its id; `None` for the first page.
pub type After = Option<(Option<i32>, DocumentId)>;

fn cursor(after: After) -> (i64, DocumentId) {
    after.map_or((i64::MIN, DocumentId(0)), |(position, id)| (sibling_position(position), id))
}

/// One child of a container.
#[derive(Debug, sqlx_macros::FromRow)]
pub struct Child {
    pub id: DocumentId,
    pub position: Option<i32>,
    pub has_failed: bool,
    /// The tokens under it if it is a container itself.
    pub tokens: Option<i64>,
    /// Its text if it is a leaf.
    pub content: Option<String>,
    /// Its vector, if it has settled with one of the asked model.
    pub embed: Option<HalfVector>,
}

/// The children of a container after one of them, in their order.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = parent.0))]
pub async fn children(
    conn: &mut PgConnection,
    parent: DocumentId,
    model: &str,
    after: After,
    limit: usize,
) -> sqlx::Result<Vec<Child>> {
    let (position, id) = cursor(after);
    sqlx::query_as(concat!(
        "SELECT page.id, page.position, page.has_failed, n.tokens, CASE WHEN n.document_id IS NULL THEN page.content END AS content, v.embed
           FROM (SELECT d.id, d.position, d.settled, d.settled = 'failed' AS has_failed, d.content FROM documents d ",
        segmented!("$6", "$1"),
        " AND (",
        order!(),
        ") > ($3, $4) ORDER BY ",
        order!(),
        " LIMIT $5) page
           LEFT JOIN ingest_node n ON n.document_id = page.id
           LEFT JOIN document_vectors v ON v.document_id = page.id AND v.embed_model = $2 AND page.settled = 'settled'
          ORDER BY coalesce(page.position::bigint, 2147483648), page.id"
    ))
    .bind(parent)
    .bind(model)
    .bind(position)
    .bind(id)
    .bind(i64::try_from(limit).unwrap_or(i64::MAX))
    .bind(&NOT_OF_A_TEXT[..])
    .fetch_all(conn)
    .await
}

/// The children of a container ($1) that a caller segments, wherever they are now: directly under it or under one of
/// its segments ($2 lists all of these). They have the container's guard, and a tree of summaries is none of them.
macro_rules! members {
    () => {
        "d.parent_id = ANY($2) AND d.id <> ALL($2) AND d.usetype <> 'raptor' AND d.guard = (SELECT guard FROM documents WHERE id = $1)"
    };
}

/// The members of a container after one of them, in their order. They are directly under one of `parents`: the container or its segments.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = container.id().0))]
pub async fn members(
    conn: &mut PgConnection,
    container: &Place,
    parents: &[DocumentId],
    model: &str,
    after: After,
    limit: usize,
) -> sqlx::Result<Vec<Child>> {
    let (position, id) = cursor(after);
    sqlx::query_as(concat!(
        "SELECT d.id, d.position, d.settled = 'failed' AS has_failed, 0::bigint AS tokens, NULL::text AS content, v.embed
           FROM documents d LEFT JOIN document_vectors v ON v.document_id = d.id AND v.embed_model = $3 AND d.settled = 'settled'
          WHERE ",
        members!(),
        " AND (",
        order!(),
        ") > ($4, $5) ORDER BY ",
        order!(),
        " LIMIT $6"
    ))
    .bind(container.id())
    .bind(parents)
    .bind(model)
    .bind(position)
    .bind(id)
    .bind(i64::try_from(limit).unwrap_or(i64::MAX))
    .fetch_all(conn)
    .await
}

/// The ids of all members of a container in their order, up to `limit`.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = container.id().0))]
pub async fn member_ids(
    conn: &mut PgConnection,
    container: &Place,
    parents: &[DocumentId],
    limit: usize,
) -> sqlx::Result<Vec<DocumentId>> {
    sqlx::query_scalar(concat!("SELECT d.id FROM documents d WHERE ", members!(), " ORDER BY ", order!(), " LIMIT $3"))
        .bind(container.id())
        .bind(parents)
        .bind(i64::try_from(limit).unwrap_or(i64::MAX))
        .fetch_all(conn)
        .await
}

/// Whether some of these documents, which have no vector, will have one once their tasks are done.
pub async fn are_expected(conn: &mut PgConnection, documents: &[DocumentId]) -> sqlx::Result<bool> {
    // The condition of the index task_queue_document_embeds is repeated as it is, so that the planner may use the
    // index.
    sqlx::query_scalar(
        "SELECT EXISTS (SELECT 1 FROM documents WHERE id = ANY($1) AND settled = 'in_flight')
             OR EXISTS (SELECT 1 FROM task_queue t
                         WHERE t.task_type = 'embed' AND t.root_id = t.scope_document_id AND (NOT t.final OR t.error_type IS NOT NULL)
                           AND NOT t.final AND embedded_documents(t.params, t.scope_document_id) && $1)",
    )
    .bind(documents)
    .fetch_one(conn)
    .await
}

/// A segment that `POST /documents/{id}/segment` made.
#[derive(Clone, Debug, sqlx_macros::FromRow)]
pub struct Made {
    #[sqlx(flatten)]
    pub place: Place,
    /// It is an access root, or under one that its container is not under.
    pub has_own_rights: bool,
}

/// The segments that `POST /documents/{id}/segment` made of the children of a container, on all levels.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = container.id().0))]
pub async fn made(conn: &mut PgConnection, container: &Place) -> sqlx::Result<Vec<Made>> {
    sqlx::query_as(
        "WITH RECURSIVE made AS (
             SELECT d.id, d.path, d.guard FROM documents d JOIN node_origins o ON o.document_id = d.id AND o.rule = $2 WHERE d.parent_id = $1
             UNION ALL
             SELECT d.id, d.path, d.guard FROM made m JOIN documents d ON d.parent_id = m.id
               JOIN node_origins o ON o.document_id = d.id AND o.rule = $2)
         SELECT m.id, m.path, m.guard <> c.guard AS has_own_rights FROM made m JOIN documents c ON c.id = $1 ORDER BY m.id",
    )
    .bind(container.id())
    .bind(SEGMENT)
    .fetch_all(conn)
    .await
}

/// The documents directly under these segments, except the segments themselves.
pub async fn contents(conn: &mut PgConnection, segments: &[DocumentId]) -> sqlx::Result<Vec<DocumentId>> {
    sqlx::query_scalar("SELECT id FROM documents WHERE parent_id = ANY($1) AND id <> ALL($1) ORDER BY id")
        .bind(segments)
        .fetch_all(conn)
        .await
}

/// Until the transaction ends, nobody gives one of these segments a text or puts something under it.
pub async fn hold(conn: &mut PgConnection, segments: &[DocumentId]) -> sqlx::Result<()> {
    sqlx::query("SELECT count(*) FROM (SELECT id FROM documents WHERE id = ANY($1) ORDER BY cardinality(path), id FOR UPDATE) locked")
        .bind(segments)
        .execute(conn)
        .await
        .map(|_| ())
}

/// One of these segments that has a text of its own. The caller has called [`hold`].
pub async fn with_text(conn: &mut PgConnection, segments: &[DocumentId]) -> sqlx::Result<Option<DocumentId>> {
    sqlx::query_scalar("SELECT id FROM documents WHERE id = ANY($1) AND content <> '' ORDER BY id LIMIT 1")
        .bind(segments)
        .fetch_optional(conn)
        .await
}

/// Those of these segments that have no text of their own and under which there is nothing but such segments, without those under another one of
/// them. The caller has called [`hold`].
pub async fn empty(conn: &mut PgConnection, segments: &[DocumentId]) -> sqlx::Result<Vec<Place>> {
    sqlx::query_as(
        "WITH held AS (
             SELECT unnest(path) AS id FROM documents WHERE path && $1 AND id <> ALL($1)
             UNION ALL SELECT unnest(path || id) FROM documents WHERE id = ANY($1) AND content <> ''),
         empty AS (SELECT id, parent_id, path FROM documents WHERE id = ANY($1) AND id NOT IN (SELECT id FROM held))
         SELECT e.id, e.path FROM empty e WHERE e.parent_id NOT IN (SELECT id FROM empty) ORDER BY e.id",
    )
    .bind(segments)
    .fetch_all(conn)
    .await
}

/// Puts what is in segments of a container directly under the container, with the tasks that wait there. The segments
/// stay, empty.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = container.id().0))]
pub async fn dissolve(conn: &mut PgConnection, container: &Place, segments: &[DocumentId]) -> sqlx::Result<()> {
    lock(conn, segments).await?;
    let contents = contents(conn, segments).await?;
    sqlx::query(
        "UPDATE documents d SET parent_id = CASE WHEN d.parent_id = ANY($2) THEN $1 ELSE d.parent_id END,
                path = (SELECT array_agg(above.id ORDER BY above.place) FROM unnest(d.path) WITH ORDINALITY AS above(id, place) WHERE above.id <> ALL($2))
          WHERE d.path && $2 AND d.id <> ALL($2)",
    )
    .bind(container.id())
    .bind(segments)
    .execute(&mut *conn)
    .await?;
    follow_moves(conn, &contents).await
}

/// A child that moves from its container into a segment.
#[derive(Clone, Debug)]
pub struct Move {
    pub id: DocumentId,
    /// The ids of the segments between the container and the child, from the top; the last is its new parent.
    pub below: Vec<i64>,
}

/// Moves children of a container into segments under it, with everything under them and the tasks that wait there. The caller's task
/// holds the region, so none of these tasks is claimed meanwhile.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = container.id().0))]
pub async fn move_children(conn: &mut PgConnection, container: &Place, moves: &[Move]) -> sqlx::Result<()> {
    let ids: Vec<DocumentId> = moves.iter().map(|moved| moved.id).collect();
    let below: Vec<String> = moves.iter().map(|moved| braces(&moved.below)).collect();
    // The number of nodes above a child.
    let depth = i32::try_from(container.path().len() + 1).unwrap_or(i32::MAX);
    lock(conn, &ids).await?;
    // The descendants go first: they are found by the child, whose own place does not matter for that.
    sqlx::query(
        "WITH moved AS (
             SELECT m.id, m.below::bigint[] AS below FROM unnest($1::bigint[], $2::text[]) AS m(id, below)
              WHERE EXISTS (SELECT 1 FROM documents c WHERE c.parent_id = m.id))
         UPDATE documents d SET path = d.path[1:$3] || m.below || d.path[$3 + 1:] FROM moved m WHERE d.path @> ARRAY[m.id]",
    )
    .bind(&ids)
    .bind(&below)
    .bind(depth)
    .execute(&mut *conn)
    .await?;
    sqlx::query(
        "UPDATE documents d SET path = d.path || m.below::bigint[], parent_id = (m.below::bigint[])[cardinality(m.below::bigint[])]
           FROM unnest($1::bigint[], $2::text[]) AS m(id, below) WHERE d.id = m.id",
    )
    .bind(&ids)
    .bind(&below)
    .execute(&mut *conn)
    .await?;
    sqlx::query(
        "UPDATE ingest_node n SET parent_id = d.parent_id FROM documents d WHERE d.id = ANY($1) AND n.document_id = d.id AND n.parent_id = $2",
    )
    .bind(&ids)
    .bind(container.id())
    .execute(&mut *conn)
    .await?;
    follow_moves(conn, &ids).await
}

/// Locks nodes and everything under them. Whoever puts something there holds a lock of its parent until it is there.
async fn lock(conn: &mut PgConnection, ids: &[DocumentId]) -> sqlx::Result<()> {
    sqlx::query("SELECT count(*) FROM (SELECT id FROM documents WHERE id = ANY($1) ORDER BY cardinality(path), id FOR UPDATE) locked")
        .bind(ids)
        .execute(&mut *conn)
        .await?;
    let mut before = 0;
    loop {
        let under: i64 = sqlx::query_scalar(
            "WITH above AS MATERIALIZED (SELECT DISTINCT parent_id AS id FROM documents WHERE parent_id = ANY($1))
             SELECT count(*) FROM (SELECT d.id FROM above JOIN documents d ON d.path @> ARRAY[above.id] ORDER BY d.id FOR UPDATE OF d) locked",
        )
        .bind(ids)
        .fetch_one(&mut *conn)
        .await?;
        // What was put there while this waited is locked too.
        if std::mem::replace(&mut before, under) == under {
            return Ok(());
        }
    }
}

/// Gives the tasks at and under moved nodes the regions of their new places. Tasks that stood back for their intents look again.
async fn follow_moves(conn: &mut PgConnection, ids: &[DocumentId]) -> sqlx::Result<()> {
    sqlx::query(
        "WITH above AS MATERIALIZED (SELECT DISTINCT parent_id AS id FROM documents WHERE parent_id = ANY($1)),
         moved AS (SELECT unnest($1::bigint[]) AS id UNION SELECT d.id FROM above JOIN documents d ON d.path @> ARRAY[above.id]),
         changed AS (
             UPDATE task_queue t SET node_path = at.key, node_depth = at.depth,
                    first_leaf = at.key || substr(t.first_leaf, length(t.node_path) + 1),
                    last_leaf = at.key || substr(t.last_leaf, length(t.node_path) + 1)
               FROM (SELECT d.id, array_to_string(d.path || d.id, '/') || '/' AS key, cardinality(d.path) AS depth
                       FROM moved JOIN documents d ON d.id = moved.id) at
              WHERE t.scope_document_id = at.id AND NOT t.final RETURNING t.id)
         DELETE FROM task_intent i USING changed c WHERE i.task_id = c.id",
    )
    .bind(ids)
    .execute(conn)
    .await
    .map(|_| ())
}

/// Records for new segments that they are not cut again, and how many of their children failed.
pub async fn begin(conn: &mut PgConnection, ids: &[DocumentId], failed: &[i32]) -> sqlx::Result<()> {
    sqlx::query(
        "UPDATE ingest_node n SET rollup = 'segmented', failed_children = s.failed
           FROM unnest($1::bigint[], $2::int[]) AS s(id, failed) WHERE n.document_id = s.id",
    )
    .bind(ids)
    .bind(failed)
    .execute(conn)
    .await
    .map(|_| ())
}

/// Records that a container is segmented: how many segments it waits for, and how many failed children went into them.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = container.id().0))]
pub async fn end(conn: &mut PgConnection, container: &Place, segments: i32, failed: i32) -> sqlx::Result<()> {
    sqlx::query(
        "UPDATE ingest_node SET rollup = 'segmented', open_children = open_children + $2, failed_children = failed_children - $3
          WHERE document_id = $1",
    )
    .bind(container.id())
    .bind(segments)
    .bind(failed)
    .execute(conn)
    .await
    .map(|_| ())
}
