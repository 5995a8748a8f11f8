//! The children of a container as structure:semantic reads them, and the segments that it puts between the two.
use super::{nodes::braces, places::Place};
use pgvector::HalfVector;
use serde_json::Value;
use sqlx::PgConnection;
use svc_ids::DocumentId;

/// The children that ingestion made of a file's text or rows. Other files, documents of callers, the profile of a sheet and a tree of
/// summaries stay where they are.
macro_rules! segmented {
    () => {
        "JOIN node_origins o ON o.document_id = d.id AND o.rule <> 'upload' WHERE d.parent_id = $1 AND d.usetype NOT IN ('profile', 'raptor')"
    };
}

/// Whether a container has more such children than this.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = parent.0))]
pub async fn has_more_children(conn: &mut PgConnection, parent: DocumentId, than: usize) -> sqlx::Result<bool> {
    sqlx::query_scalar(concat!(
        "SELECT count(*) > $2 FROM (SELECT 1 FROM documents d ",
        segmented!(),
        " LIMIT $2 + 1) children"
    ))
    .bind(parent)
    .bind(i64::try_from(than).unwrap_or(i64::MAX))
    .fetch_one(conn)
    .await
}

/// One child of a container.
#[derive(Debug, sqlx::FromRow)]
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
    after: Option<(Option<i32>, DocumentId)>,
    limit: usize,
) -> sqlx::Result<Vec<Child>> {
    let (position, id) =
        after.map_or((i64::MIN, DocumentId(0)), |(position, id)| (super::documents::sibling_position(position), id));
    sqlx::query_as(concat!(
        "SELECT page.id, page.position, page.has_failed, n.tokens, CASE WHEN n.document_id IS NULL THEN page.content END AS content, v.embed
           FROM (SELECT d.id, d.position, d.settled, d.settled = 'failed' AS has_failed, d.content FROM documents d ",
        segmented!(),
        " AND (coalesce(d.position::bigint, 2147483648), d.id) > ($3, $4) ORDER BY d.position NULLS LAST, d.id LIMIT $5) page
           LEFT JOIN ingest_node n ON n.document_id = page.id
           LEFT JOIN document_vectors v ON v.document_id = page.id AND v.embed_model = $2 AND page.settled = 'settled'
          ORDER BY page.position NULLS LAST, page.id"
    ))
    .bind(parent)
    .bind(model)
    .bind(position)
    .bind(id)
    .bind(i64::try_from(limit).unwrap_or(i64::MAX))
    .fetch_all(conn)
    .await
}

/// What a node is called and where it comes from.
#[derive(Clone, Debug, sqlx::FromRow)]
pub struct Origin {
    pub id: DocumentId,
    pub title: String,
    pub anchor: Option<Value>,
}

/// The titles and anchors of nodes, in any order.
pub async fn origins(conn: &mut PgConnection, ids: &[DocumentId]) -> sqlx::Result<Vec<Origin>> {
    sqlx::query_as(
        "SELECT d.id, d.title, o.anchor FROM documents d LEFT JOIN node_origins o ON o.document_id = d.id WHERE d.id = ANY($1)",
    )
    .bind(ids)
    .fetch_all(conn)
    .await
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

/// Locks nodes and everything under them. Who puts something there holds the lock of its parent until it is there.
async fn lock(conn: &mut PgConnection, ids: &[DocumentId]) -> sqlx::Result<()> {
    sqlx::query("SELECT count(*) FROM (SELECT id FROM documents WHERE id = ANY($1) ORDER BY id FOR UPDATE) locked")
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
