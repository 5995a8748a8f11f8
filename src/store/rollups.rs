//! Containers that are rolled up together: what is under each, and the vector that it gets from its children.
use super::{ingest_nodes::Rollup, nodes::NOT_OF_A_TEXT, places::Place, vectors::weighted_mean, word::Word};
use crate::usetype::Usetype;
use sqlx::PgConnection;
use std::collections::{HashMap, HashSet};
use svc_ids::{DocumentId, RootId};

/// How the evidence describes the vector of a summarised container.
pub const OF_SUMMARY: &str = "summary of a language model";

/// The children of `c.id` that a rollup is made of: those that settled and that tasks made of a text, but no picture, beside which stands
/// what the texts say already, and no chart. The argument is the placeholder of the rules that are not of a text.
macro_rules! rolled_up {
    ($others:literal) => {
        concat!(
            "d.parent_id = c.id AND d.settled = 'settled' AND d.usetype NOT IN ('raptor', 'image')
             AND EXISTS (SELECT 1 FROM node_origins o WHERE o.document_id = d.id AND o.rule <> ALL(",
            $others,
            "))"
        )
    };
}

/// Those of these containers that have a settled child besides pictures and charts.
pub async fn with_settled_child(
    conn: &mut PgConnection,
    containers: &[DocumentId],
) -> sqlx::Result<HashSet<DocumentId>> {
    let ids: Vec<DocumentId> = sqlx::query_scalar(
        "SELECT c.id FROM unnest($1::bigint[]) AS c(id)
          WHERE EXISTS (SELECT 1 FROM documents d WHERE d.parent_id = c.id AND d.settled = 'settled' AND d.usetype <> 'image'
                           AND NOT EXISTS (SELECT 1 FROM node_origins o WHERE o.document_id = d.id AND o.rule = $2 OFFSET 0) OFFSET 0)",
    )
    .bind(containers)
    .bind(super::images::RULE)
    .fetch_all(conn)
    .await?;
    Ok(ids.into_iter().collect())
}

/// Marks containers as waiting for tasks that roll them up, and counts each task at the container or file where it stands.
pub async fn queue(conn: &mut PgConnection, at: &[DocumentId], containers: &[DocumentId]) -> sqlx::Result<()> {
    sqlx::query(
        "UPDATE ingest_node n SET rollup = CASE WHEN q.waits THEN 'queued' ELSE n.rollup END, open_tasks = n.open_tasks + q.tasks
           FROM (SELECT id, bool_or(waits) AS waits, sum(tasks)::integer AS tasks
                   FROM (SELECT a.id, false AS waits, 1 AS tasks FROM unnest($1::bigint[]) AS a(id)
                         UNION ALL SELECT c.id, true, 0 FROM unnest($2::bigint[]) AS c(id)) u
                  GROUP BY id ORDER BY id LIMIT $3) q
          WHERE n.document_id = q.id",
    )
    .bind(at)
    .bind(containers)
    .bind((at.len() + containers.len()) as i64)
    .execute(conn)
    .await
    .map(|_| ())
}

/// Marks containers as waiting for a task that was put back, except those that wait for something else first.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = at.0))]
pub async fn queue_again(conn: &mut PgConnection, at: DocumentId, containers: &[DocumentId]) -> sqlx::Result<()> {
    sqlx::query(
        "UPDATE ingest_node n SET rollup = 'queued' FROM documents d
          WHERE n.document_id = ANY($2) AND n.open_children = 0 AND (n.open_tasks = 0 OR n.document_id = $1)
            AND d.id = n.document_id AND d.settled = 'in_flight'",
    )
    .bind(at)
    .bind(containers)
    .execute(conn)
    .await
    .map(|_| ())
}

/// A container that waits for its rollup.
#[derive(Debug, sqlx_macros::FromRow)]
pub struct Container {
    #[sqlx(flatten)]
    pub place: Place,
    /// The tokens under it, as they were counted when its parts were made. A workbook or an archive has no count of its own: the tasks
    /// of its parts count at these alone, so that they never meet on its row, and the parts' counts are summed here.
    pub tokens: i64,
    /// Its row has fewer.
    pub is_undercounted: bool,
    pub failed_children: i32,
    /// How many children it is rolled up from.
    pub children: i64,
}

/// A container in flight, and what is open at it.
#[derive(Clone, Debug, sqlx_macros::FromRow)]
pub struct Open {
    pub id: DocumentId,
    /// The container that waits for it.
    pub parent_id: Option<DocumentId>,
    pub open_tasks: i32,
    pub open_children: i32,
    pub rollup: Word<Rollup>,
    /// How many documents are above it.
    pub depth: i32,
}

/// Containers of a file that was not cancelled, and those above them in the file.
#[tracing::instrument(level = "debug", skip_all, fields(root.id = root_id.0))]
pub async fn with_above(
    conn: &mut PgConnection,
    root_id: RootId,
    containers: &[DocumentId],
) -> sqlx::Result<Vec<Open>> {
    sqlx::query_as(
        "WITH above AS MATERIALIZED (
             SELECT u.id FROM documents c CROSS JOIN LATERAL unnest(c.path || c.id) AS u(id) WHERE c.id = ANY($1) GROUP BY u.id LIMIT $3)
         SELECT n.document_id AS id, n.parent_id, n.open_tasks, n.open_children, n.rollup, cardinality(d.path) AS depth
           FROM above
          CROSS JOIN LATERAL (SELECT i.* FROM ingest_node i WHERE i.document_id = above.id AND i.root_id = $2 OFFSET 0) n
          CROSS JOIN LATERAL (SELECT d.path FROM documents d WHERE d.id = above.id AND d.settled = 'in_flight' OFFSET 0) d
          WHERE NOT (SELECT r.cancelled FROM ingest_node r WHERE r.document_id = $2)",
    )
    .bind(containers)
    .bind(root_id)
    .bind(MOST_ABOVE)
    .fetch_all(conn)
    .await
}

/// The most containers that are looked at in one go; the settler comes to the others.
const MOST_ABOVE: i64 = 100_000;

/// Locks the containers of a task and the node where it stands. Returns those that still wait for their rollup with nothing open under
/// them; the others were deleted, cancelled or edited since, and are rolled up later if at all.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = at.0))]
pub async fn lock(conn: &mut PgConnection, at: DocumentId, ids: &[DocumentId]) -> sqlx::Result<Vec<Container>> {
    let (waiting, _) = lock_with(conn, at, ids, &[]).await?;
    let waiting: Vec<DocumentId> = waiting.into_iter().map(|container| container.id).collect();
    read(conn, &waiting).await
}

/// Locks the same and containers above. Returns those that wait, and those above as they are now.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = at.0))]
pub async fn lock_with(
    conn: &mut PgConnection,
    at: DocumentId,
    ids: &[DocumentId],
    above: &[DocumentId],
) -> sqlx::Result<(Vec<Open>, Vec<Open>)> {
    super::locks::documents(conn, &[ids, above].concat()).await?;
    // The end of the task lowers the count of its node, whose row is locked here so that all rows are locked in their order.
    let locked: Vec<Open> = sqlx::query_as(
        "WITH locked AS MATERIALIZED (
             SELECT n.document_id, n.parent_id, n.open_tasks, n.open_children, n.rollup FROM ingest_node n
              WHERE n.document_id = ANY($1) ORDER BY n.document_id FOR NO KEY UPDATE)
         SELECT l.document_id AS id, l.parent_id, l.open_tasks, l.open_children, l.rollup, cardinality(d.path) AS depth
           FROM locked l CROSS JOIN LATERAL (SELECT d.path FROM documents d WHERE d.id = l.document_id AND d.settled = 'in_flight' OFFSET 0) d
          ORDER BY l.document_id",
    )
    .bind([ids, above, &[at]].concat())
    .fetch_all(conn)
    .await?;
    let (ids, above): (HashSet<_>, HashSet<_>) = (ids.iter().collect(), above.iter().collect());
    let (wanted, others): (Vec<Open>, Vec<Open>) =
        locked.into_iter().partition(|container| ids.contains(&container.id));
    let waits = |container: &Open| container.rollup.0 == Rollup::Queued && container.open_children == 0;
    let above = others.into_iter().filter(|container| above.contains(&container.id)).collect();
    Ok((wanted.into_iter().filter(waits).collect(), above))
}

