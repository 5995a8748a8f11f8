//! What is under a document in the order in which it is read: each document before what is under it, siblings by their positions. Summaries are no part
//! of the text: where they are left out, what holds them is there, and nothing under it.
use super::{
    Listed, SiblingCursor, add,
    list::{json_bytes, listed},
};
use crate::store::scope::{Readable, readable};
use sqlx::PgConnection;
use std::collections::{HashMap, VecDeque};
use svc_ids::DocumentId;

/// Of how many siblings what is under them is read at once, and how much of it at most.
const AHEAD: usize = 16;
const AHEAD_ROWS: i64 = 32;

/// A document, and the way to it: the places among their siblings of each document below the one that is read, down to its own.
#[derive(Clone, Debug)]
pub struct Read {
    pub way: Vec<SiblingCursor>,
    pub listed: Listed,
}

#[derive(sqlx_macros::FromRow)]
struct Sibling {
    parent: DocumentId,
    #[sqlx(flatten)]
    listed: Listed,
    place: i64,
    /// One that is not may have something under it that is.
    is_readable: bool,
    has_children: bool,
    /// Those of its children that were read ahead.
    #[sqlx(skip)]
    ahead: Option<Vec<Sibling>>,
}

/// What is read of the documents under a node.
struct Under<'a> {
    scope: &'a Readable,
    /// The documents on the way to what the caller may read, whether or not it may read them.
    ways: Vec<DocumentId>,
    with_summaries: bool,
}

/// The siblings under one parent that come next.
struct Level {
    parent: DocumentId,
    /// The last one that was taken.
    last: Option<SiblingCursor>,
    next: VecDeque<Sibling>,
    /// Nothing comes behind those.
    is_whole: bool,
}

impl Level {
    fn of(parent: DocumentId, last: Option<SiblingCursor>) -> Level {
        Level { parent, last, next: VecDeque::new(), is_whole: false }
    }
}

/// The first `limit` documents under a node behind the one to which the way `after` leads. A level of the tree is read in the order of its index, and
/// only as far as it is needed.
#[tracing::instrument(level = "debug", skip_all, fields(document.id = root.0))]
pub async fn reading(
    conn: &mut PgConnection,
    scope: &Readable,
    root: DocumentId,
    after: &[SiblingCursor],
    limit: u32,
    with_summaries: bool,
) -> sqlx::Result<Vec<Read>> {
    let under = Under { scope, ways: ways(conn, scope, root).await?, with_summaries };
    let mut levels = levels(conn, root, after).await?;
    let mut found = Vec::new();
    while found.len() < limit as usize
        && let Some(level) = levels.last_mut()
    {
        let Some(mut sibling) = level.next.pop_front() else {
            if level.is_whole {
                levels.pop();
                continue;
            }
            let parents = [(level.parent, level.last)];
            let most = i64::from(limit) - found.len() as i64;
            level.next = siblings(conn, &under, &parents, most).await?.into();
            level.is_whole = (level.next.len() as i64) < most;
            continue;
        };
        level.last = Some(SiblingCursor { position: sibling.place, id: sibling.listed.id });
        let below = match (sibling.has_children, sibling.ahead.take()) {
            (false, _) => None,
            (true, Some(ahead)) => Some(ahead),
            (true, None) => Some(read_ahead(conn, &under, &sibling, &mut level.next).await?),
        };
        if sibling.is_readable {
            let way = levels.iter().filter_map(|level| level.last).collect();
            found.push(Read { way, listed: sibling.listed });
        }
        if let Some(below) = below {
            let is_whole = (below.len() as i64) < AHEAD_ROWS;
            levels.push(Level { next: below.into(), is_whole, ..Level::of(sibling.listed.id, None) });
        }
    }
    Ok(found)
}

/// The levels above the place where the reading goes on. What was moved or deleted meanwhile is not followed.
async fn levels(conn: &mut PgConnection, root: DocumentId, after: &[SiblingCursor]) -> sqlx::Result<Vec<Level>> {
    let ids: Vec<DocumentId> = after.iter().map(|place| place.id).collect();
    let parents: Vec<(DocumentId, Option<DocumentId>)> = match ids.is_empty() {
        true => Vec::new(),
        false => {
            sqlx::query_as("SELECT id, parent_id FROM documents WHERE id = ANY($1)").bind(ids).fetch_all(conn).await?
        }
    };
    let parents: HashMap<DocumentId, Option<DocumentId>> = parents.into_iter().collect();
    let (mut levels, mut parent) = (Vec::new(), root);
    for place in after {
        levels.push(Level::of(parent, Some(*place)));
        if parents.get(&place.id) != Some(&Some(parent)) {
            return Ok(levels);
        }
        parent = place.id;
    }
    levels.push(Level::of(parent, None));
    Ok(levels)
}

