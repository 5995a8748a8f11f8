//! Held and awaited regions, file by file, and the first levels of the trees that they lie in.
use super::word::Word;
use chrono::{DateTime, Utc};
use sqlx::PgConnection;
use svc_client::wire::WriteMode;
use svc_ids::RootId;

/// How many children of a file are drawn.
pub const COLUMNS: i64 = 400;
/// How many regions of a file are drawn, and how many of the tasks that wait.
pub const BOXES: i64 = 60;
/// How many waiting tasks are counted.
const COUNTED: i64 = 100_000;

/// The regions of one file in numbers.
#[derive(Debug, sqlx_macros::FromRow)]
pub struct FileRegions {
    pub root_id: RootId,
    pub title: String,
    pub held: i64,
    pub waiting: i64,
}

/// The regions of all files in numbers.
#[derive(Debug)]
pub struct AllRegions {
    pub files: i64,
    pub held: i64,
    pub waiting: i64,
}

#[derive(sqlx_macros::FromRow)]
struct PageRow {
    files: i64,
    all_held: i64,
    all_waiting: i64,
    root_id: Option<RootId>,
    title: Option<String>,
    held: Option<i64>,
    waiting: Option<i64>,
}

/// A page of the files with held or awaited regions, those with most waiting tasks first, and the numbers of all; or only the named one. Only
/// what is on the page is looked up.
pub async fn files(
    conn: &mut PgConnection,
    only: Option<i64>,
    skip: i64,
    limit: i64,
) -> sqlx::Result<(Vec<FileRegions>, AllRegions)> {
    let rows: Vec<PageRow> = sqlx::query_as(
        "WITH held AS (SELECT t.root_id, count(*) AS held FROM task_reservation r JOIN task_queue t ON t.id = r.task_id
                        WHERE $2::bigint IS NULL OR t.root_id = $2 GROUP BY 1),
              waiting AS (SELECT root_id, count(*) AS waiting FROM (SELECT root_id FROM task_queue
                           WHERE parked_on > 0 AND ($2::bigint IS NULL OR root_id = $2) LIMIT $1) p GROUP BY 1),
              file AS MATERIALIZED (SELECT root_id, coalesce(h.held, 0) AS held, coalesce(w.waiting, 0) AS waiting
                                      FROM held h FULL JOIN waiting w USING (root_id)),
              page AS MATERIALIZED (SELECT * FROM file ORDER BY waiting DESC, held DESC, root_id DESC OFFSET $3 LIMIT $4)
         SELECT a.files, a.all_held, a.all_waiting, p.root_id, (SELECT title FROM documents WHERE id = p.root_id) AS title, p.held, p.waiting
           FROM (SELECT count(*) AS files, coalesce(sum(held), 0)::bigint AS all_held, coalesce(sum(waiting), 0)::bigint AS all_waiting FROM file) a
           LEFT JOIN page p ON true
          ORDER BY p.waiting DESC, p.held DESC, p.root_id DESC",
    )
    .bind(COUNTED)
    .bind(only)
    .bind(skip)
    .bind(limit)
    .fetch_all(conn)
    .await?;
    let all = rows.first().map_or(AllRegions { files: 0, held: 0, waiting: 0 }, |row| AllRegions {
        files: row.files,
        held: row.all_held,
        waiting: row.all_waiting,
    });
    // A file that is being deleted has no title any more.
    let file = |row: PageRow| {
        Some(FileRegions { root_id: row.root_id?, title: row.title?, held: row.held?, waiting: row.waiting? })
    };
    Ok((rows.into_iter().filter_map(file).collect(), all))
}

/// A child of a file.
#[derive(Debug, sqlx_macros::FromRow)]
pub struct Column {
    pub id: i64,
    pub title: String,
    pub children: i64,
}

