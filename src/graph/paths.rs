//! The shortest paths between two documents: a breadth-first search from both ends, level by level, in which the smaller frontier grows.
//! Levels are complete, so that the first meeting is on a shortest path.
use crate::{
    access::Caller,
    error::OrFail,
    store::{
        merges::{self, Sets},
        triples::paths::{Along, Edge, edges},
    },
};
use sqlx::PgConnection;
use std::{
    collections::{HashMap, HashSet},
    time::{Duration, Instant},
};
use svc_client::{Failure, wire::PathLimit};
use svc_ids::{DocumentId, TripleId};

/// How much a search may take before it gives up.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// The most documents that it comes to.
    pub nodes: usize,
    pub time: Duration,
}

/// The most edges that one level is read with.
const EDGES: usize = 1_000_000;

/// What a search found.
#[derive(Debug, Default)]
pub struct Found {
    /// The facts of each path in their order, with the document that each step leads to.
    pub paths: Vec<Vec<(TripleId, DocumentId)>>,
    pub visited: usize,
    pub truncated: Option<PathLimit>,
    /// The documents on the way that are taken for others; paths name the others.
    pub sets: Sets,
}

/// One side of a search.
struct Side {
    /// How far each document is from the end of this side.
    depth: HashMap<DocumentId, u32>,
    /// The edges by which a document is nearer to the end, which lead away from it.
    nearer: HashMap<DocumentId, Vec<Edge>>,
    frontier: Vec<DocumentId>,
    level: u32,
}

impl Side {
    fn new(end: DocumentId) -> Side {
        Side { depth: HashMap::from([(end, 0)]), nearer: HashMap::new(), frontier: vec![end], level: 0 }
    }

    /// Takes the edges of the next level in.
    fn grow(&mut self, found: Vec<Edge>) {
        self.level += 1;
        self.frontier.clear();
        for edge in found {
            match self.depth.get(&edge.to) {
                Some(depth) if *depth < self.level => continue,
                Some(_) => {}
                None => {
                    self.depth.insert(edge.to, self.level);
                    self.frontier.push(edge.to);
                }
            }
            self.nearer.entry(edge.to).or_default().push(edge);
        }
        self.frontier.sort_unstable();
    }
}

/// Finds up to `limit` of the shortest paths of at most `depth` facts. The caller has been shown to be able to read both ends.
pub async fn find(
    conn: &mut PgConnection,
    caller: &Caller,
    (from, to): (DocumentId, DocumentId),
    along: &Along,
    (depth, limit): (u32, usize),
    budget: Budget,
) -> Result<Found, Failure> {
    let scope = caller.readable();
    let begun = Instant::now();
    let mut merged = Merged::begin(conn, caller, along, &[from, to]).await?;
    let (from, to) = (merged.sets.canonical(from), merged.sets.canonical(to));
    let (mut near, mut far) = (Side::new(from), Side::new(to));
    let mut met = if from == to { vec![from] } else { Vec::new() };
    let mut truncated = None;
    while met.is_empty() && near.level + far.level < depth && !near.frontier.is_empty() && !far.frontier.is_empty() {
        let backwards = far.frontier.len() < near.frontier.len();
        let side = if backwards { &mut far } else { &mut near };
        let left = budget.time.saturating_sub(begun.elapsed());
        let frontier = merged.members(&side.frontier);
        let read = async {
            let read = edges(conn, &scope, &frontier, along, backwards, EDGES as i64 + 1).await.or_fail()?;
            match read.len() > EDGES {
                true => Ok(None),
                false => merged.unite(conn, caller, along, read).await,
            }
        };
        let Ok(read) = tokio::time::timeout(left, read).await else {
            truncated = Some(PathLimit::Time);
            break;
        };
        let Some(read) = read? else {
            truncated = Some(PathLimit::Nodes);
            break;
        };
        side.grow(read);
        let grown = &if backwards { &far } else { &near }.frontier;
        let other = &if backwards { &near } else { &far }.depth;
        met = grown.iter().copied().filter(|node| other.contains_key(node)).collect();
        if met.is_empty() && near.depth.len() + far.depth.len() > budget.nodes {
            truncated = Some(PathLimit::Nodes);
            break;
        }
    }
    let paths = if from == to { vec![Vec::new()] } else { join(&near, &far, &met, to, limit) };
    Ok(Found { paths, visited: near.depth.len() + far.depth.len() - met.len(), truncated, sets: merged.sets })
}

