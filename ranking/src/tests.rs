use super::{
    Config, Parameters,
    block::{Posting, encode_rows},
    postings::Postings,
    score::{Bounds, Curve, List, Scoring, idf},
};
use proptest::prelude::*;
use std::{collections::BTreeMap, sync::Arc};

const PARAMETERS: Parameters = Parameters { k1: 1.2, b: 0.75 };

/// Skewed lists: the first terms are in nearly every document, the last ones in few, and frequencies come in bursts.
fn corpus(seed: u64, docs: u32, terms: usize) -> Vec<Vec<Posting>> {
    let mut state = seed | 1;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut lists = vec![vec![]; terms];
    let mut doc = 0;
    for _ in 0..docs {
        doc += 1 + if random() % 50 == 0 { (random() % 9_000) as u32 } else { 0 };
        let length = 5 + (random() % 300) as u32;
        for (rank, list) in lists.iter_mut().enumerate() {
            if random() % (1 + 3 * rank as u64 * rank as u64) == 0 {
                let tf = 1 + (random() % 4 * (random() % 3)) as u32;
                list.push(Posting { doc, tf, length });
            }
        }
    }
    lists
}

/// Adds up every posting without any optimisation.
fn naive(lists: &[Vec<Posting>], weights: &[f64], curve: &Curve) -> BTreeMap<u32, f64> {
    let mut sums = BTreeMap::new();
    for (list, weight) in std::iter::zip(lists, weights) {
        for posting in list {
            *sums.entry(posting.doc).or_insert(0.0) += weight * curve.exact(posting.tf, posting.length);
        }
    }
    sums
}

fn best(mut scored: Vec<(u32, f64)>, k: usize) -> Vec<(u32, f64)> {
    scored.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    scored.truncate(k);
    scored
}

fn sealed(list: &[Posting], curve: &Curve) -> Postings {
    let rows = encode_rows(list, curve, 16);
    Postings::sealed(rows.into_iter().rev().map(|row| (row.first as i32, row.data)).collect()).expect("own bytes")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 120, ..ProptestConfig::default() })]

    /// Pruned, exhaustive and naive scoring agree to the bit: for bounds built with another average, for lists split
    /// into a sealed part and a tail, for removed documents, and for a set of allowed ones.
    #[test]
    fn pruning_changes_no_answer(
        seed in any::<u64>(), docs in 1u32..6_000, terms in 1usize..6, k in 1usize..40,
        built in 20.0f64..400.0, tails in 0u32..4, keep in 0u32..5, dying in 0u32..3,
    ) {
        let lists = corpus(seed, docs, terms);
        let average = 150.0;
        let curve = Curve::new(PARAMETERS, average);
        let weights: Vec<f64> =
            lists.iter().map(|list| idf(f64::from(docs), list.len() as f64) * (PARAMETERS.k1 + 1.0)).collect();
        let mut split = vec![];
        for (list, &weight) in std::iter::zip(&lists, &weights) {
            let (tail, body): (Vec<Posting>, Vec<Posting>) =
                list.iter().partition(|posting| posting.doc % 7 < tails);
            let built_for = Curve::new(PARAMETERS, built);
            let bounds = if built < 30.0 { Bounds::Unknown } else { Bounds::Times((average / built).max(1.0) as f32) };
            split.push(List { postings: Arc::new(sealed(&body, &built_for)), weight, bounds });
            split.push(List { postings: Arc::new(Postings::tail(tail, &curve)), weight, bounds: Bounds::Times(1.0) });
        }
        let everything = naive(&lists, &weights, &curve);
        let is_allowed = |doc: u32| keep == 0 || doc.wrapping_mul(2_654_435_761) >> 16 & 15 < keep;
        let is_dead = |doc: u32| dying > 0 && doc % 11 < dying;
        let docs: Vec<u32> = everything.keys().copied().collect();
        let mut scoring = Scoring {
            lists: split,
            curve,
            allowed: (keep > 0).then(|| docs.iter().copied().filter(|&doc| is_allowed(doc)).collect()),
            dead: docs.iter().copied().filter(|&doc| is_dead(doc)).collect(),
            k,
            prune: true,
        };
        let expected: Vec<(u32, f64)> =
            everything.into_iter().filter(|&(doc, _)| is_allowed(doc) && !is_dead(doc)).collect();
        let expected = best(expected, k);
        prop_assert_eq!(&best(scoring.run(), k), &expected);
        scoring.prune = false;
        prop_assert_eq!(&best(scoring.run(), k), &expected);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Lists over many windows, so that the bounds leave out blocks and slots within a window, and few documents are looked at one by one.
    #[test]
    fn what_bounds_leave_out_of_long_lists_is_not_among_the_best(
        seed in any::<u64>(), docs in 10_000u32..40_000, terms in 2usize..6, k in 1usize..200, average in 60.0f64..300.0,
    ) {
        let lists = corpus(seed, docs, terms);
        let curve = Curve::new(PARAMETERS, average);
        let weights: Vec<f64> =
            lists.iter().map(|list| idf(f64::from(docs), list.len() as f64) * (PARAMETERS.k1 + 1.0)).collect();
        let of = |(list, &weight): (&Vec<Posting>, &f64)| List {
            postings: Arc::new(sealed(list, &curve)),
            weight,
            bounds: Bounds::Times(1.0),
        };
        let scored = std::iter::zip(&lists, &weights).map(of).collect();
        let scoring = Scoring { lists: scored, curve, allowed: None, dead: vec![], k, prune: true };
        let expected = best(naive(&lists, &weights, &curve).into_iter().collect(), k);
        prop_assert_eq!(best(scoring.run(), k), expected);
    }
}

