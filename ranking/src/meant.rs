//! Which terms somebody may have meant who mistyped one.
use crate::without_language;
use std::collections::HashMap;

/// From this many letters on two edits leave most of a word; in a shorter one they make another word.
const LONG: usize = 8;

/// A longer text is no mistyped word, and the cost of a comparison is quadratic.
const LONGEST: usize = 64;

/// At most `limit` of the terms, the nearest first, then those of the nearest length, then by the alphabet: what is one edit away, or two from eight
/// letters on, and what the word that was typed is the beginning of, if it `is_beginning`, as if that were one edit. The first letter is taken as meant.
/// An edit is a letter too many, one too few, another one, or two that changed places.
///
/// `forms` are the terms of the word that was typed. Each language has a stem of its own, so a term is compared with the first one of its language.
pub fn meant<'a>(
    forms: &[impl AsRef<str>],
    terms: impl IntoIterator<Item = &'a str>,
    is_beginning: bool,
    limit: usize,
) -> Vec<&'a str> {
    let mut of_languages: HashMap<Option<&str>, (&str, Vec<char>)> = HashMap::new();
    for form in forms {
        let (typed, language) = without_language(form.as_ref());
        of_languages.entry(language).or_insert_with(|| (typed, typed.chars().take(LONGEST + 1).collect()));
    }
    of_languages.retain(|_, (_, letters)| letters.len() <= LONGEST);
    let mut near: Vec<(usize, usize, &str)> = Vec::new();
    for term in terms {
        let (word, language) = without_language(term);
        let Some((typed, letters)) = of_languages.get(&language) else { continue };
        let most = if letters.len() < LONG { 1 } else { 2 };
        let length = word.chars().take(letters.len() + LONGEST).count();
        let gap = length.abs_diff(letters.len());
        let continues = is_beginning && gap > 0 && word.starts_with(*typed);
        if (gap > most && !continues) || word == *typed || word.chars().next() != letters.first().copied() {
            continue;
        }
        let edits = if continues { 1 } else { distance(letters, &word.chars().collect::<Vec<char>>()) };
        if edits <= most {
            near.push((edits, gap, term));
        }
    }
    near.sort_unstable();
    near.dedup();
    near.into_iter().take(limit).map(|(.., term)| term).collect()
}

/// The fewest edits between two words, no letter edited twice.
fn distance(a: &[char], b: &[char]) -> usize {
    let width = b.len() + 1;
    let (mut before, mut last): (Vec<usize>, Vec<usize>) = (vec![0; width], (0..width).collect());
    for i in 1..=a.len() {
        let mut row = vec![i; width];
        for j in 1..width {
            let substitution = last[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = substitution.min(last[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_nearest_terms_come_first_and_what_is_too_far_does_not_come() {
        let terms =
            ["heron", "hero", "herd", "harem", "volcano", "volcan", "glacier", "glad", "eron", "crystal", "crystallin"];
        for (typed, is_beginning, expected) in [
            ("hreon", false, vec!["heron"]),
            ("hern", false, vec!["herd", "hero", "heron"]),
            ("heron", false, vec!["hero"]),
            ("eroon", false, vec!["eron"]),
            ("gla", false, vec!["glad"]),
            ("gla", true, vec!["glad", "glacier"]),
            ("volkanos", false, vec!["volcano"]),
            ("volkano", false, vec!["volcano"]),
            ("crystaln", false, vec!["crystal", "crystallin"]),
            ("", true, vec![]),
            ("zebra", true, vec![]),
        ] {
            assert_eq!(meant(&[typed], terms, is_beginning, 10), expected, "{typed}");
        }
        assert_eq!(meant(&["herx"], terms, false, 1), ["herd"]);
        assert!(meant(&["h".repeat(10_000)], terms, true, 10).is_empty());
    }

    #[test]
    fn a_term_that_bears_its_language_is_compared_with_the_stem_of_that_language() {
        let terms = ["parish/english", "parish/german", "paris", "parih/english", "parisis/french"];
        let forms = ["parihs", "parih/english", "parihs/french"];
        assert_eq!(meant(&forms, terms, false, 10), ["paris", "parish/english"]);
        assert_eq!(meant(&["paris/french"], terms, true, 10), ["parisis/french"]);
    }

    proptest! {
        #[test]
        fn what_one_slip_makes_of_a_word_is_mended(word in "[a-z]{4,12}", at in 1usize..12, slip in 0usize..4, letter in proptest::char::range('a', 'z')) {
            let mut letters: Vec<char> = word.chars().collect();
            let at = 1 + at % (letters.len() - 1);
            match slip {
                0 => { letters.remove(at); }
                1 => letters.insert(at, letter),
                2 => letters[at] = letter,
                _ if at > 1 => letters.swap(at - 1, at),
                _ => {}
            }
            let typed: String = letters.iter().collect();
            let found = meant(&[&typed], [word.as_str()], false, 1);
            prop_assert_eq!(found, if typed == word { vec![] } else { vec![word.as_str()] });
        }

        #[test]
        fn edits_are_a_distance(a in "[abc]{0,8}", b in "[abc]{0,8}") {
            let [a, b] = [a, b].map(|text| text.chars().collect::<Vec<char>>());
            prop_assert_eq!(distance(&a, &b), distance(&b, &a));
            prop_assert_eq!(distance(&a, &b) == 0, a == b);
            prop_assert!(distance(&a, &b) >= a.len().abs_diff(b.len()) && distance(&a, &b) <= a.len().max(b.len()));
        }
    }
}
