//! Networks of numbered nodes: which are central, how they group, and what the trees that they stand in are worth.
//!
//! Everything runs on one thread and is the same in every run. A computation asks a [`Stop`] again and again, and returns `None` once that
//! says so.
mod betweenness;
mod communities;
mod page_rank;
mod subtrees;
#[cfg(test)]
mod tests;

pub use betweenness::{Betweenness, EXACT};
pub use communities::Communities;
pub use page_rank::{DAMPING, PageRank};
pub use subtrees::{Forest, Spine};

/// Whether a computation is to end, because nobody waits for it or its time is over.
pub type Stop<'a> = &'a dyn Fn() -> bool;

/// A directed graph. Parallel edges are one edge of their summed weight; an edge from a node to itself counts nothing.
#[derive(Clone, Debug, Default)]
pub struct Network {
    out: Adjacency,
    into: Adjacency,
}

/// The neighbours of each node with the weights of the edges, in one stretch a node.
#[derive(Clone, Debug, Default)]
struct Adjacency {
    first: Vec<u32>,
    ends: Vec<u32>,
    weights: Vec<f64>,
}

impl Adjacency {
    /// From edges that are sorted by their first node.
    fn new(nodes: usize, edges: impl Iterator<Item = (u32, u32, f64)>) -> Adjacency {
        let mut made = Adjacency { first: Vec::with_capacity(nodes + 1), ..Adjacency::default() };
        made.first.push(0);
        for (from, to, weight) in edges {
            while made.first.len() <= from as usize {
                made.first.push(made.ends.len() as u32);
            }
            made.ends.push(to);
            made.weights.push(weight);
        }
        made.first.resize(nodes + 1, made.ends.len() as u32);
        made
    }

    fn nodes(&self) -> usize {
        self.first.len().saturating_sub(1)
    }

    fn range(&self, node: usize) -> std::ops::Range<usize> {
        self.first[node] as usize..self.first[node + 1] as usize
    }

    fn ends(&self, node: usize) -> &[u32] {
        &self.ends[self.range(node)]
    }

    fn of(&self, node: usize) -> impl Iterator<Item = (usize, f64)> {
        self.range(node).map(|at| (self.ends[at] as usize, self.weights[at]))
    }

    fn weight(&self, node: usize) -> f64 {
        self.weights[self.range(node)].iter().sum()
    }
}

impl Network {
    /// A graph of the nodes below `nodes`, which are at most `u32::MAX`. Edges to other nodes are left out.
    pub fn new(nodes: usize, mut edges: Vec<(u32, u32)>) -> Network {
        edges.retain(|&(from, to)| from != to && (from as usize) < nodes && (to as usize) < nodes);
        edges.sort_unstable();
        let mut merged: Vec<(u32, u32, f64)> = Vec::with_capacity(edges.len());
        for (from, to) in edges {
            match merged.last_mut() {
                Some(last) if (last.0, last.1) == (from, to) => last.2 += 1.0,
                _ => merged.push((from, to, 1.0)),
            }
        }
        let out = Adjacency::new(nodes, merged.iter().copied());
        merged.sort_unstable_by_key(|&(from, to, _)| (to, from));
        let into = Adjacency::new(nodes, merged.into_iter().map(|(from, to, weight)| (to, from, weight)));
        Network { out, into }
    }

    /// How many nodes there are.
    pub fn nodes(&self) -> usize {
        self.out.nodes()
    }

    /// How many pairs of nodes have an edge from one to the other.
    pub fn edges(&self) -> usize {
        self.out.ends.len()
    }

    /// The weight of the edges that lead away from a node.
    pub fn out_degree(&self, node: usize) -> f64 {
        self.out.weight(node)
    }

    /// The weight of the edges that lead to a node.
    pub fn in_degree(&self, node: usize) -> f64 {
        self.into.weight(node)
    }

    /// Whether no edge leads to a node or away from it.
    pub fn is_alone(&self, node: usize) -> bool {
        self.out.ends(node).is_empty() && self.into.ends(node).is_empty()
    }

    /// The sizes of the parts that the nodes with edges fall into, between which no edge leads.
    pub fn components(&self) -> Vec<usize> {
        let (mut sizes, mut open) = (Vec::new(), Vec::new());
        let mut is_seen = vec![false; self.nodes()];
        for start in (0..self.nodes()).filter(|node| !self.is_alone(*node)) {
            if std::mem::replace(&mut is_seen[start], true) {
                continue;
            }
            let mut size = 0;
            open.push(start);
            while let Some(node) = open.pop() {
                size += 1;
                for &end in self.out.ends(node).iter().chain(self.into.ends(node)) {
                    if !std::mem::replace(&mut is_seen[end as usize], true) {
                        open.push(end as usize);
                    }
                }
            }
            sizes.push(size);
        }
        sizes
    }

    /// The edges without their directions, each from both of its ends.
    fn undirected(&self) -> Adjacency {
        let mut merged = Vec::new();
        Adjacency::new(
            self.nodes(),
            (0..self.nodes()).flat_map(move |node| {
                merged.clear();
                merged.extend(self.out.of(node).chain(self.into.of(node)));
                merged.sort_unstable_by_key(|&(end, _)| end);
                merged.dedup_by(|next, kept| {
                    let is_same = next.0 == kept.0;
                    kept.1 += if is_same { next.1 } else { 0.0 };
                    is_same
                });
                merged.iter().map(|&(end, weight)| (node as u32, end as u32, weight)).collect::<Vec<_>>()
            }),
        )
    }
}
