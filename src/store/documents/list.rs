//! Documents in lists: roots, children, and what of them a search cannot show.
use super::add;
use crate::{
    store::{
        nodes::is_titled,
        scope::{Readable, readable},
    },
    usetype::Usetype,
};
use sqlx::PgConnection;
use svc_actors::path_key;
use svc_ids::DocumentId;

/// The columns of a [`Listed`], from `documents d`. No text is unpacked in order to measure it; packed text counts as
/// 16 times its size.
macro_rules! listed {
    () => {
        concat!(
            "d.id, d.position, octet_length(d.content)::bigint AS content_bytes, ",
            json_bytes!("d.structured_content"),
            " AS structured_bytes"
        )
    };
}

pub(super) use listed;

/// An estimate of the bytes that a column of JSON takes in an answer. What is stored compressed takes many times its bytes.
macro_rules! json_bytes {
    ($column:literal) => {
        concat!(
            "pg_column_size(",
            $column,
            ")::bigint * CASE WHEN pg_column_compression(",
            $column,
            ") IS NULL THEN 1 ELSE 16 END"
        )
    };
}
pub(in crate::store) use json_bytes;

/// A document in a list, with the size of what it holds.
#[derive(Clone, Copy, Debug, sqlx_macros::FromRow)]
pub struct Listed {
    pub id: DocumentId,
    pub position: Option<i32>,
    pub content_bytes: i64,
    /// An estimate.
    pub structured_bytes: i64,
}

/// Whether `documents d` is readable, and at or under $3 if that is given.
macro_rules! in_scope {
    () => {
        concat!(readable!(), " AND ($3::bigint IS NULL OR d.path @> ARRAY[$3] OR d.id = $3)")
    };
}

/// The sizes of the documents among `ids` that the scope covers, in any order.
pub async fn sizes(conn: &mut PgConnection, scope: &Readable, ids: &[DocumentId]) -> sqlx::Result<Vec<Listed>> {
    let mut arguments = scope.arguments();
    add(&mut arguments, ids.to_vec());
    let query = concat!("SELECT ", listed!(), " FROM documents d WHERE d.id = ANY($3) AND ", readable!());
    sqlx::query_as_with(query, arguments).fetch_all(conn).await
}

/// The ids of a document's ancestors, root first.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = id.0))]
pub async fn path(conn: &mut PgConnection, scope: &Readable, id: DocumentId) -> sqlx::Result<Option<Vec<i64>>> {
    let mut arguments = scope.arguments();
    add(&mut arguments, id);
    let query = concat!("SELECT d.path FROM documents d WHERE d.id = $3 AND ", readable!());
    sqlx::query_scalar_with(query, arguments).fetch_optional(conn).await
}

/// The documents of a usetype after `after`, by id.
pub async fn of_usetype(
    conn: &mut PgConnection,
    scope: &Readable,
    usetype: &str,
    after: DocumentId,
    limit: u32,
) -> sqlx::Result<Vec<Listed>> {
    let mut arguments = scope.arguments();
    add(&mut arguments, after);
    add(&mut arguments, i64::from(limit));
    add(&mut arguments, usetype);
    sqlx::query_as_with(
        concat!(
            "SELECT ",
            listed!(),
            " FROM documents d WHERE d.usetype = $5 AND d.id > $3 AND ",
            readable!(),
            " ORDER BY d.id LIMIT $4"
        ),
        arguments,
    )
    .persistent(false)
    .fetch_all(conn)
    .await
}

/// A place in a list of siblings: explicit positions first, then age.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SiblingCursor {
    /// `i32::MAX + 1` for a sibling without a position.
    pub position: i64,
    pub id: DocumentId,
}

/// The position of a sibling in the order of [`children`].
pub fn sibling_position(position: Option<i32>) -> i64 {
    position.map_or(i64::from(i32::MAX) + 1, i64::from)
}

