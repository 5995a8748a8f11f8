//! Names of things in texts: when two are the same, and which are none.
use unicode_normalization::UnicodeNormalization;

/// The most characters of a name.
pub const NAME_CHARS: usize = 200;

/// Words that stand for a name that is said elsewhere, in small letters.
const PRONOUNS: &[&str] = &[
    "i",
    "me",
    "my",
    "mine",
    "myself",
    "we",
    "us",
    "our",
    "ours",
    "ourselves",
    "you",
    "your",
    "yours",
    "he",
    "him",
    "his",
    "himself",
    "she",
    "her",
    "hers",
    "herself",
    "it",
    "its",
    "itself",
    "they",
    "them",
    "their",
    "theirs",
    "themselves",
    "this",
    "that",
    "these",
    "those",
    "who",
    "whom",
    "whose",
    "which",
    "what",
    "one",
    "someone",
    "somebody",
    "anyone",
    "anybody",
    "everyone",
    "everybody",
    "nobody",
    "something",
    "anything",
    "everything",
    "nothing",
    "here",
    "there",
    "ich",
    "mich",
    "wir",
    "uns",
    "du",
    "ihr",
    "er",
    "ihn",
    "ihm",
    "sie",
    "es",
    "dies",
    "dieser",
    "diese",
    "dieses",
    "jener",
    "jene",
    "jenes",
    "man",
    "je",
    "moi",
    "nous",
    "tu",
    "vous",
    "il",
    "ils",
    "elle",
    "elles",
    "lui",
    "leur",
    "ce",
    "cela",
    "yo",
    "nosotros",
    "tú",
    "usted",
    "ustedes",
    "él",
    "ella",
    "ellos",
    "ellas",
    "esto",
    "eso",
];

/// A name as it is compared: compatibility forms united, in small letters, without marks and punctuation, with single spaces. Blank if nothing of it
/// is left.
pub fn key(name: &str) -> String {
    let mut key = String::with_capacity(name.len());
    for character in name.nfkc().flat_map(char::to_lowercase).nfd().filter(|c| !is_mark(*c)) {
        if character.is_alphanumeric() {
            key.push(character);
        } else if !is_within_word(character) && !key.is_empty() && !key.ends_with(' ') {
            key.push(' ');
        }
    }
    key.truncate(key.trim_end().len());
    key.nfc().collect()
}

/// An accent or another mark on a letter.
fn is_mark(character: char) -> bool {
    unicode_normalization::char::is_combining_mark(character)
}

/// What stands within words and says nothing of their bounds: apostrophes, and what is not seen.
fn is_within_word(character: char) -> bool {
    matches!(character, '\'' | '’' | '‘' | '.' | '\u{ad}' | '\u{200b}'..='\u{200d}' | '\u{2060}'..='\u{2064}' | '\u{feff}')
        || is_mark_of_direction(character)
}

/// What says in which direction letters are read, and is not seen.
pub fn is_mark_of_direction(character: char) -> bool {
    matches!(character, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Whether a name stands for one that is said elsewhere.
pub fn is_pronoun(name: &str) -> bool {
    let name = name.trim().to_lowercase();
    PRONOUNS.contains(&name.as_str())
}

/// The words of a name's key that have a digit. Names whose numbers differ mean two things, however near they are.
pub fn numbers(key: &str) -> Vec<&str> {
    let mut numbers: Vec<&str> = key.split(' ').filter(|word| word.chars().any(char::is_numeric)).collect();
    numbers.sort_unstable();
    numbers
}

/// Whether two names may mean the same thing, as far as their numbers and types say.
pub fn may_be_one(one: (&str, &str), other: (&str, &str)) -> bool {
    let types_agree = one.1.is_empty() || other.1.is_empty() || one.1 == other.1;
    types_agree && numbers(one.0) == numbers(other.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_name_is_compared_without_what_spelling_adds() {
        for (name, is) in [
            ("  Ada   LOVELACE ", "ada lovelace"),
            ("Société Générale, S.A.", "societe generale sa"),
            ("O’Brien & Sons", "obrien sons"),
            ("ﬁnance Ⅳ", "finance iv"),
            ("Straße-12", "straße 12"),
            ("R2\u{200b}D2", "r2d2"),
            ("\u{202e}Ada\u{200f} \u{2066}L\u{2060}ee\u{2069}", "ada lee"),
            ("東京 都", "東京 都"),
            ("!?", ""),
        ] {
            assert_eq!(key(name), is, "{name}");
        }
    }

    #[test]
    fn numbers_and_types_keep_things_apart() {
        for (one, other, may) in [
            (("invoice 1001", ""), ("invoice 1002", ""), false),
            (("room 101", ""), ("room 101 north", ""), true),
            (("iphone 14", "product"), ("iphone 14 pro", "product"), true),
            (("paris", "city"), ("paris", "person"), false),
            (("paris", "city"), ("paris", ""), true),
        ] {
            assert_eq!(may_be_one(one, other), may, "{one:?} {other:?}");
        }
        assert!(is_pronoun(" They ") && is_pronoun("ES") && !is_pronoun("Ada"));
    }

    proptest! {
        #[test]
        fn the_key_of_a_key_is_the_key(name in "\\PC{0,40}") {
            let once = key(&name);
            prop_assert_eq!(key(&once), once.clone());
            prop_assert!(!once.starts_with(' ') && !once.ends_with(' ') && !once.contains("  "));
        }
    }
}
