//! Trees of summaries, their leaves, and what a portfolio is chosen from.
//!
//! A leaf is a settled document with a text and a vector and without documents under it that the same callers read. The leaves of a tree of
//! summaries have the guard of its document, so that whoever reads a summary may read all that it tells of.
use super::{
    documents::{add, sibling_position},
    evidence::Evidence,
    places::Place,
    scope::{Readable, readable},
};
use crate::usetype::Usetype;
use pgvector::HalfVector;
use serde_json::Value;
use sqlx::{PgConnection, types::Json};
use std::collections::{BTreeSet, HashMap};
use svc_ids::{DocumentId, TaskId};

/// The rule that makes trees of summaries, which is the type of the task too.
pub const RULE: &str = "raptor";
/// The type of the links from a summary to what it summarises.
const LINK: &str = "derived_from";
/// A tree of summaries comes after everything else under its document.
pub const POSITION: i32 = i32::MAX;

/// Whether `documents d` is a leaf; the arguments are the placeholder of the usetypes that are no leaves, and which documents `c` under it count.
macro_rules! leaf {
    ($excluded:literal, $($counts:tt)+) => {
        concat!(
            "d.settled = 'settled' AND d.content <> '' AND d.usetype <> ALL(",
            $excluded,
            "::text[]) AND NOT EXISTS (SELECT 1 FROM documents c WHERE c.parent_id = d.id AND c.usetype <> 'raptor' AND ",
            $($counts)+,
            ")"
        )
    };
}

/// The leaves `documents d` under a place ($1) that have its guard and a vector `v` of a model ($2); $3 are the
/// usetypes that are no leaves.
macro_rules! leaves_under {
    () => {
        concat!(
            "FROM documents n JOIN documents d ON d.path @> ARRAY[$1::bigint] AND d.guard = n.guard
             JOIN document_vectors v ON v.document_id = d.id AND v.embed_model = $2 WHERE n.id = $1 AND ",
            leaf!("$3", "c.guard = n.guard")
        )
    };
}

/// The usetypes that are no leaves: what a search leaves out, summaries, and pictures, beside which stands what a leaf says already.
fn no_leaves(excluded: &[String]) -> Vec<String> {
    let own = [Usetype::Raptor, Usetype::Summary, Usetype::Image].map(|usetype| usetype.as_str().to_owned());
    excluded.iter().cloned().chain(own).collect()
}

/// How much there is to summarise.
#[derive(Clone, Copy, Debug, sqlx_macros::FromRow)]
pub struct Extent {
    pub leaves: i64,
    pub bytes: i64,
}

/// The number of leaves under a place that have its guard and a vector of this model, and their bytes; counted up to `most`
/// leaves.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = place.id().0))]
pub async fn extent(
    conn: &mut PgConnection,
    place: &Place,
    model: &str,
    excluded: &[String],
    most: i64,
) -> sqlx::Result<Extent> {
    sqlx::query_as(concat!(
        "SELECT count(*) AS leaves, coalesce(sum(bytes), 0)::bigint AS bytes FROM (
             SELECT octet_length(d.content)::bigint AS bytes ",
        leaves_under!(),
        " LIMIT $4) l"
    ))
    .bind(place.id())
    .bind(model)
    .bind(no_leaves(excluded))
    .bind(most)
    .persistent(false)
    .fetch_one(conn)
    .await
}

/// A leaf to be summarised.
#[derive(Debug, sqlx_macros::FromRow)]
pub struct LeafRow {
    pub id: DocumentId,
    /// The ids of its ancestors, root first.
    pub path: Vec<i64>,
    pub position: Option<i32>,
    pub title: String,
    pub content: String,
    pub content_hash: String,
    pub embed: HalfVector,
}

/// The leaves that [`extent`] counts, by id, in a transaction of a search.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = place.id().0))]
pub async fn leaves(
    conn: &mut PgConnection,
    place: &Place,
    model: &str,
    excluded: &[String],
) -> sqlx::Result<Vec<LeafRow>> {
    sqlx::query_as(concat!(
        "SELECT d.id, d.path, d.position, d.title, d.content, d.content_hash, v.embed ",
        leaves_under!(),
        " ORDER BY d.id"
    ))
    .bind(place.id())
    .bind(model)
    .bind(no_leaves(excluded))
    .fetch_all(conn)
    .await
}