/// The children of a node, or the documents without a parent, after a cursor, in their order, leaving out `except`. An index has this order, so a page
/// reads no more than its own rows.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = parent.map(|parent| parent.0)))]
pub async fn children(
    conn: &mut PgConnection,
    scope: &Readable,
    parent: Option<DocumentId>,
    except: Option<DocumentId>,
    after: Option<SiblingCursor>,
    limit: u32,
) -> sqlx::Result<Vec<Listed>> {
    let after = after.unwrap_or(SiblingCursor { position: i64::MIN, id: DocumentId(0) });
    let mut arguments = scope.arguments();
    add(&mut arguments, parent);
    add(&mut arguments, after.position);
    add(&mut arguments, after.id);
    add(&mut arguments, i64::from(limit));
    add(&mut arguments, except);
    macro_rules! siblings {
        ($under:literal) => {
            concat!(
                "SELECT ",
                listed!(),
                " FROM documents d WHERE ",
                $under,
                " AND (coalesce(d.position::bigint, 2147483648), d.id) > ($4, $5) AND d.id IS DISTINCT FROM $7 AND ",
                readable!(),
                " ORDER BY coalesce(d.position::bigint, 2147483648), d.id LIMIT $6"
            )
        };
    }
    let query = match parent {
        Some(_) => siblings!("d.parent_id = $3"),
        None => siblings!("d.parent_id IS NULL AND $3::bigint IS NULL"),
    };
    sqlx::query_as_with(query, arguments).persistent(false).fetch_all(conn).await
}

/// The first sections that ingestion made of the turns of a conversation, in their order. Segments may lie between the conversation and them.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = conversation.0))]
pub async fn turns(
    conn: &mut PgConnection,
    scope: &Readable,
    conversation: DocumentId,
    limit: u32,
) -> sqlx::Result<Vec<Listed>> {
    let mut arguments = scope.arguments();
    add(&mut arguments, conversation);
    add(&mut arguments, i64::from(limit));
    let query = concat!(
        "WITH RECURSIVE holders AS (
             SELECT $3::bigint AS id
             UNION ALL SELECT s.id FROM holders h JOIN documents s ON s.parent_id = h.id
               JOIN node_origins o ON o.document_id = s.id AND o.rule = 'structure:semantic')
         SELECT ",
        listed!(),
        " FROM holders h JOIN documents d ON d.parent_id = h.id AND d.usetype = 'section'
           JOIN node_origins o ON o.document_id = d.id AND o.rule = 'structure:declared'
          WHERE ",
        readable!(),
        " ORDER BY coalesce(d.position::bigint, 2147483648), d.id LIMIT $4"
    );
    sqlx::query_as_with(query, arguments).persistent(false).fetch_all(conn).await
}

/// Whether there is anything at all that a search cannot show to anybody, and whether an index is being built. Counting takes a millisecond for planning
/// alone, and mostly there is nothing to count. The order has the planner take its index: while much is in flight, it would else read the settled documents
/// for the first one that is not.
macro_rules! waiting {
    () => {
        "((SELECT guard FROM documents WHERE settled <> 'settled' AND guard <> -1 ORDER BY settled, guard, path LIMIT 1) IS NOT NULL
             OR EXISTS (SELECT FROM task_queue WHERE task_type = 'embed' AND root_id = scope_document_id AND (NOT final OR error_type IS NOT NULL))) AS are_open,
          EXISTS (SELECT FROM task_queue WHERE task_type = 'embed:titles' AND (NOT final OR error_type IS NOT NULL)) AS are_titled,
          EXISTS (SELECT FROM search_indexes WHERE built_to IS NOT NULL) AS are_building"
    };
}
pub(super) use waiting;

/// Whether there are nodes that a search cannot show.
#[derive(Clone, Copy, Debug, sqlx_macros::FromRow)]
pub struct Waiting {
    pub are_open: bool,
    pub are_titled: bool,
    /// Whether some index is being built.
    pub are_building: bool,
}

/// Nodes that a search cannot show.
#[derive(Clone, Copy, Debug)]
pub struct Unsettled {
    pub in_flight: i64,
    pub failed: i64,
    /// Those whose vectors are of another model.
    pub other_model: i64,
}

