//! Overlapping clusters of vectors, after RAPTOR (Sarthi et al., ICLR 2024, arXiv 2401.18059): a Gaussian mixture over
//! all of them, then one within each of its components, and a point belongs to every component that holds enough of it.
//! docs/raptor.md says where this differs from the paper.
use crate::{
    mixture::Mixture,
    points::{Points, principal_components},
};
use std::collections::{BTreeMap, BTreeSet};

/// How to make clusters.
#[derive(Clone, Copy, Debug)]
pub struct Clustering {
    /// The same seed makes the same clusters.
    pub seed: u64,
    /// The number of dimensions in which the mixtures are fitted.
    pub dimensions: usize,
    /// A point belongs to each component that holds at least this share of it, from 0 to 1.
    pub threshold: f64,
    /// The most components of one mixture.
    pub components: usize,
    /// The most that the sizes of a cluster's members may add up to. A cluster over it is divided again; only a single
    /// member may be larger.
    pub most_size: u64,
}

/// A point in a cluster, and how much of it belongs there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Member {
    pub point: usize,
    pub share: f64,
}

impl Clustering {
    /// The clusters of points with these sizes, each by its members in their order, in the order of their first members.
    /// Every point is in one cluster at least. `None` if `stop` said so.
    pub fn clusters(&self, points: &Points, sizes: &[u64], stop: &dyn Fn() -> bool) -> Option<Vec<Vec<Member>>> {
        let all: Vec<Member> = (0..points.len()).map(|point| Member { point, share: 1.0 }).collect();
        let mut clusters = Vec::new();
        if points.len() <= self.dimensions + 1 {
            // These are too few for a mixture.
            self.divide(points, sizes, all, 1, &mut clusters, stop)?;
        } else {
            for (number, part) in self.parts(points, &all, 0, stop)?.into_iter().enumerate() {
                let stream = (number as u64 + 1) << 20;
                for (local, cluster) in self.parts(points, &part, stream, stop)?.into_iter().enumerate() {
                    self.divide(points, sizes, cluster, stream + 1 + local as u64, &mut clusters, stop)?;
                }
            }
        }
        let mut seen = BTreeSet::new();
        clusters.retain(|cluster: &Vec<Member>| seen.insert(cluster.iter().map(|m| m.point).collect::<Vec<_>>()));
        clusters.sort_by_key(|cluster| cluster.iter().map(|member| member.point).collect::<Vec<_>>());
        Some(clusters)
    }

    /// The components of a mixture over the members, which overlap.
    fn parts(
        &self,
        points: &Points,
        members: &[Member],
        stream: u64,
        stop: &dyn Fn() -> bool,
    ) -> Option<Vec<Vec<Member>>> {
        if members.len() <= self.dimensions + 1 {
            return Some(vec![members.to_vec()]);
        }
        let rows: Vec<usize> = members.iter().map(|member| member.point).collect();
        let seed = self.seed ^ stream.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let reduced = principal_components(&points.select(&rows), self.dimensions, seed, stop)?;
        let mixture = Mixture::select(&reduced, self.components, seed, stop)?;
        let mut parts = vec![Vec::new(); mixture.components()];
        for (row, member) in reduced.rows().zip(members) {
            let shares = mixture.responsibilities(row);
            let most = shares.iter().copied().fold(0.0, f64::max);
            for (part, share) in parts.iter_mut().zip(shares).filter(|(_, share)| *share >= self.threshold.min(most)) {
                part.push(Member { point: member.point, share: member.share * share });
            }
        }
        parts.retain(|part| !part.is_empty());
        Some(parts)
    }

    /// Divides a cluster until each part is small enough: by a mixture, and where that finds no parts, in halves along the
    /// direction in which the members differ most.
    fn divide(
        &self,
        points: &Points,
        sizes: &[u64],
        cluster: Vec<Member>,
        stream: u64,
        out: &mut Vec<Vec<Member>>,
        stop: &dyn Fn() -> bool,
    ) -> Option<()> {
        let mut open = vec![(cluster, stream)];
        while let Some((cluster, stream)) = open.pop() {
            if stop() {
                return None;
            }
            let size = cluster.iter().map(|member| sizes.get(member.point).copied().unwrap_or(0)).sum::<u64>();
            if cluster.len() < 2 || size <= self.most_size {
                out.push(cluster);
                continue;
            }
            let next = stream.wrapping_mul(31).wrapping_add(7);
            let mut parts = self.parts(points, &cluster, next, stop)?;
            alone(&mut parts);
            // A part must be much smaller than the whole, so that this ends soon.
            if parts.len() < 2 || parts.iter().any(|part| part.len() * 4 > cluster.len() * 3) {
                parts = halves(points, &cluster, self.seed ^ next, stop)?;
            }
            open.extend(parts.into_iter().zip((next..).step_by(3)));
        }
        Some(())
    }
}

/// Leaves each point only in the part that holds most of it, because parts that overlap may together be much more than the
/// whole.
fn alone(parts: &mut Vec<Vec<Member>>) {
    let mut best: BTreeMap<usize, (f64, usize)> = BTreeMap::new();
    for (part, members) in parts.iter().enumerate() {
        for member in members {
            let entry = best.entry(member.point).or_insert((member.share, part));
            if member.share > entry.0 {
                *entry = (member.share, part);
            }
        }
    }
    for (part, members) in parts.iter_mut().enumerate() {
        members.retain(|member| best.get(&member.point).is_some_and(|(_, of)| *of == part));
    }
    parts.retain(|part| !part.is_empty());
}

