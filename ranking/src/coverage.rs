//! The subset of some texts that covers all of them best within a budget: facility location, a monotone submodular
//! function, maximised by lazy greedy choice. docs/raptor.md names the sources.
//!
//! The value of a choice is the weighted mean, over everything that is to be covered, of its similarity to the nearest
//! text chosen. Each choice is the best of three: by gain for each unit of cost, by gain alone, and after the single best
//! text. The better of the first and the best single text is worth at least 0.405 of the optimum (Tang et al., 2021).
use std::{cmp::Ordering, collections::BinaryHeap};

/// What any choice is worth at least, as a share of the best possible.
pub const GUARANTEE: f64 = 0.405;

/// The similarity 1 in fixed point.
const ONE: f32 = 65_535.0;

/// How well each candidate covers each thing.
#[derive(Clone, Debug)]
pub struct Coverage {
    /// Row by row, one for each candidate, in fixed point.
    similarity: Vec<u16>,
    /// Adds up to 1.
    weights: Vec<f64>,
    candidates: usize,
}

impl Coverage {
    /// `similarity` of a candidate (first) to a thing (second), from 0 to 1. Things have these weights, which are not
    /// negative; if all are 0, they count alike. `None` if `stop` said so.
    pub fn new(
        candidates: usize,
        weights: &[f64],
        similarity: impl Fn(usize, usize) -> f32,
        stop: &dyn Fn() -> bool,
    ) -> Option<Coverage> {
        let mut table = Vec::with_capacity(candidates * weights.len());
        for candidate in 0..candidates {
            if stop() {
                return None;
            }
            let fixed = |thing| (similarity(candidate, thing).clamp(0.0, 1.0) * ONE).round() as u16;
            table.extend((0..weights.len()).map(fixed));
        }
        let sum: f64 = weights.iter().sum();
        let weights = match sum > 0.0 && sum.is_finite() {
            true => weights.iter().map(|weight| weight / sum).collect(),
            false => vec![1.0 / weights.len().max(1) as f64; weights.len()],
        };
        Some(Coverage { similarity: table, weights, candidates })
    }

    fn row(&self, candidate: usize) -> &[u16] {
        let things = self.weights.len();
        &self.similarity[candidate * things..(candidate + 1) * things]
    }

    /// What a candidate adds where the things are covered so far.
    fn gain(&self, candidate: usize, covered: &[u16]) -> f64 {
        let more = self.row(candidate).iter().zip(covered).zip(&self.weights);
        more.map(|((new, old), weight)| f64::from(new.saturating_sub(*old)) * weight).sum::<f64>() / f64::from(ONE)
    }

    /// The value of a set of candidates, from 0 to 1.
    pub fn value(&self, chosen: &[usize]) -> f64 {
        let mut covered = vec![0; self.weights.len()];
        chosen.iter().for_each(|candidate| cover(&mut covered, self.row(*candidate)));
        covered.iter().zip(&self.weights).map(|(covered, weight)| f64::from(*covered) * weight).sum::<f64>()
            / f64::from(ONE)
    }
}

fn cover(covered: &mut [u16], row: &[u16]) {
    covered.iter_mut().zip(row).for_each(|(old, new)| *old = (*old).max(*new));
}

/// The rule that made a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The most gain for each unit of cost, again and again.
    GainPerCost,
    /// The most gain, again and again.
    Gain,
    /// The single best candidate first, then as [`Rule::GainPerCost`].
    BestSingle,
}

/// A candidate that was chosen, and what it added to those before it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Chosen {
    pub candidate: usize,
    pub gain: f64,
}

/// A choice within a budget.
#[derive(Clone, Debug, PartialEq)]
pub struct Portfolio {
    /// In the order of the choice.
    pub chosen: Vec<Chosen>,
    pub cost: u64,
    /// From 0 to 1.
    pub value: f64,
    /// No choice within the budget is worth more than this.
    pub bound: f64,
    pub rule: Rule,
}

/// Chooses candidates with these costs whose sum stays within the budget. `None` if `stop` said so.
pub fn choose(coverage: &Coverage, costs: &[u64], budget: u64, stop: &dyn Fn() -> bool) -> Option<Portfolio> {
    let search = Search { coverage, costs, budget, stop };
    let uncovered = vec![0; coverage.weights.len()];
    // Larger candidates are in no choice at all.
    let affordable: Vec<usize> =
        (0..coverage.candidates).filter(|candidate| search.cost(*candidate) <= budget).collect();
    let first: Vec<(usize, f64)> = search.gains(&affordable, &uncovered)?;
    let single = first.iter().max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0))).map(|(candidate, _)| *candidate);
    let mut best: Option<(Portfolio, Vec<u16>)> = None;
    let mut bound = search.bound(&first, 0.0);
    for (rule, start) in [(Rule::GainPerCost, None), (Rule::Gain, None), (Rule::BestSingle, single)] {
        let (portfolio, covered) = search.greedy(rule, start, &first)?;
        bound = bound.min(search.bound(&search.gains(&affordable, &covered)?, portfolio.value));
        if best.as_ref().is_none_or(|(best, _)| portfolio.value > best.value) {
            best = Some((portfolio, covered));
        }
    }
    best.map(|(portfolio, _)| Portfolio { bound: bound.max(portfolio.value), ..portfolio })
}