/// Those of these containers that wait for a task of their rollup and for nothing under them. Whoever puts one back in flight has its rollup made anew.
pub async fn waiting(conn: &mut PgConnection, containers: &[DocumentId]) -> sqlx::Result<HashSet<DocumentId>> {
    let waiting: Vec<DocumentId> = sqlx::query_scalar(
        "SELECT n.document_id FROM ingest_node n JOIN documents d ON d.id = n.document_id
          WHERE n.document_id = ANY($1) AND n.rollup = 'queued' AND n.open_children = 0 AND d.settled = 'in_flight'",
    )
    .bind(containers)
    .fetch_all(conn)
    .await?;
    Ok(waiting.into_iter().collect())
}

/// Reads what containers are rolled up from.
pub async fn read(conn: &mut PgConnection, containers: &[DocumentId]) -> sqlx::Result<Vec<Container>> {
    sqlx::query_as(concat!(
        "SELECT c.id, c.path, n.failed_children, greatest(n.tokens, s.tokens) AS tokens, s.tokens > n.tokens AS is_undercounted,
                (SELECT count(*) FROM documents d WHERE ",
        rolled_up!("$2"),
        ") AS children
           FROM documents c CROSS JOIN LATERAL (SELECT i.tokens, i.failed_children FROM ingest_node i WHERE i.document_id = c.id OFFSET 0) n
          CROSS JOIN LATERAL (SELECT coalesce(sum(i.tokens), 0)::bigint AS tokens FROM ingest_node i WHERE i.parent_id = c.id OFFSET 0) s
          WHERE c.id = ANY($1) ORDER BY c.id"
    ))
    .bind(containers)
    .bind(&NOT_OF_A_TEXT[..])
    .fetch_all(conn)
    .await
}

/// Has the rows of locked containers count the tokens that were summed for them, before what is above them is read.
pub async fn count_tokens(conn: &mut PgConnection, containers: &[&Container]) -> sqlx::Result<()> {
    sqlx::query(
        "UPDATE ingest_node n SET tokens = c.tokens FROM unnest($1::bigint[], $2::bigint[]) AS c(id, tokens) WHERE n.document_id = c.id",
    )
    .bind(containers.iter().map(|container| container.place.id()).collect::<Vec<_>>())
    .bind(containers.iter().map(|container| container.tokens).collect::<Vec<_>>())
    .execute(conn)
    .await
    .map(|_| ())
}

/// The texts of the settled leaves that tasks made under containers, each with the container, in the order of the file, which is
/// that of their ids. Leaves of what is within the file count, and those of files that somebody put under it do not. Of a container whose texts have
/// more than `most` bytes together there is only a row that says so.
pub async fn texts(
    conn: &mut PgConnection,
    containers: &[DocumentId],
    most: usize,
) -> sqlx::Result<Vec<(DocumentId, Option<String>)>> {
    sqlx::query_as(
        "SELECT s.container, CASE WHEN s.size <= $4 THEN s.content END FROM (
         SELECT u.id AS container, t.id, t.content, sum(octet_length(t.content)) OVER (PARTITION BY u.id) AS size,
                row_number() OVER (PARTITION BY u.id ORDER BY t.id) AS nth
           FROM unnest($1::bigint[]) AS u(id) CROSS JOIN LATERAL (
             WITH under AS MATERIALIZED (
                 SELECT d.id, d.path, d.content, d.usetype, d.settled, (SELECT n.root_id FROM ingest_node n WHERE n.document_id = d.id) = d.id AS is_guest
                   FROM documents c JOIN documents d ON d.path || d.id > c.path || c.id AND d.path || d.id < c.path || (c.id + 1)
                  WHERE c.id = u.id),
             guests AS MATERIALIZED (SELECT coalesce(array_agg(id) FILTER (WHERE is_guest), '{}') AS ids FROM under)
             SELECT d.id, d.content FROM under d CROSS JOIN guests g
              WHERE d.usetype = ANY($2) AND d.settled = 'settled' AND NOT d.path && g.ids
                AND (SELECT o.rule <> ALL($3) FROM node_origins o WHERE o.document_id = d.id)
                AND NOT EXISTS (SELECT 1 FROM ingest_node n WHERE n.document_id = d.id)) t) s
          WHERE s.size <= $4 OR s.nth = 1 ORDER BY s.container, s.id",
    )
    .bind(containers)
    .bind(Usetype::texts())
    .bind(&NOT_OF_A_TEXT[..])
    .bind(i64::try_from(most).unwrap_or(i64::MAX))
    .fetch_all(conn)
    .await
}

