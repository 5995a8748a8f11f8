//! What titles are made of.

/// The most characters of a title that are not white space.
const MOST_CHARACTERS: usize = 120;
/// How many words of a paragraph are looked at, and the fewest letters of prose among them.
const LOOKED_AT: usize = 40;
const FEWEST_LETTERS: usize = 15;
/// No heading's number has more digits, but years have.
const MOST_DIGITS: usize = 3;
/// What stands before the number of a picture or a table.
const CAPTIONS: [&str; 14] = [
    "figure",
    "fig",
    "table",
    "tab",
    "abbildung",
    "abb",
    "tabelle",
    "tableau",
    "figura",
    "tabla",
    "tabela",
    "listing",
    "exhibit",
    "algorithm",
];
/// What stands before the number of a chapter.
const CHAPTERS: [&str; 12] = [
    "chapter",
    "section",
    "part",
    "appendix",
    "annex",
    "article",
    "kapitel",
    "abschnitt",
    "teil",
    "anhang",
    "chapitre",
    "annexe",
];

/// Whether a text, whose words have one blank between them, may be a title: it begins like one, does not end like a
/// sentence, and is neither an address nor a line of a table of contents.
pub(super) fn is_title(text: &str) -> bool {
    let numbered = numbered(text);
    let (mut letters, mut others) = (0, 0);
    for character in numbered.map_or(text, |(_, rest)| rest).chars().filter(|character| !character.is_whitespace()) {
        *(if character.is_alphabetic() { &mut letters } else { &mut others }) += 1;
    }
    // Numbers head what is called by letters and digits as well.
    let is_named = letters >= 2 && if numbered.is_some() { 2 * letters >= others } else { letters >= others };
    let bare = text.trim_start_matches(['"', '“', '„', '«', '¿', '¡', '§', ' ']);
    let begins = bare.chars().next().is_some_and(|first| !first.is_lowercase() && first.is_alphanumeric());
    let ends = text.ends_with(['.', ',', ';', ':', '-', '。', '，', '、']);
    let is_address = text.contains('@') || text.contains("://") || text.contains("www.");
    let is_long = letters + others > MOST_CHARACTERS;
    is_named && !is_long && begins && !ends && !is_address && !is_of_contents(text)
}

/// Whether it leads to a page: by a row of dots, or by a number after a numbered title.
fn is_of_contents(text: &str) -> bool {
    let has_leader = text.contains("....") || text.contains(". . .") || text.contains("……");
    let ends_in_number = text.rsplit(' ').next().is_some_and(is_number);
    has_leader || (ends_in_number && text.split(' ').count() > 2 && number(text).is_some())
}

fn is_number(word: &str) -> bool {
    (1..=MOST_DIGITS).contains(&word.len()) && word.bytes().all(|byte| byte.is_ascii_digit())
}

/// Whether it is the caption of a numbered picture or table.
pub(super) fn is_caption(title: &str) -> bool {
    let Some((first, rest)) = title.split_once(' ') else { return false };
    let first = first.trim_end_matches('.').to_lowercase();
    CAPTIONS.contains(&first.as_str()) && rest.starts_with(|next: char| next.is_ascii_digit())
}

/// How many parts the number has that a title begins with, as 2 for `3.1 Method`; `None` if it has no number.
pub(super) fn number(title: &str) -> Option<usize> {
    numbered(title).map(|(parts, _)| parts)
}

/// The same, with the title without its number; that of a chapter keeps it, because it may have no other.
fn numbered(title: &str) -> Option<(usize, &str)> {
    let (first, rest) = title.split_once(' ')?;
    if CHAPTERS.contains(&first.to_lowercase().as_str()) {
        let next = rest.split(' ').next().unwrap_or_default().trim_end_matches(['.', ':']);
        return (is_number(next) || is_roman(next) || is_letter(next)).then_some((1, title));
    }
    let bare = first.trim_end_matches(['.', ')', ':']);
    let (head, tail) = match bare.split_once('.') {
        Some((head, tail)) => (head, Some(tail)),
        None => (bare, None),
    };
    // A letter alone may begin a sentence.
    let is_marked = tail.is_some() || bare.len() < first.len();
    let is_first = is_number(head) || (is_marked && (is_letter(head) || is_roman(head)));
    let parts = || tail.into_iter().flat_map(|tail| tail.split('.'));
    (is_first && parts().all(is_number)).then(|| (1 + parts().count(), rest))
}

/// A title without the number before it, which may be a letter without a mark, as appendices have it.
pub(super) fn without_number(title: &str) -> &str {
    match (numbered(title), title.split_once(' ')) {
        (Some((_, rest)), _) => rest,
        (None, Some((first, rest))) if is_letter(first) || is_roman(first) => rest,
        _ => title,
    }
}

/// The parts of the number with which a title begins, such as 3 and 1 of `3.1 Method`.
pub(super) fn parts(title: &str) -> Option<Vec<u16>> {
    let (first, _) = title.split_once(' ')?;
    let part = |part: &str| if is_number(part) { part.parse().ok() } else { None };
    first.trim_end_matches(['.', ')', ':']).split('.').map(part).collect()
}