/// The documents of a search that are taken for one.
pub struct Merged {
    /// Whether anything is merged, as is asked once.
    is_any: bool,
    pub sets: Sets,
}

impl Merged {
    /// Looks at the documents that a search begins with.
    pub async fn begin(
        conn: &mut PgConnection,
        caller: &Caller,
        along: &Along,
        ends: &[DocumentId],
    ) -> Result<Merged, Failure> {
        let mut merged = Merged { is_any: merges::any(conn, along.known_at).await.or_fail()?, sets: Sets::default() };
        if merged.is_any {
            merged.sets = merges::sets(conn, &caller.readable(), ends, along.known_at).await.or_fail()?;
        }
        Ok(merged)
    }

    /// All that are taken for one of these.
    pub fn members(&self, ids: &[DocumentId]) -> Vec<DocumentId> {
        match self.is_any {
            true => ids.iter().flat_map(|id| self.sets.members(*id)).collect(),
            false => ids.to_vec(),
        }
    }

    /// Edges between the documents by which answers name their ends; `None` if too many documents are merged with these.
    pub async fn unite(
        &mut self,
        conn: &mut PgConnection,
        caller: &Caller,
        along: &Along,
        mut edges: Vec<Edge>,
    ) -> Result<Option<Vec<Edge>>, Failure> {
        if self.is_any && !edges.is_empty() {
            let met: Vec<DocumentId> = edges.iter().map(|edge| edge.to).collect::<HashSet<_>>().into_iter().collect();
            let sets =
                merges::sets_within(conn, &caller.readable(), &met, along.known_at, merges::MANY).await.or_fail()?;
            let Some(sets) = sets else { return Ok(None) };
            self.sets.extend(sets);
            for edge in &mut edges {
                (edge.from, edge.to) = (self.sets.canonical(edge.from), self.sets.canonical(edge.to));
            }
        }
        Ok(Some(edges))
    }
}

/// The paths over the documents where both sides met, those with the smallest ids of facts first.
fn join(near: &Side, far: &Side, met: &[DocumentId], to: DocumentId, limit: usize) -> Vec<Vec<(TripleId, DocumentId)>> {
    // What leads on from each document of some shortest path, in the direction of the path.
    let mut onward: HashMap<DocumentId, Vec<(TripleId, DocumentId)>> = HashMap::new();
    for (side, is_near) in [(near, true), (far, false)] {
        let mut open: Vec<DocumentId> = met.to_vec();
        let mut seen: HashSet<DocumentId> = open.iter().copied().collect();
        while let Some(node) = open.pop() {
            for edge in side.nearer.get(&node).into_iter().flatten() {
                let (begin, end) = if is_near { (edge.from, node) } else { (node, edge.from) };
                onward.entry(begin).or_default().push((edge.id, end));
                if seen.insert(edge.from) {
                    open.push(edge.from);
                }
            }
        }
    }
    for steps in onward.values_mut() {
        steps.sort_unstable();
        steps.dedup();
    }
    let Some(begin) = near.depth.iter().find(|(_, depth)| **depth == 0).map(|(node, _)| *node) else {
        return Vec::new();
    };
    let mut paths = Vec::new();
    walk(&onward, begin, to, limit, &mut Vec::new(), &mut paths);
    paths
}

/// Follows the steps to the end; every step leads there, so that nothing is walked in vain.
fn walk(
    onward: &HashMap<DocumentId, Vec<(TripleId, DocumentId)>>,
    node: DocumentId,
    to: DocumentId,
    limit: usize,
    path: &mut Vec<(TripleId, DocumentId)>,
    paths: &mut Vec<Vec<(TripleId, DocumentId)>>,
) {
    if node == to {
        if !path.is_empty() {
            paths.push(path.clone());
        }
        return;
    }
    for step in onward.get(&node).into_iter().flatten() {
        if paths.len() >= limit {
            return;
        }
        path.push(*step);
        walk(onward, step.1, to, limit, path, paths);
        path.pop();
    }
}
