//! PageRank (Brin and Page, 1998), weighted. What arrives at a node without a way out goes on anywhere.
use super::{Network, Stop};

/// How often a walk goes on along an edge; otherwise it goes on anywhere.
pub const DAMPING: f64 = 0.85;
/// The change of all scores together at which the iteration ends.
const TOLERANCE: f64 = 1e-9;
const ITERATIONS: usize = 200;

/// The share of a random walk that is spent at each node.
#[derive(Clone, Debug)]
pub struct PageRank {
    /// By node; their sum is 1.
    pub scores: Vec<f64>,
    pub iterations: usize,
}

impl PageRank {
    /// Iterates until the scores stay.
    pub fn new(network: &Network, stop: Stop<'_>) -> Option<PageRank> {
        let count = network.nodes();
        let mut scores = vec![1.0 / count as f64; count];
        let weights: Vec<f64> = (0..count).map(|node| network.out_degree(node)).collect();
        let (mut share, mut next) = (vec![0.0; count], vec![0.0; count]);
        for iteration in 1..=ITERATIONS {
            let mut dangling = 0.0;
            for node in 0..count {
                let is_dangling = weights[node] == 0.0;
                dangling += if is_dangling { scores[node] } else { 0.0 };
                share[node] = if is_dangling { 0.0 } else { DAMPING * scores[node] / weights[node] };
            }
            let base = (1.0 - DAMPING + DAMPING * dangling) / count as f64;
            let mut change = 0.0;
            for node in 0..count {
                next[node] = base + network.into.of(node).map(|(from, weight)| weight * share[from]).sum::<f64>();
                change += (next[node] - scores[node]).abs();
            }
            std::mem::swap(&mut scores, &mut next);
            if change < TOLERANCE {
                return Some(PageRank { scores, iterations: iteration });
            }
            if stop() {
                return None;
            }
        }
        Some(PageRank { scores, iterations: ITERATIONS })
    }

    /// What a walk carries along the edges of one unit of weight that lead away from each node.
    pub(super) fn flows(&self, network: &Network) -> Vec<f64> {
        let flow = |(node, score): (usize, &f64)| {
            let weight = network.out_degree(node);
            if weight == 0.0 { 0.0 } else { DAMPING * score / weight }
        };
        self.scores.iter().enumerate().map(flow).collect()
    }
}
