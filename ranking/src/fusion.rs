//! Rank fusion: each leg adds `weight / (60 + rank)`.
use std::collections::{HashMap, HashSet};

/// The constant of reciprocal rank fusion.
const K: f64 = 60.0;

/// How much each leg counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Weights {
    pub vector: f64,
    pub bm25: f64,
}

/// What one leg ranked.
#[derive(Clone, Copy, Debug)]
pub struct LegRanking<'a> {
    /// The best first.
    pub ranked: &'a [(i64, f64)],
    /// What it could not find, however well it fits: it is not in this leg's index. The rank that the other leg gives it counts for this one too,
    /// because to be away is not to be worse.
    pub cannot_hold: &'a HashSet<i64>,
}

/// The position of a result in one leg, and its score there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Place {
    /// Counted from 1.
    pub rank: u32,
    pub score: f64,
}

/// One fused result.
#[derive(Clone, Debug, PartialEq)]
pub struct Fused {
    pub id: i64,
    pub score: f64,
    pub vector: Option<Place>,
    pub bm25: Option<Place>,
}

/// The best `limit` results of two ranked lists; equal scores are ordered by id.
pub fn fuse(vector: LegRanking<'_>, bm25: LegRanking<'_>, weights: Weights, limit: usize) -> Vec<Fused> {
    let mut fused: HashMap<i64, Fused> = HashMap::new();
    for (leg, weight, is_vector) in [(vector, weights.vector, true), (bm25, weights.bm25, false)] {
        for (at, (id, score)) in leg.ranked.iter().enumerate() {
            let rank = u32::try_from(at + 1).unwrap_or(u32::MAX);
            let entry = fused.entry(*id).or_insert(Fused { id: *id, score: 0.0, vector: None, bm25: None });
            entry.score += share(weight, rank);
            let place = Some(Place { rank, score: *score });
            if is_vector { entry.vector = place } else { entry.bm25 = place }
        }
    }
    for result in fused.values_mut() {
        // A leg with weight 0 finds nothing, so its rank counts nowhere else.
        result.score += match (result.vector, result.bm25) {
            (Some(place), None) if weights.vector > 0.0 && bm25.cannot_hold.contains(&result.id) => {
                share(weights.bm25, place.rank)
            }
            (None, Some(place)) if weights.bm25 > 0.0 && vector.cannot_hold.contains(&result.id) => {
                share(weights.vector, place.rank)
            }
            _ => 0.0,
        };
    }
    // A document that only a leg with weight 0 found does not count as found.
    let mut fused: Vec<Fused> = fused.into_values().filter(|result| result.score > 0.0).collect();
    fused.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.id.cmp(&b.id)));
    fused.truncate(limit);
    fused
}