struct Search<'a> {
    coverage: &'a Coverage,
    costs: &'a [u64],
    budget: u64,
    stop: &'a dyn Fn() -> bool,
}

impl Search<'_> {
    fn cost(&self, candidate: usize) -> u64 {
        self.costs.get(candidate).copied().unwrap_or(u64::MAX).max(1)
    }

    fn gains(&self, candidates: &[usize], covered: &[u16]) -> Option<Vec<(usize, f64)>> {
        let mut gains = Vec::with_capacity(candidates.len());
        for candidate in candidates {
            if (self.stop)() {
                return None;
            }
            gains.push((*candidate, self.coverage.gain(*candidate, covered)));
        }
        Some(gains)
    }

    /// The most that any choice can be worth: what is there, and the gains that fit into the whole budget if the last
    /// candidate may be divided. Together no candidates gain more than each by itself.
    fn bound(&self, gains: &[(usize, f64)], value: f64) -> f64 {
        let mut by_ratio: Vec<(f64, f64, u64)> = gains
            .iter()
            .map(|(candidate, gain)| (gain / self.cost(*candidate) as f64, *gain, self.cost(*candidate)))
            .collect();
        by_ratio.sort_by(|a, b| b.0.total_cmp(&a.0));
        let (mut bound, mut left) = (value, self.budget);
        for (ratio, gain, cost) in by_ratio {
            if cost > left {
                bound += ratio * left as f64;
                break;
            }
            bound += gain;
            left -= cost;
        }
        bound.min(1.0)
    }

    /// Lazy greedy choice (Minoux, 1978): a gain never grows, so an old one is only computed again at the top.
    fn greedy(&self, rule: Rule, start: Option<usize>, first: &[(usize, f64)]) -> Option<(Portfolio, Vec<u16>)> {
        let key = |candidate, gain: f64| match rule {
            Rule::Gain => gain,
            Rule::GainPerCost | Rule::BestSingle => gain / self.cost(candidate) as f64,
        };
        let mut covered = vec![0; self.coverage.weights.len()];
        let mut chosen: Vec<Chosen> = Vec::new();
        let (mut cost, mut value) = (0u64, 0.0);
        let mut heap: BinaryHeap<Open> = first
            .iter()
            .map(|(candidate, gain)| Open { key: key(*candidate, *gain), gain: *gain, candidate: *candidate, round: 0 })
            .collect();
        if let Some(start) = start {
            heap.push(Open {
                key: f64::INFINITY,
                gain: self.coverage.gain(start, &covered),
                candidate: start,
                round: 0,
            });
        }
        while let Some(open) = heap.pop() {
            if (self.stop)() {
                return None;
            }
            let candidate = open.candidate;
            if cost.saturating_add(self.cost(candidate)) > self.budget || open.gain <= 0.0 {
                continue;
            }
            if open.round < chosen.len() {
                let gain = self.coverage.gain(candidate, &covered);
                heap.push(Open { key: key(candidate, gain), gain, candidate, round: chosen.len() });
                continue;
            }
            cover(&mut covered, self.coverage.row(candidate));
            cost += self.cost(candidate);
            value += open.gain;
            chosen.push(Chosen { candidate, gain: open.gain });
        }
        Some((Portfolio { chosen, cost, value, bound: 1.0, rule }, covered))
    }
}

/// A candidate that may still be chosen, with its gain when so many had been chosen.
struct Open {
    key: f64,
    gain: f64,
    candidate: usize,
    round: usize,
}

