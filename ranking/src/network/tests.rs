use super::{Betweenness, Communities, DAMPING, Forest, Network, PageRank};
use crate::random::Random;
use proptest::prelude::*;
use std::cell::Cell;

const GO_ON: super::Stop<'static> = &|| false;

fn network() -> impl Strategy<Value = (usize, Vec<(u32, u32)>)> {
    (1_usize..14).prop_flat_map(|nodes| {
        let node = 0..nodes as u32;
        (Just(nodes), prop::collection::vec((node.clone(), node), 0..40))
    })
}

/// The weight of the edges from one node to another, as the definition counts it.
fn weight(edges: &[(u32, u32)], from: usize, to: usize) -> f64 {
    edges.iter().filter(|edge| from != to && **edge == (from as u32, to as u32)).count() as f64
}

/// Solves what PageRank is defined by, without sharing anything with it.
fn ranks(nodes: usize, edges: &[(u32, u32)]) -> Vec<f64> {
    let mut scores = vec![1.0 / nodes as f64; nodes];
    for _ in 0..400 {
        scores = (0..nodes)
            .map(|to| {
                let arriving: f64 = (0..nodes)
                    .map(|from| {
                        let all: f64 = (0..nodes).map(|end| weight(edges, from, end)).sum();
                        let share = if all > 0.0 { weight(edges, from, to) / all } else { 1.0 / nodes as f64 };
                        scores[from] * share
                    })
                    .sum();
                (1.0 - DAMPING) / nodes as f64 + DAMPING * arriving
            })
            .collect();
    }
    scores
}

/// How far all nodes are from one, and by how many paths, level by level.
fn paths(nodes: usize, edges: &[(u32, u32)], from: usize) -> Vec<Option<(usize, f64)>> {
    let near = |a: usize, b: usize| weight(edges, a, b) + weight(edges, b, a) > 0.0;
    let mut found = vec![None; nodes];
    found[from] = Some((0, 1.0));
    for level in 0..nodes {
        let at: Vec<usize> = (0..nodes).filter(|n| found[*n].is_some_and(|(depth, _)| depth == level)).collect();
        for next in (0..nodes).filter(|next| found[*next].is_none()).collect::<Vec<_>>() {
            let count: f64 = at.iter().filter(|n| near(**n, next)).map(|n| found[*n].unwrap().1).sum();
            if count > 0.0 {
                found[next] = Some((level + 1, count));
            }
        }
    }
    found
}

/// The trees of random parents, and whether one node is at or below another.
fn parents(seed: u64, nodes: usize) -> Vec<Option<u32>> {
    let mut random = Random::new(seed);
    (0..nodes).map(|node| (node > 0 && random.below(5) > 0).then(|| random.below(node) as u32)).collect()
}

fn is_under(parents: &[Option<u32>], node: usize, root: usize) -> bool {
    std::iter::successors(Some(node as u32), |node| parents[*node as usize]).any(|node| node as usize == root)
}