/// The first children of a file in their order, one more than [`COLUMNS`] if there are more.
#[tracing::instrument(level = "debug", skip_all, fields(root.id = root_id.0))]
pub async fn columns(conn: &mut PgConnection, root_id: RootId) -> sqlx::Result<Vec<Column>> {
    sqlx::query_as(
        "SELECT d.id, d.title, (SELECT count(*) FROM documents c WHERE c.parent_id = d.id) AS children
           FROM documents d WHERE d.parent_id = $1 ORDER BY coalesce(d.position::bigint, 2147483648), d.id LIMIT $2",
    )
    .bind(root_id)
    .bind(COLUMNS + 1)
    .fetch_all(conn)
    .await
}

/// A region as the queue has it.
#[derive(Debug, sqlx_macros::FromRow)]
pub struct RegionRow {
    pub task_id: i64,
    pub task_type: String,
    pub document_id: i64,
    pub title: Option<String>,
    pub write_mode: Word<WriteMode>,
    pub node_path: String,
    pub first_leaf: Option<String>,
    pub last_leaf: Option<String>,
    pub worker: Option<String>,
    pub since: Option<DateTime<Utc>>,
    pub lapsed: bool,
    pub behind: Option<i64>,
    pub tasks_waiting: i64,
}

/// The regions that are held in a file, oldest first, then those that tasks wait for, in the order of their turn.
#[tracing::instrument(level = "debug", skip_all, fields(root.id = root_id.0))]
pub async fn regions(conn: &mut PgConnection, root_id: RootId) -> sqlx::Result<Vec<RegionRow>> {
    sqlx::query_as(
        "(SELECT t.id AS task_id, t.task_type, t.scope_document_id AS document_id, d.title, t.write_mode, t.node_path, t.first_leaf,
                 t.last_leaf, r.worker, r.since, t.status IN ('claimed', 'running') AND is_lapsed(t.lease_until) AS lapsed, NULL::bigint AS behind,
                 (SELECT count(*) FROM task_queue p WHERE p.parked_on = t.id) AS tasks_waiting
            FROM task_queue t JOIN task_reservation r ON r.task_id = t.id LEFT JOIN documents d ON d.id = t.scope_document_id
           WHERE t.root_id = $1 AND NOT t.final ORDER BY r.since, t.id LIMIT $2)
         UNION ALL
         (SELECT t.id, t.task_type, t.scope_document_id, d.title, t.write_mode, t.node_path, t.first_leaf, t.last_leaf, NULL,
                 t.parked_since, false, t.parked_on, 0
            FROM task_queue t LEFT JOIN documents d ON d.id = t.scope_document_id
           WHERE t.root_id = $1 AND NOT t.final AND t.parked_on > 0 ORDER BY t.priority DESC, t.created_at, t.id LIMIT $2)",
    )
    .bind(root_id)
    .bind(BOXES)
    .fetch_all(conn)
    .await
}

impl RegionRow {
    /// The ids from the root of the documents down to the node.
    pub fn path(&self) -> Vec<i64> {
        ids(&self.node_path)
    }

    /// The same of the first and the last leaf, of a task that writes only some leaves.
    pub fn leaves(&self) -> Option<(Vec<i64>, Vec<i64>)> {
        Some((ids(self.first_leaf.as_deref()?), ids(self.last_leaf.as_deref()?)))
    }
}

/// The ids of a key. The queue alone writes keys, so each part is a number.
fn ids(key: &str) -> Vec<i64> {
    key.split_terminator('/').filter_map(|id| id.parse().ok()).collect()
}

/// For each of these nodes the id of its parent and how many siblings lie before it.
pub async fn ranks(conn: &mut PgConnection, nodes: &[i64]) -> sqlx::Result<Vec<(i64, i64, i64)>> {
    sqlx::query_as(
        "SELECT d.id, d.parent_id, (SELECT count(*) FROM documents s WHERE s.parent_id = d.parent_id
                   AND (coalesce(s.position::bigint, 2147483648), s.id) < (coalesce(d.position::bigint, 2147483648), d.id))
           FROM documents d WHERE d.id = ANY($1) AND d.parent_id IS NOT NULL",
    )
    .bind(nodes)
    .fetch_all(conn)
    .await
}
