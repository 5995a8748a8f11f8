//! Finds the words that a caller quotes in a text, where runs of white space may differ.

/// A text in which quotes are looked for. Each search takes time in the length of the text and the quote, and not in their product.
pub struct Searched {
    text: String,
    /// The text with one space for each run of white space, once it is needed.
    plain: Option<String>,
}

impl Searched {
    pub fn new(text: String) -> Searched {
        Searched { text, plain: None }
    }

    /// Where a quote begins and ends, in characters: the first place that has it to the letter, or else the first that has its words in their
    /// order, with white space between them where the quote has it. `None` if there is no such place, or if the quote is blank.
    pub fn find(&mut self, quote: &str) -> Option<(usize, usize)> {
        let words: Vec<&str> = quote.split_whitespace().collect();
        if words.is_empty() {
            return None;
        }
        if let Some(begin) = self.text.find(quote) {
            let start = self.text[..begin].chars().count();
            return Some((start, start + quote.chars().count()));
        }
        let words = words.join(" ");
        let plain = self.plain.get_or_insert_with(|| plain(&self.text));
        let begin = plain.find(&words)?;
        place(&self.text, begin, begin + words.len())
    }
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

/// The characters of a text that stand at these bytes of its plain form, which begin and end with a word.
fn place(text: &str, from: usize, to: usize) -> Option<(usize, usize)> {
    let (mut at, mut is_in_space, mut start) = (0, false, None);
    for (number, character) in text.chars().enumerate() {
        let is_space = character.is_whitespace();
        if at == from && !is_space {
            start = start.or(Some(number));
        }
        if !(is_space && is_in_space) {
            at += if is_space { 1 } else { character.len_utf8() };
        }
        if at == to && !is_space {
            return start.map(|start| (start, number + 1));
        }
        is_in_space = is_space;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(text: &str, quote: &str) -> Option<(usize, usize)> {
        Searched::new(text.to_owned()).find(quote)
    }

    #[test]
    fn a_quote_that_is_nearly_everywhere_is_looked_for_in_one_pass() {
        let text = "a ".repeat(500_000);
        assert_eq!(find(&text, &format!("{}b", "a ".repeat(4_999))), None);
        assert_eq!(find(&text, &format!("{}a", "a  ".repeat(4_999))), Some((0, 9_999)));
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
                find(text, quote).map(|(start, end)| text.chars().skip(start).take(end - start).collect::<String>());
            assert_eq!(found.as_deref(), is, "{quote:?}");
        }
        assert_eq!(find("aab", "ab"), Some((1, 3)));
        assert_eq!(find("ää x", "ä x"), Some((1, 4)));
    }
}
