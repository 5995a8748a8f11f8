//! The nodes that tasks make under a file: inserted in flight, embedded, moved out of flight, rolled up.
use super::{
    documents::content_hash,
    lexicon::Lexicon,
    places::Place,
    text::{storable, storable_json},
    word::Word,
};
use crate::usetype::Usetype;
use chrono::{DateTime, Utc};
use serde_json::Value;
use sqlx::PgConnection;
use std::collections::{HashMap, HashSet};
use svc_client::wire::Settled;
use svc_ids::DocumentId;

/// The most rows of one insert.
pub const ROWS: usize = 2000;
/// The rules of nodes that an operation of the same name makes.
pub const SPLIT: &str = "split";
pub const CHUNK: &str = "chunk";
pub const SEGMENT: &str = "segment";
/// The rules of nodes that a caller asked for one by one, so that events tell of each.
pub const OF_CALLERS: [&str; 4] = ["upload", SPLIT, CHUNK, SEGMENT];
/// The rules of nodes that no file's ingestion made: the file itself, and what a caller asked for.
pub const NOT_OF_A_FILE: [&str; 5] = ["upload", SPLIT, CHUNK, SEGMENT, super::raptor::RULE];
/// The rules of nodes that no rollup and no segment of ingestion is made of: those above, and what stands beside the text of a file.
pub const NOT_OF_A_TEXT: [&str; 6] = ["upload", SPLIT, CHUNK, SEGMENT, super::raptor::RULE, super::images::RULE];

/// A node to be made.
pub struct NewNode {
    /// One of [`reserve_ids`].
    pub id: DocumentId,
    pub parent_id: DocumentId,
    /// The ids of its ancestors, root first.
    pub path: Vec<i64>,
    pub title: String,
    pub content: String,
    pub usetype: Usetype,
    pub position: i32,
    /// A JSON object.
    pub structured_content: Value,
    /// Where in the file it comes from.
    pub anchor: Value,
}

/// Reserves `count` ids, ascending, for nodes whose rows refer to each other.
pub async fn reserve_ids(conn: &mut PgConnection, count: usize) -> sqlx::Result<Vec<DocumentId>> {
    sqlx::query_scalar("SELECT nextval(pg_get_serial_sequence('documents', 'id')) FROM generate_series(1, $1)")
        .bind(i64::try_from(count).unwrap_or(i64::MAX))
        .fetch_all(conn)
        .await
}

/// Stores nodes in flight under a place, with the rule that made them and their anchors. Parents must come before their
/// children.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = within.id().0))]
pub async fn insert(
    conn: &mut PgConnection,
    lexicon: &Lexicon,
    within: &Place,
    rule: &str,
    nodes: &[NewNode],
) -> sqlx::Result<()> {
    let words = lexicon.words(nodes.iter().map(|node| (node.title.as_str(), node.content.as_str())).collect()).await;
    let ids: Vec<DocumentId> = nodes.iter().map(|node| node.id).collect();
    let contents: Vec<String> = nodes.iter().map(|node| storable(&node.content).into_owned()).collect();
    sqlx::query(
        "WITH words AS (INSERT INTO document_words (document_id, words) SELECT id, words::tsvector FROM unnest($1::bigint[], $10::text[]) AS w(id, words))
         INSERT INTO documents (id, parent_id, path, title, content, usetype, position, content_hash, structured_content, settled, guard)
         OVERRIDING SYSTEM VALUE
         SELECT id, parent_id, path::bigint[], title, content, usetype, position, content_hash, structured_content, 'in_flight',
                (SELECT p.guard FROM documents p WHERE p.id = ANY(n.path::bigint[]) ORDER BY cardinality(p.path) DESC LIMIT 1)
           FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[], $7::int[], $8::text[], $9::jsonb[])
             AS n(id, parent_id, path, title, content, usetype, position, content_hash, structured_content)",
    )
    .bind(&ids)
    .bind(nodes.iter().map(|node| node.parent_id).collect::<Vec<_>>())
    .bind(nodes.iter().map(|node| braces(&node.path)).collect::<Vec<_>>())
    .bind(nodes.iter().map(|node| storable(&node.title).into_owned()).collect::<Vec<_>>())
    .bind(&contents)
    .bind(nodes.iter().map(|node| node.usetype.as_str()).collect::<Vec<_>>())
    .bind(nodes.iter().map(|node| node.position).collect::<Vec<_>>())
    .bind(contents.iter().map(|content| content_hash(content)).collect::<Vec<_>>())
    .bind(nodes.iter().map(|node| storable_json(&node.structured_content).into_owned()).collect::<Vec<_>>())
    .bind(words)
    .execute(&mut *conn)
    .await?;
    sqlx::query("INSERT INTO node_origins (document_id, rule, anchor) SELECT id, $2, anchor FROM unnest($1::bigint[], $3::jsonb[]) AS n(id, anchor)")
        .bind(&ids)
        .bind(rule)
        .bind(nodes.iter().map(|node| (!node.anchor.is_null()).then(|| storable_json(&node.anchor).into_owned())).collect::<Vec<_>>())
        .execute(conn)
        .await
        .map(|_| ())
}