/// Gives containers the weighted sums of their children's vectors of one model, in place of the vectors that they have. Returns of how many
/// vectors each is; a container that is absent has no vector now.
pub async fn set_vectors(
    conn: &mut PgConnection,
    containers: &[DocumentId],
    model: &str,
) -> sqlx::Result<HashMap<DocumentId, i64>> {
    let made = sum_vectors(conn, containers, model, true).await?;
    let without: Vec<DocumentId> = containers.iter().copied().filter(|id| !made.contains_key(id)).collect();
    forget_vectors(conn, &without).await?;
    Ok(made)
}

/// Makes such sums, beside the vectors of other models or in their place.
pub(super) async fn sum_vectors(
    conn: &mut PgConnection,
    containers: &[DocumentId],
    model: &str,
    alone: bool,
) -> sqlx::Result<HashMap<DocumentId, i64>> {
    let made: Vec<(DocumentId, i64)> = sqlx::query_as(concat!(
        "WITH sums AS (
             SELECT c.id, count(*) AS vectors, ",
        weighted_mean!(),
        " AS mean
               FROM unnest($1::bigint[]) AS c(id) CROSS JOIN LATERAL (SELECT d.id FROM documents d WHERE ",
        rolled_up!("$3"),
        "       OFFSET 0) d
              CROSS JOIN LATERAL (SELECT v.embed, v.weight FROM document_vectors v WHERE v.document_id = d.id AND v.embed_model = $2 OFFSET 0) v
              GROUP BY c.id),
         others AS (DELETE FROM document_vectors WHERE $4 AND document_id = ANY($1) AND embed_model <> $2),
         made AS (
             INSERT INTO document_vectors (document_id, embed_model, embed, weight, root_id)
             SELECT id, $2, l2_normalize(mean)::halfvec, vector_norm(mean) * vectors, vector_root('document_vectors', id)
               FROM sums WHERE vector_norm(mean) > 0 ORDER BY id
             ON CONFLICT (document_id, embed_model, root_id) DO UPDATE SET embed = excluded.embed, weight = excluded.weight)
         SELECT id, vectors FROM sums WHERE vector_norm(mean) > 0"
    ))
    .bind(containers)
    .bind(model)
    .bind(&NOT_OF_A_TEXT[..])
    .bind(alone)
    .fetch_all(conn)
    .await?;
    Ok(made.into_iter().collect())
}

