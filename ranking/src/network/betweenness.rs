//! Betweenness by Brandes (2001): the share of shortest paths that lead through a node, along edges in either direction. Of a larger network it
//! is estimated from the paths that begin at sampled nodes, the pivots (Brandes and Pich, 2007).
use super::{Adjacency, Network, Stop};
use crate::random::Random;

/// Up to so many nodes with edges, all of them are pivots.
pub const EXACT: usize = 2_000;
/// Numbers of paths above this are scaled, because their ratios alone count.
const HUGE: f64 = 1e100;
/// Pivots that are always looked at, so that an error can be told.
const LEAST: usize = 2;

/// How many of the shortest paths between two others lead through each node.
#[derive(Clone, Debug)]
pub struct Betweenness {
    /// By node: the share of pairs of other nodes with edges, each with the share of its shortest paths. From 0 to 1.
    pub scores: Vec<f64>,
    /// The standard errors of the scores; `None` if these are exact.
    pub errors: Option<Vec<f64>>,
    pub pivots: usize,
}

impl Betweenness {
    /// From `pivots` pivots, or from as many as are looked at before `is_late`.
    pub fn new(network: &Network, pivots: usize, stop: Stop<'_>, is_late: Stop<'_>) -> Option<Betweenness> {
        let graph = network.undirected();
        let connected: Vec<usize> = (0..graph.nodes()).filter(|node| !graph.ends(*node).is_empty()).collect();
        let count = connected.len();
        let is_exact = count <= EXACT || pivots >= count;
        let mut chosen = connected;
        if !is_exact {
            let mut random = Random::new(1);
            for at in 0..pivots.min(count) {
                let other = at + random.below(count - at);
                chosen.swap(at, other);
            }
            chosen.truncate(pivots.max(LEAST));
        }
        let mut walk = Walk::new(graph.nodes());
        let (mut sums, mut squares) = (vec![0.0; graph.nodes()], vec![0.0; if is_exact { 0 } else { graph.nodes() }]);
        let mut done = 0;
        for pivot in &chosen {
            if stop() {
                return None;
            }
            if !is_exact && done >= LEAST && is_late() {
                break;
            }
            walk.from(&graph, *pivot);
            for &node in &walk.order[1..] {
                let share = walk.share[node as usize];
                sums[node as usize] += share;
                if !is_exact {
                    squares[node as usize] += share * share;
                }
            }
            done += 1;
        }
        let (all, seen) = (count as f64, done as f64);
        let pairs = ((all - 1.0) * (all - 2.0)).max(1.0);
        let errors = (!is_exact).then(|| {
            let error = |(sum, square): (&f64, &f64)| {
                let variance = ((square - sum * sum / seen) / (seen - 1.0)).max(0.0);
                all * (variance / seen * (1.0 - seen / all)).sqrt() / pairs
            };
            sums.iter().zip(&squares).map(error).collect()
        });
        let scale = if is_exact { 1.0 } else { all / seen };
        let scores = sums.into_iter().map(|sum| sum * scale / pairs).collect();
        Some(Betweenness { scores, errors, pivots: done })
    }
}

/// The shortest paths from one node to all others.
struct Walk {
    /// How far each node is, or `FAR`.
    distance: Vec<u32>,
    /// The number of shortest paths to each node, scaled by level.
    paths: Vec<f64>,
    /// For each node the sum over all ends of the share of shortest paths that lead through it.
    share: Vec<f64>,
    /// The nodes that were reached, the nearest first.
    order: Vec<u32>,
    /// What the numbers of paths of each level were multiplied by.
    scales: Vec<f64>,
}

const FAR: u32 = u32::MAX;

impl Walk {
    fn new(nodes: usize) -> Walk {
        let (distance, paths, share) = (vec![FAR; nodes], vec![0.0; nodes], vec![0.0; nodes]);
        Walk { distance, paths, share, order: Vec::new(), scales: Vec::new() }
    }

    fn from(&mut self, graph: &Adjacency, start: usize) {
        for &node in &self.order {
            let node = node as usize;
            (self.distance[node], self.paths[node], self.share[node]) = (FAR, 0.0, 0.0);
        }
        self.order.clear();
        self.scales.clear();
        (self.distance[start], self.paths[start]) = (0, 1.0);
        self.order.push(start as u32);
        let (mut begin, mut level) = (0, 0);
        while begin < self.order.len() {
            let end = self.order.len();
            let most = self.order[begin..end].iter().map(|&node| self.paths[node as usize]).fold(0.0, f64::max);
            let scale = if most > HUGE { 1.0 / most } else { 1.0 };
            self.scales.push(scale);
            for at in begin..end {
                let node = self.order[at] as usize;
                self.paths[node] *= scale;
                for &next in graph.ends(node) {
                    let next = next as usize;
                    if self.distance[next] == FAR {
                        self.distance[next] = level + 1;
                        self.order.push(next as u32);
                    }
                    if self.distance[next] == level + 1 {
                        self.paths[next] += self.paths[node];
                    }
                }
            }
            (begin, level) = (end, level + 1);
        }
        for at in (1..self.order.len()).rev() {
            let node = self.order[at] as usize;
            let level = self.distance[node];
            // The paths to the level before were counted in before this level was scaled.
            let ratio =
                self.scales[level as usize] * (1.0 + self.share[node]) / self.paths[node].max(f64::MIN_POSITIVE);
            for &before in graph.ends(node) {
                let before = before as usize;
                if self.distance[before] + 1 == level {
                    self.share[before] += self.paths[before] * ratio;
                }
            }
        }
    }
}