/// What a node of a conversation has of its turn.
pub struct TurnNode {
    pub id: DocumentId,
    pub event_time: Option<DateTime<Utc>>,
    /// A JSON object.
    pub structured_content: Value,
}

/// Gives nodes that this transaction made under a place the time and the speaker of their turns.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = within.id().0))]
pub async fn set_turns(conn: &mut PgConnection, within: &Place, turns: &[TurnNode]) -> sqlx::Result<()> {
    sqlx::query(
        "UPDATE documents d SET event_time = t.event_time, structured_content = t.structured_content
           FROM (SELECT * FROM unnest($2::bigint[], $3::timestamptz[], $4::jsonb[]) AS t(id, event_time, structured_content) LIMIT $5) t
          WHERE d.id = t.id AND $1 = ANY(d.path)",
    )
    .bind(within.id())
    .bind(turns.iter().map(|turn| turn.id).collect::<Vec<_>>())
    .bind(turns.iter().map(|turn| turn.event_time).collect::<Vec<_>>())
    .bind(turns.iter().map(|turn| storable_json(&turn.structured_content).into_owned()).collect::<Vec<_>>())
    .bind(turns.len() as i64)
    .execute(conn)
    .await
    .map(|_| ())
}

/// An array in PostgreSQL's text form.
pub(super) fn braces(ids: &[i64]) -> String {
    let ids: Vec<String> = ids.iter().map(i64::to_string).collect();
    format!("{{{}}}", ids.join(","))
}