proptest! {
    #[test]
    fn page_rank_solves_its_definition((nodes, edges) in network()) {
        let found = PageRank::new(&Network::new(nodes, edges.clone()), GO_ON).unwrap();
        for (score, expected) in found.scores.iter().zip(ranks(nodes, &edges)) {
            prop_assert!((score - expected).abs() < 1e-8, "{score} {expected}");
        }
        prop_assert!((found.scores.iter().sum::<f64>() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn betweenness_is_the_share_of_shortest_paths((nodes, edges) in network()) {
        let network = Network::new(nodes, edges.clone());
        let found = Betweenness::new(&network, 1, GO_ON, GO_ON).unwrap();
        let all: Vec<_> = (0..nodes).map(|from| paths(nodes, &edges, from)).collect();
        let connected = (0..nodes).filter(|node| !network.is_alone(*node)).count() as f64;
        for (node, score) in found.scores.iter().enumerate() {
            let mut sum = 0.0;
            for from in (0..nodes).filter(|from| *from != node) {
                for to in (0..nodes).filter(|to| *to != node && *to != from) {
                    let (Some((whole, ways)), Some((to_it, one)), Some((from_it, other))) = (all[from][to], all[from][node], all[node][to]) else { continue };
                    sum += if to_it + from_it == whole { one * other / ways } else { 0.0 };
                }
            }
            let expected = sum / ((connected - 1.0) * (connected - 2.0)).max(1.0);
            prop_assert!((score - expected).abs() < 1e-9, "{node}: {score} {expected}");
        }
        prop_assert!(found.errors.is_none());
    }

    #[test]
    fn communities_hold_every_node_with_edges_once_and_are_connected((nodes, edges) in network(), resolution in 0.2..3.0) {
        let network = Network::new(nodes, edges);
        let found = Communities::new(&network, resolution, GO_ON).unwrap();
        let mut all: Vec<u32> = found.members.concat();
        all.sort_unstable();
        prop_assert_eq!(all, (0..nodes as u32).filter(|node| !network.is_alone(*node as usize)).collect::<Vec<_>>());
        let edges = network.undirected();
        for members in &found.members {
            let (mut reached, mut open) = (vec![members[0]], vec![members[0]]);
            while let Some(node) = open.pop() {
                for end in edges.ends(node as usize) {
                    if members.contains(end) && !reached.contains(end) {
                        reached.push(*end);
                        open.push(*end);
                    }
                }
            }
            prop_assert_eq!(reached.len(), members.len(), "{:?}", members);
        }
        // No community gains by taking in another.
        let strength = |members: &[u32]| members.iter().map(|node| edges.weight(*node as usize)).sum::<f64>();
        let total: f64 = (0..nodes).map(|node| edges.weight(node)).sum();
        for (at, one) in found.members.iter().enumerate() {
            for other in &found.members[at + 1..] {
                let between: f64 = one.iter().flat_map(|node| edges.of(*node as usize)).filter(|(end, _)| other.contains(&(*end as u32))).map(|(_, weight)| weight).sum();
                prop_assert!(between <= resolution * strength(one) * strength(other) / total + 1e-9, "{:?} {:?}", one, other);
            }
        }
    }

    #[test]
    fn a_tree_is_worth_what_flows_into_it((nodes, edges) in network(), seed: u64) {
        let network = Network::new(nodes, edges.clone());
        let ranks = PageRank::new(&network, GO_ON).unwrap();
        let parents = parents(seed, nodes);
        let forest = Forest::new(parents.clone());
        let (sums, inflow) = (forest.sums(&ranks.scores), forest.inflow(&network, &ranks));
        for root in 0..nodes {
            let under = |node: usize| is_under(&parents, node, root);
            let sum: f64 = (0..nodes).filter(|node| under(*node)).map(|node| ranks.scores[node]).sum();
            let mut flow = 0.0;
            for from in (0..nodes).filter(|from| !under(*from)) {
                let all: f64 = (0..nodes).map(|end| weight(&edges, from, end)).sum();
                let inside: f64 = (0..nodes).filter(|to| under(*to)).map(|to| weight(&edges, from, to)).sum();
                flow += if inside > 0.0 { DAMPING * ranks.scores[from] * inside / all } else { 0.0 };
            }
            prop_assert!((sums[root] - sum).abs() < 1e-12 && (inflow[root] - flow).abs() < 1e-12, "{root}");
        }
    }

    #[test]
    fn each_node_below_a_root_is_on_one_spine((nodes, edges) in network(), seed: u64) {
        let ranks = PageRank::new(&Network::new(nodes, edges), GO_ON).unwrap();
        let parents = parents(seed, nodes);
        let forest = Forest::new(parents.clone());
        let sums = forest.sums(&ranks.scores);
        let spines = forest.spines(0, &ranks.scores, &vec![0; nodes]);
        let mut all: Vec<u32> = spines.iter().flat_map(|spine| spine.nodes.clone()).collect();
        all.sort_unstable();
        prop_assert_eq!(all, (0..nodes as u32).filter(|node| is_under(&parents, *node as usize, 0)).collect::<Vec<_>>());
        prop_assert!(spines.is_sorted_by(|a, b| a.weight >= b.weight));
        for spine in &spines {
            for pair in spine.nodes.windows(2) {
                let siblings = (0..nodes).filter(|node| parents[*node] == Some(pair[0]));
                prop_assert!(siblings.into_iter().all(|sibling| sums[sibling] <= sums[pair[1] as usize]));
            }
            let last = *spine.nodes.last().unwrap();
            prop_assert!(!parents.contains(&Some(last)));
        }
    }
}

/// Groups of `size` nodes, with `inside` edges a node to others of its group and `outside` edges to any.
fn planted(groups: usize, size: usize, inside: usize, outside: usize) -> (usize, Vec<(u32, u32)>) {
    let (nodes, mut random) = (groups * size, Random::new(7));
    let mut edges = Vec::new();
    for node in 0..nodes {
        let group = node / size * size;
        edges.extend((0..inside).map(|_| (node as u32, (group + random.below(size)) as u32)));
        edges.extend((0..outside).map(|_| (node as u32, random.below(nodes) as u32)));
    }
    (nodes, edges)
}

#[test]
fn planted_groups_are_found_alike_in_every_run() {
    let (nodes, edges) = planted(40, 50, 6, 3);
    let network = Network::new(nodes, edges);
    let found = Communities::new(&network, 1.0, GO_ON).unwrap();
    assert_eq!(found.members.len(), 40);
    let at_home: usize = found
        .members
        .iter()
        .map(|members| (0..40).map(|group| members.iter().filter(|node| **node / 50 == group).count()).max().unwrap())
        .sum();
    assert!(at_home * 100 >= nodes * 98, "{at_home}");
    let again = Communities::new(&network, 1.0, GO_ON).unwrap();
    assert_eq!((found.members, found.modularity.to_bits()), (again.members, again.modularity.to_bits()));
    let none = Communities::new(&Network::new(5, Vec::new()), 1.0, GO_ON).unwrap();
    assert!(none.members.is_empty() && none.modularity == 0.0);
}

#[test]
fn estimates_are_as_near_as_they_say() {
    let (nodes, edges) = planted(60, 50, 6, 3);
    let network = Network::new(nodes, edges);
    let exact = Betweenness::new(&network, nodes, GO_ON, GO_ON).unwrap();
    let found = Betweenness::new(&network, 256, GO_ON, GO_ON).unwrap();
    assert_eq!((found.pivots, exact.pivots, exact.errors), (256, nodes, None));
    let errors = found.errors.unwrap();
    // Of nodes with few paths, which most pivots say nothing of, the error is a rough one.
    let mut top: Vec<usize> = (0..nodes).collect();
    top.sort_by(|a, b| exact.scores[*b].total_cmp(&exact.scores[*a]));
    let within = |times: f64| {
        let is_within = |node: &&usize| (found.scores[**node] - exact.scores[**node]).abs() <= times * errors[**node];
        top[..300].iter().filter(is_within).count()
    };
    assert!(within(2.0) >= 250 && (150..=240).contains(&within(1.0)), "{} {}", within(1.0), within(2.0));
}

/// The members of a karate club whom each met outside of it, of two the one with the smaller number first (Zachary, 1977).
const CLUB: [&[u32]; 33] = [
    &[1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 17, 19, 21, 31],
    &[2, 3, 7, 13, 17, 19, 21, 30],
    &[3, 7, 8, 9, 13, 27, 28, 32],
    &[7, 12, 13],
    &[6, 10],
    &[6, 10, 16],
    &[16],
    &[],
    &[30, 32, 33],
    &[33],
    &[],
    &[],
    &[],
    &[33],
    &[32, 33],
    &[32, 33],
    &[],
    &[],
    &[32, 33],
    &[33],
    &[32, 33],
    &[],
    &[32, 33],
    &[25, 27, 29, 32, 33],
    &[25, 27, 31],
    &[31],
    &[29, 33],
    &[33],
    &[31, 33],
    &[32, 33],
    &[32, 33],
    &[32, 33],
    &[33],
];
/// What networkx 3.6.1 says of them in billionths: PageRank along the edges as they stand there, and betweenness along them in either direction.
const RANKS: [u32; 34] = [
    15060495, 15860584, 17545771, 19410009, 15860584, 15860584, 27095164, 24909511, 17724822, 16924733, 27095164,
    15860584, 21360086, 24909511, 15060495, 15060495, 42585216, 17545771, 15060495, 17545771, 15060495, 17545771,
    15060495, 15060495, 15060495, 21887919, 15060495, 23752157, 16924733, 24021489, 21767715, 45925466, 95489336,
    259047101,
];
const BETWEEN: [u32; 34] = [
    437635281, 53936688, 143656806, 11909271, 631313, 29987374, 29987374, 0, 55926828, 847763, 631313, 0, 0, 45863396,
    0, 0, 0, 0, 0, 32475048, 0, 0, 0, 17613636, 2209596, 3840488, 0, 22333454, 1794733, 2922078, 14411977, 138275613,
    145247114, 304074976,
];
/// The modularity of the groups that leidenalg 0.12.0 finds.
const MODULARITY: f64 = 0.419_789_6;

#[test]
fn a_known_network_is_ranked_and_grouped_as_others_do() {
    let edges = CLUB.iter().zip(0..).flat_map(|(ends, from)| ends.iter().map(move |to| (from, *to)));
    let network = Network::new(34, edges.collect());
    assert_eq!(network.edges(), 78);
    let ranks = PageRank::new(&network, GO_ON).unwrap().scores;
    let between = Betweenness::new(&network, 34, GO_ON, GO_ON).unwrap().scores;
    for (found, theirs) in [(ranks, RANKS), (between, BETWEEN)] {
        for (node, (score, theirs)) in found.iter().zip(theirs).enumerate() {
            assert!((score - f64::from(theirs) / 1e9).abs() < 1e-6, "{node}: {score} {theirs}");
        }
    }
    let found = Communities::new(&network, 1.0, GO_ON).unwrap();
    assert!(found.modularity >= MODULARITY - 0.01, "{}", found.modularity);
}

#[test]
fn more_paths_than_a_number_holds_are_no_trouble() {
    // From each corner to the next two ways: 2^2000 ways in all, and each corner but the last ones is on all of them.
    let edges = (0..2_000).flat_map(|at| {
        [(3 * at, 3 * at + 1), (3 * at, 3 * at + 2), (3 * at + 1, 3 * at + 3), (3 * at + 2, 3 * at + 3)]
    });
    let network = Network::new(6_001, edges.collect());
    let found = Betweenness::new(&network, 6_001, GO_ON, GO_ON).unwrap();
    let all = 6_000.0_f64;
    // The middle corner is between every node before it and every node behind it, and on one of two ways between its neighbours.
    let expected = (2.0 * 3_000.0 * 3_000.0 + 2.0) / (all * (all - 1.0));
    assert!((found.scores[3_000] - expected).abs() < 1e-9, "{} {expected}", found.scores[3_000]);
    assert!(found.scores.iter().all(|score| score.is_finite()));
}

#[test]
fn whoever_is_told_to_stop_stops() {
    let (nodes, edges) = planted(100, 50, 3, 1);
    let network = Network::new(nodes, edges);
    let asked = Cell::new(0);
    let stop = || {
        asked.set(asked.get() + 1);
        asked.get() > 3
    };
    assert!(PageRank::new(&network, &stop).is_none());
    asked.set(0);
    assert!(Betweenness::new(&network, 5_000, &stop, GO_ON).is_none());
    asked.set(3);
    assert!(Communities::new(&Network::new(30_000, planted(600, 50, 3, 1).1), 1.0, &stop).is_none());
    // What is late ends with what it has.
    let found = Betweenness::new(&network, 1_000, GO_ON, &|| true).unwrap();
    assert_eq!(found.pivots, 2);
}

#[test]
fn parents_in_a_circle_end() {
    let forest = Forest::new(vec![Some(1), Some(0), Some(1), None]);
    let sums = forest.sums(&[1.0, 2.0, 4.0, 8.0]);
    assert_eq!(sums, [7.0, 6.0, 4.0, 8.0]);
}
