//! Rank fusion: each leg adds `weight / (60 + rank)`.
use std::collections::HashMap;

/// The constant of reciprocal rank fusion.
const K: f64 = 60.0;

/// How much each leg counts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Weights {
    pub vector: f64,
    pub bm25: f64,
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
pub fn fuse(vector: &[(i64, f64)], bm25: &[(i64, f64)], weights: Weights, limit: usize) -> Vec<Fused> {
    let mut fused: HashMap<i64, Fused> = HashMap::new();
    for (leg, weight, is_vector) in [(vector, weights.vector, true), (bm25, weights.bm25, false)] {
        for (at, (id, score)) in leg.iter().enumerate() {
            let rank = u32::try_from(at + 1).unwrap_or(u32::MAX);
            let entry = fused.entry(*id).or_insert(Fused { id: *id, score: 0.0, vector: None, bm25: None });
            entry.score += weight / (K + f64::from(rank));
            let place = Some(Place { rank, score: *score });
            if is_vector { entry.vector = place } else { entry.bm25 = place }
        }
    }
    // A document that only a leg with weight 0 found does not count as found.
    let mut fused: Vec<Fused> = fused.into_values().filter(|result| result.score > 0.0).collect();
    fused.sort_by(|a, b| b.score.total_cmp(&a.score).then(a.id.cmp(&b.id)));
    fused.truncate(limit);
    fused
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_result_adds_up_what_each_leg_gives_it() {
        let weights = Weights { vector: 0.86, bm25: 0.14 };
        let fused = fuse(&[(1, 0.9), (2, 0.8)], &[(2, 7.0)], weights, 10);
        assert_eq!(fused[0].id, 2);
        assert!((fused[0].score - (0.86 / 62.0 + 0.14 / 61.0)).abs() < 1e-12);
        assert_eq!(fused[0].vector, Some(Place { rank: 2, score: 0.8 }));
        assert_eq!(fused[0].bm25, Some(Place { rank: 1, score: 7.0 }));
        assert_eq!(fused[1].bm25, None);
    }

    fn ranking() -> impl Strategy<Value = Vec<(i64, f64)>> {
        prop::collection::btree_set(0i64..40, 0..25)
            .prop_map(|ids| ids.into_iter().map(|id| (id * 7 % 41, 1.0)).collect())
    }

    proptest! {
        #[test]
        fn a_better_rank_never_hurts_and_nothing_is_lost(vector in ranking(), bm25 in ranking(), at in 0usize..25) {
            let w = Weights { vector: 0.86, bm25: 0.14 };
            let all = fuse(&vector, &bm25, w, usize::MAX);
            let ids: std::collections::BTreeSet<i64> = vector.iter().chain(&bm25).map(|(id, _)| *id).collect();
            prop_assert_eq!(all.iter().map(|f| f.id).collect::<std::collections::BTreeSet<_>>(), ids);
            prop_assert!(all.windows(2).all(|p| p[0].score >= p[1].score));
            prop_assert_eq!(fuse(&vector, &bm25, w, 5), all.iter().take(5).cloned().collect::<Vec<_>>());
            if at >= 1 && at < vector.len() {
                let mut moved = vector.clone();
                moved.swap(at, at - 1);
                let place = |list: &[Fused], id| list.iter().position(|f| f.id == id);
                let id = vector[at].0;
                prop_assert!(place(&fuse(&moved, &bm25, w, usize::MAX), id) <= place(&all, id));
            }
        }
    }
}