fn share(weight: f64, rank: u32) -> f64 {
    weight / (K + f64::from(rank))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// Fuses two legs that can hold everything.
    fn fuse_whole(vector: &[(i64, f64)], bm25: &[(i64, f64)], weights: Weights, limit: usize) -> Vec<Fused> {
        let none = HashSet::new();
        let [vector, bm25] = [vector, bm25].map(|ranked| LegRanking { ranked, cannot_hold: &none });
        fuse(vector, bm25, weights, limit)
    }

    #[test]
    fn a_result_adds_up_what_each_leg_gives_it() {
        let weights = Weights { vector: 0.86, bm25: 0.14 };
        let fused = fuse_whole(&[(1, 0.9), (2, 0.8)], &[(2, 7.0)], weights, 10);
        assert_eq!(fused[0].id, 2);
        assert!((fused[0].score - (0.86 / 62.0 + 0.14 / 61.0)).abs() < 1e-12);
        assert_eq!(fused[0].vector, Some(Place { rank: 2, score: 0.8 }));
        assert_eq!(fused[0].bm25, Some(Place { rank: 1, score: 7.0 }));
        assert_eq!(fused[1].bm25, None);
    }

    #[test]
    fn a_leg_without_weight_finds_nothing_for_another() {
        let (near, worded, lacks) = ([(1, 0.9)], [(2, 7.0)], HashSet::from([2]));
        let vector = LegRanking { ranked: &near, cannot_hold: &lacks };
        let bm25 = LegRanking { ranked: &worded, cannot_hold: &HashSet::new() };
        let found = |vector_weight, bm25_weight| {
            let weights = Weights { vector: vector_weight, bm25: bm25_weight };
            fuse(vector, bm25, weights, 10).into_iter().map(|fused| fused.id).collect::<Vec<_>>()
        };
        assert_eq!((found(1.0, 0.0), found(0.0, 1.0)), (vec![1], vec![2]));
        assert_eq!(found(0.86, 0.14), [2, 1], "each is first where it can be");
    }

    fn ranking() -> impl Strategy<Value = Vec<(i64, f64)>> {
        prop::collection::btree_set(0i64..40, 0..25)
            .prop_map(|ids| ids.into_iter().map(|id| (id * 7 % 41, 1.0)).collect())
    }

    fn lacks() -> impl Strategy<Value = HashSet<i64>> {
        prop::collection::hash_set(0i64..41, 0..20)
    }

    proptest! {
        #[test]
        fn what_a_leg_cannot_hold_is_as_good_in_it_as_in_the_other(
            vector in ranking(),
            bm25 in ranking(),
            no_vector in lacks(),
            not_indexed in lacks(),
        ) {
            let w = Weights { vector: 0.75, bm25: 0.25 };
            let held = |ranked: Vec<(i64, f64)>, lacks: &HashSet<i64>| -> Vec<(i64, f64)> {
                ranked.into_iter().filter(|(id, _)| !lacks.contains(id)).collect()
            };
            let (vector, bm25) = (held(vector, &no_vector), held(bm25, &not_indexed));
            let plain = fuse_whole(&vector, &bm25, w, usize::MAX);
            let all = fuse(
                LegRanking { ranked: &vector, cannot_hold: &no_vector },
                LegRanking { ranked: &bm25, cannot_hold: &not_indexed },
                w,
                usize::MAX,
            );
            let ids = |fused: &[Fused]| fused.iter().map(|f| f.id).collect::<BTreeSet<_>>();
            prop_assert_eq!(ids(&all), ids(&plain));
            let is_away = |f: &Fused| {
                f.vector.is_none() && no_vector.contains(&f.id) || f.bm25.is_none() && not_indexed.contains(&f.id)
            };
            for (at, result) in all.iter().enumerate() {
                let before = plain.iter().find(|f| f.id == result.id).unwrap();
                prop_assert_eq!((before.vector, before.bm25), (result.vector, result.bm25));
                if !is_away(result) {
                    prop_assert_eq!(before.score, result.score);
                    continue;
                }
                let rank = result.vector.or(result.bm25).unwrap().rank;
                prop_assert!((result.score - 1.0 / (K + f64::from(rank))).abs() < 1e-12);
                // Nothing is before it that both legs rank lower, and nothing behind it that both rank higher.
                let is_lower = |place: Option<Place>| place.is_some_and(|place| place.rank > rank);
                prop_assert!(!all[..at].iter().any(|f| is_lower(f.vector) && is_lower(f.bm25)));
                let is_higher = |place: Option<Place>| place.is_some_and(|place| place.rank < rank);
                prop_assert!(!all[at..].iter().any(|f| is_higher(f.vector) && is_higher(f.bm25)));
            }
        }

        #[test]
        fn a_better_rank_never_hurts_and_nothing_is_lost(vector in ranking(), bm25 in ranking(), at in 0usize..25) {
            let w = Weights { vector: 0.86, bm25: 0.14 };
            let all = fuse_whole(&vector, &bm25, w, usize::MAX);
            let ids: BTreeSet<i64> = vector.iter().chain(&bm25).map(|(id, _)| *id).collect();
            prop_assert_eq!(all.iter().map(|f| f.id).collect::<BTreeSet<_>>(), ids);
            prop_assert!(all.windows(2).all(|p| p[0].score >= p[1].score));
            prop_assert_eq!(fuse_whole(&vector, &bm25, w, 5), all.iter().take(5).cloned().collect::<Vec<_>>());
            if at >= 1 && at < vector.len() {
                let mut moved = vector.clone();
                moved.swap(at, at - 1);
                let place = |list: &[Fused], id| list.iter().position(|f| f.id == id);
                let id = vector[at].0;
                prop_assert!(place(&fuse_whole(&moved, &bm25, w, usize::MAX), id) <= place(&all, id));
            }
        }
    }
}
