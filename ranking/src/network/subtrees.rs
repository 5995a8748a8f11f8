//! What the trees that nodes stand in are worth, after BlockRank (Kamvar and others, 2003), and the chains of heavy nodes that cover a tree
//! (Sleator and Tarjan, 1983).
use super::{Network, PageRank};

/// The trees that nodes stand in.
#[derive(Clone, Debug)]
pub struct Forest {
    parents: Vec<Option<u32>>,
    /// Each node after its parent.
    order: Vec<u32>,
    depth: Vec<u32>,
}

/// A chain of nodes from one that is not the heaviest of its siblings, or the root, down to a leaf.
#[derive(Clone, Debug, PartialEq)]
pub struct Spine {
    pub nodes: Vec<u32>,
    /// The sum of the scores along it.
    pub weight: f64,
}

impl Forest {
    /// From the parent of each node. A node whose parents lead back to it stands alone.
    pub fn new(mut parents: Vec<Option<u32>>) -> Forest {
        let count = parents.len();
        let mut children = vec![Vec::new(); count];
        for (node, parent) in parents.iter().enumerate() {
            if let Some(parent) = parent {
                children[*parent as usize].push(node as u32);
            }
        }
        let mut depth = vec![u32::MAX; count];
        let mut order: Vec<u32> = Vec::with_capacity(count);
        for round in 0..2 {
            for root in 0..count {
                let begins = depth[root] == u32::MAX && (round == 1 || parents[root].is_none());
                if !begins {
                    continue;
                }
                parents[root] = None;
                depth[root] = 0;
                let mut at = order.len();
                order.push(root as u32);
                while let Some(&node) = order.get(at) {
                    at += 1;
                    for &child in &children[node as usize] {
                        if depth[child as usize] == u32::MAX {
                            depth[child as usize] = depth[node as usize] + 1;
                            order.push(child);
                        }
                    }
                }
            }
        }
        Forest { parents, order, depth }
    }

    /// The sums of values over each node and all below it.
    pub fn sums(&self, values: &[f64]) -> Vec<f64> {
        let mut sums = values.to_vec();
        for &node in self.order.iter().rev() {
            if let Some(parent) = self.parents[node as usize] {
                sums[parent as usize] += sums[node as usize];
            }
        }
        sums
    }

    /// What a random walk carries into each node and all below it along edges that begin elsewhere.
    pub fn inflow(&self, network: &Network, ranks: &PageRank) -> Vec<f64> {
        let flows = ranks.flows(network);
        let mut inflow = vec![0.0; self.parents.len()];
        for (from, flow) in flows.into_iter().enumerate() {
            for (to, weight) in network.out.of(from) {
                let common = self.common(from as u32, to as u32);
                let mut above = Some(to as u32);
                while above != common {
                    let Some(node) = above else { break };
                    inflow[node as usize] += weight * flow;
                    above = self.parents[node as usize];
                }
            }
        }
        inflow
    }

    /// The lowest node that two nodes are at or below.
    fn common(&self, one: u32, other: u32) -> Option<u32> {
        let (mut one, mut other) = (Some(one), Some(other));
        while one != other {
            let depth = |node: Option<u32>| node.map(|node| self.depth[node as usize]);
            // The deeper one goes up; `None`, above all roots, is the least.
            if depth(one) >= depth(other) {
                one = self.parents[one? as usize];
            } else {
                other = self.parents[other? as usize];
            }
        }
        one
    }

    /// The spines that cover the tree of `root`, the heaviest first. A spine goes on to the child with the largest sum of scores below it; of
    /// equal ones to the first by `places`.
    pub fn spines(&self, root: u32, scores: &[f64], places: &[i64]) -> Vec<Spine> {
        let sums = self.sums(scores);
        let mut heaviest: Vec<Option<u32>> = vec![None; self.parents.len()];
        let is_before = |one: u32, other: u32| {
            let (one, other) = (one as usize, other as usize);
            sums[other].total_cmp(&sums[one]).then(places[one].cmp(&places[other])).then(one.cmp(&other)).is_lt()
        };
        for &node in &self.order {
            if let Some(parent) = self.parents[node as usize] {
                let best = &mut heaviest[parent as usize];
                if best.is_none_or(|best| is_before(node, best)) {
                    *best = Some(node);
                }
            }
        }
        let mut is_below = vec![false; self.parents.len()];
        let mut spines = Vec::new();
        for &node in &self.order {
            let parent = self.parents[node as usize];
            is_below[node as usize] = node == root || parent.is_some_and(|parent| is_below[parent as usize]);
            let begins = node == root || parent.is_some_and(|parent| heaviest[parent as usize] != Some(node));
            if !is_below[node as usize] || !begins {
                continue;
            }
            let nodes: Vec<u32> = std::iter::successors(Some(node), |node| heaviest[*node as usize]).collect();
            let weight = nodes.iter().map(|node| scores[*node as usize]).sum();
            spines.push(Spine { nodes, weight });
        }
        spines.sort_by(|a, b| b.weight.total_cmp(&a.weight).then_with(|| a.nodes.cmp(&b.nodes)));
        spines
    }
}