#[test]
fn a_term_without_weight_still_finds_its_documents() {
    let curve = Curve::new(PARAMETERS, 10.0);
    let list: Vec<Posting> = (1..=300).map(|number| Posting { doc: 40 * number, tf: 1, length: 10 }).collect();
    for prune in [false, true] {
        let lists = vec![List { postings: Arc::new(sealed(&list, &curve)), weight: 0.0, bounds: Bounds::Times(1.0) }];
        let found = Scoring { lists, curve, allowed: None, dead: vec![40], k: 5, prune }.run();
        let expected: Vec<(u32, f64)> = (2..=300).map(|number| (40 * number, 0.0)).collect();
        assert_eq!(found, expected);
    }
}

#[test]
fn equal_scores_are_all_there_to_break_the_tie() {
    let curve = Curve::new(PARAMETERS, 10.0);
    let list: Vec<Posting> = (1..=5_000).map(|doc| Posting { doc, tf: 1, length: 10 }).collect();
    let lists = vec![List { postings: Arc::new(sealed(&list, &curve)), weight: 1.0, bounds: Bounds::Times(1.0) }];
    let scoring = Scoring { lists, curve, allowed: None, dead: vec![], k: 3, prune: true };
    assert_eq!(scoring.run().len(), 5_000);
}

#[test]
fn an_average_of_nothing_and_a_frequency_of_everything_still_score() {
    let curve = Curve::new(PARAMETERS, 0.0);
    assert!(curve.exact(1, 0) > 0.0 && curve.exact(1, 1_000).is_finite());
    assert!(idf(10.0, 10.0) > 0.0 && idf(10.0, 12.0) > 0.0);
}

#[test]
fn a_config_out_of_range_is_refused_by_name() {
    for (config, key) in [
        (Config { k1: -1.0, ..Config::default() }, "k1"),
        (Config { k1: f64::NAN, ..Config::default() }, "k1"),
        (Config { b: 1.5, ..Config::default() }, "b"),
        (Config { title_weight: 11, ..Config::default() }, "title_weight"),
    ] {
        let error = config.validate().expect_err(key);
        assert!(error.0.starts_with(key), "{error}");
    }
    assert!(serde_json::from_str::<Config>(r#"{"k1": 1.2, "k2": 3}"#).is_err());
    let partial: Config = serde_json::from_str(r#"{"b": 0.4}"#).expect("the rest has defaults");
    assert_eq!(partial, Config { b: 0.4, ..Config::default() });
}
