//! Finds the words that a caller quotes in a text, where runs of white space may differ.

/// Where a quote begins and ends in a text, in characters: the first place that has its words in their order, with white space between them
/// where the quote has it. `None` if there is no such place, or if the quote is blank.
pub fn find(text: &str, quote: &str) -> Option<(usize, usize)> {
    let words: Vec<&str> = quote.split_whitespace().collect();
    let first = words.first()?;
    let mut searched = 0;
    while let Some(found) = text[searched..].find(first) {
        let begin = searched + found;
        if let Some(end) = end_of(text, begin, &words) {
            let start = text[..begin].chars().count();
            return Some((start, start + text[begin..end].chars().count()));
        }
        searched = begin + first.chars().next().map_or(1, char::len_utf8);
    }
    None
}

/// Where the words end if they begin at a place.
fn end_of(text: &str, begin: usize, words: &[&str]) -> Option<usize> {
    let mut at = begin;
    for (number, word) in words.iter().enumerate() {
        if number > 0 {
            let rest = text[at..].trim_start();
            let space = text.len() - at - rest.len();
            if space == 0 {
                return None;
            }
            at += space;
        }
        at += text[at..].strip_prefix(word).map(|_| word.len())?;
    }
    Some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_whatever_white_space_is_between_them() {
        let text = "Änne  said:\n\tthe radar\u{a0}gauge is silent. The radar gauge!";
        for (quote, is) in [
            ("the radar gauge", Some("the radar\u{a0}gauge")),
            (" said: the ", Some("said:\n\tthe")),
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
                find(text, quote).map(|(start, end)| text.chars().skip(start).take(end - start).collect::<String>());
            assert_eq!(found.as_deref(), is, "{quote:?}");
        }
        assert_eq!(find("aab", "ab"), Some((1, 3)));
        assert_eq!(find("ää x", "ä x"), Some((1, 4)));
    }
}