/// Whether any of these containers has no vector of this model.
pub async fn lack_vectors(conn: &mut PgConnection, containers: &[DocumentId], model: &str) -> sqlx::Result<bool> {
    sqlx::query_scalar(
        "SELECT EXISTS (SELECT FROM unnest($1::bigint[]) AS c(id)
                         WHERE NOT EXISTS (SELECT FROM document_vectors v WHERE v.document_id = c.id AND v.embed_model = $2))",
    )
    .bind(containers)
    .bind(model)
    .fetch_one(conn)
    .await
}

/// Removes the vectors of documents that have none any more, such as those of containers with nothing under them that has one.
pub async fn forget_vectors(conn: &mut PgConnection, documents: &[DocumentId]) -> sqlx::Result<()> {
    sqlx::query("DELETE FROM document_vectors WHERE document_id = ANY($1)")
        .bind(documents)
        .execute(conn)
        .await
        .map(|_| ())
}

/// Records that containers are rolled up, and tells the settler to look at them.
#[tracing::instrument(level = "debug", skip_all, fields(root.id = root_id.0))]
pub async fn done(conn: &mut PgConnection, root_id: RootId, containers: &[DocumentId]) -> sqlx::Result<()> {
    sqlx::query(
        "WITH done AS (UPDATE ingest_node SET rollup = 'done' WHERE document_id = ANY($2) RETURNING document_id)
         INSERT INTO settle_event (root_id, document_id, done, failed) SELECT $1, document_id, 0, 0 FROM done",
    )
    .bind(root_id)
    .bind(containers)
    .execute(conn)
    .await
    .map(|_| ())
}

/// Records that containers are rolled up and nothing under them is open. The long ones among them wait for a task that summarises them. The caller keeps
/// the settler away, and settles the others or leaves them to the end of the task that is open at them.
pub async fn ended(conn: &mut PgConnection, containers: &[DocumentId], long: &[DocumentId]) -> sqlx::Result<()> {
    sqlx::query(
        "UPDATE ingest_node SET rollup = CASE WHEN document_id = ANY($2) THEN 'queued' ELSE 'done' END, open_children = 0 WHERE document_id = ANY($1)",
    )
    .bind(containers)
    .bind(long)
    .execute(conn)
    .await
    .map(|_| ())
}

/// A container under which nothing is open any more.
#[derive(Clone, Copy, Debug, sqlx_macros::FromRow)]
pub struct Finished {
    pub id: DocumentId,
    /// The container that waits for it.
    pub parent_id: Option<DocumentId>,
    pub root_id: RootId,
}

/// Records that containers are rolled up, each by a task that stands at it and ends with this. Returns those of which nothing is open any more, which
/// the caller settles in this transaction.
pub async fn end(conn: &mut PgConnection, containers: &[DocumentId]) -> sqlx::Result<Vec<Finished>> {
    sqlx::query_as(
        "WITH done AS (
             UPDATE ingest_node SET rollup = 'done', open_tasks = open_tasks - 1 WHERE document_id = ANY($1) RETURNING document_id, parent_id, root_id, open_tasks)
         SELECT document_id AS id, parent_id, root_id FROM done WHERE open_tasks = 0 ORDER BY document_id",
    )
    .bind(containers)
    .fetch_all(conn)
    .await
}
