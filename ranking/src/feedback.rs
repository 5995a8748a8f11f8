//! Pseudo-relevance feedback: it takes the best texts of a ranking for relevant, and finds the terms that say what they are about. The relevance model is that of Lavrenko and
//! Croft (2001); together with the query it is RM3 (Abdul-Jaleel et al., "UMass at TREC 2004: Novelty and HARD").
use crate::{Analyzer, without_language};
use std::collections::HashMap;

/// A term of more bytes is no word that other texts use.
const TERM_BYTES: usize = 64;

/// A term with how likely it is, or with its share of a query.
pub type Weighted = (Box<str>, f64);

/// The `most` likeliest terms of the subject of the texts, the likeliest first. The texts come best first. Each counts for less than the one before it, by the discount of
/// nDCG, so the scale of their scores does not matter.
pub fn relevance_model(analyzer: &Analyzer, texts: &[String], most: usize) -> Vec<Weighted> {
    let mut model: HashMap<Box<str>, f64> = HashMap::new();
    for (rank, text) in texts.iter().enumerate() {
        let (mut counts, mut length): (HashMap<Box<str>, u32>, u32) = Default::default();
        analyzer.each_term(text, |term| {
            length = length.saturating_add(1);
            if may_be_added(term) {
                *counts.entry(term.into()).or_default() += 1;
            }
        });
        let share = 1.0 / ((rank as f64 + 2.0).log2() * f64::from(length.max(1)));
        for (term, count) in counts {
            *model.entry(term).or_default() += share * f64::from(count);
        }
    }
    let mut model: Vec<Weighted> = model.into_iter().collect();
    model.sort_unstable_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    model.truncate(most);
    model
}

/// The `most` terms that say most, by how likely each is in the model and how rare it is among all texts, with the largest share first. The shares follow from the likelihoods
/// alone, because a ranking weighs rare terms itself, and add up to 1.
pub fn characteristic(model: Vec<Weighted>, idf: impl Fn(&str) -> f64, most: usize) -> Vec<Weighted> {
    let mut scored: Vec<(f64, Weighted)> = model
        .into_iter()
        .map(|(term, likelihood)| (likelihood * idf(&term), (term, likelihood)))
        .filter(|(score, _)| *score > 0.0)
        .collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0));
    scored.truncate(most);
    let sum: f64 = scored.iter().map(|(_, (_, likelihood))| likelihood).sum();
    let mut chosen: Vec<Weighted> =
        scored.into_iter().map(|(_, (term, likelihood))| (term, likelihood / sum)).collect();
    chosen.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    chosen
}

/// Whether a term may be added: numbers and single characters say nothing of a subject. The name of its language does not count as a part of the term.
fn may_be_added(term: &str) -> bool {
    let (word, _) = without_language(term);
    word.len() <= TERM_BYTES && word.chars().nth(1).is_some() && word.chars().any(char::is_alphabetic)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AnalyzerConfig;

    fn model(texts: &[&str], most: usize) -> Vec<Weighted> {
        let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        relevance_model(&Analyzer::new(AnalyzerConfig::default()), &texts, most)
    }

    #[test]
    fn a_term_is_as_likely_as_its_share_of_the_texts_the_best_of_which_count_most() {
        // The second text counts 1 / log2(3).
        let found = model(&["heron egret heron reeds", "the heron", "7 2024 x"], 9);
        let terms: Vec<&str> = found.iter().map(|(term, _)| &**term).collect();
        assert_eq!(terms, ["heron", "egret", "reed"], "no number and no letter is among them");
        let expected = 0.5 + 1.0 / 3.0_f64.log2();
        assert!((found[0].1 - expected).abs() < 1e-12 && (found[1].1 - 0.25).abs() < 1e-12, "{found:?}");
        assert_eq!(model(&["heron egret heron reeds"], 1).len(), 1);
        let long = "a".repeat(TERM_BYTES + 1);
        assert!(model(&[&long, "", "  "], 9).is_empty());
        assert!(may_be_added("heron/english") && may_be_added("x/heron"), "a name may have a slash");
        assert!(!may_be_added("x/english") && !may_be_added("7/english"));
        let (better, worse) = (model(&["heron", "egret"], 9), model(&["egret", "heron"], 9));
        assert_eq!((&*better[0].0, &*worse[0].0), ("heron", "egret"));
    }

    #[test]
    fn rare_terms_are_chosen_first_and_their_shares_are_one_together() {
        let model: Vec<Weighted> =
            [("flow", 0.4), ("heron", 0.2), ("nowhere", 0.2), ("reed", 0.1)].map(|(t, p)| (t.into(), p)).to_vec();
        let idf = |term: &str| match term {
            "flow" => 0.1,
            "nowhere" => 0.0,
            _ => 2.0,
        };
        let chosen = characteristic(model.clone(), idf, 2);
        let terms: Vec<&str> = chosen.iter().map(|(term, _)| &**term).collect();
        assert_eq!(terms, ["heron", "reed"]);
        assert!((chosen[0].1 - 2.0 / 3.0).abs() < 1e-12 && (chosen[1].1 - 1.0 / 3.0).abs() < 1e-12);
        assert_eq!(characteristic(model, idf, 9).len(), 3, "what no text has is left out");
        assert!(characteristic(Vec::new(), idf, 9).is_empty());
    }
}
