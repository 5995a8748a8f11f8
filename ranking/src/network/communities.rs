//! Communities by Leiden (Traag, Waltman and van Eck, 2019), along edges in either direction. Passes that first split each community alone
//! follow, until they gain little: a single pass ends in a worse optimum.
use super::{Adjacency, Network, Stop};
use crate::random::Random;
use std::collections::VecDeque;

/// How much finer than the whole the parts are that a further pass begins with.
const FINER: f64 = 3.0;
/// The gain of modularity under which no pass follows.
const GAIN: f64 = 1e-3;
const PASSES: usize = 10;
/// The most levels of one pass; each has fewer nodes than the one before.
const LEVELS: usize = 40;
/// A node moves for more than this, so that rounding moves none to and fro.
const LITTLE: f64 = 1e-12;
/// How many nodes are looked at between two questions whether to stop.
const OFTEN: usize = 10_000;

/// Groups of nodes with more edges among them than their degrees let expect.
#[derive(Clone, Debug)]
pub struct Communities {
    /// The nodes of each community, ascending; the largest community first. Nodes without edges are in none.
    pub members: Vec<Vec<u32>>,
    /// How many more of the edges' weight lies within communities than their degrees let expect, as a share of all, at the resolution.
    pub modularity: f64,
}

/// A graph of groups of nodes. What lies within a group is in its strength alone.
struct Level {
    edges: Adjacency,
    strength: Vec<f64>,
}

impl Communities {
    /// Every community is connected. A higher resolution gives more and smaller ones.
    pub fn new(network: &Network, resolution: f64, stop: Stop<'_>) -> Option<Communities> {
        let edges = network.undirected();
        let strength: Vec<f64> = (0..edges.nodes()).map(|node| edges.weight(node)).collect();
        let base = Level { edges, strength };
        let total: f64 = base.strength.iter().sum();
        let mut run = Run { random: Random::new(1), total, resolution, stop };
        let alone: Vec<u32> = (0..base.strength.len() as u32).collect();
        let mut best = run.pass(&base, &alone)?;
        let mut modularity = base.modularity(&best, total, resolution);
        for _ in 0..PASSES {
            let parts = run.split(&base, &best)?;
            let mut next = run.pass(&base, &parts)?;
            run.improve(&base, &mut next)?;
            let reached = base.modularity(&next, total, resolution);
            let gain = reached - modularity;
            if gain > 0.0 {
                (best, modularity) = (next, reached);
            }
            if gain < GAIN {
                break;
            }
        }
        let mut best = connected(&base.edges, &best);
        for _ in 0..LEVELS {
            let merged = run.merge(&base, &best)?;
            if merged.iter().max() == best.iter().max() {
                break;
            }
            best = merged;
        }
        let modularity = base.modularity(&best, total, resolution);
        let count = best.iter().max().map_or(0, |most| *most as usize + 1);
        let mut members = vec![Vec::new(); count];
        for (node, community) in best.iter().enumerate() {
            if base.strength[node] > 0.0 {
                members[*community as usize].push(node as u32);
            }
        }
        members.retain(|members| !members.is_empty());
        members.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        Some(Communities { members, modularity })
    }
}

impl Level {
    fn modularity(&self, of: &[u32], total: f64, resolution: f64) -> f64 {
        if total == 0.0 {
            return 0.0;
        }
        let (mut within, mut strength) = (0.0, vec![0.0; self.strength.len()]);
        for node in 0..self.strength.len() {
            strength[of[node] as usize] += self.strength[node];
            within +=
                self.edges.of(node).filter(|(end, _)| of[*end] == of[node]).map(|(_, weight)| weight).sum::<f64>();
        }
        within / total - resolution * strength.iter().map(|strength| (strength / total).powi(2)).sum::<f64>()
    }

    /// The graph of these parts, which are numbered from 0 without a gap.
    fn of_parts(&self, parts: &[u32], count: usize) -> Level {
        let mut strength = vec![0.0; count];
        let mut members: Vec<Vec<u32>> = vec![Vec::new(); count];
        for (node, part) in parts.iter().enumerate() {
            strength[*part as usize] += self.strength[node];
            members[*part as usize].push(node as u32);
        }
        let (mut weights, mut touched) = (vec![0.0; count], Vec::new());
        let edges = Adjacency::new(
            count,
            members.iter().enumerate().flat_map(|(part, members)| {
                for &node in members {
                    for (end, weight) in self.edges.of(node as usize) {
                        let end = parts[end] as usize;
                        if end != part {
                            if weights[end] == 0.0 {
                                touched.push(end as u32);
                            }
                            weights[end] += weight;
                        }
                    }
                }
                touched.sort_unstable();
                let row = touched.drain(..).map(|end| (part as u32, end, std::mem::take(&mut weights[end as usize])));
                row.collect::<Vec<_>>()
            }),
        );
        Level { edges, strength }
    }
}