/// How many of these documents are still at or under the place, with its guard, with the texts of these hashes and with these titles. Until the
/// transaction ends, nobody gives one of them another text or title.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = place.id().0))]
pub async fn unchanged(
    conn: &mut PgConnection,
    place: &Place,
    ids: &[DocumentId],
    hashes: &[String],
    titles: &[String],
) -> sqlx::Result<i64> {
    sqlx::query_scalar(
        "SELECT count(*) FROM (
             SELECT d.id FROM unnest($2::bigint[], $3::text[], $4::text[]) AS l(id, hash, title)
               JOIN documents n ON n.id = $1
               JOIN documents d ON d.id = l.id AND d.content_hash = l.hash AND d.title = l.title AND d.guard = n.guard AND (d.id = $1 OR d.path @> ARRAY[$1::bigint])
              ORDER BY d.id FOR SHARE OF d) locked",
    )
    .bind(place.id())
    .bind(ids)
    .bind(hashes)
    .bind(titles)
    .fetch_one(conn)
    .await
}

/// For each node and documents, whether all of these are still at or under the node, with its guard and with the texts of these hashes.
pub async fn all_unchanged(
    conn: &mut PgConnection,
    claims: &[(DocumentId, &[(DocumentId, String)])],
) -> sqlx::Result<Vec<bool>> {
    let each = || (0i64..).zip(claims).flat_map(|(at, (node, held))| held.iter().map(move |one| (at, *node, one)));
    let unchanged: Vec<(i64, i64)> = sqlx::query_as(
        "SELECT l.at, count(*) FROM unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::text[]) AS l(at, node, id, hash)
           JOIN documents n ON n.id = l.node
           JOIN documents d ON d.id = l.id AND d.content_hash = l.hash AND d.guard = n.guard AND (d.id = l.node OR d.path @> ARRAY[l.node])
          GROUP BY l.at",
    )
    .bind(each().map(|(at, ..)| at).collect::<Vec<_>>())
    .bind(each().map(|(_, node, _)| node).collect::<Vec<_>>())
    .bind(each().map(|(.., (id, _))| *id).collect::<Vec<_>>())
    .bind(each().map(|(.., (_, hash))| hash.as_str()).collect::<Vec<_>>())
    .fetch_all(conn)
    .await?;
    let unchanged: HashMap<i64, i64> = unchanged.into_iter().collect();
    let held = claims.iter().map(|(_, held)| i64::try_from(held.len()).unwrap_or(i64::MAX));
    Ok((0..).zip(held).map(|(at, held)| unchanged.get(&at).copied().unwrap_or_default() == held).collect())
}

/// A document in the tree: its ancestors, root first, and its explicit position.
pub type Placed<'a> = (DocumentId, &'a [i64], Option<i32>);

/// Where a document stands in the order in which the tree is read: the place among its siblings of each ancestor below some
/// node, and its own.
pub type ReadingKey = Vec<(i64, i64)>;