/// The number of chunks and tables in scope without a vector that are at or under the document of an `embed:titles` task of which this holds.
/// $4 are their usetypes. What is under a document is a range of the order in which the tree is read. That order has the planner take its
/// index, and the limits bound what a search looks at, whatever of it is in scope. The condition of the index task_queue_titles is repeated
/// as it is, so that the planner may use it.
macro_rules! under_changed_titles {
    ($task:literal) => {
        concat!(
            "count(DISTINCT w.id) FROM (
                 SELECT d.id FROM (
                     SELECT u.* FROM (
                         SELECT t.scope_document_id FROM task_queue t
                          WHERE t.task_type = 'embed:titles' AND (NOT t.final OR t.error_type IS NOT NULL) AND ",
            $task,
            "             LIMIT 10000) t
                       JOIN documents top ON top.id = t.scope_document_id
                       JOIN documents r ON r.id = CASE WHEN $3::bigint IS NULL OR top.path @> ARRAY[$3] THEN top.id ELSE $3 END
                                       AND (r.id = top.id OR r.path @> ARRAY[top.id])
                      CROSS JOIN LATERAL (
                         SELECT d.id, d.path, d.guard, d.usetype, d.settled FROM documents d
                          WHERE d.path || d.id >= r.path || r.id AND d.path || d.id < r.path || (r.id + 1)
                          ORDER BY d.path || d.id LIMIT 10000) u
                      LIMIT 10000) d
                  WHERE d.settled = 'settled' AND ",
            is_titled!("$4"),
            " AND ",
            in_scope!(),
            " LIMIT 2000) w WHERE NOT EXISTS (SELECT 1 FROM document_vectors v WHERE v.document_id = w.id)"
        )
    };
}

/// Tasks that embed documents which were written over REST: the newest 10,000 of which this holds. The index task_queue_document_embeds has them
/// in this order, and its condition is repeated as it is, so that the planner may use it.
macro_rules! newest_embeds {
    ($task:literal) => {
        concat!(
            "(SELECT t.params, t.scope_document_id FROM task_queue t
               WHERE t.task_type = 'embed' AND t.root_id = t.scope_document_id AND (NOT t.final OR t.error_type IS NOT NULL) AND ",
            $task,
            " ORDER BY t.scope_document_id DESC LIMIT 10000)"
        )
    };
}

/// The first 10,000 such tasks that owe work at and under the document whose key $4 is; none without a key. The index task_queue_embeds_under has
/// them in this order, without the tasks of other types, and its condition is repeated as it is, so that the planner may use it.
macro_rules! embeds_under {
    () => {
        "(SELECT t.params, t.scope_document_id FROM task_queue t
           WHERE t.task_type = 'embed' AND t.root_id = t.scope_document_id AND NOT t.final
             AND t.node_path >= $4::text AND t.node_path < rtrim($4::text, '/') || '0' ORDER BY t.node_path LIMIT 10000)"
    };
}

/// The settled documents in scope that these tasks embed. No more than 10,000 documents are looked up, each by its id, whatever of them is in
/// scope: another scope's backlog delays no search.
macro_rules! embedded_by {
    ($($tasks:tt)*) => {
        concat!(
            "(SELECT DISTINCT d.id FROM (SELECT unnest(embedded_documents(t.params, t.scope_document_id)) AS id FROM (",
            $($tasks)*,
            ") t LIMIT 10000) e
               CROSS JOIN LATERAL (SELECT d.id, d.path, d.guard, d.settled FROM documents d WHERE d.id = e.id OFFSET 0) d
              WHERE d.settled = 'settled' AND ",
            in_scope!(),
            ")"
        )
    };
}