/// What is under a sibling, with what is under some of those that come next.
async fn read_ahead(
    conn: &mut PgConnection,
    under: &Under<'_>,
    sibling: &Sibling,
    next: &mut VecDeque<Sibling>,
) -> sqlx::Result<Vec<Sibling>> {
    let others = next.iter().filter(|other| other.has_children && other.ahead.is_none()).take(AHEAD - 1);
    let parents: Vec<_> =
        [sibling.listed.id].into_iter().chain(others.map(|other| other.listed.id)).map(|id| (id, None)).collect();
    let mut below: HashMap<DocumentId, Vec<Sibling>> = parents.iter().map(|(id, _)| (*id, Vec::new())).collect();
    for child in siblings(conn, under, &parents, AHEAD_ROWS).await? {
        below.entry(child.parent).or_default().push(child);
    }
    for other in next {
        other.ahead = other.ahead.take().or_else(|| below.remove(&other.listed.id));
    }
    Ok(below.remove(&sibling.listed.id).unwrap_or_default())
}

/// The first `most` children of each of several documents behind a place, those that the caller may read and those on the ways to such.
async fn siblings(
    conn: &mut PgConnection,
    under: &Under<'_>,
    parents: &[(DocumentId, Option<SiblingCursor>)],
    most: i64,
) -> sqlx::Result<Vec<Sibling>> {
    let after =
        |place: &Option<SiblingCursor>| place.unwrap_or(SiblingCursor { position: i64::MIN, id: DocumentId(0) });
    let mut arguments = under.scope.arguments();
    add(&mut arguments, parents.iter().map(|(parent, _)| *parent).collect::<Vec<_>>());
    add(&mut arguments, parents.iter().map(|(_, place)| after(place).position).collect::<Vec<_>>());
    add(&mut arguments, parents.iter().map(|(_, place)| after(place).id).collect::<Vec<_>>());
    add(&mut arguments, under.ways.clone());
    add(&mut arguments, most);
    add(&mut arguments, under.with_summaries);
    sqlx::query_as_with(
        concat!(
            "SELECT p.parent, c.* FROM unnest($3::bigint[], $4::bigint[], $5::bigint[]) AS p(parent, place, id)
              CROSS JOIN LATERAL (
                 SELECT ",
            listed!(),
            ", coalesce(d.position::bigint, 2147483648) AS place, ",
            readable!(),
            " AS is_readable, ($8 OR d.usetype <> 'raptor') AND EXISTS (SELECT FROM documents below WHERE below.parent_id = d.id) AS has_children
                   FROM documents d
                  WHERE d.parent_id = p.parent AND (coalesce(d.position::bigint, 2147483648), d.id) > (p.place, p.id)
                    AND (",
            readable!(),
            " OR d.id = ANY($6))
                  ORDER BY coalesce(d.position::bigint, 2147483648), d.id LIMIT $7) c
              ORDER BY p.parent, c.place, c.id"
        ),
        arguments,
    )
    .persistent(false)
    .fetch_all(conn)
    .await
}

/// The documents above those access roots under a node that the caller may read: of what is under others it may read nothing.
async fn ways(conn: &mut PgConnection, scope: &Readable, root: DocumentId) -> sqlx::Result<Vec<DocumentId>> {
    if scope.is_everything() {
        return Ok(Vec::new());
    }
    let mut arguments = scope.arguments();
    add(&mut arguments, root);
    sqlx::query_scalar_with(
        concat!(
            "SELECT DISTINCT above FROM documents d, unnest(d.path) AS above WHERE d.id = ANY($2::bigint[]) AND d.path @> ARRAY[$3::bigint] AND ",
            readable!()
        ),
        arguments,
    )
    .persistent(false)
    .fetch_all(conn)
    .await
}