fn halves(points: &Points, cluster: &[Member], seed: u64, stop: &dyn Fn() -> bool) -> Option<Vec<Vec<Member>>> {
    let rows: Vec<usize> = cluster.iter().map(|member| member.point).collect();
    let line = principal_components(&points.select(&rows), 1, seed, stop)?;
    let mut order: Vec<usize> = (0..cluster.len()).collect();
    order.sort_by(|a, b| line.row(*a)[0].total_cmp(&line.row(*b)[0]).then(a.cmp(b)));
    let (low, high) = order.split_at(order.len() / 2);
    let part = |half: &[usize]| {
        let mut part: Vec<Member> = half.iter().map(|at| cluster[*at]).collect();
        part.sort_by_key(|member| member.point);
        part
    };
    Some(vec![part(low), part(high)])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;
    use proptest::prelude::*;

    const CLUSTERING: Clustering =
        Clustering { seed: 1, dimensions: 10, threshold: 0.1, components: 50, most_size: 3_500 };

    /// Unit vectors around some directions; point `n` belongs to the topic `n % topics`.
    fn topics(topics: usize, points: usize, seed: u64) -> Points {
        let mut random = Random::new(seed);
        let mut vector = |scale: f64| -> Vec<f64> { (0..64).map(|_| scale * (random.unit() - 0.5)).collect() };
        let centres: Vec<Vec<f64>> = (0..topics).map(|_| vector(1.0)).collect();
        let mut all = Points::new(64);
        for n in 0..points {
            let noise = vector(0.3);
            let row: Vec<f64> = centres[n % topics].iter().zip(noise).map(|(x, y)| x + y).collect();
            let length = row.iter().map(|x| x * x).sum::<f64>().sqrt();
            all.push(&row.iter().map(|x| (x / length) as f32).collect::<Vec<_>>());
        }
        all
    }

    fn never() -> bool {
        false
    }

    #[test]
    fn points_of_one_topic_are_together_and_others_are_not() {
        let points = topics(6, 240, 3);
        let clusters = CLUSTERING.clusters(&points, &[10; 240], &never).expect("nobody stops it");
        for cluster in &clusters {
            let topics: BTreeSet<usize> = cluster.iter().map(|member| member.point % 6).collect();
            assert_eq!(topics.len(), 1, "{cluster:?}");
        }
        assert!((6..=40).contains(&clusters.len()), "{}", clusters.len());
    }

    #[test]
    fn a_seed_decides_everything_and_a_stop_ends_it() {
        let points = topics(9, 300, 4);
        let of = |seed| Clustering { seed, ..CLUSTERING }.clusters(&points, &[100; 300], &never);
        assert_eq!(of(5), of(5));
        assert_eq!(CLUSTERING.clusters(&points, &[100; 300], &|| true), None);
    }

    #[test]
    fn a_point_between_two_topics_is_in_both() {
        let (mut points, mut random) = (Points::new(2), Random::new(1));
        for n in 0..200 {
            let mut near = || (random.unit() + random.unit() + random.unit() - 1.5) as f32;
            points.push(&[if n % 2 == 0 { -1.5 } else { 1.5 } + near(), near()]);
        }
        points.push(&[0.0, 0.0]);
        let clustering = Clustering { dimensions: 2, threshold: 0.02, ..CLUSTERING };
        let parts = clustering
            .parts(&points, &(0..201).map(|point| Member { point, share: 1.0 }).collect::<Vec<_>>(), 0, &never)
            .expect("nobody stops it");
        let of: Vec<&Member> = parts.iter().flatten().filter(|member| member.point == 200).collect();
        assert_eq!(of.len(), 2, "{of:?}");
        assert!((of.iter().map(|member| member.share).sum::<f64>() - 1.0).abs() < 1e-6);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(40))]
        #[test]
        fn every_point_is_in_a_cluster_that_is_no_larger_than_allowed(
            n in 0usize..120, topics_of in 1usize..9, seed in 0u64..500, most_size in 1u64..400, equal in any::<bool>(),
        ) {
            let points = match equal {
                // Points that nothing tells apart must be divided too.
                true => topics(1, 1, seed).select(&vec![0; n]),
                false => topics(topics_of, n, seed),
            };
            let sizes: Vec<u64> = (0..n as u64).map(|at| at % 97).collect();
            let clustering = Clustering { seed, most_size, ..CLUSTERING };
            let clusters = clustering.clusters(&points, &sizes, &never).expect("nobody stops it");
            let seen: BTreeSet<usize> = clusters.iter().flatten().map(|member| member.point).collect();
            prop_assert_eq!(seen.len(), n);
            for cluster in &clusters {
                let size: u64 = cluster.iter().map(|member| sizes[member.point]).sum();
                prop_assert!(cluster.len() == 1 || size <= most_size, "{} in {:?}", size, cluster);
                prop_assert!(cluster.is_sorted_by(|a, b| a.point < b.point), "{:?}", cluster);
                prop_assert!(cluster.iter().all(|member| member.share > 0.0 && member.share <= 1.0 + 1e-9));
            }
        }
    }
}
