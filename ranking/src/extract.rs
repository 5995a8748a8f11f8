//! A short text of whole sentences from longer texts: those that cover all sentences best, by [`choose`](crate::choose),
//! as Lin and Bilmes (2010) summarise documents. Two sentences are as similar as the terms that they share, where a term
//! counts the more the fewer sentences have it.
use crate::{Analyzer, Coverage, choose};
use std::collections::HashMap;
use unicode_segmentation::UnicodeSegmentation;

/// Shorter sentences are joined with the next one.
const LEAST_CHARACTERS: usize = 40;
/// Longer sentences are cut at white space.
const MOST_CHARACTERS: usize = 400;

/// The sentences of a text; together they are the text, but for the white space between them.
pub fn sentences(text: &str) -> Vec<&str> {
    let mut cuts = vec![0];
    let mut end = 0;
    for sentence in text.split_sentence_bounds() {
        end += sentence.len();
        let begin = cuts[cuts.len() - 1];
        if text[begin..end].trim().chars().count() >= LEAST_CHARACTERS {
            cut_long(&text[begin..end], begin, &mut cuts);
            cuts.push(end);
        }
    }
    cuts.push(text.len());
    cuts.dedup();
    cuts.windows(2).map(|cut| text[cut[0]..cut[1]].trim()).filter(|sentence| !sentence.is_empty()).collect()
}

/// Adds the places where a long sentence, which begins at `begin`, is cut.
fn cut_long(sentence: &str, begin: usize, cuts: &mut Vec<usize>) {
    let (mut start, mut space, mut characters) = (0, None, 0);
    for (at, character) in sentence.char_indices() {
        if characters >= MOST_CHARACTERS {
            start = space.filter(|space| *space > start).unwrap_or(at);
            cuts.push(begin + start);
            (space, characters) = (None, sentence[start..at].chars().count());
        }
        if character.is_whitespace() {
            space = Some(at);
        }
        characters += 1;
    }
}

/// The places of the sentences to keep within a budget of tokens, ascending. `tokens` has the number of tokens of each
/// sentence. `None` if `stop` said so.
pub fn extract(
    sentences: &[&str],
    tokens: &[u64],
    budget: u64,
    analyzer: &Analyzer,
    stop: &dyn Fn() -> bool,
) -> Option<Vec<usize>> {
    let vectors = term_vectors(sentences, analyzer);
    let lengths: Vec<f64> = tokens.iter().map(|tokens| *tokens as f64).collect();
    let similarity = |a: usize, b: usize| cosine(&vectors[a], &vectors[b]);
    let coverage = Coverage::new(sentences.len(), &lengths, similarity, stop)?;
    let mut kept: Vec<usize> =
        choose(&coverage, tokens, budget, stop)?.chosen.iter().map(|chosen| chosen.candidate).collect();
    kept.sort_unstable();
    Some(kept)
}

/// The terms of each sentence by ascending number, with their weights, as unit vectors.
fn term_vectors(sentences: &[&str], analyzer: &Analyzer) -> Vec<Vec<(u32, f32)>> {
    let mut numbers: HashMap<Box<str>, u32> = HashMap::new();
    let mut having: Vec<u32> = Vec::new();
    let counted: Vec<Vec<(u32, u32)>> = sentences
        .iter()
        .map(|sentence| {
            let bag = analyzer.bag(sentence);
            let mut terms: Vec<(Box<str>, u32)> = bag.terms.into_iter().collect();
            terms.sort();
            let mut terms: Vec<(u32, u32)> = terms
                .into_iter()
                .map(|(term, count)| {
                    let number = *numbers.entry(term).or_insert_with(|| {
                        having.push(0);
                        (having.len() - 1) as u32
                    });
                    having[number as usize] += 1;
                    (number, count)
                })
                .collect();
            terms.sort_unstable();
            terms
        })
        .collect();
    let n = sentences.len() as f32;
    let weight = |(number, count): (u32, u32)| {
        let rarity = (1.0 + n / having[number as usize] as f32).ln();
        (number, (1.0 + (count as f32).ln()) * rarity)
    };
    counted
        .into_iter()
        .map(|terms| {
            let mut vector: Vec<(u32, f32)> = terms.into_iter().map(weight).collect();
            let length = vector.iter().map(|(_, weight)| weight * weight).sum::<f32>().sqrt();
            vector.iter_mut().for_each(|(_, weight)| *weight /= length.max(f32::MIN_POSITIVE));
            vector
        })
        .collect()
}

fn cosine(a: &[(u32, f32)], b: &[(u32, f32)]) -> f32 {
    let (mut a, mut b) = (a.iter().peekable(), b.iter().peekable());
    let mut sum = 0.0;
    while let (Some((left, x)), Some((right, y))) = (a.peek(), b.peek()) {
        match left.cmp(right) {
            std::cmp::Ordering::Less => _ = a.next(),
            std::cmp::Ordering::Greater => _ = b.next(),
            std::cmp::Ordering::Equal => {
                sum += x * y;
                a.next();
                b.next();
            }
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AnalyzerConfig;
    use proptest::prelude::*;

    fn analyzer() -> Analyzer {
        Analyzer::new(AnalyzerConfig::default())
    }

    fn words(text: &str) -> u64 {
        text.split_whitespace().count() as u64
    }

    #[test]
    fn an_extract_says_each_thing_once() {
        let text = "The heron hunts fish in the shallow water at dawn. At dawn the heron hunts its fish in water that is shallow. \
                    A radar gauge measures the level of the tank by its echo. Fish are hunted in shallow water by the heron at dawn.";
        let sentences = sentences(text);
        assert_eq!(sentences.len(), 4, "{sentences:?}");
        let tokens: Vec<u64> = sentences.iter().map(|sentence| words(sentence)).collect();
        let kept = extract(&sentences, &tokens, 24, &analyzer(), &|| false).expect("nobody stops it");
        assert_eq!(kept.len(), 2);
        assert!(kept.contains(&2), "the gauge is told of too: {kept:?}");
    }

    proptest! {
        #[test]
        fn sentences_are_the_text_and_no_sentence_is_long(text in "[a-z.!? \n漢字]{0,3000}") {
            let sentences = sentences(&text);
            let whole: String = text.split_whitespace().collect();
            prop_assert_eq!(sentences.concat().split_whitespace().collect::<String>(), whole);
            prop_assert!(sentences.iter().all(|sentence| sentence.chars().count() <= MOST_CHARACTERS + LEAST_CHARACTERS));
        }

        #[test]
        fn an_extract_keeps_to_its_budget(text in "([a-e]{1,3}[ .]){0,400}", budget in 0u64..60) {
            let sentences = sentences(&text);
            let tokens: Vec<u64> = sentences.iter().map(|sentence| words(sentence)).collect();
            let kept = extract(&sentences, &tokens, budget, &analyzer(), &|| false).expect("nobody stops it");
            prop_assert!(kept.iter().map(|at| tokens[*at]).sum::<u64>() <= budget);
            prop_assert!(kept.is_sorted_by(|a, b| a < b));
        }
    }
}