/// Whether a number comes next after another one: as its first child, its next sibling, or the next sibling of one of its parents.
pub(super) fn comes_next(number: &[u16], before: &[u16]) -> bool {
    let Some((last, outer)) = number.split_last() else { return false };
    let is_below = *last == 1 && outer == before;
    let is_beside = before.strip_prefix(outer).and_then(<[u16]>::first).is_some_and(|before| before + 1 == *last);
    is_below || is_beside
}

fn is_letter(word: &str) -> bool {
    matches!(word.as_bytes(), [b'A'..=b'Z'])
}

fn is_roman(word: &str) -> bool {
    (1..=6).contains(&word.len()) && word.bytes().all(|byte| matches!(byte, b'I' | b'V' | b'X' | b'L'))
}

/// A title without its digits, so that running headers with page numbers are equal.
pub(super) fn key(title: &str) -> String {
    title.chars().filter(|character| character.is_alphabetic()).flat_map(char::to_lowercase).collect()
}

/// Whether a text reads like one: it is mostly letters, and not only words that begin large.
pub(super) fn is_prose(text: &str) -> bool {
    let (mut letters, mut others, mut words, mut small) = (0, 0, 0, 0);
    for word in text.split_whitespace().take(LOOKED_AT) {
        words += 1;
        let first = word.chars().find(|character| character.is_alphanumeric());
        small += usize::from(first.is_some_and(|first| first.is_alphabetic() && !first.is_uppercase()));
        for character in word.chars() {
            *(if character.is_alphabetic() { &mut letters } else { &mut others }) += 1;
        }
    }
    letters >= FEWEST_LETTERS && letters >= 3 * others && small > 0 && 3 * small >= words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_tell_how_deep_a_title_is() {
        let cases = [
            ("1 Introduction", Some(1)),
            ("1. Introduction", Some(1)),
            ("3.1 Method", Some(2)),
            ("3.1.2. Data", Some(3)),
            ("A.1 Proofs", Some(2)),
            ("IV. RESULTS", Some(1)),
            ("Chapter 7", Some(1)),
            ("Appendix B Tables", Some(1)),
            ("2026 in review", None),
            ("A summary", None),
            ("I was there", None),
            ("Part of the whole", None),
            ("Introduction", None),
            ("3.x Versions", None),
            ("1..2 Odd", None),
        ];
        for (title, depth) in cases {
            assert_eq!(number(title), depth, "{title}");
        }
    }

    #[test]
    fn a_title_without_its_number_is_its_words() {
        for (title, words) in [
            ("2.1 Boats", "Boats"),
            ("IV. RESULTS\n", "RESULTS\n"),
            ("II Nests", "Nests"),
            ("A Proofs", "Proofs"),
            ("2026 in review", "2026 in review"),
            ("Chapter 7", "Chapter 7"),
            ("Boats", "Boats"),
        ] {
            assert_eq!(without_number(title), words);
        }
    }

    #[test]
    fn numbers_come_one_after_the_other() {
        let parts = |title: &str| parts(&format!("{title} Title"));
        assert_eq!((parts("3.1.2."), parts("A.1"), parts("1..2")), (Some(vec![3, 1, 2]), None, None));
        for (before, number, is_next) in [
            ("3", "3.1", true),
            ("3.1", "3.2", true),
            ("3.1.4.3", "3.1.5", true),
            ("3.1.4.3", "4", true),
            ("3", "3.2", false),
            ("3.1", "3.1", false),
            ("3.1", "4.2", false),
            ("3.1", "3.3", false),
        ] {
            assert_eq!(comes_next(&parts(number).unwrap(), &parts(before).unwrap()), is_next, "{before}, {number}");
        }
    }

    #[test]
    fn titles_are_neither_sentences_nor_addresses_nor_lines_of_contents() {
        for title in [
            "Introduction",
            "1.2 The way",
            "7.2.1.4 SHA3-224",
            "Chapter 7",
            "“Why?”",
            "Who is it?",
            "§ 3 Duties",
            "第一章 总则",
        ] {
            assert!(is_title(title), "{title}");
        }
        let others = [
            "so it goes",
            "It went on.",
            "As follows:",
            "a",
            "12",
            "1.2 3.4",
            "x = 1 + 2",
            "Ada@example.com writes",
            "See www.example.com",
            "1 Overview ........ 3",
            "1.2 The way 17",
        ];
        for other in others {
            assert!(!is_title(other), "{other}");
        }
        assert!(is_caption("Figure 3: A duck") && is_caption("Tab. 2 Counts") && !is_caption("Table of contents"));
    }

    #[test]
    fn prose_is_no_row_of_a_table() {
        assert!(is_prose("The ducks were counted in the first week of March, and again in June."));
        assert!(is_prose("本法的规定自公布之日起施行。其他法律另有规定的，依照其规定"));
        assert!(!is_prose("Duck 200 3.50\nGoose 11 9.00"));
        assert!(!is_prose("Name Address Telephone Number"));
        assert!(!is_prose("17"));
    }
}