/// The titles of the documents on a path that ends at one with this guard, from the lowest that is no part of another one on. A document with
/// another guard is left out, because not all who may read what is under it may read it.
macro_rules! titles_on {
    ($path:literal, $guard:literal, $parts:literal) => {
        concat!(
            "ARRAY(SELECT a.title
                     FROM (SELECT p.title, p.guard, s.depth, max(s.depth) FILTER (WHERE p.usetype <> ALL(",
            $parts,
            ")) OVER () AS top
                             FROM unnest(",
            $path,
            ") WITH ORDINALITY AS s (id, depth) JOIN documents p ON p.id = s.id) a
                    WHERE a.guard = ",
            $guard,
            " AND a.depth >= coalesce(a.top, 1) ORDER BY a.depth)"
        )
    };
}
pub(super) use titles_on;

/// Whether the row `d` is a chunk, or a table without chunks of its own; the argument is the placeholder of these usetypes.
macro_rules! is_titled {
    ($titled:literal) => {
        concat!("d.usetype = ANY(", $titled, ") AND NOT EXISTS (SELECT FROM ingest_node n WHERE n.document_id = d.id)")
    };
}
pub(super) use is_titled;

/// The titles above the row `d` if it is such a text; the arguments are the placeholders of their usetypes and of those of parts.
macro_rules! titles_of_text {
    ($titled:literal, $parts:literal) => {
        concat!("CASE WHEN ", is_titled!($titled), " THEN ", titles_on!("d.path", "d.guard", $parts), " ELSE '{}' END")
    };
}

/// A node whose text must be embedded.
#[derive(Debug, sqlx_macros::FromRow)]
pub struct TextRow {
    pub id: DocumentId,
    pub title: String,
    pub content: String,
    pub usetype: String,
    pub settled: Word<Settled>,
    /// Of a chunk or a table, the titles from the document that it is a part of down to its parent, as far as all who may read it may read these
    /// documents.
    pub titles: Vec<String>,
}

/// The texts of these nodes, in the order of their ids.
pub async fn texts(conn: &mut PgConnection, ids: &[DocumentId]) -> sqlx::Result<Vec<TextRow>> {
    sqlx::query_as(concat!(
        "SELECT d.id, d.title, d.content, d.usetype, d.settled, ",
        titles_of_text!("$2", "$3"),
        " AS titles FROM documents d WHERE d.id = ANY($1) ORDER BY d.id"
    ))
    .bind(ids)
    .bind(Usetype::titled())
    .bind(Usetype::parts())
    .fetch_all(conn)
    .await
}

/// The leaves that tasks made under a node, in these runs of ids, each with its first and last id. A record with chunks
/// of its own is not a leaf.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = under.0))]
pub async fn leaves(
    conn: &mut PgConnection,
    under: DocumentId,
    runs: &[(DocumentId, DocumentId)],
) -> sqlx::Result<Vec<TextRow>> {
    let (firsts, lasts): (Vec<DocumentId>, Vec<DocumentId>) = runs.iter().copied().unzip();
    sqlx::query_as(concat!(
        "SELECT d.id, d.title, d.content, d.usetype, d.settled, ",
        titles_of_text!("$5", "$6"),
        " AS titles
           FROM unnest($2::bigint[], $3::bigint[]) AS run(first, last) JOIN documents d ON d.id BETWEEN run.first AND run.last
          WHERE d.path @> ARRAY[$1::bigint] AND d.usetype = ANY($4)
            AND NOT EXISTS (SELECT 1 FROM ingest_node n WHERE n.document_id = d.id) ORDER BY d.id"
    ))
    .bind(under)
    .bind(firsts)
    .bind(lasts)
    .bind(Usetype::leaves())
    .bind(Usetype::titled())
    .bind(Usetype::parts())
    .fetch_all(conn)
    .await
}

/// The states of these documents.
pub async fn states(conn: &mut PgConnection, ids: &[DocumentId]) -> sqlx::Result<HashMap<DocumentId, Settled>> {
    let states: Vec<(DocumentId, Word<Settled>)> =
        sqlx::query_as("SELECT id, settled FROM documents WHERE id = ANY($1)").bind(ids).fetch_all(conn).await?;
    Ok(states.into_iter().map(|(id, settled)| (id, settled.0)).collect())
}

/// Whether one of these nodes has settled.
pub async fn are_settled(conn: &mut PgConnection, ids: &[DocumentId]) -> sqlx::Result<bool> {
    if ids.is_empty() {
        return Ok(false);
    }
    sqlx::query_scalar("SELECT EXISTS (SELECT FROM documents WHERE id = ANY($1) AND settled = 'settled')")
        .bind(ids)
        .fetch_one(conn)
        .await
}

/// Those of these documents that were cut from the text of a document above them, by a task or because a caller asked for it.
pub async fn cut(conn: &mut PgConnection, documents: &[DocumentId]) -> sqlx::Result<HashSet<DocumentId>> {
    if documents.is_empty() {
        return Ok(HashSet::new());
    }
    let cut: Vec<DocumentId> = sqlx::query_scalar(
        "SELECT d.id FROM documents d JOIN node_origins o ON o.document_id = d.id
          WHERE d.id = ANY($1) AND (o.rule = $2 OR (d.usetype = $3 AND o.rule <> 'upload'))",
    )
    .bind(documents)
    .bind(SPLIT)
    .bind(Usetype::Chunk.as_str())
    .fetch_all(conn)
    .await?;
    Ok(cut.into_iter().collect())
}

/// A node that left flight.
#[derive(Clone, Copy, Debug, sqlx_macros::FromRow)]
pub struct Landed {
    pub id: DocumentId,
    pub parent_id: Option<DocumentId>,
}

/// Moves nodes out of flight; returns those that were in flight.
pub async fn leave_flight(conn: &mut PgConnection, ids: &[DocumentId], to: Settled) -> sqlx::Result<Vec<Landed>> {
    sqlx::query_as(
        "UPDATE documents SET settled = $2 WHERE id = ANY($1) AND settled = 'in_flight' RETURNING id, parent_id",
    )
    .bind(ids)
    .bind(to.as_str())
    .fetch_all(conn)
    .await
}
