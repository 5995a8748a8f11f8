//! Fusion of two ranked lists, by the ranks or by the scores in them.
//!
//! By ranks, each leg adds `weight / (60 + rank)` (Cormack, Clarke and Büttcher, "Reciprocal Rank Fusion outperforms Condorcet and individual Rank
//! Learning Methods", SIGIR 2009). By scores, the scores of each leg are first brought between 0 and 1, and how far one result is before the next one
//! counts (Bruch, Gai and Ingber, "An Analysis of Fusion Functions for Hybrid Retrieval", ACM TOIS 2023).
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
    /// How many results it was asked for.
    pub asked: usize,
    /// What it could not find, however well it fits: it is not in this leg's index. What the other leg gives it counts for this one too,
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

/// The best `limit` results by ranks: each leg adds `weight / (60 + rank)`. Equal scores are ordered by id.
pub fn fuse_by_rank(vector: LegRanking<'_>, bm25: LegRanking<'_>, weights: Weights, limit: usize) -> Vec<Fused> {
    let share = |weight: f64, place: Place| weight / (K + f64::from(place.rank));
    let vector = Counted { leg: vector, weight: weights.vector, share: &share };
    let bm25 = Counted { leg: bm25, weight: weights.bm25, share: &share };
    fuse(&vector, &bm25, 1.0, |_| 0, limit)
}

/// The best `limit` results by scores, each between 0 and 1. A leg gives its best result 1, and what it does not list 0. Where it lists as many results
/// as it was asked for, the last of them has 0 too, because what comes behind it scores hardly less. Where it lists fewer, it has nothing else, and 0 is
/// for a score of 0. The weights count as parts of their sum. Of equal scores, that with the better place in BM25 comes first, and then by id: the best of one leg and
/// the best of the other often tie, and while something is always nearest to a query, only what has a word of it is found by its letters.
pub fn fuse_by_score(vector: LegRanking<'_>, bm25: LegRanking<'_>, weights: Weights, limit: usize) -> Vec<Fused> {
    let (near, worded) = (Scale::of(vector), Scale::of(bm25));
    let by_meaning = |weight: f64, place: Place| weight * near.value(place.score);
    let by_letters = |weight: f64, place: Place| weight * worded.value(place.score);
    let vector = Counted { leg: vector, weight: weights.vector, share: &by_meaning };
    let bm25 = Counted { leg: bm25, weight: weights.bm25, share: &by_letters };
    fuse(&vector, &bm25, weights.vector + weights.bm25, by_bm25, limit)
}

/// The place of a result in BM25, behind all others where it has none.
fn by_bm25(fused: &Fused) -> u32 {
    fused.bm25.map_or(u32::MAX, |place| place.rank)
}

/// Where the scores of a leg begin and end.
#[derive(Clone, Copy)]
struct Scale {
    low: f64,
    high: f64,
}

impl Scale {
    fn of(leg: LegRanking<'_>) -> Scale {
        let score = |result: Option<&(i64, f64)>| result.map_or(0.0, |(_, score)| *score);
        let (high, last) = (score(leg.ranked.first()), score(leg.ranked.last()));
        let is_full = leg.ranked.len() >= leg.asked;
        Scale { low: if is_full { last } else { last.min(0.0) }, high }
    }

    /// Between 0 and 1 for each score of the leg; 1 if there is only one score.
    fn value(self, score: f64) -> f64 {
        if self.high > self.low { (score - self.low) / (self.high - self.low) } else { 1.0 }
    }
}

/// A leg, how much it counts, and what it adds to a result that has this place in it if it counts so much.
struct Counted<'a> {
    leg: LegRanking<'a>,
    weight: f64,
    share: &'a dyn Fn(f64, Place) -> f64,
}

