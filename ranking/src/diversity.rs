//! A ranking in another order: newer results before older ones, and results that say something new before those that repeat.
use std::cmp::Ordering;

/// The constant of reciprocal rank fusion, by which a rank says how relevant a result is, whatever the scores of its method mean.
const K: f64 = 60.0;

/// How relevant a result at a rank is, counted from 0: 1 at the first, and less at each that follows.
pub fn relevance(rank: usize) -> f64 {
    (K + 1.0) / (K + 1.0 + rank as f64)
}

/// Orders results, the best first, by their relevance, which halves with each half-life of their age. Each place of the new order has the
/// place in the old one and the score, which is 1 for the first; equal ones keep their order.
pub fn by_recency(ages: &[f64]) -> Vec<(usize, f64)> {
    // Logarithms tell results apart whose relevance is too small for a number.
    let mut order: Vec<(usize, f64)> =
        ages.iter().enumerate().map(|(at, age)| (at, relevance(at).log2() - age)).collect();
    order.sort_by(|left, right| right.1.total_cmp(&left.1));
    let best = order.first().map_or(0.0, |(_, score)| *score);
    order.into_iter().map(|(at, score)| (at, (score - best).exp2())).collect()
}

/// Orders results by maximal marginal relevance (Carbonell and Goldstein, 1998): the next one is always that with the highest
/// `lambda * relevance - (1 - lambda) * similarity` to the most similar one before it. Each place of the new order has the place in the old one and
/// that score; of equal ones the more relevant comes first, and then that which came first.
pub fn by_diversity(relevance: &[f64], lambda: f64, similarity: impl Fn(usize, usize) -> f64) -> Vec<(usize, f64)> {
    let mut left: Vec<(usize, f64)> = (0..relevance.len()).map(|at| (at, 0.0)).collect();
    let mut order: Vec<(usize, f64)> = Vec::with_capacity(relevance.len());
    let marginal = |(at, nearest): (usize, f64)| lambda * relevance[at] - (1.0 - lambda) * nearest;
    let compare = |one: (usize, f64), other: (usize, f64)| {
        marginal(one).total_cmp(&marginal(other)).then(relevance[one.0].total_cmp(&relevance[other.0]))
    };
    while let Some(best) = (0..left.len()).reduce(|best, place| match compare(left[place], left[best]) {
        Ordering::Greater => place,
        Ordering::Less | Ordering::Equal => best,
    }) {
        // What is left stays in its order, in which equal ones are looked at.
        let chosen = left.remove(best);
        for (at, nearest) in &mut left {
            let similar = similarity(*at, chosen.0);
            *nearest = if order.is_empty() { similar } else { nearest.max(similar) };
        }
        order.push((chosen.0, marginal(chosen)));
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn places(order: &[(usize, f64)]) -> Vec<usize> {
        order.iter().map(|(at, _)| *at).collect()
    }

    #[test]
    fn one_half_life_weighs_as_much_as_sixty_one_places() {
        let ages = |last: f64| (0..62).map(|at| if at == 61 { last } else { 1.0 }).collect::<Vec<f64>>();
        assert_eq!(places(&by_recency(&ages(0.0)))[0], 0, "equal ones keep their order");
        assert_eq!(places(&by_recency(&ages(-0.001)))[0], 61);
        let ancient = by_recency(&[40_000.0, 30_000.0, 50_000.0, 0.0]);
        assert_eq!(places(&ancient), [3, 1, 0, 2], "age tells apart what is too old for a number");
        assert_eq!(ancient[0].1, 1.0);
    }

    #[test]
    fn what_repeats_a_result_comes_behind_what_does_not() {
        let twins = |a: usize, b: usize| if a / 2 == b / 2 { 1.0 } else { 0.0 };
        let relevant: Vec<f64> = (0..6).map(relevance).collect();
        assert_eq!(places(&by_diversity(&relevant, 0.5, twins)), [0, 2, 4, 1, 3, 5]);
        assert_eq!(places(&by_diversity(&relevant, 1.0, twins)), [0, 1, 2, 3, 4, 5]);
        assert_eq!(places(&by_diversity(&[], 0.5, twins)), [0; 0]);
    }

    /// Vectors of length 1.
    fn points() -> impl Strategy<Value = Vec<f64>> {
        prop::collection::vec(0.0_f64..std::f64::consts::TAU, 0..40)
    }

    proptest! {
        #[test]
        fn without_ages_and_with_lambda_one_the_order_is_the_plain_one(angles in points(), age in 0.0_f64..100.0) {
            let plain: Vec<usize> = (0..angles.len()).collect();
            let cosine = |a: usize, b: usize| (angles[a] - angles[b]).cos();
            let recent = by_recency(&vec![age; angles.len()]);
            prop_assert_eq!(places(&recent), &plain[..]);
            let relevant: Vec<f64> = recent.iter().map(|(_, score)| *score).collect();
            prop_assert_eq!(places(&by_diversity(&relevant, 1.0, cosine)), plain);
        }

        #[test]
        fn every_order_has_each_result_once_and_each_prefix_does_not_depend_on_what_is_chosen_later(
            angles in points(), lambda in 0.0_f64..=1.0,
        ) {
            let relevant: Vec<f64> = (0..angles.len()).map(relevance).collect();
            let cosine = |a: usize, b: usize| (angles[a] - angles[b]).cos();
            let order = by_diversity(&relevant, lambda, cosine);
            let mut sorted = places(&order);
            sorted.sort_unstable();
            prop_assert_eq!(sorted, (0..angles.len()).collect::<Vec<_>>());
            // The definition, from the beginning at each step.
            for step in 0..order.len() {
                let chosen = places(&order[..step]);
                let score = |at: usize| {
                    let nearest = chosen.iter().map(|before| cosine(at, *before)).reduce(f64::max).unwrap_or(0.0);
                    lambda * relevant[at] - (1.0 - lambda) * nearest
                };
                let best = (0..angles.len()).filter(|at| !chosen.contains(at)).map(score).fold(f64::MIN, f64::max);
                prop_assert!((order[step].1 - best).abs() < 1e-12 && (score(order[step].0) - best).abs() < 1e-12);
            }
        }

        #[test]
        fn of_two_results_the_newer_one_gains(ages in prop::collection::vec(0.0_f64..50.0, 1..40), place in 0_usize..40) {
            let place = place % ages.len();
            let at = |ages: &[f64]| places(&by_recency(ages)).iter().position(|at| *at == place);
            let mut newer = ages.clone();
            newer[place] /= 2.0;
            prop_assert!(at(&newer) <= at(&ages));
        }
    }
}