/// How many nodes of the readable scope are in this state, under the document whose path with its own id is $5, and that document, which is $3.
macro_rules! nodes {
    ($state:literal) => {
        concat!(
            "count_unsettled('",
            $state,
            "', $1::boolean, $2::bigint[], $5::bigint[])
             + (SELECT count(*) FROM documents d WHERE d.id = $3 AND d.settled = '",
            $state,
            "' AND ",
            readable!(),
            ")"
        )
    };
}

/// How many nodes of the readable scope a search cannot show: those in flight and those that failed, each counted up to
/// 10,000; what is out of scope is not read. A document that was written over REST is settled at once, but is only found once its own task has embedded
/// it. Of these 10,000 are looked at, first those whose tasks are under `under` and then the newest of all, so that a longer backlog outside of the scope
/// may hide some.
/// A chunk that came under other titles is settled all along, and counts while it has no vector. Of these only the first 10,000
/// documents of the scope under changed titles are looked at, and 2,000 chunks among them, because most still have the vectors that they had.
/// If there are vectors of several models, a search by those of one cannot show documents that lack them. `waiting` is what an earlier statement has told, if one did.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = under.map(|id| id.0)))]
pub async fn unsettled(
    conn: &mut PgConnection,
    scope: &Readable,
    under: Option<DocumentId>,
    model: Option<&str>,
    waiting: Option<Waiting>,
) -> sqlx::Result<Unsettled> {
    let other_model = match model {
        Some(model) => of_another_model(conn, scope, under, model).await?,
        None => 0,
    };
    let Waiting { are_open, are_titled, .. } = match waiting {
        Some(waiting) => waiting,
        None => sqlx::query_as(concat!("SELECT ", waiting!())).fetch_one(&mut *conn).await?,
    };
    let (mut in_flight, mut failed) = (0, 0);
    // The paths of what is under a document begin with this, and all paths with nothing. A document that is gone has nothing under it.
    let top = match under.filter(|_| are_open) {
        Some(id) => path(conn, scope, id).await?.map(|above| [above, vec![id.0]].concat()),
        None => Some(Vec::new()),
    };
    if are_open && let Some(top) = top {
        let mut arguments = scope.arguments();
        add(&mut arguments, under);
        add(&mut arguments, under.map(|_| path_key(&top)));
        add(&mut arguments, top);
        let counted: (i64, i64, i64, i64) = sqlx::query_as_with(
            concat!(
                "SELECT ",
                nodes!("in_flight"),
                ", ",
                nodes!("failed"),
                ",
                        (SELECT count(*) FROM ",
                embedded_by!(concat!(embeds_under!(), " UNION ALL ", newest_embeds!("NOT t.final"))),
                " w),
                        (SELECT count(*) FROM ",
                embedded_by!(newest_embeds!("t.final AND t.status = 'failed'")),
                " w WHERE NOT EXISTS (SELECT 1 FROM document_vectors v WHERE v.document_id = w.id))"
            ),
            arguments,
        )
        .persistent(false)
        .fetch_one(&mut *conn)
        .await?;
        let (nodes_in_flight, nodes_failed, waiting, unembedded) = counted;
        in_flight += nodes_in_flight + waiting;
        failed += nodes_failed + unembedded;
    }
    if are_titled {
        let mut arguments = scope.arguments();
        add(&mut arguments, under);
        add(&mut arguments, Usetype::titled());
        let (waiting, unembedded): (i64, i64) = sqlx::query_as_with(
            concat!(
                "SELECT (SELECT ",
                under_changed_titles!("NOT t.final"),
                "), (SELECT ",
                under_changed_titles!("t.final"),
                ")"
            ),
            arguments,
        )
        .persistent(false)
        .fetch_one(conn)
        .await?;
        in_flight += waiting;
        failed += unembedded;
    }
    Ok(Unsettled { in_flight: in_flight.min(10_000), failed: failed.min(10_000), other_model })
}

/// How many documents of the readable scope have vectors, but none of this model. No more than 10,000 vectors of other models are looked at, each by
/// its document, whatever of them is in scope: else each search beside such vectors would read all of them.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = under.map(|id| id.0)))]
async fn of_another_model(
    conn: &mut PgConnection,
    scope: &Readable,
    under: Option<DocumentId>,
    model: &str,
) -> sqlx::Result<i64> {
    let mut arguments = scope.arguments();
    add(&mut arguments, under);
    add(&mut arguments, model.to_owned());
    // An index has the vectors of each model together.
    let query = concat!(
        "SELECT count(DISTINCT d.id) FROM (
             SELECT o.document_id FROM (
                 (SELECT document_id FROM document_vectors WHERE embed_model < $4 ORDER BY embed_model LIMIT 10000)
                 UNION ALL (SELECT document_id FROM document_vectors WHERE embed_model > $4 ORDER BY embed_model LIMIT 10000)) o
              LIMIT 10000) v
          CROSS JOIN LATERAL (SELECT d.id, d.path, d.guard, d.settled FROM documents d WHERE d.id = v.document_id OFFSET 0) d
          WHERE d.settled = 'settled'
            AND (SELECT true FROM document_vectors n WHERE n.document_id = v.document_id AND n.embed_model = $4 LIMIT 1) IS NULL AND ",
        in_scope!()
    );
    sqlx::query_scalar_with(query, arguments).persistent(false).fetch_one(conn).await
}