/// The reading keys of documents under a node.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = under.0))]
pub async fn reading_keys(
    conn: &mut PgConnection,
    under: DocumentId,
    documents: &[Placed<'_>],
) -> sqlx::Result<Vec<ReadingKey>> {
    let keys = all_reading_keys(conn, &[(under, documents)]).await?;
    Ok(keys.into_iter().next().unwrap_or_default())
}

/// The reading keys of documents under each of several nodes.
pub async fn all_reading_keys(
    conn: &mut PgConnection,
    nodes: &[(DocumentId, &[Placed<'_>])],
) -> sqlx::Result<Vec<Vec<ReadingKey>>> {
    let mut ancestors = BTreeSet::new();
    for (under, documents) in nodes {
        ancestors.extend(documents.iter().flat_map(|(_, path, _)| below(*under, path)));
    }
    let positions: Vec<(i64, Option<i32>)> = sqlx::query_as("SELECT id, position FROM documents WHERE id = ANY($1)")
        .bind(Vec::from_iter(ancestors))
        .fetch_all(conn)
        .await?;
    let positions = positions.into_iter().collect();
    Ok(nodes.iter().map(|(under, documents)| keys(*under, documents, &positions)).collect())
}

fn below(under: DocumentId, path: &[i64]) -> impl Iterator<Item = i64> {
    path.iter().copied().skip_while(move |ancestor| *ancestor != under.0).skip(1)
}

fn keys(under: DocumentId, documents: &[Placed<'_>], positions: &HashMap<i64, Option<i32>>) -> Vec<ReadingKey> {
    let place = |id: i64, position: Option<i32>| (sibling_position(position), id);
    let key = |(id, path, position): &Placed<'_>| {
        let ancestors = below(under, path).map(|ancestor| place(ancestor, positions.get(&ancestor).copied().flatten()));
        ancestors.chain([place(id.0, *position)]).collect()
    };
    documents.iter().map(key).collect()
}

/// A task that makes a tree of summaries and has not ended, with the fingerprint of what it was asked to do.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = place.id().0))]
pub async fn unfinished(conn: &mut PgConnection, place: &Place) -> sqlx::Result<Option<(TaskId, String)>> {
    sqlx::query_as(
        "SELECT id, param_fingerprint FROM task_queue WHERE scope_document_id = $1 AND task_type = $2 AND NOT final ORDER BY id LIMIT 1",
    )
    .bind(place.id())
    .bind(RULE)
    .fetch_optional(conn)
    .await
}

/// The trees of summaries of documents: the place of a tree is that of the node that holds the summaries.
pub async fn trees(conn: &mut PgConnection, documents: &[DocumentId]) -> sqlx::Result<Vec<Place>> {
    sqlx::query_as(
        "SELECT d.id, d.path FROM documents d JOIN node_origins o ON o.document_id = d.id AND o.rule = $2
          WHERE d.parent_id = ANY($1) AND coalesce(d.position::bigint, 2147483648) = $3 AND d.usetype = 'raptor' ORDER BY d.id",
    )
    .bind(documents)
    .bind(RULE)
    .bind(i64::from(POSITION))
    .fetch_all(conn)
    .await
}

/// The trees of summaries above places that tell of something at or under one of them.
pub async fn over(conn: &mut PgConnection, places: &[Place]) -> sqlx::Result<Vec<Place>> {
    let above: BTreeSet<i64> = places.iter().flat_map(|place| place.path().iter().copied()).collect();
    sqlx::query_as(
        "SELECT d.id, d.path FROM documents d JOIN node_origins o ON o.document_id = d.id AND o.rule = $3
          WHERE d.parent_id = ANY($2) AND coalesce(d.position::bigint, 2147483648) = $4 AND d.usetype = 'raptor'
            AND EXISTS (SELECT 1 FROM documents s JOIN document_links l ON l.source_id = s.id AND l.link_type = $5 JOIN documents m ON m.id = l.target_id
                         WHERE s.parent_id = d.id AND (m.id = ANY($1) OR m.path && $1))
          ORDER BY d.id",
    )
    .bind(places.iter().map(Place::id).collect::<Vec<_>>())
    .bind(Vec::from_iter(above))
    .bind(RULE)
    .bind(i64::from(POSITION))
    .bind(LINK)
    .fetch_all(conn)
    .await
}

/// The trees of summaries that tell of this very document: one of their titles may be its title.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = leaf.id().0))]
pub async fn of_leaf(conn: &mut PgConnection, leaf: &Place) -> sqlx::Result<Vec<Place>> {
    sqlx::query_as(
        "SELECT DISTINCT d.id, d.path FROM document_links l JOIN documents s ON s.id = l.source_id JOIN documents d ON d.id = s.parent_id
           JOIN node_origins o ON o.document_id = d.id AND o.rule = $2
          WHERE l.target_id = $1 AND l.link_type = $3 AND d.usetype = 'raptor' ORDER BY d.id",
    )
    .bind(leaf.id())
    .bind(RULE)
    .bind(LINK)
    .fetch_all(conn)
    .await
}

/// Whether a place is in a tree of summaries.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = place.id().0))]
pub async fn is_within_tree(conn: &mut PgConnection, place: &Place) -> sqlx::Result<bool> {
    sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM node_origins WHERE document_id = ANY($1) AND rule = $2)")
        .bind(place.children_path())
        .bind(RULE)
        .fetch_one(conn)
        .await
}

/// Whether a link leads from a summary to what it summarises.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = source.id().0))]
pub async fn is_of_summary(conn: &mut PgConnection, source: &Place, link_id: i64) -> sqlx::Result<bool> {
    sqlx::query_scalar(
        "SELECT EXISTS (SELECT 1 FROM document_links l JOIN node_origins o ON o.document_id = l.source_id AND o.rule = $4
                         WHERE l.id = $2 AND l.source_id = $1 AND l.link_type = $3)",
    )
    .bind(source.id())
    .bind(link_id)
    .bind(LINK)
    .bind(RULE)
    .fetch_one(conn)
    .await
}

/// A summary and something that it summarises, with the share of that which belongs to it.
pub struct Derived {
    pub summary: DocumentId,
    pub of: DocumentId,
    pub share: f64,
}

/// Links summaries, which are under a place, to what they summarise.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = within.id().0))]
pub async fn link(conn: &mut PgConnection, within: &Place, derived: &[Derived]) -> sqlx::Result<()> {
    sqlx::query(
        "INSERT INTO document_links (source_id, target_id, link_type, score)
         SELECT l.source, l.target, $4, l.score FROM unnest($1::bigint[], $2::bigint[], $3::float8[]) AS l(source, target, score)
         ON CONFLICT DO NOTHING",
    )
    .bind(derived.iter().map(|derived| derived.summary).collect::<Vec<_>>())
    .bind(derived.iter().map(|derived| derived.of).collect::<Vec<_>>())
    .bind(derived.iter().map(|derived| derived.share).collect::<Vec<_>>())
    .bind(LINK)
    .execute(conn)
    .await
    .map(|_| ())
}

/// Records how each summary under a place was made.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = within.id().0))]
pub async fn record(conn: &mut PgConnection, within: &Place, made: &[(DocumentId, Value)]) -> sqlx::Result<()> {
    sqlx::query(
        "INSERT INTO node_evidence (document_id, name, value) SELECT id, $2, value FROM unnest($1::bigint[], $3::jsonb[]) AS e(id, value)",
    )
    .bind(made.iter().map(|(id, _)| *id).collect::<Vec<_>>())
    .bind(Evidence::Summary.as_str())
    .bind(made.iter().map(|(_, value)| Json(value)).collect::<Vec<_>>())
    .execute(conn)
    .await
    .map(|_| ())
}

/// What may be chosen for a portfolio.
#[derive(Debug, sqlx_macros::FromRow)]
pub struct CandidateRow {
    pub id: DocumentId,
    /// The ids of its ancestors, root first.
    pub path: Vec<i64>,
    pub position: Option<i32>,
    /// Whether it is a leaf, and no summary.
    pub is_leaf: bool,
    pub embed: HalfVector,
}

/// The readable leaves under a document that have a vector of this model, and with them the summaries, by id; up to `most`.
/// The transaction is one of a search.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = under.0))]
pub async fn candidates(
    conn: &mut PgConnection,
    scope: &Readable,
    under: DocumentId,
    model: &str,
    excluded: &[String],
    summaries: bool,
    most: i64,
) -> sqlx::Result<Vec<CandidateRow>> {
    let mut arguments = scope.arguments();
    add(&mut arguments, under);
    add(&mut arguments, model.to_owned());
    add(&mut arguments, no_leaves(excluded));
    add(&mut arguments, summaries);
    add(&mut arguments, most);
    sqlx::query_as_with(
        concat!(
            "SELECT d.id, d.path, d.position, d.usetype <> 'summary' AS is_leaf, v.embed
               FROM documents d JOIN document_vectors v ON v.document_id = d.id AND v.embed_model = $4
              WHERE d.path @> ARRAY[$3::bigint] AND ",
            readable!(),
            " AND ((",
            leaf!("$5", concat!("EXISTS (SELECT FROM documents d WHERE d.id = c.id AND ", readable!(), ")")),
            ") OR ($6::boolean AND d.usetype = 'summary' AND d.settled = 'settled' AND d.content <> '')) ORDER BY d.id LIMIT $7"
        ),
        arguments,
    )
    .fetch_all(conn)
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_read_by_the_places_of_their_ancestors() {
        let positions = HashMap::from([(2, Some(1)), (3, Some(0))]);
        let documents: [(i64, &[i64], Option<i32>); 4] =
            [(7, &[9, 1, 2], None), (8, &[9, 1, 3], Some(5)), (4, &[9, 1], Some(2)), (5, &[9, 1, 3], Some(4))];
        let documents = documents.map(|(id, path, position)| (DocumentId(id), path, position));
        let mut keyed: Vec<_> = keys(DocumentId(1), &documents, &positions).into_iter().zip(documents).collect();
        keyed.sort();
        assert_eq!(keyed.iter().map(|(_, (id, ..))| id.0).collect::<Vec<_>>(), [5, 8, 7, 4]);
    }
}