impl Ord for Open {
    fn cmp(&self, other: &Open) -> Ordering {
        self.key.total_cmp(&other.key).then(other.candidate.cmp(&self.candidate))
    }
}
impl PartialOrd for Open {
    fn partial_cmp(&self, other: &Open) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl PartialEq for Open {
    fn eq(&self, other: &Open) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl Eq for Open {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn never() -> bool {
        false
    }

    fn coverage(rows: &[Vec<f32>], weights: &[f64]) -> Coverage {
        Coverage::new(rows.len(), weights, |candidate, thing| rows[candidate][thing], &never).expect("nobody stops it")
    }

    fn subsets(n: usize) -> impl Iterator<Item = Vec<usize>> {
        (0..1u32 << n).map(move |bits| (0..n).filter(|at| bits >> at & 1 == 1).collect())
    }

    prop_compose! {
        /// Candidates with their similarities to some things, and their costs; weights; a budget.
        fn instance()(things in 1usize..7, candidates in 0usize..9)(
            rows in prop::collection::vec(prop::collection::vec(prop_oneof![Just(0.0f32), 0.0f32..1.0], things), candidates),
            costs in prop::collection::vec(1u64..20, candidates),
            weights in prop::collection::vec(0.0f64..5.0, things),
            budget in 0u64..50,
        ) -> (Vec<Vec<f32>>, Vec<u64>, Vec<f64>, u64) {
            (rows, costs, weights, budget)
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]
        #[test]
        fn a_choice_keeps_to_its_budget_and_to_its_guarantee((rows, costs, weights, budget) in instance()) {
            let coverage = coverage(&rows, &weights);
            let portfolio = choose(&coverage, &costs, budget, &never).expect("nobody stops it");
            let ids: Vec<usize> = portfolio.chosen.iter().map(|chosen| chosen.candidate).collect();
            let cost = |set: &[usize]| set.iter().map(|at| costs[*at]).sum::<u64>();
            prop_assert_eq!(portfolio.cost, cost(&ids));
            prop_assert!(portfolio.cost <= budget);
            prop_assert!((coverage.value(&ids) - portfolio.value).abs() < 1e-9);
            let best = subsets(rows.len()).filter(|set| cost(set) <= budget).map(|set| coverage.value(&set)).fold(0.0, f64::max);
            prop_assert!(portfolio.value >= 0.405 * best - 1e-9, "{} of {}", portfolio.value, best);
            prop_assert!(portfolio.bound >= best - 1e-9, "the bound {} is below {}", portfolio.bound, best);
            prop_assert!(portfolio.chosen.iter().all(|chosen| chosen.gain > 0.0));
            let distinct: std::collections::BTreeSet<usize> = ids.iter().copied().collect();
            prop_assert_eq!(distinct.len(), ids.len());
            prop_assert_eq!(choose(&coverage, &costs, budget, &never), Some(portfolio));
        }

        #[test]
        fn more_never_covers_less_and_gains_fall((rows, _, weights, _) in instance()) {
            let coverage = coverage(&rows, &weights);
            for set in subsets(rows.len()) {
                let value = coverage.value(&set);
                for extra in (0..rows.len()).filter(|extra| !set.contains(extra)) {
                    let with = coverage.value(&[&set[..], &[extra]].concat());
                    prop_assert!(with >= value - 1e-12);
                    for left_out in 0..set.len() {
                        let mut less = set.clone();
                        less.remove(left_out);
                        let gain = coverage.value(&[&less[..], &[extra]].concat()) - coverage.value(&less);
                        prop_assert!(gain >= with - value - 1e-12);
                    }
                }
            }
        }

        #[test]
        fn lazy_choice_is_greedy_choice((rows, costs, weights, budget) in instance()) {
            let coverage = coverage(&rows, &weights);
            let search = Search { coverage: &coverage, costs: &costs, budget, stop: &never };
            let all: Vec<usize> = (0..rows.len()).filter(|at| costs[*at] <= budget).collect();
            let mut covered = vec![0; weights.len()];
            let first = search.gains(&all, &covered).expect("nobody stops it");
            let (lazy, _) = search.greedy(Rule::GainPerCost, None, &first).expect("nobody stops it");
            let (mut plain, mut left) = (Vec::new(), budget);
            loop {
                let ratio = |at: &usize| coverage.gain(*at, &covered) / costs[*at] as f64;
                let open = all.iter().filter(|at| !plain.contains(*at) && costs[**at] <= left && ratio(at) > 0.0);
                let Some(next) = open.max_by(|a, b| ratio(a).total_cmp(&ratio(b)).then(b.cmp(a))) else { break };
                cover(&mut covered, coverage.row(*next));
                left -= costs[*next];
                plain.push(*next);
            }
            prop_assert_eq!(lazy.chosen.iter().map(|chosen| chosen.candidate).collect::<Vec<_>>(), plain);
        }
    }

    #[test]
    fn one_large_text_beats_a_small_one_that_is_cheap_for_its_gain() {
        // By gain for each unit of cost alone the small one comes first, and then the large one no longer fits.
        let coverage = coverage(&[vec![0.02, 0.0], vec![1.0, 1.0]], &[1.0, 1.0]);
        let portfolio = choose(&coverage, &[1, 100], 100, &never).expect("nobody stops it");
        assert_eq!(portfolio.chosen.iter().map(|chosen| chosen.candidate).collect::<Vec<_>>(), [1]);
        assert!((portfolio.value - 1.0).abs() < 1e-9 && (portfolio.bound - 1.0).abs() < 1e-9);
        assert_eq!(choose(&coverage, &[1, 100], 100, &|| true), None);
    }
}