/// The best `limit` results by what both legs add, as parts of `whole`. Of equal ones, that with the lower number in `ties` comes first, and then that with the lower id.
fn fuse(vector: &Counted<'_>, bm25: &Counted<'_>, whole: f64, ties: fn(&Fused) -> u32, limit: usize) -> Vec<Fused> {
    let mut fused: HashMap<i64, Fused> = HashMap::new();
    for (counted, is_vector) in [(vector, true), (bm25, false)] {
        for (at, (id, score)) in counted.leg.ranked.iter().enumerate() {
            let place = Place { rank: u32::try_from(at + 1).unwrap_or(u32::MAX), score: *score };
            let entry = fused.entry(*id).or_insert(Fused { id: *id, score: 0.0, vector: None, bm25: None });
            entry.score += (counted.share)(counted.weight, place);
            *(if is_vector { &mut entry.vector } else { &mut entry.bm25 }) = Some(place);
        }
    }
    // A leg with weight 0 finds nothing, and its places count nowhere.
    let (counts_near, counts_worded) = (vector.weight > 0.0, bm25.weight > 0.0);
    fused.retain(|_, result| result.vector.is_some() && counts_near || result.bm25.is_some() && counts_worded);
    for result in fused.values_mut() {
        result.score += match (result.vector, result.bm25) {
            (Some(place), None) if bm25.leg.cannot_hold.contains(&result.id) => (vector.share)(bm25.weight, place),
            (None, Some(place)) if vector.leg.cannot_hold.contains(&result.id) => (bm25.share)(vector.weight, place),
            _ => 0.0,
        };
        result.score /= whole;
    }
    let mut fused: Vec<Fused> = fused.into_values().collect();
    fused.sort_by(|a, b| b.score.total_cmp(&a.score).then((ties(a), a.id).cmp(&(ties(b), b.id))));
    fused.truncate(limit);
    fused
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{BTreeMap, BTreeSet};

    /// Fuses two legs that can hold everything by their ranks.
    fn fuse_whole(vector: &[(i64, f64)], bm25: &[(i64, f64)], weights: Weights, limit: usize) -> Vec<Fused> {
        let none = HashSet::new();
        let [vector, bm25] = [vector, bm25].map(|ranked| LegRanking { ranked, asked: 100, cannot_hold: &none });
        fuse_by_rank(vector, bm25, weights, limit)
    }

    /// Does the same by their scores, where each was asked for so many.
    fn fuse_scores(vector: &[(i64, f64)], bm25: &[(i64, f64)], weights: Weights, asked: usize) -> Vec<Fused> {
        let none = HashSet::new();
        let [vector, bm25] = [vector, bm25].map(|ranked| LegRanking { ranked, asked, cannot_hold: &none });
        fuse_by_score(vector, bm25, weights, usize::MAX)
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
        let vector = LegRanking { ranked: &near, asked: 10, cannot_hold: &lacks };
        let bm25 = LegRanking { ranked: &worded, asked: 10, cannot_hold: &HashSet::new() };
        for fuse in [fuse_by_rank, fuse_by_score] {
            let found = |vector_weight, bm25_weight| {
                let weights = Weights { vector: vector_weight, bm25: bm25_weight };
                fuse(vector, bm25, weights, 10).into_iter().map(|fused| fused.id).collect::<Vec<_>>()
            };
            assert_eq!((found(1.0, 0.0), found(0.0, 1.0)), (vec![1], vec![2]));
            assert_eq!(found(0.86, 0.14), [2, 1], "each is first where it can be");
        }
    }

    #[test]
    fn how_far_a_result_is_before_the_next_counts_by_scores_and_the_last_one_is_found_all_the_same() {
        let weights = Weights { vector: 1.0, bm25: 1.0 };
        let scores = |vector: &[(i64, f64)], bm25: &[(i64, f64)], asked: usize| -> Vec<(i64, f64)> {
            fuse_scores(vector, bm25, weights, asked).into_iter().map(|fused| (fused.id, fused.score)).collect()
        };
        let (near, worded) = ([(1, 0.75), (2, 0.5), (3, 0.25)], [(3, 16.0), (4, 4.0), (2, 2.0)]);
        // Neither leg has anything else, so a score of 0 is where each begins.
        assert_eq!(scores(&near, &worded, 4), [(3, 2.0 / 3.0), (1, 0.5), (2, (0.5 / 0.75 + 0.125) / 2.0), (4, 0.125)]);
        // There may be more behind three results, so what is last has as much as what is not listed.
        assert_eq!(scores(&near, &worded, 3), [(3, 0.5), (1, 0.5), (2, 0.25), (4, 1.0 / 14.0)]);
        assert_eq!(scores(&near, &[], 3), [(1, 0.5), (2, 0.25), (3, 0.0)], "the last one is a result");
        assert_eq!(scores(&[(2, 0.5), (1, 0.5)], &[], 2), [(1, 0.5), (2, 0.5)], "all are as good as the best");
        assert_eq!(scores(&[(1, -0.25), (2, -0.75)], &[], 9), [(1, 0.5), (2, 0.0)], "a cosine may be below 0");
        assert_eq!(scores(&[(1, 0.5)], &[(9, 4.0)], 9), [(9, 0.5), (1, 0.5)], "one of them has a word of the query");
        assert!(scores(&[], &[], 9).is_empty());
    }

    fn ranking() -> impl Strategy<Value = Vec<(i64, f64)>> {
        prop::collection::btree_set(0i64..40, 0..25)
            .prop_map(|ids| ids.into_iter().map(|id| (id * 7 % 41, 1.0)).collect())
    }

    /// A list with scores of which many are equal, the best first.
    fn scored() -> impl Strategy<Value = Vec<(i64, f64)>> {
        prop::collection::btree_map(0_i64..40, -8_i32..=24, 0..25)
            .prop_map(|scores| best_first(scores.into_iter().map(|(id, score)| (id, f64::from(score) / 8.0)).collect()))
    }

    fn best_first(mut scores: Vec<(i64, f64)>) -> Vec<(i64, f64)> {
        scores.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        scores
    }

    fn weights() -> impl Strategy<Value = Weights> {
        (0.01_f64..1000.0, 0.01_f64..1000.0).prop_map(|(vector, bm25)| Weights { vector, bm25 })
    }

    /// What a leg gives a document by the definition, if it lists it.
    fn naive_value(leg: &[(i64, f64)], asked: usize, id: i64) -> Option<f64> {
        let score = leg.iter().find(|(listed, _)| *listed == id)?.1;
        let scores = || leg.iter().map(|(_, score)| *score);
        let high = scores().fold(f64::NEG_INFINITY, f64::max);
        let least = scores().fold(f64::INFINITY, f64::min);
        let low = if leg.len() < asked { least.min(0.0) } else { least };
        Some(if high == low { 1.0 } else { (score - low) / (high - low) })
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
            let all = fuse_by_rank(
                LegRanking { ranked: &vector, asked: 100, cannot_hold: &no_vector },
                LegRanking { ranked: &bm25, asked: 100, cannot_hold: &not_indexed },
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

        #[test]
        fn fusion_by_scores_is_what_its_definition_says(
            vector in scored(),
            bm25 in scored(),
            no_vector in lacks(),
            not_indexed in lacks(),
            w in weights(),
            asked in 0_usize..30,
            limit in 0_usize..60,
        ) {
            let held = |listed: Vec<(i64, f64)>, lacks: &HashSet<i64>| -> Vec<(i64, f64)> {
                listed.into_iter().filter(|(id, _)| !lacks.contains(id)).collect()
            };
            let (vector, bm25) = (held(vector, &no_vector), held(bm25, &not_indexed));
            let near = LegRanking { ranked: &vector, asked, cannot_hold: &no_vector };
            let worded = LegRanking { ranked: &bm25, asked, cannot_hold: &not_indexed };
            let fused = fuse_by_score(near, worded, w, usize::MAX);
            let ids: BTreeSet<i64> = vector.iter().chain(&bm25).map(|(id, _)| *id).collect();
            prop_assert_eq!(fused.iter().map(|f| f.id).collect::<BTreeSet<_>>(), ids, "nothing is lost");
            for result in &fused {
                let by_meaning = naive_value(&vector, asked, result.id);
                let by_letters = naive_value(&bm25, asked, result.id);
                let meaning = by_meaning.or(by_letters.filter(|_| no_vector.contains(&result.id))).unwrap_or(0.0);
                let letters = by_letters.or(by_meaning.filter(|_| not_indexed.contains(&result.id))).unwrap_or(0.0);
                let expected = (w.vector * meaning + w.bm25 * letters) / (w.vector + w.bm25);
                prop_assert!((result.score - expected).abs() < 1e-9, "{} {:?}", expected, result);
                prop_assert!((0.0..=1.0).contains(&result.score), "{:?}", result);
            }
            let tied = |f: &Fused| (bm25.iter().position(|(id, _)| *id == f.id).unwrap_or(usize::MAX), f.id);
            let in_order = |a: &Fused, b: &Fused| a.score > b.score || a.score == b.score && tied(a) < tied(b);
            prop_assert!(fused.windows(2).all(|pair| in_order(&pair[0], &pair[1])));
            let first: Vec<Fused> = fused.iter().take(limit).cloned().collect();
            prop_assert_eq!(fuse_by_score(near, worded, w, limit), first);
            // The legs are alike but for ties.
            let turned = fuse_by_score(worded, near, Weights { vector: w.bm25, bm25: w.vector }, usize::MAX);
            let turned = turned.into_iter().map(|f| Fused { vector: f.bm25, bm25: f.vector, ..f });
            let by_id = |results: Vec<Fused>| results.into_iter().map(|f| (f.id, f)).collect::<BTreeMap<_, _>>();
            prop_assert_eq!(by_id(turned.collect()), by_id(fused));
        }

        #[test]
        fn a_better_score_never_hurts(
            vector in scored(),
            bm25 in scored(),
            w in weights(),
            asked in 0_usize..30,
            at in 0_usize..25,
            more in 1_i32..16,
        ) {
            prop_assume!(!vector.is_empty());
            let at = at % vector.len();
            let (mut better, id) = (vector.clone(), vector[at].0);
            better[at].1 += f64::from(more) / 8.0;
            let at = |fused: Vec<Fused>| fused.iter().position(|result| result.id == id).unwrap();
            let places = |leg: &[(i64, f64)]| {
                [at(fuse_scores(leg, &bm25, w, asked)), at(fuse_scores(&bm25, leg, w, asked))]
            };
            let (before, after) = (places(&vector), places(&best_first(better)));
            prop_assert!(after[0] <= before[0] && after[1] <= before[1], "{:?} {:?}", before, after);
        }
    }
}
