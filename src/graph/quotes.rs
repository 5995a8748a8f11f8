//! Finds the words that callers quote in a text, where runs of white space may differ.
use super::occurrences;
use std::{collections::HashMap, ops::Range};

/// Where the words of a quote stand in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub bytes: Range<usize>,
    pub characters: Range<usize>,
}

/// Where each of these quotes stands: the first place that has it to the letter, or else the first that has its words in their order, with white space
/// between them where the quote has it. `None` if there is no such place, or if the quote is blank. The text is gone through a few times, however many
/// quotes there are.
pub fn find(text: &str, quotes: &[&str]) -> Vec<Option<Place>> {
    let is_blank = |quote: &str| quote.trim().is_empty();
    let wanted: Vec<&str> = quotes.iter().map(|quote| if is_blank(quote) { "" } else { *quote }).collect();
    let literal = occurrences::first(text, &wanted);
    let mut bytes: Vec<Option<Range<usize>>> =
        literal.iter().zip(quotes).map(|(begin, quote)| begin.map(|begin| begin..begin + quote.len())).collect();
    let missing: Vec<usize> = (0..quotes.len()).filter(|at| bytes[*at].is_none() && !is_blank(quotes[*at])).collect();
    if !missing.is_empty() {
        let words = |at: &usize| quotes[*at].split_whitespace().collect::<Vec<_>>().join(" ");
        let words: Vec<String> = missing.iter().map(words).collect();
        let found = occurrences::first(&plain(text), &words.iter().map(String::as_str).collect::<Vec<_>>());
        let found = found.iter().zip(&words).map(|(begin, words)| begin.map(|begin| begin..begin + words.len()));
        for (at, range) in missing.into_iter().zip(in_text(text, found.collect())) {
            bytes[at] = range;
        }
    }
    let characters = characters(text, bytes.iter().flatten().flat_map(|range| [range.start, range.end]).collect());
    let place = |bytes: Range<usize>| Place { characters: characters[&bytes.start]..characters[&bytes.end], bytes };
    bytes.into_iter().map(|range| range.map(place)).collect()
}

/// A text with one space for each run of white space.
fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut is_in_space = false;
    for character in text.chars() {
        let is_space = character.is_whitespace();
        if !(is_space && is_in_space) {
            plain.push(if is_space { ' ' } else { character });
        }
        is_in_space = is_space;
    }
    plain
}

/// The bytes of a text that stand at these bytes of its plain form, which begin and end with a word.
fn in_text(text: &str, plain: Vec<Option<Range<usize>>>) -> Vec<Option<Range<usize>>> {
    let sorted = |bounds: &mut dyn Iterator<Item = usize>| {
        let mut bounds: Vec<usize> = bounds.collect();
        bounds.sort_unstable();
        bounds.dedup();
        bounds
    };
    let starts = sorted(&mut plain.iter().flatten().map(|range| range.start));
    let ends = sorted(&mut plain.iter().flatten().map(|range| range.end));
    let (mut begun, mut ended) = (HashMap::new(), HashMap::new());
    let (mut starts, mut ends) = (starts.into_iter().peekable(), ends.into_iter().peekable());
    let (mut at, mut is_in_space) = (0, false);
    for (byte, character) in text.char_indices() {
        let is_space = character.is_whitespace();
        if !is_space && starts.next_if_eq(&at).is_some() {
            begun.insert(at, byte);
        }
        if !(is_space && is_in_space) {
            at += if is_space { 1 } else { character.len_utf8() };
        }
        if !is_space && ends.next_if_eq(&at).is_some() {
            ended.insert(at, byte + character.len_utf8());
        }
        is_in_space = is_space;
    }
    let range = |range: Range<usize>| Some(*begun.get(&range.start)?..*ended.get(&range.end)?);
    plain.into_iter().map(|found| found.and_then(range)).collect()
}

/// How many characters of a text come before each of these bytes.
fn characters(text: &str, mut bytes: Vec<usize>) -> HashMap<usize, usize> {
    bytes.sort_unstable();
    bytes.dedup();
    let (mut last, mut count) = (0, 0);
    let counted = bytes.into_iter().map(|byte| {
        count += text[last..byte].chars().count();
        last = byte;
        (byte, count)
    });
    counted.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn one(text: &str, quote: &str) -> Option<(usize, usize)> {
        let place = find(text, &[quote]).remove(0)?;
        Some((place.characters.start, place.characters.end))
    }

    #[test]
    fn a_quote_that_is_nearly_everywhere_is_looked_for_in_one_pass() {
        let text = "a ".repeat(500_000);
        assert_eq!(one(&text, &format!("{}b", "a ".repeat(4_999))), None);
        assert_eq!(one(&text, &format!("{}a", "a  ".repeat(4_999))), Some((0, 9_999)));
    }

    #[test]
    fn words_are_found_whatever_white_space_is_between_them() {
        let text = "Änne  said:\n\tthe radar\u{a0}gauge is silent. The radar gauge!";
        for (quote, is) in [
            ("the radar gauge", Some("the radar\u{a0}gauge")),
            (" said: the ", Some("said:\n\tthe")),
            (" The radar", Some(" The radar")),
            ("Änne said", Some("Änne  said")),
            ("The radar", Some("The radar")),
            ("gauge!", Some("gauge!")),
            ("radar is", None),
            ("theradar", None),
            ("silent. The radar gauge! And", None),
            ("  \n", None),
            ("", None),
        ] {
            let found =
                one(text, quote).map(|(start, end)| text.chars().skip(start).take(end - start).collect::<String>());
            assert_eq!(found.as_deref(), is, "{quote:?}");
        }
        assert_eq!(one("aab", "ab"), Some((1, 3)));
        assert_eq!(one("ää x", "ä x"), Some((1, 4)));
    }

    proptest! {
        #[test]
        fn quotes_are_found_together_as_each_by_itself(text in "[abä \\n]{0,60}", quotes in prop::collection::vec("[abä \\n]{0,8}", 0..20)) {
            let quotes: Vec<&str> = quotes.iter().map(String::as_str).collect();
            let together = find(&text, &quotes);
            for (quote, place) in quotes.iter().zip(together) {
                prop_assert_eq!(&place, &find(&text, &[quote])[0]);
                let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
                if let Some(place) = place {
                    let by_bytes = &text[place.bytes];
                    let by_characters: String =
                        text.chars().skip(place.characters.start).take(place.characters.len()).collect();
                    prop_assert_eq!(by_bytes, by_characters);
                    prop_assert_eq!(words(by_bytes), words(quote));
                }
            }
        }
    }
}