/// Weights to neighbouring communities, of one node at a time.
struct Neighbours {
    weights: Vec<f64>,
    communities: Vec<u32>,
}

impl Neighbours {
    fn new(count: usize) -> Neighbours {
        Neighbours { weights: vec![0.0; count], communities: Vec::new() }
    }

    fn add(&mut self, community: u32, weight: f64) {
        if self.weights[community as usize] == 0.0 {
            self.communities.push(community);
        }
        self.weights[community as usize] += weight;
    }

    fn clear(&mut self) {
        for community in self.communities.drain(..) {
            self.weights[community as usize] = 0.0;
        }
    }
}

struct Run<'a> {
    random: Random,
    /// The strength of all nodes.
    total: f64,
    resolution: f64,
    stop: Stop<'a>,
}

impl Run<'_> {
    /// One pass of Leiden over these parts of a level; returns the community of each node.
    fn pass(&mut self, base: &Level, parts: &[u32]) -> Option<Vec<u32>> {
        let mut member = parts.to_vec();
        let count = renumber(&mut member);
        let mut level = base.of_parts(&member, count);
        let mut community: Vec<u32> = (0..count as u32).collect();
        for _ in 0..LEVELS {
            self.improve(&level, &mut community)?;
            let mut parts = self.refine(&level, &community)?;
            let count = renumber(&mut parts);
            if count == level.strength.len() {
                break;
            }
            let mut above = vec![0; count];
            for (node, part) in parts.iter().enumerate() {
                above[*part as usize] = community[node];
            }
            level = level.of_parts(&parts, count);
            renumber(&mut above);
            community = above;
            member.iter_mut().for_each(|part| *part = parts[*part as usize]);
        }
        member.iter_mut().for_each(|part| *part = community[*part as usize]);
        renumber(&mut member);
        Some(member)
    }

    /// Joins whole communities while that gains something; single nodes may each be where they are best, and two communities not.
    fn merge(&mut self, base: &Level, community: &[u32]) -> Option<Vec<u32>> {
        let mut member = community.to_vec();
        let count = renumber(&mut member);
        let level = base.of_parts(&member, count);
        let mut joined: Vec<u32> = (0..count as u32).collect();
        self.improve(&level, &mut joined)?;
        member.iter_mut().for_each(|community| *community = joined[*community as usize]);
        Some(connected(&base.edges, &member))
    }

    /// Moves nodes to the community of a neighbour while that gains something.
    fn improve(&mut self, level: &Level, community: &mut [u32]) -> Option<()> {
        let totals = vec![self.total; level.strength.len()];
        self.move_nodes(level, &level.strength, &totals, self.resolution, community, None)
    }

    /// Splits each community by itself into finer parts, as if there were nothing around it.
    fn split(&mut self, level: &Level, community: &[u32]) -> Option<Vec<u32>> {
        let count = level.strength.len();
        let inside = |node: usize| level.edges.of(node).filter(move |(end, _)| community[*end] == community[node]);
        let strength: Vec<f64> = (0..count).map(|node| inside(node).map(|(_, weight)| weight).sum()).collect();
        let mut totals = vec![0.0; count];
        for (node, strength) in strength.iter().enumerate() {
            totals[community[node] as usize] += strength;
        }
        let totals: Vec<f64> = community.iter().map(|community| totals[*community as usize]).collect();
        let mut parts: Vec<u32> = (0..count as u32).collect();
        self.move_nodes(level, &strength, &totals, self.resolution * FINER, &mut parts, Some(community))?;
        Some(parts)
    }

    /// Moves nodes to the community of a neighbour, with which they share `within`, while that gains something.
    fn move_nodes(
        &mut self,
        level: &Level,
        strength: &[f64],
        totals: &[f64],
        resolution: f64,
        community: &mut [u32],
        within: Option<&[u32]>,
    ) -> Option<()> {
        let count = level.strength.len();
        let mut sums = vec![0.0; count];
        for (node, community) in community.iter().enumerate() {
            sums[*community as usize] += strength[node];
        }
        let mut order: Vec<u32> = (0..count as u32).collect();
        for at in (1..count).rev() {
            order.swap(at, self.random.below(at + 1));
        }
        let mut queue: VecDeque<u32> = order.into();
        let mut is_queued = vec![true; count];
        let mut near = Neighbours::new(count);
        let mut steps = 0;
        while let Some(node) = queue.pop_front() {
            let node = node as usize;
            is_queued[node] = false;
            steps += 1;
            if steps % OFTEN == 0 && (self.stop)() {
                return None;
            }
            if totals[node] == 0.0 {
                continue;
            }
            let is_inside = |end: usize| within.is_none_or(|within| within[end] == within[node]);
            for (end, weight) in level.edges.of(node).filter(|(end, _)| is_inside(*end)) {
                near.add(community[end], weight);
            }
            let own = community[node];
            sums[own as usize] -= strength[node];
            let worth =
                |other: u32, weight: f64| weight - resolution * strength[node] * sums[other as usize] / totals[node];
            let (mut best, mut most) = (own, worth(own, near.weights[own as usize]));
            for &other in &near.communities {
                let worth = worth(other, near.weights[other as usize]);
                if worth > most + LITTLE {
                    (best, most) = (other, worth);
                }
            }
            sums[best as usize] += strength[node];
            near.clear();
            if best != own {
                community[node] = best;
                for &end in level.edges.ends(node) {
                    let end = end as usize;
                    if !is_queued[end] && community[end] != best && is_inside(end) {
                        is_queued[end] = true;
                        queue.push_back(end as u32);
                    }
                }
            }
        }
        Some(())
    }

    /// Joins single nodes within their communities into parts that hold together; the parts are the nodes of the next level.
    fn refine(&mut self, level: &Level, community: &[u32]) -> Option<Vec<u32>> {
        let count = level.strength.len();
        let mut part: Vec<u32> = (0..count as u32).collect();
        let (mut sums, mut sizes) = (level.strength.clone(), vec![1_u32; count]);
        let mut whole = vec![0.0; count];
        for (node, community) in community.iter().enumerate() {
            whole[*community as usize] += level.strength[node];
        }
        let mut near = Neighbours::new(count);
        for node in 0..count {
            if node % OFTEN == OFTEN - 1 && (self.stop)() {
                return None;
            }
            let own = part[node];
            if sizes[own as usize] != 1 || self.total == 0.0 {
                continue;
            }
            let mut inside = 0.0;
            for (end, weight) in level.edges.of(node).filter(|(end, _)| community[*end] == community[node]) {
                inside += weight;
                near.add(part[end], weight);
            }
            let expected = |strength: f64| self.resolution * level.strength[node] * strength / self.total;
            if inside >= expected(whole[community[node] as usize] - level.strength[node]) {
                let (mut best, mut most) = (own, 0.0);
                for &other in near.communities.iter().filter(|other| **other != own) {
                    let worth = near.weights[other as usize] - expected(sums[other as usize]);
                    if worth > most {
                        (best, most) = (other, worth);
                    }
                }
                if best != own {
                    sums[best as usize] += level.strength[node];
                    sums[own as usize] -= level.strength[node];
                    sizes[best as usize] += 1;
                    sizes[own as usize] -= 1;
                    part[node] = best;
                }
            }
            near.clear();
        }
        Some(part)
    }
}

/// Numbers groups from 0 without a gap, in the order in which they come; returns how many there are.
fn renumber(groups: &mut [u32]) -> usize {
    let mut numbers = vec![u32::MAX; groups.iter().max().map_or(0, |most| *most as usize + 1)];
    let mut count = 0;
    for group in groups {
        let number = &mut numbers[*group as usize];
        if *number == u32::MAX {
            *number = count;
            count += 1;
        }
        *group = *number;
    }
    count as usize
}

/// The connected parts of groups, numbered.
fn connected(edges: &Adjacency, groups: &[u32]) -> Vec<u32> {
    let mut parts = vec![u32::MAX; groups.len()];
    let (mut count, mut open) = (0, Vec::new());
    for start in 0..groups.len() {
        if parts[start] != u32::MAX {
            continue;
        }
        parts[start] = count;
        open.push(start);
        while let Some(node) = open.pop() {
            for &end in edges.ends(node) {
                let end = end as usize;
                if parts[end] == u32::MAX && groups[end] == groups[node] {
                    parts[end] = count;
                    open.push(end);
                }
            }
        }
        count += 1;
    }
    parts
}
